//! `lfs setstripe`: a new file with a layout, or a directory's default for new files.

mod components;
mod options;
mod yaml;

pub(super) use options::{OPTS, is_given, parse, spec};
#[cfg(test)]
pub(super) use yaml::parse as layout_of_yaml;

use super::getstripe::{self, effective, part::Parts};
use crate::failure::{Failure, FirstError};
use crate::local::{ask_about, split};
use client::control::{self, Request};
use model::{Errno, FileType, LayoutSpec};
use std::ffi::OsString;
use std::path::Path;
use world::sys::files;

pub const USAGE: &str = "[-c|--stripe-count N | -C|--overstripe-count N] [-S|--stripe-size SIZE] [-i|--stripe-index OST] \
[-o|--ost LIST] [-p|--pool POOL] [-E|--component-end END [-L|--layout raid0|mdt] [-z|--extension-size SIZE] ...]... \
[--copy FILE | --yaml FILE] [--mode MODE] FILE|DIR... | -d|--delete DIR... | --component-add -E END [OPTIONS OF THE COMPONENT] ... FILE... \
| --component-del -I|--component-id ID | --component-flags [^]FLAG,... FILE... \
| --component-set -I|--component-id ID --component-flags [^]FLAG,... FILE...";

/// `--copy`: the whole layout of another file, without its places; of a directory what its new files get.
pub(super) fn copied(path: &Path) -> Result<LayoutSpec, Failure> {
    let s = getstripe::get(path)?;
    if s.kind == FileType::Directory {
        return Ok(effective(&s).0);
    }
    let shown = path.display().to_string();
    let Some(l) = Parts::of_file(&s) else {
        return Err(Failure::explained("cannot copy layout of", &shown, Errno::ENODATA, "it has none yet"));
    };
    l.without_places().spec().map_err(|e| Failure::op("cannot copy layout of", &shown, e))
}

/// A new, empty file with this layout.
pub fn create(path: &Path, mode: u32, spec: &LayoutSpec) -> Result<(), Failure> {
    let shown = path.display().to_string();
    let (dir, Some(name)) = split(path) else {
        return Err(Failure::op("cannot create", &shown, Errno::EINVAL));
    };
    let fd = control::open(&dir).map_err(|e| Failure::control("cannot create", &shown, &e))?;
    let r = Request::Create { name, mode, umask: files::umask(), spec: spec.clone() };
    control::call(&fd, &r).map(|_| ()).map_err(|e| Failure::control("cannot create", &shown, &e))
}

fn one(path: &Path, mode: u32, spec: Option<&LayoutSpec>) -> Result<(), Failure> {
    let shown = path.display().to_string();
    match (files::stat(path, true), spec) {
        (Err(e), Some(s)) if e.kind() == std::io::ErrorKind::NotFound => create(path, mode, s),
        (Err(e), _) => Err(Failure::io("cannot set layout of", &shown, e)),
        (Ok(st), None) if !st.is_dir() => {
            Err(Failure::op("cannot delete default layout of", &shown, Errno::ENOTDIR))
        }
        (Ok(st), _) if !st.is_dir() && !st.is_file() => Err(Failure::explained(
            "cannot set layout of",
            &shown,
            Errno::EINVAL,
            "only files and directories have layouts",
        )),
        (Ok(_), _) => {
            let r = ask_about(path, "cannot set layout of", |name| Request::Setstripe {
                name,
                spec: spec.cloned(),
            });
            match r {
                Err(Failure::Op { errno: Errno::EEXIST, .. }) => {
                    let text = format!("stripe already set on '{shown}': {}", Errno::EEXIST);
                    Err(Failure::Op { text, errno: Errno::EEXIST })
                }
                other => other.map(|_| ()),
            }
        }
    }
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = parse(args, OPTS)?;
    options::refuse_later(&p)?;
    let change = components::change(&p)?;
    if p.operands.is_empty() {
        return Err(Failure::usage("no file or directory given"));
    }
    if let Some(change) = change {
        return Ok(each(&p.operands, |path| components::one(path, &change)));
    }
    let mode = match p.value("mode") {
        None => 0o666,
        Some(m) => u32::from_str_radix(m, 8)
            .ok()
            .filter(|m| *m <= 0o7777)
            .ok_or_else(|| Failure::usage(format!("bad mode '{m}': expected an octal number")))?,
    };
    let spec = if p.has("delete") {
        if p.options.len() > 1 {
            return Err(Failure::usage("--delete stands alone"));
        }
        None
    } else {
        Some(spec(&p)?)
    };
    Ok(each(&p.operands, |path| one(path, mode, spec.as_ref())))
}

fn each(operands: &[OsString], work: impl Fn(&Path) -> Result<(), Failure>) -> FirstError {
    let mut errors = FirstError::default();
    for o in operands {
        if let Err(f) = work(Path::new(o)) {
            errors.report("lfs setstripe", &f);
        }
    }
    errors
}

#[cfg(test)]
mod tests;
