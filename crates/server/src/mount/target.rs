//! `mount -t nacre FOLDER MOUNT_POINT`: the target in the folder is served until the mount point is
//! unmounted, by the `nacred` that has the target's address on this host already, or by a new one. Decision
//! 0076.

use super::helper::default_log;
use crate::nacred;
use crate::outcome::Outcome;
use admin::local::{Daemon, DaemonReply, DaemonRequest};
use model::nid::parse_nid_list;
use model::{Errno, HostNid, Nid, limits};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::format::Superblock;
use world::World;
use world::sys::process::{self, SIGTERM};
use world::sys::{Deadline, files, mounts};

/// A target that another host let go without a word is waited for, and an MGS that gives the index.
const START_PATIENCE: Duration = Duration::from_secs(120);
/// A server that has the address and ends, or has not begun to listen to requests.
const NEIGHBOUR_PATIENCE: Duration = Duration::from_secs(30);

/// What `-o` says of a target.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TargetOptions {
    abort_recov: bool,
    /// `nid=`: where it is served, as nacred's `--nid`.
    nid: Vec<HostNid>,
    /// `port=`.
    port: Option<u16>,
    /// `log=`: of a nacred that is started.
    log: Option<PathBuf>,
    no_create: bool,
}

/// True of every target, or for mount(8) and systemd.
const TAKEN: &[&str] = &[
    "defaults",
    "rw",
    "auto",
    "noauto",
    "_netdev",
    "nofail",
    "user_xattr",
    "acl",
    "suid",
    "dev",
    "exec",
    "async",
    "nosuid",
    "nodev",
    "noexec",
    "nouser",
    "nolazytime",
    "errors=remount-ro",
];

/// Options that a target cannot have, and what to use.
const REFUSED: &[(&str, &str)] = &[
    ("ro", "a target is served with changes, or not at all: mount clients with ro"),
    ("remount", "umount it and mount it anew"),
    ("noacl", "targets keep ACLs: remove them with setfacl -b"),
    ("nouser_xattr", "targets keep user attributes"),
    ("noatime", "it is an option of clients, and of the file system that the folder lies on"),
    ("relatime", "it is an option of clients, and of the file system that the folder lies on"),
    (
        "errors",
        "only errors=remount-ro: an OST whose disk failed is read, and not written, any more; other targets stop",
    ),
    (
        "nosvc",
        "the MGT and the MDT of one folder are served together; make them in two folders, and mount the MGT's alone",
    ),
    (
        "nomgs",
        "the MGT and the MDT of one folder are served together; make them in two folders, and mount the MDT's alone",
    ),
    ("flock", "it is an option of clients"),
    ("localflock", "it is an option of clients"),
    ("noflock", "it is an option of clients"),
];

fn take(o: &mut TargetOptions, item: &str) -> Result<(), String> {
    let (name, value) = item.split_once('=').map_or((item, None), |(n, v)| (n, Some(v)));
    let bad = |what: &str| format!("mount option '{name}': '{}' is not {what}", value.unwrap_or(""));
    match (name, value) {
        ("abort_recov" | "abort_recovery", None) => o.abort_recov = true,
        ("no_create", None) => o.no_create = true,
        // Options end at commas.
        ("nid", Some(v)) => o.nid = parse_nid_list(v).map_err(|e| format!("mount option 'nid': {e}"))?,
        ("port", Some(v)) => o.port = Some(v.parse().map_err(|_| bad("a port number"))?),
        ("log", Some(v)) if !v.is_empty() => o.log = Some(PathBuf::from(v)),
        _ if TAKEN.contains(&item)
            || name.starts_with("x-")
            || name.starts_with("X-")
            || name == "comment" => {}
        _ => {
            let known = REFUSED.iter().find(|(n, _)| *n == name);
            return Err(match known {
                Some((n, why)) => format!("mount option '{n}': {why}"),
                None => format!("mount option '{item}' is not one of a target"),
            });
        }
    }
    Ok(())
}

/// The error names the option that cannot be taken.
pub fn parse_options(list: &str) -> Result<TargetOptions, String> {
    let mut o = TargetOptions::default();
    list.split(',').filter(|i| !i.is_empty()).try_for_each(|item| take(&mut o, item))?;
    Ok(o)
}

