//! A transaction's place in the realm.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::contend::{AbortCause, ConflictWait, Opponent, Resolution};
use super::facet::Facet;
use super::layout::Slot;
use super::order::Turn;
use super::status::{State, Status};
use super::sync::{self, AcqRel, Acquire, Note64, Relaxed, Release, SeqCst, Step};
use super::wait::{WaitDecision, WaitInfo};
use super::word::{Access, Hold, Request, Word, bits};
use super::{Realm, identity::Identity};
use crate::id::TxId;

/// How a transaction begins.
#[derive(Clone, Debug, Default)]
pub struct Begin {
    /// Its name, for people and for the journal; in-process transactions have none until they
    /// publish.
    pub id: Option<TxId>,
    /// Never wait: where it would, it stops with [`AbortCause::Busy`] (TX_NONBLOCK).
    pub nonblock: bool,
    /// How long it waits for a free slot; `None`: as long as it takes.
    pub patience: Option<Duration>,
    /// What earlier attempts did, so that it does not look young.
    pub again: Option<RetryHistory>,
    /// Its sequence number among the ordered transactions of this process group (TX_ORDERED).
    pub sequence: Option<u64>,
    /// Begin the process group's sequence at this number again (TX_ORDER_RESET).
    pub reset_sequence: bool,
    /// The thread whose scheduling priority counts; 0: this process's first.
    pub thread: u32,
    /// It validates all that it read when it commits, and acquires all that it publishes after
    /// [`TxHandle::prepare`]: a command. Until then it holds softly: who wants something else that falls
    /// on a record of it does not wait for its end.
    pub soft: bool,
}

/// What a transaction that is tried again has behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RetryHistory {
    /// When the first attempt began (CLOCK_MONOTONIC, ns).
    pub start_ns: u64,
    /// Facets acquired so far.
    pub work: u64,
    /// Attempts that failed.
    pub restarts: u32,
    /// The next attempt gives way to every transaction that does not defer as well: the last one lost because it waited for
    /// what no transaction holds, and the winner may be what that wait was for.
    pub defers: bool,
}

/// As a word of another program's environment.
impl std::fmt::Display for RetryHistory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RetryHistory { start_ns, work, restarts, defers } = self;
        write!(f, "{start_ns}:{work}:{restarts}:{}", u8::from(*defers))
    }
}

impl RetryHistory {
    /// From that word.
    #[must_use]
    pub fn parse(word: &str) -> Option<RetryHistory> {
        let mut parts = word.split(':');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (start_ns, work) = (number()?, number()?);
        let (restarts, defers) = (u32::try_from(number()?).ok()?, number()? != 0);
        Some(RetryHistory { start_ns, work, restarts, defers })
    }
}

/// Why a transaction did not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    /// All slots are taken, and it was not to wait, or not for longer.
    #[error("{} transactions run already, which is the most a realm holds", super::SLOTS)]
    Full,
    /// An ordered transaction whose turn is over.
    #[error("sequence number {asked} is over: the next one of this process group is {next}")]
    TurnOver {
        /// The number asked for.
        asked: u64,
        /// The one whose turn it is.
        next: u64,
    },
    /// Too many process groups have ordered transactions.
    #[error("{} process groups use ordered transactions already", super::layout::GROUPS)]
    TooManyGroups,
    /// An ordered transaction of a process group whose leader is outside of this PID namespace.
    #[error("the process group has no number in this PID namespace (setsid(1) makes one)")]
    NoGroup,
}

/// In `flags`: a single call, which restarts at no cost.
pub(super) const SINGLE: u32 = 1;
/// In `flags`: what it publishes one system call publishes, and no journal knows of it.
pub(super) const AT_ONCE: u32 = 2;

/// In `flags`: its list says what it holds.
pub(super) const LISTED: u32 = 4;

/// In `flags`: it gives way to every transaction that does not defer.
pub(super) const DEFERS: u32 = 8;

/// In `flags`: it waits for the end of what it comes after, outside of the realm, and gives way to every transaction
/// that does not do that, also to one that defers: what it waits for may be waiting for that one.
pub(super) const STANDS_BACK: u32 = 16;

