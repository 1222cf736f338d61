//! What one layer of a pending transaction changed, as people are shown it: the transaction as it was with
//! the layers below, compared with what it is with this one.
//!
//! Either state is an upper directory, as a savepoint lists it, over the stable tree as it is now. A path at
//! which the two lists agree, and above which nothing is hidden or moved by one of them alone, is the same in
//! both; all others are looked up in both. In the library's view the recorded changes take the place of the upper
//! directory ([`recorded`]).

mod recorded;
mod replay;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD};

pub use replay::{Replay, Step};

use super::overlay::overlay_xattr;
use super::{Entry, Side, Status, What, is_overlay_xattr, same_bytes};
use crate::error::{Context, Error, Result};
use crate::object::FileKind;
use crate::path::layer::{child, is_at_or_below, split};
use crate::path::{from_bytes, join};
use crate::readset::ReadSet;
use crate::store::{
    Content, Item, Layer, Manifest, Transaction, Tree, look_at_entries, saved_content,
};
use crate::sys;
use crate::sys_handle::Handle;
use crate::version::stat_at;

/// The paths that layer `number` of a pending transaction changed, in order of path.
///
/// # Errors
/// [`Error::WrongState`] if it has no such layer, [`Error::Io`] with what can't be read.
pub fn layer_entries(tx: &Transaction, number: u32) -> Result<Vec<Entry>> {
    let _rights = crate::sys_owner::rights();
    let stack = tx.meta.stack_or_first();
    let layer = number.checked_sub(1).and_then(|n| stack.layers.get(n as usize));
    let here = number == stack.at;
    let Some(layer) = layer.filter(|layer| layer.saved || here) else {
        return Err(Error::WrongState {
            id: tx.id(),
            state: format!("without a layer {number} that could be looked at"),
            advice: "`txos show` lists its layers.".into(),
        });
    };
    Ok(between(tx, number - 1, layer.saved.then_some(number))?.entries)
}

/// What a command changed that runs in a pending transaction and has just ended.
#[derive(Debug, Default)]
pub struct RunningLayer {
    /// The paths, in order of path.
    pub entries: Vec<Entry>,
    /// Whether every private copy is the object that it was, unchanged; then there are no such paths.
    pub is_same: bool,
    /// The private copies as they are, if all of them could be looked at.
    copies: Option<Manifest>,
    /// The entries that the command made or changed, by number of the layer and path below its directory.
    changed: Vec<(usize, Vec<u8>, FileKind)>,
}

/// Up to so many entries are flushed one by one, which does not wait for what others write to the file system.
const FLUSHED_APART: usize = 16;

impl RunningLayer {
    /// What has to be flushed, if it is all known, little, and can be opened for it.
    pub(crate) fn few(&self) -> Option<Vec<(usize, &[u8], FileKind)>> {
        let few = self.copies.is_some() && self.changed.len() <= FLUSHED_APART;
        let opens = |kind: &FileKind| matches!(kind, FileKind::File | FileKind::Dir);
        let few = few && self.changed.iter().all(|(.., kind)| opens(kind));
        few.then(|| self.changed.iter().map(|(at, path, kind)| (*at, &path[..], *kind)).collect())
    }

    /// Has the transaction know what its private copies are, so that its next savepoint needs no other look. Nobody may
    /// be able to reach them any more.
    pub(crate) fn note(self, tx: &Transaction) {
        let _rights = crate::sys_owner::rights();
        if let Some(copies) = self.copies.filter(|_| !self.is_same) {
            tx.note_seen(copies);
        }
    }
}

/// Looks what the command changed that runs in a pending transaction and has just ended.
///
/// # Errors
/// [`Error::Io`] with what can't be read.
pub fn running_layer(tx: &Transaction) -> Result<RunningLayer> {
    let _rights = crate::sys_owner::rights();
    between(tx, tx.meta.before.as_ref().map_or(0, |before| before.savepoint), None)
}

