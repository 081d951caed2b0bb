//! The targets of a mount against fake servers, in virtual time: which of them is asked, and how the target
//! map changes under requests.

use super::targets::ConfigOwner;
use super::{Lmv, mdc};
use crate::base::Context;
use crate::base::shares::ShareSource;
use crate::osc::ObjectCache;
use crate::testing::{self, Cluster, Hold, ip};
use crate::{Call, R};
use model::mutex::Mutex;
use model::{Cred, Errno, Fid, FileType, TargetId};
use rpc::ClientId;
use rpc::testing::Lab;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use wire::Op;
use wire::msg::mkdir::Mkdir;
use wire::msg::notify::Notify;
use world::World;

/// A file on each metadata target.
const FILES: [Fid; 2] = [Fid::new(model::fid::SEQ_NORMAL, 7, 0), Fid::new(model::fid::SEQ_NORMAL + 1, 7, 0)];
const CONFIG_CHANGED: Notify = Notify::ConfigChanged { version: 0 };

/// A permanent parameter, and for whom it was told.
type Told = (String, String, Option<Vec<TargetId>>);

#[derive(Default)]
struct Owner(Mutex<Vec<Told>>);

impl ConfigOwner for Owner {
    fn permanent_param(&self, name: &str, value: &str, only: Option<&Vec<TargetId>>) {
        self.0.lock().push((name.to_string(), value.to_string(), only.cloned()));
    }
}

struct Rig {
    c: Cluster,
    world: World,
    cx: Arc<Context>,
    meta: Arc<mdc::Shared>,
    lmv: Arc<Lmv>,
    owner: Arc<Owner>,
}

impl Rig {
    async fn getattr(&self, fid: Fid) -> R<()> {
        self.lmv.getattr_entry(self.cx.own(), fid).await.map(|e| assert_eq!(e.attr.fid, fid))
    }

    async fn until(&self, what: &str, f: impl Fn() -> bool) {
        testing::until(&self.world, what, f).await;
    }

    fn configs(&self) -> usize {
        self.c.mgs.fake.count(Op::Config)
    }

    fn say_changed(&self) {
        self.c.mgs.peers.notify(ClientId(self.cx.uuid), CONFIG_CHANGED);
    }

    fn set_param(&self, value: &str) {
        let mut c = self.c.mgs.fake.config();
        c.version += 1;
        c.params = vec![("osc.*.max_dirty_mb".into(), value.into())];
    }

    fn set_active(&self, ost: u16, active: bool) {
        let mut c = self.c.mgs.fake.config();
        c.version += 1;
        let of_it = |t: &&mut wire::msg::config::TargetEntry| t.target == TargetId::ost(ost);
        c.targets.iter_mut().find(of_it).unwrap().active = active;
    }

    /// Executes something here that a metadata target has not heard of.
    async fn mkdir_here(&self, mdt: usize) {
        let call = Call { cred: Cred::root(), ..Call::default() };
        let (parent, name) = (FILES[mdt], b"dir".to_vec());
        let msg = Mkdir { parent, name, fid: Fid::NONE, mode: 0o755, umask: 0 };
        let made = self.lmv.mdc_of(parent).await.unwrap().mkdir_here(&call, &msg).await;
        assert!(made.unwrap().is_some(), "the directory is this mount's alone");
    }
}

fn run<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(Rig) -> F) {
    let lab = Lab::new(seed);
    lab.run(async {
        let c = Cluster::new(&lab, 2, 2).await;
        for (site, fid) in c.mdts.iter().zip(FILES) {
            let mut s = site.fake.script();
            s.add(fid, FileType::Directory, None);
            s.owns = true;
        }
        let world = c.world.clone();
        let cx = testing::context(&world);
        let meta = mdc::Shared::new(100);
        meta.locate.learn(FILES[1].seq, FILES[1].seq, 1);
        let objects = ObjectCache::new(cx.clone(), 1 << 30, Arc::default());
        let owner = Arc::new(Owner::default());
        let weak: std::sync::Weak<Owner> = Arc::downgrade(&owner);
        let lmv = Lmv::new(&cx, &meta, &objects, weak);
        lmv.meet_mgs(c.mgs_nids());
        lmv.fetch_config().await.unwrap();
        test(Rig { c, world, cx, meta, lmv, owner }).await;
    });
}

