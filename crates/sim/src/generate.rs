//! Random operations. Each run uses a random subset of the kinds (swarm testing): what is rare in the mixture
//! of all is common in some.

use crate::exec::COMPOSITE;
use crate::oracle::{Body, FILE_MAX_BYTES, Id, KEEP_SIZE, Op, PUNCH_HOLE, ROOT, Tree, ZERO_RANGE};
use ::world::rng::Rng;

const DEPTH_MAX: usize = 4;
/// Above so many files the workload removes more than it makes.
const NODES_MAX: usize = 48;
const NAMES: [&[u8]; 9] =
    [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"name with spaces", &[0xc3, 0xa4, 0xff, b'x']];
const XATTRS: [&[u8]; 3] = [b"user.one", b"user.two", b"user.three"];
/// How likely each kind is, in the order of [`pick_kind`].
const WEIGHTS: [u32; 28] =
    [14, 2, 7, 4, 2, 6, 9, 5, 10, 7, 6, 16, 7, 12, 6, 5, 4, 3, 4, 7, 6, 5, 2, 5, 3, 3, 2, 3];

/// Weights of the kinds of operations in one run.
#[derive(Clone, Debug)]
pub struct Mix {
    weights: [u32; 28],
    total: u32,
    max_stripes: u32,
    /// Every other file that is striped has a layout in components.
    composite: bool,
}

impl Mix {
    pub fn new(rng: &mut Rng, osts: u32) -> Mix {
        let mut weights = WEIGHTS;
        for w in &mut weights {
            if rng.below(10) < 3 {
                *w = 0;
            }
        }
        // Something to work on there must be.
        weights[0] = weights[0].max(8);
        let max_stripes = if rng.below(4) == 0 { 1 } else { osts };
        Mix { weights, total: weights.iter().sum(), max_stripes, composite: false }
    }

    /// As this one, with layouts in components.
    pub fn with_composites(self, composite: bool) -> Mix {
        Mix { composite, ..self }
    }

    fn stripes(&self, rng: &mut Rng) -> u32 {
        let n = rng.below(u64::from(self.max_stripes) + 1) as u32;
        if self.composite && n > 0 && rng.coin() { COMPOSITE + rng.below(4) as u32 } else { n }
    }

    fn pick_kind(&self, rng: &mut Rng) -> usize {
        let mut n = rng.below(u64::from(self.total)) as u32;
        for (i, w) in self.weights.iter().enumerate() {
            if n < *w {
                return i;
            }
            n -= w;
        }
        unreachable!("the weights add up to the total")
    }
}

/// The nodes of a tree, by what can be done with them.
#[derive(Default)]
struct Choices {
    dirs: Vec<Id>,
    files: Vec<Id>,
    others: Vec<Id>,
    any: Vec<Id>,
}

impl Choices {
    fn of(tree: &Tree) -> Choices {
        let mut c = Choices::default();
        for (id, n) in tree.iter() {
            match n.body {
                Body::Dir(_) => c.dirs.push(id),
                Body::File(_) => c.files.push(id),
                _ => c.others.push(id),
            }
            c.any.push(id);
        }
        c
    }
}

/// The next operation; `None`: what the dice said has nothing to work on.
pub fn next(tree: &Tree, mix: &Mix, rng: &mut Rng) -> Option<Op> {
    let c = Choices::of(tree);
    let full = tree.count() > NODES_MAX;
    let kind = if full && rng.coin() { 6 + rng.index(2) } else { mix.pick_kind(rng) };
    match kind {
        0..9 => names_op(tree, mix, rng, &c, kind, full),
        11..18 => data_op(tree, rng, &c, kind),
        _ => attr_op(tree, rng, &c, kind),
    }
}

fn name(rng: &mut Rng) -> Vec<u8> {
    if rng.below(60) == 0 {
        return vec![b'n'; rng.range(100, 255) as usize];
    }
    rng.pick(&NAMES).to_vec()
}

/// A name that is there, most of the time.
fn old_name(tree: &Tree, dir: Id, rng: &mut Rng) -> Vec<u8> {
    let e = tree.entries(dir);
    if e.is_empty() || rng.below(8) == 0 {
        return name(rng);
    }
    e.keys().nth(rng.index(e.len())).expect("within").clone()
}

fn mode(rng: &mut Rng) -> u32 {
    *rng.pick(&[0o644, 0o600, 0o755, 0o777, 0o000, 0o444])
}

fn names_op(tree: &Tree, mix: &Mix, rng: &mut Rng, c: &Choices, kind: usize, full: bool) -> Option<Op> {
    let dir = *rng.pick(&c.dirs);
    let deep = tree.depth(dir) >= DEPTH_MAX;
    if full && kind < 6 {
        return None;
    }
    Some(match kind {
        0 => Op::Create {
            dir,
            name: name(rng),
            mode: mode(rng),
            stripes: mix.stripes(rng),
            exclusive: rng.below(3) > 0,
        },
        1 => Op::Tmpfile { dir, mode: mode(rng) },
        2 if deep => return None,
        2 => Op::Mkdir { dir, name: name(rng), mode: 0o755 },
        3 => {
            let n = rng.range(1, 300) as usize;
            Op::Symlink { dir, name: name(rng), target: vec![b't'; n] }
        }
        4 => Op::Fifo { dir, name: name(rng), mode: mode(rng) },
        5 => Op::Link { node: *rng.pick(&c.any), dir, name: name(rng) },
        6 => Op::Unlink { dir, name: old_name(tree, dir, rng) },
        7 => Op::Rmdir { dir, name: old_name(tree, dir, rng) },
        _ => {
            let to = *rng.pick(&c.dirs);
            if tree.depth(to) + 2 > DEPTH_MAX {
                return None;
            }
            let to_name = if rng.coin() { name(rng) } else { old_name(tree, to, rng) };
            Op::Rename {
                dir,
                name: old_name(tree, dir, rng),
                to,
                to_name,
                flags: [0, 0, 0, 1, 2][rng.index(5)],
            }
        }
    })
}

