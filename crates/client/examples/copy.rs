//! Copies a tree into a file system, or out of it, as an ordinary user and without a mount: an example of the
//! library.
//!
//! Servers believe a client who its users are, so they listen to privileged ports only (unless told
//! otherwise): on a real file system this runs as root, and works in the file system as the user that it is
//! told.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // what it copies lies on the host

use bytes::Bytes;
use client::flags::{O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY};
use client::{Client, Identity, MountOptions, OpenFile, Source, User};
use model::FileType;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use world::World;

pub const USAGE: &str = "usage: copy SOURCE USER FROM TO [PORT]

  SOURCE   the file system, as 'nacre up' and 'nacre status' print it: 10.0.0.1@tcp:/nacre
  USER     as whom: UID[:GID[,GROUP...]], numbers; GID is UID if it is left out
  FROM,TO  one is a path of this host; the other, with 'fs:' before it, one in the file system
  PORT     of the servers, if it is not 988

Directories, regular files and symbolic links are copied with their permission bits, under the
user's umask of 022; anything else is passed over. What is there already is overwritten.

  copy 10.0.0.1@tcp:/nacre 1000 ./results fs:/home/me/results
  copy 10.0.0.1@tcp:/nacre 1000:100,27 fs:/home/me/results /tmp/results";

/// Bytes that are read and written at a time.
const PART_BYTES: usize = 4 << 20;

/// What to do.
pub struct Job {
    pub source: Source,
    pub who: Identity,
    pub port: u16,
    /// True: from this host into the file system.
    pub inward: bool,
    pub here: PathBuf,
    pub there: Vec<u8>,
}

