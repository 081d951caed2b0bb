//! The log's lines, on standard error: time, level, module, the id and class of an event, the message. Said
//! through a [`Throttle`]; events also go to the book that `nacre events` reads.

use super::throttle::{Held, Throttle, Turn};
use super::{keeper, now};
use admin::command::find::moment;
use model::Timestamp;
use model::events::{EVENTS, Kind};
use model::mutex::Mutex;
use std::fmt::{Debug, Write as _};
use std::io::Write as _;
use std::sync::LazyLock;
use std::time::Duration;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use world::sys;

/// Between two looks whether something that was held back is due.
pub(super) const TICK: Duration = Duration::from_secs(5);
/// What a message is about, if it is no event: so many bytes before its first colon at most.
const ABOUT_MAX_BYTES: usize = 60;

/// A message and what else it has.
#[derive(Default)]
pub(super) struct Fields {
    pub text: String,
    kind: Option<Kind>,
    about: String,
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "event" => self.kind = Kind::of_id(value),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let blank = if self.text.is_empty() { "" } else { " " };
        let _ = match field.name() {
            "message" => write!(self.text, "{blank}{value:?}"),
            "about" => write!(self.about, "{value:?}"),
            name => write!(self.text, "{blank}{name}={value:?}"),
        };
    }
}

/// What is counted together: the place in the code, or the kind of event, and the object.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    place: Identifier,
    kind: Option<Kind>,
    about: String,
    level: &'static Level,
    module: &'static str,
}

static THROTTLE: LazyLock<Mutex<Throttle<Key>>> = LazyLock::new(Mutex::default);

/// The layer.
pub(super) struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let meta = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { text, kind, about } = fields;
        let about = match kind {
            Some(_) => about,
            None => head(&text).to_string(),
        };
        let key = Key { place: meta.callsite(), kind, about, level: meta.level(), module: meta.target() };
        // What somebody asked for when he set NACRE_LOG is said in full.
        let is_asked_for = *meta.level() > Level::INFO;
        let turn = match is_asked_for {
            true => Turn::Say,
            false => THROTTLE.lock().turn(&key, sys::wall_nanos(), || text.clone()),
        };
        if turn == Turn::Say {
            say(&key, &text, 0);
        }
    }
}

/// What a message begins with.
fn head(text: &str) -> &str {
    text.split_once(": ").map(|(head, _)| head).filter(|h| h.len() <= ABOUT_MAX_BYTES).unwrap_or_default()
}

fn say(key: &Key, text: &str, more: u64) {
    let Timestamp { sec, nsec } = now();
    let time = moment::iso(sec);
    let mut line =
        format!("{}.{:06}Z {:>5} {}: ", time.trim_end_matches('Z'), nsec / 1000, key.level, key.module);
    if let Some(k) = key.kind {
        let _ = write!(line, "[{} {}] ", k.name(), k.class());
    }
    line.push_str(text);
    if more > 0 {
        let _ = write!(line, " (the last of {more} more like this)");
    }
    line.push('\n');
    // Nobody is left to hear that standard error does not take it.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
    if let Some(k) = key.kind {
        let level = match *key.level {
            Level::ERROR => "error",
            Level::WARN => "warning",
            _ => "info",
        };
        keeper::keep(EVENTS.keep(now(), k, level, &key.about, text, more));
    }
}

/// Says what was held back and is due; `all`: whatever there is.
pub(super) fn tell(all: bool) {
    let due = THROTTLE.lock().due(sys::wall_nanos(), all);
    for Held { key, number, last } in due {
        assert!(number > 0, "only what was held back is told of");
        say(&key, &last, number);
    }
}
