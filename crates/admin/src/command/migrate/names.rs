//! Which files a command is to move: its operands, the lines of a file or of standard input, or FIDs.

use crate::command::fid2path;
use crate::failure::Failure;
use crate::getopt::Parsed;
use crate::local;
use model::{Errno, Fid};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use world::sys::files;

/// Bytes of one name, with a directory of its own for each of the path's parts.
const NAME_MAX_BYTES: u64 = 1 << 20;

/// Names one after the other; a list is read as it is needed.
pub struct Names(Source);

enum Source {
    Given(VecDeque<OsString>),
    Fids {
        mount: PathBuf,
        fids: VecDeque<OsString>,
    },
    /// `None`: it could not be read further.
    List {
        from: Option<Box<dyn BufRead>>,
        end: u8,
        shown: String,
    },
}

impl Names {
    /// Operands and `--null`, `--files-from`, `--fid`, `--lustre-dir`.
    pub fn of(p: &Parsed) -> Result<Names, Failure> {
        let given: VecDeque<OsString> = p.operands.iter().cloned().collect();
        let listed = p.has("files-from") || p.has("null");
        if p.has("fid") != p.has("lustre-dir") {
            return Err(Failure::usage("--fid and --lustre-dir go together"));
        }
        match (listed, given.is_empty()) {
            (true, false) => Err(Failure::usage("a list of files and files as arguments exclude each other")),
            (true, true) if p.has("fid") => Err(Failure::usage("FIDs are arguments")),
            (true, true) => Names::listed(p.value("files-from"), p.has("null")),
            (false, true) => Err(Failure::usage("no file given")),
            (false, false) if p.has("fid") => {
                let mount = local::mount_point(Path::new(p.value("lustre-dir").unwrap_or_default()))?;
                Ok(Names(Source::Fids { mount, fids: given }))
            }
            (false, false) => Ok(Names::given(given)),
        }
    }

    pub fn given(all: impl IntoIterator<Item = OsString>) -> Names {
        Names(Source::Given(all.into_iter().collect()))
    }

    /// Of a file; `-` or nothing: of standard input. `null`: a zero byte is behind each name, not the end of
    /// a line.
    pub fn listed(file: Option<&str>, null: bool) -> Result<Names, Failure> {
        let end = if null { 0 } else { b'\n' };
        let (from, shown): (Box<dyn BufRead>, _) = match file {
            None | Some("-") => (Box::new(BufReader::new(std::io::stdin())), "standard input".to_string()),
            Some(f) => {
                let from = files::reader(f).map_err(|e| Failure::io("cannot open", f, e))?;
                (from, f.to_string())
            }
        };
        Ok(Names(Source::List { from: Some(from), end, shown }))
    }
}

impl Iterator for Names {
    type Item = Result<PathBuf, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Source::Given(all) => all.pop_front().map(|n| Ok(PathBuf::from(n))),
            Source::Fids { mount, fids } => fids.pop_front().map(|fid| of_fid(mount, &fid)),
            Source::List { from, end, shown } => loop {
                let name = match one_name(from.as_mut()?, *end) {
                    Ok(name) => name,
                    Err(errno) => {
                        *from = None;
                        return Some(Err(Failure::op("cannot read names from", shown, errno)));
                    }
                };
                match name {
                    None => return None,
                    Some(n) if n.is_empty() => {}
                    Some(n) => return Some(Ok(PathBuf::from(OsStr::from_bytes(&n)))),
                }
            },
        }
    }
}

/// The next name without what ends it; `None` at the end.
fn one_name(from: &mut dyn BufRead, end: u8) -> Result<Option<Vec<u8>>, Errno> {
    let mut name = Vec::new();
    let n = from.take(NAME_MAX_BYTES).read_until(end, &mut name).map_err(Errno::from)?;
    if n == 0 {
        return Ok(None);
    }
    if name.last() == Some(&end) {
        name.pop();
    } else if n as u64 == NAME_MAX_BYTES {
        return Err(Errno::ENAMETOOLONG);
    }
    Ok(Some(name))
}

fn of_fid(mount: &Path, text: &OsStr) -> Result<PathBuf, Failure> {
    let shown = local::show(text);
    let fid: Fid = shown.parse().map_err(|_| Failure::usage(format!("bad FID '{shown}'")))?;
    fid2path::first(mount, fid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], end: u8) -> Vec<Vec<u8>> {
        let from: Box<dyn BufRead> = Box::new(std::io::Cursor::new(text.to_vec()));
        let list = Names(Source::List { from: Some(from), end, shown: "x".into() });
        list.map(|n| n.unwrap().as_os_str().as_bytes().to_vec()).collect()
    }

    #[test]
    fn names_of_a_list_end_with_lines_or_with_zero_bytes() {
        assert_eq!(read(b"a b\n\n\xff/c\nlast", b'\n'), [&b"a b"[..], b"\xff/c", b"last"]);
        assert_eq!(read(b"a\nb\0c\0", 0), [&b"a\nb"[..], b"c"]);
        assert!(read(b"", 0).is_empty());
    }

    #[test]
    fn a_name_without_an_end_is_an_error_and_no_memory() {
        let from: Box<dyn BufRead> = Box::new(BufReader::new(std::io::repeat(b'a')));
        let mut list = Names(Source::List { from: Some(from), end: 0, shown: "x".into() });
        let f = list.next().unwrap().unwrap_err();
        assert_eq!(f.exit_code(), Errno::ENAMETOOLONG.0);
        assert!(list.next().is_none());
    }
}
