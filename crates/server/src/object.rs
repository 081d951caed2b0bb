//! `nacre object`: one object of a stopped object target, as its folder has it: whose it is, where its bytes
//! lie, whether they are what was written; and its bytes. Changes nothing.

use crate::fsck::objects::{Part, read_all};
use crate::fsck::targets::{self, Role, Target};
use model::layout::{EOF, ObjectLabel};
use model::{Fid, ObjectId};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::Arc;
use store::StoreError;
use store::object::Objects;
use store::object::location::{
    Location, ObjectRecord, TAG_OBJECT, TAG_TOMBSTONE, container_path, id_of_key, object_key, own_path,
};
use world::World;
use world::sys::files;

const EXIT_FINE: i32 = 0;
/// Something of it is not what was written, or cannot be read.
const EXIT_BAD: i32 = 4;
const EXIT_OPERATIONAL: i32 = 8;
const EXIT_USAGE: i32 = 16;
/// Objects of one file that are shown: its stripes on one target, in all of its components.
const OBJECTS_MAX: usize = 100_000;
const PAGE: usize = 1000;

const USAGE: &str = "\
usage: nacre object show [--json] DIR {OBJECT | FID}
       nacre object dump DIR OBJECT >FILE

Looks at an object of an object target whose server does not run, in the target's
folder DIR: which file it is of, stripe, size, space, checksums, where in the folder
its bytes lie; of a file (FID) at all that it has there. dump writes the bytes of one
to standard output, blocks that are not what was written as zeros.
An OBJECT is named as fsck and scrub name it: [0x200000401:0x7:0x0].1.0

exit status: 0 fine, 4 some bytes are not what was written, 8 could not look, 16 wrong usage
";

#[derive(Debug, PartialEq, Eq)]
enum What {
    Object(ObjectId),
    File(Fid),
}

/// As [`ObjectId`] prints itself, or a FID.
fn named(text: &str) -> Option<What> {
    if let Ok(fid) = text.parse() {
        return Some(What::File(fid));
    }
    let mut parts = text.rsplitn(3, '.');
    let (stripe, component, origin) = (parts.next()?, parts.next()?, parts.next()?);
    let origin = origin.parse().ok()?;
    Some(What::Object(ObjectId { origin, component: component.parse().ok()?, stripe: stripe.parse().ok()? }))
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    dump: bool,
    json: bool,
    dir: String,
    what: What,
}

fn parse(args: &[OsString]) -> Result<Options, String> {
    let words: Vec<String> = args.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let json = words.iter().any(|w| w == "--json");
    let rest: Vec<&str> = words.iter().map(String::as_str).filter(|w| *w != "--json").collect();
    if let Some(o) = rest.iter().find(|w| w.starts_with('-')) {
        return Err(format!("unknown option '{o}'"));
    }
    let [verb, dir, what] = rest.as_slice() else {
        return Err("show or dump, a folder, and an object".into());
    };
    let what = named(what).ok_or_else(|| format!("'{what}' names no object, and is no FID"))?;
    let dump = match *verb {
        "show" => false,
        "dump" if json => return Err("--json goes with show".into()),
        "dump" if matches!(what, What::File(_)) => {
            return Err("a file may have several objects: show names them".into());
        }
        "dump" => true,
        other => return Err(format!("'{other}': show or dump")),
    };
    Ok(Options { dump, json, dir: (*dir).to_string(), what })
}

/// The records that are meant, in order.
fn records(t: &Target, what: &What) -> Result<Vec<(ObjectId, ObjectRecord)>, String> {
    let says = |e: StoreError| e.to_string();
    let (mut from, to) = match what {
        What::Object(id) => {
            let Some(v) = t.db.get(&object_key(*id)).map_err(says)? else { return Ok(Vec::new()) };
            return Ok(vec![(*id, ObjectRecord::decode(*id, &v).map_err(says)?)]);
        }
        What::File(fid) => {
            let id = |n| ObjectId { origin: *fid, component: n, stripe: n };
            let mut to = object_key(id(u32::MAX));
            to.push(0);
            (object_key(id(0)), to)
        }
    };
    let mut out = Vec::new();
    loop {
        let page = t.db.scan(&from, &to, PAGE).map_err(says)?;
        for (k, v) in &page {
            let id = id_of_key(k).ok_or("a key of an object has a wrong length: see nacre fsck")?;
            out.push((id, ObjectRecord::decode(id, v).map_err(says)?));
        }
        match page.last() {
            Some((k, _)) if page.len() == PAGE && out.len() < OBJECTS_MAX => {
                from.clone_from(k);
                from.push(0);
            }
            _ => return Ok(out),
        }
    }
}

