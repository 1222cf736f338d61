//! What a thread's transaction changes of the thread and its process, and an abort puts back: credentials, limits,
//! priorities, processors, personality.
//!
//! The kernel makes the change at once, so that it is in force for what the transaction does. What was there is
//! remembered before the first change of each kind. An abort puts it back, as far as the kernel lets a process do so:
//! what was given up for good (`setuid` of root to a user) stays given up, and the transaction does not begin again.
//!
//! Files stay the business of those credentials with which the transaction began: its private copies are theirs.
//! So as long as these can be had again, the thread has them while the library carries out a call on files, and *wears*
//! the new ones ([`kernel::as_other`]); and has them for the commit.
//!
//! With TX_KEEP_CREDENTIALS nothing is given up for good before the commit ([`super::given_up`]). Process groups wait for the
//! commit ([`super::groups`]).

use super::api;
use super::given_up;
use super::groups::Groups;
use super::session::{Next, Session};
use super::thread::Thread;
use crate::call::Call;
use crate::tx::kernel::{
    self, Attachments, Credentials, Identity, OwnedFd, Processors, Sys, Urgency,
};
use crate::tx::{Decides, Failure, Tx};

/// Something from before.
#[derive(Debug)]
pub(super) enum Old {
    Limits(u32, [u64; 2]),
    Urgency(Urgency),
    Io(u64),
    Processors(Processors),
    Personality(u64),
    Group(i32),
    /// A child, what holds it, and its group.
    GroupOfChild(i32, OwnedFd, i32),
}

/// What was there before the transaction changed it.
#[derive(Debug, Default)]
pub struct Restored {
    credentials: Option<Box<(Credentials, Attachments)>>,
    others: Vec<Old>,
    /// Hard limits that could not be raised again: they are lowered by the commit.
    hard: Vec<(u32, u64)>,
    /// The process has asked for a session of its own, and gets it by the commit.
    session: bool,
    /// Groups that it, and its children, get by the commit.
    pub(super) groups: Groups,
    /// How often credentials have changed.
    times: u32,
    /// The C library has had all threads take them.
    by_all: bool,
    /// What would be given up for good is kept until the commit.
    keeps: bool,
    /// The credentials that the program has, while the kernel has more for it.
    seen: Option<Box<Credentials>>,
}

