//! Sends traces to a collector: OTLP's JSON form over HTTP, as its receiver takes it at port 4318.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use model::Errno;
use serde_json::{Value, json};
use std::io;
use std::time::Duration;
use world::sys::http::{self, Answer, Ask};

/// Of OTLP over HTTP.
const PORT_DEFAULT: u16 = 4318;
const PATH_DEFAULT: &str = "/v1/traces";
/// Of one request, about.
const BODY_MAX_BYTES: usize = 4 << 20;
/// For the answer to one.
const PATIENCE: Duration = Duration::from_secs(10);
/// For a request, whatever comes back.
const ATTEMPTS: u32 = 5;
/// After the first attempt, doubled after each.
const PAUSE: Duration = Duration::from_secs(1);
/// Of what a collector says that is shown.
const SAID_MAX_CHARS: usize = 200;

/// Where traces are sent.
#[derive(Debug)]
pub struct Collector {
    url: String,
    host: String,
    port: u16,
    path: String,
    pause: Duration,
}

/// What an attempt came to.
enum Outcome {
    Taken,
    /// It may be taken later.
    Later(Errno, String),
    Refused(String),
}

/// The words of a collector, on one line.
fn said(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(SAID_MAX_CHARS).collect()
}

fn outcome(r: io::Result<Answer>) -> Outcome {
    match r {
        Ok(a) if (200..300).contains(&a.status) => Outcome::Taken,
        Ok(a) if matches!(a.status, 429 | 502..=504) => {
            Outcome::Later(Errno::EBUSY, format!("it answered {} {}", a.status, said(&a.body)))
        }
        Ok(a) => Outcome::Refused(format!("it answered {} {}", a.status, said(&a.body))),
        Err(e) => {
            // What the system says is said by its number.
            let why = if e.raw_os_error().is_some() { "no answer".into() } else { e.to_string() };
            Outcome::Later(Errno::from(e), why)
        }
    }
}

/// Spans that it took no notice of, and why, if it says so.
fn partly(answer: &io::Result<Answer>) -> Option<String> {
    let doc: Value = serde_json::from_str(&answer.as_ref().ok()?.body).ok()?;
    let (part, message) = (&doc["partialSuccess"], doc["partialSuccess"]["errorMessage"].as_str());
    let rejected = part["rejectedSpans"].as_str().and_then(|n| n.parse().ok());
    let rejected: u64 = rejected.or_else(|| part["rejectedSpans"].as_u64()).unwrap_or(0);
    (rejected > 0)
        .then(|| format!("{rejected} spans were rejected: {}", said(message.unwrap_or("no word why"))))
}

/// Documents, a trace each, in as few as can be sent.
fn bodies(lines: &[String]) -> Vec<String> {
    let (mut out, mut open, mut size) = (Vec::new(), Vec::new(), 0);
    let mut close = |open: &mut Vec<Value>| {
        if !open.is_empty() {
            out.push(json!({"resourceSpans": std::mem::take(open)}).to_string());
        }
    };
    for line in lines {
        if size + line.len() > BODY_MAX_BYTES {
            close(&mut open);
            size = 0;
        }
        size += line.len();
        let doc: Value = serde_json::from_str(line).unwrap_or_default();
        open.extend(doc["resourceSpans"].as_array().into_iter().flatten().cloned());
    }
    close(&mut open);
    out
}

