//! The layout that options ask for. What stands behind an `-E` is of that component.

use super::{copied, yaml};
use crate::failure::Failure;
use crate::getopt::{self, Opt, Parsed, flag, maybe, value};
use crate::size::{parse_index_list, parse_int, parse_stripe_size};
use model::layout::{ComponentSpec, EOF};
use model::{Errno, LayoutSpec, limits, pool};
use std::ffi::OsString;
use std::path::Path;

pub const OPTS: &[Opt] = &[
    value('c', "stripe-count"),
    value('C', "overstripe-count"),
    value('S', "stripe-size"),
    value('i', "stripe-index"),
    value('\0', "stripe-offset"),
    value('o', "ost"),
    value('\0', "ost-list"),
    value('p', "pool"),
    value('L', "layout"),
    value('E', "component-end"),
    value('z', "extension-size"),
    flag('d', "delete"),
    value('\0', "mode"),
    value('\0', "copy"),
    value('\0', "yaml"),
    flag('\0', "component-add"),
    flag('\0', "component-del"),
    flag('\0', "component-set"),
    value('I', "component-id"),
    value('\0', "component-flags"),
    // Other spellings, see `SPELLINGS`.
    flag('\0', "comp-add"),
    flag('\0', "comp-del"),
    flag('\0', "comp-set"),
    value('\0', "comp-id"),
    value('\0', "comp-flags"),
    value('\0', "comp-end"),
    value('\0', "ext-size"),
    value('\0', "stripe_count"),
    value('\0', "stripe_size"),
    value('\0', "stripe_index"),
    value('\0', "ost_list"),
    // What later releases bring; refused by name.
    maybe('N', "mirror-count"),
    value('\0', "ec"),
    flag('\0', "ec-expert"),
    maybe('\0', "foreign"),
];

/// Other spellings of options.
const SPELLINGS: &[(&str, &str)] = &[
    ("comp-add", "component-add"),
    ("comp-del", "component-del"),
    ("comp-set", "component-set"),
    ("comp-id", "component-id"),
    ("comp-flags", "component-flags"),
    ("comp-end", "component-end"),
    ("ext-size", "extension-size"),
    ("stripe_count", "stripe-count"),
    ("stripe_size", "stripe-size"),
    ("stripe_index", "stripe-index"),
    ("ost_list", "ost-list"),
];

const LATER: &[(&str, &str)] = &[
    ("mirror-count", "not in this release: a file has one copy"),
    ("ec", "not in this release: components have no parity"),
    ("ec-expert", "not in this release: components have no parity"),
    ("foreign", "not in this release: layouts are those of this file system"),
];

/// Options that say how one component is.
const OF_COMPONENT: &[&str] = &[
    "stripe-count",
    "overstripe-count",
    "stripe-size",
    "stripe-index",
    "stripe-offset",
    "ost",
    "ost-list",
    "pool",
    "layout",
    "extension-size",
];

/// As [`getopt::parse`]; each option has one spelling afterwards.
pub fn parse(args: &[OsString], opts: &[Opt]) -> Result<Parsed, Failure> {
    let mut p = getopt::parse(args, opts)?;
    for (name, _) in &mut p.options {
        if let Some((_, one)) = SPELLINGS.iter().find(|(other, _)| other == name) {
            *name = one;
        }
    }
    Ok(p)
}

/// Whether an option says where a component ends, or how it is.
pub fn is_of_component(option: &str) -> bool {
    option == "component-end" || OF_COMPONENT.contains(&option)
}

type Given<'a> = (&'a str, &'a str);

/// What the options say of one component, each in its order.
#[derive(Default)]
struct Group<'a> {
    /// As it stands behind `-E`; `None`: before the first.
    end: Option<&'a str>,
    given: Vec<Given<'a>>,
}

impl Group<'_> {
    fn last(&self, names: &[&str]) -> Option<&str> {
        self.given.iter().rev().find(|(o, _)| names.contains(o)).map(|(_, v)| *v)
    }

    fn is_on_mdt(&self) -> bool {
        self.last(&["layout"]) == Some("mdt")
    }
}

/// What stands before the first `-E` is of the first component as well.
fn groups(p: &Parsed) -> Vec<Group<'_>> {
    let mut out = vec![Group::default()];
    for (option, v) in &p.options {
        let v = v.as_deref().unwrap_or_default();
        let last = out.last_mut().expect("begins with one");
        match *option {
            "component-end" if last.end.is_none() => last.end = Some(v),
            "component-end" => out.push(Group { end: Some(v), given: Vec::new() }),
            o if OF_COMPONENT.contains(&o) => last.given.push((o, v)),
            _ => {}
        }
    }
    out
}

fn number(option: &str, v: &str) -> Result<i64, Failure> {
    parse_int(v).ok_or_else(|| Failure::usage(format!("bad value '{v}' of --{option}")))
}

