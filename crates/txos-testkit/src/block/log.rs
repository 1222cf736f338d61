//! The log of a disk: one event behind the other, in a file. Each is a kind (1 byte), an offset (8), a
//! length (4), and as many bytes: 1 what was written at the offset, 2 nothing (a flush), 3 the text of a mark.

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

/// Bytes of an event before its payload.
const HEADER: usize = 13;

/// Something that happened to a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes were written, and may not be on the medium yet: where, and which part of the log they are.
    Write {
        /// Where on the disk.
        at: u64,
        /// Where in the log.
        bytes: Range<usize>,
    },
    /// Everything written before is on the medium.
    Flush,
    /// The test has said so.
    Mark(String),
}

/// What was recorded.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// In order.
    pub events: Vec<Event>,
    bytes: Vec<u8>,
}

impl Log {
    /// Reads a log.
    ///
    /// # Errors
    /// Of reading, or that it is none.
    pub fn read(path: &Path) -> io::Result<Log> {
        let bytes = std::fs::read(path)?;
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "a broken log");
        let mut events = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let header = bytes.get(at..at + HEADER).ok_or_else(broken)?;
            let (kind, rest) = header.split_first().ok_or_else(broken)?;
            let (offset, length) = rest.split_at_checked(8).ok_or_else(broken)?;
            let offset = u64::from_le_bytes(offset.try_into().map_err(|_| broken())?);
            let length = u32::from_le_bytes(length.try_into().map_err(|_| broken())?) as usize;
            let payload = at + HEADER..at + HEADER + length;
            let text = bytes.get(payload.clone()).ok_or_else(broken)?;
            at = payload.end;
            events.push(match kind {
                1 => Event::Write { at: offset, bytes: payload },
                2 => Event::Flush,
                3 => Event::Mark(String::from_utf8_lossy(text).into_owned()),
                _ => return Err(broken()),
            });
        }
        Ok(Log { events, bytes })
    }

    /// The bytes of a write.
    #[must_use]
    pub fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    /// Number of writes and of flushes.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let count = |is: fn(&Event) -> bool| self.events.iter().filter(|e| is(e)).count();
        (count(|e| matches!(e, Event::Write { .. })), count(|e| *e == Event::Flush))
    }

    /// The marks before an event, in order.
    pub fn marks_before(&self, event: usize) -> impl Iterator<Item = &str> {
        self.events.iter().take(event).filter_map(|e| match e {
            Event::Mark(text) => Some(text.as_str()),
            _ => None,
        })
    }
}

/// Appends a write to a log that is being written.
///
/// # Errors
/// Of writing.
pub fn put_write(log: &mut impl Write, at: u64, bytes: &[u8]) -> io::Result<()> {
    put(log, 1, at, bytes)
}

/// Appends a flush.
///
/// # Errors
/// Of writing.
pub fn put_flush(log: &mut impl Write) -> io::Result<()> {
    put(log, 2, 0, &[])
}

/// Appends a mark.
///
/// # Errors
/// Of writing.
pub fn put_mark(log: &mut impl Write, text: &str) -> io::Result<()> {
    put(log, 3, 0, text.as_bytes())
}

fn put(log: &mut impl Write, kind: u8, at: u64, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
    let mut header = Vec::with_capacity(HEADER + payload.len());
    header.push(kind);
    header.extend_from_slice(&at.to_le_bytes());
    header.extend_from_slice(&length.to_le_bytes());
    header.extend_from_slice(payload);
    log.write_all(&header)
}
