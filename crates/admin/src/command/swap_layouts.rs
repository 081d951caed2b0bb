//! `lfs swap_layouts`: two files get each other's data.

use crate::command::path2fid::fid_of;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag};
use crate::local::{self, ask_about, show, strange};
use client::control::{Reply, Request};
use model::Errno;
use std::ffi::OsString;
use std::path::Path;

pub const USAGE: &str = "[-n] FILE1 FILE2";

/// The UUID of the file system that a path lies on.
fn file_system(path: &Path) -> Result<String, Failure> {
    let parent = local::split(path).0;
    Ok(local::mount_name(&local::mount_point(&parent)?)?.fs_uuid)
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[flag('n', "no-times")])?;
    let [a, b] = p.operands.as_slice() else {
        return Err(Failure::usage("two files"));
    };
    let (first, second) = (Path::new(a), Path::new(b));
    let what = "cannot swap the layouts of";
    let both = format!("{}' and '{}", show(a), show(b));
    for path in [first, second] {
        let stat = world::sys::files::stat(path, false);
        let stat = stat.map_err(|e| Failure::io(what, &path.display().to_string(), e))?;
        if !stat.is_file() {
            let shown = path.display().to_string();
            return Err(Failure::explained(what, &shown, Errno::EINVAL, "it is no regular file"));
        }
    }
    if file_system(first)? != file_system(second)? {
        return Err(Failure::explained(what, &both, Errno::EXDEV, "they lie on two file systems"));
    }
    let other = fid_of(second)?;
    let keep_times = !p.has("no-times");
    match ask_about(first, what, |name| Request::SwapLayouts { name, other, keep_times })? {
        Reply::Done => Ok(FirstError::default()),
        other => Err(strange(first, &other)),
    }
}
