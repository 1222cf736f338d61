//! The program's memory: what the pointers among a call's arguments lead to.
//!
//! The program and the runtime share one address space, and other threads of the program may write to
//! its memory at any moment. So the runtime never makes a reference to that memory: it copies in and out
//! through [`UserPtr`] and [`UserSlice`], or hands the address on to the kernel.
//!
//! # Safety
//!
//! Whoever makes one of these says that the program gave the address, for a use like this one, in a call
//! that it waits for. Everything after that is safe. Before each copy the runtime asks whether the memory
//! is there ([`reach`]): a pointer that leads nowhere is answered with EFAULT, as by the kernel.
#![allow(unsafe_code)] // the program's memory is reached by address

use std::marker::PhantomData;

use crate::raw::{Errno, Sys};
use crate::reach::{self, Access};

const PAGE: u64 = 4096;

/// Longest path that the kernel takes, with its zero.
const PATH_MAX: usize = 4096;

/// As much as one call moves: the kernel leaves out what is more.
pub const MOVED_MAX: u64 = 0x7fff_f000;

/// Data of which every pattern of bits is a value.
///
/// # Safety
/// The type has no reference, no `bool`, no `enum` and nothing else that forbids a pattern of bits.
pub unsafe trait Plain: Copy {}

// SAFETY: every pattern of bits is a number.
unsafe impl Plain for u8 {}
// SAFETY: every pattern of bits is a number.
unsafe impl Plain for i16 {}
// SAFETY: every pattern of bits is a number.
unsafe impl Plain for i32 {}
// SAFETY: every pattern of bits is a number.
unsafe impl Plain for u32 {}
// SAFETY: every pattern of bits is a number.
unsafe impl Plain for i64 {}
// SAFETY: every pattern of bits is a number.
unsafe impl Plain for u64 {}
// SAFETY: the kernel's structure has numbers only.
unsafe impl Plain for libc::timespec {}
// SAFETY: the kernel's structure has numbers only.
unsafe impl Plain for libc::timeval {}
// SAFETY: the kernel's structure has numbers only.
unsafe impl Plain for libc::flock {}
// SAFETY: the kernel's structure has numbers only.
unsafe impl Plain for libc::pollfd {}
// SAFETY: the kernel's structure has numbers only.
unsafe impl Plain for libc::epoll_event {}
// SAFETY: the kernel's structure has numbers only.
unsafe impl Plain for libc::stat {}
// SAFETY: the kernel's structure has numbers only.
unsafe impl Plain for libc::statx {}
// SAFETY: the kernel's structure has numbers only.
unsafe impl Plain for libc::statfs {}
// SAFETY: the kernel's structure has numbers and a raw pointer, which may be any.
unsafe impl Plain for libc::stack_t {}
// SAFETY: every item may have any pattern of bits.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Asks how much of the memory is there.
#[inline]
fn reach(at: u64, len: u64, access: Access) -> u64 {
    // SAFETY: this module asks for pieces of `UserPtr` and `UserSlice` only, which the program wants to
    // be overwritten where they are asked about for that.
    unsafe { reach::reach(at, len, access) }
}

/// The address of one thing in the program's memory.
#[derive(Debug)]
pub struct UserPtr<T> {
    at: u64,
    of: PhantomData<*mut T>,
}

impl<T> Clone for UserPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for UserPtr<T> {}

impl<T> UserPtr<T> {
    /// An address that the program gave.
    ///
    /// # Safety
    /// The program gave this address in a call that it waits for, as that of a `T` which the call reads or
    /// writes; it may lead nowhere. If the runtime itself made the call, the `T` lives until the answer,
    /// and nobody has a reference to it.
    #[inline]
    #[must_use]
    pub const unsafe fn new(at: u64) -> Self {
        UserPtr { at, of: PhantomData }
    }

    /// The address.
    #[inline]
    #[must_use]
    pub const fn address(self) -> u64 {
        self.at
    }

