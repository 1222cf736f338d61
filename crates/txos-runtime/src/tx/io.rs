//! Reading and writing.
//!
//! What has a private copy, and what is not versioned, the kernel reads and writes itself. Stable
//! files are read by the kernel too, once their facets are acquired.

use txos_engine::object::FileKind;

use super::Tx;
use super::content::Data;
use super::effects::Reach;
use super::files::File;
use super::kernel::{self, Errno, OwnedFd, Sys};
use super::node::{Id, held};
use super::put_back::COUNT;
use super::tree::ShadowTree;
use crate::call::Call;
use crate::user::{MOVED_MAX, Readable, UserSlice, length_of};

/// How a descriptor's content is reached.
enum Way {
    /// By the kernel, by this descriptor.
    Native(i32),
    /// The same, of something outside.
    Outside(i32),
    /// Here: node, and the descriptor that has the offset.
    Shadow(Id, i32),
}

impl Tx {
    fn reading(&mut self, call: &Call) -> Sys<(File, Way)> {
        let number = call.int(0);
        let file = self.file(number)?;
        let open = self.fds.get(file);
        let (node, reads) = (open.node, open.reads());
        let real = self.real_for(call)?;
        let Some(id) = node.filter(|&id| self.tree.has_content(id)) else {
            return Ok((file, Way::Outside(real)));
        };
        if !reads && !self.tree.nodes[id].is_dir() {
            return Err(Errno::BADF);
        }
        match (&self.tree.nodes[id].data, self.tree.nodes[id].kind()) {
            (_, FileKind::Dir) => Ok((file, Way::Native(real))),
            (Data::Whole(_), _) => Ok((file, Way::Native(real))),
            (Data::Stable, _) if self.tree.nodes[id].held & held::DATA != 0 => {
                Ok((file, Way::Native(real)))
            }
            _ => Ok((file, Way::Shadow(id, real))),
        }
    }

    /// The kernel's descriptor for a call that reads or writes.
    fn real_for(&mut self, call: &Call) -> Sys<i32> {
        match uses_offset(call) {
            true => self.real(call.int(0)),
            false => self.real_without_offset(call.int(0)),
        }
    }

    /// `read`, `readv`, `pread64`, `preadv`, `preadv2`.
    ///
    /// # Errors
    /// As the call.
    pub fn read(&mut self, call: &Call) -> Sys<u64> {
        let fd = call.int(0);
        at_a_place(call)?;
        let (file, way) = self.reading(call)?;
        let (id, real) = match way {
            Way::Native(real) => return call.with_descriptor(0, real).answer(),
            Way::Outside(real) => {
                if uses_offset(call)
                    && let Some(received) = self.receive(call, file, real)?
                {
                    return Ok(received);
                }
                self.before_taking(call, real)?;
                // What comes when it has lost is the next attempt's, or another reader's.
                let lost = || self.has_lost_meanwhile();
                let moved = call.with_descriptor(0, real);
                // At a place nothing is waited for: what has places answers, and all else has none.
                let answer = match uses_offset(call) {
                    true => moved.answer_waiting_unless(&lost),
                    false => moved.answer(),
                };
                if let Ok(bytes) = answer {
                    self.has_read(call, file, real, bytes);
                }
                return answer;
            }
            Way::Shadow(id, real) => (id, real),
        };
        if call.number() == libc::SYS_preadv2 && call.word(5) != 0 {
            self.copy_up(id, false)?;
            return call.with_descriptor(0, self.real(fd)?).answer();
        }
        let buffers = buffers(call)?;
        let total = length_of(&buffers);
        if let Data::Stable = self.tree.nodes[id].data
            && total > 0
            && self.is_read_whole(id)
        {
            self.touch_data(id)?;
            return call.with_descriptor(0, real).answer();
        }
        let (at, moves) = offset(call, real)?;
        if let Data::Stable = self.tree.nodes[id].data {
            self.touch_pages(id, at, total)?;
            return call.with_descriptor(0, real).answer();
        }
        let mut done = 0;
        for buffer in buffers {
            // No more is looked at than is filled.
            let size = match &self.tree.nodes[id].data {
                Data::Pages(pages) => pages.size,
                _ => self.size(id)?,
            };
            let there = size.saturating_sub(at + done);
            let out = match buffer.first(there).writable() {
                Ok(out) => out,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            };
            let n = self.read_pages(id, out, at + done)?;
            done += n as u64;
            if (n as u64) < buffer.len() {
                break;
            }
        }
        if moves {
            kernel::seek(real, (at + done) as i64, libc::SEEK_SET)?;
        }
        Ok(done)
    }

