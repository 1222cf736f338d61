//! `realpath(3)`: the C library's own looks at each directory on the way by a system call that nobody can
//! interpose, and compilers ask for the path of every header.
//!
//! What is rare (a path that is too long, a circle of links, a working directory that has no path) is left to
//! the C library's function, which then answers as ever.
//!
//! # Safety
//!
//! What the program passes is as `realpath` wants it: a string, and null or room for `PATH_MAX` bytes.
#![allow(unsafe_code)]

use core::ffi::c_char;

use crate::c;
use crate::gate::reported;

/// The longest path that is resolved here, and the longest content of a link, bytes. Threads may have little
/// stack.
const SIZE: usize = 1024;

/// `MAXSYMLINKS` of the C library.
const LINKS_MAX: u32 = 40;

/// How the looks are made: each gives the kernel's answer.
pub struct Looks {
    /// `readlink`: the path, room, and its size.
    pub readlink: unsafe fn(*const c_char, *mut u8, usize) -> i64,
    /// `faccessat2` with `F_OK` and `AT_EACCESS`: the path.
    pub exists: unsafe fn(*const c_char) -> i64,
}

/// Bytes with a length.
struct Text {
    bytes: [u8; SIZE],
    len: usize,
}

impl Text {
    const fn new() -> Text {
        Text { bytes: [0; SIZE], len: 0 }
    }

    /// Adds bytes, and keeps room for a final null byte.
    fn push(&mut self, more: &[u8]) -> Option<()> {
        let room = self.bytes.get_mut(self.len..SIZE - 1)?;
        room.get_mut(..more.len())?.copy_from_slice(more);
        self.len += more.len();
        Some(())
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The bytes with a null byte behind them.
    fn path(&mut self) -> *const c_char {
        if let Some(end) = self.bytes.get_mut(self.len) {
            *end = 0;
        }
        self.bytes.as_ptr().cast()
    }

    /// Takes the last component of an absolute path away.
    fn ascend(&mut self) {
        let slash = self.get().iter().rposition(|&byte| byte == b'/');
        self.len = slash.unwrap_or(0).max(1);
    }
}

/// What a path comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It leads to something.
    Found,
    /// It doesn't, for this reason (positive). What was resolved ends with what can't be looked at.
    Failed(i32),
}

/// Resolves a path, to one without links, `.` and `..`. `None`: the C library is asked.
///
/// # Safety
/// `name` is a string.
pub unsafe fn resolve(name: *const c_char, looks: &Looks, to: &mut Resolved) -> Option<Outcome> {
    let mut rest = Text::new();
    let mut at = name.cast::<u8>();
    loop {
        // SAFETY: no byte before it was the last.
        let byte = unsafe { at.read() };
        if byte == 0 {
            break;
        }
        rest.push(&[byte])?;
        at = at.wrapping_add(1);
    }
    let done = &mut to.0;
    match rest.get().first() {
        None => return None,
        Some(b'/') => done.push(b"/")?,
        Some(_) => working_directory(done)?,
    }
    let mut links = 0;
    let mut from = 0;
    loop {
        let (start, end) = component(rest.get(), from);
        let part = rest.get().get(start..end)?;
        from = end;
        match part {
            b"" => break,
            b"." => continue,
            b".." => {
                done.ascend();
                continue;
            }
            _ => {}
        }
        let before = done.len;
        if done.get() != b"/" {
            done.push(b"/")?;
        }
        done.push(part)?;
        let mut link = Text::new();
        // SAFETY: a string, and room for so much.
        let answer = unsafe { (looks.readlink)(done.path(), link.bytes.as_mut_ptr(), SIZE) };
        let Ok(len) = usize::try_from(answer) else {
            let answer = match needs_directory(rest.get().get(end..)?) {
                true => search(done, looks)?,
                false if answer == -i64::from(c::EINVAL) => 0,
                false => answer,
            };
            match i32::try_from(-answer).ok()? {
                0 => continue,
                errno @ (c::ENOENT | c::ENOTDIR | c::EACCES) => {
                    return Some(Outcome::Failed(errno));
                }
                _ => return None,
            }
        };
        links += 1;
        if len == 0 || len >= SIZE - 1 || links > LINKS_MAX {
            return None;
        }
        link.len = len;
        let absolute = link.get().starts_with(b"/");
        link.push(rest.get().get(end..)?)?;
        (rest, from) = (link, 0);
        done.len = if absolute { 1 } else { before };
    }
    Some(Outcome::Found)
}

/// A path that was resolved, as far as it could be.
pub struct Resolved(Text);

impl Resolved {
    /// None yet.
    pub const fn new() -> Resolved {
        Resolved(Text::new())
    }

    /// The bytes, and how many there are with the null byte at the end.
    pub fn bytes(&mut self) -> (*const c_char, usize) {
        (self.0.path(), self.0.len + 1)
    }
}

/// Where the next component begins and ends.
fn component(rest: &[u8], from: usize) -> (usize, usize) {
    let is_slash = |at: usize| rest.get(at) == Some(&b'/');
    let mut start = from;
    while is_slash(start) {
        start += 1;
    }
    let mut end = start;
    while end < rest.len() && !is_slash(end) {
        end += 1;
    }
    (start, end)
}

