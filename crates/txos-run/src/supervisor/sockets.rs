//! Sockets: what leaves the machine, what reaches a service, and sockets that overlayfs hides.
//!
//! The kernel finds a listening Unix socket by its inode. Through an overlay a socket of the
//! stable tree has another inode, so that connecting to it would be refused. The supervisor
//! therefore connects such a socket itself, as the caller, who must be able to reach it both in its view
//! and in the stable tree. The service sees the caller's user and groups, and the supervisor's process
//! number.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FileType, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use rustix::process::PidfdGetfdFlags;
use txos_engine::object::Facets;
use txos_engine::show::quoted_bytes;

use super::caller::AsCaller;
use super::path_class::PathClass;
use super::record::{arg, int};
use super::side_effects::Intent;
use super::{Supervisor, Verdict};
use crate::question;
use crate::sys::memory;
use crate::sys::seccomp::Call;
use crate::warning::WarningKind;

/// How many connects may wait for a service at a time.
const CONNECTS_MAX: usize = 256;

/// Longest address of any family, and where its family's part starts.
const ADDRESS_MAX: usize = 128;

/// Services that only give answers, take notes or draw pictures.
const HARMLESS: [&str; 9] = [
    "/run/nscd/",
    "/dev/log",
    "/run/systemd/journal/",
    "/run/systemd/userdb/",
    "/run/systemd/notify",
    "/run/systemd/resolve/",
    "/tmp/.X11-unix/",
    "@/tmp/.X11-unix/",
    "/run/user/",
];

/// A socket's address, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket by path, as written.
    Path(Vec<u8>),
    /// A Unix socket by an abstract name.
    Abstract(Vec<u8>),
    /// Another machine, as text.
    Remote(String),
    /// This machine, or nothing that leaves it.
    Local,
}

/// Reads an address as the kernel does.
#[must_use]
pub fn parse(bytes: &[u8]) -> Address {
    let Some(&[low, high]) = bytes.get(..2) else { return Address::Local };
    let rest = bytes.get(2..).unwrap_or_default();
    let port = || {
        u16::from_be_bytes([rest.first().copied().unwrap_or(0), rest.get(1).copied().unwrap_or(0)])
    };
    match i32::from(u16::from_ne_bytes([low, high])) {
        libc::AF_UNIX => match rest.split_first() {
            None => Address::Local,
            Some((0, [])) => Address::Local,
            Some((0, name)) => Address::Abstract(name.to_vec()),
            Some(_) => {
                let end = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
                Address::Path(rest.get(..end).unwrap_or(rest).to_vec())
            }
        },
        libc::AF_INET => {
            let Some(ip) = rest.get(2..6).and_then(|b| <[u8; 4]>::try_from(b).ok()) else {
                return Address::Local;
            };
            remote(Ipv4Addr::from(ip), port())
        }
        libc::AF_INET6 => {
            let Some(ip) = rest.get(6..22).and_then(|b| <[u8; 16]>::try_from(b).ok()) else {
                return Address::Local;
            };
            let ip = Ipv6Addr::from(ip);
            match ip.to_ipv4_mapped() {
                Some(v4) => remote(v4, port()),
                None if ip.is_loopback() || ip.is_unspecified() || port() == 0 => Address::Local,
                None => Address::Remote(format!("[{ip}]:{}", port())),
            }
        }
        libc::AF_VSOCK | libc::AF_PACKET => Address::Remote("a virtual or raw link".into()),
        _ => Address::Local,
    }
}

fn remote(ip: Ipv4Addr, port: u16) -> Address {
    // The C library connects datagram sockets to port 0 just to learn about routes.
    if ip.is_loopback() || ip.is_unspecified() || port == 0 {
        Address::Local
    } else {
        Address::Remote(format!("{ip}:{port}"))
    }
}

impl Supervisor {
    fn address(&self, call: &Call, pointer: u64, len: u64) -> Option<Address> {
        let len = usize::try_from(len).ok()?.min(ADDRESS_MAX);
        let mut bytes = [0u8; ADDRESS_MAX];
        let got = memory::read(call.pid, pointer, bytes.get_mut(..len)?).ok()?;
        Some(parse(bytes.get(..got)?))
    }

    pub(super) fn connect(&mut self, call: &Call) -> Verdict {
        let len = u64::from(arg(call, 2) as u32);
        match self.address(call, arg(call, 1), len) {
            Some(Address::Path(path)) => self.connect_by_path(call, &path),
            Some(Address::Abstract(name)) if name == question::NAME && self.questions.is_some() => {
                Verdict::Answer(self.connect_to_question(call).map(|()| 0))
            }
            Some(other) => self.reach(&other),
            None => Verdict::Through,
        }
    }

