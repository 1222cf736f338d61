//! `txos agent`: tools that run shell commands themselves.

use serde_json::{Value, json};
use txos_testkit::{Invocation, Lab};

/// A command of a session.
fn shell(lab: &Lab, words: &[&str]) -> Invocation {
    lab.txos(["agent", "shell", "--scope"]).arg(lab.tree()).args(words)
}

#[test]
fn each_command_of_a_session_goes_on_with_its_transaction() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 0 > a");
    let first = shell(&lab, &["--session", "one", "-c", "echo 1 > a; echo out; echo err >&2"]);
    let first = first.run().expect(0);
    // Nothing but what the command prints.
    assert_eq!((first.text().as_str(), first.stderr.as_str()), ("out\n", "err\n"));
    // Arguments, status and input are the shell's. What a failing command did is there, as in a shell.
    let done = shell(&lab, &["--session", "one", "-c", "cat a - $1; echo b > b; exit 3", "x", "a"]);
    let done = done.input("in\n").run().expect(3);
    assert_eq!(done.text(), "1\nin\n1\n");
    let done = shell(&lab, &["--session", "one", "--commit-on=success", "-c", "rm b; exit 4"]);
    let _ = done.run().expect(4);
    assert_eq!(lab.read("a"), "0\n");
    // Another session sees nothing of it.
    let other = shell(&lab, &["-c", "cat a; ls"]).env("TXOS_SESSION", "two").run().expect(0);
    assert_eq!(other.text(), "0\na\n");
    let _ = lab.txos(["abort", "agent:two"]).run().expect(0);
    // Names lead to it.
    let diff = lab.txos(["diff", "--name-status", "agent:one"]).run().expect(0).text();
    assert_eq!(diff.lines().count(), 2, "{diff}");
    let _ = lab.txos(["commit", "agent:one"]).run().expect(0);
    assert_eq!((lab.read("a"), lab.read("b")), ("1\n".into(), "b\n".into()));
    // The next command begins anew.
    let _ = shell(&lab, &["--session", "one", "-c", "echo 2 > a"]).run().expect(0);
    assert_eq!(lab.read("a"), "1\n");
    let _ = lab.txos(["abort", "agent:one"]).run().expect(0);
    assert_eq!(lab.read("a"), "1\n");
    lab.expect_clean();
}

#[test]
fn without_a_name_the_working_directory_is_the_session() {
    let lab = Lab::in_memory();
    let _ = shell(&lab, &["-c", "echo x > x"]).without_env("TXOS_SESSION").run().expect(0);
    let name = format!("agent:{}", lab.tree().display());
    let _ = shell(&lab, &["-c", "cat x"]).run().expect(0);
    let _ = lab.txos(["commit", &name]).run().expect(0);
    assert_eq!(lab.read("x"), "x\n");
    // Inside a transaction it is part of that.
    let txos = txos_testkit::binary::txos().display();
    let _ = lab.script(&[], &format!("{txos} agent shell -c 'echo y > y'")).run().expect(0);
    assert_eq!(lab.read("y"), "y\n");
    lab.expect_clean();
}

#[test]
fn the_first_two_commands_of_a_session_make_one_transaction() {
    let lab = Lab::in_memory();
    let command = |n: u32| format!("echo {n} >> a; echo {n} > n{n}");
    for round in 0..5 {
        let session = format!("s{round}");
        let start = |n| {
            let script = command(n);
            shell(&lab, &["--session", &session, "-c", &script]).start()
        };
        let both = [start(1), start(2)].map(txos_testkit::Running::wait);
        let listed = lab.txos(["list", "--json"]).run().expect(0).json();
        let pending = listed["transactions"].as_array().unwrap();
        assert_eq!(pending.len(), 1, "{both:?}\n{listed}");
        // One that can't wait for the other says so, and is not half there.
        let ran = both.iter().filter(|done| done.code() == 0).count() as u64;
        assert!(ran >= 1, "{both:?}");
        let name = format!("agent:{session}");
        let report = lab.txos(["show", "--json", &name]).run().expect(0).json();
        assert_eq!(report["counts"]["added"], 1 + ran, "{both:?}\n{report}");
        let _ = lab.txos(["abort", &name]).run().expect(0);
    }
    lab.expect_clean();
}

