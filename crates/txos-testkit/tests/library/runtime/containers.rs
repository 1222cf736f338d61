//! Real tools in containers as the usual engine makes them: the root directory is an overlay over the layers of an image, root has
//! few capabilities, a filter refuses namespaces and mounts, processes and terminals are the container's own.

use std::path::{Path, PathBuf};

use txos_testkit::image::{Image, Overlay};
use txos_testkit::pty::Pty;
use txos_testkit::system::{self, Guard};
use txos_testkit::tree::Tolerance;
use txos_testkit::{Invocation, Lab, Tree, binary, require, skip};

use super::processes::CAPABILITIES;
use super::program::{Linked, program};
use super::whole::{Pair, SOURCES};

/// An ordinary user of the image.
const USER: &str = "4321";
/// Where in a container `txos` and its library are.
const TOOLS: &str = "opt/txos";
/// The part of the image that is compared.
const PLACE: &str = "srv/place";

/// A container: two of the same image are alike.
struct Container {
    root: Overlay,
    // The image is the machine's own root directory, with some more in front.
    _stable: Guard,
    _lab: Lab,
}

impl Container {
    /// From an image where `prepare`, a shell script, has run in its top layer. `None`: no overlay can be mounted here.
    fn new(prepare: &str, mib: u64) -> Option<Container> {
        let lab = Lab::in_memory();
        let stable = system::stable();
        let prepare = format!(
            "umask 022; mkdir -p etc {TOOLS} home/user tmp {PLACE}; chmod 1777 tmp; chown {USER}:{USER} home/user; cp /etc/passwd etc
             echo 'user:x:{USER}:{USER}::/home/user:/bin/sh' >> etc/passwd; (cd {PLACE}; {prepare})"
        );
        let root = Image::overlay_over(&lab, "ext4", mib, &prepare, "/")?;
        let script = r#"
            set -e; cd "$1"
            rm -rf var/lib/txos # the machine's own transactions
            mount --rbind --make-rslave /sys sys; mount -o remount,bind,ro sys
            mount -t tmpfs -o mode=755 none dev
            for d in null zero full random urandom tty; do : > dev/$d; mount --bind /dev/$d dev/$d; done
            mkdir dev/shm dev/pts; mount -t tmpfs -o mode=1777,size=64m none dev/shm
            mount -t devpts -o newinstance,ptmxmode=666 none dev/pts; ln -s pts/ptmx dev/ptmx
            ln -s /proc/self/fd dev/fd; for n in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/${n%:*} dev/${n#*:}; done
            mount --bind "$2" "$3"
        "#;
        let tools = binary::txos().parent()?.to_owned();
        let _ = Invocation::shell(script)
            .arg("sh")
            .arg(&root.top.point)
            .arg(tools)
            .arg(TOOLS)
            .run()
            .expect(0);
        std::fs::copy(
            program("contained", Linked::Natively),
            root.top.point.join("usr/local/bin/contained"),
        )
        .ok()?;
        Some(Container { root, _stable: stable, _lab: lab })
    }

    fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.top.point.join(path)
    }

    /// A command in it, in its compared directory.
    fn runs(&self, as_user: bool, words: &[&str]) -> Invocation {
        let point = &self.root.top.point;
        let mut mount = std::ffi::OsString::from("--mount-proc=");
        mount.push(point.join("proc"));
        let identity = if as_user {
            format!("--reuid={USER} --regid={USER} --clear-groups --inh-caps=-all")
        } else {
            "--inh-caps=-all".to_owned()
        };
        let enter = format!(
            "cd /{PLACE} && exec contained --privileges setpriv {CAPABILITIES} {identity} \"$@\""
        );
        let home = if as_user { "/home/user" } else { "/root" };
        let run =
            Invocation::new("unshare").args(["--pid", "--ipc", "--uts", "--fork", "--kill-child"]);
        let run =
            run.arg(mount).arg("chroot").arg(point).args(["sh", "-c", &enter, "sh"]).args(words);
        let always = [
            // Compiled files of Python's say of which content they are then, and not of which time.
            ("SOURCE_DATE_EPOCH", "1000000000"),
            ("DEBIAN_FRONTEND", "noninteractive"),
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", home),
        ];
        let run =
            always.into_iter().fold(Pair::prepared(run), |run, (name, value)| run.env(name, value));
        let without = ["TXOS_STORE", "TXOS_REALM", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];
        without.into_iter().fold(run, Invocation::without_env)
    }

