//! Finds the binary and the library under test.

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

/// The library `libtxos.so` under test: beside `$TXOS_BIN`, or a debug build, made once.
///
/// # Panics
/// If it can't be built.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let beside =
            std::env::var_os("TXOS_BIN").map(|b| Path::new(&b).with_file_name(LIBRARY_NAME));
        beside.filter(|path| path.exists()).unwrap_or_else(|| {
            let made = cargo_build("txos-runtime", &["--lib"]);
            let files = made.iter().filter_map(|message| message["filenames"].as_array()).flatten();
            files
                .filter_map(|file| file.as_str().map(PathBuf::from))
                .find(|file| file.file_name().is_some_and(|name| name == LIBRARY_NAME))
                .expect("cargo names the library it built")
        })
    })
}

/// The server for agents, which `txos mcp` becomes: beside the command, made if need be.
///
/// # Panics
/// If it can't be built.
pub fn server() -> &'static Path {
    static SERVER: OnceLock<PathBuf> = OnceLock::new();
    SERVER.get_or_init(|| {
        let beside = txos().with_file_name(SERVER_NAME);
        if !beside.exists() {
            cargo_build(SERVER_NAME, &["--bin", SERVER_NAME]);
        }
        beside
    })
}

const SERVER_NAME: &str = "txos-mcp";
const LIBRARY_NAME: &str = "libtxos.so";

fn build() -> PathBuf {
    cargo_build("txos-cli", &["--bin", "txos"])
        .iter()
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("cargo names the executable it built")
}

/// Builds something of the workspace; gives what cargo says of it.
fn cargo_build(package: &str, what: &[&str]) -> Vec<serde_json::Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../{package}/Cargo.toml"));
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--message-format=json", "--manifest-path"])
        .arg(manifest)
        .args(what)
        .output()
        .expect("running cargo");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{package} can't be built:\n{errors}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
