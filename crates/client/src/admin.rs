//! What `lfs` and `lctl` ask of a mount, answered, and whose right each request is ([`crate::control`] has
//! the requests). `fuse` brings them from an ioctl; [`crate::User`] has those of a user as calls.

use crate::control::{
    ControlError, Inode, Listed, MountName, Name, Packed, Reply, Request, Stripe, Target, TargetSpace,
    TargetUsage,
};
use crate::llite::{O_CREAT, O_EXCL, O_WRONLY, Victim, permission};
use crate::stats::Verb;
use crate::{Admin, Call, Fs, FsSpace, R, TargetState, control};
use model::inode_rules::{FLAG_PROJINHERIT, FLAG_TRASH};
use model::layout::{ComponentChange, EOF};
use model::limits::COMPONENTS_MAX;
use model::perm::{self, FLAG_APPEND, FLAG_IMMUTABLE, FLAG_NOATIME, FLAG_NODUMP, FLAG_SYNC, MAY_EXEC};
use model::{Attr, Errno, Fid, FileType, Layout, LayoutSpec, SetAttr, pool};
use std::sync::Arc;
use wire::msg::lookup::Entry;
use wire::msg::migrate::Pace;
use wire::msg::quotactl::{LimitsReply, QuotaAsk, QuotactlReply, SharesReply};
use wire::msg::quotadir::Quotadir;
use wire::msg::readdir::Dirent;
use wire::msg::scan::Scan;

/// Paths of one file that are told.
const PATHS_MAX: usize = 10_000;
/// Bytes of a page of a directory, as [`Reply::Listing`] has it.
const LISTING_BYTES: u32 = 128 << 10;
/// Objects of the files of such a page, if it has more than one file.
const LISTING_OBJECTS: usize = 4096;
/// Flags of inodes that are kept; others are refused.
const FLAGS_KEPT: u32 =
    FLAG_SYNC | FLAG_IMMUTABLE | FLAG_APPEND | FLAG_NODUMP | FLAG_NOATIME | FLAG_PROJINHERIT;

type Answer<T> = std::result::Result<T, ControlError>;

fn error(errno: Errno, message: &str) -> ControlError {
    ControlError { errno: errno.0, message: message.to_string() }
}

/// Answers a request that is about the mount ([`Request::is_of_mount`]); `EINVAL` for any other.
pub async fn answer_of_mount(fs: &Arc<Fs>, uid: u32, request: Request) -> Answer<Reply> {
    if uid != 0 {
        let what = match &request {
            Request::SetParam { name, .. } => Some(format!("only root may set the parameter '{name}'")),
            Request::TargetParams { .. } => Some("only root may see parameters of servers".to_string()),
            Request::Recover { .. } => Some("only root may have a connection made anew".to_string()),
            _ => None,
        };
        if let Some(message) = what {
            return Err(error(Errno::EPERM, &message));
        }
    }
    Ok(match request {
        Request::Getname => Reply::Mount(MountName {
            fsname: fs.fsname(),
            instance: fs.instance(),
            fs_uuid: Admin(fs).fs_uuid().iter().map(|b| format!("{b:02x}")).collect(),
            root: fs.root(),
        }),
        Request::Targets => Reply::Targets(Admin(fs).targets().iter().map(Target::from).collect()),
        Request::Df => Reply::Space(df(fs).await),
        Request::Pools => {
            let config = fs.config();
            Reply::Pools { version: config.version, pools: config.pools() }
        }
        Request::Sync => {
            fs.clone().sync().await?;
            Reply::Done
        }
        Request::GetParam { pattern } => Reply::Params(fs.get_param(&pattern)),
        Request::ListParam { pattern } => {
            Reply::Params(fs.help_param(&pattern).into_iter().map(|i| (i.name, String::new())).collect())
        }
        Request::HelpParam { pattern } => Reply::ParamInfos(fs.help_param(&pattern)),
        Request::Recover { target } => {
            Admin(fs).reconnect(target)?;
            Reply::Done
        }
        Request::TargetParams { target, pattern } => {
            Reply::Params(Admin(fs).target_params(target, pattern).await?)
        }
        Request::SetParam { name, value } => {
            set_param(fs, &name, &value).await?;
            Reply::Done
        }
        _ => return Err(Errno::EINVAL.into()),
    })
}

