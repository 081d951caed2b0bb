//! Backups of a metadata target while it is served under load, restored elsewhere and served from there.

use super::barrier::{Load, tree};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tests::cluster::{
    TestFs, alive, fails, fsck_when_free, kill, lctl, nacre, nacre_json as json, wait_until,
};

const LIMIT: Duration = Duration::from_secs(120);

fn text(p: &Path) -> &str {
    p.to_str().expect("tests have plain paths")
}

/// The folder of the metadata target.
fn mdt_of(fs: &TestFs) -> PathBuf {
    fs.dir().join("mdt0000")
}

/// Another folder takes the place of the target's, which is kept elsewhere.
fn swap(fs: &TestFs, new: &Path) -> Result<()> {
    let mdt = mdt_of(fs);
    fs::rename(&mdt, fs.scratch().join("old mdt"))?;
    Ok(fs::rename(new, &mdt)?)
}

fn end(pid: i32) -> Result<()> {
    kill(pid, Signal::TERM)?;
    wait_until("the server ended", LIMIT, || !alive(pid))
}

#[test]
fn a_backup_under_load_is_of_the_barriers_moment_wherever_it_is_restored() -> Result<()> {
    let fs = TestFs::up("backup", 2, 2)?;
    let (name, label) = (fs.fsname(), format!("{}-MDT0000", fs.fsname()));
    let load = Load::start(fs.mount(0).join("load"));
    wait_until("the load is under way", LIMIT, || load.count() > 300)?;
    lctl(&["barrier_freeze", name, "600"])?;
    let first = tree(fs.mount(1))?;
    let (out, elsewhere) = (fs.scratch().join("out"), fs.scratch().join("elsewhere"));
    let full = json(&["backup", "mdt", &label, text(&out), "--json"])?;
    ensure!(full["generation"] == 0 && full["barrier"] == true && full["stopped"] == false, "{full}");
    ensure!(fs::metadata(&out)?.permissions().mode() & 0o77 == 0, "it has keys in it");
    lctl(&["barrier_thaw", name]).context("the operator's barrier is left to him")?;
    let at = load.count();
    wait_until("the load goes on", LIMIT, || load.count() > at + 300)?;
    // Under a barrier of its own, while the load runs.
    let part = json(&["backup", "mdt", &label, text(&out), "--incremental", "--json"])?;
    ensure!(part["generation"] == 1 && part["changed"] == true, "{part}");
    ensure!(lctl(&["barrier_stat", "-s", name])? == "thawed\n");
    let at = load.count();
    wait_until("the load goes on", LIMIT, || load.count() > at + 100)?;
    load.end()?;
    fails("nacre", &["backup", "mdt", &label, text(&out)], 8, "--incremental adds to it")?;
    let full_again = json(&["backup", "mdt", &label, text(&fs.scratch().join("out2")), "--json"])?;
    let (added, all) = (part["bytes"].as_u64(), full_again["bytes"].as_u64());
    ensure!(added < all, "an increment has {added:?} of {all:?} bytes");
    ensure!(
        json(&["backup", "verify", text(&out), "--json"])?["generations"].as_array().map(Vec::len) == Some(2)
    );
    fs.fsck()?;
    for generation in ["0", "1"] {
        let dir = elsewhere.join(generation);
        nacre(&["restore", "mdt", text(&out), text(&dir), "--generation", generation])?;
        fsck_when_free([&dir])?;
    }
    swap(&fs, &elsewhere.join("0"))?;
    fs.up_again()?;
    let restored = tree(fs.mount(1))?;
    let differ = || first.symmetric_difference(&restored).take(5).cloned().collect::<BTreeSet<_>>();
    ensure!(first == restored, "{:?}", differ());
    // It is a file system as any other.
    let load = Load::start(fs.mount(0).join("more"));
    wait_until("work goes on", LIMIT, || load.count() > 100)?;
    load.end()?;
    ensure!(tree(fs.mount(0))? == tree(fs.mount(1))?);
    fs.fsck()
}

