//! What a machine can do to a transaction: each a clear message, exit status 125, and a tree that
//! is bit for bit as before; and what is large or deep but no error at all.

use txos_testkit::image::Image;
use txos_testkit::process::quote;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::{Done, Invocation, Lab, Rendezvous, Tree, binary, require, require_some, skip};

/// A lab on a small image.
fn small(kind: &str, mib: u64) -> Option<(Lab, Image)> {
    let lab = Lab::new();
    let image = Image::mount(&lab, kind, mib, "small")?;
    let lab = lab.at(&image.point);
    // The store is there before anybody compares.
    let _ = lab.script(&[], "true").run().expect(0);
    Some((lab, image))
}

fn tells_of_space(done: &Done) -> bool {
    done.stderr.contains("No space left")
}

#[test]
fn no_space_while_the_command_runs() {
    let Some((lab, _image)) = small("ext4", 16) else {
        return skip::say("no ext4 image");
    };
    let _ = lab.native("echo old > file; mkdir d; echo x > d/x");
    let before = Tree::of(lab.tree());
    // The command's own failure, told by the command.
    let done = lab.script(&[], "echo new > file; head -c 100M /dev/zero > big").run();
    assert_eq!(done.code(), 1, "{done:?}");
    assert!(tells_of_space(&done), "{done:?}");
    before.expect_same(&Tree::of(lab.tree()));
    // Even one that does not care about it, if what it left can't be committed; or all of it.
    let done = lab.script(&[], "echo new > file; head -c 100M /dev/zero > big; true").run();
    match done.code() {
        0 => assert_eq!(lab.read("file"), "new\n"),
        _ => {
            let done = done.expect(125);
            assert!(tells_of_space(&done), "{done:?}");
            before.expect_same(&Tree::of(lab.tree()));
        }
    }
    lab.expect_clean();
    // There is space again.
    let _ = lab.txos(["gc", "--keep", "0"]).run().expect(0);
    let _ = lab.native("rm -f big");
    let _ = lab.script(&[], "echo newer > file").run().expect(0);
    assert_eq!(lab.read("file"), "newer\n");
}

/// Fills an image but for some blocks, while the command runs.
fn full_at_commit(kind: &str, mib: u64, left_kib: u64) {
    let Some((lab, _image)) = small(kind, mib) else {
        return skip::say(&format!("no {kind} image"));
    };
    let _ =
        lab.native("mkdir d; echo linked > a; ln a b; for i in $(seq 60); do echo $i > d/$i; done");
    let before = Tree::of(lab.tree());
    let mut meeting = Rendezvous::new();
    let script = format!(
        "for i in $(seq 60); do echo new > d/$i; done; head -c 300k /dev/zero >> a; \
         mkdir new; for i in $(seq 60); do echo $i > new/$i; done; {PAUSE}"
    );
    let running = lab.script(&[], &script).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    // Outside the tree, on the same file system.
    let _ = lab.native(&format!(
        "head -c {left_kib}k /dev/zero > ../spare; sync; cat /dev/zero > ../fill 2>/dev/null || true; \
         rm ../spare; sync"
    ));
    meeting.go();
    let done = running.wait();
    match done.code() {
        0 => assert_eq!(lab.read("d/60"), "new\n"),
        _ => {
            let done = done.expect(125);
            assert!(tells_of_space(&done), "{done:?}");
            before.expect_same(&Tree::of(lab.tree()));
        }
    }
    let _ = lab.native("rm ../fill");
    let _ = lab.txos(["recover"]).run().expect(0);
    lab.expect_clean();
    let _ = lab.script(&[], "echo more > more").run().expect(0);
}

#[test]
fn no_space_while_staging() {
    full_at_commit("ext4", 16, 0);
}

#[test]
fn no_space_while_publishing() {
    for left in [4, 40, 120, 400] {
        full_at_commit("ext4", 16, left);
    }
}

#[test]
fn no_space_on_btrfs() {
    full_at_commit("btrfs", 128, 0);
}

#[test]
fn a_read_only_target() {
    let Some((lab, image)) = small("ext4", 16) else {
        return skip::say("no ext4 image");
    };
    let _ = lab.native("echo old > file");
    let before = Tree::of(lab.tree());
    // Read-only when it begins.
    image.remount("ro");
    let done = lab.script(&[], "echo new > file").run().expect(125);
    assert!(done.stderr.contains("read-only") || done.stderr.contains("Read-only"), "{done:?}");
    image.remount("rw");
    before.expect_same(&Tree::of(lab.tree()));
    let _ = lab.script(&[], "echo new > file").run().expect(0);
}

