//! What the tests of running commands share.

#![allow(clippy::unwrap_used, dead_code)]

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// Skips a test that can't run without root.
#[macro_export]
macro_rules! needs_root {
    () => {
        txos_skip::require!(txos_skip::is_root(), "needs root");
    };
}

/// A directory of a test's own, with a store, removed at the end.
pub struct Sandbox {
    pub dir: PathBuf,
}

/// A command that was run.
pub struct Ran {
    pub output: Output,
    pub report: Value,
}

impl Sandbox {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = PathBuf::from(format!("/var/tmp/txos-run-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(dir.join("tree")).unwrap();
        Sandbox { dir: dir.canonicalize().unwrap() }
    }

    /// A path in the tree that commands work on.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join("tree").join(name)
    }

    pub fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    /// The front door with these options, ready to run `script` in the tree.
    pub fn command(&self, options: &[&str], script: &str) -> Command {
        self.exec(options, &["sh", "-c", script])
    }

    pub fn exec(&self, options: &[&str], words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_txos-run-session"));
        command
            .arg(self.store())
            .arg(self.dir.join("report"))
            .args(options)
            .arg("--")
            .args(words)
            .current_dir(self.dir.join("tree"))
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, options: &[&str], script: &str) -> Ran {
        self.finish(self.command(options, script).output().unwrap())
    }

    pub fn finish(&self, output: Output) -> Ran {
        let report = std::fs::read(self.dir.join("report"))
            .ok()
            .and_then(|b| serde_json::from_slice(&b).ok())
            .unwrap_or(Value::Null);
        let _ = std::fs::remove_file(self.dir.join("report"));
        Ran { output, report }
    }

    /// Starts a script that prints one line when it is where the test wants it.
    pub fn start(&self, options: &[&str], script: &str) -> (Child, String) {
        // In a group that nobody controls, the kernel hangs up everybody when one is stopped and another ends.
        let mut command = self.command(options, script);
        let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let line = first_line(child.stdout.as_mut().unwrap());
        (child, line)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

pub fn first_line(from: &mut impl std::io::Read) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while from.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

impl Ran {
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.output.status.code(),
            Some(code),
            "stdout: {}\nstderr: {}",
            self.stdout(),
            self.stderr()
        );
        self
    }

    /// Outcome and facets of what was seen at a path, if anything.
    pub fn seen(&self, path: &Path) -> Option<(String, u8)> {
        let want = txos_engine::show::quoted(path);
        self.report["reads"].as_array()?.iter().find(|r| r["path"] == want.as_str()).map(|r| {
            (
                r["outcome"].as_str().unwrap().to_owned(),
                u8::try_from(r["facets"].as_u64().unwrap()).unwrap(),
            )
        })
    }

    #[track_caller]
    pub fn facets(&self, path: &Path) -> u8 {
        match self.seen(path) {
            Some((outcome, facets)) if outcome.starts_with("Present") => facets,
            other => panic!("{}: {other:?}", path.display()),
        }
    }

    #[track_caller]
    pub fn absent(&self, path: &Path) {
        let (outcome, _) =
            self.seen(path).unwrap_or_else(|| panic!("{}: not seen", path.display()));
        assert!(outcome.starts_with("Absent"), "{}: {outcome}", path.display());
    }

    pub fn warned(&self, kind: &str) -> bool {
        let warnings = self.report["warnings"].as_array().cloned().unwrap_or_default();
        warnings.iter().any(|w| w.as_str().is_some_and(|w| w.starts_with(&format!("{kind}:"))))
    }
}

/// A process by number, pinned, so that waiting for its end means this one.
pub struct Pinned(std::os::fd::OwnedFd);

impl Pinned {
    pub fn new(pid: &str) -> Self {
        let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        let flags = rustix::process::PidfdFlags::empty();
        Pinned(rustix::process::pidfd_open(pid, flags).unwrap())
    }

    pub fn kill(&self) {
        rustix::process::pidfd_send_signal(&self.0, rustix::process::Signal::KILL).unwrap();
    }

    /// Waits until it has ended; `false` if it does not for ten seconds.
    pub fn ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })).unwrap() == 1
    }

    pub fn lives(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 0
    }
}

/// Whether any process sees an overlay of this store's transactions.
pub fn mounted_anywhere(sandbox: &Sandbox) -> bool {
    let ids: Vec<OsString> = std::fs::read_dir(sandbox.store().join("tx"))
        .map(|d| d.flatten().map(|e| e.file_name()).collect())
        .unwrap_or_default();
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let table = std::fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
        ids.iter().any(|id| table.contains(&format!("txos-{}", id.to_string_lossy())))
    })
}
