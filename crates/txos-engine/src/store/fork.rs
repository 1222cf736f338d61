//! A pending transaction of its own that begins as what another one is: `txos exec --fork`.

use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};

use super::before::{deltas_of, flush_dir, make_dir_once, reads_of};
use super::{Begin, DELTAS, Home, LayerRequest, Stack, StackLayer, State, Transaction, savepoint};
use crate::error::{Context, Error, Result};
use crate::id::TxId;
use crate::readset::ReadSet;
use crate::sys;
use crate::version::Stamp;

/// Of which state of which transaction a fork was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// The transaction.
    pub of: TxId,
    /// The savepoint.
    pub savepoint: u32,
    /// When that layer was kept: another one may take its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Stamp>,
}

impl Fork {
    /// Whether the state is one that this stack goes back to.
    pub(super) fn is_below(&self, stack: &Stack) -> bool {
        let Some(number) = self.savepoint.checked_sub(1) else { return false };
        let layer = stack.layers.get(number as usize);
        self.savepoint <= stack.at
            && layer.is_some_and(|layer| layer.saved && layer.ended == self.ended)
    }
}

impl Home {
    /// Makes a transaction that is pending with what another one was before the command that runs in it now.
    /// None if no command runs in it.
    ///
    /// # Errors
    /// As [`Transaction::fork`].
    pub fn fork_running(&self, id: TxId) -> Result<Option<Transaction>> {
        let source = self.load_published(id)?;
        source.meta.check_same_rights()?;
        let Some(before) = source.meta.before.clone().filter(|_| self.is_held(id)) else {
            return Ok(None);
        };
        source.fork_at(self, before.savepoint).map(Some)
    }
}

impl Transaction {
    /// Makes a transaction that is pending with what this one is.
    ///
    /// # Errors
    /// [`Error::Conflict`] if a root is another directory, [`Error::Io`] with the step: what was made is
    /// discarded again.
    pub fn fork(&mut self, home: &Home) -> Result<Transaction> {
        let at = self.save_here()?;
        // What was saved is not removed as long as the record names it.
        self.save(self.meta.durable)?;
        self.fork_at(home, at)
    }

    fn fork_at(&self, home: &Home, savepoint: u32) -> Result<Transaction> {
        let request =
            |layer: super::Layer| LayerRequest { target: layer.target, store: layer.store };
        let mut fork = home.begin(Begin {
            layers: self.layers().into_iter().map(request).collect(),
            name: None,
            message: self.meta.message.clone(),
            command: self.meta.command.clone(),
            arguments_hidden: self.meta.arguments_hidden,
            directory: self.meta.directory.clone(),
            scope: self.meta.scope.clone(),
            durable: self.meta.durable,
        })?;
        match self.fill(&mut fork, savepoint) {
            Ok(()) => Ok(fork),
            Err(error) => {
                // Failing to, `gc` does it.
                let _ = home.discard(fork);
                Err(error)
            }
        }
    }

    fn fill(&self, fork: &mut Transaction, savepoint: u32) -> Result<()> {
        let _rights = crate::sys_owner::rights();
        let flush = self.meta.durable;
        fork.prepare_upper()?;
        let manifest = self.manifest(savepoint)?;
        for (from, to) in self.layers().iter().zip(fork.layers()) {
            if let Some(root) = from.root
                && to.root != Some(root)
                && !from.is_dispensable(&self.layers())?
            {
                let what = crate::error::ConflictKind::RootReplaced;
                let path = from.target.clone();
                let conflict = crate::error::Conflict { path, what, when: None };
                return Err(Error::Conflict(vec![conflict]));
            }
            let Some(tree) = manifest.trees.get(from.index) else { continue };
            let _ = make_dir_once(&savepoint::place(&to))?;
            savepoint::restore_from(&to, from, tree)?;
            if flush {
                let fd = super::before::open(&to.upper)?;
                sys::syncfs(fd.as_fd()).at("flushing", &to.upper)?;
            }
        }
        let reads = reads_of(&self.dir().join("saved"), savepoint);
        let bytes = sys::read_record(&reads).at("reading", &reads)?;
        fork.save_reads(&ReadSet::from_bytes(&bytes, &reads)?, flush)?;
        if self.meta.recorded {
            let deltas = deltas_of(&self.dir().join("saved"), savepoint);
            let bytes = sys::read_record(&deltas).at("reading", &deltas)?;
            super::replace_file(&fork.dir().join(DELTAS), &bytes, flush)?;
            fork.meta.recorded = true;
        }
        let stack = self.meta.stack_or_first();
        let layer = savepoint.checked_sub(1).and_then(|n| stack.layers.get(n as usize));
        let (changes, status) = layer.map_or((Some(0), None), |l| (l.changes, l.exit_status));
        let meta = &mut fork.meta;
        meta.state = State::Pending;
        meta.changes = changes;
        meta.exit_status = status;
        meta.ended = Some(Stamp::now());
        meta.fork =
            Some(Fork { of: self.id(), savepoint, ended: layer.and_then(|layer| layer.ended) });
        meta.stack.layers.push(StackLayer {
            command: vec!["txos".into(), "fork".into(), self.id().to_string()],
            directory: meta.directory.clone(),
            arguments_hidden: false,
            begun: Some(meta.begun),
            ended: meta.ended,
            exit_status: None,
            changes,
            is_same: false,
            counts: changes,
            saved: false,
            joined: Vec::new(),
        });
        // What nobody observed must not have changed since the source began.
        meta.begun = meta.begun.min(self.meta.begun);
        meta.stack.at = 1;
        fork.save(flush)?;
        if flush { flush_dir(fork.dir()) } else { Ok(()) }
    }
}
