use super::facts::{DaemonFacts, FileFacts, FolderFacts, HaFacts, MountFacts, cib_fences};
use super::*;
use crate::health::tests::{space, target};
use crate::local::{DaemonStatus, DaemonTarget};
use model::{Errno, TargetId};

fn daemon(label: &str, state: &str) -> DaemonFacts {
    let target = DaemonTarget {
        label: label.into(),
        dir: format!("/srv/{label}"),
        state: state.into(),
        uuid: String::new(),
        epoch: 1,
        registered: true,
        clients: 0,
        recovery: None,
    };
    let status = DaemonStatus {
        pid: 7,
        started_again: 0,
        nids: Vec::new(),
        port: 988,
        targets: vec![target],
        leaving: Vec::new(),
    };
    DaemonFacts { status, version: crate::VERSION.into(), health: "healthy".into() }
}

fn mount() -> MountFacts {
    let all = [TargetId::mdt(0), TargetId::ost(0), TargetId::ost(1)];
    let space: Vec<_> = all.iter().enumerate().map(|(n, id)| space(target(*id, n as u8 + 1))).collect();
    let targets = all.iter().enumerate().map(|(n, id)| target(*id, n as u8 + 1)).collect();
    MountFacts {
        dir: "/mnt".into(),
        targets,
        space,
        version: crate::VERSION.into(),
        ahead: Default::default(),
    }
}

fn well() -> Facts {
    Facts {
        now: 1180,
        is_root: true,
        daemons: vec![daemon("demo-OST0000", "up")],
        mounts: vec![mount()],
        system_device: Some(1),
        ..Facts::default()
    }
}

/// Lines of what one check says.
fn said(f: &Facts) -> Vec<String> {
    Report::of(f).lines(true)
}

#[test]
fn nothing_is_said_of_what_is_well() {
    let r = Report::of(&well());
    let all = format!("nothing is wrong: {0} of {0} checks", CHECKS.len());
    assert_eq!(r.lines(false), [all]);
    assert_eq!((r.exit_code(), r.lines(true).len()), (0, 0));
    let nobody = Report::of(&Facts::default());
    let not = "not looked at: space: no mount answers on this host".to_string();
    assert!(nobody.lines(false).contains(&not), "{:?}", nobody.lines(false));
    assert_eq!(nobody.json()["not_looked_at"][0]["check"], "targets");
}

#[test]
fn errors_come_before_warnings_and_make_the_exit_status() {
    let mut f = well();
    f.mounts[0].space[1].available = 1 << 36;
    f.mounts[0].space[1].free = 1 << 36;
    let r = Report::of(&f);
    assert_eq!(r.exit_code(), 1);
    let lines = r.lines(true);
    assert_eq!(lines[0], "warning: space: demo-OST0000: 94 % of its space are used, 64.0G are left");
    assert_eq!(lines[1], "    try: nacre rebalance /mnt; nacre top users /mnt");
    assert_eq!(lines[2], "warning: uneven: demo-OST0000: is 94 % full, demo-OST0001 50 %");
    f.mounts[0].space[2].errno = Some(Errno::ETIMEDOUT.0);
    let r = Report::of(&f);
    assert_eq!(r.exit_code(), 2);
    let first = &r.lines(true)[0];
    assert!(
        first.starts_with("error: targets: /mnt: OST0001 (oss3, 10.0.0.3@tcp) does not answer since "),
        "{first}"
    );
    assert!(first.ends_with("3 min; reads and writes of files on it wait"), "{first}");
}

