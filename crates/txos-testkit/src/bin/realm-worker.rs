//! A participant of a realm, for the tests: see `txos_testkit::realm::worker`.

fn main() -> std::process::ExitCode {
    txos_testkit::realm::worker::main().into()
}
