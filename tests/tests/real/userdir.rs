//! Directories of users: made by options, by rules at a login, after a kill at any moment; listed; removed.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tests::cluster::{Running, TestFs, kill, ok_within, run_within, tool, wait_until};
use tests::users::{USER, as_user};

const LIMIT: Duration = Duration::from_secs(60);

fn userdir(args: &[&str]) -> Command {
    let mut c = tool("nacre");
    c.arg("userdir").args(args);
    c
}

/// As pam_exec(8) runs it.
fn login(rules: &Path, user: &str, more: &[&str]) -> Command {
    let mut c = userdir(&["login", "--file"]);
    c.arg(rules).args(more).env("PAM_TYPE", "open_session").env("PAM_USER", user);
    c
}

fn text(o: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr))
}

/// What `list` says of the only directory there.
fn only(home: &Path) -> Result<Value> {
    let listed: Value = serde_json::from_str(&ok_within(userdir(&["list", "--json"]).arg(home), LIMIT)?)?;
    let all = listed["directories"].as_array().context("a list")?;
    ensure!(all.len() == 1, "{listed}");
    Ok(all[0].clone())
}

fn in_kib(dir: &Path, n: usize) -> std::io::Result<()> {
    fs::write(dir.join("data"), vec![7; n << 10])?;
    fs::File::open(dir.join("data"))?.sync_all()
}

#[test]
fn a_directory_has_its_limits_before_its_user_sees_it_and_goes_with_them() -> Result<()> {
    let fs = TestFs::up("userdir", 1, 1)?;
    let home = fs.mount(0).join("home");
    fs::create_dir(&home)?;
    let (user, shown) = (USER.to_string(), home.display().to_string());
    let options = ["--under", &shown, "--gid", &user, "--quota-space", "8M", "--quota-inodes", "20"];
    let add = |more: &[&str]| userdir(&[&["add", "--user", &user][..], &options[..], more].concat());
    let made = ok_within(&mut add(&["--stripe", "-c 1 -S 1M", "--file", "/dev/null", "anna"]), LIMIT);
    ensure!(made.is_err(), "a file of rules without a rule is a mistake");
    let made = ok_within(&mut add(&["--stripe", "-c 1 -S 1M", "anna"]), LIMIT)?;
    ensure!(made == format!("{shown}/anna: made\n"), "{made}");
    let dir = home.join("anna");
    let m = fs::metadata(&dir)?;
    ensure!((m.uid(), m.gid(), m.mode() & 0o7777) == (USER, USER, 0o700), "{m:?}");
    let size = ok_within(tool("lfs").args(["getstripe", "-S", "-d"]).arg(&dir), LIMIT)?;
    ensure!(size.trim() == "1048576", "{size}");
    let row = only(&home)?;
    let hard = |v: &Value| v["hard"].as_u64();
    ensure!((hard(&row["bytes_limit"]), hard(&row["inodes_limit"])) == (Some(8 << 20), Some(20)), "{row}");
    as_user(|| -> Result<()> {
        in_kib(&dir, 1024)?;
        let all = (0..40).try_for_each(|n| fs::write(dir.join(format!("f{n}")), b"x"));
        ensure!(all.is_err(), "more than 20 inodes");
        Ok(())
    })?;
    // Once more, with other limits: they are set, and nothing else happens to it.
    ensure!(ok_within(&mut add(&["--quota-inodes", "30", "anna"]), LIMIT)?.ends_with("anna: set\n"));
    ensure!(hard(&only(&home)?["inodes_limit"]) == Some(30));
    ensure!(dir.join("data").is_file());

    // It is not removed by accident; what would go is told.
    let path = dir.display().to_string();
    let refused = run_within(&mut userdir(&["remove", "--quota", &path]), LIMIT)?;
    ensure!(refused.status.code() == Some(125), "{}", text(&refused));
    ensure!(text(&refused).contains("nothing was removed of") && dir.join("data").is_file());
    let told: Value =
        serde_json::from_str(&ok_within(&mut userdir(&["remove", "--dry-run", "--json", &path]), LIMIT)?)?;
    let row = &told["directories"][0];
    ensure!(row["owners"][0]["uid"] == USER && row["bytes"].as_u64() >= Some(1 << 20), "{told}");
    ensure!(row["oldest_access"].as_i64() > Some(0), "{told}");
    let said = ok_within(&mut userdir(&["remove", "--quota", "--yes", &path]), LIMIT)?;
    ensure!(said.contains(&format!("{path}: ")) && said.ends_with("  removed\n"), "{said}");
    ensure!(fs::read_dir(&home)?.next().is_none(), "nothing is left of it");
    let quota = ok_within(tool("lfs").args(["quota", "--json", "-u", &user]).arg(fs.mount(0)), LIMIT)?;
    let quota: Value = serde_json::from_str(&quota)?;
    let (limits, user) = (&quota[0]["limits"], &quota[0]["id"]);
    let none = (Some(0), Some(0));
    ensure!(user == USER && (hard(&limits["bytes"]), hard(&limits["inodes"])) == none, "{quota}");
    Ok(())
}

