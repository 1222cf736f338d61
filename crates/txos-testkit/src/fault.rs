//! The same scenario with a fault at step 1, 2, 3… until none fires any more. A step is a system
//! call of the commit that changes something; debug builds of txos count them and put a fault at
//! one (`TXOS_FAULT`, see the engine's `sys` module).

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Lab;
use crate::process::{Done, Invocation};
use crate::tree::{Tolerance, Tree};
use crate::wait::PATIENCE;

/// A tree, and a transaction on it.
#[derive(Clone, Copy, Debug)]
pub struct Scenario<'a> {
    /// Makes the tree.
    pub prepare: &'a str,
    /// Changes it.
    pub change: &'a str,
    /// Options of `txos run`.
    pub options: &'a [&'a str],
    /// A retained version stays a link of an object in the tree until `gc`, and is counted.
    pub retains_links: bool,
}

/// One of everything that a commit does.
pub const EVERYTHING: Scenario<'static> = Scenario {
    prepare: "
        mkdir -p d/inner gone/deep other turn
        echo content > changed; echo bye > removed; echo x > d/x; echo y > d/inner/y
        echo deep > gone/deep/file; echo owner > attributes; echo linked > other/one
        ln other/one other/two; ln -s changed link; mkfifo pipe; echo file > turns
        echo t > turn/t; echo log > log; chmod 600 log
        setfattr -n user.kept -v 1 changed
        find . -exec touch -h -d @1000000000 {} +",
    change: "
        set -e
        echo new > changed
        rm removed
        mv d moved
        echo again > moved/x
        mkdir -p new/deep; echo f > new/deep/file; ln -s ../x new/link; mkfifo new/pipe
        rm -r gone
        chmod 4750 attributes; chown 1:2 attributes; setfattr -n user.x -v y attributes
        echo more >> other/one
        rm link; ln -s elsewhere link
        rm turns; mkdir turns; echo in > turns/in
        rm -r turn; echo now a file > turn
        ln log log2
        echo line >> log
        touch -d @1100000000 other",
    options: &[],
    retains_links: false,
};

/// What became of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As before, to the last attribute.
    Old,
    /// As after a native run.
    New,
}

/// What happens at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL before it.
    Kill,
    /// SIGKILL after it.
    KillAfter,
    /// It fails with this errno.
    Fail(&'static str),
    /// It and all later ones fail with this errno.
    FailFrom(&'static str),
}

impl Fault {
    fn at(self, step: usize) -> String {
        match self {
            Fault::Kill => format!("kill@{step}"),
            Fault::KillAfter => format!("killafter@{step}"),
            Fault::Fail(errno) => format!("{errno}@{step}"),
            Fault::FailFrom(errno) => format!("{errno}@{step}+"),
        }
    }

    fn kills(self) -> bool {
        matches!(self, Fault::Kill | Fault::KillAfter)
    }
}

/// What does the scenario's change in a transaction; exits with 125 if that fails.
pub type Command<'a> = Option<&'a dyn Fn(&Lab) -> Invocation>;

/// A scenario with what it starts from and what it leads to.
pub struct Sweep<'a> {
    lab: &'a Lab,
    scenario: Scenario<'a>,
    command: Command<'a>,
    new: Tree,
    now_from: i64,
    /// The steps of an undisturbed run, in words.
    pub steps: Vec<String>,
    places: u32,
}

impl fmt::Debug for Sweep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps: {}", self.steps.len(), self.steps.join(", "))
    }
}

/// One run, just over.
pub struct Attempt {
    /// Where it was.
    pub place: Lab,
    /// The tree before.
    pub old: Tree,
    /// How txos ended.
    pub run: Done,
}

impl<'a> Sweep<'a> {
    /// Runs the scenario natively and undisturbed, and counts the steps.
    ///
    /// # Panics
    /// If that fails, or the two trees differ.
    #[must_use]
    #[track_caller]
    pub fn new(lab: &'a Lab, scenario: Scenario<'a>) -> Self {
        Self::made(lab, scenario, None)
    }

    /// The same with a command of its own instead of `txos run`.
    ///
    /// # Panics
    /// As [`Sweep::new`].
    #[must_use]
    #[track_caller]
    pub fn of(
        lab: &'a Lab,
        scenario: Scenario<'a>,
        command: &'a dyn Fn(&Lab) -> Invocation,
    ) -> Self {
        Self::made(lab, scenario, Some(command))
    }

