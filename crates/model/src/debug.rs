//! The debug log of a process: messages about what it does, of the types that somebody asked for, and its
//! ordinary ones, the last of them kept in memory. `lctl set_param debug=` chooses, `lctl dk` prints, `nacre
//! trace` follows. Messages of a type have its name as their target: `tracing::debug!(target: RPCTRACE, …)`.

use crate::mutex::Mutex;
use crate::param::{Decl, Param, Scope, Table, Value};
use crate::{Errno, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

pub const NET: &str = "net";
pub const RPCTRACE: &str = "rpctrace";
pub const DLMTRACE: &str = "dlmtrace";
pub const VFSTRACE: &str = "vfstrace";
pub const READA: &str = "reada";
pub const CACHE: &str = "cache";
pub const QUOTA: &str = "quota";
pub const CONFIG: &str = "config";
pub const HA: &str = "ha";
pub const SPANS: &str = "spans";

/// Types of messages that can be switched on, by Lustre's names: each with what it is about. Their bits are
/// their places.
pub const TYPES: &[(&str, &str)] = &[
    (NET, "connections: dialled, accepted, closed"),
    (RPCTRACE, "requests: sent, executed, answered, with their times"),
    (DLMTRACE, "locks and leases: asked back, granted, given back"),
    (VFSTRACE, "operations of programs on a mount, with their results and times"),
    (READA, "what is read ahead"),
    (CACHE, "what is written back and dropped"),
    (QUOTA, "shares of limits: asked for, granted"),
    (CONFIG, "configuration and settings that arrive"),
    (HA, "states of sessions and recoveries"),
    (SPANS, "operations, their requests, work at servers and calls to disks, for nacre trace --otlp"),
];

/// Types that are always kept: what logs say as well. By level: see [`always`].
pub const ALWAYS: &[&str] = &["error", "warning", "console"];

/// Parts of the product, by Lustre's names, with the beginnings of the module paths that they are.
pub const SUBSYSTEMS: &[(&str, &[&str])] = &[
    ("llite", &["client::llite", "client::base", "client::library", "client::admin", "fuse"]),
    ("lov", &["client::lov"]),
    ("osc", &["client::osc", "client::pages"]),
    ("mdc", &["client::mdc"]),
    ("lmv", &["client::lmv"]),
    ("rpc", &["rpc", "client::session", "wire"]),
    ("lnet", &["world"]),
    ("mds", &["mds"]),
    ("ost", &["oss"]),
    ("mgs", &["mgs"]),
    ("osd", &["store"]),
    ("ldlm", &["ldlm"]),
    ("server", &[]),
];

/// All types.
pub const ALL_TYPES: u32 = (1 << TYPES.len()) - 1;
/// All subsystems.
pub const ALL_SUBSYSTEMS: u32 = (1 << SUBSYSTEMS.len()) - 1;

/// Bytes that are kept of one message.
const LINE_MAX_BYTES: usize = 1000;
/// What a message takes besides its text, about.
const RECORD_BYTES: usize = 96;
/// MiB of messages.
const DEFAULT_MB: u64 = 5;
const MAX_MB: u64 = 1024;
/// For so long whoever follows has his types without asking again.
pub const FOLLOWED_S: i64 = 5;

/// The bits of a list of names, with what it was before: `0`, `none`, `-1`, `all`, names, or names with `+`
/// and `-` before them. `EINVAL` for other names.
pub fn parse_mask<'a>(
    text: &str,
    names: impl Iterator<Item = &'a str> + Clone,
    before: u32,
) -> Result<u32, Errno> {
    let all = (1 << names.clone().count()) - 1;
    let mut mask = None;
    for word in text.split([' ', ',', '\t', '\n', '|']).filter(|w| !w.is_empty()) {
        let (plus, minus) = (word.strip_prefix('+'), word.strip_prefix('-').filter(|w| *w != "1"));
        let name = plus.or(minus).unwrap_or(word);
        let bits = match name {
            "0" | "none" => 0,
            "-1" | "all" => all,
            n if ALWAYS.contains(&n) || n == "emerg" => 0,
            n => 1 << names.clone().position(|known| known == n).ok_or(Errno::EINVAL)?,
        };
        let was = mask.unwrap_or(if plus.or(minus).is_some() { before } else { 0 });
        mask = Some(if minus.is_some() { was & !bits } else { was | bits });
    }
    mask.ok_or(Errno::EINVAL)
}

