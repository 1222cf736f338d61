//! Calls that read, write, move and map what files hold.

use txos_engine::object::FileKind;

use super::CWD;
use crate::call::Call;
use crate::tx::Tx;
use crate::tx::attrs::Object;
use crate::tx::kernel::{self, Errno, Sys};
use crate::tx::node::Id;
use crate::tx::{acquire, perm};

impl Tx {
    /// Calls about the content of files; others are handed on.
    #[inline]
    pub(super) fn content_call(&mut self, call: &Call) -> Sys<u64> {
        let a = *call.words();
        let int = |i: usize| call.int(i);
        match call.number() {
            libc::SYS_read
            | libc::SYS_pread64
            | libc::SYS_readv
            | libc::SYS_preadv
            | libc::SYS_preadv2 => self.read(call),
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2 => self.write(call),
            libc::SYS_lseek => self.lseek(int(0), a[1] as i64, int(2)),

            libc::SYS_truncate => {
                if (a[1] as i64) < 0 {
                    return Err(Errno::INVAL);
                }
                let path = call.path(0)?;
                match self.object(CWD, &path, 0)? {
                    Object::Node(id) => {
                        self.may_truncate(id)?;
                        self.truncate_by_path(id, a[1] as i64)
                    }
                    Object::Live(path) => self.live_truncate(&path, a[1]),
                    Object::Fd(_) => Err(Errno::INVAL),
                }
            }
            libc::SYS_ftruncate => {
                if (a[1] as i64) < 0 {
                    return Err(Errno::INVAL);
                }
                let file = self.file(int(0))?;
                match self.fds.get(file).node.filter(|&id| self.tree.has_content(id)) {
                    Some(_) if !self.fds.get(file).writes() => {
                        let path_only = self.fds.get(file).flags & libc::O_PATH != 0;
                        Err(if path_only { Errno::BADF } else { Errno::INVAL })
                    }
                    Some(id) => self.truncate(id, a[1] as i64),
                    None => self.on_descriptor(call),
                }
            }
            libc::SYS_fallocate => {
                let file = self.file(int(0))?;
                let open = self.fds.get(file);
                let bad = (a[2] as i64) < 0 || (a[3] as i64) <= 0 || !open.writes();
                let dir = open.node.is_some_and(|id| self.tree.nodes[id].is_dir());
                if bad || dir {
                    // It fails: how, the kernel says best.
                    return self.on_descriptor(call);
                }
                let real = self.native_content(int(0), true)?;
                let done = call.with_descriptor(0, real).answer()?;
                self.written_by(int(0));
                Ok(done)
            }
            libc::SYS_copy_file_range | libc::SYS_splice | libc::SYS_sendfile => self.between(call),
            libc::SYS_tee => {
                let (from, to) = (self.real(int(0))?, self.real(int(1))?);
                self.close_kept_of(from)?;
                if let Some(held) = self.hold_teed(call, from)? {
                    return Ok(held);
                }
                self.before_live(int(1))?;
                self.before_taking_past_looks(int(0))?;
                self.before_taking(call, from)?;
                self.write_outside(int(1), to)?;
                call.with_descriptor(0, from).with_descriptor(1, to).answer_waiting()
            }
            libc::SYS_vmsplice => {
                if let Some(held) = self.hold_moved(call)? {
                    return Ok(held);
                }
                let file = self.file(int(0))?;
                if self.fds.get(file).writes() {
                    let real = self.real(int(0))?;
                    self.write_outside(int(0), real)?;
                } else {
                    self.close_kept_at(int(0))?;
                    self.take_pipe_of(int(0))?;
                }
                self.on_descriptor(call)
            }
            libc::SYS_mmap if a[3] & 0x20 == 0 => self.mmap(call),
            libc::SYS_readahead | libc::SYS_fadvise64 => {
                let file = self.file(int(0))?;
                if self.fds.get(file).flags & libc::O_PATH != 0 {
                    return Err(Errno::BADF);
                }
                if call.number() == libc::SYS_readahead && !self.fds.get(file).reads() {
                    return Err(Errno::BADF);
                }
                self.on_descriptor(call)
            }
            libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_syncfs => {
                // The commit makes durable what is to be.
                let file = self.file(int(0))?;
                if self.fds.get(file).flags & libc::O_PATH != 0 {
                    return Err(Errno::BADF);
                }
                match self.fds.get(file).node.filter(|&id| self.tree.has_content(id)) {
                    Some(_) => Ok(0),
                    None => self.on_descriptor(call),
                }
            }
            libc::SYS_sync_file_range => {
                let (offset, len) = (a[1] as i64, a[2] as i64);
                self.file(int(0))?;
                if offset < 0
                    || offset.checked_add(len).is_none_or(|e| e < offset)
                    || a[3] & !7 != 0
                {
                    return Err(Errno::INVAL);
                }
                self.on_descriptor_or(call)
            }
            libc::SYS_sync => Ok(0),
            _ => self.name_call(call),
        }
    }

