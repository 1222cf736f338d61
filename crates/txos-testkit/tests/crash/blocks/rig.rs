//! Trying crash states: each is mounted, recovered and looked at.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use txos_testkit::block::state::copy_sparse;
use txos_testkit::block::{Cut, Log, State};
use txos_testkit::random::Random;
use txos_testkit::tree::Tolerance;
use txos_testkit::{Invocation, Tree};

use crate::program::{Linked, program};
use crate::workload::{Bench, Recording, Step};

/// How many violations are told of; then it is enough.
const WRONG_MAX: usize = 5;

/// What was found in an image.
#[derive(Clone, Debug)]
struct Seen {
    /// Transactions that recovery undid.
    undone: usize,
    /// Transactions that recovery finished.
    finished: usize,
    /// The last frame of the journal's transaction.
    frame: Option<Frame>,
}

/// How far the journal says that a publish has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    Begun,
    Ready,
    Applied,
    Done,
    Undoing,
}

/// What was tried, and what came of it.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Images by kind of cut, in the order of [`Cut::ALL`].
    images: [usize; 5],
    /// Images of a crash while an earlier one was being recovered from.
    recoveries: usize,
    /// Images in which something was undone; finished; in which everything was in place, but not
    /// known to be flushed, so that only the boot tells.
    undone: usize,
    finished: usize,
    restarted: usize,
    /// File systems checked by their own tools.
    checked: usize,
    /// What was wrong.
    pub wrong: Vec<String>,
}

impl Tally {
    /// All images.
    pub fn all(&self) -> usize {
        self.images.iter().sum::<usize>() + self.recoveries
    }

    /// Whether every way of recovery was taken.
    pub fn is_broad(&self) -> bool {
        self.undone > 0 && self.finished > 0 && self.restarted > 0 && self.checked > 0
    }

    fn note(&mut self, seen: &Seen) {
        self.undone += usize::from(seen.undone > 0);
        self.finished += usize::from(seen.finished > 0);
        self.restarted += usize::from(seen.frame == Some(Frame::Applied));
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} images (", self.all())?;
        for (cut, n) in Cut::ALL.iter().zip(self.images) {
            write!(f, "{n} {cut:?}, ")?;
        }
        write!(
            f,
            "{} within recovery); {} undone, {} finished, {} by the boot; {} checked; {} violations",
            self.recoveries,
            self.undone,
            self.finished,
            self.restarted,
            self.checked,
            self.wrong.len()
        )
    }
}

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Images at most.
    pub images: usize,
    /// What is tried. [`Cut::Flush`] comes first, the others are drawn.
    pub cuts: &'static [Cut],
    /// Not after this.
    pub until: Instant,
    /// What is told of progress, and how often.
    pub progress: Option<Duration>,
    /// Ends with the first violation.
    pub first: bool,
}

