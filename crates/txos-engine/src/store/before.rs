//! What a pending transaction goes back to if one more command that runs in it (`txos exec`) fails or
//! anything dies, and when its layers are undone and redone.
//!
//! # Invariants
//!
//! - The record names a savepoint to go back to (`before`) only while all of it is there: it is written
//!   after the last copy, and, of a durable transaction, after both were flushed.
//! - While the record names one, the savepoint decides: whoever finds it with the transaction's lock
//!   free takes the transaction to it. That can be interrupted and repeated.
//! - One write of the record ends it: the command's changes are the transaction's from then on, its last
//!   layer.
//! - Savepoint K is the transaction with its first K layers. Savepoint 0, a view in which nothing was changed, is
//!   made when the first layer is undone, and is there as long as no layer is in force. The last layer has none until one more
//!   command runs, or it is undone: until then the private copies are all there is of it.

use std::borrow::Cow;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::savepoint::{self, Manifest, Seen};
use super::stack::{Command, StackLayer};
use super::{DELTAS, Home, State, Transaction, boot_id};
use crate::error::{Context, Error, Result};
use crate::readset::ReadSet;
use crate::sys;
use crate::version::Stamp;

/// Where the transaction goes back to, and the fields of the record that go back with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Boot in which it was kept.
    pub boot: String,
    /// When it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Stamp>,
    /// Status with which its last command ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// Number of changed paths, if they were counted.
    #[serde(default = "super::meta::none_changed")]
    pub changes: Option<u64>,
    /// The savepoint; 0 is the beginning. (Also absent in a record of an older txos, which copied the whole.)
    #[serde(default)]
    pub savepoint: u32,
    /// The command that runs meanwhile; none while layers are undone or redone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Command>,
}

impl Transaction {
    /// Makes a savepoint of a pending transaction as it is, and makes it active for one more command.
    ///
    /// # Errors
    /// [`Error::Io`] with the step; the transaction is as it was.
    pub fn save_before(&mut self, command: Command) -> Result<()> {
        let at = self.save_here()?;
        self.forget_inside()?;
        let before = Before {
            boot: self.meta.boot.clone(),
            ended: self.meta.ended,
            exit_status: self.meta.exit_status,
            changes: self.meta.changes,
            savepoint: at,
            command: Some(command),
        };
        self.go_from(before)
    }

    /// Takes a pending transaction to what it was with its first `at` layers: undoes or redoes. With none it is
    /// as if it had just begun.
    ///
    /// # Errors
    /// [`Error::WrongState`] if it has no such layer. [`Error::Io`] with the step: the transaction is as
    /// it was as long as its record names nothing to go to ([`Home::falls_back`]); else whoever next
    /// touches it goes on.
    pub fn go_to(&mut self, at: u32) -> Result<()> {
        let here = self.save_here()?;
        if at == here {
            return Ok(());
        }
        let Some(number) = at.checked_sub(1) else {
            self.save_beginning()?;
            let before = Before {
                boot: self.meta.boot.clone(),
                ended: Some(self.meta.begun),
                exit_status: None,
                changes: Some(0),
                savepoint: 0,
                command: None,
            };
            self.go_from(before)?;
            return self.fall_back();
        };
        let layer = self.meta.stack.layers.get(number as usize);
        let Some(layer) = layer.filter(|layer| layer.saved) else {
            return Err(Error::WrongState {
                id: self.id(),
                state: format!("without a layer {at} that could be gone to"),
                advice: "`txos show` lists its layers.".into(),
            });
        };
        let before = Before {
            boot: self.meta.boot.clone(),
            ended: layer.ended,
            exit_status: layer.exit_status,
            changes: layer.changes,
            savepoint: at,
            command: None,
        };
        self.go_from(before)?;
        self.fall_back()
    }

