//! `nacre maintenance`: users of a file system are kept from changing it, or from using it at all, and are
//! told why (decision 0079). Ordered on the MGS node, as configuration.

use super::config::{mounts, shown};
use super::set_param::set_permanent;
use super::{changelog::when, with_page};
use crate::failure::Failure;
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::local::{self, Daemon, DaemonReply, DaemonRequest};
use crate::{output, say};
use client::control::{Reply, Request};
use mgs::mounts::{Mounts, ShownMount, Standing};
use mgs::restore::Shown;
use model::Errno;
use model::maintenance::{Maintenance, Mode, REASON_MAX_BYTES, reason_is_valid};
use model::squash::NidRanges;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use world::sys;

const USAGE: &str = "\
usage: nacre maintenance on --reason TEXT [--read-only|--closed] [--except NID]... [--fsname FSNAME]
       nacre maintenance off [--fsname FSNAME]
       nacre maintenance status [--json]

Users of a file system are kept from changing it, or from using it, and are
told why. 'on' and 'off' are run on the node that has the MGS; all mounts and
servers go by it within a second, and after a restart as well. 'status' tells
on that node which mounts still change something, as these say; on other nodes
it tells of what is mounted there.

      --reason TEXT    what who waits is told
      --read-only      changes are refused with EROFS (this is what 'on' means)
      --closed         operations wait until 'off'; they can be interrupted, and
                       on mounts with 'soft' they fail in time
      --except NID     clients that are left alone: 10.0.0.[1-5]@tcp; may be
                       said several times
      --fsname FSNAME  which, if the MGS has several
      --json           one JSON document

exit status: 0, or the errno of the failure, 4 wrong usage
";

const FSNAME: Opt = value('\0', "fsname");
const ON: &[Opt] =
    &[value('\0', "reason"), flag('\0', "read-only"), flag('\0', "closed"), value('\0', "except"), FSNAME];

/// So many mounts are named in a text.
const NAMED_MAX: usize = 20;

/// The subcommands, and the options that each takes.
const SUBCOMMANDS: &[(&str, &[Opt])] = &[("on", ON), ("off", &[FSNAME]), ("status", &[flag('\0', "json")])];

/// Where somebody's maintenance stands.
struct Stands {
    fsname: String,
    /// `None`: the MGS's, for all.
    mount: Option<PathBuf>,
    ordered: Maintenance,
    /// What this mount does about it.
    held: Mode,
    /// Whether it changes nothing any more; `None`: of all, or of a mount that does not say.
    quiet: Option<bool>,
    /// What keeps it from being quiet; empty: nothing, or it does not say.
    waits: String,
    /// So often it could not write back what it kept.
    lost: u64,
    /// The MGS's: all mounts; `None`: it does not say.
    mounts: Option<Mounts>,
}

/// The file system that is meant.
fn chosen(p: &Parsed, s: &Shown) -> Result<String, Failure> {
    let names: Vec<&str> = s.file_systems.iter().map(|f| f.fsname.as_str()).collect();
    match (p.value("fsname"), names.as_slice()) {
        (Some(wanted), _) if names.contains(&wanted) => Ok(wanted.to_string()),
        (Some(wanted), _) => {
            let why =
                format!("the MGS has {}", if names.is_empty() { "none".into() } else { names.join(", ") });
            Err(Failure::explained("no such file system", wanted, Errno::ENOENT, &why))
        }
        (None, [only]) => Ok((*only).to_string()),
        (None, []) => {
            let why = "no target has registered yet";
            Err(Failure::explained("cannot do", "maintenance", Errno::ENOENT, why))
        }
        (None, _) => Err(Failure::usage(format!("say which with --fsname: {}", names.join(", ")))),
    }
}

