//! The view: the private mount namespace in which a transaction's processes live.
//!
//! | module | what it does |
//! |---|---|
//! | [`mounts`] | reads the mount table |
//! | [`plan`] | decides what is versioned, where its private copies go, what stays live |
//! | [`cover`] | chooses the layers of a view in a user namespace |
//! | [`overlay`] | makes one overlay mount |
//! | [`build`] | puts the view together, in the process that will live in it |
//! | [`hide`] | makes paths absent inside |
//! | [`nesting`] | tells whether this process is in a view already |

pub mod build;
pub mod cover;
pub use txos_engine::mounts;
pub use txos_engine::nesting;
pub mod hide;
pub mod overlay;
pub mod plan;
