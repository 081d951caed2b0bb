//! `lfs migrate`: a file's data goes to new objects while the file is in use.

pub mod names;
mod progress;
pub mod script;

use super::{getstripe, setstripe};
use crate::failure::{Failure, FirstError};
use crate::getopt::{Opt, Parsed, flag, value};
use crate::local::{ask_about, strange};
use client::control::{Reply, Request};
use model::{Errno, LayoutSpec, limits};
use names::Names;
use progress::Progress;
use std::ffi::OsString;
use std::path::Path;
use world::sys::files;

pub const USAGE: &str = "[-c|--stripe-count N | -C|--overstripe-count N | -A|--auto-stripe] [-S|--stripe-size SIZE] [-i|--stripe-index OST] \
[-o|--ost LIST] [-p|--pool POOL] [-E|--component-end END [-z|--extension-size SIZE] ...]... [--copy FILE | --yaml FILE | --restripe] \
[-b|--block | -n|--non-block] [-W|--bandwidth MIB] [--stats [--stats-interval SECONDS]] [-v|--verbose] \
{FILE... | [-0|--null] --files-from LIST | --fid --lustre-dir MNT FID...}";

const OPTS: &[Opt] = &[
    flag('b', "block"),
    flag('n', "non-block"),
    flag('v', "verbose"),
    flag('A', "auto-stripe"),
    flag('0', "null"),
    value('W', "bandwidth"),
    value('\0', "files-from"),
    flag('\0', "fid"),
    value('\0', "lustre-dir"),
    flag('\0', "stats"),
    value('\0', "stats-interval"),
    flag('\0', "restripe"),
    // What later releases bring; refused by name.
    flag('D', "non-direct"),
    value('m', "mdt-index"),
];

const LATER: &[(&str, &str)] = &[
    ("non-direct", "the servers copy: nothing passes this host's page cache"),
    ("mdt-index", "there is one metadata target"),
];

/// Seconds between two lines of `--stats`.
const STATS_DEFAULT_S: u64 = 5;

/// What files are to get.
#[derive(Default)]
pub struct Options {
    /// What the options say.
    pub asked: LayoutSpec,
    /// They say something.
    pub given: bool,
    /// As many stripes as suit the file's size.
    pub auto: bool,
    /// What new files of its directory get.
    pub restripe: bool,
    /// Users of the file are not to wait for a copy.
    pub non_block: bool,
    /// Bytes that are copied in a second, at most; 0: no bound.
    pub bandwidth_bytes: u64,
}

impl Options {
    /// The layout that a file is to get. What nobody says it keeps: without any options all of its layout,
    /// otherwise count, size and pool of a plain one. Components that are asked for replace those that it
    /// has.
    fn layout(&self, path: &Path) -> Result<LayoutSpec, Failure> {
        if self.restripe {
            let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            return setstripe::copied(dir);
        }
        let mut asked = self.asked.clone();
        if self.auto {
            asked.stripe_count = stripes_for(size(path)?);
        }
        wanted(path, &asked, self.given || self.auto)
    }

    /// The request for one file.
    fn request(
        &self,
        path: &Path,
    ) -> Result<impl Fn(Option<client::control::Name>) -> Request + use<>, Failure> {
        let (spec, non_block, bandwidth_bytes) = (self.layout(path)?, self.non_block, self.bandwidth_bytes);
        Ok(move |name| Request::Migrate { name, spec: spec.clone(), non_block, bandwidth_bytes })
    }
}

fn size(path: &Path) -> Result<u64, Failure> {
    let stat = files::stat(path, true);
    stat.map(|s| s.size).map_err(|e| Failure::io("cannot migrate", &path.display().to_string(), e))
}

/// Lustre's rule of `-A`: one more than the root of the size in GiB.
fn stripes_for(size: u64) -> i32 {
    let count = (size >> 30).isqrt() + 1;
    i32::try_from(count.min(u64::from(limits::STRIPE_COUNT_MAX))).expect("it is bounded")
}

fn wanted(path: &Path, asked: &LayoutSpec, given: bool) -> Result<LayoutSpec, Failure> {
    if asked.is_composite() {
        return Ok(asked.clone());
    }
    let kept = setstripe::copied(path)?;
    if !given && kept.is_composite() {
        let mut parts = kept.components().unwrap_or_default();
        for c in &mut parts {
            if !has_members(path, &c.pool)? {
                c.pool.clear();
            }
        }
        let mut s = LayoutSpec::default();
        s.set_components(&parts);
        if let Some(n) = kept.mdt_bytes() {
            s.set_mdt_bytes(n);
        }
        return Ok(s);
    }
    let mut s = asked.clone();
    if let Some(n) = kept.mdt_bytes().filter(|_| !given) {
        s.set_mdt_bytes(n);
    }
    if s.stripe_count == 0 && s.osts.is_empty() {
        s.stripe_count = kept.stripe_count;
        s.set_overstriped(kept.is_overstriped());
    }
    if s.stripe_size == 0 {
        s.stripe_size = kept.stripe_size;
    }
    let named = !s.osts.is_empty() || s.stripe_start >= 0;
    if s.pool.is_empty() && !named && has_members(path, &kept.pool)? {
        s.pool = kept.pool;
    }
    Ok(s)
}

