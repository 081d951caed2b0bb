//! An OST that is gone for good: which files had something there, and what becomes of them.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};
use tests::cluster::{TestFs, kill, ok_within, run_within, stripe_on, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);
const STRIPE: usize = 65536;

fn lost(args: &[&str], code: i32) -> Result<Value> {
    let o = run_within(tool("nacre").args(["lost", "--json"]).args(args), LIMIT)?;
    let (text, said) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
    ensure!(o.status.code() == Some(code), "{:?}\n{said}{text}", o.status);
    serde_json::from_str(&text).with_context(|| format!("no JSON: {text}{said}"))
}

/// The names that were listed, sorted, without their directory.
fn names(report: &Value) -> Vec<String> {
    let files = report["files"].as_array().into_iter().flatten();
    let paths = files.flat_map(|f| f["paths"].as_array().into_iter().flatten());
    let last = |p: &Value| p.as_str().and_then(|p| p.rsplit('/').next()).unwrap_or_default().to_string();
    let mut all: Vec<String> = paths.map(last).collect();
    all.sort();
    all
}

fn is_eio<T>(r: io::Result<T>) -> bool {
    r.is_err_and(|e| e.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()))
}

#[test]
fn what_a_dead_ost_had_is_listed_read_as_an_error_at_once_and_removed_or_made_anew() -> Result<()> {
    let fs = TestFs::up("lost", 3, 1)?;
    let (m, ost) = (fs.mount(0), format!("{}-OST0001", fs.fsname()));
    for (name, osts) in [("alone", "1"), ("half", "0,1"), ("safe", "0,2"), ("unread", "1")] {
        stripe_on(&m.join(name), osts)?;
        fs::write(m.join(name), vec![7; 3 * STRIPE])?;
    }
    fs::write(m.join("small"), "small")?;
    fs::hard_link(m.join("half"), m.join("again"))?;
    std::os::unix::fs::chown(m.join("alone"), Some(1000), Some(100))?;
    File::open(m.join("half"))?.sync_all()?;
    ensure!(names(&lost(&[&ost], 0)?).is_empty(), "it is in use");

    kill(fs.oss(1)?, Signal::KILL)?;
    let imports = format!("osc.{ost}-osc-*.import");
    let gone = || {
        let o = ok_within(tool("lctl").args(["get_param", "-n", &imports]), LIMIT);
        o.is_ok_and(|s| !s.contains("state: FULL"))
    };
    wait_until("its death is noticed", LIMIT, gone)?;
    let o = run_within(tool("nacre").args(["lost", "--remove", &ost]), LIMIT)?;
    ensure!(o.status.code() == Some(2), "nobody deactivated it: {:?}", o.status);
    ok_within(tool("lctl").args(["set_param", "-P", &format!("osc.{ost}*.active=0")]), LIMIT)?;
    let listed = || ok_within(tool("lfs").arg("osts").arg(m), LIMIT).is_ok_and(|s| s.contains("INACTIVE"));
    wait_until("it is deactivated", LIMIT, listed)?;

    let report = lost(&[&ost], 1)?;
    ensure!(names(&report) == ["again", "alone", "half", "unread"], "{report}");
    ensure!(report["total"] == 3 && report["complete"] == true && report["state"] == "gone", "{report}");
    let of = |name: &str| {
        let mut all = report["files"].as_array().into_iter().flatten();
        all.find(|f| f["paths"].to_string().contains(name)).cloned().context("not listed")
    };
    ensure!(of("alone")?["uid"] == 1000 && of("alone")?["gid"] == 100, "{report}");
    let part = &of("half")?["lost"][0];
    ensure!(part["stripe"] == 1 && part["stripe_count"] == 2 && part["end"].is_null(), "{part}");
    let text = run_within(tool("nacre").args(["lost", "1"]).arg(m), LIMIT)?;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    ensure!(text.contains("0-EOF:1/2x65536 ") && text.contains("3 files lost something"), "{text}");

    let begun = Instant::now();
    let half = File::open(m.join("half"))?;
    let mut bytes = vec![0; STRIPE];
    half.read_exact_at(&mut bytes, 2 * STRIPE as u64).context("a stripe that is not lost")?;
    ensure!(bytes.iter().all(|b| *b == 7), "other bytes");
    ensure!(is_eio(half.read_exact_at(&mut bytes, STRIPE as u64)), "a hole where there were bytes");
    drop(half);
    ensure!(is_eio(fs::read(m.join("alone"))), "alone");
    ensure!(begun.elapsed() < Duration::from_secs(5), "somebody waited: {:?}", begun.elapsed());
    ensure!(fs::read(m.join("safe"))? == vec![7; 3 * STRIPE], "safe");

    let report = lost(&["--recreate", &ost], 0)?;
    ensure!(report["recreated"] == 3 && report["failed"] == 0, "{report}");
    let mut want = vec![7; 3 * STRIPE];
    want[STRIPE..2 * STRIPE].fill(0);
    ensure!(fs::read(m.join("half"))? == want, "the rest is as it was, and what is lost a hole");
    ensure!(fs::metadata(m.join("alone"))?.size() == 0, "all of it was lost");
    let f = OpenOptions::new().write(true).open(m.join("again"))?;
    f.write_all_at(&[9; STRIPE], STRIPE as u64)?;
    f.sync_all()?;
    drop(f);
    want[STRIPE..2 * STRIPE].fill(9);
    ensure!(fs::read(m.join("half"))? == want, "it can be written");
    ensure!(names(&lost(&[&ost], 0)?).is_empty(), "nothing is lost any more");

    // It was not dead after all: what was given up is removed there.
    fs.up_again()?;
    ok_within(tool("lctl").args(["set_param", "-P", &format!("osc.{ost}*.active=1")]), LIMIT)?;
    let pending = format!("osp.{ost}-osc-*.destroys_pending");
    let none =
        || ok_within(tool("lctl").args(["get_param", "-n", &pending]), LIMIT).is_ok_and(|s| s.trim() == "0");
    wait_until("its objects are removed", LIMIT, none)?;
    ensure!(fs::read(m.join("half"))? == want, "as it was");
    fs.fsck()
}

