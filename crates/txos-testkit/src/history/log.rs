//! Histories on disk. Each process writes a file of its own, a record before each transaction and
//! one after it, each record by one write(2): so what a process had begun when it was killed, and
//! what it knew to have ended, is there, whenever that was. What began and did not end is
//! indeterminate.
//!
//! A file starts with `TXHIST1\n` and the process (4 bytes). Each record is its length and the
//! FNV-1a checksum of its bytes (4 and 8 bytes), then: a kind (1 byte), the transaction's number in
//! this file (4), a stamp (8), and operations, each a kind (1), a key (8), and a value (8), or of a
//! read list the number of values (4) and these (8 each). All numbers are little-endian. The last
//! record of a file may be torn; nothing else may.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use super::op::{History, NEVER, Op, Outcome, Transaction};

const MAGIC: &[u8; 8] = b"TXHIST1\n";
const EXTENSION: &str = "history";
const FRAME: usize = 12;

const INVOKED: u8 = 0;
const COMMITTED: u8 = 1;
const ABORTED: u8 = 2;
const INDETERMINATE: u8 = 3;

/// The time that stamps are of: that of the machine since it was started, in nanoseconds.
#[must_use]
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// One process's part of a history.
#[derive(Debug)]
pub struct Writer {
    file: File,
    process: u32,
    count: u32,
    record: Vec<u8>,
}

impl Writer {
    /// Starts the file of a process in a directory.
    ///
    /// # Errors
    /// If it can't be made, or is there: a process that was killed does not come back, the one that
    /// takes its place has a number of its own.
    pub fn create(dir: &Path, process: u32) -> io::Result<Writer> {
        let path = dir.join(format!("{process}.{EXTENSION}"));
        let file = OpenOptions::new().append(true).create_new(true).open(path)?;
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&process.to_le_bytes());
        (&file).write_all(&header)?;
        Ok(Writer { file, process, count: 0, record: Vec::new() })
    }

    /// Tells that a transaction is about to start, and what it is going to do: all that it may
    /// write, with the values; what its reads have is ignored. When this returns, the kernel has it.
    /// Gives the transaction's id: the process in the upper half, a number in the lower.
    ///
    /// # Errors
    /// If it can't be written; then the transaction must not start, and the writer has no further
    /// use.
    pub fn invoke(&mut self, planned: &[Op]) -> io::Result<u64> {
        let number = self.count;
        self.count += 1;
        let stamp = now();
        self.put(INVOKED, number, stamp, planned)?;
        Ok(id(self.process, number))
    }

    /// Tells how a transaction ended, and, if it committed, all that it did, with what it read. What
    /// did not commit is taken to have meant to write what it planned.
    ///
    /// # Errors
    /// If it can't be written, or the transaction is not of this writer.
    pub fn complete(&mut self, transaction: u64, outcome: Outcome, ops: &[Op]) -> io::Result<()> {
        let stamp = now();
        let number = u32::try_from(transaction & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        if id(self.process, number) != transaction || number >= self.count {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not invoked here"));
        }
        let kind = match outcome {
            Outcome::Committed => COMMITTED,
            Outcome::Aborted => ABORTED,
            Outcome::Indeterminate => INDETERMINATE,
        };
        self.put(kind, number, stamp, ops)
    }

    fn put(&mut self, kind: u8, number: u32, stamp: u64, ops: &[Op]) -> io::Result<()> {
        let record = &mut self.record;
        record.clear();
        record.resize(FRAME, 0);
        record.push(kind);
        record.extend_from_slice(&number.to_le_bytes());
        record.extend_from_slice(&stamp.to_le_bytes());
        for op in ops {
            put_op(record, op);
        }
        let length = u32::try_from(record.len() - FRAME)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the record is too long"))?;
        let sum = checksum(&record[FRAME..]);
        record[..4].copy_from_slice(&length.to_le_bytes());
        record[4..FRAME].copy_from_slice(&sum.to_le_bytes());
        self.file.write_all(record)
    }
}

fn id(process: u32, number: u32) -> u64 {
    u64::from(process) << 32 | u64::from(number)
}

