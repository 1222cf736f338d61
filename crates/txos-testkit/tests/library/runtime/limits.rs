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

/// Where a filter forbids what the processes of a transaction ask each other by, none waits for ever.
#[test]
fn messages_that_are_forbidden_end_it() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    if !cfg!(target_arch = "x86_64") {
        return skip::say("the numbers are those of x86-64");
    }
    let deny = r"
import ctypes, os, struct, sys
number = int(sys.argv[1])
load, jump = struct.pack('HBBI', 0x20, 0, 0, 0), struct.pack('HBBI', 0x15, 0, 1, number)
code = load + jump + struct.pack('HBBI', 6, 0, 0, 0x50001) + struct.pack('HBBI', 6, 0, 0, 0x7fff0000)
text = ctypes.create_string_buffer(code)
class Prog(ctypes.Structure): _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
prog = Prog(4, ctypes.addressof(text))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(prog)) == 0
os.execv(sys.argv[2], sys.argv[2:])";
    let lab = Lab::in_memory();
    std::fs::write(lab.dir().join("deny"), deny).unwrap();
    let before = Tree::of(lab.tree());
    for (number, name) in [(46, "sendmsg"), (47, "recvmsg")] {
        let start = format!("set -- {PYTHON} ../deny {number} \"$@\"; ");
        let done = run_below(&lab, &start, &["--scope", "."], "echo 1 > f; cat f").run();
        let _ = done.expect(125).says(format!("{name} failed: ")).says("nothing changed");
        before.expect_same(&Tree::of(lab.tree()));
    }
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
