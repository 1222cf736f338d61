//! The test's side: a site with participants, of whom some are killed; what they have logged, and
//! what the checker says of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::process::Signal;

use crate::history::log::{Writer, read_all};
use crate::history::{History, Kind, NEVER, Op, Outcome, Report, Transaction, check};
use crate::random::Random;
use crate::realm_stress::cells::Cells;
use crate::wait::PATIENCE;
use crate::{Invocation, Lab, Running, binary};

use super::files::{self, Files, MAKING};
use super::keys::{self, Door, key};
use super::sets::as_registers;
use super::worker::Site;

/// Anomalies that are told of.
const SHOWN_MAX: usize = 8;

/// What was over so long before an anomaly began is shown with it, nanoseconds.
const AROUND: u64 = 3_000_000;

/// Who takes part in a scene.
#[derive(Clone, Debug, Default)]
pub struct Cast {
    /// Programs with transactions inside; every other one has two threads.
    pub inside: u32,
    /// Programs with transactions of one call.
    pub single: u32,
    /// Those who run commands, one after the other.
    pub command: u32,
    /// The same in the library's view.
    pub library: u32,
    /// Outsiders.
    pub outside: u32,
    /// Transactions of each of the commands' runners of one view, or without them of each program; when these
    /// are through, the scene ends.
    pub count: u64,
    /// Participants that are killed from outside, and of a hundred commands those that are.
    pub kills: (u32, u32),
    /// Steps and looks are delayed at random.
    pub delayed: bool,
    /// Longest pauses between what one does, microseconds: of programs, of outsiders.
    pub pauses: (u64, u64),
    /// Every command closes the gate, and is one of the kind that does.
    pub gated: bool,
    /// The programs only say that what they do are transactions.
    pub careless: bool,
}

/// A site in a lab.
#[derive(Debug)]
pub struct Scene<'a> {
    lab: &'a Lab,
    site: Site,
    program: PathBuf,
    cells: Cells,
    log: Writer,
    next: u32,
}

/// What came of it.
#[derive(Debug)]
pub struct Told {
    /// All that was logged, as registers and lists.
    pub history: History,
    /// What is wrong among the transactions, with what outsiders changed.
    pub strict: Report,
    /// What is wrong if outsiders' looks count as well.
    pub seen: Report,
    /// How many were killed, commands not counted.
    pub killed: u32,
    /// What outsiders had put into what was then taken back with its publish: it is not in the tree,
    /// but among what the store has rescued.
    pub aside: usize,
    /// What outsiders made of something that was then taken back with its publish, as by giving it another
    /// name: that stays, beside what was put back.
    pub astray: usize,
    /// What participants did not expect.
    pub surprises: Vec<String>,
}

