//! The realm with real processes: whatever they do to each other, and at whatever instant they are
//! killed or stopped, transactions are strictly serializable, and nothing stays behind.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cli;
mod deaths;
mod fairness;
mod mix;
mod order;
mod outsider;
mod run;
mod slots;
mod stops;

/// The worker's program.
const WORKER: &str = env!("CARGO_BIN_EXE_realm-worker");
