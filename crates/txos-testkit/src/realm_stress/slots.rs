//! The realm's transaction table as bytes: what no participant would tell.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Where the first one is.
const FIRST: u64 = 4096;
/// Where the header says how long each is.
const LENGTH_AT: u64 = 16;

/// States of a slot, as its status word has them.
pub const STATES: [&str; 7] =
    ["idle", "active", "preparing", "publishing", "committed", "doomed", "aborted"];

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub number: u32,
    /// Its owner's identity; 0: it is free.
    pub owner: u64,
    /// Generation and state.
    pub status: u64,
    /// Slot + 1 that it waits for.
    pub waiting_for: u32,
    /// Whom it keeps from being used.
    pub pins: u64,
}

impl Slot {
    /// Its owner's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        (self.owner & 0x3f_ffff) as u32
    }

    /// Its state in words.
    #[must_use]
    pub fn state(&self) -> &'static str {
        STATES.get((self.status & 0xf) as usize).unwrap_or(&"?")
    }
}

fn length(segment: &File) -> u64 {
    let mut bytes = [0; 4];
    segment.read_exact_at(&mut bytes, LENGTH_AT).expect("reading the header");
    u64::from(u32::from_le_bytes(bytes))
}

/// All slots of a segment.
///
/// # Panics
/// If it can't be read.
#[must_use]
pub fn read(segment: &Path) -> Vec<Slot> {
    let file = File::open(segment).expect("opening the segment");
    let each = length(&file);
    (0..txos_engine::realm::SLOTS)
        .map(|number| {
            let mut bytes = [0; 48];
            let at = FIRST + each * u64::from(number);
            file.read_exact_at(&mut bytes, at).expect("reading a slot");
            let long = |n: usize| u64::from_le_bytes(bytes[n..n + 8].try_into().expect("8 bytes"));
            Slot {
                number,
                owner: long(0),
                status: long(8),
                waiting_for: (long(16) >> 32) as u32,
                pins: long(32),
            }
        })
        .collect()
}

/// Makes a slot look as if its owner had come no further than to take it.
///
/// # Panics
/// If it can't be written.
pub fn make_claimed(segment: &Path, slot: &Slot) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(segment)
        .expect("opening the segment");
    let idle = (slot.status & !0x1f).to_le_bytes();
    let at = FIRST + length(&file) * u64::from(slot.number) + 8;
    file.write_all_at(&idle, at).expect("writing a slot");
}
