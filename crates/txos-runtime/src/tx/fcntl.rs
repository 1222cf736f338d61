//! What is done to descriptors: fcntl, ioctl, locks, working directory, polling.
#![allow(unsafe_code)] // calls with numbers and sets of the kernel's for the program's

use std::time::{Duration, Instant};

use txos_engine::object::FileKind;

use super::Tx;
use super::attrs::Object;
use super::content::Data;
use super::effects;
use super::files::FdTable;
use super::files::{Descriptor, File, OpenFile};
use super::kernel::{self, Errno, FICLONERANGE, OwnedFd, Setting, Sys};
use super::node::Id;
use super::perm::mask;
use super::put_back::{setting_of_command, setting_of_request};
use super::retaken::{Lock, PATIENCE};
use super::tree::ShadowTree;
use crate::call::{Call, while_waiting};
use crate::user::UserPtr;

/// Between two looks whether an outsider's lock is gone.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

impl Tx {
    /// `fcntl(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn fcntl(&mut self, call: &Call) -> Sys<u64> {
        const OFD: [i32; 3] = [36, 37, 38];
        let (number, command, arg) = (call.int(0), call.int(1), call.word(2));
        match command {
            libc::F_DUPFD => self.dup(number, arg as i32, false),
            libc::F_DUPFD_CLOEXEC => self.dup(number, arg as i32, true),
            libc::F_GETFD => {
                self.file(number)?;
                match self.fds.descriptor(number) {
                    Descriptor::Open { cloexec, .. } => Ok(u64::from(cloexec)),
                    _ => Err(Errno::BADF),
                }
            }
            libc::F_SETFD => self.set_cloexec(number, arg & libc::FD_CLOEXEC as u64 != 0),
            libc::F_GETFL => {
                let file = self.file(number)?;
                match self.fds.get(file).node {
                    Some(_) => {
                        // What an open was to do first is not kept.
                        let once = libc::O_CREAT | libc::O_EXCL | libc::O_NOCTTY | libc::O_TRUNC;
                        let flags = self.fds.get(file).flags & !(libc::O_CLOEXEC | once);
                        let path_only = flags & libc::O_PATH != 0;
                        Ok(flags as u64 | if path_only { 0 } else { LARGE })
                    }
                    None => {
                        let real = self.real(number)?;
                        kernel::status_flags(real).map(|flags| flags as u64)
                    }
                }
            }
            libc::F_SETFL => self.set_status(number, arg as i32),
            libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW => self.posix_lock(call),
            _ if OFD.contains(&command) => self.posix_lock(call),
            F_DUPFD_QUERY => {
                let real = self.real(number)?;
                let other = self.real(arg as i32)?;
                kernel::is_duplicate(real, other)
            }
            _ => {
                let file = self.file(number)?;
                if command == libc::F_SETPIPE_SZ {
                    // What is left there counts.
                    self.take_pipe_of(number)?;
                }
                let open = self.fds.get(file);
                if open.flags & libc::O_PATH != 0 {
                    return Err(Errno::BADF);
                }
                let versioned = open.node.is_some_and(|id| self.tree.has_content(id));
                if versioned && command == libc::F_SETLEASE {
                    // It would be of the stable file, in the way of its own commit.
                    return self.refuse(Errno::INVAL, "a lease");
                }
                match setting_of_command(command).filter(|_| !versioned) {
                    Some(one) => self.set_at_once(number, &[one], |tx| tx.on_descriptor(call)),
                    None => self.on_descriptor(call),
                }
            }
        }
    }

    /// Sets whether a descriptor is closed by `execve(2)`.
    ///
    /// # Errors
    /// EBADF.
    fn set_cloexec(&mut self, number: i32, cloexec: bool) -> Sys<u64> {
        self.file(number)?;
        if let Descriptor::Open { file, real, over, cloexec: was } = self.fds.descriptor(number) {
            if was != cloexec {
                self.claim_changed(number)?;
            }
            if !over {
                kernel::set_close_on_exec(real, cloexec)?;
            }
            self.fds.set(number, Descriptor::Open { file, real, cloexec, over });
        }
        Ok(0)
    }

    fn set_status(&mut self, number: i32, flags: i32) -> Sys<u64> {
        const SETTABLE: i32 =
            libc::O_APPEND | libc::O_ASYNC | libc::O_DIRECT | libc::O_NOATIME | libc::O_NONBLOCK;
        let file = self.file(number)?;
        let open = self.fds.get(file);
        if open.flags & libc::O_PATH != 0 {
            return Err(Errno::BADF);
        }
        let real = self.real(number)?;
        let Some(id) = self.fds.get(file).node else {
            let set = |_: &mut Tx| kernel::set_status_flags(real, flags);
            return self.set_at_once(number, &[Setting::Flags], set);
        };
        if flags & libc::O_NOATIME != 0 && !self.owns(id) {
            return Err(Errno::PERM);
        }
        let open = self.fds.get_mut(file);
        open.flags = open.flags & !SETTABLE | flags & SETTABLE & !libc::O_ASYNC;
        if real != number || !self.fds.get(file).before.contains(&number) {
            let settings: &[Setting] =
                if self.tree.has_content(id) { &[] } else { &[Setting::Flags] };
            self.set_at_once(number, settings, |_| kernel::set_status_flags(real, flags))?;
        }
        Ok(0)
    }

    fn owns(&mut self, id: Id) -> bool {
        let uid = self.tree.nodes[id].stat.uid;
        self.process.cred().owns(uid)
    }

    /// Record locks. The transaction keeps others out by other means: its own locks are always
    /// granted, unless an outsider holds one.
    fn posix_lock(&mut self, call: &Call) -> Sys<u64> {
        let (number, command, arg) = (call.int(0), call.int(1), call.pointer::<libc::flock>(2));
        let file = self.file(number)?;
        let open = self.fds.get(file);
        let (reads, writes, node) = (open.reads(), open.writes(), open.node);
        let real = self.real(number)?;
        let Some(id) = node.filter(|&id| self.tree.has_content(id)) else {
            return call.with_descriptor(0, real).answer_waiting();
        };
        if self.fds.get(file).flags & libc::O_PATH != 0 {
            return Err(Errno::BADF);
        }
        let lock = arg.read()?;
        let kind = i32::from(lock.l_type);
        if !matches!(i32::from(lock.l_whence), libc::SEEK_SET | libc::SEEK_CUR | libc::SEEK_END) {
            return Err(Errno::INVAL);
        }
        let asks = matches!(command, libc::F_GETLK | 36);
        if !asks {
            match kind {
                libc::F_RDLCK if !reads => return Err(Errno::BADF),
                libc::F_WRLCK if !writes => return Err(Errno::BADF),
                libc::F_RDLCK | libc::F_WRLCK | libc::F_UNLCK => {}
                _ => return Err(Errno::INVAL),
            }
        }
        if command >= 36 {
            // Between descriptions: the kernel keeps them, on what stands for the file here.
            if kind == libc::F_WRLCK && !asks {
                self.copy_up(id, false)?;
            }
            let real = self.real(number)?;
            let answer = call.with_descriptor(0, real).answer_waiting()?;
            if kind == libc::F_WRLCK && !asks {
                self.has_locked_bytes(number, id, lock);
            }
            return Ok(answer);
        }
        if kind == libc::F_UNLCK && !asks {
            self.note_record_lock(number, lock);
            return Ok(0);
        }
        // Who holds one: the kernel tells for any descriptor.
        let mut probe = lock;
        kernel::lock_in_the_way(real, &mut probe)?;
        if asks {
            arg.write(probe)?;
            return Ok(0);
        }
        let since = Instant::now();
        while i32::from(probe.l_type) != libc::F_UNLCK {
            // Another transaction's, for the time of its commit, is one of an open file: of no process.
            // Other processes' calls don't wait for it.
            let may_be_a_commits =
                probe.l_pid == -1 && self.process.space.is_none() && since.elapsed() < PATIENCE;
            if command != libc::F_SETLKW && !may_be_a_commits {
                return Err(Errno::AGAIN);
            }
            while_waiting(|| kernel::sleep(BETWEEN_LOOKS))?;
            self.check_doom();
            if self.doom.is_some() {
                return Err(super::acquire::DOOMED);
            }
            probe = lock;
            kernel::lock_in_the_way(real, &mut probe)?;
        }
        if kind == libc::F_WRLCK {
            self.locks_mapped(id);
            self.has_locked_bytes(number, id, lock);
        }
        self.note_record_lock(number, lock);
        Ok(0)
    }

    /// A command that is one process yet has got a record lock, or given one up.
    fn note_record_lock(&mut self, number: i32, lock: libc::flock) {
        if self.process.space.is_none()
            && self.how.flags & super::flags::COMMAND != 0
            && let Ok(file) = self.lockable(number)
            && let Ok(lock) = file.from_start(lock)
        {
            self.fds.note_record_lock(file.id, lock);
        }
    }

    /// The stable file of a file that is open on its private copy, for a lock: others look for it there. `None`: there
    /// is none, or it can't be opened.
    fn stable_file_of(&mut self, file: File) -> Option<i32> {
        let id = self.fds.get(file).node?;
        self.tree.nodes[id].data.whole()?;
        let holder = self.tree.open_counterpart(id, libc::O_RDONLY)?.into_number();
        self.fds.keep_private(holder);
        self.fds.get_mut(file).lock_holder = Some(holder);
        Some(holder)
    }

    /// `flock(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn flock(&mut self, number: i32, operation: i32) -> Sys<u64> {
        let file = self.file(number)?;
        let open = self.fds.get(file);
        if open.flags & libc::O_PATH != 0 {
            return Err(Errno::BADF);
        }
        // A lock is of the open file: of the one from before, which the program still has afterwards.
        let real = match open.before.first().copied().or(open.lock_holder) {
            Some(holder) => holder,
            None => match self.stable_file_of(file) {
                Some(holder) => holder,
                None => self.real(number)?,
            },
        };
        let done = while_waiting(|| kernel::flock(real, operation));
        let mode = operation & !libc::LOCK_NB;
        let open = self.fds.get_mut(file);
        match done {
            Ok(_) => {
                open.lock = if mode == libc::LOCK_UN { 0 } else { mode };
                if mode == libc::LOCK_EX
                    && let Some(id) = open.node
                {
                    self.has_locked(id, Lock::File);
                }
                return done;
            }
            // Another kind of lock is given up first.
            Err(Errno::AGAIN | Errno::INTR) if mode != open.lock => open.lock = 0,
            Err(_) => {}
        }
        done
    }

    /// `ioctl(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn ioctl(&mut self, call: &Call) -> Sys<u64> {
        const FIONREAD: u64 = libc::FIONREAD;
        const FIOCLEX: u64 = 0x5451;
        const FIONCLEX: u64 = 0x5450;
        const FIONBIO: u64 = 0x5421;
        const TIOCGPTPEER: u64 = 0x5441;
        let (number, request, other) = (call.int(0), u64::from(call.uint(1)), call.int(2));
        let file = self.file(number)?;
        let open = self.fds.get(file);
        if open.flags & libc::O_PATH != 0 {
            return Err(Errno::BADF);
        }
        match request {
            FIOCLEX => return self.set_cloexec(number, true),
            FIONCLEX => return self.set_cloexec(number, false),
            _ => {}
        }
        let Some(id) = open.node.filter(|&id| self.tree.has_content(id)) else {
            if request == FIONREAD
                && let Some(bytes) = self.bytes_to_receive(number)
            {
                call.pointer(2).write(i32::try_from(bytes).unwrap_or(i32::MAX))?;
                return Ok(0);
            }
            // The other end of a terminal: who waits for its end is to see when it is closed.
            if request == TIOCGPTPEER {
                let real = self.real(number)?;
                return self.new_descriptor(&call.with_descriptor(0, real));
            }
            return match setting_of_request(request) {
                Some(one) => self.set_at_once(number, &[one], |tx| tx.on_descriptor(call)),
                None => self.on_descriptor(call),
            };
        };
        let flags = open.flags;
        match request {
            FIONBIO => {
                let on: i32 = call.pointer(2).read()?;
                let rest = flags & !libc::O_NONBLOCK;
                self.set_status(number, if on != 0 { rest | libc::O_NONBLOCK } else { rest })
            }
            FIONREAD if self.tree.nodes[id].kind() == FileKind::File => {
                let size = self.size(id)? as i64;
                let real = self.real(number)?;
                let at = kernel::seek(real, 0, libc::SEEK_CUR)? as i64;
                call.pointer(2).write(i32::try_from(size - at).unwrap_or(i32::MAX))?;
                Ok(0)
            }
            libc::FICLONE if self.tree.nodes[id].is_dir() => {
                // It fails: how, the kernel says best.
                let (from, to) = (self.real(other)?, self.real(number)?);
                kernel::clone_file(to, from)
            }
            libc::FICLONE if self.tree.nodes[id].kind() == FileKind::File => {
                let from = self.native_content(other, false)?;
                let to = self.native_content(number, true)?;
                kernel::clone_file(to, from)
            }
            FICLONERANGE => {
                let mut range: [u64; 4] = call.pointer(2).read()?;
                if self.tree.nodes[id].is_dir() {
                    range[0] = self.real(range[0] as i32)? as u64;
                    let to = self.real(number)?;
                    return kernel::clone_range(to, &range);
                }
                range[0] = self.native_content(range[0] as i32, false)? as u64;
                let to = self.native_content(number, true)?;
                kernel::clone_range(to, &range)
            }
            SETFLAGS | SETFLAGS_32 | FSSETXATTR => self.unsupported_errno(txos_calls::FLAGS),
            _ if only_asks(request) => self.on_descriptor(call),
            // Through the stable file's descriptor it would change it at once, or its file system.
            _ => self.unsupported_errno("an ioctl that is not known here, on a versioned file"),
        }
    }

    /// `chdir(2)` and `fchdir(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn chdir(&mut self, object: Object) -> Sys<u64> {
        let id = match object {
            Object::Node(id) => id,
            Object::Live(path) => {
                let stat = kernel::statx(libc::AT_FDCWD, &path, 0)?;
                if stat.kind() != FileKind::Dir {
                    return Err(Errno::NOTDIR);
                }
                kernel::access(&path, mask::X)?;
                self.tree.live_dir(&path)?
            }
            Object::Fd(real) => {
                let path = kernel::path_of_fd(real)?;
                if kernel::look_fd(real)?.kind() != FileKind::Dir {
                    return Err(Errno::NOTDIR);
                }
                self.tree.live_dir(&path)?
            }
        };
        if !self.tree.nodes[id].is_dir() {
            return Err(Errno::NOTDIR);
        }
        self.may(id, mask::X)?;
        self.tree.cwd = Some(id);
        self.process.moved.0 = true;
        Ok(0)
    }

    /// `chroot(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn chroot(&mut self, object: Object) -> Sys<u64> {
        let Object::Node(id) = object else {
            return self.unsupported_errno("chroot to a directory that is not versioned");
        };
        if !self.tree.nodes[id].is_dir() {
            return Err(Errno::NOTDIR);
        }
        self.may(id, mask::X)?;
        if !self.process.cred().may_chroot() {
            return Err(Errno::PERM);
        }
        // The working directory stays what it is.
        self.cwd()?;
        self.tree.root = id;
        self.process.moved.1 = true;
        Ok(0)
    }

    /// `getcwd(2)`: the length with the final zero.
    ///
    /// # Errors
    /// As the call.
    pub fn getcwd(&mut self, call: &Call) -> Sys<u64> {
        let out = call.buffer(0, call.word(1));
        let cwd = self.cwd()?;
        if self.tree.unreachable == Some(cwd) {
            return call.answer();
        }
        if self.tree.nodes[cwd].dir()?.removed {
            return Err(Errno::NOENT);
        }
        let mut path = self.tree.path_of(cwd);
        if self.tree.root != self.tree.top {
            let top = self.tree.path_of(self.tree.root);
            path = match path.strip_prefix(&top[..]) {
                Some(b"") => b"/".to_vec(),
                Some(rest) if rest.starts_with(b"/") => rest.to_vec(),
                _ => [b"(unreachable)", &path[..]].concat(),
            };
        }
        path.push(0);
        if out.len() < path.len() as u64 {
            return Err(Errno::RANGE);
        }
        out.write(&path)?;
        Ok(path.len() as u64)
    }

    /// `umask(2)`.
    pub fn set_umask(&mut self, new: u32) -> u64 {
        let old = self.umask();
        self.process.umask = Some(new & 0o777);
        u64::from(old)
    }

    /// A call whose first argument is a descriptor, and which is the kernel's business otherwise.
    ///
    /// # Errors
    /// As the call.
    pub fn on_descriptor(&mut self, call: &Call) -> Sys<u64> {
        call.with_descriptor(0, self.real(call.int(0))?).answer()
    }

    /// `poll(2)` and `ppoll(2)`: with the kernel's numbers for the program's.
    ///
    /// # Errors
    /// As the call.
    pub fn poll(&mut self, call: &Call) -> Sys<u64> {
        const WRITABLE: i16 = libc::POLLOUT | libc::POLLWRNORM;
        const READABLE: i16 = libc::POLLIN | libc::POLLRDNORM;
        let (given, count) = (call.pointer::<libc::pollfd>(0), call.word(1));
        if count > 65_536 {
            return Err(Errno::INVAL);
        }
        let mut list = Vec::with_capacity(count as usize);
        // Those that a write to would be held for, and those that an earlier attempt has left something for.
        let (mut ready, may_hold) = (Vec::new(), self.may_hold());
        for i in 0..count {
            let one = given.item(i).read()?;
            if one.events & WRITABLE != 0 && may_hold && self.is_writable(one.fd) {
                ready.push((i as usize, WRITABLE));
            }
            if one.events & READABLE != 0 && self.left_for(one.fd).is_some() {
                ready.push((i as usize, READABLE));
            }
            list.push(one);
        }
        let blind = self.blind(list.iter().enumerate());
        for one in &mut list {
            if one.fd >= 0 {
                // One that is closed is answered with POLLNVAL, which a number never used gives.
                one.fd = self.real(one.fd).unwrap_or(i32::MAX);
            }
            one.revents = 0;
        }
        let mut n = match blind.is_empty() {
            true => {
                // SAFETY: the list is as long as the program's, and lives until the answer.
                let real_call = unsafe { call.with_word(0, list.as_mut_ptr() as u64) };
                self.answer_wait(&real_call, !ready.is_empty(), || {})?
            }
            false => {
                let (_, _, within) = effects::waits(call)?;
                self.wait_past_looks(&mut list, &blind, within, !ready.is_empty())?
            }
        };
        for (i, events) in ready {
            let one = &mut list[i];
            n += u64::from(one.revents == 0);
            one.revents |= one.events & events;
        }
        let asks_more = list.iter().any(|one| one.fd >= 0 && one.events & !WRITABLE != 0);
        let only_room = list.iter().all(|one| one.revents & !WRITABLE == 0);
        self.has_found(n, asks_more && only_room)?;
        for (i, one) in list.iter().enumerate() {
            let revents = std::mem::offset_of!(libc::pollfd, revents);
            given.item(i as u64).part::<i16>(revents).write(one.revents)?;
        }
        Ok(n)
    }

    /// `select(2)` and `pselect6(2)`: with the kernel's numbers for the program's.
    ///
    /// # Errors
    /// As the call.
    pub fn select(&mut self, call: &Call) -> Sys<u64> {
        if call.int(0) < 0 {
            return Err(Errno::INVAL);
        }
        let mut limit = call.word(0) as usize & 0x7fff_ffff;
        if limit > libc::FD_SETSIZE {
            // The kernel looks no further than the program's table of descriptors is long.
            let last = kernel::open_numbers()?.into_iter().max().unwrap_or(0);
            limit = limit.min(last as usize / 64 * 64 + 64);
        }
        let words = limit.div_ceil(64);
        let mut numbers = Vec::new();
        let mut sets: [Vec<i32>; 3] = Default::default();
        let given: [UserPtr<u64>; 3] = [call.pointer(1), call.pointer(2), call.pointer(3)];
        for (set, at) in sets.iter_mut().zip(given) {
            if at.is_null() {
                continue;
            }
            for word in 0..words {
                let bits = at.item(word as u64).read()?;
                for bit in (0..64).filter(|bit| bits >> bit & 1 != 0) {
                    let fd = word * 64 + bit;
                    if fd < limit {
                        let fd = i32::try_from(fd).map_err(|_| Errno::BADF)?;
                        numbers.push((fd, self.real(fd)?));
                        set.push(fd);
                    }
                }
            }
        }
        numbers.sort_unstable();
        let real_of = |fd: i32| {
            numbers.binary_search_by_key(&fd, |pair| pair.0).ok().map(|at| numbers[at].1 as usize)
        };
        let top = numbers.iter().map(|pair| pair.1 as usize + 1).max().unwrap_or(0);
        let mut real_sets = [const { Vec::new() }; 3];
        // SAFETY: the sets that follow have room for so many.
        let mut real_call = unsafe { call.with_word(0, top as u64) };
        for (i, set) in sets.iter().enumerate() {
            if given[i].is_null() {
                continue;
            }
            real_sets[i] = vec![0u64; top.div_ceil(64).max(1)];
            for real in set.iter().filter_map(|&fd| real_of(fd)) {
                real_sets[i][real / 64] |= 1 << (real % 64);
            }
            // SAFETY: it has room for `top` numbers, and lives until the answer.
            real_call = unsafe { real_call.with_word(i + 1, real_sets[i].as_mut_ptr() as u64) };
        }
        // Where it is ready, in which set.
        let mut ready: Vec<(usize, usize)> = Vec::new();
        if self.may_hold() {
            let numbers = sets[1].iter().filter(|&&fd| self.is_writable(fd));
            ready.extend(numbers.filter_map(|&fd| Some((1, real_of(fd)?))));
        }
        let left = sets[0].iter().filter(|&&fd| self.left_for(fd).is_some());
        ready.extend(left.filter_map(|&fd| Some((0, real_of(fd)?))));
        for &number in &sets[1] {
            self.before_asking(number, true);
        }
        let readable: Vec<libc::pollfd> = match self.held.input.any() {
            true => {
                let one = |&fd: &i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                sets[0].iter().map(one).collect()
            }
            false => Vec::new(),
        };
        if !self.blind(readable.iter().enumerate()).is_empty() {
            return self.select_past_looks(call, &sets, given, words);
        }
        let asked = self.keeps_others_waiting().then(|| real_sets.clone());
        let mut n = self.answer_wait(&real_call, !ready.is_empty(), || {
            for (set, asked) in real_sets.iter_mut().zip(asked.iter().flatten()) {
                set.copy_from_slice(asked);
            }
        })?;
        for (set, real) in ready {
            let word = &mut real_sets[set][real / 64];
            n += u64::from(*word >> (real % 64) & 1 == 0);
            *word |= 1 << (real % 64);
        }
        let asks_more = !(sets[0].is_empty() && sets[2].is_empty());
        let only_room = [0, 2].into_iter().all(|set| real_sets[set].iter().all(|&word| word == 0));
        self.has_found(n, asks_more && only_room)?;
        for (i, set) in sets.iter().enumerate() {
            if given[i].is_null() {
                continue;
            }
            let mut out = vec![0u64; words];
            for &fd in set {
                let ready = real_of(fd).is_some_and(|r| real_sets[i][r / 64] >> (r % 64) & 1 != 0);
                if ready {
                    out[fd as usize / 64] |= 1 << (fd as usize % 64);
                }
            }
            for (word, bits) in out.into_iter().enumerate() {
                given[i].item(word as u64).write(bits)?;
            }
        }
        Ok(n)
    }

    /// `select(2)` of which some descriptors are looked at only: by `poll(2)`, as the kernel does it.
    fn select_past_looks(
        &mut self,
        call: &Call,
        sets: &[Vec<i32>; 3],
        given: [UserPtr<u64>; 3],
        words: usize,
    ) -> Sys<u64> {
        const ASKED: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
        const TOLD: [i16; 3] = [
            libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR,
            libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR,
            libc::POLLPRI,
        ];
        let mut list = Vec::new();
        let (mut ready, may_hold) = (Vec::new(), self.may_hold());
        for (set, (numbers, events)) in sets.iter().zip(ASKED).enumerate() {
            for &fd in numbers {
                if set == 1 && may_hold && self.is_writable(fd)
                    || set == 0 && self.left_for(fd).is_some()
                {
                    ready.push((list.len(), events));
                }
                list.push(libc::pollfd { fd, events, revents: 0 });
            }
        }
        let blind = self.blind(list.iter().enumerate());
        for one in &mut list {
            one.fd = self.real(one.fd)?;
        }
        let (_, _, within) = effects::waits(call)?;
        self.wait_past_looks(&mut list, &blind, within, !ready.is_empty())?;
        for (place, events) in ready {
            list[place].revents |= events;
        }
        let (mut told, mut n, mut only_room) = (list.iter(), 0, true);
        for (set, numbers) in sets.iter().enumerate() {
            let mut out = vec![0u64; words];
            for (&fd, one) in numbers.iter().zip(&mut told) {
                if one.revents & TOLD[set] != 0 {
                    out[fd as usize / 64] |= 1 << (fd as usize % 64);
                    n += 1;
                    only_room &= set == 1;
                }
            }
            if !given[set].is_null() {
                for (word, bits) in out.into_iter().enumerate() {
                    given[set].item(word as u64).write(bits)?;
                }
            }
        }
        self.has_found(n, only_room)?;
        Ok(n)
    }

    /// `close_range(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn close_range(&mut self, first: u32, last: u32, flags: u32) -> Sys<u64> {
        const UNSHARE: u32 = 2;
        const CLOEXEC: u32 = 4;
        if first > last || flags & !(UNSHARE | CLOEXEC) != 0 {
            return Err(Errno::INVAL);
        }
        let mut numbers = kernel::open_numbers()?;
        numbers.retain(|n| !self.fds.is_ours(*n) && !self.is_number_anothers(*n));
        numbers.extend(self.fds.touched().iter().map(|(n, _)| *n));
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            if u32::try_from(number).is_ok_and(|n| (first..=last).contains(&n)) {
                let _ = match flags & CLOEXEC != 0 {
                    true => self.set_cloexec(number, true).map(drop),
                    false => self.close_number(number),
                };
            }
        }
        Ok(0)
    }
}

