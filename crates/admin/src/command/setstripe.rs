//! `lfs setstripe`: a new file with a layout, or a directory's default for new files.

use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Opt, Parsed, flag, maybe, value};
use crate::local::{ask_about, split, strange};
use crate::size::{parse_index_list, parse_int, parse_stripe_size};
use client::control::{self, Reply, Request};
use model::{Errno, LayoutSpec, limits, pool};
use std::ffi::OsString;
use std::path::Path;
use world::sys::files;

pub const USAGE: &str = "[-c|--stripe-count N] [-S|--stripe-size SIZE] [-i|--stripe-index OST] \
[-o|--ost LIST] [-p|--pool POOL] [-E SIZE -L mdt [-E -1 ...]] [--copy FILE] [--mode MODE] FILE|DIR... | -d|--delete DIR...";

pub(super) const OPTS: &[Opt] = &[
    value('c', "stripe-count"),
    value('S', "stripe-size"),
    value('i', "stripe-index"),
    value('\0', "stripe-offset"),
    value('o', "ost"),
    value('\0', "ost-list"),
    value('p', "pool"),
    value('L', "layout"),
    flag('d', "delete"),
    value('\0', "mode"),
    value('\0', "copy"),
    // Of components only the one on the MDT and the rest behind it.
    value('E', "component-end"),
    // What later releases bring; refused by name.
    value('C', "overstripe-count"),
    value('z', "extension-size"),
    maybe('N', "mirror-count"),
    value('\0', "ec"),
    flag('\0', "component-add"),
    flag('\0', "component-del"),
    flag('\0', "component-set"),
    value('I', "component-id"),
    value('\0', "component-flags"),
    value('\0', "yaml"),
    maybe('\0', "foreign"),
];

const LATER: &[&str] = &[
    "overstripe-count",
    "extension-size",
    "mirror-count",
    "ec",
    "component-add",
    "component-del",
    "component-set",
    "component-id",
    "component-flags",
    "yaml",
    "foreign",
];

fn out_of_range(what: &str, v: &str, errno: Errno, range: &str) -> Failure {
    Failure::explained(what, v, errno, range)
}

fn number(p: &Parsed, long: &str) -> Result<Option<i64>, Failure> {
    let Some(v) = p.value(long) else { return Ok(None) };
    parse_int(v).map(Some).ok_or_else(|| Failure::usage(format!("bad value '{v}' of --{long}")))
}

/// `-E SIZE -L mdt`, perhaps with the rest of the file behind `-E -1`: bytes that lie with the inode.
fn on_mdt(p: &Parsed) -> Result<Option<u64>, Failure> {
    let later = |what: &str| {
        let why = "not in this release: one striped component, at most one on the MDT before it";
        Failure::explained("cannot use option", what, Errno::EOPNOTSUPP, why)
    };
    // Options of the first component, and of what comes before and behind it.
    let ends: Vec<usize> = (0..p.options.len()).filter(|&i| p.options[i].0 == "component-end").collect();
    let is_mdt = |o: &(&str, Option<String>)| o.0 == "layout" && o.1.as_deref() == Some("mdt");
    let Some(&first) = ends.first() else {
        return if p.options.iter().any(is_mdt) {
            Err(Failure::usage("-L mdt needs the component's end before it: -E SIZE -L mdt"))
        } else {
            Ok(None)
        };
    };
    let next = ends.get(1).copied().unwrap_or(p.options.len());
    let of_first = &p.options[first + 1..next];
    if !of_first.iter().any(is_mdt) || ends.len() > 2 {
        return Err(later("--component-end"));
    }
    let rest = ends.get(1).and_then(|&i| p.options[i].1.as_deref());
    if !matches!(rest, None | Some("-1" | "eof" | "EOF")) || p.options[next..].iter().any(is_mdt) {
        return Err(later("--component-end"));
    }
    let striping =
        ["stripe-count", "stripe-size", "stripe-index", "stripe-offset", "ost", "ost-list", "pool"];
    if let Some((o, _)) = p.options[..next].iter().find(|(o, _)| striping.contains(o)) {
        return Err(Failure::usage(format!("--{o} cannot go with -L mdt: give it behind a second -E")));
    }
    let end = p.options[first].1.as_deref().unwrap_or_default();
    let n = parse_stripe_size(end)?;
    if n == 0 || n % limits::STRIPE_SIZE_MIN_BYTES != 0 || n > limits::MDT_DATA_MAX_BYTES {
        let range = "a multiple of 64k up to 1M";
        return Err(out_of_range("bad size on the MDT", end, Errno::EINVAL, range));
    }
    Ok(Some(n))
}

