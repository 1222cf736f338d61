//! The plan of a commit: an ordered list of reversible operations.
//!
//! # Invariants
//!
//! - Every operation can be undone from what it leaves behind, and it can be seen from the
//!   identities at its two ends whether it was done.
//! - Slots (places in a store) are named relative to the store, targets relative to the layer; no
//!   plan holds a path that leads out of either.
//! - Order: directories that can't be renamed are rebuilt (the commit finds them); what is moved goes out, deepest first; what is moved and what is new comes in, parents first;
//!   removals; then what is done in place; links; what is done in place to objects that the plan has
//!   taken away by then ([`Held`]); directory times last. New things appear before removals, so that
//!   whoever sees a removal sees the rest.

mod op;
mod wire;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

pub(crate) use op::{
    Does, Exchanged, Held, Inside, Op, Rebuilt, Staged, Write, in_place, on_names,
};

use serde::{Deserialize, Serialize};

use crate::changeset::{Action, Change, ChangeSet};
use crate::codec;
use crate::error::{Context, Error, Result};
use crate::hash::Map;
use crate::id::TxId;
use crate::object::FileKind;
use crate::path::{LayerPath, Moves, StorePath};
use crate::places::Places;
use crate::store::{Home, LayerMeta, Transaction, old_place};
use crate::version::{Stamp, Version};

/// The plan of one commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Which transaction.
    pub id: TxId,
    /// In which boot it was made.
    pub boot: String,
    /// When it was made: before anything of it is carried out.
    pub made: Stamp,
    /// Whether its publish is flushed.
    pub durable: bool,
    /// The layers' targets and stores.
    pub layers: Vec<LayerMeta>,
    /// What to do, in order.
    pub ops: Vec<Op>,
}

/// Where the ends of an operation lead when its plan is done: absolute paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Where the object is that the operation left at its target; where the name is that it took one from.
    pub target: Vec<u8>,
    /// Whether something is at that name when the plan is done.
    pub is_taken: bool,
    /// Where the object is that the operation left in its slot, if it has one.
    pub slot: Option<Vec<u8>>,
}

impl Plan {
    /// The operations on objects that are in the store, by number: what format 3 adds to a plan.
    pub fn held(&self) -> Vec<(u64, Held)> {
        let held = |(index, op): (usize, &Op)| Some((index as u64, op.held()?.clone()));
        self.ops.iter().enumerate().filter_map(held).collect()
    }

    /// Gives the operations back what [`Plan::held`] said. `false`: it is of other operations.
    #[must_use]
    pub fn set_held(&mut self, held: Vec<(u64, Held)>) -> bool {
        held.into_iter().all(|(index, held)| {
            let op = usize::try_from(index).ok().and_then(|index| self.ops.get_mut(index));
            op.and_then(Op::held_mut).is_some_and(|place| place.replace(held).is_none())
        })
    }

    /// The plan as bytes of the present format.
    ///
    /// # Errors
    /// Those of the encoding.
    pub fn to_bytes(&self) -> postcard::Result<Vec<u8>> {
        let mut bytes = postcard::to_stdvec(self)?;
        bytes.extend_from_slice(&postcard::to_stdvec(&self.held())?);
        Ok(bytes)
    }

    /// Reads a plan of a format; `None` if it is not one.
    fn from_bytes(bytes: &[u8], version: u32) -> Option<Plan> {
        let (mut plan, rest) = postcard::take_from_bytes::<Plan>(bytes).ok()?;
        if version < FILE_VERSION_HELD {
            return Some(plan);
        }
        plan.set_held(postcard::from_bytes(rest).ok()?).then_some(plan)
    }

    /// A plan without operations.
    pub fn empty(tx: &Transaction, durable: bool) -> Self {
        Plan {
            id: tx.id(),
            boot: crate::machine::boot_id(),
            made: Stamp::now(),
            durable,
            layers: tx.meta.layers.clone(),
            ops: Vec::new(),
        }
    }

