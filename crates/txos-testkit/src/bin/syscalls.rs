//! Makes `docs/syscalls.md` from the table of system calls.

use txos_testkit::syscalls::{document, page};

fn main() -> std::io::Result<()> {
    std::fs::write(document("syscalls.md"), page())
}
