//! The Debian package: built, installed in a small Debian, used, upgraded, removed, purged.

use std::fs;
use std::path::{Path, PathBuf};

use txos_testkit::{DebianRoot, Invocation, Lab, binary, fault, require, require_some, skip};

use crate::{installed, root};

/// Builds the package; gives its file.
fn build(lab: &Lab, version: &str) -> PathBuf {
    let from = lab.dir().join("build");
    if !from.exists() {
        let _ = installed::built(lab, binary::library().parent().expect("a directory"));
    }
    let made = Invocation::new(root().join("dist/deb"))
        .args(["--version", version])
        .arg(lab.dir())
        .env("TXOS_BUILD", &from)
        // What takes the time is not tested here.
        .env("TXOS_DPKG_DEB", "-Zgzip -z1")
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .env("DESTDIR", "")
        .run()
        .expect(0);
    PathBuf::from(made.text().trim_end())
}

fn has_what_it_takes() -> bool {
    let tools = ["dpkg-deb", "dpkg-shlibdeps", "dpkg-architecture", "strip", "chroot"];
    let library = binary::library().with_file_name("libtxos.a");
    tools.into_iter().all(skip::has) && library.exists()
}

/// What dpkg said of something that it does not find right.
fn warnings(done: &txos_testkit::Done) -> Vec<String> {
    let harmless = |line: &&str| !line.contains("not empty so not removed");
    let lines = done.stderr.lines().filter(|line| line.contains("warning")).filter(harmless);
    lines.map(str::to_owned).collect()
}

#[test]
fn the_package_is_installed_used_upgraded_removed_and_purged() {
    require!(has_what_it_takes(), "no dpkg-dev, no binutils, or no static library");
    let lab = Lab::new();
    let debian = require_some!(DebianRoot::new(&lab, &[]), "no small Debian can be made here");
    let (old, new) = (build(&lab, "0.0.9"), build(&lab, "0.1.0"));
    debian.take(&old);
    debian.take(&new);
    let file = |deb: &Path| format!("/{}", deb.file_name().unwrap().to_string_lossy());
    let before = debian.sh("find / -xdev | sort").text();
    let install = |deb: &Path| {
        let done = debian.command(&["dpkg", "-i", &file(deb)]).run().expect(0);
        assert_eq!(warnings(&done), [""; 0]);
    };
    install(&old);
    // It belongs where it is, for everything that it has; no other path is named in it.
    let all = debian.sh("dpkg -L txos").expect(0).text();
    for name in [
        "/usr/bin/txos",
        "/usr/lib/txos/libtxos.so",
        "/usr/lib/txos/libtxos.a",
        "/usr/lib/txos/txos-apt",
        "/usr/include/txos.h",
        "/pkgconfig/txos.pc",
        "/usr/lib/systemd/system/txos-recover.service",
        "/usr/lib/python3/dist-packages/txos/libtxos.so",
        "/usr/share/man/man1/txos-run.1.gz",
        "/usr/share/man/man2/sys_xbegin.2txos.gz",
        "/usr/share/bash-completion/completions/txos",
        "/usr/share/zsh/vendor-completions/_txos",
        "/usr/share/fish/vendor_completions.d/txos.fish",
        "/usr/share/doc/txos/copyright",
        "/usr/share/txos/txos.apparmor",
    ] {
        assert!(all.lines().any(|line| line.ends_with(name)), "{name} is not in:\n{all}");
    }
    let library = debian.path("usr/lib/python3/dist-packages/txos/libtxos.so");
    assert_eq!(fs::read_link(library).unwrap(), Path::new("../../../txos/libtxos.so"));
    for name in ["systemd/system/txos-recover.service", "txos/txos.apparmor"] {
        let place = if name.starts_with("systemd") { "usr/lib" } else { "usr/share" };
        let text = fs::read_to_string(debian.path(place).join(name)).unwrap();
        assert!(text.contains("/usr/bin/txos") && !text.contains('@'), "{text}");
    }
    // It works from there.
    let _ = debian.sh("txos run -- sh -c 'echo one > /srv/file; false'").expect(1);
    assert!(!debian.path("srv/file").exists());
    let _ = debian.sh("txos run -- sh -c 'echo one > /srv/file'").expect(0);
    let _ = debian.sh("txos run --keep --name later -- sh -c 'echo two > /srv/file'").expect(0);
    // What the old version left pending, the new one commits.
    install(&new);
    assert_eq!(fs::read_to_string(debian.path("srv/file")).unwrap(), "one\n");
    let _ = debian.sh("txos commit later").expect(0);
    assert_eq!(fs::read_to_string(debian.path("srv/file")).unwrap(), "two\n");
    let _ = debian.sh("dpkg --verify txos").expect(0);
    removal(&debian, &file(&new));
    // Purged, nothing of it is left, wherever it was.
    let after = debian.sh("find / -xdev | sort").text();
    // The realm goes with the machine's memory.
    let not_left = |path: &str| path.starts_with("/run/txos") || path.ends_with(".deb");
    let ours = |path: &&str| path.contains("txos") && !not_left(path);
    assert_eq!(after.lines().filter(ours).collect::<Vec<_>>(), [""; 0]);
    let gone: Vec<&str> = before.lines().filter(|p| !after.lines().any(|l| l == *p)).collect();
    assert_eq!(gone, [""; 0]);
}