    /// A plan from before a restart of the machine: its file systems may have other device numbers now
    /// (btrfs draws one at each mount). A layer's root is the same directory if it has the inode number
    /// that it had, and the transaction's directory in the layer's store lies on the same file system;
    /// what the plan says of it is then said with the present number.
    pub fn renumber(&mut self) {
        use std::os::unix::fs::MetadataExt;

        if self.boot == crate::machine::boot_id() {
            return;
        }
        for (index, layer) in self.layers.iter_mut().enumerate() {
            let Some(root) = &mut layer.root else { continue };
            let look = |path: &std::path::Path| std::fs::symlink_metadata(path).ok();
            let Some(now) = look(&layer.target).filter(|now| now.ino() == root.ino) else {
                continue;
            };
            let ours = look(&layer.store.join("tx").join(self.id.as_str()));
            if now.dev() == root.dev || ours.is_none_or(|ours| ours.dev() != now.dev()) {
                continue;
            }
            for op in self.ops.iter_mut().filter(|op| usize::from(op.layer) == index) {
                let versions = [&mut op.base, &mut op.new, &mut op.own_version];
                for version in versions.into_iter().flatten().filter(|v| v.id.dev == root.dev) {
                    version.id.dev = now.dev();
                }
            }
            root.dev = now.dev();
        }
    }

    /// Brings the change set into the order of the publish.
    pub fn build(tx: &Transaction, changes: &ChangeSet, durable: bool) -> Plan {
        let mut plan = Plan::empty(tx, durable);
        let slot_of = |c: &Change, rel: &[u8]| {
            let mut slot = format!("tx/{}/l{}/", tx.id(), c.layer).into_bytes();
            slot.extend_from_slice(rel);
            StorePath::from(slot)
        };
        let mut last_slot = changes.last_slot;
        let mut by_phase: Vec<Vec<Op>> = vec![Vec::new(); 5];
        // An operation is some hundred bytes long, and most plans are of one phase: there is room for it from the start.
        for (phase, count) in [1, 2].map(|phase| (phase, in_phase(&changes.changes, phase))) {
            by_phase[phase].reserve_exact(count);
        }
        for c in &changes.changes {
            let op = |does| Op {
                layer: u16::try_from(c.layer).unwrap_or(u16::MAX),
                target: c.path.clone(),
                after: c.path.clone(),
                before: c.stable_path.clone(),
                base: c.base,
                new: c.new,
                shown: c.shown,
                below: c.below,
                own_version: None,
                does,
            };
            let is_dir = c.new.is_some_and(|v| v.kind() == FileKind::Dir);
            let slot = slot_of(c, &c.staged);
            let staged = |slot| Staged { slot, strip: c.strip.clone(), dirs: c.dirs.clone() };
            let held = || {
                let held = c.held.as_ref();
                held.map(|place| Held { place: slot_of(c, place), before: false, after: true })
            };
            match &c.action {
                Action::Link { to } => {
                    by_phase[3].push(op(Does::Link { slot, other: to.clone() }));
                }
                Action::Install | Action::Rewrite if c.base.is_none() => {
                    by_phase[1].push(op(Does::Install(staged(slot))));
                }
                Action::Install | Action::Replace | Action::Rewrite => {
                    let outsiders = match c.action {
                        Action::Rewrite => Exchanged::Copy,
                        _ => Exchanged::Fresh,
                    };
                    let staged = staged(slot);
                    by_phase[1].push(op(Does::Exchange { staged, outsiders, other: None }));
                }
                Action::Remove => by_phase[2].push(op(Does::Remove { slot, other: None })),
                Action::Move { from, source } => {
                    let mut out = op(Does::MoveOut { slot: slot.clone() });
                    for path in [&mut out.target, &mut out.before, &mut out.after] {
                        path.clone_from(from);
                    }
                    (out.base, out.new, out.shown) = (Some(*source), None, false);
                    by_phase[0].push(out);
                    let mut into = op(Does::MoveIn { slot, from: Some(from.clone()) });
                    into.new = Some(*source);
                    by_phase[1].push(into);
                }
                Action::Data(attrs) | Action::Patch(attrs) => {
                    last_slot += 1;
                    let write = Write {
                        slot,
                        undo_copy: slot_of(c, &old_place("", last_slot)),
                        attrs: Some(attrs.clone()),
                        held: held(),
                    };
                    by_phase[3].push(op(match c.action {
                        Action::Patch(_) => Does::Patch { write, pages: c.pages.clone() },
                        _ => Does::Data(write),
                    }));
                }
                Action::Attrs(attrs) => {
                    let change = attrs.clone();
                    by_phase[if is_dir { 4 } else { 3 }].push(op(match is_dir {
                        true if attrs.is_only_mtime() => Does::DirTime { change },
                        _ => Does::Attrs { change, held: held(), retained: None },
                    }));
                }
            }
        }
        let depth = |path: &[u8]| path.iter().filter(|&&b| b == b'/').count();
        for (phase, mut ops) in by_phase.into_iter().enumerate() {
            match phase {
                // A link follows what is done to the inode it links to; and it may be what takes
                // another inode's name.
                3 => ops.sort_by_key(|o| match o.held() {
                    Some(_) => 2,
                    None if o.is_link() => 1,
                    None => 0,
                }),
                // Deepest first; and directory times last of all, deepest first.
                0 | 2 | 4 => ops.sort_by_key(|o| std::cmp::Reverse(depth(&o.target))),
                // Parents first: what comes, comes to a directory that is in place, new or moved. What
                // was changed inside a directory that is moved into a new one lies in that move's slot.
                _ => ops = by_target(ops),
            }
            if plan.ops.is_empty() {
                plan.ops = ops;
            } else {
                plan.ops.append(&mut ops);
            }
        }
        plan.find_places();
        plan
    }