/// How far back a transaction of these flags stands: the further in front wins, whatever the policy.
pub(super) fn depth(flags: u32) -> u8 {
    match flags {
        flags if flags & STANDS_BACK != 0 => 2,
        flags if flags & DEFERS != 0 => 1,
        _ => 0,
    }
}
/// Bits of a slot's number.
pub(super) const SLOT_BITS: u32 = 6;

/// Is told of waiting, and decides whether to go on with it.
type Attend<'r> = Box<dyn FnMut(&WaitInfo) -> WaitDecision + Send + 'r>;

/// A transaction's place in the realm: its slot, and what it holds. Dropped, it aborts.
pub struct TxHandle<'r> {
    pub(super) realm: &'r Realm,
    pub(super) slot: u32,
    pub(super) bit: u64,
    pub(super) generation: u64,
    held: Vec<u32>,
    /// Of these, the records of one facet each, which may be released before the end ([`TxHandle::release`]).
    alone: Vec<u32>,
    pub(super) hold: Hold,
    /// What it holds is listed.
    listed: bool,
    again: RetryHistory,
    pub(super) nonblock: bool,
    pub(super) turn: Option<Turn>,
    pub(super) attend: Option<Attend<'r>>,
    ended: bool,
    /// It has published, or begun to.
    published: bool,
}

impl std::fmt::Debug for TxHandle<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TxHandle")
            .field("slot", &self.slot)
            .field("generation", &self.generation)
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

