//! Stripes of one file in failure domains: on different hosts while there are some without a stripe, of these
//! on different racks, and so on outwards. Shared only when stripes outnumber them, and then evenly.
//!
//! OSTs that are a last choice come after all others.
//!
//! Who may be next follows from where the stripes before lie, not from chance: chance, or whose turn it is,
//! decides only between OSTs that are equal in that.

use crate::alloc::OstView;
use model::domain::LEVELS_MAX;
use std::collections::BTreeMap;

/// Whether an OST is a last choice, and the stripes that share each of its domains, innermost first: the
/// smallest is the best place for the next.
type Crowd = (bool, [u32; LEVELS_MAX]);

/// The domains of some OSTs as numbers, and how many stripes lie in each.
struct Domains {
    /// Of each OST, innermost first. What stands in fewer domains than others is alone in the outer ones with
    /// what stands in its outermost.
    of: Vec<Vec<usize>>,
    stripes: Vec<u32>,
}

impl Domains {
    fn new(osts: &[&OstView]) -> Domains {
        let mut numbers: BTreeMap<&[String], usize> = BTreeMap::new();
        let mut of = Vec::with_capacity(osts.len());
        for o in osts {
            assert!(o.domain.len() <= LEVELS_MAX, "a domain has so many levels");
            let mut own = Vec::with_capacity(o.domain.len());
            for levels in (1..=o.domain.len()).rev() {
                let fresh = numbers.len();
                own.push(*numbers.entry(&o.domain[..levels]).or_insert(fresh));
            }
            of.push(own);
        }
        Domains { of, stripes: vec![0; numbers.len()] }
    }

    fn crowd(&self, ost: usize) -> [u32; LEVELS_MAX] {
        let own = &self.of[ost];
        let mut crowd = [0; LEVELS_MAX];
        for (level, n) in crowd.iter_mut().enumerate() {
            // Of whom nothing is known nothing is shared.
            *n = own.get(level).or(own.last()).map_or(0, |domain| self.stripes[*domain]);
        }
        crowd
    }

    fn add(&mut self, ost: usize) {
        self.of[ost].iter().for_each(|domain| self.stripes[*domain] += 1);
    }
}

/// `count` different OSTs of these. `pick` is given the number of the stripe and the OSTs that are equally
/// good for it, in the order of `from`, and says which of them it is.
pub fn spread<'a>(
    from: &[&'a OstView],
    count: usize,
    mut pick: impl FnMut(usize, &[&'a OstView]) -> usize,
) -> Vec<&'a OstView> {
    assert!(count <= from.len(), "a file has one object on an OST");
    let mut domains = Domains::new(from);
    let mut left: Vec<usize> = (0..from.len()).collect();
    let mut out = Vec::with_capacity(count);
    for stripe in 0..count {
        let crowds: Vec<Crowd> = left.iter().map(|&i| (from[i].is_last_choice(), domains.crowd(i))).collect();
        let least = crowds.iter().min().expect("there are more OSTs than stripes");
        let best: Vec<usize> = (0..left.len()).filter(|&i| crowds[i] == *least).collect();
        let equal: Vec<&OstView> = best.iter().map(|&i| from[left[i]]).collect();
        let at = left.remove(best[pick(stripe, &equal)]);
        domains.add(at);
        out.push(from[at]);
    }
    out
}

/// The same OSTs in the order in which they take turns: those of one host as far apart as can be, and hosts
/// of different racks one after the other.
pub fn turns<'a>(osts: &[&'a OstView]) -> Vec<&'a OstView> {
    let mut hosts: Vec<Vec<&OstView>> = Vec::new();
    for o in osts {
        match hosts.iter_mut().find(|h| !o.domain.is_empty() && h[0].domain == o.domain) {
            Some(host) => host.push(o),
            None => hosts.push(vec![o]),
        }
    }
    // Host k of its rack comes in round k over the racks.
    let mut in_rack: BTreeMap<&[String], usize> = BTreeMap::new();
    let mut rounds: Vec<(usize, Vec<&OstView>)> = Vec::with_capacity(hosts.len());
    for host in hosts {
        let rack = host[0].domain.split_last().map_or(&[][..], |(_, outer)| outer);
        let next = in_rack.entry(rack).or_default();
        // Hosts that stand in nothing are each a rack.
        let round = if rack.is_empty() { 0 } else { *next };
        *next += 1;
        rounds.push((round, host));
    }
    rounds.sort_by_key(|(round, _)| *round);
    // OST k of a host with n stands at (2k + 1) / 2n of the round.
    let mut placed: Vec<(u64, usize, &OstView)> = Vec::with_capacity(osts.len());
    for (host, (_, list)) in rounds.into_iter().enumerate() {
        let n = list.len() as u64;
        placed.extend((0..n).zip(list).map(|(k, o)| ((2 * k + 1) * 1_000_000 / (2 * n), host, o)));
    }
    assert_eq!(placed.len(), osts.len(), "each OST has its turn");
    placed.sort_by_key(|(at, host, _)| (*at, *host));
    placed.into_iter().map(|(_, _, o)| o).collect()
}

#[cfg(test)]
#[path = "spread_tests.rs"]
mod tests;
