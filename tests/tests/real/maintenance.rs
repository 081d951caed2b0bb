//! Maintenance: changes are refused or operations wait, on all mounts and after a restart of everything, and
//! users are told why.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tests::cluster::{TestFs, kill, kill_all, ok_within, run_within, stripe_on, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_millis(1500);
const EROFS: i32 = 30;

fn run(words: &[&str]) -> Result<Output> {
    run_within(tool(words[0]).args(&words[1..]), LIMIT)
}

/// This exit status; what it printed.
fn ends(code: i32, words: &[&str]) -> Result<String> {
    let o = run(words)?;
    let (out, err) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
    ensure!(o.status.code() == Some(code), "{words:?}: {} instead of {code}\n{out}{err}", o.status);
    Ok(format!("{out}{err}"))
}

/// Exit 0; what it printed.
fn ok(words: &[&str]) -> Result<String> {
    ends(0, words)
}

fn refused(r: std::io::Result<impl Sized>) -> bool {
    r.is_err_and(|e| e.raw_os_error() == Some(EROFS))
}

/// Whether all mounts of the host do this about it.
fn all_hold(mounts: usize, word: &str) -> bool {
    ok(&["lctl", "get_param", "-n", "llite.*.maintenance_held"])
        .is_ok_and(|t| t.lines().filter(|l| *l == word).count() == mounts && t.lines().count() == mounts)
}

fn held_within(limit: Duration, mounts: usize, word: &str) -> Result<()> {
    wait_until(&format!("all mounts are {word}"), limit, || all_hold(mounts, word))
}

/// A program that makes files one after the other, in a process of its own, until it is killed.
fn job(dir: &Path, name: &str) -> Result<Child> {
    let line =
        format!("i=0; while true; do echo $i > {}/{name}.$i || exit 1; i=$((i+1)); done", dir.display());
    std::process::Command::new("sh").args(["-c", &line]).spawn().context("a job")
}

fn made_by(dir: &Path, name: &str) -> usize {
    std::fs::read_dir(dir)
        .map_or(0, |d| d.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(name)).count())
}

