//! How the shared library is linked.

use std::ffi::OsString;
use std::fs;
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
    have_own_unwinder();
}

fn compiler() -> OsString {
    std::env::var_os("CC").unwrap_or_else(|| "cc".into())
}

fn out() -> PathBuf {
    PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default())
}

/// The library has the unwinder in it, instead of needing `libgcc_s.so.1`, where the compiler has it as an archive. The processes
/// of a transaction load the library with every program that they run, and would load that as well.
fn have_own_unwinder() {
    println!("cargo::rerun-if-env-changed=CC");
    const ARCHIVE: &str = "libgcc_eh.a";
    let asked = Command::new(compiler()).arg(format!("-print-file-name={ARCHIVE}")).output();
    let found = asked.is_ok_and(|answer| {
        answer.stdout.trim_ascii() != ARCHIVE.as_bytes() && answer.status.success()
    });
    if !found {
        return;
    }
    // `rustc` asks the linker for `-lgcc_s`: the first that it finds says what that is.
    let dir = out().join("unwinder");
    let written = fs::create_dir_all(&dir)
        .and_then(|()| fs::write(dir.join("libgcc_s.so"), "GROUP(-lgcc_eh -lgcc -lc)\n"));
    assert!(written.is_ok(), "writing to {} failed", dir.display());
    println!("cargo::rustc-cdylib-link-arg=-L{}", dir.display());
}

/// The library is a program as well: it loads programs into which it can't be preloaded (`front::loader`).
fn be_a_program() {
    let (out, compiler) = (out().join("interp.o"), compiler());
    let done = Command::new(&compiler).args(["-c", LINKER, "-o"]).arg(&out).status();
    assert!(done.is_ok_and(|status| status.success()), "{} -c {LINKER} failed", compiler.display());
    println!("cargo::rustc-cdylib-link-arg={}", out.display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-e,txos_program");
}
