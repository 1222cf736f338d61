//! What surrounds the library for programs: the bindings, the manual pages, the examples, an
//! installation. Each is used as its reader would use it.

// A test that can't go on says why, and that is all there is to do about it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod c;
mod debian;
mod installed;
mod java;
mod manual;
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
