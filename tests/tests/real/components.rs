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

/// `lfs` fails with this exit status, and says why.
fn refused(args: &[&str], dir: &Path, status: i32, words: &str) -> Result<()> {
    let o = run_within(tool("lfs").args(args).current_dir(dir), LIMIT)?;
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    let as_expected = o.status.code() == Some(status) && said.contains(words);
    ensure!(as_expected, "lfs {args:?}: {}, not {status} with '{words}': {said}", o.status);
    Ok(())
}

#[test]
fn components_come_and_go_under_programs_that_have_the_file_open() -> Result<()> {
    let fs = TestFs::up("lfscomps", 4, 2)?;
    let (m, n) = (fs.mount(0), fs.mount(1));
    lfs(&["setstripe", "-E", "1M", "-S", "64k", "f"], m)?;
    let there = std::fs::OpenOptions::new().read(true).write(true).open(n.join("f"))?;
    let beyond = there.write_all_at(b"x", MIB).unwrap_err();
    ensure!(beyond.raw_os_error() == Some(61), "behind the last component: ENODATA, not {beyond}");
    lfs(&["setstripe", "--component-add", "-E", "4M", "-c", "2", "-E", "16M", "f"], m)?;
    shows("-E", "f", n, "1048576 4194304 16777216")?;
    shows("-c", "f", n, "1 2 2")?;
    there.write_all_at(&vec![7; 5 << 20], 0)?;
    ensure!(std::fs::read(m.join("f"))? == vec![7; 5 << 20], "written into what was added");
    lfs(&["setstripe", "--comp-set", "-I", "2", "--comp-flags=prefer", "f"], m)?;
    shows("--component-flags", "f", n, "init init,prefer init")?;
    refused(&["setstripe", "--component-del", "-I", "2", "f"], m, 22, "this would leave a hole")?;
    lfs(&["setstripe", "--component-del", "-I", "3", "f"], m)?;
    for dir in [m, n] {
        ensure!(std::fs::read(dir.join("f"))? == vec![7; 4 << 20], "what lay there is gone");
    }
    let beyond = there.write_all_at(b"x", 4 * MIB).unwrap_err();
    ensure!(beyond.raw_os_error() == Some(61), "it ends there now: {beyond}");
    lfs(&["setstripe", "--comp-add", "--comp-end", "-1", "f"], n)?;
    there.write_all_at(b"end", 9 * MIB)?;
    ensure!(std::fs::read(m.join("f"))?[4 << 20..9 << 20].iter().all(|b| *b == 0), "nothing came back");
    refusals(m)?;
    drop(there);
    fs.fsck()
}

fn refusals(m: &Path) -> Result<()> {
    refused(&["setstripe", "--component-add", "-E", "-1", "f"], m, 22, "reaches to the end of the file")?;
    refused(&["setstripe", "--component-del", "-I", "77", "f"], m, 22, "no such component")?;
    refused(
        &["setstripe", "--component-del", "--component-flags=^stale", "f"],
        m,
        95,
        "its first component",
    )?;
    refused(&["setstripe", "--component-set", "-I", "1", "--component-flags=stale", "f"], m, 95, "one copy")?;
    refused(&["setstripe", "--component-del", "-I", "1", "nothing"], m, 2, "No such file")?;
    refused(&["setstripe", "--component-add", "-E", "1G", "/tmp"], m, 25, "Inappropriate ioctl")?;
    std::fs::create_dir(m.join("dir"))?;
    refused(&["setstripe", "--component-add", "-E", "1G", "dir"], m, 22, "only regular files")?;
    std::fs::write(m.join("small"), b"x")?;
    refused(&["setstripe", "--component-add", "-E", "-1", "small"], m, 22, "lies with its inode")?;
    refused(&["setstripe", "--component-del", "-I", "1", "small"], m, 95, "its first component")?;
    lfs(&["setstripe", "-E", "1M", "ends"], m)?;
    refused(&["setstripe", "--component-add", "-E", "512k", "ends"], m, 22, "must end behind 1048576")?;
    let most: Vec<String> = (2..=65).flat_map(|n| ["-E".to_string(), format!("{n}M")]).collect();
    let most: Vec<&str> =
        ["setstripe", "--component-add"].into_iter().chain(most.iter().map(String::as_str)).collect();
    refused(&[&most[..], &["ends"]].concat(), m, 22, "at most 64 components")
}

