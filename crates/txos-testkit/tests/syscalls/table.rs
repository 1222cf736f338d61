//! `docs/syscalls.toml`: that nothing is missing in it, and that it says what the code does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use txos_run::supervisor::table::{Handler, rows};
use txos_testkit::require;
use txos_testkit::syscalls::{Does, Table, document};

use crate::{INSIDE, RUN, cases};

/// The library's table: the very file.
#[path = "../../../txos-runtime/src/table.rs"]
#[expect(dead_code, reason = "what the library needs")]
pub mod library;
use library::{CALLS, Class};

/// The numbers of the machine's kernel headers.
fn headers() -> BTreeMap<String, i64> {
    let text = ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok())
        .expect("asm/unistd_64.h of the kernel's headers");
    let lines = text.lines().filter_map(|line| line.strip_prefix("#define __NR_"));
    let pairs = lines.filter_map(|line| line.split_once(' '));
    pairs
        .filter_map(|(name, number)| Some((name.to_owned(), number.trim().parse().ok()?)))
        .collect()
}

#[test]
fn every_call_of_the_headers_is_there() {
    let table = Table::read();
    let ours: BTreeMap<String, i64> =
        table.calls().map(|(name, call)| (name.to_owned(), call.number)).collect();
    assert_eq!(ours.len(), table.calls().count(), "a name is there twice");
    let numbers: BTreeSet<i64> = ours.values().copied().collect();
    assert_eq!(numbers.len(), ours.len(), "a number is there twice");
    for (name, number) in headers() {
        // Newer headers may name calls of newer kernels.
        if number <= LAST {
            assert_eq!(ours.get(&name), Some(&number), "{name}");
        }
    }
    // Numbers in between were left out by the kernel.
    let gap = 337..424;
    let all: BTreeSet<i64> = (0..=LAST).filter(|n| !gap.contains(n)).collect();
    assert_eq!(numbers, all);
}

/// The last call of the kernel that the table is of.
const LAST: i64 = 469;

#[test]
fn the_kernel_has_no_newer_call_than_the_table() {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let numbers: Vec<u32> =
        release.split(['.', '-']).map_while(|n| n.parse().ok()).take(2).collect();
    // A newer one may; what is not known is refused.
    require!(numbers <= vec![6, 18], "Linux {release} is newer than the table");
    // SAFETY: calls that there are not.
    #[expect(unsafe_code, reason = "the system call that there is not")]
    let answers = (LAST + 1..512).map(|n| unsafe { libc::syscall(n, -1, -1, -1, -1, -1, -1) });
    for answer in answers {
        assert_eq!(answer, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS));
    }
}

#[test]
fn the_page_is_what_the_table_gives() {
    let page = std::fs::read_to_string(document("syscalls.md")).unwrap();
    assert!(
        page == Table::read().page(),
        "docs/syscalls.md is not of docs/syscalls.toml: cargo run -p txos-testkit --bin syscalls"
    );
}

#[test]
fn every_named_test_exists() {
    let table = Table::read();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for (name, list) in &table.shown {
        assert!(!list.is_empty(), "{name} is shown by nothing");
        for test in list {
            let (file, function) = test.split_once("::").expect("FILE::FUNCTION");
            let text = std::fs::read_to_string(tests.join(file)).expect(file);
            assert!(text.contains(&format!("#[test]\nfn {function}()")), "{test}");
        }
        assert!(table.calls().any(|(_, call)| call.shown.contains(name)), "{name} shows nothing");
    }
    for (name, call) in table.calls() {
        assert!(!call.shown.is_empty(), "nothing shows {name}");
        for by in &call.shown {
            assert!(table.shown.contains_key(by), "{name}: {by}");
        }
    }
}

/// That the tests which show a call really make it: the programs' own lists.
#[test]
fn what_shows_a_call_makes_it() {
    let table = Table::read();
    let (calls, outside, special) = (cases("calls"), cases("outside"), cases("special"));
    let has = |list: &BTreeMap<String, u32>, name: &str, places: u32| {
        list.get(name).is_some_and(|p| p & places == places)
    };
    for (name, call) in table.calls() {
        let absent = CALLS.iter().any(|row| row.0 == call.number && row.2 == Class::Absent);
        let mut by = Vec::new();
        match call.run {
            _ if absent => {}
            Does::Transactional | Does::Harmless => by.push(("command", has(&calls, name, RUN))),
            Does::Passed => by.push(("outside", outside.get(name) == Some(&RUN))),
            Does::Held => by.push(("signals", outside.get(name) == Some(&INSIDE))),
            Does::Refused => by.push(("refused", has(&outside, name, RUN | INSIDE))),
        }
        match call.inside {
            _ if special.contains_key(name) => by.push(("special", true)),
            // Of the sweep: every number is made there.
            Does::Passed | Does::Refused => by.push(("sweep", true)),
            _ => by.push(("thread", has(&calls, name, INSIDE))),
        }
        let names: Vec<&str> = by.iter().map(|(by, _)| *by).collect();
        assert_eq!(call.shown, names, "{name}");
        assert!(by.iter().all(|(_, made)| *made), "{name}: {by:?}");
    }
    for name in calls.keys().chain(outside.keys()).chain(special.keys()) {
        let known = WAYS.contains(&name.as_str()) || table.calls().any(|(call, _)| call == name);
        assert!(known, "{name} is no call");
    }
}

