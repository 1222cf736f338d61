//! Hand-made histories of directories and files, good ones and one of every bad kind; and that plans
//! come back from text as they were.

use super::keys::{Door, Kind as Thing, key, value_of};
use super::plan::{How, Planner, Step, of_name};
use super::scene::changes_of_outsiders;
use super::sets::as_registers;
use crate::history::{History, Kind, Op, Outcome, Transaction, check};

fn set(n: u64) -> u64 {
    key(Thing::Set, n)
}

fn add(n: u64, name: u64) -> Op {
    Op::Append { key: set(n), value: name }
}

fn listed(n: u64, names: &[u64]) -> Op {
    Op::ReadList { key: set(n), values: names.to_vec() }
}

fn there(name: u64) -> Op {
    Op::ReadRegister { key: of_name(name), value: 1 }
}

fn missing(name: u64) -> Op {
    Op::ReadRegister { key: of_name(name), value: 0 }
}

/// Found and removed.
fn removed(name: u64, mark: u64) -> [Op; 2] {
    [there(name), Op::Write { key: of_name(name), value: mark }]
}

fn at(id: u64, (invoked, completed): (u64, u64), ops: &[Op]) -> Transaction {
    let process = u64::from(Door::Inside.participant(id as u32));
    Transaction { id, process, invoked, completed, outcome: Outcome::Committed, ops: ops.to_vec() }
}

/// All at the same time.
fn meanwhile(id: u64, ops: &[Op]) -> Transaction {
    at(id, (1, 100), ops)
}

fn aborted(transaction: Transaction) -> Transaction {
    Transaction { outcome: Outcome::Aborted, ..transaction }
}

fn killed(transaction: Transaction) -> Transaction {
    Transaction { outcome: Outcome::Indeterminate, ..transaction }
}

fn outsider(transaction: Transaction) -> Transaction {
    let process = u64::from(Door::Outside.participant(transaction.id as u32));
    Transaction { process, ..transaction }
}

fn kinds(transactions: &[Transaction]) -> Vec<Kind> {
    let history = History { transactions: transactions.to_vec(), ..History::default() };
    check(&as_registers(&history)).kinds().into_iter().collect()
}

fn good(transactions: &[Transaction]) {
    assert_eq!(kinds(transactions), []);
}

fn bad(kind: Kind, transactions: &[Transaction]) {
    assert_eq!(kinds(transactions), [kind], "{transactions:?}");
}

#[test]
fn names_that_come_and_go() {
    let [gone, mark] = removed(7, 70);
    good(&[
        at(1, (1, 2), &[listed(1, &[]), add(1, 7), listed(1, &[7])]),
        at(2, (3, 4), &[listed(1, &[7]), there(7)]),
        at(3, (5, 6), &[gone, mark, listed(1, &[]), missing(7)]),
        at(4, (7, 8), &[listed(1, &[]), missing(7)]),
    ]);
}

#[test]
fn names_that_move() {
    let [gone, mark] = removed(7, 70);
    good(&[
        at(1, (1, 2), &[add(1, 7)]),
        meanwhile(2, &[gone, mark, add(2, 8)]),
        meanwhile(3, &[listed(1, &[7]), listed(2, &[])]),
        meanwhile(4, &[listed(2, &[8]), listed(1, &[])]),
    ]);
}

#[test]
fn what_can_not_be_told_is_left_out() {
    let removal = |id, mark| {
        let [gone, write] = removed(7, mark);
        killed(meanwhile(id, &[gone, write]))
    };
    // Not yet there, or removed by the one or the other.
    good(&[
        meanwhile(1, &[add(1, 7)]),
        removal(2, 70),
        meanwhile(3, &[missing(7), listed(1, &[])]),
    ]);
    good(&[
        at(1, (0, 1), &[add(1, 7)]),
        removal(2, 70),
        removal(3, 71),
        at(4, (5, 6), &[listed(1, &[])]),
        at(5, (7, 8), &[missing(7)]),
    ]);
    // Those who would have removed it did not, or did not find it.
    good(&[
        at(1, (0, 1), &[add(1, 7)]),
        aborted(removal(2, 70)),
        at(3, (2, 3), &[listed(1, &[7])]),
    ]);
}

