//! The shared segment, field by field. docs/realm-format.md is the same for people.
//!
//! ```text
//! 0        4096            65536          69632               8458240
//! ┌────────┬───────────────┬──────────────┬───────────────────┬───────┐
//! │ header │ slots         │ order groups │ ownership records │ lists │
//! └────────┴───────────────┴──────────────┴───────────────────┴───────┘
//! ```
//!
//! Little-endian. All fields are read and written atomically; none is ever held locked.
//!
//! A `Note` is an atomic as well. It is shown to people, or sways arbitration at most: no step's
//! safety depends on it, and the model (`model`) does not try what else it could show.

use super::sync::{AtomicU32, AtomicU64, Note32, Note64};

/// First bytes of a segment.
#[cfg(not(loom))]
pub(super) const MAGIC: [u8; 8] = *b"TXOSREAL";
/// Format of the segment: layout, meaning and hash.
#[cfg(not(loom))]
pub(super) const FORMAT: u32 = 4;
/// Number of ownership records, as a power of two.
#[cfg(not(loom))]
pub(super) const ORECS_LOG2: u32 = 20;
/// Bits of the list of what a slot's transaction holds, as a power of two.
#[cfg(not(loom))]
pub(super) const LIST_LOG2: u32 = 19;
/// Bytes of a label.
pub(super) const LABEL_LEN: usize = if cfg!(loom) { 8 } else { 128 };
/// Bytes of a home store's path.
pub(super) const HOME_LEN: usize = if cfg!(loom) { 8 } else { 704 };
/// Number of process groups that can have ordered transactions at a time.
pub(super) const GROUPS: usize = if cfg!(loom) { 1 } else { 64 };

/// Where the slots begin.
#[cfg(not(loom))]
pub(super) const SLOTS_AT: usize = 4096;
/// Where the order groups begin.
#[cfg(not(loom))]
pub(super) const GROUPS_AT: usize = 65536;
/// Where the ownership records begin.
#[cfg(not(loom))]
pub(super) const ORECS_AT: usize = 69632;
/// Where the lists begin.
#[cfg(not(loom))]
pub(super) const LISTS_AT: usize = ORECS_AT + (8 << ORECS_LOG2);

/// What is written once, when the segment is made, and checked by everybody who maps it.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Fixed {
    pub magic: [u8; 8],
    pub format: u32,
    pub slots: u32,
    pub slot_len: u32,
    pub orecs_log2: u32,
    pub groups: u32,
    pub uid: u32,
    pub boot: [u8; 16],
    /// Seconds since the epoch.
    pub made: u64,
    pub seed: [u64; 2],
    pub reserved: [u8; 48],
    /// CRC-32 (IEEE) of everything before.
    pub checksum: u32,
    pub padding: u32,
}

/// What changes: policy, counters, and the bell of those who wait for a slot.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Board {
    /// Code of the arbitration policy; an unknown one reads as the default.
    pub policy: AtomicU32,
    /// Rung when a slot becomes free while `slots_wanted` is set.
    pub slot_bell: AtomicU32,
    /// 1: somebody waits for a slot.
    pub slots_wanted: AtomicU32,
    /// Times that somebody met a holder of something else by a collision, and went on. For people.
    pub collisions: Note32,
    /// Counters, for people. Meetings with a holder in the way.
    pub conflicts: Note64,
    /// Transactions that lost to another one while they ran.
    pub dooms: Note64,
    /// Times somebody gave way by itself.
    pub yields: Note64,
    /// Times somebody waited for another one.
    pub waits: Note64,
    /// Slots of dead processes that were cleared.
    pub takeovers: Note64,
    /// Times all slots were taken.
    pub full: Note64,
    /// Publishes that may have changed names, counted before they begin.
    pub names: AtomicU64,
    /// Publishes that have ended, undone ones too, counted before what they hold is released.
    pub ended: AtomicU64,
}

/// The header page.
#[cfg(not(loom))]
#[repr(C, align(4096))]
pub(super) struct Header {
    pub fixed: Fixed,
    pub board: Board,
}