impl<'a> Scene<'a> {
    /// With the participants' program.
    ///
    /// # Panics
    /// If it can't be made.
    #[must_use]
    pub fn new(lab: &'a Lab, program: &str) -> Scene<'a> {
        // Where they have to be built first, that is no part of the scene.
        let _ = (binary::txos(), binary::library());
        let dir = lab.tree().parent().expect("a place").to_owned();
        let site = Site { dir };
        std::fs::create_dir_all(site.histories()).expect("making a site");
        let cells = Cells::create(&site.dir, 1);
        let mut log =
            Writer::create(&site.histories(), Door::Test.participant(0)).expect("a history");
        let first = keys::first_value(Door::Test.participant(0));
        let id = log.invoke(&[]).expect("writing the history");
        let made = files::prepare(&site.tree(), first).expect("preparing the tree");
        log.complete(id, Outcome::Committed, &made).expect("writing the history");
        cells.budget().store(1, Ordering::Relaxed);
        Scene { lab, site, program: PathBuf::from(program), cells, log, next: 1 }
    }

    fn start(&mut self, cast: &Cast, door: Door, random: &mut Random, count: u64) -> Running {
        let number = self.next;
        self.next += 1;
        let (mode, pause) = match door {
            Door::Inside if cast.careless => ("careless", cast.pauses.0),
            Door::Inside => ("inside", cast.pauses.0),
            Door::Single => ("single", cast.pauses.0),
            Door::Command => ("command", 0),
            Door::Library => ("library", 0),
            _ => ("outside", cast.pauses.1),
        };
        let threads = if door == Door::Inside { 1 + number % 2 } else { 1 };
        let mut run = Invocation::new(&self.program)
            .arg(mode)
            .arg(&self.site.dir)
            .args([number.to_string(), random.bits().to_string(), count.to_string()])
            .arg(threads.to_string())
            .env("TXOS_COMMONS_PAUSE", pause.to_string())
            .env("TXOS_COMMONS_KILLS", cast.kills.1.to_string())
            .env("TXOS_COMMONS_GATED", if cast.gated { "1" } else { "" })
            .env("TXOS_STORE", self.lab.store())
            .env("TXOS_REALM", self.lab.realm())
            .dir(self.lab.dir());
        if cast.delayed {
            run = run.env("TXOS_FAULT_DELAYS", random.bits().to_string());
        }
        match door {
            Door::Inside | Door::Single => {
                run = run.env("LD_PRELOAD", binary::library());
                if cast.kills.0 > 0 && random.below(2) == 0 {
                    let what = random.pick(&["kill", "killafter"]);
                    let most = *random.pick(&[50, 500, 4000]);
                    run = run.env("TXOS_FAULT", format!("{what}@{}", 1 + random.below(most)));
                }
            }
            Door::Command | Door::Library => run = run.arg(binary::txos()),
            _ => {}
        }
        run.start()
    }

    /// Runs it to its end, and gives all that was logged, and what is wrong with it.
    ///
    /// # Panics
    /// If something does not end, or is left over.
    #[must_use]
    pub fn run(mut self, cast: &Cast, seed: u64) -> Told {
        let mut random = Random::new(seed);
        let mut running: Vec<(Door, Running)> = Vec::new();
        let roles = [
            (Door::Command, cast.command),
            (Door::Library, cast.library),
            (Door::Inside, cast.inside),
            (Door::Single, cast.single),
            (Door::Outside, cast.outside),
        ];
        let anchor = match (cast.command, cast.library) {
            (0, 0) => Door::Inside,
            (0, _) => Door::Library,
            _ => Door::Command,
        };
        for (door, of) in roles {
            for _ in 0..of {
                let count = if door == anchor { cast.count } else { 0 };
                let started = self.start(cast, door, &mut random, count);
                running.push((door, started));
            }
        }
        let mut surprises = Vec::new();
        let killed = self.direct(cast, anchor, &mut random, &mut running, &mut surprises);
        self.cells.budget().store(0, Ordering::Relaxed);
        for (_, running) in running {
            let done = running.wait();
            surprises.extend(done.stderr.lines().map(str::to_owned));
            if !done.killed() {
                let _ = done.expect(0);
            }
        }
        let _ = self.lab.txos(["recover"]).run().expect(0);
        self.read_everything();
        let told = self.told(killed, surprises);
        self.expect_no_strays(&told.history);
        if cast.kills == (0, 0) {
            self.lab.expect_clean();
        } else {
            self.expect_nothing_but_half_made();
        }
        told
    }

    /// Kills some, and puts others in their place, until the anchors are through.
    fn direct(
        &mut self,
        cast: &Cast,
        anchor: Door,
        random: &mut Random,
        running: &mut [(Door, Running)],
        surprises: &mut Vec<String>,
    ) -> u32 {
        let mut killed = 0;
        let (mut last, mut since) = (0, Instant::now());
        let through = |running: &mut [(Door, Running)]| {
            running.iter_mut().filter(|(door, _)| *door == anchor).all(|(_, one)| one.ended())
        };
        while !through(running) {
            let now = self.cells.progress().load(Ordering::Relaxed);
            if now != last {
                (last, since) = (now, Instant::now());
            }
            assert!(since.elapsed() < PATIENCE, "no progress beyond {last}");
            // When that is, is what is random here.
            std::thread::sleep(std::time::Duration::from_micros(500 + random.below(20_000)));
            if cast.kills.0 == 0 {
                continue;
            }
            for (door, one) in running.iter_mut() {
                let door = *door;
                if door.runs_commands() || (door == anchor && one.ended()) {
                    if !door.runs_commands() && one.status_is_kill() {
                        // By its own fault point: somebody else takes its place.
                        *one = self.start(cast, door, random, cast.count);
                        killed += 1;
                    }
                    continue;
                }
                let ended = one.ended();
                if !ended && (killed >= cast.kills.0 || random.below(30) != 0) {
                    continue;
                }
                one.signal(Signal::KILL);
                let count = if door == anchor { cast.count } else { 0 };
                let another = self.start(cast, door, random, count);
                let done = std::mem::replace(one, another).wait();
                surprises.extend(done.stderr.lines().map(str::to_owned));
                assert!(done.killed(), "{done:?}");
                killed += 1;
            }
            if random.below(40) == 0 {
                let _ = self.lab.txos(["recover"]).run().expect(0);
            }
        }
        killed
    }

    /// One look at all there is, when nobody is there any more.
    fn read_everything(&mut self) {
        let history = read_all(&self.site.histories()).expect("the histories");
        let mut all: BTreeSet<u64> =
            history.transactions.iter().flat_map(|t| &t.ops).map(Op::key).collect();
        all.extend((0..keys::CELLS).map(|n| key(keys::Kind::Cell, n)));
        all.retain(|key| keys::kind(*key) != Some(keys::Kind::Name));
        let files = Files::new(&self.site.tree(), false);
        let id = self.log.invoke(&[]).expect("writing the history");
        let plan: Vec<_> = all.into_iter().map(super::plan::Step::Read).collect();
        let ops = files.perform_all(&plan).expect("reading everything");
        self.log.complete(id, Outcome::Committed, &ops).expect("writing the history");
    }

    fn told(&self, killed: u32, surprises: Vec<String>) -> Told {
        let mut logged = read_all(&self.site.histories()).expect("the histories");
        let aside = set_aside(&mut logged, &self.lab.store().join("rescued"));
        let history = as_registers(&logged);
        let strict = check(&changes_of_outsiders(&history));
        let seen = check(&history);
        let astray = built_on_what_was_undone(&history);
        Told { history, strict, seen, killed, aside, astray, surprises }
    }

    /// What is in the tree is somebody's: of transactions nothing private, of outsiders only what
    /// they were at when they were killed.
    fn expect_no_strays(&self, history: &History) {
        let known: BTreeSet<String> = history
            .transactions
            .iter()
            .flat_map(|t| &t.ops)
            .map(|op| keys::path(op.key()))
            .collect();
        let names = |dir: &Path| {
            let entries = std::fs::read_dir(dir).expect("a directory");
            entries
                .map(|e| e.expect("an entry").file_name().into_encoded_bytes())
                .collect::<Vec<_>>()
        };
        for name in names(&self.site.tree()) {
            let name = String::from_utf8_lossy(&name).into_owned();
            let set = name.starts_with("set-");
            assert!(set || name == MAKING || known.contains(&name), "{name} is nobody's");
        }
        for name in names(&self.site.tree().join(MAKING)) {
            let whose = Door::of(keys::participant_of(keys::value_of(&name)));
            let name = String::from_utf8_lossy(&name).into_owned();
            assert!(whose == Door::Outside, "{MAKING}/{name} is of {}", whose.name());
        }
    }

    /// What was killed while it was being made is left alone for a minute: it might just be slow.
    fn expect_nothing_but_half_made(&self) {
        let _ = self.lab.txos(["gc"]).run().expect(0);
        let fine = ["committed", "reverted", "pending", "without a record"];
        let mut held = self.lab.held().transactions;
        held.retain(|(_, state)| !fine.contains(&state.as_str()));
        assert!(held.is_empty(), "left in the store after gc: {held:?}");
    }

    /// Where everything is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.site.dir
    }
}