/// The names of these bits; `0` for none.
pub fn mask_text<'a>(mask: u32, names: impl Iterator<Item = &'a str>) -> String {
    let on = names.enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, n)| n);
    let words: Vec<&str> = on.collect();
    if words.is_empty() { "0".into() } else { words.join(" ") }
}

pub fn type_names() -> impl Iterator<Item = &'static str> + Clone {
    TYPES.iter().map(|(n, _)| *n)
}

pub fn subsystem_names() -> impl Iterator<Item = &'static str> + Clone {
    SUBSYSTEMS.iter().map(|(n, _)| *n)
}

/// The place of the subsystem that a module is part of: the last for what has no other.
fn subsystem_of(module: &str) -> usize {
    let is = |start: &str| module.strip_prefix(start).is_some_and(|r| r.is_empty() || r.starts_with("::"));
    SUBSYSTEMS.iter().position(|(_, of)| of.iter().any(|s| is(s))).unwrap_or(SUBSYSTEMS.len() - 1)
}

/// One message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Grows by one with each.
    pub seq: u64,
    /// The wall clock, seconds and nanoseconds.
    pub at: (i64, u32),
    /// `rpctrace`, `error`, …
    pub kind: String,
    pub subsystem: String,
    /// File and line.
    pub place: String,
    pub text: String,
}

/// What a daemon is asked about its debug log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DebugOrder {
    /// Messages behind number `after`, as many as fit into one answer. These types (bits) are kept besides
    /// for [`FOLLOWED_S`] seconds.
    Read { after: u64, follow: u32 },
    /// Forget them up to this number.
    Clear { to: u64 },
    /// Keep a message of the administrator's.
    Mark { text: String },
}

/// Of [`DebugOrder::Read`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DebugAnswer {
    pub records: Vec<Record>,
    /// Messages behind `after` that were dropped because there was no room.
    pub lost: u64,
    /// There are more.
    pub more: bool,
}

/// Bytes of messages in one answer, about.
const ANSWER_BYTES: usize = 256 << 10;

#[derive(Default)]
struct Ring {
    records: VecDeque<Record>,
    bytes: usize,
    last: u64,
    followed: u32,
    followed_until: i64,
}

/// Of one process.
pub struct Debug {
    types: AtomicU32,
    subsystems: AtomicU32,
    max_mb: AtomicU64,
    ring: Mutex<Ring>,
    changed: OnceLock<fn(u32)>,
}

/// This process's.
pub static DEBUG: Debug = Debug {
    types: AtomicU32::new(0),
    subsystems: AtomicU32::new(ALL_SUBSYSTEMS),
    max_mb: AtomicU64::new(DEFAULT_MB),
    ring: Mutex::new(Ring { records: VecDeque::new(), bytes: 0, last: 0, followed: 0, followed_until: 0 }),
    changed: OnceLock::new(),
};

/// What a message is, before it is kept.
pub struct Message<'a> {
    pub at: Timestamp,
    /// One of [`TYPES`] or [`ALWAYS`].
    pub kind: &'a str,
    pub module: &'a str,
    pub place: String,
    pub text: String,
}

impl Debug {
    /// Who makes messages, and is told which types are wanted whenever that changes.
    pub fn on_change(&self, f: fn(u32)) {
        let _ = self.changed.set(f);
    }

    fn tell(&self) {
        let followed = self.ring.lock().followed;
        if let Some(f) = self.changed.get() {
            f(self.types.load(Relaxed) | followed);
        }
    }

    fn set_types(&self, text: &str) -> Result<(), Errno> {
        let new = parse_mask(text, type_names(), self.types.load(Relaxed))?;
        self.types.store(new, Relaxed);
        self.tell();
        Ok(())
    }

    /// Keeps a message, if its subsystem is wanted.
    pub fn keep(&self, m: Message<'_>) {
        let subsystem = subsystem_of(m.module);
        if self.subsystems.load(Relaxed) >> subsystem & 1 == 0 {
            return;
        }
        let mut text = m.text;
        if text.len() > LINE_MAX_BYTES {
            let end = (0..=LINE_MAX_BYTES).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
            text.truncate(end);
        }
        let most = usize::try_from(self.max_mb.load(Relaxed) << 20).unwrap_or(usize::MAX);
        let mut r = self.ring.lock();
        r.last += 1;
        let record = Record {
            seq: r.last,
            at: (m.at.sec, m.at.nsec),
            kind: m.kind.into(),
            subsystem: SUBSYSTEMS[subsystem].0.into(),
            place: m.place,
            text,
        };
        r.bytes += size(&record);
        r.records.push_back(record);
        while r.bytes > most {
            let Some(old) = r.records.pop_front() else { break };
            r.bytes -= size(&old);
        }
        assert!(r.bytes <= most, "the debug log is bounded");
    }

