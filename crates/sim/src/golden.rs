//! Golden images: the folders of all targets of a small file system, as the servers of one version left them
//! when they were killed, in `golden/VERSION/`. Later versions open them, or refuse them by name
//! (`docs/formats/versions.md`).
//!
//! [`make`] writes them, [`describe`] opens them with the present code and says what is in them.

mod in_use;

use crate::cluster::Cluster;
use crate::exec::{call, file, snapshot};
use crate::scenario::wait_for_osts;
use crate::server::FSNAME;
use crate::{Sim, check};
use ::world::mem::MemDisk;
use ::world::{Disk, OpenMode, World};
use anyhow::{Context, anyhow, bail, ensure};
use bytes::Bytes;
use client::Fs;
use model::{Errno, Fid, SetAttr, SetTime, TargetId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use store::format::Superblock;
use store::object::Objects;
use store::object::location::{ObjectRecord, object_key};
use store::{Db, DbOptions};
use wire::frame::crc32c;

/// Of the file system that is kept; its seed decides about uuids, order and times.
const SEED: u64 = 1;
const OSTS: u16 = 2;
const LIMIT: Duration = Duration::from_secs(10_000);
/// Zeros of this length are not written down.
const GAP_BYTES: usize = 32;
const READ_BYTES: u32 = 1 << 20;
/// The names of the images, in the order of a cluster's servers.
pub const NAMES: [&str; 3] = ["mdt.img", "ost0.img", "ost1.img"];

/// Bytes with a pattern, mostly zeros: an image of them is small.
fn pattern(len: usize, salt: u8) -> Bytes {
    let byte = |i: usize| if i % 512 < 16 { (i / 512) as u8 ^ salt ^ (i % 512) as u8 } else { 0 };
    (0..len).map(byte).collect::<Vec<u8>>().into()
}

/// A POSIX ACL as `system.posix_acl_access` and `_default` have it.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&perm.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    out
}

async fn write(fs: &Arc<Fs>, fid: Fid, off: u64, data: Bytes) -> Result<(), Errno> {
    fs.clone().write(call(), fid, off, false, false, data).await.map(drop)
}

/// One of everything that a target's folder can hold.
async fn fill(fs: &Arc<Fs>) -> Result<(), Errno> {
    let xattr = |fid, name: &str, value| fs.clone().setxattr(call(), fid, name.into(), value, 0, false);
    let dir = fs.clone().mkdir(call(), fs.root(), b"dir".to_vec(), 0o750).await?.fid;
    let base = [(1, 7, u32::MAX), (2, 6, 1000), (4, 5, u32::MAX), (0x10, 7, u32::MAX), (0x20, 0, u32::MAX)];
    xattr(dir, "system.posix_acl_default", acl(&base)).await?;
    // Data with the inode, inline, packed, in files of their own over two targets, with holes.
    let sizes = [
        ("small", 0, 9000),
        ("inline", 1, 3000),
        ("packed", 1, 20_000),
        ("own", 2, 300_000),
        ("empty", 1, 0),
    ];
    for (i, (name, stripes, len)) in sizes.into_iter().enumerate() {
        let fid = file(fs, dir, name, stripes).await?;
        write(fs, fid, 0, pattern(len, i as u8)).await?;
    }
    let sparse = file(fs, dir, "sparse", 1).await?;
    write(fs, sparse, 100, pattern(700, 9)).await?;
    write(fs, sparse, 3 << 20, pattern(5000, 10)).await?;
    fs.clone().link(call(), sparse, fs.root(), b"another name".to_vec()).await?;
    fs.clone().symlink(call(), dir, b"symlink".to_vec(), b"../somewhere".to_vec()).await?;
    fs.clone().mknod(call(), dir, b"fifo".to_vec(), 0o010_640, 0).await?;
    xattr(sparse, "user.little", b"value".to_vec()).await?;
    xattr(sparse, "user.large", vec![b'x'; 2000]).await?;
    xattr(sparse, "system.posix_acl_access", acl(&base)).await?;
    let at = SetTime::At(Timestamp { sec: 1_234_567_890, nsec: 987_654_321 });
    let set =
        SetAttr { uid: Some(1000), gid: Some(2000), atime: Some(at), mtime: Some(at), ..SetAttr::default() };
    fs.clone().setattr(call(), sparse, set).await?;
    // Gone again: tombstones, and a number of destroyed objects.
    let gone = file(fs, dir, "gone", 2).await?;
    write(fs, gone, 0, pattern(200_000, 11)).await?;
    fs.clone().fsync(call(), gone).await?;
    fs.clone().unlink(call(), dir, b"gone".to_vec()).await
}

