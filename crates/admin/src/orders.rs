//! A file system whose MGS is on this host, and orders to whoever serves its targets, wherever that is:
//! the MGS's daemon passes them on (decision 0088).

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::local::{Daemon, DaemonReply, DaemonRequest, Heard, HostAnswer, HostOrder, no_mgs};
use mgs::restore::{ConfigAnswer, ConfigOrder, Shown, ShownFs};
use model::Errno;
use model::snapshot::{SnapshotAnswer, SnapshotOrder};
use std::time::Duration;

/// Between two looks at what takes long.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What came of an order, and after how many microseconds.
pub type Said = (Result<SnapshotAnswer, Failure>, u64);

/// A target of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub label: String,
    /// Where its server is, in words.
    pub nids: String,
}

/// The file system.
#[derive(Clone)]
pub struct Site {
    pub fsname: String,
    /// That of the MGS.
    pub daemon: Daemon,
    /// In the order of their labels.
    pub targets: Vec<Place>,
}

fn configuration(d: &Daemon) -> Option<Shown> {
    match d.ask(&DaemonRequest::Config(ConfigOrder::Show)) {
        Ok(DaemonReply::Config(ConfigAnswer::Shown(s))) => Some(s),
        _ => None,
    }
}

/// File systems of the MGSs of this host.
fn all() -> Vec<Site> {
    let site = |d: &Daemon, f: ShownFs| {
        let place = |t: mgs::restore::ShownTarget| Place { label: t.target, nids: t.nids.join(", ") };
        let mut targets: Vec<Place> = f.targets.into_iter().map(place).collect();
        targets.sort_by(|a, b| a.label.cmp(&b.label));
        Site { fsname: f.fsname, daemon: d.clone(), targets }
    };
    let of = |d: Daemon| {
        let shown = configuration(&d).map_or_else(Vec::new, |s| s.file_systems);
        shown.into_iter().map(move |f| site(&d, f))
    };
    Daemon::of_mgs().into_iter().flat_map(of).collect()
}

impl Site {
    /// That of a name, if an MGS of this host has it.
    pub fn known(fsname: &str) -> Option<Site> {
        all().into_iter().find(|s| s.fsname == fsname)
    }

    /// That of a name, or the only one that there is. `ENODEV`: no MGS of this host has it.
    pub fn find(what: &str, fsname: Option<&str>) -> Result<Site, Failure> {
        let mut all = all();
        match fsname {
            Some(wanted) => all.into_iter().find(|s| s.fsname == wanted).ok_or_else(|| {
                let why = "no MGS of this host knows it: run this on the host that has its MGS, as root";
                match no_mgs() {
                    (Errno::EACCES, why) => Failure::explained(what, wanted, Errno::EACCES, why),
                    _ => Failure::explained(what, wanted, Errno::ENODEV, why),
                }
            }),
            None if all.len() == 1 => Ok(all.remove(0)),
            None if all.is_empty() => {
                let (errno, why) = no_mgs();
                Err(Failure::explained(what, "snapshots", errno, why))
            }
            None => {
                let names: Vec<String> = all.into_iter().map(|s| s.fsname).collect();
                Err(Failure::usage(format!("say which file system with -F: {}", names.join(", "))))
            }
        }
    }

    /// Asks all of these at once; their answers in the same order.
    pub fn ask(&self, orders: Vec<(String, HostOrder)>) -> Result<Vec<Heard>, Failure> {
        let wanted = orders.len();
        let request = DaemonRequest::Ask { fsname: self.fsname.clone(), orders };
        match self.daemon.ask(&request)? {
            DaemonReply::Asked(all) if all.len() == wanted => Ok(all),
            DaemonReply::Error { errno, message } => {
                Err(Failure::explained("cannot ask the servers of", &self.fsname, Errno(errno), &message))
            }
            _ => {
                let why = "the answer of the MGS's daemon is none";
                Err(Failure::explained("cannot ask the servers of", &self.fsname, Errno::EPROTO, why))
            }
        }
    }

    /// One order about snapshots for each of these targets; [`SnapshotAnswer::Running`] is an answer.
    pub fn ask_snapshots(
        &self,
        what: &str,
        orders: Vec<(&Place, SnapshotOrder)>,
    ) -> Result<Vec<Said>, Failure> {
        let named: Vec<&Place> = orders.iter().map(|(p, _)| *p).collect();
        let orders = orders.into_iter().map(|(p, o)| (p.label.clone(), HostOrder::Snapshot(o))).collect();
        let heard = self.ask(orders)?;
        Ok(named.iter().zip(heard).map(|(p, h)| (taken(what, p, h.answer), h.after_us)).collect())
    }

    /// As [`Site::ask_snapshots`], and waits until all are done; `progress` is told how many files that were,
    /// of all together. `EINTR`: it is not wanted any more, and may be under way.
    pub fn each(
        &self,
        what: &str,
        orders: Vec<(&Place, SnapshotOrder)>,
        i: &Interrupt,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<Result<SnapshotAnswer, Failure>>, Failure> {
        let places: Vec<&Place> = orders.iter().map(|(p, _)| *p).collect();
        let mut all: Vec<Result<SnapshotAnswer, Failure>> =
            self.ask_snapshots(what, orders)?.into_iter().map(|(a, _)| a).collect();
        let mut files = vec![0; all.len()];
        loop {
            let mut waits = false;
            for (n, a) in files.iter_mut().zip(&all) {
                if let Ok(SnapshotAnswer::Running { files }) = a {
                    (*n, waits) = (*files, true);
                }
            }
            if !waits {
                return Ok(all);
            }
            progress(files.iter().sum());
            if i.stopped() {
                return Err(Failure::op(what, &self.fsname, Errno::EINTR));
            }
            i.pause(LOOK_EVERY);
            // Also those that are done: who is not asked for too long believes that nobody wants it.
            let who: Vec<usize> = (0..all.len()).filter(|n| all[*n].is_ok()).collect();
            let looks = who.iter().map(|n| (places[*n], SnapshotOrder::Look)).collect();
            for (n, (said, _)) in who.into_iter().zip(self.ask_snapshots(what, looks)?) {
                if matches!(all[n], Ok(SnapshotAnswer::Running { .. })) {
                    all[n] = said;
                }
            }
        }
    }

    /// As [`Site::each`], and the first failure is one of all.
    pub fn all(
        &self,
        what: &str,
        orders: Vec<(&Place, SnapshotOrder)>,
        i: &Interrupt,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<SnapshotAnswer>, Failure> {
        self.each(what, orders, i, progress)?.into_iter().collect()
    }
}

fn taken(what: &str, p: &Place, a: HostAnswer) -> Result<SnapshotAnswer, Failure> {
    match a {
        HostAnswer::Snapshot(SnapshotAnswer::Failed { errno, why }) | HostAnswer::Failed { errno, why } => {
            Err(Failure::explained(what, &p.label, Errno(errno), &why))
        }
        HostAnswer::Snapshot(a) => Ok(a),
        HostAnswer::Barrier(_) => {
            Err(Failure::explained(what, &p.label, Errno::EPROTO, "its answer is none"))
        }
    }
}

/// An answer of another kind than the order's.
pub fn strange(what: &str, p: &Place) -> Failure {
    Failure::explained(what, &p.label, Errno::EPROTO, "its answer is none")
}
