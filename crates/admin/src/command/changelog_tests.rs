//! What is printed of records, and how they are asked for.

use super::*;
use model::Timestamp;
use model::changelog::{Origin, Source};
use std::cell::RefCell;

fn record(index: u64, kind: RecordKind) -> Record {
    Record {
        index,
        kind,
        flags: 0,
        time: Timestamp { sec: 1_514_813_151, nsec: 12_345_678 },
        fid: Fid::new(0x2_0000_0402, 1, 0),
        parent: Fid::NONE,
        name: Vec::new(),
        source: None,
        by: Origin { uid: 500, gid: 501, nid: "10.128.11.159@tcp".parse().ok(), jobid: "cp.500".into() },
        open_flags: 0,
        xattr: Vec::new(),
    }
}

fn printed(r: &Record) -> String {
    String::from_utf8(line(r)).unwrap()
}

#[test]
fn records_look_as_users_of_lustre_know_them() {
    let made = Record {
        parent: Fid::new(0x2_0000_0007, 1, 0),
        name: b"pics".to_vec(),
        ..record(1, RecordKind::Mkdir)
    };
    assert_eq!(
        printed(&made),
        "1 02MKDIR 13:25:51.012345678 2018.01.01 0x0 t=[0x200000402:0x1:0x0] j=cp.500 ef=0xf u=500:501 nid=10.128.11.159@tcp p=[0x200000007:0x1:0x0] pics\n"
    );
    let from = Source { fid: Fid::new(0x2_0000_0402, 7, 0), parent: Fid::ROOT, name: b"old".to_vec() };
    let moved = Record { fid: Fid::NONE, source: Some(from), kind: RecordKind::Rename, flags: 1, ..made };
    assert_eq!(
        printed(&moved),
        format!(
            "1 08RENME 13:25:51.012345678 2018.01.01 0x1 t=[0x0:0x0:0x0] j=cp.500 ef=0xf u=500:501 nid=10.128.11.159@tcp p=[0x200000007:0x1:0x0] pics s=[0x200000402:0x7:0x0] sp={} old\n",
            Fid::ROOT
        )
    );
    let by = Origin { jobid: String::new(), nid: None, ..record(1, RecordKind::Open).by };
    let open = Record { by, flags: 0x242, open_flags: 0o1102, ..record(2, RecordKind::Open) };
    assert_eq!(
        printed(&open),
        "2 10OPEN  13:25:51.012345678 2018.01.01 0x242 t=[0x200000402:0x1:0x0] ef=0xf u=500:501 nid=0@lo m=rw-\n"
    );
    let xattr = Record { xattr: b"user.a".to_vec(), ..record(3, RecordKind::Setxattr) };
    assert!(printed(&xattr).ends_with(" nid=10.128.11.159@tcp x=user.a\n"));
    let v = as_json(&moved);
    assert_eq!((&v["type"], &v["source"]["name"], &v["fid"]), (&json!("RENME"), &json!("old"), &json!(null)));
    assert_eq!(as_json(&open)["open_mode"], "rw-");
}

#[test]
fn dates_are_those_of_the_calendar() {
    for (sec, date, time) in [
        (0, "1970.01.01", "00:00:00"),
        (-1, "1969.12.31", "23:59:59"),
        (951_782_400, "2000.02.29", "00:00:00"),
        (951_868_799, "2000.02.29", "23:59:59"),
        (1_709_251_199, "2024.02.29", "23:59:59"),
        (4_107_542_400, "2100.03.01", "00:00:00"),
    ] {
        assert_eq!(date_and_time(sec), (date.to_string(), time.to_string()), "{sec}");
    }
}

#[test]
fn modes_of_opens_are_letters() {
    for (flags, mode) in [(0, "r--"), (1, "-w-"), (2, "rw-"), (0o40, "r-x"), (0o1101, "-w-")] {
        assert_eq!(open_mode(flags).as_deref(), Some(mode));
    }
}

fn wanted(start: u64, end: u64) -> Changelog {
    Changelog { start, end, consumer: String::new(), mask: Mask::NONE, told: true }
}

#[test]
fn pages_follow_each_other_to_the_end_that_was_wanted() {
    let asked = RefCell::new(Vec::new());
    let ask = |w: &Changelog| {
        asked.borrow_mut().push((w.start, w.end, w.told));
        let next = (w.start + 10).min(25);
        Ok(ChangelogReply { records: Vec::new(), next, end: next == 25 })
    };
    read(wanted(1, 0), false, false, ask, |_| panic!("it does not wait"), || false).unwrap();
    assert_eq!(asked.take(), [(1, 0, true), (11, 0, true), (21, 0, true)]);
}

#[test]
fn who_follows_asks_again_and_waits_for_a_server_that_restarts() {
    let (asked, waits) = (RefCell::new(0), RefCell::new(0));
    let ask = |w: &Changelog| {
        *asked.borrow_mut() += 1;
        match *asked.borrow() {
            1 => Ok(ChangelogReply { records: Vec::new(), next: 5, end: true }),
            2 => Err(Failure::op("cannot ask", "x", Errno::ETIMEDOUT)),
            _ => {
                assert_eq!((w.start, w.told), (5, false));
                Ok(ChangelogReply { records: Vec::new(), next: 9, end: true })
            }
        }
    };
    let stopped = || *waits.borrow() > 1;
    read(wanted(1, 0), true, false, ask, |_| *waits.borrow_mut() += 1, stopped).unwrap();
    assert_eq!(*asked.borrow(), 3);
    let broken = |_: &Changelog| Err(Failure::op("cannot ask", "x", Errno::EPERM));
    assert!(read(wanted(1, 0), true, false, broken, |_| {}, || false).is_err());
    let last = |_: &Changelog| Ok(ChangelogReply { records: Vec::new(), next: 8, end: true });
    read(wanted(1, 7), true, false, last, |_| panic!("that was all"), || false).unwrap();
}

#[test]
fn metadata_targets_have_names() {
    assert_eq!(index("MDT001a"), Some(0x1a));
    for wrong in ["OST0000", "MDT", "MDT0", "MDT00000", "MDTxxxx"] {
        assert_eq!(index(wrong), None, "{wrong}");
    }
    for wrong in ["demo", "demo-OST0000", "MDT0000"] {
        assert!(matches!(place(wrong), Err(Failure::Usage(_))), "{wrong}");
    }
}
