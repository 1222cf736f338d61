//! The library as a process's program: it loads the one that is meant, and jumps to it.
#![allow(unsafe_code)] // the beginning of a process, and its end of the heap

use std::arch::naked_asm;
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use txos_engine::program::{FIRST, HIDDEN, is_hidden, value};

use super::super::processes::client::VARIABLE;
use super::super::processes::link::{self, end};
use super::super::tls::{Tls, here};
use super::super::{api, in_process, signals, thread};
use super::image::{self, Image};
use super::memory;
use crate::call::Call;
use crate::raw::{Sys, check, syscall};
use crate::tx::kernel;
use crate::user::UserPtr;

/// Says to the library what to load: `PROGRAM:LINKER:PATH`, two descriptors (-1: none), and what the program is called.
pub const PROGRAM: &str = "TXOS_PROGRAM";
/// The file that it was found in, for `/proc/self/exe`.
pub const FILE: &str = "TXOS_PROGRAM_FILE";

/// Programs that can be anywhere are put here: where the kernel puts nothing (it begins at 0x5555_5555_4000), and a thread
/// sanitizer takes them for programs.
const PLACE: u64 = 0x5500_0000_0000;
/// So many bits of the page's number are random.
const RANDOM_BITS: u32 = 26;

const ARCH_SET_GS: u64 = 0x1001;
const ARCH_SET_FS: u64 = 0x1002;
const ARCH_GET_FS: u64 = 0x1003;
const ARCH_GET_GS: u64 = 0x1004;

/// The program's file as it is to see it.
static PATH: OnceLock<Vec<u8>> = OnceLock::new();
/// What the program was opened as; -1: none was.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
/// Where its heap begins and ends.
static HEAP: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Whether the library is the process's program, and not loaded into another one.
pub fn is_program() -> bool {
    // SAFETY: it takes a number.
    unsafe { libc::getauxval(libc::AT_ENTRY) == txos_program as *const () as u64 }
}

/// The program that was loaded beside the library: what it is open as, and its path. That is the one of the file, which may have been
/// renamed or removed since, or, of a private copy, the one by which it was run.
fn program() -> Option<(i32, Vec<u8>)> {
    let given = PATH.get()?;
    let number = DESCRIPTOR.load(Ordering::Relaxed);
    let path = if given.is_empty() { kernel::path_of_fd(number).ok()? } else { given.clone() };
    Some((number, path))
}

/// Whether a descriptor is the one that leads to it.
pub fn is_programs(number: i32) -> bool {
    number >= 0 && number == DESCRIPTOR.load(Ordering::Relaxed)
}

/// Gives the program a number that it wants, if it is that one: it goes to another. `false`: it can't.
pub fn makes_way(number: i32) -> bool {
    if !is_programs(number) {
        return true;
    }
    let Ok(other) = kernel::duplicate(number, number, true) else { return false };
    DESCRIPTOR.store(other, Ordering::Relaxed);
    kernel::close(number);
    true
}

/// A variable as the program is to see it. `None`: not at all.
fn shown(variable: &CStr) -> Option<*const c_char> {
    let text = variable.to_bytes();
    if [PROGRAM, FILE, FIRST, VARIABLE].iter().any(|name| value(text, name).is_some()) {
        return None;
    }
    match text.strip_prefix(HIDDEN.as_bytes()) {
        // SAFETY: it has so many bytes before its end.
        Some(rest) if is_hidden(rest) => Some(unsafe { variable.as_ptr().add(HIDDEN.len()) }),
        _ => Some(variable.as_ptr()),
    }
}

/// Where the dynamic linker jumps to when the library is the program.
///
/// # Safety
/// For the dynamic linker, at the beginning of a process: the stack pointer leads to what the kernel has put there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn txos_program() -> ! {
    naked_asm!(
        "mov rbx, rsp",
        "mov rdi, rsp",
        "and rsp, -16",
        "call {size}",
        "mov rsp, rbx",
        "sub rsp, rax",
        "and rsp, -16",
        "mov rdi, rbx",
        "mov rsi, rsp",
        "mov rbx, rsp",
        "call {start}",
        "mov rsp, rbx",
        // As the kernel leaves the registers; rdx would be a function to call at the end.
        "xor ebx, ebx",
        "xor ecx, ecx",
        "xor edx, edx",
        "xor esi, esi",
        "xor edi, edi",
        "xor ebp, ebp",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r11d, r11d",
        "xor r12d, r12d",
        "xor r13d, r13d",
        "xor r14d, r14d",
        "xor r15d, r15d",
        "jmp rax",
        size = sym size,
        start = sym start,
    )
}

