//! A bad history of every kind.

use super::super::report::Relation::{Process, Realtime, Rw, Wr, Ww};
use super::super::{Kind, NEVER, Relation};
use super::*;

fn relations(anomaly: &Anomaly) -> Vec<Relation> {
    anomaly.cycle.iter().map(|edge| edge.relation).collect()
}

#[test]
fn writes_in_a_circle() {
    let bad = history(&[
        meanwhile(1, &[append(1, 11), append(2, 12)]),
        meanwhile(2, &[append(1, 21), append(2, 22)]),
        meanwhile(3, &[list(1, &[11, 21])]),
        meanwhile(4, &[list(2, &[22, 12])]),
    ]);
    let found = only(&bad, Kind::G0);
    assert_eq!(found.transactions, [1, 2]);
    assert_eq!(relations(&found), [Ww, Ww]);
    assert_eq!((found.cycle[0].key, found.cycle[0].value), (Some(1), Some(21)));
    tells(&found, &["G0 (writes in a circle): T1 -ww-> T2 -ww-> T1"]);
    tells(&found, &["key 1: T1 wrote 11, and T2 wrote 21 after it", "key 2: T2 wrote 22"]);
}

#[test]
fn appends_that_enclose_another() {
    let bad = history(&[
        meanwhile(1, &[append(1, 11), append(1, 12)]),
        meanwhile(2, &[append(1, 21)]),
        meanwhile(3, &[list(1, &[11, 21, 12])]),
    ]);
    assert_eq!(only(&bad, Kind::G0).transactions, [1, 2]);
}

#[test]
fn registers_in_a_known_order() {
    let mut bad = history(&[
        meanwhile(1, &[write(1, 11), write(2, 12)]),
        meanwhile(2, &[write(1, 21), write(2, 22)]),
    ]);
    assert!(check(&bad).is_clean());
    bad.orders = BTreeMap::from([(1, vec![11, 21]), (2, vec![22, 12])]);
    assert_eq!(relations(&only(&bad, Kind::G0)), [Ww, Ww]);
}

#[test]
fn read_of_an_aborted_append() {
    let bad = history(&[
        meanwhile(1, &[append(1, 11)]),
        aborted(meanwhile(2, &[append(1, 21)])),
        meanwhile(3, &[list(1, &[11, 21])]),
        meanwhile(4, &[list(1, &[11, 21])]),
    ]);
    let found = only(&bad, Kind::G1a);
    tells(&found, &["key 1: T3 read 21, which T2 wrote and then aborted"]);
}

#[test]
fn read_of_an_aborted_append_that_is_gone() {
    let bad = history(&[
        meanwhile(1, &[append(1, 11)]),
        aborted(meanwhile(2, &[append(1, 21)])),
        meanwhile(3, &[append(1, 31)]),
        meanwhile(4, &[list(1, &[11, 21])]),
        meanwhile(5, &[list(1, &[11, 31])]),
    ]);
    assert_eq!(only(&bad, Kind::G1a).transactions, [2, 4]);
}

#[test]
fn read_of_an_aborted_write() {
    let bad = history(&[aborted(meanwhile(1, &[write(1, 11)])), meanwhile(2, &[read(1, 11)])]);
    tells(&only(&bad, Kind::G1a), &["T2 read 11, which T1 wrote and then aborted"]);
}

#[test]
fn read_of_an_intermediate_append() {
    let bad = history(&[
        meanwhile(1, &[append(1, 11), append(1, 12)]),
        meanwhile(2, &[list(1, &[11])]),
        meanwhile(3, &[list(1, &[11, 12])]),
    ]);
    let found = only(&bad, Kind::G1b);
    tells(&found, &["key 1: T2 read 11, which T1 wrote, but not as its last"]);
}

#[test]
fn read_of_an_intermediate_write() {
    let bad = history(&[
        meanwhile(1, &[write(1, 11), write(1, 12)]),
        meanwhile(2, &[read(1, 11)]),
        meanwhile(3, &[read(1, 12)]),
    ]);
    assert_eq!(only(&bad, Kind::G1b).transactions, [1, 2]);
}

