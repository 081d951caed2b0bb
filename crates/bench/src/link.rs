//! How the one who leads a run and its workers talk: JSON lines through pipes between processes, channels
//! between threads.

use crate::hist::Sparse;
use crate::layout::{FileLayout, TreeLayout, Walk};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

/// What a worker is told.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub enum Order {
    /// Get ready for a phase.
    Data(DataOrder),
    Names(NamesOrder),
    /// All are ready: begin.
    Go,
    /// All have stopped at the time limit: go on until so many steps are done.
    WearOut(u64),
}

/// How far a phase goes.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Steps at most.
    pub count: u64,
    /// Seconds after which to stop (stonewall); 0 for no limit.
    pub seconds: f64,
    /// After the time limit, go on to what the fastest has done.
    pub wear_out: bool,
}

/// A phase of reading or writing one file.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct DataOrder {
    pub path: PathBuf,
    pub write: bool,
    pub layout: FileLayout,
    /// Where the layout begins in the file.
    pub base: u64,
    /// Whose part of the file to move.
    pub rank: u64,
    /// Pattern key of the file.
    pub key: u64,
    pub pace: Pace,
    /// Steps in random order, by this seed.
    pub shuffle: Option<u64>,
    pub walk: Walk,
    pub direct: bool,
    /// At the end of a write phase.
    pub fsync: bool,
    /// After every write.
    pub fsync_each: bool,
    /// Writes carry a pattern that tells place and file, reads look for it.
    pub verify: bool,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamesVerb {
    MakeTree,
    Create,
    Stat,
    Read,
    Remove,
    RemoveTree,
    Find,
}

/// A phase of operations on many names.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct NamesOrder {
    pub verb: NamesVerb,
    /// Items are folders, not files.
    pub folders: bool,
    /// Of the tree to work in; for [`NamesVerb::Find`], of all trees.
    pub root: PathBuf,
    pub tree: TreeLayout,
    /// Whose items.
    pub rank: u64,
    pub procs: u64,
    pub pace: Pace,
    pub shuffle: Option<u64>,
    pub write_bytes: u64,
    pub read_bytes: u64,
    pub fsync: bool,
    pub verify: bool,
}

/// What a worker tells.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub enum Event {
    Ready,
    /// Done since the last word.
    Progress {
        ns: u64,
        steps: u64,
        bytes: u64,
    },
    /// So many steps were done at the time limit; waits for [`Order::WearOut`].
    Stone(u64),
    Done(Box<Report>),
    Failed(String),
}

/// A worker's account of a phase. Times are those of the clock all processes share, in nanoseconds.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct Report {
    pub start: u64,
    pub opened: u64,
    pub moved: u64,
    pub end: u64,
    pub steps: u64,
    pub bytes: u64,
    pub latency: Sparse,
    /// Transfers or files whose content was wrong, and the first of them in words.
    pub wrong: u64,
    pub first_wrong: Option<String>,
}

/// A worker's end.
pub trait Link {
    /// The next order; `None` when there will be none.
    fn next(&mut self) -> Option<Order>;
    fn tell(&mut self, e: Event);
    /// Whether to give up.
    fn stopped(&self) -> bool;
}

/// Between processes.
pub struct PipeLink<R, W> {
    pub from: R,
    pub to: W,
}

impl<R: BufRead, W: Write> Link for PipeLink<R, W> {
    fn next(&mut self) -> Option<Order> {
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(n) if n > 0 => serde_json::from_str(&line).ok(),
            _ => None,
        }
    }

    fn tell(&mut self, e: Event) {
        let text = serde_json::to_string(&e).expect("an event is plain data");
        // Whoever led this run is gone if this fails, and the next order will not come.
        let _ = writeln!(self.to, "{text}").and_then(|()| self.to.flush());
    }

    fn stopped(&self) -> bool {
        false
    }
}

/// Between threads.
pub struct ThreadLink {
    pub rank: usize,
    pub from: Receiver<Order>,
    pub to: Sender<(usize, Event)>,
    pub stop: Arc<AtomicBool>,
}

impl Link for ThreadLink {
    fn next(&mut self) -> Option<Order> {
        self.from.recv().ok()
    }

    fn tell(&mut self, e: Event) {
        let _ = self.to.send((self.rank, e));
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
