//! Serves a disk and records what happens to it: see `txos_testkit::block::recorder`.

fn main() -> std::io::Result<()> {
    txos_testkit::block::recorder::main()
}
