//! `dist/install`: what it installs works where it is.

use std::fs;
use std::path::{Path, PathBuf};

use txos_testkit::{Invocation, Lab, binary, require, skip};

use crate::{c, in_lab, manual, root};

#[test]
fn an_installation() {
    let build = binary::library().parent().expect("a directory");
    require!(build.join("libtxos.a").exists(), "there is no static library beside the shared one");
    let lab = Lab::new();
    let from = built(&lab, build);
    let prefix = lab.dir().join("usr");
    let _ = Invocation::new(root().join("dist/install"))
        .arg(&prefix)
        .env("TXOS_BUILD", &from)
        .env("DESTDIR", "")
        .run()
        .expect(0);

    // A program, linked with what the installed command says, and with what pkg-config reads.
    let txos = prefix.join("bin/txos");
    let told = in_lab(&lab, &txos).args(["config", "--cflags", "--libs"]).run().expect(0).text();
    let include = format!("-I{}", prefix.join("include").display());
    let libraries = prefix.join("lib/txos").display().to_string();
    assert!(told.contains(&include) && told.contains(&format!("-L{libraries}")), "{told}");
    let mut ways = vec![told];
    if skip::has("pkg-config") {
        let path = prefix.join("lib/pkgconfig");
        let asked = Invocation::new("pkg-config").args(["--cflags", "--libs", "txos"]);
        ways.push(asked.env("PKG_CONFIG_PATH", path).run().expect(0).text());
    }
    let source = root().join("examples/c/two-files.c");
    for (number, words) in ways.iter().enumerate() {
        let program = lab.dir().join(format!("program{number}"));
        let _ = Invocation::new("cc")
            .arg("-o")
            .arg(&program)
            .arg(&source)
            .args(words.split_whitespace())
            .run()
            .expect(0);
        let _ = in_lab(&lab, &program).arg("80").run().expect(0);
        assert_eq!(lab.read("proxy.conf"), "backend = localhost:80\n");
        let _ = lab.native("rm app.conf proxy.conf port.old");
    }
    // The server for agents, which is no command of its own.
    let policy = in_lab(&lab, &txos).args(["mcp", "--print-policy"]).run().expect(0).text();
    assert!(policy.contains("commit = \"person\""), "{policy}");
    assert!(!prefix.join("bin/txos-mcp").exists());
    let pc = fs::read_to_string(prefix.join("lib/pkgconfig/txos.pc")).unwrap();
    assert_eq!(pc.lines().next(), Some(&*format!("prefix={}", prefix.display())));
    assert!(pc.contains(concat!("Version: ", env!("CARGO_PKG_VERSION"))), "{pc}");

    // The jar.
    if ["java", "javac", "jar"].into_iter().all(skip::has) {
        let jar = prefix.join(concat!("lib/txos/java/txos-", env!("CARGO_PKG_VERSION"), ".jar"));
        let program = "class Two { public static void main(String[] a) throws Exception { txos.Transactions.run(() -> \
            java.nio.file.Files.writeString(java.nio.file.Path.of(\"jar\"), \"used\")); } }\n";
        fs::write(lab.path("Two.java"), program).unwrap();
        let _ = in_lab(&lab, "java").arg("-cp").arg(&jar).arg("Two.java").run().expect(0);
        assert_eq!(lab.read("jar"), "used");
    }

    // Manual pages, of both kinds.
    let man = prefix.join("share/man");
    for page in ["man1/txos.1", "man1/txos-run.1", "man2/sys_xbegin.2txos", "man7/txos.7"] {
        assert!(man.join(page).is_file(), "{page}");
    }
    for page in manual::pages() {
        let name = page.file_name().unwrap();
        let found = fs::read_dir(&man).unwrap().any(|dir| dir.unwrap().path().join(name).is_file());
        assert!(found, "{}", page.display());
    }
    if skip::has("man") && skip::has("groff") {
        let text = manual::render(&man, "sys_xresume", "2txos");
        assert!(text.contains("go on with it"), "{text}");
    }
    assert!(is_filled(&prefix.join("share/bash-completion/completions/txos")));
    // Nothing of it is needed to compile in a checkout.
    c::compile(&source, &lab.dir().join("again"));
}

