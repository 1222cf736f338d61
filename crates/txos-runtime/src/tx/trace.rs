//! What a call passes and changes of the tree: what its answer rests on, and which earlier answers no longer hold.
//!
//! Processes of a command repeat answers that the server has given to any of them (`front/processes/answers.rs`). An answer
//! rests on the names that were looked up, each in its directory, and on the object that was found. It holds until the transaction
//! changes what is at one of these names, or the object. Other names that come and go in the same directories make no difference,
//! and neither does what outsiders change meanwhile: the transaction's own answer would be the same again, and the commit
//! validates it.

use std::hash::Hasher;

use txos_engine::object::FileKind;

use super::content::Data;
use super::files::Descriptor;
use super::node::{Fold, Id, held};
use super::{Tx, kernel};

/// How many marks there are. Objects whose numbers differ by a multiple of it share one; names share them as their hashes do.
pub const MARKS: usize = 1 << 16;

/// Of how many marks a set tells which they are.
pub const MARKS_TOLD: usize = 32;

/// A set of objects, and of names in directories, by their marks: it may seem to have some that it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    told: [u16; MARKS_TOLD],
    count: usize,
    has_all: bool,
}

impl Marks {
    /// All objects and names.
    pub const ALL: Marks = Marks { told: [0; MARKS_TOLD], count: 0, has_all: true };

    /// Adds an object.
    pub fn insert(&mut self, id: Id) {
        self.add((id % MARKS) as u16);
    }

    /// Adds a name in a directory.
    pub fn insert_name(&mut self, dir: Id, name: &[u8]) {
        let mut fold = Fold::default();
        fold.write_usize(dir);
        fold.write(name);
        self.add((fold.finish() % MARKS as u64) as u16);
    }

    fn add(&mut self, mark: u16) {
        if self.has_all || self.told[..self.count].contains(&mark) {
            return;
        }
        match self.told.get_mut(self.count) {
            Some(free) => {
                *free = mark;
                self.count += 1;
            }
            None => *self = Marks::ALL,
        }
    }

    /// Which marks these are. `None`: all.
    #[must_use]
    pub fn told(&self) -> Option<&[u16]> {
        (!self.has_all).then(|| &self.told[..self.count])
    }
}

/// What was noted of a call.
#[derive(Debug, Default)]
pub struct Trace {
    /// Names that were looked up, and the object that was found.
    pub passed: Marks,
    /// Names that have changed, their directories, and what had or has these names.
    pub changed: Marks,
    /// What the last name that was looked up leads to.
    pub found: Option<Id>,
    /// The answer is one for the process that asks, or for now.
    pub is_personal: bool,
}

impl Trace {
    /// A walk ends at an object.
    pub fn find(&mut self, id: Id) {
        self.found = Some(id);
        self.passed.insert(id);
    }
}

impl Tx {
    /// Notes from here on what a call passes and changes.
    pub fn begin_trace(&mut self) {
        self.tree.trace = Trace::default();
    }

    /// What an answer rests on. `None`: it may be another one for another process, or change without a call of the
    /// transaction's.
    #[must_use]
    pub fn rests_on(&self, answer: i64) -> Option<Marks> {
        let trace = &self.tree.trace;
        let holds = answer < 0 || trace.found.is_some_and(|id| self.is_as_noted(id));
        (holds && !trace.is_personal).then_some(trace.passed)
    }

    /// What is open at a number, and on what the answer to a look at it rests. `None`: as of [`Tx::rests_on`].
    #[must_use]
    pub fn object_at(&self, number: i32) -> Option<(Id, Marks)> {
        let Descriptor::Open { file, .. } = self.fds.descriptor(number) else { return None };
        let id = self.fds.get(file).node?;
        let is_file = self.tree.nodes[id].kind() == FileKind::File;
        let mut marks = Marks::default();
        marks.insert(id);
        (is_file && self.is_as_noted(id)).then_some((id, marks))
    }