/// What is to be ordered, but for the file system.
fn wanted(p: &Parsed) -> Result<Maintenance, Failure> {
    let mode = match (p.has("read-only"), p.has("closed")) {
        (true, true) => return Err(Failure::usage("--read-only and --closed are two things: say one")),
        (_, true) => Mode::Closed,
        _ => Mode::ReadOnly,
    };
    let reason = p.value("reason").unwrap_or_default().trim().to_string();
    if reason.is_empty() {
        return Err(Failure::usage("say why with --reason TEXT: who waits is told"));
    }
    if !reason_is_valid(&reason) {
        return Err(Failure::usage(format!("a reason is one line of {REASON_MAX_BYTES} bytes at most")));
    }
    let mut except = Vec::new();
    for nid in p.values("except") {
        if nid.contains(char::is_whitespace) || NidRanges::parse(nid).is_err() {
            return Err(Failure::usage(format!("'{nid}' is no NID: 10.0.0.1@tcp, 10.0.0.[1-5]@tcp")));
        }
        except.push(nid);
    }
    let m = Maintenance {
        mode,
        since: sys::wall_seconds(),
        except: except.join(","),
        reason,
        ..Maintenance::default()
    };
    match NidRanges::parse(&m.except) {
        Ok(_) => Ok(m),
        Err(_) => Err(Failure::usage("too many NIDs: a range such as 10.0.0.[1-5]@tcp takes less")),
    }
}

fn order(p: &Parsed, m: Maintenance) -> Result<(), Failure> {
    let fsname = chosen(p, &shown("maintenance")?)?;
    let m = Maintenance { fsname: fsname.clone(), ..m };
    set_permanent(&Maintenance::param_name(&fsname), &m.text(), false)?;
    match m.mode {
        Mode::Off => say!("{fsname}: maintenance is off"),
        _ => say!("{fsname} is {}; {}", m.sentence(), m.consequence()),
    }
    Ok(())
}

/// What mounts of this host do.
fn of_mounts() -> Vec<Stands> {
    let one = |m: local::LocalMount| Some(Stands { fsname: m.name.fsname, ..told(&m.dir)? });
    local::mounts(false).into_iter().filter_map(one).collect()
}

/// The maintenance that a mount was told of, and what it does about it; `None`: it does not answer. A mount
/// of an older version knows of none.
pub fn of_mount(dir: &Path) -> Option<(Maintenance, Mode)> {
    told(dir).map(|s| (s.ordered, s.held))
}

/// As [`of_mount`], and how far it is.
fn told(dir: &Path) -> Option<Stands> {
    let pattern = "llite.*.maintenance*".to_string();
    let Ok(Reply::Params(params)) = local::ask(dir, &Request::GetParam { pattern }) else { return None };
    let of = |end: &str| params.iter().find(|(n, _)| n.ends_with(end)).map(|(_, v)| v.as_str());
    let ordered = of(".maintenance").and_then(|v| Maintenance::parse(v).ok()).unwrap_or_default();
    let held = of(".maintenance_held").and_then(|v| Maintenance::parse(v).ok()).unwrap_or_default().mode;
    Some(Stands {
        fsname: String::new(),
        mount: Some(dir.to_path_buf()),
        ordered,
        held,
        quiet: of(".maintenance_quiet").map(|v| v == "1"),
        waits: of(".maintenance_waits").unwrap_or_default().to_string(),
        lost: of(".maintenance_lost").and_then(|v| v.parse().ok()).unwrap_or(0),
        mounts: None,
    })
}

/// The maintenances that servers of this host were told of.
pub fn of_daemons() -> Vec<Maintenance> {
    let pattern = "*.*.maintenance".to_string();
    let answers = Daemon::ask_all(&Daemon::all(), &DaemonRequest::GetParam { pattern });
    let params = answers.into_iter().filter_map(|a| match a {
        Ok(DaemonReply::Params(p)) => Some(p),
        _ => None,
    });
    in_force(params.flatten().map(|(_, v)| v))
}

