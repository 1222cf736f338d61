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

/// What classes begin with: a process that runs for a moment uses little of each, and touches few pages.
static COMMON: Class = Class::new();
/// The first piece of a class. Each further one is twice as large.
const PIECE: usize = 256;
/// The largest piece that is part of a chunk; a larger one is a chunk.
const PIECE_MAX: usize = CHUNK / 8;

/// The allocator.
#[derive(Debug)]
struct Memory;

/// The free blocks of one size.
#[repr(align(64))] // one cache line each: threads that use different sizes don't meet
struct Class {
    locked: AtomicBool,
    /// The first free block; each holds the address of the next.
    free: AtomicPtr<u8>,
    /// What is left of the last piece; `end` 0: nothing.
    bump: AtomicUsize,
    end: AtomicUsize,
    /// How large that was.
    piece: AtomicUsize,
}

impl Class {
    const fn new() -> Class {
        Class {
            locked: AtomicBool::new(false),
            free: AtomicPtr::new(null_mut()),
            bump: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            piece: AtomicUsize::new(0),
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
        let piece = (2 * self.piece.load(Ordering::Relaxed)).max(PIECE).max(size);
        let (start, piece) = match piece {
            ..=PIECE_MAX => (COMMON.part(piece, size), piece),
            _ => {
                let chunk = CHUNK.max(size.next_multiple_of(PAGE));
                (map(chunk), chunk)
            }
        };
        if !start.is_null() {
            self.piece.store(piece.min(CHUNK), Ordering::Relaxed);
            self.begin(start as usize, size, piece);
        }
        start
    }

    /// A part of a chunk, aligned as blocks of a size are.
    fn part(&self, piece: usize, size: usize) -> *mut u8 {
        let align = PAGE.min(1 << size.trailing_zeros());
        self.lock();
        let (bump, end) = (self.bump.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        let start = bump.next_multiple_of(align);
        let start = if end >= start + piece {
            self.bump.store(start + piece, Ordering::Relaxed);
            start as *mut u8
        } else {
            let start = map(CHUNK);
            if !start.is_null() {
                self.begin(start as usize, piece, CHUNK);
            }
            start
        };
        self.unlock();
        start
    }

    /// Goes on in another place, of which so much is used.
    fn begin(&self, start: usize, used: usize, size: usize) {
        self.end.store(0, Ordering::Relaxed);
        self.bump.store(start + used, Ordering::Relaxed);
        self.end.store(start + size, Ordering::Relaxed);
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

/// What is mapped here: memory of the runtime's own, which a checkpoint leaves alone. One line each, in no order.
static OWN: Own = Own {
    locked: AtomicBool::new(false),
    list: AtomicPtr::new(null_mut()),
    len: AtomicUsize::new(0),
    room: AtomicUsize::new(0),
};

/// Where one mapping starts and ends.
type Range = [u64; 2];

/// A list that grows, in memory of its own. Each change takes effect by one store, as those of a [`Class`].
#[repr(C)]
struct Own {
    list: AtomicPtr<Range>,
    len: AtomicUsize,
    room: AtomicUsize,
    locked: AtomicBool,
}

impl Own {
    fn lock(&self) {
        while self.locked.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
    }

    fn unlock(&self) {
        self.locked.store(false, Ordering::Release);
    }

    /// Notes a mapping. Whether there was room for that.
    fn add(&self, start: u64, size: u64) -> bool {
        self.lock();
        let (len, room) = (self.len.load(Ordering::Relaxed), self.room.load(Ordering::Relaxed));
        let fits = len < room || self.grow(room);
        if fits {
            // SAFETY: the list has room for one more, and the lock is held.
            unsafe { self.list.load(Ordering::Relaxed).add(len).write([start, start + size]) };
            self.len.store(len + 1, Ordering::Release);
        }
        self.unlock();
        fits
    }

    fn grow(&self, room: usize) -> bool {
        let larger = (room * 2).max(PAGE / size_of::<Range>());
        let bytes = larger * size_of::<Range>();
        let new = map_any(bytes).cast::<Range>();
        if new.is_null() {
            return false;
        }
        let (old, len) = (self.list.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        // SAFETY: the new list is larger than the old one, and nobody else knows of it.
        unsafe {
            if !old.is_null() {
                new.copy_from_nonoverlapping(old, len);
                unmap_any(old.cast(), room * size_of::<Range>());
            }
        }
        self.list.store(new, Ordering::Relaxed);
        self.room.store(larger, Ordering::Relaxed);
        true
    }

    /// Forgets a mapping.
    fn remove(&self, start: u64) {
        self.lock();
        let (list, len) = (self.list.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        for at in (0..len).rev() {
            // SAFETY: both are in the list, and the lock is held.
            unsafe {
                if list.add(at).read()[0] == start {
                    list.add(at).write(list.add(len - 1).read());
                    self.len.store(len - 1, Ordering::Release);
                    break;
                }
            }
        }
        self.unlock();
    }
}

/// The runtime's own memory: where each piece starts and ends.
pub fn own() -> Vec<Range> {
    let mut copy = Vec::new();
    loop {
        // Room for what making room maps as well.
        copy.reserve(OWN.len.load(Ordering::Acquire) + 8);
        OWN.lock();
        let (list, len) = (OWN.list.load(Ordering::Relaxed), OWN.len.load(Ordering::Relaxed));
        let fits = len < copy.capacity();
        if fits && !list.is_null() {
            let room = OWN.room.load(Ordering::Relaxed) * size_of::<Range>();
            copy.push([list as u64, (list as usize + room) as u64]);
            // SAFETY: there are so many, and the lock is held. The copy has room for them.
            unsafe {
                let to: *mut Range = copy.as_mut_ptr();
                to.add(1).copy_from_nonoverlapping(list, len);
                copy.set_len(len + 1);
            }
        }
        OWN.unlock();
        if fits {
            return copy;
        }
        copy.clear();
    }
}

/// What was the runtime's own memory in a copy of this process. `read` gives bytes of the copy's memory.
///
/// # Errors
/// Those of `read`.
pub fn own_in_copy<E>(
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Vec<Range>, E> {
    let mut head = [0_u64; 3];
    read((&raw const OWN) as u64, bytes_of(&mut head))?;
    let [list, len, room] = head;
    let mut copy: Vec<Range> = vec![[0; 2]; usize::try_from(len).unwrap_or(0)];
    if len > 0 {
        read(list, bytes_of(&mut copy))?;
        copy.push([list, list + room * size_of::<Range>() as u64]);
    }
    Ok(copy)
}

/// Numbers as the bytes that they are.
fn bytes_of<T: crate::user::Plain>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: any bytes are such numbers, and they have no gaps.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// New zeroed pages; null if there are none.
pub fn map(size: usize) -> *mut u8 {
    let start = map_any(size);
    if start.is_null() || note(start, size) { start } else { null_mut() }
}

/// Notes a new mapping; if that can't be, it is gone.
fn note(start: *mut u8, size: usize) -> bool {
    let noted = OWN.add(start as u64, size as u64);
    if !noted {
        // SAFETY: it was just mapped.
        unsafe { unmap_any(start, size) };
    }
    noted
}

/// New zeroed pages that nobody has noted.
fn map_any(size: usize) -> *mut u8 {
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
    OWN.remove(start as u64);
    // SAFETY: as the caller says.
    unsafe { unmap_any(start, size) };
}

/// Gives pages back that nobody has noted, or no more.
///
/// # Safety
/// As [`unmap`].
unsafe fn unmap_any(start: *mut u8, size: usize) {
    // SAFETY: as the caller says.
    unsafe { syscall(libc::SYS_munmap, [start as u64, size as u64, 0, 0, 0, 0]) };
}

/// What was mapped there by [`map`] has gone elsewhere, and is not the runtime's any more.
pub fn disown(start: u64) {
    OWN.remove(start);
}

/// In a child that was forked: whatever other threads were doing, they are not here to finish it.
pub fn after_fork() {
    for class in &POOL {
        class.unlock();
    }
    COMMON.unlock();
    OWN.unlock();
}

fn map_large(layout: Layout) -> *mut u8 {
    let size = layout.size().next_multiple_of(PAGE);
    if layout.align() <= PAGE {
        return map(size);
    }
    let start = map_any(size + layout.align());
    if start.is_null() {
        return start;
    }
    let aligned = (start as usize).next_multiple_of(layout.align());
    let (before, after) = (aligned - start as usize, start as usize + layout.align() - aligned);
    // SAFETY: the pages around the aligned part were just mapped, and nobody knows of them.
    unsafe {
        if before > 0 {
            unmap_any(start, before);
        }
        if after > 0 {
            unmap_any((aligned + size) as *mut u8, after);
        }
    }
    let aligned = aligned as *mut u8;
    if note(aligned, size) { aligned } else { null_mut() }
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
                if answer < 0 {
                    return null_mut();
                }
                OWN.remove(block as u64);
                let moved = answer as *mut u8;
                if note(moved, to) { moved } else { null_mut() }
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
    fn what_is_mapped_is_known_as_own() {
        let is_own = |at: u64| own().iter().any(|[start, end]| (*start..*end).contains(&at));
        let mut held: Vec<Vec<u8>> = Vec::new();
        for size in [5 << 20, 2 << 20, 9 << 20] {
            held.push(vec![1; size]);
        }
        held[1].resize(30 << 20, 2);
        for block in &held {
            let start = block.as_ptr() as u64;
            assert!(is_own(start) && is_own(start + block.len() as u64 - 1));
        }
        assert!(is_own(&raw const *Box::new(1_u8) as u64));
        let local = 0;
        assert!(!is_own(&raw const local as u64), "the stack of a test");
        let copy = own_in_copy(|at, to| {
            // SAFETY: the copy is this process itself.
            unsafe { (at as *const u8).copy_to(to.as_mut_ptr(), to.len()) };
            Ok::<_, ()>(())
        });
        let start = held[0].as_ptr() as u64;
        assert!(copy.unwrap().iter().any(|[from, to]| (*from..*to).contains(&start)));
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
