//! The messages of etcd in their JSON form: 64-bit numbers are text, bytes are base64, what is zero is left
//! out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};

pub fn b64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub fn int<'a, D: Deserializer<'a>, T: std::str::FromStr>(d: D) -> Result<T, D::Error> {
    let v = serde_json::Value::deserialize(d)?;
    let text = v.as_str().map(str::to_string).unwrap_or_else(|| v.to_string());
    text.parse().map_err(|_| serde::de::Error::custom(format!("'{text}' is no number")))
}

fn bytes<'a, D: Deserializer<'a>>(d: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(d)?;
    STANDARD.decode(text).map_err(serde::de::Error::custom)
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
pub struct Header {
    #[serde(deserialize_with = "int")]
    pub revision: i64,
}

/// A key and what it holds.
#[derive(Deserialize, Default, Debug, Clone, PartialEq, Eq)]
#[serde(default)]
pub struct Kv {
    #[serde(deserialize_with = "bytes")]
    pub key: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    pub value: Vec<u8>,
    /// Revision of the change that made it: of a key that was removed and made anew, the later one.
    #[serde(deserialize_with = "int")]
    pub create_revision: i64,
    #[serde(deserialize_with = "int")]
    pub mod_revision: i64,
    /// Lease with which it goes; 0: none.
    #[serde(deserialize_with = "int")]
    pub lease: i64,
}

impl Kv {
    /// Key and value as text.
    pub fn text(&self) -> (String, String) {
        (String::from_utf8_lossy(&self.key).into_owned(), String::from_utf8_lossy(&self.value).into_owned())
    }
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
pub struct Range {
    pub header: Header,
    pub kvs: Vec<Kv>,
    pub more: bool,
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
pub struct Response {
    pub response_range: Option<Range>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
pub struct TxnReply {
    pub header: Header,
    pub succeeded: bool,
    pub responses: Vec<Response>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
pub struct LeaseReply {
    #[serde(rename = "ID", deserialize_with = "int")]
    pub id: i64,
    #[serde(rename = "TTL", deserialize_with = "int")]
    pub ttl: i64,
}

/// One message of a stream.
#[derive(Deserialize, Debug)]
pub struct Streamed<T> {
    pub result: Option<T>,
    pub error: Option<serde_json::Value>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
pub struct WatchReply {
    pub header: Header,
    pub canceled: bool,
    #[serde(deserialize_with = "int")]
    pub compact_revision: i64,
    pub events: Vec<Event>,
}

/// A change that a watch tells.
#[derive(Deserialize, Default, Debug, Clone, PartialEq, Eq)]
#[serde(default)]
pub struct Event {
    /// `DELETE`; nothing for a put.
    #[serde(rename = "type")]
    pub kind: String,
    pub kv: Kv,
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
pub struct Refusal {
    pub error: String,
    pub message: String,
    pub code: i64,
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
pub struct Token {
    pub token: String,
}
