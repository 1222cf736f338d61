//! What a finished commit changed, read back from its plan.

use std::os::unix::ffi::OsStrExt;

use crate::changeset::{Entry, Side, Source, Status, expand};
use crate::error::Result;
use crate::id::TxId;
use crate::path::{self, join};
use crate::plan::{self, Does, Plan, Write};
use crate::store::Home;
use crate::version::{Version, stat_at};

/// What a committed transaction changed. Old content is offered while it is retained, new content
/// while the object in the tree is still the one that was published.
///
/// # Errors
/// [`crate::Error::Format`] if the transaction's plan can't be read.
pub fn committed_entries(home: &Home, id: TxId) -> Result<Vec<Entry>> {
    match plan::load(home, id)? {
        Some(plan) => entries_of(home, &plan),
        None => Ok(Vec::new()),
    }
}

/// Whether a file still holds what a patch has left.
fn is_as_left(source: &Source, left: &Version) -> bool {
    let path = source.new.as_deref().map(|path| path.as_os_str().as_bytes()).unwrap_or_default();
    let now = stat_at(rustix::fs::CWD, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
    now.is_ok_and(|now| (now.id, now.size, now.mtime) == (left.id, left.size, left.mtime))
}

/// What the operations of a plan that was carried out changed.
///
/// # Errors
/// [`crate::Error::Io`] if a directory that it published can't be looked through.
pub(super) fn entries_of(home: &Home, plan: &Plan) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for op in plan.ops.iter().filter(|o| o.shown) {
        let Some(layer) = plan.layers.get(usize::from(op.layer)) else { continue };
        let target = |path: &[u8]| join(layer.target.as_os_str().as_bytes(), path);
        let slot = |path: &[u8]| path::from_bytes(&join(layer.store.as_os_str().as_bytes(), path));
        let mut source = Source {
            status: None,
            path: target(&op.after),
            from: None,
            old: op.base.map(|_| slot(op.slot())),
            new: Some(path::from_bytes(&target(&op.after))),
            replaced: None,
            except: Vec::new(),
        };
        if let Some(held) = op.held().filter(|held| held.after) {
            source.new = Some(slot(&held.place));
        }
        match &op.does {
            Does::Install(_) | Does::Exchange { .. } | Does::Link { .. } => {}
            Does::Remove { .. } => source.new = None,
            Does::MoveOut { .. } | Does::Rebuild(_) => continue,
            Does::MoveIn { from, .. } => {
                source.status = Some(Status::Renamed);
                source.from = from.as_ref().map(|f| target(f));
                source.replaced = op.base.zip(source.old);
                source.old = source.new.clone();
            }
            Does::Data(write) => source.old = Some(slot(&write.undo_copy)),
            // Of its old content only what was overwritten is kept.
            Does::Patch { .. } => source.status = Some(Status::Modified),
            Does::Attrs { .. } | Does::DirTime { .. } => source.status = Some(Status::Attributes),
        }
        let undo = |write: &Write| slot(&write.undo_copy);
        let is_patch = matches!(op.does, Does::Patch { .. });
        if let Some(v) = op.new.filter(|_| is_patch || op.sets_attributes()) {
            entries.push(Entry {
                status: source.status.unwrap_or(Status::Attributes),
                path: path::from_bytes(&source.path),
                from: None,
                old: op.base.as_ref().map(Side::of),
                new: Some(Side::of(&v)),
                replaced: None,
                replaced_content: None,
                // Attributes leave it as it is.
                old_content: source.new.clone().filter(|_| !is_patch),
                undo: op.write().filter(|_| is_patch && is_as_left(&source, &v)).map(undo),
                new_content: source.new,
            });
            continue;
        }
        expand(&source, &mut entries)?;
    }
    super::retained::as_they_were(home, plan, &mut entries)?;
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}
