//! No file of more than 1,000 lines, no function of more than 100.

use crate::source::{File, Finding, Tree};

const FILE_LINES_MAX: usize = 1000;
const FUNCTION_LINES_MAX: usize = 100;
/// Not written by hand.
const MADE: [&str; 3] = ["Cargo.lock", "fuzz/Cargo.lock", "LICENSE-APACHE"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for f in tree.files.iter().filter(|f| !MADE.contains(&f.path.as_str())) {
        let lines = f.text.lines().count();
        if lines > FILE_LINES_MAX {
            let what = format!("file of {lines} lines, {FILE_LINES_MAX} are allowed");
            out.push(f.finding(lines, what, "split it by what changes together"));
        }
        if f.is_rust() {
            out.extend(functions(f));
        }
    }
    out
}

fn functions(f: &File) -> Vec<Finding> {
    let code = f.code.as_bytes();
    let mut out = Vec::new();
    for (at, _) in f.code.match_indices("fn ") {
        let border = at == 0 || !(code[at - 1].is_ascii_alphanumeric() || code[at - 1] == b'_');
        let Some((open, close)) = border.then(|| body(code, at)).flatten() else { continue };
        let lines = |to: usize| code[..to].iter().filter(|&&b| b == b'\n').count();
        let count = lines(close) - lines(open) + 1;
        if count > FUNCTION_LINES_MAX {
            let name: String =
                f.code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let what = format!("fn {name} has {count} lines, {FUNCTION_LINES_MAX} are allowed");
            out.push(f.finding(lines(at) + 1, what, "split it into steps with names"));
        }
    }
    out
}

/// Where the body of the function declared at `at` opens and closes; `None` for one without a body.
fn body(code: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut nested = 0usize;
    let open = (at..code.len()).find(|&i| {
        match code[i] {
            b'(' | b'[' => nested += 1,
            b')' | b']' => nested = nested.saturating_sub(1),
            b'{' | b';' if nested == 0 => return true,
            _ => {}
        }
        false
    })?;
    if code[open] == b';' {
        return None;
    }
    let mut depth = 0usize;
    for (i, &b) in code.iter().enumerate().skip(open) {
        match b {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some((open, i));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_functions_and_files_are_found() {
        let long = format!(
            "trait T {{ fn a(x: [u8; 3]); }}\nfn long() {{\n{}}}\nfn short() {{}}\n",
            "x();\n".repeat(100)
        );
        let t = Tree::of(&[("crates/a/src/lib.rs", &long), ("docs/a.md", &"x\n".repeat(1001))]);
        let found = check(&t);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].what.contains("fn long") && found[0].line == 2);
    }
}
