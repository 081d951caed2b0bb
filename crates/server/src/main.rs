//! The one binary of Nacre: it is the command by whose name it is called, or that its first argument names.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<std::ffi::OsString> = std::env::args_os().collect();
    ExitCode::from(server::run(&args))
}
