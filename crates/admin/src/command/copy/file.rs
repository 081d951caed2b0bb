//! Regular files: small ones by one worker, the pieces of large ones by all.

use super::attributes::{self, Was};
use super::copier::{CopyRun, Failed, FolderPair, Task, was};
use super::report::add;
use super::restore::Restore;
use super::rules::layout_of;
use crate::pool::BLOCK_BYTES;
use client::control::{self, Name, Request};
use model::Errno;
use model::mutex::Mutex;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use world::sys::load::{Buffer, LoadFile};
use world::sys::tree::{self, Folder, Kind, Node, Stat};

/// What one worker takes of a large file.
const PIECE_BYTES: u64 = 16 << 20;
/// A file that changes while it is copied is copied once more.
const TRIES: u32 = 2;

/// Whether a file is there already, or its last piece is copied by somebody later.
pub enum Made {
    Now,
    Later,
}

/// A file that several workers copy.
pub struct FilePieces {
    branch: Arc<FolderPair>,
    name: OsString,
    wanted: Stat,
    from: LoadFile,
    to: LoadFile,
    /// Where the next piece begins.
    next: AtomicU64,
    failed: Mutex<Option<Failed>>,
    try_number: u32,
}

/// What is copied now, and its size, is what was there before.
fn is_same(a: &Stat, b: &Stat) -> bool {
    (a.kind(), a.size, a.mtime) == (b.kind(), b.size, b.mtime)
}

/// Copies a regular file, unless it is there already.
pub fn copy(
    c: &CopyRun<'_>,
    b: &Arc<FolderPair>,
    name: &OsStr,
    mut wanted: Stat,
    there: Option<Stat>,
    buffer: &mut Buffer,
) -> Result<Made, Failed> {
    let counts = &c.report.counts;
    let new = b.name_in_copy(name);
    if there.is_some_and(|t| is_same(&t, &wanted)) {
        add(&counts.skipped, 1);
        add(&counts.bytes_skipped, wanted.size);
        if let (Some(to), Some(now), false) = (&b.to, there, c.options.dry_run) {
            let (from, to) = (Node::Named(&b.from, name), Node::Named(to, new));
            if !c.may_replace(b) {
                c.differs(&b.path_of(name), from, &wanted, to);
                return Ok(Made::Now);
            }
            let out = attributes::set(from, &wanted, to, &now, Was::There, c.options.root);
            c.outcome(&b.path_of(name), out, false);
        }
        return Ok(Made::Now);
    }
    let Some(to) = b.to.as_ref().filter(|_| !c.options.dry_run) else {
        add(&counts.files_copied, 1);
        add(&counts.bytes_copied, wanted.size);
        return Ok(Made::Now);
    };
    let mut there = there;
    for try_number in 1..=TRIES {
        let from = b.from.read_file(name).map_err(|e| ("open", e))?;
        let opened = Node::Open(from.as_fd()).stat().map_err(|e| ("look at", e))?;
        if opened.kind() != Kind::File {
            return Err(("copy what was replaced meanwhile:", Errno::ESTALE.into()));
        }
        if let Some(t) = there {
            c.make_room(b, (to, new), &t)?;
        }
        wanted = as_claimed(opened, &wanted);
        let made = create(c, b, to, (name, new), &wanted).map_err(|e| ("create the copy of", e))?;
        if wanted.size > c.options.large_bytes {
            return large(c, b, name, wanted, (from, made), try_number).map(|()| Made::Later);
        }
        let done = whole(c, &from, &made, &wanted, buffer);
        if finish(c, b, name, &wanted, (&from, made), done, try_number)? {
            return Ok(Made::Now);
        }
        there = to.find(new).map_err(|e| ("look at the copy of", e))?;
    }
    Ok(Made::Now)
}

/// Other names may wait for the file as it was met: that is what it goes on to be known by.
fn as_claimed(opened: Stat, met: &Stat) -> Stat {
    Stat { dev: met.dev, ino: met.ino, nlink: met.nlink, ..opened }
}

/// A new file with the layout that the user wants for it.
fn create(
    c: &CopyRun<'_>,
    b: &FolderPair,
    to: &Folder,
    (old, name): (&OsStr, &OsStr),
    wanted: &Stat,
) -> io::Result<LoadFile> {
    if let Some(r) = &c.options.restore {
        return again(c, b, to, (old, name), r);
    }
    let Some(spec) = layout_of(&c.options.layouts, name, wanted.size) else {
        // Nobody else reads it before it has its owner.
        let owned = (wanted.uid, wanted.gid) == c.user && !b.gives_group;
        return to.create_file(name, if owned { wanted.mode & 0o777 } else { 0o600 });
    };
    let new = Name(name.as_bytes().to_vec());
    let request = Request::Create { name: new, mode: 0o600, umask: 0, spec: spec.clone() };
    match control::call(to, &request) {
        Ok(_) => to.write_file(name),
        Err(e) => Err(Errno(e.errno).into()),
    }
}

