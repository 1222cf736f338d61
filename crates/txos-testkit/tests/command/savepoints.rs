//! The layers of a pending transaction: what each command changed is undone and redone by itself, and what
//! is seen then is what a plain tree was at that time.

use std::path::Path;

use txos_testkit::fault::stride;
use txos_testkit::image::Image;
use txos_testkit::random::Random;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::wait::until;
use txos_testkit::{Done, Invocation, Lab, Rendezvous, require, require_some};

use crate::rootless::Place;

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
pub fn seen(lab: &Lab, id: &str) -> String {
    let script = "python3 -c \"$1\"; exit 3".to_owned();
    let words = ["exec", "--strict", id, "--", "sh", "-c", &script, "dump", DUMP];
    lab.txos(words).run().expect(3).text()
}

pub fn dump(dir: &Path) -> String {
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

/// A command that changes nothing is a layer like any other, whose savepoint is another name of the one below; what it makes and
/// removes again, and what it rewrites as it was, is told from that.
#[test]
fn layers_of_commands_that_change_nothing() {
    let scripts = [
        "set -e; echo new > a; ln a a3; mkdir -p n/m; echo 1 > n/m/f; rm b",
        ": nothing",
        "cat a n/m/f a3 >/dev/null; ls -lR >/dev/null; : nothing",
        "set -e; echo gone > g; rm g; cat n/m/f > t; cat t > n/m/f; rm t",
        ": nothing at all",
        "set -e; echo 2 >> n/m/f; chmod 600 a3; mv n o",
        ": nothing again",
    ];
    let twin = Twin::new(Lab::new(), &[], PREPARE, &scripts);
    let shown = twin.lab.txos(["show", &twin.id, "--json"]).run().expect(0).json();
    let changes = |n: usize| shown["transaction"]["stack"][n]["changes"].as_u64();
    assert_eq!([1, 2, 4, 6].map(changes), [Some(0); 4]);
    assert!(changes(5) > Some(0));
    for (back, at) in [(1, 6), (1, 5), (2, 3), (1, 2), (1, 1), (1, 0)] {
        let _ = twin.go("undo", back).expect(0);
        twin.is_at(at);
    }
    for (forth, at) in [(3, 3), (4, 7)] {
        let _ = twin.go("redo", forth).expect(0);
        twin.is_at(at);
    }
    // A command that fails is taken back to the savepoint of one that changed nothing.
    let failing = "echo lost > a; rm -r o; exit 7";
    let _ = twin.lab.txos(["exec", &twin.id, "--", "sh", "-c", failing]).run().expect(7);
    twin.is_at(7);
    let report = twin.lab.dir().join("report");
    let exec = twin.lab.txos(["exec", "--report"]).arg(&report).args([&twin.id, "--", "true"]);
    let _ = exec.run().expect(0);
    let text = std::fs::read_to_string(&report).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["counts"], serde_json::Value::Null);
    let layer = report["layer"].as_object().unwrap();
    assert!(layer.len() == 6 && layer.values().all(|n| *n == 0), "{layer:?}");
    // Nobody has counted what the transaction changes in all; a list does.
    assert_eq!(report["transaction"]["changes"], serde_json::Value::Null);
    let shown = twin.lab.txos(["show", &twin.id, "--json"]).run().expect(0).json();
    let listed = twin.lab.txos(["list", "--json"]).run().expect(0).json();
    assert_eq!(listed["transactions"][0]["changes"], shown["transaction"]["changes"]);
    let counts = shown["counts"].as_object().unwrap().values().map(|n| n.as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), shown["transaction"]["changes"].as_u64().unwrap());
    let _ = twin.lab.txos(["commit", &twin.id]).run().expect(0);
    assert_eq!(dump(twin.lab.tree()), twin.states[7]);
    twin.lab.expect_clean();
}

