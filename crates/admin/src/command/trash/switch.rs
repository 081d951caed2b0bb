//! Whose trash is kept: of directories, and of all that lie below them.

use super::items::below;
use super::totals::Totals;
use super::{GO_ON, NAME, explained};
use crate::failure::{Failure, FirstError};
use crate::getopt::Parsed;
use crate::live::ProgressLine;
use crate::local::{ask, inode_of, strange};
use crate::walk::{Mounted, Place, Run, Visitor, default_threads, walk};
use crate::{interrupt, output, say};
use client::control::{Listed, Reply, Request};
use model::inode_rules::FLAG_TRASH;
use model::{Errno, FileType};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Switches it for one directory.
fn one(dir: &Path, on: bool) -> Result<(), Failure> {
    let shown = dir.display().to_string();
    const WHAT: &str = "cannot switch the trash of";
    match ask(dir, &Request::TrashSet { on }) {
        Ok(Reply::Done) => Ok(()),
        Ok(other) => Err(strange(dir, &other)),
        Err(f) => Err(match Errno(f.exit_code()) {
            e @ Errno::EPERM => Failure::explained(
                WHAT,
                &shown,
                e,
                "only its owner and root may, and not while it is immutable",
            ),
            e @ Errno::ENOTDIR => Failure::op(WHAT, &shown, e),
            _ => explained(WHAT, &shown, f),
        }),
    }
}

/// Switches it for all directories that a walk meets: before it looks at what is in them, so that what is
/// made meanwhile inherits it.
struct Switch {
    on: bool,
    switched: Arc<AtomicU64>,
}

impl Visitor for Switch {
    fn wants_inodes(&self) -> bool {
        true
    }

    fn max_depth(&self) -> u32 {
        u32::MAX
    }

    fn visit(&self, at: &Place<'_>, entries: Vec<Listed>, run: &Run<'_>) {
        for e in entries.iter().filter(|e| e.kind == FileType::Directory) {
            if run.interrupt.stopped() {
                return;
            }
            let is_so = e.inode.as_ref().is_some_and(|i| (i.attr.flags & FLAG_TRASH != 0) == self.on);
            if is_so {
                continue;
            }
            match one(&at.of(&e.name), self.on) {
                Ok(()) => drop(self.switched.fetch_add(1, Relaxed)),
                // It was removed meanwhile.
                Err(f) if Errno(f.exit_code()) == Errno::ENOENT && at.path.is_some() => {}
                Err(f) => run.report(&f),
            }
        }
    }
}

pub fn all(p: &Parsed, on: bool) -> Result<i32, Failure> {
    let dirs: Vec<PathBuf> = p.operands.iter().map(PathBuf::from).collect();
    let (seen, switched) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let line = Arc::new(ProgressLine::for_terminal(p.has("quiet")));
    let (shown, so_far, ticking) = (seen.clone(), switched.clone(), line.clone());
    let tick = move || {
        let [seen, switched] = [&shown, &so_far].map(|n| n.load(Relaxed));
        ticking.show(|| format!("{seen} files looked at, {switched} directories switched"));
    };
    let visitor = Switch { on, switched };
    let (mut errors, signalled) = interrupt::guarded(tick, |interrupt| {
        let run = Run::new(NAME, interrupt, &seen);
        for dir in &dirs {
            if interrupt.stopped() {
                break;
            }
            // A file among the operands is a mistake; among what lies below it is not.
            let first = Mounted::new(dir).and_then(|tree| {
                crate::local::mount_point(dir)?;
                let is_dir = inode_of(dir, "cannot look at")?.attr.kind == FileType::Directory;
                if is_dir { Ok(tree) } else { one(dir, on).map(|()| tree) }
            });
            match first {
                Ok(tree) => walk(&tree, dir, default_threads(), &visitor, &run),
                Err(f) => run.report(&f),
            }
        }
        run.finish()
    });
    line.clear();
    if let Some(code) = signalled {
        errors.interrupted_so(NAME, GO_ON, code);
    }
    Ok(errors.exit_code())
}

pub fn status(p: &Parsed) -> Result<i32, Failure> {
    let (mut errors, mut rows) = (FirstError::default(), Vec::new());
    for dir in p.operands.iter().map(PathBuf::from) {
        match inode_of(&dir, "cannot look at") {
            Ok(i) if i.attr.kind != FileType::Directory => {
                errors
                    .report(NAME, &Failure::op("cannot look at", &dir.display().to_string(), Errno::ENOTDIR));
            }
            Ok(i) => match below(&dir, true) {
                Ok(all) => rows.push((dir, i.attr.flags & FLAG_TRASH != 0, Totals::of(&all))),
                Err(f) => errors.report(NAME, &f),
            },
            Err(f) => errors.report(NAME, &f),
        }
    }
    if p.has("json") {
        let row = |(dir, on, totals): &(PathBuf, bool, Totals)| json!({"path": dir, "trash": on, "removed": totals.json()});
        output::json(&json!({"directories": rows.iter().map(row).collect::<Vec<_>>()}));
    } else {
        for (dir, on, totals) in rows {
            say!("{}: {}", dir.display(), if on { "on" } else { "off" });
            output::bytes(totals.text().as_bytes());
        }
    }
    Ok(errors.exit_code())
}