#[test]
fn a_metadata_target_moves_to_another_disk_under_open_files() -> Result<()> {
    let fs = TestFs::up("move", 2, 1)?;
    let mdt = mdt_of(&fs);
    let mut open = File::create(fs.mount(0).join("open"))?;
    open.write_all(b"before ")?;
    fs::write(fs.mount(0).join("large"), vec![7; 3 << 20])?;
    open.sync_all()?;
    let (out, new) = (fs.scratch().join("out"), fs.scratch().join("new disk"));
    json(&["backup", "mdt", text(&mdt), text(&out), "--json"])?;
    end(fs.mds()?)?;
    let last = json(&["backup", "mdt", text(&mdt), text(&out), "--incremental", "--json"])?;
    ensure!(last["stopped"] == true && last["generation"] == 1, "{last}");
    let again = json(&["backup", "mdt", text(&mdt), text(&out), "--incremental", "--json"])?;
    ensure!(again["changed"] == false && again["generation"] == 1, "{again}");
    fails(
        "nacre",
        &["restore", "mdt", text(&out), text(&new), "--generation", "0", "--keep-clients"],
        8,
        "served",
    )?;
    fails("nacre", &["restore", "ost-labels", text(&out), text(&new)], 8, "not for")?;
    fails("nacre", &["restore", "mdt", text(&out), text(&mdt)], 8, "is not empty")?;
    nacre(&["restore", "mdt", text(&out), text(&new), "--keep-clients"])?;
    swap(&fs, &new)?;
    fs.up_again()?;
    open.write_all(b"and after")?;
    open.sync_all()?;
    drop(open);
    ensure!(fs::read(fs.mount(0).join("open"))? == b"before and after");
    ensure!(fs::read(fs.mount(0).join("large"))? == vec![7; 3 << 20]);
    fs.fsck()
}

#[test]
fn damage_of_a_backup_is_named_and_labels_of_other_targets_come_back() -> Result<()> {
    let fs = TestFs::up("labels", 1, 1)?;
    let name = fs.fsname();
    let mut large = File::create(fs.mount(0).join("large"))?;
    large.write_all(&vec![7; 3 << 20])?;
    large.sync_all()?;
    drop(large);
    let ost = format!("{name}-OST0000");
    let out = |n: &str| fs.scratch().join(n);
    fails("nacre", &["backup", "mdt", &ost, text(&out("x"))], 8, "is no target for")?;
    fails("nacre", &["backup", "mdt", "none-MDT0000", text(&out("x"))], 8, "no target that a server")?;
    fails("nacre", &["backup", "list", text(&out("y"))], 8, "there is no backup")?;
    fails("nacre", &["backup", "mtd", &ost, text(&out("x"))], 16, "'mtd' is none")?;
    fails("nacre", &["backup", "list", text(&out("x")), "more"], 16, "takes one folder")?;
    fails("nacre", &["restore", "mtd", "a", "b"], 16, "'mtd' is none")?;
    fails("nacre", &["restore", "file", "a", "b"], 16, "has no bytes of files")?;
    json(&["backup", "ost-labels", &ost, text(&out("ost")), "--json"])?;
    json(&["backup", "mgt", "MGS", text(&out("mgt")), "--json"])?;
    ensure!(nacre(&["backup", "list", text(&out("mgt"))])?.contains("0000  MGS"));
    fs.down()?;
    // The OST's label and table are lost; its objects are there.
    let dir = fs.dir().join("ost0000");
    fs::remove_dir_all(dir.join("journal"))?;
    for e in fs::read_dir(&dir)?.filter_map(|e| e.ok()).filter(|e| e.file_name() != "objects") {
        fs::remove_file(e.path())?;
    }
    nacre(&["restore", "ost-labels", text(&out("ost")), text(&dir)])?;
    fsck_when_free([fs.dir()])?;
    fs.up_again()?;
    ensure!(fs::read(fs.mount(0).join("large"))? == vec![7; 3 << 20]);
    fs.down()?;
    let part = out("ost").join("0000/table-000000");
    File::options().write(true).open(&part)?.write_all_at(b"!", 40)?;
    fails(
        "nacre",
        &["backup", "verify", text(&out("ost"))],
        4,
        "table-000000' is damaged: its checksum differs",
    )?;
    fails(
        "nacre",
        &["restore", "ost-labels", text(&out("ost")), text(&out("never"))],
        4,
        "nothing was restored",
    )?;
    ensure!(!out("never").exists());
    Ok(())
}
