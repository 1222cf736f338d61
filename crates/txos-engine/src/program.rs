//! What a program is to the kernel: whether a library can be loaded into it (ld.so(8), `LD_PRELOAD`).
#![allow(unsafe_code)] // what the kernel tells of the processor

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The shared library's file name.
pub const LIBRARY: &str = "libtxos.so";
/// The dynamic linker of the GNU C library, by its file name. It works with the library of the same build.
pub const LINKER: &str = "ld-linux-x86-64.so.2";
/// Where systems have it.
pub const SYSTEM_LINKER: &str = "/lib64/ld-linux-x86-64.so.2";
/// That library.
pub const C_LIBRARY: &str = "libc.so.6";
/// Says to the library, if it is run as a program, what to run in the transaction that it begins.
pub const FIRST: &str = "TXOS_FIRST_PROGRAM";
/// In front of variables that are a program's, and that the dynamic linker of the library is not to go by.
pub const HIDDEN: &str = "TXOS_";

/// What a variable of an environment (`NAME=VALUE`) says, if it has this name.
#[must_use]
pub fn value<'a>(variable: &'a [u8], name: &str) -> Option<&'a [u8]> {
    variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// Whether a variable is to be hidden so: it has a name that the dynamic linker goes by, or one that would be taken for such
/// a name that is hidden.
#[must_use]
pub fn is_hidden(mut variable: &[u8]) -> bool {
    while let Some(rest) = variable.strip_prefix(HIDDEN.as_bytes()) {
        variable = rest;
    }
    variable.starts_with(b"LD_") || variable.starts_with(b"GLIBC_TUNABLES=")
}

/// A dynamic linker that lies beside the library, with a GNU C library of its own: for systems that have none, or something else in
/// its place. Where it is, no program has the library preloaded: all are loaded by the library. Both have to be files that the
/// library's owner, or root, has put there for all to run; the system's own are none of these.
#[must_use]
pub fn linker_beside(library: &Path) -> Option<PathBuf> {
    if library.file_name()? != LIBRARY || !can_be_named(library) || !can_be_accompanied() {
        return None;
    }
    let owner = std::fs::metadata(library).ok()?.uid();
    let [linker, c_library] = [LINKER, C_LIBRARY].map(|name| library.with_file_name(name));
    let fits = [&linker, &c_library].iter().all(|path| is_fit(path, owner).is_ok());
    fits.then_some(linker)
}

/// What lies beside the library as its dynamic linker or C library and is not taken for it, and why.
#[must_use]
pub fn refused_beside(library: &Path) -> Option<(PathBuf, String)> {
    let owner = std::fs::metadata(library).ok()?.uid();
    let found = [LINKER, C_LIBRARY].map(|name| library.with_file_name(name));
    // The library lies among the system's: what is beside it is no copy.
    let file = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let systems = file(Path::new(SYSTEM_LINKER));
    if systems.is_some() && file(&found[0]) == systems {
        return None;
    }
    found.into_iter().find_map(|path| match is_fit(&path, owner) {
        Err(Some(why)) => Some((path, why)),
        Ok(()) | Err(None) => None,
    })
}

/// Whether a file beside the library of an owner may be taken; else why not, if there is one at all.
fn is_fit(path: &Path, owner: u32) -> Result<(), Option<String>> {
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(None),
        Err(error) => return Err(Some(format!("can't be looked at: {error}"))),
    };
    let (mode, uid) = (meta.mode() & 0o7777, meta.uid());
    let is_linker = path.file_name().is_some_and(|name| name == LINKER);
    let is_the_systems =
        |system: Metadata| (system.dev(), system.ino()) == (meta.dev(), meta.ino());
    Err(Some(if meta.is_symlink() {
        "is a symbolic link; copy the file that it leads to".to_owned()
    } else if !meta.is_file() {
        "is not a regular file".to_owned()
    } else if ![0, owner].contains(&uid) {
        match owner {
            0 => format!("belongs to user {uid}, and has to be root's"),
            owner => format!("belongs to user {uid}, and has to be root's or user {owner}'s"),
        }
    } else if mode & 0o022 != 0 {
        format!("can be written to by others than its owner (mode {mode:04o})")
    } else if is_linker && mode & 0o111 == 0 {
        format!("can't be executed (mode {mode:04o})")
    } else if is_linker && std::fs::metadata(SYSTEM_LINKER).is_ok_and(is_the_systems) {
        "is the system's own, and no copy of it".to_owned()
    } else {
        return Ok(());
    }))
}

