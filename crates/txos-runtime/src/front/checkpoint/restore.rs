//! Puts memory back: mappings first, then the content of the pages that differ.
//!
//! The keeper's memory is the process's as it was. After it was made, the kernel copies a page when one of the
//! two writes to it. So a page that the process has for itself is one that it has written to, and a page that
//! both have is as it was; `/proc/PID/pagemap` tells which is which (bit 56), to everybody. What that can't
//! tell is copied in any case:
//!
//! | what | why |
//! |---|---|
//! | ranges that a call has emptied or replaced | a page of zeroes looks as if it were shared |
//! | everything, if the process has made a copy of itself meanwhile | pages may be shared with that one |
//! | mappings whose pages the kernel merges (KSM) | as well |
//! | pages that are swapped out | nothing is said of them |
#![allow(unsafe_code)] // it writes to the program's memory

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::maps::{Mapping, Span, Spans, parse, together, without};
use crate::front::alloc;
use crate::raw::{check, syscall};

const PAGE: u64 = 4096;
/// Pages whose state is asked for at once.
const CHUNK: u64 = 32 << 10;

const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const PRIVATE: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
const FIXED: u64 = libc::MAP_FIXED as u64;
const FIXED_NOREPLACE: u64 = libc::MAP_FIXED_NOREPLACE as u64;

/// Why memory could not be put back: what, where, and the kernel's answer.
#[derive(Debug, thiserror::Error)]
#[error("{what} at {at:#x}: {errno}")]
pub struct Trouble {
    what: &'static str,
    at: u64,
    errno: Errno,
}

fn trouble(what: &'static str, at: u64) -> impl Fn(Errno) -> Trouble {
    move |errno| Trouble { what, at, errno }
}

/// What `/proc` has of a process.
#[derive(Debug)]
pub struct Files {
    maps: OwnedFd,
    pages: OwnedFd,
    memory: OwnedFd,
}

impl Files {
    /// Of a process; 0: this one.
    ///
    /// # Errors
    /// Those of `open(2)`: EACCES if it may not be looked at.
    pub fn open(process: i32) -> Result<Files, Errno> {
        let dir = if process == 0 { "self".to_owned() } else { process.to_string() };
        let open = |name: &str| {
            let path = format!("/proc/{dir}/{name}");
            let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            // Out of the way of the program's numbers.
            rustix::io::fcntl_dupfd_cloexec(file, crate::tx::kernel::high_base())
        };
        let maps = open("smaps").or_else(|_| open("maps"))?;
        Ok(Files { maps, pages: open("pagemap")?, memory: open("mem")? })
    }

    /// Its mappings.
    ///
    /// # Errors
    /// Those of `read(2)`.
    pub fn mappings(&self) -> Result<Vec<Mapping>, Errno> {
        read_all(self.maps.as_fd()).map(|text| parse(&text))
    }

    /// Bytes of its memory.
    ///
    /// # Errors
    /// EIO if they are not there.
    pub fn read(&self, at: u64, to: &mut [u8]) -> Result<(), Errno> {
        // SAFETY: the bytes are the caller's alone.
        unsafe { self.copy(at, to.as_mut_ptr() as u64, to.len() as u64) }
    }

    /// Whether it still has its memory, so that what was read of it was all.
    ///
    /// # Errors
    /// It has ended.
    pub fn is_there(&self) -> Result<(), Trouble> {
        static WORD: u64 = 0;
        let at = (&raw const WORD) as u64;
        self.read(at, &mut [0; 8]).map_err(trouble("the process that kept memory has ended", at))
    }

    /// Copies bytes of its memory to an address of this process.
    ///
    /// # Safety
    /// Nobody has a reference to what is there.
    unsafe fn copy(&self, mut at: u64, mut to: u64, mut len: u64) -> Result<(), Errno> {
        while len > 0 {
            let words = [self.memory.as_raw_fd() as u64, to, len, at, 0, 0];
            // SAFETY: as the caller says.
            match check(unsafe { syscall(libc::SYS_pread64, words) })? {
                0 => return Err(Errno::IO),
                n => (at, to, len) = (at + n, to + n, len - n),
            }
        }
        Ok(())
    }