/// Those among these values that go on, each once.
pub fn in_force(values: impl Iterator<Item = String>) -> Vec<Maintenance> {
    let mut all: Vec<Maintenance> = Vec::new();
    for m in values.filter_map(|v| Maintenance::parse(&v).ok()) {
        if m.mode != Mode::Off && !all.contains(&m) {
            all.push(m);
        }
    }
    all
}

fn of_mgs(s: &Shown) -> Vec<Stands> {
    let params: Vec<(String, String)> = s.params.iter().map(|p| (p.name.clone(), p.value.clone())).collect();
    let one = |fsname: &String| {
        let ordered = Maintenance::of(&params, fsname);
        let mounts = if ordered.mode == Mode::Off { None } else { mounts(fsname) };
        let (held, waits) = (ordered.mode, String::new());
        Stands { fsname: fsname.clone(), mount: None, held, ordered, quiet: None, waits, lost: 0, mounts }
    };
    s.file_systems.iter().map(|f| one(&f.fsname)).collect()
}

fn lost(errors: u64) -> String {
    format!("errors of writing back: {errors}, what they lost is in llite.*.write_errors of the mount")
}

fn with(m: &Mounts, is: impl Fn(&Standing) -> bool) -> usize {
    m.mounts.iter().filter(|m| is(&m.standing)).count()
}

/// Whether it is to be named: it may change something, or lost something.
fn is_notable(m: &ShownMount) -> bool {
    m.lost > 0 || m.standing.may_change()
}

fn mounts_text(all: &Mounts) -> String {
    let quiet = with(all, |s| *s == Standing::Quiet);
    let left_alone = with(all, |s| *s == Standing::LeftAlone);
    let others = with(all, Standing::may_change);
    let mut s = format!("\n  mounts that the MGS knows: {quiet} quiet");
    if left_alone > 0 {
        s += &format!(", {left_alone} left alone");
    }
    if others > 0 {
        s += &format!(", {others} that may still change something");
    }
    let notable: Vec<&ShownMount> = all.mounts.iter().filter(|m| is_notable(m)).collect();
    for m in notable.iter().take(NAMED_MAX) {
        s += &format!("\n    {} ({}): {}", m.nid, m.name, standing_text(m));
    }
    if let Some(more) = notable.len().checked_sub(NAMED_MAX).filter(|n| *n > 0) {
        s += &format!("\n    and {more} more (--json names all)");
    }
    if all.missing > 0 {
        s += &format!("\n  {} nodes have not come back since the MGS was started", all.missing);
    }
    s
}

fn standing_text(m: &ShownMount) -> String {
    let mut s = match &m.standing {
        Standing::Quiet => "quiet".to_string(),
        Standing::LeftAlone => "left alone".to_string(),
        Standing::Waits(what) if what.is_empty() => "not quiet yet".to_string(),
        Standing::Waits(what) => what.clone(),
        Standing::Silent => "it has not said anything since the order".to_string(),
    };
    if !m.connected {
        s += "; it is not connected";
    }
    if m.lost > 0 {
        s += &format!("; {}", lost(m.lost));
    }
    s
}

fn mounts_json(all: &Mounts) -> Value {
    let one = |m: &ShownMount| {
        let (word, waits) = match &m.standing {
            Standing::Quiet => ("quiet", ""),
            Standing::LeftAlone => ("left_alone", ""),
            Standing::Waits(what) => ("waits", what.as_str()),
            Standing::Silent => ("silent", ""),
        };
        json!({"nid": m.nid, "name": m.name, "connected": m.connected, "state": word, "waits": waits, "lost": m.lost})
    };
    json!({"quiet": with(all, |s| *s == Standing::Quiet), "left_alone": with(all, |s| *s == Standing::LeftAlone),
           "others": with(all, Standing::may_change), "missing": all.missing,
           "all": all.mounts.iter().map(one).collect::<Vec<_>>()})
}

