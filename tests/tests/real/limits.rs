//! Limits as an administrator sets them and users meet them.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, run_within, tool};
use tests::users::{USER, as_user};

const LIMIT: Duration = Duration::from_secs(60);

fn lfs(args: &[&str]) -> Result<String> {
    ok_within(tool("lfs").args(args), LIMIT)
}

/// It fails with this status and these words.
fn fails(args: &[&str], code: i32, part: &str) -> Result<()> {
    let o = run_within(tool("lfs").args(args), LIMIT)?;
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    ensure!(o.status.code() == Some(code) && said.contains(part), "{args:?}: {}: {said}", o.status);
    Ok(())
}

/// Files that the user can make until he may have no more.
fn make_all(dir: &Path, prefix: &str) -> Result<usize> {
    for i in 0..10_000 {
        let path = dir.join(format!("{prefix}{i}"));
        match as_user(|| fs::write(&path, b"some words")) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::QuotaExceeded => return Ok(i),
            Err(e) => return Err(e).with_context(|| path.display().to_string()),
        }
    }
    anyhow::bail!("no limit after 10,000 files")
}

fn limits(m: &str) -> Result<Value> {
    let text = lfs(&["quota", "--json", "-u", &USER.to_string(), m])?;
    let rows: Value = serde_json::from_str(&text)?;
    Ok(rows[0].clone())
}

#[test]
fn users_get_what_they_may_have_and_edquot() -> Result<()> {
    let t = TestFs::up("limits", 1, 1)?;
    let mount = t.mount(0);
    let (m, user) = (mount.to_str().context("a name")?, USER.to_string());
    fs::set_permissions(mount, fs::Permissions::from_mode(0o777))?;
    let dir = mount.join("his");
    as_user(|| fs::create_dir(&dir))?;
    ensure!(lfs(&["quota", "-t", "-u", m])? == "Block grace time: 1w; Inode grace time: 1w\n");

    // Far away: as without one.
    lfs(&["setquota", "-u", &user, "-i", "900000", "-I", "1000000", m])?;
    for i in 0..99 {
        as_user(|| fs::write(dir.join(format!("far{i}")), b"x"))?;
    }
    lfs(&["setquota", "-u", &user, "-i", "110", "-I", "120", m])?;
    ensure!(make_all(&dir, "near")? == 20, "99 files and the directory were there");
    let shown = lfs(&["quota", "-u", &user, m])?;
    ensure!(shown.contains("120*     110     120 "), "{shown}");
    let inodes = limits(m)?["limits"]["inodes"].clone();
    let left = inodes["grace_left_s"].as_u64().context("a grace time")?;
    ensure!(inodes["soft"] == 110 && (600_000..=604_800).contains(&left), "{inodes}");
    as_user(|| fs::remove_file(dir.join("far0")))?;
    ensure!(make_all(&dir, "freed")? == 1);

    // A killed server knows of it.
    t.servers()?.into_iter().try_for_each(|pid| kill(pid, Signal::KILL))?;
    t.up_again()?;
    ensure!(make_all(&dir, "after")? == 0);
    lfs(&["setquota", "-t", "-u", "-i", "0", m])?;
    for i in 0..9 {
        as_user(|| fs::remove_file(dir.join(format!("near{i}"))))?;
    }
    let shown = lfs(&["quota", "-u", &user, m])?;
    ensure!(shown.contains("expired"), "{shown}");
    ensure!(make_all(&dir, "late")? == 0, "111 are more than 110, whose time is over");
    lfs(&["setquota", "-t", "-u", "-i", "notify", m])?;
    ensure!(make_all(&dir, "notified")? == 9);

    // Root gives what it likes; who has no limits of his own has the default ones.
    fs::write(dir.join("root's"), b"")?;
    lfs(&["setquota", "-U", "-I", "5", m])?;
    lfs(&["setquota", "--delete", "-u", &user, m])?;
    ensure!(lfs(&["quota", "-U", m])?.contains("       5"));
    ensure!(make_all(&dir, "default")? == 0);
    let enabled = |v: &str| {
        ok_within(tool("lctl").args(["set_param", &format!("osd-*.*MDT*.quota_slave.enabled={v}")]), LIMIT)
    };
    enabled("gp")?;
    as_user(|| fs::write(dir.join("free"), b""))?;
    enabled("ugp")?;
    ensure!(make_all(&dir, "enforced")? == 0);

    fails(&["setquota", "-u", &user, "-B", "1G", m], 95, "limits on space are not enforced")?;
    fails(&["setquota", "-u", "root", "-I", "5", m], 22, "root")?;
    fails(&["setquota", "-u", "nobody-of-that-name", "-I", "5", m], 2, "unknown user")?;
    let as_him = as_user(|| run_within(tool("lfs").args(["setquota", "-u", &user, "-I", "0", m]), LIMIT))?;
    ensure!(as_him.status.code() == Some(1), "{as_him:?}");
    t.fsck()
}
