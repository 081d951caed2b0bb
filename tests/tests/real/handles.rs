//! File handles (name_to_handle_at, open_by_handle_at): they lead to their files whatever was forgotten or
//! started again meanwhile.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tests::cluster::{TestFs, kill_all, ok_within, tool};

const LIMIT: Duration = Duration::from_secs(60);

fn program(fs: &TestFs, what: &str, mount: usize) -> Result<()> {
    on(fs, what, fs.mount(mount))
}

fn on(fs: &TestFs, what: &str, mount: &Path) -> Result<()> {
    let script = fs.scratch().join("handles.py");
    std::fs::write(&script, include_str!("handles.py"))?;
    let book = fs.scratch().join("book");
    let mut c = Command::new("python3");
    c.arg(script).arg(what).arg(mount).arg(book);
    ok_within(&mut c, LIMIT).map(drop).with_context(|| what.to_string())
}

#[test]
fn a_file_handle_outlives_caches_mounts_and_servers() -> Result<()> {
    let fs = TestFs::up("handles", 2, 2)?;
    program(&fs, "take", 0)?;
    program(&fs, "check", 0).context("the kernel knows them")?;
    program(&fs, "check", 1).context("another mount, which never saw them")?;
    std::fs::write("/proc/sys/vm/drop_caches", "2")?;
    program(&fs, "check", 0).context("the kernel forgot them")?;
    program(&fs, "held", 0)?;
    program(&fs, "unprivileged", 0)?;
    let part = fs.scratch().join("part");
    std::fs::create_dir(&part)?;
    let source = fs.status()?["source"].as_str().context("source")?.to_string();
    ok_within(tool("mount.nacre").arg(format!("{source}/a/b")).arg(&part), LIMIT)?;
    let on_part = on(&fs, "below", &part);
    ok_within(Command::new("umount").arg(&part), LIMIT)?;
    on_part?;
    ok_within(Command::new("umount").arg(fs.mount(0)), LIMIT)?;
    fs.up_again()?;
    program(&fs, "check", 0).context("mounted again")?;
    kill_all(&fs.servers()?, Duration::from_secs(10))?;
    fs.up_again()?;
    std::fs::write("/proc/sys/vm/drop_caches", "2")?;
    program(&fs, "check", 0).context("the servers were killed and started again")?;
    fs.fsck()
}

/// `.lustre/fid` and `.nacre/fid`: as root, as a user who finds the file by its path, and as one who does
/// not.
#[test]
fn files_open_by_their_fids() -> Result<()> {
    let fs = TestFs::up("byfid", 1, 1)?;
    let script = fs.scratch().join("by_fid.sh");
    std::fs::write(&script, include_str!("by_fid.sh"))?;
    let lfs = tool("lfs").get_program().to_owned();
    let mut c = Command::new("bash");
    c.arg("-eu").arg(&script).arg(fs.mount(0)).arg(lfs);
    ok_within(&mut c, LIMIT)?;
    let part = fs.scratch().join("part");
    std::fs::create_dir(&part)?;
    let source = fs.status()?["source"].as_str().context("source")?.to_string();
    ok_within(tool("mount.nacre").arg(format!("{source}/d")).arg(&part), LIMIT)?;
    let seen = part.join(".lustre").exists();
    ok_within(Command::new("umount").arg(&part), LIMIT)?;
    anyhow::ensure!(!seen, "a mount of a subdirectory shows what lies outside of it");
    fs.fsck()
}