    /// Whether the program gave none.
    #[inline]
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.at == 0
    }

    /// The item of an array that begins here.
    #[inline]
    #[must_use]
    pub const fn item(self, index: u64) -> Self {
        let at = self.at.wrapping_add(index.wrapping_mul(size_of::<T>() as u64));
        UserPtr { at, of: PhantomData }
    }

    /// A part of it, by its distance from the beginning.
    ///
    /// # Panics
    /// The part would not lie within.
    #[inline]
    #[must_use]
    pub const fn part<U>(self, offset: usize) -> UserPtr<U> {
        assert!(offset + size_of::<U>() <= size_of::<T>());
        UserPtr { at: self.at.wrapping_add(offset as u64), of: PhantomData }
    }
}

impl<T: Plain> UserPtr<T> {
    /// Copies it from the program.
    ///
    /// # Errors
    /// EFAULT.
    #[inline]
    pub fn read(self) -> Sys<T> {
        let size = size_of::<T>() as u64;
        if reach(self.at, size, Access::Read) != size {
            return Err(Errno::FAULT);
        }
        // SAFETY: the bytes are there, and any bytes are a `T`.
        Ok(unsafe { (self.at as *const T).read_unaligned() })
    }

    /// Copies a value to the program.
    ///
    /// # Errors
    /// EFAULT.
    #[inline]
    pub fn write(self, value: T) -> Sys<()> {
        let size = size_of::<T>() as u64;
        if reach(self.at, size, Access::Overwrite) != size {
            return Err(Errno::FAULT);
        }
        // SAFETY: the room is there, and the program gave it for that.
        unsafe { (self.at as *mut T).write_unaligned(value) };
        Ok(())
    }
}

impl UserPtr<u8> {
    /// Copies a path.
    ///
    /// # Errors
    /// EFAULT, ENAMETOOLONG.
    #[inline]
    pub fn path(self) -> Sys<Vec<u8>> {
        self.text(PATH_MAX, Errno::NAMETOOLONG)
    }

    /// Copies a path that the kernel has just read.
    ///
    /// # Errors
    /// ENAMETOOLONG.
    ///
    /// # Safety
    /// The kernel has just read the path here, up to its zero or as many bytes as a path may have.
    pub unsafe fn known_path(self) -> Sys<Vec<u8>> {
        // SAFETY: the caller says that the kernel has read these bytes.
        let len = unsafe { libc::strnlen(self.at as *const libc::c_char, PATH_MAX) };
        if len >= PATH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        Ok(self.text_there(len))
    }

    /// Copies a text that ends with a zero and is shorter than `limit`.
    ///
    /// # Errors
    /// EFAULT, or `too_long`.
    pub fn text(self, limit: usize, too_long: Errno) -> Sys<Vec<u8>> {
        let mut len = 0;
        while len < limit {
            let from = self.at.wrapping_add(len as u64);
            let here = (PAGE - from % PAGE).min((limit - len) as u64);
            if reach(from, here, Access::Read) != here {
                return Err(Errno::FAULT);
            }
            // SAFETY: these bytes are there.
            let found = unsafe { libc::strnlen(from as *const libc::c_char, here as usize) };
            len += found;
            if (found as u64) < here {
                return Ok(self.text_there(len));
            }
        }
        Err(too_long)
    }

    /// Copies a text whose bytes are there. Another thread may change them meanwhile: the copy ends where
    /// it has a zero.
    #[inline]
    fn text_there(self, len: usize) -> Vec<u8> {
        let mut copy = Readable(UserSlice { at: self.at, len: len as u64 }).to_vec();
        // SAFETY: the copy has so many bytes.
        let found = unsafe { libc::strnlen(copy.as_ptr().cast(), len) };
        copy.truncate(found);
        copy
    }
}