impl Bench {
    /// Tries states of a recording until there are as many images as there are to be.
    pub fn explore(
        &self,
        recording: &Recording,
        extent: Extent,
        tally: &mut Tally,
        random: &mut Random,
    ) {
        let medium = self.kind.medium();
        let mut flushes = State::at_flushes(&recording.log, recording.begin);
        if !extent.cuts.contains(&Cut::Flush) {
            flushes.clear();
        }
        // A third of them: the rest is between them.
        while flushes.len() > extent.images.div_ceil(3) {
            let one = random.below(flushes.len() as u64) as usize;
            flushes.swap_remove(one);
        }
        let mut tried = HashSet::new();
        let enough = tally.all() + extent.images;
        let mut told = Instant::now();
        let mut drawn = 0;
        while tally.all() < enough && Instant::now() < extent.until && drawn < extent.images * 4 {
            drawn += 1;
            let (cut, state) = match flushes.pop() {
                Some(state) => (Cut::Flush, state),
                None => {
                    let between = extent.cuts.iter().filter(|cut| **cut != Cut::Flush);
                    let cut = *random.pick(&between.copied().collect::<Vec<_>>());
                    let (log, begin) = (&recording.log, recording.begin);
                    // The journal is one page among many: some states are about it alone.
                    let journal = (cut == Cut::Torn && random.below(2) == 0)
                        .then(|| State::torn(log, begin, b"TXOSJRNL", &medium, random))
                        .flatten();
                    (cut, journal.unwrap_or_else(|| State::any(log, begin, cut, &medium, random)))
                }
            };
            if !tried.insert(state.clone()) {
                continue;
            }
            if let Some(n) = Cut::ALL.iter().position(|c| *c == cut) {
                tally.images[n] += 1;
            }
            let number = tally.all();
            if let Err(what) = self.try_state(recording, &state, number, tally, random) {
                let what =
                    format!("{} {:?}: {state}: {what}", self.kind.name(), recording.workload);
                println!("{what}");
                tally.wrong.push(what);
                if extent.first || tally.wrong.len() >= WRONG_MAX {
                    return;
                }
            }
            if extent.progress.is_some_and(|every| told.elapsed() > every) {
                told = Instant::now();
                println!("blocks: {}: {tally}", self.kind.name());
            }
        }
    }

    /// Tries one state of a recording: of some more than of others.
    fn try_state(
        &self,
        recording: &Recording,
        state: &State,
        number: usize,
        tally: &mut Tally,
        random: &mut Random,
    ) -> Result<(), String> {
        let image = self.work.join("crashed");
        let error = |e: std::io::Error| e.to_string();
        state.write_image(&recording.log, &recording.base, &image).map_err(error)?;
        let acknowledged = acknowledged(&recording.log, state.at);
        let mistake = recording.workload.mistake;
        if number.is_multiple_of(6) && mistake.is_none() {
            return self.crash_twice(recording, acknowledged, &image, tally, random);
        }
        let mounted = self.mount(&image).map_err(unmountable)?;
        let seen = match number % 6 {
            5 if mistake.is_none() => self.look("after the crash")?,
            _ => self.recover("after the crash", mistake)?,
        };
        let steps = recording.step_of(&Tree::of(self.lab.tree()), acknowledged)?;
        tally.note(&seen);
        self.expect_history(recording, steps)?;
        if number % 4 == 1 && mistake.is_none() {
            self.go_on(recording, steps)?;
        }
        mounted.unmount();
        if number % 10 == 1 {
            tally.checked += 1;
            let check = self.kind.check(&image);
            // That would be the file system's mistake, or this rig's: never txos's.
            assert_eq!(check.code(), 0, "{state}: the file system is damaged: {check:?}");
        }
        Ok(())
    }

    /// A program looks at something in a transaction: that recovers as well.
    fn look(&self, boot: &str) -> Result<Seen, String> {
        let done = Invocation::new(program("blocks", Linked::WithLibrary))
            .arg("look")
            .env("TXOS_STORE", self.lab.store())
            .env("TXOS_REALM", self.lab.realm())
            .env("TXOS_BOOT_ID", boot)
            .dir(self.lab.tree())
            .run();
        if done.code() != 0 {
            return Err(format!("nothing can be looked at: {done:?}"));
        }
        Ok(Seen { undone: 0, finished: 0, frame: None })
    }

    /// Recovers what is mounted, as after a restart of the machine; gives what was there.
    fn recover(&self, boot: &str, mistake: Option<&str>) -> Result<Seen, String> {
        let frame = journal(&self.lab.store().join("journal"));
        let mut recover = self.lab.txos(["recover", "--json"]).env("TXOS_BOOT_ID", boot);
        if let Some(mistake) = mistake {
            recover = recover.env("TXOS_MISTAKE", mistake);
        }
        let done = recover.run();
        if done.code() != 0 {
            return Err(format!("recovery fails: {done:?}"));
        }
        let json = done.json();
        let count = |name: &str| json[name].as_array().map_or(0, Vec::len);
        if count("notes") != 0 {
            return Err(format!("recovery blames others: {json}"));
        }
        let seen = Seen { undone: count("undone"), finished: count("finished"), frame };
        if frame == Some(Frame::Applied) && seen.undone == 0 {
            return Err("recovery did not take it for another boot".into());
        }
        Ok(seen)
    }

