//! The changelog: what of each change is told, to whom, and how long; over restarts.

use super::*;
use ::model::changelog::{Mask, Order, Record, RecordKind, flags};
use ::model::{SetTime, Timestamp};
use std::time::Duration;
use wire::msg::batch::{Batch, BatchOp};
use wire::msg::changelog::{Changelog, ChangelogReply};
use wire::msg::changelogclear::Changelogclear;
use wire::msg::mknod::Mknod;
use wire::msg::rename::{RENAME_EXCHANGE, RENAME_NOREPLACE};
use wire::msg::setxattr::Setxattr;

const R: Fid = Fid::ROOT;

fn order(rig: &Rig, o: &Order) -> Result<String, Errno> {
    block_on(crate::changelog_order(&rig.mdt, o)).map_err(|(e, _)| e)
}

fn register(rig: &Rig, name: &str, mask: &str) -> Result<String, Errno> {
    let mask = (!mask.is_empty()).then(|| mask.to_string());
    order(rig, &Order::Register { name: name.into(), mask })
}

fn deregister(rig: &Rig, consumer: &str) -> Result<String, Errno> {
    order(rig, &Order::Deregister { consumer: consumer.into() })
}

fn ask(start: u64, consumer: &str) -> Changelog {
    Changelog { start, end: 0, consumer: consumer.into(), mask: Mask::NONE, told: false }
}

fn page(rig: &Rig, m: Changelog) -> Result<ChangelogReply, Errno> {
    rig.root(m)
}

/// All records from `start` on, as a consumer or as anybody sees them.
fn read(rig: &Rig, start: u64, consumer: &str) -> Vec<Record> {
    let (mut m, mut all) = (ask(start, consumer), Vec::new());
    loop {
        let p = page(rig, m.clone()).unwrap();
        all.extend(p.records);
        if p.end {
            return all;
        }
        assert!(p.next > m.start, "it goes on");
        m.start = p.next;
    }
}

/// Types with their names.
fn said(rs: &[Record]) -> Vec<String> {
    let one = |r: &Record| format!("{} {}", r.kind.word(), String::from_utf8_lossy(&r.name));
    rs.iter().map(|r| one(r).trim_end().to_string()).collect()
}

fn clear(rig: &Rig, consumer: &str, end: u64) -> Result<(), Errno> {
    rig.root(Changelogclear { consumer: consumer.into(), end })
}

fn set(rig: &Rig, name: &str, value: &str) {
    block_on(rig.mdt.set_params(&format!("mdd.*.{name}"), value)).unwrap();
}

fn get(rig: &Rig, name: &str) -> String {
    rig.mdt.get_params(&format!("mdd.*.{name}"))[0].1.clone()
}

fn until(rig: &Rig, what: &str, mut f: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if f() {
            return;
        }
        block_on(rig.world.sleep(Duration::from_millis(5)));
    }
    panic!("it never was so: {what}");
}

fn stored(rig: &Rig) -> u64 {
    check::check(&rig.mdt.db).unwrap().log_records
}

fn make(rig: &Rig, files: u32) {
    for i in 0..files {
        rig.create(R, &format!("f{i}"));
    }
}

/// After the restart both clients are back.
fn back(rig: &Rig) {
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    until(rig, "recovered", || !rig.mdt.recovering());
}

