//! get_param and set_param of a metadata target.

use crate::mdt::Mdt;
use crate::params::tree;
use model::Errno;
use model::param::{Item, PARAM_TEXT_MAX_BYTES, ParamInfo, Tree};
use wire::msg::param::{GetParam, GetParamReply, SetParam};

pub fn get(mdt: &Mdt, m: GetParam) -> Result<GetParamReply, Errno> {
    if m.pattern.len() > PARAM_TEXT_MAX_BYTES {
        return Err(Errno::EINVAL);
    }
    Ok(GetParamReply { values: tree(mdt, &m.pattern).texts() })
}

/// Sets every parameter that the glob names, and waits until owners of directories know if it is about new
/// files' layouts. `ENOENT` if there is none, `EACCES` for those that are only shown, `EINVAL` or `ERANGE`
/// for values that cannot be, `ESHUTDOWN` when the target stops meanwhile.
pub async fn set(mdt: &Mdt, m: SetParam) -> Result<GetParamReply, Errno> {
    let (about, r) = set_now(mdt, m)?;
    mdt.settings_changed(about).await?;
    Ok(r)
}

/// What clients must know of before a setting counts as made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct About {
    /// Layouts of new files.
    pub layouts: bool,
    /// Whose root is root.
    pub squash: bool,
}

impl About {
    fn add(&mut self, i: &Item<'_>) {
        self.layouts |= i.name.starts_with("lod.") || i.decl.name == "dom_stripesize";
        self.squash |= matches!(i.decl.name, "root_squash" | "nosquash_nids");
    }
}

/// As [`set`], without waiting: what it is about.
fn set_now(mdt: &Mdt, m: SetParam) -> Result<(About, GetParamReply), Errno> {
    if m.name.len() > PARAM_TEXT_MAX_BYTES || m.value.len() > PARAM_TEXT_MAX_BYTES {
        return Err(Errno::EINVAL);
    }
    if m.permanent || m.delete {
        // Permanent settings are the management server's, which sends them here with the configuration.
        return Err(Errno::EINVAL);
    }
    let chosen = tree(mdt, &m.name);
    chosen.set(&m.value)?;
    let mut about = About::default();
    chosen.items.iter().for_each(|i| about.add(i));
    Ok((about, GetParamReply { values: chosen.texts() }))
}

/// A permanent setting from the configuration; names of other targets are none of our business. What it is
/// about.
pub fn apply_permanent(mdt: &Mdt, name: &str, value: &str, about: &mut About) {
    for i in &tree(mdt, name).items {
        about.add(i);
        if let Err(e) = i.set(value) {
            tracing::warn!("permanent parameter {name}={value} was not applied to {}: {e}", i.name);
        }
    }
}

/// For `lctl` on the server's own host: the daemon asks without a session.
impl Mdt {
    /// Waits until no client goes by what was set before.
    pub(crate) async fn settings_changed(&self, about: About) -> Result<(), Errno> {
        if about.layouts {
            self.defaults_changed().await?;
        }
        if about.squash {
            self.squash_changed().await?;
        }
        Ok(())
    }

    /// The parameters that a glob selects.
    pub fn params<'a>(&'a self, pattern: &'a str) -> Tree<'a> {
        tree(self, pattern)
    }

    pub fn get_params(&self, pattern: &str) -> Vec<(String, String)> {
        get(self, GetParam { pattern: pattern.to_string() }).map(|r| r.values).unwrap_or_default()
    }

    /// What they mean, and what can be set.
    pub fn help_params(&self, pattern: &str) -> Vec<ParamInfo> {
        self.params(pattern).infos()
    }

    /// As [`set`].
    pub async fn set_params(&self, name: &str, value: &str) -> Result<Vec<(String, String)>, Errno> {
        let m =
            SetParam { name: name.to_string(), value: value.to_string(), permanent: false, delete: false };
        set(self, m).await.map(|r| r.values)
    }
}
