//! User, mount and network namespaces of an ordinary user, in which it may mount and has addresses of its
//! own (user_namespaces(7)).

use super::process::ExitStatus;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

/// The kernel's bounds on namespaces of one user; 0 forbids them.
const BOUNDS: [&str; 3] = ["max_user_namespaces", "max_mnt_namespaces", "max_net_namespaces"];

/// Where a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Where this one does.
    Here,
    /// In the user, mount and network namespaces of that process.
    Of(u32),
    /// In new ones, as their root; this process' user and group are the only ones there.
    New,
}

/// A program to be run.
#[derive(Clone, Debug)]
pub struct Program<'a> {
    /// Looked for in PATH if it has no slash.
    pub program: &'a Path,
    /// Its own name for itself.
    pub arg0: &'a std::ffi::OsStr,
    pub args: &'a [OsString],
    /// Variables beside those of this process.
    pub env: &'a [(&'a str, OsString)],
}

/// Whether a process is in this process' user namespace. `PermissionDenied`: it is somebody else's.
pub fn is_here(pid: u32) -> io::Result<bool> {
    Ok(std::fs::read_link(format!("/proc/{pid}/ns/user"))? == std::fs::read_link("/proc/self/ns/user")?)
}

/// Effective user of a process, as this process' user namespace numbers it.
pub fn user_of(pid: u32) -> io::Result<u32> {
    Ok(std::fs::metadata(format!("/proc/{pid}"))?.uid())
}

/// What the child does before it becomes the program: made ready before the fork, because behind it only
/// system calls are allowed.
enum Way {
    Stay,
    /// Descriptors of the namespaces, the user namespace first: it gives the right to enter the others.
    Enter(Vec<OwnedFd>, CString),
    Make {
        users: CString,
        groups: CString,
    },
}

impl Way {
    fn to(place: Place) -> io::Result<Way> {
        Ok(match place {
            Place::Here => Way::Stay,
            Place::Of(pid) => {
                let open =
                    |kind: &str| std::fs::File::open(format!("/proc/{pid}/ns/{kind}")).map(OwnedFd::from);
                let all = ["user", "mnt", "net"].map(open).into_iter().collect::<io::Result<_>>()?;
                Way::Enter(all, CString::new(std::env::current_dir()?.as_os_str().as_bytes())?)
            }
            Place::New => Way::Make {
                users: CString::new(format!("0 {} 1", super::euid()))?,
                groups: CString::new(format!("0 {} 1", super::egid()))?,
            },
        })
    }

    /// Between fork and exec: system calls only.
    fn go(&self) -> io::Result<()> {
        match self {
            Way::Stay => Ok(()),
            Way::Enter(all, cwd) => {
                for fd in all {
                    // SAFETY: a descriptor that is ours and open.
                    done(unsafe { libc::setns(fd.as_raw_fd(), 0) })?;
                }
                // SAFETY: a NUL-terminated path that lives throughout the call.
                done(unsafe { libc::chdir(cwd.as_ptr()) })
            }
            Way::Make { users, groups } => {
                let kinds = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWNET;
                // SAFETY: plain flags; after the fork this is the only thread.
                done(unsafe { libc::unshare(kinds) })?;
                // Without that, a group that may less than others could be left.
                write(c"/proc/self/setgroups", c"deny")?;
                write(c"/proc/self/uid_map", users)?;
                write(c"/proc/self/gid_map", groups)
            }
        }
    }
}

fn done(r: libc::c_int) -> io::Result<()> {
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// One write(2) of all of it, without memory from anywhere.
fn write(path: &std::ffi::CStr, text: &std::ffi::CStr) -> io::Result<()> {
    // SAFETY: a NUL-terminated path.
    let fd: RawFd = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    done(fd)?;
    let text = text.to_bytes();
    // SAFETY: the bytes live throughout the call.
    let n = unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
    let r = if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // SAFETY: opened above, and nobody else has it.
    unsafe { libc::close(fd) };
    r
}

/// Runs a program to its end with this process' terminal, files and folder. It gets the terminal's signals;
/// this process waits for what it makes of them. It ends with this process.
pub fn run(p: &Program<'_>, place: Place) -> io::Result<ExitStatus> {
    assert!(place != Place::New || super::euid() != 0, "root needs none");
    let way = Way::to(place)?;
    super::process::block_signals(&[libc::SIGINT, libc::SIGQUIT]);
    let mut cmd = Command::new(p.program);
    cmd.arg0(p.arg0).args(p.args).envs(p.env.iter().map(|(k, v)| (k, v)));
    // SAFETY: `go` makes system calls alone, and so does the rest.
    unsafe {
        cmd.pre_exec(move || {
            way.go()?;
            done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM))?;
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            done(libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()))
        });
    }
    let s = cmd.spawn()?.wait()?;
    Ok(ExitStatus { status: s.code(), signal: s.signal() })
}

