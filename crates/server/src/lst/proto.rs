//! What nodes of a self test say to each other and to the console: frames of our transport whose body is one
//! of these in JSON, on a port of their own (docs/decisions/0075-lst.md).

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use wire::{Bulk, Frame, FrameKind, Header};
use world::{Conn, World};

/// Below 1024, so that only an administrator can answer there, and below the ports that connections take.
pub const PORT: u16 = 488;
/// Largest transfer, as Lustre's.
pub const BRW_MAX_BYTES: u32 = 1 << 20;
/// Of one frame.
pub const ASK_MAX_BYTES: usize = BRW_MAX_BYTES as usize + (256 << 10);
/// How long the other end may take.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Who tests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub id: u64,
    pub name: String,
    /// The console's host.
    pub console: String,
    /// Seconds without a word of the console after which a node ends it.
    pub timeout: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    None,
    /// The first and the last eight bytes.
    Simple,
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Ping,
    Brw { write: bool, size: u32, check: Check },
}

/// What one node is to do to others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    pub kind: Kind,
    pub to: Vec<SocketAddr>,
    pub concurrency: u32,
    /// Requests of each of the concurrent ones; none: until it is stopped.
    pub loops: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    Open {
        session: Session,
        force: bool,
    },
    Close {
        session: u64,
    },
    Look {
        session: u64,
    },
    Run {
        session: u64,
        batch: String,
        loads: Vec<Load>,
    },
    Stop {
        session: u64,
        batch: String,
    },
    /// Of the load itself: answered with what was asked for, and nothing kept.
    Load {
        session: u64,
        kind: Kind,
        seed: u64,
    },
}

/// Since the session began, of both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub rpcs_received: u64,
    pub rpcs_sent: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub rpc_errors: u64,
    pub rpc_dropped: u64,
    pub brw_errors: u64,
    pub ping_errors: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeState {
    pub session: Option<Session>,
    pub counted: Counted,
    /// Batches with how many of their requests are concurrent now, and why the last one failed.
    pub running: Vec<(String, u64)>,
    pub last_error: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Done,
    State(NodeState),
    /// In words, with the session that is in the way.
    Refused {
        why: String,
        busy: bool,
    },
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn word(seed: u64, n: u64) -> [u8; 8] {
    seed.wrapping_add(n.wrapping_mul(STEP)).to_le_bytes()
}

/// Where the last whole one of words of eight bytes begins.
fn last_word(len: usize) -> usize {
    len.saturating_sub(8) / 8 * 8
}

/// What is sent of `len` bytes: as much of the pattern as is checked.
pub fn payload(len: u32, check: Check, seed: u64) -> Bytes {
    assert!(len <= BRW_MAX_BYTES, "nobody sends more than is received");
    let mut b = world::buffer::bulk(len as usize);
    match check {
        Check::None => {}
        Check::Simple => {
            let last = last_word(len as usize);
            for at in [0, last] {
                let n = b.len().min(at + 8) - at;
                b[at..at + n].copy_from_slice(&word(seed, at as u64 / 8)[..n]);
            }
        }
        Check::Full => {
            for (n, part) in b.chunks_mut(8).enumerate() {
                let w = word(seed, n as u64);
                part.copy_from_slice(&w[..part.len()]);
            }
        }
    }
    b.freeze()
}

/// Whether `data` is what [`payload`] made.
pub fn is_right(data: &[u8], len: u32, check: Check, seed: u64) -> bool {
    if data.len() != len as usize {
        return false;
    }
    let last = last_word(data.len());
    let same = |at: usize| {
        let part = &data[at..data.len().min(at + 8)];
        *part == word(seed, at as u64 / 8)[..part.len()]
    };
    match check {
        Check::None => true,
        Check::Simple => data.is_empty() || (same(0) && same(last)),
        Check::Full => (0..data.len()).step_by(8).all(same),
    }
}

pub fn frame(kind: FrameKind, said: &impl Serialize, bulk: impl Into<Bulk>) -> Frame {
    Frame::new(Header::new(kind), serde_json::to_vec(said).expect("plain data encodes"), bulk)
}

/// A connection to a node.
pub async fn dial(world: &World, to: SocketAddr) -> Result<Arc<dyn Conn>, String> {
    let conn = world.timeout(PATIENCE, world.net.connect(None, to)).await;
    let conn = conn.ok_or_else(|| format!("no answer in {} s", PATIENCE.as_secs()))?;
    let conn = conn.map_err(|e| match e.kind() {
        std::io::ErrorKind::ConnectionRefused => "nobody answers there: start 'lst serve' on it".to_string(),
        _ => e.to_string(),
    })?;
    conn.expect_at_most(ASK_MAX_BYTES);
    Ok(conn)
}

/// One request and its answer.
pub async fn call(
    world: &World,
    conn: &Arc<dyn Conn>,
    ask: &Ask,
    bulk: Bytes,
) -> Result<(Answer, Bulk), String> {
    let both = async {
        conn.send(frame(FrameKind::Request, ask, bulk)).await?;
        conn.recv().await
    };
    let got = world.timeout(PATIENCE, both).await;
    let got = got.ok_or_else(|| format!("no answer in {} s", PATIENCE.as_secs()))?;
    let got = got.map_err(|e| e.to_string())?;
    let answer = serde_json::from_slice(&got.body).map_err(|e| format!("answer not understood: {e}"))?;
    Ok((answer, got.bulk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_checked_as_far_as_was_asked() {
        for len in [1, 8, 12, 4096, 4099] {
            let full = payload(len, Check::Full, 7);
            assert!(is_right(&full, len, Check::Full, 7));
            assert!(is_right(&full, len, Check::Simple, 7), "{len}");
            assert!(!is_right(&full, len, Check::Full, 8));
            assert!(!is_right(&full, len + 1, Check::None, 7));
            assert!(is_right(&payload(len, Check::Simple, 9), len, Check::Simple, 9));
        }
        let mut bad = payload(4096, Check::Full, 7).to_vec();
        bad[2000] ^= 1;
        assert!(!is_right(&bad, 4096, Check::Full, 7));
        assert!(is_right(&bad, 4096, Check::Simple, 7) && is_right(&bad, 4096, Check::None, 7));
    }
}
