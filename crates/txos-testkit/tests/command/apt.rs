//! The front door for apt (`dist/apt`): real apt in a small Debian, with packages made on the spot.

use std::fs;
use std::path::Path;

use txos_testkit::deb::Deb;
use txos_testkit::{
    DebianRoot, Done, Invocation, Lab, binary, process, require, require_some, skip,
};

/// What apt needs beyond the packages that every small Debian has.
const APT: [&str; 20] = [
    "apt",
    "gcc-12-base",
    "libapt-pkg6.0",
    "libcap2",
    "libffi8",
    "libgcrypt20",
    "libgmp10",
    "libgnutls30",
    "libgpg-error0",
    "libhogweed6",
    "libidn2-0",
    "liblz4-1",
    "libnettle8",
    "libp11-kit0",
    "libseccomp2",
    "libstdc++6",
    "libsystemd0",
    "libtasn1-6",
    "libudev1",
    "libunistring2",
];

/// Waits, for a minute, until another package is being installed as well: `/run` is the machine's.
const WAITS_FOR: &str = "touch /run/$DPKG_MAINTSCRIPT_PACKAGE; n=0
    while [ ! -e /run/OTHER ]; do sleep .05; n=$((n + 1)); [ $n -lt 1200 ] || exit 1; done";

/// A small Debian with apt, a repository of packages, txos, and the front door.
struct Machine(DebianRoot);

impl Machine {
    fn new(lab: &Lab) -> Option<Machine> {
        let more = [&APT[..], &["libxxhash0", "mawk", "perl-base"]].concat();
        let debian = DebianRoot::new(lab, &more)?;
        let repository = debian.path("repository");
        fs::create_dir(&repository).unwrap();
        let failing = [("postinst", "exit 1")];
        let (left, right) =
            (WAITS_FOR.replace("OTHER", "right"), WAITS_FOR.replace("OTHER", "left"));
        let (left, right) = ([("postinst", left.as_str())], [("postinst", right.as_str())]);
        let files = |name: &str| (format!("/opt/{name}/data"), format!("/etc/{name}.conf"));
        for (name, scripts) in [
            ("one", &[][..]),
            ("two", &[]),
            ("bad", &failing[..]),
            ("left", &left),
            ("right", &right),
            ("greedy", &[]),
        ] {
            let (mut data, conf) = files(name);
            if name == "greedy" {
                // It belongs to another one.
                data = files("one").0;
            }
            let files = [(data.as_str(), "1\n"), (conf.as_str(), "1\n")];
            let deb = Deb { name, version: "1", files: &files, scripts, ..Deb::default() };
            let file = deb.build(lab.dir());
            fs::copy(&file, repository.join(file.file_name().unwrap())).unwrap();
        }
        let index = Invocation::shell("dpkg-scanpackages . > Packages").dir(&repository).run();
        if index.code() != 0 {
            return None;
        }
        fs::create_dir_all(debian.path("etc/apt")).unwrap();
        fs::create_dir_all(debian.path("opt")).unwrap();
        fs::write(debian.path("etc/apt/sources.list"), "deb [trusted=yes] file:/repository ./\n")
            .unwrap();
        for dir in ["var/cache/apt/archives/partial", "var/lib/apt/lists/partial", "var/log/apt"] {
            fs::create_dir_all(debian.path(dir)).unwrap();
        }
        process::copy_program(binary::txos(), debian.path("usr/bin/txos"));
        fs::create_dir_all(debian.path("usr/lib/txos")).unwrap();
        let door = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/apt");
        process::copy_program(door, debian.path("usr/lib/txos/txos-apt"));
        let machine = Machine(debian);
        (machine.sh("ln -s mawk /usr/bin/awk && awk 1 /dev/null").code() == 0).then_some(())?;
        (machine.0.sh("apt-get update").code() == 0).then_some(machine)
    }

    fn sh(&self, script: &str) -> Done {
        self.0.sh(script)
    }

    fn installed(&self) -> String {
        self.sh("dpkg-query -W -f '${Package}:${db:Status-Abbrev}\n' one two bad 2>/dev/null; ls /opt 2>/dev/null").text()
    }

    /// How many transactions there are.
    fn history(&self) -> usize {
        let log = self.sh("txos log --json").expect(0).json();
        log["transactions"].as_array().unwrap().len()
    }
}

