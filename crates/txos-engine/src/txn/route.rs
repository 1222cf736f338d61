//! Which way a commit takes.

/// Which way a commit takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Nothing is published. A crash leaves what was there.
    Nothing,
    /// One system call, made at the end. A crash comes before it or after it.
    Call,
    /// One `renameat2(2)` that all calls come to. A crash comes before it or after it.
    Rename,
    /// A record in the redo log, then the bytes in place or the files under their names
    /// ([`crate::commit::light`]). After a crash recovery does again what every complete record says, and ignores an
    /// incomplete one.
    Log,
    /// The journal ([`crate::commit::commit`]). A crash is undone or finished as the table in [`crate::commit`] says.
    Full,
}

/// What a transaction comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It changes nothing.
    Nothing,
    /// The one call that changed something, and that the kernel carries out in one step.
    Call,
    /// One file that has one name instead of another; nothing but names was looked at.
    Rename,
    /// Bytes within files that stay; or a few files that are new, replaced or gone. If it is not durable, both, and bytes
    /// behind the end of files, files that are moved, and times of directories.
    Small,
    /// Anything else.
    Anything,
}

/// What was asked of a commit, besides its changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// A power cut does not undo it.
    pub durable: bool,
    /// It commits in its turn.
    pub ordered: bool,
    /// It stays in the history, and can be reverted.
    pub recorded: bool,
    /// Others decide with it, before anything of it is for good ([`crate::commit::Progress::decide`]).
    pub joint: bool,
}

impl Route {
    /// The way for an outcome. Total: every outcome with every promise has exactly one.
    ///
    /// | outcome | nothing promised | durable | ordered | recorded | joint |
    /// |---|---|---|---|---|---|
    /// | nothing | `Nothing` | `Nothing` | `Nothing` | `Nothing` | `Nothing` |
    /// | one call | `Call` | `Full` | `Full` | `Full` | `Full` |
    /// | one rename | `Rename` | `Full` | `Full` | `Full` | `Full` |
    /// | small | `Log` | `Log` | `Log` | `Full` | `Full` |
    /// | anything else | `Full` | `Full` | `Full` | `Full` | `Full` |
    ///
    /// A log that a change set does not fit into leads to `Full` ([`super::Txn::commit_by_log`]).
    #[must_use]
    pub fn of(outcome: Outcome, promises: Promises) -> Route {
        let Promises { durable, ordered, recorded, joint } = promises;
        let plain = !(durable || ordered || recorded || joint);
        match outcome {
            Outcome::Nothing => Route::Nothing,
            Outcome::Call if plain => Route::Call,
            Outcome::Rename if plain => Route::Rename,
            Outcome::Small if !(recorded || joint) => Route::Log,
            _ => Route::Full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_one_route() {
        let promises = |bits: u8| Promises {
            durable: bits & 1 != 0,
            ordered: bits & 2 != 0,
            recorded: bits & 4 != 0,
            joint: bits & 8 != 0,
        };
        for bits in 0..16 {
            let asked = promises(bits);
            assert_eq!(Route::of(Outcome::Nothing, asked), Route::Nothing);
            assert_eq!(Route::of(Outcome::Anything, asked), Route::Full);
            let (call, rename) =
                if bits == 0 { (Route::Call, Route::Rename) } else { (Route::Full, Route::Full) };
            assert_eq!(Route::of(Outcome::Call, asked), call, "{asked:?}");
            assert_eq!(Route::of(Outcome::Rename, asked), rename, "{asked:?}");
            let log = if asked.recorded || asked.joint { Route::Full } else { Route::Log };
            assert_eq!(Route::of(Outcome::Small, asked), log, "{asked:?}");
        }
    }
}
