//! Which files go where so that OSTs become about as full: how full they are (`Plan`), and how a layout
//! looks when some of its objects lie elsewhere (`elsewhere`). Pure: the metadata target goes by it in the
//! background, `nacre rebalance` at once.

use crate::layout::{COMPONENT_INIT, ComponentSpec, EOF, Pattern};
use crate::{Errno, Layout, LayoutSpec};
use std::collections::BTreeMap;

/// Hundredths of a percent of all of a place.
const ALL: u128 = 10_000;

/// An OST that answers, and may have objects moved from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OstSpace {
    pub index: u16,
    /// What it lies on: those that say the same share a disk; 0: not known.
    pub disk: u64,
    /// Bytes.
    pub used: u64,
    /// Bytes that can be used.
    pub available: u64,
    /// Whether it takes new objects.
    pub takes: bool,
}

/// A disk, and the OSTs that lie on it: moving between these gains nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub osts: Vec<u16>,
    /// Bytes.
    pub used: u64,
    /// Bytes that are used or can be.
    pub all: u64,
    /// OSTs of it that take new objects.
    pub takes: Vec<u16>,
}

impl Place {
    /// How full it is, in hundredths of a percent.
    pub fn points(&self) -> u64 {
        let used = u128::from(self.used.min(self.all));
        (used * ALL).checked_div(u128::from(self.all)).unwrap_or(0) as u64
    }
}

/// The places of a file system, as they are or will be when what is under way is done.
#[derive(Clone, Debug)]
pub struct Plan {
    pub places: Vec<Place>,
}

impl Plan {
    /// How full these are.
    pub fn of(osts: impl IntoIterator<Item = OstSpace>) -> Plan {
        let mut places: Vec<(u64, Place)> = Vec::new();
        for s in osts.into_iter().filter(|s| s.used > 0 || s.available > 0) {
            let takes = s.takes.then_some(s.index);
            let all = s.used.saturating_add(s.available);
            match places.iter_mut().find(|(disk, _)| s.disk != 0 && *disk == s.disk) {
                // Each of them says how full all of the disk is.
                Some((_, p)) => {
                    p.osts.push(s.index);
                    p.takes.extend(takes);
                    p.used = p.used.max(s.used);
                    p.all = p.all.max(all);
                }
                None => {
                    let (osts, takes) = (vec![s.index], takes.into_iter().collect());
                    places.push((s.disk, Place { osts, used: s.used, all, takes }));
                }
            }
        }
        Plan { places: places.into_iter().map(|(_, p)| p).collect() }
    }

    fn at(&self, ost: u16) -> Option<usize> {
        self.places.iter().position(|p| p.osts.contains(&ost))
    }

    /// Between the fullest and the emptiest that takes objects, in hundredths of a percent.
    pub fn spread(&self) -> u64 {
        let most = self.places.iter().map(Place::points).max().unwrap_or(0);
        let least = self.places.iter().filter(|p| !p.takes.is_empty()).map(Place::points).min();
        most.saturating_sub(least.unwrap_or(most))
    }

    /// The place of each OST, the fullest first.
    pub fn fullest(&self) -> Vec<Place> {
        let mut all = self.places.clone();
        all.sort_by_key(|p| std::cmp::Reverse(p.points()));
        all
    }

    /// Where `bytes` on `from` are to go: an OST of the emptiest place that takes them, has none of the file
    /// (`has`), may have some (`pool`), and is not fuller than the one they leave afterwards.
    pub fn choose(&self, from: u16, has: &[u16], pool: Option<&[u16]>, bytes: u64) -> Option<u16> {
        let from = self.at(from)?;
        let after = |p: &Place, used: u64| Place { used, ..p.clone() }.points();
        let left = after(&self.places[from], self.places[from].used.saturating_sub(bytes));
        let may = |o: &&u16| !has.contains(o) && pool.is_none_or(|p| p.contains(o));
        let mut others: Vec<(usize, &Place)> =
            self.places.iter().enumerate().filter(|(n, _)| *n != from).collect();
        others.sort_by_key(|(_, p)| p.points());
        others.into_iter().find_map(|(_, p)| {
            let used = p.used.checked_add(bytes).filter(|u| *u <= p.all)?;
            if after(p, used) > left { None } else { p.takes.iter().find(may).copied() }
        })
    }

    /// It is going to be so.
    pub fn moved(&mut self, from: u16, to: u16, bytes: u64) {
        if let (Some(from), Some(to)) = (self.at(from), self.at(to)) {
            assert!(from != to, "nothing moves within a disk");
            self.places[from].used = self.places[from].used.saturating_sub(bytes);
            self.places[to].used = self.places[to].used.saturating_add(bytes);
        }
    }
}

/// Pools by their names, with their OSTs.
pub type Pools = BTreeMap<String, Vec<u16>>;

