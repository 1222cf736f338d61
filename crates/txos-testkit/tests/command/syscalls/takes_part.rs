//! Calls that take part in a transaction, or touch nothing of others: with good arguments each answers as it
//! does natively, what it changed is there after the commit, and gone after an abort.

use txos_testkit::tree::Tolerance;
use txos_testkit::{Done, Lab, Tree};

use crate::program::Linked;
use crate::{answers, start};

/// Two trees with the same files in them.
struct Pair {
    /// Holds both.
    lab: Lab,
    natively: Lab,
    ours: Lab,
    began: i64,
}

impl Pair {
    fn new() -> Pair {
        let lab = Lab::in_memory();
        let (natively, ours) = (lab.nested("natively"), lab.nested("ours"));
        for place in [&natively, &ours] {
            let _ = start(place, "calls", Linked::Natively).arg("prepare").run().expect(0);
            let _ = place.native("find . -exec touch -h -d @1000000000 {} +");
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        Pair { lab, natively, ours, began: now.as_secs().cast_signed() }
    }

    fn natively(&self, which: &str) -> Done {
        start(&self.natively, "calls", Linked::Natively).arg(which).run().expect(0)
    }

    fn in_a_thread(&self, how: &str) -> Done {
        start(&self.ours, "calls", Linked::WithLibrary).arg(how).run().expect(0)
    }

    fn in_a_command(&self, script: &str) -> Done {
        let program = crate::built("calls", Linked::Natively);
        let script = script.replace("calls", &program.display().to_string());
        self.ours.script(&["--strict"], &script).run()
    }

    fn trees(&self) -> [Tree; 2] {
        [Tree::of(self.natively.tree()), Tree::of(self.ours.tree())]
    }

    fn expect_same(&self) {
        let [natively, ours] = self.trees();
        let tolerance = Tolerance { now_from: Some(self.began - 1), ..Tolerance::default() };
        natively.expect(&ours, tolerance, "natively, and in a transaction");
    }
}

/// Checks that each call which both have made was answered the same.
fn expect_same_answers(natively: &Done, ours: &Done) {
    let natively = answers(natively);
    let mut wrong = Vec::new();
    for (call, answer) in answers(ours) {
        if natively.get(&call) != Some(&answer) {
            wrong.push(format!("{call}: {answer}, natively {:?}", natively.get(&call)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The calls that only a command can take along, and what they leave: not compared with a thread's.
fn without_what_commands_leave(pair: &Pair) {
    let only =
        "rm -rf fork/by-the-child vfork/by-the-child clone/by-the-child clone3/by-the-child \
                execve/by-the-program execveat/by-the-program
                touch -h -d @1000000000 fork vfork clone clone3 execve execveat";
    let _ = pair.natively.native(only);
    // Sockets that came and went.
    let parents = "for d in bind listen connect accept accept4; do touch -d @1000000000 $d; done";
    let _ = pair.natively.native(parents);
}

#[test]
fn a_thread_commits_what_each_call_does() {
    let pair = Pair::new();
    let (natively, ours) = (pair.natively("all"), pair.in_a_thread("commit"));
    expect_same_answers(&natively, &ours);
    without_what_commands_leave(&pair);
    pair.expect_same();
    pair.lab.expect_clean();
}

#[test]
fn a_thread_takes_back_what_each_call_did() {
    let pair = Pair::new();
    let before = Tree::of(pair.ours.tree());
    let (natively, ours) = (pair.natively("all"), pair.in_a_thread("abort"));
    expect_same_answers(&natively, &ours);
    before.expect_same(&Tree::of(pair.ours.tree()));
}

#[test]
fn a_command_commits_what_each_call_does() {
    let pair = Pair::new();
    let (natively, ours) =
        (pair.natively("plain"), pair.in_a_command("exec calls plain").expect(0));
    expect_same_answers(&natively, &ours);
    pair.expect_same();
    pair.ours.expect_clean();
}

#[test]
fn a_command_that_fails_leaves_nothing_of_any_call() {
    let pair = Pair::new();
    let before = Tree::of(pair.ours.tree());
    let (natively, ours) =
        (pair.natively("plain"), pair.in_a_command("calls plain; exit 3").expect(3));
    expect_same_answers(&natively, &ours);
    before.expect_same(&Tree::of(pair.ours.tree()));
    pair.ours.expect_clean();
}
