//! The OST that is drained: which one it is, and whether it takes new objects.

use crate::command::osts::{any_mdt, chosen_file_systems, removals_pending, targets};
use crate::command::set_param::set_permanent;
use crate::failure::Failure;
use crate::getopt::Parsed;
use crate::interrupt::Interrupt;
use crate::local::{self, LocalMount};
use crate::size::parse_index;
use model::{Errno, TargetId};
use std::ffi::{OsStr, OsString};
use std::time::Duration;
use world::sys::{self, Deadline};

/// How long metadata servers may take to hear of a permanent parameter.
const CONFIG_PATIENCE: Duration = Duration::from_secs(60);
/// How long an OST may take to remove what was moved away from it.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// `max_create_count` of an OST that takes objects.
const CREATES: &str = "20000";

pub struct Ost {
    pub mount: LocalMount,
    pub index: u16,
    /// `demo-OST0003`.
    pub label: String,
}

/// A mount of each file system that may be meant by the name of an OST.
fn named_mounts(shown: &str, mount: Option<&OsStr>) -> Result<Vec<LocalMount>, Failure> {
    let operands: Vec<OsString> = mount.iter().map(OsString::from).collect();
    let mut mounts = chosen_file_systems(&operands)?;
    if let Some((fsname, _)) = shown.rsplit_once("-OST") {
        mounts.retain(|m| m.name.fsname == fsname);
    }
    Ok(mounts)
}

/// The operands of commands about one OST: its name, and perhaps a mount.
pub fn operands(p: &Parsed) -> Result<(OsString, Option<OsString>), Failure> {
    match p.operands.as_slice() {
        [ost] => Ok((ost.clone(), None)),
        [ost, mount] => Ok((ost.clone(), Some(mount.clone()))),
        _ => Err(Failure::usage("name one OST, and perhaps a mount of its file system")),
    }
}

impl Ost {
    /// As [`Ost::find`], also one that the file system has no more, if it is clear of which one.
    pub fn find_or_gone(name: &OsStr, mount: Option<&OsStr>) -> Result<Ost, Failure> {
        let missing = match Ost::find(name, mount) {
            Err(f @ Failure::Op { errno: Errno::ENODEV, .. }) => f,
            r => return r,
        };
        let shown = local::show(name);
        let index = parse_index(&shown).expect("it was looked for by its index");
        let mut mounts = named_mounts(&shown, mount)?;
        match (mounts.pop(), mounts.is_empty()) {
            (Some(mount), true) => {
                let label = TargetId::ost(index).label(&mount.name.fsname);
                Ok(Ost { mount, index, label })
            }
            _ => Err(missing),
        }
    }

    /// One that a user names, of a file system that is mounted here.
    pub fn find(name: &OsStr, mount: Option<&OsStr>) -> Result<Ost, Failure> {
        let shown = local::show(name);
        let index = parse_index(&shown).filter(|_| !shown.contains("MDT"));
        let index =
            index.ok_or_else(|| Failure::usage(format!("'{shown}' names no OST: demo-OST0003, 3")))?;
        let mut having = Vec::new();
        for m in named_mounts(&shown, mount)? {
            let is_it = |t: &client::control::Target| t.target == TargetId::ost(index);
            if targets(&m.dir)?.iter().any(is_it) {
                having.push(m);
            }
        }
        if having.len() > 1 {
            return Err(Failure::usage(format!("several file systems have an OST '{shown}': name a mount")));
        }
        let mount =
            having.pop().ok_or_else(|| Failure::op("no mounted file system has", &shown, Errno::ENODEV))?;
        let label = TargetId::ost(index).label(&mount.name.fsname);
        Ok(Ost { mount, index, label })
    }

    /// Its values as two permanent parameters: metadata servers choose it no more, and `lfs df` shows it.
    fn settings(&self, takes: bool) -> [(String, &'static str); 2] {
        let (creates, no_create) = if takes { (CREATES, "0") } else { ("0", "1") };
        [
            (format!("osp.{}-osc-*.max_create_count", self.label), creates),
            (format!("obdfilter.{}.no_create", self.label), no_create),
        ]
    }

    /// No new objects from now on, for good. Waits until the metadata servers know it. `ENODEV` if that can
    /// only be set elsewhere.
    pub fn take_no_objects(&self, interrupt: &Interrupt) -> Result<(), Failure> {
        if self.creates()? {
            for (name, value) in self.settings(false) {
                set_permanent(&name, value, false).map_err(|f| self.elsewhere(f))?;
            }
        }
        let end = Deadline::after(CONFIG_PATIENCE);
        while self.creates()? {
            if interrupt.stopped() || end.passed() {
                let why = "a metadata server does not know yet that it takes no new objects";
                return Err(Failure::explained("cannot drain", &self.label, Errno::ETIMEDOUT, why));
            }
            sys::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn elsewhere(&self, f: Failure) -> Failure {
        match f {
            Failure::Op { errno: Errno::ENODEV, .. } => {
                let [(name, value), _] = self.settings(false);
                let why = format!(
                    "run it on the node that has the MGS, or say there first: lctl set_param -P {name}={value}"
                );
                Failure::explained("cannot set", &self.label, Errno::ENODEV, &why)
            }
            f => f,
        }
    }

    /// It takes new objects again.
    pub fn take_objects(&self) -> Result<(), Failure> {
        for (name, value) in self.settings(true) {
            set_permanent(&name, value, false).map_err(|f| self.elsewhere(f))?;
        }
        // That is what they are without a word: none is kept.
        for (name, _) in self.settings(true) {
            set_permanent(&name, "", true)?;
        }
        Ok(())
    }

    /// Whether a metadata server would still put new objects here.
    fn creates(&self) -> Result<bool, Failure> {
        let pattern = format!("osp.{}-osc-*.max_create_count", self.label);
        any_mdt(&self.mount.dir, &pattern, |values| {
            if values.is_empty() {
                let why =
                    "a metadata server does not know max_create_count of it: it is older than this program";
                return Err(Failure::explained("cannot drain", &self.label, Errno::EOPNOTSUPP, why));
            }
            Ok(values.iter().any(|(_, v)| v.trim() != "0"))
        })
    }

    /// How many objects it has, in its own words: a number, or one and a plus sign.
    pub fn objects(&self) -> Result<String, Failure> {
        let values = local::target_params(&self.mount.dir, TargetId::ost(self.index), "obdfilter.*.objects")?;
        let one = values.first().map(|(_, v)| v.trim().to_string());
        one.ok_or_else(|| Failure::op("cannot count objects of", &self.label, Errno::EOPNOTSUPP))
    }

    /// As [`Ost::objects`], after what was moved had time to be removed.
    pub fn objects_left(&self, interrupt: &Interrupt) -> Result<String, Failure> {
        let end = Deadline::after(REMOVAL_PATIENCE);
        loop {
            let left = self.objects()?;
            if left == "0" || interrupt.stopped() || end.passed() || !self.removals_pending()? {
                // Once more: the last of them may have gone between the two.
                return if left == "0" { Ok(left) } else { self.objects() };
            }
            sys::sleep(LOOK_AGAIN);
        }
    }

    fn removals_pending(&self) -> Result<bool, Failure> {
        removals_pending(&self.mount.dir, &format!("osp.{}-osc-*.destroys_pending", self.label))
    }
}
