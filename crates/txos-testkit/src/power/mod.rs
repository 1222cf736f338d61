//! A whole machine whose power can be cut: QEMU, in software, with the kernel of the distribution
//! and disks that forget, when the power goes, what they were not told to keep.
//!
//! | module | what |
//! |---|---|
//! | [`kernel`] | Debian's cloud kernel, unpacked from its package, and its modules |
//! | [`image`] | what the machine starts from: an initramfs, and a root disk with the built binaries |
//! | [`disk`] | disks with a volatile write cache, served to QEMU over a socket (NBD) |
//! | [`machine`] | the machine, and what it says on its serial line |
//! | [`work`] | sequences of transactions whose every state is known: what the guest does, and how it is checked |
//!
//! The guest's side is the program `power-guest`, which is the first process of the machine.

pub mod disk;
pub mod image;
pub mod kernel;
pub mod machine;
pub mod work;
