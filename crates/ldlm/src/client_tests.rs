use super::*;
use wire::msg::enqueue::LockMode;
use world::block_on;

fn spec(c: &LockClient, kind: LockKind, mode: LockMode, start: u64, end: u64) -> LockSpec {
    LockSpec { id: c.new_id(), fid: Fid::ROOT, kind, mode, owner: 5, pid: 1, start, end }
}

#[test]
fn grants_come_in_any_order() {
    let c = LockClient::new();
    let s = spec(&c, LockKind::Posix, LockMode::Write, 0, 9);
    let mut w = c.begin(s.clone());
    assert!(c.has_posix_locks(Fid::ROOT, 5));
    // The notify overtakes the reply.
    assert_eq!(c.on_granted(s.id, 0), None);
    assert_eq!(c.answered(s.id, Ok(false)), None);
    block_on(w.wait()).unwrap();
    assert_eq!(c.reclaim(), std::slice::from_ref(&s));
    assert!(c.parked().is_empty());
    // A failed one.
    let d = spec(&c, LockKind::Posix, LockMode::Write, 20, 29);
    let mut w = c.begin(d.clone());
    assert_eq!(c.answered(d.id, Ok(false)), None);
    assert_eq!(c.parked(), std::slice::from_ref(&d));
    assert_eq!(c.on_granted(d.id, Errno::EDEADLK.0 as u16), None);
    assert_eq!(block_on(w.wait()), Err(Errno::EDEADLK));
    assert_eq!(c.load(), (1, 0));
    // Unlocking the middle leaves two pieces to reclaim, both under the same id.
    c.unlocked(Fid::ROOT, LockKind::Posix, 5, 3, 5);
    let mut left: Vec<_> = c.reclaim().iter().map(|s| (s.start, s.end)).collect();
    left.sort_unstable();
    assert_eq!(left, [(0, 2), (6, 9)]);
    assert!(c.holds_posix(Fid::ROOT, 5, 9, 100) && !c.holds_posix(Fid::ROOT, 5, 3, 5));
    assert_eq!(c.lost(&[s.id]).len(), 2);
    assert!(!c.has_posix_locks(Fid::ROOT, 5));
}

#[test]
fn giving_up_hands_back_what_comes_late() {
    let c = LockClient::new();
    let s = spec(&c, LockKind::Flock, LockMode::Write, 0, u64::MAX);
    let w = c.begin(s.clone());
    c.answered(s.id, Ok(false));
    let cancel = c.abandon(s.id).unwrap();
    assert_eq!(cancel, Cancel { fid: Fid::ROOT, what: CancelWhat::Id(s.id) });
    drop(w);
    assert!(c.parked().is_empty(), "not asked for again");
    // Granted before the cancel arrived: the stray goes back.
    assert_eq!(c.on_granted(s.id, 0), Some(cancel));
    c.cancelled(s.id);
    assert_eq!(c.load(), (0, 0));
    assert_eq!(c.abandon(s.id), None);
    // A waiter that was dropped without a word.
    let s = spec(&c, LockKind::Extent, LockMode::Read, 0, 9);
    drop(c.begin(s.clone()));
    assert!(c.answered(s.id, Ok(true)).is_some());
    // POSIX: after a doubtful cancel, closing unlocks to be sure.
    let s = spec(&c, LockKind::Posix, LockMode::Write, 0, 9);
    let _w = c.begin(s.clone());
    c.abandon(s.id).unwrap();
    c.cancelled(s.id);
    assert!(c.has_posix_locks(Fid::ROOT, 5));
    c.unlocked(Fid::ROOT, LockKind::Posix, 5, 0, u64::MAX);
    assert!(!c.has_posix_locks(Fid::ROOT, 5));
}

#[test]
fn a_flock_has_one_mode() {
    let c = LockClient::new();
    let r = spec(&c, LockKind::Flock, LockMode::Read, 0, u64::MAX);
    c.begin(r.clone());
    c.answered(r.id, Ok(true));
    c.cancelled(r.id); // its waiter was dropped above
    let r = spec(&c, LockKind::Flock, LockMode::Read, 0, u64::MAX);
    let mut w = c.begin(r.clone());
    c.answered(r.id, Ok(true));
    block_on(w.wait()).unwrap();
    assert!(c.has_flock(Fid::ROOT, 5));
    let x = spec(&c, LockKind::Flock, LockMode::Write, 0, u64::MAX);
    let mut w = c.begin(x.clone());
    assert_eq!(c.reclaim(), vec![], "the shared lock went with the attempt");
    c.answered(x.id, Err(Errno::EAGAIN));
    assert_eq!(block_on(w.wait()), Err(Errno::EAGAIN));
    assert!(!c.has_flock(Fid::ROOT, 5));
    let y = spec(&c, LockKind::Flock, LockMode::Write, 0, u64::MAX);
    let mut w = c.begin(y);
    c.shut_down();
    assert_eq!(block_on(w.wait()), Err(Errno::ESHUTDOWN));
}
