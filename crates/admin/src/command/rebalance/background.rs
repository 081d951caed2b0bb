//! What the metadata servers do of it by themselves: `--background`, `--stop`, `--status`.

use super::LOOK_AGAIN;
use crate::command::osts::targets;
use crate::command::set_param::set_permanent;
use crate::failure::Failure;
use crate::interrupt;
use crate::local::{self, LocalMount};
use crate::size::human;
use crate::{output, say};
use client::control::Target;
use model::{Errno, TargetKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use world::sys::{self, Deadline};

/// How long metadata servers may take to hear of a permanent parameter.
const CONFIG_PATIENCE: Duration = Duration::from_secs(30);

/// What a metadata target says of it.
struct Status {
    target: String,
    /// The lines of `mdt.*.rebalance`.
    values: BTreeMap<String, String>,
}

impl Status {
    fn number(&self, name: &str) -> u64 {
        self.values.get(name).and_then(|v| v.parse().ok()).unwrap_or(0)
    }

    fn word(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    fn json(&self) -> Value {
        let mut out = json!({"target": self.target, "state": self.word("state"),
            "spread": self.word("spread").parse::<f64>().unwrap_or(0.0)});
        for name in self.values.keys().filter(|n| !["state", "spread"].contains(&n.as_str())) {
            out[name] = json!(self.number(name));
        }
        out
    }

    fn show(&self) {
        let age = sys::wall_seconds().saturating_sub_unsigned(self.number("since")).max(0);
        let state = match self.word("state") {
            "off" => "does nothing by itself (nacre rebalance --background POINTS)",
            "even" => "finds the OSTs even enough",
            "moving" => "moves files",
            "settling" => "waits until what was moved is removed where it was",
            "stuck" => "finds no file that may go and would make the OSTs more even",
            other => other,
        };
        say!("{}: {state}, for {age} s", self.target);
        let (spread, threshold) = (self.word("spread"), self.number("threshold"));
        if threshold > 0 {
            say!("  the fullest OST is {spread}% above the emptiest; from {threshold}% on files are moved");
        }
        say!(
            "  since it started: {} files, {} moved; {} were in use, {} are bound to their OSTs, {} failed",
            self.number("files_moved"),
            human(self.number("bytes_moved"), 1024),
            self.number("files_in_use"),
            self.number("files_bound"),
            self.number("files_failed")
        );
    }
}

fn of_target(m: &LocalMount, t: &Target) -> Result<Status, Failure> {
    let values = local::target_params(&m.dir, t.target, "mdt.*.rebalance")?;
    let Some((_, text)) = values.first() else {
        let why = "its server does not move files by itself: it is older than this program";
        return Err(Failure::explained("cannot ask", &t.uuid, Errno::EOPNOTSUPP, why));
    };
    let pairs = text.lines().filter_map(|l| l.split_once(": "));
    let values = pairs.map(|(name, v)| (name.to_string(), v.to_string())).collect();
    Ok(Status { target: t.uuid.clone(), values })
}

fn all(m: &LocalMount) -> Result<Vec<Status>, Failure> {
    let mdts = targets(&m.dir)?.into_iter().filter(|t| t.target.kind == TargetKind::Mdt);
    mdts.map(|t| of_target(m, &t)).collect()
}

/// What each metadata target does.
pub fn status(m: &LocalMount, as_json: bool) -> Result<(), Failure> {
    let all = all(m)?;
    if as_json {
        output::json(&Value::Array(all.iter().map(Status::json).collect()));
    } else {
        all.iter().for_each(Status::show);
    }
    Ok(())
}

/// From this difference on they move files by themselves, for good; 0: never. Waits until they know. The exit
/// status that a signal asks for, if one came.
pub fn set(m: &LocalMount, percent: u64) -> Result<Option<i32>, Failure> {
    let name = format!("mdt.{}-MDT*.rebalance_threshold", m.name.fsname);
    set_permanent(&name, &percent.to_string(), false).map_err(|f| match f {
        Failure::Op { errno: Errno::ENODEV, .. } => {
            let why = format!("say on the node that has the MGS: lctl set_param -P {name}={percent}");
            Failure::explained("cannot set", &name, Errno::ENODEV, &why)
        }
        f => f,
    })?;
    let (known, signalled) = interrupt::guarded(
        || {},
        |interrupt| {
            let end = Deadline::after(CONFIG_PATIENCE);
            loop {
                if all(m)?.iter().all(|s| s.number("threshold") == percent) {
                    return Ok(());
                }
                if interrupt.stopped() || end.passed() {
                    let why = "a metadata server does not know it yet; it will";
                    return Err(Failure::explained("cannot wait for", &name, Errno::ETIMEDOUT, why));
                }
                sys::sleep(LOOK_AGAIN);
            }
        },
    );
    if signalled.is_none() {
        known?;
        match percent {
            0 => say!("{}: files are moved only when somebody asks for it", m.name.fsname),
            n => say!("{}: files are moved when OSTs differ by more than {n}%", m.name.fsname),
        }
    }
    Ok(signalled)
}
