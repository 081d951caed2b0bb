//! OST pools: the commands of Lustre's administrators and users, with what they print and what they refuse.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;
use std::time::Duration;
use tests::cluster::{TestFs, run_within, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(30);

/// Commands in the mount's directory.
struct Shell<'a>(&'a Path);

impl Shell<'_> {
    fn run(&self, line: &str) -> Result<Output> {
        let mut words = line.split_whitespace().map(|w| if w == "''" { "" } else { w });
        let program = words.next().context("a command")?;
        run_within(tool(program).args(words).current_dir(self.0), LIMIT)
    }

    /// Exit 0; what it printed.
    fn ok(&self, line: &str) -> Result<String> {
        let o = self.run(line)?;
        let (out, err) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
        ensure!(o.status.success(), "{line}: {}\n{out}{err}", o.status);
        Ok(out.into_owned())
    }

    fn prints(&self, line: &str, what: &str) -> Result<()> {
        let out = self.ok(line)?;
        ensure!(out == what, "{line} prints\n{out}and not\n{what}");
        Ok(())
    }

    /// This exit status, these words on standard error; what it printed.
    fn fails(&self, line: &str, code: i32, part: &str) -> Result<String> {
        let o = self.run(line)?;
        let err = String::from_utf8_lossy(&o.stderr);
        ensure!(o.status.code() == Some(code), "{line}: {} instead of {code}\n{err}", o.status);
        ensure!(err.contains(part), "{line} does not say '{part}':\n{err}");
        Ok(String::from_utf8_lossy(&o.stdout).into_owned())
    }

    /// Pool and OSTs of a file.
    fn place(&self, file: &str) -> Result<(String, BTreeSet<u64>)> {
        let json: serde_json::Value =
            serde_json::from_str(&self.ok(&format!("lfs getstripe --json {file}"))?)?;
        let text = json.to_string();
        let pool = self.ok(&format!("lfs getstripe -p {file}"))?.trim().to_string();
        let table = self.ok(&format!("lfs getstripe -q {file}"))?;
        let first = |l: &str| l.split_whitespace().next().and_then(|w| w.parse().ok());
        let osts: BTreeSet<u64> = table.lines().filter_map(first).collect();
        ensure!(!osts.is_empty(), "{file} has objects: {text}");
        Ok((pool, osts))
    }
}

#[test]
fn pools_are_administered_with_the_commands_of_lustre() -> Result<()> {
    let fs = TestFs::up("pools", 4, 1)?;
    let (f, s) = (fs.fsname().to_string(), Shell(fs.mount(0)));
    s.prints(&format!("lctl pool_new {f}.flash"), &format!("Pool {f}.flash created\n"))?;
    s.prints(&format!("lctl pool_new -n {f}.disk"), &format!("Pool {f}.disk created\n"))?;
    s.fails(&format!("lctl pool_new {f}.flash"), 17, "exists")?;
    s.fails("lctl pool_new flash", 22, "FSNAME.POOL")?;
    s.fails("lctl pool_new nothere.flash", 2, "no file system 'nothere'")?;
    for name in ["sixteen__letters", "ignore", "none", "a.b"] {
        s.fails(&format!("lctl pool_new {f}.{name}"), 22, "a pool's name is")?;
    }
    s.prints(
        &format!("lctl pool_add {f}.flash {f}-OST0001_UUID OST0003"),
        &format!(
            "OST {f}-OST0001_UUID added to pool {f}.flash\nOST {f}-OST0003_UUID added to pool {f}.flash\n"
        ),
    )?;
    s.prints(
        &format!("lctl pool_add {f}.disk {f}-OST[0-2/2]"),
        &format!(
            "OST {f}-OST0000_UUID added to pool {f}.disk\nOST {f}-OST0002_UUID added to pool {f}.disk\n"
        ),
    )?;
    s.fails(&format!("lctl pool_add {f}.flash 3"), 17, "is already in pool")?;
    let rest = s.fails(&format!("lctl pool_add {f}.disk 9 [1]"), 22, "OST0009_UUID is not part of the")?;
    ensure!(rest == format!("OST {f}-OST0001_UUID added to pool {f}.disk\n"), "{rest}");
    s.fails(&format!("lctl pool_add {f}.disk other-OST0001"), 22, "it is not of file system")?;
    s.fails(&format!("lctl pool_add {f}.gone 0"), 2, "there is no pool")?;
    s.prints(
        &format!("lctl pool_remove {f}.disk 1"),
        &format!("OST {f}-OST0001_UUID removed from pool {f}.disk\n"),
    )?;
    s.fails(&format!("lctl pool_remove {f}.disk 1"), 2, "is not in pool")?;
    s.fails(&format!("lctl pool_destroy {f}.disk"), 39, "has 2 OSTs")?;
    let flash = format!("Pool: {f}.flash\n{f}-OST0001_UUID\n{f}-OST0003_UUID\n");
    for program in ["lfs", "lctl"] {
        s.prints(&format!("{program} pool_list {f}"), &format!("Pools from {f}:\n{f}.disk\n{f}.flash\n"))?;
        s.prints(&format!("{program} pool_list {f}.flash"), &flash)?;
        s.fails(&format!("{program} pool_list {f}.gone"), 2, "there is no such pool")?;
        s.fails(&format!("{program} pool_list nothere"), 2, "nothere")?;
    }
    s.prints("lfs pool_list .", &format!("Pools from {f}:\n{f}.disk\n{f}.flash\n"))?;
    let json: serde_json::Value = serde_json::from_str(&s.ok(&format!("lfs pool_list --json {f}"))?)?;
    ensure!(json["pools"][0]["indices"] == serde_json::json!([0, 2]), "{json}");
    let members = format!("{f}-OST0001_UUID\n{f}-OST0003_UUID");
    for name in [format!("lov.{f}-clilov-*.pools.flash"), format!("lod.{f}-*.pools.flash")] {
        ensure!(s.ok(&format!("lctl get_param -n {name}"))?.trim() == members, "{name}");
    }
    let rows = |line: &str| -> Result<Vec<String>> {
        let words = |l: &str| l.split_whitespace().next().map(str::to_string);
        Ok(s.ok(line)?.lines().filter_map(words).filter(|w| w.contains("-OST")).collect())
    };
    for pool in ["flash".to_string(), format!("{f}.flash")] {
        let osts = [format!("{f}-OST0001_UUID"), format!("{f}-OST0003_UUID")];
        ensure!(rows(&format!("lfs df -p {pool} ."))? == osts, "lfs df -p {pool}");
    }
    s.fails("lfs df -p gone .", 2, "there is no such pool")?;
    s.fails("lfs df -p other.flash .", 22, "is a mount of")?;
    Ok(())
}

