//! `--scope` and `--exclude` in the library's view: what is left out is live, and everything else is a transaction, however a
//! path leads there.

use txos_testkit::rendezvous::PAUSE;
use txos_testkit::{Done, Invocation, Lab, Rendezvous, Tree, system};

use super::processes::contained;

/// A tree to version, beside others, and links to and fro.
const PREPARE: &str = "set -e; mkdir -p in/deep in/cache out; echo old > in/f; echo old > out/f; echo c > in/cache/c
     ln -s ../in out/link; ln -s ../in/f out/to-file; ln -s ../out in/up; ln -s \"$PWD/in/deep\" out/absolute; ln -s link out/chain";

fn lab() -> Lab {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    lab
}

fn run(lab: &Lab, options: &[&str], script: &str) -> Invocation {
    lab.txos(["run", "--view", "library"]).args(options).args(["--", "sh", "-c", script])
}

/// The script fails: what is left is what was live.
fn rolled_back(lab: &Lab, options: &[&str], script: &str) -> Done {
    run(lab, options, &format!("{script}\nexit 3")).run().expect(3)
}

#[test]
fn what_is_outside_is_live_and_inside_is_not() {
    // Directly, and watched.
    for options in [
        &["--scope", "in"][..],
        &["--scope=in", "--retry=0"],
        &["--scope=./in/../in", "--scope", "in/deep"],
    ] {
        let lab = lab();
        let before = Tree::of(lab.path("in"));
        let done = rolled_back(
            &lab,
            options,
            "echo new > in/f; echo new > in/g; rm -r in/deep; echo new > out/f; echo new > out/g; mkdir out/d; cat in/f out/f; ls in",
        );
        assert_eq!(done.text(), "new\nnew\ncache\nf\ng\nup\n");
        before.expect_same(&Tree::of(lab.path("in")));
        assert_eq!(lab.native("cat out/f out/g; ls -d out/d").text(), "new\nnew\nout/d\n");
        let _ = done.says("live, and not rolled back").says("outside of the versioned trees");
        let _ = run(&lab, options, "echo new > in/f; mv in/deep in/d2; echo newer > out/f")
            .run()
            .expect(0);
        assert_eq!(lab.native("cat in/f out/f; ls in").text(), "new\nnewer\ncache\nd2\nf\nup\n");
        lab.expect_clean();
    }
}

/// By links, from working directories and descriptors outside, upwards, by threads and other programs.
#[test]
fn every_way_leads_to_the_same_tree() {
    let lab = lab();
    let before = Tree::of(lab.path("in"));
    let script = "set -e
        echo 1 > out/link/one; echo 2 > out/absolute/two; (cd out/link; echo 3 > three); (cd out; echo 4 > ../in/four; echo 4 >> to-file)
        (cd in/deep; echo 5 > ../five; echo live > ../../out/live; echo live > ../up/too); echo 6 > \"$PWD/out/chain/six\"
        python3 -c \"
import os, threading
out = os.open('out', os.O_RDONLY); here = os.open('.', os.O_PATH)
os.close(os.open('link/seven', os.O_CREAT | os.O_WRONLY, dir_fd=out)); os.mkdir('in/eight', dir_fd=here)
os.close(os.open('../out/live-by-fd', os.O_CREAT | os.O_WRONLY, dir_fd=out))
os.fchdir(out); os.rename('../in/one', 'link/deep/uno'); os.link('link/three', '../in/tres'); os.symlink('x', 'chain/nine')
t = threading.Thread(target=lambda: os.chmod('to-file', 0o600)); t.start(); t.join()
print(os.path.realpath('chain'), os.listdir('link') == os.listdir('../in'), os.stat('to-file').st_mode & 0o777, os.readlink('link'))
\"
        find in out/link/ out/absolute/ | sort; cat in/f; stat -c %i in out/link/ out/chain/. | uniq | wc -l";
    let kinds: [(&str, Vec<&str>); 2] =
        [("natively", Vec::new()), ("in the library's view", vec!["--scope=in"])];
    let mut told = Vec::new();
    for (kind, options) in kinds {
        let place = if options.is_empty() { lab.nested("native") } else { lab.nested("ours") };
        let _ = place.native(PREPARE);
        let done = match options.is_empty() {
            true => place.native(script),
            false => place
                .txos(["run", "--view", "library"])
                .args(options)
                .args(["--", "sh", "-c", script])
                .run(),
        };
        let done = done.expect(0);
        told.push(done.text().replace(&*place.tree().to_string_lossy(), ""));
        assert_eq!(told[0], *told.last().unwrap(), "{kind}: {done:?}");
        assert_eq!(
            place.native("ls out/live out/too out/live-by-fd; cat in/deep/uno").code(),
            0,
            "{kind}"
        );
    }
    let _ = rolled_back(&lab, &["--scope=in"], script);
    before.expect_same(&Tree::of(lab.path("in")));
    assert_eq!(
        lab.native("ls out").text(),
        "absolute\nchain\nf\nlink\nlive\nlive-by-fd\nto-file\ntoo\n"
    );
    lab.expect_clean();
}

