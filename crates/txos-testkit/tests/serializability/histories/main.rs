//! Histories of a tree that everybody works on: transactions of commands and transactions inside
//! programs are strictly serializable with each other and with what outsiders change, also when
//! participants are killed at any instant; and what they send outside and take from there agrees with the files.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod messages;
#[path = "../../library/runtime/program.rs"]
#[expect(dead_code, reason = "what the other tests need")]
mod program;
mod scenes;

/// The participants' program.
const WORKER: &str = env!("CARGO_BIN_EXE_mixed-worker");
