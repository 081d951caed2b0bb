//! Answers the control requests of `lfs` and `lctl` (see `client::control`).

use crate::ops::Cx;
use bytes::Bytes;
use client::control::{
    BUFFER_BYTES, ControlError, HEADER_BYTES, MountName, REPLY_MAX_BYTES, Reply, Request, Response, Stripe,
    Target, TargetSpace, header, put,
};
use client::{Fs, FsSpace};
use model::acl::Acl;
use model::mutex::Mutex;
use model::perm::{MAY_EXEC, Subject, access};
use model::{Attr, Errno, Fid, FileType, LayoutSpec};
use std::collections::VecDeque;
use std::sync::Arc;

/// Replies of which parts were not fetched yet.
const PAGES_MAX: usize = 16;
/// Paths of one file that are told.
const PATHS_MAX: usize = 10_000;

struct Kept {
    token: u64,
    uid: u32,
    reply: Bytes,
}

/// Long replies, until they are fetched or pushed out by newer ones.
#[derive(Default)]
pub struct Pages {
    kept: Mutex<VecDeque<Kept>>,
}

impl Pages {
    fn keep(&self, token: u64, uid: u32, reply: Bytes) {
        let mut k = self.kept.lock();
        if k.len() >= PAGES_MAX {
            k.pop_front();
        }
        k.push_back(Kept { token, uid, reply });
    }

    fn find(&self, token: u64, uid: u32) -> Option<Bytes> {
        let k = self.kept.lock();
        k.iter().find(|p| p.token == token && p.uid == uid).map(|p| p.reply.clone())
    }

    fn drop_page(&self, token: u64) {
        self.kept.lock().retain(|p| p.token != token);
    }
}

/// One buffer's worth of `reply` from `offset` on.
fn part(reply: &[u8], offset: usize, token: u64) -> Vec<u8> {
    let end = reply.len().min(offset + BUFFER_BYTES - HEADER_BYTES);
    let mut out = vec![0; HEADER_BYTES];
    put(&mut out, (end - offset) as u32, reply.len() as u32, token);
    out.extend_from_slice(&reply[offset..end]);
    out
}

/// The buffer to give back for the buffer that was given.
pub async fn answer(cx: &Cx, input: &[u8]) -> Result<Vec<u8>, Errno> {
    if input.len() != BUFFER_BYTES {
        return Err(Errno::EINVAL);
    }
    let (len, offset, token) = header(input);
    if token != 0 {
        let reply = cx.bridge.pages.find(token, cx.uid).ok_or(Errno::ESTALE)?;
        let offset = offset as usize;
        if offset >= reply.len() {
            return Err(Errno::EINVAL);
        }
        let out = part(&reply, offset, token);
        if offset + (out.len() - HEADER_BYTES) == reply.len() {
            cx.bridge.pages.drop_page(token);
        }
        return Ok(out);
    }
    let body = input.get(HEADER_BYTES..HEADER_BYTES + len as usize).ok_or(Errno::EINVAL)?;
    let response = match serde_json::from_slice::<Request>(body) {
        Ok(request) => match run(cx, request).await {
            Ok(r) => Response::Ok(r),
            Err(e) => Response::Error(e),
        },
        Err(e) => Response::Error(ControlError {
            errno: Errno::EINVAL.0,
            message: format!("the mount does not understand the request: {e}"),
        }),
    };
    let json = serde_json::to_vec(&response).map_err(|_| Errno::EIO)?;
    if json.len() > REPLY_MAX_BYTES {
        return Err(Errno::EOVERFLOW);
    }
    if json.len() <= BUFFER_BYTES - HEADER_BYTES {
        return Ok(part(&json, 0, 0));
    }
    let token = cx.bridge.world.random_u64() | 1;
    let out = part(&json, 0, token);
    cx.bridge.pages.keep(token, cx.uid, json.into());
    Ok(out)
}

