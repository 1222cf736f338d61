//! `txos run --in-process`: a whole command as one transaction.
//!
//! The library is preloaded, begins before `main`, and decides when the process ends: `exit` has
//! flushed everything by then, and its status says whether the work is done. In the programs that the command's
//! processes run it goes on ([`super::processes`]).
#![allow(unsafe_code)] // a constructor, the environment of the process

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use txos_engine::object::FileId;
use txos_engine::program::{self, Kind};
use txos_engine::realm::RetryHistory;
use txos_engine::scope;
use txos_engine::show::{quoted, signal_name};
use txos_engine::txn::{Delivery, Ended, Lost};
use txos_engine::{Conflict, TxId};

use super::entry::Regs;
use super::processes::client;
use super::processes::decided::{Awaited, Waiting};
use super::processes::wire;
use super::report::{Report, reason};
use super::session;
use super::thread::{self, Thread};
use super::tls::here;
use super::{api, checkpoint, interpose, linker, loader, signals};
use crate::raw::{Errno, syscall};
use crate::tx::staging::{self, Label, label};
use crate::tx::{Committed, Decides, Failure, How, acquire, flags, kernel, shared};

/// Set for the command: what to begin, and what `LD_PRELOAD` was before.
pub const VARIABLE: &str = "TXOS_IN_PROCESS";
/// Its name and message for the history.
const NAME: &str = "TXOS_IN_PROCESS_NAME";
const MESSAGE: &str = "TXOS_IN_PROCESS_MESSAGE";
/// The directory of the transaction in which it is to run.
const DIRECTORY: &str = "TXOS_IN_PROCESS_DIRECTORY";
/// What of the tree it versions, and what not.
const SCOPE: &str = "TXOS_IN_PROCESS_SCOPE";
const EXCLUDE: &str = "TXOS_IN_PROCESS_EXCLUDE";
const PRELOAD: &str = "LD_PRELOAD";

/// Somebody else was first (`EX_TEMPFAIL`).
const CONFLICT: i32 = 75;
/// txos itself failed.
const FAILED: i32 = 125;

/// A command that is one transaction.
#[derive(Debug)]
pub struct Command {
    name: String,
    quiet: bool,
    /// What its standard error led to when it began.
    stderr: Option<FileId>,
    /// The process that has started it decides about the transaction.
    report: Option<ReportTo>,
    /// Where it says that it has lost a conflict: `txos`, which waits for it, may run it again.
    follower: Option<i32>,
    /// Processes that the command has left when it ends are killed.
    kills_left: bool,
    /// It versions a part of the tree.
    is_limited: bool,
}

/// The process that waits for the command, and the pipe that leads to it.
#[derive(Clone, Copy, Debug)]
struct Follower {
    pipe: i32,
    process: i32,
}

impl Follower {
    /// What is asked for by `follower=PIPE:PROCESS`.
    fn parse(words: &str) -> Option<Follower> {
        let (pipe, process) = words.split_once(':')?;
        let pipe = pipe.parse().ok().filter(|&number: &i32| number > 2)?;
        Some(Follower { pipe, process: process.parse().ok()? })
    }

    /// The command ends with that process: nobody would learn what became of it. Gives the pipe, out of the program's way.
    fn begin(self) -> Result<i32, String> {
        let not = |errno| format!("following it failed: {}", wire::words_of(errno));
        kernel::die_with_parent(libc::SIGKILL).map_err(not)?;
        if kernel::parent() != self.process {
            return Err("the process that has started it has ended".into());
        }
        kernel::move_high(self.pipe).map_err(not)
    }
}

/// Where it is said what became of a transaction, for the process that decides about it.
#[derive(Debug)]
struct ReportTo {
    /// The transaction's directory.
    place: PathBuf,
    /// A socket that is open as long as there is somebody who has the transaction, or what it holds.
    pipe: i32,
}