    /// `write`, `writev`, `pwrite64`, `pwritev`, `pwritev2`.
    ///
    /// # Errors
    /// As the call.
    pub fn write(&mut self, call: &Call) -> Sys<u64> {
        let (number, fd) = (call.number(), call.int(0));
        at_a_place(call)?;
        let file = self.file(fd)?;
        let open = self.fds.get(file);
        let (node, writes, flags) = (open.node, open.writes(), open.flags);
        let native = |real: i32| call.with_descriptor(0, real).answer();
        let Some(id) = node.filter(|&id| self.tree.has_content(id)) else {
            if let Some(held) = self.hold_write(call)? {
                return Ok(held);
            }
            let real = self.real(fd)?;
            self.write_outside(fd, real)?;
            self.talks(fd);
            let waits = number != libc::SYS_pwritev2 || call.int(5) & libc::RWF_NOWAIT == 0;
            if waits && self.holds() {
                let bytes = buffers(call)?;
                self.before_room(real, length_of(&bytes))?;
            }
            let written = call.with_descriptor(0, real).answer_waiting()?;
            self.went_live(fd, written);
            if written == COUNT {
                self.has_written_counter(fd);
            }
            return Ok(written);
        };
        if !writes {
            return Err(Errno::BADF);
        }
        if self.tree.nodes[id].data.whole().is_none() {
            let buffers = buffers(call)?;
            let real = self.real_for(call)?;
            let (mut at, moves) = offset(call, real)?;
            if flags & libc::O_APPEND != 0
                || (number == libc::SYS_pwritev2 && call.int(5) & libc::RWF_APPEND != 0)
            {
                at = self.size(id)?;
            }
            let bytes = what_is_there(buffers)?;
            let total: u64 = bytes.iter().map(|piece| piece.len() as u64).sum();
            let at_last = at.checked_add(total).filter(|&end| i64::try_from(end).is_ok());
            at_last.ok_or(Errno::FBIG)?;
            let special = number == libc::SYS_pwritev2 && call.int(5) & !libc::RWF_APPEND != 0;
            let plain = flags & libc::O_DIRECT == 0 && !special;
            if plain && self.write_pages(id, &bytes, at)? {
                if moves && total > 0 {
                    kernel::seek(real, (at + total) as i64, libc::SEEK_SET)?;
                }
                return Ok(total);
            }
            self.copy_up(id, false)?;
        }
        let real = self.real(fd)?;
        let written = native(real)?;
        if written > 0 {
            // Of the copy the kernel does the rest.
            self.drop_set_id(id);
        }
        Ok(written)
    }

