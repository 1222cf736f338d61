//! What a commit retains gives nobody rights any more.
//!
//! What was removed or replaced lies in the store as the inode that it was. Whoever has held a descriptor of
//! it since before could go on executing a set-user-id program, or make files in a removed directory, although
//! natively the one would have been made harmless before it was removed, and the other would be dead. So
//! when a publish is final, set-id bits and capabilities are taken from retained files, and retained
//! directories in which somebody else could make something become the store's owner's alone. What they
//! had is kept in the transaction's record (`rights`), and a revert gives it back.
//!
//! # Invariants
//!
//! - The record is there before anything is taken, and what it says is not overwritten by a second try, which finds
//!   some of it taken.
//! - A file that has another name in the tree keeps what it has: it is that name's as well.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::inplace::CAPABILITY;
use super::roots::Roots;
use crate::changeset::{AttrChange, XattrChange, walk};
use crate::codec;
use crate::error::{Context, Error, Result};
use crate::id::TxId;
use crate::object::{FileId, FileKind};
use crate::path;
use crate::path::layer::{child, split};
use crate::plan::{Does, Op, Plan, in_place};
use crate::store::Home;
use crate::sys;
use crate::version::{Version, stat_at};

/// First bytes of a stored record.
const MAGIC: &[u8; 8] = b"TXOSRGHT";
/// Format of a stored record.
const FORMAT: u32 = 1;
/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

/// What one retained object may no longer do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Right {
    /// Number of the layer.
    layer: u16,
    /// The slot of the operation that retained it.
    slot: Vec<u8>,
    /// Where it is below that; empty for what is in the slot itself.
    below: Vec<u8>,
    /// The mode that it had.
    mode: u32,
    /// Its owner and group.
    owner: (u32, u32),
    /// Its file capabilities.
    capability: Option<Vec<u8>>,
}

/// An object that has rights, as it was found.
struct Found {
    right: Right,
    id: FileId,
    links: u64,
    is_dir: bool,
}

/// Takes rights from all that a final publish has retained. Where that fails the object keeps them: the
/// publish stands.
pub(super) fn retire(home: &Home, plan: &Plan, roots: &Roots) {
    let mut found = Vec::new();
    for op in plan.ops.iter().filter(|op| retains(op)) {
        if let Err(error) = look_through(plan, roots, op, &mut found) {
            tracing::warn!(%error, "what a retained version may do was not looked at");
        }
    }
    let mut names: HashMap<FileId, u64> = HashMap::new();
    for one in &found {
        *names.entry(one.id).or_default() += 1;
    }
    // Another name of it is in use.
    found.retain(|one| one.is_dir || names.get(&one.id).is_some_and(|&n| n >= one.links));
    if found.is_empty() {
        return;
    }
    let mut rights = match load(home, plan.id) {
        Ok(rights) => rights,
        Err(error) => return tracing::warn!(%error, "retained versions keep what they may do"),
    };
    for one in &found {
        let same = |r: &Right| {
            (r.layer, &r.slot, &r.below) == (one.right.layer, &one.right.slot, &one.right.below)
        };
        if !rights.iter().any(same) {
            rights.push(one.right.clone());
        }
    }
    if let Err(error) = save(home, plan, &rights) {
        return tracing::warn!(%error, "retained versions keep what they may do");
    }
    for one in &found {
        if let Err(error) = take(roots, one) {
            let slot = path::from_bytes(&child(&one.right.slot, &one.right.below));
            tracing::debug!(%error, slot = %slot.display(), "keeps what it may do");
        }
    }
}

/// Whether what an operation took out of the tree stays in its slot.
fn retains(op: &Op) -> bool {
    let is_dir = op.base.is_some_and(|v| v.kind() == FileKind::Dir);
    match op.does {
        Does::Remove { .. } => true,
        // What is not shown is the shell of a directory that was moved.
        Does::Exchange { .. } => op.shown || !is_dir,
        Does::MoveIn { .. } | Does::Link { .. } => op.base.is_some() && !is_dir,
        Does::Install(_) | Does::MoveOut { .. } | Does::Rebuild(_) | in_place!() => false,
    }
}