#[test]
fn a_directory_with_a_quota_of_its_own_counts_what_anybody_makes_in_it() -> Result<()> {
    let fs = TestFs::up("userdirown", 1, 1)?;
    let home = fs.mount(0).join("home");
    fs::create_dir(&home)?;
    let (user, shown) = (USER.to_string(), home.display().to_string());
    let add = |inodes: &str| {
        let who = ["add", "--user", &user, "--gid", &user, "--under", &shown, "--mode", "0777", "anna"];
        userdir(&[&who[..], &["--limits", "directory", "--quota-inodes", inodes]].concat())
    };
    ok_within(&mut add("20"), LIMIT)?;
    let dir = home.join("anna");
    // Root made a file there: it counts, and root is held by no limit.
    fs::write(dir.join("root"), b"x")?;
    as_user(|| -> Result<()> {
        let made = (0..40).take_while(|n| fs::write(dir.join(format!("f{n}")), b"x").is_ok()).count();
        ensure!(made == 18, "the directory, root's file and {made} more are 20");
        fs::write(fs.mount(0).join("home/anna/f0"), b"again")?;
        Ok(())
    })?;
    let row = only(&home)?;
    ensure!(row["limits_of"] == "directory" && row["inodes"] == 20 && row["project"] == 0, "{row}");
    ensure!(row["inodes_limit"]["hard"] == 20, "{row}");
    ok_within(&mut add("30"), LIMIT)?;
    as_user(|| fs::write(dir.join("more"), b"x"))?;
    // Its user's own limits are nothing that this directory brought along.
    ok_within(tool("lfs").args(["setquota", "-u", &user, "-I", "1000"]).arg(fs.mount(0)), LIMIT)?;
    ok_within(&mut userdir(&["remove", "--quota", "--yes", &dir.display().to_string()]), LIMIT)?;
    let quota = ok_within(tool("lfs").args(["quota", "--json", "-u", &user]).arg(fs.mount(0)), LIMIT)?;
    let quota: Value = serde_json::from_str(&quota)?;
    ensure!(quota[0]["limits"]["inodes"]["hard"] == 1000, "{quota}");
    let left = ok_within(tool("lfs").args(["quota", "-a", "-d"]).arg(fs.mount(0)), LIMIT)?;
    ensure!(!left.contains("anna"), "{left}");
    Ok(())
}

/// A daemon that is stopped until this is dropped.
struct Stopped(i32);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::CONT);
    }
}

