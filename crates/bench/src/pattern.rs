//! What is written, so that it can be verified: each eight bytes of a file depend on where they lie and in
//! whose file.

use crate::layout::mix;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The word at `offset`, a multiple of 8.
fn word(key: u64, offset: u64) -> u64 {
    key.wrapping_add((offset / 8).wrapping_mul(STEP))
}

/// The key of a process' file; a shared file has that of process 0.
pub fn key(owner: u64) -> u64 {
    mix(owner.wrapping_mul(STEP) ^ 0x006e_6163_7265)
}

/// Fills `buf` with what a file holds from `offset` on.
pub fn fill(buf: &mut [u8], key: u64, offset: u64) {
    let skew = (offset % 8) as usize;
    let mut w = word(key, offset - skew as u64);
    let mut rest = buf;
    if skew > 0 {
        let n = rest.len().min(8 - skew);
        let (head, tail) = rest.split_at_mut(n);
        head.copy_from_slice(&w.to_le_bytes()[skew..skew + n]);
        w = w.wrapping_add(STEP);
        rest = tail;
    }
    let mut words = rest.chunks_exact_mut(8);
    for c in &mut words {
        c.copy_from_slice(&w.to_le_bytes());
        w = w.wrapping_add(STEP);
    }
    let last = words.into_remainder();
    last.copy_from_slice(&w.to_le_bytes()[..last.len()]);
}

/// Where `buf`, read from `offset`, first differs from what [`fill`] wrote there: (position, wanted, found).
pub fn first_difference(buf: &[u8], key: u64, offset: u64) -> Option<(u64, u8, u8)> {
    let mut wanted = [0u8; 4096];
    for (i, part) in buf.chunks(wanted.len()).enumerate() {
        let at = offset + (i * wanted.len()) as u64;
        let wanted = &mut wanted[..part.len()];
        fill(wanted, key, at);
        if part != wanted {
            let n = part.iter().zip(wanted.iter()).position(|(a, b)| a != b).expect("they differ");
            return Some((at + n as u64, wanted[n], part[n]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_cut_of_a_file_is_the_same(offset in 0u64..1_000_000, len in 0usize..9000, cut in 0usize..9000) {
            let k = key(3);
            let mut whole = vec![0; len];
            fill(&mut whole, k, offset);
            let cut = cut.min(len);
            let mut parts = vec![0; len];
            fill(&mut parts[..cut], k, offset);
            fill(&mut parts[cut..], k, offset + cut as u64);
            prop_assert_eq!(&whole, &parts);
            prop_assert_eq!(first_difference(&whole, k, offset), None);
            if len > 0 {
                parts[cut.min(len - 1)] ^= 1;
                let at = offset + cut.min(len - 1) as u64;
                prop_assert_eq!(first_difference(&parts, k, offset).map(|d| d.0), Some(at));
                if len > 16 {
                    prop_assert!(first_difference(&whole, key(4), offset).is_some());
                    prop_assert!(first_difference(&whole, k, offset + 8).is_some());
                }
            }
        }
    }
}
