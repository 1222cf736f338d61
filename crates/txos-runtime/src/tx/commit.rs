//! The end: publish or forget.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use txos_engine::changeset::{ChangeSet, Delta, What, record};
use txos_engine::commit::{Isolation, Options, Progress, Summary};
use txos_engine::object::FileKind;
use txos_engine::realm::RetryHistory;
use txos_engine::txn::{Attendant, Failed, Outcome, Participant, Promises, Route, Txn, Waits};

use super::acquire::{attend, patience};
use super::deadlock::FoundDeadlock;
use super::files::{Descriptor, OpenFile};
use super::kernel::{self, Errno};
use super::pipes::Pipes;
use super::staging::failed;
use super::{Committed, Decides, Failure, Tx, flags, reason, say, shared};

impl Tx {
    /// Commits; on failure nothing of it has happened, and everything is as before it. `decides`: what is asked before.
    /// What was held is the caller's to send.
    ///
    /// # Errors
    /// Why nothing of it has happened.
    pub fn commit(
        mut self: Box<Self>,
        decides: Option<&dyn Decides>,
    ) -> Result<Committed, Failure> {
        let asked = Asked { decides, refused: RefCell::new(None) };
        self.settle_held_places();
        let (has_pipes, went_out) = (self.held.input.has_pipes(), self.went_out());
        let taken = match decides.filter(|decides| decides.is_others()) {
            // That may wait for anybody, and be long.
            Some(_) => self.take_pipes_before(None, "others decide about the transaction"),
            None => Ok(()),
        };
        let taken = taken.map_err(|_| self.doom.clone().unwrap_or_default());
        let placed = taken.and_then(|()| self.take_place()).and_then(|()| self.check_received());
        let published = placed.and_then(|()| self.publish(&asked)).map_err(|failure| {
            match asked.refused.take() {
                // What could not be undone is still undecided.
                Some(refused) if failure.errno != libc::EINPROGRESS => {
                    Failure { again: failure.again, ..refused }
                }
                _ => failure,
            }
        });
        match published {
            Ok(mut committed) => {
                self.make_ways_known();
                // Before a socket is closed with it in its queue: TCP tells the other end of that.
                committed.failed.extend(self.held.input.take());
                self.held.committed();
                self.install_descriptors();
                self.let_go_of_numbers();
                shared::remember_file_systems(&self.copies.file_systems);
                // Before the root directory changes: the store is found by its path.
                self.forget_copies(true);
                self.install_process_globals();
                committed.held = std::mem::take(&mut self.held);
                Ok(committed)
            }
            Err(failure) => {
                let mut failure = self.naming_released(failure);
                // What was taken meanwhile can't be so again.
                failure.gives_up |= has_pipes && !went_out && self.went_out();
                failure.again = self.abort();
                Err(failure)
            }
        }
    }

    /// Ends without a commit: what it changed and what it read is recorded, for the process that decides about it. What
    /// it wrote to files without a name is written.
    ///
    /// # Errors
    /// Why nothing of it is there any more.
    pub fn hand_over(mut self: Box<Self>) -> Result<(), Failure> {
        match self.deliver() {
            Ok(()) => {
                self.write_unnamed();
                self.remove_nameless_copies();
                // Pending, it is in nobody's way.
                let _ = self.locks.handle.take().map(txos_engine::realm::TxHandle::abort);
                // The lock is that of the other process as well.
                self.copies.staging = None;
                Ok(())
            }
            Err(mut failure) => {
                failure.again = self.abort();
                Err(failure)
            }
        }
    }