/// Whether a dynamic linker takes the library's directory as it is (ld.so(8), `--library-path`).
#[must_use]
pub fn can_be_named(library: &Path) -> bool {
    !library.as_os_str().as_bytes().iter().any(|byte| b":;$".contains(byte))
}

/// The arguments by which such a dynamic linker runs the library as its program, which is to have this name (ld.so(8)).
/// The program's own arguments follow.
#[must_use]
pub fn arguments_of_linker(library: &Path, name: &OsStr) -> [OsString; 5] {
    let directory = library.parent().unwrap_or(Path::new("/"));
    ["--library-path".into(), directory.into(), "--argv0".into(), name.into(), library.into()]
}

/// What a program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A script: its interpreter, and the argument for that.
    Script(Vec<u8>, Vec<u8>),
    /// A 64-bit program that the dynamic linker of the GNU C library loads, and where that is: it preloads a library.
    Dynamic(Vec<u8>),
    /// The same, and its first library is a sanitizer's that wants nothing preloaded: an address sanitizer's has to be in front
    /// of all others, and a thread sanitizer's to see each thread first.
    Sanitized(Vec<u8>),
    /// Another 64-bit program. It is statically linked, or this is its own dynamic linker.
    Alone(Option<Vec<u8>>),
    /// A program for another processor, or a 32-bit one.
    Foreign,
    /// None.
    Unknown,
}

/// As much of a script's first line as is looked at: the kernel takes less.
const LINE_MAX: usize = 510;

/// Looks at the beginning of a program. `read_at` reads from it at an offset, and answers how many bytes it has read: 0 also
/// for an error.
pub fn kind(read_at: impl Fn(&mut [u8], u64) -> usize) -> Kind {
    const PT_INTERP: u64 = 3;
    const X86_64: u64 = 62;
    /// The longest path that the kernel takes.
    const PATH_MAX: u64 = 4096;
    /// More than the kernel takes: 64 KiB of them.
    const HEADERS_MAX: u64 = 2048;
    // As a rule all program headers are in it.
    let mut head = [0; 1024];
    let size = read_at(&mut head, 0).min(head.len());
    let head = &head[..size];
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = &line[..line.len().min(LINE_MAX)];
        let line = line.split(|b| *b == b'\n').next().unwrap_or_default().trim_ascii();
        let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
        let (interpreter, argument) = line.split_at(end);
        return match interpreter {
            [] => Kind::Unknown,
            _ => Kind::Script(interpreter.to_vec(), argument.trim_ascii().to_vec()),
        };
    }
    if !head.starts_with(b"\x7fELF") || size < 64 {
        return Kind::Unknown;
    }
    if head.get(4..6) != Some(&[2, 1]) || word(&head[18..20]) != X86_64 {
        return Kind::Foreign;
    }
    let (start, size, count) = (word(&head[32..40]), word(&head[54..56]), word(&head[56..58]));
    let headers = (0..count.min(HEADERS_MAX)).map_while(|index| {
        let at = start.saturating_add(index * size);
        let mut entry = [0; Header::SIZE];
        let known = usize::try_from(at).ok().and_then(|at| head.get(at..at + Header::SIZE));
        match known {
            Some(known) => entry.copy_from_slice(known),
            None if read_at(&mut entry, at) < entry.len() => return None,
            None => {}
        }
        Some(Header::of(&entry))
    });
    let headers: Vec<Header> = headers.collect();
    let linker = headers.iter().find(|header| header.kind == PT_INTERP).map(|header| {
        let mut path = vec![0; header.size.min(PATH_MAX) as usize];
        let read = read_at(&mut path, header.offset);
        path.truncate(path[..read].iter().position(|&byte| byte == 0).unwrap_or(read));
        path
    });
    match linker {
        Some(path) if !is_gnu(&path) => Kind::Alone(Some(path)),
        Some(path) if first_library(&headers, read_at).is_some_and(|name| wants_none(&name)) => {
            Kind::Sanitized(path)
        }
        Some(path) => Kind::Dynamic(path),
        None => Kind::Alone(None),
    }
}

