//! The client against an etcd in memory, in virtual time.

use crate::fake::{Fake, Member};
use crate::{Compare, Error, Etcd, Lease, Op};
use rpc::testing::Lab;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use world::World;
use world::mem::MemDisk;

fn site(members: usize) -> (Lab, World, Fake, Arc<Etcd>) {
    let lab = Lab::new(1);
    let (w, _) = lab.node(IpAddr::from([10, 0, 0, 1]), Arc::new(MemDisk::new()));
    let fake = Fake::new(&w, members);
    let w = fake.reach(&w);
    let etcd = Etcd::new(&w, &fake.url().parse().unwrap());
    (lab, w, fake, etcd)
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn keys_are_set_listed_and_changed_under_conditions() {
    let (lab, _, fake, e) = site(1);
    lab.run(async {
        assert_eq!(e.key("a"), "/test/a");
        e.put("/test/a", b"1", 0).await.unwrap();
        let a = e.get("/test/a").await.unwrap().unwrap();
        assert_eq!((a.value.as_slice(), a.lease), (b"1".as_slice(), 0));
        assert_eq!(e.get("/test/b").await.unwrap(), None);
        let there = Compare::Created("/test/a".into(), a.create_revision);
        let then = [Op::Put("/test/b".into(), vec![0, 255, 10], 0), Op::Get("/test/a".into())];
        let done = e.txn(std::slice::from_ref(&there), &then, &[]).await.unwrap();
        assert!(done.succeeded && done.found == [Some(a)], "{done:?}");
        let not = [there, Compare::Value("/test/b".into(), b"other".to_vec())];
        let done =
            e.txn(&not, &[], &[Op::Get("/test/c".into()), Op::Delete("/test/a".into())]).await.unwrap();
        assert!(!done.succeeded && done.found == [None]);
        assert_eq!(e.list("/test/").await.unwrap().1.len(), 1);
        // More than a page.
        for i in 0..1500 {
            e.put(&format!("/test/many/{i:04}"), b"x", 0).await.unwrap();
        }
        let all = e.list("/test/many/").await.unwrap().1;
        assert!(all.len() == 1500 && all.is_sorted_by_key(|kv| kv.key.clone()));
        e.txn(&[], &[Op::DeletePrefix("/test/many/".into())], &[]).await.unwrap();
        assert_eq!(fake.dump().len(), 1);
    });
}

#[test]
fn members_are_tried_in_turn_and_the_error_names_them() {
    let (lab, w, fake, e) = site(3);
    lab.run(async {
        fake.set(0, Member::Down);
        fake.set(1, Member::Dumb);
        e.put("/test/a", b"1", 0).await.unwrap();
        let t = w.now();
        e.put("/test/a", b"2", 0).await.unwrap();
        assert!(w.now().since(t) < Duration::from_millis(100), "the one that answered is asked first");
        fake.set(2, Member::NoLeader);
        let t = w.now();
        let said = e.put("/test/a", b"3", 0).await.unwrap_err().to_string();
        assert!(w.now().since(t) < 9 * SECOND, "it has an end");
        for part in [
            "10.9.0.1:2379: ",
            "10.9.0.2:2379: no answer",
            "10.9.0.3:2379: etcdserver: no leader",
            "majority",
        ] {
            assert!(said.contains(part), "{part} is missing: {said}");
        }
        fake.set(0, Member::Forgetful);
        let once = [Compare::Created("/test/once".into(), 0)];
        let then = [Op::Put("/test/once".into(), b"x".to_vec(), 0)];
        assert!(matches!(e.txn(&once, &then, &[]).await, Err(Error::Unreachable { .. })));
        fake.set(0, Member::Up);
        assert!(!e.txn(&once, &then, &[]).await.unwrap().succeeded, "it was made though nobody heard so");
    });
}

#[test]
fn a_lease_is_kept_until_half_a_term_without_an_answer() {
    let (lab, w, fake, e) = site(2);
    lab.run(async {
        let l = Lease::take(&e, 10 * SECOND).await.unwrap();
        e.put("/test/me", b"here", l.id()).await.unwrap();
        w.sleep(60 * SECOND).await;
        assert!(l.held() && fake.dump().len() == 1);
        fake.set(0, Member::Dumb);
        w.sleep(60 * SECOND).await;
        assert!(l.held(), "one member is enough to hear");
        fake.set(1, Member::NoLeader);
        let t = w.now();
        l.lost().await;
        let took = w.now().since(t);
        assert!(took > 3 * SECOND && took <= 5 * SECOND + Duration::from_millis(10), "{took:?}");
        fake.set_all(Member::Up);
        w.sleep(2 * SECOND).await;
        assert!(!l.held(), "what is lost stays lost");
        assert!(
            fake.dump().len() == 1 && e.get("/test/me").await.unwrap().is_some(),
            "the term is not over yet"
        );
        w.sleep(10 * SECOND).await;
        assert_eq!(e.get("/test/me").await.unwrap(), None);

        let l = Lease::take(&e, 10 * SECOND).await.unwrap();
        e.put("/test/me", b"here", l.id()).await.unwrap();
        fake.end_lease(l.id());
        let t = w.now();
        l.lost().await;
        assert!(w.now().since(t) < 2 * SECOND, "heard at the next renewal");
        assert!(e.put("/test/me", b"here", l.id()).await.is_err(), "nothing can be put under it");
        let l = Lease::take(&e, 10 * SECOND).await.unwrap();
        e.put("/test/me", b"here", l.id()).await.unwrap();
        l.end().await.unwrap();
        l.end().await.unwrap();
        assert!(!l.held() && fake.dump().is_empty());
    });
}

#[test]
fn a_watch_tells_what_changed_since() {
    let (lab, w, _, e) = site(2);
    lab.run(async {
        e.put("/test/t/a", b"1", 0).await.unwrap();
        let (at, _) = e.list("/test/t/").await.unwrap();
        let t = w.now();
        assert_eq!(e.watch("/test/t/", at + 1, 3 * SECOND).await.unwrap(), []);
        assert!(w.now().since(t) >= 3 * SECOND);
        e.put("/test/u", b"elsewhere", 0).await.unwrap();
        let (w2, e2) = (w.clone(), e.clone());
        w.spawn("later", async move {
            w2.sleep(SECOND).await;
            let gone = [Op::Delete("/test/t/a".into()), Op::Put("/test/t/b".into(), b"2".to_vec(), 0)];
            e2.txn(&[], &gone, &[]).await.unwrap();
        });
        let told = e.watch("/test/t/", at + 1, 60 * SECOND).await.unwrap();
        let words: Vec<_> = told.iter().map(|e| (e.kind.as_str(), e.kv.text().0)).collect();
        assert_eq!(words, [("DELETE", "/test/t/a".to_string()), ("", "/test/t/b".to_string())]);
    });
}