/// What the metadata server refused, in words.
fn about_consumer(consumer: &str, e: Errno) -> ControlError {
    match e {
        Errno::ENOENT => error(e, &format!("there is no consumer '{consumer}'")),
        Errno::EPERM => error(e, "only root may, who is not squashed"),
        Errno::EINVAL => error(e, "there is no such record yet, or that is no consumer's name"),
        e => e.into(),
    }
}

async fn set_param(fs: &Arc<Fs>, name: &str, value: &str) -> Answer<()> {
    match name {
        control::READ_ONLY => Admin(fs).set_read_only(value != "0"),
        control::NOATIME => Admin(fs).set_noatime(value != "0"),
        _ => {
            fs.set_param(name, value)?;
            if Admin(fs).clears_leases(name, value) {
                Admin(fs).leases_dropped().await.map_err(|e| {
                    error(e, "some locks go back later: servers have not taken yet what was done under them, or they are in use")
                })?;
            }
        }
    }
    Ok(())
}

/// Answers a request about an opened file or directory; `EINVAL` for one that is about the mount. A name that
/// was made ([`Request::Create`]) is news to a kernel.
pub async fn answer(fs: &Arc<Fs>, call: Call, opened: Fid, request: Request) -> Answer<Reply> {
    Ok(match request {
        Request::Path2fid { name } => Reply::Fid(object(fs, &call, opened, name).await?.fid),
        Request::Fid2path { fid } => {
            let (mut paths, mut links) = Admin(fs).getpath(call, fid).await?;
            paths.truncate(PATHS_MAX);
            links.truncate(PATHS_MAX);
            Reply::Paths {
                paths: paths.into_iter().map(Into::into).collect(),
                links: links.into_iter().map(|(p, n)| (p, n.into())).collect(),
            }
        }
        Request::Getstripe { name } => {
            let attr = object(fs, &call, opened, name).await?;
            Reply::Stripe(Box::new(stripe(fs, &call, &attr).await?))
        }
        Request::Listing { cookie, inodes, grows_into } => {
            listing(fs, call, opened, cookie, (inodes, grows_into)).await?
        }
        Request::Inode { name } => {
            let e = entry(fs, &call, opened, name.clone()).await?;
            let (name, kind, fid) = (name.unwrap_or_default(), e.attr.kind, e.attr.fid);
            let inode = Some(Inode::new(e.attr.clone(), e.layout.clone()));
            Reply::Listing { entries: vec![Listed { name, kind, fid, inode }], next: None }
        }
        Request::Setstripe { name, spec } => {
            let attr = object(fs, &call, opened, name).await?;
            setstripe(fs, call, &attr, spec).await?;
            Reply::Done
        }
        Request::Migrate { name, spec, non_block, bandwidth_bytes } => {
            let attr = object(fs, &call, opened, name).await?;
            migrate(fs, call, &attr, spec, Pace { non_block, bandwidth_bytes }).await?;
            Reply::Done
        }
        Request::Components { name, change } => {
            let attr = object(fs, &call, opened, name).await?;
            components(fs, call, &attr, change).await?;
            Reply::Done
        }
        Request::SwapLayouts { name, other, keep_times } => {
            let attr = object(fs, &call, opened, name).await?;
            swap_layouts(fs, call, (attr.fid, other), keep_times).await?;
            Reply::Done
        }
        Request::Purge { name, seen, tests, unless } => {
            let name = entry_name(fs, &call, opened, name).await?;
            let victim = Victim { parent: opened, name, seen, tests, unless };
            Admin(fs).purge(call, victim).await.map_err(|e| match e {
                Errno::ECANCELED => error(e, "it is not what it was, or does not fit any more"),
                Errno::EBUSY => error(e, "somebody has it open"),
                e => e.into(),
            })?;
            Reply::Done
        }
        Request::Movement { name } => {
            let fid = object(fs, &call, opened, name).await?.fid;
            Reply::Params(Admin(fs).movements_of(fid).await?)
        }
        Request::SetProject { name, projid, inherit } => {
            let attr = object(fs, &call, opened, name).await?;
            set_project(fs, call, &attr, projid, inherit).await?;
            Reply::Done
        }
        Request::Create { name, mode, umask, spec } => {
            let call = Call { umask: umask & 0o777, ..call };
            Reply::Fid(create(fs, call, opened, name.0, mode, spec).await?)
        }
        Request::LockAhead { name, write, start, end } => {
            let fid = object(fs, &call, opened, name).await?.fid;
            Admin(fs).lock_ahead(call, fid, write, (start, end)).await?;
            Reply::Done
        }
        Request::DataVersion { name, flush } => {
            let fid = object(fs, &call, opened, name).await?.fid;
            Reply::Version(Admin(fs).data_version(call, fid, flush).await?)
        }
        Request::Glimpse { name } => {
            let fid = object(fs, &call, opened, name).await?.fid;
            Reply::Objects(Admin(fs).glimpse(fid).await?)
        }
        request => about_targets(fs, call, opened, request).await?,
    })
}

