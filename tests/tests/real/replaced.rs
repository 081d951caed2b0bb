//! An OST that is lost, and another one in its place.

use anyhow::{Context, Result, ensure};
use std::process::Command;
use std::time::Duration;
use tests::cluster::{TestFs, ok_within, run_within, sh, stripe_64k, tool};

const LIMIT: Duration = Duration::from_secs(60);

/// What was on the lost one is an error for everybody who looks, until it is removed, truncated or written
/// anew.
#[test]
fn what_was_on_a_lost_ost_is_no_empty_file() -> Result<()> {
    let fs = TestFs::up("replaced", 2, 1)?;
    let m = fs.mount(0);
    for name in ["cut", "gone", "kept"] {
        stripe_64k(&m.join(name), 2)?;
        std::fs::write(m.join(name), vec![7; 300_000])?;
    }
    std::fs::write(m.join("small"), "small")?;
    let lost = format!("{}-OST0001", fs.fsname());
    ok_within(tool("lctl").args(["registration", &lost, "replace"]), LIMIT)?;
    fs.down()?;
    let ost = fs.dir().join("ost0001");
    let label = ok_within(tool("tunefs.nacre").arg("--dryrun").arg(&ost), LIMIT)?;
    let mgs = label.split_whitespace().find(|w| w.starts_with("mgsnode=")).context("no mgsnode")?;
    let mut mkfs = tool("mkfs.nacre");
    mkfs.args(["--ost", "--index=1", "--replace", "--reformat", &format!("--{mgs}")]);
    ok_within(mkfs.arg(format!("--fsname={}", fs.fsname())).arg(&ost), LIMIT)?;
    fs.up_again()?;

    let eio = |r: std::io::Result<()>| {
        r.is_err_and(|e| e.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()))
    };
    for name in ["cut", "gone", "kept"] {
        let f = m.join(name);
        ensure!(eio(std::fs::metadata(&f).map(drop)), "stat of {name}");
        ensure!(eio(std::fs::read(&f).map(drop)), "{name} reads as data");
    }
    let copy = run_within(Command::new("cp").arg(m.join("kept")).arg(fs.scratch()), LIMIT)?;
    ensure!(!copy.status.success(), "a backup takes the loss for data");
    ensure!(std::fs::read(m.join("small"))? == b"small");
    let names = sh(&format!("ls -U {}", m.display()), LIMIT)?;
    ensure!(names.lines().count() == 4, "{names}");

    std::fs::remove_file(m.join("gone"))?;
    std::fs::write(m.join("gone"), vec![8; 300_000])?;
    std::fs::write(m.join("cut"), vec![9; 300_000])?;
    stripe_64k(&m.join("new"), 2)?;
    std::fs::write(m.join("new"), vec![6; 300_000])?;
    fs.down()?;
    fs.up_again()?;
    for (name, byte) in [("gone", 8), ("cut", 9), ("new", 6)] {
        ensure!(std::fs::read(m.join(name))? == vec![byte; 300_000], "{name} after a restart");
    }
    ensure!(eio(std::fs::metadata(m.join("kept")).map(drop)), "still");
    std::fs::remove_file(m.join("kept"))?;
    fs.fsck()
}
