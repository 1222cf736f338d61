//! What transactions can conflict about, and where in the table of ownership records it is found.

use crate::object::FileId;

/// A facet of an object: the unit of conflict.
///
/// | touching | acquires |
/// |---|---|
/// | a look-up of a name | entry: read |
/// | adding or removing a name | entry: write, listing of the directory: insert |
/// | listing a directory | listing: read |
/// | `stat`, or reading a file as a whole | attributes: read |
/// | reading page *n* of a file | extent: read, page *n*: read |
/// | changing page *n*, within the size | extent: read, page *n*: write, attributes: insert |
/// | appending | extent: insert, attributes: insert |
/// | truncating, or replacing the content | extent: write, attributes: write |
/// | `chmod`, `chown`, `utimes` | attributes: write |
/// | the use of a descriptor number, in a process with several threads | number: read |
/// | opening, closing or replacing a descriptor number there | number: write |
///
/// Attributes include the times and the size, which every change of the content moves: who read
/// them, or the file as a whole, conflicts with everybody who changes any part of it, while
/// changes of different pages commute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Facet<'a> {
    /// A name in a directory, present or absent.
    Entry {
        /// The directory.
        dir: FileId,
        /// The name.
        name: &'a [u8],
    },
    /// The set of names in a directory.
    Listing(FileId),
    /// What `stat` shows.
    Attributes(FileId),
    /// How far a file extends.
    Extent(FileId),
    /// 4,096 bytes of a file.
    Page {
        /// The file.
        file: FileId,
        /// Offset divided by 4,096.
        number: u64,
    },
    /// The target of a symbolic link.
    Target(FileId),
    /// Extended attributes.
    Xattrs(FileId),
    /// A number in the table of descriptors of a process, open or not.
    Descriptor {
        /// The process, as a word ([`Realm::this_process`](super::Realm::this_process)).
        process: u64,
        /// The number.
        number: u32,
    },
}

/// The secret of a realm's hash: without it nobody can make up names that collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub [u64; 2]);

/// Multiplies to 128 bits and folds: every bit of the product depends on all bits below it.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Odd constants with as many ones as zeros (the digits of π), one for each use.
const K: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1];

impl Facet<'_> {
    /// A number that is the same in all participants of a realm. Part of the segment's format
    /// (docs/realm-format.md): changing it means a new format version.
    #[must_use]
    #[inline]
    pub fn hash(&self, seed: Seed) -> u64 {
        let (kind, object, extra) = match *self {
            Facet::Entry { dir, name } => (1, dir, hash_name(name, seed)),
            Facet::Listing(dir) => (2, dir, 0),
            Facet::Attributes(file) => (3, file, 0),
            Facet::Extent(file) => (4, file, 0),
            Facet::Page { file, number } => (5, file, number),
            Facet::Target(link) => (6, link, 0),
            Facet::Xattrs(file) => (7, file, 0),
            Facet::Descriptor { process, number } => {
                (8, FileId { dev: 0, ino: process }, u64::from(number))
            }
        };
        let [s0, s1] = seed.0;
        let object = fold(object.ino ^ s0, object.dev ^ s1 ^ K[0]);
        fold(object ^ extra, s0 ^ K[1].wrapping_mul(kind))
    }
}

#[inline]
fn hash_name(name: &[u8], seed: Seed) -> u64 {
    let [s0, s1] = seed.0;
    let mut hash = s1 ^ (name.len() as u64).wrapping_mul(K[2]);
    let mut chunks = name.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        hash = fold(hash ^ u64::from_le_bytes(word), s0 ^ K[2]);
    }
    fold(hash ^ tail(name, chunks.remainder()), s0 ^ K[0])
}

