//! Spans: how one operation of a program becomes requests, these work at servers, and that calls to disks,
//! each with its beginning and its end. Each goes to the debug log as a message of the type `spans`, if
//! somebody wants that; `nacre trace --otlp` makes traces of them.
//!
//! What runs within a span is known by who is polled: [`Span::around`] says it for a future, and calls to
//! disks ask ([`current`]). What is handed to another task is no part of it.

use crate::World;
use model::debug::SPANS;
use model::span::{Finished, Kind};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;

/// Where in a trace somebody is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// The same for all spans of an operation; never 0.
    pub trace: u64,
    /// The span that what follows is a part of; never 0.
    pub span: u64,
}

thread_local! {
    static NOW: Cell<Option<At>> = const { Cell::new(None) };
}

/// Whether somebody wants spans of this process.
pub fn wanted() -> bool {
    tracing::enabled!(target: SPANS, tracing::Level::DEBUG)
}

/// Where whoever is polled is; `None`: in no trace, or nobody wants to know.
pub fn current() -> Option<At> {
    NOW.get()
}

/// Puts back what was, also when the future panics.
struct Restore(Option<At>);

impl Drop for Restore {
    fn drop(&mut self) {
        NOW.set(self.0);
    }
}

/// Calls `f` as a part of a span.
pub fn inside<T>(at: Option<At>, f: impl FnOnce() -> T) -> T {
    let _restore = Restore(NOW.replace(at));
    f()
}

/// Waits for `f`, as a span of whoever is polled: for what another task does to a disk for him.
pub async fn waited<T>(world: &World, name: &str, f: impl Future<Output = T>) -> T {
    let span = current().map(|at| Span::part(world, at, Kind::Disk, name.into()));
    let done = f.await;
    if let Some(s) = span {
        s.end(world, "ok");
    }
    done
}

/// One that has begun.
pub struct Span {
    /// Its own place.
    pub at: At,
    parent: u64,
    kind: Kind,
    name: String,
    begun: u128,
}

/// The path of a function without the types that it is for: `store::object::submit::run`.
fn plain(type_name: &str) -> String {
    let mut depth = 0usize;
    let mut out = String::new();
    for c in type_name.replace("::{{closure}}", "").chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out.replace("::::", "::")
}

/// Not 0, which stands for none.
fn id(world: &World) -> u64 {
    world.random_u64() | 1
}

fn nanos(world: &World) -> u128 {
    let t = world.wall();
    u128::try_from(t.sec).unwrap_or(0) * 1_000_000_000 + u128::from(t.nsec)
}

impl Span {
    /// The first of a trace.
    pub fn root(world: &World, kind: Kind, name: String) -> Span {
        let trace = id(world);
        Span { at: At { trace, span: trace }, parent: 0, kind, name, begun: nanos(world) }
    }

    /// A part of another one, which may be another host's.
    pub fn part(world: &World, of: At, kind: Kind, name: String) -> Span {
        assert!(of.trace != 0 && of.span != 0, "0 is no trace and no span");
        let at = At { trace: of.trace, span: id(world) };
        Span { at, parent: of.span, kind, name, begun: nanos(world) }
    }

    /// A call to the host, named by the code that makes it.
    pub(crate) fn part_of_code<F>(world: &World, of: At) -> Span {
        Span::part(world, of, Kind::Disk, plain(std::any::type_name::<F>()))
    }

    /// Runs `f` as what happens at this place; `None`: in no trace.
    pub async fn around<F: Future>(at: Option<At>, f: F) -> F::Output {
        let mut f = pin!(f);
        std::future::poll_fn(move |cx| inside(at, || f.as_mut().poll(cx))).await
    }

    /// It is over; `status` is `ok` or the words of an errno.
    pub fn end(self, world: &World, status: &str) {
        let Span { at, parent, kind, name, begun } = self;
        // A clock that was set back gives no negative time.
        let end = nanos(world).max(begun);
        let done = Finished {
            trace: at.trace,
            span: at.span,
            parent,
            kind,
            name,
            begun,
            end,
            status: status.into(),
        };
        tracing::debug!(target: SPANS, "{}", done.text());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::future::{Either, give_way, select};

    #[test]
    fn whoever_is_polled_knows_where_he_is_and_nobody_else_does() {
        let [a, b] = [1, 2].map(|n| At { trace: n, span: n });
        let one = |at: At| {
            Span::around(Some(at), async move {
                for _ in 0..3 {
                    assert_eq!(current(), Some(at));
                    give_way().await;
                }
                assert_eq!(Span::around(None, async { current() }).await, None);
                assert_eq!(inside(Some(b), current), Some(b));
                current()
            })
        };
        let both = async {
            let first = select(one(a), async {
                loop {
                    assert_eq!(current(), None);
                    give_way().await;
                }
            });
            match first.await {
                Either::Left(at) => at,
                Either::Right(()) => None,
            }
        };
        assert_eq!(crate::block_on(both), Some(a));
        assert_eq!(current(), None);
    }

    #[test]
    fn calls_are_named_by_the_function_that_makes_them() {
        let long = "store::object::submit::<impl store::object::Objects>::run<model::attr::ObjectAttr, u8>::{{closure}}::{{closure}}";
        assert_eq!(plain(long), "store::object::submit::run");
        assert_eq!(plain("a::b"), "a::b");
    }

    #[test]
    fn nobody_is_anywhere_after_a_panic() {
        let at = At { trace: 3, span: 3 };
        let gone = std::panic::catch_unwind(|| inside(Some(at), || panic!("as if")));
        assert!(gone.is_err());
        assert_eq!(current(), None);
    }
}