impl Collector {
    /// `http://HOST[:PORT][/PATH]`.
    pub fn parse(url: &str) -> Result<Collector, Failure> {
        let bad = |why: &str| Failure::usage(format!("'{url}' is no collector: {why}"));
        if !url.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(bad("a URL has no spaces and no other signs than ASCII has"));
        }
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(bad(
                "say http://HOST:PORT; nothing is encrypted (a collector on this host can do that)",
            ));
        };
        let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match place.strip_prefix('[').map(|p| p.split_once(']')) {
            Some(Some((host, ""))) => (host, None),
            Some(Some((host, port))) => (host, Some(port.strip_prefix(':').unwrap_or("none"))),
            Some(None) => return Err(bad("the address has no end")),
            None => place.rsplit_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() || host.contains('@') {
            return Err(bad("it has no host, or a name of somebody"));
        }
        let port = match port.map(str::parse) {
            None => PORT_DEFAULT,
            Some(Ok(n)) if n != 0 => n,
            Some(_) => return Err(bad("a port is a number from 1 to 65535")),
        };
        let path = if matches!(path, "" | "/") { PATH_DEFAULT } else { path };
        Ok(Collector { url: url.into(), host: host.into(), port, path: path.into(), pause: PAUSE })
    }

    fn post(&self, body: &str) -> io::Result<Answer> {
        let a = Ask {
            method: "POST",
            host: &self.host,
            port: self.port,
            path: &self.path,
            content_type: "application/json",
            body: body.as_bytes(),
        };
        http::ask(&a, PATIENCE)
    }

    /// Sends documents. One that is not taken is sent again, some seconds long; an interrupt ends that.
    pub fn send(&self, lines: &[String], i: &Interrupt) -> Result<(), Failure> {
        bodies(lines).iter().try_for_each(|b| self.send_one(i, || self.post(b)))
    }

    fn send_one(&self, i: &Interrupt, mut post: impl FnMut() -> io::Result<Answer>) -> Result<(), Failure> {
        let failed = |errno, why: &str| {
            let help = "is the OTLP receiver of a collector there, over HTTP?";
            Failure::explained("cannot send traces to", &self.url, errno, &format!("{why}: {help}"))
        };
        let mut tried = 0;
        loop {
            tried += 1;
            assert!(tried <= ATTEMPTS, "attempts are bounded");
            let answer = post();
            if let Some(why) = partly(&answer) {
                eprintln!("nacre trace: {}: {why}", self.url);
            }
            match outcome(answer) {
                Outcome::Taken => return Ok(()),
                Outcome::Refused(why) => return Err(failed(Errno::EPROTO, &why)),
                Outcome::Later(errno, why) if tried == ATTEMPTS || i.stopped() => {
                    return Err(failed(errno, &format!("attempt {tried}: {why}")));
                }
                Outcome::Later(..) => i.pause(self.pause * (1 << (tried - 1))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collector() -> Collector {
        Collector { pause: Duration::from_millis(1), ..Collector::parse("http://127.0.0.1").unwrap() }
    }

    /// Answers one after the other; how many were asked for, and what came of it.
    fn sent(answers: &[(u16, &str)]) -> (usize, Result<(), String>) {
        let mut n = 0;
        let post = || {
            let (status, body) = answers[n.min(answers.len() - 1)];
            n += 1;
            match status {
                0 => Err(io::ErrorKind::ConnectionRefused.into()),
                _ => Ok(Answer { status, body: body.into() }),
            }
        };
        let done = collector().send_one(&Interrupt::default(), post).map_err(|f| f.to_string());
        (n, done)
    }

    #[test]
    fn urls_of_collectors_are_read_and_others_refused_with_the_reason() {
        let of = |url: &str| Collector::parse(url).map(|c| (c.host, c.port, c.path));
        let is = |host: &str, port, path: &str| (host.to_string(), port, path.to_string());
        assert_eq!(of("http://127.0.0.1").unwrap(), is("127.0.0.1", 4318, "/v1/traces"));
        assert_eq!(of("http://otel:80/").unwrap(), is("otel", 80, "/v1/traces"));
        assert_eq!(of("http://[::1]:4319/x/y").unwrap(), is("::1", 4319, "/x/y"));
        assert_eq!(of("http://[::1]").unwrap(), is("::1", 4318, "/v1/traces"));
        for (bad, why) in [
            ("https://otel", "nothing is encrypted"),
            ("otel:4318", "say http://"),
            ("http://", "no host"),
            ("http://a@b", "somebody"),
            ("http://a:0", "1 to 65535"),
            ("http://[::1", "no end"),
            ("http://a/\r\nX: y", "no spaces"),
        ] {
            let said = of(bad).unwrap_err().to_string();
            assert!(said.contains(why), "{bad}: {said}");
        }
    }

    #[test]
    fn who_is_away_for_a_moment_is_sent_it_again_and_who_refuses_is_not() {
        assert_eq!(sent(&[(0, ""), (503, "busy"), (200, "{}")]), (3, Ok(())));
        let (n, failed) = sent(&[(0, "")]);
        let said = failed.unwrap_err();
        assert_eq!(n, ATTEMPTS as usize);
        assert!(said.starts_with("cannot send traces to 'http://127.0.0.1': "), "{said}");
        assert!(said.contains("attempt 5: ") && said.ends_with("over HTTP?"), "{said}");
        let (n, failed) = sent(&[(400, "no\n such field")]);
        assert!(n == 1 && failed.unwrap_err().contains("it answered 400 no such field"));
        let partial = r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"old"}}"#;
        assert_eq!(sent(&[(200, partial)]), (1, Ok(())), "they would be rejected again");
        let answer = Ok(Answer { status: 200, body: partial.into() });
        assert_eq!(partly(&answer).as_deref(), Some("3 spans were rejected: old"));
    }

    #[test]
    fn an_interrupt_ends_the_attempts() {
        let (i, mut n) = (Interrupt::default(), 0);
        let post = || {
            n += 1;
            i.stop();
            Err(io::ErrorKind::ConnectionRefused.into())
        };
        assert!(collector().send_one(&i, post).is_err());
        assert_eq!(n, 1);
    }

    #[test]
    fn traces_go_together_in_requests_that_are_bounded() {
        let line = |n: usize| json!({"resourceSpans": [{"n": n}, {"pad": "x".repeat(1 << 20)}]}).to_string();
        let lines: Vec<String> = (0..5).map(line).collect();
        let all = bodies(&lines);
        assert_eq!(all.len(), 2);
        let of =
            |b: &String| serde_json::from_str::<Value>(b).unwrap()["resourceSpans"].as_array().unwrap().len();
        assert_eq!(all.iter().map(of).collect::<Vec<_>>(), [6, 4]);
        assert!(bodies(&[]).is_empty());
    }
}
