//! Transactions that lose in the middle of the C library, or of the dynamic linker.
//!
//! Many of their functions hold a lock while they read files, and the lock is not recursive: `dlopen`, `getpwnam`, `localtime`,
//! `setlocale`, `iconv_open`, `readdir`, the allocator. A transaction that began again from within would leave the lock taken, and
//! memory is not put back: the next such call of any thread would wait for ever. So there the transaction is aborted, and the C library
//! goes on outside of it: it reads on what it was reading, as any program would, and whatever is no look fails with ECANCELED and without
//! any effect. The function gives back what it has, and returns. The transaction begins again at the program's next call of its own, so
//! that what the function has answered comes to nothing.
//!
//! | call of the C library, once the transaction has lost | what is done |
//! |---|---|
//! | looks: paths, files opened to read | as outside of a transaction. An error would stay: a locale, a converter or a time zone that could not be read once is missing until the process ends |
//! | `write` and its like | begins again at once. It comes from a stream, whose lock its thread may take again; after an error the stream would say for ever that it has failed |
//! | waits at a word of memory, sleeps | as ever: they are no reason to lose. Once it has lost, one that lasts begins again: who is to end it may wait for this transaction |
//! | the end of the process, signals to itself, waits for signals | begins again: what the program makes of the answer never happens |
//! | memory, signal masks and handlers | is done, as what was locked is given back by such calls |
//! | any other, such as processes, threads, credentials, sockets | fails |
//!
//! A call is the C library's if the instruction is in its text, or the one that the call returns to, of a function that the library has
//! interposed. Only of `syscall` it is known that it does nothing else; of any other function it is not, and to begin again a call later does
//! no harm. Calls of the program's own that the C library has called, such as a constructor in `dlopen`, are the program's.
#![allow(unsafe_code)] // addresses of the program's code

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::classify::Class;
use super::naps;
use super::session::{Next, Session};
use super::thread::Thread;
use super::tls::here;
use super::trap::Context;
use crate::call::Call;
use crate::tx::kernel::{self, OwnedFd};
use crate::tx::{flags, held};
use crate::user::UserPtr;

/// What a call of a failed transaction is answered.
const CANCELED: Next = Next::Answer(-(libc::ECANCELED as i64));

/// So many calls are answered for a transaction that has lost. A program may call the same function until it answers otherwise.
const CALLS_MAX: u32 = 20_000;

/// A wait that lasts so long in a transaction that has lost ends by beginning again.
const LONG: Duration = Duration::from_secs(5);

/// The C library's function `syscall`; 0: not known.
static SYSCALL: AtomicU64 = AtomicU64::new(0);
/// Its instruction is not farther from its beginning than this.
const SYSCALL_SIZE: u64 = 48;

/// Finds the C library's functions.
pub fn resolve() {
    // SAFETY: the name has a final zero.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr()) };
    SYSCALL.store(found as u64, Ordering::Relaxed);
}

/// Whether a file that is mapped to memory belongs to the C library: it, the dynamic linker, or what these load for themselves.
fn is_of_c_library(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let starts = |prefix: &[u8]| name.starts_with(prefix);
    // What one loads for converters lies in a directory of its own.
    let is_converter = path.windows(7).any(|part| part == b"/gconv/");
    // `libc.so.6`, and with its version (`libc-2.31.so`) before 2.34.
    let is_part = [&b"libc"[..], b"ld", b"libpthread", b"libdl", b"librt", b"libresolv", b"libanl"]
        .iter()
        .any(|part| starts(&[part, &b".so"[..]].concat()) || starts(&[part, &b"-2."[..]].concat()));
    is_part || is_converter || starts(b"ld-linux") || starts(b"ld-musl") || starts(b"libnss_")
}

/// Whether an instruction is in the C library's text, by what is mapped now.
fn is_in_c_library(maps: &[u8], at: u64) -> bool {
    let line = maps.split(|&byte| byte == b'\n').find(|line| {
        let mut ends =
            line.split(|&byte| byte == b' ').next().unwrap_or_default().split(|&byte| byte == b'-');
        let mut end = || {
            let digits = std::str::from_utf8(ends.next()?).ok()?;
            u64::from_str_radix(digits, 16).ok()
        };
        matches!((end(), end()), (Some(start), Some(end)) if (start..end).contains(&at))
    });
    line.and_then(|line| line.iter().position(|&byte| byte == b'/').map(|at| &line[at..]))
        .is_some_and(is_of_c_library)
}

/// Whether the thread's present call is one that the C library makes in the middle of something.
fn is_inside() -> bool {
    let tls = here();
    // SAFETY: while a trapped call is carried out the kernel's frame is there.
    let trapped = unsafe { (tls.frame.get() as *const Context).as_ref() };
    let at = match trapped {
        None => tls.returns_to.get(),
        Some(context) => {
            let (at, stack) = context.place();
            let start = SYSCALL.load(Ordering::Relaxed);
            match start != 0 && (start..start + SYSCALL_SIZE).contains(&at) {
                // It pushes nothing, so what is on top of the stack is where it returns to.
                // SAFETY: the program's stack, of a thread that waits for the answer.
                true => unsafe { UserPtr::<u64>::new(stack) }.read().unwrap_or(0),
                false => at,
            }
        }
    };
    if at == 0 {
        return false;
    }
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    is_in_c_library(&maps, at)
}