/// A new file with the layout and project that it had in the snapshot, where it is called `old`.
fn again(
    c: &CopyRun<'_>,
    b: &FolderPair,
    to: &Folder,
    (old, new): (&OsStr, &OsStr),
    r: &Restore,
) -> io::Result<LoadFile> {
    let (made, mut not_kept) = r.create(&b.from, old, (to, new))?;
    if !b.begun {
        r.mark(Node::Open(made.as_fd()));
    }
    let project = r.set_project((&b.from, old), (to, new), b.project);
    not_kept.project = project.project;
    not_kept.others.extend(project.others);
    c.not_kept(&b.path_of(old), not_kept);
    Ok(made)
}

fn large(
    c: &CopyRun<'_>,
    b: &Arc<FolderPair>,
    name: &OsStr,
    wanted: Stat,
    (from, to): (LoadFile, LoadFile),
    try_number: u32,
) -> Result<(), Failed> {
    // Pieces at its end must not make it grow one behind the other.
    let grown = to.set_len(wanted.size);
    let workers = (wanted.size.div_ceil(PIECE_BYTES)).min(c.options.threads as u64) as usize;
    let large = FilePieces {
        branch: b.clone(),
        name: name.to_os_string(),
        wanted,
        from,
        to,
        next: AtomicU64::new(0),
        failed: Mutex::new(grown.err().map(|e| ("write the copy of", e))),
        try_number,
    };
    c.pool.push_all(shared(large, workers).into_iter().map(Task::Pieces));
    Ok(())
}

/// One for each worker and none beside them: who has the last completes the file, and whoever hands them out
/// may come to its end after all of them.
fn shared<T>(of: T, workers: usize) -> Vec<Arc<T>> {
    assert!(workers > 0, "a large file has a piece");
    let one = Arc::new(of);
    let all = vec![one; workers];
    assert_eq!(
        Arc::strong_count(&all[0]),
        workers,
        "nobody but the workers keeps a file from its completion"
    );
    all
}

/// Copies pieces of a large file until there are none. Who is the last completes the file.
pub fn pieces(c: &CopyRun<'_>, l: Arc<FilePieces>, buffer: &mut Buffer) {
    while l.failed.lock().is_none() {
        if c.stop.wanted() {
            l.failed.lock().get_or_insert(("go on with", Errno::ECANCELED.into()));
            break;
        }
        let at = l.next.fetch_add(PIECE_BYTES, Ordering::Relaxed);
        if at >= l.wanted.size {
            break;
        }
        let end = (at + PIECE_BYTES).min(l.wanted.size);
        match first_piece(&l, at) {
            Ok(first) if first > at => {
                l.next.fetch_max(first, Ordering::Relaxed);
                continue;
            }
            Ok(_) => {}
            Err(e) => {
                l.failed.lock().get_or_insert(e);
                break;
            }
        }
        if let Err(e) = range(c, &l.from, &l.to, (at, end), true, buffer) {
            l.failed.lock().get_or_insert(e);
        }
        c.report.show("copy");
    }
    let Some(l) = Arc::into_inner(l) else { return };
    let done = l.failed.into_inner().map_or(Ok(()), Err);
    let done = done.and_then(|()| l.to.fsync().map_err(|e| ("flush the copy of", e)));
    let (b, name) = (l.branch, l.name);
    let again = match finish(c, &b, &name, &l.wanted, (&l.from, l.to), done, l.try_number) {
        Ok(complete) => !complete && l.try_number < TRIES,
        Err((what, e)) => {
            c.failed(&b.path_of(&name), what, e);
            c.linked(&b, &name, &l.wanted, false);
            c.left(b);
            return;
        }
    };
    if again && let Err((what, e)) = once_more(c, &b, &name, &l.wanted, l.try_number + 1) {
        c.failed(&b.path_of(&name), what, e);
        c.linked(&b, &name, &l.wanted, false);
    } else if !again {
        c.linked(&b, &name, &l.wanted, true);
    }
    c.left(b);
}

/// Where the first piece from `at` on begins that has data: a file may have terabytes without.
fn first_piece(l: &FilePieces, at: u64) -> Result<u64, Failed> {
    let found = tree::next_data(&l.from, at, l.wanted.size).map_err(|e| ("look for data of", e))?;
    Ok(found.map_or(l.wanted.size, |(data, _)| data / PIECE_BYTES * PIECE_BYTES))
}

/// A large file that changed meanwhile.
fn once_more(
    c: &CopyRun<'_>,
    b: &Arc<FolderPair>,
    name: &OsStr,
    wanted: &Stat,
    try_number: u32,
) -> Result<(), Failed> {
    let (Some(to), new) = (&b.to, b.name_in_copy(name)) else { return Ok(()) };
    let from = b.from.read_file(name).map_err(|e| ("open", e))?;
    let opened = Node::Open(from.as_fd()).stat().map_err(|e| ("look at", e))?;
    let wanted = as_claimed(opened, wanted);
    to.unlink(new).map_err(|e| ("replace the copy of", e))?;
    let made = create(c, b, to, (name, new), &wanted).map_err(|e| ("create the copy of", e))?;
    large(c, b, name, wanted, (from, made), try_number)
}

