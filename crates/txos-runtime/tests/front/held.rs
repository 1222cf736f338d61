//! The scenarios of tests/c/held.c: what is sent on sockets is held (`TXOS_HOLD_OUTPUT=sockets`).

scenarios_of! {
    "held", without [],
    only_sockets,
    descriptors,
    waits,
    no_room,
    room,
    strict,
    named,
    gone,
    killed,
    limit,
    members,
}
