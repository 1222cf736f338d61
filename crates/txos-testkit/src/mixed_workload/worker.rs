//! The participants' program.
//!
//! | arguments | |
//! |---|---|
//! | `inside SITE NUMBER SEED COUNT THREADS` | transactions inside this program, which was started with the library |
//! | `single SITE NUMBER SEED COUNT 1` | the same, of one system call each |
//! | `careless SITE NUMBER SEED COUNT THREADS` | says that they are transactions, but begins none |
//! | `outside SITE NUMBER SEED COUNT 1` | plain calls |
//! | `command SITE NUMBER SEED COUNT 1 TXOS OPTION…` | transactions of `txos run` |
//! | `library SITE NUMBER SEED COUNT 1 TXOS OPTION…` | the same in the library's view |
//! | `perform TREE STEP…` | what it runs there |
//!
//! A count of 0 is as many as there is time for. `TXOS_COMMONS_PAUSE` is the longest pause between
//! two transactions, in microseconds; `TXOS_COMMONS_KILLS` of a hundred commands are killed;
//! with `TXOS_COMMONS_GATED` all of them close the gate.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::history::log::Writer;
use crate::history::{Op, Outcome};
use crate::random::Random;
use crate::realm_stress::cells::Cells;

use super::door::{self, Library};
use super::files::Files;
use super::keys::Door;
use super::plan::{Planner, Step};

/// Transactions after which what grows is left alone.
const EPOCH: u64 = 400;

/// Of a thread the participant's number: this much more than that of the one before.
const THREAD: u32 = 1 << 16;

/// The exit status of a command that wants to be rolled back, and of one that saw what can't go
/// together.
const ASKED: i32 = 9;
const ASTRAY: i32 = 3;

fn pause_max() -> u64 {
    std::env::var("TXOS_COMMONS_PAUSE").ok().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Where the participants of a scene find each other.
#[derive(Clone, Debug)]
pub struct Site {
    /// The shared counters' and histories' directory.
    pub dir: PathBuf,
}

impl Site {
    /// The tree.
    #[must_use]
    pub fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    /// The histories.
    #[must_use]
    pub fn histories(&self) -> PathBuf {
        self.dir.join("history")
    }
}

/// Runs a participant; gives its exit status.
///
/// # Panics
/// If its arguments are wrong, or what it needs is not there.
#[must_use]
pub fn main() -> u8 {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["perform", tree, steps @ ..] => perform(Path::new(tree), steps),
        [mode, site, number, seed, count, threads, rest @ ..] => {
            let number: u32 = number.parse().expect("a number");
            let (seed, count) = (seed.parse().expect("a seed"), count.parse().expect("a count"));
            let threads: u32 = threads.parse().expect("a number of threads");
            let site = Site { dir: PathBuf::from(site) };
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let (mode, site) = (*mode, site.clone());
                    scope.spawn(move || {
                        let number = number + thread * THREAD;
                        Participant::new(mode, site, number, seed, rest).run(count);
                    });
                }
            });
            0
        }
        _ => panic!("see the head of worker.rs"),
    }
}

enum How {
    Within(Library),
    Careless,
    Plainly,
    Command(Vec<String>),
    Library(Vec<String>),
}

struct Participant {
    site: Site,
    how: How,
    cells: Cells,
    log: Writer,
    files: Files,
    planner: Planner,
    pause: u64,
}

impl Participant {
    fn new(mode: &str, site: Site, number: u32, seed: u64, rest: &[&str]) -> Participant {
        let library = || Library::find().expect("the library is loaded");
        let words = || rest.iter().map(|&word| word.to_owned()).collect();
        let (door, how) = match mode {
            "inside" => (Door::Inside, How::Within(library())),
            "single" => (Door::Single, How::Within(library())),
            "careless" => (Door::Inside, How::Careless),
            "outside" => (Door::Outside, How::Plainly),
            "command" => (Door::Command, How::Command(words())),
            "library" => (Door::Library, How::Library(words())),
            _ => panic!("no mode {mode}"),
        };
        let participant = door.participant(number);
        let mut files = Files::new(&site.tree(), door == Door::Outside);
        if door == Door::Single || (door == Door::Inside && number.is_multiple_of(2)) {
            match &how {
                How::Within(library) => keep_cells(*library, &mut files),
                _ => files.keep_cells().expect("opening the cells"),
            }
        }
        Participant {
            how,
            cells: Cells::open(&site.dir),
            log: Writer::create(&site.histories(), participant).expect("a history"),
            files,
            planner: Planner::new(participant, seed),
            pause: pause_max(),
            site,
        }
    }

