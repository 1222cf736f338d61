//! The read set: what a transaction has seen of the stable tree, and whether it is still so.
//!
//! # Invariants
//!
//! - An observation is taken *before* the system call it stands for is let through, from the
//!   stable tree. If the object changes in between, the transaction sees something newer than the
//!   observation and validation fails: conservative, never overlooked.
//! - The **first** observation of a facet is kept. Later looks at the same facet cost one hash
//!   look-up: if it still validates at the end, every look in between saw the same.
//! - Observations are keyed by *canonical directory and name*. That a path as the program wrote it
//!   led to that directory is recorded separately, once per directory.
//! - Validation is by value: the look-up is made again and must give the same outcome. A name that
//!   came and went in a listed directory, or an unrelated change beside the object, is no conflict.
//!
//! What each facet compares is written at [`validate`].

mod absorb;
mod footprint;
mod names;
mod observe;
mod pages;
mod readahead;
mod record;
pub mod validate;
mod ways;

use serde::{Deserialize, Serialize, Serializer};

pub use crate::path::{is_at_or_below, join, split};
pub use footprint::Touch;
pub use names::ListingDigest;
pub use pages::{PAGE, page_digest};
pub use readahead::{AheadIn, Listed};
pub use ways::Way;

use crate::codec;
use crate::error::{Error, Result};
use crate::hash::OrderedMap;
use crate::object::{Facets, FileId, FileKind};
use crate::version::Version;

/// How a look-up ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The object was there.
    Present(Version),
    /// The look-up failed with this errno.
    Absent(i32),
}

/// What was seen of one name in one directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The first outcome.
    pub outcome: Outcome,
    facets: u8,
    /// The object kept changing while it was looked at on a kernel with coarse stamps.
    ambiguous: bool,
    /// The names in the directory, if it was listed.
    listing: Option<Box<ListingDigest>>,
    /// Digest of the extended attributes, if they were read.
    xattrs: Option<u64>,
    /// How long the private copy was when it was opened for appending only: what is beyond is the
    /// transaction's own. Others may have appended since the first look.
    pub(crate) appended_beyond: Option<u64>,
    /// The pages that were read, with their digests, if the file is followed page by page.
    #[expect(
        clippy::box_collection,
        reason = "a word instead of three in each observation; few have it"
    )]
    pages: Option<Box<Vec<(u64, u64)>>>,
}

impl Observation {
    /// A first look, of which no facet is noted yet.
    fn first(outcome: Outcome, ambiguous: bool) -> Observation {
        Observation {
            outcome,
            facets: 0,
            ambiguous,
            listing: None,
            xattrs: None,
            appended_beyond: None,
            pages: None,
        }
    }

    /// The facets that were seen.
    #[must_use]
    pub fn facets(&self) -> Facets {
        Facets(self.facets)
    }

    /// Whether its extended attributes were seen: they are compared.
    #[must_use]
    pub fn has_seen_xattrs(&self) -> bool {
        self.xattrs.is_some()
    }

    /// Notes facets that were seen. Those that were seen by now.
    fn add(&mut self, facets: Facets) -> Facets {
        self.facets |= facets.0;
        Facets(self.facets)
    }

    /// What of these facets the object has. What is no directory has no listing: a new directory of the
    /// transaction's at its name may have been listed, or it was tried to.
    fn possible(&self, facets: Facets) -> Facets {
        match self.outcome {
            Outcome::Present(version) if version.kind() != FileKind::Dir => {
                Facets(facets.0 & !Facets::LISTING.0)
            }
            _ => facets,
        }
    }

    /// Notes that the transaction was going to change the object itself, not only this name of it: it opened it
    /// for writing, or changed its attributes. Asked of what is no directory, which has no listing: the same
    /// bit stands for it there.
    fn alter(&mut self, facets: Facets) {
        let changes = facets.contains(Facets::WRITE) && !facets.contains(Facets::REPLACED);
        if changes
            && let Outcome::Present(version) = self.outcome
            && version.nlink > 1
            && version.kind() != FileKind::Dir
        {
            self.facets |= Facets::LISTING.0;
        }
    }

