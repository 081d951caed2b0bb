//! `nacre scrub`: has an OST read all it stores and compare it with its checksums; through its server if one
//! has it, else here, on a disk that keeps changes in memory, as fsck does.

use crate::fsck::targets;
use admin::local::{self, Daemon, DaemonReply, DaemonRequest};
use client::control::{Reply, Request};
use model::Fid;
use oss::scrub::{Pace, Progress, RATE_DEFAULT_MIB, RATE_MAX_MIB, step};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::time::Duration;
use world::World;
use world::sys::files;

const EXIT_CLEAN: i32 = 0;
const EXIT_BAD: i32 = 4;
const EXIT_OPERATIONAL: i32 = 8;
const EXIT_USAGE: i32 = 16;
const LOOK_EVERY: Duration = Duration::from_millis(500);
const SAVE_EVERY: Duration = Duration::from_secs(5);

const USAGE: &str = "\
usage: nacre scrub [--rate N] [--restart] [--no-wait] [--stop | --status] [--json] OST

Reads everything that an object target stores and compares it with its checksums.
OST is a target's folder, or its label (FSNAME-OST0000) if a server on this host has it.

  --rate N    at most N MiB a second (default 100); of a walk under way too
  --restart   from the beginning, not from where an earlier walk stopped
  --no-wait   start it in the server and return
  --stop      stop it in the server; its position is kept
  --status    say how it stands
  --json      one JSON document

exit status: 0 nothing wrong so far, 4 bad blocks, 8 could not scrub, 16 wrong usage
";

#[derive(Debug, Default)]
struct Options {
    ost: String,
    rate: Option<u64>,
    restart: bool,
    no_wait: bool,
    stop: bool,
    status: bool,
    json: bool,
}

fn parse(args: &[OsString]) -> Result<Options, String> {
    let mut o = Options::default();
    let mut args = args.iter().map(|a| a.to_string_lossy().into_owned());
    while let Some(a) = args.next() {
        let (name, value) = match a.split_once('=') {
            Some((n, v)) if n.starts_with("--") => (n.to_string(), Some(v.to_string())),
            _ => (a.clone(), None),
        };
        match name.as_str() {
            "--rate" | "-r" => {
                let v = value.or_else(|| args.next()).ok_or("--rate needs a number")?;
                let n = v.parse().ok().filter(|n| (1..=RATE_MAX_MIB).contains(n));
                o.rate =
                    Some(n.ok_or(format!("--rate '{v}': a number of MiB a second, 1 to {RATE_MAX_MIB}"))?);
            }
            "--restart" => o.restart = true,
            "--no-wait" => o.no_wait = true,
            "--stop" => o.stop = true,
            "--status" => o.status = true,
            "--json" => o.json = true,
            n if n.starts_with('-') => return Err(format!("unknown option '{n}'")),
            _ if o.ost.is_empty() => o.ost = a,
            _ => return Err(format!("'{a}': one OST at a time")),
        }
    }
    if o.ost.is_empty() {
        return Err("which OST?".into());
    }
    Ok(o)
}

/// The command: arguments behind `scrub`.
pub fn main(args: &[OsString]) -> i32 {
    if args.iter().any(|a| a == "--help" || a == "-h") {
        print!("{USAGE}");
        return EXIT_CLEAN;
    }
    let o = match parse(args) {
        Ok(o) => o,
        Err(e) => {
            eprintln!("nacre scrub: {e}\n\n{USAGE}");
            return EXIT_USAGE;
        }
    };
    let o = &o;
    match crate::in_real_world(|world| async move { scrub(&world, o).await }) {
        Ok(s) => {
            s.print(o.json);
            if s.bad_blocks > 0 { EXIT_BAD } else { EXIT_CLEAN }
        }
        Err(e) => {
            eprintln!("nacre scrub: {}: {e}", o.ost);
            EXIT_OPERATIONAL
        }
    }
}

