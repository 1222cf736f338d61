//! The runtime in programs of all kinds: C programs linked with the library in both ways, programs
//! it is loaded into, interpreters that load it themselves.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod build;
mod checkpoint;
mod held;
mod joining;
mod joint;
mod left;
mod loading;
mod members;
mod others;
mod processes;
mod scenarios;
