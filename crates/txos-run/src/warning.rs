//! What can't be rolled back, told once per kind.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Mutex;

/// Kinds of things that a transaction can't take back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// Which kind.
    pub kind: WarningKind,
    /// What happened, for people.
    pub text: String,
}

/// Collects warnings and prints the first of each kind.
#[derive(Debug, Default)]
pub struct Warnings {
    told: Mutex<(BTreeSet<WarningKind>, Vec<Warning>)>,
}

impl Warnings {
    /// Whether this kind was told already: finding out more would be wasted.
    #[must_use]
    pub fn has(&self, kind: WarningKind) -> bool {
        self.told.lock().is_ok_and(|t| t.0.contains(&kind))
    }

    /// Tells, if it is the first of its kind.
    pub fn tell(&self, kind: WarningKind, text: String) {
        let Ok(mut told) = self.told.lock() else { return };
        if told.0.insert(kind) {
            say(&format!("warning: {text}"));
            told.1.push(Warning { kind, text });
        }
    }

    /// Everything that was told.
    #[must_use]
    pub fn take(&self) -> Vec<Warning> {
        self.told.lock().map(|mut t| std::mem::take(&mut t.1)).unwrap_or_default()
    }
}

/// Prints one line of ours to standard error. The terminal may be in raw mode.
pub fn say(text: &str) {
    let end = if raw_mode() { "\r\n" } else { "\n" };
    // Nobody can be told that telling failed.
    let _ = std::io::stderr().write_all(format!("txos: {text}{end}").as_bytes());
}

fn raw_mode() -> bool {
    rustix::termios::tcgetattr(rustix::stdio::stderr())
        .is_ok_and(|t| !t.output_modes.contains(rustix::termios::OutputModes::OPOST))
}