    fn deliver(&mut self) -> Result<(), Failure> {
        self.check_doom();
        if let Some(failure) = self.doom.take() {
            return Err(failure);
        }
        if let Err(e) = self.ready().and_then(|()| self.second_call()) {
            return Err(self.doom.take().unwrap_or_else(|| io_failure(e)));
        }
        self.check_unnamed()?;
        let staged = if self.tree.has_changes() { self.deltas() } else { Ok(Vec::new()) };
        let deltas = staged.map_err(|e| self.doom.take().unwrap_or_else(|| io_failure(e)))?;
        if self.tree.nodes.iter().any(|node| node.appended) {
            return Err(Failure {
                reason: reason::FAILED,
                errno: libc::EACCES,
                what: "a file was appended to that only a descriptor from before can write to: that can't wait \
                       for a decision"
                    .into(),
                ..Failure::default()
            });
        }
        self.in_the_store(|tx| {
            let unfolded = tx.unfold_ways();
            unfolded.map_err(|e| tx.doom.take().unwrap_or_else(|| io_failure(e)))?;
            if !tx.copies.layers.is_empty() {
                tx.make_layers(usize::MAX)?;
            }
            let store = &mut tx.staging()?.tx;
            record(store, &deltas, false).map_err(failed)?;
            store.save(false).map_err(failed)?;
            let Some(staging) = tx.copies.staging.as_ref() else { return Err(Failure::default()) };
            staging.tx.save_reads(&tx.locks.reads, false).map_err(failed)
        })
    }

    /// What was made and has no name any more is no part of what is recorded.
    fn remove_nameless_copies(&self) {
        for (id, node) in self.tree.nodes.iter().enumerate() {
            if node.names.is_empty()
                && !self.tree.is_nameless(id)
                && let Some(backing) = node.data.whole()
            {
                let _ = kernel::unlink(&backing.path);
            }
        }
    }

    /// A working directory that will have no path when all is published.
    fn hold_directory(&mut self) {
        let Some(cwd) = self.tree.cwd.filter(|_| self.process.moved.0) else { return };
        let node = &self.tree.nodes[cwd];
        if node.dir.as_ref().is_none_or(|d| !d.removed) {
            return;
        }
        let path = match (&node.stable, node.dir.as_ref().and_then(|d| d.staged.clone())) {
            (Some(stable), _) => stable.path.clone(),
            (None, Some(staged)) => staged,
            (None, None) => return,
        };
        if let Ok(fd) = kernel::open(&path, libc::O_PATH | libc::O_CLOEXEC, 0) {
            self.process.lost_directory = kernel::move_high(fd).ok();
        }
    }

    fn publish(&mut self, asked: &Asked<'_>) -> Result<Committed, Failure> {
        self.check_doom();
        if let Some(failure) = self.doom.take() {
            return Err(failure);
        }
        let joint = asked.decides.is_some_and(Decides::is_others);
        if !joint && let Some(done) = self.only_call() {
            done?;
            return match self.locks.handle.is_some() {
                // What it has opened, or a turn of its own.
                true => self.only_read(asked),
                false => Ok(Committed::short()),
            };
        }
        if !joint && let Some(change) = self.only_move() {
            return self.publish_move(&change);
        }
        let first = self.ready().and_then(|()| match joint {
            true => self.second_call(),
            false => self.carry_out_first(),
        });
        if let Err(e) = first {
            return Err(self.doom.take().unwrap_or_else(|| io_failure(e)));
        }
        self.hold_directory();
        self.fds.find_closed_elsewhere();
        self.check_unnamed()?;
        let staged = if self.tree.has_changes() { self.deltas() } else { Ok(Vec::new()) };
        let mut deltas = staged.map_err(|e| self.doom.take().unwrap_or_else(|| io_failure(e)))?;
        deltas.iter_mut().for_each(Delta::settle_time);
        let promises = Promises { joint, ..self.promises() };
        let outcome = match self.tree.sets_time_of_directory() {
            true => Outcome::Anything,
            false => outcome(&deltas, promises.durable),
        };
        let options = Options {
            isolation: Isolation::Serializable,
            durable: promises.durable,
            kept: promises.recorded,
            gate: false,
            nonblock: joint && self.how.flags & flags::NONBLOCK != 0,
            ..Options::default()
        };
        let points: Vec<&[u8]> = self.copies.layers.iter().map(|layer| &layer.point[..]).collect();
        let outcome =
            match txos_engine::commit::copy_up(&points, &mut deltas, &mut self.locks.reads) {
                true => Outcome::Anything,
                false => outcome,
            };
        // From before the validation until all is there; a file of a lower layer is copied by then.
        let _locks = match outcome {
            Outcome::Nothing => Vec::new(),
            _ => self.retake_locks()?,
        };
        match Route::of(outcome, promises) {
            Route::Nothing => self.only_read(asked),
            Route::Log => self.publish_by_log(deltas, &options),
            Route::Call | Route::Rename | Route::Full => {
                self.in_the_store(|tx| tx.publish_fully(deltas, &options, asked))
            }
        }
    }

