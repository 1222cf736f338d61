//! How calls get here.
