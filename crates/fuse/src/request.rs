//! Requests of the kernel, taken apart. Nothing here trusts a length: whatever the bytes are, the answer is a
//! request or an error.

use crate::abi::{self, opcode};
use model::limits;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Why bytes are no request.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseError {
    #[error("{0} bytes are too short for a request header")]
    NoHeader(usize),
    #[error("the header says {said} bytes, the device gave {got}")]
    Length { said: u32, got: usize },
    #[error("request {opcode} is cut short")]
    Short { opcode: u32 },
    #[error("a name in request {opcode} is not terminated or too long")]
    Name { opcode: u32 },
    #[error("an extension of request {opcode} is not as long as it says")]
    Extension { opcode: u32 },
    #[error("unknown request {0}")]
    Unknown(u32),
}

impl ParseError {
    /// The errno to answer with.
    pub fn errno(&self) -> model::Errno {
        match self {
            ParseError::Unknown(_) => model::Errno::ENOSYS,
            ParseError::Name { .. } => model::Errno::ENAMETOOLONG,
            _ => model::Errno::EIO,
        }
    }
}

/// A file name as the kernel sends it, without the terminating zero.
pub type Name = Vec<u8>;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Lookup(Name),
    Forget(abi::ForgetIn),
    BatchForget(Vec<abi::ForgetOne>),
    Getattr(abi::GetattrIn),
    Setattr(abi::SetattrIn),
    Readlink,
    Symlink {
        name: Name,
        target: Name,
    },
    Mknod(abi::MknodIn, Name),
    Mkdir(abi::MkdirIn, Name),
    Unlink(Name),
    Rmdir(Name),
    Rename {
        newdir: u64,
        flags: u32,
        name: Name,
        new_name: Name,
    },
    Link(abi::LinkIn, Name),
    Open(abi::OpenIn),
    Read(abi::ReadIn),
    /// The data's place in the buffer that was parsed.
    Write(abi::WriteIn, Range<usize>),
    Statfs,
    Release(abi::ReleaseIn),
    Fsync(abi::FsyncIn),
    Setxattr {
        arg: abi::SetxattrIn,
        name: Name,
        value: Vec<u8>,
    },
    Getxattr(abi::GetxattrIn, Name),
    Listxattr(abi::GetxattrIn),
    Removexattr(Name),
    Flush(abi::FlushIn),
    Init(abi::InitIn),
    Opendir(abi::OpenIn),
    Readdir {
        arg: abi::ReadIn,
        plus: bool,
    },
    Releasedir(abi::ReleaseIn),
    Fsyncdir(abi::FsyncIn),
    Getlk(abi::LkIn),
    Setlk {
        arg: abi::LkIn,
        wait: bool,
    },
    Access(abi::AccessIn),
    Create(abi::CreateIn, Name),
    Tmpfile(abi::CreateIn),
    Interrupt(abi::InterruptIn),
    Bmap,
    Destroy,
    Ioctl(abi::IoctlIn, Vec<u8>),
    Poll,
    Fallocate(abi::FallocateIn),
    Lseek(abi::LseekIn),
    /// `wide`: the reply has 64 bits.
    CopyFileRange {
        arg: abi::CopyFileRangeIn,
        wide: bool,
    },
    Syncfs,
    Statx(abi::StatxIn),
    NotifyReply,
}