#[test]
fn every_kind_of_change_has_its_record() {
    let rig = Rig::new();
    rig.create(R, "before");
    assert_eq!(register(&rig, "", "ALL").unwrap(), "cl1");
    let d = rig.mkdir(R, "d");
    let f = rig.create(d, "f");
    rig.root(msg::symlink::Symlink { parent: d, name: b"s".to_vec(), fid: rig.fid(), target: b"x".to_vec() })
        .unwrap();
    let fifo = Mknod {
        parent: d,
        name: b"p".to_vec(),
        fid: rig.fid(),
        mode: 0o600,
        umask: 0,
        kind: FileType::Fifo,
        rdev: 0,
    };
    rig.root(fifo).unwrap();
    rig.link(f, R, "l").unwrap();
    rig.write(f, 0, b"data").unwrap();
    let root = Cred::root();
    rig.chmod(f, 0o600);
    rig.setattr(&root, f, SetAttr { size: Some(1), ..SetAttr::default() }).unwrap();
    let t = Some(SetTime::At(Timestamp { sec: 5, nsec: 0 }));
    rig.setattr(&root, f, SetAttr { mtime: t, ..SetAttr::default() }).unwrap();
    rig.root(Setxattr { fid: f, name: b"user.a".to_vec(), value: b"v".to_vec(), flags: 0, kill_sgid: false })
        .unwrap();
    rig.root(msg::removexattr::Removexattr { fid: f, name: b"user.a".to_vec() }).unwrap();
    let h = rig.open(f, 2);
    rig.close(f, h);
    rig.rename((R, "l"), (d, "m"), 0).unwrap();
    rig.unlink(d, "f").unwrap();
    rig.unlink(d, "m").unwrap();
    let e = rig.mkdir(R, "e");
    rig.rmdir(R, "e").unwrap();
    let all = read(&rig, 0, "");
    let want = [
        "MARK test-MDT0000",
        "MKDIR d",
        "CREAT f",
        "SLINK s",
        "MKNOD p",
        "HLINK l",
        "MTIME",
        "SATTR",
        "TRUNC",
        "MTIME",
        "XATTR",
        "XATTR",
        "OPEN",
        "CLOSE",
        "RENME m",
        "UNLNK f",
        "UNLNK m",
        "MKDIR e",
        "RMDIR e",
    ];
    assert_eq!(said(&all), want);
    assert_eq!(all.iter().map(|r| r.index).collect::<Vec<_>>(), (1..=want.len() as u64).collect::<Vec<_>>());
    let by = |kind: RecordKind| all.iter().find(|r| r.kind == kind).unwrap();
    assert_eq!((by(RecordKind::Mkdir).fid, by(RecordKind::Mkdir).parent), (d, R));
    assert_eq!(by(RecordKind::Setattr).flags, flags::MODE | flags::CTIME);
    assert_eq!(by(RecordKind::Truncate).flags, flags::SIZE | flags::CTIME);
    assert_eq!(by(RecordKind::Setxattr).xattr, b"user.a");
    assert_eq!((by(RecordKind::Open).open_flags, by(RecordKind::Close).flags), (2, 2));
    let moved = by(RecordKind::Rename);
    let source = moved.source.as_ref().unwrap();
    assert_eq!((moved.fid, moved.parent, source.fid, source.parent), (Fid::NONE, d, f, R));
    assert_eq!(source.name, b"l");
    let unlinks: Vec<u16> = all.iter().filter(|r| r.kind == RecordKind::Unlink).map(|r| r.flags).collect();
    assert_eq!(unlinks, [0, flags::LAST_NAME]);
    assert_eq!(by(RecordKind::Rmdir).fid, e);
    assert!(all.iter().skip(1).all(|r| r.by.nid == "127.0.0.1@tcp".parse().ok()));
    assert_eq!(rig.assert_clean().log_records, all.len() as u64);
}

#[test]
fn renames_over_something_and_exchanges_say_what_became_of_it() {
    let rig = Rig::new();
    register(&rig, "", "RENME").unwrap();
    let (a, b, c) = (rig.create(R, "a"), rig.create(R, "b"), rig.create(R, "c"));
    rig.link(c, R, "also-c").unwrap();
    rig.rename((R, "a"), (R, "b"), 0).unwrap();
    rig.rename((R, "b"), (R, "c"), 0).unwrap();
    let d = rig.mkdir(R, "d");
    rig.rename((R, "c"), (R, "d"), RENAME_EXCHANGE).unwrap();
    assert_eq!(rig.rename((R, "d"), (R, "c"), RENAME_NOREPLACE), Err(Errno::EEXIST));
    rig.link(a, R, "same").unwrap();
    rig.rename((R, "d"), (R, "same"), 0).unwrap();
    let all = read(&rig, 0, "");
    let short = |r: &Record| {
        let s = r.source.as_ref().unwrap();
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        (s.fid, text(&s.name), text(&r.name), r.fid, r.flags)
    };
    let want = vec![
        (a, "a".into(), "b".into(), b, flags::LAST_NAME),
        (a, "b".into(), "c".into(), c, 0),
        (a, "c".into(), "d".into(), Fid::NONE, 0),
        (d, "d".into(), "c".into(), Fid::NONE, 0),
    ];
    assert_eq!(all.iter().map(short).collect::<Vec<_>>(), want, "two names of one file have nothing to tell");
    rig.assert_clean();
}