/// What the kernel has put on the stack of a new program.
#[derive(Clone, Copy)]
struct Block {
    arguments: *const u64,
    environment: *const u64,
    auxiliary: *const u64,
    end: *const u64,
}

impl Block {
    /// # Safety
    /// It is what the kernel, and the dynamic linker, have left there.
    unsafe fn at(start: *const u64) -> Block {
        // SAFETY: all three lists end with a zero.
        unsafe {
            let arguments = start.add(1);
            let environment = arguments.add(*start as usize + 1);
            let mut auxiliary = environment;
            while *auxiliary != 0 {
                auxiliary = auxiliary.add(1);
            }
            auxiliary = auxiliary.add(1);
            let mut end = auxiliary;
            while *end != 0 {
                end = end.add(2);
            }
            Block { arguments, environment, auxiliary, end: end.add(2) }
        }
    }
}

impl Block {
    /// How many arguments there are.
    fn count(&self) -> i32 {
        // SAFETY: one list lies behind the other.
        unsafe { self.environment.offset_from(self.arguments) as i32 - 1 }
    }
}

/// How many bytes the program's block takes at most.
unsafe extern "C" fn size(block: *const u64) -> u64 {
    // SAFETY: for `txos_program`.
    let whole = unsafe { Block::at(block) };
    whole.end as u64 - block as u64
}

/// Loads the program, with a block for it at `new`; where it begins.
unsafe extern "C" fn start(block: *const u64, new: *mut u64) -> u64 {
    // SAFETY: for `txos_program`.
    let block = unsafe { Block::at(block) };
    // SAFETY: the strings are the process's, and stay.
    let variables = || unsafe { list(block.environment) };
    let found = |name: &str| variables().find_map(|variable| value(variable.to_bytes(), name));
    // What the dynamic linker has a library do when it is loaded, a program does for itself.
    // SAFETY: the block has them.
    unsafe { in_process::loaded(block.count(), block.arguments.cast()) };
    if let Some(path) = found(FIRST) {
        run_first(path, block.arguments);
    }
    let Some(words) = found(PROGRAM) else {
        api::tell("this is a library, which txos loads into programs; see txos(1)");
        // SAFETY: the process ends.
        unsafe { libc::_exit(link::FAILED) };
    };
    let tls = here();
    thread::leave_program(tls);
    let mask = signals::block_all();
    let file = found(FILE).unwrap_or_default();
    let loaded = thread::guarded(|| load(tls, words, file));
    let why = match loaded {
        Ok(Ok((program, linker, name))) => {
            // SAFETY: there is as much room at `new` as the kernel's block takes.
            unsafe { write_block(block, new, &program, linker.as_ref(), name) };
            if program.wants_to_run_its_stack {
                let (page, all) = (new as u64 & !0xfff, libc::PROT_GROWSDOWN | 7);
                // SAFETY: the stack's pages, from this one downwards, may be run as well.
                unsafe { syscall(libc::SYS_mprotect, [page, 4096, all as u64, 0, 0, 0]) };
            }
            signals::set_mask(mask);
            thread::to_program(tls);
            memory::to_program(tls);
            return linker.map_or(program.entry, |linker| linker.entry);
        }
        Ok(Err(why)) => why,
        Err(panic) => panic,
    };
    let name = String::from_utf8_lossy(words).into_owned();
    let name = name.splitn(3, ':').nth(2).unwrap_or_default().to_owned();
    if let Some(thread) = thread::existing(tls) {
        link::fail(thread, &format!("{name} can't be loaded: {why}"));
    }
    end(link::FAILED)
}

/// A list of strings that ends with a zero.
///
/// # Safety
/// It is one, and stays.
unsafe fn list(mut at: *const u64) -> impl Iterator<Item = &'static CStr> {
    std::iter::from_fn(move || {
        // SAFETY: the caller says so.
        unsafe {
            let address = *at;
            at = at.add(1);
            (address != 0).then(|| CStr::from_ptr(address as *const c_char))
        }
    })
}

