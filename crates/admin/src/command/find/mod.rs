//! `lfs find`: find(1) that also knows layouts. Predicates are and-ed, `!` negates the next one, their order
//! does not matter: names and types are looked at first, layouts last.

mod predicate;

use crate::command::getstripe;
use crate::failure::{Failure, FirstError};
use crate::local;
use crate::{names, output};
use client::control::{Reply, Request, Stripe};
use predicate::{Query, Seen};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use world::sys::files::{self, NameStat};

pub const USAGE: &str = "PATH... [!] [-name GLOB] [-type bcdflps] [-size [+-]N[ckMGT]] [-blocks [+-]N] \
[-atime|-mtime|-ctime [+-]N[smhdwy]] [-newer FILE] [-user U] [-group G] [-perm [/-]MODE] [-links [+-]N] \
[-maxdepth N] [-mindepth N] [-stripe-count [+-]N] [-stripe-size [+-]N] [-stripe-index LIST] [-ost LIST] \
[-layout raid0] [-pool NAME] [-mdt LIST] [-print|-print0|-printf FORMAT|-ls|--json]";

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Output {
    #[default]
    Lines,
    Zeros,
    Format(String),
    Long,
    Json,
}

/// Looks a file's layout up when the first predicate or format needs it.
struct Lookup<'a> {
    path: &'a Path,
    got: Option<Option<Stripe>>,
}

impl Seen for Lookup<'_> {
    fn stripe(&mut self) -> Option<&Stripe> {
        let path = self.path;
        self.got.get_or_insert_with(|| getstripe::get(path).ok()).as_ref()
    }
}

fn type_letter(mode: u32) -> char {
    match mode & 0o170000 {
        0o010000 => 'p',
        0o020000 => 'c',
        0o040000 => 'd',
        0o060000 => 'b',
        0o120000 => 'l',
        0o140000 => 's',
        _ => 'f',
    }
}

