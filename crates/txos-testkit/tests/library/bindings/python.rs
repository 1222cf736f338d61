//! The Python package: built, installed, and used by its own tests.

use std::path::{Path, PathBuf};

use txos_testkit::{Invocation, Lab, binary, require, skip};

use crate::{in_lab, old_library, root, survives_kills};

/// Builds the wheel; gives its path.
fn wheel(lab: &Lab) -> PathBuf {
    let out = lab.dir().join("wheel");
    let _ = Invocation::new("python3")
        .args(["-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"])
        // Nothing is needed from anywhere.
        .args(["--no-index", "--no-cache-dir", "--wheel-dir"])
        .arg(&out)
        .arg(root().join("bindings/python"))
        .env("TXOS_LIB", binary::library())
        .run()
        .expect(0);
    let mut made = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
    let wheel = made.next().expect("a wheel");
    assert!(made.next().is_none());
    wheel
}

fn install(lab: &Lab, wheel: &Path) -> PathBuf {
    let venv = lab.dir().join("venv");
    let _ = Invocation::new("python3").args(["-m", "venv"]).arg(&venv).run().expect(0);
    let python = venv.join("bin/python");
    let _ = Invocation::new(&python)
        .args(["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index"])
        .arg(wheel)
        .run()
        .expect(0);
    python
}

fn has_what_it_takes() -> bool {
    let probe = "import ensurepip, pip, tomllib, venv";
    skip::has("python3") && Invocation::new("python3").args(["-c", probe]).run().code() == 0
}

#[test]
fn the_wheel_is_installed_and_used() {
    require!(has_what_it_takes(), "there is no Python 3.11 with pip and venv");
    let lab = Lab::new();
    let wheel = wheel(&lab);
    let name = wheel.file_name().unwrap().to_string_lossy().into_owned();
    let (start, end) = ("txos-0.1.0-py3-none-", format!("_{}.whl", std::env::consts::ARCH));
    assert!(name.starts_with(start) && name.ends_with(&end), "{name}");
    let python = install(&lab, &wheel);
    // The tests, but not the package beside them.
    let _ = lab.native(&format!("cp -r '{}' .", root().join("bindings/python/tests").display()));
    let _ = in_lab(&lab, &python)
        .args(["-W", "error::ResourceWarning", "-m", "unittest", "discover", "-t", ".", "tests"])
        .env("TXOS_TEST_DIR", lab.tree())
        .run()
        .expect(0)
        .says("OK");
    let used = "import txos; txos.in_transaction(); print(open('/proc/self/maps').read())";
    let library = lab.dir().join("venv/lib").to_string_lossy().into_owned();
    let maps = in_lab(&lab, &python).args(["-c", used]).run().expect(0).text();
    let mapped = maps.lines().find(|line| line.ends_with("libtxos.so")).expect("a library");
    assert!(mapped.contains(&library), "{mapped}");
    // What its README shows, one block after the other.
    let readme = std::fs::read_to_string(root().join("bindings/python/README.md")).unwrap();
    let blocks = readme.split("```python\n").skip(1).map(|b| b.split("```").next().unwrap());
    let program = format!(
        "import os\nos.mkdir('queue'); open('queue/one', 'w'); open('total', 'w').write('2')\n\
         {}\nadd(5); print(count, open('total').read(), open('proxy.conf').read(), end='')",
        blocks.collect::<String>()
    );
    let shown = in_lab(&lab, &python).args(["-c", &program]).run().expect(0).text();
    assert_eq!(shown, "1 7 backend = localhost:8080\n");
}

/// See [`survives_kills`].
const COUNTS: &str = r#"
import os, sys, threading, txos
from pathlib import Path

where, reports = map(Path, sys.argv[1:])


def add(name, replace):
    """Writes the number in place, or a file that takes the other's place."""
    path = where / name
    to = where / f"{name}.new" if replace else path
    to.write_text(str(int(path.read_text()) + 1))
    to.rename(path)


