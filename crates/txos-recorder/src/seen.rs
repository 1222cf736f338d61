//! Whether a look was recorded already.
//!
//! # Safety
//!
//! The area is mapped as long as the process lives, shared with others; its words are read and
//! written by atomic instructions only, at offsets that are constants below its size. A path is read
//! page by page, each after [`can_be_read`] has said that it is there: a call with a bad address is reported,
//! and the kernel answers it.
#![allow(unsafe_code)]

use core::ffi::c_char;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::area::{self, Class, Key, Start};
use crate::c;
use crate::gate::{self, reported};

/// The area; null: every call is reported.
static AREA: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// Where the C library keeps the program's break; null: not known.
static BREAK: AtomicPtr<usize> = AtomicPtr::new(null_mut());
/// The break when the library was loaded.
static HEAP: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Where the main thread's stack began; 0: not known.
static STACK_END: AtomicUsize = AtomicUsize::new(0);
/// The device of `/proc`, whose links mean something else at each look.
static PROC: AtomicU64 = AtomicU64::new(0);

/// A look with a key.
pub struct Look {
    area: *const u8,
    key: u64,
}

impl Look {
    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: see the module's heading; every table is aligned to 8 bytes.
        unsafe { &*self.area.add(at).cast::<AtomicU64>() }
    }

    /// Whether it was recorded.
    #[inline]
    pub fn is_seen(&self) -> bool {
        for step in 0..area::WINDOW {
            let at = area::SEEN + 8 * area::slot(self.key, step, area::SEEN_SLOTS);
            if self.word(at).load(Ordering::Acquire) == self.key {
                return true;
            }
        }
        for step in 0..area::WINDOW {
            let word = self.word(area::AHEAD + 8 * area::slot(self.key, step, area::AHEAD_SLOTS));
            let found = word.load(Ordering::Acquire);
            if found == self.key {
                // The supervisor may take it back at this moment: then it is reported.
                let used = self.key & !1;
                let swap =
                    word.compare_exchange(self.key, used, Ordering::AcqRel, Ordering::Acquire);
                return swap.is_ok() || swap == Err(used);
            }
            if found == self.key & !1 {
                return true;
            }
        }
        false
    }

    /// It was reported, and is recorded now.
    pub fn remember(&self) {
        for step in 0..area::WINDOW {
            let at = area::SEEN + 8 * area::slot(self.key, step, area::SEEN_SLOTS);
            let word = self.word(at);
            if word.load(Ordering::Relaxed) == 0 {
                let swap = word.compare_exchange(0, self.key, Ordering::AcqRel, Ordering::Relaxed);
                if swap.is_ok() {
                    return;
                }
            }
        }
        // One that is there has to go, and be reported again: another one each time.
        let step = (self.key >> 20) as usize % area::WINDOW;
        let at = area::SEEN + 8 * area::slot(self.key, step, area::SEEN_SLOTS);
        self.word(at).store(self.key, Ordering::Release);
    }
}

/// A look at a path, if it can have a key.
///
/// # Safety
/// The area is mapped, if there is one. `path` may be any address.
#[inline]
pub unsafe fn look(dir: i32, path: *const c_char, class: Class) -> Option<Look> {
    let area: *const u8 = AREA.load(Ordering::Acquire);
    if area.is_null() {
        return None;
    }
    // SAFETY: see the module's heading.
    let (off, generation) = unsafe {
        (
            (*area.add(area::AT_OFF).cast::<AtomicU32>()).load(Ordering::Acquire),
            (*area.add(area::AT_GENERATION).cast::<AtomicU64>()).load(Ordering::Acquire),
        )
    };
    if off != 0 || !can_be_read(path) {
        return None;
    }
    // SAFETY: it can be read.
    let first = unsafe { path.read() } as u8;
    let start = match first {
        0 => return None,
        b'/' => Start::default(),
        _ => start_at(dir)?,
    };
    let mut key = Key::new(generation, class, &start);
    let mut at = path;
    let mut len = 0;
    loop {
        // SAFETY: no byte before it was the last, and its page can be read.
        let byte = unsafe { at.read() } as u8;
        if byte == 0 {
            break;
        }
        key = key.byte(byte);
        at = at.wrapping_add(1);
        len += 1;
        if len >= c::PATH_MAX || ((at as usize).is_multiple_of(PAGE) && !can_be_read(at)) {
            return None;
        }
    }
    // SAFETY: so many bytes were read.
    if first == b'/' && len >= 5 && unsafe { is_proc(path) } {
        return None;
    }
    Some(Look { area, key: key.finish() })
}

/// Whether there is an area: if not, nothing is gained by asking.
pub fn is_on() -> bool {
    !AREA.load(Ordering::Relaxed).is_null()
}

const PAGE: usize = 4096;

/// Whether the page of an address can be read. What is on the stack of the main thread, above the
/// frame of this function, is there, and so is the C library's heap up to the program's break; of
/// everything else the kernel is asked, by a call that looks at one word and changes nothing. (To
/// remember pages would be wrong: the program may unmap them.)
#[inline]
fn can_be_read(path: *const c_char) -> bool {
    let at = path as usize;
    (1 << 16..1 << 47).contains(&at) && (is_on_stack(at) || is_on_heap(at) || is_there(at))
}

/// Whether an address is between the program's break at the beginning and now.
#[inline]
fn is_on_heap(at: usize) -> bool {
    let end = BREAK.load(Ordering::Relaxed);
    // SAFETY: null, or the C library's variable.
    at >= HEAP.load(Ordering::Relaxed) && !end.is_null() && at < unsafe { end.read_volatile() }
}

/// Farther from its beginning nobody can tell one stack from another.
const STACK: usize = 1 << 20;

