use super::*;
use crate::limits;
use proptest::prelude::*;

const FID: Fid = Fid::new(1, 2, 0);

/// Components that end there, of so many stripes of 64 KiB; those named in `with_objects` have them.
fn composite(parts: &[(u64, i32)], with_objects: impl Fn(usize) -> bool) -> Layout {
    let specs: Vec<ComponentSpec> = parts
        .iter()
        .map(|&(end, stripe_count)| ComponentSpec {
            end,
            stripe_count,
            stripe_size: 65536,
            ..ComponentSpec::default()
        })
        .collect();
    let mut l = Layout::composite(1, 0, &specs);
    for (n, &(_, count)) in parts.iter().enumerate() {
        if with_objects(n) {
            l.instantiate(n, FID, ("", &(0..count as u16).collect::<Vec<_>>()));
        }
    }
    l
}

/// Ends and stripes of up to four components, the last of which reaches to the end.
fn parts() -> impl Strategy<Value = Vec<(u64, i32)>> {
    prop::collection::vec((1u64..30, 1i32..6), 1..5).prop_map(|v| {
        let (mut end, last) = (0, v.len() - 1);
        let ends = v.into_iter().enumerate().map(|(i, (units, count))| {
            end += units * 65536;
            (if i == last { EOF } else { end }, count)
        });
        ends.collect()
    })
}

proptest! {
    #[test]
    fn extents_cover_what_has_objects_and_map_back(
        parts in parts(), with in 0u8..16, off in 0u64..8_000_000, len in 1u64..5_000_000,
    ) {
        let l = composite(&parts, |n| with >> n & 1 == 1);
        let (mut pos, mut covered) = (off, 0);
        for e in l.extents(off, len) {
            prop_assert!(e.file_offset >= pos);
            prop_assert_eq!(l.uninstantiated(pos, e.file_offset).is_some(), e.file_offset > pos);
            prop_assert_eq!(l.file_offset(e.number, e.object_offset), e.file_offset);
            prop_assert_eq!(l.file_offset(e.number, e.object_offset + e.len - 1), e.file_offset + e.len - 1);
            prop_assert_eq!(l.objects().nth(e.number), Some(&e.object));
            covered += e.len;
            pos = e.file_offset + e.len;
        }
        prop_assert!(pos <= off + len);
        prop_assert_eq!(covered == len, l.check_range(off, off + len).is_ok());
    }

    #[test]
    fn cutting_objects_gives_the_file_size_back(parts in parts(), size in 0u64..50_000_000) {
        let l = composite(&parts, |_| true);
        let sizes = (0..l.object_count()).map(|n| l.file_size_from(n, l.object_size_for(n, size)));
        prop_assert_eq!(sizes.max().unwrap(), size);
    }

    #[test]
    fn component_specs_survive_their_encoding(
        end in any::<u64>(), count in any::<i32>(), size in any::<u64>(), start in any::<i32>(),
        osts in prop::collection::vec(any::<u16>(), 0..5), pool in "[a-z]{0,15}", over: bool, more in any::<u64>(),
    ) {
        let c = ComponentSpec {
            end, stripe_count: count, stripe_size: size, stripe_start: start, osts, pool,
            overstriped: over, extension_bytes: more,
        };
        let bytes = c.encode();
        prop_assert_eq!(ComponentSpec::decode(&bytes), Some(c));
        for n in 0..bytes.len() {
            let _ = ComponentSpec::decode(&bytes[..n]);
        }
    }

    #[test]
    fn bytes_that_are_no_component_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Some(c) = ComponentSpec::decode(&bytes) {
            prop_assert!(c.pool.len() <= 255);
        }
    }
}

#[test]
fn data_on_the_mdt_maps_to_itself() {
    let l = Layout::on_mdt(65536);
    let c = l.mdt_component().unwrap();
    assert_eq!((c.stripes(), l.object_count(), l.is_complete()), (1, 0, true));
    assert_eq!(
        (c.object_size_for(0, 99), c.file_size_from(0, 99), c.file_offset(0, 70_000)),
        (99, 99, 70_000)
    );
}

#[test]
fn components_get_their_objects_one_by_one() {
    let mut l = composite(&[(1 << 20, 1), (EOF, 3)], |n| n == 0);
    assert_eq!((l.object_count(), l.is_complete(), l.shown().id, l.end()), (1, false, 1, EOF));
    assert_eq!(l.check_range(0, 1 << 20), Ok(()));
    assert_eq!(l.check_range(0, (1 << 20) + 1), Err(Errno::EUNINIT));
    assert_eq!(l.components[1].wanted().unwrap().stripe_count, 3);
    l.instantiate(1, FID, ("", &[2, 0, 1]));
    assert_eq!((l.object_count(), l.is_complete(), l.shown().id), (4, true, 2));
    assert_eq!((l.components[1].wanted(), l.components[1].flags), (None, COMPONENT_INIT));
    let (c, stripe) = l.stripe_of(2);
    assert_eq!((c.id, stripe, c.objects[stripe].id.component), (2, 1, 2));
}

