//! OSTs that leave the file system for good, alive and dead, and one that another takes the place of.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tests::cluster::{Running, TestFs, alive, kill, ok_within, run_within, sh, stripe_on, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(120);

fn json(args: &[&str], code: i32) -> Result<Value> {
    let o = run_within(tool("nacre").args(args), LIMIT)?;
    let (text, said) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
    ensure!(o.status.code() == Some(code), "{:?}\n{said}{text}", o.status);
    serde_json::from_str(&text).with_context(|| format!("no JSON: {text}{said}"))
}

/// Runs a command of `nacre` that is to be refused; what it says.
fn refused(args: &[&str]) -> Result<String> {
    let o = run_within(tool("nacre").args(args), LIMIT)?;
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    ensure!(o.status.code() == Some(2), "{:?} {said}", o.status);
    Ok(said)
}

/// The process that serves an OST, and its arguments.
fn server_of(fs: &TestFs, index: usize) -> Result<(i32, Vec<String>)> {
    let pid = fs.oss(index)?;
    let line = fs::read(format!("/proc/{pid}/cmdline"))?;
    let words = line.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned());
    Ok((pid, words.skip(1).filter(|w| !w.is_empty()).collect()))
}

fn end(pid: i32) -> Result<()> {
    kill(pid, Signal::KILL)?;
    wait_until("it ends", LIMIT, || !alive(pid))
}

fn sums(dir: &Path) -> Result<String> {
    sh(&format!("cd {} && find . -type f | sort | xargs md5sum", dir.display()), LIMIT)
}

/// Nobody lists it any more.
fn is_forgotten(fs: &TestFs, ost: &str) -> Result<()> {
    let m = fs.mount(0).display().to_string();
    for (program, args) in [("lfs", vec!["df", &m]), ("lfs", vec!["osts", &m]), ("lctl", vec!["dl"])] {
        let text = ok_within(tool(program).args(&args), LIMIT)?;
        let row = text.lines().find(|l| l.contains(ost) && !l.contains(" obdfilter "));
        ensure!(row.is_none(), "{program} {args:?}:\n{text}");
    }
    Ok(())
}

/// Writes into a file that stays open until it is told to stop; how often.
fn write_on(path: &Path, stop: &AtomicBool) -> Result<u64> {
    let f = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    let mut rounds = 0u64;
    while !stop.load(Ordering::Relaxed) {
        f.write_all_at(&rounds.to_le_bytes(), rounds * 70_000).with_context(|| format!("round {rounds}"))?;
        rounds += 1;
    }
    for n in 0..rounds {
        let mut back = [0; 8];
        f.read_exact_at(&mut back, n * 70_000)?;
        ensure!(u64::from_le_bytes(back) == n, "round {n} of {rounds} is not there");
    }
    Ok(rounds)
}

