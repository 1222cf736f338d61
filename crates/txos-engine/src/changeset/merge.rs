//! Two pending transactions as one. Those of the overlay's view are merged as lists of entries
//! ([`Transaction::merge`]); those of the library's view as lists of recorded changes, which is here.
//!
//! Both lists are over the same stable tree, and are compared with what both began with: nothing, or the list of the savepoint
//! that one of them is a fork of. What only one of them has changed is taken from that one, with its private copies. The
//! result is one more savepoint of the transaction that stays, which goes to it as if a layer was redone.
//!
//! # Invariants
//!
//! - A change that both have, each in its own way, is a conflict. A new directory is one change, with everything in it.
//! - No change of the one names an object, or a name, that a change of the other names; nor is it below a name at which the other has
//!   put, moved or removed something. So the sum is the list that one transaction would have recorded that did both.
//! - All private copies that are one object come from one side, with all that the changes put that name them.
//! - Not both have seen what the other has changed, and what either has read is read by the result.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, CWD};

use super::delta::{Delta, What};
use super::recorded::{self, deltas_at, patch_place, shown_place};
use crate::error::{Conflict, ConflictKind, Context, Error, Result};
use crate::object::{FileId, FileKind};
use crate::path::layer::split;
use crate::path::{Moves, join};
use crate::store::{
    Changed, Command, Import, Item, Layer, Manifest, Sum, Transaction, Tree, are_alike,
    look_at_entries, merge_conflict,
};
use crate::version::{Version, stat_at};

/// Makes what another pending transaction changed one more layer of this one, which is at it then. The other one
/// is as it was; the caller discards it.
///
/// # Errors
/// [`Error::Conflict`] with what is in the way, [`Error::WrongState`] if the two can't be compared: both are as
/// they were. [`Error::Io`] with the step: as after [`Transaction::go_to`].
pub fn merge(tx: &mut Transaction, other: &mut Transaction, command: Command) -> Result<()> {
    let (ours, theirs) = (tx.meta.recorded, other.meta.recorded);
    if !ours && !theirs {
        return tx.merge(other, command);
    }
    if ours != theirs {
        let view = |recorded| if recorded { "the library's view" } else { "the overlay's view" };
        return Err(Error::WrongState {
            id: other.id(),
            state: format!("kept from {}, and {} from {}", view(theirs), tx.id(), view(ours)),
            advice: "transactions of different views can't be merged; commit one after the other."
                .into(),
        });
    }
    if !tx.meta.scope.as_os_str().is_empty() && tx.meta.scope != other.meta.scope {
        return Err(Error::WrongState {
            id: other.id(),
            state: format!("one of another scope (--scope) than {}", tx.id()),
            advice: "commit one after the other.".into(),
        });
    }
    merge_recorded(tx, other, command)
}

fn merge_recorded(tx: &mut Transaction, other: &mut Transaction, command: Command) -> Result<()> {
    let base = tx.common_savepoint(other)?;
    let (here, there) = (tx.save_here()?, other.save_here()?);
    // What was saved stays: the next command needs it.
    tx.save(tx.meta.durable)?;
    other.save(other.meta.durable)?;
    let (layers, their_layers) = (tx.layers(), other.layers());
    let at = |tx: &Transaction, number: u32| -> Result<(Manifest, Vec<Delta>)> {
        Ok((tx.manifest(number)?, deltas_at(tx, Some(number))?))
    };
    let base = base.map(|number| at(tx, number)).transpose()?.unwrap_or_default();
    let (ours, theirs) = (at(tx, here)?, at(other, there)?);
    let own: Vec<Option<&Layer>> = layers.iter().map(Some).collect();
    let twin = |layer: &Layer| {
        let same =
            |l: &&Layer| (&l.target, &l.store, l.root) == (&layer.target, &layer.store, layer.root);
        their_layers.iter().find(same)
    };
    let twins: Vec<Option<&Layer>> = layers.iter().map(twin).collect();
    for delta in &theirs.1 {
        let known = twins.iter().flatten().any(|layer| layer.index == delta.layer);
        if let Some(layer) = their_layers.get(delta.layer).filter(|_| !known) {
            let target = crate::show::quoted(&layer.target);
            return Err(Error::WrongState {
                id: other.id(),
                state: format!(
                    "one that changes the file system of {target}, where {} changes nothing",
                    tx.id()
                ),
                advice: "merge it the other way round, or commit one after the other.".into(),
            });
        }
    }
    let rights = crate::sys_owner::rights();
    let lists = Lists {
        layers: &layers,
        base: List::new(&own, &base.0, &base.1)?,
        ours: List::new(&own, &ours.0, &ours.1)?,
        theirs: List::new(&twins, &theirs.0, &theirs.1)?,
    };
    let mut conflicts = Vec::new();
    let picked = lists.picked(&mut conflicts)?;
    lists.check_apart(&picked, &mut conflicts);
    let changed = [&picked.ours, &picked.theirs].map(|touched| lists.changed(touched));
    drop(rights);
    let mut reads = tx.load_reads()?;
    let their_reads = other.load_reads()?;
    tx.absorb(&mut reads, other, &their_reads, [&changed[0], &changed[1]], conflicts)?;
    let (deltas, places) = lists.merged(&picked);
    super::delta::check(&layers, &deltas)?;
    let sealed = recorded::sealed(&deltas)?;
    let number = tx.make_room(here)?;
    let rights = crate::sys_owner::rights();
    let copies = lists.copies(&places, number, tx.meta.durable)?;
    drop(rights);
    tx.go_to_merged(number, other, &Sum { copies, reads, deltas: Some(sealed) }, command)
}

