//! Redo records: each worker has a file with the last one it wrote, and gives that file to the
//! realm as its home, so that it is found when the worker is dead. Its threads have files beside it.
//!
//! A record has the name of its transaction, the words it sets, and a checksum. It decides about a
//! publish: if it is complete and of the transaction that was publishing, setting its words again
//! finishes that; if it is torn, or an earlier transaction's, no word was set yet.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use txos_engine::TxId;
use txos_engine::realm::{DeadPublish, PublishFate, ResolvePublish, Unresolved};

use super::cells::Cells;
use super::points;

/// Threads that a worker can have.
pub const THREADS_MAX: u32 = 4;

/// A word and what it becomes.
pub type Entry = (u64, u64);

/// The file of the records of one worker.
#[derive(Debug)]
pub struct Journal {
    file: File,
    bytes: Vec<u8>,
}

/// Where a worker's is.
#[must_use]
pub fn path(dir: &Path, worker: u32) -> PathBuf {
    dir.join(format!("journal-{worker}"))
}

/// Where one of its threads' is, for a thread other than the first.
#[must_use]
pub fn of_thread(first: &Path, thread: u32) -> PathBuf {
    first.with_extension(thread.to_string())
}

impl Journal {
    /// Makes one, or takes over what is there.
    ///
    /// # Panics
    /// If it can't be made.
    #[must_use]
    pub fn create(path: &Path) -> Journal {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .expect("making the journal");
        Journal { file, bytes: Vec::new() }
    }

    /// Writes a record. When this returns, the kernel has it.
    ///
    /// # Panics
    /// If it can't be written.
    pub fn write(&mut self, id: TxId, entries: &[Entry]) {
        let bytes = &mut self.bytes;
        bytes.clear();
        bytes.extend_from_slice(id.as_bytes());
        bytes.extend_from_slice(&(entries.len() as u64).to_le_bytes());
        for (word, value) in entries {
            bytes.extend_from_slice(&word.to_le_bytes());
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        bytes.extend_from_slice(&checksum(bytes).to_le_bytes());
        let half = bytes.len() / 2;
        let (first, second) = bytes.split_at(half);
        if points::any() {
            self.file.write_all_at(first, 0).expect("writing a record");
            points::reach("half");
            self.file.write_all_at(second, half as u64).expect("writing a record");
        } else {
            self.file.write_all_at(bytes, 0).expect("writing a record");
        }
    }
}

/// The entries of the record in a file, if it is complete and that transaction's.
fn read(path: &Path, id: TxId) -> std::io::Result<Option<Vec<Entry>>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    Ok(parse(&bytes, id))
}

fn parse(bytes: &[u8], id: TxId) -> Option<Vec<Entry>> {
    let long = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let count = usize::try_from(long(8)?).ok()?;
    let end = count.checked_mul(16)?.checked_add(16)?;
    let sound = bytes.starts_with(id.as_bytes()) && long(end)? == checksum(bytes.get(..end)?);
    let entry = |n: usize| Some((long(16 + 16 * n)?, long(24 + 16 * n)?));
    sound.then(|| (0..count).map(entry).collect())?
}

fn checksum(bytes: &[u8]) -> u64 {
    u64::from(crc32fast::hash(bytes))
}

/// Sets the words of a record.
pub fn apply(cells: &Cells, entries: &[Entry], point: &str) {
    for (word, value) in entries {
        cells.store(*word, *value);
        points::reach(point);
    }
}

/// Decides by the records what became of dead publishers.
#[must_use]
pub fn settle(cells: Arc<Cells>) -> Box<dyn ResolvePublish> {
    Box::new(move |remains: &DeadPublish| {
        points::reach("settling");
        // A single call sets one word last, and so is whole without a record.
        let Some(id) = remains.id else { return Ok(PublishFate::Undone) };
        if remains.home.as_os_str().is_empty() {
            return Err(Unresolved(format!("process {} has no journal", remains.pid)));
        }
        let threads = (1..THREADS_MAX).map(|thread| of_thread(&remains.home, thread));
        for path in std::iter::once(remains.home.clone()).chain(threads) {
            match read(&path, id) {
                Ok(Some(entries)) => {
                    apply(&cells, &entries, "settle");
                    return Ok(PublishFate::Committed);
                }
                Ok(None) => {}
                Err(e) => return Err(Unresolved(format!("{}: {e}", path.display()))),
            }
        }
        Ok(PublishFate::Undone)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_only_if_it_is_complete_and_of_that_transaction() {
        let dir = std::env::temp_dir().join(format!("txos-record-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let (id, other) = (TxId::from_bits(1), TxId::from_bits(2));
        let entries = [(7, 1), (8, 2), (7, 3)];
        let path = path(&dir, 1);
        let mut journal = Journal::create(&path);
        assert_eq!(read(&path, id).unwrap(), None);
        journal.write(id, &entries);
        assert_eq!(read(&path, id).unwrap().as_deref(), Some(&entries[..]));
        assert_eq!(read(&path, other).unwrap(), None);
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length], id), None, "cut at {length}");
        }
        // Half of another record over it.
        journal.write(other, &entries[..1]);
        let mut torn = std::fs::read(&path).unwrap();
        torn[30..].copy_from_slice(&whole[30..]);
        assert_eq!((parse(&torn, id), parse(&torn, other)), (None, None));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
