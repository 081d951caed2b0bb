//! Tables of parameters, and the one walk through them that reads, explains and sets.

use super::EVERYTHING;
use super::decl::{Decl, ParamInfo, Setting};
use super::glob::glob_match;
use super::registry::Scope;
use super::value::Value;
use crate::Errno;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

type Get<A, B> = fn(&A, &B) -> Value;
type Set<A, B> = fn(&A, &B, Setting<'_>) -> Result<(), Errno>;

enum Access<A: 'static, B: 'static> {
    Shown(Get<A, B>),
    Set(Get<A, B>, Set<A, B>),
    /// A number that is kept in units of two to this power.
    Atomic(for<'x> fn(&'x A, &B) -> &'x AtomicU64, u32),
    AtomicFlag(for<'x> fn(&'x A, &B) -> &'x AtomicBool),
}

/// A parameter or statistic of an `A`: its declaration, how to read it, how to set it. `B` says which of the
/// things that the `A` has, if it has several.
pub struct Param<A: 'static, B: 'static = ()> {
    pub decl: Decl,
    access: Access<A, B>,
}

impl<A, B> Param<A, B> {
    /// What is only shown.
    pub const fn shown(decl: Decl, get: Get<A, B>) -> Param<A, B> {
        assert!(!decl.writable, "what can be set says how");
        Param { decl, access: Access::Shown(get) }
    }

    pub const fn settable(decl: Decl, get: Get<A, B>, set: Set<A, B>) -> Param<A, B> {
        assert!(decl.writable, "what is only shown cannot be set");
        Param { decl, access: Access::Set(get, set) }
    }

    /// A number of which nobody must be told when it is set. It is kept in units of two to the power of
    /// `shift`.
    pub const fn atomic(decl: Decl, shift: u32, at: for<'x> fn(&'x A, &B) -> &'x AtomicU64) -> Param<A, B> {
        assert!(decl.writable, "what is only shown cannot be set");
        Param { decl, access: Access::Atomic(at, shift) }
    }

    pub const fn atomic_flag(decl: Decl, at: for<'x> fn(&'x A, &B) -> &'x AtomicBool) -> Param<A, B> {
        assert!(decl.writable, "what is only shown cannot be set");
        Param { decl, access: Access::AtomicFlag(at) }
    }

    fn get(&self, a: &A, b: &B) -> Value {
        match self.access {
            Access::Shown(get) | Access::Set(get, _) => get(a, b),
            Access::Atomic(at, shift) => Value::Number(at(a, b).load(Relaxed) >> shift),
            Access::AtomicFlag(at) => Value::Flag(at(a, b).load(Relaxed)),
        }
    }

    fn set(&self, a: &A, b: &B, v: Setting<'_>) -> Result<(), Errno> {
        match self.access {
            Access::Shown(_) => return Err(Errno::EACCES),
            Access::Set(_, set) => return set(a, b, v),
            Access::Atomic(at, shift) => {
                let kept = v.number << shift;
                assert_eq!(kept >> shift, v.number, "what a declaration lets in fits into its unit");
                at(a, b).store(kept, Relaxed);
            }
            Access::AtomicFlag(at) => at(a, b).store(v.is_on(), Relaxed),
        }
        Ok(())
    }
}

/// The parameters that devices of some kinds have.
pub struct Table<A: 'static, B: 'static = ()> {
    pub scopes: &'static [Scope],
    pub params: &'static [Param<A, B>],
}

/// A parameter with whose it is.
struct Bound<P, A: 'static, B: 'static> {
    param: &'static Param<A, B>,
    a: P,
    b: B,
}

trait Entry {
    fn get(&self) -> Value;
    fn set(&self, v: Setting<'_>) -> Result<(), Errno>;
}

impl<P: Deref<Target = A>, A, B> Entry for Bound<P, A, B> {
    fn get(&self) -> Value {
        self.param.get(&self.a, &self.b)
    }

    fn set(&self, v: Setting<'_>) -> Result<(), Errno> {
        self.param.set(&self.a, &self.b, v)
    }
}

/// One parameter of one device.
pub struct Item<'a> {
    /// The whole dotted name.
    pub name: String,
    pub decl: &'static Decl,
    entry: Box<dyn Entry + 'a>,
}

impl Item<'_> {
    pub fn value(&self) -> Value {
        self.entry.get()
    }

    /// Checks and sets: as [`Decl::check`], or what it has against the value itself.
    pub fn set(&self, value: &str) -> Result<(), Errno> {
        self.entry.set(self.decl.check(value)?)
    }
}

/// What a pattern selects of the tree of parameters, in the order in which it was added.
pub struct Tree<'a> {
    pattern: &'a str,
    /// What names that fit end with: most names are told apart by that, and sooner than by the whole pattern.
    end: &'a str,
    pub items: Vec<Item<'a>>,
}

impl<'a> Tree<'a> {
    pub fn matching(pattern: &'a str) -> Tree<'a> {
        let is_special =
            |c: char| matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '.' | '/' | '!' | '^');
        let end = if pattern == EVERYTHING { "" } else { pattern };
        let end = end.rfind(is_special).map_or(end, |at| &end[at + 1..]);
        Tree { pattern, end, items: Vec::new() }
    }