    /// Finds where the object of each operation is before the plan begins and when it is done. What begins or
    /// ends in a store has no such place, and keeps what its operation says.
    pub fn find_places(&mut self) {
        // Then each is at its target all the while, which is what they say.
        if !self.leaves_paths() {
            self.walk_to_places();
        }
    }

    /// [`Plan::find_places`], where paths may lead elsewhere.
    fn walk_to_places(&mut self) {
        let mut places = Places::default();
        let mut found = Vec::with_capacity(self.ops.len());
        for op in &self.ops {
            let entry = places.entry(&self.object_path(op));
            let object = places.object(&entry);
            let before = match &object {
                Some(object) if op.base.is_some() => object.clone(),
                _ => entry.clone(),
            };
            found.push((before, entry, object.filter(|_| op.is_in_place())));
            self.carry_out(op, &mut places);
        }
        let mut ops = std::mem::take(&mut self.ops);
        for (op, (before, entry, object)) in ops.iter_mut().zip(found) {
            let after = object.map_or_else(|| places.now_of_entry(&entry), |o| places.now(&o));
            if let Some(before) = self.in_tree(op.layer, &before) {
                op.before = before;
            }
            if let Some(after) = self.in_tree(op.layer, &after) {
                op.after = after;
            }
        }
        self.ops = ops;
    }

    /// Whether every path leads to the same entry in the course of the plan: it comes to no directory, takes none away
    /// and moves nothing, does one thing at each name, and nothing below a name at which it puts something. And whether the
    /// operations say so, which is what [`Plan::find_places`] would find.
    ///
    /// Most plans of many operations are such ones. To walk each path through the changed names, as is necessary where a
    /// directory on the way may be another one by then, took a sixth of their commits.
    pub fn leaves_paths(&self) -> bool {
        let is_dir = |v: &Option<Version>| v.is_some_and(|v| v.kind() == FileKind::Dir);
        // Whether the operation at a target changes what the name leads to.
        let mut targets: Map<(u16, &[u8]), bool> =
            Map::with_capacity_and_hasher(self.ops.len(), Default::default());
        for op in &self.ops {
            let names = match op.does {
                Does::Install(_) | Does::Exchange { .. } | Does::Remove { .. } => {
                    if is_dir(&op.base) || is_dir(&op.new) {
                        return false;
                    }
                    true
                }
                Does::MoveOut { .. }
                | Does::MoveIn { .. }
                | Does::Link { .. }
                | Does::Rebuild(_) => return false,
                in_place!() => false,
            };
            let stays = op.held().is_none() && op.before == op.target && op.after == op.target;
            if !stays || targets.insert((op.layer, &op.target), names).is_some() {
                return false;
            }
        }
        let mut last = None;
        self.ops.iter().all(|op| {
            let mut dir = crate::path::layer::split(&op.target).0;
            if last == Some((op.layer, dir)) {
                return true;
            }
            last = Some((op.layer, dir));
            while !dir.is_empty() {
                if targets.get(&(op.layer, dir)) == Some(&true) {
                    return false;
                }
                dir = crate::path::layer::split(dir).0;
            }
            true
        })
    }

