//! What jobs do on the targets of a file system: `lljobstat` of those on this host, `nacre top jobs` of all.

pub mod lljobstat;
pub mod top;

use crate::failure::Failure;
use model::Errno;
use std::collections::BTreeMap;

/// What a job did, by operations.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Done {
    /// How often each was done, by Lustre's names.
    pub operations: BTreeMap<String, u64>,
    pub read_bytes: u64,
    pub write_bytes: u64,
}

/// By job ids.
pub type Jobs = BTreeMap<String, Done>;

impl Done {
    pub fn ops(&self) -> u64 {
        self.operations.values().fold(0, |all, n| all.saturating_add(*n))
    }

    pub fn add(&mut self, more: &Done) {
        for (name, n) in &more.operations {
            let at = self.operations.entry(name.clone()).or_default();
            *at = at.saturating_add(*n);
        }
        self.read_bytes = self.read_bytes.saturating_add(more.read_bytes);
        self.write_bytes = self.write_bytes.saturating_add(more.write_bytes);
    }

    /// What was done since `before`; all of it, if the job began anew meanwhile.
    pub fn since(&self, before: &Done) -> Done {
        let of = |name: &String, n: u64| n.checked_sub(*before.operations.get(name).unwrap_or(&0));
        let operations: Option<BTreeMap<_, _>> =
            self.operations.iter().map(|(name, n)| Some((name.clone(), of(name, *n)?))).collect();
        let bytes = self.read_bytes.checked_sub(before.read_bytes);
        let (Some(mut operations), Some(read_bytes), Some(write_bytes)) =
            (operations, bytes, self.write_bytes.checked_sub(before.write_bytes))
        else {
            return self.clone();
        };
        operations.retain(|_, n| *n > 0);
        Done { operations, read_bytes, write_bytes }
    }
}

/// Operations with their abbreviations in `lljobstat`, in the order in which they are shown.
const OPERATIONS: [(&str, &str); 25] = [
    ("open", "op"),
    ("close", "cl"),
    ("mknod", "mn"),
    ("link", "ln"),
    ("unlink", "ul"),
    ("mkdir", "mk"),
    ("rmdir", "rm"),
    ("rename", "mv"),
    ("getattr", "ga"),
    ("setattr", "sa"),
    ("getxattr", "gx"),
    ("setxattr", "sx"),
    ("statfs", "st"),
    ("sync", "sy"),
    ("read", "rd"),
    ("write", "wr"),
    ("punch", "pu"),
    ("migrate", "mi"),
    ("fallocate", "fa"),
    ("destroy", "dt"),
    ("create", "cr"),
    ("get_info", "gi"),
    ("set_info", "si"),
    ("quotactl", "qc"),
    ("prealloc", "pa"),
];

/// Which renames those were that are counted already.
const KINDS_OF_RENAMES: [&str; 2] = ["samedir_rename", "crossdir_rename"];

/// The operations of a job in that order, with names and abbreviations. Others have no abbreviation.
fn in_order(done: &Done) -> Vec<(&str, &str, u64)> {
    let known =
        OPERATIONS.iter().filter_map(|(name, short)| Some((*name, *short, *done.operations.get(*name)?)));
    let is_known = |name: &str| OPERATIONS.iter().any(|(k, _)| *k == name);
    let others = done.operations.iter().filter(|(name, _)| !is_known(name));
    known.chain(others.map(|(name, n)| (&name[..], &name[..], *n))).filter(|(.., n)| *n > 0).collect()
}

/// The jobs with the most operations, the first one first.
fn busiest(jobs: &Jobs, count: usize) -> Vec<(&str, &Done)> {
    let mut all: Vec<(&str, &Done)> =
        jobs.iter().map(|(id, d)| (&id[..], d)).filter(|(_, d)| d.ops() > 0).collect();
    all.sort_by(|a, b| b.1.ops().cmp(&a.1.ops()).then(a.0.cmp(b.0)));
    all.truncate(count);
    all
}

/// A job id as YAML has it.
fn unquoted(text: &str) -> Option<String> {
    let Some(inner) = text.strip_prefix('"') else { return Some(text.to_string()) };
    let (mut out, mut chars) = (String::new(), inner.strip_suffix('"')?.chars());
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('x')) => {
                let hex: String = chars.by_ref().take(2).collect();
                out.push(char::from(u8::from_str_radix(&hex, 16).ok()?));
            }
            ('\\', escaped) => out.push(escaped?),
            (c, _) => out.push(c),
        }
    }
    Some(out)
}