    /// Puts a socket in the place of the caller's at whose other end its question is answered.
    fn connect_to_question(&mut self, call: &Call) -> Result<(), Errno> {
        if !self.caller(call).ok_or(Errno::PERM)?.is_like_us() {
            return Err(Errno::PERM);
        }
        let theirs = self.questions.as_ref().ok_or(Errno::CONNREFUSED)?.begin()?;
        self.listener.put(call.id, theirs.as_fd(), int(call, 0))
    }

    pub(super) fn send_to(&mut self, call: &Call) -> Verdict {
        let len = u64::from(arg(call, 5) as u32);
        match self.address(call, arg(call, 4), len) {
            Some(address) => self.reach_resolved(call, address),
            None => Verdict::Through,
        }
    }

    pub(super) fn send_message(&mut self, call: &Call) -> Verdict {
        self.one_message(call, arg(call, 1))
    }

    /// `sendmmsg(2)`: each of the messages.
    pub(super) fn send_messages(&mut self, call: &Call) -> Verdict {
        /// Size of `struct mmsghdr`, and how many of them the kernel takes at most.
        const ONE: u64 = 64;
        const MAX: u64 = 1024;
        for i in 0..u64::from(int(call, 2).cast_unsigned()).min(MAX) {
            match self.one_message(call, arg(call, 1).wrapping_add(i * ONE)) {
                Verdict::Through => {}
                stop => return stop,
            }
        }
        Verdict::Through
    }

    fn one_message(&mut self, call: &Call, at: u64) -> Verdict {
        // struct msghdr: the address's pointer, then its length.
        let Ok(header) = memory::read_exact::<16>(call.pid, at) else {
            return Verdict::Through;
        };
        let [p0, p1, p2, p3, p4, p5, p6, p7, l0, l1, l2, l3, ..] = header;
        let pointer = u64::from_ne_bytes([p0, p1, p2, p3, p4, p5, p6, p7]);
        if pointer == 0 {
            return Verdict::Through;
        }
        let len = u64::from(u32::from_ne_bytes([l0, l1, l2, l3]));
        match self.address(call, pointer, len) {
            Some(address) => self.reach_resolved(call, address),
            None => Verdict::Through,
        }
    }

    fn reach_resolved(&mut self, call: &Call, address: Address) -> Verdict {
        match address {
            Address::Path(path) => {
                let path = self.absolute(call.pid, &path).unwrap_or(path);
                self.note_path(call, &path, true, Facets::ENTRY);
                self.reach(&Address::Path(path))
            }
            other => self.reach(&other),
        }
    }

    pub(super) fn bind(&mut self, call: &Call) -> Verdict {
        let len = u64::from(arg(call, 2) as u32);
        let Some(Address::Path(path)) = self.address(call, arg(call, 1), len) else {
            return Verdict::Through;
        };
        let Some(path) = self.absolute(call.pid, &path) else { return Verdict::Through };
        self.note_path(call, &path, false, Facets::ENTRY | Facets::WRITE);
        self.effect(call, &path, Intent::Make, false)
    }

    /// Tells of what reaches out.
    fn reach(&mut self, address: &Address) -> Verdict {
        match address {
            Address::Local => Verdict::Through,
            // Both end in a network of the command's own.
            Address::Remote(_) | Address::Abstract(_) if !self.has_network => Verdict::Through,
            Address::Remote(whom) => self.beyond(WarningKind::Network, || {
                format!("the command talks to {whom} over the network; that can't be rolled back")
            }),
            Address::Abstract(name) => self.service(&[b"@", &name[..]].concat()),
            Address::Path(path) => {
                let (_, path) = self.path_classes.find(path);
                self.service(&path)
            }
        }
    }

    fn service(&mut self, name: &[u8]) -> Verdict {
        let harmless = HARMLESS.iter().any(|h| name.starts_with(h.as_bytes()));
        let missing = name.first() == Some(&b'/') && {
            let name = name.to_vec();
            let found = txos_engine::patience::run(move || rustix::fs::stat(&name[..]));
            found.is_err_and(|e| e != Errno::TIMEDOUT)
        };
        if harmless || missing {
            return Verdict::Through;
        }
        self.beyond(WarningKind::Ipc, || {
            format!(
                "the command talks to a service through {}; what that does is not rolled back",
                quoted_bytes(name)
            )
        })
    }

