//! The functions of the C library that ask first.
//!
//! Each makes the system call that the C library's own makes, with its arguments; `errno` is set as
//! there. Opening is a cancellation point, so a process with several threads opens by the C
//! library's function, and the kernel reports it.
//!
//! What a call looks at, and by which arguments, the supervisor and this library read from one table
//! ([`calls::look_of`]). A call that has no row there, or one that changes something, doesn't compile.
//!
//! # Safety
//!
//! The functions have the names, arguments and results of the C library's; what they are given is the
//! program's. Functions with a variable argument list are called like those without where their
//! arguments are numbers and addresses.
#![allow(unsafe_code)]

use core::arch::asm;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::area::Class;
use crate::c::{self, AT_FDCWD};
use crate::calls::{self, Aspects};
use crate::gate::{reported, through};
use crate::realpath::{self, Looks, Outcome, Resolved};
use crate::seen;

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
    fn abort() -> !;
}

const RTLD_NEXT: *mut c_void = -1_isize as *mut c_void;

/// The C library's `openat`; null: not known.
static OPENAT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Its `realpath`.
static REALPATH: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Its `__realpath_chk`.
static REALPATH_CHK: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// The address of a symbol that need not exist.
macro_rules! weak {
    ($name:literal) => {{
        let address: *const c_void;
        // SAFETY: it reads a word that the dynamic linker has filled in.
        unsafe {
            asm!(
                concat!(".weak ", $name),
                concat!("mov {address}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                address = out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}

/// An answer of the kernel as the C library gives it.
fn answer(answer: i64) -> i64 {
    if (-4095..0).contains(&answer) {
        // SAFETY: the thread's own errno.
        unsafe { *__errno_location() = -answer as c_int };
        return -1;
    }
    answer
}

/// Makes a call that looks at a path; reported unless it was recorded already. Gives the kernel's answer.
unsafe fn ask(number: i64, args: [u64; 6], dir: c_int, path: *const c_char, class: Class) -> i64 {
    // SAFETY: the program's call with the program's arguments; there is a look only if there is a gate.
    unsafe {
        let Some(look) = seen::look(dir, path, class) else { return reported(number, args) };
        if look.is_seen() {
            return through(number, args);
        }
        let result = reported(number, args);
        // Interrupted while it waited for the supervisor, or there is none any more.
        if result != -i64::from(c::EINTR) && result != -i64::from(c::ENOSYS) {
            look.remember();
        }
        result
    }
}

/// Makes a call that the table has as a look, and gives the kernel's answer.
unsafe fn ask_kernel<const NUMBER: i64>(args: [u64; 6]) -> i64 {
    let (at, follow, aspects) = const { calls::look_of(NUMBER) };
    let class = Class { facets: aspects.0, follow: follow.with(&args) };
    let dir = at.dir.map_or(AT_FDCWD, |i| args[i] as c_int);
    // SAFETY: as `ask`.
    unsafe { ask(NUMBER, args, dir, args[at.path] as *const c_char, class) }
}

/// The same with the answer of the C library's function.
unsafe fn look<const NUMBER: i64>(args: [u64; 6]) -> i64 {
    // SAFETY: as `ask`.
    answer(unsafe { ask_kernel::<NUMBER>(args) })
}

unsafe fn stat_at(dir: c_int, path: *const c_char, to: *mut c_void, flags: c_int) -> c_int {
    let args = [dir as u64, path as u64, to as u64, flags as u64, 0, 0];
    // SAFETY: as `ask`.
    unsafe {
        // Nothing is recorded of a descriptor, and this call is not reported.
        if flags == c::AT_EMPTY_PATH && dir >= 0 && seen::is_empty(path) {
            return fstat(dir, to);
        }
        look::<{ c::SYS_newfstatat }>(args) as c_int
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $kind:ty),*) -> $result:ty { $work:expr })*) => {$(
        $(#[$doc])*
        #[cfg_attr(txos_preload, unsafe(no_mangle))]
        unsafe extern "C" fn $name($($arg: $kind),*) -> $result {
            // SAFETY: see the module's heading.
            unsafe { $work }
        }
    )*};
}

type Path = *const c_char;
type Out = *mut c_void;
const NOFOLLOW: c_int = c::AT_SYMLINK_NOFOLLOW;

functions! {
    fn stat(path: Path, to: Out) -> c_int { stat_at(AT_FDCWD, path, to, 0) }
    fn stat64(path: Path, to: Out) -> c_int { stat_at(AT_FDCWD, path, to, 0) }
    fn lstat(path: Path, to: Out) -> c_int { stat_at(AT_FDCWD, path, to, NOFOLLOW) }
    fn lstat64(path: Path, to: Out) -> c_int { stat_at(AT_FDCWD, path, to, NOFOLLOW) }
    fn fstatat(dir: c_int, path: Path, to: Out, flags: c_int) -> c_int {
        stat_at(dir, path, to, flags)
    }
    fn fstatat64(dir: c_int, path: Path, to: Out, flags: c_int) -> c_int {
        stat_at(dir, path, to, flags)
    }
    fn fstat(fd: c_int, to: Out) -> c_int {
        answer(reported(c::SYS_fstat, [fd as u64, to as u64, 0, 0, 0, 0])) as c_int
    }
    fn fstat64(fd: c_int, to: Out) -> c_int { fstat(fd, to) }
    fn __xstat(_version: c_int, path: Path, to: Out) -> c_int { stat_at(AT_FDCWD, path, to, 0) }
    fn __xstat64(_version: c_int, path: Path, to: Out) -> c_int { stat_at(AT_FDCWD, path, to, 0) }
    fn __lxstat(_version: c_int, path: Path, to: Out) -> c_int {
        stat_at(AT_FDCWD, path, to, NOFOLLOW)
    }
    fn __lxstat64(_version: c_int, path: Path, to: Out) -> c_int {
        stat_at(AT_FDCWD, path, to, NOFOLLOW)
    }
    fn __fxstat(_version: c_int, fd: c_int, to: Out) -> c_int { fstat(fd, to) }
    fn __fxstat64(_version: c_int, fd: c_int, to: Out) -> c_int { fstat(fd, to) }
    fn __fxstatat(_version: c_int, dir: c_int, path: Path, to: Out, flags: c_int) -> c_int {
        stat_at(dir, path, to, flags)
    }
    fn __fxstatat64(_version: c_int, dir: c_int, path: Path, to: Out, flags: c_int) -> c_int {
        stat_at(dir, path, to, flags)
    }
    fn statx(dir: c_int, path: Path, flags: c_int, mask: u32, to: Out) -> c_int {{
        let args = [dir as u64, path as u64, flags as u64, mask.into(), to as u64, 0];
        look::<{ c::SYS_statx }>(args) as c_int
    }}
    fn access(path: Path, mode: c_int) -> c_int {
        look::<{ c::SYS_access }>([path as u64, mode as u64, 0, 0, 0, 0]) as c_int
    }
    fn faccessat(dir: c_int, path: Path, mode: c_int, flags: c_int) -> c_int {{
        let args = [dir as u64, path as u64, mode as u64, flags as u64, 0, 0];
        match flags {
            0 => look::<{ c::SYS_faccessat }>(args) as c_int,
            _ => look::<{ c::SYS_faccessat2 }>(args) as c_int,
        }
    }}
    fn readlink(path: Path, to: Out, size: usize) -> isize {
        look::<{ c::SYS_readlink }>([path as u64, to as u64, size as u64, 0, 0, 0]) as isize
    }
    fn readlinkat(dir: c_int, path: Path, to: Out, size: usize) -> isize {{
        let args = [dir as u64, path as u64, to as u64, size as u64, 0, 0];
        look::<{ c::SYS_readlinkat }>(args) as isize
    }}
    fn getxattr(path: Path, name: Path, to: Out, size: usize) -> isize {{
        let args = [path as u64, name as u64, to as u64, size as u64, 0, 0];
        look::<{ c::SYS_getxattr }>(args) as isize
    }}
    fn lgetxattr(path: Path, name: Path, to: Out, size: usize) -> isize {{
        let args = [path as u64, name as u64, to as u64, size as u64, 0, 0];
        look::<{ c::SYS_lgetxattr }>(args) as isize
    }}
    fn listxattr(path: Path, to: Out, size: usize) -> isize {
        look::<{ c::SYS_listxattr }>([path as u64, to as u64, size as u64, 0, 0, 0]) as isize
    }
    fn llistxattr(path: Path, to: Out, size: usize) -> isize {
        look::<{ c::SYS_llistxattr }>([path as u64, to as u64, size as u64, 0, 0, 0]) as isize
    }
    fn open(path: Path, flags: c_int, mode: u32) -> c_int { open_at(AT_FDCWD, path, flags, mode) }
    fn open64(path: Path, flags: c_int, mode: u32) -> c_int { open_at(AT_FDCWD, path, flags, mode) }
    fn openat(dir: c_int, path: Path, flags: c_int, mode: u32) -> c_int {
        open_at(dir, path, flags, mode)
    }
    fn openat64(dir: c_int, path: Path, flags: c_int, mode: u32) -> c_int {
        open_at(dir, path, flags, mode)
    }
    fn __open_2(path: Path, flags: c_int) -> c_int { open_without_mode(AT_FDCWD, path, flags) }
    fn __open64_2(path: Path, flags: c_int) -> c_int { open_without_mode(AT_FDCWD, path, flags) }
    fn __openat_2(dir: c_int, path: Path, flags: c_int) -> c_int {
        open_without_mode(dir, path, flags)
    }
    fn __openat64_2(dir: c_int, path: Path, flags: c_int) -> c_int {
        open_without_mode(dir, path, flags)
    }
    fn realpath(path: Path, to: *mut c_char) -> *mut c_char {
        resolve(path, to).unwrap_or_else(|| real_path(path, to))
    }
    fn __realpath_chk(path: Path, to: *mut c_char, size: usize) -> *mut c_char {{
        let there_is_room = size >= c::PATH_MAX as usize;
        let resolved = if there_is_room { resolve(path, to) } else { None };
        resolved.unwrap_or_else(|| real_path_checked(path, to, size))
    }}
    fn canonicalize_file_name(path: Path) -> *mut c_char {
        resolve(path, null_mut()).unwrap_or_else(|| real_path(path, null_mut()))
    }
}

/// The looks of `realpath`.
const LOOKS: Looks = Looks {
    readlink: |path, to, size| {
        // SAFETY: as `ask`.
        unsafe { ask_kernel::<{ c::SYS_readlink }>([path as u64, to as u64, size as u64, 0, 0, 0]) }
    },
    exists: |path| {
        let args = [AT_FDCWD as u64, path as u64, 0, c::AT_EACCESS as u64, 0, 0];
        // SAFETY: as `ask`.
        unsafe { ask_kernel::<{ c::SYS_faccessat2 }>(args) }
    },
};

/// What `realpath` gives; `None`: the C library is asked.
unsafe fn resolve(path: Path, to: *mut c_char) -> Option<*mut c_char> {
    let allocate = weak!("malloc");
    if path.is_null() || !seen::is_on() || allocate.is_null() {
        return None;
    }
    let mut resolved = Resolved::new();
    // SAFETY: what the program passes is as the function wants it; the allocator is the program's.
    unsafe {
        let outcome = realpath::resolve(path, &LOOKS, &mut resolved)?;
        let (text, size) = resolved.bytes();
        match outcome {
            Outcome::Found if to.is_null() => {
                let allocate: unsafe extern "C" fn(usize) -> *mut c_char =
                    core::mem::transmute(allocate);
                let to = allocate(size);
                if !to.is_null() {
                    to.copy_from_nonoverlapping(text, size);
                }
                Some(to)
            }
            Outcome::Found => {
                to.copy_from_nonoverlapping(text, size);
                Some(to)
            }
            Outcome::Failed(errno) => {
                // As far as it was resolved: the C library says so for these two.
                if !to.is_null() && matches!(errno, c::ENOENT | c::EACCES) {
                    to.copy_from_nonoverlapping(text, size);
                }
                answer(-i64::from(errno));
                Some(null_mut())
            }
        }
    }
}

/// The C library's `realpath`.
unsafe fn real_path(path: Path, to: *mut c_char) -> *mut c_char {
    let real = REALPATH.load(Ordering::Relaxed);
    if real.is_null() {
        answer(-i64::from(c::ENOSYS));
        return null_mut();
    }
    // SAFETY: the C library's function takes these arguments.
    unsafe {
        let real: unsafe extern "C" fn(Path, *mut c_char) -> *mut c_char =
            core::mem::transmute(real);
        real(path, to)
    }
}

/// The C library's `__realpath_chk`, which ends a program that has too little room.
unsafe fn real_path_checked(path: Path, to: *mut c_char, size: usize) -> *mut c_char {
    let real = REALPATH_CHK.load(Ordering::Relaxed);
    // SAFETY: the C library's function takes these arguments.
    unsafe {
        if real.is_null() {
            return real_path(path, to);
        }
        let real: unsafe extern "C" fn(Path, *mut c_char, usize) -> *mut c_char =
            core::mem::transmute(real);
        real(path, to, size)
    }
}

/// What opening for reading depends on; `None` if it is opened for anything else.
fn class_of_open(flags: c_int) -> Option<Class> {
    if flags & (c::O_ACCMODE | c::O_CREAT | c::O_TRUNC) != 0 {
        return None;
    }
    let entry = flags & (c::O_PATH | c::O_DIRECTORY) != 0;
    let read = const { Aspects::ENTRY.and(Aspects::ATTRS).and(Aspects::DATA) };
    let facets = if entry { Aspects::ENTRY } else { read };
    Some(Class { facets: facets.0, follow: flags & c::O_NOFOLLOW == 0 })
}

unsafe fn open_at(dir: c_int, path: Path, flags: c_int, mode: u32) -> c_int {
    let real = OPENAT.load(Ordering::Relaxed);
    let class = class_of_open(flags);
    // SAFETY: as `ask`; the C library's function takes these arguments.
    unsafe {
        match class {
            Some(class) if real.is_null() || is_single_threaded() => {
                let args = [dir as u64, path as u64, flags as u64, 0, 0, 0];
                answer(ask(c::SYS_openat, args, dir, path, class)) as c_int
            }
            _ if real.is_null() => {
                let args = [dir as u64, path as u64, flags as u64, mode.into(), 0, 0];
                answer(reported(c::SYS_openat, args)) as c_int
            }
            _ => {
                let real: unsafe extern "C" fn(c_int, Path, c_int, u32) -> c_int =
                    core::mem::transmute(real);
                real(dir, path, flags, mode)
            }
        }
    }
}

/// The C library ends a program that creates a file without a mode.
unsafe fn open_without_mode(dir: c_int, path: Path, flags: c_int) -> c_int {
    // SAFETY: as `open_at`.
    unsafe {
        if flags & c::O_CREAT != 0 || flags & c::O_TMPFILE == c::O_TMPFILE {
            abort();
        }
        open_at(dir, path, flags, 0)
    }
}

/// Whether nobody can cancel this thread. Since glibc 2.32; before that it is not known.
fn is_single_threaded() -> bool {
    let flag = weak!("__libc_single_threaded").cast::<u8>();
    // SAFETY: the C library's variable, if there is one.
    !flag.is_null() && unsafe { flag.read_volatile() } != 0
}

/// The library is loaded.
extern "C" fn loaded(_: c_int, _: *const Path, _: *const Path) {
    let find = weak!("dlsym");
    // SAFETY: what the dynamic linker gives constructors, and its own function.
    unsafe {
        if !find.is_null() {
            let find: unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void =
                core::mem::transmute(find);
            for (place, name) in
                [(&OPENAT, c"openat"), (&REALPATH, c"realpath"), (&REALPATH_CHK, c"__realpath_chk")]
            {
                place.store(find(RTLD_NEXT, name.as_ptr()), Ordering::Relaxed);
            }
        }
    }
    // The dynamic linker's, which libraries may not ask for by the C library's headers.
    let end = weak!("__libc_stack_end").cast::<usize>();
    // SAFETY: a word of the dynamic linker's, if there is one.
    let end = if end.is_null() { 0 } else { unsafe { end.read() } };
    seen::start(end, weak!("__curbrk").cast::<usize>().cast_mut());
}

#[cfg(txos_preload)]
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn(c_int, *const Path, *const Path) = loaded;
