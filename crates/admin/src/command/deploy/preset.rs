//! `nacre deploy preset`: files to begin with. They are those of `deploy/examples/clusters`.

use crate::failure::Failure;
use crate::getopt::Parsed;
use crate::{local, put, say};
use model::Errno;

/// Name, what it is, and the file.
pub const ALL: [(&str, &str, &str); 4] = [
    (
        "laptop",
        "everything on this host",
        include_str!("../../../../../deploy/examples/clusters/laptop.toml"),
    ),
    (
        "brick",
        "two servers that stand in for each other, 6 OSTs",
        include_str!("../../../../../deploy/examples/clusters/brick.toml"),
    ),
    (
        "grid-site",
        "a pair of metadata servers, 20 object servers of unequal size",
        include_str!("../../../../../deploy/examples/clusters/grid-site.toml"),
    ),
    (
        "wide",
        "336 small OSTs on 14 servers",
        include_str!("../../../../../deploy/examples/clusters/wide.toml"),
    ),
];

/// The verb.
pub fn run(p: &Parsed) -> Result<i32, Failure> {
    match p.operands.as_slice() {
        [] => ALL.iter().for_each(|(name, what, _)| say!("{name:<10} {what}")),
        [name] => {
            let name = local::show(name);
            let Some((.., text)) = ALL.iter().find(|(n, ..)| *n == name) else {
                let names: Vec<&str> = ALL.iter().map(|(n, ..)| *n).collect();
                let why = format!("there are {}", names.join(", "));
                return Err(Failure::explained("no such preset", &name, Errno::EINVAL, &why));
            };
            put!("{text}");
        }
        _ => return Err(Failure::usage("name one preset")),
    }
    Ok(0)
}