    /// Whether the transaction may have changed the object, which has other names, by this one.
    pub(crate) fn is_altered(&self) -> bool {
        let is_dir = |v: &Version| v.kind() == FileKind::Dir;
        let Outcome::Present(version) = self.outcome else { return false };
        !is_dir(&version) && self.facets().contains(Facets::LISTING)
    }
}

/// One directory of which something was seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SeenDir {
    /// Canonical absolute path in the stable tree.
    path: Vec<u8>,
    /// Whether the transaction versions what lies there (else nothing is recorded).
    versioned: bool,
    #[serde(serialize_with = "in_order")]
    entries: OrderedMap<Box<[u8]>, Observation>,
    /// Which directory it is; not known of a set that was stored.
    #[serde(skip)]
    id: Option<FileId>,
    /// What was observed ahead: not seen yet, as far as is known.
    #[serde(skip)]
    ahead: OrderedMap<Box<[u8]>, Version>,
}

/// Where a directory path, as a program wrote it, led.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum PathBinding {
    /// To the directory with this index.
    Dir(u32),
    /// Nowhere: this errno.
    Nowhere(i32),
    /// To something that is not versioned.
    Elsewhere,
}

/// What is versioned: decides which observations are kept.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// If not empty: only what lies at or below one of these canonical paths.
    pub only_under: Vec<Vec<u8>>,
    /// Never what lies at or below one of these canonical paths.
    pub never_under: Vec<Vec<u8>>,
    /// Never what lies on one of these devices.
    pub never_on: Vec<u64>,
}

impl Coverage {
    /// Whether a directory at this canonical path on this device is versioned.
    #[must_use]
    pub fn covers(&self, path: &[u8], dev: u64) -> bool {
        !self.never_on.contains(&dev)
            && !self.never_under.iter().any(|p| is_at_or_below(path, p))
            && (self.only_under.is_empty()
                || self.only_under.iter().any(|p| is_at_or_below(path, p)))
    }

    /// Whether the directory itself is outside `only_under`, but an entry `name` of it is a scope root.
    fn covers_entry(&self, dir: &SeenDir, name: &[u8]) -> bool {
        if dir.versioned {
            return !self.never_under.iter().any(|p| is_entry(p, &dir.path, name));
        }
        self.only_under.iter().any(|p| is_entry(p, &dir.path, name))
    }
}

/// Whether `path` is the entry `name` of `dir`.
fn is_entry(path: &[u8], dir: &[u8], name: &[u8]) -> bool {
    let dir = if dir == b"/" { b"" } else { dir };
    path.len() == dir.len() + 1 + name.len()
        && path.starts_with(dir)
        && path.get(dir.len()) == Some(&b'/')
        && path.ends_with(name)
}

/// Everything a transaction has seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReadSet {
    coverage: Coverage,
    dirs: Vec<SeenDir>,
    /// Canonical path → index in `dirs`.
    #[serde(serialize_with = "in_order")]
    by_path: OrderedMap<Box<[u8]>, u32>,
    /// Path as written → where it led.
    #[serde(serialize_with = "in_order")]
    aliases: OrderedMap<Box<[u8]>, PathBinding>,
    /// Something may have been put in the place of an object whose name has no [`Facets::REPLACED`].
    replacements_missed: bool,
    /// What was observed since it was last asked for; `None`: nobody asks.
    #[serde(skip)]
    round: Option<footprint::Round>,
    /// Ways that were acquired as an earlier transaction had found them.
    #[serde(skip)]
    trusted: Vec<std::sync::Arc<Way>>,
    /// The last look led through a directory that is not versioned.
    #[serde(skip)]
    led_outside: bool,
}

/// Stores equal maps as equal bytes.
fn in_order<V: Serialize, S: Serializer>(
    map: &OrderedMap<Box<[u8]>, V>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    serializer.collect_map(entries)
}

/// First bytes of a stored read set.
const FILE_MAGIC: &[u8; 8] = b"TXOSREAD";
/// Format of a stored read set.
pub(crate) const FILE_VERSION: u32 = 5;
/// The format before: it does not say whether replacements were missed.
const FILE_VERSION_SILENT: u32 = 4;

