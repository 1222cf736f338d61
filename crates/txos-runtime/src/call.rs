//! A system call of the program's own.
//!
//! A [`Call`] is the one way from the program to the kernel: it can be made as it is, or with descriptors
//! of the kernel's for the program's. Everything else in it can only be replaced in unsafe code.
#![allow(unsafe_code)] // it is made for the program

use crate::raw::{self, Errno, Sys, check};
use crate::user::{Plain, UserPtr, UserSlice};

/// A system call of the program's: its number, and its arguments as they are in registers.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    number: i64,
    words: [u64; 6],
}

impl Call {
    /// A call.
    ///
    /// # Safety
    /// The program makes this call on this thread, and waits for the answer. Or the runtime makes one for
    /// it: then the pointers among the arguments lead to memory that lives until the answer and that
    /// nobody has a reference to.
    ///
    /// A call that is kept for later has pointers of a call that is over: they are replaced
    /// ([`Call::with_word`]) before it is made, and before they are read or written.
    #[inline]
    #[must_use]
    pub const unsafe fn new(number: i64, words: [u64; 6]) -> Call {
        Call { number, words }
    }

    /// Its number.
    #[inline]
    #[must_use]
    pub const fn number(&self) -> i64 {
        self.number
    }

    /// Whether it reads, writes or seeks by the descriptor that is its first argument.
    #[inline]
    #[must_use]
    pub fn is_read_write_or_seek(&self) -> bool {
        matches!(
            self.number,
            libc::SYS_read
                | libc::SYS_readv
                | libc::SYS_pread64
                | libc::SYS_preadv
                | libc::SYS_write
                | libc::SYS_writev
                | libc::SYS_pwrite64
                | libc::SYS_pwritev
                | libc::SYS_lseek
        )
    }

    /// All its arguments.
    #[inline]
    #[must_use]
    pub const fn words(&self) -> &[u64; 6] {
        &self.words
    }

    /// An argument.
    #[inline]
    #[must_use]
    pub const fn word(&self, index: usize) -> u64 {
        self.words[index]
    }

    /// An argument that is an `int`.
    #[inline]
    #[must_use]
    pub const fn int(&self, index: usize) -> i32 {
        self.words[index] as i32
    }

    /// An argument that is an `unsigned int`.
    #[inline]
    #[must_use]
    pub const fn uint(&self, index: usize) -> u32 {
        self.words[index] as u32
    }

    /// An argument that is a `long`.
    #[inline]
    #[must_use]
    pub const fn long(&self, index: usize) -> i64 {
        self.words[index] as i64
    }

    /// An argument that is a pointer. `T` is what the call reads or writes there.
    #[inline]
    #[must_use]
    pub const fn pointer<T: Plain>(&self, index: usize) -> UserPtr<T> {
        // SAFETY: whoever made this says that the program gave it.
        unsafe { UserPtr::new(self.words[index]) }
    }

    /// An argument that is a buffer of `len` bytes.
    #[inline]
    #[must_use]
    pub const fn buffer(&self, index: usize, len: u64) -> UserSlice {
        // SAFETY: whoever made this says that the program gave it.
        unsafe { UserSlice::new(self.words[index], len) }
    }

    /// Whether its first two arguments, a place and how many bytes there are, take in where something is.
    #[must_use]
    pub fn takes<T>(&self, thing: *const T) -> bool {
        let at = thing as u64;
        at.checked_sub(self.words[0]).is_some_and(|offset| offset < self.words[1])
    }

    /// A copy of an argument that is a path.
    ///
    /// # Errors
    /// EFAULT, ENAMETOOLONG.
    #[inline]
    pub fn path(&self, index: usize) -> Sys<Vec<u8>> {
        self.pointer::<u8>(index).path()
    }

    /// The call with a descriptor of the kernel's as one of its arguments.
    ///
    /// # Panics
    /// That argument is no descriptor.
    #[inline]
    #[must_use]
    pub fn with_descriptor(mut self, index: usize, real: i32) -> Call {
        assert!(
            txos_calls::descriptors(self.number).any(|i| i == index),
            "no descriptor: {} {index}",
            self.number
        );
        self.words[index] = real as u64;
        self
    }

    /// The call with another argument.
    ///
    /// # Safety
    /// If the argument is a pointer, it leads to memory that has the size and is used in the way that the
    /// call says, that lives until the answer, and that nobody has a reference to meanwhile (one that is
    /// shared, if the call only reads there). If it says how long something is, that is as long.
    #[inline]
    #[must_use]
    pub const unsafe fn with_word(mut self, index: usize, word: u64) -> Call {
        self.words[index] = word;
        self
    }

    /// Makes it. The answer is a value, or a negative errno.
    #[inline]
    #[must_use]
    pub fn make(&self) -> i64 {
        // SAFETY: it is the program's own call, or one of the runtime's, whose pointers are as they are to be.
        unsafe { raw::syscall(self.number, self.words) }
    }