impl ShadowTree {
    /// The kernel's path to an object, for calls that are passed on by path.
    ///
    /// # Errors
    /// ENOENT for what exists only in the transaction.
    pub fn kernel_path(&self, object: &Object) -> Sys<Vec<u8>> {
        match object {
            Object::Node(id) => match (&self.nodes[*id].data, &self.nodes[*id].stable) {
                (Data::Whole(backing), None) => Ok(backing.path.clone()),
                (_, Some(stable)) => Ok(stable.path.clone()),
                _ => Err(Errno::NOENT),
            },
            Object::Live(path) => Ok(path.clone()),
            Object::Fd(fd) => Ok(kernel::magic_path(*fd)),
        }
    }
}

/// Whether a call makes a counter.
fn is_counter(number: i64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if number == libc::SYS_eventfd {
        return true;
    }
    number == libc::SYS_eventfd2
}

impl ShadowTree {
    /// The stable file of a node, opened at a number out of the way. `None`: there is none, it is another one by now, or it can't be
    /// opened so.
    pub fn open_counterpart(&self, id: Id, access: i32) -> Option<OwnedFd> {
        let node = &self.nodes[id];
        let path = &node.stable.as_ref().filter(|_| !node.live)?.path;
        let flags = access | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let fd = kernel::as_owner(|| OwnedFd::open(path, flags)).ok()?;
        if !self.is_same_file(id, fd.number()) {
            return None;
        }
        kernel::move_high(fd.into_number()).ok().map(OwnedFd::of)
    }
}