    #[track_caller]
    fn made(lab: &'a Lab, scenario: Scenario<'a>, command: Command<'a>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let now_from = i64::try_from(now).unwrap_or(0) - 1;
        let mut sweep = Sweep {
            lab,
            scenario,
            command,
            new: Tree::default(),
            now_from,
            steps: Vec::new(),
            places: 0,
        };
        let place = sweep.place();
        let _ = place.native(scenario.prepare);
        let _ = place.native(scenario.change);
        sweep.new = Tree::of(place.tree());
        drop(place);
        let count = lab.dir().join("steps");
        let attempt = sweep.attempt(|run| run.env("TXOS_FAULT_COUNT", &count));
        let _ = attempt.run.expect(0);
        let mut found = Tree::of(attempt.place.tree());
        if !sweep.new.difference(&found, sweep.tolerance()).is_empty() {
            // What a busy machine did not empty at once still has its links.
            let _ = attempt.place.txos(["gc"]).run().expect(0);
            found = Tree::of(attempt.place.tree());
        }
        sweep.new.expect(&found, sweep.tolerance(), "the undisturbed run is not as the native one");
        sweep.steps = steps_in(&count);
        assert!(!sweep.steps.is_empty(), "no steps were counted: is this a debug build of txos?");
        sweep
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance {
            now_from: Some(self.now_from),
            times: false,
            links: self.scenario.retains_links,
        }
    }

    fn run(&self, place: &Lab) -> Invocation {
        match self.command {
            Some(command) => command(place),
            None => place.script(self.scenario.options, self.scenario.change),
        }
    }

    fn place(&mut self) -> Lab {
        self.places += 1;
        self.lab.nested(&self.places.to_string())
    }

    /// Runs the scenario and kills the monitor after some time, wherever it is then.
    ///
    /// # Panics
    /// If it can't be prepared.
    pub fn killed_after(&mut self, time: Duration) -> Attempt {
        self.killed_when(|| std::thread::sleep(time))
    }

    /// Runs the scenario and kills the monitor when something has come true.
    ///
    /// # Panics
    /// If it can't be prepared.
    pub fn killed_when(&mut self, come_true: impl FnOnce()) -> Attempt {
        let place = self.place();
        let _ = place.native(self.scenario.prepare);
        let old = Tree::of(place.tree());
        let running = self.run(&place).start();
        come_true();
        running.signal(rustix::process::Signal::KILL);
        Attempt { old, run: running.wait(), place }
    }

    fn attempt(&mut self, with: impl FnOnce(Invocation) -> Invocation) -> Attempt {
        let place = self.place();
        let _ = place.native(self.scenario.prepare);
        let old = Tree::of(place.tree());
        let run = with(self.run(&place)).run();
        Attempt { place, old, run }
    }

    /// Runs the scenario with a fault.
    ///
    /// # Panics
    /// If it can't be prepared.
    pub fn with_fault(&mut self, fault: Fault, step: usize) -> Attempt {
        self.attempt(|run| run.env("TXOS_FAULT", fault.at(step)))
    }

    /// What became of a tree: all old or all new.
    ///
    /// # Errors
    /// A mix, described.
    pub fn outcome(&self, attempt: &Attempt) -> Result<Outcome, String> {
        let found = Tree::of(attempt.place.tree());
        let from_old = attempt.old.difference(&found, Tolerance::default());
        if from_old.is_empty() {
            return Ok(Outcome::Old);
        }
        // What is retained is there until `gc` if the end was disturbed.
        let retained = Tolerance { links: true, ..self.tolerance() };
        let from_new = self.new.difference(&found, retained);
        if from_new.is_empty() {
            return Ok(Outcome::New);
        }
        Err(format!("a mix of old and new.\n from the old:\n{from_old} from the new:\n{from_new}"))
    }

    /// Runs the scenario with a fault at every step, and checks each time that after recovery
    /// everything is old or everything is new, that the exit status told the truth, and that
    /// nothing is left over. Housekeeping of stores, realms and private copies is left to the long
    /// mode, and a sample of it to [`crate::fault_matrix`].
    ///
    /// # Panics
    /// After the last, if any went wrong; with all that did.
    #[track_caller]
    pub fn every_step(&mut self, fault: Fault) {
        self.steps_by(1, fault);
    }

