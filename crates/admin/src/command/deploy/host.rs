//! How commands reach the hosts.

use super::file::{Cluster, Host, Transport};
use crate::shell::quoted;
use std::time::Duration;
use world::sys::process::{self, Finished};

/// Words before the destination. One connection of a host serves all its commands, and a minute more.
const SSH: [&str; 11] = [
    "ssh",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ControlMaster=auto",
    "-o",
    "ControlPersist=60",
    "-o",
    "ServerAliveInterval=15",
];

/// Runs lines of a shell on hosts: really, or for a test.
pub trait Hosts: Sync {
    /// Runs one to its end. The error says why it could not be run.
    ///
    /// # Errors
    /// The host cannot be reached, or the line took longer than `patience`.
    fn run(&self, host: &Host, line: &str, patience: Duration) -> Result<Finished, String>;
}

/// The real ones.
pub struct Real;

fn words(host: &Host, line: &str, control: &str) -> Vec<String> {
    let shell = ["sh", "-c", line].map(String::from);
    match &host.transport {
        Transport::Local => shell.to_vec(),
        Transport::Exec(prefix) => [prefix.as_slice(), &shell].concat(),
        Transport::Ssh(to) => {
            // There a shell of the user's takes the words apart once more.
            let line = format!("sh -c {}", quoted(line));
            let master = ["-o".to_string(), format!("ControlPath={control}/ssh-%C")];
            [SSH.map(String::from).as_slice(), &master, &[to.clone(), line]].concat()
        }
    }
}

/// The line as an operator would type it on this host.
pub fn typed(host: &Host, line: &str) -> String {
    match &host.transport {
        Transport::Local => line.to_string(),
        Transport::Exec(prefix) => format!("{} sh -c {}", prefix.join(" "), quoted(line)),
        Transport::Ssh(to) => format!("ssh {to} {}", quoted(line)),
    }
}

impl Hosts for Real {
    fn run(&self, host: &Host, line: &str, patience: Duration) -> Result<Finished, String> {
        let dir = world::sys::control::run_dir();
        if matches!(host.transport, Transport::Ssh(_)) {
            // Without it each command has a connection of its own.
            let _ = world::sys::files::create_dir_all(&dir);
        }
        let all = words(host, line, &dir.display().to_string());
        let rest: Vec<&str> = all[1..].iter().map(String::as_str).collect();
        process::run_within(&all[0], &rest, patience).map_err(|e| format!("cannot run '{}': {e}", all[0]))
    }
}

/// Runs a line and wants it to succeed; the error has the last words.
///
/// # Errors
/// What it said, or why it could not be run.
pub fn ok(hosts: &dyn Hosts, host: &Host, line: &str, patience: Duration) -> Result<String, String> {
    let done = hosts.run(host, line, patience)?;
    match done.status {
        Some(0) => Ok(done.out),
        _ if done.err.starts_with("nacre: unknown command") => {
            Err("its Nacre is older, and has no 'nacre deploy': install this version there".into())
        }
        Some(127) => Err(format!("{}: is Nacre installed there?", done.last_words())),
        _ => Err(done.last_words().to_string()),
    }
}

/// The line that asks a host for what the file is about.
pub fn facts_line(c: &Cluster, host: &Host) -> String {
    let mut words: Vec<String> = ["nacre", "deploy", "facts", "--json"].map(String::from).to_vec();
    for t in c.may_serve(&host.name) {
        words.push(format!("--dir={}", t.dir));
        words.extend(t.disk.as_ref().map(|d| format!("--device={}", d.device)));
    }
    words.extend(super::service::files_of(c, host).into_iter().map(|f| format!("--file={}", f.path)));
    words.extend(super::checks::to_reach(c, host).into_iter().map(|a| format!("--reach={a}")));
    words.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(transport: Transport) -> Host {
        let (nids, roles, line) = (vec!["10.0.0.1@tcp".into()], Vec::new(), 1);
        Host { name: "a".into(), nids, roles, transport, domain: None, location: None, line }
    }

    #[test]
    fn each_way_has_the_line_read_by_one_shell() {
        let line = "echo 'a b' *";
        assert_eq!(words(&host(Transport::Local), line, "/r"), ["sh", "-c", line]);
        let exec = host(Transport::Exec(vec!["ip".into(), "netns".into()]));
        assert_eq!(words(&exec, line, "/r"), ["ip", "netns", "sh", "-c", line]);
        let ssh = words(&host(Transport::Ssh("root@a".into())), line, "/r");
        assert_eq!(ssh[ssh.len() - 2..], ["root@a", r"sh -c 'echo '\''a b'\'' *'"]);
        assert!(ssh.contains(&"ControlPath=/r/ssh-%C".to_string()));
        assert_eq!(typed(&exec, "ls /x"), "ip netns sh -c 'ls /x'");
    }
}