#[test]
fn who_did_it_and_when_is_told() {
    let rig = Rig::new();
    register(&rig, "", "").unwrap();
    let d = rig.mkdir_as(&Cred::root(), R, "d", 0o777).unwrap().attr.fid;
    let m = create_msg(d, "f", rig.fid(), 0o644);
    let mut req = rig.incoming(A, &user(7), &m);
    req.ctx.jobid = format!("cp.{}", "7".repeat(100));
    let at = Timestamp::from_nanos(rig.world.wall().as_nanos() - 5_000_000);
    req.ctx.client_time = at;
    block_on(rig.mdt.clone().handle(req)).status.unwrap();
    let r = read(&rig, 0, "").pop().unwrap();
    assert_eq!((r.by.uid, r.by.gid, r.time), (7, 7, at));
    assert_eq!(r.by.jobid, format!("cp.{}", "7".repeat(60)), "cut to its bound");
}

#[test]
fn what_an_owner_tells_has_a_record_each_with_its_own_time_and_user() {
    let rig = Rig::new();
    register(&rig, "", "").unwrap();
    let d = rig.mkdir_as(&Cred::root(), R, "d", 0o777).unwrap().attr.fid;
    let own =
        msg::own::Own { dir: d, cookie: 0, max_bytes: 1 << 16, children: false, knows_limits: true.into() };
    assert!(rig.root(own).unwrap().dir.grant.is_some_and(|g| g.exclusive));
    let at = |ms: i128| Timestamp::from_nanos(rig.world.wall().as_nanos() - ms * 1_000_000);
    let (t1, t2) = (at(20), at(10));
    let op = |name: &str, cred: u16, time: Timestamp| {
        let m = Create { open: None, ..create_msg(d, name, rig.fid(), 0o644) };
        BatchOp { cred, time, ..BatchOp::plain(Create::OP as u16, postcard::to_stdvec(&m).unwrap()) }
    };
    let ops = vec![op("a", 0, t1), op("a", 0, t1), op("b", 1, t2)];
    let batch = Batch { ops, owned: true, creds: vec![user(5), user(6)] };
    rig.call_bulk(&batch, Bytes::new()).unwrap();
    let all = read(&rig, 3, "");
    assert_eq!(said(&all), ["CREAT a", "CREAT b"], "the one that failed has none");
    assert_eq!(all.iter().map(|r| (r.by.uid, r.time)).collect::<Vec<_>>(), [(5, t1), (6, t2)]);
}

