//! `lfs getstripe`: where a file's bytes lie, or what a directory's new files get.

use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::local::{ask_about, strange};
use crate::size::parse_index;
use crate::{output, say};
use client::control::{Reply, Request, Stripe};
use model::layout::{Component, EOF, Pattern};
use model::{FileType, Layout, LayoutSpec};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use world::sys::files;

pub const USAGE: &str = "[-c|-S|-i|-p|-L|-g|-m|-F|-I|-E] [-d|-D] [-r|--recursive] [-R|--raw] [-q|--quiet] [-v|--verbose] \
[-y|--yaml] [-O|--ost OST] [--hex-idx] [--no-follow] [--json] PATH...";

const OPTS: &[Opt] = &[
    flag('c', "stripe-count"),
    flag('S', "stripe-size"),
    flag('i', "stripe-index"),
    flag('\0', "stripe-offset"),
    flag('p', "pool"),
    flag('L', "layout"),
    flag('g', "generation"),
    flag('m', "mdt-index"),
    flag('F', "fid"),
    flag('I', "component-id"),
    flag('E', "component-end"),
    flag('\0', "component-start"),
    flag('\0', "component-flags"),
    flag('\0', "component-count"),
    flag('N', "mirror-count"),
    flag('d', "directory"),
    flag('D', "default"),
    flag('r', "recursive"),
    flag('R', "raw"),
    flag('q', "quiet"),
    flag('v', "verbose"),
    flag('y', "yaml"),
    value('O', "ost"),
    flag('\0', "hex-idx"),
    flag('\0', "no-follow"),
    flag('\0', "json"),
];

/// Options that print one bare value.
const FIELDS: &[&str] = &[
    "stripe-count",
    "stripe-size",
    "stripe-index",
    "stripe-offset",
    "pool",
    "layout",
    "generation",
    "mdt-index",
    "fid",
    "component-id",
    "component-end",
    "component-start",
    "component-flags",
    "component-count",
    "mirror-count",
];

pub fn get(path: &Path) -> Result<Stripe, Failure> {
    match ask_about(path, "cannot get layout of", |name| Request::Getstripe { name })? {
        Reply::Stripe(s) => Ok(*s),
        other => Err(strange(path, &other)),
    }
}

pub fn pattern_word(p: Pattern) -> &'static str {
    match p {
        Pattern::Raid0 => "raid0",
        Pattern::Mdt => "mdt",
        Pattern::Parity { .. } => "raid0,parity",
    }
}

fn end_word(end: u64) -> String {
    if end == EOF { "EOF".to_string() } else { end.to_string() }
}

/// What a directory's new files get, and whether the directory says so itself.
fn effective(s: &Stripe) -> (LayoutSpec, bool) {
    let fs = s.fs_default.clone().unwrap_or_else(LayoutSpec::builtin).inherit(&LayoutSpec::builtin());
    let (mut d, own) = match &s.default {
        Some(d) => (d.clone().inherit(&fs), true),
        None => (fs, false),
    };
    // Unless somebody asks for objects, files begin on the metadata server.
    let asks = [&s.default, &s.fs_default].into_iter().flatten().any(LayoutSpec::names_objects);
    if let Some(n) = s.mdt_bytes.filter(|n| *n > 0 && !asks && d.mdt_bytes().is_none()) {
        d.set_mdt_bytes(n);
    }
    (d, own)
}

fn idx(i: i64, hex: bool) -> String {
    if hex && i >= 0 { format!("{i:#x}") } else { i.to_string() }
}

/// The first OST, or where the data lies with the inode that inode's MDT; −1 if there are no objects yet.
fn first_index(c: &Component) -> i64 {
    if c.pattern == Pattern::Mdt { 0 } else { c.objects.first().map_or(-1, |o| i64::from(o.ost)) }
}

