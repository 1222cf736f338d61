//! A transaction within another one: `txos run` in a command that runs in a transaction.
//!
//! The inner one begins with copies of the outer one's private copies, as they are at that time, over the same
//! stable tree. If its command fails, it is discarded. If it succeeds, what it changed is done again in the view of the
//! outer one, by ordinary operations ([`Replay`](crate::changeset::Replay)): there it is seen at once by every process, and needs
//! nothing that overlayfs would not know of.
//!
//! # Invariants
//!
//! - The outer one's processes go on meanwhile. What they change and the inner one has changed or looked at is a
//!   conflict, and the inner one is discarded ([`Inside::conflicts`]). Only the names that a directory lists are not
//!   compared.
//! - What the inner command has seen of the stable tree is handed to the outer one, whether it succeeds or not
//!   ([`Inside::hand_over_reads`]): the outer command went on with its outcome.
//! - While the steps are done, a mark lies in the outer one's directory ([`Inside::begin_handover`]). An outer
//!   transaction that finds the mark at its end ([`Transaction::take_over`]) may hold half of an inner one, and is not committed.
//!
//! ```text
//! tx/OUTER/inner/ID.reads   what the inner transaction ID has seen
//! tx/OUTER/inner/ID.half    its steps are being done
//! tx/OUTER/inner/ID.record  how it ended, for the outer one's record
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::before::make_dir_once;
use super::merge::{Changed, below_upper, conflict, is_copied_up, lasting, marks};
use super::savepoint::{self, Item, Tree};
use super::{Begin, Home, Layer, LayerRequest, Stack, Transaction};
use crate::error::{Conflict, ConflictKind, Context, Error, Result};
use crate::id::TxId;
use crate::object::FileKind;
use crate::path::layer::is_at_or_below;
use crate::readset::ReadSet;
use crate::version::Stamp;

/// How often the private copies are looked at until they stay the same for as long as copying takes.
const ATTEMPTS_MAX: usize = 5;

/// How many conflicts are named.
const CONFLICTS_MAX: usize = 16;

/// An inner transaction.
#[derive(Debug)]
pub struct Inside {
    outer: Transaction,
    /// The entries of the outer one's layers when they were copied.
    copied: Vec<Tree>,
    /// The inner one's own, before its command.
    base: Vec<Tree>,
}

/// A transaction that ran inside of another one, as that one's record has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsideRecord {
    /// Its id. There is nothing in the store of that name any more.
    pub id: TxId,
    /// `--name`, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `--message`, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Its command, each word quoted if need be.
    pub command: Vec<String>,
    /// Whether the command had arguments that were not to be recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub arguments_hidden: bool,
    /// When it began.
    pub begun: Stamp,
    /// When it had ended, and what it changed was there or gone.
    pub ended: Stamp,
    /// Status with which the command ended; none if it was stopped.
    pub exit_status: Option<i32>,
    /// Whether what it changed is part of the outer one; else it was rolled back.
    pub succeeded: bool,
    /// Number of paths that it changed, if it succeeded.
    pub changes: u64,
}

impl InsideRecord {
    /// The index of the layer whose command it ran in; none if that command's changes are not there.
    #[must_use]
    pub fn layer_in(&self, stack: &Stack) -> Option<usize> {
        stack.layers.iter().position(|layer| {
            layer.begun.is_none_or(|begun| begun <= self.begun)
                && layer.ended.is_none_or(|ended| self.ended <= ended)
        })
    }
}

/// What the inner transactions of one have left to it.
#[derive(Debug, Default)]
pub struct Handover {
    /// How they ended.
    pub records: Vec<InsideRecord>,
    /// What they have seen of the stable tree, and it is not what the outer one has seen.
    pub differ: Option<Conflict>,
    /// One was interrupted while its changes were done.
    pub half: Option<TxId>,
}

impl Home {
    /// Begins a transaction within one that runs.
    ///
    /// # Errors
    /// [`Error::WrongState`] if none runs there, [`Error::Io`] with the step: what was made is discarded again.
    pub fn begin_inside(&self, outer: TxId, mut begin: Begin) -> Result<(Transaction, Inside)> {
        let outer = self.load_published(outer)?;
        outer.meta.check_same_rights()?;
        if !self.is_held(outer.id()) {
            return Err(Error::WrongState {
                id: outer.id(),
                state: "without a command that runs".into(),
                advice: "`txos exec` runs one more command in a pending transaction.".into(),
            });
        }
        let request = |layer: Layer| LayerRequest { target: layer.target, store: layer.store };
        begin.layers = outer.layers().into_iter().map(request).collect();
        let tx = self.begin(begin)?;
        let mut inside = Inside { outer, copied: Vec::new(), base: Vec::new() };
        match inside.fill(&tx) {
            Ok(()) => Ok((tx, inside)),
            Err(error) => {
                // Failing to, `gc` does it.
                let _ = self.discard(tx);
                Err(error)
            }
        }
    }
}