impl Old {
    /// What a message calls it.
    fn name(&self) -> &'static str {
        match self {
            Old::Limits(..) => "a resource limit",
            Old::Urgency(_) | Old::Io(_) => "the priority",
            Old::Processors(_) => "the processors of the thread",
            Old::Personality(_) => "the personality",
            Old::Group(_) => "the process group",
            Old::GroupOfChild(..) => "the process group of a child",
        }
    }

    fn put_back(&self) -> Sys<()> {
        match self {
            Old::Limits(resource, limits) => kernel::limits(*resource, Some(*limits)).map(drop),
            Old::Urgency(attributes) => kernel::set_urgency(attributes),
            Old::Io(priority) => kernel::set_io_priority(*priority),
            Old::Processors(set) => kernel::set_processors(set),
            Old::Personality(domain) => kernel::personality(*domain).map(drop),
            Old::Group(group) if kernel::group_of(0) == Ok(*group) => Ok(()),
            Old::Group(group) => kernel::set_group_of(0, *group).map(drop),
            Old::GroupOfChild(number, child, group) => {
                // One that has ended needs nothing.
                if !kernel::is_there(child) || kernel::group_of(*number) == Ok(*group) {
                    return Ok(());
                }
                kernel::set_group_of(*number, *group).map(drop)
            }
        }
    }

    /// Whether the two are of one kind.
    fn is_like(&self, other: &Old) -> bool {
        match (self, other) {
            (Old::Limits(one, _), Old::Limits(another, _)) => one == another,
            (Old::GroupOfChild(one, ..), Old::GroupOfChild(another, ..)) => one == another,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl Restored {
    /// For a transaction that has just begun, of a thread that is alone in its process if it `keeps` its credentials.
    #[must_use]
    pub fn new(keeps: bool) -> Restored {
        Restored { keeps, ..Restored::default() }
    }

    /// The thread gives up now what waits for the commit. An abort can't put it back.
    ///
    /// Ends the program if that can't be done: it would go on with more than it asked for.
    pub fn give_up(&mut self) {
        let Some(seen) = self.seen.take() else { return };
        // An abort is to know what it can't put back.
        self.credentials.get_or_insert_with(|| Box::new((Credentials::now(), Attachments::now())));
        given_up::have_or_end(&seen);
    }

    /// What is left to be done after the commit.
    #[must_use]
    pub fn left(self) -> Restored {
        Restored { seen: self.seen, ..Restored::default() }
    }

    /// What waits for the end of the commit, to be [given up](given_up::have_or_end) then.
    #[must_use]
    pub fn take_given_up(&mut self) -> Option<Box<Credentials>> {
        self.seen.take()
    }

    /// The thread is about to make another thread or process, which is to have what the program has; a thread
    /// that goes on beside it has it for good.
    pub fn before_child(&mut self, is_thread: bool) {
        if !is_thread {
            // It is in the group of who makes it.
            self.make_groups();
        }
        if self.seen.is_some() {
            api::tell(
                "TX_KEEP_CREDENTIALS: a new process or thread gets no more than the program has; what it gave up is \
                 given up for good before that, and an abort can't put it back",
            );
            self.give_up();
        }
        self.keeps &= !is_thread;
    }

    pub(super) fn keep(&mut self, old: Sys<Old>) {
        if let Ok(old) = old
            && !self.others.iter().any(|kept| kept.is_like(&old))
        {
            self.others.push(old);
        }
    }

    /// Puts back what the transaction has changed: what could not be put back.
    pub fn put_back(&mut self) -> Vec<&'static str> {
        let mut lost = Vec::new();
        self.seen = None;
        self.hard.clear();
        self.groups.forget();
        self.session = false;
        // With the credentials from before, if they can be had.
        if let Some(kept) = self.credentials.take() {
            let (credentials, attachments) = *kept;
            if std::mem::take(&mut self.by_all) {
                credentials.put_in_force_in_all_threads();
            }
            match credentials.put_in_force() {
                Ok(()) => attachments.put_back(),
                Err(_) => lost.push("the credentials"),
            }
        }
        for old in self.others.drain(..).rev() {
            if old.put_back().is_err() {
                lost.push(old.name());
            }
        }
        lost
    }

    /// The transaction is committed: what waited for that comes into force. What can't: in words.
    pub fn committed(&mut self) -> Vec<String> {
        let lower = |(resource, hard): (u32, u64)| {
            let [soft, _] = kernel::limits(resource, None).ok()?;
            let errno = kernel::limits(resource, Some([soft.min(hard), hard])).err()?;
            let why = std::io::Error::from(errno);
            Some(format!("a hard limit could not be lowered after the commit: {why}"))
        };
        let mut failed: Vec<String> = self.hard.drain(..).filter_map(lower).collect();
        failed.extend(self.groups.committed());
        if std::mem::take(&mut self.session)
            && let Err(errno) = kernel::new_session()
        {
            let why = std::io::Error::from(errno);
            failed.push(format!("the process got no session of its own after the commit: {why}"));
        }
        failed
    }

    /// Whether the thread may have other credentials than at the beginning.
    #[inline]
    #[must_use]
    pub fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    /// Whether something has changed that an abort puts back.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.credentials.is_some()
            || self.seen.is_some()
            || !self.others.is_empty()
            || self.groups.any()
            || self.session
    }

    /// The C library has all threads take what this one takes: it sends them a signal for that.
    pub fn is_taken_by_all(&mut self) {
        self.by_all = true;
    }

    /// Does something with the credentials from before, if they have changed and can be had.
    pub fn as_before<R>(&self, work: impl FnOnce() -> R) -> R {
        let Some(kept) = &self.credentials else { return work() };
        let now = Credentials::now();
        if now == kept.0 || kept.0.put_in_force().is_err() {
            // What was given up for good is not there for this either.
            let _ = now.put_in_force();
            return work();
        }
        kept.1.put_back();
        // What it gained since, it may need for its own affairs: a commit as root of what was begun as a user.
        let _ = kept.0.raise();
        let done = work();
        if now.put_in_force().is_err() {
            end("the thread can't take the credentials again that it took in the transaction");
        }
        done
    }

    /// Participants are asked with the credentials that the thread has taken: their code is the program's.
    pub fn asking<'a>(&self, participants: &'a dyn Decides) -> Asking<'a> {
        Asking { participants, taken: self.credentials.is_some().then(Credentials::now) }
    }

    /// Carries out a call on files, for the present credentials.
    pub fn carry_out<R>(&self, tx: &mut Tx, work: impl FnOnce(&mut Tx) -> R) -> R {
        if self.credentials.is_none() {
            return work(tx);
        }
        let identity = Identity::of_thread();
        self.as_before(|| {
            if Identity::of_thread() == identity {
                return work(tx);
            }
            let mut work = Some(work);
            let done = kernel::as_other(&identity, || work.take().map(|work| work(tx)));
            match (done, work) {
                (Ok(Some(done)), _) => done,
                // As it is: the kernel refuses what is to be refused.
                (_, Some(work)) => work(tx),
                _ => end("a call was made and has no answer"),
            }
        })
    }
}

