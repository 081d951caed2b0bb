//! Truncate, fallocate and seek of files that are kept here: under locks of this mount.

use super::file::File;
use super::map::{self, Found};
use super::pin::{HOLD_MAX, ObjectRequest, Pins};
use crate::base::Detached;
use crate::base::jobid::JobId;
use crate::base::shares::limits_for;
use crate::{BoxFutureOf, Call, R};
use model::layout::Component;
use model::mutex::Mutex;
use model::{Errno, ObjectAttr};
use std::mem::take;
use std::sync::Arc;
use wire::context::FileOwner;
use wire::msg::fallocate::FALLOC_PUNCH_HOLE;
use wire::msg::seek::Whence;
use world::future::join_all;
use world::{Either, select};

/// A change of an object, and which of the file's it is.
type Change<'a, T> = (usize, BoxFutureOf<'a, R<T>>);

struct Changed<T> {
    /// Of each object.
    answers: Vec<T>,
    /// False if locks were let go before all was changed: other mounts may have changed objects since.
    at_once: bool,
}

impl File {
    /// Cuts or extends the objects so that the file has `size` bytes; the attributes of all of them
    /// afterwards, `None` if it did not concern all.
    pub(crate) async fn cut(
        self: &Arc<Self>,
        call: &Call,
        of: FileOwner,
        size: u64,
    ) -> R<Option<Vec<ObjectAttr>>> {
        let job = self.cx.job_of(call);
        loop {
            let wants = self.wants_of_cut(size)?;
            let (file, pins, job) = (self.clone(), self.pin_cut(&wants).await?, job.clone());
            self.confirm().await?;
            let work = async move {
                let cuts = wants.iter().map(|w| -> Change<'_, ObjectAttr> {
                    let o = &file.objects[w.number];
                    (w.number, Box::pin(o.truncate(w.lock.start, of, pins.of(w.number), &job)))
                });
                let cuts = cuts.collect();
                file.under(pins, cuts).await
            };
            match Detached::plain(&self.cx.world, "client-truncate", work).await {
                Err(Errno::ENOLCK) => {}
                Err(e) => return Err(e),
                Ok(Changed { answers, at_once }) => {
                    let known = at_once && answers.len() == self.objects.len();
                    return Ok(known.then_some(answers));
                }
            }
        }
    }

    /// Carries out a change of each object under its lock. `ENOLCK`: a lock is lost, and with another one the
    /// change may be made again. The locks go together, so that other mounts see all of the change or nothing
    /// of it, but an OST that does not answer must not keep locks of the others: then they go one by one, and
    /// whoever needs what is not changed yet waits for that OST, too.
    async fn under<T: Send>(&self, pins: Pins, changes: Vec<Change<'_, T>>) -> R<Changed<T>> {
        struct Progress {
            pins: Pins,
            answered: Vec<usize>,
            late: bool,
        }
        let progress =
            Mutex::new(Progress { pins, answered: Vec::with_capacity(changes.len()), late: false });
        let mut under_way: Vec<BoxFutureOf<'_, R<T>>> = Vec::with_capacity(changes.len());
        for (number, change) in changes {
            let progress = &progress;
            under_way.push(Box::pin(async move {
                let r = change.await;
                let mut p = progress.lock();
                p.answered.push(number);
                if p.late {
                    p.pins.let_go(number);
                }
                r
            }));
        }
        let mut all = Box::pin(join_all(under_way));
        let (answers, at_once) = match select(&mut all, self.cx.world.sleep(HOLD_MAX)).await {
            Either::Left(answers) => (answers, true),
            Either::Right(()) => {
                {
                    let mut p = progress.lock();
                    p.late = true;
                    for number in take(&mut p.answered) {
                        p.pins.let_go(number);
                    }
                }
                (all.await, false)
            }
        };
        Ok(Changed { answers: answers.into_iter().collect::<R<Vec<T>>>()?, at_once })
    }

    /// The parts of objects that a cut to `size` concerns. Components that end before have what they have.
    /// `EUNINIT` if the file is to end where there is no object, `ENODATA` if it is to end behind the layout.
    fn wants_of_cut(&self, size: u64) -> R<Vec<ObjectRequest>> {
        map::supported(&self.layout)?;
        self.layout.check_range(size.saturating_sub(1), size)?;
        let behind = |(_, c, _): &(usize, &Component, usize)| c.end >= size;
        let want = |(number, c, stripe): (usize, &Component, usize)| {
            ObjectRequest::new(number, true, c.object_size_for(stripe, size), u64::MAX)
        };
        Ok(map::parts(&self.layout).filter(behind).map(want).collect())
    }

    /// fallocate(2) of a range of the file.
    pub(crate) async fn fallocate(
        self: &Arc<Self>,
        call: &Call,
        of: FileOwner,
        mode: u32,
        (off, len): (u64, u64),
    ) -> R<()> {
        map::supported(&self.layout)?;
        if mode & FALLOC_PUNCH_HOLE == 0 {
            self.layout.check_range(off, off + len)?;
        }
        let (job, known) = (self.cx.job_of(call), limits_for(call.cred.is_root()));
        let range_of = |(number, c, stripe): (usize, &Component, usize)| {
            let (start, n) = c.object_range(stripe, off, len);
            (n > 0).then_some((number, start, n))
        };
        loop {
            let parts: Vec<(usize, u64, u64)> = map::parts(&self.layout).filter_map(range_of).collect();
            // It may grow the object.
            let want = |&(number, start, _): &_| ObjectRequest::new(number, true, start, u64::MAX);
            let wants: Vec<ObjectRequest> = parts.iter().map(want).collect();
            let pins = self.pin_all(&self.cx.world, &wants).await?;
            let (file, job) = (self.clone(), job.clone());
            let work = async move {
                let all = parts.iter().map(|&(number, start, n)| -> Change<'_, ()> {
                    let o = &file.objects[number];
                    (number, Box::pin(o.fallocate((start, n), mode, (of, known), pins.of(number), &job)))
                });
                let all = all.collect();
                file.under(pins, all).await
            };
            match Detached::plain(&self.cx.world, "client-fallocate", work).await {
                Err(Errno::ENOLCK) => {}
                r => return r.map(drop),
            }
        }
    }

    /// What each object of the file says of the next data or hole.
    pub(crate) async fn seek(self: &Arc<Self>, call: &Call, off: u64, hole: bool) -> R<Vec<Found>> {
        map::supported(&self.layout)?;
        let want = |(number, c, stripe): (usize, &Component, usize)| {
            ObjectRequest::new(number, false, c.object_size_for(stripe, off), u64::MAX)
        };
        let wants: Vec<ObjectRequest> = map::parts(&self.layout).map(want).collect();
        let whence = if hole { Whence::Hole } else { Whence::Data };
        let job = self.cx.job_of(call);
        loop {
            let pins = self.pin_all(&self.cx.world, &wants).await?;
            self.confirm().await?;
            let answers = Box::pin(self.ask_seek(&wants, &pins, whence, &job));
            match select(answers, self.cx.world.sleep(HOLD_MAX)).await {
                // A lock is lost: with another one.
                Either::Left(Err(Errno::ENOLCK)) => {}
                Either::Left(found) => return found,
                // An OST that does not answer must not keep locks of the others.
                Either::Right(()) => {}
            }
        }
    }

    async fn ask_seek(
        &self,
        wants: &[ObjectRequest],
        pins: &Pins,
        whence: Whence,
        job: &JobId,
    ) -> R<Vec<Found>> {
        // The servers know holes and data of what they have.
        self.flush().await?;
        let mut asked: Vec<BoxFutureOf<'_, R<Found>>> = Vec::with_capacity(wants.len());
        for w in wants {
            let (o, lock) = (&self.objects[w.number], pins.of(w.number));
            asked.push(Box::pin(async move {
                let r = o.seek(w.lock.start, whence, lock, job).await?;
                Ok(Found { offset: r.offset, object_size: r.object_size })
            }));
        }
        join_all(asked).await.into_iter().collect()
    }
}
