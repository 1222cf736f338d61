//! Other processes' memory and descriptors: `process_vm_writev`, `move_pages`, `migrate_pages`, `pidfd_getfd`.
//!
//! | call | on a process outside |
//! |---|---|
//! | `process_vm_writev` | held. Whether the caller may, and how much of the memory there can be written, is found in the call. What is unmapped between that and the commit is reported then |
//! | `move_pages`, `migrate_pages` | held: it is where memory lies, not what it holds |
//! | `pidfd_getfd` | taken at once, as if the descriptor had been there before; an abort closes it |
//!
//! The process's own memory is no part of the transaction: calls on that are made at once, as those of members on each other's.
#![allow(unsafe_code)] // calls with arrays of ours

use std::sync::Arc;

use txos_engine::object::FileKind;

use super::deferred::{Deferred, Outsider};
use super::io::what_is_there;
use super::kernel::{self, Errno, OwnedFd, Sys};
use super::node::{Id, Stable};
use super::received::Receiving;
use super::{Tx, say};
use crate::call::Call;
use crate::user::{UserSlice, length_of};

/// Nodes of memory that a kernel may have: `MAX_NUMNODES` at the most.
const NODES: i32 = 1024;
/// `CAP_SYS_NICE`, as a bit.
const SYS_NICE: u64 = 1 << 23;
/// `MPOL_MF_MOVE`, `MPOL_MF_MOVE_ALL`.
const MOVE: u64 = 2;
const MOVE_ALL: u64 = 4;

/// What goes out before a wait, in words.
const WRITTEN: &str =
    "writing to another process's memory, which was held, before the transaction waits,";

/// What a member has at the number of an open file of the transaction's.
const PLACEHOLDER: &[u8] = b"/memfd:txos: open in a transaction (deleted)";

/// Whether a call that is held of others concerns the memory of this process.
pub fn is_of_this_process(call: &Call) -> bool {
    let number = call.int(0);
    match call.number() {
        libc::SYS_move_pages | libc::SYS_migrate_pages if number == 0 => true,
        libc::SYS_process_vm_writev | libc::SYS_move_pages | libc::SYS_migrate_pages => {
            let own = kernel::own_process();
            number == own || number > 0 && kernel::process_of_thread(number) == Some(own)
        }
        _ => false,
    }
}

/// Memory of a process that it can write to.
struct Writable(Vec<(u64, u64)>);

impl Writable {
    /// As `/proc` has it.
    fn of(process: i32) -> Sys<Writable> {
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps"));
        let maps = maps.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Errno::SRCH,
            _ => Errno::PERM,
        })?;
        Ok(Writable(maps.lines().filter_map(writable_range).collect()))
    }

    /// So many of the bytes at an address, up to `len`.
    fn from(&self, at: u64, len: u64) -> u64 {
        let mut end = at;
        // They are in order.
        for &(from, to) in &self.0 {
            if (from..to).contains(&end) {
                end = to;
            }
        }
        (end - at).min(len)
    }
}

/// The range in a line of `/proc/PID/maps`, if it can be written to.
fn writable_range(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    if words.next()?.as_bytes().get(1) != Some(&b'w') {
        return None;
    }
    Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
}

/// What is done with a call that concerns another process's memory.
pub enum OfAnother {
    /// The kernel answers it at once.
    Natively,
    /// There is nothing to do, and 0 is the answer.
    Nothing,
    /// It is held, and answered so.
    Later(Box<Deferred>, u64),
}

impl OfAnother {
    fn later(call: Deferred, answer: u64) -> Sys<OfAnother> {
        Ok(OfAnother::Later(Box::new(call), answer))
    }
}

impl Tx {
    /// A call that concerns another process's memory.
    ///
    /// # Errors
    /// As natively; ENOMEM or EAGAIN if no more can be held.
    pub fn of_another_process(&mut self, call: &Call) -> Sys<OfAnother> {
        match call.number() {
            libc::SYS_process_vm_writev => self.write_to_another(call),
            libc::SYS_move_pages => self.move_pages_of_another(call),
            libc::SYS_migrate_pages => self.migrate_pages_of_another(call),
            _ => Ok(OfAnother::Natively),
        }
    }

