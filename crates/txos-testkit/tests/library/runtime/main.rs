//! The library `libtxos.so`, through its public header only: C programs, compiled on the spot, run
//! in transactions and without, and must not be able to tell the difference.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod after;
mod alone;
mod by_kernel;
mod checkpoint;
mod clients;
mod conflicts;
mod crashes;
mod decided;
mod differ;
mod effects;
mod foreign;
mod hostile;
mod identities;
mod joint;
mod layers;
mod libraries;
mod locked;
mod lone;
mod mapped;
mod members;
mod pipes;
mod place;
mod processes;
mod program;
mod put_back;
mod received;
mod scope;
mod signalling;
mod sweep;
mod threads;
mod tocttou;
mod waiting;
mod way;
mod whole;
