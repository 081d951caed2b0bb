//! How the mounts of a file system stand with its maintenance: what each says when it asks for the
//! configuration, which it does anew whenever that changes (decision 0079). Of no use after a restart, when
//! all say it again: it is kept in memory alone.

use crate::history::Subject;
use crate::service::Mgs;
use model::Nid;
use rpc::Incoming;
use serde::{Deserialize, Serialize};
use wire::Sender;
use wire::context::MaintenanceStanding;

/// Of what a mount says that it waits for.
const WAITS_MAX_BYTES: usize = 256;

/// Who asked for the configuration of a file system.
pub(crate) struct Asked {
    fsname: String,
    standing: Option<MaintenanceStanding>,
}

/// How far a mount is with the maintenance that is configured now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It changes nothing any more.
    Quiet,
    /// It may do as it likes.
    LeftAlone,
    /// It may still change something; why, for people.
    Waits(String),
    /// It has not said anything since the order: it is of an older version, or has not heard of it yet.
    Silent,
}

impl Standing {
    /// Whether the order does not hold it yet, for all that is known.
    pub fn may_change(&self) -> bool {
        !matches!(self, Standing::Quiet | Standing::LeftAlone)
    }
}

/// A mount, as the MGS knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShownMount {
    pub nid: String,
    /// As it calls itself: program, host, mount point.
    pub name: String,
    /// False: it is expected back.
    pub connected: bool,
    pub standing: Standing,
    /// So often writing back failed since the order.
    pub lost: u64,
}

/// The mounts of a file system.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Mounts {
    pub mounts: Vec<ShownMount>,
    /// Nodes that were known before the MGS restarted and have not come back so far, but for servers: their
    /// processes never do, others come in their place.
    pub missing: usize,
}

fn standing_of(said: Option<&MaintenanceStanding>, ordered: u64) -> Standing {
    match said {
        Some(s) if s.version >= ordered && s.version > 0 => match (s.held, s.quiet) {
            (_, true) => Standing::Quiet,
            (0, false) => Standing::LeftAlone,
            _ => Standing::Waits(s.waits.clone()),
        },
        _ => Standing::Silent,
    }
}

/// Notes what who asks for the configuration says of itself.
pub(crate) fn asked(mgs: &Mgs, req: &Incoming, fsname: &str) {
    let mut said = req.ctx.says_standing();
    if let Some(s) = &mut said {
        s.waits.retain(|c| !c.is_control());
        let end = (0..=WAITS_MAX_BYTES.min(s.waits.len())).rev().find(|at| s.waits.is_char_boundary(*at));
        s.waits.truncate(end.unwrap_or(0));
    }
    if let Some(k) = mgs.clients().get_mut(&req.from.client) {
        k.asked = Some(Asked { fsname: fsname.into(), standing: said });
    }
}

impl Mgs {
    /// How the mounts of a file system stand with its maintenance, by address.
    pub fn mounts(&self, fsname: &str) -> Mounts {
        let is_order = |s: &Subject| match s {
            Subject::Param(name) => name.rsplit('.').next() == Some("maintenance"),
            _ => false,
        };
        // Of one that the history does not have any more it has later changes only.
        let ordered = self.state(|s| {
            let last = s.history.last_of();
            let orders = last.iter().filter(|(s, _)| is_order(s)).map(|(_, v)| v.version);
            orders.max().or_else(|| s.history.versions().next().map(|v| v.version)).unwrap_or(0)
        });
        let key = self.server_key(fsname);
        let peers = self.peers().list();
        let known = self.clients();
        let mut mounts: Vec<ShownMount> = peers
            .into_iter()
            .filter(|p| p.who.role(key.as_ref()) == Sender::Client)
            .filter_map(|p| {
                let asked = known.get(&p.who.client)?.asked.as_ref().filter(|a| a.fsname == fsname)?;
                let said = asked.standing.as_ref();
                let standing = standing_of(said, ordered);
                let lost = said.filter(|_| standing != Standing::Silent).map_or(0, |s| s.lost);
                let nid = Nid { addr: p.who.address, net: 0 }.to_string();
                Some(ShownMount { nid, name: p.name, connected: p.connected, standing, lost })
            })
            .collect();
        mounts.sort_by(|a, b| (&a.nid, &a.name).cmp(&(&b.nid, &b.name)));
        Mounts { mounts, missing: known.values().filter(|k| !k.heard() && !k.is_server()).count() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::context::{HELD_CLOSED, HELD_READ_ONLY};

    #[test]
    fn what_was_said_of_an_earlier_configuration_does_not_count() {
        let said = |version, held, quiet| MaintenanceStanding {
            version,
            held,
            quiet,
            lost: 0,
            waits: if quiet { String::new() } else { "a disk".into() },
        };
        let of = |s: MaintenanceStanding| standing_of(Some(&s), 7);
        assert_eq!(standing_of(None, 7), Standing::Silent);
        assert_eq!(of(said(6, HELD_CLOSED, true)), Standing::Silent);
        assert_eq!(of(said(7, HELD_CLOSED, true)), Standing::Quiet);
        assert_eq!(of(said(9, HELD_READ_ONLY, false)), Standing::Waits("a disk".into()));
        assert_eq!(of(said(9, 0, false)), Standing::LeftAlone);
        assert_eq!(
            standing_of(Some(&MaintenanceStanding::default()), 0),
            Standing::Silent,
            "it knows of none"
        );
    }
}