    fn txos(&self, as_user: bool, words: &[&str]) -> Invocation {
        let txos = format!("/{TOOLS}/txos");
        self.runs(as_user, &[&[txos.as_str()][..], words].concat())
    }

    /// What it holds of directories, and of the rest of them not what is below `without`.
    fn trees(&self, directories: &[&str], without: &[&str]) -> Vec<Tree> {
        // One that is not there yet has nothing in it.
        let of = |path: PathBuf| if path.is_dir() { Tree::of(path) } else { Tree::default() };
        let trees = directories.iter().map(|directory| of(self.path(directory)));
        let apart = |tree| without.iter().fold(tree, |tree: Tree, path| tree.without(path));
        trees.map(apart).collect()
    }
}

/// What a tool does, natively in one container and as a transaction in another.
struct Work<'a> {
    tool: &'a str,
    script: &'a str,
    /// What is compared, from the root directory on.
    directories: &'a [&'a str],
    /// What of these says when it was made, or where.
    without: &'a [&'a str],
}

impl Work<'_> {
    /// Rolled back it leaves what was there before, committed what it leaves natively, and reverted what was there before.
    fn does(&self, native: &Container, ours: &Container, as_user: bool) {
        let Work { tool, script, directories, without } = *self;
        let with = |end: &str| format!("set -e; ({script}); exit {end}");
        let before = ours.trees(directories, &[]);
        let run = |end: &str| {
            let words = ["run", "--no-durable", "-q", "--", "sh", "-c", &with(end)];
            ours.txos(as_user, &words).run()
        };
        let is_as_before = |what: &str| {
            for (before, now) in before.iter().zip(ours.trees(directories, &[])) {
                before.expect(&now, Tolerance::default(), &format!("{tool}, {what}"));
            }
        };
        let failed = run("4");
        assert_eq!(failed.code(), 4, "{tool}: {failed:?}");
        is_as_before("rolled back");
        let natively = native.runs(as_user, &["sh", "-c", &with("0")]).run();
        let done = run("0");
        assert_eq!((done.code(), natively.code()), (0, 0), "{tool}: {done:?} {natively:?}");
        let now_from = Tolerance { now_from: Some(1_500_000_000), links: true, times: false };
        let (theirs, own) = (native.trees(directories, without), ours.trees(directories, without));
        for (natively, here) in theirs.iter().zip(&own) {
            natively.expect(here, now_from, &format!("{tool}, committed: not as natively"));
        }
        assert!(own != before, "{tool} has left nothing");
        let reverted = ours.txos(as_user, &["revert", "@", "-q"]).run();
        assert_eq!(reverted.code(), 0, "{tool}: {reverted:?}");
        is_as_before("reverted");
    }
}

const SHELL: &str = "for i in 1 2 3; do echo $i | tr 1-3 a-c > n$i & done; wait; cat n* > all; rm n1; mv n2 moved; sed -i s/1/one/ src/numbers
    chmod 700 src/deep/er/f3; rm src/deep/er/f4; ln src/deep/big big; ln -s ../nowhere src/link; mkdir -p new/dir; cp -a src new/copy; while read -r x; do
    echo \"$x\" >> new/read; done < src/py/m1.py; touch -d @1200000000 src/deep/er/f7; diff -r src new/copy > differences || true";
