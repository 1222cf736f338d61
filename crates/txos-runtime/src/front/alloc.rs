//! Memory for the runtime itself.
//!
//! Its code runs in a signal handler that may have interrupted the program's `malloc` anywhere, so
//! nothing here may call the C library. Memory comes from `mmap`; blocks of one size class are
//! linked in a free list under a lock that is held for a few instructions. Signals are blocked
//! while runtime code runs, so a thread never meets a lock that it holds itself.
//!
//! Every update of a class takes effect by one store, so that a child that was forked while another
//! thread was in the middle of one finds the class usable, and only has to open the lock
//! ([`after_fork`]).
#![allow(unsafe_code)] // an allocator is made of raw memory

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::raw::syscall;

/// The largest block of a class; what is larger is mapped by itself.
const CLASS_MAX: usize = 1 << 20;
/// Classes: every 16 bytes up to 128, then four to a doubling.
const CLASSES: usize = 8 + 13 * 4;
/// What is mapped at once for small blocks.
const CHUNK: usize = 256 << 10;
const PAGE: usize = 4096;

#[global_allocator]
static GLOBAL: Memory = Memory;

static POOL: [Class; CLASSES] = [const { Class::new() }; CLASSES];

/// The allocator.
#[derive(Debug)]
struct Memory;

/// The free blocks of one size.
#[repr(align(64))] // one cache line each: threads that use different sizes don't meet
struct Class {
    locked: AtomicBool,
    /// The first free block; each holds the address of the next.
    free: AtomicPtr<u8>,
    /// What is left of the last chunk; `end` 0: nothing.
    bump: AtomicUsize,
    end: AtomicUsize,
}

impl Class {
    const fn new() -> Class {
        Class {
            locked: AtomicBool::new(false),
            free: AtomicPtr::new(null_mut()),
            bump: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
        }
    }

    fn lock(&self) {
        let mut spins = 0_u32;
        while self.locked.swap(true, Ordering::Acquire) {
            while self.locked.load(Ordering::Relaxed) {
                spins += 1;
                if spins.is_multiple_of(128) {
                    // SAFETY: it takes no arguments.
                    unsafe { syscall(libc::SYS_sched_yield, [0; 6]) };
                }
                std::hint::spin_loop();
            }
        }
    }

    fn unlock(&self) {
        self.locked.store(false, Ordering::Release);
    }

    fn take(&self, size: usize) -> *mut u8 {
        self.lock();
        let block = self.free.load(Ordering::Relaxed);
        let block = if block.is_null() {
            self.carve(size)
        } else {
            // SAFETY: a block in the list is free, and its first word is ours: the next block.
            self.free.store(unsafe { block.cast::<*mut u8>().read() }, Ordering::Relaxed);
            block
        };
        self.unlock();
        block
    }

    fn give(&self, block: *mut u8) {
        self.lock();
        // SAFETY: the block was just freed, and is at least a word.
        unsafe { block.cast::<*mut u8>().write(self.free.load(Ordering::Relaxed)) };
        self.free.store(block, Ordering::Relaxed);
        self.unlock();
    }