    /// The file that is open at a number to be read, if its content can be told once for all who read it: it was read before, so the
    /// read set has it.
    #[must_use]
    pub fn imageable(&self, number: i32, largest: u64) -> Option<Id> {
        let (id, _) = self.object_at(number)?;
        let node = &self.tree.nodes[id];
        let stat = &node.stat;
        let was_read = node.held & held::DATA != 0;
        // One with holes tells where they are, and one of several names by which it was opened.
        let is_plain = stat.blocks.saturating_mul(512) >= stat.size && stat.nlink == 1;
        ((1..=largest).contains(&stat.size) && is_plain && was_read).then_some(id)
    }

    /// The content of that file, which is noted as read. `None`: it can't be read, or has another size by now.
    pub fn content_of(&mut self, number: i32) -> Option<Vec<u8>> {
        let Descriptor::Open { file, real, .. } = self.fds.descriptor(number) else { return None };
        let id = self.fds.get(file).node?;
        self.touch_data(id).ok()?;
        let size = usize::try_from(self.tree.nodes[id].stat.size).ok()?;
        let mut content = vec![0; size + 1];
        let mut filled = 0;
        while filled < content.len() {
            match kernel::pread(real, &mut content[filled..], filled as u64).ok()? {
                0 => break,
                read => filled += read,
            }
        }
        content.truncate(filled);
        (filled == size).then_some(content)
    }

    /// Whether what is open at a number may be written by it.
    #[must_use]
    pub fn is_open_to_write(&self, number: i32) -> bool {
        match self.fds.descriptor(number) {
            Descriptor::Open { file, .. } => self.fds.get(file).writes(),
            _ => false,
        }
    }

    /// Whether an object's attributes change by calls of the transaction's only.
    fn is_as_noted(&self, id: Id) -> bool {
        let node = &self.tree.nodes[id];
        let is_written = || self.fds.on(id).into_iter().any(|file| self.fds.get(file).writes());
        let is_stable = || {
            matches!(node.data, Data::Stable)
                && node.stable.is_some()
                && !(node.kept || node.appended)
                && !is_written()
        };
        match node.kind() {
            FileKind::Dir | FileKind::Symlink => !node.live,
            FileKind::File => !node.live && is_stable(),
            _ => false,
        }
    }

    /// What a call that changes names, or what is open at a number, has changed.
    #[must_use]
    pub fn has_changed(&self, number: Option<i32>) -> Marks {
        let trace = &self.tree.trace;
        let mut changed = trace.changed;
        // It may have been truncated.
        trace.found.into_iter().for_each(|id| changed.insert(id));
        if let Some(Descriptor::Open { file, .. }) =
            number.map(|number| self.fds.descriptor(number))
            && let Some(id) = self.fds.get(file).node
        {
            changed.insert(id);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_names_are_told_apart_by_their_marks() {
        let mut marks = Marks::default();
        [0, 63, 64, 255, MARKS + 63].into_iter().for_each(|id| marks.insert(id));
        assert_eq!(marks.told(), Some(&[0, 63, 64, 255][..]));
        marks.insert_name(1, b"stdio.h");
        marks.insert_name(1, b"stdio.h");
        assert_eq!(marks.told().map(<[u16]>::len), Some(5));
        marks.insert_name(2, b"stdio.h");
        marks.insert_name(1, b"stdlib.h");
        assert_eq!(marks.told().map(<[u16]>::len), Some(7));
    }

    #[test]
    fn a_set_of_too_many_is_of_all() {
        let mut marks = Marks::default();
        (0..MARKS_TOLD).for_each(|id| marks.insert(id));
        assert_eq!(marks.told().map(<[u16]>::len), Some(MARKS_TOLD));
        marks.insert(MARKS_TOLD);
        assert_eq!(marks, Marks::ALL);
        marks.insert(0);
        assert_eq!(marks.told(), None);
    }
}
