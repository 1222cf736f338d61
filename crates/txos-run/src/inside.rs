//! A transaction inside of another one, between the two processes that it takes.
//!
//! `txos run` in the view of a transaction can't make another view: its supervisor would have to be the outer one's, and
//! the store is out of sight. So it asks the outer one's monitor ([`crate::question`]), which starts a process of
//! `txos` outside. That one runs the command in a view of its own, with everything the asker hands it:
//! environment, working directory, file mode mask, process group, ignored signals and descriptors. The asker waits, passes signals on, and at the
//! end does in its view what the command has changed ([`Given::hand_over`]).
//!
//! Each message is one packet, its first byte one of [`tag`].
//!
//! - If the asker dies, the command is killed and its transaction discarded.
//! - If it dies while it does the steps, the outer transaction is not committed (`txos_engine::store::Inside`).

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use txos_engine::changeset::Step;
use txos_engine::readset::Coverage;

use crate::error::{Result, Step as _};
use crate::question::{QUESTION_MAX, question};
use crate::report::{CommandStatus, Ran};
use crate::sys::{fork, signals};

/// What a packet is.
mod tag {
    /// From the answerer: the command's transaction has ended, with the status that follows.
    pub const ENDED: u8 = 0;
    /// From the monitor: no transaction can be had; why follows.
    pub const REFUSED: u8 = 1;
    /// From the answerer: a step follows; its content comes along.
    pub const STEP: u8 = 2;
    /// From the answerer: the command was stopped.
    pub const STOPPED: u8 = 3;
    /// From the answerer: the report that was asked for comes along.
    pub const REPORT: u8 = 8;
    /// From the asker: a signal for the command.
    pub const SIGNAL: u8 = 4;
    /// From the asker: it goes on after a stop.
    pub const RESUMED: u8 = 5;
    /// From the asker: the step is done.
    pub const DONE: u8 = 6;
    /// From the asker: it could not be done; why follows.
    pub const FAILED: u8 = 7;
}

/// How many descriptors are handed on; the kernel passes 253 at a time.
const DESCRIPTORS_MAX: usize = 250;

/// Names, to a program that runs a command inside of a transaction, what holds for that one.
pub const TERMS: &str = "TXOS_INSIDE";

/// What holds for a transaction and for those inside of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Terms {
    /// Patterns of paths that stay live.
    pub exclude: Vec<String>,
    /// Whether to end the command at the first thing that can't be rolled back.
    pub strict: bool,
    /// What is versioned.
    pub coverage: Coverage,
}

impl Terms {
    /// Those of the transaction in which this process was asked to run a command.
    #[must_use]
    pub fn given() -> Terms {
        let text = std::env::var(TERMS).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }
}

#[derive(Serialize, Deserialize)]
struct Brief {
    environment: Vec<Vec<u8>>,
    umask: u32,
    group: i32,
    /// Signals that are ignored.
    ignored: Vec<i32>,
    descriptors: Vec<i32>,
}

/// What became of a command inside.
#[derive(Debug)]
pub enum Asked {
    /// It ended.
    Ended {
        /// With this status.
        status: u8,
        /// What is to be written where the asker was told to report.
        report: Option<Vec<u8>>,
    },
    /// Nothing was run, because a transaction of its own can't be had here.
    Refused(String),
}

