//! A change set from explicit deltas: for whoever keeps his private view in memory and has no overlay
//! upper that could be read.
//!
//! | delta | carried out as |
//! |---|---|
//! | Put | one rename, or one exchange with what is there |
//! | Rewrite | one exchange with what is there; in place if somebody has it open for writing |
//! | Remove | one rename into the store |
//! | Move | two renames, through the store; the inode stays, whatever its type |
//! | Link | `linkat(2)`; over something else: of a slot, then one exchange |
//! | Data, Patch, Attrs | in place, after all renames; what is overwritten is saved first |
//! | the same, nameless | in the store, where the change that takes the object's last known name away puts it |
//!
//! Paths are those of the finished tree; a `stable_path` is where the same place is now. The two
//! differ below a moved directory. The times of directories whose entries change are added here.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::entries::walk;
use super::patch::Patch;
use super::{Action, AttrChange, Change, ChangeSet, links};
use crate::error::{Conflict, ConflictKind, Context, Error, Result};
use crate::hash::{Map, Seeded, Set};
use crate::object::FileKind;
use crate::path::layer::split;
use crate::path::{self, Moves, join};
use crate::store::{Layer, Transaction, old_place};
use crate::sys;
use crate::sys_tree::OpenTree;
use crate::version::{Stamp, Version, stat_at};

/// One change of one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// Number of the transaction's layer.
    pub layer: usize,
    /// Where, in the finished tree, relative to the layer's root; the root itself is empty.
    pub path: Vec<u8>,
    /// Where its stable counterpart is now: differs from `path` below a moved directory, and for a
    /// change in place of an object that is itself moved (it is the move's `from`).
    pub stable_path: Vec<u8>,
    /// For a change in place: another delta takes the name at `stable_path` away, and the transaction
    /// knows no other one of the object. It has others, which see the change. (`path` says nothing.)
    pub nameless: bool,
    /// What.
    pub what: What,
}

/// What is done at a path. At one path there may be one change of the name (Put, Rewrite, Remove, Move, Link)
/// and, of a moved object, one in place (Data, Patch, Attrs).
///
/// A `base` is the version that the transaction saw there: nothing is published if another one is
/// there. Where the name is vacated by a Move of the same change set, it is taken for none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// A new object of any type, a directory with everything in it included. Names of one new file
    /// are links of each other in the store.
    Put {
        /// Where it is, relative to the layer's directory in the store; nothing else uses that place.
        staged: Vec<u8>,
        /// What it replaces.
        base: Option<Version>,
    },
    /// A changed copy of the stable file that is there and keeps its name: it stands for the same inode.
    Rewrite {
        /// Where it is, as for a Put.
        staged: Vec<u8>,
        /// The file.
        base: Version,
    },
    /// The name is taken away, with everything below it.
    Remove {
        /// What is there.
        base: Version,
    },
    /// A stable object is moved here, and stays the inode it is. Two that change places are two moves.
    Move {
        /// Where it is now, relative to the layer's root (as a `stable_path`).
        from: Vec<u8>,
        /// It.
        source: Version,
        /// What it replaces.
        base: Option<Version>,
    },
    /// Another name of a stable file.
    Link {
        /// Its other name in the finished tree, relative to the layer's root.
        to: Vec<u8>,
        /// What it replaces.
        base: Option<Version>,
    },
    /// New content for an inode that stays.
    Data {
        /// A file with the content, relative to the layer's directory in the store.
        staged: Vec<u8>,
        /// The inode.
        base: Version,
        /// What else becomes of it; without a time, it gets the staged file's.
        attrs: AttrChange,
    },
    /// Pieces of content for an inode that stays.
    Patch {
        /// The inode.
        base: Version,
        /// Where, and what. Of those that overlap the later ones win.
        writes: Vec<(u64, Vec<u8>)>,
        /// How long it is afterwards, if the writes alone don't say it.
        size: Option<u64>,
        /// What else becomes of it; without a time, it gets the present.
        attrs: AttrChange,
    },
    /// Attributes of an inode that stays.
    Attrs {
        /// The inode.
        base: Version,
        /// What becomes of them.
        change: AttrChange,
    },
}

impl What {
    pub(crate) fn is_in_place(&self) -> bool {
        matches!(self, What::Data { .. } | What::Patch { .. } | What::Attrs { .. })
    }

