//! What clients and commands do that they should not.

use serde_json::{Value, json};
use txos_testkit::Lab;

use crate::client::{Agent, FREE};

#[test]
fn what_is_no_request_is_refused() {
    let lab = Lab::in_memory();
    let mut agent = Agent::new(&lab, FREE);
    // Not JSON: there is no number to answer to.
    for line in [&b"{"[..], b"nonsense", b"\xff\xfe", b"{\"id\": \xc3\x28}", b"\0"] {
        // An empty line is none.
        agent.line(b"");
        agent.line(line);
        let answer = agent.next().unwrap();
        assert_eq!(answer["error"]["code"], -32700, "{line:?}: {answer}");
        assert!(answer.as_object().unwrap().get("id").is_some_and(Value::is_null), "{answer}");
    }
    // JSON that is no request.
    for line in ["[]", "3", "{}", "{\"jsonrpc\": \"2.0\", \"id\": 7}", "{\"id\": 1, \"method\": 5}"]
    {
        agent.line(line.as_bytes());
        let answer = agent.next().unwrap();
        assert!(answer["error"]["code"].is_i64(), "{line}: {answer}");
    }
    agent.fails("nonsense", json!({}), &["not found"]);
    agent.fails("run", json!({"comand": "true"}), &["comand", "command"]);
    agent.fails("run", json!({"command": 5}), &["string"]);
    agent.fails("run", json!({"command": "true", "on_failure": "maybe"}), &["maybe", "keep"]);
    agent.fails("run", json!({"command": "a\0b"}), &["NUL", "nothing was run"]);
    agent.fails("run", json!({"command": "true", "directory": "a\0b"}), &["NUL"]);
    agent.fails("diff", json!({}), &["no transaction is open", "run"]);
    agent.fails("begin", json!({"resume": "no-such-one"}), &["no-such-one", "status"]);
    agent.fails("revert", json!({"id": "--help"}), &["--help"]);
    agent.fails("revert", json!({"id": "no-such-one"}), &["no-such-one"]);
    // And it still does what it should.
    let _ = agent.runs("echo x > x");
    agent.fails("begin", json!({}), &["open already", "abort"]);
    agent.fails("read", json!({"path": "nowhere"}), &["nowhere"]);
    agent.fails("read", json!({"path": "."}), &["directory"]);
    agent.fails(
        "read",
        json!({"path": "no\\c\\101such"}),
        &["no\\\\c\\\\101such\": it is not there"],
    );
    let _ = agent.runs("mkfifo fifo");
    agent.fails("read", json!({"path": "fifo"}), &["fifo: it is a FIFO"]);
    assert_eq!(agent.does("read", json!({"path": "x"}))["content"]["text"], "x\n");
    assert_eq!(agent.does("abort", json!({}))["outcome"], "aborted");
    assert_eq!(agent.hang_up(), Some(0));
    lab.expect_clean();
}

#[test]
fn a_line_that_is_too_long_is_refused_and_not_held() {
    let lab = Lab::in_memory();
    let mut agent = Agent::new(&lab, FREE);
    let before = agent.peak_kilobytes();
    let long = "x\\\"id\\\": 5, {".repeat(8 * 1024 * 1024);
    for (line, id) in [
        (format!("{{\"method\": \"tools/call\", \"params\": \"{long}\", \"id\": 77}}"), json!(77)),
        (
            format!("{{\"id\": \"seven\", \"method\": \"tools/call\", \"params\": \"{long}\"}}"),
            json!("seven"),
        ),
        (long, json!(null)),
    ] {
        assert!(line.len() > 90_000_000);
        agent.line(line.as_bytes());
        let answer = agent.next().unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(-32600)), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("16777216"), "{answer}");
    }
    let more = agent.peak_kilobytes() - before;
    assert!(more < 60_000, "{more} kB more than before");
    // One that is as long as that, or nearly, is understood.
    let nearly = "y".repeat(16 * 1024 * 1024 - 300);
    let ran = agent.does("run", json!({"command": "wc -c", "stdin": nearly}));
    assert_eq!(ran["stdout"]["text"], format!("{}\n", nearly.len()));
    let _ = agent.does("abort", json!({}));
    assert_eq!(agent.hang_up(), Some(0));
    lab.expect_clean();
}

