//! For fuzzing: hostile records of the log of light commits.

use super::log::{self, FileRecord, GrownRecord, MoveRecord, Record, TimeRecord};
use super::replay;
use crate::fuzzing::{Input, some_id};
use crate::path;

/// Reads a record; what is read is written the same.
pub(crate) fn record(input: &mut Input<'_>) {
    let sealed = input.byte() & 1 == 0;
    let rest = input.rest();
    let bytes = if sealed { log::sealed(some_id(), rest) } else { rest.to_vec() };
    if let Some(read) = log::read_record(&bytes, 1) {
        assert!(read.length as usize <= bytes.len());
        let again = log::read_record(&read.record.to_bytes(1), 1).map(|r| r.record);
        assert_eq!(again, Some(read.record));
    }
}

/// A valid one.
pub(crate) fn seed() -> Vec<u8> {
    let file = |path: &str, at: u64| FileRecord {
        path: path.into(),
        id: crate::object::FileId { dev: 1, ino: 2 },
        mtime: None,
        pieces: vec![(at, b"old".to_vec(), b"new".to_vec())],
    };
    let id = crate::object::FileId { dev: 1, ino: 2 };
    let (path, tail) = (b"/g".to_vec(), b"tail".to_vec());
    let mut record = Record::new(1, some_id(), false);
    record.files = vec![file("/a", 0), file("/b/c", 4095)];
    record.grown = vec![GrownRecord { path, id, mtime: None, length: 5, tail }];
    record.moves = vec![MoveRecord { from: b"/f".to_vec(), to: b"/t".to_vec(), id }];
    let (before, after) = (crate::version::Stamp { sec: 1, nsec: 2 }, crate::version::Stamp::now());
    record.times = vec![TimeRecord { path: b"/d".to_vec(), id, before, after }];
    record.body()
}

/// Redoes records of a file: what comes out is, byte for byte, what was there or what a record says.
pub(crate) fn redo(input: &mut Input<'_>) {
    crate::fuzzing::in_scratch("redo", |dir| {
        let path = dir.join("file");
        let before: Vec<u8> = (0..5000u32).map(|i| (i % 7) as u8 + b'a').collect();
        let flags = rustix::fs::OFlags::RDONLY;
        let bytes = path.as_os_str().as_encoded_bytes().to_vec();
        if std::fs::write(&path, &before).is_err() {
            return;
        }
        let Ok(version) =
            crate::version::stat_at(rustix::fs::CWD, &bytes, rustix::fs::AtFlags::empty())
        else {
            return;
        };
        assert!(matches!(replay::open(&bytes, version.id, flags), Ok(Some(_))));
        let mut records = Vec::new();
        while !input.is_empty() && records.len() < 8 {
            let at = match input.byte() {
                n @ 0..200 => u64::from(n) * 26,
                200..230 => 4090 + u64::from(input.byte() % 12),
                _ => input.long(),
            };
            let len = usize::from(input.byte() % 32);
            let mut old: Vec<u8> = before.iter().copied().skip(at as usize).take(len).collect();
            old.resize(len, 0);
            if input.byte() & 1 == 0
                && let Some(byte) = old.first_mut()
            {
                *byte ^= 1;
            }
            let new: Vec<u8> = (0..len).map(|_| input.byte()).collect();
            if at.checked_add(len as u64).is_none() {
                continue;
            }
            let files = vec![FileRecord {
                path: bytes.clone(),
                id: version.id,
                mtime: None,
                pieces: vec![(at, old, new)],
            }];
            records.push(Record { files, ..Record::new(1, some_id(), false) });
        }
        let _ = replay::replay(&records, false);
        let after = std::fs::read(path::from_bytes(&bytes)).unwrap_or_default();
        for (i, byte) in after.iter().enumerate() {
            let said = records.iter().flat_map(|r| &r.files).flat_map(|f| &f.pieces).any(
                |(at, _, new)| {
                    (i as u64).checked_sub(*at).is_some_and(|n| new.get(n as usize) == Some(byte))
                },
            );
            assert!(said || before.get(i) == Some(byte), "byte {i} came from nowhere");
        }
        assert!(after.len() >= before.len());
    });
}
