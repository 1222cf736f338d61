//! A set of names as a digest that names can be added to and taken from.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The names of a directory: their number and the sum of their hashes.
///
/// The sum is commutative, so what a transaction itself adds and removes can be accounted for
/// without keeping the names. Two different listings agree with probability 2^-128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingDigest {
    sum: u128,
    count: u64,
}

/// FNV-1a over 128 bits, well mixed: small, byte by byte, and the same on every machine and version.
///
/// FNV alone is not for sums: the hashes of two names that differ in their last byte only differ by
/// nearly the same for every such pair, so that `a1` and `b2` would often be taken for `a2` and `b1`.
fn hash(name: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let plain = name.iter().fold(OFFSET, |h, &b| (h ^ u128::from(b)).wrapping_mul(PRIME));
    let (low, high) = (plain as u64, (plain >> 64) as u64);
    let low = mixed(low ^ high.rotate_left(32));
    let high = mixed(high.wrapping_add(low));
    u128::from(high) << 64 | u128::from(low)
}

/// Every bit of the result depends on every bit given, and nothing is lost: the last step of
/// MurmurHash3.
fn mixed(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

impl ListingDigest {
    /// Adds a name.
    pub fn add(&mut self, name: &[u8]) {
        self.sum = self.sum.wrapping_add(hash(name));
        self.count = self.count.wrapping_add(1);
    }

    /// Takes a name away.
    pub fn remove(&mut self, name: &[u8]) {
        self.sum = self.sum.wrapping_sub(hash(name));
        self.count = self.count.wrapping_sub(1);
    }

    /// How many names there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Reads the names of an open directory (not `.` and `..`), but for those `skip` says.
    ///
    /// # Errors
    /// The errno of `getdents64(2)`.
    pub fn read(dir: BorrowedFd<'_>, skip: impl Fn(&[u8]) -> bool) -> Result<Self, Errno> {
        let mut set = ListingDigest::default();
        crate::sys::for_each_name(dir, |name, _| {
            if !skip(name) {
                set.add(name);
            }
        })?;
        Ok(set)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn set(names: &[String]) -> ListingDigest {
        let mut set = ListingDigest::default();
        names.iter().for_each(|name| set.add(name.as_bytes()));
        set
    }

    /// Two names that change their endings are two other names.
    #[test]
    fn names_that_look_alike_are_told_apart() {
        for i in 0..300 {
            for j in 0..i {
                let before = [format!("file{i}-1"), format!("file{j}-2")];
                let after = [format!("file{i}-2"), format!("file{j}-1")];
                assert_ne!(set(&before), set(&after), "{before:?} {after:?}");
            }
        }
    }

    #[test]
    fn order_does_not_matter_and_taking_away_undoes_adding() {
        let mut one = set(&["a".into(), "b".into(), "c".into()]);
        let mut other = set(&["c".into(), "a".into()]);
        assert_ne!(one, other);
        one.remove(b"b");
        assert_eq!(one, other);
        other.remove(b"a");
        other.remove(b"c");
        assert!(other.is_empty() && other == ListingDigest::default());
    }
}
