//! An engine on etcd, where Pacemaker is unwelcome: `controller` runs on each server host and serves the
//! targets that are this host's, `verbs` is what administrators ask, `keys` what is in etcd. Decision 0024.

mod controller;
mod keys;
mod local;
mod verbs;

pub use controller::{ControllerArgs, main as controller};
pub use verbs::{
    DefineArgs, StatusArgs, TargetArgs, define, giveback, hosts, seen, status, takeover, undefine,
};
