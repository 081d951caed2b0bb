//! `lfs swap_layouts`: two files get each other's data while two mounts have them open and mapped.

use anyhow::{Context, Result, ensure};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Output;
use std::time::Duration;
use tests::cluster::{TestFs, ok_within, run_within, sh, tool};

const LIMIT: Duration = Duration::from_secs(60);

fn swap(args: &[&str], a: &Path, b: &Path) -> Result<Output> {
    run_within(tool("lfs").arg("swap_layouts").args(args).arg(a).arg(b), LIMIT)
}

fn fid(path: &Path) -> Result<String> {
    ok_within(tool("lfs").arg("path2fid").arg(path), LIMIT)
}

fn whole(f: &File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; f.metadata()?.len() as usize];
    f.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Two programs keep both files mapped on the other mount, and say what they see when they are asked.
const MAPPED: &str = r#"
import mmap, sys
files = [open(p, "r+b") for p in sys.argv[1:]]
maps = [mmap.mmap(f.fileno(), 4096) for f in files]
print(*(m[0] for m in maps), flush=True)
sys.stdin.readline()
print(*(m[0] for m in maps), flush=True)
"#;

#[test]
fn open_and_mapped_files_of_two_mounts_have_the_other_data_after_a_swap() -> Result<()> {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    let fs = TestFs::up("swapped", 3, 2)?;
    let [m, other] = [fs.mount(0), fs.mount(1)];
    let (a, b) = (m.join("a"), m.join("b"));
    ok_within(tool("lfs").args(["setstripe", "-c", "3", "-S", "64k"]).arg(&a), LIMIT)?;
    std::fs::write(&a, vec![1; 500_000])?;
    // A small one: its data lies with the inode.
    std::fs::write(&b, vec![2; 5000])?;
    sh(
        &format!(
            "setfattr -n user.whose -v a {0}/a; setfattr -n user.whose -v b {0}/b; touch -d 2001-02-03 {0}/a",
            m.display()
        ),
        LIMIT,
    )?;
    let open = |dir: &Path, name: &str| OpenOptions::new().read(true).write(true).open(dir.join(name));
    let all = [open(m, "a")?, open(other, "a")?, open(m, "b")?, open(other, "b")?];
    ensure!(whole(&all[1])? == vec![1; 500_000] && whole(&all[3])? == vec![2; 5000]);
    let mut mapped = Command::new("python3")
        .args(["-c", MAPPED])
        .args([other.join("a"), other.join("b")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut seen = BufReader::new(mapped.stdout.take().context("stdout")?).lines();
    ensure!(seen.next().context("nothing")?? == "1 2");
    let was = [(fid(&a)?, std::fs::metadata(&a)?), (fid(&b)?, std::fs::metadata(&b)?)];

    // What is still with the mounts goes along.
    all[0].write_all_at(&[3; 10], 499_990)?;
    all[3].write_all_at(&[4; 10], 4990)?;
    let mtimes = [std::fs::metadata(&a)?, std::fs::metadata(&b)?].map(|s| (s.mtime(), s.mtime_nsec()));
    let o = swap(&[], &a, &b)?;
    ensure!(o.status.success(), "{o:?}");
    let [big, small] = [[vec![1; 499_990], vec![3; 10]].concat(), [vec![2; 4990], vec![4; 10]].concat()];
    for f in &all[..2] {
        ensure!(whole(f)? == small, "a, open, of {} bytes", f.metadata()?.len());
    }
    for f in &all[2..] {
        ensure!(whole(f)? == big, "b, open, of {} bytes", f.metadata()?.len());
    }
    mapped.stdin.take().context("stdin")?.write_all(b"\n")?;
    let now = seen.next().context("nothing")??;
    ensure!(mapped.wait()?.success() && now == "2 1", "mapped: {now}");
    for (path, (fid_was, stat), mtime) in [(&a, &was[0], mtimes[0]), (&b, &was[1], mtimes[1])] {
        let s = std::fs::metadata(path)?;
        ensure!(fid(path)? == *fid_was && s.ino() == stat.ino(), "{}", path.display());
        ensure!((s.uid(), s.mode()) == (stat.uid(), stat.mode()));
        ensure!((s.mtime(), s.mtime_nsec()) == mtime, "{}: {s:?}", path.display());
    }
    let whose = sh(&format!("getfattr --only-values -n user.whose {}", a.display()), LIMIT)?;
    ensure!(whose.trim() == "a", "{whose}");

    // Both are used on, and stay apart.
    all[1].write_all_at(&[5; 100_000], 0)?;
    all[2].write_all_at(&[6; 100_000], 0)?;
    ensure!(std::fs::read(other.join("b"))?[..100_000] == [6; 100_000]);
    ensure!(std::fs::read(m.join("a"))? == vec![5; 100_000]);
    let o = swap(&["-n"], &a, &b)?;
    let s = std::fs::metadata(&a)?;
    ensure!(o.status.success() && (s.mtime(), s.mtime_nsec()) > mtimes[0], "{o:?} {s:?}");
    ensure!(whole(&all[2])? == vec![5; 100_000]);

    for (first, second, code) in [
        (a.clone(), a.clone(), 22),
        (a.clone(), m.to_path_buf(), 22),
        (a.clone(), m.join("none"), 2),
        (a.clone(), "/etc/hostname".into(), 25),
    ] {
        let o = swap(&[], &first, &second)?;
        ensure!(o.status.code() == Some(code), "{} {}: {o:?}", first.display(), second.display());
    }
    std::fs::write(m.join("foreign"), vec![7; 100_000])?;
    std::os::unix::fs::chown(m.join("foreign"), Some(1000), Some(1000))?;
    let o = swap(&[], &a, &m.join("foreign"))?;
    ensure!(o.status.code() == Some(1), "{o:?}");
    let second = TestFs::up("swapped2", 1, 1)?;
    std::fs::write(second.mount(0).join("x"), "x")?;
    let o = swap(&[], &a, &second.mount(0).join("x"))?;
    ensure!(o.status.code() == Some(18), "two file systems: {o:?}");
    drop(all);
    fs.down()?;
    fs.up_again()?;
    ensure!(std::fs::read(m.join("b"))? == vec![5; 100_000], "after a restart");
    std::fs::remove_file(&a)?;
    fs.fsck()
}
