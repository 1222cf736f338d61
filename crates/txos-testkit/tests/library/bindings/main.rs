//! What surrounds the library for programs: the bindings, the manual pages, the examples, an
//! installation. Each is used as its reader would use it.

// A test that can't go on says why, and that is all there is to do about it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod c;
mod debian;
mod go;
mod installed;
mod java;
mod manual;
mod node;
mod python;
mod rust;

use std::path::{Path, PathBuf};

use txos_testkit::{Invocation, Lab};

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
