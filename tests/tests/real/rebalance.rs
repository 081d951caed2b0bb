//! Files go from a full OST to an empty one.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tests::cluster::{TestFs, ok_within, run_within, sh, tool, wait_until};

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

fn sums(dir: &Path) -> Result<String> {
    sh(&format!("cd {} && find . -type f | sort | xargs md5sum", dir.display()), LIMIT)
}

/// File systems of their own for folders of OSTs; they go with the test.
struct Disks(Vec<PathBuf>);

impl Disks {
    fn mount(&mut self, at: PathBuf) -> Result<()> {
        fs::create_dir_all(&at)?;
        sh(&format!("mount -t tmpfs -o size=256m tmpfs {}", at.display()), LIMIT)?;
        self.0.push(at);
        Ok(())
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for at in &self.0 {
            let _ = sh(&format!("umount -l {}", at.display()), LIMIT);
        }
    }
}

#[test]
fn files_go_from_a_full_ost_to_empty_ones_but_for_those_that_are_bound() -> Result<()> {
    let fs = TestFs::up("rebalance", 1, 1)?;
    let mut disks = Disks(Vec::new());
    let (m, name) = (fs.mount(0), fs.fsname().to_string());
    let mount = m.display().to_string();
    let alone = rebalance(&[&mount], 0)?;
    ensure!(alone["files_moved"] == 0, "{alone}");
    for ost in 1..=3 {
        disks.mount(fs.dir().join(format!("ost000{ost}")))?;
    }
    let more = ["--osts", "4", "--fsname", &name, "--no-watch", "--mount"];
    ok_within(tool("nacre").args(["up", "--dir"]).arg(fs.dir()).args(more).arg(m), LIMIT)?;
    let all =
        || ok_within(tool("lfs").arg("osts").arg(m), LIMIT).is_ok_and(|s| s.contains("OST0003_UUID ACTIVE"));
    wait_until("all OSTs are there", LIMIT, all)?;
    // The first one shares a disk with everything else of this host, and is nobody's business here.
    let first = format!("osp.{name}-OST0000-osc-*.active=0");
    ok_within(tool("lctl").args(["set_param", &first]), LIMIT)?;
    ok_within(tool("lctl").args(["set_param", &format!("osc.{name}-OST0000*.active=0")]), LIMIT)?;

    for dir in ["data", "bound"] {
        fs::create_dir(m.join(dir))?;
    }
    set(&m.join("bound"), &["-c", "1", "-i", "1"])?;
    ok_within(tool("lctl").args(["pool_new", &format!("{name}.two")]), LIMIT)?;
    ok_within(tool("lctl").args(["pool_add", &format!("{name}.two"), "1", "2"]), LIMIT)?;
    for n in 0..20u8 {
        let f = m.join(format!("data/f{n}"));
        match n {
            0..4 => set(&f, &["-p", "two", "-i", "1", "-c", "1"])?,
            _ => set(&f, &["-i", "1", "-c", "1"])?,
        }
        fs::write(f, vec![n | 1; 6 << 20])?;
    }
    fs::write(m.join("bound/f"), vec![9; 6 << 20])?;
    sh(&format!("sync -f {mount}"), LIMIT)?;
    let before = sums(m)?;
    let spread = |r: &Value, of: &str| r[of].as_f64().unwrap_or(0.0);
    let full = || rebalance(&["--dry-run", &mount], 0).is_ok_and(|r| spread(&r, "spread_before") > 40.0);
    wait_until("it is known to be full", LIMIT, full)?;
    let plan = rebalance(&["--dry-run", "--threshold", "10", &mount], 0)?;
    ensure!(plan["planned"].as_array().is_some_and(|p| p.len() > 4), "{plan}");
    ensure!(osts(&m.join("data/f10"))? == [1], "a dry run moves nothing");

    let report = rebalance(&["--threshold", "10", &mount], 0)?;
    ensure!(report["even"] == true && spread(&report, "spread_after") <= 10.0, "{report}");
    ensure!(
        report["files_moved"].as_u64() >= Some(8) && report["failed"] == serde_json::json!([]),
        "{report}"
    );
    ensure!(sums(m)? == before, "some bytes are others");
    ensure!(osts(&m.join("bound/f"))? == [1], "its directory says where it lies");
    for n in 0..4 {
        let at = osts(&m.join(format!("data/f{n}")))?;
        ensure!(at == [1] || at == [2], "f{n} left its pool: {at:?}");
    }
    let mut used: Vec<u16> =
        (4..20).map(|n| osts(&m.join(format!("data/f{n}")))).collect::<Result<Vec<_>>>()?.concat();
    used.sort_unstable();
    used.dedup();
    ensure!(used == [1, 2, 3], "{used:?}");
    let again = rebalance(&["--threshold", "10", &mount], 0)?;
    ensure!(again["files_moved"] == 0, "{again}");
    fs.down()
}
