//! Memory that an abort puts back: SQLite as it is, in transactions that begin again (see `c/checkpoint.c`); random
//! calls for memory, after which every byte is as before (see `txos-runtime/tests/c/checkpoint.c`).

use std::time::{Duration, Instant};

use txos_skip::{self as skip, require};
use txos_testkit::{Invocation, Lab, binary, random};

use crate::program::{Linked, compile, program};

#[test]
fn sqlite_with_an_open_connection_begins_again() {
    require!(skip::has("sqlite3"), "there is no sqlite3");
    let lab = Lab::in_memory();
    let sqlite = |what: &str| {
        Invocation::new("sqlite3").args(["base", what]).dir(lab.tree()).run().expect(0)
    };
    let _ = sqlite("create table t (n integer); insert into t values (0)");
    let (processes, rounds) = (3, 12);
    let count = "for i in 1 2 3; do \"$0\" base 12 > seen.$i 2> said.$i & all=\"$all $!\"; done; \
                 for one in $all; do wait $one || exit; done";
    let done = Invocation::new("sh")
        .args(["-c", count])
        .arg(program("checkpoint", Linked::WithLibrary))
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .dir(lab.tree())
        .run();
    let said: String = (1..=processes).map(|i| lab.read(&format!("said.{i}"))).collect();
    assert_eq!(done.code(), 0, "{said}");
    // Nobody has counted on what has never happened.
    let seen: String = (1..=processes).map(|i| lab.read(&format!("seen.{i}"))).collect();
    let mut seen: Vec<u32> = seen.lines().map(|line| line.parse().expect("a number")).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..processes * rounds).collect::<Vec<_>>(), "{said}");
    assert_eq!(sqlite("select n from t; pragma integrity_check").text(), "36\nok\n");
}

/// What Python does in a transaction that it begins through `ctypes`: the interpreter and its `json` know
/// nothing of that. `tries` counts in its memory, so it counts what has happened only.
const PYTHON: &str = r#"
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
seen, tries = [], 0
for i in range(12):
    if library.sys_xbegin(0x08 | 0x01) < 0: # TX_CHECKPOINT | TX_RESTART
        sys.exit("sys_xbegin")
    tries += 1
    with open("numbers.json", "r+") as file:
        numbers = json.load(file)
        seen.append(len(numbers))
        numbers.append(tries)
        file.seek(0)
        json.dump(numbers, file)
    if library.sys_xend() != 0:
        sys.exit("sys_xend")
assert tries == 12, tries
print("\n".join(map(str, seen)))
"#;

#[test]
fn python_with_its_json_begins_again() {
    require!(skip::has("python3"), "there is no python3");
    let lab = Lab::in_memory();
    let _ = lab.native("echo '[]' > numbers.json");
    let count = "for i in 1 2 3; do python3 -c \"$0\" \"$1\" > seen.$i & all=\"$all $!\"; done; \
                 for one in $all; do wait $one || exit; done";
    let _ = Invocation::new("sh")
        .args(["-c", count, PYTHON])
        .arg(binary::library())
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .dir(lab.tree())
        .run()
        .expect(0);
    let seen: String = (1..=3).map(|i| lab.read(&format!("seen.{i}"))).collect();
    let mut seen: Vec<u32> = seen.lines().map(|line| line.parse().expect("a number")).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..36).collect::<Vec<_>>());
}

#[test]
fn random_calls_for_memory_are_taken_back() {
    let end = Instant::now() + Duration::from_secs(if skip::long("differ") { 120 } else { 0 });
    let program = compile("../txos-runtime/tests/c", "checkpoint", Linked::WithLibrary);
    let mut seed = random::seed() % 1_000_000_000;
    loop {
        let lab = Lab::in_memory();
        let _ = Invocation::new(&program)
            .args(["random", &seed.to_string()])
            .env("TXOS_STORE", lab.store())
            .env("TXOS_REALM", lab.realm())
            // A function that is found at its first call changes memory.
            .env("LD_BIND_NOW", "1")
            .dir(lab.tree())
            .run()
            .expect(0);
        if Instant::now() >= end {
            break;
        }
        seed += 1;
    }
}
