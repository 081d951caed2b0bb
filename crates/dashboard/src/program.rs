//! `nacre dashboard`: the command.

use crate::app::{Console, router};
use crate::connection::serve;
use crate::history::{History, sample};
use crate::listen::{LISTEN_DEFAULT, address};
use crate::source::{Host, Source};
use crate::token::{Role, Tokens};
use crate::value::moment;
use admin::command::with_page;
use admin::failure::Failure;
use admin::getopt::{self, Opt, Parsed, flag, value};
use admin::say;
use model::Errno;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use world::sys::files;
use world::sys::process::{self, SIGINT, SIGTERM};

const USAGE: &str = "\
usage: nacre dashboard [--listen ADDRESS:PORT] [--interval SECONDS]
                       [--state DIR]
       nacre dashboard token add NAME --role viewer|operator [--state DIR]
       nacre dashboard token list [--state DIR] [--json]
       nacre dashboard token remove NAME [--state DIR]

Shows the file systems of this host in a browser, with a JSON address for
everything. Run it beside the MGS, where a mount is: it asks the daemons and
mounts of this host, and through mounts the servers of others. Root's.

Whoever looks needs a token. 'token add' makes one and tells it once; its role
says what it may do: a viewer sees everything, an operator changes something.
Without certificates it listens at loopback addresses only; from elsewhere:
ssh -L 9170:127.0.0.1:9170 HOST

      --listen ADDRESS:PORT  where it is reached (127.0.0.1:9170)
      --interval SECONDS     between two samples of the curves (5)
      --role ROLE            of a token: viewer or operator
      --state DIR            tokens and audit (/var/lib/nacre/dashboard)
      --json                 one JSON document

exit status: 0, or the errno of the failure, 4 wrong usage
";

const STATE_DEFAULT: &str = "/var/lib/nacre/dashboard";
const INTERVAL_DEFAULT_S: u64 = 5;
const INTERVAL_MAX_S: u64 = 3600;

const OPTS: &[Opt] = &[
    value('\0', "listen"),
    value('\0', "interval"),
    value('\0', "role"),
    value('\0', "state"),
    flag('\0', "json"),
];

fn folder(p: &Parsed) -> PathBuf {
    PathBuf::from(p.value("state").unwrap_or(STATE_DEFAULT))
}

/// A sentence that has its object already.
fn failed(errno: Errno, text: impl Into<String>) -> Failure {
    Failure::Op { text: text.into(), errno }
}

fn add(p: &Parsed, name: &str) -> Result<(), Failure> {
    let role = p.value("role").ok_or_else(|| Failure::usage("--role is missing: viewer or operator"))?;
    let role = Role::parse(role)
        .ok_or_else(|| Failure::usage(format!("'{role}' is no role: viewer or operator")))?;
    let (world, runtime) = world::real::start(1).map_err(|e| Failure::io("cannot start", "threads", e))?;
    let key = world.random_key();
    runtime.shutdown();
    let now = world::sys::wall_seconds();
    let secret = Tokens::of(&folder(p)).add(name, role, &key, now).map_err(|e| failed(Errno::EINVAL, e))?;
    if p.has("json") {
        say!("{}", json!({"name": name, "role": role.word(), "token": secret}));
    } else {
        say!("{secret}");
    }
    Ok(())
}

fn list(p: &Parsed) -> Result<(), Failure> {
    let all = Tokens::of(&folder(p)).all().map_err(|e| failed(Errno::EINVAL, e))?;
    if p.has("json") {
        let row = |e: &crate::token::Entry| json!({"name": e.name, "role": e.role, "added": e.added});
        say!("{}", json!({"tokens": all.iter().map(row).collect::<Vec<_>>()}));
        return Ok(());
    }
    all.iter().for_each(|e| say!("{:<24} {:<9} {}", e.name, e.role.word(), moment(e.added)));
    Ok(())
}

