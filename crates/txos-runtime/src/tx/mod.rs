//! One transaction of one thread: plain Rust that answers a system call like the kernel does.
//!
//! | module | what lives there |
//! |---|---|
//! | `calls` | one system call: which of the methods below it is |
//! | [`node`], `tree` | shadow objects and their entries |
//! | `parts` | what else a transaction consists of: locks, globals of the process, copies, the report |
//! | `walk` | path walk over shadow and stable entries |
//! | `perm`, `acl` | permissions, as the kernel would decide |
//! | `names` | making, linking, renaming, removing |
//! | [`content`], `io` | what files hold: stable, private pages, private copies; reading and writing |
//! | `attrs`, `list` | stat, modes, owners, times, extended attributes; directory listings |
//! | [`files`], `open`, `fcntl` | descriptors; open; fcntl, ioctl, locks |
//! | [`numbers`] | descriptor numbers between transactions of one process's threads |
//! | `handles` | file handles |
//! | `put_back`, [`timers`] | what is set at once, and put back by an abort |
//! | `others` | other processes' memory and descriptors |
//! | [`spaces`] | several processes in one transaction: what is each one's own |
//! | `passed`, `sockets` | paths of calls that the kernel carries out; addresses of sockets |
//! | [`effects`] | output to the outside, held until the commit |
//! | [`received`], `pipes` | what is received from sockets and read from pipes, taken by the commit |
//! | `acquire` | the read set, and the realm |
//! | `ways` | directories on the way of a path: held, known to the process |
//! | `staging` | where private copies lie |
//! | [`held`] | what happens to others if and when it commits: signals |
//! | `delta`, `commit`, `install` | what was changed, for the engine; publish or forget; what becomes of descriptors |
//! | [`succession`] | what comes after what: producers and consumers |
//! | `single_call`, `single_rename` | what needs no journal: one call, and several that come to one |
//! | `shared` | what all transactions of a process share: realm, store, mounts |
//! | `deadlock` | waiting for one that itself waits for something that only the kernel sees |
//! | [`waits`] | calls that may wait, of a transaction that several threads are in |
//! | [`kernel`], `user` | the stable side; the program's memory |
//!
//! # Invariants
//!
//! - Names are changed in memory only; the stable tree is looked at, never touched, before the commit.
//! - Whatever the transaction was told of the stable tree is in its read set, as of a moment before
//!   it was told.
//! - A descriptor from before the transaction is never closed, moved or seeked before the commit.

mod acl;
pub mod acquire;
mod attrs;
mod calls;
mod commit;
pub mod content;
mod deadlock;
mod deferred;
mod delta;
pub mod effects;
mod fcntl;
pub mod files;
mod foreseen;
mod handles;
pub mod held;
mod install;
mod io;
mod ipc;
pub mod kept;
pub mod kernel;
pub mod lending;
mod libraries;
mod list;
mod log;
mod mapped;
pub mod messages;
mod names;
pub mod node;
pub mod numbers;
mod open;
mod others;
mod parts;
mod passed;
mod perm;
mod pipes;
mod put_back;
pub mod received;
mod retaken;
mod settings;
pub mod shared;
mod single_call;
mod single_rename;
pub mod sockets;
pub mod spaces;
pub mod staging;
pub mod succession;
mod taken_up;
#[cfg(test)]
mod tests;
pub mod timers;
pub mod trace;
mod tree;
pub mod waits;
mod walk;
mod ways;

use std::rc::Rc;
use std::sync::Arc;

use txos_engine::realm::RetryHistory;
use txos_engine::version::Stamp;

use crate::call::Call;
use crate::raw;
use kernel::{Errno, Sys};
use node::{Id, Node, Stable};
use tree::ShadowTree;

