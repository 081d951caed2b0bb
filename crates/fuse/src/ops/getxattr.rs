//! GETXATTR: an extended attribute, an ACL, or one of the virtual ones that describe where a file lies.

use super::Cx;
use crate::abi::{GetxattrIn, GetxattrOut};
use crate::lov_md;
use crate::reply::{Answer, Reply};
use model::{Errno, Fid, Layout};

pub async fn run(cx: Cx, a: GetxattrIn, name: Vec<u8>) -> Answer {
    let fid = cx.fid()?;
    let value = match is_virtual(&name) {
        true => virtual_value(&cx, fid, &name).await?,
        // The kernel asks for access lists when it checks permissions.
        false => match cx.fs().getxattr(cx.call(), fid, name).await {
            Err(e) if cx.is_removed_dir(fid, e) => return Err(Errno::ENODATA),
            r => r?,
        },
    };
    sized(a.size, value)
}

/// getxattr(2)'s convention: size 0 asks for the length.
pub fn sized(room: u32, value: Vec<u8>) -> Answer {
    if room == 0 {
        return Ok(Reply::of(&GetxattrOut { size: value.len() as u32, padding: 0 }));
    }
    if value.len() > room as usize {
        return Err(Errno::ERANGE);
    }
    Ok(Reply::data(value))
}

/// `nacre.fid` (text), `nacre.layout` and `nacre.default` (JSON), which are not listed, so that copying
/// programs leave them alone; and `lustre.lov`, `trusted.lov` (binary, as Lustre's user tools know them), of
/// which the first is.
pub use client::is_virtual_xattr as is_virtual;

async fn virtual_value(cx: &Cx, fid: Fid, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let json = |v: serde_json::Result<Vec<u8>>| v.map_err(|_| Errno::EIO);
    match name {
        b"nacre.fid" => Ok(fid.to_string().into_bytes()),
        b"nacre.layout" => json(serde_json::to_vec(&layout(cx, fid).await?)),
        b"nacre.default" => {
            let spec =
                client::Admin(&cx.bridge.fs).getdefault(cx.call(), fid).await?.ok_or(Errno::ENODATA)?;
            json(serde_json::to_vec(&spec))
        }
        name if lov_md::is_name(name) => lov(cx, fid).await,
        _ => Err(Errno::ENODATA),
    }
}

/// A file's layout; what a directory asks of new files. No object server is asked.
pub async fn lov(cx: &Cx, fid: Fid) -> Result<Vec<u8>, Errno> {
    if let Some(l) = client::Admin(&cx.bridge.fs).getlayout(cx.call(), fid).await? {
        return Ok(lov_md::encode(&l));
    }
    match client::Admin(&cx.bridge.fs).getdefault(cx.call(), fid).await {
        Ok(Some(spec)) => Ok(lov_md::encode_spec(&spec)),
        Ok(None) | Err(Errno::ENOTDIR) => Err(Errno::ENODATA),
        Err(e) => Err(e),
    }
}

async fn layout(cx: &Cx, fid: Fid) -> Result<Layout, Errno> {
    client::Admin(&cx.bridge.fs).getlayout(cx.call(), fid).await?.ok_or(Errno::ENODATA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_convention() {
        assert_eq!(sized(0, vec![1; 5]).unwrap().fixed[0], 5);
        assert_eq!(sized(4, vec![1; 5]).unwrap_err(), Errno::ERANGE);
        assert_eq!(sized(5, vec![1; 5]).unwrap().data.len(), 5);
    }
}
