//! After the commit, the kernel's descriptors, working directory, root and umask become what the program has
//! seen.

use super::content::Data;
use super::files::{Descriptor, FdTable};
use super::kernel::{self, Errno, OwnedFd};
use super::node::Id;
use super::tree::ShadowTree;
use super::{Failure, Tx, flags, reason};

impl Tx {
    /// After the commit: the kernel's table becomes what the program has seen.
    pub fn install_descriptors(&mut self) {
        self.fds.find_closed_elsewhere();
        let touched = self.fds.touched();
        // Originals of which there is a new number, before anything is put over them.
        let mut kept = Vec::new();
        // Inodes without a name that lived on in them.
        let mut nameless: Vec<(Id, i32)> = Vec::new();
        for object in &mut self.tree.nameless {
            let inode = object.inode.take().filter(|fd| self.fds.private.remove(fd));
            nameless.extend(inode.map(|fd| (object.id, fd)));
        }
        for file in 0..self.fds.count() {
            let Some(&number) = self.fds.get(file).before.first() else { continue };
            self.keep_unnamed(file, number);
            self.fds.install_original(file, number);
            if let Some(id) = self.fds.get(file).node.filter(|&id| self.tree.is_nameless_copy(id))
                && !nameless.iter().any(|(known, _)| *known == id)
                && let Ok(copy) = kernel::copy_high(number)
            {
                nameless.push((id, copy));
            }
            let open = self.fds.get(file);
            if open.numbers.iter().any(|number| !open.before.contains(number))
                && let Ok(copy) = kernel::copy_high(number)
            {
                kept.push((file, copy));
            }
        }
        if self.how.flags & flags::COMMAND != 0 {
            // The process ends, and with it what it has opened. What lies in the history is not touched.
            return;
        }
        let mut sources: Vec<(usize, i32, i32)> = Vec::new();
        for (number, descriptor) in touched {
            match descriptor {
                Descriptor::Closed => kernel::close(number),
                Descriptor::Untouched => {}
                Descriptor::Open { file, real, cloexec, over } => {
                    let original = self.fds.get(file).before.contains(&number);
                    let from_before = kept.iter().find(|(f, _)| *f == file).map(|(_, c)| *c);
                    if over && (original || real == number) {
                        self.fds.install_close_on_exec(number, cloexec);
                    } else if let Some(copy) = from_before {
                        let _ = kernel::dup3(copy, number, cloexec);
                    } else {
                        // One open file, however many numbers it has.
                        let known = sources.iter().find(|s| s.0 == file);
                        let (source, was) = match known {
                            Some(&(_, source, was)) => (source, was),
                            None => {
                                let source = self.published_descriptor(file, real, &nameless);
                                self.hand_lock_on(file, real, source);
                                let other = source != real;
                                let source = match other && source < kernel::high_base() {
                                    true => kernel::raised(source),
                                    false => source,
                                };
                                sources.push((file, source, if other { -1 } else { real }));
                                (source, if other { -1 } else { real })
                            }
                        };
                        // Where the kernel's own description is right, its numbers are as well.
                        if (was == -1 || real != number) && source != number {
                            let _ = kernel::dup3(source, number, cloexec);
                        }
                    }
                    if real != number {
                        // Other numbers may still be made from it.
                        self.fds.private.insert(real);
                    }
                }
            }
        }
        for copy in kept.into_iter().map(|k| k.1).chain(nameless.into_iter().map(|n| n.1)) {
            kernel::close(copy);
        }
        for (_, source, was) in sources {
            if was == -1 {
                kernel::close(source);
            }
        }
        let rest: Vec<i32> = self.fds.private.iter().copied().collect();
        for fd in rest {
            self.fds.close_private(fd);
        }
    }

    /// What was done to files that were open before and have no name is carried out.
    pub fn write_unnamed(&mut self) {
        for file in 0..self.fds.count() {
            if let Some(&number) = self.fds.get(file).before.first() {
                self.keep_unnamed(file, number);
            }
        }
    }

