//! `lfs getstripe`: where a file's bytes lie, or what a directory's new files get.

mod filter;
pub(super) mod part;
mod text;
mod visit;

pub(super) use filter::parse_flags;
pub(super) use part::effective;

use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Opt, Parsed, flag, maybe, value};
use crate::interrupt::{self, Interrupt};
use crate::live::ProgressLine;
use crate::local::{ask_about, strange};
use crate::size::parse_index;
use crate::walk::{self, Mounted, Run, THREADS_MAX};
use client::control::{Reply, Request, Stripe};
use filter::Filter;
use model::layout::{EOF, Pattern};
use model::{Fid, FileType};
use part::{Part, Parts};
use serde_json::json;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use text::Style;
use visit::{LayoutOutput, Piece};
use world::sys::files;

pub const USAGE: &str = "[-c|-S|-i|-p|-L|-g|-m|-F|-z|-N] [-I[ID]|--component-id[=ID]] [-E[+|-]OFFSET|--component-end[=OFFSET]] \
[--component-start[=[+|-]OFFSET]] [--component-flags[=[^]FLAG,...]] [--component-count] [[!] --mirror-index=[+|-]N] \
[[!] --mirror-id=[+|-]ID] [-d|-D] [-r|--recursive] [-R|--raw] [-q|--quiet] [-v|--verbose] [-y|--yaml] [-O|--ost OST] \
[--hex-idx] [--no-follow] [--threads N] [--json] PATH...";

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
    flag('z', "extension-size"),
    maybe('I', "component-id"),
    maybe('E', "component-end"),
    maybe('\0', "component-start"),
    maybe('\0', "component-flags"),
    flag('\0', "component-count"),
    flag('N', "mirror-count"),
    value('\0', "mirror-index"),
    value('\0', "mirror-id"),
    // `! --mirror-index`, `! --mirror-id`.
    value('\0', "not-mirror-index"),
    value('\0', "not-mirror-id"),
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
    value('\0', "threads"),
    flag('\0', "json"),
];

/// Options that print one bare value, if they stand without one.
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
    "component-start",
    "component-end",
    "component-flags",
    "component-count",
    "extension-size",
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

/// `! --mirror-id=1` as one option, which it is for nobody who reads options by their names.
fn without_marks(args: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let mut out = Vec::with_capacity(args.len());
    let mut it = args.iter();
    while let Some(a) = it.next() {
        if a != "!" {
            out.push(a.clone());
            continue;
        }
        let next = it.next().and_then(|n| n.to_str()).unwrap_or_default();
        let name = next.strip_prefix("--").filter(|n| n.starts_with("mirror-i"));
        let name = name.ok_or_else(|| Failure::usage("'!' goes before --mirror-index or --mirror-id"))?;
        out.push(format!("--not-{name}").into());
    }
    Ok(out)
}

struct Printer {
    fields: Vec<&'static str>,
    filter: Filter,
    style: Style,
    raw: bool,
    quiet: bool,
    ost: Option<u16>,
}

impl Printer {
    fn new(p: &Parsed) -> Result<Printer, Failure> {
        let ost = match p.value("ost") {
            None => None,
            Some(v) => Some(parse_index(v).ok_or_else(|| Failure::usage(format!("bad OST '{v}'")))?),
        };
        let bare = |f: &&&str| p.options.iter().any(|(o, v)| o == *f && v.is_none());
        Ok(Printer {
            fields: FIELDS.iter().filter(bare).copied().collect(),
            filter: Filter::new(p)?,
            style: Style { verbose: p.has("verbose"), yaml: p.has("yaml"), hex: p.has("hex-idx") },
            raw: p.has("raw"),
            quiet: p.has("quiet"),
            ost,
        })
    }

    fn heading(&self, path: &Path, out: &mut Piece) {
        if self.style.yaml {
            out.begin_document();
        }
        out.text += &self.style.heading(path);
    }

