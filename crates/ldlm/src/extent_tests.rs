use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const R: ExtentMode = ExtentMode::Read;
const W: ExtentMode = ExtentMode::Write;
type T = Extents<u8, u8>;

fn ask(client: u8, id: u64, mode: ExtentMode, start: u64, end: u64) -> Request<u8, u8> {
    Request { client, object: 1, id, mode, start, end, force: true }
}

fn all(t: &T) -> Vec<Lock<u8>> {
    t.objects.values().flat_map(|o| o.granted.clone()).collect()
}

#[test]
fn the_first_gets_all_and_the_second_what_is_left() {
    let mut t = T::default();
    assert_eq!(t.enqueue(0, &ask(1, 1, W, 10, 19)).0, Answer::Granted { start: 0, end: u64::MAX });
    let (a, e) = t.enqueue(0, &ask(2, 5, W, 100, 199));
    assert_eq!((a, e), (Answer::Waits, vec![Event::Block { client: 1, object: 1, id: 1 }]));
    assert_eq!(t.enqueue(0, &ask(2, 5, W, 100, 199)), (Answer::Waits, vec![]), "asked again");
    let e = t.cancel(1, 1, 1, 1);
    assert_eq!(e, vec![Event::Granted { who: Who::Client(2, 5), object: 1 }]);
    assert_eq!(t.enqueue(1, &ask(2, 5, W, 100, 199)).0, Answer::Granted { start: 0, end: u64::MAX });
    assert!(t.covers(2, 1, 5, true, 0, 7) && !t.covers(1, 1, 5, true, 0, 7));
}

#[test]
fn readers_share_and_a_waiting_writer_is_not_overtaken() {
    let mut t = T::default();
    assert!(matches!(t.enqueue(0, &ask(1, 1, R, 0, 9)).0, Answer::Granted { .. }));
    assert!(matches!(t.enqueue(0, &ask(2, 1, R, 0, 9)).0, Answer::Granted { .. }));
    assert_eq!(t.enqueue(0, &ask(3, 1, W, 5, 5)).0, Answer::Waits);
    assert_eq!(t.enqueue(0, &ask(1, 2, R, 5, 5)).0, Answer::Waits, "behind the writer");
    assert!(t.cancel(0, 1, 1, 1).is_empty());
    assert_eq!(
        t.cancel(0, 2, 1, 1),
        vec![
            Event::Granted { who: Who::Client(3, 1), object: 1 },
            Event::Block { client: 3, object: 1, id: 1 }
        ]
    );
    assert_eq!(t.client_gone(0, 3), vec![Event::Granted { who: Who::Client(1, 2), object: 1 }]);
}

#[test]
fn server_locks_conflict_with_the_senders_own() {
    let mut t = T::default();
    t.enqueue(0, &ask(1, 1, W, 0, 9));
    let (ticket, now, e) = t.server_lock(0, 1, W, 3, 4);
    assert!(!now && e == vec![Event::Block { client: 1, object: 1, id: 1 }]);
    assert_eq!(t.cancel(0, 1, 1, 1), vec![Event::Granted { who: Who::Server(ticket), object: 1 }]);
    assert!(t.server_unlock(0, 1, ticket).is_empty());
    assert_eq!(t.count(), (0, 0));
}

#[test]
fn who_joins_a_group_does_not_wait_for_those_who_wait_for_its_end() {
    let (mut t, g) = (T::default(), ExtentMode::Group(7));
    assert!(matches!(t.enqueue(0, &ask(1, 1, g, 0, u64::MAX)).0, Answer::Granted { .. }));
    let (a, e) = t.enqueue(0, &ask(3, 1, W, 0, 9));
    assert_eq!((a, e.len()), (Answer::Waits, 1));
    assert!(matches!(t.enqueue(0, &ask(2, 1, g, 0, u64::MAX)).0, Answer::Granted { .. }));
    assert_eq!(t.enqueue(0, &ask(4, 1, ExtentMode::Group(8), 0, 9)).0, Answer::Waits);
    assert!(t.any_blocked() && t.overdue(u64::MAX).is_empty(), "its users take their time");
    assert!(t.cancel(1, 1, 1, 1).is_empty());
    assert_eq!(t.cancel(1, 2, 1, 1)[0], Event::Granted { who: Who::Client(3, 1), object: 1 });
}

#[test]
fn groups_share_with_their_like_only() {
    let mut t = T::default();
    let g = |client, gid| ask(client, 1, ExtentMode::Group(gid), 0, u64::MAX);
    assert!(t.groups().is_empty());
    assert!(matches!(t.enqueue(0, &g(1, 7)).0, Answer::Granted { .. }));
    assert!(matches!(t.enqueue(0, &g(2, 7)).0, Answer::Granted { .. }));
    assert_eq!(t.enqueue(0, &g(3, 8)).0, Answer::Waits);
    assert_eq!(t.groups(), [(1, 1, 7, 1), (1, 2, 7, 1)], "who waits holds nothing");
}