const TAR: &str = "tar --sort=name -cf all.tar src; mkdir out; tar -xpf all.tar -C out; tar -xf all.tar src/deep/er; diff -r src out/src; gzip -n all.tar";
const RSYNC: &str = "rsync -aHAX src/ copy/; echo more >> copy/numbers; rsync -aHAX --delete src/ copy/; rsync -a --inplace src/deep/big src/py/m2.py; diff -r src copy > d || true";
const GIT: &str = "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=pack.threads GIT_CONFIG_VALUE_0=1; git init -q -b main g; cp -a src g; cd g; git add .; git commit -qm one
    git mv src/py python; git commit -qm two; cd ..; git clone -q g h; git -C g gc -q; git -C h fsck --strict 2> fsck; git -C h log --format=%H > log; rm fsck";
const BUSYBOX: &str = "busybox sh -c 'busybox seq 2000 | busybox sort -rn > sorted; busybox cp -a src copy; busybox tar cf t.tar src/py/m1.py src/py/m2.py; busybox mkdir x
    busybox tar xf t.tar -C x; busybox sed -i s/file/FILE/ src/deep/er/f1; busybox rm -r copy/deep; busybox find . -name m1.py | busybox sort > found'";
const MAKE: &str = r#"mkdir build; cd build; for i in 1 2 3 4; do echo "int f$i(void) { return $i; }" > f$i.c; done
    printf 'int f1(void), f4(void);\nint main(void) { return f1() + f4() - 5; }\n' > main.c
    printf 'CFLAGS = -O0\nprogram: main.o f1.o f2.o f3.o f4.o\n\t$(CC) -o $@ $^\ninstall: program\n\tinstall -D program $(DESTDIR)/bin/program\n' > Makefile
    printf '\tinstall -m 644 -D Makefile $(DESTDIR)/share/doc/program/notes\n' >> Makefile
    make -s -j2; make -s install DESTDIR=$PWD/../installed; ../installed/bin/program; rm -r ../installed/share"#;
const GO: &str = "./go; cat made; cp go again; ./again; rm again";

/// Its runtime makes its system calls and threads without a C library; it runs another program.
const GO_SOURCE: &str = r#"package main
import ("fmt"; "os"; "os/exec"; "sync")
func check(err error) { if err != nil { panic(err) } }
func main() {
	var all sync.WaitGroup
	for i := 0; i < 4; i++ {
		all.Add(1)
		go func(i int) { defer all.Done(); check(os.WriteFile(fmt.Sprint("g", i), []byte("made\n"), 0640)) }(i)
	}
	all.Wait()
	check(os.Rename("g0", "made")); check(os.Chmod("src/numbers", 0600))
	out, err := exec.Command("sh", "-c", "echo child > by-child; cat made by-child").Output()
	check(err); fmt.Printf("%q\n", out)
}
"#;

