//! What every request and every reply says besides its verb.

use model::nodemap::Owner;
use model::{Cred, Timestamp};
use serde::{Deserialize, Serialize};

/// First part of each request's body. Fields that nothing uses yet have their room from the first
/// version on; `extra` holds tagged values of later versions, skipped and preserved when unknown.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RequestContext {
    pub cred: Cred,
    pub projid: u32,
    pub jobid: String,
    /// NID of the client as it knows itself; the server trusts only the connection's.
    pub client_nid: String,
    pub auth_flavour: u16,
    pub auth_token: Vec<u8>,
    pub nodemap: u32,
    /// The caller gives up after so many milliseconds; 0: never.
    pub deadline_ms: u32,
    /// Of data requests: generation of the layout that the client mapped the file with.
    pub layout_generation: u32,
    pub capability: Vec<u8>,
    pub trace_id: u64,
    /// When the application made the call, by the client's clock.
    pub client_time: Timestamp,
    pub extra: Vec<(u16, Vec<u8>)>,
}

/// Tag of [`RequestContext::extra`]: a [`FileOwner`]. Object targets that do not know it count what a request
/// makes to whoever asks.
pub const EXTRA_FILE_OWNER: u16 = 1;

/// Tag of [`RequestContext::extra`]: a [`Timestamp`]. When data of the file was written last, as its object
/// targets stamped it: a change that says so comes later, whatever the clocks of servers show. A metadata
/// target that does not know it goes by the clocks.
pub const EXTRA_WRITTEN: u16 = 2;

/// Tag of [`RequestContext::extra`]: a [`LimitsKnown`]. Who does not say it is told `EDQUOT` where a target's
/// share of a limit is used up.
pub const EXTRA_LIMITS: u16 = 4;

/// Tag of [`RequestContext::extra`]: a number (4). The directory with a quota that data is counted to. Who
/// does not say it writes to none; object targets that do not know it count it to none.
pub const EXTRA_DIRECTORY: u16 = 5;

/// Tag of [`RequestContext::extra`], without a value: the sender knows of the maintenance that goes on and
/// holds it itself; this is what it still has to write back, or what it is left alone for. With a version
/// (u64, little-endian): it holds none, by the configuration of this version.
pub const EXTRA_MAINTENANCE: u16 = 6;

/// Tag of [`RequestContext::extra`], of changes to an object: what the object is to remember of the component
/// that it is part of ([`model::layout::ObjectLabel`]). Object targets that do not know it remember nothing.
pub const EXTRA_OBJECT_LABEL: u16 = 7;

/// Tag of [`RequestContext::extra`]: a number (8), not 0. The span that the request is, of the trace
/// `trace_id`: somebody follows it, and wants to hear what the target does about it (decision 0096).
pub const EXTRA_SPAN: u16 = 8;

/// Tag of [`RequestContext::extra`], of a mount's requests for the configuration: a [`MaintenanceStanding`].
/// An MGS that does not know it passes over it.
pub const EXTRA_STANDING: u16 = 9;

/// [`MaintenanceStanding::held`]: changes are refused.
pub const HELD_READ_ONLY: u8 = 1;
/// [`MaintenanceStanding::held`]: operations wait.
pub const HELD_CLOSED: u8 = 2;

/// How a mount stands with the maintenance of its file system.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct MaintenanceStanding {
    /// Of the configuration that it goes by, or of an earlier one; 0: it knows of no maintenance.
    pub version: u64,
    /// What it does about it; 0: nothing, as none goes on, or it is left alone.
    pub held: u8,
    /// It changes nothing any more.
    pub quiet: bool,
    /// So often writing back failed since the order.
    pub lost: u64,
    /// What keeps it from being quiet, for people.
    pub waits: String,
}

/// What a sender knows of limits on space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LimitsKnown {
    /// Where a share is used up, that is told as `ESHARE`: it asks the metadata target for more.
    Acquires,
    /// Root writes, whom limits do not hold.
    Exempt,
}

/// Whose file a request for data concerns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct FileOwner {
    /// Its directory goes beside it ([`EXTRA_DIRECTORY`]).
    pub owner: Owner,
    /// The inode's ctime when that was the owner, the latest that the sender knows.
    pub as_of: Timestamp,
}

impl RequestContext {
    /// As it is, for data of this owner's file.
    pub fn naming(mut self, of: &FileOwner) -> RequestContext {
        self.extra.push((EXTRA_FILE_OWNER, crate::encode_message(of)));
        self.in_directory(of.owner.directory)
    }

    /// As it is, for a change that comes after what was written at this time.
    pub fn behind_write(mut self, at: Timestamp) -> RequestContext {
        self.extra.push((EXTRA_WRITTEN, crate::encode_message(&at)));
        self
    }

    /// As it is, from a sender that knows of limits.
    pub fn with_limits(mut self, known: LimitsKnown) -> RequestContext {
        self.extra.push((EXTRA_LIMITS, crate::encode_message(&known)));
        self
    }

    /// As it is, for data that is counted to a directory with a quota, if it is to any.
    pub fn in_directory(mut self, directory: u32) -> RequestContext {
        if directory != 0 {
            self.extra.push((EXTRA_DIRECTORY, crate::encode_message(&directory)));
        }
        self
    }

    /// As it is, as this span of this trace.
    pub fn traced(mut self, trace: u64, span: u64) -> RequestContext {
        assert!(trace != 0 && span != 0, "0 is no trace and no span");
        self.trace_id = trace;
        self.extra.push((EXTRA_SPAN, span.to_le_bytes().to_vec()));
        self
    }