/// Why [`Place::New`] failed, and what to do about it, from the kernel's own settings.
pub fn why_not(e: &io::Error) -> String {
    explain(e, &|path| std::fs::read_to_string(path).ok(), Path::new("/proc/self/ns/user").exists())
}

fn explain(e: &io::Error, read: &dyn Fn(&str) -> Option<String>, known: bool) -> String {
    let value = |path: &str| read(path).map(|v| v.trim().to_string());
    if !known {
        return "this kernel has no user namespaces (CONFIG_USER_NS)".into();
    }
    for b in BOUNDS {
        if value(&format!("/proc/sys/user/{b}")).as_deref() == Some("0") {
            return format!("user.{b} is 0 on this host: 'sysctl -w user.{b}=15000' as root allows them");
        }
    }
    if value("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return "kernel.unprivileged_userns_clone is 0 on this host: 'sysctl -w \
                kernel.unprivileged_userns_clone=1' as root allows them"
            .into();
    }
    if value("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return "AppArmor lets only programs make them that have a profile for it \
                (kernel.apparmor_restrict_unprivileged_userns is 1): load Nacre's profile \
                (deploy/apparmor, 'apparmor_parser -r'), or set that to 0"
            .into();
    }
    match e.raw_os_error() {
        Some(libc::ENOSPC) => "this user has as many namespaces as user.max_user_namespaces allows".into(),
        Some(libc::EPERM) => {
            format!(
                "{e}; what is around this process forbids them (a container, a chroot, a filter of system calls)"
            )
        }
        _ => e.to_string(),
    }
}

/// Sets the loopback interface up if it is down: in a new network namespace it is.
pub fn loopback_up() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let s = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: plain numbers and bytes; all zeros is a value of it.
    let mut r: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in r.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    // SAFETY: the kernel reads the name and writes the flags of `r`, which lives throughout the call.
    done(unsafe { libc::ioctl(s.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut r) })?;
    // SAFETY: the call above wrote the flags.
    let flags = unsafe { r.ifr_ifru.ifru_flags };
    let up = libc::IFF_UP as libc::c_short;
    if flags & up != 0 {
        return Ok(());
    }
    r.ifr_ifru.ifru_flags = flags | up;
    // SAFETY: the kernel reads name and flags of `r`.
    done(unsafe { libc::ioctl(s.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const r) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_forbids_namespaces_is_named_with_what_to_do() {
        let of = |errno: i32, set: &'static [(&'static str, &'static str)]| {
            let read =
                |path: &str| set.iter().find(|(k, _)| path.ends_with(k)).map(|(_, v)| format!("{v}\n"));
            explain(&io::Error::from_raw_os_error(errno), &read, true)
        };
        let bound = of(libc::ENOSPC, &[("user/max_net_namespaces", "0")]);
        assert!(bound.contains("sysctl -w user.max_net_namespaces"), "{bound}");
        let full = of(libc::ENOSPC, &[("user/max_user_namespaces", "5")]);
        assert!(full.contains("as many namespaces"), "{full}");
        let debian = of(libc::EPERM, &[("unprivileged_userns_clone", "0")]);
        assert!(debian.contains("unprivileged_userns_clone=1"), "{debian}");
        let ubuntu = of(libc::EPERM, &[("apparmor_restrict_unprivileged_userns", "1")]);
        assert!(ubuntu.contains("AppArmor"), "{ubuntu}");
        let container = of(libc::EPERM, &[("apparmor_restrict_unprivileged_userns", "0")]);
        assert!(container.contains("a container, a chroot"), "{container}");
        assert!(explain(&io::Error::from_raw_os_error(libc::EINVAL), &|_| None, false).contains("USER_NS"));
    }

    #[test]
    fn a_program_here_gets_its_name_variables_and_status() {
        let args = ["-c", "test $0 = shown && test $X = y && exit 3"].map(OsString::from);
        let env = [("X", OsString::from("y"))];
        let sh = Program { program: Path::new("sh"), arg0: "shown".as_ref(), args: &args, env: &env };
        assert_eq!(run(&sh, Place::Here).unwrap().status, Some(3));
        assert!(is_here(std::process::id()).unwrap());
        assert_eq!(user_of(std::process::id()).unwrap(), super::super::euid());
        loopback_up().unwrap();
    }
}