impl Tx {
    /// A call that makes descriptors which are not files: pipes, sockets, events.
    ///
    /// # Errors
    /// As the call.
    pub fn new_descriptor(&mut self, call: &Call) -> Sys<u64> {
        // `accept` is one of them.
        let takes = super::effects::takes(call.number());
        let fd = if takes { call.answer_waiting() } else { call.answer() }? as i32;
        let number = self.plain(fd)?;
        // Nobody else has a new counter.
        if is_counter(call.number()) {
            self.fds.is_inside(number);
        }
        Ok(number as u64)
    }

    /// Gives a descriptor of the kernel's that is no versioned file its number.
    ///
    /// # Errors
    /// EBADF.
    pub fn plain(&mut self, fd: i32) -> Sys<i32> {
        let flags = kernel::status_flags(fd)?;
        let cloexec = kernel::close_on_exec(fd)?;
        let file = self.fds.add(OpenFile { flags, ..OpenFile::default() });
        self.number(file, fd, cloexec, 0)
    }

    /// A descriptor that was put out of the way gets its number.
    ///
    /// # Errors
    /// EMFILE.
    pub fn lowered(&mut self, high: i32, cloexec: bool) -> Sys<i32> {
        let high = OwnedFd::of(high);
        let low = kernel::duplicate(high.number(), 0, cloexec)?;
        drop(high);
        self.plain(low)
    }

