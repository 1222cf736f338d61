//! The plan of a commit: an ordered list of reversible operations.
//!
//! # Invariants
//!
//! - Every operation can be undone from what it leaves behind, and it can be seen from the
//!   identities at its two ends whether it was done.
//! - Slots (places in a store) are named relative to the store, targets relative to the layer; no
//!   plan holds a path that leads out of either.
//! - Order: directories moved out, deepest first; directories moved in, parents first; single
//!   objects; new directories; removals; then what is done in place; directory times last. New
//!   things appear before removals, so that whoever sees a removal sees the rest.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::changeset::{Action, AttrChange, Change, ChangeSet, Strip};
use crate::error::{Context, Error, Result};
use crate::id::TxId;
use crate::object::FileKind;
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
    /// For a patch: the pages it writes to. Not stored: for the claim.
    #[serde(skip)]
    pub pages: Vec<u64>,
    /// The version of the published object after a revert of it was undone, which moved its ctime.
    pub settled: Option<Version>,
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

impl Plan {
    /// A plan without operations.
    pub fn empty(tx: &Transaction, durable: bool) -> Self {
        Plan {
            id: tx.id(),
            boot: crate::store::boot_id(),
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

        if self.boot == crate::store::boot_id() {
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
        let mut by_phase: Vec<Vec<Op>> = vec![Vec::new(); 7];
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
                dirs: c.dirs.clone(),
                pages: c.pages.clone(),
            };
            let is_dir = c.new.is_some_and(|v| v.kind() == FileKind::Dir);
            let staged = slot_of(c, &c.staged);
            match &c.action {
                Action::Link { to } => {
                    let mut link = op(Kind::Link, &c.path, staged);
                    link.from = Some(to.clone());
                    by_phase[5].push(link);
                }
                Action::Install if c.base.is_none() => {
                    by_phase[if is_dir { 3 } else { 2 }].push(op(Kind::Install, &c.path, staged));
                }
                Action::Install | Action::Replace => {
                    by_phase[if is_dir { 3 } else { 2 }].push(op(Kind::Exchange, &c.path, staged));
                }
                Action::Remove => by_phase[4].push(op(Kind::Remove, &c.path, staged)),
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
                    by_phase[5].push(data);
                }
                Action::Attrs(attrs) => {
                    let time = is_dir && attrs.is_only_mtime();
                    let mut op =
                        op(if time { Kind::DirTime } else { Kind::Attrs }, &c.path, Vec::new());
                    op.attrs = Some(attrs.clone());
                    by_phase[if is_dir { 6 } else { 5 }].push(op);
                }
            }
        }
        let depth = |path: &[u8]| path.iter().filter(|&&b| b == b'/').count();
        for (phase, mut ops) in by_phase.into_iter().enumerate() {
            match phase {
                // Deepest first; and directory times last of all, deepest first.
                // A link follows what is done to the inode it links to.
                5 => ops.sort_by_key(|o| o.kind == Kind::Link),
                0 | 4 | 6 => ops.sort_by_key(|o| std::cmp::Reverse(depth(&o.target))),
                _ => ops.sort_by(|a, b| (a.layer, &a.target).cmp(&(b.layer, &b.target))),
            }
            plan.ops.extend(ops);
        }
        plan.order_moves_and_new_dirs();
        plan
    }

    /// A directory moved to below a new directory comes after it; everything else keeps its order.
    fn order_moves_and_new_dirs(&mut self) {
        let new_dirs: HashMap<(u16, Vec<u8>), ()> = self
            .ops
            .iter()
            .filter(|o| matches!(o.kind, Kind::Install | Kind::Exchange))
            .filter(|o| o.new.is_some_and(|v| v.kind() == FileKind::Dir))
            .map(|o| ((o.layer, o.target.clone()), ()))
            .collect();
        if new_dirs.is_empty() {
            return;
        }
        let below_new = |o: &Op| {
            let mut rest = crate::changeset::split(&o.target).0;
            loop {
                if new_dirs.contains_key(&(o.layer, rest.to_vec())) {
                    return true;
                }
                if rest.is_empty() {
                    return false;
                }
                rest = crate::changeset::split(rest).0;
            }
        };
        // Everything that works inside a moved directory inside a new one is later than both by
        // phase, except single objects (phase 2) and the moves themselves (phase 1).
        let early = |o: &Op| {
            matches!(o.kind, Kind::MoveIn | Kind::Install | Kind::Exchange) && below_new(o)
        };
        let (late, mut rest): (Vec<Op>, Vec<Op>) =
            std::mem::take(&mut self.ops).into_iter().partition(early);
        let at = rest
            .iter()
            .rposition(|o| {
                matches!(o.kind, Kind::Install | Kind::Exchange | Kind::MoveIn | Kind::MoveOut)
            })
            .map_or(0, |i| i + 1);
        // New directories that lie inside moved ones inside new ones keep their depth order.
        let (moves, others): (Vec<Op>, Vec<Op>) =
            late.into_iter().partition(|o| o.kind == Kind::MoveIn);
        rest.splice(at..at, moves.into_iter().chain(others));
        self.ops = rest;
    }

    /// Absolute path of an operation's target.
    pub fn target_path(&self, op: &Op) -> Vec<u8> {
        self.path_of(op.layer, &op.target)
    }

    /// Absolute path at which an operation's object is when the plan is done.
    pub fn after_path(&self, op: &Op) -> Vec<u8> {
        self.path_of(op.layer, &op.after)
    }

    /// Absolute path at which an operation's object is before the plan begins.
    pub fn before_path(&self, op: &Op) -> Vec<u8> {
        self.path_of(op.layer, &op.before)
    }

    /// Where what is at `path` when the plan is done is before it begins.
    pub fn stable_of(&self, layer: u16, path: &[u8]) -> Vec<u8> {
        let moves = self.ops.iter().filter(|o| o.layer == layer && o.kind == Kind::MoveIn);
        let moves = moves.filter_map(|o| Some((&o.target[..], o.from.as_deref()?)));
        crate::changeset::mapped(moves, path).unwrap_or_else(|| path.to_vec())
    }

    /// Absolute path of a place in a layer.
    pub fn path_of(&self, layer: u16, path: &[u8]) -> Vec<u8> {
        let layer = self.layers.get(usize::from(layer));
        let top = layer.map_or(&b"/"[..], |l| l.target.as_os_str().as_bytes());
        if path.is_empty() { top.to_vec() } else { crate::readset::join(top, path) }
    }

    /// Absolute path of an operation's slot.
    pub fn slot_path(&self, op: &Op) -> Vec<u8> {
        let layer = self.layers.get(usize::from(op.layer));
        crate::readset::join(layer.map_or(&b"/"[..], |l| l.store.as_os_str().as_bytes()), &op.slot)
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

/// First bytes of a stored plan.
const FILE_MAGIC: &[u8; 8] = b"TXOSPLAN";
/// Format of a stored plan. Format 1 knew no Patch, and is read as well.
pub(crate) const FILE_VERSION: u32 = 2;

fn path_of(home: &Home, id: TxId) -> PathBuf {
    home.tx_dir(id).join("plan")
}

/// Stores the plan of a finished commit, for `diff` and `revert`.
pub(crate) fn save(home: &Home, plan: &Plan) -> Result<()> {
    let path = path_of(home, plan.id);
    let body = postcard::to_stdvec(plan)
        .map_err(|e| Error::io("encoding", &path, std::io::Error::other(e)))?;
    let mut bytes = Vec::with_capacity(body.len() + 16);
    bytes.extend_from_slice(FILE_MAGIC);
    bytes.extend_from_slice(&FILE_VERSION.to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    crate::store::replace_file(&path, &bytes, plan.durable)
}

/// Loads the plan of a finished commit; `None` if it changed nothing.
pub(crate) fn load(home: &Home, id: TxId) -> Result<Option<Plan>> {
    let path = path_of(home, id);
    let bytes = match crate::sys::look("read", || std::fs::read(&path)) {
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
    let word =
        |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    if bytes.get(..8) != Some(FILE_MAGIC) {
        return Err(bad("is not the plan of a commit"));
    }
    if !word(8).is_some_and(|v| (1..=FILE_VERSION).contains(&v)) {
        return Err(bad("is of a format that this txos does not know"));
    }
    let body = bytes.get(16..).unwrap_or_default();
    if word(12) != Some(crc32fast::hash(body)) {
        return Err(bad("is damaged (checksum)"));
    }
    match postcard::from_bytes::<Plan>(body) {
        Ok(mut plan) if plan.is_sound() && plan.id == id => {
            plan.renumber();
            Ok(plan)
        }
        _ => Err(bad("is damaged")),
    }
}
