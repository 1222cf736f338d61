//! Which thread-local memory a thread has: the program's, or the library's.
//!
//! Both C libraries find theirs by the register `fs`. The library finds its thread's block by `gs`, which neither uses, when
//! the program traps ([`super::super::entry::trap_beside`]): in the block are the values that `fs` has in turn.
//!
//! The library's memory of the first thread is what the dynamic linker has made. Threads that the program makes, with its own C
//! library or without one, get memory that is laid out alike, and made here: the library's C library knows of none of them. So
//! where the library's code takes locks of that, one thread at a time does, and none while a process is made
//! ([`alone`]).
#![allow(unsafe_code)] // thread pointers

use std::arch::asm;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::super::alloc;
use super::super::tls::{Tls, here};

/// Whether a program was loaded beside the library.
static LOADED: AtomicBool = AtomicBool::new(false);

/// Whether this process runs a program that was loaded beside the library.
#[inline]
pub fn is_loaded() -> bool {
    LOADED.load(Ordering::Relaxed)
}

fn set_pointer(pointer: u64) {
    // SAFETY: whoever calls this has seen that the processor and the kernel have the instruction; the code that follows
    // is made for that pointer.
    unsafe { asm!("wrfsbase {}", in(reg) pointer, options(nostack, preserves_flags)) };
}

/// From here on, until [`to_library`], the thread has the program's memory: only system calls are made meanwhile.
#[inline]
pub fn to_program(tls: &Tls) {
    if is_loaded() {
        set_pointer(tls.programs_pointer.get());
    }
}

/// The thread has the library's memory again.
#[inline]
pub fn to_library(tls: &Tls) {
    if is_loaded() {
        let pointer: u64;
        // SAFETY: as in `set_pointer`; it reads a register.
        unsafe { asm!("rdfsbase {}", out(reg) pointer, options(nostack, preserves_flags)) };
        tls.programs_pointer.set(pointer);
        set_pointer(tls.own_pointer.get());
    }
}

/// Runs code of the program's.
pub fn in_program(tls: &Tls, code: impl FnOnce()) {
    to_program(tls);
    code();
    to_library(tls);
}

/// The calling thread is the first one, and a program is about to be loaded: it begins without thread-local memory.
pub fn begin(tls: &Tls) {
    if let Some(layout) = Layout::find() {
        let _ = LAYOUT.set(layout);
    }
    let own = own_head() as u64;
    FIRST.store(own, Ordering::Relaxed);
    prepare(tls, own, 0);
    LOADED.store(true, Ordering::Relaxed);
}

/// In a thread with the library's memory: its traps find their way.
fn prepare(tls: &Tls, own: u64, programs: u64) {
    tls.own_pointer.set(own);
    tls.programs_pointer.set(programs);
    if let Some(layout) = LAYOUT.get() {
        // SAFETY: it is in the description of this thread, and takes nothing.
        unsafe {
            let number = crate::raw::syscall(libc::SYS_gettid, [0; 6]) as i32;
            ((own as usize + layout.number_at) as *mut i32).write(number);
        }
    }
    let block = std::ptr::from_ref(tls) as u64;
    // SAFETY: as in `set_pointer`. Nothing in the process but the trap's handler uses the register.
    unsafe { asm!("wrgsbase {}", in(reg) block, options(nostack, preserves_flags)) };
}

/// How the thread-local memory of the library's code is laid out.
#[derive(Debug)]
struct Layout {
    /// How many bytes lie below the thread pointer, and how many the C library's description of the thread takes, which begins
    /// there.
    sizes: (usize, usize),
    /// What each object has there.
    objects: Vec<Object>,
    /// How often the dynamic linker has changed the list of those.
    generation: usize,
    /// Where in the description the number of the thread is: by that the C library knows who has a lock.
    number_at: usize,
}

/// The thread-local variables of an object.
#[derive(Clone, Copy, Debug)]
struct Object {
    number: usize,
    /// How far below the thread pointer they begin.
    below: usize,
    /// What they are at first, and how many bytes of that there are; the rest is zero.
    first: (usize, usize),
}

static LAYOUT: OnceLock<Layout> = OnceLock::new();

/// What the C library has at the beginning of a thread's description: itself, and what compiled code and the C library
/// look at (`tcbhead_t`).
#[repr(C)]
struct Head {
    own: u64,
    vector: u64,
    this: u64,
    several: i32,
    _scope: i32,
    _information: u64,
    stack_guard: u64,
    pointer_guard: u64,
}

/// An entry of the vector by which the dynamic linker finds an object's variables: the address, and what to free.
type Entry = [usize; 2];

/// The description of the thread that has this pointer.
fn own_head() -> *mut Head {
    let own: u64;
    // SAFETY: the description begins with its own address.
    unsafe { asm!("mov {}, fs:[0]", out(reg) own, options(nostack, readonly)) };
    own as *mut Head
}

/// A number that the C library tells debuggers of.
fn told(name: &CStr, index: usize) -> Option<usize> {
    // SAFETY: the name ends with its zero. What it leads to are so many numbers, which never change.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        (!found.is_null()).then(|| *found.cast::<u32>().add(index) as usize)
    }
}

