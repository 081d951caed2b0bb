//! `nacre backup` and `nacre restore`: the labels and tables of targets, as they were at one moment, in a
//! folder of their own; and a target made of that, on this or another host.
//!
//! `source` is where pairs come from (a server of this host, or a folder), `set` the backup's folder,
//! `restore` the way back.

mod restore;
mod set;
mod source;

pub use restore::main as restore_main;

use admin::command::with_page;
use admin::failure::Failure;
use admin::interrupt::{Interrupt, guarded};
use admin::live::ProgressLine;
use admin::views::TablePage;
use model::{Errno, TargetKind, hex};
use serde_json::json;
use set::{GENERATIONS_MAX, Manifest, Merged, Part, Set, Writer};
use source::Source;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use store::format::Superblock;
use world::World;
use world::sys::files;

pub const OK: i32 = 0;
pub const DAMAGED: i32 = 4;
pub const FAILED: i32 = 8;
pub const WRONG: i32 = 16;
/// The target's own table, and that of an MGT in the folder of an MDT.
pub const TABLE: &str = "table";
pub const MGT: &str = "mgt";

const USAGE: &str = "\
usage: nacre backup mdt|mgt|ost-labels TARGET OUT [--incremental] [--json] [--quiet]
       nacre backup list|verify OUT [--json]

Copies the label and the table of a target, as they are at one moment, into the folder OUT. TARGET is its label
(FSNAME-MDT0000, MGS, FSNAME-OST0000) if a server on this host has it, which goes on serving, or the folder of a stopped
one. Interrupted, it goes on where it was if it is called again within ten minutes.

  mdt             names, attributes, layouts, small files; with the MGT if that is in the same folder. Of a served one
                  under a write barrier (lctl barrier_freeze), which holds for as long as mounts need to tell what they did
  mgt             the MGS's configuration; of an MGT in a folder of its own
  ost-labels      who the OST is, and the records of its objects; their bytes are not in it
  --incremental   OUT has a backup of the target: only what changed since then is added, as a generation
  --json          one JSON document
  --quiet         nothing but errors
  list            the generations that OUT has
  verify          read all of it, and name what is damaged

exit status: 0 done, 4 damaged, 8 could not, 16 wrong usage
";

/// What is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Mdt,
    Mgt,
    OstLabels,
}

impl Kind {
    pub fn parse(word: &str) -> Option<Kind> {
        [Kind::Mdt, Kind::Mgt, Kind::OstLabels].into_iter().find(|k| k.word() == word)
    }

    pub fn word(self) -> &'static str {
        match self {
            Kind::Mdt => "mdt",
            Kind::Mgt => "mgt",
            Kind::OstLabels => "ost-labels",
        }
    }

    pub fn of(self) -> TargetKind {
        match self {
            Kind::Mdt => TargetKind::Mdt,
            Kind::Mgt => TargetKind::Mgt,
            Kind::OstLabels => TargetKind::Ost,
        }
    }
}

#[derive(Debug, Default)]
struct Options {
    incremental: bool,
    json: bool,
    quiet: bool,
    words: Vec<String>,
}

fn parse(args: &[OsString]) -> Result<Options, Failure> {
    let mut o = Options::default();
    for a in args {
        let a = a.to_str().ok_or_else(|| not_utf8(a))?;
        match a {
            "--incremental" | "-i" => o.incremental = true,
            "--json" => o.json = true,
            "--quiet" | "-q" => o.quiet = true,
            _ if a.starts_with('-') => return Err(Failure::usage(format!("unknown option '{a}'"))),
            _ => o.words.push(a.to_string()),
        }
    }
    Ok(o)
}

pub fn not_utf8(a: &OsStr) -> Failure {
    Failure::usage(format!("'{}' is not UTF-8", a.to_string_lossy()))
}

/// Absolute, as a text.
pub fn absolute(path: &str) -> Result<String, String> {
    let full = files::absolute(path).map_err(|e| format!("cannot use '{path}': {e}"))?;
    full.to_str().map(str::to_string).ok_or_else(|| format!("'{path}' is not UTF-8"))
}

/// What is wrong with words that say nothing.
fn mistake(words: &[&str]) -> String {
    match words {
        ["list" | "verify", _] => format!("--incremental says nothing to 'nacre backup {}'", words[0]),
        ["list" | "verify", ..] => format!("'nacre backup {}' takes one folder", words[0]),
        [kind, ..] if Kind::parse(kind).is_none() => {
            format!("'{kind}' is none: mdt|mgt|ost-labels TARGET OUT, or list|verify OUT")
        }
        [_, _, _, extra, ..] => format!("'{extra}' is one too many: which target, into which folder?"),
        _ => "what, of which target, into which folder?".into(),
    }
}