impl ReportTo {
    /// What is asked for by `hand-over=PIPE:LOCK:ID`.
    fn parse(words: &str) -> Option<(i32, i32, TxId)> {
        let mut parts = words.split(':');
        let mut number = || parts.next()?.parse::<i32>().ok().filter(|&number| number > 2);
        let (pipe, lock) = (number()?, number()?);
        Some((pipe, lock, parts.next()?.parse().ok()?))
    }

    /// From now on the transaction in the store is the one that was begun for this command.
    fn begin((pipe, lock, id): (i32, i32, TxId)) -> Result<ReportTo, Failure> {
        let place = shared::home()?.tx_dir(id);
        let closed =
            |_| Failure { what: "its pipe or lock is not open".into(), ..Failure::default() };
        let pipe = kernel::OwnedFd::of(kernel::move_high(pipe).map_err(closed)?);
        let lock = kernel::OwnedFd::of(kernel::move_high(lock).map_err(closed)?);
        // SAFETY: it is this process's, and nobody else uses it.
        staging::given(id, unsafe { std::os::fd::OwnedFd::from_raw_fd(lock.into_number()) });
        Ok(ReportTo { place, pipe: pipe.into_number() })
    }

    fn leave(&self, ended: Ended, report: &Report) -> bool {
        // The store's own files are to have the modes that they are made with. The program is over.
        let _ = kernel::set_umask(0o077);
        let delivery = Delivery { ended, live: report.live_by_kind.clone() };
        delivery.leave(&self.place).inspect_err(|error| api::tell(&error.to_string())).is_ok()
    }
}

impl Command {
    /// It ends with this status: commits or aborts, and gives the status to end with. Also what is sent when it has
    /// ended, if there is something.
    /// `awaited`: another process of it waits for that.
    pub fn end(
        &self,
        thread: &mut Thread,
        status: i32,
        awaited: Option<&Awaited>,
    ) -> (i32, Option<Waiting>) {
        // As much of it as others are told.
        let status = status & 0xff;
        // The program may have left no number free, and needs none any more.
        kernel::raise_descriptor_limit();
        let Some(report) = &self.report else { return self.decide(thread, status, awaited) };
        match session::hand_over(thread) {
            Ok(held) => {
                let waiting = Waiting::of(held, report.pipe);
                match report.leave(Ended::Recorded, &thread.report) {
                    true => (status, waiting),
                    false => (FAILED, None),
                }
            }
            Err(failure) => (self.tell(&failure, &thread.report), None),
        }
    }

    fn decide(
        &self,
        thread: &mut Thread,
        status: i32,
        awaited: Option<&Awaited>,
    ) -> (i32, Option<Waiting>) {
        // From here on it says what becomes of the transaction itself.
        signals::say_no_more();
        if status != 0 {
            session::abort_in(thread, session::ended());
            if !self.quiet {
                let name = &self.name;
                let gone = rolled_back(&thread.report.live);
                api::tell(&format!("{name} exited with status {status}; {gone}"));
            }
            return (status, None);
        }
        let decides = awaited.map(|awaited| awaited as &dyn Decides);
        match session::commit_if(thread, decides) {
            Ok(mut committed) => {
                if let Some(awaited) = awaited.filter(|_| !committed.held.is_empty()) {
                    // What is sent may wait for its readers. Meanwhile a signal may end the process.
                    awaited.is_decided();
                }
                self.tell_committed(&committed, &thread.report.live);
                // A command has no participants.
                let later = committed.held.is_for_all();
                if !later {
                    committed.failed.extend(committed.held.send());
                }
                committed.failed.iter().for_each(|failure| api::tell(failure));
                (0, later.then(|| Waiting::for_end(committed.held)))
            }
            Err(failure) => match awaited.and_then(Awaited::killed_by) {
                Some(signal) => {
                    self.was_killed(signal, &thread.report);
                    (FAILED, None)
                }
                None => (self.tell(&failure, &thread.report), None),
            },
        }
    }

