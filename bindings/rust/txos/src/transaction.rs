//! Transactions as closures.
//!
//! `TX_RESTART` is never used: returning once more from `sys_xbegin` would skip destructors. What
//! is retried is the closure, called again.
//!
//! # Safety
//!
//! Unsafe here is calling the functions of txos.h: they take numbers, or structures of which the
//! size is told, and change nothing else of the program's.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr, c_int};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::error::{Cause, Error};
use crate::library::{CAbort, CStats, Library, library};
use crate::participant::{self, Enlisted, Participant, Refused};
use crate::timer::Timer;

const DURABLE: i32 = 0x02;
const STRICT: i32 = 0x04;
const NONBLOCK: i32 = 0x10;
const ORDERED: i32 = 0x20;
const ORDER_RESET: i32 = 0x40;
const AFTER: i32 = 0x400;
const KEEP_CREDENTIALS: i32 = 0x800;
/// A transaction that is not committed keeps its name, and what it comes after, for the next attempt.
const RETRY: i32 = 0x1000;
/// The number of a file that an abort closes stays taken until its `File` is dropped.
const MANAGED: i32 = 0x100;

const ASKED: u32 = 1;
const CONFLICT: u32 = 2;
const UNSUPPORTED: u32 = 3;
const PRODUCER: u32 = 8;

const EINVAL: i32 = 22;

/// Between two attempts: at random up to this, doubled each time.
const BACKOFF_US: u64 = 1_000;
const BACKOFF_MAX_US: u64 = 64_000;

/// What this thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Here {
    Outside,
    Inside {
        /// A transaction within it failed: it can't commit any more.
        spoiled: bool,
        /// The closure has asked to be called again.
        again: bool,
        /// It keeps credentials.
        keeps: bool,
    },
}

impl Here {
    fn is_spoiled(self) -> bool {
        matches!(self, Here::Inside { spoiled: true, .. })
    }

    fn is_again(self) -> bool {
        matches!(self, Here::Inside { again: true, .. })
    }
}

thread_local! {
    static HERE: Cell<Here> = const { Cell::new(Here::Outside) };
}

/// Runs a closure as a transaction: durable, and called again after up to 10 conflicts.
///
/// See [`Transaction::run`].
///
/// # Errors
/// The closure's own error, or why the transaction did not happen; then nothing of it has.
pub fn transaction<T, E: From<Error>>(work: impl FnMut(&Tx) -> Result<T, E>) -> Result<T, E> {
    Transaction::new().run(work)
}

/// How a transaction is to be made.
#[derive(Clone, Copy, Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Transaction<'a> {
    durable: bool,
    strict: bool,
    nonblock: bool,
    retry: u32,
    timeout: Option<Duration>,
    sequence: Option<u64>,
    reset_sequence: bool,
    name: Option<&'a str>,
    after: &'a [&'a str],
    keep_credentials: bool,
}

