//! TX_CHECKPOINT: memory and registers as at `sys_xbegin`, after an abort.
//!
//! At the beginning the process makes a copy of itself, the *keeper*, which shares the table of descriptors,
//! blocks every signal and sleeps. The kernel copies a page when the program first writes to it, whoever does
//! so: an instruction, a system call that is answered there, a signal's frame. A commit ends the keeper. After
//! an abort its memory is copied back ([`restore`]); then the program goes on where `sys_xbegin` returns.
//!
//! What is the library's is left out: its allocator's memory, its variables, its part of the thread's block,
//! and the realm. So the library knows afterwards what has happened.
//!
//! Memory that was there before is not given back to the kernel before the commit ([`Checkpoint::call`]):
//! the library could get its place, and then it could not be put back.
#![allow(unsafe_code)] // raw system calls, and all of the program's memory

mod maps;
mod restore;

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use rustix::io::Errno;

use super::classify::Class;
use super::processes::host;
use super::tls::here;
use super::{alloc, api, signals};
use crate::call::Call;
use crate::raw::{Sys, answer, check, syscall};
use crate::tx::{Failure, flags};
use maps::{Mapping, Span, Spans};
use restore::{Files, How};

const PAGE: u64 = 4096;

/// A process's memory as it was.
#[derive(Debug)]
pub struct Checkpoint {
    /// The process that has it.
    keeper: i32,
    /// The ways to it, if they were opened early.
    files: Option<Files>,
    /// The process has been copied since.
    copied: bool,
    /// What was emptied, or replaced by something else of its kind.
    touched: Spans,
    /// What the program had mapped, once that was asked for.
    before: Option<Vec<Mapping>>,
    /// Where the program has no memory any more, and nobody else may get any.
    reserved: Spans,
    /// Memory shared with others that the program has unmapped: where it was, and where it is meanwhile.
    aside: Vec<(Span, u64)>,
    /// The end of the heap: as it was, and as the program has it.
    heap: (u64, u64),
    /// The stack for handlers of signals.
    alternate: libc::stack_t,
}

/// Why there is none.
fn refusal(errno: i32, why: &str) -> Failure {
    let what = format!("sys_xbegin: TX_CHECKPOINT: {why}; no transaction was begun");
    Failure { errno, what, ..Failure::default() }
}

/// What the library has in every process.
#[derive(Debug)]
struct Library {
    /// Its code and its variables.
    mappings: Vec<Span>,
    /// Its part of a thread's block: how far from ours, and how long.
    thread: (u64, u64),
    /// It is part of the program's own file.
    within: bool,
    /// What the kernel writes to in a thread's block (rseq(2)): how far from the thread's pointer.
    kernels: Option<i64>,
}

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let mut found =
            Library { mappings: Vec::new(), thread: (0, 0), within: true, kernels: None };
        let mut search = (0_u32, &raw mut found);
        // SAFETY: the function takes this pointer, and ends before it goes.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
        // SAFETY: looks a symbol up by a name that ends (glibc 2.35).
        let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
        if !offset.is_null() {
            // SAFETY: the C library's `ptrdiff_t` of this name, which never changes.
            found.kernels = Some(unsafe { offset.cast::<i64>().read() });
        }
        found
    })
}

/// Whether the library is part of the program's own file (`libtxos.a`).
pub fn is_linked_in() -> bool {
    library().within
}

/// What is mapped for the library besides what it has allocated: itself, and the realms. They stay where they are.
fn own_mappings() -> Vec<Span> {
    let realms = txos_engine::realm::mapped();
    library().mappings.iter().cloned().chain(realms).collect()
}

/// Looks whether an object is this library.
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker describes an object; the other pointer is of `library`.
    let (info, (number, found)) = unsafe { (&*info, &mut *search.cast::<(u32, *mut Library)>()) };
    // SAFETY: `library` waits for this.
    let found = unsafe { &mut **found };
    *number += 1;
    let headers =
        // SAFETY: there are so many.
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let down = |at: u64| at & !(PAGE - 1);
    let spans: Vec<Span> = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD)
        .map(|header| (info.dlpi_addr + header.p_vaddr, header.p_memsz))
        .map(|(start, len)| down(start)..down(start + len + PAGE - 1))
        .collect();
    let us = here as *const () as u64;
    if !spans.iter().any(|span| span.contains(&us)) {
        return 0;
    }
    found.mappings = spans;
    // The first one is the program.
    found.within = *number == 1;
    let block = headers.iter().find(|header| header.p_type == libc::PT_TLS);
    if let Some(block) = block.filter(|_| !info.dlpi_tls_data.is_null()) {
        let ours = std::ptr::from_ref(here()) as u64;
        found.thread = ((info.dlpi_tls_data as u64).wrapping_sub(ours), block.p_memsz);
    }
    1
}

