//! What processes of a command find without a message in what was answered before: it is as true as a new answer.

use txos_testkit::{Lab, Rendezvous, require, skip};

use super::decided::run;

const PYTHON: &str = "/usr/bin/python3";

/// What lies outside of the scope changes without a call of the transaction's, and may lead into it.
#[test]
fn links_outside_of_the_scope_lead_where_they_lead_now() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let script = r#"
import os
def tried(f):
    try: return f()
    except OSError as e: return e.strerror
def looks():
    for path in ['live/l/file', '../live/l/file', 'l/file']:
        print(path, os.access(path, os.F_OK), tried(lambda: os.stat(path).st_size), tried(lambda: os.close(os.open(path, os.O_RDONLY))))
for start in ['.', 'live']:
    os.chdir(start)
    for target in ['x', 'y', 'x', 'z']:
        link = 'live/l' if start == '.' else 'l'
        if os.path.lexists(link): os.unlink(link)
        os.symlink(os.environ['TOP'] + '/w/' + target, link)
        for _ in range(2):
            looks()
            if os.fork() == 0:
                looks(); os._exit(0)
            os.wait()
"#;
    let prepare = "mkdir -p w/x w/y live; echo file > w/x/file; chmod 777 . live";
    let said = |native: bool| {
        let lab = Lab::in_memory();
        let _ = lab.native(prepare);
        std::fs::write(lab.dir().join("script"), script).unwrap();
        let command = format!("export TOP=$PWD; {PYTHON} ../script; exit $?");
        if native {
            return lab.native(&command).expect(0).text();
        }
        run(&lab, &["--scope", "w"], &command).run().expect(0).text()
    };
    assert_eq!(said(false), said(true));
}

/// Nobody but the process that has the transaction writes answers, and another user has none of the owner's.
#[test]
fn they_are_the_servers_to_write_and_the_owners_to_read() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let script = r#"
import ctypes, mmap, os, re
libc = ctypes.CDLL(None, use_errno=True)
def tables():
    lines = [line.split() for line in open('/proc/self/maps') if 'txos answers' in line]
    return [[int(end, 16) for end in line[0].split('-')] for line in lines]
[(start, end)] = tables()
print(libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(end - start), 3), os.strerror(ctypes.get_errno()))
print(os.access('secret/nothing', os.F_OK), os.access('secret/file', os.F_OK), os.access('secret/file', os.F_OK))
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
print(tables(), os.access('secret/nothing', os.F_OK), os.access('secret/file', os.F_OK))
"#;
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir -m 700 secret; echo secret > secret/file; chmod 755 . ..");
    std::fs::write(lab.dir().join("script"), script).unwrap();
    let done = run(&lab, &["--scope", "."], &format!("{PYTHON} ../script; exit $?")).run();
    assert_eq!(done.expect(0).text(), "-1 Permission denied\nFalse True True\n[] False False\n");
}

/// A transaction that has lost ends, also while its processes find all that they ask by themselves.
#[test]
fn who_has_lost_does_not_go_on_asking() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let lab = Lab::in_memory();
    let _ = lab.native("echo other > other");
    let (mut older, mut younger) = (Rendezvous::new(), Rendezvous::new());
    let writes = "cat none 2>/dev/null; echo >&8; read _ <&9; echo new > other";
    let first = run(&lab, &["--scope", "."], writes).meeting(&mut older).start();
    assert!(older.arrived());
    let polls = format!(
        "(:); cat other; exec {PYTHON} -c '
import os, time
os.write(8, b\"\\n\")
while not os.access(\"flag\", os.F_OK): time.sleep(.001)'"
    );
    let second = run(&lab, &["--scope", ".", "--retry", "0"], &polls).meeting(&mut younger).start();
    assert!(younger.arrived());
    older.go();
    let _ = second.wait().expect(75);
    let _ = first.wait().expect(0);
    assert_eq!(lab.read("other"), "new\n");
}

/// A process that may not have a file of the table's size asks by messages.
#[test]
fn a_limit_for_files_is_no_reason_to_fail() {
    let lab = Lab::in_memory();
    let script = "ulimit -f 3000; echo 1 > f; (stat -c %s f; stat -c %s f) | cat";
    let done = run(&lab, &["--scope", "."], script).run().expect(0);
    assert_eq!(done.text(), "2\n2\n");
    assert_eq!(lab.read("f"), "1\n");
}
