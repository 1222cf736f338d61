//! Transaction ids: short, unique, sortable by nothing (order is the history's business).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Characters of an id: digits and lower-case letters without `i l o u`, so that an id read aloud
/// or copied by hand stays the same id.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The name of a transaction: eight characters, unique among the transactions of a realm.
///
/// Forty random bits: the store checks uniqueness when it creates the transaction's directory, so
/// a collision costs one more draw and never a mix-up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TxId([u8; TxId::LEN]);

impl TxId {
    /// Length of an id in bytes (all ASCII).
    pub const LEN: usize = 8;

    /// Makes an id from 40 of the given bits.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        let mut text = [0u8; Self::LEN];
        for (i, c) in text.iter_mut().enumerate() {
            *c = ALPHABET[((bits >> (5 * i)) & 31) as usize];
        }
        TxId(text)
    }

    /// Draws a random id from the kernel's generator.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0u8; 8];
        let mut done = 0;
        while done < bytes.len() {
            // getrandom(2) may be interrupted or short; both mean "ask again".
            match rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty())
            {
                Ok(n) => done += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(Self::from_bits(u64::from_le_bytes(bytes)))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Only ALPHABET characters are ever stored; an empty string cannot occur.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The id's raw bytes, as the journal stores them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

/// A text that is not a transaction id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a transaction id: {0:?} (an id is {len} of the characters 0-9 a-z without i l o u)", len = TxId::LEN)]
pub struct BadTxId(pub String);

impl FromStr for TxId {
    type Err = BadTxId;

    fn from_str(s: &str) -> Result<Self, BadTxId> {
        let bytes: [u8; Self::LEN] = s.as_bytes().try_into().map_err(|_| BadTxId(s.to_owned()))?;
        if bytes.iter().all(|b| ALPHABET.contains(b)) {
            Ok(TxId(bytes))
        } else {
            Err(BadTxId(s.to_owned()))
        }
    }
}

impl TryFrom<String> for TxId {
    type Error = BadTxId;

    fn try_from(s: String) -> Result<Self, BadTxId> {
        s.parse()
    }
}

impl From<TxId> for String {
    fn from(id: TxId) -> String {
        id.as_str().to_owned()
    }
}

impl fmt::Display for TxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TxId({})", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let id = TxId::from_bits(0x12_3456_789a);
        assert_eq!(id.as_str().parse::<TxId>().unwrap(), id);
        assert_eq!(id.to_string().len(), TxId::LEN);
    }

    #[test]
    fn refuses_what_is_no_id() {
        for bad in ["", "short", "toolongid9", "ABCDEFGH", "iiiiiiii", "abc/efgh"] {
            assert!(bad.parse::<TxId>().is_err(), "{bad}");
        }
    }
}