    /// Says what is published, as `txos` does. Not where the command has had its own standard error lead: there
    /// it would be part of what the command wrote.
    fn tell_committed(&self, committed: &Committed, live: &str) {
        if self.quiet || self.stderr.is_none() || self.stderr != stderr() {
            return;
        }
        match (&committed.published, live) {
            (Some(published), _) => api::tell(&format!("committed {published}")),
            (None, "") => api::tell("nothing changed"),
            (None, live) => api::tell(&format!("nothing to commit; live: {live}")),
        }
    }

    /// A signal has killed its process: all is rolled back. `0`: it is not known which.
    pub fn was_killed(&self, signal: i32, report: &Report) {
        if !self.says_its_end() {
            return;
        }
        let by = if signal == 0 { String::new() } else { format!(" by {}", signal_name(signal)) };
        api::tell(&format!("{} was killed{by}; {}", self.name, rolled_back(&report.live)));
    }

    /// What is to be said when one of these signals kills its process, which has the transaction.
    pub fn foresees(&self, signals: signals::Set) {
        if self.says_its_end() {
            signals::say_before(signals, |signal| {
                let killed = format!("txos: {} was killed by {}", self.name, signal_name(signal));
                let gone = rolled_back("");
                [
                    format!("{killed}; {gone}\n"),
                    format!("{killed}; rolled back, but for what is live\n"),
                ]
            });
        }
    }

    /// Whether nobody else says how it ends, and it is to be said.
    fn says_its_end(&self) -> bool {
        self.report.is_none() && !self.quiet
    }

    /// In the command's process, when the transaction has moved to another one: it does not report.
    pub fn moved(self) {
        if let Some(report) = self.report {
            kernel::close(report.pipe);
        }
        if let Some(pipe) = self.follower {
            kernel::close(pipe);
        }
    }

    /// Whether another process may run it again.
    pub fn is_followed(&self) -> bool {
        self.follower.is_some()
    }

    /// Whether processes that are left when the command has ended are killed.
    pub fn kills_left(&self) -> bool {
        self.kills_left
    }

    /// It can't succeed any more: says so, and gives the status to end with.
    pub fn failed(&self, report: &Report) -> i32 {
        self.tell(&report.abort, report)
    }

    /// What `txos` says of a conflict after which it does not run the command again.
    fn conflict(&self, failure: &Failure, report: &Report, gone: &str) -> String {
        /// How many are named.
        const SHOWN_MAX: usize = 10;
        let (why, gone) = match &*report.live {
            "" if self.is_limited => (
                MAY_BE_NOTICED,
                &*format!("{gone} of what is versioned, and no change of anything else was seen"),
            ),
            "" => (MAY_BE_NOTICED, gone),
            _ => (IS_LIVE, gone),
        };
        let advice = if is_only_read(failure) { SNAPSHOT_ADVICE } else { "" };
        let mut text = format!(
            "conflict: the transaction depends on what others have changed; {gone}; it was not run again, because {why}: \
             --retry N does it{advice}"
        );
        let conflicts = conflicts_of(failure);
        for (path, what) in conflicts.iter().take(SHOWN_MAX) {
            text.push_str("\n  ");
            if !path.is_empty() {
                text.push_str(&format!("{}: ", quoted(Path::new(OsStr::from_bytes(path)))));
            }
            text.push_str(what);
        }
        if let Some(more) = conflicts.len().checked_sub(SHOWN_MAX).filter(|&more| more > 0) {
            text.push_str(&format!("\n  and {more} more"));
        }
        text
    }

    /// The same; the process ends.
    pub fn end_failed(&self, report: &Report) -> ! {
        let status = self.failed(report);
        loop {
            let args = [status as u64, 0, 0, 0, 0, 0];
            // SAFETY: the process ends.
            unsafe { syscall(libc::SYS_exit_group, args) };
        }
    }

