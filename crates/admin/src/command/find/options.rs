//! Words of the command line: predicates with one dash or two, by any clear beginning of their long names.

use crate::failure::Failure;
use crate::getopt::Takes;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// One predicate or other option, as it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// The first of its names.
    pub name: &'static str,
    /// As it was written, for messages.
    pub word: String,
    pub value: Option<OsString>,
    pub negated: bool,
}

impl Given {
    /// The value as text; `EINVAL`'s kin for bytes that are none.
    pub fn text(&self) -> Result<&str, Failure> {
        let value = self.value.as_deref().unwrap_or_default();
        let bad = || Failure::usage(format!("the value of '{}' is not readable text", self.word));
        value.to_str().ok_or_else(bad)
    }
}

/// (names, argument); names of one letter take one dash.
const OPTIONS: &[(&[&str], Takes)] = &[
    (&["name", "n"], Takes::Value),
    (&["type", "t"], Takes::Value),
    (&["size", "s"], Takes::Value),
    (&["blocks", "b"], Takes::Value),
    (&["atime", "A"], Takes::Value),
    (&["mtime", "M"], Takes::Value),
    (&["ctime", "C"], Takes::Value),
    (&["btime", "B"], Takes::Value),
    (&["newer"], Takes::Value),
    (&["anewer"], Takes::Value),
    (&["cnewer"], Takes::Value),
    (&["user", "u"], Takes::Value),
    (&["uid", "U"], Takes::Value),
    (&["group", "g"], Takes::Value),
    (&["gid", "G"], Takes::Value),
    (&["perm"], Takes::Value),
    (&["links"], Takes::Value),
    (&["projid"], Takes::Value),
    (&["attrs"], Takes::Value),
    (&["xattr"], Takes::Value),
    (&["maxdepth", "D"], Takes::Value),
    (&["mindepth", "d"], Takes::Value),
    (&["stripe-count", "c", "stripe_count"], Takes::Value),
    (&["stripe-size", "S", "stripe_size"], Takes::Value),
    (&["stripe-index", "i", "stripe_index"], Takes::Value),
    (&["ost", "O", "obd"], Takes::Value),
    (&["layout", "L"], Takes::Value),
    (&["pool", "p"], Takes::Value),
    (&["component-count", "comp-count"], Takes::Value),
    (&["component-start", "comp-start"], Takes::Value),
    (&["component-end", "E", "comp-end"], Takes::Value),
    (&["component-flags", "comp-flags"], Takes::Value),
    (&["extension-size", "z", "ext-size"], Takes::Value),
    (&["mirror-count", "N"], Takes::Value),
    (&["mirror-state"], Takes::Value),
    (&["foreign"], Takes::Maybe),
    (&["mdt", "m", "mdt-index"], Takes::Value),
    (&["mdt-count", "T"], Takes::Value),
    (&["mdt-hash", "H"], Takes::Value),
    (&["skip"], Takes::Value),
    (&["threads"], Takes::Value),
    (&["lazy"], Takes::Nothing),
    (&["index"], Takes::Nothing),
    (&["no-index"], Takes::Nothing),
    (&["printf"], Takes::Value),
    (&["print0", "0"], Takes::Nothing),
    (&["print", "P"], Takes::Nothing),
    (&["ls"], Takes::Nothing),
    (&["json"], Takes::Nothing),
];

/// Beginnings of long names are at least so long.
const BEGINNING: usize = 4;

fn option(word: &str) -> Result<(&'static str, Takes), Failure> {
    let name = word.strip_prefix("--").or(word.strip_prefix('-')).unwrap_or(word);
    let fits_dashes = |n: &str| n.len() > 1 || !word.starts_with("--");
    let exact = OPTIONS.iter().find(|(names, _)| names.iter().any(|n| *n == name && fits_dashes(n)));
    if let Some((names, takes)) = exact {
        return Ok((names[0], *takes));
    }
    // Both times are letters: -newermt.
    if let Some(letters) = name.strip_prefix("newer").filter(|l| l.len() == 2) {
        return super::query::newer_name(letters).map(|n| (n, Takes::Value)).ok_or_else(|| {
            Failure::usage(format!("'{word}': -newerXY has X of a, m, c, B and Y of these or t"))
        });
    }
    let hits: Vec<_> =
        OPTIONS.iter().filter(|(n, _)| name.len() >= BEGINNING && n[0].starts_with(name)).collect();
    match hits.as_slice() {
        [(names, takes)] => Ok((names[0], *takes)),
        [] => Err(Failure::usage(format!("unknown predicate '{word}'"))),
        many => {
            let names: Vec<&str> = many.iter().map(|(n, _)| n[0]).collect();
            Err(Failure::usage(format!("predicate '{word}' is ambiguous: {}", names.join(", "))))
        }
    }
}

