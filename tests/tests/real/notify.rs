//! nacred under a service manager: what systemd hears of it (sd_notify(3)).

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tests::cluster::{Scratch, bin_dir, kill, ok_within, tool};

const LIMIT: Duration = Duration::from_secs(60);
/// Within that it must give signs of life.
const WATCHDOG: Duration = Duration::from_millis(500);

/// A server of the test, killed at its end.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Plays the service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn hear(&self, within: Duration) -> Result<Option<String>> {
        self.0.set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
        let mut buf = [0; 4096];
        match self.0.recv(&mut buf) {
            Ok(n) => Ok(Some(String::from_utf8_lossy(&buf[..n]).into_owned())),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Listens until a message begins so; what came before it and itself.
    fn until(&self, start: &str) -> Result<Vec<String>> {
        let end = Instant::now() + LIMIT;
        let mut all = Vec::new();
        while Instant::now() < end {
            let Some(m) = self.hear(Duration::from_millis(100))? else { continue };
            all.push(m);
            if all.last().is_some_and(|m| m.starts_with(start)) {
                return Ok(all);
            }
        }
        bail!("no '{start}' came, but {all:?}")
    }

    /// That nothing comes for so long.
    fn silence(&self, d: Duration) -> Result<bool> {
        Ok(self.hear(d)?.is_none())
    }
}

fn serve(socket: &Path, target: &Path, patience: &str) -> Result<Served> {
    let mut c = Command::new(bin_dir().join("nacred"));
    c.args(["--nid", "127.9.8.7@tcp", "--port", "988", "--folder-patience", patience]).arg(target);
    c.env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
    c.env_remove("WATCHDOG_PID").stdin(Stdio::null()).stderr(Stdio::null());
    Ok(Served(c.spawn().context("nacred")?))
}

#[test]
fn a_service_manager_hears_when_targets_serve_and_that_the_server_lives() -> Result<()> {
    let s = Scratch::new("notify");
    let (socket, target) = (s.path().join("notify"), s.path().join("mdt"));
    let manager = Manager(UnixDatagram::bind(&socket)?);
    // Its folder is not there yet: it starts, says so, and is not ready.
    let mut served = serve(&socket, &target, "60")?;
    let begun = manager.until("EXTEND_TIMEOUT_USEC=")?;
    manager.until("WATCHDOG=1")?;
    manager.until("WATCHDOG=1")?;
    ensure!(!begun.iter().any(|m| m.contains("READY")), "ready without a target: {begun:?}");
    let made = s.path().join("made");
    ok_within(
        tool("mkfs.nacre").args(["--quiet", "--mgs", "--mdt", "--fsname=told", "--index=0"]).arg(&made),
        LIMIT,
    )?;
    std::fs::rename(&made, &target)?;
    let heard = manager.until("READY=1")?;
    // At once, not soon: whoever is ordered after it connects now.
    std::net::TcpStream::connect(("127.9.8.7", 988)).context("it is ready and does not listen")?;
    let ready = heard.last().context("READY")?;
    ensure!(ready.contains("told-MDT0000") && ready.contains("127.9.8.7@tcp"), "{ready}");
    let pid = served.0.id() as i32;
    for _ in 0..3 {
        let asked = manager.until("WATCHDOG=1")?;
        ensure!(!asked.iter().any(|m| m.contains("EXTEND")), "it is ready, and asks for time: {asked:?}");
    }
    // One that does not run gives none, however long ago it began.
    kill(pid, Signal::STOP)?;
    while !manager.silence(Duration::from_millis(50))? {}
    ensure!(manager.silence(WATCHDOG * 2)?, "it stands still, and gives signs of life");
    kill(pid, Signal::CONT)?;
    manager.until("WATCHDOG=1")?;
    kill(pid, Signal::TERM)?;
    manager.until("STOPPING=1")?;
    ensure!(served.0.wait()?.success(), "it ended in order");
    Ok(())
}

#[test]
fn a_server_without_a_service_manager_or_with_a_dead_one_serves() -> Result<()> {
    let s = Scratch::new("unnotified");
    let target = s.path().join("mdt");
    ok_within(
        tool("mkfs.nacre").args(["--quiet", "--mgs", "--mdt", "--fsname=told", "--index=0"]).arg(&target),
        LIMIT,
    )?;
    let mut served = serve(&s.path().join("nobody"), &target, "0")?;
    let up = || std::net::TcpStream::connect(("127.9.8.7", 988)).is_ok();
    tests::cluster::wait_until("it serves", LIMIT, up)?;
    kill(served.0.id() as i32, Signal::TERM)?;
    ensure!(served.0.wait()?.success(), "it ended in order");
    Ok(())
}
