//! What one layer changed, as operations that do it again elsewhere: in the view that it began with.
//!
//! They are done by path, by a process in that view, so that the overlay there knows of all of it. An object that both
//! states have stays the object that it is: it is moved by `rename`, gets one more name by `link`, is written in place.
//! What is moved goes to a name beside its old one first, so that moves in a circle need no order.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::super::Counts;
use super::{Object, Pair, State, View, below_upper, same, status, target, touched};
use crate::changeset::overlay::{overlay_xattr, unhex};
use crate::changeset::{Entry, Status, is_overlay_xattr};
use crate::error::{Conflict, Context, Error, Result};
use crate::id::TxId;
use crate::object::FileKind;
use crate::path::from_bytes;
use crate::path::layer::{child, is_at_or_below, split};
use crate::readset::ReadSet;
use crate::store::{Content, Inside, Item, Layer, Transaction, Tree, set_attributes};
use crate::sys::{self, Sys};
use crate::sys_handle::Handle;
use crate::version::stat_at;

/// One operation. Paths are absolute, in the view.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step(Op);

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Op {
    Rename {
        from: Vec<u8>,
        to: Vec<u8>,
    },
    /// With all that is below it; nothing may be there.
    Remove {
        path: Vec<u8>,
    },
    Directory {
        path: Vec<u8>,
    },
    /// The content comes with the step.
    File {
        path: Vec<u8>,
        item: Item,
        in_place: bool,
    },
    Link {
        from: Vec<u8>,
        path: Vec<u8>,
        beside: Vec<u8>,
    },
    /// A symbolic link, FIFO, socket or device.
    Node {
        path: Vec<u8>,
        item: Item,
    },
    Attributes {
        path: Vec<u8>,
        item: Item,
    },
}

/// The operations, in order, and what they come to.
#[derive(Debug, Default)]
pub struct Replay {
    all: Vec<(Step, Option<PathBuf>)>,
    entries: Vec<Entry>,
}

impl Replay {
    /// The operations, without their content.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.all.iter().map(|(step, _)| step)
    }

    /// The operations, each with the file whose content it needs.
    pub fn with_content(&self) -> impl Iterator<Item = (&Step, Option<&PathBuf>)> {
        self.all.iter().map(|(step, content)| (step, content.as_ref()))
    }

    /// How many paths are changed, by kind.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts::of(&self.entries)
    }

    /// What has to be done in the view of the outer transaction, so that it has what the inner one has.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) with what can't be read.
    pub fn of(inside: &Inside, tx: &Transaction, reads: &ReadSet) -> Result<Replay> {
        let mut replay = Replay::default();
        inside.each_layer(tx, |old, new| replay.add(old, new, reads, tx.id()))?;
        Ok(replay)
    }

    /// What processes of the outer transaction have changed meanwhile of what this changes, or the inner one has
    /// looked at.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) with what can't be read.
    pub fn conflicts(
        &self,
        inside: &Inside,
        tx: &Transaction,
        reads: &ReadSet,
    ) -> Result<Vec<Conflict>> {
        let changes: Vec<(&[u8], bool)> = self.steps().flat_map(Step::changes).collect();
        inside.conflicts(tx, &changes, reads)
    }

    /// Adds what makes one layer's old entries its new ones. `id` makes the names of what is moved unlike others.
    /// The old content is that of another layer, of which this one began as a copy.
    fn add(
        &mut self,
        (copied, old): (&Layer, &Tree),
        (layer, new): (&Layer, &Tree),
        reads: &ReadSet,
        id: TxId,
    ) -> Result<()> {
        let old = State { layer: copied, tree: old };
        let new = State { layer, tree: new };
        let touched = touched(old.tree, new.tree);
        let mut pair = Pair::new(old, new, touched);
        pair.reads = Some(reads);
        let groups = groups(&mut pair);
        self.entries.extend(pair.entries()?);
        let mut planner = Planner {
            pair: &pair,
            groups,
            steps: Vec::new(),
            apart: Vec::new(),
            made: HashMap::new(),
            links: Vec::new(),
            dirs: BTreeSet::new(),
            token: format!(".txos-{id}"),
            names: 0,
        };
        planner.plan()?;
        self.all.append(&mut planner.steps);
        Ok(())
    }
}

