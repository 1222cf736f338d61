//! Small stable files that processes open and read by themselves.
//!
//! A build opens the same headers, and every program the same files of its language, again and again. When such a file is opened that was read
//! before, the server puts its content, an *image*, behind the table of answers ([`super::answers`]). From then on
//! the table's answer to who opens it is where the image is, and no message is sent: the number has a placeholder, as all numbers of the transaction
//! have, and offset and content are the process's own.
//!
//! - An image counts as long as the mark of its file has not moved: whoever opens the file to write moves it before anything is written.
//! - What needs more than reading, seeking, mapping and closing is the server's: it opens the file for the number then, with its
//!   offset ([`Link::hand_over`]). So it does before anything has the number as well: a child, another program, a second number.
//! - The read set has had the content since it was read: an image is made of nothing else.
#![allow(unsafe_code)] // the images, the program's memory

use std::collections::BTreeMap;

use super::answers::{PAGE, Table};
use super::link::{Link, Process};
use super::wire::{self, Ask, Part, Request};
use crate::call::Call;
use crate::raw::{self, Errno, Sys};
use crate::tx::kernel;
use crate::tx::trace::Marks;

/// The largest file that gets an image, in bytes.
pub const LARGEST: u64 = 64 << 10;
/// How many numbers of a process may stand for images: the server has to open all of them at once for a child.
const MOST: usize = 32;
/// Without so many descriptors the server makes no images.
pub const LEAST_DESCRIPTORS: i32 = 1024;
/// With more than these flags a file is opened by the server.
const FLAGS: i32 = libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_LARGEFILE | libc::O_NOFOLLOW;

/// What a process has of one at a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// The server's number for the file.
    pub object: u32,
    /// Where it begins behind the table, in bytes.
    pub place: u64,
    /// The size of the file, in bytes.
    pub size: u64,
    /// It is of that moment ([`super::answers`]).
    pub moment: u64,
}

impl Image {
    /// As an answer's data.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let words = [self.object.into(), self.place, self.size, self.moment];
        words.into_iter().flat_map(u64::to_ne_bytes).collect()
    }

    fn of(bytes: &[u8]) -> Option<Image> {
        let [object, place, size, moment] = *bytes.as_chunks::<8>().0 else { return None };
        let word = u64::from_ne_bytes;
        let object = u32::try_from(word(object)).ok()?;
        Some(Image { object, place: word(place), size: word(size), moment: word(moment) })
    }

    /// The marks on which it rests.
    #[must_use]
    pub fn marks(&self) -> Marks {
        let mut marks = Marks::default();
        marks.insert(self.object as usize);
        marks
    }

    fn holds(&self, table: Table) -> bool {
        table.holds(self.marks().told().unwrap_or_default(), self.moment)
    }
}

/// Whether a file that is opened with these flags may be read from an image.
#[must_use]
pub fn may_open(flags: i32) -> bool {
    flags & !FLAGS == 0
}

/// Numbers that stand for images.
#[derive(Debug, Default)]
pub struct Imaged {
    /// With the flags that it was opened with, and the offset.
    numbers: BTreeMap<i32, (Image, i32, u64)>,
}

/// Opens a file, by the data of the table's answer. `None`: that is the server's.
pub fn open(process: &Process, flags: i32, data: &[u8]) -> Option<Sys<u64>> {
    let image = Image::of(data)?;
    let mut link = process.link();
    // Another thread may have given up the owner's identity since the table was looked at.
    let holds = link.answers.is_some_and(|table| image.holds(table));
    let has_room = link.imaged.numbers.len() < MOST;
    if !(holds && has_room && link.is_unlocked()) || link.began.is_some() {
        return None;
    }
    let number = match link.reserve(0, flags & libc::O_CLOEXEC != 0) {
        Ok(number) => number,
        Err(errno) => return Some(Err(errno)),
    };
    link.numbers.insert(number);
    link.objects.insert(number, image.object);
    link.imaged.numbers.insert(number, (image, flags & !libc::O_CLOEXEC, 0));
    Some(Ok(number as u64))
}

