//! What the C library does for itself in the middle of a transaction: it takes and gives memory, loads libraries, looks up
//! accounts and converters, and logs. See `c/itself.c` for what each scenario does.

use txos_testkit::{Done, Invocation, Lab, binary, require, skip, system};

use crate::place::{start, strays};
use crate::program::{Linked, program};

/// A library, one that it needs and finds beside itself, and a third one without the name of one.
const LIBRARIES: &str = r#"
    set -e
    mkdir lib
    echo 'int two(void) { return 1; }' > two.c
    echo 'int one(void) { return 7; }' > other.c
    cat > one.c <<'END'
#include <fcntl.h>
#include <unistd.h>
int two(void);
int one(void) { return two(); }
__attribute__((constructor)) static void make(void) { close(open("constructed", O_CREAT | O_WRONLY, 0600)); }
END
    cc -shared -fPIC two.c -o lib/libtwo.so
    cc -shared -fPIC one.c -Llib -ltwo -Wl,-rpath,'$ORIGIN' -o lib/libone.so
    cc -shared -fPIC other.c -o lib/other
    rm one.c two.c other.c"#;

/// How a transaction ends: it commits, is aborted, loses and begins again, and learns in the middle of the work that it has lost; and
/// the same with memory that is put back.
const ENDS: [&str; 8] = [
    "committed",
    "aborted",
    "again",
    "again-within",
    "kept",
    "kept-aborted",
    "kept-again",
    "kept-again-within",
];

/// Those in which the C library is not begun again with a lock of its own.
const WITHOUT_LOCKS: [&str; 7] =
    ["committed", "aborted", "again", "kept", "kept-aborted", "kept-again", "kept-again-within"];

fn ran(lab: &Lab, arguments: &[&str]) -> Done {
    let done = start(lab, "itself", Linked::WithLibrary).args(arguments).run();
    assert_eq!(done.code(), 0, "{arguments:?}: {done:?}");
    done
}

/// Each with nothing said, and nothing left.
fn ran_silently(what: &str, ends: &[&str]) {
    let lab = Lab::in_memory();
    let _ = lab.native(LIBRARIES);
    for end in ends {
        let done = ran(&lab, &[what, end]);
        // What the program itself remembers past all checkpoints is such memory.
        let shared = "txos: TX_CHECKPOINT: memory that is shared with others, or is a device's, stays as it is";
        let mut said = done.stderr.lines().filter(|line| !line.starts_with(shared));
        assert_eq!(said.next(), None, "{what}, {end}");
    }
    assert_eq!(strays(&lab, |name| name == "lib"), Vec::<std::path::PathBuf>::new());
    lab.expect_clean();
}

#[test]
fn the_allocator_stays_in_order() {
    ran_silently("allocator", &ENDS);
    // An arena of a thread's own, of which some is given back to the kernel.
    ran_silently("arena", &["committed", "aborted", "again", "again-within"]);
}

#[test]
fn a_library_is_loaded_or_cleanly_not() {
    ran_silently("loader", &ENDS);
    ran_silently("unloader", &ENDS);
    ran_silently(
        "elsewhere",
        &["committed", "aborted", "again", "again-midway", "kept", "kept-again"],
    );
    ran_silently("lost", &["alone", "threads"]);
    ran_silently("member", &["aborted"]);
}

#[test]
fn a_library_of_the_transactions_own_is_loaded() {
    ran_silently("own", &ENDS);
}

#[test]
fn accounts_converters_and_locales_are_found() {
    ran_silently("system", &WITHOUT_LOCKS);
}

#[test]
fn exceptions_are_caught() {
    require!(skip::has("c++"), "there is no C++ compiler");
    let lab = Lab::in_memory();
    let _ = lab.native(
        "mkdir lib
         echo 'extern \"C\" int thrown(int n) { try { throw n; } catch (int caught) { return caught; } }' > throw.cc
         c++ -shared -fPIC throw.cc -o lib/libthrow.so; rm throw.cc",
    );
    for end in ENDS {
        let _ = ran(&lab, &["exceptions", end]);
    }
    lab.expect_clean();
}

/// A log to which others append is one of the things to write to past a transaction.
#[test]
fn others_who_append_to_a_log_are_a_conflict() {
    let lab = Lab::in_memory();
    let _ = ran(&lab, &["appended", "committed"]);
    lab.expect_clean();
}

/// In a mount namespace of its own, once a script has made it what the scenario needs.
fn ran_in_namespace(lab: &Lab, prepare: &str, arguments: &[&str]) -> Done {
    let done = Invocation::new("unshare")
        .args(["-m", "sh", "-c", &format!("set -e\n{prepare}\nexec \"$0\" \"$@\"")])
        .arg(program("itself", Linked::WithLibrary))
        .args(arguments)
        .env("TXOS", binary::txos())
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .dir(lab.tree())
        .run();
    assert_eq!(done.code(), 0, "{arguments:?}: {done:?}");
    done
}

/// What somebody else does, by itself and as a transaction.
fn as_both(change: &str) -> [String; 2] {
    [change.to_owned(), format!("\"$TXOS\" run -q -- sh -c '{change}'")]
}

/// What others do to what the linker has read makes no transaction lose: to the library, the one that it needs, its directory.
#[test]
fn what_others_do_to_libraries_is_no_conflict() {
    let lab = Lab::in_memory();
    let _ = lab.native(LIBRARIES);
    for change in [
        "touch lib/unrelated",
        "cp lib/libtwo.so lib/libtwo.new && mv lib/libtwo.new lib/libtwo.so",
        "cp lib/libone.so new && mv new lib/libone.so",
        "cp -a lib new && mv lib aside && mv new lib && rm -r aside",
        "chmod 700 lib; chmod 755 lib",
    ] {
        for change in as_both(change) {
            for end in ["committed", "aborted", "again", "kept"] {
                let _ = ran_in_namespace(&lab, "", &["beside", end, &change]);
            }
        }
    }
    lab.expect_clean();
}

/// Nor to the cache of libraries, which is rewritten wherever one is installed.
#[test]
fn a_new_cache_of_libraries_is_no_conflict() {
    let _stable = system::stable();
    let lab = Lab::in_memory();
    let _ = lab.native(&format!("{LIBRARIES}\ncp -a /etc etc"));
    for change in as_both("cp /etc/ld.so.cache /etc/new && mv /etc/new /etc/ld.so.cache") {
        for end in ["committed", "again", "kept"] {
            let place = "mount --bind etc /etc";
            let _ = ran_in_namespace(&lab, place, &["cached", end, &change]);
        }
    }
    lab.expect_clean();
}

/// A message of a transaction that was aborted is never sent. The C library's connection outlives an abort, since it keeps its
/// number; and standard error is live.
#[test]
fn logs_are_of_what_has_happened() {
    let place =
        "mount -t tmpfs dev /dev\nmknod -m 666 /dev/null c 1 3\nmknod -m 666 /dev/zero c 1 5
        mknod -m 666 /dev/urandom c 1 9\nmkdir /dev/shm";
    for end in WITHOUT_LOCKS {
        let lab = Lab::in_memory();
        let done = ran_in_namespace(&lab, place, &["logs", end]);
        // One that learns in its first line that it has lost has said nothing.
        let attempts = if end.ends_with("again") { 2 } else { 1 };
        let live = done.stderr.lines().filter(|line| *line == "line").count();
        // And those of two more.
        assert_eq!(live, attempts + 2, "{end}: {done:?}");
        lab.expect_clean();
    }
}
