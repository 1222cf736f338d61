//! The order of a list's versions: the longest read tells it, and every other read must be its
//! beginning. Appends that no read has are after it, in no known order.

use std::collections::{HashMap, HashSet};

use super::effect::Effects;
use super::graph::Node;
use super::keys::Key;
use super::op::NEVER;
use super::reads::Read;
use super::report::{Kind, Report};
use super::versions::{Faults, Versions};

/// Orders a list's versions, and reports what is wrong with its reads; nothing, if there is no
/// order.
pub(super) fn versions(
    key: &Key<'_>,
    reads: &[Read<'_>],
    effects: &Effects<'_>,
    report: &mut Report,
) -> Option<Versions> {
    let mut faults = Faults::new(key, effects, report);
    let longest = reads.iter().max_by_key(|read| (read.found.len(), std::cmp::Reverse(read.by)));
    let longest = match longest {
        Some(longest) if !in_order(longest, reads, &mut faults) => return None,
        other => other,
    };
    let values = longest.map_or(&[][..], |read| read.found);

    let mut versions = Versions::new(key.key);
    // Of each length the version; what an aborted transaction put there adds none.
    let mut of_length = vec![0];
    let mut read = HashSet::new();
    let mut appended: HashMap<usize, u32> = HashMap::new();
    for value in values {
        let write = key.write(*value)?;
        read.insert(*value);
        let place = appended.entry(write.by).or_default();
        if *place != write.place {
            let id = effects.id_of(write.by);
            let text = format!("T{id} had appended others before {value}, but not in {values:?}");
            faults.tell(Kind::IncompatibleOrder, *value, vec![id], &text);
            return None;
        }
        *place += 1;
        if let Some(writer) = effects.node(write.by) {
            versions.chain(writer, *value);
        }
        of_length.push(versions.all.len() - 1);
    }
    for reader in reads.iter().filter(|read| read.first) {
        let last = reader.version();
        if let Some(write) = last.and_then(|value| key.write(value)) {
            faults.intermediate(reader.by, write);
        }
        let version = of_length[reader.others];
        versions.all[version].readers.push((reader.by, last.unwrap_or(0)));
    }
    unread(&mut versions, &read, reads, &mut faults);
    Some(versions)
}

/// Whether the reads agree, and the values are somebody's.
fn in_order(longest: &Read<'_>, reads: &[Read<'_>], faults: &mut Faults<'_, '_>) -> bool {
    let (mut usable, mut removed) = (true, false);
    let mut astray = reads.iter().filter(|read| !longest.found.starts_with(read.found));
    for (n, read) in std::iter::once(longest).chain(astray.clone()).enumerate() {
        let mut there = HashSet::new();
        for value in read.found {
            match faults.writer(read.by, *value) {
                // In the longest read it has its place; if it is gone later, the rest has none.
                Err(Kind::G1a) if n == 0 => removed = true,
                Err(_) => usable = false,
                Ok(_) => {}
            }
            if !there.insert(*value) {
                usable = false;
                let id = faults.effects.id(read.by);
                let text = format!("T{id} found {value} twice in {:?}", read.found);
                faults.tell(Kind::DuplicateValue, *value, vec![id], &text);
            }
        }
    }
    let Some(other) = astray.next() else { return usable };
    if usable && !removed {
        let (a, b) = (faults.effects.id(longest.by), faults.effects.id(other.by));
        let same = longest.found.iter().zip(other.found).take_while(|(a, b)| a == b).count();
        let text = format!(
            "T{a} read {:?}, and T{b} read {:?}, which differ from place {same} on",
            longest.found, other.found
        );
        faults.tell(Kind::IncompatibleOrder, 0, vec![a, b], &text);
    }
    false
}

/// Puts what no read has behind what was read, and reports what should have been in a read.
fn unread(
    versions: &mut Versions,
    read: &HashSet<u64>,
    reads: &[Read<'_>],
    faults: &mut Faults<'_, '_>,
) {
    let effects = faults.effects;
    let mut rest: Vec<(Node, u64)> = faults
        .key
        .writes
        .iter()
        .filter(|write| !read.contains(&write.value))
        .filter_map(|write| Some((effects.node(write.by)?, write.value)))
        .collect();
    rest.sort_unstable();
    rest.dedup_by_key(|(writer, _)| *writer);
    let last = versions.all.len() - 1;
    let latest = reads.iter().max_by_key(|read| effects.transaction(read.by).invoked);
    for (writer, value) in rest {
        let end = effects.transaction(writer).end();
        if let Some(latest) = latest
            && end != NEVER
            && end < effects.transaction(latest.by).invoked
        {
            let (writer, reader) = (effects.id(writer), effects.id(latest.by));
            let text = format!(
                "T{writer} appended {value} and was complete before T{reader} was invoked, which \
                 found {:?}; no read has it",
                latest.found
            );
            faults.tell(Kind::LostAppend, value, vec![writer, reader], &text);
            continue;
        }
        let new = versions.add(writer, value);
        versions.all[last].next.push(new);
    }
}