/// What targets have and count, rather than a file; `EINVAL` for a request about the mount.
async fn about_targets(fs: &Arc<Fs>, call: Call, opened: Fid, request: Request) -> Answer<Reply> {
    Ok(match request {
        Request::Quota { ask } => quota(fs, call, ask).await?,
        Request::QuotaDirectory { name, change } => {
            let fid = object(fs, &call, opened, name).await?.fid;
            let of = match change {
                None => Quotadir::Around(fid),
                Some(true) => Quotadir::Add(fid),
                Some(false) => Quotadir::Remove(fid),
            };
            Reply::Directories(Admin(fs).quotadir(call, of).await?)
        }
        Request::QuotaDirectories { after } => {
            Reply::Directories(Admin(fs).quotadir(call, Quotadir::List { after }).await?)
        }
        Request::SetQuota { order } => {
            Admin(fs).setquota(call, order).await?;
            Reply::Done
        }
        Request::TrashSet { .. } | Request::TrashList { .. } | Request::TrashTake { .. } => {
            about_trash(fs, call, opened, request).await?
        }
        Request::Changelog { target, wanted } => {
            let consumer = wanted.consumer.clone();
            let page = Admin(fs).changelog(call, target, wanted).await;
            Reply::Changelog(Packed::of(&page.map_err(|e| about_consumer(&consumer, e))?))
        }
        Request::ChangelogClear { target, consumer, end } => {
            let cleared = Admin(fs).changelog_clear(call, target, consumer.clone(), end).await;
            cleared.map(|()| Reply::Done).map_err(|e| about_consumer(&consumer, e))?
        }
        Request::OstFiles { ost, after } => {
            let r = Admin(fs).ostfiles(call, ost, after).await?;
            let named =
                |(fid, paths): (Fid, Vec<Vec<u8>>)| (fid, paths.into_iter().map(Into::into).collect());
            Reply::OstFiles { files: r.files.into_iter().map(named).collect(), next: r.next }
        }
        Request::Scan { after, tests, objects: None } => {
            Reply::Scanned(Packed::of(&Admin(fs).scan(call, opened, after, tests).await?))
        }
        Request::Scan { after, tests, objects: Some(wanted) } => {
            let scan = Scan { root: opened, after, tests };
            Reply::Completed(Packed::of(&Admin(fs).scan_completed(call, scan, wanted).await?))
        }
        Request::HeldFiles { ost, after } => {
            let (files, next) = Admin(fs).held_files(call, ost, after).await?;
            Reply::HeldFiles { files, next }
        }
        Request::Recreate { fid, ost } => {
            Admin(fs).recreate(call, fid, ost).await.map_err(|e| match e {
                Errno::EBUSY => error(e, "its OST is in use: deactivate it first"),
                e => e.into(),
            })?;
            Reply::Done
        }
        _ => return Err(Errno::EINVAL.into()),
    })
}

