//! A participant of a realm, for the tests: see `txos_testkit::realm_stress::worker`.

fn main() -> std::process::ExitCode {
    txos_testkit::realm_stress::worker::main().into()
}
