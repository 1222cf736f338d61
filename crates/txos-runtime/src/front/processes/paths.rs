//! Where the paths of a call are looked up: what means the process itself is the kernel's, all else the server's.

use std::cell::LazyCell;

use txos_engine::object::FileKind;

use super::link::{Link, number_of_process};
use super::wire::{self, Part, Shape};
use crate::call::Call;
use crate::front::loader;
use crate::raw::{Errno, Sys};
use crate::tx::kernel;

/// Where the server looks a path up: the argument with the path, that with its directory, both as the server is to
/// see them.
pub struct Place {
    pub path_at: usize,
    pub dir_at: Option<usize>,
    pub dir: i32,
    pub path: Vec<u8>,
}

/// Where the server looks the paths of a call up. `None`: the call is the kernel's.
pub fn places(link: &Link, call: &Call, shape: &Shape) -> Sys<Option<Vec<Place>>> {
    let mut places = Vec::new();
    let mut kernels = Vec::new();
    let (mut natively, mut missing) = (0, None);
    let may_be_empty = match call.number() {
        libc::SYS_linkat => call.int(4) & libc::AT_EMPTY_PATH,
        _ => 0,
    };
    for &(path_at, part) in shape.parts {
        if part != Part::Path || call.word(path_at) == 0 {
            continue;
        }
        let dir_at = path_at.checked_sub(1).filter(|at| shape.descriptors.contains(at));
        let dir = dir_at.map_or(libc::AT_FDCWD, |at| call.int(at));
        let path = call.path(path_at)?;
        match look_up(link, call.number(), dir, path) {
            Some((dir, path)) => places.push(Place { path_at, dir_at, dir, path }),
            None => kernels.push(Place { path_at, dir_at, dir, path: call.path(path_at)? }),
        }
    }
    for mut place in kernels {
        // Of two paths the server has both, if it has one.
        if !places.is_empty()
            && let Some((dir, path)) = in_directory(place.dir, &place.path)
        {
            (place.dir, place.path) = (dir, path);
            places.push(place);
            continue;
        }
        natively += 1;
        missing = missing.or(kernel::statx(place.dir, &place.path, may_be_empty).err());
    }
    // Descriptors without a path.
    for &at in shape.descriptors {
        let has_path = shape.parts.iter().any(|&(path_at, part)| {
            part == Part::Path && path_at == at + 1 && call.word(path_at) != 0
        });
        if !has_path && call.int(at) != libc::AT_FDCWD && !link.is_ours(call.int(at)) {
            natively += 1;
        }
    }
    match (natively, places.is_empty()) {
        (0, _) => Ok(Some(places)),
        (_, true) => Ok(None),
        // One path leads to the transaction, another one elsewhere.
        _ => Err(missing.unwrap_or(Errno::XDEV)),
    }
}

/// Directory and path for the server; `None`: it is the kernel's.
pub fn look_up(link: &Link, number: i64, dir: i32, path: Vec<u8>) -> Option<(i32, Vec<u8>)> {
    if !path.starts_with(b"/") {
        if dir < 0 || link.is_ours(dir) {
            return Some((dir, path));
        }
        return below(dir, path);
    }
    let parts = parts_of(&path);
    if parts[..] == [b"dev", b"tty"] {
        return None;
    }
    let Some(rest) = in_own_directory(&parts) else { return Some((dir, path)) };
    let joined = |parts: &[&[u8]]| parts.join(&b'/');
    let of_number = || {
        let own = number_of_process().to_string();
        let place = [&b"proc"[..], own.as_bytes()];
        let all = [&place[..], &rest[..]].concat();
        (dir, [&b"/"[..], &joined(&all)].concat())
    };
    let is_ours = |name: &[u8]| {
        let text = std::str::from_utf8(name).ok()?;
        text.parse().ok().filter(|number| link.is_ours(*number))
    };
    // The server has the number, in the process's space.
    let by_server = |number: i32, rest: &[&[u8]]| {
        let mut path = format!("/proc/self/fd/{}", link.space + number).into_bytes();
        rest.iter().for_each(|part| path.extend([&b"/"[..], part].concat()));
        (dir, path)
    };
    if matches!(number, libc::SYS_chdir | libc::SYS_chroot) {
        return Some(match rest[..] {
            [b"fd", name, ref rest @ ..] if let Some(number) = is_ours(name) => {
                by_server(number, rest)
            }
            [b"cwd", ref rest @ ..] => (libc::AT_FDCWD, [&b"./"[..], &joined(rest)].concat()),
            [b"root", ref rest @ ..] if !rest.is_empty() => {
                (libc::AT_FDCWD, [&b"/"[..], &joined(rest)].concat())
            }
            _ => of_number(),
        });
    }
    match rest[..] {
        [b"fd", name] => is_ours(name).map(|number| by_server(number, &[])),
        [b"cwd", ref rest @ ..] if !rest.is_empty() => Some((libc::AT_FDCWD, joined(rest))),
        [b"root", ref rest @ ..] if !rest.is_empty() => {
            Some((dir, [&b"/"[..], &joined(rest)].concat()))
        }
        [b"fd", name, ref rest @ ..] => match is_ours(name) {
            Some(number) => Some((number, joined(rest))),
            None => below(std::str::from_utf8(name).ok()?.parse().ok()?, joined(rest)),
        },
        _ if rest.contains(&&b".."[..]) => Some(of_number()),
        _ if rest.len() > 2 && rest[0] == b"task" => Some(of_number()),
        _ => None,
    }
}