/// The layout that the options ask for; refuses what no file system could give.
pub(super) fn spec(p: &Parsed) -> Result<LayoutSpec, Failure> {
    for l in LATER {
        if p.has(l) {
            let why = "not in this release: files have one plain striped component";
            return Err(Failure::explained("cannot use option", &format!("--{l}"), Errno::EOPNOTSUPP, why));
        }
    }
    let mut s = match p.value("copy") {
        Some(f) => copied(Path::new(f))?,
        None => LayoutSpec::default(),
    };
    if let Some(n) = number(p, "stripe-count")? {
        let max = i64::from(limits::STRIPE_COUNT_MAX);
        if !(-1..=max).contains(&n) {
            let range = format!("-1 (all OSTs) to {max}");
            return Err(out_of_range("bad stripe count", &n.to_string(), Errno::ERANGE, &range));
        }
        s.stripe_count = n as i32;
    }
    if let Some(v) = p.value("stripe-size") {
        let n = parse_stripe_size(v)?;
        if n % limits::STRIPE_SIZE_MIN_BYTES != 0 || n > limits::STRIPE_SIZE_MAX_BYTES {
            let range = "a multiple of 64k below 4G";
            return Err(out_of_range("bad stripe size", v, Errno::EINVAL, range));
        }
        s.stripe_size = n;
    }
    let start = match number(p, "stripe-index")? {
        Some(n) => Some(n),
        None => number(p, "stripe-offset")?,
    };
    if let Some(n) = start {
        if !(-1..=i64::from(limits::OST_INDEX_MAX)).contains(&n) {
            return Err(out_of_range(
                "bad OST index",
                &n.to_string(),
                Errno::EINVAL,
                "-1 or an index of lfs osts",
            ));
        }
        s.stripe_start = n as i32;
    }
    for list in p.values("ost").chain(p.values("ost-list")) {
        for i in parse_index_list(list)? {
            if !s.osts.contains(&i) {
                s.osts.push(i);
            }
        }
    }
    match p.value("pool") {
        None => {}
        Some("" | "none" | "inherit") => s.pool.clear(),
        Some(name) if name == pool::IGNORE || pool::name_is_valid(name) => s.pool = name.to_string(),
        Some(name) => {
            let why = "a pool's name is 1 to 15 of A-Z a-z 0-9 _ -";
            return Err(Failure::explained("cannot use pool", name, Errno::EINVAL, why));
        }
    }
    if let Some(l) = p.values("layout").find(|l| !matches!(*l, "raid0" | "mdt")) {
        return Err(Failure::usage(format!("unknown layout '{l}': raid0, mdt")));
    }
    if let Some(n) = on_mdt(p)? {
        s.set_mdt_bytes(n);
    }
    s.check().map_err(|e| {
        Failure::explained("impossible", "layout", e, "count, first OST and OST list contradict each other")
    })?;
    Ok(s)
}

/// `--copy`: count and size of another file (or a directory's default).
pub(super) fn copied(path: &Path) -> Result<LayoutSpec, Failure> {
    match ask_about(path, "cannot get layout of", |name| Request::Getstripe { name })? {
        Reply::Stripe(s) => Ok(match s.layout {
            Some(l) if l.mdt_component().is_some() => {
                let mut spec = LayoutSpec::default();
                spec.set_mdt_bytes(l.shown().stripe_size.into());
                spec
            }
            Some(l) => LayoutSpec {
                stripe_count: l.stripe_count() as i32,
                stripe_size: u64::from(l.shown().stripe_size),
                pool: l.shown().pool.clone(),
                ..LayoutSpec::default()
            },
            None => s.default.or(s.fs_default).unwrap_or_else(LayoutSpec::builtin),
        }),
        other => Err(strange(path, &other)),
    }
}

fn create(path: &Path, mode: u32, spec: &LayoutSpec) -> Result<(), Failure> {
    let shown = path.display().to_string();
    let (dir, Some(name)) = split(path) else {
        return Err(Failure::op("cannot create", &shown, Errno::EINVAL));
    };
    let fd = control::open(&dir).map_err(|e| Failure::control("cannot create", &shown, &e))?;
    let r = Request::Create { name, mode, umask: files::umask(), spec: spec.clone() };
    control::call(&fd, &r).map(|_| ()).map_err(|e| Failure::control("cannot create", &shown, &e))
}

