//! A target on a device that has less behind it than it says (a loop device whose image lies on a small
//! tmpfs; a thin pool does the same): flushes fail for a while. The kernel keeps what it could not write as
//! if it had been written. A server that starts again on that host believes none of it.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;
use tests::cluster::{TestFs, alive, kill, ok_within, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(90);
const MIB: usize = 1 << 20;
/// What the device says, and what is behind it.
const SAYS: &str = "2G";
const HAS: &str = "600m";

/// A target's folder on such a device.
pub struct Thin {
    folder: PathBuf,
    backing: PathBuf,
    device: String,
}

impl Thin {
    /// Moves the folder there, whose server is down. `None` if the kernel lets nobody make loop devices here.
    pub fn under(fs: &TestFs, target: &str) -> Result<Option<Thin>> {
        let (folder, backing) = (fs.dir().join(target), fs.scratch().join("backing"));
        fs::create_dir(&backing)?;
        ok_within(
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={HAS}"), "none"]).arg(&backing),
            LIMIT,
        )?;
        let image = backing.join("image");
        ok_within(Command::new("truncate").args(["-s", SAYS]).arg(&image), LIMIT)?;
        let device = match ok_within(Command::new("losetup").args(["-f", "--show"]).arg(&image), LIMIT) {
            Ok(d) => d.trim().to_string(),
            Err(e) => {
                eprintln!("NOT TESTED: no loop devices here: {e:#}");
                ok_within(Command::new("umount").arg(&backing), LIMIT)?;
                return Ok(None);
            }
        };
        let thin = Thin { folder: folder.clone(), backing, device };
        // The loop driver takes a write for done of which its image had room for a part only. The image has
        // room for a page or has not.
        let name = thin.device.trim_start_matches("/dev/");
        fs::write(format!("/sys/block/{name}/queue/max_sectors_kb"), "4")?;
        // A journal that is written in full now: the host's own metadata does not need room later.
        let options = ["-q", "-m", "0", "-N", "4096", "-J", "size=4"];
        let written =
            ["-O", "^metadata_csum,^uninit_bg", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"];
        let mut mkfs = Command::new("mkfs.ext4");
        // Zeros are written, too: a range that is told to be zero has nothing behind it.
        mkfs.env("UNIX_IO_NOZEROOUT", "1").args(options).args(written).arg(&thin.device);
        ok_within(&mut mkfs, LIMIT)?;
        let was = folder.with_extension("was");
        fs::rename(&folder, &was)?;
        fs::create_dir(&folder)?;
        thin.mount()?;
        ok_within(Command::new("cp").arg("-a").arg(was.join(".")).arg(&folder), LIMIT)?;
        fs::remove_dir_all(&was)?;
        Ok(Some(thin))
    }

    fn mount(&self) -> Result<()> {
        ok_within(Command::new("mount").arg(&self.device).arg(&self.folder), LIMIT).map(drop)
    }

    /// What the page cache has of it goes; what the disk has stays.
    pub fn forget_pages(&self) -> Result<()> {
        wait_until("the target's folder is left", LIMIT, || {
            ok_within(Command::new("umount").arg(&self.folder), LIMIT).is_ok()
        })?;
        self.mount()
    }

    /// Nothing is behind the device from now on but what it has, and `left` bytes.
    pub fn fill(&self, left: usize) -> Result<()> {
        // The host's own metadata goes from its journal to its place, which needs no room afterwards.
        for way in ["--freeze", "--unfreeze"] {
            ok_within(Command::new("fsfreeze").arg(way).arg(&self.folder), LIMIT)?;
        }
        let mut f = File::create(self.balloon())?;
        let piece = vec![0xaa; 256 << 10];
        loop {
            match f.write_all(&piece) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::StorageFull => break,
                Err(e) => return Err(e.into()),
            }
        }
        let len = f.metadata()?.len();
        Ok(f.set_len(len.saturating_sub(left as u64))?)
    }

    fn balloon(&self) -> PathBuf {
        self.backing.join("balloon")
    }

    pub fn make_room(&self) -> Result<()> {
        Ok(fs::remove_file(self.balloon())?)
    }

    /// As without power: nobody closes anything, and the page cache has nothing.
    pub fn lose_power(&self, fs: &TestFs) -> Result<()> {
        for pid in fs.servers()?.into_iter().filter(|p| alive(*p)) {
            kill(pid, Signal::KILL)?;
        }
        self.forget_pages()
    }

    /// What an operator does when the host's own file system gave up, too (its metadata found no room).
    fn mend(&self, fs: &TestFs) -> Result<()> {
        let probe = self.folder.join("probe");
        if File::create(&probe).is_err_and(|e| e.kind() == ErrorKind::ReadOnlyFilesystem) {
            eprintln!("the host's file system is read-only");
            return self.lose_power(fs);
        }
        Ok(fs::remove_file(probe)?)
    }
}

impl Drop for Thin {
    fn drop(&mut self) {
        let quietly = |c: &mut Command| drop(c.output());
        quietly(Command::new("umount").arg("-l").arg(&self.folder));
        quietly(Command::new("losetup").arg("-d").arg(&self.device));
        quietly(Command::new("umount").arg("-l").arg(&self.backing));
    }
}

fn states(fs: &TestFs) -> Result<Vec<String>> {
    let s = fs.status()?;
    let rows = s["processes"].as_array().context("processes")?;
    Ok(rows.iter().filter_map(|r| Some(r["state"].as_str()?.to_string())).collect())
}

/// fsync(2) in a thread of its own: it may wait for a server that is away.
fn fsync(f: File) -> mpsc::Receiver<std::io::Result<()>> {
    let (tx, rx) = mpsc::channel();
    std::thread::spawn(move || {
        let done = f.sync_all();
        drop(f);
        let _ = tx.send(done);
    });
    rx
}

fn is(path: &Path, want: &[(usize, u8)]) -> Result<()> {
    let got = fs::read(path).with_context(|| format!("{} after its fsync", path.display()))?;
    let mut at = 0;
    for &(len, byte) in want {
        let part = got.get(at..at + len).with_context(|| format!("{} bytes are left", got.len()))?;
        ensure!(part.iter().all(|b| *b == byte), "{}: other bytes behind {at}", path.display());
        at += len;
    }
    Ok(())
}

#[test]
fn what_an_ost_could_not_flush_is_done_again_or_told() -> Result<()> {
    let fs = TestFs::up("thinost", 1, 1)?;
    fs.down()?;
    let Some(thin) = Thin::under(&fs, "ost0000")? else { return fs.fsck() };
    fs.up_again()?;
    let path = fs.mount(0).join("data");
    ok_within(tool("lfs").args(["setstripe", "-c", "1", "-i", "0"]).arg(&path), LIMIT)?;
    let f = File::options().write(true).open(&path)?;
    f.write_all_at(&vec![1; MIB], 0)?;
    f.sync_all()?;

    thin.fill(MIB)?;
    for i in 1..9 {
        f.write_all_at(&vec![2; MIB], (i * MIB) as u64)?;
    }
    // Writes past the page cache fail by themselves, those through it with the next flush.
    let noticed = wait_until("the OST notices", Duration::from_secs(15), || {
        states(&fs).is_ok_and(|s| s.iter().any(|w| w == "read-only" || w == "dead"))
    });
    thin.make_room()?;
    thin.mend(&fs)?;
    fs.up_again()?;
    let told = fsync(f).recv_timeout(LIMIT).context("fsync does not end")?;
    eprintln!("fsync: {told:?}, the OST: {noticed:?}");
    ensure!(told.is_err() || noticed.is_ok(), "the device was never full");

    // The page cache's version is gone.
    fs.down()?;
    thin.forget_pages()?;
    fs.up_again()?;
    is(&path, if told.is_ok() { &[(MIB, 1), (8 * MIB, 2)] } else { &[(MIB, 1)] })?;
    fs.fsck()
}

#[test]
fn what_an_mdt_could_not_flush_is_done_again_or_told() -> Result<()> {
    const FILES: usize = 400;
    let fs = TestFs::up("thinmdt", 1, 1)?;
    fs.down()?;
    let Some(thin) = Thin::under(&fs, "mdt0000")? else { return fs.fsck() };
    fs.up_again()?;
    let dir = fs.mount(0).join("d");
    fs::create_dir(&dir)?;
    let servers = fs.servers()?;
    thin.fill(MIB)?;
    // 12 KB each, with their data on the MDT, until its journal finds no room.
    let (tx, rx) = mpsc::channel();
    let at = dir.clone();
    std::thread::spawn(move || {
        for i in 0..FILES {
            let done = File::create(at.join(format!("f{i}"))).and_then(|mut f| {
                f.write_all(&vec![i as u8; 12_000])?;
                f.sync_all()
            });
            if tx.send((i, done)).is_err() {
                return;
            }
        }
    });
    let ended = wait_until("the MDT ends", LIMIT, || servers.iter().any(|p| !alive(*p)));
    thin.make_room()?;
    thin.mend(&fs)?;
    fs.up_again()?;
    let mut told = Vec::new();
    while let Ok((i, done)) = rx.recv_timeout(LIMIT) {
        match done {
            Ok(()) => told.push(i),
            Err(e) => eprintln!("f{i}: {e}"),
        }
    }
    ended.context("its device was never full")?;
    ensure!(told.len() > FILES / 2, "only {} files", told.len());

    thin.lose_power(&fs)?;
    fs.up_again()?;
    for i in told {
        is(&dir.join(format!("f{i}")), &[(12_000, i as u8)])?;
    }
    fs.fsck()
}