/// Dots, slashes at the end, links that are not followed, and the rules of `openat2`; in one process, and in several.
#[test]
fn paths_are_read_as_by_the_kernel() {
    const SCRIPT: &str = "
import ctypes, errno, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *words):
    ctypes.set_errno(0); answer = libc.syscall(number, *words)
    return errno.errorcode[ctypes.get_errno()] if answer < 0 else os.path.basename(os.readlink(f'/proc/self/fd/{answer}'))
def tried(f):
    try: return f()
    except OSError as error: return error.strerror
open('./in/dots', 'w').write('1'); os.symlink('new', 'out/dangling')
os.mkdir('in/fresh'); print(open('in/fresh/../dots').read(), open('./in/fresh/.././dots').read()); os.rmdir('in/fresh')
print(os.listdir('././in/./deep/.'), open('out/./link/./dots').read(), os.path.exists('in/../out/./../in/dots'))
for name in ['to-file', 'dangling']:
    os.utime(f'out/{name}', (2, 2), follow_symlinks=False); print(os.lstat(f'out/{name}').st_mtime)
    print(tried(lambda: os.setxattr(f'out/{name}', 'trusted.note', b'1', follow_symlinks=False)), os.listxattr(f'out/{name}', follow_symlinks=False))
    print(tried(lambda: os.removexattr(f'out/{name}', 'trusted.note', follow_symlinks=False)), tried(lambda: os.listxattr(f'out/{name}')))
os.chmod('out/to-file', 0o611); os.chown('out/to-file', 5, 6, follow_symlinks=False)
print(oct(os.stat('in/f').st_mode), os.stat('in/f').st_uid, os.lstat('out/to-file').st_uid)
for make in [os.mkdir, os.rmdir, os.unlink, os.mkfifo, lambda path: os.symlink('x', path), lambda path: os.rename(path, 'out/moved')]:
    print([tried(lambda: make(path)) for path in ['out/dangling/', 'out/link/', 'out/absolute//']])
print(os.path.isdir('out/link/'), os.path.lexists('out/dangling/'), os.listdir('out/absolute//'))
several = len(sys.argv) > 1
for dir, path, resolve in [('out', '../in/f', 8), ('out', 'link/f', 8), ('out', 'to-file', 4), ('out', 'link/f', 16), ('in', '../out/f', 8), ('in', 'up/f', 8), ('in', 'f', 8), ('in', 'new', 8)]:
    fd = os.open(dir, os.O_RDONLY); flags, mode = (os.O_CREAT | os.O_WRONLY, 0o644) if path == 'new' else (0, 0)
    print(dir, path, resolve, call(437, fd, path.encode(), struct.pack('QQQ', os.O_CLOEXEC | flags, mode, resolve), 24))
