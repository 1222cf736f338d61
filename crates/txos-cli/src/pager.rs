//! Showing more than a screen: through a pager, as git does.

use std::io::{self, BufWriter, IsTerminal, Write, stderr, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use crate::signals;

/// Where the text is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error, under a command to which standard output belongs.
    Err,
}

/// What shows longer texts.
#[derive(Debug, PartialEq, Eq)]
enum Pager {
    /// The terminal itself.
    None,
    /// `less`, if it is there.
    Less,
    /// What the user has named.
    Named(String),
}

impl Pager {
    /// By the environment: the first of the variables that is set decides; `cat` or nothing means none.
    fn of(terminal: bool, variable: impl Fn(&str) -> Option<String>) -> Pager {
        let capable = variable("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
        if !terminal || !capable {
            return Pager::None;
        }
        match variable("TXOS_PAGER").or_else(|| variable("PAGER")) {
            None => Pager::Less,
            Some(name) if name.trim().is_empty() || name.trim() == "cat" => Pager::None,
            Some(name) => Pager::Named(name),
        }
    }

    fn command(&self) -> Option<Command> {
        match self {
            Pager::None => None,
            Pager::Less => Some(Command::new("less")),
            Pager::Named(name) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(name);
                Some(shell)
            }
        }
    }

    /// Starts it; `None` if there is none, or it can't be started.
    fn start(&self, to: Stream) -> Option<Child> {
        let mut command = self.command()?;
        let fd: OwnedFd = match to {
            Stream::Out => stdout().as_fd().try_clone_to_owned().ok()?,
            Stream::Err => stderr().as_fd().try_clone_to_owned().ok()?,
        };
        // As git: what fits on a screen is printed, colours are colours, and what was shown stays.
        if std::env::var_os("LESS").is_none() {
            command.env("LESS", "FRX");
        }
        command.stdin(Stdio::piped()).stdout(fd).spawn().ok()
    }
}

/// Whether [`show`] lets page through the text.
pub fn pages(to: Stream) -> bool {
    of(to) != Pager::None
}

fn of(to: Stream) -> Pager {
    let terminal = match to {
        Stream::Out => stdout().is_terminal(),
        Stream::Err => stderr().is_terminal(),
    };
    Pager::of(terminal, |name| std::env::var(name).ok())
}

/// Writes a text, through the pager where there is one and the screen is too small for it. Who leaves it early
/// has seen enough.
pub fn show(to: Stream, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let pager = of(to);
    if pager == Pager::None {
        let mut out = BufWriter::new(to);
        return write(&mut out).and_then(|()| out.flush());
    }
    signals::lend_terminal(|| {
        let mut out = Paged { pager, to, screen: Screen::of(to), held: Vec::new(), child: None };
        let written = write(&mut out);
        let ended = out.end();
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ended,
            other => other.and(ended),
        }
    })
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Out => stdout().write(bytes),
            Stream::Err => stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Out => stdout().flush(),
            Stream::Err => stderr().flush(),
        }
    }
}

/// A text that goes to the terminal if it fits on it, and to the pager if it does not.
struct Paged {
    pager: Pager,
    to: Stream,
    screen: Screen,
    /// What is not written yet.
    held: Vec<u8>,
    child: Option<Child>,
}

/// What is written to a pager at a time.
const HELD_MAX: usize = 32 << 10;

impl Paged {
    fn pass_on(&mut self) -> io::Result<()> {
        let stdin = self.child.as_mut().and_then(|child| child.stdin.as_mut());
        let written = match stdin {
            Some(stdin) => stdin.write_all(&self.held),
            None => self.to.write_all(&self.held),
        };
        self.held.clear();
        written
    }

    fn end(mut self) -> io::Result<()> {
        let written = self.pass_on();
        let Some(mut child) = self.child.take() else {
            return written.and_then(|()| self.to.flush());
        };
        drop(child.stdin.take());
        let ended = child.wait().map(drop);
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ended,
            other => other.and(ended),
        }
    }
}

impl Write for Paged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        let waiting = self.pager != Pager::None && self.child.is_none();
        if waiting && self.screen.is_full_with(bytes) {
            self.child = self.pager.start(self.to);
            // One that can't be started is done without.
            self.pager = Pager::None;
            self.pass_on()?;
        } else if !waiting && self.held.len() >= HELD_MAX {
            self.pass_on()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How much of a screen is taken up.
#[derive(Debug)]
struct Screen {
    rows_left: usize,
    columns: usize,
    column: usize,
    /// Within a colour.
    in_escape: bool,
}

impl Screen {
    fn of(stream: Stream) -> Screen {
        let size = match stream {
            Stream::Out => rustix::termios::tcgetwinsize(stdout()),
            Stream::Err => rustix::termios::tcgetwinsize(stderr()),
        };
        let size = size.ok().filter(|size| size.ws_row > 1 && size.ws_col > 0);
        let (rows, columns) = size.map_or((24, 80), |size| (size.ws_row, size.ws_col));
        // The last line is for what comes after it.
        Screen::new(usize::from(rows) - 1, usize::from(columns))
    }

    fn new(rows: usize, columns: usize) -> Screen {
        Screen { rows_left: rows, columns, column: 0, in_escape: false }
    }

    /// Whether the text so far, and these bytes, are more than it holds.
    fn is_full_with(&mut self, bytes: &[u8]) -> bool {
        for &byte in bytes {
            let wraps = match byte {
                b'\n' => {
                    self.column = 0;
                    true
                }
                b'\x1b' => {
                    self.in_escape = true;
                    false
                }
                _ if self.in_escape => {
                    self.in_escape = byte != b'm';
                    false
                }
                // What goes on with a character takes no column.
                0x80..=0xbf => false,
                _ if self.column == self.columns => {
                    self.column = 1;
                    true
                }
                _ => {
                    self.column += if byte == b'\t' { 8 - self.column % 8 } else { 1 };
                    self.column = self.column.min(self.columns);
                    false
                }
            };
            if wraps && self.rows_left == 0 {
                return true;
            }
            self.rows_left -= usize::from(wraps);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_pager() {
        let of = |terminal, set: &[(&str, &str)]| {
            Pager::of(terminal, |name| {
                set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let term = ("TERM", "xterm");
        assert_eq!(of(true, &[term]), Pager::Less);
        assert_eq!(of(false, &[term]), Pager::None);
        assert_eq!(of(true, &[]), Pager::None);
        assert_eq!(of(true, &[("TERM", "dumb")]), Pager::None);
        assert_eq!(of(true, &[term, ("PAGER", "more")]), Pager::Named("more".into()));
        assert_eq!(of(true, &[term, ("PAGER", "cat")]), Pager::None);
        let both = [term, ("PAGER", "more"), ("TXOS_PAGER", "less -S")];
        assert_eq!(of(true, &both), Pager::Named("less -S".into()));
        assert_eq!(of(true, &[term, ("PAGER", "more"), ("TXOS_PAGER", "")]), Pager::None);
    }

    #[test]
    fn what_fits_on_a_screen() {
        let full = |text: &str| Screen::new(3, 10).is_full_with(text.as_bytes());
        assert!(!full("1\n2\n3\n"));
        assert!(full("1\n2\n3\n4\n"));
        assert!(!full("1234567890\n1234567890\n1234567890\n"));
        assert!(full("1234567890x\n1\n2\n"));
        assert!(!full("\u{1b}[1m1234567890\u{1b}[0m\näöüäöüäöüä\n3\n"));
        assert!(full("\t123\n1\n2\n"));
        assert!(!full("\t12\n1\n2\n"));
    }
}
