//! A line on standard error that says how far a long command is, if somebody looks at it.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// The line, or nothing where standard error is no terminal.
pub struct ProgressLine {
    bar: Option<ProgressBar>,
}

impl ProgressLine {
    /// One for a terminal; none for whoever wants to have it quiet.
    pub fn for_terminal(quiet: bool) -> ProgressLine {
        if quiet || !std::io::stderr().is_terminal() {
            return ProgressLine::none();
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(s) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(s);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        ProgressLine { bar: Some(bar) }
    }

    pub fn none() -> ProgressLine {
        ProgressLine { bar: None }
    }

    pub fn is_shown(&self) -> bool {
        self.bar.is_some()
    }

    /// Shows another text. It is made only if it is shown.
    pub fn show(&self, text: impl FnOnce() -> String) {
        if let Some(b) = &self.bar {
            b.set_message(text());
        }
    }

    /// A line that stays, above this one.
    pub fn print(&self, line: &str) {
        match &self.bar {
            Some(b) => b.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    pub fn clear(&self) {
        if let Some(b) = &self.bar {
            b.finish_and_clear();
        }
    }
}
