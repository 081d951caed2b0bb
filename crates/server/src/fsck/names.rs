//! A metadata target: the rules of `mds::check`, and mending what can be counted anew.

use super::cross::Names;
use super::report::{Problem, Report};
use super::targets::{Role, Target};
use mds::check::{Finding, Rule, Summary};
use mds::schema::{Inode, inode, key, value};
use model::{Fid, FileType};
use std::collections::BTreeSet;
use store::Txn;

/// Writes of one transaction.
const TXN_WRITES_MAX: usize = 1000;

/// After transactions were cut off: each may have leased a sequence of FIDs to a client, which goes on making
/// files with them. Nobody else gets these.
pub async fn pass_over_lost_sequences(t: &Target) -> Result<(), String> {
    let fail = |e: &dyn std::fmt::Display| format!("{}: {e}", t.label);
    let lost: u64 = t.cut.iter().map(|d| d.to - d.from + 1).sum();
    let Some(v) = t.db.get(key::STATE_NEXT_SEQ).map_err(|e| fail(&e))? else { return Ok(()) };
    let next = value::decode_u64(key::STATE_NEXT_SEQ, &v).map_err(|e| fail(&e))?;
    let mut txn = Txn::new();
    txn.put(key::STATE_NEXT_SEQ, value::encode_u64(next.saturating_add(lost)));
    let lsn = t.db.submit(txn).map_err(|e| fail(&e))?;
    t.db.durable(lsn).await.map_err(|e| fail(&e))
}

pub async fn check(t: &Target, repair: bool, report: &mut Report<'_>) -> Result<(), String> {
    assert_eq!(t.role, Role::Mdt, "names lie on metadata targets");
    if t.db.scan(&[0], &[0xff], 1).map_err(|e| format!("{}: {e}", t.label))?.is_empty() {
        report.note(&format!("{} was never started", t.label));
        return Ok(());
    }
    let found = run(t)?;
    let mut left = found.findings.clone();
    if repair && !found.findings.is_empty() {
        mend(t, &found.findings).await?;
        left = run(t)?.findings;
    }
    let names = Names::load(t)?;
    for f in &found.findings {
        let mended = repair && !left.contains(f);
        let mut p = Problem::new(&t.label, kind(f.rule), f.what.clone()).repaired(mended);
        if f.fid != Fid::NONE {
            p = p.file(f.fid, names.path(f.fid));
        }
        report.problem(p);
    }
    // What a repair brought to light.
    for f in left.iter().filter(|f| repair && !found.findings.contains(f)) {
        report.problem(Problem::new(&t.label, kind(f.rule), f.what.clone()).file(f.fid, names.path(f.fid)));
    }
    report.totals.errors += found.more;
    report.totals.inodes += found.inodes;
    report.totals.names += found.names;
    if found.orphans > 0 {
        let text = format!("{} files without a name, removed when the target starts", found.orphans);
        report.note(&format!("{}: {text}", t.label));
    }
    Ok(())
}

fn run(t: &Target) -> Result<Summary, String> {
    mds::check::check(&t.db).map_err(|e| format!("{}: {e}", t.label))
}

/// The short name for scripts.
pub fn kind(rule: Rule) -> &'static str {
    match rule {
        Rule::Damaged => "damaged",
        Rule::Name => "bad-name",
        Rule::Backpointer => "bad-back-pointer",
        Rule::Count => "wrong-count",
        Rule::Parent => "bad-parent",
        Rule::Orphan => "bad-orphan",
        Rule::Layout => "reverse-index",
        Rule::Outbox => "bad-outbox",
        Rule::Sequence => "bad-sequence",
        Rule::State => "bad-state",
        Rule::Usage => "wrong-usage",
        Rule::Directory => "wrong-directory",
        Rule::Xattr => "bad-xattr",
        Rule::Data => "bad-data",
        Rule::Changelog => "bad-changelog",
    }
}

/// Mends counts, back-pointers and the reverse index from what they are derived from: names and layouts.
async fn mend(t: &Target, findings: &[Finding]) -> Result<(), String> {
    let mut m = Mender { t, txn: Txn::new() };
    let of = |rules: &[Rule]| -> BTreeSet<Fid> {
        findings.iter().filter(|f| rules.contains(&f.rule) && f.fid != Fid::NONE).map(|f| f.fid).collect()
    };
    if findings.iter().any(|f| matches!(f.rule, Rule::Name | Rule::Backpointer)) {
        m.back_pointers().await?;
    }
    for fid in of(&[Rule::Count]) {
        m.counts(fid)?;
        m.submit_if(TXN_WRITES_MAX).await?;
    }
    for fid in of(&[Rule::Layout]) {
        m.reverse_entries(fid)?;
        m.submit_if(TXN_WRITES_MAX).await?;
    }
    for fid in of(&[Rule::Data]) {
        m.data(fid)?;
        m.submit_if(TXN_WRITES_MAX).await?;
    }
    if findings.iter().any(|f| f.rule == Rule::Orphan) {
        m.trash().await?;
    }
    m.submit_if(1).await?;
    if findings.iter().any(|f| f.rule == Rule::Layout) {
        m.stale_reverse_entries().await?;
    }
    if findings.iter().any(|f| f.rule == Rule::State) {
        m.inode_counter()?;
    }
    m.submit_if(1).await?;
    // Behind everything that changes inodes.
    m.usage()?;
    m.submit_if(1).await
}

