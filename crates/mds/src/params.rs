//! Parameters of a metadata target, as `lctl get_param` and `set_param` see them. Each is declared once,
//! here: name, type, unit, bounds, default, description.

use model::mutex::Mutex;
use model::nodemap::Nodemap;
use model::param::{ParamDecl, ParamKind, ack_is_durable};
use model::squash::Squash;
use model::{Errno, LayoutSpec, limits};
use rpc::Principal;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

const fn number(
    name: &'static str,
    unit: &'static str,
    bounds: (u64, u64),
    default: &'static str,
    description: &'static str,
) -> ParamDecl {
    ParamDecl::number(name, bounds, unit, default, description)
}

const fn shown(name: &'static str, description: &'static str) -> ParamDecl {
    ParamDecl { name, kind: ParamKind::Text, unit: "", default: "", writable: false, description }
}

/// Under `lod.FSNAME-MDT0000-mdtlov`: where new objects go.
pub const LOD: &[ParamDecl] = &[
    number(
        "stripesize",
        "bytes",
        (limits::STRIPE_SIZE_MIN_BYTES, limits::STRIPE_SIZE_MAX_BYTES),
        "4194304",
        "stripe size of files for which neither they, their directory nor the root directory says one",
    ),
    ParamDecl {
        name: "stripecount",
        kind: ParamKind::Text,
        unit: "stripes",
        default: "1",
        writable: true,
        description: "stripe count of files for which nothing says one; -1: all OSTs",
    },
    ParamDecl {
        name: "stripeoffset",
        kind: ParamKind::Text,
        unit: "",
        default: "-1",
        writable: false,
        description: "first OST of new files; -1: the server chooses",
    },
    ParamDecl {
        name: "stripetype",
        kind: ParamKind::Text,
        unit: "",
        default: "raid0",
        writable: false,
        description: "pattern of new files",
    },
    number("qos_threshold_rr", "%", (0, 100), "17", "OSTs whose free space differs by less are used in turn"),
    number(
        "qos_prio_free",
        "%",
        (0, 100),
        "90",
        "weight of free space against an even spread when OSTs differ more",
    ),
    number("qos_maxage", "s", (1, 3600), "5", "age at which an OST's free space is asked for again"),
    shown("numobd", "OSTs in the configuration"),
    shown("activeobd", "OSTs that are not deactivated"),
    shown("target_obd", "the OSTs, one a line"),
];

/// Under `mdt.FSNAME-MDT0000`.
pub const MDT: &[ParamDecl] = &[
    ParamDecl {
        name: "ack",
        kind: ParamKind::Text,
        unit: "",
        default: "exec",
        writable: true,
        description: "when changes are answered: exec (executed; clients send them again after a crash) or durable",
    },
    ParamDecl {
        name: "root_squash",
        kind: ParamKind::Text,
        unit: "",
        default: "0:0",
        writable: true,
        description: "UID:GID that root of clients is; 0:0: root stays root",
    },
    ParamDecl {
        name: "nosquash_nids",
        kind: ParamKind::Text,
        unit: "",
        default: "NONE",
        writable: true,
        description: "where root stays root all the same: NIDs such as 10.0.0.[1-5]@tcp, apart by blanks; NONE",
    },
    number(
        "recovery_time_soft",
        "s",
        (1, 3600),
        "15",
        "how long after a restart clients may take to come back before they are evicted",
    ),
    number(
        "recovery_time_hard",
        "s",
        (1, 86_400),
        "90",
        "how long that may be put off while clients come back and go on with their recovery",
    ),
    number(
        "lock_callback_timeout",
        "s",
        (1, 3600),
        "20",
        "how long a client may take to give back a lease that others need before it is evicted",
    ),
    shown("lease_count", "files on which clients have leases, over all clients"),
    number(
        "dom_stripesize",
        "bytes",
        (0, limits::MDT_DATA_MAX_BYTES),
        "65536",
        "so much of a file lies with its inode where nothing asks for objects; 0: new files get objects at once",
    ),
    shown("recovery_status", "how far recovery after the last restart came"),
    shown("num_exports", "clients that this target knows"),
    shown("instance", "epoch of the target: grows at each start"),
    shown("uuid", "name of the target"),
    shown("open_files", "files that clients have open"),
    shown("filestotal", "inodes that fit in, about"),
    shown("filesfree", "inodes that still fit in, about"),
    ParamDecl::text(
        "md_stats",
        "",
        "operations with their times in microseconds; writing anything clears them",
    ),
    ParamDecl::text("stats", "", "the same as md_stats, under its newer name"),
];

/// Under `mdt.FSNAME-MDT0000.exports.NID`.
pub const EXPORT: &[ParamDecl] = &[
    ParamDecl::text("stats", "", "operations of these clients; writing anything clears them"),
    shown("uuid", "the clients at this address"),
];

