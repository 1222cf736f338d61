//! Requests that need no message: the server looks for them for a moment.
//!
//! A message wakes the other process. On another processor that is asleep this takes longer than most calls do, in a virtual machine
//! above all. So after an answer the server *polls*: for a tenth of a millisecond it looks into the *mailboxes* of the processes that
//! have asked last, each of which lies in a process's window. As long as it does, a request is put there instead of being sent. After a wait in vain either side goes
//! back to messages: the process for its answer, the server for what comes next.
//!
//! | word | written by | what |
//! |---|---|---|
//! | `polled` | server | not 0: the server looks into this mailbox, and looks once more after it has written 0 here |
//! | `state` | both | [`EMPTY`], [`ASKED`], [`TAKEN`], [`ANSWERED`], [`SENT`] |
//! | `request` | process | what is asked, while `state` is [`ASKED`] |
//! | `answer` | server | the answer, while `state` is [`ANSWERED`] |
//!
//! Only the process makes a mailbox [`ASKED`], and only the server [`TAKEN`] or [`ANSWERED`]. Either makes one that is
//! [`TAKEN`] one that is [`SENT`]: the answer goes by message. The process makes it [`EMPTY`] again, and the server does when the process runs another program.
//!
//! The kernel names the sender of a message, and nobody that of a request in a mailbox. Besides the server only one process has the window
//! mapped, and none keeps a descriptor of it: children don't inherit the mapping ([`wire::map_own_window`]), and the next program gets a descriptor from the server. The
//! server polls none of a process that is not the user that began, with the same groups and capabilities.
#![allow(unsafe_code)] // the words of a window

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use super::wire::{self, Answer, Request};

/// Nothing is asked.
const EMPTY: u32 = 0;
/// A request waits for the server.
const ASKED: u32 = 1;
/// The server carries it out.
const TAKEN: u32 = 2;
/// The answer is there.
const ANSWERED: u32 = 3;
/// The answer comes as a message.
const SENT: u32 = 4;

/// How long the server looks for the next request, and a process for its answer.
const PATIENCE: Duration = Duration::from_micros(100);
/// How often a clock is looked at meanwhile: once in so many looks.
const LOOKS: u32 = 16;

/// A mailbox. Any pattern of bits is one.
#[repr(C, align(64))]
pub struct Mailbox {
    polled: AtomicU32,
    state: AtomicU32,
    request: UnsafeCell<Request>,
    answer: UnsafeCell<Answer>,
}

/// The mailbox of a window.
///
/// # Safety
/// The window is mapped as long as the reference lives.
unsafe fn of<'w>(window: *mut u8) -> &'w Mailbox {
    const { assert!(wire::MAILBOX_AT.is_multiple_of(align_of::<Mailbox>())) };
    const { assert!(wire::MAILBOX_AT + size_of::<Mailbox>() <= wire::FIRST) };
    // SAFETY: it is in the window, which is aligned. The other side may write to it at any time: what is no atomic word is only copied.
    unsafe { &*window.add(wire::MAILBOX_AT).cast::<Mailbox>() }
}

/// Where the answer to a request is.
pub enum Asked {
    Here(Answer),
    /// It comes as a message.
    Message,
    /// Nobody has taken the request: it is to be sent.
    Not,
}

