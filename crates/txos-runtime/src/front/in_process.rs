//! `txos run --in-process`: a whole command as one transaction of its main thread.
//!
//! The library is preloaded, begins before `main`, and decides when the process ends: `exit` has
//! flushed everything by then, and its status says whether the work is done.
#![allow(unsafe_code)] // a constructor, the environment of the process

use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStringExt;

use super::entry::Regs;
use super::report::{Report, reason};
use super::session;
use super::thread::Thread;
use super::tls::here;
use super::{api, interpose};
use crate::raw::syscall;
use crate::tx::{Failure, How, flags};

/// Set for the command: what to begin, and what `LD_PRELOAD` was before.
pub const VARIABLE: &str = "TXOS_IN_PROCESS";
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
}

impl Command {
    /// It ends with this status: commits or aborts, and gives the status to end with.
    pub fn end(&self, thread: &mut Thread, status: i32) -> i32 {
        if status != 0 {
            session::abort_in(thread, session::ended());
            if !self.quiet {
                let status = status & 0xff;
                let name = &self.name;
                let gone = rolled_back(&thread.report.live);
                api::tell(&format!("{name} exited with status {status}; {gone}"));
            }
            return status;
        }
        match session::commit(thread) {
            Ok(()) => 0,
            Err(failure) => self.tell(&failure, &thread.report.live),
        }
    }

    /// It can't succeed any more.
    pub fn end_failed(&self, report: &Report) -> ! {
        let status = self.tell(&report.abort, &report.live);
        loop {
            let args = [status as u64, 0, 0, 0, 0, 0];
            // SAFETY: the process ends.
            unsafe { syscall(libc::SYS_exit_group, args) };
        }
    }

    fn tell(&self, failure: &Failure, live: &str) -> i32 {
        let (what, gone) = (&failure.what, rolled_back(live));
        if failure.reason == reason::CONFLICT {
            api::tell(&format!("conflict: {what}; {gone}"));
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

/// What became of the transaction.
fn rolled_back(live: &str) -> String {
    match live {
        "" => "rolled back, nothing changed".into(),
        live => format!("rolled back; live, and not rolled back: {live}"),
    }
}

/// What the variable asks for: words, separated by commas.
fn parse(words: &str) -> (u32, bool) {
    let (mut asked, mut quiet) = (0, false);
    for word in words.split(',') {
        match word {
            "durable" => asked |= flags::DURABLE,
            "strict" => asked |= flags::STRICT,
            "quiet" => quiet = true,
            _ => {}
        }
    }
    (asked, quiet)
}

/// Begins the command's transaction, if this process is one.
fn start(name: String) {
    if txos_engine::sys_secure::has_foreign_rights() {
        return;
    }
    let Some(words) = std::env::var_os(VARIABLE) else { return };
    let (flags, quiet) = parse(&words.to_string_lossy());
    forget_environment();
    let plan = How { flags, ..How::default() };
    let command = Command { name, quiet };
    if session::outermost(here(), Regs::default(), plan, Some(command)).is_err() {
        // SAFETY: the words stay until the thread's next call.
        let words = unsafe { CStr::from_ptr(api::txos_strerror()) };
        api::tell(&words.to_string_lossy());
        // SAFETY: the process ends.
        unsafe { libc::_exit(FAILED) };
    }
}

/// Neither the variable nor the preloading is for the command's children.
fn forget_environment() {
    let rest = std::env::var_os(PRELOAD).map(OsString::into_vec).unwrap_or_default();
    // It was put in front, with a colon if there was anything.
    let rest = rest.iter().position(|&byte| byte == b':').map(|at| rest[at + 1..].to_vec());
    let rest = rest.filter(|rest| !rest.is_empty()).and_then(|rest| CString::new(rest).ok());
    // SAFETY: nothing but the dynamic linker and constructors has run: there is one thread.
    unsafe {
        libc::unsetenv(c"TXOS_IN_PROCESS".as_ptr());
        match rest {
            Some(rest) => libc::setenv(c"LD_PRELOAD".as_ptr(), rest.as_ptr(), 1),
            None => libc::unsetenv(c"LD_PRELOAD".as_ptr()),
        };
    }
}

/// The library is loaded.
extern "C" fn loaded(argc: i32, argv: *const *const std::ffi::c_char) {
    interpose::resolve();
    let name = if argc > 0 && !argv.is_null() {
        // SAFETY: the dynamic linker hands the program's arguments on.
        unsafe { CStr::from_ptr(*argv) }.to_string_lossy().into_owned()
    } else {
        String::new()
    };
    let _ = super::thread::guarded(|| start(name));
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn(i32, *const *const std::ffi::c_char) = loaded;
