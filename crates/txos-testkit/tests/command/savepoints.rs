//! The layers of a pending transaction: what each command changed is undone and redone by itself, and what
//! is seen then is what a plain tree was at that time.

use std::path::Path;

use txos_testkit::wait::until;
use txos_testkit::{Done, Invocation, Lab};

/// Prints every object below the working directory with all that a program can see of it. Times only if
/// they were set to long ago.
const DUMP: &str = r#"
import os, stat, hashlib
first = {}
for top, dirs, files in os.walk('.'):
    dirs.sort()
    for name in ['.'] * (top == '.') + sorted(dirs + files):
        path = os.path.join(top, name)
        s = os.lstat(path)
        line = [path, oct(s.st_mode), s.st_uid, s.st_gid]
        if s.st_mtime < 1500000000: line.append(s.st_mtime_ns)
        line += sorted((a, os.getxattr(path, a, follow_symlinks=False)) for a in
                       os.listxattr(path, follow_symlinks=False) if not a.startswith('trusted.overlay'))
        if stat.S_ISLNK(s.st_mode): line.append(os.readlink(path))
        if stat.S_ISREG(s.st_mode):
            line += [s.st_size, s.st_nlink, hashlib.md5(open(path, 'rb').read()).hexdigest()]
        if not stat.S_ISDIR(s.st_mode) and s.st_nlink > 1:
            line.append('as ' + first.setdefault(s.st_ino, path))
        print(*line)
"#;

/// What the stable tree is, and what each layer makes of it.
const PREPARE: &str = "
    set -e
    echo old > a; ln a a2; echo b > b; mkdir -p d/e/deep gone; echo x > d/x; echo y > d/e/y; echo g > gone/g
    ln -s a link; echo z > d/e/deep/z; echo c > acl; mkfifo pipe
    find . -exec touch -h -d @1000000000 {} +";
const LAYERS: [&str; 8] = [
    "set -e; echo new >> a; mkdir made; echo h > made/h; ln made/h made/h2; mv d moved; rm -r gone
     ln -s made to; mkfifo fifo; chmod 751 b; setfattr -n user.first -v 1 b",
    "set -e; echo more >> made/h; echo more >> a2; rm -r moved/e; mkdir moved/e; echo new > moved/e/n; rm fifo
     truncate -s 3M sparse; echo end >> sparse; chown 7:8 made/h; chmod 4755 made/h",
    "set -e; mv moved again; mkdir gone; mv made else; setfattr -n user.first -v 2 b
     setfacl -m u:9:rw acl; setfacl -d -m g:7:rx gone; echo in place | dd of=sparse conv=notrunc 2>/dev/null",
    "set -e; rm a; rm else/h2; ln else/h name; echo dir > gone/in; ln pipe pipe2; rm -r again; echo file > again",
    "set -e; rm again; mkdir -p again/d; mv gone again/d/was; chmod 0 again/d/was/in; rm b acl; mkfifo b
     echo 9 > acl; cp /bin/true prog; setcap cap_net_raw+ep prog",
    "set -e; echo over > a; ln a linked; rm link; mkdir link; echo l > link/l; touch -d @1100000000 again/d",
    "set -e; rm -r else again; mv link link2; rm sparse name; chmod 700 .; setfattr -n user.root -v 1 .",
    ": nothing",
];

/// What a command sees in a pending transaction, and is not kept.
fn seen(lab: &Lab, id: &str) -> String {
    let script = "python3 -c \"$1\"; exit 3".to_owned();
    let words = ["exec", "--strict", id, "--", "sh", "-c", &script, "dump", DUMP];
    lab.txos(words).run().expect(3).text()
}

fn dump(dir: &Path) -> String {
    Invocation::new("python3").args(["-c", DUMP]).dir(dir).run().expect(0).text()
}

/// The states of a plain tree, and the same as layers of a pending transaction.
struct Twin {
    lab: Lab,
    id: String,
    states: Vec<String>,
}

