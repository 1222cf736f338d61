//! Merging: a revert of a file that others have changed since, by lines.
//!
//! What the commit left is the common ancestor; what is there now and what was there before the commit are the
//! two sides. The result has the others' lines, and the old ones where only the commit had changed something. What
//! the commit left is known if it was small text ([`keep_left`] keeps a copy), or if a later transaction of
//! this store replaced it, which retains it.
//!
//! Files that belong together with others (hard links, moves) are not merged, nor is what is no text.

use std::collections::HashMap;
use std::os::fd::AsFd;

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::left::group_sizes;
use super::roots::{EntryRef, Roots, at_target};
use super::{inplace, stage};
use crate::codec;
use crate::conflict::{Conflict, ConflictKind};
use crate::error::Result;
use crate::id::TxId;
use crate::object::FileKind;
use crate::path::StorePath;
use crate::plan::{Does, Exchanged, Op, Plan, Staged};
use crate::store::Home;
use crate::sys;
use crate::version::Version;

/// Longest text that is kept, and merged.
const TEXT_MAX: u64 = 256 << 10;
/// Longest text of which a commit keeps a copy.
const LEFT_MAX: u64 = 32 << 10;
/// How much of such copies one commit keeps.
const LEFT_ALL_MAX: u64 = 4 << 20;

/// First bytes of a stored record.
const MAGIC: &[u8; 8] = b"TXOSLEFT";
/// Format of a stored record.
const FORMAT: u32 = 1;

/// Text that a commit left in the place of another.
#[derive(Debug, Serialize, Deserialize)]
struct LeftText {
    layer: u16,
    path: Vec<u8>,
    text: Vec<u8>,
}

/// A file of which the merge is clean.
#[derive(Debug)]
pub(super) struct Merged {
    /// The operation that it takes the place of.
    pub op: Op,
    now: Version,
    old: Version,
    left: Version,
    text: Vec<u8>,
}

/// Whether an operation put one regular file in the place of another, with no other name.
fn replaces_text(op: &Op) -> Option<(Version, Version)> {
    let plain = |v: Version| v.kind() == FileKind::File && v.nlink == 1 && v.size <= TEXT_MAX;
    let versions = op.base.filter(|v| plain(*v)).zip(op.new.filter(|v| plain(*v)));
    versions.filter(|_| op.shown && op.is_exchange())
}

/// Keeps copies of the small texts that a plan has put in the place of others. Without one, a merge may not be
/// possible: no error.
pub(super) fn keep_left(home: &Home, plan: &Plan, roots: &Roots) {
    let mut kept = Vec::new();
    let mut room = LEFT_ALL_MAX;
    for op in &plan.ops {
        let Some((_, new)) = replaces_text(op).filter(|(_, new)| new.size <= LEFT_MAX.min(room))
        else {
            continue;
        };
        let Ok(end) = roots.after(op) else { continue };
        if let Ok(Some(text)) = text_of(&end, |now| now.id == new.id && now.mtime == new.mtime) {
            room -= new.size;
            kept.push(LeftText { layer: op.layer, path: op.after.to_vec(), text });
        }
    }
    if kept.is_empty() {
        return;
    }
    let saved = postcard::to_stdvec(&kept).map_err(std::io::Error::other).and_then(|body| {
        let bytes = codec::seal(MAGIC, FORMAT, &body);
        crate::store::replace_file(&path_of(home, plan.id), &bytes, false)
            .map_err(std::io::Error::other)
    });
    if let Err(error) = saved {
        tracing::debug!(%error, "what the commit left is not kept: no merge");
    }
}

fn path_of(home: &Home, id: TxId) -> std::path::PathBuf {
    home.tx_dir(id).join("left")
}

fn load(home: &Home, id: TxId) -> HashMap<(u16, Vec<u8>), Vec<u8>> {
    let Ok(bytes) = sys::read_record(&path_of(home, id)) else { return HashMap::new() };
    let opened = codec::open(&bytes, MAGIC, "what a commit left", FORMAT..=FORMAT).ok();
    let list: Option<Vec<LeftText>> = opened.and_then(|(_, body)| postcard::from_bytes(body).ok());
    list.unwrap_or_default().into_iter().map(|l| ((l.layer, l.path), l.text)).collect()
}

/// The text of a file, if it is one, and stays the same while it is read.
fn text_of(
    end: &EntryRef,
    wanted: impl Fn(&Version) -> bool,
) -> std::result::Result<Option<Vec<u8>>, Errno> {
    let before = end.look()?;
    let Some(before) =
        before.filter(|v| v.kind() == FileKind::File && v.size <= TEXT_MAX && wanted(v))
    else {
        return Ok(None);
    };
    let file = end.open(OFlags::RDONLY)?;
    let mut text = vec![0; usize::try_from(before.size).unwrap_or_default()];
    let mut at = 0;
    while at < text.len() {
        match sys::read_at(&file, text.get_mut(at..).unwrap_or_default(), at as u64)? {
            0 => return Ok(None),
            n => at += n,
        }
    }
    let same = end.look()? == Some(before);
    Ok((same && !text.contains(&0)).then_some(text))
}

