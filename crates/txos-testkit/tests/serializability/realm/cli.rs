//! What people are shown of transactions that meet, and what they can do about it: `list`, `top`,
//! `status`, `policy`, `doctor --rebuild`.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};
use txos_engine::realm::{Begin, DeadPublish, Realm, SLOTS, Unresolved};
use txos_testkit::pty::Pty;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::{Lab, Rendezvous, Running, wait};

/// Two transactions on one file: the older one has written to it and holds still, the younger one
/// waits at its first look.
struct Standoff {
    older: Running,
    younger: Running,
    at: Rendezvous,
}

impl Standoff {
    fn new(lab: &Lab) -> Standoff {
        let _ = lab.native("echo old > file");
        let mut at = Rendezvous::new();
        let script = format!("echo older > file; {PAUSE}");
        let older = lab.script(&[], &script).meeting(&mut at).start();
        assert!(at.arrived());
        let younger = lab.script(&[], "cat file; echo younger >> file").start();
        wait::until("the younger one waits", || now(lab)["waiting"] == 1);
        Standoff { older, younger, at }
    }

    /// Lets them go on; both commit.
    fn end(self, lab: &Lab) {
        self.at.go();
        let _ = self.older.wait().expect(0).says("txos: committed");
        let younger = self.younger.wait().expect(0).says("txos: committed");
        assert_eq!(younger.text(), "older\n", "it sees what the older one committed");
        assert_eq!(lab.read("file"), "older\nyounger\n");
        lab.expect_clean();
    }
}

/// What `top` shows.
fn now(lab: &Lab) -> Value {
    lab.txos(["top", "--once", "--json"]).run().expect(0).json()
}

/// The one of two transactions that waits, and the other.
fn waiting_first(all: &Value) -> (Value, Value) {
    let all = all.as_array().expect("transactions");
    assert_eq!(all.len(), 2, "{all:?}");
    let waits = |t: &&Value| t.get("waits_for").is_some_and(Value::is_object);
    let waiting = all.iter().find(waits).expect("one waits");
    let other = all.iter().find(|t| !waits(t)).expect("one does not");
    (waiting.clone(), other.clone())
}

/// The segment.
fn segment(lab: &Lab) -> PathBuf {
    let mut files = std::fs::read_dir(lab.realm()).unwrap().flatten().map(|entry| entry.path());
    files.find(|path| path.is_file()).expect("a segment")
}

/// Flips a bit of its header.
fn damage(lab: &Lab) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(segment(lab)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 60).unwrap();
    byte[0] ^= 1;
    file.write_all_at(&byte, 60).unwrap();
}

/// What is shown once the wait is seen in it: between two looks at what it waits for, a transaction is seen not to
/// wait.
fn seen<T: Default>(what: &str, look: impl Fn() -> T, waits: impl Fn(&T) -> bool) -> T {
    let mut shown = T::default();
    wait::until(what, || {
        shown = look();
        waits(&shown)
    });
    shown
}

