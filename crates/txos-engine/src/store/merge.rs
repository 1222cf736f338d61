//! Two pending transactions as one: `txos merge`.
//!
//! Both are lists of entries of upper directories over the same stable tree ([`super::savepoint`]), so that they
//! are merged as lists, entry by entry, against what both began with: nothing, or the savepoint of which one is
//! a fork. What only one of them changed is taken from that one. The result becomes one more savepoint of the
//! transaction that stays, and it is gone to as if a layer was redone.
//!
//! # Invariants
//!
//! - An entry that both have changed, each in its own way, is a conflict. So is one below a directory that
//!   the other has removed, replaced or moved.
//! - All names of an object come from one side.
//! - The result is what one of the two would have done after the other: not both have seen what the other has
//!   changed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, OFlags};

use super::before::{deltas_of, flush_dir, make_dir_once, open, reads_of};
use super::savepoint::{self, Content, Item, Manifest, Tree};
use super::stack::{Command, StackLayer};
use super::{Layer, Transaction};
use crate::error::{Conflict, ConflictKind, Context, Error, Result};
use crate::id::TxId;
use crate::object::{Facets, FileId, FileKind};
use crate::path::layer::split;
use crate::path::{from_bytes, join};
use crate::readset::{Outcome, ReadSet};
use crate::sys;
use crate::version::{Stamp, stat_at};

/// How many conflicts are named.
const CONFLICTS_MAX: usize = 32;

/// Where an entry is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ours,
    Theirs,
    /// It is the same in both, and as it was.
    Either,
}

/// Where each entry is taken from, by path below the layer's directory.
type Sides = HashMap<Vec<u8>, Side>;

/// One layer, as the two have it.
struct Both<'a> {
    ours: (&'a Layer, &'a Tree),
    theirs: (&'a Layer, &'a Tree),
    /// What both began with.
    base: &'a Tree,
}

/// What one side changed of the stable tree, or of what both began with.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Each path; whether what is below it is elsewhere, or gone, with it.
    pub(crate) paths: HashMap<Vec<u8>, bool>,
    /// Directories in which a name came or went.
    pub(crate) listings: HashSet<Vec<u8>>,
    /// Stable objects with several names.
    pub(crate) objects: HashSet<FileId>,
}

impl Transaction {
    /// Makes what another pending transaction changed one more layer of this one, which is at it then. The other one
    /// is as it was; whoever merges discards it.
    ///
    /// # Errors
    /// [`Error::Conflict`] with what is in the way, [`Error::WrongState`] if the two can't be compared: both are as
    /// they were. [`Error::Io`] with the step: as after [`Transaction::go_to`].
    pub(crate) fn merge(&mut self, other: &mut Transaction, command: Command) -> Result<()> {
        let base = self.common_savepoint(other)?;
        let (here, there) = (self.save_here()?, other.save_here()?);
        // What was saved stays: the next command needs it.
        self.save(self.meta.durable)?;
        other.save(other.meta.durable)?;
        let base = base.map(|number| self.manifest(number)).transpose()?.unwrap_or_default();
        let (ours, theirs) = (self.manifest(here)?, other.manifest(there)?);
        let mut reads = self.load_reads()?;
        let their_reads = other.load_reads()?;
        let (mut conflicts, none) = (Vec::new(), Tree::new());
        let (mut changed, mut changed_there) = (Changed::default(), Changed::default());
        let (layers, their_layers) = (self.layers(), other.layers());
        let mut picked = Vec::new();
        for layer in &layers {
            let same = |l: &&Layer| {
                (&l.target, &l.store, l.root) == (&layer.target, &layer.store, layer.root)
            };
            let our_tree = ours.trees.get(layer.index).unwrap_or(&none);
            let found = their_layers.iter().find(same);
            let Some((their_layer, their_tree)) =
                found.and_then(|l| theirs.trees.get(l.index).map(|tree| (l, tree)))
            else {
                picked.push(None);
                continue;
            };
            let both = Both {
                ours: (layer, our_tree),
                theirs: (their_layer, their_tree),
                base: base.trees.get(layer.index).unwrap_or(&none),
            };
            let sides = both.sides(&mut conflicts, &mut changed, &mut changed_there)?;
            picked.push(Some((both, sides)));
        }
        for layer in &their_layers {
            let known = layers.iter().any(|l| (&l.target, l.root) == (&layer.target, layer.root));
            let tree = theirs.trees.get(layer.index).unwrap_or(&none);
            if !known && tree.len() > tree.keys().filter(|p| savepoint::is_top(p)).count() {
                return Err(Error::WrongState {
                    id: other.id(),
                    state: format!(
                        "one that changes {}, which {} does not version",
                        crate::show::quoted(&layer.target),
                        self.id()
                    ),
                    advice: "merge it the other way round, or commit one after the other.".into(),
                });
            }
        }
        self.absorb(&mut reads, other, &their_reads, [&changed, &changed_there], conflicts)?;
        let number = self.make_room(here)?;
        let mut trees = Vec::new();
        {
            let _rights = crate::sys_owner::rights();
            for (index, picked) in picked.iter().enumerate() {
                trees.push(match picked {
                    Some((both, sides)) => both.merged(sides, number, self.meta.durable)?,
                    None => ours.trees.get(index).cloned().unwrap_or_default(),
                });
            }
        }
        let sum = Sum { copies: Manifest { trees }, reads, deltas: None };
        self.go_to_merged(number, other, &sum, command)
    }

