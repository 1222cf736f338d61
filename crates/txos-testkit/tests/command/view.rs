//! A command in a transaction finds everything as it would without one.

use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;

use rustix::process::Signal;
use txos_testkit::pty::Pty;
use txos_testkit::{Invocation, Lab, Rendezvous, Tree, require, skip, system};

/// Runs a script natively and in a transaction with everything in scope; the output must be equal.
#[track_caller]
fn same_output(lab: &Lab, script: &str, around: impl Fn(Invocation) -> Invocation) {
    let native = around(
        Invocation::shell(script)
            .dir(lab.tree())
            .env("TXOS_STORE", lab.store())
            .env("TXOS_REALM", lab.realm()),
    );
    let native = native.run().expect(0);
    let inside = around(lab.whole(&["-q"], script)).run().expect(0);
    assert_eq!(inside.text(), native.text(), "{script}");
    assert_eq!(inside.stderr, native.stderr, "{script}");
}

#[test]
fn surroundings_are_the_same() {
    let lab = Lab::new();
    let _stable = system::stable();
    let as_is = |i: Invocation| i;
    for script in [
        "pwd; readlink /proc/self/cwd; pwd -P",
        "env | grep -Ev '^(_|TXOS_ID)=' | sort",
        "umask; umask 027; umask",
        "ulimit -a",
        "id; id -G; cat /proc/self/loginuid /proc/self/oom_score_adj; nice",
        "grep -E '^(Sig(Blk|Ign)|NoNewPrivs|Cap.*)' /proc/self/status | grep -v NoNew",
        "ls -1 /proc/self/fd | wc -l",
        "ls -1a /; ls -1 /dev /run; stat -c '%n %F %a %u %g' / /* /etc/*",
        "df --output=target / | tail -1; hostname; uname -a",
        "readlink /proc/$$/root",
    ] {
        same_output(&lab, script, as_is);
    }
    same_output(&lab, "echo \"$A\"; printf '%s|' \"$@\"", |i| i.env("A", "b\nc\u{e9}"));
    // A directory below, a mask, a limit, an ignored signal, as a shell hands them on.
    let txos = txos_testkit::binary::txos().display().to_string();
    let script = "pwd; umask; ulimit -n; ulimit -c; nice; grep SigIgn /proc/self/status";
    let setting = "mkdir -p 'a b/c'; cd 'a b/c'; umask 077; ulimit -n 200; trap '' HUP USR1; exec";
    let native = lab.native(&format!("{setting} nice -n 3 sh -c '{script}'")).text();
    let inside =
        Invocation::shell(format!("{setting} nice -n 3 {txos} run -q -- sh -c '{script}'"))
            .env("TXOS_STORE", lab.store())
            .env("TXOS_REALM", lab.realm())
            .dir(lab.tree())
            .run()
            .expect(0);
    assert_eq!(inside.text(), native);
}

#[test]
fn a_removed_working_directory_is_told_of() {
    let lab = Lab::in_memory();
    let txos = txos_testkit::binary::txos().display().to_string();
    let done =
        Invocation::shell(format!("mkdir d; cd d; rmdir ../d; {txos} run --scope .. -- true"))
            .env("TXOS_STORE", lab.store())
            .env("TXOS_REALM", lab.realm())
            .dir(lab.tree())
            .run();
    assert_eq!(done.code(), 125, "{done:?}");
}

#[test]
fn descriptors_are_inherited() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 0123456789 > file; mkdir dir; echo in > dir/f");
    let mut file = std::fs::File::open(lab.path("file")).unwrap();
    file.seek(SeekFrom::Start(4)).unwrap();
    let done = lab.script(&[], "cat <&7").fd(file.try_clone().unwrap().into(), 7).run().expect(0);
    assert_eq!(done.text(), "456789\n");
    assert_eq!(file.stream_position().unwrap(), 11, "the offset is shared");
    // A directory leads into the view.
    let dir = std::fs::File::open(lab.path("dir")).unwrap();
    let script = "echo new > dir/f; cat /proc/self/fd/7/f; echo x > /proc/self/fd/7/made; exit 1";
    let done = lab.script(&[], script).fd(dir.into(), 7).run().expect(1);
    assert_eq!(done.text(), "new\n");
    assert!(!lab.path("dir/made").exists());
    // What is open for writing outside stays so.
    let log = std::fs::File::create(lab.dir().join("log")).unwrap();
    let _ = lab.script(&[], "echo line >&7; exit 1").fd(log.into(), 7).run().expect(1);
    assert_eq!(std::fs::read_to_string(lab.dir().join("log")).unwrap(), "line\n");
    // No standard streams at all.
    let txos = txos_testkit::binary::txos().display().to_string();
    let _ = lab.native(&format!(
        "TXOS_REALM={} {txos} --store ../store run --scope . -- sh -c 'echo x > made' <&- >&- 2>&-",
        lab.realm().display()
    ));
    assert_eq!(lab.read("made"), "x\n");
}

