//! The console that `nacre up --dashboard` starts beside the servers, and what `nacre status` says of any.

use super::cluster::Cluster;
use super::{Result, UpError};
use crate::log;
use dashboard::{LISTEN_DEFAULT, Role, Tokens};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use world::World;
use world::sys::process::{self, SIGKILL, SIGTERM};
use world::sys::{Deadline, files, http};

/// Its folder below that of `nacre up`.
pub const OWN_NAME: &str = "dashboard";
/// The token that `nacre up` makes, by its name.
const TOKEN_NAME: &str = "up";
const START_PATIENCE: Duration = Duration::from_secs(20);
const END_PATIENCE: Duration = Duration::from_secs(10);

fn folder(c: &Cluster) -> PathBuf {
    c.dir.join(OWN_NAME)
}

/// Where the token of `nacre up` is kept, for root alone.
pub fn token_file(c: &Cluster) -> PathBuf {
    folder(c).join("operator.token")
}

fn arguments(c: &Cluster, at: SocketAddr) -> Vec<OsString> {
    let folder = folder(c).into_os_string();
    vec![OWN_NAME.into(), "--listen".into(), at.to_string().into(), "--state".into(), folder]
}

/// Its process, and whether it listens where it is to.
fn find(c: &Cluster) -> Option<(u32, bool)> {
    let folder = folder(c).display().to_string();
    let at = c.dashboard_at().map(|a| a.to_string());
    process::pids().into_iter().find_map(|pid| {
        let args = process::arguments(pid);
        let has = |option: &str, v: &str| args.windows(2).any(|w| w[0] == option && w[1] == v);
        let is_it = args.get(1).is_some_and(|a| a == OWN_NAME) && has("--state", &folder);
        is_it.then(|| (pid, at.as_ref().is_some_and(|a| has("--listen", a))))
    })
}

/// So long `nacre status` waits for a console.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

/// A console, as `nacre status` shows it.
pub struct Seen {
    /// `None`: `nacre up` was told to have one, and it is dead.
    pub pid: Option<u32>,
    pub at: SocketAddr,
    pub is_reachable: bool,
}

impl Seen {
    fn of(pid: Option<u32>, at: SocketAddr) -> Seen {
        let seen = Seen { pid, at, is_reachable: pid.is_some() && answers(at) };
        assert!(seen.pid.is_some() || !seen.is_reachable, "who is dead answers nobody");
        seen
    }

    pub fn word(&self) -> &'static str {
        match (self.pid, self.is_reachable) {
            (None, _) => "dead",
            (Some(_), true) => "up",
            (Some(_), false) => "waiting",
        }
    }
}

/// Whether it says within [`ANSWER_PATIENCE`] that it is there.
fn answers(at: SocketAddr) -> bool {
    let host = at.ip().to_string();
    let a = http::Ask {
        method: "GET",
        host: &host,
        port: at.port(),
        path: "/health",
        content_type: "text/plain",
        body: &[],
    };
    http::ask(&a, ANSWER_PATIENCE).is_ok_and(|a| a.status == 200)
}

/// Where a process with these arguments is the console; `None`: it is none.
fn listens_at(args: &[String]) -> Option<SocketAddr> {
    let is_it = args.get(1).is_some_and(|a| a == OWN_NAME) && args.get(2).is_none_or(|a| a != "token");
    let after = |a: &[String]| (a[0] == "--listen").then(|| a[1].clone());
    let apart = args.windows(2).find_map(after);
    let joined = || args.iter().find_map(|a| Some(a.strip_prefix("--listen=")?.to_string()));
    let at = apart.or_else(joined).unwrap_or_else(|| LISTEN_DEFAULT.into());
    if is_it { at.parse().ok() } else { None }
}

/// All consoles of this host.
pub fn of_host() -> Vec<Seen> {
    let ours = |pid: &u32| process::name(*pid) == "nacre" && process::alive(*pid);
    let pids = process::pids().into_iter().filter(ours);
    pids.filter_map(|pid| Some(Seen::of(Some(pid), listens_at(&process::arguments(pid))?))).collect()
}

