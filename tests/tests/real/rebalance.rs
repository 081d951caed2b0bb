//! Files go from a full OST to an empty one.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tests::cluster::{Running, TestFs, kill, ok_within, run_within, sh, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(120);

fn rebalance(args: &[&str], code: i32) -> Result<Value> {
    let o = run_within(tool("nacre").args(["rebalance", "--json"]).args(args), LIMIT)?;
    let (text, said) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
    ensure!(o.status.code() == Some(code), "{:?}\n{said}{text}", o.status);
    serde_json::from_str(&text).with_context(|| format!("no JSON: {text}{said}"))
}

fn set(path: &Path, args: &[&str]) -> Result<()> {
    ok_within(tool("lfs").arg("setstripe").args(args).arg(path), LIMIT).map(drop)
}

fn osts(path: &Path) -> Result<Vec<u16>> {
    let text = ok_within(tool("lfs").args(["getstripe", "-y"]).arg(path), LIMIT)?;
    let rows = text.lines().filter_map(|l| l.split_once("l_ost_idx: "));
    rows.map(|(_, n)| n.trim().parse().context("an index")).collect()
}

/// New objects go to these OSTs only.
fn open_only(fsname: &str, osts: &[u16]) -> Result<()> {
    for n in 1..5 {
        let count = if osts.contains(&n) { 20_000 } else { 0 };
        let param = format!("osp.{fsname}-OST{n:04x}-osc-*.max_create_count={count}");
        ok_within(tool("lctl").args(["set_param", &param]), LIMIT)?;
    }
    Ok(())
}

fn sums(dir: &Path) -> Result<String> {
    sh(&format!("cd {} && find . -type f | sort | xargs md5sum", dir.display()), LIMIT)
}

/// File systems of their own for folders of OSTs; they go with the test.
#[derive(Default)]
struct Disks(Vec<PathBuf>);

impl Disks {
    fn mount(&mut self, at: PathBuf, how: &str) -> Result<()> {
        fs::create_dir_all(&at)?;
        sh(&format!("mount {how} {}", at.display()), LIMIT)?;
        self.0.push(at);
        Ok(())
    }

    /// A disk of 256 MiB for these OSTs.
    fn add(&mut self, fs: &TestFs, osts: &[u16]) -> Result<()> {
        let disk = fs.scratch().join(format!("disk{}", osts[0]));
        self.mount(disk.clone(), "-t tmpfs -o size=256m tmpfs")?;
        for ost in osts {
            let folder = disk.join(format!("{ost}"));
            fs::create_dir(&folder)?;
            let how = format!("--bind {}", folder.display());
            self.mount(fs.dir().join(format!("ost{ost:04x}")), &how)?;
        }
        Ok(())
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for at in self.0.iter().rev() {
            let _ = sh(&format!("umount -l {}", at.display()), LIMIT);
        }
    }
}

/// A file system whose OSTs 1 and 4 lie on one disk and 2 and 3 on one each; 0 is deactivated, as it lies on
/// the disk of everything else of this host.
fn on_three_disks(name: &str) -> Result<(TestFs, Disks)> {
    let fs = TestFs::up(name, 1, 1)?;
    let mut disks = Disks::default();
    let (m, name) = (fs.mount(0), fs.fsname().to_string());
    let alone = rebalance(&[&m.display().to_string()], 0)?;
    ensure!(alone["files_moved"] == 0, "{alone}");
    for osts in [&[1, 4][..], &[2], &[3]] {
        disks.add(&fs, osts)?;
    }
    let more = ["--osts", "5", "--fsname", &name, "--no-watch", "--mount"];
    ok_within(tool("nacre").args(["up", "--dir"]).arg(fs.dir()).args(more).arg(m), LIMIT)?;
    let all = || {
        ok_within(tool("lfs").arg("osts").arg(m), LIMIT).is_ok_and(|s| s.matches("_UUID ACTIVE").count() == 5)
    };
    wait_until("all OSTs are there", LIMIT, all)?;
    for device in [format!("osp.{name}-OST0000-osc-*"), format!("osc.{name}-OST0000*")] {
        ok_within(tool("lctl").args(["set_param", &format!("{device}.active=0")]), LIMIT)?;
    }
    // What is to lie where is made first.
    let mount = m.display().to_string();
    ensure!(status(&mount)?["threshold"] == 20, "it is on unless somebody switches it off");
    ok_within(tool("nacre").args(["rebalance", "--stop", &mount]), LIMIT)?;
    wait_until("nothing moves by itself", LIMIT, || status(&mount).is_ok_and(|s| s["state"] == "off"))?;
    Ok((fs, disks))
}

