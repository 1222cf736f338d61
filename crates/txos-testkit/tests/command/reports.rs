//! What a program that starts txos is told: one JSON document, whatever the end.

use serde_json::Value;
use txos_testkit::binary::txos;
use txos_testkit::{Invocation, Lab};

/// Runs something with a report, and gives the exit status and what was reported.
fn reported(lab: &Lab, args: &[&str]) -> (i32, Value) {
    let file = lab.dir().join("report.json");
    let name = file.display().to_string();
    let (verb, rest) = args.split_first().unwrap();
    let scope = lab.tree().display().to_string();
    let scope = if *verb == "run" { vec!["--scope", &scope] } else { Vec::new() };
    let done = lab.txos([*verb, "--report", &name].iter().chain(&scope).chain(rest)).run();
    let text = std::fs::read(&file).unwrap_or_else(|e| panic!("{e}: {done:?}"));
    let report: Value = serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{e}: {done:?}"));
    assert_eq!(report["exit_status"], done.code(), "{report}");
    assert_eq!((&report["schema"], &report["command"]), (&1.into(), &(*verb).into()));
    (done.code(), report)
}

#[test]
fn every_ending_is_reported() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo a > a; echo b > b");
    let (status, report) =
        reported(&lab, &["run", "--name", "web", "--", "sh", "-c", "echo new >> a; echo c > c"]);
    assert_eq!((status, &report["outcome"]), (0, &"committed".into()), "{report}");
    assert_eq!((&report["counts"]["added"], &report["counts"]["modified"]), (&1.into(), &1.into()));
    assert_eq!(report["transaction"]["name"], "web");
    assert_eq!(report["transaction"]["id"], report["id"]);
    assert_eq!(report["attempts"], 1);
    let (status, report) = reported(&lab, &["run", "--", "sh", "-c", "echo more >> a; exit 3"]);
    assert_eq!((status, &report["outcome"]), (3, &"rolled-back".into()), "{report}");
    assert!(report["id"].is_string() && report["transaction"].is_null(), "{report}");
    let (status, report) = reported(&lab, &["run", "--", "true"]);
    assert_eq!((status, &report["outcome"]), (0, &"unchanged".into()), "{report}");
    let (status, report) = reported(&lab, &["run", "--dry-run", "--", "rm", "c"]);
    assert_eq!((status, &report["outcome"]), (0, &"dry-run".into()), "{report}");
    assert_eq!(report["counts"]["deleted"], 1);
    let (status, report) = reported(&lab, &["run", "--", "/nowhere/at-all"]);
    assert_eq!((status, &report["outcome"]), (127, &"rolled-back".into()), "{report}");
    // Pending, then in the way of others.
    let (status, report) = reported(&lab, &["run", "--keep", "--", "sh", "-c", "echo mine > b"]);
    assert_eq!((status, &report["outcome"]), (0, &"kept".into()), "{report}");
    let id = report["id"].as_str().unwrap().to_owned();
    let (status, report) = reported(&lab, &["exec", &id, "--", "sh", "-c", "exit 4"]);
    assert_eq!((status, &report["outcome"]), (4, &"rolled-back".into()), "{report}");
    let (status, report) = reported(&lab, &["exec", &id, "--", "sh", "-c", "echo x > x"]);
    assert_eq!((status, &report["outcome"]), (0, &"kept".into()), "{report}");
    assert_eq!(report["transaction"]["state"], "pending");
    let _ = lab.native("echo theirs > b");
    let (status, report) = reported(&lab, &["commit", &id]);
    assert_eq!((status, &report["outcome"]), (75, &"conflict".into()), "{report}");
    let conflict = &report["conflicts"][0];
    // What it has read stays as it was read.
    assert_eq!((&report["retryable"], &conflict["retryable"]), (&false.into(), &false.into()));
    assert!(conflict["by"].is_null());
    assert_eq!(conflict["path"], lab.path("b").display().to_string());
    assert!(conflict["aspect"].is_string() && conflict["when"]["sec"].is_u64(), "{report}");
    let (status, report) = reported(&lab, &["commit", "nothing-of-that-name"]);
    assert_eq!((status, &report["outcome"]), (125, &"failed".into()), "{report}");
    assert!(report["message"].as_str().unwrap().contains("nothing-of-that-name"), "{report}");
    let (status, report) = reported(&lab, &["revert", "web"]);
    assert_eq!((status, &report["outcome"]), (0, &"reverted".into()), "{report}");
    assert_eq!(report["transaction"]["state"], "committed");
}

#[test]
fn a_report_goes_to_a_descriptor_or_nothing_is_run() {
    let lab = Lab::in_memory();
    // The command does not get the descriptor.
    let script = "\"$TXOS\" run --report FD:3 --scope . -- sh -c 'echo out; echo x > x; ls -l /proc/self/fd' 3> ../fd";
    let done = Invocation::shell(script)
        .env("TXOS", txos())
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .dir(lab.tree())
        .run()
        .expect(0);
    let shown = done.text();
    let given = lab.dir().join("fd").display().to_string();
    assert!(shown.starts_with("out\n") && !shown.contains(&given), "{done:?}");
    let report = std::fs::read(lab.dir().join("fd")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    assert_eq!((&report["outcome"], lab.read("x")), (&"committed".into(), "x\n".into()));
    for target in ["FD:77", "/nowhere/report.json", "FD:x"] {
        let done =
            lab.txos(["run", "--scope", ".", "--report", target, "--", "touch", "made"]).run();
        assert_eq!(done.code(), 125, "{done:?}");
        assert!(done.stderr.contains(target) || done.stderr.contains("descriptor"), "{done:?}");
        assert!(!lab.path("made").exists(), "{done:?}");
    }
}

/// Of a conflict with another transaction it is reported which, and that the same command can be tried again.
#[test]
fn the_opponent_is_reported() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo a > a");
    let go = lab.dir().join("go");
    // What lies beside the tree is live: it says when the file has been touched.
    let touched = lab.dir().join("touched");
    let script = format!(
        "echo x >> a; touch b; : > {}; until [ -e {} ]; do sleep .01; done",
        touched.display(),
        go.display()
    );
    let running = lab.script(&[], &script).start();
    let id = || {
        let list = lab.txos(["list", "--json"]).run().expect(0).json();
        let first = &list["transactions"][0];
        (first["state"] == "active").then(|| first["id"].as_str().unwrap_or_default().to_owned())
    };
    txos_testkit::wait::until("it runs", || id().is_some_and(|id| !id.is_empty()));
    let opponent = id().unwrap();
    txos_testkit::wait::until("it has touched the file", || touched.exists());
    let (status, report) = reported(
        &lab,
        &["run", "--wait", "0", "--retry", "0", "--", "sh", "-c", "echo y >> a; touch b"],
    );
    std::fs::write(&go, "").unwrap();
    let _ = running.wait();
    assert_eq!((status, &report["retryable"]), (75, &true.into()), "{report}");
    let by = &report["conflicts"][0]["by"];
    assert_eq!((&by["id"], by["pid"].is_u64()), (&opponent.as_str().into(), true), "{report}");
    assert!(by["command"].as_str().unwrap_or_default().starts_with("sh -c"), "{report}");
}
