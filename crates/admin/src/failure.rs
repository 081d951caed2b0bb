//! How a command fails: one line on standard error, one exit status.

use crate::EXIT_USAGE;
use client::control::ControlError;
use model::Errno;
use std::io;

#[derive(Debug, Clone)]
pub enum Failure {
    /// Called wrongly: what is wrong with the arguments.
    Usage(String),
    /// What failed on which object, and the errno.
    Op { text: String, errno: Errno },
}

impl Failure {
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure::Usage(text.into())
    }

    /// `what 'object': strerror (errno)`.
    pub fn op(what: &str, object: &str, errno: Errno) -> Failure {
        Failure::Op { text: format!("{what} '{object}': {errno}"), errno }
    }

    /// As [`Failure::op`], with what else there is to say behind it.
    pub fn explained(what: &str, object: &str, errno: Errno, why: &str) -> Failure {
        Failure::Op { text: format!("{what} '{object}': {errno}: {why}"), errno }
    }

    pub fn io(what: &str, object: &str, e: io::Error) -> Failure {
        let text = e.to_string();
        let made_up = e.raw_os_error().is_none();
        let errno = Errno::from(e);
        if made_up {
            Failure::explained(what, object, errno, &text)
        } else {
            Failure::op(what, object, errno)
        }
    }

    pub fn control(what: &str, object: &str, e: &ControlError) -> Failure {
        let errno = Errno(e.errno);
        if errno == Errno::ENOTTY {
            let why = "not on a Nacre file system";
            return Failure::explained(what, object, errno, why);
        }
        if e.message == errno.text() || e.message.is_empty() {
            Failure::op(what, object, errno)
        } else {
            Failure::explained(what, object, errno, &e.message)
        }
    }

    pub fn exit_code(&self) -> i32 {
        match self {
            Failure::Usage(_) => EXIT_USAGE,
            Failure::Op { errno, .. } => errno.0 & 0xff,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Usage(t) | Failure::Op { text: t, .. } => f.write_str(t),
        }
    }
}

/// Keeps the first error while a command goes on with its other arguments.
#[derive(Default)]
pub struct FirstError {
    first: Option<i32>,
    /// Instead of standard error.
    kept: Option<Vec<String>>,
}

/// Failures that are kept; more are the same trouble again.
const KEPT_MAX: usize = 64;

impl FirstError {
    /// One that keeps what is reported, for a program that shows it itself.
    pub fn keeping() -> FirstError {
        FirstError { first: None, kept: Some(Vec::new()) }
    }

    /// What was kept, the first ones first.
    pub fn kept(self) -> Vec<String> {
        self.kept.unwrap_or_default()
    }

    /// Prints the failure behind `prefix` and remembers its exit status if it is the first.
    pub fn report(&mut self, prefix: &str, f: &Failure) {
        self.first.get_or_insert(f.exit_code());
        if let Some(kept) = &mut self.kept {
            if kept.len() < KEPT_MAX {
                kept.push(f.to_string());
            }
            return;
        }
        crate::output::flush();
        eprintln!("{prefix}: {f}");
    }

    /// A signal stopped a command that prints: `code` is its exit status, whatever was reported before.
    pub fn interrupted(&mut self, prefix: &str, code: i32) {
        self.interrupted_so(prefix, "what was printed is not all", code);
    }

    /// As [`FirstError::interrupted`]; `so`: what is the case now, or to be done.
    pub fn interrupted_so(&mut self, prefix: &str, so: &str, code: i32) {
        crate::output::flush();
        eprintln!("{prefix}: interrupted: {so}");
        self.first = Some(code);
    }

    /// A signal ended a command that ends in no other way.
    pub fn ended(&mut self, code: i32) {
        self.first.get_or_insert(code);
    }

    pub fn exit_code(&self) -> i32 {
        self.first.unwrap_or(0)
    }
}