    /// A device whose parameters have these names before the last part, or none; `b`: which of the things of
    /// `a`.
    pub fn add_of<A, B: Clone + 'a>(
        &mut self,
        device: &str,
        table: &'static Table<A, B>,
        a: impl Deref<Target = A> + Clone + 'a,
        b: &B,
    ) {
        let end = self.end;
        for param in table.params.iter().filter(|p| p.decl.name.ends_with(end)) {
            let dot = if device.is_empty() { "" } else { "." };
            self.add_named(format!("{device}{dot}{}", param.decl.name), param, a.clone(), b);
        }
    }

    /// One parameter that has a name of its own.
    pub fn add_named<A, B: Clone + 'a>(
        &mut self,
        name: String,
        param: &'static Param<A, B>,
        a: impl Deref<Target = A> + 'a,
        b: &B,
    ) {
        let fits = || name.ends_with(self.end) && glob_match(self.pattern, &name);
        if self.pattern == EVERYTHING || fits() {
            let entry = Box::new(Bound { param, a, b: b.clone() });
            self.items.push(Item { name, decl: &param.decl, entry });
        }
    }

    /// A device of which there is one.
    pub fn add<A>(&mut self, device: &str, table: &'static Table<A>, a: impl Deref<Target = A> + Clone + 'a) {
        self.add_of(device, table, a, &());
    }

    pub fn sorted(mut self) -> Tree<'a> {
        self.items.sort_by(|a, b| a.name.cmp(&b.name));
        self
    }

    /// Names and values.
    pub fn values(&self) -> impl Iterator<Item = (&str, &'static Decl, Value)> {
        self.items.iter().map(|i| (i.name.as_str(), i.decl, i.value()))
    }

    /// Names and values as users see them.
    pub fn texts(&self) -> Vec<(String, String)> {
        self.values().map(|(name, _, v)| (name.to_string(), v.to_string())).collect()
    }

    /// What they mean, and what can be set.
    pub fn infos(&self) -> Vec<ParamInfo> {
        self.items.iter().map(|i| i.decl.info(i.name.clone())).collect()
    }

    /// Sets all of them. `ENOENT`: there is none; `EACCES`: one cannot be set; `EINVAL`, `ERANGE`, `E2BIG`:
    /// not with this value. Nothing is set if a declaration has something against it; if one of them cannot
    /// be set after all, the others are, and the first error counts.
    pub fn set(&self, value: &str) -> Result<(), Errno> {
        if self.items.is_empty() {
            return Err(Errno::ENOENT);
        }
        self.items.iter().try_for_each(|i| i.decl.check(value).map(drop))?;
        let tried: Vec<Result<(), Errno>> = self.items.iter().map(|i| i.set(value)).collect();
        tried.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::param::testing::every_declaration_holds;
    use std::sync::Arc;

    const AGE_DEFAULT_S: u64 = 5;

    struct Device {
        age_s: AtomicU64,
        kept: AtomicU64,
        off: AtomicBool,
        words: crate::mutex::Mutex<String>,
    }

    impl Default for Device {
        fn default() -> Device {
            Device {
                age_s: AtomicU64::new(AGE_DEFAULT_S),
                kept: AtomicU64::new(64 << 20),
                off: AtomicBool::new(true),
                words: crate::mutex::Mutex::new("a".into()),
            }
        }
    }

    fn a_or_b(text: &str) -> Result<(), Errno> {
        if matches!(text, "a" | "b") { Ok(()) } else { Err(Errno::EINVAL) }
    }

    static TABLE: Table<Device> = Table {
        scopes: &[Scope::Osc, Scope::Mdc],
        params: &[
            Param::atomic(Decl::number("age", (1, 60), "s", AGE_DEFAULT_S, "Age."), 0, |d, ()| &d.age_s),
            Param::atomic(Decl::number("kept_mb", (0, 128), "MiB", 64, "Kept."), 20, |d, ()| &d.kept),
            Param::atomic_flag(Decl::flag("off", true, "Off."), |d, ()| &d.off),
            Param::settable(
                Decl::words("words", "a", a_or_b, "Words."),
                |d, ()| d.words.lock().clone().into(),
                |d, (), v| {
                    *d.words.lock() = v.text.to_string();
                    Ok(())
                },
            ),
            Param::shown(Decl::gauge("now", "things", "Now."), |_, ()| 3u64.into()),
        ],
    };

    static PARTS: Table<Device, u16> = Table {
        scopes: &[Scope::Osp],
        params: &[Param::shown(Decl::gauge("n", "", "N."), |_, n| u32::from(*n).into())],
    };

    #[test]
    fn one_walk_reads_explains_and_sets() {
        let d = Arc::new(Device::default());
        let all = |pattern| {
            let mut t = Tree::matching(pattern);
            t.add("osc.x", &TABLE, d.clone());
            t.add_of("osp.y", &PARTS, &*d, &7);
            t.sorted()
        };
        every_declaration_holds(&all("*.*.*"));
        let text = |pattern| all(pattern).texts();
        let pair = |n: &str, v: &str| (n.to_string(), v.to_string());
        assert_eq!(text("osc.*.[ak]*"), [pair("osc.x.age", "5"), pair("osc.x.kept_mb", "64")]);
        assert_eq!(text("osp.*.n"), [pair("osp.y.n", "7")]);
        for (pattern, n) in [
            ("osc/x/age", 1),
            ("osc.x.a?e", 1),
            ("osc.x.[!z]ge", 1),
            ("*.*.*ge", 1),
            ("age", 0),
            (EVERYTHING, 6),
        ] {
            assert_eq!(text(pattern).len(), n, "{pattern}");
        }
        assert_eq!(all("osc.*.kept_mb").set("32M"), Ok(()));
        assert_eq!(d.kept.load(Relaxed), 32 << 20);
        assert_eq!(all("osc.*.words").set("c"), Err(Errno::EINVAL));
        assert_eq!(all("osc.*.nothing").set("1"), Err(Errno::ENOENT));
        assert_eq!(all("osc.*.[ak]*").set("100"), Err(Errno::ERANGE), "for one of them");
        assert_eq!(text("osc.*.[ak]*")[1].1, "32", "and none was set");
        assert_eq!(all("osc.*.age").infos()[0].to_string(), "Age (s, 1 to 60, default 5)");
    }
}