#[test]
fn files_on_a_dead_ost_are_removed_with_all_their_names() -> Result<()> {
    let fs = TestFs::up("lostrm", 2, 1)?;
    let (m, ost) = (fs.mount(0), format!("{}-OST0001", fs.fsname()));
    fs::create_dir(m.join("d"))?;
    for n in 0..20 {
        stripe_on(&m.join(format!("d/f{n}")), "1")?;
        fs::write(m.join(format!("d/f{n}")), "lost")?;
    }
    for n in 0..40 {
        fs::hard_link(m.join("d/f0"), m.join(format!("d/l{n}")))?;
    }
    stripe_on(&m.join("d/kept"), "0")?;
    fs::write(m.join("d/kept"), "kept")?;
    let mount_device = |layer: &str| -> Result<String> {
        let dl = ok_within(tool("lctl").arg("dl"), LIMIT)?;
        let row =
            dl.lines().find(|l| l.contains(layer) && l.contains(&format!("{ost}-"))).context("no device")?;
        Ok(row.split_whitespace().next().unwrap_or_default().to_string())
    };
    // By its number, on the metadata server and on the client; taken back; by name.
    for layer in [" osp ", " osc "] {
        let number = mount_device(layer)?;
        let shown = |word: &str| -> Result<()> {
            let dl = ok_within(tool("lctl").arg("dl"), LIMIT)?;
            ensure!(dl.lines().any(|l| l.contains(&format!("{number} {word}{layer}"))), "{word}:\n{dl}");
            Ok(())
        };
        ok_within(tool("lctl").args(["--device", &number, "deactivate"]), LIMIT)?;
        shown("IN")?;
        if layer == " osc " {
            ensure!(is_eio(fs::read(m.join("d/f1"))), "deactivated");
        }
        ok_within(tool("lctl").args(["--device", &number, "activate"]), LIMIT)?;
        wait_until("it is active again", LIMIT, || shown("UP").is_ok())?;
    }
    ensure!(fs::read(m.join("d/f1"))? == b"lost", "not lost yet");
    ok_within(tool("lctl").args(["--device", &format!("{ost}-osc-MDT0000"), "deactivate"]), LIMIT)?;
    let active = format!("osp.{ost}-osc-MDT0000.active");
    ensure!(ok_within(tool("lctl").args(["get_param", "-n", &active]), LIMIT)?.trim() == "0", "by name");

    kill(fs.oss(1)?, Signal::KILL)?;
    ok_within(tool("lctl").args(["set_param", "-P", &format!("osc.{ost}*.active=0")]), LIMIT)?;
    let listed = || ok_within(tool("lfs").arg("osts").arg(m), LIMIT).is_ok_and(|s| s.contains("INACTIVE"));
    wait_until("it is deactivated", LIMIT, listed)?;
    let report = lost(&["--remove", "1", &m.display().to_string()], 0)?;
    ensure!(report["failed"] == 0 && report["complete"] == true, "{report}");
    let left: Vec<_> =
        fs::read_dir(m.join("d"))?.map(|e| e.map(|e| e.file_name())).collect::<io::Result<_>>()?;
    ensure!(left == ["kept"], "{left:?}");
    ensure!(fs::read(m.join("d/kept"))? == b"kept", "kept");
    Ok(())
}
