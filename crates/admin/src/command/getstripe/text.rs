//! Layouts as text: what people and scripts of Lustre's users read, and YAML of the same.

use super::part::{Part, Parts};
use client::control::Stripe;
use model::layout::EOF;
use model::{Fid, FileType, LayoutSpec};
use std::fmt::Write;
use std::path::Path;

const MAGIC_V1: u32 = 0x0bd1_0bd0;
const MAGIC_V3: u32 = 0x0bd3_0bd0;
const MAGIC_COMPOSITE: u32 = 0x0bd6_0bd0;

/// How it is to look.
#[derive(Clone, Copy, Default)]
pub struct Style {
    pub verbose: bool,
    pub yaml: bool,
    /// Indices of targets in hexadecimal.
    pub hex: bool,
}

/// `text` gets a line.
macro_rules! line {
    ($text:expr) => { $text.push('\n') };
    ($text:expr, $($t:tt)*) => { writeln!($text, $($t)*).expect("text is appended to") };
}

impl Style {
    pub fn index(self, i: i64) -> String {
        if self.hex && i >= 0 { format!("{i:#x}") } else { i.to_string() }
    }

    /// The line before a layout; in YAML a remark.
    pub fn heading(self, path: &Path) -> String {
        let shown = path.display().to_string();
        // A remark ends with its line.
        if self.yaml { format!("# {}\n", shown.replace(char::is_control, "?")) } else { format!("{shown}\n") }
    }

    /// A file's layout below its heading. `chosen`: the components to show.
    pub fn file(self, s: &Stripe, l: &Parts, chosen: &[&Part]) -> String {
        if l.is_plain() {
            return if chosen.is_empty() { String::new() } else { self.plain(s, l) };
        }
        let mut t = self.header(l);
        for &p in chosen {
            self.entry(&mut t, l, p);
            let (key, body) = if self.yaml { ("    ", "    ") } else { ("      ", "      ") };
            self.striping(&mut t, p, 0, key);
            self.objects(&mut t, p, body);
            if !self.yaml {
                line!(t);
            }
        }
        t
    }

    fn plain(self, s: &Stripe, l: &Parts) -> String {
        let (mut t, p) = (String::new(), l.main());
        if self.verbose {
            let magic = if p.pool.is_empty() { MAGIC_V1 } else { MAGIC_V3 };
            line!(t, "lmm_magic:         0x{magic:08X}");
            line!(t, "lmm_seq:           {:#x}", s.fid.seq);
            line!(t, "lmm_object_id:     {:#x}", s.fid.oid);
            let fid = if self.yaml { bare(s.fid) } else { s.fid.to_string() };
            line!(t, "lmm_fid:           {fid}");
        }
        self.striping(&mut t, p, l.generation, "");
        if self.yaml {
            self.objects(&mut t, p, "");
            return t;
        }
        if !p.objects.is_empty() {
            line!(t, "\tobdidx\t\t objid\t\t objid\t\t group");
        }
        for (ost, f) in &p.objects {
            let ost = self.index(i64::from(*ost));
            line!(t, "\t{ost:>6}\t{:>14}\t{:>#13x}\t{:>#14x}", f.oid, f.oid, f.seq);
        }
        line!(t);
        t
    }

    /// What is said once for all components.
    fn header(self, l: &Parts) -> String {
        let mut t = String::new();
        if self.verbose && !self.yaml {
            let size = 32 + l.parts.iter().map(|p| 48 + size_of_striping(p)).sum::<usize>();
            line!(t, "composite_header:");
            line!(t, "  lcm_magic:         0x{MAGIC_COMPOSITE:08X}");
            line!(t, "  lcm_size:          {size}");
            line!(t, "  lcm_flags:         0");
        }
        let indent = if self.yaml { "" } else { "  " };
        line!(t, "{indent}lcm_layout_gen:    {}", l.generation);
        line!(t, "{indent}lcm_mirror_count:  1");
        line!(t, "{indent}lcm_entry_count:   {}", l.parts.len());
        if self.yaml {
            line!(t, "components:");
        } else if self.verbose {
            line!(t, "  components:");
        }
        t
    }

    fn entry(self, t: &mut String, l: &Parts, p: &Part) {
        let dash = self.yaml || self.verbose;
        let (first, key) = match (self.yaml, dash) {
            (true, _) => ("- ", "  "),
            (false, true) => ("  - ", "    "),
            (false, false) => ("    ", "    "),
        };
        let id = |n: u32, has: bool| if has { n.to_string() } else { "N/A".to_string() };
        line!(t, "{first}lcme_id:             {}", id(p.id, p.id > 0));
        line!(t, "{key}lcme_mirror_id:      {}", id(p.mirror.into(), p.id > 0));
        line!(t, "{key}lcme_flags:          {}", p.flag_words());
        line!(t, "{key}lcme_extent.e_start: {}", p.start);
        line!(t, "{key}lcme_extent.e_end:   {}", end_word(p.end));
        if self.verbose {
            let before = l.parts.iter().take_while(|q| q.id != p.id).map(size_of_striping).sum::<usize>();
            line!(t, "{key}lcme_offset:         {}", 32 + 48 * l.parts.len() + before);
            line!(t, "{key}lcme_size:           {}", size_of_striping(p));
        }
        if dash {
            line!(t, "{key}sub_layout:");
        }
    }

