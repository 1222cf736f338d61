//! The scenarios of tests/c/left.c: what an abort leaves as the transaction has made it, and names and numbers that others see.

scenarios_of! {
    "left", without [],
    alarm_without_a_handler,
    names_of_sockets,
    names_of_the_killed,
    sockets_from_before,
    flags_and_owners,
    mappings,
    locks,
    numbers_of_threads,
}