#[test]
fn information_in_a_circle() {
    let bad = history(&[
        meanwhile(1, &[append(1, 11), list(2, &[22])]),
        meanwhile(2, &[append(2, 22), list(1, &[11])]),
    ]);
    let found = only(&bad, Kind::G1c);
    assert_eq!(relations(&found), [Wr, Wr]);
    tells(&found, &["key 1: T1 wrote 11, and T2 read it", "key 2: T2 wrote 22, and T1 read it"]);
    let bad = history(&[
        meanwhile(1, &[write(1, 11), read(2, 22)]),
        meanwhile(2, &[write(2, 22), read(1, 11)]),
    ]);
    assert_eq!(relations(&only(&bad, Kind::G1c)), [Wr, Wr]);
    let bad = history(&[
        meanwhile(1, &[append(1, 11), list(2, &[22])]),
        meanwhile(2, &[append(1, 21), append(2, 22)]),
        meanwhile(3, &[list(1, &[11, 21])]),
    ]);
    assert_eq!(relations(&only(&bad, Kind::G1c)), [Ww, Wr]);
}

#[test]
fn half_of_a_transaction() {
    let bad = history(&[
        meanwhile(1, &[append(1, 11), append(2, 12)]),
        meanwhile(2, &[list(1, &[11]), list(2, &[])]),
        meanwhile(3, &[list(2, &[12])]),
    ]);
    let found = only(&bad, Kind::GSingle);
    assert_eq!(relations(&found), [Wr, Rw]);
    tells(&found, &["key 2: T2 found nothing there, not yet 12, which T1 wrote"]);
    let bad = history(&[
        meanwhile(1, &[write(1, 11), write(2, 12)]),
        meanwhile(2, &[read(1, 11), read(2, 0)]),
    ]);
    assert_eq!(relations(&only(&bad, Kind::GSingle)), [Wr, Rw]);
}

#[test]
fn half_of_a_transaction_whose_append_nobody_read() {
    let bad = history(&[
        meanwhile(1, &[append(1, 11), append(2, 12)]),
        meanwhile(2, &[list(1, &[11]), list(2, &[])]),
    ]);
    assert_eq!(relations(&only(&bad, Kind::GSingle)), [Wr, Rw]);
}

#[test]
fn half_of_a_transaction_among_many() {
    // Several readers of a version that several have added to: the edges go through one node.
    let mut transactions = vec![
        meanwhile(1, &[append(1, 11), append(2, 12)]),
        meanwhile(2, &[list(1, &[11]), list(2, &[])]),
    ];
    transactions.extend((10..20).map(|id| meanwhile(id, &[append(2, 100 + id)])));
    transactions.extend((20..30).map(|id| meanwhile(id, &[list(2, &[])])));
    let found = only(&history(&transactions), Kind::GSingle);
    assert_eq!(found.transactions, [1, 2]);
    assert_eq!(relations(&found), [Wr, Rw]);
    assert_eq!(found.cycle[1].value, Some(12));
}

#[test]
fn write_skew() {
    let bad = history(&[
        meanwhile(1, &[read(1, 0), write(2, 12)]),
        meanwhile(2, &[read(2, 0), write(1, 21)]),
    ]);
    let found = only(&bad, Kind::G2);
    assert_eq!(relations(&found), [Rw, Rw]);
    assert!(check(&bad).allowing(&[Kind::G2]).is_clean());
    let bad = history(&[
        meanwhile(1, &[list(1, &[]), append(2, 12)]),
        meanwhile(2, &[list(2, &[]), append(1, 21)]),
    ]);
    assert_eq!(only(&bad, Kind::G2).transactions, [1, 2]);
}

#[test]
fn long_fork() {
    let bad = history(&[
        meanwhile(1, &[write(1, 11)]),
        meanwhile(2, &[write(2, 22)]),
        meanwhile(3, &[read(1, 11), read(2, 0)]),
        meanwhile(4, &[read(1, 0), read(2, 22)]),
    ]);
    let found = only(&bad, Kind::G2);
    assert_eq!(found.transactions, [1, 3, 2, 4]);
    assert_eq!(relations(&found), [Wr, Rw, Wr, Rw]);
}