/// A shell's commands succeed; what they printed.
fn sh(line: &str) -> Result<String> {
    tests::cluster::sh(line, LIMIT)
}

#[test]
fn copying_programs_bring_layouts_along() -> Result<()> {
    let fs = TestFs::up("lov", 4, 1)?;
    let m = fs.mount(0);
    let here = m.display();
    std::fs::create_dir_all(m.join("from/sub"))?;
    lfs(
        &["setstripe", "-E", "1M", "-S", "64k", "-E", "16M", "-c", "2", "-E", "-1", "-C", "-2", "from/parts"],
        m,
    )?;
    lfs(&["setstripe", "-c", "3", "-S", "128k", "from/wide"], m)?;
    lfs(&["setstripe", "-c", "2", "from/empty"], m)?;
    lfs(
        &["setstripe", "-E", "64k", "-L", "mdt", "-E", "1G", "-c", "1", "-E", "-1", "-c", "4", "from/sub"],
        m,
    )?;
    std::fs::write(m.join("from/parts"), vec![1; 2 << 20])?;
    std::fs::write(m.join("from/wide"), vec![2; 300_000])?;
    std::fs::write(m.join("from/small"), b"x")?;
    ensure!(sh(&format!("getfattr -d -m - {here}/from/wide"))?.contains("lustre.lov="), "it is listed");
    ensure!(!sh(&format!("getfattr -d -m - {here}/from/small"))?.contains("lov"), "nothing to bring along");
    ensure!(sh(&format!("getfattr -n lustre.lov {here}/from/small"))?.contains("lustre.lov="), "to who asks");
    sh(&format!(
        "tar -C {here}/from --xattrs -cf - . | (mkdir {here}/tar && \
         tar -C {here}/tar --xattrs --xattrs-include='lustre.*' -xf -)"
    ))?;
    for (file, ends, counts) in
        [("parts", "1048576 16777216 EOF", "1 2 -2"), ("wide", "EOF", "3"), ("empty", "EOF", "2")]
    {
        let file = format!("tar/{file}");
        if ends != "EOF" {
            shows("-E", &file, m, ends)?;
        }
        shows("-c", &file, m, counts)?;
    }
    shows("-S", "tar/parts", m, "65536 65536 65536")?;
    let shown = lfs(&["getstripe", "-d", "--mirror-id=0", "-E", "tar/sub"], m)?;
    ensure!(shown == "65536\n1073741824\nEOF\n", "a directory's default: {shown}");
    // These set it behind the data, which changes nothing and is no error, but for files that have none.
    sh(&format!("cp -a {here}/from {here}/cp && rsync -aX {here}/from/ {here}/rsync/"))?;
    for copy in ["tar", "cp", "rsync"] {
        sh(&format!("diff -r {here}/from {here}/{copy}"))?;
    }
    shows("-c", "cp/empty", m, "2")?;
    by_hand(m)?;
    fs.fsck()
}

/// `setfattr`, as scripts use it.
fn by_hand(m: &Path) -> Result<()> {
    let here = m.display();
    let value = sh(&format!("getfattr -e hex -n lustre.lov {here}/from/wide | sed -n 's/^lustre.lov=//p'"))?;
    sh(&format!("mkdir {here}/dir && setfattr -n lustre.lov -v {} {here}/dir", value.trim()))?;
    std::fs::write(m.join("dir/file"), b"x")?;
    shows("-c", "dir/file", m, "3")?;
    sh(&format!("setfattr -x lustre.lov {here}/dir && ! getfattr -n lustre.lov {here}/dir"))?;
    for (value, words) in
        [("0x00", "Numerical result out of range"), (&format!("0x{}", "00".repeat(32)), "Invalid argument")]
    {
        let said =
            sh(&format!("touch {here}/new && ! LC_ALL=C setfattr -n lustre.lov -v {value} {here}/new 2>&1"))?;
        ensure!(said.contains(words), "{value}: {said}");
    }
    sh(&format!("setfattr -n lustre.lov -v {} {here}/new", value.trim()))?;
    shows("-c", "new", m, "3")?;
    let o = run_within(tool("lctl").args(["set_param", "llite.*.list_layouts=0"]), LIMIT)?;
    ensure!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    sh(&format!("! getfattr -m - {here}/dir/file | grep lov && getfattr -n lustre.lov {here}/dir/file"))?;
    Ok(())
}