    /// Makes savepoint 0: nothing in the upper directories, which have the attributes of what they lie over, and
    /// nothing read.
    fn save_beginning(&self) -> Result<()> {
        let flush = self.meta.durable;
        let _rights = crate::sys_owner::rights();
        let mut trees = Vec::new();
        for layer in self.layers() {
            trees.push(savepoint::beginning(&layer)?);
        }
        self.save_manifest(0, &Manifest { trees }, flush)?;
        let saved = self.dir().join("saved");
        let reads = ReadSet::new(self.load_reads()?.coverage().clone());
        super::replace_file(&reads_of(&saved, 0), &reads.to_bytes()?, flush)?;
        if self.meta.recorded {
            super::replace_file(&deltas_of(&saved, 0), &super::no_deltas(), flush)?;
        }
        if flush { flush_dir(&saved) } else { Ok(()) }
    }

    /// Makes the savepoint of where the transaction is, if there is none. Gives its number.
    pub(crate) fn save_here(&mut self) -> Result<u32> {
        let flush = self.meta.durable;
        let _rights = crate::sys_owner::rights();
        self.meta.begin_stack();
        let at = self.meta.stack.at;
        if at == 0 || self.meta.stack.here().is_some_and(|layer| layer.saved) {
            return Ok(at);
        }
        // What another one that died on the way had saved.
        self.discard_unnamed()?;
        if self.is_saved_below(at) {
            self.save_same(at, flush)?;
            return Ok(at);
        }
        let saved = self.dir().join("saved");
        if make_dir_once(&saved)? && flush {
            flush_dir(self.dir())?;
        }
        let seen = self.seen(at);
        let known = match self.meta.stack.saved_below(at) {
            Some(number) if seen.is_none() => self.manifest(number)?,
            _ => Manifest::default(),
        };
        let mut seen = seen.unwrap_or_default().trees.into_iter();
        let mut trees = Vec::new();
        for layer in self.layers() {
            let place = savepoint::place(&layer);
            if make_dir_once(&place)? && flush {
                flush_dir(place.parent().unwrap_or(&place))?;
            }
            let mut tree = match seen.next() {
                Some(tree) => tree,
                None => savepoint::look(&layer, known.trees.get(layer.index))?,
            };
            savepoint::save_content(&layer, &mut tree, at, flush)?;
            trees.push(tree);
        }
        let manifest = Manifest { trees };
        self.save_manifest(at, &manifest, flush)?;
        self.listed = Some((at, manifest));
        self.save_reads_of(at, flush)?;
        Ok(at)
    }

    /// Notes what the command left that has just ended in the transaction, so that the next savepoint needs no look.
    /// Nobody can reach its private copies any more. That this fails is no reason to lose them.
    pub(crate) fn note_seen(&self, manifest: Manifest) {
        let Some(before) = &self.meta.before else { return };
        let begun = before.command.as_ref().and_then(|command| command.begun);
        let path = self.seen_path(before.savepoint + 1);
        let seen = Seen { begun, manifest };
        let noted = seen.to_bytes().and_then(|bytes| super::replace_file(&path, &bytes, false));
        if let Err(error) = noted {
            tracing::debug!(%error, "the next savepoint needs a look");
        }
    }

    /// Forgets what the last command left: something else is about to touch the private copies.
    ///
    /// # Errors
    /// [`Error::Io`] if it can't be removed.
    pub(crate) fn forget_seen(&self) -> Result<()> {
        if self.meta.stack.at == 0 {
            return Ok(());
        }
        remove_file(&self.seen_path(self.meta.stack.at))
    }

    /// What the private copies are, if the command of the last layer left a note and nothing was done to them since.
    fn seen(&self, at: u32) -> Option<Manifest> {
        let begun = self.meta.stack.here()?.begun?;
        let seen = Seen::from_bytes(&sys::read_record(&self.seen_path(at)).ok()?)?;
        let layers = self.layers();
        if seen.begun != Some(begun) || seen.manifest.trees.len() != layers.len() {
            return None;
        }
        let trees = layers.iter().zip(seen.manifest.trees);
        let trees = trees.map(|(layer, tree)| savepoint::confirmed(layer, tree));
        Some(Manifest { trees: trees.collect::<Option<_>>()? })
    }

    fn seen_path(&self, number: u32) -> PathBuf {
        self.dir().join("saved").join(format!("{number}.seen"))
    }

