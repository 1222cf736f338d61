//! What is recorded: transactions one after the other, through both front doors, all durable.

use std::path::{Path, PathBuf};

use txos_testkit::block::{Event, Kind, Log, Mounted, Recorder};
use txos_testkit::random::Random;
use txos_testkit::{Invocation, Lab, Rendezvous, Tree};

use crate::program::{Linked, program};

/// The tree that all start from.
const PREPARE: &str = "
    umask 022
    mkdir -p here/inner other dir spool
    echo x > here/x; echo y > here/inner/y; echo conf > conf; echo log > log
    echo linked > other/one; ln other/one other/two; echo a > attributes; chmod 600 attributes
    : > spool/outside; echo bye > dir/removed; echo stays > dir/stays; ln -s conf link
    head -c 100000 /dev/zero | tr '\\0' p > pages; head -c 40960 /dev/zero | tr '\\0' c > cells
    find . -exec touch -h -d @1000000000 {} +";

/// One of everything, by a shell in `txos run`; `$n` is its number.
const RUN: &str = "
    set -e
    umask 022
    mkdir run-$n run-$n/deep
    yes $n.run | head -c 20000 > run-$n/deep/file; ln -s ../x run-$n/link
    echo conf $n > conf
    mv dir/stays dir/$n.moved; mv dir/$n.moved dir/stays; echo $n >> dir/stays
    rm -f dir/removed; echo $n > dir/new-$n
    echo $n >> other/one
    yes $n | dd of=pages bs=1 seek=$((n * 7000)) count=300 conv=notrunc status=none iflag=fullblock
    rm link; ln -s conf-$n link
    if test -e here; then mv here there; else mv there here; fi
    echo $n >> log
    chmod 6$((n % 8))0 attributes";

/// One transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// By `txos run`.
    Run,
    /// In a program: a full commit.
    Full,
    /// In a program: a light one, of bytes.
    Light,
    /// In a program: a light one, of names; on btrfs a full one.
    Names,
    /// No transaction: somebody makes an empty file, or removes it, and flushes nothing.
    Outside,
    /// A command that runs as one transaction, by `txos run --in-process`.
    Loaded,
}

impl Step {
    /// Whether the history of commands has it.
    pub fn is_recorded(self) -> bool {
        matches!(self, Step::Run | Step::Loaded)
    }

    /// The letter of the program for it, if it is one of a program.
    fn letter(self) -> Option<char> {
        match self {
            Step::Full => Some('f'),
            Step::Light => Some('l'),
            Step::Names => Some('n'),
            Step::Run | Step::Loaded | Step::Outside => None,
        }
    }
}

/// Everything that a recording is made of.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The transactions.
    pub steps: Vec<Step>,
    /// What the store has seen before the recording begins.
    pub before: Vec<Step>,
    /// The mistake that txos makes (`TXOS_MISTAKE`), if any.
    pub mistake: Option<&'static str>,
}

impl Workload {
    /// A store that has been used, or a new one, and some transactions.
    pub fn random(random: &mut Random) -> Workload {
        use Step::{Full, Light, Loaded, Names, Outside, Run};
        let before: &[&[Step]] =
            &[&[], &[Light], &[Run, Light], &[Light, Full], &[Loaded], &[Names]];
        let before = random.pick(before).to_vec();
        let steps = 0..3 + random.below(4);
        let all = [Run, Full, Light, Light, Loaded, Names, Names, Outside];
        let mut steps: Vec<Step> = steps.map(|_| *random.pick(&all)).collect();
        // What nobody flushes is flushed by the next, but not by one that has no names.
        steps.push(Names);
        for at in 1..steps.len() {
            if steps[at - 1] == Outside && steps[at] == Light {
                steps[at] = Names;
            }
        }
        Workload { steps, before, mistake: None }
    }
}

/// A place for images, in memory, and the place in it where they are mounted.
pub struct Bench {
    /// For `txos`: tree and store lie where images are mounted.
    pub lab: Lab,
    /// For files.
    pub work: PathBuf,
    /// Where images are mounted.
    pub point: PathBuf,
    /// What is mounted.
    pub kind: Kind,
}

/// What happened, and what the tree was after each step.
pub struct Recording {
    /// On the disk.
    pub log: Log,
    /// The first event that a crash may come before.
    pub begin: usize,
    /// The tree at first, and after each step.
    pub trees: Vec<Tree>,
    /// The disk before.
    pub base: PathBuf,
    /// What was done.
    pub workload: Workload,
}

