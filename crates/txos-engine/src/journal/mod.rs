//! The write-ahead journal of a home store. docs/journal-format.md is the byte-level description.
//!
//! # Invariants
//!
//! - Written only under the commit lock, so it holds at most one transaction at a time.
//! - No name in the stable tree is touched before the frame READY of its plan is written (and, if
//!   durable, flushed).
//! - APPLIED is written when everything is in place and verified, DONE when that is flushed too.
//!
//! # What recovery does with what it finds
//!
//! | first frame | plan | APPLIED | DONE | boot | decision |
//! |---|---|---|---|---|---|
//! | IDLE, or no frame yet | – | – | – | – | nothing |
//! | BEGIN, and UNDOING behind it | complete | any | any | any | undo: it had been begun |
//! | BEGIN | incomplete | – | – | any | discard: nothing was touched (checked against the tree) |
//! | BEGIN | complete | no | no | any | undo |
//! | BEGIN | complete | yes | no | same | finish: it was visible as a whole |
//! | BEGIN | complete | yes | no | other | undo: not all of it need have reached the disk |
//! | BEGIN | complete | any | yes | any | finish: only its record is missing |
//! | anything else | | | | | refuse: damaged or foreign, left as it is |

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::error::{Context, Error, Result};
use crate::id::TxId;
use crate::plan::{Op, Plan};
use crate::store::{Home, LayerMeta};
use crate::sys;
use crate::version::Stamp;

/// First bytes of a journal.
const MAGIC: &[u8; 8] = b"TXOSJRNL";
/// Format of the journal. Format 1 knew no Patch, format 2 no HELD, format 3 no Rebuild; what is of them is read, and made this
/// one when idle.
const VERSION: u32 = 4;
/// Where the first frame is.
const FRAMES_AT: u64 = 512;
/// Bytes reserved when a journal is made, so that an ordinary commit allocates nothing.
const PREALLOCATED: u64 = 1 << 20;
/// Bytes of a frame before its payload.
const FRAME_HEADER: usize = 24;
/// Frames begin at multiples of this. The first frame fits in one such unit: a sector is written
/// whole or not at all.
const SECTOR: u64 = 512;
/// Operations a frame holds at most.
const OPS_PER_FRAME: usize = 4096;

/// The kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Frame {
    Idle = 1,
    Begin = 2,
    Layers = 3,
    Ops = 4,
    Ready = 5,
    Applied = 6,
    Done = 7,
    Undoing = 8,
    Held = 9,
}

impl Frame {
    fn from_u32(n: u32) -> Option<Self> {
        [
            Frame::Idle,
            Frame::Begin,
            Frame::Layers,
            Frame::Ops,
            Frame::Ready,
            Frame::Applied,
            Frame::Done,
            Frame::Undoing,
            Frame::Held,
        ]
        .into_iter()
        .find(|f| *f as u32 == n)
    }
}

/// Payload of BEGIN.
#[derive(serde::Serialize, serde::Deserialize)]
struct Begin {
    id: TxId,
    boot: String,
    made: Stamp,
    durable: bool,
    ops: u64,
}

/// How far the transaction in a journal got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Its plan is not complete: nothing was touched.
    Planning,
    /// Its plan is complete.
    Ready,
    /// It is being undone.
    Undoing,
    /// Everything is in place and verified.
    Applied,
    /// And flushed.
    Done,
}

/// What a journal holds.
#[derive(Debug)]
pub(crate) struct Found {
    /// The plan, or as much of it as was written.
    pub plan: Plan,
    /// How far it got.
    pub progress: Progress,
    /// The commit stamp that was taken when it was in place.
    pub commit_stamp: Option<Stamp>,
}

/// An open journal; its holder has the commit lock.
#[derive(Debug)]
pub(crate) struct Journal {
    fd: OwnedFd,
    path: PathBuf,
    epoch: u64,
    end: u64,
}

