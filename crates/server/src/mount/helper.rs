//! The helper: checks, starts the daemon, waits until the mount answers.

use super::target;
use super::{DAEMON_ENV, EXIT_FAILURE};
use crate::outcome::Outcome;
use admin::getopt::{self, Opt, flag, value};
use client::Source;
use model::maintenance::Mode;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use world::sys::process::{self, SIGTERM};
use world::sys::{files, mounts};

const USAGE: &str =
    "usage: mount.nacre MGSNID[,NID][:NID]:/FSNAME[/SUBDIR] DIR [-o OPTIONS] [-f] [-n] [-r] [-s] [-v] [-w]
       mount.nacre FOLDER DIR [-o OPTIONS]    starts the target in FOLDER; umount DIR stops it";

/// The client waits for its servers at most this long (see `client::mount`), then says why it gives up.
const REPORT_PATIENCE: Duration = Duration::from_secs(90);
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

const OPTS: &[Opt] = &[
    value('o', "options"),
    value('t', "types"),
    flag('f', "fake"),
    flag('n', "no-mtab"),
    flag('r', "read-only"),
    flag('w', "rw"),
    flag('s', "sloppy"),
    flag('v', "verbose"),
    flag('h', "help"),
    flag('V', "version"),
];

/// One mount to make.
#[derive(Clone, Debug)]
pub struct MountRequest {
    pub source: String,
    /// Exists; absolute.
    pub dir: PathBuf,
    /// As behind `-o`.
    pub options: String,
    /// Log of the daemon; by default a file below /var/log/nacre.
    pub log: Option<PathBuf>,
}

/// Whether `/dev/fuse` is there and may be opened; the error says what to do.
pub fn open_fuse_device() -> Result<(), String> {
    fuse::open_device().map(|_| ()).map_err(|e| e.message)
}

/// The error names the option that cannot be taken.
pub fn check_options(list: &str) -> Result<(), String> {
    fuse::parse_options(list).map(|_| ()).map_err(|e| e.to_string())
}

pub(super) fn default_log(program: &str, mount_point: &Path) -> PathBuf {
    let dir = Path::new("/var/log/nacre");
    let name: String = mount_point.to_string_lossy().trim_matches('/').replace('/', "-");
    let name: String = name.chars().take(200).collect();
    if files::create_dir_all(dir).is_ok() {
        let path = dir.join(format!("{program}-{name}.log"));
        if files::open_log(&path).is_ok() {
            return path;
        }
    }
    PathBuf::from("/dev/null")
}

/// Mounts, and returns when the mount answers. The error is for the user: what, where, what to do.
pub fn mount(r: &MountRequest) -> Result<(), String> {
    let options = fuse::parse_options(&r.options).map_err(|e| e.to_string())?;
    Source::parse(&r.source)?;
    open_fuse_device()?;
    let log = options.log.clone().or_else(|| r.log.clone()).unwrap_or_else(|| default_log("mount", &r.dir));
    let exe = process::own_executable().map_err(|e| format!("cannot find the program itself: {e}"))?;
    let mut args: Vec<OsString> = vec![r.source.clone().into(), r.dir.clone().into_os_string()];
    if !r.options.is_empty() {
        args.extend(["-o".into(), r.options.clone().into()]);
    }
    let env = [(DAEMON_ENV, "1".to_string())];
    let d = process::Daemon { exe: &exe, arg0: "mount.nacre", args: &args, env: &env, log: &log };
    let (mut child, report) =
        process::spawn_reporting(&d).map_err(|e| format!("cannot start {}: {e}", exe.display()))?;
    let line = report.wait(REPORT_PATIENCE);
    let outcome = line.as_deref().map(|l| serde_json::from_str::<Outcome>(l).map_err(|_| l.to_string()));
    let failure = match outcome {
        Some(Ok(Outcome::Mounted)) => None,
        Some(Ok(Outcome::Failed { message, .. })) => Some(message),
        Some(Err(_)) => {
            let how =
                child.ended().ok().flatten().map_or_else(|| "without a word".to_string(), |e| e.to_string());
            Some(format!("the client daemon ended ({how}): see {}", log.display()))
        }
        None => {
            Some(format!("no server answered within {} s. Is the MGS running?", REPORT_PATIENCE.as_secs()))
        }
    };
    if let Some(f) = failure {
        let _ = process::kill(child.pid(), SIGTERM);
        return Err(f);
    }
    match crate::up::answers(&r.dir, ANSWER_PATIENCE) {
        Some(Ok(_)) => Ok(()),
        Some(Err(e)) => {
            let _ = mounts::unmount(&r.dir, mounts::Unmount::Lazy);
            Err(format!("the mount does not answer: {e}: see {}", log.display()))
        }
        None => {
            let _ = mounts::unmount(&r.dir, mounts::Unmount::Force);
            let _ = mounts::unmount(&r.dir, mounts::Unmount::Lazy);
            Err(format!(
                "the mount gave no answer within {} s. Are all servers running?",
                ANSWER_PATIENCE.as_secs()
            ))
        }
    }
}

