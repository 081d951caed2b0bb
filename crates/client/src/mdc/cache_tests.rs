//! The rules of the cache, one by one, and against a server that is never wrong.

use super::*;
use crate::testing;
use model::Attr;
use proptest::prelude::*;

const T: Instant = Instant(5);

fn cache(files: usize) -> Cache {
    Cache::new(files, Contents::new(1 << 20, Arc::default()))
}

fn fid(n: u32) -> Fid {
    Fid::new(9, n, 0)
}

fn grant(bits: u8, seq: u64) -> Option<Grant> {
    Some(Grant { bits, seq, exclusive: false })
}

fn entry(n: u32, version: u64, g: Option<Grant>) -> Entry {
    let attr = Attr { mode: 0o644, version, ..testing::attr(fid(n), FileType::Regular) };
    Entry { grant: g, ..testing::entry(attr) }
}

fn version(c: &mut Cache, n: u32) -> Option<u64> {
    c.entry(fid(n), T).map(|e| e.attr.version)
}

#[test]
fn what_is_shown_without_a_lease_is_not_kept() {
    let mut c = cache(100);
    let t = c.token();
    c.put_entry(t, &entry(1, 1, None), T);
    c.put_name(t, fid(0), b"a", Some(fid(1)), None, T);
    assert_eq!((version(&mut c, 1), c.name(fid(0), b"a", T), c.nodes.len()), (None, None, 0));
    assert!(c.left_alone.is_contended(fid(0)));
}

#[test]
fn the_layout_of_an_open_file_outlives_its_attributes() {
    let mut c = cache(100);
    let item = |bits| LeaseItem { fid: fid(1), bits, seq: 7, look: false };
    let known = |c: &mut Cache| {
        let t = c.token();
        c.put_entry(t, &entry(1, 1, grant(bits::INODE, 7)), T);
        assert!(c.nodes.leased_layout(fid(1), T).is_some());
    };
    known(&mut c);
    assert_eq!(c.revoke(&item(bits::UPDATE), true), item(bits::UPDATE));
    assert_eq!((version(&mut c, 1), c.nodes.leased_layout(fid(1), T)), (None, Some(0)));
    // Of which it is given back in its turn, with all that there is.
    assert_eq!(c.expire(T.plus(Duration::from_secs(9)), Duration::from_secs(1)), [item(bits::ALL)]);
    assert!(c.nodes.leased_layout(fid(1), T).is_none());
    known(&mut c);
    assert_eq!(c.revoke(&item(bits::UPDATE), false), item(bits::INODE), "nobody needs it");
    assert_eq!((c.nodes.leased_layout(fid(1), T), c.nodes.len()), (None, 0));
    known(&mut c);
    assert_eq!(c.revoke(&item(bits::LAYOUT), true), item(bits::INODE), "the attributes show the layout");
    assert_eq!((version(&mut c, 1), c.nodes.leased_layout(fid(1), T)), (None, None));
}

#[test]
fn an_answer_that_a_revocation_overtook_is_used_once() {
    let mut c = cache(100);
    let early = c.token();
    c.revoke(&LeaseItem { fid: fid(1), bits: bits::UPDATE, seq: 7, look: false }, false);
    c.put_entry(early, &entry(1, 1, grant(bits::UPDATE, 7)), T);
    assert_eq!((version(&mut c, 1), c.nodes.len()), (None, 0), "the server has the lease back");
    let late = c.token();
    c.put_entry(late, &entry(1, 2, grant(bits::UPDATE, 8)), T);
    assert_eq!(version(&mut c, 1), Some(2));
    c.put_name(early, fid(1), b"x", None, grant(bits::LOOKUP, 9), T);
    assert_eq!(c.name(fid(1), b"x", T), Some(None), "that was not asked for back");
}

