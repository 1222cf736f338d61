//! The log of light commits: two halves, records one behind the other. docs/light-log-format.md.
//!
//! # Invariants
//!
//! - A record counts if its checksum is right, it is of its half's epoch, its number follows that of
//!   the record before it, and it is not void. The first that is otherwise ends the log.
//! - A half is reused only when everything it holds has been flushed in place, and says so durably.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::id::TxId;
use crate::object::FileId;
use crate::store::Home;
use crate::sys;
use crate::version::{Stamp, Version};

/// First bytes of a half.
const MAGIC: &[u8; 8] = b"TXOSLIGH";
/// Format of the log.
const VERSION: u32 = 4;
/// The oldest that can be read: its records have no names. Those of version 2 have no appends and no moves, those
/// of version 3 no times.
const OLDEST: u32 = 1;
/// Bytes of a half.
pub(super) const HALF: u64 = 2 << 20;
/// Where the first record of a half is, relative to it.
pub(super) const RECORDS_AT: u64 = 512;
/// Bytes of a record before its body.
const HEADER: usize = 48;
/// Records begin at multiples of this.
const ALIGN: usize = 8;
/// Where in a record its void mark is.
const VOID_AT: u64 = 8;

/// The beginning of a half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HalfHeader {
    /// Which use of this half; 0: never used.
    pub epoch: u64,
    /// Number of its first record.
    pub first: u64,
    /// Everything in it has been flushed in place.
    pub clean: bool,
}

/// What happens to one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileRecord {
    /// Canonical absolute path.
    pub path: Vec<u8>,
    /// Which inode it is.
    pub id: FileId,
    /// The time it gets, if it is not to be that of the write.
    pub mtime: Option<Stamp>,
    /// Where, what was there, and what is to be there; as long as each other.
    pub pieces: Vec<(u64, Vec<u8>, Vec<u8>)>,
}

/// A small file that is put somewhere: all that there is to know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NewFile {
    /// Which inode it is, unless a power cut takes that away.
    pub id: FileId,
    /// Permissions.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Stamp,
    pub content: Vec<u8>,
}

/// What a file is that another one replaces, or that goes: whoever finishes what a dead process has begun finds by it whether
/// somebody else has changed the file since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OldFile {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub mtime: Stamp,
}

impl OldFile {
    pub fn of(version: &Version) -> OldFile {
        let Version { mode, uid, gid, size, mtime, .. } = *version;
        OldFile { mode, uid, gid, size, mtime }
    }

    /// Whether it is as it was: a rename changes neither.
    pub fn is(&self, now: &Version) -> bool {
        *self == OldFile::of(now) && now.nlink == 1
    }
}

/// What happens to one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NameRecord {
    /// Canonical absolute path.
    pub path: Vec<u8>,
    /// Which file was there.
    pub before: Option<FileId>,
    /// What it was. A list of its own in the record: unknown in those of older versions.
    #[serde(skip)]
    pub old: Option<OldFile>,
    /// What is put there; `None`: the name goes.
    pub after: Option<NewFile>,
    /// The store on its file system.
    pub store: Vec<u8>,
    /// Where in the store the new file is before, and the old one afterwards; absolute.
    pub aside: Vec<u8>,
}

/// Bytes that are put behind the end of a file. Only of commits that are not durable: in another boot it says nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GrownRecord {
    /// Canonical absolute path.
    pub path: Vec<u8>,
    /// Which inode it is.
    pub id: FileId,
    /// The time it gets, if it is not to be that of the write.
    pub mtime: Option<Stamp>,
    /// How long the file was.
    pub length: u64,
    /// What is put behind that.
    pub tail: Vec<u8>,
}

/// A file that gets another name, where nothing was. Only of commits that are not durable, as above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MoveRecord {
    /// Canonical absolute path.
    pub from: Vec<u8>,
    /// The new one.
    pub to: Vec<u8>,
    /// Which inode it is.
    pub id: FileId,
}

/// A directory that gets a time. Only of commits that are not durable, as above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TimeRecord {
    /// Canonical absolute path.
    pub path: Vec<u8>,
    /// Which inode it is.
    pub id: FileId,
    /// The time that it had.
    pub before: Stamp,
    /// The one that it gets.
    pub after: Stamp,
}