    /// Output that is not to a versioned file: it is out before the commit.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn write_outside(&mut self, number: i32, real: i32) -> Sys<()> {
        self.tell_of_output(number, real)?;
        self.talks_by(number, real)
    }

    /// Something goes out by a descriptor at once: to others, unless it is the transaction's own pipe, or the null device.
    fn talks_by(&mut self, number: i32, real: i32) -> Sys<()> {
        if !super::pipes::are_asked_for(self.how.flags) || self.held.input.has_gone_out() {
            return Ok(());
        }
        let own = self.file(number).is_ok_and(|file| self.fds.get(file).reach == Reach::Inside);
        let null = || {
            kernel::look_fd(real).is_ok_and(|stat| {
                stat.kind() == FileKind::CharDevice && libc::major(stat.rdev) == 1
            })
        };
        if own || null() { Ok(()) } else { self.talks_by_any_way() }
    }

    /// The one warning of output that can't be taken back.
    fn tell_of_output(&mut self, number: i32, real: i32) -> Sys<()> {
        if self.report.said_outside {
            return Ok(());
        }
        if self.how.flags & super::flags::COMMAND == 0 && self.is_inside(number) {
            return Ok(());
        }
        let Ok(stat) = kernel::look_fd(real) else { return Ok(()) };
        if stat.kind() == FileKind::Socket {
            let file = self.file(number)?;
            if self.logs_by(file, real) {
                return Ok(());
            }
        }
        // A program's own messages: like those of a command in `txos run`, they are live.
        let standard = (0..=2).contains(&number);
        let null = stat.kind() == FileKind::CharDevice && libc::major(stat.rdev) == 1;
        // Event descriptors, by which the threads of a language's runtime wake each other, have no type.
        let event = stat.mode & libc::S_IFMT == 0;
        if standard || null || event {
            return Ok(());
        }
        self.output_of_kind(stat.kind())
    }

    /// Something was put out to an object of this kind.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn output_of_kind(&mut self, kind: FileKind) -> Sys<()> {
        if std::mem::replace(&mut self.report.said_outside, true) {
            return Ok(());
        }
        // What a command prints is for those who read it, and may be held until the end.
        let is_read = matches!(kind, FileKind::Fifo | FileKind::Socket | FileKind::CharDevice);
        if is_read && super::staging::given_id().is_some() {
            return Ok(());
        }
        let what = match kind {
            FileKind::Fifo => "output to a pipe",
            FileKind::Socket => "output to a socket",
            FileKind::CharDevice => "output to a terminal or device",
            _ => "output to a file that is not versioned",
        };
        self.unsupported_call(what, b"")
    }

    /// `lseek(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn lseek(&mut self, number: i32, offset: i64, whence: i32) -> Sys<u64> {
        let file = self.file(number)?;
        let open = self.fds.get(file);
        if open.flags & libc::O_PATH != 0 {
            return Err(Errno::BADF);
        }
        let node = open.node;
        let real = self.real(number)?;
        let Some(id) = node.filter(|&id| self.tree.has_content(id)) else {
            return kernel::seek(real, offset, whence);
        };
        if self.tree.nodes[id].is_dir() {
            return self.fds.seek_dir(file, real, offset, whence);
        }
        if matches!(whence, libc::SEEK_SET | libc::SEEK_CUR) {
            return kernel::seek(real, offset, whence);
        }
        match &self.tree.nodes[id].data {
            Data::Whole(_) => {}
            Data::Stable => self.touch_attrs(id)?,
            Data::Pages(pages) if whence == libc::SEEK_END => {
                let size = pages.size as i64;
                return kernel::seek(real, size.saturating_add(offset), libc::SEEK_SET);
            }
            Data::Pages(_) => self.copy_up(id, false)?,
        }
        let real = self.real(number)?;
        kernel::seek(real, offset, whence)
    }

    /// A descriptor whose content the kernel is to read: with `write`, or change.
    ///
    /// # Errors
    /// EBADF; the transaction is doomed.
    pub fn native_content(&mut self, number: i32, write: bool) -> Sys<i32> {
        let file = self.file(number)?;
        let open = self.fds.get(file);
        let (node, reads, writes) = (open.node, open.reads(), open.writes());
        if let Some(id) = node.filter(|&id| self.tree.has_content(id)) {
            if (write && !writes) || (!write && !reads) {
                return Err(Errno::BADF);
            }
            if self.tree.nodes[id].is_dir() {
                return Err(if write { Errno::BADF } else { Errno::ISDIR });
            }
            match &self.tree.nodes[id].data {
                Data::Whole(_) => {}
                Data::Stable if !write => self.touch_data(id)?,
                _ => self.copy_up(id, false)?,
            }
        } else if write {
            let real = self.real(number)?;
            self.write_outside(number, real)?;
            self.talks(number);
        } else {
            self.before_taking_past_looks(number)?;
        }
        self.real(number)
    }

    /// `truncate(2)` and `ftruncate(2)` of a node.
    ///
    /// # Errors
    /// As the call.
    pub fn truncate(&mut self, id: Id, size: i64) -> Sys<u64> {
        if size < 0 {
            return Err(Errno::INVAL);
        }
        match self.tree.nodes[id].kind() {
            FileKind::File => {}
            FileKind::Dir => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        if size == 0 {
            self.truncate_to_nothing(id)?;
            return Ok(0);
        }
        self.copy_up(id, false)?;
        self.written(id);
        let fd = OwnedFd::of(self.tree.open_backing(id, libc::O_WRONLY)?);
        kernel::ftruncate(fd.number(), size as u64)
    }

    /// `truncate(2)`: of a file that has this size already, the file system says whether its time
    /// is set; by a descriptor it always is.
    ///
    /// # Errors
    /// As the call.
    pub fn truncate_by_path(&mut self, id: Id, size: i64) -> Sys<u64> {
        if u64::try_from(size) != Ok(self.size(id)?) {
            return self.truncate(id, size);
        }
        self.copy_up(id, false)?;
        let Some(path) = self.tree.nodes[id].data.whole().map(|b| b.path.clone()) else {
            return Err(Errno::IO);
        };
        let look = || kernel::as_owner(|| kernel::look(&path));
        let before = look()?.mtime;
        match kernel::as_owner(|| kernel::truncate(&path, size as u64)) {
            // The copy's own mode may be in the way.
            Err(Errno::ACCESS) => return self.truncate(id, size),
            other => other?,
        };
        if look()?.mtime == before {
            self.drop_set_id(id)
        } else {
            self.written(id)
        }
        Ok(0)
    }

    /// `mmap(2)` of a file.
    ///
    /// # Errors
    /// As the call.
    pub fn mmap(&mut self, call: &Call) -> Sys<u64> {
        let real = self.to_be_mapped(call)?;
        call.with_descriptor(4, real).answer()
    }

    /// The kernel's descriptor of what `mmap(2)` maps.
    ///
    /// # Errors
    /// As `mmap(2)`.
    pub fn to_be_mapped(&mut self, call: &Call) -> Sys<i32> {
        const SHARED: u64 = 1;
        let (prot, flags, number) = (call.int(2), call.word(3), call.int(4));
        if call.word(5) & 4095 != 0 {
            return Err(Errno::INVAL);
        }
        let file = self.file(number)?;
        let open = self.fds.get(file);
        let (node, reads, writes) = (open.node, open.reads(), open.writes());
        if open.flags & libc::O_PATH != 0 {
            return Err(Errno::BADF);
        }
        if call.word(1) == 0 {
            return Err(Errno::INVAL);
        }
        if let Some(id) = node.filter(|&id| self.tree.has_content(id)) {
            let shared = flags & 3 == SHARED || flags & 3 == 3;
            if !reads || (shared && prot & libc::PROT_WRITE != 0 && !writes) {
                return Err(Errno::ACCESS);
            }
            if self.tree.nodes[id].is_dir() {
                return Err(Errno::NODEV);
            }
            if matches!(self.tree.nodes[id].data, Data::Pages(_)) || (shared && writes) {
                self.copy_up(id, false)?;
                if let Data::Whole(backing) = &mut self.tree.nodes[id].data
                    && shared
                {
                    // What is stored to memory leaves no stamp on every file system.
                    backing.mapped = backing.mapped.or(backing.fresh.take());
                }
            } else if self.tree.nodes[id].data.whole().is_none() {
                self.touch_data(id)?;
            }
        }
        self.real(number)
    }
}

