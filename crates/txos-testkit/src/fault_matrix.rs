//! Every fault at every step of an operation: killed before and after it, and every errno, once and
//! from then on, at every step and at every look, for N = 1, 2, … until none fires any more. After
//! each: all or nothing, nothing left over, and the truth told.
//!
//! The whole matrix has thousands of points; a [`Budget`] says how many are tried, in an order that a
//! seed gives.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::process::{Done, Invocation};
use crate::random::{self, Random};
use crate::tree::{Tolerance, Tree};
use crate::wait::PATIENCE;
use crate::{Lab, realm_stress, skip};

/// How long the long mode tries the last steps alone.
const SWEEP_MAX: Duration = Duration::from_secs(120);

/// Errnos that a call may fail with, and their numbers.
pub const ERRNOS: [(&str, i32); 9] = [
    ("EIO", libc::EIO),
    ("ENOSPC", libc::ENOSPC),
    ("EDQUOT", libc::EDQUOT),
    ("EROFS", libc::EROFS),
    ("EACCES", libc::EACCES),
    ("ENOMEM", libc::ENOMEM),
    ("EMFILE", libc::EMFILE),
    ("EINTR", libc::EINTR),
    ("ESTALE", libc::ESTALE),
];

/// An operation, what it begins with, and what it leads to.
pub struct Case<'a> {
    /// Its name, for reports.
    pub name: &'a str,
    /// Makes the tree, and whatever has to be in the store.
    pub prepare: &'a dyn Fn(&Lab),
    /// The operation.
    pub operation: &'a dyn Fn(&Lab) -> Invocation,
    /// Makes natively, of what is prepared natively, the tree that it leads to; `None`: the same tree.
    pub native: Option<(&'a str, &'a str)>,
    /// The tree is somewhere in the middle when it begins: success promises one of the two, a failure
    /// nothing.
    pub half: bool,
    /// Somebody dead has a place in the realm when it begins.
    pub dead: bool,
    /// Exit statuses that say: nothing has changed.
    pub refusals: &'a [i32],
    /// What else must hold when all is over, by how the operation ended.
    pub afterwards: &'a dyn Fn(&Lab, &Done) -> Result<(), String>,
}

/// Nothing more to check.
///
/// # Errors
/// Never.
pub fn nothing_more(_: &Lab, _: &Done) -> Result<(), String> {
    Ok(())
}

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// So many points in the short mode.
    pub points: usize,
    /// So long in the long mode, unless `$TXOS_TEST_SECONDS` says something else.
    pub time: Duration,
}

/// What happens, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// As `TXOS_FAULT` wants it.
    pub fault: String,
    /// Its errno; none: it kills.
    errno: Option<i32>,
    /// From then on.
    on: bool,
    /// The step of an undisturbed run, in words.
    what: String,
}

