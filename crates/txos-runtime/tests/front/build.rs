//! Compiles C programs against the library that this test was built with.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

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

/// Runs a scenario of tests/c/PROGRAM.c in a directory of its own.
pub fn run(program: &'static str, name: &str, link: Link) -> Output {
    static MADE: Mutex<Vec<((&str, Link), PathBuf)>> = Mutex::new(Vec::new());
    let made = {
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        match made.iter().find(|(what, _)| *what == (program, link)) {
            Some((_, path)) => path.clone(),
            None => {
                let path = compile(program, link);
                made.push(((program, link), path.clone()));
                path
            }
        }
    };
    let dir = place().join(program).join(format!("{link:?}")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    command(&made).arg(name).current_dir(&dir).output().unwrap()
}

/// A test for each scenario of a program, with the shared library; and one for those that can be run with everything in one file:
/// other programs can't be run there, as the library can't be loaded into them.
macro_rules! scenarios_of {
    ($program:literal, without $programs:expr, $($name:ident,)*) => {
        fn passes(name: &str, link: $crate::build::Link) {
            let output = $crate::build::run($program, name, link);
            assert!(output.status.success(), "{name}, {link:?}: {}", $crate::build::words(&output));
        }

        $(#[test] fn $name() { passes(stringify!($name), $crate::build::Link::Shared); })*

        #[test]
        fn all_in_one_file() {
            let programs: &[&str] = &$programs;
            for name in [$(stringify!($name),)*].into_iter().filter(|name| !programs.contains(name)) {
                passes(name, $crate::build::Link::Static);
            }
        }
    };
}

/// A realm and a store of one test's own. Tests run beside each other. Two names may share a record of one realm, and
/// one transaction at a time is committed with a store: a transaction would lose to a test that has nothing in common
/// with it.
struct Own(PathBuf);

impl Own {
    fn new() -> Own {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let own = Own(place().join(format!("own-{}-{number}", std::process::id())));
        std::fs::create_dir_all(&own.0).unwrap();
        own
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

thread_local! {
    static OWN: Own = Own::new();
}

/// A command that keeps to the realm and the store of this test, and doesn't run for ever.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "60"]).arg(program);
    OWN.with(|own| {
        command.env("TXOS_REALM", own.0.join("realm")).env("TXOS_STORE", own.0.join("store"))
    });
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