    /// The process of the thread that a call names. It is held by the process's number: a thread's may become another's.
    fn concerned(&mut self, call: &Call) -> Sys<Arc<Outsider>> {
        let thread = call.int(0);
        if thread <= 0 {
            return Err(Errno::SRCH);
        }
        self.held.outsider(kernel::process_of_thread(thread).unwrap_or(thread), false)
    }

    fn write_to_another(&mut self, call: &Call) -> Sys<OfAnother> {
        if call.word(5) != 0 {
            return Err(Errno::INVAL);
        }
        let bytes = call.pointer::<[u64; 2]>(1).buffers(call.word(2))?;
        if !bytes.iter().all(|piece| piece.is_possible()) {
            return Err(Errno::FAULT);
        }
        let here = length_of(&bytes);
        if here == 0 {
            return Ok(OfAnother::Nothing);
        }
        let there = call.pointer::<[u64; 2]>(3).buffers(call.word(4))?;
        let Some(start) = there.iter().find(|piece| !piece.is_empty()) else {
            return Ok(OfAnother::Nothing);
        };
        // It is held before it is looked at: what is seen is of this process.
        let process = self.concerned(call)?.number();
        may_write(process, start.address())?;
        let outsider = match self.held.outsider(process, true) {
            Err(Errno::NOENT | Errno::SRCH) => return Err(Errno::SRCH),
            Err(Errno::ACCESS) => return Err(Errno::PERM),
            outsider => outsider?,
        };
        let writable = Writable::of(process)?;
        // As far as there is memory: so far the kernel would get.
        let (mut left, mut ranges) = (here, Vec::new());
        for piece in there.iter().filter(|piece| !piece.is_empty()) {
            let wanted = piece.len().min(left);
            let there = writable.from(piece.address(), wanted);
            if there > 0 {
                ranges.push([piece.address(), there]);
                left -= there;
            }
            if there < wanted || left == 0 {
                break;
            }
        }
        if ranges.is_empty() {
            return Err(Errno::FAULT);
        }
        let copy = self.copy_to_hold(bytes, here - left)?;
        // The program's own memory may end before.
        let mut left = copy.len() as u64;
        for [_, len] in &mut ranges {
            *len = left.min(*len);
            left -= *len;
        }
        ranges.retain(|[_, len]| *len > 0);
        let (count, answer) = (ranges.len() as u64, copy.len() as u64);
        let table = ranges.as_flattened().iter().flat_map(|word| word.to_ne_bytes()).collect();
        let later = Deferred::of(call).memory(3, table).buffer(1, copy);
        let later = later.number_at(0, process as u64).number_at(2, 1).number_at(4, count);
        OfAnother::later(later.of_process(outsider), answer)
    }

