//! Where a backup's pairs come from: a server of this host that keeps a moment of its table, or the folder of
//! a stopped target.

use super::set::Manifest;
use super::{Kind, MGT, TABLE};
use crate::fsck::targets::{self, Target};
use admin::command::barrier::Served;
use admin::command::mkfs::MGT_SUBDIR;
use admin::interrupt::Interrupt;
use admin::local::{Daemon, DaemonReply, DaemonRequest};
use admin::views::{TableAnswer, TableOrder, TablePage, page};
use client::control::Packed;
use model::barrier::{BARRIER_DEFAULT_S, BarrierOrder, BarrierState};
use std::collections::BTreeMap;
use store::format::Superblock;
use world::World;

pub struct Source {
    name: String,
    sb: Superblock,
    taken: i64,
    from: From,
}

enum From {
    Server { daemon: Daemon, tables: BTreeMap<&'static str, View> },
    Folder(Box<Target>),
}

/// A moment that a daemon keeps of one of its targets.
struct View {
    label: String,
    id: u64,
    position: (u32, u64),
}

fn ask(d: &Daemon, label: &str, order: TableOrder) -> Result<TableAnswer, String> {
    let request = DaemonRequest::Table { target: label.to_string(), order };
    match d.ask(&request).map_err(|f| f.to_string())? {
        DaemonReply::Table(a) => Ok(a),
        DaemonReply::Error { message, .. } => Err(format!("{label}: {message}")),
        other => Err(format!("{label}: unexpected answer {other:?}")),
    }
}

fn opened(d: &Daemon, label: &str, order: TableOrder) -> Result<View, String> {
    match ask(d, label, order)? {
        TableAnswer::Opened { view, epoch, lsn } => {
            Ok(View { label: label.to_string(), id: view, position: (epoch, lsn) })
        }
        _ => Err(format!("{label}: its answer is none")),
    }
}

fn within(mgt: &str) -> String {
    format!("'{mgt}': an MGT within an MDT's folder is copied by 'nacre backup mdt'")
}

fn fits(kind: Kind, sb: &Superblock, label: &str) -> Result<(), String> {
    if sb.target.kind == kind.of() {
        return Ok(());
    }
    Err(format!("{label} is no target for 'nacre backup {}'", kind.word()))
}

impl Source {
    /// `begun`: what an interrupted copy wrote; its moment is used if it is kept still.
    pub fn open(
        world: &World,
        kind: Kind,
        target: &str,
        begun: Option<&Manifest>,
        i: &Interrupt,
    ) -> Result<Source, String> {
        let taken = world.wall().sec;
        let Some((daemon, t)) = Daemon::serving(target) else {
            return Source::stopped(world, kind, target, taken);
        };
        // The MGT within an MDT's folder has no label of its own.
        let around = t.dir.strip_suffix(&format!("/{MGT_SUBDIR}"));
        if around.and_then(|mdt| Superblock::read(world, mdt).ok()).is_some_and(|sb| sb.with_mgt) {
            return Err(within(&t.dir));
        }
        let sb = Superblock::read(world, &t.dir).map_err(|e| e.to_string())?;
        fits(kind, &sb, &t.label)?;
        let wanted = begun.and_then(|b| b.view).filter(|_| begun.is_some_and(|b| b.target == t.label));
        let mut tables = BTreeMap::new();
        let kept = wanted.and_then(|view| opened(&daemon, &t.label, TableOrder::Look { view }).ok());
        let main = match kept {
            Some(v) => v,
            None if kind == Kind::Mdt => under_barrier(&daemon, &t.label, i)?,
            None => opened(&daemon, &t.label, TableOrder::Open)?,
        };
        tables.insert(TABLE, main);
        if kind == Kind::Mdt && sb.with_mgt {
            match opened(&daemon, "MGS", TableOrder::Open) {
                Ok(v) => drop(tables.insert(MGT, v)),
                Err(e) => {
                    tables
                        .values()
                        .for_each(|v| drop(ask(&daemon, &v.label, TableOrder::Close { view: v.id })));
                    return Err(e);
                }
            }
        }
        Ok(Source { name: t.label, sb, taken, from: From::Server { daemon, tables } })
    }

