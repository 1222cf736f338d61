//! Reading ahead for the recorder: when a program goes through a directory in an order, name by name, the
//! names that come next are observed before they are asked for, and it is not stopped at each. One that has
//! listed the directory goes through it, often; of another, which has its names from elsewhere (a shell's
//! pattern, an index), that is supposed after some looks, and the supervisor lists the directory for itself.
//!
//! # Invariants
//!
//! - A name is observed, and acquired in the realm without having waited, before its key is in the area;
//!   and only a program that has marked the key looks without being stopped. So the observation of each
//!   look is taken before the look, as without reading ahead.
//! - What was looked at is known from the marks when a batch is flushed, at the latest when the command
//!   has ended; nothing else becomes part of the read set.
//!
//! What was observed and not looked at costs its observation, and stays acquired until the end. So a
//! batch is small at first, grows only while what it held is looked at, and a transaction most of whose
//! batches were for nothing reads ahead no more.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use txos_engine::object::Facets;
use txos_engine::readset::{Listed, ReadSet};
use txos_recorder::area::{Class, Key, Start};

use crate::participant::Participant;
use crate::sys::area::Area;

/// How many names the first batch of a directory has, and the largest.
const FIRST: usize = 16;
const MOST: usize = 2048;

/// How far apart two names may be that are looked at one after the other.
const STRIDE: usize = 3;

/// How often a directory is listed to find out in which order a program goes through it.
const TRIES_MAX: u32 = 3;

/// After so many looks into a directory that the program has not listed it is tried for the first time, and after four times
/// as many each time it was in vain.
const UNLISTED_AFTER: u32 = 4;

/// Batches at a time; the oldest is flushed for a new one.
const BATCHES_MAX: usize = 64;

/// After this long what was observed is too old to be worth anything: others will have changed some of it.
const OLD: Duration = Duration::from_secs(1);

/// Names after which it is judged whether reading ahead is of use at all.
const JUDGED_AFTER: usize = 512;

/// What is observed ahead.
#[derive(Debug, Default)]
pub struct Ahead {
    batches: VecDeque<Batch>,
    directories: HashMap<u32, Progress>,
    /// Names observed ahead and flushed, and how many of them were looked at.
    flushed: usize,
    used: usize,
}

/// How a program goes through a directory.
#[derive(Debug, Default)]
struct Progress {
    /// What was looked at last, as far as is expected.
    last: Vec<u8>,
    looks: u32,
    tries: u32,
    /// The program has listed it.
    listed: bool,
    /// Size of the next batch; 0 before the first.
    size: usize,
    /// The names behind the last batch, in the order that was found.
    rest: VecDeque<Listed>,
}

/// Names of one directory that were observed together.
#[derive(Debug)]
struct Batch {
    dir: u32,
    facets: Facets,
    at: Instant,
    names: Vec<Pending>,
}

#[derive(Debug)]
struct Pending {
    name: Vec<u8>,
    slot: usize,
    key: u64,
}

/// A look that the kernel reported.
#[derive(Debug)]
pub struct ReportedLook<'a> {
    /// The path, absolute in the view.
    pub path: &'a [u8],
    /// The path as it was written.
    pub written: &'a [u8],
    /// Where a relative path starts.
    pub start: Start,
    /// Whether a link at the end is followed.
    pub follow: bool,
    /// What it looks at.
    pub facets: Facets,
}

impl Ahead {
    /// Whether there may be anything to read ahead after a look at this path.
    #[must_use]
    pub fn is_of_use(&mut self, reads: &ReadSet, path: &[u8]) -> bool {
        let useless = self.flushed >= JUDGED_AFTER && self.used < self.flushed / 2;
        let Some((index, name, listed)) = reads.parent_of(path).filter(|_| !useless) else {
            return false;
        };
        let progress = self.directories.entry(index).or_default();
        progress.looks = progress.looks.saturating_add(1);
        if listed && !progress.listed {
            // Who lists it goes through it, whatever was looked at before.
            (progress.listed, progress.tries) = (true, 0);
        }
        let is_due = progress.looks >= UNLISTED_AFTER << (2 * progress.tries.min(TRIES_MAX));
        let of_use = progress.tries < TRIES_MAX && (listed || progress.size > 0 || is_due);
        if !of_use {
            name.clone_into(&mut progress.last);
        }
        of_use
    }

