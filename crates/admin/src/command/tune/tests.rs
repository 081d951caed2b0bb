use super::*;

/// A host in a folder of the test.
struct Fake {
    host: Host,
    state: PathBuf,
}

impl Fake {
    fn new(name: &str) -> Fake {
        let root = std::env::temp_dir().join(format!("nacre-{name}-{}", std::process::id()));
        let _ = sys::files::remove_tree(&root);
        let f = Fake { host: Host { root: root.join("host") }, state: root.join("state") };
        for (path, text) in [
            ("proc/meminfo", "MemTotal:       16777216 kB\n"),
            ("proc/sys/net/core/rmem_max", "212992\n"),
            ("proc/sys/net/core/wmem_max", "268435456\n"),
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic\n"),
            ("proc/sys/net/ipv4/tcp_congestion_control", "reno\n"),
            ("proc/sys/vm/dirty_ratio", "40\n"),
            ("sys/block/sda/queue/scheduler", "[none] mq-deadline kyber\n"),
            ("sys/block/sda/queue/rotational", "1\n"),
            ("sys/block/sda/queue/read_ahead_kb", "128\n"),
            ("sys/block/sda/queue/optimal_io_size", "1048576\n"),
            ("sys/block/sda/queue/write_cache", "write back\n"),
            ("sys/block/sda/sda1/partition", "1\n"),
            ("sys/block/sda/sda1/start", "63\n"),
            ("sys/block/sdb/queue/scheduler", "[none] mq-deadline\n"),
            ("sys/block/sdb/queue/rotational", "1\n"),
            ("sys/block/md0/md/level", "raid6\n"),
            ("sys/block/md0/md/chunk_size", "131072\n"),
            ("sys/block/md0/md/raid_disks", "10\n"),
            ("sys/block/md0/md/stripe_cache_size", "256\n"),
            ("sys/block/md0/slaves/sda1/x", ""),
            ("sys/block/dm-0/dm/name", "vg-ost\n"),
            ("sys/block/dm-0/slaves/md0/x", ""),
        ] {
            let at = f.host.root.join(path);
            sys::files::create_dir_all(at.parent().unwrap()).unwrap();
            sys::files::replace(&at, text.as_bytes()).unwrap();
        }
        f
    }

    fn disks(&self, source: &str) -> BTreeSet<Disk> {
        let each = |name| Disk { name, folder: PathBuf::from("/") };
        self.host.disks_of(source).into_iter().map(each).collect()
    }

    /// Without parameters of ours.
    fn items(&self, p: Profile, source: &str) -> Vec<Item> {
        let mut all = self.host.kernel(p);
        all.extend(self.host.queues(p, &self.disks(source)));
        all
    }

    fn value(&self, path: &str) -> String {
        self.host.read(path).unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = sys::files::remove_tree(self.state.parent().unwrap());
    }
}

fn better(items: &[Item]) -> Vec<(String, &str)> {
    items.iter().filter_map(|i| Some((i.place.shown(), i.better.as_deref()?))).collect()
}

#[test]
fn only_disks_under_the_target_are_looked_at() {
    let f = Fake::new("tune-disks");
    let names = |source: &str| f.host.disks_of(source).into_iter().collect::<Vec<_>>();
    assert_eq!(names("/dev/sda1"), ["sda"]);
    assert_eq!(names("/dev/mapper/vg-ost"), ["dm-0", "md0", "sda"]);
    assert_eq!(names("/dev/sdc"), [""; 0]);
    assert_eq!(names("/dev/../proc"), [""; 0]);
    assert_eq!(names("tmpfs"), [""; 0]);
    let items = f.items(Profile::Throughput, "/dev/md0");
    assert!(items.iter().all(|i| !i.place.shown().starts_with("sdb")), "it is somebody else's");
}

#[test]
fn values_are_compared_with_the_profile() {
    let f = Fake::new("tune-values");
    let items = f.items(Profile::Throughput, "/dev/md0");
    assert_eq!(
        better(&items),
        [
            ("net.core.rmem_max".to_string(), "33554432"),
            ("net.ipv4.tcp_rmem".to_string(), "4096\t131072\t33554432"),
            ("net.ipv4.tcp_congestion_control".to_string(), "cubic"),
            ("vm.dirty_ratio".to_string(), "20"),
            ("md0/md/stripe_cache_size".to_string(), "8192"),
            ("sda/queue/scheduler".to_string(), "mq-deadline"),
            ("sda/queue/read_ahead_kb".to_string(), "4096"),
        ]
    );
    let rmem = &items[0];
    assert_eq!(rmem.place.by_hand(&rmem.now), "sysctl -w net.core.rmem_max='212992'");
    let lines = item_lines(rmem);
    assert_eq!(lines[0], "change  net.core.rmem_max = 212992 -> 33554432");
    assert!(lines[1].starts_with("          why:  ") && lines[2].ends_with("net.core.rmem_max='212992'"));
    let wan = f.items(Profile::Wan, "/dev/none");
    assert!(better(&wan).contains(&("net.ipv4.tcp_congestion_control".into(), "cubic")), "there is no BBR");
    let none = f.items(Profile::Small, "/dev/none");
    assert_eq!(better(&none).len(), 2, "{:?}", better(&none));
}

