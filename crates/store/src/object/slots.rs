//! Which slots of the container files are taken. Kept in memory, rebuilt from the objects' records at open.

use super::location::{CLASS_BYTES, CONTAINER_SLOTS, Place};
use std::collections::BTreeSet;

const WORDS: usize = CONTAINER_SLOTS as usize / 64;

#[derive(Default)]
struct Class {
    containers: Vec<[u64; WORDS]>,
    /// Containers with a free slot.
    roomy: BTreeSet<u32>,
}

#[derive(Default)]
pub(crate) struct Slots {
    classes: [Class; CLASS_BYTES.len()],
}

impl Class {
    fn grow_to(&mut self, container: u32) {
        while self.containers.len() <= container as usize {
            self.roomy.insert(self.containers.len() as u32);
            self.containers.push([0; WORDS]);
        }
    }
}

impl Slots {
    /// Takes a free slot, in the lowest container that has one.
    pub fn take(&mut self, class: u8) -> Place {
        let c = &mut self.classes[usize::from(class)];
        if c.roomy.is_empty() {
            let next = u32::try_from(c.containers.len()).expect("fewer containers than 2^32");
            c.grow_to(next);
        }
        let container = *c.roomy.first().expect("made above");
        let words = &mut c.containers[container as usize];
        let (i, w) =
            words.iter_mut().enumerate().find(|(_, w)| **w != u64::MAX).expect("the container is roomy");
        let bit = w.trailing_ones();
        *w |= 1 << bit;
        let slot = i as u32 * 64 + bit;
        if words.iter().all(|w| *w == u64::MAX) {
            c.roomy.remove(&container);
        }
        Place { class, container, slot }
    }

    /// Marks a slot that a record names; false if another record named it already.
    pub fn claim(&mut self, p: Place) -> bool {
        let c = &mut self.classes[usize::from(p.class)];
        c.grow_to(p.container);
        let words = &mut c.containers[p.container as usize];
        let (w, bit) = (&mut words[p.slot as usize / 64], 1u64 << (p.slot % 64));
        let free = *w & bit == 0;
        *w |= bit;
        if words.iter().all(|w| *w == u64::MAX) {
            c.roomy.remove(&p.container);
        }
        free
    }

    pub fn release(&mut self, p: Place) {
        let c = &mut self.classes[usize::from(p.class)];
        let (w, bit) = (&mut c.containers[p.container as usize][p.slot as usize / 64], 1u64 << (p.slot % 64));
        assert!(*w & bit != 0, "slot {p:?} was taken");
        *w &= !bit;
        c.roomy.insert(p.container);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_given_out_once() {
        let mut s = Slots::default();
        let mut seen = BTreeSet::new();
        for _ in 0..3 * CONTAINER_SLOTS {
            assert!(seen.insert(s.take(1)));
        }
        let p = Place { class: 1, container: 1, slot: 700 };
        s.release(p);
        assert_eq!(s.take(1), p);
        assert!(!s.claim(p));
        assert!(s.claim(Place { class: 2, container: 4, slot: 0 }));
        assert_eq!(s.take(2), Place { class: 2, container: 0, slot: 0 });
    }
}