    /// Where the two ends of each operation lead when the plan is done.
    pub fn ends(&self) -> Vec<Ends> {
        let mut places = Places::default();
        let mut left = Vec::with_capacity(self.ops.len());
        for op in &self.ops {
            let target = places.entry(&self.object_path(op));
            let slot = (!op.slot().is_empty()).then(|| places.entry(&self.slot_path(op)));
            self.carry_out(op, &mut places);
            let object = places.object(&target);
            left.push((target, object, slot.as_ref().and_then(|slot| places.object(slot)), slot));
        }
        // What an operation left at an entry may have been moved on by a later one.
        let now = |entry: &[u8], object: Option<Vec<u8>>| match object {
            Some(object) if places.object(entry).as_ref() != Some(&object) => places.now(&object),
            _ => places.now_of_entry(entry),
        };
        left.into_iter()
            .map(|(target, object, kept, slot)| Ends {
                target: now(&target, object),
                is_taken: places.object(&target).is_some(),
                slot: slot.map(|slot| now(&slot, kept)),
            })
            .collect()
    }

    /// An absolute path as one of a layer's tree; `None` if it is not in there, or in the layer's store.
    pub fn in_tree(&self, layer: u16, path: &[u8]) -> Option<LayerPath> {
        let layer = self.layers.get(usize::from(layer))?;
        let store = layer.store.as_os_str().as_bytes();
        let below = below(path, layer.target.as_os_str().as_bytes())?;
        (!crate::path::is_at_or_below(path, store)).then(|| below.into())
    }

    /// An absolute path as one of a layer's store; `None` if it is not in there.
    pub fn in_store(&self, layer: u16, path: &[u8]) -> Option<StorePath> {
        let layer = self.layers.get(usize::from(layer))?;
        below(path, layer.store.as_os_str().as_bytes()).map(StorePath::from)
    }

    /// Absolute path of an operation's target.
    pub fn target_path(&self, op: &Op) -> Vec<u8> {
        self.path_of(op.layer, &op.target)
    }

    /// Absolute path at which an operation finds its object: the target, or a place in the store.
    fn object_path(&self, op: &Op) -> Vec<u8> {
        match (op.held(), self.layers.get(usize::from(op.layer))) {
            (Some(held), Some(layer)) => {
                crate::path::join(layer.store.as_os_str().as_bytes(), &held.place)
            }
            _ => self.target_path(op),
        }
    }

    /// Absolute path at which an operation's object is when the plan is done.
    pub fn after_path(&self, op: &Op) -> Vec<u8> {
        self.path_of(op.layer, &op.after)
    }

    /// Absolute path at which an operation's object is before the plan begins.
    pub fn before_path(&self, op: &Op) -> Vec<u8> {
        self.path_of(op.layer, &op.before)
    }

    /// Does to names what an operation does to the tree and the stores.
    pub fn carry_out(&self, op: &Op, places: &mut Places) {
        let (target, slot) = (self.target_path(op), self.slot_path(op));
        match &op.does {
            Does::Install(_) => places.rename(&slot, &target),
            Does::Exchange { .. } => places.exchange(&slot, &target),
            Does::Remove { .. } | Does::MoveOut { .. } => places.rename(&target, &slot),
            Does::MoveIn { .. } if op.base.is_some() => places.exchange(&slot, &target),
            Does::MoveIn { .. } => places.rename(&slot, &target),
            Does::Link { other, .. } => {
                let other = self.path_of(op.layer, other);
                if op.base.is_some() {
                    places.link(&other, &slot);
                    places.exchange(&slot, &target);
                } else {
                    places.link(&other, &target);
                }
            }
            Does::Rebuild(_) | in_place!() => {}
        }
    }

    /// The same for an operation of a plan that [leaves paths](Plan::leaves_paths): its two ends are entries.
    pub fn carry_out_at(&self, op: &Op, target: Vec<u8>, places: &mut Places) {
        match &op.does {
            Does::Install(_) => places.rename_entry(self.slot_path(op), target),
            Does::Exchange { .. } => places.exchange_entries(self.slot_path(op), target),
            Does::Remove { .. } => places.rename_entry(target, self.slot_path(op)),
            Does::MoveOut { .. }
            | Does::MoveIn { .. }
            | Does::Link { .. }
            | Does::Rebuild(_)
            | in_place!() => {}
        }
    }

