//! Change sets as people are shown them: one line per path, new and removed trees in full.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::{Action, Change, ChangeSet, Entry, Side, Status};
use crate::error::{Context, Error, Result};
use crate::object::FileKind;
use crate::path::layer::child;
use crate::path::{self, Moves, join};
use crate::store::Layer;
use crate::sys;
use crate::sys_tree::OpenTree;
use crate::version::{Version, stat_at};

/// A change in terms of where its two sides can be read.
#[derive(Debug)]
pub(crate) struct Source {
    /// Status if it is not for the two sides to tell.
    pub status: Option<Status>,
    /// Absolute path in the tree.
    pub path: Vec<u8>,
    /// Absolute path it was moved from.
    pub from: Option<Vec<u8>>,
    /// Where the object before can be read.
    pub old: Option<PathBuf>,
    /// Where the object after can be read.
    pub new: Option<PathBuf>,
    /// Of something that was moved: what it has replaced, and where that can be read.
    pub replaced: Option<(Version, PathBuf)>,
    /// Names below `new` that are no part of it (shells of moved directories).
    pub except: Vec<Vec<u8>>,
}

impl Side {
    /// Those of an object.
    #[must_use]
    pub fn of(v: &Version) -> Self {
        Side {
            kind: v.kind(),
            mode: v.mode & 0o7777,
            uid: v.uid,
            gid: v.gid,
            size: v.size,
            mtime: v.mtime,
        }
    }
}

