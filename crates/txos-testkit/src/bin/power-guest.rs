//! The first process of the machine whose power is cut (see `txos_testkit::power`). What it is to do
//! is on the kernel's command line, what came of it on the console, line by line:
//!
//! ```text
//! CHECK name ok | CHECK name BAD why     one check of the first boot
//! VERDICT s n                            sequence s is at state n
//! PARTS s n                              it was at none, which it may be, and was put to n
//! BEGIN s n, ACK s n                     a step begins, has been acknowledged
//! BAD why                                what must never be seen
//! UP, READY, DONE                        it runs, the work begins, everything is over
//! ```
//!
//! # Safety
//!
//! Unsafe is the use of `libtxos.so`, which is loaded here and not linked: looking up two functions and
//! calling them by the types that `txos.h` gives them.
#![allow(unsafe_code)]
// The machine's first process says what is wrong and dies of it: that is its way to tell.
#![allow(clippy::expect_used)]

use std::ffi::{CStr, c_int};
use std::fmt::Display;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use txos_testkit::power::work::{self, Kind, Op, Sequence};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |index: usize| args.get(index).and_then(|a| a.parse::<u64>().ok()).unwrap_or(0);
    match args.get(1).map(String::as_str) {
        // Within a transaction of `txos run`.
        Some("apply") => apply_step(sequence(number(2), number(3)), number(4)),
        Some("library") => in_process(sequence(number(2), number(3)), number(4)),
        Some("library-checks") => library_checks(),
        _ => first_process(),
    }
}

fn say(what: impl Display) {
    // One write a line: several threads and processes share the console.
    let _ = std::io::stdout().lock().write_all(format!("{what}\n").as_bytes());
}

fn sequence(seed: u64, number: u64) -> Sequence {
    let kind = usize::try_from(number).ok().and_then(|n| Kind::ALL.get(n)).copied();
    Sequence { seed, kind: kind.expect("a sequence") }
}

// --- The machine -----------------------------------------------------------------------------

fn mount(kind: &str, point: &str, options: &CStr) {
    let _ = fs::create_dir_all(point);
    let flags = rustix::mount::MountFlags::empty();
    if let Err(error) = rustix::mount::mount(kind, point, kind, flags, options) {
        say(format_args!("BAD mounting {point}: {error}"));
    }
}

fn first_process() {
    for (kind, point) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/run"),
        ("tmpfs", "/dev/shm"),
    ] {
        mount(kind, point, c"");
    }
    let cmdline = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let told = |name: &str| {
        let prefix = format!("guest.{name}=");
        cmdline.split_whitespace().find_map(|word| word.strip_prefix(&prefix)).unwrap_or("")
    };
    say("UP");
    let data = told("data");
    if !data.is_empty() {
        let flags = rustix::mount::MountFlags::empty();
        if let Err(error) = rustix::mount::mount("/dev/vdb", "/data", data, flags, c"") {
            say(format_args!("BAD mounting the data disk: {error}"));
        }
    }
    let seed = told("seed").parse().unwrap_or(0);
    match told("do") {
        "checks" => checks(),
        "work" => work_on(seed, told("known")),
        other => say(format_args!("BAD unknown work {other:?}")),
    }
    say("DONE");
    rustix::fs::sync();
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
}

fn txos(args: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/txos");
    command.args(args).env("PATH", "/usr/bin:/bin").env("HOME", "/root").current_dir("/work");
    command.stdin(Stdio::null());
    command
}

fn told(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    format!("{}: {}", output.status, String::from_utf8_lossy(&text).replace('\n', " / "))
}

// --- Work and cuts ---------------------------------------------------------------------------

