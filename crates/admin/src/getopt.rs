//! Command lines as getopt_long(3) reads them: short options in clusters, long ones by any unambiguous
//! beginning, options and operands mixed, repeated options kept in their order (a layout's components depend
//! on it).

use crate::failure::Failure;
use std::ffi::{OsStr, OsString};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    Nothing,
    Value,
    /// Only as `--long=value` or `-xvalue`.
    Maybe,
}

/// One option of a command. `short` is `'\0'` for none.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    pub short: char,
    pub long: &'static str,
    pub takes: Takes,
}

pub const fn flag(short: char, long: &'static str) -> Opt {
    Opt { short, long, takes: Takes::Nothing }
}

pub const fn value(short: char, long: &'static str) -> Opt {
    Opt { short, long, takes: Takes::Value }
}

pub const fn maybe(short: char, long: &'static str) -> Opt {
    Opt { short, long, takes: Takes::Maybe }
}

/// What the command line said. Options are named by their long form.
#[derive(Debug, Default)]
pub struct Parsed {
    pub options: Vec<(&'static str, Option<String>)>,
    pub operands: Vec<OsString>,
}

impl Parsed {
    pub fn has(&self, long: &str) -> bool {
        self.options.iter().any(|(n, _)| *n == long)
    }

    /// Refuses options that say nothing to a subcommand, `name`, which takes `options`.
    pub fn only(&self, options: &[&str], name: &str) -> Result<(), Failure> {
        match self.options.iter().find(|(o, _)| !options.contains(o)) {
            Some((o, _)) => Err(Failure::usage(format!("'--{o}' says nothing to '{name}'"))),
            None => Ok(()),
        }
    }

    /// The last value given.
    pub fn value(&self, long: &str) -> Option<&str> {
        self.options.iter().rev().find(|(n, _)| *n == long).and_then(|(_, v)| v.as_deref())
    }

    /// That of an option that takes 1 to `max`.
    pub fn number(&self, long: &str, max: u64) -> Result<Option<u64>, Failure> {
        let Some(t) = self.value(long) else { return Ok(None) };
        let n = t.parse().ok().filter(|n| (1..=max).contains(n));
        n.map(Some).ok_or_else(|| Failure::usage(format!("bad value '{t}' of --{long}: 1 to {max}")))
    }

