//! Command lines of published installations, as operators have them in their notes: networks, targets and
//! administration. Hosts are network namespaces, which see the same files; what is mounted is in a mount
//! namespace of the test.

use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tests::cluster::{Running, Scratch, bin_dir, kill, run_within, wait_until};
use tests::hosts::Hosts;

const LIMIT: Duration = Duration::from_secs(90);
/// Hosts of the test by number.
const MDS01: u32 = 1;
const MDS02: u32 = 2;
const OSS01: u32 = 3;
const OSS02: u32 = 4;
const MDS05: u32 = 5;
const CLIENT: u32 = 6;
const HOSTS: u32 = 6;

/// A site: its hosts, what they are called, and where they mount.
struct Site {
    hosts: Hosts,
    /// Holds the mount namespace.
    mounts: Running,
    scratch: Scratch,
}

impl Site {
    fn new(name: &str) -> Result<Site> {
        let scratch = Scratch::new(name);
        let s = scratch.path().display().to_string();
        let hosts = Hosts::new(HOSTS, &[])?;
        // As its paper has them.
        hosts.sh(MDS05, "ip addr add 10.0.0.5/24 dev eth0")?;
        hosts.sh(CLIENT, "ip addr add 10.0.0.9/24 dev eth0")?;
        let mut names = "127.0.0.1 localhost\n10.0.0.5 mds05\n10.0.0.6 mds06\n".to_string();
        for (host, name) in [(MDS01, "mds01"), (MDS02, "mds02"), (OSS01, "oss01"), (OSS02, "oss02")] {
            names += &format!("{} {name}\n", Hosts::address(host));
        }
        std::fs::write(scratch.path().join("hosts"), names)?;
        std::fs::write(scratch.path().join("fstab"), "")?;
        // Helpers of mount(8) and names of hosts, for this test only.
        let script = format!(
            "mkdir {s}/sbin {s}/run {s}/lustre
             for l in mount.nacre mount.fuse.nacre; do ln -s {bin}/nacre {s}/sbin/$l; done
             mount -t overlay overlay -o lowerdir={s}/sbin:/usr/sbin /usr/sbin
             mount --bind {s}/hosts /etc/hosts
             touch {s}/ready; exec sleep 3600",
            bin = bin_dir().display()
        );
        let mut holder = Command::new("unshare");
        holder.args(["-m", "--propagation", "private", "bash", "-euc", &script]).stdin(Stdio::null());
        let mounts = Running(holder.spawn().context("a mount namespace")?);
        let site = Site { hosts, mounts, scratch };
        wait_until("the namespace is there", LIMIT, || site.scratch.path().join("ready").exists())?;
        Ok(site)
    }

    /// A line on a host; `$S` is the test's folder.
    fn run(&self, host: u32, line: &str) -> Result<Output> {
        let mut c = Command::new("nsenter");
        c.arg(format!("--mount=/proc/{}/ns/mnt", self.mounts.0.id()));
        c.arg(format!("--net={}", self.hosts.network(host))).args(["bash", "-c", line]);
        let path = std::env::var("PATH").unwrap_or_default();
        c.env("PATH", format!("{}:{path}", bin_dir().display()));
        c.env("S", self.scratch.path()).env("NACRE_RUN_DIR", self.scratch.path().join("run"));
        run_within(&mut c, LIMIT)
    }

    /// One that works; what it printed.
    fn works(&self, host: u32, line: &str) -> Result<String> {
        let o = self.run(host, line)?;
        let text = format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
        ensure!(o.status.success(), "host {host}: {line}: {}\n{text}\n{}", o.status, self.logs());
        Ok(text)
    }

    /// One that works and says this.
    fn says(&self, host: u32, line: &str, parts: &[&str]) -> Result<()> {
        let text = self.works(host, line)?;
        for p in parts {
            ensure!(text.contains(p), "{line} does not say '{p}':\n{text}");
        }
        Ok(())
    }