impl Default for Transaction<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Transaction<'a> {
    /// Durable, retried 10 times.
    pub const fn new() -> Self {
        Transaction {
            durable: true,
            strict: false,
            nonblock: false,
            retry: 10,
            timeout: None,
            sequence: None,
            reset_sequence: false,
            name: None,
            after: &[],
            keep_credentials: false,
        }
    }

    /// Whether its changes survive a power cut once it has ended. The default: yes.
    pub const fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Whether a call that can't be part of a transaction aborts it. The default: no, it is made,
    /// with one warning on standard error.
    pub const fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Whether another transaction in the way is a conflict at once. The default: no, it is waited
    /// for.
    pub const fn nonblock(mut self, nonblock: bool) -> Self {
        self.nonblock = nonblock;
        self
    }

    /// How often it is tried again after a conflict. The default: 10 times.
    pub const fn retry(mut self, times: u32) -> Self {
        self.retry = times;
        self
    }

    /// The time that each attempt has. When it is over, the next system call for a file fails with `ECANCELED`, a
    /// wait for another transaction ends, and the transaction fails with [`Error::TimedOut`]. A closure that
    /// makes no calls is not interrupted. The default: no limit.
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Commits in the order of this number: after the transactions of the process group with lower ones.
    pub const fn ordered(mut self, sequence: u64) -> Self {
        self.sequence = Some(sequence);
        self
    }

    /// Begins the sequence of the process group at this number, which is the transaction's own.
    pub const fn ordered_from(mut self, sequence: u64) -> Self {
        self.sequence = Some(sequence);
        self.reset_sequence = true;
        self
    }

    /// A name, by which others can come after it through all of its attempts: programs with [`after`](Transaction::after),
    /// commands with `txos run --after`. It has 255 bytes at the most, and no control characters. The default: none.
    pub const fn name(mut self, name: &'a str) -> Self {
        self.name = Some(name);
        self
    }

    /// Comes after others that run already: transactions with these names, and commands with these names or ids. The closure
    /// is called at once. Where it looks at what they have changed, it waits for their end, and it commits after them. If it
    /// has looked before, that is a conflict, and it is called again when they have ended; so it is when it finds that it
    /// is too early, and returns [`Tx::again`]. If one of them does not commit, the transaction fails with
    /// [`Error::NotProduced`]; so it does at its beginning if there is nothing of a name, with the error number `ESRCH`.
    ///
    /// ```no_run
    /// # fn main() -> std::io::Result<()> {
    /// txos::Transaction::new().after(&["parts"]).run(|tx| {
    ///     if !std::fs::exists("parts")? {
    ///         return Err(tx.again("there are no parts yet").into());
    ///     }
    ///     std::fs::copy("parts", "whole").map(drop)
    /// })
    /// # }
    /// ```
    pub const fn after(mut self, names: &'a [&'a str]) -> Self {
        self.after = names;
        self
    }

    /// Whether what the closure gives up for good, such as root's privileges by `setuid`, is given up by the commit, so that
    /// an abort has it back. It needs a process of one thread, so it can't be had with [`timeout`](Transaction::timeout).
    /// The default: no.
    pub const fn keep_credentials(mut self, keep: bool) -> Self {
        self.keep_credentials = keep;
        self
    }

    /// Calls the closure as a transaction of this thread. `Ok` commits. `Err` or a panic aborts, and
    /// is passed on. After a conflict the closure is called again; what it did to variables is
    /// not put back.
    ///
    /// Within a transaction it is part of that, with that one's settings; if it fails, that one
    /// can't commit any more, and returns [`Error::Aborted`] if it tries to. It can't have a name, come after others, or keep
    /// credentials where that one does not.
    ///
    /// # Errors
    /// The closure's own error, or why the transaction did not happen; then nothing of it has.
    pub fn run<T, E: From<Error>>(self, mut work: impl FnMut(&Tx) -> Result<T, E>) -> Result<T, E> {
        if let Here::Inside { keeps, .. } = HERE.get() {
            self.check_nested(keeps)?;
            return within(work);
        }
        self.check()?;
        let lib = library().map_err(unavailable)?;
        let _place = Place { lib, is_known: self.is_known() };
        // SAFETY: see above.
        let joined = unsafe { (lib.in_transaction)() } != 0;
        let mut attempt = 0;
        loop {
            match self.once(lib, attempt, &mut work)? {
                Attempt::Done(result) => return result,
                Attempt::Lost(_) | Attempt::Early(_) if !joined && attempt < self.retry => {}
                Attempt::Early(result) => return result,
                Attempt::Lost(conflict) => return Err(conflict.into()),
            }
            std::thread::sleep(backoff(attempt));
            attempt += 1;
        }
    }

    fn flags(self) -> i32 {
        [
            (self.durable, DURABLE),
            (self.strict, STRICT),
            (self.nonblock, NONBLOCK),
            (self.sequence.is_some(), ORDERED),
            (self.reset_sequence, ORDER_RESET),
            (!self.after.is_empty(), AFTER),
            (self.keep_credentials, KEEP_CREDENTIALS),
            (self.is_known(), RETRY),
        ]
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .fold(MANAGED, |flags, (_, flag)| flags | flag)
    }

    /// Whether it has a place among those that come after each other.
    fn is_known(self) -> bool {
        self.name.is_some() || !self.after.is_empty()
    }

    fn check_nested(self, keeps: bool) -> Result<(), Error> {
        if self.is_known() {
            return Err(invalid(
                "a transaction within another one is part of that: it has no name, and comes after nothing, of its own",
            ));
        }
        if self.keep_credentials && !keeps {
            return Err(invalid("the outer transaction was begun without keep_credentials"));
        }
        Ok(())
    }

    fn check(self) -> Result<(), Error> {
        const LONGEST: usize = 255;
        if !self.after.is_empty() && self.sequence.is_some() {
            return Err(invalid("a transaction comes after others, or in the order of a number"));
        }
        if self.keep_credentials && self.timeout.is_some() {
            let what =
                "a timeout needs a thread, and credentials are kept in a process of one thread";
            return Err(invalid(what));
        }
        for name in self.name.iter().chain(self.after) {
            // As the library does.
            if name.is_empty() || name.len() > LONGEST || name.contains(char::is_control) {
                let what = "a name has 1 to 255 bytes, and no control characters";
                return Err(invalid(&format!("{what}: {name:?}")));
            }
        }
        Ok(())
    }

    fn begin(self, lib: &Library, attempt: u32) -> Result<(), Error> {
        let text = |text: String| CString::new(text).map_err(|error| invalid(&error.to_string()));
        let not_begun = || {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            Err(not_begun(lib, errno, !self.after.is_empty()))
        };
        // A further attempt has its name already.
        if self.is_known() && attempt == 0 {
            let name = self.name.map(|name| text(name.to_owned())).transpose()?;
            let name = name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
            // SAFETY: null, or zero-terminated; the call does not keep it.
            if unsafe { (lib.name)(name) } != 0 {
                return not_begun();
            }
        }
        let names = text(self.after.join("\n"))?;
        let second = match self.after.is_empty() {
            true => self.sequence.unwrap_or(0),
            false => names.as_ptr() as u64,
        };
        // SAFETY: see above; without TX_RESTART it returns once. With TX_AFTER the second argument is zero-terminated, and is
        // not kept.
        if unsafe { (lib.begin)(self.flags(), second) } < 0 {
            return not_begun();
        }
        Ok(())
    }

    fn once<T, E: From<Error>>(
        self,
        lib: &Library,
        attempt: u32,
        work: &mut impl FnMut(&Tx) -> Result<T, E>,
    ) -> Result<Attempt<T, E>, Error> {
        let timer = self.timeout.map(Timer::start).transpose();
        let timer = timer.map_err(|error| {
            let what = format!("a thread for the time limit could not be started: {error}");
            let errno = error.raw_os_error().unwrap_or(0);
            Error::Failed(Cause { what, errno, ..Cause::default() })
        })?;
        let last_abort = |lib| match last_abort(lib) {
            None if timer.as_ref().is_some_and(Timer::is_over) => Some(Error::TimedOut),
            other => other,
        };
        if let Err(error) = self.begin(lib, attempt) {
            return if error.is_conflict() { Ok(Attempt::Lost(error)) } else { Err(error) };
        }
        if let Some(timer) = &timer {
            // SAFETY: the flag lives until the timer goes, after the transaction.
            unsafe { (lib.abort_if)(timer.flag()) };
        }
        let process = std::process::id();
        let _shown = Shown::begin();
        let _enlisted = Enlisted::begin();
        HERE.set(Here::Inside { spoiled: false, again: false, keeps: self.keep_credentials });
        let result = catch_unwind(AssertUnwindSafe(|| work(&Tx { thread: PhantomData })));
        let here = HERE.replace(Here::Outside);
        // SAFETY: see above.
        if std::process::id() != process || unsafe { (lib.in_transaction)() } == 0 {
            return match result {
                Err(panic) => resume_unwind(panic),
                Ok(Err(error)) => Ok(Attempt::Done(Err(error))),
                Ok(Ok(_)) => Err(Error::Failed(Cause {
                    what: "nothing was committed: at the end of the closure there was no \
                           transaction any more (the process was forked in it, or other code has \
                           ended it)"
                        .into(),
                    ..Cause::default()
                })),
            };
        }
        if let Ok(Ok(value)) = result {
            if here.is_spoiled() {
                // SAFETY: see above.
                unsafe { (lib.abort)(1) };
                return match last_abort(lib) {
                    Some(error @ Error::Conflict(_)) => Ok(Attempt::Lost(error)),
                    other => Err(other.unwrap_or(Error::Aborted)),
                };
            }
            let participants = Enlisted::take();
            let ended = match participants.is_empty() {
                // SAFETY: see above.
                true => unsafe { (lib.end)() == 0 }.then_some(()).ok_or(Refused::ByLibrary),
                false => participant::end(lib, participants),
            };
            match ended {
                Ok(()) => return Ok(Attempt::Done(Ok(value))),
                Err(Refused::By(error @ Error::Conflict(_))) => return Ok(Attempt::Lost(error)),
                Err(Refused::By(error)) => return Err(error),
                Err(Refused::ByLibrary) => {}
            }
            return match last_abort(lib) {
                Some(error @ Error::Conflict(_)) => Ok(Attempt::Lost(error)),
                other => Err(other.unwrap_or(Error::Aborted)),
            };
        }
        // SAFETY: see above.
        unsafe { (lib.abort)(1) };
        match result {
            Err(panic) => resume_unwind(panic),
            // If it had failed before, the error is only what the closure made of that.
            Ok(returned) => match last_abort(lib) {
                Some(error @ Error::Conflict(_)) => Ok(Attempt::Lost(error)),
                Some(error) => Err(error),
                None if here.is_again() => Ok(Attempt::Early(returned)),
                None => Ok(Attempt::Done(returned)),
            },
        }
    }
}