#[test]
fn a_login_makes_what_rules_say_and_waits_for_nobody() -> Result<()> {
    let fs = TestFs::up("login", 1, 1)?;
    let (home, user) = (fs.mount(0).join("home"), USER.to_string());
    fs::create_dir(&home)?;
    let rules = fs.scratch().join("userdir.conf");
    let rule = format!("[all]\nunder = {}\ngid = {USER}\nspace = 1G\nproject = {{id}}\n", home.display());
    fs::write(&rules, rule)?;
    ok_within(userdir(&["check"]).arg(&rules), LIMIT)?;
    for _ in 0..2 {
        ok_within(&mut login(&rules, &user, &[]), LIMIT)?;
    }
    let row = only(&home)?;
    ensure!(row["project"] == USER && row["state"] == "ready" && row["limits_of"] == "project", "{row}");
    // Nothing but the begin of a session does anything, and root has no such directory.
    ok_within(login(&rules, "70777", &[]).env("PAM_TYPE", "close_session"), LIMIT)?;
    ok_within(&mut login(&rules, "root", &[]), LIMIT)?;
    only(&home)?;
    let unknown = run_within(&mut login(&rules, "nobody-has-this-name", &[]), LIMIT)?;
    ensure!(
        unknown.status.code() == Some(2) && text(&unknown).contains("unknown user"),
        "{}",
        text(&unknown)
    );

    // Killed at any moment, the next login completes it.
    for (n, uid) in (71_000..71_012).enumerate() {
        let user = uid.to_string();
        let child = Running(login(&rules, &user, &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        std::thread::sleep(Duration::from_millis(2 * n as u64));
        drop(child);
        ok_within(&mut login(&rules, &user, &[]), LIMIT)?;
        let name = names(uid);
        let made = fs::metadata(home.join(&name))?;
        ensure!(made.uid() == uid && made.permissions().mode() & 0o7777 == 0o700, "{made:?}");
    }
    wait_until("nothing half-made is left", LIMIT, || {
        fs::read_dir(&home).is_ok_and(|mut d| {
            d.all(|e| e.is_ok_and(|e| !e.file_name().as_encoded_bytes().starts_with(b".")))
        })
    })?;

    // A file system that does not answer holds up nobody.
    let client = *fs.clients()?.first().context("a mount has a daemon")?;
    kill(client, Signal::STOP)?;
    let stopped = Stopped(client);
    let began = Instant::now();
    let late = run_within(&mut login(&rules, "71900", &["--timeout", "1"]), LIMIT)?;
    ensure!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    ensure!(
        late.status.code() == Some(110) && text(&late).contains("it took longer than 1 s"),
        "{}",
        text(&late)
    );
    drop(stopped);
    ok_within(&mut login(&rules, "71900", &[]), LIMIT)?;
    ensure!(home.join(names(71_900)).is_dir());
    Ok(())
}

/// The name of a directory of a user whom this host does not know.
fn names(uid: u32) -> PathBuf {
    PathBuf::from(uid.to_string())
}

#[test]
fn a_removal_that_was_killed_goes_on() -> Result<()> {
    let fs = TestFs::up("unhome", 1, 1)?;
    let dir = fs.mount(0).join("bob");
    for n in 0..30 {
        let sub = dir.join(format!("d{n}"));
        fs::create_dir_all(&sub)?;
        (0..40).try_for_each(|f| fs::write(sub.join(format!("f{f}")), b"x"))?;
    }
    let path = dir.display().to_string();
    let mut removing = userdir(&["remove", "--yes", &path]);
    let child = Running(removing.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    wait_until("its name is gone", LIMIT, || !dir.exists())?;
    drop(child);
    let hidden = fs.mount(0).join(".nacre-userdir-gone.bob");
    if hidden.exists() {
        let row = only(fs.mount(0))?;
        ensure!(row["state"] == "half-removed", "{row}");
        let said = ok_within(&mut userdir(&["remove", "--yes", &path]), LIMIT)?;
        ensure!(said.contains("an earlier run began to remove it"), "{said}");
    }
    ensure!(fs::read_dir(fs.mount(0))?.next().is_none(), "nothing is left");
    let gone = run_within(&mut userdir(&["remove", "--yes", &path]), LIMIT)?;
    ensure!(gone.status.code() == Some(2) && text(&gone).contains("cannot remove"), "{}", text(&gone));
    Ok(())
}