impl Twin {
    fn new(lab: Lab, options: &[&str], prepare: &str, layers: &[&str]) -> Twin {
        let native = lab.nested("native");
        for place in [&lab, &native] {
            let _ = place.native(prepare).expect(0);
        }
        let mut words = vec!["--keep", "-q"];
        words.extend(options);
        let mut twin = Twin { id: String::new(), states: vec![dump(native.tree())], lab };
        for (number, script) in layers.iter().enumerate() {
            let _ = native.native(script).expect(0);
            if number == 0 {
                let kept = twin.lab.script(&words, script).run().expect(0);
                twin.id = kept.stderr.trim().to_owned();
            } else {
                let _ = twin.lab.txos(["exec", &twin.id, "--", "sh", "-c", script]).run().expect(0);
            }
            twin.states.push(dump(native.tree()));
        }
        twin
    }

    fn go(&self, verb: &str, n: usize) -> Done {
        self.lab.txos([verb, &self.id, "-n", &n.to_string()]).run()
    }

    fn is_at(&self, layer: usize) {
        let (now, then) = (seen(&self.lab, &self.id), &self.states[layer]);
        assert_eq!(&now, then, "layer {layer}");
    }
}

fn layers(lab: &Lab, id: &str) -> Vec<(String, bool)> {
    let shown = lab.txos(["show", id, "--json"]).run().expect(0).json();
    let layer = |l: &serde_json::Value| {
        (l["command"][2].as_str().unwrap().to_owned(), l["undone"].as_bool().unwrap())
    };
    shown["transaction"]["stack"].as_array().unwrap().iter().map(layer).collect()
}

#[test]
fn every_state_is_gone_to_and_fro() {
    let twin = Twin::new(Lab::in_memory(), &["--no-durable"], PREPARE, &LAYERS);
    twin.is_at(8);
    for (verb, n, at) in [
        ("undo", 1, 7),
        ("undo", 1, 6),
        ("undo", 1, 5),
        ("undo", 2, 3),
        ("redo", 1, 4),
        ("redo", 4, 8),
        ("undo", 7, 1),
        ("redo", 1, 2),
        ("redo", 5, 7),
        ("undo", 1, 6),
    ] {
        let _ = twin.go(verb, n).expect(0).says(format!("it is at layer {at} of 8"));
        twin.is_at(at);
    }
    let shown = layers(&twin.lab, &twin.id);
    assert_eq!(
        shown.iter().map(|l| l.1).collect::<Vec<_>>(),
        [vec![false; 6], vec![true; 2]].concat()
    );
    assert!(
        shown
            .iter()
            .zip(LAYERS)
            .all(|(shown, script)| shown.0 == format!("{script:?}") || shown.0 == script)
    );
    // What there is not is refused by name, and nothing changes.
    let _ = twin.go("undo", 6).expect(125).says("only 5 layers above the first");
    let _ = twin.go("redo", 3).expect(125).says("only 2 layers to redo");
    // A failed command keeps what can be redone; one that succeeds does not.
    twin.is_at(6);
    let _ =
        twin.lab.txos(["exec", &twin.id, "--", "sh", "-c", "echo other > other"]).run().expect(0);
    let _ = twin.go("redo", 1).expect(125).says("nothing to redo");
    let _ = twin.go("undo", 1).expect(0);
    twin.is_at(6);
    let _ = twin.go("undo", 2).expect(0);
    let _ = twin.lab.txos(["commit", &twin.id]).run().expect(0);
    assert_eq!(dump(twin.lab.tree()), twin.states[4]);
    twin.lab.expect_clean();
}