    /// Whoever followed and has not read since: his types are kept no more. Whether somebody follows still.
    /// Not to be called where messages come from.
    pub fn expire(&self, now: i64) -> bool {
        let mut r = self.ring.lock();
        let over = r.followed != 0 && now > r.followed_until;
        if over {
            r.followed = 0;
        }
        let goes_on = r.followed != 0;
        drop(r);
        if over {
            self.tell();
        }
        goes_on
    }

    /// Does what an administrator asks.
    pub fn order(&self, order: DebugOrder, now: Timestamp) -> DebugAnswer {
        match order {
            DebugOrder::Read { after, follow } => {
                if follow != 0 {
                    self.follow(follow & ALL_TYPES, now.sec);
                }
                self.read(after)
            }
            DebugOrder::Clear { to } => {
                let mut r = self.ring.lock();
                while r.records.front().is_some_and(|f| f.seq <= to) {
                    let old = r.records.pop_front().expect("looked at");
                    r.bytes -= size(&old);
                }
                DebugAnswer::default()
            }
            DebugOrder::Mark { text } => {
                let place = String::new();
                let text = format!("DEBUG MARKER: {text}");
                self.keep(Message { at: now, kind: "console", module: "", place, text });
                DebugAnswer::default()
            }
        }
    }

    fn follow(&self, types: u32, now: i64) {
        let mut r = self.ring.lock();
        let changes = r.followed != types;
        (r.followed, r.followed_until) = (types, now + FOLLOWED_S);
        drop(r);
        if changes {
            self.tell();
        }
    }

    fn read(&self, after: u64) -> DebugAnswer {
        let r = self.ring.lock();
        let first = r.records.front().map_or(r.last + 1, |f| f.seq);
        let lost = if after == 0 { 0 } else { first.saturating_sub(after + 1) };
        let from = r.records.partition_point(|x| x.seq <= after);
        let mut bytes = 0;
        let fits = |x: &&Record| {
            bytes += size(x);
            bytes <= ANSWER_BYTES
        };
        let records: Vec<Record> = r.records.iter().skip(from).take_while(fits).cloned().collect();
        let more = from + records.len() < r.records.len();
        DebugAnswer { records, lost, more }
    }
}

fn size(r: &Record) -> usize {
    r.text.len() + r.place.len() + RECORD_BYTES
}