/// What of the thread's block is not the program's.
fn not_the_programs(library: &Library) -> Spans {
    /// As much as there is room for in the C library's.
    const RSEQ: u64 = 32;
    let start = (std::ptr::from_ref(here()) as u64).wrapping_add(library.thread.0);
    let own = start..start + library.thread.1;
    // SAFETY: it takes nothing. On x86-64 it is the thread's pointer.
    let pointer = unsafe { libc::pthread_self() } as u64;
    let kernels = library.kernels.map(|offset| pointer.wrapping_add_signed(offset));
    let kernels = kernels.map(|start| start..start + RSEQ);
    Spans::of(kernels.into_iter().chain([own]))
}

/// Whether this process's memory can be kept, as far as that is known before.
///
/// # Errors
/// Why it can't.
pub fn may_keep(asked: u32) -> Result<(), Failure> {
    if asked & (flags::THREADS | flags::PROCESSES | flags::MANAGED) != 0 {
        let why = "it can't be had together with TX_THREADS, TX_PROCESSES or TX_MANAGED";
        return Err(refusal(libc::EINVAL, why));
    }
    if is_linked_in() {
        let why = "the library is linked into the program, so their variables can't be told \
                   apart; link the program with libtxos.so";
        return Err(refusal(libc::ENOTSUP, why));
    }
    match host::threads_of_the_program() {
        Some(1) => {}
        Some(_) => {
            let why = "the process has other threads, which would go on with memory that is \
                       put back";
            return Err(refusal(libc::EBUSY, why));
        }
        None => return Err(refusal(libc::ENOTSUP, "/proc/self is not there")),
    }
    Ok(())
}

impl Checkpoint {
    /// Keeps the process's memory as it is. For the runtime's own stack.
    ///
    /// # Errors
    /// Why that can't be: nothing has changed.
    pub fn begin() -> Result<Box<Checkpoint>, Failure> {
        let mut alternate = std::mem::MaybeUninit::<libc::stack_t>::zeroed();
        // SAFETY: the kernel writes what it has; asking for the end of the heap changes nothing.
        let (heap, alternate) = unsafe {
            syscall(libc::SYS_sigaltstack, [0, alternate.as_mut_ptr() as u64, 0, 0, 0, 0]);
            (syscall(libc::SYS_brk, [0; 6]) as u64, alternate.assume_init())
        };
        // Allocated before: a failure would leave a keeper behind.
        let mut new = Box::new(Checkpoint {
            keeper: 0,
            files: None,
            copied: false,
            touched: Spans::default(),
            before: None,
            reserved: Spans::default(),
            aside: Vec::new(),
            heap: (heap, heap),
            alternate,
        });
        new.keeper = keep().map_err(|errno| {
            let why = match errno {
                Errno::NOMEM => "there is no memory for a copy of the process (ENOMEM)".into(),
                Errno::AGAIN => "no process can be made to keep memory: the user, or the control \
                                 group, has as many as it may (EAGAIN)"
                    .into(),
                errno => format!("no process can be made to keep memory: {errno}"),
            };
            refusal(errno.raw_os_error(), &why)
        })?;
        new.try_once()?;
        Ok(new)
    }

    /// Whether the keeper's memory can be read. It depends on what the process is, so it is tried once for that.
    fn try_once(&self) -> Result<(), Failure> {
        static TRIED: AtomicI64 = AtomicI64::new(-1);
        // SAFETY: it takes numbers only.
        let kind = unsafe {
            syscall(libc::SYS_prctl, [libc::PR_GET_DUMPABLE as u64, 0, 0, 0, 0, 0]) << 32
                | syscall(libc::SYS_geteuid, [0; 6])
        };
        if TRIED.load(Ordering::Relaxed) == kind {
            return Ok(());
        }
        let mut word = [0; 8];
        let tried = Files::open(self.keeper)
            .and_then(|files| files.read((&raw const TRIED) as u64, &mut word))
            .and_then(|()| Files::open(0).map(drop));
        tried.map_err(|errno| {
            let why = format!(
                "this process may not read the memory of a process that it has made ({errno}): a set-id \
                 program, or a system that forbids ptrace(2)"
            );
            refusal(libc::ENOTSUP, &why)
        })?;
        TRIED.store(kind, Ordering::Relaxed);
        Ok(())
    }