    /// What a change in place makes of the attributes.
    pub(crate) fn attrs(&self) -> Option<&AttrChange> {
        match self {
            What::Data { attrs, .. } | What::Patch { attrs, .. } => Some(attrs),
            What::Attrs { change, .. } => Some(change),
            _ => None,
        }
    }

    /// The versions of stable objects that it is of.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &Version> {
        let (object, there) = match self {
            What::Put { base, .. } | What::Link { base, .. } => (None, base.as_ref()),
            What::Move { source, base, .. } => (Some(source), base.as_ref()),
            What::Rewrite { base, .. }
            | What::Remove { base }
            | What::Data { base, .. }
            | What::Patch { base, .. }
            | What::Attrs { base, .. } => (Some(base), None),
        };
        object.into_iter().chain(there)
    }

    fn versions_mut(&mut self) -> impl Iterator<Item = &mut Version> {
        let (object, there) = match self {
            What::Put { base, .. } | What::Link { base, .. } => (None, base.as_mut()),
            What::Move { source, base, .. } => (Some(source), base.as_mut()),
            What::Rewrite { base, .. }
            | What::Remove { base }
            | What::Data { base, .. }
            | What::Patch { base, .. }
            | What::Attrs { base, .. } => (Some(base), None),
        };
        object.into_iter().chain(there)
    }

    /// Of a change of a directory: names in it were changed meanwhile by the transaction itself, and this is what it is
    /// now. If anything else is different, the change stays as it is, and is a conflict.
    pub(crate) fn follow_directory(&mut self, now: Version) {
        let What::Attrs { base, change } = self else { return };
        let rights = |v: &Version| (v.id, v.mode, v.uid, v.gid);
        if now.kind() != FileKind::Dir || rights(&now) != rights(base) {
            return;
        }
        if let Some((old, _)) = &mut change.mtime {
            *old = now.mtime;
        }
        *base = now;
    }
}

/// Replaces versions in changes by later ones of the same objects, which are as good. Whether there were any.
pub(crate) fn move_on(deltas: &mut [Delta], versions: &[(Version, Version)]) -> bool {
    let mut any = false;
    for was in deltas.iter_mut().flat_map(|delta| delta.what.versions_mut()) {
        if let Some((_, now)) = versions.iter().find(|(before, _)| before == was) {
            *was = *now;
            any = true;
        }
    }
    any
}

impl Delta {
    /// Has a time that is [`Stamp::PRESENT`] be the one that it is now.
    pub fn settle_time(&mut self) {
        if let What::Attrs { change, .. } = &mut self.what
            && let Some((_, new)) = &mut change.mtime
            && *new == Stamp::PRESENT
        {
            *new = Stamp::now();
        }
    }
}

impl ChangeSet {
    /// Makes the change set of a transaction from explicit deltas, in any order. Patches are written
    /// into the transaction's directories; nothing in the tree is touched.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for deltas that contradict each other or lead out of their layer,
    /// [`Error::Conflict`] if a layer's root was replaced, [`Error::Io`] if a staged object is not
    /// there or a patch can't be written.
    pub fn from_deltas(tx: &Transaction, deltas: Vec<Delta>) -> Result<ChangeSet> {
        Self::made_of(tx.layers(), deltas, Patches::ToWrite)
    }

    /// Makes the change set of a transaction from the deltas that it has [recorded](super::record). Nothing is written.
    pub(super) fn from_recorded(layers: Vec<Layer>, deltas: Vec<Delta>) -> Result<ChangeSet> {
        Self::made_of(layers, deltas, Patches::Written)
    }

    fn made_of(layers: Vec<Layer>, deltas: Vec<Delta>, patches: Patches) -> Result<ChangeSet> {
        let _rights = crate::sys_owner::rights();
        let mut made = Maker::new(&layers, patches);
        made.check(&deltas)?;
        made.changes.reserve(deltas.len());
        let mut nameless = Vec::new();
        for (number, delta) in deltas.into_iter().enumerate() {
            if delta.nameless {
                nameless.push((number, delta));
            } else {
                made.add(number, delta)?;
            }
        }
        made.directory_times()?;
        // What takes their names away is known by now.
        for (number, delta) in nameless {
            made.hold(number, delta)?;
        }
        let (changes, last_slot) = (made.changes, made.last_slot);
        Ok(ChangeSet { changes, layers, last_slot, explicit: true })
    }
}

/// A layer's directory in the store and its tree, open.
struct Ground {
    staging: OpenTree,
    tree: OpenTree,
}