fn spec(parts: &[ComponentSpec]) -> LayoutSpec {
    let mut s = LayoutSpec::default();
    s.set_components(parts);
    s
}

#[test]
fn components_are_added_behind_the_last_one() {
    let more = |end| ComponentSpec { end, stripe_count: 1, stripe_size: 65536, ..ComponentSpec::default() };
    let mut l = Layout::composite(1, 0, &[more(1 << 20)]);
    assert_eq!(l.check_range(1 << 20, (1 << 20) + 1), Err(Errno::ENODATA));
    assert_eq!(l.append(2, &spec(&[more(1 << 20)])), Err(Errno::EINVAL));
    assert_eq!(l.append(2, &spec(&[more(2 << 20), more(EOF)])), Ok(()));
    assert_eq!(
        l.components.iter().map(|c| (c.id, c.start)).collect::<Vec<_>>(),
        [(1, 0), (2, 1 << 20), (3, 2 << 20)]
    );
    assert_eq!(l.append(4, &spec(&[more(EOF)])), Err(Errno::EINVAL), "the last one reaches to the end");
    assert_eq!(Layout::on_mdt(65536).append(2, &spec(&[more(EOF)])), Err(Errno::EINVAL));
    let steps: Vec<_> = (1..=64).map(|n| more(n << 20)).collect();
    let mut l = Layout::composite(1, 0, &steps);
    assert_eq!(l.append(65, &spec(&[more(EOF)])), Err(Errno::EINVAL), "more than a file may have");
    assert_eq!(l, Layout::composite(1, 0, &steps), "nothing is changed then");
}

#[test]
fn what_an_added_component_leaves_open_is_as_in_the_last_one() {
    let mut l = composite(&[(1 << 20, 1), (2 << 20, 3)], |_| true);
    l.components[1].pool = "flash".into();
    let open = ComponentSpec { end: 3 << 20, ..ComponentSpec::default() };
    l.append(3, &spec(&[open])).unwrap();
    let c = &l.components[2];
    let w = c.wanted().unwrap();
    assert_eq!(
        (w.stripe_count, w.stripe_size, w.pool.as_str(), c.pool.as_str()),
        (3, 65536, "flash", "flash")
    );
    let last = ComponentSpec { stripe_count: -1, ..ComponentSpec::default() };
    l.append(4, &spec(&[last])).unwrap();
    assert_eq!(l.components[3].wanted().unwrap().stripe_count, -1);
    let exact =
        ComponentSpec { end: 1 << 20, stripe_size: 65536, osts: vec![4, 2], ..ComponentSpec::default() };
    let mut l = Layout::composite(1, 0, &[exact]);
    l.append(2, &spec(&[ComponentSpec::default()])).unwrap();
    let w = l.components[1].wanted().unwrap();
    assert_eq!((w.stripe_count, w.osts), (2, vec![]), "as many, wherever");
}

#[test]
fn components_go_from_the_last_one_on() {
    use ComponentFilter::{Flags, Id};
    let l = composite(&[(1 << 20, 1), (2 << 20, 2), (EOF, 3)], |n| n < 2);
    let without = |choice| {
        let mut l = l.clone();
        l.remove(&choice).map(|()| l.components.iter().map(|c| c.id).collect::<Vec<_>>())
    };
    assert_eq!(without(Id(3)), Ok(vec![1, 2]));
    assert_eq!(without(Id(2)), Err(Errno::EINVAL), "that would leave a hole");
    assert_eq!(without(Id(9)), Err(Errno::EINVAL));
    assert_eq!(without(Flags { with: 0, without: COMPONENT_INIT }), Ok(vec![1, 2]));
    assert_eq!(without(Flags { with: COMPONENT_INIT, without: 0 }), Err(Errno::EINVAL));
    assert_eq!(without(Flags { with: 0, without: COMPONENT_STALE }), Err(Errno::EOPNOTSUPP), "all of them");
    let mut kept = l.clone();
    kept.remove(&Id(3)).unwrap();
    kept.remove(&Id(2)).unwrap();
    assert_eq!(l.objects_beside(Some(&kept)).count(), 2);
    assert_eq!(kept.objects_beside(Some(&l)).count(), 0);
    assert_eq!(kept.remove(&Id(1)), Err(Errno::EOPNOTSUPP), "a file keeps its first component");
}