    /// A block that was never used.
    fn carve(&self, size: usize) -> *mut u8 {
        let (bump, end) = (self.bump.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        if end >= bump + size {
            self.bump.store(bump + size, Ordering::Relaxed);
            return bump as *mut u8;
        }
        let chunk = CHUNK.max(size.next_multiple_of(PAGE));
        let start = map(chunk);
        if !start.is_null() {
            let start = start as usize;
            self.end.store(0, Ordering::Relaxed);
            self.bump.store(start + size, Ordering::Relaxed);
            self.end.store(start + chunk, Ordering::Relaxed);
        }
        start
    }
}

/// The class of blocks of this size, and how large they are.
fn class_of(size: usize) -> (usize, usize) {
    if size <= 128 {
        let index = size.max(1).div_ceil(16) - 1;
        return (index, (index + 1) * 16);
    }
    let last = size - 1;
    let log = last.ilog2() as usize;
    let quarter = (last >> (log - 2)) & 3;
    (8 + (log - 7) * 4 + quarter, (1 << log) + ((quarter + 1) << (log - 2)))
}

/// The size to look for so that the block is aligned: blocks of a power of two are, to their size,
/// up to a page.
fn effective(layout: Layout) -> usize {
    if layout.align() <= 16 {
        layout.size()
    } else {
        layout.size().max(layout.align()).next_power_of_two()
    }
}

/// Whether it is mapped by itself.
fn is_large(layout: Layout) -> bool {
    layout.align() > PAGE || effective(layout) > CLASS_MAX
}

/// New zeroed pages; null if there are none.
pub fn map(size: usize) -> *mut u8 {
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let args = [0, size as u64, prot as u64, flags as u64, u64::MAX, 0];
    // SAFETY: an anonymous mapping at an address of the kernel's choice changes nothing else.
    let answer = unsafe { syscall(libc::SYS_mmap, args) };
    if answer < 0 { null_mut() } else { answer as *mut u8 }
}

/// Gives pages back.
///
/// # Safety
/// They were mapped by [`map`], and nobody uses them.
pub unsafe fn unmap(start: *mut u8, size: usize) {
    // SAFETY: as the caller says.
    unsafe { syscall(libc::SYS_munmap, [start as u64, size as u64, 0, 0, 0, 0]) };
}

/// In a child that was forked: whatever other threads were doing, they are not here to finish it.
pub fn after_fork() {
    for class in &POOL {
        class.unlock();
    }
}

fn map_large(layout: Layout) -> *mut u8 {
    let size = layout.size().next_multiple_of(PAGE);
    if layout.align() <= PAGE {
        return map(size);
    }
    let start = map(size + layout.align());
    if start.is_null() {
        return start;
    }
    let aligned = (start as usize).next_multiple_of(layout.align());
    let (before, after) = (aligned - start as usize, start as usize + layout.align() - aligned);
    // SAFETY: the pages around the aligned part were just mapped, and nobody knows of them.
    unsafe {
        if before > 0 {
            unmap(start, before);
        }
        if after > 0 {
            unmap((aligned + size) as *mut u8, after);
        }
    }
    aligned as *mut u8
}

// SAFETY: blocks come from the free list of a class that is at least as large and aligned as asked,
// or are mapped for the purpose, and go back to where they came from, which the layout tells.
unsafe impl GlobalAlloc for Memory {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return map_large(layout);
        }
        let (class, size) = class_of(effective(layout));
        POOL[class].take(size)
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_large(layout) {
            // SAFETY: it was mapped with this layout.
            unsafe { unmap(block, layout.size().next_multiple_of(PAGE)) };
        } else {
            POOL[class_of(effective(layout)).0].give(block);
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() && !is_large(layout) {
            // SAFETY: it is that large.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller says that the new size is valid for this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_large(layout), is_large(new)) {
            (false, false) if class_of(effective(layout)).0 == class_of(effective(new)).0 => block,
            (true, true) if layout.align() <= PAGE => {
                let (from, to) =
                    (layout.size().next_multiple_of(PAGE), size.next_multiple_of(PAGE));
                let may_move = libc::MREMAP_MAYMOVE as u64;
                let args = [block as u64, from as u64, to as u64, may_move, 0, 0];
                // SAFETY: the block is a mapping of its own, of that size.
                let answer = unsafe { syscall(libc::SYS_mremap, args) };
                if answer < 0 { null_mut() } else { answer as *mut u8 }
            }
            _ => {
                // SAFETY: both are valid layouts; the old block is given up only when the content
                // is in the new one.
                unsafe {
                    let moved = self.alloc(new);
                    if !moved.is_null() {
                        moved.copy_from_nonoverlapping(block, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    moved
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_for() {
        let mut last = (0, 16);
        for size in 1..=CLASS_MAX {
            let (class, room) = class_of(size);
            assert!(class < CLASSES && room >= size && room % 16 == 0, "{size}: {class} {room}");
            assert!(class == last.0 && room == last.1 || class == last.0 + 1 && room > last.1);
            last = (class, room);
        }
        assert_eq!(last, (CLASSES - 1, CLASS_MAX));
    }

    #[test]
    fn blocks_are_aligned_and_apart() {
        for align in [1, 16, 32, 64, 512, 4096, 1 << 16] {
            for size in [1, 24, 100, 4096, 70_000, 3 << 20] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the layout's size is not 0; each block is freed once with its layout.
                unsafe {
                    let blocks = [(); 5].map(|()| Memory.alloc(layout));
                    for (i, &block) in blocks.iter().enumerate() {
                        assert_eq!(block as usize % align, 0, "{layout:?}");
                        block.write_bytes(i as u8, size);
                    }
                    for (i, &block) in blocks.iter().enumerate() {
                        assert!((0..size).all(|at| *block.add(at) == i as u8), "{layout:?}");
                        Memory.dealloc(block, layout);
                    }
                    let zero = Memory.alloc_zeroed(layout);
                    assert!((0..size).all(|at| *zero.add(at) == 0));
                    Memory.dealloc(zero, layout);
                }
            }
        }
    }

    #[test]
    fn growing_keeps_the_content() {
        let mut grown = Vec::new();
        for i in 0..2_000_000_u32 {
            grown.push(i);
        }
        assert!(grown.iter().enumerate().all(|(i, &value)| i == value as usize));
        grown.truncate(10);
        grown.shrink_to_fit();
        assert_eq!(grown, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn threads_share_it() {
        std::thread::scope(|scope| {
            for seed in 0..4_usize {
                scope.spawn(move || {
                    let mut held: Vec<Vec<usize>> = Vec::new();
                    for round in 0..20_000 {
                        let size = (round * 31 + seed * 7) % 700 + 1;
                        held.push(vec![round ^ seed; size]);
                        if held.len() > 50 {
                            let gone = held.swap_remove(round % 50);
                            assert!(gone.iter().all(|&value| value == gone[0]));
                        }
                    }
                });
            }
        });
    }
}
