//! What is promised of commands, and of what programs see, in small.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, run_within, stripe_64k, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(30);

fn refused(program: &str, args: &[&str], words: &[&str]) -> Result<()> {
    let o = run_within(tool(program).args(args), LIMIT)?;
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    ensure!(!o.status.success(), "{program} {args:?} is taken");
    ensure!(words.iter().all(|w| said.contains(w)), "{program} {args:?} says: {said}");
    Ok(())
}

/// An open directory that was removed, or that another one took the place of, is still there for fstat(2),
/// without links.
#[test]
fn a_removed_directory_that_is_open_has_no_links() -> Result<()> {
    let t = TestFs::up("gonedir", 1, 1)?;
    let m = t.mount(0);
    for (name, by_rename) in [("removed", false), ("replaced", true)] {
        let (dir, other) = (m.join(name), m.join("other"));
        fs::create_dir(&dir)?;
        let open = File::open(&dir)?;
        let before = open.metadata()?;
        ensure!(before.nlink() == 2, "{name}");
        if by_rename {
            fs::create_dir(&other)?;
            fs::rename(&other, &dir)?;
        } else {
            fs::remove_dir(&dir)?;
        }
        let after = open.metadata().with_context(|| format!("fstat of {name}"))?;
        ensure!(after.nlink() == 0 && after.ino() == before.ino() && after.is_dir(), "{name}: {after:?}");
        // As on a local file system: it can be opened, and has nothing in it.
        let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
        ensure!(fs::read_dir(again)?.next().is_none(), "{name} has entries");
    }
    Ok(())
}

/// What `lfs sync` returned for is there although the client and all servers die at once.
#[test]
fn lfs_sync_makes_everything_durable() -> Result<()> {
    let t = TestFs::up_with("lfssync", 2, 1, vec![("NACRE_VOLATILE_DISK", "1".to_string())])?;
    let m = t.mount(0);
    let dir = m.join("d");
    fs::create_dir(&dir)?;
    for i in 0..20 {
        let f = dir.join(format!("f{i}"));
        if i % 2 == 0 {
            stripe_64k(&f, 2)?;
        }
        fs::write(&f, vec![i; 200_000 * usize::from(i % 2 == 0) + 100])?;
    }
    ok_within(tool("lfs").arg("sync").arg(m), LIMIT)?;
    let all: Vec<i32> = t.processes()?.into_iter().map(|(_, p)| p).filter(|p| *p > 0).collect();
    for pid in all {
        kill(pid, Signal::KILL)?;
    }
    t.up_again()?;
    for i in 0..20 {
        let want = vec![i; 200_000 * usize::from(i % 2 == 0) + 100];
        ensure!(fs::read(dir.join(format!("f{i}")))? == want, "file {i}");
    }
    refused("lfs", &["sync", "/proc"], &["/proc"])
}