    /// The history has every command that is in the tree, and no other. (What programs commit is not in
    /// it, but for what recovery finished.)
    fn expect_history(&self, recording: &Recording, steps: usize) -> Result<(), String> {
        let workload = &recording.workload;
        let there = workload.before.iter().chain(workload.steps.iter().take(steps));
        let expected = there.filter(|step| step.is_recorded()).count();
        let log = self.lab.txos(["log", "--json"]).env("TXOS_BOOT_ID", "after the crash").run();
        if log.code() != 0 {
            return Err(format!("the history can't be read: {log:?}"));
        }
        let log = log.json();
        let all = log["transactions"].as_array().cloned().unwrap_or_default();
        let found =
            all.iter().filter(|t| COMMANDS.iter().any(|name| t["command"][0] == *name)).count();
        if found == expected {
            return Ok(());
        }
        Err(format!("{expected} runs of {steps} steps are in the tree, in the history: {log}"))
    }

    /// Life goes on: recovery has nothing more to do, the next transaction works, nothing is left over, and
    /// what was committed last can be reverted.
    fn go_on(&self, recording: &Recording, steps: usize) -> Result<(), String> {
        let boot = "after the crash";
        let seen = self.recover(boot, None)?;
        if (seen.undone, seen.finished) != (0, 0) {
            return Err(format!("the second recovery did something: {seen:?}"));
        }
        let _ = recording.step_of(&Tree::of(self.lab.tree()), steps)?;
        let next = self.lab.script(&[], "echo next > next").env("TXOS_BOOT_ID", boot);
        for command in [next, self.lab.txos(["revert", "@"]), self.lab.txos(["gc"])] {
            let done = command.env("TXOS_BOOT_ID", boot).run();
            if done.code() != 0 {
                return Err(format!("afterwards: {done:?}"));
            }
        }
        let held = self.lab.held();
        let history = ["committed", "reverted"];
        for (id, state) in &held.transactions {
            // What has no record might be just being made: it stays for a minute. The name of one whose
            // bytes were not flushed is none; a file system may give zeros for them.
            let record = self.lab.store().join("tx").join(id).join("meta.json");
            let recorded = std::fs::read(record).is_ok_and(|bytes| bytes.iter().any(|&b| b != 0));
            if recorded && !history.contains(&state.as_str()) {
                return Err(format!("left in the store: {held:?}"));
            }
        }
        recording.step_of(&Tree::of(self.lab.tree()), steps).map(drop)
    }

    /// Recovery is recorded, and crashes as well.
    fn crash_twice(
        &self,
        recording: &Recording,
        acknowledged: usize,
        image: &Path,
        tally: &mut Tally,
        random: &mut Random,
    ) -> Result<(), String> {
        let error = |e: std::io::Error| e.to_string();
        let mistake = recording.workload.mistake;
        let base = self.work.join("crashed-first");
        copy_sparse(image, &base).map_err(error)?;
        let mut recorder = self.recorder(image);
        let mounted = self.mount(&recorder.disk()).map_err(unmountable)?;
        let seen = self.recover("after the crash", mistake)?;
        recorder.mark("recovered");
        tally.note(&seen);
        let steps = recording.step_of(&Tree::of(self.lab.tree()), acknowledged)?;
        let log = recorder.log();
        mounted.unmount();
        drop(recorder);
        if State::places(&log, 0).is_empty() {
            return Ok(());
        }
        for cut in [Cut::Flush, Cut::Subset, Cut::Torn] {
            let flushes = State::at_flushes(&log, 0);
            let state = match cut {
                Cut::Flush if flushes.is_empty() => continue,
                Cut::Flush => random.pick(&flushes).clone(),
                _ => State::any(&log, 0, cut, &self.kind.medium(), random),
            };
            tally.recoveries += 1;
            let again = || -> Result<(), String> {
                state.write_image(&log, &base, image).map_err(error)?;
                let mounted = self.mount(image).map_err(unmountable)?;
                let _ = self.recover("after another crash", mistake)?;
                let found = recording.step_of(&Tree::of(self.lab.tree()), acknowledged)?;
                // What a finished recovery has decided stays decided.
                let decided = log.marks_before(state.at).any(|mark| mark == "recovered");
                if decided && found != steps {
                    return Err(format!("{steps} steps were recovered, and now it is {found}"));
                }
                self.expect_history(recording, found)?;
                mounted.unmount();
                Ok(())
            };
            again().map_err(|what| format!("and, in recovery, {state}: {what}"))?;
        }
        Ok(())
    }
}