/// The entries of a change set that is not published yet.
pub(super) fn of_changes(set: &ChangeSet) -> Result<Vec<Entry>> {
    let (changes, layers) = (&set.changes, &set.layers);
    let mut entries = Vec::new();
    // Files that stay and get other content, which their new names show as well.
    let mut changed = HashMap::new();
    for change in changes.iter().filter(|_| set.explicit) {
        let Some(layer) = layers.get(change.layer) else { continue };
        let place = match &change.action {
            Action::Data(_) => Some(staged_place(layer, &change.staged)),
            Action::Patch(_) => super::recorded::shown_place(&change.staged)
                .map(|place| staged_place(layer, &place))
                .filter(|place| place.exists()),
            _ => None,
        };
        if let Some(place) = place {
            changed.insert((change.layer, &change.path[..]), (place, change.new));
        }
    }
    for change in changes.iter().filter(|c| c.shown) {
        let Some(layer) = layers.get(change.layer) else { continue };
        let target = |path: &[u8]| join(layer.target.as_os_str().as_bytes(), path);
        let upper = if set.explicit || change.held.is_some() {
            staged_place(layer, &change.staged)
        } else {
            path::from_bytes(&join(layer.upper.as_os_str().as_bytes(), &change.path))
        };
        let old = change.base.map(|_| path::from_bytes(&target(&change.stable_path)));
        let mut source = Source {
            status: None,
            path: target(&change.path),
            from: None,
            old,
            new: Some(upper),
            replaced: None,
            except: Vec::new(),
        };
        match &change.action {
            Action::Install | Action::Replace => {
                source.except = moved_below(changes, change);
            }
            Action::Link { to } if set.explicit => {
                if let Some((place, version)) = changed.get(&(change.layer, &to[..])) {
                    let base = change.base.as_ref();
                    entries.push(Entry {
                        status: if base.is_some() { Status::Modified } else { Status::Added },
                        path: path::from_bytes(&source.path),
                        from: None,
                        old: base.map(Side::of),
                        new: version.as_ref().map(Side::of),
                        replaced: None,
                        replaced_content: None,
                        old_content: source.old,
                        new_content: Some(place.clone()),
                        undo: None,
                    });
                    continue;
                }
                source.new = Some(path::from_bytes(&target(&stable_of(changes, change.layer, to))));
            }
            Action::Link { .. } | Action::Data(_) | Action::Rewrite => {}
            Action::Patch(_) => {
                // What it will hold is nowhere yet, unless the transaction was kept.
                let shown = super::recorded::shown_place(&change.staged);
                let shown = shown.map(|place| staged_place(layer, &place));
                entries.push(Entry {
                    status: Status::Modified,
                    path: path::from_bytes(&source.path),
                    from: None,
                    old: change.base.as_ref().map(Side::of),
                    new: change.new.as_ref().map(Side::of),
                    replaced: None,
                    replaced_content: None,
                    old_content: source.old,
                    new_content: shown.filter(|place| place.exists()),
                    undo: None,
                });
                continue;
            }
            Action::Remove => source.new = None,
            Action::Attrs(_) if set.explicit => {
                entries.push(Entry {
                    status: Status::Attributes,
                    path: path::from_bytes(&source.path),
                    from: None,
                    old: change.base.as_ref().map(Side::of),
                    new: change.new.as_ref().map(Side::of),
                    replaced: None,
                    replaced_content: None,
                    // It stays as it is.
                    old_content: source.old.clone(),
                    new_content: source.old,
                    undo: None,
                });
                continue;
            }
            Action::Attrs(_) => source.status = Some(Status::Attributes),
            Action::Move { from, .. } => {
                source.status = Some(Status::Renamed);
                source.from = Some(target(from));
                source.replaced = change.base.zip(source.old);
                source.old = Some(path::from_bytes(&target(from)));
                if set.explicit {
                    source.new = source.old.clone();
                }
            }
        }
        expand(&source, &mut entries)?;
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

/// Where a staged object of an explicit change set is.
fn staged_place(layer: &Layer, staged: &[u8]) -> PathBuf {
    let top = layer.upper.parent().unwrap_or(&layer.upper);
    path::from_bytes(&join(top.as_os_str().as_bytes(), staged))
}

/// Where what will be at `path` is in the stable tree, before anything is moved.
pub(super) fn stable_of(changes: &[Change], layer: usize, path: &[u8]) -> Vec<u8> {
    let moves = changes.iter().filter(|c| c.layer == layer).filter_map(|c| match &c.action {
        Action::Move { from, .. } => Some((&c.path[..], &from[..])),
        _ => None,
    });
    moves.collect::<Moves<'_>>().mapped(path).unwrap_or_else(|| path.to_vec())
}

/// Directories moved to below a new one, relative to it.
fn moved_below(changes: &[Change], new: &Change) -> Vec<Vec<u8>> {
    changes
        .iter()
        .filter(|c| matches!(c.action, Action::Move { .. }) && c.layer == new.layer)
        .filter_map(|c| c.path.strip_prefix(&new.path[..])?.strip_prefix(b"/").map(<[u8]>::to_vec))
        .collect()
}

/// Turns one change into entries.
pub(crate) fn expand(source: &Source, entries: &mut Vec<Entry>) -> Result<()> {
    let look = |path: &Option<PathBuf>| path.as_deref().and_then(look_at);
    let (old, new) = (look(&source.old), look(&source.new));
    let is_dir = |v: &Option<Version>| v.is_some_and(|v| v.kind() == FileKind::Dir);
    let whole = source.status.is_none() && (is_dir(&old) || is_dir(&new));
    if let Some(entry) = pair(source.status, &source.path, source, &[], old, new) {
        entries.push(entry);
    }
    if !whole {
        return Ok(());
    }
    let tree = |path: &Option<PathBuf>, root: &Option<Version>| match path {
        Some(path) if is_dir(root) => walk(path, &source.except),
        _ => Ok(BTreeMap::new()),
    };
    let old_tree = tree(&source.old, &old)?;
    let mut new_tree = tree(&source.new, &new)?;
    for (below, before) in old_tree {
        let after = new_tree.remove(&below);
        entries.extend(pair(
            None,
            &join(&source.path, &below),
            source,
            &below,
            Some(before),
            after,
        ));
    }
    for (below, after) in new_tree {
        entries.extend(pair(None, &join(&source.path, &below), source, &below, None, Some(after)));
    }
    Ok(())
}

/// One path of a change; `None` if its two sides do not differ.
fn pair(
    status: Option<Status>,
    path: &[u8],
    source: &Source,
    below: &[u8],
    old: Option<Version>,
    new: Option<Version>,
) -> Option<Entry> {
    let status = match (status, &old, &new) {
        (Some(status), ..) => status,
        (None, None, None) => return None,
        (None, None, Some(_)) => Status::Added,
        (None, Some(_), None) => Status::Deleted,
        (None, Some(a), Some(b)) if a.kind() != b.kind() => Status::TypeChanged,
        (None, Some(a), Some(b)) if a.kind() == FileKind::Dir => {
            if (a.mode, a.uid, a.gid) == (b.mode, b.uid, b.gid) {
                return None;
            }
            Status::Attributes
        }
        (None, Some(_), Some(_)) => Status::Modified,
    };
    let at = |root: &Option<PathBuf>, there: bool| {
        root.as_deref().filter(|_| there).map(|r| {
            if below.is_empty() {
                r.to_owned()
            } else {
                path::from_bytes(&join(r.as_os_str().as_bytes(), below))
            }
        })
    };
    Some(Entry {
        status,
        path: path::from_bytes(path),
        from: source.from.as_deref().map(path::from_bytes),
        old: old.as_ref().map(Side::of),
        new: new.as_ref().map(Side::of),
        replaced: source.replaced.as_ref().map(|(version, _)| Side::of(version)),
        replaced_content: source.replaced.as_ref().map(|(_, place)| place.clone()),
        old_content: at(&source.old, old.is_some()),
        new_content: at(&source.new, new.is_some()),
        undo: None,
    })
}

fn look_at(path: &Path) -> Option<Version> {
    stat_at(rustix::fs::CWD, path.as_os_str().as_bytes(), AtFlags::SYMLINK_NOFOLLOW).ok()
}

/// Everything below a directory, by relative path, whatever its depth.
pub(crate) fn walk(root: &Path, except: &[Vec<u8>]) -> Result<BTreeMap<Vec<u8>, Version>> {
    let top = sys::open(
        root.as_os_str().as_bytes(),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW,
        0,
    )
    .at("opening", root)?;
    let top = OpenTree::new(top);
    let mut found = BTreeMap::new();
    let mut queue = vec![Vec::new()];
    while let Some(dir) = queue.pop() {
        let shown = || path::from_bytes(&join(root.as_os_str().as_bytes(), &dir));
        let fd = match top.dir(&dir) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => continue,
            Err(e) => return Err(Error::io("opening", shown(), e)),
        };
        let readable = sys::open_at(fd.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY)
            .at("opening", shown())?;
        let mut names = Vec::new();
        sys::for_each_name(readable.as_fd(), |name, _| names.push(name.to_vec()))
            .at("listing", shown())?;
        for name in names {
            let path = child(&dir, &name);
            if except.contains(&path) {
                continue;
            }
            let version = match stat_at(fd.as_fd(), &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(v) => v,
                Err(Errno::NOENT) => continue,
                Err(e) => return Err(Error::io("looking at", shown(), e)),
            };
            if version.kind() == FileKind::Dir {
                queue.push(path.clone());
            }
            found.insert(path, version);
        }
    }
    Ok(found)
}