    fn run(&mut self, count: u64) {
        let mut n = 0;
        while self.cells.budget().load(Ordering::Relaxed) != 0 && (count == 0 || n < count) {
            let epoch = self.cells.progress().load(Ordering::Relaxed) / EPOCH;
            let plan = self.planner.plan(epoch);
            self.files.raw = self.planner.random.below(2) == 0;
            let mut planned = Vec::new();
            plan.iter().for_each(|step| step.writes(&mut planned));
            let id = self.log.invoke(&planned).expect("writing the history");
            let (outcome, ops) = self.attempt(&plan);
            self.log.complete(id, outcome, &ops).expect("writing the history");
            if outcome == Outcome::Committed {
                self.planner.learn(&ops);
            }
            self.cells.progress().fetch_add(1, Ordering::Relaxed);
            n += 1;
            if self.pause > 0 {
                // How many others there are in between is part of what is random here.
                let pause = self.planner.random.below(self.pause);
                std::thread::sleep(Duration::from_micros(pause));
            }
        }
    }

    fn attempt(&mut self, plan: &[Step]) -> (Outcome, Vec<Op>) {
        let asked = self.planner.random.below(20) == 0;
        let flags = match self.planner.random.below(20) {
            0 => door::DURABLE,
            1 | 2 => door::NONBLOCK,
            _ => 0,
        };
        match &self.how {
            How::Within(library) => within(*library, &self.files, plan, asked, flags),
            How::Careless | How::Plainly => match self.files.perform_all(plan) {
                Ok(ops) => (Outcome::Committed, ops),
                // What it did before that has been done, but an outsider does one thing only.
                Err(error) => {
                    unexpected(&error, "");
                    (Outcome::Aborted, Vec::new())
                }
            },
            How::Command(words) => {
                let (words, tree) = (words.clone(), self.site.tree());
                command(&words, &tree, plan, asked, &mut self.planner.random)
            }
            How::Library(words) => {
                let (words, tree) = (words.clone(), self.site.tree());
                library(&words, &tree, plan, asked, &mut self.planner.random)
            }
        }
    }
}

/// Errors by which a transaction learns that it has lost, or that it has seen what can't go together,
/// are no surprise.
fn unexpected(error: &io::Error, why: &str) {
    let known = [libc::ECANCELED, libc::ENOENT, libc::EEXIST];
    if !error.raw_os_error().is_some_and(|n| known.contains(&n))
        && !matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound)
    {
        eprintln!("unexpected: {error} {why}");
    }
}

/// In a transaction: an outsider might open what a publish has put there that is then undone, and
/// would have it open ever after.
fn keep_cells(library: Library, files: &mut Files) {
    let patience = Instant::now() + crate::wait::PATIENCE;
    loop {
        library.begin(0).expect("sys_xbegin");
        let error = match files.keep_cells() {
            Ok(()) => match library.end() {
                Ok(()) => return,
                Err(error) => error,
            },
            Err(error) => {
                library.abort();
                error
            }
        };
        files.forget_cells();
        assert!(Instant::now() < patience, "opening the cells: {error}");
    }
}

fn within(
    library: Library,
    files: &Files,
    plan: &[Step],
    asked: bool,
    flags: i32,
) -> (Outcome, Vec<Op>) {
    if let Err(error) = library.begin(flags) {
        eprintln!("unexpected: sys_xbegin: {error}");
        return (Outcome::Aborted, Vec::new());
    }
    match files.perform_all(plan) {
        Ok(ops) if !asked => match library.end() {
            Ok(()) => (Outcome::Committed, ops),
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                eprintln!("unfinished: {}", library.why());
                (Outcome::Indeterminate, Vec::new())
            }
            Err(error) => {
                unexpected(&error, &library.why());
                (Outcome::Aborted, Vec::new())
            }
        },
        Ok(_) => {
            library.abort();
            (Outcome::Aborted, Vec::new())
        }
        Err(error) => {
            unexpected(&error, &library.why());
            library.abort();
            (Outcome::Aborted, Vec::new())
        }
    }
}

