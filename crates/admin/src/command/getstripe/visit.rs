//! What `lfs getstripe` makes of the entries that a walk meets: the text of a page in one piece, so that
//! lines of several threads do not mix.

use super::{Printer, as_json};
use crate::failure::Failure;
use crate::getopt::Parsed;
use crate::output::JsonRows;
use crate::walk::{Directory, Place, Run, Visitor};
use client::control::{Inode, Listed, Stripe};
use model::mutex::Mutex;
use model::{FileType, Layout};
use serde_json::Value;
use std::path::Path;

/// Between documents of YAML.
const MARK: &str = "---\n";

/// Some of the output.
#[derive(Default)]
pub struct Piece {
    pub text: String,
    /// Where its first document of YAML begins, with its mark.
    document: Option<usize>,
    rows: Vec<Value>,
}

impl Piece {
    /// YAML of several files is as many documents.
    pub fn begin_document(&mut self) {
        self.document.get_or_insert(self.text.len());
        self.text += MARK;
    }
}

/// Shows layouts.
pub struct LayoutOutput<'a> {
    printer: &'a Printer,
    /// If JSON is wanted.
    rows: Option<JsonRows<'a>>,
    recursive: bool,
    /// Directories alone are shown.
    only_defaults: bool,
    write: &'a (dyn Fn(&[u8]) + Sync),
    /// A document of YAML was printed.
    documents: Mutex<bool>,
}

impl<'a> LayoutOutput<'a> {
    pub fn new(printer: &'a Printer, p: &Parsed, write: &'a (dyn Fn(&[u8]) + Sync)) -> LayoutOutput<'a> {
        LayoutOutput {
            printer,
            rows: p.has("json").then(|| JsonRows::to(write)),
            recursive: p.has("recursive"),
            only_defaults: p.has("default"),
            write,
            documents: Mutex::new(false),
        }
    }

    /// A file or directory; others have no layout.
    pub fn show(&self, path: &Path, s: &Stripe, out: &mut Piece) {
        if self.rows.is_some() {
            out.rows.push(as_json(path, s, &self.printer.filter));
        } else if s.kind == FileType::Directory {
            self.printer.dir(path, s, out);
        } else if s.kind == FileType::Regular && !self.only_defaults {
            self.printer.file(path, s, out);
        }
    }

    pub fn put(&self, piece: Piece) {
        if let Some(rows) = &self.rows {
            return rows.add(piece.rows);
        }
        if let Some(at) = piece.document {
            let mut documents = self.documents.lock();
            if !std::mem::replace(&mut *documents, true) {
                // The first one has no mark.
                let (before, document) = piece.text.split_at(at);
                (self.write)(before.as_bytes());
                let unmarked = document.strip_prefix(MARK).expect("a document begins with its mark");
                return (self.write)(unmarked.as_bytes());
            }
        }
        (self.write)(piece.text.as_bytes());
    }

    /// All was put.
    pub fn end(self) {
        if let Some(rows) = self.rows {
            rows.end();
        }
    }
}

impl Visitor for LayoutOutput<'_> {
    fn wants_inodes(&self) -> bool {
        true
    }

    fn wants_layouts(&self) -> bool {
        true
    }

    fn max_depth(&self) -> u32 {
        if self.recursive { u32::MAX } else { 1 }
    }

    fn visit(&self, at: &Place<'_>, entries: Vec<Listed>, run: &Run<'_>) {
        let mut piece = Piece::default();
        let has_layout = |l: &Listed| matches!(l.kind, FileType::Regular | FileType::Directory);
        for l in entries.into_iter().filter(has_layout) {
            if run.interrupt.stopped() {
                break;
            }
            if self.only_defaults && self.rows.is_none() && l.kind == FileType::Regular {
                continue;
            }
            let path = at.of(&l.name);
            match stripe(at.dir, l) {
                Ok(Some(s)) => self.show(&path, &s, &mut piece),
                Ok(None) => {}
                Err(f) => run.report(&f),
            }
        }
        self.put(piece);
    }
}

/// Where a file lies, from what came with its name; a directory is asked for what its new files get, and a
/// file of which something is left to know. `None` if it has gone.
fn stripe(dir: &dyn Directory, l: Listed) -> Result<Option<Stripe>, Failure> {
    if l.kind == FileType::Directory {
        return dir.defaults(&l.name);
    }
    let Some(Inode { layout, grows_into, .. }) = l.inode else { return dir.defaults(&l.name) };
    let unknown = grows_into.is_none() && layout.as_ref().and_then(Layout::data_room).is_some();
    if unknown {
        return dir.defaults(&l.name);
    }
    let grows_into = grows_into.map(|g| (*g).clone());
    let (fid, kind) = (l.fid, l.kind);
    Ok(Some(Stripe { fid, kind, layout, default: None, fs_default: None, mdt_bytes: None, grows_into }))
}