    /// What the kernel says of some pages.
    fn states(&self, from: u64, count: u64, to: &mut Vec<u64>) -> Result<(), Errno> {
        to.clear();
        to.resize(count as usize, 0);
        let (mut at, mut done) = (to.as_mut_ptr() as u64, 0);
        let bytes = count * 8;
        while done < bytes {
            let fd = self.pages.as_raw_fd() as u64;
            let words = [fd, at, bytes - done, from / PAGE * 8 + done, 0, 0];
            // SAFETY: the list has room for that.
            match check(unsafe { syscall(libc::SYS_pread64, words) })? {
                0 => break,
                n => (at, done) = (at + n, done + n),
            }
        }
        Ok(())
    }
}

fn read_all(file: impl AsFd) -> Result<Vec<u8>, Errno> {
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    let mut text = vec![0; 64 << 10];
    let mut len = 0;
    loop {
        if text.len() - len < 8 << 10 {
            text.resize(text.len() * 2, 0);
        }
        match rustix::io::read(&file, &mut text[len..])? {
            0 => break,
            n => len += n,
        }
    }
    text.truncate(len);
    Ok(text)
}

/// The state of a page, as `/proc/PID/pagemap` has it.
#[derive(Clone, Copy, Debug)]
struct Page(u64);

impl Page {
    fn bit(self, bit: u32) -> bool {
        self.0 & 1 << bit != 0
    }

    /// A page in memory that is no page of a file.
    fn is_private(self) -> bool {
        self.bit(63) && !self.bit(61)
    }

    /// Nobody else has it.
    fn is_exclusive(self) -> bool {
        self.bit(56)
    }

    fn is_swapped(self) -> bool {
        self.bit(62)
    }

    /// It has content besides what is mapped.
    fn has_content(self) -> bool {
        self.is_private() || self.is_swapped()
    }
}

/// What is to be done with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Do {
    Nothing,
    /// Its content is copied from the keeper.
    Copy,
    /// It goes: there was none.
    Drop,
}

impl Do {
    /// `doubt`: what both have may differ.
    fn of(was: Page, is: Page, doubt: bool) -> Do {
        let same = is.is_private()
            && !is.is_exclusive()
            && was.is_private()
            && !was.is_exclusive()
            && !doubt;
        match (was.has_content(), is.has_content()) {
            _ if same => Do::Nothing,
            (true, _) => Do::Copy,
            (false, true) => Do::Drop,
            (false, false) => Do::Nothing,
        }
    }
}

/// How memory is put back.
#[derive(Debug)]
pub struct How<'a> {
    /// The keeper.
    pub keeper: &'a Files,
    /// Pages in which something was emptied or replaced.
    pub touched: &'a Spans,
    /// Everything is.
    pub all: bool,
    /// The library's own mappings besides what it has allocated.
    pub library: &'a [Span],
    /// Bytes in the program's pages that are not the program's.
    pub bytes: &'a Spans,
}

/// Puts this process's memory back to what the keeper has. Gives what stays as it is: mappings that are not
/// private.
///
/// # Errors
/// The kernel refused a step. Memory is neither as it was nor as it is, then.
///
/// # Safety
/// The calling code uses nothing but memory of the runtime's own, the stack included, and nobody has a
/// reference to any other.
pub unsafe fn put_back(how: &How<'_>) -> Result<Vec<Mapping>, Trouble> {
    let own = Files::open(0).map_err(trouble("opening /proc/self", 0))?;
    let look = |files: &Files| files.mappings().map_err(trouble("reading the mappings", 0));
    let spans = |own: Vec<[u64; 2]>| {
        let own = own.into_iter().map(|[start, end]| start..end);
        Spans::of(own.chain(how.library.iter().cloned()))
    };
    let were_own = alloc::own_in_copy(|at, to| how.keeper.read(at, to))
        .map_err(trouble("reading what was kept", 0))?;
    let before = without(&look(how.keeper)?, &spans(were_own));
    // Of a process that has just ended nothing is told, and nothing of that is an error.
    how.keeper.is_there()?;
    let now = look(&own)?;
    let own_now = spans(alloc::own());
    let now = without(&now, &own_now);
    let mut stays = Vec::new();
    let mut work = Work { how, own: &own, was: Vec::new(), is: Vec::new() };
    for (span, was, is) in together(&before, &now) {
        if let Some(was) = was
            && own_now.meets(&span)
            && !was.shared
        {
            let what = "the library has put something of its own";
            return Err(trouble(what, span.start)(Errno::EXIST));
        }
        match (was, is) {
            (None, Some(is)) if is.flags.not_copied => stays.push(is.part(span)),
            // SAFETY: the program made it since, and is as it was before that.
            (None, Some(_)) => unsafe { unmap(&span)? },
            (Some(was), is) => {
                // SAFETY: as the caller says.
                let kept = unsafe { work.piece(&span, was, is)? };
                if !kept {
                    stays.push(was.part(span));
                }
            }
            (None, None) => {}
        }
    }
    how.keeper.is_there()?;
    Ok(stays)
}

