//! What surrounds the library for programs: the bindings, the manual pages, the examples, an
//! installation. Each is used as its reader would use it.

// A test that can't go on says why, and that is all there is to do about it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod c;
mod debian;
mod go;
mod installed;
mod java;
mod kinds;
mod manual;
mod node;
mod producers;
mod python;
mod rust;

use std::path::{Path, PathBuf};

use txos_testkit::{Invocation, Lab, random};

/// The top of the checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a checkout")
}

/// A program that keeps to the lab's realm and store, started in its tree.
fn in_lab(lab: &Lab, program: impl AsRef<std::ffi::OsStr>) -> Invocation {
    Invocation::new(program)
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .without_env("TXOS_LIB")
        .dir(lab.tree())
}

/// The first program of a README, as it stands there: the first block of that language.
fn first_program(readme: &str, language: &str) -> String {
    let text = std::fs::read_to_string(root().join(readme)).expect("a README");
    let (_, block) = text.split_once(&format!("\n```{language}\n")).expect("a program");
    let (program, _) = block.split_once("\n```\n").expect("its end");
    program.to_owned() + "\n"
}

/// Starts a program again and again, and kills it at random. Each of its [`KILLED_THREADS`] threads adds one to a
/// file of its own and to `total` in one transaction, and then a byte to its file of reports, outside. After each
/// kill the sum is right, and there is what was reported, and at most one more.
fn survives_kills(lab: &Lab, long: bool, program: &dyn Fn() -> Invocation) {
    let reports = lab.dir().join("reports");
    std::fs::create_dir(&reports).unwrap();
    let names: Vec<_> = (0..KILLED_THREADS).map(|thread| thread.to_string()).collect();
    for name in names.iter().map(String::as_str).chain(["total"]) {
        std::fs::write(lab.path(name), "0").unwrap();
    }
    let value = |name: &str| -> u64 { lab.read(name).parse().unwrap() };
    let reported = |name: &String| std::fs::metadata(reports.join(name)).map_or(0, |f| f.len());
    let mut random = random::Random::new(random::seed());
    for _ in 0..if long { 100 } else { 5 } {
        let before: Vec<_> = names.iter().map(|name| (value(name), reported(name))).collect();
        let wanted = reported(&names[0]) + 1 + random.below(60) as u64;
        let mut running = program().arg(lab.tree()).arg(&reports).start();
        while reported(&names[0]) < wanted && !running.ended() {
            std::thread::sleep(std::time::Duration::from_micros(100 + random.below(900) as u64));
        }
        running.signal(rustix::process::Signal::KILL);
        assert!(running.wait().killed());
        let _ = lab.txos(["recover"]).run().expect(0);
        for (name, (value_before, reported_before)) in names.iter().zip(before) {
            let (done, told) = (value(name) - value_before, reported(name) - reported_before);
            assert!(done == told || done == told + 1, "{name}: {done} done, {told} reported");
        }
        assert_eq!(value("total"), names.iter().map(|name| value(name)).sum::<u64>());
    }
}

/// See [`survives_kills`].
const KILLED_THREADS: usize = 3;

/// A libtxos.so of long ago.
fn old_library(lab: &Lab) -> PathBuf {
    let source = lab.dir().join("old.c");
    let program = "int sys_xbegin(int flags, ...) { return flags; } int sys_xend(void) { return 0; }\n\
        const char *txos_version(void) { return \"0.0.1\"; }\n";
    std::fs::write(&source, program).expect("a file");
    let library = lab.dir().join("libtxos.so");
    let cc = Invocation::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    let _ = cc.run().expect(0);
    library
}
