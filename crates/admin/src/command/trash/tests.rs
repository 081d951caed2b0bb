use super::items::Item;
use super::take::{Step, once, plan, youngest};
use super::totals::Totals;
use crate::walk::fake::attr;
use model::{Fid, FileType, Timestamp};
use std::path::Path;
use wire::msg::trashlist::Trashed;
use wire::msg::trashtake::Takeout;

fn fid(oid: u32) -> Fid {
    attr(FileType::Regular, oid).fid
}

fn item(oid: u32, sec: i64, parent: u32, (way, name): (&str, &str), removed: &[u32]) -> Item {
    let file = Trashed {
        attr: attr(FileType::Regular, oid),
        layout: None,
        when: Timestamp { sec, nsec: 0 },
        by: 0,
        parent: fid(parent),
        name: name.into(),
        way: Some(way.into()),
        removed: removed.iter().map(|n| fid(*n)).collect(),
    };
    Item { file, size: Some(0) }
}

fn fids(steps: &[Step]) -> Vec<Fid> {
    steps.iter().map(|s| s.fid).collect()
}

#[test]
fn of_several_of_one_name_the_youngest_is_meant() {
    let all =
        vec![item(1, 5, 9, ("d", "f"), &[]), item(2, 6, 9, ("d", "g"), &[]), item(3, 7, 9, ("d", "f"), &[])];
    let kept = youngest(all);
    assert_eq!(kept.iter().map(Item::fid).collect::<Vec<_>>(), [fid(2), fid(3)]);
}

#[test]
fn directories_come_back_before_what_lay_in_them_and_once() {
    let (f, g) = (item(1, 1, 8, ("d/s/t", "f"), &[7, 8]), item(2, 2, 8, ("d/s/t", "g"), &[7, 8]));
    let steps = plan(Path::new("/m"), &[f.clone(), g.clone()], None);
    assert_eq!(fids(&steps), [fid(7), fid(8), fid(1), fid(2)]);
    assert!(steps.iter().all(|s| s.how == Takeout::Back));
    assert_eq!(steps[2].shown, "/m/d/s/t/f");
    // To another directory they do not need the one that they were in.
    let steps = plan(Path::new("/m"), &[f.clone(), g], Some((fid(50), None)));
    assert_eq!(fids(&steps), [fid(1), fid(2)]);
    assert_eq!(steps[0].how, Takeout::To(fid(50), b"f".to_vec()));
    // A tree goes there as a whole.
    let dir = item(8, 3, 7, ("d/s", "t"), &[7]);
    let steps = plan(Path::new("/m"), &[f, dir], Some((fid(50), None)));
    assert_eq!(fids(&steps), [fid(8), fid(1)]);
    assert_eq!([&steps[0].how, &steps[1].how], [&Takeout::To(fid(50), b"t".to_vec()), &Takeout::Back]);
}

#[test]
fn directories_come_first_also_if_nobody_knows_where_they_were() {
    let mut f = item(1, 1, 8, ("", "f"), &[7, 8]);
    f.file.way = None;
    let steps = plan(Path::new("/m"), &[f], None);
    assert_eq!(fids(&steps), [fid(7), fid(8), fid(1)]);
    assert_eq!(steps[2].shown, "?/f");
}

#[test]
fn a_directory_that_several_operands_need_comes_back_once() {
    let (a, b) = (item(1, 1, 7, ("d", "a"), &[7]), item(2, 2, 7, ("d", "b"), &[7]));
    let of = |i: &Item| plan(Path::new("/m"), std::slice::from_ref(i), None);
    let steps = once([of(&a), of(&b), of(&a)].concat());
    assert_eq!(fids(&steps), [fid(7), fid(1), fid(2)]);
}

#[test]
fn what_lies_there_is_counted_by_user_and_by_directory() {
    let mut all = vec![
        item(1, 50, 9, ("", "f"), &[]),
        item(2, 40, 9, ("d", "g"), &[]),
        item(3, 70, 9, ("d/deeper", "h"), &[]),
        item(4, 60, 9, ("x", "i"), &[]),
    ];
    for (n, i) in (0u64..).zip(all.iter_mut()) {
        i.size = Some(n * 1000);
    }
    (all[3].size, all[3].file.way, all[2].file.attr.uid) = (None, None, 1234);
    let t = Totals::of(&all);
    assert_eq!((t.all.files, t.all.bytes, t.all.unknown, t.all.oldest), (4, 3000, 1, Some(40)));
    assert_eq!(t.users[&1234].bytes, 2000);
    let names: Vec<(&str, u64)> = t.directories.iter().map(|(n, t)| (n.as_str(), t.files)).collect();
    assert_eq!(names, [(".", 1), ("?", 1), ("d", 2)]);
    assert!(Totals::of(&[]).text().is_empty());
    assert!(t.text().contains("below d: 2 removed, "));
}