#[test]
fn who_waits_for_whom_is_shown() {
    let lab = Lab::in_memory();
    let both = Standoff::new(&lab);
    let (older, younger) = (both.older.pid(), both.younger.pid());
    let pid = |p: rustix::process::Pid| i64::from(p.as_raw_pid());

    let shown = seen("top shows the wait", || now(&lab), |shown| shown["waiting"] == 1);
    let (waiting, holder) = waiting_first(&shown["transactions"]);
    assert_eq!(waiting["pid"], pid(younger));
    assert_eq!(holder["pid"], pid(older));
    assert_eq!(waiting["waits_for"]["pid"], pid(older));
    assert_eq!(waiting["waits_for"]["id"], holder["id"]);
    assert_eq!(waiting["waits_for"]["turn"], false);
    assert!(waiting["waits_for"]["seconds"].as_f64().unwrap() >= 0.0);
    assert_eq!((&holder["state"], &holder["dead"]), (&json!("active"), &json!(false)));
    assert!(holder["held"].as_u64().unwrap() > 0 && holder["seconds"].as_f64().unwrap() > 0.0);
    assert!(waiting["command"].as_str().unwrap().contains("echo younger"), "{waiting}");

    let listed = || lab.txos(["list", "--json"]).run().expect(0).json();
    let listed = seen("list shows the wait", listed, |listed: &Value| {
        listed.to_string().contains("\"waits_for\":{")
    });
    let (waiting, holder) = waiting_first(&listed["transactions"]);
    assert_eq!(waiting["waits_for"]["id"], holder["id"]);
    assert_eq!(waiting["waits_for"]["pid"], pid(older));
    assert_eq!((&waiting["state"], &holder["state"]), (&json!("active"), &json!("active")));

    let (waiting, holder) = (waiting["id"].as_str().unwrap(), holder["id"].as_str().unwrap());
    let listed = || lab.txos(["list"]).run().expect(0).text();
    let listed = seen("a line shows the wait", listed, |listed| listed.contains(" (waits "));
    let lines = |id: &str| listed.lines().find(|l| l.starts_with(id)).unwrap().to_owned();
    assert!(lines(waiting).ends_with(&format!(" s for {holder})")), "{listed}");
    assert!(lines(waiting).contains(" (waits "), "{listed}");
    assert!(!lines(holder).contains("(waits"), "{listed}");

    let shown = || lab.txos(["top", "--once"]).run().expect(0).text();
    let shown = seen("top counts the wait", shown, |shown| shown.contains("1 of them waiting"));
    assert!(shown.starts_with("os-priority: 2 running, 1 of them waiting\n"), "{shown}");
    let line = shown.lines().find(|l| l.starts_with(waiting)).unwrap();
    assert!(line.contains(&format!("  {holder} ")), "{shown}");
    assert!(!shown.contains('\x1b'), "{shown}");

    let status = lab.txos(["status", "--json"]).run().expect(0).json();
    let realm = &status["realm"];
    assert_eq!((&realm["running"], &realm["waiting"]), (&json!(2), &json!(1)));
    assert_eq!((&realm["dead"], &realm["places"]), (&json!(0), &json!(60)));
    assert!(realm["held"].as_u64().unwrap() > 0 && realm["conflicts"].as_u64().unwrap() > 0);
    assert!(realm["waits"].as_u64().unwrap() > 0);
    assert_eq!(status["store"]["active"], 2);
    let status = lab.txos(["status"]).run().expect(0).text();
    assert!(status.contains("2 running, 1 of them waiting; 60 places"), "{status}");

    both.end(&lab);
    let status = lab.txos(["status", "--json"]).run().expect(0).json();
    let realm = &status["realm"];
    assert_eq!(
        (&realm["running"], &realm["waiting"], &realm["held"]),
        (&json!(0), &json!(0), &json!(0))
    );
    assert_eq!(realm["commits"], 2);
    assert_eq!((&status["store"]["active"], &status["store"]["committed"]), (&json!(0), &json!(2)));
    assert_eq!(now(&lab)["transactions"], json!([]));
}

#[test]
fn looking_makes_nothing() {
    let lab = Lab::in_memory();
    let _ = lab.txos(["status"]).run().expect(0).says("nothing has run yet");
    let status = lab.txos(["status", "--json"]).run().expect(0).json();
    assert!(status["realm"].is_null() && status["store"].is_null(), "{status}");
    assert_eq!(status["policy"], "os-priority");
    let shown = lab.txos(["policy"]).run().expect(0).text();
    assert!(shown.starts_with("os-priority: "), "{shown}");
    let shown = lab.txos(["top", "--once"]).run().expect(0).text();
    assert_eq!(shown, "os-priority: 0 running\nnothing runs\n");
    let _ = lab.txos(["list"]).run().expect(0);
    let _ = lab.txos(["doctor", "--rebuild"]).run().expect(0).says("will be made");
    assert!(!lab.realm().exists() && !lab.store().exists());
}

#[test]
fn the_policy_is_set_for_everybody() {
    let lab = Lab::in_memory();
    let _ = lab.txos(["policy", "set", "timestamp"]).run().expect(0).says("timestamp now");
    let shown = lab.txos(["policy"]).run().expect(0).text();
    assert!(shown.starts_with("timestamp: the older wins"), "{shown}");
    let all = lab.txos(["policy", "get", "--all"]).run().expect(0).text();
    assert!(all.lines().any(|l| l.starts_with("* timestamp ")), "{all}");
    assert_eq!(all.lines().filter(|l| l.starts_with("  ")).count(), 5, "{all}");
    let json = lab.txos(["policy", "--json"]).run().expect(0).json();
    assert_eq!(json["policy"], "timestamp");
    assert_eq!(json["policies"].as_array().unwrap().len(), 6);
    let status = lab.txos(["status"]).run().expect(0).text();
    assert!(status.contains("timestamp: "), "{status}");
    assert_eq!(lab.txos(["status", "--json"]).run().expect(0).json()["policy"], "timestamp");
    // While others run, too, and they go on.
    let both = Standoff::new(&lab);
    let json = lab.txos(["policy", "set", "os-priority", "--json"]).run().expect(0).json();
    assert_eq!(json["policy"], "os-priority");
    assert_eq!(now(&lab)["policy"], "os-priority");
    both.end(&lab);
    let wrong = lab.txos(["policy", "set", "fair"]).run().expect(125);
    for name in ["os-priority", "timestamp", "karma", "polka", "size-matters", "polite"] {
        assert!(wrong.stderr.contains(name), "{name} is not named: {wrong:?}");
    }
}

