//! With the feature `link`: how programs are linked with libtxos.so. Without it nothing is needed.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TXOS_LIB_DIR");
    if std::env::var_os("CARGO_FEATURE_LINK").is_none() {
        return;
    }
    if let Ok(dir) = std::env::var("TXOS_LIB_DIR") {
        println!("cargo::rustc-link-search=native={dir}");
    }
    println!("cargo::rustc-link-lib=dylib=txos");
}
