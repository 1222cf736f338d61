//! A recording block layer, and what a power cut could have left of what it recorded.
//!
//! A file system in an image file is mounted by a loop device, and the image is not the file itself
//! but one that a small FUSE file system serves: the block layer of the kernel does the rest. Every write
//! of the loop device is a `WRITE` there; every cache flush, and every write with force unit access, which
//! the block layer makes a write and a flush of, is an `FSYNC`. They are logged in the order in which
//! they come, with marks that the test puts between them.
//!
//! | module | what |
//! |---|---|
//! | [`fuse`] | the FUSE protocol for one file |
//! | [`log`] | what was written and flushed, in order |
//! | [`recorder`] | the process that serves and records, and the hold of it |
//! | [`state`] | what a crash may leave: which states are tried, and how an image of one is made |
//! | [`volume`] | file systems in images: made, mounted, checked |
//!
//! The server is a process of its own (`block-recorder`), and never touches what is mounted: one that did
//! would wait for itself.

pub mod fuse;
pub mod log;
pub mod recorder;
pub mod state;
pub mod volume;

pub use log::{Event, Log};
pub use recorder::Recorder;
pub use state::{Cut, State};
pub use volume::{Kind, Mounted};