#[test]
fn own_changes_are_not_hidden_by_what_was_known() {
    let mut c = cache(100);
    let t = c.token();
    c.put_entry(t, &entry(1, 1, grant(bits::UPDATE, 1)), T);
    let change = c.begin(vec![(fid(1), Part::Attr)], false);
    assert_eq!(version(&mut c, 1), None, "while it is under way");
    let during = c.token();
    c.put_entry(during, &entry(1, 1, grant(bits::UPDATE, 2)), T);
    let after = Outcome { entries: vec![entry(1, 2, grant(bits::UPDATE, 3))], ..Outcome::default() };
    c.end(change, T, &after);
    assert_eq!(version(&mut c, 1), Some(2));
    c.put_entry(during, &entry(1, 1, grant(bits::UPDATE, 2)), T);
    assert_eq!(version(&mut c, 1), Some(2), "older answers come late");
    // Two at a time: nobody knows which came last.
    let (a, b) = (c.begin(vec![(fid(1), Part::Attr)], false), c.begin(vec![(fid(1), Part::Attr)], false));
    c.end(a, T, &Outcome { entries: vec![entry(1, 3, grant(bits::UPDATE, 4))], ..Outcome::default() });
    c.end(b, T, &Outcome::default());
    assert_eq!((version(&mut c, 1), c.nodes.len()), (None, 1), "the lease is still there");
    assert_eq!(
        c.expire(T, Duration::ZERO),
        [LeaseItem { fid: fid(1), bits: bits::ALL, seq: 4, look: false }]
    );
}

#[test]
fn a_new_directory_is_known_to_be_empty_until_something_happens_in_it() {
    let mut c = cache(100);
    let t = c.token();
    let mut d = entry(1, 1, grant(bits::ALL, 1));
    d.attr.kind = FileType::Directory;
    c.put_entry(t, &d, T);
    assert_eq!(c.name(fid(1), b"a", T), Some(None));
    let parts = |name: &[u8]| vec![(fid(1), name_part(name)), (fid(1), Part::List)];
    let change = c.begin(parts(b"a"), false);
    assert_eq!(c.name(fid(1), b"a", T), None);
    assert_eq!(c.name(fid(1), b"b", T), Some(None));
    let names = vec![(fid(1), b"a".to_vec(), Some(fid(2)), grant(bits::LOOKUP, 2))];
    let touched = vec![(fid(1), b"a".to_vec(), false)];
    c.end(change, T, &Outcome { names, touched: touched.clone(), ..Outcome::default() });
    assert_eq!(c.name(fid(1), b"a", T), Some(Some(fid(2))));
    assert!(c.listing(fid(1), T, |_| ()).is_none(), "its place in the order is not known");
    let change = c.begin(parts(b"a"), false);
    c.end(change, T, &Outcome { touched, unknown: true, ..Outcome::default() });
    assert_eq!(c.name(fid(1), b"a", T), None, "nobody knows");
    let change = c.begin(parts(b"a"), false);
    let touched = vec![(fid(1), b"a".to_vec(), true)];
    c.end(change, T, &Outcome { touched, ..Outcome::default() });
    assert_eq!(c.name(fid(1), b"a", T), Some(None));
}

#[test]
fn what_is_too_much_goes_back_and_what_is_used_stays() {
    let mut c = cache(64);
    for n in 0..64 {
        let t = c.token();
        c.put_entry(t, &entry(n, 1, grant(bits::UPDATE, u64::from(n) + 1)), T);
    }
    assert!(c.shrink(T).is_empty());
    let later = Instant(9);
    assert!(c.entry(fid(0), later).is_some());
    let t = c.token();
    c.put_entry(t, &entry(64, 1, grant(bits::UPDATE, 65)), later);
    let back = c.shrink(later);
    assert_eq!(back[0], LeaseItem { fid: fid(1), bits: bits::ALL, seq: 2, look: false });
    assert!(c.nodes.len() <= 62 && c.entry(fid(0), later).is_some() && c.entry(fid(64), later).is_some());
    // Names count too.
    for n in 0..1000u32 {
        let t = c.token();
        c.put_name(t, fid(100), &n.to_le_bytes(), None, grant(bits::LOOKUP, 100), later);
        c.shrink(later);
        assert!(c.nodes.names <= 64 * NAMES_PER_FILE);
    }
}

