//! Functions of the C library that come here without a trap.
//!
//! Each is three instructions in front of the C library's own: a look at the thread's state, a
//! branch, and a jump. Arguments, return address and stack are untouched, so cancellation, variable
//! arguments and whatever else the C library's function does stay as they are.
//!
//! In a transaction the call goes to the runtime directly, which is faster than the trap by two
//! orders of magnitude. What is not interposed here (calls within the C library, for example) is
//! trapped and does the same, so this table decides about speed only.
//!
//! They are written here and not in C because a Rust shared library exports no symbols of C code.
#![allow(unsafe_code)] // functions that C calls, and functions of C

use std::arch::naked_asm;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::AT_FDCWD;

use super::signals::{self, Action};
use super::tls::{ACTIVE, LINGERING, here};
use super::{api, thread};
use crate::call::Call;
use crate::raw::syscall;

/// The arguments of a function, as registers; what it does not have is garbage.
type Args = [u64; 6];

/// The address of the C library's function; before it is known, of ours for transactions.
type Real = AtomicPtr<()>;

/// The current directory, as an argument.
const HERE: u64 = AT_FDCWD as u64;

/// How an answer of the kernel reaches the program.
fn answer(answer: i64) -> i64 {
    match i32::try_from(-answer) {
        Ok(errno @ 1..4096) => api::fail(errno).into(),
        _ => answer,
    }
}

/// A call of an interposed function by a thread that is not idle, or before the C library's
/// function is known. `None` for the system call: it is one that the C library has to refuse.
unsafe fn interposed(real: &Real, own: *mut (), args: Args, call: Option<(i64, Args)>) -> i64 {
    let tls = here();
    let state = tls.state.get();
    if state == ACTIVE
        && let Some((number, args)) = call
    {
        // SAFETY: the program has called a function that makes this call, and waits for it.
        let call = unsafe { Call::new(number, args) };
        return answer(api::call(tls, &call));
    }
    if state == LINGERING {
        thread::lingered(tls);
    }
    let real = real.load(Ordering::Relaxed);
    match call {
        // Static linking, or a constructor that runs before ours.
        Some((number, args)) if real == own => {
            // SAFETY: it is what the C library's function would do.
            answer(unsafe { syscall(number, args) })
        }
        None if real == own => std::process::abort(),
        _ => {
            // SAFETY: it is the function that the program has called; arguments that it doesn't
            // have are in registers that it doesn't look at.
            unsafe {
                let real: extern "C" fn(u64, u64, u64, u64, u64, u64) -> i64 =
                    std::mem::transmute(real);
                real(args[0], args[1], args[2], args[3], args[4], args[5])
            }
        }
    }
}

macro_rules! interpose {
    ($($module:ident $name:literal: $map:expr;)*) => {
        /// Every interposed function, and where the C library's own is kept.
        static ALL: &[(&CStr, &Real)] = &[$((
            // SAFETY: the name ends with the zero that is put there.
            match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            },
            &$module::REAL,
        ),)*];

        $(mod $module {
            use super::*;

            pub static REAL: Real = AtomicPtr::new(slow as *mut ());

            unsafe extern "C" fn slow(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> i64 {
                let map: fn(Args) -> Option<(i64, Args)> = $map;
                let args = [a, b, c, d, e, f];
                // SAFETY: the program has called this function with these arguments.
                unsafe { interposed(&REAL, slow as *mut (), args, map(args)) }
            }

            #[unsafe(export_name = $name)]
            #[unsafe(naked)]
            unsafe extern "C" fn interposer() {
                naked_asm!(
                    "mov r11, [rip + txos_tls@GOTTPOFF]",
                    "cmp byte ptr fs:[r11 + 1], 0",
                    "jne 2f",
                    "jmp [rip + {real}]",
                    "2:",
                    "jmp {slow}",
                    real = sym REAL,
                    slow = sym slow,
                )
            }
        })*
    };
}

