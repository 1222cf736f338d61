//! A transaction that several threads of the process are in.
//!
//! As long as a thread is alone in its transaction, that is in its session, and nothing here runs. When it makes a
//! thread, or shows the transaction to one ([`show`]), the transaction moves to a place that all its members find.
//! For each call a member takes its *turn*: the transaction moves into the member's session, the call is
//! carried out as ever, and the transaction moves back. What may wait is made between two turns
//! ([`crate::tx::waits`]).
//!
//! | who | how it leaves |
//! |---|---|
//! | the thread that began | commits, when all others have left, or aborts for all |
//! | a member | by `sys_xend`, or when it ends; `sys_xabort` aborts for all |
//!
//! Whoever finds that the transaction was aborted is told so by each call until it leaves. The transaction begins
//! again only when the thread that began it is alone: another one may be using what is on its stack.
#![allow(unsafe_code)] // a transaction goes from thread to thread, and a thread begins to run

use std::ptr::null;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::classify::Class;
use super::entry::Regs;
use super::joint::Enlisted;
use super::loader::memory;
use super::processes::host::{Host, Reserved};
use super::processes::{client, host, joining, link};
use super::report::reason;
use super::session::{self, Next, Session};
use super::signals::{self, Changed, Masks};
use super::thread::{self, Thread, linger};
use super::tls::{ACTIVE, BLOCK, Tls, here};
use super::trap::Context;
use super::{api, dispatch, process};
use crate::call::Call;
use crate::raw::syscall;
use crate::tx::waits::{Opening, Past, Step};
use crate::tx::{Failure, How, Tx, flags, kernel};

/// How long a member waits before it tries again what could only be tried.
const NAP: Duration = Duration::from_millis(1);
/// How often the thread that began looks for signals while it waits for the others.
const LOOK: Duration = Duration::from_millis(50);
/// People are told of a wait that is longer.
const TELL_AFTER: Duration = Duration::from_secs(2);

/// With this signal the C library has all threads change their ids. It waits for each.
pub const SETXID: signals::Set = signals::of(33);

/// What all members find.
#[derive(Debug)]
pub struct Shared {
    turn: Mutex<Turn>,
    /// A member has left, or the transaction is over.
    changed: Condvar,
    /// The flags of `sys_xbegin`.
    flags: u32,
    /// Who began it.
    ids: Ids,
    /// The number of the thread that began it.
    thread: u64,
    /// What a descriptor that shows it says; 0: there is none.
    token: AtomicU64,
    /// What serves processes that are made in it.
    keeper: Weak<Reserved>,
    /// Other processes in it, once there was one.
    host: OnceLock<Arc<Host>>,
    /// How many there are.
    processes: AtomicUsize,
}

#[derive(Debug)]
struct Turn {
    tx: Option<Box<Tx>>,
    actions: Changed,
    /// How it was aborted.
    over: Option<Over>,
    /// Members besides the thread that began.
    others: u32,
    /// The thread that began has taken it back, and ends it.
    closed: bool,
    /// The number of a thread that makes a process: the turns are its own meanwhile. 0: there is none.
    forks: u64,
    abort_if: *const AtomicI32,
}

// SAFETY: nothing in a transaction belongs to one thread: who has the turn has all of it, reference counts
// included, and none of them leads out of it. The flag is the program's, which keeps it in its place.
unsafe impl Send for Turn {}

/// Why nobody can go on in it.
#[derive(Clone, Debug)]
struct Over {
    failure: Failure,
    /// What the next attempt begins with.
    plan: How,
    /// The thread that began may begin again.
    again: bool,
}

/// User and groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ids([u32; 4], [u32; 2], Vec<u32>, u64);

impl Ids {
    /// Those of the calling thread.
    pub fn now() -> Ids {
        let ids = [kernel::getuid(), kernel::geteuid(), kernel::getgid(), kernel::getegid()];
        // A number that is none changes nothing, and the answer is the present one.
        let fs = [libc::SYS_setfsuid, libc::SYS_setfsgid]
            // SAFETY: they have no pointers.
            .map(|call| unsafe { syscall(call, [u64::MAX, 0, 0, 0, 0, 0]) } as u32);
        Ids(ids, fs, kernel::groups(), kernel::capabilities())
    }

