//! The most memory that work takes, page cache and kernel included, in a transaction and without.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bench::{Bench, run};
use crate::figure::{Figure, Section, Unit};
use crate::program::{Place, Program};

/// A control group that counts memory. Removed with it.
struct Group {
    dir: PathBuf,
    peak: &'static str,
}

impl Group {
    /// A new one, of whichever version counts memory here.
    fn new() -> Result<Self, String> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("txos-bench-{}-{n}", std::process::id());
        let mut why = String::from("no control groups that count memory");
        let roots = [
            ("/sys/fs/cgroup", "memory.peak"),
            ("/sys/fs/cgroup/memory", "memory.max_usage_in_bytes"),
        ];
        for (root, peak) in roots {
            let dir = Path::new(root).join(&name);
            match fs::create_dir(&dir) {
                Ok(()) => {
                    let group = Group { dir, peak };
                    if group.dir.join(peak).exists() {
                        return Ok(group);
                    }
                }
                Err(error) => why = format!("{}: {error}", dir.display()),
            }
        }
        Err(why)
    }

    /// Runs a command in it: the most bytes that it and all that it started had at a time.
    fn peak(&self, command: &Command) -> Result<f64, String> {
        let mut inside = Command::new("sh");
        inside.args(["-c", "echo $$ > \"$1\" && shift && exec \"$@\"", "sh"]);
        inside
            .arg(self.dir.join("cgroup.procs"))
            .arg(command.get_program())
            .args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(key, value),
                None => inside.env_remove(key),
            };
        }
        inside.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        match run(&mut inside)? {
            0 => {}
            status => return Err(format!("{command:?}: ended with {status}")),
        }
        let path = self.dir.join(self.peak);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        text.trim().parse().map_err(|e| format!("{}: {text:?}: {e}", path.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What is still deleted in the background leaves it soon.
        for _ in 0..200 {
            match fs::remove_dir(&self.dir) {
                Ok(()) => return,
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
            }
        }
        eprintln!("txos-bench: {} is left", self.dir.display());
    }
}

/// The small and the large files of LFS, and the Andrew benchmark's copies.
pub fn peaks(bench: &Bench) -> Result<Section, String> {
    let lfs = Program::compile(bench, "lfs")?;
    let rab = Program::compile(bench, "rab")?;
    let (count, size) = (bench.files(10_000), bench.files(100 << 20));
    let filled = if bench.quick() { 20 } else { 100 };
    let settings =
        [("count", count), ("size", size), ("files", 500), ("dirs", 1_000), ("filled", filled)];
    let works = [
        (&lfs, vec!["small"], "create", format!("LFS: create {count} small files"), 1.01),
        (&lfs, vec!["large"], "write", format!("LFS: write {} MiB", size >> 20), 1.13),
        (&rab, vec![], "cp", format!("Andrew: {} copies", 500 * filled), 1.05),
    ];
    let place = Place::disks(bench)?.into_iter().next().ok_or("no place")?;
    let mut figures = Vec::new();
    for (n, (program, words, phase, what, papers)) in works.iter().enumerate() {
        let mut peaks: [Vec<f64>; 3] = Default::default();
        for round in 0..bench.pairs() {
            eprintln!("peaks: {what}, round {} of {}", round + 1, bench.pairs());
            for (subject, peaks) in peaks.iter_mut().enumerate() {
                let place = place.inside(&format!("peak{n}-{round}-{subject}"))?;
                let tree = place.at("tree");
                fs::create_dir(&tree).map_err(|e| format!("{}: {e}", tree.display()))?;
                let command = |phase: &str, how: &str, with: bool| {
                    let mut all = vec![tree.to_string_lossy().into_owned()];
                    all.extend(words.iter().map(|w| (*w).to_owned()));
                    // The one has its way before its phase, the other behind it.
                    let order = if words.is_empty() { [phase, how] } else { [how, phase] };
                    all.extend(order.map(str::to_owned));
                    let all: Vec<&str> = all.iter().map(String::as_str).collect();
                    let mut command = program.command(&place, with, &all);
                    command.envs(settings.iter().map(|(k, v)| (k, v.to_string())));
                    command
                };
                if words.is_empty() {
                    for phase in ["files", "mkdir"] {
                        run(&mut command(phase, "plain", false))?;
                    }
                }
                let plain = command(phase, "plain", false);
                let measured = match subject {
                    0 => plain,
                    1 => command(phase, "transaction", true),
                    _ => {
                        let mut txos = bench.transaction_at(place.dir(), &["--no-durable"]);
                        txos.arg(plain.get_program()).args(plain.get_args());
                        txos.envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))));
                        txos
                    }
                };
                bench.flush()?;
                peaks.push(Group::new()?.peak(&measured)?);
            }
        }
        let [base, inside, run] = peaks;
        for (subject, values) in [("in the program", inside), ("`txos run`", run)] {
            figures.push(Figure {
                place: place.name.clone(),
                what: what.clone(),
                subject: subject.into(),
                unit: Unit::Bytes,
                base: base.clone(),
                values,
                papers: Some(*papers),
                asked: None,
            });
        }
    }
    Ok(Section {
        name: "peaks".into(),
        title: "Memory".into(),
        text: "The most that a control group had at a time: the command, all that it starts, their page cache and \
               the kernel's memory for them. The papers count high memory (1 % more for small files, 13 % for the large one) and \
               low memory (5 % more over all)."
            .into(),
        base: "native".into(),
        figures,
        ..Section::default()
    })
}