/// The function's arguments are the call's.
macro_rules! same {
    ($number:ident) => {
        |a| Some((libc::$number, a))
    };
}

/// The call's arguments are made from the function's.
macro_rules! made {
    ($number:ident, |$a:ident| $args:expr) => {
        |$a: Args| {
            let mut args: Args = [0; 6];
            let given = $args;
            args[..given.len()].copy_from_slice(&given);
            Some((libc::$number, args))
        }
    };
}

/// A function with the size of the buffer as its last argument, which the C library checks.
macro_rules! checked {
    ($number:ident, $length:literal, $room:literal) => {
        |a: Args| (a[$length] <= a[$room]).then_some((libc::$number, a))
    };
}

/// The mode, if these flags have the call look at it.
fn mode(flags: u64, mode: u64) -> u64 {
    let creates = libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY;
    if flags as i32 & creates == 0 { 0 } else { mode }
}

const CREAT: u64 = (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u64;
const NOFOLLOW: u64 = libc::AT_SYMLINK_NOFOLLOW as u64;

/// `faccessat` and `fchmodat` have flags; the calls of that name don't.
fn with_flags(plain: i64, flagged: i64, a: Args) -> Option<(i64, Args)> {
    Some((if a[3] as i32 == 0 { plain } else { flagged }, a))
}

interpose! {
    open "open": made!(SYS_openat, |a| [HERE, a[0], a[1], mode(a[1], a[2])]);
    open64 "open64": made!(SYS_openat, |a| [HERE, a[0], a[1], mode(a[1], a[2])]);
    open_2 "__open_2": made!(SYS_openat, |a| [HERE, a[0], a[1]]);
    open64_2 "__open64_2": made!(SYS_openat, |a| [HERE, a[0], a[1]]);
    openat "openat": made!(SYS_openat, |a| [a[0], a[1], a[2], mode(a[2], a[3])]);
    openat64 "openat64": made!(SYS_openat, |a| [a[0], a[1], a[2], mode(a[2], a[3])]);
    openat_2 "__openat_2": made!(SYS_openat, |a| [a[0], a[1], a[2]]);
    openat64_2 "__openat64_2": made!(SYS_openat, |a| [a[0], a[1], a[2]]);
    creat "creat": made!(SYS_openat, |a| [HERE, a[0], CREAT, a[1]]);
    creat64 "creat64": made!(SYS_openat, |a| [HERE, a[0], CREAT, a[1]]);
    close "close": same!(SYS_close);

    read "read": same!(SYS_read);
    read_chk "__read_chk": checked!(SYS_read, 2, 3);
    write "write": same!(SYS_write);
    pread "pread": same!(SYS_pread64);
    pread64 "pread64": same!(SYS_pread64);
    pread_chk "__pread_chk": checked!(SYS_pread64, 2, 4);
    pread64_chk "__pread64_chk": checked!(SYS_pread64, 2, 4);
    pwrite "pwrite": same!(SYS_pwrite64);
    pwrite64 "pwrite64": same!(SYS_pwrite64);
    readv "readv": same!(SYS_readv);
    writev "writev": same!(SYS_writev);
    preadv "preadv": made!(SYS_preadv, |a| [a[0], a[1], a[2], a[3]]);
    preadv64 "preadv64": made!(SYS_preadv, |a| [a[0], a[1], a[2], a[3]]);
    pwritev "pwritev": made!(SYS_pwritev, |a| [a[0], a[1], a[2], a[3]]);
    pwritev64 "pwritev64": made!(SYS_pwritev, |a| [a[0], a[1], a[2], a[3]]);
    lseek "lseek": same!(SYS_lseek);
    lseek64 "lseek64": same!(SYS_lseek);
    sendfile "sendfile": same!(SYS_sendfile);
    sendfile64 "sendfile64": same!(SYS_sendfile);
    copy_file_range "copy_file_range": same!(SYS_copy_file_range);
    getdents64 "getdents64": same!(SYS_getdents64);
    ioctl "ioctl": same!(SYS_ioctl);
    fcntl "fcntl": same!(SYS_fcntl);
    fcntl64 "fcntl64": same!(SYS_fcntl);
    dup "dup": same!(SYS_dup);
    dup2 "dup2": same!(SYS_dup2);
    dup3 "dup3": same!(SYS_dup3);
    fsync "fsync": same!(SYS_fsync);
    fdatasync "fdatasync": same!(SYS_fdatasync);
    fallocate "fallocate": same!(SYS_fallocate);
    fallocate64 "fallocate64": same!(SYS_fallocate);
    truncate "truncate": same!(SYS_truncate);
    truncate64 "truncate64": same!(SYS_truncate);
    ftruncate "ftruncate": same!(SYS_ftruncate);
    ftruncate64 "ftruncate64": same!(SYS_ftruncate);

    stat "stat": made!(SYS_newfstatat, |a| [HERE, a[0], a[1]]);
    stat64 "stat64": made!(SYS_newfstatat, |a| [HERE, a[0], a[1]]);
    lstat "lstat": made!(SYS_newfstatat, |a| [HERE, a[0], a[1], NOFOLLOW]);
    lstat64 "lstat64": made!(SYS_newfstatat, |a| [HERE, a[0], a[1], NOFOLLOW]);
    fstat "fstat": same!(SYS_fstat);
    fstat64 "fstat64": same!(SYS_fstat);
    fstatat "fstatat": same!(SYS_newfstatat);
    fstatat64 "fstatat64": same!(SYS_newfstatat);
    statx "statx": same!(SYS_statx);
    xstat "__xstat": made!(SYS_newfstatat, |a| [HERE, a[1], a[2]]);
    xstat64 "__xstat64": made!(SYS_newfstatat, |a| [HERE, a[1], a[2]]);
    lxstat "__lxstat": made!(SYS_newfstatat, |a| [HERE, a[1], a[2], NOFOLLOW]);
    lxstat64 "__lxstat64": made!(SYS_newfstatat, |a| [HERE, a[1], a[2], NOFOLLOW]);
    fxstat "__fxstat": made!(SYS_fstat, |a| [a[1], a[2]]);
    fxstat64 "__fxstat64": made!(SYS_fstat, |a| [a[1], a[2]]);
    fxstatat "__fxstatat": made!(SYS_newfstatat, |a| [a[1], a[2], a[3], a[4]]);
    fxstatat64 "__fxstatat64": made!(SYS_newfstatat, |a| [a[1], a[2], a[3], a[4]]);
    access "access": same!(SYS_access);
    faccessat "faccessat": |a| with_flags(libc::SYS_faccessat, libc::SYS_faccessat2, a);
    readlink "readlink": same!(SYS_readlink);
    readlink_chk "__readlink_chk": checked!(SYS_readlink, 2, 3);
    readlinkat "readlinkat": same!(SYS_readlinkat);
    readlinkat_chk "__readlinkat_chk": checked!(SYS_readlinkat, 3, 4);

    mkdir "mkdir": same!(SYS_mkdir);
    mkdirat "mkdirat": same!(SYS_mkdirat);
    mknod "mknod": same!(SYS_mknod);
    mknodat "mknodat": same!(SYS_mknodat);
    rmdir "rmdir": same!(SYS_rmdir);
    unlink "unlink": same!(SYS_unlink);
    unlinkat "unlinkat": same!(SYS_unlinkat);
    link "link": same!(SYS_link);
    linkat "linkat": same!(SYS_linkat);
    symlink "symlink": same!(SYS_symlink);
    symlinkat "symlinkat": same!(SYS_symlinkat);
    rename "rename": same!(SYS_rename);
    renameat "renameat": same!(SYS_renameat);
    renameat2 "renameat2": same!(SYS_renameat2);

    chmod "chmod": same!(SYS_chmod);
    fchmod "fchmod": same!(SYS_fchmod);
    fchmodat "fchmodat": |a| with_flags(libc::SYS_fchmodat, SYS_FCHMODAT2, a);
    chown "chown": same!(SYS_chown);
    lchown "lchown": same!(SYS_lchown);
    fchown "fchown": same!(SYS_fchown);
    fchownat "fchownat": same!(SYS_fchownat);
    utime "utime": same!(SYS_utime);
    utimes "utimes": same!(SYS_utimes);
    // Without a path the C library refuses it, and the kernel does not.
    utimensat "utimensat": |a| (a[1] != 0).then_some((libc::SYS_utimensat, a));
    // The C library itself refuses negative numbers.
    futimens "futimens": |a| {
        (a[0] as i32 >= 0).then_some((libc::SYS_utimensat, [a[0], 0, a[1], 0, 0, 0]))
    };
    chdir "chdir": same!(SYS_chdir);
    fchdir "fchdir": same!(SYS_fchdir);
    umask "umask": same!(SYS_umask);

    getxattr "getxattr": same!(SYS_getxattr);
    lgetxattr "lgetxattr": same!(SYS_lgetxattr);
    fgetxattr "fgetxattr": same!(SYS_fgetxattr);
    setxattr "setxattr": same!(SYS_setxattr);
    lsetxattr "lsetxattr": same!(SYS_lsetxattr);
    fsetxattr "fsetxattr": same!(SYS_fsetxattr);
    listxattr "listxattr": same!(SYS_listxattr);
    llistxattr "llistxattr": same!(SYS_llistxattr);
    flistxattr "flistxattr": same!(SYS_flistxattr);
    send "send": made!(SYS_sendto, |a| [a[0], a[1], a[2], a[3]]);
    sendto "sendto": same!(SYS_sendto);
    sendmsg "sendmsg": same!(SYS_sendmsg);
    recv "recv": made!(SYS_recvfrom, |a| [a[0], a[1], a[2], a[3]]);
    recv_chk "__recv_chk": |a| {
        (a[2] <= a[3]).then_some((libc::SYS_recvfrom, [a[0], a[1], a[2], a[4], 0, 0]))
    };
    recvfrom "recvfrom": same!(SYS_recvfrom);
    recvmsg "recvmsg": same!(SYS_recvmsg);

    removexattr "removexattr": same!(SYS_removexattr);
    lremovexattr "lremovexattr": same!(SYS_lremovexattr);
    fremovexattr "fremovexattr": same!(SYS_fremovexattr);
}

/// Since Linux 6.6.
const SYS_FCHMODAT2: i64 = 452;

static SIGACTION: Real = AtomicPtr::new(sigaction_sys as *mut ());
static SIGNAL: Real = AtomicPtr::new(signal_sys as *mut ());

macro_rules! of_sigsys {
    ($name:ident, $real:ident, $ours:ident) => {
        #[unsafe(export_name = stringify!($name))]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "cmp edi, {sigsys}",
                "je 2f",
                "jmp [rip + {real}]",
                "2:",
                "jmp {ours}",
                sigsys = const libc::SIGSYS,
                real = sym $real,
                ours = sym $ours,
            )
        }
    };
}

