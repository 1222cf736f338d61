//! Held output: what the command prints is kept in an unlinked file until it is known whether the
//! transaction commits.
//!
//! The file is a sequence of records: one byte (1 or 2, the descriptor), four bytes (length,
//! little-endian), then that many bytes. Records are in the order in which they were read; what
//! was written to the two descriptors between two looks of ours comes in their order of number.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use super::brief::{self, Brief};
use crate::error::{Result, Step};

/// Largest record.
const RECORD_MAX: usize = 64 * 1024;

/// What is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// Nothing.
    #[default]
    No,
    /// What goes into a pipe, for a moment ([`brief`]).
    Briefly,
    /// Everything, until the transaction commits.
    Fully,
}

/// Output of a command that has ended.
#[derive(Debug, Default)]
pub enum Output {
    /// None of it was held.
    #[default]
    Free,
    /// Held for a moment.
    Brief(Brief),
    /// Held until the commit.
    Held(Held),
}

impl Output {
    /// Whether output that is held for a moment only is out.
    #[must_use]
    pub fn has_printed(&self) -> bool {
        matches!(self, Output::Brief(brief) if brief.is_passed())
    }

    /// Passes on output that is held for a moment only: the command is not run again.
    pub fn pass_on(&mut self) {
        if let Output::Brief(brief) = self {
            brief.pass();
        }
    }

    /// Before the command is run again: drops what was held; `false` if some of it could not be held for so long.
    #[must_use]
    pub fn forget_held(&mut self) -> bool {
        match std::mem::take(self) {
            Output::Brief(mut brief) => brief.forget(),
            Output::Free | Output::Held(_) => true,
        }
    }
}

/// The reading ends, before the collecting begins.
pub enum AllEnds {
    /// Nothing is held.
    Free,
    /// Held for a moment.
    Brief(brief::Ends),
    /// Held until the commit.
    Held(Ends),
}

/// What collects.
pub enum Collecting {
    /// Nothing is held.
    Free,
    /// Held for a moment.
    Brief(Brief),
    /// Held until the commit.
    Held(Holding),
}

/// Makes what holds the output; gives the writing ends for the command.
///
/// # Errors
/// If a pipe or the spool can't be made.
pub fn prepare(hold: Hold, spool_dir: &Path) -> Result<(AllEnds, [Option<OwnedFd>; 2])> {
    match hold {
        Hold::No => Ok((AllEnds::Free, [None, None])),
        Hold::Briefly => Ok(match brief::prepare()? {
            Some((ends, writing)) => (AllEnds::Brief(ends), writing),
            None => (AllEnds::Free, [None, None]),
        }),
        Hold::Fully => {
            let (ends, (out, err)) = prepare_spool(spool_dir)?;
            Ok((AllEnds::Held(ends), [Some(out), Some(err)]))
        }
    }
}

impl AllEnds {
    /// Starts collecting.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn collect(self) -> Result<Collecting> {
        Ok(match self {
            AllEnds::Free => Collecting::Free,
            AllEnds::Brief(ends) => Collecting::Brief(ends.hold()?),
            AllEnds::Held(ends) => Collecting::Held(ends.collect()?),
        })
    }
}

impl Collecting {
    /// Every process of the transaction has ended: the rest is read, and that is it.
    ///
    /// # Errors
    /// If the spool could not be written (no space left).
    pub fn finish(self) -> Result<Output> {
        Ok(match self {
            Collecting::Free => Output::Free,
            Collecting::Brief(mut brief) => {
                brief.finish();
                Output::Brief(brief)
            }
            Collecting::Held(holding) => Output::Held(holding.finish()?),
        })
    }
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out = 1,
    /// Standard error.
    Err = 2,
}

/// Output that is being collected.
pub struct Holding {
    collector: JoinHandle<io::Result<File>>,
    over: OwnedFd,
}

/// Output that was collected.
#[derive(Debug)]
pub struct Held {
    spool: File,
}