#[test]
fn a_request_from_before_everything_was_forgotten_gives_its_lease_back() {
    let mut c = cache(64);
    let t = c.token();
    c.clear();
    c.put_entry(t, &entry(1, 1, grant(bits::UPDATE, 3)), T);
    assert_eq!(version(&mut c, 1), None);
    assert_eq!(c.take_unwanted(), [LeaseItem { fid: fid(1), bits: bits::ALL, seq: 3, look: false }]);
}

/// Seed 21461: an answer from before a restart gave its lease back; the next one, asked for before that, took
/// an exclusive lease with it under which a file had been made.
#[test]
fn a_late_answer_does_not_take_a_newer_lease_with_it() {
    let mut c = cache(100);
    let before = c.token();
    c.clear();
    let early = c.token();
    c.put_name(before, fid(1), b"x", None, grant(bits::LOOKUP, 1), T);
    assert_eq!(c.take_unwanted(), [LeaseItem { fid: fid(1), bits: bits::ALL, seq: 1, look: false }]);
    let alone = |seq| Some(Grant { bits: bits::ALL, seq, exclusive: true });
    let t = c.token();
    c.put_entry(t, &entry(1, 1, alone(3)), T);
    // The server granted these before and after the exclusive one.
    for (token, seq) in [(early, 2), (early, 4), (before, 5)] {
        c.put_name(token, fid(1), b"x", None, grant(bits::LOOKUP, seq), T);
        assert!(c.take_unwanted().is_empty());
        assert_eq!(version(&mut c, 1), Some(1), "the exclusive lease stays");
        assert_eq!(c.name(fid(1), b"x", T), None, "what it said is not kept");
    }
    assert_eq!(
        c.expire(T, Duration::ZERO),
        [LeaseItem { fid: fid(1), bits: bits::ALL, seq: 5, look: false }],
        "and nothing stays at the server that is not known here"
    );
}

#[test]
fn a_directory_that_is_looked_up_name_by_name_is_fetched_in_growing_pieces() {
    let mut c = cache(64);
    let t = c.token();
    c.put_name(t, fid(1), b"a", None, grant(bits::LOOKUP, 1), T);
    let mut got = Vec::new();
    for _ in 0..40 {
        if let Some(x) = c.nodes.missed(fid(1), 3000) {
            got.push(x);
            assert_eq!(c.nodes.missed(fid(1), 3000), None, "one at a time");
            c.nodes.ahead_done(fid(1), 77, false);
        }
    }
    assert_eq!(got[..3], [(0, 1024), (77, 2048), (77, 3000)]);
    c.nodes.ahead_done(fid(1), 99, true);
    assert!((0..20).all(|_| c.nodes.missed(fid(1), 3000).is_none()));
}

/// One inode and one name on a server, requests of this client under way, foreign changes that ask first.
#[derive(Default)]
struct Server {
    version: u64,
    name: Option<u32>,
    seq: u64,
    /// The newest grant of the inode, of the directory's entries.
    held: [Option<u64>; 2],
    next_file: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Read,
    Look,
    /// The answer of the nth request under way arrives.
    Answer(usize),
    /// An own change of the inode; of the name.
    Change,
    Rename,
    /// The nth own change is executed, and its answer arrives.
    Execute(usize),
    Done(usize),
    Foreign,
    Shrink,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Read),
        3 => Just(Step::Look),
        6 => (0usize..4).prop_map(Step::Answer),
        1 => Just(Step::Change),
        1 => Just(Step::Rename),
        3 => (0usize..3).prop_map(Step::Execute),
        3 => (0usize..3).prop_map(Step::Done),
        2 => Just(Step::Foreign),
        1 => Just(Step::Shrink),
    ]
}

enum Request {
    Inode(Token, Box<Entry>),
    Name(Token, Option<Fid>, Option<Grant>),
}

