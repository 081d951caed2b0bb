//! A small walk over crash points; `nacre-sim --crash-points` walks them all.

use sim::points::{Plan, line, walk};

#[test]
fn crashes_at_await_points_leave_a_prefix() {
    let plan = Plan { length: 1, one_in: [1; 3], stride: 7, variants: 1, part: (0, 1) };
    let s = walk(&plan, |_| ());
    assert!(s.violations.is_empty(), "{:#?}", s.violations);
    assert!(s.workloads > 20 && s.points > 60 && s.images > 50, "{}", line(&s));
}

#[test]
fn the_same_walk_twice_is_the_same() {
    let plan = Plan { length: 2, one_in: [9, 97, 1], stride: 11, variants: 1, part: (0, 1) };
    let (a, b) = (walk(&plan, |_| ()), walk(&plan, |_| ()));
    assert!(a.violations.is_empty(), "{:#?}", a.violations);
    assert_eq!((a.points, a.images, a.virtual_ns), (b.points, b.images, b.virtual_ns));
}