fn file_field(field: &str, l: &Layout, s: &Stripe, hex: bool) -> String {
    let c = l.shown();
    match field {
        "stripe-count" => c.objects.len().to_string(),
        "stripe-size" => c.stripe_size.to_string(),
        "stripe-index" | "stripe-offset" => idx(first_index(c), hex),
        "pool" => c.pool.clone(),
        "layout" => pattern_word(c.pattern).to_string(),
        "generation" => l.generation.to_string(),
        "mdt-index" => "0".to_string(),
        "fid" => s.fid.to_string(),
        "component-id" => c.id.to_string(),
        "component-end" => end_word(c.end),
        "component-start" => c.start.to_string(),
        "component-flags" => "init".to_string(),
        "component-count" => if l.components.len() > 1 { l.components.len() } else { 0 }.to_string(),
        _ => "1".to_string(),
    }
}

fn dir_field(field: &str, d: &LayoutSpec, s: &Stripe, hex: bool) -> String {
    match field {
        "stripe-count" => d.stripe_count.to_string(),
        "stripe-size" => d.stripe_size.to_string(),
        "stripe-index" | "stripe-offset" => idx(i64::from(d.stripe_start), hex),
        "pool" => d.pool.clone(),
        "layout" => if d.mdt_bytes().is_some() { "mdt" } else { "raid0" }.to_string(),
        "fid" => s.fid.to_string(),
        "component-end" => "EOF".to_string(),
        _ => "0".to_string(),
    }
}

struct Printer {
    fields: Vec<&'static str>,
    raw: bool,
    quiet: bool,
    verbose: bool,
    yaml: bool,
    hex: bool,
    ost: Option<u16>,
}

impl Printer {
    fn new(p: &Parsed) -> Result<Printer, Failure> {
        let ost = match p.value("ost") {
            None => None,
            Some(v) => Some(parse_index(v).ok_or_else(|| Failure::usage(format!("bad OST '{v}'")))?),
        };
        Ok(Printer {
            fields: FIELDS.iter().filter(|f| p.has(f)).copied().collect(),
            raw: p.has("raw"),
            quiet: p.has("quiet"),
            verbose: p.has("verbose"),
            yaml: p.has("yaml"),
            hex: p.has("hex-idx"),
            ost,
        })
    }

    fn dir(&self, path: &Path, s: &Stripe) {
        let (d, own) = effective(s);
        let d = match (self.raw, own) {
            (true, false) => LayoutSpec::default(),
            (true, true) => s.default.clone().unwrap_or_default(),
            _ => d,
        };
        if !self.fields.is_empty() {
            self.values(path, |f| dir_field(f, &d, s, self.hex));
            return;
        }
        if self.ost.is_some() {
            return;
        }
        say!("{}", path.display());
        let Some(end) = d.mdt_bytes() else {
            say!("{}\n", self.dir_line(&d));
            return;
        };
        say!("  lcm_layout_gen:    0\n  lcm_mirror_count:  1\n  lcm_entry_count:   2");
        let mdt = format!("stripe_count:  0 stripe_size:   {end} pattern:       mdt stripe_offset: -1");
        for (start, end, line) in [(0, end, mdt), (end, EOF, self.dir_line(&d))] {
            say!("    lcme_id:             N/A\n    lcme_mirror_id:      N/A\n    lcme_flags:          0");
            say!("    lcme_extent.e_start: {start}\n    lcme_extent.e_end:   {}", end_word(end));
            say!("      {line}\n");
        }
    }

    /// What a directory says of objects, in one line.
    fn dir_line(&self, d: &LayoutSpec) -> String {
        let mut line = format!(
            "stripe_count:  {} stripe_size:   {} pattern:       raid0 stripe_offset: {}",
            d.stripe_count,
            d.stripe_size,
            idx(i64::from(d.stripe_start), self.hex)
        );
        if !d.pool.is_empty() {
            line.push_str(&format!(" pool:          {}", d.pool));
        }
        if !d.osts.is_empty() {
            let list: Vec<String> = d.osts.iter().map(u16::to_string).collect();
            line.push_str(&format!(" osts:          {}", list.join(",")));
        }
        line
    }

