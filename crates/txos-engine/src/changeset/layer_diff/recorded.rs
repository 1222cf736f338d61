//! The same in the library's view: what a layer changed is read off two lists of recorded changes, and off the private copies
//! that lie beside each.
//!
//! A list says of each name what comes to it: a private copy, a stable object from elsewhere, or nothing. What it does not
//! name is the stable tree's, below the directory that its own directory is. So either list is a view as an upper
//! directory is one. What was moved needs no guess: a stable object is known by its stable name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::{Both, Entry, Object, View, same, side_of};
use crate::changeset::recorded::{deltas_at, patch_place, shown_place};
use crate::changeset::{Delta, What};
use crate::error::{Context, Result};
use crate::object::FileKind;
use crate::path::layer::{child, is_at_or_below, split};
use crate::path::{Moves, from_bytes, join};
use crate::store::{
    Content, Item, Layer, Manifest, Transaction, Tree, look_at_entries, saved_content,
};
use crate::version::Stamp;

/// What differs between two savepoints; `None` stands for the record and the private copies as they are.
pub(super) fn between(tx: &Transaction, below: u32, above: Option<u32>) -> Result<Vec<Entry>> {
    let (was, is) = (deltas_at(tx, Some(below))?, deltas_at(tx, above)?);
    let (mut old, mut new) = (Manifest::default(), None);
    if below > 0 {
        old = tx.savepoint(below)?.into_owned();
    }
    if let Some(number) = above {
        new = Some(tx.manifest(number)?);
    }
    let (mut entries, none, now) = (Vec::new(), Tree::new(), Stamp::now());
    for layer in tx.layers() {
        let is_of = |delta: &Delta| delta.layer == layer.index;
        if !was.iter().chain(&is).any(is_of) {
            continue;
        }
        let old_tree = old.trees.get(layer.index).unwrap_or(&none);
        let looked = match &new {
            Some(_) => None,
            None => Some(look_at_entries(&layer, Some(old_tree))?),
        };
        let saved = new.as_ref().and_then(|new| new.trees.get(layer.index));
        let new_tree = looked.as_ref().or(saved).unwrap_or(&none);
        let old = Recorded::new(&layer, old_tree, &was, now)?;
        let new = Recorded::new(&layer, new_tree, &is, now)?;
        entries.extend(compared(old, new)?);
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

fn compared(old: Recorded<'_>, new: Recorded<'_>) -> Result<Vec<Entry>> {
    let differ = |path: &&Vec<u8>| !old.says_the_same(&new, path);
    let listed: BTreeSet<Vec<u8>> =
        old.listed().chain(new.listed()).filter(differ).cloned().collect();
    let moves = moves(&old, &new);
    let both = Both { old, new, moves };
    let listed = listed.into_iter().flat_map(|path| [both.after(&path), path]).collect();
    let candidates = both.candidates(listed)?;
    Ok(both.entries(candidates))
}

/// A private copy: its place, and what is known of it.
type Place<'a> = (&'a [u8], &'a Item);

/// What is at a name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Named<'a> {
    /// Nothing any more.
    Gone,
    /// A private copy.
    Copy(&'a [u8], &'a Item),
    /// A stable object: its stable name.
    Stable(Vec<u8>),
}

/// A list of recorded changes, and the private copies that it names, of one layer.
struct Recorded<'a> {
    layer: &'a Layer,
    tree: &'a Tree,
    /// Names that the transaction knows to be something else than before, in the finished tree.
    names: BTreeMap<Vec<u8>, Named<'a>>,
    /// Names of stable objects that are changed in place, in the finished tree.
    changed_names: BTreeSet<Vec<u8>>,
    /// Those changes, by stable name; with the number of each in the list.
    changed: HashMap<&'a [u8], (usize, &'a What)>,
    moves: Moves<'a>,
    /// What has no time yet has this one.
    now: Stamp,
}

impl<'a> Recorded<'a> {
    fn new(layer: &'a Layer, tree: &'a Tree, all: &'a [Delta], now: Stamp) -> Result<Self> {
        let mut view = Recorded {
            layer,
            tree,
            names: BTreeMap::new(),
            changed_names: BTreeSet::new(),
            changed: HashMap::new(),
            moves: Moves::default(),
            now,
        };
        let numbered = all.iter().enumerate().filter(|(_, delta)| delta.layer == layer.index);
        let mut links = Vec::new();
        for (number, delta) in numbered {
            let named = match &delta.what {
                What::Put { staged, .. } => {
                    view.put(&delta.path, staged)?;
                    continue;
                }
                What::Rewrite { staged, .. } => view.copy(staged)?,
                What::Remove { .. } => Named::Gone,
                What::Move { from, .. } => {
                    view.moves.add(from, &delta.path);
                    Named::Stable(from.clone())
                }
                What::Link { to, .. } => {
                    links.push((&delta.path, to));
                    continue;
                }
                What::Data { .. } | What::Patch { .. } | What::Attrs { .. } => {
                    view.changed.insert(&delta.stable_path, (number, &delta.what));
                    // What no known name leads to is not shown.
                    if !delta.nameless {
                        view.changed_names.insert(delta.path.clone());
                    }
                    continue;
                }
            };
            view.names.insert(delta.path.clone(), named);
        }
        for (path, to) in links {
            if let Some(lower) = view.lower(to) {
                view.names.insert(path.clone(), Named::Stable(lower));
            }
        }
        view.vacate(all);
        Ok(view)
    }

