//! What happens to others if and when the transaction commits: signals to processes outside.
//!
//! Whether there is the process, and whether the caller may signal it, the kernel is asked at once, so that
//! the call fails as it does natively. The process is held by a descriptor until then: another that gets its
//! number later is not hit. After the commit the signals are sent in the order of the calls. One that can't be
//! sent then does not undo the commit; it is reported.

use super::kernel::{self, Errno, Info, OwnedFd, Sys};
use super::{Tx, say};
use crate::call::Call;

/// How many signals a transaction holds. Each may take a descriptor.
pub const MOST: usize = 4096;

/// Signals that wait for the commit.
#[derive(Debug, Default)]
pub struct Held {
    signals: Vec<Signal>,
}

/// One signal.
#[derive(Debug)]
struct Signal {
    signal: i32,
    to: Target,
    info: Option<Info>,
}

/// Where a signal goes.
#[derive(Debug)]
enum Target {
    /// A process.
    Process(i32, OwnedFd),
    /// A thread of one.
    Thread(i32, OwnedFd, i32),
    /// What a descriptor of the program's is of, with the flags of `pidfd_send_signal(2)`.
    Descriptor(OwnedFd, u32),
    /// A process group, with those that are in it.
    Group(i32, Vec<(i32, OwnedFd)>),
    /// All that the caller may signal.
    All,
}

impl Target {
    /// Sends a signal.
    fn send(&self, signal: i32, info: Option<&Info>) -> Sys<u64> {
        match self {
            Target::Process(_, process) => kernel::send_signal(process, signal, info, 0),
            Target::Descriptor(process, flags) => {
                kernel::send_signal(process, signal, info, *flags)
            }
            Target::Thread(number, process, thread) => {
                if !kernel::is_there(process) {
                    return Err(Errno::SRCH);
                }
                match info {
                    Some(info) => kernel::queue_to_thread(*number, *thread, signal, info),
                    None => kernel::kill_thread(*number, *thread, signal),
                }
            }
            Target::Group(group, members) => {
                // As long as one of them has been there, no other group has got the number.
                let same = |(number, process): &(i32, OwnedFd)| {
                    kernel::is_there(process) && kernel::group_of(*number) == Ok(*group)
                };
                match members.iter().any(same) {
                    true => kernel::kill(-group, signal),
                    false => Err(Errno::SRCH),
                }
            }
            Target::All => kernel::kill(-1, signal),
        }
    }

    /// Whether it goes to a child of this process.
    fn is_child(&self, own: i32) -> bool {
        let is_child = |number: i32| kernel::parent_of(number) == Some(own);
        match self {
            Target::Process(number, _) | Target::Thread(number, ..) => is_child(*number),
            Target::Descriptor(process, _) => {
                kernel::process_of_descriptor(process.number()).is_some_and(is_child)
            }
            Target::Group(_, members) => members.iter().any(|&(number, _)| is_child(number)),
            Target::All => true,
        }
    }

    /// In words.
    fn name(&self) -> String {
        match self {
            Target::Process(number, _) => format!("process {number}"),
            Target::Thread(number, _, thread) => format!("thread {thread} of process {number}"),
            Target::Descriptor(..) => "the process of a descriptor".into(),
            Target::Group(group, _) => format!("process group {group}"),
            Target::All => "all processes".into(),
        }
    }
}

impl Held {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.signals.is_empty()
    }

    /// Sends all signals: why any of them could not be sent.
    pub fn send(&mut self) -> Vec<String> {
        self.send_those(|_| true)
    }

    fn send_those(&mut self, which: impl Fn(&Target) -> bool) -> Vec<String> {
        let (now, later) =
            std::mem::take(&mut self.signals).into_iter().partition(|one| which(&one.to));
        self.signals = later;
        let now: Vec<Signal> = now;
        now.iter().filter_map(Signal::send).collect()
    }

    fn hold(&mut self, signal: i32, to: Target, info: Option<Info>) -> Sys<u64> {
        if self.signals.len() >= MOST {
            say(&format!(
                "a transaction holds no more than {MOST} signals until its commit: the call fails with EAGAIN"
            ));
            return Err(Errno::AGAIN);
        }
        self.signals.push(Signal { signal, to, info });
        Ok(0)
    }
}

impl Signal {
    /// Why it could not be sent.
    fn send(&self) -> Option<String> {
        let errno = self.to.send(self.signal, self.info.as_ref()).err()?;
        let why = match errno {
            Errno::SRCH => "it is there no more".into(),
            errno => std::io::Error::from(errno).to_string(),
        };
        let (signal, to) = (signal_name(self.signal), self.to.name());
        Some(format!("{signal} was held until the commit, and could not be sent to {to}: {why}"))
    }
}

