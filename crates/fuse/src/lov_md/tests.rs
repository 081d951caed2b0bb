use super::*;
use model::layout::{ComponentSpec, EOF};
use model::{Errno, Fid, Layout, LayoutSpec};
use proptest::prelude::*;

const FID: Fid = Fid::new(0x2_0000_0401, 3, 0);

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().unwrap())
}

#[test]
fn plain_layouts_have_their_objects_behind_32_bytes() {
    let b = encode(&Layout::plain(FID, 65536, "", &[2, 5]));
    assert_eq!((b.len(), u32_at(&b, 0), u32_at(&b, 4)), (32 + 2 * 24, MAGIC_V1, PATTERN_RAID0));
    assert_eq!((u32_at(&b, 24), b[28], u32_at(&b, 32 + 20)), (65536, 2, 2));
    let b = encode(&Layout::plain(FID, 65536, "flash", &[2]));
    assert_eq!((b.len(), u32_at(&b, 0), &b[32..38]), (48 + 24, MAGIC_V3, &b"flash\0"[..]));
    let b = encode(&Layout::on_mdt(65536));
    assert_eq!((b.len(), u32_at(&b, 4)), (32, PATTERN_MDT));
}

#[test]
fn composite_layouts_have_an_entry_for_each_component() {
    let part = |end, stripe_count| ComponentSpec {
        end,
        stripe_count,
        stripe_size: 65536,
        ..ComponentSpec::default()
    };
    let many = ComponentSpec { overstriped: true, extension_bytes: 64 << 20, ..part(EOF, -2) };
    let mut l = Layout::composite(1, 7, &[part(1 << 20, 1), many]);
    l.instantiate(0, FID, ("", &[4]));
    let b = encode(&l);
    assert_eq!((u32_at(&b, 0), u32_at(&b, 4) as usize, u32_at(&b, 8)), (MAGIC_COMPOSITE, b.len(), 7));
    assert_eq!((u16::from_le_bytes([b[14], b[15]]), b.len()), (3, 32 + 3 * 48 + 32 + 24 + 32 + 32));
    let entry = |n: usize| 32 + 48 * n;
    let body = |n: usize| u32_at(&b, entry(n) + 24) as usize;
    // id, flags; end of the first
    assert_eq!(
        [0, 1, 2].map(|n| (u32_at(&b, entry(n)), u32_at(&b, entry(n) + 4))),
        [(1, 0x10), (2, 0), (3, 0x40)]
    );
    assert_eq!(u32_at(&b, entry(0) + 16), 1 << 20);
    assert_eq!(b[entry(2) + 16..entry(2) + 24], [0xff; 8]);
    assert_eq!([0, 1, 2].map(|n| u32_at(&b, entry(n) + 28)), [32 + 24, 32, 32]);
    assert_eq!([0, 1, 2].map(|n| u32_at(&b, body(n) + 4)), [1, 0x201, 1]);
    assert_eq!(u32_at(&b, body(0) + 32 + 20), 4);
    assert_eq!(b[body(1) + 28..body(1) + 32], [0xfe, 0xff, 0xff, 0xff]);
    assert_eq!(u32_at(&b, body(2) + 24), (64 << 20) / 1024);
}

/// What can be asked for and told: ends, sizes and pools as users may have them.
fn component() -> impl Strategy<Value = ComponentSpec> {
    let pool = prop_oneof![Just(String::new()), Just("ignore".to_string()), "[A-Za-z0-9_-]{1,15}"];
    let counts = prop_oneof![
        (-1i32..=2000, Just(false), Just(Vec::new())),
        (-32i32..=2000, Just(true), Just(Vec::new())),
        (Just(0), Just(false), prop::collection::btree_set(any::<u16>(), 1..5).prop_map(Vec::from_iter)),
    ];
    (counts, 0u64..100, -1i32..1000, pool, 0u64..4).prop_map(
        |((count, over, osts), size, start, pool, grows)| ComponentSpec {
            end: EOF,
            stripe_count: count,
            stripe_size: size * 65536,
            stripe_start: if osts.is_empty() { start } else { -1 },
            pool: if model::pool::name_is_valid(&pool) || pool == "ignore" { pool } else { String::new() },
            overstriped: over,
            osts,
            extension_bytes: grows * 65536,
        },
    )
}