/// The library has begun a transaction, and runs the command in it.
fn run_first(path: &[u8], arguments: *const u64) -> ! {
    unsafe extern "C" {
        static environ: *const u64;
    }
    // SAFETY: the C library's list, in a process of one thread. It has what the library has put there by now.
    let variables = unsafe { list(environ) };
    let mut environment: Vec<*const c_char> = variables.filter_map(shown).collect();
    environment.push(std::ptr::null());
    let text = CString::new(path).unwrap_or_default();
    // SAFETY: all lists and strings are there until the answer.
    unsafe { libc::execve(text.as_ptr(), arguments.cast(), environment.as_ptr()) };
    let error = std::io::Error::last_os_error();
    let text = std::ffi::OsStr::from_bytes(path).to_string_lossy();
    api::tell(&format!("can't run {text}: {error}"));
    let status = if error.raw_os_error() == Some(libc::ENOENT) { 127 } else { 126 };
    // SAFETY: the process ends.
    unsafe { libc::_exit(status) }
}

/// Maps a program, and its own dynamic linker.
fn load<'a>(
    tls: &Tls,
    words: &'a [u8],
    file: &[u8],
) -> Result<(Image, Option<Image>, &'a [u8]), String> {
    let mut parts = words.splitn(3, |&byte| byte == b':');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<i32>().ok();
    let (Some(program), Some(linker)) = (number(), number()) else {
        return Err("it is not known what to load".into());
    };
    let name = parts.next().unwrap_or_default();
    let said =
        |what: &str, errno: crate::raw::Errno| format!("{what}: {}", std::io::Error::from(errno));
    let image = image::map(program, place()).map_err(|errno| said("mapping it", errno))?;
    kernel::set_close_on_exec(program, true).map_err(|errno| said("keeping it", errno))?;
    DESCRIPTOR.store(program, Ordering::Relaxed);
    let linker = match linker {
        -1 => None,
        fd => {
            let mapped = image::map(fd, 0);
            kernel::close(fd);
            Some(mapped.map_err(|errno| said("mapping its dynamic linker", errno))?)
        }
    };
    HEAP.iter().for_each(|border| border.store(image.end, Ordering::Relaxed));
    let shown = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if let Ok(shown) = CString::new(shown) {
        let words = [libc::PR_SET_NAME as u64, shown.as_ptr() as u64, 0, 0, 0, 0];
        // SAFETY: the kernel reads the name.
        unsafe { syscall(libc::SYS_prctl, words) };
    }
    let _ = PATH.set(file.to_vec());
    memory::begin(tls);
    // From here on the handler of traps is the one for two memories.
    signals::let_all_in();
    Ok((image, linker, name))
}

/// Where to put a program that can be anywhere.
fn place() -> u64 {
    let mut random = [0; 8];
    let words = [random.as_mut_ptr() as u64, random.len() as u64, 0, 0, 0, 0];
    // SAFETY: the kernel writes what there is room for.
    unsafe { syscall(libc::SYS_getrandom, words) };
    PLACE + ((u64::from_ne_bytes(random) >> (64 - RANDOM_BITS)) << 12)
}

/// Writes what the kernel would have put on the stack.
///
/// # Safety
/// There is room for it.
unsafe fn write_block(
    block: Block,
    new: *mut u64,
    program: &Image,
    linker: Option<&Image>,
    name: &[u8],
) {
    let mut at = new;
    let mut put = |word: u64| {
        // SAFETY: there is room: nothing is added to what the kernel has put there.
        unsafe {
            at.write(word);
            at = at.add(1);
        }
    };
    // SAFETY: the lists are there.
    unsafe {
        let count = block.count() as u64;
        put(count);
        (0..count as usize).for_each(|index| put(*block.arguments.add(index)));
        put(0);
        for shown in list(block.environment).filter_map(shown) {
            put(shown as u64);
        }
        put(0);
        let mut pair = block.auxiliary;
        loop {
            let (kind, value) = (*pair, *pair.add(1));
            let value = match kind {
                libc::AT_PHDR => program.headers.0,
                libc::AT_PHNUM => program.headers.1,
                libc::AT_ENTRY => program.entry,
                libc::AT_BASE => linker.map_or(0, |linker| linker.base),
                // It ends where the variable ends that says what to load.
                libc::AT_EXECFN => name.as_ptr() as u64,
                _ => value,
            };
            put(kind);
            put(value);
            if kind == libc::AT_NULL {
                return;
            }
            pair = pair.add(2);
        }
    }
}