/// What the last command left is noted, for the next savepoint. A note that is missing, damaged, or of a command that was
/// undone, is not gone by.
#[test]
fn a_note_of_what_a_command_left_is_a_hint() {
    let note = |twin: &Twin| twin.lab.store().join("tx").join(&twin.id).join("saved/2.seen");
    let undone = |twin: &Twin| {
        // Another command in place of the second, with the note of the one that was undone.
        let was = std::fs::read(note(twin)).unwrap();
        let _ = twin.go("undo", 1).expect(0);
        let exec = twin.lab.txos(["exec", &twin.id, "--", "sh", "-c", "echo other > a; rm b"]);
        let _ = exec.run().expect(0);
        assert_ne!(std::fs::read(note(twin)).unwrap(), was);
        std::fs::write(note(twin), was).unwrap();
    };
    let gone = |twin: &Twin| std::fs::remove_file(note(twin)).unwrap();
    let cut = |twin: &Twin| {
        let whole = std::fs::read(note(twin)).unwrap();
        std::fs::write(note(twin), &whole[..whole.len() / 2]).unwrap();
    };
    let kept = |twin: &Twin| assert!(note(twin).exists());
    for (what, spoil) in [
        ("kept", &kept as &dyn Fn(&Twin)),
        ("gone", &gone),
        ("cut off", &cut),
        ("of a command that was undone", &undone),
    ] {
        let scripts = ["echo 1 > a; echo 1 > b", "echo 2 > a; mkdir d; echo 2 > d/f"];
        let mut twin = Twin::new(Lab::new(), &[], ": > a", &scripts);
        spoil(&twin);
        twin.states[2] = seen(&twin.lab, &twin.id);
        let exec = twin.lab.txos(["exec", &twin.id, "--", "sh", "-c", "rm -r *; echo 3 > c"]);
        let _ = exec.run().expect(0);
        twin.states.push(seen(&twin.lab, &twin.id));
        assert!(!note(&twin).exists(), "{what}");
        for at in [2, 1, 0] {
            let _ = twin.go("undo", 1).expect(0);
            twin.is_at(at);
        }
        let _ = twin.go("redo", 3).expect(0);
        twin.is_at(3);
        let _ = twin.go("undo", 1).expect(0);
        let _ = twin.lab.txos(["commit", &twin.id]).run().expect(0);
        assert_eq!(dump(twin.lab.tree()), twin.states[2], "{what}");
    }
}