/// Flags of `sys_xbegin`, as in txos.h.
pub mod flags {
    /// Begins again after a conflict.
    pub const RESTART: u32 = 0x01;
    /// Committed means: on stable storage.
    pub const DURABLE: u32 = 0x02;
    /// What can't be made transactional aborts.
    pub const STRICT: u32 = 0x04;
    /// Memory is put back on abort.
    pub const CHECKPOINT: u32 = 0x08;
    /// Never waits for another transaction.
    pub const NONBLOCK: u32 = 0x10;
    /// Commits in the order of its sequence number.
    pub const ORDERED: u32 = 0x20;
    /// Begins the sequence at its number.
    pub const ORDER_RESET: u32 = 0x40;
    /// After an abort, descriptors are what the program's objects say: see txos.h.
    pub const MANAGED: u32 = 0x100;
    /// Threads that are made in it are members.
    pub const THREADS: u32 = 0x80;
    /// Processes that are made in it are members.
    pub const PROCESSES: u32 = 0x200;
    /// Comes after others.
    pub const AFTER: u32 = 0x400;
    /// What the thread gives up for good, it gives up by the commit.
    pub const KEEP_CREDENTIALS: u32 = 0x800;
    /// The program itself begins again.
    pub const RETRY: u32 = 0x1000;
    /// All that a program may ask for.
    pub const ALL: u32 = 0x1fff;
    /// Not a program's: the transaction is a whole command, kept in the history like one.
    pub const COMMAND: u32 = 0x8000_0000;
}

/// The reasons of an abort, `enum txos_reason` of txos.h.
pub mod reason {
    /// None yet.
    pub const NOT_ABORTED: u32 = 0;
    /// `sys_xabort`.
    pub const ASKED: u32 = 1;
    /// Somebody else changed, or won, what it touched.
    pub const CONFLICT: u32 = 2;
    /// TX_STRICT, and a call that can't be made transactional.
    pub const UNSUPPORTED: u32 = 3;
    /// Publishing failed and was undone.
    pub const FAILED: u32 = 4;
    /// The thread or the process ended.
    pub const EXITED: u32 = 5;
    /// What was to decide with it refused.
    pub const REFUSED: u32 = 6;
    /// It is committed, and what was to commit with it failed.
    pub const IN_DOUBT: u32 = 7;
    /// What it comes after was not committed.
    pub const PRODUCER: u32 = 8;
}

/// How a transaction begins.
#[derive(Clone, Debug, Default)]
pub struct How {
    /// The flags of `sys_xbegin`.
    pub flags: u32,
    /// The sequence number, with TX_ORDERED or TX_ORDER_RESET.
    pub sequence: Option<u64>,
    /// The names and ids of what it comes after, with TX_AFTER.
    pub producers: Vec<String>,
    /// Its place among those that come after each other, if it has one.
    pub succession: Option<Arc<succession::Succession>>,
    /// What earlier attempts did.
    pub again: Option<RetryHistory>,
    /// Earlier attempts: 0, 1, …
    pub attempt: u32,
    /// Output was sent before the end: it does not begin again by itself.
    pub went_out: bool,
    /// What earlier attempts have taken, and this one is given.
    pub kept: kept::Kept,
    /// It goes on from where the transaction in the store is that this command was given.
    pub goes_on: bool,
}

impl How {
    /// An attempt is over: what the next one has to know of it.
    pub fn goes_by(&mut self, tx: &Tx) {
        self.went_out |= tx.went_out();
        self.kept = tx.kept_for_next();
    }
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
    /// What was sent and taken before, as the end of `what` has it.
    pub before: String,
    /// Where; may be empty.
    pub path: Vec<u8>,
    /// With what the next attempt begins.
    pub again: Option<RetryHistory>,
    /// It does not begin again by itself: it would come to the same.
    pub gives_up: bool,
    /// What the commit found changed, if that is where it failed.
    pub found: Option<Box<Found>>,
}

/// What a commit found changed.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// All of it.
    pub conflicts: Vec<txos_engine::Conflict>,
    /// The transaction changes none of it.
    pub only_read: bool,
}

impl Failure {
    /// Lost to another transaction, in a way that another attempt may not.
    #[must_use]
    pub fn is_worth_another_try(&self) -> bool {
        self.reason == reason::CONFLICT && !self.gives_up
    }
}

/// How a transaction ended well.
#[derive(Debug, Default)]
pub struct Committed {
    /// It was done without journal: one call, or no change.
    pub short_cut: bool,
    /// What waited for the commit, and is to be sent.
    pub held: held::Held,
    /// Of a whole command: what is published, under which id, in words. None if it changed nothing.
    pub published: Option<String>,
    /// What waited for it, and could not be done any more: in words.
    pub failed: Vec<String>,
}

