//! What is fuzzed: one file a decoder.

mod acl;
mod connect;
mod control;
mod fuse_request;
mod journal;
mod lov_md;
mod mds_record;
mod message;
mod mgs_record;
mod oss_record;
mod store_record;
mod superblock;
mod text;
mod wire_frame;

/// One decoder.
pub struct Target {
    pub name: &'static str,
    pub what: &'static str,
    /// Must neither panic nor allocate without bound, whatever the bytes; may assert what must hold.
    pub run: fn(&[u8]),
    /// Valid inputs to start from.
    pub samples: fn() -> Vec<Vec<u8>>,
    /// Makes checksums right again, so that what lies behind them is reached.
    pub fix: Option<fn(&mut Vec<u8>)>,
    /// Byte strings that mean something to the decoder.
    pub words: &'static [&'static [u8]],
    pub max_bytes: usize,
}

pub const ALL: &[Target] = &[
    wire_frame::TARGET,
    connect::TARGET,
    message::REQUEST,
    message::REPLY,
    superblock::TARGET,
    journal::RECORD,
    journal::TRANSACTION,
    journal::REPLAY,
    store_record::TARGET,
    mds_record::TARGET,
    mgs_record::TARGET,
    oss_record::TARGET,
    fuse_request::TARGET,
    control::TARGET,
    acl::TARGET,
    lov_md::TARGET,
    text::TARGET,
];

pub fn find(name: &str) -> Option<&'static Target> {
    ALL.iter().find(|t| t.name == name)
}

/// Decodes postcard bytes as `T`; what decodes must encode and decode to the same again.
fn round_trip<T>(bytes: &[u8])
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    if let Ok((v, _)) = postcard::take_from_bytes::<T>(bytes) {
        let again = postcard::to_stdvec(&v).expect("plain data encodes");
        assert_eq!(postcard::from_bytes::<T>(&again).as_ref(), Ok(&v));
    }
}

/// A world for decoders that read from a disk: nothing in it is asked but the disk.
fn world_with(disk: &world::mem::MemDisk) -> world::World {
    use std::sync::OnceLock;
    static HOST: OnceLock<(world::World, world::real::Runtime)> = OnceLock::new();
    let (host, _) = HOST.get_or_init(|| world::real::start(1).expect("threads start"));
    world::World { disk: std::sync::Arc::new(disk.clone()), ..host.clone() }
}

/// Makes a folder with one file in it.
fn put_file(disk: &world::mem::MemDisk, path: &str, bytes: &[u8]) {
    use world::{Disk, OpenMode};
    let dir = path.rsplit_once('/').map_or("/", |(d, _)| d);
    let mut at = String::new();
    for part in dir.split('/').filter(|p| !p.is_empty()) {
        at = format!("{at}/{part}");
        let _ = disk.mkdir(&at);
    }
    let file = disk.open(path, OpenMode::CREATE).expect("a disk in memory takes it");
    file.write_at(bytes, 0).expect("a disk in memory takes it");
}