/// `EINVAL` for a request about anything but the trash.
async fn about_trash(fs: &Arc<Fs>, call: Call, opened: Fid, request: Request) -> Answer<Reply> {
    Ok(match request {
        Request::TrashSet { on } => {
            Admin(fs).trashdir(call, opened, on).await?;
            Reply::Done
        }
        Request::TrashList { after, sizes: false } => {
            let page = Admin(fs).trashlist_without_sizes(call, opened, after).await?;
            Reply::Trashed { page: Packed::of(&page), unknown: Vec::new() }
        }
        Request::TrashList { after, sizes: true } => {
            let (page, unknown) = Admin(fs).trashlist(call, opened, after).await?;
            Reply::Trashed { page: Packed::of(&page), unknown }
        }
        Request::TrashTake { files } => {
            Reply::Results(Admin(fs).trashtake(call, files.open()?).await?.results)
        }
        _ => return Err(Errno::EINVAL.into()),
    })
}

/// The opened file, or an entry of the opened directory, which the caller must be allowed to search: in a
/// path walk a kernel checks that; here nobody else does.
async fn object(fs: &Arc<Fs>, call: &Call, opened: Fid, name: Option<Name>) -> R<Attr> {
    match name {
        None => fs.clone().getattr(call.clone(), opened).await,
        Some(n) => {
            let name = entry_name(fs, call, opened, n).await?;
            fs.clone().lookup(call.clone(), opened, name).await
        }
    }
}

/// As [`object`], as the metadata server knows it.
async fn entry(fs: &Arc<Fs>, call: &Call, opened: Fid, name: Option<Name>) -> R<Arc<Entry>> {
    match name {
        None => fs.lmv.getattr_entry(fs.cx.of(call), opened).await,
        Some(n) => {
            let name = entry_name(fs, call, opened, n).await?;
            Admin(fs).lookup_entry(call, opened, &name).await
        }
    }
}

/// The name of one entry of the opened directory, which the caller may search.
async fn entry_name(fs: &Arc<Fs>, call: &Call, opened: Fid, Name(name): Name) -> R<Vec<u8>> {
    if name.is_empty() || name.contains(&b'/') || name == b"." || name == b".." {
        return Err(Errno::EINVAL);
    }
    may_search(fs, call, opened).await?;
    Ok(name)
}

/// Whether the caller may look names up in the opened directory; in a path walk a kernel checks that.
async fn may_search(fs: &Arc<Fs>, call: &Call, opened: Fid) -> R<()> {
    let search = async {
        let dir = fs.lmv.getattr_entry(fs.cx.of(call), opened).await?;
        permission::access(fs, call, &dir, MAY_EXEC).await
    };
    fs.run(Verb::Getattr, search).await
}

/// The opened directory may be read, or the kernel would not have opened it; what its entries are needs the
/// right to search as well.
async fn listing(
    fs: &Arc<Fs>,
    call: Call,
    opened: Fid,
    cookie: u64,
    (inodes, grows): (bool, bool),
) -> R<Reply> {
    if inodes || grows {
        may_search(fs, &call, opened).await?;
    }
    if grows {
        let mut r = Admin(fs).entries_that_grow(&call, opened, cookie, LISTING_BYTES).await?;
        let count = listed_at_once(&r.entries);
        r.end &= count == r.entries.len();
        r.entries.truncate(count);
        if let Some(g) = &mut r.grows_into.0 {
            g.of.retain(|(place, _)| (*place as usize) < count);
        }
        return Ok(Reply::Layouts(Packed::of(&r)));
    }
    let (mut page, end) = Admin(fs).entries(&call, opened, cookie, LISTING_BYTES, inodes).await?;
    let count = listed_at_once(&page);
    let next = page.get(count.saturating_sub(1)).map(|d| d.cookie).filter(|_| !end || count < page.len());
    page.truncate(count);
    Ok(Reply::Listing { entries: page.into_iter().map(Listed::from).collect(), next })
}