fn offset(rng: &mut Rng, size: u64) -> u64 {
    match rng.below(10) {
        0..4 => rng.below(size + 1),
        4..6 => size,
        6..8 => rng.below(20_000),
        // Near the border of a stripe.
        8 => 65536 * rng.range(1, 4) - rng.below(9000).min(65000),
        _ => rng.below(260_000),
    }
}

fn length(rng: &mut Rng) -> u64 {
    match rng.below(20) {
        0..9 => rng.range(1, 600),
        9..16 => rng.range(1, 9000),
        16..18 => rng.range(1, 30_000),
        _ => rng.range(60_000, 140_000),
    }
}

/// Numbers of segments that forged records claim begin below this.
const FORGED_SEGMENTS: u64 = 40;

/// Random bytes; of some users such as would pass for records of a journal.
fn payload(rng: &mut Rng, len: u64) -> Vec<u8> {
    if rng.below(8) == 0 {
        let (from, guess) = (rng.below(FORGED_SEGMENTS), rng.below(u64::MAX));
        return store::fuzz::forged_journal(len as usize, from, guess);
    }
    let mut d = vec![0; len as usize];
    rng.fill(&mut d);
    d
}

fn data_op(tree: &Tree, rng: &mut Rng, c: &Choices, kind: usize) -> Option<Op> {
    if c.files.is_empty() {
        return None;
    }
    let node = *rng.pick(&c.files);
    let size = tree.node(node).data().len() as u64;
    let off = offset(rng, size);
    let len = length(rng);
    if off + len > FILE_MAX_BYTES || size + len > FILE_MAX_BYTES {
        return Some(Op::Truncate { node, size: rng.below(70_000) });
    }
    Some(match kind {
        11 => Op::Write { node, off, data: payload(rng, len) },
        12 => Op::Append { node, data: payload(rng, len) },
        13 => Op::Read { node, off: off.saturating_sub(rng.below(5000)), len: len as u32 },
        14 => Op::Truncate { node, size: if rng.coin() { rng.below(size + 1) } else { off } },
        15 => {
            let mode = [
                0,
                KEEP_SIZE,
                PUNCH_HOLE | KEEP_SIZE,
                PUNCH_HOLE | KEEP_SIZE,
                ZERO_RANGE,
                ZERO_RANGE | KEEP_SIZE,
            ];
            Op::Fallocate { node, mode: mode[rng.index(6)], off, len }
        }
        16 => {
            let to = *rng.pick(&c.files);
            let to_off = offset(rng, tree.node(to).data().len() as u64);
            if to == node || to_off + len > FILE_MAX_BYTES {
                return None;
            }
            Op::Copy { from: node, from_off: rng.below(size + 1), to, to_off, len }
        }
        _ => Op::Seek { node, off: rng.below(size + 5000), hole: rng.coin() },
    })
}

fn attr_op(tree: &Tree, rng: &mut Rng, c: &Choices, kind: usize) -> Option<Op> {
    let node = *rng.pick(&c.any);
    let dir = *rng.pick(&c.dirs);
    // Only files and directories have attributes of users.
    let tagged = if c.files.is_empty() || rng.below(3) == 0 { dir } else { *rng.pick(&c.files) };
    let xattr = rng.pick(&XATTRS).to_vec();
    Some(match kind {
        9 => {
            if c.files.is_empty() {
                return None;
            }
            Op::Open { node: *rng.pick(&c.files) }
        }
        10 => Op::Fsync { node: if c.files.is_empty() { dir } else { *rng.pick(&c.files) } },
        18 if c.others.contains(&node) || node == ROOT => return None,
        18 => Op::Chmod { node, mode: mode(rng) },
        19 => Op::Getattr { node },
        20 => Op::Lookup { dir, name: old_name(tree, dir, rng) },
        21 => Op::Readdir { dir, max_bytes: if rng.coin() { 700 } else { 65536 }, plus: rng.coin() },
        22 => {
            let link = c.others.iter().find(|i| matches!(tree.node(**i).body, Body::Symlink(_)))?;
            Op::Readlink { node: *link }
        }
        23 => {
            let len = if rng.below(4) == 0 { rng.range(500, 4000) } else { rng.range(0, 100) };
            Op::Setxattr { node: tagged, name: xattr, value: payload(rng, len), flags: rng.below(3) as u32 }
        }
        24 => Op::Getxattr { node: tagged, name: xattr },
        25 => Op::Removexattr { node: tagged, name: xattr },
        26 => Op::Listxattr { node: tagged },
        _ => {
            if tree.node(node).nlink == 0 {
                return None;
            }
            Op::Getpath { node }
        }
    })
}
