//! Changelogs of metadata targets: `lfs changelog` and `lfs changelog_clear` through a mount, `lctl
//! changelog_register` and `changelog_deregister` on the host of the target.

use super::find::moment;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag, value};
use crate::interrupt::guarded;
use crate::local::{self, Daemon, DaemonReply, DaemonRequest, show, strange};
use crate::{output, say};
use client::control::{Reply, Request};
use model::changelog::{Mask, Order, Record, RecordKind, flags, parse_consumer};
use model::perm::{FMODE_EXEC, O_ACCMODE, O_RDWR, O_WRONLY};
use model::{Errno, Fid, TargetId};
use serde_json::json;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;
use wire::msg::changelog::{Changelog, ChangelogReply};

pub const USAGE: &str =
    "[-f|--follow] [-u|--user USER] [-m|--mask MASK] [--json] MDT [STARTREC [ENDREC]]   (FSNAME-MDT0000)";
pub const USAGE_CLEAR: &str = "MDT {ID | -u|--user ID} ENDREC   (0: all up to now)";
pub const USAGE_REGISTER: &str =
    "MDT [-n|--nameonly] [-u|--user NAME] [-m|--mask MASK]   (or: lctl --device MDT changelog_register)";
pub const USAGE_DEREGISTER: &str = "MDT {ID | -u|--user ID}   (or: lctl --device MDT changelog_deregister)";

/// Between two questions for more records.
const POLL: Duration = Duration::from_millis(500);

/// A metadata target, and where one of this host's mounts of its file system is.
fn place(name: &str) -> Result<(PathBuf, TargetId), Failure> {
    let what = "cannot use";
    let name = name.strip_suffix("_UUID").unwrap_or(name);
    let (fsname, target) = name
        .rsplit_once('-')
        .and_then(|(fs, t)| Some((fs, TargetId::mdt(index(t)?))))
        .ok_or_else(|| Failure::usage(format!("'{name}' is no metadata target: FSNAME-MDT0000")))?;
    let all = local::mounts(true);
    let mount = all.into_iter().find(|m| m.name.fsname == fsname).ok_or_else(|| {
        Failure::explained(what, name, Errno::ENODEV, "that file system is not mounted on this host")
    })?;
    Ok((mount.dir, target))
}

/// Of `MDT001a`.
fn index(target: &str) -> Option<u16> {
    target.strip_prefix("MDT").filter(|n| n.len() == 4).and_then(|n| u16::from_str_radix(n, 16).ok())
}

fn number(text: &str, what: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_| Failure::usage(format!("'{text}' is no {what}: a whole number")))
}

fn mask(text: &str) -> Result<Mask, Failure> {
    let types = RecordKind::ALL.iter().map(|k| k.word()).collect::<Vec<_>>().join(" ");
    Mask::parse(text, Mask::DEFAULT)
        .map_err(|_| Failure::usage(format!("'{text}' is no mask: +TYPE, -TYPE, or some of {types}")))
}

/// `lfs changelog`.
pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let opts = [flag('f', "follow"), value('u', "user"), value('m', "mask"), flag('\0', "json")];
    let p = getopt::parse(args, &opts)?;
    let words: Vec<String> = p.operands.iter().map(|a| show(a)).collect();
    let (mdt, start, end) = match words.as_slice() {
        [mdt] => (mdt, 0, 0),
        [mdt, start] => (mdt, number(start, "record")?, 0),
        [mdt, start, end] => (mdt, number(start, "record")?, number(end, "record")?),
        _ => return Err(Failure::usage("one metadata target, for example demo-MDT0000")),
    };
    if end > 0 && end < start {
        return Err(Failure::usage("the last record is before the first one"));
    }
    let wanted = Changelog {
        start,
        end,
        consumer: p.value("user").unwrap_or("").to_string(),
        mask: p.value("mask").map(mask).transpose()?.unwrap_or(Mask::NONE),
        told: true,
    };
    if !wanted.consumer.is_empty() {
        parse_consumer(&wanted.consumer)
            .map_err(|_| Failure::usage(format!("'{}' is no consumer: cl1", wanted.consumer)))?;
    }
    let (dir, target) = place(mdt)?;
    let ask = |wanted: &Changelog| -> Result<ChangelogReply, Failure> {
        match local::ask(&dir, &Request::Changelog { target, wanted: wanted.clone() })? {
            Reply::Changelog(page) => {
                let other = |e| Failure::explained("cannot read the changelog of", mdt, e, "another version");
                page.open().map_err(other)
            }
            other => Err(strange(&dir, &other)),
        }
    };
    let (done, stopped) = guarded(output::flush, |i| {
        read(wanted, p.has("follow"), p.has("json"), ask, |d| i.pause(d), || i.stopped())
    });
    output::flush();
    done?;
    let mut errors = FirstError::default();
    match stopped {
        Some(code) if p.has("follow") => errors.ended(code),
        Some(code) => errors.interrupted("lfs changelog", code),
        None => {}
    }
    Ok(errors)
}

