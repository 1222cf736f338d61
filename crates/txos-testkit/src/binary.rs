//! Finds the binary under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The binary `txos`: `$TXOS_BIN`, or a debug build (fault points exist in those only), made once.
///
/// # Panics
/// If it can't be built.
pub fn txos() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("TXOS_BIN") {
        Some(path) => PathBuf::from(path),
        None => build(),
    })
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../txos-cli/Cargo.toml");
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--message-format=json", "--bin", "txos", "--manifest-path"])
        .arg(manifest)
        .output()
        .expect("running cargo");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "txos can't be built:\n{errors}");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("cargo names the executable it built")
}
