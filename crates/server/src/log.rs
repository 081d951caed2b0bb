//! Logs of the daemons: lines on standard error, which their starter points at a file.

use std::path::Path;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use world::sys::files;

/// Lines of a log that are shown when its daemon ended.
const SHOWN: usize = 8;

/// Level by `NACRE_LOG` (`info` unless it says otherwise; targets as in `rpc=debug`).
pub fn start() {
    let wanted = std::env::var("NACRE_LOG").ok().map(|v| v.parse::<Targets>());
    let levels = match &wanted {
        Some(Ok(levels)) => levels.clone(),
        _ => Targets::new().with_default(LevelFilter::INFO),
    };
    let _ = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(true)
        .finish()
        .with(levels)
        .try_init();
    if let Some(Err(e)) = wanted {
        tracing::warn!("NACRE_LOG is not understood, so it is taken for 'info': {e}");
    }
}

/// The end of a daemon's log, indented, each line with a line break before it.
pub fn last_lines(log: &Path) -> String {
    let text = files::read(log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].iter().map(|l| format!("\n    {l}")).collect()
}
