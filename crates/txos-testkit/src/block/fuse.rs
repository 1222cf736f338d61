//! The FUSE protocol, as far as one regular file needs it: `fuse(4)`, `linux/fuse.h`, protocol 7.31.
//!
//! Everything is a message of little numbers in the machine's byte order; they are taken apart and put
//! together byte by byte here. The file is opened with `FOPEN_DIRECT_IO`: no page of it is ever cached, so
//! that each read and write of the loop device is one message, in its time.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::mount::MountFlags;

/// Most bytes that one write has.
const WRITE_MAX: usize = 1 << 20;
/// Room for a request: the longest write with its headers.
const REQUEST_MAX: usize = WRITE_MAX + 4096;
/// Bytes of the header of a request.
const IN_HEADER: usize = 40;
/// Bytes of the header of a `WRITE`.
const WRITE_HEADER: usize = 40;

/// The one file's node; the root directory's is 1.
const FILE_NODE: u64 = 2;
/// Its name.
pub const FILE_NAME: &str = "disk";

const BIG_WRITES: u32 = 1 << 5;
const MAX_PAGES: u32 = 1 << 22;
const DIRECT_IO: u32 = 1;

/// What is served.
pub trait Disk {
    /// Its length; it never changes.
    fn len(&self) -> u64;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads, as much as there is.
    ///
    /// # Errors
    /// As the medium says.
    fn read(&mut self, at: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes all of it.
    ///
    /// # Errors
    /// As the medium says.
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Everything written so far is to be on the medium.
    ///
    /// # Errors
    /// As the medium says.
    fn flush(&mut self) -> io::Result<()>;
}

/// The connection to the kernel.
#[derive(Debug)]
pub struct Connection {
    device: File,
    buffer: Vec<u8>,
}

impl Connection {
    /// Mounts at a directory. `FILE_NAME` in it is the disk.
    ///
    /// # Errors
    /// Of opening `/dev/fuse`, or of `mount(2)`.
    pub fn mount(point: &Path) -> io::Result<Connection> {
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let data = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions",
            device.as_raw_fd()
        );
        let data = std::ffi::CString::new(data)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        rustix::mount::mount("txos-blocks", point, "fuse", flags, Some(&*data))?;
        Ok(Connection { device, buffer: vec![0; REQUEST_MAX] })
    }

    /// What becomes readable when there is a request.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Takes one request and answers it; `false` if the file system is mounted no more.
    ///
    /// # Errors
    /// If the kernel takes no answer.
    pub fn serve_one(&mut self, disk: &mut dyn Disk) -> io::Result<bool> {
        let n = match self.device.read(&mut self.buffer) {
            Ok(n) => n,
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return Ok(false),
            // The request was taken back.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(true),
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {
                return Ok(true);
            }
            Err(e) => return Err(e),
        };
        let request = self.buffer.get(..n).unwrap_or_default();
        let (Some(opcode), Some(unique), Some(node)) =
            (u32_at(request, 4), u64_at(request, 8), u64_at(request, 16))
        else {
            return Ok(true);
        };
        let body = request.get(IN_HEADER..).unwrap_or_default();
        let Some(answer) = answer(opcode, node, body, disk) else { return Ok(true) };
        let (error, payload) = match answer {
            Ok(payload) => (0, payload),
            Err(errno) => (-errno, Vec::new()),
        };
        let mut out = Vec::with_capacity(16 + payload.len());
        let length = u32::try_from(16 + payload.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&length.to_ne_bytes());
        out.extend_from_slice(&error.to_ne_bytes());
        out.extend_from_slice(&unique.to_ne_bytes());
        out.extend_from_slice(&payload);
        match self.device.write_all(&out) {
            // It was interrupted meanwhile; nobody waits for the answer.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(true),
            other => other.map(|()| true),
        }
    }
}