/// What differs between two savepoints; `None` stands for the private copies as they are.
fn between(tx: &Transaction, below: u32, above: Option<u32>) -> Result<RunningLayer> {
    if tx.meta.recorded {
        let entries = recorded::between(tx, below, above)?;
        // The copies are put together anew with each record. So the next savepoint takes a look.
        return Ok(RunningLayer { entries, ..RunningLayer::default() });
    }
    let below = match below {
        0 => Cow::Owned(Manifest::default()),
        number => tx.savepoint(number)?,
    };
    let above = above.map(|number| tx.manifest(number)).transpose()?;
    let (mut entries, mut is_same, none) = (Vec::new(), true, Tree::new());
    let (mut copies, mut changed) = (Some(Manifest::default()), Vec::new());
    for layer in tx.layers() {
        if !layer.upper.try_exists().at("looking at", &layer.upper)? {
            copies = None;
            continue; // Its file system is not mounted; it was not concerned.
        }
        let old = below.trees.get(layer.index).unwrap_or(&none);
        let looked = match &above {
            Some(_) => None,
            None => Some(look_at_entries(&layer, Some(old))?),
        };
        let above = above.as_ref().and_then(|above| above.trees.get(layer.index));
        let new = looked.as_ref().or(above).unwrap_or(&none);
        let touched = touched(old, new);
        if !touched.is_empty() {
            is_same = false;
            let now = touched.iter().filter_map(|(path, _, now)| Some((*path, (*now)?)));
            changed.extend(now.map(|(path, now)| (layer.index, path.to_vec(), now.kind())));
            let state = |tree| State { layer: &layer, tree };
            entries.extend(Pair::new(state(old), state(new), touched).entries()?);
        }
        if let (Some(copies), Some(looked)) = (&mut copies, looked) {
            copies.trees.push(looked);
        }
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(RunningLayer { entries, is_same, copies, changed })
}

/// A path in the list of either state, and what that says of it.
type Touched<'a> = (&'a [u8], Option<&'a Item>, Option<&'a Item>);

/// The paths at which the two lists don't surely name one object, unchanged; in order.
fn touched<'a>(old: &'a Tree, new: &'a Tree) -> Vec<Touched<'a>> {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    let mut touched = Vec::new();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return touched,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((was, _)), Some((is, _))) => was.cmp(is),
        };
        let was = if order.is_le() { old.next() } else { None };
        let is = if order.is_ge() { new.next() } else { None };
        let same = was.zip(is).is_some_and(|((_, was), (_, is))| was.is_same(is));
        if let Some((path, _)) = was.or(is).filter(|_| !same) {
            touched.push((&path[..], was.map(|(_, item)| item), is.map(|(_, item)| item)));
        }
    }
}

/// One state of one layer. Paths are relative to the layer's root.
trait View {
    fn layer(&self) -> &Layer;

    /// What is at a path.
    fn object(&self, path: &[u8]) -> Option<Object<'_>>;

    /// What of the stable tree shows through at a path: its path there.
    fn lower(&self, path: &[u8]) -> Option<Vec<u8>>;

    /// The names in a directory that the transaction itself lists.
    fn own_names(&self, dir: &[u8]) -> Vec<Vec<u8>>;

    fn stable(&self, lower: &[u8]) -> PathBuf {
        let layer = self.layer();
        match lower {
            b"" => layer.target.clone(),
            lower => from_bytes(&join(layer.target.as_os_str().as_bytes(), lower)),
        }
    }

    /// Everything below a directory, of the stable tree what shows through.
    fn below(&self, path: &[u8], found: &mut Vec<Vec<u8>>) -> Result<()> {
        let mut names = BTreeSet::new();
        if let Some(lower) = self.lower(path) {
            let dir = self.stable(&lower);
            if let Ok(fd) = sys::open_dir_canonical(dir.as_os_str().as_bytes()) {
                let listed = sys::names_in(fd.as_fd()).at("listing", &dir)?;
                names.extend(listed.into_iter().map(|(name, _)| name));
            }
        }
        names.extend(self.own_names(path));
        for name in names {
            let path = child(path, &name);
            let Some(object) = self.object(&path) else { continue };
            found.push(path.clone());
            if object.side.kind == FileKind::Dir {
                self.below(&path, found)?;
            }
        }
        Ok(())
    }
}

