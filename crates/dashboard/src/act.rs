//! What an operator may do: a row each. Everything has a command that does the same.

use crate::app::Fields;
use serde::Serialize;

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    LfsckStart {
        target: String,
        dry_run: bool,
    },
    LfsckStop {
        target: String,
    },
    /// Whether the metadata targets give an OST new objects.
    SetActive {
        target: String,
        active: bool,
    },
    AbortRecovery {
        target: String,
    },
    Evict {
        target: String,
        client: String,
    },
    SetParam {
        name: String,
        value: String,
        for_good: bool,
    },
}

/// What somebody has to say.
pub struct Field {
    pub name: &'static str,
    pub label: &'static str,
    /// An example or the words that there are.
    pub hint: &'static str,
    /// Yes or no.
    pub is_choice: bool,
}

const fn text(name: &'static str, label: &'static str, hint: &'static str) -> Field {
    Field { name, label, hint, is_choice: false }
}

const fn choice(name: &'static str, label: &'static str, hint: &'static str) -> Field {
    Field { name, label, hint, is_choice: true }
}

pub struct Action {
    /// `/act/NAME`.
    pub name: &'static str,
    pub title: &'static str,
    /// What it means, for whoever has to confirm it.
    pub about: &'static str,
    /// Which does the same.
    pub command: &'static str,
    pub fields: &'static [Field],
    make: fn(&Fields) -> Result<Order, String>,
}

const MDT: Field = text("target", "Metadata target", "demo-MDT0000");
const OST: Field = text("target", "Object target", "demo-OST0003");

pub const ACTIONS: &[Action] = &[
    Action {
        name: "lfsck-start",
        title: "Start a check (lfsck)",
        about: "The metadata target checks names and layouts of the whole file system and mends what is wrong, while it is used. It takes part of the servers' time.",
        command: "lctl lfsck_start -M TARGET [-n]",
        fields: &[MDT, choice("dry_run", "Only look, mend nothing", "")],
        make: |f| Ok(Order::LfsckStart { target: label(f, "-MDT")?, dry_run: is_on(f, "dry_run") }),
    },
    Action {
        name: "lfsck-stop",
        title: "Stop a check (lfsck)",
        about: "The check that is under way ends where it is. The next one goes on from there.",
        command: "lctl lfsck_stop -M TARGET",
        fields: &[MDT],
        make: |f| Ok(Order::LfsckStop { target: label(f, "-MDT")? }),
    },
    Action {
        name: "deactivate",
        title: "Deactivate an OST",
        about: "The metadata targets of this host give it no new objects until they restart or it is activated. Files that lie there stay as they are, and can be read and written.",
        command: "lctl set_param osp.TARGET-osc-MDT*.active=0",
        fields: &[OST],
        make: |f| Ok(Order::SetActive { target: label(f, "-OST")?, active: false }),
    },
    Action {
        name: "activate",
        title: "Activate an OST",
        about: "The metadata targets of this host give it new objects again.",
        command: "lctl set_param osp.TARGET-osc-MDT*.active=1",
        fields: &[OST],
        make: |f| Ok(Order::SetActive { target: label(f, "-OST")?, active: true }),
    },
    Action {
        name: "abort-recovery",
        title: "End a recovery",
        about: "The target waits no longer for clients of before its restart. Those that did not come back are evicted: what they had not written is lost.",
        command: "lctl abort_recovery TARGET",
        fields: &[text("target", "Target", "demo-OST0003")],
        make: |f| Ok(Order::AbortRecovery { target: label(f, "-")? }),
    },
    Action {
        name: "evict",
        title: "Evict a client",
        about: "The target forgets the client: its locks are free, and what it had not written to this target is lost. It connects again by itself. Each target is told for itself.",
        command: "lctl set_param {mdt,obdfilter}.TARGET.evict_client=CLIENT",
        fields: &[
            text("target", "Target", "demo-OST0003"),
            text("client", "Client", "nid:10.0.0.7@tcp, or a UUID of exports.*.uuid"),
        ],
        make: |f| Ok(Order::Evict { target: label(f, "-")?, client: word(f, "client")? }),
    },
    Action {
        name: "set-param",
        title: "Set a parameter",
        about: "The parameter gets this value on this host until its daemons end, or for good on the whole file system. nacre param help NAME says what it means.",
        command: "lctl set_param [-P] NAME=VALUE",
        fields: &[
            text("name", "Parameter", "osc.*.max_rpcs_in_flight"),
            text("value", "Value", "16"),
            choice("for_good", "For good, on the whole file system (-P)", ""),
        ],
        make: |f| {
            Ok(Order::SetParam {
                name: parameter(f)?,
                value: line(f, "value")?,
                for_good: is_on(f, "for_good"),
            })
        },
    },
];

