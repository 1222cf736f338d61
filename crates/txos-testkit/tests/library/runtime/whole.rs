//! Programs that know nothing of transactions, each whole in one: they leave what they leave
//! natively, or, when they fail or die, nothing.

use rustix::process::{Pid, Signal};
use txos_testkit::tree::Tolerance;
use txos_testkit::wait::until;
use txos_testkit::{Done, Invocation, Lab, Tree, require, skip};

/// Sources: text, binary, links, modes, times.
pub const SOURCES: &str = "
    umask 022
    mkdir -p src/deep/er src/py
    seq 1 20000 > src/numbers; head -c 300000 /dev/zero | tr '\\0' x > src/deep/big
    for i in $(seq 1 40); do echo \"file $i\" > src/deep/er/f$i; done
    for i in $(seq 1 12); do printf 'def f%d(x):\\n    return x + %d\\n' $i $i > src/py/m$i.py; done
    ln -s ../numbers src/deep/link; ln src/numbers src/deep/hard; chmod 750 src/deep/er
    chmod 4755 src/deep/er/f1; setfattr -n user.note -v kept src/deep/er/f2
    find src -exec touch -h -d @1000000000 {} +";

/// Two places that are alike.
pub struct Pair {
    pub lab: Lab,
    pub native: Lab,
    pub ours: Lab,
    /// Not compared: what holds inode numbers or times of the run.
    without: Vec<&'static str>,
}

impl Pair {
    pub fn new(prepare: &str) -> Pair {
        let lab = Lab::in_memory();
        let (native, ours) = (lab.nested("native"), lab.nested("ours"));
        for place in [&native, &ours] {
            let _ = place.native(prepare);
        }
        Pair { lab, native, ours, without: Vec::new() }
    }

