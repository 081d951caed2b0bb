//! Damage of a stopped metadata target, record by record, as no program makes it.

use anyhow::{Context, Result};
use mds::schema::{DentryValue, Inode, key};
use model::Fid;
use std::path::Path;
use std::sync::Arc;
use store::format::Superblock;
use store::{Db, DbOptions, Txn};

/// The table of a stopped target, and what is to become of it.
pub struct Harm {
    pub db: Arc<Db>,
    pub txn: Txn,
}

impl Harm {
    pub fn inode(&self, fid: Fid) -> Result<Inode> {
        let v = self.db.get(&key::inode(fid))?.with_context(|| format!("no inode {fid}"))?;
        Ok(Inode::decode(fid, &v)?)
    }

    /// Where a name is: its key, and whose it is.
    pub fn name(&self, dir: Fid, name: &str) -> Result<(Vec<u8>, u64, Fid)> {
        for (k, v) in self.db.scan(&key::dentry_from(dir, 0), &key::dentry_end(dir), usize::MAX)? {
            if let Some((_, cookie, n)) = key::parse_dentry(&k)
                && n == name.as_bytes()
            {
                return Ok((k.clone(), cookie, DentryValue::decode(&k, &v)?.fid));
            }
        }
        anyhow::bail!("no '{name}' in {dir}")
    }
}

/// Opens the target's folder, lets `f` say what is to be written over what is there, and closes it.
pub fn harm(dir: &Path, f: impl FnOnce(&mut Harm) -> Result<()>) -> Result<()> {
    let dir = dir.to_str().context("a folder's name")?;
    let (world, runtime) = world::real::start(1)?;
    let done = runtime.block_on(async {
        let mut sb = Superblock::read(&world, dir)?;
        let _lock = Superblock::lock(&world, dir)?;
        sb.epoch += 1;
        sb.write(&world, dir)?;
        let db = Db::open(&world, dir, sb.epoch, DbOptions::default())?;
        let mut h = Harm { db: db.clone(), txn: Txn::new() };
        f(&mut h)?;
        let lsn = db.submit(h.txn)?;
        db.durable(lsn).await?;
        db.close().await?;
        anyhow::Ok(())
    });
    runtime.shutdown();
    done
}
