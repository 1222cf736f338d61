//! A set of names as a digest that names can be added to and taken from.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The names of a directory: their number and the sum of their hashes.
///
/// The sum is commutative, so what a transaction itself adds and removes can be accounted for
/// without keeping the names. Two different listings agree with probability 2^-128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameSet {
    sum: u128,
    count: u64,
}

/// FNV-1a over 128 bits: small, byte by byte, and the same on every machine and version.
fn hash(name: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    name.iter().fold(OFFSET, |h, &b| (h ^ u128::from(b)).wrapping_mul(PRIME))
}

impl NameSet {
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
        let mut set = NameSet::default();
        crate::sys::for_each_name(dir, |name, _| {
            if !skip(name) {
                set.add(name);
            }
        })?;
        Ok(set)
    }
}
