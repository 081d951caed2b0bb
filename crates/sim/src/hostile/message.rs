//! Requests of every kind, and answers to them that never were.

use super::arbitrary::{Arbitrary, Pool};
use ::world::rng::Rng;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use wire::checksum::ChecksumType;
use wire::msg::*;
use wire::{Message, Op, encode_message};

/// A request as it goes into a frame.
pub struct Made {
    pub op: Op,
    pub body: Vec<u8>,
    pub bulk: Bytes,
    /// What it says it was answered with before.
    pub reply: Vec<u8>,
}

/// A value of a type.
pub fn value<T: DeserializeOwned>(a: &mut Arbitrary<'_>) -> T {
    T::deserialize(a).expect("values can be made of every message's type")
}

fn any<M: Message>(a: &mut Arbitrary<'_>) -> (Vec<u8>, Vec<u8>) {
    let (m, r) = (value::<M>(a), value::<M::Reply>(a));
    (encode_message(&m), encode_message(&r))
}

macro_rules! by_opcode {
    ($($op:ident => $t:ty,)*) => {
        /// A message of the kind and an answer.
        fn of(op: Op, a: &mut Arbitrary<'_>) -> (Vec<u8>, Vec<u8>) {
            match op { $(Op::$op => any::<$t>(a),)* }
        }
    };
}

wire::for_each_message!(by_opcode);

/// A message of the kind. Of those that may change what belongs to everybody (parameters, targets) it makes
/// such as concern nobody: who may send the others is not the question here.
pub fn make(op: Op, pool: &Pool, rng: &mut Rng) -> Made {
    let extreme = *rng.pick(&[2, 6, 30]);
    let (mut body, reply) = of(op, &mut Arbitrary::new(rng, pool, extreme));
    let mut bulk = Bytes::new();
    match op {
        Op::SetParam => {
            let name = (*rng.pick(&["", "a.b", "mdt.none", "..", "\u{0}"])).to_string();
            body = encode_message(&param::SetParam { name, ..decode(&body) });
        }
        Op::Register => {
            let fsname = (*rng.pick(&["evil", "", "much too long a name", "a/b"])).to_string();
            body = encode_message(&register::Register { fsname, ..decode(&body) });
        }
        Op::Write => {
            bulk = bulk_of(rng);
            let mut m: write::Write = decode(&body);
            sum(&mut m, &bulk, rng);
            body = encode_message(&m);
        }
        Op::Writelist => {
            bulk = bulk_of(rng);
            let mut m: writelist::Writelist = decode(&body);
            if rng.below(4) > 0 {
                right_list(&mut m, &bulk, rng);
            }
            body = encode_message(&m);
        }
        Op::Batch => {
            let mut m: batch::Batch = decode(&body);
            m.ops = ops(pool, rng, &mut bulk);
            body = encode_message(&m);
        }
        _ if rng.below(100) == 0 => bulk = bulk_of(rng),
        _ => {}
    }
    Made { op, body, bulk, reply: if rng.below(8) == 0 { Vec::new() } else { reply } }
}

fn decode<M: DeserializeOwned>(body: &[u8]) -> M {
    wire::decode_message(body).expect("it was encoded a moment ago")
}

fn bulk_of(rng: &mut Rng) -> Bytes {
    vec![rng.below(256) as u8; *rng.pick(&[0, 1, 100, 4096, 4097, 10_000, 65_536, 70_000, 300_000])].into()
}

/// Most of the sums are right, or nothing behind them would ever be reached.
fn sum(m: &mut write::Write, bulk: &Bytes, rng: &mut Rng) {
    if rng.below(8) > 0 {
        let at = if m.append { 0 } else { m.offset };
        m.block_crcs =
            if at.checked_add(bulk.len() as u64).is_some() { m.checksum.of_write(at, bulk) } else { vec![7] };
    }
}

/// Ranges in order that fit the data.
fn right_list(m: &mut writelist::Writelist, bulk: &Bytes, rng: &mut Rng) {
    let mut at = if rng.below(6) == 0 { rng.u64() } else { rng.below(200_000) };
    m.write.append = false;
    let (mut left, mut sums) = (bulk.clone(), Vec::new());
    m.ranges.clear();
    while !left.is_empty() {
        let len = (1 + rng.index(50_000)).min(left.len());
        let part = left.split_to(len);
        m.ranges.push(writelist::WriteRange { offset: at, len: len as u32 });
        if m.write.checksum != ChecksumType::None && at.checked_add(len as u64).is_some() {
            sums.extend(m.write.checksum.of_write(at, &part));
        }
        at = at.wrapping_add(len as u64 + *rng.pick(&[0, 1, 4096, 9000]));
    }
    m.write.block_crcs = sums;
}

/// What stands in a batch.
fn ops(pool: &Pool, rng: &mut Rng, bulk: &mut Bytes) -> Vec<batch::BatchOp> {
    let mut all = Vec::new();
    let count = if rng.below(50) == 0 { 1001 } else { rng.index(6) };
    let mut data = Vec::new();
    for _ in 0..count {
        let op = *rng.pick(Op::ALL);
        // Not those in which the same would begin again, and not those that do not come in batches with right
        // values.
        if matches!(op, Op::Batch) && rng.below(8) > 0 {
            continue;
        }
        let made = if op == Op::Batch { (vec![0; 3], Bytes::new()) } else { plain(op, pool, rng) };
        let mut b = value::<batch::BatchOp>(&mut Arbitrary::new(rng, pool, 20));
        (b.opcode, b.body) = (if rng.below(40) == 0 { b.opcode } else { op as u16 }, made.0);
        if rng.below(8) > 0 {
            b.bulk = made.1.len() as u32;
        }
        data.extend_from_slice(&made.1);
        all.push(b);
    }
    *bulk = data.into();
    all
}

fn plain(op: Op, pool: &Pool, rng: &mut Rng) -> (Vec<u8>, Bytes) {
    let m = make(op, pool, rng);
    (m.body, m.bulk)
}
