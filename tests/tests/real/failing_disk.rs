//! Databases on a file system of which one target's disk fails for a while: what they were told is stored is
//! there after the target has started again without the page cache of before. `NACRE_FAILING_DISK_ROUNDS`
//! rounds (1), of which the disk fails for `NACRE_FAILING_DISK_SECONDS` (2).

use crate::full_backing::Thin;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use tests::cluster::{TestFs, alive, ok_within, sh, wait_until};
use tests::env_number;

const LIMIT: Duration = Duration::from_secs(120);
/// Of a row; it fills the disk soon.
const ROW_BYTES: usize = 1500;

/// A program that executes what it reads, statement by statement, and says so.
trait Database {
    fn name(&self) -> &'static str;
    /// A program that reads statements and prints a line that begins with `ok` for each that is stored.
    fn shell(&self) -> Command;
    /// A statement that adds row `k` and is stored when it is over.
    fn insert(&self, k: u64) -> String;
    /// The rows, after whatever a start of the database repairs; its own check finds nothing wrong.
    fn rows(&self) -> Result<Vec<u64>>;
}

struct Sqlite {
    file: PathBuf,
}

impl Sqlite {
    fn new(dir: &Path) -> Result<Sqlite> {
        let s = Sqlite { file: dir.join("lite.db") };
        let make = "pragma journal_mode=wal; create table t(k integer primary key, v blob);";
        ok_within(Command::new("sqlite3").arg(&s.file).arg(make), LIMIT)?;
        Ok(s)
    }
}

impl Database for Sqlite {
    fn name(&self) -> &'static str {
        "SQLite"
    }

    fn shell(&self) -> Command {
        let mut c = Command::new("sqlite3");
        c.args(["-bail", "-cmd", ".timeout 60000", "-cmd", "pragma synchronous=full;"]).arg(&self.file);
        c
    }

    fn insert(&self, k: u64) -> String {
        format!("insert into t values ({k}, randomblob({ROW_BYTES})); select 'ok';\n")
    }

    fn rows(&self) -> Result<Vec<u64>> {
        let ask = "pragma integrity_check; select k from t order by k;";
        let out = ok_within(Command::new("sqlite3").arg(&self.file).arg(ask), LIMIT)?;
        let mut lines = out.lines();
        ensure!(lines.next() == Some("ok"), "SQLite's check: {out:.500}");
        lines.map(|l| l.parse().context("a row")).collect()
    }
}

/// The way of mail servers: a file of its own for each message, whose data an MDT has.
struct Mails {
    dir: PathBuf,
}

const DELIVER: &str = r#"
import os, sys
for line in sys.stdin:
    k = line.strip()
    with open('new', 'wb') as f:
        f.write((k + '\n').encode() * 2000); f.flush(); os.fsync(f.fileno())
    os.rename('new', 'm' + k)
    d = os.open('.', os.O_RDONLY); os.fsync(d); os.close(d)
    print('ok', flush=True)
"#;

impl Mails {
    fn new(dir: &Path) -> Result<Mails> {
        let m = Mails { dir: dir.join("mails") };
        fs::create_dir(&m.dir)?;
        Ok(m)
    }
}

impl Database for Mails {
    fn name(&self) -> &'static str {
        "mails"
    }

    fn shell(&self) -> Command {
        let mut c = Command::new("python3");
        c.args(["-c", DELIVER]).current_dir(&self.dir);
        c
    }

    fn insert(&self, k: u64) -> String {
        format!("{k}\n")
    }

    fn rows(&self) -> Result<Vec<u64>> {
        let mut all = Vec::new();
        for e in fs::read_dir(&self.dir)? {
            let e = e?;
            let Some(k) = e.file_name().to_str().and_then(|n| n.strip_prefix('m')?.parse::<u64>().ok())
            else {
                continue;
            };
            let text = fs::read_to_string(e.path()).with_context(|| format!("mail {k}"))?;
            ensure!(text == format!("{k}\n").repeat(2000), "mail {k} has {} other bytes", text.len());
            all.push(k);
        }
        all.sort_unstable();
        Ok(all)
    }
}

