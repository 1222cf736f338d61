//! A place where a case is carried out, in one way after the other, and what each must have left.

mod paths;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use txos_testkit::image::{Image, Overlay};
use txos_testkit::tree::{Node, Tolerance, overlay_traces};
use txos_testkit::trees::generate::Limits;
use txos_testkit::trees::{Case, Op};
use txos_testkit::{Done, Invocation, Lab, Tree, binary, skip};

use crate::program::{Linked, program};

/// Nobody has this number.
const ORDINARY: u32 = 64_322;

/// The status with which a command asks to be rolled back.
const ROLL_BACK: &str = "9";

/// Times that the operations have set by being carried out now.
const NOW: Tolerance = Tolerance { now_from: Some(1_500_000_000), times: false, links: false };

/// The same where old versions are retained: they may be links.
const RETAINED: Tolerance = Tolerance { links: true, ..NOW };

/// A way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Natively once more: the test's own soundness.
    Itself,
    /// `txos run` for each transaction; reverted, and that reverted.
    Run,
    /// `txos run`, rolled back.
    RolledBack,
    /// `txos run --keep`, `txos exec` for the others, and a commit; reverted.
    Kept,
    /// The same in the library's view; all of it undone and redone before the commit.
    KeptInside,
    /// `txos run --keep` and `txos exec`, discarded.
    Discarded,
    /// The same, one top directory committed before the rest.
    InParts,
    /// The same in the library's view.
    InPartsInside,
    /// The library's transactions in a program that is linked with it.
    Inside,
    /// The same, by threads in turn that are members of one transaction.
    Members,
    /// The same, aborted.
    Aborted,
    /// `txos run --in-process`; reverted, and that reverted.
    Loaded,
    /// The same, by a child of the command.
    Child,
    /// The same, by a statically linked program.
    Alone,
    /// `txos run` for the first part, the others natively, by others; then the first is reverted but for what
    /// the others have changed, and that reverted.
    Left,
    /// `txos run` for the first part; then some of its paths are reverted, and the rest or those reverts.
    Paths,
}

/// All but [`Mode::Itself`].
pub const MODES: &[Mode] = &[
    Mode::Run,
    Mode::Inside,
    Mode::Members,
    Mode::Kept,
    Mode::KeptInside,
    Mode::RolledBack,
    Mode::Aborted,
    Mode::InParts,
    Mode::InPartsInside,
    Mode::Discarded,
    Mode::Loaded,
    Mode::Child,
    Mode::Alone,
    Mode::Left,
    Mode::Paths,
];

impl Mode {
    /// As it stands in a case.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Itself => "itself",
            Mode::Run => "run",
            Mode::RolledBack => "rolled-back",
            Mode::Kept => "kept",
            Mode::KeptInside => "kept-inside",
            Mode::Discarded => "discarded",
            Mode::InParts => "in-parts",
            Mode::InPartsInside => "in-parts-inside",
            Mode::Inside => "inside",
            Mode::Members => "members",
            Mode::Aborted => "aborted",
            Mode::Loaded => "loaded",
            Mode::Child => "child",
            Mode::Alone => "alone",
            Mode::Left => "left",
            Mode::Paths => "paths",
        }
    }
}

/// What was not as it should be.
#[derive(Clone, Debug)]
pub struct Failure {
    /// In which mode.
    pub mode: Mode,
    /// Of which sort.
    pub kind: &'static str,
    /// For people.
    pub text: String,
}

/// What a native run of a case has shown.
struct Native {
    /// The tree before, and after each part.
    trees: Vec<Tree>,
    /// What the operations of each part answered.
    answers: Vec<String>,
    /// The case without the operations that were left out.
    case: Case,
}

/// `Some`: refused, or otherwise not as natively, as docs/limits.md says by this message.
type Checked = Result<Option<&'static str>, (&'static str, String)>;

/// The place.
pub struct Field {
    lab: Lab,
    name: String,
    ordinary: bool,
    /// Mounts that may be written to.
    writable: Vec<PathBuf>,
    _image: Option<Image>,
    overlay: Option<Overlay>,
    /// What is there before a transaction is in the overlay's lower layer.
    sinks: bool,
}