/// A commit that fails halfway puts the private copies back; what was noted of them is not gone by after it.
#[test]
fn a_commit_that_fails_forgets_the_note() {
    let lab = Lab::in_memory();
    let (mut failed, mut forgot) = (0, 0);
    for step in (1..).step_by(5) {
        let scripts = ["echo 1 > a; echo 1 > b", "echo 2 > a; mkdir d; echo 2 > d/f"];
        let twin = Twin::new(lab.nested(&format!("step-{step}")), &[], ": > a", &scripts);
        let note = twin.lab.store().join("tx").join(&twin.id).join("saved/2.seen");
        assert!(note.exists());
        let count = twin.lab.dir().join("steps");
        let commit = twin.lab.txos(["commit", &twin.id]).env("TXOS_FAULT", format!("EIO@{step}"));
        let done = commit.env("TXOS_FAULT_COUNT", &count).run();
        let fired = std::fs::read_to_string(&count).unwrap_or_default();
        if !fired.lines().any(|line| line.starts_with("fired ")) {
            let _ = done.expect(0);
            break;
        }
        if done.code() == 0 {
            continue;
        }
        failed += 1;
        forgot += u32::from(!note.exists());
        assert_eq!(dump(twin.lab.tree()), twin.states[0], "{step}");
        twin.is_at(2);
        let _ = twin.go("undo", 1).expect(0);
        twin.is_at(1);
        let at = if failed % 2 == 0 { 1 } else { 2 };
        if at == 2 {
            let _ = twin.go("redo", 1).expect(0);
        }
        let _ = twin.lab.txos(["commit", &twin.id]).run().expect(0);
        assert_eq!(dump(twin.lab.tree()), twin.states[at], "{step}");
    }
    assert!(failed > 2 && forgot > 0, "{failed} failed, {forgot} of them without the note");
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
        ("undo", 2, 0),
        ("redo", 2, 2),
        ("redo", 5, 7),
        ("undo", 7, 0),
        ("redo", 7, 7),
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
    let _ = twin.go("undo", 7).expect(125).says("only 6 layers to undo");
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

/// With every layer undone the transaction is as it began: it changes nothing, depends on nothing, and its next command
/// is its first.
#[test]
fn every_layer_is_undone() {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE).expect(0);
    let begun = dump(lab.tree());
    let script = "set -e; cat b > /dev/null; echo 1 >> a; chmod 700 .; setfattr -n user.root -v 1 .; mv d moved";
    let kept = lab.script(&["--keep", "-q"], script).run().expect(0);
    let id = kept.stderr.trim().to_owned();
    let _ = lab.txos(["exec", &id, "--", "sh", "-c", "echo 2 > two"]).run().expect(0);
    let done = lab.txos(["undo", &id, "-n", "2"]).run().expect(0);
    let _ = done.says("it is at layer 0 of 2").says("-n 2` puts all of them back");
    let _ = lab.txos(["undo", &id]).run().expect(125).says("nothing to undo");
    let _ = lab.txos(["rebase", &id]).run().expect(125).says("nothing to run again");
    assert_eq!(seen(&lab, &id), begun);
    assert_eq!(lab.txos(["diff", &id]).run().expect(0).text(), "");
    assert_eq!(layers(&lab, &id).iter().map(|l| l.1).collect::<Vec<_>>(), [true, true]);
    let shown = lab.txos(["diff", &id, "--layer", "2", "--name-status"]).run().expect(0).text();
    assert_eq!(shown, format!("A\t{}\n", lab.tree().join("two").display()));
    // What the undone commands read others may change; and their attributes of the top are seen.
    let _ = lab.native("echo other > b; chmod 750 .; setfattr -n user.root -v 2 .").expect(0);
    let _ = lab.txos(["redo", &id]).run().expect(0).says("at layer 1 of 2");
    let _ = lab.txos(["commit", &id]).run().expect(75);
    let _ = lab.txos(["undo", &id]).run().expect(0);
    assert_eq!(seen(&lab, &id), dump(lab.tree()));
    // The next command takes the place of what was undone.
    let _ = lab.txos(["exec", &id, "--", "sh", "-c", "echo first > first"]).run().expect(0);
    let shown = layers(&lab, &id);
    assert_eq!(shown.len(), 1);
    assert!(shown[0].0.contains("first") && !shown[0].1);
    let _ = lab.txos(["redo", &id]).run().expect(125).says("nothing to redo");
    let _ = lab.txos(["rebase", &id]).run().expect(0);
    let done = lab.txos(["list", "-q"]).run().expect(0);
    let again = done.text().trim().to_owned();
    let _ = lab.txos(["undo", &again]).run().expect(0);
    let _ = lab.txos(["commit", &again]).run().expect(0).says("nothing changed");
    assert!(!lab.path("first").exists());
    lab.expect_clean();
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
        if at > 0 {
            let _ = twin.go("undo", at).expect(0);
        }
        twin.is_at(0);
        let _ = twin.go("redo", 3).expect(0);
        twin.is_at(3);
        let _ = twin.lab.txos(["commit", &twin.id]).run().expect(0);
        assert_eq!(dump(twin.lab.tree()), twin.states[3], "{fault_at} ({fired})");
        twin.lab.expect_clean();
        // Most steps are alike.
        step += if step < 8 { 1 } else { stride(7, 13) };
    }
    assert!(seen_at[0] > 2 && seen_at[1] > 0, "{operation:?} {fault}: {seen_at:?}");
}

#[test]
fn killed_while_undoing() {
    every_step(&["undo", "-n", "2"], &[], [3, 1], "kill");
}

#[test]
fn killed_while_undoing_all() {
    every_step(&["undo", "-n", "3"], &[], [3, 0], "kill");
}

#[test]
fn killed_while_redoing_all() {
    every_step(&["redo", "-n", "3"], &[&["undo", "-n", "3"]], [0, 3], "kill");
}

#[test]
fn killed_while_redoing() {
    every_step(&["redo", "-n", "2"], &[&["undo", "-n", "2"]], [1, 3], "kill");
}

#[test]
fn undo_fails_at_each_step() {
    every_step(&["undo"], &[], [3, 2], "ENOSPC");
}

/// A layer shows what it changed, and nothing of the others: the same by its savepoint and while it is the last.
#[test]
fn each_layer_is_shown_by_itself() {
    for view in ["overlay", "library"] {
        each_layer_is_shown_in(view);
    }
}

