//! What an administrator may set of a metadata target while it runs. What `lctl` says of it is in `params`.

use model::mutex::{RwLock, RwLockReadGuard};
use model::nodemap::Nodemap;
use model::squash::{NidRanges, Squash};
use model::{Cred, Errno, LayoutSpec, limits};
use rpc::Principal;
use rpc::server::recovery::{RECOVERY_HARD_DEFAULT_S, RECOVERY_TIME_DEFAULT_S};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// `qos_threshold_rr`, percent.
pub const QOS_THRESHOLD_DEFAULT: u64 = 17;
/// `qos_prio_free`, percent.
pub const QOS_PRIO_FREE_DEFAULT: u64 = 90;
/// `qos_maxage`.
pub const QOS_AGE_DEFAULT_S: u64 = 5;
/// `lock_callback_timeout`.
pub const CALLBACK_TIMEOUT_DEFAULT_S: u64 = 20;
/// `dom_stripesize`.
pub const DOM_DEFAULT_BYTES: u64 = 64 << 10;
/// `trash_max_age`.
pub const TRASH_AGE_DEFAULT_S: u64 = 30 * 86_400;
/// `trash_max_space`, percent.
pub const TRASH_SPACE_DEFAULT: u64 = 10;
/// `trash_min_free`, percent.
pub const TRASH_FREE_DEFAULT: u64 = 5;
/// `root_squash`, `nosquash_nids`.
pub const SQUASH_DEFAULT: &str = "0:0";
pub const NOSQUASH_DEFAULT: &str = "NONE";

/// Who root is, with the words that said so.
struct SquashWords {
    rule: Squash,
    to: String,
    except: String,
}

pub struct Settings {
    /// Changes are answered when they are durable, not when they are executed.
    pub ack_durable: AtomicBool,
    /// Bytes of a stripe where nothing says how many.
    pub stripesize: AtomicU64,
    stripecount: AtomicI32,
    pub qos_threshold_rr: AtomicU64,
    pub qos_prio_free: AtomicU64,
    pub qos_maxage_s: AtomicU64,
    pub recovery_time_s: AtomicU64,
    pub recovery_hard_s: AtomicU64,
    pub callback_timeout_s: AtomicU64,
    /// Bytes of a file that lie with its inode where nothing asks for objects.
    pub dom_stripesize: AtomicU64,
    /// What lies in the trash goes when it is so old (0: never for that), when all of it takes more of the
    /// object targets' space, and when one of them has less left.
    pub trash_max_age_s: AtomicU64,
    pub trash_max_space: AtomicU64,
    pub trash_min_free: AtomicU64,
    /// Who but root may change projects: members of this group. 0: nobody, -1: whoever owns the file.
    chprojid_gid: AtomicI64,
    squash: RwLock<SquashWords>,
}

impl Default for Settings {
    fn default() -> Settings {
        let n = AtomicU64::new;
        Settings {
            ack_durable: AtomicBool::new(false),
            stripesize: n(limits::STRIPE_SIZE_DEFAULT_BYTES),
            stripecount: AtomicI32::new(limits::STRIPE_COUNT_DEFAULT),
            qos_threshold_rr: n(QOS_THRESHOLD_DEFAULT),
            qos_prio_free: n(QOS_PRIO_FREE_DEFAULT),
            qos_maxage_s: n(QOS_AGE_DEFAULT_S),
            recovery_time_s: n(RECOVERY_TIME_DEFAULT_S),
            recovery_hard_s: n(RECOVERY_HARD_DEFAULT_S),
            callback_timeout_s: n(CALLBACK_TIMEOUT_DEFAULT_S),
            dom_stripesize: n(DOM_DEFAULT_BYTES),
            trash_max_age_s: n(TRASH_AGE_DEFAULT_S),
            trash_max_space: n(TRASH_SPACE_DEFAULT),
            trash_min_free: n(TRASH_FREE_DEFAULT),
            chprojid_gid: AtomicI64::new(0),
            squash: RwLock::new(SquashWords {
                rule: Squash::default(),
                to: SQUASH_DEFAULT.into(),
                except: NOSQUASH_DEFAULT.into(),
            }),
        }
    }
}

