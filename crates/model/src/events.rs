//! Events: what an operator is to know of, of a kind each, with the target, client or host that it is about.
//! Daemons and mounts say them in their logs as everything else, with their ids, and keep the last of them:
//! `nacre events`.
//!
//! One is made where it happens: `model::event!(WARN, ClientEvicted, about, "…")`.

use crate::Timestamp;
use crate::mutex::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// What is expected of a class of events.
pub const CLASSES: &[(&str, &str)] = &[
    ("disk", "a disk or file system under a target failed, or is close to it"),
    ("checksum", "bytes are not those that were written"),
    ("network", "connections that were lost, or cannot be made"),
    ("recovery", "clients and servers find together again after a restart"),
    ("eviction", "a client was given up"),
    ("full", "no room, or not enough to go on for long"),
    ("failover", "targets that start, stop and move"),
    ("hang", "something takes far longer than it should"),
    ("config", "what an administrator changed"),
    ("check", "checks and repairs"),
];

/// The class by its number: `N4xx` is the fifth.
const IDS_PER_CLASS: u16 = 100;

macro_rules! kinds {
    ($($(#[$meta:meta])* $name:ident = $id:literal, $meaning:literal, $advice:literal;)*) => {
        /// What happened.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Kind {
            $($(#[$meta])* #[doc = $meaning] $name = $id,)*
        }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$name,)*];

            pub fn of_id(id: u64) -> Option<Kind> {
                match id {
                    $($id => Some(Kind::$name),)*
                    _ => None,
                }
            }

            /// One sentence for an operator.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Kind::$name => $meaning,)*
                }
            }

            /// What he does about it. Empty: nothing.
            pub fn advice(self) -> &'static str {
                match self {
                    $(Kind::$name => $advice,)*
                }
            }
        }
    };
}

// An id is never given to another kind: scripts and notes of operators have it.
kinds! {
    DiskFailed = 1, "A target's disk failed: the target takes no more changes.",
        "Repair or replace the disk, check it with nacre fsck, start the target again.";
    JournalReplayed = 2, "A target was not left in an orderly way: its journal was replayed.", "";
    DiskRefused = 3, "A request of a server to its disk failed.",
        "Look at the kernel's log for the device, and at nacre doctor.";
    BlockDamaged = 101, "Bytes on a disk are not those that were written there.",
        "Restore the file, or its copy; nacre scrub tells what else is damaged.";
    ChangedOnTheWay = 102, "Data changed between a client and a server, and was asked for again.",
        "If it goes on: look for a bad cable, adapter or memory at the client that is named.";
    ConnectionLost = 201, "A connection was lost; operations wait for it.",
        "nacre doctor says who cannot reach whom.";
    ConnectionRestored = 202, "A connection is there again.", "";
    CannotConnect = 203, "A server cannot be reached.",
        "Is its daemon running (nacre status there)? lctl ping NID tries the way.";
    NidPassedOver = 204, "An address of a server does not answer: the next one is tried.",
        "lctl ping NID tries it.";
    RecoveryBegan = 301, "A target waits for the clients of before its restart.", "";
    RecoveryEnded = 302, "The recovery of a target is over.", "";
    RecoveryIncomplete = 303, "A client came back after a target's restart and did not say in time what it had: it is evicted.",
        "Programs on those clients may have got errors: look at their logs.";
    Reclaimed = 304, "A client told a server what it had before that restarted.", "";
    ClientEvicted = 401, "A server gave a client up: what that had not written back is lost.",
        "Was the client, or the network to it, down? Its programs got errors.";
    WasEvicted = 402, "This mount was given up by a server: what it had not written back is lost.",
        "Programs that got EIO have to write again; look for what kept the mount from answering.";
    NoAnswerToCallback = 403, "A client does not give a lock back that somebody waits for.",
        "If it is alive: nacre doctor there says what it waits for.";
    TargetFull = 501, "A target has no room for what somebody wants to write.",
        "Delete or move files (nacre drain, nacre rebalance), or add an OST.";
    TargetHasRoom = 502, "A target that was full has room again.", "";
    PassedOver = 503, "An OST is given no new objects.", "lfs df and nacre doctor say why.";
    ConsumerDropped = 504, "A changelog consumer that read nothing for long was dropped.",
        "It has to be registered again, and to look at everything once.";
    SpaceJumped = 505, "Files or space of a target changed far more within an hour than is usual.",
        "nacre history shows since when; nacre top users and lfs find show whose files they are.";
    TargetServed = 601, "A server began to serve its targets.", "";
    TargetStopped = 602, "A target is not served any more.",
        "Its log says why; where there is another server for it, that takes it.";
    ServerStopping = 603, "A server ends.", "";
    ServerStartedAgain = 604, "A server that had to end started again by itself.",
        "Its log says what ended it.";
    TargetTaken = 605, "A host starts, or gives up, a target that is another's as well.", "";
    RequestStuck = 701, "A request waits for longer than is usual.",
        "nacre doctor says for whom, and what waits beside it.";
    SlowProbe = 702, "A cheap operation that is tried now and then took long.",
        "The message says what was under way at that time.";
    ResponseJumped = 703, "Requests of a target took far longer than is usual, an hour long.",
        "nacre history shows since when; nacre top jobs who asks for much, nacre doctor what is wrong.";
    ConfigChanged = 801, "The configuration was changed.",
        "nacre config history shows every change, nacre config rollback takes it back.";
    MaintenanceChanged = 802, "Maintenance mode was switched on or off.", "";
    TargetRegistered = 803, "A target registered with the MGS.", "";
    RegistrationRefused = 804, "The MGS does not register a target.", "The message says why.";
    BarrierFrozen = 805, "A metadata target was frozen or thawed.", "";
    CheckFound = 901, "A check found, or repaired, something.", "nacre lost lists what was affected.";
}