    /// The program becomes somebody else, who may not look at the keeper.
    fn prepare_for_other_ids(&mut self) {
        if self.files.is_none() {
            self.files = Files::open(self.keeper).ok();
        }
    }

    /// Puts memory back. Ends the process if that can't be done: it could not go on with what it has.
    ///
    /// # Safety
    /// As [`restore::put_back`].
    pub unsafe fn put_back(&mut self) {
        // SAFETY: as the caller says.
        let stays = match unsafe { self.put_back_all() } {
            Ok(stays) => stays,
            Err(what) => end_process(&what),
        };
        static TOLD: AtomicBool = AtomicBool::new(false);
        let first = stays.iter().find(|mapping| !mapping.path.is_empty()).or(stays.first());
        if let Some(mapping) = first
            && !TOLD.swap(true, Ordering::Relaxed)
        {
            let path = match mapping.path.is_empty() {
                true => "memory without a name".into(),
                false => String::from_utf8_lossy(&mapping.path),
            };
            api::tell(&format!(
                "TX_CHECKPOINT: memory that is shared with others, or is a device's, stays as it \
                 is: {path}"
            ));
        }
    }

    unsafe fn put_back_all(&mut self) -> Result<Vec<Mapping>, String> {
        let files = match self.files.take() {
            Some(files) => files,
            None => Files::open(self.keeper).map_err(|errno| {
                format!("the process that keeps it ({}) can't be read: {errno}", self.keeper)
            })?,
        };
        for (span, place) in self.aside.drain(..) {
            let len = span.end - span.start;
            let to = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
            // SAFETY: the program has no memory there.
            check(unsafe { syscall(libc::SYS_mremap, [place, len, len, to, span.start, 0]) })
                .map_err(|errno| format!("moving it back to {:#x}: {errno}", span.start))?;
            alloc::disown(place);
        }
        self.reserved = Spans::default();
        // SAFETY: the end of the heap as it was.
        let heap = unsafe { syscall(libc::SYS_brk, [self.heap.0, 0, 0, 0, 0, 0]) } as u64;
        if heap != self.heap.0 {
            return Err(format!("the heap ends at {heap:#x} instead of {:#x}", self.heap.0));
        }
        self.heap.1 = heap;
        let library = library();
        let how = How {
            keeper: &files,
            touched: &self.touched,
            all: self.copied,
            library: &own_mappings(),
            bytes: &not_the_programs(library),
        };
        // SAFETY: as the caller says.
        let stays = unsafe { restore::put_back(&how) }.map_err(|trouble| trouble.to_string())?;
        let words = [(&raw const self.alternate) as u64, 0, 0, 0, 0, 0];
        // SAFETY: the program has named this stack before.
        unsafe { syscall(libc::SYS_sigaltstack, words) };
        Ok(stays)
    }

    /// The process has been copied: the library has made a child.
    pub fn is_copied(&mut self) {
        self.copied = true;
    }

    /// A call of the program's. `None`: it is to be carried out as ever.
    pub fn call(&mut self, call: &Call, class: Class) -> Option<i64> {
        let share = libc::CLONE_VM as u64;
        match class {
            Class::Fork | Class::Vfork => self.copied = true,
            Class::Clone | Class::Clone3 => {
                let flags = match class {
                    Class::Clone => call.word(0),
                    _ => call.pointer::<u64>(0).read().unwrap_or(0),
                };
                // It would go on when memory is put back.
                if flags & share != 0 && flags & libc::CLONE_VFORK as u64 == 0 {
                    static TOLD: AtomicBool = AtomicBool::new(false);
                    if !TOLD.swap(true, Ordering::Relaxed) {
                        api::tell(
                            "a new thread is not possible in a transaction with TX_CHECKPOINT: it \
                             fails with EAGAIN",
                        );
                    }
                    return Some(-i64::from(libc::EAGAIN));
                }
                self.copied = true;
            }
            _ => {}
        }
        match call.number() {
            libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_setfsuid
            | libc::SYS_setfsgid
            | libc::SYS_capset => self.prepare_for_other_ids(),
            _ => {}
        }
        self.memory_call(call)
    }

