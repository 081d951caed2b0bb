//! Documents: a page for each format, a line in the index for each decision, links that lead somewhere, paths
//! that exist.

use crate::allow::{self, FORMATS};
use crate::source::{File, Finding, Tree, has_word};

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = formats(tree);
    out.extend(decisions(tree));
    for f in &tree.files {
        if f.path.ends_with(".md") {
            out.extend(links(tree, f));
        }
        out.extend(paths(tree, f));
    }
    out
}

/// Each constant that versions bytes on disk or on the wire has a page in `docs/formats`: one that names the
/// constant, its file or the folder of its module.
fn formats(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for f in tree.rust().filter(|f| f.krate().is_some()) {
        for (line, name) in untold(tree, f) {
            if !allow::allows(FORMATS, &f.path, name) {
                let remedy = format!("describe the bytes in docs/formats/ and name {} there", f.path);
                out.push(f.finding(line, format!("format '{name}' has no page"), remedy));
            }
        }
    }
    out
}

/// Each decision has a line in the index, with its own title.
fn decisions(tree: &Tree) -> Vec<Finding> {
    let index = tree.file("docs/decisions/README.md").map_or("", |f| f.text.as_str());
    let mut out = Vec::new();
    for f in &tree.files {
        let Some(name) = f.path.strip_prefix("docs/decisions/") else { continue };
        if !name.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let number = name.get(..4).unwrap_or("");
        let title = f
            .text
            .lines()
            .next()
            .and_then(|l| l.strip_prefix("# ")?.strip_prefix(number)?.strip_prefix(": "));
        let line = title.map(|t| format!("| [{number}]({name}) | {t} | "));
        if line.is_none_or(|l| !index.contains(&l)) {
            let remedy =
                "begin it with '# NUMBER: TITLE', and give it a line with that title and its status there";
            out.push(f.finding(1, "not in docs/decisions/README.md", remedy));
        }
    }
    out
}

/// Whether the constant `name` of a file has no page.
pub fn lacks(tree: &Tree, path: &str, name: &str) -> bool {
    tree.file(path).is_some_and(|f| untold(tree, f).iter().any(|u| u.1 == name))
}

fn untold<'a>(tree: &Tree, f: &'a File) -> Vec<(usize, &'a str)> {
    let constants = f.production.lines().enumerate();
    let named = constants.filter_map(|(n, l)| Some((n + 1, format_constant(l)?)));
    let told = |name: &str| {
        tree.files.iter().filter(|p| p.path.starts_with("docs/formats/")).any(|p| {
            let own = name.contains('_') && name != "RECORD_VERSION" && has_word(&p.text, name);
            own || places(&f.path).any(|place| p.text.contains(&format!("`{place}`")))
        })
    };
    named.filter(|(_, name)| !told(name)).collect()
}

/// A file's path, and those of its folders down to its crate's.
fn places(path: &str) -> impl Iterator<Item = &str> {
    let folders = path.match_indices('/').filter(|(i, _)| path[..*i].matches('/').count() >= 1);
    let folders = folders.flat_map(|(i, _)| [&path[..i], &path[..=i]]);
    folders.filter(|p| !p.ends_with("/src") && !p.ends_with("/src/")).chain([path])
}

/// Name of the constant that a line declares, if it versions a format.
fn format_constant(line: &str) -> Option<&str> {
    let t =
        line.trim().trim_start_matches("pub(crate) ").trim_start_matches("pub ").strip_prefix("const ")?;
    let (name, rest) = t.split_once(':')?;
    let numeric = ["u8", "u16", "u32", "u64", "["].iter().any(|k| rest.trim().starts_with(k));
    let named =
        name == "VERSION" || name == "MAGIC" || name.ends_with("_VERSION") || name.ends_with("_MAGIC");
    (numeric && named).then_some(name)
}

/// Relative links of Markdown.
fn links(tree: &Tree, f: &File) -> Vec<Finding> {
    let mut out = Vec::new();
    let mut fenced = false;
    for (n, line) in f.text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        for (i, _) in line.match_indices("](") {
            let Some(end) = line[i + 2..].find(')') else { continue };
            let target = line[i + 2..i + 2 + end].split('#').next().unwrap_or("");
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let dir = f.path.rsplit_once('/').map_or("", |(d, _)| d);
            if !tree.has(&resolve(dir, target)) {
                out.push(f.finding(n + 1, format!("link to '{target}' leads nowhere"), "name what exists"));
            }
        }
    }
    out
}

/// `target` as seen from `dir`, without dots.
fn resolve(dir: &str, target: &str) -> String {
    let mut parts: Vec<&str> = if target.starts_with('/') { Vec::new() } else { dir.split('/').collect() };
    for p in target.split('/') {
        match p {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(p),
        }
    }
    parts.retain(|p| !p.is_empty());
    parts.join("/")
}

/// Paths in backticks, in documents and comments.
fn paths(tree: &Tree, f: &File) -> Vec<Finding> {
    let prose = f.path.ends_with(".md");
    if !prose && !f.is_rust() {
        return Vec::new();
    }
    let mut out = Vec::new();
    for (n, line) in f.text.lines().enumerate() {
        if !prose && !line.trim_start().starts_with("//") {
            continue;
        }
        for p in line.split('`').skip(1).step_by(2) {
            let top = ["crates/", "docs/", "xtask/", "fuzz/", "tests/", "deploy/"];
            let plain = p.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
            // Capitals stand for something else (VERB.rs), an ellipsis for anything.
            let literal = plain && !p.contains("VERB") && !p.contains("NAME") && !p.contains("..");
            let ignored = ["fuzz/target", "fuzz/artifacts", "fuzz/corpus"].iter().any(|i| p.starts_with(i));
            if literal && !ignored && top.iter().any(|t| p.starts_with(t)) && !tree.has(p) {
                out.push(f.finding(n + 1, format!("'{p}' does not exist"), "name what exists"));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_have_a_line_in_the_index() {
        let record = ("docs/decisions/0001-a.md", "# 0001: Some title\n");
        let index = |line| ("docs/decisions/README.md", line);
        let found = |files: &[(&str, &str)]| check(&Tree::of(files)).len();
        assert_eq!(found(&[record, index("| [0001](0001-a.md) | Some title | in force | |\n")]), 0);
        assert_eq!(found(&[record, index("| [0001](0001-a.md) | Another | in force | |\n")]), 1);
        assert_eq!(found(&[("docs/decisions/0001-a.md", "# Some title\n"), index("")]), 1);
    }

    #[test]
    fn formats_need_pages_and_links_must_lead_somewhere() {
        let code =
            "pub const JOURNAL_VERSION: u16 = 1;\nconst VERSION: u8 = 1;\npub const NOT_A_FORMAT: u8 = 1;\n";
        let t = Tree::of(&[("crates/store/src/a.rs", code), ("docs/formats/a.md", "")]);
        assert_eq!(check(&t).len(), 2);
        let page = "JOURNAL_VERSION of `crates/store/src/a.rs`, [here](a.md#x), [there](../gone.md), `docs/gone.md`\n";
        let t = Tree::of(&[("crates/store/src/a.rs", code), ("docs/formats/a.md", page)]);
        let found: Vec<String> = check(&t).into_iter().map(|f| f.what).collect();
        assert_eq!(found, ["link to '../gone.md' leads nowhere", "'docs/gone.md' does not exist"]);
        assert_eq!(resolve("docs/formats", "../semantics.md"), "docs/semantics.md");
        assert_eq!(resolve("", "./docs/a.md"), "docs/a.md");
    }
}
