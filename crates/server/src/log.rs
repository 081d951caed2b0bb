//! Logs of the daemons: lines on standard error, which their starter points at a file.

use tracing_subscriber::EnvFilter;

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
