//! The built command from outside: what needs no transaction to be tried.

#![allow(clippy::unwrap_used, missing_docs)] // a test that panics has failed, as it should
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory for one test, removed at its end.
struct Dir(PathBuf);

impl Dir {
    fn new(tag: &str) -> Self {
        let path = std::env::temp_dir().join(format!("txos-cli-{tag}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn store(&self) -> PathBuf {
        self.0.join("store")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn command(store: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_txos"));
    command
        .args(words)
        .env("TXOS_STORE", store)
        .env("TXOS_REALM", store.with_extension("realm"))
        .env_remove("TXOS_LOG")
        .stdin(Stdio::null());
    command
}

fn txos(store: &Path, words: &[&str]) -> Output {
    command(store, words).output().unwrap()
}

fn status(store: &Path, words: &[&str]) -> i32 {
    txos(store, words).status.code().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn wrong_usage_is_our_failure_and_help_is_none() {
    let dir = Dir::new("usage");
    for words in [
        &["nonsense"][..],
        &[],
        &["run"],
        &["run", "--retry", "x", "true"],
        &["diff"],
        &["policy", "set", "fair"],
    ] {
        assert_eq!(status(&dir.store(), words), 125, "{words:?}");
    }
    for words in [&["--help"][..], &["-h"], &["--version"], &["help", "run"], &["run", "--help"]] {
        let output = txos(&dir.store(), words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn looking_makes_no_store() {
    let dir = Dir::new("look");
    std::fs::write(dir.0.join("file"), "").unwrap();
    for store in [dir.store(), dir.0.clone()] {
        for words in [&["list"][..], &["log"], &["recover"], &["gc"], &["doctor", "-q"]] {
            assert!(matches!(status(&store, words), 0 | 1), "{words:?}");
        }
        for words in [&["status"][..], &["top", "--once"], &["policy"], &["doctor", "--rebuild"]] {
            assert_eq!(status(&store, words), 0, "{words:?}");
        }
        assert_eq!(status(&store, &["show", "@"]), 125);
    }
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 1);
}

#[test]
fn lists_are_documents_with_a_schema() {
    let dir = Dir::new("json");
    for words in [
        &["list", "--json"][..],
        &["log", "--json"],
        &["status", "--json"],
        &["top", "--once", "--json"],
        &["policy", "--json"],
        &["recover", "--json"],
        &["doctor", "--json"],
    ] {
        let output = txos(&dir.store(), words);
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["schema"], 1, "{words:?}");
    }
}

#[test]
fn unknown_and_ambiguous_ids_are_named() {
    let dir = Dir::new("ids");
    let store = dir.store();
    // A store whose transactions have directories, and records that can't be read.
    std::fs::create_dir_all(store.join("trash")).unwrap();
    for id in ["aaaa0001", "aaaa0002"] {
        std::fs::create_dir_all(store.join("tx").join(id)).unwrap();
        std::fs::write(store.join("tx").join(id).join("meta.json"), "{}").unwrap();
    }
    std::fs::write(store.join("format"), "txos-store 1\n").unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o700)).unwrap();
    for (id, said) in [("zzz", "no transaction"), ("aaaa", "ambiguous"), ("aaaa0001", "aaaa0001")] {
        let output = txos(&store, &["show", id]);
        assert_eq!(output.status.code(), Some(125));
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
    let listed = txos(&store, &["list", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(document["unreadable"].as_array().map(Vec::len), Some(2));
    assert_eq!(status(&store, &["gc", "--force", "aaaa0001", "--force", "aaaa0002"]), 0);
    assert_eq!(std::fs::read_dir(store.join("tx")).unwrap().count(), 0);
}

#[test]
fn a_foreign_or_newer_store_is_refused_and_left_alone() {
    let dir = Dir::new("foreign");
    for format in ["txos-store 99\n", "something else\n"] {
        std::fs::write(dir.0.join("format"), format).unwrap();
        assert_eq!(status(&dir.0, &["list"]), 125);
        assert_eq!(status(&dir.0, &["run", "true"]), 125);
        assert_eq!(std::fs::read_to_string(dir.0.join("format")).unwrap(), format);
        assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 1);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_reason_for_words() {
    let dir = Dir::new("pipe");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command(&dir.store(), &["completions", "bash"]).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn review_needs_a_terminal() {
    let dir = Dir::new("review");
    let output = txos(&dir.store(), &["run", "--review", "touch", "/nonexistent/x"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("terminal"));
    assert!(!dir.store().exists(), "it is an error before anything is done");
}

#[test]
fn manual_pages_and_completions_are_made() {
    let dir = Dir::new("man");
    assert_eq!(status(&dir.store(), &["man", dir.0.to_str().unwrap()]), 0);
    for name in ["txos.1", "txos-run.1", "txos-top.1", "txos-policy-set.1"] {
        assert!(dir.0.join(name).exists(), "{name}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(text(&txos(&dir.store(), &["completions", shell]).stdout).contains("txos"));
    }
}