    fn tell(&self, failure: &Failure, report: &Report) -> i32 {
        let (what, gone) = (&failure.what, rolled_back(&report.live));
        if let Some(to) = &self.report {
            let conflict = failure.reason == reason::CONFLICT;
            let ended = match conflict {
                true => Ended::Conflict {
                    path: failure.path.clone(),
                    what: what.clone(),
                    pid: u32::try_from(failure.pid).unwrap_or(0),
                },
                false => Ended::Stopped(what.clone()),
            };
            to.leave(ended, report);
            return if conflict { CONFLICT } else { FAILED };
        }
        if failure.reason == reason::CONFLICT {
            // It would come to the same, or has waited long enough.
            let is_last = failure.gives_up || failure.errno == libc::EAGAIN;
            if let Some(pipe) = self.follower.filter(|_| !is_last)
                && say_lost(pipe, failure, report)
            {
                return CONFLICT;
            }
            // The engine's own words begin so.
            let what = what.strip_prefix("conflict: ").unwrap_or(what);
            match is_last {
                true => api::tell(&format!("conflict: {what}; {gone}")),
                false => api::tell(&self.conflict(failure, report, &gone)),
            }
            CONFLICT
        } else {
            let name = &self.name;
            // A commit that could be neither finished nor undone says so itself.
            let gone = if failure.errno == libc::EINPROGRESS { "" } else { &format!("; {gone}") };
            api::tell(&format!("{name} was stopped: {what}{gone}"));
            FAILED
        }
    }
}

/// Why nobody runs the command again, and what would have, as `txos` says it.
const MAY_BE_NOTICED: &str = "it may have printed something, or read its input";
const IS_LIVE: &str = "what it did where changes are live would be done twice";
const SNAPSHOT_ADVICE: &str = "; it changes none of this itself: --isolation snapshot commits whatever others do to what is only read";

/// Whether a transaction changes nothing of what it lost by.
fn is_only_read(failure: &Failure) -> bool {
    failure.found.as_ref().is_some_and(|found| found.only_read)
}

/// Paths, and what happened to them.
fn conflicts_of(failure: &Failure) -> Vec<(Vec<u8>, String)> {
    let of_engine = |conflict: &Conflict| {
        let path = conflict.path.as_os_str().as_bytes().to_vec();
        (path, Conflict { path: PathBuf::new(), ..conflict.clone() }.to_string())
    };
    let mut conflicts: Vec<_> =
        failure.found.iter().flat_map(|found| &found.conflicts).map(of_engine).collect();
    if conflicts.is_empty() {
        let named = format!("{}: ", String::from_utf8_lossy(&failure.path));
        let what = failure.what.strip_prefix("conflict: ").unwrap_or(&failure.what);
        let what = what.strip_prefix(&named).unwrap_or(what).to_owned();
        conflicts.push((failure.path.clone(), what));
    }
    conflicts
}

