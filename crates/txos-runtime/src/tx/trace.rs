//! What a call passes and changes of the tree: what its answer rests on, and which earlier answers no longer hold.
//!
//! Processes of a command repeat answers that the server has given to any of them (`front/processes/answers.rs`). An answer
//! rests on the directories that were walked through and on the object that was found. It holds until one of these is changed
//! by the transaction. What outsiders change meanwhile makes no difference: the transaction's own answer would be the same
//! again, and the commit validates it.

use txos_engine::object::FileKind;

use super::Tx;
use super::content::Data;
use super::files::Descriptor;
use super::node::Id;

/// How many marks there are. Objects whose numbers differ by a multiple of it share one.
pub const MARKS: usize = 256;

/// A set of objects, by their marks: it may seem to have some that it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(pub [u64; MARKS / 64]);

impl Marks {
    /// All objects.
    pub const ALL: Marks = Marks([u64::MAX; MARKS / 64]);

    /// Adds an object.
    pub fn insert(&mut self, id: Id) {
        let mark = id % MARKS;
        self.0[mark / 64] |= 1 << (mark % 64);
    }

    /// Which marks these are.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MARKS).filter(move |mark| self.0[mark / 64] >> (mark % 64) & 1 != 0)
    }
}

/// What was noted of a call.
#[derive(Debug, Default)]
pub struct Trace {
    /// Directories that were walked through, and objects that were found.
    pub passed: Marks,
    /// Directories whose names have changed, and what had or has these names.
    pub changed: Marks,
    /// What the last name that was looked up leads to.
    pub found: Option<Id>,
    /// The answer is one for the process that asks, or for now.
    pub is_personal: bool,
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

    /// Whether an object's attributes change by calls of the transaction's only.
    fn is_as_noted(&self, id: Id) -> bool {
        let node = &self.tree.nodes[id];
        let is_written = || {
            let writes = |flags: i32| flags & libc::O_ACCMODE != libc::O_RDONLY;
            self.fds.on(id).into_iter().any(|file| writes(self.fds.get(file).flags))
        };
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
    fn objects_are_told_apart_by_their_marks() {
        let mut marks = Marks::default();
        [0, 63, 64, 255, 256 + 7].into_iter().for_each(|id| marks.insert(id));
        assert_eq!(marks.iter().collect::<Vec<_>>(), [0, 7, 63, 64, 255]);
        assert_eq!(Marks::ALL.iter().count(), MARKS);
    }
}
