//! The metadata target's table is lost: files come back from their objects, as docs/recovery.md says.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, chown};
use std::path::Path;
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, run_within, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;
/// Small files of one stripe, so that a slow check can be killed in the middle.
const MANY: usize = 60;

fn lctl(args: &[&str]) -> Result<String> {
    ok_within(tool("lctl").args(args), LIMIT)
}

fn layout(name: &str) -> Result<String> {
    let text = lctl(&["get_param", "-n", "mdd.*.lfsck_layout"])?;
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": "));
    Ok(line.with_context(|| format!("no {name} in {text}"))?.to_string())
}

fn number(name: &str) -> Result<usize> {
    Ok(layout(name)?.parse()?)
}

/// Bytes that are nowhere the same.
fn bytes(seed: usize, len: usize) -> Vec<u8> {
    let mut x = seed as u64 + 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}

/// By FID: contents and owner.
type Made = BTreeMap<String, (Vec<u8>, u32)>;

/// Files of several layouts, their pieces of bytes at these places.
fn made(root: &Path) -> Result<Made> {
    let mut all = Made::new();
    let mut one = |name: &str, how: &[&str], parts: &[(usize, usize)], uid: u32| -> Result<()> {
        let p = root.join(name);
        ok_within(tool("lfs").arg("setstripe").args(how).arg(&p), LIMIT)?;
        let f = fs::OpenOptions::new().write(true).open(&p)?;
        let mut content = Vec::new();
        for &(at, len) in parts {
            let part = bytes(at + uid as usize, len);
            content.resize(content.len().max(at + len), 0);
            content[at..at + len].copy_from_slice(&part);
            f.write_all_at(&part, at as u64)?;
        }
        chown(&p, Some(uid), Some(uid + 1))?;
        f.sync_all()?;
        let fid = ok_within(tool("lfs").arg("path2fid").arg(&p), LIMIT)?;
        all.insert(fid.trim().to_string(), (content, uid));
        Ok(())
    };
    one("one", &["-c", "1", "-S", "64k"], &[(0, 3 * MIB + 5)], 1001)?;
    one("four", &["-c", "4", "-S", "192k"], &[(0, 9 * MIB + 1)], 1002)?;
    one("little", &["-c", "4", "-S", "64k"], &[(70_000, 11)], 1003)?;
    let parts = ["-E", "1M", "-c", "1", "-E", "16M", "-c", "2", "-S", "128k", "-E", "-1", "-c", "4"];
    one("parts", &parts, &[(0, 5 * MIB), (17 * MIB, 3 * MIB)], 1004)?;
    one("hole", &parts, &[(2 * MIB, 100_000)], 1005)?;
    for n in 0..MANY {
        one(&format!("f{n}"), &["-c", "1", "-S", "64k"], &[(0, 5000 + n)], 2000)?;
    }
    Ok(all)
}

/// The folder of the target is lost, and a new one in its place.
fn lost_and_made_anew(t: &TestFs) -> Result<()> {
    let label = format!("{}-MDT0000", t.fsname());
    lctl(&["registration", &label, "replace"])?;
    t.down()?;
    let mdt = t.dir().join("mdt0000");
    let shown = ok_within(tool("tunefs.nacre").arg("--dryrun").arg(&mdt), LIMIT)?;
    let mgs = shown.split_whitespace().find(|w| w.starts_with("mgsnode=")).context("no mgsnode")?;
    fs::rename(&mdt, t.dir().join("mdt0000.lost"))?;
    fs::create_dir(&mdt)?;
    let mut mkfs = tool("mkfs.nacre");
    mkfs.args(["--mdt", "--index=0", "--replace", &format!("--{mgs}")]);
    ok_within(mkfs.arg(format!("--fsname={}", t.fsname())).arg(&mdt), LIMIT)?;
    // What was kept is no target of this file system any more.
    fs::rename(t.dir().join("mdt0000.lost"), t.scratch().join("mdt0000.lost"))?;
    t.up_again()
}

