//! What must hold of every declaration, for the tests of the crates that have some.

use super::{Kind, Tree, Value};
use crate::Errno;

/// Every parameter can be read and is of its kind, has a sentence for help, begins with its default, takes
/// it, and refuses what is beyond its bounds or, if it is only shown, everything.
pub fn every_declaration_holds(fresh: &Tree<'_>) {
    assert!(!fresh.items.is_empty(), "there are parameters");
    for i in &fresh.items {
        let (d, name, v) = (i.decl, &i.name, i.value());
        assert!(d.fits(&v), "{name} is {:?} and shows {v:?}", d.kind);
        assert!(!d.help.is_empty(), "{name} has no help");
        let twins = fresh.items.iter().filter(|o| o.name == *name).count();
        assert_eq!(twins, 1, "{name} is declared {twins} times");
        if !d.writable {
            assert_eq!(i.set("1"), Err(Errno::EACCES), "{name} is only shown");
            continue;
        }
        if let Some((min, max)) = d.range() {
            let default = d.default.to_string();
            if !matches!(d.default, super::Preset::Host(_)) {
                assert_eq!(v.to_string(), default, "{name} does not begin with its default");
                assert_eq!(i.set(&default), Ok(()), "{name} refuses its default");
                assert_eq!(i.value(), v, "{name} changed by being set to what it was");
            }
            assert_eq!(i.set("nonsense"), Err(Errno::EINVAL), "{name}");
            if max < u64::MAX {
                assert_eq!(i.set(&(max + 1).to_string()), Err(Errno::ERANGE), "{name} beyond its most");
            }
            if min > 0 {
                assert_eq!(i.set(&(min - 1).to_string()), Err(Errno::ERANGE), "{name} below its least");
            }
            continue;
        }
        let is_setting = matches!(d.kind, Kind::Words(_)) && d.default != super::Preset::None;
        if is_setting {
            // Alone, or in brackets among what else it can be.
            let (shown, default) = (v.to_string(), d.default.to_string());
            let begins = shown == default || shown.contains(&format!("[{default}]"));
            assert!(begins, "{name} begins with {shown}, not with its default {default}");
            assert_eq!(i.set(&d.default.to_string()), Ok(()), "{name} refuses its default");
        } else if !matches!(d.kind, Kind::Words(_)) {
            assert_eq!(i.set("clear"), Ok(()), "{name} cannot be cleared");
            assert!(!matches!(&i.value(), Value::Counters(c) if c.counted().next().is_some()), "{name}");
        }
    }
}
