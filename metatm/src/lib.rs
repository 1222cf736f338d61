//! MetaTM: a RISC-V machine with transactional memory, simulated, on which an unmodified Linux boots.
//!
//! | module | what lives there |
//! |---|---|
//! | [`isa`] | instructions and what they mean |
//! | [`machine`] | harts, memory, caches, firmware, turns |
//! | [`devices`] | what hangs on the bus |
//! | [`symbols`] | names of the kernel's functions |
//! | [`tm`] | transactional memory: conflicts, versions, policies |

pub mod devices;
pub mod isa;
pub mod machine;
pub mod symbols;
pub mod tm;