/// Not in the table yet: what the journal's tail holds.
async fn fill_journal(fs: &Arc<Fs>) -> Result<(), Errno> {
    let dir = fs.clone().lookup(call(), fs.root(), b"dir".to_vec()).await?.fid;
    for (name, stripes, len) in
        [("late small", 0, 5000), ("late packed", 1, 30_000), ("late own", 2, 200_000)]
    {
        let fid = file(fs, dir, name, stripes).await?;
        write(fs, fid, 0, pattern(len, 20)).await?;
        fs.clone().fsync(call(), fid).await?;
    }
    let own = fs.clone().lookup(call(), dir, b"own".to_vec()).await?.fid;
    write(fs, own, 5000, pattern(10_000, 21)).await?;
    fs.clone().rename(call(), dir, b"empty".to_vec(), fs.root(), b"moved".to_vec(), 0).await?;
    // Orphans: one that had a name, one that never had.
    let orphan = file(fs, dir, "orphan", 0).await?;
    let open = fs.clone().open(call(), orphan, 2).await?;
    write(fs, orphan, 0, pattern(2000, 22)).await?;
    fs.clone().unlink(call(), dir, b"orphan".to_vec()).await?;
    let (_, nameless) = fs.clone().tmpfile(call(), dir, 0o600, 2).await?;
    fs.clone().fsync(call(), own).await?;
    fs.clone().fsync(call(), dir).await?;
    // They stay open: the client is not closed, it dies.
    std::mem::forget((open, nameless));
    Ok(())
}

/// Makes a file system, kills its servers, and returns the folder of each as one image.
pub fn make() -> anyhow::Result<Vec<Vec<u8>>> {
    let sim = Sim::new(SEED);
    let c = Arc::new(Cluster::new(&sim, OSTS, 1, false));
    c.format()?;
    let c2 = c.clone();
    let done = sim.run(LIMIT, async move {
        let c = c2;
        c.boot_all();
        c.mount(0).await?;
        wait_for_osts(&c, OSTS).await.map_err(|e| anyhow!(e))?;
        let (fs, _) = c.mounts[0].get().context("the mount is gone")?;
        in_use::register(&c).await?;
        fill(&fs).await.map_err(|e| anyhow!("filling gave {e}"))?;
        in_use::fill(&fs).await.map_err(|e| anyhow!("filling what is used gave {e}"))?;
        // Into the tables: servers end in an orderly way as far as their tables are concerned.
        fs.clone().fsync(call(), fs.root()).await.map_err(|e| anyhow!("fsync gave {e}"))?;
        c.sim.sleep(Duration::from_secs(5)).await;
        (0..c.servers.len()).for_each(|i| c.crash(i, None));
        let targets: Vec<String> =
            (0..OSTS).map(TargetId::ost).chain([TargetId::mdt(0)]).map(|t| t.label(FSNAME)).collect();
        for s in &c.servers {
            let node = &s.hosts[0].node;
            let w = World { disk: Arc::new(node.disk()), ..node.world() };
            in_use::take_snapshot(&w, s.dir(), &targets)?;
        }
        (0..c.servers.len()).for_each(|i| c.boot(i));
        c.sim.sleep(Duration::from_secs(60)).await;
        fill_journal(&fs).await.map_err(|e| anyhow!("filling the journal gave {e}"))?;
        in_use::fill_journal(&fs).await.map_err(|e| anyhow!("filling the journal gave {e}"))?;
        (0..c.servers.len()).for_each(|i| c.crash(i, None));
        c.kill_client(0);
        anyhow::Ok(())
    });
    done.map_err(|e| anyhow!("{e}"))??;
    ensure!(c.failures.lock().is_empty(), "{:?}", c.failures);
    c.servers.iter().map(|s| pack(&s.hosts[0].node.disk(), s.dir())).collect()
}

fn number(out: &mut Vec<u8>, n: usize) {
    out.extend_from_slice(&(n as u32).to_le_bytes());
}

