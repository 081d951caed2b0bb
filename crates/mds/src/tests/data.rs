//! Data with the inode: random operations against an array, crashes included; and the way to objects as far
//! as it needs no object server.

use super::*;
use ::model::ObjectAttr;
use proptest::prelude::*;
use wire::checksum::ChecksumType;
use wire::msg::fallocate::{FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE, Fallocate};
use wire::msg::fetch::Fetch;
use wire::msg::grow::Grow;
use wire::msg::read::Read;
use wire::msg::seek::{Seek, Whence};

const R: Fid = Fid::ROOT;
const CRC32C: ChecksumType = ChecksumType::Crc32c;
const ROOM: u64 = 65536;
const BLOCK: usize = 4096;

fn object(fid: Fid) -> ObjectId {
    ObjectId { origin: fid, component: 1, stripe: 0 }
}

fn read(rig: &Rig, fid: Fid, offset: u64, len: u32) -> Result<Vec<u8>, Errno> {
    let (r, bulk) =
        rig.call_bulk(&Read { object: object(fid), offset, len, checksum: CRC32C, lock: 0 }, Bytes::new())?;
    assert_eq!((r.len as usize, r.object_size), (bulk.len(), rig.attr(fid).size));
    assert_eq!(CRC32C.differs_in_read(offset, &bulk, r.object_size, &r.block_crcs), None);
    Ok(bulk.to_vec())
}

fn append(rig: &Rig, fid: Fid, data: &[u8]) -> Result<WriteReply, Errno> {
    rig.call_bulk(&write_msg(fid, None), Bytes::copy_from_slice(data)).map(|r| r.0)
}

fn cut(rig: &Rig, fid: Fid, size: u64) -> Result<Entry, Errno> {
    rig.setattr(&Cred::root(), fid, SetAttr { size: Some(size), ..SetAttr::default() })
}

fn fallocate(rig: &Rig, fid: Fid, mode: u32, offset: u64, len: u64) -> Result<ObjectAttr, Errno> {
    rig.root(Fallocate {
        object: object(fid),
        mode,
        offset,
        len,
        file: fid,
        inode_ctime: Timestamp::ZERO,
        lock: 0,
    })
}

fn seek(rig: &Rig, fid: Fid, offset: u64, whence: Whence) -> Option<u64> {
    rig.root(Seek { object: object(fid), offset, whence, lock: 0 }).unwrap().offset
}

/// The reference: bytes, and of each block whether it is no hole.
#[derive(Default)]
struct Array {
    bytes: Vec<u8>,
    blocks: std::collections::BTreeSet<usize>,
}

impl Array {
    fn resize(&mut self, size: usize) {
        if size <= self.bytes.len() {
            self.blocks.retain(|b| b * BLOCK < size);
        }
        self.bytes.resize(size, 0);
    }

    fn grow_to(&mut self, size: usize) {
        let size = size.max(self.bytes.len());
        self.bytes.resize(size, 0);
    }

    fn allocate(&mut self, off: usize, end: usize) {
        self.blocks.extend(off / BLOCK..end.div_ceil(BLOCK));
    }

    fn write(&mut self, off: usize, data: &[u8]) {
        self.grow_to(off + data.len());
        self.bytes[off..off + data.len()].copy_from_slice(data);
        self.allocate(off, off + data.len());
    }

    fn zero(&mut self, off: usize, end: usize) {
        let end = end.min(self.bytes.len());
        if off < end {
            self.bytes[off..end].fill(0);
        }
    }

