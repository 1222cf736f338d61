//! The power is cut at random instants: what was acknowledged is there, the rest whole or not at all. Of
//! transactions without flushes nothing is promised, but that all the others, and recovery, do not suffer.
//!
//! Six sequences of transactions work at once, each on two disks (`txos_testkit::power::work`). An
//! instant is a number of lines that the guest has said, and a time after that, both from the seed: now and
//! then it lies before the guest has recovered from the cut before. What the disks had not been told
//! to flush is kept, lost, cut off or scattered.
//!
//! `./test --long power` goes on for an hour, or `TXOS_TEST_SECONDS`.
//!
//! `TXOS_TEST_SEED` repeats the work and the choices; the instants themselves depend on how fast the
//! machine is.

use std::time::{Duration, Instant};

use txos_testkit::power::disk::{Disk, Loss};
use txos_testkit::power::machine::Machine;
use txos_testkit::power::work::Kind;
use txos_testkit::random::{self, Random};
use txos_testkit::{require, skip};

use crate::place::{Place, parts};

/// How many lines of the guest's work there are at most before a cut.
const LINES_MAX: u64 = 60;
/// How long after the last line the cut comes at most.
const DELAY_MAX_MS: u64 = 400;
/// The same, from the guest's first line on, for a cut before the work.
const EARLY_MAX_MS: u64 = 2500;

/// What is known of the sequences: up to where each is acknowledged, and up to where it has begun.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    acked: u64,
    begun: u64,
}

/// A run of cuts on the same disks.
struct Run {
    place: Place,
    random: Random,
    known: [Known; Kind::ALL.len()],
    seed: u64,
    fresh: bool,
    /// Steps that were found done though nobody had been told.
    unannounced: u64,
    /// Steps without flushes that were gone.
    gone: u64,
    /// How often there were parts of a step without flushes.
    parts: u64,
}

impl Run {
    fn new(kind: &'static str, seed: u64, name: &str) -> Option<Run> {
        let parts = parts().ok()?;
        Some(Run {
            place: Place::new(parts, kind, name),
            random: Random::new(seed),
            known: Default::default(),
            seed,
            fresh: true,
            unannounced: 0,
            gone: 0,
            parts: 0,
        })
    }

    fn boot(&mut self, more: &str) -> Machine {
        let known: Vec<String> =
            self.known.iter().map(|k| format!("{}-{}", k.acked, k.begun)).collect();
        let known = if self.fresh { String::new() } else { known.join(",") };
        self.place
            .boot(&format!("guest.do=work guest.seed={} guest.known={known} {more}", self.seed))
    }

    /// Takes in what the guest has said. Gives how many sequences it has judged.
    fn learn(&mut self, said: &[String]) -> Result<usize, String> {
        let mut verdicts = 0;
        for line in said {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |index: usize| words.get(index).and_then(|w| w.parse::<u64>().ok());
            let known = number(1)
                .and_then(|n| usize::try_from(n).ok())
                .and_then(|n| Some((*Kind::ALL.get(n)?, self.known.get_mut(n)?)));
            match (words.first().copied(), known, number(2)) {
                (Some("VERDICT"), Some((kind, known)), Some(n)) => {
                    if !(known.acked..=known.begun).contains(&n) {
                        return Err(format!("{kind:?}: {n} is out of {known:?}"));
                    }
                    if kind.is_durable() {
                        self.unannounced += n - known.acked;
                    } else {
                        self.gone += known.begun - n;
                    }
                    *known = Known { acked: n, begun: n };
                    verdicts += 1;
                }
                (Some("PARTS"), Some((kind, known)), Some(n)) if !kind.is_durable() => {
                    self.parts += 1;
                    *known = Known { acked: n, begun: n };
                    verdicts += 1;
                }
                (Some("BEGIN"), Some((_, known)), Some(n)) => known.begun = n,
                (Some("ACK"), Some((kind, known)), Some(n)) if kind.is_durable() => known.acked = n,
                (Some("READY"), ..) => self.fresh = false,
                _ if is_bad(line) => return Err(line.clone()),
                _ => {}
            }
        }
        Ok(verdicts)
    }

