use super::*;
use model::Fid;
use model::layout::ComponentSpec;
use proptest::prelude::*;

const SS: u32 = 16;
const FID: Fid = Fid::new(1, 2, 0);

/// Components that end there, each of so many stripes; those whose bit is set have their objects.
fn layout(parts: &[(u64, u16)], with_objects: u8) -> Layout {
    let spec = |&(end, _): &(u64, u16)| ComponentSpec {
        end,
        stripe_count: 1,
        stripe_size: u64::from(SS),
        ..ComponentSpec::default()
    };
    let mut l = Layout::composite(1, 0, &parts.iter().map(spec).collect::<Vec<_>>());
    for (n, &(_, count)) in parts.iter().enumerate() {
        if with_objects >> n & 1 == 1 {
            l.instantiate(n, FID, ("", &(0..count).collect::<Vec<_>>()));
        }
    }
    l
}

fn parts_of_files() -> impl Strategy<Value = Vec<(u64, u16)>> {
    prop::collection::vec((1u64..9, 1u16..5), 1..4).prop_map(|v| {
        let (mut end, last) = (0, v.len() - 1);
        let ends = v.into_iter().enumerate().map(|(i, (units, count))| {
            end += units * u64::from(SS) / 2;
            (if i == last { EOF } else { end }, count)
        });
        ends.collect()
    })
}

/// Objects in memory: bytes and, of each, whether it was written.
struct Objects(Vec<(Vec<u8>, Vec<bool>)>);

impl Objects {
    fn of(l: &Layout) -> Objects {
        Objects(vec![Default::default(); l.object_count()])
    }

    fn write(&mut self, l: &Layout, off: u64, data: &Bytes, max: usize) {
        for p in pieces(l, FID, off, data.len(), max) {
            assert!(p.len <= max && p.len == p.segments.iter().map(|s| s.1).sum::<usize>());
            let (bytes, set) = &mut self.0[p.number];
            let end = p.object_offset as usize + p.len;
            if bytes.len() < end {
                bytes.resize(end, 0);
                set.resize(end, false);
            }
            bytes[p.object_offset as usize..end].copy_from_slice(&gather(data, &p));
            set[p.object_offset as usize..end].fill(true);
        }
    }

    fn attrs(&self) -> Vec<ObjectAttr> {
        self.0.iter().map(|o| ObjectAttr { size: o.0.len() as u64, ..ObjectAttr::default() }).collect()
    }

    fn read(&self, l: &Layout, off: u64, len: usize, max: usize) -> Vec<u8> {
        let mut buf = vec![0; len];
        for p in pieces(l, FID, off, len, max) {
            let o = &self.0[p.number].0;
            let from = (p.object_offset as usize).min(o.len());
            let to = (p.object_offset as usize + p.len).min(o.len());
            scatter(&mut buf, &p, &o[from..to]);
        }
        buf
    }

    fn find(&self, l: &Layout, off: u64, hole: bool) -> Vec<Found> {
        let one = |(number, o): (usize, &(Vec<u8>, Vec<bool>))| {
            let from = l.object_size_for(number, off) as usize;
            let n = o.1.len();
            let hit = (from..n).find(|&i| o.1[i] != hole).or((hole && from <= n).then_some(n));
            Found { offset: hit.map(|x| x as u64), object_size: n as u64 }
        };
        self.0.iter().enumerate().map(one).collect()
    }
}

