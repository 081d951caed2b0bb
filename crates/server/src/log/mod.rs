//! Logs of the daemons: lines on standard error, which their starter points at a file, the debug log that
//! they keep in memory (`model::debug`), and their events (`model::events`).

mod keeper;
mod lines;
mod throttle;

pub use keeper::keep_in;

use lines::{Fields, Lines};
use model::Timestamp;
use model::debug::{ALWAYS, DEBUG, DebugAnswer, DebugOrder, Message, TYPES, type_names};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};
use world::sys::{self, files};

/// Lines of a log that are shown when its daemon ended.
const SHOWN: usize = 8;
/// Between two looks whether somebody follows the debug log still.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Level by `NACRE_LOG` (`info` unless it says otherwise; targets as in `rpc=debug`).
pub fn start() {
    let wanted = std::env::var("NACRE_LOG").ok().map(|v| v.parse::<Targets>());
    let levels = match &wanted {
        Some(Ok(levels)) => levels.clone(),
        _ => Targets::new().with_default(LevelFilter::INFO),
    };
    let (kept, chosen) = reload::Layer::new(of_types(0));
    let started =
        Registry::default().with(Lines.with_filter(levels)).with(DebugLog.with_filter(kept)).try_init();
    if started.is_ok() {
        let reload = move |targets: Targets| {
            if let Err(e) = chosen.reload(targets) {
                tracing::error!("the debug log keeps other messages than it is to: {e}");
            }
        };
        let _ = CHOOSE.set(Box::new(reload));
        DEBUG.on_change(choose);
        keeper::start();
    }
    if let Some(Err(e)) = wanted {
        tracing::warn!("NACRE_LOG is not understood, so it is taken for 'info': {e}");
    }
}

/// Gives the debug log other messages.
type Choose = Box<dyn Fn(Targets) + Send + Sync>;

static CHOOSE: OnceLock<Choose> = OnceLock::new();

fn choose(types: u32) {
    if let Some(f) = CHOOSE.get() {
        f(of_types(types));
    }
}

/// What logs say, and messages of these types.
fn of_types(types: u32) -> Targets {
    let on = type_names().enumerate().filter(|(i, _)| types >> i & 1 == 1);
    let all = Targets::new().with_default(LevelFilter::INFO);
    // A type's name may be the beginning of another target's: a type that is off has a line, too.
    let off = type_names().map(|n| (n, LevelFilter::OFF));
    all.with_targets(off).with_targets(on.map(|(_, n)| (n, LevelFilter::TRACE)))
}

/// Gives messages to the debug log.
struct DebugLog;

impl<S: Subscriber> Layer<S> for DebugLog {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let meta = event.metadata();
        let named = TYPES.iter().map(|(n, _)| *n).find(|n| *n == meta.target());
        let kind = named.unwrap_or(match *meta.level() {
            Level::ERROR => ALWAYS[0],
            Level::WARN => ALWAYS[1],
            _ => ALWAYS[2],
        });
        let mut fields = Fields::default();
        event.record(&mut fields);
        let file = meta.file().unwrap_or_default();
        let place = format!("{}:{}", file.rsplit('/').next().unwrap_or_default(), meta.line().unwrap_or(0));
        let module = meta.module_path().unwrap_or_default();
        DEBUG.keep(Message { at: now(), kind, module, place, text: fields.text });
    }
}

fn now() -> Timestamp {
    let nanos = sys::wall_nanos();
    Timestamp { sec: (nanos / 1_000_000_000) as i64, nsec: (nanos % 1_000_000_000) as u32 }
}

/// Answers what an administrator asks of this process's debug log.
pub fn answer(order: DebugOrder) -> DebugAnswer {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    let follows = matches!(order, DebugOrder::Read { follow, .. } if follow != 0);
    let answer = DEBUG.order(order, now());
    if follows && !WATCHED.swap(true, Ordering::AcqRel) {
        let watch = || {
            while DEBUG.expire(sys::wall_seconds()) {
                sys::sleep(LOOK_AGAIN);
            }
            WATCHED.store(false, Ordering::Release);
        };
        if let Err(e) = sys::thread("debug-log", watch) {
            WATCHED.store(false, Ordering::Release);
            tracing::warn!("messages that somebody follows are kept until somebody else follows: {e}");
        }
    }
    answer
}

/// Says what was held back, before the process ends.
pub fn flush() {
    lines::tell(true);
}

/// The end of a daemon's log, indented, each line with a line break before it.
pub fn last_lines(log: &Path) -> String {
    let text = files::read(log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].iter().map(|l| format!("\n    {l}")).collect()
}
