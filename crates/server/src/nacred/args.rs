//! nacred's command line, and the address it serves at.

use super::marks::Mark;
use super::nids::{Network, parse_networks};
use clap::Parser;
use model::{HostNid, limits};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;
use store::mmp::Times;

/// Whom a server lets in. Lustre's words (`accept` of its `lnet` module).
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accept {
    Secure,
    All,
}

/// `--networks`.
#[derive(Clone, Debug)]
pub struct Networks(pub Vec<Network>);

impl Networks {
    fn parse(line: &str) -> Result<Networks, String> {
        parse_networks(line).map(Networks)
    }
}

/// Serves targets that mkfs.nacre made.
#[derive(Parser, Debug, Clone)]
#[command(name = "nacred", version)]
pub struct Options {
    /// Address to serve at, for example 10.0.0.1@tcp or oss01; several, one on each network, with commas:
    /// 10.0.0.1@tcp,10.1.0.1@tcp1 [default: --servicenode of the targets, or the address of this host that
    /// leads to the MGS]
    #[arg(long, value_delimiter = ',')]
    pub nid: Vec<HostNid>,
    /// The same by interfaces, as in Lustre's `options lnet networks=`: "tcp0(eth0),tcp1(eth1)"
    #[arg(long, value_parser = Networks::parse, conflicts_with = "nid")]
    pub networks: Option<Networks>,
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
    /// Seconds for a target's folder to be there, with something in it: at boot its disk may be mounted later
    /// than this starts. Without that a folder that is missing is a mistake
    #[arg(long, default_value_t = 0, value_name = "SECONDS", overrides_with = "folder_patience", value_parser = clap::value_parser!(u32).range(..=86_400))]
    pub folder_patience: u32,
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
    /// Address and port at which it tells its metrics, in OpenMetrics and Prometheus's text (/metrics), and
    /// whether it is healthy (/health); whoever reaches it reads them. Without it, nowhere
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = metrics_address)]
    pub metrics: Option<SocketAddr>,
    /// A target's folder, and the mount point that stands for it: the target is served until somebody
    /// unmounts that. What mount.nacre uses
    #[arg(long, num_args = 2, value_names = ["FOLDER", "MOUNT_POINT"])]
    pub mounted: Vec<String>,
    /// Say on standard output, in one line, how starting went: for mount.nacre
    #[arg(long, hide = true)]
    pub report: bool,
    /// Folders of the targets
    #[arg(required_unless_present_any = ["mgs_store", "mounted"])]
    pub dirs: Vec<String>,
}

fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    model::metrics::address(text).map_err(|expected| format!("it is not {expected}"))
}

impl Options {
    /// The flag, as it is given.
    pub const ABORT_RECOV: &str = "--abort-recov";

    pub const MOUNTED: &str = "--mounted";
    const REPORT: &str = "--report";

    /// Folders and their mount points.
    pub fn marks(&self) -> Vec<Mark> {
        self.mounted.chunks_exact(2).map(|m| Mark::new(&m[0], &m[1])).collect()
    }

    /// The arguments of another start of the same process, with the targets that are mounted by now.
    pub fn again(args: &[OsString], marks: &[Mark]) -> Vec<OsString> {
        let (mut out, mut it) = (Vec::new(), args.iter());
        while let Some(a) = it.next() {
            if a == Options::MOUNTED {
                it.nth(1);
            } else if a != Options::ABORT_RECOV && a != Options::REPORT {
                // Clients are there, and waited for; that they were not to be was said of another start.
                out.push(a.clone());
            }
        }
        out.extend(marks.iter().flat_map(Mark::arguments));
        out
    }

    /// Of the heartbeats.
    pub fn mmp_times(&self) -> Times {
        let interval = Duration::from_millis(u64::from(self.mmp_interval));
        Times { interval, term: interval * 10 }
    }

    /// With whoever has a target.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.patience.into())
    }

    /// With a disk that is not mounted yet.
    pub fn folder_patience(&self) -> Duration {
        Duration::from_secs(self.folder_patience.into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_start_serves_what_is_mounted_then() {
        let words = |t: &str| t.split(' ').map(OsString::from).collect::<Vec<_>>();
        let args = words("--port 988 --report --mounted /a /mnt/a --abort-recov --mounted /b /mnt/b /c");
        let now = [Mark::new("/b", "/mnt/b"), Mark::new("/d", "/mnt/d")];
        assert_eq!(
            Options::again(&args, &now),
            words("--port 988 /c --mounted /b /mnt/b --mounted /d /mnt/d")
        );
        let o = Options::parse(&Options::again(&args, &now)).unwrap();
        assert_eq!((o.marks(), o.dirs), (now.to_vec(), vec!["/c".to_string()]));
    }
}
