//! Targets that are stopped, in folders of their own.

use super::super::set::{FORMAT, Part};
use super::super::{Taken, kept_of, take};
use super::*;
use admin::command::mkfs;
use model::TargetId;
use std::collections::BTreeMap;

/// Pairs of each table: some parts and transactions of them.
const PAIRS: u32 = 3000;

struct Bed {
    world: World,
    runtime: world::real::Runtime,
    dir: String,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = files::remove_tree(&self.dir);
    }
}

impl Bed {
    /// An MDT and the MGT in its folder, started once.
    fn new(name: &str) -> Bed {
        let (world, runtime) = world::real::start(1).unwrap();
        let dir = std::env::temp_dir().join(format!("nacre-backup-{}-{name}", std::process::id()));
        let _ = files::remove_tree(&dir);
        files::create_dir_all(&dir).unwrap();
        let bed = Bed { world, runtime, dir: dir.to_str().unwrap().to_string() };
        let mut sb = Superblock::fresh(TargetId::mdt(0), "demo".into(), [3; 16]);
        sb.with_mgt = true;
        mkfs::format(&bed.world, &bed.path("mdt"), &sb).unwrap();
        sb.epoch = 1;
        sb.write(&bed.world, &bed.path("mdt")).unwrap();
        for table in ["mdt", "mdt/mgt"] {
            let db = Db::open(&bed.world, &bed.path(table), 1, DbOptions::default()).unwrap();
            bed.runtime.block_on(async {
                for some in (0..PAIRS).collect::<Vec<_>>().chunks(500) {
                    let mut txn = Txn::new();
                    some.iter().for_each(|n| txn.put(key(*n), vec![7; 1000]));
                    db.durable(db.submit(txn).unwrap()).await.unwrap();
                }
                db.close().await.unwrap();
            });
        }
        bed
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    fn backup(&self, kind: Kind, of: &str) -> Result<Taken, String> {
        let (target, out) = (self.path(of), self.path("out"));
        let to = (&Interrupt::default(), &ProgressLine::none());
        self.runtime.block_on(take(&self.world, kind, (&target, &out), false, to))
    }

    /// How many records are there after it.
    fn restore(&self, keep_clients: bool, work: impl AsyncFnOnce(&mut Work<'_>)) -> Result<u64, String> {
        let set = Set::open(&self.world, &self.path("out"), false)?;
        let (used, dir) = (set.generations()?, self.path("new"));
        let mut sb = used[0].label(&set)?;
        sb.epoch += if keep_clients { 1 } else { 500 };
        let (i, line) = (Interrupt::default(), ProgressLine::none());
        self.runtime.block_on(async {
            let mut w = Work {
                world: &self.world,
                set: &set,
                used: &used,
                m: &used[0].manifest,
                keep_clients,
                kind: Kind::Mdt,
                dir: &dir,
                sb: &sb,
                i: &i,
                line: &line,
                pairs: 0,
                starts: 0,
            };
            work(&mut w).await;
            w.run().await?;
            Ok(w.pairs)
        })
    }
}

fn key(n: u32) -> Vec<u8> {
    format!("~{n:08}").into_bytes()
}

#[test]
fn a_run_that_goes_on_copies_the_mgt_beside_it_anew() {
    let part = Part { name: "x-000000".into(), bytes: 1, crc: 2, pairs: 3, last: "aa".into() };
    let tables = BTreeMap::from([(TABLE.to_string(), vec![part.clone()]), (MGT.to_string(), vec![part])]);
    let begun = |lsn| Manifest {
        format: FORMAT,
        target: "demo-MDT0000".into(),
        uuid: "03".repeat(16),
        kind: "mdt".into(),
        epoch: 1,
        lsn,
        taken: 0,
        stopped: false,
        barrier: true,
        generation: 0,
        follows: None,
        view: Some(5),
        tables: tables.clone(),
    };
    let kept = kept_of(Some(begun(7)), &begun(7)).unwrap();
    assert_eq!(kept.keys().collect::<Vec<_>>(), [TABLE]);
    assert_eq!(kept_of(Some(begun(6)), &begun(7)), None, "another moment of the MDT");
    assert_eq!(kept_of(None, &begun(7)), None);
}

#[test]
fn an_mgt_within_an_mdts_folder_is_copied_with_the_mdt_only() {
    let bed = Bed::new("within");
    let refused = bed.backup(Kind::Mgt, "mdt").err().unwrap();
    assert!(refused.contains("is copied by 'nacre backup mdt'"), "{refused}");
    let refused = bed.backup(Kind::OstLabels, "mdt").err().unwrap();
    assert!(refused.contains("demo-MDT0000 is no target for 'nacre backup ost-labels'"), "{refused}");
    let taken = bed.backup(Kind::Mdt, "mdt").unwrap();
    assert_eq!(taken.manifest.tables.keys().collect::<Vec<_>>(), [MGT, TABLE]);
    assert_eq!(taken.manifest.pairs(), 2 * u64::from(PAIRS));
}

#[test]
fn a_target_that_was_started_once_is_restored_with_its_clients() {
    let bed = Bed::new("once");
    bed.backup(Kind::Mdt, "mdt").unwrap();
    assert_eq!(bed.restore(true, async |_| {}), Ok(2 * u64::from(PAIRS)));
    let sb = Superblock::read(&bed.world, &bed.path("new")).unwrap();
    assert_eq!((sb.epoch, sb.with_mgt), (2, true));
}

#[test]
fn a_restore_that_goes_on_counts_what_is_there_already() {
    let bed = Bed::new("again");
    bed.backup(Kind::Mdt, "mdt").unwrap();
    // As one leaves it that ends behind a note.
    let interrupted = bed.restore(false, async |w| {
        w.begin().unwrap();
        w.fill(MGT, None).await.unwrap();
        w.fill(TABLE, None).await.unwrap();
        w.pairs -= 1000;
        w.write_note(TABLE, &key(PAIRS - 1001)).unwrap();
        w.pairs = 0;
    });
    assert_eq!(interrupted, Ok(2 * u64::from(PAIRS)));
}
