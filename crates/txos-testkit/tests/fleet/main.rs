//! The Ansible collection (`dist/ansible`), run by Ansible itself: one change on three hosts, which here are three trees
//! with a store each, on all of them or on none, whatever kills the controller.

// A test that can't go on says why, and that is all there is to do about it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use txos_testkit::{Done, Invocation, Lab, binary, require_some, skip};

const HOSTS: [&str; 3] = ["a", "b", "c"];

/// Kills the controller at an event: the start of a task, or a host's answer.
const KILLER: &str = r#"
import os, signal
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "killer"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        self.left = int(os.environ.get("FLEET_KILL_AT", "0"))

    def event(self, *args, **kwargs):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    v2_playbook_on_task_start = v2_runner_on_ok = v2_runner_on_failed = event
    v2_runner_on_skipped = v2_runner_on_unreachable = event
"#;

/// The command of Ansible: the machine's own, or one that pip installs into a directory of the tests.
fn ansible() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        if skip::has("ansible-playbook") {
            return Some(PathBuf::from("ansible-playbook"));
        }
        let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ansible");
        let command = venv.join("bin/ansible-playbook");
        let works = || Invocation::new(&command).arg("--version").run().code() == 0;
        if !command.exists() || !works() {
            let script =
                "rm -rf \"$0\" && python3 -m venv \"$0\" && \"$0\"/bin/pip install -q ansible-core";
            let made = Invocation::shell(script).arg(&venv).run();
            if made.code() != 0 || !works() {
                return None;
            }
        }
        Some(command)
    };
    FOUND.get_or_init(find).as_deref()
}

/// Three hosts, and a controller.
struct Fleet<'a> {
    lab: &'a Lab,
    ansible: &'static Path,
}

impl<'a> Fleet<'a> {
    fn new(lab: &'a Lab, ansible: &'static Path) -> Fleet<'a> {
        let fleet = Fleet { lab, ansible };
        let top = lab.dir();
        let collection = top.join("ansible_collections/txos");
        fs::create_dir_all(&collection).unwrap();
        let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/ansible");
        std::os::unix::fs::symlink(dist.canonicalize().unwrap(), collection.join("fleet")).unwrap();
        fs::create_dir(top.join("callbacks")).unwrap();
        fs::write(top.join("callbacks/killer.py"), KILLER).unwrap();
        for host in HOSTS {
            fs::create_dir(fleet.host(host)).unwrap();
            fs::write(fleet.host(host).join("conf"), "old\n").unwrap();
        }
        let at = fleet.lab.tree().display().to_string();
        let inventory = format!(
            "[all]\na\nb\nc\n[all:vars]\nansible_connection=local\nansible_python_interpreter=python3\n\
             fleet_scope=[\"{at}/{{{{ inventory_hostname }}}}\"]\n\
             fleet_store={at}/store-{{{{ inventory_hostname }}}}\n\
             fleet_executable={}\nfleet_journal={at}/journal\n\
             argv=[\"sh\", \"-e\", \"{at}/script\", \"{at}/{{{{ inventory_hostname }}}}\"]\n",
            binary::txos().display(),
        );
        fs::write(top.join("hosts"), inventory).unwrap();
        // A host may be told to fail.
        let script =
            "cd $1; echo new > conf; echo more > added; test ! -e ../$(basename $1).fails\n";
        fs::write(lab.path("script"), script).unwrap();
        fleet
    }

    fn host(&self, name: &str) -> PathBuf {
        self.lab.path(name)
    }

    /// Runs the playbook for a change; the controller is killed at an event, if that is not 0.
    fn play(&self, change: &str, kill_at: usize, more: &[&str]) -> Done {
        let top = self.lab.dir();
        Invocation::new(self.ansible)
            .arg("-i")
            .arg(top.join("hosts"))
            .args(["txos.fleet.change", "-e", &format!("change={change}")])
            .args(more)
            .dir(top)
            .env("ANSIBLE_COLLECTIONS_PATH", top)
            .env("ANSIBLE_HOME", top.join("ansible"))
            .env("ANSIBLE_LOCAL_TEMP", top.join("ansible/tmp"))
            .env("ANSIBLE_REMOTE_TEMP", top.join("ansible/tmp"))
            .env("ANSIBLE_CALLBACK_PLUGINS", top.join("callbacks"))
            .env("ANSIBLE_CALLBACKS_ENABLED", "killer")
            .env("ANSIBLE_NOCOLOR", "1")
            .env("FLEET_KILL_AT", kill_at.to_string())
            .env("HOME", top)
            .env("TXOS_REALM", self.lab.realm())
            .run()
    }

    /// What the hosts have, in their order.
    fn contents(&self) -> [String; 3] {
        HOSTS.map(|host| {
            let added = if self.host(host).join("added").exists() { "+" } else { "" };
            fs::read_to_string(self.host(host).join("conf")).unwrap().trim_end().to_owned() + added
        })
    }

    /// The record of a change.
    fn record(&self, change: &str) -> serde_json::Value {
        let path = self.lab.path("journal").join(format!("{change}.json"));
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    /// How many transactions of a host are pending.
    fn pending(&self, host: &str) -> usize {
        let store = self.lab.path(format!("store-{host}"));
        let list = self.lab.txos(["list", "--json", "--store"]).arg(store).run().expect(0).json();
        list["transactions"].as_array().unwrap().len()
    }

    /// No host has anything left to decide about.
    #[track_caller]
    fn nothing_is_pending(&self) {
        assert_eq!(HOSTS.map(|host| self.pending(host)), [0; 3]);
    }
}

