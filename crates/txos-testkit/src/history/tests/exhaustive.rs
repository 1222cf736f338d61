//! Small random histories, most of them wrong, against the definition: is there an order of the
//! transactions that time allows and in which every read finds what it found?

use std::collections::HashMap;

use super::*;
use crate::random::Random;

/// Whether some order explains a history; with each choice of the indeterminate ones.
fn serializable(history: &History) -> bool {
    let of = |outcome| history.transactions.iter().filter(move |t| t.outcome == outcome);
    let committed: Vec<&Transaction> = of(Outcome::Committed).collect();
    let doubtful: Vec<&Transaction> = of(Outcome::Indeterminate).collect();
    (0..1u32 << doubtful.len()).any(|choice| {
        let mut all = committed.clone();
        all.extend(doubtful.iter().enumerate().filter(|(n, _)| choice >> n & 1 == 1).map(|d| d.1));
        explained(&mut all, &HashMap::new())
    })
}

fn explained(rest: &mut Vec<&Transaction>, state: &HashMap<u64, Vec<u64>>) -> bool {
    if rest.is_empty() {
        return true;
    }
    let first_end = rest.iter().map(|t| t.end()).min().unwrap();
    for n in 0..rest.len() {
        if rest[n].invoked > first_end {
            continue;
        }
        let transaction = rest.swap_remove(n);
        let mut after = state.clone();
        let fits = transaction.ops.iter().all(|op| {
            let values = after.entry(op.key()).or_default();
            match op {
                Op::Append { value, .. } => values.push(*value),
                Op::Write { value, .. } => *values = vec![*value],
                Op::ReadList { .. } | Op::ReadRegister { .. } => {
                    return op.found() == Some(values.as_slice());
                }
            }
            true
        });
        let works = fits && explained(rest, &after);
        rest.push(transaction);
        let last = rest.len() - 1;
        rest.swap(n, last);
        if works {
            return true;
        }
    }
    false
}

/// A few transactions on two lists and two registers, whose reads find something likely.
fn random_history(random: &mut Random, registers: bool) -> History {
    let mut orders: Vec<Vec<u64>> = vec![Vec::new(); 4];
    let mut transactions = Vec::new();
    for id in 0..2 + random.below(4) {
        let mut ops = Vec::new();
        for n in 0..1 + random.below(3) {
            let key = random.below(if registers { 4 } else { 2 });
            let value = 10 * (id + 1) + n;
            let reads = random.below(2) == 0;
            if !reads {
                let at = random.below(orders[key as usize].len() as u64 + 1) as usize;
                orders[key as usize].insert(at, value);
            }
            ops.push(match (key < 2, reads) {
                (true, true) => list(key, &[]),
                (true, false) => append(key, value),
                (false, true) => read(key, 0),
                (false, false) => write(key, value),
            });
        }
        let invoked = random.below(30);
        let transaction = at(id, (invoked, invoked + 1 + random.below(20)), &ops);
        transactions.push(match random.below(12) {
            0 => aborted(transaction),
            1 => indeterminate(transaction),
            _ => transaction,
        });
    }
    for transaction in &mut transactions {
        let mut own: HashMap<u64, Vec<u64>> = HashMap::new();
        for op in &mut transaction.ops {
            let key = op.key();
            let order = &orders[key as usize];
            if let Some(value) = op.written() {
                let known = if key < 2 { own.remove(&key).unwrap_or_default() } else { vec![] };
                own.insert(key, [known, vec![value]].concat());
                continue;
            }
            let length = random.below(order.len() as u64 + 1) as usize;
            let mut found: Vec<u64> = order[..length].to_vec();
            if let Some(own) = own.get(&key) {
                found.retain(|value| !own.contains(value));
                found.extend(own);
            }
            match op {
                Op::ReadRegister { value, .. } => *value = found.last().copied().unwrap_or(0),
                Op::ReadList { values, .. } => *values = found,
                _ => {}
            }
        }
        if transaction.outcome == Outcome::Indeterminate {
            transaction.ops.retain(|op| op.written().is_some());
        }
    }
    if !registers {
        // Nothing stays unread, unless it is gone.
        let all: Vec<Op> = (0..2).map(|key| list(key, &orders[key as usize])).collect();
        transactions.push(at(99, (1000, 1001), &all));
    }
    history(&transactions)
}

#[test]
fn whatever_is_reported_is_wrong() {
    let mut random = Random::new(1);
    let (mut clean, mut wrong, mut unseen) = (0, 0, 0);
    for round in 0..60_000 {
        let history = random_history(&mut random, true);
        let report = check(&history);
        let serializable = serializable(&history);
        assert!(report.is_clean() || !serializable, "round {round}: {report}\n{history:#?}");
        clean += u32::from(serializable);
        wrong += u32::from(!serializable);
        unseen += u32::from(!serializable && report.is_clean());
    }
    println!("{clean} good, {wrong} bad, of which {unseen} were not seen");
    assert!(clean > 1000 && wrong > 1000);
    assert!(unseen * 20 < wrong, "{unseen} of {wrong} were not seen");
}

#[test]
fn of_lists_read_to_their_end_whatever_is_wrong_is_reported() {
    let mut random = Random::new(2);
    let (mut clean, mut wrong) = (0, 0);
    for round in 0..60_000 {
        let history = random_history(&mut random, false);
        let report = check(&history);
        let serializable = serializable(&history);
        assert_eq!(report.is_clean(), serializable, "round {round}: {report}\n{history:#?}");
        clean += u32::from(serializable);
        wrong += u32::from(!serializable);
    }
    assert!(clean > 1000 && wrong > 1000, "{clean} good, {wrong} bad");
}