    /// What the program asked of the commit.
    pub fn promises(&self) -> Promises {
        let has = |flag| self.how.flags & flag != 0;
        Promises {
            durable: has(flags::DURABLE),
            ordered: has(flags::ORDERED | flags::ORDER_RESET),
            // A whole command's changes are kept in the history.
            recorded: has(flags::COMMAND),
            joint: false,
        }
    }

    /// Whether it is a whole command: what became of it is decided by another process, perhaps later.
    pub fn is_of_a_command(&self) -> bool {
        self.how.flags & flags::COMMAND != 0
    }

    /// How it waits for opponents when it commits.
    fn waiting(&self) -> Waiting {
        Waiting {
            gives_way: self.how.flags & flags::NONBLOCK != 0,
            deadlock: self.waits.deadlock.clone(),
            pipes: self.held.input.pipes().cloned(),
            strict: self.is_strict(),
        }
    }

    /// By the redo log, if all fits into it.
    fn publish_by_log(
        &mut self,
        deltas: Vec<Delta>,
        options: &Options,
    ) -> Result<Committed, Failure> {
        let home = shared::home()?;
        let puts = deltas.iter().filter(|d| matches!(d.what, What::Put { .. })).count() as u64;
        if deltas.iter().any(|d| matches!(d.what, What::Put { .. } | What::Remove { .. })) {
            // What is taken out of the tree needs a place as well.
            self.in_the_store(|tx| tx.make_layers(usize::MAX))?;
        }
        let waiting = self.waiting();
        let grounds = self.grounds();
        let left = self.installs_numbers().then_some(&mut self.locks.left);
        let txn = Txn::new(home, self.locks.handle.take(), &waiting).leaving(left);
        match txn.commit_by_log(&grounds, &deltas, &self.locks.reads, options) {
            Ok(Ok(_)) => {
                self.copies.published = puts;
                Ok(Committed::short())
            }
            Ok(Err(txn)) => {
                self.locks.handle = txn.into_handle();
                self.in_the_store(|tx| tx.publish_fully(deltas, options, &Asked::default()))
            }
            Err(failed) => Err(self.not_committed(failed)),
        }
    }

    /// By the engine's journal, with a transaction in the store.
    fn publish_fully(
        &mut self,
        deltas: Vec<Delta>,
        options: &Options,
        asked: &Asked<'_>,
    ) -> Result<Committed, Failure> {
        let unfolded = self.unfold_ways();
        unfolded.map_err(|e| self.doom.take().unwrap_or_else(|| io_failure(e)))?;
        let home = shared::home()?;
        let waiting = self.waiting();
        self.make_layers(usize::MAX)?;
        self.copies.used_up = true;
        let recorded = self.promises().recorded;
        let left = self.installs_numbers().then_some(&mut self.locks.left);
        let Some(staging) = self.copies.staging.as_mut() else { return Err(Failure::default()) };
        if recorded {
            txos_engine::changeset::discard_unused(&staging.tx, &deltas);
        }
        let changes = ChangeSet::from_deltas(&staging.tx, deltas).map_err(failed)?;
        let counts = recorded.then(|| changes.counts());
        let txn = Txn::new(home, self.locks.handle.take(), &waiting).leaving(left);
        let done = txn.commit(&mut staging.tx, &changes, &mut self.locks.reads, options, asked);
        let summary = done.map_err(|failed| {
            let mut failure = self.not_committed(failed);
            if let Some(found) = failure.found.as_mut().filter(|_| recorded) {
                found.only_read = changes.has_none_of(&found.conflicts);
            }
            failure
        })?;
        if options.kept {
            tell_unrecorded(&summary);
        }
        let counts = counts.filter(|_| summary.changes > 0);
        let published = counts.map(|counts| format!("{}: {counts}", summary.id));
        Ok(Committed { published, ..Committed::default() })
    }

