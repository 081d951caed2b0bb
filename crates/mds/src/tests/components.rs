//! Layouts in components: which objects there are from the beginning, and who gets others when.

use super::*;
use crate::schema::{Inode, key};
use ::model::Layout;
use ::model::LayoutSpec;
use ::model::layout::{
    COMPONENT_INIT, COMPONENT_NOSYNC, COMPONENT_PREFER_READ, ComponentChange, ComponentFilter, ComponentSpec,
    EOF,
};
use wire::msg::components::Components;
use wire::msg::grow::Grow;
use wire::msg::instantiate::Instantiate;
use wire::msg::setlayout::Setlayout;
use wire::msg::statfs::StatfsReply;

const R: Fid = Fid::ROOT;
const M: u64 = 1 << 20;

fn part(end: u64, stripe_count: i32) -> ComponentSpec {
    ComponentSpec { end, stripe_count, stripe_size: 65536, ..ComponentSpec::default() }
}

fn spec(parts: &[ComponentSpec]) -> LayoutSpec {
    let mut s = LayoutSpec::default();
    s.set_components(parts);
    s
}

fn create(rig: &Rig, dir: Fid, name: &str, layout: Option<LayoutSpec>) -> Result<Entry, Errno> {
    let m = Create { layout, ..create_msg(dir, name, rig.fid(), 0o644) };
    rig.root(m).map(|r| r.entry)
}

/// Of each component its end, its objects, and whether it is room to grow into.
fn shape(l: &Layout) -> Vec<(u64, usize, bool)> {
    l.components.iter().map(|c| (c.end, c.objects.len(), c.is_extension())).collect()
}

fn instantiate(rig: &Rig, fid: Fid, start: u64, end: u64) -> Result<Layout, Errno> {
    rig.root(Instantiate { fid, start, end }).map(|e| e.layout.unwrap())
}

/// An OST says how much room it has.
fn has_room(rig: &Rig, ost: u16, available: u64) {
    let space = StatfsReply { available, total: 1 << 40, ..StatfsReply::default() };
    assert!(rig.mdt.shared.osts.update(ost, |o| o.space = Some(space)));
}