/// Finds out in which state every sequence is, and goes on from there. `known` says for each, up to where
/// it is acknowledged and up to where it has begun; nothing on the first boot.
fn work_on(seed: u64, known: &str) {
    let sequences: Vec<Sequence> =
        Kind::ALL.iter().map(|kind| Sequence { seed, kind: *kind }).collect();
    let mut states = Vec::new();
    if known.is_empty() {
        for sequence in &sequences {
            for top in ["r", "d"] {
                fs::create_dir_all(sequence.place(top)).expect("making a directory");
            }
            for (path, node) in sequence.start() {
                if let work::Node::File(bytes) = node {
                    fs::write(sequence.place(&path), bytes).expect("writing a file");
                }
            }
            states.push(0);
        }
        rustix::fs::sync();
    } else {
        let done = txos(&["recover"]).output().expect("running txos");
        if done.status.code() != Some(0) {
            say(format_args!("BAD txos recover: {}", told(&done)));
        }
        let known = known.split(',').map(|word| {
            let (acked, begun) = word.split_once('-').unwrap_or((word, word));
            (acked.parse().unwrap_or(0), begun.parse().unwrap_or(0))
        });
        for (sequence, (acked, begun)) in sequences.iter().zip(known) {
            states.push(state_of(*sequence, acked, begun));
        }
    }
    if fs::read_to_string("/proc/cmdline").unwrap_or_default().contains("guest.stop") {
        return;
    }
    say("READY");
    let workers: Vec<_> = sequences
        .into_iter()
        .zip(states)
        .map(|(sequence, state)| thread::spawn(move || keep_working(sequence, state)))
        .collect();
    for worker in workers {
        let _ = worker.join();
    }
}

fn state_of(sequence: Sequence, acked: u64, begun: u64) -> u64 {
    let number = sequence.number();
    let found = match work::actual(sequence) {
        Ok(found) => found,
        Err(error) => {
            say(format_args!("BAD sequence {number}: {error}"));
            return acked;
        }
    };
    // Without flushes the last ones may be gone, and those of a boot before are not.
    let states = sequence.states(acked, begun);
    // The later one, if the tree was the same twice.
    if let Some((n, _)) = states.iter().rev().find(|(_, model)| *model == found) {
        say(format_args!("VERDICT {number} {n}"));
        return *n;
    }
    // Nothing was promised: it goes on from the last one.
    if !sequence.kind.is_durable()
        && let Some((n, model)) = states.last()
    {
        match work::make(sequence, model) {
            Ok(()) => say(format_args!("PARTS {number} {n}")),
            Err(error) => say(format_args!("BAD sequence {number}: {error}")),
        }
        rustix::fs::sync();
        return *n;
    }
    for (n, model) in &states {
        let difference = work::difference(model, &found);
        say(format_args!("BAD sequence {number} is not in state {n}: {difference}"));
    }
    acked
}

fn keep_working(sequence: Sequence, mut state: u64) {
    let (seed, number) = (sequence.seed.to_string(), sequence.number().to_string());
    if matches!(sequence.kind, Kind::Library | Kind::Light | Kind::Names) {
        let next = state.to_string();
        let done = Command::new("/guest").args(["library", &seed, &number, &next]).status();
        say(format_args!("BAD sequence {number} has ended: {done:?}"));
        return;
    }
    loop {
        state += 1;
        let (this, name) = (state.to_string(), format!("s{number}-{state}"));
        say(format_args!("BEGIN {number} {state}"));
        let mut command = if sequence.is_revert(state) {
            match id_of(&format!("s{number}-{}", state - 1)) {
                Ok(id) => txos(&["revert", &id]),
                Err(why) => {
                    say(format_args!("BAD step {number} {state}: {why}"));
                    return;
                }
            }
        } else {
            let mut command = txos(&["run", "--quiet", "--retry", "9", "--name", &name]);
            if !sequence.kind.is_durable() {
                command.arg("--no-durable");
            }
            command.args(["--", "/guest", "apply", &seed, &number, &this]);
            command
        };
        // A process group of its own: this one has none.
        let done = command.process_group(0).output().expect("running txos");
        if done.status.code() != Some(0) {
            say(format_args!("BAD step {number} {state}: {}", told(&done)));
            return;
        }
        say(format_args!("ACK {number} {state}"));
    }
}

fn step(sequence: Sequence, n: u64) -> Vec<Op> {
    let before = sequence.states(n - 1, n - 1).pop().expect("a state");
    sequence.step(n, &before.1)
}

fn apply_step(sequence: Sequence, n: u64) {
    for op in step(sequence, n) {
        if let Err(error) = work::apply(sequence, &op) {
            eprintln!("{op:?}: {error}");
            std::process::exit(1);
        }
    }
}