impl UserPtr<[u64; 2]> {
    /// The buffer of a structure that has its address and a word, in which `len` finds its length; and the
    /// word.
    ///
    /// # Errors
    /// EFAULT.
    pub fn buffer(self, len: impl FnOnce(u64) -> u64) -> Sys<(UserSlice, u64)> {
        let [at, word] = self.read()?;
        Ok((UserSlice { at, len: len(word) }, word))
    }

    /// The buffers of a vector call.
    ///
    /// # Errors
    /// EINVAL over 1,024 of them, or for a negative length; EFAULT.
    pub fn buffers(self, count: u64) -> Sys<Vec<UserSlice>> {
        if count > 1024 {
            return Err(Errno::INVAL);
        }
        let mut out = Vec::with_capacity(count as usize);
        let mut left = MOVED_MAX;
        for index in 0..count {
            let [at, len] = self.item(index).read()?;
            if (len as i64) < 0 {
                return Err(Errno::INVAL);
            }
            let len = len.min(left);
            left -= len;
            out.push(UserSlice { at, len });
        }
        Ok(out)
    }
}

/// How many bytes buffers have together.
#[must_use]
pub fn length_of(buffers: &[UserSlice]) -> u64 {
    buffers.iter().map(|buffer| buffer.len()).fold(0, u64::saturating_add)
}

/// A buffer in the program's memory.
#[derive(Clone, Copy, Debug)]
pub struct UserSlice {
    at: u64,
    len: u64,
}

impl UserSlice {
    /// A buffer that the program gave.
    ///
    /// # Safety
    /// As [`UserPtr::new`], for `len` bytes.
    #[inline]
    #[must_use]
    pub const unsafe fn new(at: u64, len: u64) -> Self {
        UserSlice { at, len }
    }

    /// Its address.
    #[inline]
    #[must_use]
    pub const fn address(self) -> u64 {
        self.at
    }

    /// Its length as the program gave it.
    #[inline]
    #[must_use]
    pub const fn len(self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Its beginning: at most so many bytes.
    #[inline]
    #[must_use]
    pub const fn first(self, most: u64) -> Self {
        UserSlice { at: self.at, len: if self.len < most { self.len } else { most } }
    }

    /// Its end, without the first bytes.
    #[inline]
    #[must_use]
    pub const fn after(self, bytes: u64) -> Self {
        UserSlice { at: self.at.wrapping_add(bytes), len: self.len.saturating_sub(bytes) }
    }

    /// Whether a program can have memory there, by the address.
    #[inline]
    #[must_use]
    pub fn is_possible(self) -> bool {
        self.at.checked_add(self.len).is_some_and(|end| end <= reach::END)
    }

    /// What of it can be read: at least its first byte.
    ///
    /// # Errors
    /// EFAULT if not even that is there.
    #[inline]
    pub fn readable(self) -> Sys<Readable> {
        match reach(self.at, self.len, Access::Read) {
            0 if self.len > 0 => Err(Errno::FAULT),
            there => Ok(Readable(self.first(there))),
        }
    }

    /// What of it can be overwritten, all of which is: at least its first byte.
    ///
    /// # Errors
    /// EFAULT if not even that is there.
    #[inline]
    pub fn writable(self) -> Sys<Writable> {
        match reach(self.at, self.len, Access::Overwrite) {
            0 if self.len > 0 => Err(Errno::FAULT),
            there => Ok(Writable(self.first(there))),
        }
    }

    /// How many of its bytes can be overwritten, all of which are.
    #[must_use]
    pub fn room(self) -> u64 {
        reach(self.at, self.len, Access::Overwrite)
    }

    /// Copies all of it from the program.
    ///
    /// # Errors
    /// EFAULT.
    #[inline]
    pub fn read(self) -> Sys<Vec<u8>> {
        if reach(self.at, self.len, Access::Read) == self.len {
            Ok(Readable(self).to_vec())
        } else {
            Err(Errno::FAULT)
        }
    }

    /// Whether all of it is zeroes.
    ///
    /// # Errors
    /// EFAULT.
    pub fn is_zero(self) -> Sys<bool> {
        if reach(self.at, self.len, Access::Read) != self.len {
            return Err(Errno::FAULT);
        }
        let bytes = Readable(self);
        let (words, len) = (bytes.len() / 8, bytes.len());
        Ok((0..words).all(|word| bytes.array::<8>(word * 8) == [0; 8])
            && (words * 8..len).all(|at| bytes.array::<1>(at) == [0]))
    }

    /// Copies bytes to its beginning.
    ///
    /// # Errors
    /// EFAULT, also for more bytes than it has.
    #[inline]
    pub fn write(self, bytes: &[u8]) -> Sys<()> {
        let len = bytes.len() as u64;
        if len > self.len || reach(self.at, len, Access::Overwrite) != len {
            return Err(Errno::FAULT);
        }
        Writable(self).write(0, bytes);
        Ok(())
    }

    /// A buffer that the kernel has just read or written.
    ///
    /// # Safety
    /// The kernel has just read or written all of it.
    #[inline]
    #[must_use]
    pub unsafe fn known(self) -> Readable {
        Readable(self)
    }
}

/// A buffer of the program's that is there to be read.
#[derive(Clone, Copy, Debug)]
pub struct Readable(UserSlice);

impl Readable {
    /// How many bytes it has.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len as usize
    }