/// What a change is of. Of one name there may be one of the name, and one of what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Of {
    Name,
    Object,
    /// An object that no name is left of.
    Nameless,
}

/// What tells a change from others of its list: the layer, as ours counts them, what it is of, and the path.
type Key<'a> = (usize, Of, &'a [u8]);

/// A private copy: its path below that of its change, its place, and what is known of it.
type Copied<'a> = (&'a [u8], &'a [u8], &'a Item);

/// Where a private copy of several names is: below which change's.
type Link<'a> = (Key<'a>, &'a [u8]);

/// A list of recorded changes, and the private copies that it names.
struct List<'a> {
    deltas: BTreeMap<Key<'a>, (usize, &'a Delta)>,
    /// By number of our layer, if it has that one.
    trees: Vec<Option<(&'a Layer, &'a Tree)>>,
    /// All names of each private copy that has several, by layer and inode.
    links: HashMap<(usize, u64), BTreeSet<Link<'a>>>,
    /// Where its moves lead, and back, by layer.
    moves: Vec<(Moves<'a>, Moves<'a>)>,
}

/// A change of a list.
#[derive(Clone, Copy)]
struct One<'a> {
    list: &'a List<'a>,
    key: Key<'a>,
    number: usize,
    delta: &'a Delta,
}

impl<'a> List<'a> {
    /// `layers`: those of the list, by number of ours.
    fn new(
        layers: &[Option<&'a Layer>],
        manifest: &'a Manifest,
        deltas: &'a [Delta],
    ) -> Result<List<'a>> {
        let tree = |layer: &&'a Layer| manifest.trees.get(layer.index);
        let mut list = List {
            deltas: BTreeMap::new(),
            trees: layers.iter().map(|layer| layer.and_then(|l| Some((l, tree(&l)?)))).collect(),
            links: HashMap::new(),
            moves: layers.iter().map(|_| Default::default()).collect(),
        };
        for (number, delta) in deltas.iter().enumerate() {
            let of = |layer: &Option<&Layer>| layer.is_some_and(|l| l.index == delta.layer);
            let Some(layer) = layers.iter().position(of) else { continue };
            let key = match delta {
                Delta { nameless: true, .. } => (layer, Of::Nameless, &delta.stable_path[..]),
                _ if delta.what.is_in_place() => (layer, Of::Object, &delta.path[..]),
                _ => (layer, Of::Name, &delta.path[..]),
            };
            if let (What::Move { from, .. }, Some((there, back))) =
                (&delta.what, list.moves.get_mut(layer))
            {
                there.add(from, &delta.path);
                back.add(&delta.path, from);
            }
            list.deltas.insert(key, (number, delta));
            if let What::Patch { .. } = delta.what {
                list.copy(layer, &patch_place(number), delta)?;
            }
            let mut links = Vec::new();
            for (below, _, item) in list.copies(key, delta)? {
                if item.several && item.kind() != FileKind::Dir {
                    links.push((item.ino, below));
                }
            }
            for (ino, below) in links {
                list.links.entry((layer, ino)).or_default().insert((key, below));
            }
        }
        Ok(list)
    }

