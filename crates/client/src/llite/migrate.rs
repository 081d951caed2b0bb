//! migrate: a file's data moves to new objects while it is in use.

use crate::base::Detached;
use crate::mdc::Mdc;
use crate::stats::Verb;
use crate::{Admin, Call, Fs, R};
use model::{Errno, Fid, Layout, LayoutSpec};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::msg::migrate::{Migrate, Pace};
use wire::msg::withdraw::Withdraw;
use world::BoxFuture;

/// Movements of one mount that its server knows of: others wait here. Each has a slot of the session as long
/// as it lasts, and most slots are for what programs do.
pub(crate) const MOVEMENTS_AT_ONCE: usize = 16;
/// A server where too many wait is asked again after so long.
const FULL_PAUSE: Duration = Duration::from_secs(1);
/// A movement that was given up and that the server does not know yet is withdrawn again after so long.
const WITHDRAW_PAUSE: Duration = Duration::from_secs(1);

impl Admin<'_> {
    /// As [`Admin::migrate_at`], at the servers' own pace.
    pub fn migrate(self, call: Call, fid: Fid, spec: LayoutSpec) -> BoxFuture<R<Layout>> {
        self.migrate_at(call, fid, spec, Pace::default())
    }

    /// The file's new layout, as `spec` asks for it; what that does not say is as with a new file. Waits for
    /// its turn among those that are moved; who stops waiting ends it. `EPERM` for who neither owns the file
    /// nor is root, `ENODATA` for a file without a layout, `EBUSY` if others do not let go of it or, at a
    /// pace that lets nobody wait, use it.
    pub fn migrate_at(self, call: Call, fid: Fid, spec: LayoutSpec, pace: Pace) -> BoxFuture<R<Layout>> {
        let fs = self.0.clone();
        Box::pin(async move {
            fs.cx.writable()?;
            spec.check()?;
            let _place = fs.movements.acquire().await.map_err(|_| Errno::ESHUTDOWN)?;
            loop {
                match one_try(&fs, &call, (fid, &spec), pace).await {
                    Err(Errno::EAGAIN) => fs.cx.world.sleep(FULL_PAUSE).await,
                    r => return r,
                }
            }
        })
    }
}

/// `EAGAIN`: too many wait at the server.
async fn one_try(fs: &Arc<Fs>, call: &Call, (fid, spec): (Fid, &LayoutSpec), pace: Pace) -> R<Layout> {
    let mdc = fs.lmv.mdc_of(fid).await?;
    let (ticket, over) = (fs.cx.world.random_u64(), Arc::<AtomicBool>::default());
    let (here, ctx, ends, of) = (fs.clone(), fs.cx.of(call), over.clone(), mdc.clone());
    let msg = Migrate { fid, spec: spec.clone(), ticket, pace };
    let work = async move {
        let change = of.changing_inode(fid);
        // From here on no page is filled under the lease, which does not cover objects.
        here.lmv.sweep_small(fid).await;
        // Past the turns of requests: it lasts too long to keep others from theirs.
        let r = of.target.call_now(ctx, msg, bytes::Bytes::new()).await.map(|r| r.reply);
        ends.store(true, Ordering::Relaxed);
        change.done_with(&r);
        here.meta.opens.learn_layout(fid, r)
    };
    // What has not begun is not done if the caller goes, and there is nothing to withdraw.
    let begun = async {
        fs.cx.writable()?;
        let _wanted = Wanted { fs: fs.clone(), mdc, ticket, over };
        Detached::plain(&fs.cx.world, "client-migrate", work).await
    };
    fs.run(Verb::Layout, begun).await
}

/// Somebody waits for a movement. Withdraws it if it is not over when nobody does any more.
struct Wanted {
    fs: Arc<Fs>,
    mdc: Arc<Mdc>,
    ticket: u64,
    over: Arc<AtomicBool>,
}

impl Drop for Wanted {
    fn drop(&mut self) {
        if self.over.load(Ordering::Relaxed) {
            return;
        }
        let (fs, mdc, over, ticket) = (self.fs.clone(), self.mdc.clone(), self.over.clone(), self.ticket);
        self.fs.cx.world.spawn("client-withdraw", async move {
            // It may be on its way still. The request for it ends with it, or with the session.
            while !over.load(Ordering::Relaxed) {
                match mdc.target.call(fs.cx.own(), Withdraw { ticket }).await {
                    Ok(false) => fs.cx.world.sleep(WITHDRAW_PAUSE).await,
                    _ => break,
                }
            }
        });
    }
}
