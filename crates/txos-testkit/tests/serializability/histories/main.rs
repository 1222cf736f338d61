//! Histories of a tree that everybody works on: transactions of commands and transactions inside
//! programs are strictly serializable with each other and with what outsiders change, also when
//! participants are killed at any instant.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod scenes;

/// The participants' program.
const WORKER: &str = env!("CARGO_BIN_EXE_mixed-worker");