/// What is the program's of calls that concern a process as a whole. `None`: any other call.
#[inline]
pub fn call(tls: &Tls, call: &Call) -> Option<i64> {
    if !memory::is_loaded() {
        return None;
    }
    match call.number() {
        libc::SYS_arch_prctl => pointer(tls, call),
        libc::SYS_brk => Some(end_heap(call.word(0))),
        libc::SYS_readlink => read_own_link(call, 0),
        libc::SYS_readlinkat => read_own_link(call, 1),
        _ => None,
    }
}

/// `arch_prctl`: the program's thread pointer.
fn pointer(tls: &Tls, call: &Call) -> Option<i64> {
    const END: u64 = 1 << 47;
    let value = call.word(1);
    let told = |value: u64| match call.pointer::<u64>(1).write(value) {
        Ok(()) => 0,
        Err(errno) => -i64::from(errno.raw_os_error()),
    };
    Some(match call.word(0) {
        ARCH_SET_FS if value >= END => -i64::from(libc::EPERM),
        ARCH_SET_FS => {
            tls.programs_pointer.set(value);
            0
        }
        ARCH_GET_FS => told(tls.programs_pointer.get()),
        ARCH_GET_GS => told(0),
        // The library's way to its thread.
        ARCH_SET_GS => -i64::from(libc::EPERM),
        _ => return None,
    })
}

/// `brk`: where the program's heap ends from now on.
fn end_heap(wanted: u64) -> i64 {
    const PAGE: u64 = 4096;
    memory::alone(|| {
        let [start, end] = HEAP.each_ref().map(|border| border.load(Ordering::Relaxed));
        if !(start..1 << 47).contains(&wanted) {
            return end as i64;
        }
        let (now, then) = (end.next_multiple_of(PAGE), wanted.next_multiple_of(PAGE));
        let done = if then > now { grow(now, then - now) } else { shrink(then, now - then) };
        if done.is_err() {
            return end as i64;
        }
        HEAP[1].store(wanted, Ordering::Relaxed);
        wanted as i64
    })
}

fn grow(at: u64, size: u64) -> Sys<()> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let words = [at, size, protection, flags as u64, u64::MAX, 0];
    // SAFETY: it is mapped only where nothing is.
    match check(unsafe { syscall(libc::SYS_mmap, words) })? {
        place if place == at => Ok(()),
        place => {
            shrink(place, size)?;
            Err(crate::raw::Errno::NOMEM)
        }
    }
}

fn shrink(at: u64, size: u64) -> Sys<()> {
    if size == 0 {
        return Ok(());
    }
    crate::reach::forget();
    // SAFETY: it is the program's heap, which it gives back.
    check(unsafe { syscall(libc::SYS_munmap, [at, size, 0, 0, 0, 0]) }).map(drop)
}

/// `readlink` of the program's own file.
fn read_own_link(call: &Call, at: usize) -> Option<i64> {
    let path = call.path(at).ok()?;
    let dir = if at == 0 { libc::AT_FDCWD } else { call.int(0) };
    let (_, program) = program_at(dir, &path)?;
    let size = call.int(at + 2);
    if size <= 0 {
        return Some(-i64::from(libc::EINVAL));
    }
    let length = program.len().min(size as usize);
    for (index, &byte) in program[..length].iter().enumerate() {
        // SAFETY: the program wants it there.
        let place = unsafe { UserPtr::<u8>::new(call.word(at + 1) + index as u64) };
        if let Err(errno) = place.write(byte) {
            return Some(-i64::from(errno.raw_os_error()));
        }
    }
    Some(length as i64)
}

/// The file of the program that was loaded, if the link in `/proc` that leads to it is looked up.
pub fn program_at(dir: i32, path: &[u8]) -> Option<(i32, Vec<u8>)> {
    if !memory::is_loaded() || !path.ends_with(b"exe") {
        return None;
    }
    let program = program()?;
    let start = match (path.first(), dir) {
        (Some(b'/'), _) => Vec::new(),
        (_, libc::AT_FDCWD) => kernel::read_link(dir, b"/proc/self/cwd").unwrap_or_default(),
        (_, dir) => kernel::path_of_fd(dir).unwrap_or_default(),
    };
    let whole = [&start[..], b"/", path].concat();
    let parts = whole.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let own = kernel::own_process().to_string();
    let is_own = |name: &[u8]| name == b"self" || name == b"thread-self" || name == own.as_bytes();
    let is_it = matches!(parts.collect::<Vec<_>>()[..], [b"proc", name, b"exe"] if is_own(name));
    is_it.then_some(program)
}
