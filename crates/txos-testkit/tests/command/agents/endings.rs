//! How calls and servers end.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use txos_testkit::Lab;
use txos_testkit::wait::until;

use crate::client::{Agent, FREE, outcome};

/// Whether a process with this word in its command line runs.
pub fn runs(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.map(|p| std::fs::read(p.path().join("cmdline")).unwrap_or_default()).any(|line| {
        line.starts_with(b"sleep\0") && line.split(|&b| b == 0).any(|w| w == word.as_bytes())
    })
}

/// A transaction in which one command has succeeded, and a further one that sleeps under this word.
fn sleeping(lab: &Lab, word: &str, script: &str) -> (Agent, String, u64) {
    let mut agent = Agent::new(lab, FREE);
    let id = agent.runs("echo first > a")["id"].as_str().unwrap().to_owned();
    let command = format!("{script} echo second > a; sleep {word}");
    let call = agent.begin_call("run", &json!({"command": command, "on_failure": "keep"}));
    until("the command sleeps", || runs(word));
    (agent, id, call)
}

/// It is pending with what the first command did, and nothing runs.
fn is_as_before(lab: &Lab, id: &str, word: &str) {
    until("nothing runs", || !runs(word));
    // The processes of txos end after the command's.
    until("nobody holds it", || {
        let all = lab.txos(["list", "--json"]).run().expect(0).json();
        let all = all["transactions"].as_array().unwrap();
        all.iter().any(|tx| tx["id"] == id && tx["state"] == "pending")
    });
    let mut agent = Agent::new(lab, FREE);
    let begun = agent.does("begin", json!({"resume": id}));
    assert_eq!((&begun["id"], &begun["resumed"]), (&json!(id), &json!(true)));
    assert_eq!(agent.does("read", json!({"path": "a"}))["content"]["text"], "first\n");
    assert_eq!(agent.does("abort", json!({}))["outcome"], "aborted");
    assert_eq!(agent.hang_up(), Some(0));
    lab.expect_clean();
}

#[test]
fn a_cancelled_command_is_stopped() {
    let lab = Lab::in_memory();
    let (mut agent, id, call) = sleeping(&lab, "98761", "");
    agent.notify("notifications/cancelled", &json!({"requestId": call}));
    until("it is stopped", || !runs("98761"));
    // Stopped by a signal, it has failed: it was asked to keep what a failing command did.
    assert_eq!(agent.does("read", json!({"path": "a"}))["content"]["text"], "second\n");
    let status = agent.does("status", json!({}));
    assert_eq!((&status["id"], &status["state"]), (&json!(id), &json!("pending")));
    assert_eq!(agent.does("abort", json!({}))["outcome"], "aborted");
    drop(agent);
    lab.expect_clean();
}

#[test]
fn a_command_that_takes_too_long_is_stopped_even_if_it_does_not_want_to() {
    let lab = Lab::in_memory();
    let mut agent = Agent::new(&lab, FREE);
    let _ = agent.runs("echo first > a");
    for script in ["", "trap '' TERM;"] {
        let command = format!("{script} echo second > a; echo said; sleep 98762; sleep 98762");
        let ran = agent.does("run", json!({"command": command, "timeout_seconds": 4}));
        assert_eq!((&ran["stopped"], &ran["kept"]), (&json!("time"), &json!(false)), "{ran}");
        assert_eq!(ran["stdout"]["text"], "said\n");
        assert!(ran["message"].as_str().unwrap().contains("taken back"), "{ran}");
        until("nothing runs", || !runs("98762"));
        assert_eq!(agent.does("read", json!({"path": "a"}))["content"]["text"], "first\n");
    }
}

#[test]
fn a_client_that_goes_leaves_nothing_running() {
    let lab = Lab::in_memory();
    let (agent, id, _) = sleeping(&lab, "98763", "trap '' TERM;");
    assert_eq!(agent.hang_up(), Some(0));
    assert!(!runs("98763"), "the server has ended, its command has not");
    is_as_before(&lab, &id, "98763");
    let (agent, id, _) = sleeping(&lab, "98764", "trap '' TERM;");
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait(), Some(0));
    is_as_before(&lab, &id, "98764");
}

