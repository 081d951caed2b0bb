//! A whole question to `lfs find`.

use super::candidate::{Candidate, Stage, Time};
use super::format::Format;
use super::layout::{self, ComponentTest, LayoutTest};
use super::options::{self, Given};
use super::predicate::{self, Attributes, Predicate, XattrTest};
use super::range::Range;
use super::{mode, moment};
use crate::failure::Failure;
use crate::names;
use crate::size::parse_index_list;
use crate::walk::{Directory, THREADS_MAX};
use client::control::OfObjects;
use model::FileType;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wire::msg::scan::{self, Test};
use world::sys::walk::{self, FullStat};

/// How what is found is printed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Output {
    #[default]
    Lines,
    Zeros,
    Format(Format),
    Json,
}

/// One predicate of a question.
#[derive(Debug)]
struct Rule {
    negated: bool,
    predicate: Predicate,
}

/// Predicates, all of which must hold, and what to do with what is found.
#[derive(Debug, Default)]
pub struct Query {
    rules: Vec<Rule>,
    components: Vec<(bool, ComponentTest)>,
    pub max_depth: u32,
    pub min_depth: u32,
    pub output: Output,
    /// Of a hundred files that fit so many are left out.
    pub skip: u32,
    pub threads: Option<usize>,
    /// Sizes and times may be as this host keeps them.
    pub lazy: bool,
    /// Whether the metadata server's inodes are looked through instead of directories; `None`: if that is
    /// less to do.
    pub index: Option<bool>,
    now: i64,
}

/// The name of `-newerXY` for its two letters: X is the file's time, Y that of the other, or `t` for a time
/// that is written out.
pub fn newer_name(letters: &str) -> Option<&'static str> {
    const NAMES: [&str; 20] = [
        "neweraa", "neweram", "newerac", "neweraB", "newerat", "newerma", "newermm", "newermc", "newermB",
        "newermt", "newerca", "newercm", "newercc", "newercB", "newerct", "newerBa", "newerBm", "newerBc",
        "newerBB", "newerBt",
    ];
    let letters = letters.replace('b', "B");
    NAMES.iter().find(|n| n[5..] == letters).copied()
}

fn time_of(letter: char) -> Time {
    match letter {
        'a' => Time::Access,
        'c' => Time::Change,
        'B' => Time::Birth,
        _ => Time::Modify,
    }
}

/// `-newer` and its kin: letters X and Y, and the file or time to compare with.
fn newer(name: &str, g: &Given) -> Result<Predicate, Failure> {
    let (x, y) = match name {
        "newer" => ('m', 'm'),
        "anewer" => ('a', 'm'),
        "cnewer" => ('c', 'm'),
        _ => {
            let mut letters = name.chars().skip(5);
            (letters.next().unwrap_or('m'), letters.next().unwrap_or('m'))
        }
    };
    if y == 't' {
        return Ok(Predicate::Newer(time_of(x), (moment::parse(g.text()?)?, 0)));
    }
    let path = PathBuf::from(g.value.clone().unwrap_or_default());
    let shown = path.display().to_string();
    let s = walk::times(&path).map_err(|e| Failure::io("cannot stat", &shown, e))?;
    let unknown = || {
        Failure::explained("cannot compare with", &shown, model::Errno::ENODATA, "it has no time of birth")
    };
    Ok(Predicate::Newer(time_of(x), pick(&s, time_of(y)).ok_or_else(unknown)?))
}

fn pick(s: &FullStat, which: Time) -> Option<(i64, u32)> {
    match which {
        Time::Access => Some(s.atime),
        Time::Modify => Some(s.mtime),
        Time::Change => Some(s.ctime),
        Time::Birth => s.btime,
    }
}

/// A user or group, by name or number; numbers may have a sign.
fn id(s: &str, find: fn(&str) -> Option<u32>, what: &str) -> Result<Range, Failure> {
    match Range::of_count(s) {
        Ok(r) => Ok(r),
        Err(_) => {
            let n = find(s).ok_or_else(|| Failure::usage(format!("unknown {what} '{s}'")))?;
            Range::of_count(&n.to_string())
        }
    }
}

fn number(g: &Given, max: u32) -> Result<u32, Failure> {
    let s = g.text()?;
    let n = s.parse::<u32>().ok().filter(|n| *n <= max);
    n.ok_or_else(|| Failure::usage(format!("bad number '{s}' of '{}': 0 to {max}", g.word)))
}