    fn connect_by_path(&mut self, call: &Call, written: &[u8]) -> Verdict {
        let Some(path) = self.absolute(call.pid, written) else { return Verdict::Through };
        self.note_path(call, &path, true, Facets::ENTRY);
        if !matches!(self.path_classes.find(&path).0, PathClass::Versioned) {
            return self.reach(&Address::Path(path));
        }
        let Some(caller) = self.opener(call) else { return Verdict::Through };
        let Some(stable) = stable_socket(&caller, &path) else { return Verdict::Through };
        match self.service(&path) {
            Verdict::Through => {}
            stop => return stop,
        }
        match self.connect_ourselves(call, &caller, stable) {
            Ok(()) => Verdict::Later,
            Err(Errno::AGAIN) => Verdict::Answer(Err(Errno::AGAIN)),
            Err(_) => Verdict::Through, // The kernel's answer is as good as any.
        }
    }

    /// Connects the caller's socket on a thread, because that may wait for a process of the
    /// transaction; the thread answers.
    ///
    /// # Errors
    /// `EAGAIN` while [`CONNECTS_MAX`] wait: each holds descriptors, and a supervisor that has none left could
    /// not look at what others look at.
    fn connect_ourselves(
        &mut self,
        call: &Call,
        caller: &AsCaller,
        stable: OwnedFd,
    ) -> Result<(), Errno> {
        let waiting = Arc::clone(&self.connects);
        if Arc::strong_count(&waiting) > CONNECTS_MAX + 1 {
            return Err(Errno::AGAIN);
        }
        let process = self.pin(call)?.process;
        let socket =
            rustix::process::pidfd_getfd(&process, int(call, 0), PidfdGetfdFlags::empty())?;
        let listener = Arc::clone(&self.listener);
        let id = call.id;
        let work = move |assumed: Result<(), Errno>| {
            let connect = || {
                assumed?;
                let path = format!("/proc/self/fd/{}", stable.as_raw_fd());
                rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
            };
            listener.answer(id, connect().map(|()| 0));
            drop(waiting);
        };
        caller.run_apart(work).map_err(|_| Errno::AGAIN)
    }
}

/// The stable socket that the view shows the caller at a path, unless it was made inside. The caller
/// searches every directory on the way, in its view and in the stable tree.
fn stable_socket(caller: &AsCaller, path: &[u8]) -> Option<OwnedFd> {
    let socket = |fd: &OwnedFd| {
        if txos_engine::patience::kind(fd).ok()? != FileType::Socket {
            return None;
        }
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0).ok()?;
        caller.run(move || rustix::fs::fstat(&fd)).ok().map(|stat| stat.st_ino)
    };
    let shown = caller.find(path, OFlags::empty(), ResolveFlags::empty()).ok()?;
    let shown_path = super::process::path_of(shown.as_fd())?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let stable =
        caller.run(move || rustix::fs::open(&shown_path[..], flags, rustix::fs::Mode::empty()));
    let stable = stable.ok()?;
    (socket(&shown)? == socket(&stable)?).then_some(stable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(family: i32, rest: &[u8]) -> Vec<u8> {
        [&u16::try_from(family).unwrap().to_ne_bytes()[..], rest].concat()
    }

    #[test]
    fn unix_addresses() {
        let of = |rest: &[u8]| parse(&family(libc::AF_UNIX, rest));
        assert_eq!(of(b"/run/x\0\0"), Address::Path(b"/run/x".to_vec()));
        assert_eq!(of(b"rel"), Address::Path(b"rel".to_vec()));
        assert_eq!(of(b"\0name"), Address::Abstract(b"name".to_vec()));
        assert_eq!(of(b""), Address::Local);
        assert_eq!(parse(b""), Address::Local);
    }

    #[test]
    fn internet_addresses() {
        let v4 = |port: u16, ip: [u8; 4]| {
            parse(&family(libc::AF_INET, &[&port.to_be_bytes()[..], &ip].concat()))
        };
        assert_eq!(v4(80, [127, 1, 2, 3]), Address::Local);
        assert_eq!(v4(0, [9, 9, 9, 9]), Address::Local);
        assert_eq!(v4(80, [9, 9, 9, 9]), Address::Remote("9.9.9.9:80".into()));
        let v6 = |ip: Ipv6Addr| {
            let rest = [&80u16.to_be_bytes()[..], &[0; 4], &ip.octets()].concat();
            parse(&family(libc::AF_INET6, &rest))
        };
        assert_eq!(v6(Ipv6Addr::LOCALHOST), Address::Local);
        assert_eq!(v6(Ipv4Addr::LOCALHOST.to_ipv6_mapped()), Address::Local);
        assert_eq!(v6("2001:db8::1".parse().unwrap()), Address::Remote("[2001:db8::1]:80".into()));
        assert_eq!(parse(&family(libc::AF_INET, b"\0")), Address::Local);
    }
}