    fn values(&self, path: &Path, value: impl Fn(&str) -> String) {
        match self.fields.as_slice() {
            [one] => say!("{}", value(one)),
            many => {
                say!("{}", path.display());
                for f in many {
                    say!("{:<22}{}", format!("{}:", f.replace('-', "_")), value(f));
                }
            }
        }
    }

    fn file(&self, path: &Path, s: &Stripe) {
        let Some(l) = &s.layout else {
            if self.ost.is_none() {
                say!("{} has no stripe info", path.display());
            }
            return;
        };
        if self.ost.is_some_and(|i| !l.objects().any(|o| o.ost == i)) {
            return;
        }
        if !self.fields.is_empty() {
            self.values(path, |f| file_field(f, l, s, self.hex));
            return;
        }
        if self.quiet {
            for o in l.objects() {
                say!("{} {}", idx(i64::from(o.ost), self.hex), o.id);
            }
            return;
        }
        say!("{}", path.display());
        if l.components.len() == 1 && !self.yaml {
            self.plain(l, s);
        } else {
            self.composite(l);
        }
    }

    fn plain(&self, l: &Layout, s: &Stripe) {
        let c = l.shown();
        if self.verbose {
            say!("lmm_magic:         {}", if c.pool.is_empty() { "0x0BD10BD0" } else { "0x0BD30BD0" });
            say!("lmm_seq:           {:#x}", s.fid.seq);
            say!("lmm_object_id:     {:#x}", s.fid.oid);
            say!("lmm_fid:           {}", s.fid);
        }
        self.striping(c, l.generation, "");
        if c.pattern == Pattern::Mdt {
            say!("");
            return;
        }
        say!("\tobdidx\t\t objid\t\t objid\t\t group");
        for o in &c.objects {
            let f = o.id.origin;
            let ost = idx(i64::from(o.ost), self.hex);
            say!("\t{ost:>6}\t{:>14}\t{:>#13x}\t{:>#14x}", f.oid, f.oid, f.seq);
        }
        say!("");
    }

    fn striping(&self, c: &Component, generation: u32, indent: &str) {
        let first = first_index(c);
        say!("{indent}lmm_stripe_count:  {}", c.objects.len());
        say!("{indent}lmm_stripe_size:   {}", c.stripe_size);
        say!("{indent}lmm_pattern:       {}", pattern_word(c.pattern));
        say!("{indent}lmm_layout_gen:    {generation}");
        say!("{indent}lmm_stripe_offset: {}", idx(first, self.hex));
        if !c.pool.is_empty() {
            say!("{indent}lmm_pool:          {}", c.pool);
        }
    }

    fn objects(&self, c: &Component, indent: &str) {
        if c.objects.is_empty() {
            return;
        }
        say!("{indent}lmm_objects:");
        for (n, o) in c.objects.iter().enumerate() {
            if self.yaml {
                say!("{indent}- l_ost_idx: {}\n{indent}  l_fid:     {}", o.ost, yaml_fid(o.id.origin));
            } else {
                say!("{indent}- {n:>3}: {{ l_ost_idx: {:>3}, l_fid: {} }}", o.ost, o.id.origin);
            }
        }
        say!("");
    }

    fn composite(&self, l: &Layout) {
        if l.components.len() == 1 {
            self.striping(l.shown(), l.generation, "");
            self.objects(l.shown(), "");
            return;
        }
        say!("  lcm_layout_gen:    {}", l.generation);
        say!("  lcm_mirror_count:  1");
        say!("  lcm_entry_count:   {}", l.components.len());
        for c in &l.components {
            say!("    lcme_id:             {}", c.id);
            say!("    lcme_mirror_id:      {}", c.mirror);
            say!("    lcme_flags:          {}", if c.objects.is_empty() { "0" } else { "init" });
            say!("    lcme_extent.e_start: {}", c.start);
            say!("    lcme_extent.e_end:   {}", end_word(c.end));
            self.striping(c, l.generation, "      ");
            self.objects(c, "      ");
        }
    }
}

