//! docs/ha.md is true.

use anyhow::{Context, Result};
use std::time::Duration;
use tests::cluster::wait_until;
use tests::machines::on;
use tests::page::Page;

const LIMIT: Duration = Duration::from_secs(180);
const PAGE: &str = include_str!("../../../docs/ha.md");
/// What is behind it is another way to the same, on other hosts.
const ETCD: &str = "\n## With etcd\n";

#[test]
fn the_page_on_high_availability_is_true() -> Result<()> {
    let page = Page::boot(&["oss1", "oss2"])?;
    let (text, _) = PAGE.split_once(ETCD).context("a part on etcd")?;
    page.follow(text, |page, commands, screen| {
        if commands.contains("cib-push") {
            // This machine is two hosts and whatever else it does: Pacemaker would wait for it to calm down.
            on(&page.machines, 1, "pcs property set load-threshold=1000%", LIMIT)?;
        }
        if commands.contains("enable --now") {
            wait_until("both hosts are members", LIMIT, || {
                *screen = on(&page.machines, 1, "crm_mon -1", LIMIT).unwrap_or_default();
                screen.contains("Online: [ oss1 oss2 ]")
            })?;
        }
        Ok(())
    })
}

#[test]
fn the_page_on_high_availability_with_etcd_is_true() -> Result<()> {
    let page = Page::boot(&["server1", "server2", "server3"])?;
    let (_, text) = PAGE.split_once(ETCD).context("a part on etcd")?;
    page.follow(text, |_, _, _| Ok(()))
}
