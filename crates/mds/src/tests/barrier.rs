//! The write barrier: what waits, what goes on, and how it ends.

use super::*;
use crate::freeze;
use ::model::barrier::{BarrierOrder, BarrierStanding, BarrierState};
use ::model::mutex::Mutex;
use std::time::Duration;
use wire::msg::lookup::bits;
use wire::msg::notify::{LeaseItem, Notice};
use wire::msg::own::{Own, OwnReply};

const R: Fid = Fid::ROOT;

fn ask(rig: &Rig, order: BarrierOrder) -> Result<BarrierStanding, Errno> {
    block_on(freeze::order(&rig.mdt, order)).map_err(|(e, _)| e)
}

fn reaches(rig: &Rig, state: BarrierState) -> BarrierStanding {
    for _ in 0..2000 {
        let s = ask(rig, BarrierOrder::Stat).unwrap();
        if s.state == state {
            return s;
        }
        pause(rig, Duration::from_millis(5));
    }
    panic!("never {state}: {:?}", ask(rig, BarrierOrder::Stat));
}

fn frozen(rig: &Rig, timeout_s: u32) -> BarrierStanding {
    ask(rig, BarrierOrder::Freeze { timeout_s }).unwrap();
    reaches(rig, BarrierState::Frozen)
}

fn pause(rig: &Rig, d: Duration) {
    block_on(rig.world.sleep(d));
}

/// A request that is under way.
struct Begun(Arc<Mutex<Option<Result<(), Errno>>>>);

fn begun<M: Message>(rig: &Rig, m: &M) -> Begun {
    let (mdt, req) = (rig.mdt.clone(), rig.incoming(A, &Cred::root(), m));
    let cell = Arc::<Mutex<_>>::default();
    let done = Begun(cell.clone());
    rig.world.spawn("request", async move {
        let out = mdt.handle(req).await;
        *cell.lock() = Some(out.status);
    });
    done
}

impl Begun {
    fn is_finished(&self) -> bool {
        self.0.lock().is_some()
    }

    /// What it came to.
    fn wait(self, rig: &Rig) -> Result<(), Errno> {
        for _ in 0..4000 {
            if let Some(done) = *self.0.lock() {
                return done;
            }
            pause(rig, Duration::from_millis(5));
        }
        panic!("it waits for ever");
    }
}

fn mkdir(rig: &Rig, name: &str) -> msg::mkdir::Mkdir {
    msg::mkdir::Mkdir { parent: R, name: name.into(), fid: rig.fid(), mode: 0o755, umask: 0 }
}

fn own(rig: &Rig, dir: Fid) -> OwnReply {
    rig.root(Own { dir, cookie: 0, max_bytes: 0, children: false, knows_limits: true.into() }).unwrap()
}

#[test]
fn while_it_holds_nothing_is_modified_and_everything_is_looked_at() {
    let rig = Rig::new();
    let f = rig.create(R, "f");
    assert_eq!(ask(&rig, BarrierOrder::Stat).unwrap().state, BarrierState::Init);
    let frozen = frozen(&rig, 60);
    assert!((55..=60).contains(&frozen.left_s) && frozen.round == 1, "{frozen:?}");
    let last = rig.mdt.db.last_submitted();
    assert_eq!(rig.mdt.db.last_committed(), last, "what was acknowledged is durable");
    let waits = begun(&rig, &mkdir(&rig, "d"));
    assert_eq!(rig.names(R), ["f"]);
    let h = rig.open(f, 0);
    assert_eq!(rig.create_as(&Cred::root(), R, "f", 0o644).err(), Some(Errno::EEXIST), "no need to wait");
    rig.close(f, h);
    pause(&rig, Duration::from_millis(50));
    assert!(!waits.is_finished());
    assert_eq!(rig.mdt.db.last_submitted(), last, "nothing was written");
    assert_eq!(ask(&rig, BarrierOrder::Freeze { timeout_s: 9 }), Err(Errno::EALREADY));
    assert_eq!(ask(&rig, BarrierOrder::Thaw).unwrap().state, BarrierState::Thawed);
    waits.wait(&rig).unwrap();
    assert_eq!(rig.names(R), ["d", "f"]);
    assert_eq!(ask(&rig, BarrierOrder::Thaw), Err(Errno::EALREADY));
    for timeout_s in [0, 3601] {
        assert_eq!(ask(&rig, BarrierOrder::Freeze { timeout_s }), Err(Errno::EINVAL));
    }
    rig.assert_clean();
}

