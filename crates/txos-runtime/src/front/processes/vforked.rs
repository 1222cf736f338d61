//! What a child that its parent waits for (`vfork(2)`) changes of the parent's stack.
//!
//! Natively the child runs in its parent's memory until it runs another program or ends. If it can't run one, it says why in a variable
//! of the function that has made it: so `posix_spawn(3)` knows. Here it has a copy of the memory, because the library's own is part of that, and
//! the library is in the middle of a call of the parent's. So the child hands back what it has changed of the stack, and the
//! parent, which the kernel has held until then, takes that over. It does not get what the child changes elsewhere.
#![allow(unsafe_code)] // a page that two processes have, the program's stack

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::raw::{check, syscall};
use crate::user::UserSlice;

/// So much of the stack, upwards from where the parent has made its call, in bytes.
const SIZE: usize = 4096;

/// What both have.
#[repr(C)]
struct Page {
    /// Not zero: the rest counts.
    is_there: AtomicU32,
    changed: [bool; SIZE],
    bytes: [u8; SIZE],
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
    bytes: Vec<u8>,
}

/// This process's, if it is such a child.
static BEFORE: AtomicPtr<Before> = AtomicPtr::new(null_mut());

impl Place {
    /// For a child of a call that was made with this stack pointer. `None`: there is no memory.
    pub fn new(stack_pointer: u64) -> Option<Place> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let words = [0, size_of::<Page>() as u64, protection as u64, flags as u64, u64::MAX, 0];
        // SAFETY: it is mapped where nothing is.
        let at = check(unsafe { syscall(libc::SYS_mmap, words) }).ok()?;
        let page = NonNull::new(at as *mut Page)?;
        // SAFETY: it is the program's stack, which stays while its thread is in the call.
        let stack = unsafe { UserSlice::new(stack_pointer, SIZE as u64) };
        Some(Place { page, stack })
    }

    /// In the parent, once the child runs another program or has ended: takes over what it has handed back.
    pub fn take(self) {
        // SAFETY: the page is mapped, and the child does not write to it any more.
        let page = unsafe { self.page.as_ref() };
        if page.is_there.load(Ordering::Acquire) != 0 {
            for (at, _) in page.changed.iter().enumerate().filter(|(_, changed)| **changed) {
                let _ = self.stack.after(at as u64).write(&page.bytes[at..=at]);
            }
        }
        let words = [self.page.as_ptr() as u64, size_of::<Page>() as u64, 0, 0, 0, 0];
        // SAFETY: nobody has it any more; a child has its own mapping.
        unsafe { syscall(libc::SYS_munmap, words) };
    }
}

/// In a child that begins. `None`: its parent does not wait for it, or shares no memory with it.
pub fn begins(place: Option<Place>) {
    let before = place.and_then(|place| {
        let bytes = place.stack.readable().ok()?.to_vec();
        Some(Box::new(Before { place, bytes }))
    });
    // What its parent may have had here is the parent's.
    BEFORE.store(before.map_or(null_mut(), Box::into_raw), Ordering::Relaxed);
}

/// In a child that is about to run another program, or to end.
pub fn hand_back() {
    // SAFETY: it is never freed.
    let Some(before) = (unsafe { BEFORE.load(Ordering::Relaxed).as_ref() }) else { return };
    let stack = before.place.stack.first(before.bytes.len() as u64);
    let Ok(now) = stack.read() else { return };
    if now == before.bytes {
        return;
    }
    // SAFETY: the page is mapped, and the parent waits.
    let page = unsafe { &mut *before.place.page.as_ptr() };
    page.is_there.store(0, Ordering::Release);
    for (at, (now, then)) in now.iter().zip(&before.bytes).enumerate() {
        (page.changed[at], page.bytes[at]) = (now != then, *now);
    }
    page.is_there.store(1, Ordering::Release);
}