    /// Trace and span of the request, if somebody follows it.
    pub fn followed(&self) -> Option<(u64, u64)> {
        let (_, v) = self.extra.iter().find(|(tag, _)| *tag == EXTRA_SPAN)?;
        let span = u64::from_le_bytes(v.as_slice().try_into().ok()?);
        (self.trace_id != 0 && span != 0).then_some((self.trace_id, span))
    }

    /// As it is, from a mount that says how it stands with a maintenance, if it has heard of one.
    pub fn standing(mut self, with: Option<&MaintenanceStanding>) -> RequestContext {
        if let Some(s) = with {
            self.extra.push((EXTRA_STANDING, crate::encode_message(s)));
        }
        self
    }

    /// How the sender stands with the maintenance, if it says.
    pub fn says_standing(&self) -> Option<MaintenanceStanding> {
        let (_, v) = self.extra.iter().find(|(tag, _)| *tag == EXTRA_STANDING)?;
        crate::decode_message(v).ok()
    }

    /// As it is, from a sender that holds the maintenance itself.
    pub fn knowing_maintenance(mut self) -> RequestContext {
        self.extra.push((EXTRA_MAINTENANCE, Vec::new()));
        self
    }

    /// As it is, for a change to an object with this label, if it has one.
    pub fn labelled(mut self, label: Option<&[u8]>) -> RequestContext {
        if let Some(l) = label {
            self.extra.push((EXTRA_OBJECT_LABEL, l.to_vec()));
        }
        self
    }

    /// The label that the object is to have, encoded, if the sender says.
    pub fn object_label(&self) -> Option<&[u8]> {
        let (_, v) = self.extra.iter().find(|(tag, _)| *tag == EXTRA_OBJECT_LABEL)?;
        Some(v)
    }

    /// As it is, from a sender that holds none, by the configuration of this version: a target that is behind
    /// refuses nothing of its.
    pub fn maintained_by(mut self, version: u64) -> RequestContext {
        if self.extra.iter().all(|(tag, _)| *tag != EXTRA_MAINTENANCE) {
            self.extra.push((EXTRA_MAINTENANCE, version.to_le_bytes().to_vec()));
        }
        self
    }

    /// Whether the sender holds the maintenance itself, or knows of a later configuration than `ordered`, the
    /// last one known to have it.
    pub fn knows_maintenance(&self, ordered: u64) -> bool {
        let said = self.extra.iter().find(|(tag, _)| *tag == EXTRA_MAINTENANCE);
        said.is_some_and(|(_, v)| match <[u8; 8]>::try_from(v.as_slice()) {
            Ok(version) => u64::from_le_bytes(version) > ordered,
            Err(_) => v.is_empty(),
        })
    }

    /// The directory with a quota that data is counted to; 0: none.
    pub fn directory(&self) -> u32 {
        let found = self.extra.iter().find(|(tag, _)| *tag == EXTRA_DIRECTORY);
        found.and_then(|(_, v)| crate::decode_message(v).ok()).unwrap_or(0)
    }

    /// What the sender knows of limits, if it says.
    pub fn limits_known(&self) -> Option<LimitsKnown> {
        let (_, v) = self.extra.iter().find(|(tag, _)| *tag == EXTRA_LIMITS)?;
        crate::decode_message(v).ok()
    }

    /// When the file was written last, if the sender says.
    pub fn written(&self) -> Option<Timestamp> {
        let (_, v) = self.extra.iter().find(|(tag, _)| *tag == EXTRA_WRITTEN)?;
        crate::decode_message(v).ok()
    }

    /// Whose file it is, if the sender says.
    pub fn file_owner(&self) -> Option<FileOwner> {
        let (_, v) = self.extra.iter().find(|(tag, _)| *tag == EXTRA_FILE_OWNER)?;
        let of: FileOwner = crate::decode_message(v).ok()?;
        Some(FileOwner { owner: Owner { directory: self.directory(), ..of.owner }, ..of })
    }
}

/// First part of each reply's body.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReplyContext {
    /// Every operation of this target with a transno up to this one is durable.
    pub last_committed: u64,
    /// Requests the client may have in flight from now on.
    pub credits: u16,
    pub extra: Vec<(u16, Vec<u8>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_a_maintenance_or_knows_of_its_end_knows_of_it() {
        let ctx = RequestContext::default;
        assert!(!ctx().knows_maintenance(7), "who says nothing");
        assert!(ctx().knowing_maintenance().knows_maintenance(u64::MAX));
        assert!(
            !ctx().maintained_by(7).knows_maintenance(7),
            "of the same configuration: he holds nothing of it"
        );
        assert!(ctx().maintained_by(8).knows_maintenance(7), "the target is behind");
        assert!(
            ctx().knowing_maintenance().maintained_by(1).knows_maintenance(7),
            "what was said first holds"
        );
        let strange = RequestContext { extra: vec![(EXTRA_MAINTENANCE, vec![9; 3])], ..ctx() };
        assert!(!strange.knows_maintenance(0));
    }

    /// As it is on the network: a later version may say more behind it.
    #[test]
    fn a_mount_says_how_it_stands_with_a_maintenance() {
        let said = MaintenanceStanding {
            version: 300,
            held: HELD_CLOSED,
            quiet: false,
            lost: 2,
            waits: "a disk".into(),
        };
        let ctx = RequestContext::default();
        assert_eq!(ctx.clone().standing(None), ctx);
        let mut ctx = ctx.standing(Some(&said));
        assert_eq!(ctx.extra, [(9, b"\xac\x02\x02\x00\x02\x06a disk".to_vec())]);
        ctx.extra[0].1.extend(b"more");
        assert_eq!(ctx.says_standing(), Some(said));
        ctx.extra[0].1.truncate(5);
        assert_eq!(ctx.says_standing(), None, "cut short");
    }
}