def work(name):
    report = os.open(reports / name, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    count = 0
    while True:

        @txos.atomic(durable=False, retry=None)
        def both():
            add(name, count % 2 == 0)
            add("total", count % 3 == 0)

        both()
        os.write(report, b".")
        count += 1


for name in ("1", "2"):
    threading.Thread(target=work, args=(name,)).start()
work("0")
"#;

#[test]
fn python_is_killed_at_random() {
    require!(skip::has("python3"), "there is no Python");
    let lab = Lab::new();
    let program = || {
        in_lab(&lab, "python3")
            .args(["-c", COUNTS])
            .env("PYTHONPATH", root().join("bindings/python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("TXOS_LIB", binary::library())
    };
    survives_kills(&lab, skip::long("bindings"), &program);
}

/// Tests of Python's own library pass in a transaction as they do natively, but for those that start programs, which
/// are outside.
#[test]
fn tests_of_the_standard_library_pass_in_transactions() {
    const MODULES: [&str; 8] = [
        "test.test_fileio",
        "test.test_glob",
        "test.test_io",
        "test.test_mailbox",
        "test.test_pathlib",
        "test.test_shutil",
        "test.test_tempfile",
        "test.test_zipfile",
    ];
    require!(skip::long("bindings"), "it takes a minute: ./test --long bindings");
    require!(skip::has("python3"), "there is no Python");
    let there = Invocation::new("python3").args(["-c", "import test.test_pathlib"]).run();
    require!(there.code() == 0, "this Python has no tests of its own");
    let passing = |how: &str| {
        let lab = Lab::new();
        let run = in_lab(&lab, "python3").args(["-m", "tests.foreign", how]).args(MODULES);
        let told = run
            .env("PYTHONPATH", root().join("bindings/python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("TXOS_LIB", binary::library())
            .run()
            .expect(0)
            .text();
        told.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    let (native, inside) = (passing("native"), passing("inside"));
    // They have other programs read or write the files, or count descriptors, of which the library has some.
    let outside = ["CommandLine", "_vs_", "unzip", "shutdown", "many_opens"];
    let lost: Vec<_> = native
        .difference(&inside)
        .filter(|name| !outside.iter().any(|word| name.contains(word)))
        .collect();
    assert!(native.len() > 1000 && lost.is_empty(), "{}: {lost:?}", native.len());
}

#[test]
fn the_checkout_is_used_in_place() {
    require!(skip::has("python3"), "there is no Python");
    let lab = Lab::new();
    let program = "import txos, pathlib\n\
        with txos.transaction(): pathlib.Path('file').write_text('new')\n";
    let _ = in_lab(&lab, "python3")
        .args(["-c", program])
        .env("PYTHONPATH", root().join("bindings/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TXOS_LIB", binary::library())
        .run()
        .expect(0);
    assert_eq!(lab.read("file"), "new");
    let program = "import txos\ntry: txos.stats()\nexcept txos.Unsupported as e: print(e)";
    let told = in_lab(&lab, "python3")
        .args(["-c", program])
        .env("PYTHONPATH", root().join("bindings/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TXOS_LIB", "/nonexistent/libtxos.so")
        .run()
        .expect(0)
        .text();
    assert!(told.contains("/nonexistent/libtxos.so"), "{told}");
    // One that is too old.
    let told = in_lab(&lab, "python3")
        .args(["-c", program])
        .env("PYTHONPATH", root().join("bindings/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TXOS_LIB", old_library(&lab))
        .run()
        .expect(0)
        .text();
    assert!(told.contains("version 0.0.1") && told.contains("older than this package"), "{told}");
}

#[test]
fn examples() {
    require!(skip::has("python3"), "there is no Python");
    let lab = Lab::new();
    let example = |name: &str, argument: &str| {
        in_lab(&lab, "python3")
            .arg(root().join("examples/python").join(name))
            .arg(argument)
            .env("PYTHONPATH", root().join("bindings/python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("TXOS_LIB", binary::library())
            .run()
    };
    crate::c::check_examples(&lab, &|name, argument| example(&format!("{name}.py"), argument), '_');
}

/// See [`crate::producers`].
const PRODUCERS: &str = r#"
import sys, txos
from pathlib import Path

parts, attempts = Path("parts"), 0


def say(text):
    print(text, flush=True)


def produce():
    global attempts
    attempts += 1
    Path("base").read_text()
    line = ""
    if attempts == 1:
        say("begun")
        line = sys.stdin.readline()
    if line != "nothing\n":
        parts.write_text("new")
    if attempts == 1:
        say("made")
        if sys.stdin.readline() == "abort\n":
            raise ValueError("no good")


def consume():
    global attempts
    attempts += 1
    say("begun")
    if not parts.exists():
        say("early")
        txos.again()
    Path("result").write_text(parts.read_text())
    say("used")


try:
    if sys.argv[1] == "produce":
        txos.run(produce, name="parts")
    else:
        txos.run(consume, after="parts")
except ValueError:
    sys.exit(3)
except txos.NotProduced as error:
    say(f"{error} {error.errno}")
    sys.exit(4)
say(f"attempts {attempts}")
"#;

fn in_place(lab: &Lab, program: &str) -> Invocation {
    in_lab(lab, "python3")
        .args(["-c", program])
        .env("PYTHONPATH", root().join("bindings/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TXOS_LIB", binary::library())
}

#[test]
fn python_comes_after() {
    require!(skip::has("python3"), "there is no Python");
    crate::producers::comes_after(&|lab| in_place(lab, PRODUCERS));
}

/// The example of producers and consumers, whichever starts first.
#[test]
fn the_example_of_a_consumer() {
    require!(skip::has("python3"), "there is no Python");
    let lab = Lab::new();
    let example = || {
        in_lab(&lab, "python3")
            .arg(root().join("examples/python/after.py"))
            .env("PYTHONPATH", root().join("bindings/python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("TXOS_LIB", binary::library())
    };
    let consumer = example().start();
    let _ = example().arg("10").run().expect(0);
    let _ = consumer.wait().expect(0);
    assert_eq!(lab.read("sum"), "55\n");
    let text = std::fs::read_to_string(root().join("examples/python/after.py")).unwrap();
    assert!(text.lines().count() <= 40);
}

/// Root becomes a user for good: an abort has it back, and the commit gives it up.
#[test]
fn python_keeps_credentials() {
    require!(skip::has("python3"), "there is no Python");
    const PROGRAM: &str = r#"
import errno, os, threading, txos
from pathlib import Path

mine = Path("open/mine")


def become_user():
    os.setgroups([1000])
    os.setresgid(1000, 1000, 1000)
    os.setresuid(1000, 1000, 1000)
    mine.write_text("x")


def refused(number, **settings):
    try:
        with txos.transaction(**settings):
            pass
    except txos.Failed as error:
        assert error.errno == number and "TX_KEEP_CREDENTIALS" in error.what, error
    else:
        raise AssertionError("it was begun")


try:
    with txos.transaction(keep_credentials=True):
        become_user()
        raise KeyError
except KeyError:
    assert os.getresuid() == os.getresgid() == (0, 0, 0) and not mine.exists()
with txos.transaction():
    try:
        with txos.transaction(keep_credentials=True):
            raise AssertionError("it was begun")
    except ValueError:
        pass
with txos.transaction(keep_credentials=True):
    with txos.transaction(keep_credentials=True):
        become_user()
assert os.getresuid() == os.getresgid() == (1000, 1000, 1000) and mine.stat().st_uid == 1000
try:
    os.setuid(0)
except PermissionError:
    print("given up")
# Last: a thread that has ended is not gone at once.
over = threading.Event()
other = threading.Thread(target=over.wait)
other.start()
refused(errno.EBUSY, keep_credentials=True)
over.set()
other.join()
"#;
    let lab = Lab::new();
    let _ = lab.native("mkdir open; chmod 777 open; chmod 755 .");
    assert_eq!(in_place(&lab, PROGRAM).run().expect(0).text(), "given up\n");
}
