//! scan: a page of the files below a directory that may fit some conditions (`lfs find`, `nacre report`).
//!
//! If what objects know is wanted, several pages of the metadata server are completed for one answer: the
//! OSTs are asked about all files of a page at once, while the next one comes, and files that do not fit by
//! what they say are left out.

use super::Admin;
use super::getattr::merge;
use crate::control::{Completed, OfObjects};
use crate::lov::{Placed, glimpse_each};
use crate::osc::Osc;
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::{Attr, Fid, FileType, Layout, Map, ObjectAttr};
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use wire::msg::scan::{Condition, Cursor, Found, Number, ROOT_PLACE, Scan, ScanReply, Test};
use world::BoxFuture;
use world::future::join;

/// About the bytes of an answer with what objects know; one page more at most.
const ANSWER_BYTES: usize = 768 << 10;
/// Pages of the metadata server that are looked at for one.
const ANSWER_PAGES: usize = 64;
/// About what a file takes besides its names, and each object of its layout.
const FILE_BYTES: usize = 160;
const OBJECT_BYTES: usize = 40;
/// About what a name takes besides its letters, or a directory.
const NAME_BYTES: usize = 24;

impl Admin<'_> {
    /// Files below `root` behind a cursor, as far as the caller could find them by walking. `EACCES` if the
    /// caller may not read and search `root`, `E2BIG` for too many conditions.
    pub fn scan(
        self,
        call: Call,
        root: Fid,
        after: Option<Cursor>,
        tests: Vec<Test>,
    ) -> BoxFuture<R<ScanReply>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let msg = Scan { root, after, tests };
            fs.run(Verb::Scan, page(&fs, &call, &msg)).await
        })
    }

    /// As [`Admin::scan`], with what OSTs and this mount know of files with objects; those that do not fit
    /// by that are left out.
    pub fn scan_completed(self, call: Call, m: Scan, wanted: OfObjects) -> BoxFuture<R<Completed>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = Completion { fs: &fs, call: &call, wanted };
            fs.run(Verb::Scan, work.answer(m)).await
        })
    }
}

async fn page(fs: &Arc<Fs>, call: &Call, m: &Scan) -> R<ScanReply> {
    fs.lmv.mdc_of(Fid::ROOT).await?.target.call(fs.cx.of(call), m.clone()).await
}

/// One answer that is made.
struct Completion<'a> {
    fs: &'a Arc<Fs>,
    call: &'a Call,
    wanted: OfObjects,
}

/// The objects of some files of a page.
#[derive(Default)]
struct Objects {
    all: Vec<Placed>,
    /// The files by their places on the page; none for one whose objects nobody can be asked about.
    of_file: Vec<(usize, Option<Range<usize>>)>,
}

impl Completion<'_> {
    async fn answer(&self, mut m: Scan) -> R<Completed> {
        let mut out = Completed::default();
        let mut bytes = 0usize;
        let mut next = page(self.fs, self.call, &m).await?;
        for pages in 1.. {
            let mut now = next;
            let (here, behind) = (m.clone(), now.next);
            let goes_on = pages < ANSWER_PAGES && bytes.saturating_add(bytes_of(&now)) < ANSWER_BYTES;
            m.after = behind;
            let fetched = async {
                let is_wanted = behind.is_some() && goes_on;
                if is_wanted { page(self.fs, self.call, &m).await.ok() } else { None }
            };
            let (fetched, left) = join(fetched, self.complete(&mut now, &here)).await;
            let left = drop_unfit(&mut now.files, &left, &m.tests);
            if now.files.is_empty() && now.closed.is_empty() {
                now.dirs.clear();
            }
            bytes = bytes.saturating_add(bytes_of(&now));
            append(&mut out, now, &left);
            // Why the next one did not come is told to who asks for it.
            match fetched {
                Some(page) => next = page,
                None => break,
            }
        }
        assert!(out.left.iter().all(|n| (*n as usize) < out.page.files.len()), "what is left is on the page");
        Ok(out)
    }

    /// Adds what objects know to the files of a page; of each file whether that could not be had.
    async fn complete(&self, page: &mut ScanReply, asked: &Scan) -> Vec<bool> {
        let mut left = vec![false; page.files.len()];
        let objects = self.objects(&page.files).await;
        if objects.of_file.is_empty() {
            return left;
        }
        let attrs = glimpse_each(&objects.all, self.wanted == OfObjects::Space).await;
        let is_whole = |f: &Found| f.layout.as_ref().is_none_or(Layout::covers_file);
        // More of such a file may have got objects while these were asked.
        let generations = match objects.of_file.iter().all(|(i, _)| is_whole(&page.files[*i])) {
            true => Map::default(),
            false => self.generations(asked).await,
        };
        let mdc = self.fs.lmv.mdc_at(Fid::ROOT);
        for (i, range) in objects.of_file {
            let f = &mut page.files[i];
            if let Some(mdc) = &mdc {
                mdc.with_atime(&mut f.attr);
            }
            let now = f.layout.as_ref().map(|l| l.generation);
            let is_now = is_whole(f) || generations.get(&f.attr.fid).copied() == now;
            left[i] = !range.is_some_and(|r| is_now && with_objects(f, &attrs[r]));
        }
        left
    }

    async fn objects(&self, files: &[Found]) -> Objects {
        let mut out = Objects::default();
        let mut oscs: Map<u16, R<Arc<Osc>>> = Map::default();
        for (i, f) in files.iter().enumerate() {
            let Some(l) = f.layout.as_ref().filter(|l| f.attr.kind == FileType::Regular && l.has_objects())
            else {
                continue;
            };
            let first = out.all.len();
            for o in l.objects() {
                let osc = match oscs.entry(o.ost) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => new.insert(self.fs.lmv.osc(o.ost).await),
                };
                if let Ok(osc) = osc {
                    out.all.push(Placed { osc: osc.clone(), id: o.id, generation: l.generation });
                }
            }
            let range = first..out.all.len();
            let has_all = range.len() == l.objects().count();
            out.of_file.push((i, has_all.then_some(range)));
        }
        out
    }

    /// Of which generation the layouts of a page's files are by now.
    async fn generations(&self, asked: &Scan) -> Map<Fid, u32> {
        let again = page(self.fs, self.call, asked).await.map(|p| p.files).unwrap_or_default();
        again.iter().filter_map(|f| Some((f.attr.fid, f.layout.as_ref()?.generation))).collect()
    }
}

