//! Users, groups and projects by name.

use model::Map;
use model::mutex::Mutex;
use world::sys::files;

/// Names of numbers that were asked for, so many of each kind.
const KNOWN_MAX: usize = 16 << 10;

static USERS: Mutex<Option<Map<u32, String>>> = Mutex::new(None);
static GROUPS: Mutex<Option<Map<u32, String>>> = Mutex::new(None);

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

/// A project's id by name (/etc/projid) or number.
pub fn project(s: &str) -> Option<u32> {
    s.parse().ok().or_else(|| lookup("/etc/projid", s, 0, 1)?.parse().ok())
}

/// A project's name (/etc/projid), or its number.
pub fn project_name(id: u32) -> String {
    lookup("/etc/projid", &id.to_string(), 1, 0).unwrap_or_else(|| id.to_string())
}

/// The name, or the number where there is none.
pub fn user(uid: u32) -> String {
    name(&USERS, "/etc/passwd", uid)
}

pub fn group(gid: u32) -> String {
    name(&GROUPS, "/etc/group", gid)
}

fn name(known: &Mutex<Option<Map<u32, String>>>, file: &str, id: u32) -> String {
    if let Some(name) = known.lock().as_ref().and_then(|k| k.get(&id)) {
        return name.clone();
    }
    let name = lookup(file, &id.to_string(), 2, 0).unwrap_or_else(|| id.to_string());
    let mut known = known.lock();
    let known = known.get_or_insert_with(Map::default);
    if known.len() < KNOWN_MAX {
        known.insert(id, name.clone());
    }
    name
}
