//! Seeded random numbers and mutations of byte strings.

/// splitmix64: small, seeded, good enough to choose by.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0..n; 0 for n = 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.next() % n as u64) as usize }
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Numbers at which decoders break.
const EDGES: [u64; 20] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x40_0000,
    0x40_0001,
    0x100_0001,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Changes `input` in one to eight ways; `other` is spliced in at times, `words` are the target's own.
pub fn mutate(r: &mut Random, input: &mut Vec<u8>, other: &[u8], words: &[&[u8]], max: usize) {
    for _ in 0..1 + r.below(8) {
        step(r, input, other, words);
        input.truncate(max);
        if r.one_in(3) {
            break;
        }
    }
}

fn step(r: &mut Random, v: &mut Vec<u8>, other: &[u8], words: &[&[u8]]) {
    let at = r.below(v.len() + 1);
    match r.below(13) {
        0 | 1 if !v.is_empty() => {
            let i = r.below(v.len());
            v[i] ^= 1 << r.below(8);
        }
        2 if !v.is_empty() => {
            let i = r.below(v.len());
            v[i] = r.next() as u8;
        }
        3 => v.insert(at, r.next() as u8),
        4 if !v.is_empty() => {
            let to = (at + 1 + r.below(8)).min(v.len());
            v.drain(at.min(to)..to);
        }
        5 => {
            let from = r.below(v.len() + 1);
            let to = (from + r.below(64)).min(v.len());
            let copy = v[from..to].to_vec();
            v.splice(at..at, copy);
        }
        6 => number(r, v, at),
        7 => {
            let from = r.below(other.len() + 1);
            let to = (from + r.below(128)).min(other.len());
            v.splice(at..at, other[from..to].iter().copied());
        }
        8 => {
            v.truncate(at);
            v.extend_from_slice(&other[r.below(other.len() + 1)..]);
        }
        9 => v.truncate(at),
        10 if !words.is_empty() => {
            let w = words[r.below(words.len())];
            let end = if r.one_in(2) { (at + w.len()).min(v.len()) } else { at };
            v.splice(at..end, w.iter().copied());
        }
        11 => varint(r, v, at),
        12 => {
            let n = r.below(300);
            let b = r.next() as u8;
            v.splice(at..at, std::iter::repeat_n(b, n));
        }
        _ => {}
    }
}

/// Overwrites with an edge number of 1, 2, 4 or 8 bytes, either end first.
fn number(r: &mut Random, v: &mut [u8], at: usize) {
    let n = EDGES[r.below(EDGES.len())];
    let width = 1usize << r.below(4);
    let bytes =
        if r.one_in(3) { n.to_be_bytes()[8 - width..].to_vec() } else { n.to_le_bytes()[..width].to_vec() };
    if let Some(place) = v.get_mut(at..at + width) {
        place.copy_from_slice(&bytes);
    }
}

/// Replaces a byte by an edge number as LEB128: lengths and numbers of postcard.
fn varint(r: &mut Random, v: &mut Vec<u8>, at: usize) {
    let mut n = EDGES[r.below(EDGES.len())];
    let mut bytes = Vec::new();
    loop {
        let b = (n & 0x7f) as u8;
        n >>= 7;
        if n == 0 {
            bytes.push(b);
            break;
        }
        bytes.push(b | 0x80);
    }
    let end = (at + 1).min(v.len());
    v.splice(at..end, bytes);
}