#[test]
fn a_component_that_only_has_room_to_grow_goes_with_that_room() {
    let c = |end, extension_bytes| ComponentSpec {
        end,
        extension_bytes,
        stripe_count: 1,
        stripe_size: 65536,
        ..ComponentSpec::default()
    };
    let mut l = Layout::composite(1, 0, &[c(1 << 20, 1 << 18), c(EOF, 1 << 19)]);
    assert_eq!(l.remove(&ComponentFilter::Id(3)), Err(Errno::EINVAL), "its room lies behind it");
    l.remove(&ComponentFilter::Id(4)).unwrap();
    assert_eq!((l.components.len(), l.end()), (2, 1 << 20));
    l.remove(&ComponentFilter::Id(2)).unwrap();
    assert_eq!((l.components.len(), l.end()), (1, 1 << 18));
}

#[test]
fn changes_that_no_file_could_have_are_refused() {
    use ComponentChange::{Add, Delete, Flags};
    let part = spec(&[ComponentSpec::default()]);
    let mut on_mdt = part.clone();
    on_mdt.set_mdt_bytes(65536);
    let (set, clear) = (COMPONENT_PREFER_READ, COMPONENT_PREFER_WRITE);
    for (change, want) in [
        (Add(part), Ok(())),
        (Add(on_mdt), Err(Errno::EINVAL)),
        (Add(LayoutSpec::default()), Err(Errno::EINVAL)),
        (Delete(ComponentFilter::Id(0)), Err(Errno::EINVAL)),
        (Delete(ComponentFilter::Flags { with: 0, without: 0 }), Err(Errno::EINVAL)),
        (Flags { id: 1, set, clear }, Ok(())),
        (Flags { id: 0, set, clear }, Err(Errno::EINVAL)),
        (Flags { id: 1, set: 0, clear: 0 }, Err(Errno::EINVAL)),
        (Flags { id: 1, set, clear: set }, Err(Errno::EINVAL)),
        (Flags { id: 1, set: COMPONENT_STALE, clear }, Err(Errno::EOPNOTSUPP)),
        (Flags { id: 1, set, clear: COMPONENT_INIT }, Err(Errno::EOPNOTSUPP)),
    ] {
        assert_eq!(change.check(), want, "{change:?}");
    }
}

proptest! {
    /// Whatever is added and removed, components lie one behind the other, each with an id of its own.
    #[test]
    fn components_stay_in_order_whatever_is_changed(changes in prop::collection::vec((0u8..3, 1u64..40), 1..30)) {
        let part = |end: u64, grows| ComponentSpec {
            end: if end > 35 { EOF } else { end * 65536 },
            stripe_count: 2,
            stripe_size: 65536,
            extension_bytes: if grows { 65536 } else { 0 },
            ..ComponentSpec::default()
        };
        let mut l = Layout::composite(1, 0, &[part(1, false)]);
        l.instantiate(0, FID, ("", &[0, 1]));
        let mut next = 2;
        for (kind, n) in changes {
            let before = l.clone();
            let r = match kind {
                2 => l.remove(&ComponentFilter::Id(l.components[n as usize % l.components.len()].id)),
                grows => l.append(next, &spec(&[part(n, grows == 1)])),
            };
            next += 2;
            prop_assert!(r.is_ok() || l == before, "what is refused changes nothing");
            let ends: Vec<_> = l.components.iter().map(|c| (c.start, c.end)).collect();
            prop_assert!(ends[0].0 == 0 && ends.windows(2).all(|w| w[0].1 == w[1].0 && w[1].0 <= w[1].1));
            let last = l.components.last().unwrap();
            prop_assert!(last.start < last.end);
            let mut ids: Vec<_> = l.components.iter().map(|c| c.id).collect();
            ids.sort_unstable();
            prop_assert!(ids.windows(2).all(|w| w[0] < w[1]));
        }
    }
}

#[test]
fn a_component_that_grows_has_room_behind_it() {
    let c = |end, extension_bytes| ComponentSpec {
        end,
        extension_bytes,
        stripe_count: 1,
        stripe_size: 65536,
        ..ComponentSpec::default()
    };
    let l = Layout::composite(1, 0, &[c(1 << 20, 1 << 18), c(EOF, 1 << 19)]);
    let shown: Vec<_> = l.components.iter().map(|c| (c.id, c.start, c.end, c.is_extension())).collect();
    let m = 1 << 20;
    assert_eq!(shown, [(1, 0, m / 4, false), (2, m / 4, m, true), (3, m, m, false), (4, m, EOF, true)]);
}

