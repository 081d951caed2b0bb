//! `nacre mgt`: moves what an MGS knows (targets, permanent parameters) from its folder into an etcd, and
//! back.

use crate::fsck::targets::{self, Target};
use clap::{Parser, Subcommand};
use etcd::{Etcd, Url};
use mgs::etcd::EtcdBook;
use mgs::{Book, MgsState, read_configuration};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;
use store::Txn;
use store::format::Superblock;
use world::World;
use world::sys::files;

const OK: i32 = 0;
const FAILED: i32 = 1;
const USAGE: i32 = 2;
/// Of the lease under which it is done: nobody else is the MGS meanwhile.
const TERM: Duration = Duration::from_secs(15);

#[derive(Parser)]
#[command(name = "nacre mgt", about = "Moves what an MGS knows into an etcd (nacred --mgs-store), or back")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// From a folder (mkfs.nacre --mgs) into an etcd; the MGS must be stopped
    Import {
        /// Folder of the MGT, or of the MDT that it is in
        dir: String,
        /// For example etcd://10.0.0.1,10.0.0.2,10.0.0.3/nacre
        #[arg(value_parser = crate::etcd_url::parse)]
        url: Url,
        /// Even if the etcd holds another configuration, which is lost
        #[arg(long)]
        replace: bool,
    },
    /// From an etcd into a folder; the MGSs over it must be stopped
    Export {
        #[arg(value_parser = crate::etcd_url::parse)]
        url: Url,
        /// Folder of an MGT (mkfs.nacre --mgs)
        dir: String,
        /// Even if the folder holds another configuration, which is lost
        #[arg(long)]
        replace: bool,
    },
}

/// The command: arguments behind `mgt`.
pub fn main(args: &[OsString]) -> i32 {
    let all = std::iter::once(OsString::from("nacre mgt")).chain(args.iter().cloned());
    let cli = match Cli::try_parse_from(all) {
        Ok(c) => c,
        Err(e) => {
            let _ = e.print();
            return if e.use_stderr() { USAGE } else { OK };
        }
    };
    crate::log::start();
    let done =
        world::real::start(1).map_err(|e| format!("cannot start threads: {e}")).and_then(|(world, rt)| {
            rt.block_on(async {
                match &cli.verb {
                    Verb::Import { dir, url, replace } => import(&world, dir, url, *replace).await,
                    Verb::Export { url, dir, replace } => export(&world, url, dir, *replace).await,
                }
            })
        });
    match done {
        Ok(said) => {
            println!("{said}");
            OK
        }
        Err(why) => {
            eprintln!("nacre mgt: {why}");
            FAILED
        }
    }
}

fn canonical(dir: &str) -> Result<String, String> {
    let path = files::canonical(dir).map_err(|e| format!("cannot use '{dir}': {e}"))?;
    path.to_str().map(str::to_string).ok_or_else(|| format!("'{dir}' is not UTF-8"))
}

/// Opens a folder with an MGT; with `change` on disk, else on one that keeps changes in memory.
async fn open(world: &World, dir: &str, change: bool) -> Result<Target, String> {
    let (w, d) = (world.clone(), canonical(dir)?);
    let t = world.blocking(move || targets::open(&w, &d, change, false)).await?;
    if t.mgt.is_none() {
        return Err(format!("'{dir}' holds no MGT but {}", t.label));
    }
    Ok(t)
}

fn counts(s: &MgsState) -> String {
    let targets: usize = s.file_systems.values().map(|f| f.targets.len()).sum();
    format!(
        "{} file systems with {targets} targets, {} permanent parameters",
        s.file_systems.len(),
        s.params.len()
    )
}

/// Everything of `state`, and nothing of what was there.
fn replacement(state: &MgsState, there: Vec<Vec<u8>>) -> Txn {
    let mut txn = Txn::new();
    there.into_iter().for_each(|k| txn.delete(k));
    let all = state.all();
    assert!(all.redo.is_empty() && !all.writes.is_empty(), "a configuration is records, and has a version");
    txn.writes.extend(all.writes);
    txn
}

