//! get_param and set_param of a metadata target.

use crate::changelog;
use crate::leases::Touched;
use crate::maintenance;
use crate::mdt::Mdt;
use crate::params::tree;
use model::param::{Item, PARAM_TEXT_MAX_BYTES, ParamInfo, Tree};
use model::{Errno, Fid};
use rpc::{ClientId, Principal};
use wire::msg::lookup::bits;
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
    settings_changed(mdt, about).await?;
    Ok(r)
}

/// What clients must know of before a setting counts as made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct About {
    /// Layouts of new files.
    pub layouts: bool,
    /// Whose root is root.
    pub squash: bool,
    /// What the changelog tells of.
    pub changelog: bool,
    /// What may be done at all.
    pub maintenance: bool,
}

impl About {
    fn add(&mut self, i: &Item<'_>) {
        self.layouts |= i.name.starts_with("lod.") || i.decl.name == "dom_stripesize";
        self.squash |= matches!(i.decl.name, "root_squash" | "nosquash_nids");
        self.changelog |= i.decl.name == "changelog_mask";
        self.maintenance |= i.decl.name == "maintenance";
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

/// Waits until no client goes by what was set before. `ESHUTDOWN` when the target stops.
pub async fn settings_changed(mdt: &Mdt, about: About) -> Result<(), Errno> {
    if about.layouts {
        // Owners go by what new files' layouts come from.
        mdt.transactions.revoke(|_| Touched::from([(Fid::DEFAULTS, bits::UPDATE)])).await?;
    }
    if about.squash {
        squash_changed(mdt).await?;
    }
    if about.maintenance {
        maintenance::recall(mdt).await?;
    }
    if about.changelog {
        changelog::leases_for_audit(mdt).await?;
    }
    Ok(())
}

/// It has changed whose root is root. Waits until nobody who is squashed keeps anything that was shown to
/// root. `ESHUTDOWN` when the target stops.
async fn squash_changed(mdt: &Mdt) -> Result<(), Errno> {
    let all = mdt.peers.list().into_iter().map(|p| p.who);
    let squashed = |p: &Principal| mdt.shared.settings.nodemap(p).squashes_root();
    let clients: Vec<ClientId> = all.filter(squashed).map(|p| p.client).collect();
    mdt.transactions.revoke(|leases| leases.files_of(&clients)).await
}

/// For `lctl` on the server's own host: the daemon asks without a session.
impl Mdt {
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
