//! `docs/syscalls.md`: what each system call does in each front door, and which tests show it. Made from the
//! table that both front doors read, [`txos_calls`].

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use txos_calls::{Class, Does, GROUPS, Group, IPC, KERNEL, NET, OTHER, Row, rows};

const DOES: [(Does, &str); 5] = [
    (Does::Transactional, "transactional"),
    (Does::Harmless, "harmless"),
    (Does::Held, "held"),
    (Does::Passed, "passed"),
    (Does::Refused, "refused"),
];

/// Tests by the names that calls have for them: `FILE::FUNCTION`, the file relative to `tests/command` of this crate.
pub const SHOWN: &[(&str, &[&str])] = &[
    (
        "command",
        &[
            "syscalls/takes_part.rs::a_command_commits_what_each_call_does",
            "syscalls/takes_part.rs::a_command_that_fails_leaves_nothing_of_any_call",
        ],
    ),
    (
        "deferred",
        &[
            "syscalls/deferred.rs::what_changes_the_machine_is_made_after_the_commit_of_a_thread",
            "syscalls/deferred.rs::what_changes_the_machine_is_not_made_if_a_thread_aborts",
        ],
    ),
    (
        "outside",
        &[
            "syscalls/outside.rs::what_reaches_out_of_a_command_is_told_of",
            "syscalls/outside.rs::strictness_stops_a_command_before_each_such_call",
        ],
    ),
    ("held", &["syscalls/outside.rs::signals_of_every_kind_wait_for_the_commit_of_a_thread"]),
    (
        "ipc",
        &[
            "syscalls/ipc.rs::ipc_of_a_thread_is_as_natively_after_the_commit",
            "syscalls/ipc.rs::ipc_of_a_thread_that_aborts_leaves_nothing",
        ],
    ),
    (
        "others",
        &[
            "syscalls/others.rs::what_is_of_others_is_as_natively_after_the_commit",
            "syscalls/others.rs::what_is_of_others_is_left_alone_by_a_thread_that_aborts",
        ],
    ),
    (
        "sent",
        &[
            "syscalls/sent.rs::what_a_thread_sends_on_sockets_is_sent_by_the_commit",
            "syscalls/sent.rs::what_a_thread_that_aborts_has_sent_on_sockets_is_never_sent",
        ],
    ),
    ("refused", &["syscalls/outside.rs::what_a_command_can_not_do_is_refused"]),
    (
        "signals",
        &[
            "syscalls/outside.rs::signals_of_every_kind_wait_for_the_commit",
            "syscalls/outside.rs::signals_of_every_kind_wait_for_the_commit_in_the_librarys_view",
        ],
    ),
    (
        "sockets",
        &[
            "syscalls/sockets.rs::calls_of_sockets_of_a_thread_are_as_natively_after_the_commit",
            "syscalls/sockets.rs::calls_of_sockets_of_a_thread_that_aborts_leave_nothing",
        ],
    ),
    ("special", &["syscalls/special.rs::what_starts_or_ends_threads_and_programs_is_outside"]),
    (
        "sweep",
        &[
            "syscalls/sweep.rs::each_call_without_good_arguments_answers_or_is_told_of",
            "syscalls/sweep.rs::strictness_ends_the_transaction_at_each_call_that_is_not_its_own",
        ],
    ),
    (
        "thread",
        &[
            "syscalls/takes_part.rs::a_thread_commits_what_each_call_does",
            "syscalls/takes_part.rs::a_thread_takes_back_what_each_call_did",
        ],
    ),
];

/// Which of [`SHOWN`] show what a call does, in a command and in a thread.
#[must_use]
pub fn shown(row: &Row) -> Vec<&'static str> {
    let in_command = match row.in_command() {
        _ if row.class == Class::Absent => None,
        Does::Transactional | Does::Harmless => Some("command"),
        Does::Passed => Some("outside"),
        Does::Held => Some("signals"),
        Does::Refused => Some("refused"),
    };
    let in_thread = match (row.class, row.in_thread_live()) {
        (
            Class::Exit
            | Class::ExitGroup
            | Class::Fork
            | Class::Vfork
            | Class::Clone
            | Class::Clone3
            | Class::Exec,
            _,
        ) => "special",
        // Every number is made there.
        (_, Does::Passed | Does::Refused) => "sweep",
        (Class::Held(what) | Class::Restored(what), _) if what == IPC => "ipc",
        (Class::Held(what) | Class::Restored(what), _) if what == NET => "sockets",
        (Class::Held(what) | Class::Restored(what), _) if what == OTHER => "others",
        (_, Does::Held) if row.in_command() == Does::Held => "held",
        (_, Does::Held) => "deferred",
        _ => "thread",
    };
    let sent = row.held_on_sockets.then_some("sent");
    in_command.into_iter().chain([in_thread]).chain(sent).collect()
}

