//! C programs: how they are compiled here, and the examples.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use txos_testkit::wait::until;
use txos_testkit::{Done, Invocation, Lab, binary, skip};

use crate::{in_lab, root};

/// Compiles a program against the library under test.
pub fn compile(source: &Path, to: &Path) {
    let dir = binary::library().parent().expect("a directory");
    let _ = Invocation::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("crates/txos-runtime/include"))
        .arg("-o")
        .arg(to)
        .arg(source)
        .arg("-L")
        .arg(dir)
        .arg("-ltxos")
        .arg(format!("-Wl,-rpath,{}", dir.display()))
        .run()
        .expect(0);
}

fn example(lab: &Lab, name: &str) -> PathBuf {
    let program = lab.dir().join(name);
    compile(&root().join(format!("examples/c/{name}.c")), &program);
    program
}

#[test]
fn examples() {
    let lab = Lab::new();
    let names = ["safe-open", "two-files"].map(|name| (name, example(&lab, name)));
    let run = |name: &str, argument: &str| {
        let (_, program) = names.iter().find(|(known, _)| *known == name).expect("an example");
        in_lab(&lab, program).arg(argument).run()
    };
    check_examples(&lab, &run, '-');
}

#[test]
fn what_was_tried_is_in_the_log() {
    let lab = Lab::new();
    let program = example(&lab, "log");
    let _ = lab.native("touch one two three");
    let done = in_lab(&lab, &program).args(["log", "one", "gone", "two"]).run();
    assert_eq!(done.code(), 1, "{done:?}");
    assert_eq!(
        lab.read("log"),
        "removing one\nremoving gone\nnothing is removed, for want of gone\n"
    );
    let _ = lab.native("test -e one -a -e two -a ! -e gone; rm log");
    let _ = in_lab(&lab, &program).args(["log", "one", "two"]).run().expect(0);
    assert_eq!(lab.read("log"), "removing one\nremoving two\n");
    let _ = lab.native("test ! -e one -a ! -e two; rm log three");
    lab.expect_clean();
}

#[test]
fn a_signal_comes_with_what_it_is_about() {
    let lab = Lab::new();
    let program = example(&lab, "reload");
    let server = "trap 'cat app.conf; exit' HUP; echo ready; while :; do sleep .01; done";
    let _ = lab.native("echo old > app.conf");
    let server = in_lab(&lab, "sh").args(["-c", server]).start();
    until("the server is ready", || server.stdout() == "ready\n");
    let pid = server.pid().as_raw_nonzero().to_string();
    let _ = in_lab(&lab, &program).args([pid.as_str(), "new"]).run().expect(0);
    assert_eq!(server.wait().expect(0).text(), "ready\nnew\n");
    let gone = in_lab(&lab, &program).args([pid.as_str(), "newer"]).run().expect(1);
    let _ = gone.says("nothing has changed: No such process");
    assert_eq!(lab.read("app.conf"), "new\n");
}

#[test]
fn a_step_is_made_as_another_user() {
    let lab = Lab::new();
    let program = example(&lab, "as-user");
    let _ = lab.native("mkdir open closed; chmod 777 open; chmod 755 . closed; echo 1 > users");
    let _ = in_lab(&lab, &program).args(["1000", "open"]).run().expect(0);
    assert_eq!(
        lab.native("stat -c %u open/for-1000; cat users").expect(0).text(),
        "1000\n1\n1000\n"
    );
    let refused = in_lab(&lab, &program).args(["1000", "closed"]).run().expect(1);
    assert_eq!(refused.text(), "user 0 again\n");
    assert_eq!(lab.read("users"), "1\n1000\n");
}

