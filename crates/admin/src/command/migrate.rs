//! `lfs migrate`: a file's data goes to new objects while the file is in use.

use super::setstripe;
use crate::failure::{Failure, FirstError};
use crate::getopt::{Opt, flag, value};
use crate::local::{ask_about, strange};
use client::control::{Reply, Request};
use model::{Errno, LayoutSpec};
use std::ffi::OsString;
use std::path::Path;

pub const USAGE: &str = "[-c|--stripe-count N | -C|--overstripe-count N] [-S|--stripe-size SIZE] [-i|--stripe-index OST] \
[-o|--ost LIST] [-p|--pool POOL] [-E|--component-end END [-z|--extension-size SIZE] ...]... [--copy FILE | --yaml FILE] [-b|--block] \
[-v|--verbose] FILE...";

const OPTS: &[Opt] = &[
    flag('b', "block"),
    flag('v', "verbose"),
    // What later releases bring; refused by name.
    flag('n', "non-block"),
    flag('D', "non-direct"),
    flag('A', "auto-stripe"),
    flag('0', "null"),
    value('m', "mdt-index"),
    value('W', "bandwidth"),
    value('\0', "files-from"),
    flag('\0', "fid"),
    flag('\0', "stats"),
    flag('\0', "restripe"),
];

const LATER: &[(&str, &str)] = &[
    ("non-block", "whoever uses the file waits until it is moved: leave it out, or say --block"),
    ("non-direct", "the servers copy: nothing passes this host's page cache"),
    ("auto-stripe", "say the stripe count with -c"),
    ("null", "name the files as arguments: xargs -0 lfs migrate"),
    ("mdt-index", "there is one metadata target"),
    ("bandwidth", "a move is not slowed down yet"),
    ("files-from", "name the files as arguments: xargs lfs migrate"),
    ("fid", "name the files by their paths: lfs fid2path says them"),
    ("stats", "-v names each file that was moved"),
    ("restripe", "say what the file is to have: --copy DIR takes a directory's default"),
];

/// What the options do not say the file keeps: without any all of its layout, otherwise count, size and pool
/// of a plain one. Components that are asked for replace those that it has.
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
        return Ok(s);
    }
    let mut s = asked.clone();
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

/// Of a layout that begins with the inode the part on OSTs.
fn on_osts(s: &LayoutSpec) -> LayoutSpec {
    let mut out = LayoutSpec { extra: Vec::new(), ..s.clone() };
    out.set_overstriped(s.is_overstriped());
    out.set_components(&s.components().unwrap_or_default());
    out
}

fn one(path: &Path, asked: &LayoutSpec, given: bool) -> Result<(), Failure> {
    let spec = on_osts(&wanted(path, asked, given)?);
    let request = |name| Request::Migrate { name, spec: spec.clone() };
    ask_about(path, "cannot migrate", request).map(|_| ())
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let opts: Vec<Opt> = OPTS.iter().chain(setstripe::OPTS).copied().collect();
    let p = setstripe::parse(args, &opts)?;
    if let Some((option, why)) = LATER.iter().find(|(o, _)| p.has(o)) {
        return Err(Failure::explained("cannot use option", &format!("--{option}"), Errno::EOPNOTSUPP, why));
    }
    if p.has("delete") || p.has("mode") {
        return Err(Failure::usage("--delete and --mode are options of lfs setstripe"));
    }
    if p.operands.is_empty() {
        return Err(Failure::usage("no file given"));
    }
    let of_components =
        ["component-add", "component-del", "component-set", "component-id", "component-flags"];
    if let Some(o) = of_components.iter().find(|o| p.has(o)) {
        return Err(Failure::usage(format!("--{o} is an option of lfs setstripe")));
    }
    let (spec, given) = (setstripe::spec(&p)?, setstripe::is_given(&p));
    if p.values("layout").any(|l| l == "mdt") {
        let why = "a file that has objects cannot go back to the metadata target yet";
        return Err(Failure::explained("cannot use layout", "mdt", Errno::EOPNOTSUPP, why));
    }
    let mut errors = FirstError::default();
    for o in &p.operands {
        match one(Path::new(o), &spec, given) {
            Ok(()) if p.has("verbose") => crate::output::path(Path::new(o), false),
            Ok(()) => {}
            Err(f) => errors.report("lfs migrate", &f),
        }
    }
    Ok(errors)
}
