//! What a crash may leave on a disk.
//!
//! A crash comes between two events of the log. Every write before the last flush is on the medium. Of those
//! since, any may be there, in any order, and of each any sectors: that is all a disk with a volatile
//! cache promises, and no file system may rely on more. A [`State`] is one such outcome.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::SeekFrom;

use super::log::{Event, Log};
use crate::random::Random;

/// What kind of outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// Everything before a flush, and nothing behind it.
    Flush,
    /// Everything before some event, in order.
    Prefix,
    /// Some of the writes since the last flush are missing.
    Subset,
    /// The same, and the later of overlapping writes need not win.
    Reordered,
    /// The same, and some writes are there in part.
    Torn,
}

impl Cut {
    /// All of them.
    pub const ALL: [Cut; 5] = [Cut::Flush, Cut::Prefix, Cut::Subset, Cut::Reordered, Cut::Torn];
}

/// A write that reached the medium without being flushed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kept {
    event: usize,
    /// Which units of it did; empty: all.
    units: Vec<bool>,
}

/// What a medium can do.
#[derive(Clone, Debug)]
pub struct Medium {
    /// So many bytes are written whole or not at all.
    pub unit: usize,
    /// And so is what lies here.
    pub whole: Vec<Range<u64>>,
}

/// One outcome of a crash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The crash was before this event.
    pub at: usize,
    /// Writes before this event are there, as it is a flush (or the begin).
    flushed: usize,
    unflushed: Vec<Kept>,
    unit: usize,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "crash at event {}, flushed before {}", self.at, self.flushed)?;
        for kept in &self.unflushed {
            write!(f, ", {}", kept.event)?;
            if !kept.units.is_empty() {
                let there = kept.units.iter().filter(|there| **there).count();
                write!(f, " ({there} of {} units)", kept.units.len())?;
            }
        }
        Ok(())
    }
}

impl State {
    /// Everything before an event that is a flush, or the end, when all has happened that could happen
    /// without another write.
    #[must_use]
    pub fn at_flush(log: &Log, flush: usize) -> State {
        let behind = log.events.get(flush..).unwrap_or_default();
        let next = behind.iter().position(|e| matches!(e, Event::Write { .. }));
        let at = next.map_or(log.events.len(), |next| flush + next);
        State { at, flushed: flush, unflushed: Vec::new(), unit: 512 }
    }

    /// Nothing behind an event, which itself is behind a flush; and what is there at each flush behind it
    /// that has something to flush.
    #[must_use]
    pub fn at_flushes(log: &Log, begin: usize) -> Vec<State> {
        let mut states = vec![State::at_flush(log, begin)];
        let mut written = false;
        for (i, event) in log.events.iter().enumerate() {
            match event {
                Event::Write { .. } => written = true,
                Event::Flush if written && i >= begin => {
                    states.push(State::at_flush(log, i));
                    written = false;
                }
                Event::Flush | Event::Mark(_) => {}
            }
        }
        states
    }

    /// Where a crash may come, behind an event, such that something is not flushed: for each flush, the
    /// events before it back to the last one.
    #[must_use]
    pub fn places(log: &Log, begin: usize) -> Vec<Range<usize>> {
        let mut places = Vec::new();
        let mut first = None;
        for (i, event) in log.events.iter().enumerate() {
            match event {
                Event::Write { .. } => {
                    first.get_or_insert(i + 1);
                }
                Event::Flush => places.extend(first.take().map(|first: usize| first..i + 1)),
                Event::Mark(_) => {}
            }
        }
        places.extend(first.map(|first| first..log.events.len() + 1));
        places.retain(|place| place.start > begin);
        places
    }

    /// A random outcome of a crash, behind an event.
    #[must_use]
    pub fn any(log: &Log, begin: usize, cut: Cut, medium: &Medium, random: &mut Random) -> State {
        let places = State::places(log, begin);
        let Some(place) = places.get(random.below(places.len() as u64) as usize) else {
            return State::at_flush(log, begin);
        };
        let at = place.start + random.below((place.end - place.start) as u64) as usize;
        State::random(log, at, cut, medium, random)
    }

    /// A crash right behind a write of something, behind an event: all is there but a part of this write.
    /// `None` if there is none of more than one unit.
    #[must_use]
    pub fn torn(
        log: &Log,
        begin: usize,
        of: &[u8],
        medium: &Medium,
        random: &mut Random,
    ) -> Option<State> {
        let is_of = |event: &Event| match event {
            Event::Write { bytes, .. } => {
                let bytes = log.bytes(bytes);
                bytes.len() > medium.unit && bytes.chunks(512).any(|sector| sector.starts_with(of))
            }
            _ => false,
        };
        let writes: Vec<usize> =
            (begin..log.events.len()).filter(|i| log.events.get(*i).is_some_and(is_of)).collect();
        let event = *writes.get(random.below(writes.len() as u64) as usize)?;
        let mut state = State::random(log, event + 1, Cut::Prefix, medium, random);
        let kept = state.unflushed.iter_mut().find(|kept| kept.event == event)?;
        if let Some(Event::Write { bytes, .. }) = log.events.get(event) {
            kept.units = there(bytes.len().div_ceil(medium.unit), random);
        }
        Some(state)
    }

