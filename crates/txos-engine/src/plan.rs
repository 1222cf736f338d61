//! The plan of a commit: an ordered list of reversible operations.
//!
//! # Invariants
//!
//! - Every operation can be undone from what it leaves behind, and it can be seen from the
//!   identities at its two ends whether it was done.
//! - Slots (places in a store) are named relative to the store, targets relative to the layer; no
//!   plan holds a path that leads out of either.
//! - Order: what is moved goes out, deepest first; what is moved and what is new comes in, parents first;
//!   removals; then what is done in place; links; what is done in place to objects that the plan has
//!   taken away by then ([`Held`]); directory times last. New things appear before removals, so that
//!   whoever sees a removal sees the rest.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::changeset::{Action, AttrChange, Change, ChangeSet, Strip};
use crate::codec;
use crate::error::{Context, Error, Result};
use crate::id::TxId;
use crate::object::FileKind;
use crate::places::Places;
use crate::store::{Home, LayerMeta, Transaction};
use crate::version::{Stamp, Version};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Slot → target, where nothing is.
    Install,
    /// Slot ↔ target.
    Exchange,
    /// Target → slot.
    Remove,
    /// Target → slot, to be moved in elsewhere.
    MoveOut,
    /// Slot → target, or slot ↔ target if something is there.
    MoveIn,
    /// Another name for the inode at `from`, where nothing is; or slot ↔ target, if something is,
    /// after making slot that other name.
    Link,
    /// Content of slot → the inode at target; the old content is in `saved`.
    Data,
    /// Attributes of the inode at target.
    Attrs,
    /// mtime of the directory at target.
    DirTime,
    /// The pieces of the patch file in the slot → the inode at target; what they overwrite is in the
    /// patch file `saved`.
    Patch,
}

/// Which object an exchange puts in the place of a file, and so what becomes of outsiders that have
/// the old file open for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Exchanged {
    /// A new object. It is exchanged whatever it holds and whoever writes to the old one: an outsider
    /// never keeps a descriptor or a name of what the transaction created.
    #[default]
    Fresh,
    /// A new object, and the old file had a writer when the commit was staged. That writer goes on
    /// writing to the old inode, as after any rename.
    FreshOverWriter,
    /// A changed copy of the very file: it stands for that inode, so no write to the old one may be lost.
    Copy,
}

impl Exchanged {
    /// Whether the publish gives way to a writer of the old file that is found while it publishes.
    pub fn yields_to_writers(self) -> bool {
        self != Exchanged::FreshOverWriter
    }
}