impl Layout {
    /// How it is in the first thread. `None`: the C library does not tell.
    fn find() -> Option<Layout> {
        unsafe extern "C" fn note(
            info: *mut libc::dl_phdr_info,
            _: usize,
            found: *mut c_void,
        ) -> i32 {
            const TLS: u32 = 7;
            // SAFETY: the dynamic linker describes an object; the list is of `find`, which waits.
            let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<Object>>()) };
            let headers = info.dlpi_phdr;
            let all = (0..usize::from(info.dlpi_phnum)).map(|index| {
                // SAFETY: there are so many.
                unsafe { &*headers.add(index) }
            });
            let own = own_head() as usize;
            let start = info.dlpi_tls_data as usize;
            for header in all.filter(|header| header.p_type == TLS && start != 0 && start < own) {
                found.push(Object {
                    number: info.dlpi_tls_modid,
                    below: own - start,
                    first: ((info.dlpi_addr + header.p_vaddr) as usize, header.p_filesz as usize),
                });
            }
            0
        }
        let mut objects: Vec<Object> = Vec::new();
        // SAFETY: the list lives until the answer.
        unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut objects).cast()) };
        // SAFETY: the vector is the first thread's; its first word is the generation.
        let generation = unsafe { *((*own_head()).vector as *const usize) };
        let below = objects.iter().map(|object| object.below).max()?;
        Some(Layout {
            sizes: (below.next_multiple_of(64), told(c"_thread_db_sizeof_pthread", 0)?),
            objects,
            generation,
            number_at: told(c"_thread_db_pthread_tid", 2)?,
        })
    }
}

/// The library's thread-local memory for a thread of the program's.
#[derive(Debug)]
pub struct Own(u64);

/// Memory of threads that have ended, for others.
static LEFT: Mutex<Vec<u64>> = Mutex::new(Vec::new());

fn left() -> MutexGuard<'static, Vec<u64>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Own {
    /// Memory for a new thread, made in one with the library's. `None`: there is none to be had.
    pub fn new() -> Option<Own> {
        let layout = LAYOUT.get()?;
        if let Some(again) = left().pop() {
            return Some(Own(again));
        }
        let count = layout.objects.iter().map(|object| object.number).max()? + 1;
        let vector = (count + 1) * size_of::<Entry>();
        let (below, description) = layout.sizes;
        let start = alloc::map((below + description + vector).next_multiple_of(4096));
        if start.is_null() {
            return None;
        }
        // SAFETY: there is so much room, as zeroes, in which everything is aligned; what the variables are at first does not
        // change.
        unsafe {
            let pointer = start.add(below);
            let vector = pointer.add(description.next_multiple_of(16)).cast::<Entry>();
            vector.write([count, 0]);
            let vector = vector.add(1);
            vector.write([layout.generation, 0]);
            (1..count).for_each(|number| vector.add(number).write([usize::MAX, 0]));
            for object in &layout.objects {
                let place = pointer.sub(object.below);
                std::ptr::copy_nonoverlapping(object.first.0 as *const u8, place, object.first.1);
                vector.add(object.number).write([place as usize, 0]);
            }
            let (head, present) = (&mut *pointer.cast::<Head>(), &*own_head());
            head.own = pointer as u64;
            head.this = pointer as u64;
            head.vector = vector as u64;
            head.several = 1;
            head.stack_guard = present.stack_guard;
            head.pointer_guard = present.pointer_guard;
            Some(Own(pointer as u64))
        }
    }

    /// What a thread that ends has, unless the C library has made it.
    pub fn of_thread(tls: &Tls) -> Option<Own> {
        (is_loaded() && tls.own_pointer.get() != FIRST.load(Ordering::Relaxed))
            .then(|| Own(tls.own_pointer.get()))
    }

    /// The thread pointer with which a thread has it.
    pub fn pointer(&self) -> u64 {
        self.0
    }

    /// Gives it back: no thread has it any more.
    pub fn free(&self) {
        left().push(self.0);
    }
}

/// The thread pointer of the first thread.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// Whether a thread may be using what there is once for all threads: what is here, and what the library's C library has.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// In a child of the process: the thread that made it goes on alone.
pub fn after_fork() {
    TAKEN.store(false, Ordering::Release);
}

/// Does what no other thread does at the same time: what may need locks that a new process would have as they are then, or the
/// making of one.
pub fn alone<R>(work: impl FnOnce() -> R) -> R {
    while TAKEN.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
    let result = work();
    TAKEN.store(false, Ordering::Release);
    result
}

/// What a new thread or process of the program's begins with.
#[derive(Debug)]
pub struct Pointers {
    /// The library's; `None`: that of who makes it, of which it has a copy.
    pub own: Option<Own>,
    /// The program's.
    pub programs: u64,
}

impl Pointers {
    /// It has begun, with the library's memory.
    pub fn take(self) {
        let tls = here();
        let own = match self.own {
            Some(own) => {
                // It may have been another thread's.
                tls.clear();
                own.pointer()
            }
            None => tls.own_pointer.get(),
        };
        prepare(tls, own, self.programs);
    }
}
