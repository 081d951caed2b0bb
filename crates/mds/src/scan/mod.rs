//! Looking through all inodes: which of them may be what somebody looks for (`filter`), and the ways that
//! lead to them from a directory (`paths`). A page of it is bounded in what it reads and in what it says.

mod filter;
mod page;
mod paths;

pub use filter::Filter;
#[cfg(test)]
pub use page::Bounds;
pub use page::{BOUNDS, page};
