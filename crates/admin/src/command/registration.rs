//! `lctl registration`: what the MGS knows of a target, and setting it right; on the MGS node. `lctl
//! replace_nids` is the part of it that Lustre has.

use crate::failure::{Failure, FirstError};
use crate::hosts;
use crate::local::{self, Daemon, DaemonReply, DaemonRequest};
use crate::say;
use mgs::registration::Order;
use model::nid::parse_nid_list;
use model::{Errno, HostNid, Nid};
use std::ffi::OsString;

pub const USAGE: &str =
    "TARGET [replace | no-replace | new-key | epoch N | nids NID[,NID]... | remove]   (on the MGS node)";
pub const USAGE_NIDS: &str = "TARGET NID[,NID]...   (on the MGS node)";

/// The addresses of hosts whose names are given: the configuration has no names.
fn nids(text: &str) -> Result<Order, Failure> {
    let hosts = parse_nid_list(text).map_err(|e| Failure::usage(e.to_string()))?;
    let known: Option<Vec<Nid>> = hosts.iter().map(HostNid::address).collect();
    if let Some(all) = known {
        return Ok(Order::Nids(all));
    }
    let (world, _runtime) = world::real::start(1).map_err(|e| Failure::io("cannot start", "runtime", e))?;
    hosts::addresses(&world, &hosts).map(Order::Nids)
}

fn order(words: &[String]) -> Result<Order, Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Ok(match words.as_slice() {
        [] => Order::Show,
        ["replace"] => Order::Open,
        ["no-replace"] => Order::Close,
        ["new-key"] => Order::NewKey,
        ["epoch", n] => {
            Order::Epoch(n.parse().map_err(|_| Failure::usage(format!("'{n}' is no epoch: a number")))?)
        }
        ["nids", list] => nids(list)?,
        ["remove"] => Order::Remove,
        other => return Err(Failure::usage(format!("'{}' is none of its orders", other.join(" ")))),
    })
}

/// Has the MGS do it, which must run on this host; what it says of the target afterwards. `ENODEV`: there is
/// no such target, or no MGS here.
pub(super) fn order_mgs(target: &str, order: &Order) -> Result<String, Failure> {
    // The active one answers.
    let mut last = None;
    for d in Daemon::of_mgs() {
        let asked = DaemonRequest::Registration { target: target.to_string(), order: order.clone() };
        match d.ask_if_there(&asked)? {
            None => {}
            Some(DaemonReply::Text(t)) => return Ok(t),
            Some(DaemonReply::Error { errno, message }) => last = Some((errno, message)),
            Some(_) => last = Some((Errno::EPROTO.0, "its answer is none".to_string())),
        }
    }
    let nowhere = || {
        let (errno, why) = local::no_mgs();
        (errno.0, why.to_string())
    };
    let (errno, why) = last.unwrap_or_else(nowhere);
    Err(Failure::explained("cannot look at, or change, the registration of", target, Errno(errno), &why))
}

fn give(target: &str, order: &Order) -> Result<FirstError, Failure> {
    say!("{}", order_mgs(target, order)?.trim_end());
    Ok(FirstError::default())
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let words: Vec<String> = args.iter().map(|a| local::show(a)).collect();
    let Some((target, rest)) = words.split_first() else {
        return Err(Failure::usage("no target given, for example demo-OST0003"));
    };
    give(target, &order(rest)?)
}

pub fn run_nids(args: &[OsString]) -> Result<FirstError, Failure> {
    match args {
        [target, list] => give(&local::show(target), &nids(&local::show(list))?),
        _ => Err(Failure::usage("a target and its NIDs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_as_they_are_typed() {
        let said = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_string).collect();
            order(&words).ok()
        };
        assert_eq!(said(""), Some(Order::Show));
        assert_eq!(said("replace"), Some(Order::Open));
        assert_eq!(said("epoch 7"), Some(Order::Epoch(7)));
        let two = vec!["10.0.0.1@tcp".parse().unwrap(), "10.0.0.2@tcp".parse().unwrap()];
        assert_eq!(said("nids 10.0.0.1@tcp,10.0.0.2@tcp"), Some(Order::Nids(two)));
        for wrong in ["epoch", "epoch x", "nids no/where", "replace it", "remove all"] {
            assert_eq!(said(wrong), None, "{wrong}");
        }
    }
}
