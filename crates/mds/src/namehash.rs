//! The keyed hash that orders a directory (SipHash-2-4): nobody who does not know the key, random for each
//! file system, can make names collide.

/// SipHash-2-4 of `data`.
pub fn siphash(key: [u64; 2], data: &[u8]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let mut chunks = data.chunks_exact(8);
    for c in &mut chunks {
        let m = u64::from_le_bytes(c.try_into().expect("chunks of eight"));
        v[3] ^= m;
        round(&mut v);
        round(&mut v);
        v[0] ^= m;
    }
    let mut last = [0u8; 8];
    let rest = chunks.remainder();
    last[..rest.len()].copy_from_slice(rest);
    last[7] = data.len() as u8;
    let m = u64::from_le_bytes(last);
    v[3] ^= m;
    round(&mut v);
    round(&mut v);
    v[0] ^= m;
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

/// Bits of a cookie that tell entries with the same hash apart.
pub const SLOT_BITS: u32 = 8;
/// Entries of one directory whose names may have the same hash.
pub const SLOTS: u64 = 1 << SLOT_BITS;
const HASH_MAX: u64 = (1 << (63 - SLOT_BITS)) - 1;

/// Cookie of a name's slot 0: 55 bits of hash, 8 bits of slot. Never below 256 (small values are reserved)
/// and never near 2^63 − 1, which some programs take for the end.
pub fn first_cookie(key: [u64; 2], name: &[u8]) -> u64 {
    let h = (siphash(key, name) >> (64 - (63 - SLOT_BITS))).clamp(1, HASH_MAX - 1);
    let first = h << SLOT_BITS;
    assert!(
        first >= SLOTS && first <= i64::MAX as u64 - 2 * SLOTS,
        "a cookie keeps away from the reserved ones"
    );
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_vectors_come_out() {
        // From the SipHash paper: key 00..0f, message 00..0e.
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let msg: Vec<u8> = (0..15).collect();
        assert_eq!(siphash(key, &msg), 0xa129_ca61_49be_45e5);
        assert_eq!(siphash(key, &[]), 0x726f_db47_dd0e_0e31);
    }

    #[test]
    fn cookies_are_positive_and_leave_the_small_values() {
        for i in 0..10_000u64 {
            let c = first_cookie([i, 7], &i.to_le_bytes());
            assert!(c >= 256 && c + SLOTS - 1 < i64::MAX as u64 && c.is_multiple_of(SLOTS));
        }
    }
}