/// Whether new objects can be in a pool that a file was made in.
fn has_members(path: &Path, pool: &str) -> Result<bool, Failure> {
    if pool.is_empty() {
        return Ok(false);
    }
    match ask_about(path, "cannot migrate", |_| Request::Pools)? {
        Reply::Pools { pools, .. } => Ok(pools.iter().any(|p| p.name == pool && !p.osts.is_empty())),
        other => Err(strange(path, &other)),
    }
}

/// Moves one file; waits for the end of it.
pub fn one(path: &Path, options: &Options) -> Result<(), Failure> {
    ask_about(path, "cannot migrate", options.request(path)?).map(|_| ())
}

/// What the options say. Those that this release has not are refused by name.
fn options(p: &Parsed) -> Result<Options, Failure> {
    if let Some((option, why)) = LATER.iter().find(|(o, _)| p.has(o)) {
        return Err(Failure::explained("cannot use option", &format!("--{option}"), Errno::EOPNOTSUPP, why));
    }
    if p.has("delete") || p.has("mode") {
        return Err(Failure::usage("--delete and --mode are options of lfs setstripe"));
    }
    let of_components =
        ["component-add", "component-del", "component-set", "component-id", "component-flags"];
    if let Some(o) = of_components.iter().find(|o| p.has(o)) {
        return Err(Failure::usage(format!("--{o} is an option of lfs setstripe")));
    }
    for (one, other) in
        [("block", "non-block"), ("auto-stripe", "stripe-count"), ("auto-stripe", "component-end")]
    {
        if p.has(one) && p.has(other) {
            return Err(Failure::usage(format!("--{one} and --{other} exclude each other")));
        }
    }
    let (asked, given) = (setstripe::spec(p)?, setstripe::is_given(p));
    if p.has("restripe") && (given || p.has("auto-stripe")) {
        return Err(Failure::usage("--restripe stands without options of a layout"));
    }
    let bandwidth_bytes = number(p, "bandwidth")?.unwrap_or(0) << 20;
    let (auto, restripe, non_block) = (p.has("auto-stripe"), p.has("restripe"), p.has("non-block"));
    Ok(Options { asked, given, auto, restripe, non_block, bandwidth_bytes })
}

/// A number from 1 on, below what overflows as MiB.
fn number(p: &Parsed, option: &str) -> Result<Option<u64>, Failure> {
    let Some(text) = p.value(option) else { return Ok(None) };
    let n = text.parse().ok().filter(|n| (1..1 << 30).contains(n));
    n.map(Some).ok_or_else(|| Failure::usage(format!("bad value '{text}' of --{option}: a number from 1 on")))
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let opts: Vec<Opt> = OPTS.iter().chain(setstripe::OPTS).copied().collect();
    let p = setstripe::parse(args, &opts)?;
    let options = options(&p)?;
    let interval = number(&p, "stats-interval")?;
    let stats = (p.has("stats") || interval.is_some()).then(|| interval.unwrap_or(STATS_DEFAULT_S));
    let names = Names::of(&p)?;
    let progress = Progress::new(stats);
    let mut errors = FirstError::default();
    for name in names {
        let moved = name.and_then(|path| progress.beside(&path, options.request(&path)?).map(|()| path));
        match moved {
            Ok(path) if p.has("verbose") => crate::output::path(&path, false),
            Ok(_) => {}
            Err(f) => errors.report("lfs migrate", &f),
        }
    }
    Ok(errors)
}

/// Whether a path is a regular file whose data is on objects.
fn has_objects(path: &Path) -> Result<bool, Failure> {
    let s = getstripe::get(path)?;
    Ok(s.layout.is_some_and(|l| l.has_objects()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_get_more_stripes() {
        let of = |gib: u64| stripes_for(gib << 30);
        assert_eq!((of(0), of(1), of(3), of(4), of(100)), (1, 2, 2, 3, 11));
        assert_eq!(stripes_for(u64::MAX), limits::STRIPE_COUNT_MAX as i32);
    }

    #[test]
    fn options_that_exclude_each_other_or_come_later_are_refused_by_name() {
        let opts: Vec<Opt> = OPTS.iter().chain(setstripe::OPTS).copied().collect();
        let refused = |line: &str| {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            setstripe::parse(&args, &opts).and_then(|p| options(&p)).err().map(|f| f.to_string())
        };
        for (line, part) in [
            ("-b -n f", "exclude each other"),
            ("-A -c 2 f", "exclude each other"),
            ("--restripe -c 2 f", "without options of a layout"),
            ("-W 0 f", "--bandwidth"),
            ("-D f", "--non-direct"),
            ("-m 1 f", "--mdt-index"),
            ("-L mdt f", "mdt"),
        ] {
            let text = refused(line).unwrap_or_default();
            assert!(text.contains(part), "{line}: {text}");
        }
        assert_eq!(refused("-n -W 10 -A f"), None);
    }
}