// The handler of SIGSYS is ours once there has been a transaction; a program that sets its own
// gets those that are not ours.
of_sigsys!(sigaction, SIGACTION, sigaction_sys);
of_sigsys!(signal, SIGNAL, signal_sys);

/// Exchanges a disposition: that of SIGSYS is kept here once the handler is ours.
fn exchange(signal: i32, new: Option<Action>) -> Result<Action, i32> {
    if signal == libc::SIGSYS && signals::trap_installed() && here().state.get() != ACTIVE {
        let mask = signals::block_all();
        let old = signals::exchange_programs(new);
        signals::set_mask(mask);
        return Ok(old);
    }
    let tls = here();
    if tls.state.get() == ACTIVE {
        // There is no function of the C library's that would be trapped.
        let mut old = Action::default();
        let new = new.map(signals::returning);
        let new = new.as_ref().map_or(0, |new| std::ptr::from_ref(new) as u64);
        let args = [signal as u64, new, (&raw mut old) as u64, signals::SET, 0, 0];
        // SAFETY: both dispositions live until the answer.
        let call = unsafe { Call::new(libc::SYS_rt_sigaction, args) };
        let answer = api::call(tls, &call);
        return if answer == 0 { Ok(old) } else { Err((-answer) as i32) };
    }
    signals::exchange(signal, new)
}

