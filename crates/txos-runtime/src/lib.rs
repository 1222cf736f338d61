//! Transactions inside a program: `libtxos.so`.
//!
//! A thread that calls `sys_xbegin` has every system call of its own redirected here until
//! `sys_xend`, and gets its answers from shadow objects over the stable ones. At the end what it
//! changed is handed to the engine, which publishes all of it or nothing.
//!
//! | module | what lives there |
//! |---|---|
//! | [`front`] | how calls get here: Syscall User Dispatch, interposed symbols, begin and end, restart |
//! | [`tx`] | one transaction: shadow file system, descriptors, what each system call does, commit |
//! | [`table`] | every system call, and what it is in a transaction |
//! | [`raw`] | system calls as the kernel takes them |
//! | [`reach`] | whether the program's memory is there |
//!
//! `front` knows registers, signals and threads and nothing of files; `tx` is plain Rust over
//! [`raw`], and answers a system call like the kernel does: a value, or a negative errno.

pub mod front;
pub mod raw;
pub mod reach;
pub mod table;
pub mod tx;
