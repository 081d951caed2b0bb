//! OST pools: what `lctl pool_new` and its sisters change. They lie in the file system's record as tagged
//! values, and go to every node with the configuration.

use crate::history::Origin;
use crate::registration::{Refused, TAG_POOL};
use crate::service::Mgs;
use crate::state::{FsRecord, MgsState, encode, forget_params, fs_key};
use model::limits::{POOL_MEMBERS_MAX, POOLS_MAX};
use model::{Errno, Pool, TargetId, TargetKind, pool};
use serde::{Deserialize, Serialize};
use store::Txn;

/// What becomes of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolVerb {
    /// It is made, without members.
    New,
    /// It is no more. Only one without members.
    Destroy,
    /// OSTs, by their indices.
    Add(Vec<u16>),
    Remove(Vec<u16>),
}

/// What an administrator wants of a pool. Only through the daemon of the MGS, on its host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolOrder {
    pub fsname: String,
    pub pool: String,
    pub verb: PoolVerb,
}

impl PoolOrder {
    /// The command that gives it.
    fn command(&self) -> &'static str {
        match self.verb {
            PoolVerb::New => "pool_new",
            PoolVerb::Destroy => "pool_destroy",
            PoolVerb::Add(_) => "pool_add",
            PoolVerb::Remove(_) => "pool_remove",
        }
    }
}

/// What came of a [`PoolOrder`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolChange {
    /// Of the configuration that has it.
    pub version: u64,
    pub osts: MemberAnswers,
}

/// The OSTs of a [`PoolVerb`] in its order, each with why it was not done, if it was not. Adding: `EINVAL`,
/// the file system has no such OST; `EEXIST`, it is in the pool; `ENOSPC`, all pools together are too large.
/// Removing: `ENOENT`, it is not in the pool.
pub type MemberAnswers = Vec<(u16, Option<Errno>)>;

