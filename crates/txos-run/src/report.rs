//! What became of a command.

use std::io;

use txos_engine::readset::ReadSet;

use crate::library::HeldSignals;
use crate::limits::Limit;
use crate::session::monitor::ViewEnd;
use crate::session::output::{Output, Stream};
use crate::supervisor::deferred_signals::DeferredSignal;
use crate::warning::{Warning, say};

/// How the command ended.
#[derive(Debug)]
pub enum CommandStatus {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
    /// There is no such program.
    NotFound(io::Error),
    /// It could not be executed.
    NotExecutable(io::Error),
    /// It did what can't be rolled back, under `--strict`; all of its processes were killed.
    Stopped {
        /// What it did.
        reason: String,
    },
    /// It used more than it was given; all of its processes were ended.
    Exceeded {
        /// More of what.
        limit: Limit,
        /// To follow the command's name.
        text: String,
    },
    /// It ended, and did what a transaction like this one can't hold.
    Refused {
        /// To follow the command's name.
        text: String,
    },
    /// Another transaction won a conflict with this one; all of its processes were killed.
    Lost {
        /// What both touched.
        conflict: txos_engine::Conflict,
    },
}

impl CommandStatus {
    /// From what `waitpid(2)` gave.
    pub(crate) fn of(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            CommandStatus::Signaled(libc::WTERMSIG(status))
        } else {
            CommandStatus::Exited(libc::WEXITSTATUS(status))
        }
    }

    pub(crate) fn not_executed(errno: i32) -> Self {
        let error = io::Error::from_raw_os_error(errno);
        if errno == libc::ENOENT {
            CommandStatus::NotFound(error)
        } else {
            CommandStatus::NotExecutable(error)
        }
    }
}

/// A command that has ended, with all that it started.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub status: CommandStatus,
    /// Nothing of what it changed is there any more, however it ended: the process that had its transaction was killed
    /// (in the library's view).
    pub is_lost: bool,
    /// What it has seen of the tree.
    pub reads: ReadSet,
    /// What it did that can't be rolled back.
    pub warnings: Vec<Warning>,
    /// All of it by kind, for the end.
    pub live: crate::warning::Live,
    /// The transaction's handle in the realm, to commit from.
    pub handle: Option<crate::participant::Handle>,
    pub(crate) output: Output,
    pub(crate) signals: Vec<DeferredSignal>,
    /// The same in the library's view.
    pub(crate) held_signals: HeldSignals,
    pub(crate) view: ViewEnd,
}

impl Ran {
    /// Waits until the mounts of the view are gone, so that somebody else can make another view of the same
    /// transaction. Otherwise they are waited for when this is dropped.
    pub fn await_end_of_view(&mut self) {
        self.view.wait();
    }

    /// After a commit: prints the held output and delivers the held signals. Failures are reported.
    pub fn release(&mut self) {
        self.print(None);
        crate::supervisor::deferred_signals::deliver(&self.signals);
        self.signals.clear();
        self.held_signals.deliver();
    }

    /// After a rollback: shows the held standard error, drops the rest, forgets the signals.
    pub fn drop_held(&mut self) {
        self.print(Some(Stream::Err));
        self.forget_signals();
    }

    fn forget_signals(&mut self) {
        self.signals.clear();
        self.held_signals.forget();
    }

    /// Before the command is run again: drops what was held, and forgets the signals; `false` if some of the output
    /// could not be held for so long.
    pub fn forget_held(&mut self) -> bool {
        self.forget_signals();
        self.output.forget_held()
    }

    /// [`Output::has_printed`].
    #[must_use]
    pub fn has_printed(&self) -> bool {
        self.output.has_printed()
    }

    /// [`Output::pass_on`].
    pub fn pass_on(&mut self) {
        self.output.pass_on();
    }

    fn print(&mut self, only: Option<Stream>) {
        match std::mem::replace(&mut self.output, Output::Free) {
            Output::Free => {}
            Output::Brief(mut brief) => brief.pass(),
            Output::Held(mut held) => {
                if let Err(e) = held.print(only) {
                    say(&format!("printing the held output: {e}"));
                }
            }
        }
    }
}
