//! Memory and files in atomic blocks of GCC's transactional memory: one program of many threads, and the example.

use std::path::{Path, PathBuf};

use txos_skip::{self as skip, require};
use txos_testkit::{Invocation, Lab, binary, random};

/// Compiles with libitm; `None`: that can't be had here.
fn compile(lab: &Lab, source: &str) -> Option<PathBuf> {
    compile_at(lab, source, "-O2")
}

/// The same at a level of optimisation.
fn compile_at(lab: &Lab, source: &str, level: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let empty = lab.dir().join("empty.c");
    std::fs::write(&empty, "int main(void) { __transaction_atomic { return 0; } }\n").unwrap();
    let gcc = |source: &Path, to: &str| {
        let dir = binary::library().parent().expect("a directory");
        Invocation::new("gcc")
            .args([
                "-std=gnu11",
                level,
                "-Wall",
                "-Wextra",
                "-Werror",
                "-fgnu-tm",
                "-pthread",
                "-I",
            ])
            .arg(root.join("crates/txos-runtime/include"))
            .arg("-o")
            .arg(lab.dir().join(to))
            .arg(source)
            .arg("-L")
            .arg(dir)
            .arg("-ltxos")
            .arg(format!("-Wl,-rpath,{}", dir.display()))
            .run()
    };
    if !skip::has("gcc") || gcc(&empty, "empty").code() != 0 {
        return None;
    }
    let _ = gcc(&root.join(source), "program").expect(0);
    Some(lab.dir().join("program"))
}

fn run(lab: &Lab, program: &Path) -> Invocation {
    Invocation::new(program)
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .dir(lab.tree())
}

#[test]
fn memory_and_files_in_one_block() {
    let lab = Lab::new();
    let program = compile(&lab, "crates/txos-runtime/tests/c/tm.c");
    require!(program.is_some(), "there is no gcc with libitm");
    let program = program.unwrap();
    let long = skip::long("threads");
    // Else libitm changes its method as threads come and go, and loses what a block that is cancelled has changed.
    let tm = |rounds: u32| {
        let tm = run(&lab, &program).env("ITM_DEFAULT_METHOD", "ml_wt");
        tm.arg(lab.tree()).args(["4", &rounds.to_string()])
    };
    let rounds = if long { 10_000 } else { 300 };
    let done = tm(rounds).run().expect(0);
    assert_eq!(done.text().len(), rounds as usize);
    // Killed at some moment; the next one begins with what the files say, and would say that a half was there.
    let mut random = random::Random::new(random::seed());
    for _ in 0..if long { 100 } else { 4 } {
        let mut running = tm(1_000_000).start();
        let pause = std::time::Duration::from_micros(20_000 + random.below(100_000) as u64);
        let over = std::time::Instant::now() + pause;
        while std::time::Instant::now() < over && !running.ended() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        running.signal(rustix::process::Signal::KILL);
        assert!(running.wait().killed());
        let _ = tm(4).run().expect(0);
    }
}

#[test]
fn the_example_of_memory_and_files() {
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        let lab = Lab::new();
        let program = compile_at(&lab, "examples/c/memory-and-files.c", level);
        require!(program.is_some(), "there is no gcc with libitm");
        let program = program.unwrap();
        let done = run(&lab, &program).arg("number").run().expect(0);
        assert_eq!(done.text(), "done, 1 in memory\n", "{level}");
        assert_eq!(lab.read("number"), "1\n", "{level}");
        // Where the file can't be written, memory is as it was.
        std::fs::create_dir(lab.path("directory")).unwrap();
        let done = run(&lab, &program).arg("directory").run().expect(1);
        assert_eq!(done.text(), "not done, 0 in memory\n", "{level}");
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/c/memory-and-files.c");
    assert!(std::fs::read_to_string(source).unwrap().lines().count() <= 40);
}
