//! Versions of the configuration, the way back, and documents.

use super::*;
use crate::history::{History, KEYS, record};
use crate::pools::{PoolOrder, PoolVerb};
use crate::registration::Order;
use crate::registration::tests::Rig;
use crate::testing::entry;

/// Does `f` to the state as the service does, with a version of its own.
fn step<T>(t: &mut Rig, f: impl FnOnce(&mut Rig) -> T) -> T {
    let before = t.s.clone();
    let out = f(t);
    if t.s != before {
        let mut txn = Txn::new();
        t.s.next_version(&mut txn);
        let now = 1000 + t.s.version as i64;
        record(&before, &mut t.s, &Origin::here("test"), now, &mut txn);
        assert!(!txn.is_empty());
    }
    out
}

fn set(t: &mut Rig, name: &str, value: Option<&str>) {
    step(t, |t| t.s.set_param(name, value.unwrap_or(""), value.is_none(), &mut Txn::new())).unwrap();
}

fn order_pool(t: &mut Rig, pool: &str, verb: PoolVerb) {
    let o = PoolOrder { fsname: "demo".into(), pool: pool.into(), verb };
    step(t, |t| t.s.change_pool(&o, &mut Txn::new())).unwrap();
}

/// A file system with OSTs 0, 1 and 2, registered with versions 1 to 3.
fn three() -> Rig {
    let mut t = Rig::default();
    for (i, uuid) in [(0, 1), (1, 2), (2, 3)] {
        step(&mut t, |t| t.register("demo", 0, entry(TargetId::ost(i), uuid, 1), false)).unwrap();
    }
    assert_eq!(t.s.version, 3);
    t
}

fn restorable(f: &Facts) -> Vec<(String, String)> {
    f.iter().filter(|(s, _)| s.is_restorable()).map(|(s, v)| (s.to_string(), v.clone())).collect()
}

/// To `version`; what was left.
fn roll(t: &mut Rig, version: u64) -> Result<Vec<String>, Refused> {
    let wanted = t.s.facts_at(version)?;
    let mut notes = Vec::new();
    step(t, |t| t.s.restore(&wanted, &mut notes, &mut Txn::new()))?;
    Ok(notes)
}

#[test]
fn every_version_can_be_looked_at_and_returned_to() {
    let mut t = three();
    let mut known = vec![(t.s.version, facts(&t.s))];
    let mut then = |t: &mut Rig| known.push((t.s.version, facts(&t.s)));
    set(&mut t, "osc.*.checksums", Some("0"));
    then(&mut t);
    order_pool(&mut t, "flash", PoolVerb::New);
    then(&mut t);
    order_pool(&mut t, "flash", PoolVerb::Add(vec![0, 2]));
    then(&mut t);
    set(&mut t, "osc.*.checksums", Some("1"));
    then(&mut t);
    set(&mut t, "osc.demo-OST0001*.active", Some("0"));
    then(&mut t);
    set(&mut t, "osc.*.checksums", None);
    then(&mut t);
    for (version, all) in &known {
        assert_eq!(t.s.facts_at(*version).unwrap(), *all, "version {version}");
    }
    let active = |t: &Rig| t.s.config("demo").unwrap().targets[1].active;
    assert!(!active(&t));
    for (version, all) in known.iter().rev() {
        let notes = roll(&mut t, *version).unwrap();
        assert!(notes.iter().all(|n| n.contains("until its next start")), "version {version}: {notes:?}");
        assert_eq!(restorable(&facts(&t.s)), restorable(all), "version {version}");
    }
    assert!(active(&t), "taken back with its parameter");
    // A rollback is a change as any other, and can be taken back itself.
    let last = known.last().unwrap();
    roll(&mut t, last.0).unwrap();
    assert_eq!(restorable(&facts(&t.s)), restorable(&last.1));
    assert!(!active(&t));
    let version = t.s.version;
    roll(&mut t, version).unwrap();
    assert_eq!(t.s.version, version, "nothing changed, and so there is no new version");
}