/// `-c2`, `-s+1M`: one letter with a number behind it.
fn joined(word: &OsStr) -> Option<(&'static str, OsString)> {
    let b = word.as_bytes();
    let number = matches!(b.get(2), Some(b'0'..=b'9' | b'+' | b'-'));
    let letter = std::str::from_utf8(b.get(..2)?).ok()?;
    match option(letter) {
        Ok((name, Takes::Value)) if number && b[1] != b'-' => {
            Some((name, OsString::from_vec(b[2..].to_vec())))
        }
        _ => None,
    }
}

/// Paths and predicates, which may stand in any order.
pub fn read(args: &[OsString]) -> Result<(Vec<PathBuf>, Vec<Given>), Failure> {
    let (mut roots, mut given, mut negated) = (Vec::new(), Vec::new(), false);
    let mut it = args.iter();
    while let Some(a) = it.next() {
        let word = a.to_string_lossy().into_owned();
        match word.as_str() {
            "!" | "-not" => {
                negated = !negated;
                continue;
            }
            "-a" | "-and" => continue,
            "(" | ")" | "-o" | "-or" | "," => {
                let why = "predicates are and-ed; '!' negates the next one";
                return Err(Failure::usage(format!("'{word}' cannot be used: {why}")));
            }
            w if !w.starts_with('-') || w.len() < 2 => {
                roots.push(PathBuf::from(a));
                continue;
            }
            _ => {}
        }
        let (name, word, value) = if let Some((name, value)) = joined(a) {
            (name, word[..2].to_string(), Some(value))
        } else {
            let equals = a.as_bytes().iter().position(|c| *c == b'=').filter(|_| word.starts_with("--"));
            let (word, inline) = match equals {
                Some(at) => {
                    let value = OsString::from_vec(a.as_bytes()[at + 1..].to_vec());
                    (String::from_utf8_lossy(&a.as_bytes()[..at]).into_owned(), Some(value))
                }
                None => (word, None),
            };
            let (name, takes) = option(&word)?;
            let missing = || Failure::usage(format!("'{word}' requires an argument"));
            let value = match (takes, inline) {
                (Takes::Nothing, Some(_)) => {
                    return Err(Failure::usage(format!("'{word}' doesn't allow an argument")));
                }
                (Takes::Value, None) => Some(it.next().cloned().ok_or_else(missing)?),
                (_, inline) => inline,
            };
            (name, word, value)
        };
        given.push(Given { name, word, value, negated });
        negated = false;
    }
    if negated {
        return Err(Failure::usage("'!' has nothing behind it"));
    }
    Ok((roots, given))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_words(words: &[&str]) -> Result<(Vec<PathBuf>, Vec<Given>), Failure> {
        read(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn every_spelling_of_a_predicate_is_understood() {
        for (words, name, value) in [
            (&["-name", "x"][..], "name", "x"),
            (&["--name", "x"], "name", "x"),
            (&["--name=x"], "name", "x"),
            (&["-n", "x"], "name", "x"),
            (&["-maxd", "2"], "maxdepth", "2"),
            (&["--obd", "fs-OST0001_UUID"], "ost", "fs-OST0001_UUID"),
            (&["-c2"], "stripe-count", "2"),
            (&["-s+1M"], "size", "+1M"),
            (&["-mtime", "-1"], "mtime", "-1"),
            (&["-newermt", "@5"], "newermt", "@5"),
            (&["-E", "eof"], "component-end", "eof"),
            (&["--stripe-i", "1"], "stripe-index", "1"),
        ] {
            let (_, given) = read_words(words).unwrap();
            assert_eq!((given[0].name, given[0].text().unwrap()), (name, value), "{words:?}");
        }
        let (roots, given) = read_words(&["a", "!", "-ls", "!", "!", "--foreign", "b"]).unwrap();
        assert_eq!(roots, [PathBuf::from("a"), PathBuf::from("b")]);
        assert_eq!(given.iter().map(|g| g.negated).collect::<Vec<_>>(), [true, false]);
        assert_eq!(given[1].value, None);
    }

    #[test]
    fn words_that_are_none_are_refused_by_name() {
        for (words, part) in [
            (&["-nope"][..], "unknown predicate '-nope'"),
            (&["-frob"], "-frob"),
            (&["--c", "1"], "unknown predicate '--c'"),
            (&["--com", "1"], "unknown predicate"),
            (&["--component", "1"], "ambiguous"),
            (&["-name"], "requires an argument"),
            (&["--ls=1"], "doesn't allow"),
            (&["!"], "nothing behind it"),
            (&["-name", "x", "-o", "-name", "y"], "'-o' cannot be used"),
            (&["-newerxm", "f"], "-newerXY"),
        ] {
            match read_words(words) {
                Err(Failure::Usage(t)) => assert!(t.contains(part), "{words:?}: {t}"),
                other => panic!("{words:?}: {other:?}"),
            }
        }
    }
}