impl Journal {
    /// Opens the journal of a home store, making it if there is none, and reads what is in it.
    ///
    /// # Errors
    /// [`Error::Format`] if it is foreign, newer or damaged; it is left as it is.
    pub fn open(home: &Home) -> Result<(Journal, Option<Found>)> {
        let path = home.dir().join("journal");
        let fd = sys::open(
            path.as_os_str().as_encoded_bytes(),
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW,
            0o600,
        )
        .at("opening the journal", &path)?;
        let len = sys::size(&fd).at("looking at the journal", &path)?;
        let mut journal = Journal { fd, path, epoch: 1, end: FRAMES_AT };
        if len == 0 {
            journal.create()?;
            return Ok((journal, None));
        }
        // Almost always it is idle, which header and first frame tell.
        let start = journal.read(len.min(FRAMES_AT + SECTOR))?;
        if start.get(..16).is_some_and(|h| h.iter().all(|&b| b == 0)) {
            // Being made when something died: the header is written last, before any use, and
            // the first frame before it lies behind the header's sector.
            let rest = start.get(16..).unwrap_or_default();
            let unused = len >= FRAMES_AT && rest.iter().all(|&b| b == 0)
                || read_frame(&start, FRAMES_AT).is_some_and(|f| f.kind == Frame::Idle);
            if !unused {
                return Err(journal.damaged("has no header"));
            }
            journal.create()?;
            return Ok((journal, None));
        }
        journal.check_header(&start)?;
        if let Some(idle) = read_frame(&start, FRAMES_AT).filter(|f| f.kind == Frame::Idle) {
            journal.epoch = idle.epoch;
            if word(&start, 8) != Some(VERSION) {
                journal.write_header()?;
            }
            return Ok((journal, None));
        }
        let bytes = journal.read(len)?;
        let found = journal.read_frames(&bytes)?;
        Ok((journal, found))
    }

    fn create(&mut self) -> Result<()> {
        // Failing to preallocate costs speed only; if the disk is full, writing says so.
        let _ = sys::allocate(self.fd.as_fd(), 0, PREALLOCATED);
        // The first frame before the header: a header vouches for a frame.
        self.end = FRAMES_AT;
        self.append(Frame::Idle, &[])?;
        self.write_header()
    }

    fn write_header(&self) -> Result<()> {
        let mut header = Vec::with_capacity(16);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        let crc = crc32fast::hash(&header);
        header.extend_from_slice(&crc.to_le_bytes());
        sys::write_all_at(self.fd.as_fd(), &header, 0).at("writing the journal", &self.path)
    }