struct Maker<'a> {
    layers: &'a [Layer],
    grounds: Vec<Option<Ground>>,
    /// Stable names that a Move takes away.
    vacated: HashSet<(usize, Vec<u8>)>,
    last_slot: u64,
    changes: Vec<Change>,
    patches: Patches,
}

/// Where patches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patches {
    /// In slots, once they are written there.
    ToWrite,
    /// Where the record says.
    Written,
}

fn unsupported(path: &[u8], problem: &str) -> Error {
    Error::Unsupported {
        what: format!("the change of {} {problem}", crate::show::quoted_bytes(path)),
        advice: "Nothing was changed.".into(),
    }
}

fn is_inside(path: &[u8]) -> bool {
    let name = |c: &[u8]| !c.is_empty() && c != b"." && c != b".." && c.len() < 256;
    !path.contains(&0) && (path.is_empty() || path.split(|&b| b == b'/').all(name))
}

/// Whether deltas fit together, and lead nowhere but into their layers.
///
/// # Errors
/// [`Error::Unsupported`] with the first that does not.
pub(super) fn check(layers: &[Layer], deltas: &[Delta]) -> Result<()> {
    Maker::new(layers, Patches::Written).check(deltas)
}

impl<'a> Maker<'a> {
    fn new(layers: &'a [Layer], patches: Patches) -> Self {
        Maker {
            grounds: layers.iter().map(|_| None).collect(),
            layers,
            vacated: HashSet::new(),
            last_slot: 0,
            changes: Vec::new(),
            patches,
        }
    }

    /// Whether the deltas fit together.
    fn check(&mut self, deltas: &[Delta]) -> Result<()> {
        let mut names = Map::with_capacity_and_hasher(deltas.len(), Seeded::default());
        let mut in_place = Set::default();
        let mut new = Set::default();
        let mut held = Set::default();
        for delta in deltas {
            let at = |problem: &str| unsupported(&delta.path, problem);
            if delta.layer >= self.layers.len() {
                return Err(at("is in a layer that the transaction does not have"));
            }
            let (other, rename) = match &delta.what {
                What::Move { from, .. } => (Some(from), true),
                What::Link { to, .. } => (Some(to), false),
                What::Put { staged, .. }
                | What::Rewrite { staged, .. }
                | What::Data { staged, .. } => (Some(staged), false),
                _ => (None, false),
            };
            if other.is_some_and(|path| path.is_empty() || !is_inside(path))
                || !is_inside(&delta.path)
                || !is_inside(&delta.stable_path)
                || (delta.path.is_empty() && !matches!(delta.what, What::Attrs { .. }))
            {
                return Err(at("leads out of its layer, or is of the layer's root"));
            }
            if delta.nameless {
                let twice = !held.insert((delta.layer, &delta.stable_path));
                if twice || delta.stable_path.is_empty() || !delta.what.is_in_place() {
                    return Err(at("can't be one of an object without a name"));
                }
                continue;
            }
            let key = (delta.layer, &delta.path[..]);
            if matches!(delta.what, What::Put { .. }) {
                new.insert(key);
            }
            let twice = if delta.what.is_in_place() {
                !in_place.insert(key)
            } else {
                names.insert(key, rename).is_some()
            };
            let taken = match &delta.what {
                What::Move { from, .. } => !self.vacated.insert((delta.layer, from.clone())),
                _ => false,
            };
            if twice || taken {
                return Err(at("is there twice"));
            }
        }
        for key in &in_place {
            if names.get(key) == Some(&false) {
                return Err(unsupported(key.1, "in place meets another of the same name"));
            }
        }
        for delta in deltas {
            if let What::Link { to, .. } = &delta.what
                && new.contains(&(delta.layer, &to[..]))
            {
                let problem = "links to something new: they must be links in the store already";
                return Err(unsupported(&delta.path, problem));
            }
        }
        Ok(())
    }

    fn ground(&mut self, layer: usize) -> Result<&Ground> {
        let (Some(place), Some(slot)) = (self.layers.get(layer), self.grounds.get_mut(layer))
        else {
            return Err(unsupported(b"", "is in a layer that the transaction does not have"));
        };
        if slot.is_none() {
            let open = |path: &std::path::Path| {
                sys::open_dir_canonical(path.as_os_str().as_bytes()).at("opening", path)
            };
            let tree = open(&place.target)?;
            place.check_root(tree.as_fd())?;
            let staging = open(place.upper.parent().unwrap_or(&place.upper))?;
            *slot = Some(Ground { staging: OpenTree::new(staging), tree: OpenTree::new(tree) });
        }
        slot.as_ref().ok_or_else(|| unsupported(b"", "is in no layer"))
    }

