//! mount and unmount: from the addresses of an MGS to the root directory, and good-bye to everybody.

use crate::base::Settings;
use crate::{Fs, MountError, MountOptions, R};
use model::limits::{NAME_MAX_BYTES, PATH_MAX_BYTES};
use model::target::fsname_is_valid;
use model::{Errno, Fid, FileType, TargetId, TargetKind};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::getattr::Getattr;
use wire::msg::lookup::Lookup;
use world::BoxFuture;
use world::World;

/// How long a mount waits for the MGS.
const MGS_PATIENCE: Duration = Duration::from_secs(12);
/// How long a mount waits for the metadata server: longer than a recovery window.
const MDT_PATIENCE: Duration = Duration::from_secs(45);
/// How long an unmount waits for the servers' good-bye.
const GOODBYE_PATIENCE: Duration = Duration::from_secs(2);

/// Which addresses of the servers are asked: those on the networks that were named, or those on the networks
/// by which the MGS was named before others.
fn networks(opt: &MountOptions) -> rpc::Networks {
    assert!(!opt.mgs_nids.is_empty(), "a mount names an MGS, and so its networks");
    match opt.networks.is_empty() {
        true => rpc::Networks::preferring(opt.mgs_nids.iter().map(model::HostNid::net)),
        false => rpc::Networks::only(opt.networks.iter().copied()),
    }
}

fn failed<T>(errno: Errno, message: String) -> Result<T, MountError> {
    Err(MountError { errno, message })
}

impl Fs {
    /// Connects, fetches the target map and finds the root. Fails after a bounded time with a message for the
    /// user: `ENOENT` for an unknown file system or subdirectory, `EIO` if a server does not answer.
    pub fn mount(world: World, opt: MountOptions) -> BoxFuture<Result<Arc<Fs>, MountError>> {
        Box::pin(async move {
            if !fsname_is_valid(&opt.fsname) {
                return failed(
                    Errno::EINVAL,
                    format!("'{}' is no name of a file system: 1 to 8 of A-Z a-z 0-9 _ -", opt.fsname),
                );
            }
            if opt.mgs_nids.is_empty() {
                return failed(Errno::EINVAL, "no NID of an MGS is given".to_string());
            }
            if !opt.networks.is_empty() && !opt.mgs_nids.iter().any(|n| opt.networks.contains(&n.net())) {
                let all: Vec<String> = opt.mgs_nids.iter().map(ToString::to_string).collect();
                return failed(
                    Errno::EINVAL,
                    format!(
                        "mount option 'network': no NID of the MGS ({}) is on {}",
                        all.join(", "),
                        networks(&opt).names()
                    ),
                );
            }
            let subdir = split_path(&opt.subdir)?;
            let settings = Settings {
                fsname: opt.fsname.clone(),
                port: opt.port,
                bind: opt.bind,
                networks: networks(&opt),
                client_name: opt.client_name.clone(),
                soft_timeout: opt.soft_timeout_ms.map(Duration::from_millis),
            };
            let fs = Fs::new(world, settings, opt.read_only);
            let r = Start(&fs).bring_up(&opt, &subdir).await;
            match r {
                Ok(()) => Ok(fs),
                Err(e) => {
                    fs.unmount().await;
                    Err(e)
                }
            }
        })
    }

    /// Says good-bye to the servers, which drop this client's open files and locks with it. Bounded: a server
    /// that does not answer finds out by itself.
    pub fn unmount(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move {
            if !self.cx.close() {
                return;
            }
            self.lmv.config_changed();
            self.lmv.atimes_at_unmount().await;
            self.lmv.tell_pending_at_unmount().await;
            self.lov.cache.flush_all().await;
            let mut all = self.lmv.all_targets();
            all.extend(self.lmv.mgs());
            let byes = all.iter().map(|t| t.import.disconnect()).collect();
            if self.cx.world.timeout(GOODBYE_PATIENCE, world::future::join_all(byes)).await.is_none() {
                tracing::warn!("{}: some servers did not answer to the unmount", self.cx.opt.fsname);
            }
        })
    }
}

/// A mount that comes up.
struct Start<'a>(&'a Arc<Fs>);

