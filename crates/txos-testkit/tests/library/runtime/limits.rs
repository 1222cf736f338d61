//! Limits of a process below what the library needs: the transaction fails, with the reason, and nothing is half done.

use std::time::Duration;

use txos_testkit::{Invocation, Lab, Tree, binary, require, skip};

const PYTHON: &str = "/usr/bin/python3";

/// A run of a script in the library's view, below what `before` does to the shell that starts it.
fn run_below(lab: &Lab, before: &str, options: &[&str], script: &str) -> Invocation {
    Invocation::new("sh")
        .args(["-c", &format!("{before}exec \"$@\""), "sh"])
        .arg(binary::txos())
        .args(["run", "--view", "library"])
        .args(options)
        .args(["--", "sh", "-c", script])
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .dir(lab.tree())
        .within(Duration::from_secs(60))
}

/// However many descriptors there may be, a command does all that it does natively, or nothing, and fails.
#[test]
fn few_descriptors_are_all_or_nothing() {
    let lab = Lab::in_memory();
    let script = "echo 1 > f1; echo 2 > f2; cat f1 f2 | sort > f3; true";
    let mut before = Tree::of(lab.tree());
    let mut failed = [0; 2];
    for (options, failed) in [&[][..], &["--hold-output"]].into_iter().zip(&mut failed) {
        for limit in (22..72).chain([100, 256]) {
            let done = run_below(&lab, &format!("ulimit -n {limit}; "), options, script).run();
            if done.code() == 0 {
                let all = lab.native("cat f1 f2 f3").expect(0).text();
                assert_eq!(all, "1\n2\n1\n2\n", "{limit} {options:?}: {done:?}");
                let _ = lab.native("rm f1 f2 f3").expect(0);
                before = Tree::of(lab.tree());
                continue;
            }
            *failed += 1;
            // One that holds output can't be started at all with the fewest.
            let done = match done.code() {
                126 if limit < 24 => done,
                _ => done.expect(125),
            };
            let done = done.says("nothing changed").says_not("gone");
            if limit > 25 {
                let _ = done.says(format!("(`ulimit -n`: {limit}) is too low for "));
            }
            before.expect_same(&Tree::of(lab.tree()));
        }
    }
    assert!(failed.iter().all(|n| (20..40).contains(n)), "{failed:?}");
    lab.expect_clean();
}

/// What a command of one process can't do with so few, it does not begin.
#[test]
fn a_single_process_is_not_begun_with_too_few() {
    let lab = Lab::in_memory();
    let script = "echo 1 > f1; true";
    for limit in [8, 14, 19, 31] {
        let done = run_below(&lab, &format!("ulimit -n {limit}; "), &[], script).run();
        let _ = done.expect(125).says("needs at least 32; raise it").says("nothing changed");
    }
    lab.expect_clean();
    let _ = run_below(&lab, "ulimit -n 32; ", &[], script).run().expect(0);
    assert_eq!(lab.read("f1"), "1\n");
}

/// What a program natively can't open it can't open here, and goes on.
#[test]
fn the_programs_own_limit_is_its_own() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let lab = Lab::in_memory();
    let script = r#"
import errno, os, resource
if os.fork() == 0: os._exit(0)
os.wait()
resource.setrlimit(resource.RLIMIT_NOFILE, (40, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    for n in range(50): os.open('f', os.O_RDWR | os.O_CREAT)
except OSError as e: print(errno.errorcode[e.errno], n > 30)
"#;
    std::fs::write(lab.dir().join("script"), script).unwrap();
    let command = format!("{PYTHON} ../script; exit $?");
    let done = run_below(&lab, "", &["--scope", "."], &command).run().expect(0);
    assert_eq!(done.text(), "EMFILE True\n");
}

/// Refuses one system call, `argv[1]`, with an error, `argv[2]`, to the program that it runs.
const DENY: &str = r"
import ctypes, os, struct, sys
number, errno = int(sys.argv[1]), int(sys.argv[2])
load, jump = struct.pack('HBBI', 0x20, 0, 0, 0), struct.pack('HBBI', 0x15, 0, 1, number)
code = load + jump + struct.pack('HBBI', 6, 0, 0, 0x50000 | errno) + struct.pack('HBBI', 6, 0, 0, 0x7fff0000)
text = ctypes.create_string_buffer(code)
class Prog(ctypes.Structure): _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
prog = Prog(4, ctypes.addressof(text))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(prog)) == 0
os.execv(sys.argv[3], sys.argv[3:])";

/// What denies a command, and `txos`, a system call, for [`run_below`].
fn denying(lab: &Lab, number: i64, errno: i32) -> String {
    std::fs::write(lab.dir().join("deny"), DENY).unwrap();
    format!("set -- {PYTHON} ../deny {number} {errno} \"$@\"; ")
}

