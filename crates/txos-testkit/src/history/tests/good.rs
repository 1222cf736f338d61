//! Good histories, of which nothing may be said.

use super::super::NEVER;
use super::*;

#[track_caller]
fn good(transactions: &[Transaction]) {
    check(&history(transactions)).expect_clean();
}

#[test]
fn nothing() {
    good(&[]);
    good(&[meanwhile(1, &[]), meanwhile(2, &[])]);
    good(&[meanwhile(1, &[list(1, &[]), read(2, 0)])]);
}

#[test]
fn one_after_the_other() {
    good(&[
        at(1, (0, 1), &[list(1, &[]), append(1, 11), list(1, &[11]), read(2, 0), write(2, 12)]),
        at(2, (2, 3), &[append(1, 21), list(1, &[11, 21]), read(2, 12)]),
        at(3, (4, 5), &[append(1, 31), append(1, 32), write(2, 33), write(2, 34), read(2, 34)]),
        at(4, (6, 7), &[list(1, &[11, 21, 31, 32]), read(2, 34), list(1, &[11, 21, 31, 32])]),
        at(5, (8, 9), &[append(1, 51), append(1, 52)]),
    ]);
}

#[test]
fn at_the_same_time() {
    // Equal to T3, T2, T1, T4.
    good(&[
        meanwhile(1, &[list(1, &[31, 21]), append(1, 11), read(2, 32)]),
        meanwhile(2, &[append(1, 21), read(2, 32)]),
        meanwhile(3, &[append(1, 31), write(2, 32)]),
        meanwhile(4, &[list(1, &[31, 21, 11]), write(2, 42)]),
    ]);
}

#[test]
fn equal_stamps_order_nothing() {
    good(&[at(1, (0, 10), &[append(1, 11)]), at(2, (10, 20), &[list(1, &[])])]);
}

#[test]
fn snapshot_of_disjoint_reads() {
    // As write skew, but one of the two sees the other.
    good(&[meanwhile(1, &[read(1, 0), write(2, 12)]), meanwhile(2, &[read(2, 12), write(1, 21)])]);
}

#[test]
fn appends_that_nobody_read() {
    good(&[
        at(1, (0, 10), &[append(1, 11)]),
        at(2, (20, 30), &[list(1, &[11]), append(1, 21)]),
        at(3, (20, 40), &[append(1, 31)]),
        at(4, (20, 40), &[append(1, 41), append(2, 42)]),
        at(5, (20, 40), &[list(1, &[11])]),
        at(6, (20, 40), &[list(1, &[11])]),
    ]);
}

#[test]
fn aborted_ones_may_have_seen_anything() {
    good(&[
        meanwhile(1, &[append(1, 11), append(2, 12)]),
        aborted(meanwhile(2, &[list(1, &[11]), list(2, &[]), append(1, 21), read(3, 77)])),
        meanwhile(3, &[list(1, &[11]), list(2, &[12])]),
    ]);
}

#[test]
fn killed_ones_that_are_not_seen() {
    good(&[
        indeterminate(at(1, (0, 5), &[append(1, 11), write(2, 12)])),
        at(2, (10, 20), &[list(1, &[]), read(2, 0)]),
    ]);
}

#[test]
fn killed_ones_that_take_effect_late() {
    good(&[
        indeterminate(at(1, (0, 5), &[append(1, 11), write(2, 12)])),
        at(2, (10, 20), &[list(1, &[]), read(2, 0)]),
        at(3, (30, 40), &[list(1, &[11]), read(2, 12)]),
    ]);
}

#[test]
fn killed_ones_do_not_order_their_process() {
    let mut transactions = [
        indeterminate(at(1, (0, NEVER), &[append(1, 11)])),
        at(2, (10, 20), &[list(1, &[])]),
        at(3, (30, 40), &[list(1, &[11])]),
    ];
    transactions.iter_mut().for_each(|transaction| transaction.process = 7);
    good(&transactions);
}

#[test]
fn one_killed_one_shows_another() {
    let mut second = indeterminate(meanwhile(2, &[list(1, &[11]), append(2, 22)]));
    let third = meanwhile(3, &[list(2, &[22])]);
    let first = indeterminate(meanwhile(1, &[append(1, 11)]));
    let report = check(&history(&[first.clone(), second.clone(), third.clone()]));
    report.expect_clean();
    assert_eq!((report.summary.seen, report.summary.unseen), (2, 0));
    second.ops.remove(0);
    let report = check(&history(&[first, second, third]));
    assert_eq!((report.summary.seen, report.summary.unseen), (1, 1));
}

#[test]
fn registers_in_a_known_order() {
    let mut known = history(&[
        at(1, (0, 10), &[write(1, 11)]),
        indeterminate(at(2, (0, 10), &[write(1, 21)])),
        at(3, (0, 10), &[write(1, 31), write(1, 32)]),
        at(4, (0, 10), &[read(1, 21)]),
        at(5, (0, 10), &[read(1, 0), write(2, 52)]),
    ]);
    known.orders.insert(1, vec![32, 21, 11]);
    let report = check(&known);
    report.expect_clean();
    assert_eq!((report.summary.seen, report.summary.ww), (1, 2));
    known.orders.insert(1, vec![31, 32, 11]);
    check(&known).expect_clean();
}

#[test]
fn blind_writes_at_the_same_time() {
    good(&[
        at(1, (0, 100), &[write(1, 11)]),
        at(2, (0, 100), &[write(1, 21)]),
        at(3, (50, 120), &[read(1, 21)]),
        at(4, (50, 110), &[read(1, 11)]),
        at(5, (0, 20), &[read(1, 0)]),
    ]);
}
