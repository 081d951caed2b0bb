//! `unsafe` only in `world` and `fuse`, each with its reason; nothing left to be written.

use crate::source::{File, Finding, Tree, has_word};

const MAY: [&str; 2] = ["world", "fuse"];
/// Fuzzers hook into the compiler's counters and the allocator; nothing of them is shipped.
const FUZZERS: &str = "fuzz/src/";
/// Lines above an `unsafe` in which its reason must begin.
const REASON_LINES: usize = 8;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for f in tree.rust() {
        let text: Vec<&str> = f.text.lines().collect();
        for (n, line) in f.code.lines().enumerate() {
            if has_word(line, "unsafe") {
                let may = f.krate().is_some_and(|k| MAY.contains(&k)) || f.path.starts_with(FUZZERS);
                if !may {
                    out.push(f.finding(
                        n + 1,
                        "unsafe outside world and fuse",
                        "move it there, or do without",
                    ));
                } else if !reasoned(&text, n) {
                    out.push(f.finding(
                        n + 1,
                        "unsafe without a reason",
                        "say why it is sound: // SAFETY: …",
                    ));
                }
            }
            unwritten(f, n, line, &mut out);
        }
    }
    out
}

/// A `SAFETY:` comment (or a `# Safety` section) on the line or right above the statement.
fn reasoned(text: &[&str], n: usize) -> bool {
    let from = n.saturating_sub(REASON_LINES);
    text[from..=n].iter().any(|l| l.contains("SAFETY:") || l.contains("# Safety"))
}

fn unwritten(f: &File, n: usize, line: &str, out: &mut Vec<Finding>) {
    for stub in ["unimplemented!", "todo!"] {
        if line.contains(stub) {
            out.push(f.finding(n + 1, format!("'{stub}'"), "write it"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_asked_for() {
        let with = "// SAFETY: it is.\nunsafe { x() }\n";
        let without = "unsafe { x() }\n";
        let found = |p, t| check(&Tree::of(&[(p, t)])).len();
        assert_eq!(found("crates/fuse/src/a.rs", with), 0);
        assert_eq!(found("crates/fuse/src/a.rs", without), 1);
        assert_eq!(found("crates/mds/src/a.rs", with), 1);
        assert_eq!(found("crates/mds/src/a.rs", "#![forbid(unsafe_code)]"), 0);
        assert_eq!(found("crates/mds/src/a.rs", &format!("{}!()", "todo")), 1);
    }
}
