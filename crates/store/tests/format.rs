//! The superblock: what is written comes back, torn or not, and every refusal says what to do.

mod common;

use common::Bed;
use model::TargetId;
use store::format::Superblock;
use store::{Db, StoreError};
use world::OpenMode;
use world::rng::Rng;

fn sample() -> Superblock {
    Superblock {
        fs_uuid: [1; 16],
        target_uuid: [2; 16],
        fsname: "nacre".into(),
        target: TargetId::ost(7),
        with_mgt: false,
        epoch: 3,
        compat: 1 << 40,
        ro_compat: 0,
        incompat: 0,
        checksum_type: store::format::CHECKSUM_CRC32C,
        block_size: 4096,
        first_time: true,
        replace: true,
        mgs_nids: vec!["10.0.0.1@tcp".parse().unwrap(), "fd00::1@tcp3".parse().unwrap()],
        service_nids: vec!["10.0.0.2@tcp".parse().unwrap()],
        fail_nids: vec![],
        params: vec![("ost.a".into(), "1".into()), ("x".into(), String::new())],
        config: b"the cached configuration".to_vec(),
        key: Some([6; 32]),
        server_key: None,
        domain: vec!["rack1".into(), "host3".into()],
    }
}

fn bed() -> Bed {
    let bed = Bed::new();
    bed.world.disk.mkdir("/t").unwrap();
    bed.world.disk.sync_dir("/").unwrap();
    bed
}

fn refusal(bed: &Bed) -> String {
    Superblock::read(&bed.world, "/t").unwrap_err().to_string()
}

#[test]
fn every_power_cut_leaves_the_old_or_the_new_one() {
    let bed = bed();
    let mut rng = Rng::new(1);
    let mut sb = sample();
    sb.write(&bed.world, "/t").unwrap();
    for epoch in 4..40 {
        let old = sb.clone();
        sb.epoch = epoch;
        sb.config = vec![epoch as u8; 100 * epoch as usize];
        bed.disk.record();
        sb.write(&bed.world, "/t").unwrap();
        for image in bed.disk.images() {
            let disk = image.disk();
            disk.crash(&mut rng);
            let got = Superblock::read(&bed.world_on(&disk), "/t").unwrap();
            assert!(got == old || got == sb, "{}", image.what);
        }
        bed.disk.crash(&mut rng);
        assert_eq!(Superblock::read(&bed.world, "/t").unwrap(), sb);
    }
}

#[test]
fn refusals_say_what_to_do() {
    let b = bed();
    assert_eq!(refusal(&b), "'/t' is not formatted: run mkfs.nacre");
    Db::create(&b.world, "/t").unwrap();
    assert!(refusal(&b).contains("half formatted") && refusal(&b).contains("run mkfs.nacre"));

    let b = bed();
    let put = |bytes: &[u8]| {
        let f = b.world.disk.open("/t/superblock", OpenMode { truncate: true, ..OpenMode::CREATE }).unwrap();
        f.write_at(bytes, 0).unwrap();
    };
    put(b"");
    assert!(refusal(&b).contains("interrupted"), "{}", refusal(&b));
    put(b"something else entirely");
    assert!(refusal(&b).contains("not a Nacre superblock"), "{}", refusal(&b));
    put(b"NACRESB1\x09\0\0\0rest");
    assert!(refusal(&b).contains("cut short"), "{}", refusal(&b));
    put(&[b"NACRESB1\x09\0\0\0".as_slice(), &[0; 200]].concat());
    assert!(refusal(&b).contains("format version 9"), "{}", refusal(&b));

    let b = bed();
    let sb = Superblock { incompat: 0x20, ..sample() };
    sb.write(&b.world, "/t").unwrap();
    assert!(refusal(&b).contains("incompat 0x20"), "{}", refusal(&b));
    let sb = Superblock { ro_compat: 4, ..sample() };
    sb.write(&b.world, "/t").unwrap();
    let got = Superblock::read(&b.world, "/t").unwrap();
    assert!(got.check_writable("/t").unwrap_err().to_string().contains("ro-compat 0x4"));
}