/// The answer to a request; `None` for those that get none.
fn answer(
    opcode: u32,
    node: u64,
    body: &[u8],
    disk: &mut dyn Disk,
) -> Option<Result<Vec<u8>, i32>> {
    const LOOKUP: u32 = 1;
    const FORGET: u32 = 2;
    const GETATTR: u32 = 3;
    const SETATTR: u32 = 4;
    const OPEN: u32 = 14;
    const READ: u32 = 15;
    const WRITE: u32 = 16;
    const STATFS: u32 = 17;
    const RELEASE: u32 = 18;
    const FSYNC: u32 = 20;
    const FLUSH: u32 = 25;
    const INIT: u32 = 26;
    const OPENDIR: u32 = 27;
    const RELEASEDIR: u32 = 29;
    const INTERRUPT: u32 = 36;
    const DESTROY: u32 = 38;
    const BATCH_FORGET: u32 = 42;

    let failed = |e: io::Error| e.raw_os_error().unwrap_or(libc::EIO);
    Some(match opcode {
        FORGET | BATCH_FORGET | INTERRUPT => return None,
        INIT => Ok(init(body)),
        LOOKUP if body.strip_suffix(b"\0") == Some(FILE_NAME.as_bytes()) => Ok(entry(disk.len())),
        LOOKUP => Err(libc::ENOENT),
        GETATTR | SETATTR => Ok(attr_out(node, disk.len())),
        OPEN => Ok(opened(DIRECT_IO)),
        OPENDIR => Ok(opened(0)),
        READ => match (u64_at(body, 8), u32_at(body, 16)) {
            (Some(at), Some(size)) => {
                let mut bytes = vec![0; (size as usize).min(WRITE_MAX)];
                disk.read(at, &mut bytes).map_err(failed).map(|n| {
                    bytes.truncate(n);
                    bytes
                })
            }
            _ => Err(libc::EINVAL),
        },
        WRITE => match (u64_at(body, 8), u32_at(body, 16)) {
            (Some(at), Some(size)) => {
                match body.get(WRITE_HEADER..).and_then(|b| b.get(..size as usize)) {
                    Some(bytes) => disk.write(at, bytes).map_err(failed).map(|()| {
                        let mut out = size.to_ne_bytes().to_vec();
                        out.extend_from_slice(&[0; 4]);
                        out
                    }),
                    None => Err(libc::EINVAL),
                }
            }
            _ => Err(libc::EINVAL),
        },
        FSYNC => disk.flush().map_err(failed).map(|()| Vec::new()),
        STATFS => Ok(vec![0; 80]),
        RELEASE | RELEASEDIR | FLUSH | DESTROY => Ok(Vec::new()),
        _ => Err(libc::ENOSYS),
    })
}

/// `struct fuse_init_out`.
fn init(body: &[u8]) -> Vec<u8> {
    let readahead = u32_at(body, 8).unwrap_or(0);
    let offered = u32_at(body, 12).unwrap_or(0);
    let mut out = Vec::with_capacity(64);
    for word in [7, 31, readahead, offered & (BIG_WRITES | MAX_PAGES)] {
        out.extend_from_slice(&u32::to_ne_bytes(word));
    }
    // Requests in the background at most, and how many are a congestion.
    out.extend_from_slice(&u16::to_ne_bytes(64));
    out.extend_from_slice(&u16::to_ne_bytes(48));
    out.extend_from_slice(&u32::to_ne_bytes(WRITE_MAX as u32));
    // Granularity of times; pages of a request.
    out.extend_from_slice(&u32::to_ne_bytes(1));
    out.extend_from_slice(&u16::to_ne_bytes((WRITE_MAX / 4096) as u16));
    out.resize(64, 0);
    out
}

/// `struct fuse_attr`.
fn attr(node: u64, len: u64) -> Vec<u8> {
    let (mode, size) =
        if node == FILE_NODE { (libc::S_IFREG | 0o600, len) } else { (libc::S_IFDIR | 0o700, 0) };
    let mut out = Vec::with_capacity(88);
    for word in [node, size, size.div_ceil(512), 0, 0, 0] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    // Nanoseconds of three times; mode, links, owner, group, device, block size, flags.
    for word in [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
        out.extend_from_slice(&u32::to_ne_bytes(word));
    }
    out
}

/// `struct fuse_attr_out`: valid for an hour, as nothing changes.
fn attr_out(node: u64, len: u64) -> Vec<u8> {
    let mut out = 3600_u64.to_ne_bytes().to_vec();
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&attr(node, len));
    out
}

/// `struct fuse_entry_out` of the file.
fn entry(len: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    for word in [FILE_NODE, 0, 3600, 3600] {
        out.extend_from_slice(&u64::to_ne_bytes(word));
    }
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&attr(FILE_NODE, len));
    out
}

/// `struct fuse_open_out`.
fn opened(flags: u32) -> Vec<u8> {
    let mut out = vec![0; 16];
    if let Some(place) = out.get_mut(8..12) {
        place.copy_from_slice(&flags.to_ne_bytes());
    }
    out
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