#[test]
fn what_is_fought_over_is_contended_for_a_while() {
    let mut t = T::default();
    let mut contended = None;
    for i in 0..100u64 {
        let r = Request { force: false, ..ask((i % 2) as u8, i, W, i, i) };
        if t.enqueue(i * 1000, &r).0 == Answer::Contended {
            contended = Some(i);
            break;
        }
        for c in 0..2 {
            for (o, id) in t.outstanding(i * 1000, c) {
                t.cancel(i * 1000, c, o, id);
            }
        }
    }
    assert!(contended.is_some_and(|i| i as usize <= CONTENDED_BLOCKS + 1));
    assert!(matches!(t.enqueue(1, &ask(9, 1, W, 0, 0)).0, Answer::Granted { .. } | Answer::Waits), "forced");
    let later = 2 * CONTENDED_NS;
    t.client_gone(later, 0);
    t.client_gone(later, 1);
    t.client_gone(later, 9);
    let r = Request { force: false, ..ask(4, 1, W, 0, 0) };
    assert!(matches!(t.enqueue(later, &r).0, Answer::Granted { .. }));
}

#[test]
fn overdue_are_those_who_were_told_and_silent() {
    let mut t = T::default();
    t.enqueue(0, &ask(1, 1, W, 0, 9));
    t.enqueue(5, &ask(2, 1, W, 0, 9));
    assert!(t.any_blocked() && t.overdue(5).is_empty());
    assert!(t.is_blocked(1) && !t.is_blocked(2));
    assert!(t.overdue(6).contains(&1));
    t.touch(8, 1, 1, 1);
    assert!(t.overdue(8).is_empty());
    t.cancel(9, 1, 1, 1);
    assert!(t.overdue(u64::MAX).is_empty() && !t.any_blocked());
}

#[test]
fn reclaimed_locks_do_not_overlap_others() {
    let mut t = T::default();
    assert!(t.reclaim(&ask(1, 1, W, 0, 9)) && t.reclaim(&ask(1, 1, W, 0, 9)));
    assert!(!t.reclaim(&ask(2, 1, R, 9, 20)) && t.reclaim(&ask(2, 2, R, 10, 20)));
}

