//! Signals of a process of a transaction.
//!
//! To those that are in the transaction they go at once: the process sends them itself. One to a process outside is held until
//! the commit by who has the transaction. Whether it may be sent, the process asks the kernel, as who it is. In a group may be both: then each
//! process of the transaction gets it at once, and for each of the others one is held.
#![allow(unsafe_code)] // calls of ours in the program's place

use std::time::{Duration, Instant};

use super::calls::{Done, answer_of};
use super::link::{Link, number_of_process};
use super::wire::{self, Ask, How, Request};
use crate::call::Call;
use crate::raw::{Errno, Sys};
use crate::tx::held::{Aim, aim, info_at, may_send};
use crate::tx::kernel;

/// How long it is waited for a process that is about to say that it is there.
const PATIENCE: Duration = Duration::from_secs(2);

/// A call that sends a signal, and does not only ask.
pub fn send(link: &Link, call: &Call) -> Sys<Done> {
    let Some(aim) = aim(call)? else { return Ok(Done::Natively) };
    match aim {
        Aim::Process(number) => match of_the_transaction(link, number) {
            Of::Transaction => Ok(Done::Natively),
            Of::Later => Ok(Done::Later),
            Of::Others => {
                may_send(call)?;
                // It is in the transaction no more, and this process may be about to wait for it.
                if kernel::parent_of(number) == Some(number_of_process() as i32) {
                    return at_once(link, call);
                }
                held(link, call, *call.words())
            }
        },
        Aim::Group(group) => {
            may_send(call)?;
            to_group(link, call, group)
        }
        Aim::All => {
            may_send(call)?;
            held(link, call, *call.words())
        }
        Aim::Unknown => {
            may_send(call)?;
            at_once(link, call)
        }
    }
}

/// To what a process belongs.
enum Of {
    Transaction,
    Others,
    /// It can't be told yet.
    Later,
}

fn of_the_transaction(link: &Link, number: i32) -> Of {
    let process = u64::from(number.unsigned_abs());
    if process == number_of_process() {
        return Of::Transaction;
    }
    let mut request = Request::new(Ask::IsMember, 0);
    request.words[0] = process;
    let (answer, beside) = link.ask(&request);
    beside.into_iter().flatten().for_each(kernel::close);
    match (answer.how(), answer.answer) {
        (Some(How::Later), _) => Of::Later,
        (_, 1) => Of::Transaction,
        _ => Of::Others,
    }
}

/// It is not part of the transaction.
fn at_once(link: &Link, call: &Call) -> Sys<Done> {
    link.live(call.number());
    Ok(Done::Natively)
}

/// Has a signal held until the commit.
fn held(link: &Link, call: &Call, mut words: [u64; 6]) -> Sys<Done> {
    if let Some(at) = info_at(call.number()).filter(|&at| call.word(at) != 0) {
        let info: kernel::Info = call.pointer(at).read()?;
        let bytes: Vec<u8> = info.into_iter().flat_map(u64::to_ne_bytes).collect();
        words[at] = link.put(&mut wire::Layout::default(), &bytes)? as u64;
    }
    let request = Request::new(Ask::Signal, call.number()).with(words);
    let through = [call.int(0)];
    let beside = if call.number() == libc::SYS_pidfd_send_signal { &through[..] } else { &[] };
    wire::send(link.socket, &request, beside)?;
    let (answer, beside) = link.take_answer();
    beside.into_iter().flatten().for_each(kernel::close);
    match answer.how() {
        // Nobody can send it later with the rights of this process.
        Some(How::Yourself) => at_once(link, call),
        _ => answer_of(answer.answer).map(Done::Answer),
    }
}

/// A signal to a process group, which the caller may signal.
fn to_group(link: &Link, call: &Call, group: i32) -> Sys<Done> {
    let (members, others) = match who_is_in(link, group)? {
        Some(all) => all,
        None => return Ok(Done::Later),
    };
    let words = |to: i32| {
        let mut words = *call.words();
        if call.number() == libc::SYS_kill {
            words[0] = to as u64;
        }
        words
    };
    match (&members[..], &others[..]) {
        (_, []) => return Ok(Done::Natively),
        ([], _) => return held(link, call, words(-group)),
        _ if call.number() != libc::SYS_kill => return at_once(link, call),
        _ => {}
    }
    let own = number_of_process() as i32;
    let signal = call.int(1);
    let to = |number: i32| {
        let words = [number as u64, signal as u64, 0, 0, 0, 0];
        // SAFETY: it has no pointers.
        unsafe { Call::new(libc::SYS_kill, words) }
    };
    let mut done: Sys<Done> = Err(Errno::PERM);
    for other in others {
        let call = to(other);
        let held = may_send(&call).and_then(|()| held(link, &call, *call.words()));
        match held {
            Ok(Done::Natively) => done = call.answer().map(|_| Done::Answer(0)).or(done),
            Ok(_) => done = Ok(Done::Answer(0)),
            Err(_) => {}
        }
    }
    // Those that are made meanwhile get it as well. One that has got it, and makes another after that, has done so natively.
    let (mut told, mut found) = (Vec::new(), members);
    loop {
        found.retain(|number| *number != own && !told.contains(number));
        if found.is_empty() {
            break;
        }
        for number in found.drain(..) {
            told.push(number);
            if to(number).answer().is_ok() {
                done = Ok(Done::Answer(0));
            }
        }
        let began = Instant::now();
        while found.is_empty() && began.elapsed() < PATIENCE {
            match who_is_in(link, group) {
                Ok(Some((members, _))) => {
                    found = members;
                    break;
                }
                // One that is about to say that it is there.
                Ok(None) => std::thread::yield_now(),
                Err(_) => break,
            }
        }
    }
    if kernel::group_of(0) == Ok(group) { Ok(Done::Make(to(own))) } else { done }
}

/// The processes of a group: those that are in the transaction, and the others. `None`: it can't be told yet.
fn who_is_in(link: &Link, group: i32) -> Sys<Option<(Vec<i32>, Vec<i32>)>> {
    let mut request = Request::new(Ask::Group, 0);
    request.words[0] = group as u64;
    let (answer, beside) = link.ask(&request);
    beside.into_iter().flatten().for_each(kernel::close);
    if answer.how() == Some(How::Later) {
        return Ok(None);
    }
    let count = answer_of(answer.answer)? as usize;
    let bytes = link.path(answer.more[0]);
    let numbers = bytes.as_chunks::<4>().0.iter().map(|bytes| i32::from_ne_bytes(*bytes));
    let mut all: Vec<i32> = numbers.collect();
    let others = all.split_off(count.min(all.len()));
    Ok(Some((all, others)))
}