    fn dir(&self, path: &Path, s: &Stripe, out: &mut Piece) {
        let l = match self.raw {
            true => text::raw(s.default.clone()),
            false => Parts::of_spec(&effective(s).0),
        };
        if !self.fields.is_empty() {
            out.text += &self.values(path, s, &l);
        } else if self.ost.is_none() {
            self.heading(path, out);
            out.text += &self.style.directory(&l, &self.filter.select(&l));
        }
    }

    /// The chosen fields of the chosen components: bare values if it is one field.
    fn values(&self, path: &Path, s: &Stripe, l: &Parts) -> String {
        value_lines(&self.fields, path, (s, l), &self.filter, self.style)
    }

    fn file(&self, path: &Path, s: &Stripe, out: &mut Piece) {
        let Some(l) = Parts::of_file(s) else {
            if self.ost.is_none() && !self.style.yaml {
                out.text += &format!("{} has no stripe info\n", path.display());
            }
            return;
        };
        let lies_there =
            |i: u16| l.parts.iter().flat_map(|p| &p.objects).any(|(ost, f)| *ost == i && *f != Fid::NONE);
        if self.ost.is_some_and(|i| !lies_there(i)) {
            return;
        }
        if !self.fields.is_empty() {
            out.text += &self.values(path, s, &l);
            return;
        }
        let chosen = self.filter.select(&l);
        if self.quiet {
            let ids = chosen_ids(&chosen);
            for o in s
                .layout
                .iter()
                .flat_map(|l| &l.components)
                .filter(|c| ids.contains(&c.id))
                .flat_map(|c| &c.objects)
            {
                out.text += &format!("{} {}\n", self.style.index(i64::from(o.ost)), o.id);
            }
            return;
        }
        self.heading(path, out);
        out.text += &self.style.file(s, &l, &chosen);
    }
}

fn chosen_ids(chosen: &[&Part]) -> Vec<u32> {
    chosen.iter().map(|p| p.id).collect()
}

/// One field: bare values, one a line. Several: the path, and each with its name.
fn value_lines(
    fields: &[&str],
    path: &Path,
    (s, l): (&Stripe, &Parts),
    filter: &Filter,
    style: Style,
) -> String {
    let chosen = filter.of_values(l);
    if let [one] = fields {
        let upto = if text::is_of_file(one) { 1 } else { chosen.len() };
        return chosen.iter().take(upto).map(|p| text::value(one, s, l, p, style) + "\n").collect();
    }
    let mut t = format!("{}\n", path.display());
    for p in chosen {
        for f in fields {
            t += &format!("{:<22}{}\n", format!("{}:", f.replace('-', "_")), text::value(f, s, l, p, style));
        }
    }
    t
}

fn as_json(path: &Path, s: &Stripe, filter: &Filter) -> serde_json::Value {
    let components = |l: &Parts| -> Vec<serde_json::Value> {
        filter.select(l).into_iter().map(|p| part_as_json(s, l, p)).collect()
    };
    if s.kind == FileType::Directory {
        let (d, own) = effective(s);
        let l = Parts::of_spec(&d);
        let main = l.striping_of(l.main());
        let osts: Vec<u16> = main.objects.iter().map(|(ost, _)| *ost).collect();
        return json!({"path": path, "fid": s.fid.to_string(), "type": "directory", "inherited": !own,
            "stripe_count": main.stripe_count, "stripe_size": main.stripe_size, "stripe_offset": main.offset,
            "osts": osts, "pool": main.pool, "mdt_bytes": d.mdt_bytes(), "components": components(&l)});
    }
    let l = Parts::of_file(s);
    json!({"path": path, "fid": s.fid.to_string(), "type": "file",
           "layout_gen": l.as_ref().map(|l| l.generation),
           "components": l.as_ref().map_or(Vec::new(), components)})
}

