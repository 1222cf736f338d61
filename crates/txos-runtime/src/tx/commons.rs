//! What all transactions of a process share: its door to the realm, and its store.

use std::sync::OnceLock;

use txos_engine::commit;
use txos_engine::realm::{self, Realm};
use txos_engine::store::{self, Home};

use super::{Failure, reason};

/// The process's door to its realm; `None` where there is none: conflicts are found at commit then.
pub fn realm() -> Option<&'static Realm> {
    static REALM: OnceLock<Option<Realm>> = OnceLock::new();
    REALM.get_or_init(join).as_ref()
}

fn join() -> Option<Realm> {
    let dir = realm::default_dir().ok()?;
    let home = store::default_dir().ok()?;
    let label = std::fs::read("/proc/self/comm").unwrap_or_default();
    let label = String::from_utf8_lossy(label.trim_ascii()).into_owned();
    match Realm::join(&dir, &label, &home, Box::new(commit::settle)) {
        Ok(realm) => Some(realm),
        Err(error) => {
            super::say(&format!(
                "{error}; conflicts with other transactions are found at commit only"
            ));
            None
        }
    }
}

/// The home store.
///
/// # Errors
/// If there is no place for one, or it can't be opened.
pub fn home() -> Result<&'static Home, Failure> {
    static HOME: OnceLock<Home> = OnceLock::new();
    if let Some(home) = HOME.get() {
        return Ok(home);
    }
    let failed = |e: txos_engine::Error| Failure {
        reason: reason::FAILED,
        errno: libc::EIO,
        what: e.to_string(),
        ..Failure::default()
    };
    let opened = store::default_dir().and_then(|dir| Home::open(&dir)).map_err(failed)?;
    Ok(HOME.get_or_init(|| opened))
}