#[test]
fn a_flipped_bit_is_noticed_and_the_other_copy_counts() {
    let b = bed();
    let old = sample();
    old.write(&b.world, "/t").unwrap();
    let len = b.world.disk.open("/t/superblock", OpenMode::READ).unwrap().stat().unwrap().len;
    for at in 0..len {
        let disk = b.disk.fork();
        disk.corrupt("/t/superblock", at, 0x10).unwrap();
        assert!(Superblock::read(&b.world_on(&disk), "/t").is_err(), "byte {at}");
    }
    let new = Superblock { epoch: 4, ..sample() };
    new.write(&b.world, "/t").unwrap();
    b.disk.corrupt("/t/superblock.1", 60, 1).unwrap();
    assert_eq!(Superblock::read(&b.world, "/t").unwrap(), old);
    new.write(&b.world, "/t").unwrap();
    assert_eq!(Superblock::read(&b.world, "/t").unwrap(), new);
}

#[test]
fn unknown_tagged_values_are_kept() {
    let b = bed();
    sample().write(&b.world, "/t").unwrap();
    let f = b.world.disk.open("/t/superblock", OpenMode::WRITE).unwrap();
    let mut bytes = vec![0; f.stat().unwrap().len as usize];
    f.read_at(&mut bytes, 0).unwrap();
    let tag = [0x77, 0x77, 0, 0, 3, 0, 0, 0, b'n', b'e', b'w'];
    bytes.extend_from_slice(&tag);
    let len = bytes.len() as u32;
    bytes[16..20].copy_from_slice(&len.to_le_bytes());
    let crc = wire::frame::crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    f.write_at(&bytes, 0).unwrap();
    for _ in 0..2 {
        Superblock::read(&b.world, "/t").unwrap().write(&b.world, "/t").unwrap();
    }
    for name in ["superblock", "superblock.1"] {
        let f = b.world.disk.open(&format!("/t/{name}"), OpenMode::READ).unwrap();
        let mut bytes = vec![0; f.stat().unwrap().len as usize];
        f.read_at(&mut bytes, 0).unwrap();
        assert!(bytes.windows(tag.len()).any(|w| w == tag), "{name}");
    }
}

#[test]
fn one_server_holds_a_target() {
    let b = bed();
    let held = Superblock::lock(&b.world, "/t").unwrap();
    let e = Superblock::lock(&b.world, "/t").err().unwrap();
    assert!(matches!(e, StoreError::Refused(_)) && e.to_string().contains("is in use by"), "{e}");
    drop(held);
    Superblock::lock(&b.world, "/t").unwrap();

    // On the host the holder's process is named.
    let (world, _rt) = world::real::start(1).unwrap();
    let dir = env!("CARGO_TARGET_TMPDIR");
    let held = Superblock::lock(&world, dir).unwrap();
    let e = Superblock::lock(&world, dir).err().unwrap().to_string();
    let stat = world.disk.open("/proc/self/stat", OpenMode::READ).unwrap();
    let mut buf = [0; 64];
    let n = stat.read_at(&mut buf, 0).unwrap();
    let pid = String::from_utf8_lossy(&buf[..n]).split_whitespace().next().unwrap().to_string();
    assert!(e.contains(&format!("pid {pid} on host ")), "{e}");
    drop(held);
}

/// Names of hosts, and a target that has no index yet: an older program is told to upgrade, until they are
/// gone.
#[test]
fn what_an_older_program_must_not_take_for_something_else_is_marked() {
    let b = bed();
    let plain = sample();
    let incompat = |b: &Bed| {
        let file = b.world.disk.open("/t/superblock", OpenMode::READ).unwrap();
        let other = b.world.disk.open("/t/superblock.1", OpenMode::READ);
        // The copy that was written last has the higher generation.
        let of = |f: &dyn world::DiskFile| {
            let mut bytes = [0; 56];
            f.read_at(&mut bytes, 0).unwrap();
            let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            (number(24), number(48))
        };
        let last = other.map(|o| of(o.as_ref())).unwrap_or_default().max(of(file.as_ref()));
        last.1
    };
    plain.write(&b.world, "/t").unwrap();
    assert_eq!(incompat(&b), 0);
    let named =
        Superblock { mgs_nids: vec!["mds05@tcp1".parse().unwrap(), "10.0.0.1".parse().unwrap()], ..sample() };
    named.write(&b.world, "/t").unwrap();
    assert_eq!(incompat(&b), 8);
    assert_eq!(Superblock::read(&b.world, "/t").unwrap(), named);
    let new = Superblock { target: TargetId::ost(model::target::INDEX_UNASSIGNED), ..sample() };
    new.write(&b.world, "/t").unwrap();
    assert_eq!(incompat(&b), 16);
    assert_eq!(Superblock::read(&b.world, "/t").unwrap(), new);
    plain.write(&b.world, "/t").unwrap();
    assert_eq!(incompat(&b), 0, "the marks go with what they mark");
}