    /// Whether the private copies are those that the savepoint before number `at` lists.
    fn is_saved_below(&self, at: u32) -> bool {
        let stack = &self.meta.stack;
        stack.here().is_some_and(|layer| layer.is_same) && stack.saved_below(at) == Some(at - 1)
    }

    /// Makes the savepoint of a layer that changed nothing: another name of the list below.
    fn save_same(&mut self, at: u32, flush: bool) -> Result<()> {
        let saved = self.dir().join("saved");
        let below = saved.join((at - 1).to_string());
        let list = saved.join(at.to_string());
        sys::step("store link", || fs::hard_link(&below, &list)).at("saving", &list)?;
        self.save_reads_of(at, flush)
    }

    /// Keeps the read set with savepoint `at`, which is there from then on.
    fn save_reads_of(&mut self, at: u32, flush: bool) -> Result<()> {
        let saved = self.dir().join("saved");
        let mut files = vec![(self.dir().join("reads"), reads_of(&saved, at))];
        if self.meta.recorded {
            files.push((self.dir().join(DELTAS), deltas_of(&saved, at)));
        }
        for (file, kept) in files {
            sys::step("store link", || fs::hard_link(&file, &kept)).at("saving", &file)?;
        }
        if flush {
            flush_dir(&saved)?;
        }
        if let Some(layer) = self.meta.stack.here_mut() {
            layer.saved = true;
        }
        self.forget_seen()
    }

    /// Writes into the record where the transaction goes back to; it is active from then on.
    fn go_from(&mut self, before: Before) -> Result<()> {
        let flush = self.meta.durable;
        let was = self.meta.clone();
        self.meta.before = Some(Box::new(before));
        self.meta.boot = boot_id();
        self.meta.ended = None;
        self.meta.exit_status = None;
        self.meta.state = State::Active;
        let saved =
            self.save(flush).and_then(|()| if flush { flush_dir(self.dir()) } else { Ok(()) });
        if saved.is_err() {
            // The record that is there now may be either; with the savepoint both mean the same.
            self.meta = was;
        }
        saved
    }

    /// Takes the transaction to the savepoint that its record names: it is pending again. One that
    /// names none is left as it is.
    ///
    /// # Errors
    /// [`Error::WrongState`] if the store of a layer is not there: no layer is taken back without the
    /// others. [`Error::Io`] with the step. Both can be repeated.
    pub fn fall_back(&mut self) -> Result<()> {
        let _rights = crate::sys_owner::rights();
        let Some(was) = self.meta.before.clone() else { return Ok(()) };
        let flush = self.meta.durable;
        self.check_has_beginning(was.savepoint)?;
        let mut manifest = self.manifest(was.savepoint)?;
        self.check_places(manifest.trees.len())?;
        self.forget_inside()?;
        if self.meta.boot != boot_id() {
            // What the machine had not written when it went down may be older, or newer, than the change time that it had.
            let items = manifest.trees.iter_mut().flat_map(|tree| tree.values_mut());
            items
                .filter(|item| item.kind() != crate::object::FileKind::Dir)
                .for_each(|item| item.racy = true);
        }
        let mut moved = false;
        for layer in self.layers() {
            let Some(tree) = manifest.trees.get_mut(layer.index) else { continue };
            if let Some(now) = savepoint::restore(&layer, tree)? {
                *tree = now;
                moved = true;
            }
            if flush && moved {
                let fd = open(&layer.upper)?;
                sys::syncfs(fd.as_fd()).at("flushing", &layer.upper)?;
            }
        }
        self.listed = None;
        if moved {
            // What was made again is known by its new identity from now on.
            self.save_manifest(was.savepoint, &manifest, flush)?;
        }
        let saved = self.dir().join("saved");
        self.take_back_file("reads", &reads_of(&saved, was.savepoint))?;
        if self.meta.recorded {
            self.take_back_file(DELTAS, &deltas_of(&saved, was.savepoint))?;
        }
        let mut meta = self.meta.clone();
        meta.state = State::Pending;
        meta.before = None;
        meta.boot = was.boot;
        meta.ended = was.ended;
        meta.exit_status = was.exit_status;
        meta.changes = was.changes;
        meta.stack.at = was.savepoint;
        let active = std::mem::replace(&mut self.meta, meta);
        if let Err(error) = self.save(flush) {
            self.meta = active;
            return Err(error);
        }
        if flush {
            flush_dir(self.dir())?;
        }
        Ok(())
    }