impl Point {
    fn kills(&self) -> bool {
        self.errno.is_none() && !self.on
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Silent,
    Committed,
    Refused,
    Unfinished,
    KilledOld,
    KilledNew,
}

/// The operation with all that is known of it.
pub struct Matrix<'a> {
    lab: &'a Lab,
    case: Case<'a>,
    new: Option<Tree>,
    /// What an operation that begins in the middle leads to if it undoes.
    old: Option<Tree>,
    now_from: i64,
    times_are_moved: bool,
    steps: Vec<String>,
    looks: Vec<String>,
    places: u32,
    ends: BTreeMap<(&'static str, End), u64>,
}

impl<'a> Matrix<'a> {
    /// Runs the operation undisturbed, and counts its steps and looks.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    #[track_caller]
    pub fn new(lab: &'a Lab, case: Case<'a>) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let mut matrix = Matrix {
            lab,
            case,
            new: None,
            old: None,
            now_from: now.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(0)) - 1,
            times_are_moved: false,
            steps: Vec::new(),
            looks: Vec::new(),
            places: 0,
            ends: BTreeMap::new(),
        };
        if let Some((prepare, change)) = matrix.case.native {
            let place = matrix.place();
            let _ = place.native(prepare);
            matrix.old = matrix.case.half.then(|| Tree::of(place.tree()));
            let _ = place.native(change);
            matrix.new = Some(Tree::of(place.tree()));
        }
        let place = matrix.place();
        (matrix.case.prepare)(&place);
        let old = Tree::of(place.tree());
        let count = place.dir().join("count");
        let done = (matrix.case.operation)(&place).env("TXOS_FAULT_COUNT", &count).run();
        let _ = done.expect(0);
        match matrix.outcome(&place, &old) {
            Ok(new) if new || matrix.case.half => {}
            other => panic!("{}: undisturbed: {other:?}", matrix.case.name),
        }
        let text = std::fs::read_to_string(&count).unwrap_or_default();
        (matrix.steps, matrix.looks) = counted(&text);
        assert!(!matrix.steps.is_empty(), "no steps were counted: is this a debug build of txos?");
        matrix
    }

    /// What undoes the operation leaves its mark in the times of directories.
    pub fn times_are_moved(&mut self) {
        self.times_are_moved = true;
    }

    fn place(&mut self) -> Lab {
        self.places += 1;
        self.lab.nested(&format!("{}-{}", self.case.name.replace(' ', "-"), self.places))
    }

    /// Whether the tree is the new one; where there is no difference it is.
    fn outcome(&self, place: &Lab, old: &Tree) -> Result<bool, String> {
        let found = Tree::of(place.tree());
        let old = self.old.as_ref().unwrap_or(old);
        let of_old = Tolerance { times: self.times_are_moved, ..Tolerance::default() };
        let from_old = old.difference(&found, of_old);
        let Some(new) = &self.new else {
            return if from_old.is_empty() { Ok(true) } else { Err(from_old) };
        };
        // Where a retained version could not be made a copy it stays a link until gc, and is counted.
        let tolerance = Tolerance { now_from: Some(self.now_from), times: false, links: true };
        let from_new = new.difference(&found, tolerance);
        match (from_old.is_empty(), from_new.is_empty()) {
            (_, true) => Ok(true),
            (true, false) => Ok(false),
            _ => Err(format!(
                "a mix of old and new.\n from the old:\n{from_old} from the new:\n{from_new}"
            )),
        }
    }

    /// All points there are.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let mut all = Vec::new();
        let mut add = |fault: String, errno, on, what: &str| {
            all.push(Point { fault, errno, on, what: what.to_owned() });
        };
        for (n, what) in self.steps.iter().enumerate() {
            for kill in ["kill", "killafter"] {
                add(format!("{kill}@{}", n + 1), None, false, what);
            }
        }
        for (names, kind) in [(&self.steps, ""), (&self.looks, "look:")] {
            for (n, what) in names.iter().enumerate() {
                for (name, errno) in ERRNOS {
                    // Taken for "it is another's", whose times this user can't set: no error.
                    if what == "utimens" && errno == libc::EACCES {
                        continue;
                    }
                    add(format!("{name}@{kind}{}", n + 1), Some(errno), false, what);
                    // No kernel interrupts for ever.
                    if errno != libc::EINTR {
                        add(format!("{name}@{kind}{}+", n + 1), Some(errno), true, what);
                    }
                }
            }
        }
        all
    }

    /// Points with two faults: a step of the publish fails, and one of those that then undo it is
    /// struck as well.
    fn second_points(&self, errno: &str) -> Vec<Point> {
        /// So many steps undo, at most.
        const STEPS: usize = 60;
        let is_publish = |what: &str| !what.contains(' ') && what != "pwrite" && what != "open";
        let first = self.steps.iter().position(|what| what == "syncfs").unwrap_or(0);
        let mut all = Vec::new();
        for (n, what) in self.steps.iter().enumerate().skip(first).filter(|s| is_publish(s.1)) {
            for second in 1..=STEPS {
                let (n, second) = (n + 1, n + 1 + second);
                let kills = ["kill", "killafter"].map(|kill| (kill, None));
                let errnos = ERRNOS.iter().map(|(name, errno)| (*name, Some(*errno)));
                for (name, number) in kills.into_iter().chain(errnos) {
                    let fault = format!("{errno}@{n},{name}@{second}");
                    let what = format!("{what}, then in undoing");
                    all.push(Point { fault, errno: None, on: number.is_some(), what });
                }
            }
        }
        all
    }

    /// [`Matrix::sweep`] over pairs of faults: a step of the publish fails with an errno, and a later
    /// one, which undoes, kills or fails.
    ///
    /// # Panics
    /// As [`Matrix::sweep`].
    #[track_caller]
    pub fn sweep_after(&mut self, errno: &str, budget: Budget) {
        let points = self.second_points(errno);
        self.sweep_over(points, budget);
    }

    /// Tries as many points as the budget says, and tells what came of them.
    ///
    /// # Panics
    /// After the last, if any went wrong; with all that did.
    #[track_caller]
    pub fn sweep(&mut self, budget: Budget) {
        let points = self.points();
        self.sweep_over(points, budget);
    }

    /// Fails once, with an I/O error, at each of the last steps, in every mode: what is done there is
    /// done when there is little left to undo.
    ///
    /// # Panics
    /// As [`Matrix::sweep`].
    #[track_caller]
    pub fn last_steps(&mut self, number: usize) {
        self.at_the_last("EIO", number);
    }

    /// Killed after each of the last steps, in every mode.
    ///
    /// # Panics
    /// As [`Matrix::sweep`].
    #[track_caller]
    pub fn killed_at_the_last(&mut self, number: usize) {
        self.at_the_last("killafter", number);
    }

    #[track_caller]
    fn at_the_last(&mut self, action: &str, number: usize) {
        let last = self.steps.len();
        let from = last.saturating_sub(number) + 1;
        let faults: Vec<String> = (from..=last).map(|n| format!("{action}@{n}")).collect();
        let points = self.points().into_iter().filter(|p| faults.contains(&p.fault)).collect();
        self.sweep_over(points, Budget { points: number, time: SWEEP_MAX });
    }

    #[track_caller]
    fn sweep_over(&mut self, mut points: Vec<Point>, budget: Budget) {
        let long = skip::long("sweep");
        let given = std::env::var_os("TXOS_TEST_SEED").is_some();
        let seed = if long || given { random::seed() } else { 1 };
        let mut random = Random::new(seed);
        for n in (1..points.len()).rev() {
            let other = usize::try_from(random.below(n as u64 + 1)).unwrap_or(0);
            points.swap(n, other);
        }
        // Kills are few among so many errnos: one of four.
        let (kills, errnos): (Vec<_>, Vec<_>) = points.into_iter().partition(Point::kills);
        let (mut kills, mut errnos) = (kills.into_iter(), errnos.into_iter());
        let mut points = Vec::new();
        while let Some(point) = kills.next().or_else(|| errnos.next()) {
            points.push(point);
            points.extend(errnos.by_ref().take(3));
        }
        if let Ok(only) = std::env::var("TXOS_TEST_POINT") {
            // `EIO@` and `EIO@look:` are all of them.
            points.retain(|point| {
                let number = point.fault.strip_prefix(&only);
                number.is_some_and(|rest| {
                    rest.is_empty()
                        || only.ends_with(['@', ':']) && rest.bytes().all(|b| b.is_ascii_digit())
                })
            });
        }
        let asked = std::env::var("TXOS_TEST_SECONDS").ok().and_then(|s| s.parse().ok());
        let time = asked.map_or(budget.time, Duration::from_secs);
        let (begun, mut told) = (Instant::now(), Instant::now());
        let (mut tried, mut wrong) = (0, Vec::new());
        for point in &points {
            if if long { begun.elapsed() >= time } else { tried >= budget.points } {
                break;
            }
            tried += 1;
            match self.attempt(point) {
                Ok(end) => {
                    let kind = match (point.errno, point.on) {
                        (None, true) => "failed twice",
                        (None, false) => "killed",
                        (Some(_), false) => "failed once",
                        (Some(_), true) => "failed from then on",
                    };
                    *self.ends.entry((kind, end)).or_default() += 1;
                }
                Err(what) => wrong.push(format!("{} ({}): {what}", point.fault, point.what)),
            }
            if long && told.elapsed() > Duration::from_secs(30) {
                told = Instant::now();
                eprintln!(
                    "{}: {tried} of {} points, {} wrong",
                    self.case.name,
                    points.len(),
                    wrong.len()
                );
            }
        }
        let mut counts = String::new();
        for ((kind, end), n) in &self.ends {
            let _ = write!(counts, "; {kind}, {end:?}: {n}");
        }
        println!(
            "TXOS_TEST_SEED={seed} {}: {} steps, {} looks; {tried} of {} points, {} wrong{counts}",
            self.case.name,
            self.steps.len(),
            self.looks.len(),
            points.len(),
            wrong.len(),
        );
        assert!(wrong.is_empty(), "{} of {tried} went wrong:\n{}", wrong.len(), wrong.join("\n"));
    }

    fn attempt(&mut self, point: &Point) -> Result<End, String> {
        let place = self.place();
        (self.case.prepare)(&place);
        let old = Tree::of(place.tree());
        let count = place.dir().join("count");
        let invocation = (self.case.operation)(&place)
            .env("TXOS_FAULT", &point.fault)
            .env("TXOS_FAULT_COUNT", &count);
        let done = invocation.run();
        let text = std::fs::read_to_string(&count).unwrap_or_default();
        let fired = text.lines().find_map(|line| line.strip_prefix("fired "));
        let end = self.told(point, &place, &old, &done, fired.is_some())?;
        let is_new = self.settled(&place, &old, end, &done)?;
        Ok(match (end, is_new) {
            (End::KilledOld, true) => End::KilledNew,
            (end, _) => end,
        })
    }

    /// Whether what was told is so, at once, before anything is recovered.
    fn told(
        &self,
        point: &Point,
        place: &Lab,
        old: &Tree,
        done: &Done,
        fired: bool,
    ) -> Result<End, String> {
        let code = done.code();
        if done.killed() {
            return Ok(End::KilledOld);
        }
        if point.errno.is_none() && fired && code != 0 && !self.case.refusals.contains(&code) {
            // A helper of it was killed.
            return Err(format!("neither killed nor well: {done:?}"));
        }
        let unfinished = done.stderr.contains("txos recover");
        let found = self.outcome(place, old);
        match code {
            0 if found != Ok(true) && !(self.case.half && found.is_ok()) => {
                return Err(format!("it says that it is done, found {found:?}: {done:?}"));
            }
            0 => {
                let flush = ["fsync", "fdatasync", "syncfs"].contains(&&*point.what);
                let interrupted = point.errno == Some(libc::EINTR);
                if flush && !interrupted && fired && self.is_promise(point) {
                    return Err(format!("flushing failed, and it says that it is done: {done:?}"));
                }
                return Ok(if fired { End::Committed } else { End::Silent });
            }
            code if !self.case.refusals.contains(&code) => {
                return Err(format!("exit status {code}: {done:?}"));
            }
            _ => {}
        }
        if !fired {
            return Err(format!("no fault struck, and it failed: {done:?}"));
        }
        // Whoever failed says with what.
        if let Some(errno) = point.errno {
            let text = std::io::Error::from_raw_os_error(errno).to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            // What is not there any more has been replaced by somebody, or so it must be taken.
            let replaced = errno == libc::ESTALE && code == 75;
            if !replaced && !done.stderr.contains(&text) {
                return Err(format!("it does not say {text:?}: {done:?}"));
            }
        }
        if unfinished || self.case.half {
            return Ok(End::Unfinished);
        }
        let changed = self.new.is_some() && found != Ok(false) || found.is_err();
        if changed {
            return Err(format!("it says that it failed, found {found:?}: {done:?}"));
        }
        Ok(End::Refused)
    }

    /// Whether a flush is one of those on which "committed" depends: all but those of the record.
    fn is_promise(&self, point: &Point) -> bool {
        let last = self.steps.iter().rposition(|step| step == "syncfs").map_or(0, |n| n + 1);
        let number =
            |text: &str| text.rsplit(['@', ':']).next()?.trim_end_matches('+').parse().ok();
        number(&point.fault).is_some_and(|n: usize| n <= last)
    }

    /// Recovers and cleans up; whether the tree is the new one.
    fn settled(&self, place: &Lab, old: &Tree, end: End, done: &Done) -> Result<bool, String> {
        let clean = matches!(end, End::Committed | End::Refused | End::Silent);
        if clean
            && !self.case.dead
            && let Some(slot) = held_slot(place)
        {
            return Err(format!(
                "it has ended, and its place in the realm is taken: {slot}: {done:?}"
            ));
        }
        let recovered = place.txos(["recover", "--json"]).run();
        if recovered.code() != 0 {
            return Err(format!("recover: {recovered:?}\nafter {done:?}"));
        }
        let is_new = self.outcome(place, old).map_err(|e| format!("{e}\nafter {done:?}"))?;
        if clean && self.new.is_some() && !self.case.half && is_new != (end != End::Refused) {
            return Err(format!(
                "recovery made something else of it: {recovered:?}\nafter {done:?}"
            ));
        }
        clean_up(place).map_err(|e| format!("{e}\nafter {done:?}"))?;
        if self.outcome(place, old) != Ok(is_new) {
            return Err(format!("cleaning up changed the tree\nafter {done:?}"));
        }
        if let Some(slot) = held_slot(place) {
            return Err(format!("after gc a place in the realm is taken: {slot}\nafter {done:?}"));
        }
        (self.case.afterwards)(place, done).map_err(|e| format!("{e}\nafter {done:?}"))?;
        // The machine goes on.
        let next = place.script(&["--no-durable"], "echo next > next-transaction").run();
        if next.code() != 0 || std::fs::remove_file(place.path("next-transaction")).is_err() {
            return Err(format!("the next transaction: {next:?}\nafter {done:?}"));
        }
        Ok(is_new)
    }
}