/// Asks the process that runs this one's transaction to run `txos` with these words, and waits for the end.
///
/// # Errors
/// If it ended without an answer: its command was ended as well, and nothing of it is left.
pub fn ask(words: &[OsString]) -> Result<Asked> {
    let socket = match question(words, true) {
        Ok(socket) => socket,
        Err(error) => {
            return Ok(Asked::Refused(format!("the process that runs it can't be asked: {error}")));
        }
    };
    if let Err(error) = send_brief(&socket) {
        return Ok(Asked::Refused(format!(
            "what {} has can't be handed over: {error}",
            "this process"
        )));
    }
    let guard = signals::Guard::take().step("collecting signals")?;
    let mut report = None;
    let gone = || {
        Err(io::Error::from(Errno::CONNRESET))
            .step("hearing from the process that runs the command")
    };
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(guard.fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e).step("waiting for the command"),
        }
        while let Some(signal) = guard.next() {
            if signal.number != libc::SIGCHLD {
                let number = u8::try_from(signal.number).unwrap_or_default();
                let _ = send(socket.as_fd(), &[tag::SIGNAL, number], None);
            }
        }
        let (packet, mut fds) = match receive(socket.as_fd(), false) {
            Ok(Some(got)) => got,
            Err(Errno::WOULDBLOCK) => continue,
            Ok(None) | Err(_) => return gone(),
        };
        match packet.split_first() {
            Some((&tag::ENDED, &[status])) => return Ok(Asked::Ended { status, report }),
            Some((&tag::REPORT, _)) => report = fds.pop().and_then(|fd| whole(&fd).ok()),
            Some((&tag::REFUSED, why)) => {
                return Ok(Asked::Refused(String::from_utf8_lossy(why).into_owned()));
            }
            Some((&tag::STOPPED, _)) => {
                let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
                let _ = send(socket.as_fd(), &[tag::RESUMED], None);
            }
            Some((&tag::STEP, bytes)) => {
                let answer = match step(bytes, fds.pop()) {
                    Ok(()) => vec![tag::DONE],
                    Err(why) => [&[tag::FAILED], why.as_bytes()].concat(),
                };
                if send(socket.as_fd(), &answer, None).is_err() {
                    return gone();
                }
            }
            _ => return gone(),
        }
    }
}

fn step(bytes: &[u8], content: Option<OwnedFd>) -> std::result::Result<(), String> {
    let step = Step::from_bytes(bytes).ok_or("a step can't be read")?;
    step.run(content).map_err(|e| format!("{}: {}", step.shown(), io::Error::from(e)))
}

fn send_brief(socket: &OwnedFd) -> io::Result<()> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let inherits =
            |fd| rustix::io::fcntl_getfd(fd).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC));
        if fork::inherited(number).is_ok_and(inherits) {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    numbers.truncate(DESCRIPTORS_MAX);
    let mut fds = Vec::new();
    for &number in &numbers {
        fds.push(fork::inherited(number)?);
    }
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    let brief = Brief {
        environment: std::env::vars_os()
            .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
            .collect(),
        umask: mask.bits(),
        group: txos_engine::process_group().map_or(0, |group| group.as_raw_nonzero().get()),
        ignored: signals::ignored(),
        descriptors: numbers,
    };
    // An environment may be longer than a packet.
    let file = file_of(&serde_json::to_vec(&brief)?)?;
    fds.insert(0, file.as_fd());
    send(socket.as_fd(), &[0], Some(&fds))?;
    Ok(())
}

/// A file in memory, for what may be longer than a packet.
fn file_of(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("txos-inside", rustix::fs::MemfdFlags::CLOEXEC)?;
    txos_engine::sys::write_all_at(file.as_fd(), bytes, 0)?;
    Ok(file)
}

/// What such a file holds.
fn whole(file: &OwnedFd) -> io::Result<Vec<u8>> {
    let size = rustix::fs::fstat(file)?.st_size;
    let mut bytes = vec![0u8; usize::try_from(size).unwrap_or_default()];
    let got = rustix::io::pread(file, &mut bytes[..], 0)?;
    bytes.truncate(got);
    Ok(bytes)
}

fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: Option<&[BorrowedFd<'_>]>,
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX + 1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(fds) = fds {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let parts = [io::IoSlice::new(bytes)];
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL).map(drop)
}

type Packet = (Vec<u8>, Vec<OwnedFd>);

