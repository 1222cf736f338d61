//! The benchmarks, each with the limit it has to keep.

mod build;
mod calls;
mod checkpoint;
mod deep;
mod durable;
mod flush;
mod lfs;
mod packages;
mod papers;
mod peaks;
mod policies;
mod publish;
mod realm;
mod renames;
mod scale;
mod small;
mod walk;

use std::fs;
use std::io;
use std::path::Path;

pub use self::calls::multiple;
use crate::bench::Bench;
use crate::figure::Section;
use crate::measure::Row;

/// One benchmark.
pub struct Case {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// Measures it.
    pub run: Run,
}

/// How a benchmark shows what it found.
#[derive(Clone, Copy)]
pub enum Run {
    /// As rows of the common table.
    Rows(fn(&Bench) -> Result<Vec<Row>, String>),
    /// As figures of a section of its own.
    Figures(fn(&Bench) -> Result<Section, String>),
    /// As a section of its own, in Markdown.
    Section(fn(&Bench) -> Result<String, String>),
}

/// All of them, in the order of the table: those that delete many files come last, because on ext4
/// every new file is dearer for some minutes after that.
pub const CASES: &[Case] = &[
    Case {
        name: "realm",
        about: "operations of a realm, in nanoseconds",
        run: Run::Section(realm::realm),
    },
    Case {
        name: "policies",
        about: "contention policies: who begins again, who gets on",
        run: Run::Section(policies::policies),
    },
    Case {
        name: "durable",
        about: "small durable commits of 1 to 8 threads, against SQLite and LMDB",
        run: Run::Section(durable::durable),
    },
    Case {
        name: "calls",
        about: "system calls of a program, with the library and in transactions",
        run: Run::Figures(calls::calls),
    },
    Case {
        name: "checkpoint",
        about: "memory that an abort puts back: begin, first writes, commit, abort",
        run: Run::Figures(checkpoint::checkpoint),
    },
    Case {
        name: "deep",
        about: "check a file and write to it, 3 and 300 directories deep",
        run: Run::Figures(deep::deep),
    },
    Case {
        name: "rename-pair",
        about: "link and unlink as one transaction, against rename",
        run: Run::Figures(renames::renames),
    },
    Case {
        name: "processes",
        about: "processes that a command begins, by every subject",
        run: Run::Figures(papers::processes),
    },
    Case {
        name: "programs",
        about: "a package, a build and its installation, by every subject",
        run: Run::Figures(papers::programs),
    },
    Case {
        name: "flush",
        about: "programs that flush each file",
        run: Run::Figures(flush::flushes),
    },
    Case {
        name: "files",
        about: "small files and a large one, by every subject",
        run: Run::Figures(papers::files),
    },
    Case {
        name: "postmark",
        about: "PostMark, by every subject",
        run: Run::Figures(papers::postmark),
    },
    Case { name: "startup", about: "a command that does nothing", run: Run::Rows(small::startup) },
    Case {
        name: "rivals",
        about: "a command that does nothing, beside bubblewrap and try",
        run: Run::Figures(small::rivals),
    },
    Case {
        name: "dpkg",
        about: "installing a package of 500 files",
        run: Run::Rows(packages::dpkg),
    },
    Case { name: "make", about: "building a C project of 50 files", run: Run::Rows(build::make) },
    Case { name: "install", about: "make install of it", run: Run::Rows(build::install) },
    Case {
        name: "apt",
        about: "apt-get install of a small package",
        run: Run::Rows(packages::apt),
    },
    Case { name: "walk", about: "find and du of 10,000 files", run: Run::Rows(walk::walk) },
    Case {
        name: "memory",
        about: "memory for 100,000 recorded reads",
        run: Run::Rows(publish::memory),
    },
    Case {
        name: "peaks",
        about: "the most memory that work takes, in a transaction and without",
        run: Run::Figures(peaks::peaks),
    },
    Case {
        name: "scale",
        about: "how commit, abort, revert and validation grow",
        run: Run::Figures(scale::scale),
    },
    Case {
        name: "lfs",
        about: "10,000 small files and a large one, by a program's transactions",
        run: Run::Section(lfs::lfs),
    },
    Case {
        name: "append",
        about: "a byte appended to 10,000 files",
        run: Run::Rows(small::append),
    },
    Case {
        name: "rollback",
        about: "10 and 10,000 files rolled back",
        run: Run::Rows(small::rollback),
    },
    Case {
        name: "andrew",
        about: "the Reimplemented Andrew Benchmark, by every subject",
        run: Run::Figures(papers::andrew),
    },
    Case { name: "publish", about: "publishing 100,000 files", run: Run::Rows(publish::publish) },
];

/// Adds the path to an error.
fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, String> {
    result.map_err(|e| format!("{}: {e}", path.display()))
}

/// Removes a tree, if it is there.
fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        result => at(path, result),
    }
}

/// `10,000`.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    #[test]
    fn thousands_are_grouped() {
        assert_eq!(
            [7, 999, 1000, 1234567].map(super::thousands),
            ["7", "999", "1,000", "1,234,567"]
        );
    }
}