#[test]
fn a_name_of_an_aborted_one() {
    let read = meanwhile(2, &[listed(1, &[7])]);
    bad(Kind::G1a, &[aborted(meanwhile(1, &[add(1, 7)])), read]);
    let removal = removed(7, 70);
    bad(
        Kind::GSingleRealtime,
        &[
            at(1, (1, 2), &[add(1, 7)]),
            aborted(at(2, (3, 4), &removal)),
            at(3, (5, 6), &[listed(1, &[])]),
        ],
    );
}

#[test]
fn a_name_between_two_others_of_the_same() {
    // Made and removed by the same: nobody may have seen it.
    let [gone, mark] = removed(7, 70);
    bad(Kind::G1b, &[meanwhile(1, &[add(1, 7), gone, mark]), meanwhile(2, &[listed(1, &[7])])]);
}

#[test]
fn half_of_a_move() {
    let [gone, mark] = removed(7, 70);
    let base = [at(1, (1, 2), &[add(1, 7)]), at(2, (3, 90), &[gone, mark, add(2, 8)])];
    let both = at(3, (4, 90), &[listed(1, &[7]), listed(2, &[8])]);
    bad(Kind::GSingle, &[base.as_slice(), &[both]].concat());
    let neither = at(3, (4, 90), &[listed(1, &[]), listed(2, &[])]);
    bad(Kind::GSingle, &[base.as_slice(), &[neither]].concat());
}

#[test]
fn names_in_a_circle() {
    bad(
        Kind::G1c,
        &[meanwhile(1, &[add(1, 7), listed(2, &[8])]), meanwhile(2, &[add(2, 8), listed(1, &[7])])],
    );
    bad(
        Kind::G2,
        &[meanwhile(1, &[listed(2, &[]), add(1, 7)]), meanwhile(2, &[listed(1, &[]), add(2, 8)])],
    );
}

#[test]
fn lists_against_directories() {
    let list = |value| Op::Append { key: key(Thing::List, 1), value };
    let whole = |values: &[u64]| Op::ReadList { key: key(Thing::List, 1), values: values.to_vec() };
    // The list says 1 before 2, the directory 2 before 1.
    bad(
        Kind::G1c,
        &[
            meanwhile(1, &[list(21), listed(1, &[8])]),
            meanwhile(2, &[list(22), add(1, 8)]),
            meanwhile(3, &[whole(&[21, 22])]),
        ],
    );
    let other = |value| Op::Append { key: key(Thing::List, 2), value };
    let whole2 =
        |values: &[u64]| Op::ReadList { key: key(Thing::List, 2), values: values.to_vec() };
    bad(
        Kind::G0,
        &[
            meanwhile(1, &[list(21), other(31)]),
            meanwhile(2, &[list(22), other(32)]),
            meanwhile(3, &[whole(&[21, 22])]),
            meanwhile(4, &[whole2(&[32, 31])]),
        ],
    );
}

#[test]
fn stale_listings() {
    bad(Kind::GSingleRealtime, &[at(1, (1, 2), &[add(1, 7)]), at(2, (3, 4), &[listed(1, &[])])]);
    bad(Kind::GSingleRealtime, &[at(1, (1, 2), &[add(1, 7)]), at(2, (3, 4), &[missing(7)])]);
    let removal = removed(7, 70);
    bad(
        Kind::GSingleRealtime,
        &[at(1, (1, 2), &[add(1, 7)]), at(2, (3, 4), &removal), at(3, (5, 6), &[listed(1, &[7])])],
    );
}

#[test]
fn reads_that_do_not_repeat() {
    bad(
        Kind::Internal,
        &[meanwhile(1, &[add(1, 7)]), meanwhile(2, &[listed(1, &[]), listed(1, &[7])])],
    );
    bad(Kind::Internal, &[meanwhile(1, &[add(1, 7), listed(1, &[])])]);
    let [gone, mark] = removed(7, 70);
    bad(
        Kind::Internal,
        &[at(1, (1, 2), &[add(1, 7)]), at(2, (3, 4), &[gone, mark, listed(1, &[7])])],
    );
}