    /// The same at every step that is the first of its kind in a row, and at each `stride`th.
    #[track_caller]
    pub fn steps_by(&mut self, stride: usize, fault: Fault) {
        let mut wrong = Vec::new();
        let mut was_new = false;
        for step in 1..=self.steps.len() {
            let repeats = step > 1 && self.steps[step - 1] == self.steps[step - 2];
            if repeats && step % stride != 0 {
                continue;
            }
            if !crate::skip::long("crash") && self.steps[step - 1].contains(' ') {
                continue;
            }
            match self.one_step(fault, step) {
                Ok(Outcome::New) => was_new = true,
                Ok(Outcome::Old) if was_new && fault.kills() => wrong.push(format!(
                    "killed later than where it was published already, and yet it is old: {}",
                    self.named(fault, step)
                )),
                Ok(Outcome::Old) => {}
                Err(what) => wrong.push(format!("{}: {what}", self.named(fault, step))),
            }
        }
        assert!(
            wrong.is_empty(),
            "{} of {} steps went wrong:\n{}",
            wrong.len(),
            self.steps.len(),
            wrong.join("\n")
        );
    }

    fn named(&self, fault: Fault, step: usize) -> String {
        let what = self.steps.get(step - 1).map_or("?", String::as_str);
        format!("{} ({what})", fault.at(step))
    }

    fn one_step(&mut self, fault: Fault, step: usize) -> Result<Outcome, String> {
        let attempt = self.with_fault(fault, step);
        if fault.kills() {
            if !attempt.run.killed() && attempt.run.code() != 0 {
                return Err(format!("neither killed nor well: {:?}", attempt.run));
            }
        } else {
            // What the status says must be so already, before anything is recovered.
            let told = match attempt.run.code() {
                0 => Outcome::New,
                125 => Outcome::Old,
                other => return Err(format!("exit status {other}: {:?}", attempt.run)),
            };
            let all_fail = matches!(fault, Fault::FailFrom(_));
            let found = self.outcome(&attempt);
            // If everything fails from here on, so does undoing; then recovery has to.
            if !(all_fail && told == Outcome::Old) && found != Ok(told) {
                return Err(format!(
                    "the status says {told:?}, found {found:?}: {:?}",
                    attempt.run
                ));
            }
        }
        self.recovered(&attempt)
    }

    /// Recovers, twice, and cleans up; gives what became of the tree.
    ///
    /// # Errors
    /// What is wrong.
    pub fn recovered(&self, attempt: &Attempt) -> Result<Outcome, String> {
        let place = &attempt.place;
        let recover = || {
            let done = place.txos(["recover", "--json"]).run();
            if done.code() == 0 { Ok(done.json()) } else { Err(format!("recover: {done:?}")) }
        };
        recover()?;
        let outcome = self.outcome(attempt)?;
        let again = recover()?;
        for list in ["undone", "finished"] {
            if again[list].as_array().is_none_or(|ids| !ids.is_empty()) {
                return Err(format!("the second recovery did something: {again}"));
            }
        }
        if self.outcome(attempt)? != outcome {
            return Err("the second recovery changed the tree".into());
        }
        clean_up(place)?;
        // The machine goes on: the next transaction works.
        let next = place.script(&[], "echo next > next-transaction").run();
        if next.code() != 0 {
            return Err(format!("the next transaction: {next:?}"));
        }
        std::fs::remove_file(place.path("next-transaction")).map_err(|e| e.to_string())?;
        Ok(outcome)
    }
}

/// A reaper may need a moment to notice that its monitor is gone; until then the transaction is in use.
fn clean_up(place: &Lab) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        place.age_half_made();
        let gc = place.txos(["gc"]).run();
        if gc.code() != 0 {
            return Err(format!("gc: {gc:?}"));
        }
        let held = place.held();
        let stray = held.transactions.iter().find(|(_, state)| state != "committed");
        if stray.is_none() && held.trash == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("left in the store after gc: {held:?}"));
        }
    }
}

/// How far it is to the next step, or how much is done: `whole` with `--long sweep`, otherwise `short`.
#[must_use]
pub fn stride<T>(whole: T, short: T) -> T {
    if crate::skip::long("sweep") { whole } else { short }
}

/// The steps that a file of `TXOS_FAULT_COUNT` lists, of its longest process.
#[must_use]
pub fn steps_in(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut steps: Vec<String> = Vec::new();
    for line in text.lines() {
        let Some((n, what)) = line.split_once(' ') else { continue };
        if n.parse() == Ok(steps.len() + 1) {
            steps.push(what.to_owned());
        }
    }
    steps
}
