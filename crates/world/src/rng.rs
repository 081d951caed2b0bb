//! A small seeded generator (xoshiro256**) for faults, simulation and tests: never for secrets.

/// Deterministic: the same seed gives the same numbers for ever, on every machine.
#[derive(Clone, Debug)]
pub struct Rng {
    s: [u64; 4],
}

impl Rng {
    pub fn new(seed: u64) -> Rng {
        // splitmix64 spreads the seed over the state.
        let mut x = seed;
        let s = std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(x)
        });
        Rng { s }
    }

    /// An independent generator.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.u64())
    }

    pub fn u64(&mut self) -> u64 {
        let out = self.s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = self.s[1] << 17;
        self.s[2] ^= self.s[0];
        self.s[3] ^= self.s[1];
        self.s[1] ^= self.s[2];
        self.s[0] ^= self.s[3];
        self.s[2] ^= t;
        self.s[3] = self.s[3].rotate_left(45);
        out
    }

    /// 0..n; `n` must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "an empty range has no element");
        ((u128::from(self.u64()) * u128::from(n)) >> 64) as u64
    }

    /// from..=to.
    pub fn range(&mut self, from: u64, to: u64) -> u64 {
        assert!(from <= to, "range {from}..={to} is empty");
        match (to - from).checked_add(1) {
            Some(n) => from + self.below(n),
            None => self.u64(),
        }
    }

    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// True `per_million` times in a million.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    pub fn coin(&mut self) -> bool {
        self.u64() >> 63 == 1
    }

    pub fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            let b = self.u64().to_le_bytes();
            chunk.copy_from_slice(&b[..chunk.len()]);
        }
    }
}

/// The finaliser of splitmix64: spreads every bit over the word.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
