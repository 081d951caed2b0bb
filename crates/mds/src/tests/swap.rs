//! Two files that swap their data: what is refused, and what is left when it comes to nothing. The object
//! servers of this rig never answer; swaps that succeed are in `client/tests/cluster/swap.rs`.

use super::*;
use ::model::Layout;
use wire::msg::swap::Swap;

const R: Fid = Fid::ROOT;

fn swap(rig: &Rig, fid: Fid, other: Fid) -> Result<Entry, Errno> {
    rig.root(Swap { fid, other, keep_times: true })
}

fn layout(rig: &Rig, fid: Fid) -> Layout {
    rig.root(msg::getattr::Getattr { fid }).unwrap().layout.unwrap()
}

#[test]
fn what_cannot_be_swapped_is_refused() {
    let rig = Rig::new();
    let (a, b) = (rig.create_striped(R, "a", 1), rig.create_striped(R, "b", 2));
    let (dir, small) = (rig.mkdir(R, "dir"), rig.create(R, "small"));
    for (x, y, e) in [
        (a, a, Errno::EINVAL),
        (a, dir, Errno::EINVAL),
        (dir, a, Errno::EINVAL),
        (a, small, Errno::EOPNOTSUPP),
        (small, a, Errno::EOPNOTSUPP),
        (a, Fid::new(a.seq, 77_777, 0), Errno::ESTALE),
    ] {
        assert_eq!(swap(&rig, x, y).err(), Some(e), "{x} {y}");
    }
    let user = Cred { uid: 7, gid: 7, ..Cred::default() };
    let by_user = rig.call(A, &user, Swap { fid: a, other: b, keep_times: true });
    assert_eq!(by_user.err(), Some(Errno::EPERM));
    rig.chown(b, 7, 0);
    assert_eq!(swap(&rig, a, b).err(), Some(Errno::EPERM), "they have different owners");
    rig.assert_clean();
}

#[test]
fn a_swap_that_comes_to_nothing_leaves_both_files_with_their_objects() {
    let rig = Rig::new();
    let (a, b) = (rig.create_striped(R, "a", 1), rig.create_striped(R, "b", 2));
    let before = [layout(&rig, a), layout(&rig, b)];
    assert_eq!(swap(&rig, a, b).err(), Some(Errno::EIO));
    for (was, fid) in before.into_iter().zip([a, b]) {
        let now = layout(&rig, fid);
        assert!(now.generation > was.generation, "objects may be fenced");
        assert_eq!(Layout { generation: was.generation, ..now }, was);
    }
    rig.assert_clean();
    rig.unlink(R, "a").unwrap();
    rig.unlink(R, "b").unwrap();
    rig.assert_clean();
}