#[test]
fn a_reclaim_that_is_refused_leaves_nothing_behind() {
    let mut t = T::default();
    assert!(t.reclaim(&ask(1, 1, W, 0, 9)));
    assert!(!t.reclaim(&ask(2, 1, W, 5, 5)), "somebody has it");
    assert!(!t.reclaim(&Request { object: 2, ..ask(3, 1, W, 9, 0) }), "no range at all");
    assert_eq!(t.of_client.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(t.objects.keys().copied().collect::<Vec<_>>(), [1]);
    t.client_gone(0, 1);
    assert!(t.of_client.is_empty() && t.objects.is_empty());
}

/// One step of a random run; small numbers so that everything meets everything.
#[derive(Clone, Debug)]
enum Step {
    Ask(u8, ExtentMode, u64, u64),
    Server(ExtentMode, u64, u64),
    Unlock(usize),
    Obey(u8),
    Drop(usize),
    Gone(u8),
}

/// What a naive observer knows, and what it demands.
#[derive(Default)]
struct Watch {
    t: T,
    next: u64,
    tickets: Vec<u64>,
    /// Requests in order, until they are granted or gone.
    waiting: Vec<Lock<u8>>,
    held: BTreeMap<Who<u8>, Lock<u8>>,
    told: BTreeSet<Who<u8>>,
}

impl Watch {
    fn lock(who: Who<u8>, mode: ExtentMode, start: u64, end: u64) -> Lock<u8> {
        Lock { who, mode, start, end, blocked: None }
    }

    /// A group that has its lock gets one more member: may pass those who wait.
    fn joins(&self, l: &Lock<u8>) -> bool {
        let member = |g: &Lock<u8>| g.mode == l.mode && g.overlaps(l);
        matches!(l.mode, ExtentMode::Group(_)) && all(&self.t).iter().any(|g| g.who != l.who && member(g))
    }

    fn events(&mut self, e: Vec<Event<u8, u8>>) {
        for e in e {
            match e {
                Event::Block { client, id, .. } => {
                    let who = Who::Client(client, id);
                    assert!(
                        self.held.contains_key(&who) && self.told.insert(who),
                        "told once, and holders only"
                    );
                }
                Event::Granted { who, .. } => {
                    let i = self.waiting.iter().position(|w| w.who == who).expect("it waited");
                    let l = self.waiting.remove(i);
                    let overtaken = self.waiting.iter().take(i).any(|w| w.conflicts(&l));
                    assert!(!overtaken || self.joins(&l), "nobody is overtaken");
                    self.held.insert(who, l);
                }
            }
        }
    }

    fn check(&mut self) {
        let granted = all(&self.t);
        assert_eq!(granted.len(), self.held.len());
        for (i, a) in granted.iter().enumerate() {
            let asked = self.held[&a.who];
            assert!(a.start <= asked.start && asked.end <= a.end, "at least what was asked for");
            assert!(granted.iter().skip(i + 1).all(|b| !a.conflicts(b)), "{granted:?}");
        }
        for w in &self.waiting {
            let blockers: Vec<_> = granted.iter().filter(|g| g.conflicts(w)).collect();
            let behind = self.waiting.iter().take_while(|o| o.who != w.who).any(|o| o.conflicts(w));
            assert!(behind || !blockers.is_empty(), "waits for somebody");
            for b in blockers {
                assert!(
                    matches!(b.who, Who::Server(_)) || self.told.contains(&b.who),
                    "who is in the way knows"
                );
            }
        }
    }

    fn remove(&mut self, who: Who<u8>) {
        self.waiting.retain(|w| w.who != who);
        self.held.remove(&who);
        let e = match who {
            Who::Client(c, id) => self.t.cancel(0, c, 1, id),
            Who::Server(ticket) => self.t.server_unlock(0, 1, ticket),
        };
        self.events(e);
    }

    fn step(&mut self, s: &Step) {
        match *s {
            Step::Ask(c, mode, a, b) => {
                self.next += 1;
                let (start, end) = (a.min(b), a.max(b));
                let l = Self::lock(Who::Client(c, self.next), mode, start, end);
                self.waiting.push(l);
                let (answer, e) = self.t.enqueue(0, &ask(c, self.next, mode, start, end));
                if matches!(answer, Answer::Granted { .. }) {
                    self.waiting.pop();
                    let overtaken = self.waiting.iter().any(|w| w.conflicts(&l));
                    assert!(!overtaken || self.joins(&l), "nobody is overtaken");
                    self.held.insert(l.who, l);
                }
                self.events(e);
            }
            Step::Server(mode, a, b) => {
                let (start, end) = (a.min(b), a.max(b));
                let (ticket, now, e) = self.t.server_lock(0, 1, mode, start, end);
                let l = Self::lock(Who::Server(ticket), mode, start, end);
                self.tickets.push(ticket);
                if now {
                    self.held.insert(l.who, l);
                } else {
                    self.waiting.push(l);
                }
                self.events(e);
            }
            Step::Unlock(i) if !self.tickets.is_empty() => {
                let t = self.tickets.remove(i % self.tickets.len());
                self.remove(Who::Server(t));
            }
            Step::Obey(c) => {
                for (_, id) in self.t.outstanding(0, c) {
                    self.remove(Who::Client(c, id));
                }
            }
            Step::Drop(i) if !self.held.is_empty() => {
                let who = *self.held.keys().nth(i % self.held.len()).unwrap();
                self.tickets.retain(|t| Who::Server(*t) != who);
                self.remove(who);
            }
            Step::Gone(c) => {
                self.waiting.retain(|w| !matches!(w.who, Who::Client(x, _) if x == c));
                self.held.retain(|w, _| !matches!(w, Who::Client(x, _) if *x == c));
                let e = self.t.client_gone(0, c);
                self.events(e);
            }
            _ => {}
        }
        self.check();
    }

    /// Once everybody obeys and every request ends, nobody waits.
    fn drain(mut self) {
        for _ in 0..10_000 {
            if self.waiting.is_empty() {
                return;
            }
            for c in 0..4 {
                self.step(&Step::Obey(c));
            }
            let held: Vec<u64> = self.tickets.clone();
            for t in held {
                if self.held.contains_key(&Who::Server(t)) {
                    self.tickets.retain(|x| *x != t);
                    self.remove(Who::Server(t));
                    self.check();
                }
            }
        }
        panic!("somebody starves: {:?}", self.waiting);
    }
}

fn modes() -> impl Strategy<Value = ExtentMode> {
    prop_oneof![Just(R), Just(W), Just(ExtentMode::Group(1)), Just(ExtentMode::Group(2))]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..4u8, modes(), 0..12u64, 0..12u64).prop_map(|(c, m, a, b)| Step::Ask(c, m, a, b)),
        2 => (modes(), 0..12u64, 0..12u64).prop_map(|(m, a, b)| Step::Server(m, a, b)),
        2 => (0..8usize).prop_map(Step::Unlock),
        3 => (0..4u8).prop_map(Step::Obey),
        2 => (0..8usize).prop_map(Step::Drop),
        1 => (0..4u8).prop_map(Step::Gone),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_conflict_no_overtaking_no_starving(run in prop::collection::vec(steps(), 1..60)) {
        let mut w = Watch::default();
        for s in &run {
            w.step(s);
        }
        w.drain();
    }
}

/// Every sequence of five steps of two clients and the server over two bytes.
#[test]
fn every_short_run() {
    let mut menu = Vec::new();
    for m in [R, W] {
        for (a, b) in [(0, 0), (1, 1), (0, 1)] {
            menu.extend([Step::Ask(0, m, a, b), Step::Ask(1, m, a, b), Step::Server(m, a, b)]);
        }
    }
    menu.extend([Step::Unlock(0), Step::Obey(0), Step::Obey(1), Step::Drop(0)]);
    let n = menu.len();
    for code in 0..n.pow(4) {
        let mut w = Watch::default();
        let mut c = code;
        for _ in 0..4 {
            w.step(&menu[c % n]);
            c /= n;
        }
        w.drain();
    }
}