/// What outsiders have added to an object that was published and then taken back lies in the store,
/// and whoever took it back has said so; it has not happened as far as the tree is concerned. Gives the
/// number of such changes.
fn set_aside(history: &mut History, rescued: &Path) -> usize {
    let mut values: BTreeSet<u64> = BTreeSet::new();
    for entry in std::fs::read_dir(rescued).into_iter().flatten().flatten() {
        values.extend(files::parse_list(&std::fs::read(entry.path()).unwrap_or_default()));
        let name = entry.file_name().into_encoded_bytes();
        values.extend(name.rsplit(|byte| *byte == b'-').next().map(keys::value_of));
    }
    let last = history.transactions.iter().filter(|t| door(t) == Door::Test);
    let there: BTreeSet<u64> = last
        .flat_map(|t| &t.ops)
        .filter_map(Op::found)
        .flat_map(|values| values.iter().copied())
        .collect();
    let mut count = 0;
    for transaction in history.transactions.iter_mut().filter(|t| door(t) == Door::Outside) {
        let aside = |op: &Op| match op {
            Op::Append { value, .. } => values.contains(value) && !there.contains(value),
            _ => false,
        };
        if transaction.outcome == Outcome::Committed && transaction.ops.iter().any(aside) {
            transaction.outcome = Outcome::Aborted;
            count += 1;
        }
    }
    count
}