const OLD: [&str; 3] = ["old", "old", "old"];
const NEW: [&str; 3] = ["new+", "new+", "new+"];

#[test]
fn a_change_is_on_all_hosts_or_on_none() {
    let ansible = require_some!(ansible(), "there is no Ansible, and pip can't install it");
    let lab = Lab::new();
    let fleet = Fleet::new(&lab, ansible);
    // The command fails on one host.
    fs::write(lab.path("b.fails"), "").unwrap();
    let failed = fleet.play("first", 0, &[]).expect(2);
    assert!(failed.text().contains("the change is on no host"), "{failed:?}");
    assert_eq!(
        (fleet.contents(), &fleet.record("first")["outcome"]),
        (OLD.map(str::to_owned), &"reverted".into())
    );
    fleet.nothing_is_pending();
    // The decision stands, also when there is no reason for it any more.
    fs::remove_file(lab.path("b.fails")).unwrap();
    let _ = fleet.play("first", 0, &[]).expect(2);
    assert_eq!(fleet.contents(), OLD);
    // Under another name it is another change.
    let _ = fleet.play("second", 0, &[]).expect(0);
    assert_eq!(
        (fleet.contents(), &fleet.record("second")["outcome"]),
        (NEW.map(str::to_owned), &"committed".into())
    );
    // Once more changes nothing; with another command it is refused.
    let again = fleet.play("second", 0, &[]).expect(0);
    assert!(!again.text().contains("changed: ["), "{again:?}");
    let other = fleet.play("second", 0, &["-e", "{\"argv\": [\"true\"]}"]).expect(2);
    assert!(other.text().contains("another command"), "{other:?}");
    assert_eq!(fleet.contents(), NEW);
    fleet.nothing_is_pending();
}