/// Of a transaction that is known by its name, or comes after others, through all attempts. Afterwards there are none: if it has
/// not committed, it has failed for what comes after it.
struct Place {
    lib: &'static Library,
    is_known: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_known {
            // SAFETY: null takes a name back.
            unsafe { (self.lib.name)(std::ptr::null()) };
        }
    }
}

fn invalid(what: &str) -> Error {
    Error::Failed(Cause { what: what.to_owned(), errno: EINVAL, ..Cause::default() })
}

fn too_early(why: &str) -> Error {
    let what = format!("the closure asked to be called again: {why}");
    Error::Conflict(Cause { what, ..Cause::default() })
}

enum Attempt<T, E> {
    Done(Result<T, E>),
    /// A conflict.
    Lost(Error),
    /// What the closure returned that asked to be called again.
    Early(Result<T, E>),
}

/// A transaction within one.
fn within<T, E>(mut work: impl FnMut(&Tx) -> Result<T, E>) -> Result<T, E> {
    let result = catch_unwind(AssertUnwindSafe(|| work(&Tx { thread: PhantomData })));
    if !matches!(result, Ok(Ok(_)))
        && let Here::Inside { again, keeps, .. } = HERE.get()
    {
        HERE.set(Here::Inside { spoiled: true, again, keeps });
    }
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// The transaction that a closure is called in.
#[derive(Debug)]
pub struct Tx {
    /// It is this thread's.
    thread: PhantomData<*const ()>,
}

impl Tx {
    /// Has the closure called again, as after a conflict, when it returns this error (or any other): what it needs is not there
    /// yet. One that comes [`after`](Transaction::after) others is called when these have ended. It counts as a retry; if
    /// none is left, the error is passed on.
    #[must_use = "it is to be returned by the closure"]
    pub fn again(&self, why: &str) -> Error {
        if let Here::Inside { spoiled, keeps, .. } = HERE.get() {
            HERE.set(Here::Inside { spoiled, again: true, keeps });
        }
        too_early(why)
    }

    /// Leaves the transaction while a closure runs: what it does is not part of it, stays, and sees
    /// nothing of it. It may be a transaction of its own.
    ///
    /// # Errors
    /// If the transaction can't be left.
    ///
    /// # Panics
    /// If it can't be entered again, which other code that ended it would cause.
    pub fn pause<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        /// Goes on with it, also after a panic.
        struct Paused {
            lib: &'static Library,
            number: std::ffi::c_long,
            here: Here,
            process: u32,
        }
        impl Drop for Paused {
            fn drop(&mut self) {
                // In a child it is the parent's.
                if std::process::id() == self.process {
                    // SAFETY: see above.
                    let resumed = unsafe { (self.lib.resume)(self.number) } == 0;
                    HERE.set(self.here);
                    assert!(
                        resumed || std::thread::panicking(),
                        "the transaction can't go on: {}",
                        words(self.lib)
                    );
                }
            }
        }
        let lib = library().map_err(unavailable)?;
        // SAFETY: see above.
        let number = unsafe { (lib.pause)() };
        if number < 0 {
            let what = words(lib);
            return Err(Error::Failed(Cause { what, ..Cause::default() }));
        }
        let here = HERE.replace(Here::Outside);
        let paused = Paused { lib, number, here, process: std::process::id() };
        let result = work();
        drop(paused);
        Ok(result)
    }
}