/// What is pending outlives removal and purge, and is not there any more only when it has been decided about.
fn removal(debian: &DebianRoot, deb: &str) {
    let _ = debian.sh("/usr/lib/txos/txos-apt enable").expect(0);
    let mounted = "mkdir /srv/other; mount -t tmpfs other /srv/other";
    let _ = debian.sh(mounted).expect(0);
    let both =
        "txos run --keep --name last -- sh -c 'echo three > /srv/file; echo x > /srv/other/x'";
    let _ = debian.sh(both).expect(0);
    let removed = debian.command(&["dpkg", "-r", "txos"]).run().expect(0);
    assert!(fs::symlink_metadata(debian.path("usr/local/sbin/apt")).is_err());
    assert!(removed.text().contains("pending transactions stay in /var/lib/txos: "), "{removed:?}");
    assert!(!debian.path("usr/bin/txos").exists());
    let _ = debian.command(&["dpkg", "-P", "txos"]).run().expect(0).says("stays, because");
    assert!(
        debian.path("var/lib/txos/journal").exists() && debian.path("srv/other/.txos").exists()
    );
    let _ = debian.command(&["dpkg", "-i", deb]).run().expect(0);
    let _ = debian.sh("txos commit last").expect(0);
    assert_eq!(fs::read_to_string(debian.path("srv/file")).unwrap(), "three\n");
    assert_eq!(fs::read_to_string(debian.path("srv/other/x")).unwrap(), "x\n");
    let _ = debian.command(&["dpkg", "-P", "txos"]).run().expect(0).says_not("stays");
    assert!(!debian.path("var/lib/txos").exists() && !debian.path("srv/other/.txos").exists());
    assert_eq!(fs::read_to_string(debian.path("srv/other/x")).unwrap(), "x\n");
}

/// A publish that was interrupted is finished or undone before the package goes; if it can't be, the package stays.
#[test]
fn what_was_interrupted_is_recovered_before_the_package_goes() {
    require!(has_what_it_takes(), "no dpkg-dev, no binutils, or no static library");
    let lab = Lab::new();
    let debian = require_some!(DebianRoot::new(&lab, &[]), "no small Debian can be made here");
    let deb = build(&lab, "0.1.0");
    debian.take(&deb);
    let name = format!("/{}", deb.file_name().unwrap().to_string_lossy());
    let _ = debian.command(&["dpkg", "-i", &name]).run().expect(0);
    let write = |text: &str| format!("for n in 1 2 3 4 5; do echo {text} > /srv/$n; done");
    let contents = || debian.sh("cat /srv/1 /srv/2 /srv/3 /srv/4 /srv/5 | sort -u").text();
    let keep = |text: &str| debian.sh(&format!("txos run --keep -- sh -c '{}'", write(text)));
    let _ = debian.sh(&write("older")).expect(0);
    let _ = keep("old").expect(0);
    let _ = debian.sh("TXOS_FAULT_COUNT=/count txos commit @").expect(0);
    // In the middle of the publish: of the five files some are exchanged.
    let steps = fault::steps_in(&debian.path("count"));
    let last = steps.iter().rposition(|step| step == "rename").unwrap() + 1;
    let _ = keep("new").expect(0);
    let killed = debian.sh(&format!("TXOS_FAULT=kill@{} txos commit @", last - 1));
    assert_eq!((killed.code(), &*contents()), (137, "new\nold\n"), "{killed:?} {steps:?}");
    // A journal that is not txos' own is not decided about.
    let journal = debian.path("var/lib/txos/journal");
    let right = fs::read(&journal).unwrap();
    fs::write(&journal, b"something else").unwrap();
    let _ = debian.command(&["dpkg", "-r", "txos"]).run().expect(1).says("not removed");
    assert!(debian.path("usr/bin/txos").exists());
    fs::write(&journal, right).unwrap();
    let _ = debian.command(&["dpkg", "-r", "txos"]).run().expect(0);
    assert!(["old\n", "new\n"].contains(&&*contents()), "half a publish is left");
}
