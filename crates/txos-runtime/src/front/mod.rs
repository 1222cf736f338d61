//! How calls get here.
//!
//! | module | what lives there |
//! |---|---|
//! | [`api`] | the functions of txos.h |
//! | [`session`] | begin, end, abort, restart, pause |
//! | `checkpoint` | memory as it was, for an abort (TX_CHECKPOINT) |
//! | [`entry`] | the assembly at the border |
//! | [`trap`] | system calls that come by Syscall User Dispatch |
//! | [`interpose`] | functions of the C library that come here without a trap |
//! | [`dispatch`] | what is done with a call, wherever it came from |
//! | [`classify`] | which calls are the transaction's, the thread's, the process's |
//! | [`process`] | calls that make or end threads and processes |
//! | `joint` | what decides together with a transaction |
//! | [`members`] | a transaction that several threads are in |
//! | `naps` | the beginning of a sleep, or of a wait at a futex |
//! | [`outside`] | waits for what the realm does not know |
//! | [`processes`] | a transaction that several processes are in |
//! | `given_up` | credentials that are given up by the commit (TX_KEEP_CREDENTIALS) |
//! | `groups` | process groups, which wait for the commit |
//! | `restored` | credentials, limits and priorities, which an abort puts back |
//! | [`signals`] | the signal mask and dispositions as the program sees them |
//! | [`thread`], [`tls`] | what is kept for each thread |
//! | [`in_process`] | `txos run --in-process` |
//! | [`loader`] | programs that no library can be preloaded into |
//! | [`report`] | what went wrong, for C |
//! | [`excluded`] | files that are no part of any transaction |
//! | [`alloc`] | memory that is not the C library's |
//!
//! **The border.** Runtime code runs with the selector at "allow" and the thread's state not
//! "active", so that its own calls, and those that the Rust library makes for it, go straight to
//! the kernel. It runs on a stack of its own, with all signals blocked that anybody else could
//! send, and never calls anything that may call `malloc` where the program may be inside `malloc`.

pub mod alloc;
#[cfg(target_arch = "x86_64")]
pub mod api;
#[cfg(target_arch = "x86_64")]
mod checkpoint;
#[cfg(target_arch = "x86_64")]
pub mod classify;
#[cfg(target_arch = "x86_64")]
pub mod dispatch;
#[cfg(target_arch = "x86_64")]
pub mod entry;
#[cfg(target_arch = "x86_64")]
pub mod excluded;
#[cfg(target_arch = "x86_64")]
mod given_up;
#[cfg(target_arch = "x86_64")]
mod groups;
#[cfg(target_arch = "x86_64")]
pub mod in_process;
#[cfg(target_arch = "x86_64")]
pub mod interpose;
#[cfg(target_arch = "x86_64")]
mod interrupted;
#[cfg(target_arch = "x86_64")]
mod joint;
#[cfg(target_arch = "x86_64")]
pub mod linker;
#[cfg(target_arch = "x86_64")]
pub mod loader;
#[cfg(target_arch = "x86_64")]
pub mod members;
#[cfg(target_arch = "x86_64")]
mod naps;
#[cfg(target_arch = "x86_64")]
pub mod outside;
#[cfg(target_arch = "x86_64")]
pub mod process;
#[cfg(target_arch = "x86_64")]
pub mod processes;
#[cfg(target_arch = "x86_64")]
pub mod report;
mod restored;
#[cfg(target_arch = "x86_64")]
pub mod session;
#[cfg(target_arch = "x86_64")]
pub mod signals;
#[cfg(target_arch = "x86_64")]
pub mod thread;
#[cfg(target_arch = "x86_64")]
pub mod tls;
#[cfg(target_arch = "x86_64")]
pub mod trap;

#[cfg(not(target_arch = "x86_64"))]
pub mod elsewhere;