/// One place in the transaction table.
#[derive(Debug)]
#[repr(C, align(1024))]
pub(super) struct Slot {
    // Line 0: who, and how far.
    /// [`super::identity::Identity`] of the process it belongs to; 0: free.
    pub owner: AtomicU64,
    /// [`super::status::Status`].
    pub status: AtomicU64,
    /// Rung when something happened that the owner, or a waiting thread of it, should look at.
    pub bell: AtomicU32,
    /// Slot + 1 that the owner waits for; [`super::WAITS_FOR_TURN`]; 0: it does not wait.
    pub waiting_for: AtomicU32,
    /// Slots to ring when this transaction ends.
    pub waiters: AtomicU64,
    /// Slots that are about to seize a facet from this one: it takes no new transaction meanwhile.
    pub pins: AtomicU64,
    /// Identity of the process that clears up after a dead owner; 0: nobody.
    pub taker: AtomicU64,
    /// Thread whose scheduling priority counts.
    pub thread: Note32,
    /// Bit 0: restarts cost nobody anything (a single call). Bit 1: it publishes without a journal.
    /// Bit 2: its list says what it holds. Bit 3: it gives way to every transaction that does not defer as well. Bit 4: it
    /// stands back. Bit 5: several threads are in it, and bit 6 says nothing. Bit 6: it waits for what the realm does not know.
    pub flags: AtomicU32,
    /// With bit 6: the first argument of the system call in which it waits.
    pub outside_at: Note64,

    // Line 1: what arbitration goes by.
    /// When the first attempt began (CLOCK_MONOTONIC, ns).
    pub start_ns: AtomicU64,
    /// Facets acquired, over all attempts.
    pub work: Note64,
    /// Facets held.
    pub size: Note64,
    /// Attempts that failed.
    pub restarts: Note32,
    /// Order group + 1; 0: not ordered.
    pub group: AtomicU32,
    /// Sequence number in it.
    pub sequence: AtomicU64,
    /// Name of the transaction, eight characters; 0: none.
    pub id: Note64,
    /// When this attempt began.
    pub began_ns: Note64,
    /// Identity for which `label` and `home` were written.
    pub dressed: Note64,

    // Line 2: for people.
    /// Who doomed it: name and pid of the winner, facet, policy.
    pub doomed_by: Note64,
    pub doomed_by_pid: Note32,
    pub doomed_over: Note32,
    pub doomed_under: Note32,
    /// The ownership record it waits at.
    pub waiting_at: Note32,
    /// Since when it waits.
    pub waiting_since_ns: Note64,
    /// Transactions this slot committed and aborted.
    pub commits: Note64,
    pub aborts: Note64,
    /// With bit 6: from when on it gives way for that (CLOCK_MONOTONIC, ns).
    pub yields_ns: Note64,
    /// With bit 6: the number of the system call.
    pub outside_call: Note64,

    // Lines 3 to 15: words for people, and where the owner's journal is.
    /// What runs, UTF-8, padded with zeros.
    pub label: [Note64; LABEL_LEN / 8],
    /// Path of the home store, padded with zeros; empty: none, or too long.
    pub home: [Note64; HOME_LEN / 8],
}

/// The counter of one process group's ordered transactions.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Group {
    /// Process group and the start of its leader, as an identity; without a start if it had
    /// ended; 0: free.
    pub key: AtomicU64,
    /// Sequence number whose turn it is.
    pub next: AtomicU64,
    /// Slots that wait for their turn.
    pub waiters: AtomicU64,
    pub reserved: [AtomicU64; 5],
}

#[cfg(not(loom))]
const _: () = {
    use super::SLOTS;
    use std::mem::{offset_of, size_of};
    assert!(cfg!(target_endian = "little"));
    assert!(size_of::<Fixed>() == 128);
    assert!(offset_of!(Fixed, checksum) == 120);
    assert!(size_of::<Header>() == SLOTS_AT);
    assert!(offset_of!(Header, board) == 128);
    assert!(offset_of!(Board, conflicts) == 16);
    assert!(offset_of!(Board, names) == 64);
    assert!(offset_of!(Board, ended) == 72);
    assert!(size_of::<Slot>() == 1024);
    assert!(offset_of!(Slot, status) == 8);
    assert!(offset_of!(Slot, bell) == 16);
    assert!(offset_of!(Slot, waiting_for) == 20);
    assert!(offset_of!(Slot, waiters) == 24);
    assert!(offset_of!(Slot, pins) == 32);
    assert!(offset_of!(Slot, taker) == 40);
    assert!(offset_of!(Slot, thread) == 48);
    assert!(offset_of!(Slot, start_ns) == 64);
    assert!(offset_of!(Slot, doomed_by) == 128);
    assert!(offset_of!(Slot, outside_at) == 56);
    assert!(offset_of!(Slot, yields_ns) == 176);
    assert!(offset_of!(Slot, outside_call) == 184);
    assert!(offset_of!(Slot, label) == 192);
    assert!(offset_of!(Slot, home) == 320);
    assert!(size_of::<Group>() == 64);
    assert!(SLOTS_AT + SLOTS as usize * size_of::<Slot>() <= GROUPS_AT);
    assert!(GROUPS_AT + GROUPS * size_of::<Group>() <= ORECS_AT);
    assert!(SLOTS <= 60);
};
