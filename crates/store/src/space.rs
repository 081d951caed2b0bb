//! Headroom on the host's file system: data stops before the journal and the table run out of room.

use model::mutex::Mutex;
use world::World;

/// Least free space that data leaves for journal and table …
pub const HEADROOM_MIN_BYTES: u64 = 16 << 20;
/// … and the most; between them it is a hundredth of the host's file system.
pub const HEADROOM_MAX_BYTES: u64 = 1 << 30;
/// Bytes that may be taken between two looks at the host.
const LOOK_EVERY_BYTES: u64 = 4 << 20;

pub(crate) struct Space {
    world: World,
    dir: String,
    state: Mutex<SpaceState>,
}

#[derive(Default)]
struct SpaceState {
    /// May be taken before the next look.
    credit: u64,
    /// Left for others when that was found out.
    reserve: u64,
}

pub(crate) fn headroom(total: u64) -> u64 {
    (total / 100).clamp(HEADROOM_MIN_BYTES, HEADROOM_MAX_BYTES)
}

impl Space {
    pub fn new(world: &World, dir: &str) -> Space {
        Space { world: world.clone(), dir: dir.to_string(), state: Mutex::default() }
    }

    /// Whether `bytes` more may be taken. Remembers them as taken.
    pub fn take(&self, bytes: u64) -> bool {
        self.take_beside(bytes, 0)
    }

    /// As [`Space::take`], with `reserve` bytes more left on the host than its headroom.
    fn take_beside(&self, bytes: u64, reserve: u64) -> bool {
        let mut s = self.state.lock();
        if s.credit < bytes || s.reserve != reserve {
            // A host that does not tell is treated as roomy: the write itself will say ENOSPC.
            let Ok(d) = self.world.disk.space(&self.dir) else { return true };
            let usable = d.available.saturating_sub(headroom(d.total)).saturating_sub(reserve);
            s.reserve = reserve;
            if usable < bytes {
                s.credit = 0;
                return false;
            }
            s.credit = if usable - bytes >= 2 * LOOK_EVERY_BYTES { bytes + LOOK_EVERY_BYTES } else { bytes };
        }
        s.credit -= bytes;
        true
    }

    /// Whether next to nothing is left beside `reserve`.
    pub fn low(&self, reserve: u64) -> bool {
        !self.take_beside(4096, reserve)
    }
}