/// Whether it is a path and no source of a client.
pub fn is_folder(source: &str) -> bool {
    source.starts_with('/')
}

/// The target's folder as everybody names it.
pub fn folder(source: &str) -> Result<String, String> {
    let st = files::stat(Path::new(source), true)
        .map_err(|e| format!("cannot use target '{source}': {e}: name its folder"))?;
    if st.is_device() {
        return Err(format!(
            "'{source}' is a device, and targets lie in folders: mount the file system on it, and name the target's folder in it"
        ));
    }
    nacred::canonical(source)
}

/// What became of asking a server that is there.
enum Asked {
    Served(String),
    /// It ends, or is gone.
    Ends,
}

/// The server of this host that has this address.
fn neighbour(nid: Nid, port: u16) -> Option<Daemon> {
    let all = Daemon::all();
    let nid = nid.to_string();
    all.into_iter().find(|d| d.status().is_some_and(|s| s.port == port && s.nids.contains(&nid)))
}

fn ask(d: &Daemon, folder: &str, at: &Path, o: &TargetOptions) -> Result<Asked, String> {
    let (folder, mount_point) = (folder.to_string(), at.to_path_buf());
    let order =
        DaemonRequest::MountTarget { folder: folder.clone(), mount_point, abort_recov: o.abort_recov };
    let end = Deadline::after(START_PATIENCE);
    let mut request = order;
    loop {
        match d.ask_if_there(&request) {
            Ok(None) => return Ok(Asked::Ends),
            Ok(Some(DaemonReply::Error { errno, .. })) if errno == Errno::ESHUTDOWN.0 => {
                return Ok(Asked::Ends);
            }
            Ok(Some(DaemonReply::Error { message, .. })) => return Err(message),
            Ok(Some(DaemonReply::Text(labels))) => return Ok(Asked::Served(labels)),
            Ok(Some(_)) if end.passed() => {
                return Err(format!("it is not served within {} s: see lctl dl", START_PATIENCE.as_secs()));
            }
            Ok(Some(_)) => world::sys::sleep(Duration::from_millis(50)),
            Err(e) => return Err(e.to_string()),
        }
        request = DaemonRequest::MountedTarget { folder: folder.clone() };
    }
}

