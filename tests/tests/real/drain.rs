//! An OST is emptied while programs write, and files are moved by Lustre's script.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, run_within, sh, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(120);
/// Bytes of a record that the writer writes and reads again.
const RECORD: usize = 5000;

fn lctl(name: &str) -> Result<String> {
    Ok(ok_within(tool("lctl").args(["get_param", "-n", name]), LIMIT)?.trim().to_string())
}

fn sums(dir: &Path) -> Result<String> {
    sh(&format!("cd {} && find . -type f | sort | xargs -d '\\n' md5sum", dir.display()), LIMIT)
}

/// Writes into some files, reads what it wrote, appends to a log; all of it through files that stay open.
fn write_on(dir: &Path, stop: &AtomicBool) -> Result<u64> {
    let open = |name: &str| {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(dir.join(name))
    };
    let files: Vec<File> = (0..4).map(|n| open(&format!("w{n}"))).collect::<std::io::Result<_>>()?;
    let mut log = OpenOptions::new().append(true).create(true).open(dir.join("log"))?;
    let mut rounds = 0u64;
    while !stop.load(Ordering::Relaxed) {
        for (n, f) in files.iter().enumerate() {
            let (at, byte) = (rounds % 40 * RECORD as u64, (rounds * 7 + n as u64) as u8 | 1);
            f.write_all_at(&[byte; RECORD], at).with_context(|| format!("round {rounds}: write"))?;
            let mut back = [0; RECORD];
            f.read_exact_at(&mut back, at).with_context(|| format!("round {rounds}: read"))?;
            ensure!(back.iter().all(|b| *b == byte), "round {rounds}: file {n} has other bytes");
        }
        log.write_all(format!("{rounds:07}\n").as_bytes())
            .with_context(|| format!("round {rounds}: append"))?;
        rounds += 1;
    }
    Ok(rounds)
}

/// The log has every line that was appended, and nothing else.
fn check_log(dir: &Path, rounds: u64) -> Result<()> {
    let mut text = String::new();
    File::open(dir.join("log"))?.read_to_string(&mut text)?;
    let want: String = (0..rounds).map(|n| format!("{n:07}\n")).collect();
    ensure!(text == want, "the log has {} lines of {rounds}", text.lines().count());
    Ok(())
}

fn drain(args: &[&str], code: i32) -> Result<Value> {
    let o = run_within(tool("nacre").args(["drain", "--json"]).args(args), LIMIT)?;
    let (text, said) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
    ensure!(o.status.code() == Some(code), "{:?}\n{said}{text}", o.status);
    serde_json::from_str(&text).with_context(|| format!("no JSON: {text}{said}"))
}

/// Ends a drain in the middle by this signal.
fn begun_and_ended(ost: &str, mount: &Path, signal: Signal) -> Result<()> {
    let mut child = tool("nacre")
        .args(["drain", "--threads", "2", "--bandwidth", "1", ost])
        .arg(mount)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let shown = || {
        let o = run_within(tool("nacre").args(["movements", "--json"]).arg(mount), LIMIT);
        o.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("\"copying\""))
    };
    let begun = wait_until("something is moved", LIMIT, shown);
    let _ = kill(child.id() as i32, signal);
    let status = child.wait()?;
    begun?;
    ensure!(!status.success(), "it was over before it was ended");
    Ok(())
}

#[test]
fn an_ost_is_emptied_under_a_writer_and_by_a_second_run_after_the_first_was_killed() -> Result<()> {
    let fs = TestFs::up("drain", 4, 1)?;
    let (mount, ost) = (fs.mount(0), format!("{}-OST0001", fs.fsname()));
    let (data, written) = (mount.join("data"), mount.join("written"));
    for (dir, stripes) in [(&data, "2"), (&written, "3")] {
        fs::create_dir(dir)?;
        ok_within(tool("lfs").args(["setstripe", "-c", stripes, "-S", "64k"]).arg(dir), LIMIT)?;
    }
    for n in 0..120u32 {
        let bytes: Vec<u8> = (0..(n * 3777) % 400_000).map(|i| (i * (n + 3) / 7) as u8).collect();
        fs::write(data.join(format!("f{n}")), bytes)?;
    }
    fs::write(data.join("large"), vec![7; 24 << 20])?;
    fs::hard_link(data.join("large"), data.join("again"))?;
    let before = sums(&data)?;
    let objects = format!("obdfilter.{ost}.objects");
    // What is written is with its OST a moment later.
    let many = || lctl(&objects).is_ok_and(|n| n.parse::<u64>().is_ok_and(|n| n > 20));
    wait_until("there is something to move", LIMIT, many)?;

    let stop = AtomicBool::new(false);
    let (report, rounds) = std::thread::scope(|s| -> Result<(Value, u64)> {
        let writer = s.spawn(|| write_on(&written, &stop));
        let work = || {
            begun_and_ended(&ost, mount, Signal::KILL)?;
            begun_and_ended(&ost, mount, Signal::INT)?;
            drain(&[&ost, &mount.display().to_string()], 0)
        };
        let report = work();
        stop.store(true, Ordering::Relaxed);
        let rounds = writer.join().expect("the writer does not panic")?;
        Ok((report?, rounds))
    })?;
    ensure!(report["objects_left"] == 0 && report["drained"] == true, "{report}");
    ensure!(report["failed_count"] == 0, "{report}");
    ensure!(lctl(&objects)? == "0", "the OST has {} objects", lctl(&objects)?);
    ensure!(sums(&data)? == before, "some bytes are others");
    check_log(&written, rounds)?;

    fs::write(data.join("new"), vec![1; 1 << 20])?;
    ok_within(tool("lfs").args(["setstripe", "-c", "-1"]).arg(data.join("wide")), LIMIT)?;
    ensure!(lctl(&objects)? == "0", "a new file is there");
    let df = ok_within(tool("lfs").arg("df").arg(mount), LIMIT)?;
    let row = df.lines().find(|l| l.contains("OST0001")).context("a row of it")?;
    ensure!(row.ends_with("[OST:1] N"), "{df}");

    // For good, and taken back.
    fs.down()?;
    fs.up_again()?;
    let creates = format!("osp.{ost}-osc-MDT0000.max_create_count");
    wait_until("it is known again", LIMIT, || lctl(&creates).is_ok_and(|v| v == "0"))?;
    ensure!(sums(&data.join(".")).is_ok(), "it is mounted again");
    ok_within(tool("nacre").args(["drain", "--stop", &ost]).arg(mount), LIMIT)?;
    wait_until("it takes objects", LIMIT, || lctl(&creates).is_ok_and(|v| v == "20000"))?;
    ensure!(lctl(&format!("obdfilter.{ost}.no_create"))? == "0", "it takes objects");
    fs.fsck()
}

