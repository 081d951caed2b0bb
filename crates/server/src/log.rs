//! Logs of the daemons: lines on standard error, which their starter points at a file.

use std::path::Path;
use tracing_subscriber::EnvFilter;
use world::sys::files;

/// Lines of a log that are shown when its daemon ended.
const SHOWN: usize = 8;

/// Level by `NACRE_LOG` (`info` unless it says otherwise; targets as in `rpc=debug`).
pub fn start() {
    let filter = EnvFilter::try_from_env("NACRE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(true)
        .try_init();
}

/// The end of a daemon's log, indented, each line with a line break before it.
pub fn last_lines(log: &Path) -> String {
    let text = files::read(log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].iter().map(|l| format!("\n    {l}")).collect()
}