/// One bad block, as it is shown.
#[derive(Debug)]
struct Shown {
    file: Fid,
    object: String,
    offset: u64,
    path: String,
}

#[derive(Debug, Default)]
struct Standing {
    label: String,
    status: String,
    object: String,
    objects: u64,
    bytes: u64,
    bad_blocks: u64,
    error: Option<String>,
    listed: Vec<Shown>,
}

impl Standing {
    /// From the parameter's text.
    fn read(label: &str, text: &str) -> Standing {
        let mut s = Standing { label: label.to_string(), ..Standing::default() };
        for line in text.lines() {
            let Some((name, v)) = line.split_once(": ") else { continue };
            let n = || v.parse().unwrap_or(0);
            match name {
                "status" => s.status = v.to_string(),
                "object" => s.object = v.to_string(),
                "objects" => s.objects = n(),
                "bytes" => s.bytes = n(),
                "bad_blocks" => s.bad_blocks = n(),
                "error" => s.error = Some(v.to_string()),
                "bad" => {
                    let mut w = v.splitn(4, ' ');
                    let mut next = || w.next().unwrap_or_default().to_string();
                    let (file, object, offset, path) = (next(), next(), next(), next());
                    let file = file.parse().unwrap_or(Fid::NONE);
                    s.listed.push(Shown { file, object, offset: offset.parse().unwrap_or(0), path });
                }
                _ => {}
            }
        }
        s
    }

    fn line(&self) -> String {
        format!(
            "{}: {}, {} objects, {} MiB, {} bad blocks",
            self.label,
            self.status,
            self.objects,
            self.bytes >> 20,
            self.bad_blocks
        )
    }

    fn print(&self, as_json: bool) {
        let fsname = self.label.split("-OST").next().unwrap_or_default();
        let bad: Vec<(&Shown, Vec<String>)> =
            self.listed.iter().map(|b| (b, names(fsname, b.file))).collect();
        if as_json {
            let list: Vec<Value> = bad
                .iter()
                .map(|(b, n)| {
                    json!({"fid": b.file.to_string(), "paths": n, "object": b.object, "offset": b.offset,
                           "host_path": b.path})
                })
                .collect();
            let all = json!({"target": self.label, "status": self.status, "objects": self.objects,
                "bytes": self.bytes, "bad_blocks": self.bad_blocks, "bad": list});
            println!("{all:#}");
            return;
        }
        for (b, n) in bad {
            let name = n.first().map_or(String::new(), |n| format!(" ({n})"));
            println!(
                "bad block: file {}{name}, object {}, offset {}, in '{}'",
                b.file, b.object, b.offset, b.path
            );
        }
        println!("{}", self.line());
    }
}

/// The file's names, if a mount of the file system is here to ask.
fn names(fsname: &str, fid: Fid) -> Vec<String> {
    let Some(m) = local::mounts(false).into_iter().find(|m| m.name.fsname == fsname) else {
        return Vec::new();
    };
    match local::ask(&m.dir, &Request::Fid2path { fid }) {
        Ok(Reply::Paths { paths, .. }) => {
            paths.iter().map(|p| format!("{}/{}", m.dir.display(), String::from_utf8_lossy(&p.0))).collect()
        }
        _ => Vec::new(),
    }
}

async fn scrub(world: &World, o: &Options) -> Result<Standing, String> {
    match Daemon::serving(&o.ost) {
        Some((d, t)) => online(world, &d, &t.label, o).await,
        None if files::canonical(&o.ost).is_ok() => offline(world, o).await,
        None => Err("no server on this host has such a target, and there is no such folder".into()),
    }
}

fn ask(d: &Daemon, r: &DaemonRequest) -> Result<Vec<(String, String)>, String> {
    match d.ask(r) {
        Ok(DaemonReply::Params(p)) => Ok(p),
        Ok(DaemonReply::Done) => Ok(Vec::new()),
        Ok(DaemonReply::Error { message, .. }) => Err(message),
        Ok(_) => Err("the server gave a strange answer".into()),
        Err(e) => Err(format!("{e:?}")),
    }
}

