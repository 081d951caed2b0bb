//! Which networks a node is on, as the numbers of NIDs say it (`tcp0`, `tcp1`): an address on a network of
//! its own is asked first (docs/decisions/0081-several-networks.md).

use model::Nid;

/// The networks of a node. By default it says nothing, and addresses are asked in the order in which they
/// are registered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Networks {
    /// The preferred one first.
    own: Vec<u16>,
    /// Nothing else is asked.
    only: bool,
}

impl Networks {
    /// Those of these networks go first, in this order.
    pub fn preferring(nets: impl IntoIterator<Item = u16>) -> Networks {
        let mut own: Vec<u16> = Vec::new();
        for n in nets {
            if !own.contains(&n) {
                own.push(n);
            }
        }
        Networks { own, only: false }
    }

    /// Addresses on any other network are not asked at all.
    pub fn only(nets: impl IntoIterator<Item = u16>) -> Networks {
        Networks { only: true, ..Networks::preferring(nets) }
    }

    /// Addresses in the order in which this node asks them; those of one network stay as they were.
    pub fn order(&self, mut nids: Vec<Nid>) -> Vec<Nid> {
        let rank = |n: &Nid| self.own.iter().position(|o| *o == n.net).unwrap_or(self.own.len());
        if self.only {
            nids.retain(|n| self.own.contains(&n.net));
        }
        nids.sort_by_key(rank);
        assert!(nids.is_sorted_by_key(rank), "a node's own networks come first");
        nids
    }

    /// `tcp1, tcp2`, for messages.
    pub fn names(&self) -> String {
        self.own.iter().map(|n| model::nid::net_name(*n)).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nids(s: &str) -> Vec<Nid> {
        s.split(' ').map(|n| n.parse().unwrap()).collect()
    }

    #[test]
    fn addresses_of_own_networks_come_first() {
        let all = nids("10.0.0.1@tcp 10.1.0.1@tcp1 10.0.0.2@tcp 10.2.0.1@tcp2");
        assert_eq!(Networks::default().order(all.clone()), all);
        assert_eq!(
            Networks::preferring([1, 0, 1]).order(all.clone()),
            nids("10.1.0.1@tcp1 10.0.0.1@tcp 10.0.0.2@tcp 10.2.0.1@tcp2")
        );
        assert_eq!(Networks::only([2, 1]).order(all.clone()), nids("10.2.0.1@tcp2 10.1.0.1@tcp1"));
        assert_eq!(Networks::only([7]).order(all), []);
        assert_eq!(Networks::only([0, 1]).names(), "tcp, tcp1");
    }
}