/// How many changes outsiders made of what they had found of a publish that was then undone.
fn built_on_what_was_undone(history: &History) -> usize {
    let undone: BTreeSet<(u64, u64)> = history
        .transactions
        .iter()
        .filter(|t| t.outcome == Outcome::Aborted && door(t) != Door::Outside)
        .flat_map(|t| &t.ops)
        .filter_map(|op| Some((op.key(), op.written()?)))
        .collect();
    let found_it = |op: &Op| {
        let found = op.found().into_iter().flatten();
        found.into_iter().any(|value| undone.contains(&(op.key(), *value)))
    };
    let changes = |t: &&Transaction| {
        door(t) == Door::Outside
            && t.outcome == Outcome::Committed
            && t.ops.iter().any(|op| op.written().is_some())
            && t.ops.iter().any(|op| !op.of_list() && found_it(op))
    };
    history.transactions.iter().filter(changes).count()
}

/// By which door a transaction came.
#[must_use]
pub fn door(transaction: &Transaction) -> Door {
    Door::of(transaction.process)
}

/// A history in which outsiders are blind: what they change counts, what they see does not.
#[must_use]
pub fn changes_of_outsiders(history: &History) -> History {
    let blind = |transaction: &Transaction| {
        let mut transaction = transaction.clone();
        if door(&transaction) == Door::Outside {
            transaction.ops.retain(|op| op.written().is_some());
        }
        transaction
    };
    History {
        transactions: history
            .transactions
            .iter()
            .map(blind)
            .filter(|transaction| !transaction.ops.is_empty())
            .collect(),
        orders: history.orders.clone(),
    }
}

impl Told {
    /// Of each door how many committed, aborted, and were killed.
    #[must_use]
    pub fn outcomes(&self) -> BTreeMap<Door, [usize; 3]> {
        let mut all: BTreeMap<Door, [usize; 3]> = BTreeMap::new();
        for transaction in &self.history.transactions {
            let n = match transaction.outcome {
                Outcome::Committed => 0,
                Outcome::Aborted => 1,
                Outcome::Indeterminate => 2,
            };
            all.entry(door(transaction)).or_default()[n] += 1;
        }
        all
    }

    /// The kinds of anomalies that only outsiders' looks make, with their numbers.
    #[must_use]
    pub fn seen_by_outsiders(&self) -> BTreeMap<Kind, usize> {
        let beyond = |(kind, n): (&Kind, &usize)| {
            let strict = self.strict.counts.get(kind).copied().unwrap_or(0);
            (*n > strict).then(|| (*kind, n - strict))
        };
        self.seen.counts.iter().filter_map(beyond).collect()
    }

    /// What is wrong if outsiders' looks at these kinds of things count. The look of one that waited at the gate for a
    /// new object of a publish that was then undone does not.
    #[must_use]
    pub fn seen_of(&self, kinds: &[keys::Kind]) -> Report {
        let mut history = self.history.clone();
        let undone: BTreeMap<(u64, u64), u64> = history
            .transactions
            .iter()
            .filter(|t| t.outcome == Outcome::Aborted && door(t) != Door::Outside)
            .flat_map(|t| t.ops.iter().map(|op| (op, t.end())))
            .filter_map(|(op, end)| Some(((op.key(), op.written()?), end)))
            .collect();
        for transaction in history.transactions.iter_mut().filter(|t| door(t) == Door::Outside) {
            let begun = transaction.invoked;
            let is_of_undone = |op: &Op| {
                let end = |value: &u64| undone.get(&(op.key(), *value));
                op.found().into_iter().flatten().filter_map(end).any(|end| begun < *end)
            };
            transaction.ops.retain(|op| {
                let counts = keys::kind(op.key()).is_some_and(|k| kinds.contains(&k));
                op.written().is_some() || counts && !is_of_undone(op)
            });
        }
        // A name that an outsider has built on what was undone stands beside the one that was put back, for
        // everybody.
        if self.astray > 0 {
            for transaction in &mut history.transactions {
                transaction.ops.retain(|op| keys::kind(op.key()) != Some(keys::Kind::Token));
            }
        }
        history.transactions.retain(|t| !t.ops.is_empty());
        check(&history)
    }

    /// A line about it.
    #[must_use]
    pub fn line(&self) -> String {
        let outcomes: Vec<String> = self
            .outcomes()
            .into_iter()
            .filter(|(door, _)| *door != Door::Test)
            .map(|(door, [committed, aborted, unknown])| {
                format!("{} {committed}+{aborted}+{unknown}", door.name())
            })
            .collect();
        let seen: Vec<String> =
            self.seen_by_outsiders().iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        format!(
            "{} (committed+aborted+unknown), {} killed; {}; {} changes of outsiders set aside, {} made \
             of what was undone; outsiders saw: {}",
            outcomes.join(", "),
            self.killed,
            self.strict.summary,
            self.aside,
            self.astray,
            if seen.is_empty() { "nothing amiss".to_owned() } else { seen.join(", ") },
        )
    }

