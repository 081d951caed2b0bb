//! Markdown has one sentence a line: a change of a sentence is a change of one line, and two of a paragraph
//! do not meet in a merge.
//!
//! Blocks of code, tables, headings, link definitions and HTML are left alone. A name in bold or italics that
//! begins a paragraph stands with its first sentence.

use crate::source::{File, Finding, Tree};

/// What ends with a full stop and no sentence.
const SHORT: [&str; 6] = ["e.g.", "i.e.", "vs.", "cf.", "etc.", "..."];

pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().filter(|f| f.path.ends_with(".md")).flat_map(page).collect()
}

fn page(f: &File) -> Vec<Finding> {
    let mut out = Vec::new();
    let (mut fenced, mut unfinished) = (false, false);
    for (n, line) in f.text.lines().enumerate() {
        let t = line.trim();
        let fence = t.starts_with("```");
        fenced ^= fence;
        if fenced || fence || !is_prose(t) {
            unfinished = false;
            continue;
        }
        let (marked, text) = item(t);
        if unfinished && !marked {
            out.push(f.finding(
                n + 1,
                "a sentence goes on from the line before",
                "join them: one sentence a line",
            ));
        }
        if let Some(at) = second(text) {
            let begin: String = text[at..].chars().take(24).collect();
            let what = format!("a second sentence begins with '{begin}'");
            out.push(f.finding(n + 1, what, "give it a line of its own"));
        }
        unfinished = !is_finished(text);
    }
    out
}

fn is_prose(t: &str) -> bool {
    let definition = t.starts_with('[') && t.split_once("]:").is_some_and(|(name, _)| !name.contains(' '));
    !(t.is_empty() || t.starts_with(['#', '|', '<']) || definition)
}

/// Whether the line begins an item of a list, and what stands behind its mark.
fn item(t: &str) -> (bool, &str) {
    let t = t.strip_prefix("> ").unwrap_or(t);
    if let Some(rest) = t.strip_prefix("- ").or_else(|| t.strip_prefix("* ")) {
        return (true, rest.trim_start());
    }
    match t.split_once(". ") {
        Some((number, rest)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => {
            (true, rest.trim_start())
        }
        _ => (false, t),
    }
}

/// Behind the name in bold or italics that begins the line, if one does.
fn behind_name(t: &str) -> usize {
    let mark = ["**", "*"].into_iter().find(|m| t.starts_with(m));
    mark.and_then(|m| t[m.len()..].find(m).map(|i| i + 2 * m.len())).unwrap_or(0)
}

/// Where a second sentence begins. What stands in brackets or in code belongs to its sentence.
fn second(t: &str) -> Option<usize> {
    let (mut depth, mut code, mut end) = (0usize, false, false);
    let from = behind_name(t);
    for (i, c) in t.char_indices().skip_while(|(i, _)| *i < from) {
        if c == '`' {
            code = !code;
        } else if code {
            continue;
        }
        if end && depth == 0 && c == ' ' {
            return Some(i + 1).filter(|at| !t[*at..].trim().is_empty());
        }
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        end = match c {
            '.' | '!' | '?' => !SHORT.iter().any(|s| t[..=i].ends_with(s)),
            ')' | '*' | '_' | '"' | '`' => end,
            _ => false,
        };
    }
    None
}

fn is_finished(t: &str) -> bool {
    t.trim_end_matches(['*', '_', '"', '`', ')']).ends_with(['.', '!', '?', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<usize> {
        check(&Tree::of(&[("docs/a.md", page)])).iter().map(|f| f.line).collect()
    }

    #[test]
    fn one_sentence_a_line() {
        assert_eq!(
            found(
                "# T. U\n\nOne.\nTwo (a. b) of `c. d` e.g. this... one 1.5 s.\nThree:\n- item\n- other\n\nlast"
            ),
            []
        );
        assert_eq!(found("One. Two.\n"), [1]);
        assert_eq!(found("One goes\non.\n"), [2]);
        assert_eq!(found("- one (see it.) Two\n- three goes\n  on.\n1. four. Five\n"), [1, 3, 4]);
        assert_eq!(found("**Decided.** *One* thing. Two.\n*Name*: one thing.\n"), [1]);
        assert_eq!(found("`a.` b is one.\nHe said \"no.\" Two.\n"), [2]);
    }

    #[test]
    fn what_is_no_prose_is_left_alone() {
        assert_eq!(found("```sh\na. b\nc\n```\n| a. b | c |\n[x]: http://a. b\n<!-- a. b -->\n\nend\n"), []);
    }
}
