//! `lctl ping` and `which_nid`: whether a server answers at a NID.

use crate::command::list_nids::local_nids;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, value};
use crate::local::show;
use crate::say;
use model::{Errno, Nid, limits};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

pub const USAGE: &str = "[--port PORT] NID [TIMEOUT_SECONDS]";
pub const USAGE_WHICH: &str = "NID...";

/// Whether a server answers there within `patience`.
///
/// # Errors
/// `TimedOut` if it says nothing; what the network says otherwise.
pub fn answers(n: Nid, port: u16, patience: Duration) -> std::io::Result<()> {
    let (world, runtime) = world::real::start(1)?;
    let asked = world.clone();
    let answer = runtime.block_on(async move {
        asked.timeout(patience, rpc::probe(&asked, None, SocketAddr::new(n.addr, port), "lctl ping")).await
    });
    answer.unwrap_or_else(|| Err(std::io::ErrorKind::TimedOut.into()))
}

fn nid(text: &str) -> Result<Nid, Failure> {
    text.parse()
        .map_err(|e: model::nid::NidParseError| Failure::Op { text: format!("{e}"), errno: Errno::EINVAL })
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[value('\0', "port")])?;
    let Some(target) = p.operands.first() else { return Err(Failure::usage("no NID given")) };
    let seconds = match p.operands.get(1) {
        None => 2.0,
        Some(t) => show(t)
            .parse::<f64>()
            .ok()
            .filter(|s| s.is_finite() && *s > 0.0 && *s < 1e6)
            .ok_or_else(|| Failure::usage(format!("bad time-out '{}'", show(t))))?,
    };
    let port = match p.value("port") {
        None => limits::PORT,
        Some(v) => v.parse().map_err(|_| Failure::usage(format!("bad port '{v}'")))?,
    };
    let text = show(target);
    let n = nid(&text)?;
    match answers(n, port, Duration::from_secs_f64(seconds)) {
        Ok(()) => {
            say!("12345-{n}");
            Ok(FirstError::default())
        }
        Err(_) => {
            let text = format!("failed to ping {n}: {}", Errno::EIO.text());
            Err(Failure::Op { text, errno: Errno::EIO })
        }
    }
}

/// The first of the NIDs that this host could reach: one on the same kind of network.
pub fn run_which(args: &[OsString]) -> Result<FirstError, Failure> {
    if args.is_empty() {
        return Err(Failure::usage("no NID given"));
    }
    let local = local_nids()?;
    let all: Vec<Nid> = args.iter().map(|a| nid(&show(a))).collect::<Result<_, _>>()?;
    let best = all.iter().find(|n| local.contains(&n.to_string())).or_else(|| all.first());
    if let Some(n) = best {
        say!("{n}");
    }
    Ok(FirstError::default())
}
