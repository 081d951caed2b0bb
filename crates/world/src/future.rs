//! Small futures that need no executor.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

pub enum Either<A, B> {
    Left(A),
    Right(B),
}

/// Whichever is ready first, the left one if both are; the other is dropped. Polls in a fixed order, so
/// that a simulation repeats.
pub async fn select<A, B>(
    a: impl Future<Output = A> + Send,
    b: impl Future<Output = B> + Send,
) -> Either<A, B> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(v) = a.as_mut().poll(cx) {
            return Poll::Ready(Either::Left(v));
        }
        if let Poll::Ready(v) = b.as_mut().poll(cx) {
            return Poll::Ready(Either::Right(v));
        }
        Poll::Pending
    })
    .await
}

/// All results, in order; runs the futures concurrently on the caller's task.
pub async fn join_all<T: Send>(futures: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> Vec<T> {
    let mut slots: Vec<(Option<T>, _)> = futures.into_iter().map(|f| (None, f)).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for (out, f) in &mut slots {
            if out.is_none() {
                match f.as_mut().poll(cx) {
                    Poll::Ready(v) => *out = Some(v),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    slots.into_iter().map(|(v, _)| v.expect("all are ready")).collect()
}

/// Other tasks that are ready go first.
pub async fn give_way() {
    let mut has_waited = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Both results; runs the futures concurrently on the caller's task, the left one first.
pub async fn join<A: Send, B: Send>(
    a: impl Future<Output = A> + Send,
    b: impl Future<Output = B> + Send,
) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut left, mut right) = (None, None);
    std::future::poll_fn(|cx| {
        if left.is_none()
            && let Poll::Ready(v) = a.as_mut().poll(cx)
        {
            left = Some(v);
        }
        if right.is_none()
            && let Poll::Ready(v) = b.as_mut().poll(cx)
        {
            right = Some(v);
        }
        if left.is_some() && right.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (left.expect("it is ready"), right.expect("it is ready"))
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls `f` on this thread until it is ready.
pub fn block_on<T>(f: impl Future<Output = T>) -> T {
    // One loop is compiled for each type of result, not for each future.
    let mut f: Pin<&mut dyn Future<Output = T>> = pin!(f);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(v) = f.as_mut().poll(&mut cx) {
            return v;
        }
        std::thread::park();
    }
}

/// Polls `f` on this thread for at most `patience` of real time. Whether it is ready.
#[allow(clippy::disallowed_methods)] // the production side of the boundary: real time, real thread
pub(crate) fn block_on_for(mut f: Pin<&mut (dyn Future<Output = ()> + Send)>, patience: Duration) -> bool {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let end = std::time::Instant::now() + patience;
    loop {
        if let Poll::Ready(()) = f.as_mut().poll(&mut cx) {
            return true;
        }
        let left = end.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return false;
        }
        std::thread::park_timeout(left);
    }
}