    /// A word that is another one, as a rule, for others.
    pub fn word(&self) -> u64 {
        use std::hash::{Hash, Hasher};
        let mut hasher = crate::tx::node::Fold::default();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// A thread's place in a transaction of several. Dropped, it leaves.
#[derive(Debug)]
pub struct Membership {
    shared: Arc<Shared>,
    /// This thread began it.
    began: bool,
    /// It knows that the transaction is over.
    told: bool,
    /// At its last turn there was nobody else.
    alone: bool,
    /// The transaction is over, and may begin again.
    again: bool,
    /// It is there for processes only.
    keeps: bool,
    /// Who aborts it now wants it to begin again.
    wants_again: bool,
}

impl Drop for Membership {
    fn drop(&mut self) {
        if !self.began && !self.keeps {
            self.shared.turn().others -= 1;
            self.shared.changed.notify_all();
        }
    }
}

impl Membership {
    /// In a child of the process: it is the parent's.
    pub fn forget(self) {
        std::mem::forget(self);
    }

    /// Whether this thread began the transaction.
    pub fn began(&self) -> bool {
        self.began
    }

    /// Whether this thread may begin it again.
    pub fn may_restart(&self) -> bool {
        self.began && self.alone
    }

    /// Whether it can still be committed, as far as is known.
    pub fn lives(&self) -> bool {
        self.shared.turn().over.is_none()
    }

    /// Kills the processes that were made in the transaction, and waits until they are gone.
    pub fn ends_processes(&self, reason: u32) {
        if let Some(host) = self.shared.host.get() {
            host.end(reason);
        }
    }

    /// Who aborts it now wants it to begin again, or not.
    pub fn wants_again(&mut self, again: bool) {
        self.wants_again = again;
    }

    /// Kills them, and does not wait.
    pub fn kills_processes(&self) {
        if let Some(host) = self.shared.host.get() {
            host.kill(reason::EXITED);
        }
    }
}

impl Shared {
    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn, unless it is another thread's that makes a process.
    fn take_turn(&self) -> MutexGuard<'_, Turn> {
        let mut turn = self.turn();
        while turn.forks != 0 && turn.forks != thread_number() {
            turn = self.changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        turn
    }

    /// Other processes are in the transaction, or may be.
    pub fn has_host(&self, host: Arc<Host>) {
        let _ = self.host.set(host);
    }

    /// What serves them. `None`: it does no more.
    pub fn keeper(&self) -> Option<Arc<Reserved>> {
        self.keeper.upgrade()
    }

    /// Whether it was aborted.
    pub fn is_over(&self) -> bool {
        self.turn().over.is_some()
    }

    /// Why it was aborted, if it was.
    pub fn why_over(&self) -> Option<u32> {
        self.turn().over.as_ref().map(|over| over.failure.reason)
    }

    /// There is one more process.
    pub fn process_enters(&self) {
        self.processes.fetch_add(1, Ordering::SeqCst);
    }

    /// So many are there no more.
    pub fn processes_left(&self, count: usize) {
        let turn = self.turn();
        self.processes.fetch_sub(count, Ordering::SeqCst);
        drop(turn);
        self.changed.notify_all();
    }

    fn has_processes(&self) -> bool {
        self.processes.load(Ordering::SeqCst) != 0
    }

    /// The other threads and processes in it.
    fn others(&self, turn: &Turn) -> (u32, usize) {
        (turn.others, self.processes.load(Ordering::SeqCst))
    }

    /// Something has become of it.
    fn tell(&self, over: bool) {
        self.changed.notify_all();
        if let Some(host) = self.host.get().filter(|_| over) {
            host.wake();
        }
    }
}

impl Turn {
    fn end(&mut self, failure: Failure, plan: How, again: bool) {
        if self.over.is_none() {
            self.over = Some(Over { failure, plan, again });
        }
    }

    /// Moves the transaction into a member's session. `processes`: there are some.
    fn lend(&mut self, thread: &mut Thread, processes: bool) -> bool {
        let lives = self.tx.is_some();
        if !lives && self.over.is_none() {
            self.end(session::defect("a turn was not given back"), How::default(), false);
        }
        let Some(session) = thread.session.as_mut() else { return lives };
        session.tx = self.tx.take();
        std::mem::swap(&mut session.actions, &mut self.actions);
        here().abort_if.set(self.abort_if);
        if let Some(member) = session.member.as_mut() {
            member.alone = self.others == 0 && !processes;
            if let Some(over) = self.over.as_ref().filter(|_| !member.told) {
                (member.told, member.again) = (true, over.again);
                if member.began {
                    session.plan.again.clone_from(&over.plan.again);
                    session.plan.went_out |= over.plan.went_out;
                }
                thread.report.say(&over.failure.what);
                thread.report.abort = over.failure.clone();
            }
        }
        lives
    }

    /// Moves it back. `lived`: it could be committed before.
    fn take_back(&mut self, thread: &mut Thread, lived: bool) {
        // A thread that has ended, or a child.
        let Some(session) = thread.session.as_mut() else { return };
        self.tx = session.tx.take();
        std::mem::swap(&mut session.actions, &mut self.actions);
        self.abort_if = here().abort_if.get();
        if lived && self.tx.is_none() {
            let failure = thread.report.abort.clone();
            let wanted = session.member.as_ref().is_some_and(|member| member.wants_again);
            let lost = failure.is_worth_another_try();
            let again = wanted || (lost && !session.plan.went_out);
            self.end(failure, session.plan.clone(), again);
            if let Some(member) = session.member.as_mut() {
                (member.told, member.again) = (true, again);
            }
        }
    }
}

/// Aborts a thread's transaction, for all members. `again`: it may begin again.
pub fn abort(thread: &mut Thread, why: Failure, again: bool) {
    let member = thread.session.as_ref().and_then(|session| session.member.as_ref());
    let Some(shared) = member.map(|member| Arc::clone(&member.shared)) else {
        return session::abort_in(thread, why);
    };
    let mut turn = shared.take_turn();
    let lived = turn.lend(thread, shared.has_processes());
    session::abort_in(thread, why);
    turn.take_back(thread, lived);
    if lived && let Some(over) = turn.over.as_mut() {
        over.again |= again;
    }
    drop(turn);
    shared.tell(true);
}

/// Whether a call sends a signal to a process that is in the thread's transaction, or concerns its memory.
pub fn concerns_a_member(thread: &Thread, call: &Call) -> bool {
    let member = thread.session.as_ref().and_then(|session| session.member.as_ref());
    let Some(host) = member.and_then(|member| member.shared.host.get()) else { return false };
    let process = match call.number() {
        libc::SYS_pidfd_send_signal => kernel::process_of_signal(call.int(0), call.uint(3)),
        libc::SYS_tkill => kernel::process_of_thread(call.int(0)),
        libc::SYS_kill
        | libc::SYS_tgkill
        | libc::SYS_rt_sigqueueinfo
        | libc::SYS_rt_tgsigqueueinfo => Some(call.int(0)).filter(|&number| number > 0),
        libc::SYS_process_vm_writev | libc::SYS_move_pages | libc::SYS_migrate_pages => {
            kernel::process_of_thread(call.int(0))
        }
        _ => None,
    };
    process.is_some_and(|process| host.has(process.cast_unsigned()))
}

/// Does something with the transaction of a thread, which has it alone meanwhile.
pub fn with<R>(thread: &mut Thread, work: impl FnOnce(&mut Thread) -> R) -> R {
    let member = thread.session.as_ref().and_then(|session| session.member.as_ref());
    let Some(shared) = member.map(|member| Arc::clone(&member.shared)) else {
        return work(thread);
    };
    let mut turn = shared.take_turn();
    let lived = turn.lend(thread, shared.has_processes());
    let result = work(thread);
    turn.take_back(thread, lived);
    let over = turn.over.is_some();
    drop(turn);
    if over {
        shared.tell(over);
    }
    result
}

/// Nobody else carries out a call of the transaction from now on, until [`after_fork`].
///
/// The C library's `fork` holds locks that calls may need: of the allocator, for example.
pub fn before_fork(thread: &mut Thread) {
    if let Some(shared) = share(thread) {
        shared.take_turn().forks = thread_number();
    }
}

/// The others go on.
pub fn after_fork(thread: &Thread) {
    let member = thread.session.as_ref().and_then(|session| session.member.as_ref());
    if let Some(member) = member {
        let mut turn = member.shared.turn();
        if turn.forks == thread_number() {
            turn.forks = 0;
        }
        drop(turn);
        member.shared.changed.notify_all();
    }
}

/// Whether threads that run already can join the thread's transaction.
pub fn is_shown(thread: &Thread) -> bool {
    let member = thread.session.as_ref().and_then(|session| session.member.as_ref());
    member.is_some_and(|member| {
        let shared = &member.shared;
        shared.flags & flags::MANAGED != 0 && shared.token.load(Ordering::Relaxed) != 0
    })
}

/// `txos_abort_if` of a member: for all of them.
pub fn abort_if(thread: &Thread, flag: *const AtomicI32) {
    let member = thread.session.as_ref().and_then(|session| session.member.as_ref());
    if let Some(member) = member {
        member.shared.turn().abort_if = flag;
    }
}

// --- A call ------------------------------------------------------------------------------------

/// What a turn came to.
enum Done {
    Next(Next),
    Past(Past),
    PastNew(Past),
    PastLive(Past, &'static str),
    Open(Opening),
    NotYet,
}

/// Carries out a call of a member.
pub fn dispatch(
    thread: &mut Thread,
    call: &Call,
    class: Class,
    context: Option<&mut Context>,
) -> Next {
    match (class, context) {
        (Class::Fork | Class::Vfork | Class::Clone | Class::Clone3, Some(context)) => {
            process::create(thread, class, call, context)
        }
        (Class::Exit, _) => exit(thread, call),
        (
            Class::Harmless
            | Class::Suspend
            | Class::Absent
            | Class::Mask
            | Class::AlternateStack
            | Class::SignalReturn,
            context,
        ) => dispatch::by_class(thread, call, class, context),
        (class, context) => in_turns(thread, call, class, context),
    }
}

fn in_turns(
    thread: &mut Thread,
    call: &Call,
    class: Class,
    mut context: Option<&mut Context>,
) -> Next {
    let mut poll = None;
    loop {
        let context = context.as_deref_mut();
        let done = with(thread, |thread| one_turn(thread, call, class, context, &mut poll));
        match done {
            Done::Next(next) => return next,
            Done::Past(call) => return Next::Answer(make(thread, &call)),
            Done::PastNew(call) => match i32::try_from(make(thread, &call)) {
                Ok(fd) if fd >= 0 => return with(thread, |thread| took(thread, fd)),
                Ok(error) => return Next::Answer(error.into()),
                Err(_) => return Next::Answer(-i64::from(libc::EBADF)),
            },
            Done::PastLive(call, what) => {
                let answer = make(thread, &call);
                if answer >= 0 {
                    with(thread, |thread| {
                        if let Some(tx) = thread.session.as_mut().and_then(|s| s.tx.as_mut()) {
                            let _ = thread::guarded(|| tx.happened(what));
                        }
                    });
                }
                return Next::Answer(answer);
            }
            Done::Open(opening) => return open(thread, &opening),
            Done::NotYet => std::thread::sleep(NAP),
        }
    }
}

/// Makes a call past the transaction. If that is aborted meanwhile, so that the other end of a pipe is closed, the
/// answer says so, and not what has become of the pipe.
fn make(thread: &Thread, call: &Past) -> i64 {
    let answer = call.make();
    let member = thread.session.as_ref().and_then(|session| session.member.as_ref());
    if answer >= 0 || member.is_none_or(Membership::lives) {
        return answer;
    }
    if answer == -i64::from(libc::EPIPE) {
        signals::take_back(libc::SIGPIPE);
    }
    -i64::from(libc::ECANCELED)
}

/// Opens a FIFO, for whose other end the thread may wait.
fn open(thread: &mut Thread, opening: &Opening) -> Next {
    let fd = match opening.open_fifo() {
        Ok(fd) => fd,
        Err(errno) => return Next::Answer(crate::raw::answer(Err(errno))),
    };
    with(thread, |thread| {
        let answer = match thread.session.as_mut().and_then(|session| session.tx.as_mut()) {
            Some(tx) => thread::guarded(|| tx.opened(opening, fd)),
            None => Ok(Err(kernel::Errno::CANCELED)),
        };
        let answer = answer.unwrap_or(Err(kernel::Errno::IO));
        if answer.is_err() {
            kernel::close(fd);
        }
        Next::Answer(crate::raw::answer(answer))
    })
}

/// A descriptor was made past the transaction.
fn took(thread: &mut Thread, fd: i32) -> Next {
    match thread.session.as_mut().and_then(|session| session.tx.as_mut()) {
        Some(tx) => {
            Next::Answer(thread::guarded(|| tx.took(fd)).unwrap_or_else(|_| -i64::from(libc::EIO)))
        }
        None => {
            kernel::close(fd);
            Next::Answer(-i64::from(libc::ECANCELED))
        }
    }
}

fn one_turn(
    thread: &mut Thread,
    call: &Call,
    class: Class,
    context: Option<&mut Context>,
    poll: &mut Option<Poll>,
) -> Done {
    let Some(session) = thread.session.as_mut() else {
        return Done::Next(Next::Answer(-i64::from(libc::ECANCELED)));
    };
    let again = session.member.as_ref().is_some_and(|member| member.again);
    // The C library sets handlers while it has locks of its own: `system` would keep them for ever.
    let is_patient = thread.patience.is_asked_for();
    if session.tx.is_none() && again && session.restarts() && class != Class::Action && !is_patient
    {
        return Done::Next(Next::Again);
    }
    let step = match session.tx.as_mut() {
        Some(tx) if !here().is_called_off() => {
            thread::guarded(|| tx.next_step(call)).unwrap_or(Step::Here)
        }
        _ => Step::Here,
    };
    let usual = |call: &Call| dispatch::by_class(thread, call, class, context);
    match step {
        Step::Here => {
            let next = usual(call);
            let tx = thread.session.as_mut().and_then(|session| session.tx.as_mut());
            tx.and_then(|tx| tx.take_opening()).map_or(Done::Next(next), Done::Open)
        }
        Step::Past(call) => Done::Past(call),
        Step::PastNew(call) => Done::PastNew(call),
        Step::PastLive(call, what) => Done::PastLive(call, what),
        Step::Later => Done::NotYet,
        Step::Try(call, errno) => match usual(&call) {
            Next::Answer(answer) if answer == -i64::from(errno.raw_os_error()) => Done::NotYet,
            next => Done::Next(next),
        },
        Step::Poll => {
            let poll = poll.get_or_insert_with(|| Poll::of(call));
            match usual(&poll.without_time(call)) {
                Next::Answer(0) if !poll.is_over() => {
                    poll.ask_again(call);
                    Done::NotYet
                }
                next => Done::Next(next),
            }
        }
    }
}

/// A wait for one of several descriptors.
struct Poll {
    /// `None`: for ever.
    until: Option<Instant>,
    /// No time at all: as a `timespec` and a `timeval`.
    none: [u64; 2],
    /// What `select` is asked, word by word. The answer takes its place.
    sets: [Vec<u64>; 3],
}

impl Poll {
    fn of(call: &Call) -> Poll {
        const SECOND: u64 = 1_000_000_000;
        let time = |at: usize, of_a_second: u64| {
            let given = call.pointer::<[u64; 2]>(at);
            let [seconds, part] = (!given.is_null()).then(|| given.read().ok())??;
            let nanoseconds = part.saturating_mul(SECOND / of_a_second);
            Some(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanoseconds)))
        };
        let time = match call.number() {
            libc::SYS_poll => u64::try_from(call.int(2)).ok().map(Duration::from_millis),
            libc::SYS_ppoll => time(2, SECOND),
            libc::SYS_select => time(4, 1_000_000),
            _ => time(4, SECOND),
        };
        let mut sets = [const { Vec::new() }; 3];
        if matches!(call.number(), libc::SYS_select | libc::SYS_pselect6) {
            for (set, at) in sets.iter_mut().zip(1..) {
                *set = Poll::words(call, at).map_while(|word| word.read().ok()).collect();
            }
        }
        let until = time.and_then(|time| Instant::now().checked_add(time));
        Poll { until, none: [0; 2], sets }
    }

    /// The words of a set of `select`.
    fn words(call: &Call, at: usize) -> impl Iterator<Item = crate::user::UserPtr<u64>> {
        let (given, limit) = (call.pointer::<u64>(at), u64::from(call.uint(0).min(1 << 20)));
        let words = if given.is_null() { 0 } else { limit.div_ceil(64) };
        (0..words).map(move |word| given.item(word))
    }

    fn ask_again(&self, call: &Call) {
        for (set, at) in self.sets.iter().zip(1..) {
            for (word, bits) in Poll::words(call, at).zip(set) {
                let _ = word.write(*bits);
            }
        }
    }

    /// The call, which does not wait.
    fn without_time(&mut self, call: &Call) -> Call {
        let (at, word) = match call.number() {
            libc::SYS_poll => (2, 0),
            libc::SYS_ppoll => (2, self.none.as_mut_ptr() as u64),
            _ => (4, self.none.as_mut_ptr() as u64),
        };
        // SAFETY: the structure is here until the answer.
        unsafe { call.with_word(at, word) }
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

// --- Members come and go -----------------------------------------------------------------------

/// Moves a thread's transaction to where others find it. `None`: it has none that could be committed.
fn share(thread: &mut Thread) -> Option<Arc<Shared>> {
    let session = thread.session.as_mut()?;
    if let Some(member) = session.member.as_ref() {
        return member.lives().then(|| Arc::clone(&member.shared));
    }
    if session.command.is_some() {
        return None;
    }
    session.masks.at_once |= SETXID;
    here().goes_by(&session.masks);
    let mut tx = session.tx.take()?;
    // On a panic it is as it was: the next call finds out.
    let _ = thread::guarded(|| tx.share());
    let turn = Turn {
        tx: Some(tx),
        actions: std::mem::take(&mut session.actions),
        over: None,
        others: 0,
        closed: false,
        forks: 0,
        abort_if: here().abort_if.get(),
    };
    let shared = Arc::new(Shared {
        turn: Mutex::new(turn),
        changed: Condvar::new(),
        flags: session.plan.flags,
        ids: Ids::now(),
        thread: thread_number(),
        token: AtomicU64::new(0),
        keeper: session.keeper.as_ref().map(Arc::downgrade).unwrap_or_default(),
        host: OnceLock::new(),
        processes: AtomicUsize::new(0),
    });
    let member = membership(shared, true);
    session.member.insert(member).shared.clone().into()
}

/// A place in a transaction that lives.
fn membership(shared: Arc<Shared>, began: bool) -> Membership {
    Membership {
        shared,
        began,
        told: false,
        alone: began,
        again: false,
        keeps: false,
        wants_again: false,
    }
}

/// The transaction of a thread, where others find it. `None`: it has none that could be committed.
pub fn shared_by(thread: &mut Thread) -> Option<Arc<Shared>> {
    share(thread)
}

/// The session of the thread that serves the processes of a transaction.
pub fn of_keeper(shared: Arc<Shared>) -> Session {
    let plan = How { flags: shared.flags, ..How::default() };
    let mut member = membership(shared, false);
    member.keeps = true;
    Session::of_thread(plan, Masks::default(), member)
}

impl Session {
    /// The session of a thread that has a place in another's transaction.
    fn of_thread(plan: How, masks: Masks, member: Membership) -> Session {
        Session {
            checkpoint: None,
            gives_up: false,
            plan,
            tx: None,
            depth: 0,
            abort_if: null(),
            masks,
            actions: Changed::default(),
            restored: Default::default(),
            lost: Vec::new(),
            kept: signals::Kept::default(),
            restartable: false,
            command: None,
            member: Some(member),
            process: None,
            keeper: None,
            enlisted: Enlisted::default(),
        }
    }
}

/// What the session of a new member is.
fn enter(shared: Arc<Shared>, masks: Masks) -> Option<Session> {
    {
        let mut turn = shared.turn();
        if turn.closed || turn.over.is_some() {
            return None;
        }
        turn.others += 1;
    }
    let plan = How { flags: shared.flags, ..How::default() };
    Some(Session::of_thread(plan, masks, membership(shared, false)))
}

/// A thread that is a member from its first instruction on.
#[repr(C)]
#[derive(Debug)]
pub struct Newborn {
    /// The end of its runtime's stack. (Assembly looks here.)
    stack: *mut u8,
    /// Its record, if it is a thread.
    thread: Option<Box<Thread>>,
    /// What it begins with, if it is a process.
    child: Option<link::Child>,
    /// Its thread pointers, if the library's is not the program's.
    pub pointers: Option<memory::Pointers>,
}

impl Newborn {
    /// A thread.
    pub fn thread(stack: *mut u8, session: Session) -> Box<Newborn> {
        let thread = Box::new(Thread { session: Some(session), ..Thread::default() });
        Box::new(Newborn { stack, thread: Some(thread), child: None, pointers: None })
    }

    /// A process with a copy of its parent's memory, in which it may use the stack of the parent's runtime.
    pub fn process(stack: *mut u8, child: link::Child) -> Box<Newborn> {
        Box::new(Newborn { stack, thread: None, child: Some(child), pointers: None })
    }
}

/// What a thread that is to be a member starts with. `None`: it stays outside.
///
/// # Errors
/// ECANCELED if the transaction has failed: what an outsider did would stay. EAGAIN if there is no memory.
pub fn expect(thread: &mut Thread) -> Result<Option<Box<Newborn>>, i32> {
    let Some(session) = thread.session.as_ref() else { return Ok(None) };
    if session.plan.flags & flags::THREADS == 0 {
        return Ok(None);
    }
    let shared = share(thread).ok_or(libc::ECANCELED)?;
    let masks = thread.session.as_ref().map(|session| session.masks).unwrap_or_default();
    // The C library blocks all while it makes a thread, and has that put its mask in force first.
    let masks = Masks { before: masks.programs, fresh: true, ..masks };
    let session = enter(shared, masks).ok_or(libc::ECANCELED)?;
    let stack = thread::new_stack().map_err(|thread::NoMemory| libc::EAGAIN)?;
    Ok(Some(Newborn::thread(stack, session)))
}

/// There is no such thread after all.
pub fn never_born(newborn: Box<Newborn>) {
    // SAFETY: nothing has run on it.
    unsafe { thread::free_stack(newborn.stack) };
    if let Some(own) = newborn.pointers.as_ref().and_then(|pointers| pointers.own.as_ref()) {
        memory::alone(|| own.free());
    }
    drop(newborn);
}

/// The first thing that a new member does, on its own runtime's stack, with all signals blocked; what is to be blocked when
/// its program goes on.
///
/// # Safety
/// For the assembly of `entry`, with what [`expect`] gave.
pub unsafe extern "C" fn born(newborn: *mut Newborn) -> signals::Set {
    // SAFETY: the parent has given it away.
    let mut newborn = unsafe { Box::from_raw(newborn) };
    if let Some(pointers) = newborn.pointers.take() {
        pointers.take();
    }
    let tls = here();
    let mask = goes_on(tls, *newborn);
    memory::to_program(tls);
    mask
}

/// What is blocked from then on.
fn goes_on(tls: &Tls, newborn: Newborn) -> signals::Set {
    tls.busy.set(1);
    let armed = thread::guarded(|| match newborn {
        Newborn { child: Some(child), .. } => {
            if let Some(thread) = thread::existing(tls) {
                client::begins(thread, child);
            }
            Ok(())
        }
        Newborn { stack, thread, .. } => {
            thread::install(tls, stack, thread.unwrap_or_default());
            thread::arm(tls)
        }
    });
    tls.busy.set(0);
    let Some(thread) = thread::existing(tls) else { return !signals::SYNCHRONOUS };
    if !matches!(armed, Ok(Ok(()))) {
        let why = session::defect("the calls of a new thread can't be redirected");
        with(thread, |thread| session::abort_in(thread, why));
    }
    let Some(session) = thread.session.as_ref() else { return !signals::SYNCHRONOUS };
    let masks = session.masks;
    tls.goes_by(&masks);
    tls.state.set(ACTIVE);
    tls.selector.set(BLOCK);
    masks.real()
}

/// The thread ends.
fn exit(thread: &mut Thread, call: &Call) -> Next {
    leave_at_end(thread);
    if let Some(succession) =
        thread.session.take().and_then(|mut session| session.plan.succession.take())
    {
        succession.aborted(&session::ended().what);
    }
    thread::disarm(here());
    thread::abandon(here());
    // SAFETY: nothing comes after it.
    Next::Answer(unsafe { syscall(libc::SYS_exit, *call.words()) })
}

/// A thread that ends leaves; the transaction of the one that began ends with it.
pub fn leave_at_end(thread: &mut Thread) {
    let member = thread.session.as_ref().and_then(|session| session.member.as_ref());
    if member.is_none_or(|member| member.began) {
        with(thread, |thread| session::abort_in(thread, session::ended()));
    }
}

/// `sys_xend` of a member that did not begin the transaction.
pub fn leave(tls: &Tls, thread: &mut Thread) -> i32 {
    let lives = with(thread, |thread| thread.session.as_ref().is_some_and(|s| s.tx.is_some()));
    thread::leave_wait(&mut thread.waits);
    let ended = thread.session.take().map(|mut session| {
        let mask = if lives { session.masks.programs } else { session.masks.before };
        if !lives {
            session.kept.give_back();
        }
        (session.kept.take_late(), mask)
    });
    linger(tls);
    if let Some((late, mask)) = ended {
        signals::release(late, mask);
    }
    if lives { 0 } else { api::fail(libc::ECANCELED) }
}

/// The thread that began waits until it is the only one, and has the transaction for itself again. It does not
/// wait for the others in a transaction that is over, unless that is to begin again. Whether it is over, and is
/// to begin again.
pub fn gather(thread: &mut Thread) -> bool {
    let Some(session) = thread.session.as_mut() else { return false };
    let Some(member) = session.member.take() else { return false };
    let shared = Arc::clone(&member.shared);
    let restartable = session.restarts();
    let began = Instant::now();
    let mut said = false;
    let mut turn = shared.turn();
    while shared.others(&turn) != (0, 0) {
        if turn.over.as_ref().is_some_and(|over| !(over.again && restartable)) {
            break;
        }
        here().abort_if.set(turn.abort_if);
        let why = match signals::ending_pending() {
            Some(name) => Some(interrupted(name)),
            None => here().is_called_off().then(session::called_off),
        };
        if let Some(why) = why {
            let plan = session.plan.clone();
            let tx = turn.tx.take();
            turn.over = Some(Over { failure: why, plan, again: false });
            if tx.is_some() {
                drop_tx(tx, &mut thread.counters);
                turn.actions.undo(&session.masks, &mut session.kept);
            }
            shared.tell(true);
            break;
        }
        let waited = shared.changed.wait_timeout(turn, LOOK);
        turn = waited.unwrap_or_else(PoisonError::into_inner).0;
        let others = shared.others(&turn);
        if !said && others != (0, 0) && began.elapsed() >= TELL_AFTER {
            said = true;
            api::tell(&format!("sys_xend waits for {} of the transaction", counted(others)));
        }
    }
    turn.closed = true;
    let alone = shared.others(&turn) == (0, 0);
    session.tx = turn.tx.take();
    session.actions = std::mem::take(&mut turn.actions);
    let over = turn.over.clone();
    if session.tx.is_some() {
        // For those that still hold on to it.
        turn.end(session::ended(), session.plan.clone(), false);
    }
    drop(turn);
    if let Some(over) = over.as_ref() {
        member.ends_processes(over.failure.reason);
    }
    drop(member);
    let Some(over) = over else { return false };
    session.plan.again = over.plan.again;
    session.plan.went_out |= over.plan.went_out;
    thread.report.say(&over.failure.what);
    thread.report.abort = over.failure;
    over.again && alone
}

/// Threads and processes, in words.
fn counted((threads, processes): (u32, usize)) -> String {
    let threads = match threads {
        0 => String::new(),
        1 => "1 other thread".into(),
        n => format!("{n} other threads"),
    };
    let processes = match processes {
        0 => String::new(),
        1 => "1 process".into(),
        n => format!("{n} processes"),
    };
    let and = if threads.is_empty() || processes.is_empty() { "" } else { " and " };
    format!("{threads}{and}{processes}")
}

/// Aborts what there is of a transaction.
fn drop_tx(tx: Option<Box<Tx>>, counters: &mut super::report::Counters) {
    if let Some(tx) = tx {
        counters.aborted += 1;
        counters.unsupported += tx.unsupported();
        let _ = thread::guarded(|| tx.abort());
    }
}

fn interrupted(signal: &str) -> Failure {
    Failure {
        reason: reason::ASKED,
        errno: libc::ECANCELED,
        what: format!("{signal} arrived while sys_xend waited for others of the transaction"),
        ..Failure::default()
    }
}

// --- Threads that run already ------------------------------------------------------------------

/// What a descriptor that shows a transaction holds.
const CARD: &[u8; 16] = b"txos transaction";
/// After the words: the process, and the transaction.
const CARD_SIZE: usize = CARD.len() + 2 * size_of::<u64>();

/// The transactions that are shown.
static SHOWN: Mutex<Vec<(u64, Weak<Shared>)>> = Mutex::new(Vec::new());

fn shown() -> MutexGuard<'static, Vec<(u64, Weak<Shared>)>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refusal(errno: i32, what: impl Into<String>) -> Failure {
    Failure { errno, what: what.into(), ..Failure::default() }
}

/// `txos_share`: a descriptor that shows the thread's transaction.
///
/// # Errors
/// Why there is none.
pub fn show(thread: &mut Thread) -> Result<i32, Failure> {
    let over = || refusal(libc::ECANCELED, "txos_share: the transaction was aborted");
    let shared = share(thread).ok_or_else(over)?;
    let token = {
        let mut shown = shown();
        match shared.token.load(Ordering::Relaxed) {
            0 => {
                let token = random().max(1);
                shared.token.store(token, Ordering::Relaxed);
                shown.retain(|(_, shared)| shared.strong_count() > 0);
                shown.push((token, Arc::downgrade(&shared)));
                token
            }
            token => token,
        }
    };
    let failed = |what: &str, errno: kernel::Errno| {
        refusal(errno.raw_os_error(), format!("txos_share: {what} failed: {errno}"))
    };
    if shared.flags & flags::PROCESSES != 0 {
        return host::show(&shared, token).map_err(|e| failed("making a door for others", e));
    }
    let mut card = CARD.to_vec();
    for word in [std::process::id().into(), token] {
        card.extend(word.to_ne_bytes());
    }
    let fd = kernel::memory_file(c"txos transaction").map_err(|e| failed("memfd_create", e))?;
    if let Err(e) = kernel::pwrite_all(fd, &card, 0) {
        kernel::close(fd);
        return Err(failed("writing to a memory file", e));
    }
    // It is no part of the transaction: it stays until the program closes it.
    Ok(fd)
}

fn thread_number() -> u64 {
    // SAFETY: it takes nothing.
    unsafe { syscall(libc::SYS_gettid, [0; 6]) as u64 }
}

/// Whether the calling thread has the descriptors and the directories of another one.
fn shares_tables(other: u64) -> bool {
    const KCMP_FILES: u64 = 2;
    const KCMP_FS: u64 = 3;
    let own = thread_number();
    let same = |kind: u64| {
        // SAFETY: it compares, and has no pointers with these kinds.
        let answer = unsafe { syscall(libc::SYS_kcmp, [own, other, kind, 0, 0, 0]) };
        answer == 0
    };
    own == other || same(KCMP_FILES) && same(KCMP_FS)
}

fn random() -> u64 {
    let mut word = 0_u64;
    // SAFETY: the kernel writes the word.
    unsafe { syscall(libc::SYS_getrandom, [(&raw mut word) as u64, 8, 0, 0, 0, 0]) };
    word
}

/// The process and the transaction that a memory file shows.
fn on_card(fd: i32) -> Result<(u64, u64), Failure> {
    let wrong = || refusal(libc::EINVAL, "sys_xjoin: the descriptor is none of txos_share()");
    let mut card = [0; CARD_SIZE + 1];
    let read = kernel::pread(fd, &mut card, 0);
    let size = read.map_err(|errno| match errno {
        kernel::Errno::BADF => refusal(libc::EBADF, "sys_xjoin: the descriptor is not open"),
        _ => wrong(),
    })?;
    let words = card.get(..size).and_then(|card| card.strip_prefix(CARD)).ok_or_else(wrong)?;
    if size != CARD_SIZE {
        return Err(wrong());
    }
    let mut words = words.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
    let mut word = || words.next().unwrap_or(0);
    Ok((word(), word()))
}

/// `sys_xjoin`: the thread enters the transaction that a descriptor shows. Signals are blocked.
///
/// # Errors
/// Why it does not.
pub fn join(tls: &Tls, thread: &mut Thread, fd: i32, before: signals::Set) -> Result<(), Failure> {
    let door = joining::leads_to(fd);
    let (process, token) = match door {
        Some((process, token)) => (process.into(), token),
        None => on_card(fd)?,
    };
    if process != u64::from(std::process::id()) {
        if door.is_some() {
            return joining::join(tls, thread, fd, before);
        }
        return Err(refusal(
            libc::ENOTSUP,
            "sys_xjoin: the transaction is another process's, which has not begun it with TX_PROCESSES",
        ));
    }
    let found = shown().iter().find(|(shown, _)| *shown == token).map(|(_, shared)| shared.clone());
    let over = || refusal(libc::EINVAL, "sys_xjoin: that transaction is over");
    let shared = found.as_ref().and_then(Weak::upgrade).ok_or_else(over)?;
    if shared.ids != Ids::now() {
        return Err(refusal(
            libc::EPERM,
            "sys_xjoin: the thread that began has another user, other groups or capabilities",
        ));
    }
    if !shares_tables(shared.thread) {
        return Err(refusal(
            libc::EPERM,
            "sys_xjoin: the thread has other descriptors, or another working directory, than the one that began \
             (unshare)",
        ));
    }
    let can_arm = thread::arm(tls);
    can_arm.map_err(|errno| refusal(libc::ENOSYS, format!("sys_xjoin: errno {errno}")))?;
    let at_once = signals::at_once() | SETXID;
    let masks =
        Masks { before, programs: before, live: 0, at_once, fresh: false, waits_here: false };
    let session = enter(shared, masks).ok_or_else(over)?;
    crate::reach::forget();
    tls.goes_by(&session.masks);
    tls.abort_if.set(null());
    thread.regs = Regs::default();
    thread.session = Some(session);
    Ok(())
}