/// Entries of a page that are not too much for one reply: at least one.
fn listed_at_once(page: &[Dirent]) -> usize {
    let mut objects = 0;
    let over = page.iter().position(|d| {
        objects += d.entry.as_ref().and_then(|e| e.layout.as_ref()).map_or(0, |l| l.objects().count());
        objects > LISTING_OBJECTS
    });
    over.map_or(page.len(), |n| n.max(1))
}

/// Where a file's bytes lie, or what new files of a directory get.
pub(crate) async fn stripe(fs: &Arc<Fs>, call: &Call, attr: &Attr) -> R<Stripe> {
    let layout = match attr.kind {
        FileType::Regular => Admin(fs).getlayout(call.clone(), attr.fid).await?,
        _ => None,
    };
    let default = match attr.kind {
        FileType::Directory => Admin(fs).getdefault(call.clone(), attr.fid).await?,
        _ => None,
    };
    let fs_default = Admin(fs).getdefault(call.clone(), Fid::ROOT).await.unwrap_or(None);
    let mdt_bytes = match attr.kind {
        FileType::Directory => Admin(fs).default_mdt_bytes(attr.fid).await,
        _ => None,
    };
    let grows_into = match layout.as_ref().and_then(Layout::data_room) {
        Some(_) => Admin(fs).grows_into(call.clone(), attr.fid).await?,
        None => None,
    };
    Ok(Stripe { fid: attr.fid, kind: attr.kind, layout, default, fs_default, mdt_bytes, grows_into })
}

/// The owner's and root's right.
pub(crate) async fn setstripe(fs: &Arc<Fs>, call: Call, attr: &Attr, spec: Option<LayoutSpec>) -> Answer<()> {
    if let Some(s) = &spec {
        s.check().map_err(|e| error(e, "invalid stripe settings"))?;
    }
    match attr.kind {
        FileType::Directory => {}
        FileType::Regular if spec.is_none() => {
            return Err(error(Errno::ENOTDIR, "only directories have a default"));
        }
        FileType::Regular => {}
        _ => return Err(error(Errno::EINVAL, "only regular files and directories have stripes")),
    }
    if !perm::owns(&call.cred, attr.uid) {
        return Err(Errno::EPERM.into());
    }
    let asked = spec.clone().unwrap_or_default();
    Admin(fs).setlayout(call, attr.fid, spec).await.map_err(|e| about_pool(fs, &asked, e))
}

/// What the metadata server refused, with words if the pool is why.
fn about_pool(fs: &Fs, spec: &LayoutSpec, e: Errno) -> ControlError {
    if e != Errno::EINVAL || spec.pool.is_empty() || spec.pool == pool::IGNORE {
        return e.into();
    }
    let pool = format!("{}.{}", fs.fsname(), spec.pool);
    let first = u16::try_from(spec.stripe_start).ok();
    match fs.config().pools().iter().find(|p| p.name == spec.pool) {
        None => error(e, &format!("no such pool: {pool}")),
        Some(p) if p.osts.is_empty() => error(e, &format!("pool {pool} has no OSTs")),
        Some(p) => match spec.osts.iter().chain(&first).find(|i| !p.has(**i)) {
            Some(i) => error(e, &format!("OST {i} is not in pool {pool}")),
            None => e.into(),
        },
    }
}