#[test]
fn a_question_goes_to_the_metadata_target_that_the_fid_says_and_to_no_other() {
    run(1, |r| async move {
        r.getattr(FILES[1]).await.unwrap();
        let asked = |r: &Rig| [r.c.mdts[0].fake.count(Op::Getattr), r.c.mdts[1].fake.count(Op::Getattr)];
        assert_eq!(asked(&r), [0, 1]);
        r.getattr(FILES[0]).await.unwrap();
        r.getattr(Fid::ROOT).await.unwrap();
        assert_eq!(asked(&r), [2, 1]);
        let behind = Fid::new(FILES[1].seq + 1, 1, 0);
        assert_eq!(r.getattr(behind).await, Err(Errno::ENOENT), "a sequence that nobody has is the root's");
        assert_eq!(asked(&r), [3, 1]);
        assert!(r.lmv.known_entry(FILES[1]).is_some() && r.lmv.leases_good(FILES[1]));
    });
}

#[test]
fn a_new_target_map_leaves_requests_alone_that_are_under_way_and_an_older_one_changes_nothing() {
    run(2, |mut r| async move {
        r.lmv.watch_config();
        r.c.mdts[1].fake.hold(Hold::Everything);
        let done: Arc<Mutex<Option<R<()>>>> = Arc::default();
        let (lmv, ctx, of_it) = (r.lmv.clone(), r.cx.own(), done.clone());
        r.world.spawn("question", async move {
            *of_it.lock() = Some(lmv.getattr_entry(ctx, FILES[1]).await.map(drop));
        });
        r.until("it is there", || r.c.mdts[1].fake.running() == 1).await;
        let before = r.c.mgs.fake.config().clone();
        r.c.add_ost().await;
        r.c.mgs.fake.place(TargetId::ost(2), r.c.osts[2].at);
        r.say_changed();
        r.until("the new one is known", || r.lmv.known_osc(2).is_some()).await;
        r.until("and connected to", || r.c.osts[2].fake.clients() == 1).await;
        *r.c.mgs.fake.config() = before;
        r.c.mgs.fake.config().targets.iter_mut().for_each(|t| t.active = false);
        r.lmv.fetch_config().await.unwrap();
        assert!(r.lmv.all_targets().iter().all(|t| t.is_active()), "that answer was overtaken");
        assert_eq!(*done.lock(), None);
        r.c.mdts[1].fake.hold(Hold::Nothing);
        r.until("it is answered", || *done.lock() == Some(Ok(()))).await;
        assert_eq!(r.c.mdts[1].fake.count(Op::Getattr), 1);
    });
}

#[test]
fn a_target_that_is_not_in_the_map_yet_is_looked_for_once_and_not_for_ever() {
    run(3, |mut r| async move {
        let before = r.configs();
        assert_eq!(r.lmv.osc(2).await.err(), Some(Errno::EIO), "nobody knows it");
        assert_eq!(r.configs(), before + 1);
        r.c.add_ost().await;
        r.c.mgs.fake.place(TargetId::ost(2), r.c.osts[2].at);
        assert_eq!(r.lmv.osc(2).await.unwrap().target.id, TargetId::ost(2));
        assert!(r.lmv.osc(2).await.is_ok());
        assert_eq!(r.configs(), before + 2);
        r.c.mgs.fake.hold(Hold::Everything);
        let start = r.world.now();
        assert_eq!(r.lmv.mdc(9).await.err(), Some(Errno::EIO));
        assert_eq!(r.world.now().since(start), Duration::from_secs(5));
    });
}