#[test]
fn only_what_is_written_gets_objects_and_each_change_is_a_generation() {
    let mut rig = Rig::new();
    let e = create(&rig, R, "f", Some(spec(&[part(M, 1), part(4 * M, 2), part(EOF, -1)]))).unwrap();
    let (fid, l) = (e.attr.fid, e.layout.unwrap());
    assert_eq!((l.generation, shape(&l)), (0, vec![(M, 1, false), (4 * M, 0, false), (EOF, 0, false)]));
    assert_eq!(rig.assert_clean().objects, 1);
    let same = instantiate(&rig, fid, 0, M).unwrap();
    assert_eq!(same, l, "it has all that");
    let l = instantiate(&rig, fid, 5 * M, 5 * M + 1).unwrap();
    assert_eq!((l.generation, shape(&l)), (1, vec![(M, 1, false), (4 * M, 0, false), (EOF, 4, false)]));
    let l = instantiate(&rig, fid, M - 1, M + 1).unwrap();
    assert_eq!((l.generation, shape(&l)), (2, vec![(M, 1, false), (4 * M, 2, false), (EOF, 4, false)]));
    assert_eq!(l.components.iter().map(|c| c.id).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(rig.assert_clean().objects, 7);
    rig.crash(1);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    assert_eq!(instantiate(&rig, fid, 0, EOF), Ok(l), "the answer was durable");
    rig.unlink(R, "f").unwrap();
    assert_eq!(rig.assert_clean().objects, 0);
    assert_eq!(instantiate(&rig, fid, 0, 1), Err(Errno::ESTALE));
}

#[test]
fn components_come_from_the_directory_unless_something_else_is_asked_for() {
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    let asked = spec(&[part(M, 1), part(EOF, 3)]);
    rig.root(Setlayout { fid: d, spec: Some(asked) }).unwrap();
    let below = rig.mkdir(d, "below");
    for dir in [d, below] {
        let l = create(&rig, dir, "f", None).unwrap().layout.unwrap();
        assert_eq!(shape(&l), [(M, 1, false), (EOF, 0, false)]);
    }
    let plain = LayoutSpec { stripe_count: 2, ..LayoutSpec::default() };
    let l = create(&rig, d, "plain", Some(plain)).unwrap().layout.unwrap();
    assert_eq!(shape(&l), [(EOF, 2, false)]);
    rig.assert_clean();
}

#[test]
fn a_layout_that_ends_has_no_place_behind_its_end() {
    let rig = Rig::new();
    let fid = create(&rig, R, "f", Some(spec(&[part(M, 1)]))).unwrap().attr.fid;
    assert!(instantiate(&rig, fid, 0, M).is_ok());
    assert_eq!(instantiate(&rig, fid, M - 1, M + 1), Err(Errno::ENODATA));
    assert_eq!(instantiate(&rig, fid, 5, 5), Err(Errno::EINVAL));
    let d = rig.mkdir(R, "d");
    assert_eq!(instantiate(&rig, d, 0, 1), Err(Errno::EINVAL));
    assert_eq!(create(&rig, R, "bad", Some(spec(&[part(M, 1), part(M, 1)]))).unwrap_err(), Errno::EINVAL);
    let nowhere = ComponentSpec { osts: vec![99], stripe_count: 0, ..part(EOF, 0) };
    assert_eq!(create(&rig, R, "bad", Some(spec(&[nowhere]))).unwrap_err(), Errno::EINVAL);
    rig.assert_clean();
}

#[test]
fn a_file_outgrows_its_inode_into_components() {
    let rig = Rig::new();
    let mut asked = spec(&[part(M, 1), part(EOF, 2)]);
    asked.set_mdt_bytes(65536);
    let e = create(&rig, R, "f", Some(asked)).unwrap();
    let fid = e.attr.fid;
    assert_eq!(e.layout.unwrap().data_room(), Some(65536));
    let l = rig.root(Grow { fid }).unwrap().layout.unwrap();
    assert_eq!(shape(&l), [(M, 1, false), (EOF, 0, false)]);
    assert_eq!((l.components[0].id, l.components[1].id), (1 << 31 | 1, 2), "the second is chosen durably");
    let l = instantiate(&rig, fid, 0, 2 * M).unwrap();
    assert_eq!((l.generation, shape(&l)), (2, vec![(M, 1, false), (EOF, 2, false)]));
    assert_eq!(rig.assert_clean().objects, 3);
}

#[test]
fn a_component_grows_while_its_osts_have_room() {
    let rig = Rig::new();
    let grows = |end| ComponentSpec { extension_bytes: M, ..part(end, 1) };
    let e = create(&rig, R, "f", Some(spec(&[grows(8 * M), part(EOF, 2)]))).unwrap();
    let (fid, l) = (e.attr.fid, e.layout.unwrap());
    assert_eq!(shape(&l), [(M, 1, false), (8 * M, 0, true), (EOF, 0, false)]);
    let first = l.objects().next().unwrap().ost;
    let l = instantiate(&rig, fid, 0, 2 * M + 1).unwrap();
    assert_eq!(shape(&l), [(3 * M, 1, false), (8 * M, 0, true), (EOF, 0, false)]);
    // Its OST is full: what comes goes to the component behind.
    has_room(&rig, first, M);
    let l = instantiate(&rig, fid, 3 * M, 3 * M + 1).unwrap();
    assert_eq!(shape(&l), [(3 * M, 1, false), (EOF, 2, false)]);
    assert_eq!(l.components[1].start, 3 * M);
    assert!(l.components[1].objects.iter().all(|o| o.ost != first), "{l:?}");
    rig.assert_clean();
}

#[test]
fn the_last_component_goes_on_elsewhere_when_its_osts_are_full() {
    let rig = Rig::new();
    let e =
        create(&rig, R, "f", Some(spec(&[ComponentSpec { extension_bytes: M, ..part(EOF, 1) }]))).unwrap();
    let (fid, first) = (e.attr.fid, e.layout.unwrap().objects().next().unwrap().ost);
    has_room(&rig, first, M / 2);
    let l = instantiate(&rig, fid, 0, 3 * M).unwrap();
    assert_eq!(shape(&l), [(M, 1, false), (3 * M, 1, false), (EOF, 0, true)]);
    let second = l.components[1].objects[0].ost;
    assert_ne!(second, first);
    assert!(l.components[1].id > l.components[2].id, "ids are never used twice");
    // Nobody has room for a whole step: what there is must do.
    for ost in 0..4 {
        has_room(&rig, ost, M + M / 2 - u64::from(ost == second) * M);
    }
    has_room(&rig, second, M / 2);
    let l = instantiate(&rig, fid, 0, 4 * M).unwrap();
    assert_eq!(shape(&l)[2], (4 * M, 1, false));
    rig.assert_clean();
}

#[test]
fn a_file_that_goes_on_elsewhere_again_and_again_has_no_more_components_than_there_may_be() {
    let rig = Rig::new();
    let grows = ComponentSpec { extension_bytes: 65536, ..part(EOF, 1) };
    let fid = create(&rig, R, "f", Some(spec(&[grows]))).unwrap().attr.fid;
    let most = ::model::limits::COMPONENTS_MAX as u64;
    let mut l = instantiate(&rig, fid, 0, 1).unwrap();
    for n in 1..=2 * most {
        // The OST that it is on has no room for another step, the others have.
        let last = l.objects().last().unwrap().ost;
        (0..4).for_each(|ost| has_room(&rig, ost, M + u64::from(ost != last)));
        l = instantiate(&rig, fid, n * 65536, n * 65536 + 1).unwrap();
    }
    assert_eq!((l.components.len() as u64, l.check_range(0, (2 * most + 1) * 65536)), (most, Ok(())));
    rig.assert_clean();
}

fn change(rig: &Rig, fid: Fid, change: ComponentChange) -> Result<Layout, Errno> {
    rig.root(Components { fid, change }).map(|e| e.layout.unwrap())
}

fn add(parts: &[ComponentSpec]) -> ComponentChange {
    ComponentChange::Add(spec(parts))
}

fn delete(id: u32) -> ComponentChange {
    ComponentChange::Delete(ComponentFilter::Id(id))
}

fn ids(l: &Layout) -> Vec<u32> {
    l.components.iter().map(|c| c.id).collect()
}

#[test]
fn the_id_of_room_that_was_used_up_is_not_given_again() {
    let rig = Rig::new();
    let grows = ComponentSpec { extension_bytes: M, ..part(2 * M, 1) };
    let fid = create(&rig, R, "f", Some(spec(&[grows, part(4 * M, 1)]))).unwrap().attr.fid;
    assert_eq!(ids(&change(&rig, fid, delete(3)).unwrap()), [1, 2]);
    assert_eq!(ids(&instantiate(&rig, fid, 0, 2 * M).unwrap()), [1]);
    let l = change(&rig, fid, add(&[part(8 * M, 1)])).unwrap();
    assert!(ids(&l)[1] > 3, "an id of a component that was deleted is given again: {l:?}");
    rig.assert_clean();
}

#[test]
fn components_come_behind_the_last_one_in_one_generation() {
    let mut rig = Rig::new();
    let e = create(&rig, R, "f", Some(spec(&[part(M, 1)]))).unwrap();
    let fid = e.attr.fid;
    assert_eq!(instantiate(&rig, fid, M, M + 1), Err(Errno::ENODATA));
    let open_end = ComponentSpec { stripe_count: 0, stripe_size: 0, ..part(8 * M, 0) };
    let l = change(&rig, fid, add(&[part(4 * M, 2), open_end])).unwrap();
    assert_eq!((l.generation, shape(&l)), (1, vec![(M, 1, false), (4 * M, 0, false), (8 * M, 0, false)]));
    assert_eq!((l.components[2].stripe_size, l.components[2].wanted().unwrap().stripe_count), (65536, 2));
    let l = instantiate(&rig, fid, 0, 5 * M).unwrap();
    assert_eq!(shape(&l), [(M, 1, false), (4 * M, 2, false), (8 * M, 2, false)]);
    let l = change(&rig, fid, add(&[ComponentSpec { extension_bytes: M, ..part(EOF, 1) }])).unwrap();
    assert_eq!(shape(&l)[3..], [(8 * M, 0, false), (EOF, 0, true)]);
    let l = instantiate(&rig, fid, 9 * M, 9 * M + 1).unwrap();
    assert_eq!(shape(&l)[3..], [(10 * M, 1, false), (EOF, 0, true)]);
    assert_eq!(change(&rig, fid, add(&[part(EOF, 1)])), Err(Errno::EINVAL), "it reaches to the end");
    rig.crash(3);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    assert_eq!(rig.root(msg::layout::Layout { fid }).unwrap().layout, Some(l), "the answers were durable");
    assert_eq!(rig.assert_clean().objects, 6);
}

#[test]
fn components_without_objects_go_at_once_and_their_ids_are_not_given_again() {
    let rig = Rig::new();
    let parts = [part(M, 1), part(4 * M, 2), part(EOF, -1)];
    let fid = create(&rig, R, "f", Some(spec(&parts))).unwrap().attr.fid;
    assert_eq!(change(&rig, fid, delete(2)), Err(Errno::EINVAL), "that would leave a hole");
    let l = change(&rig, fid, delete(3)).unwrap();
    assert_eq!((l.generation, ids(&l)), (1, vec![1, 2]));
    let l = change(&rig, fid, add(&[part(5 * M, 1)])).unwrap();
    assert_eq!(ids(&l), [1, 2, 4]);
    let bare = ComponentFilter::Flags { with: 0, without: COMPONENT_INIT };
    let l = change(&rig, fid, ComponentChange::Delete(bare)).unwrap();
    assert_eq!((ids(&l), shape(&l)), (vec![1], vec![(M, 1, false)]));
    assert_eq!(change(&rig, fid, ComponentChange::Delete(bare)), Err(Errno::EINVAL), "there is none");
    assert_eq!(change(&rig, fid, delete(1)), Err(Errno::EOPNOTSUPP), "a file keeps its first component");
    let l = change(&rig, fid, add(&[part(2 * M, 1)])).unwrap();
    assert_eq!(ids(&l), [1, 5]);
    rig.assert_clean();
}

#[test]
fn a_component_whose_object_servers_do_not_answer_stays() {
    let mut rig = Rig::new();
    let fid = create(&rig, R, "f", Some(spec(&[part(M, 1), part(EOF, 2)]))).unwrap().attr.fid;
    let old = instantiate(&rig, fid, 0, 2 * M).unwrap();
    // There are no object servers behind these OSTs.
    assert_eq!(change(&rig, fid, delete(2)), Err(Errno::EIO));
    let layout = |rig: &Rig| rig.root(msg::layout::Layout { fid }).unwrap().layout.unwrap();
    let kept = layout(&rig);
    assert_eq!(kept.components, old.components, "the data is where it was");
    assert_eq!(kept.generation, old.generation + 3, "its objects may be fenced, by each of three attempts");
    let s = rig.assert_clean();
    assert_eq!((s.objects, s.outbox), (3, 0), "what the file keeps is not destroyed");
    rig.crash(4);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    assert_eq!(layout(&rig), kept);
    rig.unlink(R, "f").unwrap();
    assert_eq!(rig.assert_clean().objects, 0);
}

#[test]
fn what_was_to_be_left_when_the_server_crashed_is_destroyed_with_nothing() {
    let mut rig = Rig::new();
    let fid = create(&rig, R, "f", Some(spec(&[part(M, 1), part(EOF, 2)]))).unwrap().attr.fid;
    let old = instantiate(&rig, fid, 0, 2 * M).unwrap();
    let k = key::inode(fid);
    let mut i = Inode::decode(fid, &rig.mdt.db.get(&k).unwrap().unwrap()).unwrap();
    let mut target = old.clone();
    target.components.truncate(1);
    target.generation += 1;
    i.growth.target = Some(target);
    let mut txn = store::Txn::new();
    txn.put(k, i.encode());
    let lsn = rig.mdt.db.submit(txn).unwrap();
    block_on(rig.mdt.db.durable(lsn)).unwrap();
    rig.crash(5);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    let kept = rig.root(msg::layout::Layout { fid }).unwrap().layout.unwrap();
    assert_eq!((&kept.components, kept.generation), (&old.components, old.generation + 1));
    let s = rig.assert_clean();
    assert_eq!((s.objects, s.outbox), (3, 0));
}

#[test]
fn flags_say_which_copy_is_preferred_and_nothing_else() {
    let rig = Rig::new();
    let fid = create(&rig, R, "f", Some(spec(&[part(M, 1), part(EOF, 2)]))).unwrap().attr.fid;
    let flags = |id, set, clear| change(&rig, fid, ComponentChange::Flags { id, set, clear });
    let l = flags(2, COMPONENT_PREFER_READ, 0).unwrap();
    assert_eq!((l.generation, l.components[1].flags), (1, COMPONENT_PREFER_READ));
    assert_eq!(flags(2, COMPONENT_PREFER_READ, 0).unwrap().generation, 1, "it has that");
    assert_eq!(flags(2, 0, COMPONENT_PREFER_READ).unwrap().components[1].flags, 0);
    assert_eq!(flags(7, COMPONENT_PREFER_READ, 0), Err(Errno::EINVAL));
    assert_eq!(flags(2, COMPONENT_NOSYNC, 0), Err(Errno::EOPNOTSUPP));
    rig.assert_clean();
}

#[test]
fn who_may_not_change_a_file_does_not_change_its_components() {
    let rig = Rig::new();
    let layout = Some(spec(&[part(M, 1)]));
    let f = create(&rig, R, "f", layout.clone()).unwrap().attr.fid;
    rig.chown(f, 7, 7);
    let try_as = |cred: &Cred, fid, change: &ComponentChange| {
        rig.call(A, cred, Components { fid, change: change.clone() }).map(|_| ())
    };
    let (more, root) = (add(&[part(2 * M, 1)]), Cred::root());
    assert_eq!(try_as(&user(8), f, &more), Err(Errno::EPERM));
    assert_eq!(try_as(&user(7), f, &more), Ok(()));
    let d = rig.mkdir(R, "d");
    assert_eq!(try_as(&root, d, &more), Err(Errno::EINVAL));
    assert_eq!(try_as(&root, Fid::new(9, 9, 0), &more), Err(Errno::ESTALE));
    let nowhere = ComponentSpec { osts: vec![99], stripe_count: 0, ..part(EOF, 0) };
    assert_eq!(try_as(&root, f, &add(&[nowhere])), Err(Errno::EINVAL));
    let bare = Create { no_objects: true, ..create_msg(R, "bare", rig.fid(), 0o644) };
    let bare = rig.root(bare).unwrap().entry.attr.fid;
    assert_eq!(try_as(&root, bare, &more), Err(Errno::ENODATA), "it has no layout yet");
    rig.assert_clean();
}

#[test]
fn of_a_file_that_lies_with_its_inode_what_it_grows_into_gets_components() {
    let rig = Rig::new();
    let mut asked = spec(&[part(M, 1)]);
    asked.set_mdt_bytes(65536);
    let fid = create(&rig, R, "f", Some(asked)).unwrap().attr.fid;
    let l = change(&rig, fid, add(&[part(EOF, 2)])).unwrap();
    assert_eq!((l.generation, l.data_room()), (0, Some(65536)), "the data stays where it is");
    assert_eq!(change(&rig, fid, add(&[part(EOF, 2)])), Err(Errno::EINVAL), "it reaches to the end");
    assert_eq!(change(&rig, fid, delete(1)), Err(Errno::EOPNOTSUPP));
    assert_eq!(shape(&rig.root(Grow { fid }).unwrap().layout.unwrap()), [(M, 1, false), (EOF, 0, false)]);
    let l = change(&rig, fid, delete(2)).unwrap();
    assert_eq!(l.components[0].id, 1 << 31 | 1);
    let l = change(&rig, fid, add(&[part(2 * M, 1)])).unwrap();
    assert_eq!((l.components[1].id, l.generation), (3, 3));
    let plain = rig.create(R, "plain");
    assert_eq!(change(&rig, plain, add(&[part(EOF, 2)])), Err(Errno::EINVAL), "files grow to the end");
    rig.assert_clean();
}

#[test]
fn a_file_without_data_takes_another_layout_until_the_first_byte() {
    let mut rig = Rig::new();
    let set = |rig: &Rig, fid, spec: LayoutSpec| rig.root(Setlayout { fid, spec: Some(spec) });
    let mut larger = LayoutSpec::default();
    larger.set_mdt_bytes(131_072);
    let (f, g) = (rig.create(R, "f"), rig.create(R, "g"));
    let e = set(&rig, f, larger.clone()).unwrap();
    assert_eq!(e.layout.map(|l| (l.generation, l.data_room())), Some((1, Some(131_072))));
    let e = set(&rig, f, spec(&[part(M, 1), part(EOF, 2)])).unwrap();
    let l = e.layout.unwrap();
    assert_eq!((l.generation, shape(&l)), (2, vec![(M, 1, false), (EOF, 0, false)]));
    assert_eq!(set(&rig, f, larger.clone()).unwrap_err(), Errno::EEXIST, "it has objects");
    rig.write(g, 0, b"x").unwrap();
    assert_eq!(set(&rig, g, larger).unwrap_err(), Errno::EEXIST, "it has data");
    assert_eq!(rig.assert_clean().objects, 1);
    rig.crash(6);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    rig.assert_clean();
}
