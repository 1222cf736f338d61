//! The program's memory: what the pointers among a call's arguments lead to.
//!
//! Whatever is read or written here was found to be there before ([`reach`](crate::reach)): a pointer that
//! leads nowhere is answered with EFAULT, as by the kernel.
#![allow(unsafe_code)]

use super::kernel::Sys;
use crate::reach::{Access, reach};

const PAGE: u64 = 4096;

/// Longest path that the kernel takes, with its zero.
const PATH_MAX: usize = 4096;

fn all(at: u64, len: u64, access: Access) -> Sys<()> {
    if reach(at, len, access) == len { Ok(()) } else { Err(libc::EFAULT) }
}

/// Whether memory can be a program's, by its address.
pub fn is_possible(at: u64, len: u64) -> bool {
    at.checked_add(len).is_some_and(|end| end <= crate::reach::END)
}

/// A path argument.
///
/// # Errors
/// EFAULT, ENAMETOOLONG.
pub fn path<'a>(at: u64) -> Sys<&'a [u8]> {
    text(at, PATH_MAX, libc::ENAMETOOLONG)
}

/// A path argument that the kernel has just read.
///
/// # Errors
/// ENAMETOOLONG.
pub fn known_path<'a>(at: u64) -> Sys<&'a [u8]> {
    // SAFETY: the kernel has read it, up to its end or as far as is looked at here.
    let len = unsafe { libc::strnlen(at as *const libc::c_char, PATH_MAX) };
    if len >= PATH_MAX {
        return Err(libc::ENAMETOOLONG);
    }
    // SAFETY: as above.
    Ok(unsafe { std::slice::from_raw_parts(at as *const u8, len) })
}

/// A zero-terminated argument shorter than `limit`.
///
/// # Errors
/// EFAULT, or `too_long`.
pub fn text<'a>(at: u64, limit: usize, too_long: i32) -> Sys<&'a [u8]> {
    let mut len = 0;
    while len < limit {
        let from = at.wrapping_add(len as u64);
        let here = (PAGE - from % PAGE).min((limit - len) as u64);
        all(from, here, Access::Read)?;
        // SAFETY: these bytes are there. It is the program's string, which stays as it is for the
        // duration of its own call.
        let found = unsafe { libc::strnlen(from as *const libc::c_char, here as usize) };
        len += found;
        if (found as u64) < here {
            // SAFETY: as above; these bytes were just read.
            return Ok(unsafe { std::slice::from_raw_parts(at as *const u8, len) });
        }
    }
    Err(too_long)
}

/// A buffer that the program wants written.
///
/// # Errors
/// EFAULT.
pub fn bytes<'a>(at: u64, len: u64) -> Sys<&'a [u8]> {
    all(at, len, Access::Read)?;
    Ok(known(at, len))
}

/// What there is of a buffer that the program wants written: at least its first byte.
///
/// # Errors
/// EFAULT if not even that is there.
pub fn bytes_there<'a>(at: u64, len: u64) -> Sys<&'a [u8]> {
    match reach(at, len, Access::Read) {
        0 if len > 0 => Err(libc::EFAULT),
        there => Ok(known(at, there)),
    }
}

/// Bytes that are known to be there: the kernel has just read or written them.
pub fn known<'a>(at: u64, len: u64) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the program's buffer of its own call, which is there.
    unsafe { std::slice::from_raw_parts(at as *const u8, len as usize) }
}

/// What there is of a buffer that is filled, all of it: at least its first byte.
///
/// # Errors
/// EFAULT if not even that is there.
pub fn room<'a>(at: u64, len: u64) -> Sys<&'a mut [u8]> {
    let there = reach(at, len, Access::Overwrite);
    match there {
        0 if len > 0 => return Err(libc::EFAULT),
        0 => return Ok(&mut []),
        _ => {}
    }
    // SAFETY: the program's buffer of its own call, which nobody else uses meanwhile.
    Ok(unsafe { std::slice::from_raw_parts_mut(at as *mut u8, there as usize) })
}

/// How many bytes of a buffer can be filled.
pub fn room_for(at: u64, len: u64) -> u64 {
    reach(at, len, Access::Overwrite)
}

/// Reads a plain structure.
///
/// # Errors
/// EFAULT.
pub fn get<T: Copy>(at: u64) -> Sys<T> {
    crate::reach::get(at).ok_or(libc::EFAULT)
}

/// Writes a plain structure.
///
/// # Errors
/// EFAULT.
pub fn put<T: Copy>(at: u64, value: T) -> Sys<()> {
    crate::reach::put(at, value).ok_or(libc::EFAULT)
}

/// Copies bytes to the program.
///
/// # Errors
/// EFAULT.
pub fn copy_to(at: u64, bytes: &[u8]) -> Sys<()> {
    let len = bytes.len() as u64;
    all(at, len, Access::Overwrite)?;
    // SAFETY: there is room; the runtime's own memory is no buffer of the program's.
    unsafe { std::ptr::copy(bytes.as_ptr(), at as *mut u8, bytes.len()) };
    Ok(())
}

/// The buffers of a vector call.
///
/// # Errors
/// EINVAL over 1,024 of them, EFAULT.
pub fn vectors(at: u64, count: u64) -> Sys<Vec<(u64, u64)>> {
    /// As much as one call moves; what is more is left out.
    const MOST: u64 = 0x7fff_f000;
    if count > 1024 {
        return Err(libc::EINVAL);
    }
    let mut out = Vec::with_capacity(count as usize);
    let mut total = 0u64;
    for i in 0..count {
        let [base, len]: [u64; 2] = get(at.wrapping_add(i * 16))?;
        if (len as i64) < 0 {
            return Err(libc::EINVAL);
        }
        let len = len.min(MOST - total);
        total += len;
        out.push((base, len));
    }
    Ok(out)
}
