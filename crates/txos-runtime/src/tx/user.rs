//! The program's memory: what the pointers among a call's arguments lead to.
//!
//! Pointers that can't be valid are answered with EFAULT; one that merely leads nowhere faults in
//! the program's own call, as it would in a library function.
#![allow(unsafe_code)]

use super::kernel::Sys;

const FIRST: u64 = 1 << 16;
const LAST: u64 = 0x7fff_ffff_f000;

fn plausible(at: u64, len: u64) -> Sys<()> {
    match at.checked_add(len) {
        Some(end) if at >= FIRST && end <= LAST => Ok(()),
        _ => Err(libc::EFAULT),
    }
}

/// A path argument.
///
/// # Errors
/// EFAULT, ENAMETOOLONG.
pub fn path<'a>(at: u64) -> Sys<&'a [u8]> {
    text(at, 4096, libc::ENAMETOOLONG)
}

/// A zero-terminated argument shorter than `limit`.
///
/// # Errors
/// EFAULT, or `too_long`.
pub fn text<'a>(at: u64, limit: usize, too_long: i32) -> Sys<&'a [u8]> {
    plausible(at, 1)?;
    // SAFETY: it is the program's string, which stays as it is for the duration of its own call.
    let len = unsafe { libc::strnlen(at as *const libc::c_char, limit) };
    if len >= limit {
        return Err(too_long);
    }
    // SAFETY: as above; these bytes were just read.
    Ok(unsafe { std::slice::from_raw_parts(at as *const u8, len) })
}

/// A buffer that the program wants written.
///
/// # Errors
/// EFAULT.
pub fn bytes<'a>(at: u64, len: u64) -> Sys<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    plausible(at, len)?;
    // SAFETY: the program's buffer of its own call.
    Ok(unsafe { std::slice::from_raw_parts(at as *const u8, len as usize) })
}

/// A buffer that the program wants filled.
///
/// # Errors
/// EFAULT.
pub fn bytes_mut<'a>(at: u64, len: u64) -> Sys<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    plausible(at, len)?;
    // SAFETY: the program's buffer of its own call, which nobody else uses meanwhile.
    Ok(unsafe { std::slice::from_raw_parts_mut(at as *mut u8, len as usize) })
}

/// Reads a plain structure.
///
/// # Errors
/// EFAULT.
pub fn get<T: Copy>(at: u64) -> Sys<T> {
    plausible(at, size_of::<T>() as u64)?;
    // SAFETY: the program's structure of its own call; `T` is plain data.
    Ok(unsafe { (at as *const T).read_unaligned() })
}

/// Writes a plain structure.
///
/// # Errors
/// EFAULT.
pub fn put<T: Copy>(at: u64, value: T) -> Sys<()> {
    plausible(at, size_of::<T>() as u64)?;
    // SAFETY: as above, for writing.
    unsafe { (at as *mut T).write_unaligned(value) };
    Ok(())
}

/// Copies bytes to the program.
///
/// # Errors
/// EFAULT.
pub fn copy_to(at: u64, bytes: &[u8]) -> Sys<()> {
    bytes_mut(at, bytes.len() as u64)?.copy_from_slice(bytes);
    Ok(())
}

/// The buffers of a vector call.
///
/// # Errors
/// EINVAL over 1,024 of them, EFAULT.
pub fn vectors(at: u64, count: u64) -> Sys<Vec<(u64, u64)>> {
    if count > 1024 {
        return Err(libc::EINVAL);
    }
    let mut out = Vec::with_capacity(count as usize);
    let mut total = 0u64;
    for i in 0..count {
        let [base, len]: [u64; 2] = get(at + i * 16)?;
        if (len as i64) < 0 {
            return Err(libc::EINVAL);
        }
        total = total.saturating_add(len);
        out.push((base, len));
    }
    if total > 0x7fff_f000 { Err(libc::EINVAL) } else { Ok(out) }
}
