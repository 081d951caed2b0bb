//! Shares of limits on space.

use super::*;
use model::nodemap::Owner;
use model::quota::Enforced;
use model::usage::{QuotaId, QuotaType};
use wire::context::LimitsKnown;
use wire::msg::quotashare::{Quotashare, ShareChange, ShareOrder};
use wire::msg::setowner::{OwnerOf, Setowner};
use wire::trailing::Trailing;

/// A write for owner 1, 2, 3 by a client that says what it knows of limits; `granted`: it was kept by it.
fn share_write(
    bed: &Bed,
    up: &Up,
    xid: u64,
    known: Option<LimitsKnown>,
    m: &Write,
    n: usize,
) -> Result<WriteReply, Errno> {
    let mut req = request(0, xid, m, Bytes::from(vec![xid as u8; n]));
    if let Some(known) = known {
        req.ctx = req.ctx.clone().with_limits(known);
    }
    let out = bed.send(up, req);
    out.status.map(|()| postcard::from_bytes(&out.body).unwrap())
}

#[test]
fn shares_of_limits_hold_until_they_are_changed_also_after_a_crash() {
    let mut bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    let of = QuotaId { of: QuotaType::Group, id: 2 };
    let set = |bed: &Bed, up: &Up, xid, change| {
        let m = Quotashare { orders: vec![ShareOrder { of, change }], limited: None, tree: Trailing(None) };
        bed.call(up, xid, &m).unwrap().states[0]
    };
    let acquires = Some(LimitsKnown::Acquires);
    let r = share_write(&bed, &up, 1, acquires, &write(Some(0)), 100_000).unwrap();
    assert_eq!(r.may_keep.0, None, "nobody is limited");
    let s = set(&bed, &up, 2, ShareChange::Set(1 << 20));
    assert_eq!((s.used, s.share), (102_400, Some(1 << 20)));

    let far = |off| Write { offset: off, ..write(Some(0)) };
    assert_eq!(share_write(&bed, &up, 3, acquires, &far(100_000), 1_000_000), Err(Errno::ESHARE));
    assert_eq!(
        share_write(&bed, &up, 3, None, &far(100_000), 1_000_000),
        Err(Errno::EDQUOT),
        "an older client"
    );
    let r = share_write(&bed, &up, 4, acquires, &far(100_000), 100_000).unwrap();
    assert!(r.may_keep.0.is_some_and(|n| n <= 512 << 10), "{:?}", r.may_keep);
    // What a client kept was accepted; so is what root writes, and what lies there already.
    let kept = Write { granted: true, ..far(200_000) };
    let r = share_write(&bed, &up, 5, None, &kept, 1_000_000).unwrap();
    assert_eq!(r.may_keep.0, Some(0));
    share_write(&bed, &up, 6, Some(LimitsKnown::Exempt), &far(1_200_000), 4096).unwrap();
    share_write(&bed, &up, 7, acquires, &far(0), 50_000).unwrap();
    assert_eq!(share_write(&bed, &up, 8, acquires, &far(1_300_000), 1), Err(Errno::ESHARE));
    let other = Write { gid: 9, object: object(2), ..write(Some(0)) };
    let r = share_write(&bed, &up, 8, acquires, &other, 2_000_000).unwrap();
    assert_eq!(r.may_keep.0, Some(u64::MAX), "others are not concerned");

    let s = set(&bed, &up, 9, ShareChange::Set(0));
    assert!(s.share == Some(1 << 20) && s.used >= 1_200_000, "no more than it was: {s:?}");
    bed.killed(up);
    let up = bed.start(2);
    bed.connect(&up, CLIENT);
    assert_eq!(share_write(&bed, &up, 10, acquires, &far(1_300_000), 5000), Err(Errno::ESHARE));
    assert_eq!(set(&bed, &up, 11, ShareChange::Look), s, "as before");
    bed.call(&up, 12, &truncate(8192)).unwrap();
    // The host gives the blocks back when the cut is committed, and the record says so soon after.
    let freed = (0..1000).any(|i| {
        bed.wait(bed.world.sleep(std::time::Duration::from_millis(10)));
        share_write(&bed, &up, 100 + i, acquires, &far(8192), 500_000).is_ok()
    });
    assert!(freed);
    set(&bed, &up, 14, ShareChange::Remove);
    let r = share_write(&bed, &up, 15, acquires, &far(0), 5_000_000).unwrap();
    assert_eq!(r.may_keep.0, None);

    // Everybody of a type.
    let groups = Enforced::parse("g");
    bed.call(&up, 16, &Quotashare { orders: Vec::new(), limited: groups, tree: Trailing(None) }).unwrap();
    assert_eq!(share_write(&bed, &up, 17, acquires, &far(5_000_000), 5000), Err(Errno::ESHARE));
    set(&bed, &up, 18, ShareChange::Set(u64::MAX));
    share_write(&bed, &up, 19, acquires, &far(5_000_000), 5000).unwrap();
}