    fn copy(&self, place: &'a [u8]) -> Result<Named<'a>> {
        let item = self.tree.get(place).map(|item| Named::Copy(place, item));
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        item.ok_or_else(missing).at("looking at the private copy", self.place(place))
    }

    /// A new object, with everything in it. What is moved into it has a change of its own.
    fn put(&mut self, path: &[u8], staged: &'a [u8]) -> Result<()> {
        let named = self.copy(staged)?;
        self.names.insert(path.to_vec(), named);
        let prefix = [staged, b"/"].concat();
        let inside =
            self.tree.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        for (place, item) in inside {
            let below = place.get(prefix.len()..).unwrap_or_default();
            self.names.entry(child(path, below)).or_insert(Named::Copy(place, item));
        }
        Ok(())
    }

    /// Nothing is at the names that something was moved away from, unless something else came there.
    fn vacate(&mut self, all: &[Delta]) {
        for delta in all.iter().filter(|delta| delta.layer == self.layer.index) {
            let What::Move { from, .. } = &delta.what else { continue };
            let (dir, name) = split(from);
            let Some(place) = self.place_of(dir) else { continue };
            self.names.entry(child(&place, name)).or_insert(Named::Gone);
        }
    }

    /// Where the object with this stable name is, if it is still there.
    fn place_of(&self, stable: &[u8]) -> Option<Vec<u8>> {
        let place = self.moves.mapped(stable).unwrap_or_else(|| stable.to_vec());
        (self.lower(&place).as_deref() == Some(stable)).then_some(place)
    }

    fn place(&self, place: &[u8]) -> PathBuf {
        let top = self.layer.upper.parent().unwrap_or(&self.layer.upper);
        from_bytes(&join(top.as_os_str().as_bytes(), place))
    }

    /// Where the content of a private copy can be read.
    fn content(&self, place: &[u8], item: &Item) -> Option<PathBuf> {
        let unsaved = matches!(item.content, Content::None) && item.kind() == FileKind::File;
        saved_content(self.layer, item).or_else(|| unsaved.then(|| self.place(place)))
    }

    fn named(&self, path: &[u8]) -> Option<Named<'a>> {
        let (mut at, mut reached) = (Named::Stable(Vec::new()), Vec::new());
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            reached = child(&reached, name);
            at = match (self.names.get(&reached), at) {
                (Some(Named::Gone), _) | (None, Named::Copy(..) | Named::Gone) => return None,
                (Some(named), _) => named.clone(),
                (None, Named::Stable(dir)) => Named::Stable(child(&dir, name)),
            };
        }
        Some(at)
    }

    /// The names that it says something of.
    fn listed(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.names.keys().chain(&self.changed_names)
    }

    /// The change in place of a stable object, and the copy of its content.
    fn change(&self, stable: &[u8]) -> Option<(&'a What, Option<Place<'a>>)> {
        let (number, what) = *self.changed.get(stable)?;
        let shown = shown_place(&patch_place(number));
        let place = match what {
            What::Data { staged, .. } => Some(&staged[..]),
            What::Patch { .. } => shown.as_deref(),
            _ => None,
        };
        let copy = place.and_then(|place| self.tree.get_key_value(place));
        Some((what, copy.map(|(place, item)| (&place[..], item))))
    }

    /// Whether another list surely says the same of a name, and of the object there.
    fn says_the_same(&self, other: &Recorded<'_>, path: &[u8]) -> bool {
        match (self.named(path), other.named(path)) {
            (None, None) => true,
            (Some(Named::Copy(_, one)), Some(Named::Copy(_, two))) => one.is_same(two),
            (Some(Named::Stable(one)), Some(Named::Stable(two))) if one == two => {
                match (self.change(&one), other.change(&two)) {
                    (None, None) => true,
                    (
                        Some((What::Data { attrs, .. }, copy)),
                        Some((What::Data { attrs: also, .. }, other)),
                    ) => {
                        attrs == also
                            && copy.zip(other).is_some_and(|((_, a), (_, b))| a.is_same(b))
                    }
                    (Some((one, _)), Some((two, _))) => {
                        one == two && !matches!(one, What::Data { .. })
                    }
                    _ => false,
                }
            }
            _ => false,
        }
    }
}