/// An upper directory, as a savepoint lists it.
struct State<'a> {
    layer: &'a Layer,
    tree: &'a Tree,
}

/// Pieces of content, and where each is written.
type Pieces<'a> = &'a [(u64, Vec<u8>)];

/// What is at a path.
struct Object<'a> {
    side: Side,
    rdev: u64,
    /// What the savepoint says of it, or of its content; none if that is the stable tree's.
    item: Option<&'a Item>,
    /// Where its content can be read, if it can.
    at: Option<PathBuf>,
    /// Of a stable object that a change in place is recorded of: that change, and the object.
    in_place: Option<(&'a What, PathBuf)>,
}

impl Object<'_> {
    /// What of the stable tree is at a path.
    fn stable(at: PathBuf) -> Option<Self> {
        let version = stat_at(CWD, at.as_os_str().as_bytes(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let (side, rdev) = (Side::of(&version), version.rdev);
        Some(Object { side, rdev, item: None, at: Some(at), in_place: None })
    }

    /// The pieces that are written into a stable file, and how long it is then.
    fn patch(&self) -> Option<(Pieces<'_>, Option<u64>)> {
        match self.in_place {
            Some((What::Patch { writes, size, .. }, _)) => Some((writes, *size)),
            _ => None,
        }
    }
}

/// What a savepoint says of an object, for people.
fn side_of(item: &Item) -> Side {
    Side {
        kind: item.kind(),
        mode: item.mode & 0o7777,
        uid: item.uid,
        gid: item.gid,
        size: item.size,
        mtime: item.mtime,
    }
}

impl<'a> State<'a> {
    fn item(&self, path: &[u8]) -> Option<&'a Item> {
        self.tree.get(&join_upper(path))
    }

    /// The name in the stable tree that a name stands for, also if what is there was copied.
    fn lower_of(&self, path: &[u8]) -> Option<Vec<u8>> {
        if self.item(path).is_none() {
            return self.lower(path);
        }
        let (dir, name) = split(path);
        self.lower(dir).map(|dir| child(&dir, name))
    }
}

impl View for State<'_> {
    fn layer(&self) -> &Layer {
        self.layer
    }

    fn lower(&self, path: &[u8]) -> Option<Vec<u8>> {
        let (mut at, mut reached) = (Some(Vec::new()), Vec::new());
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            reached = child(&reached, name);
            let parent = at.take();
            at = parent.as_deref().map(|parent| child(parent, name));
            let Some(item) = self.item(&reached) else { continue };
            if item.kind() != FileKind::Dir {
                return None;
            }
            let mark = |which: &[u8]| overlay_xattr(&item.xattrs, which);
            if let Some(redirect) = mark(b"redirect") {
                at = match redirect.strip_prefix(b"/") {
                    Some(absolute) => Some(absolute.to_vec()),
                    None => parent.map(|parent| child(&parent, redirect)),
                };
            } else if mark(b"opaque") == Some(b"y") {
                at = None;
            }
        }
        at
    }

    fn object(&self, path: &[u8]) -> Option<Object<'_>> {
        if let Some(item) = self.item(path) {
            if item.is_whiteout() {
                return None;
            }
            let upper = || from_bytes(&join(self.layer.upper.as_os_str().as_bytes(), path));
            let unsaved = matches!(item.content, Content::None) && item.kind() == FileKind::File;
            let at = saved_content(self.layer, item).or_else(|| unsaved.then(upper));
            let (side, rdev) = (side_of(item), item.rdev);
            return Some(Object { side, rdev, item: Some(item), at, in_place: None });
        }
        Object::stable(self.stable(&self.lower(path)?))
    }

    fn own_names(&self, dir: &[u8]) -> Vec<Vec<u8>> {
        let top = join_upper(dir);
        let upper = self.tree.range(top.clone()..).take_while(|(p, _)| p.starts_with(&top[..]));
        upper.filter(|(p, _)| split(p).0 == top).map(|(p, _)| split(p).1.to_vec()).collect()
    }
}

