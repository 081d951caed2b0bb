//! purge: removes a name that is no directory, if its file is still what it was and a rule's conditions hold.
//! What rules remove goes for good, past the trash: it makes room.
//!
//! They are looked at inside the transaction, so again in each of its attempts: others give their leases on
//! the file back between two, and say before what they did to it and whether they have it open.

use super::unlink::{self, Last};
use crate::names::OpContext;
use crate::scan::Filter;
use crate::schema::Inode;
use crate::tx::Tx;
use model::Errno;
use model::planted::{self, Bug};
use wire::msg::purge::{EXEMPTIONS_MAX, Purge};
use wire::msg::unlink::Changed;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Purge) -> Result<Changed, Errno> {
    unlink::remove(tx, ctx, (m.parent, &m.name), |tx, fid, victim| {
        assert!(victim.nlink > 0, "a file that has a name counts it");
        // What was done once is done again after a restart: who may have changed the file since then has
        // lost it.
        if tx.is_replay() {
            return Ok(Last::Gone);
        }
        if fid != m.fid || (!planted::on(Bug::PurgeUnlooked) && !still_fits(&m, victim)?) {
            return Err(Errno::ECANCELED);
        }
        if tx.open_count(fid) > 0 { Err(Errno::EBUSY) } else { Ok(Last::Gone) }
    })
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
