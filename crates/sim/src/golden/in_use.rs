//! What a target's folder has only while somebody uses it: a changelog with a consumer, a directory whose
//! trash is kept, one with a quota, labels of objects in components, a snapshot. [`super::fill`] makes the
//! rest.
//!
//! What is described is what a user would notice: records are shown and can be cleared, what was removed is
//! listed and comes back, what is counted is limited, a snapshot is one that can be opened.

use super::{ObjectText, describe_folder, pattern, write};
use crate::cluster::Cluster;
use crate::exec::{COMPOSITE, O_RDWR, call, file, public_dir, read_at};
use crate::executor::lock;
use crate::server::FSNAME;
use ::world::World;
use anyhow::{Context, anyhow, ensure};
use client::{Admin, Call, Fs};
use model::changelog::{Mask, Order, Record};
use model::layout::{EOF, ObjectLabel};
use model::quota::{LimitChange, LimitOrder};
use model::usage::{QuotaId, QuotaType, Usage};
use model::{Cred, Errno, Fid, TargetId};
use std::fmt::Write as _;
use std::sync::Arc;
use store::format::Superblock;
use store::object::location::ObjectRecord;
use store::snapshot;
use wire::frame::crc32c;
use wire::msg::changelog::Changelog;
use wire::msg::quotactl::QuotaAsk;
use wire::msg::quotadir::Quotadir;
use wire::msg::trashtake::{Takeout, Trashtake};

const CONSUMER: &str = "cl1-reader";
const SNAPSHOT: &str = "before";
/// Files and directories that the directory with a quota may have.
const LIMIT_INODES: u64 = 6;
const UID: u32 = 1901;
/// Records that are left when the consumer clears.
const LEFT: u64 = 5;

fn gave<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> anyhow::Error {
    move |e| anyhow!("{what} gave {e}")
}

/// Before the first name is made: the records come to all names.
pub(super) async fn register(c: &Cluster) -> anyhow::Result<()> {
    let mdt = c.mdt().context("the MDT is down")?;
    let order = Order::Register { name: "reader".into(), mask: None };
    let done = mds::changelog_order(&mdt, &order).await;
    done.map(drop).map_err(|(e, why)| anyhow!("a consumer gave {e}: {why}"))
}

/// Into the tables.
pub(super) async fn fill(fs: &Arc<Fs>) -> Result<(), Errno> {
    let wide = file(fs, fs.root(), "in components", COMPOSITE as i32).await?;
    write(fs, wide, 0, pattern(600_000, 30)).await?;
    let kept = public_dir(fs, fs.root(), b"kept".to_vec()).await?;
    Admin(fs).trashdir(call(), kept, true).await?;
    for (name, stripes, len) in [("thrown away", 1, 20_000), ("small and gone", 0, 3000)] {
        let fid = file(fs, kept, name, stripes).await?;
        write(fs, fid, 0, pattern(len, 31)).await?;
        fs.clone().fsync(call(), fid).await?;
        fs.clone().unlink(call(), kept, name.into()).await?;
    }
    let counted = public_dir(fs, fs.root(), b"counted".to_vec()).await?;
    let id = Admin(fs).quotadir(call(), Quotadir::Add(counted)).await?.directories[0].id;
    let inodes = LimitChange { soft: None, hard: Some(LIMIT_INODES) };
    let of = QuotaId { of: QuotaType::Directory, id };
    Admin(fs).setquota(call(), LimitOrder::Own { of, space: LimitChange::default(), inodes }).await?;
    let below = fs.clone().mkdir(call(), counted, b"below".to_vec(), 0o755).await?.fid;
    for (dir, name, stripes, len) in [(counted, "one", 1, 50_000), (below, "two", 2, 150_000)] {
        let fid = file(fs, dir, name, stripes).await?;
        write(fs, fid, 0, pattern(len, 32)).await?;
    }
    Ok(())
}

