//! Real software, installed and built for real; everything is undone at the end.

use std::path::Path;

use txos_testkit::deb::Deb;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::tree::{Tolerance, overlay_traces};
use txos_testkit::{Invocation, Lab, Rendezvous, Tree, require, require_some, skip, system};

/// What dpkg knows; it must be as before at the end of a test.
struct Packages {
    status: Vec<u8>,
    _guard: system::Guard,
}

impl Packages {
    fn now() -> Packages {
        let guard = system::changing();
        Packages { status: std::fs::read("/var/lib/dpkg/status").unwrap(), _guard: guard }
    }

    #[track_caller]
    fn expect_as_before(&self) {
        let now = std::fs::read("/var/lib/dpkg/status").unwrap();
        assert!(now == self.status, "dpkg's status has changed");
    }
}

/// Removes what a failed test may have left installed.
struct Purge<'a>(&'a [&'a str]);

impl Drop for Purge<'_> {
    fn drop(&mut self) {
        for package in self.0 {
            if installed(package) {
                let words = ["--purge", "--force-all", package];
                let _ = Invocation::new("dpkg").args(words).run();
            }
            if package.starts_with("txos-test-") {
                let _ = std::fs::remove_dir_all(Path::new("/opt").join(package));
                let _ = std::fs::remove_file(format!("/etc/{package}.conf"));
            }
        }
    }
}

fn installed(package: &str) -> bool {
    Invocation::new("dpkg-query").args(["-W", package]).run().code() == 0
}

fn online() -> bool {
    skip::has("apt-get")
        && Invocation::shell(
            "apt-get --print-uris download hostname >/dev/null 2>&1 || apt-get update -qq",
        )
        .run()
        .code()
            == 0
}

#[test]
fn a_package_from_the_archive() {
    let lab = Lab::new();
    let packages = Packages::now();
    require!(online(), "no package archive can be reached");
    let package = ["cowsay", "sl", "hello", "figlet"].into_iter().find(|p| !installed(p));
    let package = require_some!(package, "every candidate is installed here");
    let _purge = Purge(&[package]);
    let install = |options: &[&str], tail: &str| {
        let script = format!(
            "apt-get update -qq && apt-get install -y --no-install-recommends {package} && {tail}"
        );
        lab.whole(options, &script).env("DEBIAN_FRONTEND", "noninteractive").run()
    };
    // It is installed, and then the rest of the work fails.
    let done = install(&[], &format!("dpkg -s {package} && false"));
    require!(
        !done.text().contains("Unable to fetch") && done.code() != 100,
        "the archive fails: {done:?}"
    );
    let _ = done.expect(1).says("rolled back");
    assert!(!installed(package));
    packages.expect_as_before();
    // In a pending transaction it can be tried.
    let _ = install(&["--keep"], "true").expect(0);
    assert!(!installed(package));
    let list = lab.txos(["exec", "@", "--", "dpkg", "-L", package]).run().expect(0).text();
    let program =
        list.lines().find(|l| l.contains("/games/") || l.contains("/bin/")).unwrap_or("/bin/true");
    assert!(!Path::new(program).exists() || program == "/bin/true");
    let _ = lab.txos(["abort", "@"]).run().expect(0);
    // For real; and undone.
    let _ = install(&["--retry", "3"], "true").expect(0).says("committed");
    assert!(installed(package));
    assert!(Path::new(program).exists());
    let _ = Invocation::new("dpkg").args(["--verify", package]).run().expect(0);
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    assert!(!installed(package) && (program == "/bin/true" || !Path::new(program).exists()));
    packages.expect_as_before();
    lab.expect_clean();
}

