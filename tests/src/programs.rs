//! Programs that people use, each of which checks its own work: whoever runs them takes every exit status but
//! 0 as a failure of the file system.

use crate::cluster::{kit, ok_within, sh, tool};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A program is through by then although servers fail meanwhile.
const LIMIT: Duration = Duration::from_secs(600);

const SQLITE: &str = r#"
import sqlite3, sys, subprocess
db, mode, rows, other = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
c = sqlite3.connect(db, timeout=float(sys.argv[-1]))
assert c.execute('pragma journal_mode=' + mode).fetchone()[0] == mode
c.execute('create table t(k integer primary key, v blob)'); c.commit()
child = '''
import sqlite3, sys
c = sqlite3.connect(sys.argv[1], timeout=float(sys.argv[-1]))
for i in range(int(sys.argv[2])):
    c.execute('insert into t(v) values (randomblob(700))'); c.commit()
'''
ps = [subprocess.Popen([sys.executable, '-c', child, db, str(rows), sys.argv[-1]]) for _ in range(3)]
assert [p.wait() for p in ps] == [0, 0, 0]
def check(c, n):
    assert c.execute('select count(*) from t').fetchone()[0] == n
    assert c.execute('pragma integrity_check').fetchone()[0] == 'ok'
check(c, 3 * rows)
c.execute('delete from t where k % 3 = 0'); c.commit()
c.close()
check(sqlite3.connect(other, timeout=float(sys.argv[-1])), 2 * rows)
"#;

/// Three processes add rows to one database (`mode`: of its journal); it is whole, also as `other` shows it.
/// A third of `limit` is what one of them waits for a lock of another.
pub fn sqlite(db: &Path, mode: &str, rows: u32, other: &Path, limit: Duration) -> Result<()> {
    let mut c = Command::new("python3");
    c.args(["-c", SQLITE]).arg(db).args([mode, &rows.to_string()]).arg(other);
    ok_within(c.arg((limit / 3).as_secs().to_string()), limit).map(drop)
}

/// Commits, packs, clones and checks in a folder; the clone is whole, also as `other` shows the folder.
pub fn git(dir: &Path, commits: u32, files: u32, other: &Path, limit: Duration) -> Result<()> {
    let line = format!(
        r#"export GIT_CONFIG_GLOBAL=/dev/null
        cd {}; git init -q -b main a; cd a
        git config user.email t@example.invalid; git config user.name t
        for r in $(seq {commits}); do for i in $(seq {files}); do head -c 3000 /dev/urandom | base64 > f$i; done; git add -A; git commit -qm r$r; done
        git gc -q; cd ..; git clone -q --no-hardlinks a b; cd b; git fsck --full --strict; test "$(git rev-parse HEAD)" = "$(git -C ../a rev-parse HEAD)"
        git status --porcelain | (! grep .)
        cd {}/b; git fsck --full --strict"#,
        dir.display(),
        other.display()
    );
    sh(&line, limit).map(drop)
}

/// `ops` random operations on a file, by a program that knows what must be in it; `good` gets what it must be
/// if it is not that.
pub fn fsx(
    file: &Path,
    seed: u64,
    ops: u32,
    config: Option<&Path>,
    good: &Path,
    limit: Duration,
) -> Result<()> {
    let mut c = Command::new(kit("fsx"));
    if let Some(config) = config {
        c.arg("-f").arg(config);
    }
    c.args(["-q", "-N", &ops.to_string(), "-S", &seed.to_string(), "-P"]).arg(good).arg(file);
    ok_within(&mut c, limit).map(drop)
}

/// Two processes, each by one of the folders, write a file in interleaved records of IOR's hard kind, and
/// each reads what the other wrote.
fn ior(dirs: [&Path; 2]) -> Result<()> {
    let mut c = tool("nacre");
    c.args(["bench", "ior", "--quiet", "--procs=2", "-R", "-C", "-e"]);
    ok_within(c.args(["-t", "47008", "-b", "47008", "-s", "150"]).args(dirs), LIMIT).map(drop)
}

/// Two processes, each by one of the folders, make, stat, read and remove files, each what the other made.
fn mdtest(dirs: [&Path; 2]) -> Result<()> {
    let mut c = tool("nacre");
    c.args(["bench", "mdtest", "--quiet", "--procs=2", "-n", "200", "-F", "-N", "1", "-X"]);
    ok_within(c.args(["-w", "3901", "-e", "3901", "-d", "tree"]).args(dirs), LIMIT).map(drop)
}

/// Programs of one client, one after another until `stop`; `other` is another client's mount.
fn keep_running(
    client: usize,
    mount: &Path,
    other: &Path,
    scratch: &Path,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> Result<()> {
    for n in client.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("programs{client}.{n}");
        let [dir, same] = [mount, other].map(|m| m.join(&name));
        std::fs::create_dir(&dir).with_context(|| format!("mkdir {name}"))?;
        let what = ["fsx", "git", "SQLite", "IOR", "mdtest"][n % 5];
        let ran = match n % 5 {
            0 => fsx(&dir.join("f"), n as u64, 1500, None, scratch, LIMIT),
            1 => git(&dir, 2, 20, &same, LIMIT),
            2 => sqlite(&dir.join("db"), ["wal", "delete"][n / 5 % 2], 15, &same.join("db"), LIMIT),
            3 => ior([&dir, &same]),
            _ => mdtest([&dir, &same]),
        };
        ran.with_context(|| format!("{what} in {}", dir.display()))?;
        std::fs::remove_dir_all(&dir).with_context(|| format!("rm -r {name}"))?;
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Programs on every mount, one after another, until `stop`; what failed. `scratch`: a folder that is not on
/// a mount.
pub fn run(mounts: &[PathBuf], scratch: &Path, stop: &AtomicBool, done: &AtomicU64) -> Vec<String> {
    std::thread::scope(|s| {
        let joins: Vec<_> = mounts
            .iter()
            .enumerate()
            .map(|(i, m)| {
                let other = &mounts[(i + 1) % mounts.len()];
                s.spawn(move || {
                    // One failure is enough.
                    keep_running(i, m, other, scratch, stop, done)
                        .inspect_err(|_| stop.store(true, Ordering::Relaxed))
                })
            })
            .collect();
        joins
            .into_iter()
            .filter_map(|j| j.join().expect("programs").err())
            .map(|e| format!("{e:#}"))
            .collect()
    })
}