fn mode_text(mode: u32) -> String {
    let kind = match type_letter(mode) {
        'f' => '-',
        c => c,
    };
    let mut out = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift & 7;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// UTC calendar text of seconds since 1970, as `%a`, `%c`, `%t` print it.
fn calendar(sec: i64) -> String {
    let (days, rest) = (sec.div_euclid(86400), sec.rem_euclid(86400));
    // Days to date by the civil calendar (Hinnant's algorithm), eras of 400 years.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

fn stripe_field(c: char, l: &mut Lookup<'_>) -> String {
    let Some(s) = l.stripe() else { return String::new() };
    let (layout, default) = (s.layout.as_ref(), s.default.as_ref());
    match c {
        'c' => layout
            .map(|l| l.stripe_count() as i64)
            .or(default.map(|d| i64::from(d.stripe_count)))
            .unwrap_or(0)
            .to_string(),
        'S' => layout
            .map(|l| u64::from(l.shown().stripe_size))
            .or(default.map(|d| d.stripe_size))
            .unwrap_or(0)
            .to_string(),
        'i' => layout.and_then(|l| l.objects().next().map(|o| i64::from(o.ost))).unwrap_or(-1).to_string(),
        'o' => layout
            .map_or(String::new(), |l| l.objects().map(|o| o.ost.to_string()).collect::<Vec<_>>().join(",")),
        'p' => layout.map_or(String::new(), |l| l.shown().pool.clone()),
        'F' => s.fid.to_string(),
        'P' => "0".to_string(),
        _ => String::new(),
    }
}

fn formatted(format: &str, path: &Path, st: &NameStat, l: &mut Lookup<'_>) {
    let mut it = format.chars().peekable();
    let mut out: Vec<u8> = Vec::new();
    while let Some(c) = it.next() {
        match c {
            '\\' => match it.next() {
                Some('n') => out.push(b'\n'),
                Some('t') => out.push(b'\t'),
                Some('0') => out.push(0),
                Some(o) => out.extend(o.to_string().bytes()),
                None => out.push(b'\\'),
            },
            '%' => {
                let text = match it.next() {
                    Some('p') => {
                        out.extend(path.as_os_str().as_bytes());
                        continue;
                    }
                    Some('s') => st.size.to_string(),
                    Some('b') => st.blocks.to_string(),
                    Some('k') => st.blocks.div_ceil(2).to_string(),
                    Some('u') => names::user(st.uid),
                    Some('U') => st.uid.to_string(),
                    Some('g') => names::group(st.gid),
                    Some('G') => st.gid.to_string(),
                    Some('m') => format!("{:o}", st.mode & 0o7777),
                    Some('M') => mode_text(st.mode),
                    Some('n') => st.nlink.to_string(),
                    Some('i') => st.ino.to_string(),
                    Some('y') => type_letter(st.mode).to_string(),
                    Some('a') => calendar(st.atime),
                    Some('c') => calendar(st.ctime),
                    Some('t') => calendar(st.mtime),
                    Some(c @ ('A' | 'C' | 'T')) if it.next_if_eq(&'@').is_some() => match c {
                        'A' => st.atime,
                        'C' => st.ctime,
                        _ => st.mtime,
                    }
                    .to_string(),
                    Some('L') => it.next().map_or(String::new(), |f| stripe_field(f, l)),
                    Some('%') => "%".to_string(),
                    Some(o) => format!("%{o}"),
                    None => "%".to_string(),
                };
                out.extend(text.bytes());
            }
            c => out.extend(c.to_string().bytes()),
        }
    }
    output::bytes(&out);
}

fn print(q: &Query, path: &Path, st: &NameStat, l: &mut Lookup<'_>) {
    match &q.output {
        Output::Lines => output::path(path, false),
        Output::Zeros => output::path(path, true),
        Output::Format(f) => formatted(f, path, st, l),
        Output::Long => formatted("%i %k %M %n %u %g %s %t %p\n", path, st, l),
        Output::Json => {
            let row = json!({"path": path, "type": type_letter(st.mode).to_string(), "size": st.size,
                "blocks": st.blocks, "mode": st.mode & 0o7777, "uid": st.uid, "gid": st.gid,
                "atime": st.atime, "mtime": st.mtime, "ctime": st.ctime});
            output::bytes(format!("{row}\n").as_bytes());
        }
    }
}

fn walk(q: &Query, root: &Path, errors: &mut FirstError) {
    let mut todo: Vec<(PathBuf, u32)> = vec![(root.to_path_buf(), 0)];
    let mut dev = None;
    while let Some((path, depth)) = todo.pop() {
        let st = match files::stat(&path, false) {
            Ok(s) => s,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && depth > 0 => continue, // removed meanwhile
            Err(e) => {
                errors.report("lfs find", &Failure::io("cannot stat", &path.display().to_string(), e));
                continue;
            }
        };
        let mut l = Lookup { path: &path, got: None };
        if depth >= q.min_depth && q.matches(&path, &st, &mut l) {
            print(q, &path, &st, &mut l);
        }
        let here = *dev.get_or_insert(st.dev) == st.dev;
        if st.is_dir() && depth < q.max_depth && here {
            match files::list_raw(&path) {
                Ok(list) => todo.extend(list.into_iter().rev().map(|n| (path.join(n), depth + 1))),
                Err(e) => {
                    errors.report("lfs find", &Failure::io("cannot list", &path.display().to_string(), e));
                }
            }
        }
    }
}

/// Files of some OSTs below `root`, from the index of the metadata servers: the tree is not walked, and no
/// OST is asked, unless the query wants to know more than names. Not in the order of a walk.
fn look_up(
    q: &Query,
    osts: &[u16],
    mount: &Path,
    root: &Path,
    errors: &mut FirstError,
) -> Result<(), Failure> {
    let real =
        files::canonical(root).map_err(|e| Failure::io("cannot find", &root.display().to_string(), e))?;
    // As a walk from `root` would name it.
    let shown = |name: &[u8]| {
        let path = mount.join(OsStr::from_bytes(name));
        let below = path.strip_prefix(&real).ok()?;
        Some(if below.as_os_str().is_empty() { root.to_path_buf() } else { root.join(below) })
    };
    let mut seen = std::collections::BTreeSet::new();
    for &ost in osts {
        let mut after = None;
        loop {
            let (found, next) = match local::ask(mount, &Request::OstFiles { ost, after })? {
                Reply::OstFiles { files, next } => (files, next),
                other => return Err(local::strange(mount, &other)),
            };
            for (fid, names) in found {
                // A file on two of the OSTs, or with objects on one that lie apart in the index.
                if osts.len() > 1 && !seen.insert(fid) {
                    continue;
                }
                for path in names.iter().filter_map(|n| shown(&n.0)) {
                    show_indexed(q, root, &path, errors);
                }
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(())
}

fn show_indexed(q: &Query, root: &Path, path: &Path, errors: &mut FirstError) {
    let depth = path.components().count() - root.components().count();
    if !(q.min_depth as usize..=q.max_depth as usize).contains(&depth) {
        return;
    }
    if q.needs_no_look() {
        if q.matches_indexed(path) {
            output::path(path, q.output == Output::Zeros);
        }
        return;
    }
    match files::stat(path, false) {
        Ok(st) => {
            let mut l = Lookup { path, got: None };
            if q.matches(path, &st, &mut l) {
                print(q, path, &st, &mut l);
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {} // removed meanwhile
        Err(e) => errors.report("lfs find", &Failure::io("cannot stat", &path.display().to_string(), e)),
    }
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let (roots, q) = Query::parse(args)?;
    if roots.is_empty() {
        return Err(Failure::usage("no path given"));
    }
    let mut errors = FirstError::default();
    for r in roots {
        let mount = match local::mount_point(&r) {
            Ok(m) => m,
            Err(f) => {
                errors.report("lfs find", &f);
                continue;
            }
        };
        // Others than root see what they could list.
        let osts = q.osts().filter(|_| world::sys::euid() == 0);
        match osts {
            Some(o) => {
                if let Err(f) = look_up(&q, o, &mount, &r, &mut errors) {
                    errors.report("lfs find", &f);
                }
            }
            None => walk(&q, &r, &mut errors),
        }
    }
    Ok(errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_times_and_modes() {
        assert_eq!(calendar(0), "1970-01-01 00:00:00");
        assert_eq!(calendar(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(calendar(-1), "1969-12-31 23:59:59");
        assert_eq!(mode_text(0o104755), "-rwsr-xr-x");
        assert_eq!(mode_text(0o041777), "drwxrwxrwt");
    }
}
