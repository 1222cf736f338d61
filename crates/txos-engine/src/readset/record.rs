//! Observations that the caller has made himself: an in-process transaction has looked already, and
//! needs no second look-up.

use super::{ListingDigest, Observation, Outcome, ReadSet, SeenDir, Touch};
use crate::object::{Facets, FileId};
use crate::version::Stamp;

impl ReadSet {
    /// Records what the caller has just seen of `name` in the directory `dir` (canonical and
    /// absolute; `dir_id` is its identity). The first outcome is kept, facets are added up.
    ///
    /// - The observation must have been made before the transaction was told of it, with
    ///   [`crate::version::observe`] or [`crate::version::unambiguous`]: a version that is still racy is
    ///   recorded as ambiguous, which no validation lets pass.
    /// - [`Facets::DATA`] means the whole content. Whoever reads single pages leaves it out, and calls
    ///   [`ReadSet::note_pages`].
    /// - After [`Facets::LISTING`] and [`Facets::XATTRS`] follow [`ReadSet::note_names`] and
    ///   [`ReadSet::note_xattrs`].
    /// - What is not in the [`super::Coverage`] is not recorded.
    pub fn note_seen(
        &mut self,
        dir: &[u8],
        dir_id: FileId,
        name: &[u8],
        outcome: Outcome,
        facets: Facets,
    ) {
        let Some(index) = self.index_of(dir, dir_id) else { return };
        let Some(seen_in) = self.dirs.get_mut(index as usize) else { return };
        if !self.coverage.covers_entry(seen_in, name) {
            return;
        }
        let facets = facets | Facets::ENTRY;
        let (before, after) = match seen_in.entries.get_mut(name) {
            Some(seen) => (Some(seen.facets), seen.add(facets)),
            None => {
                let mut seen = observed(outcome);
                let after = seen.add(facets);
                seen_in.entries.insert(name.into(), seen);
                (None, after)
            }
        };
        if let Some(round) = &mut self.round
            && before != Some(after.0)
        {
            let (facets, first) = (after, before.is_none());
            round.touches.push(Touch { dir: index, name: name.into(), facets, first });
        }
    }

    /// What was seen kept changing while it was looked at: [`crate::version::unambiguous`] said so.
    pub fn note_ambiguous(&mut self, dir: &[u8], name: &[u8]) {
        if let Some(seen) = self.seen_mut(dir, name) {
            seen.ambiguous = true;
        }
    }

    /// The names that the caller has listed in the directory that is the entry `name` of `dir`. It
    /// has been noted as seen; the first listing is kept.
    ///
    /// `false` if an earlier one was another: what comes and goes between two looks is not there
    /// any more when the first is validated, so the caller has to end the transaction himself.
    #[must_use]
    pub fn note_names(&mut self, dir: &[u8], name: &[u8], names: ListingDigest) -> bool {
        let Some(seen) = self.seen_mut(dir, name) else { return true };
        seen.facets |= Facets::LISTING.0;
        **seen.listing.get_or_insert_with(|| Box::new(names)) == names
    }

    /// The digest ([`crate::sys::xattr_digest`]) of the extended attributes that the caller has read.
    pub fn note_xattrs(&mut self, dir: &[u8], name: &[u8], digest: u64) {
        if let Some(seen) = self.seen_mut(dir, name) {
            seen.facets |= Facets::XATTRS.0;
            seen.xattrs.get_or_insert(digest);
        }
    }

    /// Pages of a file that the caller has read, with their [`super::page_digest`]s; of each the
    /// first is kept. Without pages: the caller has changed pages without reading them.
    ///
    /// From the first call on the file is followed by pages: as long as neither [`Facets::DATA`] nor
    /// its attributes are noted, a change of other pages by somebody else is no conflict.
    pub fn note_pages(&mut self, dir: &[u8], name: &[u8], pages: &[(u64, u64)]) {
        if let Some(seen) = self.seen_mut(dir, name) {
            let kept = seen.pages.get_or_insert_default();
            for page in pages {
                if let Err(at) = kept.binary_search_by_key(&page.0, |(number, _)| *number) {
                    kept.insert(at, *page);
                }
            }
        }
    }

    fn seen_mut(&mut self, dir: &[u8], name: &[u8]) -> Option<&mut Observation> {
        let index = *self.by_path.get(dir)?;
        self.dirs.get_mut(index as usize)?.entries.get_mut(name)
    }

    fn index_of(&mut self, path: &[u8], id: FileId) -> Option<u32> {
        if let Some(&index) = self.by_path.get(path) {
            return Some(index);
        }
        let index = u32::try_from(self.dirs.len()).ok()?;
        let versioned = self.coverage.covers(path, id.dev);
        self.by_path.insert(path.into(), index);
        let path = path.to_vec();
        let (entries, ahead) = Default::default();
        self.dirs.push(SeenDir { path, versioned, entries, id: Some(id), ahead });
        Some(index)
    }
}

fn observed(outcome: Outcome) -> Observation {
    let ambiguous = match outcome {
        Outcome::Present(version) => version.is_known_racy(Stamp::now_coarse()),
        Outcome::Absent(_) => false,
    };
    Observation::first(outcome, ambiguous)
}
