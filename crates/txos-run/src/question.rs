//! Questions from inside: a program in a view can't see the store, and asks the process that runs its
//! transaction to look for it.
//!
//! The asker connects a socket to the abstract name [`NAME`]. Nothing listens there: the supervisor is told of the
//! call, and puts one end of a socket pair in the place of the asker's socket. The question is one packet, the
//! words of a command line and the two descriptors to write to. The answer is one packet, the status.
//!
//! A process with other credentials than the supervisor's is refused: it would be shown files that it may not read.
//! Whoever asks writes the words, so what answers must make sure itself that they only look ([`asked_by`]): it
//! runs outside of the transaction.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};
use txos_engine::TxId;

use crate::inside::Terms;

/// Where questions go: an abstract name.
pub const NAME: &[u8] = b"txos-question";

/// Names, to a program that answers, the transaction from which it was asked.
pub const ASKED_BY: &str = "TXOS_ASKED_BY";
/// Names, to a program that answers, the working directory of the asker.
pub const ASKED_IN: &str = "TXOS_ASKED_IN";

/// Longest question in bytes.
pub(crate) const QUESTION_MAX: usize = 128 * 1024;
/// How long an asker may take from the connect to its question.
const QUESTION_PATIENCE: Duration = Duration::from_secs(10);
/// How many questions are answered at a time.
const QUESTIONS_MAX: usize = 16;

#[derive(Serialize, Deserialize)]
struct Question {
    words: Vec<Vec<u8>>,
    directory: Vec<u8>,
    /// Whether a command is to be run, in a transaction inside ([`crate::inside`]).
    #[serde(default)]
    inside: bool,
}

/// Asks the process that runs this one's transaction to run a command of txos that only looks. It writes to
/// this process's standard output and standard error.
///
/// # Errors
/// If nobody is there to be asked, or the answer does not come.
pub fn ask(words: &[OsString]) -> io::Result<u8> {
    let socket = question(words, false)?;
    let mut status = [0u8; 1];
    match rustix::io::retry_on_intr(|| rustix::io::read(&socket, &mut status))? {
        1 => Ok(status[0]),
        _ => Err(Errno::CONNRESET.into()),
    }
}

/// Puts a question; gives the socket on which the answer comes.
pub(crate) fn question(words: &[OsString], inside: bool) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(NAME)?)?;
    let directory = std::env::current_dir().unwrap_or_default();
    let question = Question {
        words: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
        directory: directory.into_os_string().into_vec(),
        inside,
    };
    let bytes = serde_json::to_vec(&question)?;
    if bytes.len() > QUESTION_MAX {
        return Err(Errno::TOOBIG.into());
    }
    let (out, err) = (io::stdout(), io::stderr());
    let fds = [out.as_fd(), err.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let parts = [io::IoSlice::new(&bytes)];
    rustix::net::sendmsg(&socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
    Ok(socket)
}

/// The transaction from inside of which this process was asked to look, if it was.
#[must_use]
pub fn asked_by() -> Option<TxId> {
    std::env::var(ASKED_BY).ok()?.parse().ok()
}

/// What answers.
#[derive(Clone, Debug)]
pub struct Answerer {
    /// The program.
    pub program: PathBuf,
    /// Its store, if it is another than it would find by itself.
    pub store: Option<PathBuf>,
}

/// Questions of one transaction.
#[derive(Debug)]
pub struct Questions {
    answerer: Answerer,
    id: TxId,
    /// What holds for transactions inside; or why there can be none.
    inside: Result<Terms, String>,
    /// Held by each thread that answers: how many there are is how often it is held.
    open: Arc<()>,
}

impl Questions {
    /// Of this transaction.
    #[must_use]
    pub fn new(answerer: Answerer, id: TxId, inside: Result<Terms, String>) -> Questions {
        Questions { answerer, id, inside, open: Arc::default() }
    }

    /// Begins to answer a question, on a thread of its own; gives the asker's end.
    ///
    /// # Errors
    /// `EAGAIN` while too many are being answered, and if there are no descriptors or threads.
    pub fn begin(&self) -> Result<OwnedFd, Errno> {
        if Arc::strong_count(&self.open) > QUESTIONS_MAX {
            return Err(Errno::AGAIN);
        }
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        set_socket_timeout(&ours, Timeout::Recv, Some(QUESTION_PATIENCE))?;
        let (answerer, id, open) = (self.answerer.clone(), self.id, Arc::clone(&self.open));
        let inside = self.inside.clone();
        let answer = move || {
            // The asker sees that the answer does not come.
            let _ = answer(&answerer, id, inside, ours);
            drop(open);
        };
        let thread = std::thread::Builder::new().name("txos-question".into()).spawn(answer);
        thread.map_err(|_| Errno::AGAIN)?;
        Ok(theirs)
    }
}

fn answer(
    answerer: &Answerer,
    id: TxId,
    inside: Result<Terms, String>,
    socket: OwnedFd,
) -> io::Result<()> {
    let mut bytes = vec![0u8; QUESTION_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = {
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes
    };
    let mut fds = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let (out, err) = match fds.as_mut().map(|fds| (fds.next(), fds.next())) {
        Some((Some(out), Some(err))) => (out, err),
        _ => return Err(Errno::BADMSG.into()),
    };
    let question: Question = serde_json::from_slice(bytes.get(..got).unwrap_or_default())?;
    let mut command = Command::new(&answerer.program);
    command.args(question.words.iter().map(|word| OsStr::from_bytes(word)));
    if let Some(store) = &answerer.store {
        command.env("TXOS_STORE", store);
    }
    command.env(ASKED_BY, id.as_str()).env(ASKED_IN, OsStr::from_bytes(&question.directory));
    // The terminal is the asker's: no pager may take its keys.
    command.env("TXOS_PAGER", "").stdin(Stdio::null()).stdout(out).stderr(err);
    if question.inside {
        let terms = match inside {
            Ok(terms) => terms,
            Err(why) => return crate::inside::refuse(&socket, &why),
        };
        // It reads what the asker hands over, and goes on as long as that takes.
        set_socket_timeout(&socket, Timeout::Recv, None)?;
        command.env(crate::inside::TERMS, serde_json::to_string(&terms)?);
        command.stdin(socket.try_clone()?);
    }
    let status = command.status()?;
    drop(command);
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
    if question.inside {
        return crate::inside::ended(&socket, code);
    }
    rustix::net::send(&socket, &[code], SendFlags::NOSIGNAL)?;
    Ok(())
}
