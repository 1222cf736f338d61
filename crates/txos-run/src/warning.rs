//! What can't be rolled back: a warning once for each kind and top directory, and summed up at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Mutex;

use txos_calls::System;
use txos_engine::show::{quoted_bytes, visible};

/// Kinds of things that a transaction can't take back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WarningKind {
    /// Data went off the machine.
    Network,
    /// A service outside was talked to.
    Ipc,
    /// A device was opened for writing.
    Device,
    /// A setting of the kernel was written.
    KernelSetting,
    /// Something changed where changes are live.
    Live,
    /// Something changed outside `--scope`.
    OutOfScope,
    /// Something changed that `--exclude` leaves live.
    Excluded,
    /// A file system was mounted anew with other options.
    Remount,
    /// A directory could not be versioned.
    Unversioned,
    /// Something was mounted or unmounted.
    Mount,
    /// The machine was told to restart or stop.
    Reboot,
    /// A clock was set.
    Clock,
    /// The name of the machine was set.
    Hostname,
    /// A kernel module was loaded or removed, or another kernel prepared.
    Module,
    /// Swap space was turned on or off.
    Swap,
    /// Process accounting or quotas were changed.
    Accounting,
    /// A process outside was traced or written to.
    Trace,
    /// Limits, priority or the like of a process outside were changed.
    Process,
    /// Every process was signalled.
    Broadcast,
    /// System V shared memory, queues or semaphores were made.
    SysvIpc,
    /// The kernel's key store was changed.
    Keyring,
    /// A program's reads can't be recorded.
    Unrecorded,
}

/// Something that can't be rolled back.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Warning {
    /// Which kind.
    pub kind: WarningKind,
    /// What happened, for people.
    pub text: String,
}

impl From<System> for WarningKind {
    fn from(system: System) -> Self {
        match system {
            System::Accounting => WarningKind::Accounting,
            System::Clock => WarningKind::Clock,
            System::Device => WarningKind::Device,
            System::Hostname => WarningKind::Hostname,
            System::Ipc => WarningKind::SysvIpc,
            System::KernelSetting => WarningKind::KernelSetting,
            System::Keyring => WarningKind::Keyring,
            System::Module => WarningKind::Module,
            System::Mount => WarningKind::Mount,
            System::Reboot => WarningKind::Reboot,
            System::Swap => WarningKind::Swap,
        }
    }
}

impl WarningKind {
    /// What was live, for the line at the end; `None` for what ends with the view, and for what is only
    /// told beforehand.
    fn live(self) -> Option<&'static str> {
        Some(match self {
            WarningKind::Mount | WarningKind::Unversioned => return None,
            WarningKind::Network => "the network",
            WarningKind::Ipc => "a service outside",
            WarningKind::Device => "a device",
            WarningKind::KernelSetting => "settings of the kernel",
            WarningKind::Live => "what is never versioned",
            WarningKind::OutOfScope => "outside the scope",
            WarningKind::Excluded => "what is excluded",
            WarningKind::Remount => "a mounted file system",
            WarningKind::Reboot => "a restart or stop of the machine",
            WarningKind::Clock => "the clock",
            WarningKind::Hostname => "the name of the machine",
            WarningKind::Module => "modules of the kernel",
            WarningKind::Swap => "swap space",
            WarningKind::Accounting => "accounting or quotas",
            WarningKind::Trace | WarningKind::Process | WarningKind::Broadcast => {
                "processes outside"
            }
            WarningKind::SysvIpc => "System V IPC",
            WarningKind::Keyring => "the kernel's key store",
            WarningKind::Unrecorded => "whatever a program did that can't be recorded",
        })
    }
}

/// The kind of what the library calls so; `None` for what is no more than the process's own affair, or what it prints.
fn kind_of_library(what: &str) -> Option<WarningKind> {
    Some(match what {
        "a change of the process's limits, group or priority"
        | "a change of credentials"
        | "a change of namespaces"
        | "a file handle"
        | "output to a pipe"
        | "output to a socket"
        | "output to a terminal or device" => return None,
        "a call that concerns the whole machine" | "a change of the machine's settings" => {
            WarningKind::KernelSetting
        }
        "another process's memory or descriptors" => WarningKind::Trace,
        "a signal" => WarningKind::Process,
        "a change of mounts or swap" => WarningKind::Mount,
        "network and socket traffic" | "accepting a connection" => WarningKind::Network,
        "System V or POSIX IPC" => WarningKind::SysvIpc,
        "a change of the kernel" => WarningKind::Module,
        "the kernel's keys" => WarningKind::Keyring,
        _ => WarningKind::Live,
    })
}

/// How many paths of one kind are told apart; from there on there are "at least" so many.
const PATHS_MAX: usize = 4096;