#[test]
fn a_damaged_realm_is_refused_and_made_anew() {
    let lab = Lab::in_memory();
    let _ = lab.txos(["policy", "set", "karma"]).run().expect(0);
    damage(&lab);
    let done = lab.script(&[], "echo > made").run().expect(125);
    let _ = done.says("is damaged").says("`txos doctor --rebuild`");
    assert!(!lab.path("made").exists());
    let _ = lab.txos(["status"]).run().expect(125).says("is damaged");
    let _ = lab.txos(["list"]).run().expect(0);
    let checked = lab.txos(["doctor", "--json"]).run().expect(1).json();
    let checks = checks_of(&checked, "realm");
    assert_eq!(checks[0]["ok"], false);
    assert!(checks[0]["detail"].as_str().unwrap().contains("is damaged"), "{checks:?}");

    let inode = std::fs::metadata(segment(&lab)).unwrap().ino();
    let _ = lab.txos(["doctor", "--rebuild"]).run().expect(0).says("made the realm");
    assert_ne!(std::fs::metadata(segment(&lab)).unwrap().ino(), inode);
    let checks = checks_of(&lab.txos(["doctor", "--json"]).run().json(), "realm");
    assert_eq!(checks[0]["ok"], true, "{checks:?}");
    assert_eq!(lab.txos(["policy", "--json"]).run().expect(0).json()["policy"], "os-priority");
    let _ = lab.script(&[], "echo > made").run().expect(0);
    assert!(lab.path("made").exists());
}

#[test]
fn a_realm_in_use_is_not_made_anew() {
    let lab = Lab::in_memory();
    let both = Standoff::new(&lab);
    let inode = std::fs::metadata(segment(&lab)).unwrap().ino();
    let refused = lab.txos(["doctor", "--rebuild"]).run().expect(125).says("in use");
    for running in [&both.older, &both.younger] {
        let name = format!("(process {}: sh -c ", running.pid().as_raw_pid());
        assert!(refused.stderr.contains(&name), "{name} is not named: {refused:?}");
    }
    // One that can't be read: who has it open is known all the same.
    damage(&lab);
    let refused = lab.txos(["doctor", "--rebuild"]).run().expect(125).says("in use");
    let _ = refused.says(format!("process {}: txos", both.older.pid().as_raw_pid()));
    damage(&lab);
    assert_eq!(std::fs::metadata(segment(&lab)).unwrap().ino(), inode);
    both.end(&lab);
    let _ = lab.txos(["doctor", "--rebuild"]).run().expect(0);
}

fn checks_of(report: &Value, name: &str) -> Vec<Value> {
    let checks = report["checks"].as_array().expect("checks");
    checks.iter().filter(|c| c["name"] == name).cloned().collect()
}

#[test]
fn the_dead_are_shown_and_cleared_away() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo old > file");
    let mut at = Rendezvous::new();
    let script = format!("echo new > file; {PAUSE}");
    let running = lab.script(&[], &script).meeting(&mut at).start();
    assert!(at.arrived());
    let pid = running.pid().as_raw_pid();
    running.signal(Signal::KILL);
    assert!(running.wait().killed());
    let shown = now(&lab);
    assert_eq!((&shown["running"], &shown["dead"]), (&json!(0), &json!(1)), "{shown}");
    assert_eq!(shown["transactions"][0]["dead"], true);
    assert_eq!(shown["transactions"][0]["pid"], i64::from(pid));
    let text = lab.txos(["top", "--once"]).run().expect(0).text();
    assert!(text.lines().any(|l| l.contains("  dead  ")), "{text}");
    // Looking has changed nothing.
    let checks = checks_of(&lab.txos(["doctor", "--json"]).run().json(), "dead members");
    assert_eq!(checks.len(), 1);
    assert_eq!(checks[0]["ok"], true, "{checks:?}");
    assert_eq!(now(&lab)["dead"], 1);
    let _ = lab.txos(["gc"]).run().expect(0).says("cleared the place of a dead process");
    assert_eq!(now(&lab)["dead"], 0);
    let status = lab.txos(["status", "--json"]).run().expect(0).json();
    assert_eq!((&status["realm"]["held"], &status["realm"]["takeovers"]), (&json!(0), &json!(1)));
    lab.expect_clean();
}