/// All bytes of a file by one worker.
fn whole(
    c: &CopyRun<'_>,
    from: &LoadFile,
    to: &LoadFile,
    wanted: &Stat,
    buffer: &mut Buffer,
) -> Result<(), Failed> {
    let sparse = wanted.blocks.saturating_mul(512) < wanted.size;
    if sparse {
        to.set_len(wanted.size).map_err(|e| ("write the copy of", e))?;
    }
    range(c, from, to, (0, wanted.size), sparse, buffer)
}

/// Bytes `begin..end`; of a file that may be `sparse` its data only.
fn range(
    c: &CopyRun<'_>,
    from: &LoadFile,
    to: &LoadFile,
    (begin, end): (u64, u64),
    sparse: bool,
    buffer: &mut Buffer,
) -> Result<(), Failed> {
    let mut at = begin;
    while at < end {
        let (data, data_end) = if sparse {
            let found = tree::next_data(from, at, end).map_err(|e| ("look for data of", e))?;
            let Some(found) = found else { break };
            found
        } else {
            (at, end)
        };
        at = data;
        while at < data_end {
            if c.stop.wanted() {
                return Err(("go on with", Errno::ECANCELED.into()));
            }
            let len = (data_end - at).min(BLOCK_BYTES as u64) as usize;
            let n = from.read_at(&mut buffer[..len], at).map_err(|e| ("read", e))?;
            to.write_at(&buffer[..n], at).map_err(|e| ("write the copy of", e))?;
            add(&c.report.counts.bytes_copied, n as u64);
            at += n as u64;
            if n < len {
                // It became shorter: the look at it afterwards shows it.
                return Ok(());
            }
            if at < data_end {
                c.stop.step();
            }
        }
    }
    Ok(())
}

/// Everything about a file whose bytes are copied, if they are. `false`: it changed meanwhile. What is not
/// complete is removed; what changed is left, without the time that says that it is complete.
fn finish(
    c: &CopyRun<'_>,
    b: &FolderPair,
    name: &OsStr,
    wanted: &Stat,
    (from, to): (&LoadFile, LoadFile),
    done: Result<(), Failed>,
    try_number: u32,
) -> Result<bool, Failed> {
    let now = match done {
        Ok(()) => Node::Open(from.as_fd()).stat().map_err(|e| ("look at", e)),
        Err(e) => Err(e),
    };
    let path = b.path_of(name);
    let changed = match now {
        Ok(now) => !is_same(&now, wanted),
        Err(e) => return undo(c, b, name, e),
    };
    if changed && try_number < TRIES {
        return Ok(false);
    }
    let node = Node::Open(to.as_fd());
    let mut made = match node.stat() {
        Ok(s) => s,
        Err(e) => return undo(c, b, name, ("look at the copy of", e)),
    };
    let mut was = was(false, b.has_default_acl);
    if changed {
        c.report.difference(&c.shown(&path), "changes while it is copied");
        // Everything but the time is set.
        (was, made.mtime) = (Was::There, wanted.mtime);
    }
    // Whoever may not write his own file cannot take its mark away later.
    let first = !c.options.root && wanted.mode & 0o200 == 0;
    if let Some(r) = c.options.restore.as_ref().filter(|_| !changed && first && !b.begun) {
        r.unmark(node);
    }
    let out = attributes::set(Node::Open(from.as_fd()), wanted, node, &made, was, c.options.root);
    c.outcome(&path, out, true);
    if let Some(r) = c.options.restore.as_ref().filter(|_| !changed && !first && !b.begun) {
        r.unmark(node);
    }
    if let Err(e) = to.close() {
        return undo(c, b, name, ("close the copy of", e));
    }
    add(&c.report.counts.files_copied, 1);
    Ok(true)
}

/// Removes a file that is not complete.
fn undo(c: &CopyRun<'_>, b: &FolderPair, name: &OsStr, e: Failed) -> Result<bool, Failed> {
    if let Some(to) = &b.to
        && let Err(e) = to.unlink(b.name_in_copy(name))
    {
        c.report.error(&c.shown(&b.path_of(name)), "remove what is not complete of the copy of", e);
    }
    Err(e)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool's worker that hands a large file out is slower than all who work on it.
    #[test]
    fn the_last_who_works_on_a_file_completes_it() {
        for workers in 1..20 {
            let mut all = shared("file", workers);
            while let Some(one) = all.pop() {
                assert_eq!(Arc::into_inner(one).is_some(), all.is_empty(), "{workers} workers");
            }
        }
    }
}