/// How many of them are named at the end.
const EXAMPLES_MAX: usize = 3;

/// Everything that a command did that can't be rolled back, as far as it was seen: by kind, with the
/// paths if it were paths.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Live(BTreeMap<WarningKind, BTreeSet<Vec<u8>>>);

impl Live {
    /// Whether nothing was live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// From what the library has noted in its own words.
    #[must_use]
    pub fn of_library(noted: Vec<(String, Vec<Vec<u8>>)>) -> Live {
        let mut live = Live::default();
        for (what, paths) in noted {
            let Some(kind) = kind_of_library(&what) else { continue };
            live.note(kind, None);
            for path in &paths {
                live.note(kind, Some(path));
            }
        }
        live
    }

    /// Adds what another command did.
    pub fn add(&mut self, other: &Live) {
        for (kind, paths) in &other.0 {
            let ours = self.0.entry(*kind).or_default();
            for path in paths {
                if ours.len() < PATHS_MAX {
                    ours.insert(path.clone());
                }
            }
        }
    }

    fn note(&mut self, kind: WarningKind, path: Option<&[u8]>) {
        if kind.live().is_none() {
            return;
        }
        let paths = self.0.entry(kind).or_default();
        if let Some(path) = path.filter(|_| paths.len() < PATHS_MAX) {
            paths.insert(path.to_vec());
        }
    }
}

/// A list of `{"kind", "paths"}`, the paths quoted.
impl serde::Serialize for Live {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Kind {
            kind: WarningKind,
            paths: Vec<String>,
        }
        serializer.collect_seq(self.0.iter().map(|(kind, paths)| Kind {
            kind: *kind,
            paths: paths.iter().map(|path| quoted_bytes(path)).collect(),
        }))
    }
}

impl std::fmt::Display for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut first = true;
        for (kind, paths) in &self.0 {
            let Some(what) = kind.live() else { continue };
            f.write_str(if std::mem::take(&mut first) { "" } else { "; " })?;
            f.write_str(what)?;
            if paths.is_empty() {
                continue;
            }
            let least = if paths.len() < PATHS_MAX { "" } else { "at least " };
            let s = if paths.len() == 1 { "" } else { "s" };
            let named: Vec<String> =
                paths.iter().take(EXAMPLES_MAX).map(|p| quoted_bytes(p)).collect();
            let more = if paths.len() > named.len() { ", …" } else { "" };
            write!(f, ": {least}{} path{s} ({}{more})", paths.len(), named.join(", "))?;
        }
        Ok(())
    }
}

/// Collects warnings and prints the first of each kind and top directory.
#[derive(Debug, Default)]
pub struct Warnings {
    issued: Mutex<Issued>,
}

#[derive(Debug, Default)]
struct Issued {
    seen: BTreeSet<(WarningKind, String)>,
    all: Vec<Warning>,
    live: Live,
}

impl Warnings {
    /// Whether this kind was warned of already: finding out more would be wasted.
    #[must_use]
    pub fn has(&self, kind: WarningKind) -> bool {
        self.issued.lock().is_ok_and(|t| t.seen.iter().any(|(k, _)| *k == kind))
    }

    /// Warns, if it is the first of its kind.
    pub fn warn(&self, kind: WarningKind, text: String) {
        self.warn_of(kind, "", None, text);
    }

    /// Warns, if it is the first of its kind in this top directory, and remembers the path.
    pub fn warn_of(&self, kind: WarningKind, top: &str, path: Option<&[u8]>, text: String) {
        let Ok(mut issued) = self.issued.lock() else { return };
        issued.live.note(kind, path);
        if issued.seen.insert((kind, top.to_owned())) {
            say(&format!("warning: {text}"));
            issued.all.push(Warning { kind, text });
        }
    }

    /// Every warning so far.
    #[must_use]
    pub fn take(&self) -> Vec<Warning> {
        self.issued.lock().map(|mut t| std::mem::take(&mut t.all)).unwrap_or_default()
    }

    /// What was live.
    #[must_use]
    pub fn live(&self) -> Live {
        self.issued.lock().map(|issued| issued.live.clone()).unwrap_or_default()
    }
}

/// Prints one line of ours to standard error. The terminal may be in raw mode. Nothing that others named
/// does anything to it.
pub fn say(text: &str) {
    let text = visible(text.as_bytes());
    let end = if raw_mode() { "\r\n" } else { "\n" };
    // Nobody can be told that telling failed.
    let _ = std::io::stderr().write_all(format!("txos: {text}{end}").as_bytes());
}

fn raw_mode() -> bool {
    rustix::termios::tcgetattr(rustix::stdio::stderr())
        .is_ok_and(|t| !t.output_modes.contains(rustix::termios::OutputModes::OPOST))
}
