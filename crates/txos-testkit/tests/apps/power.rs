//! A server's disk, what a power cut may leave of it, and what the server then makes of that. `tests/power.py` of the server is
//! the load and the questions, and `apps/acknowledged.py` what they share.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use txos_testkit::block::state::copy_sparse;
use txos_testkit::block::{Cut, Event, Kind, Log, Recorder, State};
use txos_testkit::random::{self, Random};
use txos_testkit::{Lab, require};

/// Images of one server's disk, in memory.
pub struct Disks {
    app: &'static str,
    built: (&'static str, PathBuf),
    /// Tree and store lie where images are mounted.
    lab: Lab,
    work: PathBuf,
    point: PathBuf,
}

impl Disks {
    /// `built`: the variable that tells where the server was built, and where that is.
    pub fn new(app: &'static str, built: (&'static str, PathBuf)) -> Disks {
        let lab = Lab::in_memory();
        let (work, point) = (lab.dir().join("work"), lab.dir().join("m"));
        std::fs::create_dir_all(work.join("recorder")).unwrap();
        std::fs::create_dir(&point).unwrap();
        // A server may be another user's.
        std::fs::set_permissions(lab.dir(), PermissionsExt::from_mode(0o755)).unwrap();
        Disks { app, built, lab: lab.at(&point), work, point }
    }

    /// Records the load, and tries so many power cuts. Of a server with the lab's store, every second time, `txos recover`
    /// comes before it.
    pub fn cut(self, rounds: usize, lab_store: bool) {
        require!(Kind::Ext4.is_here(), "no ext4 on this machine");
        let log = self.record();
        let begin = log.events.iter().position(|e| matches!(e, Event::Mark(_))).unwrap();
        let seed = random::seed();
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
            self.check(&log, &state, lab_store && round % 2 == 0);
        }
        let (writes, flushes) = log.counts();
        println!("{}: {rounds} power cuts in {writes} writes and {flushes} flushes", self.app);
    }

    /// `tests/power.py`, on what is mounted.
    fn python(&self, action: &str) -> Command {
        let apps = crate::root().join("apps");
        let app = apps.join(self.app);
        let mut command = Command::new("python3");
        let _ = command
            .args(["-m", "tests.power", action])
            .arg(self.lab.tree().join("data"))
            .current_dir(&app)
            .env("PYTHONPATH", std::env::join_paths([&app, &apps]).unwrap())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env(self.built.0, &self.built.1)
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

    /// A server on one state. It recovers by itself, unless that was done before.
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
