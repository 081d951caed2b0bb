//! What a daemon tells the service manager that started it, by sd_notify(3)'s protocol: datagrams of
//! `NAME=VALUE` lines to the socket that `NOTIFY_SOCKET` names. Without one nothing is told.

use super::Deadline;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Names the socket; `@` stands for the zero byte of an abstract name.
const SOCKET: &str = "NOTIFY_SOCKET";
/// The process that shall give signs of life, and within how many microseconds.
const WATCHDOG_PID: &str = "WATCHDOG_PID";
const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
/// While it starts, a manager is asked for this much more each time.
const EXTENSION: Duration = Duration::from_secs(30);
/// Between two such requests.
const EXTEND_INTERVAL: Duration = Duration::from_secs(5);

/// The manager's ear, if it has one.
pub struct Supervisor {
    socket: Option<UnixDatagram>,
    /// Between two signs of life: half of what the manager bears.
    interval: Option<Duration>,
    next: Deadline,
    told: String,
    ready: bool,
}

fn connect(name: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not stop a server.
    socket.set_nonblocking(true)?;
    let address = match name.strip_prefix('@') {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    socket.connect_addr(&address)?;
    Ok(socket)
}

/// `usec` for the process `pid` (any, if none is named).
fn interval(own: u32, pid: Option<&str>, usec: Option<&str>) -> Option<Duration> {
    if pid.is_some_and(|p| p.parse() != Ok(own)) {
        return None;
    }
    let usec: u64 = usec?.parse().ok()?;
    (usec > 0).then(|| Duration::from_micros(usec) / 2)
}

impl Supervisor {
    /// As the environment says. The variables stay: a process that becomes its program anew has the same
    /// manager.
    pub fn of_environment() -> Supervisor {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let socket = var(SOCKET).and_then(|name| {
            connect(&name)
                .inspect_err(|e| tracing::warn!("the service manager cannot be told: {SOCKET}={name}: {e}"))
                .ok()
        });
        let own = std::process::id();
        let interval = interval(own, var(WATCHDOG_PID).as_deref(), var(WATCHDOG_USEC).as_deref());
        let interval = interval.filter(|_| socket.is_some());
        let next = Deadline::after(Duration::ZERO);
        Supervisor { socket, interval, next, told: String::new(), ready: false }
    }

    fn tell(&self, text: &str) {
        if let Some(s) = &self.socket
            && let Err(e) = s.send(text.as_bytes())
        {
            tracing::debug!("the service manager is not told {text:?}: {e}");
        }
    }

    /// A sign of life if one is due; before it is ready a wish for more time as well. To be called from a
    /// place that is passed only by who works, and more often than the manager wants.
    pub fn beat(&mut self) {
        if self.socket.is_none() || !self.next.passed() {
            return;
        }
        if !self.ready {
            self.tell(&format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros()));
        }
        if self.interval.is_some() {
            self.tell("WATCHDOG=1");
        }
        let pause = if self.ready { self.interval } else { Some(EXTEND_INTERVAL) };
        let pause = pause.map_or(EXTEND_INTERVAL, |p| p.min(self.interval.unwrap_or(p)));
        self.next = Deadline::after(pause);
    }

    /// It does from now on what it was started for.
    pub fn ready(&mut self, status: &str) {
        assert!(!self.ready, "a daemon becomes ready once");
        self.ready = true;
        self.tell(&format!("READY=1\nSTATUS={}", line(status)));
        self.told = status.to_string();
    }

    /// What it does, in a line for `systemctl status`; told when it changed.
    pub fn status(&mut self, status: impl FnOnce() -> String) {
        if self.socket.is_none() {
            return;
        }
        let status = status();
        if self.told != status {
            self.tell(&format!("STATUS={}", line(&status)));
            self.told = status;
        }
    }

    /// It ends in order: no signs of life come any more.
    pub fn stopping(&mut self, why: &str) {
        self.tell(&format!("STOPPING=1\nSTATUS={}", line(why)));
    }
}

fn line(text: &str) -> String {
    text.replace('\n', "; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(s: &UnixDatagram) -> String {
        let mut buf = [0; 256];
        let n = s.recv(&mut buf).unwrap();
        String::from_utf8_lossy(&buf[..n]).into_owned()
    }

    #[test]
    fn signs_of_life_are_for_the_process_that_is_named() {
        let half = Some(Duration::from_secs(5));
        assert_eq!(interval(7, Some("7"), Some("10000000")), half);
        assert_eq!(interval(7, None, Some("10000000")), half);
        assert_eq!(interval(7, Some("8"), Some("10000000")), None);
        assert_eq!(interval(7, Some("7"), None), None);
        assert_eq!(interval(7, None, Some("0")), None);
        assert_eq!(interval(7, None, Some("soon")), None);
    }

    #[test]
    fn a_manager_hears_of_a_start_a_status_and_an_end() {
        let name = format!("nacre-notify-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut s = Supervisor {
            socket: Some(connect(&format!("@{name}")).unwrap()),
            interval: Some(Duration::from_millis(1)),
            next: Deadline::after(Duration::ZERO),
            told: String::new(),
            ready: false,
        };
        s.beat();
        assert_eq!(
            (hear(&manager).as_str(), hear(&manager).as_str()),
            ("EXTEND_TIMEOUT_USEC=30000000", "WATCHDOG=1")
        );
        s.ready("serving\nthis");
        s.status(|| "serving\nthis".into());
        s.status(|| "less".into());
        assert_eq!(
            (hear(&manager).as_str(), hear(&manager).as_str()),
            ("READY=1\nSTATUS=serving; this", "STATUS=less")
        );
        super::super::sleep(Duration::from_millis(2));
        s.beat();
        s.stopping("told to");
        assert_eq!(
            (hear(&manager).as_str(), hear(&manager).as_str()),
            ("WATCHDOG=1", "STOPPING=1\nSTATUS=told to")
        );
        assert!(connect("/nonexistent/socket").is_err());
    }
}
