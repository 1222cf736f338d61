//! What executing a file reads besides the file: its interpreter, and that one's.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use txos_engine::object::Facets;

use super::Supervisor;
use super::caller::AsCaller;
use super::record::is_inconclusive;
use crate::sys::seccomp::Call;

/// How many interpreters the kernel passes through.
const CHAIN_MAX: usize = 5;

/// How much of a file is read to find its interpreter. The kernel reads 256 bytes for `#!`; the
/// program headers of ordinary ELF files follow their 64-byte header at once.
const HEAD: usize = 4096;

/// What a file's first bytes say about how it is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// `#!`: another program runs it.
    Script(Vec<u8>),
    /// A native program; its dynamic loader, if it names one.
    Native(Option<Vec<u8>>),
    /// A program for another architecture of this machine, whose calls are not recorded.
    Foreign(Option<Vec<u8>>),
    /// Neither.
    Other,
}

/// Reads a file's head. `read` gives bytes at an offset.
pub fn parse(head: &[u8], read: impl Fn(u64, usize) -> Option<Vec<u8>>) -> Head {
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
        let word =
            line.split(|&b| b == b' ' || b == b'\t').find(|w| !w.is_empty()).unwrap_or_default();
        return if word.is_empty() { Head::Other } else { Head::Script(word.to_vec()) };
    }
    parse_elf(head, read).unwrap_or(Head::Other)
}

fn parse_elf(head: &[u8], read: impl Fn(u64, usize) -> Option<Vec<u8>>) -> Option<Head> {
    if head.get(..4)? != b"\x7fELF" {
        return None;
    }
    let wide = *head.get(4)? == 2;
    let u16_at =
        |b: &[u8], at: usize| Some(u16::from_le_bytes(b.get(at..at + 2)?.try_into().ok()?));
    let u32_at =
        |b: &[u8], at: usize| Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?));
    let u64_at =
        |b: &[u8], at: usize| Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?));
    let (table, size, count) = if wide {
        (u64_at(head, 32)?, u16_at(head, 54)?, u16_at(head, 56)?)
    } else {
        (u64::from(u32_at(head, 28)?), u16_at(head, 42)?, u16_at(head, 44)?)
    };
    let mut loader = None;
    for i in 0..u64::from(count) {
        let header = read(table + i * u64::from(size), usize::from(size))?;
        const PT_INTERP: u32 = 3;
        if u32_at(&header, 0)? == PT_INTERP {
            let (offset, len) = if wide {
                (u64_at(&header, 8)?, u64_at(&header, 32)?)
            } else {
                (u64::from(u32_at(&header, 4)?), u64::from(u32_at(&header, 16)?))
            };
            let mut path = read(offset, usize::try_from(len).ok()?.min(HEAD))?;
            path.truncate(path.iter().position(|&b| b == 0).unwrap_or(path.len()));
            loader = Some(path);
            break;
        }
    }
    Some(if wide { Head::Native(loader) } else { Head::Foreign(loader) })
}

fn head_of(fd: &OwnedFd) -> Option<Head> {
    let mut head = vec![0u8; HEAD];
    let got = rustix::io::pread(fd, &mut head[..], 0).ok()?;
    head.truncate(got);
    let read = |offset: u64, len: usize| {
        let start = usize::try_from(offset).ok()?;
        if let Some(bytes) = head.get(start..start.checked_add(len)?) {
            return Some(bytes.to_vec());
        }
        let mut bytes = vec![0u8; len.min(HEAD)];
        let got = rustix::io::pread(fd, &mut bytes[..], offset).ok()?;
        bytes.truncate(got);
        Some(bytes)
    };
    Some(parse(&head, read))
}

/// How many heads are kept in mind.
const HEADS_MAX: usize = 256;

/// How long a file must have been as it is for its head to be kept: longer than a tick of the clock that
/// times of change are taken from.
const SETTLED: i64 = 2;