/// Says to the process that waits for the command that it has lost a conflict. Whether that process has it all.
fn say_lost(pipe: i32, failure: &Failure, report: &Report) -> bool {
    let lost = Lost {
        conflicts: conflicts_of(failure),
        pid: u32::try_from(failure.pid).unwrap_or(0),
        live: report.live_by_kind.clone(),
        again: failure.again,
        only_read: is_only_read(failure),
    };
    let Some(said) = lost.encode() else { return false };
    let mut rest = &said[..];
    while !rest.is_empty() {
        match kernel::write(pipe, rest) {
            Ok(0) => return false,
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

/// What standard error leads to.
fn stderr() -> Option<FileId> {
    kernel::identify_fd(2).ok().map(|at| at.id)
}

/// What became of the transaction.
fn rolled_back(live: &str) -> String {
    match live {
        "" => "rolled back, nothing changed".into(),
        live => format!("rolled back; live, and not rolled back: {live}"),
    }
}

/// What the variable asks for of this command's transaction.
#[derive(Debug, Default)]
struct Wishes {
    flags: u32,
    quiet: bool,
    hides_arguments: bool,
    kills_left: bool,
    goes_on: bool,
    hand_over: Option<(i32, i32, TxId)>,
    follower: Option<Follower>,
    again: Option<RetryHistory>,
}

impl Wishes {
    /// Words, separated by commas.
    fn parse(words: &str) -> Wishes {
        let mut wishes = Wishes::default();
        for word in words.split(',') {
            match word {
                "durable" => wishes.flags |= flags::DURABLE,
                "strict" => wishes.flags |= flags::STRICT,
                "quiet" => wishes.quiet = true,
                "hide-arguments" => wishes.hides_arguments = true,
                "kill-leftover" => wishes.kills_left = true,
                "goes-on" => wishes.goes_on = true,
                other => match other.split_once('=') {
                    Some(("hand-over", rest)) => wishes.hand_over = ReportTo::parse(rest),
                    Some(("follower", rest)) => wishes.follower = Follower::parse(rest),
                    Some(("again", rest)) => wishes.again = RetryHistory::parse(rest),
                    Some(("wait", seconds)) => {
                        let _ = seconds.parse().map(acquire::set_patience);
                    }
                    _ => {}
                },
            }
        }
        wishes
    }
}

/// Begins the command's transaction, if this process is one.
fn start(words: impl Fn() -> Vec<OsString>) {
    if txos_engine::sys_secure::has_foreign_rights() {
        return;
    }
    let name = || {
        let name = words().into_iter().next().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    if let Some(number) = std::env::var_os(client::VARIABLE) {
        let socket = number.to_str().and_then(|number| number.parse().ok());
        forget_environment(false);
        let gone_on =
            socket.ok_or_else(|| "the descriptor that leads to it is not known".to_owned());
        if let Err(why) = gone_on.and_then(|socket| client::go_on(here(), socket)) {
            let name = name();
            api::tell(&format!("{name} can't go on in the transaction of its command: {why}"));
            // SAFETY: the process ends.
            unsafe { libc::_exit(FAILED) };
        }
        return;
    }
    let Some(wishes) = std::env::var_os(VARIABLE) else { return };
    let Wishes { flags, quiet, hides_arguments, kills_left, goes_on, hand_over, follower, again } =
        Wishes::parse(&wishes.to_string_lossy());
    let text = |name: &str| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned());
    let (name_in_history, message) = (text(NAME), text(MESSAGE));
    let (name, words) = (name(), loader::is_program().then(&words));
    label(Label { name: name_in_history, message, hides_arguments, words });
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        staging::run_in(directory.into_vec());
    }
    let trees = |name: &str| scope::split(&std::env::var_os(name).unwrap_or_default().into_vec());
    let scope = scope::Scope { only: trees(SCOPE), without: trees(EXCLUDE) };
    let is_limited = !(scope.only.is_empty() && scope.without.is_empty());
    staging::stay_within(scope);
    let report = hand_over.map(ReportTo::begin).transpose().map_err(|failure| failure.what);
    let follower = follower.map(Follower::begin).transpose();
    let (report, follower) = match report.and_then(|report| Ok((report, follower?))) {
        Ok(both) => both,
        Err(why) => {
            api::tell(&format!("{name} can't run as a transaction: {why}"));
            // SAFETY: the process ends.
            unsafe { libc::_exit(FAILED) };
        }
    };
    forget_environment(true);
    // The program is the command's alone, and by its end it has ended: its commit is as that of `txos`.
    txos_engine::sys_owner::allow();
    let plan = How { flags, goes_on, again, ..How::default() };
    let place = report.as_ref().map(|report| report.place.clone());
    let name_of_command = name.clone();
    let command =
        Command { name, quiet, stderr: stderr(), report, follower, kills_left, is_limited };
    let begun = match kernel::descriptor_limit() {
        // With fewer, its calls would fail half way for want of a descriptor of the library's.
        ..LEAST_DESCRIPTORS => Err(libc::EMFILE),
        _ => session::outermost(here(), Regs::default(), plan, Some(command)),
    };
    if let Err(errno) = begun {
        // SAFETY: the words stay until the thread's next call.
        let words = unsafe { CStr::from_ptr(api::txos_strerror()) }.to_string_lossy().into_owned();
        // Where there is no memory for the thread's words, there are none.
        let has_words = thread::existing(here()).is_some_and(|thread| thread.report.has_words());
        let words = if has_words { words } else { cannot_begin(&name_of_command, errno) };
        let ended = match errno {
            libc::ECANCELED => Ended::Conflict { path: Vec::new(), what: words.clone(), pid: 0 },
            _ => Ended::Stopped(words.clone()),
        };
        let delivery = Delivery { ended, live: Vec::new() };
        let is_told = place.is_some_and(|place| delivery.leave(&place).is_ok());
        if !is_told && has_words {
            api::tell(&words);
        } else if !is_told {
            api::tell(&format!("{words}; it was not run, and nothing changed"));
        }
        // SAFETY: the process ends.
        unsafe { libc::_exit(FAILED) };
    }
}

/// That a command's transaction did not begin, of which the library has said nothing else.
fn cannot_begin(name: &str, errno: i32) -> String {
    let why = std::io::Error::from_raw_os_error(errno);
    let why = match errno {
        libc::ENOMEM | libc::EAGAIN => format!(
            "{why}; a limit of memory may be too low for the library (`ulimit -d`, `ulimit -v`)"
        ),
        libc::EMFILE => wire::too_few_descriptors(&format!(
            "the library, which needs at least {LEAST_DESCRIPTORS}"
        )),
        _ => why.to_string(),
    };
    format!("{name} can't run as a transaction: {why}")
}

/// With fewer descriptors no command is a transaction in its own process.
const LEAST_DESCRIPTORS: i32 = 32;

/// The library's path, as the dynamic linker was told it.
static LIBRARY: OnceLock<CString> = OnceLock::new();
/// The dynamic linker that runs the library, if that is not the one that it names.
static LINKER: OnceLock<CString> = OnceLock::new();

/// The path of the library, for programs that are to load it.
pub fn library() -> &'static CStr {
    LIBRARY.get().map_or(c"", CString::as_c_str)
}

/// Whether the library is run by a dynamic linker that lies beside it.
pub fn has_linker() -> bool {
    LINKER.get().is_some()
}

/// What a process runs then to have the library load a program, and the arguments in front of that program's name, and behind it.
pub fn linker_of_library() -> Option<(&'static CStr, [CString; 3], CString)> {
    let linker = LINKER.get()?;
    let library = Path::new(OsStr::from_bytes(library().to_bytes()));
    let text = |word: OsString| CString::new(word.into_vec()).unwrap_or_default();
    let [path, directory, name_is, _, library] =
        program::arguments_of_linker(library, OsStr::new("")).map(text);
    Some((linker, [path, directory, name_is], library))
}

/// Finds out where the library was loaded from, for programs that are to load it, unless that is known. Nowhere, if it
/// is part of the program's own file.
pub fn find_library() {
    if LIBRARY.get().is_some() {
        return;
    }
    if loader::is_program() {
        let Ok(path) = kernel::read_link(libc::AT_FDCWD, b"/proc/self/exe") else { return };
        let path = PathBuf::from(OsString::from_vec(path));
        let by_linker = path.file_name().is_some_and(|name| name == program::LINKER);
        let library = if by_linker { path.with_file_name(program::LIBRARY) } else { path.clone() };
        let text = |path: PathBuf| CString::new(path.into_os_string().into_vec());
        if let (Ok(library), Ok(linker)) = (text(library), text(path)) {
            let _ = LIBRARY.set(library);
            if by_linker {
                let _ = LINKER.set(linker);
            }
        }
        return;
    }
    if checkpoint::is_linked_in() {
        return;
    }
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the function is one of the library's, and there is room for the answer; the name stays as long as the
    // library is loaded.
    let name = unsafe {
        if libc::dladdr(loaded as *const std::ffi::c_void, found.as_mut_ptr()) == 0 {
            return;
        }
        CStr::from_ptr(found.assume_init().dli_fname)
    };
    let path = std::fs::canonicalize(OsStr::from_bytes(name.to_bytes()));
    // The list of what is to be loaded has no way to write these.
    let can_be_listed = |path: &[u8]| !path.iter().any(|byte| b": \t\n".contains(byte));
    if let Ok(path) = path
        && can_be_listed(path.as_os_str().as_bytes())
        && let Ok(path) = CString::new(path.into_os_string().into_vec())
    {
        let _ = LIBRARY.set(path);
    }
}

/// Neither the variables nor the preloading is for the command to see. `first`: it is the command's first process, and `txos`
/// in it is to know where it is.
fn forget_environment(first: bool) {
    let preloaded = std::env::var_os(PRELOAD).map(OsString::into_vec).unwrap_or_default();
    // It was put in front, with a colon if there was anything.
    let mut parts = preloaded.splitn(2, |&byte| byte == b':');
    let own = parts.next().unwrap_or_default();
    if loader::is_program() {
        find_library();
    } else if let Ok(own) = CString::new(own) {
        let _ = LIBRARY.set(own);
    }
    let rest = parts.next().filter(|rest| !rest.is_empty());
    let rest = rest.and_then(|rest| CString::new([b"LD_PRELOAD=", rest].concat()).ok());
    let mut left: Option<&'static CStr> = rest.map(|text| &*Box::leak(text.into_boxed_c_str()));
    // Programs write to their environment.
    let mut told: Option<&'static CStr> =
        first.then(|| &*Box::leak(CString::from(VIEW).into_boxed_c_str()));
    change_environment(|text| {
        let is = |name: &str| program::value(text.to_bytes(), name).is_some();
        if [VARIABLE, NAME, MESSAGE, DIRECTORY, SCOPE, EXCLUDE, client::VARIABLE]
            .into_iter()
            .any(is)
            || first && is("TXOS_VIEW")
        {
            // In place of one of them.
            return told.take();
        }
        if is(PRELOAD) && !loader::is_program() { left.take() } else { Some(text) }
    });
}

/// What tells `txos` that it runs in a transaction in the library's view.
const VIEW: &CStr = c"TXOS_VIEW=library";

/// Replaces or removes variables. The list itself is changed: shells have functions of their own in place of the C library's,
/// which do nothing yet.
fn change_environment(mut change: impl FnMut(&'static CStr) -> Option<&'static CStr>) {
    unsafe extern "C" {
        static environ: *mut *const std::ffi::c_char;
    }
    // SAFETY: nothing but the dynamic linker and constructors has run: there is one thread. The list ends with a zero, and its
    // strings stay.
    unsafe {
        let (mut from, mut to) = (environ, environ);
        while !from.is_null() && !(*from).is_null() {
            if let Some(text) = change(CStr::from_ptr(*from)) {
                *to = text.as_ptr();
                to = to.add(1);
            }
            from = from.add(1);
        }
        if !to.is_null() {
            *to = std::ptr::null();
        }
    }
}

/// What a program is to the kernel.
pub fn kind_of(fd: i32) -> Kind {
    program::kind(|room, at| kernel::pread(fd, room, at).unwrap_or(0))
}

/// Whether a program runs with more rights than the process has, so that the dynamic linker preloads nothing.
pub fn gains_rights(fd: i32) -> bool {
    let Ok(stat) = kernel::look_fd(fd) else { return false };
    let (user, group) = (kernel::geteuid(), kernel::getegid());
    program::changes_ids(stat.mode, (stat.uid, stat.gid), (user, group))
        || user != 0
            && kernel::xattr(&kernel::magic_path(fd), b"security.capability")
                .is_ok_and(|value| value.is_some())
}

/// The library is loaded.
///
/// # Safety
/// For the dynamic linker, or at the beginning of a program: the arguments are the program's.
pub unsafe extern "C" fn loaded(argc: i32, argv: *const *const std::ffi::c_char) {
    interpose::resolve();
    linker::resolve();
    let count = if argv.is_null() { 0 } else { usize::try_from(argc).unwrap_or(0) };
    let word = |index: usize| {
        // SAFETY: the dynamic linker hands the program's arguments on.
        let text = unsafe { CStr::from_ptr(*argv.add(index)) };
        OsString::from_vec(text.to_bytes().to_vec())
    };
    let _ = super::thread::guarded(|| start(|| (0..count).map(word).collect()));
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: unsafe extern "C" fn(i32, *const *const std::ffi::c_char) = loaded;
