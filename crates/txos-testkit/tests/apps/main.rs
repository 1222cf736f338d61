//! Servers whose storage is files in transactions: each is started, loaded, attacked and killed by tests of its
//! own, which lie beside it in `apps/`.

// A test that can't go on says why, and that is all there is to do about it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod wiki;

use std::path::{Path, PathBuf};

/// The top of the checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a checkout")
}
