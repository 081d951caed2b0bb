use super::*;
use crate::Fid;

const FID: Fid = Fid::new(0x2_0000_0401, 7, 0);
const MIB: u64 = 1 << 20;

/// Components that end there, with objects on these OSTs; none: without objects.
fn composite(parts: &[(u64, &[u16])]) -> Layout {
    let spec = |&(end, osts): &(u64, &[u16])| ComponentSpec {
        end,
        stripe_count: osts.len() as i32,
        stripe_size: 196_608,
        ..ComponentSpec::default()
    };
    let mut l = Layout::composite(1, 3, &parts.iter().map(spec).collect::<Vec<_>>());
    for (n, (_, osts)) in parts.iter().enumerate().filter(|(_, (_, osts))| !osts.is_empty()) {
        l.instantiate(n, FID, ("", osts));
    }
    l
}

fn label(l: &Layout, n: usize) -> ObjectLabel {
    ObjectLabel::decode(&ObjectLabel::encoded_of(l, &l.components[n]).unwrap()).unwrap()
}

fn joined(label: &ObjectLabel, old: Option<&Layout>) -> Layout {
    match label.join(old, 0) {
        Joined::New(l) => l,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_label_says_the_component_and_bytes_of_others_are_none() {
    let l = composite(&[(EOF, &[0, 1, 2, 3])]);
    let bytes = ObjectLabel::encoded_of(&l, &l.components[0]).unwrap();
    assert!(bytes.len() < 130, "{} bytes for four objects", bytes.len());
    let read = ObjectLabel::decode(&bytes).unwrap();
    assert_eq!((read.generation, &read.component), (3, &l.components[0]));
    assert_eq!(ObjectLabel::generation_of(&bytes), Some(3));
    for n in 0..bytes.len() {
        assert_eq!(ObjectLabel::decode(&bytes[..n]), None, "cut to {n} bytes");
    }
    let mut later = bytes.clone();
    later[0] = VERSION + 1;
    assert_eq!(ObjectLabel::decode(&later), None);
    let wrong = |f: fn(&mut Component)| {
        let mut l = label(&l, 0);
        f(&mut l.component);
        ObjectLabel::decode(&l.encode())
    };
    assert_eq!(wrong(|c| c.stripe_size = 5), None);
    assert_eq!(wrong(|c| c.objects[1] = c.objects[0]), None);
    assert_eq!(wrong(|c| c.end = c.start), None);
    assert_eq!(wrong(|c| c.pattern = Pattern::Mdt), None);
}

#[test]
fn wide_components_and_those_with_data_at_the_metadata_target_have_none() {
    let osts: Vec<u16> = (0..LABELLED_OBJECTS_MAX as u16 + 1).collect();
    let wide = Layout::plain(FID, 65536, "", &osts);
    assert_eq!(ObjectLabel::encoded_of(&wide, &wide.components[0]), None);
    let widest = Layout::plain(FID, 65536, "", &osts[1..]);
    let bytes = ObjectLabel::encoded_of(&widest, &widest.components[0]).unwrap();
    assert!(bytes.len() <= LABEL_MAX_BYTES && ObjectLabel::decode(&bytes).is_some());
    let on_mdt = Layout::on_mdt(65536);
    assert_eq!(ObjectLabel::encoded_of(&on_mdt, &on_mdt.components[0]), None);
}

#[test]
fn a_plain_file_comes_back_from_any_of_its_objects() {
    let l = composite(&[(EOF, &[4, 2])]);
    let back = joined(&label(&l, 0), None);
    assert_eq!(back.components.len(), 1);
    assert!(back.covers_file() && back.objects().eq(l.objects()));
    assert!(back.generation > l.generation, "no fence is above it");
    assert_eq!(label(&l, 0).join(Some(&back), 0), Joined::Known);
}

#[test]
fn components_come_back_in_any_order_and_gaps_are_holes() {
    let l = composite(&[(MIB, &[0]), (4 * MIB, &[1, 2]), (16 * MIB, &[]), (EOF, &[3])]);
    for order in [[0, 1, 3], [3, 0, 1], [1, 3, 0]] {
        let mut back: Option<Layout> = None;
        for n in order {
            back = Some(joined(&label(&l, n), back.as_ref()));
        }
        let back = back.unwrap();
        let ends: Vec<u64> = back.components.iter().map(|c| c.end).collect();
        assert_eq!(ends, [MIB, 4 * MIB, 16 * MIB, EOF]);
        assert!(back.objects().eq(l.objects()), "{order:?}");
        assert_eq!(back.uninstantiated(0, EOF), Some(2));
        let ids: Vec<u32> = back.components.iter().map(|c| c.id).collect();
        assert!(ids[2] > 4, "an id that no component had: {ids:?}");
    }
}

#[test]
fn the_later_of_two_labels_counts_and_equal_ones_that_differ_are_refused() {
    let old = composite(&[(EOF, &[0, 1])]);
    let mut new = old.clone();
    new.generation += 1;
    new.components[0].objects[1].ost = 5;
    new.components[0].objects[1].id.component = 9;
    for order in [[&old, &new], [&new, &old]] {
        let first = joined(&label(order[0], 0), None);
        match label(order[1], 0).join(Some(&first), 0) {
            Joined::New(l) => assert!(l.objects().eq(new.objects()) && l.generation > first.generation),
            Joined::Contradicts(_) => assert!(first.objects().eq(new.objects())),
            Joined::Known => panic!("they differ"),
        }
    }
    let mut other = old.clone();
    other.components[0].objects.swap(0, 1);
    let first = joined(&label(&old, 0), None);
    assert!(matches!(label(&other, 0).join(Some(&first), 0), Joined::Contradicts(_)));
    // A component that nobody put together is its user's.
    let mut later = old.clone();
    later.generation = 100;
    assert!(matches!(label(&later, 0).join(Some(&old), 0), Joined::Contradicts(_)));
}

#[test]
fn a_component_that_grew_has_the_end_of_its_latest_label() {
    let short = composite(&[(MIB, &[0])]);
    let mut long = short.clone();
    (long.generation, long.components[0].end) = (8, 2 * MIB);
    let first = joined(&label(&short, 0), None);
    let both = joined(&label(&long, 0), Some(&first));
    assert_eq!(both.components[0].end, 2 * MIB);
    assert_eq!(label(&short, 0).join(Some(&both), 0), Joined::Known);
}
