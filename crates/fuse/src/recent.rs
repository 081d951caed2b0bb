//! What was found out a moment ago and is dear to find out again: remembered for a second, of so many keys.

use model::Map;
use model::mutex::Mutex;
use std::hash::Hash;
use std::time::Duration;
use world::Instant;

/// How long it is remembered.
const LIFE: Duration = Duration::from_secs(1);
/// Keys of which it is remembered: all are forgotten when there are more.
const KEYS_MAX: usize = 1024;

/// A value for each key, and when it was found.
pub struct Recent<K, V>(Mutex<Map<K, (V, Instant)>>);

impl<K, V> Default for Recent<K, V> {
    fn default() -> Recent<K, V> {
        Recent(Mutex::new(Map::default()))
    }
}

impl<K: Eq + Hash, V: Clone> Recent<K, V> {
    /// What was found a moment ago.
    pub fn get(&self, key: &K, now: Instant) -> Option<V> {
        let t = self.0.lock();
        let (value, since) = t.get(key)?;
        (now.since(*since) < LIFE).then(|| value.clone())
    }

    /// What is found now.
    pub fn note(&self, key: K, value: V, now: Instant) {
        let mut t = self.0.lock();
        if t.len() >= KEYS_MAX && !t.contains_key(&key) {
            t.clear();
        }
        t.insert(key, (value, now));
        assert!(t.len() <= KEYS_MAX, "what is remembered is bounded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_of_one_key_and_of_a_moment() {
        let (l, t0) = (Recent::default(), Instant::default());
        assert_eq!(l.get(&(1, 2, 3), t0), None);
        l.note((1, 2, 3), vec![4, 5], t0);
        assert_eq!(l.get(&(1, 2, 3), t0), Some(vec![4, 5]));
        for other in [(9, 2, 3), (1, 9, 3), (1, 2, 9)] {
            assert_eq!(l.get(&other, t0), None, "{other:?}");
        }
        assert_eq!(l.get(&(1, 2, 3), t0.plus(LIFE)), None);
        l.note((1, 2, 3), Vec::new(), t0.plus(LIFE));
        assert_eq!(l.get(&(1, 2, 3), t0.plus(LIFE)), Some(Vec::new()));
    }

    #[test]
    fn keys_beyond_the_bound_are_asked_again() {
        let (l, now) = (Recent::default(), Instant::default());
        for key in 0..3 * KEYS_MAX {
            l.note(key, 1, now);
            assert_eq!(l.get(&key, now), Some(1));
        }
        assert!(l.0.lock().len() <= KEYS_MAX);
    }
}
