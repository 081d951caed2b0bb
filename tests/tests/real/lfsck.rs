//! The whole file system is checked and mended while programs use it, over a kill of the server, and is clean
//! for the offline checker afterwards.

use anyhow::{Context, Result, ensure};
use mds::schema::key;
use model::Fid;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tests::cluster::{TestFs, fsck_when_free, kill, ok_within, run_within, tool, wait_until};
use tests::harm::harm;
use tests::load;

const LIMIT: Duration = Duration::from_secs(120);

fn lctl(args: &[&str]) -> Result<String> {
    ok_within(tool("lctl").args(args), LIMIT)
}

fn field(part: &str, name: &str) -> Result<String> {
    let text = lctl(&["get_param", "-n", &format!("mdd.*.lfsck_{part}")])?;
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": "));
    Ok(line.with_context(|| format!("no {name} in {text}"))?.to_string())
}

/// Files, and damage of several kinds among them.
fn damaged(t: &TestFs) -> Result<()> {
    let root = t.mount(0);
    fs::create_dir(root.join("d"))?;
    for n in 0..400 {
        fs::write(root.join(format!("d/f{n}")), vec![n as u8; 100])?;
    }
    for name in ["lost", "linked", "nameless"] {
        let p = root.join(name);
        ok_within(tool("lfs").args(["setstripe", "-c", "1", "-S", "64k"]).arg(&p), LIMIT)?;
        fs::write(&p, vec![7; 200_000])?;
    }
    fs::hard_link(root.join("linked"), root.join("other"))?;
    t.down()?;
    harm(&t.dir().join("mdt0000"), |h| {
        let (_, _, lost) = h.name(Fid::ROOT, "lost")?;
        let (_, at, linked) = h.name(Fid::ROOT, "other")?;
        let (entry, cookie, nameless) = h.name(Fid::ROOT, "nameless")?;
        let (_, _, dir) = h.name(Fid::ROOT, "d")?;
        h.txn.delete(key::inode(lost));
        h.txn.delete(key::backptr(linked, Fid::ROOT, at));
        h.txn.delete(entry);
        h.txn.delete(key::backptr(nameless, Fid::ROOT, cookie));
        let mut d = h.inode(dir)?;
        d.entries += 5;
        h.txn.put(key::inode(dir), d.encode());
        Ok(())
    })?;
    t.up_again()
}