#[test]
fn every_run_of_apt_is_one_transaction() {
    require!(skip::has("dpkg-deb") && skip::has("dpkg-scanpackages"), "no dpkg-dev");
    let lab = Lab::new();
    let machine = require_some!(Machine::new(&lab), "no small Debian with apt can be made here");
    let status = || fs::read(machine.0.path("var/lib/dpkg/status")).unwrap();
    let _ = machine.sh("/usr/lib/txos/txos-apt enable").expect(0);
    let before = status();
    // Looking makes none.
    let _ = machine
        .sh("apt-get -s install one && apt list --installed && apt-get -qs -y install one")
        .expect(0);
    assert_eq!((machine.history(), machine.installed()), (0, String::new()));
    // One that fails has not happened, with all that it had installed by then.
    let failed = machine.sh("apt-get -y install one bad").expect(100).says("rolled back");
    assert!(failed.text().contains("Setting up one"), "{failed:?}");
    assert_eq!((machine.installed(), status() == before), (String::new(), true));
    // One that succeeds can be undone.
    let _ = machine.sh("apt-get -y install one").expect(0).says("committed");
    assert!(machine.installed().starts_with("one:ii "), "{}", machine.installed());
    let log = machine.sh("txos log").expect(0).text();
    assert!(log.contains("apt-get -y install one"), "{log}");
    let _ = machine.sh("apt -y remove one").expect(0);
    assert!(machine.sh("ls /opt/one").code() != 0);
    let _ = machine.sh("txos revert apt").expect(0);
    assert!(machine.installed().starts_with("one:ii ") && machine.0.path("opt/one/data").exists());
    let _ = machine.sh("txos revert apt").expect(0);
    assert_eq!((machine.installed(), status() == before), (String::new(), true));
    // Within a transaction it belongs to that one.
    let _ = machine
        .sh("txos run -- sh -c 'apt-get -y install one && false'")
        .expect(1)
        .says_not("inner");
    assert_eq!(machine.installed(), "");
    // What else is there under these names stays, and so does apt without the front door.
    let _ = machine.sh("rm /usr/local/sbin/apt; echo other > /usr/local/sbin/apt").expect(0);
    let _ = machine
        .sh("/usr/lib/txos/txos-apt enable")
        .expect(1)
        .says("/usr/local/sbin/apt is another program");
    let _ = machine.sh("/usr/lib/txos/txos-apt disable").expect(0);
    assert_eq!(machine.sh("ls /usr/local/sbin").text(), "apt\n");
    let count = machine.history();
    let _ = machine.sh("apt-get -y install two").expect(0).says_not("txos");
    assert_eq!(machine.history(), count);
}

/// Two at once both arrive, one after the other.
#[test]
fn two_runs_of_apt_at_once() {
    require!(skip::has("dpkg-deb") && skip::has("dpkg-scanpackages"), "no dpkg-dev");
    let lab = Lab::new();
    let machine = require_some!(Machine::new(&lab), "no small Debian with apt can be made here");
    let _ = machine.sh("/usr/lib/txos/txos-apt enable").expect(0);
    let both: Vec<_> = ["one", "two"]
        .map(|name| machine.0.command(&["apt-get", "-y", "install", name]).start())
        .into();
    for run in both {
        let _ = run.wait().expect(0).says("committed");
    }
    assert_eq!(machine.installed(), "one:ii \ntwo:ii \none\ntwo\n");
    let _ = machine.sh("apt-get check").expect(0);
}

/// Two at once, of packages that share nothing, work at the same time: each waits for the other's. dpkg's database has
/// both in the end, the log too, and each can be undone by itself.
#[test]
fn two_runs_of_apt_at_the_same_time() {
    require!(skip::has("dpkg-deb") && skip::has("dpkg-scanpackages"), "no dpkg-dev");
    let lab = Lab::new();
    let machine = require_some!(Machine::new(&lab), "no small Debian with apt can be made here");
    let _ = machine.sh("/usr/lib/txos/txos-apt enable").expect(0);
    let before = machine.sh("dpkg -l | sort").text();
    let audit = || machine.sh("dpkg --audit; apt-get -qq check").expect(0).text();
    let sound = audit();
    let install = |names: [&str; 2]| {
        names.map(|name| {
            let words = ["env", "TXOS_APT_AT_ONCE=1", "apt-get", "-y", "install", name];
            machine.0.command(&words).start()
        })
    };
    for run in install(["left", "right"]) {
        let _ = run.wait().expect(0).says("committed").says_not("in its turn");
    }
    let packages = || {
        machine
            .sh("dpkg-query -W -f '${Package}:${db:Status-Abbrev}\n' left right; cd /opt; ls")
            .text()
    };
    assert_eq!(packages(), "left:ii \nright:ii \nleft\nright\n");
    assert_eq!(audit(), sound);
    let log = machine.sh("cat /var/log/apt/history.log").text();
    assert!(log.contains("Install: left") && log.contains("Install: right"), "{log}");
    assert_eq!(machine.sh("ls -A /var/lib/txos-apt").text(), "");
    // Packages that can't be there together: the second one hears what it would in its turn.
    let [one, greedy] = install(["one", "greedy"]).map(|run| run.wait());
    let codes = [one.code(), greedy.code()];
    assert!(codes == [0, 100] || codes == [100, 0], "{one:?}\n{greedy:?}");
    assert_eq!(audit(), sound);
    assert_eq!(machine.sh("ls /opt").text(), "left\none\nright\n");
    // What there is goes again, by both ways.
    let remove =
        "apt-get -y purge left one; dpkg -l greedy | grep -q ^ii && apt-get -y purge greedy";
    let _ = machine
        .sh(&format!("export TXOS_APT_AT_ONCE=1; {remove}; apt-get -y purge right"))
        .expect(0);
    assert_eq!(
        (machine.sh("dpkg -l | sort").text(), machine.sh("ls /opt").text()),
        (before, String::new())
    );
}
