//! Programs see no difference.

#![allow(clippy::unwrap_used)]

mod common;

use common::Sandbox;
use std::fs;
use std::process::{Command, Stdio};

/// Commands see all mounts of the machine: none is to go while another test's command looks at it.
static MOUNTS: std::sync::RwLock<()> = std::sync::RwLock::new(());

#[test]
fn the_surroundings_are_those_of_the_caller() {
    needs_root!();
    let _still = MOUNTS.read();
    let s = Sandbox::new();
    // SHLVL and `_` are the shell's own doing; TXOS_ID names the transaction.
    let script = "pwd; umask; id; ulimit -n; env | grep -v '^_=\\|^SHLVL=\\|^TXOS_ID='; trap; \
                  ls -ld / /etc /tmp /var | awk '{print $1, $3, $4, $9}'; \
                  sed -n -E 's/^(SigBlk|SigCgt|Cap.*|NoNew.*):/&/p; s/^SigIgn:.*(........)$/\\1/p' /proc/self/status; ps -o pgid= -p $$ >/dev/null; tty";
    let dir = s.path("");
    // Started by a shell, so that neither has what the C library's posix_spawn does to signals.
    let native = Command::new("sh")
        .args(["-c", "sh -c \"$0\"; exit $?", script])
        .current_dir(&dir)
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let ran = s.run(&[], script);
    assert_eq!(String::from_utf8_lossy(&native.stdout), ran.stdout());
    assert_eq!(native.status.code(), ran.output.status.code());
}

#[test]
fn exit_statuses() {
    needs_root!();
    let _still = MOUNTS.read();
    let s = Sandbox::new();
    s.run(&[], "exit 0").expect(0);
    s.run(&[], "exit 41").expect(41);
    s.run(&[], "kill -KILL $$").expect(128 + 9);
    s.finish(s.exec(&[], &["no-such-program"]).output().unwrap()).expect(127);
    s.finish(s.exec(&[], &["/etc/passwd"]).output().unwrap()).expect(126);
    s.finish(s.exec(&[], &["/etc"]).output().unwrap()).expect(126);
}

#[test]
fn the_store_can_not_be_seen() {
    needs_root!();
    let _still = MOUNTS.read();
    let s = Sandbox::new();
    let ran = s.run(&[], "ls -A ../store; echo x > ../store/x; rmdir ../store; true").expect(0);
    assert_eq!(ran.stdout(), "");
    assert!(s.store().join("format").exists());
}

#[test]
fn a_second_command_sees_what_the_first_did() {
    needs_root!();
    let _still = MOUNTS.read();
    let s = Sandbox::new();
    let ran = s.run(&["--twice"], "cat f 2>/dev/null; echo more >> f").expect(0);
    assert_eq!(ran.stdout(), "more\n");
}

#[test]
fn things_that_files_can_be() {
    needs_root!();
    let _still = MOUNTS.read();
    let s = Sandbox::new();
    fs::create_dir_all(s.path("d/e")).unwrap();
    fs::write(s.path("d/e/f"), "text").unwrap();
    fs::hard_link(s.path("d/e/f"), s.path("hard")).unwrap();
    let script = "set -e; mv d moved; test -f moved/e/f; test ! -e d; \
        echo changed > hard; test $(cat moved/e/f) = changed; test $(stat -c %h hard) = 2; \
        mkfifo fifo; (echo through > fifo &); test $(cat fifo) = through; \
        mknod null c 1 3; echo gone > null; truncate -s 1G sparse; test $(stat -c %b sparse) -lt 100; \
        cp /bin/true suid; chmod 4755 suid; test -u suid; ln -s moved link; test -d link/e; \
        chmod 711 moved; chown 12:34 hard; test $(stat -c %u:%g hard) = 12:34";
    let ran = s.run(&[], script);
    ran.expect(0);
    assert_eq!(fs::read_to_string(s.path("d/e/f")).unwrap(), "text");
}

#[test]
fn inherited_descriptors() {
    needs_root!();
    let _still = MOUNTS.read();
    let s = Sandbox::new();
    fs::create_dir(s.path("d")).unwrap();
    fs::write(s.path("in"), "from outside").unwrap();
    // A directory descriptor leads into the view: what is made through it is private.
    let inner = "cat <&7; echo x > /proc/self/fd/8/made; test -e d/made";
    let mut command = s.command(&[], inner);
    let outer = format!("exec 7<in 8<d; exec {}", shell_words(&command));
    let mut shell = Command::new("sh");
    shell.args(["-c", &outer]).current_dir(s.path("")).env("PATH", "/usr/bin:/bin");
    let ran = s.finish(shell.output().unwrap()).expect(0);
    assert_eq!(ran.stdout(), "from outside");
    assert!(!s.path("d/made").exists());
    let _ = command.stdin(Stdio::null());
}

fn shell_words(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|w| format!("'{}'", w.to_string_lossy().replace('\'', "'\\''")))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn held_output_appears_in_the_end() {
    needs_root!();
    let _still = MOUNTS.read();
    let s = Sandbox::new();
    let script = "echo out; echo err >&2";
    let ran = s.run(&["--hold", "--release"], script).expect(0);
    assert_eq!((ran.stdout().as_str(), ran.stderr().as_str()), ("out\n", "err\n"));
    let ran = s.run(&["--hold"], script).expect(0);
    assert_eq!((ran.stdout().as_str(), ran.stderr().as_str()), ("", "err\n"));
}

#[test]
fn a_scope_that_is_not_there() {
    needs_root!();
    let _still = MOUNTS.read();
    let s = Sandbox::new();
    let ran = s.run(&["--scope", "/no/such/dir"], "true").expect(125);
    assert!(ran.stderr().contains("/no/such/dir"), "{}", ran.stderr());
    let ran = s.run(&["--scope", "/proc/self"], "true").expect(125);
    assert!(ran.stderr().contains("never versioned"), "{}", ran.stderr());
}

/// A mount of a test's own, gone at the end.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn new(at: std::path::PathBuf, words: &[&str]) -> Self {
        fs::create_dir_all(&at).unwrap();
        let status = Command::new("mount").args(words).arg(&at).status().unwrap();
        assert!(status.success());
        Mounted(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn every_file_system_has_its_own_layer() {
    needs_root!();
    let _alone = MOUNTS.write();
    let s = Sandbox::new();
    let disk = Mounted::new(s.path("a disk:,\\"), &["-t", "tmpfs", "disk"]);
    let _read_only = Mounted::new(s.path("cd"), &["-t", "tmpfs", "-o", "ro", "cd"]);
    fs::write(disk.0.join("f"), "old\n").unwrap();
    let script = "cd a*; echo more >> f; ln f g; mv g h; cat h; ls -A | grep -c '^f$\\|^h$'; \
                  touch ../cd/x 2>/dev/null || echo read-only";
    let ran = s.run(&[], script).expect(0);
    assert_eq!(ran.stdout(), "old\nmore\n2\nread-only\n");
    assert_eq!(fs::read_to_string(disk.0.join("f")).unwrap(), "old\n");
    assert_eq!(ran.facets(&disk.0.join("f")) & 32, 32);
    assert_eq!(ran.report["layers"].as_array().unwrap().len(), 2);
}