fn parts_of(path: &[u8]) -> Vec<&[u8]> {
    path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect()
}

/// A path's names in the process's own directory in `/proc`, if it leads there.
fn in_own_directory<'a>(parts: &[&'a [u8]]) -> Option<Vec<&'a [u8]>> {
    let own = LazyCell::new(|| number_of_process().to_string());
    let is_own = |name: &[u8]| name == b"self" || name == b"thread-self" || name == own.as_bytes();
    Some(match *parts {
        [b"dev", b"stdin"] => vec![&b"fd"[..], b"0"],
        [b"dev", b"stdout"] => vec![&b"fd"[..], b"1"],
        [b"dev", b"stderr"] => vec![&b"fd"[..], b"2"],
        [b"dev", b"fd", ref rest @ ..] => [&[&b"fd"[..]], rest].concat(),
        [b"proc", name, ref rest @ ..] if is_own(name) => rest.to_vec(),
        _ => return None,
    })
}

/// The number in the path that one of the process's descriptors has in `/proc`.
pub fn own_descriptor(path: &[u8]) -> Option<i32> {
    if !path.starts_with(b"/") || path.ends_with(b"/") {
        return None;
    }
    match in_own_directory(&parts_of(path))?[..] {
        [b"fd", number] => std::str::from_utf8(number).ok()?.parse().ok(),
        _ => None,
    }
}

/// A path for a call that looks up the program that the library has loaded, by the link in `/proc`: the kernel's link leads to the
/// library.
pub fn own_program(call: &Call) -> Option<Vec<u8>> {
    if !loader::memory::is_loaded() || !follows(call) {
        return None;
    }
    let shape = wire::shape_with(call.number(), call.words())?;
    let &(at, _) = shape.parts.iter().find(|(_, part)| *part == Part::Path)?;
    let dir_at = at.checked_sub(1).filter(|at| shape.descriptors.contains(at));
    let dir = dir_at.map_or(libc::AT_FDCWD, |at| call.int(at));
    let (number, _) = loader::program_at(dir, &call.path(at).ok()?)?;
    let mut path = kernel::magic_path(number);
    path.push(0);
    Some(path)
}

/// Whether a call follows a link that its path ends with.
fn follows(call: &Call) -> bool {
    let without = |flags: i32, flag: i32| flags & flag == 0;
    match call.number() {
        libc::SYS_stat
        | libc::SYS_access
        | libc::SYS_faccessat
        | libc::SYS_statfs
        | libc::SYS_getxattr => true,
        libc::SYS_statx => without(call.int(2), libc::AT_SYMLINK_NOFOLLOW),
        libc::SYS_newfstatat | libc::SYS_faccessat2 => {
            without(call.int(3), libc::AT_SYMLINK_NOFOLLOW)
        }
        libc::SYS_open => without(call.int(1), libc::O_NOFOLLOW),
        libc::SYS_openat => without(call.int(2), libc::O_NOFOLLOW),
        libc::SYS_openat2 => {
            without(call.pointer::<u64>(2).read().unwrap_or(0) as i32, libc::O_NOFOLLOW)
        }
        _ => false,
    }
}

/// A name below a directory that is open at a number of the kernel's, as a path from the root.
pub fn in_directory(dir: i32, path: &[u8]) -> Option<(i32, Vec<u8>)> {
    if dir < 0 || path.is_empty() || path.starts_with(b"/") {
        return None;
    }
    Some((libc::AT_FDCWD, [&directory_at(dir)?[..], b"/", path].concat()))
}

/// The path of a directory that is open at a number of the kernel's. Of what is none the kernel says so. (The transaction's own FIFO
/// lies among private copies.)
fn directory_at(number: i32) -> Option<Vec<u8>> {
    kernel::look_fd(number).ok().filter(|stat| stat.kind() == FileKind::Dir)?;
    kernel::path_of_fd(number).ok().filter(|path| path.starts_with(b"/"))
}

/// A path below a directory that is open at a number of the kernel's.
fn below(dir: i32, path: Vec<u8>) -> Option<(i32, Vec<u8>)> {
    let upwards = path.split(|&byte| byte == b'/').any(|part| part == b"..");
    let start = directory_at(dir)?;
    let kernels = [&b"/proc/"[..], b"/sys/", b"/dev/"].iter().any(|k| start.starts_with(k));
    if path.is_empty() || kernels && !upwards {
        return None;
    }
    Some((libc::AT_FDCWD, [&start[..], b"/", &path].concat()))
}
