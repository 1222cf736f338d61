//! A place where C programs meet: a lab, and programs started in its tree.

use std::path::PathBuf;

use txos_testkit::{Invocation, Lab};

use crate::program::{Linked, program};

/// A program of these tests, in a lab's tree.
pub fn start(lab: &Lab, name: &'static str, linked: Linked) -> Invocation {
    Invocation::new(program(name, linked))
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .dir(lab.tree())
}

/// The names in the lab's tree that are not expected.
pub fn strays(lab: &Lab, expected: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(lab.tree()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| !expected(&path.file_name().unwrap().to_string_lossy())).collect()
}