    /// Reads ahead after a look, if it is one of a sequence.
    pub fn after(
        &mut self,
        look: &ReportedLook<'_>,
        reads: &mut ReadSet,
        participant: &mut Participant,
        area: &Area,
    ) {
        let Some((index, name, listed)) = reads.parent_of(look.path) else { return };
        // The last name as it was written must be that of the path: no slash at the end.
        let Some(prefix) = look.written.strip_suffix(name) else { return };
        while self.batches.front().is_some_and(|b| b.at.elapsed() > OLD) {
            self.flush_first(reads, area);
        }
        let progress = self.directories.entry(index).or_default();
        let last = std::mem::replace(&mut progress.last, name.to_vec());
        if last.is_empty() || progress.tries >= TRIES_MAX {
            return;
        }
        let Some(at) = reads.ahead_in(index).filter(|at| listed || at.is_small()) else {
            progress.tries += 1;
            return;
        };
        let mut rest = std::mem::take(&mut progress.rest);
        if let Some(next) = rest.iter().take(STRIDE).position(|listed| listed.name == name) {
            rest.drain(..=next);
        } else {
            let names = at.list();
            let Some(order) = order(names, listed, &last, name) else {
                progress.tries += 1;
                return;
            };
            rest = order.collect();
        }
        if let Some(position) = self.batches.iter().position(|b| b.dir == index) {
            let (all, used) = self.flush_batch(position, reads, area);
            let progress = self.directories.entry(index).or_default();
            if used < all - all / 4 {
                progress.tries = TRIES_MAX;
                return;
            }
        }
        if self.batches.len() >= BATCHES_MAX {
            self.flush_first(reads, area);
        }
        let progress = self.directories.entry(index).or_default();
        progress.size = if progress.size == 0 { FIRST } else { (progress.size * 4).min(MOST) };
        let size = progress.size;
        let class = Class { facets: look.facets.0, follow: look.follow };
        let begun = Key::new(area.generation(), class, &look.start).bytes(prefix);
        let mut batch =
            Batch { dir: index, facets: look.facets, at: Instant::now(), names: Vec::new() };
        while batch.names.len() < size {
            let Some(listed) = rest.pop_front() else { break };
            // Where the next look is expected that the kernel reports.
            if let Some(progress) = self.directories.get_mut(&index) {
                progress.last.clone_from(&listed.name);
            }
            if !reads.look_ahead(&at, &listed.name, look.follow) {
                continue;
            }
            let key = begun.bytes(&listed.name).finish();
            let slot = if participant.acquire_ahead(reads, index, &listed.name, look.facets) {
                area.put_ahead(key)
            } else {
                None
            };
            match slot {
                Some(slot) => batch.names.push(Pending { name: listed.name, slot, key }),
                None => reads.end_look_ahead(index, &listed.name, None),
            }
        }
        if let Some(progress) = self.directories.get_mut(&index) {
            progress.rest = rest;
        }
        if !batch.names.is_empty() {
            self.batches.push_back(batch);
        }
    }

    /// Adds to the read set, of all that was observed ahead, what a program looked at.
    pub fn flush(&mut self, reads: &mut ReadSet, area: &Area) {
        while !self.batches.is_empty() {
            self.flush_first(reads, area);
        }
    }

    fn flush_first(&mut self, reads: &mut ReadSet, area: &Area) {
        self.flush_batch(0, reads, area);
    }

    /// Flushes one batch: of how many names, how many were looked at.
    fn flush_batch(&mut self, position: usize, reads: &mut ReadSet, area: &Area) -> (usize, usize) {
        let Some(batch) = self.batches.remove(position) else { return (0, 0) };
        let mut used = 0;
        for pending in &batch.names {
            let looked_at = area.take_ahead(pending.slot, pending.key).then_some(batch.facets);
            used += usize::from(looked_at.is_some());
            reads.end_look_ahead(batch.dir, &pending.name, looked_at);
        }
        self.flushed += batch.names.len();
        self.used += used;
        (batch.names.len(), used)
    }
}

/// The names that come after `name`, in the order in which a program went from `last` to it: if it has listed
/// the directory, that of the directory, of inode numbers or of names, and else the other way round. `None`: in none of them.
fn order(
    mut names: Vec<Listed>,
    listed: bool,
    last: &[u8],
    name: &[u8],
) -> Option<impl Iterator<Item = Listed>> {
    let mut found = if listed { after(&names, last, name) } else { None };
    for by_name in [!listed, listed] {
        if found.is_none() {
            match by_name {
                true => names.sort_unstable_by(|a, b| a.name.cmp(&b.name)),
                false => names.sort_unstable_by_key(|listed| listed.ino),
            }
            found = after(&names, last, name);
        }
    }
    let next = found?;
    Some(names.into_iter().skip(next))
}

fn after(names: &[Listed], last: &[u8], name: &[u8]) -> Option<usize> {
    let at = names.iter().position(|listed| listed.name == name)?;
    let before = names.get(at.saturating_sub(STRIDE)..at)?;
    before.iter().any(|listed| listed.name == last).then_some(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_that_programs_go_by() {
        let names = || {
            [("b", 9), ("a", 7), ("d", 2), ("c", 4), ("e", 8), ("f", 1), ("g", 3)]
                .map(|(name, ino)| Listed { name: name.into(), ino })
                .to_vec()
        };
        let of = |listed: bool, last: &str, name: &str| {
            let order = order(names(), listed, last.as_bytes(), name.as_bytes())?;
            Some(order.map(|l| String::from_utf8(l.name).unwrap()).collect::<String>())
        };
        assert_eq!(of(true, "b", "a").as_deref(), Some("dcefg"));
        assert_eq!(of(true, "b", "d").as_deref(), Some("cefg"));
        assert_eq!(of(true, "f", "d").as_deref(), Some("gcaeb"));
        assert_eq!(of(true, "e", "f").as_deref(), Some("g"));
        assert_eq!(of(true, "g", "b"), None);
        assert_eq!(of(true, "x", "a"), None);
        // Who has not listed it knows names.
        assert_eq!(of(false, "b", "d").as_deref(), Some("efg"));
        assert_eq!(of(false, "f", "d").as_deref(), Some("gcaeb"));
        assert_eq!(of(false, "b", "a"), None);
    }
}
