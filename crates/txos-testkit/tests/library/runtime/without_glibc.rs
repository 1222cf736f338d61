//! Systems without the GNU C library, as Alpine's: a copy of it beside the library is the library's alone.

use std::path::{Path, PathBuf};

use txos_testkit::{Done, Invocation, Lab, binary, require, skip};

/// Makes one at `$1`: a static shell with its tools, musl, a program that is linked with it (source: `$2`), and txos (`$3`) with its library (`$4`). The
/// debug build of txos needs a GNU C library, which lies where nobody looks for it.
const MAKE: &str = r#"
set -e
root=$1
mkdir "$root"
mount -t tmpfs -o mode=755 musl "$root"
cd "$root"
mkdir -p bin lib lib64 opt/gnu opt/txos proc dev/shm tmp run etc work/native work/ours
cp "$(command -v busybox)" bin/busybox
for applet in sh ls cp mv rm cat env grep seq tar tr wc ps; do ln -s busybox bin/$applet; done
cp -L /lib/ld-musl-x86_64.so.1 lib/
musl-gcc -O1 -pthread "$2" -o bin/alone
for file in libc.so.6 libgcc_s.so.1 libm.so.6 ld-linux-x86-64.so.2; do
    cp -L /lib/x86_64-linux-gnu/$file opt/gnu/
done
cp "$3" opt/gnu/txos
cp "$4" opt/txos/libtxos.so
mount -t proc proc proc
for device in null zero urandom; do touch dev/$device; mount --bind /dev/$device dev/$device; done
"#;

/// What of the GNU C library lies beside the library.
const COMPANIONS: [&str; 2] = ["ld-linux-x86-64.so.2", "libc.so.6"];

/// What runs txos there.
const LOADER: [&str; 4] =
    ["/opt/gnu/ld-linux-x86-64.so.2", "--library-path", "/opt/gnu", "/opt/gnu/txos"];

struct Musl {
    /// What mounts it.
    _lab: Lab,
    root: PathBuf,
}

impl Musl {
    fn new() -> Musl {
        let lab = Lab::in_memory();
        let root = lab.path("root");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/library/runtime/c/alone.c");
        let (command, library): (&Path, &Path) = (binary::txos(), binary::library());
        let make = Invocation::shell(MAKE).arg("sh").arg(&root).arg(source);
        let _ = make.arg(command).arg(library).run().expect(0);
        Musl { _lab: lab, root }
    }

