//! Two mounts, one truth; and one mount with mappings.

use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;
use tests::cluster::{TestFs, ok_within, stripe_64k};
use tests::exerciser::{Exerciser, appenders};

/// `stripes` 0: nothing is said, so that the data lies with the inode at first.
fn striped(fs: &TestFs, name: &str, stripes: u32) -> Result<Vec<PathBuf>> {
    let path = fs.mount(0).join(name);
    if stripes == 0 {
        File::create_new(&path)?;
    } else {
        stripe_64k(&path, stripes)?;
    }
    Ok(fs.mounts().iter().map(|m| m.join(name)).collect())
}

/// Other seeds for each round of a campaign.
fn seed() -> u64 {
    tests::env_number("NACRE_SEED").unwrap_or(0)
}

#[test]
fn two_mounts_read_what_the_other_wrote() -> Result<()> {
    let fs = TestFs::up("two", 3, 2)?;
    for stripes in 0..=3 {
        let paths = striped(&fs, &format!("f{stripes}"), stripes)?;
        let seed = seed() + u64::from(stripes);
        Exerciser::new(paths, seed, false)?
            .run(700)
            .with_context(|| format!("{stripes} stripes, seed {seed}"))?;
    }
    fs.fsck()
}

/// As above, also through mappings that are stored into.
#[test]
fn two_mounts_with_shared_mappings() -> Result<()> {
    let fs = TestFs::up("mmap2", 3, 2)?;
    for stripes in [0, 1, 3] {
        let paths = striped(&fs, &format!("f{stripes}"), stripes)?;
        let seed = seed() + 177 + u64::from(stripes);
        Exerciser::new(paths, seed, true)?
            .run(300)
            .with_context(|| format!("{stripes} stripes, seed {seed}"))?;
    }
    Ok(())
}

/// Many files that begin with their inode and outgrow it, now by one mount's doing, now by the other's.
#[test]
fn small_files_grow_under_two_mounts() -> Result<()> {
    let fs = TestFs::up("grow", 3, 2)?;
    // 1000: a hole of a contended object, before bytes that the other mount kept, was read as the end of the
    // file.
    for (n, seed) in (seed()..seed() + 20).chain([1000]).enumerate() {
        let paths = striped(&fs, &format!("f{n}"), 0)?;
        Exerciser::new(paths, seed, false)?.small().run(60).with_context(|| format!("seed {seed}"))?;
    }
    let paths = striped(&fs, "log", 0)?;
    appenders(&paths, 4, 400)?;
    fs.fsck()
}

#[test]
fn one_mount_with_shared_mappings() -> Result<()> {
    let fs = TestFs::up("mmap", 3, 1)?;
    for stripes in [0, 1, 3] {
        let paths = striped(&fs, &format!("f{stripes}"), stripes)?;
        Exerciser::new(paths, seed() + 77 + u64::from(stripes), true)?.run(700)?;
    }
    Ok(())
}

#[test]
fn appends_from_two_mounts_lose_no_record() -> Result<()> {
    let fs = TestFs::up("append", 3, 2)?;
    for stripes in [1, 3] {
        let paths = striped(&fs, &format!("log{stripes}"), stripes)?;
        appenders(&paths, 4, 400).with_context(|| format!("{stripes} stripes"))?;
    }
    Ok(())
}

#[test]
fn names_made_on_one_mount_are_there_on_the_other() -> Result<()> {
    let fs = TestFs::up("names", 2, 2)?;
    let (a, b) = (fs.mount(0), fs.mount(1));
    for i in 0..100 {
        let name = format!("n{i}");
        ensure!(!b.join(&name).exists(), "{name} before it was made");
        File::create_new(a.join(&name))?;
        ensure!(b.join(&name).exists(), "{name} on the other mount");
        fs::rename(b.join(&name), b.join(format!("m{i}")))?;
        ensure!(!a.join(&name).exists() && a.join(format!("m{i}")).exists(), "{name} after its rename");
        ensure!(File::create_new(a.join(format!("m{i}"))).is_err(), "EEXIST on the first mount");
        fs::remove_file(a.join(format!("m{i}")))?;
        ensure!(fs::read_dir(b)?.count() == 0, "an empty directory");
    }
    Ok(())
}

