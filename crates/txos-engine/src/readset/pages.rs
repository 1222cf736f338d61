//! Files that are followed page by page: two transactions that change different pages of one file
//! both commit, because what each of them read is still so by value.

use std::os::fd::BorrowedFd;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::object::{Facets, FileKind};
use crate::version::Version;

use super::Observation;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// The digest of a page's bytes, as [`super::ReadSet::note_pages`] takes it. The last page of a file
/// is as short as the file; a page beyond its end has no bytes.
///
/// 64 bits: two different pages agree with probability 2^-64. It is not meant against somebody who
/// makes up content on purpose: he could as well write what he likes after the commit.
#[must_use]
pub fn page_digest(bytes: &[u8]) -> u64 {
    // Odd constants with as many ones as zeros (the digits of π).
    const K: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345];
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        (product as u64) ^ ((product >> 64) as u64)
    };
    let mut hash = fold(bytes.len() as u64 ^ K[0], K[1]);
    let (chunks, rest) = bytes.as_chunks::<8>();
    for chunk in chunks {
        // Added, not only xored: a word that equals a constant must not wipe out what came before.
        let word = u64::from_le_bytes(*chunk);
        hash = fold(hash ^ word ^ K[0], K[1]).wrapping_add(word.rotate_left(32) ^ hash);
    }
    let tail = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    fold(hash ^ tail ^ K[1], K[0]) ^ hash
}

impl Observation {
    /// Whether of the file's content only single pages were read, and nothing else of it that a
    /// change of another page would show in.
    #[must_use]
    pub(crate) fn is_by_pages(&self) -> bool {
        let whole = Facets::ATTRS | Facets::DATA | Facets::XATTRS | Facets::APPEND;
        self.pages.is_some() && !self.facets().intersects(whole | Facets::REPLACED)
    }
}

impl Observation {
    /// The numbers of the pages that were read, if the file is followed by pages.
    pub(crate) fn pages_read(&self) -> Option<impl Iterator<Item = u64>> {
        let pages = self.pages.as_ref().filter(|_| self.is_by_pages())?;
        Some(pages.iter().map(|(number, _)| *number))
    }
}

/// Whether the pages that were read still hold what they held. Its size must be the same: who reads
/// pages knows where they end.
pub(super) fn unchanged(
    dir: Option<BorrowedFd<'_>>,
    name: &[u8],
    before: &Version,
    now: &Version,
    pages: &[(u64, u64)],
) -> Result<bool, Errno> {
    let Some(dir) = dir else { return Ok(false) };
    if now.kind() != FileKind::File || before.size != now.size {
        return Ok(false);
    }
    if pages.is_empty() {
        return Ok(true);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = crate::sys::open_at(dir, name, flags)?;
    let mut buffer = [0u8; PAGE as usize];
    for (number, digest) in pages {
        let start = number.saturating_mul(PAGE);
        let mut done = 0;
        while done < buffer.len() {
            let room = buffer.get_mut(done..).unwrap_or_default();
            match crate::sys::read_at(&file, room, start.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
        if page_digest(buffer.get(..done).unwrap_or_default()) != *digest {
            return Ok(false);
        }
    }
    Ok(true)
}
