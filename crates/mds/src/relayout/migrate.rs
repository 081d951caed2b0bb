//! To another place (`lfs migrate`), while the file is in use: from objects to others, from the inode to
//! objects, from objects to the inode.

use super::movements::{Movement, Place};
use super::{Attempt, Frozen, Source, attempt, copy, movable, note_room, note_target, settle};
use crate::data;
use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::ops::setlayout::check_spec;
use crate::tx::Tx;
use model::{Cred, Errno, Fid, FileType, Layout, LayoutSpec, perm};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::migrate::Migrate;

/// How long an attempt waits for object servers that do nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Moves a file's data to where the message says, when it has its turn; the answer is the file with its new
/// layout. A layout that begins with the inode gives a file that has no room there what it would have grown
/// into. `EPERM` for who may not change the file, `ENODATA` for one that has no layout yet, `EAGAIN` if too
/// many wait already, `EINTR` if it is withdrawn meanwhile, `EBUSY` if others do not let go of the file or,
/// where they are not to wait, use it.
pub async fn migrate(mdt: &Arc<Mdt>, to: &ReplyTo, cred: &Cred, m: &Migrate) -> Result<Done, Errno> {
    m.spec.check()?;
    carry_out(mdt, Some(to), cred, (m.fid, &m.spec), Place::take(mdt, to.client, m)?).await
}

/// Moves a file's data unasked, as fast as nobody notices, unless somebody uses it meanwhile (`EBUSY`).
pub(super) async fn in_background(mdt: &Arc<Mdt>, fid: Fid, spec: &LayoutSpec) -> Result<(), Errno> {
    let place = Place::in_background(mdt, fid)?;
    carry_out(mdt, None, &Cred::root(), (fid, spec), place).await?.result.map(drop)
}

async fn carry_out(
    mdt: &Arc<Mdt>,
    to: Option<&ReplyTo>,
    cred: &Cred,
    (fid, spec): (Fid, &LayoutSpec),
    place: Place,
) -> Result<Done, Errno> {
    place.turn().await?;
    let mut tries = 0;
    loop {
        place.movement.check()?;
        let depends = spec.is_composite() || spec.mdt_bytes().is_some();
        let size = if depends { size_now(mdt, to, fid).await? } else { 0 };
        let begin = |tx: &mut Tx| begin(mdt, tx, cred, (fid, &place.movement), (spec, size));
        if let Some(done) = attempt(mdt, to, fid, &mut tries, begin).await? {
            return Ok(done);
        }
    }
}

/// About how large the file is, with what clients have not told: components get objects for that.
async fn size_now(mdt: &Arc<Mdt>, to: Option<&ReplyTo>, fid: Fid) -> Result<u64, Errno> {
    let mut layout = None;
    let look = |tx: &mut Tx| {
        layout = tx.try_inode(fid)?.ok_or(Errno::ESTALE)?.layout;
        Ok(Vec::new())
    };
    match to {
        Some(to) => mdt.transactions.read(to, look).await.result?,
        None => mdt.transactions.transact(None, look).await.result?,
    };
    let Some(l) = layout.filter(Layout::has_objects) else { return Ok(0) };
    match copy::attrs_of_file(mdt, &l).await.map(|attrs| copy::size_of(&l, &attrs)) {
        // It was moved just now: the attempt finds out that it is larger.
        Err(Errno::ERELAYOUT | Errno::ESTALE) => Ok(0),
        size => size,
    }
}

fn begin(
    mdt: &Arc<Mdt>,
    tx: &mut Tx,
    cred: &Cred,
    (fid, movement): (Fid, &Arc<Movement>),
    (spec, size): (&LayoutSpec, u64),
) -> Result<Attempt, Errno> {
    let mut i = movable(tx, fid)?;
    if i.kind != FileType::Regular {
        return Err(Errno::EINVAL);
    }
    if !perm::owns(cred, i.uid) {
        return Err(Errno::EPERM);
    }
    check_spec(tx, spec)?;
    let Some(old) = i.layout.as_ref() else { return Err(Errno::ENODATA) };
    let is_small = old.mdt_component().is_some();
    tx.check_space()?;
    settle(tx, fid, &mut i);
    let old = i.layout.clone().expect("looked at above");
    let size = if is_small { i.data.size } else { size };
    let room = spec.mdt_bytes().and_then(|n| u32::try_from(n).ok()).filter(|room| size <= u64::from(*room));
    let target = match room {
        Some(room) => note_room(tx, fid, &mut i, room)?,
        // It may grow by as much again while it is copied.
        None => note_target(tx, fid, &mut i, spec, size.saturating_mul(2))?,
    };
    movement.begins(&old, &target);
    let source = match (is_small, room) {
        (true, Some(_)) => Source::Room,
        (true, None) => Source::Inode(data::runs(tx, fid)?),
        (false, _) => Source::Objects(old),
    };
    let movement = Some(movement.clone());
    let later = room.map(|_| spec.clone());
    let frozen = Frozen::new(mdt, tx, fid);
    Ok(Attempt { _frozen: frozen, inode: i, target, source, patience: PATIENCE, movement, later })
}
