//! The segment in memory: bounds-checked access to its parts.
//!
//! # Safety
//!
//! The mapping is shared with other processes, which may write to any part of it at any time. All
//! fields that change are atomics, for which every bit pattern is a value, so no write of anybody
//! can break Rust's rules; what they mean is checked where it is used. [`Fixed`] is copied out with
//! `pread(2)` before, never read through the mapping. A file that is cut short under a mapping
//! raises SIGBUS in its users: only a process of the same user can do that.
//!
//! [`Fixed`]: super::layout::Fixed
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::SLOTS;
use super::layout::{
    Board, GROUPS, GROUPS_AT, Group, Header, LIST_LOG2, LISTS_AT, ORECS_AT, ORECS_LOG2, SLOTS_AT,
    Slot,
};
use super::list::List;
use super::sync::AtomicU64;

/// Length of the whole segment in bytes.
pub(super) const SEGMENT_LEN: usize = LISTS_AT + SLOTS as usize * LIST_LEN;
/// Length of a list in bytes.
const LIST_LEN: usize = 1 << (LIST_LOG2 - 3);

/// Where segments are mapped; 0: a free place. A process has one realm, or a few after changes of its user.
static MAPPED: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// The addresses at which this process has realms mapped. They are no part of what a program's memory is put
/// back to.
#[must_use]
pub fn mapped() -> Vec<std::ops::Range<u64>> {
    let at = MAPPED.iter().map(|slot| slot.load(Ordering::Relaxed) as u64);
    at.filter(|&at| at != 0).map(|at| at..at + SEGMENT_LEN as u64).collect()
}

/// A mapped segment.
#[derive(Debug)]
pub(super) struct Table {
    base: NonNull<u8>,
}

// SAFETY: the mapping belongs to the value, lives as long as it, and holds only atomics.
unsafe impl Send for Table {}
// SAFETY: as above; all access through `&Table` is atomic.
unsafe impl Sync for Table {}

impl Table {
    /// Maps a segment file.
    ///
    /// # Errors
    /// Of `mmap(2)`.
    ///
    /// # Panics
    /// Never: the file's length was checked by the caller, and only bounds access to it.
    pub fn map(file: BorrowedFd<'_>) -> rustix::io::Result<Table> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base =
            unsafe { mmap(std::ptr::null_mut(), SEGMENT_LEN, prot, MapFlags::SHARED, file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        // From here on it is unmapped when it is dropped.
        let table = Table { base };
        let at = table.base.as_ptr() as usize;
        let free = |slot: &&AtomicUsize| {
            slot.compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        match MAPPED.iter().find(free) {
            Some(_) => Ok(table),
            None => Err(rustix::io::Errno::NOMEM),
        }
    }

    /// The part at `offset`.
    ///
    /// # Safety
    /// `offset` is aligned for `T`, `offset + size_of::<T>() <= SEGMENT_LEN`, and `T` consists of
    /// atomics, but for bytes nobody reads through it.
    #[inline]
    unsafe fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: within the mapping and aligned, as the caller promises.
        unsafe { self.base.add(offset).cast().as_ref() }
    }

    pub fn board(&self) -> &Board {
        // SAFETY: the header page starts the segment.
        unsafe { &self.at::<Header>(0).board }
    }

    /// Number of slots.
    #[expect(clippy::unused_self, reason = "the model's table has fewer")]
    pub fn slots(&self) -> u32 {
        SLOTS
    }

    /// Slot `number`; the last one for a number beyond.
    #[inline]
    pub fn slot(&self, number: u32) -> &Slot {
        let number = number.min(SLOTS - 1) as usize;
        // SAFETY: all slots lie before GROUPS_AT, asserted in `layout`.
        unsafe { self.at(SLOTS_AT + number * size_of::<Slot>()) }
    }

    /// Order group `number`, likewise.
    pub fn group(&self, number: usize) -> &Group {
        // SAFETY: all groups lie before ORECS_AT, asserted in `layout`.
        unsafe { self.at(GROUPS_AT + number.min(GROUPS - 1) * size_of::<Group>()) }
    }

    /// Number of ownership records.
    #[expect(clippy::unused_self, reason = "the model's table has fewer")]
    pub fn orecs(&self) -> u32 {
        1 << ORECS_LOG2
    }

    /// Where a hash leads.
    #[inline]
    #[expect(clippy::unused_self, reason = "the model's table is smaller")]
    pub fn index(&self, hash: u64) -> u32 {
        (hash & ((1 << ORECS_LOG2) - 1)) as u32
    }

    /// Has the kernel map all records for the process, some 2,000 pages, by one call. A transaction that holds so many meets nearly
    /// all of these pages, each with a fault.
    #[cold]
    pub fn map_records(&self) {
        use rustix::mm::{Advice, madvise};
        // Before Linux 5.14 there is no such advice: then there are the faults.
        // SAFETY: the records lie in the mapping and begin with a page. Advice of this kind does not change what is there.
        let _ = unsafe {
            let start = self.base.as_ptr().add(ORECS_AT).cast();
            madvise(start, LISTS_AT - ORECS_AT, Advice::LinuxPopulateWrite)
        };
    }

    /// The list of what a slot's transaction holds; the last one for a number beyond.
    #[inline]
    pub fn list(&self, number: u32) -> &List {
        let number = number.min(SLOTS - 1) as usize;
        // SAFETY: the lists of all slots lie between LISTS_AT and SEGMENT_LEN.
        unsafe { self.at(LISTS_AT + number * LIST_LEN) }
    }

    /// The ownership record at an index.
    #[inline]
    pub fn orec(&self, index: u32) -> &AtomicU64 {
        let index = (index & ((1 << ORECS_LOG2) - 1)) as usize;
        // SAFETY: ORECS_AT + 8 · index lies before LISTS_AT for every masked index.
        unsafe { self.at(ORECS_AT + 8 * index) }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let at = self.base.as_ptr() as usize;
        for slot in &MAPPED {
            let _ = slot.compare_exchange(at, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        // SAFETY: mapped in `map` with this length, and no reference into it outlives the value.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), SEGMENT_LEN) };
    }
}