#[test]
fn nothing_is_recorded_for_nobody_and_nothing_that_nobody_wants() {
    let rig = Rig::new();
    rig.create(R, "a");
    assert_eq!((read(&rig, 0, "").len(), stored(&rig)), (0, 0));
    assert_eq!(register(&rig, "robin", "CREAT,UNLNK").unwrap(), "cl1-robin");
    rig.create(R, "b");
    rig.mkdir(R, "c");
    rig.unlink(R, "b").unwrap();
    assert_eq!(said(&read(&rig, 0, "")), ["CREAT b", "UNLNK b"]);
    // Another consumer wants the rest as well; each is shown what it asked for.
    assert_eq!(register(&rig, "", "+OPEN,-CREAT").unwrap(), "cl2");
    assert_eq!(register(&rig, "robin", ""), Err(Errno::EEXIST));
    rig.create(R, "d");
    rig.mkdir(R, "e");
    assert_eq!(said(&read(&rig, 3, "")), ["CREAT d", "MKDIR e"]);
    assert_eq!(said(&read(&rig, 0, "cl1")), ["CREAT b", "UNLNK b", "CREAT d"]);
    assert_eq!(said(&read(&rig, 0, "cl2")), ["MKDIR e"]);
    let only = Changelog { mask: Mask::parse("MKDIR", Mask::NONE).unwrap(), ..ask(0, "") };
    assert_eq!(said(&page(&rig, only).unwrap().records), ["MKDIR e"]);
    assert_eq!(register(&rig, "", "NOTHING"), Err(Errno::EINVAL));
    assert_eq!(register(&rig, "9lives", ""), Err(Errno::EINVAL));
    // The default mask is that of consumers without one of their own.
    register(&rig, "third", "").unwrap();
    assert!(get(&rig, "changelog_current_mask").contains("SATTR"));
    deregister(&rig, "cl2").unwrap();
    set(&rig, "changelog_mask", "MKDIR RMDIR");
    assert_eq!(get(&rig, "changelog_current_mask"), "CREAT MKDIR UNLNK RMDIR");
    deregister(&rig, "cl3-third").unwrap();
    assert_eq!(get(&rig, "changelog_current_mask"), "CREAT UNLNK");
    assert_eq!(deregister(&rig, "cl3"), Err(Errno::ENOENT));
}

#[test]
fn records_go_when_every_consumer_cleared_them() {
    let rig = Rig::new();
    register(&rig, "", "CREAT").unwrap();
    register(&rig, "", "CREAT").unwrap();
    make(&rig, 1200);
    assert!(get(&rig, "changelog_size").parse::<u64>().unwrap() > 1200 * 50);
    assert_eq!(clear(&rig, "cl1", 1201), Err(Errno::EINVAL), "there is no such record yet");
    assert_eq!(clear(&rig, "cl7", 1), Err(Errno::ENOENT));
    clear(&rig, "cl1", 1100).unwrap();
    assert_eq!(read(&rig, 0, "cl1").len(), 100);
    assert_eq!((read(&rig, 0, "cl2").len(), stored(&rig)), (1200, 1200));
    clear(&rig, "cl1", 5).unwrap();
    assert_eq!(read(&rig, 0, "cl1").len(), 100, "what is cleared stays so");
    clear(&rig, "cl2", 700).unwrap();
    until(&rig, "freed", || stored(&rig) == 500);
    assert_eq!(read(&rig, 0, "")[0].index, 701);
    rig.assert_clean();
    clear(&rig, "cl2", 0).unwrap();
    clear(&rig, "cl1", 0).unwrap();
    until(&rig, "freed", || stored(&rig) == 0);
    assert_eq!(get(&rig, "changelog_size"), "0");
    rig.create(R, "again");
    assert_eq!(read(&rig, 0, "")[0].index, 1201, "indexes are never given again");
    deregister(&rig, "cl1").unwrap();
    deregister(&rig, "cl2").unwrap();
    until(&rig, "freed", || stored(&rig) == 0);
    rig.create(R, "nobody cares");
    assert_eq!(register(&rig, "", "CREAT").unwrap(), "cl3", "nor are numbers of consumers");
    rig.create(R, "more");
    assert_eq!(read(&rig, 0, "").iter().map(|r| r.index).collect::<Vec<_>>(), [1202]);
    rig.assert_clean();
}

