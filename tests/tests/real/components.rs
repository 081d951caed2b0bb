//! Layouts of several components from the command line, on a real mount: set, shown, filled, taken over.

use anyhow::{Result, ensure};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use tests::cluster::{TestFs, run_within, tool};

const LIMIT: Duration = Duration::from_secs(30);
const MIB: u64 = 1 << 20;

/// `lfs` succeeds; what it printed.
fn lfs(args: &[&str], dir: &Path) -> Result<String> {
    let o = run_within(tool("lfs").args(args).current_dir(dir), LIMIT)?;
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    ensure!(o.status.success(), "lfs {args:?}: {}\n{}{}", o.status, text(&o.stdout), text(&o.stderr));
    Ok(text(&o.stdout))
}

/// Values of all components, one a line.
fn values(option: &str, file: &str, dir: &Path) -> Result<String> {
    Ok(lfs(&["getstripe", "--mirror-id=0", option, file], dir)?
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" "))
}

fn shows(option: &str, file: &str, dir: &Path, want: &str) -> Result<()> {
    let got = values(option, file, dir)?;
    ensure!(got == want, "getstripe {option} {file}: '{got}' instead of '{want}'");
    Ok(())
}

fn write_at(path: &Path, off: u64) -> Result<()> {
    let f = std::fs::OpenOptions::new().write(true).open(path)?;
    f.write_all_at(b"somewhere", off)?;
    Ok(f.sync_all()?)
}

#[test]
fn composite_layouts_are_asked_for_filled_and_shown() -> Result<()> {
    let fs = TestFs::up("lfscomp", 4, 1)?;
    let m = fs.mount(0);
    lfs(&["setstripe", "-E", "1M", "-S", "64k", "-E", "16M", "-c", "2", "-E", "-1", "-C", "-2", "f"], m)?;
    shows("-I", "f", m, "1 2 3")?;
    shows("-E", "f", m, "1048576 16777216 EOF")?;
    shows("-c", "f", m, "1 2 -2")?;
    shows("-L", "f", m, "raid0 raid0 raid0,overstriped")?;
    shows("--component-flags", "f", m, "init 0 0")?;
    write_at(&m.join("f"), 20 * MIB)?;
    shows("--component-flags", "f", m, "init 0 init")?;
    ensure!(lfs(&["getstripe", "-c", "f"], m)?.trim() == "8", "two objects on each of four OSTs");
    ensure!(
        lfs(&["getstripe", "--component-flags=init", "-I", "f"], m)? == "1\n3\n",
        "bare values, one a line"
    );
    templates(m)?;
    directories(m)?;
    fs.fsck()
}

/// `--yaml` and `--copy` of the file that was made, and `migrate` to its like.
fn templates(m: &Path) -> Result<()> {
    let yaml = lfs(&["getstripe", "-y", "f"], m)?;
    std::fs::write(m.join("f.yaml"), &yaml)?;
    lfs(&["setstripe", "--yaml", "f.yaml", "g"], m)?;
    lfs(&["setstripe", "--copy", "f", "h"], m)?;
    for (file, counts) in [("g", "1 2 8"), ("h", "1 2 8")] {
        shows("-E", file, m, "1048576 16777216 EOF")?;
        shows("-c", file, m, counts)?;
        shows("-S", file, m, "65536 65536 65536")?;
    }
    ensure!(
        lfs(&["getstripe", "-i", "g"], m)? == lfs(&["getstripe", "-I1", "-i", "f"], m)?,
        "the same first OST"
    );
    std::fs::write(m.join("wide"), vec![7; 3 << 20])?;
    lfs(&["migrate", "-E", "2M", "-c", "1", "-E", "-1", "-c", "3", "wide"], m)?;
    shows("-E", "wide", m, "2097152 EOF")?;
    ensure!(std::fs::read(m.join("wide"))? == vec![7; 3 << 20], "moved as it was");
    lfs(&["migrate", "wide"], m)?;
    shows("-E", "wide", m, "2097152 EOF")?;
    lfs(&["migrate", "-c", "2", "wide"], m)?;
    ensure!(lfs(&["getstripe", "--component-count", "wide"], m)?.trim() == "0", "plain again");
    Ok(())
}

/// Defaults with data on the MDT, components and room to grow into.
fn directories(m: &Path) -> Result<()> {
    std::fs::create_dir(m.join("d"))?;
    lfs(
        &[
            "setstripe",
            "-E",
            "64k",
            "-L",
            "mdt",
            "-E",
            "1G",
            "-c",
            "1",
            "-S",
            "1M",
            "-E",
            "eof",
            "-c",
            "4",
            "d",
        ],
        m,
    )?;
    let shown = lfs(&["getstripe", "-d", "--mirror-id=0", "-E", "d"], m)?;
    ensure!(shown == "65536\n1073741824\nEOF\n", "{shown}");
    std::fs::write(m.join("d/small"), b"x")?;
    shows("-L", "d/small", m, "mdt raid0 raid0")?;
    shows("--component-flags", "d/small", m, "init 0 0")?;
    std::fs::write(m.join("d/large"), vec![1; 100_000])?;
    shows("-E", "d/large", m, "1073741824 EOF")?;
    lfs(&["setstripe", "-E", "1G", "-z", "64M", "grows"], m)?;
    shows("-E", "grows", m, "67108864 1073741824")?;
    write_at(&m.join("grows"), 100 * MIB)?;
    shows("-E", "grows", m, "134217728 1073741824")?;
    shows("--component-flags", "grows", m, "init extension")?;
    ensure!(
        lfs(&["getstripe", "--component-flags=extension", "-z", "grows"], m)?.trim() == "67108864",
        "a step"
    );
    let behind = write_at(&m.join("grows"), 1 << 30).unwrap_err().to_string();
    ensure!(behind.contains("61"), "behind the last component: ENODATA, not {behind}");
    Ok(())
}