    /// Makes it.
    ///
    /// # Errors
    /// As the system call.
    #[inline]
    pub fn answer(&self) -> Sys<u64> {
        check(self.make())
    }

    /// Makes one that may wait for long. A signal that would end the program natively ends it meanwhile.
    ///
    /// # Errors
    /// As the system call.
    pub fn answer_waiting(&self) -> Sys<u64> {
        self.answer_waiting_unless(&|| false)
    }

    /// The same, of one that takes what it reads: nothing is taken if `lost` says so once there is something.
    ///
    /// # Errors
    /// As the system call; ECANCELED.
    pub fn answer_waiting_unless(&self, lost: &dyn Fn() -> bool) -> Sys<u64> {
        // A wait's price (six calls) is for waits.
        let Some(done) = self.answer_at_once() else {
            if self.waits_for_bytes() {
                while_waiting(|| self.until_there_is_something())?;
                if lost() {
                    return Err(Errno::CANCELED);
                }
            }
            return while_waiting(|| self.answer());
        };
        let [fd, at, len, ..] = self.words;
        match (self.number, done) {
            (libc::SYS_write, Ok(n)) if n < len => {
                // SAFETY: what is left of the program's buffer.
                let rest = unsafe { Call::new(self.number, [fd, at + n, len - n, 0, 0, 0]) };
                Ok(n + while_waiting(|| rest.answer()).unwrap_or(0))
            }
            (libc::SYS_read | libc::SYS_recvfrom, Ok(n @ 1..)) if n < len => Ok(n + self
                .rest_of_read(n)
                .map_or(0, |rest| while_waiting(|| rest.answer()).unwrap_or(0))),
            (_, done) => done,
        }
    }

    /// Whether it reads from a pipe, and waits for that.
    fn waits_for_bytes(&self) -> bool {
        let wants = match self.number {
            libc::SYS_read => self.words[2] > 0,
            libc::SYS_preadv2 if self.words[5] & libc::RWF_NOWAIT as u64 != 0 => false,
            libc::SYS_readv | libc::SYS_preadv2 => {
                let buffers = self.pointer::<[u64; 2]>(1).buffers(self.words[2]);
                buffers.is_ok_and(|all| all.iter().any(|one| !one.is_empty()))
            }
            _ => false,
        };
        if !wants {
            return false;
        }
        let fd = self.words[0];
        // SAFETY: plain numbers.
        let mut there: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes the structure.
        let looked =
            unsafe { raw::syscall(libc::SYS_fstat, [fd, (&raw mut there) as u64, 0, 0, 0, 0]) };
        // SAFETY: it has no pointers.
        let flags =
            unsafe { raw::syscall(libc::SYS_fcntl, [fd, libc::F_GETFL as u64, 0, 0, 0, 0]) };
        looked == 0
            && there.st_mode & libc::S_IFMT == libc::S_IFIFO
            && flags >= 0
            && flags & i64::from(libc::O_NONBLOCK) == 0
    }

    fn until_there_is_something(&self) -> Sys<u64> {
        let mut one = libc::pollfd { fd: self.words[0] as i32, events: libc::POLLIN, revents: 0 };
        let words = [(&raw mut one) as u64, 1, 0, 0, 0, 0];
        // SAFETY: the kernel reads and writes the one structure.
        check(unsafe { raw::syscall(libc::SYS_ppoll, words) })
    }

    /// What is still to be read where a read that must not wait has got `n` bytes, and one that may would get more.
    fn rest_of_read(&self, n: u64) -> Option<Call> {
        /// The major number of memory's devices, such as `/dev/zero`.
        const MEMORY: u32 = 1;
        let [fd, at, len, ..] = self.words;
        // SAFETY: plain numbers.
        let mut there: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes the structure.
        check(unsafe { raw::syscall(libc::SYS_fstat, [fd, (&raw mut there) as u64, 0, 0, 0, 0]) })
            .ok()?;
        let rest = |number, len, flags| {
            // SAFETY: a part of the program's buffer.
            Some(unsafe { Call::new(number, [fd, at + n, len, flags, 0, 0]) })
        };
        match there.st_mode & libc::S_IFMT {
            libc::S_IFBLK => rest(libc::SYS_read, len - n, 0),
            libc::S_IFCHR if libc::major(there.st_rdev) == MEMORY => {
                rest(libc::SYS_read, len - n, 0)
            }
            libc::S_IFSOCK => {
                let least = self.socket_option(libc::SO_RCVLOWAT).unwrap_or(1).min(len);
                let stream = self.socket_option(libc::SO_TYPE) == Some(libc::SOCK_STREAM as u64);
                let wait = libc::MSG_WAITALL as u64;
                (stream && n < least).then(|| rest(libc::SYS_recvfrom, least - n, wait)).flatten()
            }
            _ => None,
        }
    }

