//! Transactions that lose a conflict in the middle of the C library or the dynamic linker: they begin again, and no lock stays taken.
//! See `c/inside.c`.

use txos_testkit::{Done, Lab};

use crate::place::start;
use crate::program::Linked;

/// A library without a constructor, a directory of three files, and a time zone.
const PREPARED: &str = r#"
    set -e
    mkdir lib few
    echo 'int one(void) { return 1; }' > one.c
    cc -shared -fPIC one.c -o lib/libone.so
    rm one.c
    printf a > few/a; touch few/b few/c
    printf 'TZif\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\4\0\0\25\30\0\0XYZ\0' > zone"#;

fn prepared() -> Lab {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARED);
    lab
}

fn ran(lab: &Lab, function: &str, then: &str) -> Done {
    let zone = lab.path("zone");
    start(lab, "inside", Linked::WithLibrary).env("TZ", zone).args([function, then]).run().expect(0)
}

/// Loses at each call in turn; gives how many there are.
fn begins_again(function: &str) -> u32 {
    let lab = prepared();
    let calls = ran(&lab, function, "goes on").text().trim().parse().unwrap();
    assert_eq!(ran(&lab, function, "is beaten").text(), "");
    lab.expect_clean();
    calls
}

#[test]
fn the_linker_is_left() {
    assert!(begins_again("dlopen") > 4);
}

#[test]
fn accounts_are_looked_up_again() {
    assert!(begins_again("getpwnam") > 4);
    assert!(begins_again("getgrnam") > 4);
}

#[test]
fn time_zones_locales_and_converters_are_read_once() {
    assert!(begins_again("localtime") > 3);
    assert!(begins_again("setlocale") > 4);
    assert!(begins_again("iconv") > 4);
}

#[test]
fn directories_are_listed_again() {
    assert!(begins_again("readdir") > 1);
    assert!(begins_again("opendir") > 2);
}

#[test]
fn the_allocator_is_left() {
    // It makes no call by which a transaction could lose.
    assert_eq!(ran(&prepared(), "trim", "goes on").text().trim(), "0");
    assert!(begins_again("arena") > 1);
}

/// Whatever the program makes of the answer, it has not happened.
#[test]
fn it_begins_again_whatever_comes_next() {
    let lab = prepared();
    for then in [
        "exits",
        "exits at once",
        "aborts",
        "xaborts",
        "ends",
        "pauses",
        "begins",
        "kills itself",
        "waits",
        "makes a thread",
    ] {
        for function in ["dlopen", "getpwnam", "readdir"] {
            let _ = ran(&lab, function, then);
        }
    }
    lab.expect_clean();
}

/// A program that calls the same function until it answers otherwise.
#[test]
fn it_begins_again_in_a_loop() {
    let lab = prepared();
    let _ = ran(&lab, "opendir", "looks again");
    lab.expect_clean();
}

/// Memory that is put back needs none of this.
#[test]
fn it_begins_again_at_once_with_memory() {
    let lab = prepared();
    for function in ["dlopen", "getpwnam", "localtime", "setlocale", "iconv", "readdir"] {
        let _ = ran(&lab, function, "kept");
    }
    lab.expect_clean();
}