impl Query {
    /// Start paths and the question. Wrong usage is refused by name.
    pub fn parse(args: &[OsString]) -> Result<(Vec<PathBuf>, Query), Failure> {
        let (roots, given) = options::read(args)?;
        let mut q = Query { max_depth: u32::MAX, now: world::sys::wall_seconds(), ..Query::default() };
        for g in &given {
            if let Some(predicate) = q.predicate(g)? {
                q.rules.push(Rule { negated: g.negated, predicate });
            }
        }
        if !q.components.is_empty() {
            let all = std::mem::take(&mut q.components);
            let predicate = Predicate::Layout(LayoutTest::Component(all));
            q.rules.push(Rule { negated: false, predicate });
        }
        Ok((roots, q))
    }

    /// The predicate that was given; `None` if it was something else, which is taken note of.
    fn predicate(&mut self, g: &Given) -> Result<Option<Predicate>, Failure> {
        let lay = |t| Ok(Some(Predicate::Layout(t)));
        Ok(Some(match g.name {
            "name" => Predicate::Name(g.value.clone().unwrap_or_default().as_bytes().to_vec()),
            "type" => Predicate::Type(predicate::types(g.text()?)?),
            "size" => Predicate::Size(Range::of_size(g.text()?)?),
            "blocks" => Predicate::Blocks(Range::of_size(g.text()?)?),
            "atime" => Predicate::Age(Time::Access, Range::of_age(g.text()?)?),
            "mtime" => Predicate::Age(Time::Modify, Range::of_age(g.text()?)?),
            "ctime" => Predicate::Age(Time::Change, Range::of_age(g.text()?)?),
            "btime" => Predicate::Age(Time::Birth, Range::of_age(g.text()?)?),
            "user" | "uid" => Predicate::Uid(id(g.text()?, names::uid, "user")?),
            "group" | "gid" => Predicate::Gid(id(g.text()?, names::gid, "group")?),
            "projid" => Predicate::Project(id(g.text()?, names::project, "project")?),
            "perm" => {
                let (how, bits) = mode::parse(g.text()?)?;
                Predicate::Perm(how, bits)
            }
            "links" => Predicate::Links(Range::of_count(g.text()?)?),
            "attrs" => Predicate::Attributes(Attributes::parse(g.text()?)?),
            "xattr" => Predicate::Xattr(XattrTest::parse(g.text()?)?),
            "mdt" => Predicate::Mdt(parse_index_list(g.text()?)?),
            "mdt-count" => Predicate::MdtCount(Range::of_count(g.text()?)?),
            "mdt-hash" => predicate::dir_hash(g.text()?)?,
            "foreign" => Predicate::Nothing,
            "extension-size" => return lay(LayoutTest::ExtensionSize(Range::of_size(g.text()?)?)),
            "stripe-count" => return lay(LayoutTest::StripeCount(Range::of_count(g.text()?)?)),
            "stripe-size" => return lay(LayoutTest::StripeSize(Range::of_stripe_size(g.text()?)?)),
            "stripe-index" => return lay(LayoutTest::StripeIndex(parse_index_list(g.text()?)?)),
            "ost" => return lay(LayoutTest::Ost(parse_index_list(g.text()?)?)),
            "layout" => return lay(LayoutTest::Layout(layout::patterns(g.text()?)?)),
            "pool" => return lay(LayoutTest::Pool(g.text()?.as_bytes().to_vec())),
            "component-count" => return lay(LayoutTest::ComponentCount(Range::of_count(g.text()?)?)),
            "mirror-count" => return lay(LayoutTest::MirrorCount(Range::of_count(g.text()?)?)),
            "mirror-state" => return lay(layout::mirror_state(g.text()?)?),
            name if name.contains("newer") => newer(name, g)?,
            _ => return self.other(g),
        }))
    }

    fn other(&mut self, g: &Given) -> Result<Option<Predicate>, Failure> {
        let component = match g.name {
            "component-start" => Some(ComponentTest::Start(Range::of_bytes(g.text()?)?)),
            "component-end" => Some(ComponentTest::End(Range::of_end(g.text()?)?)),
            "component-flags" => Some(layout::flags(g.text()?)?),
            _ => None,
        };
        if let Some(c) = component {
            self.components.push((g.negated, c));
            return Ok(None);
        }
        if g.negated {
            return Err(Failure::usage(format!("'!' cannot negate '{}'", g.word)));
        }
        match g.name {
            "maxdepth" => self.max_depth = number(g, u32::MAX)?,
            "mindepth" => self.min_depth = number(g, u32::MAX)?,
            "skip" => self.skip = number(g, 100)?,
            "threads" => {
                let n = number(g, THREADS_MAX as u32)?;
                if n == 0 {
                    return Err(Failure::usage(format!("'{}' needs at least one", g.word)));
                }
                self.threads = Some(n as usize);
            }
            "lazy" => self.lazy = true,
            "index" => self.index = Some(true),
            "no-index" => self.index = Some(false),
            "printf" => self.output = Output::Format(Format::parse(g.text()?)?),
            "print0" => self.output = Output::Zeros,
            "ls" => self.output = Output::Format(Format::long()),
            "json" => self.output = Output::Json,
            "print" => self.output = Output::Lines,
            other => unreachable!("option '{other}' of the table is read somewhere"),
        }
        Ok(None)
    }