impl Op {
    /// For people: what it is, with its names and its place in the file.
    pub fn text(&self) -> String {
        let whole = format!("{self:?}");
        let word = whole.split(['(', ' ', '{']).next().unwrap_or_default().to_lowercase();
        let shown = |n: &Name| format!(" '{}'", String::from_utf8_lossy(n).escape_debug());
        let rest = match self {
            Op::Lookup(n) | Op::Unlink(n) | Op::Rmdir(n) | Op::Removexattr(n) => shown(n),
            Op::Mknod(_, n) | Op::Mkdir(_, n) | Op::Link(_, n) | Op::Create(_, n) | Op::Getxattr(_, n) => {
                shown(n)
            }
            Op::Symlink { name, .. } | Op::Setxattr { name, .. } => shown(name),
            Op::Rename { newdir, name, new_name, .. } => {
                format!("{} to{} in node {newdir}", shown(name), shown(new_name))
            }
            Op::Read(a) => format!(" {}..{}", a.offset, a.offset.saturating_add(a.size.into())),
            Op::Write(a, _) => format!(" {}..{}", a.offset, a.offset.saturating_add(a.size.into())),
            _ => String::new(),
        };
        word + &rest
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub header: abi::InHeader,
    pub op: Op,
    /// Of a create: the directory's group, if the caller is in it by a supplementary one.
    pub groups: Vec<u32>,
}

/// The header alone, to be able to answer what cannot be parsed further.
pub fn parse_header(buf: &[u8]) -> Result<abi::InHeader, ParseError> {
    abi::InHeader::read_from_prefix(buf).map(|(h, _)| h).map_err(|_| ParseError::NoHeader(buf.len()))
}

struct Args<'a> {
    whole: &'a [u8],
    at: usize,
    end: usize,
    opcode: u32,
}

impl Args<'_> {
    fn rest(&self) -> &[u8] {
        let within = self.at <= self.end && self.end <= self.whole.len();
        assert!(within, "arguments are taken from what is there");
        &self.whole[self.at..self.end]
    }

    fn get<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, ParseError> {
        let short = ParseError::Short { opcode: self.opcode };
        let (v, _) = T::read_from_prefix(self.rest()).map_err(|_| short)?;
        self.at += size_of::<T>();
        Ok(v)
    }

    /// A structure that older kernels send shorter: the missing end is zero.
    fn get_padded<T: FromBytes + KnownLayout + Immutable>(&mut self, least: usize) -> Result<T, ParseError> {
        let mut full = [0u8; 64];
        let size = size_of::<T>();
        assert!(least <= size && size <= full.len());
        let have = self.rest().len().min(size);
        if have < least {
            return Err(ParseError::Short { opcode: self.opcode });
        }
        full[..have].copy_from_slice(&self.rest()[..have]);
        self.at += have;
        T::read_from_prefix(&full).map(|(v, _)| v).map_err(|_| ParseError::Short { opcode: self.opcode })
    }

    /// Bytes up to a zero, which is taken too.
    fn name(&mut self, max: usize) -> Result<Name, ParseError> {
        let bad = ParseError::Name { opcode: self.opcode };
        let len = self.rest().iter().position(|b| *b == 0).ok_or(bad)?;
        if len > max {
            return Err(ParseError::Name { opcode: self.opcode });
        }
        let name = self.rest()[..len].to_vec();
        self.at += len + 1;
        Ok(name)
    }

    fn bytes(&mut self, len: u32) -> Result<Range<usize>, ParseError> {
        let len = len as usize;
        if self.rest().len() < len {
            return Err(ParseError::Short { opcode: self.opcode });
        }
        let r = self.at..self.at + len;
        self.at += len;
        Ok(r)
    }

    fn owned(&mut self, len: u32) -> Result<Vec<u8>, ParseError> {
        let r = self.bytes(len)?;
        Ok(self.whole[r].to_vec())
    }

    fn forgets(&mut self) -> Result<Vec<abi::ForgetOne>, ParseError> {
        let head: abi::BatchForgetIn = self.get()?;
        // The count is believed only as far as there are bytes.
        let fits = self.rest().len() / size_of::<abi::ForgetOne>();
        let count = (head.count as usize).min(fits);
        (0..count).map(|_| self.get()).collect()
    }
}

const NAME: usize = limits::NAME_MAX_BYTES;

