//! The fence: every unsafe call of this crate is in this folder, one family a file.
//!
//! | module | calls |
//! |---|---|
//! | [`fork`] | `fork`, `unshare`, `execvp`, `_exit` |
//! | [`signals`] | dispositions, masks, `signalfd` |
//! | [`seccomp`] | installing a filter, the notification ioctls |
//! | [`memory`] | reading another process's memory |
//! | [`probe`] | asking what the kernel can |
//! | [`creds`] | credentials of one thread |

pub mod creds;
pub mod fork;
pub mod memory;
pub mod probe;
pub mod seccomp;
pub mod signals;
