//! What a child that its parent waits for (`vfork(2)`) changes of the parent's stack.
//!
//! Natively the child runs in its parent's memory until it runs another program or ends. If it can't run one, it says why in a variable
//! of the function that has made it: so `posix_spawn(3)` knows. Here it has a copy of the memory, because the library's own is part of that, and
//! the library is in the middle of a call of the parent's. So the child hands back the numbers that it has changed on the stack, and the
//! parent, which the kernel has held until then, takes these over. It does not get what the child changes elsewhere, nor addresses:
//! what they lead to is in the child's memory alone. And it gets nothing where the call was not made on the stack of the process's first
//! thread: other threads' stacks have their thread-local memory at the top, the library's with it, and an alternate stack is where the child's
//! own traps go.
#![allow(unsafe_code)] // a page that two processes have, the program's stack

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::raw::{check, syscall};
use crate::user::UserSlice;

/// So much of the stack, upwards from where the parent has made its call, in words of 8 bytes.
const SIZE: usize = 512;
/// Nothing is mapped so far from the first thread's stack but that.
const STACK_MAX: u64 = 64 << 20;
/// Below this there is no memory.
const SMALL: u64 = 1 << 16;

/// What both have.
#[repr(C)]
struct Page {
    /// Not zero: the rest counts.
    is_there: AtomicU32,
    changed: [bool; SIZE],
    words: [u64; SIZE],
}

/// Where a child puts it, and of what it is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    page: NonNull<Page>,
    stack: UserSlice,
}

// SAFETY: the parent looks at the page when the child is done with it.
unsafe impl Send for Place {}

/// What a child's stack was when it began.
struct Before {
    place: Place,
    words: Vec<u64>,
}

/// This process's, if it is such a child.
static BEFORE: AtomicPtr<Before> = AtomicPtr::new(null_mut());

impl Place {
    /// For a child of a call that was made with this stack pointer. `None`: it hands nothing back, or there is no memory.
    pub fn new(stack_pointer: u64) -> Option<Place> {
        let stack_pointer = stack_pointer.next_multiple_of(8);
        if !is_on_first_stack(stack_pointer) {
            return None;
        }
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let words = [0, size_of::<Page>() as u64, protection as u64, flags as u64, u64::MAX, 0];
        // SAFETY: it is mapped where nothing is.
        let at = check(unsafe { syscall(libc::SYS_mmap, words) }).ok()?;
        let page = NonNull::new(at as *mut Page)?;
        // SAFETY: it is the program's stack, which stays while its thread is in the call.
        let stack = unsafe { UserSlice::new(stack_pointer, 8 * SIZE as u64) };
        Some(Place { page, stack })
    }

    /// In the parent, once the child runs another program or has ended: takes over what it has handed back.
    pub fn take(self) {
        // SAFETY: the page is mapped, and the child does not write to it any more.
        let page = unsafe { self.page.as_ref() };
        if page.is_there.load(Ordering::Acquire) != 0 {
            let words = page.words.iter().enumerate().filter(|(at, _)| page.changed[*at]);
            for (at, word) in words {
                let _ = self.stack.after(8 * at as u64).write(&word.to_ne_bytes());
            }
        }
        let words = [self.page.as_ptr() as u64, size_of::<Page>() as u64, 0, 0, 0, 0];
        // SAFETY: nobody has it any more; a child has its own mapping.
        unsafe { syscall(libc::SYS_munmap, words) };
    }
}

/// Whether an address is on the stack of the process's first thread. There the kernel has put a program's random number, above all else.
fn is_on_first_stack(address: u64) -> bool {
    // SAFETY: it takes a number.
    let top = unsafe { libc::getauxval(libc::AT_RANDOM) };
    (top.saturating_sub(STACK_MAX)..top).contains(&address)
}

fn words_of(stack: UserSlice) -> Option<Vec<u64>> {
    let there = stack.readable().ok()?.len() as u64;
    let bytes = stack.first(there & !7).read().ok()?;
    Some(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

/// In a child that begins. `None`: its parent does not wait for it, or shares no memory with it.
pub fn begins(place: Option<Place>) {
    let before =
        place.and_then(|place| Some(Box::new(Before { place, words: words_of(place.stack)? })));
    // What its parent may have had here is the parent's.
    BEFORE.store(before.map_or(null_mut(), Box::into_raw), Ordering::Relaxed);
}

/// In a child that is about to run another program, or to end.
pub fn hand_back() {
    // SAFETY: it is never freed.
    let Some(before) = (unsafe { BEFORE.load(Ordering::Relaxed).as_ref() }) else { return };
    let stack = before.place.stack.first(8 * before.words.len() as u64);
    // SAFETY: the page is mapped, and the parent waits.
    let page = unsafe { &mut *before.place.page.as_ptr() };
    if page.is_there.load(Ordering::Relaxed) != 0 {
        // Of a program that could not be run.
        page.is_there.store(0, Ordering::Release);
    }
    let Some(now) = words_of(stack).filter(|now| *now != before.words) else { return };
    for (at, (&now, &then)) in now.iter().zip(&before.words).enumerate() {
        (page.changed[at], page.words[at]) = (now != then && is_number(now), now);
    }
    page.is_there.store(1, Ordering::Release);
}

/// Whether a word is no address in the child's memory.
fn is_number(word: u64) -> bool {
    // SAFETY: nothing is written there.
    word < SMALL || unsafe { UserSlice::new(word, 1) }.readable().is_err()
}
