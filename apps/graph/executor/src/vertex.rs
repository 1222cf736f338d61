//! The file of a vertex.
//!
//! Words of 32 bits, little-endian: the number of neighbours, the number of changes, the neighbours ascending, three words
//! for each change, and zeros up to a multiple of 256 bytes. A file grows by such steps, and does not shrink, so that most
//! changes are small ones in place, which commit by the shortest way.
//!
//! The changes are those of the newest block that has changed the vertex: the block's height, the neighbour, 1 if it was
//! added and 0 if it was removed. With these an executor that was killed in the middle of a block takes back what that
//! block has done so far. They are no part of what is hashed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use sha2::{Digest, Sha256};

/// A hash.
pub type Hash = [u8; 32];

/// One change of a vertex within a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The block's height.
    pub height: u32,
    /// The neighbour.
    pub neighbour: u32,
    /// Whether it was added.
    pub added: bool,
}

/// By how many bytes a file grows.
const STEP: usize = 256;

/// A vertex, as its file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vertex {
    /// Ascending.
    pub neighbours: Vec<u32>,
    /// Of the newest block that changed it.
    pub changes: Vec<Change>,
    /// The size of its file in bytes; 0 if there is none yet.
    size: usize,
}

/// The name of a vertex's file.
pub fn name(vertex: u32) -> String {
    format!("{vertex:05}")
}

fn damaged(vertex: u32, what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the file of vertex {vertex} is damaged: {what}"),
    )
}

impl Vertex {
    /// Reads it from the working directory.
    ///
    /// # Errors
    /// The file's, with its name; `InvalidData` if its content is not that of a vertex.
    pub fn read(vertex: u32, buffer: &mut Vec<u8>) -> io::Result<Vertex> {
        Self::bytes(vertex, buffer)?;
        Self::parse(vertex, buffer)
    }

    fn bytes(vertex: u32, buffer: &mut Vec<u8>) -> io::Result<()> {
        // (Without the look at the file's size that `read_to_end` begins with.)
        let mut file = File::open(name(vertex)).map_err(|e| of(vertex, "open", e))?;
        buffer.resize(buffer.capacity().max(8192), 0);
        let mut filled = 0;
        loop {
            let read = file.read(&mut buffer[filled..]).map_err(|e| of(vertex, "read", e))?;
            filled += read;
            if filled < buffer.len() {
                buffer.truncate(filled);
                return Ok(());
            }
            buffer.resize(buffer.len() * 2, 0);
        }
    }

    fn parse(vertex: u32, bytes: &[u8]) -> io::Result<Vertex> {
        let (words, rest) = bytes.as_chunks::<4>();
        let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
        let (Some(count), Some(changes)) = (words.next(), words.next()) else {
            return Err(damaged(vertex, "it is too short"));
        };
        let (count, changes) = (count as usize, changes as usize);
        if !rest.is_empty() || count.saturating_add(changes.saturating_mul(3)) > words.len() {
            return Err(damaged(vertex, "its size is not what it says"));
        }
        let neighbours: Vec<u32> = words.by_ref().take(count).collect();
        if !neighbours.is_sorted_by(|a, b| a < b) {
            return Err(damaged(vertex, "its neighbours are not in order"));
        }
        let mut vertex =
            Vertex { neighbours, changes: Vec::with_capacity(changes), size: bytes.len() };
        while let (true, Some(height), Some(neighbour), Some(added)) =
            (vertex.changes.len() < changes, words.next(), words.next(), words.next())
        {
            vertex.changes.push(Change { height, neighbour, added: added != 0 });
        }
        Ok(vertex)
    }

    /// One that has no file yet.
    pub fn new(neighbours: Vec<u32>) -> Vertex {
        Vertex { neighbours, ..Vertex::default() }
    }

    fn encode(&self) -> Vec<u8> {
        let changes = self.changes.iter().flat_map(|c| [c.height, c.neighbour, u32::from(c.added)]);
        let counts = [self.neighbours.len() as u32, self.changes.len() as u32];
        let words = counts.into_iter().chain(self.neighbours.iter().copied()).chain(changes);
        let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        bytes.resize(bytes.len().next_multiple_of(STEP).max(self.size), 0);
        bytes
    }