#[test]
fn a_consumer_goes_on_where_it_was_after_a_restart() {
    let mut rig = Rig::new();
    register(&rig, "robin", "CREAT").unwrap();
    make(&rig, 10);
    clear(&rig, "cl1", 4).unwrap();
    until(&rig, "freed", || stored(&rig) == 6);
    for seed in 1..4 {
        // But for how long nobody heard of them.
        let users = |s: String| s.split(['(', ')']).step_by(2).collect::<String>();
        let before = users(get(&rig, "changelog_users"));
        rig.crash(seed);
        back(&rig);
        assert_eq!(users(get(&rig, "changelog_users")), before);
        rig.create(R, &format!("g{seed}"));
        let all = read(&rig, 0, "cl1-robin");
        assert_eq!(all.iter().map(|r| r.index).collect::<Vec<_>>(), (5..=10 + seed).collect::<Vec<_>>());
        rig.assert_clean();
    }
    // All of it was freed: indexes go on all the same.
    clear(&rig, "cl1", 0).unwrap();
    until(&rig, "freed", || stored(&rig) == 0);
    rig.crash(9);
    back(&rig);
    rig.create(R, "h");
    assert_eq!(read(&rig, 0, "cl1").iter().map(|r| r.index).collect::<Vec<_>>(), [14]);
    rig.assert_clean();
}

#[test]
fn a_record_is_there_exactly_when_its_change_is() {
    // Changes that are answered when they are executed: power fails before some of them are durable.
    for seed in 1..20 {
        let mut rig = Rig::new();
        register(&rig, "", "CREAT UNLNK").unwrap();
        block_on(rig.mdt.set_params("mdt.*.ack", "exec")).unwrap();
        for i in 0..seed {
            rig.create(R, &format!("f{i}"));
        }
        rig.crash(seed);
        back(&rig);
        let mut told: Vec<String> =
            read(&rig, 0, "").iter().map(|r| String::from_utf8(r.name.clone()).unwrap()).collect();
        told.sort();
        assert_eq!(told, rig.names(R));
        rig.assert_clean();
    }
}

#[test]
fn only_root_may_look_and_clear() {
    let rig = Rig::new();
    register(&rig, "", "").unwrap();
    assert_eq!(rig.call(A, &user(5), ask(0, "")), Err(Errno::EPERM));
    let m = Changelogclear { consumer: "cl1".into(), end: 0 };
    assert_eq!(rig.call(A, &user(5), m), Err(Errno::EPERM));
    block_on(rig.mdt.set_params("mdt.*.root_squash", "99:99")).unwrap();
    assert_eq!(rig.root(ask(0, "")), Err(Errno::EPERM), "root of a host that is squashed is nobody here");
    assert_eq!(rig.root(ask(0, "cl9")).err(), Some(Errno::EPERM));
}

#[test]
fn consumers_are_shown_as_lustre_shows_them() {
    let rig = Rig::new();
    assert_eq!(
        get(&rig, "changelog_users"),
        "current_index: 0\nID                            index (idle) mask\n"
    );
    register(&rig, "", "").unwrap();
    register(&rig, "robin", "CREAT,UNLNK").unwrap();
    let users = get(&rig, "changelog_users");
    let lines: Vec<&str> = users.lines().collect();
    assert_eq!(lines[0], "current_index: 1");
    assert!(lines[2].starts_with("cl1                           0 ("), "{users}");
    assert!(
        lines[3].starts_with("cl2-robin                     1 (") && lines[3].ends_with(") mask=CREAT,UNLNK")
    );
    assert_eq!(get(&rig, "changelog_mask"), Mask::DEFAULT_WORDS);
    assert_eq!(page(&rig, ask(0, "cl9")), Err(Errno::ENOENT));
    assert_eq!(page(&rig, ask(0, "clown")), Err(Errno::EINVAL));
}