/// The owner's and root's right, as the metadata server knows them at that moment.
async fn migrate(fs: &Arc<Fs>, call: Call, attr: &Attr, spec: LayoutSpec, pace: Pace) -> Answer<()> {
    spec.check().map_err(|e| error(e, "invalid stripe settings"))?;
    if attr.kind != FileType::Regular {
        return Err(error(Errno::EINVAL, "only regular files have data to move"));
    }
    let asked = spec.clone();
    match Admin(fs).migrate_at(call, attr.fid, spec, pace).await {
        Ok(_) => Ok(()),
        Err(Errno::ENODATA) => Err(error(Errno::ENODATA, "it has no layout yet, and no data")),
        Err(Errno::EBUSY) if pace.non_block => Err(error(Errno::EBUSY, "it is in use: try again later")),
        Err(Errno::EBUSY) => {
            Err(error(Errno::EBUSY, "others have it locked: try again, or find them with group_locks"))
        }
        Err(e) => Err(about_pool(fs, &asked, e)),
    }
}

/// The owner's and root's right, as the metadata server knows them at that moment.
async fn components(fs: &Arc<Fs>, call: Call, attr: &Attr, change: ComponentChange) -> Answer<()> {
    if attr.kind != FileType::Regular {
        return Err(error(Errno::EINVAL, "only regular files have components"));
    }
    match Admin(fs).change_components(call.clone(), attr.fid, change.clone()).await {
        Ok(_) => Ok(()),
        Err(Errno::EBUSY) => {
            Err(error(Errno::EBUSY, "others have it locked: try again, or find them with group_locks"))
        }
        Err(e @ (Errno::EINVAL | Errno::EOPNOTSUPP)) => {
            let layout = Admin(fs).getlayout(call, attr.fid).await.unwrap_or(None);
            Err(match layout.and_then(|l| why_not(&l, &change)) {
                Some(why) => error(e, &why),
                None => e.into(),
            })
        }
        Err(e) => Err(e.into()),
    }
}

/// The owner's and root's right. Only objects are swapped: a file whose data lies with its inode gets some.
async fn swap_layouts(fs: &Arc<Fs>, call: Call, (fid, other): (Fid, Fid), keep_times: bool) -> Answer<()> {
    let swap = || Admin(fs).swap(call.clone(), (fid, other), keep_times);
    let mut done = swap().await;
    if done == Err(Errno::EOPNOTSUPP) {
        for one in [fid, other] {
            Admin(fs).grow_for(call.clone(), one).await?;
        }
        done = swap().await;
    }
    let why = match done {
        Ok(()) => return Ok(()),
        Err(Errno::EBUSY) => "others have it locked: try again, or find them with group_locks",
        Err(Errno::EPERM) => "both files must be yours, of the same owner and group, and changeable",
        Err(Errno::EINVAL) => "two different regular files are swapped",
        Err(e) => return Err(e.into()),
    };
    done.map_err(|e| error(e, why))
}

/// Why the components of a file are not changed so, as far as its layout tells.
fn why_not(l: &Layout, change: &ComponentChange) -> Option<String> {
    let text = match change {
        ComponentChange::Add(_) if l.mdt_component().is_some() => {
            "its data lies with its inode, and what it grows into reaches to the end of the file or beyond \
             the new components"
        }
        ComponentChange::Add(_) if l.end() == EOF => "its last component reaches to the end of the file",
        ComponentChange::Add(spec) => match spec.components().unwrap_or_default().first() {
            Some(c) if c.end <= l.end() => {
                return Some(format!(
                    "the new components must end behind {}, where the last one does",
                    l.end()
                ));
            }
            Some(c) if !c.pool.is_empty() => return Some(format!("is {} a pool with OSTs?", c.pool)),
            _ => return Some(format!("OSTs that exist, and at most {COMPONENTS_MAX} components")),
        },
        ComponentChange::Delete(choice) if l.components.iter().all(|c| choice.has(c)) => {
            "a file keeps its first component"
        }
        ComponentChange::Delete(choice) if l.components.iter().any(|c| choice.has(c)) => {
            "components go from the last one on: this would leave a hole"
        }
        ComponentChange::Delete(_) | ComponentChange::Flags { .. } => "it has no such component",
    };
    Some(text.to_string())
}