/// Steps and looks that a file of `TXOS_FAULT_COUNT` lists, of its longest process.
fn counted(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut steps, mut looks) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let (list, rest) = match line.strip_prefix("look ") {
            Some(rest) => (&mut looks, rest),
            None => (&mut steps, line),
        };
        let Some((n, what)) = rest.split_once(' ') else { continue };
        if n.parse() == Ok(list.len() + 1) {
            list.push(what.to_owned());
        }
    }
    (steps, looks)
}

/// Brings about that nothing but history is left, and says what is left nevertheless.
///
/// # Errors
/// What is left.
pub fn clean_up(place: &Lab) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let mut left;
    loop {
        place.age_half_made();
        let gc = place.txos(["gc"]).run();
        if gc.code() != 0 {
            return Err(format!("gc: {gc:?}"));
        }
        left = place.left_over();
        // A reaper may need a moment to notice that its monitor is gone, and so may what deletes.
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("left over after gc: {left:?}"));
        }
    }
}

/// A place in the realm that somebody has.
fn held_slot(place: &Lab) -> Option<String> {
    let files = std::fs::read_dir(place.realm()).ok()?.flatten().map(|entry| entry.path());
    for file in files.filter(|path| path.is_file()) {
        let taken = realm_stress::slots::read(&file).into_iter().find(|slot| slot.owner != 0);
        if let Some(slot) = taken {
            return Some(format!("{slot:?} in {}", name_of(&file)));
        }
    }
    None
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}
