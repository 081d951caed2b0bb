//! Servers that are sought by their hosts' names.

use super::*;
use crate::look_up;
use model::HostNid;

fn named(all: &[&str]) -> Vec<HostNid> {
    all.iter().map(|n| n.parse().unwrap()).collect()
}

#[test]
fn a_host_whose_address_changed_is_found_again() {
    let lab = Lab::new(1);
    let (client, _) = node(&lab, 9);
    let (first, first_id) = node(&lab, 1);
    let (second, _) = node(&lab, 2);
    lab.name("mds05", &[ip(1)]);
    let (disk, seen): (Arc<Mutex<Disk>>, Arc<Mutex<Seen>>) = Default::default();
    let kill = lab.clone();
    lab.run(async {
        let peers = Peers::new();
        let service = Counter::start(&first, TargetId::ost(0), &disk, &seen);
        serve(&first, 1, vec![service], &peers).await;
        let i = Import::new(client.clone(), config(7, TargetId::ost(0), &[]));
        i.seek(named(&["mds05@tcp0", "nowhere"]));
        assert_eq!(set(&i, "a").await.unwrap(), "1");
        assert!(i.unknown_hosts().is_some_and(|w| w.contains("nowhere@tcp")), "{:?}", i.unknown_hosts());
        kill.kill(first_id, ip(1));
        kill.name("mds05", &[ip(2)]);
        let service = Counter::start(&second, TargetId::ost(0), &disk, &seen);
        serve(&second, 2, vec![service], &peers).await;
        assert!(get(&i, "a").await.is_ok());
        assert_eq!(i.current_nid().addr, ip(2));
        i.disconnect().await;
    });
}

#[test]
fn one_that_says_nothing_is_passed_over_within_a_second() {
    let lab = Lab::new(2);
    let (client, _) = node(&lab, 9);
    let (server, _) = node(&lab, 2);
    lab.name("dead", &[ip(1)]);
    lab.name("alive", &[ip(2)]);
    lab.silence(ip(1), true);
    let (disk, seen): (Arc<Mutex<Disk>>, Arc<Mutex<Seen>>) = Default::default();
    lab.run(async {
        serve(&server, 2, vec![Counter::start(&server, TargetId::ost(0), &disk, &seen)], &Peers::new()).await;
        let i = Import::new(client.clone(), config(7, TargetId::ost(0), &[]));
        i.seek(named(&["dead", "alive"]));
        let begun = client.now();
        assert_eq!(set(&i, "a").await.unwrap(), "1");
        let took = client.now().since(begun);
        assert!(took <= Duration::from_secs(1), "{took:?}");
        i.disconnect().await;
    });
}

#[test]
fn names_are_looked_up_in_order_and_none_twice() {
    let lab = Lab::new(3);
    let (client, _) = node(&lab, 9);
    lab.name("two", &[ip(3), ip(4)]);
    // As Debian has it for the host itself.
    lab.name("own", &["127.0.1.1".parse().unwrap(), ip(4)]);
    lab.run(async {
        let found = look_up(&client, &named(&["10.0.0.9@tcp1", "two@tcp2", "own@tcp2", "gone"])).await;
        let nid = |n: u8, net| Nid { addr: ip(n), net };
        assert_eq!(found.nids, [nid(9, 1), nid(3, 2), nid(4, 2)]);
        let [(host, why)] = &found.unknown[..] else { panic!("{found:?}") };
        assert!(host.to_string() == "gone@tcp" && why.contains("no host of this name"), "{why}");
    });
}
