//! As much of HTTP/1.1 as a scraper, a load balancer and `curl` need: one GET or HEAD a connection.

use std::fmt::Write as _;

/// Of a request, with its headers.
pub(super) const REQUEST_MAX_BYTES: usize = 8 << 10;
const HEADERS_MAX: usize = 64;

pub(super) const PLAIN: &str = "text/plain; charset=utf-8";

/// What can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Subject {
    Metrics,
    Health,
    Root,
}

/// A request that was understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ask {
    pub path: Subject,
    /// GET, not HEAD.
    pub with_body: bool,
    /// Rather than the older text.
    pub open_metrics: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    status: u16,
    reason: &'static str,
    content_type: &'static str,
    body: String,
}

impl Answer {
    pub fn ok(content_type: &'static str, body: String) -> Answer {
        Answer { status: 200, reason: "OK", content_type, body }
    }

    pub fn refused(status: u16, reason: &'static str, body: String) -> Answer {
        assert!(status >= 400, "what is refused has a status that says so");
        Answer { status, reason, content_type: PLAIN, body }
    }

    /// As it is sent.
    pub fn bytes(&self, with_body: bool) -> Vec<u8> {
        let Answer { status, reason, content_type, body } = self;
        let mut out = format!("HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\n");
        let _ = write!(out, "Content-Length: {}\r\n", body.len());
        if *status == 405 {
            out.push_str("Allow: GET, HEAD\r\n");
        }
        out.push_str("Cache-Control: no-store\r\nConnection: close\r\n\r\n");
        if with_body {
            out.push_str(body);
        }
        out.into_bytes()
    }
}

/// A request; `None`: its end is still to come. The error is the answer to one that is none, or is about
/// something else.
pub(super) fn parse(raw: &[u8]) -> Option<Result<Ask, Answer>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut r = httparse::Request::new(&mut headers);
    match r.parse(raw) {
        Ok(httparse::Status::Complete(_)) => Some(understood(&r)),
        Ok(httparse::Status::Partial) if raw.len() <= REQUEST_MAX_BYTES => None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            let text = format!("more than {REQUEST_MAX_BYTES} bytes or {HEADERS_MAX} headers\n");
            Some(Err(Answer::refused(431, "Request Header Fields Too Large", text)))
        }
        Err(e) => Some(Err(Answer::refused(400, "Bad Request", format!("no HTTP request: {e}\n")))),
    }
}

fn understood(r: &httparse::Request<'_, '_>) -> Result<Ask, Answer> {
    let with_body = match r.method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return Err(Answer::refused(405, "Method Not Allowed", "GET or HEAD\n".into())),
    };
    let target = r.path.unwrap_or_default();
    let path = match target.split('?').next().unwrap_or_default() {
        "/metrics" => Subject::Metrics,
        "/health" => Subject::Health,
        "/" => Subject::Root,
        _ => return Err(Answer::refused(404, "Not Found", "there are /metrics and /health\n".into())),
    };
    let accept = r.headers.iter().filter(|h| h.name.eq_ignore_ascii_case("accept"));
    let accept = accept.filter_map(|h| std::str::from_utf8(h.value).ok()).collect::<Vec<_>>().join(",");
    Ok(Ask { path, with_body, open_metrics: prefers_open_metrics(&accept) })
}

/// Whether a list of media types has OpenMetrics 1.0.0, or one without a version, no later than the plain
/// text. Who says nothing, or takes anything, gets the text, which all can read.
fn prefers_open_metrics(accept: &str) -> bool {
    let best = |wanted: &str, versions: &[&str]| {
        accept.split(',').fold(0.0f32, |best, item| {
            let mut parts = item.split(';').map(str::trim);
            if !parts.next().is_some_and(|t| t.eq_ignore_ascii_case(wanted)) {
                return best;
            }
            let (mut q, mut fits) = (1.0, true);
            for p in parts {
                match p.split_once('=') {
                    Some(("q", v)) => q = v.parse().unwrap_or(0.0),
                    Some(("version", v)) => {
                        fits = versions.is_empty() || versions.contains(&v.trim_matches('"'))
                    }
                    _ => {}
                }
            }
            if fits { best.max(q) } else { best }
        })
    };
    let open = best("application/openmetrics-text", &["1.0.0"]);
    open > 0.0 && open >= best("text/plain", &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(head: &str) -> Option<Result<Ask, Answer>> {
        parse(format!("GET {head}\r\n\r\n").as_bytes())
    }

    #[test]
    fn requests_are_understood_or_refused() {
        let ask = |path, with_body, open_metrics| Some(Ok(Ask { path, with_body, open_metrics }));
        assert_eq!(get("/metrics HTTP/1.1\r\nHost: x"), ask(Subject::Metrics, true, false));
        assert_eq!(get("/health?x=1 HTTP/1.0"), ask(Subject::Health, true, false));
        assert_eq!(parse(b"HEAD / HTTP/1.1\r\n\r\n"), ask(Subject::Root, false, false));
        assert_eq!(parse(b"GET /metrics HTTP/1.1\r\nAcce"), None);
        let status = |raw: &[u8]| parse(raw).and_then(Result::err).map(|a| a.status);
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), Some(405));
        assert_eq!(status(b"GET /etc/passwd HTTP/1.1\r\n\r\n"), Some(404));
        assert_eq!(status(b"\x16\x03\x01\x02\x00\x01"), Some(400));
        let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &vec![b'a'; REQUEST_MAX_BYTES]].concat();
        assert_eq!(status(&long), Some(431));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(status(many.as_bytes()), Some(431));
    }

    #[test]
    fn the_format_is_the_one_that_is_wanted() {
        for (accept, open) in [
            // Prometheus 2.42.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                true,
            ),
            ("application/openmetrics-text", true),
            ("application/openmetrics-text; version=0.0.1", false),
            ("text/plain;version=0.0.4, application/openmetrics-text;q=0.5", false),
            ("*/*", false),
            ("", false),
            ("application/openmetrics-text;q=0", false),
        ] {
            let asked = get(&format!("/metrics HTTP/1.1\r\naccept: {accept}"));
            assert_eq!(asked.map(|a| a.map(|a| a.open_metrics)), Some(Ok(open)), "{accept}");
        }
    }

    #[test]
    fn answers_say_their_length_also_without_a_body() {
        let a = Answer::ok(PLAIN, "abc".into());
        let text = |b| String::from_utf8(a.bytes(b)).unwrap();
        assert!(text(true).ends_with("\r\n\r\nabc") && text(false).ends_with("\r\n\r\n"));
        assert!(
            text(false).contains("Content-Length: 3\r\n") && text(true).starts_with("HTTP/1.1 200 OK\r\n")
        );
        let refused = Answer::refused(405, "Method Not Allowed", String::new()).bytes(true);
        assert!(String::from_utf8(refused).unwrap().contains("Allow: GET, HEAD\r\n"));
    }
}
