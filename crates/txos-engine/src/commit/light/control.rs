//! What the participants of a log of light commits tell each other: a file that is never flushed, and
//! made anew in every boot.
//!
//! | byte | locked by |
//! |---|---|
//! | 0 | whoever validates and appends |
//! | 1 | whoever flushes the log |
//! | 2 | whoever empties a half |
//! | 16 + N | the commit in slot N, from before its record is written until it is in place |
//!
//! The locks belong to open file descriptions (`sys_lock`): nobody keeps one who is dead. Order: 2,
//! then a slot that is waited for, then 0. Who has 0 only ever *tries* slots.
//!
//! Every field is written with one `pwrite` within a page, which a SIGKILL does not tear.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::error::{Context, Error, Result};
use crate::object::FileId;
use crate::store::Home;
use crate::{sys, sys_lock};

/// First bytes.
const MAGIC: &[u8; 8] = b"TXOSLCTL";
/// Format: another one is of another version of txos, in this boot.
const VERSION: u64 = 4;
/// The oldest that is understood: whoever finds it has the log emptied first.
const OLDEST: u64 = 1;
/// Light commits at a time.
pub(super) const SLOTS: u32 = 64;
/// Where slots begin, and how long each is.
const SLOTS_AT: u64 = 4096;
const SLOT_LEN: u64 = 2048;
/// Where in a slot its commit's progress is.
const PROGRESS_AT: u64 = 32;
/// Where the header's changing part is.
const STATE_AT: u64 = 64;
/// Where the number of flushed bytes is; written by whoever flushes.
const DURABLE_AT: u64 = 128;
/// What a slot can say of what its commit touches.
pub(super) const TOUCHES_MAX: usize = 40;

/// The end of a half in which nothing counts any more.
pub(super) const EMPTIED: u64 = u64::MAX;

/// The byte of whoever validates and appends.
pub(super) const APPEND: u64 = 0;
/// The byte of whoever flushes.
pub(super) const FLUSH: u64 = 1;
/// The byte of whoever empties a half.
pub(super) const EMPTY: u64 = 2;

/// The byte of a slot.
pub(super) fn slot_byte(slot: u32) -> u64 {
    16 + u64::from(slot)
}

/// The state of the log. Read and written by whoever has [`APPEND`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Number of the next record.
    pub seq: u64,
    /// All bytes ever appended. Begins at the clock's nanoseconds, so that it never goes back while a
    /// process remembers how much is flushed.
    pub written: u64,
    /// The half that is written.
    pub half: u64,
    /// Where in it the next record goes; [`EMPTIED`]: into the other half.
    pub end: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Slots that may be in use.
    pub used: u64,
    /// The other half holds what is not known to be flushed in place.
    pub other_full: u64,
    /// Number of the last record of a durable commit, as long as a half holds it that is not emptied; else 0.
    pub last_durable: u64,
}

/// Something that a commit in flight reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    pub file: FileId,
    /// The pages from here…
    pub from: u64,
    /// … to here, inclusive. All of them: whoever sees the attributes.
    pub to: u64,
    pub writes: bool,
}

impl Touch {
    pub fn meets(&self, other: &Touch) -> bool {
        self.file == other.file
            && (self.writes || other.writes)
            && self.from <= other.to
            && other.from <= self.to
    }
}

/// A commit in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub half: u64,
    pub epoch: u64,
    /// Where its record is.
    pub offset: u64,
    /// How far it has come: [`NAMES`], [`BYTES`], [`TAILS`] and so on.
    pub progress: u64,
    pub touches: Vec<Touch>,
}

/// Progress: its names are being published.
pub(super) const NAMES: u64 = 0;
/// Progress: its names, if it has some, are in place, and bytes are being written or times are being set.
pub(super) const BYTES: u64 = 1;
/// Progress: the bytes are in place, and the first append is being made; the next number is that of the next one.
pub(super) const TAILS: u64 = 2;

/// Whether a store has a log of light commits that was not begun in this boot. Reads only.
///
/// # Errors
/// [`Error::Io`].
pub(in crate::commit) fn is_of_an_earlier_boot(store: &Path) -> Result<bool> {
    let is_there = |name: &str| {
        let path = store.join(name);
        match sys::open_record(&path) {
            Ok(fd) => Ok(Some(Control { fd: sys::kept(fd), path })),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("opening", path, e)),
        }
    };
    match is_there("light.now")? {
        Some(control) => Ok(control.words()?.is_none() && is_there("light")?.is_some()),
        None => Ok(is_there("light")?.is_some()),
    }
}

/// The open control file.
#[derive(Debug)]
pub(super) struct Control {
    fd: OwnedFd,
    path: PathBuf,
}

impl Control {
    pub fn open(home: &Home) -> Result<Control> {
        let path = home.dir().join("light.now");
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CREATE;
        let fd =
            sys::open(path.as_os_str().as_encoded_bytes(), flags, 0o600).at("opening", &path)?;
        Ok(Control { fd: sys::kept(fd), path })
    }

    pub fn lock(&self, byte: u64) -> Result<()> {
        sys_lock::lock(self.fd.as_fd(), byte).at("locking", &self.path)
    }

    pub fn try_lock(&self, byte: u64) -> Result<bool> {
        sys_lock::try_lock(self.fd.as_fd(), byte).at("locking", &self.path)
    }

