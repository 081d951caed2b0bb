//! What is fuzzed: one file a decoder.

mod connect;
mod message;
mod oss_record;
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
    oss_record::TARGET,
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
