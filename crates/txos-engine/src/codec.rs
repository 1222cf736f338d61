//! The envelope of a stored record: eight bytes that name its kind, its format and the CRC-32 of its body (both
//! 32 bits, little-endian), and the body.

use std::ops::RangeInclusive;

/// Bytes before the body.
const HEAD_LEN: usize = 16;

/// A body in its envelope.
pub(crate) fn seal(magic: &[u8; 8], format: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_LEN + body.len());
    bytes.extend_from_slice(magic);
    bytes.extend_from_slice(&format.to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(body).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The format and the body of a record, if it is one of this kind, of a known format, and undamaged.
///
/// # Errors
/// What is wrong, as the end of a sentence that begins with the path; `kind` is "a read set", say.
pub(crate) fn open<'a>(
    bytes: &'a [u8],
    magic: &[u8; 8],
    kind: &str,
    known: RangeInclusive<u32>,
) -> Result<(u32, &'a [u8]), String> {
    let word =
        |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    if bytes.get(..8) != Some(magic) {
        return Err(format!("is not {kind}"));
    }
    let (Some(format), Some(crc), Some(body)) = (word(8), word(12), bytes.get(HEAD_LEN..)) else {
        return Err(format!("is too short for {kind}"));
    };
    if !known.contains(&format) {
        let (first, last) = (known.start(), known.end());
        let range = if first == last { first.to_string() } else { format!("{first} to {last}") };
        return Err(format!("is of format {format}; this txos knows {range}"));
    }
    if crc32fast::hash(body) != crc {
        return Err("is damaged (checksum)".to_owned());
    }
    Ok((format, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: &[u8; 8] = b"TXOSTEST";

    #[test]
    fn what_was_sealed_is_opened() {
        let sealed = seal(MAGIC, 2, b"body");
        assert_eq!(open(&sealed, MAGIC, "a test", 1..=3), Ok((2, &b"body"[..])));
        let problem = |bytes: &[u8], known| open(bytes, MAGIC, "a test", known).unwrap_err();
        assert_eq!(problem(b"TXOSOTHER and more", 1..=3), "is not a test");
        assert_eq!(problem(&sealed[..15], 1..=3), "is too short for a test");
        assert_eq!(problem(&sealed, 3..=3), "is of format 2; this txos knows 3");
        assert_eq!(problem(&sealed, 3..=4), "is of format 2; this txos knows 3 to 4");
        for at in 12..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert_eq!(problem(&damaged, 1..=3), "is damaged (checksum)");
        }
    }
}