/// Where an object is that is changed in place although the plan takes away every name of it that
/// is known: it has others, which see the change. The operation that takes its name away has put
/// this very inode into the store, and there it is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    /// Where, relative to the layer's store, while the operation is carried out.
    pub place: Vec<u8>,
    /// It is there before the plan begins as well, instead of at the operation's `before`.
    pub before: bool,
    /// It is there when the plan is done as well, instead of at the operation's `after`.
    pub after: bool,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Op {
    /// Number of the layer.
    pub layer: u16,
    /// What it does.
    pub kind: Kind,
    /// Where, relative to the layer's root; the root itself is empty.
    pub target: Vec<u8>,
    /// Where the object at the target is before the plan begins: differs below a moved directory.
    pub before: Vec<u8>,
    /// Where it is when the plan is done: differs in a revert, which undoes a move last.
    pub after: Vec<u8>,
    /// The other end, relative to the layer's store.
    pub slot: Vec<u8>,
    /// For Data and Patch: where the old content was saved, relative to the store.
    pub saved: Vec<u8>,
    /// For MoveIn: where the object was; for Link: its other name; for a finished Remove or
    /// Exchange of a file with several links: another of its names. Relative to the layer.
    pub from: Option<Vec<u8>>,
    /// What is at the target before.
    pub base: Option<Version>,
    /// What will be there: the staged object; for Attrs the version wanted, for people.
    pub new: Option<Version>,
    /// Attributes of overlayfs to take off the staged object.
    pub strip: Vec<Strip>,
    /// Attributes to change.
    pub attrs: Option<Box<AttrChange>>,
    /// Whether people are shown it.
    pub shown: bool,
    /// Number of objects below it that come or go with it.
    pub below: u64,
    /// For a new directory: every directory below it, relative to it. Not stored: for the gate.
    #[serde(skip)]
    pub dirs: Vec<Vec<u8>>,
    /// For a patch: the pages it writes to. Not stored: only acquiring needs it.
    #[serde(skip)]
    pub pages: Vec<u64>,
    /// For an exchange of files. Not stored: for staging and the gate.
    #[serde(skip)]
    pub exchanged: Exchanged,
    /// The version of the published object after a revert of it was undone, which moved its ctime.
    pub settled: Option<Version>,
    /// For what is done in place: where the object is, if it is not at `target`. Written behind the
    /// operations ([`Plan::held`]): older formats have none.
    #[serde(skip)]
    pub held: Option<Held>,
}

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
        let held = |(index, op): (usize, &Op)| Some((index as u64, op.held.clone()?));
        self.ops.iter().enumerate().filter_map(held).collect()
    }

    /// Gives the operations back what [`Plan::held`] said. `false`: it is of other operations.
    #[must_use]
    pub fn set_held(&mut self, held: Vec<(u64, Held)>) -> bool {
        held.into_iter().all(|(index, held)| {
            let op = usize::try_from(index).ok().and_then(|index| self.ops.get_mut(index));
            op.is_some_and(|op| op.held.replace(held).is_none())
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
                let versions = [&mut op.base, &mut op.new, &mut op.settled];
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
            slot
        };
        let mut last_slot = changes.last_slot;
        let mut by_phase: Vec<Vec<Op>> = vec![Vec::new(); 5];
        for c in &changes.changes {
            let op = |kind, target: &[u8], slot: Vec<u8>| Op {
                layer: u16::try_from(c.layer).unwrap_or(u16::MAX),
                kind,
                target: target.to_vec(),
                after: target.to_vec(),
                before: if matches!(kind, Kind::MoveOut) { target } else { &c.stable_path }
                    .to_vec(),
                slot,
                saved: Vec::new(),
                from: None,
                base: c.base,
                new: c.new,
                strip: c.strip.clone(),
                attrs: None,
                shown: c.shown,
                below: c.below,
                settled: None,
                held: c.held.as_ref().map(|place| Held {
                    place: slot_of(c, place),
                    before: false,
                    after: true,
                }),
                dirs: c.dirs.clone(),
                pages: c.pages.clone(),
                exchanged: match c.action {
                    Action::Rewrite => Exchanged::Copy,
                    _ => Exchanged::Fresh,
                },
            };
            let is_dir = c.new.is_some_and(|v| v.kind() == FileKind::Dir);
            let staged = slot_of(c, &c.staged);
            match &c.action {
                Action::Link { to } => {
                    let mut link = op(Kind::Link, &c.path, staged);
                    link.from = Some(to.clone());
                    by_phase[3].push(link);
                }
                Action::Install | Action::Rewrite if c.base.is_none() => {
                    by_phase[1].push(op(Kind::Install, &c.path, staged));
                }
                Action::Install | Action::Replace | Action::Rewrite => {
                    by_phase[1].push(op(Kind::Exchange, &c.path, staged));
                }
                Action::Remove => by_phase[2].push(op(Kind::Remove, &c.path, staged)),
                Action::Move { from, source } => {
                    let mut out = op(Kind::MoveOut, from, staged.clone());
                    (out.base, out.new, out.shown) = (Some(*source), None, false);
                    by_phase[0].push(out);
                    let mut into = op(Kind::MoveIn, &c.path, staged);
                    (into.new, into.from) = (Some(*source), Some(from.clone()));
                    by_phase[1].push(into);
                }
                Action::Data(attrs) | Action::Patch(attrs) => {
                    last_slot += 1;
                    let patch = matches!(c.action, Action::Patch(_));
                    let kind = if patch { Kind::Patch } else { Kind::Data };
                    let mut data = op(kind, &c.path, staged);
                    data.saved = slot_of(c, format!("old/{last_slot}").as_bytes());
                    data.attrs = Some(attrs.clone());
                    by_phase[3].push(data);
                }
                Action::Attrs(attrs) => {
                    let time = is_dir && attrs.is_only_mtime();
                    let mut op =
                        op(if time { Kind::DirTime } else { Kind::Attrs }, &c.path, Vec::new());
                    op.attrs = Some(attrs.clone());
                    by_phase[if is_dir { 4 } else { 3 }].push(op);
                }
            }
        }
        let depth = |path: &[u8]| path.iter().filter(|&&b| b == b'/').count();
        for (phase, mut ops) in by_phase.into_iter().enumerate() {
            match phase {
                // A link follows what is done to the inode it links to; and it may be what takes
                // another inode's name.
                3 => ops.sort_by_key(|o| match (o.kind, &o.held) {
                    (_, Some(_)) => 2,
                    (Kind::Link, None) => 1,
                    _ => 0,
                }),
                // Deepest first; and directory times last of all, deepest first.
                0 | 2 | 4 => ops.sort_by_key(|o| std::cmp::Reverse(depth(&o.target))),
                // Parents first: what comes, comes to a directory that is in place, new or moved. What
                // was changed inside a directory that is moved into a new one lies in that move's slot.
                _ => ops.sort_by(|a, b| (a.layer, &a.target).cmp(&(b.layer, &b.target))),
            }
            plan.ops.extend(ops);
        }
        plan.find_places();
        plan
    }

    /// Finds where the object of each operation is before the plan begins and when it is done. What begins or
    /// ends in a store has no such place, and keeps what its operation says.
    pub fn find_places(&mut self) {
        let mut places = Places::default();
        let mut found = Vec::with_capacity(self.ops.len());
        for op in &self.ops {
            let entry = places.entry(&self.object_path(op));
            let object = places.object(&entry);
            let before = match &object {
                Some(object) if op.base.is_some() => object.clone(),
                _ => entry.clone(),
            };
            let in_place =
                matches!(op.kind, Kind::Data | Kind::Patch | Kind::Attrs | Kind::DirTime);
            found.push((before, entry, object.filter(|_| in_place)));
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

    /// Where the two ends of each operation lead when the plan is done.
    pub fn ends(&self) -> Vec<Ends> {
        let mut places = Places::default();
        let mut left = Vec::with_capacity(self.ops.len());
        for op in &self.ops {
            let target = places.entry(&self.object_path(op));
            let slot = (!op.slot.is_empty()).then(|| places.entry(&self.slot_path(op)));
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
    pub fn in_tree(&self, layer: u16, path: &[u8]) -> Option<Vec<u8>> {
        let layer = self.layers.get(usize::from(layer))?;
        let store = layer.store.as_os_str().as_bytes();
        let below = below(path, layer.target.as_os_str().as_bytes())?;
        (!crate::path::is_at_or_below(path, store)).then(|| below.to_vec())
    }

    /// An absolute path as one of a layer's store; `None` if it is not in there.
    pub fn in_store(&self, layer: u16, path: &[u8]) -> Option<Vec<u8>> {
        let layer = self.layers.get(usize::from(layer))?;
        below(path, layer.store.as_os_str().as_bytes()).map(<[u8]>::to_vec)
    }

    /// Absolute path of an operation's target.
    pub fn target_path(&self, op: &Op) -> Vec<u8> {
        self.path_of(op.layer, &op.target)
    }

    /// Absolute path at which an operation finds its object: the target, or a place in the store.
    fn object_path(&self, op: &Op) -> Vec<u8> {
        match (&op.held, self.layers.get(usize::from(op.layer))) {
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
        match op.kind {
            Kind::Install => places.rename(&slot, &target),
            Kind::Exchange => places.exchange(&slot, &target),
            Kind::Remove | Kind::MoveOut => places.rename(&target, &slot),
            Kind::MoveIn if op.base.is_some() => places.exchange(&slot, &target),
            Kind::MoveIn => places.rename(&slot, &target),
            Kind::Link => {
                let from = self.path_of(op.layer, op.from.as_deref().unwrap_or_default());
                if op.base.is_some() {
                    places.link(&from, &slot);
                    places.exchange(&slot, &target);
                } else {
                    places.link(&from, &target);
                }
            }
            Kind::Data | Kind::Patch | Kind::Attrs | Kind::DirTime => {}
        }
    }

    /// Where what is at `path` when the plan is done is before it begins.
    pub fn stable_of(&self, layer: u16, path: &[u8]) -> Vec<u8> {
        let moves = self.ops.iter().filter(|o| o.layer == layer && o.kind == Kind::MoveIn);
        let moves = moves.filter_map(|o| Some((&o.target[..], o.from.as_deref()?)));
        crate::path::mapped(moves, path).unwrap_or_else(|| path.to_vec())
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
        crate::path::join(layer.map_or(&b"/"[..], |l| l.store.as_os_str().as_bytes()), &op.slot)
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
            && self.ops.iter().all(|o| {
                usize::from(o.layer) < self.layers.len()
                    && inside(&o.target)
                    && inside(&o.before)
                    && inside(&o.after)
                    && in_tx(&o.slot)
                    && in_tx(&o.saved)
                    && o.strip.iter().all(|s| inside(&s.below))
                    && o.from.as_ref().is_none_or(|f| inside(f))
                    && o.held.as_ref().is_none_or(|held| {
                        !held.place.is_empty()
                            && in_tx(&held.place)
                            && o.base.is_some()
                            && matches!(o.kind, Kind::Data | Kind::Patch | Kind::Attrs)
                    })
                    && match o.kind {
                        Kind::Install | Kind::MoveIn => o.new.is_some() && !o.slot.is_empty(),
                        Kind::Exchange => o.new.is_some() && o.base.is_some() && !o.slot.is_empty(),
                        Kind::Remove | Kind::MoveOut => o.base.is_some() && !o.slot.is_empty(),
                        Kind::Link => o.from.is_some() && o.new.is_some() && !o.slot.is_empty(),
                        Kind::Data | Kind::Patch => {
                            o.base.is_some() && !o.slot.is_empty() && !o.saved.is_empty()
                        }
                        Kind::Attrs | Kind::DirTime => o.attrs.is_some(),
                    }
            })
    }
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
    let path = path_of(home, plan.id);
    let body =
        plan.to_bytes().map_err(|e| Error::io("encoding", &path, std::io::Error::other(e)))?;
    let bytes = codec::seal(FILE_MAGIC, FILE_VERSION, &body);
    crate::store::replace_file(&path, &bytes, plan.durable)
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
        Some(mut plan) if plan.is_sound() && plan.id == id => {
            plan.renumber();
            Ok(plan)
        }
        _ => Err(bad("is damaged")),
    }
}