#[test]
fn a_start_of_a_target_leaves_no_entry_and_other_addresses_do() {
    let mut t = three();
    let count = |t: &Rig| t.s.history.versions().count();
    assert_eq!(count(&t), 3);
    step(&mut t, |t| t.register("demo", 0, entry(TargetId::ost(1), 2, 2), false)).unwrap();
    assert_eq!((t.s.version, count(&t)), (4, 3));
    step(&mut t, |t| t.order("demo-OST0001", Order::Nids(vec!["10.0.0.9@tcp".parse().unwrap()]))).unwrap();
    assert_eq!((t.s.version, count(&t)), (5, 4));
    let last = t.s.history.versions().next_back().unwrap().clone();
    assert_eq!((last.version, last.time, last.changes.len()), (5, 1005, 1));
    assert!(last.changes[0].before.as_ref().unwrap().starts_with("127.0.0.1@tcp active"));
    assert!(last.changes[0].after.as_ref().unwrap().starts_with("10.0.0.9@tcp active"));
    assert_eq!(
        roll(&mut t, 4).unwrap(),
        ["target demo-OST0001: targets and their registrations stay"],
        "it is said that this is not taken back"
    );
    assert_eq!(t.s.version, 5);
}

#[test]
fn what_is_not_there_any_more_is_left_out_and_said() {
    let mut t = three();
    order_pool(&mut t, "flash", PoolVerb::New);
    order_pool(&mut t, "flash", PoolVerb::Add(vec![0, 1]));
    set(&mut t, "osc.demo-OST0001*.active", Some("0"));
    let then = t.s.version;
    step(&mut t, |t| t.order("demo-OST0001", Order::Retire)).unwrap();
    let notes = roll(&mut t, then).unwrap();
    assert_eq!(
        notes,
        [
            "pool demo.flash: there is no demo-OST0001",
            "osc.demo-OST0001*.active: demo-OST0001 is not in the configuration any more",
            "target demo-OST0001: targets and their registrations stay",
        ]
    );
    let pools = t.s.config("demo").unwrap().pools();
    assert_eq!(pools, [Pool { name: "flash".into(), osts: vec![0] }]);
}

#[test]
fn the_history_is_bounded_and_says_where_it_begins() {
    let mut t = three();
    for n in 0..HISTORY_MAX + 10 {
        set(&mut t, "osc.*.checksums", Some(&n.to_string()));
    }
    assert_eq!(t.s.history.versions().count(), HISTORY_MAX);
    let first = t.s.history.versions().next().unwrap().version;
    assert_eq!(first, 14);
    let before = t.s.facts_at(first - 1).unwrap();
    assert_eq!(before[&Subject::Param("osc.*.checksums".into())], "9");
    let (e, why) = t.s.facts_at(first - 2).unwrap_err();
    assert!(e == Errno::ENOENT && why.contains("version 13 is the first one that is known"), "{why}");
    let (_, why) = t.s.facts_at(100_000).unwrap_err();
    assert!(why.contains("there is no version 100000"), "{why}");
    for n in 0..300 {
        set(&mut t, &format!("a.b{n}"), Some(&"x".repeat(3000)));
    }
    roll(&mut t, first + 900).unwrap();
    let last = t.s.history.versions().next_back().unwrap();
    assert!(
        last.unrecorded && last.how.contains("300 changes") || last.how.contains("301 changes"),
        "{}",
        last.how
    );
    let (_, why) = t.s.facts_at(first + 900).unwrap_err();
    assert!(why.contains("too large to be kept"), "{why}");
}

