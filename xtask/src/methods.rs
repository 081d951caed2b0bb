//! No type has more than 60 methods, over all `impl` blocks of its crate, those of traits included: one that
//! has more is several things, and every feature adds to it.

use crate::source::{File, Finding, Tree};
use std::collections::{BTreeMap, BTreeSet};

const METHODS_MAX: usize = 60;

/// Types that have more today: (crate, type, methods). A number may only fall; the line goes when it is no
/// more than allowed.
const OFFENDERS: &[(&str, &str, usize)] = &[];

/// Files of tests, and of what helps them.
const TESTS: [&str; 5] = ["/tests/", "_tests.rs", "/tests.rs", "/testing.rs", "/fake.rs"];

/// Where a method of a type is declared.
struct Method<'a> {
    file: &'a File,
    line: usize,
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    over(tree, OFFENDERS)
}

fn over(tree: &Tree, offenders: &[(&str, &str, usize)]) -> Vec<Finding> {
    let all = methods(tree);
    let mut out = Vec::new();
    for ((krate, name, _), found) in &all {
        let allowed = offenders.iter().find(|o| o.0 == *krate && o.1 == *name).map(|o| o.2);
        if found.len() > METHODS_MAX.max(allowed.unwrap_or(0)) {
            let last = found.last().expect("it has some");
            let limit = allowed.map_or(METHODS_MAX, |a| a.max(METHODS_MAX));
            let what = format!("{krate}: '{name}' has {} methods, {limit} are allowed", found.len());
            out.push(last.file.finding(last.line, what, "give a part of it a type of its own"));
        }
    }
    for (krate, name, allowed) in offenders {
        let most = all.iter().filter(|(k, _)| k.0 == *krate && k.1 == *name).map(|(_, m)| m.len()).max();
        let most = most.unwrap_or(0);
        if most < *allowed || *allowed <= METHODS_MAX {
            let what = format!("OFFENDERS: '{name}' of {krate} has {most} methods, not {allowed}");
            let remedy = "write the smaller number, or take the line out if it is allowed".to_string();
            out.push(Finding { path: "xtask/src/methods.rs".into(), line: 1, what, remedy });
        }
    }
    out
}

/// All methods in production code, by crate, type, and, of types whose name is not the only one in their
/// crate, file.
fn methods(tree: &Tree) -> BTreeMap<(&str, String, &str), Vec<Method<'_>>> {
    let files: Vec<&File> = tree.rust().filter(|f| is_production(&f.path)).collect();
    let homes = homes_of_types(&files);
    let mut out: BTreeMap<_, Vec<Method>> = BTreeMap::new();
    for file in files {
        let Some(krate) = file.krate() else { continue };
        for (name, line) in methods_of(file) {
            let alone = homes.get(&(krate, name.as_str())).is_none_or(|h| h.len() < 2);
            let home = if alone { "" } else { file.path.as_str() };
            out.entry((krate, name, home)).or_default().push(Method { file, line });
        }
    }
    out
}

/// The files that define each type, by crate and name.
pub fn homes_of_types<'a>(files: &[&'a File]) -> BTreeMap<(&'a str, &'a str), BTreeSet<&'a str>> {
    let mut homes: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for f in files {
        for line in f.production.lines() {
            if let (Some(name), Some(krate)) = (defined(line), f.krate()) {
                homes.entry((krate, name)).or_default().insert(&f.path);
            }
        }
    }
    homes
}

pub fn is_production(path: &str) -> bool {
    path.contains("/src/") && !TESTS.iter().any(|t| path.contains(t))
}

/// The type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|w| matches!(*w, "struct" | "enum" | "union"))?;
    let visible = words[..at].iter().all(|w| w.starts_with("pub"));
    let name = words.get(at + 1)?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    (visible && end > 0).then(|| &name[..end])
}

/// Types and lines of the methods of a file.
pub fn methods_of(f: &File) -> Vec<(String, usize)> {
    let mut out = Vec::new();
    let (mut of, mut depth, mut header) = (None, 0usize, String::new());
    for (n, line) in f.production.lines().enumerate() {
        let starts = depth == 0 && (line.starts_with("impl") || line.starts_with("unsafe impl"));
        if starts || !header.is_empty() {
            header.push_str(line);
            header.push(' ');
            if line.contains('{') {
                of = subject(&header);
                header.clear();
            } else if line.contains(';') {
                header.clear();
            }
        } else if depth == 1
            && let Some(of) = &of
            && declares_method(line)
        {
            out.push((of.clone(), n + 1));
        }
        let count = |c: char| line.matches(c).count();
        depth = (depth + count('{')).saturating_sub(count('}'));
        if depth == 0 && header.is_empty() {
            of = None;
        }
    }
    out
}

fn declares_method(line: &str) -> bool {
    let before_name = line.split("fn ").next().unwrap_or(line);
    let modifiers = before_name.split_whitespace().all(|w| {
        w.starts_with("pub") || matches!(w, "const" | "async" | "unsafe" | "extern") || w.ends_with(')')
    });
    before_name.len() < line.len() && modifiers
}