    /// Where what is moved in a layer comes from, by its place when the plan is done.
    pub(crate) fn moves(&self, layer: u16) -> Moves<'_> {
        let moves = self.ops.iter().filter(|o| o.layer == layer);
        moves.filter_map(|o| Some((&o.target[..], o.moved_from()?))).collect()
    }

    /// Where what is at `path` when the plan is done is before it begins.
    pub fn stable_of(&self, layer: u16, path: &[u8]) -> LayerPath {
        self.moves(layer).mapped(path).map_or_else(|| path.into(), LayerPath::from)
    }

    /// Absolute path of a place in a layer.
    pub fn path_of(&self, layer: u16, path: &[u8]) -> Vec<u8> {
        let layer = self.layers.get(usize::from(layer));
        let top = layer.map_or(&b"/"[..], |l| l.target.as_os_str().as_bytes());
        if path.is_empty() { top.to_vec() } else { crate::path::join(top, path) }
    }

    /// Absolute path of an operation's slot.
    pub fn slot_path(&self, op: &Op) -> Vec<u8> {
        let layer = self.layers.get(usize::from(op.layer));
        crate::path::join(layer.map_or(&b"/"[..], |l| l.store.as_os_str().as_bytes()), op.slot())
    }

    /// Number of changed paths that people are shown.
    pub fn shown(&self) -> u64 {
        self.ops.iter().filter(|o| o.shown).map(|o| 1 + o.below).sum()
    }

    /// Whether the plan is sound: indices in range, no path that leads out of layer or store.
    /// Everything read from disk goes through this before it is acted on.
    pub fn is_sound(&self) -> bool {
        let inside = |path: &[u8]| {
            !path.starts_with(b"/")
                && !path.contains(&0)
                && (path.is_empty()
                    || path.split(|&b| b == b'/').all(|c| !matches!(c, b"" | b"." | b"..")))
        };
        let in_tx = |path: &[u8]| path.is_empty() || (inside(path) && path.starts_with(b"tx/"));
        self.layers.iter().all(|l| l.target.is_absolute() && l.store.is_absolute())
            && self.ops.is_sorted_by_key(|o| !o.is_rebuild())
            && self.ops.iter().all(|o| {
                usize::from(o.layer) < self.layers.len()
                    && o.is_complete()
                    && inside(&o.target)
                    && inside(&o.before)
                    && inside(&o.after)
                    && in_tx(o.slot())
                    && o.write().is_none_or(|write| in_tx(&write.undo_copy))
                    && o.other().or(o.moved_from()).is_none_or(inside)
                    && o.held().is_none_or(|held| {
                        !held.place.is_empty() && in_tx(&held.place) && o.base.is_some()
                    })
                    && match &o.does {
                        Does::Install(staged) | Does::Exchange { staged, .. } => {
                            staged.strip.iter().all(|s| inside(&s.below))
                        }
                        Does::Rebuild(rebuilt) => {
                            let is_dir = |v: Version| v.kind() == FileKind::Dir;
                            o.base.is_some_and(is_dir)
                                && o.new.is_some_and(is_dir)
                                && !o.target.is_empty()
                                && rebuilt.times.iter().all(|(at, _)| inside(at))
                        }
                        Does::Remove { .. }
                        | Does::MoveOut { .. }
                        | Does::MoveIn { .. }
                        | Does::Link { .. }
                        | in_place!() => true,
                    }
            })
    }
}

/// How many changes are surely carried out in the phase of what comes in (1), or in that of what goes (2).
fn in_phase(changes: &[Change], phase: usize) -> usize {
    let is_in = |change: &&Change| match change.action {
        Action::Install | Action::Replace | Action::Rewrite => phase == 1,
        Action::Remove => phase == 2,
        _ => false,
    };
    changes.iter().filter(is_in).count()
}