impl Tx {
    /// Has a participant commit with the transaction, or not at all: a two-phase commit. It is told at the end of the
    /// attempt; when the closure is called again, it enlists anew.
    ///
    /// ```no_run
    /// use std::{cell::Cell, rc::Rc};
    ///
    /// struct Payment(Rc<Cell<u32>>, u32);
    ///
    /// impl txos::Participant for Payment {
    ///     fn prepare(&mut self) -> std::io::Result<()> {
    ///         let enough = self.1 <= self.0.get();
    ///         enough.then_some(()).ok_or_else(|| std::io::Error::other("there is not enough"))
    ///     }
    ///     fn commit(&mut self) {
    ///         self.0.set(self.0.get() - self.1);
    ///     }
    ///     fn abort(&mut self) {}
    /// }
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let balance = Rc::new(Cell::new(100));
    /// txos::transaction(|tx| {
    ///     tx.enlist(Payment(balance.clone(), 70))?;
    ///     std::fs::write("paid", "70\n")
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Another thread began the transaction.
    pub fn enlist(&self, participant: impl Participant + 'static) -> Result<(), Error> {
        participant::add(Box::new(participant))
    }

    /// Calls a closure that may start threads which take part in the transaction: they see and make the same
    /// changes. All of them have ended when this returns.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// txos::transaction(|tx| -> Result<(), Box<dyn std::error::Error>> {
    ///     tx.scope(|scope| {
    ///         let half = scope.spawn(|_| std::fs::write("one", "1"));
    ///         std::fs::write("two", "2")?;
    ///         half.join().expect("it does not panic")??;
    ///         Ok(())
    ///     })?
    /// })
    /// # }
    /// ```
    ///
    /// System calls for files are made one at a time.
    ///
    /// # Errors
    /// The transaction is lost already, or can't be shown to threads.
    ///
    /// # Panics
    /// A thread has panicked that was not joined, as with [`std::thread::scope`].
    pub fn scope<'env, T>(
        &self,
        work: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> T,
    ) -> Result<T, Error> {
        let lib = library().map_err(unavailable)?;
        if SHOWN.get() < 0 || !in_transaction() {
            // SAFETY: see above.
            let shown = unsafe { (lib.share)() };
            if shown < 0 {
                let otherwise = || Error::Failed(Cause { what: words(lib), ..Cause::default() });
                return Err(last_abort(lib).unwrap_or_else(otherwise));
            }
            SHOWN.set(shown);
        }
        let shown = SHOWN.get();
        Ok(std::thread::scope(|threads| work(&Scope { threads, lib, shown })))
    }
}

