//! Servers whose storage is files in transactions: each is started, loaded, attacked and killed by tests of its
//! own, which lie beside it in `apps/`.

// A test that can't go on says why, and that is all there is to do about it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod graph;
mod ldap;
mod mail;
mod power;
mod wiki;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use txos_testkit::{Invocation, Lab, binary};

/// The top of the checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a checkout")
}

/// What `apps/NAME/build` makes, afresh, unless a variable says where that is already; an error says why it could not.
fn built_for(name: &str, variable: &str) -> Result<PathBuf, String> {
    if let Some(there) = std::env::var_os(variable) {
        return Ok(PathBuf::from(there));
    }
    let to = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&to);
    build(name, &to).map(|()| to)
}

/// Has `apps/NAME/build` make what it makes; an error says why it could not. It may take longer than a test waits for a command.
fn build(name: &str, to: &Path) -> Result<(), String> {
    let done = Command::new(root().join("apps").join(name).join("build"))
        .arg(to)
        .env("TXOS_LIB", binary::library())
        .stdin(Stdio::null())
        .output()
        .map_err(|e| e.to_string())?;
    if done.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }
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
        let path = [self.app.clone(), root().join("apps"), root().join("bindings/python")];
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
