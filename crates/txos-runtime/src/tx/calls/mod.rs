//! One system call: what each of them does in a transaction.
//!
//! | module | calls about |
//! |---|---|
//! | [`content`] | what files hold |
//! | [`names`] | names and directories |
//! | [`attrs`] | attributes and times |
//! | [`xattrs`] | extended attributes |
//! | [`descriptors`] | descriptors, sockets, messages |
//!
//! Each of these has one table of its calls, and hands on to the next what is not in it. What is in none
//! is no file's business, and goes as the table of all calls says ([`txos_calls`]).
#![allow(unsafe_code)] // paths of ours in the program's calls

mod attrs;
mod content;
mod descriptors;
mod names;
mod xattrs;

use super::Tx;
use super::attrs::Object;
use super::effects;
use super::held;
use super::ipc;
use super::kernel::{Errno, Sys};
use super::others;
use crate::call::Call;
use crate::user::UserPtr;
use txos_calls::Class;

const CWD: i32 = libc::AT_FDCWD;
const NOFOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;

/// A path argument, and the directory that it starts from.
type At = (i32, UserPtr<u8>);

impl Tx {
    /// Carries a system call out.
    ///
    /// # Errors
    /// As the call.
    pub fn carry_out(&mut self, call: &Call) -> Sys<u64> {
        self.report.calling = call.number();
        self.content_call(call)
    }

    /// What is no file's business: as the table says.
    pub fn the_rest(&mut self, call: &Call) -> Sys<u64> {
        let mut paths = Vec::new();
        let mut call = *call;
        match txos_calls::class(call.number()) {
            Class::Descriptor => {}
            Class::Held(_) | Class::Restored(_)
                if ipc::is_ipc(call.number()) && !self.is_of_a_command() =>
            {
                return self.ipc(&call);
            }
            Class::Held(_) if others::is_of_this_process(&call) => {}
            Class::Held(_) if self.is_of_a_command() && held::is_for_this_process(&call) => {}
            Class::Held(_) if !only_asks(&call) && !self.is_of_a_command() => {
                if held::sends_signal(call.number()) {
                    return self.hold_signal(&call);
                }
                if let Some(answer) = self.hold_call(&call)? {
                    return Ok(answer);
                }
                // SAFETY: the paths live until the answer.
                call = unsafe { self.stable_arguments(&call, &mut paths) }?;
            }
            Class::Passed(_) | Class::Held(_) | Class::Restored(_) if only_asks(&call) => {}
            Class::Passed(what) | Class::Held(what) | Class::Restored(what) => {
                // SAFETY: the paths live until the answer.
                call = unsafe { self.stable_arguments(&call, &mut paths) }?;
                self.unsupported_call(what, b"")?;
            }
            Class::Refused(errno, what) => {
                return self.refuse(Errno::from_raw_os_error(errno), what);
            }
            _ => return self.refuse(Errno::NOSYS, "a system call that is not known here"),
        }
        for i in txos_calls::descriptors(call.number()) {
            // None, or the working directory; or the kernel says that it is none.
            if call.int(i) >= 0 {
                call = call.with_descriptor(i, self.real(call.int(i))?);
            }
        }
        if effects::takes(call.number()) {
            self.before_taking(&call, call.int(0))?;
        }
        let makes = txos_calls::makes_descriptor(call.number());
        if makes {
            return self.new_descriptor(&call);
        }
        match super::waits::may_wait_outside(call.number()) {
            true => call.answer_waiting(),
            false => call.answer(),
        }
    }

    /// The object of a descriptor that is not only a path.
    fn changeable(&mut self, number: i32) -> Sys<Object> {
        let file = self.file(number)?;
        if self.fds.get(file).flags & libc::O_PATH != 0 {
            return Err(Errno::BADF);
        }
        self.object_of(number)
    }
}

/// A path argument. A null path is an empty one since Linux 6.11.
fn path_or_empty(at: UserPtr<u8>, flags: i32) -> Sys<Vec<u8>> {
    if at.is_null() && flags & libc::AT_EMPTY_PATH != 0 { Ok(Vec::new()) } else { at.path() }
}

/// Whether a call that is passed on changes nothing with these arguments.
fn only_asks(call: &Call) -> bool {
    let no_modes = |at: usize| call.pointer::<u32>(at).read().is_ok_and(|modes| modes == 0);
    match call.number() {
        libc::SYS_adjtimex => no_modes(0),
        libc::SYS_clock_adjtime => no_modes(1),
        number => txos_calls::only_asks(number, call.words()),
    }
}
