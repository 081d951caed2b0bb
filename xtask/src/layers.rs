//! The layer rule (docs/decisions/0002): a crate uses only what stands left of it, peers not at all.

use crate::source::{Finding, Tree};

/// Left to right.
const LAYERS: [&[&str]; 11] = [
    &["model"],
    &["wire"],
    &["world"],
    &["rpc", "ldlm", "store"],
    &["etcd"],
    &["mgs", "mds", "oss"],
    &["client"],
    &["fuse", "admin"],
    &["bench", "dashboard"],
    &["server"],
    &["sim"],
];

/// (crate, what it must not use although it stands left, why). Tests may: the client's run it against servers
/// in their own process.
const NEVER: [(&str, &str, &str); 3] = [
    ("client", "mgs", "they meet through wire"),
    ("client", "mds", "they meet through wire"),
    ("client", "oss", "they meet through wire"),
];

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|l| l.contains(&name))
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for f in &tree.files {
        let Some(krate) = f.krate().filter(|k| f.path == format!("crates/{k}/Cargo.toml")) else { continue };
        let Some(mine) = layer(krate) else {
            out.push(f.finding(
                1,
                format!("crate '{krate}' has no layer"),
                "give it one in xtask/src/layers.rs",
            ));
            continue;
        };
        let for_tests = test_dependencies(&f.text);
        for (line, dep) in dependencies(&f.text) {
            let Some(theirs) = layer(&dep) else { continue };
            let never = NEVER.iter().find(|(k, d, _)| *k == krate && *d == dep && !for_tests.contains(&line));
            if let Some((_, _, why)) = never {
                out.push(f.finding(line, format!("'{krate}' uses '{dep}'"), format!("{why}: remove it")));
            } else if theirs >= mine {
                let what = format!("'{krate}' uses '{dep}', which does not stand left of it");
                out.push(f.finding(line, what, "move the shared part to a crate left of both"));
            }
        }
    }
    out
}

/// (line, name) of every dependency in a manifest, of all kinds.
pub fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    let mut within = false;
    for (n, line) in manifest.lines().enumerate() {
        let t = line.split('#').next().unwrap_or("").trim();
        if let Some(section) = t.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
            within = kinds.iter().any(|k| section == *k || section.ends_with(&format!(".{k}")));
            if let Some(name) = kinds.iter().find_map(|k| section.strip_prefix(&format!("{k}."))) {
                out.push((n + 1, name.to_string()));
            }
        } else if within && let Some((key, _)) = t.split_once('=') {
            let name = key.trim().split('.').next().unwrap_or("").trim_matches('"');
            out.push((n + 1, name.to_string()));
        }
    }
    out
}

/// Lines of a manifest that lie in its `[dev-dependencies]`.
fn test_dependencies(manifest: &str) -> Vec<usize> {
    let mut within = false;
    let mut out = Vec::new();
    for (n, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            within = line.trim_end() == "[dev-dependencies]";
        } else if within {
            out.push(n + 1);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).into_iter().map(|f| format!("{}:{}", f.line, f.what)).collect()
    }

    #[test]
    fn right_standing_and_peer_crates_are_refused() {
        let ok = "[dependencies]\nmodel.workspace = true\nserde = { version = \"1\" }\n[dev-dependencies]\nworld.workspace = true\n";
        assert!(found(&[("crates/rpc/Cargo.toml", ok)]).is_empty());
        assert_eq!(found(&[("crates/rpc/Cargo.toml", "[dependencies]\nstore.workspace = true\n")]).len(), 1);
        assert_eq!(found(&[("crates/mds/Cargo.toml", "[dependencies.client]\nworkspace = true\n")]).len(), 1);
        assert_eq!(
            found(&[(
                "crates/client/Cargo.toml",
                "[dev-dependencies]\nbytes = \"1\"\n[dependencies]\nmds.workspace = true\n"
            )])
            .len(),
            1
        );
        assert!(
            found(&[("crates/client/Cargo.toml", "[dev-dependencies]\nmds.workspace = true\n")]).is_empty()
        );
        assert_eq!(found(&[("crates/other/Cargo.toml", "")]).len(), 1);
    }
}