/// Bytes of a file that go from one OST to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    pub from: u16,
    pub to: u16,
    pub bytes: u64,
}

/// A file whose objects on one OST are to lie elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub layout: &'a Layout,
    /// What each of its objects takes, in their order.
    pub bytes: &'a [u64],
    /// Of the file.
    pub size: u64,
}

/// Why a file is left where it is, if it is not for want of a better place.
pub fn is_bound(l: &Layout) -> bool {
    // Where a component grows by steps the metadata server chooses for each step, and marks of components
    // would be lost.
    let movable = |c: &crate::layout::Component| {
        c.pattern == Pattern::Raid0
            && c.mirror == 0
            && c.flags & !COMPONENT_INIT == 0
            && !c.is_extension()
            && !c.is_named()
    };
    !l.components.iter().all(movable)
}

/// What asks for the same layout with the objects on `from` elsewhere: each on an OST that its component has
/// not yet, of its pool if there is one; an object without bytes stays. Behind twice the file's size, where
/// nothing is, a component keeps how it is to be, not where. `None` if no object may go, or none gains
/// anything. `EINVAL` for a layout that cannot be asked for.
pub fn elsewhere(
    c: &Candidate<'_>,
    from: u16,
    pools: &Pools,
    plan: &Plan,
) -> Result<Option<(LayoutSpec, Vec<Piece>)>, Errno> {
    if is_bound(c.layout) {
        return Ok(None);
    }
    let (mut plan, mut pieces, mut specs) = (plan.clone(), Vec::new(), Vec::new());
    let mut bytes = c.bytes.iter().copied();
    for (n, part) in c.layout.components.iter().enumerate() {
        let members = pools.get(&part.pool);
        // One whose pool is gone goes anywhere.
        let pool = if members.is_some() { part.pool.clone() } else { String::new() };
        if part.objects.is_empty() {
            let wanted = part.wanted().ok_or(Errno::EINVAL)?;
            if part.start < part.end {
                specs.push(ComponentSpec { pool, ..wanted });
            }
            continue;
        }
        let mut osts: Vec<u16> = part.objects.iter().map(|o| o.ost).collect();
        for n in 0..osts.len() {
            let bytes = bytes.next().unwrap_or(0);
            if osts[n] != from || bytes == 0 {
                continue;
            }
            if let Some(to) = plan.choose(from, &osts, members.map(Vec::as_slice), bytes) {
                osts[n] = to;
                plan.moved(from, to, bytes);
                pieces.push(Piece { from, to, bytes });
            }
        }
        let stripe_count = i32::try_from(osts.len()).map_err(|_| Errno::EINVAL)?;
        let holds_nothing = n > 0 && part.start >= c.size.saturating_mul(2);
        specs.push(ComponentSpec {
            end: part.end,
            stripe_count,
            stripe_size: part.stripe_size.into(),
            osts: if holds_nothing { Vec::new() } else { osts },
            pool,
            overstriped: part.is_overstriped(),
            ..ComponentSpec::default()
        });
    }
    if pieces.is_empty() {
        return Ok(None);
    }
    let mut spec = match specs.as_slice() {
        [one] if one.end == EOF => one.as_spec(),
        many => {
            let mut s = LayoutSpec::default();
            s.set_components(many);
            s
        }
    };
    spec.set_placed_by_server();
    spec.check()?;
    Ok(Some((spec, pieces)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fid;

    fn space(index: u16, disk: u64, used: u64, takes: bool) -> OstSpace {
        OstSpace { index, disk, used, available: 1000 - used, takes }
    }

    fn plan(used: &[u64]) -> Plan {
        Plan::of((0..).zip(used).map(|(n, used)| space(n, u64::from(n) + 1, *used, true)))
    }

    #[test]
    fn bytes_go_to_the_emptiest_that_may_have_them_and_never_make_it_the_fullest() {
        let mut p = plan(&[900, 100, 200]);
        assert_eq!(p.spread(), 8000);
        assert_eq!(p.fullest()[0].osts, [0]);
        assert_eq!(p.choose(0, &[0], None, 50), Some(1));
        assert_eq!(p.choose(0, &[0, 1], None, 50), Some(2), "it has some of the file");
        assert_eq!(p.choose(0, &[0], Some(&[0, 2]), 50), Some(2), "its pool");
        assert_eq!(p.choose(0, &[0], Some(&[0]), 50), None);
        assert_eq!(p.choose(0, &[0], None, 450), None, "it would be the fullest afterwards");
        p.moved(0, 1, 300);
        assert_eq!((p.spread(), p.choose(0, &[0], None, 50)), (4000, Some(2)));
    }

    #[test]
    fn osts_on_one_disk_are_one_place_and_who_takes_nothing_is_no_aim() {
        let p = Plan::of([
            space(0, 7, 900, true),
            space(1, 7, 900, true),
            space(2, 8, 100, false),
            space(3, 0, 500, true),
        ]);
        assert_eq!(
            p.places.iter().map(|p| p.osts.clone()).collect::<Vec<_>>(),
            [vec![0, 1], vec![2], vec![3]]
        );
        assert_eq!(p.choose(0, &[0], None, 10), Some(3), "not to its neighbour, nor to one that refuses");
        assert_eq!(p.spread(), 4000, "one that takes nothing does not count as the emptiest");
        assert_eq!(Plan::of([space(0, 7, 900, true), space(1, 7, 900, true)]).spread(), 0);
        assert_eq!(Plan::of([]).spread(), 0);
    }

    const FILE: Fid = Fid::new(9, 9, 0);

    /// Two components with objects, the second of a pool, and one without.
    fn layout() -> Layout {
        let part = |end, stripe_count, pool: &str| ComponentSpec {
            end,
            stripe_count,
            stripe_size: 1 << 20,
            pool: pool.into(),
            ..ComponentSpec::default()
        };
        let specs = [part(1 << 20, 1, ""), part(8 << 20, 2, "fast"), part(EOF, -1, "")];
        let mut l = Layout::composite(1, 0, &specs);
        l.instantiate(0, FILE, ("", &[0]));
        l.instantiate(1, FILE, ("fast", &[0, 1]));
        l
    }

    fn moved(l: &Layout, bytes: &[u64], size: u64, pools: &Pools) -> Option<(LayoutSpec, Vec<Piece>)> {
        let c = Candidate { layout: l, bytes, size };
        elsewhere(&c, 0, pools, &plan(&[900, 100, 10, 300])).unwrap()
    }

    #[test]
    fn of_a_file_with_components_only_the_objects_there_change_their_places() {
        let (l, pools) = (layout(), Pools::from([("fast".to_string(), vec![0, 1, 3])]));
        let (spec, pieces) = moved(&l, &[100, 50, 60], 8 << 20, &pools).unwrap();
        assert_eq!(pieces, [Piece { from: 0, to: 2, bytes: 100 }, Piece { from: 0, to: 3, bytes: 50 }]);
        let asked = spec.components().unwrap();
        assert_eq!(asked.iter().map(|c| c.osts.clone()).collect::<Vec<_>>(), [vec![2], vec![3, 1], vec![]]);
        for (c, n) in l.components.iter().zip(&asked) {
            assert_eq!((c.end, u64::from(c.stripe_size), &c.pool), (n.end, n.stripe_size, &n.pool));
        }
        assert_eq!(asked.iter().map(|n| n.stripe_count).collect::<Vec<_>>(), [1, 2, -1]);
        assert!(spec.is_placed_by_server(), "nobody asked for these OSTs");
    }

    #[test]
    fn objects_without_bytes_stay_and_far_behind_the_end_nothing_is_bound() {
        let (spec, pieces) = moved(&layout(), &[100, 0, 0], 1 << 19, &Pools::new()).unwrap();
        assert_eq!(pieces, [Piece { from: 0, to: 2, bytes: 100 }]);
        let asked = spec.components().unwrap();
        assert_eq!(asked.iter().map(|c| c.osts.len()).collect::<Vec<_>>(), [1, 0, 0]);
        assert_eq!((asked[1].stripe_count, asked[1].pool.as_str()), (2, ""), "its pool is gone");
        assert_eq!(moved(&layout(), &[0, 0, 0], 1 << 20, &Pools::new()), None, "there is nothing to gain");
    }

    #[test]
    fn a_plain_layout_stays_one() {
        let l = Layout::plain(FILE, 1 << 16, "", &[1, 0]);
        let (spec, pieces) = moved(&l, &[10, 20], 30, &Pools::new()).unwrap();
        assert_eq!(pieces, [Piece { from: 0, to: 2, bytes: 20 }]);
        assert_eq!((spec.stripe_count, spec.stripe_size, spec.osts.as_slice()), (2, 1 << 16, &[1, 2][..]));
        assert!(!spec.is_composite());
    }

    #[test]
    fn who_grows_by_steps_or_is_marked_or_was_named_stays() {
        let mut marked = layout();
        marked.components[2].flags |= crate::layout::COMPONENT_PREFER_READ;
        let grows = ComponentSpec {
            extension_bytes: 1 << 20,
            stripe_count: 1,
            stripe_size: 1 << 20,
            ..ComponentSpec::default()
        };
        let mut named = layout();
        named.components[1].set_named(true);
        for l in [marked, Layout::composite(1, 0, &[grows]), named] {
            assert!(is_bound(&l));
            assert_eq!(moved(&l, &[100, 50, 60], 1 << 20, &Pools::new()), None);
        }
        assert!(!is_bound(&layout()));
    }
}