fn each_layer_is_shown_in(view: &str) {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE).expect(0);
    let shown = |id: &str, layer: usize| layer_shown(&lab, id, layer);
    let layers = [
        (
            "echo new >> a; mkdir made; echo h > made/h; mv d moved; rm -r gone; mv b bb",
            "M a\nR b bb\nD gone/\nD gone/g\nA made/\nA made/h\nR d moved/\n",
        ),
        (
            "echo more >> made/h; rm -r moved/e; chmod 600 bb; echo y >> moved/x",
            "m bb\nM made/h\nD moved/e/\nD moved/e/deep/\nD moved/e/deep/z\nD moved/e/y\nM moved/x\n",
        ),
        (
            "mv moved again; rm a; mkfifo a; cp -p bb copy; cat acl > /dev/null",
            "T a\nR moved again/\nA copy\n",
        ),
        (
            "setfattr -n user.x -v 1 acl; ln -sf elsewhere link; mkdir gone; rm -r again",
            "m acl\nD again/\nD again/x\nA gone/\nM link\n",
        ),
        (": nothing", ""),
    ];
    let kept = lab.script(&["--view", view, "--keep", "-q"], layers[0].0).run().expect(0);
    let id = kept.stderr.trim().to_owned();
    for (number, (script, expected)) in layers.iter().enumerate() {
        if number > 0 {
            let _ = lab.txos(["exec", &id, "--", "sh", "-c", script]).run().expect(0);
        }
        assert_eq!(shown(&id, number + 1), *expected, "{view}: the last layer, {}", number + 1);
    }
    let all_are_shown = |when: &str| {
        for (number, (_, expected)) in layers.iter().enumerate() {
            assert_eq!(shown(&id, number + 1), *expected, "{view}, {when}: layer {}", number + 1);
        }
    };
    all_are_shown("with all layers");
    let done = lab.txos(["diff", &id, "--layer", "6"]).run().expect(125);
    let _ = done.says("without a layer 6");
    let stack = lab.txos(["show", &id, "--json"]).run().expect(0).json();
    let stack = stack["transaction"]["stack"].as_array().unwrap().clone();
    let counted: Vec<_> = stack.iter().map(|l| l["changes"].clone()).collect();
    for (number, (_, expected)) in layers.iter().enumerate().skip(1) {
        assert_eq!(counted[number], expected.lines().count(), "{view}: layer {}", number + 1);
    }
    let patch = lab.txos(["diff", &id, "--layer", "2"]).run().expect(0).text();
    assert!(patch.contains("+more") && patch.contains("+y") && !patch.contains("+new"), "{patch}");
    let _ = lab.txos(["undo", &id, "-n", "5"]).run().expect(0);
    all_are_shown("with all undone");
    let _ = lab.txos(["redo", &id, "-n", "3"]).run().expect(0);
    all_are_shown("with three redone");
}

/// What a layer changed, a line each.
fn layer_shown(lab: &Lab, id: &str, layer: usize) -> String {
    let layer = layer.to_string();
    let done = lab.txos(["diff", id, "--name-status", "--layer", &layer]).run().expect(0);
    let prefix = format!("{}/", lab.tree().display());
    done.text().replace(&prefix, "").replace('\t', " ")
}

/// Random commands: in the library's view a layer is shown as in the overlay's, whose list of entries has nothing in common with
/// the recorded changes.
#[test]
fn random_layers_are_shown_alike() {
    let lab = Lab::in_memory();
    let prepare = "set -e; echo a > a; echo b > b; mkdir -p d/e f/g; echo x > d/x; echo y > d/y; echo z > d/e/z
        echo h > f/g/h; find . -exec touch -h -d @1000000000 {} +";
    let mut shown_in_all = 0;
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let scripts: Vec<String> = (0..4)
            .map(|_| {
                let changes = std::iter::repeat_with(|| change(&mut random));
                // A file of several names is shown under other ones.
                let changes =
                    changes.filter(|change| !change.starts_with("ln ") || change.contains("-s"));
                let changes: Vec<String> = changes.take(4).collect();
                format!("set +e; {{ {}; }} 2>/dev/null; :", changes.join("; "))
            })
            .collect();
        let twins = ["overlay", "library"].map(|view| {
            let lab = lab.nested(&format!("{view}-{seed}"));
            let _ = lab.native(prepare).expect(0);
            let kept = lab.script(&["--view", view, "--keep", "-q"], &scripts[0]).run().expect(0);
            let id = kept.stderr.trim().to_owned();
            for script in scripts.iter().skip(1).filter(|_| !id.is_empty()) {
                let _ = lab.txos(["exec", &id, "--", "sh", "-c", script]).run().expect(0);
            }
            (lab, id)
        });
        if twins.iter().any(|(_, id)| id.is_empty()) {
            continue;
        }
        for layer in 1..=scripts.len() {
            // In the library's view a changed file can have another time once a later command has read it. And a moved
            // file is one there, where the overlay has a copy at the new name.
            let alike = |shown: String| -> Vec<String> {
                let lines = shown.lines().filter(|line| !line.starts_with("m "));
                let mut parts: Vec<String> = lines
                    .flat_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
                        ["R", from, to] => vec![format!("D {from}"), format!("new {to}")],
                        ["A" | "M", path] => vec![format!("new {path}")],
                        _ => vec![line.to_owned()],
                    })
                    .collect();
                parts.sort();
                // What has moved away, and something new come to its name.
                let new = parts.clone();
                parts.retain(|part| {
                    !part
                        .strip_prefix("D ")
                        .is_some_and(|path| new.contains(&format!("new {path}")))
                });
                parts
            };
            let [overlay, library] =
                [0, 1].map(|at| alike(layer_shown(&twins[at].0, &twins[at].1, layer)));
            assert_eq!(overlay, library, "seed {seed}, layer {layer}: {scripts:#?}");
            shown_in_all += library.len();
        }
    }
    assert!(shown_in_all > 50, "{shown_in_all}");
}

