//! The answers of an MGS: the target map, as a test has it at the moment.

use super::Answers;
use model::mutex::{Mutex, MutexGuard};
use model::{Errno, Nid, TargetId};
use rpc::{Incoming, Outgoing};
use std::net::IpAddr;
use wire::Op;
use wire::msg::config::{ConfigReply, TargetEntry};

/// See the module.
pub(crate) struct FakeMgs {
    config: Mutex<ConfigReply>,
}

impl FakeMgs {
    /// Without a target.
    pub fn new() -> FakeMgs {
        let (fsname, targets, params, extra) = ("fs".to_string(), Vec::new(), Vec::new(), Vec::new());
        FakeMgs {
            config: Mutex::new(ConfigReply { version: 1, fsname, fs_uuid: [1; 16], targets, params, extra }),
        }
    }

    /// Who changes it sets the version as well.
    pub fn config(&self) -> MutexGuard<'_, ConfigReply> {
        self.config.lock()
    }

    /// A target lies at this address from now on.
    pub fn place(&self, target: TargetId, at: IpAddr) {
        let mut c = self.config();
        c.version += 1;
        c.targets.retain(|t| t.target != target);
        let (target_uuid, nids, domains) = ([0; 16], vec![Nid { addr: at, net: 0 }], Vec::new());
        c.targets.push(TargetEntry { target, target_uuid, nids, epoch: 1, active: true, domains });
    }
}

impl Answers for FakeMgs {
    fn answer(&self, r: &Incoming) -> Outgoing {
        match r.op {
            Op::Config => Outgoing::ok(&*self.config(), 0),
            _ => Outgoing::err(Errno::EOPNOTSUPP),
        }
    }
}