/// Finds what has rights in a slot.
fn look_through(plan: &Plan, roots: &Roots, op: &Op, found: &mut Vec<Found>) -> Result<()> {
    // What a file was before the publish is known; others need not be looked at.
    let plain = |v: &Version| v.kind() == FileKind::File && v.mode & (SET_ID | 0o111) == 0;
    if op.base.is_some_and(|v| plain(&v) || !matches!(v.kind(), FileKind::File | FileKind::Dir)) {
        return Ok(());
    }
    let at = |e: Errno| super::at_target(plan, op, "looking at the old", e);
    let end = match roots.slot(op) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        end => end.map_err(at)?,
    };
    let Some(version) = end.look().map_err(at)? else { return Ok(()) };
    let mut one = |below: Vec<u8>, version: &Version| -> Result<()> {
        let capability = match version.kind() {
            FileKind::File if version.mode & 0o111 != 0 => {
                let slot = plan.slot_path(op);
                let path = if below.is_empty() { slot } else { child(&slot, &below) };
                sys::xattr(&path, CAPABILITY).map_err(at)?
            }
            _ => None,
        };
        let has = match version.kind() {
            FileKind::File => version.mode & SET_ID != 0 || capability.is_some(),
            FileKind::Dir => {
                version.uid != rustix::process::geteuid().as_raw() || version.mode & 0o022 != 0
            }
            _ => false,
        };
        if has {
            found.push(Found {
                right: Right {
                    layer: op.layer,
                    slot: op.slot().to_vec(),
                    below,
                    mode: version.mode & 0o7777,
                    owner: (version.uid, version.gid),
                    capability,
                },
                id: version.id,
                links: version.nlink.into(),
                is_dir: version.kind() == FileKind::Dir,
            });
        }
        Ok(())
    };
    if version.kind() == FileKind::Dir {
        // Inner ones first: who has taken a directory's rights can't be kept from what is in it.
        let inside = walk(&path::from_bytes(&plan.slot_path(op)), &[])?;
        for (below, version) in inside.iter().rev() {
            one(below.clone(), version)?;
        }
    }
    one(Vec::new(), &version)
}

/// Takes an object's rights, by what is opened: if it is what was found.
fn take(roots: &Roots, one: &Found) -> std::result::Result<(), Errno> {
    let right = &one.right;
    let (dir, name) = split(&right.below);
    let top = roots.slot_at(right.layer, &right.slot)?;
    let fd = if right.below.is_empty() {
        top.open_path()?
    } else {
        let dir = sys::open_dir_beneath(top.open_path()?.as_fd(), dir)?;
        sys::open_at(dir.as_fd(), name, OFlags::PATH | OFlags::NOFOLLOW)?
    };
    let now = stat_at(fd.as_fd(), b"", AtFlags::EMPTY_PATH)?;
    if now.id != one.id {
        return Ok(());
    }
    if one.is_dir {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        if user.is_root() {
            sys::chown(fd.as_fd(), user.as_raw(), group.as_raw())?;
        }
        return sys::chmod(fd.as_fd(), 0o700);
    }
    if right.capability.is_some() {
        match sys::remove_xattr_of(fd.as_fd(), CAPABILITY) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(e) => return Err(e),
        }
    }
    sys::chmod(fd.as_fd(), now.mode & 0o7777 & !SET_ID)
}

/// The operations by which a revert gives back what the commit `done` took: they come after everything
/// that `ops`, the other operations of the revert, put in place.
pub(super) fn give_back(
    home: &Home,
    done: &Plan,
    roots: &Roots,
    ops: &mut [Op],
) -> Result<Vec<Op>> {
    let mut back = Vec::new();
    // The shell of a directory that is moved in goes out again before anybody needs its rights.
    let takes =
        |op: &&Op| op.is_exchange() || op.takes_away() || matches!(op.does, Does::MoveIn { .. });
    let taken: HashSet<FileId> =
        ops.iter().filter(takes).filter_map(|op| op.base.map(|v| v.id)).collect();
    let puts =
        |op: &Op| matches!(op.does, Does::Install(_) | Does::Exchange { .. } | Does::MoveIn { .. });
    for right in load(home, done.id)? {
        let slot = ops
            .iter()
            .position(|op| puts(op) && (op.layer, op.slot()) == (right.layer, &right.slot[..]));
        let Some(slot) = slot else { continue };
        // From the slot down to the object: what goes out takes along what is below.
        let look = || -> std::result::Result<Option<(Version, bool)>, Errno> {
            let top = roots.slot_at(right.layer, &right.slot)?;
            let Some(mut found) = top.look()? else { return Ok(None) };
            let mut is_taken = taken.contains(&found.id);
            for end in
                (1..=right.below.len()).filter(|&n| matches!(right.below.get(n), None | Some(b'/')))
            {
                let (dir, name) = split(right.below.get(..end).unwrap_or_default());
                let dir = match sys::open_dir_beneath(top.open_path()?.as_fd(), dir) {
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                    other => other?,
                };
                found = match stat_at(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => return Ok(None),
                    other => other?,
                };
                is_taken |= taken.contains(&found.id);
            }
            Ok(Some((found, is_taken)))
        };
        let at = |e| Error::io("looking at the retained", path::from_bytes(&right.slot), e);
        let Some((base, is_taken)) = look().map_err(at)? else { continue };
        // What lay in a shell that goes has an operation of its own.
        let own = ops.iter().position(|op| {
            puts(op) && op.layer == right.layer && op.new.is_some_and(|new| new.id == base.id)
        });
        let (index, below) = match own {
            Some(own) => (own, &[][..]),
            None if is_taken => continue,
            None => (slot, &right.below[..]),
        };
        let Some(puts) = ops.get_mut(index) else { continue };
        let mut change = AttrChange::default();
        if base.mode & 0o7777 != right.mode {
            change.mode = Some((base.mode & 0o7777, right.mode));
        }
        if (base.uid, base.gid) != right.owner {
            change.owner = Some(((base.uid, base.gid), right.owner));
        }
        if let Some(value) = &right.capability {
            change.xattrs.push(XattrChange {
                name: CAPABILITY.to_vec(),
                old: None,
                new: Some(value.clone()),
            });
        }
        let mut new = base;
        new.mode = new.mode & !0o7777 | right.mode;
        (new.uid, new.gid) = right.owner;
        let place = if below.is_empty() {
            puts.new = Some(new);
            puts.after.clone()
        } else {
            child(&puts.after, below).into()
        };
        if change.is_nothing() {
            continue;
        }
        back.push(Op {
            layer: puts.layer,
            target: place.clone(),
            before: place.clone(),
            after: place,
            base: Some(base),
            new: Some(new),
            shown: false,
            below: 0,
            own_version: None,
            does: Does::Attrs {
                change: Box::new(change),
                held: None,
                retained: Some(puts.slot().into()),
            },
        });
    }
    Ok(back)
}

