//! How long a large history takes, and how much memory: in an optimized build, with
//! `cargo test --release -p txos-testkit history::tests::scale -- --ignored --nocapture --test-threads=1`.

use std::time::Instant;

use super::simulate::{Size, simulate};
use super::*;

const LARGE: Size = Size {
    transactions: 340_000,
    processes: 32,
    keys: 1000,
    ops: 5,
    writes: 16,
    aborts: 3,
    kills: 1,
};

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn timed(name: &str, history: &History) -> super::super::Report {
    let start = Instant::now();
    let report = check(history);
    let time = start.elapsed();
    println!(
        "{name}: {} transactions, {} operations: {time:.2?}, peak {} MiB\n{}",
        history.transactions.len(),
        history.operations(),
        peak_mib(),
        report.to_string().chars().take(1500).collect::<String>()
    );
    report
}

#[test]
#[ignore = "measures"]
fn a_million_operations() {
    let good = History { orders: BTreeMap::new(), ..simulate(1, LARGE) };
    println!("peak with the history alone: {} MiB", peak_mib());
    timed("good", &good).expect_clean();

    // Everything is against real time: one component of all transactions.
    let mut bad = good.clone();
    let end = bad.transactions.iter().map(|t| t.invoked).max().unwrap();
    for transaction in bad.transactions.iter_mut().filter(|t| t.end() != super::super::NEVER) {
        let length = transaction.completed - transaction.invoked;
        transaction.invoked = end - transaction.invoked;
        transaction.completed = transaction.invoked + length;
    }
    assert!(!timed("backwards", &bad).is_clean());

    // Reads that are sometimes of another time.
    let mut bad = good.clone();
    for (n, transaction) in bad.transactions.iter_mut().enumerate() {
        for op in transaction.ops.iter_mut().filter(|_| n % 100 == 0) {
            if let Op::ReadList { values, .. } = op {
                let _ = values.pop();
            }
        }
    }
    assert!(!timed("stale reads", &bad).is_clean());
}

/// As under snapshot isolation without its check: circles everywhere, in one large component.
#[test]
#[ignore = "measures"]
fn a_component_of_everything() {
    for every in [1, 2, 5, 20] {
        let mut bad = simulate(3, Size { aborts: 0, kills: 0, ops: 3, ..LARGE });
        bad.orders.clear();
        let ends = bad.transactions.iter_mut().enumerate();
        for (n, transaction) in ends {
            // All at the same time, so that there is only what the reads tell.
            (transaction.invoked, transaction.completed) = (n as u64, 1 << 60);
            transaction.process = n as u64;
            let written: Vec<u64> = transaction.ops.iter().filter_map(Op::written).collect();
            for op in transaction.ops.iter_mut().filter(|_| n % every == 0) {
                if let Op::ReadList { values, .. } = op
                    && values.last().is_some_and(|last| !written.contains(last))
                {
                    let _ = values.pop();
                }
            }
        }
        let report = timed(&format!("a stale list in {every}"), &bad);
        assert!(!report.is_clean());
    }
}

#[test]
#[ignore = "measures"]
fn one_key_for_all() {
    let one = Size { keys: 2, writes: 2000, transactions: 100_000, ..LARGE };
    let mut good = simulate(2, one);
    timed("two keys at a time, order known", &good).expect_clean();
    good.orders.clear();
    timed("two keys at a time", &good).expect_clean();
}

#[test]
fn a_long_line_does_not_overflow_the_stack() {
    let mut transactions: Vec<Transaction> = Vec::new();
    for id in 1..200_000 {
        let mut ops = vec![read(1, id - 1), write(1, id)];
        if id == 1 {
            ops = vec![write(1, 1), read(2, 199_999)];
        }
        transactions.push(meanwhile(id, &ops));
    }
    transactions.last_mut().unwrap().ops.push(write(2, 199_999));
    let found = only(&history(&transactions), Kind::G1c);
    assert_eq!(found.cycle.len(), 199_999);
}