impl Committed {
    /// Without a journal.
    #[must_use]
    pub fn short() -> Committed {
        Committed { short_cut: true, ..Committed::default() }
    }
}

/// What decides together with a transaction.
pub trait Decides {
    /// Everything is published and validated: whether it is to stay. Other commits of the store wait for the answer.
    ///
    /// # Errors
    /// Why it is to be undone.
    fn decide(&self) -> Result<(), Failure>;

    /// Whether the answer may come from anybody, and be long: then nothing takes a shorter way, or is taken only then.
    fn is_others(&self) -> bool {
        true
    }
}

/// One transaction of one thread.
#[derive(Debug)]
pub struct Tx {
    how: How,
    tree: tree::ShadowTree,
    fds: files::FdTable,
    locks: parts::Locks,
    process: parts::ProcessGlobals,
    copies: parts::Copies,
    report: parts::Report,
    start: parts::Start,
    ways: ways::Ways,
    waits: waits::Waits,
    lending: lending::Lending,
    held: held::Held,
    doom: Option<Failure>,
    /// Unless it is a command's. The last field: what is told of its end comes first.
    _running: Option<messages::Running>,
}

pub use messages::say;
pub use parts::was_something_live;

/// The present, as file systems stamp it.
#[must_use]
pub fn now() -> Stamp {
    Stamp::now_coarse()
}

/// The present for an object that was last changed then. Since Linux 6.13 a file system stamps finer than a tick where
/// somebody looks at the times: what comes after such a stamp must not seem to be before it.
#[must_use]
pub fn now_after(last: Stamp) -> Stamp {
    not_before(last, now())
}

fn not_before(last: Stamp, now: Stamp) -> Stamp {
    /// More than a tick of any kernel. What is further ahead is another time on the clock.
    const TICK_NS: i64 = 20_000_000;
    let ahead = last.as_ns().saturating_sub(now.as_ns());
    if (0..TICK_NS).contains(&ahead) { last } else { now }
}

impl Tx {
    /// Begins one.
    ///
    /// # Errors
    /// If no place can be had, or a flag is not supported.
    pub fn begin(how: How) -> Result<Box<Tx>, Failure> {
        if how.flags & flags::COMMAND == 0 && shared::in_a_view() {
            return Err(Failure {
                reason: reason::UNSUPPORTED,
                errno: libc::ENOTSUP,
                what: "this process runs in a transaction of `txos run` already: what it does is \
                       part of that one, and can't be a transaction of its own"
                    .into(),
                ..Failure::default()
            });
        }
        txos_engine::sys::keep_descriptors_above(kernel::high_base());
        shared::be_in_order()?;
        let is_programs = how.flags & flags::COMMAND == 0;
        let mut tx = Box::new(Tx {
            _running: is_programs.then(messages::Running::begins),
            ways: ways::Ways::new(how.flags),
            how,
            tree: tree::ShadowTree::default(),
            fds: files::FdTable::default(),
            locks: parts::Locks::default(),
            process: parts::ProcessGlobals::default(),
            copies: parts::Copies::default(),
            report: parts::Report::default(),
            start: parts::Start::default(),
            waits: waits::Waits::default(),
            lending: lending::Lending::default(),
            held: held::Held::default(),
            doom: None,
        });
        tx.held.input.kept = std::mem::take(&mut tx.how.kept);
        if is_programs {
            tx.locks.thread = kernel::own_thread().cast_unsigned();
        }
        if tx.how.succession.as_ref().is_some_and(|one| one.comes_after()) {
            // What a producer holds is waited for from the first call on.
            tx.start.first = single_call::First::Over;
        }
        if tx.how.flags & (flags::ORDERED | flags::ORDER_RESET) != 0 {
            // Its turn is taken now, not at its first touch.
            tx.process.group = kernel::group_of(0).ok();
            if tx.join().is_err() {
                return Err(tx.doom.take().unwrap_or_default());
            }
        }
        if tx.how.goes_on {
            tx.take_up()?;
        }
        Ok(tx)
    }

