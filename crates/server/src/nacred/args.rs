//! nacred's command line, and the address it serves at.

use super::ended::StartError;
use clap::Parser;
use model::{Nid, limits};
use std::ffi::OsString;
use std::time::Duration;
use store::format::Superblock;
use store::mmp::Times;
use world::sys;

/// Whom a server lets in. Lustre's words (`accept` of its `lnet` module).
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accept {
    Secure,
    All,
}

/// Serves targets that mkfs.nacre made.
#[derive(Parser, Debug, Clone)]
#[command(name = "nacred", version)]
pub struct Options {
    /// Address to serve at, for example 10.0.0.1@tcp [default: --servicenode of the targets, or the address
    /// of this host that leads to the MGS]
    #[arg(long)]
    pub nid: Option<Nid>,
    /// TCP port; all nodes of a file system use the same
    #[arg(long, default_value_t = limits::PORT)]
    pub port: u16,
    /// Milliseconds of silence after which clients ping; six times that, and they are evicted
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(50..=600_000))]
    pub ping_interval: u32,
    /// Milliseconds between two heartbeats in a target's folder; a server stops when none was written for
    /// five times that, and one on another host takes the target after ten times
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(50..=30_000))]
    pub mmp_interval: u32,
    /// Seconds for another server that has one of the targets to end; without that it is left alone, and this
    /// one does not start. For engines of failover, which had it fenced or will stop it
    #[arg(long, default_value_t = 0, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(..=3600))]
    pub patience: u32,
    /// Do not wait for clients that were known before the restart any longer than they may rely on their
    /// locks (two and a half ping intervals); those that are missing then are evicted
    #[arg(long)]
    pub abort_recov: bool,
    /// Be one of several MGSs over what is in an etcd, for example etcd://10.0.0.1,10.0.0.2,10.0.0.3/nacre;
    /// one is active, the others wait. Give the addresses of all of them to the targets (--mgsnode) and to
    /// mounts
    #[arg(long, value_name = "URL", value_parser = crate::etcd_url::parse)]
    pub mgs_store: Option<etcd::Url>,
    /// Seconds after which another MGS takes over from one that is not heard of; that one gives up after half
    /// of it
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(5..=600))]
    pub mgs_term: u32,
    /// Whom to let in: only ports below 1024, which ordinary users of a host cannot have, or all. All hosts
    /// that reach the port are trusted with everything then, and all their users
    #[arg(long, value_enum, default_value_t = Accept::Secure)]
    pub accept: Accept,
    /// Folders of the targets
    #[arg(required_unless_present = "mgs_store")]
    pub dirs: Vec<String>,
}

impl Options {
    /// The flag, as it is given.
    pub const ABORT_RECOV: &str = "--abort-recov";

    /// Of the heartbeats.
    pub fn mmp_times(&self) -> Times {
        let interval = Duration::from_millis(u64::from(self.mmp_interval));
        Times { interval, term: interval * 10 }
    }

    /// With whoever has a target.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.patience.into())
    }

    /// `Err` carries the exit status after help or an error was printed.
    pub fn parse(args: &[OsString]) -> Result<Options, i32> {
        let all = std::iter::once(OsString::from("nacred")).chain(args.iter().cloned());
        Options::try_parse_from(all).map_err(|e| {
            let _ = e.print();
            e.exit_code()
        })
    }
}

/// `--nid`, or the service NID of the targets that this host has, or its address towards the MGS, or its
/// first address.
pub fn choose_nid(o: &Options, labels: &[&Superblock]) -> Result<Nid, StartError> {
    if let Some(n) = o.nid {
        return Ok(n);
    }
    let here = sys::host_addresses()
        .map_err(|e| StartError::new(format!("cannot list this host's addresses: {e}")))?;
    let service = labels.iter().flat_map(|l| &l.service_nids);
    if let Some(n) = service.clone().find(|n| here.contains(&n.addr)) {
        return Ok(*n);
    }
    if let Some(n) = service.clone().next() {
        return Err(StartError::new(format!(
            "this host has none of the targets' service NIDs ({n} …): run it where they are, or give --nid"
        )));
    }
    let mgs = labels.iter().flat_map(|l| &l.mgs_nids).next();
    if let Some(m) = mgs
        && let Ok(addr) = sys::address_towards(m.addr)
    {
        return Ok(Nid { addr, net: m.net });
    }
    let first = here.iter().find(|a| !a.is_loopback()).or(here.first());
    first
        .map(|addr| Nid { addr: *addr, net: 0 })
        .ok_or_else(|| StartError::new("this host has no address: give --nid"))
}
