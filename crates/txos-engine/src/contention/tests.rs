//! Every policy over every combination of facts: the invariants of the module, and that the tables
//! in the documentation are the ones in the code.

use std::collections::BTreeSet;

use super::Decision::{AbortOther, AbortSelf, Wait};
use super::*;

/// One side of a conflict in which nothing differs but the slot.
pub(super) const ME: Contender =
    Contender { priority: 0, start_ns: 10, slot: 1, work: 0, size: 0, restarts: 0, waiting: false };
/// The other side; younger by its slot.
pub(super) const OTHER: Contender = Contender { slot: 2, ..ME };

/// Turns on both sides of every limit of every policy.
const TURNS: [u32; 17] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 23, 24, 63, 64, u32::MAX];

/// Policies under which the contenders are in a strict total order.
const ORDERED: [Policy; 2] = [Policy::OsPriority, Policy::Timestamp];

/// Contenders with every combination of values that a policy tells apart.
fn contenders(slot: u32) -> Vec<Contender> {
    let mut all = Vec::new();
    for priority in [-19, 120] {
        for start_ns in [10, 20] {
            for work in [0, 1, 40, u64::MAX] {
                for size in [0, 1, u64::MAX] {
                    for restarts in [0, 3, 4] {
                        for waiting in [false, true] {
                            all.push(Contender {
                                priority,
                                start_ns,
                                slot,
                                work,
                                size,
                                restarts,
                                waiting,
                            });
                        }
                    }
                }
            }
        }
    }
    all
}

/// All conflicts of two. Both orders of the slots come up, as each of the two is once `me`.
fn conflicts(mut see: impl FnMut(&Contender, &Contender)) {
    let (first, second) = (contenders(1), contenders(2));
    for a in &first {
        for b in &second {
            see(a, b);
            see(b, a);
        }
    }
}

#[test]
fn nobody_waits_on_one_who_waits() {
    conflicts(|me, other| {
        if other.waiting {
            for policy in Policy::ALL {
                for turn in TURNS {
                    let ruling = arbitrate(policy, me, other, turn);
                    assert_ne!(ruling.decision, Wait, "{policy}: {me:?} {other:?} turn {turn}");
                }
            }
        }
    });
}

#[test]
fn at_the_first_conflict_they_never_abort_each_other() {
    conflicts(|me, other| {
        for policy in Policy::ALL {
            let mine = arbitrate(policy, me, other, 0).decision;
            let others = arbitrate(policy, other, me, 0).decision;
            assert_ne!((mine, others), (AbortOther, AbortOther), "{policy}: {me:?} {other:?}");
        }
    });
}

#[test]
fn never_do_both_abort_themselves_whatever_their_turns() {
    conflicts(|me, other| {
        for policy in Policy::ALL {
            let gives_up = |me, other| {
                TURNS.iter().any(|&t| arbitrate(policy, me, other, t).decision == AbortSelf)
            };
            assert!(!(gives_up(me, other) && gives_up(other, me)), "{policy}: {me:?} {other:?}");
        }
    });
}

#[test]
fn a_total_order_has_one_winner_who_aborts_and_one_loser_who_gives_way() {
    conflicts(|me, other| {
        for policy in ORDERED {
            let decisions = |me: &Contender, other: &Contender| {
                TURNS.map(|turn| arbitrate(policy, me, other, turn).decision)
            };
            let (mine, others) = (decisions(me, other), decisions(other, me));
            // What a loser does depends on the winner, at no turn on its patience.
            let gives_way = |to: &Contender| if to.waiting { AbortSelf } else { Wait };
            if mine[0] == AbortOther {
                assert_eq!(mine, [AbortOther; TURNS.len()], "{policy}: {me:?} {other:?}");
                assert_eq!(others, [gives_way(me); TURNS.len()], "{policy}: {me:?} {other:?}");
            } else {
                assert_eq!(others[0], AbortOther, "{policy}: {me:?} {other:?}");
            }
        }
    });
}

