//! OSTs on the file systems that hosts have, and on one of 20 TiB.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tests::cluster::{kill, ok_within, sh, tool, wait_until};
use tests::disks::OnDisks;

const LIMIT: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;
/// In this order, and how large each is in `lfs df`, at least and at most, in MiB.
const KINDS: [(&str, &[&str], &str, [u64; 2]); 4] = [
    ("ext4", &["mkfs.ext4", "-q", "-m", "0"], "400M", [300, 400]),
    ("XFS", &["mkfs.xfs", "-q"], "400M", [250, 400]),
    ("btrfs", &["mkfs.btrfs", "-q"], "400M", [300, 400]),
    ("XFS of 20 TiB", &["mkfs.xfs", "-q", "-K", "-l", "size=64m"], "20T", [20_900_000, 20 << 20]),
];

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i >> 9) * 31 + i * 7 + seed) as u8 | 1).collect()
}

fn file_on(m: &Path, ost: usize, name: &str) -> Result<PathBuf> {
    let f = m.join(format!("{name}{ost}"));
    ok_within(tool("lfs").args(["setstripe", "-c", "1", "-i", &ost.to_string()]).arg(&f), LIMIT)?;
    Ok(f)
}

/// Bytes, a hole that is left, one that is punched, and space that is made; what it reads as.
fn write(f: &Path, seed: usize) -> Result<Vec<u8>> {
    let mut want = bytes(seed, 9 << 20);
    let file = File::options().read(true).write(true).open(f)?;
    file.write_all_at(&want, 0)?;
    file.write_all_at(&want[..4096], 20 * MIB)?;
    sh(&format!("fallocate -n -l 33554432 {0}; fallocate -p -o 1048576 -l 2097152 {0}", f.display()), LIMIT)?;
    file.sync_all()?;
    want[MIB as usize..3 * MIB as usize].fill(0);
    let tail = want[..4096].to_vec();
    want.resize(20 * MIB as usize, 0);
    want.extend(tail);
    Ok(want)
}

fn check(f: &Path, want: &[u8], kind: &str) -> Result<()> {
    ensure!(fs::read(f)? == want, "{kind}: other bytes");
    let mut file = File::open(f)?;
    let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0))?;
    ensure!(hole == MIB, "{kind}: the first hole is at {hole}");
    file.seek(SeekFrom::Start(20 * MIB))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    ensure!(tail.len() == 4096, "{kind}: it ends elsewhere");
    // What was made for it counts, what was punched may or may not.
    let used = fs::metadata(f)?.blocks() * 512;
    ensure!((7 * MIB..40 * MIB).contains(&used), "{kind}: {used} bytes in use");
    Ok(())
}

/// Fills an OST until there is no more room: what was acknowledged is there, and all of it comes back.
fn fill(d: &OnDisks, ost: usize, kind: &str) -> Result<()> {
    let f = file_on(&d.mount(0), ost, "fill")?;
    let (mut file, piece, mut acknowledged) = (File::create(&f)?, bytes(ost, 4 << 20), 0);
    let full = loop {
        match file.write_all(&piece).and_then(|()| file.sync_data()) {
            Ok(()) => acknowledged += piece.len() as u64,
            Err(e) => break e,
        }
        ensure!(acknowledged < 500 * MIB, "{kind}: more fits than there is");
    };
    ensure!(full.raw_os_error() == Some(28), "{kind}: {full}\n{}", d.last_warnings());
    ensure!(acknowledged > 150 * MIB, "{kind}: it was full after {acknowledged} bytes");
    let there = File::open(d.mount(1).join(format!("fill{ost}")))?;
    let mut got = vec![0; piece.len()];
    for at in (0..acknowledged).step_by(piece.len()) {
        there.read_exact_at(&mut got, at)?;
        ensure!(got == piece, "{kind}: other bytes at {at}");
    }
    drop((file, there));
    fs::remove_file(&f)?;
    let free = || df(&d.mount(0)).is_ok_and(|all| all[ost].1 > 150);
    wait_until("its room comes back", LIMIT, free)
}

/// Of each OST: size and what is available, in MiB.
fn df(m: &Path) -> Result<Vec<(u64, u64)>> {
    let text = ok_within(tool("lfs").arg("df").arg(m), LIMIT)?;
    let osts = text.lines().filter(|l| l.contains("-OST"));
    let mib = |l: &str, n: usize| l.split_whitespace().nth(n).and_then(|w| w.parse::<u64>().ok());
    osts.map(|l| Some((mib(l, 1)? >> 10, mib(l, 3)? >> 10))).collect::<Option<_>>().context(text.clone())
}

#[test]
fn osts_on_ext4_xfs_and_btrfs_and_one_of_20_tib() -> Result<()> {
    let disks: Vec<_> = KINDS.iter().map(|(_, mkfs, size, _)| (*mkfs, *size)).collect();
    let d = OnDisks::of("kinds", &disks)?;
    let (m, other) = (d.mount(0), d.mount(1));
    for ((kind, .., [least, most]), (size, available)) in KINDS.iter().zip(df(&m)?) {
        ensure!((*least..=*most).contains(&size) && available <= size, "{kind}: {size} MiB, {available}");
    }
    let total = rustix::fs::statvfs(&m)?;
    let bytes_of_all = total.f_blocks * total.f_frsize;
    ensure!(bytes_of_all > 20 << 40, "{bytes_of_all}");
    let mut files = Vec::new();
    for (ost, (kind, ..)) in KINDS.iter().enumerate() {
        let f = file_on(&m, ost, "f")?;
        let want = write(&f, ost).with_context(|| kind.to_string())?;
        check(&other.join(format!("f{ost}")), &want, kind)?;
        files.push((f, want));
    }
    let wide = m.join("wide");
    ok_within(tool("lfs").args(["setstripe", "-c", "4", "-S", "1M"]).arg(&wide), LIMIT)?;
    let want = bytes(77, 30 << 20);
    fs::write(&wide, &want)?;
    File::open(&wide)?.sync_all()?;
    // Their servers are killed, and read journals and objects again.
    for pid in sh(&format!("pgrep -f 'nacred.*{}/ost'", d.dir().display()), LIMIT)?.lines() {
        kill(pid.trim().parse()?, Signal::KILL)?;
    }
    d.start()?;
    ensure!(fs::read(other.join("wide"))? == want, "a striped file has other bytes");
    for ((f, want), (kind, ..)) in files.iter().zip(&KINDS) {
        check(f, want, kind)?;
    }
    for (ost, (kind, ..)) in KINDS.iter().enumerate().take(3) {
        fill(&d, ost, kind)?;
    }
    d.down()
}