/// Components with ends, after so many bytes with the inode.
fn spec() -> impl Strategy<Value = LayoutSpec> {
    (0u64..4, prop::collection::vec((1u64..50, component()), 1..6), any::<bool>()).prop_map(
        |(mdt, parts, ends)| {
            let (mut at, last) = (mdt * 65536, parts.len() - 1);
            let end = |(n, (units, c)): (usize, (u64, ComponentSpec))| {
                at += units * 65536;
                ComponentSpec { end: if n == last && !ends { EOF } else { at }, ..c }
            };
            let parts: Vec<_> = parts.into_iter().enumerate().map(end).collect();
            let mut s = match parts.as_slice() {
                [one] if one.end == EOF && one.extension_bytes == 0 => one.as_spec(),
                parts => {
                    let mut s = LayoutSpec::default();
                    s.set_components(parts);
                    s
                }
            };
            if mdt > 0 {
                s.set_mdt_bytes(mdt * 65536);
            }
            s
        },
    )
}

/// The same request, however it is written.
fn asked(s: &LayoutSpec) -> (Option<u64>, Vec<ComponentSpec>, LayoutSpec) {
    let plain = LayoutSpec { extra: Vec::new(), ..s.clone() };
    (s.mdt_bytes(), s.components().unwrap(), plain)
}

proptest! {
    #[test]
    fn what_a_directory_asks_for_is_read_as_it_was_set(s in spec()) {
        prop_assume!(s.check().is_ok());
        let mut want = s.clone();
        // Only of a whole file: there 0 may mean that nobody asked.
        if want.stripe_start == 0 && want.mdt_bytes().is_none() {
            want.stripe_start = -1;
        }
        let got = decode(&encode_spec(&s));
        prop_assert_eq!(got.as_ref().map(asked), Ok(asked(&want)));
        prop_assert_eq!(got.unwrap().is_overstriped(), s.is_overstriped());
    }

    #[test]
    fn a_file_asks_for_its_like(s in spec(), with in any::<u8>(), osts in 1u16..5) {
        let mut full = s.clone().inherit(&LayoutSpec::builtin());
        full.extra.retain(|(tag, _)| *tag != 1);
        prop_assume!(full.is_composite() && full.check().is_ok());
        let mut l = Layout::composite(1, 3, &full.full_components().unwrap());
        for n in 0..l.components.len() {
            if (n == 0 || with >> (n % 8) & 1 == 1) && !l.components[n].is_extension() {
                l.instantiate(n, FID, ("", &(0..osts).collect::<Vec<_>>()));
            }
        }
        let got = decode(&encode(&l)).unwrap();
        let ends = |s: &LayoutSpec| s.components().unwrap().iter().map(|c| c.end).collect::<Vec<_>>();
        prop_assert_eq!(ends(&got), ends(&full));
        let first = &got.components().unwrap()[0];
        prop_assert_eq!((first.stripe_count, first.stripe_start), (i32::from(osts), -1));
    }

    #[test]
    fn bytes_that_were_cut_or_changed_are_refused_or_ask_for_what_can_be(
        s in spec(), at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>(),
    ) {
        let mut b = encode_spec(&s);
        let n = at.index(b.len());
        b[n] = byte;
        for bytes in [&b[..], &b[..cut.index(b.len())]] {
            if let Ok(s) = decode(bytes) {
                prop_assert_eq!(s.check(), Ok(()));
            }
        }
    }
}

#[test]
fn a_plain_file_asks_for_count_size_and_pool_and_not_for_its_osts() {
    let s = decode(&encode(&Layout::plain(FID, 131_072, "flash", &[2, 5]))).unwrap();
    let want =
        LayoutSpec { stripe_count: 2, stripe_size: 131_072, pool: "flash".into(), ..LayoutSpec::default() };
    assert_eq!(s, want);
    let s = decode(&encode(&Layout::striped((FID, 2), 7, 65536, "", &[4]))).unwrap();
    assert_eq!(s.stripe_start, -1, "a generation is no OST");
    let s = decode(&encode(&Layout::on_mdt(131_072))).unwrap();
    assert_eq!((s.mdt_bytes(), s.names_objects()), (Some(131_072), false));
}

