//! Values of the table that belong to the store: objects, tombstones, reply slots.

use super::Target;

pub const TARGET: Target = Target {
    name: "store_record",
    what: "object records, tombstones, reply slots",
    run: store::fuzz::values,
    samples: store::fuzz::values_samples,
    fix: None,
    words: &[],
    max_bytes: 2048,
};
