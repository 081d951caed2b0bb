//! The one binary of Nacre: it is the command by whose name it is called, or that its first argument names.

use std::process::ExitCode;

/// Buffers of a mebibyte come and go on many threads: the allocator of the C library keeps half as much again
/// as is in use (measured: docs/performance.md). How this one is set: `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let args: Vec<std::ffi::OsString> = std::env::args_os().collect();
    ExitCode::from(server::run(&args))
}
