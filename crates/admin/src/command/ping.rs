//! `lctl ping` and `which_nid`: whether a server answers at a NID.

use crate::command::list_nids::local_nids;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, value};
use crate::hosts;
use crate::local::show;
use crate::say;
use model::{Errno, Nid, limits};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

pub const USAGE: &str = "[--port PORT] NID [TIMEOUT_SECONDS]";
pub const USAGE_WHICH: &str = "[--port PORT] NID...";

/// How long `which_nid` waits for answers.
const WHICH_PATIENCE: Duration = Duration::from_secs(2);

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

/// Hosts by address or by name.
fn nids(texts: &[String]) -> Result<Vec<Nid>, Failure> {
    let (world, _runtime) = world::real::start(1).map_err(|e| Failure::io("cannot start", "runtime", e))?;
    let all: Vec<Vec<Nid>> = texts.iter().map(|t| hosts::typed(&world, t)).collect::<Result<_, _>>()?;
    Ok(all.concat())
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
    let port = port(&p)?;
    let text = show(target);
    // A name may have several addresses.
    let all = nids(std::slice::from_ref(&text))?;
    match all.iter().find(|n| answers(**n, port, Duration::from_secs_f64(seconds)).is_ok()) {
        Some(n) => {
            say!("12345-{n}");
            Ok(FirstError::default())
        }
        None => {
            let all: Vec<String> = all.iter().map(Nid::to_string).collect();
            let text = format!("failed to ping {}: {}", all.join(", "), Errno::EIO.text());
            Err(Failure::Op { text, errno: Errno::EIO })
        }
    }
}

/// The first of the NIDs at which a server answers; this host's own come first. All are asked at once.
pub fn run_which(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[value('\0', "port")])?;
    if p.operands.is_empty() {
        return Err(Failure::usage("no NID given"));
    }
    let port = port(&p)?;
    let local = local_nids()?;
    let mut all = nids(&p.operands.iter().map(|a| show(a)).collect::<Vec<_>>())?;
    all.sort_by_key(|n| !local.contains(&n.to_string()));
    let answered = answering(&all, port, WHICH_PATIENCE).map_err(|e| {
        let errno = Errno::from(e);
        Failure::Op { text: format!("cannot ask: {}", errno.text()), errno }
    })?;
    match all.iter().zip(answered).find(|(_, yes)| *yes) {
        Some((n, _)) => {
            say!("{n}");
            Ok(FirstError::default())
        }
        None => {
            let list: Vec<String> = all.iter().map(Nid::to_string).collect();
            let text = format!("no server answers at {} (port {port})", list.join(", "));
            Err(Failure::Op { text, errno: Errno::EHOSTUNREACH })
        }
    }
}

/// At which of these a server answers.
fn answering(all: &[Nid], port: u16, patience: Duration) -> std::io::Result<Vec<bool>> {
    let (world, runtime) = world::real::start(1)?;
    let asked = world.clone();
    let ask = all.iter().map(|n| -> world::BoxFuture<bool> {
        let (world, to) = (asked.clone(), SocketAddr::new(n.addr, port));
        Box::pin(async move {
            let answer = world.timeout(patience, rpc::probe(&world, None, to, "lctl which_nid")).await;
            answer.is_some_and(|r| r.is_ok())
        })
    });
    Ok(runtime.block_on(world::future::join_all(ask.collect())))
}

fn port(p: &getopt::Parsed) -> Result<u16, Failure> {
    match p.value("port") {
        None => Ok(limits::PORT),
        Some(v) => v.parse().map_err(|_| Failure::usage(format!("bad port '{v}'"))),
    }
}