    /// What others' memory is to have is written now: they may be waiting for that.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn release_memory(&mut self) -> Sys<()> {
        if !self.held.holds_memory() {
            return Ok(());
        }
        self.unsupported_call(WRITTEN, b"")?;
        let output = &mut self.held.output;
        output.went_out = true;
        output.forget_waits();
        self.held.send_memory().iter().for_each(|failure| say(failure));
        Ok(())
    }

    /// A copy of the first bytes of the program's buffers, if so many may be held; of fewer, if there are no more.
    fn copy_to_hold(&mut self, buffers: Vec<UserSlice>, count: u64) -> Sys<Vec<u8>> {
        self.may_hold_bytes(count)?;
        let mut copy = Vec::new();
        copy.try_reserve_exact(count as usize).map_err(|_| Errno::NOMEM)?;
        let mut left = count;
        let buffers = buffers.into_iter().map(|buffer| {
            let first = buffer.first(left);
            left -= first.len();
            first
        });
        for piece in what_is_there(buffers.collect())? {
            let from = copy.len();
            copy.resize(from + piece.len(), 0);
            piece.copy(0, &mut copy[from..]);
        }
        Ok(copy)
    }

    fn move_pages_of_another(&mut self, call: &Call) -> Sys<OfAnother> {
        let (count, flags) = (call.word(1), call.word(5));
        if call.word(3) == 0 || count == 0 || flags & !(MOVE | MOVE_ALL) != 0 {
            return Ok(OfAnother::Natively);
        }
        if flags & MOVE_ALL != 0 && kernel::capabilities() & SYS_NICE == 0 {
            return Err(Errno::PERM);
        }
        self.may_hold_bytes(count.saturating_mul(16))?;
        let pages = call.buffer(2, count.saturating_mul(8)).read()?;
        let nodes = call.buffer(3, count.saturating_mul(4)).read()?;
        let numbers = nodes.chunks_exact(4).map(|bytes| match *bytes {
            [a, b, c, d] => i32::from_ne_bytes([a, b, c, d]),
            _ => 0,
        });
        let numbers: Vec<i32> = numbers.collect();
        if numbers.iter().any(|node| !(0..NODES).contains(node)) {
            return Err(Errno::NODEV);
        }
        let process = self.concerned(call)?;
        // Where they are, the kernel tells those who may move them.
        // SAFETY: without nodes it reads the same arguments, and moves nothing.
        unsafe { call.with_word(3, 0) }.answer()?;
        let status = call.pointer::<i32>(4);
        for (at, node) in (0..count).zip(numbers) {
            if status.item(at).read()? >= 0 {
                status.item(at).write(node)?;
            }
        }
        let room = vec![0; count as usize * 4];
        let later = Deferred::of(call).number_at(0, process.number() as u64);
        let later = later.memory(2, pages).memory(3, nodes).memory(4, room);
        OfAnother::later(later.of_process(process), 0)
    }

    fn migrate_pages_of_another(&mut self, call: &Call) -> Sys<OfAnother> {
        let most = call.word(1);
        /// Longer masks the kernel does not take: those of more bits than a page has.
        const MASK_MAX: u64 = 4096 * 8;
        // Without nodes to go to nothing is moved.
        if !(2..=MASK_MAX).contains(&most) || call.word(3) == 0 {
            return Ok(OfAnother::Natively);
        }
        let size = (most - 1).div_ceil(64) * 8;
        // None to go from are no nodes.
        let from = match call.word(2) {
            0 => vec![0; size as usize],
            _ => call.buffer(2, size).read()?,
        };
        let to = call.buffer(3, size).read()?;
        let process = self.concerned(call)?;
        // SAFETY: without nodes to go to it asks whether the caller may, and moves nothing.
        match unsafe { call.with_word(3, 0) }.answer() {
            Ok(_) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
        let later = Deferred::of(call).number_at(0, process.number() as u64);
        let later = later.memory(2, from).memory(3, to);
        OfAnother::later(later.of_process(process), 0)
    }

    /// `pidfd_getfd(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn take_descriptor(&mut self, call: &Call) -> Sys<u64> {
        let real = self.real_without_offset(call.int(0))?;
        // It may be of a thread.
        let process = kernel::process_of_descriptor(real)
            .map(|number| kernel::process_of_thread(number).unwrap_or(number));
        if process == Some(kernel::own_process()) && call.word(2) as u32 == 0 {
            // The number is one of the transaction's.
            return self.dup(call.int(1), 0, true);
        }
        let fd = call.with_descriptor(0, real).answer()? as i32;
        self.took_descriptor(OwnedFd::of(fd).raised()?)
    }

    /// A descriptor of another process's has come. A versioned file is the transaction's, as if it had been open before: others
    /// have the offset as well.
    fn took_descriptor(&mut self, fd: OwnedFd) -> Sys<u64> {
        let kind = kernel::look_fd(fd.number())?.kind();
        if kernel::path_of_fd(fd.number()).is_ok_and(|path| path == PLACEHOLDER) {
            return self
                .unsupported_errno("an open file of the transaction of another process's of it,");
        }
        if matches!(kind, FileKind::File | FileKind::Dir) {
            let original = fd.number();
            let file = self.adopt_open(original)?;
            if self.is_of_the_transaction(original) {
                let original = self.fds.keep_private(fd.into_number());
                self.fds.adopted.insert(original);
                self.separate_offset(file)?;
                let new = kernel::duplicate(self.fds.real(original)?, 0, true)?;
                return self.number(file, new, true, 0).map(|number| number as u64);
            }
            self.forget_number(original);
        }
        let node = match kind {
            // Paths begin there.
            FileKind::Dir => Some(self.tree.live_dir(&kernel::magic_path(fd.number()))?),
            FileKind::File => None,
            _ => self.special_node(&fd)?,
        };
        let number = self.lowered(fd.into_number(), true)?;
        let file = self.file(number)?;
        let open = self.fds.get_mut(file);
        open.node = node;
        if kind == FileKind::Socket && node.is_none() {
            // What it has received was there before.
            open.receiving = Receiving::Unknown;
        }
        Ok(number as u64)
    }

    /// The versioned object that a descriptor of a FIFO, a device, a link or a socket's path leads to, if it is one: its bytes are
    /// the kernel's business, its attributes are the transaction's.
    pub fn special_node(&mut self, fd: &OwnedFd) -> Sys<Option<Id>> {
        let Ok(path) = kernel::path_of_fd(fd.number()) else { return Ok(None) };
        if !path.starts_with(b"/") {
            return Ok(None);
        }
        if let Some((&id, _)) = self.tree.made.iter().find(|(_, place)| **place == path) {
            return Ok(Some(id));
        }
        let stat = kernel::look_fd(fd.number())?;
        // What has no path any more is reached by a descriptor, which stays.
        let own = OwnedFd::of(kernel::copy_high(fd.number())?);
        let id = self.adopt_fd(own.number(), stat)?;
        let node = &self.tree.nodes[id];
        let is_reached_by_it = |stable: &Stable| stable.path == kernel::magic_path(own.number());
        let is_live = node.live;
        if node.stable.as_ref().is_some_and(is_reached_by_it) {
            self.fds.keep_private(own.into_number());
        }
        Ok(Some(id).filter(|_| !is_live))
    }
}