/// What docs/agents.md says of edits that a tool makes itself.
#[test]
fn an_edit_beside_the_session_is_a_conflict() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 0 > a; echo 0 > b");
    let _ = shell(&lab, &["--session", "s", "-c", "echo 1 >> a"]).run().expect(0);
    let _ = lab.native("echo edited > a; echo edited > b");
    let seen = shell(&lab, &["--session", "s", "-c", "cat a b"]).run().expect(0);
    assert_eq!(seen.text(), "0\n1\nedited\n");
    let _ = lab.txos(["commit", "agent:s"]).run().expect(75);
    assert_eq!(lab.read("a"), "edited\n");
    let _ = lab.txos(["abort", "agent:s"]).run().expect(0);
}

/// What a hook answers.
fn asked(lab: &Lab, tool: &str, question: &[u8]) -> (i32, String, String) {
    let hook = lab.txos(["agent", "hook", tool, "--scope"]).arg(lab.tree()).input(question).run();
    (hook.code(), hook.text(), hook.stderr)
}

/// Tools run a command past the transaction after any other status.
#[test]
fn a_hook_that_is_called_wrongly_blocks() {
    let lab = Lab::in_memory();
    for words in [&["claud-code"][..], &["claude-code", "--no-such"], &[]] {
        let done = lab.txos(["agent", "hook"]).args(words).input(b"{}").run().expect(2);
        assert!(done.stderr.contains("error"), "{done:?}");
    }
}

#[test]
fn a_command_that_a_hook_has_rewritten_runs_in_the_transaction() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 0 > a");
    for (tool, event, name, place) in [
        ("claude-code", "PreToolUse", "Bash", "updatedInput"),
        ("codex", "PreToolUse", "Bash", "updatedInput"),
        ("gemini-cli", "BeforeTool", "run_shell_command", "tool_input"),
    ] {
        let question = json!({"session_id": format!("it's {tool}"), "hook_event_name": event,
            "tool_name": name, "cwd": lab.tree(), "transcript_path": "/x",
            "tool_input": {"command": "echo \"it's $((1 + 1))\" > a\ncat a", "description": "d"}});
        let (status, text, _) = asked(&lab, tool, question.to_string().as_bytes());
        assert_eq!(status, 0, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let input = &answer["hookSpecificOutput"][place];
        assert_eq!((&input["description"], input["command"].is_string()), (&json!("d"), true));
        // As the tool runs it.
        let done = Invocation::new("bash")
            .args(["-c", input["command"].as_str().unwrap()])
            .env("TXOS_STORE", lab.store())
            .env("TXOS_REALM", lab.realm())
            .dir(lab.tree())
            .run()
            .expect(0);
        assert_eq!(done.text(), "it's 2\n");
        assert_eq!(lab.read("a"), "0\n");
        let _ = lab.txos(["abort", &format!("agent:it's {tool}")]).run().expect(0);
        // Another tool's call is none of ours.
        let other = json!({"session_id": "s", "hook_event_name": event, "tool_name": "Other",
            "tool_input": {}});
        let (status, text, _) = asked(&lab, tool, other.to_string().as_bytes());
        assert_eq!((status, text.as_str()), (0, ""));
    }
    lab.expect_clean();
}

#[test]
fn a_question_that_is_not_understood_blocks_the_command() {
    let lab = Lab::in_memory();
    for question in [&b""[..], b"{", b"[]", b"\xff", b"{\"hook_event_name\": \"PreToolUse\"}"] {
        for tool in ["claude-code", "codex"] {
            let (status, text, error) = asked(&lab, tool, question);
            assert_eq!((status, text.as_str()), (2, ""), "{error}");
            assert!(error.contains("the command is not run"), "{error}");
        }
    }
}
