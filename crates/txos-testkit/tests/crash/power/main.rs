//! A whole machine, with another kernel than this one's, boots, works, and loses its power: see
//! `txos_testkit::power` and docs/reliability.md.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod boot;
mod cuts;
mod place;
