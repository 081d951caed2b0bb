//! Traces in the JSON form of OpenTelemetry's protocol (OTLP): a document a line, as its file exporter writes
//! and its collector reads, and as `/v1/traces` of a collector takes it.

use model::span::{Finished, Kind};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Spans that wait for the others of their traces, at most.
const WAITING_MAX: usize = 20_000;
/// A trace is whole so long after its operation ended: what was left to others of its spans is over.
const SETTLE_NANOS: u128 = 1_000_000_000;
/// Of a trace whose operation did not end for so long, what there is is given.
const GIVEN_UP_NANOS: u128 = 600_000_000_000;
/// Kinds of spans by OTLP's numbers.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;

/// A span with the process that said it.
pub struct Told {
    pub process: String,
    pub span: Finished,
}

/// What is put together.
#[derive(Default)]
pub struct Traces {
    open: BTreeMap<u64, Vec<Told>>,
    waiting: usize,
    /// Spans that were dropped because there was no room.
    pub dropped: u64,
}

impl Traces {
    /// One more.
    pub fn add(&mut self, t: Told) {
        if self.waiting >= WAITING_MAX {
            self.dropped += 1;
            return;
        }
        self.waiting += 1;
        self.open.entry(t.span.trace).or_default().push(t);
    }

    /// Those that are whole by `now` (nanoseconds since 1970), or all; in the order of their beginnings.
    pub fn due(&mut self, now: u128, all: bool) -> Vec<Vec<Told>> {
        let is_due = |spans: &Vec<Told>| {
            let ended = spans.iter().find(|t| t.span.parent == 0).map(|t| t.span.end + SETTLE_NANOS);
            let last = spans.iter().map(|t| t.span.end + GIVEN_UP_NANOS).max().unwrap_or(0);
            all || now >= ended.unwrap_or(last)
        };
        let numbers: Vec<u64> = self.open.iter().filter(|(_, s)| is_due(s)).map(|(n, _)| *n).collect();
        let mut out: Vec<Vec<Told>> = numbers.iter().filter_map(|n| self.open.remove(n)).collect();
        let given: usize = out.iter().map(Vec::len).sum();
        assert!(given <= self.waiting, "who is given waited");
        self.waiting -= given;
        for spans in &mut out {
            spans.sort_by_key(|t| (t.span.begun, t.span.kind));
        }
        out.sort_by_key(|spans| spans.first().map(|t| t.span.begun));
        out
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn span(t: &Told) -> Value {
    let s = &t.span;
    let kind = match s.kind {
        Kind::Client | Kind::Disk => INTERNAL,
        Kind::Rpc => CLIENT,
        Kind::Server => SERVER,
    };
    let status = if s.status == "ok" { json!({}) } else { json!({"code": 2, "message": s.status}) };
    let parent = if s.parent == 0 { String::new() } else { format!("{:016x}", s.parent) };
    // Numbers of 64 bits are text there.
    json!({"traceId": format!("{:032x}", s.trace), "spanId": format!("{:016x}", s.span),
        "parentSpanId": parent, "name": s.name, "kind": kind,
        "startTimeUnixNano": s.begun.to_string(), "endTimeUnixNano": s.end.to_string(),
        "attributes": [text("nacre.kind", s.kind.name())], "status": status})
}

/// A trace as one document.
pub fn document(spans: &[Told], host: &str) -> Value {
    let mut by_process: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for t in spans {
        by_process.entry(&t.process).or_default().push(span(t));
    }
    let of = |(process, spans): (&str, Vec<Value>)| {
        // `nacred-17`: the service and its process.
        let (service, pid) = process.rsplit_once('-').unwrap_or((process, ""));
        json!({"resource": {"attributes": [text("service.name", service), text("host.name", host), text("process.pid", pid)]},
            "scopeSpans": [{"scope": {"name": "nacre", "version": crate::VERSION}, "spans": spans}]})
    };
    json!({"resourceSpans": by_process.into_iter().map(of).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(trace: u64, span: u64, parent: u64, kind: Kind, end: u128) -> Told {
        let span = Finished {
            trace,
            span,
            parent,
            kind,
            name: "n".into(),
            begun: end - 1,
            end,
            status: "ok".into(),
        };
        Told { process: if kind == Kind::Server { "nacred-7" } else { "mount-9" }.into(), span }
    }

    #[test]
    fn a_trace_is_given_once_and_whole() {
        let mut t = Traces::default();
        t.add(told(1, 3, 2, Kind::Server, 50));
        t.add(told(1, 1, 0, Kind::Client, 100));
        t.add(told(2, 9, 8, Kind::Server, 10));
        assert!(t.due(100 + SETTLE_NANOS - 1, false).is_empty());
        t.add(told(1, 2, 1, Kind::Rpc, 60));
        let got = t.due(100 + SETTLE_NANOS, false);
        assert_eq!(got.len(), 1);
        let kinds: Vec<Kind> = got[0].iter().map(|t| t.span.kind).collect();
        assert_eq!(kinds, [Kind::Server, Kind::Rpc, Kind::Client], "by their beginnings");
        assert!(t.due(100 + SETTLE_NANOS, false).is_empty());
        assert_eq!(t.due(10 + GIVEN_UP_NANOS, false).len(), 1, "one whose operation was not seen");
        assert_eq!(t.waiting, 0);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut t = Traces::default();
        for n in 0..WAITING_MAX as u64 + 5 {
            t.add(told(n + 1, 1, 1, Kind::Rpc, 5));
        }
        assert_eq!((t.dropped, t.due(0, true).len()), (5, WAITING_MAX));
    }

    #[test]
    fn a_document_has_one_trace_id_and_a_resource_for_each_process() {
        let mut failed = told(1, 3, 2, Kind::Server, 50);
        failed.span.status = "No space left on device".into();
        let d = document(&[told(1, 1, 0, Kind::Client, 100), failed], "h1");
        let all = d["resourceSpans"].as_array().unwrap();
        assert_eq!(all.len(), 2);
        let spans: Vec<&Value> = all.iter().map(|r| &r["scopeSpans"][0]["spans"][0]).collect();
        assert!(spans.iter().all(|s| s["traceId"] == "00000000000000000000000000000001"), "{d}");
        assert_eq!(spans[0]["parentSpanId"], "");
        assert_eq!(spans[1]["parentSpanId"], "0000000000000002");
        assert_eq!(spans[1]["status"], json!({"code": 2, "message": "No space left on device"}));
        assert_eq!(all[1]["resource"]["attributes"][0], text("service.name", "nacred"));
    }
}