/// Types and lines of the `impl` blocks of a file that are no trait's.
pub fn own_impls_of(f: &File) -> Vec<(String, usize)> {
    let mut out = Vec::new();
    let (mut header, mut from) = (String::new(), 0);
    for (n, line) in f.production.lines().enumerate() {
        if header.is_empty() && !line.starts_with("impl") {
            continue;
        }
        if header.is_empty() {
            from = n + 1;
        }
        header.push_str(line);
        header.push(' ');
        if line.contains(['{', ';']) {
            let of_a_trait = without_parameters(&header).contains(" for ");
            out.extend(subject(&header).filter(|_| !of_a_trait).map(|name| (name, from)));
            header.clear();
        }
    }
    out
}

/// The type that an `impl` header is about, without its path and parameters.
fn subject(header: &str) -> Option<String> {
    let rest = header.trim_start().trim_start_matches("unsafe ").strip_prefix("impl")?;
    let rest = rest.split('{').next().unwrap_or("");
    let flat = without_parameters(rest);
    let flat = flat.split(" where ").next().unwrap_or("");
    let name = flat.rsplit(" for ").next().unwrap_or("").trim();
    let name = name.trim_start_matches('&').trim_start_matches("dyn ").rsplit("::").next()?.trim();
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    (end > 0).then(|| name[..end].to_string())
}

/// Everything between angle brackets taken out.
fn without_parameters(text: &str) -> String {
    let mut depth = 0usize;
    let mut out = String::new();
    let mut before = ' ';
    for c in text.chars() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth = depth.saturating_sub(1),
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        before = c;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(count: usize, of: &str) -> String {
        let body: String = (0..count).map(|n| format!("    pub fn f{n}(&self) {{\n    }}\n")).collect();
        format!("impl{of} {{\n{body}}}\n")
    }

    fn found(files: &[(&str, &str)], offenders: &[(&str, &str, usize)]) -> Vec<String> {
        over(&Tree::of(files), offenders).into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn a_planted_61st_is_found_wherever_it_is() {
        let (a, b) = (with(40, " Big"), with(20, "<T: Fn() -> u8> From<T> for Big"));
        let files = [("crates/x/src/a.rs", a.as_str()), ("crates/x/src/b.rs", b.as_str())];
        assert_eq!(found(&files, &[]), Vec::<String>::new());
        let more = "impl Big {\n    pub(crate) async fn one_more(\n        &self,\n    ) {\n    }\n}\n";
        let all = [files[0], files[1], ("crates/x/src/c/d.rs", more)];
        assert_eq!(found(&all, &[]), ["x: 'Big' has 61 methods, 60 are allowed"]);
        assert_eq!(found(&all, &[("x", "Big", 61)]), Vec::<String>::new());
        let elsewhere = [files[0], files[1], ("crates/y/src/c.rs", more), ("crates/x/src/tests.rs", more)];
        assert_eq!(found(&elsewhere, &[]), Vec::<String>::new());
    }

    #[test]
    fn what_is_allowed_may_only_shrink() {
        let a = with(62, " Big");
        let files = [("crates/x/src/a.rs", a.as_str())];
        assert_eq!(found(&files, &[("x", "Big", 61)]), ["x: 'Big' has 62 methods, 61 are allowed"]);
        assert_eq!(found(&files, &[("x", "Big", 63)]), ["OFFENDERS: 'Big' of x has 62 methods, not 63"]);
        assert_eq!(found(&[], &[("x", "Big", 61)]), ["OFFENDERS: 'Big' of x has 0 methods, not 61"]);
    }

    #[test]
    fn types_of_one_name_are_told_apart_by_their_files() {
        let a = format!("struct State;\n{}", with(40, " State"));
        let b = format!("pub(crate) enum State {{}}\n{}", with(40, " State"));
        let files = [("crates/x/src/a.rs", a.as_str()), ("crates/x/src/b.rs", b.as_str())];
        assert_eq!(found(&files, &[]), Vec::<String>::new());
    }

    #[test]
    fn functions_in_methods_and_tests_do_not_count() {
        let text = "impl A {\n    fn f() {\n        fn g() {}\n        call(|x: fn (u8)| x);\n    }\n}\nfn h() {}\n\
                    #[cfg(test)]\nmod tests {\n    impl A {\n        fn t() {}\n    }\n}\n";
        let tree = Tree::of(&[("crates/x/src/a.rs", text)]);
        let all = methods(&tree);
        assert_eq!(all.values().map(Vec::len).sum::<usize>(), 1);
        let subjects =
            ["impl<'a> b::A<'a> {", "impl X for &A {", "unsafe impl<T> Send for A<T> where T: B {"];
        for s in subjects {
            assert_eq!(subject(s).as_deref(), Some("A"), "{s}");
        }
    }
}