/// One random change of a small tree.
fn change(random: &mut Random) -> String {
    let names = ["a", "b", "d", "d/x", "d/y", "d/e", "d/e/z", "f", "f/g", "f/g/h"];
    let (p, q, n) = (*random.pick(&names), *random.pick(&names), random.below(1000));
    match random.below(13) {
        0..3 => format!("echo {n} >> {p}"),
        3 => format!("rm -rf {p}"),
        4 => format!("mkdir -p {p}"),
        5..7 => format!("mv -T {p} {q}"),
        7 => format!("ln {p} {q}"),
        8 => format!("ln -s {q} {p}"),
        9 => format!("chmod {:o} {p}", 0o700 | random.below(0o100)),
        10 => format!("setfattr -n user.k -v {n} {p}"),
        11 => format!("cp -a {p} {q}.{n}"),
        _ => format!("touch -h -d @{}0000 {p}", 1000 + n),
    }
}

/// Random layers, and random undo and redo: each state is what a plain tree was.
#[test]
fn random_layers() {
    let lab = Lab::in_memory();
    let prepare = "set -e; echo a > a; ln a b; mkdir -p d/e f/g; echo x > d/x; echo z > d/e/z; echo h > f/g/h; ln d/x d/y
        find . -exec touch -h -d @1000000000 {} +";
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let layers: Vec<String> = (0..6)
            .map(|_| {
                let changes: Vec<String> = (0..5).map(|_| change(&mut random)).collect();
                format!("set +e; {{ {}; }} 2>/dev/null; :", changes.join("; "))
            })
            .collect();
        let scripts: Vec<&str> = layers.iter().map(String::as_str).collect();
        let twin =
            Twin::new(lab.nested(&format!("seed-{seed}")), &["--no-durable"], prepare, &scripts);
        let mut at = 6;
        for _ in 0..6 {
            let to = usize::try_from(random.below(7)).unwrap();
            if to != at {
                let _ = twin.go(if to < at { "undo" } else { "redo" }, to.abs_diff(at)).expect(0);
            }
            at = to;
            twin.is_at(at);
        }
        let _ = twin.lab.txos(["commit", &twin.id]).run().expect(0);
        // What is retained of a file that lost a name counts as a link of it until then.
        let _ = twin.lab.txos(["gc", "--keep", "0"]).run().expect(0);
        assert_eq!(dump(twin.lab.tree()), twin.states[at], "seed {seed}");
        twin.lab.expect_clean();
    }
}

#[test]
fn five_hundred_layers() {
    let lab = Lab::in_memory();
    let kept =
        lab.script(&["--keep", "-q", "--no-durable"], "echo 1 > log; cp log first").run().expect(0);
    let id = kept.stderr.trim().to_owned();
    for n in 2..=500 {
        let script = format!("echo {n} >> log; ln log name{n}; rm -f name{}", n - 3);
        let _ = lab.txos(["exec", "--no-preload", &id, "--", "sh", "-c", &script]).run().expect(0);
    }
    let last = |id: &str| {
        let script = "tail -n 1 log; cat log | wc -l; echo name*; exit 3";
        lab.txos(["exec", id, "--", "sh", "-c", script]).run().expect(3).text()
    };
    assert_eq!(layers(&lab, &id).len(), 500);
    let _ = lab.txos(["undo", &id, "-n", "250"]).run().expect(0);
    assert_eq!(last(&id), "250\n250\nname248 name249 name250\n");
    let _ = lab.txos(["undo", &id, "-n", "249"]).run().expect(0);
    assert_eq!(last(&id), "1\n1\nname*\n");
    let _ = lab.txos(["redo", &id, "-n", "499"]).run().expect(0);
    assert_eq!(last(&id), "500\n500\nname498 name499 name500\n");
    let _ = lab.txos(["undo", &id]).run().expect(0);
    let _ = lab.txos(["commit", &id]).run().expect(0);
    assert_eq!(lab.read("log").lines().count(), 499);
    lab.expect_clean();
}

