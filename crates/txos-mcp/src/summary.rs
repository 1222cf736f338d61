//! What of a transaction's changes matters to the one who decides.

use std::path::Path;

use crate::answers::{Change as Short, Review};
use crate::documents::{Change, Conflict, Live, Shown};
use crate::names::{self, Typed};

/// How many paths a list of a summary names.
const LISTED: usize = 200;
/// Set-user-ID, set-group-ID.
const SET_ID: u32 = 0o6000;

/// Whether it could be committed now.
#[derive(Debug)]
pub struct Verdict {
    /// Whether it could.
    pub can_commit: bool,
    /// Why not.
    pub message: Option<String>,
    /// What is in the way.
    pub conflicts: Vec<Conflict>,
}

/// A change, in short.
pub fn change(change: &Change) -> Short {
    let end = change.new.as_ref().or(change.old.as_ref());
    Short {
        status: change.status.clone(),
        path: change.path.clone(),
        from: change.from.clone(),
        kind: end.map(|object| object.kind.clone()).unwrap_or_default(),
        size: change.new.as_ref().map(|object| object.size),
    }
}

/// Whether a change takes something away, or changes who may do what.
fn comes_first(change: &Change) -> bool {
    if matches!(change.status.as_str(), "deleted" | "type-changed") {
        return true;
    }
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => (old.mode, old.uid, old.gid) != (new.mode, new.uid, new.gid),
        (None, Some(new)) => new.kind == "file" && new.mode & SET_ID != 0,
        _ => false,
    }
}

/// Where a path that txos has written lies. One that can't be read lies nowhere.
fn is_below(path: &str, dir: &Path) -> bool {
    names::path(path).is_ok_and(|path| path.starts_with(dir))
}

/// The changes that do not lie below a directory.
pub fn outside<'a>(shown: &'a Shown, dir: &Path) -> Vec<&'a Change> {
    let inside = |change: &&Change| {
        is_below(&change.path, dir) && change.from.as_ref().is_none_or(|from| is_below(from, dir))
    };
    shown.changes.iter().filter(|change| !inside(change)).collect()
}

/// What a person can run.
pub fn commands(typed: &Typed, id: &str) -> Vec<String> {
    ["review", "diff", "commit", "abort"]
        .map(|verb| typed.command(&format!("{verb} {id}")))
        .to_vec()
}

/// The summary.
pub fn review(
    shown: &Shown,
    workspace: &Path,
    verdict: Verdict,
    live: Vec<Live>,
    needs_person: bool,
    typed: &Typed,
) -> Review {
    let first: Vec<&Change> = shown.changes.iter().filter(|c| comes_first(c)).collect();
    let outside = outside(shown, workspace);
    let listed = |changes: &[&Change]| changes.iter().take(LISTED).map(|c| change(c)).collect();
    let files = shown.changes.iter().filter_map(|c| c.new.as_ref()).filter(|o| o.kind == "file");
    Review {
        id: shown.transaction.id.clone(),
        counts: shown.counts,
        first: listed(&first),
        first_count: first.len() as u64,
        outside: listed(&outside),
        outside_count: outside.len() as u64,
        bytes: files.map(|object| object.size).sum(),
        can_commit: verdict.can_commit,
        message: verdict.message,
        conflicts: verdict.conflicts,
        live,
        needs_person,
        commands: commands(typed, &shown.transaction.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Object;

    fn object(kind: &str, mode: u32) -> Option<Object> {
        Some(Object { kind: kind.into(), mode, uid: 0, gid: 0, size: 5 })
    }

    fn changed(status: &str, path: &str, old: Option<Object>, new: Option<Object>) -> Change {
        Change { status: status.into(), path: path.into(), from: None, old, new }
    }

    #[test]
    fn what_takes_away_or_gives_rights_comes_first() {
        let file = |mode| object("file", mode);
        for (change, first) in [
            (changed("added", "/w/a", None, file(0o644)), false),
            (changed("added", "/w/a", None, file(0o4755)), true),
            (changed("added", "/w/a", None, object("dir", 0o2755)), false),
            (changed("modified", "/w/a", file(0o644), file(0o644)), false),
            (changed("modified", "/w/a", file(0o644), file(0o755)), true),
            (changed("deleted", "/w/a", file(0o644), None), true),
            (changed("type-changed", "/w/a", file(0o644), object("symlink", 0o644)), true),
        ] {
            assert_eq!(comes_first(&change), first, "{change:?}");
        }
    }

    #[test]
    fn below_is_by_whole_names() {
        for (path, below) in [
            ("/w/a", true),
            ("/w", true),
            ("\"/w/a\\nb\"", true),
            ("/wa", false),
            ("/etc/x", false),
            ("\"/etc/\\n\"", false),
            ("\"/\\167/\\n\"", true),
        ] {
            assert_eq!(is_below(path, Path::new("/w")), below, "{path}");
        }
        use std::os::unix::ffi::OsStrExt;
        let odd = Path::new(std::ffi::OsStr::from_bytes(b"/w\xff"));
        assert!(is_below("\"/w\\377/a\"", odd) && !is_below("\"/w\\376/a\"", odd));
    }
}