/// As root and as an ordinary user. What is compared is of the image, or made where it has something already. (Files that have several
/// names in the image: [`super::processes`].)
#[test]
fn tools_do_as_natively_on_an_overlay() {
    let lab = Lab::in_memory();
    let tools = [
        ("bash", SHELL, &[][..]),
        ("tar", TAR, &[]),
        ("rsync", RSYNC, &[]),
        // It holds inode numbers and times of what it lists.
        ("git", GIT, &["g/.git/index", "h/.git/index"]),
        ("busybox", BUSYBOX, &[]),
        ("make", MAKE, &[]),
        ("go", GO, &[]),
    ];
    let (there, missing): (Vec<_>, Vec<_>) =
        tools.into_iter().partition(|(tool, ..)| skip::has(tool));
    missing.iter().for_each(|(tool, ..)| skip::say(&format!("no {tool}")));
    let program = lab.dir().join("go");
    if there.iter().any(|(tool, ..)| *tool == "go") {
        std::fs::write(lab.path("main.go"), GO_SOURCE).unwrap();
        let _ = lab.native(&format!(
            "CGO_ENABLED=0 GO111MODULE=off go build -o {} main.go",
            program.display()
        ));
    }
    let mut prepare = String::new();
    for (user, (tool, ..)) in
        [("root", "0"), ("user", USER)].into_iter().flat_map(|u| there.iter().map(move |t| (u, t)))
    {
        let (name, id) = user;
        let more = if *tool == "go" { format!("cp {} .", program.display()) } else { ":".into() };
        prepare += &format!(
            "(mkdir -p {name}/{tool}; cd {name}/{tool}; {SOURCES}; rm src/deep/hard; touch -d @1000000000 src/deep; {more}; chown -R {id}:{id} .)\n"
        );
    }
    let pair = [Container::new(&prepare, 256), Container::new(&prepare, 256)];
    let [Some(native), Some(ours)] = &pair else {
        return skip::say("no overlay can be mounted over the root directory here");
    };
    // `doctor` finds no fault with that, and says what is not to be had.
    for as_user in [false, true] {
        let doctor = ours.txos(as_user, &["doctor"]).run().expect(0);
        let text = doctor.text();
        assert!(
            !text.contains("problem") && text.contains("view                  the library's"),
            "{doctor:?}"
        );
        assert!(
            text.contains("--memory") && text.contains("versioned whole in the library's view"),
            "{doctor:?}"
        );
    }
    let chosen = ours.txos(false, &["-v", "run", "--", "true"]).run().expect(0);
    let _ = chosen.says("the root directory is an overlay: the view is the library's");
    for as_user in [false, true] {
        let name = if as_user { "user" } else { "root" };
        for (tool, script, without) in &there {
            let script = format!("cd {name}/{tool}; {script}");
            let directory = format!("{PLACE}/{name}/{tool}");
            Work { tool, script: &script, directories: &[&directory], without }
                .does(native, ours, as_user);
        }
        types(ours, as_user, &format!("{name}/bash"));
    }
}

/// Somebody types to a shell: a job is stopped and goes on, another one is interrupted, and what they changed is the transaction's.
fn types(ours: &Container, as_user: bool, place: &str) {
    const SHELL: [&str; 7] = ["run", "-q", "--", "bash", "--norc", "--noprofile", "-i"];
    let (mut pty, inner) = Pty::open(200, 40);
    let running = ours.txos(as_user, &SHELL).env("PS1", "ready> ").terminal(inner).start();
    let mut types = |text: &str, answer: &str| {
        pty.type_in(text);
        pty.expect(answer);
    };
    types("", "ready> ");
    types(
        &format!("cd {place}; echo one > typed; echo in $PWD\n"),
        &format!("in /{PLACE}/{place}"),
    );
    // What is typed is shown, too: what a command says is written otherwise there.
    types("sh -c \"echo st''arted; exec tee later\"\n", "started");
    types("two\n", "two\r\ntwo");
    types("\x1a", "Stopped");
    types("", "ready> ");
    types("jobs\n", "Stopped");
    types("", "ready> ");
    types("fg\n", "exec tee later");
    types("three\n", "three\r\nthree");
    types("\x04", "ready> ");
    types("sh -c \"echo sl''eeping; exec sleep 1000\"\n", "sleeping");
    types("\x03", "ready> ");
    types("echo st''atus $?; exit 0\n", "status 130");
    let _ = pty.rest();
    let done = running.wait().expect(0);
    let read = |file: &str| std::fs::read_to_string(ours.path(format!("{PLACE}/{place}/{file}")));
    assert_eq!(read("typed").unwrap(), "one\n", "{done:?}");
    assert_eq!(read("later").unwrap(), "two\nthree\n", "{done:?}");
}

/// A tool, as which users it works, its script, what is compared besides its own place, and what of that is not.
type Fetched<'a> = (&'a str, &'a [bool], &'a str, &'a [&'a str], &'a [&'a str]);