/// A path that an answer names can be handed back in, whatever bytes it has.
#[test]
fn names_that_are_no_text_can_be_handed_back_in() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir \"$(printf 'w\\377')\"");
    let policy = format!("{FREE}workspace = '\"{}/w\\377\"'\n", lab.tree().display());
    let mut agent = Agent::new(&lab, &policy);
    let make =
        "for name in 'a\\377' 'b\\nc' '\"q\"' plain; do printf x > \"$(printf \"$name\")\"; done
        mkdir \"$(printf 'd\\376')\"; printf y > \"$(printf 'd\\376')/in\"";
    let ran = agent.runs(make);
    let shown = agent.does("show", json!({}));
    let paths: Vec<Value> =
        shown["changes"].as_array().unwrap().iter().map(|change| change["path"].clone()).collect();
    assert_eq!(paths.len(), 6, "{shown}");
    for path in &paths {
        assert!(path.as_str().unwrap().starts_with('"'), "the workspace itself needs it: {path}");
        let again = agent.does("show", json!({"paths": [path]}));
        assert_eq!(again["changes"][0]["path"], *path, "{again}");
        let diff = agent.does("diff", json!({"paths": [path], "format": "names"}));
        assert!(diff["diff"]["text"].as_str().unwrap().contains(path.as_str().unwrap()), "{diff}");
        match shown["changes"].as_array().unwrap().iter().find(|c| c["path"] == *path) {
            Some(change) if change["kind"] == "dir" => {
                agent.fails("read", json!({"path": path}), &[path.as_str().unwrap(), "directory"]);
                let ran = agent.does("run", json!({"command": "cat in", "directory": path}));
                assert_eq!(ran["stdout"]["text"], "y", "{ran}");
            }
            _ => {
                let content = agent.does("read", json!({"path": path}));
                assert_eq!((&content["path"], &content["end"]), (path, &json!(true)), "{content}");
                assert_eq!(content["content"]["bytes"], 1, "{content}");
            }
        }
    }
    // Relative to the workspace, and as it is if it is text.
    for path in ["\"a\\377\"", "\"\\\"q\\\"\"", "b\nc", "plain"] {
        assert_eq!(agent.does("read", json!({"path": path}))["content"]["text"], "x", "{path}");
    }
    agent.fails("read", json!({"path": "\"no\\377\""}), &["no\\377", "not there"]);
    agent.fails("read", json!({"path": "\"a\\q\""}), &["quoted as git does it"]);
    agent.fails("read", json!({"path": "a\0b"}), &["NUL"]);
    // The workspace is the one that the transaction was begun in.
    let workspace = format!("\"{}/w\\377\"", lab.tree().display());
    let status = agent.does("status", json!({}));
    assert_eq!(
        (&status["workspace"], &status["policy"]["workspace"]),
        (&json!(workspace), &json!(workspace))
    );
    assert_eq!(status["pending"], json!([ran["id"]]), "{status}");
    let id = agent.does("commit", json!({}))["id"].clone();
    assert_eq!(agent.does("revert", json!({"id": id}))["outcome"], "reverted");
    assert_eq!(lab.native("ls -A w*").text(), "");
    // What is printed of a policy is one.
    let print = |text: &str| {
        let file = lab.dir().join("printed.toml");
        std::fs::write(&file, text).unwrap();
        lab.txos(["mcp", "--print-policy", "--policy"]).arg(&file).run().expect(0).text()
    };
    let printed = print(&policy);
    assert_eq!(print(&printed), printed);
    assert_eq!(agent.hang_up(), Some(0));
    lab.expect_clean();
}