/// What is asked for by a call.
enum Asked {
    /// The kernel answers it at once: it only asks, is wrong, or is of the process itself.
    Natively,
    /// It is held.
    Later(i32, Target, Option<Info>),
}

impl Tx {
    /// Whether signals wait for the commit.
    #[must_use]
    pub fn holds_signals(&self) -> bool {
        !self.held.is_empty()
    }

    /// A call that sends a signal.
    ///
    /// # Errors
    /// As natively; EAGAIN if no more can be held.
    pub fn hold_signal(&mut self, call: &Call) -> Sys<u64> {
        let asked = match call.number() {
            libc::SYS_kill => kill(call.int(0), call.int(1)),
            libc::SYS_tkill => {
                let thread = call.int(0);
                match kernel::process_of_thread(thread) {
                    Some(process) if thread > 0 => {
                        let ask = || kernel::kill_thread(process, thread, 0);
                        to_thread(process, thread, call.int(1), None, ask)
                    }
                    _ => Ok(Asked::Natively),
                }
            }
            libc::SYS_tgkill => to_thread(call.int(0), call.int(1), call.int(2), None, || {
                kernel::kill_thread(call.int(0), call.int(1), 0)
            }),
            libc::SYS_rt_sigqueueinfo => queue(call),
            libc::SYS_rt_tgsigqueueinfo => queue_to_thread(call),
            libc::SYS_pidfd_send_signal => {
                let real = self.real_without_offset(call.int(0))?;
                let (info, flags) = (call.pointer::<Info>(2), call.uint(3));
                let info = if info.is_null() { None } else { Some(info.read()?) };
                match through(real, call.int(1), info, flags)? {
                    Asked::Natively => return call.with_descriptor(0, real).answer(),
                    later => Ok(later),
                }
            }
            _ => Ok(Asked::Natively),
        };
        let held = match asked {
            Ok(Asked::Natively) => return call.answer(),
            Ok(Asked::Later(signal, to, info)) => self.held.hold(signal, to, info),
            Err(errno) => Err(errno),
        };
        held.map_err(|errno| match errno {
            Errno::MFILE | Errno::NFILE => {
                say("no descriptor is left to hold the process that a signal is for: the call fails with EAGAIN");
                Errno::AGAIN
            }
            errno => errno,
        })
    }

    /// The program is to wait for a child: what it has sent to its children can't be held any longer, the child may
    /// be ending by that.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn before_waiting_for_child(&mut self, call: &Call) -> Sys<()> {
        let own = kernel::own_process();
        if !self.held.signals.iter().any(|one| one.to.is_child(own)) {
            return Ok(());
        }
        self.report.calling = call.number();
        self.unsupported_call("a held signal to a child that the transaction waits for", b"")?;
        for failure in self.held.send_those(|to| to.is_child(own)) {
            say(&failure);
        }
        Ok(())
    }
}

fn is_signal(signal: i32) -> bool {
    (1..=64).contains(&signal)
}

/// Whether the caller may send a signal to a process, whose existence is asked for as well.
fn may_kill(process: i32, signal: i32) -> Sys<()> {
    match kernel::kill(process, 0) {
        // Within a session anybody may be continued.
        Err(Errno::PERM) if signal == libc::SIGCONT && process > 0 => {
            match kernel::session_of(process) == kernel::session_of(0) {
                true => Ok(()),
                false => Err(Errno::PERM),
            }
        }
        answer => answer.map(drop),
    }
}

fn kill(process: i32, signal: i32) -> Sys<Asked> {
    // There is no group of the last number: the kernel says so.
    if !is_signal(signal) || process == kernel::own_process() || process == i32::MIN {
        return Ok(Asked::Natively);
    }
    may_kill(process, signal)?;
    let to = match process {
        -1 => Target::All,
        0 => group(kernel::group_of(0)?),
        ..0 => group(-process),
        _ => {
            // The number may be that of any of its threads.
            let leader = kernel::process_of_thread(process).unwrap_or(process);
            if leader == kernel::own_process() {
                return Ok(Asked::Natively);
            }
            Target::Process(leader, kernel::open_process(leader)?)
        }
    };
    Ok(Asked::Later(signal, to, None))
}

/// A group, with its members.
fn group(group: i32) -> Target {
    let members = kernel::processes().into_iter().filter(|&n| kernel::group_of(n) == Ok(group));
    let members = members.filter_map(|number| Some((number, kernel::open_process(number).ok()?)));
    // One that stays is enough; a descriptor for each of many would be too much.
    Target::Group(group, members.take(64).collect())
}