if not several:
    for path, flags, resolve in [('in/f', 0, 8), ('in/made', os.O_CREAT | os.O_WRONLY, 8), ('in/f', 0, 4), ('in/../../../../../../../etc/passwd', 0, 16), ('/proc/self/cwd/in/f', 0, 2), ('out/f', 0, 4)]:
        fd = os.open('.', os.O_RDONLY)
        print(path, resolve, call(437, fd, path.encode(), struct.pack('QQQ', os.O_CLOEXEC | flags, 0o644 if flags else 0, resolve), 24))
";
    for several in [false, true] {
        let lab = Lab::in_memory();
        let (native, ours) = (lab.nested("native"), lab.nested("ours"));
        for place in [&native, &ours] {
            let _ = place.native(PREPARE);
            std::fs::write(place.path("paths.py"), SCRIPT).unwrap();
        }
        let script = if several { "python3 paths.py several; exit 3" } else { "python3 paths.py" };
        let code = if several { 3 } else { 0 };
        let natively = native.native(script.trim_end_matches("; exit 3")).text();
        assert!(natively.lines().count() > 20, "{natively}");
        let before = Tree::of(ours.path("in"));
        let done = match several {
            true => run(&ours, &["--scope", "in"], script).run(),
            false => {
                let words = [
                    "run",
                    "--view",
                    "library",
                    "--scope",
                    "in",
                    "--",
                    "/usr/bin/python3",
                    "paths.py",
                ];
                ours.txos(words).run()
            }
        };
        let done = done.expect(code);
        assert_eq!(done.text(), natively, "{done:?}");
        if several {
            before.expect_same(&Tree::of(ours.path("in")));
        } else {
            assert_eq!(
                ours.native("ls in; stat -c %a in/f").text(),
                native.native("ls in; stat -c %a in/f").text()
            );
        }
        ours.expect_clean();
    }
}

#[test]
fn the_top_stays_where_it_is_and_nothing_crosses() {
    let lab = lab();
    let before = Tree::of(lab.tree());
    let script = "
        mv in in2; echo $?; rmdir in; echo $?; mv \"$PWD\" ../other; echo $?; mkdir in; echo $?; mkdir -p in; echo $?; rmdir in/cache; echo $?; mv in/cache in/c2; echo $?
        python3 -c \"
import os
for call in [lambda: os.rename('in/f', 'out/f'), lambda: os.rename('out/f', 'in/f'), lambda: os.link('in/f', 'out/l'), lambda: os.link('out/f', 'in/l'),
             lambda: os.rename('in/f', 'in/cache/f'), lambda: os.rename('in', 'out/in')]:
    try: call(); print('done')
    except OSError as error: print(error.strerror)
\"";
    let done = rolled_back(&lab, &["--scope", "in", "--exclude", "in/cache"], script);
    let crosses = "Invalid cross-device link\n".repeat(5);
    assert_eq!(
        done.text(),
        format!("1\n1\n1\n1\n0\n1\n1\n{crosses}Device or resource busy\n"),
        "{done:?}"
    );
    before.expect_same(&Tree::of(lab.tree()));
    // What `mv` copies instead is a change on one side, and live on the other.
    let _ = run(&lab, &["--scope", "in"], "mv in/f out/g; mv out/f in/h").run().expect(0);
    assert_eq!(lab.native("cat out/g in/h; ls in/f out/f 2>&1 | wc -l").text(), "old\nold\n2\n");
    lab.expect_clean();
}

#[test]
fn what_matches_a_pattern_is_left_alone() {
    let lab = lab();
    let options = ["--exclude", "in/c*", "--exclude", "in/none*"];
    let done = rolled_back(
        &lab,
        &options,
        "echo x > in/cache/x; echo x > in/x; rm in/cache/c; ls in/cache; cd in/cache; echo y > y; echo y > ../y",
    );
    assert_eq!(done.text(), "x\n");
    let _ = done.says("--exclude in/none*").says("nothing that is there now matches").says("live");
    assert_eq!(lab.native("ls in in/cache").text(), "in:\ncache\ndeep\nf\nup\n\nin/cache:\nx\ny\n");
    let _ =
        run(&lab, &options, "rm -r in/cache; echo $?; ls in/cache").run().expect(0).says("busy");
    assert_eq!(lab.native("ls in/cache | wc -l").text(), "0\n");
    lab.expect_clean();
}