fn kept_names(t: &TestFs) -> Result<Vec<String>> {
    let dir = t.mount(0).join(".lustre/lost+found/MDT0000");
    let names = fs::read_dir(&dir)?.map(|e| Ok(e?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

#[test]
fn files_come_back_from_their_objects_after_the_loss_of_the_metadata_target() -> Result<()> {
    let t = TestFs::up("rebuilt", 4, 1)?;
    let all = made(t.mount(0))?;
    fs::write(t.mount(0).join("small"), "lies with its inode")?;
    lost_and_made_anew(&t)?;

    // The offline checker, asked to mend everything, takes nothing away that can be put together.
    t.down()?;
    let o = run_within(tool("nacre").args(["fsck", "--repair"]).arg(t.dir()), LIMIT)?;
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    ensure!(!o.status.success() && text.contains("lctl lfsck_start -o puts it together"), "{text}");
    t.up_again()?;

    lctl(&["lfsck_start", "-t", "layout", "-n", "-o"])?;
    lctl(&["lfsck_query", "-t", "layout", "-w"])?;
    let files = all.len();
    ensure!(layout("status")? == "completed", "{}", layout("status")?);
    let (found, parts) = (number("found_lost_file")?, number("found_lost_component")?);
    ensure!((found, parts) == (files - 1, 3), "a dry run finds {found} and {parts} parts of {files} files");
    ensure!(number("repaired")? + number("quarantined")? == 0 && number("found_empty_orphan")? == 1);

    // Slowly, and killed in the middle: it goes on where it was.
    lctl(&["lfsck_start", "-t", "layout", "-o", "-r", "-s", "8"])?;
    wait_until("some are put together", LIMIT, || {
        number("repaired_lost_file").is_ok_and(|n| n > 5)
            && layout("time_since_last_checkpoint").is_ok_and(|c| c != "N/A")
    })?;
    kill(t.mds()?, Signal::KILL)?;
    t.up_again()?;
    ensure!(layout("status")? == "scanning-phase1", "{}", layout("status")?);
    ensure!(number("repaired_lost_file")? < files, "it was killed in the middle");
    lctl(&["set_param", "mdd.*.lfsck_speed_limit=0"])?;
    let q: Value = serde_json::from_str(&lctl(&["lfsck_query", "-t", "layout", "-w", "--json"])?)?;
    ensure!(q["layout_mdts_completed"] == 1, "{q}");
    ensure!(
        number("left")? == 0 && number("repaired_orphan_object")? == 0,
        "{}",
        lctl(&["get_param", "mdd.*.lfsck"])?
    );

    let dir = t.mount(0).join(".lustre/lost+found/MDT0000");
    ensure!(kept_names(&t)?.len() == files, "{:?}", kept_names(&t)?);
    for (fid, (content, uid)) in &all {
        let p = dir.join(format!("{fid}-R-0"));
        let m = fs::metadata(&p).with_context(|| format!("{}", p.display()))?;
        ensure!((m.len(), m.uid(), m.gid()) == (content.len() as u64, *uid, uid + 1), "{fid}: {m:?}");
        ensure!(m.mode() & 0o7777 == 0o600, "{fid}: {:o}", m.mode());
        ensure!(fs::read(&p)? == *content, "{fid}: other bytes");
        let back = ok_within(tool("lfs").arg("path2fid").arg(&p), LIMIT)?;
        ensure!(back.trim() == fid, "{fid}: has FID {back}");
        fs::rename(&p, t.mount(0).join(format!("back-{fid}")))?;
    }
    // New files are of other FIDs, and old ones as good as any.
    fs::write(t.mount(0).join("new"), bytes(9, MIB))?;
    let some = t.mount(0).join(format!("back-{}", all.keys().next().context("there are some")?));
    fs::write(&some, "other")?;
    ensure!(fs::read(&some)? == b"other" && fs::read(t.mount(0).join("new"))? == bytes(9, MIB));
    t.fsck()
}