/// Folders and files below `dir`: length and name (a folder's ends with a slash), then of a file its length,
/// the number of pieces that are not zeros, and each with its offset and length. Numbers have four bytes,
/// little-endian.
fn pack(disk: &MemDisk, dir: &str) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut todo = vec![dir.to_string()];
    while let Some(path) = todo.pop() {
        if let Ok(names) = disk.list(&path) {
            let name = format!("{path}/");
            number(&mut out, name.len());
            out.extend_from_slice(name.as_bytes());
            todo.extend(names.iter().rev().map(|n| format!("{path}/{n}")));
            continue;
        }
        let f = disk.open(&path, OpenMode::READ)?;
        let mut bytes = vec![0; f.stat()?.len as usize];
        f.read_at(&mut bytes, 0)?;
        number(&mut out, path.len());
        out.extend_from_slice(path.as_bytes());
        number(&mut out, bytes.len());
        let pieces = pieces(&bytes);
        number(&mut out, pieces.len());
        for (at, len) in pieces {
            number(&mut out, at);
            number(&mut out, len);
            out.extend_from_slice(&bytes[at..at + len]);
        }
    }
    Ok(out)
}

fn pieces(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut out: Vec<(usize, usize)> = Vec::new();
    for (i, chunk) in bytes.chunks(GAP_BYTES).enumerate().filter(|(_, c)| c.iter().any(|b| *b != 0)) {
        let at = i * GAP_BYTES;
        match out.last_mut().filter(|(a, n)| a + n == at) {
            Some((_, n)) => *n += chunk.len(),
            None => out.push((at, chunk.len())),
        }
    }
    out
}

/// The inverse of [`pack`]; everything is flushed.
pub fn unpack(image: &[u8], disk: &MemDisk) -> anyhow::Result<()> {
    let mut rest = image;
    let take = |rest: &mut &[u8], n: usize| -> anyhow::Result<Vec<u8>> {
        let (a, b) = rest.split_at_checked(n).context("an image ends early")?;
        *rest = b;
        Ok(a.to_vec())
    };
    let number = |rest: &mut &[u8]| -> anyhow::Result<usize> {
        Ok(u32::from_le_bytes(take(rest, 4)?.try_into().expect("four bytes")) as usize)
    };
    let mut dirs = vec!["/".to_string()];
    while !rest.is_empty() {
        let n = number(&mut rest)?;
        let name = String::from_utf8(take(&mut rest, n)?)?;
        if let Some(dir) = name.strip_suffix('/') {
            disk.mkdir(dir)?;
            dirs.push(dir.into());
            continue;
        }
        let f = disk.open(&name, OpenMode::CREATE)?;
        f.set_len(number(&mut rest)? as u64)?;
        for _ in 0..number(&mut rest)? {
            let (at, len) = (number(&mut rest)?, number(&mut rest)?);
            f.write_at(&take(&mut rest, len)?, at as u64)?;
        }
        f.sync_data()?;
    }
    Ok(dirs.iter().try_for_each(|d| disk.sync_dir(d))?)
}

/// What the tables hold, journal replayed: a line for each tag of keys.
fn describe_keys(db: &Db, out: &mut String) -> anyhow::Result<()> {
    let mut tags: BTreeMap<u8, (u64, Vec<u8>)> = BTreeMap::new();
    for (k, v) in db.scan(b"", &[0xff], usize::MAX)? {
        let (n, bytes) = tags.entry(k[0]).or_default();
        *n += 1;
        bytes.extend_from_slice(&k);
        bytes.extend_from_slice(&v);
    }
    for (tag, (n, bytes)) in tags {
        writeln!(out, "  {n} keys {}: crc {:08x}", char::from(tag), crc32c(&bytes))?;
    }
    Ok(())
}

/// Where objects are told of: with their component, or as briefly as can be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ObjectText {
    Whole,
    Short,
}

async fn describe_objects(db: Arc<Db>, how: ObjectText, out: &mut String) -> anyhow::Result<()> {
    let objects = Objects::open(db.clone())?;
    for (id, file, attr) in objects.list(None, usize::MAX)? {
        let mut data = Vec::new();
        while (data.len() as u64) < attr.size {
            let found = objects.read(id, data.len() as u64, READ_BYTES).await?;
            ensure!(!found.data.is_empty(), "object {id} ends early");
            data.extend_from_slice(&found.data);
        }
        let record = db.get(&object_key(id))?.context("an object has a record")?;
        let label = in_use::label_text(&ObjectRecord::decode(id, &record)?);
        let label = label.filter(|_| how == ObjectText::Whole).unwrap_or_default();
        writeln!(out, "  object {id} of {file}: {} bytes, crc {:08x}{label}", data.len(), crc32c(&data))?;
    }
    Ok(())
}

