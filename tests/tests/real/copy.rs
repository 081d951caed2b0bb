//! `nacre copy` and `nacre checksum` as their users start them: from the host's file system to a mount.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, run_within, sh, tool, wait_until};
use tests::users::{USER, as_user};

const LIMIT: Duration = Duration::from_secs(120);

/// Some thousand files, with all kinds that the user who runs this can make.
fn tree(at: &Path, root: bool) -> Result<()> {
    for i in 0..3000u32 {
        let dir = at.join(format!("d{}/e{}", i % 5, i % 40));
        fs::create_dir_all(&dir)?;
        let file = dir.join(format!("f{i}"));
        fs::write(&file, vec![i as u8; (i * 37 % 9000) as usize])?;
        match i % 300 {
            0 => fs::hard_link(&file, at.join(format!("link{i}")))?,
            1 => symlink("nowhere", dir.join(format!("symlink{i}")))?,
            2 => fs::set_permissions(&file, fs::Permissions::from_mode(0o6711))?,
            3 if root => chown(&file, Some(USER), Some(4711))?,
            _ => {}
        }
    }
    fs::write(at.join("large"), vec![5; 70 << 20])?;
    fs::File::create(at.join("sparse"))?.set_len(1 << 30)?;
    let at = at.display();
    sh(&format!("mkfifo {at}/fifo && setfattr -n user.a -v b {at}/large"), LIMIT)?;
    sh(&format!("setfacl -m u:4711:rw {at}/large && setfacl -d -m u:4711:rx {at}/d1"), LIMIT)?;
    if root {
        sh(
            &format!("mknod {at}/null c 1 3 && cp /bin/cat {at}/cat && setcap cap_net_raw+ep {at}/cat"),
            LIMIT,
        )?;
    }
    Ok(())
}

/// The report of a run that ends with this status.
fn copy(src: &Path, dst: &Path, more: &[&str], status: i32) -> Result<Value> {
    let o = run_within(tool("nacre").args(["copy", "--json"]).args(more).args([src, dst]), LIMIT)?;
    let text = String::from_utf8_lossy(&o.stdout);
    let said = String::from_utf8_lossy(&o.stderr);
    ensure!(o.status.code() == Some(status), "{:?}\n{said}{text}", o.status);
    serde_json::from_str(&text).with_context(|| format!("no JSON: {text}"))
}

/// Copied in two runs, the first of which is interrupted; then less of it.
fn there_and_less(src: &Path, dst: &Path) -> Result<()> {
    let first = tool("nacre")
        .args(["copy", "--json"])
        .args([src, dst])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let begun = || fs::read_dir(dst).is_ok_and(|d| d.count() > 2);
    let begun = wait_until("the first files", LIMIT, begun);
    let _ = kill(first.id() as i32, Signal::INT);
    let out = first.wait_with_output()?;
    begun?;
    let report: Value = serde_json::from_slice(&out.stdout).context("a report of what was done")?;
    // Whoever is quicker than the signal is done.
    ensure!(matches!(out.status.code(), Some(130 | 0)), "{:?} {report}", out.status);
    ensure!(report["error_count"] == 0, "{report}");
    let second = copy(src, dst, &["--verify", "all"], 0)?;
    let files = |r: &Value| r["files_copied"].as_u64().unwrap_or(0);
    ensure!(files(&report) + files(&second) >= 3002 && second["same"] == true, "{report} {second}");
    let third = copy(src, dst, &["--verify", "10%", "--delete"], 0)?;
    ensure!(files(&third) == 0 && third["deleted"] == 0 && third["attributes_set"] == 0, "{third}");
    fs::remove_dir_all(src.join("d3"))?;
    fs::write(src.join("d1/e1/f1"), "changed")?;
    let fourth = copy(src, dst, &["--verify", "all", "--delete"], 0)?;
    ensure!(files(&fourth) == 1 && fourth["deleted"].as_u64() > Some(600), "{fourth}");
    ensure!(!dst.join("d3").exists());
    Ok(())
}

#[test]
fn a_tree_is_copied_to_a_mount_in_two_runs_and_kept_the_same() -> Result<()> {
    let fs = TestFs::up("copy", 2, 1)?;
    let src = fs.scratch().join("src");
    fs::create_dir(&src)?;
    tree(&src, true)?;
    let dst = fs.mount(0).join("dst");
    there_and_less(&src, &dst)?;
    // And back.
    copy(&dst, &fs.scratch().join("back"), &["--verify", "all"], 0)?;
    // Layouts are those of the rules.
    copy(&src, &fs.mount(0).join("wide"), &["--layout", "size>=64M:-c 2 -S 1M", "--verify", "all"], 0)?;
    let wide = ok_within(tool("lfs").args(["getstripe", "-c"]).arg(fs.mount(0).join("wide/large")), LIMIT)?;
    ensure!(wide.trim() == "2", "{wide}");
    let refused = copy(&src, &fs.scratch().join("no"), &["--layout", "*:-c 2"], 2);
    ensure!(refused.is_err() && !fs.scratch().join("no").exists(), "layouts are Nacre's");
    // Checksums of what arrived.
    let scan = |more: &[&str], status: i32| -> Result<()> {
        let o = run_within(tool("nacre").args(["checksum", "scan"]).arg(&dst).args(more), LIMIT)?;
        ensure!(o.status.code() == Some(status), "{o:?}");
        Ok(())
    };
    scan(&["--set"], 0)?;
    scan(&["--json"], 0)?;
    fs::write(dst.join("d1/e1/f1"), "CHANGED")?;
    scan(&[], 1)?;
    fs.fsck()
}

#[test]
fn a_user_copies_what_is_his() -> Result<()> {
    let fs = TestFs::up("copyuser", 1, 1)?;
    let (src, dst) = (fs.scratch().join("src"), fs.mount(0).join("home"));
    for d in [&src, &dst] {
        fs::create_dir(d)?;
        chown(d, Some(USER), Some(USER))?;
    }
    as_user(|| -> Result<()> {
        tree(&src, false)?;
        there_and_less(&src, &dst.join("dst"))
    })?;
    fs.fsck()
}
