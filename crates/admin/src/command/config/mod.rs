//! `nacre config`: what the MGS keeps, as data with versions. Looked at from any host, changed on the MGS
//! node.

mod remote;
mod show;

use super::with_page;
use crate::failure::Failure;
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::local::{self, Daemon, DaemonReply, DaemonRequest};
use crate::output;
use mgs::mounts::Mounts;
use mgs::restore::{ConfigAnswer, ConfigOrder, DOCUMENT_FORMAT, Document, Shown};
use model::nid::parse_nid_list;
use model::{Errno, HostNid, limits};
use remote::MgsSession;
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use world::sys::files;

const USAGE: &str = "\
usage: nacre config show [--mgs NID] [--json]
       nacre config history [-n COUNT] [--mgs NID] [--json]
       nacre config diff VERSION [VERSION] [--mgs NID] [--json]
       nacre config rollback VERSION [-n] [--json]
       nacre config export [--mgs NID] > FILE
       nacre config import FILE [-n] [--json]

What the MGS keeps, as data with versions. 'rollback' and 'import' are run on
the node that has it; the others by root of any host.

show: targets with addresses and states, pools, permanent parameters, and who
set these when.
history: the last versions: when, by whom, what changed.
diff: what changed from one version to another, or to what is in force.
rollback: parameters and pools become what they were with that version. Targets
and their registrations stay.
export: parameters, pools and targets as JSON, always in the same order.
import: parameters, and pools of the file systems that FILE names, become what
FILE says ('-': standard input). Targets in it are not looked at.

  -n, --dry-run      of rollback and import: shows what would change
  -n, --count COUNT  of history: the last so many versions (20)
      --mgs NID[:NID]  where the MGS is, by address or name, as targets are
                     told; if not said: this host, or where mounts and targets
                     of this host have it
      --json         one JSON document

exit status: 0, or the errno of the failure, 4 wrong usage
";

const COUNT_DEFAULT: u64 = 20;
const COUNT_MAX: u64 = 1_000_000;
/// Of a document: one that the daemon reads as a request.
const DOCUMENT_MAX_BYTES: u64 = 6 << 20;

const DRY: Opt = flag('n', "dry-run");
const JSON: Opt = flag('\0', "json");
const MGS: Opt = value('\0', "mgs");

/// The subcommands, the options that each takes, and how many words behind them.
const SUBCOMMANDS: &[(&str, &[Opt], std::ops::RangeInclusive<usize>, &str)] = &[
    ("show", &[MGS, JSON], 0..=0, "nothing"),
    ("history", &[value('n', "count"), MGS, JSON], 0..=0, "nothing"),
    ("diff", &[MGS, JSON], 1..=2, "one or two versions"),
    ("rollback", &[DRY, JSON], 1..=1, "one version"),
    ("export", &[MGS, JSON], 0..=0, "nothing"),
    ("import", &[DRY, JSON], 1..=1, "one file, or -"),
];

fn words_of() -> String {
    let names: Vec<&str> = SUBCOMMANDS.iter().map(|(n, ..)| *n).collect();
    format!("nacre config {}", names.join("|"))
}

fn version(word: &str) -> Result<u64, Failure> {
    word.parse()
        .map_err(|_| Failure::usage(format!("'{word}' is no version: a number of 'nacre config history'")))
}

/// Reads a document; what is wrong with it, with its line.
fn document(shown: &str, text: &[u8]) -> Result<Document, Failure> {
    let bad = |why: &str| Failure::explained("cannot import", shown, Errno::EINVAL, why);
    let all: serde_json::Value = serde_json::from_slice(text).map_err(|e| bad(&e.to_string()))?;
    match all.get("format").and_then(serde_json::Value::as_u64) {
        Some(f) if f == u64::from(DOCUMENT_FORMAT) => {}
        Some(f) => return Err(bad(&format!("it has format {f}, and this program reads {DOCUMENT_FORMAT}"))),
        None => return Err(bad("it has no \"format\": is it a file of 'nacre config export'?")),
    }
    serde_json::from_slice(text).map_err(|e| bad(&e.to_string()))
}

