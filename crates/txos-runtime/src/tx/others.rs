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

use txos_engine::object::FileKind;

use super::Tx;
use super::deferred::{Deferred, Outsider};
use super::io::what_is_there;
use super::kernel::{self, Errno, OwnedFd, Sys};
use super::received::Receiving;
use crate::call::Call;

/// Nodes of memory that a kernel may have: `MAX_NUMNODES` at the most.
const NODES: i32 = 1024;
/// `CAP_SYS_NICE`, as a bit.
const SYS_NICE: u64 = 1 << 23;
/// `MPOL_MF_MOVE`, `MPOL_MF_MOVE_ALL`.
const MOVE: u64 = 2;
const MOVE_ALL: u64 = 4;

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

impl Tx {
    /// A call that concerns another process's memory: what is held of it, and its answer. `None`: the kernel answers it.
    ///
    /// # Errors
    /// As natively; ENOMEM if no more can be held.
    pub fn of_another_process(&mut self, call: &Call) -> Sys<Option<(Deferred, u64)>> {
        match call.number() {
            libc::SYS_process_vm_writev => self.write_to_another(call),
            libc::SYS_move_pages => self.move_pages_of_another(call),
            libc::SYS_migrate_pages => self.migrate_pages_of_another(call),
            _ => Ok(None),
        }
    }

    fn write_to_another(&mut self, call: &Call) -> Sys<Option<(Deferred, u64)>> {
        if call.word(5) != 0 {
            return Err(Errno::INVAL);
        }
        let bytes = call.pointer::<[u64; 2]>(1).buffers(call.word(2))?;
        let here: u64 = bytes.iter().map(|piece| piece.len()).sum();
        let there = call.pointer::<[u64; 2]>(3).buffers(call.word(4))?;
        let room: u64 = there.iter().map(|piece| piece.len()).sum();
        if here == 0 || room == 0 {
            return Ok(None);
        }
        let process = call.int(0);
        may_write(
            process,
            there.iter().find(|piece| !piece.is_empty()).map_or(0, |p| p.address()),
        )?;
        let writable = Writable::of(process)?;
        self.may_hold_bytes(here.min(room))?;
        let mut copy = Vec::new();
        for piece in what_is_there(bytes)? {
            copy.extend_from_slice(&piece.to_vec());
        }
        // As far as there is memory: so far the kernel would get.
        let (mut left, mut ranges) = (copy.len() as u64, Vec::new());
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
        let Some(&[first, _]) = ranges.first() else { return Err(Errno::FAULT) };
        copy.truncate(copy.len() - left as usize);
        let (count, answer) = (ranges.len() as u64, copy.len() as u64);
        let table = ranges.as_flattened().iter().flat_map(|word| word.to_ne_bytes()).collect();
        let outsider = Outsider::of_thread(process)?.with_memory(first);
        let later = Deferred::of(call).memory(3, table).buffer(1, copy);
        let later = later.number_at(2, 1).number_at(4, count).of_process(outsider);
        Ok(Some((later, answer)))
    }

    fn move_pages_of_another(&mut self, call: &Call) -> Sys<Option<(Deferred, u64)>> {
        let (process, count, flags) = (call.int(0), call.word(1), call.word(5));
        if call.word(3) == 0 || count == 0 || flags & !(MOVE | MOVE_ALL) != 0 {
            return Ok(None);
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
        let later = Deferred::of(call).memory(2, pages).memory(3, nodes).memory(4, room);
        Ok(Some((later.of_process(Outsider::of_thread(process)?), 0)))
    }

    fn migrate_pages_of_another(&mut self, call: &Call) -> Sys<Option<(Deferred, u64)>> {
        let (process, most) = (call.int(0), call.word(1));
        /// Longer masks the kernel does not take: those of more bits than a page has.
        const MASK_MAX: u64 = 4096 * 8;
        if !(2..=MASK_MAX).contains(&most) {
            return Ok(None);
        }
        let size = (most - 1).div_ceil(64) * 8;
        let from = call.buffer(2, size).read()?;
        let to = call.buffer(3, size).read()?;
        // SAFETY: without nodes to go to it asks whether the caller may, and moves nothing.
        match unsafe { call.with_word(3, 0) }.answer() {
            Ok(_) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
        let later = Deferred::of(call).memory(2, from).memory(3, to);
        Ok(Some((later.of_process(Outsider::of_thread(process)?), 0)))
    }

    /// `pidfd_getfd(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn take_descriptor(&mut self, call: &Call) -> Sys<u64> {
        let real = self.real_without_offset(call.int(0))?;
        let process = kernel::process_of_descriptor(real);
        if process == Some(kernel::own_process()) && call.word(2) as u32 == 0 {
            // The number is one of the transaction's.
            return self.dup(call.int(1), 0, true);
        }
        let fd = call.with_descriptor(0, real).answer()? as i32;
        self.took_descriptor(OwnedFd::of(kernel::move_high(fd)?))
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
                return self.fds.number(file, new, true, 0).map(|number| number as u64);
            }
            self.forget_number(original);
        }
        let number = self.fds.lowered(fd.into_number(), true)?;
        if kind == FileKind::Socket {
            // What it has received was there before.
            let file = self.file(number)?;
            self.fds.get_mut(file).receiving = Receiving::Unknown;
        }
        Ok(number as u64)
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