/// Of each daemon and mount.
pub static TABLE: Table<Debug> = Table {
    scopes: &[Scope::Daemon],
    params: &[
        Param::settable(
            Decl::words(
                "debug",
                "0",
                |t| parse_mask(t, type_names(), 0).map(drop),
                "Types of messages that the debug log (lctl dk) keeps besides warnings and errors: lctl debug_list types names them; 0, all (-1), names, or names with + and - before them. Of daemons and mounts of this host, until they start again.",
            )
            .until_restart(),
            |d, ()| Value::Text(mask_text(d.types.load(Relaxed), type_names())),
            |d, (), v| d.set_types(v.text),
        ),
        Param::settable(
            Decl::words(
                "subsystem_debug",
                "all",
                |t| parse_mask(t, subsystem_names(), 0).map(drop),
                "Parts of the product of which the debug log keeps messages: lctl debug_list subs names them; 0, all (-1), names, or names with + and - before them.",
            )
            .until_restart(),
            |d, ()| match d.subsystems.load(Relaxed) {
                ALL_SUBSYSTEMS => "all".into(),
                some => Value::Text(mask_text(some, subsystem_names())),
            },
            |d, (), v| {
                let new = parse_mask(v.text, subsystem_names(), d.subsystems.load(Relaxed))?;
                d.subsystems.store(new, Relaxed);
                Ok(())
            },
        ),
        Param::atomic(
            Decl::number(
                "debug_mb",
                (1, MAX_MB),
                "MiB",
                DEFAULT_MB,
                "Memory for the debug log of each daemon and mount; the oldest messages go.",
            )
            .until_restart(),
            0,
            |d, ()| &d.max_mb,
        ),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    fn debug() -> Debug {
        Debug {
            types: AtomicU32::new(0),
            subsystems: AtomicU32::new(ALL_SUBSYSTEMS),
            max_mb: AtomicU64::new(1),
            ring: Mutex::default(),
            changed: OnceLock::new(),
        }
    }

    fn at(sec: i64) -> Timestamp {
        Timestamp { sec, nsec: 5 }
    }

    fn say(d: &Debug, sec: i64, module: &str, text: &str) {
        d.keep(Message { at: at(sec), kind: RPCTRACE, module, place: "a.rs:1".into(), text: text.into() });
    }

    fn read(d: &Debug, after: u64) -> DebugAnswer {
        d.order(DebugOrder::Read { after, follow: 0 }, at(0))
    }

    #[test]
    fn masks_are_lists_of_names_and_changes_of_them() {
        let of = |text: &str, before: u32| parse_mask(text, type_names(), before);
        assert_eq!(of("net rpctrace", 8), Ok(3));
        assert_eq!(of("net,rpctrace", 0), of("net|rpctrace", 0));
        assert_eq!(of("+rpctrace", 8), Ok(10));
        assert_eq!(of("+rpctrace -vfstrace", 8), Ok(2));
        assert_eq!((of("0", 8), of("-1", 8), of("all", 0)), (Ok(0), Ok(ALL_TYPES), Ok(ALL_TYPES)));
        assert_eq!(of("-all +ha", 3), Ok(1 << 8));
        assert_eq!(of("warning error ha", 0), Ok(1 << 8), "what is always kept may be named");
        for wrong in ["", "  ", "rpc", "+", "rpctrace malloc", "12"] {
            assert_eq!(of(wrong, 0), Err(Errno::EINVAL), "{wrong}");
        }
        for mask in [0, 1, 0b1010, ALL_TYPES] {
            assert_eq!(of(&mask_text(mask, type_names()), 77), Ok(mask));
        }
    }

    #[test]
    fn modules_belong_to_subsystems() {
        for (module, name) in [
            ("client::osc::cache", "osc"),
            ("client::llite", "llite"),
            ("fuse::session", "llite"),
            ("mds", "mds"),
            ("mdsx::a", "server"),
            ("server::nacred", "server"),
            ("", "server"),
        ] {
            assert_eq!(SUBSYSTEMS[subsystem_of(module)].0, name, "{module}");
        }
    }

    #[test]
    fn the_last_messages_are_kept_in_bounded_memory_and_who_reads_learns_what_he_missed() {
        let d = debug();
        (0..20_000).for_each(|i| say(&d, i, "rpc", &"x".repeat(900)));
        let a = read(&d, 1);
        assert!(a.lost > 18_000 && a.more && !a.records.is_empty(), "{} lost", a.lost);
        assert_eq!(a.records[0].seq, a.lost + 2);
        let (mut after, mut n) = (0, 0);
        loop {
            let a = read(&d, after);
            n += a.records.len();
            after = a.records.last().map_or(after, |r| r.seq);
            if !a.more {
                break;
            }
        }
        assert!(after == 20_000 && (900..1200).contains(&n), "{n} messages of about 1,000 bytes in 1 MiB");
        d.order(DebugOrder::Clear { to: 19_999 }, at(0));
        assert_eq!(read(&d, 0).records.len(), 1);
        say(&d, 1, "rpc", &"ü".repeat(600));
        assert_eq!(read(&d, 20_000).records[0].text.len(), LINE_MAX_BYTES);
        d.order(DebugOrder::Mark { text: "here".into() }, at(7));
        let last = read(&d, 20_001).records.remove(0);
        assert_eq!((&*last.kind, &*last.text, last.at), ("console", "DEBUG MARKER: here", (7, 5)));
    }

    #[test]
    fn subsystems_that_nobody_wants_are_not_kept() {
        let d = debug();
        d.subsystems.store(parse_mask("mds", subsystem_names(), 0).unwrap(), Relaxed);
        say(&d, 1, "rpc::import", "a");
        say(&d, 1, "mds::ops", "b");
        assert_eq!(read(&d, 0).records.iter().map(|r| &*r.text).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn who_follows_has_his_types_until_he_reads_no_more() {
        static TOLD: AtomicU32 = AtomicU32::new(99);
        let d = debug();
        d.on_change(|types| TOLD.store(types, Relaxed));
        d.set_types("net").unwrap();
        assert_eq!(TOLD.load(Relaxed), 1);
        d.order(DebugOrder::Read { after: 0, follow: 2 }, at(10));
        assert_eq!(TOLD.load(Relaxed), 3);
        assert!(d.expire(10 + FOLLOWED_S));
        assert_eq!(TOLD.load(Relaxed), 3);
        assert!(!d.expire(11 + FOLLOWED_S));
        assert_eq!(TOLD.load(Relaxed), 1, "what was set stays");
        assert!(d.set_types("nonsense").is_err());
        assert_eq!(TOLD.load(Relaxed), 1);
    }
}
