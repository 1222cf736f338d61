//! libFuzzer's loop around one of the targets; `TXOS_FUZZ_TARGET` says which. `TXOS_FUZZ_SEEDS=DIR`
//! writes the inputs to begin with there, instead.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use txos_engine::fuzzing::Target;

fn target() -> &'static Target {
    static TARGET: OnceLock<&'static Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var("TXOS_FUZZ_TARGET").unwrap_or_default();
        let mut all = txos_engine::fuzzing::TARGETS.iter().chain(txos_run::fuzzing::TARGETS);
        let names: Vec<&str> = all.clone().map(|t| t.name).collect();
        let target = all.find(|t| t.name == name);
        let target = target.unwrap_or_else(|| panic!("TXOS_FUZZ_TARGET is none of {names:?}"));
        if let Ok(dir) = std::env::var("TXOS_FUZZ_SEEDS") {
            for (n, seed) in (target.seeds)().into_iter().enumerate() {
                std::fs::write(format!("{dir}/seed-{n}"), seed).expect("writing a seed");
            }
            std::process::exit(0);
        }
        target
    })
}

fuzz_target!(|bytes: &[u8]| (target().run)(bytes));
