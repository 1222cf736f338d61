//! Producers and consumers in each language: a program that makes something in a transaction with a name, and one that uses
//! it in a transaction that comes after that.
//!
//! Both are one program, by its argument. Transactions are made with the language's function that calls again after a
//! conflict.
//!
//! | argument | in the transaction | afterwards |
//! |---|---|---|
//! | `produce` | reads `base`; in its first attempt says `begun` and reads a line; writes `new` to `parts`, unless the line is `nothing`; in its first attempt says `made` and reads a line; if that is `abort` it fails | 3 if it has failed, else it says `attempts` and how many there were |
//! | `consume` | says `begun`; if there is no `parts` it says `early` and asks to be called again; copies `parts` to `result`; says `used` | 4 if the producer has failed, or is not there, and it says so with the error number; else as above |

use std::io::{PipeWriter, Write};

use rustix::process::Signal;
use txos_testkit::wait::until;
use txos_testkit::{Done, Invocation, Lab, Running};

/// Those of one scene.
struct Pair<'a> {
    lab: Lab,
    program: &'a dyn Fn(&Lab) -> Invocation,
    producer: Running,
    lines: PipeWriter,
}

fn until_it_says(running: &Running, word: &str) {
    until(word, || running.stdout().lines().any(|line| line == word));
}

impl<'a> Pair<'a> {
    /// A producer that has begun, where `parts` is this, or is not there.
    fn begin(program: &'a dyn Fn(&Lab) -> Invocation, parts: Option<&str>) -> Pair<'a> {
        let lab = Lab::in_memory();
        std::fs::write(lab.path("base"), "base").unwrap();
        if let Some(parts) = parts {
            std::fs::write(lab.path("parts"), parts).unwrap();
        }
        let (reader, lines) = std::io::pipe().unwrap();
        let producer = program(&lab).arg("produce").fd(reader.into(), 0).start();
        until_it_says(&producer, "begun");
        Pair { lab, program, producer, lines }
    }

    fn consume(&self) -> Running {
        (self.program)(&self.lab).arg("consume").start()
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.lines, "{line}").unwrap();
    }

    fn make(&mut self) {
        self.tell("make");
        until_it_says(&self.producer, "made");
    }

    /// The consumer ends well, with what the producer has made. Gives what the two have said.
    fn agree(self, consumer: Running) -> (Done, Done) {
        let (made, used) = (self.producer.wait().expect(0), consumer.wait().expect(0));
        assert_eq!(self.lab.read("result"), "new", "{used:?}");
        assert_eq!(records(&self.lab), 0);
        (made, used)
    }

    /// The consumer fails, and says why.
    fn fail(self, consumer: Running, status: Option<i32>, why: &str) {
        let made = self.producer.wait();
        assert!(status.map_or(made.killed(), |status| made.code() == status), "{made:?}");
        let told = consumer.wait().expect(4).text();
        let said = told.lines().last().unwrap();
        assert!(said.contains("parts (process ") && said.contains(why), "{told}");
        assert!(said.ends_with(&format!(" {}", libc::ECANCELED)), "{told}");
        assert!(!self.lab.path("result").exists());
        assert_eq!(records(&self.lab), usize::from(made.killed()));
    }
}

fn attempts(done: &Done) -> u32 {
    let text = done.text();
    let number = text.lines().last().and_then(|line| line.strip_prefix("attempts "));
    number.unwrap_or_else(|| panic!("{done:?}")).parse().unwrap()
}

/// How many records of runs are left. A killed one's is removed by the next run that comes after something.
fn records(lab: &Lab) -> usize {
    std::fs::read_dir(lab.realm().join("runs")).unwrap().count()
}

/// Every scene, with a program that is started in the lab.
pub fn comes_after(program: &dyn Fn(&Lab) -> Invocation) {
    // It looks when the producer has written, and waits.
    let mut pair = Pair::begin(program, Some("old"));
    pair.make();
    let consumer = pair.consume();
    until_it_says(&consumer, "begun");
    until("it waits", || consumer.stderr().contains("waiting for transaction"));
    pair.tell("commit");
    let (made, used) = pair.agree(consumer);
    assert_eq!((attempts(&made), attempts(&used)), (1, 1), "{used:?}");

    // It has looked before, and is called again.
    let mut pair = Pair::begin(program, Some("old"));
    let consumer = pair.consume();
    until_it_says(&consumer, "used");
    pair.tell("make");
    pair.tell("commit");
    let (_, used) = pair.agree(consumer);
    assert!(attempts(&used) >= 2, "{used:?}");

    // It finds nothing, and asks to be called again: that is when the producer has ended.
    let mut pair = Pair::begin(program, None);
    let consumer = pair.consume();
    until_it_says(&consumer, "early");
    pair.tell("make");
    pair.tell("commit");
    let (_, used) = pair.agree(consumer);
    assert_eq!(attempts(&used), 2, "{used:?}");

    // The producer itself is called again, and goes on all the while.
    let mut pair = Pair::begin(program, Some("old"));
    let _ = pair.lab.native("printf changed > base");
    pair.make();
    let consumer = pair.consume();
    until_it_says(&consumer, "begun");
    pair.tell("commit");
    let (made, _) = pair.agree(consumer);
    assert_eq!(attempts(&made), 2, "{made:?}");

    // The producer fails, or is killed.
    for (line, status, why) in [
        (Some("abort"), Some(3), "which it comes after, was rolled back"),
        (None, None, "was killed"),
    ] {
        let mut pair = Pair::begin(program, Some("old"));
        let consumer = pair.consume();
        until_it_says(&consumer, "used");
        match line {
            Some(line) => {
                // Without a change it is no conflict before.
                pair.tell("nothing");
                until_it_says(&pair.producer, "made");
                pair.tell(line);
            }
            None => pair.producer.signal(Signal::KILL),
        }
        pair.fail(consumer, status, why);
    }

    // A consumer that has asked to be called again is told of a failure as well.
    let mut pair = Pair::begin(program, None);
    let consumer = pair.consume();
    until_it_says(&consumer, "early");
    pair.make();
    pair.tell("abort");
    pair.fail(consumer, Some(3), "which it comes after, was rolled back");

    // Nothing has the name.
    let lab = Lab::in_memory();
    let told = program(&lab).arg("consume").run().expect(4).text();
    assert!(told.contains("parts: no run or transaction that goes on has this name"), "{told}");
    assert!(told.trim_end().ends_with(&format!(" {}", libc::ESRCH)), "{told}");
    // So it is when it was the name of one that has ended.
    let mut pair = Pair::begin(program, None);
    pair.make();
    pair.tell("commit");
    let Pair { lab, producer, .. } = pair;
    let _ = producer.wait().expect(0);
    let _ = program(&lab).arg("consume").run().expect(4);
    assert_eq!(lab.read("parts"), "new");
}
