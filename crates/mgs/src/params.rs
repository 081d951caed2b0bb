//! What `lctl get_param` shows of the MGS.

use crate::service::Mgs;
use model::param::{Decl, Param, ParamInfo, Registry, Scope, Table, Tree};
use wire::msg::config::TargetEntry;

/// Under `mgs.MGS`.
static TABLE: Table<Mgs> = Table {
    scopes: &[Scope::Mgs],
    params: &[
        Param::shown(Decl::text("filesystems", "File systems that this MGS manages."), |m, ()| {
            names(m).join("\n").into()
        }),
        Param::shown(Decl::gauge("num_exports", "", "Nodes connected."), |m, ()| m.num_exports().into()),
        Param::shown(Decl::text("params", "Permanent parameters (set_param -P)."), |m, ()| {
            let line = |(name, value): (&String, &String)| format!("{name}={value}");
            m.state(|s| s.params.iter().map(line).collect::<Vec<_>>()).join("\n").into()
        }),
    ],
};

/// One for each file system: `mgs.MGS.live.FSNAME`.
static LIVE: Table<Mgs, String> = Table {
    scopes: &[Scope::Mgs],
    params: &[Param::shown(Decl::text("live", "Targets of each file system: epoch and NIDs."), |m, fs| {
        live(m, fs).into()
    })],
};

fn names(m: &Mgs) -> Vec<String> {
    m.state(|s| s.file_systems.keys().cloned().collect())
}

fn live(m: &Mgs, fsname: &str) -> String {
    let lines = m.state(|s| {
        let targets = s.file_systems.get(fsname).map_or(&[][..], |fs| &fs.targets);
        let line = |t: &TargetEntry| {
            let nids: Vec<String> = t.nids.iter().map(ToString::to_string).collect();
            let word = if t.active { "" } else { " inactive" };
            format!("{} epoch {} {}{word}", t.target.label(fsname), t.epoch, nids.join(","))
        };
        targets.iter().map(line).collect::<Vec<_>>()
    });
    lines.join("\n")
}

/// What `lctl` can ask of the MGS.
pub fn declare(to: &mut Registry) {
    to.add(&TABLE);
    to.add(&LIVE);
}

impl Mgs {
    /// The parameters that a glob selects, sorted by name.
    pub fn params<'a>(&'a self, pattern: &'a str) -> Tree<'a> {
        let mut tree = Tree::matching(pattern);
        tree.add("mgs.MGS", &TABLE, self);
        for fs in names(self) {
            tree.add_named(format!("mgs.MGS.live.{fs}"), &LIVE.params[0], self, &fs);
        }
        tree.sorted()
    }

    /// Their values.
    pub fn get_params(&self, pattern: &str) -> Vec<(String, String)> {
        self.params(pattern).texts()
    }

    /// What they mean.
    pub fn help_params(&self, pattern: &str) -> Vec<ParamInfo> {
        self.params(pattern).infos()
    }
}
