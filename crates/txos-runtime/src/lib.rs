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
//! | [`call`] | a system call of the program's |
//! | [`user`] | the program's memory, which is copied in and out |
//! | [`reach`] | whether the program's memory is there |
//! | [`raw`] | system calls as the kernel takes them |
//!
//! `front` knows registers, signals and threads and nothing of files; `tx` is plain Rust over
//! [`call`], and answers a system call like the kernel does: a value, or a negative errno.
//!
//! Nothing safe makes a system call with an address, or a reference to the program's memory: that takes a
//! [`call::Call`], a [`user::UserPtr`] or a [`user::UserSlice`], and to make one of these is unsafe.

pub mod call;
pub mod front;
pub mod raw;
pub mod reach;
pub mod tx;
pub mod user;
