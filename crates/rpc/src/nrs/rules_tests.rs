//! What is written to `nrs_policies` and `nrs_tbf_rule`, and what is made of it.

use super::Nrs;
use super::bucket::Alike;
use super::rules::*;
use crate::client_id::ClientId;
use model::Errno;
use std::sync::Arc;
use wire::Op;

fn subject(uid: u32, job: &str, from: &str, op: Op) -> Subject {
    let account = Account { uid, gid: uid + 1, job: job.into() };
    Subject { account, client: ClientId([1; 16]), from: from.parse().unwrap(), op }
}

fn rules(text: &str) -> Rules {
    let mut r = Rules::default();
    r.apply(&parse_orders(text).unwrap()).unwrap();
    r
}

/// The name of the rule that is for a request.
fn rule_for(r: &Rules, s: &Subject) -> Option<String> {
    let number = r.bucket_of(Policy::Fair, s)?.rule;
    r.all().iter().find(|r| r.number == number).map(|r| r.name.clone())
}

#[test]
fn policies_are_named_as_lustre_names_them() {
    for (text, policy) in [
        ("fifo", Policy::Fifo),
        ("fair", Policy::Fair),
        (" crrn ", Policy::Crrn),
        ("tbf", Policy::Tbf(TbfType::All)),
        ("tbf  jobid", Policy::Tbf(TbfType::Jobid)),
        ("tbf nid reg", Policy::Tbf(TbfType::Nid)),
        ("tbf opcode", Policy::Tbf(TbfType::Opcode)),
        ("tbf uid", Policy::Tbf(TbfType::Uid)),
        ("tbf gid", Policy::Tbf(TbfType::Gid)),
    ] {
        assert_eq!(Policy::parse(text), Ok(policy), "{text}");
    }
    for bad in ["", "reg", "orr", "FIFO", "tbf projid", "fifo hp", "tbf jobid uid", "fair fifo"] {
        assert_eq!(Policy::parse(bad), Err(Errno::EINVAL), "{bad}");
    }
}

#[test]
fn rules_are_written_as_lustre_has_them() {
    for good in [
        "start a jobid={dd.0} rate=100",
        "start a jobid={dd.* cp.?} rate=100",
        "start a nid={192.168.*.[1-128]@tcp 10.0.0.1@tcp} rate=1",
        "start a uid={500 600-610 [7-9]} rate=1000000",
        "start a gid={0} rate=5 realtime=1",
        "start a opcode={ost_read ost_write ldlm_enqueue mds_readpage mds_*} rate=7",
        "start comp opcode={ost_write}&jobid={dd.0},nid={192.168.1.[1-128]@tcp} rate=100",
        "start a uid={1} & gid={2} , jobid={x}   rate=7",
        "change a rate=5",
        "change a rank=b",
        "change default rate=5",
        "stop a",
        "start a uid={1} rate=1; start b uid={2} rate=2 rank=a\nstop c;",
    ] {
        assert!(parse_orders(good).is_ok(), "{good}");
    }
    for bad in [
        "",
        " ; ",
        "start",
        "start a",
        "start a rate=1",
        "start a uid={1}",
        "start a uid={} rate=1",
        "start a uid={x} rate=1",
        "start a uid={9-3} rate=1",
        "start a uid=1 rate=1",
        "start a uid={1 rate=1",
        "start a {1} rate=1",
        "start a projid={1} rate=1",
        "start a nid={10.0.0.1} rate=1",
        "start a opcode={ost_reed} rate=1",
        "start a uid={1}&&gid={2} rate=1",
        "start a uid={1}, rate=1",
        "start a uid={1} gid={2} rate=1",
        "start a uid={1} rate=",
        "start a uid={1} rate=x",
        "start a uid={1} rate=1 rate=2",
        "start a uid={1} rate=1 realtime=2",
        "start a uid={1} rate=1 speed=3",
        "start a/b uid={1} rate=1",
        "start sixteen_letters_ uid={1} rate=1",
        "start default uid={1} rate=1",
        "stop default",
        "stop a rate=1",
        "stop",
        "change a",
        "change a uid={1} rate=1",
        "begin a uid={1} rate=1",
        "start a uid={1} rate=1; stop",
    ] {
        assert_eq!(parse_orders(bad), Err(Errno::EINVAL), "{bad}");
    }
    for far in ["start a uid={1} rate=0", "change a rate=1000001"] {
        assert_eq!(parse_orders(far), Err(Errno::ERANGE), "{far}");
    }
}