#[test]
fn removed_twice() {
    let base = at(1, (1, 2), &[add(1, 7)]);
    let twice = [at(2, (3, 90), &removed(7, 70)), at(3, (3, 90), &removed(7, 71))];
    bad(Kind::LostUpdate, &[std::slice::from_ref(&base), &twice].concat());
}

#[test]
fn names_of_nobody() {
    bad(Kind::GarbageRead, &[meanwhile(1, &[listed(1, &[9])])]);
    let value = super::keys::TORN;
    let register = Op::ReadRegister { key: key(Thing::Register, 1), value };
    bad(Kind::GarbageRead, &[meanwhile(1, &[register])]);
}

#[test]
fn half_of_what_was_killed() {
    let base = killed(meanwhile(1, &[add(1, 7), add(2, 8)]));
    good(&[base.clone(), meanwhile(2, &[listed(1, &[7]), listed(2, &[8])])]);
    good(&[base.clone(), at(2, (101, 102), &[listed(1, &[]), listed(2, &[])])]);
    bad(Kind::GSingle, &[base, at(2, (101, 102), &[listed(1, &[7]), listed(2, &[])])]);

    // It may not have found what it was to move: what it did else is there, the new name is not.
    let made = at(1, (1, 2), &[add(1, 7)]);
    let removal = at(2, (3, 4), &removed(7, 70));
    let [_, mark] = removed(7, 71);
    let moved = killed(at(3, (5, 90), &[add(1, 9), mark, add(2, 8)]));
    let read = at(4, (101, 102), &[listed(1, &[9]), listed(2, &[])]);
    good(&[made.clone(), removal.clone(), moved.clone(), read.clone()]);
    // If it says that it found it, that is something else.
    let [gone, mark] = removed(7, 71);
    let moved = at(3, (5, 90), &[add(1, 9), gone, mark, add(2, 8)]);
    bad(Kind::GSingle, &[made, moved, at(4, (6, 102), &[listed(1, &[9]), listed(2, &[])])]);
}

/// What an outsider sees half done is its own affair; what it changes is everybody's.
#[test]
fn outsiders_see_halves_but_lose_nothing() {
    let publish = at(1, (1, 100), &[add(1, 7), add(2, 8)]);
    let halves = [
        outsider(at(2, (10, 11), &[listed(1, &[7])])),
        outsider(at(3, (12, 13), &[listed(2, &[])])),
    ];
    let all = [std::slice::from_ref(&publish), &halves].concat();
    bad(Kind::GSingleRealtime, &all);
    let history = History { transactions: all, ..History::default() };
    assert!(check(&changes_of_outsiders(&as_registers(&history))).is_clean());

    let list = key(Thing::List, 1);
    let append = outsider(at(2, (1, 2), &[Op::Append { key: list, value: 21 }]));
    let lost = at(3, (3, 4), &[Op::ReadList { key: list, values: vec![] }]);
    let history = History { transactions: vec![append, lost], ..History::default() };
    let report = check(&changes_of_outsiders(&as_registers(&history)));
    assert_eq!(report.kinds().into_iter().collect::<Vec<_>>(), [Kind::LostAppend]);
}

#[test]
fn plans_as_text() {
    for door in [Door::Command, Door::Inside, Door::Single, Door::Outside, Door::Library] {
        let participant = door.participant(3);
        let mut planner = Planner::new(participant, 11);
        let mut other = Planner::new(participant, 11);
        for n in 0..500 {
            let plan = planner.plan(n / 100);
            assert_eq!(plan, other.plan(n / 100), "the seed tells the plan");
            let mut writes = Vec::new();
            plan.iter().for_each(|step| step.writes(&mut writes));
            planner.learn(&writes);
            other.learn(&writes);
            for step in plan {
                assert_eq!(Step::decode(&step.encode()), Some(step));
            }
        }
    }
    assert_eq!(Step::decode("abort"), None);
    assert_eq!(Step::decode("read:x"), None);
    let step = Step::Write(key(Thing::List, 3), 5, How::AtEnd);
    assert_eq!(step.encode(), format!("end:{}:5", key(Thing::List, 3)));
    assert_eq!(value_of(b"0000000000002a"), 42);
    assert_eq!(value_of(b"2a"), super::keys::TORN);
}
