//! What is known of a process or a program is not found out again, as long as it holds: who a child is, and where a program is.

use txos_testkit::wait::until;
use txos_testkit::{Lab, require, skip};

use super::decided::run;
use super::images::said_by;

const PYTHON: &str = "/usr/bin/python3";

/// What a shell's script says, errors too, natively and in the library's view.
fn both(prepare: &str, script: &str) -> [String; 2] {
    said_by("exec 2>&1; sh", prepare, script)
}

/// A program is run by the same path again and again, and is another one each time, or none.
#[test]
fn a_program_is_the_one_that_is_there() {
    let script = r#"
all() { for way in ./prog bin/prog "../tree/bin/prog" ./link dir/prog; do "$way"; echo "$way $?"; done; (cd bin; ./prog; echo "in bin $?"); PATH=first:bin prog; echo "found $?"; }
twice() { echo "-- $1"; (all) 2>&1; (all) 2>&1; }
twice begins
cp true prog; twice copied
ln prog bin/prog; twice linked
ln -s bin/prog link; ln -s bin dir; twice symlinks
mkdir first; cp false first/prog; twice 'first in PATH'
chmod 644 prog; twice 'not to be run'
chmod 755 prog; twice 'to be run'
printf '#!/bin/sh\necho script; exit 7\n' > new; chmod 755 new; mv new bin/prog; twice 'a script'
cat false > bin/prog; twice written
mv bin other; twice 'directory moved'
ln -s other bin; twice 'directory linked'
rm first/prog; mkdir first/prog; twice 'a directory'
rm -r first link dir bin other; twice removed
printf '#!./prog\n' > interpreted; chmod 755 interpreted; ./interpreted; echo $?; cp false prog; ./interpreted; echo $?
"#;
    let prepare = "cp /bin/true /bin/false .; mkdir bin";
    let [native, inside] = both(prepare, script);
    assert_eq!(inside, native);
    assert!(native.contains("bin/prog 7") && native.contains("found 1"), "{native}");
}

/// Stable programs that were run before have the libraries that the transaction gives them later.
#[test]
fn a_program_has_the_libraries_that_are_there() {
    require!(skip::has("/usr/bin/cc"), "no C compiler");
    let prepare = "
        printf '#include <stdio.h>\\nvoid which(void) { puts(WHICH); }\\n' > which.c
        printf 'void which(void); int main(void) { which(); return 0; }\\n' > main.c
        mkdir lib new
        cc -shared -fPIC -DWHICH='\"old\"' which.c -o lib/libwhich.so
        cc -shared -fPIC -DWHICH='\"new\"' which.c -o new/libwhich.so
        cc main.c -Llib -lwhich -Wl,-rpath,'$ORIGIN/lib' -o main";
    let script = "
        for n in 1 2 3; do ./main; (./main); done
        cat new/libwhich.so > lib/libwhich.so
        for n in 1 2 3; do ./main; (./main); done
        rm lib/libwhich.so; ./main > /dev/null; echo $?; (./main > /dev/null); echo $?
        mv new/libwhich.so lib; (./main); ./main";
    let [native, inside] = both(prepare, script);
    let told = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains("libwhich.so"));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    assert_eq!(told(&inside), told(&native));
    assert_eq!(
        told(&native),
        [&"old\n".repeat(6), &"new\n".repeat(6), "127\n127\nnew\nnew\n"].concat()
    );
}