#[test]
fn whatever_a_command_prints_is_bounded_and_text() {
    let lab = Lab::in_memory();
    let policy = format!("{FREE}[limits]\noutput_bytes = 2000\n");
    let mut agent = Agent::new(&lab, &policy);
    let ran = agent.runs("seq 100000; echo end >&2");
    let (out, total) = (&ran["stdout"], 588_895);
    assert_eq!((&out["bytes"], &out["lossy"]), (&json!(total), &json!(false)), "{ran}");
    let text = out["text"].as_str().unwrap();
    assert!(text.starts_with("1\n2\n") && text.ends_with("99999\n100000\n"), "{text}");
    assert!(text.len() < 2100, "{}", text.len());
    assert!(out["left_out"].as_u64().unwrap() >= total - 2000);
    assert_eq!(ran["stderr"]["text"], "end\n");
    let ran = agent.runs("printf '\\377\\000\\351a'");
    assert_eq!((&ran["stdout"]["lossy"], &ran["stdout"]["bytes"]), (&json!(true), &json!(4)));
    assert_eq!(ran["stdout"]["text"], "\u{fffd}\0\u{fffd}a");
    // A file is read in parts.
    let _ = agent.runs("seq 1000 > numbers");
    let (mut all, mut offset) = (String::new(), 0);
    loop {
        let part = agent.does("read", json!({"path": "numbers", "offset": offset, "limit": 1500}));
        let text = part["content"]["text"].as_str().unwrap();
        all.push_str(text);
        offset += text.len();
        if part["end"] == true {
            break;
        }
    }
    assert_eq!(all, (1..=1000).map(|n| format!("{n}\n")).collect::<String>());
    // No character is lost between two parts.
    let _ = agent.runs("printf 'a\\303\\274\\303\\274\\303\\274' > umlauts");
    let (mut all, mut offset) = (String::new(), 0);
    loop {
        let part = agent.does("read", json!({"path": "umlauts", "offset": offset, "limit": 4}));
        let content = &part["content"];
        assert_eq!(content["lossy"], json!(false), "{part}");
        all.push_str(content["text"].as_str().unwrap());
        offset += content["bytes"].as_u64().unwrap();
        if part["end"] == true {
            break;
        }
    }
    assert_eq!(all, "aüüü");
    assert!(agent.does("diff", json!({}))["diff"]["left_out"].as_u64().unwrap() > 0);
}

#[test]
fn a_command_that_reads_input_or_stays_behind_does_not_hang() {
    let lab = Lab::in_memory();
    let mut agent = Agent::new(&lab, FREE);
    assert_eq!(agent.runs("cat; echo done")["stdout"]["text"], "done\n");
    let ran = agent.does("run", json!({"command": "cat", "stdin": "a\nb"}));
    assert_eq!(ran["stdout"]["text"], "a\nb");
    // More than a pipe holds, for one that reads nothing of it.
    let ran = agent.does("run", json!({"command": "true", "stdin": "x".repeat(200_000)}));
    assert_eq!(ran["exit_status"], 0);
    let ran = agent.runs("(setsid sleep 7654 &) ; echo started");
    assert_eq!(ran["stdout"]["text"], "started\n");
    assert!(ran["seconds"].as_f64().unwrap() < 30.0);
    assert!(!crate::endings::runs("7654"));
    // A directory that is there in the transaction only.
    let _ = agent.runs("mkdir -p made/deep");
    let ran = agent.does("run", json!({"command": "pwd; echo $#", "directory": "made/deep"}));
    assert_eq!(ran["stdout"]["text"], format!("{}\n0\n", lab.path("made/deep").display()));
    let ran = agent.does("run", json!({"command": "true", "directory": "nowhere"}));
    assert_eq!((&ran["exit_status"], &ran["kept"]), (&json!(125), &json!(false)), "{ran}");
    assert!(ran["message"].as_str().unwrap().contains("nowhere"), "{ran}");
}
