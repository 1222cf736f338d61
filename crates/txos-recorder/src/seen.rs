//! Whether a look was recorded already.
//!
//! # Safety
//!
//! The area is mapped as long as the process lives, shared with others; its words are read and
//! written by atomic instructions only, at offsets that are constants below its size. A path is read
//! as the C string that the program says it is. (An address that can't be read ends the program, where
//! the kernel would answer `EFAULT`; null and the like are told.)
#![allow(unsafe_code)]

use core::ffi::c_char;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::area::{self, Class, Key, Start};
use crate::c;
use crate::gate::{self, told};

/// The area; null: every call is told.
static AREA: AtomicPtr<u8> = AtomicPtr::new(null_mut());
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
                // The supervisor may take it back at this moment: then it is told.
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

    /// It was told, and is recorded now.
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
        // One that is there has to go, and be told again: another one each time.
        let step = (self.key >> 20) as usize % area::WINDOW;
        let at = area::SEEN + 8 * area::slot(self.key, step, area::SEEN_SLOTS);
        self.word(at).store(self.key, Ordering::Release);
    }
}

/// A look at a path, if it can have a key.
///
/// # Safety
/// `path` is a C string or can't be read, or is null.
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
    if off != 0 || !is_plausible(path) {
        return None;
    }
    // SAFETY: the caller says so.
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
        // SAFETY: no byte before it was the last.
        let byte = unsafe { at.read() } as u8;
        if byte == 0 {
            break;
        }
        key = key.byte(byte);
        // SAFETY: as above.
        at = unsafe { at.add(1) };
        len += 1;
        if len >= c::PATH_MAX {
            return None;
        }
    }
    // SAFETY: so many bytes were read.
    if first == b'/' && len >= 5 && unsafe { is_proc(path) } {
        return None;
    }
    Some(Look { area, key: key.finish() })
}

/// An address that a path can have at all: a program that tries others out is told `EFAULT` by the
/// kernel.
fn is_plausible(path: *const c_char) -> bool {
    path as usize >= 1 << 16 && (path as usize) < 1 << 47
}

/// Whether an absolute path of five letters or more is in /proc, by the letter.
unsafe fn is_proc(path: *const c_char) -> bool {
    // The kernel takes doubled slashes; whoever writes such is told.
    // SAFETY: the caller says so.
    let bytes = unsafe { path.cast::<[u8; 5]>().read() };
    bytes == *b"/proc" || bytes[1] == b'/'
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

/// Maps the area, if the supervisor gives it.
pub fn start() {
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
        let flags = c::O_RDWR | c::O_CLOEXEC | c::O_NOFOLLOW;
        let fd = told(c::SYS_openat, [here, area::PATH.as_ptr() as u64, flags as u64, 0, 0, 0]);
        if fd < 0 {
            return;
        }
        let size = told(c::SYS_lseek, [fd as u64, 0, c::SEEK_END as u64, 0, 0, 0]);
        let access = (c::PROT_READ | c::PROT_WRITE) as u64;
        let args = [0, area::SIZE as u64, access, c::MAP_SHARED as u64, fd as u64, 0];
        let at = if size == area::SIZE as i64 { told(c::SYS_mmap, args) } else { -1 };
        told(c::SYS_close, [fd as u64, 0, 0, 0, 0, 0]);
        if at <= 0 {
            return;
        }
        let at = at as *mut u8;
        let fits = at.cast::<[u8; 8]>().read() == area::MAGIC
            && at.add(area::AT_VERSION).cast::<u32>().read() == area::VERSION;
        if fits {
            AREA.store(at, Ordering::Release);
        } else {
            told(c::SYS_munmap, [at as u64, area::SIZE as u64, 0, 0, 0, 0]);
        }
    }
}
