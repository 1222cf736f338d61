//! The C programs of these tests. They lie in the target directory, like all that is built.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use txos_testkit::{Invocation, binary};

/// Whether a program knows the library.
#[allow(dead_code)] // not every test that has this module has all
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linked {
    /// It is a program like any other.
    Natively,
    /// Its calls go through the library, in a transaction or not.
    WithLibrary,
    /// It is a shared object that is loaded into programs, with the library.
    IntoOthers,
    /// It is a program into which none can be loaded.
    Statically,
}

/// A program of one file, `NAME.c`, or of all in the directory `NAME`; compiled once.
///
/// # Panics
/// If the compiler complains.
pub fn program(name: &'static str, linked: Linked) -> PathBuf {
    static BUILT: OnceLock<Mutex<HashMap<(&str, Linked), PathBuf>>> = OnceLock::new();
    let mut built = BUILT.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner());
    let sources =
        if name == "interpret" { "tests/command/trees/c" } else { "tests/library/runtime/c" };
    built.entry((name, linked)).or_insert_with(|| compile(sources, name, linked)).clone()
}

/// Compiles one whose source is in a directory of this crate.
///
/// # Panics
/// If the compiler complains.
pub fn compile(sources: &str, name: &str, linked: Linked) -> PathBuf {
    // Tests of other directories may have one of the same name.
    let family = sources.replace(['/', '.'], "-");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join(sources);
    let dir = sources.join(name);
    let mut files = vec![sources.join(format!("{name}.c"))];
    if dir.is_dir() {
        files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|e| e == "c"));
        files.sort();
    }
    let suffix = match linked {
        Linked::Natively => "native",
        Linked::WithLibrary => "txos",
        Linked::IntoOthers => "txos.so",
        Linked::Statically => "static",
    };
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{family}-{name}-{suffix}"));
    // Another run of the tests may be making, or using, the same.
    let temporary = made.with_extension(format!("{}", std::process::id()));
    let mut cc = Invocation::new("cc")
        .args(["-std=gnu17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
        // Both are about what returns_twice and fixed buffers might do, not about what they do.
        .args(["-Wno-clobbered", "-Wno-format-truncation"])
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../txos-runtime/include"))
        // What the library's own test programs use as well.
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../txos-runtime/tests/c"))
        .arg("-o")
        .arg(&temporary)
        .args(files);
    match linked {
        Linked::IntoOthers => cc = cc.args(["-shared", "-fPIC"]),
        Linked::Statically => cc = cc.arg("-static"),
        Linked::Natively | Linked::WithLibrary => {}
    }
    if matches!(linked, Linked::WithLibrary | Linked::IntoOthers) {
        let library = binary::library();
        let dir = library.parent().expect("a directory");
        let path = format!("-Wl,-rpath,{}", dir.display());
        cc = cc.arg("-L").arg(dir).args(["-Wl,--no-as-needed", "-ltxos", &path]);
    }
    let _ = cc.run().expect(0).says_not("warning");
    std::fs::rename(&temporary, &made).expect("putting a program in its place");
    made
}

/// Whether the library has come so far that it can begin a transaction.
pub fn transactions_exist() -> bool {
    let bytes = std::fs::read(binary::library()).unwrap_or_default();
    bytes.windows(11).any(|window| window == b"sys_xbegin\0")
}
