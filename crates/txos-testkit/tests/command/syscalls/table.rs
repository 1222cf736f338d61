//! The table of system calls: that nothing is missing in it, that the page is made from it, and that the tests
//! make each call that they show.

use std::collections::BTreeMap;
use std::path::Path;

use txos_calls::{Does, LAST, rows};
use txos_testkit::require;
use txos_testkit::syscalls::{SHOWN, document, page, shown};

use crate::{INSIDE, RUN, cases};

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
    // That every number up to the last one is there once is a test of the table's own.
    let ours: BTreeMap<&str, i64> = rows().map(|row| (row.name, row.number)).collect();
    for (name, number) in headers() {
        // Newer headers may name calls of newer kernels.
        if number <= LAST {
            assert_eq!(ours.get(name.as_str()), Some(&number), "{name}");
        }
    }
}

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
    let found = std::fs::read_to_string(document("syscalls.md")).unwrap();
    assert!(
        found == page(),
        "docs/syscalls.md is not of the table: cargo run -p txos-testkit --bin syscalls"
    );
}

#[test]
fn every_named_test_exists() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command");
    for (name, list) in SHOWN {
        assert!(!list.is_empty(), "{name} is shown by nothing");
        for test in *list {
            let (file, function) = test.split_once("::").expect("FILE::FUNCTION");
            let text = std::fs::read_to_string(tests.join(file)).expect(file);
            assert!(text.contains(&format!("#[test]\nfn {function}()")), "{test}");
        }
        assert!(rows().any(|row| shown(row).contains(name)), "{name} shows nothing");
    }
    for row in rows() {
        let named = |by: &&str| SHOWN.iter().any(|(name, _)| name == by);
        assert!(!shown(row).is_empty() && shown(row).iter().all(named), "{}", row.name);
    }
}

/// That the tests which show a call really make it: the programs' own lists.
#[test]
fn what_shows_a_call_makes_it() {
    let (calls, outside, special) = (cases("calls"), cases("outside"), cases("special"));
    let (deferred, ipc, sockets) = (cases("deferred"), cases("ipc"), cases("sockets"));
    let (others, sent) = (cases("others"), cases("sent"));
    let has = |list: &BTreeMap<String, u32>, name: &str, places: u32| {
        list.get(name).is_some_and(|p| p & places == places)
    };
    for row in rows() {
        let name = row.name;
        for by in shown(row) {
            let made = match by {
                "command" => has(&calls, name, RUN),
                "thread" => has(&calls, name, INSIDE),
                "outside" => outside.get(name) == Some(&RUN),
                "signals" | "held" => outside.get(name) == Some(&INSIDE),
                "refused" => has(&outside, name, RUN | INSIDE),
                "special" => special.contains_key(name),
                "deferred" => deferred.contains_key(name),
                "ipc" => ipc.contains_key(name),
                "sockets" => sockets.contains_key(name),
                "others" => others.contains_key(name),
                "sent" => sent.contains_key(name),
                // Every number is made there.
                _ => by == "sweep",
            };
            assert!(made, "{name} is not made by {by}");
        }
        assert_eq!(special.contains_key(name), shown(row).contains(&"special"), "{name}");
        let held = outside.get(name) == Some(&INSIDE);
        assert_eq!(held, row.in_command() == Does::Held, "{name}");
        assert_eq!(deferred.contains_key(name), shown(row).contains(&"deferred"), "{name}");
        assert_eq!(ipc.contains_key(name), shown(row).contains(&"ipc"), "{name}");
        assert_eq!(sockets.contains_key(name), shown(row).contains(&"sockets"), "{name}");
        assert_eq!(sent.contains_key(name), shown(row).contains(&"sent"), "{name}");
        assert_eq!(others.contains_key(name), shown(row).contains(&"others"), "{name}");
    }
    let lists = [&calls, &outside, &special, &deferred, &ipc, &sockets, &others, &sent];
    for name in lists.into_iter().flat_map(|list| list.keys()) {
        let known = WAYS.contains(&name.as_str()) || rows().any(|row| row.name == name);
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
    "ipc_of_its_own",
    "shmctl_that_removes",
    "semctl_that_sets",
    "semop_that_takes",
    "semop_that_locks",
    "semop_that_waits",
    "recvmsg_with_descriptors",
    "read_of_sockets",
    "wait_after_recv",
];