/// Makes a call on an image. `None`: it is about none, or the server is to be asked.
pub fn make(process: &Process, call: &Call) -> Option<Sys<u64>> {
    let number = match call.number() {
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_lseek => call.int(0),
        libc::SYS_mmap => call.int(4),
        _ => return None,
    };
    let mut link = process.link();
    let (image, _, offset) = *link.imaged.numbers.get(&number)?;
    let table = link.answers.filter(|&table| image.holds(table))?;
    let size = image.size;
    let answer = match call.number() {
        libc::SYS_mmap => return map(table, call, image),
        libc::SYS_lseek => {
            let by = call.long(1);
            let from = match call.int(2) {
                libc::SEEK_SET => 0,
                libc::SEEK_CUR => offset.cast_signed(),
                libc::SEEK_END => size.cast_signed(),
                _ => return None,
            };
            // Beyond what any file may have, the kernel has a word to say.
            let to = from.checked_add(by).filter(|to| (0..1 << 40).contains(to))?;
            link.move_to(number, to.cast_unsigned());
            to.cast_unsigned()
        }
        place => {
            let has_place = place == libc::SYS_pread64;
            let from = if has_place { u64::try_from(call.long(3)).ok()? } else { offset };
            let mut count = call.word(2).min(size.saturating_sub(from));
            if count > 0 {
                let to = match call.buffer(1, count).writable() {
                    Ok(to) => to,
                    Err(errno) => return Some(Err(errno)),
                };
                count = count.min(to.len() as u64);
                to.write(0, &table.image(image.place + from, count as usize)?);
            }
            if !has_place {
                link.move_to(number, from + count);
            }
            count
        }
    };
    Some(Ok(answer))
}

/// A private mapping of pages that the file has: memory of the process's own, with a copy of them. A mapping of the table's file could be
/// made longer afterwards (`mremap(2)`), and show other files.
fn map(table: Table, call: &Call, image: Image) -> Option<Sys<u64>> {
    const HOW: i32 = libc::MAP_PRIVATE
        | libc::MAP_FIXED
        | libc::MAP_FIXED_NOREPLACE
        | libc::MAP_POPULATE
        | libc::MAP_NORESERVE
        | libc::MAP_DENYWRITE;
    let (size, prot, how, from) = (call.word(1), call.int(2), call.int(3), call.word(5));
    let to_read = libc::PROT_READ;
    let is_private = how & libc::MAP_TYPE == libc::MAP_PRIVATE && how & !HOW == 0;
    let is_plain = prot & to_read != 0 && prot & !(to_read | libc::PROT_WRITE) == 0;
    let (end, page) = (from.checked_add(size)?, PAGE as u64);
    let is_inside =
        size > 0 && from.is_multiple_of(page) && end <= image.size.next_multiple_of(page);
    if !(is_private && is_plain && is_inside) {
        return None;
    }
    let content =
        table.image(image.place + from, image.size.min(end).checked_sub(from)? as usize)?;
    let to_fill = (to_read | libc::PROT_WRITE) as u64;
    let words = [call.word(0), size, to_fill, (how | libc::MAP_ANONYMOUS) as u64, u64::MAX, 0];
    // SAFETY: it is the program's own call, but for what the memory has in it.
    let place = match raw::check(unsafe { raw::syscall(libc::SYS_mmap, words) }) {
        Ok(place) => place,
        Err(errno) => return Some(Err(errno)),
    };
    // SAFETY: it was just mapped to be written, and is as long.
    unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), place as *mut u8, content.len()) };
    if prot & libc::PROT_WRITE == 0 {
        // SAFETY: as the program wants its memory.
        let _ = unsafe { raw::syscall(libc::SYS_mprotect, [place, size, prot as u64, 0, 0, 0]) };
    }
    Some(Ok(place))
}