async fn create(
    fs: &Arc<Fs>,
    call: Call,
    parent: Fid,
    name: Vec<u8>,
    mode: u32,
    spec: LayoutSpec,
) -> Answer<Fid> {
    if name.is_empty() || name.contains(&b'/') || name.len() > model::limits::NAME_MAX_BYTES {
        return Err(error(Errno::EINVAL, "invalid file name"));
    }
    spec.check().map_err(|_| error(Errno::EINVAL, "invalid stripe settings"))?;
    let flags = O_CREAT | O_EXCL | O_WRONLY;
    let made = fs.clone().create(call, parent, name, mode & 0o7777, flags, Some(spec.clone())).await;
    let (attr, file) = made.map_err(|e| about_pool(fs, &spec, e))?;
    fs.clone().close(Arc::new(file)).await?;
    Ok(attr.fid)
}

/// FS_*_FL flags and the project of an inode: the owner's. The metadata server knows which flags are root's,
/// and who may change projects (`mdt.*.enable_chprojid_gid`).
pub async fn set_flags(fs: &Arc<Fs>, call: Call, fid: Fid, flags: u32, projid: Option<u32>) -> R<()> {
    let attr = fs.clone().getattr(call.clone(), fid).await?;
    if !perm::owns(&call.cred, attr.uid) {
        return Err(Errno::EPERM);
    }
    // What cannot name it (FS_IOC_FSSETXATTR) leaves it as it is.
    let flags = if projid.is_some() { flags | attr.flags & FLAG_TRASH } else { flags };
    if flags & !FLAGS_KEPT != attr.flags & !FLAGS_KEPT {
        return Err(Errno::EOPNOTSUPP);
    }
    let projid = projid.filter(|p| *p != attr.projid);
    let flags = (flags != attr.flags).then_some(flags);
    if flags.is_some() || projid.is_some() {
        fs.clone().setattr(call, fid, SetAttr { flags, projid, ..SetAttr::default() }).await?;
    }
    Ok(())
}

/// `None` leaves as it is.
async fn set_project(
    fs: &Arc<Fs>,
    call: Call,
    attr: &Attr,
    projid: Option<u32>,
    inherit: Option<bool>,
) -> R<()> {
    let flags = match inherit {
        Some(true) => attr.flags | FLAG_PROJINHERIT,
        Some(false) => attr.flags & !FLAG_PROJINHERIT,
        None => attr.flags,
    };
    set_flags(fs, call, attr.fid, flags, Some(projid.unwrap_or(attr.projid))).await
}

async fn quota(fs: &Arc<Fs>, call: Call, ask: QuotaAsk) -> R<Reply> {
    let (all, next) = Admin(fs).quotactl(call, ask).await?;
    Ok(Reply::Quota { targets: all.into_iter().map(target_usage).collect(), next })
}

fn target_usage((state, said): (TargetState, R<QuotactlReply>)) -> TargetUsage {
    let (target, errno) = (Target::from(&state), said.as_ref().err().map(|e| e.0));
    let said = said.unwrap_or_default();
    let LimitsReply { owners: limits, types, shares } = said.limits.0.unwrap_or_default();
    let SharesReply { of: shares, pools } = shares.0.unwrap_or_default();
    let pools = pools.0.unwrap_or_default();
    TargetUsage { target, errno, usage: said.usage, differed: said.differed, limits, types, shares, pools }
}

async fn df(fs: &Arc<Fs>) -> Vec<TargetSpace> {
    let all = Admin(fs).df().await;
    let one = |(state, space, flags): (TargetState, R<FsSpace>, u32)| {
        let s = space.unwrap_or_default();
        TargetSpace {
            target: Target::from(&state),
            disk: state.disk,
            errno: space.err().map(|e| e.0),
            total: s.total,
            free: s.free,
            available: s.available,
            files: s.files,
            files_free: s.files_free,
            flags,
        }
    };
    all.into_iter().map(one).collect()
}