#[test]
fn an_ost_is_removed_under_a_writer_and_its_server_is_not_let_in_again() -> Result<()> {
    let fs = TestFs::up("remove", 3, 1)?;
    let (m, ost) = (fs.mount(0), format!("{}-OST0001", fs.fsname()));
    fs::create_dir(m.join("data"))?;
    ok_within(tool("lfs").args(["setstripe", "-c", "2", "-S", "64k"]).arg(m), LIMIT)?;
    ok_within(tool("lfs").args(["setstripe", "-c", "2", "-S", "64k"]).arg(m.join("data")), LIMIT)?;
    for n in 0..60u32 {
        let bytes: Vec<u8> = (0..(n * 3777) % 300_000).map(|i| (i * (n + 3) / 7) as u8).collect();
        fs::write(m.join(format!("data/f{n}")), bytes)?;
    }
    let before = sums(&m.join("data"))?;
    let (pid, args) = server_of(&fs, 1)?;
    let said = refused(&["remove", "--force", &ost])?;
    ensure!(said.contains("deactivate it first"), "{said}");
    let stop = AtomicBool::new(false);
    let report = std::thread::scope(|s| -> Result<Value> {
        let writer = s.spawn(|| write_on(&m.join("written"), &stop));
        let report = json(&["remove", "--json", &ost], 0);
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        ensure!(writer.join().expect("the writer does not panic")? > 0, "nothing was written");
        report
    })?;
    ensure!(report["removed"] == true && report["files_lost"] == 0, "{report}");
    ensure!(report["objects_left"] == 0 && report["files_moved"].as_u64() > Some(0), "{report}");
    is_forgotten(&fs, &ost)?;
    ensure!(sums(&m.join("data"))? == before, "some bytes are others");
    fs::write(m.join("new"), vec![5; 200_000])?;
    let once_more = json(&["remove", "--json", &ost], 0)?;
    ensure!(once_more["removed"] == true && once_more["files_moved"] == 0, "{once_more}");

    wait_until("its server ends by itself", LIMIT, || !alive(pid))?;
    let o = run_within(tool("nacred").args(&args), LIMIT)?;
    let said = String::from_utf8_lossy(&o.stderr).into_owned() + &String::from_utf8_lossy(&o.stdout);
    ensure!(!o.status.success() && said.contains("was removed from the file system for good"), "{said}");
    let params = ok_within(tool("lctl").args(["get_param", "mgs.MGS.live.*"]), LIMIT)?;
    ensure!(!params.contains(&ost), "{params}");
    ensure!(sums(&m.join("data"))? == before, "without its server");

    // What is left comes up again, whatever became of the folder.
    let dir = fs.dir().display().to_string();
    for keeps_folder in [true, false] {
        ok_within(tool("nacre").args(["down", "--dir", &dir]), LIMIT)?;
        if !keeps_folder {
            fs::remove_dir_all(fs.dir().join("ost0001"))?;
        }
        ok_within(tool("nacre").args(["up", "--no-watch", "--dir", &dir]), LIMIT)?;
        let status = ok_within(tool("nacre").args(["status", "--dir", &dir]), LIMIT)?;
        ensure!(!status.contains(&ost) && status.contains("OST0002"), "{status}");
        ensure!(sums(&m.join("data"))? == before, "after a restart");
        ensure!(!fs.dir().join("ost0001").exists() || keeps_folder, "it is not made again");
    }
    let more = run_within(tool("nacre").args(["up", "--no-watch", "--osts", "1", "--dir", &dir]), LIMIT)?;
    let said = String::from_utf8_lossy(&more.stderr);
    ensure!(!more.status.success() && said.contains("there are 2 OSTs, not 1: nacre remove"), "{said}");
    fs.down()
}

#[test]
fn a_dead_ost_is_given_up_only_when_an_operator_says_so_and_what_it_had_stays_known() -> Result<()> {
    let fs = TestFs::up("force", 3, 1)?;
    let (m, ost) = (fs.mount(0), format!("{}-OST0001", fs.fsname()));
    for (name, osts) in [("lost", "1"), ("half", "0,1"), ("kept", "0,2")] {
        stripe_on(&m.join(name), osts)?;
        fs::write(m.join(name), vec![3; 200_000])?;
    }
    File::open(m.join("half"))?.sync_all()?;
    end(server_of(&fs, 1)?.0)?;
    ok_within(tool("lctl").args(["set_param", "-P", &format!("osc.{ost}*.active=0")]), LIMIT)?;
    let inactive = || ok_within(tool("lfs").arg("osts").arg(m), LIMIT).is_ok_and(|s| s.contains("INACTIVE"));
    wait_until("it is deactivated", LIMIT, inactive)?;
    let said = refused(&["remove", &ost])?;
    ensure!(said.contains("2 files have something there"), "{said}");
    let report = json(&["remove", "--force", "--json", &ost], 0)?;
    ensure!(report["removed"] == true && report["files_lost"] == 2, "{report}");
    is_forgotten(&fs, &ost)?;
    let begun = Instant::now();
    let eio = fs::read(m.join("lost")).is_err_and(|e| e.raw_os_error() == Some(5));
    ensure!(eio && begun.elapsed() < Duration::from_secs(3), "{eio} {:?}", begun.elapsed());
    ensure!(fs::read(m.join("kept"))? == vec![3; 200_000], "kept");
    let report = json(&["lost", "--json", &ost], 1)?;
    ensure!(report["total"] == 2, "{report}");
    let report = json(&["lost", "--json", "--recreate", &ost], 0)?;
    ensure!(report["recreated"] == 2, "{report}");
    ensure!(fs::read(m.join("half"))?[..65536].iter().all(|b| *b == 3), "what was not lost");
    fs.down()
}