/// Asks participants as who the thread is in its program.
pub struct Asking<'a> {
    participants: &'a dyn Decides,
    taken: Option<Credentials>,
}

impl Decides for Asking<'_> {
    fn decide(&self) -> Result<(), Failure> {
        let Some(taken) = &self.taken else { return self.participants.decide() };
        taken.during(|| self.participants.decide()).unwrap_or_else(|errno| {
            Err(Failure {
                errno: errno.raw_os_error(),
                what: "the participants could not be asked with the thread's credentials".into(),
                ..Failure::default()
            })
        })
    }
}

/// A thread that is not what it should be goes no step further.
pub(super) fn end(why: &str) -> ! {
    api::tell(&format!("{why}; the program can't go on, and is ended (SIGABRT)"));
    std::process::abort()
}

/// A call that changes something of the thread or the process. `None`: it is of another process, and goes as others do
/// that can't be part of the transaction.
pub fn call(thread: &mut Thread, call: &Call) -> Option<Next> {
    let session = thread.session.as_mut()?;
    session.tx.as_ref()?;
    if session.member.is_some() {
        return None;
    }
    let answer = match call.number() {
        _ if is_of_nobody(call) => call.make(),
        libc::SYS_setrlimit => limit(&mut session.restored, call, call.pointer(1), None)?,
        libc::SYS_prlimit64 if is_own(call.int(0)) => {
            limit(&mut session.restored, call, call.pointer(2), Some(call.pointer(3)))?
        }
        libc::SYS_setpriority if call.int(0) == 0 && is_own_thread(call.int(1)) => {
            session.restored.keep(kernel::urgency().map(Old::Urgency));
            call.make()
        }
        libc::SYS_sched_setparam | libc::SYS_sched_setscheduler | libc::SYS_sched_setattr
            if is_own_thread(call.int(0)) =>
        {
            session.restored.keep(kernel::urgency().map(Old::Urgency));
            call.make()
        }
        libc::SYS_ioprio_set if call.int(0) == 1 && is_own_thread(call.int(1)) => {
            session.restored.keep(kernel::io_priority().map(Old::Io));
            call.make()
        }
        libc::SYS_sched_setaffinity if is_own_thread(call.int(0)) => {
            session.restored.keep(kernel::processors().map(Old::Processors));
            call.make()
        }
        // Of a command, which ends with its transaction, this is nobody's business.
        libc::SYS_setsid | libc::SYS_setpgid if session.is_command() => call.make(),
        libc::SYS_setsid => new_session(&mut session.restored),
        libc::SYS_setpgid => {
            let in_session = session.restored.session;
            session.restored.set_group(call, in_session)?
        }
        libc::SYS_personality => {
            const ASKS: u64 = 0xffff_ffff;
            if call.word(0) & ASKS != ASKS {
                session.restored.keep(kernel::personality(ASKS).map(Old::Personality));
            }
            call.make()
        }
        number if super::processes::takes_rights(number) => credentials(session, call),
        _ => return None,
    };
    Some(Next::Answer(answer))
}

/// Whether a call is of no process there could be: the kernel refuses it.
fn is_of_nobody(call: &Call) -> bool {
    match call.number() {
        libc::SYS_setpriority => !(0..=2).contains(&call.int(0)) || call.int(1) < 0,
        libc::SYS_ioprio_set => !(1..=3).contains(&call.int(0)) || call.int(1) < 0,
        libc::SYS_setpgid => call.int(0) < 0 || call.int(1) < 0,
        libc::SYS_prlimit64
        | libc::SYS_sched_setparam
        | libc::SYS_sched_setscheduler
        | libc::SYS_sched_setattr
        | libc::SYS_sched_setaffinity => call.int(0) < 0,
        _ => false,
    }
}

fn is_own_thread(number: i32) -> bool {
    number == 0 || number == kernel::own_thread()
}

fn is_own(number: i32) -> bool {
    number == 0 || number == kernel::own_process()
}

fn credentials(session: &mut Session, call: &Call) -> i64 {
    let restored = &mut session.restored;
    if !restored.has_credentials()
        && let Some(tx) = session.tx.as_mut()
    {
        // What it is for other transactions it is as who began.
        tx.before_identity(&Credentials::now());
    }
    let mut kept = restored.credentials.take();
    let before = kept.get_or_insert_with(|| Box::new((Credentials::now(), Attachments::now())));
    let kept_call = match restored.keeps {
        true => given_up::call(call, restored.seen.as_deref(), &before.0),
        false => None,
    };
    let answer = match kept_call {
        Some((answer, seen)) => {
            restored.seen = seen.map(Box::new);
            if let Some(checkpoint) = session.checkpoint.as_mut() {
                checkpoint.is_copied();
            }
            answer
        }
        None => {
            restored.give_up();
            call.make()
        }
    };
    let now = Credentials::now();
    let is_as_before = now == before.0;
    // If nothing has changed there is nothing to be done.
    restored.credentials = kept.filter(|_| !is_as_before);
    restored.times = restored.times.wrapping_add(1).max(1);
    let who = if is_as_before { 0 } else { restored.times };
    if let Some(tx) = session.tx.as_mut() {
        tx.takes_identity(who, &now);
    }
    answer
}