/// Adds what objects and this mount know to some files whose layouts are as they are: the places of those of
/// which it could not be had.
pub(super) async fn sizes(fs: &Arc<Fs>, call: &Call, files: &mut [Found]) -> Vec<u32> {
    let work = Completion { fs, call, wanted: OfObjects::Sizes };
    let objects = work.objects(files).await;
    let attrs = glimpse_each(&objects.all, false).await;
    let mut unknown = Vec::new();
    for (i, range) in objects.of_file {
        if !range.is_some_and(|r| with_objects(&mut files[i], &attrs[r])) {
            unknown.push(u32::try_from(i).expect("an answer is small"));
        }
    }
    unknown
}

/// Adds what its objects know to a file that has some; whether all of them said it.
fn with_objects(f: &mut Found, objects: &[R<ObjectAttr>]) -> bool {
    let layout = f.layout.as_ref().expect("a file with objects has a layout");
    let Ok(objects) = objects.iter().copied().collect::<R<Vec<ObjectAttr>>>() else { return false };
    let mut attr = f.attr.clone();
    let is_merged = merge(&mut attr, layout, &objects).is_ok();
    if is_merged {
        f.attr = attr;
    }
    is_merged
}

/// About the bytes of what was found, with the directories that lead there.
fn bytes_of(page: &ScanReply) -> usize {
    let of = |f: &Found| {
        let objects = f.layout.as_ref().map_or(0, |l| l.objects().count());
        let names: usize = f.names.iter().map(|n| n.name.len() + NAME_BYTES).sum();
        FILE_BYTES + objects * OBJECT_BYTES + names
    };
    let files: usize = page.files.iter().map(of).sum();
    let dirs: usize = page.dirs.iter().map(|d| d.name.len() + NAME_BYTES).sum();
    let closed: usize = page.closed.iter().map(|n| n.name.len() + NAME_BYTES).sum();
    files + dirs + closed + page.damaged.len() * NAME_BYTES
}

/// Leaves files out that do not fit by what objects know. Which of the rest are left to be asked about, by
/// their places.
fn drop_unfit(files: &mut Vec<Found>, left: &[bool], tests: &[Test]) -> Vec<u32> {
    assert_eq!(files.len(), left.len(), "of each file it is known");
    let mut still_left = Vec::new();
    let (mut at, mut kept) = (0, 0u32);
    files.retain(|f| {
        let is_left = left[at];
        at += 1;
        let fits = is_left || tests.iter().all(|t| may_fit(t, &f.attr));
        if fits {
            still_left.extend(is_left.then_some(kept));
            kept += 1;
        }
        fits
    });
    still_left
}

/// Whether a file with these attributes, all of them known, may fit. What the metadata server knows alone
/// it has looked at.
fn may_fit(t: &Test, a: &Attr) -> bool {
    let Condition::Within(of, from, to) = &t.condition else { return true };
    let number = match of {
        Number::Size => i64::try_from(a.size).unwrap_or(i64::MAX),
        Number::Space => i64::try_from(a.blocks.saturating_mul(512)).unwrap_or(i64::MAX),
        Number::Mtime => a.mtime.sec,
        Number::Ctime => a.ctime.sec,
        _ => return true,
    };
    (*from..=*to).contains(&number) != t.negated
}

/// Adds a page to an answer.
fn append(out: &mut Completed, page: ScanReply, left: &[u32]) {
    let ScanReply { files, dirs, closed, damaged, too_long, looked, next } = page;
    let all = &mut out.page;
    let base = u32::try_from(all.dirs.len()).expect("an answer is small");
    let place = |n: u32| if n == ROOT_PLACE { n } else { n.saturating_add(base) };
    let first = u32::try_from(all.files.len()).expect("an answer is small");
    out.left.extend(left.iter().map(|n| n + first));
    all.dirs.extend(dirs.into_iter().map(|mut d| {
        d.parent = place(d.parent);
        d
    }));
    all.files.extend(files.into_iter().map(|mut f| {
        f.names.iter_mut().for_each(|n| n.parent = place(n.parent));
        f
    }));
    all.closed.extend(closed.into_iter().map(|mut n| {
        n.parent = place(n.parent);
        n
    }));
    all.damaged.extend(damaged);
    all.too_long = all.too_long.saturating_add(too_long);
    all.looked = all.looked.saturating_add(looked);
    all.next = next;
}
