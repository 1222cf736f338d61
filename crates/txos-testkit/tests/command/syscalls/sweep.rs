//! Every number there is, with arguments that are nothing, natively and in a transaction of a thread: what is
//! refused or can't be taken back is said with its name, and nothing else is.

use std::collections::BTreeMap;

use txos_calls::{Class, Does, rows};
use txos_testkit::syscalls::{shown, takes_part};
use txos_testkit::{Done, Lab};

use crate::program::Linked;
use crate::{answers, start};

/// What the library said, by number.
fn said(done: &Done) -> BTreeMap<String, String> {
    let parts = done.stderr.split("== ").filter_map(|part| part.split_once('\n'));
    parts.map(|(number, text)| (number.to_owned(), text.to_owned())).collect()
}

/// What a call in a transaction is told of by, if the table has it as passed on or refused.
fn expected(name: &str, does: Does) -> Option<String> {
    match does {
        Does::Passed => Some(format!("({name}) is not part of the transaction")),
        Does::Refused => Some(format!("({name}) is not possible in a transaction")),
        _ => None,
    }
}

/// Of these nothing is said unless they are really going to do something.
const FAIL_FIRST: &[&str] = &["connect", "clone3", "execve", "execveat"];
/// These take no arguments, and one waits for ever.
const NOT_MADE: &[&str] = &["rt_sigreturn", "pause"];
/// Natively the kernel takes flags of a share mode, which there are no more, for success.
const SUCCEEDS_WITH_NOTHING: &[&str] = &["flock"];

#[test]
fn each_call_without_good_arguments_answers_or_is_told_of() {
    let lab = Lab::in_memory();
    let natively = answers(&start(&lab, "sweep", Linked::Natively).arg("plain").run().expect(0));
    let done = start(&lab, "sweep", Linked::WithLibrary).arg("inside").run().expect(0);
    let (inside, said) = (answers(&done), said(&done));
    let mut wrong = Vec::new();
    for row in rows() {
        let name = row.name;
        let number = row.number.to_string();
        let Some(answer) = inside.get(&number) else {
            if !shown(row).contains(&"special") && !NOT_MADE.contains(&name) {
                wrong.push(format!("{name}: not made"));
            }
            continue;
        };
        let refused = match row.class {
            Class::Refused(errno, _) => Some(-errno),
            Class::Absent => Some(-libc::ENOSYS),
            _ => None,
        };
        let fails = |answer: &str| answer.starts_with('-') || answer.starts_with("signal");
        // Where several things are wrong at once, which of them is told first is nobody's promise.
        let right = match (refused, natively.get(&number)) {
            // These may ask, and are answered like natively then.
            (Some(_), _) if name == "seccomp" => fails(answer),
            (Some(errno), _) => *answer == errno.to_string(),
            (None, Some(native)) => fails(answer) == fails(native),
            (None, None) => !fails(answer),
        };
        if (!right && !SUCCEEDS_WITH_NOTHING.contains(&name)) || answer.starts_with("signal") {
            wrong.push(format!("{name}: {answer}, natively {:?}", natively.get(&number)));
        }
        let text = said.get(&number).map_or("", String::as_str);
        let quiet = FAIL_FIRST.contains(&name) || name == "seccomp" || row.class == Class::Absent;
        let as_told = match expected(name, row.in_thread()).filter(|_| !quiet) {
            Some(words) => text.contains(&words),
            None => text.is_empty(),
        };
        if !as_told {
            wrong.push(format!("{name}, {:?}: {text:?}", row.in_thread()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn strictness_ends_the_transaction_at_each_call_that_is_not_its_own() {
    let lab = Lab::in_memory();
    let done = start(&lab, "sweep", Linked::WithLibrary).arg("strict").run().expect(0);
    let ends = answers(&done);
    let mut wrong = Vec::new();
    for row in rows() {
        let name = row.name;
        let Some(end) = ends.get(&row.number.to_string()) else { continue };
        let absent = row.class == Class::Absent;
        // An unknown operation of it is asked for here, which is no filter.
        let fails = FAIL_FIRST.contains(&name) && name != "connect";
        let goes_on = takes_part(row.in_thread()) || absent || fails || name == "seccomp";
        let committed = lab.path(format!("made-{}", row.number)).exists();
        let right = match goes_on {
            true => end == "committed" && committed,
            false => end.parse::<i32>().is_ok() && !committed,
        };
        if !right {
            wrong.push(format!("{name}, {:?}: {end}, committed: {committed}", row.in_thread()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    lab.expect_clean();
}

/// The number of a 32-bit call, for the program.
const OF_32_BITS: &str = "-80";
/// Numbers of no call: after the last, beyond the table, of the x32 programs' `getpid`.
const UNKNOWN: [&str; 6] = ["470", "511", "512", "9999", "1073741863", OF_32_BITS];

#[test]
fn calls_that_are_not_known_are_refused() {
    let lab = Lab::in_memory();
    let done =
        start(&lab, "sweep", Linked::WithLibrary).arg("inside").args(UNKNOWN).run().expect(0);
    let (answered, said) = (answers(&done), said(&done));
    let strict = start(&lab, "sweep", Linked::WithLibrary).arg("strict").args(UNKNOWN).run();
    let ends = answers(&strict.expect(0));
    for number in UNKNOWN {
        let answer = answered[number].as_str();
        if number == OF_32_BITS && answer.starts_with("signal") {
            continue; // A kernel that has no such programs.
        }
        assert_eq!(answer, (-libc::ENOSYS).to_string(), "{number}");
        assert!(said[number].contains("is not possible in a transaction"), "{number}: {said:?}");
        assert_eq!(ends[number], libc::ENOTSUP.to_string(), "{number}");
        assert!(!lab.path(format!("made-{number}")).exists());
    }
}
