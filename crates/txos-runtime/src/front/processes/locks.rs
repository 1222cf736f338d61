//! Record locks (fcntl(2)) between processes of a transaction.
//!
//! To the kernel the server is the owner of all of them, which never excludes itself. So each file that is locked has
//! a file in memory here, of which each process has an open file description of its own, and the kernel keeps
//! them apart by those (F_OFD_SETLK). Against outsiders the server's own lock counts.

#![allow(unsafe_code)] // fcntl

use std::collections::BTreeMap;

use crate::raw::{Errno, Sys, check, syscall};
use crate::tx::kernel;
use crate::tx::node::Id;
use crate::tx::spaces::Lockable;

/// The locks of all processes.
#[derive(Debug, Default)]
pub struct Locks {
    /// The file in memory of a file.
    files: BTreeMap<Id, i32>,
    /// The description of it that a process has, by its space.
    owned: BTreeMap<(i32, Id), i32>,
}

impl Locks {
    /// Takes, frees or asks for a lock: what `command` says, without waiting. `lock` is with offsets from the start.
    ///
    /// # Errors
    /// As `fcntl(2)`.
    pub fn ask(
        &mut self,
        space: i32,
        file: &Lockable,
        command: i32,
        lock: &mut libc::flock,
    ) -> Sys<()> {
        let missing = match i32::from(lock.l_type) {
            libc::F_RDLCK => !file.reads,
            libc::F_WRLCK => !file.writes,
            _ => false,
        };
        if missing && command != libc::F_GETLK {
            return Err(Errno::BADF);
        }
        let start = match i32::from(lock.l_whence) {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => file.offset,
            libc::SEEK_END => file.size,
            _ => return Err(Errno::INVAL),
        };
        lock.l_whence = libc::SEEK_SET as i16;
        lock.l_start = lock.l_start.checked_add(start).ok_or(Errno::OVERFLOW)?;
        lock.l_pid = 0;
        let fd = self.description(space, file.id)?;
        let command = match command {
            libc::F_GETLK => libc::F_OFD_GETLK,
            _ => libc::F_OFD_SETLK,
        };
        let words = [fd as u64, command as u64, std::ptr::from_mut(lock) as u64, 0, 0, 0];
        // SAFETY: the kernel reads the structure, and may write it.
        check(unsafe { syscall(libc::SYS_fcntl, words) }).map(drop)
    }

    /// Whether no process has asked for a lock that it could still have.
    pub fn is_empty(&self) -> bool {
        self.owned.is_empty()
    }

    fn description(&mut self, space: i32, id: Id) -> Sys<i32> {
        if let Some(&fd) = self.owned.get(&(space, id)) {
            return Ok(fd);
        }
        let memory = match self.files.get(&id) {
            Some(&memory) => memory,
            None => {
                let memory = kernel::memory_file(c"txos locks")?;
                let memory = kernel::move_high(memory).unwrap_or(memory);
                self.files.insert(id, memory);
                memory
            }
        };
        let fd = kernel::open(&kernel::magic_path(memory), libc::O_RDWR | libc::O_CLOEXEC, 0)?;
        let fd = kernel::move_high(fd).unwrap_or(fd);
        self.owned.insert((space, id), fd);
        Ok(fd)
    }

    /// A process has closed a file: its locks on it are gone, whatever else it has open.
    pub fn closed(&mut self, space: i32, id: Id) {
        if let Some(fd) = self.owned.remove(&(space, id)) {
            kernel::close(fd);
        }
    }

    /// A process has closed the files for which that says so.
    pub fn closed_all(&mut self, space: i32, is_closed: impl Fn(Id) -> bool) {
        let gone = self.owned.keys().filter(|(owner, id)| *owner == space && is_closed(*id));
        for (_, id) in gone.copied().collect::<Vec<_>>() {
            self.closed(space, id);
        }
    }
}
