//! What an inode shows and forbids: directories that were removed while somebody is in them, files with
//! `chattr` flags.

use anyhow::{Context, Result};
use std::process::Command;
use std::time::Duration;
use tests::cluster::{TestFs, ok_within};

fn program(fs: &TestFs, name: &str) -> Result<()> {
    program_with(fs, name, &[])
}

fn program_with(fs: &TestFs, name: &str, more: &[&str]) -> Result<()> {
    let script = fs.scratch().join("inodes.py");
    std::fs::write(&script, include_str!("inodes.py"))?;
    let mut c = Command::new("python3");
    c.arg(script).arg(name).arg(fs.mount(0)).arg(fs.mounts().last().context("a mount")?).args(more);
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

#[test]
fn files_have_the_flags_of_their_directory() -> Result<()> {
    let fs = TestFs::up("inherited", 1, 2)?;
    program(&fs, "inherited_flags")?;
    fs.fsck()
}

#[test]
fn what_is_written_to_a_synchronous_file_outlives_the_mount() -> Result<()> {
    let fs = TestFs::up("synchronous", 2, 1)?;
    let client = fs.clients()?.first().context("the mount's daemon")?.to_string();
    program_with(&fs, "synchronous", &[&client])?;
    fs.up_again()?;
    program(&fs, "written")?;
    fs.fsck()
}