impl Step {
    /// To be handed to another process.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// What [`Step::to_bytes`] gave.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Step> {
        postcard::from_bytes(bytes).ok()
    }

    /// The paths that it changes; whether with all that is below.
    fn changes(&self) -> Vec<(&[u8], bool)> {
        match &self.0 {
            Op::Rename { from, to } => vec![(from, true), (to, true)],
            Op::Remove { path } => vec![(path, true)],
            Op::Directory { path } | Op::Attributes { path, .. } => vec![(path, false)],
            Op::File { path, .. } | Op::Link { path, .. } | Op::Node { path, .. } => {
                vec![(path, true)]
            }
        }
    }

    /// What it does, to what.
    #[must_use]
    pub fn shown(&self) -> String {
        let (what, path) = match &self.0 {
            Op::Rename { to, .. } => ("moving to", to),
            Op::Remove { path } => ("removing", path),
            Op::Directory { path } => ("making", path),
            Op::File { path, .. } => ("writing", path),
            Op::Link { path, .. } => ("linking", path),
            Op::Node { path, .. } => ("making", path),
            Op::Attributes { path, .. } => ("setting the attributes of", path),
        };
        format!("{what} {}", crate::show::quoted_bytes(path))
    }

    /// Does it, in the view that this process is in.
    ///
    /// # Errors
    /// Its errno.
    pub fn run(&self, content: Option<OwnedFd>) -> Sys<()> {
        match &self.0 {
            Op::Rename { from, to } => {
                let (from_dir, from) = parent(from)?;
                let (to_dir, to) = parent(to)?;
                sys::rename(from_dir.as_fd(), from, to_dir.as_fd(), to, RenameFlags::NOREPLACE)
            }
            Op::Remove { path } => match std::fs::symlink_metadata(from_bytes(path)) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
                Ok(found) if found.is_dir() => {
                    std::fs::remove_dir_all(from_bytes(path)).map_err(|e| errno(&e))
                }
                _ => {
                    let (dir, name) = parent(path)?;
                    sys::unlink(dir.as_fd(), name, AtFlags::empty())
                }
            },
            Op::Directory { path } => {
                let (dir, name) = parent(path)?;
                sys::mkdir(dir.as_fd(), name, 0o700)
            }
            Op::File { path, item, in_place } => {
                file(path, item, *in_place, &content.ok_or(Errno::BADF)?)
            }
            Op::Link { from, path, beside } => {
                let (from_dir, from) = parent(from)?;
                let (dir, name) = parent(path)?;
                let beside = split(beside).1;
                sys::link(from_dir.as_fd(), from, dir.as_fd(), beside)?;
                sys::rename(dir.as_fd(), beside, dir.as_fd(), name, RenameFlags::empty())
            }
            Op::Node { path, item } => node(path, item),
            Op::Attributes { path, item } if item.kind() == FileKind::Dir => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                // One that its owner may not read is opened as a place only.
                let dir = sys::open(path, flags, 0).or_else(|_| {
                    sys::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW, 0)
                })?;
                set_attributes(dir.as_fd(), b"", item)
            }
            Op::Attributes { path, item } => {
                let (dir, name) = parent(path)?;
                set_attributes(dir.as_fd(), name, item)
            }
        }
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn parent(path: &[u8]) -> Sys<(OwnedFd, &[u8])> {
    let (dir, name) = split(path);
    let dir = if dir.is_empty() { &b"/"[..] } else { dir };
    Ok((sys::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW, 0)?, name))
}

/// A name beside another one, for what is about to take its place.
fn beside(name: &[u8]) -> Vec<u8> {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!(".txos-new-{}-{hash:x}", std::process::id()).into_bytes()
}