    fn one(&'a self, key: Key<'a>) -> Option<One<'a>> {
        let (number, delta) = *self.deltas.get(&key)?;
        Some(One { list: self, key, number, delta })
    }

    fn layer(&self, layer: usize) -> Option<&'a Layer> {
        self.trees.get(layer).copied().flatten().map(|(layer, _)| layer)
    }

    /// The private copy of a change at a place.
    fn copy(
        &self,
        layer: usize,
        place: &[u8],
        delta: &Delta,
    ) -> Result<(&'a Tree, &'a [u8], &'a Item)> {
        let tree = self.trees.get(layer).copied().flatten().map(|(_, tree)| tree);
        let found =
            tree.and_then(|tree| tree.get_key_value(place).map(|(at, item)| (tree, &at[..], item)));
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        found
            .ok_or_else(missing)
            .at("looking at the private copy of", crate::path::from_bytes(&delta.path))
    }

    /// The private copies of a change: the first, and what is in it.
    fn copies(&self, (layer, ..): Key<'_>, delta: &'a Delta) -> Result<Vec<Copied<'a>>> {
        let Some(staged) = staged(&delta.what) else { return Ok(Vec::new()) };
        let (tree, top, item) = self.copy(layer, staged, delta)?;
        let prefix = [staged, b"/"].concat();
        let inside = tree.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        let below =
            inside.map(|(key, item)| (key.get(prefix.len()..).unwrap_or_default(), &key[..], item));
        Ok(std::iter::once((&b""[..], top, item)).chain(below).collect())
    }

    /// All names of a private copy, if it has several.
    fn links_of(&self, layer: usize, item: &Item) -> impl Iterator<Item = &Link<'a>> {
        let links = self.links.get(&(layer, item.ino)).filter(|_| item.several);
        links.into_iter().flatten()
    }

    /// A name as it is in the finished tree, and as it is now. It may be given as either.
    fn names(&self, layer: usize, path: &[u8]) -> [Vec<u8>; 3] {
        let (there, back) = match self.moves.get(layer) {
            Some((there, back)) => (there.mapped(path), back.mapped(path)),
            None => (None, None),
        };
        [
            path.to_vec(),
            there.unwrap_or_else(|| path.to_vec()),
            back.unwrap_or_else(|| path.to_vec()),
        ]
    }
}

fn staged(what: &What) -> Option<&[u8]> {
    match what {
        What::Put { staged, .. } | What::Rewrite { staged, .. } | What::Data { staged, .. } => {
            Some(staged)
        }
        _ => None,
    }
}

/// Where a change is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ours,
    Theirs,
    /// It is the same in both.
    Either,
}

/// How a change differs from another one of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Differs {
    No,
    /// Private copies that it names have other names elsewhere, and are the same in all else.
    InLinks,
    Yes,
}

impl<'a> One<'a> {
    /// Every name that it says something of, in the finished tree and as it is now; and whether something comes to it
    /// or goes from it.
    fn names(&self) -> Vec<(Vec<u8>, bool)> {
        let delta = self.delta;
        let turns = !delta.what.is_in_place();
        let own = (!delta.nameless).then_some((&delta.path[..], turns));
        let other = match &delta.what {
            What::Move { from, .. } => Some((&from[..], true)),
            What::Link { to, .. } => Some((&to[..], false)),
            _ => None,
        };
        let all = [Some((&delta.stable_path[..], turns)), own, other].into_iter().flatten();
        all.flat_map(|(path, turns)| self.list.names(self.key.0, path).map(|name| (name, turns)))
            .collect()
    }

    /// The name that its object has now.
    fn name_now(&self) -> &'a [u8] {
        match &self.delta.what {
            What::Move { from, .. } => from,
            _ => &self.delta.stable_path,
        }
    }
}

/// What one side has changed.
#[derive(Default)]
struct Touched<'a> {
    /// The changes that are not as before; and those that were there before, and are not any more or not so. Each with
    /// whether only links differ.
    ones: Vec<(One<'a>, bool)>,
    /// Every name that these say something of, by layer: in the finished tree, and as it is now.
    names: BTreeSet<(usize, Vec<u8>)>,
    /// Those at which something else is than before.
    turned: BTreeSet<(usize, Vec<u8>)>,
    /// Stable objects.
    objects: HashSet<FileId>,
}