// --- The library -----------------------------------------------------------------------------

/// The functions of `txos.h` that are used here.
struct Library {
    begin: unsafe extern "C" fn(c_int, ...) -> c_int,
    end: unsafe extern "C" fn() -> c_int,
    abort: unsafe extern "C" fn(c_int),
    error: unsafe extern "C" fn() -> *const std::ffi::c_char,
}

/// `TX_DURABLE`
const DURABLE: c_int = 2;

impl Library {
    fn load() -> Library {
        // SAFETY: the functions exist in this library, with these types.
        unsafe {
            let library = libc::dlopen(c"/usr/lib/libtxos.so".as_ptr(), libc::RTLD_NOW);
            let find = |name: &CStr| {
                let found = libc::dlsym(library, name.as_ptr());
                assert!(!found.is_null(), "no {name:?} in the library");
                found
            };
            assert!(!library.is_null(), "the library can't be loaded");
            Library {
                begin: std::mem::transmute::<
                    *mut libc::c_void,
                    unsafe extern "C" fn(c_int, ...) -> c_int,
                >(find(c"sys_xbegin")),
                end: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn() -> c_int>(
                    find(c"sys_xend"),
                ),
                abort: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(c_int)>(find(
                    c"sys_xabort",
                )),
                error: std::mem::transmute::<
                    *mut libc::c_void,
                    unsafe extern "C" fn() -> *const std::ffi::c_char,
                >(find(c"txos_strerror")),
            }
        }
    }

    fn begin(&self, flags: c_int) {
        // SAFETY: without TX_RESTART it returns once.
        let begun = unsafe { (self.begin)(flags) };
        assert!(begun == 0, "sys_xbegin: {}", self.error());
    }

    fn end(&self) -> Result<(), String> {
        // SAFETY: no memory is involved.
        if unsafe { (self.end)() } == 0 { Ok(()) } else { Err(self.error()) }
    }

    fn abort(&self) {
        // SAFETY: no memory is involved.
        unsafe { (self.abort)(1) }
    }

    fn error(&self) -> String {
        // SAFETY: it is a string, valid until the next call.
        unsafe { CStr::from_ptr((self.error)()) }.to_string_lossy().into_owned()
    }
}

fn in_process(sequence: Sequence, from: u64) {
    let library = Library::load();
    let number = sequence.number();
    let (_, mut model) = sequence.states(from, from).pop().expect("a state");
    let mut n = from;
    loop {
        n += 1;
        let ops = sequence.step(n, &model);
        say(format_args!("BEGIN {number} {n}"));
        // Outsiders' changes of shared directories may be in the way: then once more.
        let mut attempts = 0;
        loop {
            library.begin(DURABLE);
            let failed = ops.iter().find_map(|op| work::apply(sequence, op).err().map(|e| (op, e)));
            let ended = match failed {
                Some((op, error)) => {
                    library.abort();
                    Err(format!("{op:?}: {error}"))
                }
                None => library.end(),
            };
            attempts += 1;
            match ended {
                Ok(()) => break,
                Err(_) if attempts < 10 => {}
                Err(what) => {
                    say(format_args!("BAD step {number} {n}: {what}"));
                    return;
                }
            }
        }
        say(format_args!("ACK {number} {n}"));
        model = sequence.after(n, &model);
    }
}

// --- Checks of the first boot ----------------------------------------------------------------

type Checked = Result<(), String>;

