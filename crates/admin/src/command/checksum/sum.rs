//! Checksums that other programs keep with their files, computed block by block.

use sha2::Digest;
use std::fmt::Write;

/// How a file is summed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChecksumKind {
    Adler32,
    Crc32c,
    Md5,
    Sha256,
}

impl ChecksumKind {
    pub const ALL: [ChecksumKind; 4] =
        [ChecksumKind::Adler32, ChecksumKind::Crc32c, ChecksumKind::Md5, ChecksumKind::Sha256];

    pub fn name(self) -> &'static str {
        match self {
            ChecksumKind::Adler32 => "adler32",
            ChecksumKind::Crc32c => "crc32c",
            ChecksumKind::Md5 => "md5",
            ChecksumKind::Sha256 => "sha256",
        }
    }

    pub fn parse(name: &str) -> Option<ChecksumKind> {
        ChecksumKind::ALL.into_iter().find(|k| k.name().eq_ignore_ascii_case(name))
    }

    /// By the last part of an attribute's name: `user.storm.checksum.adler32`.
    pub fn of_attribute(name: &str) -> Option<ChecksumKind> {
        ChecksumKind::parse(name.rsplit('.').next().unwrap_or_default())
    }

    /// Hexadecimal digits of a sum.
    fn digits(self) -> usize {
        match self {
            ChecksumKind::Adler32 | ChecksumKind::Crc32c => 8,
            ChecksumKind::Md5 => 32,
            ChecksumKind::Sha256 => 64,
        }
    }

    /// A sum as some program kept it: in small letters, with all its leading zeros. `None`: it is none.
    pub fn read(self, kept: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(kept).ok()?.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        let fits = !text.is_empty() && text.len() <= self.digits();
        let is_hex = text.bytes().all(|c| c.is_ascii_hexdigit());
        let pad = self.digits().saturating_sub(text.len());
        (fits && is_hex).then(|| "0".repeat(pad) + &text.to_ascii_lowercase())
    }
}

/// The sum of what came so far.
pub enum Checksum {
    Adler32(u32),
    Crc32c(Box<crc_fast::Digest>),
    Md5(md5::Md5),
    Sha256(Box<sha2::Sha256>),
}

impl Checksum {
    pub fn new(kind: ChecksumKind) -> Checksum {
        match kind {
            ChecksumKind::Adler32 => Checksum::Adler32(1),
            ChecksumKind::Crc32c => {
                Checksum::Crc32c(Box::new(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi)))
            }
            ChecksumKind::Md5 => Checksum::Md5(md5::Md5::new()),
            ChecksumKind::Sha256 => Checksum::Sha256(Box::new(sha2::Sha256::new())),
        }
    }

    pub fn add(&mut self, data: &[u8]) {
        match self {
            Checksum::Adler32(sum) => *sum = wire::checksum::adler32_of(*sum, data),
            Checksum::Crc32c(d) => d.update(data),
            Checksum::Md5(d) => d.update(data),
            Checksum::Sha256(d) => d.update(data),
        }
    }

    /// Hexadecimal digits in small letters, the leading zeros among them.
    pub fn text(self) -> String {
        let hex = |bytes: &[u8]| {
            bytes.iter().fold(String::new(), |mut s, b| {
                let _ = write!(s, "{b:02x}");
                s
            })
        };
        match self {
            Checksum::Adler32(sum) => format!("{sum:08x}"),
            Checksum::Crc32c(d) => format!("{:08x}", d.finalize() as u32),
            Checksum::Md5(d) => hex(&d.finalize()),
            Checksum::Sha256(d) => hex(&d.finalize()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: ChecksumKind, data: &[u8], piece: usize) -> String {
        let mut c = Checksum::new(kind);
        data.chunks(piece).for_each(|p| c.add(p));
        c.text()
    }

    #[test]
    fn known_sums_come_out_whatever_the_pieces() {
        let data = b"123456789";
        for piece in [1, 4, 9] {
            assert_eq!(of(ChecksumKind::Adler32, data, piece), "091e01de");
            assert_eq!(of(ChecksumKind::Crc32c, data, piece), "e3069283");
            assert_eq!(of(ChecksumKind::Md5, data, piece), "25f9e794323b453885f5181f1b624d0b");
            let sha = "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225";
            assert_eq!(of(ChecksumKind::Sha256, data, piece), sha);
        }
        let zeros = vec![255; 100_000];
        assert_eq!(of(ChecksumKind::Adler32, &zeros, 100_000), of(ChecksumKind::Adler32, &zeros, 77));
        assert_eq!(of(ChecksumKind::Adler32, b"", 1), "00000001");
    }

    #[test]
    fn kept_sums_are_read_as_others_write_them() {
        let k = ChecksumKind::of_attribute("user.storm.checksum.adler32").unwrap();
        assert_eq!(k.read(b"1E01DE\n"), Some("001e01de".into()));
        assert_eq!(k.read(b"091e01de"), Some("091e01de".into()));
        for bad in [&b""[..], b"x", b"0123456789", b"\xff"] {
            assert_eq!(k.read(bad), None);
        }
        assert_eq!(ChecksumKind::of_attribute("user.sum.SHA256"), Some(ChecksumKind::Sha256));
        assert_eq!(ChecksumKind::of_attribute("user.sum"), None);
    }
}
