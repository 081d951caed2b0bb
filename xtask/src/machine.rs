//! Nothing in the tree may name the machine it was written on: its folders, or the hosts its packages come
//! from.

use crate::source::{Finding, Tree};

/// The lock file names the public index only.
const PUBLIC_SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let secrets = machine_words(&tree.root);
    let mut out = Vec::new();
    for f in &tree.files {
        for (n, line) in f.text.lines().enumerate() {
            for (word, kind, remedy) in &secrets {
                if line.contains(word.as_str()) {
                    out.push(f.finding(n + 1, format!("{kind} in the tree"), *remedy));
                }
            }
            if f.path.ends_with("Cargo.lock")
                && let Some(source) = line.strip_prefix("source = ")
                && source.trim_matches('"') != PUBLIC_SOURCE
            {
                out.push(f.finding(
                    n + 1,
                    "package from elsewhere than crates.io",
                    "lock it against crates.io",
                ));
            }
        }
    }
    out
}

/// (text, what it is, remedy): learnt from the machine that runs this.
fn machine_words(root: &str) -> Vec<(String, &'static str, &'static str)> {
    let mut out = Vec::new();
    let path = "write it relative to the repository, or as a parameter";
    let parent = std::path::Path::new(root).parent().map(|p| p.to_string_lossy().into_owned());
    for dir in
        parent.into_iter().chain(std::env::var("HOME").ok()).chain(std::env::var("CARGO_TARGET_DIR").ok())
    {
        let dir = dir.trim_end_matches('/');
        // "/" or "/tmp" would be found everywhere and says nothing about a machine.
        if dir.len() > 1 && !["/tmp", "/mnt", "/var/tmp", "/srv", "/opt", "/home"].contains(&dir) {
            out.push((format!("{dir}/"), "path of a machine", path));
        }
    }
    let host = "remove it: packages come from the public registries";
    for name in registry_hosts() {
        out.push((name, "host of a package registry", host));
    }
    out
}

/// Hosts in Cargo's and pip's settings of this machine, the public ones aside.
fn registry_hosts() -> Vec<String> {
    let public = ["crates.io", "github.com", "rust-lang.org", "pypi.org", "pythonhosted.org"];
    let home = std::env::var("HOME").unwrap_or_default();
    let cargo = std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{home}/.cargo"));
    let files = [
        format!("{cargo}/config.toml"),
        format!("{cargo}/config"),
        "/etc/pip.conf".to_string(),
        format!("{home}/.config/pip/pip.conf"),
    ];
    let mut out: Vec<String> = files
        .iter()
        .filter_map(|p| std::fs::read_to_string(p).ok())
        .flat_map(|text| hosts(&text))
        .filter(|h| !public.iter().any(|p| h == p || h.ends_with(&format!(".{p}"))))
        .filter(|h| h.contains('.') && !h.starts_with("127.") && h != "localhost")
        .collect();
    out.sort();
    out.dedup();
    out
}

/// Host names of the URLs in a text.
fn hosts(text: &str) -> Vec<String> {
    let host = |rest: &str| -> String {
        let authority = rest.split(['/', '"', '\'', ' ', '\n']).next().unwrap_or("");
        let name = authority.rsplit('@').next().unwrap_or("");
        name.split(':').next().unwrap_or("").to_string()
    };
    text.match_indices("://").map(|(i, _)| host(&text[i + 3..])).filter(|h| !h.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_taken_from_urls() {
        assert_eq!(
            hosts("a = \"sparse+https://u:p@reg.example.org:8080/x/\"\nb=http://h.test"),
            ["reg.example.org", "h.test"]
        );
    }

    #[test]
    fn the_folder_above_the_repository_is_a_machine_path() {
        let t = Tree::of(&[("a.sh", "cd /nowhere/at-all\n"), ("b.sh", "cd somewhere/at-all\n")]);
        let found = check(&t);
        assert!(found.iter().any(|f| f.path == "a.sh") && !found.iter().any(|f| f.path == "b.sh"));
    }
}
