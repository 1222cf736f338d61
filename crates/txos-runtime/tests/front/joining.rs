//! The scenarios of tests/c/joining.c: processes that run already join a program's own transaction.

scenarios_of! {
    "joining", without ["programs"],
    committed,
    aborted,
    abort_by_other,
    begins_again,
    other_killed,
    ends_inside,
    beginner_killed,
    programs,
    refused,
    many,
    socket_race,
    beside_threads,
    thread_of_who_began,
    numbers,
    taken_number,
    signals_after_abort,
}