/// The next packet; none if the other side is gone.
fn receive(socket: BorrowedFd<'_>, wait: bool) -> rustix::io::Result<Option<Packet>> {
    let mut bytes = vec![0u8; QUESTION_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX + 1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut flags = RecvFlags::CMSG_CLOEXEC;
    flags.set(RecvFlags::DONTWAIT, !wait);
    let got = rustix::io::retry_on_intr(|| {
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(socket, &mut parts, &mut control, flags).map(|got| got.bytes)
    })?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    bytes.truncate(got);
    Ok((got > 0).then_some((bytes, fds)))
}

/// Refuses a transaction, and says why.
pub(crate) fn refuse(socket: &OwnedFd, why: &str) -> io::Result<()> {
    end(socket, &[&[tag::REFUSED], why.as_bytes()].concat())
}

/// Says how it ended.
pub(crate) fn ended(socket: &OwnedFd, status: u8) -> io::Result<()> {
    end(socket, &[tag::ENDED, status])
}

/// Sends the last packet, and waits until the asker is gone: if something that he has sent was not read, the kernel
/// would tell him that instead.
fn end(socket: &OwnedFd, last: &[u8]) -> io::Result<()> {
    send(socket.as_fd(), last, None)?;
    while receive(socket.as_fd(), true)?.is_some() {}
    Ok(())
}

/// What an asker hands to the command, and the way to it.
#[derive(Debug)]
pub struct Given {
    socket: OwnedFd,
    pub(crate) environment: Vec<Vec<u8>>,
    pub(crate) umask: u32,
    pub(crate) group: Option<Pid>,
    ignored: Vec<i32>,
    pub(crate) descriptors: Vec<(i32, OwnedFd)>,
    /// Their numbers are taken in this process, so that nothing of its own is there.
    _taken: Vec<OwnedFd>,
}

/// What an asker says while the command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Signal(i32),
    Resumed,
    Gone,
    Nothing,
}