/// Into the journal's tail.
pub(super) async fn fill_journal(fs: &Arc<Fs>) -> Result<(), Errno> {
    let kept = fs.clone().lookup(call(), fs.root(), b"kept".to_vec()).await?.fid;
    let late = file(fs, kept, "late and gone", 1).await?;
    write(fs, late, 0, pattern(6000, 33)).await?;
    fs.clone().fsync(call(), late).await?;
    fs.clone().unlink(call(), kept, b"late and gone".to_vec()).await?;
    let counted = fs.clone().lookup(call(), fs.root(), b"counted".to_vec()).await?.fid;
    let three = file(fs, counted, "three", 0).await?;
    write(fs, three, 0, pattern(4000, 34)).await?;
    fs.clone().fsync(call(), three).await?;
    fs.clone().fsync(call(), kept).await
}

/// What `nacre snapshot create` leaves in the folder of each target, which nobody serves now.
pub(super) fn take_snapshot(w: &World, dir: &str, targets: &[String]) -> anyhow::Result<()> {
    let label = Superblock::read(w, dir)?.target.label(FSNAME);
    ensure!(targets.contains(&label), "{label} is none of {targets:?}");
    let all = targets.iter().map(|t| format!("\"{t}\"")).collect::<Vec<_>>().join(",");
    let record = format!(
        "{{\"format\":1,\"id\":\"00112233445566778899aabbccddeeff\",\"name\":\"{SNAPSHOT}\",\
         \"comment\":\"for later versions\",\"fsname\":\"{FSNAME}\",\"snapshot_fsname\":\"0123abcd\",\
         \"created\":1900000005,\"modified\":1900000005,\"barrier\":true,\"target\":\"{label}\",\"targets\":[{all}]}}\n"
    );
    let mut s = snapshot::Making::begin(w, dir, SNAPSHOT)?;
    s.copy_all(&mut |_| true)?;
    Ok(s.keep(record.as_bytes())?)
}

/// What an object knows of its component, if its file has several.
pub(super) fn label_text(r: &ObjectRecord) -> Option<String> {
    let l = ObjectLabel::decode(&r.label)?;
    let c = &l.component;
    (c.start > 0 || c.end < EOF).then(|| {
        let (end, stripes) = (if c.end == EOF { "EOF".into() } else { c.end.to_string() }, c.objects.len());
        format!(", component {} from {} to {end} in {stripes} stripes", c.id, c.start)
    })
}

/// The snapshots in a target's folder; each is one as well.
pub(super) async fn describe_snapshots(w: &World, dir: &str, out: &mut String) -> anyhow::Result<()> {
    let mut names = snapshot::names(w, dir)?;
    names.sort();
    for name in names {
        let place = snapshot::place(dir, &name);
        let record = snapshot::read_record(w, &place)?.context("a snapshot without a record")?;
        writeln!(out, " snapshot {name}: {}", String::from_utf8(record)?.trim_end())?;
        describe_folder(w, &place, ObjectText::Short, out).await?;
    }
    Ok(())
}

/// What is used, and that it can be used on.
pub(super) async fn describe(c: &Arc<Cluster>, fs: &Arc<Fs>) -> anyhow::Result<String> {
    let mut out = String::new();
    describe_trash(fs, &mut out).await?;
    describe_quotas(c, fs, &mut out).await?;
    describe_changelog(c, fs, &mut out).await?;
    Ok(out)
}

/// What lies there is listed, and comes back.
async fn describe_trash(fs: &Arc<Fs>, out: &mut String) -> anyhow::Result<()> {
    let list = async || Admin(fs).trashlist(call(), fs.root(), None).await.map_err(gave("the trash"));
    let (page, unknown) = list().await?;
    ensure!(page.next.is_none() && unknown.is_empty(), "{page:?}, {unknown:?}");
    for t in &page.files {
        let (way, name) =
            (String::from_utf8_lossy(t.way.as_ref().context("a way")?), String::from_utf8_lossy(&t.name));
        writeln!(out, "trash: {way}/{name}, {} by {}, {} bytes", t.attr.fid, t.by, t.attr.size)?;
    }
    let back = |fid| Admin(fs).trashtake(call(), Trashtake { files: vec![(fid, Takeout::Back)] });
    for t in &page.files {
        let r = back(t.attr.fid).await.map_err(gave("restoring"))?;
        ensure!(r.results == [0], "{}: {r:?}", t.attr.fid);
        let a = fs.clone().lookup(call(), t.parent, t.name.clone()).await.map_err(gave("a lookup"))?;
        let data = read_at(fs, a.fid, 0, a.size as usize).await.map_err(gave("a read"))?;
        let name = String::from_utf8_lossy(&t.name);
        writeln!(out, "restored: {name}, {}, {} bytes, crc {:08x}", a.fid, data.len(), crc32c(&data))?;
    }
    ensure!(list().await?.0.files.is_empty(), "what is restored lies in the trash no more");
    Ok(())
}