fn read(file: &str) -> Result<Document, Failure> {
    let path = if file == "-" { Path::new("/dev/stdin") } else { Path::new(file) };
    let size = files::stat(path, true).map_err(|e| Failure::io("cannot read", file, e))?.size;
    if size > DOCUMENT_MAX_BYTES {
        let why = format!("it has {size} bytes, and {DOCUMENT_MAX_BYTES} are possible");
        return Err(Failure::explained("cannot import", file, Errno::EFBIG, &why));
    }
    let text = files::read(path).map_err(|e| Failure::io("cannot read", file, e))?;
    document(file, &text)
}

fn order(name: &str, p: &Parsed) -> Result<ConfigOrder, Failure> {
    let word = |i: usize| p.operands.get(i).map(|o| local::show(o));
    let first = word(0).unwrap_or_default();
    Ok(match name {
        "show" => ConfigOrder::Show,
        "history" => {
            let count = p.number("count", COUNT_MAX)?.unwrap_or(COUNT_DEFAULT);
            ConfigOrder::History(usize::try_from(count).unwrap_or(usize::MAX))
        }
        "diff" => ConfigOrder::Diff(version(&first)?, word(1).map(|w| version(&w)).transpose()?),
        "rollback" => ConfigOrder::Rollback(version(&first)?, p.has("dry-run")),
        "export" => ConfigOrder::Export,
        _ => ConfigOrder::Import(read(&first)?, p.has("dry-run")),
    })
}

/// What a daemon said, in words for who asked it.
fn refusal(errno: i32, message: String) -> (i32, String) {
    if ["config", "older"].iter().any(|v| message.contains(&format!("unknown variant `{v}`"))) {
        let why = "the nacred of the MGS is of an older version, which has no versions of its configuration";
        return (Errno::EOPNOTSUPP.0, why.into());
    }
    (errno, message)
}

/// Has the MGS do it, which must run on this host; `what` is done with it.
fn ask_mgs(what: &str, order: &ConfigOrder) -> Result<ConfigAnswer, Failure> {
    let asked = DaemonRequest::Config(order.clone());
    // The active one answers.
    let mut last = None;
    for d in Daemon::of_mgs() {
        match d.ask_if_there(&asked)? {
            None => {}
            Some(DaemonReply::Config(answer)) => return Ok(answer),
            Some(DaemonReply::Error { errno, message }) => last = Some(refusal(errno, message)),
            Some(_) => last = Some((Errno::EPROTO.0, "its answer is none".to_string())),
        }
    }
    let nowhere = || {
        let (errno, why) = local::no_mgs();
        (errno.0, why.to_string())
    };
    let (errno, why) = last.unwrap_or_else(nowhere);
    Err(Failure::explained("cannot do", what, Errno(errno), &why))
}

/// Where the MGS is that somebody means.
enum Place {
    Here,
    At(Box<MgsSession>),
}

impl Place {
    /// As the options say, or as this host knows it; who wants to change something must be there.
    fn find(p: &Parsed, what: &str, changes: bool) -> Result<Place, Failure> {
        if let Some(text) = p.value("mgs") {
            let hosts = parse_nid_list(text).map_err(|e| Failure::usage(format!("--mgs: {e}")))?;
            // What this host knows of it is its port.
            let is_it = |(known, _): &&(Vec<HostNid>, u16)| known.iter().any(|h| hosts.contains(h));
            let port = remote::known()?.iter().find(is_it).map_or(limits::PORT, |(_, port)| *port);
            return Ok(Place::At(Box::new(MgsSession::new(hosts, port)?)));
        }
        if !Daemon::of_mgs().is_empty() || local::no_mgs().0 == Errno::EACCES {
            return Ok(Place::Here);
        }
        match remote::known()?.as_slice() {
            [] if changes => Ok(Place::Here),
            [] => {
                let why = "no MGS is on this host, and nothing here is mounted from one: say --mgs NID";
                Err(Failure::explained("cannot do", what, Errno::ENODEV, why))
            }
            [(hosts, _)] if changes => {
                let at = remote::names(hosts);
                let why = format!("this must be run on the node that has the MGS, which is at {at}");
                Err(Failure::explained("cannot do", what, Errno::ENODEV, &why))
            }
            [(hosts, port)] => Ok(Place::At(Box::new(MgsSession::new(hosts.clone(), *port)?))),
            several => {
                let all: Vec<String> = several.iter().map(|(hosts, _)| remote::names(hosts)).collect();
                let why = format!("this host knows several MGSs: say --mgs with one of {}", all.join(", "));
                Err(Failure::explained("cannot do", what, Errno::EINVAL, &why))
            }
        }
    }

