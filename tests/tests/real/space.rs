//! Space: what commands say of it is the same, what was acknowledged has its room, and a full OST is named
//! and passed over until it has room again.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tests::cluster::{ok_within, sh, tool, wait_until};
use tests::disks::OnDisks;

const LIMIT: Duration = Duration::from_secs(60);
/// Size of each OST's disk.
const DISK: &str = "160m";
/// Between two questions journals may grow by as much.
const DRIFT_BYTES: u64 = 1 << 20;

/// What the logs say with these words.
fn logged(d: &OnDisks, words: &str) -> Result<Vec<String>> {
    let line = format!("grep -rhF '{words}' {} --include='*.log' || true", d.dir().display());
    Ok(sh(&line, LIMIT)?.lines().map(str::to_string).collect())
}

/// The numbers of a line, those of its words that are some.
fn numbers(line: &str) -> Vec<u64> {
    line.split_whitespace().filter_map(|w| w.parse().ok()).collect()
}

/// Size, used, available in bytes, as four commands say it.
fn said(mount: &Path) -> Result<Vec<(&'static str, Vec<u64>)>> {
    let df = ok_within(Command::new("df").args(["-B1", "--output=size,used,avail"]).arg(mount), LIMIT)?;
    let summary = |text: &str| -> Result<Vec<u64>> {
        let line = text.lines().find(|l| l.starts_with("filesystem_summary")).context("no summary")?;
        Ok(numbers(line).into_iter().map(|kib| kib << 10).collect())
    };
    let lfs = ok_within(tool("lfs").arg("df").arg(mount), LIMIT)?;
    let pool = ok_within(tool("lfs").args(["df", "-p", "small.all"]).arg(mount), LIMIT)?;
    let domains = ok_within(tool("nacre").args(["domains", "--json"]).arg(mount), LIMIT)?;
    let root = serde_json::from_str::<Value>(&domains)?[0]["tree"].clone();
    let of = |name: &str| root[name].as_u64().unwrap_or(0);
    Ok(vec![
        ("df", numbers(df.lines().last().context("df says nothing")?)),
        ("lfs df", summary(&lfs)?),
        ("lfs df -p", summary(&pool)?),
        ("nacre domains", vec![of("total_bytes"), of("used_bytes"), of("available_bytes")]),
    ])
}

/// Objects go in the background, and what is known of space is a second old at most.
fn agree_soon(mount: &Path) -> Result<()> {
    wait_until("all say the same", LIMIT, || agree(mount).is_ok()).or_else(|_| agree(mount))
}

fn agree(mount: &Path) -> Result<()> {
    let all = said(mount)?;
    let (_, first) = &all[0];
    for (who, other) in &all {
        let near = first.iter().zip(other).all(|(a, b)| a.abs_diff(*b) <= DRIFT_BYTES);
        ensure!(first.len() == 3 && other.len() == 3 && near, "{who} says something else: {all:?}");
    }
    Ok(())
}

#[test]
fn what_was_acknowledged_has_its_room_and_a_full_ost_is_named_and_passed_over() -> Result<()> {
    let s = OnDisks::up("small", 2, DISK)?;
    let (a, b) = (s.mount(0), s.mount(1));
    ok_within(tool("lctl").args(["pool_new", "small.all"]), LIMIT)?;
    ok_within(tool("lctl").args(["pool_add", "small.all", "OST0000", "OST0001"]), LIMIT)?;
    ok_within(tool("lctl").args(["set_param", "lod.small-*.qos_maxage=1"]), LIMIT)?;
    wait_until("mounts know the pool", LIMIT, || said(&a).is_ok())?;
    agree_soon(&a)?;

    let big = a.join("big");
    ok_within(tool("lfs").args(["setstripe", "-c", "1", "-i", "0"]).arg(&big), LIMIT)?;
    let mut f = File::create(&big)?;
    let block = |n: u64| vec![n as u8 | 1; 1 << 20];
    let mut written = 0;
    let error = loop {
        match f.write_all(&block(written)) {
            Ok(()) => written += 1,
            Err(e) => break e,
        }
        ensure!(written < 200, "the disk does not fill");
    };
    ensure!(error.raw_os_error() == Some(28), "ENOSPC was expected: {error}");
    f.sync_all().context("what was acknowledged has no room")?;
    drop(f);
    let back = std::fs::read(b.join("big"))?;
    for n in 0..written {
        let at = (n as usize) << 20;
        ensure!(back[at..at + (1 << 20)] == block(n), "block {n} of {written} is not as it was written");
    }
    ensure!(written >= 64, "{written} MiB fit on {DISK}");
    let get = |name: &str| ok_within(tool("lctl").args(["get_param", "-n", name]), LIMIT);
    let avail: u64 = get("obdfilter.small-OST0000.kbytesavail")?.trim().parse()?;
    let granted: u64 = get("obdfilter.small-OST0000.tot_granted")?.trim().parse()?;
    ensure!(avail < 8 << 10, "{avail} KiB are left, and writers were refused");
    ensure!(granted <= avail << 10, "{granted} bytes promised of {avail} KiB");
    ensure!(get("obdfilter.small-OST0000.tot_pending")?.trim() == "0");
    let named = logged(&s, "OST0000 in ")?;
    ensure!(named.len() == 1, "the full target is named once: {named:#?}");
    agree_soon(&a)?;

    // What little is left is taken as well: the MDT passes it over then.
    let rest = a.join("rest");
    ok_within(tool("lfs").args(["setstripe", "-c", "1", "-i", "0"]).arg(&rest), LIMIT)?;
    let mut f = File::create(&rest)?;
    while f.write_all(&[1; 65536]).is_ok() {}
    f.sync_all()?;
    drop(f);
    let why = || get("osp.small-OST0000-osc-MDT0000.passed_over").unwrap_or_default();
    wait_until("it is passed over", LIMIT, || why().trim() == "out of space")?;
    for n in 0..4 {
        let new = a.join(format!("new{n}"));
        ok_within(tool("lfs").args(["setstripe", "-c", "2"]).arg(&new), LIMIT)?;
        let on = ok_within(tool("lfs").args(["getstripe", "-q"]).arg(&new), LIMIT)?;
        ensure!(numbers(on.lines().last().unwrap_or_default()).first() != Some(&0), "{on}");
        std::fs::write(&new, block(n))?;
    }
    let named = tool("lfs").args(["setstripe", "-c", "1", "-i", "0"]).arg(a.join("named")).output()?;
    ensure!(named.status.code() == Some(28), "whoever names it: {named:?}");

    std::fs::remove_file(&big)?;
    std::fs::remove_file(&rest)?;
    wait_until("it takes objects again", LIMIT, || why().trim().is_empty())?;
    let again = a.join("again");
    ok_within(tool("lfs").args(["setstripe", "-c", "1", "-i", "0"]).arg(&again), LIMIT)?;
    std::fs::write(&again, vec![3; 20 << 20])?;
    File::open(&again)?.sync_all()?;
    let named = logged(&s, "has room again")?;
    ensure!(named.len() == 1, "and that it has room, once: {named:#?}");
    agree_soon(&b)?;
    s.down()
}
