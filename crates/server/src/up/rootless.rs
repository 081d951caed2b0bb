//! A file system of an ordinary user: it runs in a user, mount and network namespace of its own, in which
//! the user may mount and has the ports of servers. Commands about it go there first.
//!
//! Nobody holds the namespaces but the processes that run in them: with the last of these they are gone, and
//! the mounts with them.

use super::cluster::Cluster;
use super::probe::{self, Processes};
use super::{Result, UpError};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use world::sys::files;
use world::sys::namespace::{self, Place, Program};
use world::sys::process::{self, ExitStatus};

/// Where daemons have their control sockets, below the file system's folder: `/run/nacre` is root's.
pub(super) const RUN: &str = "run";
/// Names it to whatever runs in the namespaces.
const RUN_VARIABLE: &str = "NACRE_RUN_DIR";
/// A socket's name takes 107 bytes.
const DIR_MAX_BYTES: usize = 70;

/// Where what runs of a file system does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// In this process' namespaces.
    Here,
    /// In others of this user's; one of its processes.
    Elsewhere(u32),
    Nothing,
}

/// The error: it is another user's.
pub(super) fn find(dir: &Path) -> Result<Found> {
    let Some(c) = Cluster::load(dir)? else { return Ok(Found::Nothing) };
    let now = Processes::look();
    let servers = c.nodes();
    let servers = servers.iter().flat_map(|n| &n.dirs).filter_map(|d| now.server(d));
    let clients = c.mounts.iter().filter_map(|m| now.client(&c.source(), m));
    let all: Vec<u32> = now.watcher(&c.dir).into_iter().chain(servers).chain(clients).collect();
    for pid in all {
        match namespace::is_here(pid) {
            Ok(true) => return Ok(Found::Here),
            Ok(false) => return mine(pid, dir).map(Found::Elsewhere),
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                return mine(pid, dir).map(Found::Elsewhere);
            }
            // It ended just now.
            Err(_) => {}
        }
    }
    Ok(Found::Nothing)
}

/// Its namespaces may be entered by whose they are.
fn mine(pid: u32, dir: &Path) -> Result<u32> {
    let own = world::sys::euid();
    match namespace::user_of(pid) {
        Ok(uid) if uid != own => Err(UpError::new(format!(
            "'{}' runs as user {uid} (pid {pid}), in namespaces of its own: this command is that user's",
            dir.display()
        ))),
        _ if own == 0 => Err(UpError::new(format!(
            "'{}' runs in other namespaces (pid {pid}): another 'nacre up' started it at the same time, \
             or this is a 'nacre shell' of another file system; try again, from outside of it",
            dir.display()
        ))),
        _ => Ok(pid),
    }
}

/// For commands on a folder, before anything else: if its file system runs in namespaces, or shall
/// (`make`), does `nacre WORDS` there and returns its exit status. `None`: it is done here.
pub(super) fn instead(dir: &Path, words: &[OsString], make: bool) -> Result<Option<i32>> {
    if make {
        files::create_dir_all(dir).map_err(|e| UpError::io("cannot make", dir, &e))?;
    }
    let Ok(dir) = files::canonical(dir) else { return Ok(None) };
    let place = match find(&dir)? {
        Found::Here => return Ok(None),
        Found::Elsewhere(pid) => Place::Of(pid),
        Found::Nothing if make && world::sys::euid() != 0 => Place::New,
        Found::Nothing => return Ok(None),
    };
    assert!(world::sys::euid() != 0, "root's file systems run in no namespaces of their own");
    let exe = own_program()?;
    let p = Program { program: &exe, arg0: "nacre".as_ref(), args: words, env: &variables(&dir)? };
    match namespace::run(&p, place) {
        Ok(s) => Ok(Some(code(s))),
        Err(e) if place == Place::New => Err(UpError::new(format!(
            "without root it needs a user namespace, and gets none: {}; or run it as root",
            namespace::why_not(&e)
        ))),
        Err(e) => Err(UpError::new(format!("cannot enter the namespaces of '{}': {e}", dir.display()))),
    }
}

/// After the folder's lock was taken: whoever had it may have started it elsewhere.
pub(super) fn check_here(dir: &Path) -> Result<()> {
    find(dir).map(drop)
}

/// In a network namespace that was made just now nothing is up.
pub(super) fn loopback() -> Result<()> {
    namespace::loopback_up().map_err(|e| {
        let why = namespace::why_not(&e);
        UpError::new(format!("the loopback interface is down, and cannot be set up: {why}"))
    })
}