/// `remount`: flags only, no second daemon. Flags not named stay as they are.
fn remount(dir: &Path, options: &str) -> Result<(), String> {
    let now = mounts::at(dir).map_err(|e| format!("cannot read /proc/mounts: {e}"))?;
    let Some(m) = now.filter(|m| m.fstype == fuse::FSTYPE) else {
        return Err(format!("'{}' is not mounted: nothing to remount", dir.display()));
    };
    // The kernel lists flags and its own words; the flags are kept.
    let kept: Vec<&str> = m.options.split(',').filter(|o| check_options(o).is_ok()).collect();
    let merged = format!("{},{options}", kept.join(","));
    let o = fuse::parse_options(&merged).map_err(|e| e.to_string())?;
    let at = fuse::MountPoint { source: m.source, dir: dir.to_path_buf(), flags: o.flags };
    fuse::remount(&at).map_err(|e| e.message)
}

struct Invocation {
    request: MountRequest,
    fake: bool,
    verbose: bool,
}

enum Parsed {
    Run(Box<Invocation>),
    Done(i32),
}

fn parse(args: &[OsString]) -> Result<Parsed, String> {
    let p = getopt::parse(args, OPTS).map_err(|f| match f {
        admin::failure::Failure::Usage(t) => format!("{t}\n{USAGE}"),
        admin::failure::Failure::Op { text, .. } => text,
    })?;
    if p.has("help") {
        println!("{USAGE}");
        return Ok(Parsed::Done(0));
    }
    if p.has("version") {
        println!("mount.nacre {}", admin::VERSION);
        return Ok(Parsed::Done(0));
    }
    let [source, dir] = p.operands.as_slice() else {
        return Err(format!("a source and a directory are needed\n{USAGE}"));
    };
    let source = source.to_str().ok_or("the source is not UTF-8")?.to_string();
    let mut options: Vec<&str> = p.values("options").filter(|o| !o.is_empty()).collect();
    if p.has("read-only") {
        options.push("ro");
    }
    if p.has("rw") {
        options.push("rw");
    }
    let mut options = options.join(",");
    if p.has("sloppy") {
        let known = |o: &&str| match target::is_folder(&source) {
            true => target::parse_options(o).is_ok(),
            false => check_options(o).is_ok(),
        };
        options = options.split(',').filter(known).collect::<Vec<_>>().join(",");
    }
    let dir = PathBuf::from(dir);
    let request = MountRequest { source, dir, options, log: None };
    Ok(Parsed::Run(Box::new(Invocation { request, fake: p.has("fake"), verbose: p.has("verbose") })))
}

/// Where it is mounted, absolute and resolved.
fn mount_point(dir: &Path) -> Result<PathBuf, String> {
    let absolute = files::absolute(dir).map_err(|e| format!("cannot use '{}': {e}", dir.display()))?;
    let st = files::stat(&absolute, true).map_err(|e| {
        let hint = match e.raw_os_error() {
            Some(n) if n == model::Errno::ENOTCONN.0 => ": a dead mount is there: umount it first",
            Some(n) if n == model::Errno::ENOENT.0 => ": make the directory first",
            _ => "",
        };
        format!("cannot use mount point '{}': {e}{hint}", absolute.display())
    })?;
    if !st.is_dir() {
        return Err(format!("mount point '{}' is not a directory", absolute.display()));
    }
    files::canonical(&absolute).map_err(|e| format!("cannot use '{}': {e}", absolute.display()))
}

fn run_target(i: &Invocation) -> Result<(), String> {
    let r = &i.request;
    let options = target::parse_options(&r.options)?;
    let folder = target::folder(&r.source)?;
    let at = mount_point(&r.dir)?;
    if i.fake {
        return Ok(());
    }
    let labels = target::start(&folder, &at, &options)?;
    if i.verbose {
        println!("{labels} is served from {folder}, until {} is unmounted", at.display());
    }
    Ok(())
}

fn run(i: &mut Invocation) -> Result<(), String> {
    if target::is_folder(&i.request.source) {
        return run_target(i);
    }
    let r = &mut i.request;
    let options = fuse::parse_options(&r.options).map_err(|e| e.to_string())?;
    let absolute = files::absolute(&r.dir).map_err(|e| format!("cannot use '{}': {e}", r.dir.display()))?;
    if options.remount {
        if i.fake {
            return Ok(());
        }
        let dir = files::canonical(&absolute).unwrap_or(absolute);
        return remount(&dir, &r.options);
    }
    Source::parse(&r.source)?;
    r.dir = mount_point(&absolute)?;
    if mounts::at(&r.dir).ok().flatten().is_some_and(|m| m.fstype == fuse::FSTYPE && m.source == r.source) {
        return Err(format!("'{}' is mounted at '{}' already", r.source, r.dir.display()));
    }
    if i.fake {
        return Ok(());
    }
    if i.verbose {
        println!("mounting {} at {}", r.source, r.dir.display());
    }
    mount(r)?;
    // A mount that has just come up answers by its own socket.
    if let Some((m, held)) = admin::command::maintenance::of_mount(&r.dir)
        && held != Mode::Off
    {
        eprintln!("mount.nacre: {} is {}; {}", m.fsname, m.sentence(), m.consequence());
    }
    Ok(())
}

pub fn main(args: &[OsString]) -> i32 {
    let mut invocation = match parse(args) {
        Ok(Parsed::Run(i)) => i,
        Ok(Parsed::Done(code)) => return code,
        Err(e) => {
            eprintln!("mount.nacre: {e}");
            return EXIT_FAILURE;
        }
    };
    match run(&mut invocation) {
        Ok(()) => 0,
        Err(e) => {
            let r = &invocation.request;
            eprintln!("mount.nacre: mount {} at {} failed: {e}", r.source, r.dir.display());
            EXIT_FAILURE
        }
    }
}
