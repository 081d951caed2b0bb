//! By what a client is known.

use model::Errno;

/// The `client_uuid` of connect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub [u8; 16]);

impl std::fmt::Display for ClientId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, b) in self.0.iter().enumerate() {
            let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{b:02x}")?;
        }
        Ok(())
    }
}

/// As it is displayed; the dashes may be missing. `EINVAL` for anything else.
impl std::str::FromStr for ClientId {
    type Err = Errno;

    fn from_str(s: &str) -> Result<ClientId, Errno> {
        let digit = |c: char| c.to_digit(16).ok_or(Errno::EINVAL);
        let digits = s.chars().filter(|c| *c != '-').map(digit).collect::<Result<Vec<u32>, _>>()?;
        if digits.len() != 32 {
            return Err(Errno::EINVAL);
        }
        let mut id = [0; 16];
        for (byte, pair) in id.iter_mut().zip(digits.chunks(2)) {
            *byte = (pair[0] << 4 | pair[1]) as u8;
        }
        Ok(ClientId(id))
    }
}
