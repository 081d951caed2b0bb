//! `nacre restore`: a target's folder is made of a backup.

use super::set::{Generation, Manifest, Merged, Set, unhex};
use super::{DAMAGED, Kind, MGT, OK, TABLE, WRONG, absolute, not_utf8, resumable, status_of};
use admin::command::mkfs::MGT_SUBDIR;
use admin::command::with_page;
use admin::failure::Failure;
use admin::interrupt::Interrupt;
use admin::live::ProgressLine;
use mds::schema::{key, value};
use model::hex;
use serde_json::json;
use std::ffi::OsString;
use std::sync::Arc;
use store::format::Superblock;
use store::{Db, DbOptions, Txn};
use world::World;
use world::sys::files;

const USAGE: &str = "\
usage: nacre restore mdt|mgt|ost-labels OUT DIR [--generation N] [--keep-clients] [--json] [--quiet]

Makes the folder DIR a target again, of the backup in OUT (nacre backup). DIR is empty or not there; for ost-labels it may
have its objects. Interrupted, it goes on where it was if it is called again.

  --generation N   as of that generation (nacre backup list); the newest unless told otherwise
  --keep-clients   the backup is of a stopped target that was not started since: clients that wait for it go on. Without
                   it they are evicted, for they may know of changes that the backup has not
  --json           one JSON document
  --quiet          nothing but errors

exit status: 0 done, 4 the backup is damaged, 8 could not, 16 wrong usage
";

/// A target of a backup is started as if it had been started so often since: clients and MGS refuse older
/// starts than they have seen. Half of what the MGS believes (`mgs::registration::EPOCH_JUMP_MAX`).
const STARTS_SKIPPED: u32 = 500;
/// Sequences that may have been given to clients since; they are given to nobody again, for objects may have
/// been made with them.
const SEQUENCES_SKIPPED: u64 = 1 << 24;
/// Bytes of one transaction.
const TXN_BYTES: usize = 1 << 20;
/// Transactions between two notes how far it is.
const NOTE_EVERY: u32 = 32;
/// Where that is noted.
const NOTE: &str = "restoring";

#[derive(Debug, Default)]
struct Options {
    words: Vec<String>,
    generation: Option<usize>,
    keep_clients: bool,
    json: bool,
    quiet: bool,
}

fn parse(args: &[OsString]) -> Result<Options, Failure> {
    let mut o = Options::default();
    let mut args = args.iter();
    while let Some(a) = args.next() {
        let a = a.to_str().ok_or_else(|| not_utf8(a))?;
        match a.split_once('=').map_or((a, None), |(n, v)| (n, Some(v))) {
            ("--generation", v) => {
                let v = v
                    .or_else(|| args.next().and_then(|a| a.to_str()))
                    .ok_or_else(|| Failure::usage("--generation needs a number"))?;
                let bad = |_| Failure::usage(format!("--generation '{v}': a number"));
                o.generation = Some(v.parse().map_err(bad)?);
            }
            ("--keep-clients", None) => o.keep_clients = true,
            ("--json", None) => o.json = true,
            ("--quiet" | "-q", None) => o.quiet = true,
            _ if a.starts_with('-') => return Err(Failure::usage(format!("unknown option '{a}'"))),
            _ => o.words.push(a.to_string()),
        }
    }
    Ok(o)
}

/// The command: arguments behind `restore`.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre restore", USAGE), args, status_of, command)
}