fn file(path: &[u8], item: &Item, in_place: bool, content: &OwnedFd) -> Sys<()> {
    let (dir, name) = parent(path)?;
    if in_place {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW;
        let open = || sys::open_at(dir.as_fd(), name, flags);
        let opened = match open() {
            Err(Errno::ACCESS) => {
                // Its mode was changed on the way.
                let path = sys::entry_path(dir.as_fd(), name);
                sys::step("inner chmod", || rustix::fs::chmod(&path[..], Mode::RUSR | Mode::WUSR))?;
                open()
            }
            other => other,
        };
        match opened {
            Ok(to) => {
                crate::sys_copy::content(content, &to)?;
                drop(to);
                return set_attributes(dir.as_fd(), name, item);
            }
            // It is being executed: another file takes its place.
            Err(Errno::TXTBSY) => {}
            Err(e) => return Err(e),
        }
    }
    let new = beside(name);
    let to = sys::create(dir.as_fd(), &new)?;
    let made = crate::sys_copy::content(content, &to)
        .and_then(|()| {
            drop(to);
            set_attributes(dir.as_fd(), &new, item)
        })
        .and_then(|()| sys::rename(dir.as_fd(), &new, dir.as_fd(), name, RenameFlags::empty()));
    if made.is_err() {
        let _ = sys::unlink(dir.as_fd(), &new, AtFlags::empty());
    }
    made
}

fn node(path: &[u8], item: &Item) -> Sys<()> {
    let (dir, name) = parent(path)?;
    let new = beside(name);
    match (&item.content, FileType::from_raw_mode(item.mode)) {
        (Content::Link(target), FileType::Symlink) => {
            sys::step("inner symlink", || rustix::fs::symlinkat(&target[..], &dir, &new[..]))?;
        }
        (_, kind) => sys::step("inner mknod", || {
            rustix::fs::mknodat(&dir, &new[..], kind, Mode::RUSR | Mode::WUSR, item.rdev)
        })?,
    }
    let made = set_attributes(dir.as_fd(), &new, item)
        .and_then(|()| sys::rename(dir.as_fd(), &new, dir.as_fd(), name, RenameFlags::empty()));
    if made.is_err() {
        let _ = sys::unlink(dir.as_fd(), &new, AtFlags::empty());
    }
    made
}

/// The names that each object of several names has now, by inode. An object all of whose old names are gone is moved
/// from one of these: adds that to the moves.
fn groups(pair: &mut Pair<'_>) -> HashMap<u64, Vec<Vec<u8>>> {
    let mut groups: HashMap<u64, Vec<Vec<u8>>> = HashMap::new();
    for (key, item) in pair.both.new.tree {
        let Some(path) = below_upper(key) else { continue };
        if item.several && item.kind() != FileKind::Dir && !item.is_whiteout() {
            groups.entry(item.ino).or_default().push(path.to_vec());
        }
    }
    let by_handle = pair.gone_files();
    let mut old_names: HashMap<u64, &[u8]> = HashMap::new();
    for (key, item) in pair.both.old.tree {
        let Some(path) = below_upper(key) else { continue };
        let gone = pair.both.new.item(path).is_none_or(|now| now.ino != item.ino);
        if item.kind() != FileKind::Dir && !item.is_whiteout() && gone {
            old_names.insert(item.ino, path);
        }
    }
    let mut moves = Vec::new();
    for (ino, paths) in &groups {
        let Some(item) = paths.first().and_then(|path| pair.both.new.item(path)) else { continue };
        let stays = |path: &Vec<u8>| {
            pair.both.before(path).is_some_and(|before| is_one_object(pair, &before, item))
        };
        if paths.iter().any(stays) {
            continue;
        }
        let origin = overlay_xattr(&item.xattrs, b"origin").and_then(Handle::stored);
        let from = old_names.get(ino).map(|path| path.to_vec());
        let from = from.or_else(|| by_handle.get(&origin?).cloned());
        let to = paths.first().cloned();
        if let (Some(from), Some(to)) = (from, to)
            && is_one_object(pair, &from, item)
            && !pair.both.moves.iter().any(|(source, _)| *source == from)
        {
            moves.push((from, to));
        }
    }
    pair.both.moves.extend(moves);
    groups
}

