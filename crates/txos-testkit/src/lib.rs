//! What the end-to-end tests share: they drive the built binary `txos`, as root, on real file
//! systems, and leave the machine as it was.
//!
//! | module | what |
//! |---|---|
//! | [`binary`] | finds or builds the binary |
//! | [`lab`] | one test's place: mount namespace, tree, store; all gone at its end |
//! | [`process`] | running things, with deadlines, and never outliving the test |
//! | [`rendezvous`] | stopping a command at a known point |
//! | [`tree`] | what a tree looks like, to the last attribute |
//! | [`image`] | file systems in image files |
//! | [`block`] | a recording block layer, and what a crash may leave of it |
//! | [`user`] | an ordinary user, freshly made |
//! | [`pty`] | a terminal |
//! | [`fault`] | the same scenario with a fault at step 1, 2, 3… |
//! | [`fault_matrix`] | every fault at every step of an operation, or a sample of them |
//! | [`mixed_workload`] | a tree that everybody works on: commands, programs, outsiders |
//! | [`trees`] | random operations on random trees, and cutting down what fails |
//! | [`history`] | whether transactions were strictly serializable |
//! | [`realm_stress`] | workers that meet in a realm, and may be killed at any instant |
//! | [`deb`] | small Debian packages |
//! | [`debian_root`] | a small Debian to install them in |
//! | [`power`] | a whole machine with another kernel, whose power can be cut |
//! | [`syscalls`] | the page on system calls, `docs/syscalls.md` |
//! | [`skip`], [`system`], [`wait`], [`random`] | skipping, what is shared, deadlines, seeds |

// A test that can't go on says why, and that is all there is to do about it.
#![allow(clippy::expect_used)]

pub mod binary;
pub mod block;
pub mod deb;
pub mod debian_root;
pub mod fault;
pub mod fault_matrix;
pub mod history;
pub mod image;
pub mod lab;
pub mod mixed_workload;
pub mod power;
pub mod process;
pub mod pty;
pub mod random;
pub mod realm_stress;
pub mod rendezvous;
pub use txos_skip as skip;
pub use txos_skip::{require, require_some};
pub mod syscalls;
pub mod system;
pub mod tree;
pub mod trees;
pub mod user;
pub mod wait;

pub use debian_root::DebianRoot;
pub use lab::Lab;
pub use process::{Done, Invocation, Running};
pub use rendezvous::Rendezvous;
pub use tree::Tree;
