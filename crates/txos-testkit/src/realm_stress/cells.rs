//! The shared file: a page of header, then cells, then boards.
//!
//! A *cell* is a length and room for [`ROOM`] values. Read as a list it is all of them, as a register
//! the last; even cells are lists, odd ones registers, so that the order of a register's versions
//! can be told too. Cells fill up, so they are used in *lanes*: lane *l* of *L* is the cells *l*,
//! *l* + *L*, *l* + 2 *L*, …, of which the first that is not full is used.
//!
//! A *board* has a register for each worker. Writing one's own commutes with others' doing the same.
//!
//! # Safety
//!
//! Everything is read and written as atomics, for which every bit pattern is a value; all access is
//! by checked index; the mapping lives as long as the value, and nobody makes the file shorter.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use txos_engine::object::FileId;
use txos_engine::realm::Facet;

/// Values that fit into a cell.
pub const ROOM: usize = 64;
/// Workers that a board has a register for: those with lower numbers.
pub const BOARD_ROOM: usize = 512;
/// Boards.
pub const BOARDS: usize = 2;

const HEADER: usize = 512;
const CELL: usize = 72;

/// The file's name in a site.
pub const NAME: &str = "cells";

/// The mapped file.
#[derive(Debug)]
pub struct Cells {
    base: NonNull<AtomicU64>,
    words: usize,
    count: usize,
}

// SAFETY: the mapping belongs to the value and is used through atomics only.
unsafe impl Send for Cells {}
// SAFETY: as above.
unsafe impl Sync for Cells {}

impl Cells {
    /// Makes the file in a directory, with a number of cells.
    ///
    /// # Panics
    /// If it can't be made.
    #[must_use]
    pub fn create(dir: &Path, count: usize) -> Cells {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(dir.join(NAME))
            .expect("making the cells");
        let words = HEADER + count * CELL + BOARDS * BOARD_ROOM;
        file.set_len(8 * words as u64).expect("the length of the cells");
        Cells::map(&file)
    }

    /// Maps those of a directory.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn open(dir: &Path) -> Cells {
        let file = OpenOptions::new().read(true).write(true).open(dir.join(NAME));
        Cells::map(&file.expect("opening the cells"))
    }

    fn map(file: &File) -> Cells {
        let length = file.metadata().expect("the length of the cells").len() as usize;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), length, prot, MapFlags::SHARED, file, 0) };
        let base = NonNull::new(base.expect("mapping the cells").cast()).expect("an address");
        let words = length / 8;
        Cells { base, words, count: (words - HEADER - BOARDS * BOARD_ROOM) / CELL }
    }

    fn word(&self, n: usize) -> &AtomicU64 {
        assert!(n < self.words, "the cells end before word {n}");
        // SAFETY: within the mapping, aligned since mappings are; see the head of this file.
        unsafe { self.base.add(n).as_ref() }
    }

    /// The number of cells.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Transactions that are still to be run by whoever takes them.
    #[must_use]
    pub fn budget(&self) -> &AtomicU64 {
        self.word(8)
    }

    /// Transactions that were run.
    #[must_use]
    pub fn progress(&self) -> &AtomicU64 {
        self.word(16)
    }

    /// Takes one of the transactions that are to be run.
    #[must_use]
    pub fn take(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        self.budget().fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// What is in a cell, first to last.
    #[must_use]
    pub fn read(&self, cell: usize) -> Vec<u64> {
        let at = self.length_at(cell) as usize;
        let length = (self.load(at as u64) as usize).min(ROOM);
        (1..=length).map(|n| self.word(at + n).load(Ordering::Acquire)).collect()
    }

    /// The register of a worker on a board.
    #[must_use]
    pub fn read_board(&self, board: usize, worker: usize) -> u64 {
        self.load(self.board_at(board, worker))
    }

    /// The number of the word that has a cell's length; the values are behind it.
    #[must_use]
    pub fn length_at(&self, cell: usize) -> u64 {
        assert!(cell < self.count, "there is no cell {cell}");
        (HEADER + cell * CELL) as u64
    }

    /// The number of the word of a worker on a board.
    #[must_use]
    pub fn board_at(&self, board: usize, worker: usize) -> u64 {
        assert!(board < BOARDS && worker < BOARD_ROOM, "no register {worker} of board {board}");
        (HEADER + self.count * CELL + board * BOARD_ROOM + worker) as u64
    }

    /// A word.
    #[must_use]
    pub fn load(&self, word: u64) -> u64 {
        self.word(word as usize).load(Ordering::Acquire)
    }

    /// Sets a word.
    pub fn store(&self, word: u64, value: u64) {
        self.word(word as usize).store(value, Ordering::Release);
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and no reference into it outlives the value.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), 8 * self.words) };
    }
}

const FILE: FileId = FileId { dev: 1, ino: 1 };

/// The facet that guards a cell.
#[must_use]
pub fn facet(cell: usize) -> Facet<'static> {
    Facet::Page { file: FILE, number: cell as u64 }
}

/// The facet that guards a board.
#[must_use]
pub fn board_facet(board: usize) -> Facet<'static> {
    Facet::Extent(FileId { ino: 1000 + board as u64, ..FILE })
}

/// The key of a worker's register on a board; those of cells are their numbers.
#[must_use]
pub fn board_key(board: usize, worker: usize) -> u64 {
    1 << 40 | (board as u64) << 20 | worker as u64
}

/// Whether a cell is a list.
#[must_use]
pub fn is_list(cell: usize) -> bool {
    cell.is_multiple_of(2)
}
