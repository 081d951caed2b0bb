//! The names the binary answers to.

use std::ffi::OsString;
use std::path::Path;
use world::sys::{files, process};

/// Programs that are links to `nacre`.
pub const NAMES: &[&str] = &[
    "nacred",
    "lfs",
    "lfs_migrate",
    "lctl",
    "lljobstat",
    "mkfs.nacre",
    "tunefs.nacre",
    "mount.nacre",
    "mount.fuse.nacre",
    "lst",
    "sgpdd-survey",
    "obdfilter-survey",
    "ost-survey",
    "mds-survey",
];

/// Of these, those that `nacre survey` has.
pub const SURVEYS: &[&str] = &["sgpdd-survey", "obdfilter-survey", "ost-survey", "mds-survey"];

/// Makes or renews the links in `dir`. Relative ones if the binary lies there too.
pub fn install(dir: &Path) -> std::io::Result<()> {
    let exe = files::canonical(process::own_executable()?)?;
    let here = files::canonical(dir)?;
    let target = match exe.parent() {
        Some(p) if p == here => exe.file_name().map(|n| n.to_string_lossy().into_owned()),
        _ => None,
    };
    let target = target.unwrap_or_else(|| exe.to_string_lossy().into_owned());
    for n in NAMES {
        files::replace_symlink(&target, &here.join(n))?;
    }
    Ok(())
}

pub fn main(args: &[OsString]) -> i32 {
    let [dir] = args else {
        eprintln!("usage: nacre install-links DIR");
        return 2;
    };
    match install(Path::new(dir)) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("nacre install-links: cannot make links in '{}': {e}", dir.to_string_lossy());
            1
        }
    }
}
