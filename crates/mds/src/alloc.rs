//! Which OSTs a new file's objects go to: spread over failure domains (`spread.rs`), among equals in turn
//! while the OSTs are evenly full, by chance weighted with free space otherwise. Pure; `osts.rs` keeps the
//! figures up to date.

use crate::spread::{spread, turns};
use model::{Errno, LayoutSpec, limits};
use std::collections::BTreeMap;
use wire::msg::statfs::StatfsReply;

/// Bits of [`StatfsReply::state`] with which an OST takes no new objects: read-only, no-create, no space,
/// no inodes.
pub const STATE_REFUSES: u32 = 2 | 4 | 8 | 16;
/// Degraded (rebuilding): taken only if there is nothing better.
const STATE_DEGRADED: u32 = 1;
/// An OST with less room takes no new files.
pub const RESERVE_BYTES: u64 = 1 << 20;

/// One OST as the allocator sees it.
#[derive(Clone, Debug)]
pub struct OstView {
    pub index: u16,
    /// Where it stands, as [`model::domain::place`] says it: stripes of one file go to different ones first.
    pub domain: Vec<String>,
    /// Not deactivated in the configuration or by an administrator.
    pub active: bool,
    /// May be given new objects (`osp.*.max_create_count` is not 0).
    pub creates: bool,
    /// Answered lately (true until it had a chance to).
    pub reachable: bool,
    /// Answers much later than others.
    pub slow: bool,
    /// `None` until the first answer.
    pub space: Option<StatfsReply>,
    /// What it lies on ([`rpc::Import::disk`]): others with the same number fill it as well.
    pub disk: u64,
}

impl OstView {
    /// May take objects at all.
    fn usable(&self, reserve: u64) -> bool {
        let takes = |s: StatfsReply| s.state & STATE_REFUSES == 0 && s.available > reserve;
        self.active && self.creates && self.space.is_none_or(takes)
    }

    /// Taken after all others: degraded, or slow.
    pub fn is_last_choice(&self) -> bool {
        self.slow || self.space.is_some_and(|s| s.state & STATE_DEGRADED != 0)
    }
}

/// Tunables, `lod.*` (percent).
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// OSTs whose free space differs by less are used in turn.
    pub threshold_rr: u64,
    /// Weight of free space against an even spread when they are not.
    pub prio_free: u64,
    /// An OST with no more room takes nothing.
    pub reserve_bytes: u64,
    /// One without room is as good as any: it will have some.
    pub full_too: bool,
}

/// The turn-taking state.
#[derive(Default, Debug)]
pub struct Allocator {
    /// Who has the next first stripe, in the order of turns.
    cursor: usize,
    /// Stripes that were given by turns.
    stripes: u64,
    /// Which of them was the last of each OST.
    used: BTreeMap<u16, u64>,
}

impl Allocator {
    pub fn new(start: u64) -> Allocator {
        Allocator { cursor: (start % 4096) as usize, ..Allocator::default() }
    }

