//! Who does the same work: the bare kernel, an overlay without anything else, `txos run`, a program
//! with transactions of its own, and `try`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::bench::{self, Bench};
use crate::program::Place;

/// Who does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The command, on the tree itself. All others are compared with it.
    Native,
    /// The command in an overlay over the tree, in a mount namespace of its own; nothing is published.
    Overlay,
    /// `txos run`.
    Run,
    /// `txos run --view library`.
    Library,
    /// The program's own transactions.
    Inside,
    /// `try` (a shell script: overlays and a copy of what changed), from this checkout.
    Try(PathBuf),
}

impl Subject {
    /// What it is called in a table.
    pub fn name(&self) -> &'static str {
        match self {
            Subject::Native => "native",
            Subject::Overlay => "overlayfs",
            Subject::Run => "`txos run`",
            Subject::Library => "`--view library`",
            Subject::Inside => "in the program",
            Subject::Try(_) => "`try`",
        }
    }

    /// Whether what it has done is in the tree, and flushed if that was asked for.
    fn flushes(&self) -> bool {
        matches!(self, Subject::Run | Subject::Library | Subject::Inside)
    }
}

/// A new tree for one subject and one round, with a store of its own beside it.
#[derive(Debug)]
pub struct Site<'a> {
    bench: &'a Bench,
    place: Place,
    subject: Subject,
    durable: bool,
}

impl<'a> Site<'a> {
    /// Makes it.
    pub fn new(
        bench: &'a Bench,
        place: &Place,
        name: &str,
        subject: &Subject,
        durable: bool,
    ) -> Result<Self, String> {
        let place = place.inside(name)?;
        for part in ["tree", "upper", "work"] {
            let path = place.at(part);
            std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(Site { bench, place, subject: subject.clone(), durable })
    }

    /// The tree.
    pub fn tree(&self) -> PathBuf {
        self.place.at("tree")
    }

    /// The subject's command for these words.
    fn command(&self, words: &[OsString]) -> Command {
        let mut command = match &self.subject {
            Subject::Native | Subject::Inside => {
                Command::new(words.first().map_or(OsStr::new("true"), OsString::as_os_str))
            }
            Subject::Overlay => {
                let mut command = overlay(&self.tree(), self.place.dir());
                command.args(words);
                command
            }
            Subject::Run | Subject::Library => {
                let view: &[&str] = match self.subject {
                    Subject::Library => &["--view", "library"],
                    _ => &[],
                };
                let durable: &[&str] = if self.durable { &[] } else { &["--no-durable"] };
                let options = [view, durable].concat();
                let mut command = self.bench.transaction_at(self.place.dir(), &options);
                command.args(words);
                command
            }
            Subject::Try(checkout) => {
                let mut command = Command::new(checkout.join("try"));
                command.arg("-y").args(words);
                command
            }
        };
        if matches!(self.subject, Subject::Native | Subject::Inside) {
            command.args(words.iter().skip(1));
        }
        self.place.keep(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.env("LC_ALL", "C.UTF-8").current_dir(self.tree());
        command
    }

    /// Runs it, in the tree: how many seconds it took, with the flush that makes it durable.
    pub fn time(&self, words: &[OsString], settings: &[(&str, String)]) -> Result<f64, String> {
        let mut command = self.command(words);
        command.envs(settings.iter().map(|(k, v)| (k, v)));
        flush(self.place.dir())?;
        let start = std::time::Instant::now();
        match bench::run(&mut command)? {
            0 => {}
            status => return Err(format!("{words:?}: ended with {status}")),
        }
        if self.durable && !self.subject.flushes() {
            flush(self.place.dir())?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// How a program that has transactions of its own is told what to do.
    pub fn how(&self) -> &'static str {
        match (&self.subject, self.durable) {
            (Subject::Inside, true) => "durable",
            (Subject::Inside, false) => "transaction",
            _ => "plain",
        }
    }

    /// Whether the program is the one with the library.
    pub fn with_library(&self) -> bool {
        self.subject == Subject::Inside
    }
}

/// Runs the words that are to follow with an overlay over a directory, in a mount namespace of its own;
/// its layers are `upper` and `work` in another one.
pub fn overlay(tree: &Path, layers: &Path) -> Command {
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        tree.display(),
        layers.join("upper").display(),
        layers.join("work").display()
    );
    let script = "mount -t overlay overlay -o \"$1\" \"$2\" && shift 2 && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", script, "sh"]);
    command.arg(options).arg(tree);
    command
}

/// Flushes the file system of a directory.
fn flush(dir: &Path) -> Result<(), String> {
    let fd = std::fs::File::open(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    rustix::fs::syncfs(&fd).map_err(|e| format!("flushing {}: {e}", dir.display()))
}
