//! What a command prints, up to a bound: its beginning and its end, and how much was between them.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt};

/// A text of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Text {
    /// The text. What is no valid UTF-8 stands as U+FFFD.
    pub text: String,
    /// How many bytes there were.
    pub bytes: u64,
    /// How many of them are left out in the middle, where a line in brackets says so.
    pub left_out: u64,
    /// Whether bytes were no valid UTF-8.
    pub lossy: bool,
}

/// Keeps the first half and the last half of a bound.
#[derive(Debug)]
pub struct Bounded {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Bounded {
    /// With room for so many bytes.
    pub fn new(bytes: usize) -> Self {
        Bounded { half: bytes / 2, head: Vec::new(), tail: VecDeque::new(), total: 0 }
    }

    /// More of it.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.half - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        let rest = rest.get(rest.len().saturating_sub(self.half)..).unwrap_or_default();
        let over = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// Whether there was more than so many bytes.
    pub fn is_longer_than(&self, bytes: usize) -> bool {
        self.total > bytes as u64
    }

    /// Its first bytes, as many as `limit` at most, if it has more: a character that the limit would cut is not among them, so that
    /// the next page begins with it.
    pub fn page(mut self, limit: usize) -> Text {
        if self.total <= limit as u64 {
            return self.text();
        }
        self.head.extend_from_slice(self.tail.make_contiguous());
        let page = self.head.get(..limit).unwrap_or(&self.head);
        // One that is longer than the limit is given in part.
        let page = Some(whole_end(page)).filter(|page| !page.is_empty()).unwrap_or(page);
        let (text, lossy) = lossy(page);
        Text { text, bytes: page.len() as u64, left_out: 0, lossy }
    }

    /// The text.
    pub fn text(mut self) -> Text {
        let kept = (self.head.len() + self.tail.len()) as u64;
        let left_out = self.total - kept;
        let tail = self.tail.make_contiguous();
        let bytes = if left_out == 0 {
            self.head.extend_from_slice(tail);
            self.head
        } else {
            // A character that the cut has halved is left out, too.
            let head = whole_end(&self.head);
            let tail = whole_start(tail);
            let left_out = self.total - (head.len() + tail.len()) as u64;
            let note = format!("\n[{left_out} bytes are left out here]\n");
            let text = [lossy(head), (note, false), lossy(tail)];
            return Text {
                lossy: text.iter().any(|(_, lossy)| *lossy),
                text: text.into_iter().map(|(text, _)| text).collect(),
                bytes: self.total,
                left_out,
            };
        };
        let (text, lossy) = lossy(&bytes);
        Text { text, bytes: self.total, left_out, lossy }
    }
}

fn lossy(bytes: &[u8]) -> (String, bool) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), false),
        Err(_) => (String::from_utf8_lossy(bytes).into_owned(), true),
    }
}

/// Without a character that has only begun, whatever is before it.
fn whole_end(bytes: &[u8]) -> &[u8] {
    let rest = bytes.iter().rev().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    let Some(at) = bytes.len().checked_sub(rest + 1) else { return bytes };
    let wanted = match bytes.get(at) {
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        _ => 1,
    };
    if wanted > rest + 1 { bytes.get(..at).unwrap_or(bytes) } else { bytes }
}

/// Without the rest of a character.
fn whole_start(bytes: &[u8]) -> &[u8] {
    let rest = bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    bytes.get(rest..).unwrap_or_default()
}

/// Reads it all.
pub async fn read(mut from: impl AsyncRead + Unpin, into: &mut Bounded) {
    let mut buffer = vec![0; 64 * 1024];
    // What can't be read any more has ended.
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        into.push(buffer.get(..n).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_end_between_characters() {
        let page = |bytes: &[u8], limit| {
            let mut all = Bounded::new(2 * (limit + 1));
            all.push(bytes);
            let Text { text, bytes, lossy, .. } = all.page(limit);
            (text, bytes, lossy)
        };
        assert_eq!(page("aü".as_bytes(), 3), ("aü".into(), 3, false));
        assert_eq!(page("aüb".as_bytes(), 2), ("a".into(), 1, false));
        assert_eq!(page("aüb".as_bytes(), 3), ("aü".into(), 3, false));
        assert_eq!(page("üb".as_bytes(), 1), ("\u{fffd}".into(), 1, true));
        assert_eq!(page(b"a\xffbc", 3), ("a\u{fffd}b".into(), 3, true));
        assert_eq!(page("\0\0\0üc".as_bytes(), 4), ("\0\0\0".into(), 3, false));
        assert_eq!(page(b"\xff\xc3\xbcb", 2), ("\u{fffd}".into(), 1, true));
    }

    fn captured(bound: usize, chunks: &[&[u8]]) -> Text {
        let mut bounded = Bounded::new(bound);
        chunks.iter().for_each(|chunk| bounded.push(chunk));
        bounded.text()
    }

    #[test]
    fn what_fits_is_whole() {
        let text = captured(10, &[b"abc", b"", b"defghij"]);
        assert_eq!(text, Text { text: "abcdefghij".into(), bytes: 10, left_out: 0, lossy: false });
        let text = captured(10, &[b"a\xff\0"]);
        assert_eq!(text, Text { text: "a\u{fffd}\0".into(), bytes: 3, left_out: 0, lossy: true });
    }

    #[test]
    fn beginning_and_end_are_kept() {
        for chunks in [&[&b"abcdefghijklmno"[..]][..], &[b"abcdefg", b"h", b"ijklmno"]] {
            let text = captured(10, chunks);
            assert_eq!(text.text, "abcde\n[5 bytes are left out here]\nklmno");
            assert_eq!((text.bytes, text.left_out), (15, 5));
        }
        let many = vec![b'x'; 1000];
        let text = captured(4, &[&many, &many, b"yz"]);
        assert_eq!(text.text, "xx\n[1998 bytes are left out here]\nyz");
    }

    #[test]
    fn a_character_is_not_halved() {
        let text = captured(6, &["aaé----éaa".as_bytes()]);
        assert_eq!(text.text, "aa\n[8 bytes are left out here]\naa");
        assert!(!text.lossy);
    }
}
