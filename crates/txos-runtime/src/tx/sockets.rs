//! Addresses of sockets that are paths: `connect`, `bind`, `sendto`, `sendmsg`.
//!
//! The kernel would look the path up in the stable tree, from the working directory of before the
//! transaction. So it gets an address that leads to the object that the path leads to in the transaction.
//!
//! A socket that is bound to a path of a versioned file system is a new object, like one that `mknod(2)`
//! makes: it lies among the private copies until the commit, which gives it its name; a rollback takes it
//! back. The kernel keeps the address that the socket was bound to: `getsockname(2)` gives the program's
//! path within the transaction, and that of the private copy afterwards.
#![allow(unsafe_code)] // addresses of ours in the program's calls

use txos_engine::object::FileKind;

use super::Tx;
use super::attrs::Object;
use super::kernel::{self, Errno, OwnedFd, Side, Sys};
use super::names::Target;
use super::node::Node;
use super::perm::mask;
use super::walk::Spot;
use crate::call::Call;
use crate::user::{UserPtr, UserSlice, length_of};

/// `struct sockaddr_un`: the family, and a path that may end without a zero.
const FAMILY: usize = 2;
const PATH_MAX: usize = 108;
/// The longest address of any kind.
const ADDRESS_MAX: u64 = 128;

/// The header of a message, `struct msghdr`, as words: place and length of the address, place and number of
/// the buffers, place and length of the control data, flags.
pub struct Header {
    words: [u64; 7],
}

impl Header {
    /// Copies one.
    ///
    /// # Errors
    /// EFAULT.
    pub fn read(at: UserPtr<[u64; 7]>) -> Sys<Header> {
        at.read().map(|words| Header { words })
    }

    /// Where the kernel finds it, as long as it lives and stays in its place.
    pub fn at(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    /// The address of a message.
    pub fn address(&self) -> UserSlice {
        // SAFETY: the program gave it in its header.
        unsafe { UserSlice::new(self.words[0], self.words[1] & 0xffff_ffff) }
    }

    /// The buffers.
    ///
    /// # Errors
    /// EFAULT, EMSGSIZE, ENOMEM.
    pub fn buffers(&self) -> Sys<Vec<UserSlice>> {
        /// `UIO_MAXIOV`.
        const MOST: u64 = 1024;
        if self.words[3] > MOST {
            return Err(Errno::MSGSIZE);
        }
        // SAFETY: the program gave it in its header.
        unsafe { UserPtr::<[u64; 2]>::new(self.words[2]) }.buffers(self.words[3])
    }

    /// How many bytes the buffers have that a header leads to.
    ///
    /// # Errors
    /// As [`Header::read`] and [`Header::buffers`].
    pub fn length(header: UserPtr<[u64; 7]>) -> Sys<u64> {
        Ok(length_of(&Header::read(header)?.buffers()?))
    }

    /// The control data.
    pub fn control(&self) -> UserSlice {
        // SAFETY: the program gave it in its header.
        unsafe { UserSlice::new(self.words[4], self.words[5]) }
    }

    /// What the kernel says of a message that was received.
    pub fn flags(&self) -> i32 {
        self.words[6] as i32
    }

    /// Replaces the address.
    pub fn set_address(&mut self, address: &Address) {
        self.words[0] = address.bytes.as_ptr() as u64;
        self.words[1] = self.words[1] & !0xffff_ffff | address.len as u64;
    }

    /// Replaces the control data by a copy of it, if there is any.
    pub fn set_control(&mut self, control: &[u8]) {
        if !control.is_empty() {
            self.words[4] = control.as_ptr() as u64;
        }
    }
}

/// An address that leads the kernel to an object.
pub struct Address {
    bytes: [u8; FAMILY + PATH_MAX],
    len: usize,
    /// It leads through this descriptor.
    _through: Option<OwnedFd>,
}

impl Address {
    /// By a path of the kernel's. `new`: its last name is to be made.
    ///
    /// # Errors
    /// ENAMETOOLONG; as `open(2)` of the directory of a long path.
    pub fn of(path: &[u8], new: bool) -> Sys<Address> {
        let mut address = Address { bytes: [0; FAMILY + PATH_MAX], len: 0, _through: None };
        let short = if path.len() < PATH_MAX {
            path.to_vec()
        } else {
            let (dir, name) = match txos_engine::readset::split(path) {
                Some((dir, name)) if new => (dir, name),
                _ => (path, &b""[..]),
            };
            let fd = OwnedFd::open(dir, libc::O_PATH | libc::O_CLOEXEC)?;
            let through = kernel::magic_path(fd.number());
            address._through = Some(fd);
            match name {
                b"" => through,
                name => txos_engine::readset::join(&through, name),
            }
        };
        if short.len() >= PATH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        address.bytes[..FAMILY].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
        address.bytes[FAMILY..FAMILY + short.len()].copy_from_slice(&short);
        address.len = FAMILY + short.len() + 1;
        Ok(address)
    }