/// Objects on OST 1: 150 MiB of the 256 on its disk. Four of the files are of a pool, one is in a directory
/// that names its OSTs, some have two components.
fn fill(m: &Path, fsname: &str) -> Result<()> {
    for dir in ["data", "bound"] {
        fs::create_dir(m.join(dir))?;
    }
    set(&m.join("bound"), &["-c", "1", "-i", "1"])?;
    let pool = format!("{fsname}.two");
    ok_within(tool("lctl").args(["pool_new", &pool]), LIMIT)?;
    ok_within(tool("lctl").args(["pool_add", &pool, "1", "2"]), LIMIT)?;
    let byte = |n: u8, mib: usize| vec![n | 1; mib << 20];
    open_only(fsname, &[1])?;
    for n in 0..20u8 {
        let f = m.join(format!("data/f{n}"));
        let pooled = || set(&f, &["-p", "two", "-c", "1"]).is_ok();
        match n {
            0..4 => wait_until("the pool is known", LIMIT, pooled)?,
            _ => set(&f, &["-c", "1"])?,
        }
        fs::write(f, byte(n, 6))?;
    }
    open_only(fsname, &[1, 3])?;
    for n in 0..3u8 {
        let f = m.join(format!("data/parts{n}"));
        set(&f, &["-E", "2M", "-c", "1", "-E", "64M", "-c", "2", "-E", "-1", "-c", "3"])?;
        fs::write(f, byte(n, 14))?;
    }
    fs::write(m.join("bound/f"), byte(9, 6))?;
    set(&m.join("bound/g"), &["-o", "1"])?;
    fs::write(m.join("bound/g"), byte(9, 6))?;
    open_only(fsname, &[1, 2, 3, 4])?;
    sh(&format!("sync -f {}", m.display()), LIMIT).map(drop)
}

/// End, count and size of stripes of each component.
fn shape(f: &Path) -> Result<Vec<[Value; 3]>> {
    let text = ok_within(tool("lfs").args(["getstripe", "--json"]).arg(f), LIMIT)?;
    let json: Value = serde_json::from_str(&text)?;
    let all = json[0]["components"].as_array().with_context(|| text.clone())?;
    Ok(all.iter().map(|c| ["end", "stripe_count", "stripe_size"].map(|name| c[name].clone())).collect())
}

fn spread(report: &Value, name: &str) -> Option<f64> {
    report[name].as_f64()
}

/// What is written is with the OSTs, and the mount knows how full they are, a moment later.
fn known_full(m: &Path) -> Result<()> {
    let full = || {
        let r = rebalance(&["--dry-run", "--threshold", "40", &m.display().to_string()], 0);
        r.is_ok_and(|r| spread(&r, "spread_before") > Some(45.0))
    };
    wait_until("it is known to be full", LIMIT, full)
}

/// Ends a run in the middle by an interrupt from the terminal.
fn begun_and_interrupted(mount: &Path) -> Result<()> {
    let mut child = Running(
        tool("nacre")
            .args(["rebalance", "--threshold", "10", "--bandwidth", "1"])
            .arg(mount)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?,
    );
    let shown = || {
        let o = run_within(tool("nacre").args(["movements", "--json"]).arg(mount), LIMIT);
        o.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("\"copying\""))
    };
    wait_until("something is moved", LIMIT, shown)?;
    kill(child.0.id() as i32, Signal::INT)?;
    let status = child.0.wait()?;
    ensure!(status.code() == Some(130), "{status:?}");
    wait_until("nothing is moved any more", LIMIT, || !shown())
}

#[test]
fn files_go_from_a_full_ost_to_empty_ones_but_for_those_that_are_bound() -> Result<()> {
    let (fs, _disks) = on_three_disks("rebalance")?;
    let m = fs.mount(0);
    let mount = m.display().to_string();
    fill(m, fs.fsname())?;
    let before = sums(m)?;
    let parts = shape(&m.join("data/parts0"))?;
    known_full(m)?;
    let plan = rebalance(&["--dry-run", "--threshold", "10", &mount], 0)?;
    let planned = plan["planned"].as_array().context("a plan")?;
    ensure!(planned.len() > 4 && planned.iter().all(|p| p["from"] == 1 && p["to"] != 4), "{plan}");
    ensure!(osts(&m.join("data/f10"))? == [1], "a dry run moves nothing");

    begun_and_interrupted(m)?;
    ensure!(sums(m)? == before, "some bytes are others");
    let report = rebalance(&["--threshold", "10", &mount], 0)?;
    ensure!(report["even"] == true && spread(&report, "spread_after") <= Some(10.0), "{report}");
    let moved = report["files_moved"].as_u64();
    ensure!(moved >= Some(6) && report["failed"] == serde_json::json!([]), "{report}");
    ensure!(sums(m)? == before, "some bytes are others");
    check_places(m)?;
    ensure!(shape(&m.join("data/parts0"))? == parts, "it has another shape");
    let again = rebalance(&["--threshold", "10", &mount], 0)?;
    ensure!(again["files_moved"] == 0, "{again}");
    // Nothing of what was given up on the way is left.
    fs.fsck()
}