/// How many tries an attack has, without a transaction and with one. Of the first it is to win 95 in 100.
fn tries() -> [(&'static str, u32); 2] {
    if skip::long("attack") {
        [("plain", 1000), ("wrapped", 10_000)]
    } else {
        [("plain", 200), ("wrapped", 100)]
    }
}

/// An attack wins nearly always without a transaction, and never with one.
fn is_held_off(what: &str, won: impl Fn(&str, u32) -> u32) {
    let [(plain, natively), (wrapped, within)] = tries();
    let wins = won(plain, natively);
    assert!(wins * 100 >= natively * 95, "{what}: won {wins} of {natively} without a transaction");
    assert_eq!(won(wrapped, within), 0, "{what}");
}

/// How often an attack has won.
fn attacks(lab: &Lab, attack: Invocation, what: &str, how: &str, tries: u32) -> u32 {
    let mut run = attack.args([what, how, &tries.to_string()]);
    if how == "plain" {
        // The victim waits for the attacker between its steps. A busy machine may leave that one out for longer than 10 ms.
        run = run.arg("500");
    }
    // Each takes up to some 20 ms.
    run = run.within(Duration::from_secs(100 + u64::from(tries) / 10));
    if what == "privilege" {
        // Its transactions begin as the user.
        let place = |name: &str| lab.dir().join("users").join(name);
        run = run.env("TXOS_REALM", place("realm")).env("TXOS_STORE", place("store"));
    }
    let text = run.run().expect(0).text();
    println!("{text}");
    let won = text.split_once("won ").and_then(|(_, rest)| rest.split_once(' '));
    won.and_then(|(won, _)| won.parse().ok()).expect("how often it has won")
}

#[test]
fn handlers_that_are_transactions_are_not_attacked() {
    let lab = Lab::new();
    let program = example(&lab, "handler-attack");
    let users = lab.dir().join("users");
    for place in ["", "realm", "store"].map(|name| users.join(name)) {
        std::fs::create_dir(&place).unwrap();
        std::os::unix::fs::chown(&place, Some(1000), Some(1000)).unwrap();
        std::fs::set_permissions(&place, Permissions::from_mode(0o700)).unwrap();
    }
    let _ = lab.native("chmod 777 .; chmod a+x ..");
    for what in ["double-free", "privilege"] {
        is_held_off(what, |how, tries| attacks(&lab, in_lab(&lab, &program), what, how, tries));
    }
}

#[test]
fn names_that_root_trusts_are_not_attacked() {
    let lab = Lab::new();
    let program = example(&lab, "name-attack");
    let _ = lab.native("chmod a+x . ..");
    for what in ["temporary", "socket"] {
        is_held_off(what, |how, tries| {
            let dir = lab.path(format!("{what}-{how}"));
            std::fs::create_dir(&dir).unwrap();
            attacks(&lab, in_lab(&lab, &program).dir(&dir), what, how, tries)
        });
    }
}

/// Whatever step a program dies at, an account is in all three files or in none.
#[test]
fn an_account_is_there_or_not() {
    let lab = Lab::new();
    let program = example(&lab, "accounts");
    let _ = lab.native("mkdir plain wrapped");
    for step in 1..=4 {
        for how in ["plain", "wrapped"] {
            let name = format!("dies-at-{step}");
            let done = in_lab(&lab, &program).args([how, how, &name, &step.to_string()]).run();
            assert!(done.killed(), "{done:?}");
        }
    }
    assert!(lab.read("plain/passwd").contains("dies-at-2"));
    assert!(!lab.read("plain/shadow").contains("dies-at-2"));
    assert_eq!(std::fs::read_dir(lab.path("wrapped")).unwrap().count(), 0);
    let _ = in_lab(&lab, &program).args(["wrapped", "wrapped", "lives"]).run().expect(0);
    let files = ["passwd", "shadow", "group"].map(|file| format!("wrapped/{file}"));
    for file in &files {
        assert!(lab.read(file).starts_with("lives:"));
    }
    // And at any step of the commit. The next one to come sees to what it has left.
    let (mut there, mut missing) = (0, 0);
    for step in 1.. {
        let name = format!("commits-{step}");
        let add = in_lab(&lab, &program).args(["wrapped", "wrapped", &name]);
        let done = add.env("TXOS_FAULT", format!("kill@{step}")).run();
        let _ = lab.txos(["recover"]).run().expect(0);
        let found = files.each_ref().map(|file| lab.read(file).contains(&format!("{name}:")));
        assert!(found == [true; 3] || found == [false; 3], "killed at step {step}: {found:?}");
        if !done.killed() {
            assert!(done.code() == 0 && found[0], "{done:?}");
            break;
        }
        *if found[0] { &mut there } else { &mut missing } += 1;
    }
    println!("killed at a step of the commit: {there} accounts are there, {missing} are not");
    assert!(there > 0 && missing > 2);
    lab.expect_clean();
}

#[test]
fn numbers_are_taken_once() {
    let lab = Lab::new();
    let program = example(&lab, "checkpoint");
    let take = "for i in 1 2 3; do \"$0\" next 40 > taken.$i & all=\"$all $!\"; done; \
                for one in $all; do wait $one || exit; done";
    let _ = in_lab(&lab, "sh").args(["-c", take]).arg(&program).run().expect(0);
    let all = [1, 2, 3].map(|i| lab.read(&format!("taken.{i}"))).concat();
    let mut all: Vec<u32> = all.lines().map(|line| line.parse().expect("a number")).collect();
    all.sort_unstable();
    assert_eq!(all, (0..120).collect::<Vec<_>>());
    assert_eq!(lab.read("next"), "120\n");
}

/// Each binding has flags of its own, and Go's module structures as well: it can't reach the header. They are the header's.
#[test]
fn the_bindings_agree_with_the_header() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect(path);
    let header = read("crates/txos-runtime/include/txos.h");
    let bare = |name: &str| name.replace('_', "").to_lowercase();
    let number = |text: &str| {
        let digits = text.trim().strip_prefix("0x")?;
        let digits = digits.split(|c: char| !c.is_ascii_hexdigit()).next()?;
        u32::from_str_radix(digits, 16).ok()
    };
    let mut flags = std::collections::HashMap::new();
    for line in header.lines().filter_map(|line| line.strip_prefix("#define TX_")) {
        let (name, value) = line.split_once(' ').expect("a value");
        flags.insert(bare(name), number(value).expect("a number"));
    }
    for path in [
        "bindings/go/options.go",
        "bindings/python/txos/_library.py",
        "bindings/rust/txos/src/transaction.rs",
        "bindings/java/src/main/java/txos/Native.java",
        "bindings/node/index.js",
    ] {
        let mut found = Vec::new();
        for line in read(path).lines() {
            let Some((before, value)) = line.split_once(" = 0x") else { continue };
            let name = before.trim_end().trim_end_matches(": i32").trim_end();
            let name = bare(name.rsplit([' ', '\t']).next().expect("a name"));
            let name = name.strip_prefix("flag").unwrap_or(&name).to_owned();
            assert_eq!(flags.get(&name), number(&format!("0x{value}")).as_ref(), "{path}: {line}");
            found.push(name);
        }
        found.sort();
        // The others always have threads, and a process that has them keeps no credentials.
        let kept: &[&str] = match path.contains("/python/") || path.contains("/rust/") {
            true => &["keepcredentials"],
            false => &[],
        };
        let all = ["managed", "nonblock", "ordered", "orderreset", "retry", "strict"];
        assert_eq!(found, [&["after", "durable"], kept, &all].concat(), "{path}");
    }
    let lab = Lab::new();
    let fields = [
        ("abort", &["size", "reason", "error", "pid", "what", "path"][..]),
        ("stats", &["size", "version"]),
    ];
    let mut program =
        String::from("#include \"txos.h\"\n#include \"shim.h\"\n#include <stddef.h>\n");
    for (name, fields) in fields {
        program += &format!(
            "_Static_assert(sizeof(struct txos_{name}) == sizeof(struct txos_go_{name}), \"\");\n"
        );
        for field in fields {
            program += &format!(
                "_Static_assert(offsetof(struct txos_{name}, {field}) == offsetof(struct txos_go_{name}, {field}), \
                 \"\");\n"
            );
        }
    }
    program += "_Static_assert(offsetof(struct txos_stats, begun) == offsetof(struct txos_go_stats, counters), \"\");\n";
    std::fs::write(lab.path("same.c"), program).expect("a lab");
    let _ = in_lab(&lab, "cc")
        .args(["-std=gnu11", "-c", "same.c", "-o", "same.o", "-I"])
        .arg(root().join("crates/txos-runtime/include"))
        .arg("-I")
        .arg(root().join("bindings/go"))
        .run()
        .expect(0);
}

