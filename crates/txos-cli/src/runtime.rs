//! Where the library for programs is, `libtxos.so`, `libtxos.a` and `txos.h`, and the command's other programs.
//!
//! | | installed as PREFIX/bin/txos | in a checkout |
//! |---|---|---|
//! | libraries | PREFIX/lib/txos, PREFIX/lib | beside the command |
//! | programs | PREFIX/lib/txos | beside the command |
//! | header | PREFIX/include | crates/txos-runtime/include |

use std::path::{Path, PathBuf};

use crate::exit::Failure;

/// The shared library.
pub const SHARED: &str = txos_engine::program::LIBRARY;
/// The static one.
pub const STATIC: &str = "libtxos.a";
const HEADER: &str = "txos.h";
/// Names the shared library, for tests and odd installations.
const OVERRIDE: &str = "TXOS_LIB";

/// Where the command itself lies.
fn beside() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()?;
    Ok(own.parent().map(Path::to_path_buf).unwrap_or_default())
}

/// The shared library.
pub fn shared() -> Result<PathBuf, Failure> {
    match std::env::var_os(OVERRIDE) {
        Some(path) => Ok(std::path::absolute(path)?),
        None => library(SHARED),
    }
}

/// A library by its name.
pub fn library(name: &str) -> Result<PathBuf, Failure> {
    let beside = beside()?;
    let places = [beside.clone(), beside.join("../lib/txos"), beside.join("../lib")];
    find(name, &places, "txos-runtime")
}

/// A program that belongs to the command, by its name.
pub fn program(name: &str) -> Result<PathBuf, Failure> {
    let beside = beside()?;
    find(name, &[beside.clone(), beside.join("../lib/txos")], name)
}

/// The directory of the header.
pub fn include() -> Result<PathBuf, Failure> {
    let beside = beside()?;
    // The target directory of a checkout may be anywhere, the header's place is known from the build.
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../txos-runtime/include");
    let header = find(HEADER, &[beside.join("../include"), checkout], "txos-runtime")?;
    Ok(header.parent().map(Path::to_path_buf).unwrap_or_default())
}

fn find(name: &str, places: &[PathBuf], package: &str) -> Result<PathBuf, Failure> {
    places.iter().find_map(|dir| dir.join(name).canonicalize().ok()).ok_or_else(|| {
        let dirs: Vec<String> = places.iter().map(|dir| dir.display().to_string()).collect();
        Failure::new(format!(
            "{name} is not installed: it is in none of {}. In a checkout, \
             `cargo build -p {package}` makes it",
            dirs.join(", ")
        ))
    })
}