impl Stands {
    fn text(&self) -> String {
        let m = &self.ordered;
        let whose = self
            .mount
            .as_ref()
            .map_or(self.fsname.clone(), |d| format!("{} on {}", self.fsname, d.display()));
        if m.mode == Mode::Off {
            return format!("{whose}: no maintenance");
        }
        let mut s = format!("{whose}: {} since {}", m.sentence(), when(m.since));
        if !m.except.is_empty() {
            s += &format!("\n  left alone: {}", m.except);
        }
        if self.mount.is_some() && self.held == Mode::Off {
            s += "\n  this mount is left alone";
        } else {
            s += &format!("\n  {}", m.consequence());
        }
        if self.held != Mode::Off && self.quiet == Some(false) {
            s += "\n  what began before is not over yet: this mount may still change something";
            if !self.waits.is_empty() {
                s += &format!("\n  it waits: {}", self.waits);
            }
        }
        if self.lost > 0 {
            s += &format!("\n  {}", lost(self.lost));
        }
        self.mounts.iter().for_each(|m| s += &mounts_text(m));
        s
    }

    fn json(&self) -> Value {
        let m = &self.ordered;
        json!({"fsname": self.fsname, "mount": self.mount, "mode": m.mode.word(), "held": self.held.word(),
               "quiet": self.quiet, "waits": self.waits, "lost": self.lost,
               "mounts": self.mounts.as_ref().map(mounts_json), "since": (m.since > 0).then_some(m.since), "reason": m.reason, "except": m.except})
    }
}

fn status(p: &Parsed) -> Result<(), Failure> {
    let of_mgs = match shown("maintenance") {
        Ok(s) => of_mgs(&s),
        Err(_) => Vec::new(),
    };
    let all: Vec<Stands> = of_mgs.into_iter().chain(of_mounts()).collect();
    if all.is_empty() {
        let why = "neither the MGS nor a mount answers on this node";
        return Err(Failure::explained("cannot tell of", "maintenance", Errno::ENODEV, why));
    }
    if p.has("json") {
        output::json(&json!(all.iter().map(Stands::json).collect::<Vec<_>>()));
    } else {
        all.iter().for_each(|s| say!("{}", s.text()));
    }
    Ok(())
}

fn command(args: &[OsString]) -> Result<i32, Failure> {
    const ALL: &str = "nacre maintenance on|off|status";
    let Some((what, rest)) = args.split_first() else {
        return Err(Failure::usage(format!("say what: {ALL}")));
    };
    let what = what.to_string_lossy();
    let Some((name, options)) = SUBCOMMANDS.iter().find(|(n, _)| *n == what) else {
        return Err(Failure::usage(format!("'{what}' is none: {ALL}")));
    };
    let p = getopt::parse(rest, options)?;
    if let Some(word) = p.operands.first() {
        return Err(Failure::usage(format!(
            "'{}': 'nacre maintenance {name}' takes options only",
            local::show(word)
        )));
    }
    match *name {
        "on" => order(&p, wanted(&p)?)?,
        "off" => order(&p, Maintenance::default())?,
        _ => status(&p)?,
    }
    Ok(0)
}