    fn shown(&self, layer: usize, path: &[u8]) -> std::path::PathBuf {
        let top = self.layers.get(layer).map_or(&b"/"[..], |l| l.target.as_os_str().as_bytes());
        if path.is_empty() { path::from_bytes(top) } else { path::from_bytes(&join(top, path)) }
    }

    fn slot(&mut self) -> Vec<u8> {
        self.last_slot += 1;
        old_place("delta-", self.last_slot)
    }

    /// The version of a staged object.
    fn staged(&mut self, layer: usize, staged: &[u8]) -> Result<Version> {
        let (dir, name) = split(staged);
        let look = self
            .ground(layer)?
            .staging
            .dir(dir)
            .and_then(|dir| stat_at(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW));
        look.map_err(|e| {
            let top = self.layers.get(layer).and_then(|l| l.upper.parent());
            let at = top.map_or_else(Default::default, |t| {
                path::from_bytes(&join(t.as_os_str().as_bytes(), staged))
            });
            Error::io("looking at the staged", at, e)
        })
    }

    /// What is at a stable place, if anything.
    fn stable(&mut self, layer: usize, path: &[u8]) -> Result<Option<Version>> {
        let (dir, name) = split(path);
        let name = if name.is_empty() { b"." } else { name };
        let look = self
            .ground(layer)?
            .tree
            .dir(dir)
            .and_then(|dir| stat_at(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW));
        match look {
            Ok(v) => Ok(Some(v)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
            Err(e) => Err(Error::io("looking at", self.shown(layer, path), e)),
        }
    }

    fn add(&mut self, number: usize, mut delta: Delta) -> Result<()> {
        delta.settle_time();
        let Delta { layer, path, stable_path, nameless: _, what } = delta;
        let is_vacated =
            !self.vacated.is_empty() && self.vacated.contains(&(layer, stable_path.clone()));
        let there = |base: Option<Version>| base.filter(|_| !is_vacated);
        let mut change = Change {
            layer,
            path: path.into(),
            stable_path: stable_path.into(),
            action: Action::Remove,
            base: None,
            new: None,
            staged: Vec::new(),
            strip: Vec::new(),
            shown: true,
            below: 0,
            dirs: Vec::new(),
            pages: Vec::new(),
            held: None,
            dropped: false,
        };
        match what {
            What::Put { staged, base } => {
                let new = self.staged(layer, &staged)?;
                change.base = there(base);
                change.action =
                    if change.base.is_some() { Action::Replace } else { Action::Install };
                if new.kind() == FileKind::Dir {
                    let top = self.layers.get(layer).and_then(|l| l.upper.parent());
                    let top = top
                        .map_or_else(Default::default, |t| join(t.as_os_str().as_bytes(), &staged));
                    let inside = walk(&path::from_bytes(&top), &[])?;
                    change.below = inside.len() as u64;
                    change.dirs = inside
                        .into_iter()
                        .filter(|(_, v)| v.kind() == FileKind::Dir)
                        .map(|(below, _)| below)
                        .collect();
                }
                (change.new, change.staged) = (Some(new), staged);
            }
            What::Rewrite { staged, base } => {
                let new = self.staged(layer, &staged)?;
                if base.kind() != FileKind::File || new.kind() != FileKind::File {
                    return Err(unsupported(&change.path, "gives content to what is no file"));
                }
                change.base = there(Some(base));
                change.action =
                    if change.base.is_some() { Action::Rewrite } else { Action::Install };
                (change.new, change.staged) = (Some(new), staged);
            }
            What::Remove { base } => {
                if is_vacated {
                    // The move takes it away.
                    return Ok(());
                }
                if base.kind() == FileKind::Dir {
                    change.below = self.count_below(layer, &change.stable_path);
                }
                (change.base, change.staged) = (Some(base), self.slot());
            }
            What::Move { from, source, base } => {
                (change.base, change.new) = (there(base), Some(source));
                change.staged = self.slot();
                change.action = Action::Move { from: from.into(), source };
            }
            What::Link { to, base } => {
                (change.base, change.staged) = (there(base), self.slot());
                change.action = Action::Link { to: to.into() };
            }
            What::Data { staged, base, mut attrs } => {
                let new = self.staged(layer, &staged)?;
                if base.kind() != FileKind::File || new.kind() != FileKind::File {
                    return Err(unsupported(&change.path, "gives content to what is no file"));
                }
                attrs.mtime.get_or_insert((base.mtime, new.mtime));
                (change.base, change.new, change.staged) = (Some(base), Some(new), staged);
                change.action = Action::Data(Box::new(attrs));
            }
            What::Patch { base, writes, size, mut attrs } => {
                if base.kind() != FileKind::File {
                    return Err(unsupported(&change.path, "gives content to what is no file"));
                }
                let patch = Patch::new(writes, size);
                attrs.mtime.get_or_insert((base.mtime, Stamp::now()));
                change.base = Some(base);
                change.new =
                    Some(Version { size: patch.len_after(base.size), ..as_changed(base, &attrs) });
                change.pages = patch.pages();
                change.staged = match self.patches {
                    Patches::Written => super::recorded::patch_place(number),
                    Patches::ToWrite => self.slot(),
                };
                if self.patches == Patches::ToWrite {
                    self.write_patch(layer, &change.staged, &patch)?;
                }
                change.action = Action::Patch(Box::new(attrs));
            }
            What::Attrs { base, change: attrs } => {
                (change.base, change.new) = (Some(base), Some(as_changed(base, &attrs)));
                change.action = Action::Attrs(Box::new(attrs));
            }
        }
        self.changes.push(change);
        Ok(())
    }

    /// A change of an object that no name is left of: it is made where the change that takes its name
    /// away puts it.
    fn hold(&mut self, number: usize, delta: Delta) -> Result<()> {
        let (layer, stable_path) = (delta.layer, delta.stable_path.clone());
        let mut stable: HashMap<Vec<u8>, Option<Version>> = HashMap::new();
        let above = |c: &&Change| c.layer == layer && stable_path.starts_with(&c.stable_path);
        for change in self.changes.iter().filter(above) {
            stable.insert(change.stable_path.to_vec(), None);
        }
        for (path, found) in &mut stable {
            *found = self.stable(layer, path)?;
        }
        let really = |c: &Change| {
            let now = stable.get(&c.stable_path[..]).copied().flatten();
            now.map(|v| v.id) == c.base.map(|v| v.id)
        };
        let Some((place, path)) = links::taken_to(&self.changes, layer, &stable_path, really)
        else {
            return Err(Error::Conflict(vec![Conflict {
                path: self.shown(layer, &stable_path),
                what: ConflictKind::NameLost,
                when: None,
            }]));
        };
        self.add(number, delta)?;
        if let Some(change) = self.changes.last_mut() {
            (change.path, change.held) = (path.into(), Some(place));
        }
        Ok(())
    }

    fn write_patch(&mut self, layer: usize, staged: &[u8], patch: &Patch) -> Result<()> {
        let (dir, name) = split(staged);
        let write = |staging: &OpenTree| {
            let dir = match staging.dir(dir) {
                Err(Errno::NOENT) => {
                    let (above, group) = split(dir);
                    match sys::mkdir(staging.dir(above)?.as_fd(), group, 0o700) {
                        Ok(()) | Err(Errno::EXIST) => staging.dir(dir)?,
                        Err(e) => return Err(e),
                    }
                }
                found => found?,
            };
            let file = sys::create(dir.as_fd(), name)?;
            sys::write_all_at(file.as_fd(), &patch.to_bytes(), 0)
        };
        write(&self.ground(layer)?.staging).map_err(|e| {
            let at = self.layers.get(layer).map(|l| l.old.clone()).unwrap_or_default();
            Error::io("writing a patch into", at, e)
        })
    }

    /// How many objects are below a stable directory; what can't be listed is not counted.
    fn count_below(&self, layer: usize, path: &[u8]) -> u64 {
        walk(&self.shown(layer, path), &[]).map_or(0, |found| found.len() as u64)
    }

    /// Renames move the times of the directories they happen in. The present becomes the time of
    /// each of those, unless the caller has said another: so it can be undone and reverted. One in which files get other
    /// content and nothing else keeps the time that it has.
    fn directory_times(&mut self) -> Result<()> {
        // Names of the tree as it is now, and as it will be.
        let (mut gone, mut put, mut arrived) = (HashSet::new(), HashSet::new(), HashSet::new());
        for c in &self.changes {
            let replaces = matches!(
                c.action,
                Action::Install | Action::Replace | Action::Rewrite | Action::Link { .. }
            );
            let arrives = matches!(c.action, Action::Move { .. });
            let takes_its_name = (replaces || arrives) && c.base.is_some();
            if matches!(c.action, Action::Remove) || takes_its_name {
                gone.insert((c.layer, c.stable_path.to_vec()));
            }
            if replaces {
                put.insert((c.layer, c.path.to_vec()));
            }
            if arrives {
                arrived.insert((c.layer, c.path.to_vec()));
            }
        }
        // What is taken away or put there as a whole keeps its own times; not so what is moved out
        // of the one or into the other.
        let is_live = |layer: usize, stable: &[u8], path: &[u8]| {
            !is_first_in(layer, stable, &gone, &self.vacated)
                && !is_first_in(layer, path, &put, &arrived)
        };
        // By the directory's place now; with its place in the finished tree, and whether its names change.
        let mut touched: BTreeMap<(usize, Vec<u8>), (Vec<u8>, bool)> = BTreeMap::new();
        let mut moves: BTreeMap<usize, Moves<'_>> = BTreeMap::new();
        for change in &self.changes {
            if let Action::Move { from, .. } = &change.action {
                moves.entry(change.layer).or_default().add(from, &change.path);
            }
        }
        for change in self.changes.iter().filter(|c| !c.action.is_in_place()) {
            let (dir, stable) = (split(&change.path).0, split(&change.stable_path).0);
            if is_live(change.layer, stable, dir) {
                let names = !(matches!(change.action, Action::Rewrite) && change.base.is_some());
                let place = touched.entry((change.layer, stable.to_vec())).or_default();
                *place = (dir.to_vec(), place.1 || names);
            }
            let Action::Move { from, .. } = &change.action else { continue };
            let left = split(from).0;
            let moved = moves.get(&change.layer).and_then(|moves| moves.mapped(left));
            let now = moved.unwrap_or_else(|| left.to_vec());
            if is_live(change.layer, left, &now) {
                touched.entry((change.layer, left.to_vec())).or_insert((now, true)).1 = true;
            }
        }
        for ((layer, stable), (path, names)) in touched {
            let own = self.changes.iter().position(|c| {
                c.layer == layer && *c.path == *path && matches!(c.action, Action::Attrs(_))
            });
            let says = |c: &Change| matches!(&c.action, Action::Attrs(a) if a.mtime.is_some());
            if own.and_then(|i| self.changes.get(i)).is_some_and(says) {
                continue;
            }
            let Some(now) = self.stable(layer, &stable)? else { continue };
            if now.kind() != FileKind::Dir {
                return Err(Error::Conflict(vec![Conflict {
                    path: self.shown(layer, &stable),
                    what: ConflictKind::DirectoryReplaced,
                    when: Some(now.ctime),
                }]));
            }
            let mtime = Some((now.mtime, if names { Stamp::now() } else { now.mtime }));
            if let Some(Change { action: Action::Attrs(change), .. }) =
                own.and_then(|i| self.changes.get_mut(i))
            {
                change.mtime = mtime;
                continue;
            }
            let change = AttrChange { mtime, ..AttrChange::default() };
            self.changes.push(Change {
                layer,
                path: path.into(),
                stable_path: stable.into(),
                base: Some(now),
                new: Some(as_changed(now, &change)),
                action: Action::Attrs(Box::new(change)),
                staged: Vec::new(),
                strip: Vec::new(),
                shown: false,
                below: 0,
                dirs: Vec::new(),
                pages: Vec::new(),
                held: None,
                dropped: false,
            });
        }
        Ok(())
    }
}

/// Whether, going up from `path`, a name of `these` is met before one of `those`.
fn is_first_in(
    layer: usize,
    path: &[u8],
    these: &HashSet<(usize, Vec<u8>)>,
    those: &HashSet<(usize, Vec<u8>)>,
) -> bool {
    let mut key = (layer, path.to_vec());
    loop {
        if those.contains(&key) {
            return false;
        }
        if these.contains(&key) {
            return true;
        }
        if key.1.is_empty() {
            return false;
        }
        key.1.truncate(split(&key.1).0.len());
    }
}

/// What a version will be like when its attributes are changed.
fn as_changed(mut version: Version, change: &AttrChange) -> Version {
    if let Some((_, mode)) = change.mode {
        version.mode = version.mode & !0o7777 | mode & 0o7777;
    }
    if let Some((_, owner)) = change.owner {
        (version.uid, version.gid) = owner;
    }
    if let Some((_, mtime)) = change.mtime {
        version.mtime = mtime;
    }
    version
}

#[cfg(test)]
mod tests;