#[test]
fn a_killed_server_leaves_nothing_running() {
    let lab = Lab::in_memory();
    let (agent, id, _) = sleeping(&lab, "98765", "trap '' TERM;");
    agent.signal(Signal::KILL);
    assert_eq!(agent.wait(), None);
    is_as_before(&lab, &id, "98765");
}

/// Killed at moments that are not known beforehand, while it begins, runs, commits: each commit has happened as
/// a whole or not at all, and what is pending can be gone on with or be discarded.
#[test]
fn killed_at_any_moment() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 0 > a; echo 0 > b");
    for moment in 0..8 {
        let mut agent = Agent::new(&lab, FREE);
        let add = "n=$(cat a); echo $((n + 1)) > a; echo $((n + 1)) > b";
        for _ in 0..4 {
            let _ = agent.begin_call("run", &json!({"command": add}));
            let _ = agent.begin_call("commit", &json!({}));
        }
        std::thread::sleep(Duration::from_millis(20 + 35 * moment));
        agent.signal(Signal::KILL);
        assert_eq!(agent.wait(), None);
        // A commit that has begun goes on by itself.
        until("nothing of it runs", || {
            let done = lab.txos(["list", "--json"]).run().expect(0).json();
            done["transactions"].as_array().unwrap().iter().all(|tx| tx["state"] != "active")
        });
        let _ = lab.txos(["recover"]).run().expect(0);
        assert_eq!(lab.read("a"), lab.read("b"), "moment {moment}");
        let left = lab.txos(["list", "--json"]).run().expect(0).json();
        for tx in left["transactions"].as_array().unwrap() {
            let _ = lab.txos(["abort", tx["id"].as_str().unwrap()]).run().expect(0);
        }
    }
    lab.age_half_made();
    let _ = lab.txos(["gc"]).run().expect(0);
    lab.expect_clean();
}

#[test]
fn two_servers_on_one_workspace_lose_nothing() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 0 > a; echo 0 > b");
    let (mut one, mut two) = (Agent::new(&lab, FREE), Agent::new(&lab, FREE));
    let first = one.runs("echo one > a")["id"].as_str().unwrap().to_owned();
    let second = two.runs("cat a; echo two >> a; echo two > b")["id"].as_str().unwrap().to_owned();
    assert_ne!(first, second);
    let mut pending = vec![first.clone(), second.clone()];
    pending.sort();
    let mut listed: Vec<String> = one.does("status", json!({}))["pending"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap().to_owned())
        .collect();
    listed.sort();
    assert_eq!(listed, pending);
    assert_eq!(one.does("commit", json!({}))["outcome"], "committed");
    let review = two.does("review", json!({}));
    assert_eq!(review["can_commit"], false, "{review}");
    assert_eq!(review["conflicts"][0]["path"], lab.path("a").display().to_string());
    two.fails("commit", json!({}), &["conflict", "stays", "abort"]);
    assert_eq!((lab.read("a"), lab.read("b")), ("one\n".into(), "0\n".into()));
    let _ = two.does("abort", json!({}));
    // The same transaction from two servers: each command is whole.
    let id = one.runs("echo 0 > n")["id"].clone();
    let _ = two.does("begin", json!({"resume": id}));
    let slow = json!({"command": "n=$(cat n); sleep 0.2; echo $((n + 1)) > n"});
    let call = one.begin_call("run", &slow);
    let theirs = two.call("run", slow.clone());
    let ours = outcome(&one.answer(call));
    let kept =
        [ours, theirs].iter().filter(|r| r.as_ref().is_ok_and(|r| r["kept"] == true)).count();
    let n = one.does("read", json!({"path": "n"}))["content"]["text"].clone();
    assert_eq!(n, format!("{kept}\n"));
    assert!(kept >= 1);
    assert_eq!(one.does("commit", json!({}))["outcome"], "committed");
    drop((one, two));
    lab.expect_clean();
}