#[test]
fn the_store_is_invisible() {
    let lab = Lab::new();
    let _ = lab.script(&["--keep"], "echo > kept").run().expect(0);
    let store = lab.store().display().to_string();
    for script in [
        format!("ls {store}"),
        format!("cat {store}/format"),
        format!("echo > {store}/x"),
        format!("cd {store}/tx"),
        format!("rm -rf {store}/tx"),
    ] {
        let done =
            lab.txos(["run", "--scope"]).arg(lab.dir()).args(["--", "sh", "-c", &script]).run();
        if done.code() == 0 {
            assert_eq!(done.text(), "", "{done:?}");
        }
        assert_eq!(lab.held().transactions.iter().filter(|(_, s)| s == "pending").count(), 1);
    }
    let _ = lab.txos(["commit", "@"]).run().expect(0);
    let _ = lab
        .txos(["run", "--scope"])
        .arg(lab.dir())
        .args(["--", "sh", "-c", "find .. -name meta.json | grep . && exit 1; true"])
        .run()
        .expect(0);
    lab.expect_clean();
}

/// Where a store is, a command sees an empty directory that nobody may enter: the name is there, nothing
/// of what the store holds (docs/limits.md).
#[test]
fn of_a_store_its_name_is_seen() {
    let lab = Lab::new();
    let store = lab.store().display().to_string();
    let script = format!(
        "stat -c '%A %s %h' {store}; ls -A {store}; ls -A .. | grep -cx store; touch {store}/x 2>/dev/null || echo refused"
    );
    let run = lab.txos(["run", "--scope"]).arg(lab.dir()).args(["--", "sh", "-c", &script]).run();
    assert_eq!(run.expect(0).text(), "d--------- 40 2\n1\nrefused\n");
}

#[test]
fn what_was_changed_is_seen_inside_only() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo old > file; mkdir dir; echo x > dir/x; ln file hard; ln -s file link");
    let before = Tree::of(lab.tree());
    let mut meeting = Rendezvous::new();
    let script = format!(
        "set -e; echo new > file; test \"$(cat hard)\" = new; test \"$(cat link)\" = new; \
         mv dir moved; test ! -e dir; test \"$(cat moved/x)\" = x; rm hard; test \"$(stat -c %h file)\" = 1; \
         ln file again; echo more >> again; test \"$(tail -1 file)\" = more; \
         test \"$(stat -c %i file)\" = \"$(stat -c %i again)\"; {}; exit 1",
        txos_testkit::rendezvous::PAUSE
    );
    let running = lab.script(&[], &script).meeting(&mut meeting).start();
    assert!(meeting.arrived(), "{:?}", running.wait());
    before.expect_same(&Tree::of(lab.tree()));
    meeting.go();
    let _ = running.wait().expect(1);
    before.expect_same(&Tree::of(lab.tree()));
}

#[test]
fn names_of_any_bytes() {
    let lab = Lab::in_memory();
    let script = "
        set -e
        mkdir $(printf 'dir\\377\\n')x \"$(printf 'line\\nline')\"
        echo 1 > \"$(printf 'tab\\there')\"; echo 2 > \"$(printf '\\001\\177\\200')\"
        echo 3 > ' '; echo 4 > -rf; echo 5 > 'a\\b\"c'; ln -s \"$(printf '\\377')\" link
        echo 6 > $(printf '%0255d' 0)";
    let native = lab.nested("native");
    let _ = native.native(script);
    let _ = lab.script(&[], script).run().expect(0);
    let tolerance = txos_testkit::tree::Tolerance { now_from: None, times: true, links: false };
    Tree::of(native.tree()).expect(&Tree::of(lab.tree()), tolerance, "names");
    let json = lab.txos(["show", "@", "--json"]).run().expect(0).json();
    assert_eq!(json["changes"].as_array().map(Vec::len), Some(9), "{json}");
    let _ = lab.txos(["diff", "@", "--name-status"]).run().expect(0);
    let _ = lab.txos(["diff", "@"]).run().expect(0);
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    assert_eq!(lab.tree().read_dir().unwrap().count(), 0);
}