impl Inside {
    fn fill(&mut self, tx: &Transaction) -> Result<()> {
        tx.prepare_upper()?;
        let _rights = crate::sys_owner::rights();
        for (from, to) in self.outer.layers().iter().zip(tx.layers()) {
            let _ = make_dir_once(&savepoint::place(&to))?;
            let (copied, base) = copy(from, &to)?;
            self.copied.push(copied);
            self.base.push(base);
        }
        Ok(())
    }

    /// Which transaction this one is inside of.
    #[must_use]
    pub fn outer(&self) -> TxId {
        self.outer.id()
    }

    /// Does something with each layer of the outer one as it was copied, and of the inner one as it is now.
    ///
    /// # Errors
    /// [`Error::Io`] with what can't be read; those of `each`.
    pub(crate) fn each_layer(
        &self,
        tx: &Transaction,
        mut each: impl FnMut((&Layer, &Tree), (&Layer, &Tree)) -> Result<()>,
    ) -> Result<()> {
        let _rights = crate::sys_owner::rights();
        let outer = self.outer.layers();
        for ((layer, copied), base) in tx.layers().iter().zip(&outer).zip(&self.base) {
            let now = savepoint::look(layer, Some(base))?;
            each((copied, base), (layer, &now))?;
        }
        Ok(())
    }

    /// What processes of the outer transaction have changed meanwhile of what the inner one changes, path by path and
    /// perhaps with all below, or has looked at.
    ///
    /// # Errors
    /// [`Error::Io`] with what can't be read.
    pub(crate) fn conflicts(
        &self,
        tx: &Transaction,
        changes: &[(&[u8], bool)],
        reads: &ReadSet,
    ) -> Result<Vec<Conflict>> {
        let _rights = crate::sys_owner::rights();
        let (mut changed, mut conflicts) = (Changed::default(), Vec::new());
        for (layer, copied) in self.outer.layers().iter().zip(&self.copied) {
            let now = savepoint::look(layer, Some(copied))?;
            let paths: BTreeSet<&Vec<u8>> = copied.keys().chain(now.keys()).collect();
            for path in paths {
                let (was, is) = (copied.get(path), now.get(path));
                if below_upper(path).is_none() || is_same(layer, path, was, is) {
                    continue;
                }
                changed.add(layer, path, was, is);
            }
        }
        // A directory's names may come and go: whoever writes a log beside a command that lists is no conflict.
        changed.listings.clear();
        for (path, &with_all_below) in &changed.paths {
            let meets = |&(at, all): &(&[u8], bool)| {
                at == path
                    || all && is_at_or_below(path, at)
                    || with_all_below && is_at_or_below(at, path)
            };
            if changes.iter().any(meets) {
                conflicts.push(conflict(path, ConflictKind::ChangedByBoth));
            }
        }
        conflicts.extend(changed.seen_by(reads, tx.id(), self.outer()));
        conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        conflicts.dedup_by(|a, b| a.path == b.path);
        conflicts.truncate(CONFLICTS_MAX);
        Ok(conflicts)
    }

    fn file(&self, id: TxId, what: &str) -> Result<PathBuf> {
        let dir = self.outer.dir().join("inner");
        let _ = make_dir_once(&dir)?;
        Ok(dir.join(format!("{id}.{what}")))
    }

    /// Hands what the inner command has seen to the outer transaction, which takes it over at its end.
    ///
    /// # Errors
    /// [`Error::Io`] with the step.
    pub fn hand_over_reads(&self, id: TxId, reads: &ReadSet) -> Result<()> {
        super::replace_file(&self.file(id, "reads")?, &reads.to_bytes()?, false)
    }

    /// Leaves to the outer transaction how this one ended.
    ///
    /// # Errors
    /// [`Error::Io`] with the step.
    pub fn leave_record(&self, record: &InsideRecord) -> Result<()> {
        let file = self.file(record.id, "record")?;
        let bytes = serde_json::to_vec(record)
            .map_err(|e| Error::io("encoding", &file, std::io::Error::other(e)))?;
        super::replace_file(&file, &bytes, false)
    }

    /// From now on the outer transaction may hold half of this one.
    ///
    /// # Errors
    /// [`Error::Io`] with the step.
    pub fn begin_handover(&self, id: TxId) -> Result<()> {
        super::replace_file(&self.file(id, "half")?, b"", false)
    }