    /// Whether it has none.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.len == 0
    }

    /// Copies bytes that begin at `from`.
    ///
    /// # Panics
    /// It has not so many bytes.
    #[inline]
    pub fn copy(self, from: usize, to: &mut [u8]) {
        assert!(from.checked_add(to.len()).is_some_and(|end| end <= self.len()));
        let at = (self.0.at as *const u8).wrapping_add(from);
        // SAFETY: these bytes are there. Those of `to` are the runtime's, and no buffer of the program's.
        unsafe { std::ptr::copy(at, to.as_mut_ptr(), to.len()) };
    }

    /// Copies some bytes that begin at `from`.
    ///
    /// # Panics
    /// It has not so many bytes.
    #[inline]
    #[must_use]
    pub fn array<const N: usize>(self, from: usize) -> [u8; N] {
        assert!(from.checked_add(N).is_some_and(|end| end <= self.len()));
        let at = (self.0.at as *const [u8; N]).wrapping_byte_add(from);
        // SAFETY: these bytes are there.
        unsafe { at.read_unaligned() }
    }

    /// Copies all of it.
    #[inline]
    #[must_use]
    pub fn to_vec(self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.len());
        // SAFETY: the bytes are there, the new memory has room for them, and is full afterwards.
        unsafe {
            std::ptr::copy(self.0.at as *const u8, copy.as_mut_ptr(), self.len());
            copy.set_len(self.len());
        }
        copy
    }
}

/// A buffer of the program's that is there to be overwritten.
#[derive(Clone, Copy, Debug)]
pub struct Writable(UserSlice);

impl Writable {
    /// How many bytes it has.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len as usize
    }

    /// Whether it has none.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.len == 0
    }

    /// Its beginning: at most so many bytes.
    #[inline]
    #[must_use]
    pub fn first(self, most: usize) -> Self {
        Writable(self.0.first(most as u64))
    }

    /// The buffer, for the kernel to write to.
    #[inline]
    #[must_use]
    pub fn slice(self) -> UserSlice {
        self.0
    }

    /// Copies bytes to the place `at`.
    ///
    /// # Panics
    /// It has not so many bytes.
    #[inline]
    pub fn write(self, at: usize, bytes: &[u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.len()));
        let to = (self.0.at as *mut u8).wrapping_add(at);
        // SAFETY: there is room, and the runtime's own memory is no buffer of the program's.
        unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Fills all of it with zeroes.
    #[inline]
    pub fn clear(self) {
        // SAFETY: there is room.
        unsafe { std::ptr::write_bytes(self.0.at as *mut u8, 0, self.len()) };
    }
}

#[cfg(test)]
mod tests;