/// overlayfs notes where a moved directory was, in 256 bytes at most.
#[test]
fn a_directory_with_a_long_path_is_copied_to_another_parent() {
    let lab = Lab::new();
    let name = "n".repeat(60);
    let deep = [name.as_str(); 5].join("/");
    let _ = lab.native(&format!(
        "mkdir -p {deep}/same {deep}/other to; echo 1 > {deep}/other/f; echo 2 > {deep}/file"
    ));
    let before = Tree::of(lab.tree());
    let rename = |from: &str, to: &str| {
        format!("python3 -c 'import os; os.rename(\"{from}\", \"{to}\")' 2>&1 | tail -n 1")
    };
    let refused = lab.script(&[], &rename(&format!("{deep}/other"), "to/other")).run().expect(0);
    assert!(refused.text().contains("Invalid cross-device link"), "{refused:?}");
    before.expect_same(&Tree::of(lab.tree()));
    let inode = |path: &str| lab.path(path).symlink_metadata().unwrap().ino();
    let same = inode(&format!("{deep}/same"));
    let script = format!(
        "set -e; mkdir {deep}/new; {}; {}; {}; mv {deep}/other to/",
        rename(&format!("{deep}/new"), "to/new"),
        rename(&format!("{deep}/file"), "to/file"),
        rename(&format!("{deep}/same"), &format!("{deep}/renamed")),
    );
    let done = lab.script(&[], &script).run().expect(0);
    assert_eq!(done.text(), "");
    assert_eq!(lab.read("to/other/f"), "1\n");
    assert_eq!(lab.read("to/file"), "2\n");
    assert!(lab.path("to/new").is_dir());
    assert_eq!(inode(&format!("{deep}/renamed")), same);
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    let tolerance = txos_testkit::tree::Tolerance { now_from: None, times: true, links: false };
    before.expect(&Tree::of(lab.tree()), tolerance, "reverted");
}

#[test]
fn sparse_files_stay_sparse() {
    let lab = Lab::new();
    let _ = lab.native(
        "truncate -s 5G big; echo middle | dd of=big bs=1M seek=2000 conv=notrunc status=none",
    );
    let script = "echo x >> big; truncate -s 3G new; echo y >> new; tail -c 2 big";
    let _ = lab.script(&[], script).run().expect(0);
    let big = lab.path("big").metadata().unwrap();
    assert_eq!(big.size(), (5 << 30) + 2);
    let used = |name: &str| lab.path(name).metadata().unwrap().blocks() * 512;
    assert!(used("big") < 16 << 20 && used("new") < 16 << 20, "holes were filled");
    let middle = lab.native("dd if=big bs=1M skip=2000 count=1 status=none | head -c 7").text();
    assert_eq!(middle, "middle\n");
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    assert_eq!(lab.path("big").metadata().unwrap().size(), 5 << 30);
    assert!(used("big") < 16 << 20, "holes were filled by the revert");
}

#[test]
fn sockets_of_others_can_be_reached() {
    let lab = Lab::new();
    require!(skip::has("python3"), "no python3");
    let listener = UnixListener::bind(lab.path("socket")).unwrap();
    let answer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"hello").unwrap();
    });
    let script = "python3 -c '
import socket
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect(\"socket\")
print(s.recv(9).decode())'";
    let done = lab.script(&[], script).run();
    if done.code() != 0 {
        // The thread must not wait for ever.
        drop(std::os::unix::net::UnixStream::connect(lab.path("socket")));
    }
    answer.join().unwrap();
    assert_eq!(done.expect(0).text(), "hello\n");
}