/// Whether a call is of a stream.
fn writes(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_pwrite64
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
    )
}

/// Whether a call moves the place from which the next one reads.
pub fn moves(number: i64) -> bool {
    matches!(number, libc::SYS_read | libc::SYS_readv | libc::SYS_lseek)
}

/// Whether a call waits for memory to change, or for time to pass.
fn is_wait(number: i64) -> bool {
    const SYS_FUTEX_WAIT: i64 = 455;
    matches!(
        number,
        libc::SYS_futex
            | libc::SYS_futex_waitv
            | SYS_FUTEX_WAIT
            | libc::SYS_nanosleep
            | libc::SYS_clock_nanosleep
    )
}

/// Whether the program ends by a call, or waits for a signal.
fn is_of_the_program(call: &Call, class: Class) -> bool {
    /// The C library's own: of `pthread_cancel` and `setuid`.
    const OWN_SIGNALS: [i32; 2] = [32, 33];
    let number = call.number();
    let signal = match number {
        libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo => call.int(2),
        _ => call.int(1),
    };
    match class {
        Class::ExitGroup | Class::Suspend => true,
        _ if number == libc::SYS_rt_sigtimedwait => true,
        _ if held::sends_signal(number) => {
            signal > 0 && !OWN_SIGNALS.contains(&signal) && held::is_for_this_process(call)
        }
        _ => false,
    }
}

/// What is left of a transaction that has lost in the middle of the C library.
#[derive(Debug, Default)]
pub struct Late {
    /// So many calls were answered since.
    calls: u32,
    /// The C library's numbers for files that it reads, and the runtime's own descriptors for the same. What the kernel has at the first ones
    /// may be anybody's by now.
    reads: Vec<(i32, OwnedFd)>,
    /// The working directory, and the root, are others than in the transaction.
    has_moved: (bool, bool),
    /// An abort leaves the numbers of what was opened taken (`TX_MANAGED`).
    keeps_numbers: bool,
}

impl Late {
    /// What of a transaction that is about to be aborted is to be read on. `None`: it begins again at once.
    pub fn of(session: &Session) -> Option<Late> {
        let number = here().call.get() as i64;
        let at_once = session.checkpoint.is_some() || writes(number) || is_wait(number);
        if at_once || !session.restarts() || !is_inside() {
            return None;
        }
        let tx = session.tx.as_ref()?;
        let keeps_numbers = session.plan.flags & flags::MANAGED != 0;
        let (reads, has_moved) = (tx.reads_on(), tx.has_moved_to());
        Some(Late { calls: 0, reads, has_moved, keeps_numbers })
    }

    /// The same of one that another thread has aborted.
    pub fn of_aborted(session: &Session) -> Option<Late> {
        let number = here().call.get() as i64;
        let at_once = session.checkpoint.is_some() || writes(number) || is_wait(number);
        (!at_once && is_inside()).then(|| Late { has_moved: (true, false), ..Late::default() })
    }

    /// The place in `reads` of a descriptor among a call's arguments.
    fn place(&self, number: i32) -> Option<usize> {
        self.reads.iter().position(|(own, _)| *own == number)
    }

    /// A call that reads what is stable, as it is outside of the transaction. `None`: it is none.
    fn read(&mut self, call: &Call) -> Option<i64> {
        let number = call.number();
        match number {
            libc::SYS_read
            | libc::SYS_pread64
            | libc::SYS_readv
            | libc::SYS_preadv
            | libc::SYS_lseek
            | libc::SYS_fstat
            | libc::SYS_fstatfs => self.with(call, 0),
            // How far the transaction has listed another one is forgotten.
            libc::SYS_getdents64 if self.is_new(call.int(0)) => self.with(call, 0),
            libc::SYS_mmap => self.with(call, 4),
            libc::SYS_fcntl
                if [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL].contains(&call.int(1)) =>
            {
                self.with(call, 0)
            }
            libc::SYS_close => {
                let is_new = self.is_new(call.int(0));
                drop(self.reads.swap_remove(self.place(call.int(0))?));
                (is_new || !self.keeps_numbers).then_some(0)
            }
            libc::SYS_openat if self.is_reached(call, 0, 1) => self.open(call, call.int(2)),
            libc::SYS_open if self.is_reached(call, usize::MAX, 0) => self.open(call, call.int(1)),
            libc::SYS_newfstatat if call.path(1).is_ok_and(|path| path.is_empty()) => {
                self.with(call, 0)
            }
            libc::SYS_newfstatat
            | libc::SYS_statx
            | libc::SYS_faccessat
            | libc::SYS_faccessat2
            | libc::SYS_readlinkat
                if self.is_reached(call, 0, 1) =>
            {
                Some(call.make())
            }
            libc::SYS_stat
            | libc::SYS_lstat
            | libc::SYS_access
            | libc::SYS_readlink
            | libc::SYS_statfs
                if self.is_reached(call, usize::MAX, 0) =>
            {
                Some(call.make())
            }
            _ => None,
        }
    }

