//! The Rust crate, which is a workspace of its own: format, lints, tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use txos_testkit::wait::BUILD_PATIENCE;
use txos_testkit::{Invocation, Lab, binary, require, skip};

use crate::{first_program, in_lab, old_library, root, survives_kills};

#[test]
fn format_lints_and_tests() {
    let lab = Lab::new();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rust-binding");
    let run = |cargo: Invocation, args: &[&str]| {
        let _ = cargo
            .args(args)
            .dir(root().join("bindings/rust/txos"))
            .env("CARGO_TARGET_DIR", &target)
            .env("TXOS_LIB", binary::library())
            .env("TXOS_TEST_DIR", lab.tree())
            .within(BUILD_PATIENCE)
            .run()
            .expect(0);
    };
    let cargo = || in_lab(&lab, &cargo);
    run(cargo(), &["fmt", "--check"]);
    let lints = ["--all-targets", "--locked", "--offline", "--quiet", "--", "-D", "warnings"];
    run(cargo(), &[&["clippy"], &lints[..]].concat());
    run(cargo(), &["test", "--locked", "--offline", "--quiet"]);
    // Linked instead of loaded: calls come another way.
    let dir = binary::library().parent().expect("a directory");
    let linked = cargo().env("TXOS_LIB_DIR", dir).env("LD_LIBRARY_PATH", dir);
    run(linked, &["test", "--locked", "--offline", "--quiet", "--features", "link"]);
}

/// Those crates that are published can be: each with a README, licences and a version for all that it depends on,
/// and none depends on one that stays here. The long mode also builds each from what is published of it.
#[test]
fn the_crates_can_be_published() {
    const PUBLISHED: [&str; 7] = [
        "txos-calls",
        "txos-recorder",
        "txos-engine",
        "txos-run",
        "txos-runtime",
        "txos-cli",
        "txos-mcp",
    ];
    /// Each crate is built from nothing, with all that it depends on.
    const BUILD_MAX: Duration = Duration::from_secs(1800);
    require!(skip::has("tar"), "no tar");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let lab = Lab::new();
    // In the name of cargo's own registry cache: nothing is downloaded.
    let package = |dir: &str, names: &[&str]| {
        let options = ["package", "--offline", "--allow-dirty", "--quiet"];
        let verify = if skip::long("packages") { None } else { Some("--no-verify") };
        let names = names.iter().flat_map(|name| ["--package", name]);
        let target = lab.dir().join("target");
        let cargo =
            Invocation::new(&cargo).args(options).args(verify).args(names).arg("--target-dir");
        let _ = cargo.arg(&target).dir(root().join(dir)).within(BUILD_MAX).run().expect(0);
        target.join("package")
    };
    let _ = package(".", &PUBLISHED);
    let made = package("bindings/rust/txos", &[]);
    for name in PUBLISHED.iter().chain(&["txos"]) {
        let file = made.join(format!("{name}-{}.crate", env!("CARGO_PKG_VERSION")));
        let list = Invocation::new("tar").arg("-tzf").arg(&file).run().expect(0).text();
        for member in ["README.md", "LICENSE-APACHE", "LICENSE-MIT", "Cargo.lock"] {
            assert!(list.lines().any(|l| l.split('/').nth(1) == Some(member)), "{name}: {list}");
        }
    }
    the_first_program(&lab, &made);
    // All others say that they are not.
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let dir = entry.unwrap().path();
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        let manifest = std::fs::read_to_string(dir.join("Cargo.toml")).unwrap();
        let kept = manifest.contains("\npublish = false\n");
        assert_eq!(kept, !PUBLISHED.contains(&&*name), "{name}");
    }
}

/// See [`survives_kills`].
const COUNTS: &str = r#"
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes the number in place, or a file that takes the other's place.
fn add(path: &Path, replace: bool) -> io::Result<()> {
    let number: u64 = std::fs::read_to_string(path)?.parse().map_err(io::Error::other)?;
    let to = if replace { path.with_extension("new") } else { path.to_owned() };
    std::fs::write(&to, (number + 1).to_string())?;
    std::fs::rename(to, path)
}

fn work(dir: &Path, reports: &Path, name: &str) -> io::Result<()> {
    let mut report = std::fs::OpenOptions::new().create(true).append(true).open(reports.join(name))?;
    for n in 0.. {
        txos::Transaction::new().durable(false).retry(u32::MAX).run(|_| -> io::Result<()> {
            add(&dir.join(name), n % 2 == 0)?;
            add(&dir.join("total"), n % 3 == 0)
        })?;
        report.write_all(b".")?;
    }
    Ok(())
}

fn main() {
    let [dir, reports] = [1, 2].map(|n| PathBuf::from(std::env::args().nth(n).unwrap()));
    std::thread::scope(|scope| {
        for name in ["0", "1", "2"] {
            let (dir, reports) = (&dir, &reports);
            scope.spawn(move || work(dir, reports, name).unwrap());
        }
    });
}
"#;

/// A project with nothing but the crate, which lies there; gives where its program is built.
fn build_project(lab: &Lab, on: &Path, main: &str) -> PathBuf {
    let project = lab.dir().join("project");
    std::fs::create_dir_all(project.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"first\"\nedition = \"2024\"\n\
         [dependencies]\ntxos = {{ path = \"{}\" }}\n[workspace]\n",
        on.display()
    );
    std::fs::write(project.join("Cargo.toml"), manifest).unwrap();
    std::fs::write(project.join("src/main.rs"), main).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = lab.dir().join("project-target");
    let build = in_lab(lab, cargo).args(["build", "--offline", "--quiet", "--target-dir"]);
    let _ = build.arg(&target).dir(&project).run().expect(0);
    target.join("debug/first")
}