#[test]
fn who_is_away_for_too_long_is_dropped() {
    let rig = Rig::new();
    set(&rig, "changelog_min_gc_interval", "0");
    register(&rig, "", "CREAT").unwrap();
    register(&rig, "", "CREAT").unwrap();
    make(&rig, 5);
    clear(&rig, "cl2", 3).unwrap();
    set(&rig, "changelog_max_idle_indexes", "4");
    until(&rig, "cl1 is dropped", || !get(&rig, "changelog_users").contains("cl1 "));
    until(&rig, "freed", || stored(&rig) == 2);
    assert!(get(&rig, "changelog_users").contains("cl2 "));
    // Who has nothing to clear is not away, however long it says nothing.
    clear(&rig, "cl2", 0).unwrap();
    set(&rig, "changelog_max_idle_time", "1");
    block_on(rig.world.sleep(Duration::from_millis(2100)));
    set(&rig, "changelog_gc", "1");
    block_on(rig.world.sleep(Duration::from_millis(50)));
    assert!(get(&rig, "changelog_users").contains("cl2 "));
    rig.create(R, "g");
    set(&rig, "changelog_gc", "0");
    set(&rig, "changelog_max_idle_indexes", "1000");
    block_on(rig.world.sleep(Duration::from_millis(50)));
    assert!(get(&rig, "changelog_users").contains("cl2 "), "nobody is dropped");
    set(&rig, "changelog_gc", "1");
    until(&rig, "cl2 is dropped", || !get(&rig, "changelog_users").contains("cl2 "));
    until(&rig, "freed", || stored(&rig) == 0);
    rig.assert_clean();
}

#[test]
fn the_log_takes_no_more_room_than_it_may() {
    let rig = Rig::new();
    register(&rig, "slow", "CREAT").unwrap();
    register(&rig, "quick", "CREAT").unwrap();
    set(&rig, "changelog_max_bytes", "4096");
    let mut i = 0;
    until(&rig, "the slow one is dropped", || {
        rig.create(R, &format!("f{i}"));
        clear(&rig, "cl2", 0).unwrap();
        i += 1;
        !get(&rig, "changelog_users").contains("cl1-slow")
    });
    assert!(i > 20 && get(&rig, "changelog_users").contains("cl2-quick"));
    until(&rig, "freed", || get(&rig, "changelog_size").parse::<u64>().unwrap() < 4096);
    rig.assert_clean();
}

#[test]
fn who_wants_to_know_of_opens_knows_of_all_of_them() {
    let rig = Rig::new();
    let f = rig.create(R, "f");
    let open = |cred: &Cred, lease| {
        let open = OpenSpec { handle: rig.handle(), flags: 1, lease };
        rig.call(A, cred, msg::open::Open { fid: f, open, data: 0 })
    };
    assert!(open(&Cred::root(), true).unwrap().grant.is_some(), "and further opens ask nobody");
    register(&rig, "audit", "OPEN CLOSE NOPEN GXATR").unwrap();
    assert_eq!(rig.mdt.shared.leases.total(), 0, "what mounts had is taken back");
    assert!(open(&Cred::root(), true).unwrap().grant.is_none());
    assert_eq!(open(&user(5), true), Err(Errno::EACCES));
    assert_eq!(open(&user(5), true), Err(Errno::EACCES));
    rig.root(Setxattr { fid: f, name: b"user.a".to_vec(), value: b"v".to_vec(), flags: 0, kill_sgid: false })
        .unwrap();
    rig.root(msg::getxattr::Getxattr { fid: f, name: b"user.a".to_vec() }).unwrap();
    let all = read(&rig, 0, "");
    assert_eq!(said(&all), ["OPEN", "NOPEN", "GXATR"], "who is denied twice is told of once a minute");
    assert_eq!((all[0].flags, all[0].open_flags, all[1].by.uid), (1, 1, 5));
    assert_eq!((all[2].xattr.as_slice(), all[2].fid), (&b"user.a"[..], f));
    deregister(&rig, "cl1").unwrap();
    assert!(open(&Cred::root(), true).unwrap().grant.is_some());
}

#[test]
fn a_long_log_is_read_in_pages() {
    let rig = Rig::new();
    register(&rig, "", "CREAT").unwrap();
    make(&rig, 2500);
    let first = page(&rig, ask(0, "")).unwrap();
    assert!(!first.end && first.records.len() == 2000 && first.next == 2001);
    assert_eq!(read(&rig, 0, "").len(), 2500);
    let some = page(&rig, Changelog { end: 12, ..ask(10, "") }).unwrap();
    assert_eq!((some.records.len(), some.next, some.end), (3, 13, true));
    let nothing = page(&rig, ask(2501, "")).unwrap();
    assert_eq!((nothing.records.len(), nothing.next, nothing.end), (0, 2501, true));
}
