//! Who reads the changelog: consumers come and go by an administrator's order on the target's host, and say
//! with `changelogclear` what they need no more. All of it is in the table.

use super::Change;
use crate::MdsError;
use crate::mdt::Mdt;
use crate::schema::changelog::{Consumer, LogState};
use crate::schema::key;
use crate::tx::Tx;
use model::changelog::{CONSUMERS_MAX, Mask, Order, RecordKind, check_consumer_name, flags, parse_consumer};
use model::{Errno, Fid, TargetId};
use rpc::ClientId;

/// Why an order is refused, for the administrator.
type Refused = (Errno, String);

/// As the table has it, with what the transaction changed.
pub(super) fn state(tx: &mut Tx) -> Result<LogState, MdsError> {
    let k = key::STATE_CHANGELOG;
    Ok(tx.get(k)?.map(|v| LogState::decode(k, &v)).transpose()?.unwrap_or_default())
}

pub(super) fn put(tx: &mut Tx, s: &LogState) {
    tx.put(key::STATE_CHANGELOG.to_vec(), s.encode());
}

/// The newest record, those of this transaction included.
fn last(tx: &Tx) -> u64 {
    tx.shared.changelog.last().saturating_add(tx.notes.records.len() as u64)
}

/// The place of the consumer that is called that. `EINVAL` for what is no consumer's name, `ENOENT` if there
/// is none.
pub fn find(s: &LogState, label: &str) -> Result<usize, Errno> {
    let (id, name) = parse_consumer(label)?;
    let is_it = |c: &Consumer| c.id == id && name.is_none_or(|n| n == c.name);
    s.consumers.iter().position(is_it).ok_or(Errno::ENOENT)
}

fn register(tx: &mut Tx, name: &str, mask: Option<Mask>, label: &str) -> Result<String, Errno> {
    tx.check_space()?;
    let mut s = state(tx)?;
    if s.consumers.len() >= CONSUMERS_MAX {
        return Err(Errno::E2BIG);
    }
    if !name.is_empty() && s.consumers.iter().any(|c| c.name == name) {
        return Err(Errno::EEXIST);
    }
    let now = tx.shared.world.wall();
    let id = s.last_id.checked_add(1).ok_or(Errno::E2BIG)?;
    let cleared = last(tx);
    let first = s.consumers.is_empty();
    let new = Consumer { id, name: name.to_string(), mask, cleared, heard: now.sec };
    s.last_id = id;
    s.consumers.push(new.clone());
    put(tx, &s);
    if first && mask.is_none_or(|m| m.has(RecordKind::Mark)) {
        let begins = Change::of(RecordKind::Mark, Fid::NONE).flagged(flags::START);
        tx.notes.add_at_any_rate(now, begins.named(Fid::NONE, label.as_bytes()));
    }
    Ok(new.label())
}

fn deregister(tx: &mut Tx, label: &str) -> Result<String, Errno> {
    let mut s = state(tx)?;
    let gone = s.consumers.remove(find(&s, label)?);
    put(tx, &s);
    Ok(gone.label())
}

/// A consumer that was away for too long is one no more; whether it still was. Not if it was heard of
/// meanwhile.
pub(super) fn drop_idle(tx: &mut Tx, idle: &Consumer) -> Result<bool, Errno> {
    let mut s = state(tx)?;
    let before = s.consumers.len();
    s.consumers.retain(|c| c != idle);
    if s.consumers.len() == before {
        return Ok(false);
    }
    put(tx, &s);
    Ok(true)
}

/// The consumer needs records up to `end` no more; 0: up to the newest. What it had cleared stays cleared.
/// `EINVAL` for a record that is not there yet.
pub fn clear(tx: &mut Tx, label: &str, end: u64) -> Result<(), Errno> {
    let mut s = state(tx)?;
    let at = find(&s, label)?;
    let newest = last(tx);
    let end = match end {
        0 => newest,
        // Done again after a restart: of what was made and not durable there may be less.
        n if tx.is_replay() => n.min(newest),
        n if n > newest => return Err(Errno::EINVAL),
        n => n,
    };
    let now = tx.shared.world.wall().sec;
    let c = s.consumers.get_mut(at).ok_or(Errno::ENOENT)?;
    assert!(end <= newest, "what is not there yet is not cleared");
    c.cleared = c.cleared.max(end);
    c.heard = now;
    put(tx, &s);
    Ok(())
}

/// An administrator's order; answered with the consumer's label once it is durable.
pub async fn order(mdt: &Mdt, order: &Order) -> Result<String, Refused> {
    let label = TargetId::mdt(mdt.cfg.index).label(&mdt.cfg.fsname);
    let plain = |e: Errno| (e, e.text().to_string());
    let done = match order {
        Order::Register { name, mask } => {
            if !name.is_empty() {
                let why = "a name is at most 15 letters, digits, '-' and '_', and begins with a letter";
                check_consumer_name(name).map_err(|e| (e, why.to_string()))?;
            }
            let mask = mask.as_ref().map(|text| Mask::parse(text, Mask::DEFAULT)).transpose();
            let mask = mask.map_err(|e| (e, "the mask has a word that is no type of record".into()))?;
            let work = |tx: &mut Tx| register(tx, name, mask, &label).map(String::into_bytes);
            mdt.transactions.transact(None, work).await
        }
        Order::Deregister { consumer } => {
            let work = |tx: &mut Tx| deregister(tx, consumer).map(String::into_bytes);
            mdt.transactions.transact(None, work).await
        }
    };
    let body = done.result.map_err(|e| match (e, order) {
        (Errno::EEXIST, Order::Register { name, .. }) => {
            (e, format!("there is a consumer called '{name}' already"))
        }
        (Errno::E2BIG, _) => (e, format!("there are {CONSUMERS_MAX} consumers, as many as can be")),
        (Errno::ENOENT, Order::Deregister { consumer }) => {
            (e, format!("there is no consumer '{consumer}': mdd.*.changelog_users has them"))
        }
        (e, _) => plain(e),
    })?;
    mdt.db.durable(done.wait).await.map_err(|e| (e.errno(), e.to_string()))?;
    leases_for_audit(mdt).await.map_err(plain)?;
    let said = String::from_utf8_lossy(&body).into_owned();
    tracing::info!("{label}: changelog: {order:?}: {said}");
    Ok(said)
}

/// Whether there are consumers.
pub fn has_consumers(mdt: &Mdt) -> bool {
    mdt.shared.changelog.has_consumers()
}

/// If somebody wants to know who looks at what, mounts keep nothing that would let them look without a
/// question. `ESHUTDOWN` when the target stops.
pub async fn leases_for_audit(mdt: &Mdt) -> Result<(), Errno> {
    if !mdt.shared.changelog.audits() {
        return Ok(());
    }
    let clients: Vec<ClientId> = mdt.core.read().clients.keys().copied().collect();
    mdt.transactions.revoke(|leases| leases.files_of(&clients)).await
}
