//! The examples of sockets, mutexes, limits, participants, ordered transactions, and producers and consumers.

use std::os::unix::net::UnixDatagram;

use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, binary};

use crate::c::compile;
use crate::{in_lab, root};

fn example(lab: &Lab, name: &str) -> std::path::PathBuf {
    let program = lab.dir().join(name);
    compile(&root().join(format!("examples/c/{name}.c")), &program);
    program
}

#[test]
fn a_message_comes_with_what_it_tells_of() {
    let lab = Lab::new();
    let program = example(&lab, "tell");
    let place = lab.dir().join("socket");
    let socket = UnixDatagram::bind(&place).unwrap();
    socket.set_nonblocking(true).unwrap();
    let tell = |line: &str| in_lab(&lab, &program).arg(&place).arg(line).run();
    let _ = tell("first").expect(0);
    // It is sent, and then taken back: nobody hears of it.
    let _ = tell("").expect(1).says("nobody was told");
    let _ = tell("second").expect(0);
    let mut heard = Vec::new();
    let mut message = [0; 64];
    while let Ok(n) = socket.recv(&mut message) {
        heard.push(String::from_utf8_lossy(&message[..n]).into_owned());
    }
    assert_eq!(heard, ["first", "second"]);
    assert_eq!(lab.read("news"), "first\nsecond\n");
}

#[test]
fn a_message_that_could_not_be_filed_is_still_there() {
    let lab = Lab::new();
    let program = example(&lab, "take");
    let place = lab.dir().join("socket");
    let taking = in_lab(&lab, &program).arg(&place).arg("3").start();
    let socket = UnixDatagram::unbound().unwrap();
    for message in ["first", "first of another", "second"] {
        until("it listens", || socket.send_to(message.as_bytes(), &place).is_ok());
    }
    let done = taking.wait().expect(0);
    assert_eq!(done.text(), "not filed, and still there: first of another\n");
    assert!(lab.path("first").exists() && lab.path("second").exists());
}

#[test]
fn limits_come_with_the_file() {
    let lab = Lab::new();
    let program = example(&lab, "secret");
    let kept = |secret: &str| {
        let script = format!(
            "ulimit -S -c 100; umask 022; printf '{secret}' | '{}' file",
            program.display()
        );
        in_lab(&lab, std::path::Path::new("/bin/sh")).arg("-c").arg(script).run()
    };
    let done = kept("").expect(1);
    assert_eq!(done.text(), "nothing has changed: mask 022, core files yes\n");
    assert!(!lab.path("file").exists());
    let done = kept("hush\\n").expect(0);
    assert_eq!(done.text(), "kept: mask 077, core files no\n");
    assert_eq!(lab.read("file"), "hush\n");
}

#[test]
fn memory_under_a_mutex_agrees_with_a_file() {
    let lab = Lab::new();
    let program = example(&lab, "tally");
    std::fs::write(lab.path("total"), "0\n").unwrap();
    let both = [10, 15].map(|rounds| in_lab(&lab, &program).arg(rounds.to_string()).start());
    let here = both.map(|run| run.wait().expect(0).text().trim().parse::<u64>().unwrap());
    assert_eq!(here, [40, 60]);
    assert_eq!(lab.read("total"), "100\n");
}

#[test]
fn memory_changes_with_its_file() {
    let lab = Lab::new();
    let program = example(&lab, "enlist");
    let done = in_lab(&lab, &program).args(["30", "80", "50", "21"]).run().expect(0);
    assert_eq!(done.text(), "not enough for 80\nnot enough for 21\n20 left\n");
    assert_eq!(lab.read("left"), "20\n");
}

#[test]
fn words_stand_in_their_order() {
    let lab = Lab::new();
    let program = example(&lab, "ordered");
    for _ in 0..5 {
        let words = ["one", "two", "three", "four", "five", "six"];
        let _ = in_lab(&lab, &program).args(words).run().expect(0);
        assert_eq!(lab.read("words"), words.map(|word| format!("{word}\n")).concat());
        std::fs::remove_file(lab.path("words")).unwrap();
    }
}

#[test]
fn a_consumer_serializes_after_its_producer() {
    let lab = Lab::new();
    let script = root().join("examples/after.sh");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", binary::txos().parent().expect("a directory").display());
    let run = |number: &str| -> txos_testkit::Done {
        let script: Invocation = in_lab(&lab, &script);
        script.env("PATH", &path).arg(number).run()
    };
    let _ = run("10").expect(0);
    assert_eq!(lab.read("sum"), "55\n");
    assert_eq!(lab.read("numbers").lines().count(), 10);
    for name in ["sum", "numbers"] {
        std::fs::remove_file(lab.path(name)).unwrap();
    }
    let failed = run("many");
    assert_ne!(failed.code(), 0, "{failed:?}");
    assert!(!lab.path("sum").exists() && !lab.path("numbers").exists(), "{failed:?}");
}

/// The same of programs, whichever starts first.
#[test]
fn a_consuming_program_serializes_after_its_producer() {
    let lab = Lab::new();
    let program = example(&lab, "after");
    let consumer = in_lab(&lab, &program).start();
    let _ = in_lab(&lab, &program).arg("10").run().expect(0);
    let _ = consumer.wait().expect(0);
    assert_eq!(lab.read("sum"), "55\n");
    assert_eq!(lab.read("numbers").lines().count(), 10);
}

#[test]
fn they_are_short() {
    let names = [
        "after.sh",
        "c/after.c",
        "c/as-user.c",
        "c/checkpoint.c",
        "c/enlist.c",
        "c/filter.c",
        "c/held-output.c",
        "c/memory-and-files.c",
        "c/ordered.c",
        "c/reload.c",
        "c/secret.c",
        "c/take.c",
        "c/tally.c",
        "c/tell.c",
    ];
    for name in names {
        let text = std::fs::read_to_string(root().join("examples").join(name)).unwrap();
        assert!(text.lines().count() <= 40, "{name}");
    }
}