impl Field {
    /// Root's, in memory.
    pub fn root() -> Field {
        let lab = Lab::in_memory();
        let writable = vec![lab.dir().to_owned(), PathBuf::from("/dev/shm")];
        Field {
            lab,
            name: "root".to_owned(),
            ordinary: false,
            writable,
            _image: None,
            overlay: None,
            sinks: false,
        }
    }

    /// An ordinary user's, in memory; `None`, told, if there are no namespaces for one.
    pub fn ordinary() -> Option<Field> {
        let mut field = Self::root();
        field.ordinary = true;
        "ordinary".clone_into(&mut field.name);
        let allowed = field.contained().args(["unshare", "-Ur", "true"]).run().code() == 0;
        if !allowed {
            skip::say("no user namespaces for ordinary users here");
        }
        allowed.then_some(field)
    }

    /// Root's, on a file system of another kind, if this machine can have it.
    pub fn on(kind: &str) -> Option<Field> {
        let lab = Lab::in_memory();
        if kind == "overlay" || kind == "image" {
            let image = Image::overlay(&lab, "ext4", 300, ":")?;
            let point = image.top.point.clone();
            let writable = vec![lab.dir().to_owned(), PathBuf::from("/dev/shm"), point.clone()];
            let (lab, name) = (lab.at(&point), kind.to_owned());
            return Some(Field {
                lab,
                name,
                ordinary: false,
                writable,
                _image: None,
                overlay: Some(image),
                sinks: kind == "image",
            });
        }
        let image = Image::mount(&lab, kind, 300, kind)?;
        let writable = vec![lab.dir().to_owned(), PathBuf::from("/dev/shm"), image.point.clone()];
        let lab = lab.at(&image.point);
        Some(Field {
            lab,
            name: kind.to_owned(),
            ordinary: false,
            writable,
            _image: Some(image),
            overlay: None,
            sinks: false,
        })
    }

    /// Where, and whose.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is not tried here.
    pub fn limits(&self) -> Limits {
        if self.ordinary { Limits::ordinary() } else { Limits::none() }
    }

    /// Whether a mode can be tried here.
    pub fn can(&self, mode: Mode) -> bool {
        // A copy takes the place of a file of several names in an ordinary user's transaction.
        !(self.ordinary && mode == Mode::Paths)
    }

    fn base(&self) -> PathBuf {
        // What links lead to by ".." is the test's as well.
        self.lab.path("1/2/3/base")
    }

    fn file(&self) -> PathBuf {
        self.lab.dir().join("case.ops")
    }

    /// A command, contained in this place.
    fn contained(&self) -> Invocation {
        let mut contain = Invocation::new(program("contain", Linked::Natively))
            .env("TXOS_STORE", self.lab.store())
            .env("TXOS_REALM", self.lab.realm());
        if self.ordinary {
            contain = contain.args(["--user", &format!("{ORDINARY}:{ORDINARY}")]);
            // A namespace is made by writing there; nothing of it is this user's but what it starts.
            contain = contain.arg("/proc");
        }
        contain.args(&self.writable).arg("--")
    }

    fn txos(&self, words: &[&str]) -> Invocation {
        self.contained().arg(binary::txos()).args(words)
    }

    /// The interpreter, and what it is to do.
    fn interpret(&self, invocation: Invocation, linked: Linked, section: usize) -> Invocation {
        let invocation = invocation
            .arg(program("interpret", linked))
            .arg(self.file())
            .arg(section.to_string())
            .arg(self.base());
        // Of a file of which a name was removed an ordinary user's view still counts it; and after a
        // commit it may be counted for as long as it is retained.
        if self.ordinary || section > 1 {
            invocation.args(["--without", "links"])
        } else {
            invocation
        }
    }

    /// The interpreter, natively: it decides what is left out.
    fn interpret_first(&self, section: usize) -> Invocation {
        let first = self.interpret(self.contained(), Linked::Natively, section);
        if self.ordinary {
            first.args(["--without", "dirmove,linked,owners,devices,links"])
        } else {
            first
        }
    }

    /// `txos run OPTIONS -- interpret …`.
    fn run(&self, options: &[&str], section: usize) -> Invocation {
        let txos = self.txos(&["run", "--scope"]).arg(self.lab.tree()).args(options).arg("--");
        self.interpret(txos, Linked::Natively, section)
    }