/// The commands of the steps that the history has.
const COMMANDS: [&str; 2] = ["sh", "cp"];

/// A file system that can't be mounted after a crash: its own mistake, or this rig's.
fn unmountable(what: String) -> String {
    panic!("the file system can't be mounted after the crash: {what}")
}

/// The last step that was acknowledged before an event, 0 for none. (Steps of outsiders are not.)
fn acknowledged(log: &Log, at: usize) -> usize {
    let number = |mark: &str| mark.strip_prefix("acknowledged ").and_then(|n| n.parse().ok());
    log.marks_before(at).filter_map(number).last().unwrap_or(0)
}

impl Recording {
    /// The number of steps that are in a tree: all that were acknowledged, and of the next one all or
    /// nothing. What outsiders do before that one is there or not.
    fn step_of(&self, found: &Tree, acknowledged: usize) -> Result<usize, String> {
        // What was written by the workload is "now", also if recovery wrote it again.
        let tolerance = Tolerance { now_from: Some(1_100_000_000), ..Tolerance::default() };
        let steps = self.workload.steps.get(acknowledged..).unwrap_or_default();
        let outside = steps.iter().take_while(|step| **step == Step::Outside).count();
        let last = acknowledged + outside + 1;
        let mut text = format!("not {acknowledged} to {last} steps.\n");
        for steps in acknowledged..=last {
            let Some(tree) = self.trees.get(steps) else { continue };
            let difference = tree.difference(found, tolerance);
            if difference.is_empty() {
                return Ok(steps);
            }
            text += &format!("from {steps}:\n{difference}");
        }
        Err(text)
    }
}

/// Reads a journal as docs/journal-format.md has it; `None` if it holds nothing.
fn journal(path: &Path) -> Option<Frame> {
    let bytes = std::fs::read(path).ok()?;
    let number = |at: usize, length: usize| -> Option<u64> {
        let mut word = [0; 8];
        word.get_mut(..length)?.copy_from_slice(bytes.get(at..at + length)?);
        Some(u64::from_le_bytes(word))
    };
    let is_whole = |at: usize| -> Option<bool> {
        let end = at + 24 + usize::try_from(number(at, 4)?).ok()?;
        let parts = [bytes.get(at..at + 4)?, bytes.get(at + 8..end)?];
        Some(number(at + 4, 4) == Some(u64::from(crc(&parts.concat()))))
    };
    let mut at = 512;
    let epoch = number(at + 16, 8)?;
    let mut found = None;
    while number(at + 16, 8) == Some(epoch) && is_whole(at) == Some(true) {
        found = match number(at + 8, 4)? {
            2 => Some(Frame::Begun),
            5 => Some(Frame::Ready),
            6 => Some(Frame::Applied),
            7 => Some(Frame::Done),
            8 => Some(Frame::Undoing),
            3 | 4 => found,
            _ => return found,
        };
        at = (at + 24 + usize::try_from(number(at, 4)?).ok()?).next_multiple_of(512);
    }
    found
}

/// CRC-32 (IEEE).
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}
