//! Numbers of a process that are the transaction's: closed, copied, mapped.
#![allow(unsafe_code)] // calls of the runtime's own

use super::calls::answer_of;
use super::link::Link;
use super::wire::{self, Ask, Request};
use crate::call::Call;
use crate::raw::{Errno, Sys};
use crate::tx::kernel;

pub fn close(link: &mut Link, call: &Call) -> Sys<i64> {
    let number = call.int(0);
    if link.is_own(number) {
        return Err(Errno::BADF);
    }
    if !link.is_ours(number) {
        return answer_of(call.make());
    }
    let is_later = link.forget_image(number)? || link.closes_later(number);
    link.numbers.remove(&number);
    link.objects.remove(&number);
    if is_later {
        kernel::close(number);
        return Ok(0);
    }
    if link.is_lent(number) {
        link.settle_loans();
        link.lent.remove(number);
    }
    let answer = link.close(number);
    if link.began.is_some() {
        // What it has closed is closed.
        link.kept.remove(&number).into_iter().for_each(kernel::close);
    }
    kernel::close(number);
    answer_of(answer)
}

pub fn close_range(link: &mut Link, call: &Call) -> Sys<i64> {
    const UNSHARE: u32 = 2;
    const CLOEXEC: u32 = 4;
    let (first, last, flags) = (call.uint(0), call.uint(1), call.uint(2));
    if first > last || flags & !(UNSHARE | CLOEXEC) != 0 {
        return Err(Errno::INVAL);
    }
    let open = kernel::open_numbers()?.into_iter();
    for number in open.filter(|n| (first..=last).contains(&n.cast_unsigned())) {
        if link.is_own(number) {
            continue;
        }
        if flags & CLOEXEC != 0 {
            kernel::set_close_on_exec(number, true)?;
            if link.is_ours(number) {
                link.call(libc::SYS_fcntl, [number as u64, libc::F_SETFD as u64, 1, 0, 0, 0]);
            }
            continue;
        }
        // SAFETY: it has no pointers.
        let one = unsafe { Call::new(libc::SYS_close, [number as u64, 0, 0, 0, 0, 0]) };
        let _ = close(link, &one);
    }
    Ok(0)
}

/// A second number for one of the transaction's.
pub fn duplicate(link: &mut Link, number: i32, least: i32, cloexec: bool) -> Sys<i64> {
    if !(0..kernel::descriptor_limit()).contains(&least) {
        return Err(Errno::INVAL);
    }
    link.hand_over(number)?;
    let carrier = link.carrier(number);
    let new = kernel::duplicate(carrier, least, cloexec)?;
    stand_for(link, number, new, cloexec)
}

/// The server has a new number stand for what another one does.
fn stand_for(link: &mut Link, number: i32, new: i32, cloexec: bool) -> Sys<i64> {
    let how = if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    let mut request = Request::new(Ask::Call, libc::SYS_fcntl);
    request.words = [number as u64, how as u64, 0, 0, 0, 0];
    request.chosen = new.into();
    match answer_of(link.ask_plainly(&request)) {
        Ok(_) => {
            link.numbers.insert(new);
            if let Some(&object) = link.objects.get(&number) {
                link.objects.insert(new, object);
            }
            if link.is_lent(number) {
                link.lent.insert(new);
            }
            Ok(new.into())
        }
        Err(errno) => {
            kernel::close(new);
            Err(errno)
        }
    }
}

/// `dup2(2)`, `dup3(2)`.
pub fn duplicate_to(link: &mut Link, call: &Call, cloexec: bool) -> Sys<i64> {
    let (number, target) = (call.int(0), call.int(1));
    if link.is_own(number) || !link.makes_way(target) {
        return Err(Errno::BADF);
    }
    let ours = link.is_ours(number);
    if !ours {
        // Whether there is one, the kernel knows.
        kernel::close_on_exec(number)?;
    }
    if !(0..kernel::descriptor_limit()).contains(&target) {
        return Err(Errno::BADF);
    }
    [number, target].into_iter().try_for_each(|number| link.hand_over(number))?;
    if link.is_lent(target) {
        link.settle_loans();
        link.lent.remove(target);
    }
    link.objects.remove(&target);
    if link.numbers.remove(&target) {
        if link.began.is_some() && !wire::is_placeholder(target) {
            link.kept.entry(target).or_insert(kernel::copy_high(target)?);
        }
        link.close(target);
    }
    if !ours {
        return answer_of(call.make());
    }
    kernel::dup3(link.carrier(number), target, cloexec)?;
    stand_for(link, number, target, cloexec)
}

/// A file of the transaction's is mapped.
pub fn map(link: &Link, call: &Call) -> Sys<i64> {
    let request = Request::new(Ask::Map, libc::SYS_mmap).with(*call.words());
    let (answer, beside) = link.ask(&request);
    let [Some(fd), _] = beside else { return answer_of(answer.answer.min(-1)) };
    let answer = call.with_descriptor(4, fd).make();
    kernel::close(fd);
    answer_of(answer)
}