    fn read(&self, len: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0u8; usize::try_from(len).unwrap_or(usize::MAX)];
        let mut done = 0;
        while done < bytes.len() {
            let n = sys::read_at(&self.fd, &mut bytes[done..], done as u64)
                .at("reading the journal", &self.path)?;
            if n == 0 {
                break;
            }
            done += n;
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    fn damaged(&self, problem: &str) -> Error {
        Error::Format {
            path: self.path.clone(),
            problem: problem.to_owned(),
            advice: "Nothing was changed. Keep a copy of the store, compare the tree with it \
                     (docs/operations.md, \"A damaged journal\"), then move the journal away.",
        }
    }

    fn check_header(&self, bytes: &[u8]) -> Result<()> {
        if bytes.get(..8) != Some(MAGIC) {
            return Err(self.damaged("is not a journal of txos"));
        }
        let version = word(bytes, 8).unwrap_or(0);
        if word(bytes, 12) != bytes.get(..12).map(crc32fast::hash) {
            return Err(self.damaged("is damaged (header checksum)"));
        }
        if !(1..=VERSION).contains(&version) {
            return Err(Error::Format {
                path: self.path.clone(),
                problem: format!("is of format {version}; this txos knows {VERSION}"),
                advice: "Nothing was changed. Use the txos that wrote it, or a newer one.",
            });
        }
        Ok(())
    }

    fn read_frames(&mut self, bytes: &[u8]) -> Result<Option<Found>> {
        let Some(first) = read_frame(bytes, FRAMES_AT) else {
            return Err(self.damaged("is damaged (first frame)"));
        };
        self.epoch = first.epoch;
        match first.kind {
            Frame::Idle => return Ok(None),
            Frame::Begin => {}
            _ => return Err(self.damaged("does not begin with a transaction")),
        }
        let begin: Begin = postcard::from_bytes(first.payload)
            .map_err(|_| self.damaged("is damaged (first frame's content)"))?;
        let mut plan = Plan {
            id: begin.id,
            boot: begin.boot,
            made: begin.made,
            durable: begin.durable,
            layers: Vec::new(),
            ops: Vec::new(),
        };
        let mut progress = Progress::Planning;
        let mut commit_stamp = None;
        let mut at = first.end;
        while let Some(frame) = read_frame(bytes, at).filter(|f| f.epoch == self.epoch) {
            at = frame.end;
            match (frame.kind, progress) {
                (Frame::Layers, Progress::Planning) => {
                    plan.layers = postcard::from_bytes::<Vec<LayerMeta>>(frame.payload)
                        .map_err(|_| self.damaged("is damaged (layers)"))?;
                }
                (Frame::Ops, Progress::Planning) => {
                    let ops = postcard::from_bytes::<Vec<Op>>(frame.payload)
                        .map_err(|_| self.damaged("is damaged (operations)"))?;
                    plan.ops.extend(ops);
                }
                (Frame::Held, Progress::Planning) => {
                    let held = postcard::from_bytes(frame.payload).ok();
                    if !held.is_some_and(|held| plan.set_held(held)) {
                        return Err(self.damaged("is damaged (objects in the store)"));
                    }
                }
                (Frame::Ready, Progress::Planning) => {
                    if plan.ops.len() as u64 != begin.ops || !plan.is_sound() {
                        return Err(self.damaged("is damaged (the plan is not what was begun)"));
                    }
                    progress = Progress::Ready;
                }
                (Frame::Applied, Progress::Ready) => {
                    commit_stamp = postcard::from_bytes(frame.payload)
                        .map_err(|_| self.damaged("is damaged (commit_stamp)"))?;
                    progress = Progress::Applied;
                }
                (Frame::Undoing, p) if p != Progress::Planning => progress = Progress::Undoing,
                (Frame::Done, Progress::Applied) => progress = Progress::Done,
                _ => return Err(self.damaged("is damaged (frames out of order)")),
            }
        }
        self.end = at;
        Ok(Some(Found { plan, progress, commit_stamp }))
    }

    /// Writes a whole plan; with `flush`, durably. Nothing of it may be acted on before.
    ///
    /// # Errors
    /// [`Error::Io`]; the journal then holds an incomplete plan, which recovery discards.
    pub fn write_plan(&mut self, plan: &Plan) -> Result<()> {
        let encode = |e: postcard::Error| {
            Error::io("encoding the journal", &self.path, std::io::Error::other(e))
        };
        let begin = postcard::to_stdvec(&Begin {
            id: plan.id,
            boot: plan.boot.clone(),
            made: plan.made,
            durable: plan.durable,
            ops: plan.ops.len() as u64,
        })
        .map_err(encode)?;
        let layers = postcard::to_stdvec(&plan.layers).map_err(encode)?;
        let mut ops = Vec::new();
        for chunk in plan.ops.chunks(OPS_PER_FRAME) {
            ops.push(postcard::to_stdvec(chunk).map_err(encode)?);
        }
        let held = plan.held();
        let held_bytes = postcard::to_stdvec(&held).map_err(encode)?;
        self.epoch += 1;
        self.end = FRAMES_AT;
        self.append(Frame::Begin, &begin)?;
        self.append(Frame::Layers, &layers)?;
        for chunk in &ops {
            self.append(Frame::Ops, chunk)?;
        }
        if !held.is_empty() {
            self.append(Frame::Held, &held_bytes)?;
        }
        if sys::mistake("publish-before-plan") {
            return Ok(());
        }
        self.append(Frame::Ready, &[])?;
        if plan.durable && !sys::mistake("plan-not-flushed") { self.flush() } else { Ok(()) }
    }

    /// Notes that everything is in place and verified, and the commit stamp behind it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn applied(&mut self, commit_stamp: Stamp) -> Result<()> {
        let payload = postcard::to_stdvec(&Some(commit_stamp))
            .map_err(|e| Error::io("encoding the journal", &self.path, std::io::Error::other(e)))?;
        if sys::mistake("publish-before-plan") {
            self.append(Frame::Ready, &[])?;
        }
        self.append(Frame::Applied, &payload)
    }

