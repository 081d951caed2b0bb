//! Which OSTs are how full, and where an object would go. Pure.

use client::control::TargetSpace;
use model::TargetKind;

/// Bits of [`TargetSpace::flags`] with which an OST takes no new objects.
const TAKES_NOTHING: u32 = 2 | 4 | 8 | 16;
/// Hundredths of a percent of all of a place.
const ALL: u128 = 10_000;

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
    /// As the OSTs say; those that do not answer, or are deactivated, are left out.
    pub fn of(spaces: &[TargetSpace]) -> Plan {
        let mut places: Vec<(u64, Place)> = Vec::new();
        let osts = spaces.iter().filter(|s| s.target.target.kind == TargetKind::Ost);
        for s in osts.filter(|s| s.errno.is_none() && s.target.active && s.total > 0) {
            let index = s.target.target.index;
            let used = s.total.saturating_sub(s.free);
            let takes = (s.flags & TAKES_NOTHING == 0).then_some(index);
            match places.iter_mut().find(|(disk, _)| s.disk != 0 && *disk == s.disk) {
                // Each of them says how full all of the disk is.
                Some((_, p)) => {
                    p.osts.push(index);
                    p.takes.extend(takes);
                    p.used = p.used.max(used);
                    p.all = p.all.max(used.saturating_add(s.available));
                }
                None => {
                    let all = used.saturating_add(s.available);
                    let (osts, takes) = (vec![index], takes.into_iter().collect());
                    places.push((s.disk, Place { osts, used, all, takes }));
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

#[cfg(test)]
mod tests {
    use super::*;
    use client::control::Target;
    use model::TargetId;

    fn space(index: u16, disk: u64, used: u64, flags: u32) -> TargetSpace {
        let target = Target {
            target: TargetId::ost(index),
            uuid: String::new(),
            nid: String::new(),
            state: "FULL".into(),
            active: true,
            domain: Vec::new(),
        };
        let (total, free) = (1000, 1000 - used);
        let available = free;
        TargetSpace { target, errno: None, total, free, available, files: 0, files_free: 0, disk, flags }
    }

    #[test]
    fn bytes_go_to_the_emptiest_that_may_have_them_and_never_make_it_the_fullest() {
        let mut p = Plan::of(&[space(0, 1, 900, 0), space(1, 2, 100, 0), space(2, 3, 200, 0)]);
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
        let p =
            Plan::of(&[space(0, 7, 900, 0), space(1, 7, 900, 0), space(2, 8, 100, 4), space(3, 0, 500, 0)]);
        assert_eq!(
            p.places.iter().map(|p| p.osts.clone()).collect::<Vec<_>>(),
            [vec![0, 1], vec![2], vec![3]]
        );
        assert_eq!(p.choose(0, &[0], None, 10), Some(3), "not to its neighbour, nor to one that refuses");
        assert_eq!(p.spread(), 4000, "one that takes nothing does not count as the emptiest");
        assert_eq!(Plan::of(&[space(0, 7, 900, 0), space(1, 7, 900, 0)]).spread(), 0);
        assert_eq!(Plan::of(&[]).spread(), 0);
    }
}