/// Where a filter forbids what the processes of a transaction ask each other by, none waits for ever.
#[test]
fn messages_that_are_forbidden_end_it() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let lab = Lab::in_memory();
    let before = Tree::of(lab.tree());
    for (number, name) in [(libc::SYS_sendmsg, "sendmsg"), (libc::SYS_recvmsg, "recvmsg")] {
        let start = denying(&lab, number, libc::EPERM);
        let done = run_below(&lab, &start, &["--scope", "."], "echo 1 > f; cat f").run();
        let _ = done.expect(125).says(format!("{name} failed: ")).says("nothing changed");
        before.expect_same(&Tree::of(lab.tree()));
    }
    lab.expect_clean();
}

/// What the processes of a transaction share is a file in memory. A command of one process needs none.
#[test]
fn files_in_memory_that_are_forbidden_end_it() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let lab = Lab::in_memory();
    let _ = lab.native("echo old > f; mkdir d; echo x > d/x");
    let before = Tree::of(lab.tree());
    for errno in [libc::EPERM, libc::ENOSYS, libc::ENOMEM] {
        let start = denying(&lab, libc::SYS_memfd_create, errno);
        let why = std::io::Error::from_raw_os_error(errno).to_string();
        let why = why.split(" (").next().unwrap();
        let several = "echo 1 > f; rm -r d; mkdir new; cat f > new/g";
        for options in [&["--scope", "."][..], &["--scope", ".", "--keep"]] {
            let done = run_below(&lab, &start, options, several).run();
            let _ = done.expect(125).says(why).says("nothing changed");
            before.expect_same(&Tree::of(lab.tree()));
        }
        let one = run_below(&lab, &start, &["--scope", "."], "echo 1 > f; echo 2 > g").run();
        if one.code() == 0 {
            assert_eq!((lab.read("f"), lab.read("g")), ("1\n".into(), "2\n".into()));
            let _ = lab.txos(["revert", "@"]).run().expect(0);
        } else {
            let _ = one.expect(125).says(why);
        }
        before.expect_same(&Tree::of(lab.tree()));
    }
    lab.expect_clean();
}

/// Locked memory is none of what the library needs.
#[test]
fn no_locked_memory_is_needed() {
    let lab = Lab::in_memory();
    let script = "echo 1 > f1; (cat f1; echo 2) | sort -r > f2; mkdir -p d/e; cat f2";
    for (limit, options) in [(0, &["--dry-run"][..]), (8, &["--retry", "1"]), (0, &[])] {
        let done = run_below(&lab, &format!("ulimit -l {limit}; "), options, script).run();
        assert!(done.expect(0).text().starts_with("2\n1\n"));
    }
    assert_eq!(lab.read("f2"), "2\n1\n");
    lab.expect_clean();
}

/// However little address space there is, a command does all that it does natively, or nothing, and fails.
#[test]
fn little_address_space_is_all_or_nothing() {
    let lab = Lab::in_memory();
    let script =
        "set -e; echo 1 > f1; echo 2 > f2; cat f1 f2 | sort -r > f3; mkdir d; (cat f3) > d/f4";
    let mut before = Tree::of(lab.tree());
    let (mut done_all, mut failed) = (0, 0);
    for mib in [4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96, 160, 512, 4096, 70_000] {
        for options in [&[][..], &["--dry-run"]] {
            let start = format!("ulimit -v {}; ", mib << 10);
            let done = run_below(&lab, &start, options, script).run();
            if done.code() != 0 {
                // A program that is not even loaded has its own words, and 127.
                assert!(
                    [125, 126, 127, 1, 2, 134, 137, 139].contains(&done.code()),
                    "{mib}: {done:?}"
                );
                assert!(!done.stderr.contains("panicked"), "{mib}: {done:?}");
                before.expect_same(&Tree::of(lab.tree()));
                failed += 1;
            } else if options.is_empty() {
                assert_eq!(lab.native("cat d/f4").expect(0).text(), "2\n1\n", "{mib}: {done:?}");
                let _ = lab.native("rm -r f1 f2 f3 d").expect(0);
                before = Tree::of(lab.tree());
                done_all += 1;
            } else {
                before.expect_same(&Tree::of(lab.tree()));
            }
        }
    }
    assert!(failed > 0 && done_all >= 4, "{failed} {done_all}");
    lab.expect_clean();
}

/// Too little memory for the library: what failed is said.
#[test]
fn too_little_memory_is_said() {
    let lab = Lab::in_memory();
    for options in [&[][..], &["--keep"]] {
        let done = run_below(&lab, "ulimit -d 1000; ", options, "echo 1 > f1").run().expect(125);
        let _ =
            done.says("sh can't run as a transaction: Cannot allocate memory").says("ulimit -d");
    }
    lab.expect_clean();
}
