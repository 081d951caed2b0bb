//! Damage at rest, made by hand in the host's files: found by readers and by `nacre scrub`, named and
//! counted; with the server, and on a stopped target.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tests::cluster::{TestFs, run_within, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

/// A parameter of this host.
fn param(name: &str) -> Result<String> {
    let o = run_within(tool("lctl").args(["get_param", "-n", name]), LIMIT)?;
    ensure!(o.status.success(), "{name}: {o:?}");
    Ok(String::from_utf8_lossy(&o.stdout).trim().to_string())
}

/// Exit status and what was printed.
fn run(args: &[&str]) -> Result<(Option<i32>, String)> {
    let (program, rest) = args.split_first().context("a program")?;
    let o = run_within(tool(program).args(rest), LIMIT)?;
    let err = String::from_utf8_lossy(&o.stderr).into_owned();
    ensure!(!err.contains("panicked"), "{err}");
    Ok((o.status.code(), String::from_utf8_lossy(&o.stdout).into_owned() + &err))
}

fn json(args: &[&str], status: i32) -> Result<Value> {
    let (code, text) = run(args)?;
    ensure!(code == Some(status), "{args:?}: {code:?}\n{text}");
    serde_json::from_str(&text).with_context(|| text.clone())
}

/// The object files of a target that are as long as this.
fn objects(ost: &Path, len: u64) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for sub in fs::read_dir(ost.join("objects/own"))? {
        for f in fs::read_dir(sub?.path())? {
            let p = f?.path();
            if fs::metadata(&p)?.len() == len {
                found.push(p);
            }
        }
    }
    Ok(found)
}

/// A file whose bytes are with the servers.
fn put(name: &Path, data: &[u8]) -> Result<()> {
    let mut f = File::create(name)?;
    f.write_all(data)?;
    Ok(f.sync_all()?)
}

fn flip(file: &Path, at: u64) -> Result<()> {
    let f = File::options().read(true).write(true).open(file)?;
    let mut b = [0];
    f.read_exact_at(&mut b, at)?;
    f.write_all_at(&[b[0] ^ 8], at)?;
    Ok(())
}

#[test]
fn a_bit_flipped_in_an_object_is_found_and_named() -> Result<()> {
    let t = TestFs::up("scrub", 1, 2)?;
    let label = format!("{}-OST0000", t.fsname());
    let ost = t.dir().join("ost0000");
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7 + i / 4096) as u8).collect();
    let name = t.mount(0).join("precious");
    put(&name, &data)?;
    put(&t.mount(0).join("small"), b"hello")?;
    let clean = json(&["nacre", "scrub", "--json", &label], 0)?;
    ensure!(clean["status"] == "completed" && clean["bad_blocks"] == 0, "{clean}");
    ensure!(clean["bytes"].as_u64() >= Some(3_000_000), "{clean}");

    let [object] = objects(&ost, data.len() as u64)?.try_into().map_err(|v| anyhow::anyhow!("{v:?}"))?;
    flip(&object, 2_000_000)?;
    // The mount that did not write it has nothing in its cache.
    let f = File::open(t.mount(1).join("precious"))?;
    let mut block = vec![0; 4096];
    let e = f.read_exact_at(&mut block, 1_998_848).expect_err("the block is damaged");
    ensure!(e.raw_os_error() == Some(5), "{e}");
    f.read_exact_at(&mut block, 4096)?;
    ensure!(block == data[4096..8192]);
    let count = param(&format!("obdfilter.{label}.checksum_errors"))?;
    ensure!(count.parse().is_ok_and(|n: u64| n >= 1), "{count:?}");

    let found = json(&["nacre", "scrub", "--json", "--rate", "1000", &label], 4)?;
    let (_, fid) = run(&["lfs", "path2fid", name.to_str().context("UTF-8")?])?;
    let bad = &found["bad"][0];
    ensure!(found["bad_blocks"] == 1 && bad["offset"] == 1_998_848, "{found}");
    ensure!(
        bad["fid"] == fid.trim() && bad["host_path"] == object.to_str().context("UTF-8")?,
        "{found} {fid}"
    );
    let path = bad["paths"][0].as_str().unwrap_or_default();
    ensure!(path.ends_with("/precious"), "{found}");
    let log = fs::read_dir(t.dir().join("log"))?;
    let said =
        log.filter_map(|e| fs::read_to_string(e.ok()?.path()).ok()).any(|s| s.contains("has checksum"));
    ensure!(said, "the server's log does not say it");
    let (code, text) = run(&["nacre", "scrub", "--status", &label])?;
    ensure!(code == Some(4) && text.contains("completed") && text.contains("precious"), "{text}");
    ensure!(run(&["nacre", "scrub", "--rate", "0", &label])?.0 == Some(16));
    ensure!(run(&["nacre", "scrub", "nothing-OST0000"])?.0 == Some(8));

    // A stopped target, by its folder.
    drop(f);
    t.down()?;
    let dir = ost.to_str().context("UTF-8")?;
    let found = json(&["nacre", "scrub", "--json", dir], 4)?;
    ensure!(found["bad_blocks"] == 1 && found["bad"][0]["offset"] == 1_998_848, "{found}");
    flip(&object, 2_000_000)?;
    let clean = json(&["nacre", "scrub", "--json", dir], 0)?;
    ensure!(clean["bad_blocks"] == 0, "{clean}");
    t.up_again()?;
    ensure!(fs::read(&name)? == data);
    Ok(())
}