/// Takes those conflicts of a revert out of the list whose files can be merged, and gives what comes of it. What
/// can't be merged is said with the conflict.
pub(super) fn merge(
    home: &Home,
    done: &Plan,
    roots: &Roots,
    conflicts: &mut Vec<(usize, Conflict)>,
) -> Result<Vec<Merged>> {
    let kept = load(home, done.id);
    let sizes = group_sizes(&done.ops);
    let ends = done.ends();
    let mut merged = Vec::new();
    let mut still = Vec::new();
    for (index, mut conflict) in conflicts.drain(..) {
        let (Some(op), Some(ends)) = (done.ops.get(index), ends.get(index)) else { continue };
        match one(done, roots, (op, &ends.target), &kept, sizes.get(index).copied()) {
            Ok(Ok(file)) => merged.push(file),
            Ok(Err(why)) => {
                conflict.what = ConflictKind::NotMerged(Box::new(conflict.what), why);
                still.push((index, conflict));
            }
            Err(e) => return Err(at_target(done, op, "merging", e)),
        }
    }
    *conflicts = still;
    Ok(merged)
}

/// Merges one file; else why not.
fn one(
    done: &Plan,
    roots: &Roots,
    (op, target): (&Op, &[u8]),
    kept: &HashMap<(u16, Vec<u8>), Vec<u8>>,
    group: Option<usize>,
) -> std::result::Result<std::result::Result<Merged, String>, Errno> {
    let no = |why: &str| Ok(Err(why.to_owned()));
    let Some((old, left)) = replaces_text(op) else {
        return no("only a change of one small file can be merged");
    };
    if group != Some(1) {
        return no("it belongs together with others");
    }
    let end = match roots.at(done, op.layer, target) {
        Err(Errno::NOENT | Errno::NOTDIR) => return no("it is gone"),
        end => end?,
    };
    let Some(now) = end.look()?.filter(|now| now.kind() == FileKind::File && now.nlink == 1) else {
        return no("it is no longer one file of one name");
    };
    let Some(base) = kept.get(&(op.layer, op.after.to_vec())) else {
        return no("what the commit left there is not kept: it was large, or no text");
    };
    let (Some(ours), Some(theirs)) =
        (text_of(&end, |v| *v == now)?, text_of(&roots.slot(op)?, |_| true)?)
    else {
        return no("it is no text, or large");
    };
    Ok(match diffy::merge_bytes(base, &ours, &theirs) {
        Ok(text) => Ok(Merged { op: op.clone(), now, old, left, text }),
        Err(marked) => {
            let lines = marked.split(|&b| b == b'\n');
            let at = lines.enumerate().find(|(_, line)| line.starts_with(b"<<<<<<<"));
            let line = at.map_or(1, |(number, _)| number + 1);
            Err(format!("both changed the same lines, from line {line} on"))
        }
    })
}

/// The operation that puts a merged file in place.
pub(super) fn put(done: &Plan, roots: &Roots, file: &Merged, slot: StorePath) -> Result<Op> {
    let op = &file.op;
    let at = |e| at_target(done, op, "staging the merge of", e);
    let to = roots.slot_at(op.layer, &slot).map_err(at)?;
    let end = roots.target_at(op.layer, &op.after).map_err(at)?;
    let write = || -> std::result::Result<Option<Version>, Errno> {
        let made = stage::create_anew(&to)?;
        sys::write_all_at(made.as_fd(), &file.text, 0)?;
        inplace::copy_attrs(&end, &to)?;
        let fd = to.open_path()?;
        // What only the commit has changed is changed back.
        let back = |now: u32, left: u32, old: u32| if now == left { old } else { now };
        let (now, left, old) = (&file.now, &file.left, &file.old);
        let owner = (back(now.uid, left.uid, old.uid), back(now.gid, left.gid, old.gid));
        if owner != (now.uid, now.gid) {
            sys::chown(fd.as_fd(), owner.0, owner.1)?;
        }
        sys::chmod(fd.as_fd(), back(now.mode, left.mode, old.mode) & 0o7777)?;
        sys::set_mtime(to.dir.as_fd(), &to.name, crate::version::Stamp::now())?;
        to.look()
    };
    let new = write().map_err(at)?;
    Ok(Op {
        target: op.after.clone(),
        before: op.after.clone(),
        after: op.after.clone(),
        base: Some(file.now),
        new,
        own_version: None,
        does: Does::Exchange {
            staged: Staged { slot, ..Staged::default() },
            outsiders: Exchanged::Copy,
            other: None,
        },
        ..op.clone()
    })
}

#[cfg(test)]
mod tests {
    /// The library merges as git does.
    #[test]
    fn lines_are_merged() {
        let base = b"a\nb\nc\nd\ne\n";
        let ours = b"a\nb\nc\nd\nE\nmore\n";
        let theirs = b"A\nb\nc\nd\ne\n";
        let merged = diffy::merge_bytes(base, ours, theirs).unwrap();
        assert_eq!(merged, b"A\nb\nc\nd\nE\nmore\n");
        assert!(diffy::merge_bytes(base, b"x\nb\nc\nd\ne\n", theirs).is_err());
    }
}