/// What fetches what it installs, or builds for long, in the same containers: with `--long packages`.
#[test]
fn packages_are_as_natively_on_an_overlay() {
    require!(skip::long("packages"), "only with --long packages");
    // With lists of its own, so that the machine's sources stay as they are.
    let fetch = "
        mkdir -p apt/lists/partial apt/cache/archives/partial apt/parts
        cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | sed -n 's/^deb /deb-src /p' > apt/sources.list
        cat /etc/apt/sources.list.d/*.sources 2>/dev/null | sed 's/^Types:.*/Types: deb-src/' > apt/parts/src.sources
        o=\"-o Dir::Etc::SourceList=$PWD/apt/sources.list -o Dir::Etc::SourceParts=$PWD/apt/parts \
            -o Dir::State::Lists=$PWD/apt/lists -o Dir::Cache=$PWD/apt/cache -o APT::Sandbox::User=root\"
        apt-get $o update -qq && apt-get $o source -qq nano && mv nano-*/ nano-src";
    let lab = Lab::in_memory();
    let fetched = Invocation::shell(fetch).dir(lab.dir()).run();
    let has_nano = fetched.code() == 0;
    if !has_nano {
        skip::say(&format!("no source package can be fetched: {}", fetched.stderr));
    }
    let listed = "apt-get --print-uris download cowsay >/dev/null 2>&1 || apt-get update -qq; apt-get --print-uris download cowsay";
    let has_cowsay = Invocation::shell(listed).run().code() == 0
        && Invocation::new("dpkg-query").args(["-W", "cowsay"]).run().code() != 0;
    let cargo = "/root/.cargo/bin/cargo";
    let can_have = |tool: &str| match tool {
        "apt" => has_cowsay,
        "nano" => has_nano && Path::new("/usr/include/curses.h").exists(),
        "pip" => {
            Invocation::new("/usr/bin/python3").args(["-c", "import ensurepip, venv"]).run().code()
                == 0
        }
        "cargo" => Path::new(cargo).exists(),
        _ => skip::has(tool),
    };
    let build = "./configure -q --disable-nls; make -s -j2; make -s install DESTDIR=$PWD/installed";
    let build_with_cargo = "export PATH=/root/.cargo/bin:$PATH; cargo init -q --vcs none --name small c; cd c; cargo build -q --offline; target/debug/small > said";
    let place = |tool: &str, user: &str| format!("{PLACE}/{user}/{tool}");
    let both = &[false, true][..];
    let works: [Fetched<'_>; 5] = [
        (
            "apt",
            &[false],
            "apt-get install -y -qq --no-install-recommends cowsay; /usr/games/cowsay moo > said",
            &["etc", "usr/games", "usr/share/cowsay", "usr/share/doc/cowsay", "var/lib/dpkg"],
            &[],
        ),
        ("nano", both, build, &[], &["config.log", "config.status"]),
        (
            "pip",
            both,
            "/usr/bin/python3 -m venv v; v/bin/pip install -q --no-input six; v/bin/python -c 'import six; print(six.__version__)' > version",
            &[],
            &[],
        ),
        (
            "npm",
            both,
            "npm init -y > init; npm install --no-audit --no-fund left-pad > log; node -e 'require(\"left-pad\")(1, 3)'",
            &[],
            &["log"],
        ),
        ("cargo", &[false], build_with_cargo, &[], &["c/target"]),
    ];
    let mut prepare = String::new();
    for (user, id) in [("root", "0"), ("user", USER)] {
        for (tool, ..) in works {
            let source = lab.dir().join("nano-src");
            let copy = format!("cp -a {}/. {user}/nano", source.display());
            let copy = if tool == "nano" && has_nano { copy.as_str() } else { ":" };
            prepare +=
                &format!("(mkdir -p {user}/{tool}; {copy}; chown -R {id}:{id} {user}/{tool})\n");
        }
    }
    let pair = [Container::new(&prepare, 1024), Container::new(&prepare, 1024)];
    let [Some(native), Some(ours)] = &pair else {
        return skip::say("no overlay can be mounted over the root directory here");
    };
    for (tool, users, script, directories, without) in works {
        if !can_have(tool) {
            skip::say(&format!("{tool} can't be had here"));
            continue;
        }
        for &as_user in users {
            let user = if as_user { "user" } else { "root" };
            let own = place(tool, user);
            let directories = [directories, &[own.as_str()]].concat();
            let script = format!("cd /{own}; {script}");
            Work { tool, script: &script, directories: &directories, without }
                .does(native, ours, as_user);
        }
    }
}