    /// Boots, works, and loses its power. Gives a line for the table.
    fn cut(&mut self) -> Result<String, String> {
        let mut machine = self.boot("");
        // The disks are empty until the first work has begun.
        let early = !self.fresh && self.random.below(4) == 0;
        let lines = self.random.below(LINES_MAX);
        let delay = self.random.below(if early { EARLY_MAX_MS } else { DELAY_MAX_MS });
        machine.wait_for("the guest works", |said| {
            let begun = said.iter().position(|line| line == if early { "UP" } else { "READY" });
            let since = begun.map_or(0, |at| said.len() - at);
            let enough = begun.is_some() && (early || since as u64 > lines);
            enough || said.iter().any(|line| is_bad(line))
        });
        // Not to wait for something: this is the instant.
        let from = Instant::now();
        while from.elapsed() < Duration::from_millis(delay) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let said = machine.cut();
        let loss = *self.random.pick(&Loss::ALL);
        let cuts = self.place.disks.each_mut().map(|disk| disk.cut(loss, &mut self.random));
        self.learn(&said).map_err(|why| format!("{why}\n{}", said.join("\n")))?;
        let (unflushed, lost) =
            cuts.iter().fold((0, 0), |sum, cut| (sum.0 + cut.unflushed, sum.1 + cut.lost));
        let at: Vec<String> =
            self.known.iter().map(|k| format!("{}-{}", k.acked, k.begun)).collect();
        let when = if early { "before the work" } else { "while working" };
        Ok(format!(
            "{when}, {loss:?}: {lost} of {unflushed} unflushed sectors lost; {}",
            at.join(" ")
        ))
    }

    /// Boots once more, only to look.
    fn look(&mut self) -> Result<(), String> {
        let said = self.boot("guest.stop").shut_down();
        self.place.disks.iter_mut().for_each(Disk::shut_down);
        match self.learn(&said) {
            Ok(verdicts) if verdicts == Kind::ALL.len() => Ok(()),
            Ok(verdicts) => Err(format!("{verdicts} verdicts\n{}", said.join("\n"))),
            Err(why) => Err(format!("{why}\n{}", said.join("\n"))),
        }
    }
}

fn is_bad(line: &str) -> bool {
    ["BAD ", "panicked", "Kernel panic", "EXT4-fs error", "XFS (vdb): Corruption", "BTRFS error"]
        .iter()
        .any(|bad| line.contains(bad))
}

/// Cuts the power some times in a row.
fn cut_and_look(kind: &'static str, seed: u64, cuts: u64) {
    let mut run = Run::new(kind, seed, &format!("cuts-{kind}")).expect("the parts are there");
    for number in 1..=cuts {
        match run.cut() {
            Ok(line) => println!("power: seed {seed}, data on {kind}, cut {number}: {line}"),
            Err(why) => panic!("seed {seed}, data on {kind}, cut {number}: {why}"),
        }
    }
    if let Err(why) = run.look() {
        panic!("seed {seed}, data on {kind}, after {cuts} cuts: {why}");
    }
    println!(
        "power: seed {seed}, data on {kind}: whole after {cuts} cuts; {} steps were done and not \
         announced, {} without flushes were gone, and {} times parts of them were there",
        run.unannounced, run.gone, run.parts
    );
}

#[test]
fn what_was_acknowledged_survives_power_cuts() {
    let parts = parts();
    require!(parts.is_ok(), "{}", parts.as_ref().err().unwrap_or(&""));
    let mut seed = random::seed();
    println!("TXOS_TEST_SEED={seed}");
    if !skip::long("power") {
        return cut_and_look("ext4", seed, 3);
    }
    let asked = std::env::var("TXOS_TEST_SECONDS").ok().and_then(|s| s.parse().ok());
    let end = Instant::now() + Duration::from_secs(asked.unwrap_or(3600));
    let kinds = ["ext4", "xfs", "btrfs"].into_iter().filter(|k| skip::has(&format!("mkfs.{k}")));
    for kind in kinds.collect::<Vec<_>>().into_iter().cycle() {
        cut_and_look(kind, seed, 5);
        seed = seed.wrapping_add(1);
        if Instant::now() > end {
            break;
        }
    }
}