fn join_upper(path: &[u8]) -> Vec<u8> {
    if path.is_empty() { b"upper".to_vec() } else { join(b"upper", path) }
}

fn below_upper(key: &[u8]) -> Option<&[u8]> {
    let rest = key.strip_prefix(b"upper")?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"/") }
}

/// The state before, the state after, and what was moved from one place to another between them.
struct Both<V> {
    old: V,
    new: V,
    /// From where to where, parents first.
    moves: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The same of an upper directory.
struct Pair<'a> {
    both: Both<State<'a>>,
    /// Where their lists differ. What was moved is at a path of these, and was at one.
    touched: Vec<Touched<'a>>,
    /// What was seen of the command that made the new one of the old.
    reads: Option<&'a ReadSet>,
}

impl<'a> Pair<'a> {
    fn new(old: State<'a>, new: State<'a>, touched: Vec<Touched<'a>>) -> Self {
        let both = Both { old, new, moves: Vec::new() };
        let mut pair = Pair { both, touched, reads: None };
        let mut by_inode: HashMap<u64, &[u8]> = HashMap::new();
        for (key, was, _) in &pair.touched {
            let was = was.filter(|item| !item.is_whiteout() && !item.several);
            if let Some((path, item)) = below_upper(key).zip(was) {
                by_inode.insert(item.ino, path);
            }
        }
        let by_handle = pair.gone_files();
        let now = |(key, _, now): &Touched<'a>| below_upper(key).zip(*now);
        let now: Vec<_> = pair.touched.iter().filter_map(now).collect();
        for (path, item) in now {
            if path.is_empty() || item.is_whiteout() || item.several {
                continue;
            }
            let from = pair.source_by_inode(&by_inode, path, item).or_else(|| match item.kind() {
                FileKind::Dir => pair.source_by_redirect(path),
                _ => {
                    let origin = overlay_xattr(&item.xattrs, b"origin").and_then(Handle::stored)?;
                    by_handle.get(&origin).cloned().filter(|_| pair.both.old.item(path).is_none())
                }
            });
            let Some(from) = from.filter(|from| from != path) else { continue };
            let known = pair.both.before(path).is_some_and(|known| known == from);
            let taken = pair.both.moves.iter().any(|(source, _)| *source == from);
            if !known && !taken && pair.is_moved(&from, path) {
                pair.both.moves.push((from, path.to_vec()));
            }
        }
        pair
    }

    /// The stable files whose names are gone, by handle.
    fn gone_files(&self) -> HashMap<Handle, Vec<u8>> {
        let mut gone = HashMap::new();
        for (key, was, now) in &self.touched {
            let fresh = was.is_none() && now.is_some_and(Item::is_whiteout);
            let Some(path) = below_upper(key).filter(|_| fresh) else { continue };
            let Some(lower) = self.both.old.lower(path) else { continue };
            let (dir, name) = split(&lower);
            let dir = sys::open_dir_canonical(self.both.old.stable(dir).as_os_str().as_bytes());
            if let Some(handle) = dir.ok().and_then(|dir| Handle::of(dir.as_fd(), name)) {
                gone.insert(handle, path.to_vec());
            }
        }
        gone
    }

    /// Where the object that is at a path now was before, by its inode. A number can have been used again.
    fn source_by_inode(
        &self,
        by_inode: &HashMap<u64, &[u8]>,
        path: &[u8],
        item: &Item,
    ) -> Option<Vec<u8>> {
        let from = *by_inode.get(&item.ino)?;
        let was = self.both.old.item(from)?;
        let same = (was.mode, was.mtime) == (item.mode, item.mtime)
            && (item.kind() == FileKind::Dir || was.size == item.size);
        (from != path && same).then(|| from.to_vec())
    }

