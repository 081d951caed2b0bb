//! Layouts that change, components that get objects, ranges at their borders.

use super::*;
use crate::testing::Hold;
use wire::Op;
use wire::msg::fallocate::{FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, Fallocate};
use wire::msg::instantiate::Instantiate;

/// Ranges for which objects were asked for.
fn instantiated(r: &Rig) -> Vec<(u64, u64)> {
    r.mdt().asked::<Instantiate>().iter().map(|m| (m.start, m.end)).collect()
}

#[test]
fn a_layout_that_changed_under_an_open_file_is_fetched_and_the_write_goes_on() {
    run(1, |r| async move {
        let fid = r.striped(1);
        let f = r.open(fid, O_RDWR).await;
        let moved = Layout::striped((fid, 2), 2, UNIT as u32, "", &[2]);
        r.mdt().script().inode(fid).unwrap().layout = Some(moved);
        r.c.osts.iter().for_each(|o| o.fake.script().oldest_generation = 2);
        assert_eq!(r.write(fid, 0, pattern(2 * UNIT)).await, Ok(0));
        r.fsync(&f).await.unwrap();
        assert_eq!((r.stored(fid), r.mdt().count(Op::Layout)), (vec![pattern(2 * UNIT)], 1));
        assert_eq!(r.size(fid).await, Ok(2 * UNIT));
    });
}

#[test]
fn a_write_into_a_component_without_objects_has_them_made_for_its_range_and_is_written() {
    run(2, |r| async move {
        let fid = r.composite(1);
        let f = r.open(fid, O_RDWR).await;
        r.write(fid, 0, *b"first").await.unwrap();
        assert!(instantiated(&r).is_empty(), "that one has its object");
        r.write(fid, UNIT - 4, *b"both of them").await.unwrap();
        r.write(fid, UNIT + 100, *b"second").await.unwrap();
        assert_eq!(instantiated(&r), [(UNIT - 4, UNIT + 8)]);
        assert_eq!(r.read(fid, UNIT - 4, 12).await.unwrap(), b"both of them");
        r.fsync(&f).await.unwrap();
        assert_eq!(
            (&r.stored(fid)[0][UNIT as usize - 4..], &r.stored(fid)[1][..8]),
            (&b"both"[..], &b" of them"[..])
        );
    });
}

#[test]
fn an_append_that_ends_where_there_are_no_objects_has_them_made_where_it_ends() {
    run(3, |r| async move {
        let fid = r.composite(1);
        r.store(fid, 0, &pattern(UNIT - 2));
        let _f = r.open(fid, O_RDWR).await;
        assert_eq!(r.append(fid, *b"over").await, Ok(UNIT - 2));
        assert_eq!(instantiated(&r), [(UNIT - 2, UNIT + 2)]);
        assert_eq!(r.append(fid, *b"!").await, Ok(UNIT + 2));
        assert_eq!(r.read(fid, UNIT - 2, 100).await.unwrap(), b"over!");
    });
}

#[test]
fn space_over_the_border_of_a_component_is_made_in_both_and_a_hole_makes_no_objects() {
    run(4, |r| async move {
        let ranges = |ost: usize| {
            let all = r.ost(ost).asked::<Fallocate>();
            all.iter().map(|m| (m.mode, m.offset, m.len)).collect::<Vec<_>>()
        };
        let (fid, hole) = (r.composite(1), FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE);
        let (_f, fs) = (r.open(fid, O_RDWR).await, &r.fs);
        fs.clone().fallocate(Call::default(), fid, hole, UNIT - 10, 30).await.unwrap();
        assert_eq!((ranges(0), ranges(1), instantiated(&r)), (vec![(hole, UNIT - 10, 10)], vec![], vec![]));
        fs.clone().fallocate(Call::default(), fid, 0, UNIT - 10, 30).await.unwrap();
        assert_eq!(instantiated(&r), [(UNIT - 10, UNIT + 20)]);
        assert_eq!((ranges(0)[1], ranges(1)), ((0, UNIT - 10, 10), vec![(0, 0, 20)]));
        assert_eq!(r.size(fid).await, Ok(UNIT + 20));
        fs.clone().fallocate(Call::default(), fid, hole, UNIT - 1, 2).await.unwrap();
        assert_eq!((ranges(0)[2], ranges(1)[1]), ((hole, UNIT - 1, 1), (hole, 0, 1)));
    });
}

#[test]
fn space_for_which_there_is_no_room_with_the_inode_is_made_on_objects() {
    run(5, |r| async move {
        let fid = r.small(1, b"data");
        let _f = r.open(fid, O_RDWR).await;
        r.fs.clone().fallocate(Call::default(), fid, 0, 0, 100).await.unwrap();
        assert_eq!((r.mdt().count(Op::Fallocate), r.mdt().count(Op::Grow)), (1, 0));
        r.fs.clone().fallocate(Call::default(), fid, 0, 0, UNIT + 5).await.unwrap();
        assert_eq!((r.mdt().count(Op::Grow), r.on_osts(Op::Fallocate)), (1, 2));
        assert_eq!(r.size(fid).await, Ok(UNIT + 5));
        assert_eq!(r.read(fid, 0, 6).await.unwrap(), b"data\0\0");
    });
}