/// Before a call is made otherwise: what it may be about stands for a file of the server's from here on.
///
/// # Errors
/// The transaction can't go on.
pub fn hand_over_for(process: &Process, call: &Call) -> Sys<()> {
    let mut link = process.link();
    let number = call.number();
    let closes = matches!(number, libc::SYS_close | libc::SYS_close_range);
    if link.imaged.numbers.is_empty() || closes {
        return Ok(());
    }
    if names_numbers(call) {
        return link.hand_over_all();
    }
    // One of them may be meant by any argument; more are not worth a look at what it is.
    let words: Vec<i32> = (0..6).map(|at| call.int(at)).collect();
    let meant: Vec<i32> =
        link.imaged.numbers.keys().copied().filter(|n| words.contains(n)).collect();
    meant.into_iter().try_for_each(|number| link.hand_over(number))
}

/// Whether a path of a call may be that of a number: in `/proc/self/fd`, `/dev/fd`, or `/dev/stdin`.
fn names_numbers(call: &Call) -> bool {
    let Some(shape) = wire::shape_with(call.number(), call.words()) else { return false };
    let paths = shape.parts.iter().filter(|(at, part)| *part == Part::Path && call.word(*at) != 0);
    let has = |path: &[u8], word: &[u8]| path.windows(word.len()).any(|part| part == word);
    paths
        .filter_map(|&(at, _)| call.path(at).ok())
        .any(|path| has(&path, b"fd") || has(&path, b"std"))
}

impl Link {
    fn move_to(&mut self, number: i32, to: u64) {
        if let Some((_, _, offset)) = self.imaged.numbers.get_mut(&number) {
            *offset = to;
        }
    }

    /// A number is closed. `true`: the server need not know of it.
    ///
    /// # Errors
    /// As [`Link::hand_over`].
    pub(super) fn forget_image(&mut self, number: i32) -> Sys<bool> {
        if !self.is_unlocked() {
            // With the number go locks that the process has on the file.
            self.hand_over(number)?;
        }
        Ok(self.imaged.numbers.remove(&number).is_some())
    }

    /// The server opens what stands at a number.
    ///
    /// # Errors
    /// It can't, so the transaction can't go on.
    pub(super) fn hand_over(&mut self, number: i32) -> Sys<()> {
        let Some((image, flags, offset)) = self.imaged.numbers.remove(&number) else {
            return Ok(());
        };
        let cloexec = if kernel::close_on_exec(number)? { libc::O_CLOEXEC } else { 0 };
        let words = [image.object.into(), (flags | cloexec) as u64, offset, 0, 0, 0];
        let mut request = Request::new(Ask::Reopen, 0).with(words);
        request.chosen = number.into();
        let answer = self.ask_plainly(&request);
        raw::check(answer).map(drop).inspect_err(|errno: &Errno| {
            let why = wire::words_of(*errno);
            self.fail(&format!(
                "a file that a process has open can't be opened for it again: {why}"
            ));
        })
    }

    /// The same for all numbers.
    ///
    /// # Errors
    /// As [`Link::hand_over`].
    pub(super) fn hand_over_all(&mut self) -> Sys<()> {
        let numbers: Vec<i32> = self.imaged.numbers.keys().copied().collect();
        numbers.into_iter().try_for_each(|number| self.hand_over(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_goes_through_the_table() {
        let image = Image { object: 7, place: 8192, size: 5000, moment: 1 << 40 };
        let bytes = image.to_bytes();
        assert_eq!(Image::of(&bytes), Some(image));
        assert_eq!(Image::of(&bytes[1..]), None);
    }

    #[test]
    fn only_plain_reading_is_of_an_image() {
        assert!(may_open(libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY));
        for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_DIRECT, libc::O_PATH, libc::O_NONBLOCK]
        {
            assert!(!may_open(flags), "{flags:o}");
        }
    }
}
