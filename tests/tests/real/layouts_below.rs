//! `lfs getstripe -r` shows of a tree what `lfs getstripe` shows of each file in it.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tests::cluster::{TestFs, bin_dir, fails, ok_within, run_within, sh, tool};

const LIMIT: Duration = Duration::from_secs(60);

/// Directories in directories, one of more than a page, with files that lie with their inodes, on objects, in
/// components, and what has no layout.
fn fill(m: &Path) -> Result<()> {
    let make = "mkdir -p deep/a/b/c wide/many pool/sub && lfs setstripe -c 2 pool \
        && lfs setstripe -E 64k -L mdt -E 1M -c 1 -E -1 -c 2 -S 128k wide \
        && lfs setstripe -c 2 -S 1M deep/striped && lfs setstripe -E 1M -c 1 -E -1 -c 2 deep/a/parts";
    let path = format!("cd {} && export PATH={}:$PATH && {make}", m.display(), bin_dir().display());
    sh(&path, LIMIT)?;
    for n in 0..700 {
        std::fs::write(m.join(format!("wide/many/{n}")), b"small")?;
    }
    for n in 0..20 {
        std::fs::write(m.join(format!("deep/a/b/file {n}")), vec![n; 70_000 * usize::from(n % 2)])?;
        std::fs::write(m.join(format!("pool/sub/{n}")), b"on an object")?;
    }
    std::fs::write(m.join("deep/a/parts"), vec![1; 3 << 20])?;
    std::fs::hard_link(m.join("deep/a/parts"), m.join("deep/a/b/c/again"))?;
    symlink("nowhere", m.join("deep/link"))?;
    sh(&format!("mkfifo {}/deep/fifo", m.display()), LIMIT)?;
    Ok(())
}

fn lfs(args: &[&str], paths: &[&str]) -> Result<String> {
    ok_within(tool("lfs").arg("getstripe").args(args).args(paths), LIMIT)
}

/// Each row, without the order.
fn rows(json: &str) -> Result<BTreeSet<String>> {
    let all: Vec<Value> = serde_json::from_str(json).context("an array")?;
    Ok(all.iter().map(Value::to_string).collect())
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_tree_shows_what_each_of_its_files_shows() -> Result<()> {
    let fs = TestFs::up("below", 2, 2)?;
    let m = fs.mount(0);
    fill(m)?;
    for m in [m, fs.mount(1)] {
        let m = m.to_str().context("a path")?;
        let all = sh(&format!("find {m} -xdev '(' -type f -o -type d ')'"), LIMIT)?;
        let paths: Vec<&str> = all.lines().collect();
        ensure!(paths.len() > 740, "{} files", paths.len());
        for options in [&[][..], &["-v"], &["-c", "-F"], &["-q"], &["-O1"]] {
            let alone = lfs(&[&["-d"], options].concat(), &paths)?;
            let one = lfs(&[&["-r", "--threads=1"], options].concat(), &[m])?;
            ensure!(sorted(&alone) == sorted(&one), "one thread, {options:?}");
            let several = lfs(&[&["-r", "--threads", "4"], options].concat(), &[m])?;
            ensure!(sorted(&alone) == sorted(&several), "several threads, {options:?}");
        }
        let documents = |text: &str| text.split("---\n").map(str::to_string).collect::<BTreeSet<String>>();
        let yaml = lfs(&["-r", "-y"], &[m])?;
        ensure!(documents(&yaml) == documents(&lfs(&["-d", "-y"], &paths)?), "documents of YAML");
        let json = rows(&lfs(&["-r", "--json"], &[m])?)?;
        ensure!(json == rows(&lfs(&["-d", "--json"], &paths)?)?, "rows of JSON");
        ensure!(json.len() == paths.len(), "each once");
        let level = rows(&lfs(&["--json"], &[m])?)?;
        ensure!(level.len() == 4 && level.is_subset(&json), "one level: {level:?}");
    }
    let m = fs.mount(0);
    fails("lfs", &["getstripe", "-r", "--threads=33", "/"], 4, "1 to 32")?;
    // Who may not look into a directory is told so, and shown the rest.
    std::fs::set_permissions(fs.scratch(), std::fs::Permissions::from_mode(0o755))?;
    let copy = fs.scratch().join("nacre");
    std::fs::copy(bin_dir().join("nacre"), &copy)?;
    for (mode, dir) in [(0o700, "pool"), (0o744, "deep/a")] {
        std::fs::set_permissions(m.join(dir), std::fs::Permissions::from_mode(mode))?;
        let mut c = Command::new("setpriv");
        c.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&copy);
        let o = run_within(c.args(["lfs", "getstripe", "-r", "-F", "-c"]).arg(m), LIMIT)?;
        let (out, err) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
        ensure!(o.status.code() == Some(13) && err.contains(dir), "{dir}: {} {err}", o.status);
        ensure!(out.contains("wide/many/699\n"), "{dir}: the rest is shown");
        ensure!(!out.contains(&format!("{dir}/")), "{dir}: what is in it is not");
    }
    fs.fsck()
}