/// What a target's folder holds, as a server finds it: changes go to a copy.
async fn describe_target(w: World, dir: &str) -> anyhow::Result<String> {
    let mut out = String::new();
    describe_folder(&w, dir, ObjectText::Whole, &mut out).await?;
    in_use::describe_snapshots(&w, dir, &mut out).await?;
    Ok(out)
}

async fn describe_folder(w: &World, dir: &str, how: ObjectText, out: &mut String) -> anyhow::Result<()> {
    let sb = Superblock::read(w, dir)?;
    let id = u128::from_be_bytes(sb.target_uuid);
    writeln!(out, "{} of {FSNAME}: {id:032x}, epoch {}", sb.target, sb.epoch)?;
    ensure!(sb.fsname == FSNAME && sb.fs_uuid != [0; 16] && !sb.first_time, "{sb:?}");
    let mut dirs = vec![dir.to_string()];
    dirs.extend(sb.with_mgt.then(|| format!("{dir}/mgt")));
    for d in dirs {
        let db = Db::open(w, &d, sb.epoch + 1, DbOptions::default())?;
        writeln!(out, " {d}: {} transactions", db.last_submitted())?;
        describe_keys(&db, out)?;
        if sb.target.kind == model::TargetKind::Ost {
            describe_objects(db.clone(), how, out).await?;
        }
        db.close().await?;
    }
    Ok(())
}

/// The files, as a new mount sees them after the servers recovered.
async fn describe_tree(c: &Arc<Cluster>) -> anyhow::Result<String> {
    c.boot_all();
    c.mount(0).await?;
    wait_for_osts(c, OSTS).await.map_err(|e| anyhow!(e))?;
    let (fs, _) = c.mounts[0].get().context("the mount is gone")?;
    let mut out = String::new();
    for (path, s) in snapshot(&fs, fs.root()).await.map_err(|e| anyhow!("reading gave {e}"))? {
        let a = fs.clone().getattr(call(), s.fid).await.map_err(|e| anyhow!("getattr gave {e}"))?;
        writeln!(
            out,
            "{}: {} {:?} {:o} {}:{} nlink {} size {} mtime {}.{:09} crc {:08x}",
            if path.is_empty() { "/".into() } else { String::from_utf8_lossy(&path) },
            a.fid,
            a.kind,
            a.mode,
            a.uid,
            a.gid,
            a.nlink,
            a.size,
            a.mtime.sec,
            a.mtime.nsec,
            crc32c(&s.content)
        )?;
        for (name, v) in s.xattrs {
            writeln!(out, "  {}: {} bytes, crc {:08x}", String::from_utf8_lossy(&name), v.len(), crc32c(&v))?;
        }
    }
    out.push_str(&in_use::describe(c, &fs).await?);
    check::settled(c).await.map_err(|e| anyhow!(e))?;
    check::everything(c, &BTreeSet::new()).map_err(|e| anyhow!(e))?;
    Ok(out)
}

/// Opens images with the present code: what is in each target's folder, and then in the file system.
pub fn describe(images: &[Vec<u8>]) -> anyhow::Result<String> {
    let sim = Sim::new(SEED);
    let c = Arc::new(Cluster::new(&sim, OSTS, 1, false));
    if images.len() != c.servers.len() {
        bail!("{} images of {} targets", images.len(), c.servers.len());
    }
    for (s, image) in c.servers.iter().zip(images) {
        unpack(image, &s.hosts[0].node.disk())?;
    }
    let c2 = c.clone();
    let all = sim.run(LIMIT, async move {
        let mut out = String::new();
        for s in &c2.servers {
            let node = &s.hosts[0].node;
            let copy = World { disk: Arc::new(node.disk().fork()), ..node.world() };
            out.push_str(&describe_target(copy, s.dir()).await?);
        }
        out.push_str(&describe_tree(&c2).await?);
        anyhow::Ok(out)
    });
    let text = all.map_err(|e| anyhow!("{e}"))??;
    ensure!(c.failures.lock().is_empty(), "{:?}", c.failures);
    Ok(text)
}