impl ReadSet {
    /// An empty read set over what `coverage` says.
    #[must_use]
    pub fn new(coverage: Coverage) -> Self {
        ReadSet { coverage, ..ReadSet::default() }
    }

    /// What is recorded at all.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Leaves out what lies at or below some canonical paths: the transaction can't see it, or it is live from now on. What
    /// was seen there stays seen.
    pub fn leave_out(&mut self, paths: &[Vec<u8>]) {
        self.coverage.never_under.extend(paths.iter().cloned());
        let left_out = |path: &[u8]| paths.iter().any(|p| is_at_or_below(path, p));
        let dirs = &self.dirs;
        let leads_there =
            |&index: &u32| dirs.get(index as usize).is_some_and(|d| left_out(&d.path));
        self.by_path.retain(|_, index| !leads_there(index));
        self.aliases.retain(|_, binding| match binding {
            PathBinding::Dir(index) => !leads_there(index),
            PathBinding::Nowhere(_) | PathBinding::Elsewhere => true,
        });
    }

    /// What a later command of the transaction has live is what is left out from now on.
    pub fn goes_by(&mut self, later: &Coverage) {
        let without = |all: &[Vec<u8>], others: &[Vec<u8>]| -> Vec<Vec<u8>> {
            all.iter().filter(|path| !others.contains(path)).cloned().collect()
        };
        let no_more = without(&self.coverage.never_under, &later.never_under);
        let more = without(&later.never_under, &self.coverage.never_under);
        if !no_more.is_empty() {
            self.leave_out_no_more(&no_more);
        }
        if !more.is_empty() {
            self.leave_out(&more);
        }
    }

    /// Records again what lies at or below these paths: a later command of the transaction sees it.
    pub fn leave_out_no_more(&mut self, paths: &[Vec<u8>]) {
        self.coverage.never_under.retain(|left_out| !paths.contains(left_out));
        let hidden = |path: &[u8]| paths.iter().any(|p| crate::path::is_at_or_below(path, p));
        let dirs = &self.dirs;
        let was_left_out = |&index: &u32| {
            dirs.get(index as usize).is_some_and(|dir| !dir.versioned && hidden(&dir.path))
        };
        self.by_path.retain(|_, index| !was_left_out(index));
        self.aliases.retain(|written, binding| match binding {
            PathBinding::Dir(index) => !was_left_out(index),
            PathBinding::Nowhere(_) => true,
            PathBinding::Elsewhere => !observe::real_path(written).is_some_and(|p| hidden(&p)),
        });
        // What was seen there before it was left out.
        for (dir, index) in
            self.dirs.iter().zip(0..).filter(|(dir, _)| dir.versioned && hidden(&dir.path))
        {
            self.by_path.entry(dir.path.clone().into()).or_insert(index);
        }
    }

    /// A program of the transaction changed names in a way that nobody could follow: from now on, that a
    /// name has no [`Facets::REPLACED`] does not mean that the object there was kept.
    pub fn misses_replacements(&mut self) {
        self.replacements_missed = true;
    }

    /// Whether the transaction is known to have put nothing in the place of what it saw at a path.
    pub(crate) fn kept(&self, path: &[u8]) -> bool {
        !self.replacements_missed
            && self.get(path).is_some_and(|seen| !seen.facets().contains(Facets::REPLACED))
    }

    /// Whether paths are walked again as programs wrote them.
    pub(crate) fn walks_paths(&self) -> bool {
        !self.aliases.is_empty()
    }