    fn stopped(world: &World, kind: Kind, dir: &str, taken: i64) -> Result<Source, String> {
        let folder = world::sys::files::canonical(dir)
            .map_err(|_| format!("'{dir}' is no target that a server on this host has, and no folder"))?;
        let folder = folder.to_str().ok_or_else(|| format!("'{dir}' is not UTF-8"))?;
        // Before it is opened: what is open is let go a moment later.
        if let Ok(sb) = Superblock::read(world, folder) {
            if kind == Kind::Mgt && sb.with_mgt {
                return Err(within(folder));
            }
            fits(kind, &sb, &sb.target.label(&sb.fsname))?;
        }
        let t = targets::open(world, folder, false, false)?;
        assert_eq!(t.sb.target.kind, kind.of(), "what is opened was looked at");
        let mut sb = t.sb.clone();
        // Looking at it was no start.
        sb.epoch -= 1;
        Ok(Source { name: t.label.clone(), sb, taken, from: From::Folder(Box::new(t)) })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn label(&self) -> &Superblock {
        &self.sb
    }

    /// Seconds since 1970.
    pub fn taken(&self) -> i64 {
        self.taken
    }

    /// Of the table: the target's start, and its last transaction.
    pub fn position(&self) -> (u32, u64) {
        match &self.from {
            From::Server { tables, .. } => tables[TABLE].position,
            From::Folder(t) => (self.sb.epoch, t.db.last_submitted()),
        }
    }

    /// Of a served target.
    pub fn view(&self) -> Option<u64> {
        match &self.from {
            From::Server { tables, .. } => Some(tables[TABLE].id),
            From::Folder(_) => None,
        }
    }

    pub fn tables(&self) -> Vec<&'static str> {
        match &self.from {
            From::Server { tables, .. } => tables.keys().copied().collect(),
            From::Folder(_) if self.sb.with_mgt => vec![MGT, TABLE],
            From::Folder(_) => vec![TABLE],
        }
    }

    /// Pairs behind a key.
    pub fn page(&self, table: &str, after: Option<Vec<u8>>) -> Result<TablePage, String> {
        match &self.from {
            From::Server { daemon, tables } => {
                let v = &tables[table];
                let none = || format!("{}: its answer is none", v.label);
                let order = TableOrder::Page { view: v.id, after: after.as_ref().map(Packed::of) };
                match ask(daemon, &v.label, order)? {
                    TableAnswer::Page(p) => p.open().map_err(|_| none()),
                    _ => Err(none()),
                }
            }
            From::Folder(t) => {
                let db = if table == MGT { t.mgt.as_ref() } else { Some(&t.db) };
                let db = db.ok_or_else(|| format!("{} holds no MGT", t.label))?;
                page(db, after).map_err(|e| e.to_string())
            }
        }
    }

    /// `done`: the moment is needed no more.
    pub async fn close(self, done: bool) -> Result<(), String> {
        match self.from {
            From::Server { daemon, tables } => {
                // Only the table's own moment is used by a run that goes on.
                for (_, v) in tables.iter().filter(|(t, _)| done || **t != TABLE) {
                    // It expires by itself.
                    let _ = ask(&daemon, &v.label, TableOrder::Close { view: v.id });
                }
                Ok(())
            }
            From::Folder(t) => t.close().await,
        }
    }
}

/// A moment at which nothing was half-way and mounts had told everything: under a barrier of our own, which
/// is over when this returns, or under the one that is there.
fn under_barrier(d: &Daemon, label: &str, i: &Interrupt) -> Result<View, String> {
    let what = "cannot freeze";
    let text = |f: admin::failure::Failure| f.to_string();
    let t = Served::here(d, label);
    let there = t.ask(what, BarrierOrder::Stat).map_err(text)?;
    let (frozen, own) = match there.state {
        BarrierState::Frozen => (there, false),
        _ => (t.freeze(what, BARRIER_DEFAULT_S, i).map_err(text)?, true),
    };
    let view = opened(d, label, TableOrder::Open);
    let after = t.ask(what, BarrierOrder::Stat).map_err(text);
    if own {
        // What matters is whether it held until here, which was asked.
        let _ = t.ask("cannot thaw", BarrierOrder::Thaw);
    }
    let view = view?;
    let held = after.is_ok_and(|s| s.state == BarrierState::Frozen && s.round == frozen.round);
    if held {
        return Ok(view);
    }
    let _ = ask(d, label, TableOrder::Close { view: view.id });
    Err(format!("the barrier of {label} was over before its moment was kept: try again"))
}