    /// Adds what another one has read to what this one has. `changed`: what this one changes, and what the other one does.
    ///
    /// # Errors
    /// [`Error::Conflict`] with these conflicts, and with what is in the way of one after the other.
    pub(crate) fn absorb(
        &self,
        reads: &mut ReadSet,
        other: &Transaction,
        their_reads: &ReadSet,
        [changed, changed_there]: [&Changed; 2],
        mut conflicts: Vec<Conflict>,
    ) -> Result<()> {
        let seen = changed_there.seen_by(reads, self.id(), other.id());
        let seen_there = changed.seen_by(their_reads, other.id(), self.id());
        if !seen.is_empty() && !seen_there.is_empty() {
            conflicts.extend(seen_there.into_iter().chain(seen));
        }
        if let Err(paths) = reads.absorb(their_reads) {
            conflicts
                .extend(paths.iter().map(|path| conflict(path, ConflictKind::SeenDifferently)));
        }
        if conflicts.is_empty() {
            return Ok(());
        }
        conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        conflicts.dedup_by(|a, b| a.path == b.path);
        conflicts.truncate(CONFLICTS_MAX);
        Err(Error::Conflict(conflicts))
    }

    /// The savepoint that the other transaction is a fork of; none if they have nothing in common.
    pub(crate) fn common_savepoint(&self, other: &Transaction) -> Result<Option<u32>> {
        let Some(fork) = other.meta.fork.as_ref().filter(|fork| fork.of == self.id()) else {
            return Ok(None);
        };
        if fork.savepoint == 0 {
            return Ok(None);
        }
        if fork.is_below(&self.meta.stack) {
            return Ok(Some(fork.savepoint));
        }
        Err(Error::WrongState {
            id: other.id(),
            state: format!(
                "a fork of layer {} of {}, which is undone or replaced",
                fork.savepoint,
                self.id()
            ),
            advice: "redo that layer first, or commit the fork by itself.".into(),
        })
    }

    /// Has savepoint `here` be the last one: what could be redone can't be any more, and its savepoint makes room. Gives the
    /// number of the next.
    pub(crate) fn make_room(&mut self, here: u32) -> Result<u32> {
        let _rights = crate::sys_owner::rights();
        let undone = self.meta.stack.layers.split_off(here as usize);
        if let Err(error) = self.save(self.meta.durable) {
            self.meta.stack.layers.extend(undone);
            return Err(error);
        }
        self.discard_unnamed()?;
        Ok(here + 1)
    }

    /// Makes the savepoint of what was merged, and its layer, and goes to it.
    pub(crate) fn go_to_merged(
        &mut self,
        number: u32,
        other: &Transaction,
        sum: &Sum,
        command: Command,
    ) -> Result<()> {
        let flush = self.meta.durable;
        {
            let _rights = crate::sys_owner::rights();
            self.save_manifest(number, &sum.copies, flush)?;
            let saved = self.dir().join("saved");
            super::replace_file(&reads_of(&saved, number), &sum.reads.to_bytes()?, flush)?;
            if let Some(deltas) = &sum.deltas {
                super::replace_file(&deltas_of(&saved, number), deltas, flush)?;
            }
            if flush {
                flush_dir(&saved)?;
            }
        }
        self.meta.stack.layers.push(StackLayer {
            command: command.words,
            directory: command.directory,
            arguments_hidden: command.arguments_hidden,
            begun: command.begun,
            ended: Some(Stamp::now()),
            exit_status: None,
            changes: self.meta.changes,
            is_same: false,
            counts: None,
            saved: true,
            joined: Vec::new(),
        });
        // What nobody observed must not have changed since either began.
        self.meta.begun = self.meta.begun.min(other.meta.begun);
        self.go_to(number)
    }
}