proptest! {
    #[test]
    fn files_in_components_behave_as_one_array(
        parts in parts_of_files(),
        with in 1u8..8,
        max in 1usize..40,
        writes in prop::collection::vec((0u64..300, 1usize..90, any::<u8>()), 1..8),
        probe in 0u64..420,
    ) {
        let l = layout(&parts, with);
        prop_assert_eq!(supported(&l), Ok(()));
        let mut objects = Objects::of(&l);
        let (mut bytes, mut set) = (Vec::new(), Vec::new());
        for (off, len, b) in writes {
            // Where a component has no objects nothing is written.
            if l.check_range(off, off + len as u64).is_err() {
                continue;
            }
            let data = Bytes::from((0..len).map(|i| b.wrapping_add(i as u8)).collect::<Vec<_>>());
            objects.write(&l, off, &data, max);
            let end = off as usize + len;
            if bytes.len() < end {
                bytes.resize(end, 0);
                set.resize(end, false);
            }
            bytes[off as usize..end].copy_from_slice(&data);
            set[off as usize..end].fill(true);
        }
        prop_assert_eq!(file_size(&l, &objects.attrs()).unwrap(), bytes.len() as u64);
        prop_assert_eq!(&objects.read(&l, 0, bytes.len(), max), &bytes);
        let n = set.len();
        let next = |hole: bool| {
            (probe as usize..n).find(|&i| set[i] != hole).or((hole && (probe as usize) < n).then_some(n))
        };
        for hole in [false, true] {
            let got = merge_seek(&l, probe, hole, &objects.find(&l, probe, hole));
            prop_assert_eq!(got, next(hole).map(|x| x as u64).ok_or(Errno::ENXIO), "hole {}", hole);
        }
    }

    #[test]
    fn object_ranges_cover_what_extents_cover(
        parts in parts_of_files(), with in 1u8..8, off in 0u64..5000, len in 0u64..5000,
    ) {
        let l = layout(&parts, with);
        for (number, c, stripe) in super::parts(&l) {
            let of_it: Vec<_> = l.extents(off, len).into_iter().filter(|e| e.number == number).collect();
            let (start, n) = c.object_range(stripe, off, len);
            prop_assert_eq!(n, of_it.iter().map(|e| e.len).sum::<u64>());
            if let Some(e) = of_it.first() {
                prop_assert_eq!(start, e.object_offset);
                let back = file_ranges(&l, number, &[(start, start + n)]);
                let within = |e: &model::layout::Extent| {
                    back.iter().any(|(s, t)| *s <= e.file_offset && e.file_offset + e.len <= *t)
                };
                prop_assert!(of_it.iter().all(within), "{:?} in {:?}", of_it, back);
            }
        }
    }
}

#[test]
fn ranges_of_an_object_are_pieces_of_the_file() {
    let of = |n: u16, number, ranges: &[(u64, u64)]| {
        file_ranges(&Layout::plain(FID, 65536, "", &(0..n).collect::<Vec<_>>()), number, ranges)
    };
    assert_eq!(of(1, 0, &[(5, 70000)]), [(5, 70000)]);
    assert_eq!(of(1, 0, &[(5, u64::MAX)]), [(5, u64::MAX)]);
    let parts = [(65536 + 4096, 131_072), (196_608, 196_608 + 4096)];
    assert_eq!(of(2, 1, &[(4096, 65536 + 4096)]), parts);
    assert_eq!(of(2, 0, &[(0, 65536 * 1000)]), [(0, 65536 * 1999)]);
}

#[test]
fn unbelievable_sizes_are_refused() {
    let l = layout(&[(EOF, 3)], 1);
    assert_eq!(file_size_of(&l, 1, u64::MAX), Err(Errno::EPROTO));
    let found = [Found { offset: Some(9), object_size: 3 }; 3];
    assert_eq!(merge_seek(&l, 0, true, &found), Err(Errno::EPROTO));
}

#[test]
fn data_with_the_inode_is_one_piece_of_the_metadata_target() {
    let l = Layout::on_mdt(65536);
    let p = pieces(&l, FID, 70_000, 10, 100).pop().unwrap();
    let id = ObjectId { origin: FID, component: 1, stripe: 0 };
    assert_eq!((p.object, p.object_offset, p.len), (Place { home: Home::Mdt, id }, 70_000, 10));
    assert_eq!((file_size_of(&l, 0, 65536), is_one(&l)), (Ok(65536), true));
}

#[test]
fn layouts_of_later_versions_are_refused() {
    let one = layout(&[(EOF, 1)], 1);
    let mut overlapping = one.clone();
    overlapping.components.push(one.components[0].clone());
    let mut copy = one.clone();
    copy.components[0].mirror = 1;
    let mut parity = one.clone();
    parity.components[0].pattern = Pattern::Parity { data: 2, parity: 1 };
    for l in [overlapping, copy, parity, Layout { components: Vec::new(), ..one }] {
        assert_eq!(supported(&l).unwrap_err(), Errno::EOPNOTSUPP);
    }
}
