//! How the shared library is linked.

use std::path::PathBuf;
use std::process::Command;

/// Names the dynamic linker, so that the library can be run as a program.
const LINKER: &str = "src/interp.s";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={LINKER}");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    for arg in [
        // Programs linked with it ask for this name, wherever it lay when they were linked.
        "-Wl,-soname,libtxos.so",
        // The kernel and other threads hold addresses of it: dlclose must not take it away.
        "-Wl,-z,nodelete",
        // All relocations are done at the start: a lazy one would be done in a signal handler.
        "-Wl,-z,now",
    ] {
        println!("cargo::rustc-cdylib-link-arg={arg}");
    }
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        be_a_program();
    }
}

/// The library is a program as well: it loads programs into which it can't be preloaded (`front::loader`).
fn be_a_program() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("interp.o");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let done = Command::new(&compiler).args(["-c", LINKER, "-o"]).arg(&out).status();
    assert!(done.is_ok_and(|status| status.success()), "{} -c {LINKER} failed", compiler.display());
    println!("cargo::rustc-cdylib-link-arg={}", out.display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-e,txos_program");
}