#[test]
fn read_only_under_load_refuses_changes_loses_nothing_and_survives_the_end_of_all_servers() -> Result<()> {
    let fs = TestFs::up("mainro", 2, 2)?;
    let (a, b, f) = (fs.mount(0), fs.mount(1), fs.fsname());
    let (written, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let log = std::fs::File::create(a.join("log"))?;
    let open = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(b.join("open"))?;
    let ended = std::thread::scope(|s| -> Result<std::io::Error> {
        let writer = s.spawn(|| {
            loop {
                let n = written.load(Ordering::Relaxed);
                if let Err(e) = log.write_at(&n.to_le_bytes(), n * 8) {
                    return e;
                }
                written.fetch_add(1, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    return std::io::Error::other("nobody refused writes");
                }
            }
        });
        let refuse = || -> Result<()> {
            wait_until("there is load", LIMIT, || written.load(Ordering::Relaxed) > 1000)?;
            let said = ok(&["nacre", "maintenance", "on", "--reason", "a new switch"])?;
            let reason = "read-only for maintenance: a new switch; changes are refused (EROFS) until it ends";
            ensure!(said == format!("{f} is {reason}\n"), "{said}");
            held_within(SECOND, 2, "read-only")?;
            wait_until("the writer was refused", LIMIT, || writer.is_finished())
        };
        let done = refuse();
        stop.store(true, Ordering::Relaxed);
        let ended = writer.join().expect("the writer ended");
        done.map(|()| ended)
    })?;
    ensure!(ended.raw_os_error() == Some(EROFS), "{ended}");
    // What was answered is there, for the other mount as well.
    let n = written.load(Ordering::Relaxed);
    let bytes = std::fs::read(b.join("log"))?;
    ensure!(bytes.len() as u64 == n * 8, "{} bytes of {}", bytes.len(), n * 8);
    for m in [a, b] {
        ensure!(refused(std::fs::write(m.join("new"), b"x")), "a file is made on {}", m.display());
        ensure!(refused(std::fs::create_dir(m.join("dir"))), "mkdir");
        ensure!(refused(std::fs::remove_file(m.join("log"))), "unlink");
        ensure!(refused(std::fs::rename(m.join("log"), m.join("log2"))), "rename");
    }
    ensure!(refused((&open).write(b"x")), "a file that was open for writing");
    // Everybody is told.
    let line = ends(1, &["lfs", "status", &a.display().to_string()])?;
    ensure!(line.contains(": degraded: read-only for maintenance: a new switch since "), "{line}");
    let doctor = run(&["nacre", "doctor"])?;
    let doctor = String::from_utf8_lossy(&doctor.stdout);
    ensure!(doctor.contains("read-only for maintenance: a new switch"), "{doctor}");
    let status = ok(&["nacre", "status"])?;
    ensure!(status.contains(&format!("{f} is read-only for maintenance: a new switch")), "{status}");
    let history = ok(&["nacre", "config", "history", "-n", "1"])?;
    ensure!(history.contains("reason=a new switch"), "{history}");
    // All servers end and come back.
    kill_all(&fs.servers()?, LIMIT)?;
    fs.up_again()?;
    ensure!(all_hold(2, "read-only"));
    let of_servers = ok(&["lctl", "get_param", "-n", "mdt.*.maintenance", "obdfilter.*.maintenance"])?;
    ensure!(of_servers.lines().filter(|l| l.starts_with("read-only ")).count() == 3, "{of_servers}");
    ensure!(refused(std::fs::write(a.join("new"), b"x")), "after a restart");
    ensure!(std::fs::read(a.join("log"))?.len() as u64 == n * 8);
    let said = ok(&["nacre", "maintenance", "off"])?;
    ensure!(said == format!("{f}: maintenance is off\n"), "{said}");
    held_within(SECOND, 2, "off")?;
    std::fs::write(a.join("new"), b"x")?;
    (&open).write_all(b"x")?;
    open.sync_all()?;
    drop((open, log));
    ok(&["lfs", "status"])?;
    fs.fsck()
}

#[test]
fn a_job_waits_while_it_is_closed_can_be_killed_or_goes_on_and_sees_no_error() -> Result<()> {
    let fs = TestFs::up("maincl", 1, 2)?;
    let (a, b) = (fs.mount(0), fs.mount(1));
    let (mut first, mut second) = (job(a, "first")?, job(b, "second")?);
    wait_until("there is load", LIMIT, || made_by(a, "first") > 20 && made_by(a, "second") > 20)?;
    ok(&["nacre", "maintenance", "on", "--closed", "--reason", "firmware of the disks"])?;
    held_within(SECOND, 2, "closed")?;
    let line = ends(2, &["lfs", "status", &a.display().to_string()])?;
    ensure!(line.contains(": not usable: closed for maintenance: firmware of the disks since "), "{line}");
    // An ordinary user is told as well.
    let mut user = std::process::Command::new("setpriv");
    user.args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(tests::cluster::bin_dir().join("lfs"));
    let o = run_within(user.arg("status").arg(b), LIMIT)?;
    let line = String::from_utf8_lossy(&o.stdout);
    // (Or he may not run what was built here.)
    let told = line.contains(": not usable: closed for maintenance: firmware of the disks");
    ensure!(told || line.is_empty(), "{line}");
    // A listing waits, and a signal ends it.
    let mut listing = std::process::Command::new("ls").arg("-l").arg(b).spawn()?;
    let since = Instant::now();
    wait_until("two seconds are over", LIMIT, || since.elapsed() > Duration::from_secs(2))?;
    ensure!(listing.try_wait()?.is_none() && first.try_wait()?.is_none(), "somebody did not wait");
    listing.kill()?;
    wait_until("the listing is gone", Duration::from_secs(5), || matches!(listing.try_wait(), Ok(Some(_))))?;
    second.kill()?;
    wait_until("a job that waits is gone", Duration::from_secs(5), || {
        matches!(second.try_wait(), Ok(Some(_)))
    })?;
    let status = ok(&["nacre", "maintenance", "status", "--json"])?;
    let status: Value = serde_json::from_str(&status)?;
    ensure!(status[0]["mode"] == "closed" && status[0]["reason"] == "firmware of the disks", "{status}");
    ensure!(status[0]["mount"].is_null() && status[1]["held"] == "closed", "{status}");
    quiet_on_the_mgs(2)?;
    // Servers may end and come back meanwhile.
    kill_all(&fs.servers()?, LIMIT)?;
    fs.up_again()?;
    ensure!(first.try_wait()?.is_none() && all_hold(2, "closed"));
    quiet_on_the_mgs(2)?;
    ok(&["nacre", "maintenance", "off"])?;
    held_within(SECOND, 2, "off")?;
    let before = made_by(a, "first");
    wait_until("the job goes on", LIMIT, || made_by(a, "first") > before + 20)?;
    ensure!(first.try_wait()?.is_none(), "the job saw an error");
    first.kill()?;
    first.wait()?;
    fs.fsck()
}

#[test]
fn clients_that_are_left_alone_go_on_and_new_mounts_say_what_they_do() -> Result<()> {
    let fs = TestFs::up("mainex", 1, 1)?;
    let (a, f) = (fs.mount(0), fs.fsname());
    let nid = "127.0.0.1@tcp";
    let on = ["nacre", "maintenance", "on", "--closed", "--reason", "a check"];
    ok(&[&on[..], &["--except", nid, "--except", "10.99.0.[1-5]@tcp"]].concat())?;
    wait_until("the mount was told", SECOND, || {
        ok(&["lctl", "get_param", "-n", "llite.*.maintenance"]).is_ok_and(|t| t.starts_with("closed "))
    })?;
    ensure!(all_hold(1, "off"));
    std::fs::write(a.join("still"), b"x")?;
    let status = ok(&["nacre", "maintenance", "status"])?;
    ensure!(status.contains(&format!("left alone: {nid},10.99.0.[1-5]@tcp")), "{status}");
    ensure!(status.contains("  this mount is left alone"), "{status}");
    // Another order, without the exception; it begins anew.
    ok(&on)?;
    held_within(SECOND, 1, "closed")?;
    // A mount that does not know of it is held by the servers.
    ok(&["lctl", "set_param", "llite.*.maintenance=off"])?;
    ensure!(all_hold(1, "off"));
    wait_until("the servers refuse changes", LIMIT, || refused(std::fs::write(a.join("late"), b"x")))?;
    ensure!(std::fs::read(a.join("still"))? == b"x", "reads go on");
    let second = fs.scratch().join("second");
    std::fs::create_dir(&second)?;
    let mounts = ok(&["nacre", "status", "--json"])?;
    let all: Value = serde_json::from_str(&mounts)?;
    let client = all["processes"].as_array().into_iter().flatten().find(|p| p["role"] == "client");
    let source = client.and_then(|c| c["source"].as_str()).context("a source")?.to_string();
    let began = Instant::now();
    let said = ok(&["mount.nacre", &source, &second.display().to_string()])?;
    ensure!(began.elapsed() < Duration::from_secs(10), "a mount waits");
    ensure!(
        said.contains(&format!(
            "mount.nacre: {f} is closed for maintenance: a check; operations wait until it ends"
        )),
        "{said}"
    );
    ok(&["nacre", "maintenance", "off"])?;
    held_within(SECOND, 2, "off")?;
    std::fs::write(a.join("late"), b"x")?;
    ensure!(std::fs::read(second.join("still"))? == b"x");
    ok_within(std::process::Command::new("umount").arg(&second), LIMIT)?;
    // What is typed wrongly changes nothing.
    let version = |t: &str| t.lines().next().unwrap_or_default().to_string();
    let before = version(&ok(&["nacre", "config", "history", "-n", "1"])?);
    for (words, part) in [
        (&["nacre", "maintenance", "on"][..], "say why with --reason TEXT"),
        (&["nacre", "maintenance", "on", "--reason", "x", "--except", "here"], "'here' is no NID"),
        (&["nacre", "maintenance", "end"], "'end' is none: nacre maintenance on|off|status"),
    ] {
        let said = ends(4, words)?;
        ensure!(said.contains(part), "{said}");
    }
    let said = ends(2, &["nacre", "maintenance", "off", "--fsname", "other"])?;
    ensure!(said.contains("no such file system 'other'"), "{said}");
    ensure!(version(&ok(&["nacre", "config", "history", "-n", "1"])?) == before);
    fs.fsck()
}

/// What the MGS knows of the mounts.
fn mounts_of_mgs() -> Result<Value> {
    let status: Value = serde_json::from_str(&ok(&["nacre", "maintenance", "status", "--json"])?)?;
    Ok(status[0]["mounts"].clone())
}

/// Whoever looks after it sees on the node of the MGS when so many mounts change nothing any more.
fn quiet_on_the_mgs(mounts: u64) -> Result<()> {
    wait_until(&format!("the MGS knows that {mounts} mounts are quiet"), LIMIT, || {
        mounts_of_mgs().is_ok_and(|m| m["quiet"] == mounts && m["others"] == 0 && m["missing"] == 0)
    })
}

#[test]
fn the_mgs_names_mounts_that_are_not_quiet_and_why() -> Result<()> {
    let fs = TestFs::up("mainqu", 1, 2)?;
    let (a, b) = (fs.mount(0), fs.mount(1));
    let path = a.join("kept");
    stripe_on(&path, "0")?;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path)?;
    file.write_all_at(&vec![1; 300_000], 0)?;
    std::fs::write(b.join("other"), b"x")?;
    kill(fs.oss(0)?, Signal::KILL)?;
    // Under the lock that the mount has.
    file.write_all_at(&vec![7; 300_000], 0)?;
    ok(&["nacre", "maintenance", "on", "--reason", "a disk"])?;
    held_within(SECOND, 2, "read-only")?;
    wait_until("the MGS names the mount that waits", LIMIT, || {
        mounts_of_mgs().is_ok_and(|m| m["quiet"] == 1 && m["others"] == 1)
    })?;
    let of_waiting =
        mounts_of_mgs()?["all"].as_array().into_iter().flatten().find(|m| m["state"] == "waits").cloned();
    let waiting = of_waiting.context("who waits is named")?;
    ensure!(waiting["name"].as_str().is_some_and(|n| n.ends_with(&a.display().to_string())), "{waiting}");
    let text = ok(&["nacre", "maintenance", "status"])?;
    ensure!(
        text.contains("  mounts that the MGS knows: 1 quiet, 1 that may still change something"),
        "{text}"
    );
    ensure!(text.contains("): what began before is not over"), "{text}");
    fs.up_again()?;
    quiet_on_the_mgs(2)?;
    ensure!(std::fs::read(b.join("kept"))? == vec![7; 300_000], "what was kept is on the server");
    drop(file);
    ok(&["nacre", "maintenance", "off"])?;
    held_within(SECOND, 2, "off")?;
    fs.fsck()
}