fn part_as_json(s: &Stripe, l: &Parts, p: &Part) -> serde_json::Value {
    let known = s.layout.iter().flat_map(|l| &l.components).find(|c| c.id == p.id);
    let objects: Vec<_> = known.iter().flat_map(|c| &c.objects)
        .map(|o| json!({"ost": o.ost, "fid": o.id.origin.to_string(), "component": o.id.component, "stripe": o.id.stripe_number()}))
        .collect();
    let flags: Vec<String> = p.flag_words().split(',').filter(|f| *f != "0").map(str::to_string).collect();
    let wanted: Vec<u16> = p.objects.iter().filter(|(_, f)| *f == Fid::NONE).map(|(ost, _)| *ost).collect();
    json!({"id": (p.id > 0).then_some(p.id), "mirror": p.mirror, "flags": flags, "start": p.start,
           "end": (p.end != EOF).then_some(p.end), "pattern": p.pattern_words(), "stripe_count": p.stripe_count,
           "stripe_size": (!p.is_extension()).then_some(p.stripe_size), "stripe_offset": p.offset,
           "extension_size": l.extension_of(p), "pool": p.pool, "osts_wanted": wanted, "objects": objects})
}

/// What is to be done with each path.
struct Order<'a> {
    p: &'a Parsed,
    threads: usize,
}

impl Order<'_> {
    /// One path and, of a directory, its entries: one level, or all with `recursive`.
    fn operand(&self, path: &Path, output: &LayoutOutput<'_>, run: &Run<'_>) -> Result<(), Failure> {
        let follow = !self.p.has("no-follow");
        let link = files::stat(path, false).is_ok_and(|s| s.mode & 0o170000 == 0o120000);
        let path: PathBuf = match (link && follow).then(|| files::canonical(path)) {
            Some(Ok(real)) => real,
            _ => path.to_path_buf(),
        };
        let s = get(&path)?;
        let mut piece = Piece::default();
        output.show(&path, &s, &mut piece);
        output.put(piece);
        let only_itself = self.p.has("directory") || (self.p.has("default") && !self.p.has("recursive"));
        if s.kind == FileType::Directory && !only_itself {
            walk::walk_below(&Mounted::new(&path)?, &path, (&path, 0), self.threads, output, run);
        }
        Ok(())
    }

    /// All that was asked for. What is printed of JSON is whole unless somebody stopped it.
    fn show(&self, printer: &Printer, run: &Run<'_>) {
        let p = self.p;
        let output = LayoutOutput::new(printer, p, &crate::output::bytes);
        for o in &p.operands {
            if run.interrupt.stopped() {
                return;
            }
            if let Err(f) = self.operand(Path::new(o), &output, run) {
                run.report(&f);
            }
        }
        if !run.interrupt.stopped() {
            output.end();
        }
    }
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(&without_marks(args)?, OPTS)?;
    if p.operands.is_empty() {
        return Err(Failure::usage("no path given"));
    }
    let threads = p.number("threads", THREADS_MAX as u64)?;
    let threads = threads.map_or_else(walk::default_threads, |n| n as usize);
    let (printer, order) = (Printer::new(&p)?, Order { p: &p, threads });
    let seen = Arc::new(AtomicU64::new(0));
    // Who sees what is printed sees how far it is.
    let line = Arc::new(ProgressLine::for_terminal(std::io::stdout().is_terminal()));
    let (ticking, counted) = (line.clone(), seen.clone());
    let tick = move || ticking.show(|| format!("{} files looked at", counted.load(Ordering::Relaxed)));
    let (mut errors, signalled) = interrupt::guarded(tick, |i: &Interrupt| {
        let run = Run::new("lfs getstripe", i, &seen);
        order.show(&printer, &run);
        run.finish()
    });
    line.clear();
    if let Some(code) = signalled {
        errors.interrupted("lfs getstripe", code);
    }
    Ok(errors)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod walk_tests;