/// Gives a copy of a retained object, and what is below it, what the object could do when it was in the tree.
/// `place`: the layer, the slot, and where below that.
pub(super) fn give_to_copy(
    home: &Home,
    id: TxId,
    place: (u16, &[u8], &[u8]),
    copy: &super::roots::EntryRef,
) -> Result<()> {
    let (layer, slot, top) = place;
    for right in load(home, id)?.iter().filter(|r| (r.layer, &r.slot[..]) == (layer, slot)) {
        let Some(below) = path::layer::below(&right.below, top) else { continue };
        let give = || -> std::result::Result<(), Errno> {
            let (dir, name) = split(below);
            let (dir, name) = match below {
                b"" => (None, &copy.name[..]),
                _ => (Some(sys::open_dir_beneath(copy.open_path()?.as_fd(), dir)?), name),
            };
            let dir = dir.as_ref().map_or_else(|| copy.dir.as_fd(), AsFd::as_fd);
            let fd = sys::open_at(dir, name, OFlags::PATH | OFlags::NOFOLLOW)?;
            sys::chown(fd.as_fd(), right.owner.0, right.owner.1)?;
            if let Some(value) = &right.capability {
                sys::set_xattr(dir, name, CAPABILITY, value)?;
            }
            sys::chmod(fd.as_fd(), right.mode)
        };
        give().map_err(|e| {
            Error::io("restoring what may be done by", path::from_bytes(&child(slot, below)), e)
        })?;
    }
    Ok(())
}

/// Says of retained objects that had rights what they had when they were in the tree.
pub(super) fn as_they_were(
    home: &Home,
    plan: &Plan,
    entries: &mut [crate::changeset::Entry],
) -> Result<()> {
    for right in load(home, plan.id)? {
        let Some(layer) = plan.layers.get(usize::from(right.layer)) else { continue };
        let slot = path::from_bytes(&child(&right.slot, &right.below));
        let place = layer.store.join(if right.below.is_empty() {
            path::from_bytes(&right.slot)
        } else {
            slot
        });
        for entry in entries.iter_mut().filter(|e| e.old_content.as_ref() == Some(&place)) {
            if let Some(old) = &mut entry.old {
                (old.mode, old.uid, old.gid) = (right.mode, right.owner.0, right.owner.1);
            }
        }
    }
    Ok(())
}

/// Whether an operation gives back what a retained object was, in a revert. It has the slot that the object came
/// from; other changes of attributes have none.
pub(super) fn gives_back(op: &Op) -> bool {
    matches!(op.does, Does::Attrs { retained: Some(_), .. })
}

fn path_of(home: &Home, id: TxId) -> std::path::PathBuf {
    home.tx_dir(id).join("rights")
}

fn save(home: &Home, plan: &Plan, rights: &[Right]) -> Result<()> {
    let path = path_of(home, plan.id);
    let body = postcard::to_stdvec(rights)
        .map_err(|e| Error::io("encoding", &path, std::io::Error::other(e)))?;
    let bytes = codec::seal(MAGIC, FORMAT, &body);
    crate::store::replace_file(&path, &bytes, plan.durable)
}

/// What was taken; nothing if there is no record.
fn load(home: &Home, id: TxId) -> Result<Vec<Right>> {
    let path = path_of(home, id);
    let bytes = match sys::read_record(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).at("reading", &path),
    };
    let bad = |problem: &str| Error::Format {
        path: path.clone(),
        problem: problem.to_owned(),
        advice: "The transaction can't be reverted; what it published is not affected.",
    };
    let (_, body) = codec::open(&bytes, MAGIC, "a record of retained rights", FORMAT..=FORMAT)
        .map_err(|problem| bad(&problem))?;
    let rights: Vec<Right> = postcard::from_bytes(body).map_err(|_| bad("is damaged"))?;
    let inside = |path: &[u8]| {
        path.is_empty() || path.split(|&b| b == b'/').all(|c| !matches!(c, b"" | b"." | b".."))
    };
    let is_sound = |r: &Right| inside(&r.below) && inside(&r.slot) && !r.below.contains(&0);
    if rights.iter().all(is_sound) { Ok(rights) } else { Err(bad("is damaged")) }
}
