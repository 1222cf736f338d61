//! Maps a program into memory, as the kernel does (`elf(5)`).
#![allow(unsafe_code)] // the process's memory

use crate::raw::{self, Errno, Sys, syscall};
use crate::tx::kernel;

const PAGE: u64 = 4096;
const HEADER: usize = 64;
const ENTRY: usize = 56;
/// More than any program has.
const ENTRIES_MAX: u64 = 1024;
/// The addresses that a process can have end here.
const END: u64 = 1 << 47;

const LOAD: u32 = 1;
const HEADERS: u32 = 6;
const STACK: u32 = 0x6474_e551;
const EXECUTE: u32 = 1;
const WRITE: u32 = 2;
const READ: u32 = 4;
/// A program that can be anywhere, and one that can't.
const ANYWHERE: u16 = 3;
const FIXED: u16 = 2;

/// A program in memory.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// Where it begins to run.
    pub entry: u64,
    /// How far it was moved.
    pub base: u64,
    /// Where its program headers are, and how many.
    pub headers: (u64, u64),
    /// The end of what it takes.
    pub end: u64,
    /// It puts code on its stack.
    pub wants_to_run_its_stack: bool,
}

/// One of its program headers.
#[derive(Clone, Copy, Debug)]
struct Part {
    kind: u32,
    flags: u32,
    offset: u64,
    at: u64,
    in_file: u64,
    in_memory: u64,
    align: u64,
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + N].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

const fn down(address: u64) -> u64 {
    address & !(PAGE - 1)
}

const fn up(address: u64) -> u64 {
    down(address + PAGE - 1)
}

fn read_whole(fd: i32, room: &mut [u8], at: u64) -> Sys<()> {
    match kernel::pread(fd, room, at)? {
        read if read == room.len() => Ok(()),
        _ => Err(Errno::NOEXEC),
    }
}

impl Part {
    fn of(bytes: &[u8]) -> Part {
        Part {
            kind: word::<4>(bytes, 0) as u32,
            flags: word::<4>(bytes, 4) as u32,
            offset: word::<8>(bytes, 8),
            at: word::<8>(bytes, 16),
            in_file: word::<8>(bytes, 32),
            in_memory: word::<8>(bytes, 40),
            align: word::<8>(bytes, 48),
        }
    }

    fn protection(&self) -> u64 {
        let bit = |flag, protection: i32| match self.flags & flag {
            0 => 0,
            _ => protection as u64,
        };
        bit(READ, libc::PROT_READ) | bit(WRITE, libc::PROT_WRITE) | bit(EXECUTE, libc::PROT_EXEC)
    }

    fn is_sound(&self) -> bool {
        let fits = |start: u64, size: u64| start.checked_add(size).is_some_and(|end| end < END);
        self.in_file <= self.in_memory
            && fits(self.at, self.in_memory)
            && fits(self.offset, self.in_file)
            && self.at % PAGE == self.offset % PAGE
    }
}

fn mmap(at: u64, size: u64, protection: u64, flags: i32, fd: i32, offset: u64) -> Sys<u64> {
    let flags = (flags | libc::MAP_PRIVATE) as u64;
    // SAFETY: what is mapped over is the image's own place, or nothing.
    raw::check(unsafe { syscall(libc::SYS_mmap, [at, size, protection, flags, fd as u64, offset]) })
}

/// What a program's headers say.
#[derive(Debug)]
struct Headers {
    kind: u16,
    entry: u64,
    /// Where in the file they begin.
    start: u64,
    all: Vec<Part>,
}

impl Headers {
    fn read(fd: i32) -> Sys<Headers> {
        let mut header = [0; HEADER];
        read_whole(fd, &mut header, 0)?;
        let (kind, entry) = (word::<2>(&header, 16) as u16, word::<8>(&header, 24));
        let (start, size, count) =
            (word::<8>(&header, 32), word::<2>(&header, 54), word::<2>(&header, 56));
        let is_one = header.starts_with(b"\x7fELF\x02\x01") && matches!(kind, ANYWHERE | FIXED);
        if !is_one || size != ENTRY as u64 || count > ENTRIES_MAX {
            return Err(Errno::NOEXEC);
        }
        let mut table = vec![0; ENTRY * count as usize];
        read_whole(fd, &mut table, start)?;
        let all: Vec<Part> =
            table.as_chunks::<ENTRY>().0.iter().map(|bytes| Part::of(bytes)).collect();
        let headers = Headers { kind, entry, start, all };
        let is_sound = headers.loaded().all(|part| part.is_sound());
        if is_sound && headers.loaded().next().is_some() { Ok(headers) } else { Err(Errno::NOEXEC) }
    }

    /// What is mapped of it.
    fn loaded(&self) -> impl Iterator<Item = &Part> {
        self.all.iter().filter(|part| part.kind == LOAD && part.in_memory != 0)
    }
}

/// Looks whether a file is a program that can be mapped.
///
/// # Errors
/// ENOEXEC.
pub fn check(fd: i32) -> Sys<()> {
    Headers::read(fd).map(drop).map_err(|_| Errno::NOEXEC)
}