thread_local! {
    /// By which threads join the transaction that this thread is in; -1: it is shown to none yet.
    static SHOWN: Cell<c_int> = const { Cell::new(-1) };
}

/// Closes what has shown a transaction, when that has ended. In it the number would be the transaction's to give away
/// again, and a program that the closure starts would find it there.
struct Shown {
    /// Of the transaction in whose pause this one is.
    outer: c_int,
}

impl Shown {
    fn begin() -> Shown {
        Shown { outer: SHOWN.replace(-1) }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        unsafe extern "C" {
            fn close(fd: c_int) -> c_int;
        }
        let shown = SHOWN.replace(self.outer);
        if shown >= 0 {
            // SAFETY: it is this transaction's own.
            unsafe { close(shown) };
        }
    }
}

/// Where threads are started that take part in a transaction.
#[derive(Debug)]
pub struct Scope<'scope, 'env> {
    threads: &'scope std::thread::Scope<'scope, 'env>,
    lib: &'static Library,
    shown: c_int,
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread that calls a closure as part of the transaction. If it panics, the transaction is aborted.
    /// What it returns says nothing about that: an error is to be passed on by who joins it.
    ///
    /// Joined, it gives an error if the transaction was over before the thread could enter it; then the closure was
    /// not called.
    pub fn spawn<T: Send + 'scope>(
        &self,
        work: impl FnOnce(&Tx) -> T + Send + 'scope,
    ) -> std::thread::ScopedJoinHandle<'scope, Result<T, Error>> {
        let (lib, shown) = (self.lib, self.shown);
        self.threads.spawn(move || {
            // SAFETY: see above.
            if unsafe { (lib.join)(shown) } != 0 {
                let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
                return Err(Error::Failed(Cause { what: words(lib), errno, ..Cause::default() }));
            }
            let _shown = Shown::begin();
            HERE.set(Here::Inside { spoiled: false, again: false, keeps: false });
            let result = catch_unwind(AssertUnwindSafe(|| work(&Tx { thread: PhantomData })));
            let spoiled = HERE.replace(Here::Outside).is_spoiled();
            // SAFETY: see above.
            unsafe {
                if spoiled || result.is_err() {
                    (lib.abort)(1);
                } else {
                    (lib.end)();
                }
            }
            result.map_or_else(|panic| resume_unwind(panic), Ok)
        })
    }
}

