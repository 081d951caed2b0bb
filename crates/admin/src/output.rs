//! Standard output of the commands: buffered, and quiet when the reader has gone (`lfs find | head`).

use model::mutex::Mutex;
use std::fmt;
use std::io::{self, BufWriter, Stdout, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

static OUT: Mutex<Option<BufWriter<Stdout>>> = Mutex::new(None);

fn with<T>(f: impl FnOnce(&mut BufWriter<Stdout>) -> io::Result<T>) {
    let mut guard = OUT.lock();
    let w = guard.get_or_insert_with(|| BufWriter::with_capacity(64 << 10, io::stdout()));
    if f(w).is_err() {
        // Nobody reads any more: the usual end of a command in a pipe.
        std::process::exit(1);
    }
}

pub fn write(args: fmt::Arguments<'_>) {
    with(|w| w.write_fmt(args));
}

pub fn bytes(b: &[u8]) {
    with(|w| w.write_all(b));
}

/// A path and the end of its line, or a zero byte.
pub fn path(p: &Path, zero: bool) {
    with(|w| {
        w.write_all(p.as_os_str().as_bytes())?;
        w.write_all(if zero { b"\0" } else { b"\n" })
    });
}

pub fn flush() {
    with(|w| w.flush());
}

/// `println!` that ends the program quietly when the reader has gone.
#[macro_export]
macro_rules! say {
    ($($t:tt)*) => {{
        $crate::output::write(format_args!($($t)*));
        $crate::output::bytes(b"\n");
    }};
}

/// `print!`, likewise.
#[macro_export]
macro_rules! put {
    ($($t:tt)*) => { $crate::output::write(format_args!($($t)*)) };
}

/// A value as JSON, on a line of its own.
pub fn json(v: &serde_json::Value) {
    bytes(format!("{v:#}\n").as_bytes());
}

/// A JSON array of rows that come by and by, some at a time and from several threads, as text of the form
/// that [`json`] gives to all of them at once. It is whole once it was ended.
pub struct JsonRows<'a> {
    write: &'a (dyn Fn(&[u8]) + Sync),
    /// Something was added.
    begun: Mutex<bool>,
}

impl<'a> JsonRows<'a> {
    /// `write` is standard output ([`bytes`]), but for tests.
    pub fn to(write: &'a (dyn Fn(&[u8]) + Sync)) -> JsonRows<'a> {
        JsonRows { write, begun: Mutex::new(false) }
    }

    /// Rows that stay side by side.
    pub fn add(&self, rows: Vec<serde_json::Value>) {
        if rows.is_empty() {
            return;
        }
        let all = serde_json::to_string_pretty(&rows).expect("JSON is text");
        let within = all.strip_prefix('[').and_then(|t| t.strip_suffix("\n]"));
        let within = within.expect("an array of something has brackets on lines of their own");
        let mut begun = self.begun.lock();
        let before = if std::mem::replace(&mut *begun, true) { "," } else { "[" };
        (self.write)(format!("{before}{within}").as_bytes());
    }

    pub fn end(self) {
        (self.write)(if self.begun.into_inner() { b"\n]\n" } else { b"[]\n" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_that_come_by_and_by_look_as_if_they_had_come_at_once() {
        let rows = [json!({"path": "a\n]", "list": [1, {"x": []}]}), json!("two"), json!([])];
        for pieces in [&[3][..], &[1, 1, 1], &[0, 2, 0, 1], &[]] {
            let out = Mutex::new(Vec::new());
            let write = |b: &[u8]| out.lock().extend_from_slice(b);
            let (array, mut left) = (JsonRows::to(&write), rows.iter().cloned());
            for n in pieces {
                array.add(left.by_ref().take(*n).collect());
            }
            array.end();
            let shown: Vec<_> = rows.iter().take(pieces.iter().sum()).collect();
            let text = String::from_utf8(out.into_inner()).unwrap();
            assert_eq!(text, format!("{:#}\n", json!(shown)), "{pieces:?}");
        }
    }
}