/// Maps a program. One that can be anywhere is put near `hint`, if that is free.
///
/// # Errors
/// ENOEXEC, if it is none; what `mmap(2)` says.
pub fn map(fd: i32, hint: u64) -> Sys<Image> {
    let headers = Headers::read(fd)?;
    let lowest = headers.loaded().map(|part| down(part.at)).min().unwrap_or(0);
    let highest = headers.loaded().map(|part| up(part.at + part.in_memory)).max().unwrap_or(0);
    let size = highest - lowest;
    let aligns = headers.loaded().map(|part| part.align).filter(|align| align.is_power_of_two());
    let base = match headers.kind {
        ANYWHERE => {
            reserve(hint, size, aligns.max().unwrap_or(PAGE).max(PAGE))?.wrapping_sub(lowest)
        }
        _ => {
            let flags = libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
            match mmap(lowest, size, 0, flags, -1, 0)? {
                place if place == lowest => 0,
                // A kernel that does not know the flag takes it for a hint.
                _ => return Err(Errno::EXIST),
            }
        }
    };
    for part in headers.loaded() {
        map_part(fd, part, base)?;
    }
    let all = &headers.all;
    let in_file = |part: &&Part| (part.offset..part.offset + part.in_file).contains(&headers.start);
    let place = all.iter().find(|part| part.kind == HEADERS).map(|part| part.at);
    let place = place
        .or_else(|| headers.loaded().find(in_file).map(|p| p.at + (headers.start - p.offset)))
        .unwrap_or(0);
    let moved = |address: u64| base.wrapping_add(address);
    Ok(Image {
        entry: moved(headers.entry),
        base,
        headers: (moved(place), all.len() as u64),
        end: moved(lowest) + size,
        wants_to_run_its_stack: all.iter().any(|p| p.kind == STACK && p.flags & EXECUTE != 0),
    })
}

/// Room for a program that can be anywhere.
fn reserve(hint: u64, size: u64, align: u64) -> Sys<u64> {
    let room = size.checked_add(align - PAGE).ok_or(Errno::NOMEM)?;
    let flags = libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let start = mmap(hint, room, 0, flags, -1, 0)?;
    let place = start.next_multiple_of(align);
    // What is left over on both sides stays reserved: it is a few pages, without memory.
    Ok(place)
}

fn map_part(fd: i32, part: &Part, base: u64) -> Sys<()> {
    let at = base.wrapping_add(part.at);
    let (start, protection) = (down(at), part.protection());
    let (file_end, end) = (at + part.in_file, at + part.in_memory);
    if part.in_file != 0 {
        let size = up(file_end) - start;
        mmap(start, size, protection, libc::MAP_FIXED, fd, down(part.offset))?;
    }
    if part.in_memory == part.in_file {
        return Ok(());
    }
    // What is not in the file is zero: the end of its last page, and pages of its own.
    let zeroed = if part.in_file == 0 { start } else { up(file_end) };
    if part.in_file != 0 && part.flags & WRITE != 0 {
        // SAFETY: the page was just mapped, and can be written to.
        unsafe { std::ptr::write_bytes(file_end as *mut u8, 0, (zeroed - file_end) as usize) };
    }
    if up(end) > zeroed {
        let flags = libc::MAP_FIXED | libc::MAP_ANONYMOUS;
        mmap(zeroed, up(end) - zeroed, protection, flags, -1, 0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_is_no_program_is_refused() {
        let mut file = tempfile();
        let bytes = |file: &mut std::fs::File, all: &[u8]| {
            use std::io::{Seek, Write};
            file.set_len(0).unwrap();
            file.rewind().unwrap();
            file.write_all(all).unwrap();
        };
        let own = std::fs::read("/proc/self/exe").unwrap();
        for cut in [0, 3, 63, 64, 100] {
            bytes(&mut file, &own[..cut]);
            assert_eq!(map(file.as_raw_fd(), 0).err(), Some(Errno::NOEXEC), "{cut}");
        }
        // A part that reaches beyond the end of memory.
        let mut wrong = own[..4096].to_vec();
        let headers = word::<8>(&wrong, 32) as usize;
        for index in 0..word::<2>(&wrong, 56) as usize {
            let at = headers + index * ENTRY;
            if word::<4>(&wrong, at) == u64::from(LOAD) {
                wrong[at + 16..at + 24].copy_from_slice(&(u64::MAX - 4096).to_le_bytes());
            }
        }
        bytes(&mut file, &wrong);
        assert_eq!(map(file.as_raw_fd(), 0).err(), Some(Errno::NOEXEC));
    }

    #[test]
    fn a_program_is_mapped_with_its_zeroes() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let image = map(file.as_raw_fd(), 0).unwrap();
        assert!(image.entry > image.base && image.entry < image.end);
        // SAFETY: it was just mapped, with its headers.
        let first = unsafe { std::slice::from_raw_parts(image.headers.0 as *const u8, ENTRY) };
        assert_eq!(Part::of(first).kind, HEADERS);
    }

    fn tempfile() -> std::fs::File {
        let name = format!("/tmp/txos-test-image.{}", std::process::id());
        let mut options = std::fs::File::options();
        let file = options.create(true).truncate(true).read(true).write(true).open(&name).unwrap();
        std::fs::remove_file(&name).unwrap();
        file
    }
}
