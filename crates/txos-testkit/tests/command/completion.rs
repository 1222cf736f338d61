//! What bash, zsh and fish complete, at a terminal: the transactions that a command can be applied to.

use std::os::unix::fs::PermissionsExt;

use txos_testkit::process::Invocation;
use txos_testkit::pty::Pty;
use txos_testkit::{Lab, binary, require, skip};

/// Two that are pending, one of them with a name of two words, and one that is committed.
fn prepare(lab: &Lab) -> (String, String) {
    let keep = |options: &[&str], script: &str| {
        let options = [&["--keep", "-q"][..], options].concat();
        lab.script(&options, script).run().expect(0).stderr.trim().to_owned()
    };
    let named = keep(&["--name", "up grade"], "echo 1 > a");
    let other = keep(&[], "echo 2 > b");
    let _ = lab.script(&["--name", "done"], "echo 3 > c").run().expect(0);
    (named, other)
}

/// A shell in which `txos` is this one, with the store of the lab.
fn shell(lab: &Lab, words: &[&str]) -> Invocation {
    let bin = lab.dir().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", binary::txos().display());
    std::fs::write(bin.join("txos"), script).unwrap();
    std::fs::set_permissions(bin.join("txos"), PermissionsExt::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    Invocation::new(words[0])
        .args(&words[1..])
        .dir(lab.tree())
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .env("HOME", lab.dir())
        .env("TERM", "dumb")
        .env("PS1", "$ ")
        .env("PS2", "")
}

#[test]
fn bash_completes_transactions() {
    let lab = Lab::in_memory();
    let (named, other) = prepare(&lab);
    let (mut pty, inner) = Pty::open(160, 50);
    let running = shell(&lab, &["bash", "--norc", "--noprofile", "-i"]).terminal(inner).start();
    pty.expect("$ ");
    pty.type_in("source <(txos completions bash)\n");
    pty.expect("$ ");
    // Two tabs list what there is, each with what it is; what is committed can't be committed.
    pty.type_in("txos commit \t\t");
    pty.expect("txos commit ");
    let list = String::from_utf8(pty.until("txos commit ")).unwrap();
    let line = |word: &str| list.lines().find(|l| l.starts_with(word)).unwrap_or_default();
    assert!(line(&named).contains("(pending ") && line(&named).contains("echo 1 > a"), "{list}");
    assert!(line(&other).contains("echo 2 > b"), "{list}");
    assert!(line(r"up\ grade").contains("(pending "), "{list}");
    assert!(!list.contains("done"), "{list}");
    // The start of a name, and of an id, of which there is one.
    pty.type_in("\u{15}txos diff u\t--name-status\n");
    pty.expect("/a\r\n");
    pty.type_in(&format!("txos diff up\\ g\t--name-status; txos show {}\t\n", &other[..6]));
    pty.expect("/a\r\n");
    pty.expect("echo 2 > b");
    // Options and files are completed as before.
    pty.type_in("txos list --js\t\n");
    pty.expect("\"transactions\"");
    std::fs::write(lab.path("a_file"), "").unwrap();
    pty.type_in("txos diff up\\ grade a_f\t && echo ended\n");
    pty.expect("up\\ grade a_file");
    pty.expect("ended\r\n");
    // Nothing fits: nothing is typed, and nothing said.
    pty.type_in("txos commit zzz\t\t\u{15}exit\n");
    let rest = pty.rest();
    assert!(rest.contains("txos commit zzz") && !rest.contains("a_file"), "{rest:?}");
    let _ = running.wait().expect(0);
}

#[test]
fn zsh_completes_transactions() {
    require!(skip::has("zsh"), "no zsh");
    let lab = Lab::in_memory();
    let (named, other) = prepare(&lab);
    // As it is installed: a file of a function that is loaded when it is first called.
    let functions = lab.dir().join("functions");
    std::fs::create_dir(&functions).unwrap();
    let script = lab.txos(["completions", "zsh"]).run().expect(0).text();
    std::fs::write(functions.join("_txos"), script).unwrap();
    let (mut pty, inner) = Pty::open(160, 50);
    let running = shell(&lab, &["zsh", "-f", "-i"]).terminal(inner).start();
    pty.expect("$ ");
    let dir = functions.display();
    pty.type_in(&format!(
        "unsetopt prompt_sp zle_bracketed_paste; fpath=({dir} $fpath); autoload -U compinit; compinit -u -D; echo rea''dy\n"
    ));
    pty.expect("ready\r\n");
    pty.type_in("txos commit \t");
    // The descriptions of the two that are one transaction come with both of its words.
    let mut list = String::from_utf8(pty.until("echo 1 > a")).unwrap();
    // They come in the order of their ids.
    if !list.contains(&other) {
        list += &String::from_utf8(pty.until(&other)).unwrap();
    }
    assert!(list.contains(&other) && list.contains("-- pending "), "{list}");
    assert!(!list.contains("done"), "{list}");
    pty.type_in(&format!("\u{15}txos diff {}\t--name-status\n", &named[..6]));
    pty.expect("/a\r\n");
    pty.type_in("txos diff up\t--name-status\n");
    pty.expect("/a\r\n");
    std::fs::write(lab.path("a_file"), "").unwrap();
    pty.type_in("txos diff up\\ grade a_f\t && echo en''ded\n");
    pty.expect("ended\r\n");
    pty.type_in("\u{15}exit\n");
    let _ = pty.rest();
    let _ = running.wait().expect(0);
}

#[test]
fn fish_completes_transactions() {
    require!(skip::has("fish"), "no fish");
    let lab = Lab::in_memory();
    let (named, other) = prepare(&lab);
    let complete = |line: &str| {
        let script = format!("txos completions fish | source; complete -C '{line}'");
        shell(&lab, &["fish", "--no-config", "-c", &script]).run().expect(0).text()
    };
    let list = complete("txos commit ");
    let words: Vec<&str> = list.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(words, [&*other, &*named, "up grade"], "{list}");
    assert!(list.contains("\tpending ") && list.contains("echo 1 > a"), "{list}");
    assert_eq!(complete(&format!("txos show {}", &other[..5])).lines().count(), 1);
    assert!(complete("txos revert ").contains("done\t"));
    assert!(complete("txos list --js").contains("--json"));
    assert_eq!(complete("txos commit zzz"), "");
    std::fs::write(lab.path("a_file"), "").unwrap();
    assert!(complete("txos diff x a_f").contains("a_file"));
}

/// The snippet of docs/howto.md for a shell.
fn prompt_snippet(shell: &str) -> String {
    let howto = include_str!("../../../../docs/howto.md");
    let (_, section) = howto.split_once("in the prompt").unwrap();
    let (_, block) = section.split_once(&format!("```{shell}\n")).unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_prompt_shows_the_transaction() {
    let lab = Lab::in_memory();
    let rc = lab.dir().join("rc");
    std::fs::create_dir(&rc).unwrap();
    let inside = |words: &[&str]| {
        let (mut pty, inner) = Pty::open(160, 50);
        let running = shell(&lab, &[&["txos", "run", "--keep", "--scope", "."], words].concat())
            .env("ZDOTDIR", &rc)
            .terminal(inner)
            .start();
        pty.expect("(");
        let id = String::from_utf8(pty.until(") ")).unwrap();
        pty.type_in("echo is=$TXOS_ID\n");
        pty.expect(&format!("is={}", id.trim_end_matches(") ")));
        pty.type_in("exit\n");
        let _ = pty.rest();
        let _ = running.wait().expect(0);
    };
    let bashrc = format!("PS1='> '\n{}", prompt_snippet("bash"));
    std::fs::write(rc.join("bashrc"), bashrc).unwrap();
    inside(&["bash", "--rcfile", rc.join("bashrc").to_str().unwrap(), "-i"]);
    // Outside of a transaction nothing is added.
    let prompt = |words: &[&str]| shell(&lab, words).env("ZDOTDIR", &rc).run().expect(0).text();
    let script = format!("PS1='> '; {}; echo \"${{PS1@P}}\"", prompt_snippet("bash").trim());
    assert_eq!(prompt(&["bash", "-c", &script]), "> \n");
    require!(skip::has("zsh") && skip::has("fish"), "no zsh or no fish");
    let zshrc = format!("unsetopt prompt_sp\nPS1='> '\n{}", prompt_snippet("zsh"));
    std::fs::write(rc.join(".zshrc"), &zshrc).unwrap();
    inside(&["zsh", "--no-globalrcs", "-i"]);
    let script = format!("{zshrc}\nprint -P \"$PROMPT\"");
    assert_eq!(prompt(&["zsh", "-f", "-c", &script]), "> \n");
    let fish = "function fish_prompt; echo -n '> '; end\n".to_owned() + &prompt_snippet("fish");
    let script = format!("{fish}\nfish_prompt; echo -n $TXOS_ID");
    let words = ["run", "--keep", "-q", "--scope", ".", "fish", "--no-config", "-c", &script];
    let done = shell(&lab, &[&["txos"][..], &words].concat()).run().expect(0);
    let id = done.stderr.lines().next_back().unwrap_or_default();
    assert_eq!(done.text(), format!("({id}) > {id}"));
    let script = format!("{fish}\nfish_prompt");
    assert_eq!(prompt(&["fish", "--no-config", "-c", &script]), "> ");
}

/// It has nothing to say in the middle of a command line, whatever is wrong, and makes nothing.
#[test]
fn completing_is_silent_and_changes_nothing() {
    let lab = Lab::in_memory();
    let store = lab.dir().join("none");
    let quiet = |words: &[&str], status: i32| {
        let done = lab.txos(["complete", "--"].iter().chain(words)).run().expect(status);
        assert_eq!((done.text(), done.stderr), (String::new(), String::new()), "{words:?}");
    };
    quiet(&["--store", &store.to_string_lossy(), "show", ""], 0);
    assert!(!store.exists());
    quiet(&["show", ""], 0);
    assert!(!lab.store().exists());
    let _ = prepare(&lab);
    quiet(&["log", ""], 1);
    quiet(&["show", "nothing"], 0);
    let id = lab.newest();
    std::fs::write(lab.store().join("tx").join(&id).join("meta.json"), "{").unwrap();
    let offered = lab.txos(["complete", "--", "show", ""]).run().expect(0);
    assert!(!offered.text().contains(&id) && offered.text().contains("up grade\t"), "{offered:?}");
    assert_eq!(offered.stderr, "");
    std::fs::write(lab.store().join("format"), "nonsense").unwrap();
    quiet(&["show", ""], 0);
    // In a view there is no store.
    let lab = Lab::in_memory();
    let inside = format!("{} complete -- show ''", binary::txos().display());
    let done = lab.script(&["--commit-on", "always"], &inside).run().expect(1);
    assert_eq!(done.text(), "");
}
