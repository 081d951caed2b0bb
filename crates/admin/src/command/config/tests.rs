//! What `nacre config` reads and prints.

use super::*;
use mgs::history::{Change, Subject, Version};
use mgs::restore::{Changes, Shown, ShownFs, ShownParam, ShownTarget};

fn given(line: &str) -> Result<ConfigOrder, i32> {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap();
    let (name, options, ..) = SUBCOMMANDS.iter().find(|(n, ..)| *n == name).unwrap();
    let rest: Vec<OsString> = words.map(OsString::from).collect();
    let p = getopt::parse(&rest, options).map_err(|f| f.exit_code())?;
    order(name, &p).map_err(|f| f.exit_code())
}

#[test]
fn orders_as_they_are_typed() {
    assert_eq!(given("show --json"), Ok(ConfigOrder::Show));
    assert_eq!(given("history"), Ok(ConfigOrder::History(20)));
    assert_eq!(given("history -n 3"), Ok(ConfigOrder::History(3)));
    assert_eq!(given("diff 3"), Ok(ConfigOrder::Diff(3, None)));
    assert_eq!(given("diff 3 5"), Ok(ConfigOrder::Diff(3, Some(5))));
    assert_eq!(given("rollback 7 -n"), Ok(ConfigOrder::Rollback(7, true)));
    assert_eq!(given("rollback 7"), Ok(ConfigOrder::Rollback(7, false)));
    for wrong in ["history -n 0", "diff x", "rollback -1", "show -n", "diff 3 x"] {
        assert_eq!(given(wrong), Err(crate::EXIT_USAGE), "{wrong}");
    }
    assert_eq!(given("import /nowhere/at/all"), Err(2));
    for wrong in ["", "nothing", "diff", "diff 1 2 3", "import", "export more"] {
        let words: Vec<OsString> = wrong.split_whitespace().map(OsString::from).collect();
        assert_eq!(command(&words).unwrap_err().exit_code(), crate::EXIT_USAGE, "{wrong}");
    }
}

