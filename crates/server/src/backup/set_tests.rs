use super::*;
use model::TargetId;
use world::Disk;
use world::mem::MemDisk;

type Table = BTreeMap<Vec<u8>, Vec<u8>>;

fn rig() -> (World, Arc<MemDisk>, world::real::Runtime) {
    let (mut world, rt) = world::real::start(1).unwrap();
    let disk = Arc::new(MemDisk::new());
    world.disk = disk.clone();
    (world, disk, rt)
}

fn manifest(before: &[Generation]) -> Manifest {
    Manifest {
        format: FORMAT,
        target: "scratch-MDT0000".into(),
        uuid: "11".repeat(16),
        kind: "mdt".into(),
        epoch: 3,
        lsn: 7 + before.len() as u64,
        taken: 1_700_000_000,
        stopped: false,
        barrier: true,
        generation: before.len() as u32,
        follows: before.last().map(|g| g.crc),
        view: Some(5),
        tables: BTreeMap::new(),
    }
}

fn add(set: &Set, changes: &[(&[u8], Option<&[u8]>)]) -> Manifest {
    let before = set.generations().unwrap();
    let sb = Superblock::fresh(TargetId::mdt(0), "scratch".into(), [0x11; 16]);
    let mut w = set.begin(manifest(&before), &sb).unwrap();
    assert_eq!(w.table("table").unwrap(), None);
    changes.iter().for_each(|(k, v)| w.push(k, *v).unwrap());
    w.finish().unwrap()
}

fn content(set: &Set, generations: &[Generation]) -> Result<Table, String> {
    content_behind(set, generations, None)
}

fn content_behind(set: &Set, generations: &[Generation], after: Option<&[u8]>) -> Result<Table, String> {
    let mut from = Merged::of(set, generations, "table", after)?;
    let mut all = Table::new();
    while let Some((k, v)) = from.next()? {
        assert!(all.last_key_value().is_none_or(|(last, _)| *last < k), "in order");
        all.insert(k, v);
    }
    Ok(all)
}

fn table(pairs: &[(&str, &str)]) -> Table {
    pairs.iter().map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())).collect()
}

#[test]
fn generations_add_up_and_each_is_there_still() {
    let (world, _, _rt) = rig();
    let set = Set::open(&world, "/out", true).unwrap();
    add(&set, &[(b"a", Some(b"1")), (b"b", Some(b"2")), (b"c", Some(b""))]);
    add(&set, &[(b"a", None), (b"b", Some(b"3")), (b"d", Some(b"4"))]);
    let all = set.generations().unwrap();
    assert_eq!(all.iter().map(|g| g.manifest.pairs()).collect::<Vec<_>>(), [3, 3]);
    assert_eq!(content(&set, &all[..1]).unwrap(), table(&[("a", "1"), ("b", "2"), ("c", "")]));
    assert_eq!(content(&set, &all).unwrap(), table(&[("b", "3"), ("c", ""), ("d", "4")]));
    let behind = |key: &[u8]| content_behind(&set, &all, Some(key)).unwrap();
    assert_eq!(behind(b"b"), table(&[("c", ""), ("d", "4")]));
    assert_eq!((behind(b"c"), behind(b"d")), (table(&[("d", "4")]), Table::new()));
    assert_eq!(all[1].label(&set).unwrap().fsname, "scratch");
    assert!(all.iter().all(|g| g.damage(&set).is_empty() && g.manifest.view.is_none()));
}

#[test]
fn what_is_damaged_or_missing_is_named() {
    let (world, disk, _rt) = rig();
    let set = Set::open(&world, "/out", true).unwrap();
    add(&set, &[(b"a", Some(b"1"))]);
    add(&set, &[(b"b", Some(b"2"))]);
    let part = disk.open("/out/0001/table-000000", OpenMode::WRITE).unwrap();
    part.write_at(b"x", 17).unwrap();
    let all = set.generations().unwrap();
    let bad = all[1].damage(&set);
    assert!(
        bad.len() == 1 && bad[0].contains("/out/0001/table-000000") && bad[0].contains("checksum"),
        "{bad:?}"
    );
    assert!(content(&set, &all).is_err() && content(&set, &all[..1]).is_ok());
    part.set_len(9).unwrap();
    assert!(all[1].damage(&set)[0].contains("it has 9 bytes"));
    let m = disk.open("/out/0001/manifest", OpenMode::WRITE).unwrap();
    m.write_at(b"?", 30).unwrap();
    let why = set.generations().unwrap_err();
    assert!(why.contains("/out/0001/manifest") && why.contains("checksum differs"), "{why}");
    disk.rename("/out/0001", "/out/0002").unwrap();
    assert!(set.generations().unwrap_err().contains("0001 is missing"));
}

#[test]
fn an_interrupted_copy_goes_on_behind_what_is_written_and_is_no_backup_before_its_end() {
    let (world, _, _rt) = rig();
    let set = Set::open(&world, "/out", true).unwrap();
    let sb = Superblock::fresh(TargetId::mdt(0), "scratch".into(), [0x11; 16]);
    let mut w = set.begin(manifest(&[]), &sb).unwrap();
    w.table("table").unwrap();
    let large = vec![7; PART_BYTES];
    w.push(b"a", Some(&large)).unwrap();
    w.push(b"b", Some(b"lost")).unwrap();
    drop(w);
    assert!(set.generations().unwrap().is_empty());
    let begun = set.partial(0).unwrap();
    assert_eq!((begun.view, begun.pairs()), (Some(5), 1));
    let mut w = set.begin(begun, &sb).unwrap();
    assert_eq!(w.table("table").unwrap(), Some(b"a".to_vec()));
    w.push(b"b", Some(b"2")).unwrap();
    w.finish().unwrap();
    let all = set.generations().unwrap();
    assert_eq!(content(&set, &all).unwrap().len(), 2);
    // A part that lies before the key is not looked at.
    assert_eq!(content_behind(&set, &all, Some(b"a")).unwrap(), table(&[("b", "2")]));
    // One that is given up leaves nothing.
    let w = set.begin(manifest(&all), &sb).unwrap();
    drop(w);
    set.drop_partial(1).unwrap();
    assert!(set.partial(1).is_none() && set.generations().unwrap().len() == 1);
}