    /// OSTs for the stripes of a new file, in order. `spec` is fully inherited. `random` gives uniform
    /// numbers. `EINVAL` for an OST that does not exist, `ENOSPC` if none (or not the one asked for) can take
    /// objects.
    pub fn choose(
        &mut self,
        spec: &LayoutSpec,
        osts: &[OstView],
        policy: Policy,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<Vec<u16>, Errno> {
        let reserve = policy.reserve_bytes;
        let find = |i: u16| osts.iter().find(|o| o.index == i);
        if !spec.osts.is_empty() {
            return explicit(spec, osts, reserve);
        }
        let mut usable = candidates(spec, osts, reserve);
        let start = match u16::try_from(spec.stripe_start) {
            Err(_) => None,
            Ok(i) => Some(
                find(i)
                    .ok_or(Errno::EINVAL)
                    .and_then(|o| if o.usable(reserve) { Ok(i) } else { Err(Errno::ENOSPC) })?,
            ),
        };
        if let Some(first) = start
            && !usable.iter().any(|o| o.index == first)
        {
            usable.push(find(first).expect("it was found"));
            usable.sort_by_key(|o| o.index);
        }
        if usable.is_empty() {
            return Err(Errno::ENOSPC);
        }
        let wanted = wanted(spec, usable.len());
        let count = wanted.min(usable.len());
        assert!(count > 0, "a file with objects has one at least");
        let chosen = self.different(&usable, count, start, policy, random);
        // Objects beyond one for each OST go round once more, and again.
        Ok(chosen.iter().copied().cycle().take(wanted).collect())
    }

    /// `count` different OSTs.
    fn different(
        &mut self,
        usable: &[&OstView],
        count: usize,
        start: Option<u16>,
        policy: Policy,
        random: &mut dyn FnMut() -> u64,
    ) -> Vec<u16> {
        if let Some(first) = start {
            // From the given OST on, in index order, around the end.
            let at = usable.iter().position(|o| o.index == first).expect("it is in the list");
            return (0..count).map(|i| usable[(at + i) % usable.len()].index).collect();
        }
        if even(usable, policy.threshold_rr) {
            self.in_turn(usable, count)
        } else {
            weighted(usable, count, policy.prio_free, random)
        }
    }

    fn in_turn(&mut self, usable: &[&OstView], count: usize) -> Vec<u16> {
        let mut order = turns(usable);
        let n = order.len();
        order.rotate_left(self.cursor % n);
        // Small files consist of their first stripes: these pass all OSTs, however many a file has.
        let step = (count..).find(|s| gcd(*s, n) == 1).expect("a multiple of n and one more is that far");
        self.cursor = (self.cursor % n + step) % n;
        let used = &mut self.used;
        let chosen = spread(&order, count, |stripe, equal| {
            let oldest = (0..equal.len()).min_by_key(|&i| used.get(&equal[i].index).copied());
            if stripe == 0 { 0 } else { oldest.expect("somebody is next") }
        });
        for o in &chosen {
            self.stripes += 1;
            self.used.insert(o.index, self.stripes);
        }
        chosen.iter().map(|o| o.index).collect()
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The OSTs from which those for `spec` are chosen: with those that are the last choice if the others are too
/// few for three quarters of the stripes that it asks for; those that do not answer if there is nobody else.
fn candidates<'a>(spec: &LayoutSpec, osts: &'a [OstView], reserve: u64) -> Vec<&'a OstView> {
    let usable = || osts.iter().filter(|o| o.usable(reserve));
    let asked = match usize::try_from(spec.stripe_count) {
        Ok(n) if !spec.is_overstriped() => n,
        _ => 1,
    };
    let enough = (asked - asked / 4).max(1);
    let tries: [fn(&OstView) -> bool; 2] = [|o| o.reachable && !o.is_last_choice(), |o| o.reachable];
    for wanted in tries {
        let some: Vec<&OstView> = usable().filter(|o| wanted(o)).collect();
        if some.len() >= enough {
            return some;
        }
    }
    let reachable: Vec<&OstView> = usable().filter(|o| o.reachable).collect();
    if reachable.is_empty() { usable().collect() } else { reachable }
}

/// Objects that `spec` asks for where `usable` OSTs can take some: at most one on each unless it is
/// overstriped. Who names their number gets as many, however few OSTs there are.
fn wanted(spec: &LayoutSpec, usable: usize) -> usize {
    let count = spec.stripe_count;
    let wanted = if count < 0 { usable * count.unsigned_abs() as usize } else { (count as usize).max(1) };
    let most = if spec.is_overstriped() { limits::STRIPE_COUNT_MAX as usize } else { usable };
    wanted.min(most).min(limits::STRIPE_COUNT_MAX as usize)
}

/// OSTs that the user listed, in the order of the list, turned so that `stripe_start` comes first.
fn explicit(spec: &LayoutSpec, osts: &[OstView], reserve: u64) -> Result<Vec<u16>, Errno> {
    for i in &spec.osts {
        let o = osts.iter().find(|o| o.index == *i).ok_or(Errno::EINVAL)?;
        if !o.usable(reserve) {
            return Err(Errno::ENOSPC);
        }
    }
    let at = u16::try_from(spec.stripe_start).ok().and_then(|s| spec.osts.iter().position(|&o| o == s));
    let mut list = spec.osts.clone();
    list.rotate_left(at.unwrap_or(0));
    Ok(list)
}

/// Free space, and inodes, differ by less than `threshold` percent of the emptiest OST's; at 0 they never do.
fn even(usable: &[&OstView], threshold: u64) -> bool {
    let within = |free: &dyn Fn(StatfsReply) -> u64| {
        let all = usable.iter().filter_map(|o| o.space.map(free));
        let (min, max) = all.fold((u64::MAX, 0), |(lo, hi), f| (lo.min(f), hi.max(f)));
        min == u64::MAX || u128::from(max - min) * 100 <= u128::from(max) * u128::from(threshold)
    };
    threshold > 0 && within(&|s| s.available) && (!all_count_files(usable) || within(&|s| s.files_free))
}

/// Hosts that make inodes as they go report none at all: then they say nothing.
fn all_count_files(usable: &[&OstView]) -> bool {
    usable.iter().all(|o| o.space.is_none_or(|s| s.files > 0))
}

/// `count` different OSTs. Between those that are equal for a stripe chance decides: weight is free space, or
/// free inodes where these are scarcer (`prio` percent), and an even share (the rest).
fn weighted(usable: &[&OstView], count: usize, prio: u64, random: &mut dyn FnMut() -> u64) -> Vec<u16> {
    let most = |free: &dyn Fn(StatfsReply) -> u64| {
        usable.iter().filter_map(|o| o.space.map(free)).max().unwrap_or(1).max(1)
    };
    let (most_bytes, most_files) = (most(&|s| s.available), most(&|s| s.files_free));
    let files_count = all_count_files(usable);
    let mut on_disk: BTreeMap<u64, u64> = BTreeMap::new();
    usable.iter().for_each(|o| *on_disk.entry(o.disk).or_default() += 1);
    let weight = |o: &&OstView| {
        // OSTs on one disk have its space together.
        let sharing = if o.disk == 0 { 1 } else { on_disk[&o.disk] };
        let share = |free: Option<u64>, most: u64| {
            let free = free.unwrap_or(most) / sharing;
            (u128::from(free) * 1_000_000 / u128::from(most)) as u64
        };
        let bytes = share(o.space.map(|s| s.available), most_bytes);
        let files = if files_count { share(o.space.map(|s| s.files_free), most_files) } else { bytes };
        let share = bytes.min(files);
        (share * prio / 100 + 1_000_000 * (100 - prio.min(100)) / 100).max(1)
    };
    let chosen = spread(usable, count, |_, equal| {
        let weights: Vec<u64> = equal.iter().map(weight).collect();
        let mut at = random() % weights.iter().sum::<u64>();
        let hit = weights.iter().position(|&w| {
            let hit = at < w;
            at = at.saturating_sub(w);
            hit
        });
        hit.expect("the number is below the sum")
    });
    chosen.iter().map(|o| o.index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy =
        Policy { threshold_rr: 17, prio_free: 90, reserve_bytes: RESERVE_BYTES, full_too: false };

    fn ost(index: u16, node: u8, available: u64) -> OstView {
        let space = StatfsReply { available, total: 1 << 40, ..StatfsReply::default() };
        OstView {
            index,
            domain: vec![format!("10.0.0.{node}@tcp")],
            active: true,
            creates: true,
            reachable: true,
            slow: false,
            space: Some(space),
            disk: 0,
        }
    }

    fn four() -> Vec<OstView> {
        vec![ost(0, 1, 1 << 35), ost(1, 1, 1 << 35), ost(2, 2, 1 << 35), ost(3, 2, 1 << 35)]
    }

    fn spec(count: i32) -> LayoutSpec {
        LayoutSpec { stripe_count: count, ..LayoutSpec::builtin() }
    }

    fn rng() -> impl FnMut() -> u64 {
        let mut s = 1u64;
        move || {
            s = s.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            s >> 20
        }
    }

    #[test]
    fn even_osts_take_turns_over_the_servers() {
        let (mut a, osts) = (Allocator::new(0), four());
        let mut one = || a.choose(&spec(1), &osts, POLICY, &mut rng()).unwrap()[0];
        assert_eq!([one(), one(), one(), one(), one()], [0, 2, 1, 3, 0]);
        let mut a = Allocator::new(0);
        assert_eq!(a.choose(&spec(2), &osts, POLICY, &mut rng()), Ok(vec![0, 2]), "two servers");
        let mut first = [0; 4];
        for _ in 0..400 {
            first[usize::from(a.choose(&spec(-1), &osts, POLICY, &mut rng()).unwrap()[0])] += 1;
        }
        assert_eq!(first, [100; 4], "files over all OSTs start everywhere");
    }

    #[test]
    fn a_full_ost_gets_less_than_an_empty_one() {
        let (mut a, mut osts, mut r) = (Allocator::new(0), four(), rng());
        osts[3] = ost(3, 2, 1 << 31);
        let mut hits = [0u32; 4];
        for _ in 0..4000 {
            let got = a.choose(&spec(2), &osts, POLICY, &mut r).unwrap();
            assert_eq!(got.len(), 2);
            assert_ne!(got[0], got[1]);
            for o in got {
                hits[usize::from(o)] += 1;
            }
        }
        assert!(hits[3] > 100 && hits[3] * 3 < hits[2], "{hits:?}");
        assert!(hits[..3].iter().all(|&h| h > 1500), "{hits:?}");
    }

    #[test]
    fn unusable_ones_are_skipped() {
        let (mut a, mut osts) = (Allocator::new(0), four());
        osts[0].active = false;
        osts[1].space = Some(StatfsReply { available: 1 << 35, state: 2, ..StatfsReply::default() });
        osts[2].space = Some(StatfsReply { available: 10, ..StatfsReply::default() });
        osts[3].space = None;
        assert_eq!(a.choose(&spec(-1), &osts, POLICY, &mut rng()), Ok(vec![3]));
        assert_eq!(a.choose(&spec(4), &osts, POLICY, &mut rng()), Ok(vec![3]), "fewer than asked for");
        osts[3].reachable = false;
        assert_eq!(a.choose(&spec(1), &osts, POLICY, &mut rng()), Ok(vec![3]), "better than none");
        osts[3].creates = false;
        assert_eq!(a.choose(&spec(1), &osts, POLICY, &mut rng()), Err(Errno::ENOSPC), "told to take none");
        osts[3].creates = true;
        osts[3].active = false;
        assert_eq!(a.choose(&spec(1), &osts, POLICY, &mut rng()), Err(Errno::ENOSPC));
        assert_eq!(a.choose(&spec(1), &[], POLICY, &mut rng()), Err(Errno::ENOSPC));
    }

    #[test]
    fn a_degraded_ost_is_taken_where_there_is_no_other_and_one_that_takes_no_objects_never() {
        let (mut a, mut osts) = (Allocator::new(0), four());
        let in_state = |state| Some(StatfsReply { available: 1 << 35, state, ..StatfsReply::default() });
        osts[1].space = in_state(STATE_DEGRADED);
        assert!((0..40).all(|_| !a.choose(&spec(2), &osts, POLICY, &mut rng()).unwrap().contains(&1)));
        for refuses in [2, 4, 8, 16] {
            let mut some = osts.clone();
            [0, 2, 3].into_iter().for_each(|i: usize| some[i].space = in_state(refuses));
            assert_eq!(a.choose(&spec(-1), &some, POLICY, &mut rng()), Ok(vec![1]), "better than none");
        }
    }

    #[test]
    fn last_choices_fill_up_to_three_quarters_of_what_is_asked_for_and_come_last() {
        let (mut a, mut osts) = (Allocator::new(0), four());
        osts[1].slow = true;
        osts[2].space = osts[2].space.map(|s| StatfsReply { state: STATE_DEGRADED, ..s });
        let mut go = |count| a.choose(&spec(count), &osts, POLICY, &mut rng()).unwrap();
        for _ in 0..8 {
            assert!(!go(1).iter().chain(&go(2)).any(|o| [1, 2].contains(o)), "two are enough");
            let (three, four) = (go(3), go(4));
            assert_eq!((three.len(), four.len()), (3, 4));
            assert!(three[..2].iter().chain(&four[..2]).all(|o| [0, 3].contains(o)), "{three:?} {four:?}");
        }
        osts[0].active = false;
        let mut go = |count| a.choose(&spec(count), &osts, POLICY, &mut rng()).unwrap();
        assert_eq!(go(-1), [3], "whoever wants all wants no slow ones");
        assert_eq!(go(1), [3]);
    }

    #[test]
    fn the_threshold_says_when_turns_end_and_weights_begin() {
        let mut osts = four();
        osts[3] = ost(3, 2, (1 << 35) / 100 * 80);
        let turns = |osts: &[OstView], threshold_rr| {
            let (mut a, policy) = (Allocator::new(0), Policy { threshold_rr, ..POLICY });
            // Chance asks for the last one each time.
            (0..4).map(|_| a.choose(&spec(1), osts, policy, &mut || u64::MAX).unwrap()[0]).collect::<Vec<_>>()
        };
        let in_turn = [0, 2, 1, 3];
        assert_eq!(turns(&osts, 21), in_turn, "a difference of 20 %");
        assert_ne!(turns(&osts, 19), in_turn);
        assert_eq!(turns(&osts, 100), in_turn, "always");
        assert_ne!(turns(&four(), 0), in_turn, "never");
        // Inodes count as well, where there is a number of them.
        let files = |n: u64| {
            let mut osts = four();
            osts.iter_mut()
                .for_each(|o| o.space = o.space.map(|s| StatfsReply { files: n, files_free: n, ..s }));
            osts[0].space = osts[0].space.map(|s| StatfsReply { files_free: n / 2, ..s });
            osts
        };
        assert_ne!(turns(&files(1000), 17), in_turn);
        assert_eq!(turns(&files(0), 17), in_turn);
    }

    #[test]
    fn who_is_weighted_by_free_space_alone_gets_as_much_as_he_has() {
        let (mut a, mut osts, mut r) = (Allocator::new(0), four(), rng());
        osts[3] = ost(3, 2, 1 << 33);
        let mut share = |prio_free| {
            let policy = Policy { prio_free, ..POLICY };
            (0..4000).filter(|_| a.choose(&spec(1), &osts, policy, &mut r).unwrap() == [3]).count()
        };
        let (all, none) = (share(100), share(0));
        assert!((200..=420).contains(&all), "a quarter of the space of each other: {all} of 4000");
        assert!((850..=1150).contains(&none), "as often as the others: {none} of 4000");
    }

    #[test]
    fn users_choose() {
        let (mut a, osts) = (Allocator::new(0), four());
        let mut go = |s: LayoutSpec| a.choose(&s, &osts, POLICY, &mut rng());
        let listed = |l: &[u16]| LayoutSpec { osts: l.to_vec(), ..spec(l.len() as i32) };
        assert_eq!(go(listed(&[3, 0, 1])), Ok(vec![3, 0, 1]));
        assert_eq!(go(LayoutSpec { stripe_start: 0, ..listed(&[3, 0, 1]) }), Ok(vec![0, 1, 3]));
        assert_eq!(go(listed(&[3, 9])), Err(Errno::EINVAL));
        assert_eq!(go(LayoutSpec { stripe_start: 2, ..spec(3) }), Ok(vec![2, 3, 0]));
        assert_eq!(go(LayoutSpec { stripe_start: 9, ..spec(1) }), Err(Errno::EINVAL));
    }

    #[test]
    fn several_objects_may_lie_on_one_ost() {
        let (mut a, osts) = (Allocator::new(0), four());
        let mut go = |count: i32| {
            let mut s = spec(count);
            s.set_overstriped(true);
            a.choose(&s, &osts, POLICY, &mut rng()).unwrap()
        };
        let each = |list: &[u16], n| (0..4).all(|i| list.iter().filter(|o| **o == i).count() == n);
        assert!(each(&go(-3), 3) && each(&go(8), 2));
        assert_eq!((go(2).len(), go(1).len(), go(1999).len()), (2, 1, 1999));
        assert!(go(2000).len() == 2000 && each(&go(2000), 500) && each(&go(-32), 32));
        let five = go(5);
        assert!(five[..4].iter().all(|o| five[..4].iter().filter(|x| *x == o).count() == 1), "{five:?}");
        assert_eq!(five[4], five[0]);
    }
}