struct Own {
    change: Change,
    inode: bool,
    outcome: Option<Outcome>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn what_is_used_is_what_the_server_has(steps in proptest::collection::vec(step(), 1..60)) {
        let (dir, name) = (fid(100), b"n");
        let mut s = Server { version: 1, next_file: 10, ..Server::default() };
        let mut c = cache(16);
        let (mut asked, mut own): (Vec<Request>, Vec<Own>) = (Vec::new(), Vec::new());
        for st in steps {
            match st {
                Step::Read => {
                    s.seq += 1;
                    s.held[0] = Some(s.seq);
                    let e = entry(1, s.version, grant(bits::UPDATE, s.seq));
                    asked.push(Request::Inode(c.token(), Box::new(e)));
                }
                Step::Look => {
                    s.seq += 1;
                    s.held[1] = Some(s.seq);
                    asked.push(Request::Name(c.token(), s.name.map(fid), grant(bits::LOOKUP, s.seq)));
                }
                Step::Answer(n) if n < asked.len() => match asked.remove(n) {
                    Request::Inode(t, e) => c.put_entry(t, &e, T),
                    Request::Name(t, f, g) => c.put_name(t, dir, name, f, g, T),
                },
                Step::Change => {
                    let change = c.begin(vec![(fid(1), Part::Attr)], false);
                    own.push(Own { change, inode: true, outcome: None });
                }
                Step::Rename => {
                    let change = c.begin(vec![(dir, name_part(name)), (dir, Part::List)], false);
                    own.push(Own { change, inode: false, outcome: None });
                }
                Step::Execute(n) => {
                    let Some(o) = own.get_mut(n).filter(|o| o.outcome.is_none()) else { continue };
                    s.seq += 1;
                    let mut out = Outcome::default();
                    if o.inode {
                        s.version += 1;
                        s.held[0] = Some(s.seq);
                        out.entries.push(entry(1, s.version, grant(bits::UPDATE, s.seq)));
                    } else if s.name.take().is_some() {
                        out.touched.push((dir, name.to_vec(), true));
                        out.removed = Some(name.to_vec());
                    } else {
                        s.next_file += 1;
                        s.name = Some(s.next_file);
                        s.held[1] = Some(s.seq);
                        out.touched.push((dir, name.to_vec(), false));
                        out.names.push((dir, name.to_vec(), s.name.map(fid), grant(bits::LOOKUP, s.seq)));
                    }
                    o.outcome = Some(out);
                }
                Step::Done(n) if own.get(n).is_some_and(|o| o.outcome.is_some()) => {
                    let o = own.remove(n);
                    c.end(o.change, T, &o.outcome.unwrap());
                }
                Step::Foreign => {
                    for (i, (f, bit)) in [(fid(1), bits::UPDATE), (dir, bits::LOOKUP)].into_iter().enumerate() {
                        if let Some(seq) = s.held[i].take() {
                            c.revoke(&LeaseItem { fid: f, bits: bit, seq, look: false }, false);
                        }
                    }
                    s.version += 1;
                    s.next_file += 1;
                    s.name = if s.name.is_some() { None } else { Some(s.next_file) };
                }
                Step::Shrink => {
                    for i in c.expire(T, Duration::ZERO) {
                        let h = &mut s.held[usize::from(i.fid == dir)];
                        *h = h.filter(|seq| *seq > i.seq);
                    }
                }
                _ => {}
            }
            for i in c.take_unwanted() {
                let h = &mut s.held[usize::from(i.fid == dir)];
                *h = h.filter(|seq| *seq > i.seq);
            }
            // What is executed and not answered may be seen by others already: nothing older may be used.
            let v = version(&mut c, 1);
            prop_assert!(v.is_none_or(|v| v == s.version), "version {:?} of {}", v, s.version);
            let n = c.name(dir, name, T);
            prop_assert!(n.is_none_or(|n| n == s.name.map(fid)), "{:?} for {:?}", n, s.name);
        }
    }
}

fn small(n: u32, version: u64, size: u64, seq: u64) -> Entry {
    let mut e = entry(n, version, grant(bits::UPDATE, seq));
    e.attr.size = size;
    Entry { layout: Some(model::Layout::on_mdt(65536)), ..e }
}

fn brought(data: &'static [u8]) -> Brought {
    Some((Bytes::from_static(data), Came::Asked))
}

fn content(c: &mut Cache, n: u32) -> Option<Vec<u8>> {
    c.content(fid(n), T).map(|(b, _)| b.to_vec())
}