    /// A command that has all it needs from the environment.
    pub fn prepared(command: Invocation) -> Invocation {
        let always = [
            ("GIT_AUTHOR_NAME", "Nobody"),
            ("GIT_AUTHOR_EMAIL", "nobody@example.invalid"),
            ("GIT_AUTHOR_DATE", "1000000000 +0000"),
            ("GIT_COMMITTER_NAME", "Nobody"),
            ("GIT_COMMITTER_EMAIL", "nobody@example.invalid"),
            ("GIT_COMMITTER_DATE", "1000000000 +0000"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_SYSTEM", "/dev/null"),
            ("PYTHONHASHSEED", "0"),
            ("PATH", "/usr/bin:/bin"),
        ];
        always.into_iter().fold(command, |command, (name, value)| command.env(name, value))
    }

    pub fn transaction(&self, command: &[&str]) -> Invocation {
        Self::prepared(self.ours.txos(["run", "--in-process", "--"]).args(command))
    }

    fn natively(&self, command: &[&str]) -> Done {
        let (program, rest) = command.split_first().unwrap();
        Self::prepared(Invocation::new(program).args(rest)).dir(self.native.tree()).run()
    }

    fn tree(&self, place: &Lab) -> Tree {
        self.without.iter().fold(Tree::of(place.tree()), |tree, path| tree.without(path))
    }

    fn alike(&self) -> String {
        let tolerance =
            Tolerance { now_from: Some(1_500_000_000), links: true, ..Tolerance::default() };
        self.tree(&self.native).difference(&self.tree(&self.ours), tolerance)
    }

    /// Whether it was refused, for a reason that is told, and has left nothing; else it has done
    /// the same as natively.
    #[track_caller]
    fn does_or_refuses(&self, command: &[&str]) -> bool {
        let before = Tree::of(self.ours.tree());
        let done = self.transaction(command).run();
        if done.code() != 0 && done.stderr.contains("txos: ") {
            before.expect_same(&Tree::of(self.ours.tree()));
            println!("refused: {}", done.stderr);
            return true;
        }
        let native = self.natively(command);
        assert_eq!(done.code(), native.code(), "natively {native:?}, here {done:?}");
        assert_eq!(done.text(), native.text(), "{done:?}");
        let difference = self.alike();
        assert!(difference.is_empty(), "natively (-), here (+):\n{difference}{done:?}");
        false
    }

    /// It does the same as natively, which may be nothing.
    #[track_caller]
    pub fn answers(&self, command: &[&str]) {
        if self.does_or_refuses(command) {
            let done = self.transaction(command).run();
            panic!("refused: {done:?}");
        }
    }

    #[track_caller]
    pub fn does(&self, command: &[&str]) {
        let before = Tree::of(self.ours.tree());
        self.answers(command);
        let changed = before != Tree::of(self.ours.tree());
        assert!(changed, "it has done nothing, so this shows nothing");
    }

    /// It fails at its end, and then has left nothing.
    #[track_caller]
    pub fn fails(&self, command: &[&str], code: i32) {
        let before = Tree::of(self.ours.tree());
        let _ = self.transaction(command).run().expect(code);
        before.expect_same(&Tree::of(self.ours.tree()));
        let _ = self.natively(command).expect(code);
        let difference = self.alike();
        assert!(!difference.is_empty(), "natively it leaves nothing, so this shows nothing");
    }

    pub fn clean(&self) {
        self.ours.expect_clean();
    }
}

#[test]
fn tar_packs_and_unpacks() {
    let pair = Pair::new(SOURCES);
    // What it writes of itself: its number, and times of its own reading.
    let plain = "--pax-option=exthdr.name=%d/%f,delete=atime,delete=ctime";
    pair.does(&["tar", "--sort=name", "--xattrs", plain, "-cf", "all.tar", "src"]);
    pair.does(&["tar", "--xattrs", "-xf", "all.tar", "--one-top-level=out"]);
    pair.fails(&["tar", "-cf", "other.tar", "src", "not-there"], 2);
    pair.clean();
}

#[test]
fn cp_copies() {
    let pair = Pair::new(SOURCES);
    pair.does(&["cp", "-a", "src", "copy"]);
    pair.does(&["cp", "-a", "--reflink=auto", "--sparse=always", "src/deep", "copy/again"]);
    pair.fails(&["cp", "-a", "src", "not-there", "copy"], 1);
    pair.clean();
}

#[test]
fn rm_and_mv_remove_and_move() {
    let pair = Pair::new(SOURCES);
    pair.does(&["mv", "src/deep", "moved"]);
    pair.does(&["rm", "-r", "moved/er"]);
    pair.fails(&["rm", "-r", "src", "not-there"], 1);
    pair.clean();
}

#[test]
fn git_commits() {
    let mut pair = Pair::new(SOURCES);
    // It holds inode numbers and times of what it lists.
    pair.without = vec![".git/index"];
    let quiet = ["-c", "gc.auto=0", "-c", "maintenance.auto=false"];
    let git = |rest: &[&'static str]| [&["git"], &quiet[..], rest].concat();
    pair.does(&git(&["init", "-q", "-b", "main", "."]));
    pair.does(&git(&["add", "src"]));
    pair.does(&git(&["commit", "-q", "-m", "all"]));
    let _ = pair.ours.native("echo more >> src/numbers");
    let _ = pair.native.native("echo more >> src/numbers");
    pair.does(&git(&["commit", "-q", "-a", "-m", "more"]));
    let _ = Invocation::new("git").args(["fsck", "--strict"]).dir(pair.ours.tree()).run().expect(0);
    let status = Invocation::new("git").args(["status", "--porcelain"]).dir(pair.ours.tree());
    assert_eq!(status.run().expect(0).text(), "");
    pair.clean();
}

#[test]
fn sqlite_inserts() {
    require!(skip::has("sqlite3"), "there is no sqlite3");
    let pair = Pair::new("sqlite3 base 'create table t (a integer primary key, b text)'");
    let insert = "begin; insert into t (b) select hex(value) from generate_series(1, 2000); commit;
                  create index i on t (b); delete from t where a % 3 = 0; select count(*) from t;";
    pair.does(&["sqlite3", "base", insert]);
    pair.does(&["sqlite3", "new", "create table u (x); insert into u values (1), (2)"]);
    // With a memory that processes share beside the file.
    pair.does(&["sqlite3", "base", "pragma journal_mode=wal; insert into t (b) values ('wal')"]);
    let checked = Invocation::new("sqlite3").args(["base", "pragma integrity_check"]);
    assert_eq!(checked.dir(pair.ours.tree()).run().expect(0).text(), "ok\n");
    // Natively the first of the two stays.
    pair.fails(
        &["sqlite3", "-bail", "base", "insert into t (b) values ('x'); select no_such()"],
        1,
    );
    pair.clean();
}

#[test]
fn python_compiles() {
    let pair = Pair::new(SOURCES);
    pair.does(&["python3", "-m", "compileall", "-q", "src/py"]);
    let script = "import os, sys\nos.makedirs('made/deep')\nopen('made/f', 'w').write('x' * 9)\n\
                  os.rename('src', 'made/src')\nprint(sorted(os.listdir('made')))\n";
    pair.does(&["python3", "-c", script]);
    pair.fails(&["python3", "-c", "open('made/g', 'w').write('y')\nraise SystemExit(7)"], 7);
    pair.clean();
}

#[test]
fn sort_sorts() {
    let pair = Pair::new("seq 1 200000 | rev > numbers");
    pair.does(&["sort", "--parallel=1", "-S", "1M", "-T", ".", "-o", "sorted", "numbers"]);
    pair.clean();
    // The default takes as many threads as there are processors.
    let refused =
        pair.does_or_refuses(&["sort", "-S", "1M", "-T", ".", "-r", "-o", "more", "numbers"]);
    require!(!refused, "sort with threads is refused");
}

/// It forks.
#[test]
fn rsync_copies() {
    require!(skip::has("rsync"), "there is no rsync");
    let pair = Pair::new(SOURCES);
    pair.does(&["rsync", "-aHX", "src/", "copy/"]);
    pair.clean();
}

/// Time of a process on processors, in ticks.
fn ticks(pid: Pid) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
    let stat = stat.unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum()
}

#[test]
fn one_that_is_killed_has_left_nothing() {
    let pair = Pair::new(SOURCES);
    let before = Tree::of(pair.ours.tree());
    // What it has changed nobody else can see; that it is done with that shows in its time.
    let script = "import os\nos.rename('src', 'moved')\nopen('new', 'w').write('x')\n\
                  os.unlink('moved/numbers')\nwhile True: pass";
    let running = pair.transaction(&["python3", "-c", script]).start();
    until("it has used a second", || ticks(running.pid()) > 100);
    before.expect_same(&Tree::of(pair.ours.tree()));
    running.signal(Signal::KILL);
    assert!(running.wait().killed());
    before.expect_same(&Tree::of(pair.ours.tree()));
    pair.clean();
    assert!(pair.lab.dir().exists());
}

/// What could not be rolled back is told at the end as well.
#[test]
fn what_was_live_is_told() {
    let lab = Lab::in_memory();
    let ended = |script: &str, code: i32| {
        let python = ["run", "--in-process", "--", "/usr/bin/python3", "-I", "-S", "-c", script];
        let done = lab.txos(python).run().expect(code);
        assert!(!lab.path("new").exists(), "{done:?}");
        done.stderr.lines().last().unwrap_or_default().to_owned()
    };
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let change = "import os, sys; open('new', 'w').write('x')\n";
    let all = ended(&format!("{change}sys.exit(3)"), 3);
    assert!(all.ends_with("exited with status 3; rolled back, nothing changed"), "{all}");
    let pipe = "r, w = os.pipe(); os.write(w, b'x')\n";
    let told = ended(&format!("{change}{pipe}sys.exit(3)"), 3);
    let live = "; rolled back; live, and not rolled back: output to a pipe";
    assert!(told.ends_with(live), "{told}");
    // With the path, if it was one; and when txos itself stops the command.
    let path = "f = open('/proc/self/comm', 'w'); os.truncate('/proc/self/comm', 0)\n";
    let other = "os.fork() or os.execv('/usr/bin/unshare', ['unshare', '-m', 'true'])\nos.wait()\n";
    let told = ended(&format!("{change}{path}{other}"), 125);
    assert!(
        told.contains("was stopped: a process of the command is to have other names"),
        "{told}"
    );
    assert!(told.contains("; rolled back; live, and not rolled back: "), "{told}");
    assert!(told.contains("1 path (/proc/self/comm)"), "{told}");
    // And when another process has written.
    let told =
        ended(&format!("{change}r, w = os.pipe()\nos.fork() or os.write(w, b'x')\nsys.exit(3)"), 3);
    assert!(told.ends_with("exited with status 3; rolled back, nothing changed"), "{told}");
    let told = ended(&format!("{change}os.execv('/bin/false', ['false'])"), 1);
    assert!(told.ends_with("exited with status 1; rolled back, nothing changed"), "{told}");
    lab.expect_clean();
}

#[test]
fn the_record_of_a_durable_command_is_flushed_last() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir dir; echo x >dir/file");
    let steps = |options: &[&str], to: &str, fault: Option<String>| {
        let list = lab.dir().join(format!("steps-{to}"));
        let txos = lab.txos(["run", "--in-process"]).args(options);
        let txos = txos.args(["--", "cp", "-a", "dir", to]).env("TXOS_FAULT_COUNT", &list);
        let txos = fault.into_iter().fold(txos, |txos, fault| txos.env("TXOS_FAULT", fault));
        let done = txos.run().expect(0);
        let list = std::fs::read_to_string(list).unwrap();
        let steps = list.lines().filter(|line| !line.starts_with("look ")).map(str::to_owned);
        (steps.collect::<Vec<_>>(), done)
    };
    // The first one makes the store, which is flushed.
    let _ = steps(&[], "first", None);
    let (other, _) = steps(&[], "two", None);
    assert!(other.iter().all(|step| !step.contains("sync")), "{other:?}");
    let (durable, _) = steps(&["--durable"], "one", None);
    let last = durable.last().unwrap();
    assert!(last.ends_with(" fsync"), "{durable:?}");
    // What is published stays, and the user is told what is missing.
    let number = last.split(' ').next().unwrap();
    let (_, done) = steps(&["--durable"], "three", Some(format!("EIO@{number}")));
    let _ = done.says("is published, but its record could not be written yet");
    assert_eq!(lab.read("three/file"), "x\n");
    let history = lab.txos(["log", "--json"]).run().expect(0).json();
    assert_eq!(history["transactions"].as_array().unwrap().len(), 4, "{history}");
    lab.expect_clean();
}