impl Bench {
    pub fn new(kind: Kind) -> Bench {
        let lab = Lab::in_memory();
        let work = lab.dir().join("work");
        std::fs::create_dir(&work).unwrap();
        let point = lab.dir().join("m");
        std::fs::create_dir(&point).unwrap();
        let lab = lab.at(&point);
        Bench { lab, work, point, kind }
    }

    /// Mounts an image, or a recorder's disk.
    pub fn mount(&self, disk: &Path) -> Result<Mounted, String> {
        self.kind.mount(disk, &self.point)
    }

    /// A recorder of an image.
    pub fn recorder(&self, image: &Path) -> Recorder {
        let dir = self.work.join("recorder");
        std::fs::create_dir_all(&dir).unwrap();
        Recorder::start(Path::new(env!("CARGO_BIN_EXE_block-recorder")), image, &dir)
    }

    /// Makes the file system and the tree, and records a workload.
    pub fn record(&self, workload: Workload) -> Recording {
        let (image, base) = (self.work.join("recorded"), self.work.join("base"));
        self.kind.make(&image);
        let mounted = self.mount(&image).unwrap();
        std::fs::create_dir(self.lab.tree()).unwrap();
        let _ = self.lab.native(PREPARE);
        let mut number = 0;
        self.perform(&workload.before, &mut number, None, &mut |_| {});
        mounted.unmount();
        txos_testkit::block::state::copy_sparse(&image, &base).unwrap();

        let mut recorder = self.recorder(&image);
        let mounted = self.mount(&recorder.disk()).unwrap();
        rustix::fs::sync();
        recorder.mark("begin");
        let mut trees = vec![Tree::of(self.lab.tree())];
        self.perform(&workload.steps, &mut number, workload.mistake, &mut |step| {
            if workload.steps[step - 1] != Step::Outside {
                recorder.mark(&format!("acknowledged {step}"));
            }
            trees.push(Tree::of(self.lab.tree()));
        });
        let log = recorder.log();
        mounted.unmount();
        drop(recorder);
        let begin = log.events.iter().position(is_begin).unwrap();
        Recording { log, begin, trees, base, workload }
    }

    /// Does steps; after each `done` is told how many of them there are.
    fn perform(
        &self,
        steps: &[Step],
        number: &mut usize,
        mistake: Option<&str>,
        done: &mut dyn FnMut(usize),
    ) {
        let mistaken = |run: Invocation| match mistake {
            Some(name) => run.env("TXOS_MISTAKE", name),
            None => run,
        };
        let mut at = 0;
        while let Some(step) = steps.get(at) {
            *number += 1;
            if *step == Step::Run {
                let run = self.lab.script(&[], RUN).env("n", number.to_string());
                let _ = mistaken(run).run().expect(0);
                at += 1;
                done(at);
                continue;
            }
            if *step == Step::Outside {
                let file = self.lab.tree().join("spool/outside");
                if std::fs::remove_file(&file).is_err() {
                    std::fs::write(&file, "").unwrap();
                }
                at += 1;
                done(at);
                continue;
            }
            if *step == Step::Loaded {
                let command = ["run", "--in-process", "--durable", "--", "cp", "-a", "dir"];
                let run = self.lab.txos(command).arg(format!("loaded-{number}"));
                let _ = mistaken(run).run().expect(0);
                at += 1;
                done(at);
                continue;
            }
            // What follows each other within a program is one process.
            let letters = steps[at..].iter().map_while(|step| step.letter()).enumerate();
            let words: Vec<String> = letters.map(|(i, l)| format!("{l}{}", *number + i)).collect();
            let programs = words.len();
            let mut meeting = Rendezvous::new();
            let running = mistaken(Invocation::new(program("blocks", Linked::WithLibrary)))
                .env("TXOS_STORE", self.lab.store())
                .env("TXOS_REALM", self.lab.realm())
                .dir(self.lab.tree())
                .args(&words)
                .meeting(&mut meeting)
                .start();
            for _ in 0..programs {
                if !meeting.arrived() {
                    break;
                }
                at += 1;
                done(at);
                meeting.go();
            }
            let _ = running.wait().expect(0);
            *number += programs - 1;
        }
    }
}

fn is_begin(event: &Event) -> bool {
    matches!(event, Event::Mark(text) if text == "begin")
}
