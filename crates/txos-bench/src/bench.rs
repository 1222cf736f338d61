//! Where a benchmark runs: the built `txos`, a store and a directory of its own.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::measure::Pair;

/// The status of a transaction that conflicted with somebody else.
const CONFLICT: i32 = 75;
/// Where a file system in memory is, if no other is named.
const MEMORY: &str = "/dev/shm";
/// How often pairs are measured again because of a conflict, or because something else (another
/// package manager) was in the way.
const FAILED_MAX: usize = 5;
/// How long the background may take to delete what was discarded.
const TRASH_PATIENCE: Duration = Duration::from_secs(60);

/// The place of a run of benchmarks. Everything in it is removed at its end.
#[derive(Debug)]
pub struct Bench {
    dir: PathBuf,
    txos: PathBuf,
    me: PathBuf,
    quick: bool,
    pairs: usize,
    pictures: Option<PathBuf>,
    others: Vec<(String, PathBuf)>,
    memory: PathBuf,
    rival: Option<PathBuf>,
}

impl Bench {
    /// Makes the place.
    pub fn new(
        txos: Option<PathBuf>,
        base: &Path,
        quick: bool,
        pairs: Option<usize>,
    ) -> Result<Self, String> {
        let me = std::env::current_exe().map_err(|e| format!("finding this program: {e}"))?;
        let txos = match txos {
            Some(txos) => txos,
            None => built(&me, "txos-cli", "txos")?,
        };
        let txos = txos.canonicalize().map_err(|e| {
            format!("{}: {e}; build it, or name another with --txos", txos.display())
        })?;
        let base = base.canonicalize().map_err(|e| format!("{}: {e}", base.display()))?;
        remove_stale(&base);
        remove_stale(Path::new(MEMORY));
        let dir = base.join(format!("txos-bench-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let pairs = pairs.unwrap_or(if quick { 3 } else { 5 }).max(1);
        let bench = Bench {
            dir,
            txos,
            me,
            quick,
            pairs,
            pictures: None,
            others: Vec::new(),
            memory: MEMORY.into(),
            rival: None,
        };
        for name in ["store", "work"] {
            let path = bench.dir.join(name);
            fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(bench.store(), fs::Permissions::from_mode(0o700))
            .map_err(|e| format!("{}: {e}", bench.store().display()))?;
        Ok(bench)
    }

    /// Names other file systems on which the papers' benchmarks are to run as well, and a checkout of
    /// `try` to measure beside.
    pub fn compare_with(&mut self, others: Vec<(String, PathBuf)>, rival: Option<PathBuf>) {
        self.others = others;
        self.rival = rival;
    }

    /// Names a directory on a file system in memory.
    pub fn remember_in(&mut self, memory: PathBuf) {
        self.memory = memory;
    }

    /// A directory on a file system in memory.
    pub fn memory(&self) -> &Path {
        &self.memory
    }

    /// Other file systems, by name and directory.
    pub fn others(&self) -> &[(String, PathBuf)] {
        &self.others
    }

    /// A checkout of `try`.
    pub fn rival(&self) -> Option<PathBuf> {
        self.rival.clone()
    }

    /// Says where pictures go; without a place, into the documentation, but not if it is only for a
    /// look.
    pub fn draw_in(&mut self, place: Option<PathBuf>) {
        let documentation = || {
            let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
            (!self.quick && place.is_dir()).then_some(place)
        };
        self.pictures = place.or_else(documentation);
    }

    /// Where a picture of this name goes, if it is to be drawn.
    pub fn picture(&self, name: &str) -> Option<PathBuf> {
        self.pictures.as_ref().map(|place| place.join(name))
    }

    /// Whether it is only for a look.
    pub fn quick(&self) -> bool {
        self.quick
    }

    /// How many pairs are measured.
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// A number of files: a tenth of it when quick.
    pub fn files(&self, n: u64) -> u64 {
        if self.quick { n / 10 } else { n }
    }

    fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    /// A path in the directory of the benchmarks.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join("work").join(name)
    }

    /// The version of what is measured.
    pub fn version(&self) -> String {
        let output = Command::new(&self.txos).arg("--version").output();
        output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
    }

    /// The library of programs that use transactions, beside this program: a release build.
    pub fn library(&self) -> Result<PathBuf, String> {
        let library = built(&self.me, "txos-runtime", "libtxos.so")?;
        library
            .canonicalize()
            .map_err(|e| format!("{}: {e}; build it with --release", library.display()))
    }

    /// `txos` with these words, and with the store of this run.
    pub fn txos(&self, words: &[&str]) -> Command {
        let mut command = quiet(Command::new(&self.txos));
        command
            .args(words)
            .env("TXOS_STORE", self.store())
            .env_remove("TXOS_REALM")
            .env_remove("TXOS_LOG");
        command
    }

    /// `txos run` with these options; the command is to follow. On a mount of its own only that is
    /// versioned: nothing is to be left on others.
    pub fn transaction(&self, options: &[&str]) -> Command {
        let mut command = self.txos(&["run"]);
        if !self.whole() {
            command.arg("--scope").arg(self.mount().map(|mount| mount.at).unwrap_or_default());
        }
        command.args(options).arg("--");
        command
    }

    /// The same for work in a directory that may be on another mount.
    pub fn transaction_at(&self, dir: &Path, options: &[&str]) -> Command {
        let mut command = self.txos(&["run"]);
        match mount_of(dir) {
            Some(mount) if mount.at != "/" => {
                command.arg("--scope").arg(mount.at);
            }
            _ => {}
        }
        command.args(options).arg("--");
        command
    }

    /// Whether the whole tree is versioned.
    pub fn whole(&self) -> bool {
        self.mount().is_none_or(|mount| mount.at == "/")
    }

    /// A plain command, and the same in a transaction.
    pub fn both(&self, words: &[&OsStr]) -> [Command; 2] {
        let mut plain = quiet(Command::new(words.first().copied().unwrap_or_default()));
        plain.args(words.iter().skip(1));
        let mut txos = self.transaction(&[]);
        txos.args(words);
        [plain, txos]
    }

    /// This program as a measured command.
    pub fn work<'a>(&'a self, words: &[&'a OsStr]) -> Vec<&'a OsStr> {
        [self.me.as_os_str(), "work".as_ref()].into_iter().chain(words.iter().copied()).collect()
    }

    /// This program as one of several processes ([`crate::crew`]).
    pub fn member(&self, words: &[String]) -> Command {
        let mut command = Command::new(&self.me);
        command.arg("work").args(words);
        command
    }

    /// Flushes the file system of the benchmarks.
    pub fn flush(&self) -> Result<(), String> {
        let dir = File::open(&self.dir).map_err(|e| format!("{}: {e}", self.dir.display()))?;
        rustix::fs::syncfs(&dir).map_err(|e| format!("flushing {}: {e}", self.dir.display()))
    }

    /// Measures pairs in alternation: `reset` before each half, outside of what is measured. With
    /// `durable`, the plain command is followed by a flush, as the transaction's own is.
    pub fn alternate(
        &self,
        name: &str,
        durable: bool,
        mut reset: impl FnMut() -> Result<(), String>,
        mut commands: impl FnMut() -> [Command; 2],
    ) -> Result<Vec<Pair>, String> {
        self.pair_up(name, |bench| {
            let [mut plain, mut txos] = commands();
            reset()?;
            bench.flush()?;
            let start = Instant::now();
            run(&mut plain)?;
            if durable {
                bench.flush()?;
            }
            let plain = start.elapsed();
            reset()?;
            bench.tidy()?;
            bench.flush()?;
            let start = Instant::now();
            if run(&mut txos)? == CONFLICT {
                return Ok(None);
            }
            Ok(Some(Pair { plain, txos: start.elapsed() }))
        })
    }

    /// Measures pairs, after one that only warms up. A pair is `None` if somebody else got in the
    /// way of it: it is measured again.
    pub fn pair_up(
        &self,
        name: &str,
        mut pair: impl FnMut(&Self) -> Result<Option<Pair>, String>,
    ) -> Result<Vec<Pair>, String> {
        let mut pairs = Vec::new();
        let mut failed = 0;
        let mut warm = self.quick;
        while pairs.len() < self.pairs {
            eprintln!("{name}: pair {} of {}", pairs.len() + 1, self.pairs);
            let why = match pair(self) {
                Ok(Some(_)) if !warm => {
                    warm = true;
                    continue;
                }
                Ok(Some(pair)) => {
                    pairs.push(pair);
                    continue;
                }
                Ok(None) => "a conflict".into(),
                Err(why) => why,
            };
            eprintln!("{name}: once more: {why}");
            failed += 1;
            if failed == FAILED_MAX {
                return Err(format!("gave up after {FAILED_MAX} failures, the last: {why}"));
            }
        }
        Ok(pairs)
    }

    /// Removes the history and waits for the trash: neither is to meet the next measurement.
    pub fn tidy(&self) -> Result<(), String> {
        run(&mut self.txos(&["gc", "--keep", "0", "-q"]))?;
        let trash = self.store().join("trash");
        let start = Instant::now();
        while fs::read_dir(&trash).is_ok_and(|mut names| names.next().is_some()) {
            if start.elapsed() > TRASH_PATIENCE {
                return Err(format!("{} is not emptied", trash.display()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The name of the file system.
    pub fn file_system(&self) -> String {
        self.mount().map(|mount| mount.kind).unwrap_or_default()
    }

    /// The device it is on.
    pub fn device(&self) -> String {
        self.mount().map(|mount| mount.device).unwrap_or_default()
    }

    fn mount(&self) -> Option<Mount> {
        mount_of(&self.dir)
    }
}

fn mount_of(dir: &Path) -> Option<Mount> {
    let text = fs::read_to_string("/proc/self/mounts").ok()?;
    let mounts = text.lines().filter_map(|line| {
        let mut fields = line.split(' ').map(str::to_owned);
        let (device, at, kind) = (fields.next()?, fields.next()?, fields.next()?);
        dir.starts_with(&at).then_some(Mount { device, at, kind })
    });
    mounts.max_by_key(|mount| mount.at.len())
}

/// A mounted file system.
#[derive(Debug)]
struct Mount {
    device: String,
    at: String,
    kind: String,
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("txos-bench: {} is left: {error}", self.dir.display());
        }
    }
}

/// A file beside this program, built anew if this program was started by `cargo run`.
fn built(me: &Path, package: &str, name: &str) -> Result<PathBuf, String> {
    let beside = me.with_file_name(name);
    let target = me.parent().and_then(Path::parent);
    if let (Some(cargo), Some(target)) = (std::env::var_os("CARGO"), target) {
        let mut build = Command::new(cargo);
        build.args(["build", "--release", "--quiet", "-p", package, "--target-dir"]).arg(target);
        build.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
        let status = build.status().map_err(|e| format!("{build:?}: {e}"))?;
        if !status.success() {
            return Err(format!("{name} can't be built"));
        }
        return Ok(target.join("release").join(name));
    }
    Ok(beside)
}

/// What a run that was killed has left.
pub fn remove_stale(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        // Realms are beside their place, and say so behind its number.
        let pid = name.to_str().and_then(|name| {
            let rest = name.strip_prefix("txos-bench-")?;
            rest.split('-').next()?.parse::<u32>().ok()
        });
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C.UTF-8");
    command
}

/// Runs a command that must succeed; a conflict is the caller's to judge.
pub fn run(command: &mut Command) -> Result<i32, String> {
    let output = output(command)?;
    match output.status.code() {
        Some(code @ (0 | CONFLICT)) => Ok(code),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().next_back().unwrap_or_default();
            Err(format!("{command:?}: {}: {last}", output.status))
        }
    }
}

/// Runs a command and gives what it printed.
pub fn output(command: &mut Command) -> Result<Output, String> {
    let child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    child.wait_with_output().map_err(|e| format!("{command:?}: {e}"))
}