    /// What the kernel is given.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// A call with this address, and its length, as arguments.
    ///
    /// # Safety
    /// These are the arguments for them, and this lives and stays in its place until the answer.
    pub unsafe fn put_in(&self, call: &Call, at: usize, len: usize) -> Call {
        // SAFETY: the kernel reads the address, and the caller keeps it until then.
        unsafe { call.with_word(at, self.bytes.as_ptr() as u64).with_word(len, self.len as u64) }
    }
}

/// The path in an address; `None` if it is another kind of address, or none: the kernel says what is
/// wrong.
pub fn path_in(address: UserSlice) -> Option<Vec<u8>> {
    if address.address() == 0 || address.len() <= FAMILY as u64 || address.len() > ADDRESS_MAX {
        return None;
    }
    let bytes = address.read().ok()?;
    let family = u16::from_ne_bytes([bytes[0], bytes[1]]);
    let path = bytes[FAMILY..].split(|&b| b == 0).next().unwrap_or_default();
    let is_path = i32::from(family) == libc::AF_UNIX && !path.is_empty() && path.len() <= PATH_MAX;
    is_path.then(|| path.to_vec())
}

/// Whether a call receives from a socket, and can do nothing else.
#[must_use]
pub fn receives(number: i64) -> bool {
    matches!(number, libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_recvmmsg)
}

/// Whether an address is a path.
pub fn is_path(address: UserSlice) -> bool {
    path_in(address).is_some()
}

/// Whether the header of a message has an address that is a path, or descriptors.
pub fn needs_translation(header: UserPtr<[u64; 7]>) -> bool {
    Header::read(header).is_ok_and(|h| is_path(h.address()) || !h.control().is_empty())
}

/// Whether there is a socket at a path of the kernel's that is not the transaction's. Without one, `connect(2)` reaches
/// nobody: a strict transaction goes on.
///
/// # Errors
/// As `connect(2)`: those of the path, EACCES, and ECONNREFUSED for what is no socket.
pub fn is_at(place: &[u8]) -> Sys<()> {
    if kernel::statx(libc::AT_FDCWD, place, 0)?.kind() == FileKind::Socket {
        return Ok(());
    }
    kernel::access_at(libc::AT_FDCWD, place, libc::W_OK as u32, libc::AT_EACCESS)?;
    Err(Errno::CONNREFUSED)
}

impl Tx {
    /// The address of a socket that is there; `None`: the kernel takes the program's.
    fn address_of(&mut self, given: UserSlice) -> Sys<Option<Address>> {
        let Some(path) = path_in(given) else { return Ok(None) };
        self.address_of_path(&path).map(Some)
    }

    fn address_of_path(&mut self, path: &[u8]) -> Sys<Address> {
        let object = self.object(libc::AT_FDCWD, path, 0)?;
        let place = match &object {
            Object::Node(id) => {
                self.may(*id, mask::W)?;
                if self.tree.nodes[*id].kind() != FileKind::Socket {
                    return Err(Errno::CONNREFUSED);
                }
                match self.tree.nodes[*id].stable.is_some() {
                    true => self.tree.kernel_path(&object)?,
                    false => self.own_copy(*id)?,
                }
            }
            _ => {
                let place = self.tree.kernel_path(&object)?;
                is_at(&place)?;
                place
            }
        };
        Address::of(&place, false)
    }