/// One commit: of bytes in files that stay, of names, or, if it is not durable, of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub seq: u64,
    pub id: TxId,
    pub durable: bool,
    /// The slot in which it was published.
    pub slot: u32,
    pub files: Vec<FileRecord>,
    pub names: Vec<NameRecord>,
    pub grown: Vec<GrownRecord>,
    pub moves: Vec<MoveRecord>,
    pub times: Vec<TimeRecord>,
}

impl Record {
    /// One that says nothing yet.
    pub fn new(seq: u64, id: TxId, durable: bool) -> Record {
        let (files, names, grown) = (Vec::new(), Vec::new(), Vec::new());
        let (moves, times) = (Vec::new(), Vec::new());
        Record { seq, id, durable, slot: 0, files, names, grown, moves, times }
    }

    /// Whether it says nothing: it was called off.
    pub fn is_void(&self) -> bool {
        self.files.is_empty()
            && self.names.is_empty()
            && self.grown.is_empty()
            && self.moves.is_empty()
            && self.times.is_empty()
    }

    fn clear(&mut self) {
        self.files.clear();
        self.names.clear();
        self.grown.clear();
        self.moves.clear();
        self.times.clear();
    }

    /// The lists, one behind the other.
    pub fn body(&self) -> Vec<u8> {
        // Encoding plain data into memory does not fail; an empty body would be no valid record.
        let old: Vec<Option<OldFile>> = self.names.iter().map(|name| name.old).collect();
        let lists = (&self.files, &self.names, &self.grown, &self.moves, &self.times, &old);
        postcard::to_stdvec(&lists).unwrap_or_default()
    }

    /// As bytes, for a half of this epoch.
    pub fn to_bytes(&self, epoch: u64) -> Vec<u8> {
        let mut out = vec![0u8; HEADER];
        out.extend_from_slice(&self.body());
        out.resize(out.len().next_multiple_of(ALIGN), 0);
        let length = u32::try_from(out.len()).unwrap_or(u32::MAX);
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = out.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        put(0, &length.to_le_bytes());
        put(12, &u32::from(self.durable).to_le_bytes());
        put(16, &epoch.to_le_bytes());
        put(24, &self.seq.to_le_bytes());
        put(32, self.id.as_bytes());
        put(40, &u64::from(self.slot).to_le_bytes());
        let crc = crc_of(&out);
        out.splice(4..8, crc.to_le_bytes());
        out
    }
}