    /// Whether the predicates of this stage hold. Fails if the file had to be asked and could not be.
    pub fn fits(&self, stage: Stage, c: &Candidate, dir: &dyn Directory) -> Result<bool, Failure> {
        for r in self.rules.iter().filter(|r| r.predicate.stage(c.kind()) == stage) {
            if r.predicate.fits(c, dir, self.now)? == r.negated {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What must be known of a file of this type in the end.
    pub fn stage(&self, kind: FileType) -> Stage {
        let output = match &self.output {
            Output::Lines | Output::Zeros => Stage::Name,
            Output::Format(f) => f.stage(kind),
            Output::Json => Stage::Objects,
        };
        self.rules.iter().map(|r| r.predicate.stage(kind)).max().unwrap_or(Stage::Name).max(output)
    }

    /// What must be known of regular files that only their objects know.
    pub fn wanted_of_objects(&self) -> Option<OfObjects> {
        let is_space = |r: &Rule| matches!(r.predicate, Predicate::Blocks(_));
        let shows_space = !matches!(self.output, Output::Lines | Output::Zeros);
        match self.stage(FileType::Regular) {
            Stage::Objects if shows_space || self.rules.iter().any(is_space) => Some(OfObjects::Space),
            Stage::Objects => Some(OfObjects::Sizes),
            _ => None,
        }
    }

    /// Whether directories are asked for their default layouts.
    pub fn needs_defaults(&self) -> bool {
        let asks = |r: &Rule| matches!(&r.predicate, Predicate::Layout(t) if t.concerns_directories());
        self.rules.iter().any(asks) || matches!(&self.output, Output::Format(f) if f.shows_defaults())
    }

    /// Whether names may leave few files of a directory.
    pub fn picks_names(&self) -> bool {
        self.rules.iter().any(|r| r.predicate.picks_names())
    }

    /// The OSTs of which a file must have one, if the query says so: the metadata servers have an index by
    /// them.
    pub fn osts(&self) -> Option<&[u16]> {
        self.rules.iter().filter(|r| !r.negated).find_map(|r| match &r.predicate {
            Predicate::Layout(LayoutTest::Ost(list)) => Some(list.as_slice()),
            _ => None,
        })
    }

    /// What inodes exclude of this question: none that fits is without one of these.
    pub fn tests(&self) -> Vec<Test> {
        let all = self.rules.iter().filter_map(|r| r.predicate.test(r.negated, self.now));
        all.take(scan::TESTS_MAX).collect()
    }

    /// Whether inodes alone leave few files, as far as can be known before. Types are as well known to who
    /// lists names.
    pub fn excludes_inodes(&self) -> bool {
        let excludes = |r: &Rule| {
            !matches!(r.predicate, Predicate::Type(_)) && r.predicate.test(r.negated, self.now).is_some()
        };
        self.rules.iter().any(excludes)
    }

    /// Whether a path of that index says everything: nothing needs a look at the file, which may have to wait
    /// for an OST.
    pub fn needs_no_look(&self) -> bool {
        let is_ost = |r: &&Rule| matches!(&r.predicate, Predicate::Layout(LayoutTest::Ost(_)));
        let plain = |r: &Rule| matches!(&r.predicate, Predicate::Name(_) | Predicate::Mdt(_)) || is_ost(&r);
        let lines = matches!(self.output, Output::Lines | Output::Zeros);
        self.rules.iter().filter(is_ost).count() == 1
            && self.rules.iter().all(plain)
            && lines
            && self.skip == 0
    }

    /// [`Query::fits`] of a file of the index, for a query that needs no look.
    pub fn fits_indexed(&self, path: &Path) -> bool {
        self.rules.iter().all(|r| match &r.predicate {
            Predicate::Name(g) => {
                let name = path.file_name().unwrap_or(path.as_os_str());
                crate::glob::matches(g, name.as_bytes()) != r.negated
            }
            Predicate::Mdt(list) => list.contains(&0) != r.negated,
            _ => true,
        })
    }
}