impl Given {
    /// From the asker at the other end of standard input, which reads nothing from then on. Called before anything else
    /// is opened.
    ///
    /// # Errors
    /// If nobody is there, or what he says can't be read.
    pub fn receive() -> io::Result<Given> {
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdin(&null)?;
        let (_, mut fds) = receive(socket.as_fd(), true)?.ok_or(Errno::CONNRESET)?;
        if fds.is_empty() {
            return Err(Errno::BADMSG.into());
        }
        let file = fds.remove(0);
        let bytes = whole(&file)?;
        drop(file);
        let brief: Brief = serde_json::from_slice(&bytes)?;
        // Above all numbers of the command, so that none is overwritten before it is put in its place.
        let above = brief.descriptors.iter().max().map_or(3, |max| max + 1);
        let move_up = |fd: OwnedFd| rustix::io::fcntl_dupfd_cloexec(&fd, above);
        let mut descriptors = Vec::new();
        for (number, fd) in brief.descriptors.into_iter().zip(fds) {
            descriptors.push((number, move_up(fd)?));
        }
        let socket = move_up(socket)?;
        let mut taken = Vec::new();
        for (number, _) in descriptors.iter().filter(|(number, _)| *number > 2) {
            let fd = rustix::io::fcntl_dupfd_cloexec(&null, *number)?;
            if fd.as_raw_fd() == *number {
                taken.push(fd);
            }
        }
        Ok(Given {
            socket,
            environment: brief.environment,
            umask: brief.umask,
            group: Pid::from_raw(brief.group),
            ignored: brief.ignored,
            descriptors,
            _taken: taken,
        })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn hear(&self) -> Heard {
        match receive(self.socket(), false) {
            Ok(Some((packet, _))) => match packet[..] {
                [tag::SIGNAL, number] => Heard::Signal(i32::from(number)),
                [tag::RESUMED] => Heard::Resumed,
                _ => Heard::Nothing,
            },
            Err(Errno::WOULDBLOCK) => Heard::Nothing,
            Ok(None) | Err(_) => Heard::Gone,
        }
    }

    pub(crate) fn stopped(&self) {
        let _ = send(self.socket(), &[tag::STOPPED], None);
    }

    /// Whether the asker is there.
    #[must_use]
    pub fn is_there(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.socket(), PollFlags::IN)];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok()
            && !fds.iter().any(|fd| fd.revents().contains(PollFlags::HUP))
    }

    /// Hands over what is to be written where the asker was told to report.
    ///
    /// # Errors
    /// If the asker is gone.
    pub fn report(&self, text: &[u8]) -> io::Result<()> {
        let file = file_of(text)?;
        send(self.socket(), &[tag::REPORT], Some(&[file.as_fd()]))?;
        Ok(())
    }

    /// Has a step done by the asker, in its view.
    ///
    /// # Errors
    /// Why it could not be done.
    pub fn hand_over(
        &self,
        step: &Step,
        content: Option<&PathBuf>,
    ) -> std::result::Result<(), String> {
        let told = |e: io::Error| format!("{}: {e}", step.shown());
        let file = content.map(std::fs::File::open).transpose().map_err(told)?;
        let fds: Vec<BorrowedFd<'_>> = file.iter().map(AsFd::as_fd).collect();
        let bytes = step.to_bytes();
        let packet = [&[tag::STEP], &bytes[..]].concat();
        if packet.len() > QUESTION_MAX {
            return Err(told(Errno::TOOBIG.into()));
        }
        let fds = (!fds.is_empty()).then_some(&fds[..]);
        send(self.socket(), &packet, fds).map_err(|e| told(e.into()))?;
        loop {
            match receive(self.socket(), true).map_err(|e| told(e.into()))? {
                None => return Err(told(Errno::CONNRESET.into())),
                Some((packet, _)) => match packet.split_first() {
                    Some((&tag::DONE, _)) => return Ok(()),
                    Some((&tag::FAILED, why)) => {
                        return Err(String::from_utf8_lossy(why).into_owned());
                    }
                    // For a command that has ended.
                    _ => {}
                },
            }
        }
    }

    /// Ignores the signals that the asker ignores. This process, started by a monitor, ignores others.
    pub(crate) fn ignore_as_the_asker(&self) {
        signals::ignore_only(&self.ignored);
    }

    /// Puts what was handed over where the command finds it.
    pub(crate) fn put_in_place(&self) -> io::Result<()> {
        rustix::process::umask(Mode::from_raw_mode(self.umask));
        for entry in std::fs::read_dir("/proc/self/fd")? {
            let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse().ok())
            else {
                continue;
            };
            if number > 2
                && let Ok(fd) = fork::inherited(number)
            {
                // What this process has from its own parent is not the command's.
                let _ = rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC);
            }
        }
        for (number, fd) in &self.descriptors {
            fork::put_fd(fd.as_fd(), *number)?;
        }
        Ok(())
    }

    /// The variables, but for one.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        self.environment.iter().filter_map(|entry| {
            let at = entry.iter().skip(1).position(|&byte| byte == b'=')? + 1;
            let (name, value) = (entry.get(..at)?, entry.get(at + 1..)?);
            Some((OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec())))
        })
    }
}

impl Ran {
    /// Takes over what transactions inside of this one have left.
    pub(crate) fn take_over_from_inside(
        &mut self,
        tx: &mut txos_engine::store::Transaction,
    ) -> Result<()> {
        let left = tx.take_over(&mut self.reads)?;
        tx.meta.inside.extend(left.records);
        if let Some(id) = left.half {
            let reason = format!(
                "the process was ended, or failed, that brought into {} what {id} inside of it had changed: only a part of that is \
                 there",
                tx.id()
            );
            self.status = CommandStatus::Stopped { reason };
        } else if let Some(conflict) = left.differ {
            self.status = CommandStatus::Lost { conflict };
        }
        Ok(())
    }
}