    /// All of it is in the outer one.
    ///
    /// # Errors
    /// [`Error::Io`] with the step: the outer one will not be committed.
    pub fn end_handover(&self, id: TxId) -> Result<()> {
        let file = self.file(id, "half")?;
        fs::remove_file(&file).at("removing", &file)
    }
}

impl Transaction {
    /// Forgets what the transactions inside of a command have left that was killed, or rolled back.
    ///
    /// # Errors
    /// [`Error::Io`] if it can't be removed.
    pub(super) fn forget_inside(&self) -> Result<()> {
        let dir = self.dir().join("inner");
        match crate::sys::step("store unlink", || fs::remove_dir_all(&dir)) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("removing", dir, e)),
            _ => Ok(()),
        }
    }

    /// Takes over what the transactions inside of this one have seen, when no process of it is left.
    ///
    /// # Errors
    /// [`Error::Io`] with the step.
    pub fn take_over(&self, reads: &mut ReadSet) -> Result<Handover> {
        let dir = self.dir().join("inner");
        let mut found = Handover::default();
        let listed = match fs::read_dir(&dir) {
            Ok(listed) => listed,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(found),
            Err(e) => return Err(Error::io("listing", &dir, e)),
        };
        let mut names: Vec<_> = Vec::new();
        for entry in listed {
            names.push(entry.at("listing", &dir)?.file_name());
        }
        names.sort();
        for name in &names {
            let Some((id, what)) = name.to_str().and_then(|name| name.split_once('.')) else {
                continue;
            };
            let path = dir.join(name);
            match what {
                // It is for people: what can't be read is left out.
                "record" => {
                    let bytes = crate::sys::read_record(&path).at("reading", &path)?;
                    found.records.extend(serde_json::from_slice::<InsideRecord>(&bytes));
                }
                "half" => found.half = id.parse().ok().or(found.half),
                "reads" => {
                    let bytes = crate::sys::read_record(&path).at("reading", &path)?;
                    let theirs = ReadSet::from_bytes(&bytes, &path)?;
                    if let Err(paths) = reads.absorb(&theirs) {
                        let first =
                            paths.first().map(|path| conflict(path, ConflictKind::SeenDifferently));
                        found.differ = found.differ.or(first);
                    }
                }
                _ => {}
            }
        }
        found.records.sort_by_key(|record| record.ended);
        fs::remove_dir_all(&dir).at("removing", &dir)?;
        Ok(found)
    }
}

/// Copies one layer's private copies, which may change meanwhile. Gives its entries, and those of the copy.
fn copy(from: &Layer, to: &Layer) -> Result<(Tree, Tree)> {
    let mut last = None;
    for _ in 0..ATTEMPTS_MAX {
        let seen = savepoint::look(from, None);
        let made = seen.and_then(|seen| Ok((savepoint::copy_from(to, from, &seen)?, seen)));
        let (made, seen) = match made {
            Ok(made) => made,
            // Something has gone while it was looked at.
            Err(error) => {
                last = Some(error);
                continue;
            }
        };
        let after = savepoint::look(from, Some(&seen))?;
        let same_names = after.len() == seen.len()
            && after.iter().zip(&seen).all(|((path, now), (old, was))| {
                path == old
                    && now.kind() == was.kind()
                    && now.ino == was.ino
                    && marks(now) == marks(was)
            });
        if same_names {
            let base = match made {
                Some(base) => base,
                None => savepoint::look(to, None)?,
            };
            return Ok((seen, base));
        }
    }
    Err(last.unwrap_or_else(|| {
        let error = std::io::Error::other("other processes change it all the time");
        Error::io("copying", &from.upper, error)
    }))
}

/// Whether an entry of the outer one is what it was, as far as others can tell.
fn is_same(layer: &Layer, path: &[u8], was: Option<&Item>, is: Option<&Item>) -> bool {
    match (was, is) {
        (None, None) => true,
        (None, Some(is)) => below_upper(path).is_some_and(|path| is_copied_up(layer, path, is)),
        (Some(_), None) => false,
        (Some(was), Some(is)) if was.is_whiteout() && is.is_whiteout() => true,
        (Some(was), Some(is)) if was.kind() == FileKind::Dir && is.kind() == FileKind::Dir => {
            (was.mode, was.uid, was.gid) == (is.mode, is.uid, is.gid) && lasting(was) == lasting(is)
        }
        (Some(was), Some(is)) => {
            (was.ino, was.ctime, was.mode, was.size) == (is.ino, is.ctime, is.mode, is.size)
        }
    }
}