    /// A call that takes memory away. `None`: it is to be made.
    fn memory_call(&mut self, call: &Call) -> Option<i64> {
        let done = match call.number() {
            libc::SYS_munmap => self.unmap(call),
            libc::SYS_mmap => self.map(call),
            libc::SYS_mremap => self.move_memory(call),
            libc::SYS_brk => Ok(Some(self.end_heap(call.word(0)))),
            libc::SYS_madvise => self.advise(call),
            libc::SYS_shmdt => self.detach(call.word(0)),
            libc::SYS_shmat | libc::SYS_remap_file_pages => {
                self.copied = true;
                Ok(None)
            }
            _ => Ok(None),
        };
        done.unwrap_or_else(|errno| Some(answer(Err(errno))))
    }

    /// What the program had mapped.
    fn before(&mut self) -> Sys<&[Mapping]> {
        if self.before.is_none() {
            let files = Files::open(self.keeper)?;
            let own = alloc::own_in_copy(|at, to| files.read(at, to))?;
            let own = own.into_iter().map(|[start, end]| start..end);
            let own = Spans::of(own.chain(own_mappings()));
            let before = maps::without(&files.mappings()?, &own);
            files.is_there().map_err(|_| Errno::NOMEM)?;
            self.before = Some(before);
        }
        Ok(self.before.as_deref().unwrap_or_default())
    }

    /// What of a range was mapped before.
    fn old_parts(&mut self, span: &Span) -> Sys<Vec<Mapping>> {
        let inside = |mapping: &Mapping| {
            let both = mapping.span.start.max(span.start)..mapping.span.end.min(span.end);
            (both.start < both.end).then(|| mapping.part(both))
        };
        self.before().map(|before| before.iter().filter_map(inside).collect())
    }

    /// Before the program loses what is in a range.
    fn save(&mut self, span: &Span) -> Sys<Vec<Mapping>> {
        let old = self.old_parts(span)?;
        for part in &old {
            self.touched.add(part.span.clone());
            if part.shared {
                self.put_aside(&part.span)?;
            }
        }
        Ok(old)
    }

    /// Keeps memory that is shared with others: it is mapped a second time.
    fn put_aside(&mut self, span: &Span) -> Sys<()> {
        let known = Spans::of(self.aside.iter().map(|(span, _)| span.clone()));
        let lost = Spans::of(self.reserved.list().iter().cloned());
        for part in known.outside(span).iter().flat_map(|part| lost.outside(part)) {
            let len = part.end - part.start;
            let place = alloc::map(len as usize) as u64;
            if place == 0 {
                return Err(Errno::NOMEM);
            }
            let to = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
            // SAFETY: a second mapping of the same, in place of one that nobody uses.
            let answer = unsafe { syscall(libc::SYS_mremap, [part.start, 0, len, to, place, 0]) };
            if let Err(errno) = check(answer) {
                // SAFETY: nobody uses it.
                unsafe { alloc::unmap(place as *mut u8, len as usize) };
                return Err(errno);
            }
            self.aside.push((part, place));
        }
        Ok(())
    }