/// The exit status of a failure.
pub fn status_of(f: &Failure) -> i32 {
    match f {
        Failure::Usage(_) => WRONG,
        Failure::Op { .. } => FAILED,
    }
}

fn failed(text: String) -> Failure {
    Failure::Op { text, errno: Errno::EIO }
}

/// Runs what may be interrupted and called again to go on.
pub fn resumable(
    name: &str,
    work: impl AsyncFnOnce(World, &Interrupt) -> Result<i32, String>,
) -> Result<i32, Failure> {
    let (done, stopped) = guarded(|| {}, |i| crate::in_real_world(|w| work(w, i)));
    match stopped {
        Some(code) if done.is_err() => {
            eprintln!("{name}: interrupted: call it again to go on");
            Ok(code)
        }
        _ => done.map_err(failed),
    }
}

/// The command: arguments behind `backup`.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre backup", USAGE), args, status_of, command)
}

fn command(args: &[OsString]) -> Result<i32, Failure> {
    let o = &parse(args)?;
    let words: Vec<&str> = o.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [verb @ ("list" | "verify"), out] if !o.incremental => {
            look(*verb == "verify", out, o.json).map_err(failed)
        }
        [kind, target, out] if Kind::parse(kind).is_some() => {
            let kind = Kind::parse(kind).expect("looked at");
            resumable("nacre backup", async |w, i| run(&w, kind, (target, out), o, i).await)
        }
        words => Err(Failure::usage(mistake(words))),
    }
}

async fn run(
    world: &World,
    kind: Kind,
    (target, out): (&str, &str),
    o: &Options,
    i: &Interrupt,
) -> Result<i32, String> {
    let line = ProgressLine::for_terminal(o.quiet || o.json);
    let done = take(world, kind, (target, &absolute(out)?), o.incremental, (i, &line)).await;
    line.clear();
    let taken = done?;
    let m = &taken.manifest;
    if o.json {
        let mut v = described(m);
        v["changed"] = json!(taken.changed);
        println!("{v}");
    } else if !o.quiet && taken.changed {
        println!(
            "{}: generation {:04} in '{out}': {} records, {} bytes, as of transaction {} of start {}",
            m.target,
            m.generation,
            m.pairs(),
            m.bytes(),
            m.lsn,
            m.epoch
        );
    } else if !o.quiet {
        println!("{}: nothing changed since generation {:04}", m.target, m.generation);
    }
    Ok(OK)
}

/// For scripts.
fn described(m: &Manifest) -> serde_json::Value {
    json!({
        "target": m.target, "uuid": m.uuid, "kind": m.kind, "generation": m.generation, "epoch": m.epoch, "lsn": m.lsn,
        "taken": m.taken, "stopped": m.stopped, "barrier": m.barrier, "records": m.pairs(), "bytes": m.bytes(),
    })
}

struct Taken {
    manifest: Manifest,
    changed: bool,
}

/// Adds a generation to a folder, or begins one there.
async fn take(
    world: &World,
    kind: Kind,
    (target, out): (&str, &str),
    incremental: bool,
    to: (&Interrupt, &ProgressLine),
) -> Result<Taken, String> {
    let set = Set::open(world, out, true)?;
    let before = set.generations()?;
    if !incremental && !before.is_empty() {
        let old = &before[0].manifest.target;
        return Err(format!(
            "'{out}' holds a backup of {old}: --incremental adds to it, or name another folder"
        ));
    }
    let number = u32::try_from(before.len()).unwrap_or(u32::MAX);
    if number >= GENERATIONS_MAX {
        return Err(format!("'{out}' has {number} generations: begin a new backup in another folder"));
    }
    let begun = set.partial(number);
    let source = Source::open(world, kind, target, begun.as_ref(), to.0)?;
    let done = copy(&set, kind, &before, begun, &source, to);
    // Kept for who goes on, if it was interrupted.
    let closed = source.close(done.is_ok() || !to.0.stopped()).await;
    done.and_then(|d| closed.map(|()| d))
}