struct Postgres {
    bin: PathBuf,
    data: PathBuf,
    socket: PathBuf,
}

impl Postgres {
    /// `None` if it is not installed.
    fn new(dir: &Path, scratch: &Path) -> Result<Option<Postgres>> {
        let Ok(versions) = fs::read_dir("/usr/lib/postgresql") else { return Ok(None) };
        let found =
            versions.filter_map(|v| Some(v.ok()?.path().join("bin"))).find(|b| b.join("initdb").exists());
        let Some(bin) = found else { return Ok(None) };
        let (data, socket) = (dir.join("pg"), scratch.join("pgsocket"));
        for d in [&data, &socket] {
            fs::create_dir(d)?;
            ok_within(Command::new("chown").arg("postgres").arg(d), LIMIT)?;
        }
        for d in scratch.ancestors().take_while(|d| *d != std::env::temp_dir()) {
            let _ = Command::new("chmod").arg("o+x").arg(d).status();
        }
        let p = Postgres { bin, data, socket };
        p.tool("initdb", &format!("-A trust -D {}", p.data.display()))?;
        p.start()?;
        p.sql("create table t(k bigint primary key, v text);")?;
        Ok(Some(p))
    }

    fn tool(&self, name: &str, rest: &str) -> Result<String> {
        let line = format!(
            "cd /; setpriv --reuid postgres --regid postgres --clear-groups {}/{name} {rest}",
            self.bin.display()
        );
        sh(&line, LIMIT)
    }

    fn start(&self) -> Result<()> {
        let rest = format!(
            "-D {} -w -t 100 -l {}/log -o \"-c listen_addresses= -k {}\" start",
            self.data.display(),
            self.socket.display(),
            self.socket.display()
        );
        self.tool("pg_ctl", &rest).map(drop)
    }

    fn stop(&self) {
        let _ = self.tool("pg_ctl", &format!("-D {} -w -t 60 -m immediate stop", self.data.display()));
    }

    fn psql(&self) -> Command {
        let mut c = Command::new("psql");
        c.args(["-X", "-q", "-t", "-A", "-U", "postgres", "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-h"])
            .arg(&self.socket);
        c
    }

    fn sql(&self, line: &str) -> Result<String> {
        ok_within(self.psql().arg("-c").arg(line), LIMIT)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Database for Postgres {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    fn shell(&self) -> Command {
        self.psql()
    }

    fn insert(&self, k: u64) -> String {
        format!("insert into t values ({k}, repeat(md5(random()::text), {}));\n\\echo ok\n", ROW_BYTES / 32)
    }

    fn rows(&self) -> Result<Vec<u64>> {
        self.stop();
        self.start()?;
        // Reads each row whole, and the index.
        self.sql("select sum(length(v)) from t;")?;
        let out = self.sql("select k from t order by k;")?;
        out.lines().filter(|l| !l.is_empty()).map(|l| l.parse().context("a row")).collect()
    }
}

/// A shell that adds rows until it fails or is told to stop; `stored` rows are said to be stored.
struct Load {
    stop: Arc<AtomicBool>,
    stored: Arc<AtomicU64>,
    child: Child,
    thread: JoinHandle<()>,
}

impl Load {
    fn start(db: &dyn Database, from: u64) -> Result<Load> {
        let mut child = db
            .shell()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .context("shell")?;
        let (mut to, out) = (child.stdin.take().context("stdin")?, child.stdout.take().context("stdout")?);
        let (stop, stored) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(from)));
        let lines: Vec<String> = (from..from + 100_000).map(|k| db.insert(k)).collect();
        let (ends, counts) = (stop.clone(), stored.clone());
        let thread = std::thread::spawn(move || {
            let mut said = BufReader::new(out).lines().map_while(Result::ok).filter(|l| l == "ok");
            for l in lines {
                if ends.load(Relaxed) || to.write_all(l.as_bytes()).is_err() || said.next().is_none() {
                    return;
                }
                counts.fetch_add(1, Relaxed);
            }
        });
        Ok(Load { stop, stored, child, thread })
    }

