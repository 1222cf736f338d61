//! The memory that a supervisor shares with the recorders in a transaction's processes: what has
//! been observed already, so that looking at it again need not be reported.
//!
//! # Layout, version 2
//!
//! [`SIZE`] bytes of memory, little-endian, all zero but for the header. Every word that is written after
//! the beginning is written by one atomic instruction. Two files in memory (`memfd_create(2)`) are mapped one over the
//! other: the first [`SEEN`] bytes are the *control page*, which only the supervisor can write (programs have a
//! descriptor for reading, and so can't map it otherwise); the rest are the *tables*. A program opens the control page
//! first: if there is a new area by the time it opens the tables, the control page that it has says "off".
//!
//! | offset | bytes | field | writer | reader |
//! |---|---|---|---|---|
//! | 0 | 8 | magic, [`MAGIC`] | supervisor, once | recorder refuses anything else |
//! | 8 | 4 | version, [`VERSION`] | supervisor, once | recorder refuses any other |
//! | 12 | 4 | off: not 0 when every call is to be reported | supervisor, from 0 to 1 only | recorder, on every call |
//! | 16 | 8 | generation: part of every key | supervisor, growing | recorder, on every call |
//! | [`SEEN`] | 8 × [`SEEN_SLOTS`] | keys of what was reported and observed; 0: free | recorders | recorders |
//! | [`AHEAD`] | 8 × [`AHEAD_SLOTS`] | keys of what was observed ahead, even: it was used | supervisor; recorders clear bit 0 | both |
//!
//! # Invariants
//!
//! - A key is in [`SEEN`] only after a call with it was let through by the supervisor, which had
//!   observed it: the recorder puts it there when that call has returned.
//! - A key is in [`AHEAD`] only after what it stands for was observed. Who goes by it clears bit 0
//!   before its call; the supervisor takes it away by exchanging the key *with* bit 0 for 0. So either
//!   the supervisor knows that it was used, or nobody can use it any more.
//! - Who gives up the supervisor's credentials keeps the mapping, and may write anything into the tables. "Off" is
//!   set before that, where it can't be taken back: nobody goes by these tables any more.
//! - "off" and the generation change before the call is let through that makes older keys wrong.
//! - What is lost (a slot that another key takes) costs one question. Two different keys of 63 bits are
//!   equal with a probability of 2⁻⁶³ for each pair, as for the names of a listing.

/// First bytes of the file.
pub const MAGIC: [u8; 8] = *b"TXOSREC\0";
/// Version of the layout, and of how keys are made.
pub const VERSION: u32 = 2;
/// Where the version is.
pub const AT_VERSION: usize = 8;
/// Where "off" is.
pub const AT_OFF: usize = 12;
/// Where the generation is.
pub const AT_GENERATION: usize = 16;
/// Where what was seen begins.
pub const SEEN: usize = 4096;
/// Slots of it: a power of two.
pub const SEEN_SLOTS: usize = 1 << 17;
/// Where what was observed ahead begins.
pub const AHEAD: usize = SEEN + 8 * SEEN_SLOTS;
/// Slots of it: a power of two.
pub const AHEAD_SLOTS: usize = 1 << 14;
/// Size of the file.
pub const SIZE: usize = AHEAD + 8 * AHEAD_SLOTS;
/// A key is in one of this many slots from the one that it names.
pub const WINDOW: usize = 8;

/// Where the recorder opens the control page, as it does the tables at [`PATH`].
pub const CONTROL_PATH: &core::ffi::CStr = c"/proc/txos/control";
/// Where the recorder opens the tables. Nothing is there: the supervisor, to which the call is reported, gives
/// the process a descriptor. So it is found under any root directory, by any user, and leaves nothing
/// behind.
pub const PATH: &core::ffi::CStr = c"/proc/txos/recorded";
/// Where the dynamic linker opens the library, in the same way.
pub const LIBRARY_PATH: &core::ffi::CStr = c"/proc/txos/libtxosrecorder.so";

/// The address at which each recorder maps one page of code, `syscall; ret`. The filter lets the calls
/// through that are made there. Nothing else lies so far from everything: programs, heaps and
/// libraries are near the ends of the address space, and the shadows of sanitizers elsewhere; where it
/// is taken, every call is reported.
pub const GATE: u64 = 0x1f7e_5c00_0000;
/// What the kernel says of a call that is made there: the address after the instruction.
pub const GATE_IP: u64 = GATE + 2;

/// What a look depends on, besides the path: in the low bits of a key's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Facets, as `txos_engine::object::Facets` and [`txos_calls::Aspects`] number them.
    pub facets: u8,
    /// Whether a symbolic link at the end is followed.
    pub follow: bool,
}

/// Which directory a relative path starts at. All zero for absolute paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Device.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Mount.
    pub mount: u64,
    /// Time of birth, in nanoseconds; tells two directories apart that have one number after another.
    pub birth: u64,
}

/// Two words into one.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let wide = (a as u128).wrapping_mul(b as u128);
    (wide as u64) ^ ((wide >> 64) as u64)
}

const K: [u64; 4] =
    [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3];

/// A key being made, piece by piece. The pieces of a path may be given apart at any place.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    state: u64,
    pending: u64,
    /// Bytes of the path so far.
    len: u64,
}

impl Key {
    /// The beginning, before the path.
    #[inline]
    #[must_use]
    pub fn new(generation: u64, class: Class, start: &Start) -> Self {
        let class = u64::from(class.facets) << 1 | u64::from(class.follow);
        let mut state = fold(generation ^ K[0], class ^ K[1]);
        state = fold(state ^ start.dev, start.ino ^ K[2]);
        state = fold(state ^ start.mount, start.birth ^ K[3]);
        Key { state, pending: 0, len: 0 }
    }

    /// More of the path.
    #[inline]
    #[must_use]
    pub fn byte(mut self, byte: u8) -> Self {
        self.pending = self.pending << 8 | u64::from(byte);
        self.len = self.len.wrapping_add(1);
        if self.len & 7 == 0 {
            self.state = fold(self.state ^ self.pending, K[1]).wrapping_add(K[0]);
            self.pending = 0;
        }
        self
    }

    /// More of the path.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        bytes.iter().fold(self, |key, byte| key.byte(*byte))
    }

    /// The key: odd, so that bit 0 says nothing and 0 is free.
    #[inline]
    #[must_use]
    pub fn finish(self) -> u64 {
        fold(fold(self.state ^ self.pending, K[2]) ^ self.len, K[3] ^ self.len) | 1
    }
}

/// The slots of a key in a table of so many: the first; the others follow, around the end.
#[inline]
#[must_use]
pub fn slot(key: u64, step: usize, slots: usize) -> usize {
    ((key >> 32) as usize).wrapping_add(step) & (slots - 1)
}