async fn online(world: &World, d: &Daemon, label: &str, o: &Options) -> Result<Standing, String> {
    let name = format!("obdfilter.{label}.scrub");
    let look = || {
        let found = ask(d, &DaemonRequest::GetParam { pattern: name.clone() })?;
        let text = found.into_iter().next().ok_or("it is no object target")?.1;
        Ok::<_, String>(Standing::read(label, &text))
    };
    if o.status {
        return look();
    }
    let verb = match (o.stop, o.restart) {
        (true, _) => "stop",
        (_, true) => "restart",
        _ => "start",
    };
    let rate = o.rate.filter(|_| !o.stop).map_or(String::new(), |r| format!(" {r}"));
    ask(d, &DaemonRequest::SetParam { name: name.clone(), value: format!("{verb}{rate}") })?;
    loop {
        let s = look()?;
        if o.no_wait || s.status != "running" {
            progress_end(o);
            return match &s.error {
                Some(e) => Err(e.clone()),
                None => Ok(s),
            };
        }
        progress(o, &s);
        world.sleep(LOOK_EVERY).await;
    }
}

async fn offline(world: &World, o: &Options) -> Result<Standing, String> {
    let dir = files::canonical(&o.ost).map_err(|e| e.to_string())?.to_string_lossy().into_owned();
    let mut p = Progress::load(world, &dir);
    let standing = |label: &str, p: &Progress, status: &str| Standing {
        label: label.to_string(),
        status: status.to_string(),
        object: p.at.object.map_or("-".into(), |x| x.to_string()),
        objects: p.objects,
        bytes: p.bytes,
        bad_blocks: p.bad,
        error: None,
        listed: p
            .listed
            .iter()
            .map(|b| Shown {
                file: b.file,
                object: b.object.to_string(),
                offset: b.offset,
                path: b.path.clone(),
            })
            .collect(),
    };
    if o.stop {
        return Err("no server has it".into());
    }
    let t = targets::open(world, &dir, false, false)?;
    if t.role != targets::Role::Ost {
        return Err(format!("{} is no object target", t.label));
    }
    if o.status {
        let s = standing(&t.label, &p, if p.completed { "completed" } else { "stopped" });
        return t.close().await.map(|()| s);
    }
    if o.restart || p.completed {
        p = Progress::default();
    }
    if p.at.object.is_none() {
        p.started = world.wall();
    }
    let objects = t.objects().map_err(|e| e.to_string())?;
    let (mut pace, mut saved, mut shown) = (Pace::new(world), world.now(), world.now());
    while !p.completed {
        let s = step(&objects, p.at).await.map_err(|e| e.to_string())?;
        let bytes = s.bytes;
        p.add(s);
        if world.now().since(saved) > SAVE_EVERY {
            saved = world.now();
            p.save(world, &dir).map_err(|e| format!("cannot keep the position: {e}"))?;
        }
        if world.now().since(shown) > LOOK_EVERY {
            shown = world.now();
            progress(o, &standing(&t.label, &p, "running"));
        }
        pace.keep(world, bytes, o.rate.unwrap_or(RATE_DEFAULT_MIB)).await;
    }
    progress_end(o);
    p.save(world, &dir).map_err(|e| format!("cannot keep the position: {e}"))?;
    let s = standing(&t.label, &p, "completed");
    drop(objects);
    t.close().await.map(|()| s)
}

fn progress(o: &Options, s: &Standing) {
    if !o.json && std::io::stderr().is_terminal() {
        eprint!("\r{}\x1b[K", s.line());
        let _ = std::io::stderr().flush();
    }
}

fn progress_end(o: &Options) {
    if !o.json && std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}
