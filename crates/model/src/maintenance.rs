//! Maintenance of a file system: what its users may do meanwhile, why, and who is left alone. As the one
//! value in which it is configured and reaches every node (decision 0079).

use crate::Errno;
use crate::param::{Decl, Preset};
use crate::squash::NidRanges;
use crate::target::fsname_is_valid;
use std::fmt::Write;
use std::net::IpAddr;

/// Bytes of a reason.
pub const REASON_MAX_BYTES: usize = 1024;

/// What may be done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mode {
    /// Everything: there is no maintenance.
    #[default]
    Off,
    /// Changes are refused.
    ReadOnly,
    /// Operations wait for the end.
    Closed,
}

impl Mode {
    pub fn word(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::ReadOnly => "read-only",
            Mode::Closed => "closed",
        }
    }
}

/// The maintenance of one file system.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Maintenance {
    pub mode: Mode,
    /// Whose; empty: of whoever is told.
    pub fsname: String,
    /// When it was ordered, in seconds of the wall clock; 0: not known.
    pub since: i64,
    /// Who is left alone, as it was said; empty: nobody.
    pub except: String,
    /// For those who wait.
    pub reason: String,
}

impl Maintenance {
    /// Reads [`Maintenance::text`]. `EINVAL` for what is none, `E2BIG` for more NIDs than anybody needs.
    pub fn parse(text: &str) -> Result<Maintenance, Errno> {
        let (word, mut rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let modes = [Mode::Off, Mode::ReadOnly, Mode::Closed];
        let mode = modes.into_iter().find(|m| m.word() == word).ok_or(Errno::EINVAL)?;
        let mut m = Maintenance { mode, ..Maintenance::default() };
        while !rest.is_empty() {
            if let Some(reason) = rest.strip_prefix("reason=") {
                m.reason = reason.to_string();
                break;
            }
            let (field, behind) = rest.split_once(' ').unwrap_or((rest, ""));
            match field.split_once('=').ok_or(Errno::EINVAL)? {
                ("fs", name) if fsname_is_valid(name) => m.fsname = name.to_string(),
                ("since", s) => m.since = s.parse().ok().filter(|s| *s >= 0).ok_or(Errno::EINVAL)?,
                ("except", nids) => m.except = nids.to_string(),
                _ => return Err(Errno::EINVAL),
            }
            rest = behind;
        }
        NidRanges::parse(&m.except)?;
        if reason_is_valid(&m.reason) { Ok(m) } else { Err(Errno::EINVAL) }
    }

    /// As it is configured: `closed fs=nacre since=1764317000 except=10.0.0.1@tcp reason=a new switch`.
    pub fn text(&self) -> String {
        let mut s = self.mode.word().to_string();
        let mut add = |name: &str, value: &str| {
            if !value.is_empty() {
                // Into a string, which takes everything.
                let _ = write!(s, " {name}={value}");
            }
        };
        add("fs", &self.fsname);
        add("since", &if self.since == 0 { String::new() } else { self.since.to_string() });
        add("except", &self.except);
        add("reason", &self.reason);
        s
    }

    /// What of the configuration's parameters is in force for a file system: the last that is about it.
    pub fn of(params: &[(String, String)], fsname: &str) -> Maintenance {
        let named = params.iter().filter(|(name, _)| name.rsplit('.').next() == Some("maintenance"));
        let mut all = named.filter_map(|(_, value)| Maintenance::parse(value).ok());
        all.rfind(|m| m.is_about(fsname)).unwrap_or_default()
    }

    /// The name under which it is configured.
    pub fn param_name(fsname: &str) -> String {
        format!("*.{fsname}-*.maintenance")
    }

    /// Names of file systems may begin alike, so that a pattern alone does not tell them apart.
    pub fn is_about(&self, fsname: &str) -> bool {
        self.fsname.is_empty() || self.fsname == fsname
    }

    /// Whether a node with one of these addresses is left alone.
    pub fn leaves_alone(&self, addresses: &[IpAddr]) -> bool {
        NidRanges::parse(&self.except).is_ok_and(|r| addresses.iter().any(|a| r.contains(*a)))
    }

    /// For people: `closed for maintenance: a new switch`.
    pub fn sentence(&self) -> String {
        let why = if self.reason.is_empty() { "no reason was given" } else { &self.reason };
        format!("{} for maintenance: {why}", self.mode.word())
    }

    /// What that means to a program.
    pub fn consequence(&self) -> &'static str {
        match self.mode {
            Mode::Off => "everything goes on",
            Mode::ReadOnly => "changes are refused (EROFS) until it ends",
            Mode::Closed => "operations wait until it ends, and can be interrupted",
        }
    }
}

/// Whether a reason can be told: one line, and not too long.
pub fn reason_is_valid(reason: &str) -> bool {
    reason.len() <= REASON_MAX_BYTES && !reason.chars().any(char::is_control)
}

/// `maintenance`, as mounts and targets declare it.
pub const fn decl() -> Decl {
    let help = "Maintenance of the file system: off, read-only or closed, then fs=, since=, except=NIDs, reason=TEXT. \
                To be set by 'nacre maintenance', for all nodes.";
    Decl::words("maintenance", "off", |text| Maintenance::parse(text).map(drop), help)
        .by_default(Preset::Words("off"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_is_read_back() {
        let m = Maintenance {
            mode: Mode::Closed,
            fsname: "nacre".into(),
            since: 1_764_317_000,
            except: "10.0.0.[1-5]@tcp,fd00::7@tcp".into(),
            reason: "a new switch, reason=none fs=x".into(),
        };
        assert_eq!(Maintenance::parse(&m.text()), Ok(m.clone()));
        assert_eq!(Maintenance::parse("off"), Ok(Maintenance::default()));
        assert!(m.leaves_alone(&["10.0.0.3".parse().unwrap()]));
        assert!(!m.leaves_alone(&["10.0.0.6".parse().unwrap()]));
        assert_eq!(m.sentence(), "closed for maintenance: a new switch, reason=none fs=x");
    }

    #[test]
    fn what_is_none_is_refused() {
        for bad in
            ["", "on", "closed now", "closed since=-1", "closed except=x", "closed fs=a/b", "off reason=a\nb"]
        {
            assert_eq!(Maintenance::parse(bad), Err(Errno::EINVAL), "{bad}");
        }
        assert_eq!(Maintenance::parse(&format!("off reason={}", "x".repeat(2000))), Err(Errno::EINVAL));
    }

    #[test]
    fn file_systems_whose_names_begin_alike_are_apart() {
        let params = |text: &str| vec![(Maintenance::param_name("a"), text.to_string())];
        assert_eq!(Maintenance::of(&params("closed fs=a"), "a-b").mode, Mode::Off);
        assert_eq!(Maintenance::of(&params("closed fs=a"), "a").mode, Mode::Closed);
        assert_eq!(Maintenance::of(&params("nonsense"), "a").mode, Mode::Off);
        assert_eq!(Maintenance::of(&[], "a").mode, Mode::Off);
    }
}