/// README's first program, with the packed crate.
fn the_first_program(lab: &Lab, made: &Path) {
    let name = concat!("txos-", env!("CARGO_PKG_VERSION"));
    let packed = made.join(format!("{name}.crate"));
    let _ = Invocation::new("tar").arg("-xzf").arg(packed).dir(lab.dir()).run().expect(0);
    let program = first_program("bindings/rust/txos/README.md", "rust");
    let main = program + "\nfn main() -> std::io::Result<()> {\n    switch()\n}\n";
    let program = build_project(lab, &lab.dir().join(name), &main);
    let first = |library: &Path| in_lab(lab, &program).env("TXOS_LIB", library).run();
    let _ = first(binary::library()).expect(0);
    assert_eq!(lab.read("app.conf"), "port = 8080\n");
    assert_eq!(lab.read("proxy.conf"), "backend = localhost:8080\n");
    let told = first(&old_library(lab)).expect(1).stderr;
    assert!(told.contains("older than this crate") && told.contains("lacks"), "{told}");
}

#[test]
fn rust_is_killed_at_random() {
    let lab = Lab::new();
    let program = build_project(&lab, &root().join("bindings/rust/txos"), COUNTS);
    let counts = || in_lab(&lab, &program).env("TXOS_LIB", binary::library());
    survives_kills(&lab, skip::long("bindings"), &counts);
}

/// See [`crate::producers`].
const PRODUCERS: &str = r#"
use std::{fs, io, path::Path};
use txos::{Error, Transaction};

fn line() -> io::Result<String> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).map(|_| line)
}

fn produce(attempt: u32) -> io::Result<()> {
    fs::read("base")?;
    let mut told = String::new();
    if attempt == 1 {
        println!("begun");
        told = line()?;
    }
    if told != "nothing\n" {
        fs::write("parts", "new")?;
    }
    if attempt == 1 {
        println!("made");
        if line()? == "abort\n" {
            return Err(io::Error::other("no good"));
        }
    }
    Ok(())
}

fn consume(tx: &txos::Tx) -> io::Result<()> {
    println!("begun");
    if !Path::new("parts").exists() {
        println!("early");
        return Err(tx.again("there are no parts").into());
    }
    fs::write("result", fs::read("parts")?)?;
    println!("used");
    Ok(())
}

fn main() {
    let mut attempts = 0;
    let done = match std::env::args().nth(1).as_deref() {
        Some("produce") => Transaction::new().name("parts").run(|_| {
            attempts += 1;
            produce(attempts)
        }),
        _ => Transaction::new().after(&["parts"]).run(|tx| {
            attempts += 1;
            consume(tx)
        }),
    };
    match done.map_err(|error| error.downcast::<Error>()) {
        Ok(()) => println!("attempts {attempts}"),
        Err(Ok(error @ Error::NotProduced(_))) => {
            println!("{error} {}", error.cause().unwrap().errno);
            std::process::exit(4);
        }
        Err(Ok(error)) => panic!("{error}"),
        Err(Err(_)) => std::process::exit(3),
    }
}
"#;

#[test]
fn rust_comes_after() {
    let lab = Lab::new();
    let program = build_project(&lab, &root().join("bindings/rust/txos"), PRODUCERS);
    let program = |lab: &Lab| in_lab(lab, &program).env("TXOS_LIB", binary::library());
    crate::producers::comes_after(&program);
}

/// Root becomes a user for good: an abort has it back, and the commit gives it up.
#[test]
fn rust_keeps_credentials() {
    const PROGRAM: &str = r#"
use std::{fs, io, os::unix::fs::MetadataExt};
use txos::{Error, Transaction};

unsafe extern "C" {
    fn setgroups(count: usize, groups: *const u32) -> i32;
    fn setresgid(real: u32, effective: u32, saved: u32) -> i32;
    fn setresuid(real: u32, effective: u32, saved: u32) -> i32;
    fn geteuid() -> u32;
}

fn become_user() -> io::Result<()> {
    let good = unsafe { setgroups(1, &1000) == 0 && setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0 };
    assert!(good && unsafe { geteuid() } == 1000);
    fs::write("open/mine", "x")
}

fn main() -> io::Result<()> {
    let keeps = Transaction::new().keep_credentials(true);
    let failed = keeps.run(|_| -> io::Result<()> {
        become_user()?;
        Err(io::Error::other("no good"))
    });
    assert!(failed.is_err() && unsafe { geteuid() } == 0 && !fs::exists("open/mine")?);
    let inner = Transaction::new().run(|_| Ok::<_, Error>(keeps.run(|_| Ok::<_, Error>(()))));
    assert!(matches!(inner, Ok(Err(Error::Failed(_)))), "{inner:?}");
    keeps.run(|_| keeps.run(|_| become_user()))?;
    assert!(unsafe { geteuid() } == 1000 && fs::metadata("open/mine")?.uid() == 1000);
    assert!(unsafe { setresuid(0, 0, 0) } == -1);
    println!("given up");
    // Last: a thread that has ended is not gone at once.
    std::thread::scope(|scope| {
        scope.spawn(|| match keeps.run(|_| Ok::<_, Error>(())) {
            Err(Error::Failed(cause)) => assert_eq!(cause.errno, 16, "{cause:?}"),
            other => panic!("{other:?}"),
        });
    });
    Ok(())
}
"#;
    let lab = Lab::new();
    let program = build_project(&lab, &root().join("bindings/rust/txos"), PROGRAM);
    let _ = lab.native("mkdir open; chmod 777 open; chmod 755 .");
    let done = in_lab(&lab, &program).env("TXOS_LIB", binary::library()).run().expect(0);
    assert_eq!(done.text(), "given up\n");
}