/// What two transactions are together.
pub(crate) struct Sum {
    /// The private copies.
    pub copies: Manifest,
    /// What either has read.
    pub reads: ReadSet,
    /// The file of the recorded changes, if they are recorded.
    pub deltas: Option<Vec<u8>>,
}

/// Content of another transaction's savepoint, on its way to one of ours.
pub(crate) struct Import<'a> {
    layer: &'a Layer,
    number: u32,
    flush: bool,
    copied: HashMap<PathBuf, Content>,
}

impl<'a> Import<'a> {
    /// To savepoint `number` of a layer; with `flush`, durably.
    pub(crate) fn new(layer: &'a Layer, number: u32, flush: bool) -> Self {
        Import { layer, number, flush, copied: HashMap::new() }
    }

    /// An entry of the other one's layer `from`, as an entry of ours.
    pub(crate) fn take(&mut self, from: &Layer, item: &Item) -> Result<Item> {
        let mut item = item.clone();
        let Some(saved) = savepoint::saved_content(from, &item) else { return Ok(item) };
        if let Some(content) = self.copied.get(&saved) {
            item.content = content.clone();
            return Ok(item);
        }
        let to = self.dir();
        let _ = make_dir_once(&to)?;
        let next = u32::try_from(self.copied.len()).unwrap_or(u32::MAX);
        copy(&saved, &to.join(next.to_string()), self.flush)?;
        item.content = Content::Saved { savepoint: self.number, number: next };
        self.copied.insert(saved, item.content.clone());
        Ok(item)
    }

    fn dir(&self) -> PathBuf {
        savepoint::place(self.layer).join(self.number.to_string())
    }

    /// All of it is there.
    pub(crate) fn end(self) -> Result<()> {
        if !self.flush || self.copied.is_empty() {
            return Ok(());
        }
        flush_dir(&self.dir())?;
        flush_dir(&savepoint::place(self.layer))
    }
}

/// Whether two entries are the same in everything but when they were made. `in_time`: also directories have the same time.
pub(crate) fn are_alike(
    (a, of_a): (&Item, &Layer),
    (b, of_b): (&Item, &Layer),
    in_time: bool,
) -> Result<bool> {
    if (a.mode, a.uid, a.gid, a.rdev) != (b.mode, b.uid, b.gid, b.rdev) || lasting(a) != lasting(b)
    {
        return Ok(false);
    }
    if a.kind() == FileKind::Dir {
        return Ok(!in_time || a.mtime == b.mtime);
    }
    if (a.size, a.mtime) != (b.size, b.mtime) {
        return Ok(false);
    }
    match (savepoint::saved_content(of_a, a), savepoint::saved_content(of_b, b)) {
        (Some(one), Some(two)) => Ok(one == two || same_bytes(&one, &two)?),
        (None, None) => Ok(a.content == b.content),
        _ => Ok(false),
    }
}