thread_local! {
    /// The slot this thread had last: likely free, and its lines in this processor's cache.
    static LAST_SLOT: Cell<Option<u32>> = const { Cell::new(None) };
    /// The list of the transaction before, to be filled again.
    static LIST: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Makes what is kept for the calling thread: its destructor is registered when it is first used, which takes
/// the C library's locks. Another thread that holds one of them may be waiting for this one later.
pub fn touch_thread() {
    let _ = LIST.try_with(|list| std::hint::black_box(list.borrow().len()));
}

/// With so many records held, the kernel is asked to map all of them.
#[cfg(not(loom))]
const MAPPED_FROM: usize = 2048;

/// A list longer than this is given back to the allocator.
const LIST_KEPT_MAX: usize = 4096;

impl Realm {
    /// Begins a transaction: waits for a slot, unless told not to wait.
    ///
    /// # Errors
    /// [`BeginError`].
    pub fn begin(&self, how: &Begin) -> Result<TxHandle<'_>, BeginError> {
        let turn = match how.sequence {
            Some(sequence) => Some(self.take_turn(sequence, how.reset_sequence)?),
            None => None,
        };
        // The model's threads share one, and its runs must be alike.
        let number = match LAST_SLOT.get().filter(|_| !cfg!(loom)) {
            Some(last) if self.try_claim(last, turn) => last,
            _ => self.claim(how, turn)?,
        };
        LAST_SLOT.set(Some(number));
        let slot = self.table().slot(number);
        self.dress(slot);
        let now = sync::now_ns();
        let again = how.again.unwrap_or(RetryHistory {
            start_ns: now,
            work: 0,
            restarts: 0,
            defers: false,
        });
        slot.start_ns.store(again.start_ns, Relaxed);
        slot.began_ns.store(now, Relaxed);
        slot.work.store(again.work, Relaxed);
        slot.size.store(0, Relaxed);
        slot.restarts.store(again.restarts, Relaxed);
        slot.group.store(turn.map_or(0, |t| t.group + 1), Relaxed);
        slot.sequence.store(turn.map_or(0, |t| t.sequence), Relaxed);
        slot.id.store(how.id.map_or(0, |id| u64::from_le_bytes(*id.as_bytes())), Relaxed);
        let thread = if how.thread == 0 { self.me().pid() } else { how.thread };
        slot.thread.store(thread, Relaxed);
        let listed = how.soft && !cfg!(loom);
        #[cfg(not(loom))]
        if listed {
            self.table().list(number).clear();
        }
        let defers = if again.defers { DEFERS } else { 0 };
        slot.flags.store(defers | if listed { LISTED } else { 0 }, Relaxed);
        slot.waiting_for.store(0, Relaxed);
        slot.waiters.store(0, Relaxed);
        slot.doomed_by_pid.store(0, Relaxed);
        slot.doomed_under.store(0, Relaxed);
        let generation = Status(slot.status.load(Relaxed)).generation();
        slot.status.store(Status::new(generation, State::Active).0, Release);
        Ok(TxHandle {
            realm: self,
            slot: number,
            bit: 1 << number,
            generation,
            // A thread that ends has no list any more.
            held: LIST.try_with(RefCell::take).unwrap_or_default(),
            alone: Vec::new(),
            hold: if how.soft { Hold::Soft } else { Hold::Firm },
            listed,
            again,
            nonblock: how.nonblock,
            turn,
            attend: None,
            ended: false,
            published: false,
        })
    }

    /// Takes a slot if it is free, and gives it its next generation.
    fn try_claim(&self, number: u32, turn: Option<Turn>) -> bool {
        let slot = self.table().slot(number);
        let is_mine_to_take = || turn.is_none_or(|turn| self.leaves_a_slot(turn, number));
        if slot.owner.load(Relaxed) != 0
            || slot.pins.load(Relaxed) != 0
            || !is_mine_to_take()
            || slot.owner.compare_exchange(0, self.me().word(), Acquire, Relaxed).is_err()
        {
            return false;
        }
        let generation = Status(slot.status.load(Relaxed)).generation() + 1;
        slot.status.swap(Status::new(generation, State::Idle).0, SeqCst);
        sync::fence_after_swap();
        // Whoever pins from here on sees the new generation.
        if slot.pins.load(SeqCst) == 0 && is_mine_to_take() {
            return true;
        }
        slot.owner.store(0, Release);
        // Others may have found it taken meanwhile.
        self.slot_is_free();
        false
    }

    /// An ordered transaction whose turn has not come must not have the last slot: the one whose
    /// turn it is may need it. Of two that take the last two at once, one sees that.
    fn leaves_a_slot(&self, turn: Turn, taken: u32) -> bool {
        let table = self.table();
        let is_free = |number| number != taken && table.slot(number).owner.load(Relaxed) == 0;
        table.group(turn.group as usize).next.load(Acquire) >= turn.sequence
            || (0..table.slots()).any(is_free)
    }

    /// Finds a free slot, clears those of the dead if there is none, waits for one.
    #[cold]
    fn claim(&self, how: &Begin, turn: Option<Turn>) -> Result<u32, BeginError> {
        let slots = self.table().slots();
        let first = self.me().pid() % slots;
        let any = || (0..slots).map(|n| (first + n) % slots).find(|&n| self.try_claim(n, turn));
        if let Some(number) = any() {
            return Ok(number);
        }
        let board = self.table().board();
        board.full.fetch_add(1, Relaxed);
        let began = sync::now_ns();
        let is_over = |patience: Duration| {
            u128::from(sync::now_ns().saturating_sub(began)) >= patience.as_nanos()
        };
        loop {
            self.sweep();
            self.unpin_free();
            if let Some(number) = any() {
                return Ok(number);
            }
            if how.nonblock || how.patience.is_some_and(is_over) {
                return Err(BeginError::Full);
            }
            let bell = board.slot_bell.load(Acquire);
            board.slots_wanted.store(1, SeqCst);
            sync::full_fence();
            if let Some(number) = any() {
                return Ok(number);
            }
            sync::wait(&board.slot_bell, bell, super::wait::SLICE_LONG);
        }
    }

    /// Writes down what runs in a slot, unless this process was its last user.
    fn dress(&self, slot: &Slot) {
        if slot.dressed.load(Relaxed) == self.me().word() {
            return;
        }
        slot.dressed.store(0, Relaxed);
        let home = self.home.as_os_str().as_encoded_bytes();
        // A path that does not fit is not cut: a part of a path is another path.
        let home = if home.len() < super::layout::HOME_LEN { home } else { b"" };
        write_text(&slot.home, home);
        write_text(&slot.label, self.label.as_bytes());
        slot.dressed.store(self.me().word(), Release);
    }

    /// A slot became free: tells who waits for one.
    pub(super) fn slot_is_free(&self) {
        let board = self.table().board();
        // The store of the owner came before; see `claim`.
        sync::full_fence();
        if board.slots_wanted.load(Relaxed) != 0 {
            board.slots_wanted.store(0, SeqCst);
            sync::ring(&board.slot_bell);
        }
    }

    /// Rings everybody who waits for the end of a slot's transaction.
    pub(super) fn ring_waiters(&self, slot: &Slot) {
        for waiter in bits(slot.waiters.swap(0, AcqRel)) {
            sync::ring(&self.table().slot(waiter).bell);
        }
    }
}