fn to_thread(
    process: i32,
    thread: i32,
    signal: i32,
    info: Option<Info>,
    ask: impl FnOnce() -> Sys<u64>,
) -> Sys<Asked> {
    if !is_signal(signal) || process <= 0 || thread <= 0 || process == kernel::own_process() {
        return Ok(Asked::Natively);
    }
    match ask() {
        Err(Errno::PERM) if signal == libc::SIGCONT => may_kill(process, signal)?,
        answer => answer.map(drop)?,
    }
    let to = Target::Thread(process, kernel::open_process(process)?, thread);
    Ok(Asked::Later(signal, to, info))
}

fn queue(call: &Call) -> Sys<Asked> {
    let (process, signal) = (call.int(0), call.int(1));
    if !is_signal(signal) || process <= 0 || process == kernel::own_process() {
        return Ok(Asked::Natively);
    }
    let info = call.pointer::<Info>(2).read()?;
    kernel::queue(process, 0, &info)?;
    let leader = kernel::process_of_thread(process).unwrap_or(process);
    let to = Target::Process(leader, kernel::open_process(leader)?);
    Ok(Asked::Later(signal, to, Some(numbered(info, signal))))
}

fn queue_to_thread(call: &Call) -> Sys<Asked> {
    let (process, thread, signal) = (call.int(0), call.int(1), call.int(2));
    if !is_signal(signal) || process <= 0 || process == kernel::own_process() {
        return Ok(Asked::Natively);
    }
    let info = call.pointer::<Info>(3).read()?;
    let ask = || kernel::queue_to_thread(process, thread, 0, &info);
    to_thread(process, thread, signal, Some(numbered(info, signal)), ask)
}

fn through(real: i32, signal: i32, info: Option<Info>, flags: u32) -> Sys<Asked> {
    let process = kernel::process_of_descriptor(real);
    if !is_signal(signal) || process.is_none() || process == Some(kernel::own_process()) {
        return Ok(Asked::Natively);
    }
    if info.is_some_and(|info| info != numbered(info, signal)) {
        return Err(Errno::INVAL);
    }
    // Nobody may say of a signal that the kernel has sent it.
    if info.is_some_and(|info| code(&info) >= 0 || code(&info) == libc::SI_TKILL) {
        return Err(Errno::PERM);
    }
    let kept = OwnedFd::of(kernel::copy_high(real)?);
    match kernel::send_signal(&kept, 0, None, flags) {
        Err(Errno::PERM) if signal == libc::SIGCONT => may_kill(process.unwrap_or(0), signal)?,
        answer => answer.map(drop)?,
    }
    Ok(Asked::Later(signal, Target::Descriptor(kept, flags), info))
}

/// With the signal's number in it, which the kernel wants to be right.
fn numbered(mut info: Info, signal: i32) -> Info {
    info[0] = info[0] & !0xffff_ffff | u64::from(signal.cast_unsigned());
    info
}

/// `si_code`.
fn code(info: &Info) -> i32 {
    info[1] as i32
}

/// The name of a signal.
fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let place = usize::try_from(signal - 1).unwrap_or(usize::MAX);
    NAMES.get(place).map_or_else(|| format!("signal {signal}"), |name| format!("SIG{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_names() {
        let some = [libc::SIGHUP, libc::SIGTERM, libc::SIGSYS, 40].map(signal_name);
        assert_eq!(some, ["SIGHUP", "SIGTERM", "SIGSYS", "signal 40"]);
    }

    #[test]
    fn what_goes_to_the_process_itself_is_not_held() {
        let own = kernel::own_process();
        assert!(matches!(kill(own, libc::SIGTERM), Ok(Asked::Natively)));
        assert!(matches!(kill(1, 0), Ok(Asked::Natively)));
        assert!(matches!(kill(1, 65), Ok(Asked::Natively)));
        assert_eq!(kill(0x3fff_ffff, libc::SIGTERM).err(), Some(Errno::SRCH));
    }

    #[test]
    fn a_process_that_has_ended_is_not_hit() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().expect("sleep");
        let number = child.id() as i32;
        let Ok(Asked::Later(signal, to, info)) = kill(number, libc::SIGTERM) else {
            panic!("not held")
        };
        let mut held = Held::default();
        assert_eq!(held.hold(signal, to, info), Ok(0));
        assert!(child.kill().is_ok() && child.wait().is_ok());
        let failed = held.send();
        assert_eq!(failed.len(), 1);
        let words = format!("could not be sent to process {number}: it is there no more");
        assert!(failed[0].starts_with("SIGTERM ") && failed[0].ends_with(&words), "{failed:?}");
        assert!(held.is_empty());
    }

    #[test]
    fn no_more_than_so_many_are_held() {
        let mut held = Held::default();
        for _ in 0..MOST {
            assert_eq!(held.hold(libc::SIGCONT, Target::Group(0, Vec::new()), None), Ok(0));
        }
        let one_more = held.hold(libc::SIGCONT, Target::Group(0, Vec::new()), None);
        assert_eq!(one_more, Err(Errno::AGAIN));
    }
}