#[test]
fn a_scrub_is_stopped_and_goes_on_where_it_was() -> Result<()> {
    let t = TestFs::up("scrubpos", 1, 1)?;
    let label = format!("{}-OST0000", t.fsname());
    for i in 0..4 {
        put(&t.mount(0).join(format!("f{i}")), &vec![i; 2 << 20])?;
    }
    let started = json(&["nacre", "scrub", "--json", "--no-wait", "--rate", "1", &label], 0)?;
    ensure!(started["status"] == "running", "{started}");
    json(&["nacre", "scrub", "--json", "--stop", "--no-wait", &label], 0)?;
    let mut s = json(&["nacre", "scrub", "--json", "--status", &label], 0)?;
    for _ in 0..300 {
        if s["status"] == "stopped" {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        s = json(&["nacre", "scrub", "--json", "--status", &label], 0)?;
    }
    let (bytes, all) = (s["bytes"].as_u64().unwrap_or(0), 8 << 20);
    ensure!(s["status"] == "stopped" && bytes < all, "{s}");
    t.down()?;
    t.up_again()?;
    let done = json(&["nacre", "scrub", "--json", "--rate", "1000", &label], 0)?;
    ensure!(
        done["status"] == "completed" && done["bytes"].as_u64() == Some(all),
        "what was read is not read again: {done}"
    );
    Ok(())
}

/// `nacre fsck --online` under load: each look is at one moment, so nothing is ever half done in it.
#[test]
fn served_targets_are_checked_while_they_change() -> Result<()> {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let fs = TestFs::up("online", 2, 2)?;
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let labels: Vec<String> =
        ["MDT0000", "OST0000", "OST0001"].iter().map(|t| format!("{}-{t}", fs.fsname())).collect();
    let look = || -> Result<u64> {
        let args: Vec<&str> = ["nacre", "fsck", "--online", "--json"]
            .into_iter()
            .chain(labels.iter().map(String::as_str))
            .collect();
        let doc = json(&args, 0)?;
        ensure!(doc["clean"] == true && doc["targets"].as_array().is_some_and(|t| t.len() == 3), "{doc}");
        ensure!(doc["totals"]["inodes"].as_u64() > Some(0), "{doc}");
        Ok(doc["totals"]["objects"].as_u64().unwrap_or(0))
    };
    let (report, objects) = std::thread::scope(|s| {
        let load = s.spawn(|| tests::load::run(fs.mounts(), 4, 77, &stop, &done));
        let looks = || -> Result<u64> {
            let mut most = 0;
            for n in 0..15 {
                wait_until("the load goes on", LIMIT, || done.load(Ordering::Relaxed) > n * 40)?;
                most = look()?.max(most);
            }
            Ok(most)
        };
        let seen = looks();
        stop.store(true, Ordering::Relaxed);
        (load.join().expect("load"), seen)
    });
    ensure!(objects? > 0, "no object was looked at");
    ensure!(report.errors.is_empty(), "{}", report.errors.join("\n"));
    // Words for people; and what is no such target.
    let (code, text) = run(&["nacre", "fsck", "--online", &labels[0]])?;
    ensure!(code == Some(0) && text.contains("as it is now") && text.contains("clean"), "{text}");
    let (code, text) = run(&["nacre", "fsck", "--online", "nosuch-MDT0000"])?;
    ensure!(code == Some(8) && text.contains("no server of this host"), "{text}");
    fs.fsck()
}