/// Its name, and what it does.
type Check = (&'static str, fn() -> Checked);

fn checks() {
    let all: &[Check] = &[
        ("doctor", check_doctor),
        ("without-a-process-group", check_without_group),
        ("commit", check_commit),
        ("failure", check_failure),
        ("conflict", check_conflict),
        ("conflict-in-a-tick", check_conflict_in_a_tick),
        ("no-overlooked-increment", check_increments),
        ("keep-diff-commit", check_keep),
        ("abort", check_abort),
        ("revert", check_revert),
        ("recorder", check_recorder),
        ("two-file-systems", check_two_file_systems),
        ("killed-in-the-publish", check_killed),
        ("library", check_library),
        ("status", check_status),
    ];
    for (name, check) in all {
        match check() {
            Ok(()) => say(format_args!("CHECK {name} ok")),
            Err(why) => say(format_args!("CHECK {name} BAD {}", why.replace('\n', " / "))),
        }
    }
}

fn expect(args: &[&str], code: i32) -> Result<Output, String> {
    let output = txos(args).process_group(0).output().map_err(|e| e.to_string())?;
    if output.status.code() == Some(code) {
        return Ok(output);
    }
    Err(format!("txos {args:?}: expected {code}, {}", told(&output)))
}

fn script(text: &str, code: i32) -> Result<Output, String> {
    expect(&["run", "--quiet", "--", "/bin/sh", "-c", text], code)
}

/// The id of the transaction of a name.
fn id_of(name: &str) -> Result<String, String> {
    for list in ["log", "list"] {
        let listed = expect(&[list, "--json"], 0)?;
        let listed: serde_json::Value =
            serde_json::from_slice(&listed.stdout).map_err(|e| format!("{list}: {e}"))?;
        let all = listed["transactions"].as_array().cloned().unwrap_or_default();
        if let Some(found) = all.iter().find(|t| t["name"] == name) {
            return found["id"].as_str().map(str::to_owned).ok_or_else(|| found.to_string());
        }
    }
    Err(format!("no transaction is named {name}"))
}

fn is(path: &str, content: &str) -> Checked {
    match fs::read_to_string(path) {
        Ok(text) if text == content => Ok(()),
        other => Err(format!("{path}: expected {content:?}, is {other:?}")),
    }
}

fn is_not(path: &str) -> Checked {
    if Path::new(path).symlink_metadata().is_ok() {
        return Err(format!("{path} is there"));
    }
    Ok(())
}

fn check_doctor() -> Checked {
    let output = expect(&["doctor"], 0)?;
    say(String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// This process belongs to no process group that has a number.
fn check_without_group() -> Checked {
    let output = txos(&["run", "--", "/bin/sh", "-c", "echo 1 > /work/no-group"]).output();
    let output = output.map_err(|e| e.to_string())?;
    if output.status.code() != Some(0) {
        return Err(told(&output));
    }
    is("/work/no-group", "1\n")
}

fn check_commit() -> Checked {
    let tree = "mkdir -p /work/c/d/e; echo a > /work/c/a; echo b > /work/c/d/b; ln -s a /work/c/l";
    script(tree, 0)?;
    let change = "cd /work/c; mv d moved; echo more >> a; rm l; ln -s b l; echo n > moved/e/n";
    script(change, 0)?;
    is("/work/c/a", "a\nmore\n")?;
    is("/work/c/moved/b", "b\n")?;
    is("/work/c/moved/e/n", "n\n")?;
    is_not("/work/c/d")?;
    let link = fs::read_link("/work/c/l").map_err(|e| e.to_string())?;
    if link == Path::new("b") { Ok(()) } else { Err(format!("the link leads to {link:?}")) }
}

fn check_failure() -> Checked {
    script("rm -rf /work/c /etc; echo x > /work/x; exit 3", 3)?;
    is("/work/c/a", "a\nmore\n")?;
    is_not("/work/x")?;
    is("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
}

/// A transaction that reads `file`, and is told to go on when the outsider's change is done.
fn with_outsider(file: &str, change: impl FnOnce(), code: i32) -> Checked {
    for pipe in ["/run/to", "/run/from"] {
        let _ = fs::remove_file(pipe);
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0)
            .map_err(|e| e.to_string())?;
    }
    let text =
        format!("cat {file} >/dev/null; echo >/run/from; read x </run/to; echo 1 > /work/seen");
    let mut command = txos(&["run", "--quiet", "--", "/bin/sh", "-c", &text]);
    let child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(|e| e.to_string())?;
    let mut byte = [0];
    let read = fs::File::open("/run/from").and_then(|mut f| f.read_exact(&mut byte));
    change();
    let written = fs::write("/run/to", "\n");
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    read.and(written).map_err(|e| format!("{e}: {}", told(&output)))?;
    if output.status.code() == Some(code) {
        return Ok(());
    }
    Err(format!("expected {code}, {}", told(&output)))
}

fn check_conflict() -> Checked {
    fs::write("/work/f", "one").map_err(|e| e.to_string())?;
    with_outsider("/work/f", || fs::write("/work/f", "two").expect("writing"), 75)?;
    is_not("/work/seen")?;
    with_outsider("/work/f", || fs::write("/work/other", "two").expect("writing"), 0)?;
    is("/work/seen", "1\n")
}

/// The file has changed in the tick of the look, and changes again, to the same size, right after.
fn check_conflict_in_a_tick() -> Checked {
    let file = fs::File::create("/work/tick").map_err(|e| e.to_string())?;
    file.write_all_at(b"aaaa", 0).map_err(|e| e.to_string())?;
    for round in 0..3 {
        // Changed all the time until the transaction has looked: so at that instant, too.
        let over = std::sync::atomic::AtomicBool::new(false);
        let done = thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = file.write_all_at(b"bbbb", 0);
                }
            });
            let stop = || {
                over.store(true, std::sync::atomic::Ordering::Relaxed);
                file.write_all_at(b"cccc", 0).expect("writing");
            };
            with_outsider("/work/tick", stop, 75)
        });
        done.map_err(|why| format!("round {round}: {why}"))?;
    }
    Ok(())
}