impl View for Recorded<'_> {
    fn layer(&self) -> &Layer {
        self.layer
    }

    fn lower(&self, path: &[u8]) -> Option<Vec<u8>> {
        match self.named(path)? {
            Named::Stable(lower) => Some(lower),
            Named::Copy(..) | Named::Gone => None,
        }
    }

    fn object(&self, path: &[u8]) -> Option<Object<'_>> {
        let lower = match self.named(path)? {
            Named::Gone => return None,
            Named::Copy(place, item) => {
                let (side, rdev, at) = (side_of(item), item.rdev, self.content(place, item));
                return Some(Object { side, rdev, item: Some(item), at, in_place: None });
            }
            Named::Stable(lower) => lower,
        };
        let stable = self.stable(&lower);
        let mut object = Object::stable(stable.clone())?;
        let Some((what, copy)) = self.change(&lower) else { return Some(object) };
        let side = &mut object.side;
        match what {
            What::Data { .. } => {
                let (_, item) = copy?;
                (side.size, side.mtime) = (item.size, item.mtime);
            }
            What::Patch { writes, size, base, .. } => {
                let end =
                    writes.iter().map(|(at, bytes)| at.saturating_add(bytes.len() as u64)).max();
                side.size = size.unwrap_or_else(|| base.size.max(end.unwrap_or(0)));
                side.mtime = self.now;
            }
            _ => {}
        }
        if let Some(attrs) = what.attrs() {
            if let Some((_, mode)) = attrs.mode {
                side.mode = mode & 0o7777;
            }
            if let Some((_, owner)) = attrs.owner {
                (side.uid, side.gid) = owner;
            }
            if let Some((_, mtime)) = attrs.mtime {
                side.mtime = if mtime == Stamp::PRESENT { self.now } else { mtime };
            }
        }
        if !matches!(what, What::Attrs { .. }) {
            object.item = copy.map(|(_, item)| item);
            object.at = copy.and_then(|(place, item)| self.content(place, item));
        }
        object.in_place = Some((what, stable));
        Some(object)
    }

    fn own_names(&self, dir: &[u8]) -> Vec<Vec<u8>> {
        let prefix = if dir.is_empty() { Vec::new() } else { [dir, b"/"].concat() };
        let below =
            self.names.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        let names = below.filter_map(|(path, _)| path.get(prefix.len()..));
        names.filter(|name| !name.is_empty() && !name.contains(&b'/')).map(<[u8]>::to_vec).collect()
    }
}

/// What tells a private copy from others, if it has one name. Links and nodes are made anew with each record, as they were.
#[derive(PartialEq, Eq, Hash)]
enum Mark<'a> {
    Inode(FileKind, u64, u32, Stamp, Option<u64>),
    Alike(u32, u32, u32, u64, Stamp, &'a Content),
}

impl<'a> Mark<'a> {
    fn of(item: &'a Item) -> Option<Self> {
        let size = Some(item.size).filter(|_| item.kind() == FileKind::File);
        match item.kind() {
            _ if item.several => None,
            FileKind::File | FileKind::Dir => {
                Some(Mark::Inode(item.kind(), item.ino, item.mode, item.mtime, size))
            }
            _ => Some(Mark::Alike(
                item.mode,
                item.uid,
                item.gid,
                item.rdev,
                item.mtime,
                &item.content,
            )),
        }
    }
}

/// What was moved from one place to another between two lists, parents first.
fn moves(old: &Recorded<'_>, new: &Recorded<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    // Stable objects: those that either list names anywhere.
    let stable = |view: &Recorded<'_>| -> Vec<Vec<u8>> {
        let named = view.names.values().filter_map(|named| match named {
            Named::Stable(stable) => Some(stable.clone()),
            _ => None,
        });
        named.collect()
    };
    for stable in [stable(old), stable(new)].concat() {
        if let (Some(from), Some(to)) = (old.place_of(&stable), new.place_of(&stable)) {
            found.insert(to, from);
        }
    }
    // Private copies, by what tells them from others.
    let mut marked: HashMap<Mark<'_>, Option<&Vec<u8>>> = HashMap::new();
    for (path, named) in &old.names {
        if let Named::Copy(_, item) = named
            && let Some(mark) = Mark::of(item)
        {
            marked.entry(mark).and_modify(|path| *path = None).or_insert(Some(path));
        }
    }
    let mark = |path: &[u8]| match new.names.get(path)? {
        Named::Copy(_, item) => Mark::of(item),
        _ => None,
    };
    for path in new.names.keys() {
        if let Some(own) = mark(path)
            && let Some(Some(from)) = marked.remove(&own)
            && (from == path || mark(from) != Some(own))
        {
            found.insert(path.clone(), from.clone());
        }
    }
    let mut moves: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (to, from) in found {
        let above = moves.iter().filter(|(_, dir)| is_at_or_below(&to, dir));
        let came = match above.max_by_key(|(_, dir)| dir.len()) {
            Some((left, dir)) => [left, to.get(dir.len()..).unwrap_or_default()].concat(),
            None => to.clone(),
        };
        let (was, is) = (old.object(&from), new.object(&to));
        let is_same = was.zip(is).is_some_and(|(was, is)| {
            was.side.kind == is.side.kind && (was.side.kind == FileKind::Dir || same(&was, &is))
        });
        if from != to && came != from && is_same {
            moves.push((from, to));
        }
    }
    moves
}