/// What others change outside is no conflict, and what they change inside is.
#[test]
fn only_what_is_inside_is_validated() {
    for (change, code) in [
        ("echo other > out/f; mkdir beside; chmod 700 out; touch -d @1 .", 0),
        ("echo other > in/f", 75),
        ("mkdir in/deep/new", 75),
    ] {
        let lab = lab();
        let mut meeting = Rendezvous::new();
        let script =
            format!("cat in/f out/f; ls . out in/deep; stat . out; echo new > in/new; {PAUSE}");
        let running = run(&lab, &["--scope", "in"], &script).meeting(&mut meeting).start();
        assert!(meeting.arrived());
        let _ = lab.native(change);
        meeting.go();
        let _ = running.wait().expect(code);
        assert_eq!(lab.path("in/new").exists(), code == 0, "{change}");
        let _ = lab.native("chmod 755 out");
    }
}

#[test]
fn strict_stops_at_what_is_outside() {
    let lab = lab();
    let before = Tree::of(lab.tree());
    for script in [
        "echo new > in/new; echo new > out/new; true",
        "mkdir out/new",
        "rm out/f",
        "chmod 600 out/f",
        "mv out/f out/g",
    ] {
        let _ =
            run(&lab, &["--scope", "in", "--strict"], script).run().expect(125).says("versioned");
        before.expect_same(&Tree::of(lab.tree()));
    }
    lab.expect_clean();
}

/// A working directory, and an open one, outside go where they are renamed to; `/proc` leads into the transaction.
#[test]
fn directories_outside_are_followed() {
    const SCRIPT: &str = "
import os, sys
P = os.getcwd(); os.mkdir('out/d'); open('out/d/x', 'w').write('right'); os.chdir('out/d')
os.rename(P + '/out/d', P + '/out/moved'); os.mkdir(P + '/out/d'); open(P + '/out/d/x', 'w').write('wrong')
print(open('x').read(), os.getcwd()[len(P):]); open('w', 'w'); os.unlink('x'); print(os.listdir('.')); os.chdir(P); print(os.listdir('out/d'), os.listdir('out/moved'))
os.rename('in/deep', 'in/other'); os.mkdir('in/deep'); open('in/deep/mine', 'w')
os.chdir('/proc/self/cwd/in/deep'); print(os.listdir('.')); open('w', 'w'); os.chdir(P)
os.chdir('/proc/self/root' + P + '/in/deep'); print(sorted(os.listdir('.'))); os.chdir(P); print(os.listdir('in/other'))
sys.exit(3)
";
    for several in [false, true] {
        let lab = Lab::in_memory();
        let (native, ours) = (lab.nested("native"), lab.nested("ours"));
        for place in [&native, &ours] {
            let _ = place.native(PREPARE);
            std::fs::write(place.path("follow.py"), SCRIPT).unwrap();
        }
        let before = Tree::of(ours.path("in"));
        let words = ["/usr/bin/python3", "follow.py"];
        let script = format!("{}; exit $?", words.join(" "));
        let done = match several {
            true => run(&ours, &["--scope", "in"], &script).run(),
            false => {
                ours.txos(["run", "--view", "library", "--scope", "in", "--"]).args(words).run()
            }
        };
        let done = done.expect(3);
        assert_eq!(
            done.text(),
            native.native(&format!("{} || true", words.join(" "))).text(),
            "{done:?}"
        );
        before.expect_same(&Tree::of(ours.path("in")));
        assert_eq!(ours.native("ls out/d out/moved").text(), "out/d:\nx\n\nout/moved:\nw\n");
        ours.expect_clean();
    }
}

