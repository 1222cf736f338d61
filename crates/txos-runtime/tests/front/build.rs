//! Compiles C programs against the library that this test was built with.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// How a program gets the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// `-ltxos`.
    Shared,
    /// The archive, in a program that is dynamically linked otherwise.
    Archive,
    /// Everything in one file.
    Static,
}

/// Where the libraries are: beside this test, or one above.
pub fn library(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let dirs = own.ancestors().skip(1).take(2).map(|dir| dir.join(name));
    let newest = dirs.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path))).max();
    newest.unwrap_or_else(|| panic!("{name} is not built")).1
}

/// A directory that goes with the tests of this build.
fn place() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("front");
    std::fs::create_dir_all(&place).unwrap();
    place
}

/// Compiles tests/c/NAME.c; once for each way of linking.
pub fn compile(name: &str, link: Link) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = place().join(format!("{name}-{link:?}-{}", std::process::id()));
    let mut cc = Command::new("cc");
    cc.args(["-g", "-O2", "-Wall", "-Wextra", "-Wno-clobbered", "-pthread", "-o"]).arg(&made);
    cc.arg("-I").arg(here.join("include")).arg(here.join(format!("tests/c/{name}.c")));
    let shared = library("libtxos.so");
    let dir = shared.parent().unwrap().display();
    match link {
        Link::Shared => {
            cc.arg(format!("-L{dir}")).arg("-ltxos").arg(format!("-Wl,-rpath,{dir}"));
        }
        Link::Archive | Link::Static => {
            if link == Link::Static {
                cc.arg("-static");
            }
            cc.arg(library("libtxos.a"));
            cc.args(["-lpthread", "-ldl", "-lm", "-lgcc_eh", "-lgcc", "-lc"]);
        }
    }
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{cc:?}: {}", text(&output.stderr));
    made
}

/// The scenarios, compiled.
pub fn scenarios(link: Link) -> &'static Path {
    static SHARED: OnceLock<PathBuf> = OnceLock::new();
    static ARCHIVE: OnceLock<PathBuf> = OnceLock::new();
    static STATIC: OnceLock<PathBuf> = OnceLock::new();
    let made = match link {
        Link::Archive => &ARCHIVE,
        Link::Static => &STATIC,
        _ => &SHARED,
    };
    made.get_or_init(|| compile("scenarios", link))
}

/// A command that keeps to a realm and a store of the test's own, and doesn't run for ever.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    let place = place();
    command.args(["-s", "KILL", "60"]).arg(program);
    command.env("TXOS_REALM", place.join("realm")).env("TXOS_STORE", place.join("store"));
    // cargo has its own idea of which library is to be found.
    for name in ["TXOS_IN_PROCESS", "LD_PRELOAD", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    command
}

/// What a command has written.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Both of what it has written, for messages.
pub fn words(output: &Output) -> String {
    format!("{:?}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}
