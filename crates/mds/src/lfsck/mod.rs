//! Check and repair while users work (`lctl lfsck_start`, `nacre fsck --online --repair`; decision 0080).
//!
//! `walk` goes through the table a part at a time, as `check` looks at it in a view of one moment. What seems
//! wrong there is looked at again in a transaction of its own, which waits for what clients have not told:
//! only what is wrong there as well is mended, in the same transaction (`mend`, `inode`). What cannot be put
//! back goes to a directory of its own (`found`). `objects` compares object targets with layouts, after
//! `rebuild` has put files together whose inodes are lost; `state` is how it stands, over restarts.

mod found;
mod inode;
mod mend;
mod objects;
mod outcome;
mod params;
mod rebuild;
mod state;
mod walk;

pub use params::LFSCK;
pub use state::{Lfsck, State};
pub(crate) use walk::keep;