/// Leaves a file out of the transactions of this process as long as it is only read; gives how many files that were.
///
/// Of a directory, all files below it whose names end with `suffix`. Such a file causes no conflict, is not waited for,
/// and an abort does not close it: it is for what a program opens late and keeps, such as a plug-in's libraries. A file
/// is known by its device and inode as it is now: one that takes its place is part of transactions.
///
/// # Errors
/// In a transaction (`EBUSY`), if the path can't be read, or if there is no library.
pub fn leave_out(path: impl AsRef<Path>, suffix: &str) -> Result<u64, Error> {
    let lib = library().map_err(unavailable)?;
    let given = path.as_ref();
    let failed = |error: std::io::Error| {
        let what = format!("can't be left out of transactions: {error}");
        let errno = error.raw_os_error().unwrap_or(0);
        Error::Failed(Cause { what, path: Some(given.into()), errno, pid: None })
    };
    let path = std::path::absolute(given).map_err(failed)?;
    let names = [path.as_os_str().as_bytes(), suffix.as_bytes()].map(CString::new);
    let [Ok(path), Ok(suffix)] = names else {
        return Err(failed(std::io::ErrorKind::InvalidInput.into()));
    };
    // SAFETY: both are zero-terminated, and the call keeps neither.
    let count = unsafe { (lib.exclude)(path.as_ptr(), suffix.as_ptr()) };
    u64::try_from(count).map_err(|_| failed(std::io::Error::last_os_error()))
}

/// Whether the calling thread is in a transaction, and has not paused it.
#[must_use]
pub fn in_transaction() -> bool {
    // SAFETY: see above.
    library().is_ok_and(|lib| unsafe { (lib.in_transaction)() } != 0)
}

/// The version of the library that was found.
///
/// # Errors
/// If none was.
pub fn library_version() -> Result<String, Error> {
    let lib = library().map_err(unavailable)?;
    // SAFETY: it gives a constant, zero-terminated.
    Ok(unsafe { CStr::from_ptr((lib.version)()) }.to_string_lossy().into_owned())
}

/// Counters of the calling thread since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Transactions, retries included.
    pub begun: u64,
    /// Of those, that were published.
    pub committed: u64,
    /// Of those, that did not happen.
    pub aborted: u64,
    /// System calls made within transactions.
    pub calls: u64,
    /// Of those, that came by Syscall User Dispatch.
    pub trapped: u64,
    /// Of those, that passed through with a warning.
    pub unsupported: u64,
    /// Commits of one call, or without changes.
    pub short_cuts: u64,
}