/// Whether nothing is left by a rolled back transaction of a call that does this.
#[must_use]
pub fn takes_part(does: Does) -> bool {
    matches!(does, Does::Transactional | Does::Harmless | Does::Held)
}

/// A file of the documentation.
#[must_use]
pub fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// The page, `docs/syscalls.md`.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(HEAD);
    for group in GROUPS {
        page.push_str(&count(group.name, std::slice::from_ref(group)));
    }
    page.push_str(&count("**All**", GROUPS));
    page.push_str(
        "\n| calls that are | `txos run` | in a thread | with live output |\n|---|--:|--:|--:|\n",
    );
    for (does, name) in DOES {
        let in_command = rows().filter(|row| row.in_command() == does).count();
        let in_thread = rows().filter(|row| row.in_thread() == does).count();
        let live = rows().filter(|row| row.in_thread_live() == does).count();
        let _ = writeln!(page, "| {name} | {in_command} | {in_thread} | {live} |");
    }
    let _ = write!(page, "\nThe calls are those of {KERNEL}.\n");
    for group in GROUPS {
        let _ = write!(
            page,
            "\n## {}\n\n| number | call | `txos run` | in a thread | shown by | |\n\
             |--:|---|---|---|---|---|\n",
            group.name
        );
        for row in group.rows {
            let (number, name, note) = (row.number, row.name, row.note);
            let command = word(row.in_command());
            let thread = word(row.in_thread());
            let shown = shown(row).join(", ");
            let _ =
                writeln!(page, "| {number} | `{name}` | {command} | {thread} | {shown} | {note} |");
        }
    }
    page.push_str("\n## What shows it\n\n| | test |\n|---|---|\n");
    for (name, tests) in SHOWN {
        for test in *tests {
            let _ = writeln!(page, "| {name} | `{test}` |");
        }
    }
    page
}

fn word(does: Does) -> &'static str {
    DOES.iter().find(|(d, _)| *d == does).map_or("", |(_, name)| name)
}

fn count(name: &str, groups: &[Group]) -> String {
    let rows = || groups.iter().flat_map(|group| group.rows);
    let all = rows().count();
    let in_command = rows().filter(|row| takes_part(row.in_command())).count();
    let in_thread = rows().filter(|row| takes_part(row.in_thread())).count();
    let live = rows().filter(|row| takes_part(row.in_thread_live())).count();
    let supported: usize = groups.iter().map(|g| g.supported).sum();
    let known: usize = groups.iter().map(|g| g.known).sum();
    format!(
        "| {name} | {supported} of {known} | {in_command} of {all} | {in_thread} of {all} | {live} of {all} |\n"
    )
}

const HEAD: &str = "\
<!-- Made from the table in crates/txos-calls: cargo run -p txos-testkit --bin syscalls -->
# System calls

What TxOS does with every system call of x86-64, in each front door: in a command under `txos run`, and in a
transaction of a thread (`libtxos`).

- **transactional**: part of the transaction. Its effect is isolated, and is published or discarded with it.
- **harmless**: concerns the process alone, or looks at what no transaction changes. In a thread, an abort closes descriptors that it
  made, and [puts back](runtime.md#settings-of-descriptors) timers and settings; what else it did to the process, such as mappings, stays.
- **held**: happens if and when the transaction commits.
- **passed**: happens at once, and stays. TxOS warns of it; under strictness (`--strict`, `TX_STRICT`) it ends
  the transaction instead.
- **refused**: fails with an errno that programs can handle. Calls that kernels no longer have fail with ENOSYS.

Where it depends on the arguments, the table gives the strongest of these, and a note. It also depends on what is
behind a descriptor: a write to a file is transactional; a write to a device is live, and so is one to a pipe, a terminal or a socket
under `txos run` ([limits.md](limits.md), [runtime.md](runtime.md)). What a thread writes to pipes, terminals and event counters and sends on sockets, by `write` or `send` and its relatives, and its `shutdown`
are [held](runtime.md#output-that-is-held). A program may ask for live output (`TXOS_HOLD_OUTPUT=0`): the last column counts the calls so. If the thread waits for an
answer, what is held is sent before that, with a warning; under strictness it ends the transaction instead. A call that is not in the table goes through under
`txos run`, because the view isolates files whatever call changes them. In a thread's transaction it is refused
with ENOSYS.

The groups are those of the first paper on TxOS (OLS 2010, table 1). The paper counts a call as supported if it is
transactional, harmless or held in the sense of this page. Its counts include the supported calls; credentials
are counted with processes, and its group \"other\" with the rest. The paper's system does not restore memory.
TxOS does if a thread asks for that ([`TX_CHECKPOINT`](runtime.md#memory)); it does not count here. Calls on memory
without a file are harmless here, because no other process sees them; the paper counts them as unsupported.

| group | the paper | `txos run` | in a thread | with live output |
|---|--:|--:|--:|--:|
";