    /// Notes that the publish is being undone: from now on nothing else may become of it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn undoing(&mut self, flush: bool) -> Result<()> {
        self.append(Frame::Undoing, &[])?;
        if flush { self.flush() } else { Ok(()) }
    }

    /// Notes that the publish is complete; with `flush`, durably.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn done(&mut self, flush: bool) -> Result<()> {
        self.append(Frame::Done, &[])?;
        if flush && !sys::mistake("done-not-flushed") { self.flush() } else { Ok(()) }
    }

    /// Empties the journal: what it held is finished, undone or was never begun.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn idle(&mut self, flush: bool) -> Result<()> {
        self.epoch += 1;
        self.end = FRAMES_AT;
        self.append(Frame::Idle, &[])?;
        if flush { self.flush() } else { Ok(()) }
    }

    fn flush(&self) -> Result<()> {
        sys::fdatasync(self.fd.as_fd()).at("flushing the journal", &self.path)
    }

    fn append(&mut self, kind: Frame, payload: &[u8]) -> Result<()> {
        let len = u32::try_from(payload.len())
            .map_err(|_| Error::io("writing the journal", &self.path, rustix::io::Errno::FBIG))?;
        let mut frame = Vec::with_capacity(FRAME_HEADER + payload.len());
        frame.extend_from_slice(&len.to_le_bytes());
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(&(kind as u32).to_le_bytes());
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(&self.epoch.to_le_bytes());
        frame.extend_from_slice(payload);
        let crc = frame_crc(&frame);
        frame.splice(4..8, crc.to_le_bytes());
        sys::write_all_at(self.fd.as_fd(), &frame, self.end)
            .at("writing the journal", &self.path)?;
        self.end = (self.end + frame.len() as u64).next_multiple_of(SECTOR);
        Ok(())
    }

    /// The error for a plan that is incomplete although something of it was done.
    pub fn contradicts_tree(&self) -> Error {
        self.damaged("is damaged: its plan is incomplete, but part of it was carried out")
    }
}

/// Whether an open journal holds a publish. One that can't be read holds one, as far as this can tell:
/// recovery says what is wrong with it.
pub(crate) fn is_busy(file: &OwnedFd) -> bool {
    let mut start = [0u8; (FRAMES_AT + SECTOR) as usize];
    let Ok(n) = sys::read_at(file, &mut start, 0) else { return true };
    let start = start.get(..n).unwrap_or_default();
    // Not made yet, or being made.
    let is_new = start.iter().take(16).all(|&b| b == 0);
    !is_new && !read_frame(start, FRAMES_AT).is_some_and(|f| f.kind == Frame::Idle)
}

/// The transaction that a home store's journal holds, if it holds one. Reads only; a journal with
/// something else in it holds none that this could tell.
///
/// # Errors
/// If it can't be read: then nothing is known.
pub(crate) fn holds(home: &Home) -> Result<Option<TxId>> {
    Ok(begun(home.dir())?.map(|begin| begin.id))
}

/// Whether the journal of a store holds a transaction that was not published in this boot. Reads only.
///
/// # Errors
/// If it can't be read: then nothing is known.
pub(crate) fn is_of_an_earlier_boot(store: &Path) -> Result<bool> {
    Ok(begun(store)?.is_some_and(|begin| begin.boot != crate::machine::boot_id()))
}