/// Makes the pipes and the spool; gives the writing ends for the command, and what starts the
/// collector once the reaper is forked.
///
/// # Errors
/// If a pipe or the spool can't be made.
fn prepare_spool(spool_dir: &Path) -> Result<(Ends, (OwnedFd, OwnedFd))> {
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step("making a pipe");
    let ((out_read, out_write), (err_read, err_write)) = (pipe()?, pipe()?);
    let (over_read, over_write) = pipe()?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let spool = rustix::fs::openat(CWD, spool_dir, flags, Mode::RUSR | Mode::WUSR)
        .step("making the file for held output")?;
    let ends = Ends { read: [out_read, err_read], over_read, over_write, spool: spool.into() };
    Ok((ends, (out_write, err_write)))
}

/// The reading ends.
pub struct Ends {
    read: [OwnedFd; 2],
    over_read: OwnedFd,
    over_write: OwnedFd,
    spool: File,
}

impl Ends {
    /// Starts collecting.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn collect(self) -> Result<Holding> {
        let Ends { read, over_read, over_write, mut spool } = self;
        let collector = std::thread::Builder::new()
            .name("txos-output".into())
            .spawn(move || {
                collect(&read, &over_read, &mut spool)?;
                Ok(spool)
            })
            .step("starting the thread for held output")?;
        Ok(Holding { collector, over: over_write })
    }
}

/// Reads until both pipes are closed, or, when told that it is over, until they are empty.
fn collect(read: &[OwnedFd; 2], over: &OwnedFd, spool: &mut File) -> io::Result<()> {
    let mut open = [true, true];
    let mut buffer = vec![0u8; RECORD_MAX];
    while open.contains(&true) {
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(over, PollFlags::IN)];
        let which: Vec<usize> = (0..2).filter(|&i| open.get(i) == Some(&true)).collect();
        for fd in which.iter().filter_map(|&i| read.get(i)) {
            fds.push(PollFd::new(fd, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        let mut nothing = true;
        for (&i, events) in which.iter().zip(ready.get(1..).unwrap_or_default()) {
            let Some(fd) = read.get(i).filter(|_| !events.is_empty()) else { continue };
            nothing = false;
            let got = match rustix::io::read(fd, &mut buffer[..]) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            if got == 0 {
                if let Some(o) = open.get_mut(i) {
                    *o = false;
                }
                continue;
            }
            let mut header = [i as u8 + 1, 0, 0, 0, 0];
            if let Some(len) = header.get_mut(1..) {
                len.copy_from_slice(&(got as u32).to_le_bytes());
            }
            spool.write_all(&header)?;
            spool.write_all(buffer.get(..got).unwrap_or_default())?;
        }
        // Somebody outside may have been given a writing end: don't wait for him.
        if nothing {
            break;
        }
    }
    Ok(())
}

impl Holding {
    /// Every process of the transaction has ended: the rest is read, and that is it.
    ///
    /// # Errors
    /// If the spool could not be written (no space left).
    pub fn finish(self) -> Result<Held> {
        drop(self.over);
        let spool = self
            .collector
            .join()
            .map_err(|_| io::Error::other("its thread failed"))
            .and_then(|r| r)
            .step("holding the command's output")?;
        Ok(Held { spool })
    }
}

impl Held {
    /// Prints what was held: all of it, or one stream only.
    ///
    /// # Errors
    /// If the spool can't be read or the output not be written.
    pub fn print(&mut self, only: Option<Stream>) -> io::Result<()> {
        self.spool.seek(SeekFrom::Start(0))?;
        let mut spool = BufReader::with_capacity(RECORD_MAX, &self.spool);
        let mut header = [0u8; 5];
        let mut bytes = Vec::new();
        loop {
            match spool.read_exact(&mut header) {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                other => other?,
            }
            let [which, len @ ..] = header;
            bytes.resize(u32::from_le_bytes(len) as usize, 0);
            spool.read_exact(&mut bytes)?;
            let fd = if which == Stream::Out as u8 {
                rustix::stdio::stdout()
            } else {
                rustix::stdio::stderr()
            };
            if only.is_none_or(|o| o as u8 == which) {
                write_all(fd.as_fd(), &bytes)?;
            }
        }
    }
}

fn write_all(fd: std::os::fd::BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
