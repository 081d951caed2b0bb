//! The index of a target that was made without one: the MGS gives it the next free one, before it serves for
//! the first time. Decision 0076.

use super::Node;
use super::ended::StartError;
use super::registration;
use bytes::Bytes;
use model::{Errno, TargetId};
use rpc::{Import, ImportHooks};
use std::sync::Arc;
use std::time::Duration;
use store::format::Superblock;
use wire::RequestContext;
use wire::msg::register::{EXTRA_NEXT_INDEX, EXTRA_TARGET_KEY, Register, RegisterReply};
use wire::proof::{Claimant, Key};

/// An MGS that starts at the same time has so long to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the registration says, which the first start says again.
const FIRST_EPOCH: u32 = 1;

struct Hooks(Vec<(Claimant, Key)>);

impl ImportHooks for Hooks {
    fn keys(&self) -> Vec<(Claimant, Key)> {
        self.0.clone()
    }
}

async fn ask(import: &Arc<Import>, node: &Node, s: &Superblock) -> Result<RegisterReply, Errno> {
    let (msg, placed) = registration::message(s, node.nids.clone());
    let msg = Register { epoch: FIRST_EPOCH, replace: false, ..msg };
    let key = s.key.iter().map(|k| (EXTRA_TARGET_KEY, k.to_vec()));
    let extra = [placed, (EXTRA_NEXT_INDEX, Vec::new())].into_iter().chain(key).collect();
    let ctx = RequestContext { extra, ..RequestContext::default() };
    import.call(ctx, msg, Bytes::new()).await.map(|r| r.reply)
}

/// The target as the MGS knows it from now on. The folder is held by the caller, who writes that down.
pub async fn index(node: &Node, dir: &str, s: &Superblock) -> Result<TargetId, StartError> {
    assert!(!s.target.is_assigned(), "who has an index keeps it");
    let keys = s.key.iter().map(|k| (Claimant::Target(s.target_uuid), *k)).collect();
    let import = registration::session(node, s, &format!("'{dir}'"), Arc::new(Hooks(keys)));
    let answer = node.world.timeout(PATIENCE, ask(&import, node, s)).await;
    let unknown = import.unknown_hosts().map_or_else(String::new, |u| format!(" ({u})"));
    import.disconnect().await;
    let failed = |why: String| {
        StartError::new(format!(
            "target '{dir}' of {} has no index yet, and the MGS, which gives it the next free one, {why}",
            s.fsname
        ))
    };
    let reply = match answer {
        None => {
            return Err(failed(format!(
                "did not answer within {} s{unknown}: start it first, or make the target with --index",
                PATIENCE.as_secs()
            )));
        }
        Some(Err(Errno::EINVAL)) => {
            return Err(failed(
                "refuses that: it is older than this program, or manages another file system of this name; make the target with --index".to_string(),
            ));
        }
        Some(Err(e)) => return Err(failed(format!("refuses that: {e}"))),
        Some(Ok(r)) => r,
    };
    let mine = reply.config.targets.iter().find(|t| t.target_uuid == s.target_uuid).map(|t| t.target);
    let given = mine.filter(|t| t.kind == s.target.kind && t.is_assigned());
    let given = given.ok_or_else(|| failed("gave it none".to_string()))?;
    tracing::info!("target '{dir}' is {}: the MGS gave it the next free index", given.label(&s.fsname));
    Ok(given)
}