impl Kind {
    /// `N401`.
    pub fn name(self) -> String {
        format!("N{:03}", self as u16)
    }

    pub fn class(self) -> &'static str {
        CLASSES[usize::from(self as u16 / IDS_PER_CLASS)].0
    }

    /// As operators write it: `N401`, `n401`, `401`.
    pub fn parse(text: &str) -> Option<Kind> {
        let digits = text.strip_prefix(['N', 'n']).unwrap_or(text);
        digits.parse().ok().and_then(Kind::of_id)
    }
}

/// Says an event in the log: level, [`Kind`], what it is about, and a message as of `format!`.
#[macro_export]
macro_rules! event {
    ($level:ident, $kind:ident, $about:expr, $($message:tt)+) => {
        ::tracing::event!(
            ::tracing::Level::$level,
            event = $crate::events::Kind::$kind as u64,
            about = ::tracing::field::display(&$about),
            $($message)+
        )
    };
}

/// One that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Grows by one with each of a process.
    pub seq: u64,
    /// The wall clock: seconds and nanoseconds since 1970.
    pub at: (i64, u32),
    /// Of a [`Kind`]; a later version may know others.
    pub id: u64,
    /// `error`, `warning`, `info`.
    pub level: String,
    /// A target, client, address or host.
    pub about: String,
    pub text: String,
    /// So many more of this kind about the same were not said one by one before.
    #[serde(default)]
    pub more: u64,
}

impl Event {
    pub fn kind(&self) -> Option<Kind> {
        Kind::of_id(self.id)
    }

    pub fn class(&self) -> &'static str {
        self.kind().map_or("", Kind::class)
    }
}

/// Of a process: those behind a number.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Events {
    pub events: Vec<Event>,
    /// Events behind that number that were dropped because there was no room.
    pub lost: u64,
    pub more: bool,
}

/// So many are kept in memory.
pub const KEPT_MAX: usize = 2000;
/// In one answer.
const ANSWER_MAX: usize = 500;
/// Bytes that are kept of a text.
pub const TEXT_MAX_BYTES: usize = 600;

/// The last events of a process.
#[derive(Default)]
pub struct Book {
    state: Mutex<(VecDeque<Event>, u64)>,
}

/// This process's.
pub static EVENTS: Book = Book { state: Mutex::new((VecDeque::new(), 0)) };