#[test]
fn a_truncate_cuts_what_is_not_written_yet_and_an_extended_file_ends_where_there_is_an_object() {
    run(6, |r| async move {
        let (fid, parts) = (r.striped(1), r.composite(2));
        let (f, _p) = (r.open(fid, O_RDWR).await, r.open(parts, O_RDWR).await);
        r.write(fid, 0, pattern(4 * UNIT)).await.unwrap();
        assert_eq!(r.truncate(fid, UNIT + 10).await, Ok(UNIT + 10));
        assert_eq!(r.truncate(fid, 3 * UNIT).await, Ok(3 * UNIT));
        let cut = (UNIT + 10) as usize;
        let whole = [&pattern(4 * UNIT)[..cut], &vec![0; 3 * UNIT as usize - cut]].concat();
        assert_eq!(r.read(fid, 0, 5 * UNIT).await.unwrap(), whole);
        r.fsync(&f).await.unwrap();
        assert_eq!(r.stored(fid).concat(), whole);
        assert_eq!(r.truncate(parts, 2 * UNIT).await, Ok(2 * UNIT));
        assert_eq!(instantiated(&r), [(2 * UNIT - 1, 2 * UNIT)]);
        assert_eq!(r.truncate(parts, 0).await, Ok(0));
    });
}

#[test]
fn the_size_of_a_file_that_gets_objects_while_its_size_is_asked_for_is_that_of_all_of_them() {
    run(7, |r| async move {
        r.mdt().script().leases = false;
        let fid = r.composite(1);
        r.store(fid, 0, b"short");
        r.ost(0).hold(Hold::Of(Op::Glimpse));
        let fs = r.fs.clone();
        let size = r.beside(async move { Ok(fs.getattr(Call::default(), fid).await?.size) });
        r.until("an object is asked for its size", || r.ost(0).running() == 1).await;
        {
            let mut s = r.mdt().script();
            let l = s.inode(fid).unwrap().layout.as_mut().unwrap();
            l.instantiate(1, fid, ("", &[1]));
            l.generation = 2;
        }
        r.store(fid, UNIT, b"another mount's");
        r.ost(0).hold(Hold::Nothing);
        r.until("it is known", || size.lock().is_some()).await;
        assert_eq!(*size.lock(), Some(Ok(UNIT + 15)));
    });
}

#[test]
fn a_short_answer_of_a_contended_object_is_believed_only_under_a_lock() {
    run(8, |r| async move {
        let fid = r.with_layout(1, |fid| Layout::striped((fid, 1), 1, UNIT as u32, "", &[0]));
        r.store(fid, 0, b"0123456789");
        r.ost(0).script().contended = true;
        assert_eq!(r.read(fid, 2, 4).await.unwrap(), b"2345");
        assert!(r.ost(0).script().locks.is_empty(), "through its server");
        assert_eq!(r.read(fid, 2, 100).await.unwrap(), b"23456789");
        assert_eq!(r.ost(0).script().locks.len(), 1, "others may keep bytes behind that");
    });
}

#[test]
fn a_copy_within_a_file_stops_where_it_fails_and_says_how_far_it_came() {
    run(9, |r| async move {
        let part =
            |end| ComponentSpec { end, stripe_count: 1, stripe_size: UNIT, ..ComponentSpec::default() };
        let end = 6 << 20;
        let fid = r.with_layout(1, |fid| {
            let mut l = Layout::composite(1, 1, &[part(end)]);
            l.instantiate(0, fid, ("", &[0]));
            l
        });
        let data = pattern(5 << 20);
        r.store(fid, 0, &data);
        let _f = r.open(fid, O_RDWR).await;
        let copy = |from, to, len| r.fs.clone().copy_file_range(Call::default(), fid, from, fid, to, len);
        assert_eq!(copy(0, 99, 100).await, Err(Errno::EINVAL), "the ranges overlap");
        assert_eq!(copy(100, 1, 100).await, Err(Errno::EINVAL));
        assert_eq!(r.on_osts(Op::Read), 0, "nothing was copied");
        assert_eq!(copy(0, 5 << 20, 100).await, Ok(100));
        assert_eq!(r.read(fid, 5 << 20, 200).await.unwrap(), data[..100]);
        // Four MiB at a time: the second part has no place behind the last component.
        let long = r.with_layout(2, |fid| Layout::striped((fid, 1), 1, UNIT as u32, "", &[1]));
        r.store(long, 0, &data);
        let from = |at, to| r.fs.clone().copy_file_range(Call::default(), long, at, fid, to, 5 << 20);
        assert_eq!(from(0, 2 << 20).await, Ok(4 << 20));
        assert_eq!(r.read(fid, 2 << 20, 100).await.unwrap(), data[..100]);
        assert_eq!(from(4 << 20, end).await, Err(Errno::ENODATA));
    });
}

#[test]
fn a_file_without_a_layout_gets_one_with_its_first_write() {
    run(10, |r| async move {
        let fid = Fid::new(9, 1, 0);
        r.mdt().script().add(fid, FileType::Regular, None);
        let f = r.open(fid, O_RDWR).await;
        assert_eq!(r.read(fid, 0, 10).await.unwrap(), b"", "it has nothing");
        assert_eq!(r.mdt().count(Op::Setlayout), 0);
        r.write(fid, 0, *b"one").await.unwrap();
        r.write(fid, 3, *b" two").await.unwrap();
        r.fsync(&f).await.unwrap();
        assert_eq!((r.stored(fid), r.mdt().count(Op::Setlayout)), (vec![b"one two".to_vec()], 1));
    });
}
