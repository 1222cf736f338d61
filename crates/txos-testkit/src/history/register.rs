//! The order of a register's versions, as far as it is certain: the initial one is first; who reads
//! one version and writes another has put the second after the first; what the caller knows; and
//! what real time tells of a version that was read: no other was written between.

use std::collections::HashMap;

use super::effect::Effects;
use super::graph::{Builder, Label, Node};
use super::keys::Key;
use super::reads::Read;
use super::report::Report;
use super::versions::{Faults, Versions};

/// Orders a register's versions, and reports what is wrong with its reads.
pub(super) fn versions(
    key: &Key<'_>,
    reads: &[Read<'_>],
    effects: &Effects<'_>,
    report: &mut Report,
) -> Versions {
    let mut faults = Faults::new(key, effects, report);
    let mut versions = Versions::new(key.key);
    // Of each value the version.
    let mut of_value: HashMap<u64, usize> = HashMap::new();
    for value in key.order {
        if let Some(writer) = key.write(*value).and_then(|write| effects.node(write.by)) {
            of_value.insert(*value, versions.chain(writer, *value));
        }
    }
    let ordered = versions.all.len();
    // Of each writer the version that it left.
    let mut left: HashMap<Node, usize> = HashMap::new();
    for write in key.writes.iter().filter(|write| write.last) {
        let Some(writer) = effects.node(write.by) else { continue };
        let version =
            *of_value.entry(write.value).or_insert_with(|| versions.add(writer, write.value));
        left.insert(writer, version);
    }
    for write in &key.writes {
        if let Some(version) = effects.node(write.by).and_then(|writer| left.get(&writer)) {
            of_value.entry(write.value).or_insert(*version);
        }
    }

    let mut followed = vec![false; versions.all.len()];
    for read in reads.iter().filter(|read| read.first) {
        let version = match read.version() {
            None => 0,
            Some(value) => {
                let Ok((write, _)) = faults.writer(read.by, value) else { continue };
                faults.intermediate(read.by, &write);
                of_value[&value]
            }
        };
        versions.all[version].readers.push((read.by, read.version().unwrap_or(0)));
        // It read this one, and left that one.
        if let Some(after) = left.get(&read.by)
            && *after >= ordered
            && *after != version
        {
            versions.all[version].next.push(*after);
            followed[*after] = true;
        }
    }
    versions.all[0].next.extend((ordered..followed.len()).filter(|n| !followed[*n]));
    versions
}

/// Adds what real time tells of a register of which the caller knows no order. Another write is
/// before the write that was read, or after the read; so if it was invoked after that write was
/// complete, the reader is before it; and if it was complete before the reader was invoked, it is
/// before that write. Only the nearest in time are needed, real time leads to the others.
pub(super) fn real_time(versions: &Versions, effects: &Effects<'_>, builder: &mut Builder) {
    let span = |node: Node| {
        let transaction = effects.transaction(node);
        (transaction.invoked, transaction.end())
    };
    let mut by_start: Vec<(u64, u64, Node, u64)> = Vec::new();
    for version in &versions.all {
        if let Some(writer) = version.writer {
            let (start, end) = span(writer);
            by_start.push((start, end, writer, version.values.1));
        }
    }
    by_start.sort_unstable();
    let mut by_end = by_start.clone();
    by_end.sort_unstable_by_key(|write| std::cmp::Reverse(write.1));

    for version in &versions.all {
        let Some(writer) = version.writer else { continue };
        let (own_start, own_end) = span(writer);
        for (reader, value) in &version.readers {
            let first = by_start.partition_point(|write| write.0 <= own_end);
            let reader_end = span(*reader).1;
            let mut complete = reader_end;
            for (start, end, later, written) in &by_start[first..] {
                if *start > complete {
                    break;
                }
                if later != reader {
                    let edge = (*reader, *later);
                    versions.edge(builder, Label::RwRealtime, edge, (*value, *written));
                    complete = complete.min(*end);
                }
            }
        }
        // The latest reader tells most.
        let latest = version.readers.iter().map(|(reader, _)| span(*reader).0).max();
        let Some(latest) = latest else { continue };
        let first = by_end.partition_point(|write| write.1 >= latest);
        let mut begun = own_start;
        for (start, end, earlier, written) in &by_end[first..] {
            if *end < begun {
                break;
            }
            // If it was invoked after that write, it is before no longer: the reader is stale, and
            // has an edge that says so.
            if *earlier != writer && *start <= own_end {
                let edge = (*earlier, writer);
                versions.edge(builder, Label::WwRealtime, edge, (*written, version.values.1));
                begun = begun.max(*start);
            }
        }
    }
}
