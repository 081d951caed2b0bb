//! What a crate relies on is asserted, in production too: so many assertions for each 1,000 lines of it.
//!
//! Counted are `assert!`, `assert_eq!`, `assert_ne!` and `unreachable!` that run: not those of the compiler
//! (`const`), not those of tests.

use crate::source::{File, Finding, Tree};
use std::collections::BTreeMap;

/// Least number for each 1,000 lines of production code, by crate, or by folder of a crate. A floor may only
/// rise.
const FLOORS: [(&str, usize); 19] = [
    ("admin", 0),
    ("bench", 0),
    ("client", 7),
    ("client/mdc", 12),
    ("client/osc", 12),
    ("dashboard", 3),
    ("etcd", 0),
    ("fuse", 8),
    ("ldlm", 12),
    ("mds", 12),
    ("mgs", 8),
    ("model", 9),
    ("oss", 12),
    ("rpc", 8),
    ("server", 8),
    ("sim", 1),
    ("store", 12),
    ("wire", 8),
    ("world", 8),
];

/// Files that help tests, beside those named after them.
const HELPERS: [&str; 3] = ["testing.rs", "fake.rs", "fuzz.rs"];

#[derive(Default)]
struct Count {
    lines: usize,
    asserts: usize,
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut places: BTreeMap<String, Count> = BTreeMap::new();
    for f in tree.rust() {
        let Some(krate) = f.krate().filter(|k| is_production(k, &f.path)) else { continue };
        let code = &f.production;
        let (lines, asserts) = (code.lines().filter(|l| !l.trim().is_empty()).count(), asserts(code));
        let mut dirs = f.path.strip_prefix(&src_of(krate)).unwrap_or("").split('/');
        let folder = format!("{krate}/{}", dirs.next().unwrap_or(""));
        let has_floor = FLOORS.iter().any(|(k, _)| *k == folder);
        for place in [Some(krate.to_string()), has_floor.then_some(folder)].into_iter().flatten() {
            let c = places.entry(place).or_default();
            c.lines += lines;
            c.asserts += asserts;
        }
    }
    places.iter().filter_map(|(place, c)| judge(tree, place, c)).collect()
}

fn src_of(krate: &str) -> String {
    format!("crates/{krate}/src/")
}

/// What is wrong with the count of a crate, or of a folder of one, said of its first file.
fn judge(tree: &Tree, place: &str, c: &Count) -> Option<Finding> {
    let src = match place.split_once('/') {
        Some((krate, folder)) => format!("{}{folder}/", src_of(krate)),
        None => src_of(place),
    };
    let f: &File = tree.rust().find(|f| f.path.starts_with(&src))?;
    let Some((_, floor)) = FLOORS.iter().find(|(k, _)| *k == place) else {
        let what = format!("crate '{place}' has no floor for its assertions");
        return Some(f.finding(1, what, "give it one in xtask/src/assertions.rs"));
    };
    let wanted = (floor * c.lines).div_ceil(1000);
    if c.asserts >= wanted {
        return None;
    }
    let what = format!(
        "'{place}' asserts {} things in {} lines, {wanted} are wanted ({floor} for each 1,000)",
        c.asserts, c.lines
    );
    let remedy = "where state changes, assert what a reader relies on, with a message in words (\"dirty bytes lie under a \
                  lock\"); what peers, disks and users send gets an error instead; the floor may only rise";
    Some(f.finding(1, what, remedy))
}

fn is_production(krate: &str, path: &str) -> bool {
    let Some(within) = path.strip_prefix(&format!("crates/{krate}/src/")) else { return false };
    let name = within.rsplit('/').next().unwrap_or(within);
    let tests = name == "tests.rs" || name.ends_with("_tests.rs") || within.split('/').any(|d| d == "tests");
    !tests && !HELPERS.contains(&name)
}

fn asserts(code: &str) -> usize {
    code.lines().filter(|l| !is_compiled(l)).map(|l| NAMES.iter().map(|n| calls(l, n)).sum::<usize>()).sum()
}

const NAMES: [&str; 4] = ["assert!", "assert_eq!", "assert_ne!", "unreachable!"];

/// The compiler runs it.
fn is_compiled(line: &str) -> bool {
    line.contains("const _") || line.contains("const {")
}

/// How often a line calls a macro, `debug_assert!` apart.
fn calls(line: &str, name: &str) -> usize {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name).filter(|(i, _)| !line[..*i].chars().next_back().is_some_and(part)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of crate `oss`, whose floor is 12.
    fn found(asserts: &str, lines: usize) -> Vec<Finding> {
        let code = format!("fn f() {{\n{asserts}\n{}}}\n", "x();\n".repeat(lines));
        check(&Tree::of(&[("crates/oss/src/lib.rs", &code)]))
    }

    #[test]
    fn a_crate_below_its_floor_is_found_with_a_remedy() {
        let twelve = "assert!(a);\n".repeat(10) + "assert_eq!(a, b); unreachable!();";
        assert!(found(&twelve, 900).is_empty());
        let less = found(&twelve, 1100);
        assert_eq!(less.len(), 1, "{less:?}");
        assert!(less[0].what.contains("12 things") && less[0].remedy.contains("in words"));
    }

    #[test]
    fn tests_comments_and_the_compiler_do_not_count() {
        let none = "// assert!(a)\nlet s = \"assert!(a)\"; debug_assert!(a); const { assert!(A) };";
        let code = format!("{none}\n#[cfg(test)]\nmod tests {{ fn t() {{ assert!(a); }} }}\nfn g() {{}}\n");
        assert_eq!((asserts(&crate::source::without_tests(&crate::source::code_only(&code)))), 0);
        assert!(crate::source::without_tests("#[cfg(test)]\nmod testing;\nfn g() {}").contains("fn g"));
        for path in ["tests/a.rs", "a_tests.rs", "tests.rs", "x/testing.rs"] {
            assert!(!is_production("oss", &format!("crates/oss/src/{path}")), "{path}");
        }
        assert!(is_production("oss", "crates/oss/src/ops/read.rs"));
        assert!(!is_production("oss", "crates/oss/tests/service.rs"));
    }

    #[test]
    fn a_crate_without_a_floor_is_found() {
        let found = check(&Tree::of(&[("crates/other/src/lib.rs", "fn f() {}\n")]));
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("no floor"));
    }
}