#[test]
fn only_what_was_done_is_said() {
    // What it ends with is the last line of standard error.
    const PIPE: &str = r#"{ "$0" "$@"; echo "ended with $?" >&2; } | cat"#;
    let lab = Lab::new();
    let program = example(&lab, "held-output");
    let run = |held: &str, names: &[&str]| {
        let shell = in_lab(&lab, "sh").args(["-c", PIPE]).arg(&program);
        shell.args(names.iter().copied()).env("TXOS_HOLD_OUTPUT", held).run().expect(0)
    };
    let done = run("", &["one", "two"]);
    assert_eq!((done.text(), &*done.stderr), ("made one\nmade two\n".into(), "ended with 0\n"));
    let failed = run("", &["three", "one"]);
    assert_eq!((failed.text(), failed.stderr.contains("ended with 1")), (String::new(), true));
    let _ = lab.native("test ! -e three");
    // The pipe has it at once if the program asks for that.
    let live = run("0", &["three", "one"]);
    assert_eq!((live.text(), live.stderr.contains("ended with 1")), ("made three\n".into(), true));
    let _ = lab.native("test ! -e three");
}

/// A filter files its lines away, all of them or none, and once, also if it begins again.
#[test]
fn what_comes_by_a_pipe_is_filed_once() {
    let lab = Lab::new();
    let program = example(&lab, "filter");
    let _ = lab.native("mkdir there; seq 2000 > numbers");
    let run = |input: &str| {
        in_lab(&lab, "sh").args(["-c", &format!("{input} | \"$0\" there")]).arg(&program).run()
    };
    // Each attempt has read some lines when a file of its own is made by somebody else.
    let rival = "{ sed -n 1,900p numbers; : > there/950; sed -n '901,$p' numbers; }";
    let failed = run(rival).expect(1).says("there/950");
    assert_eq!(failed.text(), "");
    let _ = lab.native("test \"$(ls there)\" = 950; rm there/950");
    let done =
        run("{ sed -n 1,900p numbers; : > there/other; rm there/other; sed -n '901,$p' numbers; }")
            .expect(0);
    assert_eq!(done.text(), "2000 filed\n");
    let _ = lab.native("cd there; for i in $(seq 2000); do cat $i; done | cmp - ../numbers; test $(ls | wc -l) = 2000");
}

