//! The layers within a crate: a file uses only what its own layer and those below hold.

use crate::source::{Finding, Tree};

/// A crate with layers: from the lowest up, folders or files (without `.rs`) of its `src`. Those of one layer
/// do not use each other.
struct Crate {
    src: &'static str,
    layers: &'static [&'static [&'static str]],
    /// Items of the crate's root that all layers may use.
    shared: &'static [&'static str],
    /// Items of the crate's root that belong to a layer: (item, folder).
    roots: &'static [(&'static str, &'static str)],
}

const CRATES: [Crate; 1] = [Crate {
    src: "crates/client/src/",
    layers: &[
        &["base", "stats", "control"],
        &["session"],
        &["osc", "mdc"],
        &["lov"],
        &["lmv"],
        &["llite"],
        &["pages", "admin"],
        &["library"],
    ],
    // `testing` is there in tests only.
    shared: &[
        "R",
        "Call",
        "BoxFutureOf",
        "CancelOnDrop",
        "testing",
        "ErrorCursor",
        "ErrorMark",
        "TargetState",
        "MountError",
        "MountOptions",
    ],
    roots: &[
        ("Fs", "llite"),
        ("OpenHandle", "llite"),
        ("PosixLock", "llite"),
        ("FsSpace", "llite"),
        ("Admin", "llite"),
        ("Locks", "llite"),
    ],
}];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for f in tree.files.iter().filter(|f| f.is_rust()) {
        for c in &CRATES {
            let Some(path) = f.path.strip_prefix(c.src) else { continue };
            let room = path.split(['/', '.']).next().unwrap_or("");
            let home = |name: &'_ str| c.roots.iter().find(|r| r.0 == name).map(|r| r.1);
            let layer_of = |name: &str| {
                let folder = home(name).unwrap_or(name);
                c.layers.iter().position(|l| l.contains(&folder))
            };
            let Some(mine) = layer_of(room) else { continue };
            for (n, line) in f.production.lines().enumerate() {
                for used in uses(line) {
                    let below = layer_of(used).is_some_and(|t| t < mine);
                    if below || used == room || home(used) == Some(room) || c.shared.contains(&used) {
                        continue;
                    }
                    let what = format!("'{room}' uses '{used}', which does not lie below it");
                    out.push(f.finding(
                        n + 1,
                        what,
                        "call up through a trait that the upper layer implements",
                    ));
                }
            }
        }
    }
    out
}

/// The first names of `crate::` paths in a line, those in braces included.
fn uses(line: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find("crate::") {
        let whole = !rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        rest = &rest[at + "crate::".len()..];
        if !whole {
            continue;
        }
        let list = match rest.strip_prefix('{') {
            Some(l) => l.split('}').next().unwrap_or(""),
            None => rest,
        };
        let names = if list.len() == rest.len() { vec![list] } else { list.split(',').collect() };
        for n in names {
            let end = n.trim_start().find(|c: char| !c.is_alphanumeric() && c != '_');
            let n = n.trim_start();
            let n = &n[..end.unwrap_or(n.len())];
            if !n.is_empty() {
                out.push(n);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|f| format!("{}:{}", f.line, f.what)).collect()
    }

    #[test]
    fn a_layer_uses_what_lies_below() {
        let ok = "use crate::base::Context;\nuse crate::{BoxFutureOf, R};\nuse crate::session::Target;\n";
        assert!(found("crates/client/src/osc/object.rs", ok).is_empty());
        assert!(found("crates/client/src/llite/read.rs", "use crate::{Fs, osc};\n").is_empty());
        assert!(found("crates/client/src/pages/fill.rs", "use crate::{Fs, llite};\n").is_empty());
        assert!(found("crates/client/src/library/user.rs", "use crate::{Fs, pages};\n").is_empty());
        assert!(found("crates/client/src/osc/a.rs", "#[cfg(test)]\nuse crate::Fs;\n").is_empty());
    }

    #[test]
    fn a_planted_call_up_is_found() {
        let up = ["use crate::Fs;", "use crate::{R, Fs};", "fn f(x: &crate::lov::File) {}"];
        for text in up {
            assert_eq!(found("crates/client/src/osc/object.rs", text).len(), 1, "{text}");
        }
        assert_eq!(found("crates/client/src/session/mod.rs", "use crate::osc::Osc;").len(), 1);
        assert_eq!(found("crates/client/src/mdc/lease.rs", "use crate::osc::Osc;").len(), 1);
        assert_eq!(found("crates/client/src/llite/read.rs", "use crate::pages::GRACE;").len(), 1);
        assert_eq!(found("crates/client/src/lmv/mod.rs", "use crate::{Fs, R};").len(), 1);
        assert_eq!(found("crates/client/src/base/cache_holder.rs", "use crate::session::Target;").len(), 1);
    }
}