#[test]
fn documents_are_read_or_refused_with_their_mistake() {
    let fine =
        r#"{"format": 1, "params": {"osc.*.active": "1"}, "file_systems": {"demo": {"pools": {"p": [1]}}}}"#;
    let d = document("f", fine.as_bytes()).unwrap();
    assert_eq!((d.params["osc.*.active"].as_str(), &d.file_systems["demo"].pools["p"][..]), ("1", &[1][..]));
    for (wrong, why) in [
        ("{", "EOF"),
        ("[]", "it has no \"format\""),
        (r#"{"format": 2, "params": {}}"#, "it has format 2, and this program reads 1"),
        (r#"{"format": 1}"#, "missing field `params`"),
        (r#"{"format": 1, "params": {}, "pools": {}}"#, "unknown field `pools`"),
        (r#"{"format": 1, "params": {"a": 1}}"#, "invalid type"),
        (r#"{"format": 1, "params": {}, "file_systems": {"d": {"pools": {"p": [70000]}}}}"#, "invalid value"),
    ] {
        let e = document("f", wrong.as_bytes()).unwrap_err();
        assert!(e.exit_code() == 22 && e.to_string().contains(why), "{wrong}: {e}");
    }
}

fn change(subject: Subject, before: Option<&str>, after: Option<&str>) -> Change {
    Change { subject, before: before.map(str::to_string), after: after.map(str::to_string) }
}

fn three() -> Vec<Change> {
    let pool = Subject::Pool { fsname: "demo".into(), pool: "flash".into() };
    vec![
        change(Subject::Param("osc.*.checksums".into()), None, Some("0")),
        change(pool, Some(""), Some("0,10")),
        change(Subject::Target("demo-OST0001".into()), Some("10.0.0.1@tcp active"), None),
    ]
}

#[test]
fn versions_are_printed_with_what_changed() {
    let one = Version {
        version: 12,
        time: 1_700_000_000,
        by: "10.0.0.5@tcp".into(),
        how: "register".into(),
        changes: three(),
        unrecorded: false,
    };
    let lost = Version {
        version: 9,
        time: 0,
        by: String::new(),
        how: "by an MGS that keeps no history".into(),
        changes: Vec::new(),
        unrecorded: true,
    };
    let text = show::text(&ConfigOrder::History(2), &ConfigAnswer::History(vec![lost, one]));
    assert_eq!(
        text,
        "version 9: what changed up to it is not recorded (by an MGS that keeps no history)\n\
         version 12  2023.11.14 22:13:20  10.0.0.5@tcp  register\n\
         \x20 + osc.*.checksums=0\n\
         \x20 ~ pool demo.flash: no OSTs -> OST0000 OST000a\n\
         \x20 - target demo-OST0001: 10.0.0.1@tcp active\n"
    );
    assert_eq!(
        show::text(&ConfigOrder::History(2), &ConfigAnswer::History(Vec::new())),
        "nothing was changed yet\n"
    );
}

#[test]
fn changes_say_whether_they_were_made() {
    let made = |applied, changes: Vec<Change>| {
        let notes = vec!["pool demo.flash: there is no demo-OST0009".into()];
        ConfigAnswer::Changes(Changes { from: 3, to: 4, changes, notes, applied })
    };
    let said = |order, answer| {
        let text = show::text(&order, &answer);
        text.lines().map(str::to_string).collect::<Vec<_>>()
    };
    let lines = said(ConfigOrder::Rollback(2, true), made(false, three()));
    assert_eq!(
        lines[3..],
        ["left: pool demo.flash: there is no demo-OST0009", "3 changes: nothing was done"]
    );
    assert_eq!(said(ConfigOrder::Rollback(2, false), made(true, three()))[4], "3 changes: version 4");
    assert_eq!(said(ConfigOrder::Rollback(2, false), made(false, Vec::new()))[1], "nothing to change");
    assert_eq!(said(ConfigOrder::Diff(3, None), made(false, Vec::new()))[1], "versions 3 and 4 are the same");
    assert_eq!(said(ConfigOrder::Diff(3, None), made(false, three())).len(), 4);
}

#[test]
fn everything_is_shown() {
    let target = ShownTarget {
        target: "demo-OST0000".into(),
        uuid: "01".into(),
        nids: vec!["10.0.0.1@tcp".into(), "10.0.0.2@tcp".into()],
        epoch: 3,
        active: false,
        domain: "10.0.0.1".into(),
        may_be_replaced: true,
    };
    let fs = ShownFs {
        fsname: "demo".into(),
        uuid: "0909".into(),
        targets: vec![target],
        removed: vec!["demo-OST0007".into()],
        pools: [("flash".to_string(), vec![0, 2])].into(),
    };
    let known = ShownParam {
        name: "osc.*.checksums".into(),
        value: "0".into(),
        version: Some(7),
        time: Some(0),
        by: Some("MGS host".into()),
    };
    let old = ShownParam { name: "a.b".into(), value: "1".into(), version: None, time: None, by: None };
    let all =
        Shown { version: 8, first_kept: Some(2), kept: 5, file_systems: vec![fs], params: vec![old, known] };
    assert_eq!(
        show::text(&ConfigOrder::Show, &ConfigAnswer::Shown(all)),
        "version 8, with the history of 5 changes from 2 on\n\
         file system demo  uuid 0909\n\
         \x20 demo-OST0000  inactive  10.0.0.1@tcp,10.0.0.2@tcp  epoch 3  domain 10.0.0.1  may be replaced\n\
         \x20 demo-OST0007  removed for good\n\
         \x20 pool flash: OST0000 OST0002\n\
         permanent parameters\n\
         \x20 a.b=1\n\
         \x20 osc.*.checksums=0   (version 7, 1970.01.01 00:00:00, MGS host)\n"
    );
}

#[test]
fn an_older_daemon_is_named() {
    let said = "request not understood: unknown variant `config`, expected one of `status`";
    let (errno, why) = refusal(22, said.into());
    assert!(errno == Errno::EOPNOTSUPP.0 && why.contains("older version"), "{why}");
    assert_eq!(refusal(2, "no such version".into()), (2, "no such version".into()));
}

#[test]
fn an_older_mgs_of_another_host_is_named() {
    let r = MgsSession::new(vec!["127.0.0.1@tcp".parse().unwrap()], 988).unwrap();
    let why = r.words(Errno::EOPNOTSUPP, None);
    assert!(why.contains("the MGS at 127.0.0.1@tcp (") && why.contains("of an older version"), "{why}");
    assert!(r.words(Errno::EPERM, None).contains("to root alone"));
    assert!(r.words(Errno::ETIMEDOUT, None).contains("no MGS answers at 127.0.0.1@tcp within 10 s"));
    assert_eq!(r.words(Errno::ENOENT, Some("there is no version 9".into())), "there is no version 9");
    let change = r.ask("config rollback", &ConfigOrder::Rollback(3, false)).unwrap_err();
    assert!(change.to_string().contains("on the node that has the MGS"), "{change}");
}

#[test]
fn where_the_mgs_is_can_be_said() {
    for wrong in ["show --mgs /", "rollback 3 --mgs 10.0.0.1@tcp", "export --mgs"] {
        let words: Vec<OsString> = wrong.split_whitespace().map(OsString::from).collect();
        assert_eq!(command(&words).unwrap_err().exit_code(), crate::EXIT_USAGE, "{wrong}");
    }
}

#[test]
fn a_long_history_is_put_together() {
    let version = |version| Version {
        version,
        time: 0,
        by: String::new(),
        how: String::new(),
        changes: Vec::new(),
        unrecorded: false,
    };
    let said = std::cell::RefCell::new(Vec::new());
    // Three in an answer; 1 to 10 are kept.
    let ask = |order: &ConfigOrder| {
        let (before, count) = match order {
            ConfigOrder::History(n) => (11, *n),
            ConfigOrder::Older(before, n) => (*before, *n),
            other => panic!("{other:?}"),
        };
        said.borrow_mut().push(order.clone());
        let first = before.saturating_sub(count.min(3) as u64).max(1);
        Ok(ConfigAnswer::History((first..before).map(version).collect()))
    };
    let numbers = |count| match whole("config history", &ConfigOrder::History(count), ask) {
        Ok(ConfigAnswer::History(h)) => h.iter().map(|v| v.version).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(numbers(2), [9, 10]);
    assert_eq!(said.borrow().len(), 1, "what is complete is not asked for again");
    assert_eq!(numbers(5), [6, 7, 8, 9, 10]);
    assert_eq!(numbers(1000), (1..=10).collect::<Vec<_>>());
    // One that answers with the same again is not asked for ever.
    let same = |_: &ConfigOrder| Ok(ConfigAnswer::History(vec![version(7)]));
    let e = whole("config history", &ConfigOrder::History(9), same).unwrap_err();
    assert!(e.to_string().contains("that were not asked for"), "{e}");
}
