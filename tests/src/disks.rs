//! A file system of `nacre up` whose OSTs lie on disks of their own.

use crate::cluster::{Scratch, fsck_when_free, ok_within, tool, wait_until};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const FREE_LIMIT: Duration = Duration::from_secs(5);

/// OSTs on disks in memory, none of which has a limit of its own to a file's size, and two mounts. Ends, and
/// its disks with it, when dropped.
pub struct OnDisks {
    scratch: Scratch,
    osts: usize,
}

impl OnDisks {
    /// `size`: of each disk, in the words of mount(8).
    pub fn up(fsname: &str, osts: usize, size: &str) -> Result<OnDisks> {
        let d = OnDisks { scratch: Scratch::new(fsname), osts };
        let size = format!("size={size}");
        for n in 0..osts {
            std::fs::create_dir_all(d.disk(n))?;
            ok_within(
                Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(d.disk(n)),
                LIMIT,
            )?;
        }
        let mut c = d.nacre("up");
        c.args(["--no-watch", "--fsname", fsname, "--osts", &osts.to_string(), "--mount"]);
        ok_within(c.arg(d.mount(0)).arg("--mount").arg(d.mount(1)), LIMIT)?;
        Ok(d)
    }

    /// Where everything lies.
    pub fn dir(&self) -> PathBuf {
        self.scratch.path().join("fs")
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
        for disk in (0..self.osts).map(|n| self.disk(n)).filter(|d| d.exists()) {
            if wait_until("the disk is free", FREE_LIMIT, || umount(&disk)).is_err() {
                quietly(Command::new("umount").arg("-l").arg(&disk));
            }
        }
    }
}