#[test]
fn read_only_anomaly() {
    // Fekete, O'Neil, O'Neil: a reader makes wrong what would have been serializable without it.
    let writers = [
        at(1, (0, 100), &[read(1, 0), read(2, 0), write(1, 11)]),
        at(2, (0, 100), &[read(2, 0), write(2, 22)]),
    ];
    check(&history(&writers)).expect_clean();
    let reader = at(3, (0, 100), &[read(1, 0), read(2, 22)]);
    let bad = history(&[writers.to_vec(), vec![reader]].concat());
    let found = only(&bad, Kind::G2);
    assert_eq!(found.transactions, [1, 2, 3]);
    assert_eq!(relations(&found), [Rw, Wr, Rw]);
}

#[test]
fn writes_against_real_time() {
    let bad = history(&[
        at(1, (0, 10), &[append(1, 11)]),
        at(2, (20, 30), &[append(1, 21)]),
        at(3, (0, 40), &[list(1, &[21, 11])]),
    ]);
    let found = only(&bad, Kind::G0Realtime);
    assert_eq!(relations(&found), [Realtime, Ww]);
    tells(&found, &["T1 was complete at 10, before T2 was invoked at 20"]);
}

#[test]
fn information_against_real_time() {
    let bad = history(&[at(1, (0, 10), &[list(1, &[21])]), at(2, (20, 30), &[append(1, 21)])]);
    assert_eq!(relations(&only(&bad, Kind::G1cRealtime)), [Realtime, Wr]);
}

#[test]
fn stale_read_of_a_list() {
    let bad = history(&[
        at(1, (0, 10), &[append(1, 11)]),
        at(2, (20, 30), &[append(1, 21)]),
        at(3, (0, 50), &[list(1, &[11, 21])]),
        at(4, (40, 50), &[list(1, &[11])]),
    ]);
    let found = only(&bad, Kind::GSingleRealtime);
    assert_eq!(found.transactions, [2, 4]);
    assert_eq!(relations(&found), [Realtime, Rw]);
    tells(&found, &["a stale read", "key 1: T4 read 11, and not yet 21, which T2 wrote after it"]);
}

#[test]
fn stale_read_of_a_register() {
    // Nobody read what it overwrites, and still: the first was complete before the second began.
    let bad = history(&[
        at(1, (0, 10), &[write(1, 11)]),
        at(2, (20, 30), &[write(1, 21)]),
        at(3, (40, 50), &[read(1, 11)]),
    ]);
    let found = only(&bad, Kind::GSingleRealtime);
    tells(&found, &["T2 -rt-> T3"]);
    let initial = history(&[at(1, (0, 10), &[write(1, 11)]), at(2, (20, 30), &[read(1, 0)])]);
    assert_eq!(relations(&only(&initial, Kind::GSingleRealtime)), [Realtime, Rw]);
}

#[test]
fn two_readers_of_registers_disagree_in_time() {
    // T3's read puts T1 before T2's write in its place; T4 then goes back.
    let bad = history(&[
        at(1, (0, 100), &[write(1, 11)]),
        at(2, (0, 100), &[write(1, 21)]),
        at(3, (110, 120), &[read(1, 11)]),
        at(4, (130, 140), &[read(1, 21)]),
    ]);
    let report = check(&bad);
    assert!(!report.is_clean(), "{report}");
    assert!(report.kinds().iter().all(|kind| *kind >= Kind::G0Realtime), "{report}");
}

#[test]
fn stale_read_in_one_process() {
    let mut transactions = [
        at(1, (0, 10), &[append(1, 11)]),
        at(2, (10, 20), &[list(1, &[])]),
        at(3, (0, 50), &[list(1, &[11])]),
    ];
    // The stamps are equal: real time does not tell, the process does.
    check(&history(&transactions)).expect_clean();
    transactions[1].process = transactions[0].process;
    let found = only(&history(&transactions), Kind::GSingleRealtime);
    assert_eq!(relations(&found), [Process, Rw]);
    tells(&found, &["process 1001 ran T1, and then T2"]);
}