    /// Keeps a place free in which the program has nothing any more.
    fn reserve(&mut self, span: &Span) -> Sys<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let words = [span.start, span.end - span.start, 0, flags as u64, u64::MAX, 0];
        // SAFETY: the program has said that it uses nothing there any more.
        check(unsafe { syscall(libc::SYS_mmap, words) })?;
        self.reserved.add(span.clone());
        Ok(())
    }

    fn unmap(&mut self, call: &Call) -> Sys<Option<i64>> {
        let Some(span) = pages(call.word(0), call.word(1)) else { return Ok(None) };
        let old = self.save(&span)?;
        if old.is_empty() {
            return Ok(None);
        }
        let old = Spans::of(old.into_iter().map(|part| part.span));
        for part in old.outside(&span) {
            let words = [part.start, part.end - part.start, 0, 0, 0, 0];
            // SAFETY: the program wants it to go.
            check(unsafe { syscall(libc::SYS_munmap, words) })?;
        }
        for part in old.inside(&span) {
            self.reserve(&part)?;
        }
        Ok(Some(0))
    }

    fn map(&mut self, call: &Call) -> Sys<Option<i64>> {
        let flags = call.word(3) as i32;
        let replaces = flags & libc::MAP_FIXED != 0 && flags & libc::MAP_FIXED_NOREPLACE == 0;
        if replaces && let Some(span) = pages(call.word(0), call.word(1)) {
            self.save(&span)?;
            self.reserved.remove(&span);
        }
        Ok(None)
    }

    fn move_memory(&mut self, call: &Call) -> Sys<Option<i64>> {
        let [at, old_len, new_len, flags, target, _] = *call.words();
        let flags = flags as i32;
        let (Some(from), Some(to)) = (pages(at, old_len.max(1)), pages(target, new_len)) else {
            return Ok(None);
        };
        let fixed = flags & libc::MREMAP_FIXED != 0;
        let old = self.save(&from)?;
        if fixed {
            self.save(&to)?;
            self.reserved.remove(&to);
        }
        let answer = call.make();
        if answer < 0 || old.is_empty() || old_len == 0 {
            return Ok(Some(answer));
        }
        let now = pages(answer as u64, new_len).unwrap_or(0..0);
        let stays = flags & libc::MREMAP_DONTUNMAP != 0;
        let old = Spans::of(old.into_iter().map(|part| part.span));
        let gone = Spans::of((!stays).then(|| from.clone()));
        for part in gone.list().iter().flat_map(|gone| old.inside(gone)) {
            for hole in Spans::of([now.clone()]).outside(&part) {
                self.reserve(&hole)?;
            }
        }
        Ok(Some(answer))
    }

    /// `brk`: what was the heap stays mapped.
    fn end_heap(&mut self, wanted: u64) -> i64 {
        let (before, now) = self.heap;
        if wanted == 0 {
            return now as i64;
        }
        let real = |end: u64| {
            // SAFETY: the program wants its heap to end there.
            unsafe { syscall(libc::SYS_brk, [end, 0, 0, 0, 0, 0]) as u64 }
        };
        let round = |at: u64| (at + PAGE - 1) & !(PAGE - 1);
        if wanted >= before {
            self.heap.1 = real(wanted);
            return self.heap.1 as i64;
        }
        let top = round(before);
        let heap = self.before().ok().and_then(|all| {
            all.iter().find(|mapping| mapping.span.end == top && mapping.path == b"[heap]").cloned()
        });
        let Some(heap) = heap.filter(|heap| wanted >= heap.span.start) else { return now as i64 };
        if now > before {
            real(before);
        }
        let empty = round(wanted)..top;
        debug_assert!(heap.span.start <= empty.start);
        if empty.start < empty.end {
            let advice = libc::MADV_DONTNEED as u64;
            let words = [empty.start, empty.end - empty.start, advice, 0, 0, 0];
            // SAFETY: the program has given it back.
            unsafe { syscall(libc::SYS_madvise, words) };
            self.touched.add(empty);
        }
        self.heap.1 = wanted;
        wanted as i64
    }

    fn advise(&mut self, call: &Call) -> Sys<Option<i64>> {
        const DONTNEED_LOCKED: i32 = 24;
        const COLLAPSE: i32 = 25;
        let empties = matches!(
            call.int(2),
            libc::MADV_DONTNEED
                | libc::MADV_FREE
                | libc::MADV_REMOVE
                | libc::MADV_MERGEABLE
                | DONTNEED_LOCKED
                | COLLAPSE
        );
        if empties && let Some(span) = pages(call.word(0), call.word(1)) {
            self.touched.add(span);
        }
        Ok(None)
    }

    fn detach(&mut self, at: u64) -> Sys<Option<i64>> {
        let before = self.before()?;
        let Some(first) = before.iter().find(|m| m.span.start == at && m.shared) else {
            return Ok(None);
        };
        let file = first.file;
        let end = before
            .iter()
            .filter(|m| m.span.start >= at && m.file == file && m.shared)
            .fold(at, |end, m| if m.span.start == end { m.span.end } else { end });
        let span = at..end;
        self.save(&span)?;
        self.reserve(&span)?;
        Ok(Some(0))
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        // What was only reserved is nobody's now, and what was put aside as well.
        for span in self.reserved.list() {
            // SAFETY: the program has nothing there.
            unsafe {
                syscall(libc::SYS_munmap, [span.start, span.end - span.start, 0, 0, 0, 0]);
            }
        }
        for (span, place) in self.aside.drain(..) {
            // SAFETY: it was mapped with this length, and the program does not know of it.
            unsafe { alloc::unmap(place as *mut u8, (span.end - span.start) as usize) };
        }
        if self.heap.1 < self.heap.0 {
            // SAFETY: the program wants its heap to end there.
            unsafe { syscall(libc::SYS_brk, [self.heap.1, 0, 0, 0, 0, 0]) };
        }
        if self.keeper > 0 {
            let keeper = self.keeper as u64;
            let end = |flags: i32| unsafe {
                // SAFETY: our own child, which nobody else waits for; nothing is written.
                syscall(libc::SYS_wait4, [keeper, 0, (libc::__WALL | flags) as u64, 0, 0, 0])
            };
            // SAFETY: they take numbers, and one reads what is on this stack.
            unsafe {
                if syscall(libc::SYS_kill, [keeper, libc::SIGKILL as u64, 0, 0, 0, 0]) == 0 {
                    end(0);
                    return;
                }
                // The program has become another user for good, who may not kill it, but may ask it.
                let asks = Asked {
                    code: libc::SI_QUEUE,
                    sender: syscall(libc::SYS_getpid, [0; 6]) as i32,
                    ..Asked::default()
                };
                let words = [keeper, libc::SIGCONT as u64, &raw const asks as u64, 0, 0, 0];
                while syscall(libc::SYS_rt_sigqueueinfo, words) == 0 && end(libc::WNOHANG) == 0 {
                    syscall(libc::SYS_sched_yield, [0; 6]);
                }
            }
        }
    }
}

