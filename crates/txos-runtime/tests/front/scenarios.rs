//! The scenarios of tests/c/scenarios.c, in a program linked in each way.

use crate::build::{Link, command, scenarios, words};

fn passes(name: &str, link: Link) {
    let output = command(scenarios(link)).arg(name).output().unwrap();
    assert!(output.status.success(), "{name}, {link:?}: {}", words(&output));
}

macro_rules! scenarios {
    ($($name:ident,)*) => {
        mod shared {
            use super::{Link, passes};
            $(#[test] fn $name() { passes(stringify!($name), Link::Shared); })*
        }

        #[test]
        fn with_the_archive() {
            for name in [$(stringify!($name),)*] {
                passes(name, Link::Archive);
            }
        }

        #[test]
        fn all_in_one_file() {
            for name in [$(stringify!($name),)*] {
                passes(name, Link::Static);
            }
        }
    };
}

scenarios! {
    basics,
    refusals,
    no_dispatch,
    nesting,
    restart,
    canceled,
    interposed,
    registers_in_trap,
    signals,
    signal_after_its_handler,
    waits_for_signals,
    nobody_to_connect_to,
    signals_to_others,
    credentials,
    kept_credentials,
    senders,
    ends_of_pipes,
    locked_and_written,
    log_of_another_user,
    interrupted,
    interrupted_otherwise,
    interrupted_in_a_conflict,
    a_child_without_handlers,
    attributes_of_a_directory,
    limits,
    groups,
    signal_between_attempts,
    signal_at_once,
    abort_if,
    managed_open_that_loses,
    managed_and_collected,
    wakes_in_a_lost_one,
    masks,
    dispositions,
    fault,
    fault_with_all_blocked,
    excluded,
    managed,
    links_out_of_a_new_directory,
    managed_and_live,
    managed_and_lost,
    leaving_a_handler,
    foreign,
    alternate_stack,
    threads,
    thread_in_transaction,
    live_links,
    raw_clone,
    exit_of_a_thread,
    exit_of_the_process,
    fork_in_transaction,
    spawn_in_transaction,
    strict,
    exec_in_transaction,
    pause_and_resume,
    dispatch_is_ours,
}