/// What an ordinary user can't write, search or read any more is undone and redone nevertheless.
#[test]
fn an_ordinary_user_undoes() {
    let place = require_some!(Place::new(), "no user namespaces for ordinary users here");
    place.native("mkdir -p d/e; echo x > d/x; echo y > d/e/y; echo a > a");
    let script = "ls -lRn --time-style=+ . | grep -v ^total; test -p a || cat a; exit 3";
    let begun = place.script(&[], script).run().expect(3).text();
    let kept =
        place.script(&["--keep", "-q"], "mv d moved; echo more >> a; mkdir k; echo k > k/k").run();
    let id = kept.expect(0).stderr.trim().to_owned();
    let exec = |script: &str| place.txos(&["exec", &id, "--", "sh", "-c", script]).run();
    let look = || exec("ls -lRn --time-style=+ . | grep -v ^total; cat a; exit 3").expect(3).text();
    let mut states = vec![look()];
    for script in [
        "chmod 600 a; echo secret > moved/new; chmod 0 moved/new; chmod 555 moved/e; chmod 0 k",
        "chmod 700 k; rm -r k moved/new; mkdir k; setfattr -n user.k -v 1 k; chmod 500 k",
        "chmod 755 moved/e; rm -r moved; rm a; mkfifo a; exec cat /dev/null",
    ] {
        let _ = exec(script).expect(0);
        let shown =
            exec("ls -lRn --time-style=+ . | grep -v ^total; test -p a || cat a; exit 3").expect(3);
        states.push(shown.text());
    }
    let look = || {
        exec("ls -lRn --time-style=+ . | grep -v ^total; test -p a || cat a; exit 3")
            .expect(3)
            .text()
    };
    for (verb, n, at) in
        [("undo", "1", 2), ("undo", "2", 0), ("redo", "1", 1), ("redo", "2", 3), ("undo", "1", 2)]
    {
        let _ = place.txos(&[verb, &id, "-n", n]).run().expect(0);
        assert_eq!(look(), states[at], "{verb} {n}");
    }
    let _ = place.txos(&["undo", &id, "-n", "3"]).run().expect(0);
    assert_eq!(look(), begun, "all undone");
    let _ = place.txos(&["redo", &id, "-n", "3"]).run().expect(0);
    assert_eq!(look(), states[2], "all redone");
    let _ = place.txos(&["commit", &id]).run().expect(0);
    assert!(place.lab.path("moved/e").exists() && !place.lab.path("moved/new").exists());
}

/// Without room for a savepoint no command runs, and what is pending stays.
#[test]
fn no_room_for_a_savepoint() {
    let lab = Lab::in_memory();
    let image = Image::mount(&lab, "ext4", 48, "small");
    require!(image.is_some(), "mounting ext4");
    let place = lab.nested("lab-small").at(&lab.dir().join("small"));
    let kept = place
        .script(&["--keep", "-q"], "head -c 12M /dev/zero | tr '\\0' x > big; echo 1 > n")
        .run();
    let id = kept.expect(0).stderr.trim().to_owned();
    let exec = |script: &str| place.txos(["exec", &id, "--", "sh", "-c", script]).run();
    let _ = place.native("head -c 24M /dev/zero | tr '\\0' y > ../full").expect(0);
    let _ = exec("echo 2 > n")
        .expect(125)
        .says("No space left")
        .says("stays pending, as it was before");
    let _ = place.txos(["undo", &id]).run().expect(125);
    let _ = place.native("rm ../full").expect(0);
    let _ = exec("cat n > m; echo 2 > n").expect(0);
    let _ = place.txos(["undo", &id]).run().expect(0);
    let shown = exec("cat n; wc -c < big; ls; exit 3").expect(3).text();
    assert_eq!(shown, "1\n12582912\nbig\nn\n");
}