    /// Makes the tree of a case afresh, with a store of its own.
    fn prepare(&self, case: &Case) -> Result<(), String> {
        if let Some(overlay) = self.overlay.as_ref().filter(|_| self.sinks) {
            overlay.clear();
        }
        // What root had no access to, or a command has left locked, goes all the same.
        for dir in
            [self.lab.tree().to_owned(), self.lab.store().to_owned(), self.lab.realm().to_owned()]
        {
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(&dir).unwrap();
            if self.ordinary {
                std::os::unix::fs::chown(&dir, Some(ORDINARY), Some(ORDINARY)).unwrap();
            }
        }
        std::fs::create_dir_all(self.base()).unwrap();
        std::fs::write(self.file(), case.to_string()).unwrap();
        let owner = if self.ordinary { ORDINARY.to_string() } else { "-1".to_owned() };
        let contain =
            Invocation::new(program("contain", Linked::Natively)).args(&self.writable).arg("--");
        let done = contain
            .arg(program("interpret", Linked::Natively))
            .arg(self.file())
            .arg("0")
            .arg(self.base())
            .args(["--owner", &owner])
            .run();
        if done.code() != 0 {
            return Err(format!("preparing: {done:?}"));
        }
        // Made afresh it must be the same.
        let base = self.base();
        let margin = base.ancestors().skip(1).take_while(|dir| dir.starts_with(self.lab.tree()));
        for dir in margin {
            let early = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
            // What was written by a link that leads up is here.
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if std::fs::symlink_metadata(&path).is_ok_and(|m| m.is_file()) {
                    std::fs::File::open(&path).and_then(|f| f.set_modified(early)).unwrap();
                    if self.ordinary {
                        std::os::unix::fs::chown(&path, Some(ORDINARY), Some(ORDINARY)).unwrap();
                    }
                }
            }
            std::fs::File::open(dir).and_then(|dir| dir.set_modified(early)).unwrap();
            if self.ordinary {
                std::os::unix::fs::chown(dir, Some(ORDINARY), Some(ORDINARY)).unwrap();
            }
        }
        Ok(())
    }

    fn tree(&self) -> Tree {
        Tree::of(self.lab.tree())
    }

    fn natively(&self, case: &Case) -> Result<Native, String> {
        self.prepare(case)?;
        let mut native =
            Native { trees: vec![self.tree()], answers: Vec::new(), case: case.clone() };
        for n in 0..case.parts.len() {
            let done = self.interpret_first(n + 1).run();
            if done.code() != 0 {
                return Err(format!("natively: {done:?}"));
            }
            let text = done.text();
            let carried_out = |line: &str| !line.ends_with(" is left out");
            let mut lines = text.lines();
            native.case.parts[n].retain(|_| lines.next().is_none_or(carried_out));
            let told = text.lines().filter(|line| carried_out(line));
            native.answers.push(told.flat_map(|line| [line, "\n"]).collect());
            native.trees.push(self.tree());
        }
        Ok(native)
    }

    /// Whether two cases do the same natively.
    pub fn compare_natively(&self, case: &Case, other: &Case) -> Result<(), Failure> {
        let failure = |(kind, text)| Failure { mode: Mode::Itself, kind, text };
        let found = |text| failure(("the native run", text));
        let (mine, theirs) =
            (self.natively(case).map_err(found)?, self.natively(other).map_err(found)?);
        for (tree, other) in mine.trees.iter().zip(&theirs.trees) {
            same_tree("natively (-), natively (+)", tree, other, NOW).map_err(failure)?;
        }
        for (mine, theirs) in mine.answers.iter().zip(&theirs.answers) {
            same_answers("natively (-), natively (+)", mine, theirs).map_err(failure)?;
        }
        Ok(())
    }

    /// Tries a case in one mode; says whether it was carried out, or refused as docs/limits.md says.
    pub fn check(&self, case: &Case, mode: Mode) -> Result<Option<&'static str>, Failure> {
        self.check_all(case, &[mode]).remove(0).1
    }

    /// Tries a case in several.
    pub fn check_all(
        &self,
        case: &Case,
        modes: &[Mode],
    ) -> Vec<(Mode, Result<Option<&'static str>, Failure>)> {
        let mut case = case.clone();
        if self.sinks {
            // A file of several names becomes another one for the name by which it is changed, natively as well.
            case.prepare.retain(|op| !op.name.contains("link") || op.name == "symlink");
        }
        let native = self.natively(&case);
        let each = |&mode: &Mode| {
            let failure = |(kind, text)| Failure { mode, kind, text };
            let outcome = match &native {
                Err(text) => Err(("the native run", text.clone())),
                Ok(native) => {
                    let made = self.prepare(&native.case).map_err(|text| ("preparing", text));
                    made.and_then(|()| {
                        if let Some(overlay) = self.overlay.as_ref().filter(|_| self.sinks) {
                            overlay.sink();
                        }
                        // Made afresh it is the same, or nothing can be compared.
                        let before = self.tree();
                        same_tree("made twice", &native.trees[0], &before, Tolerance::default())?;
                        self.one(&native.case, mode, native)
                    })
                    .or_else(|(what, text)| self.as_documented(native, what, text))
                }
            };
            (mode, outcome.map_err(failure))
        };
        modes.iter().map(each).collect()
    }

    /// What went wrong, if it is not what docs/limits.md tells of: a refusal after which everything is as it
    /// was, or, on xfs, the time of a directory.
    fn as_documented(&self, native: &Native, what: &'static str, text: String) -> Checked {
        if self.name == "xfs" && what == "the tree" && self.only_times_of_directories(&text) {
            return Ok(Some(TIMES));
        }
        let told = self.ordinary && text.starts_with("125 instead of 0") && text.contains(REFUSED);
        let now = self.tree();
        let is_whole = |tree: &Tree| tree.difference(&now, RETAINED).is_empty();
        match told && native.trees.iter().any(is_whole) {
            true => Ok(Some(REFUSED)),
            false => Err((what, text)),
        }
    }

    /// Whether a difference of two trees, as [`same_tree`] tells it, is one of times of directories only.
    fn only_times_of_directories(&self, text: &str) -> bool {
        text.lines().skip(1).all(|line| {
            let path =
                line.trim_start().strip_prefix("! ").and_then(|rest| rest.split_once(": mtime "));
            path.is_some_and(|(path, _)| self.lab.path(path).is_dir())
        })
    }

    fn one(&self, case: &Case, mode: Mode, native: &Native) -> Checked {
        let parts = case.parts.len();
        match mode {
            Mode::Itself => self.each_part(native, parts, NOW, |n| {
                self.interpret(self.contained(), Linked::Natively, n)
            }),
            Mode::Inside | Mode::Members => self.each_part(native, parts, NOW, |n| {
                let how = if mode == Mode::Inside { "commit" } else { "members" };
                let contained = self.interpret(self.contained(), Linked::WithLibrary, n);
                contained.args(["--in", how])
            }),
            Mode::Loaded => self.run_each(native, parts, &|n| self.run_in_process(&[], n)),
            Mode::Child => {
                let shell = ["sh", "-c", "\"$@\"; exit $?", "sh"];
                self.run_each(native, parts, &|n| self.run_in_process(&shell, n))
            }
            Mode::Alone => self.run_each(native, parts, &|n| {
                let txos = self.txos(&["run", "--in-process", "--"]);
                self.interpret(txos, Linked::Statically, n)
            }),
            Mode::Aborted => {
                for n in 1..=parts {
                    let run = self.interpret(self.contained(), Linked::WithLibrary, n);
                    let done = run.args(["--in", "abort"]).run();
                    ended("aborting", &done, 0)?;
                    if n == 1 {
                        same_answers(
                            "natively (-), to be aborted (+)",
                            &native.answers[0],
                            &done.text(),
                        )?;
                    }
                    self.is_as_before("after an abort", native)?;
                }
                Ok(None)
            }
            Mode::RolledBack => {
                for n in 1..=parts {
                    let done = self.run(&[], n).args(["--status", ROLL_BACK]).run();
                    ended("rolling back", &done, 9)?;
                    if n == 1 {
                        let what = "natively (-), to be rolled back (+)";
                        same_answers(what, &native.answers[0], &done.text())?;
                    }
                    self.is_as_before("after a rollback", native)?;
                }
                Ok(None)
            }
            Mode::Run => self.run_each(native, parts, &|n| self.run(&[], n)),
            Mode::Left => self.left(native, parts),
            Mode::Paths => self.paths_reverted(case),
            Mode::Kept => self.kept(case, native, End::Commit, false),
            Mode::KeptInside => self.kept(case, native, End::Commit, true),
            Mode::Discarded => self.kept(case, native, End::Abort, false),
            Mode::InParts => self.kept(case, native, End::InParts, false),
            Mode::InPartsInside => self.kept(case, native, End::InParts, true),
        }
    }

    fn run_in_process(&self, by: &[&str], section: usize) -> Invocation {
        let txos = self.txos(&["run", "--in-process", "--"]).args(by);
        self.interpret(txos, Linked::Natively, section)
    }

    fn is_as_before(&self, what: &str, native: &Native) -> Result<(), (&'static str, String)> {
        same_tree(what, &native.trees[0], &self.tree(), Tolerance::default())
    }

    /// Part after part, each of which must have answered the same and left the same.
    fn each_part(
        &self,
        native: &Native,
        parts: usize,
        tolerance: Tolerance,
        command: impl Fn(usize) -> Invocation,
    ) -> Checked {
        for n in 1..=parts {
            let done = command(n).run();
            ended("committing", &done, 0)?;
            let what = format!("natively (-), transaction {n} (+)");
            same_answers(&what, &native.answers[n - 1], &done.text())?;
            let mut after = self.tree();
            if !native.trees[n].difference(&after, tolerance).is_empty() {
                // What a busy machine did not empty at once still has its links.
                ended("emptying the trash", &self.txos(&["gc"]).run(), 0)?;
                after = self.tree();
            }
            same_tree(&what, &native.trees[n], &after, tolerance)?;
            self.no_traces()?;
        }
        Ok(None)
    }

    /// The same of commands, whose changes are kept in the history.
    fn run_each(
        &self,
        native: &Native,
        parts: usize,
        command: &dyn Fn(usize) -> Invocation,
    ) -> Checked {
        let mut before = self.tree();
        let mut last = None;
        for n in 1..=parts {
            let done = command(n).run();
            ended("committing", &done, 0)?;
            let what = format!("natively (-), transaction {n} (+)");
            same_answers(&what, &native.answers[n - 1], &done.text())?;
            let after = self.tree();
            if self.ordinary && same_but_links(&native.trees[n], &after) {
                return Ok(Some(COPY));
            }
            same_tree(&what, &native.trees[n], &after, RETAINED)?;
            self.no_traces()?;
            // In-process nothing is told of a commit.
            let id = match done.stderr.contains("committed") {
                true => word_after(&done.stderr, "txos: committed "),
                false => self.newest(),
            };
            if !id.is_empty() && last.as_ref() != Some(&id) {
                // There and back, and on from there.
                last = Some(self.there_and_back(id, &before, &after, EXACT)?);
            }
            before = self.tree();
        }
        Ok(None)
    }

    /// The id of the newest transaction in the history; empty if there is none.
    fn newest(&self) -> String {
        let done = self.txos(&["show", "@", "--json"]).run();
        let id = (done.code() == 0).then(|| done.json()["transaction"]["id"].clone());
        id.and_then(|id| id.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Reverts what was committed, and that again. Gives the id of the last revert.
    fn there_and_back(
        &self,
        mut id: String,
        before: &Tree,
        after: &Tree,
        tolerance: Tolerance,
    ) -> Result<String, (&'static str, String)> {
        for (target, what) in [(before, "revert"), (after, "revert of the revert")] {
            let done = self.txos(&["revert", &id]).run();
            ended("reverting", &done, 0)?;
            same_tree(what, target, &self.tree(), tolerance)?;
            id = word_after(&done.stderr, " by ");
        }
        Ok(id)
    }

    /// A revert that leaves what others have changed. Nothing of theirs may be lost, what nobody has changed
    /// comes back, and all of it can be undone.
    fn left(&self, native: &Native, parts: usize) -> Checked {
        let done = self.run(&[], 1).run();
        ended("committing", &done, 0)?;
        let id = word_after(&done.stderr, "txos: committed ");
        if id.is_empty() {
            return Ok(None);
        }
        let committed = self.tree();
        for n in 2..=parts {
            ended(
                "what others do",
                &self.interpret(self.contained(), Linked::Natively, n).run(),
                0,
            )?;
        }
        let theirs = self.tree();
        let done = self.txos(&["revert", &id, "--skip-changed"]).run();
        let after = self.tree();
        if done.code() == 75 {
            // Nothing of it can be undone without what others have changed, or its old version is gone.
            same_tree("after a refused revert", &theirs, &after, Tolerance::default())?;
            return Ok(None);
        }
        ended("reverting", &done, 0)?;
        if committed == theirs && !done.stderr.contains("left as it is") {
            same_tree("a revert", &native.trees[0], &after, EXACT)?;
        }
        let lost = theirs.nodes.iter().find(|(_, node)| {
            // What they have moved is not changed; and a directory that goes back to where it was takes along
            // what is in it.
            let is_in = |tree: &Tree| tree.nodes.values().any(|other| same_object(node, other));
            !node.kind.is_dir() && !is_in(&committed) && !is_in(&after)
        });
        if let Some((path, node)) = lost {
            let path = String::from_utf8_lossy(path);
            let said = &done.stderr;
            return Err(("others' change", format!("{path} is lost: {node:?}; {said}")));
        }
        let id = word_after(&done.stderr, " by ");
        ended("reverting the revert", &self.txos(&["revert", &id]).run(), 0)?;
        // A directory that something is put into again has the time of that, if others have changed it.
        match same_tree("the revert reverted", &theirs, &self.tree(), RETAINED) {
            Err((what, text)) if !self.only_times_of_directories(&text) => {
                return Err((what, text));
            }
            _ => {}
        }
        self.no_traces().map(|()| None)
    }

    fn kept(&self, case: &Case, native: &Native, end: End, in_library: bool) -> Checked {
        let parts = case.parts.len();
        let run = if in_library {
            // Every other case versions the tree alone, by which its paths begin in what is not versioned.
            let is_limited = case.parts.iter().map(Vec::len).sum::<usize>() % 2 == 0;
            let scope = format!("--scope={}", self.lab.tree().display());
            let scope: &[&str] = if is_limited { &[&scope] } else { &[] };
            let words = [&["run", "--view=library", "--keep"], scope, &["--"]].concat();
            self.interpret(self.txos(&words), Linked::Natively, 1)
        } else {
            self.run(&["--keep"], 1)
        };
        let done = run.run();
        ended("keeping", &done, 0)?;
        same_answers("natively (-), kept (+)", &native.answers[0], &done.text())?;
        self.is_as_before("while it is kept", native)?;
        let id = word_after(&done.stderr, "txos: kept ");
        if id.is_empty() {
            // Nothing was changed, so there is nothing to go on with.
            return same_tree("nothing changed", &native.trees[1], &self.tree(), NOW)
                .map(|()| None);
        }
        for n in 2..=parts {
            let done = self.interpret(self.txos(&["exec", &id, "--"]), Linked::Natively, n).run();
            ended("going on", &done, 0)?;
            let what = format!("natively (-), exec in what is kept, transaction {n} (+)");
            same_answers(&what, &native.answers[n - 1], &done.text())?;
            self.is_as_before("while it is kept", native)?;
        }
        if in_library {
            for way in ["undo", "redo"] {
                let done = self.txos(&[way, &id, "-n", &parts.to_string()]).run();
                ended("undoing and redoing", &done, 0)?;
            }
        }
        match end {
            End::Abort => {
                ended("discarding", &self.txos(&["abort", &id]).run(), 0)?;
                self.is_as_before("discarded", native)?;
                return Ok(None);
            }
            End::InParts => {
                for name in top_names(case) {
                    let path = self.base().join(name);
                    let done = self.txos(&["commit", &id]).arg(&path).run();
                    // One path may not go without another.
                    if done.code() != 0 && done.code() != 125 {
                        ended("committing a part", &done, 0)?;
                    }
                    if done.code() == 125 {
                        self.is_as_before("a refused part", native)?;
                    }
                    if done.code() == 0 {
                        break;
                    }
                }
            }
            End::Commit => {}
        }
        let middle = self.tree();
        let done = self.txos(&["commit", &id]).run();
        let nothing_left = end == End::InParts && done.stderr.contains("is committed");
        if !nothing_left {
            ended("committing", &done, 0)?;
        }
        let after = self.tree();
        if self.ordinary && same_but_links(&native.trees[parts], &after) {
            return Ok(Some(COPY));
        }
        same_tree("natively (-), kept and committed (+)", &native.trees[parts], &after, RETAINED)?;
        self.no_traces()?;
        if done.stderr.contains("committed") && !nothing_left {
            // What the part has done to directories above the rest was done now.
            let tolerance = if end == End::InParts { RETAINED } else { EXACT };
            let id = word_after(&done.stderr, "txos: committed ");
            let _ = self.there_and_back(id, &middle, &after, tolerance)?;
        }
        Ok(None)
    }

    fn no_traces(&self) -> Result<(), (&'static str, String)> {
        let traces = overlay_traces(self.lab.tree());
        if traces.is_empty() { Ok(()) } else { Err(("traces of overlayfs", format!("{traces:?}"))) }
    }

    /// Nothing is left but history.
    pub fn expect_clean(&self) {
        if !self.ordinary {
            self.lab.expect_clean();
        }
    }
}

/// After a revert nothing need be "now".
const EXACT: Tolerance = Tolerance { now_from: None, times: false, links: true };

/// How a kept transaction ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Commit,
    Abort,
    InParts,
}

