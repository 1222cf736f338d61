//! Memory shared with the processes of a transaction: [`txos_recorder::area`].
//!
//! # Safety
//!
//! The mapping is [`area::SIZE`] bytes, of two memory files that were made that large here and can't shrink
//! (they are sealed): the control page at its beginning, the tables after it. It lives as long as the [`Area`], and is only ever read and
//! written by atomic instructions, at aligned offsets below its size.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use txos_recorder::area;

/// The supervisor's side of the area.
#[derive(Debug)]
pub struct Area {
    at: *mut u8,
    /// For reading.
    control: Arc<OwnedFd>,
    tables: Arc<OwnedFd>,
}

// SAFETY: the mapping belongs to no thread, and all its words are atomic.
unsafe impl Send for Area {}

impl Area {
    /// A new one, with nothing in it.
    ///
    /// # Errors
    /// If there is no memory, or no memory files.
    pub fn new() -> io::Result<Area> {
        let control = sealed(c"txos-control", area::SEEN)?;
        let tables = sealed(c"txos-recorded", area::SIZE)?;
        let mut header = [0; area::AT_OFF];
        if let Some(magic) = header.get_mut(..area::AT_VERSION) {
            magic.copy_from_slice(&area::MAGIC);
        }
        if let Some(version) = header.get_mut(area::AT_VERSION..) {
            version.copy_from_slice(&area::VERSION.to_le_bytes());
        }
        rustix::io::pwrite(&control, &header, 0)?;
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&control));
        let readable = rustix::fs::open(link, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, and one over its beginning.
        let at = unsafe {
            let at = rustix::mm::mmap(
                std::ptr::null_mut(),
                area::SIZE,
                access,
                MapFlags::SHARED,
                &tables,
                0,
            )?;
            let over = MapFlags::SHARED | MapFlags::FIXED;
            if let Err(e) = rustix::mm::mmap(at, area::SEEN, access, over, &control, 0) {
                let _ = rustix::mm::munmap(at, area::SIZE);
                return Err(e.into());
            }
            at
        };
        Ok(Area { at: at.cast(), control: Arc::new(readable), tables: Arc::new(tables) })
    }

    /// The descriptor of the control page: for reading.
    #[must_use]
    pub fn control(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.control)
    }

    /// The descriptor of the tables.
    #[must_use]
    pub fn tables(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.tables)
    }

    /// From now on every call is told.
    pub fn turn_off(&self) {
        // SAFETY: see the module's heading.
        unsafe { &*self.at.add(area::AT_OFF).cast::<AtomicU32>() }.store(1, Ordering::SeqCst);
    }

    fn generation_word(&self) -> &AtomicU64 {
        // SAFETY: see the module's heading.
        unsafe { &*self.at.add(area::AT_GENERATION).cast::<AtomicU64>() }
    }

    /// What is part of every key.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation_word().load(Ordering::SeqCst)
    }

    /// From now on nothing was seen.
    pub fn begin_generation(&self) {
        self.generation_word().fetch_add(1, Ordering::SeqCst);
    }
}

impl Area {
    fn ahead(&self, slot: usize) -> &AtomicU64 {
        let at = area::AHEAD + 8 * (slot & (area::AHEAD_SLOTS - 1));
        // SAFETY: see the module's heading.
        unsafe { &*self.at.add(at).cast::<AtomicU64>() }
    }

    /// Says that what this key stands for was observed ahead: in which slot; `None` if there is no room.
    #[must_use]
    pub fn put_ahead(&self, key: u64) -> Option<usize> {
        (0..area::WINDOW).map(|step| area::slot(key, step, area::AHEAD_SLOTS)).find(|&slot| {
            // Nobody else fills slots.
            let free = self.ahead(slot).load(Ordering::SeqCst) == 0;
            if free {
                self.ahead(slot).store(key, Ordering::SeqCst);
            }
            free
        })
    }

    /// Takes a key back; whether somebody went by it.
    #[must_use]
    pub fn take_ahead(&self, slot: usize, key: u64) -> bool {
        let word = self.ahead(slot);
        let unused = word.compare_exchange(key, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if !unused {
            word.store(0, Ordering::SeqCst);
        }
        !unused
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.at.cast(), area::SIZE) };
    }
}

/// A file in memory of this size for good, which nobody else can open by another way than ours.
fn sealed(name: &CStr, size: usize) -> io::Result<OwnedFd> {
    let fd = memory_file(name, MemfdFlags::empty())?;
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(0o600))?;
    rustix::fs::ftruncate(&fd, size as u64)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(fd)
}

/// A file in memory.
fn memory_file(name: &CStr, flags: MemfdFlags) -> io::Result<OwnedFd> {
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(rustix::fs::memfd_create(name, flags)?)
}

/// A file in memory with this content.
///
/// # Errors
/// If there are no memory files.
pub fn list(content: &[u8]) -> io::Result<OwnedFd> {
    let fd = memory_file(c"txos-preload", MemfdFlags::empty())?;
    rustix::io::pwrite(&fd, content, 0)?;
    Ok(fd)
}

/// The recorder's library as a file in memory, which nobody can change.
///
/// # Errors
/// If there are no memory files, or none that can be executed.
pub fn library() -> io::Result<OwnedFd> {
    if txos_recorder::LIBRARY.is_empty() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let name = c"libtxosrecorder.so";
    // Before Linux 6.3 the flag is unknown, and every memory file can be executed.
    let fd =
        memory_file(name, MemfdFlags::EXEC).or_else(|_| memory_file(name, MemfdFlags::empty()))?;
    let mut rest = txos_recorder::LIBRARY;
    while !rest.is_empty() {
        let written = rustix::io::write(&fd, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&fd, seals)?;
    Ok(fd)
}