    /// `pipe2(2)`, `socketpair(2)`: two descriptors, to where the argument `out` points.
    ///
    /// # Errors
    /// As the call.
    pub fn new_pair(&mut self, call: &Call, out: usize) -> Sys<u64> {
        call.answer()?;
        let cloexec = match call.number() {
            libc::SYS_pipe2 => call.int(1) & libc::O_CLOEXEC != 0,
            libc::SYS_socketpair => call.int(1) & libc::SOCK_CLOEXEC != 0,
            _ => false,
        };
        let out = call.pointer::<[i32; 2]>(out);
        let pair = out.read()?;
        // Each gets the lowest number that is free when it is its turn.
        let [first, second] = kernel::move_pair_high(pair)?;
        let pair = [
            self.lowered(first.into_number(), cloexec)?,
            self.lowered(second.into_number(), cloexec)?,
        ];
        pair.into_iter().for_each(|number| self.fds.is_inside(number));
        out.write(pair)?;
        Ok(0)
    }
}

impl FdTable {
    /// Output to a new descriptor stays within the transaction.
    fn is_inside(&mut self, number: i32) {
        if let Descriptor::Open { file, .. } = self.descriptor(number) {
            self.get_mut(file).reach = super::effects::Reach::Inside;
        }
    }
}

/// `fcntl(2)`: whether two descriptors are of one description.
const F_DUPFD_QUERY: i32 = 1027;