/// Prints records page by page; with `follow` until it is told to stop.
fn read(
    mut wanted: Changelog,
    follow: bool,
    json: bool,
    ask: impl Fn(&Changelog) -> Result<ChangelogReply, Failure>,
    pause: impl Fn(Duration),
    stopped: impl Fn() -> bool,
) -> Result<(), Failure> {
    loop {
        let page = match ask(&wanted) {
            // The metadata server restarts: who follows waits for it.
            Err(Failure::Op { errno, .. }) if follow && is_passing(errno) && !stopped() => {
                pause(POLL);
                continue;
            }
            page => page?,
        };
        for r in &page.records {
            if json {
                say!("{}", as_json(r));
            } else {
                output::bytes(&line(r));
            }
        }
        wanted.start = page.next;
        let all = page.end && wanted.end > 0 && page.next > wanted.end;
        if stopped() || all || page.end && !follow {
            return Ok(());
        }
        if page.end {
            // What other mounts have done and not told yet comes by itself.
            wanted.told = false;
            output::flush();
            pause(POLL);
        }
    }
}

fn is_passing(e: Errno) -> bool {
    [Errno::ETIMEDOUT, Errno::ENOTCONN, Errno::ESHUTDOWN, Errno::EAGAIN].contains(&e)
}

/// `r-x` of an open.
fn open_mode(flags: u32) -> Option<String> {
    let access = flags & O_ACCMODE;
    let read = access != O_WRONLY;
    let write = access == O_WRONLY || access == O_RDWR;
    let letter = |is: bool, c: char| if is { c } else { '-' };
    let mode: String =
        [letter(read, 'r'), letter(write, 'w'), letter(flags & FMODE_EXEC != 0, 'x')].iter().collect();
    (mode != "---").then_some(mode)
}

fn is_open(kind: RecordKind) -> bool {
    matches!(kind, RecordKind::Open | RecordKind::DeniedOpen)
}

/// A record as Lustre's `lfs changelog` prints it. Names have any bytes.
fn line(r: &Record) -> Vec<u8> {
    let (date, time) = date_and_time(r.time.sec);
    let flags = r.flags & flags::SHOWN;
    let mut s = format!(
        "{} {:02}{:<5} {time}.{:09} {date} {flags:#x} t={}",
        r.index,
        r.kind.number(),
        r.kind.word(),
        r.time.nsec,
        r.fid
    );
    if !r.by.jobid.is_empty() {
        let _ = write!(s, " j={}", r.by.jobid);
    }
    let _ = write!(s, " ef=0xf u={}:{} nid={}", r.by.uid, r.by.gid, nid(r));
    if let Some(mode) = open_mode(r.open_flags).filter(|_| is_open(r.kind)) {
        let _ = write!(s, " m={mode}");
    }
    let mut out = s.into_bytes();
    if !r.xattr.is_empty() {
        out.extend_from_slice(b" x=");
        out.extend_from_slice(&r.xattr);
    }
    if !r.name.is_empty() {
        out.extend_from_slice(format!(" p={} ", r.parent).as_bytes());
        out.extend_from_slice(&r.name);
    }
    if let Some(from) = &r.source {
        out.extend_from_slice(format!(" s={} sp={} ", from.fid, from.parent).as_bytes());
        out.extend_from_slice(&from.name);
    }
    out.push(b'\n');
    out
}

fn nid(r: &Record) -> String {
    r.by.nid.map_or_else(|| "0@lo".to_string(), |n| n.to_string())
}

/// `YYYY.MM.DD` and `HH:MM:SS` in UTC.
pub fn date_and_time(sec: i64) -> (String, String) {
    let (year, month, day) = moment::date_of(sec.div_euclid(86_400));
    (format!("{year:04}.{month:02}.{day:02}"), moment::time_of_day(sec))
}

