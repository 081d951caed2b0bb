//! Reading the documents that commands give: what is missing reads as nothing, so that a page can be made of
//! what an older or newer program says.

use admin::size::human;
use serde_json::Value;

pub fn text<'a>(v: &'a Value, name: &str) -> &'a str {
    v[name].as_str().unwrap_or_default()
}

pub fn number(v: &Value, name: &str) -> u64 {
    v[name].as_u64().unwrap_or_default()
}

pub fn list<'a>(v: &'a Value, name: &str) -> &'a [Value] {
    v[name].as_array().map_or(&[], Vec::as_slice)
}

pub fn bytes(n: u64) -> String {
    human(n, 1024)
}

/// Rounded up, as `lfs df` has it.
pub fn percent(used: u64, available: u64) -> u64 {
    let whole = u128::from(used) + u128::from(available);
    if whole == 0 { 0 } else { (u128::from(used) * 100).div_ceil(whole) as u64 }
}

/// A moment as people read it, in the host's time.
pub fn moment(seconds: i64) -> String {
    match world::sys::local_time(seconds) {
        Some(t) if seconds > 0 => {
            format!("{:04}-{:02}-{:02} {:02}:{:02}", t.year, t.month, t.day, t.hour, t.minute)
        }
        _ => "–".into(),
    }
}