const SETFLAGS: u64 = 0x4008_6602;
const SETFLAGS_32: u64 = 0x4004_6602;
const FSSETXATTR: u64 = 0x401c_5820;

/// Whether a request to a file or a directory tells something, and changes nothing: these are what the
/// kernel and its file systems document so.
fn only_asks(request: u64) -> bool {
    /// Requests to terminals, which no file is: programs try them out.
    const TERMINAL: u64 = 0x54;
    const ASKS: [u64; 18] = [
        1,           // FIBMAP
        2,           // FIGETBSZ
        0x5460,      // FIOQSIZE
        0xc020_660b, // FS_IOC_FIEMAP
        0x8008_6601, // FS_IOC_GETFLAGS
        0x8004_6601, // the same of 32 bits
        0x8008_7601, // FS_IOC_GETVERSION
        0x8004_7601, // the same of 32 bits
        0x801c_581f, // FS_IOC_FSGETXATTR
        0x8100_9431, // FS_IOC_GETFSLABEL
        0x8011_1500, // FS_IOC_GETFSUUID
        0x8081_1501, // FS_IOC_GETFSSYSFSPATH
        0x400c_6615, // FS_IOC_GET_ENCRYPTION_POLICY
        0xc009_6616, // FS_IOC_GET_ENCRYPTION_POLICY_EX
        0xc004_6686, // FS_IOC_MEASURE_VERITY
        0x8100_587e, // XFS_IOC_FSGEOMETRY
        0x8400_941f, // BTRFS_IOC_FS_INFO
        0xd000_9412, // BTRFS_IOC_INO_LOOKUP
    ];
    request >> 8 & 0xff == TERMINAL && request >> 16 == 0 || ASKS.contains(&request)
}

/// What the kernel adds to the status flags of a 64-bit program's files.
const LARGE: u64 = 0o100_000;