/// The lines of a file that README shows with `cat`.
fn readme_file(name: &str) -> String {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let shown = readme.split(&format!("$ cat {name}\n")).nth(1).expect("README shows it");
    shown.lines().take_while(|line| !line.starts_with("$ ")).map(|l| l.to_owned() + "\n").collect()
}

/// What README shows works after the installation, without a word of where anything is but PREFIX.
#[test]
fn the_examples_of_the_readme_in_an_installation() {
    let build = binary::library().parent().expect("a directory");
    require!(build.join("libtxos.a").exists(), "there is no static library beside the shared one");
    require!(skip::has("python3"), "no python3");
    let lab = Lab::new();
    let from = built(&lab, build);
    let prefix = lab.dir().join("usr");
    let installed = Invocation::new(root().join("dist/install"))
        .arg(&prefix)
        .env("TXOS_BUILD", &from)
        .env("DESTDIR", "")
        .run()
        .expect(0);
    // The directory has no place among those where python3 looks, and that is said.
    let python = format!("PYTHONPATH={}/lib/txos/python", prefix.display());
    let _ = installed.says(&python);
    let unit = prefix.join("lib/systemd/system/txos-recover.service");
    let unit = fs::read_to_string(unit).unwrap();
    let command = format!("ExecStart={}/bin/txos recover\n", prefix.display());
    assert!(unit.contains(&command) && !unit.contains('@'), "{unit}");

    let inside = |script: &str| {
        let path = format!("{}/bin:/usr/bin:/bin", prefix.display());
        in_lab(&lab, Path::new("/bin/sh"))
            .args(["-c", &format!("{python}; export PYTHONPATH; PATH={path}; {script}")])
            .run()
    };
    fs::write(lab.path("switch.c"), readme_file("switch.c")).unwrap();
    fs::write(lab.path("switch.py"), readme_file("switch.py")).unwrap();
    let prepare = "cc -Wall -Werror switch.c -o switch $(txos config --cflags --libs); \
                   echo new > app.new; echo new > proxy.new; echo old > app.conf; echo old > proxy.conf";
    let _ = inside(prepare).expect(0);
    let _ = inside("./switch").expect(0);
    assert_eq!((&*lab.read("app.conf"), &*lab.read("proxy.conf")), ("new\n", "new\n"));
    // The second rename fails: the first has not happened.
    let _ = inside("echo newer > app.new; ./switch").expect(1).says("nothing has changed");
    assert_eq!((&*lab.read("app.conf"), &*lab.read("app.new")), ("new\n", "newer\n"));
    // Python: without the directory for the second file the first has not changed.
    let failed = inside("python3 switch.py").expect(1);
    assert!(failed.stderr.contains("FileNotFoundError"), "{}", failed.stderr);
    assert_eq!(lab.read("app.conf"), "new\n");
    let _ = inside("mkdir conf.d; python3 switch.py").expect(0);
    assert_eq!(lab.read("conf.d/proxy.conf"), "backend = localhost:9090\n");
}

/// The command under test, beside the libraries under test.
pub(crate) fn built(lab: &Lab, libraries: &Path) -> PathBuf {
    let from = lab.dir().join("build");
    fs::create_dir(&from).unwrap();
    std::os::unix::fs::symlink(binary::txos(), from.join("txos")).unwrap();
    std::os::unix::fs::symlink(binary::server(), from.join("txos-mcp")).unwrap();
    for name in ["libtxos.so", "libtxos.a"] {
        std::os::unix::fs::symlink(libraries.join(name), from.join(name)).unwrap();
    }
    from
}

fn is_filled(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.len() > 0)
}

#[test]
fn an_installation_for_a_package() {
    let build = binary::library().parent().expect("a directory");
    require!(build.join("libtxos.a").exists(), "there is no static library beside the shared one");
    let lab = Lab::new();
    let from = built(&lab, build);
    let install = || Invocation::new(root().join("dist/install")).env("TXOS_BUILD", &from);
    let _ = install().arg("/usr").env("DESTDIR", lab.tree()).run().expect(0);
    assert!(lab.read("usr/lib/pkgconfig/txos.pc").starts_with("prefix=/usr\n"));
    assert!(is_filled(&lab.path("usr/lib/txos/libtxos.so")));
    // Not a prefix.
    let _ = install().arg("--help").env("DESTDIR", lab.tree()).run().expect(2).says("PREFIX");
}
