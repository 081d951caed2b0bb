//! Same verb, same file name, every hop: each message has a sender and a handler.

use crate::allow::{self, MESSAGES};
use crate::source::{File, Finding, Tree, has_word};

/// Messages of the session layer: both ends are in `rpc`.
const SESSION: [&str; 4] = ["connect", "disconnect", "notify", "ping"];
/// Crates that ask.
const SENDERS: [&str; 6] = ["client", "mds", "oss", "mgs", "server", "admin"];
/// Where the program that serves targets answers what is for it.
const PROGRAM: &str = "crates/server/src/nacred";
/// Crates that answer.
const HANDLERS: [&str; 3] = ["mds", "oss", "mgs"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for f in tree.rust() {
        let Some(verb) = verb(f) else { continue };
        for end in missing(tree, f, verb) {
            if !allow::allows(MESSAGES, &f.path, end) {
                let what = format!("message '{verb}' has no {end}");
                let remedy = match end {
                    "sender" => format!("send it (crates/client/src/llite/{verb}.rs), or remove it"),
                    _ => format!("answer it in ops/{verb}.rs of mds, oss or mgs"),
                };
                out.push(f.finding(1, what, remedy));
            }
        }
    }
    out
}

/// Whether the message in `path` still lacks this end.
pub fn lacks(tree: &Tree, path: &str, end: &str) -> bool {
    tree.file(path).is_some_and(|f| verb(f).is_some_and(|v| missing(tree, f, v).contains(&end)))
}

fn verb(f: &File) -> Option<&str> {
    let v = f.path.strip_prefix("crates/wire/src/msg/")?.strip_suffix(".rs")?;
    (v != "mod").then_some(v)
}

fn missing(tree: &Tree, f: &File, verb: &str) -> Vec<&'static str> {
    let types = request_types(f);
    let mentions = |g: &File| types.iter().any(|t| has_word(&g.code, t));
    if SESSION.contains(&verb) {
        let there = tree.rust().any(|g| g.krate() == Some("rpc") && (mentions(g) || has_word(&g.code, verb)));
        return if there { Vec::new() } else { vec!["sender", "handler"] };
    }
    let homes = HANDLERS.iter().map(|k| format!("crates/{k}/src/ops")).chain([PROGRAM.to_string()]);
    let handler = homes.into_iter().any(|home| {
        let file = format!("{home}/{verb}.rs");
        let folder = format!("{home}/{verb}/");
        tree.rust().any(|g| (g.path == file || g.path.starts_with(&folder)) && mentions(g))
    });
    let sender = tree.rust().any(|g| {
        g.krate().is_some_and(|k| SENDERS.contains(&k)) && !is_handler(g) && mentions(g) && builds(g, &types)
    });
    let mut out = Vec::new();
    if !sender {
        out.push("sender");
    }
    if !handler {
        out.push("handler");
    }
    out
}

fn is_handler(g: &File) -> bool {
    HANDLERS.iter().any(|k| g.path.starts_with(&format!("crates/{k}/src/ops/")))
}

/// Whether the file makes a value of one of the types (`Type {`, `Type::new(`, `Type::Variant`), outside its
/// tests.
fn builds(g: &File, types: &[String]) -> bool {
    let made = |l: &str, t: &str| l.contains(&format!("{t} {{")) || l.contains(&format!("{t}::"));
    g.production.lines().any(|l| types.iter().any(|t| has_word(l, t) && made(l, t)))
}

/// First arguments of `message!(…)`.
fn request_types(f: &File) -> Vec<String> {
    f.code
        .lines()
        .filter_map(|l| l.trim().strip_prefix("message!("))
        .filter_map(|l| l.split(',').next())
        .map(|t| t.trim().to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_end_is_found() {
        let msg = ("crates/wire/src/msg/open.rs", "message!(Open, Open, Entry);");
        let sender = ("crates/client/src/llite/open.rs", "call(Open { fid })");
        let handler = ("crates/mds/src/ops/open.rs", "fn run(m: Open) {}");
        assert_eq!(check(&Tree::of(&[msg, sender, handler])).len(), 0);
        assert_eq!(check(&Tree::of(&[msg, sender])).len(), 1);
        assert_eq!(check(&Tree::of(&[msg, handler])).len(), 1);
        assert_eq!(check(&Tree::of(&[msg])).len(), 2);
    }
}