/// The last bytes of a name, which do not fill a word, padded with zeros. Without a loop: how often
/// that would run differs from name to name, and the processor would guess wrong each time.
#[inline]
fn tail(name: &[u8], rest: &[u8]) -> u64 {
    let bits = 8 * rest.len() as u32;
    if let Some(last) = name.last_chunk() {
        // What was hashed before is shifted out; in two steps, as it may be all.
        return u64::from_le_bytes(*last) >> 1 >> (63 - bits);
    }
    // Two halves that overlap.
    if let (Some(first), Some(last)) = (rest.first_chunk(), rest.last_chunk()) {
        let last = u64::from(u32::from_le_bytes(*last));
        return u64::from(u32::from_le_bytes(*first)) | last << (bits - 32);
    }
    rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SEED: Seed = Seed([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);

    #[test]
    fn facets_of_one_object_are_apart() {
        let id = FileId { dev: 1, ino: 2 };
        let all = [
            Facet::Entry { dir: id, name: b"a" },
            Facet::Entry { dir: id, name: b"b" },
            Facet::Entry { dir: id, name: b"a\0" },
            Facet::Entry { dir: id, name: b"" },
            Facet::Listing(id),
            Facet::Attributes(id),
            Facet::Extent(id),
            Facet::Page { file: id, number: 0 },
            Facet::Page { file: id, number: 1 },
            Facet::Target(id),
            Facet::Xattrs(id),
            Facet::Descriptor { process: 2, number: 0 },
            Facet::Descriptor { process: 2, number: 1 },
        ];
        let hashes: HashSet<u64> = all.iter().map(|f| f.hash(SEED)).collect();
        // Page 0 and the like must not fall together with a facet of another kind.
        assert_eq!(hashes.len(), all.len());
    }

    #[test]
    fn the_low_bits_are_spread_evenly() {
        const SLOTS: u64 = 1 << 12;
        let mut counts = vec![0u32; SLOTS as usize];
        let n = 64 * SLOTS;
        for i in 0..n {
            let file = FileId { dev: 0xfd00, ino: 1_000_000 + i };
            counts[(Facet::Attributes(file).hash(SEED) & (SLOTS - 1)) as usize] += 1;
        }
        // Poisson with mean 64: beyond 8 standard deviations nothing is expected in 4,096 draws.
        assert!(counts.iter().all(|&c| (4..128).contains(&c)), "{:?}", counts.iter().max());
    }

    #[test]
    fn the_tail_of_a_name_is_padded_with_zeros() {
        let name: Vec<u8> = (0..36).map(|i| 0xf0 ^ (i * 7)).collect();
        for len in 0..=name.len() {
            let name = &name[name.len() - len..];
            let rest = &name[len / 8 * 8..];
            let mut padded = [0; 8];
            padded[..rest.len()].copy_from_slice(rest);
            assert_eq!(tail(name, rest), u64::from_le_bytes(padded), "{len} bytes");
        }
    }

    #[test]
    fn the_hash_is_part_of_the_format() {
        let dir = FileId { dev: 0xfd01, ino: 42 };
        for (name, expected) in [
            (&b""[..], 0xbd04_0f69_b583_7a24),
            (b"a", 0x96d8_703d_1519_1b4c),
            (b"etc", 0xd5ef_2818_c884_e943),
            (b"hosts", 0xd84b_2255_d285_a3da),
            (b"passwd.1", 0x4578_0b8e_1fe0_c7ce),
            (b"resolv.conf", 0x7afc_a592_8de0_185f),
            (b"libstdc++.so.6.0.33", 0xc59f_0731_c1d5_c0cb),
        ] {
            assert_eq!(Facet::Entry { dir, name }.hash(SEED), expected, "{name:?}");
        }
        assert_eq!(Facet::Page { file: dir, number: 7 }.hash(SEED), 0x569d_4c0d_74d1_9689);
        let descriptor = Facet::Descriptor { process: 0x0012_3456_789a_bcde, number: 5 };
        assert_eq!(descriptor.hash(SEED), 0xc581_9143_9528_4e2b);
        assert_ne!(
            Facet::Entry { dir, name: b"resolv.conf" }.hash(SEED),
            Facet::Entry { dir, name: b"resolv.conf" }.hash(Seed([1, 2]))
        );
    }
}
