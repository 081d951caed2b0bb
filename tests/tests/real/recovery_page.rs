//! docs/recovery.md is true.

use anyhow::Result;
use tests::machines::lock;
use tests::page::Page;

const PAGE: &str = include_str!("../../../docs/recovery.md");

#[test]
fn the_page_on_recovery_is_true() -> Result<()> {
    let page = Page::boot(&["meta", "oss1", "oss2", "login"])?;
    page.follow(PAGE, |page, commands, _| {
        // All hosts have one kernel here, and with it locks that no other host would know of.
        if commands.contains("lctl --device demo-MDT0000 abort_recovery") {
            lock(&page.machines).forget_locks_of(2, false)?;
        }
        if commands.contains("pkill -STOP -f 'nacred") {
            lock(&page.machines).forget_locks_of(2, true)?;
        }
        Ok(())
    })
}