fn one(path: &Path, mode: u32, spec: Option<&LayoutSpec>) -> Result<(), Failure> {
    let shown = path.display().to_string();
    match (files::stat(path, true), spec) {
        (Err(e), Some(s)) if e.kind() == std::io::ErrorKind::NotFound => create(path, mode, s),
        (Err(e), _) => Err(Failure::io("cannot set layout of", &shown, e)),
        (Ok(st), None) if !st.is_dir() => {
            Err(Failure::op("cannot delete default layout of", &shown, Errno::ENOTDIR))
        }
        (Ok(st), _) if !st.is_dir() && !st.is_file() => Err(Failure::explained(
            "cannot set layout of",
            &shown,
            Errno::EINVAL,
            "only files and directories have layouts",
        )),
        (Ok(_), _) => {
            let r = ask_about(path, "cannot set layout of", |name| Request::Setstripe {
                name,
                spec: spec.cloned(),
            });
            match r {
                Err(Failure::Op { errno: Errno::EEXIST, .. }) => {
                    let text = format!("stripe already set on '{shown}': {}", Errno::EEXIST);
                    Err(Failure::Op { text, errno: Errno::EEXIST })
                }
                other => other.map(|_| ()),
            }
        }
    }
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, OPTS)?;
    if p.operands.is_empty() {
        return Err(Failure::usage("no file or directory given"));
    }
    let mode = match p.value("mode") {
        None => 0o666,
        Some(m) => u32::from_str_radix(m, 8)
            .ok()
            .filter(|m| *m <= 0o7777)
            .ok_or_else(|| Failure::usage(format!("bad mode '{m}': expected an octal number")))?,
    };
    let spec = if p.has("delete") {
        if p.options.len() > 1 {
            return Err(Failure::usage("--delete stands alone"));
        }
        None
    } else {
        Some(spec(&p)?)
    };
    let mut errors = FirstError::default();
    for o in &p.operands {
        if let Err(f) = one(Path::new(o), mode, spec.as_ref()) {
            errors.report("lfs setstripe", &f);
        }
    }
    Ok(errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<LayoutSpec, Failure> {
        spec(&getopt::parse(&args.iter().map(OsString::from).collect::<Vec<_>>(), OPTS).unwrap())
    }

    #[test]
    fn options_become_a_layout() {
        let s = parse(&["-c", "-1", "-S", "1M", "-i", "2"]).unwrap();
        assert_eq!((s.stripe_count, s.stripe_size, s.stripe_start), (-1, 1 << 20, 2));
        assert_eq!(parse(&["-o", "3,1", "-o", "1,2"]).unwrap().osts, [3, 1, 2]);
        for (word, pool) in
            [("flash", "flash"), ("ignore", "ignore"), ("none", ""), ("inherit", ""), ("", "")]
        {
            assert_eq!(parse(&["-p", word]).unwrap().pool, pool, "{word}");
        }
    }

    #[test]
    fn data_on_the_mdt_comes_first() {
        let s = parse(&["-E", "128k", "-L", "mdt", "-E", "-1", "-c", "2", "-S", "1M"]).unwrap();
        assert_eq!((s.mdt_bytes(), s.stripe_count, s.stripe_size), (Some(131_072), 2, 1 << 20));
        let s = parse(&["-E", "64k", "-L", "mdt"]).unwrap();
        assert_eq!((s.mdt_bytes(), s.names_objects()), (Some(65536), false));
    }

    #[test]
    fn impossible_layouts_have_their_errno() {
        for (args, code) in [
            (&["-c", "2001"][..], 34),
            (&["-c", "-2"], 34),
            (&["-S", "65537"], 22),
            (&["-S", "4G"], 22),
            (&["-i", "70000"], 22),
            (&["-c", "3", "-o", "1,2"], 22),
            (&["-p", "a.b"], 22),
            (&["-p", "sixteen__letters"], 22),
            (&["-E", "1G"], 95),
            (&["-E", "1G", "-c", "2", "-E", "-1"], 95),
            (&["-E", "64k", "-L", "mdt", "-E", "1G"], 95),
            (&["-E", "64k", "-L", "mdt", "-c", "2"], crate::EXIT_USAGE),
            (&["-L", "mdt"], crate::EXIT_USAGE),
            (&["-E", "2M", "-L", "mdt"], 22),
            (&["-E", "1000", "-L", "mdt"], 22),
            (&["-c", "x"], crate::EXIT_USAGE),
        ] {
            assert_eq!(parse(args).unwrap_err().exit_code(), code, "{args:?}");
        }
    }
}