struct Mender<'a> {
    t: &'a Target,
    txn: Txn,
}

impl Mender<'_> {
    fn fail(&self, e: impl std::fmt::Display) -> String {
        format!("{}: {e}", self.t.label)
    }

    fn inode(&self, fid: Fid) -> Result<Option<Inode>, String> {
        let v = self.t.db.get(&key::inode(fid)).map_err(|e| self.fail(e))?;
        Ok(v.and_then(|v| inode::Inode::decode(fid, &v).ok()))
    }

    async fn submit_if(&mut self, writes: usize) -> Result<(), String> {
        assert!(writes > 0, "a transaction that is submitted writes something");
        if self.txn.writes.len() < writes {
            return Ok(());
        }
        let lsn = self.t.db.submit(std::mem::take(&mut self.txn)).map_err(|e| self.fail(e))?;
        self.t.db.durable(lsn).await.map_err(|e| self.fail(e))
    }

    /// Pairs whose key starts with `prefix`, at most a page; `f` says whether to go on.
    fn walk(&self, prefix: &[u8], mut f: impl FnMut(&[u8], &[u8])) -> Result<(), String> {
        assert!(!prefix.is_empty(), "a walk is over keys of one kind");
        let (mut from, to) = (prefix.to_vec(), key::behind(prefix));
        loop {
            let page = self.t.db.scan(&from, &to, 1000).map_err(|e| self.fail(e))?;
            page.iter().for_each(|(k, v)| f(k, v));
            match page.last() {
                Some((k, _)) if page.len() == 1000 => {
                    from = k.clone();
                    from.push(0);
                }
                _ => return Ok(()),
            }
        }
    }

    /// nlink and entries of one inode, from its names.
    fn counts(&mut self, fid: Fid) -> Result<(), String> {
        assert_ne!(fid, Fid::NONE, "what is wrong with no file is not mended in one");
        let Some(mut i) = self.inode(fid)? else { return Ok(()) };
        let orphan = self.t.db.get(&key::orphan(fid)).map_err(|e| self.fail(e))?.is_some();
        let orphan = orphan || i.removed.is_some();
        if i.is_dir() {
            let (mut entries, mut dirs) = (0u64, 0u32);
            self.walk(&key::dentry_from(fid, 0)[..17], |k, v| {
                entries += 1;
                let kind = mds::schema::DentryValue::decode(k, v).map(|d| d.kind);
                dirs += u32::from(kind.is_ok_and(|k| k == FileType::Directory));
            })?;
            i.entries = entries;
            i.nlink = if orphan { 0 } else { 2 + dirs };
        } else {
            let mut names = 0u32;
            self.walk(&key::backptr_prefix(fid), |_, _| names += 1)?;
            // A file that lost all its names is left for a person to decide about.
            if names > 0 || orphan {
                i.nlink = names;
            }
        }
        i.version += 1;
        self.txn.put(key::inode(fid), i.encode());
        Ok(())
    }

    /// Records of the trash from what inodes say: missing ones are made, those that no inode agrees with go.
    async fn trash(&mut self) -> Result<(), String> {
        let (mut puts, mut deletes) = (Vec::new(), Vec::new());
        self.walk(&[key::INODE], |k, v| {
            let Some(fid) = key::parse_fid(k) else { return };
            let removed = inode::Inode::decode(fid, v).ok().filter(|i| i.nlink == 0).and_then(|i| i.removed);
            puts.extend(removed.map(|r| key::trash(r.when, fid)));
        })?;
        self.walk(&[key::TRASH], |k, _| deletes.push(k.to_vec()))?;
        let wanted: BTreeSet<Vec<u8>> = puts.into_iter().collect();
        let there: BTreeSet<Vec<u8>> = deletes.into_iter().collect();
        for k in there.difference(&wanted) {
            self.txn.delete(k.clone());
            self.submit_if(TXN_WRITES_MAX).await?;
        }
        for k in wanted.difference(&there) {
            self.txn.put(k.clone(), value::encode_trash());
            self.submit_if(TXN_WRITES_MAX).await?;
        }
        self.submit_if(1).await
    }

    /// Back-pointers from names: missing ones are made, those that no name agrees with go.
    async fn back_pointers(&mut self) -> Result<(), String> {
        let (mut puts, mut deletes) = (Vec::new(), Vec::new());
        self.walk(&[key::DENTRY], |k, v| {
            let Some((dir, cookie, name)) = key::parse_dentry(k) else { return };
            let Ok(d) = mds::schema::DentryValue::decode(k, v) else { return };
            let b = key::backptr(d.fid, dir, cookie);
            let wanted = value::encode_name(name);
            let there = |k: &[u8]| self.t.db.get(k).ok().flatten();
            if there(&b).as_ref() != Some(&wanted) && there(&key::inode(d.fid)).is_some() {
                puts.push((b, wanted));
            }
        })?;
        self.walk(&[key::BACKPTR], |k, v| {
            let Some((fid, parent, cookie)) = key::parse_backptr(k) else { return };
            let Ok(name) = value::decode_name(k, v) else { return };
            let d = key::dentry(parent, cookie, &name);
            let named = self.t.db.get(&d).ok().flatten();
            let agrees = named.and_then(|v| mds::schema::DentryValue::decode(&d, &v).ok());
            if agrees.is_none_or(|d| d.fid != fid) {
                deletes.push(k.to_vec());
            }
        })?;
        for k in deletes {
            self.txn.delete(k);
            self.submit_if(TXN_WRITES_MAX).await?;
        }
        for (k, v) in puts {
            self.txn.put(k, v);
            self.submit_if(TXN_WRITES_MAX).await?;
        }
        self.submit_if(1).await
    }

    /// Bytes that lie with an inode: those of no file go, the blocks of others are counted anew. What
    /// contradicts a layout or a size is left for a person to decide about: it is somebody's data.
    fn data(&mut self, fid: Fid) -> Result<(), String> {
        assert_ne!(fid, Fid::NONE, "what is wrong with no file is not mended in one");
        let mut keys = Vec::new();
        self.walk(&key::data_prefix(fid), |k, _| keys.push(k.to_vec()))?;
        if self.t.db.get(&key::inode(fid)).map_err(|e| self.fail(e))?.is_none() {
            keys.into_iter().for_each(|k| self.txn.delete(k));
            return Ok(());
        }
        let blocks = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        match self.inode(fid)? {
            Some(mut i) if i.data_room().is_some() && i.data.blocks != blocks => {
                i.data.blocks = blocks;
                i.version += 1;
                self.txn.put(key::inode(fid), i.encode());
            }
            _ => {}
        }
        Ok(())
    }

    /// Entries of the reverse index that the file's layout asks for.
    fn reverse_entries(&mut self, fid: Fid) -> Result<(), String> {
        let Some(inode) = self.inode(fid)? else { return Ok(()) };
        for o in inode.objects() {
            // An object that two layouts name stays with the one it has.
            let k = key::reverse(o.ost, o.id);
            let owner =
                self.t.db.get(&k).map_err(|e| self.fail(e))?.and_then(|v| value::decode_owner(&k, &v).ok());
            let owns = match owner {
                Some(other) if other != fid => self.inode(other)?.is_some_and(|i| i.has_object(o.ost, o.id)),
                _ => false,
            };
            if !owns {
                self.txn.put(k, value::encode_owner(fid));
            }
        }
        Ok(())
    }

    /// Entries that no layout asks for go.
    async fn stale_reverse_entries(&mut self) -> Result<(), String> {
        let mut stale = Vec::new();
        self.walk(&[key::REVERSE], |k, v| {
            let Some((ost, id)) = key::parse_reverse(k) else { return };
            let Ok(owner) = value::decode_owner(k, v) else { return };
            let inode = self.inode(owner).ok().flatten();
            if !inode.is_some_and(|i| i.has_object(ost, id)) {
                stale.push(k.to_vec());
            }
        })?;
        for k in stale {
            self.txn.delete(k);
            self.submit_if(TXN_WRITES_MAX).await?;
        }
        Ok(())
    }

    /// What owners use.
    fn usage(&mut self) -> Result<(), String> {
        let counted = mds::count_usage(&*self.t.db).map_err(|e| self.fail(e))?;
        let stored = store::usage::stored_totals(&*self.t.db).map_err(|e| self.fail(e))?;
        store::usage::put_totals(&stored, &counted, &mut self.txn);
        Ok(())
    }

    /// The count of inodes.
    fn inode_counter(&mut self) -> Result<(), String> {
        let mut n = 0u64;
        self.walk(&[key::INODE], |_, _| n += 1)?;
        self.txn.put(key::STATE_INODES, value::encode_u64(n));
        Ok(())
    }
}
