//! The Rust crate, which is a workspace of its own: format, lints, tests.

use std::path::Path;

use txos_testkit::{Invocation, Lab, binary};

use crate::{in_lab, root};

#[test]
fn format_lints_and_tests() {
    let lab = Lab::new();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rust-binding");
    let run = |cargo: Invocation, args: &[&str]| {
        let _ = cargo
            .args(args)
            .dir(root().join("bindings/rust/txos"))
            .env("CARGO_TARGET_DIR", &target)
            .env("TXOS_LIB", binary::library())
            .env("TXOS_TEST_DIR", lab.tree())
            .run()
            .expect(0);
    };
    let cargo = || in_lab(&lab, &cargo);
    run(cargo(), &["fmt", "--check"]);
    let lints = ["--all-targets", "--locked", "--offline", "--quiet", "--", "-D", "warnings"];
    run(cargo(), &[&["clippy"], &lints[..]].concat());
    run(cargo(), &["test", "--locked", "--offline", "--quiet"]);
    // Linked instead of loaded: calls come another way.
    let dir = binary::library().parent().expect("a directory");
    let linked = cargo().env("TXOS_LIB_DIR", dir).env("LD_LIBRARY_PATH", dir);
    run(linked, &["test", "--locked", "--offline", "--quiet", "--features", "link"]);
}
