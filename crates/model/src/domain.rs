//! Failure domains: what a target stands in, from the outside in (`rack1/host3`). Whatever ends one of them
//! ends all targets in it.

use crate::{Errno, Nid};

/// Names in one domain, one within the other.
pub const LEVELS_MAX: usize = 8;
/// Longest of these names.
pub const NAME_MAX_BYTES: usize = 64;

/// The names of a domain that somebody wrote, outermost first; none for the empty text. `EINVAL`: too many,
/// or one is empty, too long, or has other characters than letters, digits, `.`, `_`, `-`, `:` and `@`.
pub fn parse(text: &str) -> Result<Vec<String>, Errno> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<String> = text.split('/').map(str::to_string).collect();
    if is_valid(&names) { Ok(names) } else { Err(Errno::EINVAL) }
}

/// Whether these can be the names of a domain.
pub fn is_valid(names: &[String]) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"._-:@".contains(&c);
    let name = |n: &String| (1..=NAME_MAX_BYTES).contains(&n.len()) && n.bytes().all(plain);
    names.len() <= LEVELS_MAX && names.iter().all(name)
}

/// As it is written: [`parse`] reads it.
pub fn text(names: &[String]) -> String {
    names.join("/")
}

/// Where a target stands that was placed at `names` and answers at `node`: nobody who placed it nowhere knows
/// more of it than its server. Empty if that is not known either.
pub fn place(names: &[String], node: Option<Nid>) -> Vec<String> {
    if names.is_empty() { node.iter().map(Nid::to_string).collect() } else { names.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_written_as_it_is_read_and_what_is_none_is_refused() {
        for good in ["", "host3", "rack1/host3", "room-2/row_1/rack.7/10.0.0.1@tcp", "a/b/c/d/e/f/g/h"] {
            assert_eq!(text(&parse(good).unwrap()), good);
        }
        let long = "x".repeat(NAME_MAX_BYTES + 1);
        for bad in
            ["/", "/host3", "rack1/", "rack1//host3", "rack 1", "r\u{e4}ck", "a/b/c/d/e/f/g/h/i", &long]
        {
            assert_eq!(parse(bad), Err(Errno::EINVAL), "{bad}");
        }
    }

    #[test]
    fn a_target_that_was_placed_nowhere_stands_in_its_server() {
        let node: Nid = "10.0.0.1@tcp".parse().unwrap();
        assert_eq!(place(&[], Some(node)), ["10.0.0.1@tcp"]);
        assert_eq!(place(&["rack1".into(), "host3".into()], Some(node)), ["rack1", "host3"]);
        assert!(place(&[], None).is_empty());
    }
}
