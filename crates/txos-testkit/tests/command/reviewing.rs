//! Deciding about a transaction at a terminal: what is shown first, and what each answer does.

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use txos_testkit::process::{Invocation, Running};
use txos_testkit::pty::Pty;
use txos_testkit::{Lab, require, skip};

const RUN: &str = "[y/n/d/l/c/s/k/?]";
const REVIEW: &str = "[y/n/d/l/c/s/x/?]";

/// Starts it on a terminal, without a pager and with a plain shell.
fn start(invocation: Invocation) -> (Pty, Running) {
    let (pty, inner) = Pty::open(150, 60);
    let plain = invocation
        .env("NO_COLOR", "1")
        .env("TXOS_PAGER", "")
        .env("SHELL", "/bin/sh")
        .env("PS1", "in> ");
    (pty, plain.terminal(inner).start())
}

/// An editor that runs a script on the list, whose path is `$1`.
fn editor(lab: &Lab, script: &str) -> String {
    let path = lab.dir().join("editor");
    std::fs::write(&path, format!("#!/bin/sh\nset -e\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path.to_string_lossy().into_owned()
}

fn text(shown: Vec<u8>) -> String {
    String::from_utf8(shown).unwrap()
}

#[test]
fn what_takes_away_or_gives_rights_comes_first() {
    let lab = Lab::in_memory();
    let _ = lab
        .native("echo 1 > z-gone; echo 1 > z-mode; printf '1\\n2\\n' > changed; echo t > y-type");
    let script = "mkdir -p new/deep; for n in $(seq 200); do echo $n > new/deep/$n; done; \
                  cp /bin/true new/su; chmod 4755 new/su; rm z-gone; chmod 600 z-mode; \
                  printf '1\\n2b\\n3\\n' > changed; rm y-type; mkdir y-type; echo x > a-new";
    let (mut pty, running) = start(lab.script(&["--review"], script));
    let shown = text(pty.until(RUN));
    let (first, rest) = shown.split_once("Everything else:").expect("two parts");
    let (_, first) = first.split_once("Deletions, replacements and rights:").expect("a heading");
    for line in ["D ", "m ", "T ", "A "] {
        assert!(first.lines().any(|l| l.trim_start().starts_with(line)), "{line}: {shown}");
    }
    for what in ["/z-gone ", "mode 0644 -> 0600", "file -> directory", "runs as user 0"] {
        assert!(first.contains(what), "{what}: {shown}");
    }
    assert_eq!(first.trim().lines().count(), 4, "{shown}");
    assert!(rest.contains("/new/ ") && rest.contains("201 paths in it"), "{shown}");
    assert!(rest.contains("4 B -> 7 B, +2 -1"), "{shown}");
    assert!(rest.contains("208 paths (") && !rest.contains("/deep/7"), "{shown}");
    pty.type_in("l\n");
    let all = text(pty.until(RUN));
    assert!(all.contains("/new/deep/7 ") && all.contains("/z-gone"), "{all}");
    pty.type_in("d z-gone */changed\n");
    let patch = text(pty.until(RUN));
    assert!(
        patch.contains("-2\r\n") && patch.contains("+2b") && !patch.contains("a-new"),
        "{patch}"
    );
    pty.type_in("?\n");
    let help = text(pty.until(RUN));
    assert!(help.contains("choose in an editor") && help.contains("roll back"), "{help}");
    pty.type_in("n\n");
    let _ = pty.rest();
    let _ = running.wait().expect(1);
    assert_eq!(lab.read("changed"), "1\n2\n");
    lab.expect_clean();
}

/// As a person would with a real editor: the list, with one line's word changed.
#[test]
fn a_part_is_chosen_in_vim() {
    require!(skip::has("vim"), "no vim");
    let lab = Lab::in_memory();
    let _ = lab.native("echo 1 > a; echo 1 > b; echo 1 > gone");
    let script = "echo 2 > a; echo 2 > b; rm gone; mkdir d; echo 2 > d/x; echo 3 > d/y";
    let _ = lab.script(&["--keep"], script).run().expect(0);
    let command = lab.txos(["review"]).env("EDITOR", "vim -u NONE").env("TERM", "xterm");
    let (mut pty, running) = start(command.without_env("VISUAL"));
    pty.expect(REVIEW);
    pty.type_in("c\n");
    pty.expect("What of transaction");
    pty.type_in(":%s/^pick \\(.*\\/\\(a\\|d\\)\\t\\)/drop \\1/\r:wq\r");
    let rest = pty.rest();
    let _ = running.wait().expect(0);
    assert!(rest.contains("the rest stays pending"), "{rest}");
    assert!(lab.read("a") == "1\n" && lab.read("b") == "2\n");
    assert!(!lab.path("gone").exists() && !lab.path("d").exists());
    let _ = lab.txos(["commit", "@"]).run().expect(0);
    assert!(lab.read("a") == "2\n" && lab.read("d/y") == "3\n");
    lab.expect_clean();
}

#[test]
fn a_part_is_chosen_by_patterns_and_what_cant_be_split_is_said() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 1 > a; echo 1 > n1; ln n1 n2; mkdir moved; echo 1 > moved/x");
    let script = "echo 2 > a; ln n1 n3; mv moved there; mkdir new; echo 2 > new/x; echo 2 > x.log";
    let (mut pty, running) = start(lab.script(&["--review"], script));
    pty.expect(RUN);
    let mut refused = |answer: &str, why: &str, prompt: &str| {
        pty.type_in(&format!("{answer}\n"));
        let shown = text(pty.until(prompt));
        assert!(shown.contains(why), "{answer}: {shown}");
    };
    let new = lab.path("new/x");
    refused("c nowhere", "nothing that is changed has this name", RUN);
    refused(&format!("c {}", new.display()), "can't be had without it", RUN);
    // From here on it is pending; what the engine can't split is asked about again.
    refused("c */n3", "can't be committed apart from the rest", RUN);
    refused("c there", "can't be committed apart from the rest", RUN);
    assert_eq!(lab.held().transactions.len(), 1);
    pty.type_in("c *.log */new\n");
    let _ = pty.rest();
    let _ = running.wait().expect(0);
    assert_eq!(lab.read("new/x") + &lab.read("x.log") + &lab.read("a"), "2\n2\n1\n");
    // An editor that fails, a list that makes no sense, and one in which nothing is picked.
    for (script, why) in [
        (":", "the list was not changed"),
        ("exit 1", "failed; `c PATTERN...` chooses without one"),
        ("echo squash >> \"$1\"", "\"pick\" or \"drop\" is expected"),
        ("sed -i 's/^pick/drop/' \"$1\"", "nothing is picked"),
        ("stat -c %a \"$1\" \"$(dirname \"$1\")\" >&2; : > \"$1\"", "600\r\n700\r\n"),
    ] {
        let command = lab.txos(["review"]).env("VISUAL", editor(&lab, script));
        let (mut pty, running) = start(command);
        pty.expect(REVIEW);
        pty.type_in("c\n");
        let shown = text(pty.until(REVIEW));
        assert!(shown.contains(why), "{script}: {shown}");
        pty.type_in("n\n");
        let _ = pty.rest();
        let _ = running.wait().expect(1);
    }
    let _ = lab.txos(["commit", "@"]).run().expect(0);
    assert_eq!(lab.read("n3") + &lab.read("there/x"), "1\n1\n");
    lab.expect_clean();
}

#[test]
fn a_shell_inside_looks_and_leaves_nothing() {
    looked_around_in("overlay");
}

#[test]
fn a_shell_inside_looks_in_the_librarys_view() {
    looked_around_in("library");
}

fn looked_around_in(view: &str) {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 1 > a; mkdir d; echo 1 > d/x");
    let script = "echo 2 > a; echo 2 > b; mv d e; ln b c";
    let (mut pty, running) = start(lab.script(&["--view", view, "--review"], script));
    pty.expect(RUN);
    pty.type_in("s\n");
    pty.expect("is not kept");
    pty.expect("in> ");
    pty.type_in("cat a e/x; echo 9 > a; rm b; echo 9 > e/x; touch new; echo id=$TXOS_ID\n");
    pty.expect("2\r\n1\r\nid=");
    assert_eq!(lab.read("a"), "1\n", "inside only");
    pty.type_in("exit\n");
    pty.expect("is as it was before the shell");
    pty.expect(RUN);
    pty.type_in("y\n");
    let _ = pty.rest();
    let _ = running.wait().expect(0);
    assert_eq!(lab.read("a") + &lab.read("c") + &lab.read("e/x"), "2\n2\n1\n");
    assert!(!lab.path("new").exists() && !lab.path("d").exists());
    lab.expect_clean();
    // A shell that is not there, and one that is killed with txos: it stays pending, as it was.
    let _ = lab.script(&["--view", view, "--keep"], "echo 3 > a").run().expect(0);
    let (mut pty, inner) = Pty::open(150, 60);
    let command = lab.txos(["review"]).env("TXOS_PAGER", "").env("SHELL", "/none");
    let running = command.terminal(inner).start();
    pty.expect(REVIEW);
    pty.type_in("s\n");
    pty.expect("command not found");
    pty.expect(REVIEW);
    pty.type_in("n\n");
    let _ = running.wait().expect(1);
    let (mut pty, running) = start(lab.txos(["review"]));
    pty.expect(REVIEW);
    pty.type_in("s\n");
    pty.expect("in> ");
    pty.type_in("echo 4 > a && echo don''e\n");
    pty.expect("done");
    running.signal(Signal::KILL);
    let _ = pty.rest();
    assert!(running.wait().killed());
    assert_eq!(lab.txos(["commit", "@"]).run().expect(0).text(), "");
    assert_eq!(lab.read("a"), "3\n");
    lab.expect_clean();
}

#[test]
fn a_pager_shows_what_is_long() {
    require!(skip::has("less"), "no less");
    let lab = Lab::in_memory();
    let script = "for n in $(seq 100 299); do echo $n > f$n; done; echo 1 > zz";
    let _ = lab.script(&["--keep"], script).run().expect(0);
    let on_terminal = |words: &[&str]| {
        let (pty, inner) = Pty::open(100, 30);
        let command = lab.txos(words).env("TERM", "xterm").without_env("LESS");
        let command = command.without_env("PAGER").without_env("TXOS_PAGER");
        (pty, command.terminal(inner).start())
    };
    for words in [&["diff", "--name-status"][..], &["show"]] {
        let (mut pty, running) = on_terminal(words);
        pty.expect("f100");
        pty.type_in("G");
        pty.expect("/zz");
        pty.type_in("q");
        let _ = pty.rest();
        let _ = running.wait().expect(0);
    }
    // Who leaves a long patch early has seen enough. Meanwhile nothing of the transaction is in use.
    let (mut pty, running) = on_terminal(&["review"]);
    pty.expect("f100");
    pty.type_in("q");
    pty.expect(REVIEW);
    pty.type_in("d\n");
    pty.expect("diff --git");
    pty.type_in("q");
    pty.expect(REVIEW);
    pty.type_in("n\n");
    let _ = running.wait().expect(1);
    let named = lab
        .txos(["show"])
        .env("TERM", "xterm")
        .env("TXOS_PAGER", "sed s/^/paged:/")
        .env("NO_COLOR", "1");
    let (mut pty, inner) = Pty::open(100, 30);
    let running = named.terminal(inner).start();
    pty.expect("paged:transaction ");
    let _ = pty.rest();
    let _ = running.wait().expect(0);
    assert!(!lab.txos(["show"]).env("TERM", "xterm").run().expect(0).text().contains("paged"));
}
