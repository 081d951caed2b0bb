//! Work as an ordinary user: what root may do hides much of what everybody else meets.

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// User and group of [`as_user`].
pub const USER: u32 = 1000;

/// Does `f` on a thread of its own as user and group [`USER`] without other groups; so do the threads and
/// programs that it starts.
pub fn as_user<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    let work = || {
        let (uid, gid) = (Uid::from_raw(USER), Gid::from_raw(USER));
        set_thread_groups(&[]).expect("these tests run as root");
        set_thread_res_gid(gid, gid, gid).expect("these tests run as root");
        set_thread_res_uid(uid, uid, uid).expect("these tests run as root");
        f()
    };
    std::thread::scope(|s| s.spawn(work).join().expect("what runs as a user panicked"))
}
