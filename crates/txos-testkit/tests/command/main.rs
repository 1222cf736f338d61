//! The command `txos`: what it publishes, takes back, shows and refuses, with the built binary.
//!
//! | module | what must hold |
//! |---|---|
//! | [`commit`], [`revert`] | what a command changed is published whole, and can be undone, as a whole or in parts |
//! | [`parts`] | a part of a pending transaction is committed by itself, and the rest stays what it is |
//! | [`restore`] | earlier versions of paths come back |
//! | [`reviewing`] | what is shown first at a decision, and what each answer does |
//! | [`looking`] | what a running transaction has changed so far; a page in a real browser |
//! | [`pending`], [`rebase`] | a pending transaction can be gone on with, and its command run again |
//! | [`merging`] | several pending transactions as one, and forks of one |
//! | [`savepoints`] | what each command changed of a pending transaction is undone and redone by itself |
//! | [`naming`] | a word on the command line means the transaction that one expects |
//! | [`completion`] | shells complete the transactions that a command can be applied to |
//! | [`patches`] | the patch of a transaction is one that git applies |
//! | [`reports`] | the document of `--report` agrees with what happened |
//! | [`producers`] | a command that comes after another one sees what that commits, and fails if it fails |
//! | [`retries`] | a command is run again by itself only if no other process can have noticed the first run |
//! | [`view`], [`effects`], [`mounts`] | a command finds everything as without a transaction; what is live is held, reported or refused |
//! | [`limits`] | time, memory, private copies and network are bounded; a hidden path is absent |
//! | [`space`] | what transactions take is shown, bounded and freed |
//! | [`links`] | files of several names, changed by names that then go |
//! | [`shell`] | shell scripts agree with a native run |
//! | [`rootless`], [`kinds_of_root`] | ordinary users; user number 0 that is not the machine's root |
//! | [`real_packages`] | packages installed and built for real |
//! | [`documents`] | what the documents name exists |
//! | [`bad_input`], [`terminals`] | a clear message and exit status 125, never a panic; no control character reaches a terminal |
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod apt;
mod bad_input;
mod commit;
mod completion;
mod documents;
mod effects;
mod inside;
mod kinds_of_root;
mod limits;
mod links;
mod looking;
mod merging;
mod mounts;
mod naming;
mod parts;
mod patches;
mod pending;
mod producers;
mod real_packages;
mod rebase;
mod reports;
mod restore;
mod retries;
mod revert;
mod reviewing;
mod rootless;
mod savepoints;
mod shell;
mod space;
mod terminals;
mod view;