fn begun(store: &Path) -> Result<Option<Begin>> {
    let path = store.join("journal");
    let file = match sys::open_record(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("opening the journal", path, e)),
    };
    let mut start = [0u8; (FRAMES_AT + SECTOR) as usize];
    let n = sys::read_at(&file, &mut start, 0).at("reading the journal", &path)?;
    let begin = read_frame(start.get(..n).unwrap_or_default(), FRAMES_AT)
        .filter(|frame| frame.kind == Frame::Begin)
        .and_then(|frame| postcard::from_bytes::<Begin>(frame.payload).ok());
    Ok(begin)
}

/// One valid frame.
struct Read<'a> {
    kind: Frame,
    epoch: u64,
    payload: &'a [u8],
    /// Where the next frame would begin.
    end: u64,
}

/// The checksum of a frame: everything but the checksum itself.
fn frame_crc(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(frame.get(..4).unwrap_or_default());
    hasher.update(frame.get(8..).unwrap_or_default());
    hasher.finalize()
}

/// Reads the frame at an offset; `None` if there is no valid one.
fn read_frame(bytes: &[u8], at: u64) -> Option<Read<'_>> {
    let start = usize::try_from(at).ok()?;
    let rest = bytes.get(start..)?;
    let len = usize::try_from(word(rest, 0)?).ok()?;
    let frame = rest.get(..FRAME_HEADER.checked_add(len)?)?;
    if word(frame, 4)? != frame_crc(frame) && !sys::mistake("frame-not-checked") {
        return None;
    }
    Some(Read {
        kind: Frame::from_u32(word(frame, 8)?)?,
        epoch: u64::from_le_bytes(frame.get(16..24)?.try_into().ok()?),
        payload: frame.get(FRAME_HEADER..)?,
        end: (at + frame.len() as u64).next_multiple_of(SECTOR),
    })
}

/// What recovery would find in a journal of these bytes.
#[cfg(all(feature = "fuzzing", not(loom)))]
pub(crate) fn found_in(bytes: &[u8]) -> Result<Option<Found>> {
    let nowhere =
        || -> std::io::Result<OwnedFd> { Ok(std::fs::File::open("/proc/self/stat")?.into()) };
    let fd = nowhere().at("opening", "nowhere")?;
    let mut journal = Journal { fd, path: PathBuf::from("journal"), epoch: 1, end: FRAMES_AT };
    journal.check_header(bytes)?;
    journal.read_frames(bytes)
}

/// A journal whose checksums are right, whatever is in its frames.
#[cfg(all(feature = "fuzzing", not(loom)))]
pub(crate) fn sealed(frames: &[(u32, &[u8])]) -> Vec<u8> {
    let mut out = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    out.resize(FRAMES_AT as usize, 0);
    for (kind, payload) in frames {
        let start = out.len();
        for word in [u32::try_from(payload.len()).unwrap_or(0), 0, *kind, 0, 1, 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(payload);
        let crc = frame_crc(out.get(start..).unwrap_or_default());
        out.splice(start + 4..start + 8, crc.to_le_bytes());
        out.resize(out.len().next_multiple_of(SECTOR as usize), 0);
    }
    out
}

/// The frames of a plan.
#[cfg(all(feature = "fuzzing", not(loom)))]
pub(crate) fn frames_of(plan: &Plan) -> Vec<(u32, Vec<u8>)> {
    let begin = Begin {
        id: plan.id,
        boot: plan.boot.clone(),
        made: plan.made,
        durable: plan.durable,
        ops: plan.ops.len() as u64,
    };
    let bytes =
        |kind: Frame, bytes: postcard::Result<Vec<u8>>| (kind as u32, bytes.unwrap_or_default());
    vec![
        bytes(Frame::Begin, postcard::to_stdvec(&begin)),
        bytes(Frame::Layers, postcard::to_stdvec(&plan.layers)),
        bytes(Frame::Ops, postcard::to_stdvec(&plan.ops)),
        bytes(Frame::Held, postcard::to_stdvec(&plan.held())),
        bytes(Frame::Ready, Ok(Vec::new())),
        bytes(Frame::Applied, postcard::to_stdvec(&Some(plan.made))),
        bytes(Frame::Done, Ok(Vec::new())),
    ]
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

mod discard;

#[cfg(test)]
mod tests;
