//! Multi-mount protection: two servers that reach the same target, of which the lock on the host does not
//! know.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tests::cluster::{TestFs, kill, tool, wait_until};

/// A server that this test starts by itself; dead at the end of it.
struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    fn start(dir: &Path, nid: Ipv4Addr, port: &str, log: PathBuf) -> Result<Server> {
        Server::start_with(dir, nid, port, log, &[])
    }

    fn start_with(dir: &Path, nid: Ipv4Addr, port: &str, log: PathBuf, options: &[&str]) -> Result<Server> {
        let file = std::fs::File::create(&log)?;
        let child = tool("nacred")
            .args(["--nid", &format!("{nid}@tcp"), "--port", port, "--mmp-interval", "200"])
            .args(options)
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        Ok(Server { child, log })
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for its end, which must be an error.
    fn fails(&mut self, limit: Duration) -> Result<String> {
        wait_until("the server ends", limit, || self.child.try_wait().is_ok_and(|s| s.is_some()))?;
        let status = self.child.wait()?;
        ensure!(!status.success(), "it ended well:\n{}", self.said());
        Ok(self.said())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The words of a running server's command line.
fn words_of(pid: i32) -> Result<Vec<String>> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"))?;
    Ok(line.split('\0').map(str::to_string).collect())
}

fn behind<'a>(words: &'a [String], option: &str) -> Result<&'a str> {
    let at = words.iter().position(|w| w == option).with_context(|| format!("no {option} in {words:?}"))?;
    Ok(&words[at + 1])
}

/// Somebody takes the lock file away under a living server; a second one must not start. Then the living one
/// sleeps for longer than its term: the second takes the target over, and the first, awake again, writes
/// nothing and ends.
#[test]
fn a_zombie_server_gives_its_target_up() -> Result<()> {
    let fs = TestFs::up("mmp", 1, 1)?;
    let (mut dir, mut server) = (PathBuf::new(), 0);
    for pid in fs.servers()? {
        let words = words_of(pid)?;
        if let Some(d) = words.iter().find(|w| w.ends_with("/ost0000")) {
            (dir, server) = (PathBuf::from(d), pid);
        }
    }
    let words = words_of(server)?;
    let (nid, port) =
        (behind(&words, "--nid")?.trim_end_matches("@tcp").to_string(), behind(&words, "--port")?);
    let first: Ipv4Addr = nid.parse()?;
    let [a, b, c, d] = first.octets();
    let second = Ipv4Addr::new(a, b, c, d + 100);
    let file = fs.mount(0).join("f");
    std::fs::write(&file, vec![1; 300_000])?;
    kill(server, Signal::KILL)?;
    let log = |n: &str| fs.scratch().join(format!("{n}.log"));
    let mut one = Server::start(&dir, first, port, log("one"))?;
    std::fs::write(&file, vec![2; 300_000])?;

    std::fs::remove_file(dir.join("lock"))?;
    let mut two = Server::start(&dir, second, port, log("two"))?;
    let said = two.fails(Duration::from_secs(30))?;
    ensure!(said.contains(&format!("is in use by pid {} on host", one.pid())), "{said}");
    ensure!(said.contains("its heartbeat goes on"), "{said}");
    std::fs::write(&file, vec![3; 300_000])?;

    // One that may wait for its end does, and hears that it shall not.
    let patience = ["--patience", "600"];
    let mut patient = Server::start_with(&dir, second, port, log("patient"), &patience)?;
    let waits = || patient.said().contains("its end is waited for, 600 s at most");
    wait_until("it waits for the first one's end", Duration::from_secs(30), waits)
        .with_context(|| patient.said())?;
    kill(patient.pid(), Signal::TERM)?;
    let said = patient.fails(Duration::from_secs(10))?;
    ensure!(said.contains("ended by a signal before it served"), "{said}");

    kill(one.pid(), Signal::STOP)?;
    std::fs::remove_file(dir.join("lock"))?;
    // The table has a lock of its own, which another host would not see either.
    std::fs::copy(dir.join("table.redb"), dir.join("table.copy"))?;
    std::fs::rename(dir.join("table.copy"), dir.join("table.redb"))?;
    let two = Server::start(&dir, second, port, log("two again"))?;
    // The write waits for the target to be there again, at another address.
    let mut writer = Command::new("sh")
        .args(["-c", "head -c 300000 /dev/zero > \"$0\" && sync \"$0\""])
        .arg(&file)
        .spawn()?;
    let done = wait_until("the write goes to the new server", Duration::from_secs(60), || {
        writer.try_wait().is_ok_and(|s| s.is_some())
    });
    kill(one.pid(), Signal::CONT)?;
    done.with_context(|| two.said())?;
    ensure!(writer.wait()?.success(), "the write");
    let said = one.fails(Duration::from_secs(30))?;
    ensure!(said.contains("STOPPING") && said.contains("heartbeat") || said.contains("taken over"), "{said}");
    ensure!(std::fs::read(&file)? == vec![0; 300_000], "what the new server answered is there");
    // In an orderly way, so that what follows need not wait.
    kill(two.pid(), Signal::TERM)?;
    let mut two = two;
    wait_until("the second ends", Duration::from_secs(30), || {
        two.child.try_wait().is_ok_and(|s| s.is_some())
    })?;
    fs.up_again()?;
    ensure!(std::fs::read(&file)? == vec![0; 300_000], "and after a restart");
    fs.fsck()
}