fn yaml_fid(f: model::Fid) -> String {
    f.to_string().trim_matches(['[', ']']).to_string()
}

fn as_json(path: &Path, s: &Stripe) -> serde_json::Value {
    if s.kind == FileType::Directory {
        let (d, own) = effective(s);
        return json!({"path": path, "fid": s.fid.to_string(), "type": "directory", "inherited": !own,
            "stripe_count": d.stripe_count, "stripe_size": d.stripe_size, "stripe_offset": d.stripe_start,
            "osts": d.osts, "pool": d.pool, "mdt_bytes": d.mdt_bytes()});
    }
    let components: Vec<_> = s.layout.iter().flat_map(|l| l.components.iter()).map(|c| {
        let objects: Vec<_> = c.objects.iter()
            .map(|o| json!({"ost": o.ost, "fid": o.id.origin.to_string(), "component": o.id.component, "stripe": o.id.stripe_number()}))
            .collect();
        json!({"id": c.id, "mirror": c.mirror, "start": c.start, "end": (c.end != EOF).then_some(c.end),
               "pattern": pattern_word(c.pattern), "stripe_count": c.objects.len(),
               "stripe_size": c.stripe_size, "pool": c.pool, "objects": objects})
    }).collect();
    json!({"path": path, "fid": s.fid.to_string(), "type": "file",
           "layout_gen": s.layout.as_ref().map(|l| l.generation), "components": components})
}

/// One path and, of a directory, its entries: one level, or all with `recursive`.
struct Walk<'a> {
    p: &'a Parsed,
    printer: Printer,
    errors: FirstError,
    rows: Vec<serde_json::Value>,
}

impl Walk<'_> {
    fn show(&mut self, path: &Path) -> Option<FileType> {
        let s = match get(path) {
            Ok(s) => s,
            Err(f) => {
                self.errors.report("lfs getstripe", &f);
                return None;
            }
        };
        if self.p.has("json") {
            self.rows.push(as_json(path, &s));
        } else if s.kind == FileType::Directory {
            self.printer.dir(path, &s);
        } else if s.kind == FileType::Regular && !self.p.has("default") {
            self.printer.file(path, &s);
        }
        Some(s.kind)
    }

    fn operand(&mut self, path: &Path) {
        let follow = !self.p.has("no-follow");
        let link = files::stat(path, false).is_ok_and(|s| s.mode & 0o170000 == 0o120000);
        let path: PathBuf = match (link && follow).then(|| files::canonical(path)) {
            Some(Ok(real)) => real,
            _ => path.to_path_buf(),
        };
        let kind = self.show(&path);
        let only_itself = self.p.has("directory") || (self.p.has("default") && !self.p.has("recursive"));
        if kind != Some(FileType::Directory) || only_itself {
            return;
        }
        let mut todo = vec![path];
        while let Some(dir) = todo.pop() {
            let names = match files::list_raw(&dir) {
                Ok(n) => n,
                Err(e) => {
                    let f = Failure::io("cannot list", &dir.display().to_string(), e);
                    self.errors.report("lfs getstripe", &f);
                    continue;
                }
            };
            let mut below = Vec::new();
            for n in names {
                let entry = dir.join(n);
                let file_or_dir = files::stat(&entry, false).is_ok_and(|s| s.is_dir() || s.is_file());
                if file_or_dir && self.show(&entry) == Some(FileType::Directory) {
                    below.push(entry);
                }
            }
            if self.p.has("recursive") {
                todo.extend(below.into_iter().rev());
            }
        }
    }
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, OPTS)?;
    if p.operands.is_empty() {
        return Err(Failure::usage("no path given"));
    }
    let mut w = Walk { p: &p, printer: Printer::new(&p)?, errors: FirstError::default(), rows: Vec::new() };
    for o in &p.operands {
        w.operand(Path::new(o));
    }
    if p.has("json") {
        output::json(&json!(w.rows));
    }
    Ok(w.errors)
}