/// The command: arguments behind `maintenance`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre maintenance", USAGE), args, Failure::exit_code, command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(args: &[&str]) -> String {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        match command(&args) {
            Err(f @ Failure::Usage(_)) => f.to_string(),
            other => panic!("{args:?}: {:?}", other.map_err(|f| f.to_string())),
        }
    }

    #[test]
    fn what_is_typed_wrongly_is_refused_with_what_to_do() {
        assert_eq!(refused(&[]), "say what: nacre maintenance on|off|status");
        assert_eq!(refused(&["stop"]), "'stop' is none: nacre maintenance on|off|status");
        assert_eq!(refused(&["on"]), "say why with --reason TEXT: who waits is told");
        let both = ["on", "--reason", "x", "--read-only", "--closed"];
        assert_eq!(refused(&both), "--read-only and --closed are two things: say one");
        let nid = ["on", "--reason", "x", "--except", "oss1"];
        assert_eq!(refused(&nid), "'oss1' is no NID: 10.0.0.1@tcp, 10.0.0.[1-5]@tcp");
        let lines = ["on", "--reason", "a\nb"];
        assert_eq!(refused(&lines), "a reason is one line of 1024 bytes at most");
        assert_eq!(refused(&["off", "now"]), "'now': 'nacre maintenance off' takes options only");
    }

    #[test]
    fn it_is_told_as_it_stands() {
        let ordered =
            Maintenance::parse("closed since=1764317000 except=10.0.0.1@tcp reason=a switch").unwrap();
        let s = Stands {
            fsname: "nacre".into(),
            mount: None,
            held: Mode::Closed,
            ordered,
            quiet: None,
            waits: String::new(),
            lost: 0,
            mounts: None,
        };
        assert_eq!(
            s.text(),
            "nacre: closed for maintenance: a switch since 2025.11.28 08:03:20\n  left alone: 10.0.0.1@tcp\n  \
             operations wait until it ends, and can be interrupted"
        );
        let mut s = Stands { mount: Some("/m".into()), quiet: Some(false), ..s };
        assert!(
            s.text()
                .ends_with("\n  what began before is not over yet: this mount may still change something")
        );
        assert_eq!(s.json()["quiet"], json!(false));
        (s.waits, s.lost) = ("writing back failed; it is tried again".into(), 2);
        let text = s.text();
        let mut last = text.lines().rev();
        assert_eq!(
            last.next(),
            Some("  errors of writing back: 2, what they lost is in llite.*.write_errors of the mount")
        );
        assert_eq!(last.next(), Some("  it waits: writing back failed; it is tried again"));
        assert_eq!((&s.json()["waits"], &s.json()["lost"]), (&json!(s.waits), &json!(2)));
        (s.quiet, s.waits, s.lost) = (Some(true), String::new(), 0);
        assert!(s.text().ends_with("until it ends, and can be interrupted"));
    }

    #[test]
    fn the_mgs_tells_which_mounts_are_not_quiet() {
        let mount = |n: u8, standing| ShownMount {
            nid: format!("10.0.0.{n}@tcp"),
            name: "nacre-client on h at /mnt".into(),
            connected: n != 4,
            standing,
            lost: u64::from(n == 2),
        };
        let waits = Standing::Waits("what began before is not over".into());
        let mounts = vec![
            mount(1, Standing::Quiet),
            mount(2, Standing::Quiet),
            mount(3, waits),
            mount(4, Standing::Silent),
        ];
        let mut all = Mounts { mounts, missing: 0 };
        assert_eq!(
            mounts_text(&all),
            "\n  mounts that the MGS knows: 2 quiet, 2 that may still change something\n    10.0.0.2@tcp \
             (nacre-client on h at /mnt): quiet; errors of writing back: 1, what they lost is in \
             llite.*.write_errors of the mount\n    10.0.0.3@tcp (nacre-client on h at /mnt): what began before is \
             not over\n    10.0.0.4@tcp (nacre-client on h at /mnt): it has not said anything since the order; it \
             is not connected"
        );
        let j = mounts_json(&all);
        assert_eq!(
            (&j["quiet"], &j["others"], &j["all"][2]["state"]),
            (&json!(2), &json!(2), &json!("waits"))
        );
        all.mounts = (0..30).map(|n| mount(n + 5, Standing::Silent)).collect();
        (all.mounts[0].standing, all.missing) = (Standing::LeftAlone, 3);
        let text = mounts_text(&all);
        assert!(
            text.starts_with("\n  mounts that the MGS knows: 0 quiet, 1 left alone, 29 that may"),
            "{text}"
        );
        let end =
            "\n    and 9 more (--json names all)\n  3 nodes have not come back since the MGS was started";
        assert!(text.ends_with(end), "{text}");
    }
}