/// The opened file, or an entry of the opened directory.
async fn target(cx: &Cx, name: Option<client::control::Name>) -> Result<Attr, Errno> {
    let fid = cx.fid()?;
    match name {
        None => cx.fs().getattr(cx.call(), fid).await,
        Some(n) if n.0.is_empty() || n.0.contains(&b'/') || n.0 == b"." || n.0 == b".." => Err(Errno::EINVAL),
        Some(n) => {
            may_search(cx, fid).await?;
            cx.fs().lookup(cx.call(), fid, n.0).await
        }
    }
}

/// Search permission on a directory. In a path walk the kernel checks it; here nobody else does.
async fn may_search(cx: &Cx, dir: Fid) -> Result<(), Errno> {
    let call = cx.call();
    if call.cred.is_root() {
        return Ok(());
    }
    let d = cx.fs().getattr(call.clone(), dir).await?;
    let acl = match cx.fs().getxattr(call.clone(), dir, b"system.posix_acl_access".to_vec()).await {
        Ok(v) => Acl::from_xattr(&v)?,
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => None,
        Err(e) => return Err(e),
    };
    let subject =
        Subject { kind: d.kind, mode: d.mode, uid: d.uid, gid: d.gid, flags: d.flags, acl: acl.as_ref() };
    access(&call.cred, &subject, MAY_EXEC)
}

/// Answers a request that is about the mount ([`Request::is_of_mount`]); `EINVAL` for any other.
pub async fn answer_of_mount(fs: &Arc<Fs>, uid: u32, request: Request) -> Result<Reply, ControlError> {
    if uid != 0 {
        let what = match &request {
            Request::SetParam { name, .. } => Some(format!("only root may set the parameter '{name}'")),
            Request::Recover { .. } => Some("only root may have a connection made anew".to_string()),
            _ => None,
        };
        if let Some(message) = what {
            return Err(ControlError { errno: Errno::EPERM.0, message });
        }
    }
    Ok(match request {
        Request::Getname => Reply::Mount(MountName {
            fsname: fs.fsname(),
            instance: fs.instance(),
            fs_uuid: fs.fs_uuid().iter().map(|b| format!("{b:02x}")).collect(),
            root: fs.root(),
        }),
        Request::Targets => Reply::Targets(fs.targets().iter().map(Target::from).collect()),
        Request::Df => Reply::Space(df(fs).await),
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
            fs.reconnect(target)?;
            Reply::Done
        }
        Request::SetParam { name, value } => {
            match name.as_str() {
                client::control::READ_ONLY => fs.set_read_only(value != "0"),
                client::control::NOATIME => fs.set_noatime(value != "0"),
                _ => {
                    fs.set_param(&name, &value)?;
                    if fs.clears_leases(&name, &value) {
                        fs.leases_dropped().await.map_err(|e| ControlError {
                            errno: e.0,
                            message:
                                "some leases go back later: the MDT has not taken yet what was done under them"
                                    .to_string(),
                        })?;
                    }
                }
            }
            Reply::Done
        }
        _ => return Err(Errno::EINVAL.into()),
    })
}

async fn run(cx: &Cx, request: Request) -> Result<Reply, ControlError> {
    let fs = cx.fs();
    if request.is_of_mount() {
        return answer_of_mount(&fs, cx.uid, request).await;
    }
    Ok(match request {
        Request::Path2fid { name } => Reply::Fid(target(cx, name).await?.fid),
        Request::Fid2path { fid } => {
            let (mut paths, mut links) = fs.getpath(cx.call(), fid).await?;
            paths.truncate(PATHS_MAX);
            links.truncate(PATHS_MAX);
            Reply::Paths {
                paths: paths.into_iter().map(Into::into).collect(),
                links: links.into_iter().map(|(p, n)| (p, n.into())).collect(),
            }
        }
        Request::Getstripe { name } => {
            let attr = target(cx, name).await?;
            Reply::Stripe(Box::new(stripe(cx, &attr).await?))
        }
        Request::Setstripe { name, spec } => {
            let attr = target(cx, name).await?;
            setstripe(cx, &attr, spec).await?
        }
        Request::Create { name, mode, umask, spec } => {
            let r = create(cx, name.0, mode, umask, spec).await;
            // The kernel may know the name as absent, and the directory as it was.
            let dir = cx.fid()?;
            cx.bridge.kernel.forget_names(std::iter::once(dir));
            client::Keeper::changed(&*cx.bridge.kernel, dir);
            r?
        }
        Request::OstFiles { ost, after } => {
            let r = fs.ostfiles(cx.call(), ost, after).await?;
            let named =
                |(fid, paths): (Fid, Vec<Vec<u8>>)| (fid, paths.into_iter().map(Into::into).collect());
            Reply::OstFiles { files: r.files.into_iter().map(named).collect(), next: r.next }
        }
        Request::Glimpse { name } => Reply::Objects(fs.glimpse(target(cx, name).await?.fid).await?),
        _ => return Err(Errno::EINVAL.into()),
    })
}