    /// What was done to files without a name can be carried out only by descriptors from before.
    ///
    /// # Errors
    /// It can't be carried out.
    pub fn check_unnamed(&mut self) -> Result<(), Failure> {
        // And those that live on by names that the transaction does not know, if none of theirs is known.
        if let Err(name) = self.find_nameless() {
            return Err(Failure {
                reason: reason::FAILED,
                errno: libc::EOPNOTSUPP,
                what: format!(
                    "{} has other names, and was changed by this one before it was removed",
                    String::from_utf8_lossy(&name)
                ),
                ..Failure::default()
            });
        }
        for file in 0..self.fds.count() {
            let open = self.fds.get(file);
            let (Some(id), Some(&number)) = (open.node, open.before.first()) else { continue };
            let node = &self.tree.nodes[id];
            let content = !matches!(node.data, Data::Stable);
            let own = node.names.is_empty() && node.stable.is_some() && !self.tree.is_nameless(id);
            if own && content && !node.live {
                let can = match self.only_appends(id) {
                    Some(_) => Ok(()),
                    None => self.write_through(number, |_| Ok(())),
                };
                can.map_err(|errno| Failure {
                    reason: reason::FAILED,
                    errno: errno.raw_os_error(),
                    what: format!(
                        "descriptor {number}, whose file has no name here, can't be written to: {}",
                        std::io::Error::from(errno)
                    ),
                    ..Failure::default()
                })?;
            }
        }
        Ok(())
    }

    /// A file without a name that was open before: what the transaction made of it.
    fn keep_unnamed(&mut self, file: usize, number: i32) {
        let Some(id) = self.fds.get(file).node else { return };
        let node = &self.tree.nodes[id];
        let published = (!node.names.is_empty() || self.tree.is_nameless(id)) && !node.appended;
        if published || node.stable.is_none() || !node.kept {
            return;
        }
        let (what, done) = match self.only_appends(id) {
            Some(number) => ("appended", self.append(id, number)),
            None => ("written", self.put_content(id, number)),
        };
        if let Err(errno) = done {
            super::say(&format!(
                "the transaction has committed, but what was {what} by descriptor {number}, whose file has no name, may be missing: {}",
                std::io::Error::from(errno)
            ));
        }
        self.tree.write_attributes(id, &kernel::magic_path(number));
        // Once: other descriptors of it are of the same inode.
        self.tree.nodes[id].kept = false;
    }

    /// Gives the file that is open as a number the content that it has in the transaction.
    fn put_content(&self, id: Id, number: i32) -> kernel::Sys<()> {
        let node = &self.tree.nodes[id];
        if let Data::Pages(pages) = &node.data {
            return self.write_through(number, |fd| {
                pages.pieces().iter().try_for_each(|(at, bytes)| kernel::pwrite_all(fd, bytes, *at))
            });
        }
        let Some(backing) = node.data.whole() else { return Ok(()) };
        let read = || kernel::open(&backing.path, libc::O_RDONLY | libc::O_CLOEXEC, 0);
        let copy = OwnedFd::of(kernel::open_past_mode(&backing.path, read)?);
        let from = copy.number();
        let stat = kernel::look_fd(from)?;
        self.write_through(number, |fd| {
            kernel::ftruncate(fd, 0)?;
            kernel::copy_content(from, fd, stat.size)
        })?;
        // (Setting the time may be refused.)
        let _ = kernel::utimes_through(&kernel::magic_path(number), stat.mtime);
        Ok(())
    }

    /// Appends what was appended in the transaction, by a descriptor that can do nothing else.
    fn append(&self, id: Id, number: i32) -> kernel::Sys<()> {
        let Data::Pages(pages) = &self.tree.nodes[id].data else { return Ok(()) };
        // (The kernel puts it behind the end, wherever that is.)
        pages.pieces().iter().try_for_each(|(at, bytes)| kernel::pwrite_all(number, bytes, *at))?;
        match self.how.flags & flags::DURABLE {
            0 => Ok(()),
            _ => kernel::fdatasync(number),
        }
    }

