//! What the programs under test say, in the log of a run, beside what the experimenter did.

use crate::executor::Handle;
use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// Messages of servers and clients go to the log of `sim`, with their node and the virtual time, until this
/// is dropped.
pub(crate) fn keep(sim: &Handle) -> DefaultGuard {
    tracing::subscriber::set_default(Said(sim.clone()))
}

struct Said(Handle);

impl Subscriber for Said {
    fn enabled(&self, m: &Metadata<'_>) -> bool {
        *m.level() <= Level::INFO && m.is_event()
    }

    fn event(&self, e: &Event<'_>) {
        let mut text = Text::default();
        e.record(&mut text);
        self.0.said(&e.metadata().level().to_string(), &text.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The message, and its fields as `name=value`.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a `String` cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