/// Both examples, in whichever language. `join`: what is between the words of their names.
pub fn check_examples(lab: &Lab, run: &dyn Fn(&str, &str) -> Done, join: char) {
    let (safe_open, two_files) = (format!("safe{join}open"), format!("two{join}files"));
    let _ = lab.native("echo mine > own; echo theirs > other; chown 12345 other; ln -s own link");
    assert_eq!(run(&safe_open, "own").expect(0).text(), "mine\n");
    for refused in ["other", "link"] {
        let _ = run(&safe_open, refused).expect(1).says("refused");
    }
    for (port, before) in [("80", "\n"), ("8080", "80\n")] {
        let _ = run(&two_files, port).expect(0);
        assert_eq!(lab.read("app.conf"), format!("port = {port}\n"));
        assert_eq!(lab.read("proxy.conf"), format!("backend = localhost:{port}\n"));
        assert_eq!(lab.read("port.old"), before);
    }
    let _ = lab.native("rm proxy.conf; mkdir proxy.conf");
    let _ = run(&two_files, "90").expect(1).says("nothing has changed");
    assert_eq!(
        (lab.read("app.conf"), lab.read("port.old")),
        ("port = 8080\n".into(), "80\n".into())
    );
    let _ = lab.native("rm -r own other link app.conf proxy.conf port.old; test -z \"$(ls -A)\"");
}
