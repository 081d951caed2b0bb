//! `--component-add`, `--component-del`, `--component-set`: the components of a file that is there.

use super::options;
use crate::command::getstripe::parse_flags;
use crate::failure::Failure;
use crate::getopt::Parsed;
use crate::local::ask_about;
use crate::size::parse_int;
use client::control::Request;
use model::layout::{
    COMPONENT_EXTENSION, COMPONENT_FLAGS, COMPONENT_INIT, COMPONENT_OFFLINE, COMPONENT_USER_FLAGS,
    ComponentChange, ComponentFilter,
};
use model::{Errno, LayoutSpec};
use std::path::Path;

const VERBS: &[&str] = &["component-add", "component-del", "component-set"];

/// What is to become of the components; `None` if the options are about a whole layout.
pub fn change(p: &Parsed) -> Result<Option<ComponentChange>, Failure> {
    let verbs: Vec<&str> = VERBS.iter().copied().filter(|v| p.has(v)).collect();
    let about = ["component-id", "component-flags"].into_iter().find(|o| p.has(o));
    match (verbs.as_slice(), about) {
        ([], None) => Ok(None),
        ([], Some(o)) => {
            Err(Failure::usage(format!("--{o} is of a change: --component-del or --component-set")))
        }
        ([verb], _) => {
            let known = |o: &str| match *verb {
                "component-add" => options::is_of_component(o),
                _ => matches!(o, "component-id" | "component-flags"),
            };
            if let Some((o, _)) = p.options.iter().find(|(o, _)| o != verb && !known(o)) {
                return Err(Failure::usage(format!("--{o} cannot go with --{verb}")));
            }
            let change = match *verb {
                "component-add" => added(p),
                "component-del" => deleted(p),
                _ => marked(p),
            };
            change.map(Some)
        }
        _ => Err(Failure::usage("one of --component-add, --component-del, --component-set")),
    }
}

fn added(p: &Parsed) -> Result<ComponentChange, Failure> {
    if !p.has("component-end") {
        return Err(Failure::usage("--component-add needs the end of each new component: -E END"));
    }
    let (mdt, parts) = options::components(p)?;
    if mdt.is_some() {
        let why = "only the first component can lie on the MDT";
        return Err(Failure::explained("bad component", "-L mdt", Errno::EINVAL, why));
    }
    let mut spec = LayoutSpec::default();
    spec.set_components(&parts);
    spec.check().map_err(|e| {
        Failure::explained("impossible", "layout", e, "count, first OST and OST list contradict each other")
    })?;
    Ok(ComponentChange::Add(spec))
}

fn id(v: &str) -> Result<u32, Failure> {
    let n = parse_int(v).ok_or_else(|| Failure::usage(format!("bad value '{v}' of --component-id")))?;
    match u32::try_from(n) {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(Failure::explained("bad component id", v, Errno::EINVAL, "ids are numbers from 1 on")),
    }
}

fn deleted(p: &Parsed) -> Result<ComponentChange, Failure> {
    let choice = match (p.value("component-id"), p.value("component-flags")) {
        (Some(v), None) => ComponentFilter::Id(id(v)?),
        (None, Some(list)) => {
            let (with, without) = parse_flags(list)?;
            ComponentFilter::Flags { with, without }
        }
        _ => return Err(Failure::usage("--component-del needs -I ID or --component-flags FLAGS")),
    };
    Ok(ComponentChange::Delete(choice))
}

fn marked(p: &Parsed) -> Result<ComponentChange, Failure> {
    let (Some(v), Some(list)) = (p.value("component-id"), p.value("component-flags")) else {
        return Err(Failure::usage("--component-set needs -I ID and --component-flags FLAGS"));
    };
    let (set, clear) = parse_flags(list)?;
    if set & clear != 0 {
        return Err(Failure::usage(format!("'{list}' sets a flag and clears it")));
    }
    let refused = |&&(_, bit): &&(&str, u32)| (set | clear) & bit & !COMPONENT_USER_FLAGS != 0;
    if let Some((word, bit)) = COMPONENT_FLAGS.iter().find(refused) {
        let by_itself = COMPONENT_INIT | COMPONENT_EXTENSION | COMPONENT_OFFLINE;
        return Err(match bit & by_itself {
            0 => {
                let why = "not in this release: a file has one copy";
                Failure::explained("cannot set flag", word, Errno::EOPNOTSUPP, why)
            }
            _ => Failure::explained("cannot set flag", word, Errno::EINVAL, "servers set and clear it"),
        });
    }
    Ok(ComponentChange::Flags { id: id(v)?, set, clear })
}

/// Components for a file without a layout are its layout.
pub fn one(path: &Path, change: &ComponentChange) -> Result<(), Failure> {
    let what = match change {
        ComponentChange::Add(_) => "cannot add components to",
        ComponentChange::Delete(_) => "cannot delete components of",
        ComponentChange::Flags { .. } => "cannot set component flags of",
    };
    let request = |name| Request::Components { name, change: change.clone() };
    match (ask_about(path, what, request), change) {
        (Err(Failure::Op { errno: Errno::ENODATA, .. }), ComponentChange::Add(spec)) => {
            let request = |name| Request::Setstripe { name, spec: Some(spec.clone()) };
            ask_about(path, what, request).map(|_| ())
        }
        (r, _) => r.map(|_| ()),
    }
}
