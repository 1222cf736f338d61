//! Installing packages.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{at, remove};
use crate::bench::{Bench, output, run};
use crate::measure::{Limit, Row};

const DPKG_MAX: f64 = 1.15;
const APT_MAX: f64 = 1.35;
const FILES: usize = 500;
/// Small packages without dependencies that are not installed everywhere.
const CANDIDATES: [&str; 6] = ["hello", "sl", "pv", "tree", "figlet", "cowsay"];

/// `dpkg -i` of a package made here, into a root of its own.
pub fn dpkg(bench: &Bench) -> Result<Vec<Row>, String> {
    let package = package(bench)?;
    let root = bench.at("root");
    let fresh = || {
        remove(&root)?;
        empty_root(&root)
    };
    let words = install(&root, &package);
    let words: Vec<&OsStr> = words.iter().map(OsString::as_os_str).collect();
    let pairs = bench.alternate("dpkg", true, fresh, || bench.both(&words))?;
    remove(&root)?;
    let what = format!("`dpkg -i` of a package of {FILES} files");
    Ok(vec![Row::new(what, &pairs, Limit::Times(DPKG_MAX))])
}

/// Makes a root into which `dpkg` can install.
pub fn empty_root(root: &Path) -> Result<(), String> {
    for dir in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "usr", "etc"] {
        at(root, fs::create_dir_all(root.join(dir)))?;
    }
    ["status", "available"]
        .iter()
        .try_for_each(|f| at(root, fs::write(root.join("var/lib/dpkg").join(f), "")))
}

/// `dpkg -i` of a package into a root of its own.
pub fn install(root: &Path, package: &Path) -> Vec<OsString> {
    let mut into = OsString::from("--root=");
    into.push(root);
    let words = ["--force-not-root", "--force-depends", "--log=/dev/null", "-i"];
    let words = words.iter().map(OsString::from);
    [OsString::from("dpkg"), into].into_iter().chain(words).chain([package.into()]).collect()
}

/// Debian's package of a server, without its maintainer's scripts, which are for a whole machine.
pub fn openssh(bench: &Bench) -> Result<PathBuf, String> {
    const NAME: &str = "openssh-server";
    let dir = bench.at(NAME);
    at(&dir, fs::create_dir_all(&dir))?;
    let mut download = apt_get(&dir, &["download", NAME]);
    run(download.current_dir(&dir)).map_err(|e| format!("downloading {NAME}: {e}"))?;
    let script = "dpkg-deb -R *.deb root && \
                  for f in preinst postinst prerm postrm config templates triggers; do \
                      rm -f root/DEBIAN/$f; \
                  done && dpkg-deb -b root package.deb";
    let mut repack = Command::new("sh");
    repack.args(["-c", script]).current_dir(&dir).stdout(Stdio::null()).stderr(Stdio::piped());
    run(&mut repack)?;
    Ok(dir.join("package.deb"))
}

/// A package of some hundred files of the usual sizes.
fn package(bench: &Bench) -> Result<PathBuf, String> {
    let dir = bench.at("package");
    let control = dir.join("DEBIAN");
    at(&control, fs::create_dir_all(&control))?;
    let text = "Package: txos-bench-package\nVersion: 1\nArchitecture: all\n\
                Maintainer: nobody <nobody@example.org>\nDescription: for measuring\n";
    at(&control, fs::write(control.join("control"), text))?;
    for i in 0..FILES {
        let below = dir.join(format!("usr/share/txos-bench-package/part{}", i / 20));
        at(&below, fs::create_dir_all(&below))?;
        let line = format!("line of file {i}, which says nothing in particular\n");
        at(&below, fs::write(below.join(format!("file{i}")), line.repeat(20 + i * 37 % 600)))?;
    }
    let package = bench.at("package.deb");
    let [mut build, _] = bench.both(&[
        "dpkg-deb".as_ref(),
        "--root-owner-group".as_ref(),
        "-b".as_ref(),
        dir.as_os_str(),
        package.as_os_str(),
    ]);
    run(&mut build)?;
    Ok(package)
}

/// `apt-get install` into the machine's own root, without the network, and removed again.
pub fn apt(bench: &Bench) -> Result<Vec<Row>, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("it needs root".into());
    }
    if !bench.whole() {
        return Err("it changes the root file system, and --dir is on another".into());
    }
    let archives = bench.at("archives");
    at(&archives, fs::create_dir_all(archives.join("partial")))?;
    let name = CANDIDATES
        .iter()
        .find(|name| installs_alone(&archives, name))
        .ok_or("none of the packages can be installed alone (no package lists?)")?;
    let mut download = apt_get(&archives, &["install", "-y", "--download-only", name]);
    run(&mut download).map_err(|e| format!("downloading {name}: {e}"))?;
    let purge = || run(&mut apt_get(&archives, &["purge", "-y", name])).map(drop);
    let both = || {
        let plain = apt_get(&archives, &["install", "-y", "--no-download", name]);
        let mut txos = bench.transaction(&[]);
        txos.arg(plain.get_program()).args(plain.get_args());
        [plain, txos]
    };
    let pairs = bench.alternate("apt", true, purge, both);
    purge()?;
    let what = format!("`apt-get install {name}`");
    Ok(vec![Row::new(what, &pairs?, Limit::Times(APT_MAX))])
}

/// Whether this package would be newly installed, and no other.
fn installs_alone(archives: &Path, name: &str) -> bool {
    let mut simulate = apt_get(archives, &["install", "-s", name]);
    let Ok(output) = output(simulate.stdout(Stdio::piped())) else { return false };
    let text = String::from_utf8_lossy(&output.stdout);
    let installed: Vec<&str> = text.lines().filter(|l| l.starts_with("Inst ")).collect();
    matches!(installed[..], [only] if only.starts_with(&format!("Inst {name} (")))
}

fn apt_get(archives: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    let mut cache = OsString::from("-oDir::Cache::archives=");
    cache.push(archives);
    command.arg("-qq").arg(cache).arg("-oDPkg::Lock::Timeout=120").arg("-oAPT::Sandbox::User=root");
    command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}