#[test]
fn the_total_orders_are_transitive() {
    // Only what the two policies look at; the test above shows that they look at nothing else.
    let mut some = Vec::new();
    for priority in [-1, 0, 1] {
        for start_ns in [10, 20, 30] {
            for slot in [1, 2, 3] {
                some.push(Contender { priority, start_ns, slot, ..ME });
            }
        }
    }
    for policy in ORDERED {
        let beats =
            |a: &Contender, b: &Contender| arbitrate(policy, a, b, 0).decision == AbortOther;
        for a in &some {
            for b in &some {
                for c in &some {
                    assert!(!(beats(a, b) && beats(b, c)) || beats(a, c), "{a:?} {b:?} {c:?}");
                }
            }
        }
    }
}

#[test]
fn other_policies_bound_every_wait_and_do_not_go_back_to_it() {
    let bound = |policy| match policy {
        Policy::OsPriority | Policy::Timestamp => None,
        Policy::Karma => Some(24),
        Policy::Polka => Some(12),
        Policy::SizeMatters => Some(64),
        Policy::Polite => Some(8),
    };
    conflicts(|me, other| {
        for policy in Policy::ALL {
            let Some(bound) = bound(policy) else { continue };
            let mut waits = true;
            for turn in TURNS {
                let again = arbitrate(policy, me, other, turn).decision == Wait;
                assert!(waits || !again, "{policy} waits again: {me:?} {other:?} turn {turn}");
                assert!(turn < bound || !again, "{policy}: {me:?} {other:?} turn {turn}");
                waits = again;
            }
        }
    });
}

#[test]
fn the_documented_tables_are_the_ones_in_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/contention.md");
    let text = std::fs::read_to_string(path).unwrap();
    for policy in Policy::ALL {
        let heading = format!("\n### {policy}\n");
        let from = text.find(&heading).unwrap_or_else(|| panic!("no section on {policy}"));
        let section = &text[from + heading.len()..];
        let section = &section[..section.find("\n##").unwrap_or(section.len())];
        // The last two cells of each row after the table's head.
        let documented: BTreeSet<(String, String)> = section
            .lines()
            .filter(|line| line.starts_with('|'))
            .skip(2)
            .map(|line| {
                let mut cells = line.trim_matches('|').rsplit('|').map(|c| c.trim().to_owned());
                let reason = cells.next().unwrap();
                (cells.next().unwrap(), reason)
            })
            .collect();
        let mut reached = BTreeSet::new();
        conflicts(|me, other| {
            for turn in TURNS {
                let ruling = arbitrate(policy, me, other, turn);
                let decision = match ruling.decision {
                    AbortSelf => "abort myself",
                    AbortOther => "abort the other",
                    Wait => "wait",
                };
                reached.insert((decision, ruling.reason));
            }
        });
        let reached: BTreeSet<(String, String)> =
            reached.into_iter().map(|(d, r)| (d.to_owned(), r.to_owned())).collect();
        assert_eq!(documented, reached, "{policy}");
    }
}

#[test]
fn names_and_numbers_lead_back_to_the_policy() {
    for (code, policy) in (0..).zip(Policy::ALL) {
        assert_eq!(policy.code(), code);
        assert_eq!(Policy::from_code(code), Some(policy));
        assert_eq!(policy.to_string().parse(), Ok(policy));
        assert!(!policy.summary().contains('\n'));
    }
    assert_eq!(Policy::from_code(6), None);
    assert_eq!(Policy::from_code(u32::MAX), None);
    assert_eq!(Policy::default(), Policy::OsPriority);
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() {
    let error = "greedy".parse::<Policy>().unwrap_err().to_string();
    assert_eq!(
        error,
        "'greedy' is not a contention policy; there are: os-priority, timestamp, karma, polka, \
         size-matters, polite"
    );
}