async fn submit(book: Arc<dyn Book>, txn: Txn) -> Result<(), String> {
    let lsn = book.submit(txn).map_err(|e| e.to_string())?;
    book.durable(lsn).await.map_err(|e| e.to_string())
}

async fn take(world: &World, url: &Url, epoch: u32) -> Result<Arc<EtcdBook>, String> {
    let who = format!("'nacre mgt' on {}", world::sys::hostname());
    let book = EtcdBook::take(&Etcd::new(world, url), &who, TERM, epoch).await;
    book.map_err(|e| match e {
        mgs::etcd::TakeError::Busy(who) => {
            format!("an MGS over {url} is active ({who}): stop all of them first")
        }
        e => e.to_string(),
    })
}

async fn import(world: &World, dir: &str, url: &Url, replace: bool) -> Result<String, String> {
    let t = open(world, dir, false).await?;
    if t.sb.with_mgt && t.sb.mgs_nids.is_empty() {
        return Err(format!(
            "'{dir}' finds its MGS in itself: name the hosts of the new one first (tunefs.nacre --mgsnode=NID:NID {dir})"
        ));
    }
    let db = t.mgt.as_ref().expect("looked at above");
    let state = read_configuration(&**db).map_err(|e| e.to_string())?;
    let book = take(world, url, t.sb.epoch).await?;
    let done = if book.is_empty() || replace {
        submit(book.clone(), replacement(&state, book.keys())).await
    } else {
        Err(format!("{url} holds a configuration already: give --replace to lose it, or another prefix"))
    };
    book.end().await;
    done?;
    let mut said = format!("{url} has {}.", counts(&state));
    if t.sb.with_mgt {
        // Nobody may start the old one by mistake.
        let mut sb = Superblock::read(world, &t.dir).map_err(|e| e.to_string())?;
        sb.with_mgt = false;
        sb.write(world, &t.dir).map_err(|e| e.to_string())?;
        said.push_str(&format!("\n'{dir}' is only {} from now on.", t.label));
    } else {
        said.push_str(&format!("\nDo not serve '{dir}' any more: its MGT is out of date from now on."));
    }
    said.push_str(&format!("\nStart the MGSs: nacred --mgs-store {url}"));
    Ok(said)
}

async fn export(world: &World, url: &Url, dir: &str, replace: bool) -> Result<String, String> {
    let book = take(world, url, 0).await?;
    let done = export_from(world, &book, dir, replace).await;
    book.end().await;
    done
}

async fn export_from(
    world: &World,
    book: &Arc<EtcdBook>,
    dir: &str,
    replace: bool,
) -> Result<String, String> {
    let words = |e: store::StoreError| e.to_string();
    let state = read_configuration(&**book).map_err(words)?;
    let t = open(world, dir, true).await?;
    let db = t.mgt.clone().expect("looked at by open");
    let there = db.scan(&[0], &[0xff], 1 << 20).map_err(words)?;
    let done = if replace || read_configuration(&*db).map_err(words)? == MgsState::default() {
        submit(db.clone(), replacement(&state, there.into_iter().map(|(k, _)| k).collect())).await
    } else {
        Err(format!("'{dir}' holds a configuration already: give --replace to lose it"))
    };
    db.close().await.map_err(words)?;
    done?;
    // Clients have seen the epochs of the MGSs over etcd, and refuse lower ones.
    let mut sb = Superblock::read(world, &t.dir).map_err(words)?;
    sb.epoch = sb.epoch.max(book.epoch_number());
    sb.write(world, &t.dir).map_err(words)?;
    Ok(format!(
        "'{dir}' has {}.\nStart the MGS: nacred {dir}. Those over {} must not be started again.",
        counts(&state),
        book.url()
    ))
}
