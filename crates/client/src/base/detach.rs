//! Work that must reach its end although its caller may stop waiting.
//!
//! A system call that is interrupted drops its future at any await. What must not be left half done (an open
//! whose handle would leak, a write that holds a lock) runs as a [`Detached`]: polled by the caller as long
//! as there is one, which costs no hand-over between threads, and moved to a task of its own when it is
//! dropped.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use world::{BoxFuture, World};

type Cleanup<T> = Box<dyn FnOnce(T) -> BoxFuture<()> + Send>;

pub(crate) struct Detached<T: Send + 'static> {
    world: World,
    name: &'static str,
    work: Option<BoxFuture<T>>,
    /// Takes back what the work brought when nobody waits for it any more.
    cleanup: Option<Cleanup<T>>,
}

impl<T: Send + 'static> Unpin for Detached<T> {}

impl<T: Send + 'static> Detached<T> {
    /// `cleanup` gets the result if the caller went away before it was there.
    pub(crate) fn new(
        world: &World,
        name: &'static str,
        work: impl Future<Output = T> + Send + 'static,
        cleanup: impl FnOnce(T) -> BoxFuture<()> + Send + 'static,
    ) -> Detached<T> {
        Detached { world: world.clone(), name, work: Some(Box::pin(work)), cleanup: Some(Box::new(cleanup)) }
    }

    /// Work whose result needs no cleaning up.
    pub(crate) fn plain(
        world: &World,
        name: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Detached<T> {
        Detached { world: world.clone(), name, work: Some(Box::pin(work)), cleanup: None }
    }
}

impl<T: Send + 'static> Future for Detached<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let work = self.work.as_mut().expect("polled again after it was ready");
        match work.as_mut().poll(cx) {
            Poll::Ready(v) => {
                self.work = None;
                Poll::Ready(v)
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: Send + 'static> Drop for Detached<T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        let cleanup = self.cleanup.take();
        self.world.spawn(self.name, async move {
            let v = work.await;
            if let Some(c) = cleanup {
                c(v).await;
            }
        });
    }
}