/// Takes a request apart. `buf` is exactly what one read(2) from the device gave.
pub fn parse_request(buf: &[u8]) -> Result<Request, ParseError> {
    let header = parse_header(buf)?;
    if header.len as usize != buf.len() {
        return Err(ParseError::Length { said: header.len, got: buf.len() });
    }
    let start = size_of::<abi::InHeader>();
    let ext = usize::from(header.total_extlen) * 8;
    let end = buf
        .len()
        .checked_sub(ext)
        .filter(|e| *e >= start)
        .ok_or(ParseError::Short { opcode: header.opcode })?;
    let mut a = Args { whole: buf, at: start, end, opcode: header.opcode };
    let op = match parse_names(&mut a)? {
        Some(op) => op,
        None => parse_files(&mut a)?,
    };
    let groups = parse_groups(&buf[end..]).ok_or(ParseError::Extension { opcode: header.opcode })?;
    Ok(Request { header, op, groups })
}

/// The groups among a request's extensions. `None` if these are not as long as they say.
fn parse_groups(mut exts: &[u8]) -> Option<Vec<u32>> {
    let mut groups = Vec::new();
    while !exts.is_empty() {
        let (head, _) = abi::ExtHeader::read_from_prefix(exts).ok()?;
        let size = head.size as usize;
        if size < size_of::<abi::ExtHeader>() || !size.is_multiple_of(8) {
            return None;
        }
        let (ext, rest) = exts.split_at_checked(size)?;
        if head.kind == abi::EXT_GROUPS {
            let (count, mut list) = ext[size_of::<abi::ExtHeader>()..].split_first_chunk()?;
            for _ in 0..u32::from_ne_bytes(*count) {
                let (group, more) = list.split_first_chunk()?;
                groups.push(u32::from_ne_bytes(*group));
                list = more;
            }
        }
        exts = rest;
    }
    Some(groups)
}

/// Requests on names and whole inodes.
fn parse_names(a: &mut Args<'_>) -> Result<Option<Op>, ParseError> {
    Ok(Some(match a.opcode {
        opcode::LOOKUP => Op::Lookup(a.name(NAME)?),
        opcode::FORGET => Op::Forget(a.get()?),
        opcode::BATCH_FORGET => Op::BatchForget(a.forgets()?),
        opcode::GETATTR => Op::Getattr(a.get()?),
        opcode::SETATTR => Op::Setattr(a.get()?),
        opcode::READLINK => Op::Readlink,
        opcode::SYMLINK => Op::Symlink { name: a.name(NAME)?, target: a.name(limits::PATH_MAX_BYTES)? },
        opcode::MKNOD => Op::Mknod(a.get()?, a.name(NAME)?),
        opcode::MKDIR => Op::Mkdir(a.get()?, a.name(NAME)?),
        opcode::UNLINK => Op::Unlink(a.name(NAME)?),
        opcode::RMDIR => Op::Rmdir(a.name(NAME)?),
        opcode::RENAME => {
            let r: abi::RenameIn = a.get()?;
            Op::Rename { newdir: r.newdir, flags: 0, name: a.name(NAME)?, new_name: a.name(NAME)? }
        }
        opcode::RENAME2 => {
            let r: abi::Rename2In = a.get()?;
            Op::Rename { newdir: r.newdir, flags: r.flags, name: a.name(NAME)?, new_name: a.name(NAME)? }
        }
        opcode::LINK => Op::Link(a.get()?, a.name(NAME)?),
        opcode::STATFS => Op::Statfs,
        opcode::SETXATTR => {
            // Always the long form: FUSE_SETXATTR_EXT is negotiated, every kernel from 7.33 on has it.
            let arg: abi::SetxattrIn = a.get()?;
            let name = a.name(limits::XATTR_NAME_MAX_BYTES)?;
            Op::Setxattr { arg, name, value: a.owned(arg.size)? }
        }
        opcode::GETXATTR => Op::Getxattr(a.get()?, a.name(limits::XATTR_NAME_MAX_BYTES)?),
        opcode::LISTXATTR => Op::Listxattr(a.get()?),
        opcode::REMOVEXATTR => Op::Removexattr(a.name(limits::XATTR_NAME_MAX_BYTES)?),
        opcode::ACCESS => Op::Access(a.get()?),
        opcode::STATX => Op::Statx(a.get()?),
        opcode::INIT => Op::Init(a.get_padded(abi::INIT_IN_SHORT_BYTES)?),
        opcode::DESTROY => Op::Destroy,
        opcode::SYNCFS => Op::Syncfs,
        _ => return Ok(None),
    }))
}