/// Whether the caller may write to a process's memory; the kernel says so of reading.
fn may_write(process: i32, at: u64) -> Sys<()> {
    let mut byte = 0_u8;
    let here = [(&raw mut byte) as u64, 1];
    let there = [at, 1];
    let words = [process as u64, here.as_ptr() as u64, 1, there.as_ptr() as u64, 1, 0];
    // SAFETY: there is room for the byte, and the two structures live until the answer.
    match unsafe { Call::new(libc::SYS_process_vm_readv, words) }.answer() {
        // Whether it can be written there, its map says.
        Ok(_) | Err(Errno::FAULT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_written_is_what_the_maps_say() {
        let lines = "1000-3000 rw-p 00000000 00:00 0\n3000-4000 -w-s 00000000 00:00 0\n\
                     4000-5000 r--p 00000000 00:00 0 [heap]\n";
        let writable = Writable(lines.lines().filter_map(writable_range).collect());
        assert_eq!(writable.from(0x1800, 0x10), 0x10);
        assert_eq!(writable.from(0x2fff, 0x1801), 0x1001);
        assert_eq!(writable.from(0x4000, 1), 0);
        assert_eq!(writable.from(0, 1), 0);
    }

    #[test]
    fn own_memory_is_told_by_process_and_by_thread() {
        let call = |number, process: i32| {
            // SAFETY: it is not made.
            unsafe { Call::new(number, [process as u64, 0, 0, 0, 0, 0]) }
        };
        let own = kernel::own_process();
        assert!(is_of_this_process(&call(libc::SYS_process_vm_writev, own)));
        assert!(is_of_this_process(&call(libc::SYS_process_vm_writev, kernel::own_thread())));
        assert!(is_of_this_process(&call(libc::SYS_move_pages, 0)));
        assert!(!is_of_this_process(&call(libc::SYS_process_vm_writev, 0)));
        assert!(!is_of_this_process(&call(libc::SYS_process_vm_writev, 1)));
        assert!(!is_of_this_process(&call(libc::SYS_kill, own)));
    }
}