/// Whether what was at a path is the object that `now` is.
fn is_one_object(pair: &Pair<'_>, before: &[u8], now: &Item) -> bool {
    if let Some(was) = pair.both.old.item(before) {
        return !was.is_whiteout() && was.ino == now.ino && was.kind() == now.kind();
    }
    let Some(lower) = pair.both.old.lower(before) else { return false };
    let origin = overlay_xattr(&now.xattrs, b"origin");
    if origin.is_none_or(<[u8]>::is_empty)
        && (origin.is_some() || !crate::rights::is_privileged_throughout())
    {
        // No handle could be stored. Then what the command was seen to do tells.
        let stable = pair.both.old.stable(&lower);
        let was = pair.both.old.object(before);
        return was.is_some_and(|was| was.side.kind == now.kind())
            && pair.reads.is_some_and(|reads| reads.kept(stable.as_os_str().as_bytes()));
    }
    let origin = origin.and_then(Handle::stored);
    let (dir, name) = split(&lower);
    let dir = sys::open_dir_canonical(pair.both.old.stable(dir).as_os_str().as_bytes());
    let handle = dir.ok().and_then(|dir| Handle::of(dir.as_fd(), name));
    handle.is_some() && handle == origin
}

/// Something on its way from one name to another.
struct Apart {
    now: Vec<u8>,
    to: Vec<u8>,
}

/// Paths are relative to the layer's root, named as they are in the end.
struct Planner<'a> {
    pair: &'a Pair<'a>,
    groups: HashMap<u64, Vec<Vec<u8>>>,
    steps: Vec<(Step, Option<PathBuf>)>,
    apart: Vec<Apart>,
    /// Where an object of several names is already.
    made: HashMap<u64, Vec<u8>>,
    /// Names that it gets in the end.
    links: Vec<(u64, Vec<u8>)>,
    /// Directories whose attributes are set in the end.
    dirs: BTreeSet<Vec<u8>>,
    token: String,
    names: u32,
}