    /// Number of observations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.dirs.iter().map(|d| d.entries.len()).sum()
    }

    /// Whether nothing was seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dirs.iter().all(|d| d.entries.is_empty())
    }

    /// What was seen at a canonical path, if anything.
    #[must_use]
    pub fn get(&self, path: &[u8]) -> Option<&Observation> {
        let (dir, name) = split(path)?;
        let index = *self.by_path.get(dir)?;
        self.dirs.get(index as usize)?.entries.get(name)
    }

    /// Every observation, with its canonical path, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Vec<u8>, &Observation)> {
        self.dirs.iter().flat_map(|d| d.entries.iter().map(|(n, o)| (join(&d.path, n), o)))
    }

    /// Replaces versions by later ones of the same objects, which are as good. Whether there were any.
    pub(crate) fn moved_on(&mut self, versions: &[(Version, Version)]) -> bool {
        let mut any = false;
        for seen in self.dirs.iter_mut().flat_map(|dir| dir.entries.values_mut()) {
            if let Outcome::Present(was) = &mut seen.outcome
                && let Some((_, now)) = versions.iter().find(|(before, _)| before == was)
            {
                *was = *now;
                any = true;
            }
        }
        any
    }

    /// Changes the versions in which objects were seen at absolute paths.
    pub(crate) fn each_present(&mut self, mut change: impl FnMut(&[u8], &mut Version)) {
        for dir in &mut self.dirs {
            for (name, seen) in &mut dir.entries {
                if let Outcome::Present(was) = &mut seen.outcome {
                    change(&join(&dir.path, name), was);
                }
            }
        }
    }

    /// Forgets what a partial commit has published: those observations are of versions that this
    /// transaction has itself replaced, and hold no longer.
    pub(crate) fn forget(&mut self, published: &validate::OwnWrites) {
        let gone = |path: &[u8]| published.moved(path);
        for dir in &mut self.dirs {
            if gone(&dir.path) {
                dir.entries.clear();
            }
            let at = dir.path.clone();
            // Another name of an inode that was changed shows it, too.
            let linked = |seen: &Observation| match seen.outcome {
                Outcome::Present(v) => published.inodes.contains(&v.id),
                Outcome::Absent(_) => false,
            };
            dir.entries.retain(|name, seen| {
                !published.verified.contains(&join(&at, name)) && !linked(seen)
            });
            for (name, seen) in &mut dir.entries {
                if let Some(listing) = &mut seen.listing {
                    **listing = published.listed(&join(&at, name), listing).0;
                }
            }
        }
        let dirs = &self.dirs;
        self.aliases.retain(|written, alias| match alias {
            PathBinding::Dir(index) => {
                !dirs.get(*index as usize).is_some_and(|d| gone(&d.path))
                    && !published.may_pass(written)
            }
            PathBinding::Nowhere(_) => !published.may_pass(written),
            PathBinding::Elsewhere => true,
        });
    }

    /// The read set as bytes: magic, format, CRC-32 of the rest, then the rest in postcard
    /// encoding (docs/store-format.md).
    ///
    /// # Errors
    /// Only if the encoder fails, which it does not for these types.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let body = postcard::to_stdvec(self)
            .map_err(|e| Error::io("encoding", "the read set", std::io::Error::other(e)))?;
        Ok(codec::seal(FILE_MAGIC, FILE_VERSION, &body))
    }

    /// Reads what [`ReadSet::to_bytes`] wrote; `path` is for messages.
    ///
    /// # Errors
    /// [`Error::Format`] for anything else; nothing is guessed at.
    pub fn from_bytes(bytes: &[u8], path: &std::path::Path) -> Result<Self> {
        let bad = |problem: &str| Error::Format {
            path: path.to_owned(),
            problem: problem.to_owned(),
            advice: "Abort the transaction with `txos abort`; it can't be committed safely.",
        };
        let known = FILE_VERSION_SILENT..=FILE_VERSION;
        let (version, body) =
            codec::open(bytes, FILE_MAGIC, "a read set", known).map_err(|p| bad(&p))?;
        // The older format ends where the newer one says whether replacements were missed: they may have been.
        let missed: &[u8] = if version == FILE_VERSION_SILENT { &[1] } else { &[] };
        let body = [body, missed].concat();
        let set: ReadSet = postcard::from_bytes(&body).map_err(|_| bad("is damaged (encoding)"))?;
        let dirs = set.dirs.len();
        let inside = |index: u32| (index as usize) < dirs;
        let sound = set.by_path.values().all(|&i| inside(i))
            && set.aliases.values().all(|a| !matches!(a, PathBinding::Dir(i) if !inside(*i)));
        if sound { Ok(set) } else { Err(bad("is damaged (index)")) }
    }
}

#[cfg(test)]
mod tests;