#[test]
fn files_go_to_the_pool_that_they_or_their_directory_name() -> Result<()> {
    let fs = TestFs::up("poolfile", 4, 1)?;
    let (f, s) = (fs.fsname().to_string(), Shell(fs.mount(0)));
    for (pool, osts) in [("flash", "1,3"), ("disk", "[0-2/2]")] {
        s.ok(&format!("lctl pool_new {f}.{pool}"))?;
        s.ok(&format!("lctl pool_add {f}.{pool} {osts}"))?;
    }
    let (flash, disk) = (BTreeSet::from([1, 3]), BTreeSet::from([0, 2]));
    // what was said when the command ended is so
    s.ok("lfs setstripe -c -1 -p flash wide")?;
    ensure!(s.place("wide")? == ("flash".into(), flash.clone()));
    ensure!(s.ok("lfs getstripe wide")?.contains("lmm_pool:          flash"), "it is shown");
    s.fails("lfs setstripe -p gone x", 22, "no such pool")?;
    s.fails("lfs setstripe -p flash -i 0 x", 22, "OST 0 is not in pool")?;
    s.fails("lfs setstripe -p flash -o 1,2 x", 22, "OST 2 is not in pool")?;
    s.ok("lfs setstripe -p flash -i 3 third")?;
    ensure!(s.place("third")?.1 == BTreeSet::from([3]));

    std::fs::create_dir(s.0.join("d"))?;
    s.ok("lfs setstripe -p disk -c -1 d")?;
    ensure!(s.ok("lfs getstripe -d d")?.contains("pool:          disk"), "a directory's default");
    let write = |name: &str| std::fs::write(s.0.join(name), name.repeat(20_000)).context("write");
    write("d/inherits")?;
    ensure!(s.place("d/inherits")? == ("disk".into(), disk.clone()));
    s.ok("lfs setstripe -c -1 -p ignore d/free")?;
    ensure!(s.place("d/free")?.1.len() == 4, "no pool, and none is inherited");
    s.ok("lfs setstripe -c -1 -p none d/none")?;
    ensure!(s.place("d/none")?.0 == "disk", "none is nothing said");

    s.ok("lfs migrate -p flash d/inherits")?;
    ensure!(s.place("d/inherits")? == ("flash".into(), flash.clone()));
    ensure!(std::fs::read_to_string(s.0.join("d/inherits"))? == "d/inherits".repeat(20_000));
    s.ok("lfs migrate d/inherits")?;
    ensure!(s.place("d/inherits")?.0 == "flash", "it keeps its pool");
    s.ok("lfs migrate -c 4 -p ignore d/inherits")?;
    ensure!(s.place("d/inherits")? == (String::new(), BTreeSet::from([0, 1, 2, 3])));

    // a pool that is full spills
    let lod = format!("lod.{f}-MDT0000-mdtlov.pool");
    s.ok("lctl set_param -P lod.*.pool.disk.spill_target=flash lod.*.pool.disk.spill_threshold_pct=100")?;
    s.fails(&format!("lctl set_param {lod}.flash.spill_target=disk"), 40, "spill_target")?;
    s.fails(&format!("lctl set_param {lod}.flash.spill_target=gone"), 2, "spill_target")?;
    let get = |name: &str| s.ok(&format!("lctl get_param -n {lod}.disk.{name}")).unwrap_or_default();
    wait_until("the target is set for good", LIMIT, || get("spill_target").trim() == "flash")?;
    ensure!(get("spill_threshold_pct").trim() == "100" && get("spill_is_active").trim() == "0");

    // a pool that is gone
    s.ok(&format!("lctl pool_remove {f}.disk 0 2"))?;
    write("d/emptied")?;
    ensure!(s.place("d/emptied")? == (String::new(), BTreeSet::from([0, 1, 2, 3])), "all OSTs");
    s.fails("lfs setstripe -p disk x", 22, "has no OSTs")?;
    s.prints(&format!("lctl pool_destroy {f}.disk"), &format!("Pool {f}.disk destroyed\n"))?;
    write("d/destroyed")?;
    ensure!(s.place("d/destroyed")?.1.len() == 4, "all OSTs");
    ensure!(s.place("d/none")? == ("disk".into(), disk), "what is there stays");
    s.ok("lfs migrate d/none")?;
    ensure!(s.place("d/none")?.0.is_empty(), "a pool that is gone is none to keep");

    // servers that start again know it from their disks
    fs.down()?;
    fs.up_again()?;
    s.ok("lfs setstripe -c -1 -p flash again")?;
    ensure!(s.place("again")? == ("flash".into(), flash));
    s.prints(&format!("lctl pool_list {f}"), &format!("Pools from {f}:\n{f}.flash\n"))?;
    Ok(())
}
