//! Hosts as commands are given them: by address or by name.

use crate::failure::Failure;
use model::nid::parse_nid_list;
use model::{Errno, HostNid, Nid};
use world::World;

/// The addresses that these have now. A name that leads nowhere is an error, unless another host is left.
pub fn addresses(world: &World, hosts: &[HostNid]) -> Result<Vec<Nid>, Failure> {
    let found = world::block_on(rpc::look_up(world, hosts));
    if let (true, Some((host, why))) = (found.nids.is_empty(), found.unknown.first()) {
        return Err(Failure::explained("cannot find", &host.to_string(), Errno::ENOENT, why));
    }
    for (host, why) in &found.unknown {
        eprintln!("warning: {host} is passed over: {why}");
    }
    Ok(found.nids)
}

/// Those of a list as it is typed.
pub fn typed(world: &World, text: &str) -> Result<Vec<Nid>, Failure> {
    let hosts =
        parse_nid_list(text).map_err(|e| Failure::Op { text: e.to_string(), errno: Errno::EINVAL })?;
    addresses(world, &hosts)
}
