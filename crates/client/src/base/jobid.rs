//! The job id that requests carry: `jobid_var` and `jobid_name`.

use crate::Call;
use model::limits::JOBID_MAX_BYTES;
use model::mutex::{Mutex, MutexGuard};

/// `jobid_var` and `jobid_name` unless set otherwise.
pub(crate) const VAR_DEFAULT: &str = "disable";
pub(crate) const NAME_DEFAULT: &str = "%u";

/// Where job ids come from (`disable` or `nodelocal`), and how one is made.
pub(crate) struct JobId(Mutex<(String, String)>);

impl JobId {
    pub(crate) fn new() -> JobId {
        JobId(Mutex::new((VAR_DEFAULT.to_string(), NAME_DEFAULT.to_string())))
    }

    fn lock(&self) -> MutexGuard<'_, (String, String)> {
        self.0.lock()
    }

    pub(crate) fn var(&self) -> String {
        self.lock().0.clone()
    }

    pub(crate) fn set_var(&self, var: &str) {
        self.lock().0 = var.to_string();
    }

    pub(crate) fn name(&self) -> String {
        self.lock().1.clone()
    }

    pub(crate) fn set_name(&self, name: &str) {
        self.lock().1 = name.to_string();
    }

    /// That of this caller; empty for none.
    pub(crate) fn of(&self, call: &Call) -> String {
        if let Some(own) = &call.jobid {
            return own.to_string();
        }
        let j = self.lock();
        if j.0 == "nodelocal" { expand(&j.1, call) } else { String::new() }
    }
}

fn expand(format: &str, call: &Call) -> String {
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '%' { chars.next() } else { None }) {
            ('%', Some('u')) => out.push_str(&call.cred.uid.to_string()),
            ('%', Some('g')) => out.push_str(&call.cred.gid.to_string()),
            ('%', Some('p')) => out.push_str(&call.pid.to_string()),
            ('%', Some(x)) => out.push(x),
            (c, _) => out.push(c),
        }
    }
    let mut end = out.len().min(JOBID_MAX_BYTES);
    while !out.is_char_boundary(end) {
        end -= 1;
    }
    out.truncate(end);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_ids_are_bounded() {
        let call = Call { cred: model::Cred::new(7, 8), pid: 9, umask: 0, jobid: None };
        assert_eq!(expand("a%u.%g.%p%%", &call), "a7.8.9%");
        assert_eq!(expand(&"ä".repeat(100), &call).len(), 30);
    }
}
