//! Makes `docs/syscalls.md` from `docs/syscalls.toml`.

use txos_testkit::syscalls::{Table, document};

fn main() -> std::io::Result<()> {
    std::fs::write(document("syscalls.md"), Table::read().page())
}