#[test]
fn a_file_system_that_can_not_be_versioned() {
    let lab = Lab::new();
    let vfat = Image::mount(&lab, "vfat", 8, "vfat");
    let vfat = require_some!(vfat, "no vfat here");
    let _ = lab
        .txos(["run", "--scope"])
        .arg(&vfat.point)
        .args(["--", "true"])
        .run()
        .expect(125)
        .says("vfat");
    // In a container the root is an overlay.
    let (lower, upper, work, merged) =
        (lab.path("lower"), lab.path("upper"), lab.path("work"), lab.path("merged"));
    for dir in [&lower, &upper, &work, &merged] {
        std::fs::create_dir(dir).unwrap();
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let _ = Invocation::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &options])
        .arg(&merged)
        .run()
        .expect(0);
    let done = lab.txos(["run", "--scope"]).arg(&merged).args(["--", "true"]).run().expect(125);
    let done = done.says("overlay").says("--scope");
    assert!(done.stderr.lines().count() <= 2, "one paragraph: {done:?}");
    // A store on it helps nobody either.
    let done = lab
        .txos(["run", "--scope"])
        .arg(&merged)
        .args(["--", "true"])
        .env("TXOS_STORE", merged.join("store"))
        .env("TXOS_REALM", lab.realm())
        .run()
        .expect(125);
    assert!(done.stderr.contains("overlay"), "{done:?}");
}

/// Kernel facilities that a seccomp filter or a limit takes away.
#[test]
fn without_what_the_kernel_must_have() {
    // Some of it is needed for the root directory only: the store has to be on its mount.
    let lab = Lab::new();
    require!(skip::has("python3"), "no python3");
    let _ = lab.native("echo old > file");
    let before = Tree::of(lab.tree());
    // Answers EPERM or ENOSYS to one system call, as a container's policy does.
    let deny = "
import ctypes, os, struct, sys
number, errno = int(sys.argv[1]), int(sys.argv[2])
load = struct.pack('HBBI', 0x20, 0, 0, 0)
jump = struct.pack('HBBI', 0x15, 0, 1, number)
code = load + jump + struct.pack('HBBI', 6, 0, 0, 0x50000 | errno) + struct.pack('HBBI', 6, 0, 0, 0x7fff0000)
text = ctypes.create_string_buffer(code)
class Prog(ctypes.Structure): _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
prog = Prog(4, ctypes.addressof(text))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(22, 2, ctypes.byref(prog)) == 0, ctypes.get_errno()
os.execv(sys.argv[3], sys.argv[3:])";
    if !cfg!(target_arch = "x86_64") {
        return skip::say("the numbers are those of x86-64");
    }
    let (eperm, enosys) = ("1", "38");
    for (number, errno, name, words) in [
        ("272", eperm, "unshare", &["namespace", "CAP_SYS_ADMIN"][..]),
        ("317", enosys, "seccomp", &["seccomp"]),
        ("317", eperm, "seccomp", &["seccomp"]),
        ("430", enosys, "fsopen", &["mount", "overlay", "kernel"]),
        ("428", enosys, "open_tree", &["view", "mount", "kernel"]),
        ("155", eperm, "pivot_root", &["root"]),
    ] {
        let scope = lab.tree().display().to_string();
        let root = if ["pivot_root", "open_tree"].contains(&name) { "/" } else { &scope };
        let done = Invocation::new("python3")
            .args(["-c", deny, number, errno])
            .arg(binary::txos())
            .args([
                "run",
                "--view",
                "overlay",
                "--scope",
                root,
                "--",
                "sh",
                "-c",
                "echo new > file",
            ])
            .env("TXOS_STORE", lab.store())
            .env("TXOS_REALM", lab.realm())
            .dir(lab.tree())
            .run();
        assert_eq!(done.code(), 125, "{name} denied: {done:?}");
        assert!(words.iter().any(|w| done.stderr.contains(w)), "{name} denied: {done:?}");
        before.expect_same(&Tree::of(lab.tree()));
        lab.expect_clean();
    }
    // Without the gate it goes on: fanotify_init.
    let done = Invocation::new("python3")
        .args(["-c", deny, "300", eperm])
        .arg(binary::txos())
        .args(["run", "--scope", ".", "--", "sh", "-c", "echo new > file; echo new > other"])
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .dir(lab.tree())
        .run();
    let _ = done.expect(0);
}

#[test]
fn paths_of_4000_bytes() {
    let lab = Lab::in_memory();
    // Fifteen names of 250 bytes, and one that fills up to what a system call takes.
    let name = "n".repeat(250);
    let script = format!(
        "set -e; for i in $(seq 15); do mkdir {name}; cd {name}; done; echo deep > file; \
         test -e file; pwd | wc -c"
    );
    let _ = lab.script(&[], &script).run().expect(0);
    let again = format!(
        "set -e; for i in $(seq 15); do cd {name}; done; cat file; echo more >> file; \
         mv file $(printf '%0200d' 1); mkdir x; echo x > x/x"
    );
    let _ = lab.script(&[], &again).run().expect(0);
    assert_eq!(Tree::of(lab.tree()).nodes.len(), 1 + 15 + 3);
    let _ = lab.txos(["diff", "@"]).run().expect(0);
    let _ = lab.txos(["show", "@", "--json"]).run().expect(0).json();
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    let _ = lab.script(&[], &format!("rm -r {name}")).run().expect(0);
    assert_eq!(Tree::of(lab.tree()).nodes.len(), 1);
    lab.expect_clean();
}

