//! A type's methods are in the folder in which the type is declared, or below it: who looks for one knows
//! where. Methods of traits may be elsewhere, and so may those of a type whose name another one of its crate
//! has.

use crate::methods::{homes_of_types, is_production, own_impls_of};
use crate::source::{File, Finding, Tree};

pub fn check(tree: &Tree) -> Vec<Finding> {
    let files: Vec<&File> = tree.rust().filter(|f| is_production(&f.path)).collect();
    let homes = homes_of_types(&files);
    let mut out = Vec::new();
    for f in &files {
        let Some(krate) = f.krate() else { continue };
        for (name, line) in own_impls_of(f) {
            let Some(found) = homes.get(&(krate, name.as_str())) else { continue };
            let [home] = found.iter().copied().collect::<Vec<_>>()[..] else { continue };
            if !folder(&f.path).starts_with(folder(home)) {
                let what = format!("methods of '{name}', which is declared in {home}");
                out.push(f.finding(line, what, "move them there, or give them to a type of this folder"));
            }
        }
    }
    out
}

/// With the slash at its end.
fn folder(path: &str) -> &str {
    path.rfind('/').map_or("", |i| &path[..=i])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).into_iter().map(|f| format!("{}:{}: {}", f.path, f.line, f.what)).collect()
    }

    #[test]
    fn planted_methods_in_another_folder_are_found() {
        let home = ("crates/x/src/a/mod.rs", "pub(crate) struct Thing<T> {\n    t: T,\n}\n");
        let own = ("crates/x/src/a/b/c.rs", "impl<T: Copy> Thing<T> {\n}\n");
        let of_a_trait = ("crates/x/src/d.rs", "impl<T> Drop\n    for Thing<T>\n{\n}\n");
        assert_eq!(found(&[home, own, of_a_trait]), Vec::<String>::new());
        let away = ("crates/x/src/ab/c.rs", "use super::Thing;\nimpl<T>\n    Thing<T>\n{\n}\n");
        let what = "crates/x/src/ab/c.rs:2: methods of 'Thing', which is declared in crates/x/src/a/mod.rs";
        assert_eq!(found(&[home, own, away]), [what]);
        let twin = ("crates/x/src/e.rs", "enum Thing {}\n");
        assert_eq!(found(&[home, away, twin]), Vec::<String>::new());
    }
}