impl Book {
    /// Keeps one, and says which it is.
    pub fn keep(&self, at: Timestamp, kind: Kind, level: &str, about: &str, text: &str, more: u64) -> Event {
        let mut g = self.state.lock();
        g.1 += 1;
        let event = Event {
            seq: g.1,
            at: (at.sec, at.nsec),
            id: kind as u64,
            level: level.into(),
            about: cut(about),
            text: cut(text),
            more,
        };
        g.0.push_back(event.clone());
        if g.0.len() > KEPT_MAX {
            g.0.pop_front();
        }
        assert!(g.0.len() <= KEPT_MAX, "the book is bounded");
        event
    }

    /// What an earlier process of the same daemon kept comes before everything of this one.
    pub fn recall(&self, mut earlier: Vec<Event>) {
        let mut g = self.state.lock();
        earlier.drain(..earlier.len().saturating_sub(KEPT_MAX - g.0.len()));
        let by = earlier.len() as u64;
        earlier.iter_mut().zip(1..).for_each(|(e, seq)| e.seq = seq);
        g.0.iter_mut().for_each(|e| e.seq += by);
        g.1 += by;
        for e in earlier.into_iter().rev() {
            g.0.push_front(e);
        }
        assert!(g.0.len() <= KEPT_MAX && g.0.iter().is_sorted_by_key(|e| e.seq), "in one order");
    }

    /// Those behind a number.
    pub fn read(&self, after: u64) -> Events {
        let g = self.state.lock();
        let first = g.0.front().map_or(g.1 + 1, |e| e.seq);
        let lost = if after == 0 { 0 } else { first.saturating_sub(after + 1) };
        let from = g.0.partition_point(|e| e.seq <= after);
        let events: Vec<Event> = g.0.iter().skip(from).take(ANSWER_MAX).cloned().collect();
        let more = from + events.len() < g.0.len();
        Events { events, lost, more }
    }
}

fn cut(text: &str) -> String {
    let most = text.len().min(TEXT_MAX_BYTES);
    let end = (0..=most).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    text[..end].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(b: &Book, n: i64) -> Event {
        let at = Timestamp { sec: n, nsec: 1 };
        b.keep(at, Kind::ClientEvicted, "warning", "t-OST0000", &format!("client {n}"), 0)
    }

    #[test]
    fn every_kind_has_a_class_and_is_found_by_its_id() {
        for k in Kind::ALL {
            assert!(CLASSES.iter().any(|(c, _)| *c == k.class()));
            assert_eq!((Kind::of_id(*k as u64), Kind::parse(&k.name())), (Some(*k), Some(*k)));
            assert!(k.meaning().ends_with('.') && (k.advice().is_empty() || k.advice().ends_with('.')));
        }
        assert_eq!(Kind::ClientEvicted.class(), "eviction");
        assert_eq!(
            (Kind::parse("n401"), Kind::parse("401")),
            (Some(Kind::ClientEvicted), Some(Kind::ClientEvicted))
        );
        assert_eq!((Kind::parse("N999"), Kind::parse("x")), (None, None));
    }

    #[test]
    fn the_last_are_kept_and_read_in_parts() {
        let b = Book::default();
        (0..KEPT_MAX as i64 + 10).for_each(|n| drop(keep(&b, n)));
        let (mut after, mut seen) = (0, Vec::new());
        loop {
            let part = b.read(after);
            after = part.events.last().expect("some").seq;
            seen.extend(part.events);
            if !part.more {
                break;
            }
        }
        assert_eq!((seen.len(), seen[0].at.0), (KEPT_MAX, 10));
        assert_eq!(b.read(after).events, []);
        assert_eq!(b.read(3).lost, 7, "ten were gone, and three of them had been read");
        let long =
            b.keep(Timestamp::default(), Kind::DiskFailed, "error", "a", &"ä".repeat(TEXT_MAX_BYTES), 0);
        assert_eq!(long.text.len(), TEXT_MAX_BYTES);
    }

    #[test]
    fn what_an_earlier_process_kept_comes_first() {
        let (before, b) = (Book::default(), Book::default());
        let earlier: Vec<Event> = (0..3).map(|n| keep(&before, n)).collect();
        keep(&b, 10);
        b.recall(earlier);
        let all = b.read(0).events;
        assert_eq!(
            all.iter().map(|e| (e.seq, e.at.0)).collect::<Vec<_>>(),
            [(1, 0), (2, 1), (3, 2), (4, 10)]
        );
        assert_eq!(keep(&b, 11).seq, 5);
    }
}
