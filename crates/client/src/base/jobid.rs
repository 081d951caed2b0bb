//! The job ids that requests carry: `jobid_var` says where they come from, `jobid_name` what they are made
//! of.
//!
//! Nothing is looked at before a job id is needed: for a request, or for what is kept here to be sent later,
//! when the process may be gone. Where none is wanted (`disable`) it costs the look at a flag.

use crate::Call;
use model::limits::JOBID_MAX_BYTES;
use model::mutex::Mutex;
use model::{Errno, Map};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use world::{Instant, host, sys};

/// `jobid_var` and `jobid_name` unless set otherwise.
pub(crate) const VAR_DEFAULT: &str = "disable";
pub(crate) const NAME_DEFAULT: &str = PROCNAME_UID;
/// What `procname_uid` makes, and what stands for a variable that a process does not have.
const PROCNAME_UID: &str = "%e.%u";
/// Longest name of a variable.
const VARIABLE_MAX_BYTES: usize = 64;
/// What was found in the environment of a process is not looked for again for so long, as in Lustre.
const FOUND_AGE: Duration = Duration::from_secs(30);
/// Processes of which that is remembered.
const PROCESSES_MAX: usize = 4096;
/// How long a look into an environment may take. It waits for an execve(2) of the process that is under way,
/// and for others who change its memory, and these may wait for this mount.
const LOOK_PATIENCE: Duration = Duration::from_millis(50);
/// Sessions that have a job id.
const SESSIONS_MAX: usize = 1024;

/// For which job something is done; `None`: for no job.
pub(crate) type JobId = Option<Arc<str>>;

/// Where job ids come from.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Source {
    Disable,
    NodeLocal,
    ProcnameUid,
    Session,
    Variable(String),
}

impl Source {
    /// As `jobid_var` says it. `EINVAL` for what cannot be the name of a variable.
    fn parse(text: &str) -> Result<Source, Errno> {
        let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        match text {
            "disable" => Ok(Source::Disable),
            "nodelocal" => Ok(Source::NodeLocal),
            "procname_uid" | "procname.uid" => Ok(Source::ProcnameUid),
            "session" => Ok(Source::Session),
            v if v.is_empty() || v.len() > VARIABLE_MAX_BYTES => Err(Errno::EINVAL),
            v if v.starts_with(|c: char| c.is_ascii_digit()) || !v.chars().all(name) => Err(Errno::EINVAL),
            v => Ok(Source::Variable(v.to_string())),
        }
    }

    fn text(&self) -> &str {
        match self {
            Source::Disable => "disable",
            Source::NodeLocal => "nodelocal",
            Source::ProcnameUid => "procname_uid",
            Source::Session => "session",
            Source::Variable(v) => v,
        }
    }
}

pub(crate) fn is_var(text: &str) -> Result<(), Errno> {
    Source::parse(text).map(drop)
}