#[test]
fn maintainer_scripts() {
    let lab = Lab::new();
    require!(skip::has("dpkg-deb"), "no dpkg-deb");
    let packages = Packages::now();
    let name = "txos-test-scripts";
    let _purge = Purge(&[name]);
    let base = Deb {
        name,
        version: "1",
        files: &[("/etc/txos-test-scripts.conf", "1\n"), ("/opt/txos-test-scripts/data", "1\n")],
        scripts: &[("postinst", "echo made > /opt/txos-test-scripts/by-script")],
        ..Deb::default()
    };
    let good = base.build(lab.dir());
    let failing = [("postinst", "echo half > /opt/txos-test-scripts/by-script; exit 1")];
    let bad = Deb { version: "2", scripts: &failing, ..base.clone() }.build(lab.dir());
    let removal = [("prerm", "rm -f /opt/txos-test-scripts/by-script"), ("postrm", "exit 1")];
    let stubborn = Deb { version: "3", scripts: &removal, ..base.clone() }.build(lab.dir());
    let dpkg = |options: &[&str], words: &[&str]| {
        lab.txos(["run"]).args(options).args(["--retry", "3", "--", "dpkg"]).args(words).run()
    };
    // dpkg alone leaves a package whose script fails half installed.
    let _ = dpkg(&[], &["-i", bad.to_str().unwrap()]).expect(1).says("rolled back");
    assert!(!Path::new("/opt/txos-test-scripts").exists() && !installed(name));
    packages.expect_as_before();
    let _ = dpkg(&[], &["-i", good.to_str().unwrap()]).expect(0);
    assert_eq!(std::fs::read_to_string("/opt/txos-test-scripts/by-script").unwrap(), "made\n");
    let first = lab.newest();
    // An upgrade that fails leaves the old version as it was.
    let _ = dpkg(&[], &["-i", bad.to_str().unwrap()]).expect(1);
    assert_eq!(std::fs::read_to_string("/opt/txos-test-scripts/by-script").unwrap(), "made\n");
    let version =
        Invocation::new("dpkg-query").args(["-W", "-f", "${Version} ${Status}", name]).run();
    assert_eq!(version.text(), "1 install ok installed");
    // A removal that fails, too.
    let _ = dpkg(&[], &["-i", stubborn.to_str().unwrap()]).expect(0);
    let second = lab.newest();
    let _ = dpkg(&[], &["--purge", name]).expect(1);
    assert!(Path::new("/opt/txos-test-scripts/data").exists());
    // And back, step by step.
    let _ = lab.txos(["revert", &second]).run().expect(0);
    let _ = lab.txos(["revert", &first]).run().expect(0);
    assert!(!Path::new("/opt/txos-test-scripts").exists());
    assert!(!Path::new("/etc/txos-test-scripts.conf").exists());
    packages.expect_as_before();
    lab.expect_clean();
}

/// An upgrade of several packages is looked at, committed, and undone but for the log that has gone on since.
#[test]
fn an_upgrade_and_its_undo() {
    let lab = Lab::new();
    require!(skip::has("dpkg-deb"), "no dpkg-deb");
    let packages = Packages::now();
    let names = ["txos-test-up", "txos-test-along"];
    let _purge = Purge(&names);
    let log = Path::new("/var/log/txos-test-up.log");
    let _log = RemoveAtEnd(log);
    let debs = |version: &str, file: &str| {
        let script = format!("echo {version} >> {}", log.display());
        names.map(|name| {
            let (path, conf) = (format!("/opt/{name}/{file}"), format!("/etc/{name}.conf"));
            let files = [(path.as_str(), version), (conf.as_str(), version)];
            let scripts = [("postinst", script.as_str())];
            let deb = Deb { name, version, files: &files, scripts: &scripts, ..Deb::default() };
            deb.build(lab.dir()).display().to_string()
        })
    };
    let (old, new) = (debs("1", "old"), debs("2", "new"));
    let dpkg = |options: &[&str], debs: &[String]| {
        lab.txos(["run"]).args(options).args(["--", "dpkg", "-i"]).args(debs).run().expect(0)
    };
    let versions = || {
        names.map(|name| {
            let format = ["-W", "-f", "${Version} ${db:Status-Abbrev}", name];
            let new = Path::new("/opt").join(name).join("new").exists();
            let conf = std::fs::read_to_string(format!("/etc/{name}.conf")).unwrap();
            (Invocation::new("dpkg-query").args(format).run().text(), new, conf)
        })
    };
    let _ = dpkg(&["--name", "install"], &old);
    let before = versions();
    let _ = dpkg(&["--name", "upgrade", "--keep"], &new);
    assert_eq!(versions(), before);
    let shown = lab.txos(["diff", "--name-status", "upgrade"]).run().expect(0).text();
    for line in ["A\t/opt/txos-test-up/new", "D\t/opt/txos-test-along/old"] {
        assert!(shown.contains(line), "{shown}");
    }
    let _ = lab.txos(["commit", "upgrade"]).run().expect(0);
    let after = versions();
    assert!(after.iter().all(|(_, new, conf)| *new && conf == "2"), "{after:?}");
    // The log goes on.
    let _ = Invocation::shell(format!("echo more >> {}", log.display())).run().expect(0);
    let refused = lab.txos(["revert", "upgrade"]).run().expect(75);
    assert!(refused.stderr.contains("txos-test-up.log") && versions() == after, "{refused:?}");
    let undone = ["revert", "upgrade", "--skip-changed=/var/log/**"];
    let undone = lab.txos(undone).run().expect(0).says("left as it is: /var/log/txos-test-up.log");
    assert_eq!(versions(), before, "{undone:?}");
    assert_eq!(std::fs::read_to_string(log).unwrap(), "1\n1\n2\n2\nmore\n");
    let refused = lab.txos(["revert", "install"]).run().expect(75);
    assert!(refused.stderr.contains("txos-test-up.log"), "{refused:?}");
    let _ = lab.txos(["revert", "install", "--skip-changed=/var/log/**"]).run().expect(0);
    assert!(names.iter().all(|name| !installed(name) && !Path::new("/opt").join(name).exists()));
    packages.expect_as_before();
    lab.expect_clean();
}

