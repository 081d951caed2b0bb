use super::*;
use model::metrics::Labels;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use world::future::join_all;

#[derive(Default)]
struct Fake(AtomicBool);

impl Told for Fake {
    fn page(&self) -> Page {
        let mut p = Page::default();
        p.gauge("up", "Up.", Labels::default(), 1.0);
        p
    }

    fn trouble(&self) -> Option<String> {
        self.0.load(Relaxed).then(|| "an OST is away".to_string())
    }
}

async fn said(world: &World, at: SocketAddr, request: &str) -> String {
    let s = world.net.stream(at).await.unwrap();
    s.send(Bytes::from(request.to_string())).await.unwrap();
    let mut out = Vec::new();
    loop {
        let more = s.recv(1 << 16).await.unwrap();
        if more.is_empty() {
            return String::from_utf8(out).unwrap();
        }
        out.extend_from_slice(&more);
    }
}

#[test]
fn metrics_and_health_are_told_while_others_say_nothing() {
    let (world, runtime) = world::real::start(1).unwrap();
    let w = world.clone();
    runtime.block_on(async move {
        let of = Arc::new(Fake::default());
        let l = w.net.listen_streams("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let at = l.local_addr();
        w.spawn("metrics", serve(w.clone(), l, of.clone()));
        // Callers that connect and say nothing take a place each until they are cut off.
        let silent = join_all((1..CALLERS_MAX).map(|_| w.net.stream(at)).collect()).await;
        let page =
            said(&w, at, "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n").await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("\nup 1\n"), "{page}");
        assert!(page.contains("openmetrics-text; version=1.0.0") && page.ends_with("# EOF\n"), "{page}");
        let plain = said(&w, at, "GET /metrics HTTP/1.1\r\n\r\n").await;
        assert!(plain.contains("text/plain; version=0.0.4") && !plain.contains("# EOF"), "{plain}");
        let head = said(&w, at, "HEAD /metrics HTTP/1.1\r\n\r\n").await;
        assert!(head.ends_with("\r\n\r\n") && head.contains("Content-Length: "), "{head}");
        assert!(said(&w, at, "GET /health HTTP/1.1\r\n\r\n").await.ends_with("\r\n\r\nhealthy\n"));
        of.0.store(true, Relaxed);
        let ill = said(&w, at, "GET /health HTTP/1.1\r\n\r\n").await;
        assert!(ill.starts_with("HTTP/1.1 503 ") && ill.ends_with("\nan OST is away\n"), "{ill}");
        assert!(said(&w, at, "DELETE / HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 405 "));
        assert!(silent.iter().all(Result::is_ok));
    });
    runtime.shutdown();
}
