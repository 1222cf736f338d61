//! Checks histories of transactions for strict serializability: whether what all of them read and
//! wrote could have come from running them one at a time, each at some instant between its
//! invocation and its completion. The method is that of Adya's thesis and of Elle: versions are
//! ordered by what reads found, which gives a graph of who must be before whom; a cycle is an
//! anomaly, and its edges name it.
//!
//! Everything reported is wrong: no guess is made about an order that the history does not tell.
//! The reverse holds for lists that are read to their end: what is wrong with those is found. Of
//! registers that are written without being read, and of appends that no read has, the order is
//! known only in part, and so an anomaly may stay unseen.
//!
//! What aborted transactions read is not looked at; what they wrote must never be seen.
//!
//! | module | what |
//! |---|---|
//! | [`op`] | what a history is made of |
//! | [`log`] | histories on disk, from processes that may be killed at any instant |
//! | [`report`] | what is found |
//! | `keys`, `effect`, `reads` | who wrote what, who took effect, and what they read of others |
//! | `versions`, `list`, `register`, `time` | who is before whom |
//! | `graph`, `scc`, `search`, `cycles` | cycles |

pub mod log;
pub mod op;
pub mod report;

mod cycles;
mod effect;
mod graph;
mod keys;
mod list;
mod reads;
mod register;
mod scc;
mod search;
#[cfg(test)]
mod tests;
mod time;
mod versions;

pub use op::{History, NEVER, Op, Outcome, Transaction};
pub use report::{Anomaly, Edge, Kind, Relation, Report};

use graph::{Builder, Label, Node};

/// Checks a history.
#[must_use]
pub fn check(history: &History) -> Report {
    let mut report = Report::default();
    let keys = keys::Keys::new(history, &mut report);
    if report.counts.contains_key(&Kind::Malformed) {
        report.anomalies.retain(|anomaly| anomaly.kind == Kind::Malformed);
        report.counts.retain(|kind, _| *kind == Kind::Malformed);
        return report;
    }
    let effects = effect::Effects::new(history, &keys, &mut report.summary);
    let reads = reads::reads(&keys, &effects, &mut report);
    let invoked = effects.all().map(|node| effects.transaction(node).invoked).collect();
    let mut builder = Builder::new(invoked);
    let mut lost_updates = Vec::new();
    for (key, reads) in keys.keys.iter().zip(&reads) {
        if key.broken {
            continue;
        }
        let versions = if key.list {
            list::versions(key, reads, &effects, &mut report)
        } else {
            Some(register::versions(key, reads, &effects, &mut report))
        };
        let Some(versions) = versions else { continue };
        let mut writers: Vec<Node> =
            key.writes.iter().filter_map(|write| effects.node(write.by)).collect();
        writers.sort_unstable();
        lost_updates.extend(versions.lost_updates(&writers, &effects, &mut report));
        versions.edges(&mut builder);
        if !key.list && key.order.is_empty() {
            register::real_time(&versions, &effects, &mut builder);
        }
    }
    report.summary.ww = builder.count(Label::Ww);
    report.summary.wr = builder.count(Label::Wr);
    report.summary.rw = builder.count(Label::Rw);
    time::edges(&effects, &mut builder);
    cycles::report(&builder.finish(), &effects, lost_updates, &mut report);
    report.anomalies.sort_by_key(|anomaly| anomaly.kind);
    report
}