/// A process that gives capabilities up, at once or for the programs that it runs, has children and programs that have fewer.
#[test]
fn who_has_given_rights_up_has_them_no_more() {
    require!(rustix::process::geteuid().is_root(), "only root has rights to give up");
    require!(skip::has(PYTHON), "no {PYTHON}");
    let script = r#"
tries() { cat theirs; echo "$1 $?"; (cat theirs); echo "$1 in a child $?"; (sh -c 'cat theirs; cat theirs; echo $?'); }
tries before
for with in '--bounding-set -dac_override,-dac_read_search' '--bounding-set -all --inh-caps -all' '--securebits +noroot' '--reuid 65534 --clear-groups' '--reuid 65534 --clear-groups --inh-caps +dac_override --ambient-caps +dac_override'; do
    echo "-- $with"
    setpriv $with sh -c 'cat theirs; cat theirs; (cat theirs; (cat theirs)); sh -c "cat theirs; echo \$?"'
    echo $?
done
tries after
python3 ../../program
python3 ../../program first
exec setpriv --bounding-set -dac_override,-dac_read_search sh -c 'cat theirs; (cat theirs); sh -c "cat theirs; echo \$?"'
"#;
    let program = r#"
import ctypes, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
if sys.argv[1:] and os.fork() == 0: os._exit(0)
def tried(what):
    try:
        with open('theirs') as file: print(what, file.read().strip(), flush=True)
    except OSError as e: print(what, e.strerror, flush=True)
def child(what, f=lambda: None):
    pid = os.fork()
    if pid == 0:
        f(); tried(what); os._exit(0)
    os.waitpid(pid, 0)
def programs(what):
    print(what, flush=True); os.spawnv(os.P_WAIT, '/bin/sh', ['sh', '-c', 'cat theirs 2>&1; (cat theirs 2>&1; true)'])
def give_up():
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, data) == 0
    for at in 0, 1: data[at] &= ~6
    assert libc.capset(header, data) == 0
child('child'); child('child that gives up', give_up); child('another child'); programs('programs')
def bounded():
    for cap in 1, 2: assert libc.prctl(24, cap, 0, 0, 0) == 0
child('bounded child', lambda: (bounded(), programs('its programs')))
programs('programs')
def thread(): give_up(); child('child of the thread')
t = threading.Thread(target=thread); t.start(); t.join()
give_up(); child('child of who gave up'); child('child', lambda: child('grandchild')); programs('programs')
bounded(); programs('bounded programs')
"#;
    let prepare = format!(
        "chmod 711 .; echo theirs > theirs; chown 65533 theirs; chmod 600 theirs; cat > ../program <<'END'\n{program}\nEND"
    );
    let script = script.replace("../../program", "../program");
    let [native, inside] = both(&prepare, &script);
    assert_eq!(inside, native);
    assert!(native.matches("ermission denied").count() > 20, "{native}");
}

/// Children that have just begun, and that nothing brings to the transaction again, end with it.
#[test]
fn children_that_begin_end_with_the_transaction() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    // The first process ends while others still make children, each of which works for ever.
    let script = r"
import os, sys
if os.fork():
    os.read(0, 1)
    os._exit(int(sys.argv[1]))
for n in range(60):
    if os.fork() == 0:
        if os.fork() == 0:
            if n == 20: os.write(int(sys.argv[2]), b'x')
            while True: pass
        os._exit(0)
while True: pass
";
    for (round, status) in [0, 1, 0, 1].into_iter().enumerate() {
        let lab = Lab::in_memory();
        let file = lab.dir().join("works-for-ever");
        std::fs::write(&file, script).unwrap();
        let file = file.to_str().unwrap().to_owned();
        let command = format!(
            "{PYTHON} -c 'import os; r, w = os.pipe(); os.dup2(r, 0); os.set_inheritable(w, True); os.execv(\"{PYTHON}\", [\"python3\", \"{file}\", \"{status}\", str(w)])'"
        );
        let _ = run(&lab, &["--leftover", "kill", "--scope", "."], &format!("exec {command}"))
            .run()
            .expect(status);
        let is_one = |entry: &std::fs::DirEntry| {
            let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            words.windows(file.len()).any(|part| part == file.as_bytes())
        };
        until(&format!("round {round}: no process of the command is left"), || {
            !std::fs::read_dir("/proc").unwrap().flatten().any(|entry| is_one(&entry))
        });
        lab.expect_clean();
    }
}