#[test]
fn damage_is_gone_while_programs_go_on() -> Result<()> {
    let t = TestFs::up("lfsck", 2, 2)?;
    damaged(&t)?;
    let (end, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (mounts, e, d) = (vec![t.mount(1).to_path_buf()], end.clone(), done.clone());
    let program = std::thread::spawn(move || load::run(&mounts, 1, 27, &e, &d));
    wait_until("the load runs", LIMIT, || done.load(Relaxed) > 20)?;

    // Wrong command lines say what is wrong with them.
    for (args, says) in [
        (&["lfsck_start", "-t", "scrub"][..], "nacre scrub"),
        (&["lfsck_start", "-M", "nothing-MDT0000"], "no nacred of this host serves it"),
        (&["lfsck_start", "-w", "1024"], "pages of objects"),
        (&["lfsck_stop"], "lready"),
    ] {
        let o = run_within(tool("lctl").args(args), LIMIT)?;
        let text = String::from_utf8_lossy(&o.stderr).into_owned();
        ensure!(!o.status.success() && text.contains(says), "{args:?}: {text}");
    }

    let said = lctl(&["lfsck_start", "-n", "on", "-o"])?;
    ensure!(
        said.trim() == format!("Started LFSCK on the device {}-MDT0000: layout namespace", t.fsname()),
        "{said}"
    );
    let query = lctl(&["lfsck_query", "-w"])?;
    ensure!(
        query.contains("namespace_mdts_completed: 1") && query.contains("layout_mdts_completed: 1"),
        "{query}"
    );
    ensure!(query.contains("layout_osts_completed: 2") && query.contains("namespace_repaired: 0"), "{query}");
    ensure!(
        field("namespace", "found")?.parse::<u64>()? >= 4 && field("namespace", "flags")? == "inconsistent"
    );

    // Slowly, and killed in the middle: it goes on.
    let serves_mdt = t.mds()?;
    lctl(&["lfsck_start", "-o", "-r", "-s", "100"])?;
    wait_until("it has written down where it is", LIMIT, || {
        field("namespace", "last_checkpoint_position").is_ok_and(|p| p != "N/A")
            && field("namespace", "time_since_last_checkpoint").is_ok_and(|p| p != "N/A")
    })?;
    kill(serves_mdt, Signal::KILL)?;
    t.up_again()?;
    ensure!(field("namespace", "status")? == "scanning-phase1");
    lctl(&["set_param", "mdd.*.lfsck_speed_limit=0"])?;
    let numbers: Value = serde_json::from_str(&lctl(&["lfsck_query", "-w", "--json"])?)?;
    ensure!(numbers["namespace_mdts_completed"] == 1 && numbers["layout_mdts_completed"] == 1, "{numbers}");
    ensure!(field("namespace", "left")? == "0" && field("layout", "left")? == "0");
    ensure!(field("layout", "repaired_lost_file")? == "1");

    // What has no place is in lost+found, with its bytes.
    let found = t.mount(0).join(".lustre/lost+found/MDT0000");
    let kept: Vec<String> = fs::read_dir(&found)?
        .map(|e| Ok(e?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    for letter in ["-N-", "-R-"] {
        let name = kept.iter().find(|n| n.contains(letter)).with_context(|| format!("{letter}: {kept:?}"))?;
        ensure!(fs::read(found.join(name))? == vec![7; 200_000], "{name}");
    }
    ensure!(!t.mount(0).join("lost").exists() && fs::read(t.mount(0).join("other"))?.len() == 200_000);
    fs::rename(
        found.join(kept.iter().find(|n| n.contains("-N-")).context("it is there")?),
        t.mount(0).join("nameless"),
    )?;

    let o = ok_within(tool("nacre").args(["fsck", "--online", "--across", "--json"]), LIMIT)?;
    let report: Value = serde_json::from_str(&o)?;
    ensure!(report["clean"] == true, "{report}");
    // OSTs of another file system on this host are not this one's.
    let other = TestFs::up("lfsckother", 1, 0)?;
    let query = lctl(&["lfsck_query", "-A", "-M", &format!("{}-MDT0000", t.fsname())])?;
    ensure!(
        query.contains("layout_osts_completed: 2\n") && query.contains("layout_osts_init: 0\n"),
        "{query}"
    );
    let query = lctl(&["lfsck_query", "-t", "layout", "-M", &format!("{}-MDT0000", other.fsname())])?;
    ensure!(
        query.contains("layout_osts_completed: 0\n") && query.contains("layout_mdts_init: 1\n"),
        "{query}"
    );
    other.down()?;
    end.store(true, Relaxed);
    let load = program.join().map_err(|_| anyhow::anyhow!("the load panicked"))?;
    ensure!(load.errors.is_empty(), "the load met errors: {:?}", load.errors);
    ensure!(fs::metadata(t.dir().join("mdt0000/lfsck.log"))?.len() > 0);
    t.down()?;
    fsck_when_free([t.dir()])
}

/// States in the order in which `lfsck_query` prints them.
const STATES: &str = "init scanning-phase1 scanning-phase2 completed failed stopped paused crashed partial \
                      co-failed co-stopped co-paused unknown";
/// Fields before those of kinds of damage, as `get_param mdd.*.lfsck_*` shows them.
const HEAD: &str = "name magic version status flags param last_completed_time time_since_last_completed \
                    latest_start_time time_since_latest_start last_checkpoint_time time_since_last_checkpoint";
const TAIL: &str = "success_count run_time_phase1 average_speed_phase1 run_time_phase2 average_speed_phase2";

/// What `lfsck_query` prints if so many targets are in this state, and so much was repaired.
fn query_of(state: &str, osts: usize, repaired: usize) -> String {
    let mut s = String::new();
    for (part, sides) in [("layout", &[("mdts", 1), ("osts", osts)][..]), ("namespace", &[("mdts", 1)])] {
        for (side, n) in sides {
            for word in STATES.split_whitespace() {
                s += &format!("{part}_{side}_{word}: {}\n", if word == state { *n } else { 0 });
            }
        }
        s += &format!("{part}_repaired: {repaired}\n");
    }
    s
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_string).collect()
}

#[test]
fn a_query_and_the_status_files_are_what_scripts_read() -> Result<()> {
    let t = TestFs::up("lfsckgolden", 2, 1)?;
    let mdt = format!("{}-MDT0000", t.fsname());
    let query = || lctl(&["lfsck_query", "-M", &mdt, "-w"]);
    ensure!(query()? == query_of("init", 2, 0), "{}", query()?);
    fs::write(t.mount(0).join("f"), "x")?;
    let started = lctl(&["lfsck_start", "-M", &mdt, "-t", "all", "-r"])?;
    ensure!(started == format!("Started LFSCK on the device {mdt}: layout namespace\n"), "{started}");
    ensure!(query()? == query_of("completed", 2, 0), "{}", query()?);
    let one = lctl(&["lfsck_query", "-M", &mdt, "-t", "namespace"])?;
    ensure!(query()?.ends_with(&one) && one.lines().count() == 14, "{one}");
    // Words in this order, each line `name: value`.
    for (part, magic) in [("namespace", "0xA0629D03"), ("layout", "0xB17371B9")] {
        let shown = lctl(&["get_param", "-n", &format!("mdd.{mdt}.lfsck_{part}")])?;
        let names: Vec<String> =
            shown.lines().filter_map(|l| Some(l.split_once(':')?.0.to_string())).collect();
        ensure!(names.len() == shown.lines().count(), "{shown}");
        let (head, tail) = (words(HEAD), words(TAIL));
        ensure!(names.starts_with(&head) && names.ends_with(&tail), "{names:?}");
        let mut middle = words("last_checkpoint_position checked_phase1 checked_phase2");
        if part == "namespace" {
            middle.extend(words("inodes names"));
        }
        middle.extend(words("found repaired quarantined left"));
        ensure!(names[head.len()..].starts_with(&middle), "{names:?}");
        let kinds = &names[head.len() + middle.len()..names.len() - tail.len()];
        let is_pair = |p: &[String]| p[0].strip_prefix("found_") == p[1].strip_prefix("repaired_");
        ensure!(kinds.len() >= 12 && kinds.chunks(2).all(is_pair), "{kinds:?}");
        let is = |name: &str, value: &str| shown.lines().any(|l| l == format!("{name}: {value}").trim_end());
        let told =
            [("name", format!("lfsck_{part}")), ("magic", magic.into()), ("status", "completed".into())];
        ensure!(told.iter().all(|(n, v)| is(n, v)) && is("success_count", "1"), "{shown}");
    }
    let ost = lctl(&["get_param", "-n", &format!("obdfilter.{}-OST0000.lfsck_layout", t.fsname())])?;
    let names: Vec<String> = ost.lines().filter_map(|l| Some(l.split_once(':')?.0.to_string())).collect();
    ensure!(names == [words(HEAD), words("checked_phase1 checked_phase2 success_count")].concat(), "{ost}");
    t.fsck()
}
