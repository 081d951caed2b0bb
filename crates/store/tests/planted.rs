//! The planted bug of this crate that its own tests find. A process of its own: the switch is global.

mod common;

use common::{Bed, killed_with_value, tear, tiny};
use model::planted::{self, Bug};
use store::Db;
use store::fuzz::forged_journal;

#[test]
fn records_without_a_look_at_the_salt_are_found() {
    let bed = Bed::new();
    let log = killed_with_value(&bed, |_, _| forged_journal(60_000, 0, 0));
    tear(&bed, &log, 1024);
    planted::plant(Some(Bug::ForgedJournalBytes));
    let e = Db::open(&bed.world, "/t", 2, tiny()).err().expect("a target that does not start").to_string();
    assert!(e.contains("is damaged"), "{e}");
    planted::plant(None);
    Db::open(&bed.world, "/t", 2, tiny()).unwrap();
}
