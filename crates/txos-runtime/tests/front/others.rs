//! The scenarios of tests/c/others.c: file handles, memory and descriptors of other processes.

scenarios_of! {
    "others", without [],
    handles,
    handles_observe,
    handles_refused,
    descriptors,
    memory,
    memory_once,
    memory_of_a_child,
    memory_of_another_program,
    memory_limit,
}
