//! No circle of more than eight files that need each other, in any crate: such files can only be understood,
//! and tested, together.
//!
//! A file needs another if it names something of it by a path (`crate::…`, `super::…`), found behind the
//! re-exports of a `mod.rs`, or calls a method that is declared in that file only, of a type that it names
//! itself. A crate's root is left out: all hang on it.

use crate::methods::methods_of;
use crate::source::{File, Finding, Tree, has_word};
use std::collections::{BTreeMap, BTreeSet};

const FILES_MAX: usize = 8;

/// Crates with larger circles today, and the files of the largest. A number may only fall.
const OFFENDERS: &[(&str, usize)] = &[];

const TESTS: [&str; 6] = ["/tests/", "_tests.rs", "/tests.rs", "/testing.rs", "/fake.rs", "/fuzz.rs"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    over(tree, OFFENDERS)
}

fn over(tree: &Tree, offenders: &[(&str, usize)]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<&File>> = BTreeMap::new();
    for f in tree.rust().filter(|f| f.path.contains("/src/") && !TESTS.iter().any(|t| f.path.contains(t))) {
        if let Some(k) = f.krate() {
            crates.entry(k).or_default().push(f);
        }
    }
    let mut out = Vec::new();
    let remedy =
        "have one of them call the others through a trait, or move what they share below all of them";
    for (krate, files) in &crates {
        let allowed = offenders.iter().find(|o| o.0 == *krate).map_or(FILES_MAX, |o| o.1);
        let circles = circles(&needs(files));
        let largest = circles.iter().map(Vec::len).max().unwrap_or(0);
        for c in circles.iter().filter(|c| c.len() > allowed) {
            let names: Vec<&str> = c.iter().map(|i| module_of(&files[*i].path)).collect();
            let what =
                format!("{krate}: a circle of {} files, {allowed} are allowed: {}", c.len(), names.join(" "));
            out.push(files[c[0]].finding(1, what, remedy));
        }
        if allowed > FILES_MAX && largest < allowed {
            let what = format!("OFFENDERS: the largest circle of {krate} has {largest} files, not {allowed}");
            let remedy = "write the smaller number, or take the line out".to_string();
            out.push(Finding { path: "xtask/src/circles.rs".into(), line: 1, what, remedy });
        }
    }
    out
}

/// The path below `src`, without `.rs`, of a folder's `mod.rs` the folder's; empty for a crate's root.
fn module_of(path: &str) -> &str {
    let below = path.split_once("/src/").map_or(path, |(_, b)| b);
    let m = below.strip_suffix(".rs").unwrap_or(below);
    match m {
        "lib" | "main" | "mod" => "",
        m => m.strip_suffix("/mod").unwrap_or(m),
    }
}

/// Which files a file needs, by their places in the list.
fn needs(files: &[&File]) -> Vec<BTreeSet<usize>> {
    let modules: BTreeMap<&str, usize> =
        files.iter().enumerate().map(|(i, f)| (module_of(&f.path), i)).collect();
    let mut items: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut methods: BTreeMap<String, BTreeSet<(usize, String)>> = BTreeMap::new();
    for (i, f) in files.iter().enumerate() {
        for line in f.production.lines() {
            if let Some(name) = declared(line).filter(|_| line.starts_with("pub")) {
                items.entry(name).or_default().push(i);
            }
        }
        let lines: Vec<&str> = f.code.lines().collect();
        for (of, line) in methods_of(f) {
            if let Some(name) = declared(lines[line - 1]) {
                methods.entry(name).or_default().insert((i, of));
            }
        }
    }
    let mut out = vec![BTreeSet::new(); files.len()];
    for (i, f) in files.iter().enumerate() {
        let me = module_of(&f.path);
        let code: String = f.production.clone();
        for path in paths(&code, me) {
            out[i].extend(resolve(&path, &modules, &items, files));
        }
        for name in called(&code) {
            let homes: Vec<_> = methods.get(name).into_iter().flatten().collect();
            if let [(home, of)] = homes[..]
                && has_word(&code, of)
            {
                out[i].insert(*home);
            }
        }
        out[i].remove(&i);
        out[i].retain(|j| !module_of(&files[*j].path).is_empty());
        if me.is_empty() {
            out[i].clear();
        }
    }
    out
}

/// The file that declares what a path leads to: in its longest module, or behind that module's re-exports.
fn resolve(
    path: &[String],
    modules: &BTreeMap<&str, usize>,
    items: &BTreeMap<String, Vec<usize>>,
    files: &[&File],
) -> Option<usize> {
    let (module, rest) = (0..=path.len()).rev().find_map(|n| {
        let m = path[..n].join("/");
        modules.get(m.as_str()).map(|i| (*i, &path[n..]))
    })?;
    let Some(item) = rest.first() else { return Some(module) };
    let home = module_of(&files[module].path);
    let below: Vec<usize> = items.get(item).into_iter().flatten().copied().collect();
    if below.contains(&module) {
        return Some(module);
    }
    let inside = |i: &&usize| home.is_empty() || module_of(&files[**i].path).starts_with(&format!("{home}/"));
    match below.iter().filter(inside).collect::<Vec<_>>()[..] {
        [one] => Some(*one),
        _ => Some(module),
    }
}

/// What a line declares: an item, or a method if it is indented.
fn declared(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().peekable();
    while words.peek().is_some_and(|w| w.starts_with("pub") || matches!(*w, "async" | "unsafe" | "in")) {
        words.next();
    }
    let mut kind = words.next()?;
    if kind == "const" && words.peek() == Some(&"fn") {
        kind = words.next()?;
    }
    let indented = line.starts_with(' ');
    let counts = if indented {
        kind == "fn" && line.starts_with("    ") && !line.starts_with("     ")
    } else {
        matches!(kind, "struct" | "enum" | "trait" | "fn" | "const" | "static" | "type")
    };
    let name: String = words.next()?.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (counts && !name.is_empty()).then_some(name)
}