/// Whether what is followed by `rest` must be a directory, although no component of `rest` is looked up in it:
/// a slash, `.` or `..` follows.
fn needs_directory(rest: &[u8]) -> bool {
    let mut from = 0;
    loop {
        let (start, end) = component(rest, from);
        match rest.get(start..end) {
            // Nothing but slashes, or nothing at all.
            Some(b"") | None => return !rest.is_empty(),
            Some(b".") => from = end,
            Some(b"..") => return true,
            Some(_) => return false,
        }
    }
}

/// Asks whether there is a directory, which the caller may search: the kernel's answer. `None`: its path is too
/// long.
fn search(path: &mut Text, looks: &Looks) -> Option<i64> {
    let len = path.len;
    path.push(b"/./")?;
    // SAFETY: a string.
    let answer = unsafe { (looks.exists)(path.path()) };
    path.len = len;
    Some(answer)
}

/// The path of the working directory, if it has one.
fn working_directory(to: &mut Text) -> Option<()> {
    let args = [to.bytes.as_mut_ptr() as u64, (SIZE - 1) as u64, 0, 0, 0, 0];
    // SAFETY: there is room for so much.
    let len = unsafe { reported(c::SYS_getcwd, args) };
    // With the null byte.
    to.len = usize::try_from(len).ok()?.checked_sub(1)?;
    to.get().starts_with(b"/").then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_be_a_directory() {
        for (rest, needs) in [
            ("", false),
            ("/", true),
            ("//", true),
            ("/.", true),
            ("/./", true),
            ("/..", true),
            ("/../x", true),
            ("/./..", true),
            ("/./x", false),
            ("/x", false),
            ("/x/..", false),
            ("/.x", false),
            ("/..x", false),
            ("/...", false),
        ] {
            assert_eq!(needs_directory(rest.as_bytes()), needs, "{rest:?}");
        }
    }

    unsafe fn readlink(path: *const c_char, to: *mut u8, size: usize) -> i64 {
        let args = [path as u64, to as u64, size as u64, 0, 0, 0];
        // SAFETY: a string, and room for so much.
        unsafe { reported(c::SYS_readlink, args) }
    }

    unsafe fn exists(path: *const c_char) -> i64 {
        let here = c::AT_FDCWD as u64;
        // SAFETY: a string.
        unsafe { reported(c::SYS_faccessat2, [here, path as u64, 0, c::AT_EACCESS as u64, 0, 0]) }
    }

    /// On random paths, it answers what the C library answers, or leaves it to the C library.
    #[test]
    fn it_is_the_c_librarys() {
        use std::ffi::{CStr, CString};
        use std::os::unix::ffi::OsStrExt;
        let dir = std::env::temp_dir().join(format!("txos-realpath-{}", std::process::id()));
        let dir = dir.as_path();
        std::fs::create_dir_all(dir.join("a/b/c")).unwrap();
        std::fs::write(dir.join("a/file"), "").unwrap();
        for (to, link) in [
            ("a", "to_a"),
            ("../a/b", "a/b/up"),
            ("file", "a/to_file"),
            ("nowhere", "a/dangling"),
            ("loop", "loop"),
            ("..", "a/parent"),
            (".", "a/b/here"),
            ("a/./b/../b//c/", "long"),
        ] {
            std::os::unix::fs::symlink(to, dir.join(link)).unwrap();
        }
        std::os::unix::fs::symlink(dir.join("a/b"), dir.join("absolute")).unwrap();
        let parts = [
            "a", "b", "c", "file", "to_a", "up", "to_file", "dangling", "loop", "parent", "here",
            "long", "absolute", ".", "..", "", "none",
        ];
        let looks = Looks { readlink, exists };
        let mut state = 2009_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        let mut both = [0; 3];
        for _ in 0..20_000 {
            let mut path = dir.as_os_str().as_bytes().to_vec();
            for _ in 0..=random(6) {
                path.push(b'/');
                path.extend(parts[random(parts.len())].as_bytes());
            }
            if random(4) == 0 {
                path.push(b'/');
            }
            let path = CString::new(path).unwrap();
            let mut room = [0; libc::PATH_MAX as usize];
            // SAFETY: a string, and room.
            let theirs = unsafe {
                let found = !libc::realpath(path.as_ptr(), room.as_mut_ptr()).is_null();
                let errno = std::io::Error::last_os_error().raw_os_error().unwrap();
                let outcome = if found { Outcome::Found } else { Outcome::Failed(errno) };
                (outcome, CStr::from_ptr(room.as_ptr()))
            };
            let mut to = Resolved::new();
            // SAFETY: a string.
            let ours = unsafe { resolve(path.as_ptr(), &looks, &mut to) };
            let Some(ours) = ours else {
                assert_eq!(theirs.0, Outcome::Failed(libc::ELOOP), "{path:?}");
                both[2] += 1;
                continue;
            };
            let (text, len) = to.bytes();
            // SAFETY: it ends with a null byte.
            let text = unsafe { CStr::from_ptr(text) };
            assert_eq!(text.count_bytes() + 1, len);
            let has_text = ours != Outcome::Failed(libc::ENOTDIR);
            both[usize::from(ours == Outcome::Found)] += 1;
            let text = if has_text { text } else { theirs.1 };
            assert_eq!((ours, text), theirs, "{path:?}");
        }
        assert!(both.iter().all(|&count| count > 1000), "{both:?}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