impl FsRecord {
    /// By name.
    pub fn pools(&self) -> Vec<Pool> {
        let pools = self.extra.iter().filter(|(tag, _)| *tag == TAG_POOL);
        let mut all: Vec<Pool> = pools.filter_map(|(_, bytes)| Pool::decode(bytes)).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn pool(&self, name: &str) -> Option<Pool> {
        self.pools().into_iter().find(|p| p.name == name)
    }

    /// Takes the place of the pool of this name; `None`: there is none any more.
    pub(crate) fn set_pool(&mut self, name: &str, pool: Option<&Pool>) {
        let is_it = |bytes: &[u8]| Pool::decode(bytes).is_some_and(|p| p.name == name);
        self.extra.retain(|(tag, bytes)| *tag != TAG_POOL || !is_it(bytes));
        self.extra.extend(pool.map(|p| (TAG_POOL, p.encode())));
        assert_eq!(self.pool(name).as_ref(), pool, "there is one pool of a name");
    }

    /// Whoever gets the index of this target next is in no pool yet.
    pub(crate) fn leave_pools(&mut self, target: TargetId) {
        if target.kind != TargetKind::Ost {
            return;
        }
        for mut p in self.pools() {
            if p.remove(target.index) {
                self.set_pool(&p.name.clone(), Some(&p));
            }
        }
    }

    fn add_members(&self, pool: &mut Pool, osts: &[u16]) -> MemberAnswers {
        let others: usize = self.pools().iter().filter(|p| p.name != pool.name).map(|p| p.osts.len()).sum();
        let one = |&i: &u16| {
            let known = self.targets.iter().any(|t| t.target == TargetId::ost(i));
            let why = match (known, pool.has(i)) {
                (false, _) => Some(Errno::EINVAL),
                (true, true) => Some(Errno::EEXIST),
                (true, false) if others + pool.osts.len() >= POOL_MEMBERS_MAX => Some(Errno::ENOSPC),
                (true, false) => None,
            };
            if why.is_none() {
                assert!(pool.add(i), "it was not in there");
                assert!(others + pool.osts.len() <= POOL_MEMBERS_MAX, "pools fit into a message");
            }
            (i, why)
        };
        osts.iter().map(one).collect()
    }
}

impl MgsState {
    /// Makes, changes or ends a pool; what came of it with each OST. `ENOENT`: there is no such
    /// file system, or pool; `EEXIST`: there is such a pool; `EINVAL`: that is no name of one; `ENOTEMPTY`:
    /// it has members; `ENOSPC`: too many pools.
    pub(crate) fn change_pool(&mut self, order: &PoolOrder, txn: &mut Txn) -> Result<MemberAnswers, Refused> {
        let PoolOrder { fsname, pool: name, verb } = order;
        let fs = self.file_systems.get_mut(fsname);
        let fs = fs.ok_or_else(|| (Errno::ENOENT, format!("the MGS knows no file system '{fsname}'")))?;
        if !pool::name_is_valid(name) {
            let why = "a pool's name is 1 to 15 of A-Z a-z 0-9 _ -, and not none, inherit or ignore";
            return Err((Errno::EINVAL, why.to_string()));
        }
        let missing = || (Errno::ENOENT, format!("there is no pool {fsname}.{name}"));
        let was = fs.pool(name);
        let mut results = MemberAnswers::new();
        let becomes = match verb {
            PoolVerb::New if was.is_some() => {
                return Err((Errno::EEXIST, format!("pool {fsname}.{name} exists already")));
            }
            PoolVerb::New if fs.pools().len() >= POOLS_MAX => {
                return Err((Errno::ENOSPC, format!("a file system has at most {POOLS_MAX} pools")));
            }
            PoolVerb::New => Some(Pool::new(name)),
            PoolVerb::Destroy => match was.as_ref().ok_or_else(missing)?.osts.len() {
                0 => None,
                n => return Err((Errno::ENOTEMPTY, format!("pool {fsname}.{name} has {n} OSTs"))),
            },
            PoolVerb::Add(osts) => {
                let mut p = was.clone().ok_or_else(missing)?;
                results = fs.add_members(&mut p, osts);
                Some(p)
            }
            PoolVerb::Remove(osts) => {
                let mut p = was.clone().ok_or_else(missing)?;
                results.extend(osts.iter().map(|i| (*i, (!p.remove(*i)).then_some(Errno::ENOENT))));
                Some(p)
            }
        };
        if was != becomes {
            fs.set_pool(name, becomes.as_ref());
            txn.put(fs_key(fsname), encode(fs));
        }
        if was.is_some() && becomes.is_none() {
            self.forget_params_of_pool(fsname, name, txn);
        }
        Ok(results)
    }
}

impl MgsState {
    /// Whoever makes a pool of this name next begins without the settings of this one. Those that name every
    /// file system stay while another one has such a pool.
    fn forget_params_of_pool(&mut self, fsname: &str, pool: &str, txn: &mut Txn) {
        assert!(self.file_systems[fsname].pool(pool).is_none(), "it is gone");
        let elsewhere = self.file_systems.values().any(|fs| fs.pool(pool).is_some());
        let is_its = |k: &&String| {
            let mut parts = k.split('.');
            let (layer, device) = (parts.next(), parts.next().unwrap_or_default());
            let of_pool = layer == Some("lod") && parts.next() == Some("pool") && parts.next() == Some(pool);
            let here = device.strip_prefix(fsname).is_some_and(|rest| rest.starts_with('-'));
            of_pool && (here || (device.starts_with('*') && !elsewhere))
        };
        forget_params(&mut self.params, is_its, txn);
    }
}

impl Mgs {
    /// What an administrator wants of a pool. Durable, and every node is told, when it returns.
    ///
    /// # Errors
    /// An errno, and words. `ENOENT`: there is no such file system, or pool; `EEXIST`: there is such a pool;
    /// `EINVAL`: that is no name of one; `ENOTEMPTY`: it has members; `ENOSPC`: there are too many.
    pub async fn change_pool(&self, order: &PoolOrder) -> Result<PoolChange, Refused> {
        let before = self.state(|s| s.version);
        let (mut why, mut osts) = (None, MemberAnswers::new());
        let change = |s: &mut MgsState, txn: &mut Txn| {
            osts = s.change_pool(order, txn).map_err(|(e, words)| {
                why = Some(words);
                e
            })?;
            Ok(())
        };
        let done = match self.change(None, Origin::here(order.command()), change, |s| Ok(s.version)) {
            Ok(done) => done,
            Err(e) => return Err((e, why.unwrap_or_else(|| e.text().to_string()))),
        };
        self.announce(&done, before).await.map_err(|e| (e, e.text().to_string()))?;
        let version = self.state(|s| s.version);
        if version != before {
            tracing::info!("MGS: pool {}.{}: {:?}", order.fsname, order.pool, order.verb);
        }
        Ok(PoolChange { version, osts })
    }

