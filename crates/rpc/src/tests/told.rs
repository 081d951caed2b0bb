//! What the log is told of servers that go and come back.

use super::*;
use std::fmt::Debug;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

/// Keeps what is said from INFO on.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// What was said since this was asked last.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.0))
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, m: &Metadata<'_>) -> bool {
        *m.level() <= Level::INFO && m.is_event()
    }

    fn event(&self, e: &tracing::Event<'_>) {
        let mut text = Message(String::new());
        e.record(&mut text);
        // What a client says of its connection.
        if e.metadata().target().starts_with("rpc::import") && text.0.contains("connect") {
            lock(&self.0).push(format!("{} {}", e.metadata().level(), text.0));
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Bench {
    lab: Lab,
    client: World,
    disk: Arc<Mutex<Disk>>,
    seen: Arc<Mutex<Seen>>,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let lab = Lab::new(seed);
        let (client, _) = node(&lab, 9);
        Bench { lab, client, disk: Arc::default(), seen: Arc::default() }
    }

    /// The target is served at this address; its node.
    async fn serve(&self, at: u8) -> u64 {
        let (server, id) = node(&self.lab, at);
        let counter = Counter::start(&server, TargetId::ost(0), &self.disk, &self.seen);
        serve(&server, at, vec![counter], &Peers::new()).await;
        id
    }

    async fn wait(&self, s: u64) {
        self.client.sleep(Duration::from_secs(s)).await;
    }
}

#[test]
fn a_server_that_is_back_within_seconds_is_one_line() {
    let (b, log) = (Bench::new(51), Log::default());
    let _guard = tracing::subscriber::set_default(log.clone());
    b.lab.run(async {
        let first = b.serve(1).await;
        let i = Import::new(b.client.clone(), config(7, TargetId::ost(0), &[1, 2]));
        assert_eq!(set(&i, "a").await.unwrap(), "1");
        assert_eq!(log.take(), Vec::<String>::new(), "that it is there is no news");
        b.lab.kill(first, ip(1));
        b.wait(2).await;
        assert_eq!(log.take(), Vec::<String>::new(), "it may be back soon");
        // It moved.
        b.serve(2).await;
        assert_eq!(set(&i, "a").await.unwrap(), "2");
        let said = log.take();
        let [line] = &said[..] else { panic!("one line: {said:?}") };
        let begin = "INFO connection restored to fs-OST0000 (at 10.0.0.2@tcp): it was lost for ";
        let s = line.strip_prefix(begin).and_then(|l| l.split_once(" s, at 10.0.0.1@tcp (")).expect(line);
        assert!((2.0..5.0).contains(&s.0.parse::<f64>().expect(line)), "{line}");
        b.wait(20).await;
        assert_eq!(log.take(), Vec::<String>::new());
        i.disconnect().await;
    });
}

#[test]
fn a_server_that_stays_away_is_told_in_full_and_once() {
    let (b, log) = (Bench::new(52), Log::default());
    let _guard = tracing::subscriber::set_default(log.clone());
    b.lab.run(async {
        let first = b.serve(1).await;
        let i = Import::new(b.client.clone(), config(7, TargetId::ost(0), &[1]));
        assert_eq!(set(&i, "a").await.unwrap(), "1");
        b.lab.kill(first, ip(1));
        b.wait(4).await;
        assert_eq!(log.take(), Vec::<String>::new());
        // Also while an attempt is under way that nobody answers.
        b.lab.silence(ip(1), true);
        b.wait(3).await;
        let said = log.take();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].starts_with("WARN connection to fs-OST0000 (at 10.0.0.1@tcp) was lost 5 s ago (")
                && said[0].ends_with("); operations wait for it"),
            "{said:?}"
        );
        assert!(said[1].starts_with("WARN cannot connect to fs-OST0000 (at 10.0.0.1@tcp): "), "{said:?}");
        b.wait(120).await;
        let said = log.take();
        assert!(said.len() <= 2, "the same is said once: {said:?}");
        b.lab.silence(ip(1), false);
        b.serve(1).await;
        assert_eq!(set(&i, "a").await.unwrap(), "2");
        let said = log.take();
        assert!(
            said.contains(&"INFO connection restored to fs-OST0000 (at 10.0.0.1@tcp)".into()),
            "{said:?}"
        );
        i.disconnect().await;
    });
}

#[test]
fn who_was_never_connected_hears_at_once_why() {
    let (b, log) = (Bench::new(53), Log::default());
    let _guard = tracing::subscriber::set_default(log.clone());
    b.lab.run(async {
        let i = Import::new(b.client.clone(), config(7, TargetId::ost(0), &[1]));
        let wait = i.clone();
        b.client.spawn("wait", async move {
            let _ = wait.connected().await;
        });
        b.wait(1).await;
        let said = log.take();
        assert!(said.len() == 1 && said[0].contains("cannot connect to fs-OST0000"), "{said:?}");
        i.disconnect().await;
    });
}