impl<'a> Touched<'a> {
    fn add(&mut self, one: One<'a>, how: Differs) {
        let layer = one.key.0;
        for (path, turns) in one.names() {
            if turns {
                self.turned.insert((layer, path.clone()));
            }
            self.names.insert((layer, path));
        }
        self.objects.extend(one.delta.what.versions().map(|version| version.id));
        self.ones.push((one, how == Differs::InLinks));
    }
}

/// Where each change is taken from, and what either side has changed.
struct Picked<'a> {
    all: BTreeMap<Key<'a>, Side>,
    ours: Touched<'a>,
    theirs: Touched<'a>,
}

/// What is put where: of each of our layers the list, the place there and the new place, with everything below it if it
/// is a private copy.
#[derive(Default)]
struct Places<'a> {
    all: Vec<(usize, Side, &'a [u8], Vec<u8>)>,
}

struct Lists<'a> {
    layers: &'a [Layer],
    base: List<'a>,
    ours: List<'a>,
    theirs: List<'a>,
}

impl<'a> Lists<'a> {
    fn list(&'a self, side: Side) -> &'a List<'a> {
        if side == Side::Theirs { &self.theirs } else { &self.ours }
    }

    fn shown(&self, layer: usize, path: &[u8]) -> Vec<u8> {
        let top = self.layers.get(layer).map_or(&b"/"[..], |l| l.target.as_os_str().as_bytes());
        if path.is_empty() { top.to_vec() } else { join(top, path) }
    }