/// Names of methods that are called.
fn called(code: &str) -> BTreeSet<&str> {
    let mut out = BTreeSet::new();
    for (at, _) in code.match_indices('.') {
        let rest = &code[at + 1..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if end > 0 && (rest[end..].starts_with('(') || rest[end..].starts_with("::<")) {
            out.insert(&rest[..end]);
        }
    }
    out
}

/// Paths from the crate's root, groups taken apart. Re-exports of a folder's `mod.rs` are no needs of it.
fn paths(code: &str, me: &str) -> Vec<Vec<String>> {
    let mut out = Vec::new();
    let here: Vec<String> = me.split('/').filter(|s| !s.is_empty()).map(str::to_string).collect();
    for (word, base) in [("crate::", Vec::new()), ("super::", here[..here.len().saturating_sub(1)].to_vec())]
    {
        for (at, _) in code.match_indices(word) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let line = code[..at].rfind('\n').map_or(0, |n| n + 1);
            if code[line..at].trim_start().starts_with("pub") && code[line..at].contains("use ") {
                continue;
            }
            take(&code[at + word.len()..], &base, &mut out);
        }
    }
    out
}

/// The paths that a text begins with, below `base`. How many bytes they take.
fn take(text: &str, base: &[String], out: &mut Vec<Vec<String>>) -> usize {
    let mut at = 0;
    if text.starts_with('{') {
        at = 1;
        loop {
            at += text[at..].len() - text[at..].trim_start_matches([' ', '\n', ',']).len();
            if at >= text.len() || text[at..].starts_with('}') {
                return (at + 1).min(text.len());
            }
            let n = take(&text[at..], base, out);
            at += n.max(1);
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let name = &text[..end];
    at += end;
    if name.is_empty() || name == "self" {
        out.push(base.to_vec());
        return at;
    }
    let mut path = base.to_vec();
    path.push(name.to_string());
    if text[at..].starts_with("::") && !text[at + 2..].starts_with('<') && !text[at + 2..].starts_with('*') {
        return at + 2 + take(&text[at + 2..], &path, out);
    }
    out.push(path);
    at
}

/// Files that reach each other, more than one at a time.
fn circles(needs: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let reach = |from: usize| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(i) = left.pop() {
            left.extend(needs[i].iter().filter(|j| seen.insert(**j)));
        }
        seen
    };
    let all: Vec<BTreeSet<usize>> = (0..needs.len()).map(reach).collect();
    let (mut out, mut done) = (Vec::new(), BTreeSet::new());
    for i in 0..needs.len() {
        let circle: Vec<usize> = all[i].iter().copied().filter(|j| all[*j].contains(&i)).collect();
        if circle.len() > 1 && circle.iter().all(|j| done.insert(*j)) {
            out.push(circle);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(String, String)], offenders: &[(&str, usize)]) -> Vec<String> {
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
        over(&Tree::of(&files), offenders).into_iter().map(|f| f.what).collect()
    }

    /// Files each of which names the next; the last the first by a method, if it is a ring.
    fn ring(n: usize, closed: bool) -> Vec<(String, String)> {
        let next = |i: usize| match i + 1 {
            j if j < n => format!("use crate::m{j}::Item{j};\nfn f{i}(_: Item{j}) {{}}\n"),
            _ if closed => "impl X {\n    fn g(&self) {\n        self.only_here();\n    }\n}\n".to_string(),
            _ => String::new(),
        };
        let text = |i: usize| {
            let first = if i == 0 { "impl X {\n    pub fn only_here(&self) {}\n}\n" } else { "" };
            format!("pub struct Item{i};\n{first}{}", next(i))
        };
        (0..n).map(|i| (format!("crates/x/src/m{i}.rs"), text(i))).collect()
    }

    #[test]
    fn a_planted_circle_of_nine_is_found() {
        assert!(found(&ring(9, false), &[]).is_empty());
        assert!(found(&ring(8, true), &[]).is_empty());
        let nine = found(&ring(9, true), &[]);
        assert_eq!(nine.len(), 1);
        assert!(nine[0].starts_with("x: a circle of 9 files, 8 are allowed: m0 m1"), "{nine:?}");
        assert!(found(&ring(9, true), &[("x", 9)]).is_empty());
        assert_eq!(found(&ring(9, true), &[("x", 10)]).len(), 1, "the number is not true any more");
    }

    #[test]
    fn paths_are_taken_apart() {
        let all = |code: &str, me: &str| -> Vec<String> {
            paths(code, me).into_iter().map(|p| p.join("/")).collect()
        };
        assert_eq!(all("use crate::a::{b::C, self, d::{E, F}};", "x"), ["a/b/C", "a", "a/d/E", "a/d/F"]);
        assert_eq!(all("use super::G;\nfn f(x: crate::h::I) {}", "a/b"), ["h/I", "a/G"]);
        assert_eq!(all("pub(crate) use crate::a::B;", "x"), Vec::<String>::new());
    }

    #[test]
    fn what_a_folder_gives_out_is_found_where_it_is() {
        let files = [
            ("crates/x/src/a/mod.rs", "mod b;\npub use b::B;\n"),
            ("crates/x/src/a/b.rs", "pub struct B;\n"),
            ("crates/x/src/c.rs", "use crate::a::B;\n"),
        ];
        let tree = Tree::of(&files);
        let files: Vec<&File> = tree.files.iter().collect();
        let needs = needs(&files);
        assert_eq!(needs[2].iter().copied().collect::<Vec<_>>(), [1]);
    }
}