/// Whether this process runs where `nacre up` of an ordinary user put it.
pub(super) fn is_inside(dir: &Path) -> bool {
    std::env::var_os(RUN_VARIABLE).is_some_and(|d| Path::new(&d) == dir.join(RUN))
}

/// What daemons left of their sockets, after the last of them ended.
pub(super) fn forget(dir: &Path) {
    if is_inside(dir) {
        let _ = files::remove_tree(dir.join(RUN));
    }
}

fn own_program() -> Result<PathBuf> {
    process::own_executable().map_err(|e| UpError::new(format!("cannot find the program itself: {e}")))
}

fn variables(dir: &Path) -> Result<[(&'static str, OsString); 1]> {
    let long = dir.as_os_str().len();
    if long > DIR_MAX_BYTES {
        let text = format!(
            "--dir '{}' is {long} bytes long: without root at most {DIR_MAX_BYTES}, as sockets lie in it",
            dir.display()
        );
        return Err(UpError::new(text));
    }
    Ok([(RUN_VARIABLE, dir.join(RUN).into_os_string())])
}

/// As shells have it.
fn code(s: ExitStatus) -> i32 {
    s.status.unwrap_or_else(|| 128 + s.signal.unwrap_or(0))
}

/// The folder of the one file system of this user's that runs.
fn the_one() -> Result<PathBuf> {
    let own = world::sys::euid();
    let mine = |pid: &u32| namespace::user_of(*pid).is_ok_and(|u| u == own);
    let all = Processes::look().folders(mine);
    let mut all = all.into_iter().filter(|d| matches!(Cluster::load(d), Ok(Some(_))));
    match (all.next(), all.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(UpError::new("no file system of yours is up: start it with 'nacre up --dir DIR'")),
        (Some(a), Some(b)) => Err(UpError::new(format!(
            "several file systems of yours are up: choose one with --dir, as '{}' or '{}'",
            a.display(),
            b.display()
        ))),
    }
}

/// `nacre shell`; the exit status of what ran.
pub(super) fn shell(dir: Option<&Path>, command: &[OsString]) -> Result<i32> {
    let dir = match dir {
        Some(d) => Cluster::require(d)?.dir,
        None => the_one()?,
    };
    let found = find(&dir)?;
    let (place, mut env) = match found {
        Found::Here => (Place::Here, Vec::new()),
        Found::Elsewhere(pid) => (Place::Of(pid), variables(&dir)?.to_vec()),
        Found::Nothing => {
            let text = format!("'{0}' is not up: start it with 'nacre up --dir {0}'", dir.display());
            return Err(UpError::new(text));
        }
    };
    // `lfs` and the others beside this very program.
    let mut path = own_program()?.parent().map(|p| p.as_os_str().to_owned()).unwrap_or_default();
    if let Some(old) = std::env::var_os("PATH") {
        path.push(":");
        path.push(old);
    }
    env.push(("PATH", path));
    let usual = std::env::var_os("SHELL").filter(|s| !s.is_empty()).unwrap_or_else(|| "/bin/sh".into());
    let (program, args) = command.split_first().map_or((&usual, &[][..]), |(p, rest)| (p, rest));
    if command.is_empty() {
        let mounts: Vec<String> =
            probe::mounts_of(&Cluster::require(&dir)?).iter().map(|m| m.display().to_string()).collect();
        eprintln!(
            "The file system of {} is seen here at {}; 'exit' leaves",
            dir.display(),
            mounts.join(", ")
        );
    }
    let p = Program { program: Path::new(program), arg0: program, args, env: &env };
    match namespace::run(&p, place) {
        Ok(s) => Ok(code(s)),
        Err(e) => {
            eprintln!("nacre shell: cannot run '{}': {e}", program.to_string_lossy());
            Ok(if e.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_whose_sockets_would_have_no_names_is_refused() {
        let longest = format!("/{}", "d".repeat(DIR_MAX_BYTES - 1));
        let [(_, run)] = variables(Path::new(&longest)).unwrap();
        let socket = Path::new(&run).join(format!("{}4194304.sock", admin::local::MOUNT_SOCKET));
        assert!(socket.as_os_str().len() <= 107, "{}", socket.display());
        assert!(variables(Path::new(&format!("{longest}d"))).unwrap_err().to_string().contains("71 bytes"));
    }
}