/// `2026.11.28 05:22:10`, in UTC.
pub fn when(sec: i64) -> String {
    let (date, time) = date_and_time(sec);
    format!("{date} {time}")
}

fn as_json(r: &Record) -> serde_json::Value {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let fid = |f: Fid| (f != Fid::NONE).then(|| f.to_string());
    let mut v = json!({
        "index": r.index,
        "type": r.kind.word(),
        "type_number": r.kind.number(),
        "time": { "sec": r.time.sec, "nsec": r.time.nsec },
        "flags": r.flags & flags::SHOWN,
        "fid": fid(r.fid),
        "uid": r.by.uid,
        "gid": r.by.gid,
        "nid": nid(r),
        "jobid": r.by.jobid,
    });
    let mut add = |name: &str, value: serde_json::Value| {
        v.as_object_mut().expect("it was made as one").insert(name.to_string(), value);
    };
    if !r.name.is_empty() {
        add("parent", json!(fid(r.parent)));
        add("name", json!(text(&r.name)));
    }
    if let Some(from) = &r.source {
        let source = json!({ "fid": fid(from.fid), "parent": fid(from.parent), "name": text(&from.name) });
        add("source", source);
    }
    if let Some(mode) = open_mode(r.open_flags).filter(|_| is_open(r.kind)) {
        add("open_mode", json!(mode));
    }
    if !r.xattr.is_empty() {
        add("xattr", json!(text(&r.xattr)));
    }
    v
}

/// `lfs changelog_clear`.
pub fn run_clear(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[value('u', "user")])?;
    let words: Vec<String> = p.operands.iter().map(|a| show(a)).collect();
    let (mdt, consumer, end) = match (words.as_slice(), p.value("user")) {
        ([mdt, id, end], None) => (mdt, id.clone(), end),
        ([mdt, end], Some(id)) => (mdt, id.to_string(), end),
        _ => return Err(Failure::usage("a metadata target, a consumer and a record")),
    };
    let end = number(end, "record")?;
    let (dir, target) = place(mdt)?;
    match local::ask(&dir, &Request::ChangelogClear { target, consumer, end })? {
        Reply::Done => Ok(FirstError::default()),
        other => Err(strange(&dir, &other)),
    }
}

/// `lctl changelog_register`.
pub fn run_register(args: &[OsString]) -> Result<FirstError, Failure> {
    let opts = [flag('n', "nameonly"), value('u', "user"), value('m', "mask")];
    let p = getopt::parse(args, &opts)?;
    let device = local::device(&p.operands)?;
    if let Some(m) = p.value("mask") {
        mask(m)?;
    }
    let (name, mask) = (p.value("user").unwrap_or("").to_string(), p.value("mask").map(str::to_string));
    let label = order("cannot register a changelog consumer of", &device, Order::Register { name, mask })?;
    if p.has("nameonly") {
        say!("{label}");
    } else {
        say!("{device}: Registered changelog userid '{label}'");
    }
    Ok(FirstError::default())
}

/// `lctl changelog_deregister`.
pub fn run_deregister(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[value('u', "user")])?;
    let (device, consumer) = match (p.operands.as_slice(), p.value("user")) {
        ([device, id], None) => (device, show(id)),
        ([device], Some(id)) => (device, id.to_string()),
        _ => return Err(Failure::usage("a metadata target and a consumer, for example cl1")),
    };
    let device = local::device(std::slice::from_ref(device))?;
    let label = order("cannot deregister a changelog consumer of", &device, Order::Deregister { consumer })?;
    let id = parse_consumer(&label).map_or(0, |(id, _)| id);
    say!("{device}: Deregistered changelog user #{id}");
    Ok(FirstError::default())
}

/// Has the daemon do it that serves the target on this host; the consumer's name.
fn order(what: &str, device: &str, order: Order) -> Result<String, Failure> {
    let Some((d, _)) = Daemon::served().into_iter().find(|(_, t)| t.label == device) else {
        let why = "no nacred of this host serves it: run this on the host of the metadata target";
        return Err(Failure::explained(what, device, Errno::ENODEV, why));
    };
    match d.ask(&DaemonRequest::Changelog { target: device.to_string(), order })? {
        DaemonReply::Text(label) => Ok(label),
        DaemonReply::Error { errno, message } => {
            Err(Failure::explained(what, device, Errno(errno), &message))
        }
        _ => Err(Failure::explained(what, device, Errno::EPROTO, "its answer is none")),
    }
}

#[cfg(test)]
#[path = "changelog_tests.rs"]
mod tests;
