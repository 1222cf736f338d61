//! A participant in a tree that everybody works on, for the tests: see `txos_testkit::mixed_workload::worker`.

fn main() -> std::process::ExitCode {
    txos_testkit::mixed_workload::worker::main().into()
}