/// Heads of files that were executed, so that each is opened once.
#[derive(Debug, Default)]
pub struct Heads(HashMap<Version, Head>);

/// A version of a file: device, inode, size, time of change.
type Version = (u64, u64, i64, i64, i64);

impl Heads {
    /// The head of a file that was found; opened by the caller unless it is known.
    fn of(&mut self, caller: &AsCaller, found: OwnedFd, stat: &Stat) -> Option<Head> {
        let changed = (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).ok()?);
        let version = (stat.st_dev, stat.st_ino, stat.st_size, changed.0, changed.1);
        if let Some(head) = self.0.get(&version) {
            return Some(head.clone());
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let head = caller.open_and(found, flags, |file| head_of(&file).ok_or(Errno::INVAL)).ok()?;
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
        // Whatever the clock was set to: neither just now nor in the future.
        if changed.0.saturating_add(SETTLED) < now {
            if self.0.len() >= HEADS_MAX {
                self.0.clear();
            }
            self.0.insert(version, head.clone());
        }
        Some(head)
    }
}

/// What executing a file comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Executed {
    /// It is there, a regular file that the caller can read.
    pub found: bool,
    /// A program of another architecture is about to run.
    pub foreign: bool,
}

impl Supervisor {
    /// Observes the interpreters that executing `path` reads, as far as the caller can read them.
    pub(super) fn note_interpreters(&mut self, call: &Call, path: &[u8]) -> Executed {
        let mut outcome = Executed::default();
        let Some(caller) = self.opener(call) else { return outcome };
        let mut path = path.to_vec();
        for _ in 0..CHAIN_MAX {
            let found = caller.find(&path, OFlags::empty(), ResolveFlags::empty());
            let found = found.and_then(|found| caller.regular(found));
            let (found, stat) = match found {
                Ok(found) => found,
                Err(e) => {
                    self.unreadable |= is_inconclusive(e);
                    return outcome;
                }
            };
            // Set-user-id or set-group-id: it will run with other credentials.
            if stat.st_mode & 0o6000 != 0 {
                self.somebody_differs();
            }
            let Some(head) = self.heads.of(&caller, found, &stat) else { return outcome };
            let (next, foreign) = match head {
                Head::Script(next) => (Some(next), false),
                Head::Native(loader) => (loader, false),
                Head::Foreign(loader) => (loader, true),
                Head::Other => (None, false),
            };
            outcome = Executed { found: true, foreign };
            let Some(next) = next else { return outcome };
            // A relative interpreter is rare and relative to the working directory.
            if next.first() != Some(&b'/') {
                return outcome;
            }
            path = caller.in_the_view(&next);
            self.note_path(call, &path, true, Facets::ENTRY | Facets::DATA | Facets::ATTRS);
            if foreign || !self.acquire_first() {
                return outcome;
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(bytes: &[u8]) -> Head {
        parse(bytes, |at, len| {
            let at = usize::try_from(at).ok()?;
            bytes.get(at..at + len).map(<[u8]>::to_vec)
        })
    }

    #[test]
    fn scripts() {
        assert_eq!(head(b"#!/bin/sh\necho"), Head::Script(b"/bin/sh".to_vec()));
        assert_eq!(head(b"#! /usr/bin/env -S x"), Head::Script(b"/usr/bin/env".to_vec()));
        assert_eq!(head(b"#!\n"), Head::Other);
        assert_eq!(head(b""), Head::Other);
        assert_eq!(head(b"\x7fELF"), Head::Other);
    }

    #[test]
    fn programs() {
        let me = std::fs::read("/proc/self/exe").unwrap();
        let Head::Native(Some(loader)) = head(&me) else { panic!("{:?}", head(&me)) };
        assert!(loader.starts_with(b"/") && !loader.ends_with(b"\0"));
        let mut other = me;
        other[4] = 1;
        assert!(matches!(head(&other), Head::Foreign(_) | Head::Other));
    }
}