fn write_text(words: &[Note64], text: &[u8]) {
    for (i, word) in words.iter().enumerate() {
        let mut bytes = [0; 8];
        let rest = text.get(8 * i..).unwrap_or_default();
        for (to, from) in bytes.iter_mut().zip(rest) {
            *to = *from;
        }
        word.store(u64::from_le_bytes(bytes), Relaxed);
    }
}

impl<'r> TxHandle<'r> {
    /// Who is told when it has to wait, again and again while it waits, and may call it off.
    #[must_use]
    pub fn attended(mut self, attend: impl FnMut(&WaitInfo) -> WaitDecision + Send + 'r) -> Self {
        self.attend = Some(Box::new(attend));
        self
    }

    /// Its realm.
    #[must_use]
    pub fn realm(&self) -> &'r Realm {
        self.realm
    }

    /// The transaction goes on in the calling process, a copy of the one that began it, which must not go on with
    /// it. `false`: the other one has died, and others have found that, so it can't go on.
    ///
    /// # Errors
    /// As [`Identity::of_self`](super::Identity::of_self).
    #[cfg(not(loom))]
    pub fn move_here(&self) -> std::io::Result<bool> {
        let before = self.realm.me().word();
        self.realm.move_here()?;
        let now = self.realm.me().word();
        let owner = &self.own().owner;
        Ok(owner.compare_exchange(before, now, AcqRel, Acquire).is_ok())
    }

    /// The transaction goes on in another thread of this process, whose scheduling priority counts from now on.
    pub fn goes_on_in(&self, thread: u32) {
        self.own().thread.store(thread, Relaxed);
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> Option<TxId> {
        super::contend::id_of(self.own().id.load(Relaxed))
    }

    /// From now on it may wait, though it was not to when it began.
    pub(crate) fn may_wait(&mut self) {
        self.nonblock = false;
    }

    /// From now on, or no longer, it gives way in every conflict to a transaction that does not defer, whatever the
    /// policy: it can't go on before the other one has (papers/003 §6.1).
    pub fn defer(&self, defers: bool) {
        self.set_flag(DEFERS | super::outside::BEHIND, defers);
    }

    /// From now on, or no longer, it gives way to those that defer as well: it acquires nothing more, and waits until
    /// those have ended that it comes after.
    pub fn stand_back(&self, stands_back: bool) {
        self.set_flag(STANDS_BACK, stands_back);
    }

    fn set_flag(&self, flag: u32, set: bool) {
        let flags = &self.own().flags;
        if set {
            flags.fetch_or(flag, Relaxed);
        } else {
            flags.fetch_and(!flag, Relaxed);
        }
    }

    /// Its slot.
    pub(super) fn own(&self) -> &'r Slot {
        self.realm.table().slot(self.slot)
    }

    /// Number of facets it holds.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Acquires a facet: from now to the end of the transaction nobody else changes it (or, for a
    /// write, touches it) unless this transaction is doomed first. Gives whether it had to wait: what
    /// was looked at before may be old then.
    ///
    /// # Errors
    /// [`AbortCause`]: the transaction can't go on, and is to be aborted.
    #[inline]
    pub fn acquire(&mut self, facet: &Facet<'_>, access: Access) -> Result<bool, AbortCause> {
        self.acquire_hashed(self.realm.hash_of(facet), access)
    }

    /// [`TxHandle::acquire`] by the facet's hash.
    #[inline]
    pub(super) fn acquire_hashed(&mut self, hash: u64, access: Access) -> Result<bool, AbortCause> {
        if self.listed {
            self.list(hash);
        }
        let index = self.realm.table().index(hash);
        let orec = self.realm.table().orec(index);
        let word = Word(orec.load(Acquire));
        let new = match word.request(self.bit, access, self.hold) {
            Request::Held => {
                self.shares(index);
                return self.check().map(|()| false);
            }
            Request::Take(new) => new,
            Request::Blocked(_) => return self.acquire_slowly(hash, access),
        };
        if orec.compare_exchange(word.0, new.0, AcqRel, Acquire).is_err() {
            return self.acquire_slowly(hash, access);
        }
        self.took(index, word);
        self.check().map(|()| false)
    }

    /// Says that it holds the facet of a hash, before it does.
    #[cold]
    fn list(&self, hash: u64) {
        #[cfg(not(loom))]
        self.realm.table().list(self.slot).add(hash);
        #[cfg(loom)]
        let _ = hash;
    }

    #[cold]
    fn acquire_slowly(&mut self, hash: u64, access: Access) -> Result<bool, AbortCause> {
        let index = self.realm.table().index(hash);
        let orec = self.realm.table().orec(index);
        let mut waiting = ConflictWait::default();
        loop {
            let word = Word(orec.load(Acquire));
            match word.request(self.bit, access, self.hold) {
                Request::Held => {
                    self.shares(index);
                    break;
                }
                Request::Take(new) => {
                    if orec.compare_exchange(word.0, new.0, AcqRel, Acquire).is_ok() {
                        self.took(index, word);
                        break;
                    }
                }
                Request::Blocked(others) => {
                    let apart = self.only_collide(word, others, hash);
                    if apart != 0 {
                        if self.displace(index, word, apart, access) {
                            break;
                        }
                        continue;
                    }
                    match self.contend(index, word, others, access, &mut waiting)? {
                        Resolution::Seized => {
                            self.took(index, word);
                            break;
                        }
                        Resolution::Again => {}
                    }
                }
            }
        }
        self.check()?;
        Ok(waiting.has_waited())
    }

    /// Those in the way who hold something else softly.
    fn only_collide(&self, word: Word, others: u64, hash: u64) -> u64 {
        if !word.is_soft() {
            return 0;
        }
        bits(others)
            .filter(|&number| !self.realm.seems_to_hold(number, hash))
            .fold(0, |all, number| all | 1 << number)
    }

    /// Takes soft holders out of a record, and takes it, if nobody else is in the way. They are not
    /// doomed: what they read they validate, and what they publish they acquire again. Should one do
    /// that right now, it makes the word firm, and this exchange fails. Whether it was taken.
    fn displace(&mut self, index: u32, word: Word, apart: u64, access: Access) -> bool {
        let rest = word.without(apart);
        let (new, takes) = match rest.request(self.bit, access, self.hold) {
            Request::Take(new) => (new, true),
            Request::Held => (rest, true),
            Request::Blocked(_) => (rest, false),
        };
        let orec = self.realm.table().orec(index);
        if orec.compare_exchange(word.0, new.0, AcqRel, Acquire).is_err() {
            return false;
        }
        self.realm.table().board().collisions.fetch_add(1, Relaxed);
        if takes {
            self.took(index, word);
        }
        takes
    }

    /// Waits while somebody publishes a facet, and acquires nothing: what is looked at afterwards is
    /// not half of a publish, but may change. Gives whether it had to wait.
    ///
    /// # Errors
    /// As [`TxHandle::acquire`].
    pub fn pass(&mut self, facet: &Facet<'_>, access: Access) -> Result<bool, AbortCause> {
        let index = self.realm.index_of(facet);
        let table = self.realm.table();
        let mut waiting = ConflictWait::default();
        while let Request::Blocked(others) =
            Word(table.orec(index).load(Acquire)).request(self.bit, access, self.hold)
        {
            let publishing = bits(others).find_map(|number| {
                let slot = table.slot(number);
                let status = Status(slot.status.load(Acquire));
                // A slot that is nobody's publishes nothing, whatever was scribbled on it.
                let publishes = status.state() == State::Publishing && owner(slot).is_some();
                publishes.then_some((number, status))
            });
            let Some((number, status)) = publishing else { break };
            self.wait_turn(number, status, index, &mut waiting)?;
        }
        Ok(waiting.has_waited())
    }

    /// Acquires a facet to write if nobody is in the way, not even for an instant. Whether it did. What it has acquired so may be
    /// released again, as long as nothing else of its own falls on the record.
    ///
    /// # Errors
    /// [`AbortCause::Doomed`].
    pub fn acquire_if_free(&mut self, facet: &Facet<'_>) -> Result<bool, AbortCause> {
        let hash = self.realm.hash_of(facet);
        if self.listed {
            self.list(hash);
        }
        let index = self.realm.table().index(hash);
        let orec = self.realm.table().orec(index);
        let word = Word(orec.load(Acquire));
        match word.request(self.bit, Access::Write, self.hold) {
            Request::Held => self.shares(index),
            Request::Take(new) => {
                if orec.compare_exchange(word.0, new.0, AcqRel, Acquire).is_err() {
                    return self.check().map(|()| false);
                }
                self.took(index, word);
                if word.holders() & self.bit == 0 {
                    self.alone.push(index);
                }
            }
            Request::Blocked(_) => return self.check().map(|()| false),
        }
        self.check().map(|()| true)
    }

    /// Releases a facet that it has acquired by [`TxHandle::acquire_if_free`], and of which nothing is left: all it did there it has
    /// undone itself. `false`: it needs the record for something else as well, and keeps it. Whoever waits for the facet looks again by itself.
    pub fn release(&mut self, facet: &Facet<'_>) -> bool {
        let index = self.realm.index_of(facet);
        let Some(place) = self.alone.iter().rposition(|&one| one == index) else { return false };
        self.alone.swap_remove(place);
        if let Some(place) = self.held.iter().rposition(|&one| one == index) {
            self.held.swap_remove(place);
            self.own().size.store(self.held.len() as u64, Relaxed);
            // It may be another's by now, if that has won: then the bit is gone already.
            self.realm.table().orec(index).fetch_and(!self.bit, Release);
        }
        true
    }

    /// A record is held for another facet as well.
    #[inline]
    fn shares(&mut self, index: u32) {
        if !self.alone.is_empty() {
            self.alone.retain(|&one| one != index);
        }
    }

    /// Remembers a record that was not ours in `before`.
    #[inline]
    fn took(&mut self, index: u32, before: Word) {
        if before.holders() & self.bit != 0 {
            self.shares(index);
        } else {
            self.held.push(index);
            #[cfg(not(loom))]
            if self.held.len() == MAPPED_FROM {
                self.realm.table().map_records();
            }
            self.again.work += 1;
            let slot = self.own();
            slot.size.store(self.held.len() as u64, Relaxed);
            slot.work.store(self.again.work, Relaxed);
        }
    }

    /// Whether another transaction won against this one: what it reads from now on may not fit
    /// what it read before. A load and a comparison.
    #[inline]
    #[must_use]
    pub fn is_doomed(&self) -> bool {
        Status(self.own().status.load(Acquire)).state() == State::Doomed
    }

    #[inline]
    fn check(&self) -> Result<(), AbortCause> {
        if self.is_doomed() { Err(self.defeat()) } else { Ok(()) }
    }

    /// Who doomed it.
    #[cold]
    pub(super) fn defeat(&self) -> AbortCause {
        AbortCause::Doomed(Opponent::who_doomed(self.realm, self.own()))
    }

    /// Says that it is about to publish: it acquires what it writes, firmly, and validates.
    ///
    /// # Errors
    /// [`AbortCause::Doomed`].
    pub fn prepare(&mut self) -> Result<(), AbortCause> {
        if !sync::left_out(Step::HoldFirmly) {
            self.hold = Hold::Firm;
        }
        self.advance(State::Preparing)
    }

    /// From here on nobody can doom it: it publishes, and waits for nobody. An ordered transaction
    /// waits for its turn first.
    ///
    /// # Errors
    /// [`AbortCause`].
    pub fn publish(&mut self) -> Result<(), AbortCause> {
        self.await_turn()?;
        // Before the first name changes: see [`Realm::names_published`]. The model has no names.
        if !cfg!(loom) {
            self.realm.table().board().names.fetch_add(1, AcqRel);
        }
        self.begin_publish()
    }

    /// The same for a transaction that changes no names, only what is in files.
    ///
    /// # Errors
    /// As [`TxHandle::publish`].
    pub fn publish_bytes(&mut self) -> Result<(), AbortCause> {
        self.await_turn()?;
        self.begin_publish()
    }

    /// From here on nobody can doom it, and who needs what it holds waits, as for one that publishes: it changes something of its
    /// own process, and nothing that anybody would have to finish or undo should that die.
    ///
    /// # Errors
    /// [`AbortCause::Doomed`].
    pub fn stays(&mut self) -> Result<(), AbortCause> {
        if Status(self.own().status.load(Acquire)).state() == State::Publishing {
            return Ok(());
        }
        self.own().flags.fetch_or(AT_ONCE, Relaxed);
        self.advance(State::Publishing)
    }

    fn begin_publish(&mut self) -> Result<(), AbortCause> {
        self.advance(State::Publishing)?;
        self.published = true;
        Ok(())
    }

    /// The same for what one system call changes: should this process die it has happened, or it has
    /// not, and whoever takes its place over has no journal to ask.
    ///
    /// # Errors
    /// As [`TxHandle::publish`].
    pub fn publish_at_once(&mut self) -> Result<(), AbortCause> {
        self.own().flags.fetch_or(AT_ONCE, Relaxed);
        self.publish()
    }

    fn advance(&mut self, to: State) -> Result<(), AbortCause> {
        let status = &self.own().status;
        let mut now = Status(status.load(Acquire));
        while now.generation() == self.generation
            && (now.state().is_doomable() || sync::left_out(Step::LookWhetherDoomed))
        {
            match status.compare_exchange(now.0, now.with(to).0, AcqRel, Acquire) {
                Ok(_) => return Ok(()),
                Err(other) => now = Status(other),
            }
        }
        Err(self.defeat())
    }

    /// Commits: what was published is whole, and everybody may see it. A transaction that published
    /// nothing comes here straight away.
    ///
    /// # Errors
    /// [`AbortCause::Doomed`], if it did not publish and another one won.
    pub fn finish(mut self) -> Result<(), AbortCause> {
        if Status(self.own().status.load(Acquire)).state() != State::Publishing {
            self.await_turn()?;
            self.advance(State::Publishing)?;
        }
        self.end(State::Committed);
        Ok(())
    }

    /// Commits what nobody can stop any more: it was published; or it changes nothing, and was validated in its turn.
    /// Who has doomed it since then comes after it.
    pub fn finish_validated(mut self) {
        self.end(State::Committed);
    }

    /// What the next attempt would begin with.
    #[must_use]
    pub fn again(&self) -> RetryHistory {
        let defers = self.is_doomed()
            && self.own().doomed_under.load(Relaxed) == super::outside::WAITED_OUTSIDE;
        RetryHistory { restarts: self.again.restarts.saturating_add(1), defers, ..self.again }
    }

    /// Ends without effect. What comes back lets the next attempt begin with the age and work of
    /// this one.
    pub fn abort(mut self) -> RetryHistory {
        let again = self.again();
        self.end(State::Aborted);
        again
    }

    /// Ends without effect, to begin again as it began, with its age and work; not for an ordered one,
    /// whose turn is over with that.
    pub fn abort_to_begin_again(self) -> (RetryHistory, Begin) {
        let how = Begin {
            id: self.id(),
            nonblock: self.nonblock,
            thread: self.own().thread.load(Relaxed),
            soft: self.listed,
            ..Begin::default()
        };
        let again = self.abort();
        (again, Begin { again: Some(again), ..how })
    }

    /// See [`Realm::publishes_ended`].
    #[must_use]
    pub fn publishes_ended(&self) -> u64 {
        self.realm.publishes_ended()
    }

    /// Whether it commits in its turn.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.turn.is_some()
    }

    /// After a publish that could be neither completed nor undone: keeps everybody away from what
    /// it changes until this process has ended; then its journal decides.
    pub fn leave_publishing(mut self) {
        self.ended = true;
    }

    /// A look at whether it is doomed, for another thread.
    #[must_use]
    pub fn watch(&self) -> Watch<'r> {
        Watch { realm: self.realm, slot: self.slot, generation: self.generation }
    }

    fn end(&mut self, state: State) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let slot = self.own();
        if sync::left_out(Step::HoldToTheEnd) {
            self.let_go();
        }
        // It is somebody else's, if somebody took this process for dead: then it is left alone.
        let now = Status(slot.status.load(Relaxed));
        if slot.owner.load(Relaxed) != self.realm.me().word() || now.generation() != self.generation
        {
            self.held.clear();
            return;
        }
        let ending = Status::new(self.generation, state);
        if self.published {
            self.realm.count_publish();
        }
        // Counted before it has ended: see [`Realm::quiet`].
        match state {
            State::Committed => slot.commits.fetch_add(1, Relaxed),
            _ => slot.aborts.fetch_add(1, Relaxed),
        };
        let before = Status(slot.status.swap(ending.0, AcqRel));
        if state == State::Committed {
            self.pass_turn();
        }
        if before.is_waited_for() {
            self.realm.ring_waiters(slot);
        }
        self.let_go();
        slot.status.store(Status::new(self.generation, State::Idle).0, Release);
        slot.owner.store(0, Release);
        self.realm.slot_is_free();
        self.held.clear();
        if self.held.capacity() <= LIST_KEPT_MAX {
            let held = std::mem::take(&mut self.held);
            let _ = LIST.try_with(|list| list.replace(held));
        }
    }

    /// Releases what it holds.
    fn let_go(&self) {
        for &index in &self.held {
            self.realm.table().orec(index).fetch_and(!self.bit, Release);
        }
    }
}