    fn ask(&self, what: &str, order: &ConfigOrder) -> Result<ConfigAnswer, Failure> {
        match self {
            Place::Here => ask_mgs(what, order),
            Place::At(mgs) => mgs.ask(what, order),
        }
    }
}

/// An answer by `ask`; a history that is longer than one answer comes in several.
fn whole(
    what: &str,
    order: &ConfigOrder,
    ask: impl Fn(&ConfigOrder) -> Result<ConfigAnswer, Failure>,
) -> Result<ConfigAnswer, Failure> {
    let (count, mut all) = match (order, ask(order)?) {
        (ConfigOrder::History(count), ConfigAnswer::History(all)) => (*count, all),
        (_, answer) => return Ok(answer),
    };
    while all.len() < count
        && let Some(first) = all.first().map(|v| v.version)
    {
        match ask(&ConfigOrder::Older(first, count - all.len())) {
            Ok(ConfigAnswer::History(older)) if !older.is_empty() => {
                if older.last().is_some_and(|v| v.version >= first) {
                    let why = "the MGS answered with versions that were not asked for";
                    return Err(Failure::explained("cannot do", what, Errno::EPROTO, why));
                }
                all.splice(0..0, older);
            }
            // A daemon of before this version has them in one answer.
            Ok(_) | Err(Failure::Op { errno: Errno::EOPNOTSUPP, .. }) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(ConfigAnswer::History(all))
}

/// What the MGS on this host keeps now; `what` wants to know.
pub(super) fn shown(what: &str) -> Result<Shown, Failure> {
    match ask_mgs(what, &ConfigOrder::Show) {
        Ok(ConfigAnswer::Shown(s)) => Ok(s),
        Ok(_) => Err(Failure::explained("cannot do", what, Errno::EPROTO, "the MGS answered something else")),
        Err(f) => Err(f),
    }
}

/// How the mounts of a file system stand with its maintenance, as they told the MGS on this host. `None`: it
/// does not say, as it is of an older version.
pub(super) fn mounts(fsname: &str) -> Option<Mounts> {
    match ask_mgs("maintenance", &ConfigOrder::Mounts(fsname.into())) {
        Ok(ConfigAnswer::Mounts(m)) => Some(m),
        _ => None,
    }
}

/// What the MGS of this host keeps and how it came to be: `nacre config show --json` and, newest first, the
/// last `count` versions of `nacre config history --json`.
pub fn query(count: usize) -> Result<serde_json::Value, Failure> {
    let history = match ask_mgs("config history", &ConfigOrder::History(count))? {
        ConfigAnswer::History(mut versions) => {
            versions.reverse();
            versions
        }
        _ => Vec::new(),
    };
    Ok(json!({"config": shown("config show")?, "versions": history}))
}

fn command(args: &[OsString]) -> Result<i32, Failure> {
    let Some((what, rest)) = args.split_first() else {
        return Err(Failure::usage(format!("say what: {}", words_of())));
    };
    let what = what.to_string_lossy();
    let Some((name, options, operands, takes)) = SUBCOMMANDS.iter().find(|(n, ..)| *n == what) else {
        return Err(Failure::usage(format!("'{what}' is none: {}", words_of())));
    };
    let p = getopt::parse(rest, options)?;
    if !operands.contains(&p.operands.len()) {
        return Err(Failure::usage(format!("'nacre config {name}' takes {takes}")));
    }
    let order = order(name, &p)?;
    let what = format!("config {name}");
    let changes = matches!(order, ConfigOrder::Rollback(..) | ConfigOrder::Import(..));
    let place = Place::find(&p, &what, changes)?;
    let answer = whole(&what, &order, |o| place.ask(&what, o))?;
    if p.has("json") || matches!(answer, ConfigAnswer::Document(_)) {
        output::json(&match &answer {
            ConfigAnswer::Shown(s) => json!(s),
            ConfigAnswer::Mounts(m) => json!(m),
            ConfigAnswer::History(h) => json!({"versions": h}),
            ConfigAnswer::Changes(c) => json!(c),
            ConfigAnswer::Document(d) => json!(d),
        });
    } else {
        output::bytes(show::text(&order, &answer).as_bytes());
    }
    Ok(0)
}

/// The command: arguments behind `config`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre config", USAGE), args, Failure::exit_code, command)
}

#[cfg(test)]
mod tests;
