//! Builds the shared library from the same source as this crate, but without Rust's library: with it,
//! every program of a command would load a megabyte, and libgcc with it. Cargo can't build a crate that
//! aborts on panic beside others that unwind, so the compiler is called here.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(txos_preload)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    // Links to the sources of txos-calls: in a published package they are files.
    println!("cargo::rerun-if-changed=src/calls/lib.rs");
    println!("cargo::rerun-if-changed=src/calls/rows.rs");
    let var = |name: &str| env::var(name).unwrap_or_default();
    let library = Path::new(&var("OUT_DIR")).join("libtxosrecorder.so");
    if var("CARGO_CFG_TARGET_ARCH") != "x86_64" || var("CARGO_CFG_TARGET_OS") != "linux" {
        // An empty library: nothing is preloaded.
        assert!(std::fs::write(&library, []).is_ok(), "writing {}", library.display());
        return;
    }
    let mut rustc = Command::new(var("RUSTC"));
    rustc.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=txosrecorder"]);
    rustc.args(["--target", &var("TARGET"), "--cfg=txos_preload", "--cap-lints=allow"]);
    for option in ["panic=abort", "opt-level=3", "codegen-units=1", "strip=symbols"] {
        rustc.args(["-C", option]);
    }
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.args(["-C", &format!("linker={linker}")]);
    }
    for option in [
        "-nostdlib",
        "-Wl,-soname,libtxosrecorder.so",
        // Other code has the addresses of its functions: dlclose must not take it away.
        "-Wl,-z,nodelete",
        "-Wl,-z,now",
        "-Wl,--gc-sections",
    ] {
        rustc.args(["-C", &format!("link-arg={option}")]);
    }
    rustc.arg("-o").arg(&library).arg("src/lib.rs");
    let done = rustc.status();
    assert!(done.is_ok_and(|status| status.success()), "the recorder can't be built: {rustc:?}");
}