    fn write_through(
        &self,
        number: i32,
        write: impl FnOnce(i32) -> kernel::Sys<()>,
    ) -> kernel::Sys<()> {
        // By itself, if it can be written to, and not only at its end.
        let flags = kernel::status_flags(number)?;
        let writes = matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR);
        if writes && flags & (libc::O_APPEND | libc::O_DIRECT) == 0 {
            return write(number);
        }
        let path = kernel::magic_path(number);
        let fd = OwnedFd::open(&path, libc::O_WRONLY | libc::O_CLOEXEC)?;
        write(fd.number())
    }

    /// A descriptor of the object as it was published, where the one at hand is of something else.
    /// `nameless` are descriptors of inodes that live on without a name.
    fn published_descriptor(&mut self, file: usize, real: i32, nameless: &[(Id, i32)]) -> i32 {
        let open = self.fds.get(file);
        let Some(id) = open.node else { return real };
        let node = &self.tree.nodes[id];
        if node.live {
            return real;
        }
        let inode = nameless.iter().find(|(known, _)| *known == id);
        if self.tree.is_nameless(id) && node.data.whole().is_none() && !open.writes() {
            return real;
        }
        if let Some((_, inode)) = inode {
            // It was opened as its private copy, whose content that inode has now.
            let path = kernel::magic_path(*inode);
            let flags = reopening(open.flags) & !libc::O_NOFOLLOW | libc::O_CLOEXEC;
            let offset = kernel::seek(real, 0, libc::SEEK_CUR).unwrap_or(0);
            let opened = kernel::open_past_mode(&path, || kernel::open(&path, flags, 0));
            let Ok(new) = opened else { return real };
            let _ = kernel::seek(new, offset as i64, libc::SEEK_SET);
            return new;
        }
        if self.tree.is_nameless(id) {
            return real;
        }
        if node.names.is_empty() {
            if let (Data::Pages(pages), Some(_)) = (&node.data, &node.stable) {
                // Nothing was published of it, and who has it open has its inode.
                let path = kernel::magic_path(real);
                let write = libc::O_WRONLY | libc::O_CLOEXEC;
                if let Ok(fd) = kernel::open_past_mode(&path, || kernel::open(&path, write, 0)) {
                    for (at, bytes) in pages.pieces() {
                        let _ = kernel::pwrite_all(fd, &bytes, at);
                    }
                    kernel::close(fd);
                }
            }
            if let (None, Some(_)) = (node.data.whole(), &node.stable) {
                self.tree.write_attributes(id, &kernel::magic_path(real));
            }
            if node.data.whole().is_none() && node.stable.is_some() && open.writes() {
                // It was opened to be read from only, and has no name any more.
                let path = kernel::magic_path(real);
                let flags = open.flags & !(libc::O_TRUNC | libc::O_NOFOLLOW) | libc::O_CLOEXEC;
                let offset = kernel::seek(real, 0, libc::SEEK_CUR).unwrap_or(0);
                let Ok(new) = kernel::open(&path, flags, 0) else { return real };
                let _ = kernel::seek(new, offset as i64, libc::SEEK_SET);
                return new;
            }
            return real;
        }
        let writes = open.writes();
        let stays = node.stable.is_some();
        let right = match &node.data {
            // The copy itself was renamed into place.
            Data::Whole(_) if open.flags & libc::O_PATH == 0 => !self.tree.stays(id),
            Data::Whole(_) => !stays,
            // Opened only to be read from.
            _ => !stays || !writes,
        };
        if right && self.tree.is_published(id, real) {
            return real;
        }
        let flags = reopening(open.flags);
        let path = match &open.name {
            Some((dir, name)) if node.names.contains(&(*dir, name.clone())) => {
                txos_engine::readset::join(&self.tree.path_of(*dir), name)
            }
            _ => self.tree.path_of(id),
        };
        let expected = match (&node.data, &node.stable) {
            // The inode stayed.
            (_, Some(stable)) => stable.stat.id,
            (_, None) => return real,
        };
        let Ok(new) = open_published(&path, expected, flags | libc::O_CLOEXEC) else { return real };
        if let Ok(offset) = kernel::seek(real, 0, libc::SEEK_CUR) {
            let _ = kernel::seek(new, offset as i64, libc::SEEK_SET);
        }
        new
    }

    /// Hands the lock that an open file has by flock(2) on to the description with which it goes on.
    fn hand_lock_on(&mut self, file: usize, from: i32, to: i32) {
        let open = self.fds.get_mut(file);
        let (mode, keeper) = (open.lock, open.lock_holder.take());
        let holder = keeper.unwrap_or(from);
        if mode == 0 || holder == to {
            return;
        }
        if kernel::flock(to, mode | libc::LOCK_NB).is_err() {
            // Both are open on one inode, and keep each other away.
            let _ = kernel::flock(holder, libc::LOCK_UN);
            if kernel::flock(to, mode | libc::LOCK_NB).is_err() {
                super::say(
                    "the commit has lost a lock (flock) of the program's: somebody who waited for it has it",
                );
            }
        }
        if let Some(keeper) = keeper {
            self.fds.close_private(keeper);
        }
    }

    /// Working directory, root and umask.
    pub fn install_process_globals(&mut self) {
        if let Some(fd) = self.process.lost_directory.take() {
            let _ = kernel::fchdir(fd);
            kernel::close(fd);
            self.process.moved.0 = false;
        }
        let cwd = self.tree.cwd.filter(|_| self.process.moved.0).map(|id| self.tree.path_of(id));
        if self.process.moved.1 {
            let root = self.tree.path_of(self.tree.root);
            if let Some(cwd) = &cwd {
                change_directory(cwd);
            }
            let _ = kernel::chroot(&root);
        } else if let Some(cwd) = &cwd {
            change_directory(cwd);
        }
        if let Some(mask) = self.process.umask {
            kernel::set_umask(mask);
        }
    }
}