#[test]
fn it_ends_by_itself_and_its_maker_hears_that() {
    let rig = Rig::new();
    frozen(&rig, 1);
    let waits = begun(&rig, &mkdir(&rig, "d"));
    waits.wait(&rig).unwrap();
    assert_eq!(reaches(&rig, BarrierState::Expired).left_s, 0);
    assert_eq!(ask(&rig, BarrierOrder::Thaw), Err(Errno::ETIMEDOUT));
    assert_eq!(rig.mdt.db.get(crate::schema::key::STATE_BARRIER).unwrap(), None);
}

#[test]
fn a_restart_does_not_end_it_and_its_time_does() {
    let mut rig = Rig::new();
    frozen(&rig, 5);
    rig.crash(7);
    assert_eq!(ask(&rig, BarrierOrder::Stat).unwrap().state, BarrierState::Frozen);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    let waits = begun(&rig, &mkdir(&rig, "d"));
    pause(&rig, Duration::from_millis(100));
    assert!(!waits.is_finished() || ask(&rig, BarrierOrder::Stat).unwrap().state == BarrierState::Expired);
    waits.wait(&rig).unwrap();
    reaches(&rig, BarrierState::Expired);
    // What ended is not there after the next one.
    frozen(&rig, 60);
    ask(&rig, BarrierOrder::Thaw).unwrap();
    rig.crash(8);
    assert_eq!(ask(&rig, BarrierOrder::Stat).unwrap().state, BarrierState::Init);
}

#[test]
fn who_has_a_directory_for_himself_tells_before_it_holds_and_gets_none_meanwhile() {
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    let grant = own(&rig, d).dir.grant.unwrap();
    assert!(grant.exclusive);
    ask(&rig, BarrierOrder::Freeze { timeout_s: 60 }).unwrap();
    // On its way, or frozen already: nobody is connected here, so its owner may be given up at once.
    let again = ask(&rig, BarrierOrder::Freeze { timeout_s: 60 });
    assert!(matches!(again, Err(Errno::EBUSY | Errno::EALREADY)), "{again:?}");
    pause(&rig, Duration::from_millis(30));
    // Nobody is connected here, so the target takes it for one that is gone; or it gave it back.
    rig.mdt.notice(
        A,
        Notice::Cancelled {
            items: vec![LeaseItem { fid: d, bits: bits::DIRECTORY, seq: grant.seq, look: false }],
        },
    );
    reaches(&rig, BarrierState::Frozen);
    assert_eq!(rig.mdt.shared.leases.owners(), 0);
    assert!(!own(&rig, d).dir.grant.is_some_and(|g| g.exclusive));
    ask(&rig, BarrierOrder::Thaw).unwrap();
    assert!(own(&rig, d).dir.grant.is_some_and(|g| g.exclusive));
}

#[test]
fn who_waits_gives_up_when_the_target_stops_and_when_its_client_goes() {
    let rig = Rig::new();
    frozen(&rig, 60);
    let waits = begun(&rig, &mkdir(&rig, "d"));
    pause(&rig, Duration::from_millis(20));
    rig.mdt.leaving(A);
    assert_eq!(waits.wait(&rig), Err(Errno::ENOTCONN));
    rig.mdt.shared.leases.client_gone(A, false);
    let waits = begun(&rig, &mkdir(&rig, "e"));
    pause(&rig, Duration::from_millis(20));
    block_on(rig.mdt.stop());
    assert_eq!(waits.wait(&rig), Err(Errno::ESHUTDOWN));
}
