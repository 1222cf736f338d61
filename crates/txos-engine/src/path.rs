//! Paths as bytes. Absolute ones are canonical: no `.`, no `..`, no doubled slash. Those of a layer are
//! relative to its root, which is the empty path ([`LayerPath`], [`layer`]); those of a layer's store are relative to
//! the store ([`StorePath`]). Change sets and plans are made of these two, and nothing but a plan, which knows
//! the layers, makes absolute paths of them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A path from raw bytes.
pub(crate) fn from_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

/// Whether `path` is `top` or lies below it (both canonical and absolute).
#[must_use]
pub fn is_at_or_below(path: &[u8], top: &[u8]) -> bool {
    top == b"/"
        || (path.starts_with(top)
            && (path.len() == top.len() || path.get(top.len()) == Some(&b'/')))
}

/// `dir/name` without a doubled slash.
#[must_use]
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.len() + 1 + name.len());
    path.extend_from_slice(dir);
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Takes `.` and `..` and doubled slashes out of an absolute path, by the letter.
#[must_use]
pub fn lexically_normal(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.iter().fold(b"/".to_vec(), |path, part| join(&path, part))
}

/// Splits a canonical path into directory and name; `None` for the root and what is not absolute.
#[must_use]
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|&b| b == b'/')?;
    let name = path.get(slash + 1..)?;
    if name.is_empty() {
        return None;
    }
    let dir = if slash == 0 { &b"/"[..] } else { path.get(..slash)? };
    Some((dir, name))
}

/// Where paths lead that were moved, from each to its place; of several from one path the last counts.
#[derive(Debug, Default)]
pub(crate) struct Moves<'a>(HashMap<&'a [u8], &'a [u8]>);

impl<'a> FromIterator<(&'a [u8], &'a [u8])> for Moves<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a [u8], &'a [u8])>>(moves: I) -> Moves<'a> {
        Moves(moves.into_iter().collect())
    }
}

impl<'a> Moves<'a> {
    /// Adds a move.
    pub(crate) fn add(&mut self, from: &'a [u8], to: &'a [u8]) {
        self.0.insert(from, to);
    }

    /// `path` with the longest `from` that it is at or below replaced by its `to`.
    pub(crate) fn mapped(&self, path: &[u8]) -> Option<Vec<u8>> {
        if self.0.is_empty() {
            return None;
        }
        let slashes = (0..path.len()).rev().filter(|&at| path.get(at) == Some(&b'/'));
        std::iter::once(path.len()).chain(slashes).find_map(|end| {
            let (top, rest) = path.split_at_checked(end)?;
            Some([self.0.get(top)?, rest].concat())
        })
    }
}

/// A kind of path of its own: one is not taken for another.
macro_rules! kind_of_path {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(Vec<u8>);

        impl std::ops::Deref for $name {
            type Target = [u8];

            fn deref(&self) -> &[u8] {
                &self.0
            }
        }

        impl std::borrow::Borrow<[u8]> for $name {
            fn borrow(&self) -> &[u8] {
                &self.0
            }
        }

        impl From<Vec<u8>> for $name {
            fn from(path: Vec<u8>) -> $name {
                $name(path)
            }
        }

        impl From<&[u8]> for $name {
            fn from(path: &[u8]) -> $name {
                $name(path.to_vec())
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", self.0.escape_ascii())
            }
        }
    };
}

kind_of_path! {
    /// A path in a layer, relative to its root; the root itself is empty ([`layer`]).
    LayerPath
}

kind_of_path! {
    /// A path in the store of a layer, relative to the store: of what waits to be published, or was taken out of
    /// the tree. Empty: none.
    StorePath
}

/// Paths relative to a layer's root.
pub(crate) mod layer {
    /// `dir/name`, where the layer's root is the empty path.
    pub(crate) fn child(dir: &[u8], name: &[u8]) -> Vec<u8> {
        if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
    }

    /// Whether `path` is `top` or lies below it; everything lies below the layer's root.
    pub(crate) fn is_at_or_below(path: &[u8], top: &[u8]) -> bool {
        let below = |rest: &[u8]| rest.is_empty() || rest.starts_with(b"/");
        top.is_empty() || path.strip_prefix(top).is_some_and(below)
    }

    /// What is left of a path below `top`, empty for `top` itself; `None` if it is elsewhere.
    pub(crate) fn below<'a>(path: &'a [u8], top: &[u8]) -> Option<&'a [u8]> {
        match path.strip_prefix(top)? {
            rest if top.is_empty() || rest.is_empty() => Some(rest),
            rest => rest.strip_prefix(b"/"),
        }
    }

    /// Splits a layer-relative path into directory (empty for the layer's root) and name.
    pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
        match path.iter().rposition(|&b| b == b'/') {
            Some(slash) => {
                (path.get(..slash).unwrap_or_default(), path.get(slash + 1..).unwrap_or_default())
            }
            None => (b"", path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_paths() {
        assert_eq!(lexically_normal(b"/a/./b//../c/"), b"/a/c");
        assert_eq!(lexically_normal(b"/../.."), b"/");
        assert_eq!(lexically_normal(b"/run"), b"/run");
    }
}
