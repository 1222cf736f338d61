//! Histories on disk, torn and damaged ones too.

use std::path::{Path, PathBuf};

use super::super::log::{Writer, read_all};
use super::super::{Kind, NEVER};
use super::*;

/// A directory, gone at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let name = format!("txos-history-{}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir(&dir).unwrap();
        Dir(dir)
    }

    fn file(&self, process: u32) -> PathBuf {
        self.0.join(format!("{process}.history"))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn ops() -> Vec<Op> {
    vec![append(1, 11), list(1, &[7, 8, 11]), write(2, 12), read(2, 12), list(3, &[])]
}

/// One committed, one aborted, one of which nobody knows, and one in the middle.
fn write_some(dir: &Path) -> [u64; 4] {
    let mut writer = Writer::create(dir, 5).unwrap();
    let ids = [Outcome::Committed, Outcome::Aborted, Outcome::Indeterminate].map(|outcome| {
        let id = writer.invoke(&ops()).unwrap();
        writer.complete(id, outcome, &ops()).unwrap();
        id
    });
    [ids[0], ids[1], ids[2], writer.invoke(&ops()).unwrap()]
}

#[test]
fn what_is_written_is_read() {
    let dir = Dir::new("roundtrip");
    let ids = write_some(&dir.0);
    let other = Writer::create(&dir.0, 6).unwrap().invoke(&[append(1, 9)]).unwrap();
    assert!(Writer::create(&dir.0, 6).is_err());
    let mut writer = Writer::create(&dir.0, 7).unwrap();
    assert!(writer.complete(other, Outcome::Committed, &[]).is_err());

    let history = read_all(&dir.0).unwrap();
    let found: Vec<u64> = history.transactions.iter().map(|t| t.id).collect();
    assert_eq!(found, [ids.to_vec(), vec![other]].concat());
    let writes: Vec<Op> = ops().into_iter().filter(|op| op.written().is_some()).collect();
    for (transaction, outcome) in history.transactions.iter().zip([
        Outcome::Committed,
        Outcome::Aborted,
        Outcome::Indeterminate,
        Outcome::Indeterminate,
    ]) {
        assert_eq!(transaction.process, 5);
        assert_eq!(transaction.outcome, outcome);
        let expected = if outcome == Outcome::Committed { ops() } else { writes.clone() };
        assert_eq!(transaction.ops, expected);
        assert_eq!(transaction.completed == NEVER, outcome == Outcome::Indeterminate);
        assert!(transaction.invoked <= transaction.completed);
    }
    assert_eq!(history.transactions[4].ops, [append(1, 9)]);
}

#[test]
fn wherever_it_is_torn_the_rest_is_read() {
    let dir = Dir::new("torn");
    let _ = write_some(&dir.0);
    let whole = std::fs::read(dir.file(5)).unwrap();
    let mut last = 0;
    for length in 0..=whole.len() {
        std::fs::write(dir.file(5), &whole[..length]).unwrap();
        let history = read_all(&dir.0).unwrap();
        assert!(history.transactions.len() >= last);
        last = history.transactions.len();
        if length >= 12 {
            // As a power cut leaves it; zeros may happen to be what was to come.
            let zeros = [&whole[..length], &[0; 400]].concat();
            std::fs::write(dir.file(5), zeros).unwrap();
            assert!((last..=last + 1).contains(&read_all(&dir.0).unwrap().transactions.len()));
        }
    }
    assert_eq!(last, 4);
}

#[test]
fn damage_is_told() {
    let dir = Dir::new("damaged");
    let _ = write_some(&dir.0);
    let whole = std::fs::read(dir.file(5)).unwrap();
    for at in [0, 30, 60] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(dir.file(5), damaged).unwrap();
        let error = read_all(&dir.0).unwrap_err();
        assert!(error.to_string().contains("5.history"), "{error}");
    }
}

#[test]
fn threads_on_one_list() {
    let dir = Dir::new("threads");
    let shared = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for process in 0..4 {
            let (dir, shared) = (&dir, &shared);
            scope.spawn(move || {
                let mut writer = Writer::create(&dir.0, process).unwrap();
                for n in 0..100 {
                    let value = u64::from(process) * 1000 + n;
                    let id = writer.invoke(&[append(1, value), list(1, &[])]).unwrap();
                    let values = {
                        let mut values = shared.lock().unwrap();
                        values.push(value);
                        values.clone()
                    };
                    let ops = [append(1, value), list(1, &values)];
                    writer.complete(id, Outcome::Committed, &ops).unwrap();
                }
            });
        }
    });
    let mut history = read_all(&dir.0).unwrap();
    assert_eq!(history.transactions.len(), 400);
    check(&history).expect_clean();
    history.transactions[200].outcome = Outcome::Aborted;
    assert!(check(&history).kinds().contains(&Kind::G1a));
}