/// Requests on open files and directories.
fn parse_files(a: &mut Args<'_>) -> Result<Op, ParseError> {
    Ok(match a.opcode {
        opcode::OPEN => Op::Open(a.get()?),
        opcode::CREATE => Op::Create(a.get()?, a.name(NAME)?),
        opcode::TMPFILE => Op::Tmpfile(a.get()?),
        opcode::READ => Op::Read(a.get()?),
        opcode::WRITE => {
            let arg: abi::WriteIn = a.get()?;
            Op::Write(arg, a.bytes(arg.size)?)
        }
        opcode::RELEASE => Op::Release(a.get()?),
        opcode::FSYNC => Op::Fsync(a.get()?),
        opcode::FLUSH => Op::Flush(a.get()?),
        opcode::OPENDIR => Op::Opendir(a.get()?),
        opcode::READDIR => Op::Readdir { arg: a.get()?, plus: false },
        opcode::READDIRPLUS => Op::Readdir { arg: a.get()?, plus: true },
        opcode::RELEASEDIR => Op::Releasedir(a.get()?),
        opcode::FSYNCDIR => Op::Fsyncdir(a.get()?),
        opcode::GETLK => Op::Getlk(a.get()?),
        opcode::SETLK => Op::Setlk { arg: a.get()?, wait: false },
        opcode::SETLKW => Op::Setlk { arg: a.get()?, wait: true },
        opcode::INTERRUPT => Op::Interrupt(a.get()?),
        opcode::BMAP => Op::Bmap,
        opcode::IOCTL => {
            let arg: abi::IoctlIn = a.get()?;
            Op::Ioctl(arg, a.owned(arg.in_size)?)
        }
        opcode::POLL => Op::Poll,
        opcode::NOTIFY_REPLY => Op::NotifyReply,
        opcode::FALLOCATE => Op::Fallocate(a.get()?),
        opcode::LSEEK => Op::Lseek(a.get()?),
        opcode::COPY_FILE_RANGE => Op::CopyFileRange { arg: a.get()?, wide: false },
        opcode::COPY_FILE_RANGE_64 => Op::CopyFileRange { arg: a.get()?, wide: true },
        n => return Err(ParseError::Unknown(n)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    fn request(op: u32, body: &[u8]) -> Vec<u8> {
        let mut h = abi::InHeader { opcode: op, unique: 2, nodeid: 1, ..abi::InHeader::default() };
        h.len = (size_of::<abi::InHeader>() + body.len()) as u32;
        [h.as_bytes(), body].concat()
    }

    #[test]
    fn requests_are_taken_apart() {
        assert_eq!(
            parse_request(&request(opcode::LOOKUP, b"name\0")).unwrap().op,
            Op::Lookup(b"name".to_vec())
        );
        let two = request(opcode::SYMLINK, b"link\0to/where\0");
        let want = Op::Symlink { name: b"link".to_vec(), target: b"to/where".to_vec() };
        assert_eq!(parse_request(&two).unwrap().op, want);
        let w = abi::WriteIn { size: 3, ..abi::WriteIn::default() };
        let buf = request(opcode::WRITE, &[w.as_bytes(), b"abc"].concat());
        match parse_request(&buf).unwrap().op {
            Op::Write(arg, r) => assert_eq!((arg.size, &buf[r]), (3, &b"abc"[..])),
            other => panic!("{other:?}"),
        }
        let short_init = [7u32.to_ne_bytes(), 31u32.to_ne_bytes(), [0; 4], [0; 4]].concat();
        match parse_request(&request(opcode::INIT, &short_init)).unwrap().op {
            Op::Init(i) => assert_eq!((i.major, i.minor, i.flags2), (7, 31, 0)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn extensions_are_no_part_of_the_arguments() {
        let with = |extlen: usize, words: &[u32]| {
            let mut h = abi::InHeader { opcode: opcode::LOOKUP, ..abi::InHeader::default() };
            h.total_extlen = extlen as u16;
            h.len = (40 + 2 + words.len() * 4) as u32;
            parse_request(&[h.as_bytes(), b"x\0", words.as_bytes()].concat())
        };
        let parsed = |words: &[u32]| with(words.len() / 2, words).map(|r| (r.op, r.groups));
        let lookup = || Op::Lookup(b"x".to_vec());
        assert_eq!(parsed(&[8, 1]), Ok((lookup(), vec![])));
        assert_eq!(parsed(&[16, 32, 1, 1000]), Ok((lookup(), vec![1000])));
        assert_eq!(parsed(&[8, 1, 24, 32, 2, 7, 9, 0]), Ok((lookup(), vec![7, 9])));
        let bad = Err(ParseError::Extension { opcode: opcode::LOOKUP });
        for words in [
            &[16, 32, 2, 1000][..],
            &[0, 32],
            &[12, 32, 1, 5],
            &[24, 32, 1, 5],
            &[8, 32],
            &[16, 32, u32::MAX, 1],
        ] {
            assert_eq!(parsed(words), bad, "{words:?}");
        }
        assert_eq!(with(100, &[8, 1]), Err(ParseError::Short { opcode: opcode::LOOKUP }));
    }

    #[test]
    fn operations_are_told_with_their_names_and_places() {
        let read = abi::ReadIn { offset: 5, size: 10, ..abi::ReadIn::default() };
        let rename = Op::Rename { newdir: 7, flags: 0, name: b"a\xff".to_vec(), new_name: b"b\n".to_vec() };
        assert_eq!(Op::Lookup(b"name".to_vec()).text(), "lookup 'name'");
        assert_eq!(Op::Read(read).text(), "read 5..15");
        assert_eq!(rename.text(), "rename 'a\u{fffd}' to 'b\\n' in node 7");
        assert_eq!(
            (Op::Statfs.text(), Op::Tmpfile(abi::CreateIn::default()).text()),
            ("statfs".into(), "tmpfile".into())
        );
    }

    #[test]
    fn lies_about_lengths_are_errors() {
        assert_eq!(parse_request(&[0; 39]), Err(ParseError::NoHeader(39)));
        let w = abi::WriteIn { size: 4, ..abi::WriteIn::default() };
        let buf = request(opcode::WRITE, &[w.as_bytes(), b"abc"].concat());
        assert_eq!(parse_request(&buf), Err(ParseError::Short { opcode: opcode::WRITE }));
        let many = abi::BatchForgetIn { count: u32::MAX, dummy: 0 };
        let one = abi::ForgetOne { nodeid: 5, nlookup: 1 };
        let buf = request(opcode::BATCH_FORGET, &[many.as_bytes(), one.as_bytes()].concat());
        assert_eq!(parse_request(&buf).unwrap().op, Op::BatchForget(vec![one]));
        assert_eq!(parse_request(&request(4711, b"")), Err(ParseError::Unknown(4711)));
        let long = [&[b'x'; 256][..], b"\0"].concat();
        assert_eq!(
            parse_request(&request(opcode::LOOKUP, &long)),
            Err(ParseError::Name { opcode: opcode::LOOKUP })
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(op in 0u32..60, mut body in proptest::collection::vec(any::<u8>(), 0..400), ext in 0u16..20) {
            let _ = parse_request(&body);
            let mut buf = request(op, &body);
            let told = parse_request(&buf).map_or_else(|_| 1, |r| r.op.text().len());
            prop_assert!((1..4000).contains(&told));
            buf[36..38].copy_from_slice(&ext.to_ne_bytes());
            let _ = parse_request(&buf);
            body.push(0);
            let _ = parse_request(&request(op, &body));
        }
    }
}