/// Two that add to the same number, again if they have lost.
fn check_increments() -> Checked {
    fs::write("/work/count", "0\n").map_err(|e| e.to_string())?;
    let add = "read n < /work/count; echo $((n + 1)) > /work/count";
    let adders: Vec<_> = (0..2)
        .map(|_| {
            thread::spawn(move || {
                (0..2).try_for_each(|_| {
                    let args = ["run", "--quiet", "--retry", "50", "--", "/bin/sh", "-c", add];
                    expect(&args, 0).map(drop)
                })
            })
        })
        .collect();
    for adder in adders {
        adder.join().map_err(|_| "a thread died".to_owned())??;
    }
    is("/work/count", "4\n")
}

fn check_keep() -> Checked {
    fs::write("/work/k", "old\n").map_err(|e| e.to_string())?;
    expect(&["run", "--keep", "--name", "kept", "--", "/bin/sh", "-c", "echo new > /work/k"], 0)?;
    is("/work/k", "old\n")?;
    let id = id_of("kept")?;
    let diff = expect(&["diff", &id], 0)?;
    let diff = String::from_utf8_lossy(&diff.stdout).into_owned();
    if !(diff.contains("-old") && diff.contains("+new")) {
        return Err(diff);
    }
    expect(&["commit", &id], 0)?;
    is("/work/k", "new\n")
}

fn check_abort() -> Checked {
    expect(&["run", "--keep", "--name", "dropped", "--", "/bin/sh", "-c", "rm /work/k"], 0)?;
    expect(&["abort", &id_of("dropped")?], 0)?;
    is("/work/k", "new\n")
}

fn check_revert() -> Checked {
    let text = "rm -r /work/c/moved; echo z > /work/c/z; echo other > /work/k";
    expect(&["run", "--name", "undo", "--", "/bin/sh", "-c", text], 0)?;
    is_not("/work/c/moved")?;
    expect(&["revert", &id_of("undo")?], 0)?;
    is("/work/c/moved/e/n", "n\n")?;
    is("/work/k", "new\n")?;
    is_not("/work/c/z")
}

/// The same commands with the recorder and without see and leave the same.
fn check_recorder() -> Checked {
    for n in 0..2 {
        let text = format!(
            "cd /work; mkdir r{n}; cp -a c r{n}/; ls -lR r{n}/c/ | sed s/r{n}// > r{n}.list; \
             test -e /work/none || touch r{n}/c/none"
        );
        let mut args = vec!["run", "--quiet"];
        if n == 1 {
            args.push("--no-preload");
        }
        args.extend(["--", "/bin/sh", "-c", &text]);
        expect(&args, 0)?;
        if !Path::new(&format!("/work/r{n}/c/none")).exists() {
            return Err(format!("round {n}: a file is missing"));
        }
    }
    let list = |n: u32| fs::read_to_string(format!("/work/r{n}.list")).unwrap_or_default();
    let lines = |text: &str| text.lines().count();
    if lines(&list(0)) > 3 && lines(&list(0)) == lines(&list(1)) {
        return Ok(());
    }
    Err(format!("with: {:?}, without: {:?}", list(0), list(1)))
}