    /// `connect(2)` and `sendto(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn to_address(&mut self, call: &Call) -> Sys<u64> {
        let number = call.number();
        let (at, len) = if number == libc::SYS_sendto { (4, 5) } else { (1, 2) };
        let address = self.address_of(call.buffer(at, u64::from(call.uint(len))))?;
        let call = match &address {
            // SAFETY: it lives until the answer.
            Some(address) => unsafe { address.put_in(call, at, len) },
            None => *call,
        };
        let call = &call;
        if number == libc::SYS_connect && self.how.flags & super::flags::STRICT == 0 {
            // One that fails (as to a name service that does not run) has done nothing.
            let done = self.connect(call)?;
            self.unsupported_call("network and socket traffic", b"")?;
            return Ok(done);
        }
        self.the_rest(call)
    }

    /// `connect(2)`. Who accepts may be waiting for what is held, so that is released when connecting has lasted for a while.
    fn connect(&mut self, call: &Call) -> Sys<u64> {
        /// Where connecting is taken to be a wait, as a `struct timeval`.
        const WHILE: [i64; 2] = [0, 100_000];
        let real = self.real(call.int(0))?;
        let call = call.with_descriptor(0, real);
        if !self.keeps_others_waiting() {
            return call.answer();
        }
        let (domain, kind) = kernel::socket_kind(real)?;
        let waits = kernel::status_flags(real)? & libc::O_NONBLOCK == 0
            && (domain == libc::AF_UNIX
                || matches!(kind, libc::SOCK_STREAM | libc::SOCK_SEQPACKET));
        let limit = kernel::send_limit(real);
        let is_longer = |limit: [i64; 2]| limit == [0; 2] || limit > WHILE;
        let limit = match limit {
            Ok(limit) if waits && is_longer(limit) => limit,
            _ => return call.answer(),
        };
        // Others can't be connected a second time.
        if domain != libc::AF_UNIX && !kernel::is_tcp(real) {
            self.release()?;
            return call.answer();
        }
        kernel::set_send_limit(real, WHILE)?;
        let done = call.answer();
        kernel::set_send_limit(real, limit)?;
        // A Unix socket, and another, which goes on connecting.
        if !matches!(done, Err(Errno::AGAIN | Errno::INPROGRESS | Errno::INTR)) {
            return done;
        }
        self.release()?;
        call.answer()
    }

    /// The address of a message: its place and length are the first words of its header. What it is
    /// replaced by is to be kept until the call is made.
    ///
    /// # Errors
    /// As the call.
    pub fn address_in_header(&mut self, header: &mut Header) -> Sys<Option<Box<Address>>> {
        let address = self.address_of(header.address())?.map(Box::new);
        if let Some(address) = &address {
            header.set_address(address);
        }
        Ok(address)
    }

    /// Whether the kernel would look for the address of a message elsewhere than the transaction.
    pub fn is_elsewhere(&mut self, header: &Header) -> bool {
        let path = path_in(header.address());
        path.is_some_and(|path| {
            let Ok(object) = self.object(libc::AT_FDCWD, &path, 0) else { return true };
            let natively = kernel::statx(libc::AT_FDCWD, &path, 0).map(|stat| stat.id);
            self.tree
                .kernel_path(&object)
                .and_then(|there| kernel::statx(libc::AT_FDCWD, &there, 0))
                .map(|stat| stat.id)
                != natively
        })
    }