async fn stripe(cx: &Cx, attr: &Attr) -> Result<Stripe, Errno> {
    let fs = cx.fs();
    let layout = match attr.kind {
        FileType::Regular => fs.clone().getlayout(cx.call(), attr.fid).await?,
        _ => None,
    };
    let default = match attr.kind {
        FileType::Directory => fs.clone().getdefault(cx.call(), attr.fid).await?,
        _ => None,
    };
    let fs_default = fs.clone().getdefault(cx.call(), Fid::ROOT).await.unwrap_or(None);
    let mdt_bytes = match attr.kind {
        FileType::Directory => fs.default_mdt_bytes(attr.fid).await,
        _ => None,
    };
    Ok(Stripe { fid: attr.fid, kind: attr.kind, layout, default, fs_default, mdt_bytes })
}

async fn setstripe(cx: &Cx, attr: &Attr, spec: Option<LayoutSpec>) -> Result<Reply, ControlError> {
    let error = |errno: Errno, message: &str| ControlError { errno: errno.0, message: message.to_string() };
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
    if cx.uid != 0 && cx.uid != attr.uid {
        return Err(Errno::EPERM.into());
    }
    cx.fs().setlayout(cx.call(), attr.fid, spec).await?;
    Ok(Reply::Done)
}

async fn create(
    cx: &Cx,
    name: Vec<u8>,
    mode: u32,
    umask: u32,
    spec: LayoutSpec,
) -> Result<Reply, ControlError> {
    let invalid = |message: &str| ControlError { errno: Errno::EINVAL.0, message: message.to_string() };
    if name.is_empty() || name.contains(&b'/') || name.len() > model::limits::NAME_MAX_BYTES {
        return Err(invalid("invalid file name"));
    }
    spec.check().map_err(|_| invalid("invalid stripe settings"))?;
    let fs = cx.fs();
    let parent = cx.fid()?;
    let flags = (libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY) as u32;
    let call = cx.call_with_umask(umask & 0o777);
    let (attr, file) = fs.clone().create(call, parent, name, mode & 0o7777, flags, Some(spec)).await?;
    fs.close(Arc::new(file)).await?;
    Ok(Reply::Fid(attr.fid))
}

async fn df(fs: &Arc<Fs>) -> Vec<TargetSpace> {
    let all = fs.clone().df().await;
    let one = |(state, space, flags): (client::TargetState, Result<FsSpace, Errno>, u32)| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_replies_are_cut_into_buffers() {
        let whole: Vec<u8> = (0..30_000u32).map(|n| n as u8).collect();
        let mut got = Vec::new();
        while got.len() < whole.len() {
            let b = part(&whole, got.len(), 7);
            assert!(b.len() <= BUFFER_BYTES);
            let (len, total, token) = header(&b);
            assert_eq!((len as usize, total as usize, token), (b.len() - HEADER_BYTES, whole.len(), 7));
            got.extend_from_slice(&b[HEADER_BYTES..]);
        }
        assert_eq!(got, whole);
        let p = Pages::default();
        for t in 0..2 * PAGES_MAX as u64 {
            p.keep(t, 5, Bytes::new());
        }
        assert!(p.find(0, 5).is_none(), "the oldest went");
        assert!(p.find(31, 5).is_some() && p.find(31, 6).is_none(), "only for who asked");
    }
}
