//! Who may use the console: tokens, of which only digests are kept, in a file of its owner's.

use model::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use world::sys::files;

/// Of the file: readers refuse another.
const FORMAT: u32 = 1;
/// Tokens at a time, and bytes of the name of one.
const TOKENS_MAX: usize = 64;
const NAME_MAX_BYTES: usize = 64;
/// Of the file.
const FILE_MAX_BYTES: u64 = 64 << 10;
/// What a token begins with, so that one that lies about is known for what it is.
const PREFIX: &str = "nacre_";

/// What somebody may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sees everything.
    Viewer,
    /// Changes something as well.
    Operator,
}

impl Role {
    pub fn word(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
        }
    }

    pub fn parse(text: &str) -> Option<Role> {
        [Role::Viewer, Role::Operator].into_iter().find(|r| r.word() == text)
    }
}

/// SHA-256 of a token. Tokens have 256 random bits, so nobody finds one by trying, and a slow digest would
/// gain nothing.
pub type Sum = [u8; 32];

pub fn sum(secret: &str) -> Sum {
    Sha256::digest(secret.as_bytes()).into()
}

/// One token, without itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub name: String,
    pub role: Role,
    /// Of the token, in hex.
    sha256: String,
    /// Seconds since 1970.
    pub added: i64,
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    tokens: Vec<Entry>,
}

/// The file with the tokens. Read anew at each question: a token that was removed is of no use from then on.
#[derive(Clone, Debug)]
pub struct Tokens {
    file: PathBuf,
}

/// Letters, digits, `-`, `_`, `.` and `@`: it stands in the audit and in commands.
fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if name.is_empty() || name.len() > NAME_MAX_BYTES || !name.chars().all(fits) {
        return Err(format!("'{name}' is no name of a token: 1 to {NAME_MAX_BYTES} of A-Z a-z 0-9 - _ . @"));
    }
    Ok(())
}

impl Tokens {
    /// Those of a console that keeps its state in `folder`.
    pub fn of(folder: &Path) -> Tokens {
        Tokens { file: folder.join("tokens.json") }
    }

    /// All of them; none if there is no file. The error is a sentence.
    pub fn all(&self) -> Result<Vec<Entry>, String> {
        let shown = self.file.display();
        let s = match files::stat(&self.file, true) {
            Ok(s) => s,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(format!("cannot look at '{shown}': {e}")),
        };
        if s.mode & 0o077 != 0 {
            let mode = s.mode & 0o7777;
            return Err(format!("'{shown}' has mode {mode:04o}: others may use it: chmod 600 {shown}"));
        }
        if s.size > FILE_MAX_BYTES {
            return Err(format!("'{shown}' has {} bytes, and {FILE_MAX_BYTES} are possible", s.size));
        }
        let text = files::read(&self.file).map_err(|e| format!("cannot read '{shown}': {e}"))?;
        let d: Document = serde_json::from_slice(&text).map_err(|e| format!("'{shown}' is damaged: {e}"))?;
        if d.format != FORMAT {
            let found = d.format;
            return Err(format!("'{shown}' has format {found}, and this program reads {FORMAT}"));
        }
        Ok(d.tokens)
    }

    /// Whose a secret is.
    pub fn find(&self, of: &Sum) -> Result<Option<Entry>, String> {
        let wanted = hex(of);
        // Digests are compared, of which who asks cannot choose the bytes: time tells nothing.
        Ok(self.all()?.into_iter().find(|e| e.sha256 == wanted))
    }

    fn save(&self, tokens: Vec<Entry>) -> Result<(), String> {
        assert!(tokens.len() <= TOKENS_MAX, "bounded before");
        let failed = |e: std::io::Error| format!("cannot write '{}': {e}", self.file.display());
        if let Some(folder) = self.file.parent() {
            files::create_private_dir(folder).map_err(failed)?;
        }
        let text = serde_json::to_string_pretty(&Document { format: FORMAT, tokens }).expect("plain data");
        files::replace_private(&self.file, format!("{text}\n").as_bytes()).map_err(failed)
    }

    /// Makes one; it is told this once. `key`: random bytes.
    pub fn add(&self, name: &str, role: Role, key: &[u8; 32], now: i64) -> Result<String, String> {
        check_name(name)?;
        let mut all = self.all()?;
        if all.iter().any(|e| e.name == name) {
            return Err(format!("there is a token '{name}': nacre dashboard token remove {name}"));
        }
        if all.len() >= TOKENS_MAX {
            return Err(format!("there are {TOKENS_MAX} tokens already: remove one"));
        }
        let secret = format!("{PREFIX}{}", hex(key));
        assert!(secret.len() == PREFIX.len() + 2 * key.len(), "all of the key is in it");
        all.push(Entry { name: name.into(), role, sha256: hex(&sum(&secret)), added: now });
        self.save(all)?;
        Ok(secret)
    }

    pub fn remove(&self, name: &str) -> Result<(), String> {
        let mut all = self.all()?;
        let before = all.len();
        all.retain(|e| e.name != name);
        if all.len() == before {
            return Err(format!("there is no token '{name}': see nacre dashboard token list"));
        }
        self.save(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Scratch;

    #[test]
    fn tokens_are_told_once_and_only_their_digests_are_kept() {
        let dir = Scratch::new("tokens");
        let t = Tokens::of(dir.path());
        assert!(t.all().unwrap().is_empty());
        let secret = t.add("ann", Role::Operator, &[7; 32], 5).unwrap();
        t.add("bob", Role::Viewer, &[8; 32], 6).unwrap();
        let file = dir.path().join("tokens.json");
        let text = files::read_to_string(&file).unwrap();
        assert!(!text.contains(&secret) && !text.contains(&secret[PREFIX.len()..]), "{text}");
        assert_eq!(files::stat(&file, true).unwrap().mode & 0o777, 0o600);
        let found = t.find(&sum(&secret)).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.role), ("ann", Role::Operator));
        assert_eq!(t.find(&sum("nacre_00")).unwrap(), None);
        assert!(t.add("ann", Role::Viewer, &[9; 32], 7).unwrap_err().contains("there is a token 'ann'"));
        t.remove("ann").unwrap();
        assert_eq!(t.find(&sum(&secret)).unwrap(), None);
        assert!(t.remove("ann").is_err());
    }

    #[test]
    fn names_are_plain_words_and_their_number_has_a_bound() {
        let dir = Scratch::new("names");
        let t = Tokens::of(dir.path());
        for bad in ["", "a b", "<b>", "x\n", &"x".repeat(NAME_MAX_BYTES + 1)] {
            assert!(t.add(bad, Role::Viewer, &[1; 32], 0).is_err(), "{bad}");
        }
        for n in 0..TOKENS_MAX {
            t.add(&format!("n{n}"), Role::Viewer, &[n as u8; 32], 0).unwrap();
        }
        assert!(t.add("more", Role::Viewer, &[255; 32], 0).unwrap_err().contains("64 tokens already"));
    }

    #[test]
    fn a_file_that_others_may_read_or_that_is_damaged_lets_nobody_in() {
        let dir = Scratch::new("damaged");
        let t = Tokens::of(dir.path());
        let file = dir.path().join("tokens.json");
        files::replace(&file, b"{}").unwrap();
        let said = t.all().unwrap_err();
        assert!(said.contains("chmod 600") || said.contains("damaged"), "{said}");
        for bad in ["{}", "{\"format\": 2, \"tokens\": []}", "rubbish"] {
            files::replace_private(&file, bad.as_bytes()).unwrap();
            assert!(t.all().is_err(), "{bad}");
        }
    }
}