/// Removes a file that a test makes outside its own place.
struct RemoveAtEnd<'a>(&'a Path);

impl Drop for RemoveAtEnd<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

#[test]
fn two_installs_at_once() {
    let lab = Lab::new();
    require!(skip::has("dpkg-deb"), "no dpkg-deb");
    let packages = Packages::now();
    let names = ["txos-test-one", "txos-test-two"];
    let _purge = Purge(&names);
    let debs = names.map(|name| {
        let file = format!("/opt/{name}/data");
        Deb { name, version: "1", files: &[(file.as_str(), "1\n")], ..Deb::default() }
            .build(lab.dir())
            .display()
            .to_string()
    });
    // Both change dpkg's database: the older one goes first.
    let mut meeting = Rendezvous::new();
    let first =
        lab.whole(&[], &format!("dpkg -i {} && {PAUSE}", debs[0])).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    let second = format!("dpkg -i {}", debs[1]);
    let _ = lab.whole(&["--wait", "0"], &second).run().expect(75).says("/var/lib/dpkg");
    assert!(!installed(names[1]) && !Path::new("/opt/txos-test-two").exists());
    meeting.go();
    let _ = first.wait().expect(0);
    assert!(installed(names[0]) && !installed(names[1]));
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    packages.expect_as_before();
    // With retries both arrive.
    let both: Vec<_> = debs
        .iter()
        .map(|deb| lab.whole(&["--retry", "10"], &format!("dpkg -i {deb}")).start())
        .collect();
    for run in both {
        let _ = run.wait().expect(0);
    }
    assert!(installed(names[0]) && installed(names[1]));
    let _ = lab.txos(["run", "--retry", "3", "--", "dpkg", "--purge"]).args(names).run().expect(0);
    assert!(!Path::new("/opt/txos-test-one").exists() && !Path::new("/opt/txos-test-two").exists());
    // dpkg writes its database anew each time: the same packages, perhaps in another order.
    for name in names {
        assert!(!installed(name));
    }
    lab.expect_clean();
}

/// Two installs into different roots have nothing to do with each other.
#[test]
fn two_unrelated_installs_at_once() {
    let lab = Lab::new();
    require!(skip::has("dpkg-deb"), "no dpkg-deb");
    let _stable = system::stable();
    let deb =
        Deb { name: "txos-test-root", version: "1", files: &[("/opt/x", "1\n")], ..Deb::default() }
            .build(lab.dir());
    let _ = lab.native("for r in a b; do mkdir -p $r/var/lib/dpkg/info $r/var/lib/dpkg/updates $r/var/lib/dpkg/triggers; : > $r/var/lib/dpkg/status; done");
    let install = |root: &str| {
        format!("dpkg --root={} --log=/dev/null -i {}", lab.path(root).display(), deb.display())
    };
    let mut meeting = Rendezvous::new();
    let first =
        lab.whole(&[], &format!("{} && {PAUSE}", install("a"))).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    let _ = lab.whole(&[], &install("b")).run().expect(0);
    meeting.go();
    let _ = first.wait().expect(0);
    assert_eq!(lab.read("a/opt/x"), "1\n");
    assert_eq!(lab.read("b/opt/x"), "1\n");
    assert_eq!(overlay_traces(lab.tree()), [""; 0]);
    lab.expect_clean();
}

#[test]
fn make_install_of_a_source_package() {
    let lab = Lab::new();
    require!(
        skip::has("make") && skip::has("cc") && skip::has("dpkg-source"),
        "no make, cc or dpkg-source"
    );
    let _stable = system::stable();
    // With lists of its own, so that the machine's sources stay as they are.
    let fetch = "
        mkdir -p ../apt/lists/partial ../apt/cache/archives/partial ../apt/parts
        cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | sed -n 's/^deb /deb-src /p' > ../apt/sources.list
        cat /etc/apt/sources.list.d/*.sources 2>/dev/null | sed 's/^Types:.*/Types: deb-src/' > ../apt/parts/src.sources
        o=\"-o Dir::Etc::SourceList=$PWD/../apt/sources.list -o Dir::Etc::SourceParts=$PWD/../apt/parts \
            -o Dir::State::Lists=$PWD/../apt/lists -o Dir::Cache=$PWD/../apt/cache -o APT::Sandbox::User=root\"
        apt-get $o update -qq && apt-get $o source -qq tree && mv tree-*/ src && make -s -C src";
    let fetched = Invocation::shell(fetch).dir(lab.tree()).run();
    require!(fetched.code() == 0, "no source package can be fetched: {}", fetched.stderr);
    let install = |prefix: &Path| {
        format!("make -s -C src PREFIX={0} MANDIR={0}/share/man install", prefix.display())
    };
    let (native, ours) = (lab.path("native"), lab.path("ours"));
    std::fs::create_dir(&native).unwrap();
    std::fs::create_dir(&ours).unwrap();
    let _ = lab.native(&install(&native));
    let _ = lab.whole(&[], &format!("{}; exit 1", install(&ours))).run().expect(1);
    assert_eq!(ours.read_dir().unwrap().count(), 0);
    let _ = lab.whole(&[], &install(&ours)).run().expect(0);
    let tolerance = Tolerance { now_from: None, times: true, links: false };
    Tree::of(&native).expect(&Tree::of(&ours), tolerance, "not as installed natively");
    let program = ours.join("bin/tree");
    let _ = Invocation::new(program).arg(lab.tree()).run().expect(0);
    // The build in a transaction, too.
    let _ = lab
        .whole(&[], "make -s -C src clean && make -s -j2 -C src && test -x src/tree")
        .run()
        .expect(0);
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    let _ = Invocation::new(lab.path("src/tree")).arg("--version").run().expect(0);
    lab.expect_clean();
}

