//! For which job, and which file, a request is that waits: for lists and logs.

use bytes::Bytes;
use model::Fid;
use wire::msg::{
    close, enqueue, fallocate, fetch, getattr, getlock, getxattr, glimpse, glimpselist, layout, listxattr,
    lookup, open, read, readdir, readlink, seek, truncate, write, writelist,
};
use wire::{Op, RequestContext};

/// What a request says of itself.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Whose {
    /// Empty: it has none.
    pub job: String,
    /// The file that it asks about, or the directory; of an object its id stands for it.
    pub file: Option<String>,
}

impl Whose {
    /// Of a request as it goes over the network; nothing is said of what does not decode.
    pub(crate) fn of(op: Op, body: &Bytes) -> Whose {
        let Ok((cx, message)) = wire::decode_context::<RequestContext>(body) else {
            return Whose::default();
        };
        Whose { job: cx.jobid, file: file(op, &message) }
    }
}

fn file(op: Op, m: &[u8]) -> Option<String> {
    use wire::decode_message as of;
    let fid: Option<Fid> = match op {
        Op::Getattr => of(m).map(|m: getattr::Getattr| m.fid).ok(),
        Op::Lookup => of(m).map(|m: lookup::Lookup| m.parent).ok(),
        Op::Open => of(m).map(|m: open::Open| m.fid).ok(),
        Op::Close => of(m).map(|m: close::Close| m.fid).ok(),
        Op::Layout => of(m).map(|m: layout::Layout| m.fid).ok(),
        Op::Readdir => of(m).map(|m: readdir::Readdir| m.fid).ok(),
        Op::Readlink => of(m).map(|m: readlink::Readlink| m.fid).ok(),
        Op::Getxattr => of(m).map(|m: getxattr::Getxattr| m.fid).ok(),
        Op::Listxattr => of(m).map(|m: listxattr::Listxattr| m.fid).ok(),
        Op::Fetch => of(m).ok().and_then(|m: fetch::Fetch| m.fids.first().copied()),
        Op::Enqueue => of(m).map(|m: enqueue::Enqueue| m.lock.fid).ok(),
        Op::Getlock => of(m).map(|m: getlock::Getlock| m.lock.fid).ok(),
        Op::Write => of(m).map(|m: write::Write| m.file).ok(),
        Op::Writelist => of(m).map(|m: writelist::Writelist| m.write.file).ok(),
        Op::Truncate => of(m).map(|m: truncate::Truncate| m.file).ok(),
        Op::Fallocate => of(m).map(|m: fallocate::Fallocate| m.file).ok(),
        _ => super::lost::first_changed(op, m),
    };
    if let Some(f) = fid.filter(|f| *f != Fid::NONE) {
        return Some(f.to_string());
    }
    let object = match op {
        Op::Read => of(m).map(|m: read::Read| m.object).ok(),
        Op::Seek => of(m).map(|m: seek::Seek| m.object).ok(),
        Op::Glimpse => of(m).ok().and_then(|m: glimpse::Glimpse| m.objects.first().copied()),
        Op::Glimpselist => {
            of(m).ok().and_then(|m: glimpselist::Glimpselist| m.objects.first().map(|(o, _)| *o))
        }
        _ => None,
    };
    object.map(|o| format!("object {o}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::encode_body;

    #[test]
    fn a_request_says_its_job_and_its_file() {
        let cx = RequestContext { jobid: "dd.0".into(), ..RequestContext::default() };
        let fid = Fid::new(9, 7, 0);
        let body = Bytes::from(encode_body(&cx, &getattr::Getattr { fid }));
        let whose = Whose::of(Op::Getattr, &body);
        assert_eq!(whose, Whose { job: "dd.0".into(), file: Some(fid.to_string()) });
        let of_none =
            Whose::of(Op::Statfs, &Bytes::from(encode_body(&cx, &wire::msg::statfs::Statfs { flags: 0 })));
        assert_eq!(of_none, Whose { job: "dd.0".into(), file: None });
        assert_eq!(Whose::of(Op::Write, &Bytes::from_static(b"\xff")), Whose::default());
    }
}