/// git finds a repository whole, whichever of its commands are undone.
#[test]
fn a_repository_is_whole_at_each_layer() {
    let lab = Lab::in_memory();
    let git = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; set -e";
    let script = |rest: &str| format!("{git}\n{rest}");
    let first = script(
        "git init -q -b main .; for n in 1 2 3 4 5; do echo $n > file$n; done; git add .; git commit -qm one",
    );
    let kept = lab.script(&["--keep", "-q"], &first).run().expect(0);
    let id = kept.stderr.trim().to_owned();
    let look = || {
        let look = script(
            "git fsck --strict --no-progress; git status --porcelain; git log --format=%H%d --all; git stash list; cat file1; exit 3",
        );
        lab.txos(["exec", &id, "--", "sh", "-c", &look]).run().expect(3).text()
    };
    let mut states = vec![look()];
    for rest in [
        "echo more >> file1; git commit -qam two; git tag two",
        "git checkout -qb side HEAD~1; git rm -q file2; git commit -qm three; git checkout -q main",
        "git merge -q --no-edit side; git gc -q --prune=now",
        "echo dirty >> file1; git stash -q; git branch -D side; git repack -qad",
        "git rebase -q --root; git reflog expire --expire=now --all; git gc -q --prune=now",
    ] {
        let _ = lab.txos(["exec", &id, "--", "sh", "-c", &script(rest)]).run().expect(0);
        states.push(look());
    }
    for (verb, n, at) in [
        ("undo", "1", 4),
        ("undo", "3", 1),
        ("undo", "1", 0),
        ("redo", "2", 2),
        ("redo", "3", 5),
        ("undo", "2", 3),
    ] {
        let _ = lab.txos([verb, &id, "-n", n]).run().expect(0);
        assert_eq!(look(), states[at], "{verb} {n}");
    }
    let _ = lab.txos(["commit", &id]).run().expect(0);
    let _ = lab
        .native("git fsck --strict --no-progress && test -z \"$(git status --porcelain)\"")
        .expect(0);
}

/// A second command in the same transaction waits for the first, or gives up after --wait.
#[test]
fn commands_run_one_after_the_other() {
    let lab = Lab::in_memory();
    let kept = lab.script(&["--keep", "-q"], "echo 1 > a").run().expect(0);
    let id = kept.stderr.trim().to_owned();
    let mut meeting = Rendezvous::new();
    let script = format!("echo 2 >> a\n{PAUSE}");
    let first = lab.txos(["exec", &id, "--", "sh", "-c", &script]).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    for words in
        [["exec", &id, "--wait", "0", "--", "true"], ["undo", &id, "--wait", "0", "-n", "1"]]
    {
        let _ = lab.txos(words).run().expect(125).says("a command runs in").says("nothing changed");
    }
    let second = lab.txos(["exec", &id, "--", "sh", "-c", "echo 3 >> a"]).start();
    until("the second says that it waits", || second.stderr().contains("waiting for the command"));
    meeting.go();
    let _ = first.wait().expect(0);
    let _ = second.wait().expect(0);
    let _ = lab.txos(["commit", &id]).run().expect(0);
    assert_eq!(lab.read("a"), "1\n2\n3\n");
}

/// On tmpfs a store to a shared mapping moves no time. It is undone like any other change.
#[test]
fn a_change_that_moves_no_time_is_undone() {
    let lab = Lab::in_memory();
    let store = |status: u8| {
        format!(
            "python3 -c \"import mmap, os
m = mmap.mmap(os.open('f', os.O_RDWR), 4)
m[0]
m[0:1] = b'{status}'
os._exit({status})\""
        )
    };
    let kept = lab.script(&["--keep", "-q"], "printf AAAA > f; printf other > g").run().expect(0);
    let id = kept.stderr.trim().to_owned();
    let run = |script: &str| lab.txos(["exec", &id, "--", "sh", "-c", script]).run();
    let holds = |text: &str| assert_eq!(run("cat f g").expect(0).text(), text);
    let _ = run(&store(1)).expect(1);
    holds("AAAAother");
    let _ = run(&store(0)).expect(0);
    holds("0AAAother");
    let _ = lab.txos(["undo", &id, "-n", "3"]).run().expect(0);
    holds("AAAAother");
    let _ = lab.txos(["commit", &id]).run().expect(0);
    assert_eq!(lab.read("f"), "AAAA");
}