#[test]
fn a_tree_1000_deep() {
    let lab = Lab::in_memory();
    // (A shell asks at each step where it is, which natively takes 22 ms a step at the end.)
    let down = r#"perl -e 'for (1..1000) { mkdir "dir"; chdir "dir" or die $! } exec "sh", "-c", $ARGV[0]'"#;
    let deep = |script: &str| lab.script(&[], &format!("{down} 'set -e; {script}'")).run();
    let _ = deep("echo deep > file").expect(0);
    assert_eq!(Tree::of(lab.tree()).nodes.len(), 1002);
    let before = Tree::of(lab.tree());
    let _ = deep("cat file; echo more >> file; exit 2").expect(2);
    before.expect_same(&Tree::of(lab.tree()));
    let _ = deep("cat file; echo more >> file; echo x > new").expect(0);
    assert_eq!(Tree::of(lab.tree()).nodes.len(), 1003);
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    before.expect_same(&Tree::of(lab.tree()));
    let _ = lab.script(&[], "rm -r dir").run().expect(0);
    assert_eq!(Tree::of(lab.tree()).nodes.len(), 1);
    lab.expect_clean();
}

#[test]
fn many_changed_files() {
    let lab = Lab::in_memory();
    let n = if skip::long("many") { 100_000 } else { 10_000 };
    let prepare =
        format!("mkdir d; cd d; seq {n} | split -l 1 -a 5 - f; cd ..; seq 100 | xargs mkdir");
    let _ = lab.native(&prepare);
    let before = Tree::of(lab.tree());
    let script = format!(
        "set -e; for f in d/f*; do echo new >> $f; done; cd 1; seq {n} | split -l 1 -a 5 - g; cd ..; \
         for i in $(seq 2 100); do echo x > $i/x; done; rm d/faaaa*"
    );
    let _ = lab.script(&[], &script).run().expect(0);
    assert_eq!(lab.path("1").read_dir().unwrap().count(), n);
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    before.expect_same(&Tree::of(lab.tree()));
    let _ = lab.txos(["gc", "--keep", "0"]).run().expect(0);
    lab.expect_clean();
}

/// Home stores of one user share the side stores. What the others have there is no problem of this one.
#[test]
fn doctor_leaves_to_others_what_is_theirs() {
    // The tree is on another file system than the home stores.
    let (homes, lab) = (Lab::new(), Lab::in_memory());
    let (mine, other) = (homes.dir().join("mine"), homes.dir().join("other"));
    let keep = |store: &std::path::Path, count: usize| {
        for _ in 0..count {
            let kept = lab.script(&["--keep"], "echo kept > kept").env("TXOS_STORE", store);
            let _ = kept.run().expect(0);
        }
    };
    keep(&mine, 1);
    keep(&other, 3);
    let checks = |store: &std::path::Path| {
        let report = lab.txos(["doctor", "--json"]).env("TXOS_STORE", store).run().json();
        report["checks"].as_array().unwrap().clone()
    };
    for (store, others) in [(&mine, 3), (&other, 1)] {
        let all = checks(store);
        let expected = format!("with {others} of other home stores");
        let found = all.iter().filter(|c| c["name"] == "side store").find(|c| {
            c["ok"] == true && c["detail"].as_str().is_some_and(|d| d.ends_with(&expected))
        });
        assert!(found.is_some(), "{all:?}");
        assert!(!format!("{all:?}").contains("--force"), "{all:?}");
    }
}

/// A command that prints what is asked for, and can't, has failed. A reader that goes away is no failure to speak of.
#[test]
fn what_can_not_be_written_is_no_success() {
    let lab = Lab::in_memory();
    let _ = lab.script(&["--keep"], "echo x > kept").run().expect(0);
    let _ = lab.script(&[], "echo x > x").run().expect(0);
    let txos = quote(binary::txos());
    let txos = txos.to_str().unwrap();
    for words in [
        "help",
        "help run",
        "run --help",
        "-h",
        "--version",
        "completions bash",
        "completions zsh",
        "completions fish",
        "config --cflags",
        "list",
        "list -q",
        "list --json",
        "log",
        "log --json",
        "show @",
        "show @ --json",
        "diff @",
        "diff @ --stat",
        "status",
        "status --json",
        "top --once",
        "policy",
        "policy --json",
        "recover --json",
        "gc --json",
        "mcp --print-policy",
    ] {
        let shell = |script: String| {
            let shell = Invocation::new("bash").args(["-c", &script]).dir(lab.tree());
            shell.env("TXOS_STORE", lab.store()).env("TXOS_REALM", lab.realm()).run()
        };
        let full = shell(format!("exec {txos} {words} > /dev/full"));
        assert!(full.stderr.contains("No space left on device"), "{words}: {full:?}");
        assert_eq!(full.code(), 125, "{words}: {full:?}");
        let gone = shell(format!(
            "{{ sleep .3; {txos} {words} 2>&3; }} 3>&2 | true; exit ${{PIPESTATUS[0]}}"
        ));
        // The server for agents is a program of its own.
        if !words.starts_with("mcp") {
            assert_eq!((gone.code(), gone.stderr.as_str()), (141, ""), "{words}: {gone:?}");
        }
    }
    let _ = lab.txos(["abort", "@"]).run().expect(0);
    lab.expect_clean();
}