/// What was done.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Done {
    pub directories: u64,
    pub files: u64,
    pub links: u64,
    pub bytes: u64,
    pub passed_over: u64,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let job = match parse(&args) {
        Ok(j) => j,
        Err(e) => {
            eprintln!("copy: {e}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let (world, runtime) = match world::real::start(2) {
        Ok(w) => w,
        Err(e) => {
            eprintln!("copy: {e}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(&world, &job, &|line| println!("{line}"))) {
        Ok(d) => {
            let (dirs, files, links, mb) = (d.directories, d.files, d.links, d.bytes >> 20);
            println!("{dirs} directories, {files} files with {mb} MiB, {links} links");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("copy: {e}");
            ExitCode::FAILURE
        }
    }
}

pub fn parse(args: &[String]) -> Result<Job, String> {
    let [source, user, from, to, rest @ ..] = args else { return Err("too few arguments".into()) };
    let port = match rest {
        [] => model::limits::PORT,
        [p] => p.parse().map_err(|_| format!("'{p}' is no port"))?,
        _ => return Err("too many arguments".into()),
    };
    let (inward, here, there) = match (from.strip_prefix("fs:"), to.strip_prefix("fs:")) {
        (None, Some(there)) => (true, from, there),
        (Some(there), None) => (false, to, there),
        _ => return Err("one of FROM and TO begins with 'fs:'".into()),
    };
    Ok(Job {
        source: Source::parse(source)?,
        who: identity(user)?,
        port,
        inward,
        here: PathBuf::from(here),
        there: there.as_bytes().to_vec(),
    })
}

fn identity(text: &str) -> Result<Identity, String> {
    let number =
        |t: &str| t.parse::<u32>().map_err(|_| format!("'{t}' in '{text}' is no number of a user or group"));
    let (uid, groups) = text.split_once(':').unwrap_or((text, text));
    let ids: Vec<u32> = groups.split(',').map(number).collect::<Result<_, _>>()?;
    let (gid, groups) = ids.split_first().expect("a split text has a first part");
    Ok(Identity {
        uid: number(uid)?,
        gid: *gid,
        groups: groups.to_vec(),
        umask: 0o022,
        ..Identity::default()
    })
}

/// Mounts, copies, unmounts. `tell` is told of each file.
pub async fn run(world: &World, job: &Job, tell: &(dyn Fn(&str) + Sync)) -> Result<Done, String> {
    let options = MountOptions {
        mgs_nids: job.source.mgs_nids.clone(),
        fsname: job.source.fsname.clone(),
        subdir: job.source.subdir.clone(),
        port: job.port,
        bind: None,
        networks: Default::default(),
        client_name: "copy".into(),
        soft_timeout_ms: None,
        read_only: !job.inward,
    };
    let client = Client::mount(world, options).await.map_err(|e| e.to_string())?;
    let copied = async {
        let user = client.user(job.who.clone()).map_err(|e| e.to_string())?;
        let done =
            if job.inward { copy_in(&user, job, tell).await } else { copy_out(&user, job, tell).await }?;
        client.sync().await.map_err(|e| e.to_string())?;
        Ok(done)
    };
    let r = copied.await;
    client.unmount().await;
    r
}

/// What the host says of a path.
fn on_host<T>(path: &Path, r: std::io::Result<T>) -> Result<T, String> {
    r.map_err(|e| format!("'{}': {e}", path.display()))
}

fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.is_empty() || dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}

async fn copy_in(user: &User, job: &Job, tell: &(dyn Fn(&str) + Sync)) -> Result<Done, String> {
    let mut done = Done::default();
    let mut left = vec![(job.here.clone(), job.there.clone())];
    while let Some((from, to)) = left.pop() {
        tell(&String::from_utf8_lossy(&to));
        let meta = on_host(&from, fs::symlink_metadata(&from))?;
        let mode = meta.permissions().mode() & 0o777;
        if meta.is_dir() {
            done.directories += 1;
            match user.mkdir(&to, mode | 0o700).await {
                Err(e) if e.errno != model::Errno::EEXIST => return Err(e.to_string()),
                _ => {}
            }
            let mut names: Vec<_> =
                on_host(&from, fs::read_dir(&from).and_then(Iterator::collect::<Result<Vec<_>, _>>))?;
            names.sort_by_key(fs::DirEntry::file_name);
            left.extend(names.iter().map(|n| (n.path(), joined(&to, n.file_name().as_bytes()))));
        } else if meta.is_symlink() {
            let target = on_host(&from, fs::read_link(&from))?;
            done.links += 1;
            user.symlink(target.as_os_str().as_bytes(), &to).await.map_err(|e| e.to_string())?;
        } else if meta.is_file() {
            let mut source = on_host(&from, fs::File::open(&from))?;
            let file = user.open(&to, O_CREAT | O_WRONLY | O_TRUNC, mode).await.map_err(|e| e.to_string())?;
            done.files += 1;
            loop {
                let mut part = Vec::with_capacity(PART_BYTES);
                let n = on_host(&from, (&mut source).take(PART_BYTES as u64).read_to_end(&mut part))?;
                if n == 0 {
                    break;
                }
                write_all(&file, part.into()).await?;
                done.bytes += n as u64;
            }
            file.close().await.map_err(|e| e.to_string())?;
        } else {
            done.passed_over += 1;
        }
    }
    Ok(done)
}

async fn write_all(file: &OpenFile, mut data: Bytes) -> Result<(), String> {
    while !data.is_empty() {
        let n = file.write(data.clone()).await.map_err(|e| e.to_string())?;
        drop(data.split_to(n));
    }
    Ok(())
}

async fn copy_out(user: &User, job: &Job, tell: &(dyn Fn(&str) + Sync)) -> Result<Done, String> {
    let mut done = Done::default();
    let mut left = vec![(job.there.clone(), job.here.clone())];
    while let Some((from, to)) = left.pop() {
        tell(&to.display().to_string());
        let attr = user.lstat(&from).await.map_err(|e| e.to_string())?;
        let mode = attr.mode & 0o777;
        match attr.kind {
            FileType::Directory => {
                done.directories += 1;
                if !to.is_dir() {
                    on_host(&to, fs::DirBuilder::new().mode(mode | 0o700).create(&to))?;
                }
                for e in user.readdir(&from).await.map_err(|e| e.to_string())? {
                    let here = to.join(std::ffi::OsString::from_vec(e.name.clone()));
                    left.push((joined(&from, &e.name), here));
                }
            }
            FileType::Symlink => {
                let target = user.readlink(&from).await.map_err(|e| e.to_string())?;
                done.links += 1;
                on_host(&to, symlink(std::ffi::OsString::from_vec(target), &to))?;
            }
            FileType::Regular => {
                let file = user.open(&from, O_RDONLY, 0).await.map_err(|e| e.to_string())?;
                let mut open = fs::OpenOptions::new();
                let mut here =
                    on_host(&to, open.write(true).create(true).truncate(true).mode(mode).open(&to))?;
                done.files += 1;
                loop {
                    let data = file.read(PART_BYTES).await.map_err(|e| e.to_string())?;
                    if data.is_empty() {
                        break;
                    }
                    on_host(&to, here.write_all(&data))?;
                    done.bytes += data.len() as u64;
                }
                file.close().await.map_err(|e| e.to_string())?;
            }
            _ => done.passed_over += 1,
        }
    }
    Ok(done)
}