    /// Makes a file of the transaction's directory what was kept of it.
    fn take_back_file(&self, name: &str, kept: &Path) -> Result<()> {
        let (file, new) = (self.dir().join(name), self.dir().join(format!("{name}.new")));
        remove_file(&new)?;
        sys::step("store link", || fs::hard_link(kept, &new)).at("taking back", &file)?;
        sys::step("store rename", || fs::rename(&new, &file)).at("taking back", &file)?;
        // Two names of one file: `rename` leaves both.
        remove_file(&new)
    }

    fn check_has_beginning(&self, number: u32) -> Result<()> {
        if number > 0 || exists(&self.dir().join("saved").join("0"))? {
            return Ok(());
        }
        Err(Error::WrongState {
            id: self.id(),
            state: "interrupted under an older txos, which saved it in another way".into(),
            advice: "that version takes it back to what it was; or `txos abort` it.".into(),
        })
    }

    /// That what the transaction goes back to is there, in the stores of all layers that it had then. (One that a
    /// command in the library's view has added since has nothing that is named.)
    fn check_places(&self, layers: usize) -> Result<()> {
        for layer in self.layers().iter().take(layers) {
            if !exists(&savepoint::place(layer))? || !exists(&layer.upper)? {
                return Err(Error::WrongState {
                    id: self.id(),
                    state: format!(
                        "interrupted, and its private copies in {} are not there",
                        crate::show::quoted(&layer.store)
                    ),
                    advice: "mount that file system and try again; until then nothing of the transaction is \
                             changed."
                        .into(),
                });
            }
        }
        Ok(())
    }

    /// What the command made of the transaction is what it is from the next save of its record on: its
    /// last layer. What was undone before can't be redone any more.
    pub fn stay(&mut self) {
        let before = self.meta.before.take();
        self.meta.state = State::Pending;
        let Some(before) = before else { return self.meta.begin_stack() };
        let stack = &mut self.meta.stack;
        stack.layers.truncate(stack.at as usize);
        let command = before.command.unwrap_or_default();
        if stack.layers.is_empty() {
            // It is the transaction's first, as that of `run --keep` was.
            self.meta.command.clone_from(&command.words);
            self.meta.directory.clone_from(&command.directory);
            self.meta.arguments_hidden = command.arguments_hidden;
        }
        stack.layers.push(StackLayer {
            command: command.words,
            directory: command.directory,
            arguments_hidden: command.arguments_hidden,
            begun: command.begun,
            ended: self.meta.ended,
            exit_status: self.meta.exit_status,
            changes: self.meta.changes,
            is_same: command.is_same,
            counts: command.changes,
            saved: false,
            joined: Vec::new(),
        });
        stack.at += 1;
    }