/// Where files are after they were moved.
fn check_places(m: &Path) -> Result<()> {
    ensure!(osts(&m.join("bound/f"))? == [1], "its directory says where it lies");
    ensure!(osts(&m.join("bound/g"))? == [1], "its owner says where it lies");
    for n in 0..4 {
        let at = osts(&m.join(format!("data/f{n}")))?;
        ensure!(at == [1] || at == [2], "f{n} left its pool: {at:?}");
    }
    let data = |names: Vec<String>| -> Result<BTreeSet<u16>> {
        let all: Vec<Vec<u16>> =
            names.iter().map(|n| osts(&m.join("data").join(n))).collect::<Result<_>>()?;
        Ok(all.concat().into_iter().collect())
    };
    let plain = data((4..20).map(|n| format!("f{n}")).collect())?;
    ensure!(plain == BTreeSet::from([1, 2, 3]), "{plain:?}: 4 lies on the disk of 1");
    let parts = data((0..3).map(|n| format!("parts{n}")).collect())?;
    ensure!(!parts.contains(&4), "{parts:?}");
    Ok(())
}

/// What the metadata server says of its own work.
fn status(mount: &str) -> Result<Value> {
    let text = ok_within(tool("nacre").args(["rebalance", "--status", "--json", mount]), LIMIT)?;
    let all: Value = serde_json::from_str(&text)?;
    Ok(all[0].clone())
}

#[test]
fn the_metadata_server_does_the_same_by_itself_until_it_is_told_to_stop() -> Result<()> {
    let (fs, _disks) = on_three_disks("rebalself")?;
    let m = fs.mount(0);
    let mount = m.display().to_string();
    fill(m, fs.fsname())?;
    let before = sums(m)?;
    known_full(m)?;
    ensure!(status(&mount)?["state"] == "off", "it was switched off");
    ok_within(tool("nacre").args(["rebalance", "--background", "10", &mount]), LIMIT)?;
    let is = |state: &'static str| {
        let mount = mount.clone();
        move || status(&mount).is_ok_and(|s| s["state"] == state)
    };
    wait_until("it has moved enough", LIMIT, || {
        status(&mount).is_ok_and(|s| s["files_moved"].as_u64() >= Some(6) && s["state"] == "even")
    })?;
    ensure!(sums(m)? == before, "some bytes are others");
    check_places(m)?;
    let plan = rebalance(&["--dry-run", "--threshold", "11", &mount], 0)?;
    ensure!(spread(&plan, "spread_before") <= Some(11.0), "{plan}");
    ok_within(tool("nacre").args(["rebalance", "--stop", &mount]), LIMIT)?;
    wait_until("it has stopped", LIMIT, is("off"))?;
    fs.fsck()
}

/// A component with two stripes, one on the full OST and one on an empty one, goes to the other empty one.
#[test]
fn of_a_file_with_components_the_objects_on_the_full_ost_go_elsewhere() -> Result<()> {
    let (fs, _disks) = on_three_disks("rebalparts")?;
    let m = fs.mount(0);
    let mount = m.display().to_string();
    fs::create_dir(m.join("bound"))?;
    set(&m.join("bound"), &["-c", "1", "-i", "1"])?;
    fs::write(m.join("bound/f"), vec![7; 80 << 20])?;
    let f = m.join("f");
    open_only(fs.fsname(), &[2])?;
    set(&f, &["-E", "2M", "-c", "1", "-E", "-1", "-c", "2"])?;
    open_only(fs.fsname(), &[1, 2])?;
    let bytes: Vec<u8> = (0..102u32 << 20).map(|n| (n >> 12) as u8 | 1).collect();
    fs::write(&f, &bytes)?;
    open_only(fs.fsname(), &[1, 2, 3, 4])?;
    sh(&format!("sync -f {mount}"), LIMIT)?;
    let parts = shape(&f)?;
    known_full(m)?;
    let report = rebalance(&["--threshold", "25", &mount], 0)?;
    ensure!(report["files_moved"] == 1 && report["skipped"] == 1, "{report}");
    let at = osts(&f)?;
    ensure!(at[0] == 2 && BTreeSet::from([at[1], at[2]]) == BTreeSet::from([2, 3]), "{at:?}");
    ensure!(shape(&f)? == parts && fs::read(&f)? == bytes, "its shape and its bytes are as they were");
    fs.fsck()
}
