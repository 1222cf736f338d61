//! Random operations