    /// Whether it was opened since.
    fn is_new(&self, number: i32) -> bool {
        self.place(number).is_some_and(|at| self.reads[at].1.number() == number)
    }

    /// With the runtime's descriptor in place of the C library's.
    fn with(&self, call: &Call, at: usize) -> Option<i64> {
        let (_, own) = &self.reads[self.place(call.int(at))?];
        // SAFETY: it is a number.
        Some(unsafe { call.with_word(at, own.number() as u64) }.make())
    }

    /// Whether the kernel finds a path where the program means it.
    fn is_reached(&self, call: &Call, dir: usize, path: usize) -> bool {
        let starts_here = dir == usize::MAX || call.int(dir) == libc::AT_FDCWD;
        let (has_moved, has_other_root) = self.has_moved;
        !has_other_root
            && call.path(path).is_ok_and(|path| match path.first() {
                Some(b'/') => true,
                Some(_) => starts_here && !has_moved,
                None => false,
            })
    }

    fn open(&mut self, call: &Call, flags: i32) -> Option<i64> {
        let writes = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_PATH;
        if flags & writes != libc::O_RDONLY {
            return None;
        }
        let answer = call.make();
        let Some(fd) = i32::try_from(answer).ok().filter(|&fd| fd >= 0) else {
            return Some(answer);
        };
        let opened = OwnedFd::of(fd);
        // The C library has the number for another file, which the abort has closed in the kernel.
        let opened = match self.reads.iter().map(|(own, _)| *own).max() {
            Some(last) if self.place(fd).is_some() => {
                let cloexec = flags & libc::O_CLOEXEC != 0;
                match kernel::duplicate(fd, last.saturating_add(1), cloexec) {
                    Ok(fd) => OwnedFd::of(fd),
                    Err(errno) => return Some(-i64::from(errno.raw_os_error())),
                }
            }
            _ => opened,
        };
        // It has the number in the kernel, too: nobody else gets that.
        let number = opened.number();
        self.reads.push((number, opened));
        Some(number.into())
    }
}

/// How a thread goes on whose transaction has been aborted and is to begin again: at once, or after what the C library is in.
pub fn begins_again(session: &mut Session, late: Option<Late>) -> Next {
    match late {
        None => Next::Again,
        Some(late) => {
            session.late = Some(late);
            CANCELED
        }
    }
}

/// A call of a thread whose transaction has lost, and begins again later: how it goes on. `None`: as in one that has failed.
pub fn goes_on(thread: &mut Thread, call: &Call, class: Class) -> Option<Next> {
    let session = thread.session.as_mut()?;
    let late = session.late.as_mut()?;
    let number = call.number();
    if class == Class::SignalReturn {
        return None;
    }
    late.calls += u32::from(class != Class::Harmless);
    let is_over = writes(number) || late.calls >= CALLS_MAX;
    if is_over || is_of_the_program(call, class) || !is_inside() {
        return Some(Next::Again);
    }
    if let Some(answer) = late.read(call) {
        return Some(Next::Answer(answer));
    }
    match class {
        // The stack on which the transaction began is no more.
        Class::Exit => None,
        Class::Harmless if is_wait(number) => match naps::first(call, LONG) {
            naps::First::Over(answer) => Some(Next::Answer(answer)),
            naps::First::Goes(_) => Some(Next::Again),
            naps::First::Whole => None,
        },
        Class::Fork
        | Class::Vfork
        | Class::Clone
        | Class::Clone3
        | Class::Exec
        | Class::Restored(_) => Some(CANCELED),
        // As in one that has failed: it has no effect, but for memory, masks and handlers, which are the process's.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_c_library_are_known_by_name() {
        for path in [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib/x86_64-linux-gnu/libc-2.31.so",
            "/lib64/ld-linux-x86-64.so.2",
            "/lib/x86_64-linux-gnu/ld-2.31.so",
            "/lib/ld-musl-x86_64.so.1",
            "/usr/lib/libnss_systemd.so.2",
            "/usr/lib/x86_64-linux-gnu/gconv/ISO8859-15.so",
            "/usr/lib/libresolv.so.2 (deleted)",
        ] {
            assert!(is_of_c_library(path.as_bytes()), "{path}");
        }
        for path in [
            "/usr/lib/libcurl.so.4",
            "/usr/lib/libcap-ng.so",
            "/bin/ld",
            "/opt/libc/libx.so",
            "/usr/lib/libldap-2.5.so.0",
        ] {
            assert!(!is_of_c_library(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn an_instruction_is_in_what_is_mapped_there() {
        let maps = b"1000-2000 r-xp 00000000 08:01 1 /bin/program\n\
            2000-3000 r-xp 00000000 08:01 2    /lib/libc.so.6\n\
            3000-4000 r-xp 00000000 00:00 0\n";
        let inside = |at| is_in_c_library(maps, at);
        assert!(
            !inside(0x1fff)
                && inside(0x2000)
                && inside(0x2fff)
                && !inside(0x3000)
                && !inside(0x5000)
        );
    }
}
