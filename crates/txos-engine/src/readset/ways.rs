//! Directories on the way of a path, taken on trust from an earlier transaction.
//!
//! A program is told where a *whole* path leads, and one look by the whole path validates that. Which
//! directories lie on the way matters only to the realm: a transaction acquires their entries, so that no
//! opponent publishes one of them meanwhile. A process that has found these directories once needs not look
//! at each of them again: participants that may have changed names since are counted
//! ([`crate::realm::Realm::names_published`]). Outsiders are not. If an outsider has exchanged a directory on
//! the way, the transaction holds the entries of the old one, and an opponent could publish in the new one
//! while the transaction validates. So a validation during which an opponent has published anything looks at
//! the directories after all ([`ReadSet::validate_beside`]).

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;

use super::ReadSet;
use super::validate::{OwnWrites, ValidationRules};
use crate::error::{Conflict, ConflictKind};
use crate::object::FileId;
use crate::path::from_bytes;
use crate::realm::{Facet, Watch};
use crate::version::stat_at;

/// The way from the root to a directory: every directory on it, and the name by which the next one is
/// found in it. No name is a symbolic link.
#[derive(Debug)]
pub struct Way {
    /// The directory's path.
    pub path: Vec<u8>,
    /// The directories above it, the root first, each with the name of the next.
    pub steps: Vec<(FileId, Box<[u8]>)>,
    /// Which directory it is.
    pub end: FileId,
}

impl Way {
    /// The entries that it passes.
    pub fn entries(&self) -> impl Iterator<Item = Facet<'_>> {
        self.steps.iter().map(|(dir, name)| Facet::Entry { dir: *dir, name })
    }

    /// Whether it still passes the same directories: looks at each.
    ///
    /// # Errors
    /// The errno of the first look that failed.
    pub fn is_same(&self) -> Result<bool, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let mut here = crate::sys::open_at(CWD, b"/", flags)?;
        for (dir, name) in &self.steps {
            if stat_at(here.as_fd(), b"", AtFlags::EMPTY_PATH)?.id != *dir {
                return Ok(false);
            }
            here = crate::sys::open_at(here.as_fd(), name, flags)?;
        }
        Ok(stat_at(here.as_fd(), b"", AtFlags::EMPTY_PATH)?.id == self.end)
    }

    fn conflict(&self) -> Option<Conflict> {
        let what = match self.is_same() {
            Ok(true) => return None,
            Ok(false) => ConflictKind::WayReplaced,
            Err(e) => ConflictKind::NotKnown("the way to it can't be looked at now", e),
        };
        Some(Conflict { path: from_bytes(&self.path), what, when: None })
    }
}

impl ReadSet {
    /// Names were looked up at the end of a way that was acquired, but not looked at step by step.
    pub fn trust(&mut self, way: Arc<Way>) {
        self.trusted.push(way);
    }

    /// Whether any way was taken on trust.
    #[must_use]
    pub fn has_trusted(&self) -> bool {
        !self.trusted.is_empty()
    }

    /// [`ReadSet::validate`] before a commit that no lock keeps apart from the publishes of others. `own`: the
    /// transaction's place in the realm, if there is one.
    #[must_use]
    pub fn validate_beside(&self, terms: ValidationRules, own: Option<Watch<'_>>) -> Vec<Conflict> {
        // Where there is no realm nobody acquires anything.
        let own = own.filter(|_| self.has_trusted());
        let before = own.and_then(|own| own.others_quiet());
        let mut conflicts = self.validate(terms, &OwnWrites::default());
        let Some(own) = own.filter(|_| conflicts.is_empty()) else { return conflicts };
        if before.is_none() || own.others_quiet() != before {
            conflicts.extend(self.trusted.iter().find_map(|way| way.conflict()));
        }
        conflicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The way to a directory, as it is now.
    fn way_to(path: &[u8]) -> Way {
        let id = |path: &[u8]| stat_at(CWD, path, AtFlags::SYMLINK_NOFOLLOW).unwrap().id;
        let (mut steps, mut here) = (Vec::new(), path);
        while let Some((above, name)) = crate::path::split(here) {
            steps.push((id(above), name.into()));
            here = above;
        }
        steps.reverse();
        Way { path: path.to_vec(), steps, end: id(path) }
    }

    #[test]
    fn a_way_is_all_of_its_directories() {
        let dir = std::fs::canonicalize(std::env::temp_dir()).unwrap();
        let dir = dir.join(format!("txos-way-{}", std::process::id()));
        let at = |name: &str| dir.join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        let way = way_to(at("a/b").as_os_str().as_encoded_bytes());
        assert_eq!(way.is_same(), Ok(true));
        // Another one on the way, and the same at its end.
        std::fs::create_dir(at("other")).unwrap();
        std::fs::rename(at("a/b"), at("other/b")).unwrap();
        assert_eq!(way.is_same(), Err(Errno::NOENT));
        std::fs::remove_dir(at("a")).unwrap();
        std::fs::rename(at("other"), at("a")).unwrap();
        assert_eq!(way.is_same(), Ok(false));
        std::fs::rename(at("a"), at("away")).unwrap();
        std::os::unix::fs::symlink("away", at("a")).unwrap();
        assert!(way.is_same().is_err(), "a link is no directory on the way");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