/// Asks the server by the mailbox of this process's window, if it looks there.
///
/// # Safety
/// The window is mapped, and no other thread uses it.
pub unsafe fn ask(window: *mut u8, request: &Request) -> Asked {
    // SAFETY: as the caller says.
    let mailbox = unsafe { of(window) };
    let state = &mailbox.state;
    if mailbox.polled.load(Ordering::Relaxed) == 0 || state.load(Ordering::Relaxed) != EMPTY {
        return Asked::Not;
    }
    // SAFETY: while it is empty the server does not look at the request.
    unsafe { mailbox.request.get().write(*request) };
    state.store(ASKED, Ordering::Release);
    // Either the server sees this when it looks once more, or that it does not look any longer is seen here.
    fence(Ordering::SeqCst);
    let takes_back =
        || state.compare_exchange(ASKED, EMPTY, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if mailbox.polled.load(Ordering::Relaxed) == 0 && takes_back() {
        return Asked::Not;
    }
    let mut waiting = Wait::new();
    loop {
        match state.load(Ordering::Acquire) {
            ANSWERED => {
                // SAFETY: the server is done with it.
                let answer = unsafe { mailbox.answer.get().read() };
                state.store(EMPTY, Ordering::Release);
                return Asked::Here(answer);
            }
            SENT => {
                state.store(EMPTY, Ordering::Release);
                return Asked::Message;
            }
            ASKED if waiting.is_over() && takes_back() => return Asked::Not,
            TAKEN if waiting.is_over() => {
                let _ = state.compare_exchange(TAKEN, SENT, Ordering::AcqRel, Ordering::Relaxed);
            }
            ASKED | TAKEN => spin_loop(),
            // No server of ours leaves it so: the connection will say what there is to say.
            _ => return Asked::Message,
        }
    }
}

/// The process runs another program, which has asked nothing yet.
///
/// # Safety
/// The window is mapped.
pub unsafe fn empty(window: *mut u8) {
    // SAFETY: as the caller says.
    unsafe { of(window) }.state.store(EMPTY, Ordering::Release);
}

/// The server begins to look into a mailbox, or stops. After it has stopped, it looks once more.
///
/// # Safety
/// The window is mapped.
pub unsafe fn poll(window: *mut u8, polls: bool) {
    // SAFETY: as the caller says.
    unsafe { of(window) }.polled.store(polls.into(), Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Takes the request that is in a mailbox.
///
/// # Safety
/// The window is mapped.
pub unsafe fn take(window: *mut u8) -> Option<Request> {
    // SAFETY: as the caller says.
    let mailbox = unsafe { of(window) };
    let state = &mailbox.state;
    if state.load(Ordering::Relaxed) != ASKED {
        return None;
    }
    state.compare_exchange(ASKED, TAKEN, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    // SAFETY: it is numbers, of which this is a copy, whatever the process does meanwhile.
    Some(unsafe { mailbox.request.get().read_volatile() })
}

/// Answers a request that was taken. `false`: the process does not look for it any longer, and the answer is to be sent.
///
/// # Safety
/// The window is mapped.
pub unsafe fn answer(window: *mut u8, answer: &Answer) -> bool {
    // SAFETY: as the caller says.
    let mailbox = unsafe { of(window) };
    // SAFETY: the process reads it once it is said to be there.
    unsafe { mailbox.answer.get().write_volatile(*answer) };
    mailbox.state.compare_exchange(TAKEN, ANSWERED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// The answer to a request that was taken was sent: whether the process is still looking for it.
///
/// # Safety
/// The window is mapped.
pub unsafe fn is_sent(window: *mut u8) -> bool {
    // SAFETY: as the caller says.
    let state = &unsafe { of(window) }.state;
    state.compare_exchange(TAKEN, SENT, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// A wait for [`PATIENCE`].
#[derive(Debug)]
pub struct Wait {
    since: Instant,
    looks: u32,
}

impl Wait {
    /// From now on.
    pub fn new() -> Wait {
        Wait { since: Instant::now(), looks: 0 }
    }

    /// Whether it has lasted long enough. It is asked again and again.
    pub fn is_over(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        self.looks.is_multiple_of(LOOKS) && self.since.elapsed() >= PATIENCE
    }
}

/// Whether polling pays. It does not where the process waits for the processor on which the server polls, or computes.
#[derive(Debug, Default)]
pub struct Worth {
    /// Whether there is another processor; `None`: nobody has looked.
    can: Option<bool>,
    /// How many requests there had been, when it was last considered.
    seen: u64,
    /// How many answers it is not tried after.
    left: u32,
    /// How many it was not tried after, when it last was in vain.
    last: u32,
}

impl Worth {
    /// After how many answers it is tried again, at most.
    const LONGEST: u32 = 15;

    /// Whether there was no request since this was asked last.
    pub fn has_seen(&mut self, requests: u64) -> bool {
        std::mem::replace(&mut self.seen, requests) == requests
    }

    /// Whether to poll after this answer.
    pub fn polls(&mut self) -> bool {
        let rests = self.left > 0;
        self.left = self.left.saturating_sub(1);
        let has_another = || std::thread::available_parallelism().is_ok_and(|all| all.get() > 1);
        !rests && *self.can.get_or_insert_with(has_another)
    }

    /// It was tried: whether anybody was helped by it.
    pub fn was(&mut self, worth: bool) {
        self.last = if worth { 0 } else { (2 * self.last + 1).min(Worth::LONGEST) };
        self.left = self.last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::Errno;
    use crate::tx::kernel;

    struct Window(*mut u8);
    // SAFETY: mailboxes are for two sides.
    unsafe impl Send for Window {}

    /// What a request is about comes back, by whichever way, and once: while the other side polls now and then, is too slow, or does not look at all.
    #[test]
    fn each_request_is_answered_once() {
        const REQUESTS: i64 = 20_000;
        let [ours, theirs] = wire::new_pair().unwrap();
        let fd = wire::new_window().unwrap();
        let (window, servers) = (wire::map_window(fd).unwrap(), wire::map_window(fd).unwrap());
        let servers = Window(servers);
        let server = std::thread::spawn(move || serve(servers, theirs));
        let mut by_mailbox = 0;
        for number in 0..REQUESTS {
            let request = Request::new(wire::Ask::Call, number);
            // SAFETY: only this thread uses this side.
            let answer = match unsafe { ask(window, &request) } {
                Asked::Here(answer) => {
                    by_mailbox += 1;
                    answer
                }
                Asked::Message => wire::receive::<Answer>(ours).unwrap().unwrap().0,
                Asked::Not => {
                    wire::send(ours, &request, &[]).unwrap();
                    wire::receive::<Answer>(ours).unwrap().unwrap().0
                }
            };
            assert_eq!(answer.answer, number);
        }
        assert!(matches!(wire::receive_at_once::<Answer>(ours), Err(Errno::AGAIN)));
        kernel::close(ours);
        let served = server.join().unwrap();
        assert_eq!(served, (REQUESTS, by_mailbox));
        kernel::close(theirs);
        kernel::close(fd);
        // SAFETY: nobody uses it any more.
        unsafe { wire::unmap_window(window) };
    }

    /// How many requests were answered, and how many of them in the mailbox.
    fn serve(Window(window): Window, socket: i32) -> (i64, i64) {
        let (mut all, mut by_mailbox) = (0, 0);
        let answered = |request: Request| wire::Answer::new(wire::How::Done, request.number);
        // SAFETY: the window is mapped until the end.
        unsafe {
            for round in 0_u32.. {
                poll(window, true);
                for _ in 0..round % 500 {
                    let Some(request) = take(window) else { continue };
                    all += 1;
                    if request.number % 1000 == 999 {
                        // Slower than anybody waits.
                        std::thread::sleep(3 * PATIENCE);
                    }
                    if request.number % 7 != 0 && answer(window, &answered(request)) {
                        by_mailbox += 1;
                        continue;
                    }
                    wire::send_at_once(socket, &answered(request), &[]).unwrap();
                    is_sent(window);
                }
                poll(window, false);
                if let Some(request) = take(window) {
                    all += 1;
                    wire::send_at_once(socket, &answered(request), &[]).unwrap();
                    is_sent(window);
                }
                match wire::receive_at_once::<Request>(socket) {
                    Ok(Some(received)) => {
                        all += 1;
                        wire::send_at_once(socket, &answered(received.message), &[]).unwrap();
                    }
                    Err(Errno::AGAIN) => {}
                    _ => break,
                }
            }
            wire::unmap_window(window);
        }
        (all, by_mailbox)
    }

    #[test]
    fn what_is_not_worth_it_is_tried_seldom() {
        let mut worth = Worth { can: Some(true), ..Worth::default() };
        let mut tried = 0;
        for _ in 0..1600 {
            if worth.polls() {
                tried += 1;
                worth.was(false);
            }
        }
        assert!((90..=110).contains(&tried), "{tried}");
        while !worth.polls() {}
        worth.was(true);
        assert!(worth.polls());
        let mut alone = Worth { can: Some(false), ..Worth::default() };
        assert!(!alone.polls());
    }

    #[test]
    fn a_child_does_not_have_its_parents_window() {
        let fd = wire::new_window().unwrap();
        let window = wire::map_own_window(fd).unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let own = format!("{:x}-", window as usize);
        let mut ours = maps.lines().skip_while(|line| !line.starts_with(&own));
        let flags = ours.find(|line| line.starts_with("VmFlags")).unwrap();
        assert!(flags.split_whitespace().any(|flag| flag == "dc"), "{flags}");
        // SAFETY: nobody uses it any more.
        unsafe { wire::unmap_window(window) };
        kernel::close(fd);
    }
}