impl Planner<'_> {
    fn plan(&mut self) -> Result<()> {
        self.write_unnamed();
        self.set_apart();
        for path in self.pair.candidates()? {
            self.path(&path)?;
        }
        for (ino, path) in std::mem::take(&mut self.links) {
            let kept = || {
                let names = self.groups.get(&ino)?;
                let stays = |name: &&Vec<u8>| **name != path && self.is_kept(name);
                names.iter().find(stays).cloned()
            };
            let Some(from) = self.made.get(&ino).cloned().or_else(kept) else { continue };
            let beside = self.name_beside(&path);
            self.touch(&path);
            let (from, path) = (self.full(&from), self.full(&path));
            self.push(Op::Link { from, path, beside }, None);
        }
        for (key, item) in self.pair.both.new.tree {
            let Some(path) = below_upper(key).filter(|_| item.kind() == FileKind::Dir) else {
                continue;
            };
            let was =
                self.pair.both.before(path).and_then(|before| self.pair.both.old.object(&before));
            if was.is_some_and(|was| was.side.mtime != item.mtime) {
                self.dirs.insert(path.to_vec());
            }
        }
        let dirs: Vec<Vec<u8>> = std::mem::take(&mut self.dirs).into_iter().rev().collect();
        for path in dirs {
            let Some(object) = self.pair.both.new.object(&path) else { continue };
            if object.side.kind == FileKind::Dir {
                let item = whole(&object)?;
                let path = self.full(&path);
                self.push(Op::Attributes { path, item }, None);
            }
        }
        Ok(())
    }

    /// Objects of several names that were changed, and of which every name that is known was then taken away: overlayfs
    /// has them in its index only. They are changed before that, by such a name.
    fn write_unnamed(&mut self) {
        let named: HashSet<u64> = self
            .pair
            .both
            .new
            .tree
            .iter()
            .filter(|(key, item)| below_upper(key).is_some() && !item.is_whiteout())
            .map(|(_, item)| item.ino)
            .collect();
        let prefix = &b"work/index/"[..];
        let changed = |key: &Vec<u8>, item: &Item| {
            let old = self.pair.both.old.tree.get(key);
            let state = |i: &Item| (i.ino, i.ctime, i.size, i.mode);
            old.is_none_or(|old| state(old) != state(item))
        };
        let unnamed: Vec<(Vec<u8>, Item)> = self
            .pair
            .both
            .new
            .tree
            .range(prefix.to_vec()..)
            .take_while(|(key, _)| key.starts_with(prefix))
            .filter(|(key, item)| {
                item.kind() == FileKind::File && !named.contains(&item.ino) && changed(key, item)
            })
            .map(|(key, item)| (key.clone(), item.clone()))
            .collect();
        if unnamed.is_empty() {
            return;
        }
        let lost = self.lost_names();
        for (key, mut item) in unnamed {
            let stored = key.get(prefix.len()..).and_then(unhex);
            let Some(handle) = stored.as_deref().and_then(Handle::stored) else { continue };
            let Some(path) = lost.get(&handle) else { continue };
            item.xattrs.retain(|(name, _)| !is_overlay_xattr(name));
            let top =
                self.pair.both.new.layer.upper.parent().map(PathBuf::from).unwrap_or_default();
            let (path, content) = (self.full(path), top.join(from_bytes(&key)));
            self.push(Op::File { path, item, in_place: true }, Some(content));
        }
    }

    /// The names at which something else is now, or nothing, than the stable file that was there: by its handle.
    fn lost_names(&self) -> HashMap<Handle, Vec<u8>> {
        let mut lost = HashMap::new();
        for (key, item) in self.pair.both.new.tree {
            let Some(path) = below_upper(key) else { continue };
            let Some(lower) = self.pair.both.old.lower_of(path) else { continue };
            if self.pair.both.old.object(path).is_none_or(|old| old.side.kind != FileKind::File) {
                continue;
            }
            if !item.is_whiteout() && is_one_object(self.pair, path, item) {
                continue;
            }
            let (dir, name) = split(&lower);
            let dir =
                sys::open_dir_canonical(self.pair.both.old.stable(dir).as_os_str().as_bytes());
            let Some(handle) = dir.ok().and_then(|dir| Handle::of(dir.as_fd(), name)) else {
                continue;
            };
            let copy_of =
                |old: &Item| overlay_xattr(&old.xattrs, b"origin").and_then(Handle::stored);
            if self
                .pair
                .both
                .old
                .item(path)
                .is_none_or(|old| copy_of(old).as_ref() == Some(&handle))
            {
                lost.insert(handle, path.to_vec());
            }
        }
        lost
    }

    fn full(&self, path: &[u8]) -> Vec<u8> {
        self.pair.both.new.stable(path).as_os_str().as_bytes().to_vec()
    }

    fn push(&mut self, op: Op, content: Option<PathBuf>) {
        self.steps.push((Step(op), content));
    }

    /// The directory of a path has other times then.
    fn touch(&mut self, path: &[u8]) {
        self.dirs.insert(split(path).0.to_vec());
    }

    fn name_beside(&mut self, path: &[u8]) -> Vec<u8> {
        self.names += 1;
        child(split(path).0, format!("{}-{}", self.token, self.names).as_bytes())
    }

    /// Moves what is on its way, as far as it is at `from` or below.
    fn move_to(&mut self, from: &[u8], to: &[u8]) {
        for apart in &mut self.apart {
            if is_at_or_below(&apart.now, from) {
                let rest = apart.now.get(from.len()..).unwrap_or_default();
                apart.now = [to, rest].concat();
            }
        }
        let (from, to) = (self.full(from), self.full(to));
        self.push(Op::Rename { from, to }, None);
    }

    /// Everything that is moved goes to a name beside its old one, what is deepest first.
    fn set_apart(&mut self) {
        let mut moves = self.pair.both.moves.clone();
        moves.sort_by_key(|(from, _)| {
            std::cmp::Reverse(from.iter().filter(|&&b| b == b'/').count())
        });
        for (from, to) in moves {
            let now = self.name_beside(&from);
            self.move_to(&from, &now);
            self.apart.push(Apart { now, to });
            let dir = self.pair.both.after(split(&from).0);
            self.dirs.insert(dir);
        }
    }

    /// Takes away what is at a path, but for what is on its way.
    fn remove(&mut self, path: &[u8]) {
        let inside: Vec<Vec<u8>> = self
            .apart
            .iter()
            .filter(|apart| is_at_or_below(&apart.now, path) && apart.now != path)
            .map(|apart| apart.now.clone())
            .collect();
        for now in inside {
            let out = self.name_beside(path);
            self.move_to(&now, &out);
        }
        self.touch(path);
        let path = self.full(path);
        self.push(Op::Remove { path }, None);
    }

    /// Whether the object at a name is there without a step of ours.
    fn is_kept(&self, path: &[u8]) -> bool {
        let item = self.pair.both.new.item(path);
        let before = self.pair.both.before(path);
        item.zip(before).is_some_and(|(item, before)| is_one_object(self.pair, &before, item))
    }

    fn path(&mut self, path: &[u8]) -> Result<()> {
        let pair = self.pair;
        let before = pair.both.before(path);
        let old = before.as_deref().and_then(|before| pair.both.old.object(before));
        let Some(new) = pair.both.new.object(path) else {
            let dir_is_there = {
                let dir = pair.both.new.object(split(path).0);
                dir.is_some_and(|dir| dir.side.kind == FileKind::Dir)
            };
            if old.is_some() && dir_is_there {
                self.remove(path);
            }
            return Ok(());
        };
        let arrives = self.apart.iter().position(|apart| apart.to == path);
        if let Some(index) = arrives {
            let now = self.apart.remove(index).now;
            self.remove(path);
            self.move_to(&now, path);
            self.touch(path);
        }
        let new = Some(new);
        let change = status(&old, &new);
        let Some(new) = new else { return Ok(()) };
        if new.side.kind == FileKind::Dir {
            let was_dir = old.as_ref().is_some_and(|old| old.side.kind == FileKind::Dir);
            if !was_dir {
                if old.is_some() {
                    self.remove(path);
                }
                self.touch(path);
                let path = self.full(path);
                self.push(Op::Directory { path }, None);
            }
            if change.is_some() || !was_dir || arrives.is_some() {
                self.dirs.insert(path.to_vec());
            }
            return Ok(());
        }
        if old.as_ref().is_some_and(|old| old.side.kind == FileKind::Dir) && arrives.is_none() {
            self.remove(path);
        }
        self.object(path, &old, &new, change)
    }

    /// What is no directory.
    fn object(
        &mut self,
        path: &[u8],
        old: &Option<Object<'_>>,
        new: &Object<'_>,
        change: Option<Status>,
    ) -> Result<()> {
        let stays = self.is_kept(path);
        if let Some(item) = new.item.filter(|item| item.several) {
            if self.made.contains_key(&item.ino) {
                if !stays {
                    self.links.push((item.ino, path.to_vec()));
                }
                return Ok(());
            }
            let names = self.groups.get(&item.ino).cloned().unwrap_or_default();
            if !stays && names.iter().any(|name| self.is_kept(name)) {
                self.links.push((item.ino, path.to_vec()));
                return Ok(());
            }
            self.made.insert(item.ino, path.to_vec());
        } else if change.is_none() {
            return Ok(());
        }
        if stays && change.is_none() {
            return Ok(());
        }
        let item = whole(new)?;
        if !stays {
            self.touch(path);
        }
        let full = self.full(path);
        let same_content =
            old.as_ref().is_some_and(|old| old.side.kind == new.side.kind && same(old, new));
        match new.side.kind {
            _ if stays && same_content => self.push(Op::Attributes { path: full, item }, None),
            FileKind::File => {
                self.push(Op::File { path: full, item, in_place: stays }, new.at.clone());
            }
            _ => self.push(Op::Node { path: full, item }, None),
        }
        Ok(())
    }
}

/// An object as it is to be, without overlayfs's marks.
fn whole(object: &Object<'_>) -> Result<Item> {
    let mut item = match object.item {
        Some(item) => item.clone(),
        None => {
            let at = object.at.clone().unwrap_or_default();
            let bytes = at.as_os_str().as_bytes();
            let version = stat_at(CWD, bytes, AtFlags::SYMLINK_NOFOLLOW).at("looking at", &at)?;
            Item {
                mode: version.mode,
                uid: version.uid,
                gid: version.gid,
                rdev: version.rdev,
                size: version.size,
                mtime: version.mtime,
                xattrs: sys::xattrs(bytes).at("reading the attributes of", &at)?,
                content: Content::None,
                ino: version.id.ino,
                ctime: version.ctime,
                several: false,
                racy: false,
            }
        }
    };
    if object.side.kind == FileKind::Symlink {
        let to = target(object).ok_or_else(|| {
            Error::io("reading a link", object.at.clone().unwrap_or_default(), Errno::NOENT)
        })?;
        item.content = Content::Link(to);
    }
    item.xattrs.retain(|(name, _)| !is_overlay_xattr(name));
    Ok(item)
}