/// A number behind its name in `{ samples: 3, unit: usecs, ... }`.
fn number(fields: &str, name: &str) -> Option<u64> {
    let parts = fields.trim_matches(['{', '}', ' ']).split(',');
    parts.filter_map(|p| p.split_once(':')).find(|(n, _)| n.trim() == name)?.1.trim().parse().ok()
}

/// Adds what a target's `job_stats` says. `None`: it cannot be read.
fn parse(text: &str, jobs: &mut Jobs) -> Option<()> {
    let mut lines = text.lines();
    if lines.next()?.trim() != "job_stats:" {
        return None;
    }
    let (mut id, mut done) = (None, Done::default());
    let mut put = |id: Option<String>, done: &Done| {
        if let Some(id) = id {
            jobs.entry(id).or_default().add(done);
        }
    };
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let (name, value) = (name.trim(), value.trim());
        match name {
            "- job_id" => {
                put(id.take(), &std::mem::take(&mut done));
                id = Some(unquoted(value)?);
            }
            "read_bytes" => done.read_bytes = number(value, "sum")?,
            "write_bytes" => done.write_bytes = number(value, "sum")?,
            name if value.starts_with('{') && !KINDS_OF_RENAMES.contains(&name) => {
                done.operations.insert(name.to_string(), number(value, "samples")?);
            }
            _ => {}
        }
    }
    put(id, &done);
    Some(())
}

/// Adds what a target's `job_stats` says.
pub fn add(target: &str, text: &str, jobs: &mut Jobs) -> Result<(), Failure> {
    parse(text, jobs).ok_or_else(|| {
        let why = "job_stats that this program does not understand";
        Failure::explained("cannot read answer of", target, Errno::EPROTO, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;
    use model::jobs::Jobs as Served;

    model::counters! {
        pub enum What {
            Open = "open" in "usecs",
            Rename = "rename" in "usecs",
            SamedirRename = "samedir_rename" in "usecs",
            WriteBytes = "write_bytes" in "bytes",
            Write = "write" in "usecs",
            Objseek = "objseek" in "usecs",
        }
    }

    /// What a target shows of two jobs.
    pub(super) fn served() -> String {
        let s = Served::<What>::of_set();
        let now = || Timestamp { sec: 7, nsec: 1 };
        let dd = s.of("dd.0", now).unwrap();
        for (what, n, value) in
            [(What::Open, 4, 10), (What::Write, 19, 30), (What::WriteBytes, 19, 4096), (What::Objseek, 2, 1)]
        {
            (0..n).for_each(|_| dd.stats.add(what, value));
        }
        let odd = s.of("a \"b\": {\n", now).unwrap();
        (0..3).for_each(|_| odd.stats.add(What::Rename, 5));
        (0..3).for_each(|_| odd.stats.add(What::SamedirRename, 5));
        s.of("idle", now).unwrap();
        s.text(now())
    }

    #[test]
    fn what_targets_show_is_read_and_added_up() {
        let mut jobs = Jobs::new();
        add("x", &served(), &mut jobs).unwrap();
        assert_eq!((jobs["dd.0"].ops(), jobs["dd.0"].write_bytes), (25, 19 * 4096));
        assert_eq!(jobs["a \"b\": {\n"].ops(), 3, "a rename is one operation");
        let first = jobs.clone();
        add("x", &served(), &mut jobs).unwrap();
        let ids: Vec<&str> = busiest(&jobs, 5).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["dd.0", "a \"b\": {\n"], "who did nothing is not there");
        assert_eq!(busiest(&jobs, 1).len(), 1);
        assert_eq!(
            in_order(&first["dd.0"]),
            [("open", "op", 4), ("write", "wr", 19), ("objseek", "objseek", 2)]
        );
        let more = jobs["dd.0"].since(&first["dd.0"]);
        assert_eq!((more.ops(), more.write_bytes), (25, 19 * 4096));
        assert_eq!(first["dd.0"].since(&jobs["dd.0"]), first["dd.0"], "it began anew");
        let none = first["dd.0"].since(&first["dd.0"]);
        assert!(none.operations.is_empty() && none.write_bytes == 0);
    }

    #[test]
    fn what_is_no_job_stats_is_refused() {
        for bad in
            ["", "stats:", "job_stats:\n- job_id: \"x", "job_stats:\n- job_id: x\n  read_bytes: { sum: x }"]
        {
            assert!(add("x", bad, &mut Jobs::new()).is_err(), "{bad}");
        }
        assert!(add("x", "job_stats:", &mut Jobs::new()).is_ok());
    }
}