/// `b` with these bytes at `at`.
fn with(b: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut b = b.to_vec();
    b[at..at + bytes.len()].copy_from_slice(bytes);
    b
}

#[test]
fn what_is_no_layout_of_this_version_is_refused_by_its_errno() {
    let plain = encode(&Layout::plain(FID, 65536, "flash", &[2]));
    let part = |end, stripe_count| ComponentSpec { end, stripe_count, ..ComponentSpec::default() };
    let mut s = LayoutSpec::default();
    s.set_components(&[part(1 << 20, 1), part(EOF, 2)]);
    let parts = encode_spec(&s);
    assert!(decode(&plain).is_ok() && decode(&parts).is_ok());
    let second = HEADER_BYTES + ENTRY_BYTES;
    let body = u32_at(&parts, second + 24) as usize;
    for (bytes, errno, why) in [
        (vec![], Errno::ERANGE, "nothing"),
        (plain[..31].to_vec(), Errno::ERANGE, "half a header"),
        (plain[..47].to_vec(), Errno::ERANGE, "half a pool"),
        (with(&plain, 0, b"none"), Errno::EINVAL, "another magic"),
        (with(&plain, 4, &[2, 0, 0, 0]), Errno::EOPNOTSUPP, "another pattern"),
        (with(&plain, 4, &[1, 1, 0, 0]), Errno::EINVAL, "objects and the inode"),
        (with(&plain, 24, &[1, 0, 0, 0]), Errno::EINVAL, "stripes of one byte"),
        (with(&plain, 28, &[0xd1, 7]), Errno::EINVAL, "2001 stripes"),
        (with(&plain, 32, b"a.b\0"), Errno::EINVAL, "no pool's name"),
        (with(&plain, 32, &[b'x'; 16]), Errno::EINVAL, "a name without an end"),
        (with(&parts, 4, &[0xff; 4]), Errno::ERANGE, "longer than it is"),
        (with(&parts, 14, &[0, 0]), Errno::EINVAL, "no components"),
        (with(&parts, 14, &[0xff, 0xff]), Errno::EINVAL, "65535 components"),
        (with(&parts, 16, &[1, 0]), Errno::EOPNOTSUPP, "two mirrors"),
        (with(&parts, second, &[1, 0, 1, 0]), Errno::EOPNOTSUPP, "a component of a mirror"),
        (with(&parts, second + 8, &[0, 0, 0x20]), Errno::EINVAL, "a hole"),
        (with(&parts, second + 8, &[0; 8]), Errno::EINVAL, "an overlap"),
        (with(&parts, second + 24, &[0xff; 4]), Errno::ERANGE, "beyond the end"),
        (with(&parts, body + 4, &[0, 1]), Errno::EINVAL, "the second one on the MDT"),
        (with(&parts, second + 4, &[0x40]), Errno::EINVAL, "room to grow by no bytes"),
    ] {
        assert_eq!(decode(&bytes).map(|_| ()), Err(errno), "{why}");
    }
    let specific = LayoutSpec { osts: vec![3, 1], stripe_size: 65536, ..LayoutSpec::default() };
    let b = encode_spec(&specific);
    assert_eq!((decode(&b), u32_at(&b, 0)), (Ok(specific), MAGIC_SPECIFIC));
    assert_eq!(decode(&b[..b.len() - 1]), Err(Errno::ERANGE));
    assert_eq!(decode(&with(&b, b.len() - 4, &[0, 0, 1, 0])), Err(Errno::EINVAL), "no OST has that index");
}

#[test]
fn data_in_an_archive_is_not_made_by_hand() {
    let b = encode(&Layout::plain(FID, 65536, "", &[2]));
    assert_eq!(decode(&with(&b, 4, &[1, 0, 0, 0x80])), decode(&b));
}
