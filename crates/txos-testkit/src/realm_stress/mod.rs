//! The realm under load: workers, each a process of its own, run random transactions over cells in
//! a shared file, and may be killed or stopped at any instant.
//!
//! The cells stand for what a transaction system guards: they are read under `Access::Read`,
//! changed in private, and published by a redo record and plain stores, which whoever meets a dead
//! publisher can finish. Everything is logged, so that [`crate::history`] can tell whether it was
//! strictly serializable.
//!
//! | module | what |
//! |---|---|
//! | [`cells`] | the shared file: lists, registers, boards |
//! | [`record`] | redo records, and what becomes of a dead publisher's |
//! | [`points`] | dying, stopping or meeting the test at a named point |
//! | [`plan`] | what a random transaction is going to do |
//! | [`attempt`] | doing it |
//! | [`worker`] | the worker's command line |
//! | [`steps`] | a worker that does what its arguments say |
//! | [`starve`] | one long transaction against short ones |
//! | [`site`] | the test's side: starting workers, and checking what they left |
//! | [`slots`] | a look at the segment's bytes |

pub mod attempt;
pub mod cells;
pub mod plan;
pub mod points;
pub mod record;
pub mod site;
pub mod slots;
pub mod starve;
pub mod steps;
pub mod worker;

pub use site::Site;