/// Why there is no record.
fn missing(t: &Target, what: &What) -> String {
    match what {
        What::File(fid) => format!("{} has no object of {fid}", t.label),
        What::Object(id) => {
            let mut tombstone = object_key(*id);
            assert_eq!(tombstone[0], TAG_OBJECT, "keys of objects begin with their tag");
            tombstone[0] = TAG_TOMBSTONE;
            let gone = matches!(t.db.get(&tombstone), Ok(Some(_)));
            let why = if gone { "was destroyed" } else { "was never written" };
            format!("{}: object {id} {why}", t.label)
        }
    }
}

/// Reads an object and gives `out` its bytes, zeros for blocks that are not what was written. Where those
/// begin.
async fn read(
    objects: &Arc<Objects>,
    object: (ObjectId, u64),
    mut out: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<Vec<u64>, String> {
    let mut bad = Vec::new();
    let all = read_all(objects, object, |part| match part {
        Part::Bytes(b) => out(b),
        Part::Bad(b) => {
            bad.push(b.at);
            out(&vec![0; b.len as usize])
        }
    });
    all.await.map_err(|e| e.what)?;
    Ok(bad)
}

/// Where its bytes lie: what kind of place, the file, and where in it.
fn place(dir: &str, id: ObjectId, l: &Location) -> (&'static str, Option<String>, u64) {
    match l {
        Location::Inline(_) => ("inline", None, 0),
        Location::Packed(p) => ("packed", Some(container_path(dir, p.class, p.container)), p.start()),
        Location::Own => ("own", Some(own_path(dir, id)), 0),
    }
}

fn as_json(t: &Target, id: ObjectId, r: &ObjectRecord, bad: &Result<Vec<u64>, String>) -> Value {
    let (kind, path, start) = place(&t.dir, id, &r.location);
    let a = &r.attr;
    json!({"target": t.label, "object": id.to_string(), "fid": r.file.to_string(),
        "component": id.component, "stripe": id.stripe_number(), "size": a.size, "blocks": a.blocks,
        "mtime": a.mtime.sec, "data_version": a.data_version, "uid": r.owner.uid, "gid": r.owner.gid, "projid": r.owner.projid,
        "layout_generation": r.layout_generation, "label": label_json(r),
        "location": {"kind": kind, "path": path, "offset": start},
        "bad_blocks": bad.as_ref().ok(), "error": bad.as_ref().err()})
}

fn label_json(r: &ObjectRecord) -> Option<Value> {
    let l = ObjectLabel::decode(&r.label)?;
    let c = &l.component;
    let objects = c.objects.iter().map(|o| json!({"ost": o.ost, "object": o.id.to_string()}));
    Some(json!({"generation": l.generation, "component": c.id, "start": c.start,
        "end": (c.end != EOF).then_some(c.end), "stripe_size": c.stripe_size, "pool": c.pool,
        "objects": objects.collect::<Vec<_>>()}))
}

/// What it knows of its component.
fn label_words(r: &ObjectRecord) -> String {
    let Some(l) = ObjectLabel::decode(&r.label) else { return "none".into() };
    let c = &l.component;
    let end = if c.end == EOF { "EOF".to_string() } else { c.end.to_string() };
    let osts: Vec<String> = c.objects.iter().map(|o| o.ost.to_string()).collect();
    let stripes = format!("stripes of {} bytes on OSTs {}", c.stripe_size, osts.join(","));
    format!(
        "component {}, {}-{end} of the file, {stripes} (layout generation {})",
        c.id, c.start, l.generation
    )
}

fn show(t: &Target, id: ObjectId, r: &ObjectRecord, bad: &Result<Vec<u64>, String>) {
    let (kind, path, start) = place(&t.dir, id, &r.location);
    let at = match path {
        None => "in its record in the table".to_string(),
        Some(p) => format!("'{p}', from byte {start} on ({kind})"),
    };
    let sums = match bad {
        Ok(b) if b.is_empty() => "all bytes are what was written".to_string(),
        Ok(b) => format!("{} blocks are not what was written, the first at byte {}", b.len(), b[0]),
        Err(e) => e.clone(),
    };
    let a = &r.attr;
    println!("object:            {id} of {}", t.label);
    println!("file:              {}", r.file);
    println!("stripe:            {} of component {}", id.stripe_number(), id.component);
    println!("size:              {}", a.size);
    println!("blocks:            {}", a.blocks);
    println!("owner:             {}:{}, project {}", r.owner.uid, r.owner.gid, r.owner.projid);
    println!("mtime:             {}", a.mtime.sec);
    println!("data version:      {}", a.data_version);
    println!("layout generation: {}", r.layout_generation);
    println!("label:             {}", label_words(r));
    println!("bytes:             {at}");
    println!("checksums:         {sums}");
}

async fn look(t: &Target, o: &Options) -> Result<i32, String> {
    if t.role != Role::Ost {
        return Err(format!("{} is no object target", t.label));
    }
    let found = records(t, &o.what)?;
    if found.is_empty() {
        return Err(missing(t, &o.what));
    }
    let objects = t.objects().map_err(|e| e.to_string())?;
    let (mut worst, mut rows) = (EXIT_FINE, Vec::new());
    for (id, r) in &found {
        let out = |b: &[u8]| match o.dump {
            true => io::stdout().write_all(b).map_err(|e| format!("cannot write: {e}")),
            false => Ok(()),
        };
        let bad = read(&objects, (*id, r.attr.size), out).await;
        if bad.as_ref().map_or(true, |b| !b.is_empty()) {
            worst = EXIT_BAD;
        }
        match (&bad, o.dump, o.json) {
            (Ok(b), true, _) if b.is_empty() => {}
            (Ok(b), true, _) => eprintln!("nacre object: {} blocks are not what was written", b.len()),
            (Err(e), true, _) => return Err(e.clone()),
            (_, _, true) => rows.push(as_json(t, *id, r, &bad)),
            (_, _, false) => show(t, *id, r, &bad),
        }
    }
    if o.json {
        println!("{:#}", Value::Array(rows));
    }
    io::stdout().flush().map_err(|e| format!("cannot write: {e}"))?;
    Ok(worst)
}

async fn run(world: &World, o: &Options) -> Result<i32, String> {
    let dir = files::canonical(&o.dir).map_err(|e| e.to_string())?.to_string_lossy().into_owned();
    let t = targets::open(world, &dir, false, false)?;
    let r = look(&t, o).await;
    t.close().await.and(r)
}

/// The command: arguments behind `object`.
pub fn main(args: &[OsString]) -> i32 {
    if args.iter().any(|a| a == "--help" || a == "-h") {
        print!("{USAGE}");
        return EXIT_FINE;
    }
    let o = match parse(args) {
        Ok(o) => o,
        Err(e) => {
            eprintln!("nacre object: {e}\n\n{USAGE}");
            return EXIT_USAGE;
        }
    };
    let o = &o;
    crate::in_real_world(|world| async move { run(&world, o).await }).unwrap_or_else(|e| {
        eprintln!("nacre object: {}: {e}", o.dir);
        EXIT_OPERATIONAL
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_as_it_prints_itself_and_a_file_by_its_fid() {
        let id = ObjectId { origin: Fid::new(0x2_0000_0401, 7, 0), component: 1, stripe: 3 };
        assert_eq!(named(&id.to_string()), Some(What::Object(id)));
        assert_eq!(named("[0x200000401:0x7:0x0]"), Some(What::File(id.origin)));
        for bad in ["", "x.1.2", "[0x200000401:0x7:0x0].1", "[0x200000401:0x7:0x0].1.x"] {
            assert_eq!(named(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let said = |line: &str| {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            parse(&args).err().unwrap_or_default()
        };
        assert!(said("dump /d [0x200000401:0x7:0x0]").contains("several objects"));
        assert!(said("show --jsn /d [0x200000401:0x7:0x0]").contains("--jsn"));
        assert!(said("look /d [0x200000401:0x7:0x0]").contains("look"));
        assert_eq!(said("show --json /d [0x200000401:0x7:0x0].1.0"), "");
    }
}