/// Whether the C library's own function is to do it, if there is one: the call is trapped, or
/// nothing of it is ours.
fn is_theirs(signal: i32) -> bool {
    signal != libc::SIGSYS || !signals::trap_installed() || here().state.get() == ACTIVE
}

unsafe extern "C" fn sigaction_sys(
    signal: i32,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> i32 {
    let real = SIGACTION.load(Ordering::Relaxed);
    if real != sigaction_sys as *mut () && is_theirs(signal) {
        // SAFETY: it is the C library's function of this name.
        return unsafe {
            let real: extern "C" fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32 =
                std::mem::transmute(real);
            real(signal, new, old)
        };
    }
    // SAFETY: null, or the program says that one is there.
    let new = unsafe { new.as_ref() }.map(|new| Action {
        handler: new.sa_sigaction,
        flags: new.sa_flags as u64,
        restorer: 0,
        // SAFETY: the kernel's set is the first word of the C library's.
        mask: unsafe { (&raw const new.sa_mask).cast::<signals::Set>().read() },
    });
    let before = match exchange(signal, new) {
        Ok(before) => before,
        Err(errno) => return api::fail(errno),
    };
    // SAFETY: null, or the program says that there is room for one.
    if let Some(old) = unsafe { old.as_mut() } {
        old.sa_sigaction = before.handler;
        old.sa_flags = (before.flags & !signals::SA_RESTORER) as i32;
        // SAFETY: as above; all of it is plain numbers.
        unsafe {
            (&raw mut old.sa_mask).write_bytes(0, 1);
            (&raw mut old.sa_mask).cast::<signals::Set>().write(before.mask);
        }
    }
    0
}

unsafe extern "C" fn signal_sys(signal: i32, handler: usize) -> usize {
    let real = SIGNAL.load(Ordering::Relaxed);
    if real != signal_sys as *mut () && is_theirs(signal) {
        // SAFETY: it is the C library's function of this name.
        return unsafe {
            let real: extern "C" fn(i32, usize) -> usize = std::mem::transmute(real);
            real(signal, handler)
        };
    }
    let mask = signals::of(signal.clamp(1, 64));
    let new = Action { handler, flags: libc::SA_RESTART as u64, restorer: 0, mask };
    match exchange(signal, Some(new)) {
        Ok(before) => before.handler,
        Err(errno) => {
            api::fail(errno);
            libc::SIG_ERR
        }
    }
}

/// Finds the C library's own functions.
pub fn resolve() {
    // SAFETY: it only reads what the kernel has told the process.
    if unsafe { libc::getauxval(libc::AT_BASE) } == 0 {
        return; // no dynamic linker: nothing to look up
    }
    for (name, real) in ALL.iter().chain(&[(c"sigaction", &SIGACTION), (c"signal", &SIGNAL)]) {
        // SAFETY: both take names with a final zero. Functions for old programs only are found by
        // their version.
        let found = unsafe {
            let found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
            if found.is_null() {
                libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), c"GLIBC_2.2.5".as_ptr())
            } else {
                found
            }
        };
        if !found.is_null() {
            real.store(found.cast(), Ordering::Relaxed);
        }
    }
}
