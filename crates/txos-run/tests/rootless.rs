//! The same as an ordinary user, made for the test and removed again.

#![allow(clippy::unwrap_used)]

mod common;

use common::Sandbox;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

struct User {
    name: String,
    uid: u32,
    gid: u32,
}

impl User {
    fn make() -> Option<User> {
        let name = format!("txrun{}", std::process::id() % 100_000);
        let made = Command::new("useradd").args(["-M", "-d", "/nonexistent", &name]).status();
        if !made.is_ok_and(|s| s.success()) {
            return None;
        }
        let id = |flag: &str| {
            let out = Command::new("id").args([flag, &name]).output().unwrap();
            String::from_utf8(out.stdout).unwrap().trim().parse().unwrap()
        };
        Some(User { uid: id("-u"), gid: id("-g"), name: name.clone() })
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = Command::new("userdel").arg(&self.name).status();
    }
}

#[test]
fn an_ordinary_user() {
    needs_root!();
    let user = txos_skip::require_some!(User::make(), "can't make a user here");
    let s = Sandbox::new();
    for dir in [s.dir.clone(), s.path("")] {
        std::os::unix::fs::chown(&dir, Some(user.uid), Some(user.gid)).unwrap();
    }
    // The binary may lie where the user can't go.
    let program = s.dir.join("session");
    // By another process: what this one has open for writing, another thread's child has as well.
    let mut cp = std::process::Command::new("cp");
    let copied = cp.arg(env!("CARGO_BIN_EXE_txos-run-session")).arg(&program).status().unwrap();
    assert!(copied.success());
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(s.path("f"), "old\n").unwrap();
    std::os::unix::fs::chown(s.path("f"), Some(user.uid), Some(user.gid)).unwrap();
    let run = |options: &[&str], script: &str| {
        let output = Command::new(&program)
            .arg(s.store())
            .arg(s.dir.join("report"))
            .args(options)
            .args(["--", "sh", "-c", script])
            .current_dir(s.path(""))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .uid(user.uid)
            .gid(user.gid)
            .output()
            .unwrap();
        s.finish(output)
    };
    let script = "id -u; echo more >> f; cat f; echo x > new; mkdir d; rm f; ls; \
                  touch /etc/txos-run-test 2>/dev/null; test ! -e /etc/txos-run-test";
    let ran = run(&[], script);
    txos_skip::require!(
        !ran.stderr().contains("user namespace"),
        "no user namespaces here: {}",
        ran.stderr()
    );
    let ran = ran.expect(0);
    assert_eq!(ran.stdout(), format!("{}\nold\nmore\nd\nnew\n", user.uid));
    assert_eq!(ran.facets(&s.path("f")) & 32, 32);
    ran.absent(&s.path("new"));
    assert_eq!(fs::read_to_string(s.path("f")).unwrap(), "old\n");
    let scope = s.path("").to_str().unwrap().to_owned();
    let ran = run(&["--scope", &scope, "--twice"], "echo again >> f; cat f").expect(0);
    assert_eq!(ran.stdout(), "old\nagain\nold\nagain\nagain\n");
}