fn command(args: &[OsString]) -> Result<i32, Failure> {
    let o = &parse(args)?;
    let (kind, out, dir) = match o.words.as_slice() {
        [file, ..] if file == "file" => {
            eprintln!(
                "nacre restore: a backup of an MDT has no bytes of files: restore the MDT into another folder and look at it, or copy \
                 the file from a copy of the data (nacre copy)"
            );
            return Ok(WRONG);
        }
        [kind, ..] if Kind::parse(kind).is_none() => {
            return Err(Failure::usage(format!("'{kind}' is none: mdt|mgt|ost-labels OUT DIR")));
        }
        [kind, out, dir] => (Kind::parse(kind).expect("looked at"), out, dir),
        _ => return Err(Failure::usage("what, from which backup, into which folder?")),
    };
    resumable("nacre restore", async |world, i| {
        let line = ProgressLine::for_terminal(o.quiet || o.json);
        let done = restore(&world, kind, (&absolute(out)?, &absolute(dir)?), o, (i, &line)).await;
        line.clear();
        done
    })
}

/// What is damaged is printed, and told by the exit status.
async fn restore(
    world: &World,
    kind: Kind,
    (out, dir): (&str, &str),
    o: &Options,
    (i, line): (&Interrupt, &ProgressLine),
) -> Result<i32, String> {
    let set = Set::open(world, out, false)?;
    let all = set.generations()?;
    let Some(newest) = all.len().checked_sub(1) else {
        return Err(format!("there is no complete backup in '{out}'"));
    };
    let wanted = o.generation.unwrap_or(newest);
    if wanted > newest {
        return Err(format!("'{out}' has generations 0 to {newest}, not {wanted}"));
    }
    let used = &all[..=wanted];
    let m = &used[wanted].manifest;
    if m.kind != kind.word() {
        return Err(format!(
            "'{out}' is a backup of {} ({}), not for 'nacre restore {}'",
            m.target,
            m.kind,
            kind.word()
        ));
    }
    if o.keep_clients && !m.stopped {
        return Err(format!(
            "generation {wanted} of '{out}' was taken while {} was served: --keep-clients is for stopped ones",
            m.target
        ));
    }
    line.show(|| format!("{}: the backup is checked", m.target));
    let bad: Vec<String> = used.iter().flat_map(|g| g.damage(&set)).collect();
    if !bad.is_empty() {
        let hint = "nothing was restored; an older generation may be whole: nacre backup verify";
        line.print(&format!("nacre restore: {}\n{hint}", bad.join("\n")));
        return Ok(DAMAGED);
    }
    let mut sb = used[wanted].label(&set)?;
    let starts = if o.keep_clients { 1 } else { STARTS_SKIPPED };
    sb.epoch = sb
        .epoch
        .max(m.epoch)
        .checked_add(starts)
        .ok_or_else(|| format!("{} used up its starts", m.target))?;
    if sb.target.kind != kind.of() {
        let of = sb.target.label(&sb.fsname);
        line.print(&format!(
            "nacre restore: generation {wanted} of '{out}' is damaged: its label is of {of}"
        ));
        return Ok(DAMAGED);
    }
    let mut work = Work {
        world,
        set: &set,
        used,
        m,
        keep_clients: o.keep_clients,
        kind,
        dir,
        sb: &sb,
        i,
        line,
        pairs: 0,
        starts: 0,
    };
    work.run().await?;
    line.clear();
    if o.json || !o.quiet {
        println!("{}", said(&work, o.json));
    }
    Ok(OK)
}

fn said(w: &Work<'_>, json: bool) -> String {
    let (m, dir) = (w.m, w.dir);
    if json {
        return json!({
            "target": m.target, "generation": m.generation, "lsn": m.lsn, "records": w.pairs, "epoch": w.sb.epoch, "dir": dir,
        })
        .to_string();
    }
    let next = match w.kind {
        Kind::OstLabels => format!(
            "nacre fsck --repair {dir} compares the records with the objects that are there, before it is started"
        ),
        _ => format!(
            "nacre fsck {dir} checks it, nacred {dir} serves it; the old one must not be started any more"
        ),
    };
    format!("'{dir}' is {} as of generation {:04}: {} records.\n{next}", m.target, m.generation, w.pairs)
}

