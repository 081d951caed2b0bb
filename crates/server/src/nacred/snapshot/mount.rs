//! A server over the folders of a snapshot, as a file system of its own that nobody changes: its own process,
//! which the daemon that was asked starts and does not care for any more.

use super::Said;
use admin::command::mkfs::MGT_SUBDIR;
use admin::command::snapshot::record::Record;
use admin::local::Daemon;
use mgs::{MgsState, read_configuration};
use model::maintenance::{Maintenance, Mode};
use model::snapshot::SnapshotAnswer;
use model::{Errno, HostNid, Nid, TargetKind};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use store::format::Superblock;
use store::{Db, DbOptions, StoreError, Txn, snapshot};
use world::World;
use world::sys::process::{Detached, Report};
use world::sys::{self, Deadline, control, process};

const START_PATIENCE: Duration = Duration::from_secs(120);
const STOP_PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Tags of the records of clients and of the answers to them, which all targets have (`docs/formats/mdt.md`,
/// `ost.md`, `table.md`): those of then do not come back, and nobody is to wait for them.
const OF_CLIENTS: [u8; 2] = [b'N', b'R'];
/// The write barrier under which the snapshot was made (`docs/formats/mdt.md`).
const BARRIER: &[u8] = b"Zbarrier";
/// Keys of one transaction.
const PAGE: usize = 1000;

/// Errno and words.
type Failed = (Errno, String);

/// Where it is to be served.
pub struct At {
    /// Of its MGS.
    pub mgs: Vec<Nid>,
    /// Of this server.
    pub nids: Vec<Nid>,
    pub port: u16,
}

fn words(nids: &[Nid]) -> String {
    nids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn failed(dir: &str) -> impl Fn(StoreError) -> Failed + '_ {
    move |e| (e.errno(), format!("cannot prepare '{dir}': {e}"))
}

/// Removes what is of clients, and the barrier.
async fn forget_clients(db: &Arc<Db>) -> Result<(), StoreError> {
    for tag in OF_CLIENTS {
        loop {
            let page = db.scan(&[tag], &[tag + 1], PAGE)?;
            if page.is_empty() {
                break;
            }
            let mut txn = Txn::new();
            page.into_iter().for_each(|(k, _)| txn.delete(k));
            let lsn = db.submit(txn)?;
            db.durable(lsn).await?;
        }
    }
    let mut txn = Txn::new();
    txn.delete(BARRIER.to_vec());
    let lsn = db.submit(txn)?;
    db.durable(lsn).await
}

/// Of the configuration only the snapshot's file system is left, under its own name, at these addresses and
/// closed to changes. `None`: it has no such file system.
fn renamed(state: &MgsState, r: &Record, at: &At) -> Option<MgsState> {
    let (old, new) = (&r.fsname, &r.snapshot_fsname);
    let mut fs = state.file_systems.get(new).or_else(|| state.file_systems.get(old))?.clone();
    fs.targets.iter_mut().for_each(|t| t.nids.clone_from(&at.mgs));
    let mut out = MgsState { version: state.version + 1, ..MgsState::default() };
    for (name, value) in &state.params {
        // Of other file systems of the same MGS nothing is wanted.
        let others = |f: &String| f != old && f != new && name.contains(&format!("{f}-"));
        if !state.file_systems.keys().any(others) {
            out.params.insert(name.replace(&format!("{old}-"), &format!("{new}-")), value.clone());
        }
    }
    let m = Maintenance {
        mode: Mode::ReadOnly,
        fsname: new.clone(),
        since: r.created,
        except: String::new(),
        reason: format!("snapshot {} of {old}", r.name),
    };
    out.params.insert(Maintenance::param_name(new), m.text());
    out.file_systems.insert(new.clone(), fs);
    Some(out)
}

async fn rename_in(db: &Arc<Db>, r: &Record, at: &At) -> Result<(), StoreError> {
    let state = read_configuration(&**db)?;
    let new = renamed(&state, r, at)
        .ok_or_else(|| StoreError::Refused(format!("its MGT has no file system {}", r.fsname)))?;
    let mut txn = Txn::new();
    for (k, _) in db.scan(b"G", b"H", 1 << 20)? {
        txn.delete(k);
    }
    let all = new.all();
    assert!(all.redo.is_empty() && !all.writes.is_empty(), "a configuration is records, and has a version");
    txn.writes.extend(all.writes);
    let lsn = db.submit(txn)?;
    db.durable(lsn).await
}

/// Makes the target in a snapshot's folder one of the snapshot's file system. Done again, it changes nothing
/// but addresses.
async fn prepare(world: &World, dir: &str, r: &Record, at: &At) -> Result<(), Failed> {
    let says = failed(dir);
    let mmp = format!("{dir}/mmp");
    if !world.disk.exists(&mmp).map_err(|e| (Errno::from(e), format!("cannot look at '{mmp}'")))? {
        // Nobody can have had it.
        store::mmp::format(world, dir).map_err(&says)?;
    }
    let _lock = admin::folder::hold(world, dir).map_err(&says)?;
    let mut sb = Superblock::read(world, dir).map_err(&says)?;
    sb.check_writable(dir).map_err(&says)?;
    if sb.fsname != r.fsname && sb.fsname != r.snapshot_fsname && sb.target.kind != TargetKind::Mgt {
        let why = format!("'{dir}' is of file system {}, not of {}", sb.fsname, r.fsname);
        return Err((Errno::EINVAL, why));
    }
    sb.epoch = sb
        .epoch
        .checked_add(1)
        .ok_or_else(|| (Errno::EOVERFLOW, format!("the epoch of '{dir}' is used up")))?;
    sb.write(world, dir).map_err(&says)?;
    let mgt = match sb.target.kind {
        TargetKind::Mgt => Some(dir.to_string()),
        _ => sb.with_mgt.then(|| format!("{dir}/{MGT_SUBDIR}")),
    };
    let tables = mgt.iter().cloned().chain((mgt.as_deref() != Some(dir)).then(|| dir.to_string()));
    for table in tables {
        let db = Db::open(world, &table, sb.epoch, DbOptions::default()).map_err(&says)?;
        let mut done = forget_clients(&db).await;
        if done.is_ok() && mgt.as_ref() == Some(&table) {
            done = rename_in(&db, r, at).await;
        }
        let closed = db.close().await;
        done.and(closed).map_err(&says)?;
    }
    sb.fsname = match sb.target.kind {
        TargetKind::Mgt => sb.fsname,
        _ => r.snapshot_fsname.clone(),
    };
    sb.mgs_nids = at.mgs.iter().map(|n| HostNid::from(*n)).collect();
    (sb.service_nids, sb.fail_nids) = (Vec::new(), Vec::new());
    sb.config.clear();
    sb.write(world, dir).map_err(&says)
}

/// Where the server of these folders writes what it has to say.
fn log_of(r: &Record) -> PathBuf {
    control::run_dir().join(format!("snapshot-{}-{}.log", r.snapshot_fsname, r.target))
}

/// What the maker of a snapshot says of it in a target's folder.
fn record_of(world: &World, dir: &str) -> Result<Record, Failed> {
    let bytes = snapshot::read_record(world, dir).map_err(failed(dir))?;
    let bytes = bytes.ok_or_else(|| (Errno::ENOENT, format!("'{dir}' is no snapshot")))?;
    serde_json::from_slice(&bytes).map_err(|e| (Errno::EIO, format!("the record of '{dir}': {e}")))
}

/// Serves these folders.
pub async fn mount(world: &World, dirs: Vec<String>, at: &At, stop: &AtomicBool) -> Result<(), Failed> {
    let Some(first) = dirs.first() else {
        return Err((Errno::ENOENT, "no target here has that snapshot".into()));
    };
    let r = record_of(world, first)?;
    for dir in &dirs {
        if stop.load(Relaxed) {
            return Err((Errno::EINTR, "it was interrupted".into()));
        }
        if record_of(world, dir)?.id != r.id {
            return Err((Errno::EINVAL, format!("'{dir}' is another snapshot than '{first}'")));
        }
        prepare(world, dir, &r, at).await?;
    }
    let exe = process::own_executable().map_err(|e| (Errno::from(e), "the program itself".into()))?;
    let mut args: Vec<OsString> =
        vec!["nacred".into(), "--report".into(), "--nid".into(), words(&at.nids).into()];
    args.extend(["--port".into(), at.port.to_string().into(), "--abort-recov".into()]);
    args.extend(dirs.iter().map(OsString::from));
    let log = log_of(&r);
    let d = process::Daemon { exe: &exe, arg0: "nacre", args: &args, env: &[], log: &log };
    let (child, report) = process::spawn_reporting(&d)
        .map_err(|e| (Errno::from(e), format!("cannot start {}", exe.display())))?;
    let pid = child.pid();
    let came = comes_up(&report, pid, stop);
    reap(child);
    came.map_err(|(e, why)| (e, format!("{why}: see {}", log.display())))
}

/// Waits until the new server serves; it is ended if it does not.
fn comes_up(report: &Report, pid: u32, stop: &AtomicBool) -> Result<(), Failed> {
    let end = Deadline::after(START_PATIENCE);
    let stopped = || stop.load(Relaxed);
    let line = loop {
        match report.wait(LOOK_EVERY) {
            Some(line) => break Some(line),
            None if end.passed() || stopped() => break None,
            None => {}
        }
    };
    let serves = line.as_ref().is_some_and(|l| l == "\"mounted\"");
    if serves && !stopped() {
        return Ok(());
    }
    // If it ended by itself, there is nobody any more.
    let _ = process::kill(pid, process::SIGTERM);
    if stopped() {
        return Err((Errno::EINTR, "it was interrupted".into()));
    }
    let said = line.filter(|l| !l.is_empty());
    Err((Errno::EIO, said.map_or_else(|| "its server did not come up in time".to_string(), |l| words_of(&l))))
}

/// It lives on its own; when it ends, it is not to stay as a zombie of this process.
fn reap(mut child: Detached) {
    let wait = move || {
        while let Ok(None) = child.ended() {
            sys::sleep(Duration::from_secs(1));
        }
    };
    if let Err(e) = sys::thread("snapshot's end", wait) {
        tracing::warn!("the end of a snapshot's server will not be noticed: {e}");
    }
}

/// What a server that failed has to say.
fn words_of(line: &str) -> String {
    let v: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
    v["failed"]["message"].as_str().map_or_else(|| line.to_string(), str::to_string)
}

/// Whether the server of this folder has made all its targets known.
pub fn is_up(dir: &str) -> bool {
    let status = super::server_of(dir).and_then(Daemon::of_pid).and_then(|d| d.status());
    status.is_some_and(|s| s.targets.iter().all(|t| t.registered && t.state == "up"))
}

/// Ends the server of this folder.
pub fn umount(dir: &str, name: &str) -> Said {
    let Some(pid) = super::server_of(dir) else { return Ok(SnapshotAnswer::Done) };
    let status = Daemon::of_pid(pid).and_then(|d| d.status());
    let tail = format!("/{}/{name}", snapshot::FOLDER);
    let is_its = |dir: &str| dir.ends_with(&tail) || dir.ends_with(&format!("{tail}/{MGT_SUBDIR}"));
    if let Some(t) = status.iter().flat_map(|s| &s.targets).find(|t| !is_its(&t.dir)) {
        return super::refused(
            Errno::EBUSY,
            format!("its server (pid {pid}) serves {} as well: end that by hand", t.label),
        );
    }
    process::kill(pid, process::SIGTERM).map_err(|e| (Errno::from(e), format!("pid {pid}")))?;
    let ended = || (!process::alive(pid)).then_some(());
    match Deadline::after(STOP_PATIENCE).wait_for(ended) {
        Some(()) => Ok(SnapshotAnswer::Done),
        None => super::refused(
            Errno::ETIMEDOUT,
            format!("its server (pid {pid}) did not end within {} s", STOP_PATIENCE.as_secs()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::command::snapshot::record::FORMAT;
    use mgs::FsRecord;

    #[test]
    fn of_a_configuration_only_the_snapshots_own_is_left_and_it_is_read_only() {
        let r = Record {
            format: FORMAT,
            id: "1".into(),
            name: "daily".into(),
            comment: String::new(),
            fsname: "demo".into(),
            snapshot_fsname: "0badcafe".into(),
            created: 7,
            modified: 7,
            barrier: true,
            target: "MGS".into(),
            targets: vec!["MGS".into()],
        };
        let nids: Vec<Nid> = vec!["10.0.0.1@tcp".parse().unwrap()];
        let at = At { mgs: nids.clone(), nids, port: 989 };
        let fs = |n: u8| FsRecord { fs_uuid: [n; 16], targets: Vec::new(), extra: Vec::new() };
        let mut s = MgsState { version: 3, ..MgsState::default() };
        s.file_systems = [("demo".to_string(), fs(1)), ("other".to_string(), fs(2))].into();
        let param = |n: &str| (n.to_string(), "1".to_string());
        s.params = ["mdt.demo-MDT0000.root_squash", "osc.other-*.active", "*.*.ack"].map(param).into();
        let new = renamed(&s, &r, &at).unwrap();
        assert_eq!(new.file_systems.keys().collect::<Vec<_>>(), ["0badcafe"]);
        assert_eq!(new.file_systems["0badcafe"].fs_uuid, [1; 16]);
        let names: Vec<&str> = new.params.keys().map(String::as_str).collect();
        assert_eq!(names, ["*.*.ack", "*.0badcafe-*.maintenance", "mdt.0badcafe-MDT0000.root_squash"]);
        let params: Vec<(String, String)> = new.params.clone().into_iter().collect();
        assert_eq!(Maintenance::of(&params, "0badcafe").mode, Mode::ReadOnly);
        let again = renamed(&new, &r, &at).unwrap();
        assert_eq!((again.file_systems, again.params), (new.file_systems, new.params));
        assert!(renamed(&MgsState::default(), &r, &at).is_none());
    }
}