impl ShadowTree {
    /// Whether reading and writing of an object is the transaction's business: FIFOs and devices are
    /// the kernel's, and directories have no bytes.
    pub fn has_content(&self, id: Id) -> bool {
        let node = &self.nodes[id];
        !node.live && matches!(node.kind(), FileKind::File | FileKind::Dir)
    }
}

/// Offsets are looked at before descriptors.
fn at_a_place(call: &Call) -> Sys<()> {
    let at = call.long(3);
    let negative = match call.number() {
        libc::SYS_pread64 | libc::SYS_pwrite64 | libc::SYS_preadv | libc::SYS_pwritev => at < 0,
        libc::SYS_preadv2 | libc::SYS_pwritev2 => at < -1,
        _ => false,
    };
    if negative { Err(Errno::INVAL) } else { Ok(()) }
}

/// The buffers of a call that reads or writes: whether a program can have them at all is looked at
/// first, by the kernel as well.
pub(super) fn buffers(call: &Call) -> Sys<Vec<UserSlice>> {
    let buffers = match call.number() {
        libc::SYS_read | libc::SYS_write | libc::SYS_pread64 | libc::SYS_pwrite64 => {
            vec![call.buffer(1, call.word(2).min(MOVED_MAX))]
        }
        _ => call.pointer::<[u64; 2]>(1).buffers(call.word(2))?,
    };
    if buffers.iter().any(|buffer| i64::try_from(buffer.len()).is_err()) {
        return Err(Errno::INVAL);
    }
    if buffers.iter().all(|buffer| buffer.is_possible()) { Ok(buffers) } else { Err(Errno::FAULT) }
}

/// As much as there is of the buffers: the kernel writes what comes before a bad address.
pub(super) fn what_is_there(buffers: Vec<UserSlice>) -> Sys<Vec<Readable>> {
    let (mut any, mut over, mut failed) = (false, false, None);
    // In the memory of the list that it takes.
    let pieces = buffers.into_iter().map_while(|buffer| match buffer.readable() {
        _ if over => None,
        Ok(there) => {
            any |= !there.is_empty();
            over = (there.len() as u64) < buffer.len();
            Some(there)
        }
        Err(e) => {
            failed = Some(e);
            None
        }
    });
    let pieces = pieces.collect();
    match failed {
        Some(e) if !any => Err(e),
        _ => Ok(pieces),
    }
}

/// Whether a call reads or writes at the open file's offset, not at a place that it names.
pub(super) fn uses_offset(call: &Call) -> bool {
    match call.number() {
        libc::SYS_pread64 | libc::SYS_pwrite64 | libc::SYS_preadv | libc::SYS_pwritev => false,
        libc::SYS_preadv2 | libc::SYS_pwritev2 => call.long(3) == -1,
        _ => true,
    }
}

/// Where a call reads or writes, and whether it moves the offset.
fn offset(call: &Call, real: i32) -> Sys<(u64, bool)> {
    if uses_offset(call) {
        return Ok((kernel::seek(real, 0, libc::SEEK_CUR).unwrap_or(0), true));
    }
    if call.long(3) < 0 {
        return Err(Errno::INVAL);
    }
    Ok((call.word(3), false))
}