#[test]
fn data_on_the_mdt_is_inherited_by_those_who_ask_for_nothing() {
    let mut dir = LayoutSpec { stripe_count: 2, ..LayoutSpec::default() };
    dir.set_mdt_bytes(131_072);
    let file = LayoutSpec::default().inherit(&dir);
    assert_eq!((file.mdt_bytes(), file.stripe_count), (Some(131_072), 2));
    let striped = LayoutSpec { stripe_size: 65536, ..LayoutSpec::default() }.inherit(&dir);
    assert_eq!((striped.mdt_bytes(), striped.stripe_count), (None, 2));
    for bad in [0, 65537, limits::MDT_DATA_MAX_BYTES + 65536] {
        dir.set_mdt_bytes(bad);
        assert_eq!(dir.check(), Err(Errno::EINVAL), "{bad}");
    }
}

#[test]
fn components_take_from_the_one_before_what_they_leave_open() {
    let mut s = LayoutSpec::default();
    s.set_components(&[
        ComponentSpec { end: 1 << 20, ..ComponentSpec::default() },
        ComponentSpec { end: 1 << 30, stripe_count: 4, pool: "flash".into(), ..ComponentSpec::default() },
        ComponentSpec { stripe_count: -2, overstriped: true, ..ComponentSpec::default() },
    ]);
    assert_eq!(s.check(), Ok(()));
    let full = s.clone().inherit(&LayoutSpec::builtin()).full_components().unwrap();
    let of = |c: &ComponentSpec| (c.stripe_count, c.stripe_size, c.pool.clone(), c.overstriped);
    let size = limits::STRIPE_SIZE_DEFAULT_BYTES;
    assert_eq!(of(&full[0]), (1, size, String::new(), false));
    assert_eq!(of(&full[1]), (4, size, "flash".into(), false));
    assert_eq!(of(&full[2]), (-2, size, "flash".into(), true));
    // Who asks for nothing gets them, who asks for anything does not.
    assert_eq!(LayoutSpec::default().inherit(&s).components(), s.components());
    let plain = LayoutSpec { stripe_count: 2, ..LayoutSpec::default() };
    assert!(!plain.inherit(&s).is_composite());
}

#[test]
fn impossible_components_are_refused() {
    let c = |end| ComponentSpec { end, ..ComponentSpec::default() };
    for (bad, why) in [
        (vec![c(0)], "nothing before its end"),
        (vec![c(1 << 20), c(1 << 20)], "empty"),
        (vec![c(1 << 21), c(1 << 20)], "backward"),
        (vec![c(EOF), c(EOF)], "behind the end"),
        (vec![c(65537)], "no multiple"),
        (vec![ComponentSpec { stripe_count: -2, ..c(EOF) }], "two objects on each OST, not overstriped"),
        (vec![ComponentSpec { extension_bytes: 5, ..c(EOF) }], "grows by five bytes"),
        (vec![c(EOF); limits::COMPONENTS_MAX + 1], "too many"),
    ] {
        let mut s = LayoutSpec::default();
        s.set_components(&bad);
        assert_eq!(s.check(), Err(Errno::EINVAL), "{why}");
    }
    let mut s = LayoutSpec::default();
    s.set_mdt_bytes(131_072);
    s.set_components(&[c(131_072), c(EOF)]);
    assert_eq!(s.check(), Err(Errno::EINVAL), "ends where the data on the MDT does");
    s.extra.push((2, vec![9]));
    assert_eq!(s.check(), Err(Errno::EINVAL), "no component at all");
}

#[test]
fn impossible_settings_are_refused() {
    let ok = LayoutSpec { stripe_count: 2, osts: vec![3, 1], ..LayoutSpec::default() };
    assert!(ok.check().is_ok());
    for bad in [
        LayoutSpec { stripe_size: 65537, ..LayoutSpec::default() },
        LayoutSpec { stripe_size: 1 << 32, ..LayoutSpec::default() },
        LayoutSpec { stripe_count: 2001, ..LayoutSpec::default() },
        LayoutSpec { stripe_count: -2, ..LayoutSpec::default() },
        LayoutSpec { osts: vec![1, 1], ..LayoutSpec::default() },
        LayoutSpec { stripe_count: 3, osts: vec![1, 2], ..LayoutSpec::default() },
        LayoutSpec { stripe_start: 5, osts: vec![1, 2], ..LayoutSpec::default() },
    ] {
        assert_eq!(bad.check(), Err(Errno::EINVAL), "{bad:?}");
    }
}
