//! Programs that the library is loaded into, or that load it themselves.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Output;

use crate::build::{Link, command, library, scenarios, text, words};

/// Runs a program as one transaction.
fn in_process(program: &Path, args: &[&str], wishes: &str) -> Output {
    // The library must not be loaded into timeout(1).
    let mut command = command(Path::new("/usr/bin/env"));
    command.arg(format!("LD_PRELOAD={}", library("libtxos.so").display()));
    command.arg(format!("TXOS_IN_PROCESS={wishes}")).arg(program).args(args);
    command.output().unwrap()
}

#[test]
fn a_command_is_one_transaction() {
    let program = scenarios(Link::Shared);
    let output = in_process(program, &["command"], "");
    assert_eq!(text(&output.stdout), "done\n", "{}", words(&output));
    assert!(output.status.success(), "{}", words(&output));
    assert_eq!(text(&output.stderr), "txos: nothing changed\n");
    let output = in_process(program, &["command"], "quiet");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", words(&output));
}

#[test]
fn a_command_that_fails_is_rolled_back() {
    let program = scenarios(Link::Shared);
    let output = in_process(program, &["command_that_fails"], "");
    assert_eq!(output.status.code(), Some(6), "{}", words(&output));
    let said = text(&output.stderr);
    assert!(said.starts_with("txos: ") && said.contains("exited with status 6"), "{said}");
    let output = in_process(program, &["command_that_fails"], "quiet");
    assert!(output.status.code() == Some(6) && output.stderr.is_empty(), "{}", words(&output));
}

#[test]
fn a_command_that_loses_ends_at_once() {
    let output = in_process(scenarios(Link::Shared), &["command_that_loses"], "");
    assert_eq!(output.status.code(), Some(75), "{}", words(&output));
    assert!(output.stdout.is_empty(), "{}", words(&output));
    assert!(text(&output.stderr).starts_with("txos: conflict: "), "{}", words(&output));
}

#[test]
fn strictness_reaches_the_command() {
    let output = in_process(
        Path::new("/bin/bash"),
        &["-c", "/bin/true; : > /dev/tcp/127.0.0.1/9; echo no"],
        "strict",
    );
    assert_eq!(output.status.code(), Some(125), "{}", words(&output));
}

/// What its processes print is live, and they end as natively.
#[test]
fn a_command_starts_others_and_becomes_another() {
    let output = in_process(Path::new("/bin/sh"), &["-c", "/bin/echo one; exec /bin/echo two"], "");
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
    assert_eq!(text(&output.stdout), "one\ntwo\n", "{}", words(&output));
    let output = in_process(Path::new("/bin/sh"), &["-c", "/bin/true; exec /bin/false"], "quiet");
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
}

/// Nobody handles it: it ends the command, also during a long call.
#[test]
fn a_command_may_be_ended() {
    let script = "import os, signal, threading, time\n\
        signal.signal(signal.SIGTERM, signal.SIG_DFL)\n\
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()\n\
        r, w = os.pipe()\n\
        os.read(r, 1)\n";
    // What is called python3 may be a script that looks for one.
    let mut finder = command(Path::new("python3"));
    let found = finder.args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    let python = text(&found.stdout);
    let output = in_process(Path::new(python.trim()), &["-c", script], "");
    // timeout(1) ends the same way.
    assert_eq!(output.status.signal(), Some(15), "{}", words(&output));
}

/// Only dispatch catches the calls of a program that was linked without the library.
#[test]
fn python_loads_it() {
    let script = "\
import ctypes, os, sys, threading
lib = ctypes.CDLL(sys.argv[1], use_errno=True)
class Stats(ctypes.Structure):
    _fields_ = [('size', ctypes.c_uint32), ('version', ctypes.c_uint32)] + [
        (n, ctypes.c_uint64) for n in ('begun', 'committed', 'aborted', 'restarted', 'calls',
                                       'trapped', 'unsupported', 'short_cuts')]
def stats():
    s = Stats(size=ctypes.sizeof(Stats))
    assert lib.txos_stats(ctypes.byref(s)) == 0
    return s
def one():
    for i in range(100):
        assert lib.sys_xbegin(0) == 0
        assert lib.txos_in_transaction() == 1
        assert os.path.isdir('/') and len(os.listdir('/')) > 1
        try:
            os.stat('/nonexistent')
            assert False
        except FileNotFoundError:
            pass
        assert lib.sys_xend() == 0
    assert stats().trapped >= 300, stats().trapped
    assert stats().begun == 100
threads = [threading.Thread(target=one) for _ in range(3)]
[t.start() for t in threads]
one()
[t.join() for t in threads]
lib.sys_xbegin(0)
lib.sys_xabort(1)
assert lib.txos_in_transaction() == 0
print('good')
";
    let mut python = command(Path::new("python3"));
    let output = python.args(["-c", script]).arg(library("libtxos.so")).output().unwrap();
    assert_eq!(text(&output.stdout), "good\n", "{}", words(&output));
}

/// What a preloaded library does to a program that has no transaction: nothing.
#[test]
fn programs_run_as_ever() {
    let mut shell = command(Path::new("/usr/bin/env"));
    shell.arg(format!("LD_PRELOAD={}", library("libtxos.so").display()));
    let script = "ls / >/dev/null && echo \"$(cat /proc/self/comm)\" && sh -c 'exit 3'";
    let output = shell.args(["sh", "-c", script]).output().unwrap();
    assert_eq!((text(&output.stdout).trim(), output.status.code()), ("cat", Some(3)));
}