    /// Writes all of it, for the first time.
    ///
    /// # Errors
    /// The file's.
    pub fn create(&self, vertex: u32) -> io::Result<()> {
        std::fs::write(name(vertex), self.encode()).map_err(|e| of(vertex, "write", e))
    }

    /// Writes what is different from what was there.
    ///
    /// # Errors
    /// The file's.
    pub fn write(&self, vertex: u32, before: &Vertex) -> io::Result<()> {
        let (new, mut old) = (self.encode(), before.encode());
        let grown = new.len().saturating_sub(old.len());
        old.resize(new.len(), 0);
        let differs = |(a, b): (&u8, &u8)| a != b;
        let Some(first) = new.iter().zip(&old).position(differs) else { return Ok(()) };
        let same_at_end = new.iter().rev().zip(old.iter().rev()).position(differs).unwrap_or(0);
        let end = if grown > 0 { new.len() } else { new.len() - same_at_end };
        let file =
            OpenOptions::new().write(true).open(name(vertex)).map_err(|e| of(vertex, "open", e))?;
        file.write_all_at(&new[first..end], first as u64).map_err(|e| of(vertex, "write", e))
    }

    /// Adds or removes a neighbour in a block; whether that changes anything.
    pub fn change(&mut self, change: Change) -> bool {
        match (self.neighbours.binary_search(&change.neighbour), change.added) {
            (Err(at), true) => self.neighbours.insert(at, change.neighbour),
            (Ok(at), false) => {
                self.neighbours.remove(at);
            }
            _ => return false,
        }
        self.changes.retain(|earlier| earlier.height == change.height);
        self.changes.push(change);
        true
    }

    /// Takes back what blocks above a height have done; whether there was anything.
    pub fn take_back(&mut self, height: u32) -> bool {
        let before = self.changes.len();
        while let Some(change) = self.changes.pop_if(|change| change.height > height) {
            match (self.neighbours.binary_search(&change.neighbour), change.added) {
                (Ok(at), true) => {
                    self.neighbours.remove(at);
                }
                (Err(at), false) => self.neighbours.insert(at, change.neighbour),
                _ => {}
            }
        }
        self.changes.len() != before
    }

    /// Of its neighbours.
    pub fn hash(&self) -> Hash {
        let count = self.neighbours.len() as u32;
        let mut bytes = Vec::with_capacity(4 + 4 * self.neighbours.len());
        for word in std::iter::once(&count).chain(&self.neighbours) {
            bytes.extend(word.to_le_bytes());
        }
        Sha256::digest(bytes).into()
    }
}

fn of(vertex: u32, step: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{step} the file of vertex {vertex}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_damaged_is_reported() {
        let mut vertex = Vertex::new(vec![1, 5, 9]);
        assert!(!vertex.change(Change { height: 3, neighbour: 5, added: true }));
        assert!(vertex.change(Change { height: 3, neighbour: 7, added: true }));
        vertex.size = 256;
        let bytes = vertex.encode();
        assert_eq!(bytes.len(), 256);
        assert_eq!(Vertex::parse(0, &bytes).ok(), Some(vertex));
        let used = 4 * (2 + 4 + 3);
        for cut in 0..bytes.len() {
            assert_eq!(
                Vertex::parse(0, &bytes[..cut]).is_ok(),
                cut >= used && cut % 4 == 0,
                "{cut}"
            );
        }
        for twice in [[2_u32, 0, 5, 5], [2, 0, 7, 5], [3, 0, 5, 7], [1, 1, 5, 7]] {
            let bytes: Vec<u8> = twice.into_iter().flat_map(u32::to_le_bytes).collect();
            assert!(Vertex::parse(0, &bytes).is_err(), "{twice:?}");
        }
    }

    #[test]
    fn a_block_is_taken_back() {
        let first = Vertex::new(vec![1, 5, 9]);
        let mut vertex = first.clone();
        for (neighbour, added) in [(7, true), (1, false), (7, false), (7, true), (1, true)] {
            assert!(vertex.change(Change { height: 4, neighbour, added }));
        }
        assert_eq!(vertex.neighbours, [1, 5, 7, 9]);
        let committed = vertex.clone();
        assert!(!vertex.take_back(4) && vertex == committed);
        assert!(vertex.take_back(3));
        assert_eq!(vertex, first);
    }
}
