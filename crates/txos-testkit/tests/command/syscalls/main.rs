//! Every system call: that each does what the table of system calls says, in both front doors.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../library/runtime/program.rs"]
#[expect(dead_code, reason = "what the other tests need")]
mod program;

mod deferred;
mod ipc;
mod others;
mod outside;
mod pointers;
mod sent;
mod sockets;
mod special;
mod sweep;
mod table;
mod takes_part;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use program::{Linked, compile};
use txos_testkit::{Done, Invocation, Lab};

/// A C program of these tests; compiled once.
fn built(name: &'static str, linked: Linked) -> PathBuf {
    static BUILT: Mutex<BTreeMap<(&str, bool), PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(|e| e.into_inner());
    let key = (name, linked == Linked::Natively);
    built.entry(key).or_insert_with(|| compile("tests/command/syscalls/c", name, linked)).clone()
}

/// It, started in the lab's tree.
fn start(lab: &Lab, name: &'static str, linked: Linked) -> Invocation {
    Invocation::new(built(name, linked))
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .dir(lab.tree())
}

/// Where a case of a program can be made, as `cases.h` has it.
const RUN: u32 = 1;
const INSIDE: u32 = 2;

/// The cases that a program has.
fn cases(name: &'static str) -> BTreeMap<String, u32> {
    let linked =
        if matches!(name, "special" | "deferred") { Linked::WithLibrary } else { Linked::Natively };
    let list = Invocation::new(built(name, linked)).arg("list").run().expect(0).text();
    list.lines()
        .map(|line| {
            let (name, places) = line.split_once(' ').expect("a name and where");
            (name.to_owned(), places.parse().expect("a number"))
        })
        .collect()
}

/// What a program said of each call: lines of a name or a number, and the rest.
fn answers(done: &Done) -> BTreeMap<String, String> {
    let text = done.text();
    let lines = text.lines().filter_map(|line| line.split_once([':', ' ']));
    lines.map(|(call, answer)| (call.to_owned(), answer.trim().to_owned())).collect()
}

/// What a program of cases has printed, a line each: what is seen from outside before the call, meanwhile and afterwards,
/// and two lines of its own.
fn seen(done: &Done) -> [String; 5] {
    let lines: Vec<String> = done.text().lines().map(str::to_owned).collect();
    lines.try_into().unwrap_or_else(|_| panic!("{done:?}"))
}

/// Every case of a program leaves what it leaves natively, and nothing is seen of it before the commit.
#[track_caller]
fn are_as_natively_after_the_commit(program: &'static str, run: impl Fn(&str, &str) -> Done) {
    let mut wrong = Vec::new();
    for call in cases(program).into_keys() {
        let natively = run(&call, "natively");
        let [before, _, after, fourth, fifth] = seen(&natively);
        for how in ["commit", "strict"] {
            let done = run(&call, how);
            let expected = [&before, &before, &after, &fourth, &fifth].map(String::clone);
            if seen(&done) != expected || !done.stderr.is_empty() {
                wrong.push(format!("{call} {how}: {done:?}, natively {natively:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