    /// Where a directory that shows a stable one was before.
    fn source_by_redirect(&self, path: &[u8]) -> Option<Vec<u8>> {
        let item = self.both.new.item(path)?;
        let _ = overlay_xattr(&item.xattrs, b"redirect")?;
        let lower = self.both.new.lower(path)?;
        if self.both.old.lower(path).as_ref() == Some(&lower) {
            return None;
        }
        let shows = |path: &[u8]| self.both.old.lower(path).as_ref() == Some(&lower);
        if shows(&lower) {
            return Some(lower);
        }
        let redirected = |item: &Item| overlay_xattr(&item.xattrs, b"redirect").is_some();
        let mut marked = self.both.old.tree.iter().filter(|(_, item)| redirected(item));
        marked.find_map(|(key, _)| below_upper(key).filter(|p| shows(p)).map(<[u8]>::to_vec))
    }

    /// Whether what was at `from` is at `to` now, with what it held, and not at `from`.
    fn is_moved(&self, from: &[u8], to: &[u8]) -> bool {
        let (Some(was), Some(is)) = (self.both.old.object(from), self.both.new.object(to)) else {
            return false;
        };
        let stays = match self.both.new.item(from) {
            // Nothing is there, either, if a directory above it has gone.
            None => self.both.new.object(from).is_some(),
            Some(item) => self
                .both
                .old
                .item(from)
                .is_some_and(|old| old.ino == item.ino && !item.is_whiteout()),
        };
        !stays
            && was.side.kind == is.side.kind
            && (was.side.kind == FileKind::Dir || same(&was, &is))
    }

    /// The paths, as they are now, that may differ.
    fn candidates(&self) -> Result<BTreeSet<Vec<u8>>> {
        let both = &self.both;
        let differs = |path: &Vec<u8>| {
            let old = both.before(path).and_then(|before| both.old.item(&before));
            match (old, both.new.item(path)) {
                (Some(old), Some(new)) => old != new || both.before(path).as_ref() != Some(path),
                (old, new) => old.is_some() || new.is_some(),
            }
        };
        let touched = || {
            self.touched.iter().filter_map(|(key, was, now)| Some((below_upper(key)?, was, now)))
        };
        let new = touched().filter(|(.., now)| now.is_some()).map(|(path, ..)| path.to_vec());
        let old = touched().filter(|(_, was, _)| was.is_some()).map(|(path, ..)| both.after(path));
        both.candidates(new.chain(old).filter(differs).collect())
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(self.both.entries(self.candidates()?))
    }
}

impl<V: View> Both<V> {
    /// Where what is at a path now was before; `None` if what was there was moved away.
    fn before(&self, path: &[u8]) -> Option<Vec<u8>> {
        let moved = self.moves.iter().filter(|(_, to)| is_at_or_below(path, to));
        if let Some((from, to)) = moved.max_by_key(|(_, to)| to.len()) {
            return Some([from, path.get(to.len()..).unwrap_or_default()].concat());
        }
        let away = self.moves.iter().any(|(from, _)| is_at_or_below(path, from));
        (!away).then(|| path.to_vec())
    }

    /// Where what was at a path is now, if it is.
    fn after(&self, path: &[u8]) -> Vec<u8> {
        let moved = self.moves.iter().filter(|(from, _)| is_at_or_below(path, from));
        match moved.max_by_key(|(from, _)| from.len()) {
            Some((from, to)) => [to, path.get(from.len()..).unwrap_or_default()].concat(),
            None => path.to_vec(),
        }
    }

    /// The paths, as they are now, that may differ: those that are listed in either state, and those below of which something
    /// else shows through.
    fn candidates(&self, listed: BTreeSet<Vec<u8>>) -> Result<BTreeSet<Vec<u8>>> {
        let mut all = listed.clone();
        for path in &listed {
            let before = self.before(path);
            let was = before.as_deref().and_then(|before| self.old.lower(before));
            let is = self.new.lower(path);
            if was == is {
                continue;
            }
            let mut found = Vec::new();
            if let (Some(before), Some(_)) = (&before, &was) {
                self.old.below(before, &mut found)?;
                all.extend(found.drain(..).map(|path| self.after(&path)));
            }
            if is.is_some() {
                self.new.below(path, &mut found)?;
                all.extend(found);
            }
        }
        Ok(all)
    }