    /// A report's first anomalies, with the transactions in question, and those that had to do with the
    /// same keys at the same time: the least that tells what happened.
    #[must_use]
    pub fn witnesses(&self, report: &Report) -> String {
        let mut text = String::new();
        for anomaly in report.anomalies.iter().take(SHOWN_MAX) {
            text.push_str(&format!("{}\n", clipped(&anomaly.to_string())));
            let of_anomaly = |t: &&Transaction| anomaly.transactions.contains(&t.id);
            let all = &self.history.transactions;
            let mut keys: BTreeSet<u64> =
                anomaly.cycle.iter().filter_map(|edge| edge.key).collect();
            let named = anomaly.text.strip_prefix("key ").and_then(|t| t.split_once(':'));
            keys.extend(named.and_then(|(key, _)| key.parse::<u64>().ok()));
            let theirs: Vec<&Transaction> =
                all.iter().filter(of_anomaly).filter(|t| door(t) != Door::Test).collect();
            let from = theirs.iter().map(|t| t.invoked).min().unwrap_or(0);
            let until = theirs.iter().map(|t| t.end()).filter(|end| *end != NEVER).max();
            let until = until.unwrap_or(NEVER);
            let at_the_same_time = |t: &&Transaction| {
                t.invoked <= until
                    && t.completed.saturating_add(AROUND) >= from
                    && t.ops.iter().any(|op| keys.contains(&op.key()))
            };
            let mut told: Vec<&Transaction> =
                all.iter().filter(|t| of_anomaly(t) || at_the_same_time(t)).collect();
            // Of the others, those that came last.
            told.sort_by_key(|t| (!of_anomaly(t), std::cmp::Reverse(t.invoked)));
            told.truncate(40);
            told.sort_by_key(|t| t.invoked);
            for t in &told {
                let mark = if of_anomaly(t) { '*' } else { ' ' };
                let ops: Vec<String> = t
                    .ops
                    .iter()
                    .filter(|op| door(t) != Door::Test || keys.contains(&op.key()))
                    .map(shown)
                    .collect();
                text.push_str(&format!(
                    "  {mark} T{} {} {:?} {:.3}..{:.3} ms: {}\n",
                    t.id,
                    door(t).name(),
                    t.outcome,
                    t.invoked.wrapping_sub(from).cast_signed() as f64 / 1e6,
                    t.completed.wrapping_sub(from).cast_signed() as f64 / 1e6,
                    ops.join("; ")
                ));
            }
        }
        text
    }

    /// Fails unless the transactions, with what outsiders changed, were strictly serializable: where no
    /// outsider has made something of what was undone.
    ///
    /// # Panics
    /// With what was wrong, and who took part in it.
    #[track_caller]
    pub fn expect_serializable(&self) {
        assert!(
            self.strict.is_clean() || self.astray > 0,
            "{}\n{}\n{}",
            self.line(),
            self.strict
                .counts
                .iter()
                .map(|(k, n)| format!("{n} {k}"))
                .collect::<Vec<_>>()
                .join(", "),
            self.witnesses(&self.strict)
        );
    }
}

/// Without the middle of long lists.
fn clipped(text: &str) -> String {
    text.lines()
        .map(|line| match line.char_indices().nth(600) {
            Some((n, _)) => format!("{}…", &line[..n]),
            None => line.to_owned(),
        })
        .collect::<Vec<_>>()
        .join("\n")
}

fn shown(op: &Op) -> String {
    let of = |key: u64| match keys::kind(key) {
        Some(keys::Kind::Cell) => format!("cell-{}", keys::number(key)),
        Some(keys::Kind::Name) => format!("name {}", keys::path(key)),
        _ => keys::path(key),
    };
    match op {
        Op::Append { key, value } => format!("append {} {value:x}", of(*key)),
        Op::Write { key, value } => format!("write {} {value:x}", of(*key)),
        Op::ReadRegister { key, value } => format!("{} has {value:x}", of(*key)),
        Op::ReadList { key, values } => {
            let last = &values[values.len().saturating_sub(4)..];
            format!("{} has {} up to {last:x?}", of(*key), values.len())
        }
    }
}
