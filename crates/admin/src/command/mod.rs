//! One module a command.

pub mod check;
pub mod checksum;
pub mod copy;
pub mod data_version;
pub mod df;
pub mod dl;
pub mod fid2path;
pub mod find;
pub mod get_param;
pub mod getname;
pub mod getstripe;
pub mod ladvise;
pub mod list_nids;
pub mod migrate;
pub mod mkfs;
pub mod osts;
pub mod path2fid;
pub mod ping;
pub mod pool;
pub mod recovery;
pub mod registration;
pub mod report;
pub mod set_param;
pub mod setstripe;
pub mod sync;
pub mod tunefs;