#[test]
fn what_cannot_be_moved_is_named_and_the_rest_is_moved() -> Result<()> {
    let fs = TestFs::up("drainpool", 3, 1)?;
    let (mount, f) = (fs.mount(0), fs.fsname().to_string());
    ok_within(tool("lctl").args(["pool_new", &format!("{f}.one")]), LIMIT)?;
    ok_within(tool("lctl").args(["pool_add", &format!("{f}.one"), "OST0001"]), LIMIT)?;
    let (stays, goes) = (mount.join("stays"), mount.join("goes"));
    let set =
        |args: &[&str], path: &Path| ok_within(tool("lfs").arg("setstripe").args(args).arg(path), LIMIT);
    wait_until("the pool is known", LIMIT, || set(&["-p", "one"], &stays).is_ok())?;
    set(&["-i", "1"], &goes)?;
    fs::write(&stays, "stays")?;
    fs::write(&goes, "goes")?;
    let report = drain(&["1", &mount.display().to_string()], 1)?;
    ensure!(report["files_moved"] == 1 && report["objects_left"] == 1, "{report}");
    let failed = &report["failed"][0];
    ensure!(
        failed["errno"] == 28 && failed["path"].as_str().is_some_and(|p| p.ends_with("/stays")),
        "{report}"
    );
    ensure!(fs::read(&stays)? == b"stays" && fs::read(&goes)? == b"goes", "both are as they were");
    let o = run_within(tool("nacre").args(["drain", "9"]).arg(mount), LIMIT)?;
    ensure!(o.status.code() == Some(2), "there is no OST 9: {:?}", o.status);
    fs.fsck()
}

#[test]
fn the_script_moves_files_directories_and_what_standard_input_names() -> Result<()> {
    let fs = TestFs::up("script", 3, 1)?;
    let dir = fs.mount(0).join("d");
    fs::create_dir(&dir)?;
    fs::write(dir.join("small"), "lies with its inode")?;
    for n in ["a", "b b"] {
        ok_within(tool("lfs").args(["setstripe", "-c", "1"]).arg(dir.join(n)), LIMIT)?;
        fs::write(dir.join(n), n)?;
    }
    let at = dir.display();
    let stripes = |n: &str| -> Result<String> {
        Ok(ok_within(tool("lfs").args(["getstripe", "-c"]).arg(dir.join(n)), LIMIT)?.trim().to_string())
    };
    let said = ok_within(tool("lfs_migrate").args(["-c", "2", "-y"]).arg(&dir), LIMIT)?;
    for line in [format!("{at}/a: done"), format!("{at}/b b: done"), format!("{at}/small: done")] {
        ensure!(said.lines().any(|l| l == line), "{line} is missing:\n{said}");
    }
    ensure!((stripes("a")?, stripes("b b")?) == ("2".into(), "2".into()), "two stripes each");
    let said = ok_within(tool("lfs_migrate").args(["-n", "-c", "3"]).arg(dir.join("a")), LIMIT)?;
    ensure!(said.contains("dry run") && stripes("a")? == "2", "{said}");

    let list = fs.scratch().join("list");
    fs::write(&list, format!("{at}/a\0{at}/b b\0"))?;
    let moved = ok_within(
        tool("lfs").args(["migrate", "-v", "-n", "-W", "100", "-c", "1", "-0", "--files-from"]).arg(&list),
        LIMIT,
    )?;
    ensure!(moved == format!("{at}/a\n{at}/b b\n") && stripes("b b")? == "1", "{moved}");
    let fid = ok_within(tool("lfs").arg("path2fid").arg(dir.join("a")), LIMIT)?;
    let by_fid = &["migrate", "-c", "3", "--fid", "--lustre-dir"];
    ok_within(tool("lfs").args(by_fid).arg(fs.mount(0)).arg(fid.trim()), LIMIT)?;
    ensure!(stripes("a")? == "3" && fs::read(dir.join("b b"))? == b"b b", "moved by its FID");
    let o = run_within(tool("lfs_migrate").args(["--rsync"]).arg(&dir), LIMIT)?;
    ensure!(o.status.code() == Some(95), "{:?}", o.status);
    Ok(())
}
