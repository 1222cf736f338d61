//! Where a path of the view leads in the stable tree, when the transaction itself moved
//! directories or made symbolic links.
//!
//! Observations are made in the stable tree, where neither has happened. So a path is also looked
//! at under the names that its directories had before, and if a link made inside may be part of
//! it, under its canonical path in the view. Looking at too much costs at most a needless
//! conflict; looking at too little would overlook one.

use std::collections::HashSet;

use txos_engine::changeset::Renamed;
use txos_engine::readset::{is_at_or_below, join};

/// How many directory moves are followed; further ones resolve through the view only.
const MOVES_MAX: usize = 4096;

/// How many names of one path are looked at. Only moves that failed, or that undo each other, make more than a few.
const NAMES_MAX: usize = 256;

/// One call that moved a directory.
#[derive(Debug)]
struct Move {
    from: Vec<u8>,
    to: Vec<u8>,
    /// What was at `to` went to `from`.
    exchanged: bool,
}

/// What the transaction did to names.
#[derive(Debug, Default)]
pub struct ViewRenames {
    /// Moves of directories, in order.
    moves: Vec<Move>,
    /// Names under which symbolic links or directories appeared.
    names: HashSet<Box<[u8]>>,
    /// Grows with each of them.
    revision: u64,
}

/// What earlier commands of a pending transaction did.
impl From<Renamed> for ViewRenames {
    fn from(renamed: Renamed) -> ViewRenames {
        let mut moved = ViewRenames::default();
        for (from, to) in &renamed.directories {
            moved.directory(from, to, false);
        }
        for link in &renamed.links {
            moved.name(link);
        }
        moved
    }
}

impl ViewRenames {
    /// A directory was moved; `exchanged`: what was at the target, directory or not, took its place.
    pub fn directory(&mut self, from: &[u8], to: &[u8], exchanged: bool) {
        if self.moves.len() < MOVES_MAX {
            self.moves.push(Move { from: from.to_vec(), to: to.to_vec(), exchanged });
        }
        self.name(to);
        if exchanged {
            self.name(from);
        }
    }

    /// A symbolic link appeared at this path.
    pub fn name(&mut self, path: &[u8]) {
        self.revision += 1;
        if let Some((_, name)) = txos_engine::readset::split(path) {
            self.names.insert(name.into());
        }
    }

    /// Another one whenever paths may lead elsewhere than before.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether nothing was moved or linked: the usual case.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether the path may pass something that was moved or linked.
    #[must_use]
    pub fn may_concern(&self, path: &[u8]) -> bool {
        !self.is_empty() && path.split(|&b| b == b'/').any(|part| self.names.contains(part))
    }

    /// The names that a path may have had before the moves, newest first. A move is noted before the kernel makes
    /// it, and may fail: so each is followed, and passed over as well.
    #[must_use]
    pub fn before(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let mut names = vec![path.to_vec()];
        for Move { from, to, exchanged } in self.moves.iter().rev() {
            for known in 0..names.len() {
                let Some(at) = names.get(known) else { break };
                let (new, old) = match is_at_or_below(at, to) {
                    true => (to, from),
                    false if *exchanged && is_at_or_below(at, from) => (from, to),
                    false => continue,
                };
                let rest = at.get(new.len()..).unwrap_or_default();
                let rest = rest.strip_prefix(b"/").unwrap_or(rest);
                let before = if rest.is_empty() { old.clone() } else { join(old, rest) };
                if !names.contains(&before) && names.len() < NAMES_MAX {
                    names.push(before);
                }
            }
        }
        names.split_off(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_followed_backwards() {
        let mut moved = ViewRenames::default();
        assert!(!moved.may_concern(b"/b/x"));
        moved.directory(b"/a", b"/b", false);
        moved.directory(b"/b/sub", b"/c", false);
        assert_eq!(moved.before(b"/c/file"), [b"/b/sub/file".to_vec(), b"/a/sub/file".to_vec()]);
        assert_eq!(moved.before(b"/b"), [b"/a".to_vec()]);
        assert!(moved.before(b"/bc/file").is_empty());
        assert!(moved.may_concern(b"/x/b/y") && !moved.may_concern(b"/x/bb/y"));
    }

    #[test]
    fn a_move_that_failed_hides_none_before() {
        let mut moved = ViewRenames::default();
        moved.directory(b"/a", b"/b/a", false);
        moved.directory(b"/b", b"/b/a/c", false);
        moved.directory(b"/a", b"/b", false);
        assert!(moved.before(b"/b/a/f").contains(&b"/a/f".to_vec()));
        // There and back again, any number of times.
        for _ in 0..1000 {
            moved.directory(b"/x", b"/y", false);
            moved.directory(b"/y", b"/x", false);
        }
        assert_eq!(moved.before(b"/x/f"), [b"/y/f".to_vec()]);
    }

    #[test]
    fn both_halves_of_an_exchange_are_followed() {
        let mut moved = ViewRenames::default();
        moved.directory(b"/x", b"/c", false);
        moved.directory(b"/a", b"/c", true);
        assert_eq!(moved.before(b"/a/d"), [b"/c/d".to_vec(), b"/x/d".to_vec()]);
        // Had the exchange failed, the other way would be the one.
        assert_eq!(moved.before(b"/c/d"), [b"/a/d".to_vec(), b"/x/d".to_vec()]);
        assert!(moved.may_concern(b"/a/d"));
    }

    #[test]
    fn links_are_remembered_by_name() {
        let mut moved = ViewRenames::default();
        moved.name(b"/tmp/link");
        assert!(moved.may_concern(b"/elsewhere/link/x"));
        assert!(moved.before(b"/tmp/link/x").is_empty());
    }
}
