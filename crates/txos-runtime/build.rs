//! How the shared library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
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
}