/// What was read by a command that is undone may be changed by others; what the others read may not.
#[test]
fn what_an_undone_command_read_conflicts_no_more() {
    for (undone, changed, code) in
        [(1, "second", 0), (0, "second", 75), (1, "first", 75), (1, "third", 0), (0, "third", 0)]
    {
        let lab = Lab::in_memory();
        let _ = lab.native("echo 1 > first; echo 2 > second; echo 3 > third").expect(0);
        let kept = lab.script(&["--keep", "-q"], "cat first > one").run().expect(0);
        let id = kept.stderr.trim().to_owned();
        let _ = lab.txos(["exec", &id, "--", "sh", "-c", "cat second > two"]).run().expect(0);
        let _ = lab.txos(["exec", &id, "--", "sh", "-c", "cat third; exit 1"]).run().expect(1);
        if undone > 0 {
            let _ = lab.txos(["undo", &id]).run().expect(0);
        }
        let _ = lab.native(&format!("echo other > {changed}")).expect(0);
        let done = lab.txos(["commit", &id]).run();
        assert_eq!(done.code(), code, "{undone} undone, {changed} changed: {done:?}");
    }
}

/// Dies, or fails, at each step of `operation`; then the transaction is at one of the `possible` layers.
fn every_step(operation: &[&str], prepare: &[&[&str]], possible: [usize; 2], fault: &str) {
    let mut seen_at = [0, 0];
    let lab = Lab::in_memory();
    let scripts = [
        "echo new > a; echo 1 > n; mkdir k; ln n k/n",
        "echo more >> a; rm n; echo 2 > m; mv d dd",
        "rm -r k; mkdir k",
    ];
    let mut step = 1;
    loop {
        let place = lab.nested(&format!("{}-{fault}-{step}", operation[0]));
        let twin = Twin::new(place, &[], "echo old > a; ln a b; mkdir d; echo d > d/d", &scripts);
        for words in prepare {
            let mut words = words.to_vec();
            words.insert(1, &twin.id);
            let _ = twin.lab.txos(words).run().expect(0);
        }
        let count = twin.lab.dir().join("steps");
        let mut words = operation.to_vec();
        words.insert(1, &twin.id);
        let fault_at = format!("{fault}@{step}");
        let done =
            twin.lab.txos(words).env("TXOS_FAULT", &fault_at).env("TXOS_FAULT_COUNT", &count).run();
        let what = std::fs::read_to_string(&count).unwrap_or_default();
        let Some(fired) = what.lines().find(|l| l.starts_with("fired ")) else {
            let _ = done.expect(0);
            break;
        };
        until("the transaction is free", || {
            twin.lab.txos(["show", &twin.id, "--json"]).run().json()["transaction"]["state"]
                == "pending"
        });
        let shown = layers(&twin.lab, &twin.id);
        let at = shown.iter().filter(|l| !l.1).count();
        let which = possible.iter().position(|p| *p == at);
        seen_at[which.unwrap_or_else(|| panic!("{fault_at} ({fired}): at layer {at}"))] += 1;
        assert!(
            done.code() != 0 || at == possible[1],
            "{fault_at} ({fired}): done, and yet at {at}"
        );
        twin.is_at(at);
        // All others are there still.
        let _ = twin.go("undo", at - 1).expect(if at > 1 { 0 } else { 125 });
        twin.is_at(1);
        let _ = twin.go("redo", 2).expect(0);
        twin.is_at(3);
        let _ = twin.lab.txos(["commit", &twin.id]).run().expect(0);
        assert_eq!(dump(twin.lab.tree()), twin.states[3], "{fault_at} ({fired})");
        twin.lab.expect_clean();
        // Most steps are alike.
        step += if step < 8 { 1 } else { 7 };
    }
    assert!(seen_at[0] > 2 && seen_at[1] > 0, "{operation:?} {fault}: {seen_at:?}");
}

#[test]
fn killed_while_undoing() {
    every_step(&["undo", "-n", "2"], &[], [3, 1], "kill");
}

#[test]
fn killed_while_redoing() {
    every_step(&["redo", "-n", "2"], &[&["undo", "-n", "2"]], [1, 3], "kill");
}

#[test]
fn undo_fails_at_each_step() {
    every_step(&["undo"], &[], [3, 2], "ENOSPC");
}