pub fn find(name: &str) -> Option<&'static Action> {
    ACTIONS.iter().find(|a| a.name == name)
}

const WORD_MAX_BYTES: usize = 256;

fn line(f: &Fields, name: &str) -> Result<String, String> {
    let v = f.get(name).map_or("", |v| v.trim());
    match v {
        "" => Err(format!("'{name}' is missing")),
        v if v.len() > WORD_MAX_BYTES || v.chars().any(char::is_control) => {
            Err(format!("'{name}' is no line of at most {WORD_MAX_BYTES} bytes"))
        }
        v => Ok(v.to_string()),
    }
}

fn word(f: &Fields, name: &str) -> Result<String, String> {
    let v = line(f, name)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    if v.chars().all(fits) { Ok(v) } else { Err(format!("'{v}' is no {name}")) }
}

/// Of a target; `kind` stands in it.
fn label(f: &Fields, kind: &str) -> Result<String, String> {
    let v = word(f, "target")?.trim_end_matches("_UUID").to_string();
    if v.contains(kind) {
        return Ok(v);
    }
    let example = if kind == "-MDT" { MDT.hint } else { OST.hint };
    Err(format!("'{v}' is no such target: a label, as {example}"))
}

fn parameter(f: &Fields) -> Result<String, String> {
    let v = line(f, "name")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:@*?[]/".contains(c);
    if v.chars().all(fits) { Ok(v) } else { Err(format!("'{v}' is no name of a parameter")) }
}

fn is_on(f: &Fields, name: &str) -> bool {
    f.get(name).is_some_and(|v| v == "on")
}

impl Action {
    /// What was typed, or what is wrong with it.
    pub fn order(&self, form: &Fields) -> Result<Order, String> {
        (self.make)(form)
    }

    /// What it is done to, for the audit: the fields in their order.
    pub fn object(&self, form: &Fields) -> String {
        let field = |f: &Field| form.get(f.name).map(|v| format!("{}={}", f.name, v.trim()));
        self.fields.iter().filter_map(field).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(all: &[(&str, &str)]) -> Fields {
        all.iter().map(|(n, v)| ((*n).to_string(), (*v).to_string())).collect()
    }

    #[test]
    fn what_was_typed_becomes_an_order_or_a_sentence() {
        let of = |name: &str, all: &[(&str, &str)]| find(name).unwrap().order(&fields(all));
        let start = of("lfsck-start", &[("target", " demo-MDT0000_UUID "), ("dry_run", "on")]);
        assert_eq!(start, Ok(Order::LfsckStart { target: "demo-MDT0000".into(), dry_run: true }));
        let param = of("set-param", &[("name", "osc.*.max_rpcs_in_flight"), ("value", "16")]);
        let want =
            Order::SetParam { name: "osc.*.max_rpcs_in_flight".into(), value: "16".into(), for_good: false };
        assert_eq!(param, Ok(want));
        for (name, all, why) in [
            ("lfsck-start", vec![("target", "demo-OST0000")], "no such target"),
            ("lfsck-start", vec![], "'target' is missing"),
            ("deactivate", vec![("target", "demo-OST0000; rm -rf /")], "is no target"),
            ("evict", vec![("target", "demo-OST0000"), ("client", "<script>")], "no client"),
            ("set-param", vec![("name", "a b"), ("value", "1")], "no name of a parameter"),
            ("set-param", vec![("name", "a.b"), ("value", "1\n2")], "no line"),
        ] {
            let said = of(name, &all).unwrap_err();
            assert!(said.contains(why), "{name}: {said}");
        }
        let object =
            find("evict").unwrap().object(&fields(&[("client", "x"), ("target", "y"), ("csrf", "s")]));
        assert_eq!(object, "target=y client=x", "what proves the form is not written down");
    }

    #[test]
    fn every_action_has_a_command_and_says_what_it_means() {
        for a in ACTIONS {
            assert!(a.about.ends_with('.') && a.command.starts_with("lctl "), "{}", a.name);
            assert_eq!(find(a.name).map(|f| f.title), Some(a.title));
        }
    }
}