    /// Whether it is aborted instead of doing what can't be taken back.
    fn is_strict(&self) -> bool {
        self.how.flags & flags::STRICT != 0
    }

    /// Whether it is of several threads or processes, or may be.
    fn is_of_several(&self) -> bool {
        const SEVERAL: u32 = flags::COMMAND | flags::PROCESSES | flags::THREADS;
        self.how.flags & SEVERAL != 0 || self.waits.has_members()
    }

    /// Whether a collector may close what the program has lost, on a thread that is outside.
    fn closes_late(&self) -> bool {
        self.how.flags & flags::MANAGED != 0 && self.process.space.is_none()
    }

    /// Before the first walk.
    fn ready(&mut self) -> Sys<()> {
        if self.tree.nodes.is_empty() { self.plant() } else { Ok(()) }
    }

    /// Makes the node of the root directory, which everything hangs on.
    fn plant(&mut self) -> Sys<()> {
        let stat = kernel::look(b"/")?;
        let top: Rc<[u8]> = Rc::from(&b"/"[..]);
        let stable =
            Stable { dir: top, dir_id: stat.id, name: (*b".").into(), path: b"/".to_vec(), stat };
        let mut node = Node::new(stat, Some(stable));
        // A root on a file system that can't be versioned still has directories that can.
        node.live = self.copies.within.leaves_out(b"/");
        node.names.push((0, (*b".").into()));
        self.tree.by_id.insert((stat.id, stat.mnt), 0);
        self.tree.nodes.push(node);
        Ok(())
    }

    /// Whether a number of the program's is as the kernel has it.
    #[must_use]
    pub fn is_untouched(&self, number: i32) -> bool {
        self.fds.is_untouched(number)
    }

    /// Carries out one system call of the thread: the answer is as the kernel's, a value or a
    /// negative errno. When the transaction is doomed ([`Tx::doomed`]) the answer means nothing.
    pub fn call(&mut self, call: &Call) -> i64 {
        if self.doom.is_some() {
            return -i64::from(libc::ECANCELED);
        }
        let (files, known) = (self.fds.begin_call(), self.start.opened());
        let answer = self.answer(call);
        if self.doom.is_some() {
            self.fds.close_opened_since(files, known);
        }
        answer
    }

    fn answer(&mut self, call: &Call) -> i64 {
        self.locks.calls += 1;
        if let Err(e) = self.ways_for(call) {
            return raw::answer(Err(e));
        }
        match self.start.first {
            single_call::First::Over => {}
            single_call::First::None => {
                if let Some(answer) = self.first_call(call) {
                    return answer;
                }
            }
            _ => {
                if let Some(answer) = self.closes_first(call) {
                    return answer;
                }
                if let Err(e) = self.ready().and_then(|()| self.go_on_after_first(call)) {
                    if self.doom.is_none() {
                        self.changed_outside(b"", "its first call could not be made again");
                    }
                    return raw::answer(Err(e));
                }
            }
        }
        if let Err(e) = self.ready() {
            return raw::answer(Err(e));
        }
        let answer = self.carry_out(call);
        self.start.only_names =
            self.start.only_names && answer.is_ok() && single_call::changes_names(call);
        self.check_doom();
        raw::answer(answer)
    }

    /// Why it can't commit any more, if so. Asked after each call: it is restarted or reported then.
    #[must_use]
    pub fn doomed(&self) -> Option<&Failure> {
        self.doom.as_ref()
    }