/// Everything but the checksum and the void mark, which comes later.
fn crc_of(record: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(record.get(..4).unwrap_or_default());
    hasher.update(record.get(12..).unwrap_or_default());
    hasher.finalize()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// A record read back.
pub(super) struct Read {
    pub record: Record,
    pub void: bool,
    pub length: u64,
}

/// The record at the start of `bytes`, if there is a valid one of this epoch.
pub(super) fn read_record(bytes: &[u8], epoch: u64) -> Option<Read> {
    let length = usize::try_from(word(bytes, 0)?).ok()?;
    let bytes = bytes.get(..length)?;
    let damaged = word(bytes, 4)? != crc_of(bytes) && !sys::mistake("record-not-checked");
    if length < HEADER || damaged || long(bytes, 16)? != epoch {
        return None;
    }
    let mut body = bytes.get(HEADER..)?;
    let files: Vec<FileRecord> = next_list(&mut body)?;
    let mut names: Vec<NameRecord> = next_list(&mut body)?;
    let grown: Vec<GrownRecord> = next_list(&mut body)?;
    let moves: Vec<MoveRecord> = next_list(&mut body)?;
    let times: Vec<TimeRecord> = next_list(&mut body)?;
    let old: Vec<Option<OldFile>> = next_list(&mut body)?;
    names.iter_mut().zip(old).for_each(|(name, old)| name.old = old);
    let sound = |f: &FileRecord| {
        f.path.starts_with(b"/")
            && !f.path.contains(&0)
            && f.pieces.iter().all(|(at, old, new)| {
                old.len() == new.len() && at.checked_add(new.len() as u64).is_some()
            })
    };
    let is_path = |path: &[u8]| path.starts_with(b"/") && !path.contains(&0);
    let sound_name = |n: &NameRecord| {
        [&n.path, &n.store, &n.aside].into_iter().all(|path| is_path(path))
            && (n.before.is_some() || n.after.is_some())
    };
    let sound_growth = |g: &GrownRecord| {
        let end = g.length.checked_add(g.tail.len() as u64);
        is_path(&g.path) && !g.tail.is_empty() && end.is_some()
    };
    let sound_move = |m: &MoveRecord| is_path(&m.from) && is_path(&m.to) && m.from != m.to;
    if !files.iter().all(sound)
        || !names.iter().all(sound_name)
        || !grown.iter().all(sound_growth)
        || !moves.iter().all(sound_move)
        || !times.iter().all(|time| is_path(&time.path))
    {
        return None;
    }
    let record = Record {
        seq: long(bytes, 24)?,
        id: std::str::from_utf8(bytes.get(32..40)?).ok()?.parse().ok()?,
        durable: word(bytes, 12)? & 1 != 0,
        slot: word(bytes, 40)?,
        files,
        names,
        grown,
        moves,
        times,
    };
    Some(Read { record, void: word(bytes, 8)? != 0, length: length as u64 })
}

/// The next list of a record's body. An older version's body ends before it, with zeros up to a multiple of eight.
fn next_list<T: serde::de::DeserializeOwned>(body: &mut &[u8]) -> Option<Vec<T>> {
    if body.is_empty() {
        return Some(Vec::new());
    }
    let (list, rest) = postcard::take_from_bytes(body).ok()?;
    *body = rest;
    Some(list)
}

/// A record whose checksum is right, whatever its body says.
#[cfg(all(feature = "fuzzing", not(loom)))]
pub(super) fn sealed(id: TxId, body: &[u8]) -> Vec<u8> {
    let mut out = Record::new(1, id, true).to_bytes(1);
    out.truncate(HEADER);
    out.extend_from_slice(body);
    out.resize(out.len().next_multiple_of(ALIGN), 0);
    out.splice(0..4, u32::try_from(out.len()).unwrap_or(0).to_le_bytes());
    let crc = crc_of(&out);
    out.splice(4..8, crc.to_le_bytes());
    out
}

/// The open log of a home store.
#[derive(Debug)]
pub(super) struct Log {
    pub fd: OwnedFd,
    pub path: PathBuf,
}

impl Log {
    /// Opens the log; `None` if there is none and it is not to be made.
    pub fn open(home: &Home, make: bool) -> Result<Option<Log>> {
        let path = home.dir().join("light");
        let flags = OFlags::RDWR | OFlags::NOFOLLOW;
        let flags = if make { flags | OFlags::CREATE } else { flags };
        match sys::open(path.as_os_str().as_encoded_bytes(), flags, 0o600) {
            Ok(fd) => Ok(Some(Log { fd: sys::kept(fd), path })),
            Err(Errno::NOENT) if !make => Ok(None),
            Err(e) => Err(Error::io("opening the log of light commits", path, e)),
        }
    }

    fn start(half: usize) -> u64 {
        if half == 0 { 0 } else { HALF }
    }

    /// Writes all blocks once, so that no commit allocates any: `fdatasync` then has to write the
    /// record alone, and nothing of the file system's.
    pub fn fill(&self) -> Result<()> {
        let len = sys::size(&self.fd).at("looking at", &self.path)?;
        if len >= 2 * HALF {
            return Ok(());
        }
        let zeros = vec![0u8; 1 << 18];
        let mut at = len;
        while at < 2 * HALF {
            let n = zeros.len().min(usize::try_from(2 * HALF - at).unwrap_or(zeros.len()));
            sys::write_all_at(self.fd.as_fd(), zeros.get(..n).unwrap_or_default(), at)
                .at("making the log of light commits", &self.path)?;
            at += n as u64;
        }
        sys::fsync(self.fd.as_fd()).at("flushing", &self.path)
    }

    fn read_at(&self, mut at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0u8; len];
        let mut done = 0;
        while done < len {
            let room = bytes.get_mut(done..).unwrap_or_default();
            match sys::read_at(&self.fd, room, at) {
                Ok(0) => break,
                Ok(n) => (done, at) = (done + n, at + n as u64),
                Err(Errno::INTR) => {}
                Err(e) => return Err(Error::io("reading", &self.path, e)),
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    /// The beginning of a half.
    ///
    /// # Errors
    /// [`Error::Format`] if it is of a newer format.
    pub fn half(&self, half: usize) -> Result<HalfHeader> {
        let bytes = self.read_at(Self::start(half), 40)?;
        if bytes.get(..8) != Some(MAGIC)
            || word(&bytes, 12) != bytes.get(16..40).map(crc32fast::hash)
        {
            // Never used: what is torn here has never been acknowledged, since the first record's
            // flush would have made it whole.
            return Ok(HalfHeader::default());
        }
        if !word(&bytes, 8).is_some_and(|version| (OLDEST..=VERSION).contains(&version)) {
            return Err(Error::Format {
                path: self.path.clone(),
                problem: "is of a format that this txos does not know".into(),
                advice: "Use the version of txos that wrote it.",
            });
        }
        let value = |at| long(&bytes, at).unwrap_or(0);
        Ok(HalfHeader { epoch: value(16), first: value(24), clean: value(32) != 0 })
    }

    /// Writes the beginning of a half: one sector, whole or not at all.
    pub fn write_half(&self, half: usize, header: HalfHeader) -> Result<()> {
        let mut bytes = Vec::with_capacity(40);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for value in [header.epoch, header.first, u64::from(header.clean)] {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        let crc = crc32fast::hash(bytes.get(16..).unwrap_or_default());
        bytes.splice(12..16, crc.to_le_bytes());
        sys::write_all_at(self.fd.as_fd(), &bytes, Self::start(half)).at("writing", &self.path)
    }

    /// Writes a record into a half.
    pub fn write(&self, half: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        sys::write_all_at(self.fd.as_fd(), bytes, Self::start(half) + offset)
            .at("writing", &self.path)
    }

    /// The record at an offset of a half.
    pub fn record(&self, half: usize, offset: u64, epoch: u64) -> Result<Option<Read>> {
        let head = self.read_at(Self::start(half) + offset, 4)?;
        let length = word(&head, 0).map_or(0, u64::from).min(HALF.saturating_sub(offset));
        let length = usize::try_from(length).unwrap_or(0);
        Ok(read_record(&self.read_at(Self::start(half) + offset, length)?, epoch))
    }

    /// Makes a record count for nothing.
    pub fn void(&self, half: usize, offset: u64) -> Result<()> {
        sys::write_all_at(
            self.fd.as_fd(),
            &1u32.to_le_bytes(),
            Self::start(half) + offset + VOID_AT,
        )
        .at("writing", &self.path)
    }

    /// Makes what may have been written of a record that was never counted unreadable.
    pub fn erase(&self, half: usize, offset: u64) -> Result<()> {
        sys::write_all_at(self.fd.as_fd(), &[0; 8], Self::start(half) + offset)
            .at("writing", &self.path)
    }

    pub fn flush(&self) -> Result<()> {
        sys::fdatasync(self.fd.as_fd()).at("flushing", &self.path)
    }

    /// The records of a half, void ones with nothing in them.
    pub fn records(&self, half: usize, header: HalfHeader) -> Result<Vec<Record>> {
        let bytes = self.read_at(Self::start(half), usize::try_from(HALF).unwrap_or(0))?;
        let mut records = Vec::new();
        let mut at = usize::try_from(RECORDS_AT).unwrap_or(0);
        let mut next = header.first;
        while let Some(mut read) = bytes.get(at..).and_then(|b| read_record(b, header.epoch)) {
            if read.record.seq != next {
                break;
            }
            if read.void {
                read.record.clear();
            }
            records.push(read.record);
            (next, at) = (next + 1, at + usize::try_from(read.length).unwrap_or(usize::MAX));
        }
        Ok(records)
    }
}
