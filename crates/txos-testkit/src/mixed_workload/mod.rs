//! A tree that everybody works on at once: transactions of commands, transactions inside programs,
//! and processes that know nothing of either. All of them carry out random plans made of the same
//! steps, with the same few system calls, and log what they found; [`crate::history`] says whether
//! that could have come from running them one at a time.
//!
//! | module | what |
//! |---|---|
//! | [`keys`] | what is in the tree, and how it is called |
//! | [`plan`] | random plans |
//! | [`files`] | carrying out a step |
//! | [`door`] | transactions inside a program |
//! | [`worker`] | the participants' program |
//! | [`sets`] | what the checker is told of directories |
//! | [`scene`] | the test's side: starts them, kills some, checks what they logged |
//!
//! # What is in the tree
//!
//! | in the tree | to the checker | changed by |
//! |---|---|---|
//! | `register-N`: a value, as often as the value says, so that a mix is noticed | a register | rewriting it, or putting a new file in its place |
//! | `list-N`: a value a line | a list | `O_APPEND`, writing at the end, or putting a longer file in its place |
//! | `cells`: values at fixed places, each with its complement | registers | writing in place |
//! | `set-N/`: a name for each value | a register for each name | making, removing, moving names |
//! | `token-N/`: exactly one name | a register | renaming |
//!
//! Each value is written once, in one transaction, so whoever finds it tells whose it is.

pub mod door;
pub mod files;
pub mod keys;
pub mod plan;
pub mod scene;
pub mod sets;
#[cfg(test)]
mod tests;
pub mod worker;