    /// Lets go of a byte. If that failed, closing the file would: it is not worth an error.
    pub fn unlock(&self, byte: u64) {
        let _ = sys_lock::unlock(self.fd.as_fd(), byte);
    }

    fn read<const N: usize>(&self, at: u64) -> Result<[u64; N]> {
        let mut bytes = vec![0u8; 8 * N];
        let n = sys::read_at(&self.fd, &mut bytes, at).at("reading", &self.path)?;
        bytes.get_mut(n..).unwrap_or_default().fill(0);
        let mut words = [0u64; N];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Ok(words)
    }

    fn write(&self, at: u64, words: &[u64]) -> Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        sys::write_all_at(self.fd.as_fd(), &bytes, at).at("writing", &self.path)
    }

    /// What tells this boot from others.
    fn boot() -> [u64; 5] {
        static BOOT: std::sync::OnceLock<[u64; 5]> = std::sync::OnceLock::new();
        *BOOT.get_or_init(|| {
            let mut words = [0u64; 5];
            let id = crate::machine::boot_id();
            for (word, chunk) in words.iter_mut().zip(id.as_bytes().chunks(8)) {
                *word = chunk.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b));
            }
            words
        })
    }

    /// The fixed words and the state, if they are of this boot. `None`: the log has to be recovered first.
    fn words(&self) -> Result<Option<[u64; 16]>> {
        let words = self.read::<16>(0)?;
        let magic = u64::from_le_bytes(*MAGIC);
        if words[0] != magic || words[2..7] != Self::boot() {
            return Ok(None);
        }
        if !(OLDEST..=VERSION).contains(&words[1]) {
            return Err(Error::Format {
                path: self.path.clone(),
                problem: "is of a format that this txos does not know".into(),
                advice: "Use the version of txos that wrote it, or reboot.",
            });
        }
        Ok(Some(words))
    }

    /// The state, if it is of this boot. `None`: the log has to be recovered first.
    pub fn state(&self) -> Result<Option<State>> {
        Ok(self.words()?.map(|words| {
            let [.., seq, written, half, end, epoch, used, other_full, last_durable] = words;
            State { seq, written, half, end, epoch, used, other_full, last_durable }
        }))
    }

    /// Whether the log is in use in this boot, and in this version's format.
    pub fn is_current(&self) -> Result<bool> {
        Ok(self.words()?.is_some_and(|[_, version, ..]| version == VERSION))
    }

    /// An older version's file becomes one of this version. The caller has the commit lock for himself and has
    /// emptied the log.
    pub fn take_over(&self) -> Result<()> {
        if self.read::<2>(0)?[1] == VERSION { Ok(()) } else { self.write(8, &[VERSION]) }
    }

    pub fn write_state(&self, s: &State) -> Result<()> {
        let words =
            [s.seq, s.written, s.half, s.end, s.epoch, s.used, s.other_full, s.last_durable];
        self.write(STATE_AT, &words)
    }

    /// Begins a boot, or begins again: nobody is in flight, everything is flushed.
    pub fn begin(&self, state: &State) -> Result<()> {
        // Invalid while it is being written.
        self.write(0, &[0])?;
        for slot in 0..SLOTS {
            self.free(slot)?;
        }
        self.write(DURABLE_AT, &[state.written])?;
        self.write_state(state)?;
        let boot = Self::boot();
        self.write(8, &[VERSION, boot[0], boot[1], boot[2], boot[3], boot[4]])?;
        self.write(0, &[u64::from_le_bytes(*MAGIC)])
    }

    /// How much of what was appended is flushed.
    pub fn durable(&self) -> Result<u64> {
        Ok(self.read::<1>(DURABLE_AT)?[0])
    }

    /// Written by whoever has [`FLUSH`].
    pub fn set_durable(&self, bytes: u64) -> Result<()> {
        self.write(DURABLE_AT, &[bytes])
    }

    fn slot_at(slot: u32) -> u64 {
        SLOTS_AT + u64::from(slot) * SLOT_LEN
    }

    /// What is in flight in a slot.
    pub fn slot(&self, slot: u32) -> Result<Option<Slot>> {
        let words = self.read::<{ 6 + 5 * TOUCHES_MAX }>(Self::slot_at(slot))?;
        let [1, half, epoch, offset, progress, count, rest @ ..] = words else { return Ok(None) };
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(TOUCHES_MAX);
        let touches = rest.as_chunks::<5>().0.iter().take(count).map(|&[dev, ino, from, to, w]| {
            Touch { file: FileId { dev, ino }, from, to, writes: w != 0 }
        });
        Ok(Some(Slot { half, epoch, offset, progress, touches: touches.collect() }))
    }

    pub fn set_slot(&self, number: u32, slot: &Slot) -> Result<()> {
        let Slot { half, epoch, offset, progress, ref touches } = *slot;
        let mut words = vec![1, half, epoch, offset, progress, touches.len() as u64];
        for t in slot.touches.iter().take(TOUCHES_MAX) {
            words.extend([t.file.dev, t.file.ino, t.from, t.to, u64::from(t.writes)]);
        }
        self.write(Self::slot_at(number), &words)
    }

    /// Notes how far the commit in a slot has come.
    pub fn set_progress(&self, slot: u32, progress: u64) -> Result<()> {
        self.write(Self::slot_at(slot) + PROGRESS_AT, &[progress])
    }

    pub fn free(&self, slot: u32) -> Result<()> {
        self.write(Self::slot_at(slot), &[0])
    }
}
