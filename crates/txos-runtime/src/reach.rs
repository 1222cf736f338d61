//! Whether the program's memory is there: asked before the runtime reads or writes what a call's pointer
//! leads to, so that a bad pointer is answered with `EFAULT`, as the kernel would, and never faults here.
//!
//! The kernel is asked by a call that does nothing but copy a word from, or to, the page in question. That
//! costs as much as the cheapest system call, so a thread keeps the pages that were there in mind for
//! the time of its transaction. All calls of that thread pass the runtime, which forgets them before one
//! that may take memory away ([`takes_away`]).
//!
//! What another thread takes away between two calls of this one is not noticed: a program that hands over
//! a pointer into memory that another thread has just unmapped, and that it has used in the same
//! transaction before, dies of it as it would in a library function.
#![allow(unsafe_code)] // raw system calls

use crate::raw::syscall;

const PAGE: u64 = 4096;
/// Addresses below are never mapped.
const FIRST: u64 = 1 << 16;
/// The end of what programs can map.
pub const END: u64 = 0x7fff_ffff_f000;
/// From so many pages on the kernel is asked about all of them at once.
const MANY: u64 = 8;

/// What is to be done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is read.
    Read,
    /// It is overwritten, all of it: asking may write to it.
    Overwrite,
}

impl Access {
    /// The mark of a page for which this is possible.
    fn bit(self) -> u64 {
        match self {
            Access::Read => 1,
            Access::Overwrite => 2,
        }
    }
}

/// How many of the `len` bytes at `at` can be accessed, from the first one on.
///
/// # Safety
/// With [`Access::Overwrite`] the program wants those bytes to be overwritten that are there.
#[inline]
#[must_use]
pub unsafe fn reach(at: u64, len: u64, access: Access) -> u64 {
    let Some(end) = at.checked_add(len).filter(|&end| at >= FIRST && end <= END) else {
        // SAFETY: it is asked about the same bytes.
        return unsafe { outside(at, len, access) };
    };
    let (mut page, last) = (at & !(PAGE - 1), end.wrapping_sub(1) & !(PAGE - 1));
    if len == 0 || (page == last && is_known(page, access)) {
        return len;
    }
    if (last - page) / PAGE >= MANY && all_there(page, last + PAGE, access) {
        return len;
    }
    loop {
        if !is_known(page, access) {
            let from = page.max(at);
            // SAFETY: these are some of the bytes.
            if !unsafe { is_there(from, end.min(page + PAGE) - from, access) } {
                return from - at;
            }
            remember(page, access);
        }
        if page == last {
            return len;
        }
        page += PAGE;
    }
}

/// Part of it at least can't be a program's.
///
/// # Safety
/// As [`reach`].
#[cold]
unsafe fn outside(at: u64, len: u64, access: Access) -> u64 {
    if len == 0 {
        return 0;
    }
    // SAFETY: it is asked about part of the same bytes.
    if (FIRST..END).contains(&at) { unsafe { reach(at, END - at, access) } } else { 0 }
}

/// Asks about part of one page.
///
/// # Safety
/// As [`reach`].
#[cold]
unsafe fn is_there(at: u64, len: u64, access: Access) -> bool {
    const WORD: u64 = 8;
    let (number, args) = match access {
        // An operation that there is not: the set is read, and nothing is changed.
        Access::Read => (libc::SYS_rt_sigprocmask, [u64::MAX, at & !(WORD - 1), 0, WORD, 0, 0]),
        // The mask is written there.
        Access::Overwrite if len >= WORD => (libc::SYS_rt_sigprocmask, [0, 0, at, WORD, 0, 0]),
        Access::Overwrite => (libc::SYS_getrandom, [at, len, 0, 0, 0, 0]),
    };
    // SAFETY: the kernel reads a word of the program's, or writes where all is to be overwritten.
    let answer = unsafe { syscall(number, args) };
    answer != -i64::from(libc::EFAULT)
}

/// Asks about whole pages at once. `false`: not all of them are there, or the kernel can't say.
fn all_there(from: u64, to: u64, access: Access) -> bool {
    const MADV_POPULATE_READ: u64 = 22;
    const MADV_POPULATE_WRITE: u64 = 23;
    let advice = match access {
        Access::Read => MADV_POPULATE_READ,
        Access::Overwrite => MADV_POPULATE_WRITE,
    };
    // SAFETY: it changes nothing but page tables, as touching each page would.
    unsafe { syscall(libc::SYS_madvise, [from, to - from, advice, 0, 0, 0]) == 0 }
}

/// Whether a call may take memory away, or what can be done with it.
#[inline]
#[must_use]
pub fn takes_away(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_mmap
            | libc::SYS_munmap
            | libc::SYS_mremap
            | libc::SYS_mprotect
            | libc::SYS_pkey_mprotect
            | libc::SYS_pkey_free
            | libc::SYS_brk
            | libc::SYS_madvise
            | libc::SYS_process_madvise
            | libc::SYS_remap_file_pages
            | libc::SYS_shmat
            | libc::SYS_shmdt
            // A page of a file that becomes shorter goes with it.
            | libc::SYS_ftruncate
            | libc::SYS_truncate
            | libc::SYS_fallocate
    )
}

