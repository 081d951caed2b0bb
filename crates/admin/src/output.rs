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