/// So many seconds as a setting says.
pub fn seconds(setting: &AtomicU64) -> Duration {
    Duration::from_secs(setting.load(Relaxed))
}

/// -1 or as many stripes as there can be: `ERANGE`, or `EINVAL` for what is no number.
pub fn stripe_count(text: &str) -> Result<i32, Errno> {
    let n: i32 = text.parse().map_err(|_| Errno::EINVAL)?;
    let fits = n == -1 || (1..=limits::STRIPE_COUNT_MAX as i32).contains(&n);
    if fits { Ok(n) } else { Err(Errno::ERANGE) }
}

/// Whether `root_squash` can be that.
pub fn is_squash(text: &str) -> Result<(), Errno> {
    Squash::default().set_to(text)
}

/// Whether `nosquash_nids` can be that.
pub fn is_nosquash(text: &str) -> Result<(), Errno> {
    NidRanges::parse(text).map(drop)
}

/// A group as `enable_chprojid_gid` has it.
pub fn chprojid_gid(text: &str) -> Result<i64, Errno> {
    let n: i64 = text.parse().map_err(|_| Errno::EINVAL)?;
    if (-1..=i64::from(u32::MAX)).contains(&n) { Ok(n) } else { Err(Errno::ERANGE) }
}

impl Settings {
    /// Whether somebody may change projects of what is his.
    pub fn may_set_project(&self, cred: &Cred) -> bool {
        let gid = self.chprojid_gid.load(Relaxed);
        let member = |g: u32| cred.gid == g || cred.groups.contains(&g);
        cred.is_root() || gid == -1 || (gid > 0 && u32::try_from(gid).is_ok_and(member))
    }

    pub fn enable_chprojid_gid(&self) -> String {
        self.chprojid_gid.load(Relaxed).to_string()
    }

    pub fn set_enable_chprojid_gid(&self, text: &str) -> Result<(), Errno> {
        self.chprojid_gid.store(chprojid_gid(text)?, Relaxed);
        Ok(())
    }

    fn squash(&self) -> RwLockReadGuard<'_, SquashWords> {
        self.squash.read()
    }

    /// Whom somebody's users are here, by `root_squash` and `nosquash_nids`.
    pub fn nodemap(&self, who: &Principal) -> Nodemap {
        self.squash().rule.of(who.address)
    }

    pub fn root_squash(&self) -> String {
        self.squash().to.clone()
    }

    pub fn nosquash_nids(&self) -> String {
        self.squash().except.clone()
    }

    pub fn set_root_squash(&self, text: &str) -> Result<(), Errno> {
        let mut s = self.squash.write();
        s.rule.set_to(text)?;
        s.to = text.to_string();
        Ok(())
    }

    pub fn set_nosquash_nids(&self, text: &str) -> Result<(), Errno> {
        let mut s = self.squash.write();
        s.rule.set_except(text)?;
        s.except = text.to_string();
        Ok(())
    }

    pub fn stripecount(&self) -> i32 {
        self.stripecount.load(Relaxed)
    }

    pub fn set_stripecount(&self, text: &str) -> Result<(), Errno> {
        self.stripecount.store(stripe_count(text)?, Relaxed);
        Ok(())
    }

    /// The layout of files for which nothing says one: in components, unless the administrator set how many
    /// stripes a file has.
    pub fn builtin_layout(&self) -> LayoutSpec {
        let builtin = LayoutSpec::builtin();
        let stripe_count = self.stripecount();
        let mut spec = LayoutSpec { stripe_size: self.stripesize.load(Relaxed), stripe_count, ..builtin };
        if stripe_count != limits::STRIPE_COUNT_DEFAULT {
            spec.set_components(&[]);
        }
        spec
    }
}
