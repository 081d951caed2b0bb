//! Drills of a file system's life: in which order its parts start, what a client hears when one is missing,
//! what an index may be, and what stays over remounts. What else belongs to it has tests of its own: a target
//! started twice (`bad_input`), removal for good and a new OST at an old index (`removed`, `replaced`),
//! an MGS that is killed (`config`).

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tests::cluster::{Scratch, fsck_when_free, ok_within, run_within, tool, wait_until};
use tests::hosts::Hosts;

const LIMIT: Duration = Duration::from_secs(90);
const MGS: u32 = 1;
const MDS: u32 = 2;
const OSS: [u32; 2] = [3, 4];
const CLIENT: u32 = 5;

/// An MGS, an MDT and two OSTs, a host each.
struct Site {
    hosts: Hosts,
    scratch: Scratch,
    mnt: PathBuf,
}

impl Site {
    fn new(name: &str, indices: [u32; 2]) -> Result<Site> {
        let scratch = Scratch::new(name);
        let mnt = scratch.path().join("mnt");
        std::fs::create_dir(&mnt)?;
        let hosts = Hosts::new(CLIENT, std::slice::from_ref(&mnt))?;
        let site = Site { hosts, scratch, mnt };
        site.mkfs(&["--mgs"], "mgt")?;
        site.mkfs(&["--mdt", "--fsname=life", "--index=0", &Site::mgs()], "mdt")?;
        for (i, n) in indices.iter().enumerate() {
            site.mkfs(
                &["--ost", "--fsname=life", &format!("--index={n}"), &Site::mgs()],
                &format!("ost{i}"),
            )?;
        }
        Ok(site)
    }

