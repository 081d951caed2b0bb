//! How far the movement of a file is, while it is under way: on a terminal, or as lines of `--stats`.

use crate::command::movements::Movement;
use crate::failure::Failure;
use crate::live::ProgressLine;
use crate::local::ask_about;
use crate::output;
use crate::say;
use crate::size::human;
use client::control::{Name, Reply, Request};
use model::mutex::Mutex;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use world::sys;

/// Between two looks at whether it is over.
const TICK: Duration = Duration::from_millis(50);
/// Ticks between two looks at how far it is, on a terminal.
const TICKS: u64 = 10;
const TICKS_OF_A_SECOND: u64 = 20;

pub struct Progress {
    line: ProgressLine,
    /// Seconds between two lines of `--stats`.
    stats: Option<u64>,
}

impl Progress {
    pub fn new(stats: Option<u64>) -> Progress {
        Progress { line: ProgressLine::for_terminal(false), stats }
    }

    /// Makes a request about a file and shows how far it is meanwhile.
    pub fn beside(
        &self,
        path: &Path,
        request: impl Fn(Option<Name>) -> Request + Sync,
    ) -> Result<(), Failure> {
        let ask = || ask_about(path, "cannot migrate", &request).map(|_| ());
        if !self.line.is_shown() && self.stats.is_none() {
            return ask();
        }
        let (over, result) = (AtomicBool::new(false), Mutex::new(None));
        sys::together(2, |n| {
            if n == 0 {
                *result.lock() = Some(ask());
                over.store(true, Relaxed);
            } else {
                self.watch(path, &over);
            }
        });
        self.line.show(String::new);
        result.into_inner().expect("it was asked")
    }

    fn watch(&self, path: &Path, over: &AtomicBool) {
        let mut ticks = 0;
        while !over.load(Relaxed) {
            sys::sleep(TICK);
            ticks += 1;
            let of_stats = self.stats.is_some_and(|s| ticks % (s * TICKS_OF_A_SECOND) == 0);
            let of_line = self.line.is_shown() && ticks % TICKS == 0;
            if !of_stats && !of_line {
                continue;
            }
            let Some(m) = look(path) else { continue };
            if of_line {
                self.line.show(|| format!("{}: {}", path.display(), words(&m)));
            }
            if of_stats && !over.load(Relaxed) {
                say!("{}", stats(&m, ticks / TICKS_OF_A_SECOND));
                output::flush();
            }
        }
    }
}

/// Nothing is said if it cannot be seen: what goes wrong the movement itself tells.
fn look(path: &Path) -> Option<Movement> {
    match ask_about(path, "cannot look at", |name| Request::Movement { name }) {
        Ok(Reply::Params(lines)) => lines.first().and_then(|(_, line)| Movement::parse(line)),
        _ => None,
    }
}

fn words(m: &Movement) -> String {
    match m.state.as_str() {
        "waiting" => "waits for its turn".to_string(),
        _ => format!("{} of {} ({}%)", human(m.done, 1024), human(m.total, 1024), m.percent()),
    }
}

/// As Lustre prints it: MiB, and MiB a second since the beginning.
fn stats(m: &Movement, seconds: u64) -> String {
    let (copied, size) = (m.done >> 20, m.total >> 20);
    let rate = copied / seconds.max(1);
    let pct = m.percent();
    format!(
        "- {{ seconds: {seconds}, rmbps: {rate}, wmbps: {rate}, copied: {copied}, size: {size}, pct: {pct}% }}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stats_is_yaml_as_lustre_prints_it() {
        let m = Movement { done: 605 << 20, total: 1 << 30, ..Movement::default() };
        let line = "- { seconds: 5, rmbps: 121, wmbps: 121, copied: 605, size: 1024, pct: 59% }";
        assert_eq!(stats(&m, 5), line);
    }
}