/// A write of so many bytes that is counted to a directory with a quota.
fn write_in(bed: &Bed, up: &Up, xid: u64, directory: u32, n: usize) -> Result<WriteReply, Errno> {
    let m = Write { object: object(directory), ..write(Some(0)) };
    let mut req = request(0, xid, &m, Bytes::from(vec![xid as u8; n]));
    req.ctx = req.ctx.clone().in_directory(directory).with_limits(LimitsKnown::Acquires);
    let out = bed.send(up, req);
    out.status.map(|()| postcard::from_bytes(&out.body).unwrap())
}

#[test]
fn what_lies_in_a_directory_uses_up_the_shares_of_all_around_it() {
    let mut bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    let of = |id| QuotaId { of: QuotaType::Directory, id };
    let tell = |bed: &Bed, up: &Up, xid, tree: &[(u32, u32)], (id, change)| {
        let orders = vec![ShareOrder { of: of(id), change }];
        bed.call(up, xid, &Quotashare { orders, limited: None, tree: tree.to_vec().into() }).unwrap().states
            [0]
    };
    // 3 lies in 2, which lies in 1, which may have 1 MiB here.
    let tree = [(3, 2), (2, 1)];
    tell(&bed, &up, 1, &tree, (1, ShareChange::Set(1 << 20)));
    write_in(&bed, &up, 2, 3, 600_000).unwrap();
    assert_eq!(write_in(&bed, &up, 3, 2, 600_000).err(), Some(Errno::ESHARE), "3 has it already");
    write_in(&bed, &up, 4, 9, 2_000_000).unwrap();
    let look = |bed: &Bed, up: &Up, xid, id| {
        let orders = vec![ShareOrder { of: of(id), change: ShareChange::Look }];
        let m = Quotashare { orders, limited: None, tree: Trailing(None) };
        bed.call(up, xid, &m).unwrap().states[0].used
    };
    assert_eq!((look(&bed, &up, 5, 1), look(&bed, &up, 6, 3)), (602_112, 602_112));
    bed.killed(up);
    let up = bed.start(2);
    bed.connect(&up, CLIENT);
    assert_eq!(write_in(&bed, &up, 7, 2, 600_000).err(), Some(Errno::ESHARE), "after a crash as well");
    // It lies elsewhere from now on, with all that it has.
    tell(&bed, &up, 8, &[(3, 2)], (1, ShareChange::Look));
    assert_eq!((look(&bed, &up, 9, 1), look(&bed, &up, 10, 2)), (0, 602_112));
    write_in(&bed, &up, 11, 2, 600_000).unwrap();
    // A file that moves is counted elsewhere, to the block.
    let owner = Owner { directory: 1, ..Owner::new(1, 2, 3) };
    let at = Timestamp { sec: 9, nsec: 0 };
    let moved = OwnerOf::new(Fid::new(0x2_0000_0400, 1, 0), owner, at, vec![object(3)]);
    bed.call(&up, 12, &Setowner::new(vec![moved])).unwrap();
    assert_eq!((look(&bed, &up, 13, 1), look(&bed, &up, 14, 3)), (602_112, 0));
}
