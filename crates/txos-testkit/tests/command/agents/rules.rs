//! The policy.

use serde_json::json;
use txos_testkit::{Invocation, Lab, binary};

use crate::client::{Agent, FREE};

#[test]
fn without_a_policy_a_person_decides() {
    let lab = Lab::in_memory();
    let mut agent = Agent::new(&lab, "versioned = 'workspace'\n");
    let id = agent.runs("echo x > x")["id"].as_str().unwrap().to_owned();
    let review = agent.does("review", json!({}));
    assert_eq!((&review["needs_person"], &review["can_commit"]), (&json!(true), &json!(true)));
    let decided = agent.does("commit", json!({}));
    assert_eq!(decided["outcome"], "needs-person", "{decided}");
    assert!(!lab.path("x").exists());
    // Each command that it names works, but for the one that asks at a terminal.
    let commands: Vec<&str> =
        decided["commands"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
    let store = lab.store().display();
    assert_eq!(commands[0], format!("txos --store {store} review {id}"));
    // A person's shell need not know the server's store.
    let typed = |command: &str| {
        let path = format!("{}:/usr/bin:/bin", binary::txos().parent().unwrap().display());
        Invocation::shell(command).env("PATH", path).env("TXOS_REALM", lab.realm()).run()
    };
    assert!(typed(commands[1]).expect(0).text().contains("+x"));
    let _ = typed(commands[2]).expect(0);
    assert_eq!(lab.read("x"), "x\n");
    // The agent is told, and goes on in a new one.
    let ran = agent.does("run", json!({"command": "echo y > y"}));
    assert_eq!(ran["outcome"], "failed", "{ran}");
    assert!(ran["message"].as_str().unwrap().contains("begins a new transaction"), "{ran}");
    let second = agent.runs("echo y > y");
    assert!(second["begun"] == true && second["id"] != id, "{second}");
    let reverted = agent.does("revert", json!({"id": id}));
    assert_eq!(reverted["outcome"], "needs-person");
    assert_eq!(reverted["commands"][0], format!("txos --store {store} revert {id}"));
    assert!(lab.path("x").exists());
    let _ = typed(reverted["commands"][0].as_str().unwrap()).expect(0);
    assert!(!lab.path("x").exists());
}

#[test]
fn an_agent_that_may_decides_about_its_workspace_only() {
    let lab = Lab::in_memory();
    let inside = lab.path("inside");
    let _ = lab.native("mkdir inside");
    let policy = format!("workspace = '{}'\ncommit = 'agent'\n", inside.display());
    let mut agent = Agent::new(&lab, &policy);
    let ran = agent.runs("echo x > x; echo y > ../beside");
    assert_eq!(ran["counts"]["added"], 2, "{ran}");
    let review = agent.does("review", json!({}));
    assert_eq!((&review["outside_count"], &review["needs_person"]), (&json!(1), &json!(true)));
    let decided = agent.does("commit", json!({}));
    assert_eq!(decided["outcome"], "needs-person", "{decided}");
    assert!(decided["message"].as_str().unwrap().contains("beside"), "{decided}");
    let _ = agent.does("abort", json!({}));
    let _ = agent.runs("echo x > x");
    assert_eq!(agent.does("commit", json!({}))["outcome"], "committed");
    assert!(inside.join("x").exists() && !lab.path("beside").exists());
}

#[test]
fn what_is_live_is_refused_reported_or_excluded() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir cache");
    let mut agent = Agent::new(&lab, FREE);
    let write = "echo x > before; : > /dev/kmsg; echo after > after";
    let ran = agent.does("run", json!({"command": write}));
    assert_eq!((&ran["exit_status"], &ran["kept"]), (&json!(125), &json!(false)), "{ran}");
    assert!(ran["message"].as_str().unwrap().contains("/dev/kmsg"), "{ran}");
    agent.fails("read", json!({"path": "before"}), &["not there"]);
    let cache = lab.path("cache").display().to_string();
    let policy = format!("{FREE}[live]\neffects = true\nexclude = ['{cache}']\n");
    let mut agent = Agent::new(&lab, &policy);
    // No network, and nothing is stopped for it.
    let ran = agent.runs("grep -c : /proc/net/dev");
    assert_eq!(ran["stdout"]["text"], "1\n", "{ran}");
    let ran = agent.runs("echo x > cache/x; : > /dev/kmsg; echo after > after");
    let kinds: Vec<&str> =
        ran["live"].as_array().unwrap().iter().map(|l| l["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"device") && kinds.contains(&"excluded"), "{ran}");
    assert!(lab.path("cache/x").exists() && !lab.path("after").exists());
    assert!(agent.does("review", json!({}))["live"].as_array().unwrap().len() >= 2);
}

#[test]
fn limits_hold() {
    let lab = Lab::in_memory();
    let policy = format!("{FREE}on_failure = 'keep'\n[limits]\ncommands = 2\n");
    let mut agent = Agent::new(&lab, &policy);
    let ran = agent.does("run", json!({"command": "echo x > x; exit 3"}));
    assert_eq!((&ran["exit_status"], &ran["kept"]), (&json!(3), &json!(true)), "{ran}");
    let discarding = json!({"command": "echo x > y; exit 3", "on_failure": "discard"});
    assert_eq!(agent.does("run", discarding)["kept"], false);
    let _ = agent.runs("cat x; ! test -e y");
    agent.fails("run", json!({"command": "true"}), &["limits.commands", "commit"]);
    assert_eq!(agent.does("commit", json!({}))["outcome"], "committed");
    let _ = agent.runs("true");
    let policy = format!("{FREE}on_failure = 'keep'\n[limits]\nprivate_bytes = 1000000\n");
    let mut agent = Agent::new(&lab, &policy);
    let ran = agent.does("run", json!({"command": "head -c 5000000 /dev/urandom > large"}));
    assert_eq!((&ran["exit_status"], &ran["kept"]), (&json!(153), &json!(false)), "{ran}");
    assert!(
        ran["message"].as_str().unwrap().contains("1000000")
            || ran["message"].as_str().unwrap().contains("MB"),
        "{ran}"
    );
}

#[test]
fn what_is_wrong_with_a_policy_is_said_before_anything_is_served() {
    let lab = Lab::in_memory();
    let file = lab.dir().join("policy.toml");
    for (policy, named) in [
        ("comit = 'agent'", "comit"),
        ("[live]\nnetwrok = true", "netwrok"),
        ("[limits]\noutput_bytes = 1", "output_bytes"),
        ("workspace = 'nowhere'", "nowhere"),
        ("commit = ", "commit"),
    ] {
        std::fs::write(&file, policy).unwrap();
        let served = lab.txos(["mcp", "--policy"]).arg(&file).run().expect(125);
        let _ = served.says(named);
    }
    let _ =
        lab.txos(["mcp", "--policy", "/nowhere/policy"]).run().expect(125).says("/nowhere/policy");
    let _ = lab.txos(["mcp", "--workspace", "/nowhere/at"]).run().expect(125).says("/nowhere/at");
    // What is printed is a policy.
    std::fs::write(&file, "commit = 'agent'\n[live]\nexclude = ['/x/**']\n").unwrap();
    let print = |file: &std::path::Path| {
        let printed = lab.txos(["mcp", "--print-policy", "--policy"]).arg(file).run().expect(0);
        printed.text()
    };
    let first = print(&file);
    assert!(first.contains("commit = \"agent\"") && first.contains("/x/**"), "{first}");
    std::fs::write(&file, &first).unwrap();
    assert_eq!(print(&file), first);
}