#[cfg(target_arch = "x86_64")]
mod known {
    use std::cell::Cell;

    use super::Access;
    use crate::front::tls::{KNOWN, here};

    /// So many pages can have the same place: where the stack, the heap and the program lie is chance, and
    /// two of them on one place would be asked about at each call.
    const WAYS: usize = 4;

    /// The words that may speak of a page, the last that was asked about first.
    fn words(page: u64) -> &'static [Cell<u64>] {
        let number = page >> 12;
        let set = (number ^ number >> 4) as usize % (KNOWN / WAYS);
        &here().known[set * WAYS..][..WAYS]
    }

    /// Whether it was asked before.
    #[inline]
    pub fn is_known(page: u64, access: Access) -> bool {
        words(page).iter().any(|word| word.get() & !4095 == page && word.get() & access.bit() != 0)
    }

    /// It was asked, and the page is there.
    pub fn remember(page: u64, access: Access) {
        let words = words(page);
        let same = words.iter().position(|word| word.get() & !4095 == page);
        let rest = same.map_or(0, |at| words[at].get() & 4095);
        for at in (0..same.unwrap_or(WAYS - 1)).rev() {
            words[at + 1].set(words[at].get());
        }
        // What can be written can be read.
        words[0].set(page | rest | access.bit() | 1);
    }

    /// Nothing is known any more.
    pub fn forget() {
        here().known.iter().for_each(|slot| slot.set(0));
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod known {
    use super::Access;

    pub fn is_known(_page: u64, _access: Access) -> bool {
        false
    }

    pub fn remember(_page: u64, _access: Access) {}

    /// Nothing was known.
    pub fn forget() {}
}

pub use known::forget;
use known::{is_known, remember};

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks about memory of the tests.
    fn reach(at: u64, len: u64, access: Access) -> u64 {
        // SAFETY: no test minds what becomes of its memory.
        unsafe { super::reach(at, len, access) }
    }

    /// Pages of memory, the last of which can't be used.
    fn pages(count: usize, protection: i32) -> u64 {
        let size = count * PAGE as usize;
        // SAFETY: new memory, of which the last page is made unusable.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            let last = at.byte_add(size - PAGE as usize);
            assert_eq!(libc::mprotect(last, PAGE as usize, libc::PROT_NONE), 0);
            at as u64
        }
    }

    #[test]
    fn memory_ends_where_it_ends() {
        for count in [2, 3, 20] {
            let at = pages(count, libc::PROT_READ | libc::PROT_WRITE);
            let there = (count as u64 - 1) * PAGE;
            for access in [Access::Read, Access::Overwrite] {
                for round in 0..2 {
                    let all = [
                        (at, there, there),
                        (at, there + 1, there),
                        (at + 5, there, there - 5),
                        (at + there - 3, 8, 3),
                        (at + there, 1, 0),
                        (at, 0, 0),
                        (0, 1, 0),
                        (1, 8, 0),
                        (u64::MAX - 3, 8, 0),
                        (0xffff_8000_0000_0000, 8, 0),
                        (END - PAGE, PAGE * 2, 0),
                    ];
                    for (at, len, expected) in all {
                        let found = reach(at, len, access);
                        assert_eq!(found, expected, "{at:#x} {len} {access:?} {round}");
                    }
                }
                forget();
            }
        }
    }

    #[test]
    fn pages_of_one_place_are_known_at_once() {
        forget();
        // With one word for all pages of a place, these would take it from each other.
        let pages = [0x20_0000, 0x30_0000, 0x40_0000, 0x50_0000];
        for page in pages {
            remember(page, Access::Read);
        }
        remember(pages[1], Access::Overwrite);
        for page in pages {
            assert!(is_known(page, Access::Read), "{page:#x}");
            assert_eq!(is_known(page, Access::Overwrite), page == pages[1], "{page:#x}");
        }
        // The one that was not asked about for longest makes room.
        for page in [pages[0], 0x60_0000] {
            remember(page, Access::Read);
        }
        assert_eq!(pages.map(|page| is_known(page, Access::Read)), [true, true, false, true]);
        forget();
        assert!(!is_known(pages[0], Access::Read));
    }

    #[test]
    fn what_can_only_be_read_is_not_overwritten() {
        for count in [2, 20] {
            let at = pages(count, libc::PROT_READ);
            assert_eq!(reach(at, 100, Access::Read), 100);
            assert_eq!(reach(at, 100, Access::Overwrite), 0);
            assert_eq!(reach(at, (count as u64 - 1) * PAGE, Access::Overwrite), 0);
            assert_eq!(reach(at + 1, 3, Access::Overwrite), 0);
        }
    }

    #[test]
    fn asking_writes_to_nothing_but_what_is_overwritten() {
        let mut bytes = [7u8; 64];
        let at = bytes.as_mut_ptr() as u64;
        assert_eq!(reach(at + 21, 3, Access::Overwrite), 3);
        forget();
        assert_eq!(reach(at + 33, 9, Access::Overwrite), 9);
        let untouched = |range: std::ops::Range<usize>| bytes[range].iter().all(|&b| b == 7);
        assert!(untouched(0..21) && untouched(24..33) && untouched(42..64), "{bytes:?}");
        forget();
    }
}
