//! What commits with a transaction, or not at all.
#![allow(unsafe_code)] // calls libtxos.so

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::error::{Cause, Error};
use crate::library::Library;

/// Something that commits with a transaction, or not at all: a structure in memory, a database. See [`crate::Tx::enlist`].
///
/// The functions are called in the thread that began the transaction, after the closure. What they do is no part of the
/// transaction.
pub trait Participant {
    /// Everything that the transaction did is published, and nothing but a participant can stop it. Whether this one can commit,
    /// whatever comes. It does not wait for another transaction: other commits of the same user wait until it returns.
    ///
    /// # Errors
    /// Why it refuses: the transaction fails with [`Error::Failed`]. [`std::io::ErrorKind::WouldBlock`] is
    /// a conflict, after which the closure is called again.
    fn prepare(&mut self) -> std::io::Result<()>;

    /// The transaction is committed. A panic is passed on when all participants were told; the transaction stays committed.
    fn commit(&mut self);

    /// It is aborted. This is called also if [`prepare`](Participant::prepare) has refused or was not called.
    fn abort(&mut self);
}

type List = Vec<Box<dyn Participant>>;
type Panic = Box<dyn Any + Send>;

thread_local! {
    /// Of the transaction that this thread began.
    static LIST: RefCell<Option<List>> = const { RefCell::new(None) };
}

/// Adds one; gives it back if this thread has not begun the transaction that it is in.
pub fn add(participant: Box<dyn Participant>) -> Result<(), Error> {
    LIST.with_borrow_mut(|list| match list {
        Some(list) => {
            list.push(participant);
            Ok(())
        }
        None => Err(Error::Failed(Cause {
            what: "only the thread that began the transaction can enlist a participant".into(),
            ..Cause::default()
        })),
    })
}

/// Those of one attempt. What is left of them at the end is told that it is aborted.
pub struct Enlisted {
    /// Of the transaction in whose pause this one is.
    outer: Option<List>,
}

impl Enlisted {
    pub fn begin() -> Enlisted {
        Enlisted { outer: LIST.replace(Some(List::new())) }
    }

    /// Those that have enlisted.
    pub fn take() -> List {
        LIST.with_borrow_mut(|list| list.as_mut().map(std::mem::take).unwrap_or_default())
    }
}

impl Drop for Enlisted {
    fn drop(&mut self) {
        let left = Enlisted::take();
        LIST.replace(self.outer.take());
        abort(left);
    }
}

/// Why a commit with participants failed.
pub enum Refused {
    /// The library says why.
    ByLibrary,
    /// A participant did.
    By(Error),
}

/// Ends the thread's transaction with participants.
pub fn end(lib: &Library, mut list: List) -> Result<(), Refused> {
    const EINPROGRESS: i32 = 115;
    let last = || std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    // SAFETY: as txos.h says.
    if unsafe { (lib.prepare)() } != 0 {
        let errno = last();
        // SAFETY: as above.
        let allowed = unsafe { (lib.in_transaction)() } == 0;
        if allowed {
            return Err(gone(list, errno == EINPROGRESS));
        }
        // SAFETY: as above; the words are zero-terminated, and there until the next call.
        let what =
            unsafe { std::ffi::CStr::from_ptr((lib.strerror)()) }.to_string_lossy().into_owned();
        // SAFETY: as above.
        unsafe { (lib.abort)(1) };
        abort(list);
        return Err(Refused::By(Error::Failed(Cause { what, errno, ..Cause::default() })));
    }
    let mut stopped = None;
    for participant in &mut list {
        match catch_unwind(AssertUnwindSafe(|| participant.prepare())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => stopped = Some(Ok(error)),
            Err(panic) => stopped = Some(Err(panic)),
        }
        if stopped.is_some() {
            break;
        }
    }
    // SAFETY: as above: this thread has prepared it.
    if unsafe { (lib.finish)(c_int::from(stopped.is_none())) } != 0 {
        return Err(gone(list, last() == EINPROGRESS));
    }
    match stopped {
        None => {
            commit(list);
            Ok(())
        }
        Some(why) => {
            abort(list);
            Err(Refused::By(refusal(why.unwrap_or_else(|panic| resume_unwind(panic)))))
        }
    }
}

fn refusal(error: std::io::Error) -> Error {
    let cause = Cause {
        what: format!("a participant refused to commit with the transaction: {error}"),
        errno: error.raw_os_error().unwrap_or(0),
        ..Cause::default()
    };
    match error.kind() {
        std::io::ErrorKind::WouldBlock => Error::Conflict(cause),
        _ => Error::Failed(cause),
    }
}

/// What is undecided is told nothing.
fn gone(list: List, undecided: bool) -> Refused {
    if undecided {
        std::mem::forget(list);
    } else {
        abort(list);
    }
    Refused::ByLibrary
}

fn commit(list: List) {
    tell(list.into_iter(), |participant| participant.commit());
}

fn abort(list: List) {
    tell(list.into_iter().rev(), |participant| participant.abort());
}

/// Tells all of them; a panic goes on after that, unless one does already.
fn tell(list: impl Iterator<Item = Box<dyn Participant>>, what: impl Fn(&mut dyn Participant)) {
    let mut first: Option<Panic> = None;
    for mut participant in list {
        let told = catch_unwind(AssertUnwindSafe(|| what(&mut *participant)));
        first = first.or(told.err());
    }
    if let Some(panic) = first.filter(|_| !std::thread::panicking()) {
        resume_unwind(panic);
    }
}
