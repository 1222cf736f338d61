//! Commands that run at the same time: what one sees of another that dies, stops or publishes.

use std::collections::BTreeSet;

use txos_testkit::rendezvous::PAUSE;
use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, Rendezvous};

/// A committer is killed before each of its steps, while another transaction runs. That one then
/// looks at what was being published: it finishes or undoes it first, and sees all or nothing.
#[test]
fn whoever_meets_a_dead_publish_settles_it() {
    let lab = Lab::in_memory();
    let (mut seen, mut killed, mut finished) = (BTreeSet::new(), 0, 0);
    for step in 1.. {
        let place = lab.nested(&format!("step{step}"));
        let _ = place.native("echo old > a; echo old > b; mkdir c; echo old > c/d");
        let mut meeting = Rendezvous::new();
        let older =
            place.script(&[], &format!("true; {PAUSE}; cat a b c/d")).meeting(&mut meeting).start();
        assert!(meeting.arrived());
        let change = "echo new > a; echo new > b; rm c/d; rmdir c; mkdir c; echo new > c/d";
        let younger = place.script(&[], change).env("TXOS_FAULT", format!("kill@{step}")).run();
        meeting.go();
        let older = older.wait().expect(0);
        let text = older.text();
        assert!(["old\nold\nold\n", "new\nnew\nnew\n"].contains(&&*text), "step {step}: {older:?}");
        let now = place.native("cat a b c/d").text();
        assert_eq!(now, text, "step {step}: it saw what is there");
        seen.insert(text);
        killed += u32::from(younger.code() == 137);
        finished += u32::from(younger.code() == 0);
        place.expect_clean();
        assert!(members(&place).is_empty(), "step {step}: somebody is still there");
        if finished == 2 {
            break;
        }
    }
    println!("{killed} killed");
    assert!(killed > 10, "the fault points are reached");
    assert_eq!(seen.len(), 2, "some publishes were undone, some finished");
}

/// Who is in the realm.
fn members(lab: &Lab) -> Vec<serde_json::Value> {
    let shown = lab.txos(["top", "--once", "--json"]).run().expect(0).json();
    shown["transactions"].as_array().expect("transactions").clone()
}

/// What a command is about to do to a name waits for another transaction, which takes the name away:
/// then there is nothing to do it to, however the view has seen it before.
#[test]
fn what_was_waited_for_is_seen_as_it_is_then() {
    for call in ["rename", "link"] {
        let lab = Lab::in_memory();
        let _ = lab.native("echo x > name");
        let mut meeting = Rendezvous::new();
        let change = format!("mv name theirs; {PAUSE}");
        let older = lab.script(&[], &change).meeting(&mut meeting).start();
        assert!(meeting.arrived());
        let change = format!("exec perl -e '{call}(\"name\", \"mine\") or exit 9'");
        let younger = lab.script(&[], &change).start();
        until("it waits", || members(&lab).iter().any(|one| !one["waits_for"].is_null()));
        meeting.go();
        let _ = older.wait().expect(0);
        let younger = younger.wait();
        assert!([9, 75].contains(&younger.code()), "{call}: {younger:?}");
        assert_eq!(lab.native("ls").text(), "theirs\n", "{call}");
        lab.expect_clean();
    }
}

/// Two transactions read and write the same counter and the same directory many times: each is as
/// if it were alone, and with retries all of them commit.
#[test]
fn commands_that_touch_the_same_things_are_as_if_one_after_the_other() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 0 > a; echo 0 > b; mkdir list");
    let txos = txos_testkit::binary::txos().display().to_string();
    // Keeps a = b, and leaves a name for each value; a mix of two states would break one of these.
    let step = "x=$(cat a); y=$(cat b); [ $x = $y ] || exit 9; n=$((x + 1)); \
                [ $(ls list | wc -l) = $x ] || exit 8; echo $n > a; : > list/$n; echo $n > b";
    let script = format!(
        "for i in $(seq 6); do {txos} -q run --retry 1000 --no-durable --scope . -- sh -c '{step}' \
         || exit; done"
    );
    let running: Vec<_> = (0..4)
        .map(|_| {
            Invocation::shell(&script)
                .env("TXOS_STORE", lab.store())
                .env("TXOS_REALM", lab.realm())
                .dir(lab.tree())
                .start()
        })
        .collect();
    for run in running {
        let _ = run.wait().expect(0);
    }
    assert_eq!(lab.read("a"), "24\n");
    assert_eq!(lab.read("b"), "24\n");
    assert!(members(&lab).is_empty());
    lab.expect_clean();
}
