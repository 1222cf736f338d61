//! Two read sets as one: of two transactions that become one.

use indexmap::map::Entry;

use super::{Observation, Outcome, PathBinding, ReadSet};
use crate::object::{Facets, FileKind};
use crate::path::join;

impl ReadSet {
    /// Takes over what another transaction has seen. What is recorded from now on is as before.
    ///
    /// # Errors
    /// The paths of which the two have seen different states: other processes changed them in between, so one of
    /// the two is in conflict already. This set is then partly the other one's, too.
    pub fn absorb(&mut self, other: &ReadSet) -> Result<(), Vec<Vec<u8>>> {
        let mut differ = Vec::new();
        self.replacements_missed |= other.replacements_missed;
        let mut index_here = Vec::with_capacity(other.dirs.len());
        for dir in &other.dirs {
            let known = self.by_path.get(&dir.path[..]).copied();
            let index = known.unwrap_or_else(|| {
                let index = u32::try_from(self.dirs.len()).unwrap_or(u32::MAX);
                self.by_path.insert(dir.path.clone().into(), index);
                self.dirs.push(super::SeenDir { path: dir.path.clone(), ..Default::default() });
                index
            });
            index_here.push(index);
            let Some(here) = self.dirs.get_mut(index as usize) else { continue };
            here.versioned |= dir.versioned;
            for (name, seen) in &dir.entries {
                match here.entries.entry(name.clone()) {
                    Entry::Vacant(place) => drop(place.insert(seen.clone())),
                    Entry::Occupied(mut place) => {
                        if !place.get_mut().absorb(seen) {
                            differ.push(join(&dir.path, name));
                        }
                    }
                }
            }
        }
        for (written, binding) in &other.aliases {
            let binding = match binding {
                PathBinding::Dir(index) => match index_here.get(*index as usize) {
                    Some(index) => PathBinding::Dir(*index),
                    None => continue,
                },
                other => *other,
            };
            match self.aliases.entry(written.clone()) {
                Entry::Vacant(place) => drop(place.insert(binding)),
                Entry::Occupied(place) if place.get().leads_as(&binding) => {}
                Entry::Occupied(_) => differ.push(written.to_vec()),
            }
        }
        if differ.is_empty() { Ok(()) } else { Err(differ) }
    }
}

impl PathBinding {
    fn leads_as(&self, other: &PathBinding) -> bool {
        match (self, other) {
            (PathBinding::Dir(a), PathBinding::Dir(b)) => a == b,
            (PathBinding::Nowhere(a), PathBinding::Nowhere(b)) => a == b,
            (PathBinding::Elsewhere, PathBinding::Elsewhere) => true,
            _ => false,
        }
    }
}

impl Observation {
    /// Which object it was, in one state as far as either depends on that. Keeps the version that the rest is
    /// compared by.
    fn absorb_outcome(&mut self, other: &Observation) -> bool {
        let (ours, theirs) = match (self.outcome, other.outcome) {
            (Outcome::Absent(a), Outcome::Absent(b)) => return a == b,
            (Outcome::Present(a), Outcome::Present(b)) => (a, b),
            _ => return false,
        };
        if (ours.id, ours.kind()) != (theirs.id, theirs.kind()) {
            return false;
        }
        if ours.kind() == FileKind::Dir {
            // Its listing is not looked at again as long as it has this version.
            if self.listing.is_none() && other.listing.is_some() {
                self.outcome = other.outcome;
            }
            return (ours.mode, ours.uid, ours.gid) == (theirs.mode, theirs.uid, theirs.gid);
        }
        let only_name = |seen: &Observation| seen.facets() == Facets::ENTRY;
        if ours != theirs && only_name(self) {
            self.outcome = other.outcome;
            return true;
        }
        ours == theirs || only_name(other)
    }

    /// Adds what another transaction saw of the same name. Whether it was the same.
    fn absorb(&mut self, other: &Observation) -> bool {
        let agree = |a: &Option<_>, b: &Option<_>| a.is_none() || b.is_none() || a == b;
        let listings = |a: &Option<Box<super::ListingDigest>>, b: &Option<Box<_>>| {
            a.is_none() || b.is_none() || a == b
        };
        let same = self.absorb_outcome(other)
            && listings(&self.listing, &other.listing)
            && agree(&self.xattrs, &other.xattrs);
        let read = |seen: &Observation| seen.facets().intersects(Facets::DATA | Facets::ATTRS);
        self.pages = match (self.pages.take(), &other.pages) {
            (Some(mut ours), Some(theirs)) => {
                ours.extend(theirs.iter().copied());
                ours.sort_unstable();
                ours.dedup();
                Some(ours)
            }
            (Some(pages), None) if !read(other) => Some(pages),
            (None, Some(pages)) if !read(self) => Some(pages.clone()),
            _ => None,
        };
        self.facets |= other.facets;
        self.ambiguous |= other.ambiguous;
        self.listing = self.listing.take().or_else(|| other.listing.clone());
        self.xattrs = self.xattrs.or(other.xattrs);
        self.appended_beyond = self.appended_beyond.or(other.appended_beyond);
        same
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use crate::readset::Coverage;
    use crate::readset::validate::ValidationRules;

    #[test]
    fn both_hold() {
        let dir = std::env::temp_dir().join(format!("txos-absorb-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("d")).unwrap();
        let path = |name: &str| dir.join(name).into_os_string().into_encoded_bytes();
        for name in ["a", "b", "d/c"] {
            std::fs::write(dir.join(name), "1").unwrap();
        }
        let (mut ours, mut theirs) =
            (ReadSet::new(Coverage::default()), ReadSet::new(Coverage::default()));
        let whole = Facets::ENTRY | Facets::DATA | Facets::ATTRS;
        ours.note(&path("a"), true, whole);
        theirs.note(&path("a"), true, Facets::ENTRY);
        theirs.note(&path("d/c"), true, whole);
        theirs.note(&path("none"), true, Facets::ENTRY);
        ours.absorb(&theirs).unwrap();
        let valid = |reads: &ReadSet| {
            let found = reads.validate(ValidationRules::default(), &Default::default());
            found.into_iter().map(|c| c.path).collect::<Vec<_>>()
        };
        assert_eq!(valid(&ours), Vec::<std::path::PathBuf>::new());
        let again = ReadSet::from_bytes(&ours.to_bytes().unwrap(), &dir).unwrap();
        std::fs::write(dir.join("d/c"), "22").unwrap();
        std::fs::write(dir.join("none"), "").unwrap();
        let mut found = valid(&again);
        found.sort();
        assert_eq!(found, [dir.join("d/c"), dir.join("none")]);
        // Others changed it between the two looks.
        let mut late = ReadSet::new(Coverage::default());
        late.note(&path("d/c"), true, whole);
        assert_eq!(ours.absorb(&late), Err(vec![path("d/c")]));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