/// Cases that are of a call with certain arguments, or made in another way.
const WAYS: &[&str] = &[
    "kill_32",
    "chattr_by_ioctl",
    "chattr_by_ioctl_of_xfs",
    "ioctl_with_flags",
    "fcntl_with_lease",
    "sendmsg_with_descriptors",
];

#[test]
fn the_library_does_with_each_call_what_the_table_says() {
    let table = Table::read();
    let says: BTreeMap<i64, (&str, Does)> =
        table.calls().map(|(name, call)| (call.number, (name, call.inside))).collect();
    let does = |class: Class| match class {
        Class::Transactional
        | Class::Map
        | Class::Mask
        | Class::Action
        | Class::Exit
        | Class::ExitGroup => Does::Transactional,
        Class::Harmless
        | Class::Descriptor
        | Class::Wait
        | Class::AlternateStack
        | Class::SignalReturn
        | Class::Prctl => Does::Harmless,
        Class::Passed(_)
        | Class::Suspend
        | Class::Fork
        | Class::Vfork
        | Class::Clone
        | Class::Clone3
        | Class::Exec => Does::Passed,
        Class::Refused(..) | Class::Absent | Class::Unknown => Does::Refused,
    };
    let library: BTreeMap<i64, (&str, Does)> =
        CALLS.iter().map(|&(number, name, class)| (number, (name, does(class)))).collect();
    assert_eq!(CALLS.len(), library.len(), "a number is there twice");
    for (number, says) in &says {
        assert_eq!(library.get(number), Some(says), "{number}");
    }
    assert_eq!(library.len(), says.len());
}

#[test]
fn the_supervisor_does_with_each_call_what_the_table_says() {
    let table = Table::read();
    let handlers: BTreeMap<i64, Handler> = rows().map(|row| (row.number, row.handler)).collect();
    for (name, call) in table.calls() {
        let absent = CALLS.iter().any(|row| row.0 == call.number && row.2 == Class::Absent);
        let right: &[Does] = match handlers.get(&call.number) {
            // Of some requests.
            Some(Handler::Refuse(_)) if name == "ioctl" => &[Does::Transactional],
            // What it does to the process is the process's; it is stopped to be known.
            Some(Handler::NewIds(_)) => &[Does::Harmless],
            // The kernel has none.
            None if absent => &[Does::Refused],
            // Not stopped: what it does is in the view, or of the process.
            None => &[Does::Transactional, Does::Harmless],
            Some(
                Handler::Open(..)
                | Handler::Look(..)
                | Handler::Change(..)
                | Handler::Make(..)
                | Handler::Unlink(..)
                | Handler::Rename(..)
                | Handler::Link(..)
                | Handler::Symlink(..)
                | Handler::Execute(..)
                | Handler::List(..)
                | Handler::Chroot(..),
            ) => &[Does::Transactional, Does::Harmless],
            // Of the view: what is recorded starts elsewhere from then on.
            Some(Handler::NewRoot) => &[Does::Harmless],
            Some(
                Handler::Connect
                | Handler::Bind
                | Handler::SendTo
                | Handler::SendMessage
                | Handler::SendMessages
                | Handler::Trace
                | Handler::WriteMemory
                | Handler::OfProcess(..)
                | Handler::SysvGet(..)
                | Handler::SysvControl(..)
                | Handler::EnterNamespaces
                | Handler::Mount
                | Handler::AdjustClock(_)
                | Handler::Beyond(..),
            ) => &[Does::Passed],
            Some(
                Handler::Kill
                | Handler::KillThread
                | Handler::KillThreadOf
                | Handler::Queue
                | Handler::QueueThreadOf
                | Handler::KillDescriptor,
            ) => &[Does::Held],
            Some(Handler::Refuse(_)) => &[Does::Refused],
        };
        assert!(right.contains(&call.run), "{name}: {:?}", call.run);
        let looked_at = !matches!(handlers.get(&call.number), None | Some(Handler::NewRoot));
        if call.run == Does::Transactional && !looked_at {
            // What it works on was found by a call that was looked at, or is the process's.
            assert!(call.inside != Does::Harmless || name == "mmap", "{name}");
        }
    }
    let known: BTreeSet<i64> = table.calls().map(|(_, call)| call.number).collect();
    assert!(handlers.keys().all(|number| known.contains(number)));
}
