//! Which engine moves the targets of this host, and where it has them: for the console.

use super::{etcd, pacemaker};
use serde_json::{Value, json};
use std::path::Path;
use world::sys::{files, process};

/// Pacemaker's configuration.
const CIB: &str = "/var/lib/pacemaker/cib/cib.xml";

/// The value of an option in a command line: `--etcd URL` or `--etcd=URL`.
fn option<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    let at = args.iter().position(|a| a.split('=').next() == Some(name))?;
    args[at].split_once('=').map(|(_, v)| v).or_else(|| args.get(at + 1).map(String::as_str))
}

/// The etcd of the controller that runs on this host.
fn controllers_etcd() -> Option<String> {
    process::pids().into_iter().find_map(|pid| {
        let args = process::arguments(pid);
        let is_one = args.windows(2).any(|w| w[0] == "ha" && w[1] == "controller");
        is_one.then(|| option(&args, "--etcd").map(str::to_string)).flatten()
    })
}

/// `engine`: `etcd`, `Pacemaker` or nothing; `places`: what `nacre ha status --json` or `nacre ha where
/// --json` says. The error is a sentence.
pub fn places() -> Result<Value, String> {
    if let Some(url) = controllers_etcd() {
        let url = crate::etcd_url::parse(&url).map_err(|e| e.to_string())?;
        return Ok(json!({"engine": "etcd", "places": etcd::seen(&url)?}));
    }
    if files::stat(Path::new(CIB), true).is_ok() {
        return Ok(json!({"engine": "Pacemaker", "places": {"targets": pacemaker::shown_places()?}}));
    }
    Ok(json!({"engine": null, "places": {"targets": []}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_running_command_are_found_in_both_forms() {
        let of = |line: &str| -> Option<String> {
            let args: Vec<String> = line.split(' ').map(str::to_string).collect();
            option(&args, "--etcd").map(str::to_string)
        };
        assert_eq!(of("nacre ha controller --etcd http://a:1 --host x").as_deref(), Some("http://a:1"));
        assert_eq!(of("nacre ha controller --etcd=http://a:1").as_deref(), Some("http://a:1"));
        assert_eq!(of("nacre ha controller"), None);
    }
}
