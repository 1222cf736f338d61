//! Where everything is after some renames: a reference model of names.
//!
//! Two dictionaries. *Entries*: a name in a directory → the object it leads to. *Homes*: an object → the
//! entry by which it is reached. Both hold only what differs from the beginning.
//!
//! # Invariants
//!
//! - An object is named by its path at the beginning, and so is an entry: by the path that its directory had
//!   then, and its name. Whatever moves, these names stay. The object that an entry leads to at the
//!   beginning has the same name as the entry.
//! - A path is walked entry by entry through the dictionary, as the kernel walks it; so moves below moved
//!   directories, moves out of them, exchanges and moves into new directories are no cases of their own.
//! - Paths are absolute and plain: no `.`, no `..`, no doubled slash. Symbolic links are objects without
//!   anything below.

use crate::hash::Map;
use crate::path::{join, split};

/// The name of an object or of an entry: a path at the beginning.
pub(crate) type Place = Vec<u8>;

/// What has become of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Changed {
    /// The object that it leads to now.
    object: Option<Place>,
    /// Whether it led to one at the beginning.
    existed: bool,
}

/// A dictionary that is asked for every directory above a path, nearly all of which it does not have: a path of 1,000
/// directories would be hashed 1,000 times. It asks itself first whether it has anything of that length.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq, Eq))]
struct Dictionary<V> {
    all: Map<Place, V>,
    /// Whether something of a length is, or was, in it.
    lengths: Vec<bool>,
}

impl<V> Default for Dictionary<V> {
    fn default() -> Self {
        Dictionary { all: Map::default(), lengths: Vec::new() }
    }
}

impl<V> Dictionary<V> {
    fn get(&self, place: &[u8]) -> Option<&V> {
        if self.lengths.get(place.len()) == Some(&true) { self.all.get(place) } else { None }
    }

    fn insert(&mut self, place: Place, value: V) {
        if self.lengths.len() <= place.len() {
            self.lengths.resize(place.len() + 1, false);
        }
        if let Some(length) = self.lengths.get_mut(place.len()) {
            *length = true;
        }
        self.all.insert(place, value);
    }
}

/// Names after some renames. The default is the beginning.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub(crate) struct Places {
    entries: Dictionary<Changed>,
    homes: Dictionary<Place>,
}

impl Places {
    /// Names before as many renames, for which there is room.
    pub fn for_renames(count: usize) -> Places {
        let mut places = Places::default();
        places.entries.all.reserve(2 * count);
        places.homes.all.reserve(count);
        places
    }

    /// Names before as many of them [are set](Places::set).
    pub fn for_names(count: usize) -> Places {
        let mut places = Places::default();
        places.entries.all.reserve(count);
        places
    }

    /// A name leads to a file of which it does not matter where it came from or went to; or to nothing. Whether it led to
    /// one at the beginning.
    pub fn set(&mut self, entry: Place, existed: bool, exists: bool) {
        let object = exists.then(|| entry.clone());
        self.entries.insert(entry, Changed { object, existed });
    }

    /// The entry that `path` names now.
    pub fn entry(&self, path: &[u8]) -> Place {
        match split(path) {
            Some((dir, name)) => {
                let mut entry = self.directory(dir);
                if !entry.ends_with(b"/") {
                    entry.push(b'/');
                }
                entry.extend_from_slice(name);
                entry
            }
            // The root has no name; it is kept as the entry "." of itself.
            None => b"/.".to_vec(),
        }
    }

    /// The directory that `path` leads to now.
    fn directory(&self, path: &[u8]) -> Place {
        if self.entries.all.is_empty() {
            return path.to_vec();
        }
        let mut at: Place = Vec::with_capacity(path.len() + 1);
        at.push(b'/');
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            if !at.ends_with(b"/") {
                at.push(b'/');
            }
            at.extend_from_slice(name);
            if let Some(Changed { object: Some(object), .. }) = self.entries.get(&at) {
                at.clone_from(object);
            }
        }
        at
    }

    /// The object that an entry leads to now, as far as is known: an entry that nothing was done to is taken
    /// to lead where it led.
    pub fn object(&self, entry: &[u8]) -> Option<Place> {
        match self.entries.get(entry) {
            Some(changed) => changed.object.clone(),
            None => Some(entry.to_vec()),
        }
    }

    /// Whether an entry led to something at the beginning; `None` for one that nothing was done to.
    pub fn existed(&self, entry: &[u8]) -> Option<bool> {
        self.entries.get(entry).map(|changed| changed.existed)
    }

    /// Where an object is now. (Of one with several names: where it was last put, or was at the beginning.)
    pub fn now(&self, object: &[u8]) -> Vec<u8> {
        if self.homes.all.is_empty() {
            return object.to_vec();
        }
        // Each step leads one directory up, or to an object's home; a plan that was made by hand may lead in
        // a circle, which ends here.
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = object;
        for _ in 0..=object.len() + self.homes.all.len() * 64 {
            at = self.homes.get(at).map_or(at, |home| &home[..]);
            let Some((dir, name)) = split(at) else { break };
            names.push(name);
            at = dir;
        }
        if names.is_empty() {
            return b"/".to_vec();
        }
        let mut path = Vec::with_capacity(object.len());
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        path
    }

    /// The path of an entry now, whether it leads to anything or not.
    pub fn now_of_entry(&self, entry: &[u8]) -> Vec<u8> {
        match split(entry) {
            Some((dir, name)) => join(&self.now(dir), name),
            None => entry.to_vec(),
        }
    }

    /// Names that came to a directory and names that went, compared with the beginning.
    pub fn changed_names(&self) -> impl Iterator<Item = (&[u8], &[u8], bool)> {
        self.entries.all.iter().filter_map(|(entry, changed)| {
            let (dir, name) = split(entry)?;
            let exists = changed.object.is_some();
            (exists != changed.existed).then_some((dir, name, exists))
        })
    }

    /// Whether any object is elsewhere than at the beginning.
    pub fn anything_moved(&self) -> bool {
        !self.homes.all.is_empty()
    }

    /// `rename(2)` to where nothing is.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) {
        self.rename_entry(self.entry(from), self.entry(to));
    }

    /// The same, where the entries are known.
    pub fn rename_entry(&mut self, from: Place, to: Place) {
        let object = self.object(&from);
        self.put(from, None, true);
        self.put(to, object, false);
    }

    /// `renameat2(2)` with `RENAME_EXCHANGE`.
    pub fn exchange(&mut self, one: &[u8], other: &[u8]) {
        self.exchange_entries(self.entry(one), self.entry(other));
    }

    /// The same, where the entries are known.
    pub fn exchange_entries(&mut self, one: Place, other: Place) {
        let (a, b) = (self.object(&one), self.object(&other));
        self.put(one, b, true);
        self.put(other, a, true);
    }

    /// `link(2)`.
    pub fn link(&mut self, from: &[u8], to: &[u8]) {
        let object = self.object(&self.entry(from));
        let to = self.entry(to);
        let existed = self.entries.get(&to).is_some_and(|before| before.existed);
        self.entries.insert(to, Changed { object, existed });
    }

    /// Makes an entry lead to an object. What it led to at the beginning is decided the first time.
    fn put(&mut self, entry: Place, object: Option<Place>, is_there: bool) {
        let existed = self.entries.get(&entry).map_or(is_there, |before| before.existed);
        if let Some(object) = &object {
            if *object == entry {
                self.homes.all.remove(object);
            } else {
                self.homes.insert(object.clone(), entry.clone());
            }
        }
        self.entries.insert(entry, Changed { object, existed });
    }
}

#[cfg(test)]
mod tests;