/// `setrlimit` and `prlimit`. `None`: not here.
fn limit(
    restored: &mut Restored,
    call: &Call,
    new: crate::user::UserPtr<[u64; 2]>,
    old: Option<crate::user::UserPtr<[u64; 2]>>,
) -> Option<i64> {
    const SYS_RESOURCE: u64 = 1 << 24;
    let resource = if call.number() == libc::SYS_setrlimit { call.uint(0) } else { call.uint(1) };
    let Ok(kernels) = kernel::limits(resource, None) else { return Some(call.make()) };
    let held = restored.hard.iter().find(|(of, _)| *of == resource).map(|(_, hard)| *hard);
    let seen = [kernels[0], held.unwrap_or(kernels[1])];
    let errno = |errno: i32| Some(-i64::from(errno));
    if !new.is_null() {
        let Ok([soft, hard]) = new.read() else { return errno(libc::EFAULT) };
        let may_raise = kernel::capabilities() & SYS_RESOURCE != 0;
        if soft > hard {
            return errno(libc::EINVAL);
        }
        if hard > seen[1] && !may_raise {
            return errno(libc::EPERM);
        }
        restored.keep(Ok(Old::Limits(resource, kernels)));
        let waits = hard < kernels[1] && !may_raise;
        let now = if waits { [soft, kernels[1]] } else { [soft, hard] };
        if let Err(failed) = kernel::limits(resource, Some(now)) {
            return errno(failed.raw_os_error());
        }
        restored.hard.retain(|(of, _)| *of != resource);
        if waits {
            restored.hard.push((resource, hard));
        }
    }
    if let Some(old) = old.filter(|old| !old.is_null())
        && old.write(seen).is_err()
    {
        return errno(libc::EFAULT);
    }
    Some(0)
}

/// `setsid`: it is made by the commit, as nothing undoes it. Until then it only seems to be.
fn new_session(restored: &mut Restored) -> i64 {
    // A group that has the process's number keeps it from that.
    if restored.session || !restored.may_lead_session() {
        return -i64::from(libc::EPERM);
    }
    restored.session = true;
    i64::from(kernel::own_process())
}

/// What a call is answered that asks for something which waits for the commit. `None`: what the kernel says.
#[must_use]
pub fn ask(session: &Session, call: &Call) -> Option<i64> {
    match (call.number(), &session.restored.seen) {
        (libc::SYS_capget, Some(seen)) => Some(given_up::ask(seen, call)),
        _ => ask_session(session, call),
    }
}

/// What a call about groups or the session is answered while the process seems to have a session of its own, or processes seem to have
/// other groups.
fn ask_session(session: &Session, call: &Call) -> Option<i64> {
    let restored = &session.restored;
    let own = kernel::own_process();
    if !restored.session {
        let process = match call.number() {
            _ if !restored.groups.any() => return None,
            libc::SYS_getpgrp => own,
            libc::SYS_getpgid if is_own(call.int(0)) => own,
            libc::SYS_getpgid => call.int(0),
            _ => return None,
        };
        return restored.groups.seen(process).map(i64::from);
    }
    match call.number() {
        libc::SYS_getpgrp => Some(i64::from(own)),
        libc::SYS_getpgid | libc::SYS_getsid if is_own(call.int(0)) => Some(i64::from(own)),
        // It would be alone in its group.
        libc::SYS_kill if call.int(0) == 0 => {
            Some(crate::raw::answer(kernel::kill(own, call.int(1))))
        }
        _ => None,
    }
}

/// `getrlimit`: a hard limit that is lowered by the commit seems to be so already.
pub fn ask_limit(session: &Session, call: &Call) -> i64 {
    let answer = call.make();
    let held = session.restored.hard.iter().find(|(resource, _)| *resource == call.uint(0));
    if answer == 0
        && let Some((_, hard)) = held
    {
        let limits = call.pointer::<[u64; 2]>(1);
        let seen = limits.read().map(|[soft, _]| [soft, *hard]);
        if seen.and_then(|seen| limits.write(seen)).is_err() {
            return -i64::from(libc::EFAULT);
        }
    }
    answer
}

/// Whether hard limits wait for the commit.
#[must_use]
pub fn holds_limits(session: &Session) -> bool {
    !session.restored.hard.is_empty()
}