fn check_two_file_systems() -> Checked {
    script("echo w > /work/both; mkdir /data/dir; echo d > /data/dir/both", 0)?;
    is("/work/both", "w\n")?;
    is("/data/dir/both", "d\n")?;
    script("echo x > /work/both; echo x > /data/dir/both; rm /data/dir/both; false", 1)?;
    is("/work/both", "w\n")?;
    is("/data/dir/both", "d\n")
}

/// Dies in the middle of a publish; the next one undoes it.
fn check_killed() -> Checked {
    for fault in ["kill@8", "killafter@14"] {
        let text = "echo k > /work/k1; echo k > /data/k2; echo k > /work/both";
        let mut command = txos(&["run", "--quiet", "--", "/bin/sh", "-c", text]);
        let output = command.env("TXOS_FAULT", fault).process_group(0).output();
        let output = output.map_err(|e| e.to_string())?;
        expect(&["recover"], 0)?;
        let new = Path::new("/work/k1").exists();
        let whole = if new {
            is("/data/k2", "k\n").and(is("/work/both", "k\n"))
        } else {
            is_not("/data/k2").and(is("/work/both", "w\n"))
        };
        whole.map_err(|why| format!("{fault}: {why}; {}", told(&output)))?;
        if output.status.code() == Some(0) {
            return Err(format!("{fault} came too late"));
        }
        if new {
            expect(&["revert", "@"], 0)?;
        }
    }
    Ok(())
}

fn check_status() -> Checked {
    expect(&["log"], 0)?;
    expect(&["gc"], 0)?;
    let status = expect(&["status"], 0)?;
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    if text.contains("0 running") { Ok(()) } else { Err(text) }
}

fn check_library() -> Checked {
    let done = Command::new("/guest").arg("library-checks").process_group(0).output();
    let done = done.map_err(|e| e.to_string())?;
    if done.status.success() { Ok(()) } else { Err(told(&done)) }
}

/// Panics if something is wrong.
fn library_checks() {
    let library = Library::load();
    let write = |name: &str, text: &str| fs::write(format!("/work/{name}"), text).expect("writing");
    let read = |name: &str| fs::read_to_string(format!("/work/{name}")).unwrap_or_default();
    let native = |work: &(dyn Fn() + Sync)| thread::scope(|scope| drop(scope.spawn(work).join()));
    write("one", "1");
    write("two", "2");
    // New names, a moved one, a replaced one: none is seen before the end.
    library.begin(DURABLE);
    write("one", "one");
    fs::rename("/work/two", "/work/three").expect("moving");
    fs::create_dir("/work/made").expect("making");
    write("made/in", "in");
    native(&|| assert!(read("one") == "1" && read("two") == "2" && read("made/in").is_empty()));
    library.end().expect("a commit");
    assert!(read("one") == "one" && read("three") == "2" && read("made/in") == "in");
    // An abort.
    library.begin(0);
    write("one", "else");
    fs::remove_file("/work/three").expect("removing");
    library.abort();
    assert!(read("one") == "one" && read("three") == "2");
    // Light commits.
    for n in 0..20 {
        library.begin(if n % 5 == 0 { DURABLE } else { 0 });
        for name in ["one", "three"] {
            let file = fs::File::options().write(true).open(format!("/work/{name}"));
            file.and_then(|f| f.write_all_at(&[b'a' + n], 0)).expect("writing");
        }
        library.end().expect("a light commit");
        let last = char::from(b'a' + n);
        assert!(read("one").starts_with(last) && read("three").starts_with(last));
    }
    // An outsider's change between look and end, right after another one: in one tick of the clock.
    for n in 0..30 {
        let same_size = |byte: u8| {
            let file = fs::File::options().write(true).open("/work/one");
            file.and_then(|f| f.write_all_at(&[byte], 0)).expect("writing");
        };
        native(&|| same_size(b'x'));
        library.begin(0);
        let seen = read("one");
        write("derived", &seen);
        native(&|| same_size(b'y'));
        let ended = library.end();
        assert!(ended.is_err(), "round {n}: committed with what was read of a changed file");
    }
}