#[test]
fn another_ost_takes_the_place_of_one_whose_disk_died() -> Result<()> {
    let fs = TestFs::up("replace", 2, 1)?;
    let (m, ost) = (fs.mount(0), format!("{}-OST0001", fs.fsname()));
    stripe_on(&m.join("lost"), "1")?;
    fs::write(m.join("lost"), vec![3; 200_000])?;
    File::open(m.join("lost"))?.sync_all()?;
    let (pid, args) = server_of(&fs, 1)?;
    end(pid)?;
    let mut waiting = tool("nacre").args(["replace", "--json", &ost]).stdout(Stdio::piped()).spawn()?;
    let plan = json(&["replace", "--json", "--no-wait", &ost], 0)?;
    let command = plan["command"].as_str().context("no command")?;
    let new = fs.scratch().join("new");
    let words: Vec<&str> = command.split(' ').collect();
    let (program, rest) = words.split_first().context("it is empty")?;
    let rest = rest.iter().filter(|w| **w != "DIR");
    ok_within(tool(program).arg("--quiet").args(rest).arg(&new), LIMIT)?;
    let (_, flags) = args.split_last().context("no folder")?;
    let nacred = tool("nacred").args(flags).arg(&new).stderr(Stdio::null()).spawn();
    let _server = Running(nacred?);
    wait_until("the command ends", LIMIT, || waiting.try_wait().is_ok_and(|s| s.is_some()))?;
    let mut text = String::new();
    waiting.stdout.take().context("piped")?.read_to_string(&mut text)?;
    let report: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    ensure!(waiting.wait()?.success() && report["replaced"] == true && report["active"] == true, "{report}");
    ensure!(report["uuid"].as_str().is_some_and(|u| u.len() == 32), "{report}");
    let again = ok_within(tool("lctl").args(["registration", &ost]), LIMIT)?;
    ensure!(again.contains("may be replaced: no"), "one target alone: {again}");

    // Who knew the former one goes on with this one.
    wait_until("new files lie there", LIMIT, || stripe_on(&m.join("new"), "1").is_ok())?;
    let data = vec![5; 300_000];
    fs::write(m.join("new"), &data)?;
    File::open(m.join("new"))?.sync_all()?;
    ensure!(fs::read(m.join("new"))? == data, "what was written to the new one");
    ensure!(fs::read(m.join("lost")).is_err(), "what the former one had is no empty file");
    Ok(())
}

#[test]
fn a_server_goes_on_with_its_other_targets_when_one_is_removed() -> Result<()> {
    let fs = TestFs::up("others", 3, 1)?;
    let (m, ost) = (fs.mount(0), format!("{}-OST0001", fs.fsname()));
    stripe_on(&m.join("kept"), "2")?;
    fs::write(m.join("kept"), vec![3; 200_000])?;
    File::open(m.join("kept"))?.sync_all()?;
    let ((one, args), (other, more)) = (server_of(&fs, 1)?, server_of(&fs, 2)?);
    end(one)?;
    end(other)?;
    let folder = more.last().context("no folder")?;
    let start = || tool("nacred").args(&args).arg(folder).stderr(Stdio::null()).spawn();
    let kept = || fs::read(m.join("kept")).is_ok_and(|b| b == vec![3; 200_000]);
    for start_number in 0..2 {
        let mut server = Running(start()?);
        wait_until("its other target serves", LIMIT, kept)?;
        if start_number == 0 {
            json(&["remove", "--json", &ost], 0)?;
        }
        let status = || ok_within(tool("nacre").args(["status", "--json"]), LIMIT);
        wait_until("one is served no more", LIMIT, || status().is_ok_and(|s| !s.contains(&ost)))?;
        fs::write(m.join("kept"), vec![3; 200_000])?;
        ensure!(kept() && server.0.try_wait()?.is_none(), "it goes on");
        is_forgotten(&fs, &ost)?;
    }
    Ok(())
}
