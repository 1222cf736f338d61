//! Patch files: pieces of content that are written into an inode that stays.
//!
//! What a patch overwrites is a patch again, so undoing and reverting are the same operation the
//! other way about. The format is in docs/store-format.md.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::readset::PAGE;

/// First bytes of a patch file.
const MAGIC: &[u8; 8] = b"TXOSPTCH";
/// Format of a patch file.
const VERSION: u32 = 1;

/// Pieces of content, and how long the file is with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Patch {
    /// The length of the file afterwards; `None`: as the writes leave it.
    pub size: Option<u64>,
    /// Where, and what; in order, without overlaps.
    pub writes: Vec<(u64, Vec<u8>)>,
}

impl Patch {
    /// Sorts the writes; of those that overlap the later ones win, and nothing is beyond `size`.
    pub fn new(writes: Vec<(u64, Vec<u8>)>, size: Option<u64>) -> Patch {
        let end = |at: u64, bytes: &[u8]| at.saturating_add(bytes.len() as u64);
        let mut sorted: Vec<(u64, Vec<u8>)> = Vec::with_capacity(writes.len());
        for (at, bytes) in writes.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            // Almost always they come in order.
            if sorted.last().is_none_or(|(a, b)| end(*a, b) <= at) {
                sorted.push((at, bytes));
                continue;
            }
            let stop = end(at, &bytes);
            let mut kept = Vec::with_capacity(sorted.len() + 2);
            for (a, b) in sorted {
                let split = |offset: u64| {
                    let offset = usize::try_from(offset.saturating_sub(a)).unwrap_or(usize::MAX);
                    b.split_at(offset.min(b.len()))
                };
                let (before, after) = (split(at).0, split(stop).1);
                if !before.is_empty() {
                    kept.push((a, before.to_vec()));
                }
                if !after.is_empty() {
                    kept.push((end(a, &b) - after.len() as u64, after.to_vec()));
                }
            }
            kept.push((at, bytes));
            kept.sort_by_key(|(at, _)| *at);
            sorted = kept;
        }
        if let Some(size) = size {
            sorted.retain_mut(|(at, bytes)| {
                let room = usize::try_from(size.saturating_sub(*at)).unwrap_or(usize::MAX);
                bytes.truncate(room);
                !bytes.is_empty()
            });
        }
        Patch { size, writes: sorted }
    }

    /// How long a file of `len` bytes is afterwards.
    pub fn len_after(&self, len: u64) -> u64 {
        let written = self.writes.last().map_or(0, |(at, b)| at.saturating_add(b.len() as u64));
        self.size.unwrap_or_else(|| len.max(written))
    }

    /// The numbers of the pages it writes to.
    pub fn pages(&self) -> Vec<u64> {
        let mut pages = Vec::new();
        for (at, bytes) in self.writes.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let last = at.saturating_add(bytes.len() as u64 - 1) / PAGE;
            for number in at / PAGE..=last {
                if pages.last() != Some(&number) {
                    pages.push(number);
                }
            }
        }
        pages
    }

    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = postcard::to_stdvec(self).unwrap_or_default();
        let mut out = Vec::with_capacity(body.len() + 16);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        out.extend_from_slice(&body);
        out
    }

    /// Reads what [`Patch::to_bytes`] wrote; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Patch> {
        let word = |at: usize| {
            bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
        };
        let body = bytes.get(16..)?;
        let ours = bytes.get(..8) == Some(MAGIC)
            && word(8) == Some(VERSION)
            && word(12) == Some(crc32fast::hash(body));
        let patch: Patch = ours.then(|| postcard::from_bytes(body).ok()).flatten()?;
        let mut free = 0u64;
        for (at, piece) in &patch.writes {
            if *at < free {
                return None;
            }
            free = at.checked_add(piece.len() as u64)?;
        }
        Some(patch)
    }
}

/// What a file held before a patch, by what it holds now and what the patch has overwritten.
///
/// # Errors
/// If that can't be read.
pub fn undone(mut content: Vec<u8>, undo: &Path) -> std::io::Result<Vec<u8>> {
    let bytes = crate::sys::read_record(undo)?;
    let damaged = || std::io::Error::other("what it was is damaged");
    let patch = Patch::from_bytes(&bytes).ok_or_else(damaged)?;
    let len = patch.len_after(content.len() as u64);
    content.resize(usize::try_from(len).map_err(std::io::Error::other)?, 0);
    for (at, piece) in &patch.writes {
        let at = usize::try_from(*at).map_err(std::io::Error::other)?;
        let to = at.checked_add(piece.len()).and_then(|end| content.get_mut(at..end));
        to.ok_or_else(damaged)?.copy_from_slice(piece);
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_writes_win() {
        let p = Patch::new(
            vec![
                (10, b"aaaa".to_vec()),
                (0, b"zz".to_vec()),
                (11, b"bb".to_vec()),
                (13, b"".into()),
            ],
            None,
        );
        let expected: Vec<(u64, Vec<u8>)> = vec![
            (0, b"zz".to_vec()),
            (10, b"a".to_vec()),
            (11, b"bb".to_vec()),
            (13, b"a".to_vec()),
        ];
        assert_eq!(p.writes, expected);
        assert_eq!((p.len_after(3), p.len_after(20)), (14, 20));
        assert_eq!(Patch::from_bytes(&p.to_bytes()), Some(p.clone()));
        let mut damaged = p.to_bytes();
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(Patch::from_bytes(&damaged), None);
        // Against bytes, at random places.
        let mut seed = 7u64;
        let mut draw = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for _ in 0..2000 {
            let writes: Vec<(u64, Vec<u8>)> = (0..draw(6))
                .map(|i| (draw(30), vec![u8::try_from(i + 1).unwrap(); draw(9) as usize]))
                .collect();
            let fill = |writes: &[(u64, Vec<u8>)]| {
                let mut bytes = [0u8; 64];
                for (at, piece) in writes {
                    bytes[*at as usize..][..piece.len()].copy_from_slice(piece);
                }
                bytes
            };
            let patch = Patch::new(writes.clone(), None);
            assert_eq!(fill(&patch.writes), fill(&writes), "{writes:?}");
            assert_eq!(Patch::from_bytes(&patch.to_bytes()), Some(patch));
        }
    }
}