/// What the calling thread's transactions came to so far.
///
/// # Errors
/// If there is no library.
pub fn stats() -> Result<Stats, Error> {
    let lib = library().map_err(unavailable)?;
    let mut stats = CStats { size: size_of::<CStats>() as u32, ..CStats::default() };
    // SAFETY: the structure says how large it is.
    unsafe { (lib.stats)(&raw mut stats) };
    let [begun, committed, aborted, _, calls, trapped, unsupported, short_cuts] = stats.counters;
    Ok(Stats { begun, committed, aborted, calls, trapped, unsupported, short_cuts })
}

fn unavailable(why: &str) -> Error {
    Error::Unsupported(Cause { what: why.to_owned(), ..Cause::default() })
}

/// What the last failure of this thread was.
fn words(lib: &Library) -> String {
    // SAFETY: zero-terminated, and there until the thread's next call.
    unsafe { CStr::from_ptr((lib.strerror)()) }.to_string_lossy().into_owned()
}

fn not_begun(lib: &Library, errno: i32, is_after: bool) -> Error {
    const ESRCH: i32 = 3;
    const EAGAIN: i32 = 11;
    const ECANCELED: i32 = 125;
    const ENOSYS: i32 = 38;
    const ENOTSUP: i32 = 95;
    let cause = Cause { what: words(lib), errno, ..Cause::default() };
    match errno {
        EAGAIN => Error::Conflict(cause),
        ENOSYS | ENOTSUP => Error::Unsupported(cause),
        ESRCH | ECANCELED if is_after => Error::NotProduced(cause),
        _ => Error::Failed(cause),
    }
}

/// Why the last transaction was aborted; `None` if the program asked for it.
fn last_abort(lib: &Library) -> Option<Error> {
    let mut abort = CAbort {
        size: size_of::<CAbort>() as u32,
        reason: 0,
        error: 0,
        pid: 0,
        what: [0; 256],
        path: [0; 4096],
    };
    // SAFETY: the structure says how large it is.
    unsafe { (lib.abort_reason)(&raw mut abort) };
    let text = |bytes: &[u8]| CStr::from_bytes_until_nul(bytes).unwrap_or_default().to_owned();
    let path = text(&abort.path);
    let cause = Cause {
        what: text(&abort.what).to_string_lossy().into_owned(),
        path: (!path.is_empty()).then(|| OsStr::from_bytes(path.as_bytes()).into()),
        errno: abort.error,
        pid: u32::try_from(abort.pid).ok().filter(|pid| *pid != 0),
    };
    match abort.reason {
        ASKED => None,
        CONFLICT => Some(Error::Conflict(cause)),
        UNSUPPORTED => Some(Error::Unsupported(cause)),
        PRODUCER => Some(Error::NotProduced(cause)),
        _ => Some(Error::Failed(cause)),
    }
}

/// Random, so that those who met don't meet again.
fn backoff(attempt: u32) -> Duration {
    let limit = (BACKOFF_US << attempt.min(10)).min(BACKOFF_MAX_US);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // The low digits of the time, spread: nothing depends on how random they are.
    let seed = u64::from(now.subsec_nanos()) ^ u64::from(std::process::id()) << 32;
    Duration::from_micros((seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16) % limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_the_header() {
        assert_eq!(Transaction::new().flags(), MANAGED | DURABLE);
        let all = Transaction::new().durable(true).strict(true).nonblock(true);
        assert_eq!(all.flags(), MANAGED | DURABLE | STRICT | NONBLOCK);
        let none = Transaction::new().durable(false);
        assert_eq!(none.flags(), MANAGED);
        assert_eq!(none.ordered(7).flags(), MANAGED | ORDERED);
        assert_eq!(none.ordered_from(7).flags(), MANAGED | ORDERED | ORDER_RESET);
        assert_eq!(none.name("a").flags(), MANAGED | RETRY);
        assert_eq!(none.after(&["a"]).flags(), MANAGED | AFTER | RETRY);
        assert_eq!(none.keep_credentials(true).flags(), MANAGED | KEEP_CREDENTIALS);
    }

    #[test]
    fn pauses_are_bounded() {
        for attempt in [0, 1, 5, 40, u32::MAX] {
            assert!(backoff(attempt) < Duration::from_micros(BACKOFF_MAX_US));
        }
    }
}
