//! Comments are as wide as rustfmt lets code be: rustfmt does not wrap them itself.

use crate::source::{Finding, Tree};

/// `max_width` of rustfmt.toml.
const WIDTH: usize = 110;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for f in tree.files.iter().filter(|f| f.is_rust()) {
        for (n, line) in f.text.lines().enumerate() {
            let width = line.chars().count();
            if width > WIDTH && line.trim_start().starts_with("//") {
                let what = format!("a comment of {width} columns");
                out.push(f.finding(n + 1, what, "wrap it: code and comments have 110"));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_of_111_columns_is_found_and_code_is_rustfmts() {
        let comment = |width: usize| format!("    //{}\n", "x".repeat(width - 6));
        let code = format!("    let s = \"{}\";\n", "x".repeat(120));
        let text = format!("{}{}{code}", comment(110), comment(111));
        let found = check(&Tree::of(&[("crates/model/src/a.rs", &text)]));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [2]);
        assert!(check(&Tree::of(&[("docs/a.md", &comment(200))])).is_empty());
    }
}