/// Further commands have the same scope, and so does one that is run again.
#[test]
fn what_is_kept_keeps_its_scope() {
    let _stable = system::stable();
    let lab = lab();
    let before = Tree::of(lab.path("in"));
    let script = "echo 1 > in/one; echo 1 > out/one";
    let done = run(&lab, &["--scope", "in", "--keep", "-q"], script).run().expect(0);
    let id = done.stderr.lines().last().unwrap().to_owned();
    let exec = |script: &str| lab.txos(["exec", &id, "--", "sh", "-c", script]).run();
    let _ = exec("cat in/one; echo 2 > out/two; cd out/link; echo 2 > two; rm -r deep").expect(0);
    assert_eq!(lab.native("ls out/one out/two").code(), 0);
    before.expect_same(&Tree::of(lab.path("in")));
    let _ = lab
        .txos(["exec", &id, "--exclude", "in/cache", "--", "sh", "-c", "echo 3 > in/cache/three"])
        .run()
        .expect(0);
    assert!(lab.path("in/cache/three").exists());
    let _ = lab.native("rm in/cache/three");
    let fork = lab.txos([
        "exec",
        &id,
        "--fork",
        "--name",
        "other",
        "--",
        "sh",
        "-c",
        "echo 4 > in/four; echo 4 > out/four",
    ]);
    let _ = fork.run().expect(0);
    assert!(lab.path("out/four").exists() && !lab.path("in/four").exists());
    let _ = lab.txos(["abort", "other"]).run().expect(0);
    let _ = lab.native("rm out/*o*; echo other > in/f");
    let _ = lab.txos(["rebase", &id]).run().expect(0);
    assert_eq!(lab.native("ls out/one out/two").code(), 0);
    assert!(!lab.path("in/one").exists());
    let _ = lab.txos(["commit", "@"]).run().expect(0);
    assert_eq!(lab.native("ls in; cat in/two").text(), "cache\nf\none\ntwo\nup\n2\n");
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    let _ = lab.native("echo old > in/f");
    assert_eq!(lab.native("ls in").text(), "cache\ndeep\nf\nup\n");
    lab.expect_clean();
}

#[test]
fn what_is_no_directory_is_refused() {
    let lab = lab();
    for (scope, why) in [
        ("none", "No such file"),
        ("in/f", "--scope wants directories"),
        ("/run", "/run is never versioned"),
    ] {
        let _ = run(&lab, &["--scope", scope], "touch ran").run().expect(125).says(why);
    }
    assert!(!lab.path("ran").exists());
}

/// What agents run, where nothing can be mounted.
#[test]
fn sessions_of_agents_need_no_mounts() {
    let lab = lab();
    let before = Tree::of(lab.path("in"));
    let shell = |command: &str| {
        contained(&lab, &["agent", "shell", "--session=s", "--scope=in", "--", "-c", command]).run()
    };
    let _ = shell("echo 1 > in/one; echo 1 > out/one; rm -r in/deep")
        .expect(0)
        .says("outside of the versioned trees");
    assert_eq!(
        shell("cat in/one; echo 2 >> out/link/one; ls in").expect(0).text(),
        "1\ncache\nf\none\nup\n"
    );
    let _ = shell("rm -r in/*; exit 7").expect(7);
    before.expect_same(&Tree::of(lab.path("in")));
    let _ = contained(&lab, &["undo", "agent:s"]).run().expect(0);
    let _ = contained(&lab, &["commit", "agent:s"]).run().expect(0);
    assert_eq!(
        lab.native("cat in/one out/one; ls in | tr '\\n' ' '").text(),
        "1\n2\n1\ncache f one up "
    );
    lab.expect_clean();
}

/// What can't be held is said, with what to do.
#[test]
fn an_option_that_needs_namespaces_is_named() {
    let lab = lab();
    let done = contained(&lab, &["run", "--scope=in", "--no-network", "--", "touch", "in/ran"])
        .run()
        .expect(125);
    let _ =
        done.says("no namespaces are to be had").says("--no-network needs").says("nothing was run");
    assert!(!lab.path("in/ran").exists());
    lab.expect_clean();
}