    /// Nothing is to be published: what was read must have been so at one moment, now.
    fn only_read(&mut self, asked: &Asked<'_>) -> Result<Committed, Failure> {
        let left = self.installs_numbers().then_some(&mut self.locks.left);
        let participant = Participant::new(self.locks.handle.take()).leaving(left);
        let done = participant.commit_nothing(&self.locks.reads, asked);
        done.map_err(|failed| {
            let mut failure = self.not_committed(failed);
            if let Some(found) = &mut failure.found {
                found.only_read = true;
            }
            failure
        })?;
        Ok(Committed::short())
    }

    /// Why it did not commit, as the program is told. What recovery needs of an unfinished publish is kept.
    pub fn not_committed(&mut self, not: Failed) -> Failure {
        let Failed { error, opponent, again } = not;
        self.locks.again = again;
        let pid = opponent.map_or(0, |pid| i32::try_from(pid).unwrap_or(0));
        let unfinished = matches!(error, txos_engine::Error::Unfinished { .. });
        let mut failure = Failure { pid, ..failed(error) };
        if let Some(deadlock) = self.waits.deadlock.take() {
            (failure.pid, failure.what, failure.gives_up) = (deadlock.pid, deadlock.what, true);
        }
        if unfinished {
            self.copies.staging = None;
            return Failure { errno: libc::EINPROGRESS, ..failure };
        }
        failure
    }

    /// Aborts: descriptors, working directory and everything else are as before it.
    pub fn abort(mut self: Box<Self>) -> Option<RetryHistory> {
        let managed = self.how.flags & flags::MANAGED != 0;
        self.held.take_back();
        self.start.undo_first(managed, &self.fds);
        if self.locks.reads.has_trusted() {
            super::ways::forget();
        }
        self.fds.find_closed_elsewhere();
        for open in self.fds.every().filter(|f| f.borrowed) {
            if let Some(&number) = open.before.first() {
                let _ = kernel::seek(number, open.was.1 as i64, libc::SEEK_SET);
            }
        }
        // Each once: a number that is closed is another thread's in the next moment.
        let seen = match managed {
            true => self.fds.leave_as_seen(|open, real| self.is_live(open, real)),
            false => BTreeSet::new(),
        };
        let mut own = std::mem::take(&mut self.fds.private);
        own.extend(self.fds.touched().into_iter().filter_map(
            |(number, descriptor)| match descriptor {
                Descriptor::Open { file, real, .. }
                    if real == number && self.keeps_connection(number, self.fds.get(file)) =>
                {
                    None
                }
                Descriptor::Open { real, over, .. } => (!over || real != number).then_some(real),
                _ => None,
            },
        ));
        own.extend(self.process.lost_directory.take());
        own.into_iter().filter(|number| !seen.contains(number)).for_each(kernel::close);
        let again =
            self.locks.handle.take().map(txos_engine::realm::TxHandle::abort).or(self.locks.again);
        self.fds.numbers.clear_marks();
        shared::remember_file_systems(&self.copies.file_systems);
        self.forget_copies(false);
        // It may wait for the reader: nobody waits for this transaction any more.
        self.held.output.finish().iter().for_each(|words| say(words));
        again
    }

    /// Whether an open file has no part in the transaction: a pipe, a device, an event descriptor, a socket
    /// without a name of the transaction's, a file that is not versioned. The language's runtime may have
    /// opened it for good.
    fn is_live(&self, open: &OpenFile, real: i32) -> bool {
        if open.node.is_some_and(|id| !self.tree.nodes[id].live) {
            return false;
        }
        self.process.bound.is_empty()
            || kernel::socket_address(real, kernel::Side::Own).map_or(true, |(name, len)| {
                let name = &name[..(len as usize).min(name.len())];
                !self.process.bound.iter().any(|(bound, _)| bound == name)
            })
    }

