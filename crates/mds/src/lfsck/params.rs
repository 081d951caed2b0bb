//! Parameters of the check: `mdd.FSNAME-MDT0000.lfsck_*`.

use super::state::{Component, Order, SPEED_MAX};
use crate::mdt::Mdt;
use model::Errno;
use model::param::{Decl, Param, Scope, Table};

fn is_order(text: &str) -> Result<(), Errno> {
    Order::parse(text).map(drop).ok_or(Errno::EINVAL)
}

pub static LFSCK: Table<Mdt> = Table {
    scopes: &[Scope::Mdd],
    params: &[
        Param::settable(
            Decl::order(
                "lfsck",
                is_order,
                "what was found lately, a line of JSON each; written (lctl lfsck_start, lfsck_stop): start [namespace] [layout] [dryrun] [orphan] [create_ostobj] [create_mdtobj] [failout] [reset] [speed=N], or stop",
            )
            .until_restart(),
            |m, ()| m.shared.lfsck.problems().into(),
            |m, (), v| {
                let order = Order::parse(v.text).ok_or(Errno::EINVAL)?;
                m.shared.lfsck.order(order, m.world.wall())
            },
        ),
        Param::shown(
            Decl::text("lfsck_namespace", "how the check of names and inodes stands, and what it found"),
            |m, ()| text(m, Component::Namespace).into(),
        ),
        Param::shown(
            Decl::text("lfsck_layout", "how the check of objects against layouts stands, and what it found"),
            |m, ()| text(m, Component::Layout).into(),
        ),
        Param::atomic(
            Decl::number(
                "lfsck_speed_limit",
                (0, SPEED_MAX),
                "records/s",
                0,
                "so many records a check looks at in a second, at most, from now on; 0: no bound",
            ),
            0,
            |m, ()| &m.shared.lfsck.speed,
        ),
    ],
};

fn text(m: &Mdt, c: Component) -> String {
    m.shared.lfsck.state().text(c, m.world.wall().sec)
}