#[test]
fn what_an_mgs_without_history_changed_is_a_gap() {
    let mut t = three();
    set(&mut t, "osc.*.checksums", Some("0"));
    let stored = |s: &MgsState| {
        let all = s.all().writes;
        let is_entry = |k: &[u8]| k >= &KEYS.0[..] && k < &KEYS.1[..];
        let of =
            |w: &(Vec<u8>, Option<Vec<u8>>)| is_entry(&w.0).then(|| Some((w.0.clone(), w.1.clone()?)))?;
        let entries: Vec<_> = all.iter().filter_map(of).collect();
        let covered = all.iter().find(|(k, _)| k == crate::history::covered_key());
        (covered.and_then(|(_, v)| v.clone()), entries)
    };
    let (covered, entries) = stored(&t.s);
    let read = History::read(4, covered.as_deref(), entries.clone());
    assert_eq!(read, t.s.history, "what is stored is what was there");
    // It has version 6 now, and nobody wrote down why.
    t.s.version = 6;
    t.s.history = History::read(6, covered.as_deref(), entries);
    set(&mut t, "osc.*.checksums", Some("1"));
    let (e, why) = t.s.facts_at(5).unwrap_err();
    assert!(e == Errno::ENOENT && why.contains("up to version 6 is not recorded"), "{why}");
    assert!(t.s.facts_at(6).is_ok());
    // A first start after an upgrade, and an entry of a later program.
    let h = History::read(9, None, vec![(vec![b'G', b'h', 0, 0, 0, 0, 0, 0, 0, 3], vec![77])]);
    assert_eq!(h.versions().map(|v| (v.version, v.unrecorded)).collect::<Vec<_>>(), [(3, true), (9, true)]);
    assert_eq!(History::read(0, None, Vec::new()), History::default());
}

#[test]
fn a_document_makes_the_same_configuration_again() {
    let mut t = three();
    order_pool(&mut t, "flash", PoolVerb::New);
    order_pool(&mut t, "flash", PoolVerb::Add(vec![2, 0]));
    set(&mut t, "osc.*.checksums", Some("0"));
    let d = t.s.document();
    assert_eq!(d.file_systems["demo"].targets["demo-OST0001"].nids, ["127.0.0.1@tcp"]);
    set(&mut t, "osc.*.checksums", Some("1"));
    set(&mut t, "llite.*.statfs_max_age", Some("2"));
    order_pool(&mut t, "disk", PoolVerb::New);
    let mut notes = Vec::new();
    let wanted = t.s.facts_of(&d, &mut notes).unwrap();
    step(&mut t, |t| t.s.restore(&wanted, &mut notes, &mut Txn::new())).unwrap();
    assert_eq!(Document { version: 0, ..t.s.document() }, Document { version: 0, ..d.clone() });
    assert_eq!(
        std::mem::take(&mut notes),
        ["llite.*.statfs_max_age: who runs keeps the value until its next start, as with set_param -P -d"]
    );
    // A file system that is not named keeps its pools.
    let none = Document { file_systems: BTreeMap::new(), params: BTreeMap::new(), ..d.clone() };
    let wanted = t.s.facts_of(&none, &mut notes).unwrap();
    step(&mut t, |t| t.s.restore(&wanted, &mut notes, &mut Txn::new())).unwrap();
    assert_eq!((t.s.params.len(), t.s.config("demo").unwrap().pools().len()), (0, 1));
    assert_eq!(notes[0], "file system demo: not in the document, its pools stay");
    let refused = |d: &Document| t.s.facts_of(d, &mut Vec::new()).map_err(|(e, _)| e).unwrap_err();
    assert_eq!(refused(&Document { format: 2, ..d.clone() }), Errno::EINVAL);
    let named = |fs: &str, pool: &str| {
        let pools = [(pool.to_string(), vec![1])].into();
        let fs = [(fs.to_string(), FsDocument { pools, targets: BTreeMap::new() })].into();
        Document { file_systems: fs, ..d.clone() }
    };
    assert_eq!(refused(&named("other", "flash")), Errno::ENOENT);
    assert_eq!(refused(&named("demo", "no.pool")), Errno::EINVAL);
    let bad = Document { params: [("nodots".to_string(), "1".to_string())].into(), ..d.clone() };
    let wanted = t.s.facts_of(&bad, &mut Vec::new()).unwrap();
    let (e, why) = t.s.restore(&wanted, &mut Vec::new(), &mut Txn::new()).unwrap_err();
    assert!(e == Errno::EINVAL && why.starts_with("nodots: "), "{why}");
}
