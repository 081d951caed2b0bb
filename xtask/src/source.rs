//! The files of the repository, and their Rust without comments and strings.

use anyhow::Context;
use std::process::Command;

/// One thing that is not as it should be.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    pub what: String,
    pub remedy: String,
}

pub struct File {
    /// From the repository's root.
    pub path: String,
    pub text: String,
    /// Of Rust files: the text with comments, strings and characters blanked, line for line.
    pub code: String,
    /// The same without what is there for tests only, wherever it stands: blanked, line for line.
    pub production: String,
}

impl File {
    fn new(path: String, text: String, code: String) -> File {
        let production = without_tests(&code);
        File { path, text, code, production }
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Name of the crate under `crates/`, if the file belongs to one.
    pub fn krate(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    pub fn finding(&self, line: usize, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, what: what.into(), remedy: remedy.into() }
    }
}

pub struct Tree {
    pub files: Vec<File>,
    /// Every path, readable as text or not.
    pub paths: Vec<String>,
    pub root: String,
}

impl Tree {
    /// All files that git knows or would add.
    pub fn load() -> anyhow::Result<Tree> {
        let root = git(&["rev-parse", "--show-toplevel"])?.trim().to_string();
        std::env::set_current_dir(&root).with_context(|| format!("cannot enter {root}"))?;
        let list = git(&["ls-files", "--cached", "--others", "--exclude-standard", "-z"])?;
        let mut paths: Vec<String> = list.split('\0').filter(|p| !p.is_empty()).map(str::to_string).collect();
        paths.sort();
        paths.dedup();
        paths.retain(|p| std::path::Path::new(p).is_file());
        let files = paths
            .iter()
            .filter_map(|p| {
                let text = String::from_utf8(std::fs::read(p).ok()?).ok()?;
                let code = if p.ends_with(".rs") { code_only(&text) } else { String::new() };
                Some(File::new(p.clone(), text, code))
            })
            .collect();
        Ok(Tree { files, paths, root })
    }

    /// A tree of made-up files.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let files: Vec<File> =
            files.iter().map(|(p, t)| File::new(p.to_string(), t.to_string(), code_only(t))).collect();
        let paths = files.iter().map(|f| f.path.clone()).collect();
        Tree { files, paths, root: "/nowhere/at-all".into() }
    }

    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|f| f.is_rust())
    }

    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|f| f.path == path)
    }

    /// Whether a file or folder of this path is in the repository.
    pub fn has(&self, path: &str) -> bool {
        let dir = format!("{}/", path.trim_end_matches('/'));
        self.paths.iter().any(|p| p == path || p.starts_with(&dir))
    }
}

fn git(args: &[&str]) -> anyhow::Result<String> {
    let out = Command::new("git").args(args).output().context("cannot run git")?;
    anyhow::ensure!(out.status.success(), "git {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

const TEST: &str = "#[cfg(test)]";

/// The code with what stands behind `#[cfg(test)]` blanked: up to the end of its braces, or to the semicolon.
pub fn without_tests(code: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(code.len()), code);
    while let Some(at) = rest.find(TEST) {
        out.push_str(&rest[..at]);
        let item = &rest[at..];
        let end = TEST.len() + item_end(&item[TEST.len()..]);
        out.extend(item[..end].chars().filter(|c| *c == '\n'));
        rest = &item[end..];
    }
    out.push_str(rest);
    out
}

/// Where the item that begins here ends.
fn item_end(item: &str) -> usize {
    let mut depth = 0usize;
    for (i, b) in item.bytes().enumerate() {
        match b {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i + 1;
                }
            }
            b';' if depth == 0 => return i + 1,
            _ => {}
        }
    }
    item.len()
}

/// Blanks comments, string and character literals; newlines stay.
pub fn code_only(text: &str) -> String {
    let b: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < b.len() {
        let end = literal_end(&b, i);
        if end > i {
            out.extend(b[i..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            i = end;
        } else {
            out.push(b[i]);
            i += 1;
        }
    }
    out
}

/// Index behind the comment or literal that starts at `i`; `i` if none does.
fn literal_end(b: &[char], i: usize) -> usize {
    let at = |k: usize| b.get(k).copied().unwrap_or('\0');
    let behind_word = i > 0 && (at(i - 1).is_alphanumeric() || at(i - 1) == '_');
    match (at(i), at(i + 1)) {
        ('/', '/') => (i..b.len()).find(|&k| b[k] == '\n').unwrap_or(b.len()),
        ('/', '*') => block_comment_end(b, i),
        ('"', _) => string_end(b, i + 1),
        ('b' | 'c', '"') if !behind_word => string_end(b, i + 2),
        ('r', '"' | '#') if !behind_word => raw_end(b, i + 1).unwrap_or(i),
        ('b' | 'c', 'r') if !behind_word => raw_end(b, i + 2).unwrap_or(i),
        ('\'', '\\') => (i + 3..b.len()).find(|&k| b[k] == '\'').map_or(b.len(), |k| k + 1),
        ('\'', _) if at(i + 2) == '\'' => i + 3,
        _ => i,
    }
}

fn block_comment_end(b: &[char], start: usize) -> usize {
    let (mut depth, mut i) = (0, start);
    while i + 1 < b.len() {
        match (b[i], b[i + 1]) {
            ('/', '*') => (depth, i) = (depth + 1, i + 2),
            ('*', '/') => {
                (depth, i) = (depth - 1, i + 2);
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    b.len()
}

fn string_end(b: &[char], mut i: usize) -> usize {
    while i < b.len() {
        match b[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    b.len()
}

/// Of a raw string whose hashes start at `i`; `None` if it is none (`r#type`).
fn raw_end(b: &[char], i: usize) -> Option<usize> {
    let hashes = b[i..].iter().take_while(|&&c| c == '#').count();
    if b.get(i + hashes) != Some(&'"') {
        return None;
    }
    let body = i + hashes + 1;
    let close = |k: usize| b[k] == '"' && (0..hashes).all(|h| b.get(k + 1 + h) == Some(&'#'));
    Some((body..b.len()).find(|&k| close(k)).map_or(b.len(), |k| k + 1 + hashes))
}

/// Whether `word` stands in `line` with no letter, digit or underscore beside it.
pub fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(i, _)| {
        !line[..i].chars().next_back().is_some_and(part)
            && !line[i + word.len()..].chars().next().is_some_and(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        let t = "let a = \"std::fs // \\\" x\"; // std::net\nlet c = '\"'; let l: &'a str = r#\"tokio\"#; /* x /* y */ z */ end\nlet d = b'\\''; r#type";
        let c = code_only(t);
        assert_eq!(c.lines().count(), t.lines().count());
        for gone in ["std", "tokio", "x", "y"] {
            assert!(!has_word(&c, gone), "{gone} in {c}");
        }
        assert!(c.contains("end") && c.contains("&'a str") && c.contains("r#type"), "{c}");
    }

    #[test]
    fn words_have_borders() {
        assert!(has_word("x unsafe {", "unsafe"));
        assert!(!has_word("allow(unsafe_code)", "unsafe"));
    }
}
