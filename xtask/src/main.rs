//! Chores of the repository: `cargo xtask tidy`.
//!
//! This program looks at files and runs git; it is no part of the file system, so the rule that only
//! `world` touches the outside does not hold here.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod allow;
mod assertions;
mod boundary;
mod circles;
mod docs;
mod homes;
mod layers;
mod length;
mod locks;
mod machine;
mod messages;
mod methods;
mod nouns;
mod rooms;
mod sentences;
mod source;
mod unsafety;
mod width;

use source::{Finding, Tree};

type Check = (&'static str, fn(&Tree) -> Vec<Finding>);

const CHECKS: [Check; 17] = [
    ("layers", layers::check),
    ("layers within a crate", rooms::check),
    ("world boundary", boundary::check),
    ("unsafe", unsafety::check),
    ("length", length::check),
    ("locks", locks::check),
    ("messages have both ends", messages::check),
    ("assertions", assertions::check),
    ("methods", methods::check),
    ("homes of methods", homes::check),
    ("circles", circles::check),
    ("machine paths", machine::check),
    ("documents", docs::check),
    ("one sentence a line", sentences::check),
    ("nouns", nouns::check),
    ("width of comments", width::check),
    ("unused allowances", allow::check),
];

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => match tidy() {
            Ok(0) => std::process::ExitCode::SUCCESS,
            Ok(_) => std::process::ExitCode::FAILURE,
            Err(e) => {
                eprintln!("xtask: {e:#}");
                std::process::ExitCode::from(2)
            }
        },
        _ => {
            eprintln!("usage: cargo xtask tidy    checks the rules of the repository");
            std::process::ExitCode::from(2)
        }
    }
}

/// Runs every check, prints what it found, returns how much that was.
fn tidy() -> anyhow::Result<usize> {
    let tree = Tree::load()?;
    let mut total = 0;
    for (name, check) in CHECKS {
        let mut found = check(&tree);
        found.sort();
        found.dedup();
        for f in &found {
            println!("{}:{}: {}: {}", f.path, f.line, f.what, f.remedy);
        }
        if !found.is_empty() {
            eprintln!("tidy: {name}: {} found", found.len());
        }
        total += found.len();
    }
    eprintln!(
        "tidy: {} files, {} checks, {}",
        tree.files.len(),
        CHECKS.len(),
        if total == 0 { "clean".to_string() } else { format!("{total} found") }
    );
    Ok(total)
}