/// For a thread that does not own the handle: sees whether its transaction is doomed.
#[derive(Clone, Copy, Debug)]
pub struct Watch<'r> {
    realm: &'r Realm,
    slot: u32,
    generation: u64,
}

impl Watch<'_> {
    /// Whether another transaction has won against it.
    #[must_use]
    pub fn is_doomed(&self) -> bool {
        let status = Status(self.realm.table().slot(self.slot).status.load(Acquire));
        status.generation() == self.generation && status.state() == State::Doomed
    }

    /// [`Realm::quiet`], but for the transaction itself.
    #[must_use]
    pub fn others_quiet(&self) -> Option<u64> {
        self.realm.quiet_beside(Some(self.slot))
    }

    /// Sleeps until something happens that may concern the transaction, or the time is over.
    pub fn listen(&self, time: std::time::Duration) {
        let slot = self.realm.table().slot(self.slot);
        let bell = slot.bell.load(Acquire);
        if !self.is_doomed() {
            sync::wait(&slot.bell, bell, time);
        }
    }

    /// Ends the sleep of whoever listens.
    pub fn ring(&self) {
        sync::ring(&self.realm.table().slot(self.slot).bell);
    }

    /// Whether the facet is where it was doomed: a collision of hashes apart, what the winner wanted.
    #[must_use]
    pub fn lost_at(&self, facet: &Facet<'_>) -> bool {
        let slot = self.realm.table().slot(self.slot);
        slot.doomed_over.load(Relaxed) == self.realm.index_of(facet)
    }

    /// Who won.
    #[must_use]
    pub fn winner(&self) -> Opponent {
        Opponent::who_doomed(self.realm, self.realm.table().slot(self.slot))
    }
}

impl Drop for TxHandle<'_> {
    fn drop(&mut self) {
        self.end(State::Aborted);
    }
}

/// The owner of a slot, if it has one.
pub(super) fn owner(slot: &Slot) -> Option<Identity> {
    Identity::from_word(slot.owner.load(Acquire))
}
