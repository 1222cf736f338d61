//! A participant in a tree that everybody works on, for the tests: see `txos_testkit::commons::worker`.

fn main() -> std::process::ExitCode {
    txos_testkit::commons::worker::main().into()
}
