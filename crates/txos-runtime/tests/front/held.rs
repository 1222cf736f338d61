//! The scenarios of tests/c/held.c: what is sent on sockets is held.

scenarios_of! {
    "held", without [],
    only_sockets,
    asked,
    at_once,
    connecting,
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