impl Start<'_> {
    async fn bring_up(&self, opt: &MountOptions, subdir: &[Vec<u8>]) -> Result<(), MountError> {
        self.0.lmv.meet_mgs(opt.mgs_nids.clone());
        self.ask_mgs(opt).await?;
        self.0.lmv.watch_config();
        self.0.lmv.watch_lease_age();
        self.find_root(subdir, &opt.subdir).await?;
        if opt.read_only {
            return Ok(());
        }
        match self.0.cx.world.timeout(MDT_PATIENCE, self.0.lmv.lease_for_root()).await {
            Some(Ok(())) => Ok(()),
            Some(Err(e)) => {
                failed(e, format!("the metadata server of {} leases no FIDs: {e}", self.0.cx.opt.fsname))
            }
            None => self.no_mdt(),
        }
    }

    async fn ask_mgs(&self, opt: &MountOptions) -> Result<(), MountError> {
        let nids: Vec<String> = opt.mgs_nids.iter().map(ToString::to_string).collect();
        let nids = nids.join(":");
        match self.0.cx.world.timeout(MGS_PATIENCE, self.0.lmv.fetch_config()).await {
            Some(Ok(())) => {}
            Some(Err(Errno::ENOENT)) => {
                let text = format!(
                    "the MGS at {nids} knows no file system '{}': {}. Is the file system name correct?",
                    opt.fsname,
                    Errno::ENOENT.text()
                );
                return failed(Errno::ENOENT, text);
            }
            Some(Err(e)) => {
                let refusal = self.0.lmv.mgs().ok().and_then(|m| m.import.refusal());
                let why = refusal.map_or(e.to_string(), |(_, text)| text);
                return failed(e, format!("the MGS at {nids} refused to serve '{}': {why}", opt.fsname));
            }
            None => {
                let unknown = self.0.lmv.mgs().ok().and_then(|m| m.import.unknown_hosts());
                let unknown = unknown.map_or_else(String::new, |u| format!(" ({u})"));
                let text = format!(
                    "no answer from the MGS at {nids} (port {}) within {} s: {}{unknown}. Is the MGS running?",
                    opt.port,
                    MGS_PATIENCE.as_secs(),
                    Errno::EIO.text()
                );
                return failed(Errno::EIO, text);
            }
        }
        if self.0.lmv.targets_of(TargetKind::Mdt).is_empty() {
            let text = format!("file system '{}' has no metadata target yet. Is an MDT running?", opt.fsname);
            return failed(Errno::EIO, text);
        }
        Ok(())
    }

    fn no_mdt<T>(&self) -> Result<T, MountError> {
        let mdt = TargetId::mdt(self.0.meta.locate.mdt_of(Fid::ROOT));
        let said = self
            .0
            .lmv
            .known_target(mdt)
            .and_then(|t| t.import.refusal())
            .map_or(String::new(), |(_, text)| format!(" ({text})"));
        let (mdt, secs) = (mdt.label(&self.0.cx.opt.fsname), MDT_PATIENCE.as_secs());
        failed(Errno::EIO, format!("no answer from {mdt} within {secs} s{said}. Is its server running?"))
    }

    /// Walks from the file system's root to the directory that the mount shows.
    async fn find_root(&self, subdir: &[Vec<u8>], text: &str) -> Result<(), MountError> {
        let found = match self.0.cx.world.timeout(MDT_PATIENCE, self.walk(subdir)).await {
            Some(r) => r,
            None => return self.no_mdt(),
        };
        match found {
            Ok(fid) => {
                let set = self.0.root.set(fid);
                assert!(set.is_ok(), "a mount is brought up once");
                Ok(())
            }
            Err(e) if subdir.is_empty() => {
                failed(e, format!("the root of '{}' cannot be had: {e}", self.0.cx.opt.fsname))
            }
            Err(e) => failed(e, format!("subdirectory '{text}' of '{}': {}", self.0.cx.opt.fsname, e.text())),
        }
    }

    async fn walk(&self, path: &[Vec<u8>]) -> R<Fid> {
        let root = self
            .0
            .lmv
            .mdc_of(Fid::ROOT)
            .await?
            .target
            .call(self.0.cx.own(), Getattr { fid: Fid::ROOT })
            .await?;
        let mut at = root.attr;
        for name in path {
            let msg = Lookup { parent: at.fid, name: name.clone(), data: 0 };
            let r = self.0.lmv.mdc_of(at.fid).await?.target.call(self.0.cx.own(), msg).await?;
            at = r.entry.ok_or(Errno::ENOENT)?.attr;
            if at.kind != FileType::Directory {
                return Err(Errno::ENOTDIR);
            }
        }
        Ok(at.fid)
    }
}

/// The components of a subdirectory to mount.
fn split_path(path: &str) -> Result<Vec<Vec<u8>>, MountError> {
    let parts: Vec<Vec<u8>> =
        path.split('/').filter(|c| !c.is_empty() && *c != ".").map(|c| c.as_bytes().to_vec()).collect();
    if parts.iter().any(|c| c == b"..") {
        return failed(Errno::EINVAL, format!("subdirectory '{path}' must not contain '..'"));
    }
    if path.len() > PATH_MAX_BYTES || parts.iter().any(|c| c.len() > NAME_MAX_BYTES) {
        return failed(Errno::ENAMETOOLONG, format!("subdirectory '{path}': {}", Errno::ENAMETOOLONG.text()));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdirectories_are_split_and_checked() {
        assert!(split_path("").unwrap().is_empty());
        assert_eq!(split_path("/a//b/./c/").unwrap(), [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
        assert_eq!(split_path("a/../b").unwrap_err().errno, Errno::EINVAL);
        assert_eq!(split_path(&"x".repeat(256)).unwrap_err().errno, Errno::ENAMETOOLONG);
    }
}