    fn picked(&'a self, conflicts: &mut Vec<Conflict>) -> Result<Picked<'a>> {
        let keys: BTreeSet<Key<'a>> = [&self.base, &self.ours, &self.theirs]
            .iter()
            .flat_map(|list| list.deltas.keys().copied())
            .collect();
        let mut picked =
            Picked { all: BTreeMap::new(), ours: Touched::default(), theirs: Touched::default() };
        for key in keys {
            let [base, ours, theirs] =
                [&self.base, &self.ours, &self.theirs].map(|list| list.one(key));
            let (here, there) = (differ(base, ours)?, differ(base, theirs)?);
            let (is_ours, is_theirs) = (here != Differs::No, there != Differs::No);
            let equal = is_ours == is_theirs && differ(ours, theirs)? == Differs::No;
            let side = match (is_ours, is_theirs) {
                _ if equal => Side::Either,
                (false, true) => Side::Theirs,
                _ => Side::Ours,
            };
            if self.list(side).one(key).is_some() {
                picked.all.insert(key, side);
            }
            if equal {
                continue;
            }
            if is_ours && is_theirs {
                self.refuse(conflicts, key.0, key.2, ConflictKind::ChangedByBoth);
            }
            for (how, one, touched) in
                [(here, ours, &mut picked.ours), (there, theirs, &mut picked.theirs)]
            {
                if how != Differs::No {
                    base.into_iter().chain(one).for_each(|one| touched.add(one, how));
                }
            }
        }
        self.keep_together(&mut picked.all, conflicts);
        Ok(picked)
    }

    /// All private copies that are one object come from one side, and with them all that their changes put.
    fn keep_together(
        &'a self,
        picked: &mut BTreeMap<Key<'a>, Side>,
        conflicts: &mut Vec<Conflict>,
    ) {
        let mut again = true;
        while again {
            again = false;
            for side in [Side::Ours, Side::Theirs] {
                for links in self.list(side).links.values() {
                    if !links.iter().any(|(key, _)| picked.get(key) == Some(&side)) {
                        continue;
                    }
                    for (key, _) in links {
                        match picked.get_mut(key) {
                            Some(from) if *from == side => {}
                            Some(from @ Side::Either) => (*from, again) = (side, true),
                            _ => self.refuse(conflicts, key.0, key.2, ConflictKind::ChangedByBoth),
                        }
                    }
                }
            }
        }
    }

    fn refuse(&self, conflicts: &mut Vec<Conflict>, layer: usize, path: &[u8], what: ConflictKind) {
        conflicts.push(merge_conflict(&self.shown(layer, path), what));
    }

    /// That what the one has changed has nothing to do with what the other has.
    fn check_apart(&self, picked: &Picked<'a>, conflicts: &mut Vec<Conflict>) {
        let (ours, theirs) = (&picked.ours, &picked.theirs);
        for (layer, path) in ours.names.intersection(&theirs.names) {
            self.refuse(conflicts, *layer, path, ConflictKind::ChangedByBoth);
        }
        for (these, those) in [(ours, theirs), (theirs, ours)] {
            for (one, _) in &these.ones {
                let mut versions = one.delta.what.versions();
                if versions.any(|version| those.objects.contains(&version.id)) {
                    self.refuse(conflicts, one.key.0, one.name_now(), ConflictKind::ChangedByBoth);
                }
            }
            for (layer, path) in &these.names {
                let mut above = &path[..];
                while !above.is_empty() {
                    above = split(above).0;
                    if those.turned.contains(&(*layer, above.to_vec())) {
                        self.refuse(conflicts, *layer, path, ConflictKind::WayChangedByOther);
                        break;
                    }
                }
            }
        }
    }

    /// What one side has changed, for what the other has read.
    fn changed(&self, touched: &Touched<'a>) -> Changed {
        let mut changed = Changed::default();
        for (one, _) in touched.ones.iter().filter(|(_, only_links)| !only_links) {
            let (layer, delta) = (one.key.0, one.delta);
            for (path, turns) in one.names() {
                *changed.paths.entry(self.shown(layer, &path)).or_default() |= turns;
            }
            let came_or_went: &[&[u8]] = match &delta.what {
                What::Move { from, .. } => &[&delta.path, from],
                What::Put { base: None, .. }
                | What::Link { base: None, .. }
                | What::Remove { .. } => &[&delta.path],
                _ => &[],
            };
            for path in came_or_went {
                let dirs = one.list.names(layer, split(path).0);
                changed.listings.extend(dirs.map(|dir| self.shown(layer, &dir)));
            }
            let is_file = |version: &Version| version.kind() != FileKind::Dir;
            let several = delta.what.versions().filter(|v| v.nlink > 1 && is_file(v));
            changed.objects.extend(several.map(|version| version.id));
            if let What::Link { to, .. } = &delta.what {
                // One more name is seen at all of them.
                let now = one.list.names(layer, to).map(|name| self.shown(layer, &name));
                let now = now
                    .iter()
                    .filter_map(|path| stat_at(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok());
                changed.objects.extend(now.filter(is_file).map(|version| version.id));
            }
        }
        changed
    }

    /// The sum of the lists, and what its private copies are.
    fn merged(&'a self, picked: &Picked<'a>) -> (Vec<Delta>, Places<'a>) {
        // Places are numbers, and what a command makes is numbered from the last one on.
        let number = |key: &Vec<u8>| {
            let name = key.strip_prefix(b"new/")?.split(|&b| b == b'/').next()?;
            std::str::from_utf8(name).ok()?.parse::<u64>().ok()
        };
        let trees = self.ours.trees.iter().flatten();
        let mut last =
            trees.flat_map(|(_, tree)| tree.keys()).filter_map(number).max().unwrap_or(0);
        let (mut deltas, mut places) = (Vec::new(), Places::default());
        for side in [Side::Ours, Side::Theirs] {
            let is_from = |from: Side| from == side || (from, side) == (Side::Either, Side::Ours);
            for (key, _) in picked.all.iter().filter(|(_, from)| is_from(**from)) {
                let Some(one) = self.list(side).one(*key) else { continue };
                let mut delta = Delta { layer: key.0, ..one.delta.clone() };
                if let What::Put { staged, .. }
                | What::Rewrite { staged, .. }
                | What::Data { staged, .. } = &mut delta.what
                {
                    if side == Side::Theirs {
                        last += 1;
                        *staged = format!("new/{last}").into_bytes();
                    }
                    let was = self::staged(&one.delta.what).unwrap_or_default();
                    places.all.push((key.0, side, was, staged.clone()));
                }
                if let What::Patch { .. } = &delta.what {
                    let (was, is) = (patch_place(one.number), patch_place(deltas.len()));
                    places.patch(self, (key.0, side), &was, is.clone());
                    if let (Some(was), Some(is)) = (shown_place(&was), shown_place(&is)) {
                        places.patch(self, (key.0, side), &was, is);
                    }
                }
                deltas.push(delta);
            }
        }
        (deltas, places)
    }

    /// The private copies, with the content of those of the other side copied to savepoint `number`.
    fn copies(&self, places: &Places<'a>, number: u32, flush: bool) -> Result<Manifest> {
        let mut manifest = Manifest::default();
        for (index, layer) in self.layers.iter().enumerate() {
            let side = |list: &List<'a>| list.trees.get(index).copied().flatten();
            let (ours, theirs) = (side(&self.ours), side(&self.theirs));
            let mut import = Import::new(layer, number, flush);
            // The directories that they lie in. A layer that came later is in no savepoint of before.
            let now = if ours.is_none() { Some(look_at_entries(layer, None)?) } else { None };
            let tops = ours.map(|(_, tree)| tree).or(now.as_ref()).into_iter().flatten();
            let is_top = |key: &[u8]| !key.starts_with(b"new/");
            let mut tree: Tree = tops
                .filter(|(key, _)| is_top(key))
                .map(|(key, item)| (key.clone(), item.clone()))
                .collect();
            for (_, from, was, is) in places.all.iter().filter(|(of, ..)| *of == index) {
                let Some((of, from_tree)) = (if *from == Side::Theirs { theirs } else { ours })
                else {
                    continue;
                };
                let below = [was, &b"/"[..]].concat();
                let inside =
                    from_tree.range(below.clone()..).take_while(|(key, _)| key.starts_with(&below));
                for (key, item) in from_tree.get_key_value(*was).into_iter().chain(inside) {
                    let item = match from {
                        Side::Theirs => import.take(of, item)?,
                        Side::Ours | Side::Either => item.clone(),
                    };
                    tree.insert([is, key.get(was.len()..).unwrap_or_default()].concat(), item);
                }
            }
            import.end()?;
            manifest.trees.push(tree);
        }
        Ok(manifest)
    }
}

impl<'a> Places<'a> {
    /// A file that goes with a change of a few bytes, if it is there.
    fn patch(
        &mut self,
        lists: &'a Lists<'a>,
        (layer, side): (usize, Side),
        was: &[u8],
        is: Vec<u8>,
    ) {
        let tree = lists.list(side).trees.get(layer).copied().flatten();
        if let Some((place, _)) = tree.and_then(|(_, tree)| tree.get_key_value(was)) {
            self.all.push((layer, side, place, is));
        }
    }
}

/// Whether two lists have one change, with the same private copies.
fn differ(a: Option<One<'_>>, b: Option<One<'_>>) -> Result<Differs> {
    let (a, b) = match (a, b) {
        (Some(a), Some(b)) => (a, b),
        (None, None) => return Ok(Differs::No),
        _ => return Ok(Differs::Yes),
    };
    let same = match (&a.delta.what, &b.delta.what) {
        (What::Put { base: one, .. }, What::Put { base: two, .. }) => one == two,
        (What::Rewrite { base: one, .. }, What::Rewrite { base: two, .. }) => one == two,
        (What::Data { base: one, attrs, .. }, What::Data { base: two, attrs: also, .. }) => {
            one == two && attrs == also
        }
        (one, two) => one == two,
    };
    if !same || (&a.delta.path, &a.delta.stable_path) != (&b.delta.path, &b.delta.stable_path) {
        return Ok(Differs::Yes);
    }
    let (ours, theirs) = (a.list.copies(a.key, a.delta)?, b.list.copies(b.key, b.delta)?);
    let layer = a.key.0;
    let mut how = Differs::No;
    for ((below, _, one), (also, _, two)) in ours.iter().zip(&theirs) {
        let (Some(of_a), Some(of_b)) = (a.list.layer(layer), b.list.layer(layer)) else {
            return Ok(Differs::Yes);
        };
        if below != also || !are_alike((one, of_a), (two, of_b), true)? {
            return Ok(Differs::Yes);
        }
        if !a.list.links_of(layer, one).eq(b.list.links_of(layer, two)) {
            how = Differs::InLinks;
        }
    }
    Ok(if ours.len() == theirs.len() { how } else { Differs::Yes })
}
