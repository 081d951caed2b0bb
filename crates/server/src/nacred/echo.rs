//! `obdfilter-survey case=disk`: echo objects of a served OST, by order of this host's administrator.

use super::target::{Role, Target};
use admin::local::{EchoOrder, EchoState};
use model::Errno;
use oss::{EchoLoad, EchoObjects};

impl Target {
    /// Begins a run, says how it stands, or ends it and removes its objects.
    pub fn echo(&self, order: &EchoOrder) -> Result<EchoState, (Errno, String)> {
        let Role::Ost(ost) = &self.service else {
            return Err((Errno::EINVAL, format!("{} has no objects to survey", self.label())));
        };
        let objects = EchoObjects::of(ost);
        match *order {
            EchoOrder::Start { write, objects: count, threads, bytes, request } => {
                objects.start(EchoLoad { write, objects: count, threads, bytes, request })?;
            }
            EchoOrder::Look => {}
            EchoOrder::Clean => {
                world::block_on(objects.clean()).map_err(|why| (Errno::EIO, why))?;
                assert!(!objects.look().running, "nothing works on objects that are gone");
            }
        }
        let s = objects.look();
        Ok(EchoState { running: s.running, bytes: s.bytes, nanos: s.nanos, failed: s.failed })
    }
}
