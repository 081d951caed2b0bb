//! Locks carry one policy for panics (decision 0053): those of `model::mutex`, not those of `std::sync`.

use crate::source::{Finding, Tree, has_word};

const HELPER: &str = "crates/model/src/mutex.rs";
const LOCKS: [&str; 4] = ["Mutex", "RwLock", "Condvar", "PoisonError"];
const REMEDY: &str = "use model::mutex: its lock() carries the policy of decision 0053";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for f in tree.rust() {
        if f.krate().is_none() || !f.path.contains("/src/") || f.path == HELPER {
            continue;
        }
        for (n, at) in uses(&f.code) {
            out.push(f.finding(n, format!("'{at}' of std::sync"), REMEDY));
        }
        for (n, line) in f.code.lines().enumerate() {
            if has_word(line, "PoisonError") || line.contains(".lock().expect(") {
                out.push(f.finding(n + 1, "a policy of its own for a lock whose holder panicked", REMEDY));
            }
        }
    }
    out
}

/// Locks that are taken from `std::sync`: (line, name).
fn uses(code: &str) -> Vec<(usize, &'static str)> {
    let mut out = Vec::new();
    for (at, _) in code.match_indices("std::sync::") {
        let rest = &code[at + "std::sync::".len()..];
        let end = if rest.starts_with('{') {
            rest.find(';')
        } else {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_')
        };
        let names = &rest[..end.unwrap_or(rest.len())];
        let line = code[..at].lines().count().max(1);
        out.extend(LOCKS.iter().filter(|l| has_word(names, l)).map(|l| (line, *l)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_those_with_the_policy() {
        let found = |path, text| check(&Tree::of(&[(path, text)])).len();
        let at = "crates/mds/src/mdt.rs";
        assert_eq!(found(at, "use std::sync::{Arc, Mutex};\n"), 1);
        assert_eq!(found(at, "use std::sync::{\n    Arc,\n    RwLock,\n};\n"), 1);
        assert_eq!(found(at, "static X: std::sync::Mutex<()> = y();\n"), 1);
        assert_eq!(found(at, "let g = m.lock().expect(\"no panic\");\n"), 1);
        assert_eq!(found(at, "use model::mutex::Mutex;\nuse std::sync::{Arc, OnceLock};\n"), 0);
        assert_eq!(found(at, "use world::sync::RwLock;\nlet g = m.lock();\n"), 0);
        assert_eq!(found(HELPER, "use std::sync::PoisonError;\n"), 0);
        assert_eq!(found("crates/mds/tests/x.rs", "use std::sync::Mutex;\n"), 0);
    }
}
