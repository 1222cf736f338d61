//! The same script of calls, with this client and with the official Python client.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use txos_testkit::{Lab, Tree, binary, require, skip};

use crate::client::{Agent, FREE};

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/agents").join(name)
}

/// What an agent does with a small program of 2,000 files: 30 commands and looks between them.
fn steps() -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(here("loop.json")).unwrap()).unwrap()
}

/// The tree before it.
fn prepare(lab: &Lab) {
    let _ = lab.native(
        "mkdir -p src doc
         i=0
         while [ $i -lt 2000 ]; do
             d=src/m$((i % 20)); [ -d $d ] || mkdir $d
             echo \"int old_name_$i(void) { return $i; }\" > $d/f$i.c
             i=$((i + 1))
         done
         echo 'all modules' > doc/README; echo secret > keep.me
         find . -exec touch -d @1000000000 {} +",
    );
}

/// What the commands that count do, natively.
fn natively(lab: &Lab, steps: &[Value]) {
    for step in steps.iter().filter(|step| step["native"] != false && step["tool"] == "run") {
        let command = step["arguments"]["command"].as_str().unwrap();
        let directory = step["arguments"]["directory"].as_str().unwrap_or(".");
        let _ = lab.native(&format!("cd {directory}; {{ {command}\n}} > /dev/null || true"));
    }
}

/// Whether everything that is expected is in what is there.
fn contains(there: &Value, expected: &Value) -> bool {
    match (there, expected) {
        (Value::Object(there), Value::Object(expected)) => expected
            .iter()
            .all(|(key, value)| there.get(key).is_some_and(|there| contains(there, value))),
        (Value::String(there), Value::String(expected)) if expected.starts_with('~') => {
            there.contains(&expected[1..])
        }
        _ => there == expected,
    }
}

fn compare(lab: &Lab, steps: &[Value]) {
    let native = lab.nested("native");
    prepare(&native);
    natively(&native, steps);
    let tolerance =
        txos_testkit::tree::Tolerance { now_from: Some(1_000_000_001), times: false, links: false };
    let (should, is) = (Tree::of(native.tree()), Tree::of(lab.tree()));
    should.expect(&is, tolerance, "what the agent committed is not what its commands do");
    lab.expect_clean();
}

#[test]
fn a_loop_of_thirty_commands() {
    let lab = Lab::in_memory();
    prepare(&lab);
    let mut agent = Agent::new(&lab, FREE);
    let steps = steps();
    assert!(steps.iter().filter(|step| step["tool"] == "run").count() >= 30);
    for step in &steps {
        let tool = step["tool"].as_str().unwrap();
        let answer = agent.call(tool, step["arguments"].clone());
        match (&answer, &step["error"]) {
            (Ok(answer), Value::Null) => {
                assert!(contains(answer, &step["expect"]), "{step}\nanswered {answer}");
            }
            (Err(text), Value::String(words)) => assert!(text.contains(words), "{step}: {text}"),
            _ => panic!("{step}\nanswered {answer:?}"),
        }
    }
    assert_eq!(agent.hang_up(), Some(0));
    compare(&lab, &steps);
}

/// The official Python client, from its registry, in an environment of its own.
#[test]
fn the_same_with_the_official_python_client() {
    require!(skip::long("agents"), "installs a client from the network (--long agents)");
    let lab = Lab::in_memory();
    prepare(&lab);
    let environment = lab.dir().join("environment");
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{command:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    let python = environment.join("bin/python");
    run(Command::new(&python).args(["-m", "pip", "install", "-q", "mcp"]));
    let policy = lab.dir().join("policy.toml");
    std::fs::write(&policy, FREE).unwrap();
    let _ = binary::server();
    let done = run(Command::new(&python)
        .arg(here("official.py"))
        .args([binary::txos(), &policy, &here("loop.json")])
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .current_dir(lab.tree()));
    let steps = steps();
    assert!(done.contains(&format!("{} calls", steps.len())), "{done}");
    compare(&lab, &steps);
}

/// What every client sees first: names, descriptions and schemas.
#[test]
fn the_tools_have_precise_schemas() {
    let lab = Lab::in_memory();
    let mut agent = Agent::start(&lab, FREE);
    let hello = agent.hello();
    assert_eq!(hello["serverInfo"]["name"], "txos");
    assert!(hello["instructions"].as_str().unwrap().contains("commit"));
    let listed = agent.request("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for name in [
        "begin", "run", "undo", "redo", "status", "diff", "show", "read", "review", "commit",
        "revert", "abort",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    for tool in tools {
        let (takes, answers) = (&tool["inputSchema"], &tool["outputSchema"]);
        assert_eq!((&takes["type"], &answers["type"]), (&json!("object"), &json!("object")));
        assert_eq!(takes["additionalProperties"], false, "{tool}");
        for schema in [takes, answers] {
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                let says = |v: &Value| v["description"].is_string() || v["$ref"].is_string();
                let described = says(field)
                    || field["anyOf"].as_array().is_some_and(|any| any.iter().any(says));
                assert!(described, "{}.{name}: {field}", tool["name"]);
            }
        }
        assert!(tool["description"].as_str().unwrap().len() > 20);
        for schema in [takes, answers] {
            assert!(!has_format(schema), "a validator may not know it: {schema}");
        }
        assert!(tool["annotations"]["readOnlyHint"].is_boolean(), "{tool}");
    }
}

/// Whether a schema, or a part of it, has a format. (A property of that name is no text.)
fn has_format(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            fields.get("format").is_some_and(Value::is_string) || fields.values().any(has_format)
        }
        Value::Array(parts) => parts.iter().any(has_format),
        _ => false,
    }
}

/// The history has what the agent ran, and not what began the transaction.
#[test]
fn the_history_shows_what_ran() {
    let lab = Lab::in_memory();
    let mut agent = Agent::new(&lab, FREE);
    let list = || lab.txos(["list"]).run().expect(0).text();
    let _ = agent.runs("echo 1 > one");
    assert!(list().trim_end().ends_with("/bin/sh -c 'echo 1 > one'"), "{}", list());
    let _ = agent.runs("echo 2 > two");
    let _ = agent.runs("echo 3 > three");
    let _ = agent.does("undo", json!({}));
    assert!(list().trim_end().ends_with("/bin/sh -c 'echo 1 > one' (and 1 more)"), "{}", list());
    let page = lab.dir().join("page.html");
    let _ = lab.txos(["review", "@", "--html"]).arg(&page).run().expect(0);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("echo 2 &gt; two") && !page.contains(">true<"), "{page}");
    let _ = agent.does("commit", json!({}));
    let log = lab.txos(["log"]).run().expect(0).text();
    let commands =
        "Command:  /bin/sh -c 'echo 1 > one'\n          /bin/sh -c 'echo 2 > two'\nChanges:";
    assert!(log.contains(commands), "{log}");
    let line = lab.txos(["log", "--oneline"]).run().expect(0).text();
    assert!(line.trim_end().ends_with("/bin/sh -c 'echo 1 > one' (and 1 more)"), "{line}");
    // Nor have what undoes it, and a part of one.
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    let _ = agent.runs("echo 4 > four; echo 5 > five");
    let _ = lab.txos(["commit", "@"]).arg(lab.path("four")).run().expect(0);
    let lines = lab.txos(["log", "--oneline"]).run().expect(0).text();
    assert!(lines.lines().count() == 3 && !lines.contains("true"), "{lines}");
    let _ = agent.does("abort", json!({}));
    lab.expect_clean();
}