#[test]
fn sockets_and_fifos_of_its_own_work() {
    let lab = Lab::in_memory();
    require!(skip::has("python3"), "no python3");
    let script =
        "set -e; mkfifo pipe; (echo through > pipe) & read x < pipe; test $x = through; wait
python3 -c '
import os, socket
a = socket.socket(socket.AF_UNIX); a.bind(\"s\"); a.listen()
b = socket.socket(socket.AF_UNIX); b.connect(\"s\")
c = a.accept()[0]; c.send(b\"x\"); assert b.recv(1) == b\"x\"
os.unlink(\"s\")'";
    let _ = lab.script(&[], script).run().expect(0);
    assert!(lab.path("pipe").exists());
}

#[test]
fn privileges_of_programs_work() {
    let lab = Lab::new();
    require!(skip::has("setpriv") && skip::has("setcap"), "no setpriv or setcap");
    let script = "
        set -e
        cp /usr/bin/id suid; chmod 4755 suid
        cp /usr/bin/grep caps; setcap cap_net_raw+ep caps
        setpriv --reuid 12345 --regid 12345 --clear-groups ./suid -u
        setpriv --reuid 12345 --regid 12345 --clear-groups ./caps CapEff /proc/self/status
        getcap caps";
    let native = lab.nested("native");
    let expected = native.native(script).text();
    let done = lab.script(&[], script).run().expect(0);
    assert_eq!(done.text(), expected);
    let after = "setpriv --reuid 12345 --regid 12345 --clear-groups ./suid -u; getcap caps";
    assert_eq!(lab.native(after).text(), native.native(after).text());
    assert!(expected.starts_with("0\n"), "{expected}");
}

#[test]
fn access_control_is_enforced_inside() {
    let lab = Lab::new();
    require!(skip::has("setpriv"), "no setpriv");
    let _ =
        lab.native("echo secret > secret; chmod 600 secret; mkdir -m 700 closed; echo > closed/x");
    let script = "
        u() { setpriv --reuid 12345 --regid 12345 --clear-groups \"$@\" 2>/dev/null; }
        u cat secret && exit 1; u ls closed && exit 2; u touch new && exit 3
        setfacl -m u:12345:r secret; u cat secret || exit 4
        chmod 777 .; u touch theirs || exit 5; test $(stat -c %u theirs) = 12345 || exit 6";
    let _ = lab.script(&[], script).run().expect(0);
    assert_eq!(lab.path("theirs").metadata().unwrap().uid(), 12345);
}

#[test]
fn memory_maps_locks_and_odd_opens() {
    let lab = Lab::new();
    require!(skip::has("python3"), "no python3");
    let _ = lab.native("head -c 100000 /dev/zero > mapped; echo x > locked");
    let script = "python3 -c '
import fcntl, mmap, os
f = os.open(\"mapped\", os.O_RDWR)
m = mmap.mmap(f, 100000)
m[50000:50005] = b\"hello\"; m.flush(); m.close()
assert os.pread(f, 5, 50000) == b\"hello\"
g = os.open(\"locked\", os.O_RDWR)
fcntl.flock(g, fcntl.LOCK_EX); fcntl.lockf(os.open(\"locked\", os.O_RDWR), fcntl.LOCK_EX)
t = os.open(\".\", os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(t, b\"unnamed\")
d = os.open(\".\", os.O_RDONLY)
os.link(\"/proc/self/fd/%d\" % t, \"named\", src_dir_fd=d, dst_dir_fd=d, follow_symlinks=True)
r = os.open(\"mapped\", os.O_RDONLY); w = os.open(\"mapped\", os.O_WRONLY | os.O_APPEND)
os.write(w, b\"end\"); assert os.pread(r, 3, 100000) == b\"end\", \"an open reader sees the write\"
os.unlink(\"mapped\"); assert os.fstat(f).st_nlink == 0 and os.pread(f, 3, 100000) == b\"end\"
os.close(os.open(\"mapped\", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640))
'";
    let native = lab.nested("native");
    let _ = native.native("head -c 100000 /dev/zero > mapped; echo x > locked");
    let _ = native.native(script);
    let _ = lab.script(&[], script).run().expect(0);
    let tolerance = txos_testkit::tree::Tolerance { now_from: None, times: true, links: false };
    Tree::of(native.tree()).expect(&Tree::of(lab.tree()), tolerance, "odd opens");
}

#[test]
fn a_terminal_is_a_terminal() {
    let lab = Lab::in_memory();
    let (mut pty, inner) = Pty::open(91, 37);
    let script = "tty >/dev/null && test -t 0 -a -t 1 -a -t 2 && stty size; \
        trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done";
    let running = lab.script(&[], script).terminal(inner).start();
    pty.expect("37 91");
    pty.expect("ready");
    pty.resize(50, 20);
    pty.expect("20 50");
    let _ = pty.rest();
    let _ = running.wait().expect(0);
}

/// Ctrl-C ends a command, which is rolled back, unless that handles it: then it decides itself.
#[test]
fn ctrl_c_interrupts_the_command() {
    // With `txos` as the command's parent, and in its place: there the command is in the foreground by itself.
    for options in
        [&["--scope", "."][..], &["--view", "library", "--retry", "0"], &["--view", "library"]]
    {
        ctrl_c_interrupts(options);
    }
}

fn ctrl_c_interrupts(options: &[&str]) {
    let lab = Lab::in_memory();
    let runs = |script: &str, more: &[&str]| {
        let (pty, inner) = Pty::open(80, 24);
        let words = [&["run"], options, more, &["--", "sh", "-c", script]].concat();
        (pty, lab.txos(words).terminal(inner).start())
    };
    let before = Tree::of(lab.tree());
    // Whom it is to end says so itself: a shell that has just forked would still take the signal for its own.
    for script in [
        "echo > made; sh -c 'echo ready; exec sleep 1000'; echo > more",
        // One process only, which waits in the kernel.
        "echo > made; echo ready; exec sleep 1000",
    ] {
        let (mut pty, running) = runs(script, &[]);
        pty.expect("ready");
        pty.type_in("\x03");
        let shown = pty.rest();
        let done = running.wait();
        assert_eq!(done.code(), 130, "{options:?} {script}: {shown}");
        assert!(shown.contains("rolled back"), "{options:?} {script}: {shown}");
        before.expect_same(&Tree::of(lab.tree()));
    }
    // A command that handles it decides itself.
    let script =
        "trap 'echo caught; echo > caught; exit 0' INT; echo ready; sleep 1000 & wait; exit 9";
    let (mut pty, running) = runs(script, &["--leftover", "kill"]);
    pty.expect("ready");
    pty.type_in("\x03");
    pty.expect("caught");
    let _ = pty.rest();
    let _ = running.wait().expect(0);
    assert!(lab.path("caught").exists());
    // Also where nothing else makes `txos` stay beside it.
    let script =
        "trap 'echo caught; echo > caught-again; exit 0' INT; echo ready; read line; exit 9";
    let (mut pty, running) = runs(script, &[]);
    pty.expect("ready");
    pty.type_in("\x03");
    pty.expect("caught");
    let _ = pty.rest();
    let _ = running.wait().expect(0);
    assert!(lab.path("caught-again").exists());
    lab.expect_clean();
}

#[test]
fn jobs_stop_and_go_on() {
    require!(skip::has("bash"), "no bash");
    // With `txos` as the command's parent, and in its place.
    for (options, tells) in
        [("--scope .", true), ("--view library --retry 0", true), ("--view library", false)]
    {
        job_stops_and_goes_on(options, tells);
    }
}

fn job_stops_and_goes_on(options: &str, tells: bool) {
    let lab = Lab::in_memory();
    let txos = txos_testkit::binary::txos().display().to_string();
    let (mut pty, inner) = Pty::open(80, 24);
    let shell = Invocation::new("bash")
        .args(["--norc", "--noprofile", "-i"])
        .env("PS1", "PROMPT>")
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .dir(lab.tree())
        .terminal(inner)
        .start();
    pty.expect("PROMPT>");
    pty.type_in(&format!("{txos} run {options} -- sh -c 'echo rea''dy; read x; echo $x > made'\n"));
    pty.expect("ready");
    pty.type_in("\x1a");
    pty.expect("Stopped");
    pty.expect("PROMPT>");
    pty.type_in("jobs; echo no''ne\n");
    pty.expect("none");
    assert!(!lab.path("made").exists());
    pty.type_in("fg\n");
    pty.expect("made");
    pty.type_in("typed\n");
    if tells {
        pty.expect("committed");
    }
    pty.expect("PROMPT>");
    assert_eq!(lab.read("made"), "typed\n");
    pty.type_in("exit\n");
    let _ = pty.rest();
    let _ = shell.wait().expect(0);
    lab.expect_clean();
}

#[test]
fn signals_to_txos_reach_the_command() {
    let lab = Lab::in_memory();
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut meeting = Rendezvous::new();
        let script = format!("echo > made; {}", txos_testkit::rendezvous::PAUSE);
        let running = lab.script(&[], &script).meeting(&mut meeting).start();
        assert!(meeting.arrived());
        running.signal(signal);
        let _ = running.wait().expect(code);
        assert!(!lab.path("made").exists());
    }
    // What the command has started is not waited for.
    let mut meeting = Rendezvous::new();
    let script = format!("sleep 1000 & echo > made; {}", txos_testkit::rendezvous::PAUSE);
    let running = lab.script(&[], &script).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    running.signal(Signal::TERM);
    let _ = running.wait().expect(143);
    assert!(!lab.path("made").exists());
    lab.expect_clean();
}