/// The pages of a range; `None`: the kernel refuses it.
fn pages(at: u64, len: u64) -> Option<Span> {
    let end = at.checked_add(len)?.checked_add(PAGE - 1)? & !(PAGE - 1);
    (at.is_multiple_of(PAGE) && len > 0 && end <= crate::reach::END).then_some(at..end)
}

/// Makes the keeper.
fn keep() -> Sys<i32> {
    // SAFETY: they take numbers only. The child is a copy that goes on here, on its copy of this stack; it
    // shares the table of descriptors, so that it holds nothing open. Nobody is told of its end, and only who
    // asks for all kinds of children finds it.
    unsafe {
        let parent = syscall(libc::SYS_getpid, [0; 6]);
        let flags = (libc::CLONE_FILES | libc::CLONE_UNTRACED) as u64;
        let made = check(syscall(libc::SYS_clone, [flags, 0, 0, 0, 0, 0]))?;
        if made == 0 {
            sleep(parent);
        }
        Ok(made as i32)
    }
}

/// What the kernel tells of a signal, as far as it matters here.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Asked {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    sender: i32,
    rest: [i32; 27],
}

/// All that the keeper does. It uses no variable of any kind but on its stack, and calls nothing else.
fn sleep(parent: i64) -> ! {
    signals::block_all();
    // SAFETY: these take numbers and a text that ends, and one writes 128 bytes, which there is room for. What it has written is read
    // when it has.
    unsafe {
        let prctl = |what: i32, word: u64| {
            syscall(libc::SYS_prctl, [what as u64, word, 0, 0, 0, 0]);
        };
        // It ends with the thread that made it. If that has become another user by then, the kernel lets it send no signal but
        // SIGCONT, and to a process of its session only: so it is looked for as well.
        prctl(libc::PR_SET_PDEATHSIG, libc::SIGCONT as u64);
        prctl(libc::PR_SET_NAME, c"txos-memory".as_ptr() as u64);
        let continues = 1_u64 << (libc::SIGCONT - 1);
        let (seconds, mut info) = ([10_u64, 0], MaybeUninit::<Asked>::uninit());
        let into = info.as_mut_ptr();
        let (set, most) = (&raw const continues as u64, &raw const seconds as u64);
        while syscall(libc::SYS_getppid, [0; 6]) == parent {
            let got = syscall(libc::SYS_rt_sigtimedwait, [set, into as u64, most, 8, 0, 0]);
            // A shell sends it as well.
            if got == i64::from(libc::SIGCONT)
                && i64::from((&raw const (*into).sender).read_volatile()) == parent
            {
                break;
            }
        }
        loop {
            syscall(libc::SYS_exit_group, [0; 6]);
        }
    }
}

/// Ends the process, whose memory is neither as it was nor as it is.
pub fn end_process(why: &str) -> ! {
    api::tell(&format!(
        "TX_CHECKPOINT: the transaction is rolled back, but memory could not be put back: {why}; the \
         program can't go on, and is ended (SIGABRT)"
    ));
    signals::unblock(signals::of(libc::SIGABRT));
    signals::take_default(libc::SIGABRT);
    loop {
        // SAFETY: the end of the process.
        unsafe { syscall(libc::SYS_exit_group, [134, 0, 0, 0, 0, 0]) };
    }
}
