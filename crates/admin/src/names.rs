//! Users and groups by name.

use world::sys::files;

fn lookup(file: &str, key: &str, key_field: usize, want_field: usize) -> Option<String> {
    let text = files::read_to_string(file).ok()?;
    text.lines().find_map(|l| {
        let f: Vec<&str> = l.split(':').collect();
        (f.get(key_field) == Some(&key)).then(|| f.get(want_field).map(|s| (*s).to_string()))?
    })
}

fn id(file: &str, s: &str) -> Option<u32> {
    s.parse().ok().or_else(|| lookup(file, s, 0, 2)?.parse().ok())
}

/// A user's id by name or number.
pub fn uid(s: &str) -> Option<u32> {
    id("/etc/passwd", s)
}

pub fn gid(s: &str) -> Option<u32> {
    id("/etc/group", s)
}

/// The name, or the number where there is none.
pub fn user(uid: u32) -> String {
    lookup("/etc/passwd", &uid.to_string(), 2, 0).unwrap_or_else(|| uid.to_string())
}

pub fn group(gid: u32) -> String {
    lookup("/etc/group", &gid.to_string(), 2, 0).unwrap_or_else(|| gid.to_string())
}
