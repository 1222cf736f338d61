//! The table of system calls, `docs/syscalls.toml`: what each does in each front door, and what shows it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Does {
    /// It is part of the transaction: isolated, and published or gone with it.
    Transactional,
    /// It is of the process alone, or only looks, at what no transaction changes.
    Harmless,
    /// It happens if and when the transaction commits.
    Held,
    /// It happens at once, with a warning; under strictness the transaction ends instead.
    Passed,
    /// It fails, with an errno that programs know how to go on from.
    Refused,
}

impl Does {
    /// All of them, in order.
    pub const ALL: [Does; 5] =
        [Does::Transactional, Does::Harmless, Does::Held, Does::Passed, Does::Refused];

    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Does::Transactional => "transactional",
            Does::Harmless => "harmless",
            Does::Held => "held",
            Does::Passed => "passed",
            Does::Refused => "refused",
        }
    }

    /// Whether nothing of it is left by a transaction that is rolled back.
    #[must_use]
    pub fn takes_part(self) -> bool {
        matches!(self, Does::Transactional | Does::Harmless | Does::Held)
    }
}

/// A system call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Its number on x86-64.
    pub number: i64,
    /// In a command under `txos run`.
    pub run: Does,
    /// In a transaction of a thread, `libtxos`.
    pub inside: Does,
    /// Which of [`Table::shown`] show it.
    pub shown: Vec<String>,
    /// What depends on arguments, and the like.
    #[serde(default)]
    pub note: String,
}

/// A group, as the papers count them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// How many the papers' system supported, wholly or in part.
    pub supported: usize,
    /// How many there were in Linux 2.6.22 on i386.
    pub known: usize,
    /// The calls by their names.
    pub calls: BTreeMap<String, Call>,
}

/// The table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The kernel whose calls these are.
    pub kernel: String,
    /// Tests by the names that calls have for them: `FILE::FUNCTION`, the file relative to the tests of
    /// this crate.
    pub shown: BTreeMap<String, Vec<String>>,
    /// The groups.
    pub group: Vec<Group>,
}

/// A file of the documentation.
#[must_use]
pub fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

impl Table {
    /// Reads `docs/syscalls.toml`.
    ///
    /// # Panics
    /// If it can't be read, or something in it is not as it should be.
    #[must_use]
    pub fn read() -> Table {
        let text = std::fs::read_to_string(document("syscalls.toml")).expect("docs/syscalls.toml");
        toml::from_str(&text).expect("docs/syscalls.toml")
    }

    /// Every call with its name.
    pub fn calls(&self) -> impl Iterator<Item = (&str, &Call)> {
        self.group.iter().flat_map(|g| g.calls.iter().map(|(name, call)| (name.as_str(), call)))
    }

    /// The page, `docs/syscalls.md`.
    #[must_use]
    pub fn page(&self) -> String {
        let mut page = String::from(HEAD);
        let add = |page: &mut String, line: String| {
            page.push_str(&line);
            page.push('\n');
        };
        let rows: Vec<&Group> = self.group.iter().collect();
        for group in &rows {
            add(&mut page, count(&group.name, std::slice::from_ref(*group)));
        }
        add(&mut page, count("**All**", &self.group));
        add(&mut page, String::new());
        add(&mut page, "| calls that are | `txos run` | in a thread |\n|---|--:|--:|".into());
        for does in Does::ALL {
            let of = |door: fn(&Call) -> Does| {
                self.calls().filter(|(_, call)| door(call) == does).count()
            };
            let (run, inside) = (of(|call| call.run), of(|call| call.inside));
            add(&mut page, format!("| {} | {run} | {inside} |", does.name()));
        }
        let _ = write!(page, "\nThe calls are those of {}.\n", self.kernel);
        for group in rows {
            let _ = write!(
                page,
                "\n## {}\n\n| number | call | `txos run` | in a thread | shown by | |\n\
                 |--:|---|---|---|---|---|\n",
                group.name
            );
            let mut calls: Vec<_> = group.calls.iter().collect();
            calls.sort_by_key(|(_, call)| call.number);
            for (name, call) in calls {
                let (run, inside) = (call.run.name(), call.inside.name());
                let (number, shown, note) = (call.number, call.shown.join(", "), &call.note);
                let line = format!("| {number} | `{name}` | {run} | {inside} | {shown} | {note} |");
                add(&mut page, line);
            }
        }
        page.push_str("\n## What shows it\n\n| | test |\n|---|---|\n");
        for (name, tests) in &self.shown {
            for test in tests {
                add(&mut page, format!("| {name} | `{test}` |"));
            }
        }
        page
    }
}

fn count(name: &str, groups: &[Group]) -> String {
    let calls = || groups.iter().flat_map(|g| g.calls.values());
    let all = calls().count();
    let run = calls().filter(|call| call.run.takes_part()).count();
    let inside = calls().filter(|call| call.inside.takes_part()).count();
    let supported: usize = groups.iter().map(|g| g.supported).sum();
    let known: usize = groups.iter().map(|g| g.known).sum();
    format!("| {name} | {supported} of {known} | {run} of {all} | {inside} of {all} |")
}

const HEAD: &str = "\
<!-- Made from syscalls.toml: cargo run -p txos-testkit --bin syscalls -->
# System calls

Every system call of x86-64 in each front door: in a command under `txos run`, and in a transaction of a
thread (`libtxos`).

- **transactional**: part of the transaction: isolated, published with it, or gone with it
- **harmless**: of the process alone, or a look at what no transaction changes
- **held**: happens if and when the transaction commits
- **passed**: happens at once, and stays; a warning names it, and strictness (`--strict`, `TX_STRICT`) ends the
  transaction instead
- **refused**: fails with an errno that programs go on from; calls that kernels have no more fail with ENOSYS
  everywhere

What is behind a descriptor decides as well: a write to a file is transactional, one to a pipe, a socket or a
device is live ([limits.md](limits.md), [runtime.md](runtime.md)). A call that is not in this table is let
through under `txos run`, whose view isolates files whatever call changes them, and refused with ENOSYS in a
thread's transaction.

The groups are those that the first paper on TxOS (OLS 2010, table 1) counts unsupported calls in; its supported
ones are counted with them here, credentials with processes and \"other\" with the rest. It counts as supported
what this table calls transactional, harmless or held. Memory is put back by neither: calls on memory without a
file are harmless here because nobody else sees them; there they count as unsupported.

| group | the paper | `txos run` | in a thread |
|---|--:|--:|--:|
";