    pub fn values<'a>(&'a self, long: &'a str) -> impl Iterator<Item = &'a str> {
        self.options.iter().filter(move |(n, _)| *n == long).filter_map(|(_, v)| v.as_deref())
    }
}

fn text(s: &OsStr) -> Result<String, Failure> {
    let bad = || Failure::usage(format!("option '{}' is not readable text", s.to_string_lossy()));
    s.to_str().map(str::to_string).ok_or_else(bad)
}

fn find_long(opts: &[Opt], name: &str) -> Result<Opt, Failure> {
    if let Some(o) = opts.iter().find(|o| o.long == name) {
        return Ok(*o);
    }
    let hits: Vec<&Opt> = opts.iter().filter(|o| o.long.starts_with(name)).collect();
    match hits.as_slice() {
        [] => Err(Failure::usage(format!("unrecognized option '--{name}'"))),
        [one] => Ok(**one),
        many => {
            let names: Vec<String> = many.iter().map(|o| format!("'--{}'", o.long)).collect();
            Err(Failure::usage(format!("option '--{name}' is ambiguous: {}", names.join(" "))))
        }
    }
}

/// Command lines of papers and notes that write one dash before a long option (`-fsname=x`): with two of
/// them, if the whole word is the name of one. `-f sname=x` is what getopt would make of it.
pub fn two_dashes(args: &[OsString], opts: &[Opt]) -> Vec<OsString> {
    let is_long = |word: &str| {
        let name = word.split_once('=').map_or(word, |(n, _)| n);
        opts.iter().any(|o| o.long == name)
    };
    let mut out: Vec<OsString> = Vec::with_capacity(args.len());
    for (i, a) in args.iter().enumerate() {
        if a == "--" {
            out.extend_from_slice(&args[i..]);
            break;
        }
        let word = a.to_str().and_then(|t| t.strip_prefix('-')).filter(|w| is_long(w));
        out.push(word.map_or_else(|| a.clone(), |w| format!("--{w}").into()));
    }
    out
}

/// Reads `args` by `opts`.
pub fn parse(args: &[OsString], opts: &[Opt]) -> Result<Parsed, Failure> {
    let mut out = Parsed::default();
    let mut it = args.iter();
    while let Some(a) = it.next() {
        let raw = a.to_string_lossy();
        if raw == "--" {
            out.operands.extend(it.cloned());
            break;
        }
        let mut next_value = |name: &str| -> Result<String, Failure> {
            let v =
                it.next().ok_or_else(|| Failure::usage(format!("option '{name}' requires an argument")))?;
            text(v)
        };
        if let Some(body) = raw.strip_prefix("--") {
            let (name, inline) = match body.split_once('=') {
                Some((n, v)) => (n, Some(v.to_string())),
                None => (body, None),
            };
            let o = find_long(opts, name)?;
            let v = match (o.takes, inline) {
                (Takes::Nothing, Some(_)) => {
                    return Err(Failure::usage(format!("option '--{}' doesn't allow an argument", o.long)));
                }
                (Takes::Nothing, None) | (Takes::Maybe, None) => None,
                (Takes::Value, None) => Some(next_value(&format!("--{}", o.long))?),
                (_, Some(v)) => Some(v),
            };
            out.options.push((o.long, v));
        } else if raw.len() > 1 && raw.starts_with('-') {
            let cluster = text(a)?;
            let mut rest = &cluster[1..];
            while let Some(c) = rest.chars().next() {
                rest = &rest[c.len_utf8()..];
                let o = opts.iter().find(|o| o.short == c && c != '\0');
                let o = o.ok_or_else(|| Failure::usage(format!("invalid option -- '{c}'")))?;
                let v = match o.takes {
                    Takes::Nothing => None,
                    _ if !rest.is_empty() => Some(std::mem::take(&mut rest).to_string()),
                    Takes::Maybe => None,
                    Takes::Value => Some(next_value(&format!("-{c}"))?),
                };
                out.options.push((o.long, v));
            }
        } else {
            out.operands.push(a.clone());
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTS: &[Opt] = &[
        value('c', "stripe-count"),
        value('S', "stripe-size"),
        flag('d', "delete"),
        maybe('N', "mirror-count"),
    ];

    fn run(args: &[&str]) -> Result<Parsed, Failure> {
        parse(&args.iter().map(OsString::from).collect::<Vec<_>>(), OPTS)
    }

    #[test]
    fn options_are_read_as_getopt_long_does() {
        let p = run(&["-c", "-1", "f", "--stripe-s=1M", "-dN3", "--", "-x"]).unwrap();
        assert_eq!(p.value("stripe-count"), Some("-1"));
        assert_eq!(p.value("stripe-size"), Some("1M"));
        assert!(p.has("delete"));
        assert_eq!(p.value("mirror-count"), Some("3"));
        assert_eq!(p.operands, ["f", "-x"]);
    }

    #[test]
    fn one_dash_before_a_long_option_is_understood() {
        let words = |all: &[&str]| all.iter().map(OsString::from).collect::<Vec<_>>();
        let given =
            words(&["-stripe-size=1M", "-c", "3", "-delete", "-d", "--delete", "-S1", "--", "-delete"]);
        let meant =
            words(&["--stripe-size=1M", "-c", "3", "--delete", "-d", "--delete", "-S1", "--", "-delete"]);
        assert_eq!(two_dashes(&given, OPTS), meant);
    }

    #[test]
    fn wrong_options_are_named() {
        for (args, part) in [
            (&["--nope"][..], "unrecognized option '--nope'"),
            (&["--stripe"], "ambiguous"),
            (&["-q"], "invalid option -- 'q'"),
            (&["-c"], "requires an argument"),
            (&["--delete=1"], "doesn't allow"),
        ] {
            match run(args) {
                Err(Failure::Usage(t)) => assert!(t.contains(part), "{t}"),
                other => panic!("{args:?}: {other:?}"),
            }
        }
    }
}