    fn mgs() -> String {
        format!("--mgsnode={}", Hosts::nid(MGS))
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn mkfs(&self, args: &[&str], dir: &str) -> Result<String> {
        ok_within(tool("mkfs.nacre").args(args).arg(self.dir(dir)), LIMIT)
    }

    /// The host of a target.
    fn start(&mut self, target: &str) -> Result<()> {
        let host = match target {
            "mgt" => MGS,
            "mdt" => MDS,
            "ost0" => OSS[0],
            _ => OSS[1],
        };
        let log = self.dir(&format!("log{host}"));
        self.hosts.nacred(host, &[], &[self.dir(target)], &log)
    }

    /// All of it runs, is mounted, and knows its OSTs.
    fn up(name: &str, indices: [u32; 2]) -> Result<Site> {
        let mut site = Site::new(name, indices)?;
        site.start_all()?;
        site.mounted()?;
        Ok(site)
    }

    fn start_all(&mut self) -> Result<()> {
        ["mgt", "mdt", "ost0", "ost1"].into_iter().try_for_each(|t| self.start(t))
    }

    fn end_all(&mut self) -> Result<()> {
        [MDS, OSS[0], OSS[1], MGS].into_iter().try_for_each(|h| self.hosts.end(h, Signal::TERM))
    }

    fn mounter(&self, source: &str, options: &str) -> Command {
        let mut c = self.hosts.on(CLIENT, "mount.nacre");
        let log = self.dir("log5").display().to_string();
        c.arg(source).arg(&self.mnt).args(["-o", &format!("log={log}{options}")]);
        c
    }

    fn source() -> String {
        format!("{}:/life", Hosts::nid(MGS))
    }

    fn mount(&self) -> Result<()> {
        wait_until("the client mounts", LIMIT, || {
            run_within(&mut self.mounter(&Site::source(), ""), LIMIT).is_ok_and(|o| o.status.success())
        })
        .with_context(|| self.said())
    }

    fn mounted(&self) -> Result<()> {
        self.mount()?;
        self.osts_are_known(2)
    }

    fn umount(&self) -> Result<()> {
        ok_within(Command::new("umount").arg(&self.mnt), LIMIT).map(drop)
    }

    /// Nobody uses it and nothing runs any more.
    fn over(&mut self) -> Result<()> {
        self.umount()?;
        self.end_all()
    }

    /// Nothing is wrong in its folders.
    fn clean(&self) -> Result<()> {
        fsck_when_free(["mdt", "ost0", "ost1"].map(|d| self.dir(d)))
    }

    fn osts_are_known(&self, many: usize) -> Result<()> {
        let active = || {
            let o = run_within(tool("lfs").arg("osts").arg(&self.mnt), LIMIT);
            o.map_or(0, |o| String::from_utf8_lossy(&o.stdout).matches(" ACTIVE").count())
        };
        wait_until(&format!("{many} OSTs are known"), LIMIT, || active() == many).with_context(|| self.said())
    }

    /// A file on both OSTs is written and read.
    fn works(&self, name: &str) -> Result<()> {
        let file = self.mnt.join(name);
        ok_within(tool("lfs").args(["setstripe", "-c", "-1", "-S", "64k"]).arg(&file), LIMIT)?;
        let data: Vec<u8> = (0..1 << 20).map(|i: u32| (i / 77) as u8).collect();
        std::fs::write(&file, &data)?;
        std::fs::File::open(&file)?.sync_all()?;
        ensure!(std::fs::read(&file)? == data, "{name} is not what was written");
        Ok(())
    }

    /// A parameter of the mount's sessions with both OSTs.
    fn shows(&self, name: &str, right: impl Fn(&str) -> bool) -> Result<()> {
        let all = || {
            let o = run_within(tool("lctl").args(["get_param", "-n", name]), LIMIT);
            o.map_or(String::new(), |o| String::from_utf8_lossy(&o.stdout).into_owned())
        };
        let both = || {
            let text = all();
            text.lines().count() == 2 && text.lines().all(|l| right(l.trim()))
        };
        wait_until(&format!("{name} is right on both"), LIMIT, both)
            .with_context(|| format!("{}\n{}", all(), self.said()))
    }

    fn said(&self) -> String {
        let text = |n: u32| {
            let all = std::fs::read_to_string(self.dir(&format!("log{n}"))).unwrap_or_default();
            format!("log{n}:\n{all}\n")
        };
        (1..=CLIENT).map(text).collect()
    }

    /// A mount that must fail soon; what it says.
    fn fails(&self, source: &str, options: &str, soon: Duration) -> Result<String> {
        let began = Instant::now();
        let o = run_within(&mut self.mounter(source, options), LIMIT)?;
        let said = String::from_utf8_lossy(&o.stderr).into_owned();
        ensure!(!o.status.success(), "{source} was mounted");
        ensure!(began.elapsed() < soon, "{source}: it took {:?} to say: {said}", began.elapsed());
        Ok(said)
    }
}

/// Started in this order, the mount as well, with nothing there before: it works, and it does so again after
/// a stop in any order and a start in another one.
fn starts_in_order(name: &str, orders: &[[&str; 5]]) -> Result<()> {
    let mut site = Site::new(name, [0, 1])?;
    for (n, order) in orders.iter().enumerate() {
        let mut mounting: Option<Child> = None;
        for part in order {
            if *part == "mount" {
                // It may have to wait for all that comes after it.
                let mut c = site.mounter(&Site::source(), ",retry=20");
                mounting = Some(c.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?);
            } else {
                site.start(part)?;
            }
            // The next one finds it at work on whatever it can do alone.
            std::thread::sleep(Duration::from_millis(700));
        }
        let mut child = mounting.context("a mount is in each order")?;
        let mut how = None;
        wait_until("the mount is there", LIMIT, || {
            how = child.try_wait().ok().flatten();
            how.is_some()
        })
        .with_context(|| site.said())?;
        ensure!(how.is_some_and(|h| h.success()), "{order:?}: {how:?}\n{}", site.said());
        site.osts_are_known(2)?;
        site.works(&format!("file{n}")).with_context(|| format!("{order:?}\n{}", site.said()))?;
        for before in 0..n {
            ensure!(std::fs::read(site.mnt.join(format!("file{before}")))?.len() == 1 << 20, "file{before}");
        }
        site.over()?;
    }
    site.clean()
}

#[test]
fn any_order_of_starts_gives_the_same_file_system() -> Result<()> {
    starts_in_order(
        "order",
        &[
            ["mgt", "mdt", "ost0", "ost1", "mount"],
            ["ost1", "ost0", "mdt", "mgt", "mount"],
            ["mount", "ost0", "mgt", "ost1", "mdt"],
            ["mdt", "mount", "mgt", "ost1", "ost0"],
        ],
    )
}

#[test]
fn a_mount_that_cannot_be_says_why_in_bounded_time() -> Result<()> {
    let mut site = Site::new("nomount", [0, 1])?;
    let soon = Duration::from_secs(30);
    // Its host lives, and nobody listens.
    let said = site.fails(&Site::source(), "", soon)?;
    ensure!(said.contains("Is the MGS running?"), "{said}");
    // Nobody has the address.
    let said = site.fails("10.77.0.99@tcp:/life", "", soon)?;
    ensure!(said.contains("10.77.0.99@tcp") && said.contains("Is the MGS running?"), "{said}");
    // No way leads there.
    let said = site.fails("10.99.0.1@tcp:/life", "", soon)?;
    ensure!(said.contains("10.99.0.1@tcp") && said.contains("MGS"), "{said}");
    site.start_all()?;
    site.mount()?;
    site.umount()?;
    let said = site.fails(&format!("{}:/wrong", Hosts::nid(MGS)), "", soon)?;
    ensure!(said.contains("'wrong'") && said.contains("Is the file system name correct?"), "{said}");
    // The first address is nobody's: the second one does.
    let both = format!("10.77.0.99@tcp:{}:/life", Hosts::nid(MGS));
    let began = Instant::now();
    ok_within(&mut site.mounter(&both, ""), LIMIT)?;
    ensure!(began.elapsed() < Duration::from_secs(15), "it took {:?}", began.elapsed());
    site.over()
}

#[test]
fn a_mount_while_an_ost_is_down_works_with_the_others() -> Result<()> {
    let mut site = Site::up("downost", [0, 1])?;
    site.works("both")?;
    let on_first = site.mnt.join("first");
    ok_within(tool("lfs").args(["setstripe", "-o", "0"]).arg(&on_first), LIMIT)?;
    std::fs::write(&on_first, vec![7; 1 << 20])?;
    site.umount()?;
    site.hosts.end(OSS[1], Signal::TERM)?;
    let began = Instant::now();
    site.mount()?;
    ensure!(began.elapsed() < Duration::from_secs(20), "the mount took {:?}", began.elapsed());
    ensure!(std::fs::read(&on_first)? == vec![7; 1 << 20], "what is on the other OST can be read");
    // It is named, and the others are shown.
    let df = run_within(tool("lfs").arg("df").arg(&site.mnt), LIMIT)?;
    let said = String::from_utf8_lossy(&df.stdout).into_owned() + &String::from_utf8_lossy(&df.stderr);
    ensure!(!df.status.success() && said.contains("cannot get space of 'life-OST0001_UUID'"), "{said}");
    ensure!(said.contains("life-OST0000_UUID") && said.contains("filesystem_summary"), "{said}");
    let new = site.mnt.join("new");
    ok_within(tool("lfs").args(["setstripe", "-o", "0"]).arg(&new), LIMIT)?;
    std::fs::write(&new, vec![8; 1 << 20])?;
    // It comes back, and what waited for it goes on.
    let reader = {
        let both = site.mnt.join("both");
        std::thread::spawn(move || std::fs::read(both))
    };
    site.start("ost1")?;
    let read = reader.join().expect("the reader").context("what waited for the OST")?;
    ensure!(read.len() == 1 << 20, "{} bytes", read.len());
    site.osts_are_known(2)?;
    site.works("again")?;
    site.over()?;
    site.clean()
}

/// Indices with holes, and a second OST that has the index of a living one.
#[test]
fn an_index_may_be_sparse_and_is_never_two_targets() -> Result<()> {
    let mut site = Site::up("sparse", [3, 1000])?;
    site.works("wide")?;
    let osts = ok_within(tool("lfs").arg("osts").arg(&site.mnt), LIMIT)?;
    for line in ["3: life-OST0003_UUID", "1000: life-OST03e8_UUID"] {
        ensure!(osts.contains(line), "'{line}' is missing in {osts}");
    }
    let on_last = site.mnt.join("last");
    ok_within(tool("lfs").args(["setstripe", "-o", "1000"]).arg(&on_last), LIMIT)?;
    std::fs::write(&on_last, vec![1; 300_000])?;
    let at = ok_within(tool("lfs").args(["getstripe", "-i"]).arg(&on_last), LIMIT)?;
    ensure!(at.trim() == "1000", "{at}");

    site.mkfs(&["--ost", "--fsname=life", "--index=1000", &Site::mgs()], "twin")?;
    let o = run_within(
        site.hosts.on(CLIENT, "nacred").args(["--nid", &Hosts::nid(CLIENT)]).arg(site.dir("twin")),
        LIMIT,
    )?;
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    ensure!(!o.status.success() && said.contains("another target as life-OST03e8"), "{said}");
    ensure!(said.contains("--replace"), "what to do instead: {said}");
    site.works("after")?;
    site.over()?;
    site.clean()
}

/// Whoever is mounted goes on without the MGS, and what it was told for good stays over remounts and starts.
#[test]
fn clients_go_on_without_the_mgs_and_permanent_parameters_outlive_everything() -> Result<()> {
    let mut site = Site::up("mgsgone", [0, 1])?;
    let name = "osc.life-OST*.max_dirty_mb";
    let set =
        |value: &str| ok_within(tool("lctl").args(["set_param", "-P", &format!("{name}={value}")]), LIMIT);
    set("7")?;
    site.shows(name, |v| v == "7")?;
    site.umount()?;
    site.mounted()?;
    site.shows(name, |v| v == "7")?;
    site.hosts.end(MGS, Signal::KILL)?;
    for n in 0..20 {
        std::fs::write(site.mnt.join(format!("without{n}")), vec![n; 200_000])?;
    }
    site.works("without")?;
    site.start("mgt")?;
    wait_until("the MGS takes orders again", LIMIT, || {
        run_within(tool("lctl").args(["set_param", "-P", &format!("{name}=9")]), LIMIT)
            .is_ok_and(|o| o.status.success())
    })?;
    site.shows(name, |v| v == "9")?;
    site.works("with")?;
    site.over()?;
    site.start_all()?;
    site.mounted()?;
    site.shows(name, |v| v == "9")?;
    ok_within(tool("lctl").args(["set_param", "-P", "-d", name]), LIMIT)?;
    site.umount()?;
    site.mounted()?;
    site.shows(name, |v| v != "9" && v != "7")?;
    site.over()?;
    site.clean()
}