    /// Rows said to be stored are those below.
    fn end(mut self) -> Result<u64> {
        self.stop.store(true, Relaxed);
        let ended = wait_until("a database's statement ends", LIMIT, || self.thread.is_finished());
        let _ = self.child.kill();
        let _ = self.child.wait();
        ended?;
        ensure!(self.thread.join().is_ok(), "a load ended in a panic");
        Ok(self.stored.load(Relaxed))
    }
}

/// One round: the disk of `target` fails under all databases, then its page cache is gone.
fn round(fs: &TestFs, thin: &Thin, databases: &[Box<dyn Database>], from: &mut [u64]) -> Result<()> {
    let servers = fs.servers()?;
    let loads: Vec<Load> =
        databases.iter().zip(&*from).map(|(d, f)| Load::start(d.as_ref(), *f)).collect::<Result<_>>()?;
    wait_until("every database adds rows", LIMIT, || {
        loads.iter().zip(&*from).all(|(l, f)| l.stored.load(Relaxed) > f + 5)
    })?;
    thin.fill(256 << 10)?;
    let noticed = wait_until("the target notices", LIMIT, || {
        servers.iter().any(|p| !alive(*p))
            || fs.status().is_ok_and(|s| s["processes"].to_string().contains("read-only"))
    });
    std::thread::sleep(Duration::from_secs(env_number("NACRE_FAILING_DISK_SECONDS").unwrap_or(2)));
    thin.make_room()?;
    thin.lose_power(fs)?;
    fs.up_again()?;
    noticed?;
    let stored: Vec<u64> = loads.into_iter().map(Load::end).collect::<Result<_>>()?;
    for ((d, below), from) in databases.iter().zip(stored).zip(from) {
        let rows = d.rows().with_context(|| format!("{} after its disk failed", d.name()))?;
        ensure!(rows.windows(2).all(|w| w[0] < w[1]), "{}: rows twice", d.name());
        let lost: Vec<u64> = (0..below).filter(|k| rows.binary_search(k).is_err()).collect();
        ensure!(
            lost.is_empty(),
            "{} lost {} rows it had stored, {:?} first",
            d.name(),
            lost.len(),
            lost.first()
        );
        // One more may be there, of which nobody was told.
        ensure!(rows.len() as u64 <= below + 1, "{}: {} rows of {below}", d.name(), rows.len());
        eprintln!("{}: {} rows of {below} that were told", d.name(), rows.len());
        *from = rows.len() as u64;
    }
    Ok(())
}

fn databases_over(name: &str, target: &str) -> Result<()> {
    let fs = TestFs::up(name, 1, 1)?;
    fs.down()?;
    let Some(thin) = Thin::under(&fs, target)? else { return fs.fsck() };
    fs.up_again()?;
    let mut databases: Vec<Box<dyn Database>> =
        vec![Box::new(Sqlite::new(fs.mount(0))?), Box::new(Mails::new(fs.mount(0))?)];
    match Postgres::new(fs.mount(0), fs.scratch())? {
        Some(p) => databases.push(Box::new(p)),
        None => eprintln!("NOT TESTED: PostgreSQL is not installed"),
    }
    let mut from = vec![0; databases.len()];
    for r in 0..env_number("NACRE_FAILING_DISK_ROUNDS").unwrap_or(1) {
        round(&fs, &thin, &databases, &mut from).with_context(|| format!("round {r}"))?;
    }
    drop(databases);
    fs.fsck()
}

#[test]
fn databases_outlive_a_failing_disk_of_an_ost() -> Result<()> {
    databases_over("dbost", "ost0000")
}

#[test]
fn databases_outlive_a_failing_disk_of_an_mdt() -> Result<()> {
    databases_over("dbmdt", "mdt0000")
}