    fn striping(self, t: &mut String, p: &Part, generation: u32, indent: &str) {
        line!(t, "{indent}lmm_stripe_count:  {}", p.stripe_count);
        if p.is_extension() {
            line!(t, "{indent}lmm_extension_size: {}", p.stripe_size);
        } else {
            line!(t, "{indent}lmm_stripe_size:   {}", p.stripe_size);
        }
        line!(t, "{indent}lmm_pattern:       {}", p.pattern_words());
        line!(t, "{indent}lmm_layout_gen:    {generation}");
        line!(t, "{indent}lmm_stripe_offset: {}", self.index(p.offset));
        if !p.pool.is_empty() {
            line!(t, "{indent}lmm_pool:          {}", p.pool);
        }
    }

    fn objects(self, t: &mut String, p: &Part, indent: &str) {
        if p.objects.is_empty() {
            return;
        }
        line!(t, "{indent}lmm_objects:");
        for (n, (ost, fid)) in p.objects.iter().enumerate() {
            let ost = self.index(i64::from(*ost));
            if self.yaml {
                line!(t, "{indent}- l_ost_idx: {ost}\n{indent}  l_fid:     {}", bare(*fid));
            } else {
                line!(t, "{indent}- {n:>3}: {{ l_ost_idx: {ost:>3}, l_fid: {fid} }}");
            }
        }
    }

    /// What a directory's new files get, below its heading.
    pub fn directory(self, l: &Parts, chosen: &[&Part]) -> String {
        if l.is_plain() {
            return chosen
                .first()
                .map_or(String::new(), |p| self.wanted(p, "") + if self.yaml { "" } else { "\n" });
        }
        let mut t = self.header(l);
        for &p in chosen {
            self.entry(&mut t, l, p);
            t += &self.wanted(p, if self.yaml { "    " } else { "      " });
            if !self.yaml {
                line!(t);
            }
        }
        t
    }

    /// What is wanted of objects, in one line; in YAML in one for each value.
    fn wanted(self, p: &Part, indent: &str) -> String {
        let size = if p.is_extension() { "extension_size:" } else { "stripe_size:  " };
        let mut values = vec![
            format!("stripe_count:  {}", p.stripe_count),
            format!("{size} {}", p.stripe_size),
            format!("pattern:       {}", p.pattern_words()),
            format!("stripe_offset: {}", self.index(if p.is_on_mdt { -1 } else { p.offset })),
        ];
        if !p.pool.is_empty() {
            values.push(format!("pool:          {}", p.pool));
        }
        if !p.objects.is_empty() {
            let list: Vec<String> = p.objects.iter().map(|(ost, _)| ost.to_string()).collect();
            let (open, close) = if self.yaml { ("[", "]") } else { ("", "") };
            values.push(format!("osts:          {open}{}{close}", list.join(",")));
        }
        if !self.yaml {
            return format!("{indent}{}\n", values.join(" "));
        }
        values.iter().map(|v| format!("{indent}{v}\n")).collect()
    }
}

pub fn end_word(end: u64) -> String {
    if end == EOF { "EOF".to_string() } else { end.to_string() }
}

fn bare(f: Fid) -> String {
    f.to_string().trim_matches(['[', ']']).to_string()
}

/// Bytes of a component's striping in the form in which Lustre's tools get it.
fn size_of_striping(p: &Part) -> usize {
    let head = if p.pool.is_empty() { 32 } else { 48 };
    head + 24 * p.objects.iter().filter(|(_, fid)| *fid != Fid::NONE).count()
}

/// One value of a file's component, or of the file. `-m`, `-F`, `-g`, `--component-count` and `-N` are the
/// file's.
pub fn value(field: &str, s: &Stripe, l: &Parts, p: &Part, style: Style) -> String {
    let is_dir = s.kind == FileType::Directory;
    let striping = l.striping_of(p);
    match field {
        "stripe-count" => striping.stripe_count.to_string(),
        "stripe-size" => striping.stripe_size.to_string(),
        "stripe-index" | "stripe-offset" => {
            style.index(if is_dir && striping.is_on_mdt { -1 } else { striping.offset })
        }
        "pool" => striping.pool.clone(),
        "layout" => p.pattern_words().to_string(),
        "generation" => l.generation.to_string(),
        "mdt-index" => "0".to_string(),
        "fid" => s.fid.to_string(),
        "component-id" => p.id.to_string(),
        "component-end" => end_word(p.end),
        "component-start" => p.start.to_string(),
        "component-flags" => p.flag_words(),
        "component-count" => if l.is_plain() { 0 } else { l.parts.len() }.to_string(),
        "extension-size" => l.extension_of(p).to_string(),
        "mirror-count" => if is_dir { "0" } else { "1" }.to_string(),
        other => unreachable!("no value {other}"),
    }
}

/// Those that are the same for all components.
pub fn is_of_file(field: &str) -> bool {
    matches!(field, "generation" | "mdt-index" | "fid" | "component-count" | "mirror-count")
}

/// A default of which nothing is completed.
pub fn raw(spec: Option<LayoutSpec>) -> Parts {
    Parts::of_spec(&spec.unwrap_or_default())
}
