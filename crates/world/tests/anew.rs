//! A process that becomes itself anew while its threads work.

use std::ffi::OsString;
use std::io::Write;
use std::process::Command;
use world::sys::process;

const TEST: &str = "a_process_whose_threads_write_in_vain_becomes_anew";
/// In the environment of the process that does it: how often it did.
const TIMES: &str = "NACRE_TEST_ANEW";
const TIMES_MAX: u32 = 60;

/// Writes to a pipe that nobody reads any more, for ever.
fn write_in_vain() {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    loop {
        let _ = writer.write(b"x");
    }
}

/// A server of many clients that starts again after a pause: of some thirty one ended without a word, as
/// something had SIGPIPE end processes in the moment before the exec.
#[test]
fn a_process_whose_threads_write_in_vain_becomes_anew() {
    let args = ["--exact", TEST, "--nocapture"];
    let Some(times) = std::env::var(TIMES).ok().map(|n| n.parse::<u32>().expect("a number")) else {
        let exe = std::env::current_exe().expect("this program");
        let out = Command::new(exe).args(args).env(TIMES, "0").output().expect("it starts");
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && text.contains("anew 60 times"), "{:?}: {text}", out.status);
        return;
    };
    if times == TIMES_MAX {
        println!("anew {times} times");
        return;
    }
    for _ in 0..2 {
        world::sys::thread("in-vain", write_in_vain).expect("a thread");
    }
    process::run("sleep", &["0.005"]).expect("a moment in which they write");
    let args = args.map(OsString::from);
    let e = process::become_anew("anew", &args, &[(TIMES, (times + 1).to_string())]);
    panic!("{e}");
}