    /// What was kept for the transaction goes; the history of a command stays.
    fn forget_copies(&mut self, committed: bool) {
        let Some(staging) = self.copies.staging.take() else { return };
        for node in self.tree.nodes.iter().filter(|n| n.names.is_empty()) {
            // Still open perhaps, and without a name from now on.
            if let Some(backing) = node.data.whole() {
                let _ = kernel::unlink(&backing.path);
            }
        }
        let command = self.how.flags & flags::COMMAND != 0;
        if command && (committed || super::staging::given_id().is_some()) {
            return;
        }
        let Ok(home) = shared::home() else { return };
        let kept = match self.copies.used_up || self.promises().recorded {
            true => Some(staging),
            false => staging.keep(home, self.copies.published),
        };
        if let Some(staging) = kept {
            // Left over, it is removed by the next `txos gc`.
            let _ = home.discard_staging(staging.tx);
            let _ = home.empty_trash(Some(std::time::Duration::from_millis(20)));
        }
    }
}

/// What the engine asks before the commit.
#[derive(Default)]
struct Asked<'a> {
    /// Who answers; nobody: it is committed.
    decides: Option<&'a dyn Decides>,
    /// Why the answer was no.
    refused: RefCell<Option<Failure>>,
}

impl Progress for Asked<'_> {
    fn decide(&self) -> txos_engine::Result<()> {
        let Some(Err(refused)) = self.decides.map(Decides::decide) else { return Ok(()) };
        let what = refused.what.clone();
        *self.refused.borrow_mut() = Some(refused);
        Err(txos_engine::Error::Unsupported { what, advice: "Nothing has changed.".into() })
    }
}

/// Up to so many names are tried to be committed by the log.
const NAMES_MAX: usize = 16;

/// What changes come to. The log says the last word on small ones ([`txos_engine::commit::light`]).
fn outcome(deltas: &[Delta], durable: bool) -> Outcome {
    let patches = deltas.iter().filter(|d| matches!(d.what, What::Patch { .. })).count();
    let (mut names, mut moves, mut times) = (0, 0, 0);
    for delta in deltas {
        match &delta.what {
            What::Put { .. } | What::Remove { .. } => names += 1,
            What::Move { base: None, source, .. } if source.kind() == FileKind::File => moves += 1,
            What::Attrs { base, change }
                if base.kind() == FileKind::Dir && change.is_only_mtime() =>
            {
                times += 1;
            }
            _ => {}
        }
    }
    let all = deltas.len();
    // Some changes cancel each other out.
    if all == 0 {
        return Outcome::Nothing;
    }
    let small = match durable {
        true => patches == all || names == all && names <= NAMES_MAX,
        false => {
            let others = names + moves + times;
            patches + others == all && others <= NAMES_MAX
        }
    };
    if small { Outcome::Small } else { Outcome::Anything }
}

fn tell_unrecorded(summary: &Summary) {
    if let (id, Some(why)) = (summary.id, &summary.unrecorded) {
        say(&format!(
            "all of {id} is published, but its record could not be written yet ({why}); the next \
             command that writes does it, or `txos recover`"
        ));
    }
}

/// How a program's transaction waits for opponents when it commits.
struct Waiting {
    /// It is not to wait at all.
    gives_way: bool,
    deadlock: FoundDeadlock,
    /// What it has read from pipes, which others may wait for.
    pipes: Option<Pipes>,
    strict: bool,
}

impl Waits for Waiting {
    fn patience(&self) -> Option<Duration> {
        (!self.gives_way).then(patience)
    }

    fn attendant(&self) -> Attendant {
        Box::new(attend(None, self.deadlock.clone(), self.pipes.clone(), self.strict))
    }

    fn goes_on(&self, _: Duration) -> bool {
        true
    }
}

fn io_failure(errno: Errno) -> Failure {
    Failure {
        reason: reason::FAILED,
        errno: errno.raw_os_error(),
        what: format!(
            "putting the private copies in order failed: {}",
            std::io::Error::from(errno)
        ),
        ..Failure::default()
    }
}