pub(crate) fn is_name(text: &str) -> Result<(), Errno> {
    if (1..=JOBID_MAX_BYTES).contains(&text.len()) { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Whether this says the job id of a session: `SESSION:JOBID`, or `SESSION:` for none any more.
pub(crate) fn is_of_session(text: &str) -> Result<(), Errno> {
    of_session(text).map(drop)
}

fn of_session(text: &str) -> Result<(u32, &str), Errno> {
    let (session, id) = text.split_once(':').ok_or(Errno::EINVAL)?;
    let session = session.parse().map_err(|_| Errno::EINVAL)?;
    if id.len() > JOBID_MAX_BYTES { Err(Errno::EINVAL) } else { Ok((session, id)) }
}

/// What this host tells of itself and of its processes.
trait Processes: Send + Sync {
    fn hostname(&self) -> String;
    /// The name of the program that a thread runs; `None` if there is no such thread.
    fn command(&self, pid: u32) -> Option<String>;
    fn variable(&self, pid: u32, name: &str) -> Option<String>;
    /// The session that it belongs to.
    fn session(&self, pid: u32) -> Option<u32>;
}

/// Those of the kernel.
struct Kernel;

impl Processes for Kernel {
    fn hostname(&self) -> String {
        sys::hostname()
    }

    fn command(&self, pid: u32) -> Option<String> {
        host::command_of(pid)
    }

    fn variable(&self, pid: u32, name: &str) -> Option<String> {
        host::variable_of(pid, name, LOOK_PATIENCE)
    }

    fn session(&self, pid: u32) -> Option<u32> {
        host::session_of(pid)
    }
}

#[derive(Clone)]
struct Settings {
    source: Source,
    name: Arc<str>,
}

/// What a process had in its environment when it was looked at.
struct Found {
    /// The program that it was then: another has another environment.
    command: String,
    value: JobId,
    at: Instant,
}

/// How job ids are made, and what is remembered for it.
pub(crate) struct JobIds {
    /// Whether anything has one, but for callers that bring their own.
    enabled: AtomicBool,
    settings: Mutex<Settings>,
    found: Mutex<Map<u32, Found>>,
    /// `jobid_this_session`: the oldest first.
    sessions: Mutex<VecDeque<(u32, Arc<str>)>>,
    processes: Box<dyn Processes>,
}

impl JobIds {
    pub(crate) fn new() -> JobIds {
        JobIds::asking(Box::new(Kernel))
    }

    fn asking(processes: Box<dyn Processes>) -> JobIds {
        let settings = Settings { source: Source::Disable, name: NAME_DEFAULT.into() };
        JobIds {
            enabled: AtomicBool::new(false),
            settings: Mutex::new(settings),
            found: Mutex::default(),
            sessions: Mutex::default(),
            processes,
        }
    }

    pub(crate) fn var(&self) -> String {
        self.settings.lock().source.text().to_string()
    }

    pub(crate) fn set_var(&self, var: &str) -> Result<(), Errno> {
        let source = Source::parse(var)?;
        self.enabled.store(source != Source::Disable, Relaxed);
        self.settings.lock().source = source;
        self.found.lock().clear();
        Ok(())
    }

    pub(crate) fn name(&self) -> String {
        self.settings.lock().name.to_string()
    }

    pub(crate) fn set_name(&self, name: &str) {
        self.settings.lock().name = name.into();
    }

    /// The sessions that have a job id, a line each.
    pub(crate) fn sessions(&self) -> String {
        self.sessions.lock().iter().map(|(s, id)| format!("{s}:{id}")).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn set_session(&self, text: &str) -> Result<(), Errno> {
        let (session, id) = of_session(text)?;
        let mut all = self.sessions.lock();
        all.retain(|(s, _)| *s != session);
        if !id.is_empty() {
            all.push_back((session, id.into()));
        }
        if all.len() > SESSIONS_MAX {
            all.pop_front();
        }
        assert!(all.len() <= SESSIONS_MAX, "so many sessions have a job id and no more");
        Ok(())
    }

    /// That of this caller.
    pub(crate) fn of(&self, call: &Call, now: impl FnOnce() -> Instant) -> JobId {
        if call.jobid.is_some() || !self.enabled.load(Relaxed) {
            return call.jobid.clone();
        }
        let Settings { source, name } = self.settings.lock().clone();
        match source {
            Source::Disable => None,
            Source::NodeLocal => self.expand(&name, call, ""),
            Source::ProcnameUid => self.expand(PROCNAME_UID, call, ""),
            Source::Session => self.of_session(call.pid),
            Source::Variable(v) => match self.variable(call.pid, &v, now) {
                Some(job) if name.contains("%j") => self.expand(&name, call, &job),
                Some(job) => cut(job.to_string()),
                None => self.expand(PROCNAME_UID, call, ""),
            },
        }
    }

    /// That of what the mount does by itself: none, unless everything on this host belongs to one job.
    pub(crate) fn of_mount(&self) -> JobId {
        if !self.enabled.load(Relaxed) {
            return None;
        }
        let Settings { source, name } = self.settings.lock().clone();
        let of_processes = ["%e", "%u", "%g", "%p"].iter().any(|field| name.contains(field));
        let whole = source == Source::NodeLocal && !of_processes;
        if whole { self.expand(&name, &Call::default(), "") } else { None }
    }

    fn of_session(&self, pid: u32) -> JobId {
        let session = self.processes.session(pid).filter(|_| pid != 0)?;
        self.sessions.lock().iter().find(|(s, _)| *s == session).map(|(_, id)| id.clone())
    }

    /// What a process has in its environment under this name, a moment ago or lately.
    fn variable(&self, pid: u32, name: &str, now: impl FnOnce() -> Instant) -> JobId {
        if pid == 0 {
            return None;
        }
        let (command, now) = (self.processes.command(pid), now());
        {
            let found = self.found.lock();
            // Of one that is gone nothing newer will be known.
            let good =
                |f: &&Found| now.since(f.at) < FOUND_AGE && command.as_ref().is_none_or(|c| *c == f.command);
            if let Some(f) = found.get(&pid).filter(good) {
                return f.value.clone();
            }
        }
        let command = command?;
        let value: JobId = self.processes.variable(pid, name).filter(|v| !v.is_empty()).map(Into::into);
        let mut found = self.found.lock();
        if found.len() >= PROCESSES_MAX {
            found.retain(|_, f| now.since(f.at) < FOUND_AGE);
        }
        if found.len() >= PROCESSES_MAX {
            found.clear();
        }
        found.insert(pid, Found { command, value: value.clone(), at: now });
        assert!(found.len() <= PROCESSES_MAX, "so many processes are remembered and no more");
        value
    }

    /// `None`: it names the program of a process of which nothing is known, or comes to nothing.
    fn expand(&self, format: &str, call: &Call, job: &str) -> JobId {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            match chars.next() {
                Some('e') => out.push_str(&self.processes.command(call.pid).filter(|_| call.pid != 0)?),
                Some('g') => out.push_str(&call.cred.gid.to_string()),
                Some('h') => out.push_str(&self.processes.hostname()),
                Some('H') => out.push_str(self.processes.hostname().split('.').next().unwrap_or_default()),
                Some('j') => out.push_str(job),
                Some('p') => out.push_str(&call.pid.to_string()),
                Some('u') => out.push_str(&call.cred.uid.to_string()),
                Some(other) => out.push(other),
                None => {}
            }
        }
        cut(out)
    }
}

/// As much of it as a job id may have.
fn cut(mut id: String) -> JobId {
    id.truncate(id.floor_char_boundary(JOBID_MAX_BYTES));
    (!id.is_empty()).then(|| id.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Processes 1 (`bash`, which may become another), 2 (`dd`), and any number of others.
    #[derive(Default)]
    struct Fake {
        looks: AtomicUsize,
        command: Mutex<Option<&'static str>>,
        gone: AtomicBool,
    }

    impl Processes for Arc<Fake> {
        fn hostname(&self) -> String {
            "node7.example.org".into()
        }

        fn command(&self, pid: u32) -> Option<String> {
            let one = || self.command.lock().unwrap_or("bash").to_string();
            (!self.gone.load(Relaxed)).then(|| if pid == 1 { one() } else { "dd".into() })
        }

        fn variable(&self, pid: u32, name: &str) -> Option<String> {
            self.looks.fetch_add(1, Relaxed);
            (pid != 2 && name == "SLURM_JOB_ID").then(|| format!("{pid}00"))
        }

        fn session(&self, pid: u32) -> Option<u32> {
            (pid < 10).then_some(77)
        }
    }

    fn call(pid: u32) -> Call {
        Call { cred: model::Cred::new(7, 8), pid, ..Call::default() }
    }

    fn ids() -> (JobIds, Arc<Fake>) {
        let fake = Arc::<Fake>::default();
        (JobIds::asking(Box::new(fake.clone())), fake)
    }

    fn text(id: JobId) -> String {
        id.as_deref().unwrap_or("-").to_string()
    }

    #[test]
    fn each_source_gives_what_lustre_gives() {
        let (j, _) = ids();
        let of = |pid| text(j.of(&call(pid), || Instant(1)));
        assert_eq!((of(1), text(j.of_mount())), ("-".into(), "-".into()), "as long as it is off");
        let own = Call { jobid: Some("own".into()), ..call(1) };
        assert_eq!(text(j.of(&own, || unreachable!())), "own");
        for (var, name, one, two) in [
            ("procname_uid", "%u", "bash.7", "dd.7"),
            ("nodelocal", "a%u.%g.%p%%%e", "a7.8.1%bash", "a7.8.2%dd"),
            ("nodelocal", "%h/%H%j%", "node7.example.org/node7", "node7.example.org/node7"),
            ("SLURM_JOB_ID", "%e.%u", "100", "dd.7"),
            ("SLURM_JOB_ID", "%j:%H", "100:node7", "dd.7"),
            ("OTHER", "%e.%u", "bash.7", "dd.7"),
            ("session", "%e.%u", "-", "-"),
        ] {
            j.set_var(var).unwrap();
            j.set_name(name);
            assert_eq!((of(1), of(2), j.var()), (one.into(), two.into(), var.into()));
            // Nothing is known of a caller without a process, and the mount's own requests are nobody's.
            let known = ["nodelocal", "session"].contains(&var) && !name.contains("%e");
            assert!(of(0) == "-" || known, "{var}");
            assert_eq!(j.of_mount().is_some(), name == "%h/%H%j%", "{var} {name}");
        }
        j.set_session("77:my job").unwrap();
        assert_eq!((of(1), of(10), j.sessions()), ("my job".into(), "-".into(), "77:my job".into()));
        j.set_session("77:").unwrap();
        assert_eq!((of(1), j.sessions()), ("-".into(), String::new()));
        assert_eq!(j.set_var("procname.uid"), Ok(()));
        assert_eq!(j.var(), "procname_uid");
    }

    #[test]
    fn settings_are_checked_and_job_ids_bounded() {
        let long = "X".repeat(VARIABLE_MAX_BYTES + 1);
        for bad in ["", "1X", "A-B", "A B", &long] {
            assert_eq!(is_var(bad), Err(Errno::EINVAL), "{bad}");
        }
        for bad in ["", "x", "x:y", "5", "5:01234567890123456789012345678901"] {
            assert_eq!(is_of_session(bad), Err(Errno::EINVAL), "{bad}");
        }
        assert_eq!(cut("ä".repeat(100)).unwrap().len(), 30);
        let (j, _) = ids();
        (0..2000).for_each(|n| j.set_session(&format!("{n}:x")).unwrap());
        let all = j.sessions();
        assert!(all.lines().count() == SESSIONS_MAX && all.ends_with("1999:x"), "the oldest went");
    }

    #[test]
    fn an_environment_is_looked_at_once_in_a_while() {
        let (j, fake) = ids();
        j.set_var("SLURM_JOB_ID").unwrap();
        let of = |pid, s: u64| text(j.of(&call(pid), || Instant(s * 1_000_000_000)));
        let looks = || fake.looks.swap(0, Relaxed);
        assert_eq!(
            (of(1, 1), of(1, 30), of(2, 1), of(2, 30)),
            ("100".into(), "100".into(), "dd.7".into(), "dd.7".into())
        );
        assert_eq!(looks(), 2, "also that there is none");
        assert_eq!((of(1, 31), looks()), ("100".into(), 1), "it is too old");
        *fake.command.lock() = Some("sleep");
        assert_eq!((of(1, 32), looks()), ("100".into(), 1), "another program");
        fake.gone.store(true, Relaxed);
        assert_eq!((of(1, 33), of(3, 33), looks()), ("100".into(), "-".into(), 0), "it ended");
        fake.gone.store(false, Relaxed);
        (10..3 * PROCESSES_MAX as u32).for_each(|pid| drop(of(pid, 40)));
        assert!(j.found.lock().len() <= PROCESSES_MAX);
        j.set_var("OTHER").unwrap();
        assert!(j.found.lock().is_empty(), "it was about another variable");
    }
}