/// How a command is killed.
enum Kill {
    /// Before or after a step of the commit.
    AtStep(String),
    /// After so many microseconds: `txos` itself, or one of the processes below it.
    After(u64, bool),
}

impl Kill {
    /// One, if this command is to be killed.
    fn of(random: &mut Random) -> Option<Kill> {
        let kills: u64 =
            std::env::var("TXOS_COMMONS_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
        (random.below(100) < kills).then(|| match random.below(4) {
            0 | 1 => Kill::AtStep(format!(
                "{}@{}",
                random.pick(&["kill", "killafter"]),
                1 + random.below(80)
            )),
            n => Kill::After(random.below(40_000), n == 2),
        })
    }
}

fn command(
    words: &[String],
    tree: &Path,
    plan: &[Step],
    asked: bool,
    random: &mut Random,
) -> (Outcome, Vec<Op>) {
    let kill = Kill::of(random);
    let Some((program, options)) = words.split_first() else { panic!("no command") };
    let own = std::env::current_exe().expect("its own name");
    let mut run = Command::new(program);
    run.args(options).args(["-q", "run"]);
    let gated = std::env::var_os("TXOS_COMMONS_GATED").is_some_and(|set| !set.is_empty());
    let way = if gated { 3 + random.below(7) } else { random.below(10) };
    if way > 0 {
        run.arg("--scope").arg(tree);
    }
    if gated {
        // A command that ran again would hide that its first publish was undone.
        run.args(["--retry", "0"]);
    }
    match way {
        0 => drop(run.arg("--in-process")),
        1 => drop(run.args(["--keep-inode", "list-*"])),
        2 => drop(run.arg("--no-gate").arg("--no-durable")),
        3 => {}
        _ => drop(run.arg("--no-durable")),
    }
    run.arg("--").arg(own).arg("perform").arg(tree).args(plan.iter().map(Step::encode));
    if asked {
        run.arg("abort");
    }
    let (status, said, complained) = carry_out(run, kill, random);
    match end_of(status, &said, &complained) {
        // There the one that is killed may be the one that commits.
        (Outcome::Aborted, _) if way == 0 && status.code() == Some(137) => {
            (Outcome::Indeterminate, Vec::new())
        }
        ended => ended,
    }
}

/// A command in the library's view: of one process, or below a shell that waits for it; it decides by itself, or `txos` does.
fn library(
    words: &[String],
    tree: &Path,
    plan: &[Step],
    asked: bool,
    random: &mut Random,
) -> (Outcome, Vec<Op>) {
    let kill = Kill::of(random);
    let is_killed = kill.is_some();
    let Some((program, options)) = words.split_first() else { panic!("no command") };
    let own = std::env::current_exe().expect("its own name");
    let mut run = Command::new(program);
    run.args(options).args(["-q", "run", "--view", "library"]);
    if random.below(10) > 0 {
        run.arg("--scope").arg(tree);
    }
    match random.below(6) {
        0 => drop(run.args(["--retry", "2", "--hold-output"])),
        1 => drop(run.args(["--commit-on", "success", "--wait", "59"])),
        2 => {}
        _ => drop(run.arg("--no-durable")),
    }
    run.arg("--");
    match random.below(4) {
        0 => drop(run.args(["sh", "-c", "\"$@\"; exit $?", "sh"])),
        1 => {
            run.args(["perl", "-e", "exit(system(@ARGV) >> 8)"]);
        }
        _ => {}
    }
    run.arg(own).arg("perform").arg(tree).args(plan.iter().map(Step::encode));
    if asked {
        run.arg("abort");
    }
    let (status, said, complained) = carry_out(run, kill, random);
    match status.code() {
        // The one that was killed may have been the one that commits: then recovery decides.
        Some(code) if is_killed && ![0, 75, ASKED, ASTRAY].contains(&code) => {
            (Outcome::Indeterminate, Vec::new())
        }
        _ => end_of(status, &said, &complained),
    }
}

/// Runs a command, and kills it if that is to be. How it ended, what it said, and what it complained of.
fn carry_out(
    mut run: Command,
    kill: Option<Kill>,
    random: &mut Random,
) -> (ExitStatus, String, String) {
    if let Some(Kill::AtStep(fault)) = &kill {
        run.env("TXOS_FAULT", fault);
    }
    let mut child = run
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starting a command");
    if let Some(Kill::After(micros, front)) = kill {
        let from = Instant::now();
        while from.elapsed() < Duration::from_micros(micros) {
            std::thread::sleep(Duration::from_micros(50));
        }
        let id = child.id().cast_signed();
        let victim = if front { Some(id) } else { below(id, random) };
        // It is not waited for yet, so the number is its own; one below may have ended meanwhile,
        // and a number is not given out again so soon.
        if let Some(pid) = victim.and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let (mut said, mut complained) = (String::new(), String::new());
    // What it says is short: it can't get stuck on the one while the other is read.
    let read = child.stdout.take().map(|mut out| out.read_to_string(&mut said));
    let _ = child.stderr.take().map(|mut out| out.read_to_string(&mut complained));
    let status = child.wait().expect("waiting for a command");
    read.transpose().expect("what a command says");
    (status, said, complained)
}

/// One of the processes below another.
fn below(pid: i32, random: &mut Random) -> Option<i32> {
    let mut all = vec![pid];
    let mut n = 0;
    while n < all.len() && n < 16 {
        let path = format!("/proc/{0}/task/{0}/children", all[n]);
        let children = std::fs::read_to_string(path).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        n += 1;
    }
    (all.len() > 1).then(|| *random.pick(&all[1..]))
}

fn end_of(status: ExitStatus, said: &str, complained: &str) -> (Outcome, Vec<Op>) {
    let outcome = match status.code() {
        Some(0) => Outcome::Committed,
        Some(75 | ASKED | ASTRAY | 137) => Outcome::Aborted,
        Some(_) if complained.contains("may hold a part") => Outcome::Indeterminate,
        // What the test did to it.
        Some(125) if complained.contains("was killed; they were all ended") => Outcome::Aborted,
        Some(code) => {
            eprintln!("unexpected: {code}: {complained}");
            Outcome::Aborted
        }
        None => Outcome::Indeterminate,
    };
    if outcome != Outcome::Committed {
        return (outcome, Vec::new());
    }
    let ops = said.lines().map(|line| decode(line).expect("what a command says")).collect();
    (outcome, ops)
}

/// Within `txos run`: carries out the steps, and says what it found.
fn perform(tree: &Path, steps: &[&str]) -> u8 {
    let mut files = Files::new(tree, false);
    let (mut plan, mut asked) = (Vec::new(), false);
    for step in steps {
        match Step::decode(step) {
            Some(step) => plan.push(step),
            None => asked = true,
        }
    }
    files.raw = plan.len() % 2 == 0;
    match files.perform_all(&plan) {
        Ok(ops) => {
            let mut text = String::new();
            ops.iter().for_each(|op| text.push_str(&encode(op)));
            if io::stdout().write_all(text.as_bytes()).is_err() {
                return ASTRAY as u8;
            }
            if asked { ASKED as u8 } else { 0 }
        }
        Err(error) => {
            unexpected(&error, "");
            ASTRAY as u8
        }
    }
}

fn encode(op: &Op) -> String {
    match op {
        Op::Append { key, value } => format!("append {key} {value}\n"),
        Op::Write { key, value } => format!("write {key} {value}\n"),
        Op::ReadRegister { key, value } => format!("read {key} {value}\n"),
        Op::ReadList { key, values } => {
            let values: Vec<String> = values.iter().map(u64::to_string).collect();
            format!("list {key} {}\n", values.join(" "))
        }
    }
}

fn decode(line: &str) -> Option<Op> {
    let mut words = line.split_whitespace();
    let what = words.next()?;
    let numbers: Vec<u64> = words.map(|n| n.parse().ok()).collect::<Option<_>>()?;
    Some(match (what, numbers.as_slice()) {
        ("append", [key, value]) => Op::Append { key: *key, value: *value },
        ("write", [key, value]) => Op::Write { key: *key, value: *value },
        ("read", [key, value]) => Op::ReadRegister { key: *key, value: *value },
        ("list", [key, values @ ..]) => Op::ReadList { key: *key, values: values.to_vec() },
        _ => return None,
    })
}
