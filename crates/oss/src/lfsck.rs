//! What a metadata target that compares objects with layouts has seen of this target:
//! `obdfilter.*.lfsck_layout`. What is found and done is the metadata target's to say.

use model::Timestamp;
use model::mutex::Mutex;

/// Which page was shown.
pub struct Seen {
    pub first: bool,
    pub last: bool,
}

#[derive(Default)]
struct Progress {
    started: i64,
    checked: i64,
    completed: i64,
    objects: u64,
    under_way: bool,
    success: u64,
}

/// Since the start of this target.
#[derive(Default)]
pub struct Lfsck(Mutex<Progress>);

impl Lfsck {
    /// A page of so many objects was shown.
    pub fn saw(&self, page: Seen, objects: u64, now: Timestamp) {
        let mut p = self.0.lock();
        if page.first {
            (p.started, p.objects, p.under_way) = (now.sec, 0, true);
        }
        p.objects = p.objects.saturating_add(objects);
        p.checked = now.sec;
        if page.last && p.under_way {
            (p.completed, p.under_way) = (now.sec, false);
            p.success = p.success.saturating_add(1);
        }
    }

    /// `name: value` lines.
    pub fn text(&self, now: i64) -> String {
        let p = self.0.lock();
        let status = match (p.started, p.under_way) {
            (0, _) => "init",
            (_, true) => "scanning-phase2",
            (_, false) => "completed",
        };
        let at = |t: i64| if t == 0 { "N/A".into() } else { t.to_string() };
        let ago =
            |t: i64| if t == 0 { "N/A".into() } else { format!("{} seconds", now.saturating_sub(t).max(0)) };
        [
            ("name", "lfsck_layout".to_string()),
            ("magic", "0xB173AE14".into()),
            ("version", "1".into()),
            ("status", status.into()),
            ("flags", String::new()),
            ("param", String::new()),
            ("last_completed_time", at(p.completed)),
            ("time_since_last_completed", ago(p.completed)),
            ("latest_start_time", at(p.started)),
            ("time_since_latest_start", ago(p.started)),
            ("last_checkpoint_time", at(p.checked)),
            ("time_since_last_checkpoint", ago(p.checked)),
            ("checked_phase1", "0".into()),
            ("checked_phase2", p.objects.to_string()),
            ("success_count", p.success.to_string()),
        ]
        .map(|(name, v)| format!("{name}: {v}"))
        .join("\n")
    }
}