/// What all targets have counted to it.
async fn counted(c: &Cluster, fs: &Arc<Fs>, of: QuotaId) -> anyhow::Result<Usage> {
    let (said, _) = Admin(fs).quotactl(call(), QuotaAsk::Of(vec![of])).await.map_err(gave("a quota"))?;
    ensure!(said.len() == c.servers.len(), "of {} targets {} answer", c.servers.len(), said.len());
    let mut sum = Usage::default();
    for (target, r) in said {
        let r = r.map_err(|e| anyhow!("{target:?} says {e}"))?;
        sum = sum.plus(r.usage.first().map(|u| u.1).unwrap_or_default());
    }
    Ok(sum)
}

/// An empty file of somebody whom limits hold, as they do not hold root.
async fn file_of_user(fs: &Arc<Fs>, dir: Fid, name: &str) -> Result<(), Errno> {
    let user = Call { cred: Cred::new(UID, UID), ..call() };
    let (_, f) = fs.clone().create(user, dir, name.into(), 0o600, O_RDWR, None).await?;
    fs.clone().close(Arc::new(f)).await
}

/// What lies there is counted, and there is a limit.
async fn describe_quotas(c: &Cluster, fs: &Arc<Fs>, out: &mut String) -> anyhow::Result<()> {
    let all = Admin(fs).quotadir(call(), Quotadir::List { after: 0 }).await.map_err(gave("quotas"))?;
    for d in &all.directories {
        let u = counted(c, fs, QuotaId { of: QuotaType::Directory, id: d.id }).await?;
        writeln!(out, "directory {} ({}) has {} inodes, {} blocks", d.id, d.fid, u.inodes, u.blocks)?;
        for n in 1..=LIMIT_INODES {
            match file_of_user(fs, d.fid, &format!("one more {n}")).await {
                Ok(()) => writeln!(out, "  one more file has room")?,
                Err(e) => {
                    writeln!(out, "  one more file gives {e}")?;
                    break;
                }
            }
        }
    }
    Ok(())
}

async fn records(fs: &Arc<Fs>, start: u64) -> anyhow::Result<Vec<Record>> {
    let (mut all, mut from) = (Vec::new(), start);
    loop {
        let ask = Changelog { start: from, end: 0, consumer: CONSUMER.into(), mask: Mask::NONE, told: true };
        let page = Admin(fs).changelog(call(), TargetId::mdt(0), ask).await.map_err(gave("a changelog"))?;
        all.extend(page.records);
        if page.end {
            return Ok(all);
        }
        ensure!(page.next > from, "it gets on");
        from = page.next;
    }
}

/// Its records are shown, and freed when they were cleared.
async fn describe_changelog(c: &Cluster, fs: &Arc<Fs>, out: &mut String) -> anyhow::Result<()> {
    if !c.mdt().is_some_and(|mdt| mds::has_changelog(&mdt)) {
        return Ok(());
    }
    let all = records(fs, 0).await?;
    for r in &all {
        let (name, from) = (String::from_utf8_lossy(&r.name), r.source.as_ref().map(|s| s.fid));
        let from = from.map_or(String::new(), |f| format!(", from {f}"));
        writeln!(out, "record {}: {:?} {} in {} {name:?}{from}", r.index, r.kind, r.fid, r.parent)?;
    }
    let last = all.last().context("there are records")?.index;
    lock(&c.shown).extend(all.into_iter().map(|r| (r.index, r)));
    let clear = Admin(fs).changelog_clear(call(), TargetId::mdt(0), CONSUMER.into(), last - LEFT);
    clear.await.map_err(gave("clearing"))?;
    let left: Vec<u64> = records(fs, 0).await?.iter().map(|r| r.index).collect();
    ensure!(left == (last - LEFT + 1..=last).collect::<Vec<_>>(), "{left:?} are left of {last}");
    writeln!(out, "{CONSUMER} cleared {} records, {} are left", last - LEFT, left.len())?;
    Ok(())
}
