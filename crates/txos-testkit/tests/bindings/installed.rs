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
    let pc = fs::read_to_string(prefix.join("lib/pkgconfig/txos.pc")).unwrap();
    assert_eq!(pc.lines().next(), Some(&*format!("prefix={}", prefix.display())));
    assert!(pc.contains(concat!("Version: ", env!("CARGO_PKG_VERSION"))), "{pc}");

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

/// The command under test, beside the libraries under test.
fn built(lab: &Lab, libraries: &Path) -> PathBuf {
    let from = lab.dir().join("build");
    fs::create_dir(&from).unwrap();
    std::os::unix::fs::symlink(binary::txos(), from.join("txos")).unwrap();
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