/// One host can't commit, because its tree was changed after all had prepared: those that have committed are reverted.
/// Which can't be reverted, because others have changed them again, is listed.
#[test]
fn a_host_that_cannot_commit_has_the_others_reverted() {
    let ansible = require_some!(ansible(), "there is no Ansible, and pip can't install it");
    let lab = Lab::new();
    let fleet = Fleet::new(&lab, ansible);
    // After the events of `begin` and `prepare`: three hosts have prepared, nothing is decided.
    let _ = fleet.play("change", 6, &[]);
    fs::write(fleet.host("c").join("conf"), "theirs\n").unwrap();
    let failed = fleet.play("change", 0, &[]).expect(2);
    assert!(failed.text().contains("the change is on no host"), "{failed:?}");
    assert_eq!(fleet.contents(), ["old", "old", "theirs"]);
    fleet.nothing_is_pending();

    // The same, but what was committed on one host is changed before it is reverted. (The events: begin, 2; prepare, 4;
    // decide, 2; commit, 4; then a decision is about to be made.)
    let _ = fleet.play("again", 6, &[]);
    fs::write(fleet.host("c").join("conf"), "theirs, too\n").unwrap();
    let _ = fleet.play("again", 13, &[]);
    assert_eq!(fleet.record("again")["decision"], "commit");
    assert_eq!(fleet.contents(), ["new+", "new+", "theirs, too"]);
    fs::write(fleet.host("a").join("conf"), "theirs\n").unwrap();
    let failed = fleet.play("again", 0, &[]).expect(2);
    assert_eq!(fleet.contents(), ["theirs+", "old", "theirs, too"], "{failed:?}");
    let record = fleet.record("again");
    assert_eq!(record["outcome"], "incomplete");
    assert!(
        record["left"]["a"].as_str().unwrap().contains("conf") && record["left"].get("b").is_none()
    );
    assert!(failed.text().contains("could not be reverted"), "{failed:?}");
    // Put in order, the rest is done.
    fs::write(fleet.host("a").join("conf"), "new\n").unwrap();
    let done = fleet.play("again", 0, &["-e", "{\"fleet_skip_changed\": [\"**/conf\"]}"]).expect(2);
    assert_eq!(fleet.record("again")["outcome"], "reverted", "{done:?}");
    assert_eq!(fleet.contents(), ["new", "old", "theirs, too"]);
    fleet.nothing_is_pending();
}

/// The controller is killed at an event; another one goes on, to the same end on all hosts.
fn killed_at(event: usize, fails: bool, ansible: &'static Path) -> bool {
    let lab = Lab::new();
    let fleet = Fleet::new(&lab, ansible);
    if fails {
        fs::write(lab.path("b.fails"), "").unwrap();
    }
    let killed = fleet.play("change", event, &[]).killed();
    let last = fleet.play("change", 0, &[]);
    let (expected, status) = if fails { (OLD, 2) } else { (NEW, 0) };
    let _ = last.expect(status);
    assert_eq!(fleet.contents(), expected, "killed at event {event}");
    fleet.nothing_is_pending();
    killed
}

#[test]
fn a_killed_controller_goes_on() {
    let ansible = require_some!(ansible(), "there is no Ansible, and pip can't install it");
    if skip::long("fleet") {
        for fails in [false, true] {
            let events = (1..).take_while(|&event| killed_at(event, fails, ansible)).count();
            assert!(events >= 20, "{events}");
        }
        given_up(ansible);
    } else {
        // No host has prepared; one has said that it has committed.
        for event in [3, 10] {
            assert!(killed_at(event, false, ansible));
        }
    }
}

/// A change can be given up as long as it is not on all hosts.
fn given_up(ansible: &'static Path) {
    let lab = Lab::new();
    let fleet = Fleet::new(&lab, ansible);
    let _ = fleet.play("change", 6, &[]);
    let given_up = fleet.play("change", 0, &["-e", "fleet_decision=revert"]).expect(2);
    assert!(given_up.text().contains("it was asked for"), "{given_up:?}");
    assert_eq!(fleet.contents(), OLD);
    fleet.nothing_is_pending();
    // What is on all hosts is not given up any more.
    let _ = fleet.play("other", 0, &[]).expect(0);
    let _ = fleet.play("other", 0, &["-e", "fleet_decision=revert"]).expect(0);
    assert_eq!(fleet.contents(), NEW);
}