/// # Safety
/// Nobody uses what is mapped there.
unsafe fn unmap(span: &Span) -> Result<(), Trouble> {
    let words = [span.start, span.end - span.start, 0, 0, 0, 0];
    // SAFETY: as the caller says.
    check(unsafe { syscall(libc::SYS_munmap, words) })
        .map(drop)
        .map_err(trouble("unmapping what was new", span.start))
}

fn protect(span: &Span, prot: u64) -> Result<(), Trouble> {
    let words = [span.start, span.end - span.start, prot, 0, 0, 0];
    // SAFETY: who calls this writes next, or puts back what was in force.
    check(unsafe { syscall(libc::SYS_mprotect, words) })
        .map(drop)
        .map_err(trouble("changing the protection", span.start))
}

/// Puts one piece after the other back.
struct Work<'a> {
    how: &'a How<'a>,
    own: &'a Files,
    /// States of pages, as they were and as they are.
    was: Vec<u64>,
    is: Vec<u64>,
}

impl Work<'_> {
    /// A piece that was there. `false`: its content stays as it is.
    ///
    /// # Safety
    /// As [`put_back`].
    unsafe fn piece(
        &mut self,
        span: &Span,
        was: &Mapping,
        is: Option<&Mapping>,
    ) -> Result<bool, Trouble> {
        let same = is.is_some_and(|is| is.is_like(was));
        let mut prot = is.map_or(0, |is| is.prot);
        if !same {
            if was.shared || was.flags.odd {
                return Ok(false);
            }
            // SAFETY: as the caller says.
            unsafe { self.map(span, was, is.is_some())? };
            prot = READ_WRITE;
        }
        let content = !was.shared && !was.flags.odd && !was.flags.wiped;
        if content && (!same || was.has_pages || is.is_some_and(|is| is.has_pages)) {
            let merged = was.flags.merged || is.is_some_and(|is| is.flags.merged);
            // SAFETY: as the caller says.
            unsafe { self.pages(span, !same || merged, &mut prot)? };
        }
        if prot != was.prot {
            protect(span, was.prot)?;
        }
        // A shared one that can't be written to is as it was, as far as this process goes.
        Ok(content || was.flags.wiped || was.prot & libc::PROT_WRITE as u64 == 0)
    }

    /// Makes a mapping that is gone.
    ///
    /// # Safety
    /// As [`put_back`].
    unsafe fn map(&self, span: &Span, was: &Mapping, replace: bool) -> Result<(), Trouble> {
        let fixed = if replace { FIXED } else { FIXED_NOREPLACE };
        let len = span.end - span.start;
        let part = was.part(span.clone());
        // The file, if the path still leads to it.
        if let Some(file) = reopened(&part) {
            let flags = libc::MAP_PRIVATE as u64 | fixed;
            let fd = file.as_raw_fd() as u64;
            let words = [span.start, len, READ_WRITE, flags, fd, part.offset];
            // SAFETY: as the caller says.
            if unsafe { syscall(libc::SYS_mmap, words) } == span.start as i64 {
                return Ok(());
            }
        }
        let words = [span.start, len, READ_WRITE, PRIVATE | fixed, u64::MAX, 0];
        // SAFETY: as the caller says.
        check(unsafe { syscall(libc::SYS_mmap, words) })
            .map_err(trouble("mapping again what was unmapped", span.start))?;
        if was.file != (0, 0) {
            // A copy of what was seen of the file; beyond its end there was nothing.
            for page in (span.start..span.end).step_by(PAGE as usize) {
                // SAFETY: as the caller says; this was just mapped.
                let _ = unsafe { self.how.keeper.copy(page, page, PAGE) };
            }
        }
        Ok(())
    }

    /// The content of the pages of a private mapping.
    ///
    /// # Safety
    /// As [`put_back`].
    unsafe fn pages(&mut self, span: &Span, doubt: bool, prot: &mut u64) -> Result<(), Trouble> {
        let mut from = span.start;
        while from < span.end {
            let count = ((span.end - from) / PAGE).min(CHUNK);
            let end = from + count * PAGE;
            let ask = trouble("asking for the state of pages", from);
            self.how.keeper.states(from, count, &mut self.was).map_err(&ask)?;
            self.own.states(from, count, &mut self.is).map_err(&ask)?;
            let doubtful = doubt || self.how.all;
            let touched = self.how.touched.meets(&(from..end));
            let what = |index: usize| {
                let page = from + index as u64 * PAGE;
                let doubt = doubtful || touched && self.how.touched.meets(&(page..page + PAGE));
                Do::of(Page(self.was[index]), Page(self.is[index]), doubt)
            };
            let mut start = 0;
            while start < count as usize {
                let todo = what(start);
                let mut stop = start + 1;
                while stop < count as usize && what(stop) == todo {
                    stop += 1;
                }
                let run = from + start as u64 * PAGE..from + stop as u64 * PAGE;
                if todo != Do::Nothing {
                    // SAFETY: as the caller says.
                    unsafe { self.run(span, &run, todo, prot)? };
                }
                start = stop;
            }
            from = end;
        }
        Ok(())
    }

    /// Pages with which the same is to be done.
    ///
    /// # Safety
    /// As [`put_back`].
    unsafe fn run(&self, all: &Span, run: &Span, todo: Do, prot: &mut u64) -> Result<(), Trouble> {
        if todo == Do::Drop && !self.how.bytes.meets(run) {
            let advice = libc::MADV_DONTNEED as u64;
            let words = [run.start, run.end - run.start, advice, 0, 0, 0];
            // SAFETY: as the caller says.
            if unsafe { syscall(libc::SYS_madvise, words) } == 0 {
                return Ok(());
            }
        }
        if *prot & READ_WRITE != READ_WRITE {
            protect(all, READ_WRITE)?;
            *prot = READ_WRITE;
        }
        for part in self.how.bytes.outside(run) {
            // SAFETY: as the caller says.
            unsafe { self.how.keeper.copy(part.start, part.start, part.end - part.start) }
                .map_err(trouble("copying what was kept", part.start))?;
        }
        Ok(())
    }
}

