//! What the servers of one host have of a file system's room: targets in several processes that lie on one
//! disk tell each other in a folder of the run directory, a file for each process.
//!
//! Nobody waits for anybody. Who wants room writes down how much, and then looks at what the others wrote
//! down and at the disk, in this order; of two who do so at the same time one at least sees the other. A file
//! belongs to the process that has its lock: what is left of one that was killed counts no more, and goes.

use std::io;
use std::sync::Arc;
use std::time::Duration;
use wire::frame::crc32c;
use world::{DiskFile, OpenMode, World};

/// What a process has for its next writes counts for so long. It looks at the disk again after half of that.
const SPARE_AGE: Duration = Duration::from_secs(2);
/// Held u64, spare u64, wall clock in ms u64, crc32c of these u32; little-endian.
const RECORD_BYTES: usize = 28;
/// Files of this name are being made.
const UNFINISHED: &str = "new-";
/// Who reads while somebody writes looks again, so often.
const TRIES: u32 = 5;

/// Bytes of a file system's room that a process has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Claim {
    /// Promised to clients, or of writes under way.
    pub held: u64,
    /// For writes that come within the next second.
    pub spare: u64,
}

/// A process' file in the folder of a file system.
pub struct Ledger {
    world: World,
    dir: String,
    name: String,
    file: Arc<dyn DiskFile>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.dir, self.name)
    }
}

impl Ledger {
    /// In this folder, which is made if it is missing.
    pub fn open(world: &World, dir: &str) -> io::Result<Ledger> {
        match world.disk.mkdir(dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let name = format!("{:016x}", world.random_u64());
        assert!(!name.starts_with(UNFINISHED), "others look at what is in use");
        let (new, own) = (format!("{dir}/{UNFINISHED}{name}"), format!("{dir}/{name}"));
        let file = world.disk.open(&new, OpenMode::CREATE_NEW)?;
        if !file.try_lock()? {
            return Err(io::Error::other(format!("'{new}' is locked by somebody else")));
        }
        let ledger = Ledger { world: world.clone(), dir: dir.to_string(), name, file };
        ledger.publish(Claim::default())?;
        world.disk.rename(&new, &own)?;
        Ok(ledger)
    }

    /// This is what the process has from now on.
    pub fn publish(&self, c: Claim) -> io::Result<()> {
        self.file.write_at(&encode(c, self.now_ms()), 0)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.world.wall().as_nanos() / 1_000_000).unwrap_or(0)
    }

    /// Bytes that other processes have.
    pub fn others(&self) -> io::Result<u64> {
        let mut sum = 0u64;
        for name in self.world.disk.list(&self.dir)? {
            if name != self.name && !name.starts_with(UNFINISHED) {
                sum = sum.saturating_add(self.other(&format!("{}/{name}", self.dir))?);
            }
        }
        Ok(sum)
    }

    fn other(&self, path: &str) -> io::Result<u64> {
        let file = match self.world.disk.open(path, OpenMode::WRITE) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
            r => r?,
        };
        if file.try_lock()? {
            // Its process ended without a word. Somebody else may have removed it just now.
            let _ = self.world.disk.unlink(path);
            return Ok(0);
        }
        for _ in 0..TRIES {
            let mut b = [0; RECORD_BYTES];
            if file.read_at(&mut b, 0)? == RECORD_BYTES
                && let Some((c, at)) = decode(&b)
            {
                let fresh = u128::from(self.now_ms().abs_diff(at)) <= SPARE_AGE.as_millis();
                return Ok(c.held.saturating_add(if fresh { c.spare } else { 0 }));
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("'{path}' is no record of promised room")))
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let _ = self.world.disk.unlink(&format!("{}/{}", self.dir, self.name));
    }
}

fn encode(c: Claim, at_ms: u64) -> [u8; RECORD_BYTES] {
    let mut b = [0; RECORD_BYTES];
    b[..8].copy_from_slice(&c.held.to_le_bytes());
    b[8..16].copy_from_slice(&c.spare.to_le_bytes());
    b[16..24].copy_from_slice(&at_ms.to_le_bytes());
    let crc = crc32c(&b[..24]);
    b[24..].copy_from_slice(&crc.to_le_bytes());
    b
}

/// The claim and its time. `None` for what is none.
fn decode(b: &[u8; RECORD_BYTES]) -> Option<(Claim, u64)> {
    let (words, crc) = b.split_at(24);
    if crc32c(words).to_le_bytes() != crc {
        return None;
    }
    let word = |n: usize| words[n * 8..][..8].try_into().map(u64::from_le_bytes).ok();
    Some((Claim { held: word(0)?, spare: word(1)? }, word(2)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written_and_nothing_else_is(
            held: u64, spare: u64, at: u64, byte in 0..RECORD_BYTES, bit in 0..8u32
        ) {
            let c = Claim { held, spare };
            let mut b = encode(c, at);
            prop_assert_eq!(decode(&b), Some((c, at)));
            b[byte] ^= 1u8 << bit;
            prop_assert_eq!(decode(&b), None);
        }
    }
}