#[test]
fn what_was_applied_is_undone_but_for_what_others_changed() {
    let f = Fake::new("tune-undo");
    let items = f.items(Profile::Throughput, "/dev/sda1");
    let done = saved::apply(&f.host, &f.state, "throughput", &items).unwrap();
    assert!(done.iter().all(|o| *o == Outcome::Done) && done.len() == 6, "{done:?}");
    assert_eq!(f.value("proc/sys/net/core/rmem_max"), "33554432");
    assert_eq!(f.value("sys/block/sdb/queue/scheduler"), "[none] mq-deadline");
    // Another profile afterwards keeps what was there at first.
    let again = f.items(Profile::Wan, "/dev/sda1");
    saved::apply(&f.host, &f.state, "wan", &again).unwrap();
    assert_eq!(f.value("proc/sys/net/core/rmem_max"), "134217728");
    sys::files::overwrite(&f.host.root.join("proc/sys/vm/dirty_ratio"), b"15\n").unwrap();
    sys::files::remove_file(f.host.root.join("sys/block/sda/queue/read_ahead_kb")).unwrap();
    let all = saved::undo(&f.host, &f.state).unwrap();
    let of = |name: &str| all.iter().find(|(c, _)| c.place.shown() == name).map(|(_, o)| o.clone());
    assert_eq!(of("vm.dirty_ratio"), Some(Outcome::Left { now: "15".into() }));
    assert_eq!(of("sda/queue/read_ahead_kb"), Some(Outcome::Gone));
    assert_eq!(of("net.core.rmem_max"), Some(Outcome::Done));
    assert_eq!(f.value("proc/sys/net/core/rmem_max"), "212992");
    assert_eq!(f.value("proc/sys/net/ipv4/tcp_rmem"), "4096\t131072\t6291456");
    let said = saved::undo(&f.host, &f.state).unwrap_err().to_string();
    assert!(said.contains("nothing was applied, or all of it is undone"), "{said}");
    sys::files::replace(saved::path(&f.state), b"{}").unwrap();
    assert!(saved::undo(&f.host, &f.state).is_err(), "a damaged file is no reason to set anything");
}

#[test]
fn what_no_setting_mends_is_noted() {
    let f = Fake::new("tune-notes");
    let notes = f.host.alignment("/dev/sda1", &f.host.disks_of("/dev/sda1"));
    assert!(notes.len() == 1 && notes[0].is_bad && notes[0].text.contains("byte 32256"), "{notes:?}");
    let notes = f.host.alignment("/dev/md0", &f.host.disks_of("/dev/md0"));
    assert!(notes.len() == 1 && !notes[0].is_bad && notes[0].text.contains("8 disks with data"), "{notes:?}");
    sys::files::overwrite(&f.host.root.join("sys/block/md0/md/raid_disks"), b"9\n").unwrap();
    assert!(f.host.alignment("/dev/md0", &f.host.disks_of("/dev/md0"))[0].is_bad);
    let note = flush_note(&f.host, "sda", Some(5000.0)).unwrap();
    assert!(
        note.is_bad && note.text.starts_with("cache: write back; 5000 flushes a second; it lies"),
        "{note:?}"
    );
    let mut found = Found { items: f.items(Profile::Wan, "/dev/sda1"), notes: vec![note] };
    narrow(&mut found, Some("net.ipv4,vm.")).unwrap();
    assert!(found.notes.is_empty() && found.items.iter().all(|i| !i.place.shown().starts_with("net.core")));
    assert!(narrow(&mut found, Some("nothing")).is_err());
}

#[test]
fn parameters_of_every_mount_are_compared() {
    let read = |pattern: &str| match pattern {
        "osc.*.max_rpcs_in_flight" => vec![
            ("osc.a-OST0000-osc-1.max_rpcs_in_flight".to_string(), "8\n".to_string()),
            ("osc.a-OST0001-osc-1.max_rpcs_in_flight".to_string(), "64\n".to_string()),
        ],
        "osc.*.checksums" => vec![("osc.a-OST0000-osc-1.checksums".to_string(), "0\n".to_string())],
        _ => Vec::new(),
    };
    let items = own(Profile::Wan, read);
    assert_eq!(
        better(&items),
        [
            ("osc.a-OST0000-osc-1.checksums".to_string(), "1"),
            ("osc.a-OST0000-osc-1.max_rpcs_in_flight".to_string(), "64"),
        ]
    );
    assert_eq!(items[1].place.by_hand("8"), "lctl set_param osc.a-OST0000-osc-1.max_rpcs_in_flight=8");
}

#[test]
fn one_order_and_a_profile_are_asked_for() {
    let refused = |line: &str| {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        run(&args).expect_err(line).to_string()
    };
    assert_eq!(refused("--profile wan"), "say one of --check, --apply, --undo");
    assert_eq!(refused("--check --undo"), "say one of --check, --apply, --undo");
    assert!(refused("--check").starts_with("--profile is missing: throughput, "));
    assert_eq!(
        refused("--apply --profile fast"),
        "'fast' is no profile: throughput, iops, wan, login-node, small"
    );
    assert_eq!(refused("--undo --profile wan"), "'--profile' says nothing to 'nacre tune --undo'");
    assert_eq!(refused("--check --profile wan --state x"), "'--state' says nothing to 'nacre tune --check'");
}
