//! The processes of a transaction.
//!
//! ```text
//! monitor    the txos process; stays in the original namespaces and sees the stable tree
//! └─ reaper    lives in the view; parent of everything in it; outlives the command
//!    └─ command    and whatever it starts; orphans come back to the reaper
//! ```
//!
//! # Invariants
//!
//! - The reaper ends after every descendant has ended. When the monitor dies, its end of the channel
//!   closes and the reaper kills them all.
//! - When the reaper dies first, its descendants come to the monitor, which kills them all.
//! - The mount namespace, and with it every mount of the view, vanishes with the last of them. The monitor goes on
//!   as soon as the reaper says that only it is left, and waits for its end before it ends itself
//!   ([`monitor::ViewEnd`]).
//!
//! | module | what lives there |
//! |---|---|
//! | [`channel`] | what monitor and reaper report to each other |
//! | [`monitor`] | the monitor's side: start, wait, stop |
//! | [`reaper`] | the reaper |
//! | [`command`] | the last steps before the command's program runs |
//! | [`sweep`] | deleting what earlier transactions have left, meanwhile |
//! | [`tree`] | finding and ending descendants |
//! | [`output`], [`brief`] | output that is held until the commit, or for a moment |

pub mod brief;
pub mod channel;
pub mod command;
pub mod monitor;
pub mod output;
pub mod reaper;
pub mod sweep;
pub mod tree;