    fn socket_option(&self, option: i32) -> Option<u64> {
        let (mut value, mut size) = (0_i32, size_of::<i32>() as u32);
        let (level, option) = (libc::SOL_SOCKET as u64, option as u64);
        let places = [(&raw mut value) as u64, (&raw mut size) as u64];
        let words = [self.words[0], level, option, places[0], places[1], 0];
        // SAFETY: the kernel writes the two numbers.
        check(unsafe { raw::syscall(libc::SYS_getsockopt, words) }).ok()?;
        u64::try_from(value).ok()
    }

    /// Makes one of the most frequent ones if it need not wait. `None`: it has to, or can't be asked, and nothing was done.
    fn answer_at_once(&self) -> Option<Sys<u64>> {
        /// A pipe takes or gives so many bytes as a whole: `PIPE_BUF`.
        const WHOLE: u64 = 4096;
        const HERE: u64 = u64::MAX;
        let [fd, at, len, ..] = self.words;
        let buffer = [at, len];
        let moved = [fd, buffer.as_ptr() as u64, 1, HERE, HERE, libc::RWF_NOWAIT as u64];
        let with = |index: usize, word: u64| {
            let mut words = self.words;
            words[index] = word;
            (self.number, words)
        };
        let (number, words) = match self.number {
            // Without bytes it is what the kind of object makes of it: of a socket, an empty message.
            libc::SYS_read if len > 0 => (libc::SYS_preadv2, moved),
            libc::SYS_write if (1..=WHOLE).contains(&len) => (libc::SYS_pwritev2, moved),
            libc::SYS_recvfrom if self.int(3) & (libc::MSG_WAITALL | libc::MSG_PEEK) == 0 => {
                with(3, self.words[3] | libc::MSG_DONTWAIT as u64)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => with(2, 0),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => with(3, 0),
            _ => return None,
        };
        // SAFETY: the program's own call in a form that does not wait, with its pointers.
        let done = check(unsafe { raw::syscall(number, words) });
        let looked = match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => self.int(2) != 0,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => self.int(3) != 0,
            _ => false,
        };
        match done {
            Ok(0) if looked => None,
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::SPIPE) => {
                None
            }
            done => Some(done),
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub use crate::front::signals::while_waiting;

/// Does what may wait, and looks by itself for signals that end the process: meanwhile the transaction gives way.
#[cfg(target_arch = "x86_64")]
pub fn giving_way<R>(work: impl FnOnce() -> R) -> R {
    crate::front::outside::waiting(crate::front::tls::here(), work)
}

/// The same where there are no transactions.
#[cfg(not(target_arch = "x86_64"))]
pub fn giving_way<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// The same where there are no transactions.
#[cfg(not(target_arch = "x86_64"))]
pub fn while_waiting<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::Errno;

    #[test]
    fn only_descriptors_are_replaced_by_descriptors() {
        // SAFETY: it is not made before its pointers are replaced.
        let read = unsafe { Call::new(libc::SYS_read, [3, 0x1000, 8, 0, 0, 0]) };
        assert_eq!(*read.with_descriptor(0, 700).words(), [700, 0x1000, 8, 0, 0, 0]);
        assert_eq!(read.with_descriptor(0, -1).int(0), -1);
        for index in 1..6 {
            let replaced = std::panic::catch_unwind(|| read.with_descriptor(index, 700));
            assert!(replaced.is_err(), "{index}");
        }
    }

    #[test]
    fn arguments_are_what_the_call_says() {
        let path = *b"/dev/null\0";
        let words = [path.as_ptr() as u64, u64::MAX, 1 << 32 | 5, 0, 0, 0];
        // SAFETY: the path lives until the end of the test.
        let call = unsafe { Call::new(libc::SYS_open, words) };
        assert_eq!(call.path(0), Ok(b"/dev/null".to_vec()));
        assert_eq!((call.int(1), call.uint(1), call.long(1)), (-1, u32::MAX, -1));
        assert_eq!((call.int(2), call.word(2)), (5, 1 << 32 | 5));
        assert_eq!(call.path(1), Err(Errno::FAULT));
    }

    #[test]
    fn the_kernel_answers() {
        let mut byte = [7u8];
        // SAFETY: the byte lives until the answer, and nobody refers to it before.
        let call =
            unsafe { Call::new(libc::SYS_read, [u64::MAX, byte.as_mut_ptr() as u64, 1, 0, 0, 0]) };
        assert_eq!(call.answer(), Err(Errno::BADF));
        assert_eq!(call.make(), -i64::from(libc::EBADF));
        assert_eq!(byte, [7]);
    }
}
