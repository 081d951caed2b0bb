//! What a parameter or statistic is at a moment, typed; the text that `lctl get_param` shows is made from it.

use crate::counters::Samples;
use crate::histogram::Histograms;
use crate::jobs::JobStats;

/// A value; its text is what users see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Number(u64),
    Signed(i64),
    /// `0` or `1`.
    Flag(bool),
    Text(String),
    Fields(Vec<Field>),
    Counters(Samples),
    Histograms(Histograms),
    Jobs(JobStats),
}

/// A number under a name; whether it only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    pub name: &'static str,
    pub value: u64,
    pub grows: bool,
}

impl Field {
    /// A number that only grows.
    pub const fn counter(name: &'static str, value: u64) -> Field {
        Field { name, value, grows: true }
    }

    /// One that goes up and down.
    pub const fn gauge(name: &'static str, value: u64) -> Field {
        Field { name, value, grows: false }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Number(n) => n.fmt(f),
            Value::Signed(n) => n.fmt(f),
            Value::Flag(on) => u8::from(*on).fmt(f),
            Value::Text(s) => f.write_str(s),
            Value::Fields(all) => {
                let line = |f: &Field| format!("{}: {}", f.name, f.value);
                f.write_str(&all.iter().map(line).collect::<Vec<_>>().join("\n"))
            }
            Value::Counters(c) => c.fmt(f),
            Value::Histograms(h) => h.fmt(f),
            Value::Jobs(j) => j.fmt(f),
        }
    }
}

impl From<u64> for Value {
    fn from(n: u64) -> Value {
        Value::Number(n)
    }
}

impl From<u32> for Value {
    fn from(n: u32) -> Value {
        Value::Number(n.into())
    }
}

impl From<usize> for Value {
    fn from(n: usize) -> Value {
        Value::Number(n as u64)
    }
}

impl From<bool> for Value {
    fn from(on: bool) -> Value {
        Value::Flag(on)
    }
}

impl From<String> for Value {
    fn from(s: String) -> Value {
        Value::Text(s)
    }
}

impl From<&str> for Value {
    fn from(s: &str) -> Value {
        Value::Text(s.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_made_from_values() {
        let fields = vec![Field::counter("hits", 3), Field::gauge("bytes", 4096)];
        for (v, text) in [
            (Value::from(7u64), "7"),
            (Value::Signed(-1), "-1"),
            (Value::from(true), "1"),
            (Value::from("a\nb"), "a\nb"),
            (Value::Fields(fields), "hits: 3\nbytes: 4096"),
        ] {
            assert_eq!(v.to_string(), text);
        }
    }
}