    /// One that is refused in these words.
    fn refused(&self, host: u32, line: &str, parts: &[&str]) -> Result<()> {
        let o = self.run(host, line)?;
        let text = format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
        ensure!(!o.status.success(), "{line} was not refused:\n{text}");
        for p in parts {
            ensure!(text.contains(p), "{line} does not say '{p}':\n{text}");
        }
        Ok(())
    }

    /// Until what a line prints contains this.
    fn until(&self, host: u32, line: &str, part: &str) -> Result<()> {
        let mut last = String::new();
        let said = wait_until("it is so", LIMIT, || {
            self.run(host, line).is_ok_and(|o| {
                last = String::from_utf8_lossy(&o.stdout).into_owned();
                last.contains(part)
            })
        });
        said.with_context(|| format!("{line} does not say '{part}':\n{last}\n{}", self.logs()))
    }

    fn logs(&self) -> String {
        let all = std::fs::read_dir(self.scratch.path()).into_iter().flatten().flatten();
        let logs = all.filter(|e| e.file_name().to_string_lossy().starts_with("log"));
        let text = |p: PathBuf| {
            let whole = std::fs::read_to_string(&p).unwrap_or_default();
            let tail: Vec<&str> = whole.lines().rev().take(25).collect();
            format!("{}:\n{}\n", p.display(), tail.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        logs.map(|e| text(e.path())).collect()
    }

    /// Processes of the daemons, by their sockets.
    fn daemons(&self) -> Vec<i32> {
        let all = std::fs::read_dir(self.scratch.path().join("run")).into_iter().flatten().flatten();
        let pid = |name: String| name.strip_suffix(".sock")?.rsplit('-').next()?.parse().ok();
        all.filter_map(|e| pid(e.file_name().into_string().ok()?)).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ =
            self.run(CLIENT, "umount -fl $(awk -v s=$S '$2 ~ \"^\" s \"/lustre\" {print $2}' /proc/mounts)");
        for pid in self.daemons() {
            let _ = kill(pid, rustix::process::Signal::KILL);
        }
    }
}

/// `mount -t nacre FOLDER MOUNT_POINT`, with the log where the test finds it.
fn mount_target(folder: &str) -> String {
    format!(
        "mkdir -p $S/lustre/{folder} && mount -t nacre -o log=$S/log-{folder} $S/{folder} $S/lustre/{folder}"
    )
}

fn format_testfs(site: &Site) -> Result<()> {
    site.says(
        MDS01,
        "mkfs.nacre --mgs --fsname=testfs --failnode=mds02@tcp $S/mgs",
        &["note: --fsname=testfs"],
    )?;
    let mdt = "--reformat --mdt --fsname=testfs";
    let mgs = "--mgsnode=mds01@tcp --mgsnode=mds02@tcp";
    let ext4 = "--mkfsoptions='-O flex_bg -G 256 -E stride=16,stripe-width=64'";
    site.works(MDS01, "mknod $S/dev b 7 250")?;
    site.refused(
        MDS01,
        &format!("mkfs.nacre {mdt} {ext4} --failnode=mds02@tcp {mgs} $S/dev"),
        &["/dev", "mkfs.ext4 -O flex_bg -G 256", "folder"],
    )?;
    site.refused(MDS01, &format!("mkfs.nacre {mdt} {ext4} {mgs} $S/mdt"), &["--mkfsoptions", "mkfs(8)"])?;
    site.says(
        MDS01,
        &format!("mkfs.nacre {mdt} --failnode=mds02@tcp {mgs} $S/mdt"),
        &["testfs:MDT0000", "Index:      0", "mgsnode=mds01@tcp:mds02@tcp", "failnode=mds02@tcp"],
    )?;
    for (host, name) in [(OSS01, "ost00"), (OSS02, "ost01")] {
        let line = format!("mkfs.nacre --ost --fsname=testfs --failnode=oss02@tcp {mgs} $S/{name}");
        site.says(host, &line, &["Index:      unassigned", "next free one"])?;
    }
    site.refused(
        OSS01,
        "mkfs.nacre --ost --fsname=testfs --mgsnode=mds01_ib@o2ib $S/none",
        &["mds01_ib@o2ib", "'o2ib'", "TCP only"],
    )
}

/// By mount(8) and by fstab; the OST that starts first is the first one.
fn start_testfs(site: &Site) -> Result<()> {
    site.works(MDS01, &mount_target("mgs"))?;
    let fstab = "\
$S/mdt $S/lustre/mdt nacre rw,noauto,acl,errors=remount-ro,user_xattr,log=$S/log-mdt 0 0
$S/ost00 $S/lustre/ost00 nacre defaults,log=$S/log-ost00 0 0
mds01@tcp0:mds02@tcp0:/testfs $S/lustre/client nacre flock,user_xattr,_netdev 0 0
";
    let fstab = fstab.replace("$S", &site.scratch.path().display().to_string());
    std::fs::write(site.scratch.path().join("fstab"), fstab)?;
    site.works(MDS01, "mkdir -p $S/lustre/mdt $S/lustre/ost00 $S/lustre/client")?;
    // A second target of a host, by the server that has its address.
    site.works(MDS01, "mount -T $S/fstab $S/lustre/mdt")?;
    site.works(OSS01, "mount -T $S/fstab $S/lustre/ost00")?;
    // Its first registration may be under way still.
    site.until(OSS01, "tunefs.nacre --dryrun $S/ost00", "testfs-OST0000")?;
    site.says(OSS01, "tunefs.nacre --dryrun $S/ost00", &["Index:      0"])?;
    site.works(OSS02, &mount_target("ost01"))?;
    site.until(OSS02, "tunefs.nacre --dryrun $S/ost01", "testfs-OST0001")?;
    site.refused(OSS02, &mount_target("ost01"), &["already"])?;
    site.works(CLIENT, "mount -T $S/fstab $S/lustre/client")?;
    site.until(CLIENT, "lfs osts $S/lustre/client", "1: testfs-OST0001_UUID ACTIVE")?;
    site.works(CLIENT, "echo all > $S/lustre/client/file")?;
    Ok(())
}

fn mount_clients(site: &Site) -> Result<()> {
    site.works(CLIENT, "mkdir -p $S/lustre/c2 $S/lustre/client/a/b && echo below > $S/lustre/client/a/b/f")?;
    for source in [
        "mds01@tcp;mds02@tcp:/testfs",
        "mds01@tcp:mds02@tcp:/testfs",
        // The first one is not there: it is passed over.
        "mds02@tcp:mds01@tcp:/testfs",
        "mds02,nowhere:mds01:/testfs",
        "10.77.0.2:10.77.0.1@tcp0:/testfs",
    ] {
        let begun = std::time::Instant::now();
        site.works(CLIENT, &format!("mount -t nacre '{source}' $S/lustre/c2"))?;
        let took = begun.elapsed();
        ensure!(took < Duration::from_secs(6), "{source} took {took:?}");
        site.says(CLIENT, "cat $S/lustre/c2/file && umount $S/lustre/c2", &["all"])?;
    }
    let with = |o: &str, then: &str| {
        format!(
            "mount -t nacre -o {o} mds01:/testfs/a/b $S/lustre/c2 && ({then}); rc=$?; umount $S/lustre/c2; exit $rc"
        )
    };
    site.says(
        CLIENT,
        &with("ro,relatime,lazystatfs,retry=3,_netdev,noauto,defaults", "cat $S/lustre/c2/f"),
        &["below"],
    )?;
    let flock =
        "python3 -c 'import fcntl,sys; fcntl.flock(open(sys.argv[1],\"a\"), fcntl.LOCK_EX|fcntl.LOCK_NB)'";
    site.says(
        CLIENT,
        &with("noflock", &format!("{flock} $S/lustre/c2/f 2>&1 || true")),
        &["not implemented"],
    )?;
    let both = format!(
        "exec 9>>$S/lustre/client/a/b/f; flock -n 9 || exit 1; if {flock} $S/lustre/c2/f 2>/dev/null; then echo got; else echo kept out; fi"
    );
    site.says(CLIENT, &with("flock", &both), &["kept out"])?;
    site.says(CLIENT, &with("localflock", &both), &["got"])?;
    site.says(
        CLIENT,
        &with("exclude=testfs-OST0001", "lctl get_param -n osc.testfs-OST0001*.active"),
        &["0"],
    )?;
    site.says(CLIENT, &with("network=tcp0", "cat $S/lustre/c2/f"), &[])?;
    for (o, part) in [
        ("exclude=testfs-OST0044", "testfs-OST0044"),
        ("noacl", "setfacl"),
        ("abort_recov", "of a target"),
        ("network=tcp7", "no NID of the MGS"),
        ("network=o2ib", "TCP only"),
        ("errors=remount-ro", "of a target"),
    ] {
        site.refused(CLIENT, &format!("mount -t nacre -o {o} mds01:/testfs $S/lustre/c2"), &[part])?;
    }
    for (o, part) in [("errors=panic", "errors=remount-ro"), ("nosvc", "two folders"), ("ro", "clients")] {
        site.refused(OSS01, &format!("mount -t nacre -o {o} $S/ost00 $S/lustre/c2"), &[part])?;
    }
    site.refused(CLIENT, "mount -t nacre mds01_ib@o2ib:/testfs $S/lustre/c2", &["'o2ib'", "TCP only"])?;
    site.refused(
        CLIENT,
        "mount -t nacre nowhere@tcp:/testfs $S/lustre/c2",
        &["nowhere", "no host of this name"],
    )?;
    for nid in ["mds01@tcp0", "mds01", "10.77.0.1", "10.77.0.1@tcp"] {
        site.says(CLIENT, &format!("lctl ping {nid}"), &["12345-10.77.0.1@tcp"])?;
    }
    site.says(CLIENT, "lctl which_nid mds02 mds01", &["10.77.0.1@tcp"])
}

/// What administrators type, on the running file system.
fn administration(site: &Site) -> Result<()> {
    site.says(CLIENT, "lctl get_param osc.*.max_dirty_mb", &["max_dirty_mb="])?;
    site.says(CLIENT, "lctl set_param osc.*.max_dirty_mb=256", &["max_dirty_mb=256"])?;
    site.says(CLIENT, "lctl set_param osc.*.max_rpcs_in_flight=32", &["max_rpcs_in_flight=32"])?;
    // With a blank, as it was printed.
    site.refused(CLIENT, "lctl set_param osc.*. max_dirty_mb=256", &["no blank belongs"])?;
    site.refused(CLIENT, "lctl get_param osc.*. max_dirty_mb", &["no blank belongs"])?;
    site.works(
        CLIENT,
        "lctl set_param osc.testfs-OST*.max_pages_per_rpc=4096 llite.testfs*.max_read_ahead_mb=1024 \
         osc.testfs-OST*.max_rpcs_in_flight=16 obdfilter.testfs-OST*.brw_size=16",
    )?;
    site.until(CLIENT, "lctl get_param -n osc.testfs-OST0000*.max_pages_per_rpc", "4096")?;
    // The grid of a client-tuning study.
    site.works(
        CLIENT,
        "for r in 32 64 128 256; do for d in 128 256 512 1024; do for c in on off; do \
         lctl set_param -n osc.*.max_rpcs_in_flight=$r osc.*.max_dirty_mb=$d osc.*.checksums=$c || exit 1; \
         dd if=/dev/zero of=$S/lustre/client/grid bs=1M count=8 conv=fsync status=none || exit 1; \
         done; done; done; lctl set_param osc.*.checksums=1; rm $S/lustre/client/grid",
    )?;
    site.says(CLIENT, "lctl get_param -n osc.testfs-OST0000*.max_rpcs_in_flight", &["256"])?;
    site.works(
        CLIENT,
        "lctl set_param ldlm.namespaces.*.lru_size=0 && lctl set_param ldlm.namespaces.*.lru_size=10000",
    )?;
    let caches = "obdfilter.*.writethrough_cache_enable=1 obdfilter.*.read_cache_enable=1";
    site.works(OSS01, &format!("lctl set_param {caches} obdfilter.*.readcache_max_filesize=1M"))?;
    site.says(OSS01, "lctl get_param obdfilter.testfs-OST0000.readcache_max_filesize", &["=1048576"])?;
    site.says(OSS01, "lctl get_param osd-*.testfs-OST0000.readcache_max_filesize", &["=1048576"])?;
    // Larger than that, and smaller: the same bytes.
    site.works(
        CLIENT,
        "cd $S/lustre/client; for n in 1 9; do head -c ${n}M /dev/urandom > $S/raw; cp $S/raw cached; \
         lctl set_param -n ldlm.namespaces.*.lru_size=clear; cmp $S/raw cached || exit 1; done; rm cached $S/raw",
    )?;
    site.works(
        CLIENT,
        "mkdir -p $S/lustre/client/home/user && lfs setstripe -c 0 $S/lustre/client/home/user",
    )?;
    site.says(MDS01, "lctl pool_new testfs.POOL", &["created"])?;
    site.says(MDS01, "lctl pool_add testfs.POOL OST[0-1/1]", &["testfs-OST0001_UUID added"])?;
    site.says(MDS01, "lctl pool_list testfs", &["testfs.POOL"])?;
    site.until(MDS01, "lctl pool_list testfs.POOL", "testfs-OST0000_UUID")?;
    site.until(CLIENT, "lfs df -h -p testfs.POOL $S/lustre/client", "testfs-OST0001_UUID")?;
    site.works(CLIENT, "lfs df && lfs df -i")?;
    site.works(MDS01, "lctl pool_remove testfs.POOL OST[0-1/1] && lctl pool_destroy testfs.POOL")?;
    // An OST by its number in the list of devices, and by its name.
    let number = "$(lctl dl | awk '$4 ~ /OST0000-osc-MDT/ {print $1}')";
    site.works(MDS01, &format!("lctl --device {number} deactivate"))?;
    site.until(MDS01, "lctl dl", "IN osp testfs-OST0000-osc-MDT0000")?;
    site.works(MDS01, &format!("lctl --device {number} activate"))?;
    site.works(MDS01, "lctl --device testfs-OST0000-osc-MDT0000 deactivate")?;
    site.works(MDS01, "lctl --device testfs-OST0000-osc-MDT0000 activate")?;
    site.until(MDS01, "lctl dl", "UP osp testfs-OST0000-osc-MDT0000")?;
    site.works(
        CLIENT,
        "mkdir $S/lustre/client/old; for n in 1 2 3; do lfs setstripe -o 0 $S/lustre/client/old/$n; \
         cp /bin/bash $S/lustre/client/old/$n; done",
    )?;
    site.says(
        CLIENT,
        "lfs find --obd testfs-OST0000_UUID $S/lustre/client/old > $S/file.list; wc -l < $S/file.list",
        &["3"],
    )?;
    site.says(CLIENT, "lfs_migrate -y -o 1 < $S/file.list", &["old/3: done"])?;
    let left = site.works(CLIENT, "lfs find --obd testfs-OST0000_UUID $S/lustre/client/old")?;
    ensure!(left.trim().is_empty(), "{left}");
    site.works(
        CLIENT,
        "cd $S/lustre/client/old; cp 1 1.tmp; rm 1; mv 1.tmp 1; for n in 1 2 3; do cmp /bin/bash $n || exit 1; done",
    )?;
    site.works(CLIENT, "rsync -aHAX --delete /usr/include/linux/ $S/lustre/client/new/ && diff -r /usr/include/linux $S/lustre/client/new")?;
    site.refused(MDS01, "nacre fsck -n $S/mdt", &["in use"])?;
    for old in ["--mdsdb $S/mdsdb", "--mdsdb $S/mdsdb --ostdb $S/ostdb"] {
        site.refused(MDS01, &format!("nacre fsck -n -v {old} $S/mdt"), &["--mdsdb", "nacre fsck --online"])?;
    }
    Ok(())
}

/// The drill that nothing here needs: what an administrator set is there afterwards.
fn write_conf(site: &Site) -> Result<()> {
    site.works(MDS01, "lctl pool_new testfs.flash && lctl pool_add testfs.flash OST[0-1]")?;
    site.works(MDS01, "lctl set_param -P osc.testfs-OST*.max_rpcs_in_flight=17")?;
    site.works(CLIENT, "umount $S/lustre/client")?;
    for (host, folder) in [(MDS01, "mdt"), (OSS01, "ost00"), (OSS02, "ost01"), (MDS01, "mgs")] {
        site.works(host, &format!("umount $S/lustre/{folder}"))?;
    }
    // Right behind the umount: what is on its way out is waited for.
    for (host, folder) in [(MDS01, "mdt"), (OSS01, "ost00"), (OSS02, "ost01")] {
        site.says(host, &format!("tunefs.nacre --writeconf $S/{folder}"), &["Writing CONFIGS/mountdata"])?;
    }
    for (host, folder) in [(MDS01, "mgs"), (OSS01, "ost00"), (OSS02, "ost01"), (MDS01, "mdt")] {
        site.works(host, &mount_target(folder))?;
    }
    site.works(CLIENT, "mount -T $S/fstab $S/lustre/client")?;
    site.until(CLIENT, "lfs osts $S/lustre/client", "1: testfs-OST0001_UUID ACTIVE")?;
    site.says(CLIENT, "cat $S/lustre/client/file", &["all"])?;
    site.until(MDS01, "lctl pool_list testfs.flash", "testfs-OST0001_UUID")?;
    site.until(CLIENT, "lctl get_param -n osc.testfs-OST0000*.max_rpcs_in_flight", "17")
}

/// The other file system of the same MGS.
fn second_file_system(site: &Site) -> Result<()> {
    site.works(MDS02, "mkfs.nacre --mdt --fsname=second --mgsnode=mds01 $S/mdt2")?;
    site.works(MDS02, "mkfs.nacre --ost --fsname=second --mgsnode=mds01 $S/ost2")?;
    site.works(MDS02, &mount_target("mdt2"))?;
    site.works(MDS02, &mount_target("ost2"))?;
    site.works(CLIENT, "mkdir -p $S/lustre/second && mount -t nacre mds01:/second $S/lustre/second")?;
    site.until(CLIENT, "lfs osts $S/lustre/second", "0: second-OST0000_UUID ACTIVE")?;
    site.works(
        CLIENT,
        "echo second > $S/lustre/second/file; cat $S/lustre/second/file $S/lustre/client/file",
    )?;
    let osts = site.works(CLIENT, "lfs osts $S/lustre/second")?;
    ensure!(!osts.contains("testfs"), "{osts}");
    // Names, pools, parameters, limits of one are none of the other.
    let pools = site.works(MDS01, "lctl pool_list second")?;
    ensure!(!pools.contains("flash"), "{pools}");
    site.works(MDS01, "lctl pool_new second.flash && lctl pool_add second.flash OST0000")?;
    let pool = site.works(MDS01, "lctl pool_list second.flash")?;
    ensure!(pool.contains("second-OST0000_UUID") && !pool.contains("testfs"), "{pool}");
    site.says(MDS01, "lctl pool_list testfs.flash", &["testfs-OST0000_UUID", "testfs-OST0001_UUID"])?;
    site.works(MDS01, "lctl set_param -P osc.second-OST*.max_rpcs_in_flight=19")?;
    site.until(CLIENT, "lctl get_param -n osc.second-OST0000*.max_rpcs_in_flight", "19")?;
    let of_first = "lctl get_param -n osc.testfs-OST0000*.max_rpcs_in_flight";
    ensure!(site.works(CLIENT, of_first)?.trim() == "17", "one's parameter is the other's");
    site.works(CLIENT, "lfs setquota -u 4321 -B 100M $S/lustre/second")?;
    site.until(CLIENT, "lfs quota -q -u 4321 $S/lustre/second", "102400")?;
    let quota = site.works(CLIENT, "lfs quota -q -u 4321 $S/lustre/client")?;
    ensure!(!quota.contains("102400"), "one's limit is the other's: {quota}");
    // Another target of the other file system at the same address: a server of its own is asked for.
    site.works(MDS02, "mkfs.nacre --ost --fsname=testfs --mgsnode=mds01 $S/ost3")?;
    site.refused(MDS02, &mount_target("ost3"), &["belongs to file system 'testfs'", "nid="])?;
    site.works(CLIENT, "umount $S/lustre/second")?;
    site.works(MDS02, "umount $S/lustre/ost2 $S/lustre/mdt2")?;
    Ok(())
}

#[test]
fn site_commands() -> Result<()> {
    let site = Site::new("site")?;
    format_testfs(&site)?;
    start_testfs(&site)?;
    mount_clients(&site)?;
    administration(&site)?;
    write_conf(&site)?;
    second_file_system(&site)?;
    // umount ends a target: the last one of a host its server, too.
    site.works(CLIENT, "umount $S/lustre/client")?;
    for (host, folder) in [(OSS01, "ost00"), (OSS02, "ost01"), (MDS01, "mdt"), (MDS01, "mgs")] {
        site.works(host, &format!("umount $S/lustre/{folder}"))?;
    }
    wait_until("all servers end", LIMIT, || site.daemons().is_empty())?;
    site.says(MDS01, "nacre fsck -fn $S/mdt $S/ost00 $S/ost01", &["clean"])?;
    site.works(MDS01, "nacre fsck -p $S/mdt $S/ost00 $S/ost01").map(drop)
}

/// With one dash before long options, service nodes without a network, and a second host that is not there.
#[test]
fn site_commands_of_a_paper() -> Result<()> {
    let site = Site::new("paper")?;
    site.says(
        MDS05,
        "mkfs.nacre -fsname=lustre_1 --mgs --mdt --servicenode=10.0.0.5 --servicenode=10.0.0.6 --index=0 $S/mdt",
        &["lustre_1:MDT0000", "servicenode=10.0.0.5@tcp:10.0.0.6@tcp"],
    )?;
    let ost = "mkfs.nacre -fsname=lustre_1 --mgsnode=mds05@tcp0 --mgsnode=mds06@tcp0 --ost";
    site.says(
        OSS01,
        &format!("{ost} --index=0 $S/ost0"),
        &["lustre_1:OST0000", "mgsnode=mds05@tcp:mds06@tcp"],
    )?;
    // Fourteen on one server, formatted at once, mounted one after the other.
    site.works(OSS01, &format!("for i in $(seq 1 13); do {ost} --quiet $S/ost$i || exit 1; done"))?;
    site.hosts.sh(OSS01, "ip addr add 10.0.0.7/24 dev eth0")?;
    site.works(MDS05, &mount_target("mdt"))?;
    for i in 0..14 {
        site.works(OSS01, &mount_target(&format!("ost{i}")))?;
    }
    site.works(CLIENT, "mkdir -p $S/lustre/lustre_1")?;
    let line = "mds05@tcp0:mds06@tcp0:/lustre_1 $S/lustre/lustre_1 nacre flock,user_xattr,_netdev 0 0\n";
    std::fs::write(
        site.scratch.path().join("fstab"),
        line.replace("$S", &site.scratch.path().display().to_string()),
    )?;
    site.works(CLIENT, "mount -a -T $S/fstab")?;
    site.until(CLIENT, "lfs osts $S/lustre/lustre_1", "13: lustre_1-OST000d_UUID ACTIVE")?;
    site.works(CLIENT, "lfs setstripe -c -1 $S/lustre/lustre_1/wide && cp /bin/bash $S/lustre/lustre_1/wide && cmp /bin/bash $S/lustre/lustre_1/wide")?;
    site.says(CLIENT, "lfs getstripe -c $S/lustre/lustre_1/wide", &["14"])?;
    // The server's process is killed: mounting starts it again.
    for pid in site.daemons() {
        if std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim() == "nacred" {
            kill(pid, rustix::process::Signal::KILL)?;
        }
    }
    site.works(MDS05, &mount_target("mdt"))?;
    site.works(OSS01, &mount_target("ost0"))?;
    site.says(OSS01, "lctl dl", &["lustre_1-OST0000"])?;
    Ok(())
}