#[test]
fn the_first_rule_that_fits_counts() {
    let mut r = rules(
        "start uids uid={500-510} rate=1; start dd jobid={dd.*} rate=2; start net nid={10.0.*.*@tcp} rate=3",
    );
    let s = |uid, job, from| subject(uid, job, from, Op::Read);
    assert_eq!(rule_for(&r, &s(505, "dd.505", "10.0.0.1")).as_deref(), Some("net"), "the newest one");
    assert_eq!(rule_for(&r, &s(505, "dd.505", "10.1.0.1")).as_deref(), Some("dd"));
    assert_eq!(rule_for(&r, &s(505, "cp.505", "10.1.0.1")).as_deref(), Some("uids"));
    assert_eq!(rule_for(&r, &s(511, "xdd.1", "fd00::1")), None);
    r.apply(&parse_orders("change uids rank=net").unwrap()).unwrap();
    assert_eq!(rule_for(&r, &s(505, "dd.505", "10.0.0.1")).as_deref(), Some("uids"));
    assert_eq!(r.apply(&parse_orders("stop net; stop nothing").unwrap()), Err(Errno::EINVAL));
    assert_eq!(r.all().len(), 3, "all of it or nothing");
    assert_eq!(
        r.apply(&parse_orders("start dd jobid={dd.*} rate=2").unwrap()),
        Ok(Vec::new()),
        "there already"
    );
    assert_eq!(r.apply(&parse_orders("start dd jobid={dd.*} rate=3").unwrap()), Err(Errno::EEXIST));
    for n in 0..RULES_MAX - 3 {
        r.apply(&parse_orders(&format!("start r{n} uid={{1}} rate=1")).unwrap()).unwrap();
    }
    assert_eq!(r.apply(&parse_orders("start more uid={1} rate=1").unwrap()), Err(Errno::E2BIG));
}

#[test]
fn conditions_bind_and_decide_who_shares_a_bucket() {
    let r = rules("start c opcode={ost_write}&jobid={dd.0},nid={10.0.0.[1-9]@tcp} rate=1");
    let fits = |job: &str, from: &str, op| rule_for(&r, &subject(1, job, from, op)).is_some();
    assert!(fits("dd.0", "10.9.9.9", Op::Write) && fits("x", "10.0.0.3", Op::Read));
    assert!(!fits("dd.0", "10.9.9.9", Op::Read) && !fits("dd.1", "10.9.9.9", Op::Write));
    let alike = |r: &Rules, p, s: &Subject| r.bucket_of(p, s).map(|b| b.alike);
    let one = subject(7, "dd.7", "10.0.0.1", Op::Read);
    let by_uid = rules("start u uid={7} rate=1");
    let only_uid = Alike::In { uid: Some(7), gid: None, job: None, from: None, op: None };
    assert_eq!(alike(&by_uid, Policy::Fair, &one), Some(only_uid));
    let none = Rules::default();
    assert_eq!(alike(&none, Policy::Fair, &one), None, "without rules nobody has a rate");
    let only_job = Alike::In { uid: None, gid: None, job: Some("dd.7".into()), from: None, op: None };
    assert_eq!(alike(&none, Policy::Tbf(TbfType::Jobid), &one), Some(only_job));
}

#[test]
fn what_is_shown_has_lustres_shape() {
    let n = Arc::new(Nrs::default());
    assert_eq!(n.rules_text(), "regular_requests:\nCPT 0:");
    n.set_policy("tbf jobid").unwrap();
    n.order("start dds jobid={dd.*}&uid={500} rate=100").unwrap();
    n.order("change default rate=500").unwrap();
    let rules = "regular_requests:\nCPT 0:\ndds jobid={dd.*}&uid={500} 100, ref 0\ndefault {*} 500, ref 0";
    assert_eq!(n.rules_text(), rules);
    let policies = "\
regular_requests:
  - name: fifo
    state: stopped
    fallback: yes
    queued: 0
    active: 0
  - name: fair
    state: stopped
    fallback: no
    queued: 0
    active: 0
  - name: crrn
    state: stopped
    fallback: no
    queued: 0
    active: 0
  - name: tbf jobid
    state: started
    fallback: no
    queued: 0
    active: 0";
    assert_eq!(n.policies_text(), policies);
    let stats = "\
nrs_stats:
  policy: tbf jobid
  places: 16
  active: 0
  queued: 0
  begun_at_once: 0
  went_ahead: 0
  classes:";
    assert_eq!(n.stats_text(), stats);
}

#[test]
fn every_parameter_holds_what_it_declares() {
    use model::param::Tree;
    use model::param::testing::every_declaration_holds;
    let n = Arc::new(Nrs::default());
    let tree = |pattern| {
        let mut t = Tree::matching(pattern);
        t.add("ost.OSS.ost_io", &super::TABLE, &n);
        t
    };
    every_declaration_holds(&tree("*.*.*.*"));
    assert_eq!(tree("ost.OSS.ost_io.nrs_policies").set("tbf uid"), Ok(()));
    assert_eq!(tree("ost.OSS.ost_io.nrs_tbf_rate").set("77"), Ok(()));
    assert_eq!(tree("ost.OSS.*.nrs_tbf_rate").texts()[0].1, "77");
    assert_eq!(tree("ost.OSS.ost_io.threads_max").set("24"), Ok(()));
    assert_eq!(tree("ost.OSS.*.nrs_places").texts()[0].1, "24");
    assert_eq!(tree("ost.OSS.ost_io.nrs_places").set("0"), Ok(()));
    assert_eq!(tree("ost.OSS.*.threads_max").texts()[0].1, "16", "what the host gives");
    assert_eq!(tree("ost.OSS.*.threads_started").texts()[0].1, "0");
    assert_eq!(tree("ost.OSS.ost_io.threads_started").set("9"), Err(Errno::EACCES));
    assert_eq!(tree("ost.OSS.ost_io.nrs_policies").set("orr"), Err(Errno::EINVAL));
    let why =
        super::TABLE.params.iter().find(|p| p.decl.name == "nrs_policies").unwrap().decl.why(Errno::EINVAL);
    assert!(why.starts_with("it does not take that: In which order requests begin"), "{why}");
}