fn copy(
    set: &Set,
    kind: Kind,
    before: &[set::Generation],
    begun: Option<Manifest>,
    source: &Source,
    (i, line): (&Interrupt, &ProgressLine),
) -> Result<Taken, String> {
    let wanted = manifest(kind, before, source);
    if let Some(last) = before.last().map(|g| &g.manifest) {
        if last.uuid != wanted.uuid || last.kind != wanted.kind {
            return Err(format!(
                "'{}' holds a backup of {} ({}), another target",
                set.dir, last.target, last.kind
            ));
        }
        // Of a stopped one its clients may go on: that is worth a generation of its own.
        let as_good = last.stopped || !wanted.stopped;
        if as_good && (last.epoch, last.lsn) == (wanted.epoch, wanted.lsn) {
            return Ok(Taken { manifest: last.clone(), changed: false });
        }
    }
    assert_eq!(wanted.generation as usize, before.len(), "generations are counted without gaps");
    let kept = kept_of(begun, &wanted);
    if kept.is_none() {
        set.drop_partial(wanted.generation)?;
    }
    let tables = kept.unwrap_or_default();
    let mut to = set.begin(Manifest { tables, ..wanted }, source.label())?;
    for table in source.tables() {
        let after = to.table(table)?;
        let mut old = Merged::of(set, before, table, after.as_deref())?;
        differences(source, table, &mut old, &mut to, after, (i, line))?;
    }
    Ok(Taken { manifest: to.finish()?, changed: true })
}

/// What a begun run copied, if it was of the same moment. The moment of an MGT beside it is another one in
/// each run: that is copied from its first key on.
fn kept_of(begun: Option<Manifest>, wanted: &Manifest) -> Option<BTreeMap<String, Vec<Part>>> {
    let mut b = begun?;
    if (&b.uuid, b.epoch, b.lsn, b.follows) != (&wanted.uuid, wanted.epoch, wanted.lsn, wanted.follows) {
        return None;
    }
    b.tables.remove(MGT);
    Some(b.tables)
}

fn manifest(kind: Kind, before: &[set::Generation], source: &Source) -> Manifest {
    let sb: &Superblock = source.label();
    let (epoch, lsn) = source.position();
    Manifest {
        format: set::FORMAT,
        target: source.name().to_string(),
        uuid: hex(&sb.target_uuid),
        kind: kind.word().to_string(),
        epoch,
        lsn,
        taken: source.taken(),
        stopped: source.view().is_none(),
        barrier: source.view().is_some() && kind == Kind::Mdt,
        generation: u32::try_from(before.len()).unwrap_or(u32::MAX),
        follows: before.last().map(|g| g.crc),
        view: source.view(),
        tables: BTreeMap::new(),
    }
}

/// What a table has that the backup has not, or has otherwise.
fn differences(
    source: &Source,
    table: &str,
    old: &mut Merged<'_>,
    to: &mut Writer<'_>,
    mut after: Option<Vec<u8>>,
    (i, line): (&Interrupt, &ProgressLine),
) -> Result<(), String> {
    let mut looked = 0u64;
    let mut was = old.next()?;
    loop {
        if i.stopped() {
            return Err("interrupted".into());
        }
        let TablePage { pairs, end } = source.page(table, after)?;
        for (k, v) in &pairs {
            while let Some((gone, _)) = was.as_ref().filter(|(o, _)| o < k) {
                to.push(gone, None)?;
                was = old.next()?;
            }
            let same = was.as_ref().is_some_and(|(o, old)| o == k && old == v);
            if was.as_ref().is_some_and(|(o, _)| o == k) {
                was = old.next()?;
            }
            if !same {
                to.push(k, Some(v))?;
            }
        }
        looked += pairs.len() as u64;
        let m = to.manifest();
        line.show(|| format!("{}: {looked} records looked at, {} bytes written", m.target, m.bytes()));
        match pairs.into_iter().last() {
            Some((k, _)) if !end => after = Some(k),
            _ => break,
        }
    }
    while let Some((gone, _)) = was {
        to.push(&gone, None)?;
        was = old.next()?;
    }
    Ok(())
}

/// `list` and `verify`.
fn look(verify: bool, out: &str, json: bool) -> Result<i32, String> {
    let out = absolute(out)?;
    crate::in_real_world(|world| async move {
        let set = Set::open(&world, &out, false)?;
        let all = set.generations()?;
        if all.is_empty() {
            return Err(format!("there is no backup in '{out}'"));
        }
        let mut bad = Vec::new();
        for g in &all {
            let m = &g.manifest;
            if !json {
                println!(
                    "{:04}  {}  {}  {} records, {} bytes, transaction {} of start {}{}",
                    m.generation,
                    m.target,
                    m.taken,
                    m.pairs(),
                    m.bytes(),
                    m.lsn,
                    m.epoch,
                    if m.stopped { ", stopped" } else { "" }
                );
            }
            if verify {
                bad.extend(g.damage(&set));
            }
        }
        if json {
            let generations: Vec<_> = all.iter().map(|g| described(&g.manifest)).collect();
            println!("{}", json!({ "generations": generations, "damage": bad }));
        }
        bad.iter().for_each(|b| eprintln!("nacre backup: {b}"));
        Ok(if bad.is_empty() { OK } else { DAMAGED })
    })
}