fn ranged(
    what: &str,
    option: &str,
    v: &str,
    range: std::ops::RangeInclusive<i64>,
    errno: Errno,
) -> Result<i32, Failure> {
    let n = number(option, v)?;
    if !range.contains(&n) {
        let text = format!("{} to {}", range.start(), range.end());
        return Err(Failure::explained(what, v, errno, &text));
    }
    Ok(i32::try_from(n).expect("in a range of 32 bits"))
}

/// Bytes that are a multiple of 64 KiB.
fn aligned(what: &str, v: &str, max: u64) -> Result<u64, Failure> {
    let n = parse_stripe_size(v)?;
    if n % limits::STRIPE_SIZE_MIN_BYTES != 0 || n > max {
        let range = if max == limits::STRIPE_SIZE_MAX_BYTES {
            "a multiple of 64k below 4G"
        } else {
            "a multiple of 64k"
        };
        return Err(Failure::explained(what, v, Errno::EINVAL, range));
    }
    Ok(n)
}

/// Where a component ends.
fn end(v: &str) -> Result<u64, Failure> {
    if matches!(v, "-1" | "eof" | "EOF") {
        return Ok(EOF);
    }
    let n = aligned("bad component end", v, u64::MAX)?;
    if n == 0 {
        return Err(Failure::explained("bad component end", v, Errno::EINVAL, "a component holds bytes"));
    }
    Ok(n)
}

fn pool_name(name: &str) -> Result<String, Failure> {
    match name {
        "" | "none" | "inherit" => Ok(String::new()),
        name if name == pool::IGNORE || pool::name_is_valid(name) => Ok(name.to_string()),
        name => {
            let why = "a pool's name is 1 to 15 of A-Z a-z 0-9 _ -";
            Err(Failure::explained("cannot use pool", name, Errno::EINVAL, why))
        }
    }
}

/// Number of stripes, and whether an OST may get several.
fn count(g: &Group<'_>) -> Result<(i32, bool), Failure> {
    let max = i64::from(limits::STRIPE_COUNT_MAX);
    match (g.last(&["stripe-count"]), g.last(&["overstripe-count"])) {
        (Some(_), Some(_)) => Err(Failure::usage("-c and -C cannot go together")),
        (Some(v), None) => {
            Ok((ranged("bad stripe count", "stripe-count", v, -1..=max, Errno::ERANGE)?, false))
        }
        (None, Some(v)) => {
            let least = -i64::from(limits::OVERSTRIPED_PER_OST_MAX);
            Ok((ranged("bad overstripe count", "overstripe-count", v, least..=max, Errno::ERANGE)?, true))
        }
        (None, None) => Ok((0, false)),
    }
}

/// OSTs in the order in which they are named; each once, unless it may get several objects.
fn osts(g: &Group<'_>, overstriped: bool) -> Result<Vec<u16>, Failure> {
    let mut out = Vec::new();
    for (_, list) in g.given.iter().filter(|(o, _)| matches!(*o, "ost" | "ost-list")) {
        for i in parse_index_list(list)? {
            if overstriped || !out.contains(&i) {
                out.push(i);
            }
        }
    }
    Ok(out)
}

/// A component of objects.
fn striped(g: &Group<'_>) -> Result<ComponentSpec, Failure> {
    let mut c = ComponentSpec::default();
    (c.stripe_count, c.overstriped) = count(g)?;
    if let Some(v) = g.last(&["stripe-size"]) {
        c.stripe_size = aligned("bad stripe size", v, limits::STRIPE_SIZE_MAX_BYTES)?;
    }
    if let Some(v) = g.last(&["stripe-index", "stripe-offset"]) {
        let max = i64::from(limits::OST_INDEX_MAX);
        c.stripe_start = ranged("bad OST index", "stripe-index", v, -1..=max, Errno::EINVAL)?;
    }
    c.osts = osts(g, c.overstriped)?;
    if let Some(v) = g.last(&["pool"]) {
        c.pool = pool_name(v)?;
    }
    if let Some(v) = g.last(&["extension-size"]) {
        if g.end.is_none() {
            return Err(Failure::usage("-z is of a component: -E END -z SIZE"));
        }
        c.extension_bytes = aligned("bad extension size", v, u64::MAX)?;
        if c.extension_bytes == 0 {
            return Err(Failure::explained("bad extension size", v, Errno::EINVAL, "at least 64k"));
        }
    }
    if let Some(v) = g.end {
        c.end = end(v)?;
    }
    Ok(c)
}