#[test]
fn skew_against_real_time() {
    let bad = history(&[
        at(1, (0, 100), &[append(1, 11)]),
        at(2, (110, 120), &[list(1, &[11]), list(2, &[])]),
        at(3, (0, 50), &[append(2, 32)]),
        at(4, (60, 70), &[list(1, &[])]),
        at(5, (0, 130), &[list(2, &[32])]),
    ]);
    // T3 was complete before T2, which did not find it: with one anti-dependency already.
    assert_eq!(only(&bad, Kind::GSingleRealtime).transactions, [2, 3]);

    let bad = history(&[
        at(1, (0, 100), &[append(1, 11)]),
        at(2, (0, 40), &[list(1, &[11]), list(2, &[])]),
        at(3, (0, 100), &[append(2, 32)]),
        at(4, (50, 60), &[list(2, &[32]), list(3, &[])]),
        at(5, (0, 20), &[append(3, 53)]),
        at(6, (0, 100), &[list(3, &[53])]),
    ]);
    assert_eq!(only(&bad, Kind::GSingleRealtime).transactions, [4, 5]);

    // T1 misses T2's write, which is complete before T3 begins, which misses T1's.
    let bad = history(&[
        at(1, (0, 100), &[list(1, &[]), append(2, 12)]),
        at(2, (0, 10), &[append(1, 21)]),
        at(3, (20, 100), &[list(2, &[])]),
        at(4, (0, 100), &[list(1, &[21]), list(2, &[12])]),
    ]);
    let found = only(&bad, Kind::G2Realtime);
    assert_eq!(found.transactions, [1, 2, 3]);
    assert_eq!(relations(&found), [Rw, Realtime, Rw]);
}

#[test]
fn own_writes_unread() {
    for ops in [
        vec![append(1, 11), list(1, &[])],
        vec![list(1, &[]), append(1, 11), list(1, &[])],
        vec![append(1, 11), append(1, 12), list(1, &[12, 11])],
        vec![list(1, &[11]), append(1, 11)],
        vec![write(1, 11), read(1, 0)],
        vec![write(1, 11), write(1, 12), read(1, 11)],
        vec![read(1, 11), write(1, 11)],
    ] {
        let found = only(&history(&[meanwhile(1, &ops)]), Kind::Internal);
        tells(&found, &["key 1: T1 read "]);
    }
}

#[test]
fn reads_that_do_not_repeat() {
    let writer = meanwhile(1, &[append(1, 11), write(2, 12)]);
    let bad = history(&[writer.clone(), meanwhile(2, &[list(1, &[]), list(1, &[11])])]);
    tells(&only(&bad, Kind::Internal), &["T2 read [11], but had found nothing there before"]);
    let bad = history(&[writer, meanwhile(2, &[read(2, 12), read(2, 0)])]);
    tells(&only(&bad, Kind::Internal), &["key 2: T2 read 0, but had found [12] before"]);
}

#[test]
fn lost_updates() {
    let bad = history(&[
        meanwhile(1, &[read(1, 0), write(1, 11)]),
        meanwhile(2, &[read(1, 11), write(1, 21)]),
        meanwhile(3, &[read(1, 11), write(1, 31)]),
    ]);
    let found = only(&bad, Kind::LostUpdate);
    tells(&found, &["key 1: T2 and T3 both read 11, and both wrote"]);
    let bad = history(&[
        meanwhile(1, &[list(1, &[]), append(1, 11)]),
        meanwhile(2, &[list(1, &[]), append(1, 21)]),
        meanwhile(3, &[list(1, &[11, 21])]),
    ]);
    tells(&only(&bad, Kind::LostUpdate), &["T1 and T2 both read the initial version"]);
}

#[test]
fn lost_update_hides_no_other_cycle() {
    let bad = history(&[
        meanwhile(1, &[read(1, 0), write(1, 11)]),
        meanwhile(2, &[read(1, 0), write(1, 21)]),
        meanwhile(3, &[read(2, 0), write(3, 33)]),
        meanwhile(4, &[read(3, 0), write(2, 42)]),
    ]);
    let report = check(&bad);
    assert_eq!(report.kinds().into_iter().collect::<Vec<_>>(), [Kind::LostUpdate, Kind::G2]);
}

#[test]
fn values_twice() {
    let bad = history(&[meanwhile(1, &[append(1, 11)]), meanwhile(2, &[append(1, 11)])]);
    let found = only(&bad, Kind::DuplicateValue);
    tells(&found, &["key 1: 11 was written by T1 and once more by T2"]);
    let bad = history(&[
        meanwhile(1, &[append(1, 11)]),
        meanwhile(2, &[append(1, 21)]),
        meanwhile(3, &[list(1, &[11, 21, 11])]),
    ]);
    tells(&only(&bad, Kind::DuplicateValue), &["T3 found 11 twice in [11, 21, 11]"]);
}

