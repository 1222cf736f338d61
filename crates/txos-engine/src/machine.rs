//! What this boot is, and where a user's state is kept.

use std::path::PathBuf;

use crate::error::{Error, Result};

/// The identity of this boot; empty if the kernel does not tell. In builds with debug assertions
/// `TXOS_BOOT_ID` says another one: a file system that was cut off in this boot is then found as after
/// a restart of the machine.
#[must_use]
pub fn boot_id() -> String {
    #[cfg(debug_assertions)]
    if let Ok(id) = std::env::var("TXOS_BOOT_ID") {
        return id;
    }
    // No process outlives a boot.
    static ID: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    if let Some(id) = ID.get() {
        return id.clone();
    }
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // Where it can't be read now it may be later.
    match id.trim() {
        "" => String::new(),
        id => ID.get_or_init(|| id.to_owned()).clone(),
    }
}

/// The absolute path that a variable of the environment names. What runs with more rights than who started it does
/// not let that one choose.
pub(crate) fn named_dir(variable: &str) -> Option<PathBuf> {
    let value = std::env::var_os(variable).filter(|_| !crate::sys_secure::has_foreign_rights());
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The home store of this user: `$TXOS_STORE`, `/var/lib/txos` for root (but not in a user namespace where
/// `/` is somebody else's), else `$XDG_STATE_HOME/txos` or `~/.local/state/txos`.
///
/// # Errors
/// If an ordinary user has neither `XDG_STATE_HOME` nor `HOME`.
pub fn default_dir() -> Result<PathBuf> {
    named_dir("TXOS_STORE").map_or_else(usual_dir, Ok)
}

/// The home store of this user where `TXOS_STORE` names none.
///
/// # Errors
/// If an ordinary user has neither `XDG_STATE_HOME` nor `HOME`.
pub fn usual_dir() -> Result<PathBuf> {
    if crate::rights::owns_tree() {
        return Ok(PathBuf::from("/var/lib/txos"));
    }
    named_dir("XDG_STATE_HOME")
        .or_else(|| named_dir("HOME").map(|h| h.join(".local/state")))
        .map(|d| d.join("txos"))
        .ok_or_else(|| Error::Unsupported {
            what: "there is no place for the store: neither HOME nor XDG_STATE_HOME is set".into(),
            advice: "Set HOME, or TXOS_STORE to a directory of yours.".into(),
        })
}