    fn may_truncate(&mut self, id: Id) -> Sys<()> {
        match self.tree.nodes[id].kind() {
            FileKind::Dir => return Err(Errno::ISDIR),
            FileKind::File => {}
            _ => return Err(Errno::INVAL),
        }
        self.may(id, perm::mask::W)?;
        let fixed = (libc::STATX_ATTR_IMMUTABLE | libc::STATX_ATTR_APPEND) as u64;
        if self.tree.nodes[id].stat.attributes & fixed != 0 { Err(Errno::PERM) } else { Ok(()) }
    }

    fn live_truncate(&mut self, path: &[u8], size: u64) -> Sys<u64> {
        self.unsupported_call("a change outside of the versioned trees", path)?;
        kernel::truncate(path, size)
    }

    fn on_descriptor_or(&mut self, call: &Call) -> Sys<u64> {
        let file = self.file(call.int(0))?;
        if self.fds.get(file).flags & libc::O_PATH != 0 {
            return Err(Errno::BADF);
        }
        match self.fds.get(file).node.filter(|&id| self.tree.has_content(id)) {
            Some(_) => Ok(0),
            None => self.on_descriptor(call),
        }
    }

    /// A descriptor's file was written to by the kernel.
    fn written_by(&mut self, number: i32) {
        if let Ok(file) = self.file(number)
            && let Some(id) = self.fds.get(file).node
        {
            self.written(id);
        }
    }

    /// Calls that move bytes from one descriptor to another.
    fn between(&mut self, call: &Call) -> Sys<u64> {
        let number = call.number();
        let (from_at, to_at) = match number {
            libc::SYS_sendfile => (1, 0),
            _ => (0, 2),
        };
        let (from, to) = (call.int(from_at), call.int(to_at));
        if number == libc::SYS_splice && call.word(4) == 0 {
            return Ok(0);
        }
        // Errors in the order of the kernel: both descriptors first.
        for fd in [from, to] {
            let file = self.file(fd)?;
            if self.fds.get(file).flags & libc::O_PATH != 0 {
                return Err(Errno::BADF);
            }
        }
        if number == libc::SYS_copy_file_range && call.uint(5) != 0 {
            return Err(Errno::INVAL);
        }
        let between = |from: i32, to: i32| {
            call.with_descriptor(from_at, from).with_descriptor(to_at, to).answer()
        };
        let same = call.word(from_at) == call.word(to_at);
        for fd in [from, to] {
            let file = self.file(fd)?;
            let open = self.fds.get(file);
            let node = open.node;
            // For a copy, what both are counts before how they are open.
            let strange = number == libc::SYS_copy_file_range && !self.is_regular(fd, node)?;
            if strange || node.is_some_and(|id| self.tree.nodes[id].is_dir()) {
                // It fails: how, the kernel says best.
                let real = self.real(from)?;
                // No output goes to a socket or a pipe then.
                let target = self.file(to)?;
                let node = self.fds.get(target).node;
                let other = match node.filter(|&id| self.tree.has_content(id)) {
                    None => self.real(to)?,
                    Some(_) => match self.native_content(to, true) {
                        Ok(other) => other,
                        Err(acquire::DOOMED) => return Err(acquire::DOOMED),
                        Err(_) => self.real(to)?,
                    },
                };
                return between(real, other);
            }
        }
        if number == libc::SYS_splice {
            self.can_splice(from, to)?;
        }
        self.close_kept_at(from)?;
        if let Some(held) = self.hold_moved(call)? {
            return Ok(held);
        }
        let target = self.native_content(to, true)?;
        let source = match same {
            true => target,
            false => self.native_content(from, false)?,
        };
        if number != libc::SYS_copy_file_range {
            let splices = number == libc::SYS_splice;
            let (count, flags) =
                if splices { (call.word(4), call.int(5)) } else { (call.word(3), 0) };
            if flags & libc::SPLICE_F_NONBLOCK as i32 == 0 {
                self.before_room(target, count)?;
            }
            self.before_taking(call, source)?;
        }
        let done = between(source, target)?;
        if done > 0 {
            self.written_by(to);
            self.went_live(to, done);
        }
        Ok(done)
    }

    /// Whether a descriptor is of a regular file.
    fn is_regular(&mut self, number: i32, node: Option<Id>) -> Sys<bool> {
        let kind = match node {
            Some(id) => self.tree.nodes[id].kind(),
            None => kernel::look_fd(self.real(number)?)?.kind(),
        };
        Ok(kind == FileKind::File)
    }

    /// `splice(2)` wants a pipe at one end, before it looks at what the other is.
    fn can_splice(&mut self, from: i32, to: i32) -> Sys<()> {
        let mut pipes = 0;
        for number in [from, to] {
            let real = self.real(number)?;
            pipes += usize::from(kernel::look_fd(real)?.kind() == FileKind::Fifo);
        }
        if pipes == 0 { Err(Errno::INVAL) } else { Ok(()) }
    }
}