/// Whether two nodes can be the same object with the same content, perhaps under another name.
fn same_object(a: &Node, b: &Node) -> bool {
    let key = |n: &Node| (n.kind, n.mode, n.uid, n.gid, n.size, n.mtime, n.rdev, n.hash);
    key(a) == key(b) && a.target == b.target && a.xattrs == b.xattrs
}

/// The first names of paths that are changed.
fn top_names(case: &Case) -> Vec<String> {
    let path = |op: &Op| {
        op.args.iter().zip(op.signature().chars()).find(|(_, k)| *k == 'p').map(|(a, _)| a.clone())
    };
    let mut names: Vec<String> = case.parts.iter().flatten().filter_map(path).collect();
    names = names
        .iter()
        .filter_map(|p| {
            p.trim_start_matches("./").trim_start_matches("@/").split('/').next().map(str::to_owned)
        })
        .collect();
    names.retain(|name| !name.is_empty() && name != "." && name != ".." && name != "@");
    names.sort();
    names.dedup();
    names
}

/// The id that follows these words; empty without them.
fn word_after(text: &str, words: &str) -> String {
    let rest = text.split(words).nth(1).unwrap_or_default();
    rest.chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// What docs/limits.md says an ordinary user's transaction publishes as a copy.
const COPY: &str = "(a name of a file with several became a copy)";

/// What docs/limits.md says is refused in an ordinary user's transaction, and how.
const REFUSED: &str = "has other names, and may have been changed by this one";

/// What docs/limits.md says becomes of a directory's time on xfs.
const TIMES: &str = "a moved directory has the time of the move";

/// Whether nothing differs but which names are names of one file.
fn same_but_links(native: &Tree, found: &Tree) -> bool {
    let mut alike = found.clone();
    let mut cut = false;
    for (path, node) in &mut alike.nodes {
        let Some(theirs) = native.nodes.get(path) else { return false };
        cut |= node.first != theirs.first;
        node.first.clone_from(&theirs.first);
    }
    cut && native.difference(&alike, RETAINED).is_empty()
}

fn ended(what: &'static str, done: &Done, code: i32) -> Result<(), (&'static str, String)> {
    if done.code() == code {
        Ok(())
    } else {
        Err((what, format!("{} instead of {code}: {}", done.code(), done.stderr.trim())))
    }
}

fn same_tree(
    what: &str,
    mine: &Tree,
    theirs: &Tree,
    tolerance: Tolerance,
) -> Result<(), (&'static str, String)> {
    let difference = mine.difference(theirs, tolerance);
    if difference.is_empty() { Ok(()) } else { Err(("the tree", format!("{what}:\n{difference}"))) }
}

fn same_answers(what: &str, mine: &str, theirs: &str) -> Result<(), (&'static str, String)> {
    let (mine, theirs): (Vec<&str>, Vec<&str>) = (mine.lines().collect(), theirs.lines().collect());
    // Over a directory that is not empty rename(2) allows two answers: xfs gives one, overlayfs the other.
    let alike =
        |a: &str, b: &str| a.starts_with("rename ") && a.replace("EEXIST", "ENOTEMPTY") == b;
    match mine.iter().zip(&theirs).position(|(a, b)| a != b && !alike(a, b)) {
        None if mine.len() == theirs.len() => Ok(()),
        None => Err(("the answers", format!("{what}: {} lines, not {}", theirs.len(), mine.len()))),
        Some(at) => Err(("the answers", format!("{what}:\n  - {}\n  + {}", mine[at], theirs[at]))),
    }
}