    fn seek(&self, off: usize, hole: bool) -> Option<u64> {
        let n = self.bytes.len();
        let found = (off..n).find(|i| self.blocks.contains(&(i / BLOCK)) != hole);
        found.or((hole && off < n).then_some(n)).map(|x| x as u64)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize, u8),
    Append(usize, u8),
    Cut(u64),
    Punch(u64, u64),
    Zero(u64, u64, bool),
    Reserve(u64, u64, bool),
    Crash(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let off = || prop_oneof![0..ROOM + 9000, (0u64..17).prop_map(|b| b * 4096)];
    let len = || prop_oneof![3 => 1usize..9000, 1 => (1usize..5).prop_map(|b| b * 4096)];
    let wide = || len().prop_map(|n| n as u64);
    prop_oneof![
        5 => (off(), len(), 1u8..).prop_map(|(o, n, b)| Step::Write(o, n, b)),
        2 => (len(), 1u8..).prop_map(|(n, b)| Step::Append(n, b)),
        3 => off().prop_map(Step::Cut),
        2 => (off(), wide()).prop_map(|(o, n)| Step::Punch(o, n)),
        2 => (off(), wide(), any::<bool>()).prop_map(|(o, n, k)| Step::Zero(o, n, k)),
        2 => (off(), wide(), any::<bool>()).prop_map(|(o, n, k)| Step::Reserve(o, n, k)),
        1 => any::<u64>().prop_map(Step::Crash),
    ]
}

/// Runs one step on both sides: what the server says, and whether it should.
fn run(rig: &mut Rig, fid: Fid, m: &mut Array, s: &Step) -> (Result<(), Errno>, Result<(), Errno>) {
    let fits = |end: u64| if end <= ROOM { Ok(()) } else { Err(Errno::EGROW) };
    let keep = |k: bool| if k { FALLOC_KEEP_SIZE } else { 0 };
    match *s {
        Step::Write(off, n, b) => {
            let data = vec![b; n];
            let (got, want) = (rig.write(fid, off, &data).map(|_| ()), fits(off + n as u64));
            if want.is_ok() {
                m.write(off as usize, &data);
            }
            (got, want)
        }
        Step::Append(n, b) => {
            let (data, off) = (vec![b; n], m.bytes.len());
            let got = append(rig, fid, &data).map(|r| assert_eq!(r.offset, off as u64));
            let want = fits((off + n) as u64);
            if want.is_ok() {
                m.write(off, &data);
            }
            (got, want)
        }
        Step::Cut(size) => {
            let got = cut(rig, fid, size).map(|e| assert_eq!(e.attr.size, size));
            if fits(size).is_ok() {
                m.resize(size as usize);
            }
            (got, fits(size))
        }
        Step::Punch(off, n) => {
            let got = fallocate(rig, fid, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, off, n).map(|_| ());
            let (off, end) = (off as usize, (off + n) as usize);
            m.zero(off, end);
            let end = end.min(m.bytes.len());
            m.blocks.retain(|b| b * BLOCK < off || (b + 1) * BLOCK > end);
            (got, Ok(()))
        }
        Step::Zero(off, n, k) | Step::Reserve(off, n, k) => {
            let zero = matches!(s, Step::Zero(..));
            let mode = keep(k) | if zero { FALLOC_ZERO_RANGE } else { 0 };
            let (got, want) = (fallocate(rig, fid, mode, off, n).map(|_| ()), fits(off + n));
            if want.is_ok() {
                let (off, end) = (off as usize, (off + n) as usize);
                if zero {
                    m.zero(off, end);
                }
                if !k {
                    m.grow_to(end);
                }
                m.allocate(off, end);
            }
            (got, want)
        }
        Step::Crash(seed) => {
            rig.crash(seed);
            rig.reclaim(A, &[]);
            rig.reclaim(B, &[]);
            (Ok(()), Ok(()))
        }
    }
}

fn compare(rig: &Rig, fid: Fid, m: &Array, probe: usize) {
    let a = rig.attr(fid);
    assert_eq!((a.size, a.blocks), (m.bytes.len() as u64, m.blocks.len() as u64 * 8));
    assert_eq!(read(rig, fid, 0, 1 << 20).unwrap(), m.bytes);
    let end = (probe + 5000).min(m.bytes.len());
    assert_eq!(read(rig, fid, probe as u64, 5000).unwrap(), m.bytes.get(probe..end).unwrap_or_default());
    for (whence, hole) in [(Whence::Data, false), (Whence::Hole, true)] {
        assert_eq!(seek(rig, fid, probe as u64, whence), m.seek(probe, hole), "{whence:?} from {probe}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn data_with_the_inode_is_an_array(steps in prop::collection::vec((step(), 0usize..70_000), 1..60)) {
        let mut rig = Rig::new();
        let fid = rig.create(R, "f");
        let mut m = Array::default();
        for (s, probe) in &steps {
            let before = rig.attr(fid);
            let (got, want) = run(&mut rig, fid, &mut m, s);
            prop_assert_eq!(got, want, "{:?}", s);
            let after = rig.attr(fid);
            prop_assert!(after.ctime >= before.ctime && after.mtime >= before.mtime);
            compare(&rig, fid, &m, *probe);
        }
        rig.crash(1);
        rig.reclaim(A, &[]);
        rig.reclaim(B, &[]);
        compare(&rig, fid, &m, 0);
        rig.assert_clean();
        rig.unlink(R, "f").unwrap();
        rig.assert_clean();
        let left = rig.mdt.db.scan(&crate::schema::key::data_prefix(fid), b"N", 1).unwrap();
        prop_assert!(left.is_empty(), "the data went with the file");
    }
}

#[test]
fn an_empty_file_grows_in_one_step_and_data_by_the_old_layout_is_refused() {
    let rig = Rig::new();
    let fid = rig.create(R, "f");
    assert_eq!(rig.write(fid, ROOM - 1, b"xy").unwrap_err(), Errno::EGROW);
    assert_eq!(cut(&rig, fid, ROOM + 1).unwrap_err(), Errno::EGROW);
    let e = rig.root(Grow { fid }).unwrap();
    let l = e.layout.clone().unwrap();
    assert_eq!(
        (l.generation, l.shown().id, l.stripe_count(), l.shown().stripe_size),
        (1, 1 << 31 | 1, 1, 4 << 20),
        "named after the epoch"
    );
    let again = rig.root(Grow { fid }).unwrap();
    assert_eq!((again.attr, again.layout), (e.attr.clone(), e.layout.clone()), "once is enough");
    assert_eq!(rig.write(fid, 0, b"x").unwrap_err(), Errno::ERELAYOUT);
    assert_eq!(read(&rig, fid, 0, 1).unwrap_err(), Errno::ERELAYOUT);
    assert_eq!(cut(&rig, fid, 5).unwrap().attr.size, 0, "the objects are cut by the client");
    assert_eq!(rig.assert_clean().objects, 1);
    rig.unlink(R, "f").unwrap();
    assert_eq!(rig.write(fid, 0, b"x").unwrap_err(), Errno::ESTALE);
    assert_eq!(rig.root(Grow { fid }).unwrap_err(), Errno::ESTALE);
    assert_eq!(rig.assert_clean().outbox, 1);
}

#[test]
fn a_file_grows_into_what_was_said_when_it_was_made() {
    let rig = Rig::new();
    let mut spec = LayoutSpec { stripe_count: 3, stripe_size: 131_072, ..LayoutSpec::default() };
    spec.set_mdt_bytes(ROOM);
    let d = rig.mkdir(R, "d");
    rig.root(msg::setlayout::Setlayout { fid: d, spec: Some(spec) }).unwrap();
    let fid = rig.create(d, "f");
    rig.write(fid, 0, b"small").unwrap();
    cut(&rig, fid, 0).unwrap();
    rig.root(msg::setlayout::Setlayout { fid: d, spec: None }).unwrap();
    let l = rig.root(Grow { fid }).unwrap().layout.unwrap();
    assert_eq!((l.stripe_count(), l.shown().stripe_size), (3, 131_072));
    rig.assert_clean();
}

#[test]
fn a_page_of_a_directory_says_what_its_files_grow_into() {
    use msg::getxattr::{DEFAULT_LAYOUT, Getxattr};
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    let sub = rig.mkdir(d, "sub");
    for n in 0..20 {
        rig.create(d, &format!("builtin{n}"));
    }
    let mut spec = LayoutSpec { stripe_count: 3, stripe_size: 131_072, ..LayoutSpec::default() };
    spec.set_mdt_bytes(ROOM);
    for fid in [d, sub] {
        rig.root(msg::setlayout::Setlayout { fid, spec: Some(spec.clone()) }).unwrap();
    }
    for n in 0..20 {
        rig.create(d, &format!("three{n}"));
    }
    rig.create_striped(d, "on objects", 2);
    let page = |cookie, max_bytes, plus, wanted| {
        let grows_into = Trailing(wanted);
        rig.root(msg::readdir::Readdir { fid: d, cookie, max_bytes, plus, grows_into }).unwrap()
    };
    for max_bytes in [1 << 20, 3000, 1] {
        let (mut seen, mut cookie) = (0, 0);
        loop {
            let r = page(cookie, max_bytes, true, Some(true));
            let said = r.grows_into.0.unwrap();
            assert!(said.specs.len() <= 2, "each once");
            for (place, e) in r.entries.iter().enumerate() {
                let of = said.of.iter().find(|(entry, _)| *entry as usize == place);
                let of = of.map(|(_, spec)| said.specs[*spec as usize].clone());
                let alone = rig.root(Getxattr { fid: e.fid, name: DEFAULT_LAYOUT.to_vec() }).ok();
                let alone = alone.map(|r| postcard::from_bytes::<LayoutSpec>(&r.value).unwrap());
                assert_eq!(of, alone.filter(|_| e.fid != sub), "{:?}", String::from_utf8_lossy(&e.name));
                seen += usize::from(of.is_some());
            }
            if r.end {
                break;
            }
            cookie = r.entries.last().unwrap().cookie;
        }
        assert_eq!(seen, 40, "pages of {max_bytes}");
    }
    for (plus, wanted) in [(true, None), (true, Some(false)), (false, Some(true))] {
        assert_eq!(page(0, 1 << 20, plus, wanted).grows_into, Trailing(None));
    }
}

#[test]
fn a_growth_that_fails_leaves_the_data_where_it_was() {
    let mut rig = Rig::new();
    let fid = rig.create(R, "f");
    rig.write(fid, 0, b"precious").unwrap();
    let before = rig.attr(fid);
    // There are no object servers behind these OSTs.
    assert_eq!(rig.root(Grow { fid }).unwrap_err(), Errno::EIO);
    let a = rig.attr(fid);
    assert_eq!((a.size, a.mtime), (8, before.mtime));
    assert_eq!(read(&rig, fid, 0, 100).unwrap(), b"precious");
    rig.write(fid, 8, b"!").unwrap();
    let s = rig.assert_clean();
    assert_eq!((s.objects, s.outbox), (0, 3), "what was tried is to be destroyed");
    rig.crash(3);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    assert_eq!(read(&rig, fid, 0, 100).unwrap(), b"precious!");
    // The next attempts begin where none was before.
    assert_eq!(rig.root(Grow { fid }).unwrap_err(), Errno::EIO);
    assert_eq!(rig.assert_clean().outbox, 6);
    cut(&rig, fid, 0).unwrap();
    let c = rig.root(Grow { fid }).unwrap().layout.unwrap().shown().id;
    assert_eq!(c, 1 << 31 | 2, "no objects that an answer from before the crash may have named");
    rig.assert_clean();
}

/// What a client was answered, to be done again elsewhere.
struct Done {
    req: Incoming,
    reply: Vec<u8>,
}

fn first_time<M: Message>(rig: &Rig, m: &M, bulk: &[u8]) -> Done {
    let req = Incoming { bulk: Bytes::copy_from_slice(bulk), ..rig.incoming(A, &Cred::root(), m) };
    let out = block_on(rig.mdt.clone().handle(req.clone()));
    out.status.unwrap();
    Done { req, reply: out.body }
}

fn again(rig: &Rig, d: &Done) -> Result<Vec<u8>, Errno> {
    let reply = Bytes::from(d.reply.clone());
    let out = block_on(
        rig.mdt.clone().handle(Incoming { replay: Some(rpc::Replay { transno: 1, reply }), ..d.req.clone() }),
    );
    out.status.map(|()| out.body)
}

/// Found by seed 7 of the simulator: a file without names may be gone when its close is done again, in a
/// batch too.
#[test]
fn closes_in_a_batch_are_done_again_to_the_same_end() {
    let (first, second) = (Rig::new(), Rig::new());
    let fid = first.create(R, "f");
    first.open(fid, 0);
    first.unlink(R, "f").unwrap();
    let done = first_time(&first, &late_close(fid, first.world.wall(), Timestamp::ZERO), b"");
    let r: msg::batch::BatchReply = postcard::from_bytes(&done.reply).unwrap();
    let e = postcard::from_bytes::<msg::close::CloseReply>(&r.results[0].1).unwrap().entry;
    assert_eq!(e.map(|e| e.attr.nlink), Some(0), "the time was stored");
    assert_eq!(again(&second, &done).unwrap(), done.reply);
}

#[test]
fn what_a_crash_took_is_done_again_to_the_same_end() {
    let (first, second) = (Rig::new(), Rig::new());
    assert_eq!(first.seqs, second.seqs);
    let mut done = Vec::new();
    let mut fids = Vec::new();
    for i in 0..6 {
        let fid = first.fid();
        fids.push(fid);
        done.push(first_time(&first, &create_msg(R, &format!("f{i}"), fid, 0o644), b""));
        if i % 2 == 0 {
            // To any of four object servers: it must be the same one.
            done.push(first_time(&first, &Grow { fid }, b""));
            continue;
        }
        done.push(first_time(&first, &write_msg(fid, None), b"one "));
        done.push(first_time(&first, &write_msg(fid, None), b"two"));
        done.push(first_time(&first, &write_msg(fid, Some(9000)), b"far"));
        let punch = FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE;
        let hole = (fid, punch, 0u64, 2u64);
        let msg = Fallocate {
            object: object(hole.0),
            mode: hole.1,
            offset: hole.2,
            len: hole.3,
            file: fid,
            inode_ctime: Timestamp::ZERO,
            lock: 0,
        };
        done.push(first_time(&first, &msg, b""));
        let set = SetAttr { size: Some(9001), ..SetAttr::default() };
        done.push(first_time(&first, &msg::setattr::Setattr { fid, set }, b""));
    }
    second.mdt.shared.space_low.store(true, Ordering::Relaxed);
    for d in &done {
        assert_eq!(again(&second, d).unwrap(), d.reply, "{:?}", d.req.op);
        let stored = second.mdt.stored_reply(A, d.req.slot).unwrap();
        assert_eq!(stored.body, d.reply, "also after the next restart: {:?}", d.req.op);
    }
    for (i, &fid) in fids.iter().enumerate() {
        let of = |rig: &Rig| rig.root(msg::getattr::Getattr { fid }).unwrap();
        assert_eq!((of(&first).attr, of(&first).layout), (of(&second).attr, of(&second).layout));
        if i % 2 == 1 {
            assert_eq!(read(&first, fid, 0, 9001), read(&second, fid, 0, 9001));
        }
    }
    second.assert_clean();
}

#[test]
fn an_append_done_again_goes_where_it_went() {
    let rig = Rig::new();
    let fid = rig.create(R, "f");
    let d = first_time(&rig, &write_msg(fid, None), b"mine");
    cut(&rig, fid, 0).unwrap();
    rig.write(fid, 0, b"somebody else's").unwrap();
    again(&rig, &d).unwrap();
    assert_eq!(read(&rig, fid, 0, 100).unwrap(), b"minebody else's");
}

#[test]
fn a_growth_that_cannot_be_done_again_is_refused() {
    let rig = Rig::new();
    let other = Rig::new();
    let fid = rig.create(R, "f");
    let d = first_time(&rig, &Grow { fid }, b"");
    assert_eq!(again(&rig, &d).map(drop), Ok(()), "it has what it was answered");
    // It was evicted, and others came first.
    assert_eq!(other.create(R, "f"), fid);
    other.write(fid, 0, b"x").unwrap();
    assert_eq!(again(&other, &d).unwrap_err(), Errno::EIO);
    assert_eq!(read(&other, fid, 0, 9).unwrap(), b"x");
    cut(&other, fid, 0).unwrap();
    // Not what a file can grow into.
    let mut e: Entry = postcard::from_bytes(&d.reply).unwrap();
    e.layout.as_mut().unwrap().components[0].objects[0].id.origin = R;
    let forged = Done { req: d.req.clone(), reply: postcard::to_stdvec(&e).unwrap() };
    assert_eq!(again(&other, &forged).unwrap_err(), Errno::EPROTO);
    other.root(Grow { fid }).unwrap();
    assert_eq!(again(&other, &forged).unwrap_err(), Errno::EIO);
    other.assert_clean();
}

#[test]
fn times_of_the_data_are_the_inodes() {
    let rig = Rig::new();
    let fid = rig.create(R, "f");
    let made = rig.attr(fid);
    let w = rig.write(fid, 0, b"x").unwrap();
    let a = rig.attr(fid);
    assert!(a.mtime > made.mtime && a.mtime == a.ctime && w.attr.mtime == a.mtime);
    let old = Timestamp { sec: 1000, nsec: 5 };
    let set = SetAttr { mtime: Some(::model::SetTime::At(old)), ..SetAttr::default() };
    assert_eq!(rig.setattr(&Cred::root(), fid, set).unwrap().attr.mtime, old);
    assert_eq!(rig.attr(fid).size, 1);
    read(&rig, fid, 0, 1).unwrap();
    assert_eq!(rig.attr(fid).mtime, old);
    rig.write(fid, 0, b"y").unwrap();
    assert!(rig.attr(fid).mtime > a.mtime);
}

#[test]
fn data_that_changed_on_the_way_is_refused() {
    let rig = Rig::new();
    let fid = rig.create(R, "f");
    let mut m = write_msg(fid, Some(0));
    m.checksum = CRC32C;
    m.block_crcs = CRC32C.of_write(0, b"right");
    assert_eq!(rig.call_bulk(&m, Bytes::from_static(b"wrong")).unwrap_err(), Errno::EBADMSG);
    rig.call_bulk(&m, Bytes::from_static(b"right")).unwrap();
    assert_eq!(read(&rig, fid, 0, 10).unwrap(), b"right");
}

#[test]
fn small_files_come_with_their_data() {
    let rig = Rig::new();
    let (f, g, d) = (rig.create(R, "f"), rig.create(R, "g"), rig.mkdir(R, "d"));
    append(&rig, f, b"first").unwrap();
    append(&rig, g, &[7; 5000]).unwrap();
    let fetch = |fids: &[Fid], data, max_bytes| {
        let (r, bulk) = rig.call_bulk(&Fetch { fids: fids.to_vec(), data, max_bytes }, Bytes::new()).unwrap();
        let of = |e: Option<Entry>| e.map(|e| (e.content, e.grant.is_some()));
        (r.entries.into_iter().map(of).collect::<Vec<_>>(), bulk)
    };
    let gone = Fid { oid: 99, ..f };
    let (all, bulk) = fetch(&[f, gone, d, g], 65536, 65536);
    assert_eq!(all, [Some((Some(5), true)), None, Some((None, true)), Some((Some(5000), true))]);
    assert_eq!((&bulk[..5], &bulk[5..]), (&b"first"[..], &[7; 5000][..]));
    let (all, bulk) = fetch(&[f, g], 100, 65536);
    assert_eq!((all, &bulk[..]), (vec![Some((Some(5), true)), Some((None, true))], &b"first"[..]));
    let (all, bulk) = fetch(&[g, f], 65536, 1);
    assert_eq!((all.len(), bulk.len()), (1, 5000), "one, however large");
    let bad = |fids: Vec<Fid>| rig.root(Fetch { fids, data: 0, max_bytes: 0 }).unwrap_err();
    assert_eq!((bad(Vec::new()), bad(vec![f; 257])), (Errno::EINVAL, Errno::E2BIG));
    let look = |data| {
        let m = msg::lookup::Lookup { parent: R, name: b"f".to_vec(), data };
        let (r, bulk) = rig.call_bulk(&m, Bytes::new()).unwrap();
        (r.entry.unwrap().content, bulk)
    };
    assert_eq!(look(5), (Some(5), Bytes::from_static(b"first")));
    assert_eq!((look(4), look(0)), ((None, Bytes::new()), (None, Bytes::new())));
    let open = OpenSpec { handle: rig.handle(), flags: 0, lease: true };
    let (e, bulk) = rig.call_bulk(&msg::open::Open { fid: f, open, data: 65536 }, Bytes::new()).unwrap();
    assert_eq!((e.content, &bulk[..]), (Some(5), &b"first"[..]));
}

#[test]
fn ranges_are_looked_at_before_anything_else() {
    let rig = Rig::new();
    let fid = rig.create(R, "f");
    let half = 1 << 63;
    for offset in [u64::MAX, u64::MAX - 4095, half, half - 1, ::model::limits::FILE_SIZE_MAX_BYTES] {
        for checksum in [CRC32C, wire::checksum::ChecksumType::None] {
            for append in [false, true] {
                let m = msg::write::Write { offset, checksum, append, ..write_msg(fid, Some(0)) };
                let e = rig.call_bulk(&m, Bytes::from_static(b"x")).err();
                assert!(
                    if append { e != Some(Errno::EFBIG) } else { e == Some(Errno::EFBIG) },
                    "{m:?}: {e:?}"
                );
            }
        }
    }
}
