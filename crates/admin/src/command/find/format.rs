//! `-printf`: what a line is made of.

use super::candidate::{Candidate, Stage, Time};
use super::predicate::ATTRIBUTES;
use super::{mode, moment};
use crate::failure::Failure;
use crate::names;
use model::FileType;
use model::layout::Pattern;
use std::os::unix::ffi::OsStrExt;

/// One directive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Path,
    Name,
    Directory,
    Depth,
    Size,
    Blocks,
    Kibibytes,
    User,
    Uid,
    Group,
    Gid,
    Mode,
    ModeText,
    Links,
    Inode,
    Type,
    Time(Time),
    Seconds(Time),
    /// The letter behind `%L`.
    Lustre(char),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Text(Vec<u8>),
    Field { field: Field, width: usize, left: bool, zeros: bool },
}

/// A line as `-printf` describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Format(Vec<Piece>);

const WIDTH_MAX: usize = 4096;
const LUSTRE: &str = "cSiopPFhaA";

impl Format {
    /// What `-ls` prints.
    pub fn long() -> Format {
        Format::parse("%i %k %M %n %u %g %s %t %p\\n").expect("it is one")
    }

    /// Unknown directives and escapes are refused by name.
    pub fn parse(s: &str) -> Result<Format, Failure> {
        let mut it = s.chars().peekable();
        let mut out = Vec::new();
        while let Some(c) = it.next() {
            match c {
                '\\' => text(&mut out, &[escape(&mut it)?]),
                '%' if it.next_if_eq(&'%').is_some() => text(&mut out, b"%"),
                '%' => out.push(directive(&mut it)?),
                c => text(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        Ok(Format(out))
    }

    /// What must be known of a file of this type before its line can be printed.
    pub fn stage(&self, kind: FileType) -> Stage {
        let one = |p: &Piece| match p {
            Piece::Text(_) => Stage::Name,
            Piece::Field { field, .. } => field.stage(kind),
        };
        self.0.iter().map(one).max().unwrap_or(Stage::Name)
    }

    /// Whether a directory's default layout is shown.
    pub fn shows_defaults(&self) -> bool {
        let one = |p: &Piece| matches!(p, Piece::Field { field: Field::Lustre('c' | 'S' | 'p'), .. });
        self.0.iter().any(one)
    }

    /// Appends the line.
    pub fn render(&self, c: &Candidate, out: &mut Vec<u8>) {
        for p in &self.0 {
            match p {
                Piece::Text(t) => out.extend_from_slice(t),
                Piece::Field { field, width, left, zeros } => {
                    let text = field.text(c);
                    let pad = width.saturating_sub(text.len());
                    let fill = if *zeros && !left { b'0' } else { b' ' };
                    let before = if *left { 0 } else { pad };
                    out.extend(std::iter::repeat_n(fill, before));
                    out.extend_from_slice(&text);
                    out.extend(std::iter::repeat_n(b' ', pad - before));
                }
            }
        }
    }
}

fn text(out: &mut Vec<Piece>, bytes: &[u8]) {
    match out.last_mut() {
        Some(Piece::Text(t)) => t.extend_from_slice(bytes),
        _ => out.push(Piece::Text(bytes.to_vec())),
    }
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn escape(it: &mut Chars<'_>) -> Result<u8, Failure> {
    let bad = |c: String| Failure::usage(format!("unknown escape '\\{c}' in the format of -printf"));
    Ok(match it.next() {
        Some('a') => 7,
        Some('b') => 8,
        Some('f') => 12,
        Some('n') => b'\n',
        Some('r') => b'\r',
        Some('t') => b'\t',
        Some('v') => 11,
        Some('\\') => b'\\',
        Some(d @ '0'..='7') => {
            let mut n = d as u32 - '0' as u32;
            for _ in 0..2 {
                let Some(d) = it.next_if(|c| ('0'..='7').contains(c)) else { break };
                n = n * 8 + d as u32 - '0' as u32;
            }
            u8::try_from(n).map_err(|_| bad(format!("{n:o}")))?
        }
        c => return Err(bad(c.map_or(String::new(), String::from))),
    })
}

fn directive(it: &mut Chars<'_>) -> Result<Piece, Failure> {
    let (mut left, mut zeros, mut width) = (false, false, 0usize);
    while let Some(c) = it.next_if(|c| matches!(c, '-' | '0')) {
        left |= c == '-';
        zeros |= c == '0';
    }
    while let Some(d) = it.next_if(char::is_ascii_digit) {
        width = width.saturating_mul(10).saturating_add(d as usize - '0' as usize);
    }
    if width > WIDTH_MAX {
        return Err(Failure::usage(format!(
            "a width of {width} in the format of -printf: at most {WIDTH_MAX}"
        )));
    }
    let bad = |c: String| Failure::usage(format!("unknown directive '%{c}' in the format of -printf"));
    let letter = it.next().ok_or_else(|| bad(String::new()))?;
    let mut at = |t| if it.next_if_eq(&'@').is_some() { Some(Field::Seconds(t)) } else { None };
    let field = match letter {
        'p' => Field::Path,
        'f' => Field::Name,
        'h' => Field::Directory,
        'd' => Field::Depth,
        's' => Field::Size,
        'b' => Field::Blocks,
        'k' => Field::Kibibytes,
        'u' => Field::User,
        'U' => Field::Uid,
        'g' => Field::Group,
        'G' => Field::Gid,
        'm' => Field::Mode,
        'M' => Field::ModeText,
        'n' => Field::Links,
        'i' => Field::Inode,
        'y' => Field::Type,
        'a' => Field::Time(Time::Access),
        'c' => Field::Time(Time::Change),
        't' => Field::Time(Time::Modify),
        'w' => Field::Time(Time::Birth),
        'A' => at(Time::Access).ok_or_else(|| bad("A".into()))?,
        'C' => at(Time::Change).ok_or_else(|| bad("C".into()))?,
        'T' => at(Time::Modify).ok_or_else(|| bad("T".into()))?,
        'W' => at(Time::Birth).ok_or_else(|| bad("W".into()))?,
        'L' => match it.next() {
            Some(c) if LUSTRE.contains(c) => Field::Lustre(c),
            c => return Err(bad(format!("L{}", c.map_or(String::new(), String::from)))),
        },
        c => return Err(bad(c.into())),
    };
    Ok(Piece::Field { field, width, left, zeros })
}

impl Field {
    fn stage(self, kind: FileType) -> Stage {
        match self {
            Field::Path | Field::Name | Field::Directory | Field::Depth | Field::Inode | Field::Type => {
                Stage::Name
            }
            Field::Size | Field::Blocks | Field::Kibibytes => Stage::Objects,
            Field::Time(t) | Field::Seconds(t) => t.stage(),
            Field::Lustre('F' | 'h') => Stage::Name,
            Field::Lustre('c' | 'S' | 'p') if kind == FileType::Directory => Stage::Question,
            _ => Stage::Inode,
        }
    }

    fn text(self, c: &Candidate) -> Vec<u8> {
        let attr = || &c.inode().attr;
        match self {
            Field::Path => c.path.as_os_str().as_bytes().to_vec(),
            Field::Name => c.shown_name().to_vec(),
            Field::Directory => c.shown_directory().as_os_str().as_bytes().to_vec(),
            Field::Depth => c.depth.to_string().into(),
            Field::Size => c.size().to_string().into(),
            Field::Blocks => c.blocks().to_string().into(),
            Field::Kibibytes => c.blocks().div_ceil(2).to_string().into(),
            Field::User => names::user(attr().uid).into(),
            Field::Uid => attr().uid.to_string().into(),
            Field::Group => names::group(attr().gid).into(),
            Field::Gid => attr().gid.to_string().into(),
            Field::Mode => format!("{:o}", attr().mode & 0o7777).into(),
            Field::ModeText => mode::text(c.kind(), attr().mode).into(),
            Field::Links => attr().nlink.to_string().into(),
            Field::Inode => c.listed.fid.ino().to_string().into(),
            Field::Type => mode::letter(c.kind()).to_string().into(),
            Field::Time(t) => moment::text(c.time(t).0).into(),
            Field::Seconds(t) => c.time(t).0.to_string().into(),
            Field::Lustre(letter) => lustre(letter, c).into(),
        }
    }
}

/// Directives of layouts. Of a directory count, size and pool are its default's, and indices those of
/// metadata targets; what a file does not have is nothing.
fn lustre(letter: char, c: &Candidate) -> String {
    match letter {
        'F' => return c.listed.fid.to_string(),
        'P' => return c.inode().attr.projid.to_string(),
        'h' => return if c.is_dir() { "none".into() } else { String::new() },
        'a' | 'A' => return attributes(c.inode().attr.flags, letter == 'A'),
        _ => {}
    }
    if c.is_dir() {
        let d = c.defaults.as_ref().and_then(|s| s.default.as_ref());
        return match letter {
            'c' => d.map_or(0, |d| d.stripe_count).to_string(),
            'S' => d.map_or(0, |d| d.stripe_size).to_string(),
            'p' => d.map_or(String::new(), |d| d.pool.clone()),
            _ => "0".into(),
        };
    }
    let Some((layout, main)) = c.layout().zip(c.component()) else { return String::new() };
    match letter {
        'c' => main.objects.len().to_string(),
        'S' => main.stripe_size.to_string(),
        'i' if main.pattern == Pattern::Mdt => "0".into(),
        'i' => main.objects.first().map_or(-1, |o| i32::from(o.ost)).to_string(),
        'o' => layout.objects().map(|o| o.ost.to_string()).collect::<Vec<_>>().join(","),
        _ => main.pool.clone(),
    }
}

/// `i,d`, or in words; `---` for none.
fn attributes(flags: u32, words: bool) -> String {
    let of =
        |(name, letter, _): &(&str, char, u32)| if words { (*name).to_string() } else { letter.to_string() };
    let all: Vec<String> = ATTRIBUTES.iter().filter(|(.., bit)| flags & bit != 0).map(of).collect();
    if all.is_empty() { "---".into() } else { all.join(",") }
}