/// `token …`.
fn token(args: &[OsString]) -> Result<i32, Failure> {
    let p = getopt::parse(args, OPTS)?;
    let words: Vec<String> = p.operands.iter().map(|o| o.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["add", name] => {
            p.only(&["role", "state", "json"], "nacre dashboard token add")?;
            add(&p, name)?;
        }
        ["list"] => {
            p.only(&["state", "json"], "nacre dashboard token list")?;
            list(&p)?;
        }
        ["remove", name] => {
            p.only(&["state"], "nacre dashboard token remove")?;
            Tokens::of(&folder(&p)).remove(name).map_err(|e| failed(Errno::ENOENT, e))?;
        }
        _ => {
            let what = "say what: nacre dashboard token add NAME --role ROLE | list | remove NAME";
            return Err(Failure::usage(what));
        }
    }
    Ok(0)
}

/// Serves until it is told to end.
fn run(at: SocketAddr, interval: Duration, folder: &Path, source: Host) -> Result<i32, Failure> {
    let shown = folder.display().to_string();
    files::create_private_dir(folder).map_err(|e| Failure::io("cannot make", &shown, e))?;
    let has_tokens = Tokens::of(folder).all().map_err(|e| failed(Errno::EINVAL, e))?;
    process::block_signals(&[SIGTERM, SIGINT]);
    let (world, runtime) = world::real::start(2).map_err(|e| Failure::io("cannot start", "threads", e))?;
    let listener = runtime
        .block_on(world.net.listen_streams(at))
        .map_err(|e| Failure::io("cannot listen at", &at.to_string(), e))?;
    let source: Arc<dyn Source> = Arc::new(source);
    let history = Arc::new(History::new(interval));
    let app = router(Arc::new(Console::new(&world, source.clone(), history.clone(), folder)));
    world.spawn("samples", sample(world.clone(), source, history));
    let w = world.clone();
    world.spawn("dashboard", async move {
        if let Err(e) = serve(w, listener, app).await {
            tracing::error!("dashboard: cannot take callers any more: {e}");
        }
    });
    say!("The console is at http://{at}/");
    if has_tokens.is_empty() {
        let state =
            if folder == Path::new(STATE_DEFAULT) { String::new() } else { format!(" --state {shown}") };
        say!("Nobody has a token yet: nacre dashboard token add NAME --role operator{state}");
    }
    admin::output::flush();
    while process::wait_signal(&[SIGTERM, SIGINT], Duration::from_secs(3600)).is_none() {}
    runtime.shutdown();
    Ok(0)
}

fn command(args: &[OsString], ha: fn() -> Result<Value, String>) -> Result<i32, Failure> {
    if args.first().is_some_and(|a| a == "token") {
        return token(&args[1..]);
    }
    let p = getopt::parse(args, OPTS)?;
    if let Some(o) = p.operands.first() {
        let o = o.to_string_lossy();
        return Err(Failure::usage(format!("'{o}' is no subcommand: there is 'token'")));
    }
    p.only(&["listen", "interval", "state"], "nacre dashboard")?;
    let at = address(p.value("listen").unwrap_or(LISTEN_DEFAULT)).map_err(|e| failed(Errno::EINVAL, e))?;
    let interval = p.number("interval", INTERVAL_MAX_S)?.unwrap_or(INTERVAL_DEFAULT_S);
    let interval = Duration::from_secs(interval);
    if world::sys::euid() != 0 {
        return Err(failed(Errno::EPERM, "daemons and mounts answer root only: run it as root"));
    }
    run(at, interval, &folder(&p), Host { ha })
}

/// The command: arguments behind `dashboard`. `ha`: what the cluster manager of this host says of its
/// targets. Returns the exit status.
pub fn main(args: &[OsString], ha: fn() -> Result<Value, String>) -> i32 {
    with_page(("nacre dashboard", USAGE), args, Failure::exit_code, |args| command(args, ha))
}
