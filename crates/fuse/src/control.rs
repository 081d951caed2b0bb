//! Brings the control requests of `lfs` and `lctl` to the client (`client::control`, `client::admin`), and
//! long replies back in parts.

use crate::ops::Cx;
use bytes::Bytes;
use client::admin;
use client::control::{
    BUFFER_BYTES, ControlError, HEADER_BYTES, REPLY_MAX_BYTES, Reply, Request, Response, header, put,
};
use model::Errno;
use model::mutex::Mutex;
use std::collections::VecDeque;

/// Replies of which parts were not fetched yet.
const PAGES_MAX: usize = 16;

struct Kept {
    token: u64,
    uid: u32,
    reply: Bytes,
}

/// Long replies, until they are fetched or pushed out by newer ones.
#[derive(Default)]
pub struct ReplyParts {
    kept: Mutex<VecDeque<Kept>>,
}

impl ReplyParts {
    fn keep(&self, token: u64, uid: u32, reply: Bytes) {
        assert_ne!(token, 0, "a reply that is kept has a token, by which its parts are asked for");
        let mut k = self.kept.lock();
        if k.len() >= PAGES_MAX {
            k.pop_front();
        }
        k.push_back(Kept { token, uid, reply });
        assert!(k.len() <= PAGES_MAX, "so many replies are kept and no more");
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
    assert!(out.len() <= BUFFER_BYTES, "a part fits into the buffer");
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

async fn run(cx: &Cx, request: Request) -> Result<Reply, ControlError> {
    let fs = cx.fs();
    if request.is_of_mount() {
        return admin::answer_of_mount(&fs, cx.uid, request).await;
    }
    let opened = cx.fid()?;
    let changes_names = matches!(request, Request::Create { .. } | Request::Purge { .. });
    let answer = admin::answer(&fs, cx.call(), opened, request).await;
    if changes_names {
        // The kernel may know the name as absent, or as there, and the directory as it was.
        cx.bridge.kernel.forget_names(std::iter::once(opened));
        client::CacheHolder::changed(&*cx.bridge.kernel, opened);
    }
    answer
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
        let p = ReplyParts::default();
        for t in 1..=2 * PAGES_MAX as u64 {
            p.keep(t, 5, Bytes::new());
        }
        assert!(p.find(1, 5).is_none(), "the oldest went");
        assert!(p.find(32, 5).is_some() && p.find(32, 6).is_none(), "only for who asked");
    }
}
