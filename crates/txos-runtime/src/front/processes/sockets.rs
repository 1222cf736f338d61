//! Addresses of sockets that are paths, for a process of several. The socket is the process's own, and a path leads to what
//! the transaction has there: the server binds the socket to a new name of the transaction, or answers with a descriptor of the socket
//! that is at the path, through which the process connects.
#![allow(unsafe_code)] // addresses of ours in the program's calls

use super::link::{Link, Process};
use super::paths::look_up;
use super::wire::{self, Ask, How, Request};
use crate::call::Call;
use crate::front::thread::{self, Thread};
use crate::front::tls::here;
use crate::raw::{Errno, Sys, check};
use crate::tx::kernel::{self, OwnedFd, Side};
use crate::tx::sockets::{Address, Header, is_at, path_in};
use crate::tx::spaces::Outlet;

/// The kernel's address of a socket that was bound in the transaction, and the program's path.
pub type Bound = (Vec<u8>, Vec<u8>);

/// A call with another address.
pub struct Prepared {
    call: Call,
    address: Box<Address>,
    header: Option<Box<Header>>,
    /// The address leads through it.
    _through: Option<OwnedFd>,
    /// If it succeeds, it is live.
    live: bool,
}

/// The path in the address of a call.
pub fn path_of(call: &Call) -> Option<Vec<u8>> {
    match call.number() {
        libc::SYS_bind | libc::SYS_connect => path_in(call.buffer(1, u64::from(call.uint(2)))),
        libc::SYS_sendto => path_in(call.buffer(4, u64::from(call.uint(5)))),
        libc::SYS_sendmsg => path_in(Header::read(call.pointer(1)).ok()?.address()),
        _ => None,
    }
}

/// What is to be done with a call whose address is a path. `None`: it is done, with success.
pub fn prepare(link: &mut Link, strict: bool, call: &Call, path: Vec<u8>) -> Sys<Option<Prepared>> {
    let binds = call.number() == libc::SYS_bind;
    let mut connects_to_new = false;
    let (place, through) = match look_up(link, call.number(), libc::AT_FDCWD, path.clone()) {
        Some((libc::AT_FDCWD, path)) => match ask(link, call, &path)? {
            Led::Bound(kept) => {
                link.bound.push((kept, path));
                return Ok(None);
            }
            Led::Through(fd, new) => {
                connects_to_new = new;
                (kernel::magic_path(fd.number()), Some(fd))
            }
            Led::Elsewhere(path) => {
                if !binds {
                    is_at(&path)?;
                }
                (path, None)
            }
        },
        _ => (path, None),
    };
    let tells_after = call.number() == libc::SYS_connect && !strict;
    if !tells_after && !connects_to_new {
        link.live(call.number());
    }
    let address = Box::new(Address::of(&place, binds)?);
    let (call, header) = match call.number() {
        libc::SYS_sendmsg => {
            let mut header = Box::new(Header::read(call.pointer(1))?);
            header.set_address(&address);
            // SAFETY: it is kept until the answer.
            (unsafe { call.with_word(1, header.at()) }, Some(header))
        }
        // SAFETY: it is kept until the answer.
        libc::SYS_sendto => (unsafe { address.put_in(call, 4, 5) }, None),
        // SAFETY: as above.
        _ => (unsafe { address.put_in(call, 1, 2) }, None),
    };
    let live = tells_after && !connects_to_new;
    Ok(Some(Prepared { call, address, header, _through: through, live }))
}

impl Prepared {
    /// Makes the call; a signal may end it.
    pub fn make(self, thread: &Thread, process: &Process) -> Sys<u64> {
        let answer = thread::make_in_program(here(), super::calls::mask_of(thread), &self.call);
        if answer >= 0 && self.live {
            process.link().live(self.call.number());
        }
        drop((self.address, self.header));
        check(answer)
    }
}

/// Where an address leads.
enum Led {
    Bound(Vec<u8>),
    Through(OwnedFd, bool),
    Elsewhere(Vec<u8>),
}

fn ask(link: &Link, call: &Call, path: &[u8]) -> Sys<Led> {
    let binds = call.number() == libc::SYS_bind;
    let is_before = Outlet::of(call.int(0)).is_some_and(|outlet| link.outlets.contains(&outlet));
    let mut request = Request::new(Ask::Address, call.number());
    let path = [path, b"\0"].concat();
    let place = link.put(&mut wire::Layout::default(), &path)? as u64;
    request.words = [place, is_before.into(), 0, 0, 0, 0];
    let socket = [call.int(0)];
    let beside = if binds { &socket[..] } else { &[] };
    wire::send(link.socket, &request, beside)?;
    let (answer, beside) = link.take_answer();
    let [fd, other] = beside.map(|fd| fd.map(OwnedFd::of));
    drop(other);
    match (answer.how(), fd) {
        (Some(How::Elsewhere), _) => Ok(Led::Elsewhere(link.path(answer.more[0]))),
        (Some(How::WithDescriptors), Some(fd)) => Ok(Led::Through(fd, answer.more[1] != 0)),
        _ => {
            super::calls::answer_of(answer.answer)?;
            if binds { Ok(Led::Bound(link.path(answer.more[0]))) } else { Err(Errno::IO) }
        }
    }
}

/// `getsockname(2)` and `getpeername(2)`, of sockets that were bound in the transaction: the program's path. `None`: the
/// kernel's answer is right.
pub fn name(bound: &[Bound], call: &Call) -> Sys<Option<i64>> {
    let side = if call.number() == libc::SYS_getsockname { Side::Own } else { Side::Peer };
    let (name, len) = kernel::socket_address(call.int(0), side)?;
    let given = &name[..(len as usize).min(name.len())];
    let Some((_, path)) = bound.iter().find(|(kept, _)| kept == given) else { return Ok(None) };
    let room: u32 = call.pointer(2).read()?;
    if room > i32::MAX as u32 {
        return Err(Errno::INVAL);
    }
    let all = [&given[..2], path, &[0]].concat();
    call.buffer(1, u64::from(room)).write(&all[..all.len().min(room as usize)])?;
    call.pointer(2).write(all.len() as u32)?;
    Ok(Some(0))
}