#[test]
fn a_python_environment() {
    let lab = Lab::new();
    require!(
        Invocation::shell("python3 -c 'import venv, ensurepip'").run().code() == 0,
        "no python3-venv"
    );
    let _stable = system::stable();
    let _ = lab.whole(&[], "python3 -m venv env").run().expect(0);
    let python = lab.path("env/bin/python");
    let _ = Invocation::new(&python)
        .args(["-c", "import sys; assert sys.prefix != sys.base_prefix"])
        .run()
        .expect(0);
    let probe = lab.whole(&["--dry-run"], "env/bin/pip install -q --no-input six").run();
    require!(probe.code() == 0, "no package registry can be reached: {}", probe.stderr);
    let before = Tree::of(lab.tree());
    let _ = lab.whole(&[], "env/bin/pip install -q --no-input six && exit 5").run().expect(5);
    before.expect_same(&Tree::of(lab.tree()));
    let _ = lab.whole(&[], "env/bin/pip install -q --no-input six").run().expect(0);
    let _ = Invocation::new(&python).args(["-c", "import six"]).run().expect(0);
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    before.expect_same(&Tree::of(lab.tree()));
    lab.expect_clean();
}

#[test]
fn git_repositories() {
    let lab = Lab::new();
    require!(skip::has("git"), "no git");
    let setting = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null \
        GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.invalid GIT_COMMITTER_NAME=a \
        GIT_COMMITTER_EMAIL=a@example.invalid GIT_AUTHOR_DATE=@1000000000 GIT_COMMITTER_DATE=@1000000000";
    let script = format!(
        "set -e; {setting}
        git init -q -b main repo; cd repo
        for i in 1 2 3 4 5 6 7 8; do seq $i 200 > file$i; git add .; git commit -q -m $i; done
        git checkout -q -b topic HEAD~4; echo topic > topic; git add .; git commit -q -m topic
        git rebase -q main; git checkout -q main; git merge -q --no-ff -m merge topic
        git tag v1; git repack -q -a -d; git gc -q --prune=now; git stash -q 2>/dev/null || true
        cd ..; git clone -q repo clone; git -C clone fsck --strict 2>&1; git -C clone log --format=%H | sha256sum"
    );
    let native = lab.nested("native");
    let expected = native.native(&script).text();
    let done = lab.script(&[], &script).run().expect(0);
    assert_eq!(done.text(), expected);
    let check = "git -C repo fsck --strict && git -C repo status --porcelain && git -C repo log --format=%H | sha256sum";
    assert_eq!(lab.native(check).text(), native.native(check).text());
    let before = Tree::of(lab.tree());
    let bad = format!(
        "{setting}; cd repo; git reset -q --hard HEAD~3; git branch -D topic; git gc -q --prune=now; rm -rf .git/refs; exit 4"
    );
    let _ = lab.script(&[], &bad).run().expect(4);
    before.expect_same(&Tree::of(lab.tree()));
    // Somebody commits while a transaction works on the same repository.
    let mut meeting = Rendezvous::new();
    let mine = format!(
        "{setting}; cd repo; echo mine > mine; git add mine; git commit -q -m mine; {PAUSE}"
    );
    let running = lab.script(&[], &mine).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    let _ = lab.native(&format!(
        "{setting}; cd repo; echo theirs > theirs; git add theirs; git commit -q -m theirs"
    ));
    meeting.go();
    let _ = running.wait().expect(75);
    let last = lab.native("git -C repo log -1 --format=%s; git -C repo fsck --strict").text();
    assert_eq!(last, "theirs\n");
    lab.expect_clean();
}