    /// The pools of a file system, and the version of the configuration that has them; `None`: the MGS knows
    /// no such file system.
    pub fn pools(&self, fsname: &str) -> Option<(u64, Vec<Pool>)> {
        self.state(|s| Some((s.version, s.file_systems.get(fsname)?.pools())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registration::Order;
    use crate::registration::tests::Rig;
    use crate::testing::entry;

    fn order(pool: &str, verb: PoolVerb) -> PoolOrder {
        PoolOrder { fsname: "demo".into(), pool: pool.into(), verb }
    }

    /// A file system with OSTs 0, 1, 2 and 8.
    fn four() -> Rig {
        let mut t = Rig::default();
        for (i, uuid) in [(0, 1), (1, 2), (2, 3), (8, 4)] {
            t.register("demo", 0, entry(TargetId::ost(i), uuid, 1), false).unwrap();
        }
        t
    }

    fn go(t: &mut Rig, pool: &str, verb: PoolVerb) -> Result<MemberAnswers, Errno> {
        let mut txn = Txn::new();
        let before = t.s.clone();
        let done = t.s.change_pool(&order(pool, verb), &mut txn).map_err(|(e, _)| e);
        assert_eq!(txn.is_empty(), before == t.s, "what changed is stored");
        done
    }

    #[test]
    fn pools_are_made_filled_emptied_and_destroyed() {
        use PoolVerb::{Add, Destroy, New, Remove};
        let mut t = four();
        assert_eq!(go(&mut t, "flash", New), Ok(vec![]));
        assert_eq!(go(&mut t, "flash", New), Err(Errno::EEXIST));
        for bad in ["", "ignore", "a.b", "sixteen__letters"] {
            assert_eq!(go(&mut t, bad, New), Err(Errno::EINVAL), "{bad}");
        }
        let results = vec![(2, None), (5, Some(Errno::EINVAL)), (0, None), (2, Some(Errno::EEXIST))];
        assert_eq!(go(&mut t, "flash", Add(vec![2, 5, 0, 2])), Ok(results));
        assert_eq!(t.s.config("demo").unwrap().pools(), [Pool { name: "flash".into(), osts: vec![0, 2] }]);
        assert_eq!(go(&mut t, "flash", Destroy), Err(Errno::ENOTEMPTY));
        assert_eq!(go(&mut t, "flash", Remove(vec![8, 0])), Ok(vec![(8, Some(Errno::ENOENT)), (0, None)]));
        assert_eq!(go(&mut t, "flash", Remove(vec![2])), Ok(vec![(2, None)]));
        assert_eq!(go(&mut t, "flash", Destroy), Ok(vec![]));
        for verb in [Destroy, Add(vec![0]), Remove(vec![0])] {
            assert_eq!(go(&mut t, "flash", verb), Err(Errno::ENOENT));
        }
        let elsewhere = PoolOrder { fsname: "other".into(), ..order("flash", New) };
        assert_eq!(t.s.change_pool(&elsewhere, &mut Txn::new()).map_err(|(e, _)| e), Err(Errno::ENOENT));
    }

    #[test]
    fn a_pool_that_ends_takes_its_settings_along() {
        let mut t = four();
        for pool in ["flash", "disk"] {
            go(&mut t, pool, PoolVerb::New).unwrap();
        }
        let names = [
            "lod.*.pool.flash.spill_threshold_pct",
            "lod.demo-MDT0000-mdtlov.pool.flash.spill_target",
            "lod.demo-MDT0000-mdtlov.pool.disk.spill_target",
            "lod.demo2-MDT0000-mdtlov.pool.flash.spill_target",
        ];
        for name in names {
            t.s.set_param(name, "disk", false, &mut Txn::new()).unwrap();
        }
        go(&mut t, "flash", PoolVerb::Destroy).unwrap();
        assert_eq!(
            t.s.config("demo").unwrap().params.iter().map(|p| p.0.as_str()).collect::<Vec<_>>(),
            names[2..]
        );
    }

    #[test]
    fn an_ost_that_leaves_the_file_system_leaves_its_pools() {
        let mut t = four();
        for pool in ["a", "b"] {
            go(&mut t, pool, PoolVerb::New).unwrap();
            go(&mut t, pool, PoolVerb::Add(vec![1, 8])).unwrap();
        }
        t.s.set_param("osc.demo-OST0008*.active", "0", false, &mut Txn::new()).unwrap();
        t.order("demo-OST0008", Order::Remove).unwrap();
        let members: Vec<Vec<u16>> =
            t.s.config("demo").unwrap().pools().into_iter().map(|p| p.osts).collect();
        assert_eq!(members, [[1], [1]]);
    }

    #[test]
    fn pools_are_bounded() {
        let mut t = four();
        for n in 0..POOLS_MAX {
            go(&mut t, &format!("p{n}"), PoolVerb::New).unwrap();
        }
        assert_eq!(go(&mut t, "more", PoolVerb::New), Err(Errno::ENOSPC));
        assert_eq!(t.s.config("demo").unwrap().pools().len(), POOLS_MAX);
    }
}
