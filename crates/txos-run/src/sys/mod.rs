//! The fence: every unsafe call of this crate is in this folder, one family a file.
//!
//! | module | calls |
//! |---|---|
//! | [`fork`] | `fork`, `unshare`, `execvp`, `_exit` |
//! | [`signals`] | dispositions, masks, `signalfd` |
//! | [`seccomp`] | installing a filter, the notification ioctls |
//! | [`memory`] | reading another process's memory |
//! | [`probe`] | asking what the kernel can |
//! | [`area`] | memory shared with the processes of a transaction |
//! | [`creds`] | credentials of one thread, and what is sent with them |

pub mod area;
pub mod creds;
pub mod fork;
pub mod memory;
pub mod probe;
pub mod seccomp;
pub mod signals;