struct Work<'a> {
    world: &'a World,
    set: &'a Set,
    used: &'a [Generation],
    m: &'a Manifest,
    keep_clients: bool,
    kind: Kind,
    dir: &'a str,
    sb: &'a Superblock,
    i: &'a Interrupt,
    line: &'a ProgressLine,
    /// Records that are there, those of earlier runs included.
    pairs: u64,
    /// How often the present database was opened to be filled, by earlier runs, too.
    starts: u32,
}

impl Work<'_> {
    /// What an interrupted run is known by.
    fn token(&self) -> String {
        let crc = self.used.last().map_or(0, |g| g.crc);
        format!("{} {crc:08x} {}", self.m.target, self.keep_clients)
    }

    fn note(&self) -> String {
        format!("{}/{NOTE}", self.dir)
    }

    async fn run(&mut self) -> Result<(), String> {
        let done = self.begin()?;
        let mut tables: Vec<&str> = self.m.tables.keys().map(String::as_str).collect();
        // The target's own last: with it the folder is whole.
        tables.sort_by_key(|t| *t == TABLE);
        for table in tables {
            let after = match &done {
                Some((t, _)) if t == TABLE && table == MGT => continue,
                Some((t, key)) if t == table => Some(key.clone()),
                _ => None,
            };
            self.fill(table, after).await?;
        }
        assert!(self.starts > 0, "a target has a table at least");
        let disk = &self.world.disk;
        let says = |e: store::StoreError| e.to_string();
        let mmp = format!("{}/mmp", self.dir);
        if !disk.exists(&mmp).map_err(|e| format!("cannot look at '{mmp}': {e}"))? {
            store::mmp::format(self.world, self.dir).map_err(says)?;
        }
        self.sb.write(self.world, self.dir).map_err(says)?;
        let note = self.note();
        files::remove_file(&note).map_err(|e| format!("cannot remove '{note}': {e}"))
    }

    /// The folder is empty, or what an interrupted run left: then how far that was.
    fn begin(&mut self) -> Result<Option<(String, Vec<u8>)>, String> {
        let dir = self.dir;
        files::create_dir_all(dir).map_err(|e| format!("cannot make '{dir}': {e}"))?;
        let there = files::list(dir).map_err(|e| format!("cannot list '{dir}': {e}"))?;
        if there.iter().any(|n| n == NOTE) {
            let note = self.note();
            let text = files::read_to_string(&note).map_err(|e| format!("cannot read '{note}': {e}"))?;
            let mut lines = text.lines();
            if lines.next() != Some(&self.token()) {
                return Err(format!("'{dir}' is being restored from another backup: empty it first"));
            }
            let place = lines.next().and_then(|l| l.split_once(' ')).unwrap_or_default();
            self.starts = lines.next().and_then(|l| l.parse().ok()).unwrap_or(0);
            let key = unhex(place.1).filter(|k| !k.is_empty());
            if key.is_some() {
                self.pairs = lines.next().and_then(|l| l.parse().ok()).unwrap_or(0);
            }
            return Ok(key.map(|k| (place.0.to_string(), k)));
        }
        let may_be = |n: &&String| *n == "lost+found" || self.kind == Kind::OstLabels && *n == "objects";
        if let Some(n) = there.iter().find(|n| !may_be(n)) {
            return Err(format!("'{dir}' is not empty ('{n}'): name an empty folder"));
        }
        self.write_note("", &[])?;
        if self.kind == Kind::OstLabels && !there.iter().any(|n| n == "objects") {
            store::object::Objects::create(self.world, dir).map_err(|e| e.to_string())?;
        }
        Ok(None)
    }

    fn write_note(&self, table: &str, key: &[u8]) -> Result<(), String> {
        let note = self.note();
        let text = format!("{}\n{table} {}\n{}\n{}\n", self.token(), hex(key), self.starts, self.pairs);
        files::replace(&note, text.as_bytes()).map_err(|e| format!("cannot write '{note}': {e}"))
    }

    /// One database, behind a key.
    async fn fill(&mut self, table: &str, after: Option<Vec<u8>>) -> Result<(), String> {
        let dir = if table == MGT { format!("{}/{MGT_SUBDIR}", self.dir) } else { self.dir.to_string() };
        let says = |e: store::StoreError| e.to_string();
        files::create_dir_all(&dir).map_err(|e| format!("cannot make '{dir}': {e}"))?;
        if after.is_none() {
            // What a run left that did not come to its first note.
            for n in ["journal", "table.redb"] {
                let p = format!("{dir}/{n}");
                let gone = match files::stat(p.as_ref(), false) {
                    Ok(s) if s.is_dir() => files::remove_tree(&p),
                    Ok(_) => files::remove_file(&p),
                    Err(_) => Ok(()),
                };
                gone.map_err(|e| format!("cannot remove '{p}': {e}"))?;
            }
            Db::create(self.world, &dir).map_err(says)?;
            self.starts = 0;
        }
        // Each run opens it as a later start, and all are before the target's own.
        self.starts += 1;
        if self.starts >= self.sb.epoch {
            return Err(format!("'{dir}' was begun too often: empty it, and begin anew"));
        }
        self.write_note(table, after.as_deref().unwrap_or_default())?;
        assert!(self.starts < self.sb.epoch, "the target's own start is later than all that filled it");
        let db = Db::open(self.world, &dir, self.starts, DbOptions::default()).map_err(says)?;
        let filled = self.fill_db(&db, table, after.as_deref()).await;
        let closed = db.close().await.map_err(says);
        filled.and(closed)
    }

    async fn fill_db(&mut self, db: &Arc<Db>, table: &str, after: Option<&[u8]>) -> Result<(), String> {
        let says = |e: store::StoreError| e.to_string();
        let (set, used) = (self.set, self.used);
        let mut from = Merged::of(set, used, table, after)?;
        let (mut txn, mut bytes, mut txns, mut last) = (Txn::new(), 0, 0u32, Vec::new());
        while let Some((k, v)) = from.next()? {
            bytes += k.len() + v.len();
            last.clone_from(&k);
            if let Some(v) = self.kept(table, &k, v)? {
                txn.put(k, v);
                self.pairs += 1;
            }
            if bytes < TXN_BYTES {
                continue;
            }
            let lsn = db.submit(std::mem::take(&mut txn)).map_err(says)?;
            assert!(!last.is_empty(), "what was written ends with a key");
            (bytes, txns) = (0, txns + 1);
            if self.i.stopped() || txns % NOTE_EVERY == 0 {
                db.durable(lsn).await.map_err(says)?;
                self.write_note(table, &last)?;
                self.line.show(|| format!("{}: {} records", self.m.target, self.pairs));
            }
            if self.i.stopped() {
                return Err("interrupted".into());
            }
        }
        let lsn = db.submit(txn).map_err(says)?;
        db.durable(lsn).await.map_err(says)
    }

    /// A pair as it is to be in the new folder, if at all.
    fn kept(&self, table: &str, k: &[u8], v: Vec<u8>) -> Result<Option<Vec<u8>>, String> {
        assert!(!k.is_empty(), "keys begin with their tag");
        let mdt = self.kind == Kind::Mdt && table == TABLE;
        if mdt && k == key::STATE_BARRIER {
            return Ok(None);
        }
        if self.keep_clients || table == MGT || self.kind == Kind::Mgt {
            return Ok(Some(v));
        }
        // MDT and OST have the same tag for clients, and all have it for replies.
        if k[0] == key::CLIENT || k[0] == key::REPLY {
            return Ok(None);
        }
        if mdt && k == key::STATE_NEXT_SEQ {
            let next = value::decode_u64(k, &v).map_err(|e| e.to_string())?;
            return Ok(Some(value::encode_u64(next.saturating_add(SEQUENCES_SKIPPED))));
        }
        Ok(Some(v))
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