/// Parameters that hold a number or a word; the others are computed when asked for.
pub struct Params {
    values: Mutex<BTreeMap<&'static str, String>>,
    /// `ack` is `durable`.
    ack_durable: AtomicBool,
    /// `root_squash` and `nosquash_nids`.
    squash: Mutex<Squash>,
}

impl Default for Params {
    fn default() -> Params {
        let stored = LOD.iter().chain(MDT).filter(|d| !d.default.is_empty());
        Params {
            values: Mutex::new(stored.map(|d| (d.name, d.default.to_string())).collect()),
            ack_durable: AtomicBool::new(false),
            squash: Mutex::default(),
        }
    }
}

impl Params {
    pub fn get(&self, name: &str) -> Option<String> {
        self.values.lock().get(name).cloned()
    }

    /// Changes are answered when they are durable, not when they are executed.
    pub fn ack_durable(&self) -> bool {
        self.ack_durable.load(Ordering::Relaxed)
    }

    /// Whom somebody's users are here, by `root_squash` and `nosquash_nids`.
    pub fn nodemap(&self, who: &Principal) -> Nodemap {
        self.squash.lock().of(who.address)
    }

    /// A number parameter's value; the name must be one that is declared as a number here.
    pub fn number(&self, name: &str) -> u64 {
        let text = self.get(name).expect("the parameter is declared");
        text.parse().expect("it was checked when it was set")
    }

    /// Checks and stores. `EINVAL` or `ERANGE` for a value that cannot be, `EACCES` for one that is only shown.
    pub fn set(&self, decl: &ParamDecl, text: &str) -> Result<(), Errno> {
        if !decl.writable {
            return Err(Errno::EACCES);
        }
        let value = match (decl.kind, decl.name) {
            (ParamKind::Text, "stripecount") => {
                let n: i32 = text.trim().parse().map_err(|_| Errno::EINVAL)?;
                if n != -1 && !(1..=limits::STRIPE_COUNT_MAX as i32).contains(&n) {
                    return Err(Errno::ERANGE);
                }
                n.to_string()
            }
            (ParamKind::Text, "ack") => {
                let durable = ack_is_durable(text)?;
                self.ack_durable.store(durable, Ordering::Relaxed);
                text.trim().to_string()
            }
            (ParamKind::Text, "root_squash") => {
                self.squash.lock().set_to(text)?;
                text.trim().to_string()
            }
            (ParamKind::Text, "nosquash_nids") => {
                self.squash.lock().set_except(text)?;
                text.trim().to_string()
            }
            (ParamKind::Text, _) => return Err(Errno::EINVAL),
            _ => {
                let n = decl.parse(text)?;
                let stripe = matches!(decl.name, "stripesize" | "dom_stripesize");
                if stripe && n % limits::STRIPE_SIZE_MIN_BYTES != 0 {
                    return Err(Errno::EINVAL);
                }
                n.to_string()
            }
        };
        self.values.lock().insert(decl.name, value);
        Ok(())
    }

    pub fn builtin_layout(&self) -> LayoutSpec {
        let count = self.get("stripecount").and_then(|s| s.parse().ok());
        LayoutSpec {
            stripe_size: self.number("stripesize"),
            stripe_count: count.unwrap_or(limits::STRIPE_COUNT_DEFAULT),
            ..LayoutSpec::builtin()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decl(name: &str) -> &'static ParamDecl {
        LOD.iter().chain(MDT).find(|d| d.name == name).unwrap()
    }

    #[test]
    fn defaults_are_valid_and_values_checked() {
        let p = Params::default();
        for d in LOD.iter().chain(MDT).filter(|d| matches!(d.kind, ParamKind::Number { .. })) {
            assert!(d.parse(d.default).is_ok(), "{}", d.name);
            p.number(d.name);
        }
        let size = decl("stripesize");
        assert_eq!(p.set(size, "1M"), Ok(()));
        assert_eq!(p.builtin_layout().stripe_size, 1 << 20);
        assert_eq!(p.set(size, "65537"), Err(Errno::EINVAL));
        assert_eq!(p.set(size, "1"), Err(Errno::ERANGE));
        assert_eq!(p.set(size, "xM"), Err(Errno::EINVAL));
        let dom = decl("dom_stripesize");
        assert_eq!((p.set(dom, "0"), p.set(dom, "1M")), (Ok(()), Ok(())));
        assert_eq!((p.set(dom, "4096"), p.set(dom, "2M")), (Err(Errno::EINVAL), Err(Errno::ERANGE)));
        assert_eq!(p.set(decl("stripecount"), "-1"), Ok(()));
        assert_eq!(p.set(decl("stripecount"), "0"), Err(Errno::ERANGE));
        assert_eq!(p.set(decl("qos_prio_free"), "101"), Err(Errno::ERANGE));
        assert_eq!(p.set(decl("num_exports"), "1"), Err(Errno::EACCES));
    }
}