/// That of a file system, if it is to have one.
pub fn of_cluster(c: &Cluster) -> Option<Seen> {
    let pid = find(c).filter(|(_, in_place)| *in_place).map(|(pid, _)| pid);
    c.dashboard_at().map(|at| Seen::of(pid, at))
}

/// A token for whoever started the file system, made once.
fn ensure_token(world: &World, c: &Cluster) -> Result<()> {
    let (tokens, file) = (Tokens::of(&folder(c)), token_file(c));
    let all = tokens.all().map_err(UpError)?;
    if files::stat(&file, true).is_ok() && all.iter().any(|t| t.name == TOKEN_NAME) {
        return Ok(());
    }
    if all.iter().any(|t| t.name == TOKEN_NAME) {
        tokens.remove(TOKEN_NAME).map_err(UpError)?;
    }
    let (key, now) = (world.random_key(), world::sys::wall_seconds());
    let secret = tokens.add(TOKEN_NAME, Role::Operator, &key, now).map_err(UpError)?;
    files::replace_private(&file, format!("{secret}\n").as_bytes())
        .map_err(|e| UpError::io("cannot write", &file, &e))
}

/// It runs where it is to, or does not run if it is not wanted.
pub fn ensure(world: &World, c: &Cluster, exe: &Path) -> Result<()> {
    let found = find(c);
    let Some(at) = c.dashboard_at() else { return end(c) };
    if found.is_some_and(|(_, in_place)| in_place) {
        return Ok(());
    }
    end(c)?;
    ensure_token(world, c)?;
    let log = c.log_dir().join("dashboard.log");
    let args = arguments(c, at);
    let d = process::Daemon { exe, arg0: "nacre", args: &args, env: &[], log: &log };
    let mut child = process::spawn_detached(&d).map_err(|e| UpError::io("cannot start", exe, &e))?;
    let deadline = Deadline::after(START_PATIENCE);
    loop {
        if let Ok(Some(how)) = child.ended() {
            let said = log::last_lines(&log);
            return Err(UpError::new(format!(
                "the console ended with {how}. The last lines of {}:{said}",
                log.display()
            )));
        }
        // Who listens there has the address.
        if world::sys::can_listen(at).is_err() {
            return Ok(());
        }
        if deadline.passed() {
            return Err(UpError::new(format!("the console does not listen at {at}: see {}", log.display())));
        }
        world::sys::sleep(Duration::from_millis(50));
    }
}

/// Ends it, if it runs.
pub fn end(c: &Cluster) -> Result<()> {
    let Some((pid, _)) = find(c) else { return Ok(()) };
    for signal in [SIGTERM, SIGKILL] {
        let _ = process::kill(pid, signal);
        let gone = || (!process::alive(pid)).then_some(());
        if Deadline::after(END_PATIENCE).wait_for(gone).is_some() {
            return Ok(());
        }
    }
    Err(UpError::new(format!("the console (pid {pid}) cannot be killed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_is_told_by_its_command_line() {
        let at = |line: &str| {
            let args: Vec<String> = line.split(' ').map(String::from).collect();
            listens_at(&args).map(|a| a.to_string())
        };
        assert_eq!(at("nacre dashboard").as_deref(), Some(LISTEN_DEFAULT));
        let other = Some("127.0.0.5:80");
        assert_eq!(at("/usr/bin/nacre dashboard --listen 127.0.0.5:80 --state /x").as_deref(), other);
        assert_eq!(at("nacre dashboard --state /x --listen=127.0.0.5:80").as_deref(), other);
        for none in
            ["nacre dashboard token list", "nacre up --dashboard", "nacre", "nacre dashboard --listen x"]
        {
            assert_eq!(at(none), None, "{none}");
        }
    }
}