#[test]
fn a_restarted_metadata_target_hears_of_its_own_files_and_takes_nothing_that_is_anothers() {
    run(4, |r| async move {
        for fid in FILES {
            r.getattr(fid).await.unwrap();
        }
        let handles = FILES.map(|fid| r.meta.opens.reserve(fid, 0, &Cred::root(), None).unwrap());
        r.c.mdts[1].restart();
        r.until("it is back", || r.c.mdts[1].fake.reclaims.lock().iter().any(|m| m.last)).await;
        let told: Vec<u64> = {
            let all = r.c.mdts[1].fake.reclaims.lock();
            all.iter().flat_map(|m| &m.opens).map(|o| o.handle).collect()
        };
        assert_eq!(told, [handles[1]]);
        assert!(r.c.mdts[0].fake.reclaims.lock().is_empty());
        assert!(r.lmv.known_entry(FILES[1]).is_none(), "its leases are of its former life");
        let before = r.c.requests();
        r.getattr(FILES[0]).await.unwrap();
        assert_eq!(r.c.requests(), before, "the other's are good");
    });
}

#[test]
fn what_a_metadata_target_does_not_take_is_given_up_and_named_when_a_mount_ends() {
    run(5, |r| async move {
        r.c.mdts[1].fake.hold(Hold::Of(Op::Batch));
        r.mkdir_here(0).await;
        r.mkdir_here(1).await;
        let start = r.world.now();
        r.lmv.tell_pending_at_unmount().await;
        let took = r.world.now().since(start);
        assert!((30..32).contains(&took.as_secs()), "{took:?}");
        assert_eq!((r.lmv.pending_load(), r.c.mdts[0].fake.count(Op::Batch)), ((0, 0), 1));
        let text = r.cx.errors.text();
        assert!(text.starts_with("total: 1\n") && text.contains(&FILES[1].to_string()), "{text}");
    });
}

#[test]
fn leases_are_given_back_once_what_was_done_under_them_is_told_and_nobody_waits_long_for_that() {
    run(6, |r| async move {
        r.c.mdts[1].fake.hold(Hold::Of(Op::Batch));
        r.getattr(FILES[0]).await.unwrap();
        r.mkdir_here(1).await;
        r.lmv.drop_leases();
        assert!(r.lmv.known_entry(FILES[0]).is_none(), "at once, where nothing is to be told");
        let start = r.world.now();
        assert_eq!(r.lmv.leases_dropped().await, Err(Errno::EAGAIN));
        assert_eq!(r.world.now().since(start), Duration::from_secs(5));
        let is_back = |r: &Rig| r.c.mdts[1].fake.script().cancelled.iter().any(|i| i.fid == FILES[1]);
        assert!(!is_back(&r), "the server would let others see what is not told");
        r.c.mdts[1].fake.hold(Hold::Nothing);
        r.until("it is told", || r.lmv.pending_load() == (0, 0)).await;
        assert_eq!(r.lmv.leases_dropped().await, Ok(()));
        r.until("the lease is back", || is_back(&r)).await;
    });
}

#[test]
fn a_permanent_parameter_is_told_when_it_changes_and_otherwise_for_new_targets_only() {
    run(7, |mut r| async move {
        let told = |r: &Rig| std::mem::take(&mut *r.owner.0.lock());
        assert!(told(&r).is_empty());
        let param = |value: &str, only| ("osc.*.max_dirty_mb".to_string(), value.to_string(), only);
        r.set_param("64");
        r.lmv.fetch_config().await.unwrap();
        assert_eq!(told(&r), [param("64", None)]);
        r.c.add_ost().await;
        r.c.mgs.fake.place(TargetId::ost(2), r.c.osts[2].at);
        r.lmv.fetch_config().await.unwrap();
        assert_eq!(told(&r), [param("64", Some(vec![TargetId::ost(2)]))], "others may have been set by hand");
        r.set_param("32");
        r.lmv.fetch_config().await.unwrap();
        assert_eq!(told(&r), [param("32", None)]);
    });
}

