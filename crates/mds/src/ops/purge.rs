//! purge: removes a name that is no directory, if its file is still what it was and a rule's conditions hold.
//!
//! They are looked at inside the transaction, so again in each of its attempts: others give their leases on
//! the file back between two, and say before what they did to it and whether they have it open.

use super::unlink::drop_link;
use crate::changelog::Change;
use crate::names::{self, OpContext};
use crate::scan::Filter;
use crate::schema::Inode;
use crate::tx::Tx;
use model::Errno;
use model::changelog::RecordKind;
use model::inode_rules::{self, NamesChange};
use wire::msg::purge::{EXEMPTIONS_MAX, Purge};
use wire::msg::unlink::Changed;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Purge) -> Result<Changed, Errno> {
    inode_rules::check_name(&m.name)?;
    if inode_rules::is_dots(&m.name) {
        return Err(Errno::EISDIR);
    }
    let (mut dir, d, mut victim) = names::removable(tx, ctx, m.parent, &m.name)?;
    if victim.is_dir() {
        return Err(Errno::EISDIR);
    }
    // What was done once is done again after a restart: who may have changed the file since then has lost it.
    if !tx.is_replay() {
        if d.fid != m.fid || !still_fits(&m, &victim)? {
            return Err(Errno::ECANCELED);
        }
        if tx.open_count(d.fid) > 0 {
            return Err(Errno::EBUSY);
        }
    }
    assert!(victim.nlink > 0, "a file that has a name counts it");
    tx.delete_name(m.parent, d.cookie, &m.name, d.fid);
    tx.names_changed(m.parent, &mut dir, NamesChange::removed(victim.kind), ctx.now);
    drop_link(tx, ctx, d.fid, &mut victim)?;
    let change = Change::of(RecordKind::Unlink, d.fid).named(m.parent, &m.name);
    tx.notes.add(ctx.now, change.last_name(victim.nlink == 0));
    names::changed(tx)
}

/// As far as the metadata server knows the file.
fn still_fits(m: &Purge, i: &Inode) -> Result<bool, Errno> {
    if m.unless.len() > EXEMPTIONS_MAX {
        return Err(Errno::E2BIG);
    }
    let filter = Filter::new(&m.tests)?;
    let mut fits = i.ctime <= m.seen && filter.may_fit_by_fixed(i) && filter.may_fit(i);
    for group in &m.unless {
        fits &= !Filter::new(group)?.certainly_fits(i);
    }
    Ok(fits)
}
