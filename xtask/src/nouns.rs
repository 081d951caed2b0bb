//! Names of public types are made of words that a reader can look up: nouns of this project stand in
//! docs/glossary.md, what every programmer or file system engineer knows in xtask/words.txt.

use crate::source::{Finding, Tree};
use std::collections::BTreeSet;

const GLOSSARY: &str = "docs/glossary.md";
const WORDS: &str = "xtask/words.txt";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let text = |path: &str| tree.files.iter().find(|f| f.path == path).map_or("", |f| f.text.as_str());
    let glossary = words(text(GLOSSARY));
    let common: BTreeSet<String> = text(WORDS).split_whitespace().map(str::to_string).collect();
    let mut used = BTreeSet::new();
    let mut out = Vec::new();
    for f in tree.files.iter().filter(|f| f.is_rust() && f.krate().is_some() && f.path.contains("/src/")) {
        for (n, line) in f.production.lines().enumerate() {
            let Some(name) = public_type(line) else { continue };
            for word in parts(name) {
                let known = is_in(&glossary, &word);
                if !known && !common.contains(&word) {
                    let what = format!("'{word}' of {name} is explained nowhere");
                    let remedy = "use the field's word, or give this one a row in docs/glossary.md; plain \
                                  English stands in xtask/words.txt";
                    out.push(f.finding(n + 1, what, remedy));
                }
                used.insert(word);
            }
        }
    }
    let unused = common.iter().filter(|w| !used.contains(*w));
    if let Some(list) = tree.files.iter().find(|f| f.path == WORDS) {
        out.extend(unused.map(|w| list.finding(1, format!("'{w}' is in no name"), "take it out")));
    }
    out
}

/// The type that a line declares for others.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = if rest.starts_with('(') { rest.split_once(')')?.1 } else { rest };
    let (kind, name) = rest.trim_start().split_once(' ')?;
    let end = name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(name.len());
    let is_type = matches!(kind, "struct" | "enum" | "trait" | "type") && rest.starts_with(' ');
    is_type.then_some(&name[..end]).filter(|n| !n.is_empty())
}

/// The words of a name in camel case, in small letters: `MDTOpens` has two.
fn parts(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut out: Vec<String> = Vec::new();
    for (i, c) in chars.iter().enumerate() {
        let after_small = i > 0 && !chars[i - 1].is_ascii_uppercase();
        let before_small = i > 0 && chars.get(i + 1).is_some_and(char::is_ascii_lowercase);
        let digits = i > 0 && c.is_ascii_digit() != chars[i - 1].is_ascii_digit();
        if i == 0 || (c.is_ascii_uppercase() && (after_small || before_small)) || digits {
            out.push(String::new());
        }
        out.last_mut().expect("pushed for the first").push(c.to_ascii_lowercase());
    }
    out
}

fn words(text: &str) -> BTreeSet<String> {
    let all = text.split(|c: char| !c.is_ascii_alphanumeric());
    all.filter(|w| !w.is_empty()).map(str::to_ascii_lowercase).collect()
}

/// In one of its usual forms.
fn is_in(glossary: &BTreeSet<String>, word: &str) -> bool {
    let singular = word.strip_suffix('s').unwrap_or(word);
    let forms = [word.to_string(), singular.to_string(), format!("{word}s"), format!("{word}ed")];
    forms.iter().any(|f| glossary.contains(f))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> Vec<String> {
        let files =
            [(GLOSSARY, "| **lease** | may be kept |"), (WORDS, "table\n"), ("crates/model/src/a.rs", code)];
        check(&Tree::of(&files)).into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn a_noun_that_is_explained_nowhere_is_found() {
        assert!(found("pub struct LeaseTable;\npub(crate) enum Leases { A }\n").is_empty());
        let wibble = "pub struct LeaseTable;\npub trait WibbleLease {}\n";
        assert_eq!(found(wibble), ["'wibble' of WibbleLease is explained nowhere"]);
        assert_eq!(
            found("pub struct Lease;\nstruct Wibble;\n"),
            ["'table' is in no name"],
            "others see it not"
        );
    }

    #[test]
    fn names_fall_apart_into_words() {
        assert_eq!(parts("MDTOpens"), ["mdt", "opens"]);
        assert_eq!(parts("ObjectAttr"), ["object", "attr"]);
        assert_eq!(parts("Layout500"), ["layout", "500"]);
        assert_eq!(public_type("    pub(super) struct Change<'a> {"), Some("Change"));
        assert_eq!(public_type("pub fn structure() {"), None);
    }
}