/// Operations by layer and target. An operation is some hundred bytes long: each is moved once, when its place is known.
fn by_target(ops: Vec<Op>) -> Vec<Op> {
    let keys = ops.iter().enumerate().map(|(index, op)| (op.layer, &op.target[..], index));
    let mut order: Vec<(u16, &[u8], usize)> = keys.collect();
    if order.is_sorted() {
        return ops;
    }
    // The index keeps those with the same target in their order.
    order.sort_unstable();
    let order: Vec<usize> = order.into_iter().map(|(_, _, index)| index).collect();
    let mut ops: Vec<Option<Op>> = ops.into_iter().map(Some).collect();
    order.into_iter().filter_map(|index| ops.get_mut(index)?.take()).collect()
}

/// `path` relative to `top`, if it is at or below it; the root's own entry is the root.
fn below<'a>(path: &'a [u8], top: &[u8]) -> Option<&'a [u8]> {
    if top == b"/" {
        return Some(path.get(1..).filter(|rest| *rest != b".").unwrap_or_default());
    }
    match path.strip_prefix(top)? {
        b"" => Some(b""),
        rest => rest.strip_prefix(b"/"),
    }
}

/// First bytes of a stored plan.
pub(crate) const FILE_MAGIC: &[u8; 8] = b"TXOSPLAN";
/// Format of a stored plan. Format 1 knew no Patch, format 2 no object that is changed in the store;
/// both are read as well.
pub(crate) const FILE_VERSION: u32 = 3;
/// The first format that says which objects are changed in the store.
const FILE_VERSION_HELD: u32 = 3;

fn path_of(home: &Home, id: TxId) -> PathBuf {
    home.tx_dir(id).join("plan")
}

/// Stores the plan of a finished commit, for `diff` and `revert`.
pub(crate) fn save(home: &Home, plan: &Plan) -> Result<()> {
    save_at(&path_of(home, plan.id), plan)
}

/// Loads the plan of a finished commit; `None` if it changed nothing.
pub(crate) fn load(home: &Home, id: TxId) -> Result<Option<Plan>> {
    let path = path_of(home, id);
    let bytes = match crate::sys::read_record(&path) {
        Ok(b) => b,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).at("reading", &path),
    };
    parse(&bytes, id, &path).map(Some)
}

/// Stores what will be left of a plan when the transaction `by` has undone a part of it, in the directory of that.
pub(crate) fn save_rest(home: &Home, by: TxId, rest: &Plan) -> Result<()> {
    save_at(&home.tx_dir(by).join(REST), rest)
}

fn save_at(path: &std::path::Path, plan: &Plan) -> Result<()> {
    let body =
        plan.to_bytes().map_err(|e| Error::io("encoding", path, std::io::Error::other(e)))?;
    let bytes = codec::seal(FILE_MAGIC, FILE_VERSION, &body);
    crate::store::replace_file(path, &bytes, plan.durable)
}

/// Loads what [`save_rest`] stored; `None` if it has become the plan of its transaction.
pub(crate) fn load_rest(home: &Home, by: TxId, of: TxId) -> Result<Option<Plan>> {
    let path = home.tx_dir(by).join(REST);
    match crate::sys::read_record(&path) {
        Ok(bytes) => parse(&bytes, of, &path).map(Some),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).at("reading", &path),
    }
}

/// Removes what [`save_rest`] stored. What can't be removed does no harm.
pub(crate) fn forget_rest(home: &Home, by: TxId) {
    let path = home.tx_dir(by).join(REST);
    let _ = crate::sys::step("store unlink", || std::fs::remove_file(&path));
}

/// The name of what is left of a plan, in the directory of the transaction that undoes a part of it.
const REST: &str = "rest";

/// Reads what [`save`] wrote for this transaction; nothing is guessed at.
pub(crate) fn parse(bytes: &[u8], id: TxId, path: &std::path::Path) -> Result<Plan> {
    let bad = |problem: &str| Error::Format {
        path: path.to_owned(),
        problem: problem.to_owned(),
        advice: "The transaction can't be shown or reverted; what it published is not affected.",
    };
    let known = 1..=FILE_VERSION;
    let (version, body) =
        codec::open(bytes, FILE_MAGIC, "the plan of a commit", known).map_err(|p| bad(&p))?;
    match Plan::from_bytes(body, version) {
        Some(mut plan)
            if plan.is_sound() && plan.id == id && !plan.ops.iter().any(Op::is_rebuild) =>
        {
            plan.renumber();
            Ok(plan)
        }
        _ => Err(bad("is damaged")),
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
