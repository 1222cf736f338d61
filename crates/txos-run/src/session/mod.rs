//! The processes of a transaction.
//!
//! ```text
//! front    the txos process; stays in the original namespaces and sees the stable tree
//! └─ keeper    lives in the view; parent of everything in it; outlives the command
//!    └─ command    and whatever it starts; orphans come back to the keeper
//! ```
//!
//! # Invariants
//!
//! - The keeper ends after every descendant has ended. When the front dies, its end of the channel
//!   closes and the keeper kills them all.
//! - When the keeper dies first, its descendants come to the front, which kills them all.
//! - The mount namespace, and with it every mount of the view, vanishes with the last of them.
//!
//! | module | what lives there |
//! |---|---|
//! | [`channel`] | what front and keeper tell each other |
//! | [`front`] | the front's side: start, wait, stop |
//! | [`keeper`] | the keeper |
//! | [`command`] | the last steps before the command's program runs |
//! | [`tree`] | finding and ending descendants |
//! | [`output`] | held output |

pub mod channel;
pub mod command;
pub mod front;
pub mod keeper;
pub mod output;
pub mod tree;