impl ShadowTree {
    /// Attributes of a file without a name, by a descriptor's path.
    pub fn write_attributes(&self, id: usize, path: &[u8]) {
        use super::node::changed;
        let node = &self.nodes[id];
        let (stat, bits) = (node.stat, node.changed);
        if bits & changed::OWNER != 0 {
            // Through the link that the path is.
            let _ = kernel::chown_live(path, stat.uid, stat.gid, 0);
        }
        if bits & (changed::MODE | changed::OWNER) != 0 {
            let _ = kernel::chmod(path, stat.mode & 0o7777);
        }
        if bits & changed::MTIME != 0 && node.data.whole().is_none() {
            let _ = kernel::utimes_through(path, stat.mtime);
        }
    }

    /// Whether an object has no name any more, and a private copy beside its inode.
    fn is_nameless_copy(&self, id: Id) -> bool {
        let node = &self.nodes[id];
        node.names.is_empty() && node.stable.is_some() && node.data.whole().is_some() && !node.live
    }

    /// Whether a private copy was renamed into place. The engine may have found that somebody writes
    /// to the file, and kept its inode: then the copy is where it was.
    fn is_published(&self, id: usize, real: i32) -> bool {
        let Some(backing) = self.nodes[id].data.whole() else { return true };
        let there = kernel::look(&backing.path).map(|s| s.id);
        there.is_err() || there != kernel::identify_fd(real).map(|s| s.id)
    }
}

impl FdTable {
    /// Offset and flags of a descriptor from before.
    fn install_original(&mut self, file: usize, number: i32) {
        let open = self.get(file);
        let (was_flags, was_offset) = open.was;
        if open.flags & libc::O_PATH != 0 {
            return;
        }
        let flags = open.flags;
        let now = match open.numbers.first().map(|&one| self.descriptor(one)) {
            _ if open.shares_offset => None,
            Some(Descriptor::Open { real, .. }) => kernel::seek(real, 0, libc::SEEK_CUR).ok(),
            _ => open.left,
        };
        if let Some(offset) = now.filter(|&offset| offset != was_offset) {
            let _ = kernel::seek(number, offset as i64, libc::SEEK_SET);
        }
        if flags != was_flags {
            let _ = kernel::set_status_flags(number, flags);
        }
    }
}

/// Flags for opening once more what is open.
fn reopening(flags: i32) -> i32 {
    const UNNAMED: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;
    flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | UNNAMED)
}

/// Opens a published file as the program has it open, if the path still leads to it: others may have
/// put something of theirs there since. Its mode may keep out who has it open already.
fn open_published(
    path: &[u8],
    expected: txos_engine::object::FileId,
    flags: i32,
) -> kernel::Sys<i32> {
    let link = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let handle = OwnedFd::open(path, link)?;
    if kernel::look_fd(handle.number())?.id != expected {
        return Err(Errno::STALE);
    }
    // What is there now is the file; should something else come in between, it is not waited for.
    if flags & libc::O_PATH != 0 {
        return kernel::open_exact(path, flags);
    }
    let fd = kernel::open_past_mode(&kernel::magic_path(handle.number()), || {
        kernel::open_exact(path, flags | libc::O_NONBLOCK)
    })?;
    if kernel::identify_fd(fd).map(|s| s.id) != Ok(expected) {
        kernel::close(fd);
        return Err(Errno::STALE);
    }
    let _ = kernel::set_status_flags(fd, flags);
    Ok(fd)
}

fn change_directory(path: &[u8]) {
    let _ = kernel::chdir(path);
}
