//! Servers whose storage is files in transactions: each is started, loaded, attacked and killed by tests of its
//! own, which lie beside it in `apps/`.

// A test that can't go on says why, and that is all there is to do about it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod graph;
mod ldap;
mod mail;
mod wiki;

use std::path::{Path, PathBuf};

use txos_testkit::{Invocation, Lab, binary};

/// The top of the checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a checkout")
}

/// Tests in Python of one of the servers: `apps/NAME/tests`.
struct Python<'a> {
    lab: &'a Lab,
    app: PathBuf,
    more: Vec<(String, String)>,
}

impl<'a> Python<'a> {
    fn new(lab: &'a Lab, name: &str) -> Self {
        Python { lab, app: root().join("apps").join(name), more: Vec::new() }
    }

    /// An environment variable.
    fn env(mut self, name: &str, value: &str) -> Self {
        self.more.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs some; none of them may be left out, and nothing may be left of them.
    fn run(&self, tests: &str) {
        let path = [self.app.clone(), root().join("bindings/python")];
        let mut run = Invocation::new("python3")
            .args(["-W", "error::ResourceWarning", "-m", "unittest", "-v", tests])
            .dir(&self.app)
            .env("PYTHONPATH", std::env::join_paths(path).unwrap())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("TXOS_LIB", binary::library())
            .env("TXOS_STORE", self.lab.store())
            .env("TXOS_REALM", self.lab.realm())
            .env("TXOS_TEST_DIR", self.lab.tree());
        for (name, value) in &self.more {
            run = run.env(name, value);
        }
        let done = run.run().expect(0).says("\nOK\n");
        let left = std::fs::read_dir(self.lab.tree()).unwrap().count();
        assert_eq!(left, 0, "{done:?}");
    }
}
