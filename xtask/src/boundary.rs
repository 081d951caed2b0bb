//! Only `world` touches clock, socket, file, thread, process and entropy.

use crate::allow::{self, BOUNDARY};
use crate::layers;
use crate::source::{File, Finding, Tree, has_word};

/// Paths that lead outside, and what to use instead.
const TOKENS: [(&str, &str); 16] = [
    ("std::fs", "use World::disk or world::sys"),
    ("std::thread", "use World::spawn, World::blocking or world::sys"),
    ("std::process", "use world::sys"),
    ("std::time::Instant", "use World::now"),
    ("std::time::SystemTime", "use World::wall"),
    ("SystemTime", "use World::wall"),
    ("Instant::now", "use World::now"),
    ("std::net::TcpStream", "use World::net"),
    ("std::net::TcpListener", "use World::net"),
    ("std::net::UdpSocket", "use World::net"),
    ("std::os::unix::net", "use world::sys"),
    ("tokio", "use World and world::sync"),
    ("rand", "use World::rand"),
    ("getrandom", "use World::rand"),
    ("rustix", "use world::sys"),
    ("libc", "use world::sys"),
];

/// Modules of std that must not be taken in through a group (`use std::{fs, thread}`).
const MODULES: [&str; 3] = ["fs", "thread", "process"];
/// Packages that only `world` may depend on.
const PACKAGES: [&str; 6] = ["tokio", "rand", "getrandom", "rustix", "libc", "crossterm"];
/// Parts of those modules that neither reach outside nor make a run depend on it.
const HARMLESS: [&str; 4] =
    ["std::process::ExitCode", "std::process::id", "std::process::abort", "std::thread::panicking"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for f in tree.files.iter().filter(|f| f.krate().is_some_and(|k| k != "world")) {
        for (line, token, remedy) in uses_of(f) {
            if !allow::allows(BOUNDARY, &f.path, token) {
                out.push(f.finding(line, format!("'{token}' outside world"), remedy));
            }
        }
    }
    out
}

/// Whether any file below `path` uses `token`.
pub fn uses(tree: &Tree, path: &str, token: &str) -> bool {
    tree.files.iter().filter(|f| f.path.starts_with(path)).any(|f| uses_of(f).iter().any(|u| u.1 == token))
}

fn uses_of(f: &File) -> Vec<(usize, &'static str, &'static str)> {
    let mut out = Vec::new();
    if f.path.ends_with("/Cargo.toml") {
        for (line, dep) in layers::dependencies(&f.text) {
            if let Some(p) = PACKAGES.iter().find(|p| **p == dep) {
                out.push((
                    line,
                    *p,
                    "remove the dependency, or allow it with a reason in xtask/src/allow.rs",
                ));
            }
        }
    }
    for (n, line) in f.code.lines().enumerate() {
        let line = HARMLESS.iter().fold(line.to_string(), |l, h| l.replace(h, ""));
        for (token, remedy) in TOKENS {
            let path_like =
                token.contains("::") || line.contains(&format!("{token}::")) || line.contains("use ");
            if has_word(&line, token) && path_like {
                out.push((n + 1, token, remedy));
            }
        }
        if let Some(group) = line.trim().strip_prefix("use std::{") {
            for m in MODULES.iter().filter(|m| has_word(group, m)) {
                let token = TOKENS.iter().find(|(t, _)| t.ends_with(&format!("::{m}"))).expect("listed");
                out.push((n + 1, token.0, token.1));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outside_is_found_where_it_is_used() {
        let bad = "use std::{fs, io};\nlet x = std::thread::spawn(f);\ntokio::spawn(x);\nuse libc::c_int;\n";
        let t = Tree::of(&[("crates/oss/src/lib.rs", bad), ("crates/world/src/lib.rs", bad)]);
        let lines: Vec<usize> = check(&t).iter().map(|f| f.line).collect();
        assert_eq!(lines, [1, 2, 3, 4]);
        let good = "use std::process::ExitCode;\n// std::fs\nuse std::time::Duration;\nlet operand = 1;\nuse std::net::IpAddr;\n";
        assert!(check(&Tree::of(&[("crates/oss/src/lib.rs", good)])).is_empty());
        let manifest = "[dependencies]\ntokio.workspace = true\n";
        assert_eq!(check(&Tree::of(&[("crates/oss/Cargo.toml", manifest)])).len(), 1);
    }
}
