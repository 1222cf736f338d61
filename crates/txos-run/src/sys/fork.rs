//! Making processes and turning them into programs.
//!
//! # Safety
//!
//! A child of [`fork`] has one thread, whatever the parent had. glibc makes its allocator usable
//! there; other locks that another thread of the parent held stay locked. The code that runs in
//! such a child (the reaper and the command's process) therefore never touches the standard
//! streams' locks of the standard library, and ends in [`exec`] or [`exit`].

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::process::Pid;

/// Which side of a fork this is.
pub enum Fork {
    /// The new process.
    Child,
    /// The old process, and who the new one is.
    Parent(Pid),
}

/// `fork(2)`.
///
/// # Errors
/// Its errno.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: no memory is shared with the child; what the child may do is said above.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Pid::from_raw(pid).map(Fork::Parent).ok_or_else(|| io::Error::other("fork gave 0")),
    }
}

/// `_exit(2)`: nothing of the parent's is flushed or run.
pub fn exit(status: i32) -> ! {
    // SAFETY: no destructor or exit handler of the parent runs, which is the point.
    unsafe { libc::_exit(status) }
}

/// `execvpe(3)`: gives the error if the program could not be run. It is `program`, or what the first argument names.
pub fn exec(program: Option<&CStr>, argv: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |words: &[CString]| -> Vec<*const libc::c_char> {
        words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(argv), pointers(environment));
    let Some(program) = program.or(argv.first().map(CString::as_c_str)) else {
        return io::Error::from_raw_os_error(libc::ENOENT);
    };
    // SAFETY: both are null-terminated arrays of C strings that outlive the call.
    unsafe { libc::execvpe(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// `unshare(2)` of the mount namespace, and of those of users and of the network if asked for.
///
/// # Errors
/// Its errno.
pub fn unshare(user: bool, network: bool) -> io::Result<()> {
    let flags = libc::CLONE_NEWNS
        | if user { libc::CLONE_NEWUSER } else { 0 }
        | if network { libc::CLONE_NEWNET } else { 0 };
    // SAFETY: none of the flags separates memory or descriptors that Rust code shares between threads.
    if unsafe { libc::unshare(flags) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Turns on the loopback interface of this process's network namespace.
///
/// # Errors
/// The errno of `socket(2)` or `ioctl(2)`.
pub fn loopback_up() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: a struct of integers and arrays of them, for which zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo\0") {
        *to = (*from).cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which lives as long as the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `dup2(2)` onto a descriptor of the command, without close-on-exec.
///
/// # Errors
/// Its errno.
pub fn put_fd(from: BorrowedFd<'_>, onto: i32) -> io::Result<()> {
    // SAFETY: called in a freshly forked child on descriptors that no Rust object there owns: the
    // command's inherited ones.
    if unsafe { libc::dup2(from.as_raw_fd(), onto) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A descriptor of this process by number, for a short look at an inherited one.
///
/// # Errors
/// `EBADF` if it is not open.
pub fn inherited<'a>(number: i32) -> io::Result<BorrowedFd<'a>> {
    // SAFETY: F_GETFD has no memory effects.
    if number < 0 || unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and inherited ones stay open: nothing here owns them.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}