#[test]
fn incompatible_orders() {
    let bad = history(&[
        meanwhile(1, &[append(1, 11)]),
        meanwhile(2, &[append(1, 21)]),
        meanwhile(3, &[list(1, &[11, 21])]),
        meanwhile(4, &[list(1, &[21])]),
    ]);
    let found = only(&bad, Kind::IncompatibleOrder);
    tells(&found, &["key 1: T3 read [11, 21], and T4 read [21], which differ from place 0 on"]);
}

#[test]
fn appends_against_their_own_order() {
    for found in [[12, 11].as_slice(), &[12]] {
        let bad = history(&[
            meanwhile(1, &[append(1, 11), append(1, 12)]),
            meanwhile(2, &[list(1, found)]),
        ]);
        let found = only(&bad, Kind::IncompatibleOrder);
        tells(&found, &["key 1: T1 had appended others before 12, but not in [12"]);
    }
}

#[test]
fn garbage() {
    let bad = history(&[meanwhile(1, &[append(1, 11)]), meanwhile(2, &[list(1, &[11, 99])])]);
    tells(&only(&bad, Kind::GarbageRead), &["key 1: T2 read 99, which nobody wrote"]);
    let bad = history(&[meanwhile(1, &[read(1, 99)])]);
    assert_eq!(only(&bad, Kind::GarbageRead).transactions, [1]);
}

#[test]
fn append_that_is_gone() {
    let bad = history(&[
        at(1, (0, 10), &[append(1, 11)]),
        at(2, (0, 10), &[append(1, 21)]),
        at(3, (20, 30), &[list(1, &[11])]),
    ]);
    let found = only(&bad, Kind::LostAppend);
    assert_eq!(found.transactions, [2, 3]);
    tells(&found, &["T2 appended 21 and was complete before T3 was invoked, which found [11]"]);
}

#[test]
fn half_of_what_was_killed() {
    // It was seen, so it has taken effect; but then all of it.
    let bad = history(&[
        indeterminate(at(1, (0, 0), &[append(1, 11), append(2, 12)])),
        at(2, (20, 30), &[list(1, &[11]), list(2, &[])]),
    ]);
    assert_eq!(relations(&only(&bad, Kind::GSingle)), [Wr, Rw]);
}

#[test]
fn what_was_killed_comes_and_goes() {
    let bad = history(&[
        indeterminate(at(1, (0, NEVER), &[write(1, 11)])),
        at(2, (20, 30), &[read(1, 11)]),
        at(3, (40, 50), &[read(1, 0)]),
    ]);
    assert_eq!(only(&bad, Kind::GSingleRealtime).transactions, [1, 2, 3]);
}

#[test]
fn what_is_no_history() {
    let bad = [
        history(&[at(1, (20, 10), &[])]),
        history(&[meanwhile(1, &[]), meanwhile(1, &[])]),
        history(&[meanwhile(1, &[append(1, 11), write(1, 12)])]),
        history(&[meanwhile(1, &[write(1, 0)])]),
        History {
            orders: BTreeMap::from([(1, vec![12])]),
            ..history(&[meanwhile(1, &[write(1, 11)])])
        },
        History {
            orders: BTreeMap::from([(1, vec![11, 11])]),
            ..history(&[meanwhile(1, &[write(1, 11)])])
        },
        History {
            orders: BTreeMap::from([(1, vec![11])]),
            ..history(&[meanwhile(1, &[append(1, 11)])])
        },
        History { orders: BTreeMap::from([(1, vec![])]), ..History::default() },
    ];
    for bad in bad {
        let _ = only(&bad, Kind::Malformed);
    }
}

#[test]
fn separate_faults_are_told_apart() {
    // Two circles that have nothing to do with each other, of different kinds.
    let bad = history(&[
        meanwhile(1, &[append(1, 11), list(2, &[22])]),
        meanwhile(2, &[append(2, 22), list(1, &[11])]),
        meanwhile(3, &[read(3, 0), write(4, 34)]),
        meanwhile(4, &[read(4, 0), write(3, 43)]),
    ]);
    let report = check(&bad);
    assert_eq!(report.kinds().into_iter().collect::<Vec<_>>(), [Kind::G1c, Kind::G2]);
    assert_eq!(report.anomalies.len(), 2);
    let text = report.to_string();
    assert!(text.contains("wrong: 1 G1c, 1 G2"), "{text}");
}
