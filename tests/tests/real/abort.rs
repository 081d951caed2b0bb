//! Nothing hangs: with every server dead or stopped, stuck processes can be killed and the mount taken away.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tests::cluster::{TestFs, alive, kill, ok_within, run_within, wait_until};

/// Programs that are in the middle of every kind of call when the servers go away.
fn victims(fs: &TestFs) -> Result<Vec<Child>> {
    let m = fs.mount(0).display().to_string();
    std::fs::write(fs.mount(0).join("data"), vec![7u8; 3 << 20])?;
    std::fs::create_dir(fs.mount(0).join("dir"))?;
    let lines = [
        format!("while :; do stat {m}/data; done"),
        format!("while :; do cat {m}/data; done"),
        format!("while :; do dd if=/dev/zero of={m}/w1 bs=1M count=3; done"),
        format!("while :; do dd if=/dev/zero of={m}/w2 bs=4k count=100 oflag=sync; done"),
        format!("i=0; while :; do i=$((i+1)); mkdir {m}/dir/d$i; rmdir {m}/dir/d$i; done"),
        format!("i=0; while :; do i=$((i+1)); : > {m}/dir/same; mv {m}/dir/same {m}/dir/other; done"),
        format!("while :; do ls -lR {m}; done"),
        format!("while :; do flock {m}/data -c true; done"),
        format!(
            "python3 -c 'import mmap,os\nf=os.open(\"{m}/mapped\",os.O_RDWR|os.O_CREAT)\nos.ftruncate(f,4<<20)\nwhile True:\n  p=mmap.mmap(f,4<<20)\n  for i in range(0,4<<20,4096): p[i]=(p[i]+1)&255\n  p.flush()\n  p.close()'"
        ),
    ];
    let start = |l: &String| {
        use std::os::unix::process::CommandExt;
        Command::new("bash")
            .args(["-c", l])
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    };
    lines.iter().map(|l| start(l).context("start a victim")).collect()
}

/// All processes of the victims' groups.
fn members(victims: &[Child]) -> Vec<i32> {
    let groups: Vec<String> = victims.iter().map(|v| v.id().to_string()).collect();
    let mut out = Vec::new();
    for e in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = e.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let stat = std::fs::read_to_string(e.path().join("stat")).unwrap_or_default();
        let pgrp = stat.rsplit(')').next().and_then(|r| r.split_whitespace().nth(2).map(str::to_string));
        if pgrp.is_some_and(|g| groups.contains(&g)) {
            out.push(pid);
        }
    }
    out
}

fn kill_groups(victims: &[Child]) {
    for v in victims {
        if let Some(p) = rustix::process::Pid::from_raw(v.id() as i32) {
            let _ = rustix::process::kill_process_group(p, Signal::KILL);
        }
    }
}

fn stuck_processes_die(signal: Signal) -> Result<()> {
    let fs = TestFs::up("abort", 2, 1)?;
    let mut victims = victims(&fs)?;
    std::thread::sleep(Duration::from_secs(2)); // the load itself: let every loop turn some times
    let servers = fs.servers()?;
    for &pid in &servers {
        kill(pid, signal)?;
    }
    std::thread::sleep(Duration::from_secs(2)); // everybody runs into the dead servers
    let stuck = members(&victims);
    let t = Instant::now();
    kill_groups(&victims);
    let gone =
        wait_until("killed processes are gone", Duration::from_secs(2), || !stuck.iter().any(|&p| alive(p)));
    let left: Vec<String> = stuck
        .iter()
        .filter(|&&p| alive(p))
        .map(|p| {
            let wchan = std::fs::read_to_string(format!("/proc/{p}/stack")).unwrap_or_default();
            let cmd =
                std::fs::read_to_string(format!("/proc/{p}/cmdline")).unwrap_or_default().replace('\0', " ");
            format!("{p} {cmd}\n{wchan}")
        })
        .collect();
    for v in &mut victims {
        let _ = v.try_wait();
    }
    gone.with_context(|| format!("{} of {} left:\n{}", left.len(), stuck.len(), left.join("\n")))?;
    println!("{} stuck processes gone after {:?}", stuck.len(), t.elapsed());
    for pid in servers {
        let _ = kill(pid, Signal::CONT);
    }
    for v in &mut victims {
        let _ = v.wait();
    }
    fs.up_again()?;
    ensure!(std::fs::metadata(fs.mount(0).join("data"))?.len() == 3 << 20, "the mount works again");
    Ok(())
}

#[test]
fn processes_stuck_on_killed_servers_die() -> Result<()> {
    stuck_processes_die(Signal::KILL)
}

#[test]
fn processes_stuck_on_stopped_servers_die() -> Result<()> {
    stuck_processes_die(Signal::STOP)
}

#[test]
fn forced_umount_frees_everybody() -> Result<()> {
    let fs = TestFs::up("umountf", 2, 1)?;
    let mut victims = victims(&fs)?;
    std::thread::sleep(Duration::from_secs(2)); // the load itself
    let servers = fs.servers()?;
    for &pid in &servers {
        kill(pid, Signal::STOP)?;
    }
    std::thread::sleep(Duration::from_secs(1)); // everybody runs into the stopped servers
    let stuck = members(&victims);
    let t = Instant::now();
    let _ = run_within(Command::new("umount").arg("-f").arg(fs.mount(0)), Duration::from_secs(5))?;
    kill_groups(&victims);
    wait_until("nobody is stuck", Duration::from_secs(5), || !stuck.iter().any(|&p| alive(p)))?;
    for v in &mut victims {
        let _ = v.wait();
    }
    run_within(Command::new("umount").arg("-l").arg(fs.mount(0)), Duration::from_secs(5))?;
    println!("umount -f and all processes gone after {:?}", t.elapsed());
    for pid in servers {
        let _ = kill(pid, Signal::CONT);
    }
    Ok(())
}

/// A program starts others with files of the mount open while pages of mappings are written back: execve(2)
/// closes the files, and waits for the answers with a lock held that much of /proc needs.
#[test]
fn a_program_with_open_files_starts_others() -> Result<()> {
    let fs = TestFs::up("exec", 2, 1)?;
    let script = r#"
import mmap, os, subprocess, sys
stores = os.fork()
if stores == 0:
    f = open(sys.argv[1] + '/mapped', 'w+b')
    f.truncate(1 << 20)
    m = mmap.mmap(f.fileno(), 1 << 20)
    n = 0
    while os.getppid() != 1:
        n += 1
        m[:] = bytes([n % 251]) * (1 << 20)
        m.flush()
    os._exit(0)
f = open(sys.argv[1] + '/held', 'wb')
for i in range(300):
    f.write(b'x' * 30_000)
    f.flush()
    subprocess.run(['/bin/true'], close_fds=False, check=True)
os.kill(stores, 9)
"#;
    let mut c = Command::new("python3");
    ok_within(c.args(["-c", script]).arg(fs.mount(0)), Duration::from_secs(60))?;
    fs.fsck()
}