#[test]
fn commands_do_what_they_say_or_refuse_by_name() -> Result<()> {
    let t = TestFs::up("promises", 1, 1)?;
    let (m, name) = (t.mount(0), t.fsname());
    // The first of the NIDs that answers.
    let status = t.status()?;
    let nid = status["processes"][0]["nid"].as_str().context("nid")?.to_string();
    let said = ok_within(tool("lctl").args(["which_nid", "127.255.255.1@tcp", &nid]), LIMIT)?;
    ensure!(said.trim() == nid, "{said}");
    refused("lctl", &["which_nid", "127.255.255.1@tcp"], &["127.255.255.1@tcp", "no server answers"])?;
    // Names as conf_param has them.
    let is = |p: &str, value: &str| {
        let said = ok_within(tool("lctl").args(["get_param", "-n", p]), LIMIT).unwrap_or_default();
        said.lines().any(|l| l.trim() == value)
    };
    for (conf, param, value) in [
        (format!("{name}.llite.statfs_max_age"), format!("llite.{name}-*.statfs_max_age"), "7"),
        (format!("{name}-OST0000.ost.brw_size"), format!("obdfilter.{name}-OST0000.brw_size"), "2"),
        (format!("{name}-OST0000.ost.OSS.ost_io.nrs_places"), "ost.OSS.ost_io.nrs_places".into(), "33"),
        (format!("{name}-MDT0000.mds.MDS.mdt.nrs_tbf_rate"), "mds.MDS.mdt.nrs_tbf_rate".into(), "777"),
        ("mds.MDS.mdt.slots_max_client".into(), "mds.MDS.mdt.slots_max_client".into(), "48"),
        ("ost.OSS.ost_io.slots_max_server".into(), "ost.OSS.ost_io.slots_max_server".into(), "44"),
    ] {
        ensure!(!is(&param, value), "{param} is {value} already");
        ok_within(tool("lctl").args(["conf_param", &format!("{conf}={value}")]), LIMIT)?;
        wait_until(&format!("{conf} has an effect"), LIMIT, || is(&param, value))?;
    }
    refused("lctl", &["conf_param", &format!("{name}.sys.timeout=3")], &[&format!("{name}.sys.timeout")])?;
    // Nor is a name stored that nobody has, or a value that nobody takes.
    for (command, words) in [
        (vec!["conf_param", "{name}.llite.statfs_max_ages=7"], "is it llite.{name}-*.statfs_max_age?"),
        (vec!["set_param", "-P", "osc.*.max_dirty=7"], "is it osc.*.max_dirty_mb?"),
        (vec!["set_param", "-P", "mdt.{name}-MDT0000.qos_maxage=7"], "is it lod."),
        (vec!["set_param", "-P", "osc.*.max_dirty_mb=0"], "osc.*.max_dirty_mb: it takes 1 to 65536 MiB"),
        (vec!["set_param", "-P", "osd-nacre.*.disk_fault=none"], "until the next start only"),
    ] {
        let args: Vec<String> = command.iter().map(|w| w.replace("{name}", name)).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        refused("lctl", &args, &[&words.replace("{name}", name)])?;
    }
    let kept = ok_within(tool("lctl").args(["get_param", "-n", "mgs.MGS.params"]), LIMIT)?;
    ensure!(!kept.contains("max_dirty") && kept.lines().count() == 6, "{kept}");
    // Options of mkfs that would change nothing.
    let dir = t.scratch().join("ost");
    let dir = dir.to_str().context("a plain path")?;
    for option in ["comment", "mkfsoptions", "mountfsoptions", "device-size", "stripe-count-hint", "network"]
    {
        let given = format!("--{option}=5");
        let args = ["--ost", "--fsname=x", "--index=0", "--mgsnode=10.0.0.1@tcp", &given, dir];
        refused("mkfs.nacre", &args, &[&format!("--{option} has no meaning here")])?;
    }
    // Where the files of a directory begin.
    for (field, value) in [("-L", "mdt"), ("-c", "1")] {
        let said = ok_within(tool("lfs").args(["getstripe", "-d", field]).arg(m), LIMIT)?;
        ensure!(said.trim() == value, "getstripe -d {field}: {said}");
    }
    let said = ok_within(tool("lfs").args(["getstripe", "-d"]).arg(m), LIMIT)?;
    ensure!(said.contains("pattern:       mdt"), "{said}");
    stripe_64k(m, 1)?;
    let said = ok_within(tool("lfs").args(["getstripe", "-d", "-L"]).arg(m), LIMIT)?;
    ensure!(said.trim() == "raid0", "{said}");
    // A password in a command line.
    let url = "etcd://me:secret@10.0.0.1/x";
    refused("nacre", &["ha", "status", "--etcd", url], &["NACRE_ETCD_PASSWORD_FILE"])
}

/// Four OSTs on one disk have its space once, for df(1) and for the summary of `lfs df`.
#[test]
fn a_disk_that_osts_share_counts_once() -> Result<()> {
    let t = TestFs::up("onedisk", 4, 1)?;
    let m = t.mount(0);
    let total = |dir: &std::path::Path| -> Result<u64> {
        let s = rustix::fs::statvfs(dir)?;
        Ok(s.f_blocks * s.f_frsize)
    };
    let (disk, shown) = (total(t.scratch())?, total(m)?);
    ensure!(shown.abs_diff(disk) < disk / 100, "{shown} bytes on a disk of {disk}");
    let text = ok_within(tool("lfs").arg("df").arg(m), LIMIT)?;
    let summary = text.lines().find(|l| l.starts_with("filesystem_summary:")).context("no summary")?;
    let kib: u64 = summary.split_whitespace().nth(1).context("no total")?.parse()?;
    ensure!((kib << 10).abs_diff(disk) < disk / 100, "{summary}");
    Ok(())
}
