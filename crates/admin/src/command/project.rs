//! `lfs project`: which project files belong to, and whether what is made in a directory belongs to its
//! project.

use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Parsed, flag, value};
use crate::local::{self, ask_about, strange};
use crate::{names, output, say};
use client::control::{Inode, Reply, Request};
use model::inode_rules::FLAG_PROJINHERIT;
use model::{Errno, FileType};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use world::sys::files;

pub const USAGE: &str = "[-d|-r] [--json] PATH...\n       lfs project -p ID [-s] [-r] PATH...\n       lfs project -C [-k] [-r] PATH...\n       lfs project -c [-0] [-d|-r] [-p ID] PATH...";

/// What is done to each file.
enum Work {
    List,
    Set {
        projid: Option<u32>,
        inherit: bool,
    },
    /// `keep`: the project stays, only nothing inherits it any more.
    Clear {
        keep: bool,
    },
    /// `projid`: `None` is the project of the path that was given.
    Check {
        projid: Option<u32>,
        zero: bool,
    },
}

struct Run<'a> {
    work: Work,
    p: &'a Parsed,
    rows: Vec<Value>,
    errors: FirstError,
}

fn inode_of(path: &Path) -> Result<Inode, Failure> {
    local::inode_of(path, "cannot get the project of")
}

fn set(path: &Path, projid: Option<u32>, inherit: Option<bool>) -> Result<(), Failure> {
    let make = |name| Request::SetProject { name, projid, inherit };
    match ask_about(path, "cannot set the project of", make)? {
        Reply::Done => Ok(()),
        other => Err(strange(path, &other)),
    }
}

fn inherits(i: &Inode) -> bool {
    i.attr.flags & FLAG_PROJINHERIT != 0
}

impl Run<'_> {
    fn one(&mut self, path: &Path, is_dir: bool, given: u32) -> Result<(), Failure> {
        match self.work {
            Work::List => {
                let i = inode_of(path)?;
                let shown = local::show(path.as_os_str());
                if self.p.has("json") {
                    self.rows.push(json!({"path": shown, "projid": i.attr.projid, "inherits": inherits(&i)}));
                } else {
                    say!("{:>5} {} {shown}", i.attr.projid, if inherits(&i) { 'P' } else { '-' });
                }
                Ok(())
            }
            Work::Set { projid, inherit } => set(path, projid, (inherit && is_dir).then_some(true)),
            Work::Clear { keep } => set(path, (!keep).then_some(0), is_dir.then_some(false)),
            Work::Check { projid, zero } => {
                let i = inode_of(path)?;
                self.check(path, &i, projid.unwrap_or(given), zero);
                Ok(())
            }
        }
    }

    fn check(&mut self, path: &Path, i: &Inode, want: u32, zero: bool) {
        let other = i.attr.projid != want;
        let lacks = i.attr.kind == FileType::Directory && !inherits(i);
        let shown = local::show(path.as_os_str());
        if self.p.has("json") {
            if other || lacks {
                self.rows.push(json!({"path": shown, "projid": i.attr.projid, "want": want,
                                      "inherits": inherits(i)}));
            }
        } else if zero {
            if other || lacks {
                output::bytes(path.as_os_str().as_bytes());
                output::bytes(b"\0");
            }
        } else {
            if other {
                say!("{shown} - project identifier is not set (inode={}, tree={want})", i.attr.projid);
            }
            if lacks {
                say!("{shown} - project inheritance flag is not set");
            }
        }
    }

    /// The path itself, and what lies below: of a list and a check the entries of a directory, with `-r`
    /// everything, with `-d` nothing.
    fn walk(&mut self, top: &Path) -> Result<(), Failure> {
        let given = inode_of(top)?;
        let (recursive, itself) = (self.p.has("recursive"), self.p.has("directory"));
        let looks = matches!(self.work, Work::List | Work::Check { .. });
        let is_dir = given.attr.kind == FileType::Directory;
        let below = is_dir && !itself && (recursive || looks);
        let list_only_entries = matches!(self.work, Work::List) && below && !recursive;
        if !list_only_entries {
            self.one(top, is_dir, given.attr.projid)?;
        }
        if !below {
            return Ok(());
        }
        // Deep trees take no stack.
        let mut left = vec![top.to_path_buf()];
        while let Some(dir) = left.pop() {
            let shown = dir.display().to_string();
            let entries = files::list_raw(&dir).map_err(|e| Failure::io("cannot list", &shown, e))?;
            for name in entries {
                let path: PathBuf = dir.join(&name);
                let is_dir = files::stat(&path, false).is_ok_and(|s| s.is_dir());
                if let Err(f) = self.one(&path, is_dir, given.attr.projid) {
                    self.errors.report("lfs project", &f);
                } else if recursive && is_dir {
                    left.push(path);
                }
            }
        }
        Ok(())
    }
}

fn work_of(p: &Parsed) -> Result<Work, Failure> {
    let unknown = |s: &str| Failure::op("unknown project", s, Errno::ENOENT);
    let projid = p.value("project").map(|s| names::project(s).ok_or_else(|| unknown(s))).transpose()?;
    let (check, clear, inherit) = (p.has("check"), p.has("clear"), p.has("inherit"));
    if [p.has("keep") && !clear, p.has("null") && !check, clear && (check || projid.is_some() || inherit)]
        .contains(&true)
    {
        return Err(Failure::usage("these options do not go together"));
    }
    Ok(match (check, clear) {
        (true, _) => Work::Check { projid, zero: p.has("null") },
        (_, true) => Work::Clear { keep: p.has("keep") },
        _ if projid.is_some() || inherit => Work::Set { projid, inherit },
        _ => Work::List,
    })
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let opts = [
        flag('d', "directory"),
        flag('r', "recursive"),
        value('p', "project"),
        flag('s', "inherit"),
        flag('C', "clear"),
        flag('k', "keep"),
        flag('c', "check"),
        flag('0', "null"),
        flag('\0', "json"),
    ];
    let p = getopt::parse(args, &opts)?;
    if p.operands.is_empty() {
        return Err(Failure::usage("no path given"));
    }
    if p.has("directory") && p.has("recursive") {
        return Err(Failure::usage("only one of -d and -r"));
    }
    let mut run = Run { work: work_of(&p)?, p: &p, rows: Vec::new(), errors: FirstError::default() };
    for o in &p.operands {
        if let Err(f) = run.walk(Path::new(o)) {
            run.errors.report("lfs project", &f);
        }
    }
    if p.has("json") {
        output::json(&json!(run.rows));
    }
    Ok(run.errors)
}