    /// How these paths differ.
    fn entries(&self, candidates: BTreeSet<Vec<u8>>) -> Vec<Entry> {
        let target = |path: &[u8]| self.new.stable(path);
        let mut entries = Vec::new();
        for path in candidates {
            let before = self.before(&path);
            let from = self.moves.iter().find(|(_, to)| *to == path).map(|(from, _)| target(from));
            let old = before.as_deref().and_then(|before| self.old.object(before));
            let new = self.new.object(&path);
            let status = if from.is_some() { Some(Status::Renamed) } else { status(&old, &new) };
            let Some(status) = status else { continue };
            let side = |object: &Option<Object<'_>>| object.as_ref().map(|object| object.side);
            entries.push(Entry {
                status,
                path: target(&path),
                from,
                old: side(&old),
                new: side(&new),
                replaced: None,
                replaced_content: None,
                old_content: old.and_then(|old| old.at),
                new_content: new.and_then(|new| new.at),
                undo: None,
            });
        }
        entries
    }
}

/// How two objects of one path differ, if they do.
fn status(old: &Option<Object<'_>>, new: &Option<Object<'_>>) -> Option<Status> {
    match (old, new) {
        (None, None) => None,
        (None, Some(_)) => Some(Status::Added),
        (Some(_), None) => Some(Status::Deleted),
        (Some(a), Some(b)) if a.side.kind != b.side.kind => Some(Status::TypeChanged),
        (Some(a), Some(b)) if a.side.kind != FileKind::Dir && !same(a, b) => Some(Status::Modified),
        (Some(a), Some(b)) => {
            let rights = |o: &Object<'_>| (o.side.mode, o.side.uid, o.side.gid);
            let times = a.side.kind != FileKind::Dir && a.side.mtime != b.side.mtime;
            let differ = rights(a) != rights(b) || times || xattrs(a) != xattrs(b);
            differ.then_some(Status::Attributes)
        }
    }
}

/// Whether two objects of one type hold the same.
fn same(a: &Object<'_>, b: &Object<'_>) -> bool {
    match a.side.kind {
        FileKind::File => {
            let saved = |o: &Object<'_>| {
                o.item.map(|i| &i.content).filter(|c| **c != Content::None).cloned()
            };
            if saved(a).is_some() && saved(a) == saved(b) {
                return true;
            }
            let is_stable = |o: &Object<'_>| o.item.is_none() && o.patch().is_none();
            if a.patch().is_some() && a.patch() == b.patch()
                || is_stable(a) && is_stable(b) && a.at == b.at
            {
                return true;
            }
            let open = |o: &Object<'_>| File::open(o.at.as_ref()?).ok();
            a.side.size == b.side.size
                && open(a).zip(open(b)).is_some_and(|(left, right)| {
                    same_bytes(&left, &right, a.side.size).unwrap_or(false)
                })
        }
        FileKind::Symlink => target(a).is_some_and(|left| Some(left) == target(b)),
        FileKind::CharDevice | FileKind::BlockDevice => a.rdev == b.rdev,
        FileKind::Fifo | FileKind::Socket => true,
        FileKind::Dir => false,
    }
}

fn target(object: &Object<'_>) -> Option<Vec<u8>> {
    match object.item.map(|item| &item.content) {
        Some(Content::Link(target)) => Some(target.clone()),
        _ => Some(std::fs::read_link(object.at.as_ref()?).ok()?.into_os_string().into_vec()),
    }
}

/// Its extended attributes, without those of overlayfs.
fn xattrs(object: &Object<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let of = |at: &PathBuf| sys::xattrs(at.as_os_str().as_bytes()).unwrap_or_default();
    let mut all = match (&object.in_place, object.item, &object.at) {
        (Some((what, stable)), ..) => {
            let mut all = of(stable);
            for change in what.attrs().iter().flat_map(|attrs| &attrs.xattrs) {
                all.retain(|(name, _)| *name != change.name);
                all.extend(change.new.clone().map(|value| (change.name.clone(), value)));
            }
            all.sort();
            all
        }
        (None, Some(item), _) => item.xattrs.clone(),
        (None, None, Some(at)) => of(at),
        (None, None, None) => Vec::new(),
    };
    all.retain(|(name, _)| !is_overlay_xattr(name));
    all
}