    /// A random outcome of a crash before an event.
    #[must_use]
    pub fn random(log: &Log, at: usize, cut: Cut, medium: &Medium, random: &mut Random) -> State {
        let before = log.events.get(..at).unwrap_or_default();
        let flushed = before.iter().rposition(|e| *e == Event::Flush).unwrap_or(0);
        let pending =
            (flushed..at).filter(|i| matches!(log.events.get(*i), Some(Event::Write { .. })));
        let mut unflushed: Vec<Kept> = match cut {
            Cut::Flush => Vec::new(),
            _ => pending.map(|event| Kept { event, units: Vec::new() }).collect(),
        };
        // A single damage is seen best where nothing else is missing.
        let only_torn = cut == Cut::Torn && random.below(2) == 0;
        if !matches!(cut, Cut::Flush | Cut::Prefix) && !only_torn {
            // Few missing, few there, or half of them.
            match random.below(4) {
                0 => {
                    let missing = random.below(unflushed.len() as u64) as usize;
                    if missing < unflushed.len() {
                        unflushed.remove(missing);
                    }
                }
                1 => unflushed.retain(|_| random.below(8) == 0),
                2 => unflushed.retain(|_| random.below(8) != 0),
                _ => unflushed.retain(|_| random.below(2) == 0),
            }
        }
        if matches!(cut, Cut::Reordered | Cut::Torn) && !only_torn {
            for i in (1..unflushed.len()).rev() {
                unflushed.swap(i, random.below(i as u64 + 1) as usize);
            }
        }
        if cut == Cut::Torn {
            let single = random.below(unflushed.len() as u64) as usize;
            for (i, kept) in unflushed.iter_mut().enumerate() {
                if only_torn && i != single {
                    continue;
                }
                let Some(Event::Write { at, bytes }) = log.events.get(kept.event) else { continue };
                let units = bytes.len().div_ceil(medium.unit);
                let end = at + bytes.len() as u64;
                let fixed = medium.whole.iter().any(|r| r.start < end && *at < r.end);
                if units > 1 && !fixed && (only_torn || random.below(2) == 0) {
                    kept.units = there(units, random);
                }
            }
        }
        State { at, flushed, unflushed, unit: medium.unit }
    }

    /// Makes an image: the one before the log began, and what is there of the log.
    ///
    /// # Errors
    /// Of reading or writing files.
    pub fn write_image(&self, log: &Log, base: &Path, to: &Path) -> io::Result<()> {
        copy_sparse(base, to)?;
        let file = File::options().write(true).open(to)?;
        for event in log.events.get(..self.flushed).unwrap_or_default() {
            if let Event::Write { at, bytes } = event {
                file.write_all_at(log.bytes(bytes), *at)?;
            }
        }
        for kept in &self.unflushed {
            let Some(Event::Write { at, bytes }) = log.events.get(kept.event) else { continue };
            let bytes = log.bytes(bytes);
            if kept.units.is_empty() {
                file.write_all_at(bytes, *at)?;
                continue;
            }
            for (i, unit) in bytes.chunks(self.unit).enumerate() {
                if kept.units.get(i) == Some(&true) {
                    file.write_all_at(unit, at + (i * self.unit) as u64)?;
                }
            }
        }
        Ok(())
    }
}

/// Which of some units of a write are there: the first, all but one, or any.
fn there(units: usize, random: &mut Random) -> Vec<bool> {
    let one = random.below(units as u64) as usize;
    match random.below(3) {
        0 => (0..units).map(|i| i < one).collect(),
        1 => (0..units).map(|i| i != one).collect(),
        _ => (0..units).map(|_| random.below(2) == 0).collect(),
    }
}

/// Copies a file with its holes.
///
/// # Errors
/// Of reading or writing.
pub fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let from = File::open(from)?;
    let to = File::create(to)?;
    let len = from.metadata()?.len();
    to.set_len(len)?;
    let mut buffer = vec![0; 1 << 18];
    let mut at = 0;
    while at < len {
        let data = match rustix::fs::seek(&from, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let end = rustix::fs::seek(&from, SeekFrom::Hole(data))?;
        at = data;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let room = buffer.get_mut(..want).unwrap_or_default();
            from.read_exact_at(room, at)?;
            to.write_all_at(room, at)?;
            at += want as u64;
        }
    }
    Ok(())
}
