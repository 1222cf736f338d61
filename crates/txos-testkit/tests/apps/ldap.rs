//! slapd with its flat files in transactions: built from Debian's source package, and asked, loaded and killed by its tests in
//! Python. It takes minutes and a network, so it is a long mode.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use txos_testkit::block::state::copy_sparse;
use txos_testkit::block::{Cut, Event, Kind, Log, Recorder, State};
use txos_testkit::image::Image;
use txos_testkit::random::{self, Random};
use txos_testkit::{Lab, require, skip};

use crate::{Python, built_for};

const WHY_NOT: &str = "it builds slapd: ./test --long apps";

/// What was built for all of these tests; an error says why it could not be.
fn built() -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(|| built_for("ldap", "TXOS_LDAP")).clone()
}

fn has_what_it_takes() -> bool {
    ["python3", "cc", "make", "dpkg-source", "patch"].into_iter().all(skip::has)
}

fn python(lab: &Lab) -> Result<Python<'_>, String> {
    let built = built()?.to_string_lossy().into_owned();
    Ok(Python::new(lab, "ldap").env("TXOS_LDAP", &built).env("TXOS_TEST_LONG", "apps"))
}

#[test]
fn answers_as_on_lmdb() {
    require!(skip::long("apps"), "{WHY_NOT}");
    require!(has_what_it_takes(), "there is no Python, compiler, make, dpkg-source or patch");
    let lab = Lab::new();
    match python(&lab) {
        Ok(python) => python.run("tests.test_protocol"),
        Err(why) => return skip::say(&format!("slapd can't be built: {why}")),
    }
    lab.expect_clean();
}

/// Many clients, two servers on one database; a hundred kills.
#[test]
fn many_clients_and_kills() {
    require!(skip::long("apps"), "{WHY_NOT}");
    require!(has_what_it_takes(), "there is no Python, compiler, make, dpkg-source or patch");
    let lab = Lab::new();
    // (With a journal, which the commits of few files go by.)
    let Some(image) = Image::mount(&lab, "ext4", 512, "disk") else {
        return skip::say("no ext4 image");
    };
    let lab = lab.at(&image.point);
    match python(&lab) {
        Ok(python) => {
            for test in [
                "test_of_those_who_add_the_same_one_wins",
                "test_no_change_is_lost",
                "test_a_subtree_that_moves_takes_everything_along",
                "test_two_servers_on_one_database",
            ] {
                python.run(&format!("tests.test_many.Many.{test}"));
            }
            let mut python = python;
            for seed in ["1", "2", "3", "4"] {
                python = python.env("TXOS_TEST_SEED", seed);
                python.run("tests.test_many.Many.test_killed");
            }
        }
        Err(why) => skip::say(&format!("slapd can't be built: {why}")),
    }
}

