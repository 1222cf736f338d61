//! What all tests share is the machine: a test whose transaction depends on all of it must not run
//! beside one that changes users or packages.

use std::fs::{File, OpenOptions};

use rustix::fs::{FlockOperation, flock};

/// Held while the machine's own files are read or changed.
#[derive(Debug)]
pub struct Guard(File);

fn open() -> File {
    let path = std::env::temp_dir().join("txos-test.lock");
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .expect("the lock file of the tests")
}

fn take(file: &File, operation: FlockOperation) {
    while let Err(error) = flock(file, operation) {
        assert_eq!(error, rustix::io::Errno::INTR, "locking the lock file of the tests");
    }
}

/// Nobody changes the machine while this is held.
#[must_use]
pub fn stable() -> Guard {
    let file = open();
    take(&file, FlockOperation::LockShared);
    Guard(file)
}

/// Nobody else depends on the machine while this is held.
#[must_use]
pub fn changing() -> Guard {
    let file = open();
    take(&file, FlockOperation::LockExclusive);
    Guard(file)
}

impl Guard {
    /// From here on only as [`stable`].
    pub fn downgrade(&self) {
        take(&self.0, FlockOperation::LockShared);
    }

    /// From here on as [`changing`].
    pub fn upgrade(&self) {
        take(&self.0, FlockOperation::LockExclusive);
    }
}