/// A little-endian number.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0_u64, |value, b| value << 8 | u64::from(*b))
}

/// A program header (elf(5)), as far as it is needed.
struct Header {
    kind: u64,
    offset: u64,
    address: u64,
    /// In the file.
    size: u64,
}

impl Header {
    const SIZE: usize = 40;

    fn of(entry: &[u8; Self::SIZE]) -> Header {
        Header {
            kind: word(&entry[..4]),
            offset: word(&entry[8..16]),
            address: word(&entry[16..24]),
            size: word(&entry[32..40]),
        }
    }
}

/// The name of the first library that a program needs.
fn first_library(headers: &[Header], read_at: impl Fn(&mut [u8], u64) -> usize) -> Option<Vec<u8>> {
    const PT_LOAD: u64 = 1;
    const PT_DYNAMIC: u64 = 2;
    const DT_NEEDED: u64 = 1;
    const DT_STRTAB: u64 = 5;
    /// A program has some thirty entries.
    const DYNAMIC_MAX: u64 = 4096;
    /// Longer than the names in question.
    const NAME_MAX: usize = 64;
    let dynamic = headers.iter().find(|header| header.kind == PT_DYNAMIC)?;
    let mut entries = vec![0; dynamic.size.min(DYNAMIC_MAX) as usize];
    let read = read_at(&mut entries, dynamic.offset).min(entries.len());
    let value = |tag: u64| {
        let mut entries = entries[..read].chunks_exact(16);
        entries.find(|entry| word(&entry[..8]) == tag).map(|entry| word(&entry[8..]))
    };
    let place = value(DT_STRTAB)?.checked_add(value(DT_NEEDED)?)?;
    let holds = |header: &&Header| {
        header.kind == PT_LOAD
            && place.checked_sub(header.address).is_some_and(|into| into < header.size)
    };
    let header = headers.iter().find(holds)?;
    let mut name = vec![0; NAME_MAX];
    let read = read_at(&mut name, header.offset.checked_add(place - header.address)?);
    name.truncate(name[..read.min(NAME_MAX)].iter().position(|&byte| byte == 0)?);
    Some(name)
}

/// Whether it is a library of GCC's or Clang's that wants nothing preloaded.
fn wants_none(library: &[u8]) -> bool {
    let all = ["libasan.so", "libtsan.so", "libclang_rt.asan", "libclang_rt.tsan"];
    all.iter().any(|name| library.starts_with(name.as_bytes()))
}

/// Whether it is the dynamic linker of the GNU C library, by its name.
fn is_gnu(linker: &[u8]) -> bool {
    let name = linker.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    name.starts_with(b"ld-linux")
}

/// Whether a thread of this machine can have two thread pointers in turn, without a system call (`FSGSBASE`, Linux 5.9): a
/// program that no library can be preloaded into has its own, and the library that is mapped beside it another one.
#[must_use]
pub fn can_be_accompanied() -> bool {
    const FSGSBASE: u64 = 1 << 1;
    // SAFETY: it takes a number.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & FSGSBASE != 0 }
}

