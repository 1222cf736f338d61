//! The process that serves a disk and records what happens to it, and the hold that a test has of it.
//!
//! `block-recorder IMAGE LOG POINT` serves the file IMAGE as POINT/disk and appends what is written and
//! flushed to LOG. A line `mark TEXT` on its standard input appends a mark; it is answered by a line once
//! it is in the log. It ends when its standard input does, or the file system is unmounted.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;

use super::fuse::{Connection, Disk, FILE_NAME};
use super::log::{self, Log};

/// The file that is served, and the log.
struct Recorded {
    image: File,
    len: u64,
    log: BufWriter<File>,
}

impl Disk for Recorded {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(room) = into.get_mut(done..).filter(|room| !room.is_empty()) {
            match self.image.read_at(room, at + done as u64)? {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if at.checked_add(bytes.len() as u64).is_none_or(|end| end > self.len) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        log::put_write(&mut self.log, at, bytes)?;
        self.image.write_all_at(bytes, at)
    }

    fn flush(&mut self) -> io::Result<()> {
        log::put_flush(&mut self.log)
    }
}

/// What is mounted from the disk later is not this process's: if it were the last to hold it, the kernel would wait
/// at its end for flushes that it does not answer any more.
#[allow(unsafe_code)]
fn leave_mounts_to_others() -> io::Result<()> {
    // SAFETY: this process has one thread, and goes on with descriptors alone.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", flags)?)
}

/// Runs the recorder.
///
/// # Errors
/// Whatever keeps it from serving.
pub fn main() -> io::Result<()> {
    let mut args = std::env::args_os().skip(1);
    let mut next = || args.next().map(PathBuf::from).ok_or_else(|| io::Error::other("arguments"));
    let (image, log, point) = (next()?, next()?, next()?);
    let image = OpenOptions::new().read(true).write(true).open(image)?;
    let len = image.metadata()?.len();
    let log = BufWriter::new(OpenOptions::new().append(true).create(true).open(log)?);
    let mut disk = Recorded { image, len, log };
    let mut connection = Connection::mount(&point)?;
    leave_mounts_to_others()?;
    let input = io::stdin();
    let mut line = Vec::new();
    let mut output = io::stdout().lock();
    output.write_all(b"ready\n")?;
    output.flush()?;
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let [served, told] = fds.map(|fd| !fd.revents().is_empty());
        if served {
            if !connection.serve_one(&mut disk)? {
                return disk.log.flush();
            }
            continue;
        }
        if told {
            // One byte at a time: nothing waits in a buffer that poll knows nothing of.
            let mut byte = [0];
            match rustix::io::read(&input, &mut byte)? {
                0 => return disk.log.flush(),
                _ if byte != *b"\n" => line.extend(byte),
                _ => {
                    log::put_mark(&mut disk.log, &String::from_utf8_lossy(&line))?;
                    disk.log.flush()?;
                    line.clear();
                    output.write_all(b"ok\n")?;
                    output.flush()?;
                }
            }
        }
    }
}

/// A disk that is being recorded.
#[derive(Debug)]
pub struct Recorder {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    log: PathBuf,
    point: PathBuf,
}

impl Recorder {
    /// Serves an image file. `program` is the binary `block-recorder`, `dir` an empty directory.
    ///
    /// # Panics
    /// If it can't be started.
    #[must_use]
    pub fn start(program: &Path, image: &Path, dir: &Path) -> Recorder {
        let (log, point) = (dir.join("log"), dir.join("served"));
        std::fs::create_dir_all(&point).expect("a place to serve at");
        let _ = std::fs::remove_file(&log);
        let mut child = Command::new(program)
            .args([image, &log, &point])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starting the recorder");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut recorder = Recorder { child, input, output, log, point };
        recorder.expect_line("ready");
        recorder
    }

    fn expect_line(&mut self, expected: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("reading from the recorder");
        assert_eq!(line.trim_end(), expected, "the recorder has ended");
    }

    /// The file that stands for the disk.
    #[must_use]
    pub fn disk(&self) -> PathBuf {
        self.point.join(FILE_NAME)
    }

    /// Puts a mark behind everything that has been recorded.
    ///
    /// # Panics
    /// If the recorder has ended.
    pub fn mark(&mut self, text: &str) {
        let input = self.input.as_mut().expect("a pipe");
        input.write_all(format!("{text}\n").as_bytes()).expect("telling the recorder");
        self.expect_line("ok");
    }

    /// Everything recorded so far.
    ///
    /// # Panics
    /// If it can't be read.
    #[must_use]
    pub fn log(&mut self) -> Log {
        self.mark("end");
        Log::read(&self.log).expect("reading the log")
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // What is mounted from it is unmounted by now, or gets errors.
        let _ = rustix::mount::unmount(&self.point, UnmountFlags::DETACH);
        drop(self.input.take());
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.log);
    }
}