#[test]
fn a_target_that_was_deactivated_on_this_node_stays_so_until_the_configuration_says_something_new() {
    run(8, |r| async move {
        let ost = r.lmv.known_osc(1).unwrap().target.clone();
        ost.set_active(false);
        r.set_param("64");
        r.lmv.fetch_config().await.unwrap();
        assert!(!ost.is_active(), "that was about something else");
        r.set_active(1, false);
        r.lmv.fetch_config().await.unwrap();
        r.set_active(1, true);
        r.lmv.fetch_config().await.unwrap();
        assert!(ost.is_active());
        r.set_active(0, false);
        r.lmv.fetch_config().await.unwrap();
        assert_eq!(r.lmv.osc(0).await.unwrap().glimpse(1, Vec::new()).await, Err(Errno::EIO));
    });
}

#[test]
fn a_word_of_the_mgs_that_was_lost_with_its_session_is_made_up_for_when_that_is_back() {
    run(9, |mut r| async move {
        r.lmv.watch_config();
        r.world.sleep(Duration::from_secs(1)).await;
        r.c.away(r.c.mgs.at);
        r.c.add_ost().await;
        r.c.mgs.fake.place(TargetId::ost(2), r.c.osts[2].at);
        r.say_changed();
        r.world.sleep(Duration::from_secs(30)).await;
        assert!(r.lmv.known_osc(2).is_none());
        r.c.back(r.c.mgs.at);
        r.until("it is known", || r.lmv.known_osc(2).is_some()).await;
    });
}

#[test]
fn a_target_that_moved_is_asked_at_its_new_address() {
    run(10, |r| async move {
        r.lmv.watch_config();
        let (elsewhere, ost) = (ip(150), &r.c.osts[0]);
        r.lmv.osc(0).await.unwrap().glimpse(1, Vec::new()).await.unwrap();
        testing::serve(&r.c.node(150), elsewhere, ost.fake.clone()).await;
        r.c.away(ost.at);
        r.c.mgs.fake.place(TargetId::ost(0), elsewhere);
        r.say_changed();
        r.lmv.osc(0).await.unwrap().glimpse(1, Vec::new()).await.unwrap();
        let import = &r.lmv.known_osc(0).unwrap().target.import;
        assert_eq!((import.current_nid().addr, ost.fake.count(Op::Glimpse)), (elsewhere, 2));
    });
}

#[test]
fn an_answer_of_the_mgs_about_another_file_system_is_not_taken_over() {
    run(11, |r| async move {
        {
            let mut c = r.c.mgs.fake.config();
            c.fsname = "other".into();
            c.version += 1;
            c.targets.iter_mut().for_each(|t| t.active = false);
        }
        assert_eq!(r.lmv.fetch_config().await, Err(Errno::EPROTO));
        assert!(r.lmv.all_targets().iter().all(|t| t.is_active()));
    });
}

#[test]
fn where_no_trash_gives_way_nobody_is_asked_again_for_a_while() {
    run(31, |r| async move {
        r.c.mdts[0].fake.refuse(Op::Makeroom, Errno::ENOSPC, 100);
        let asked = || r.c.mdts[0].fake.count(Op::Makeroom);
        let after = async |ost: u16| {
            assert_eq!(r.lmv.make_room(ost, 1 << 20).await, Err(Errno::ENOSPC));
            asked()
        };
        assert_eq!((after(3).await, after(3).await), (1, 1), "it is known");
        assert_eq!((after(4).await, after(3).await), (2, 2), "of one target it says nothing about another");
        // What this mount removes may lie in the trash.
        r.cx.shares.removed();
        assert_eq!((after(3).await, after(3).await), (3, 3));
        // So may what others remove.
        r.world.sleep(Duration::from_secs(1)).await;
        assert_eq!(after(3).await, 4);
    });
}