#[test]
fn top_refreshes_until_it_is_interrupted() {
    let lab = Lab::in_memory();
    let (mut pty, inner) = Pty::open(60, 24);
    let top = lab.txos(["top", "--interval", "0.1"]).terminal(inner).start();
    pty.expect("\x1b[H\x1b[2J");
    pty.expect("nothing runs");
    // One that begins meanwhile is seen, though there was no realm before.
    let both = Standoff::new(&lab);
    let id = now(&lab)["transactions"][0]["id"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        pty.expect("\x1b[H\x1b[2J");
        pty.expect("2 running, 1 of them waiting; ");
        pty.expect(" commits/s, ");
        pty.expect(&id);
        // Cut to the width.
        pty.expect("…");
    }
    both.end(&lab);
    pty.expect("nothing runs");
    pty.type_in("\x03");
    let _ = pty.rest();
    let _ = top.wait().expect(130);
}

#[test]
fn top_for_scripts_is_a_line_for_each_look() {
    let lab = Lab::in_memory();
    let top = lab.txos(["top", "--json", "--interval", "0.1"]).start();
    wait::until("two looks", || top.stdout().lines().count() > 2);
    let _ = lab.script(&[], "echo > made").run().expect(0);
    wait::until("a commit is counted", || {
        let stdout = top.stdout();
        let mut complete = stdout.lines().take(stdout.matches('\n').count());
        complete.any(|line| {
            let look: Value = serde_json::from_str(line).expect("JSON");
            look["per_second"]["commits"].as_f64().is_some_and(|n| n > 0.0)
        })
    });
    let first: Value = serde_json::from_str(top.stdout().lines().next().unwrap()).unwrap();
    assert_eq!((&first["schema"], &first["running"]), (&json!(1), &json!(0)));
    assert!(first["per_second"].is_null());
    top.signal(Signal::INT);
    let _ = top.wait().expect(130);
}

#[test]
fn inside_a_transaction_what_does_more_than_look_is_refused() {
    let lab = Lab::in_memory();
    let txos = txos_testkit::binary::txos().display().to_string();
    // `status` and others that only look are answered (command, `looking`).
    for words in ["top --once", "policy", "policy set karma", "doctor --rebuild"] {
        let script = format!("{txos} {words}; test $? = 125");
        let _ = lab.script(&[], &script).run().expect(0).says("this is inside transaction");
    }
}

/// One changes 1,000 files and holds still; another one reads 5,000 others. Some thirty of what they touch
/// share a record by chance. Neither waits for the other, whoever is the older.
#[test]
fn who_only_collides_does_not_wait() {
    const WRITE: &str = "for f in w/*; do echo more >> $f; done";
    const READ: &str = "cat r/* > /dev/null";
    let lab = Lab::in_memory();
    let made = "mkdir w r; for i in $(seq 1000); do echo w > w/$i; done; \
                for i in $(seq 5000); do echo r > r/$i; done";
    let _ = lab.native(made);
    for (older, younger) in [(WRITE, READ), (READ, WRITE)] {
        let mut at = Rendezvous::new();
        let older = lab.script(&[], &format!("{older}; {PAUSE}")).meeting(&mut at).start();
        assert!(at.arrived());
        // Waiting for the older one it would wait for as long as that holds still, and then fail.
        let _ = lab.script(&["--wait", "20"], younger).run().expect(0);
        let status = lab.txos(["status", "--json"]).run().expect(0).json();
        assert_eq!(
            (&status["realm"]["waits"], &status["realm"]["conflicts"]),
            (&json!(0), &json!(0))
        );
        assert!(status["realm"]["collisions"].as_u64().unwrap() > 0, "{status}");
        at.go();
        let _ = older.wait().expect(0);
    }
    assert_eq!(lab.read("w/1"), "w\nmore\nmore\n");
    lab.expect_clean();
}

/// Every place of the realm is taken. A command waits for one as long as `--wait` says, and nothing of it has
/// happened.
#[test]
fn a_full_realm_is_waited_for_as_long_as_wait_says() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo old > file");
    let nobody = |_: &DeadPublish| Err(Unresolved("nobody publishes here".into()));
    let realm = Realm::join(lab.realm(), "test", lab.realm(), Box::new(nobody)).unwrap();
    let full: Vec<_> = (0..SLOTS).map(|_| realm.begin(&Begin::default()).unwrap()).collect();
    let ended = lab.script(&["--wait", "1"], "echo new > file").run().expect(125);
    let ended = ended.says("txos: 60 transactions run already; waiting");
    let _ = ended.says("it got no place within 1 s").says("rolled back, nothing changed");
    drop(full);
    assert_eq!(lab.read("file"), "old\n");
    let _ = lab.script(&["--wait", "1"], "echo new > file").run().expect(0);
    assert_eq!(lab.read("file"), "new\n");
    lab.expect_clean();
}