#[inline]
fn is_on_stack(at: usize) -> bool {
    let here = 0_u8;
    let (low, top) = ((&raw const here) as usize, STACK_END.load(Ordering::Relaxed));
    (low..top).contains(&at) && top - low < STACK
}

fn is_there(at: usize) -> bool {
    /// There is no such operation: the set is read, and that is all.
    const NOTHING: u64 = u64::MAX;
    const WORD: usize = 8;
    let args = [NOTHING, (at & !(WORD - 1)) as u64, 0, WORD as u64, 0, 0];
    // SAFETY: the kernel reads a word, if it can.
    unsafe { reported(c::SYS_rt_sigprocmask, args) != -i64::from(c::EFAULT) }
}

/// Whether an absolute path of five letters or more is in /proc, by the letter.
unsafe fn is_proc(path: *const c_char) -> bool {
    // The kernel takes doubled slashes; such a look is reported.
    // SAFETY: the caller says so.
    let bytes = unsafe { path.cast::<[u8; 5]>().read() };
    bytes == *b"/proc" || bytes[1] == b'/'
}

/// Whether there is a path, and it is empty.
pub fn is_empty(path: *const c_char) -> bool {
    // SAFETY: it can be read.
    can_be_read(path) && unsafe { path.read() } == 0
}

/// The directory that relative paths start at.
fn start_at(dir: i32) -> Option<Start> {
    const MASK: u64 = (c::STATX_INO | c::STATX_BTIME | c::STATX_MNT_ID) as u64;
    const FLAGS: u64 = (c::AT_EMPTY_PATH | c::AT_STATX_DONT_SYNC) as u64;
    let mut found = core::mem::MaybeUninit::<c::Statx>::uninit();
    let args = [dir as u64, c"".as_ptr() as u64, FLAGS, MASK, found.as_mut_ptr() as u64, 0];
    // SAFETY: there is room for the answer, which is whole if there is one. The gate is open: there is an area.
    let found = unsafe {
        if gate::through(c::SYS_statx, args) != 0 {
            return None;
        }
        found.assume_init()
    };
    let dev = u64::from(found.dev_major) << 32 | u64::from(found.dev_minor);
    let is_dir = u32::from(found.mode) & c::S_IFMT == c::S_IFDIR;
    if dev == PROC.load(Ordering::Relaxed) || !is_dir {
        return None;
    }
    let birth = (found.birth_seconds as u64).wrapping_mul(1_000_000_000);
    let birth = birth.wrapping_add(u64::from(found.birth_nanos));
    Some(Start { dev, ino: found.ino, mount: found.mount, birth })
}

/// Maps the area, if the supervisor gives it. `stack_end`: where the main thread's stack began; `break_at`:
/// where the C library keeps the program's break.
pub fn start(stack_end: usize, break_at: *mut usize) {
    STACK_END.store(stack_end, Ordering::Relaxed);
    // SAFETY: it says where the break is.
    let now = unsafe { reported(c::SYS_brk, [0; 6]) };
    if now > 0 {
        HEAP.store(now as usize, Ordering::Relaxed);
        BREAK.store(break_at, Ordering::Relaxed);
    }
    // SAFETY: every call is given what it wants, and what fails is undone.
    unsafe {
        if !gate::open() {
            return;
        }
        let mut proc = core::mem::MaybeUninit::<c::Statx>::uninit();
        let here = c::AT_FDCWD as u64;
        let (path_of_proc, to) = (c"/proc".as_ptr() as u64, proc.as_mut_ptr() as u64);
        let args = [here, path_of_proc, 0, c::STATX_INO.into(), to, 0];
        if gate::through(c::SYS_statx, args) == 0 {
            let proc = proc.assume_init();
            let dev = u64::from(proc.dev_major) << 32 | u64::from(proc.dev_minor);
            PROC.store(dev, Ordering::Relaxed);
        }
        // Told: the supervisor answers it.
        let open = |path: &core::ffi::CStr, access: i32| {
            let flags = access | c::O_CLOEXEC | c::O_NOFOLLOW;
            reported(c::SYS_openat, [here, path.as_ptr() as u64, flags as u64, 0, 0, 0])
        };
        // In this order: see the layout.
        let control = open(area::CONTROL_PATH, c::O_RDONLY);
        if control < 0 {
            return;
        }
        let fd = open(area::PATH, c::O_RDWR);
        if fd < 0 {
            reported(c::SYS_close, [control as u64, 0, 0, 0, 0, 0]);
            return;
        }
        let size = reported(c::SYS_lseek, [fd as u64, 0, c::SEEK_END as u64, 0, 0, 0]);
        let access = (c::PROT_READ | c::PROT_WRITE) as u64;
        let args = [0, area::SIZE as u64, access, c::MAP_SHARED as u64, fd as u64, 0];
        let at = if size == area::SIZE as i64 { reported(c::SYS_mmap, args) } else { -1 };
        reported(c::SYS_close, [fd as u64, 0, 0, 0, 0, 0]);
        let over = (c::MAP_SHARED | c::MAP_FIXED) as u64;
        let args = [at as u64, area::SEEN as u64, c::PROT_READ as u64, over, control as u64, 0];
        let covered = at > 0 && reported(c::SYS_mmap, args) == at;
        reported(c::SYS_close, [control as u64, 0, 0, 0, 0, 0]);
        if at <= 0 {
            return;
        }
        let at = at as *mut u8;
        let fits = covered
            && at.cast::<[u8; 8]>().read() == area::MAGIC
            && at.add(area::AT_VERSION).cast::<u32>().read() == area::VERSION;
        if fits {
            AREA.store(at, Ordering::Release);
        } else {
            reported(c::SYS_munmap, [at as u64, area::SIZE as u64, 0, 0, 0, 0]);
        }
    }
}
