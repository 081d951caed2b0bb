//! GETXATTR: an extended attribute, an ACL, or one of the virtual ones that describe where a file lies.

use super::Cx;
use crate::abi::{GetxattrIn, GetxattrOut};
use crate::reply::{Answer, Reply};
use model::{Errno, Fid, FileType, Layout};
use zerocopy::IntoBytes;

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

/// `nacre.fid` (text), `nacre.layout` and `nacre.default` (JSON), and `lustre.lov`, `trusted.lov` (binary, as
/// Lustre's user tools read them). They are not listed, so that copying programs leave them alone.
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
        b"lustre.lov" | b"trusted.lov" => Ok(lov(&layout(cx, fid).await?)),
        _ => Err(Errno::ENODATA),
    }
}

async fn layout(cx: &Cx, fid: Fid) -> Result<Layout, Errno> {
    if cx.fs().getattr(cx.call(), fid).await?.kind != FileType::Regular {
        return Err(Errno::ENODATA);
    }
    client::Admin(&cx.bridge.fs).getlayout(cx.call(), fid).await?.ok_or(Errno::ENODATA)
}

/// `struct lov_user_md_v1` with its objects, little-endian.
fn lov(l: &Layout) -> Vec<u8> {
    const MAGIC_V1: u32 = 0x0bd1_0bd0;
    const RAID0: u32 = 1;
    const MDT: u32 = 0x100;
    let c = l.shown();
    let mut out = Vec::with_capacity(32 + 24 * c.objects.len());
    out.extend_from_slice(&MAGIC_V1.to_le_bytes());
    let pattern = if l.mdt_component().is_some() { MDT } else { RAID0 };
    out.extend_from_slice(&pattern.to_le_bytes());
    let origin = c.objects.first().map_or(Fid::NONE, |o| o.id.origin);
    let id = |out: &mut Vec<u8>, f: Fid| {
        out.extend_from_slice(&u64::from(f.oid).to_le_bytes());
        out.extend_from_slice(&f.seq.to_le_bytes());
    };
    id(&mut out, origin);
    out.extend_from_slice(&c.stripe_size.to_le_bytes());
    out.extend_from_slice(&(c.objects.len() as u16).to_le_bytes());
    out.extend_from_slice(&(l.generation as u16).to_le_bytes());
    for o in &c.objects {
        id(&mut out, o.id.origin);
        out.extend_from_slice([0u32.to_le(), u32::from(o.ost).to_le()].as_bytes());
    }
    assert_eq!(out.len(), 32 + 24 * c.objects.len(), "as long as Lustre's tools expect it");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_convention() {
        assert_eq!(sized(0, vec![1; 5]).unwrap().fixed[0], 5);
        assert_eq!(sized(4, vec![1; 5]).unwrap_err(), Errno::ERANGE);
        assert_eq!(sized(5, vec![1; 5]).unwrap().data.len(), 5);
        let l = Layout::plain(Fid::new(0x2_0000_0401, 3, 0), 65536, "", &[2, 5]);
        let b = lov(&l);
        assert_eq!(b.len(), 32 + 2 * 24);
        assert_eq!(&b[..4], &[0xd0, 0x0b, 0xd1, 0x0b]);
        assert_eq!(&b[24..28], &65536u32.to_le_bytes());
        assert_eq!(b[32 + 20], 2);
        let b = lov(&Layout::on_mdt(65536));
        assert_eq!((b.len(), &b[4..8]), (32, &[0, 1, 0, 0][..]));
    }
}