#[test]
fn a_files_data_goes_with_the_lease_on_its_inode() {
    let mut c = cache(100);
    let t = c.token();
    c.put_file(t, &small(1, 1, 3, 1), brought(b"abc"), T);
    assert_eq!(content(&mut c, 1).as_deref(), Some(&b"abc"[..]));
    c.revoke(&LeaseItem { fid: fid(1), bits: bits::UPDATE, seq: 1, look: false }, false);
    assert_eq!(content(&mut c, 1), None);
    c.put_file(t, &small(1, 1, 3, 1), brought(b"abc"), T);
    assert_eq!(content(&mut c, 1), None, "asked for before the lease went");
    let t = c.token();
    c.put_entry(t, &small(1, 2, 3, 2), T);
    assert_eq!(content(&mut c, 1), None, "nothing of it came along");
    c.put_file(t, &small(1, 2, 3, 2), brought(b"xyz"), T);
    assert_eq!(content(&mut c, 1).as_deref(), Some(&b"xyz"[..]));
    assert_eq!(c.expire(T, Duration::ZERO).len(), 1);
    assert_eq!((content(&mut c, 1), c.contents.has(fid(1), 2)), (None, false));
    c.put_file(c.token(), &small(2, 1, 0, 3), None, T);
    assert_eq!(content(&mut c, 2), Some(Vec::new()), "an empty file is known");
}

#[test]
fn own_changes_of_data_are_kept_only_if_they_are_understood() {
    let mut c = cache(100);
    let part = || vec![(fid(1), Part::Attr)];
    let edit = Edit::Write { off: 1, data: Bytes::from_static(b"x") };
    c.put_file(c.token(), &small(1, 1, 3, 1), brought(b"abc"), T);
    let change = c.begin(part(), false);
    assert_eq!(content(&mut c, 1), None, "while it is under way");
    c.end(change, T, &Outcome { entries: vec![small(1, 2, 3, 2)], edit: edit.clone(), ..Outcome::default() });
    assert_eq!(content(&mut c, 1).as_deref(), Some(&b"axc"[..]));
    // Of two at a time, one says nothing.
    let (a, b) = (c.begin(part(), false), c.begin(part(), false));
    let nothing = Outcome { entries: vec![small(1, 3, 9, 3)], edit: Edit::Nothing, ..Outcome::default() };
    c.end(a, T, &nothing);
    c.end(b, T, &Outcome::default());
    c.put_entry(c.token(), &small(1, 3, 9, 4), T);
    assert_eq!(content(&mut c, 1), None);
    // What says nothing, alone, followed by what changed nothing.
    c.put_file(c.token(), &small(1, 4, 3, 5), brought(b"abc"), T);
    let change = c.begin(part(), false);
    c.end(change, T, &Outcome::default());
    let change = c.begin(part(), false);
    let nothing = Outcome { entries: vec![small(1, 5, 9, 6)], edit: Edit::Nothing, ..Outcome::default() };
    c.end(change, T, &nothing);
    assert_eq!((version(&mut c, 1), content(&mut c, 1)), (Some(5), None));
}

#[test]
fn an_answer_without_a_version_is_of_the_one_that_was_known_all_the_time() {
    let mut c = cache(100);
    let early = c.token();
    assert_eq!(c.version_since(early, fid(1)), None);
    c.put_entry(early, &small(1, 7, 3, 1), T);
    assert_eq!(c.version_since(early, fid(1)), None, "without the lease in the beginning");
    let t = c.token();
    assert_eq!(c.version_since(t, fid(1)), Some(7));
    let change = c.begin(vec![(fid(1), Part::Attr)], false);
    assert_eq!(c.version_since(t, fid(1)), None);
    c.end(change, T, &Outcome { entries: vec![small(1, 8, 3, 2)], ..Outcome::default() });
    assert_eq!(c.version_since(t, fid(1)), None);
    let t = c.token();
    c.revoke(&LeaseItem { fid: fid(1), bits: bits::UPDATE, seq: 2, look: false }, false);
    c.put_entry(c.token(), &small(1, 8, 3, 3), T);
    assert_eq!(c.version_since(t, fid(1)), None, "it was gone for a while");
}