/// Whatever of its writes a power cut leaves: a server on it has all that was acknowledged, and nothing half.
#[test]
fn power_cuts() {
    require!(skip::long("apps"), "{WHY_NOT}");
    require!(has_what_it_takes(), "there is no Python, compiler, make, dpkg-source or patch");
    require!(Kind::Ext4.is_here(), "no ext4 on this machine");
    let built = match built() {
        Ok(built) => built,
        Err(why) => return skip::say(&format!("slapd can't be built: {why}")),
    };
    let lab = Lab::in_memory();
    let (work, point) = (lab.dir().join("work"), lab.dir().join("m"));
    std::fs::create_dir_all(work.join("recorder")).unwrap();
    std::fs::create_dir(&point).unwrap();
    let disks = Disks { lab: lab.at(&point), work, point, built };
    let log = disks.record();
    let begin = log.events.iter().position(|e| matches!(e, Event::Mark(_))).unwrap();
    let (seed, rounds) = (random::seed(), 100);
    println!("TXOS_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let mut flushes = State::at_flushes(&log, begin);
    for round in 0..rounds {
        let state = if round % 3 == 0 && !flushes.is_empty() {
            flushes.swap_remove(random.below(flushes.len() as u64) as usize)
        } else {
            let cuts = [Cut::Prefix, Cut::Subset, Cut::Reordered, Cut::Torn];
            State::any(&log, begin, *random.pick(&cuts), &Kind::Ext4.medium(), &mut random)
        };
        disks.check(&log, &state, round % 2 == 0);
    }
    let (writes, count) = log.counts();
    println!("{rounds} power cuts in {writes} writes and {count} flushes");
}

/// A server's disk, recorded, and what is made of it.
struct Disks {
    lab: Lab,
    work: PathBuf,
    point: PathBuf,
    built: PathBuf,
}

impl Disks {
    /// `apps/ldap/tests/power.py`, on what is mounted.
    fn python(&self, action: &str) -> Command {
        let app = crate::root().join("apps/ldap");
        let mut command = Command::new("python3");
        let _ = command
            .args(["-m", "tests.power", action])
            .arg(self.lab.tree().join("data"))
            .current_dir(&app)
            .env("PYTHONPATH", &app)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("TXOS_LDAP", &self.built)
            .env("TXOS_STORE", self.lab.store())
            .env("TXOS_REALM", self.lab.realm())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    /// What a server does to its disk under a load, with what the load tells as marks.
    fn record(&self) -> Log {
        let (image, base) = (self.work.join("recorded"), self.work.join("base"));
        Kind::Ext4.make(&image);
        let mounted = Kind::Ext4.mount(&image, &self.point).unwrap();
        std::fs::create_dir(self.lab.tree()).unwrap();
        assert!(self.python("fill").status().unwrap().success(), "filling the directory");
        mounted.unmount();
        copy_sparse(&image, &base).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_block-recorder"));
        let mut recorder = Recorder::start(program, &image, &self.work.join("recorder"));
        let mounted = Kind::Ext4.mount(&recorder.disk(), &self.point).unwrap();
        let mut load = self.python("load").spawn().unwrap();
        let mut answers = load.stdin.take().unwrap();
        for line in BufReader::new(load.stdout.take().unwrap()).lines() {
            recorder.mark(&line.unwrap());
            answers.write_all(b"\n").unwrap();
        }
        assert!(load.wait().unwrap().success(), "the load");
        let log = recorder.log();
        mounted.unmount();
        log
    }

    /// A server on one state. It recovers by itself, or is started after `txos recover`.
    fn check(&self, log: &Log, state: &State, recovered: bool) {
        let image = self.work.join("crashed");
        state.write_image(log, &self.work.join("base"), &image).unwrap();
        let mounted = Kind::Ext4.mount(&image, &self.point).unwrap();
        if recovered {
            let _ = self.lab.txos(["recover"]).env("TXOS_BOOT_ID", "after the cut").run().expect(0);
        }
        let mut check = self.python("check").env("TXOS_BOOT_ID", "after the cut").spawn().unwrap();
        let mut lines = check.stdin.take().unwrap();
        for mark in log.marks_before(state.at).filter(|mark| mark.starts_with('{')) {
            writeln!(lines, "{mark}").unwrap();
        }
        drop(lines);
        assert!(check.wait().unwrap().success(), "{state}, recovered before: {recovered}");
        mounted.unmount();
    }
}

#[test]
fn a_full_disk() {
    require!(skip::long("apps"), "{WHY_NOT}");
    require!(has_what_it_takes(), "there is no Python, compiler, make, dpkg-source or patch");
    let lab = Lab::new();
    let Some(image) = Image::mount(&lab, "ext4", 32, "small") else {
        return skip::say("no ext4 image");
    };
    let lab = lab.at(&image.point);
    let _ = lab.native("head -c 1M /dev/zero > ../ballast");
    let small = image.point.to_string_lossy().into_owned();
    match python(&lab) {
        Ok(python) => {
            python.env("TXOS_TEST_SMALL", &small).run("tests.test_many.Many.test_a_full_disk");
        }
        Err(why) => skip::say(&format!("slapd can't be built: {why}")),
    }
}