impl Both<'_> {
    /// Where each entry is taken from.
    fn sides(
        &self,
        conflicts: &mut Vec<Conflict>,
        changed: &mut Changed,
        changed_there: &mut Changed,
    ) -> Result<Sides> {
        let (ours, theirs) = (self.ours.1, self.theirs.1);
        let paths: BTreeSet<&Vec<u8>> =
            ours.keys().chain(theirs.keys()).chain(self.base.keys()).collect();
        let mut sides = HashMap::new();
        for path in paths {
            let (b, o, t) = (self.base.get(path), ours.get(path), theirs.get(path));
            let is_ours = !self.is_as_before(path, b, o, self.ours.0)?;
            let is_theirs = !self.is_as_before(path, b, t, self.theirs.0)?;
            let equal = is_ours && is_theirs && self.is_equal(o, self.ours.0, t, self.theirs.0)?;
            let side = match (is_ours, is_theirs) {
                (false, false) if o.is_none() => Side::Theirs,
                (false, false) if t.is_none() => Side::Ours,
                (false, false) => Side::Either,
                (true, false) => Side::Ours,
                (false, true) => Side::Theirs,
                (true, true) if equal => Side::Either,
                (true, true) => {
                    self.refuse(conflicts, path, ConflictKind::ChangedByBoth);
                    Side::Ours
                }
            };
            if !equal {
                let layer = self.ours.0;
                if is_ours {
                    changed.add(layer, path, b, o);
                }
                if is_theirs {
                    changed_there.add(layer, path, b, t);
                }
            }
            sides.insert(path.clone(), side);
        }
        self.keep_together(&mut sides, conflicts);
        self.check_ways(&sides, conflicts);
        Ok(sides)
    }

    fn tree(&self, side: Side) -> &Tree {
        if side == Side::Theirs { self.theirs.1 } else { self.ours.1 }
    }

    fn refuse(&self, conflicts: &mut Vec<Conflict>, path: &[u8], what: ConflictKind) {
        // An entry of the index has a name that says nothing; the names that it stands for say it.
        if let Some(path) = below_upper(path) {
            conflicts.push(conflict(&stable(self.ours.0, path), what));
            return;
        }
        let ino = [self.ours.1, self.theirs.1].map(|tree| tree.get(path).map(|item| item.ino));
        let named = |(tree, ino): (&Tree, Option<u64>)| {
            let is_name = |(path, item): &(&Vec<u8>, &Item)| {
                Some(item.ino) == ino && below_upper(path).is_some()
            };
            tree.iter().find(is_name).and_then(|(path, _)| below_upper(path).map(<[u8]>::to_vec))
        };
        let found = [self.ours.1, self.theirs.1].into_iter().zip(ino).find_map(named);
        conflicts.push(conflict(&stable(self.ours.0, &found.unwrap_or_default()), what));
    }

    /// Whether a side has at a path what both began with.
    fn is_as_before(
        &self,
        path: &[u8],
        before: Option<&Item>,
        now: Option<&Item>,
        layer: &Layer,
    ) -> Result<bool> {
        match (before, now) {
            (None, Some(now)) => Ok(savepoint::is_top(path) && path != b"upper"
                || below_upper(path).is_some_and(|path| is_copied_up(layer, path, now))),
            (before, now) => self.is_equal(before, self.ours.0, now, layer),
        }
    }

    fn is_equal(
        &self,
        a: Option<&Item>,
        of_a: &Layer,
        b: Option<&Item>,
        of_b: &Layer,
    ) -> Result<bool> {
        let (Some(a), Some(b)) = (a, b) else { return Ok(a.is_none() && b.is_none()) };
        if a.is_whiteout() && b.is_whiteout() {
            return Ok(true);
        }
        are_alike((a, of_a), (b, of_b), false)
    }

    /// All names of an object come from one side.
    fn keep_together(&self, sides: &mut Sides, conflicts: &mut Vec<Conflict>) {
        for side in [Side::Ours, Side::Theirs] {
            let mut groups: HashMap<u64, Vec<&Vec<u8>>> = HashMap::new();
            for (path, item) in self.tree(side) {
                if item.several && item.kind() != FileKind::Dir && !item.is_whiteout() {
                    groups.entry(item.ino).or_default().push(path);
                }
            }
            for names in groups.into_values() {
                if !names.iter().any(|name| sides.get(*name) == Some(&side)) {
                    continue;
                }
                for name in names {
                    match sides.get(name) {
                        Some(Side::Either) => drop(sides.insert(name.clone(), side)),
                        Some(from) if *from != side => {
                            self.refuse(conflicts, name, ConflictKind::ChangedByBoth);
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// What is taken lies in directories that are what they are on its side.
    fn check_ways(&self, sides: &Sides, conflicts: &mut Vec<Conflict>) {
        for (path, side) in sides {
            if !self.tree(*side).contains_key(path) {
                continue;
            }
            let mut at = path.as_slice();
            while !savepoint::is_top(at) {
                at = split(at).0;
                let dir = sides.get(at).and_then(|of| self.tree(*of).get(at));
                let own = self.tree(*side).get(at);
                let leads = match (dir, own) {
                    (Some(dir), Some(own)) => {
                        dir.kind() == FileKind::Dir && marks(dir) == marks(own)
                    }
                    _ => false,
                };
                if !leads {
                    self.refuse(conflicts, path, ConflictKind::WayChangedByOther);
                    break;
                }
            }
        }
    }

    /// The entries that were picked, with the content of those of the other side copied to savepoint `number`.
    fn merged(&self, sides: &Sides, number: u32, flush: bool) -> Result<Tree> {
        let mut import = Import::new(self.ours.0, number, flush);
        let mut tree = Tree::new();
        for (path, side) in sides {
            let Some(item) = self.tree(*side).get(path) else { continue };
            let mut item = match side {
                Side::Theirs => import.take(self.theirs.0, item)?,
                Side::Ours | Side::Either => item.clone(),
            };
            if item.kind() == FileKind::Dir {
                self.merge_dir(path, &mut item);
            }
            tree.insert(path.clone(), item);
        }
        import.end()?;
        Ok(tree)
    }

    /// A directory that is in both: overlayfs's note that something in it was copied up, and the time that one of them has given it,
    /// or the later one if both have.
    fn merge_dir(&self, path: &[u8], item: &mut Item) {
        let was = match self.base.get(path) {
            Some(dir) => Some(dir.mtime),
            None => below_upper(path).and_then(|path| {
                let there = stat_at(CWD, &stable(self.ours.0, path), AtFlags::SYMLINK_NOFOLLOW);
                there.ok().map(|there| there.mtime)
            }),
        };
        let times = [self.ours.1, self.theirs.1].into_iter().filter_map(|tree| tree.get(path));
        let times = times.filter(|dir| dir.kind() == FileKind::Dir).map(|dir| dir.mtime);
        let given = times.filter(|mtime| Some(*mtime) != was).max();
        item.mtime = given.unwrap_or(item.mtime);
        for dir in [self.ours.1, self.theirs.1].into_iter().filter_map(|tree| tree.get(path)) {
            for entry in dir.xattrs.iter().filter(|(name, _)| name.ends_with(b".overlay.impure")) {
                if !item.xattrs.contains(entry) {
                    item.xattrs.push(entry.clone());
                    item.xattrs.sort();
                }
            }
        }
    }
}

impl Changed {
    pub(super) fn add(
        &mut self,
        layer: &Layer,
        path: &[u8],
        before: Option<&Item>,
        now: Option<&Item>,
    ) {
        let Some(path) = below_upper(path) else { return };
        let path = stable(layer, path);
        let there = stat_at(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).ok();
        let exists = |item: Option<&Item>| match item {
            Some(item) => !item.is_whiteout(),
            None => there.is_some(),
        };
        if exists(before) != exists(now)
            && let Some((dir, _)) = crate::path::split(&path)
        {
            self.listings.insert(dir.to_vec());
        }
        if let Some(there) = there
            && there.nlink > 1
            && there.kind() != FileKind::Dir
        {
            self.objects.insert(there.id);
        }
        let leads = now.is_some_and(|now| {
            let moved = |(name, _): &(&[u8], &[u8])| !name.ends_with(b".origin");
            now.kind() == FileKind::Dir && !marks(now).iter().any(moved)
        });
        self.paths.insert(path, !leads);
    }

    /// What of these changes `reader` has seen as it was before.
    pub(crate) fn seen_by(&self, reads: &ReadSet, reader: TxId, writer: TxId) -> Vec<Conflict> {
        let is_seen = |path: &[u8], outcome: Outcome, facets: Facets| {
            let (id, is_dir) = match outcome {
                Outcome::Present(v) => (Some(v.id), v.kind() == FileKind::Dir),
                Outcome::Absent(_) => (None, false),
            };
            let mut above = path;
            let mut is_below = false;
            while let Some((dir, _)) = crate::path::split(above).filter(|(dir, _)| *dir != b"/") {
                is_below |= self.paths.get(dir) == Some(&true);
                above = dir;
            }
            self.paths.contains_key(path)
                || is_below
                || is_dir && facets.contains(Facets::LISTING) && self.listings.contains(path)
                || id.is_some_and(|id| self.objects.contains(&id))
        };
        let seen = reads.iter().filter(|(path, seen)| is_seen(path, seen.outcome, seen.facets()));
        let what = || ConflictKind::SeenByOther { reader, writer };
        seen.take(CONFLICTS_MAX).map(|(path, _)| conflict(&path, what())).collect()
    }
}

pub(crate) fn conflict(path: &[u8], what: ConflictKind) -> Conflict {
    Conflict { path: from_bytes(path), what, when: None }
}

/// The path below the layer's root; none of what is in the index.
pub(super) fn below_upper(path: &[u8]) -> Option<&[u8]> {
    match path.strip_prefix(b"upper")? {
        b"" => Some(b""),
        rest => rest.strip_prefix(b"/"),
    }
}

pub(super) fn stable(layer: &Layer, path: &[u8]) -> Vec<u8> {
    match path {
        b"" => layer.target.as_os_str().as_bytes().to_vec(),
        path => join(layer.target.as_os_str().as_bytes(), path),
    }
}

/// The extended attributes that say what an object is.
pub(super) fn lasting(item: &Item) -> Vec<&(Vec<u8>, Vec<u8>)> {
    let passing =
        |name: &[u8]| name.ends_with(b".overlay.impure") || savepoint::is_of_the_inode(name);
    item.xattrs.iter().filter(|(name, _)| !passing(name)).collect()
}

/// overlayfs's marks of a directory that say what is below it.
pub(super) fn marks(item: &Item) -> Vec<(&[u8], &[u8])> {
    let leads = |name: &[u8]| {
        [&b".overlay.opaque"[..], b".overlay.redirect", b".overlay.origin"]
            .iter()
            .any(|mark| name.ends_with(mark))
    };
    let found = item.xattrs.iter().filter(|(name, _)| leads(name));
    found.map(|(name, value)| (&name[..], &value[..])).collect()
}

/// Whether a directory is only there because something below it was changed.
pub(super) fn is_copied_up(layer: &Layer, path: &[u8], item: &Item) -> bool {
    let moved = |(name, _): &(&[u8], &[u8])| !name.ends_with(b".origin");
    if item.kind() != FileKind::Dir || marks(item).iter().any(moved) {
        return false;
    }
    let path = stable(layer, path);
    let Ok(there) = stat_at(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    let own = |xattrs: &[(Vec<u8>, Vec<u8>)]| {
        let mut own: Vec<_> =
            xattrs.iter().filter(|(name, _)| !savepoint::is_mark(name)).cloned().collect();
        own.sort();
        own
    };
    let Ok(xattrs) = sys::xattrs(&path) else { return false };
    (there.mode, there.uid, there.gid) == (item.mode, item.uid, item.gid)
        && own(&xattrs) == own(&item.xattrs)
}

pub(super) fn same_bytes(one: &PathBuf, two: &PathBuf) -> Result<bool> {
    const CHUNK: usize = 1 << 16;
    let files = [one, two].map(|path| {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
        sys::open(path.as_os_str().as_bytes(), flags, 0).at("opening", path)
    });
    let [one_file, two_file] = files;
    let (one_file, two_file) = (one_file?, two_file?);
    let (mut a, mut b, mut at) = (vec![0u8; CHUNK], vec![0u8; CHUNK], 0u64);
    loop {
        let n = read_whole(&one_file, &mut a, at).at("reading", one)?;
        let m = read_whole(&two_file, &mut b, at).at("reading", two)?;
        if a.get(..n) != b.get(..m) {
            return Ok(false);
        }
        if n < CHUNK {
            return Ok(true);
        }
        at += n as u64;
    }
}

fn read_whole(file: &std::os::fd::OwnedFd, buffer: &mut [u8], at: u64) -> sys::Sys<usize> {
    let mut done = 0;
    while done < buffer.len() {
        let room = buffer.get_mut(done..).unwrap_or_default();
        match sys::read_at(file, room, at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

fn copy(from: &PathBuf, to: &PathBuf, flush: bool) -> Result<()> {
    let (Some(dir), Some(name)) = (to.parent(), to.file_name()) else { return Ok(()) };
    let dir = open(dir)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
    let source = sys::open(from.as_os_str().as_bytes(), flags, 0).at("opening", from)?;
    let file = sys::create(dir.as_fd(), name.as_bytes()).at("creating", to)?;
    crate::sys_copy::content(&source, &file).at("copying", from)?;
    if flush { sys::fdatasync(file.as_fd()).at("flushing", to) } else { Ok(()) }
}