#[test]
fn what_a_server_host_has_wrong_is_named_with_what_helps() {
    let mut f = well();
    f.daemons = vec![daemon("demo-OST0000", "read-only"), daemon("demo-MDT0000", "up")];
    f.daemons[1].version = "0.0.9".into();
    f.daemons[1].health = "NOT HEALTHY\nits disk failed".into();
    let folder = |label: &str, device, available| FolderFacts {
        label: label.into(),
        dir: format!("/srv/{label}"),
        device,
        available,
    };
    f.folders = vec![folder("demo-OST0000", 5, 1 << 40), folder("demo-MDT0000", 5, 1 << 20)];
    f.files = vec![
        FileFacts { path: "/srv/a".into(), mode: 0o644, is_dir: false },
        FileFacts { path: "/srv".into(), mode: 0o755, is_dir: true },
        FileFacts { path: "/srv/b".into(), mode: 0o777, is_dir: true },
    ];
    f.ha = vec![HaFacts { who: "Pacemaker".into(), has_fencing: false }];
    let users =
        "current_index: 900\nID   index (idle) mask\ncl1   100 (90000)\ncl2   900 (90000)\ncl3   1 (5)\n";
    f.params = [
        ("mdd.demo-MDT0000.changelog_users", users),
        ("osd-nacre.demo-MDT0000.quota_slave.enabled", "u"),
        ("osd-nacre.demo-OST0000.disk_state", "write: EIO"),
        ("obdfilter.demo-OST0000.checksum_errors", "3"),
        ("obdfilter.demo-OST0000.scrub", "status: done\nbad_blocks: 2"),
        ("llite.demo-12.write_errors", "total: 4\n..."),
        ("osp.demo-OST0001-osc-MDT0000.passed_over", "not answering"),
    ]
    .map(|(n, v)| (n.to_string(), v.to_string()))
    .into();
    let lines = said(&f);
    for want in [
        "error: targets: demo-OST0000: is read-only: its disk failed",
        "error: journal: demo-MDT0000: 1.0M are left for its journal and table in /srv/demo-MDT0000",
        "error: errors: demo-12: 4 writes failed after they had been answered",
        "error: errors: demo-OST0000: takes no changes since its disk failed: write: EIO",
        "error: errors: demo-OST0000: 2 blocks are not what was written",
        "error: errors: nacred (pid 7): is not healthy: its disk failed",
        "error: fencing: Pacemaker: fences nobody: when a host does not answer, its targets stay down",
        "error: modes: /srv/a: has mode 0644: others may read or change what the target stores",
        "error: modes: /srv/b: has mode 0777: others may change what the target stores",
        "    try: chmod go-w /srv/b",
        "warning: passed-over: demo-OST0001-osc-MDT0000: gets no new objects: not answering",
        "warning: disks: demo-OST0000, demo-MDT0000: share one disk: they fail, fill and slow each other together",
        "warning: errors: demo-OST0000: 3 checksums were wrong, as the server counted: bytes change on the way",
        "warning: quota: demo-MDT0000: limits of groups, projects are not enforced, if there are any",
        "warning: changelog: demo-MDT0000: consumer cl1 has read nothing for 25 h, 800 records are kept for it",
    ] {
        assert!(lines.iter().any(|l| l == want), "{want} in {lines:#?}");
    }
    let versions =
        format!("warning: versions: nacred (pid 7): runs version 0.0.9, this program is {}", crate::VERSION);
    assert!(lines.contains(&versions), "{lines:#?}");
    assert!(
        !lines.iter().any(|l| l.contains("cl2") || l.contains("cl3") || l.contains("/srv:")),
        "{lines:#?}"
    );
}

#[test]
fn fences_of_pacemaker_count_unless_they_are_off() {
    let on = "<nvpair name=\"stonith-enabled\" value=\"true\"/><primitive class=\"stonith\" type=\"fence_ipmilan\"/>";
    assert!(cib_fences(on));
    assert!(!cib_fences(&on.replace("\"true\"", "\"false\"")));
    assert!(!cib_fences("<primitive class=\"ocf\" provider=\"nacre\"/>"));
}

#[test]
fn wrong_usage_is_four_and_every_check_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = CHECKS.iter().map(|c| c.name).collect();
    assert_eq!(names.len(), CHECKS.len());
    assert_eq!(main(&["--nonsense".into()]), EXIT_USAGE);
    assert_eq!(main(&["--list".into(), "/mnt".into()]), EXIT_USAGE);
    assert_eq!(main(&["/proc".into()]), 2);
}