/// The file of a private mapping.
fn reopened(mapping: &Mapping) -> Option<OwnedFd> {
    if mapping.file == (0, 0) {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(&mapping.path[..], flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    let device =
        u64::from(rustix::fs::major(stat.st_dev)) << 32 | u64::from(rustix::fs::minor(stat.st_dev));
    ((device, stat.st_ino) == mapping.file).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_with_a_page() {
        let shared = Page(1 << 63);
        let own = Page(1 << 63 | 1 << 56);
        let file = Page(1 << 63 | 1 << 61);
        let (none, swapped) = (Page(0), Page(1 << 62));
        let both = |was, is| Do::of(was, is, false);
        assert_eq!(both(shared, shared), Do::Nothing);
        assert_eq!(Do::of(shared, shared, true), Do::Copy);
        // Written to; emptied; emptied and read; swapped out.
        for (was, is) in [(shared, own), (own, own), (own, none), (own, shared), (own, swapped)] {
            assert_eq!(both(was, is), Do::Copy);
        }
        assert_eq!(both(swapped, none), Do::Copy);
        // New; of a file, and written to.
        assert_eq!(both(none, own), Do::Drop);
        assert_eq!(both(file, own), Do::Drop);
        assert_eq!(both(none, shared), Do::Drop);
        assert_eq!(both(none, none), Do::Nothing);
        assert_eq!(both(file, file), Do::Nothing);
        assert_eq!(both(own, file), Do::Copy);
        assert_eq!(Do::of(file, file, true), Do::Nothing);
    }
}