    fn with_companions() -> Musl {
        let made = Musl::new();
        for name in COMPANIONS {
            std::fs::copy(made.path("opt/gnu").join(name), made.path("opt/txos").join(name))
                .unwrap();
        }
        made
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn command(&self, dir: &str) -> Invocation {
        Invocation::new("chroot")
            .arg(&self.root)
            .args(["/bin/env", "-i", "PATH=/bin", "TXOS_LIB=/opt/txos/libtxos.so"])
            .args(["/bin/sh", "-c", "cd \"$0\" && exec \"$@\"", dir])
    }

    fn native(&self, words: &[&str]) -> Done {
        self.command("/work/native").args(words).run()
    }

    /// A command of txos.
    fn txos(&self, words: &[&str]) -> Done {
        self.command("/work/ours").args(LOADER).args(words).run()
    }

    /// The same where a container's rules hold.
    fn contained(&self, words: &[&str]) -> Done {
        let filter = super::program::program("contained", super::program::Linked::Natively);
        Invocation::new("setpriv")
            .args([super::processes::CAPABILITIES, "--inh-caps=-all"])
            .arg(filter)
            .args(["chroot"])
            .arg(&self.root)
            .args(LOADER)
            .args(words)
            .env("TXOS_LIB", "/opt/txos/libtxos.so")
            .run()
    }

    fn transaction(&self, words: &[&str]) -> Done {
        let options = ["run", "--view", "library", "--quiet", "--"];
        self.txos(&[&options, words].concat())
    }

    #[track_caller]
    fn answers(&self, words: &[&str]) {
        let (native, ours) = (self.native(words), self.transaction(words));
        let said = |done: &Done| (done.code(), done.text(), done.stderr.clone());
        assert_eq!(said(&native), said(&ours), "{words:?}");
        let listed = ["sh", "-c", "ls -R; cat * 2>&1"];
        let left = [self.native(&listed), self.command("/work/ours").args(listed).run()];
        let [native, ours] = left.map(|done| done.text());
        assert_eq!(native, ours, "{words:?}");
    }
}

fn has_what_it_takes() -> bool {
    skip::has("musl-gcc") && skip::has("busybox")
}

#[test]
fn programs_are_run_as_natively() {
    require!(has_what_it_takes(), "there is no musl-gcc, or no static busybox");
    let musl = Musl::with_companions();
    for kind in ["memory", "threads", "processes", "vforks", "signals"] {
        musl.answers(&["alone", kind]);
        musl.answers(&["sh", "-c", &format!("alone {kind}; echo $? > status")]);
    }
    musl.answers(&["sh", "-c", "alone arguments a '' 'b c' | grep -v cmdline"]);
    musl.answers(&[
        "sh",
        "-c",
        "for i in $(seq 50); do echo $i > n$i; done; cat n* | wc -l; rm n*",
    ]);
    musl.answers(&[
        "sh",
        "-c",
        "tar -c status > t; mv status other; tar -x < t; rm t; ls -l | grep -c status",
    ]);
    musl.answers(&["sh", "-c", "LD_LIBRARY_PATH=/none LD_BIND_NOW=1 env | grep LD_"]);
    musl.answers(&[
        "sh",
        "-c",
        "printf '#!/bin/alone arguments\\n' > s; busybox chmod 755 s; ./s x | grep -v cmdline",
    ]);
    musl.answers(&["sh", "-c", "cp /bin/alone own; ./own memory; rm own"]);
}

#[test]
fn what_fails_leaves_nothing() {
    require!(has_what_it_takes(), "there is no musl-gcc, or no static busybox");
    let musl = Musl::with_companions();
    let _ = musl.transaction(&["sh", "-c", "echo 1 > a; alone memory; exit 3"]).expect(3);
    let _ = musl.transaction(&["sh", "-c", "echo 1 > a; kill -9 $$"]).expect(137);
    let _ = musl.transaction(&["sh", "-c", "echo 1 > a; none"]).expect(127);
    assert_eq!(std::fs::read_dir(musl.path("work/ours")).unwrap().count(), 0);
}

/// What is kept is seen, and published.
#[test]
fn it_is_kept_and_published() {
    require!(has_what_it_takes(), "there is no musl-gcc, or no static busybox");
    let musl = Musl::with_companions();
    let words = [
        "run",
        "--view",
        "library",
        "--keep",
        "--name",
        "it",
        "--",
        "sh",
        "-c",
        "alone memory; echo 1 > a",
    ];
    let _ = musl.txos(&words).expect(0);
    assert!(!musl.path("work/ours/a").exists());
    assert!(musl.txos(&["diff", "it"]).expect(0).text().contains("+1\n"));
    let _ = musl.txos(&["commit", "it"]).expect(0);
    assert_eq!(std::fs::read_to_string(musl.path("work/ours/a")).unwrap(), "1\n");
    let _ = musl.txos(&["revert", "it"]).expect(0);
    assert_eq!(std::fs::read_dir(musl.path("work/ours")).unwrap().count(), 0);
    // Where there is no other view, it is the usual one.
    let script = "cd /work/ours; echo 1 > a; exit 3";
    let _ = musl.contained(&["run", "--", "/bin/sh", "-c", script]).expect(3);
    assert!(!musl.contained(&["doctor"]).text().contains("library  "));
}

/// What is called like the GNU C library's dynamic linker may be another one.
#[test]
fn another_linker_in_its_place_is_left_alone() {
    require!(has_what_it_takes(), "there is no musl-gcc, or no static busybox");
    let musl = Musl::with_companions();
    std::fs::write(musl.path("lib64/ld-linux-x86-64.so.2"), "none\n").unwrap();
    musl.answers(&["sh", "-c", "alone memory; alone processes > p"]);
}

#[test]
fn without_a_copy_it_is_refused() {
    require!(has_what_it_takes(), "there is no musl-gcc, or no static busybox");
    let musl = Musl::new();
    let why = "/lib64/ld-linux-x86-64.so.2 is not there; copies of ld-linux-x86-64.so.2 and libc.so.6, of a machine that has \
               them, in /opt/txos will do";
    let refused = || {
        let done = musl.transaction(&["sh", "-c", "echo 1 > a"]).expect(125);
        let _ = done.says(why);
        assert_eq!(std::fs::read_dir(musl.path("work/ours")).unwrap().count(), 0);
    };
    refused();
    let found = musl.contained(&["doctor"]).expect(1);
    assert!(found.text().contains("copies of ld-linux-x86-64.so.2 and libc.so.6"), "{found:?}");
    // One without the other.
    let linker = COMPANIONS[0];
    std::fs::copy(musl.path("opt/gnu").join(linker), musl.path("opt/txos").join(linker)).unwrap();
    refused();
}

/// A copy that is not taken is named, with the reason.
#[test]
fn a_copy_that_is_not_taken_is_named() {
    require!(has_what_it_takes(), "there is no musl-gcc, or no static busybox");
    let musl = Musl::with_companions();
    let [linker, c_library] = COMPANIONS;
    for (name, spoil, mend, why) in [
        (
            c_library,
            "chmod 666 F",
            "chmod 644 F",
            "can be written to by others than its owner (mode 0666)",
        ),
        (
            linker,
            "chmod 775 F",
            "chmod 755 F",
            "can be written to by others than its owner (mode 0775)",
        ),
        (linker, "chmod 644 F", "chmod 755 F", "can't be executed (mode 0644)"),
        (c_library, "chown 7 F", "chown 0 F", "belongs to user 7, and has to be root's"),
        (
            c_library,
            "mv F F.1; ln -s F.1 F",
            "mv F.1 F",
            "is a symbolic link; copy the file that it leads to",
        ),
        (linker, "mv F F.1; mkdir F", "rmdir F; mv F.1 F", "is not a regular file"),
    ] {
        let change = |script: &str| {
            let file = musl.path("opt/txos").join(name).display().to_string();
            let _ = Invocation::shell(script.replace('F', &file)).run().expect(0);
        };
        let why = format!("/opt/txos/{name} would do, but {why}");
        change(spoil);
        let done = musl.transaction(&["sh", "-c", "echo 1 > a"]).expect(125);
        let _ = done.says(&why);
        let found = musl.contained(&["doctor"]).expect(1);
        assert!(found.text().contains(&why), "{found:?}");
        change(mend);
    }
    musl.answers(&["sh", "-c", "echo 1 > a"]);
    // Where something else is in the place of the system's, that is what would be used.
    std::fs::write(musl.path("lib64/ld-linux-x86-64.so.2"), "none\n").unwrap();
    let _ = Invocation::new("chmod").arg("666").arg(musl.path("opt/txos").join(c_library)).run();
    let found = musl.contained(&["doctor"]).expect(1);
    let said = format!("/opt/txos/{c_library} is not used, as it can be written to by others");
    assert!(found.text().contains(&said), "{found:?}");
}