/// Many that want the same transaction at the same time: each has its turn.
#[test]
fn commands_at_the_same_time_wait_for_each_other() {
    let lab = Lab::in_memory();
    let kept = lab.script(&["--keep", "-q"], "echo 0 > a").run().expect(0);
    let id = kept.stderr.trim().to_owned();
    let all: Vec<_> = (0..6)
        .map(|n| {
            let script = format!("echo {n} >> a");
            lab.txos(["exec", &id, "--", "sh", "-c", &script]).start()
        })
        .collect();
    for one in all {
        let _ = one.wait().expect(0);
    }
    let _ = lab.txos(["commit", &id]).run().expect(0);
    assert_eq!(lab.read("a").lines().count(), 7);
}

/// What is excluded is what the present command says, not what the first one said.
#[test]
fn each_command_has_its_own_exclusions() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir cache; echo 1 > cache/x; echo 1 > log; echo 1 > a");
    let path = |name: &str| lab.path(name).display().to_string();
    let (cache, log) = (path("cache"), path("log"));
    let keep = |options: &[&str]| {
        let options = [&["--keep", "-q"], options].concat();
        lab.script(&options, "echo 2 > a").run().expect(0).stderr.trim().to_owned()
    };
    // It is versioned for the second command, so what that has read must not change.
    let id = keep(&["--exclude", &cache]);
    let _ = lab.txos(["exec", &id, "--", "sh", "-c", "cat cache/x > y"]).run().expect(0);
    let _ = lab.native("echo 2 > cache/x");
    let _ = lab.txos(["commit", &id]).run().expect(75).says("cache/x");
    let _ = lab.txos(["abort", &id]).run().expect(0);
    // It is live for the second command, whose own writes are no conflict.
    let id = keep(&[]);
    let words = ["exec", &id, "--exclude", &log, "--", "sh", "-c", "cat log; echo 2 > log"];
    let _ = lab.txos(words).run().expect(0);
    assert_eq!(lab.read("log"), "2\n");
    let _ = lab.txos(["commit", &id]).run().expect(0);
    assert_eq!(lab.read("a"), "2\n");
}

/// A change of which nobody saw what it was made of conflicts with others' since the first command, in a fork as well.
#[test]
fn a_fork_is_as_old_as_what_it_comes_from() {
    for merges in [false, true] {
        let lab = Lab::new();
        let _ = lab.native("mkdir data mnt; echo 1 > data/f; echo 1 > other");
        let kept = lab.script(&["--keep", "-q"], "echo 2 > other").run().expect(0);
        let id = kept.stderr.trim().to_owned();
        let script = "unshare -m sh -ec 'mount --bind data mnt; echo mine >> mnt/f'";
        let _ = lab.txos(["exec", &id, "--", "sh", "-c", script]).run().expect(0);
        let _ = lab.native("echo theirs >> data/f");
        let fork = ["exec", "--fork", "--name", "fork", &id, "--", "true"];
        let _ = lab.txos(fork).run().expect(0);
        if merges {
            let late = lab.script(&["--keep", "-q"], "echo 3 > late").run().expect(0);
            let late = late.stderr.trim().to_owned();
            let _ = lab.txos(["merge", &late, "fork"]).run().expect(0);
            let _ = lab.txos(["commit", &late]).run().expect(75);
        } else {
            let _ = lab.txos(["commit", "fork"]).run().expect(75);
        }
        assert_eq!(lab.read("data/f"), "1\ntheirs\n");
    }
}

/// What a transaction inside of a command had seen that was killed concerns no later command.
#[test]
fn what_was_inside_of_a_killed_command_is_forgotten() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 1 > r");
    let kept = lab.script(&["--keep", "-q"], "echo 1 > a").run().expect(0);
    let id = kept.stderr.trim().to_owned();
    let mut meeting = Rendezvous::new();
    let script = format!("{} run -- cat r\n{PAUSE}", txos_testkit::binary::txos().display());
    let outer = lab.txos(["exec", &id, "--", "sh", "-c", &script]).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    outer.signal(rustix::process::Signal::KILL);
    let _ = outer.wait();
    let _ = lab.native("echo 2 > r");
    let _ = lab.txos(["exec", &id, "--", "sh", "-c", "echo 2 >> a"]).run().expect(0);
    let _ = lab.txos(["commit", &id]).run().expect(0);
    assert_eq!(lab.read("a"), "1\n2\n");
}
