//! What an inode shows and forbids: directories that were removed while somebody is in them, files with `chattr` flags.

use anyhow::Result;
use std::process::Command;
use std::time::Duration;
use tests::cluster::{TestFs, ok_within};

fn program(fs: &TestFs, name: &str) -> Result<()> {
    let script = fs.scratch().join("inodes.py");
    std::fs::write(&script, include_str!("inodes.py"))?;
    let mut c = Command::new("python3");
    c.arg(script).arg(name).arg(fs.mount(0)).arg(fs.mount(1));
    ok_within(&mut c, Duration::from_secs(60)).map(drop)
}

#[test]
fn a_removed_directory_is_there_for_who_is_in_it() -> Result<()> {
    let fs = TestFs::up("removed", 1, 2)?;
    program(&fs, "removed_directories")?;
    fs.fsck()
}

#[test]
fn append_only_and_immutable_files_keep_what_they_have() -> Result<()> {
    let fs = TestFs::up("flagged", 2, 2)?;
    program(&fs, "flagged_files")?;
    fs.fsck()
}

#[test]
fn reads_show_in_access_times_unless_the_file_says_no() -> Result<()> {
    let fs = TestFs::up("accessed", 2, 2)?;
    program(&fs, "access_times")?;
    fs.fsck()
}