    /// `bind(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn bind(&mut self, call: &Call) -> Sys<u64> {
        let given = call.buffer(1, u64::from(call.uint(2)));
        let Some(path) = path_in(given) else { return self.the_rest(call) };
        let file = self.file(call.int(0))?;
        let real = self.real(call.int(0))?;
        let target = match self.new_name(libc::AT_FDCWD, &path, false) {
            // The kernel says so before it says that the name is taken.
            Err(Errno::EXIST) => return Err(self.bound_or(real, Errno::ADDRINUSE)),
            other => other?,
        };
        let spot = match target {
            Target::Live(path) => {
                let address = Address::of(&path, true)?;
                // SAFETY: it lives until the answer.
                let call = unsafe { address.put_in(call, 1, 2) };
                return self.the_rest(&call);
            }
            Target::Here(spot) => spot,
        };
        let before = !self.fds.get(file).before.is_empty();
        self.bind_here(real, &spot, path, before)?;
        Ok(0)
    }

    /// Binds a socket, at its own descriptor, to a new name of the transaction. `before`: it is from before.
    fn bind_here(&mut self, real: i32, spot: &Spot, path: Vec<u8>, before: bool) -> Sys<Vec<u8>> {
        if before {
            // It would stay bound when the transaction is rolled back.
            return self
                .unsupported_errno("binding a socket from before to a path")
                .map(|_| Vec::new());
        }
        self.prepare_name(spot)?;
        let (mode, xattrs) = self.new_mode(spot.dir, libc::S_IFSOCK | 0o777);
        let stat = self.new_stat(spot.dir, mode, 0);
        let (_, place) = self.staged_path(stat.mnt)?;
        let address = kernel::as_owner(|| -> Sys<Address> {
            let address = Address::of(&place, true)?;
            kernel::step("staged bind", || kernel::bind(real, address.bytes()))?;
            Ok(address)
        })?;
        let mut node = Node::new(stat, None);
        node.xattrs = Some(xattrs.unwrap_or_default());
        let id = self.tree.add(node);
        self.tree.made.insert(id, place);
        self.tree.put(spot.dir, &spot.name, id)?;
        let kept = address.bytes().to_vec();
        self.process.bound.push((kept.clone(), path));
        Ok(kept)
    }

    /// `bind(2)` for a process of several, which has sent the socket: the address that the kernel knows.
    ///
    /// # Errors
    /// As the call.
    pub fn bind_of_member(&mut self, socket: i32, path: &[u8], before: bool) -> Sys<Vec<u8>> {
        match self.new_name(libc::AT_FDCWD, path, false) {
            Err(Errno::EXIST) => Err(self.bound_or(socket, Errno::ADDRINUSE)),
            Err(errno) => Err(errno),
            // It is left to the process.
            Ok(Target::Live(_)) => Err(Errno::XDEV),
            Ok(Target::Here(spot)) => self.bind_here(socket, &spot, path.to_vec(), before),
        }
    }

    /// The socket that an address leads a process of several to: a descriptor of it, and whether only the
    /// transaction has it.
    ///
    /// # Errors
    /// As `connect(2)`.
    pub fn peer_of_member(&mut self, path: &[u8]) -> Sys<(OwnedFd, bool)> {
        const PLACE: i32 = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let id = match self.object(libc::AT_FDCWD, path, 0)? {
            Object::Node(id) => id,
            _ => return Err(Errno::CONNREFUSED),
        };
        self.may(id, mask::W)?;
        if self.tree.nodes[id].kind() != FileKind::Socket {
            return Err(Errno::CONNREFUSED);
        }
        let stable = self.tree.nodes[id].stable.as_ref().map(|stable| stable.path.clone());
        let Some(stable) = stable else {
            let place = self.own_copy(id)?;
            return Ok((kernel::as_owner(|| OwnedFd::open(&place, PLACE))?, true));
        };
        let fd = match OwnedFd::open(&stable, PLACE) {
            Err(Errno::ACCESS) if kernel::is_worn() => self.tree.beyond(id)?,
            fd => fd?,
        };
        if !self.tree.is_same_file(id, fd.number()) {
            return Err(self.changed_outside(&stable, "it was replaced by another socket"));
        }
        Ok((fd, false))
    }

    /// EINVAL if a socket has an address already.
    fn bound_or(&self, real: i32, otherwise: Errno) -> Errno {
        match kernel::socket_address(real, Side::Own) {
            Ok((_, len)) if len > FAMILY as u32 => Errno::INVAL,
            _ => otherwise,
        }
    }

    /// `getsockname(2)` and `getpeername(2)`: of a socket that was bound in the transaction, the path
    /// that the program gave.
    ///
    /// # Errors
    /// As the call.
    pub fn socket_name(&mut self, call: &Call) -> Sys<u64> {
        if self.process.bound.is_empty() {
            return self.the_rest(call);
        }
        let room: u32 = call.pointer(2).read()?;
        let real = self.real(call.int(0))?;
        let own = call.number() == libc::SYS_getsockname;
        let (name, len) = kernel::socket_address(real, if own { Side::Own } else { Side::Peer })?;
        let given = &name[..(len as usize).min(name.len())];
        let Some((_, path)) = self.process.bound.iter().find(|(kept, _)| kept == given) else {
            return self.the_rest(call);
        };
        if room > i32::MAX as u32 {
            return Err(Errno::INVAL);
        }
        let all = [&given[..FAMILY], path, &[0]].concat();
        let out = call.buffer(1, u64::from(room));
        out.write(&all[..all.len().min(room as usize)])?;
        call.pointer(2).write(all.len() as u32)?;
        Ok(0)
    }
}