/// Whether a program of this mode, owner and group runs with other rights than those of a process with this effective user and
/// group, so that the dynamic linker loads nothing into it.
#[must_use]
pub fn changes_ids(mode: u32, owner: (u32, u32), effective: (u32, u32)) -> bool {
    mode & 0o4000 != 0 && owner.0 != effective.0
        || mode & 0o2010 == 0o2010 && owner.1 != effective.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Kind {
        kind(|room, at| {
            let rest = bytes.get(at as usize..).unwrap_or_default();
            let size = rest.len().min(room.len());
            room[..size].copy_from_slice(&rest[..size]);
            size
        })
    }

    #[test]
    fn programs_are_told_apart() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(matches!(of(&own), Kind::Dynamic(_)));
        let mut other = own[..64].to_vec();
        other[4] = 1;
        assert_eq!(of(&other), Kind::Foreign);
        let mut other = own[..64].to_vec();
        other[18] = 183;
        assert_eq!(of(&other), Kind::Foreign);
        assert_eq!(of(&own[..64]), Kind::Alone(None));
        for (text, expected) in [
            (&b"#! /bin/sh -e\nexit\n"[..], Kind::Script(b"/bin/sh".into(), b"-e".into())),
            (b"#!/usr/bin/env python3", Kind::Script(b"/usr/bin/env".into(), b"python3".into())),
            (b"#!\n", Kind::Unknown),
            (b"exit", Kind::Unknown),
            (b"\x7fELF", Kind::Unknown),
            (b"", Kind::Unknown),
        ] {
            assert_eq!(of(text), expected);
        }
    }

    #[test]
    fn dynamic_linkers_are_told_apart() {
        let with = |path: &[u8]| {
            let mut all = std::fs::read(std::env::current_exe().unwrap()).unwrap();
            all.truncate(64);
            // One entry, behind the header; the path behind that.
            all[32..40].copy_from_slice(&64_u64.to_le_bytes());
            all[54..58].copy_from_slice(&[56, 0, 1, 0]);
            let mut entry = [0; 56];
            entry[0] = 3;
            entry[8..16].copy_from_slice(&120_u64.to_le_bytes());
            entry[32..40].copy_from_slice(&(path.len() as u64 + 1).to_le_bytes());
            all.extend(entry);
            all.extend(path);
            all.push(0);
            of(&all)
        };
        let gnu = b"/lib64/ld-linux-x86-64.so.2";
        assert_eq!(with(gnu), Kind::Dynamic(gnu.to_vec()));
        let musl = b"/lib/ld-musl-x86_64.so.1";
        assert_eq!(with(musl), Kind::Alone(Some(musl.to_vec())));
    }

    #[test]
    fn a_sanitizers_library_is_seen() {
        let with = |library: &[u8], strings: u64| {
            let mut all = vec![0; 0x400];
            all[..64]
                .copy_from_slice(&std::fs::read(std::env::current_exe().unwrap()).unwrap()[..64]);
            all[32..40].copy_from_slice(&64_u64.to_le_bytes());
            all[54..58].copy_from_slice(&[56, 0, 3, 0]);
            let linker = b"/lib64/ld-linux-x86-64.so.2\0";
            // Mapped elsewhere than it lies in the file.
            let headers =
                [(1, 0, 0x1000, 0x400), (2, 0x200, 0, 64), (3, 0x300, 0, linker.len() as u64)];
            for (at, (kind, offset, address, size)) in headers.into_iter().enumerate() {
                let at = 64 + at * 56;
                all[at] = kind;
                for (into, value) in [(8, offset), (16, address), (32, size)] {
                    all[at + into..at + into + 8].copy_from_slice(&u64::to_le_bytes(value));
                }
            }
            for (at, number) in [1, 7, 5, strings, 0, 0].into_iter().enumerate() {
                all[0x200 + at * 8..0x208 + at * 8].copy_from_slice(&u64::to_le_bytes(number));
            }
            all[0x300..0x300 + linker.len()].copy_from_slice(linker);
            all[0x387..0x387 + library.len()].copy_from_slice(library);
            of(&all)
        };
        for first in [&b"libasan.so.8"[..], b"libtsan.so.2", b"libclang_rt.asan-x86_64.so"] {
            assert!(matches!(with(first, 0x1380), Kind::Sanitized(_)));
            // What lies nowhere is not looked at.
            for strings in [0, 0x13fa, u64::MAX] {
                assert!(matches!(with(first, strings), Kind::Dynamic(_)));
            }
        }
        assert!(matches!(with(b"libc.so.6", 0x1380), Kind::Dynamic(_)));
    }

    #[test]
    fn ids_change_by_the_mode() {
        assert!(changes_ids(0o4755, (0, 0), (1, 1)) && !changes_ids(0o4755, (1, 0), (1, 1)));
        assert!(changes_ids(0o2755, (0, 0), (0, 1)) && !changes_ids(0o2745, (0, 0), (0, 1)));
        assert!(!changes_ids(0o755, (0, 0), (1, 1)));
    }
}