/// flock and POSIX ranges exclude each other across mounts and end with their holder.
#[test]
fn locks_hold_across_mounts() -> Result<()> {
    let fs = TestFs::up("locks", 2, 2)?;
    let path = fs.mount(0).join("l");
    fs::write(&path, b"x")?;
    let script = r#"
import fcntl, os, sys, time, subprocess
a, b = sys.argv[1], sys.argv[2]
fa, fb = os.open(a, os.O_RDWR), os.open(b, os.O_RDWR)
def refused(f):
    try: f()
    except OSError as e:
        assert e.errno in (11, 13), e
        return True
    return False
fcntl.flock(fa, fcntl.LOCK_EX)
assert refused(lambda: fcntl.flock(fb, fcntl.LOCK_SH | fcntl.LOCK_NB))
fcntl.flock(fa, fcntl.LOCK_SH)
fcntl.flock(fb, fcntl.LOCK_SH | fcntl.LOCK_NB)
assert refused(lambda: fcntl.flock(fa, fcntl.LOCK_EX | fcntl.LOCK_NB))
fcntl.flock(fa, fcntl.LOCK_UN); fcntl.flock(fb, fcntl.LOCK_UN)
# POSIX ranges: another process holds 10..19
child = subprocess.Popen([sys.executable, '-c', '''
import fcntl, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(f, fcntl.LOCK_EX, 10, 10)
print("held", flush=True)
sys.stdin.readline()
''', b], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert child.stdout.readline() == "held\n"
assert refused(lambda: fcntl.lockf(fa, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 15))
fcntl.lockf(fa, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
# a blocked waiter gets it when the holder dies
t = time.time()
child.kill(); child.wait()
fcntl.lockf(fa, fcntl.LOCK_EX, 10, 10)
assert time.time() - t < 20, "waited too long"
# two processes on two mounts, each wants what the other has: one of them is told, the other gets it
fcntl.lockf(fa, fcntl.LOCK_UN)
child = subprocess.Popen([sys.executable, '-c', '''
import fcntl, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(f, fcntl.LOCK_EX, 10, 10)
print("held", flush=True)
try:
    fcntl.lockf(f, fcntl.LOCK_EX, 10, 20)
    print("got", flush=True)
except OSError as e:
    print("errno", e.errno, flush=True)
os.close(f)
''', b], stdout=subprocess.PIPE, text=True)
fcntl.lockf(fa, fcntl.LOCK_EX, 10, 20)
assert child.stdout.readline() == "held\n"
try:
    fcntl.lockf(fa, fcntl.LOCK_EX, 10, 10)
    mine = "got"
except OSError as e:
    mine = "errno %d" % e.errno
    fcntl.lockf(fa, fcntl.LOCK_UN)
theirs = child.stdout.readline().strip()
assert sorted([mine, theirs]) == ["errno 35", "got"], (mine, theirs)
child.wait()
print("fine")
"#;
    let out = ok_within(
        std::process::Command::new("python3").arg("-c").arg(script).arg(&path).arg(fs.mount(1).join("l")),
        Duration::from_secs(60),
    )?;
    ensure!(out.trim() == "fine", "{out}");
    Ok(())
}

/// `LL_IOC_GROUP_LOCK` and its unlock, by a program that knows nothing of Nacre: what one member of a group
/// writes while both hold it is there after the unlocks, and somebody else waits for both.
#[test]
fn a_group_lock_is_shared_by_its_members_alone() -> Result<()> {
    const LOCK: u32 = 0x4008_669e;
    let fs = TestFs::up("group", 2, 2)?;
    let paths = striped(&fs, "f", 2)?;
    // Locks for a group, says so, waits for a line, writes in turn, unlocks.
    let member = |path: &PathBuf, first: u32| {
        let script = format!(
            "open F, '+<', $ARGV[0] or die; my $g = pack('q', 5); ioctl(F, {LOCK}, $g) or die \"lock: $!\"; $| = 1; print \"locked\\n\"; \
             <STDIN>; for (my $i = {first}; $i < 200; $i += 2) {{ sysseek F, $i * 1000, 0; syswrite F, chr(65 + $i % 26) x 1000; }} \
             ioctl(F, {}, $g) or die \"unlock: $!\"; print \"done\\n\";",
            LOCK + 1
        );
        let mut c = std::process::Command::new("perl");
        c.args(["-e", &script])
            .arg(path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped());
        c.spawn().context("perl, which every Debian has")
    };
    let mut members = vec![member(&paths[0], 0)?, member(&paths[1], 1)?];
    let mut lines = Vec::new();
    for m in &mut members {
        let mut out = std::io::BufReader::new(m.stdout.take().context("it is piped")?);
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line)?;
        ensure!(line == "locked\n", "{line:?}");
        lines.push(out);
    }
    for m in &mut members {
        std::io::Write::write_all(m.stdin.as_mut().context("it is piped")?, b"go\n")?;
    }
    for (m, mut out) in members.into_iter().zip(lines) {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut out, &mut rest)?;
        let end = m.wait_with_output()?;
        ensure!(end.status.success() && rest == "done\n", "{rest:?}");
    }
    let all = fs::read(&paths[0])?;
    ensure!(all.len() == 200_000 && all == fs::read(&paths[1])?);
    for (i, record) in all.chunks(1000).enumerate() {
        ensure!(record.iter().all(|b| usize::from(*b) == 65 + i % 26), "record {i}");
    }
    fs.fsck()
}
