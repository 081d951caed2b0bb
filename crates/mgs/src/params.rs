//! What `lctl get_param` shows of the MGS.

use crate::service::Mgs;
use model::param::{ParamDecl, ParamInfo, glob_match};

const fn shown(name: &'static str, description: &'static str) -> ParamDecl {
    ParamDecl::shown(name, "", description)
}

static DECLARATIONS: [ParamDecl; 4] = [
    shown("filesystems", "File systems that this MGS manages."),
    shown("live", "Targets of each file system: epoch and NIDs."),
    shown("num_exports", "Nodes connected."),
    shown("params", "Permanent parameters (set_param -P)."),
];

/// Every parameter of the MGS.
pub fn declarations() -> &'static [ParamDecl] {
    &DECLARATIONS
}

impl Mgs {
    /// Values of the parameters that a glob selects, sorted by name.
    pub fn get_params(&self, pattern: &str) -> Vec<(String, String)> {
        let mut out = Vec::new();
        for d in declarations() {
            match d.name {
                "filesystems" => {
                    let names: Vec<String> = self.state(|s| s.file_systems.keys().cloned().collect());
                    out.push(("mgs.MGS.filesystems".to_string(), names.join("\n")));
                }
                "live" => self.state(|s| {
                    for (name, fs) in &s.file_systems {
                        let lines: Vec<String> = fs
                            .targets
                            .iter()
                            .map(|t| {
                                let nids: Vec<String> = t.nids.iter().map(ToString::to_string).collect();
                                let word = if t.active { "" } else { " inactive" };
                                format!("{} epoch {} {}{word}", t.target.label(name), t.epoch, nids.join(","))
                            })
                            .collect();
                        out.push((format!("mgs.MGS.live.{name}"), lines.join("\n")));
                    }
                }),
                "num_exports" => {
                    out.push(("mgs.MGS.num_exports".to_string(), self.num_exports().to_string()))
                }
                _ => {
                    let lines: Vec<String> =
                        self.state(|s| s.params.iter().map(|(k, v)| format!("{k}={v}")).collect());
                    out.push(("mgs.MGS.params".to_string(), lines.join("\n")));
                }
            }
        }
        out.retain(|(name, _)| glob_match(pattern, name));
        out.sort();
        out
    }

    /// What they mean. `live` is one for each file system.
    pub fn help_params(&self, pattern: &str) -> Vec<ParamInfo> {
        let decl = |name: &str| {
            let mut parts = name.split('.').skip(2);
            let last = parts.next().unwrap_or_default();
            declarations().iter().find(|d| d.name == last)
        };
        let all = self.get_params(pattern).into_iter();
        all.filter_map(|(n, _)| decl(&n).map(|d| d.info(n))).collect()
    }
}
