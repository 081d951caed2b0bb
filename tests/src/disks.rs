//! A file system of `nacre up` whose OSTs lie on disks of their own.

use crate::cluster::{Scratch, fsck_when_free, ok_within, tool, wait_until};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// Of each log.
const LAST_WARNINGS: usize = 10;
const FREE_LIMIT: Duration = Duration::from_secs(5);

/// OSTs on disks in memory, and two mounts. Ends, and its disks with it, when dropped.
pub struct OnDisks {
    scratch: Scratch,
    fsname: String,
    osts: usize,
}

/// What makes a file system of a disk: a program and its options; none: tmpfs, which has no limit of its own
/// to a file's size.
pub type Mkfs<'a> = &'a [&'a str];

impl OnDisks {
    /// `size`: of each disk, in the words of mount(8).
    pub fn up(fsname: &str, osts: usize, size: &str) -> Result<OnDisks> {
        OnDisks::of(fsname, &vec![(&[][..], size); osts])
    }

    /// A disk for each OST: what makes its file system, and its size. What is not written takes no memory.
    pub fn of(fsname: &str, disks: &[(Mkfs<'_>, &str)]) -> Result<OnDisks> {
        let d = OnDisks { scratch: Scratch::new(fsname), fsname: fsname.to_string(), osts: disks.len() };
        std::fs::create_dir_all(d.images())?;
        d.mount_in_memory(&d.images(), "100%")?;
        for (n, (mkfs, size)) in disks.iter().enumerate() {
            std::fs::create_dir_all(d.disk(n))?;
            let Some((program, options)) = mkfs.split_first() else {
                d.mount_in_memory(&d.disk(n), size)?;
                continue;
            };
            let image = d.images().join(format!("{n}"));
            ok_within(Command::new("truncate").args(["-s", size]).arg(&image), LIMIT)?;
            ok_within(Command::new(program).args(options).arg(&image), LIMIT)?;
            ok_within(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(d.disk(n)), LIMIT)?;
        }
        d.start()?;
        Ok(d)
    }

    fn mount_in_memory(&self, at: &Path, size: &str) -> Result<()> {
        let size = format!("size={size}");
        ok_within(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(at), LIMIT).map(drop)
    }

    /// `nacre up`, also of what was killed.
    pub fn start(&self) -> Result<()> {
        let mut c = self.nacre("up");
        c.args(["--no-watch", "--fsname", &self.fsname, "--osts", &self.osts.to_string(), "--mount"]);
        ok_within(c.arg(self.mount(0)).arg("--mount").arg(self.mount(1)), LIMIT).map(drop)
    }

    /// Where everything lies.
    pub fn dir(&self) -> PathBuf {
        self.scratch.path().join("fs")
    }

    fn images(&self) -> PathBuf {
        self.scratch.path().join("images")
    }

    fn disk(&self, n: usize) -> PathBuf {
        self.dir().join(format!("ost{n:04x}"))
    }

    /// One of the two.
    pub fn mount(&self, n: usize) -> PathBuf {
        self.scratch.path().join(format!("mnt{n}"))
    }

    fn nacre(&self, verb: &str) -> Command {
        let mut c = tool("nacre");
        c.arg(verb).arg("--dir").arg(self.dir());
        c
    }

    /// What its servers warned of last: for whoever finds that one has stopped.
    pub fn last_warnings(&self) -> String {
        let logs = std::fs::read_dir(self.dir().join("log")).into_iter().flatten().flatten();
        let mut out = String::new();
        for log in logs {
            let text = std::fs::read_to_string(log.path()).unwrap_or_default();
            let said: Vec<&str> =
                text.lines().filter(|l| l.contains("WARN") || l.contains("ERROR")).collect();
            for line in &said[said.len().saturating_sub(LAST_WARNINGS)..] {
                out += &format!("{}: {line}\n", log.file_name().display());
            }
        }
        out
    }

    /// Stops it, and checks what is on its disks.
    pub fn down(&self) -> Result<()> {
        ok_within(&mut self.nacre("down"), LIMIT)?;
        fsck_when_free([self.dir()])
    }
}

impl Drop for OnDisks {
    fn drop(&mut self) {
        let quietly = |c: &mut Command| drop(c.stdout(Stdio::null()).stderr(Stdio::null()).status());
        quietly(self.nacre("down").arg("--force"));
        let umount =
            |disk: &Path| Command::new("umount").arg(disk).output().is_ok_and(|o| o.status.success());
        let disks = (0..self.osts).map(|n| self.disk(n)).chain([self.images()]);
        for disk in disks.filter(|d| d.exists()) {
            if wait_until("the disk is free", FREE_LIMIT, || umount(&disk)).is_err() {
                quietly(Command::new("umount").arg("-l").arg(&disk));
            }
        }
    }
}