fn put_op(record: &mut Vec<u8>, op: &Op) {
    let (kind, value) = match op {
        Op::Append { value, .. } => (0, *value),
        Op::ReadList { .. } => (1, 0),
        Op::Write { value, .. } => (2, *value),
        Op::ReadRegister { value, .. } => (3, *value),
    };
    record.push(kind);
    record.extend_from_slice(&op.key().to_le_bytes());
    if let Op::ReadList { values, .. } = op {
        // A record that this does not fit is refused for its length.
        record.extend_from_slice(&u32::try_from(values.len()).unwrap_or(u32::MAX).to_le_bytes());
        values.iter().for_each(|value| record.extend_from_slice(&value.to_le_bytes()));
    } else {
        record.extend_from_slice(&value.to_le_bytes());
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    // Not zero for nothing: zeros are what a power cut leaves.
    !u64::from(crc32fast::hash(bytes))
}

/// Reads the histories of all processes that wrote into a directory; they may still be writing.
///
/// # Errors
/// If a file can't be read, or has something wrong that is not a torn end.
pub fn read_all(dir: &Path) -> io::Result<History> {
    let mut history = History::default();
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION) {
            paths.push(path);
        }
    }
    paths.sort();
    for path in paths {
        let bytes = std::fs::read(&path)?;
        read(&bytes, &mut history.transactions).ok_or_else(|| {
            let what = format!("{}: not a history, or damaged", path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
    }
    Ok(history)
}

/// Reads one file; nothing, if it is damaged.
fn read(bytes: &[u8], transactions: &mut Vec<Transaction>) -> Option<()> {
    let mut input = Input(bytes);
    let (Some(magic), Some(process)) = (input.take(MAGIC.len()), input.u32()) else {
        // Killed before it had written this much.
        return MAGIC.starts_with(bytes.get(..MAGIC.len()).unwrap_or(bytes)).then_some(());
    };
    if magic != MAGIC {
        return None;
    }
    let first = transactions.len();
    while let Some(record) = input.record()? {
        let mut record = Input(record);
        let (kind, number, stamp) = (record.u8()?, record.u32()?, record.u64()?);
        let mut ops = Vec::new();
        while !record.0.is_empty() {
            ops.push(record.op()?);
        }
        if kind == INVOKED {
            if number as usize != transactions.len() - first {
                return None;
            }
            ops.retain(|op| op.written().is_some());
            transactions.push(Transaction {
                id: id(process, number),
                process: u64::from(process),
                invoked: stamp,
                completed: NEVER,
                outcome: Outcome::Indeterminate,
                ops,
            });
            continue;
        }
        let transaction = transactions[first..].get_mut(number as usize)?;
        match kind {
            COMMITTED => {
                transaction.outcome = Outcome::Committed;
                transaction.ops = ops;
            }
            ABORTED => transaction.outcome = Outcome::Aborted,
            INDETERMINATE => continue,
            _ => return None,
        }
        transaction.completed = stamp;
    }
    Some(())
}

/// What is still to be read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// The next record. `Some(None)` at the end, be it torn, with zeros behind it as after a power
    /// cut; `None` if there is more behind what is wrong.
    fn record(&mut self) -> Option<Option<&'a [u8]>> {
        let (Some(length), Some(sum)) = (self.u32(), self.u64()) else { return Some(None) };
        let record = self.take(length as usize);
        match record {
            None => Some(None),
            Some(record) if checksum(record) == sum => Some(Some(record)),
            Some(_) if self.0.iter().all(|byte| *byte == 0) => Some(None),
            Some(_) => None,
        }
    }

    fn op(&mut self) -> Option<Op> {
        let (kind, key) = (self.u8()?, self.u64()?);
        Some(match kind {
            0 => Op::Append { key, value: self.u64()? },
            1 => {
                let count = self.u32()? as usize;
                let values = self.take(count.checked_mul(8)?)?;
                let values = values.as_chunks().0.iter().map(|v| u64::from_le_bytes(*v)).collect();
                Op::ReadList { key, values }
            }
            2 => Op::Write { key, value: self.u64()? },
            3 => Op::ReadRegister { key, value: self.u64()? },
            _ => return None,
        })
    }
}