    /// Removes what was saved and is not named by the record.
    ///
    /// # Errors
    /// If it can't be moved to the trash.
    pub fn discard_unnamed(&self) -> Result<()> {
        let _rights = crate::sys_owner::rights();
        let home = self.dir().join("saved");
        if self.meta.before.is_some() || !exists(&home)? {
            return Ok(()); // That decides; or nothing was ever saved.
        }
        let pending = self.meta.state == State::Pending;
        let named = |number: Option<u32>| {
            let stack = &self.meta.stack;
            let there = |n: u32| match n.checked_sub(1) {
                Some(n) => stack.layers.get(n as usize).is_some_and(|layer| layer.saved),
                None => stack.is_undone(),
            };
            pending && number.is_some_and(there)
        };
        let number = |name: &str| {
            let number = name.strip_suffix(".reads").or(name.strip_suffix(".deltas"));
            number.unwrap_or(name).parse().ok()
        };
        let is_named = |name: &str| match name.strip_suffix(".seen") {
            Some(seen) => {
                let unsaved = self.meta.stack.here().is_some_and(|layer| !layer.saved);
                pending && unsaved && seen.parse() == Ok(self.meta.stack.at)
            }
            None => named(number(name)),
        };
        // The one that tells whether there are any goes last.
        let layers = self.layers();
        let mut places: Vec<_> =
            layers.iter().map(|l| (savepoint::place(l), l.store.clone())).collect();
        places.push((home, self.home_store()));
        for (place, store) in places {
            let names = match sys::look("readdir", || fs::read_dir(&place)) {
                Ok(names) => names,
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => return Err(Error::io("listing", place, e)),
            };
            for name in names {
                let name = name.at("listing", &place)?.file_name();
                if !name.to_str().is_some_and(is_named) {
                    self.to_trash(&store, &place.join(&name))?;
                }
            }
            if !pending {
                // Nothing is in it.
                let _ = sys::step("store rmdir", || fs::remove_dir(&place));
            }
        }
        Ok(())
    }

    fn home_store(&self) -> PathBuf {
        self.dir().ancestors().nth(2).unwrap_or(self.dir()).to_owned()
    }

    fn to_trash(&self, store: &Path, from: &Path) -> Result<()> {
        let name = format!("{}-saved-{}", self.id(), Stamp::now().as_ns());
        let to = store.join("trash").join(name);
        sys::step("store rename", || fs::rename(from, to)).at("discarding", from)
    }

    /// A savepoint, which is not read again if this process has made it.
    pub(crate) fn savepoint(&self, number: u32) -> Result<Cow<'_, Manifest>> {
        match &self.listed {
            Some((listed, manifest)) if *listed == number => Ok(Cow::Borrowed(manifest)),
            _ => self.manifest(number).map(Cow::Owned),
        }
    }

    /// Reads a savepoint.
    pub(crate) fn manifest(&self, number: u32) -> Result<Manifest> {
        let path = self.dir().join("saved").join(number.to_string());
        Manifest::from_bytes(&sys::read_record(&path).at("reading", &path)?, &path)
    }

    pub(super) fn save_manifest(
        &self,
        number: u32,
        manifest: &Manifest,
        flush: bool,
    ) -> Result<()> {
        let path = self.dir().join("saved").join(number.to_string());
        super::replace_file(&path, &manifest.to_bytes()?, flush)
    }
}

impl Home {
    /// Whether a transaction that nobody runs any more is, in truth, pending: the command that ran in it
    /// died, or undoing it was interrupted, and what it goes back to is there.
    #[must_use]
    pub fn falls_back(meta: &super::Meta) -> bool {
        meta.state == State::Active && meta.before.is_some()
    }
}

/// The read set of a savepoint.
pub(super) fn reads_of(saved: &Path, number: u32) -> PathBuf {
    saved.join(format!("{number}.reads"))
}

/// The recorded change set of a savepoint.
pub(crate) fn deltas_of(saved: &Path, number: u32) -> PathBuf {
    saved.join(format!("{number}.deltas"))
}

/// Makes a directory, if it is not there. Whether it was made.
pub(super) fn make_dir_once(dir: &Path) -> Result<bool> {
    if exists(dir)? {
        return Ok(false);
    }
    let made = sys::step("store mkdir", || rustix::fs::mkdirat(CWD, dir, Mode::RWXU));
    made.at("creating", dir).map(|()| true)
}

pub(super) fn flush_dir(dir: &Path) -> Result<()> {
    let fd = open(dir)?;
    sys::fsync(fd.as_fd()).at("flushing", dir)
}

pub(super) fn open(dir: &Path) -> Result<OwnedFd> {
    sys::open(dir.as_os_str().as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY, 0).at("opening", dir)
}

fn exists(path: &Path) -> Result<bool> {
    match sys::look("lstat", || fs::symlink_metadata(path)) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io("looking at", path, e)),
    }
}

fn remove_file(path: &Path) -> Result<()> {
    match sys::step("store unlink", || fs::remove_file(path)) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("removing", path, e)),
        _ => Ok(()),
    }
}