/// With commas.
fn words(nids: &[Nid]) -> String {
    nids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// A new server with this target.
fn spawn(folder: &str, at: &Path, nids: &[Nid], o: &TargetOptions) -> Result<Outcome, String> {
    let log = o.log.clone().unwrap_or_else(|| default_log("nacred", at));
    let exe = process::own_executable().map_err(|e| format!("cannot find the program itself: {e}"))?;
    let mut args: Vec<OsString> = vec!["--report".into(), "--nid".into(), words(nids).into()];
    args.extend(o.port.iter().flat_map(|p| ["--port".into(), p.to_string().into()]));
    if o.abort_recov {
        args.push(nacred::Options::ABORT_RECOV.into());
    }
    args.extend([nacred::Options::MOUNTED.into(), folder.into(), at.into()]);
    let d = process::Daemon { exe: &exe, arg0: "nacred", args: &args, env: &[], log: &log };
    let (mut child, report) =
        process::spawn_reporting(&d).map_err(|e| format!("cannot start {}: {e}", exe.display()))?;
    let Some(line) = report.wait(START_PATIENCE) else {
        let _ = process::kill(child.pid(), SIGTERM);
        return Err(format!("it is not served within {} s: see {}", START_PATIENCE.as_secs(), log.display()));
    };
    serde_json::from_str(&line).map_err(|_| {
        let how = child.ended().ok().flatten();
        let how = how.map_or_else(|| "without a word".to_string(), |e| e.to_string());
        format!("the server ended ({how}): see {}", log.display())
    })
}

/// Where the target is to be served on this host.
fn addresses(world: &World, s: &Superblock, o: &TargetOptions) -> Result<Vec<Nid>, String> {
    let labels = [s];
    let chosen = nacred::choose_nids(world, &o.nid, &[], &labels);
    world::block_on(chosen).map_err(|e| e.text)
}

/// `no_create`: files get no objects there, from the start.
fn forbid_objects(labels: &str) -> Result<(), String> {
    let Some(ost) = labels.split(' ').find(|l| l.contains("-OST")) else {
        return Err("mount option 'no_create': it is no OST".to_string());
    };
    let name = format!("obdfilter.{ost}.no_create");
    let request = DaemonRequest::SetParam { name, value: "1".to_string() };
    let done = Daemon::ask_all(&Daemon::all(), &request);
    match done.iter().any(|r| matches!(r, Ok(DaemonReply::Params(_)))) {
        true => Ok(()),
        false => Err(format!("mount option 'no_create': {ost} does not take it: see lctl set_param")),
    }
}

/// A mount point whose server was killed stands for nothing.
fn clear_stale(folder: &str, at: &Path) -> Result<(), String> {
    let there = mounts::list().map_err(|e| format!("cannot read /proc/mounts: {e}"))?;
    for m in there.iter().filter(|m| m.is_mark_of(folder)) {
        let served = |s: &admin::local::DaemonStatus| s.targets.iter().any(|t| t.dir == folder);
        if Daemon::statuses().iter().any(served) {
            return Err(format!("'{folder}' is mounted at '{}' already", m.dir.display()));
        }
        mounts::unmount(&m.dir, mounts::Unmount::Lazy)
            .map_err(|e| format!("cannot unmount '{}', whose server was killed: {e}", m.dir.display()))?;
    }
    match mounts::at(at) {
        Ok(Some(m)) if m.is_mark_of(&m.source) => {
            Err(format!("'{}' stands for the target '{}' already", at.display(), m.source))
        }
        _ => Ok(()),
    }
}

/// Serves the target in `folder`, and says which it is.
pub fn start(folder: &str, at: &Path, o: &TargetOptions) -> Result<String, String> {
    clear_stale(folder, at)?;
    let (world, _runtime) = world::real::start(1).map_err(|e| format!("cannot start: {e}"))?;
    let label = Superblock::read(&world, folder).map_err(|e| e.to_string())?;
    let nids = addresses(&world, &label, o)?;
    let port = o.port.unwrap_or(limits::PORT);
    let end = Deadline::after(NEIGHBOUR_PATIENCE);
    assert!(nids.iter().all(|n| !n.addr.is_unspecified()), "a target is served at addresses of its host");
    let labels = loop {
        if let Some(d) = nids.first().and_then(|nid| neighbour(*nid, port))
            && let Asked::Served(labels) = ask(&d, folder, at, o)?
        {
            break labels;
        }
        match spawn(folder, at, &nids, o)? {
            Outcome::Mounted => break Superblock::read(&world, folder).map_err(|e| e.to_string())?.words(),
            Outcome::Failed { has_neighbour: true, .. } if !end.passed() => {
                world::sys::sleep(Duration::from_millis(100));
            }
            Outcome::Failed { message, .. } => return Err(message),
        }
    };
    if o.no_create {
        forbid_objects(&labels)?;
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_targets_are_taken_or_refused_by_name() {
        for list in
            ["", "defaults", "rw,noauto,acl,errors=remount-ro,user_xattr", "_netdev,x-systemd.automount"]
        {
            assert_eq!(parse_options(list), Ok(TargetOptions::default()), "{list}");
        }
        let o = parse_options("abort_recov,nid=mds05@tcp0,port=1988,no_create").unwrap();
        assert!(o.abort_recov && o.no_create && o.port == Some(1988));
        assert_eq!(o.nid, ["mds05".parse::<HostNid>().unwrap()]);
        let o = parse_options("nid=10.0.0.1@tcp:10.1.0.1@tcp1").unwrap();
        assert_eq!(o.nid.len(), 2);
        for (list, part) in [
            ("ro", "clients"),
            ("errors=panic", "errors=remount-ro"),
            ("nosvc", "two folders"),
            ("nomgs", "two folders"),
            ("frob", "'frob' is not one of a target"),
            ("nid=x@o2ib", "TCP only"),
            ("port=many", "'many' is not a port"),
            ("log=", "'log='"),
        ] {
            let e = parse_options(list).unwrap_err();
            assert!(e.contains(part), "{e}");
        }
        assert!(is_folder("/srv/mgs") && !is_folder("mds01@tcp:/fs"));
    }
}
