//! Permission bits, as `-perm` takes them and `%M` shows them.

use crate::failure::Failure;
use model::FileType;

/// How bits of a mode are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    Exactly,
    /// `-MODE`: all of these.
    All,
    /// `/MODE`: any of these, or there are none.
    Any,
}

/// Reads `[/-]MODE`, octal or symbolic (`u+w,g=rx`), which begins from no bits.
pub fn parse(s: &str) -> Result<(Compare, u32), Failure> {
    let (how, mode) = match s.chars().next() {
        Some('/') => (Compare::Any, &s[1..]),
        Some('-') => (Compare::All, &s[1..]),
        _ => (Compare::Exactly, s),
    };
    let octal = mode.bytes().all(|c| c.is_ascii_digit()) && !mode.is_empty();
    let bits = if octal {
        u32::from_str_radix(mode, 8).ok().filter(|m| *m <= 0o7777)
    } else {
        mode.split(',').try_fold(0, clause)
    };
    let bad = || Failure::usage(format!("bad mode '{s}': expected octal digits, or for example u+w,g=rx"));
    bits.map(|b| (how, b)).ok_or_else(bad)
}

/// One `[ugoa...][+-=][rwxXstugo...]`, perhaps with several operators, applied to a mode.
fn clause(mut mode: u32, s: &str) -> Option<u32> {
    let letters = s.len() - s.trim_start_matches(['u', 'g', 'o', 'a']).len();
    let of = |c| match c {
        'u' => 0o4700,
        'g' => 0o2070,
        'o' => 0o1007,
        _ => 0o7777,
    };
    let who = if letters == 0 { 0o7777 } else { s[..letters].chars().fold(0, |m, c| m | of(c)) };
    let mut rest = &s[letters..];
    if rest.is_empty() {
        return None;
    }
    while let Some(op) = rest.chars().next() {
        if !matches!(op, '+' | '-' | '=') {
            return None;
        }
        let behind = &rest[1..];
        let end = behind.find(['+', '-', '=']).unwrap_or(behind.len());
        let bits = behind[..end].chars().try_fold(0, |b, c| Some(b | permission(c, mode)?))? & who;
        mode = match op {
            '+' => mode | bits,
            '-' => mode & !bits,
            _ => mode & !(who & 0o777) | bits,
        };
        rest = &behind[end..];
    }
    Some(mode)
}

/// The bits that one letter stands for, for everybody.
fn permission(c: char, mode: u32) -> Option<u32> {
    let copied = |shift: u32| (mode >> shift & 7) * 0o111;
    Some(match c {
        'r' => 0o444,
        'w' => 0o222,
        'x' => 0o111,
        'X' => {
            if mode & 0o111 != 0 {
                0o111
            } else {
                0
            }
        }
        's' => 0o6000,
        't' => 0o1000,
        'u' => copied(6),
        'g' => copied(3),
        'o' => copied(0),
        _ => return None,
    })
}

pub fn fits(how: Compare, bits: u32, mode: u32) -> bool {
    match how {
        Compare::Exactly => mode & 0o7777 == bits,
        Compare::All => mode & bits == bits,
        Compare::Any => bits == 0 || mode & bits != 0,
    }
}

/// The letter of `-type`.
pub fn letter(kind: FileType) -> char {
    match kind {
        FileType::Fifo => 'p',
        FileType::CharDevice => 'c',
        FileType::Directory => 'd',
        FileType::BlockDevice => 'b',
        FileType::Symlink => 'l',
        FileType::Socket => 's',
        FileType::Regular => 'f',
    }
}

/// `-rwxr-xr-x`.
pub fn text(kind: FileType, mode: u32) -> String {
    let mut out = String::from(if kind == FileType::Regular { '-' } else { letter(kind) });
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift & 7;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_in_digits_and_letters() {
        for (s, how, bits) in [
            ("644", Compare::Exactly, 0o644),
            ("-222", Compare::All, 0o222),
            ("/4000", Compare::Any, 0o4000),
            ("u=rwx,g=rx,o=", Compare::Exactly, 0o750),
            ("-u+w,g+w", Compare::All, 0o220),
            ("/u+s,g+s", Compare::Any, 0o6000),
            ("a=rx,u+w", Compare::Exactly, 0o755),
            ("u=rw,g=u", Compare::Exactly, 0o660),
            ("+t", Compare::Exactly, 0o1000),
            ("u=rwx-w+X", Compare::Exactly, 0o500),
            ("-g=w", Compare::All, 0o020),
        ] {
            assert_eq!(parse(s).unwrap(), (how, bits), "{s}");
        }
        for bad in ["", "8", "77777", "u", "rw", "u+q", "x+r", "-", "/"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(fits(Compare::Any, 0o222, 0o644) && !fits(Compare::Any, 0o111, 0o644));
        assert!(fits(Compare::Any, 0, 0) && !fits(Compare::All, 0o222, 0o644));
        assert!(fits(Compare::Exactly, 0o4755, 0o104755) && !fits(Compare::Exactly, 0o755, 0o104755));
    }

    #[test]
    fn modes_are_shown_as_ls_does() {
        assert_eq!(text(FileType::Regular, 0o4755), "-rwsr-xr-x");
        assert_eq!(text(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(text(FileType::Symlink, 0o7000), "l--S--S--T");
    }
}