/// `-E SIZE -L mdt`: bytes that lie with the inode.
fn mdt_bytes(g: &Group<'_>) -> Result<u64, Failure> {
    let Some(v) = g.end else {
        return Err(Failure::usage("-L mdt needs the component's end before it: -E SIZE -L mdt"));
    };
    if let Some((o, _)) = g.given.iter().find(|(o, _)| *o != "layout") {
        return Err(Failure::usage(format!("--{o} cannot go with -L mdt: give it behind a second -E")));
    }
    match end(v)? {
        n if n <= limits::MDT_DATA_MAX_BYTES => Ok(n),
        _ => {
            let range = "a multiple of 64k up to 1M";
            Err(Failure::explained("bad size on the MDT", v, Errno::EINVAL, range))
        }
    }
}

/// The components that the options name, and the bytes before them that lie with the inode.
pub fn components(p: &Parsed) -> Result<(Option<u64>, Vec<ComponentSpec>), Failure> {
    let groups = groups(p);
    for g in &groups {
        if let Some((_, l)) = g.given.iter().find(|(o, l)| *o == "layout" && !matches!(*l, "raid0" | "mdt")) {
            return Err(Failure::usage(format!("unknown layout '{l}': raid0, mdt")));
        }
    }
    let (first, behind) = groups.split_first().expect("there is one at least");
    if let Some(g) = behind.iter().find(|g| g.is_on_mdt()) {
        let why = "only the first component can lie on the MDT";
        return Err(Failure::explained(
            "bad component",
            &format!("-E {} -L mdt", g.end.unwrap_or_default()),
            Errno::EINVAL,
            why,
        ));
    }
    let mdt = if first.is_on_mdt() { Some(mdt_bytes(first)?) } else { None };
    let striped: Vec<ComponentSpec> =
        groups.iter().skip(usize::from(mdt.is_some())).map(striped).collect::<Result<_, _>>()?;
    let mut before = mdt.unwrap_or(0);
    for c in &striped {
        if c.end <= before {
            let why = "each component ends behind the one before it";
            return Err(Failure::explained("bad component end", &c.end.to_string(), Errno::EINVAL, why));
        }
        before = c.end;
    }
    if striped.len() > limits::COMPONENTS_MAX {
        let why = format!("at most {} components", limits::COMPONENTS_MAX);
        return Err(Failure::explained("impossible", "layout", Errno::EINVAL, &why));
    }
    Ok((mdt, striped))
}

/// Options that nobody can have yet.
pub fn refuse_later(p: &Parsed) -> Result<(), Failure> {
    match LATER.iter().find(|(o, _)| p.has(o)) {
        Some((o, why)) => {
            Err(Failure::explained("cannot use option", &format!("--{o}"), Errno::EOPNOTSUPP, why))
        }
        None => Ok(()),
    }
}

/// Whether the options say anything about components or objects.
pub fn is_given(p: &Parsed) -> bool {
    p.options.iter().any(|(o, _)| is_of_component(o) || matches!(*o, "copy" | "yaml"))
}

/// The layout that the options ask for; refuses what no file system could give.
pub fn spec(p: &Parsed) -> Result<LayoutSpec, Failure> {
    refuse_later(p)?;
    let template = match (p.value("copy"), p.value("yaml")) {
        (Some(_), Some(_)) => return Err(Failure::usage("--copy and --yaml are two layouts: name one")),
        (Some(f), None) => Some(copied(Path::new(f))?),
        (None, Some(f)) => Some(yaml::read(Path::new(f))?),
        (None, None) => None,
    };
    let (mdt, parts) = components(p)?;
    let s = if p.has("component-end") { composite(mdt, parts) } else { plain(template.as_ref(), parts) };
    if p.has("component-end") && template.is_some() {
        return Err(Failure::usage("-E cannot go with --copy or --yaml, which have all components"));
    }
    s.check().map_err(|e| {
        Failure::explained("impossible", "layout", e, "count, first OST and OST list contradict each other")
    })?;
    Ok(s)
}

/// One component that reaches to the end is a plain layout, also behind data on the MDT.
fn composite(mdt: Option<u64>, parts: Vec<ComponentSpec>) -> LayoutSpec {
    let mut s = match parts.as_slice() {
        [one] if one.end == EOF && one.extension_bytes == 0 => one.as_spec(),
        parts => {
            let mut s = LayoutSpec::default();
            s.set_components(parts);
            s
        }
    };
    if let Some(n) = mdt {
        s.set_mdt_bytes(n);
    }
    s
}

/// Options without components: over those of a template, whose components they replace.
fn plain(template: Option<&LayoutSpec>, parts: Vec<ComponentSpec>) -> LayoutSpec {
    let given = parts.into_iter().next().unwrap_or_default().as_spec();
    let Some(t) = template else { return given };
    if !given.names_objects() {
        return t.clone();
    }
    let mut s = given;
    if s.stripe_count == 0 && s.osts.is_empty() {
        s.stripe_count = t.stripe_count;
        s.set_overstriped(t.is_overstriped());
    }
    if s.stripe_size == 0 {
        s.stripe_size = t.stripe_size;
    }
    if s.pool.is_empty() {
        s.pool.clone_from(&t.pool);
    }
    s
}