    /// A call that looks at something, of a transaction that is doomed and goes on for a moment: the answer that it had, if there was one,
    /// or else what is outside. What the transaction has opened is closed by its abort. Where it has libraries of its own, or another
    /// directory, a path would lead to others: the call fails.
    pub fn answer_lost(&mut self, call: &Call, answer: i64) -> i64 {
        let number = call.number();
        #[cfg(target_arch = "x86_64")]
        let opens = matches!(number, libc::SYS_open | libc::SYS_openat);
        #[cfg(not(target_arch = "x86_64"))]
        let opens = number == libc::SYS_openat;
        // (What a call has opened by which the transaction was doomed is closed again.)
        if answer >= 0 && !opens {
            return answer;
        }
        let by_number = match number {
            libc::SYS_read | libc::SYS_pread64 | libc::SYS_lseek => true,
            libc::SYS_fstat | libc::SYS_close | libc::SYS_mmap => true,
            libc::SYS_newfstatat => call.path(1).is_ok_and(|path| path.is_empty()),
            _ => false,
        };
        let (has_moved, has_other_root) = self.process.moved;
        if !by_number && (has_moved || has_other_root || self.has_other_libraries()) {
            return -i64::from(libc::ECANCELED);
        }
        let mut call = *call;
        for at in txos_calls::descriptors(number) {
            let given = call.int(at);
            match self.fds.real(given) {
                Ok(_) if number == libc::SYS_close => return 0,
                Ok(real) => call = call.with_descriptor(at, real),
                Err(_) => {}
            }
        }
        call.make()
    }

    /// System calls that passed through with a warning so far.
    #[must_use]
    pub fn unsupported(&self) -> u64 {
        self.report.unsupported
    }

    /// What it did that can't be rolled back, for people; empty if that is nothing.
    #[must_use]
    pub fn was_live(&self) -> String {
        self.report.was_live()
    }

    /// The same by kind, with the paths if it were paths.
    #[must_use]
    pub fn live_by_kind(&self) -> Vec<(String, Vec<Vec<u8>>)> {
        let kinds = self.report.live.iter();
        kinds.map(|(what, paths)| ((*what).to_owned(), paths.iter().cloned().collect())).collect()
    }

    /// A call that is not part of the transaction: one warning of each kind, or with TX_STRICT the
    /// end of the transaction.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn unsupported_call(&mut self, what: &'static str, path: &[u8]) -> Sys<()> {
        let name = txos_calls::name(self.report.calling).unwrap_or("?");
        if self.how.flags & flags::STRICT != 0 {
            self.doom(Failure {
                reason: reason::UNSUPPORTED,
                errno: libc::ENOTSUP,
                what: format!("{what} ({name}) can't be part of a strict transaction"),
                path: path.to_vec(),
                ..Failure::default()
            });
            return Err(acquire::DOOMED);
        }
        self.talks_by_any_way()?;
        if self.report.note_live(what, path) {
            say(&format!(
                "{what} ({name}) is not part of the transaction: it happens at once, and stays"
            ));
        }
        Ok(())
    }

    /// A call that is refused in a transaction, as passing it through would be wrong.
    fn unsupported_errno(&mut self, what: &'static str) -> Sys<u64> {
        self.refuse(Errno::NOTSUP, what)
    }

    /// The same with another errno, which programs know how to go on from.
    fn refuse(&mut self, errno: Errno, what: &'static str) -> Sys<u64> {
        if self.how.flags & flags::STRICT != 0 {
            self.unsupported_call(what, b"")?;
        }
        if self.report.is_first(what) {
            let name = match txos_calls::name(self.report.calling) {
                Some(name) => name.to_owned(),
                None => self.report.calling.to_string(),
            };
            let error = match errno {
                Errno::NOTSUP => "ENOTSUP",
                Errno::PERM => "EPERM",
                Errno::INVAL => "EINVAL",
                _ => "ENOSYS",
            };
            say(&format!(
                "{what} ({name}) is not possible in a transaction: it fails with {error}"
            ));
        }
        Err(errno)
    }

    /// The file-mode creation mask.
    pub fn umask(&mut self) -> u32 {
        if let Some(mask) = self.process.umask.or(self.process.umask_was) {
            return mask;
        }
        // There is no call that tells it without changing it, which other threads would feel.
        if let Some(mask) = kernel::umask_of_one_thread() {
            self.process.umask_was = Some(mask);
            return mask;
        }
        let mask = kernel::umask_as_told();
        self.process.umask_was = Some(mask);
        mask
    }
}

impl ShadowTree {
    /// Whether a new file's mode has to be worked out here: its directory has a default ACL.
    fn new_mode_is_inherited(&mut self, dir: Id) -> bool {
        self.default_acl(dir).is_some()
    }
}
