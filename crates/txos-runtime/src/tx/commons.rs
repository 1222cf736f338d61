//! What all transactions of a process share: its door to the realm, and its store.

use std::sync::{Mutex, OnceLock};

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

/// Where a mount is mounted. The table is read once, and again when it does not know the mount or is
/// wrong about it.
pub fn mount_point(mnt: u64) -> Option<Vec<u8>> {
    static TABLE: Mutex<Vec<(u64, Vec<u8>)>> = Mutex::new(Vec::new());
    let mut table = TABLE.lock().ok()?;
    let known = |table: &[(u64, Vec<u8>)]| {
        let point = table.iter().find(|(id, _)| *id == mnt).map(|(_, point)| point.clone())?;
        let there = super::kernel::look(&point).is_ok_and(|stat| stat.mnt == mnt);
        there.then_some(point)
    };
    if let Some(point) = known(&table) {
        return Some(point);
    }
    let text = std::fs::read("/proc/self/mountinfo").ok()?;
    *table = txos_engine::mounts::parse(&text)
        .into_iter()
        .map(|m| (m.id, m.point.into_os_string().into_encoded_bytes()))
        .collect();
    known(&table)
}

static FILE_SYSTEMS: Mutex<Vec<((u64, u64), bool)>> = Mutex::new(Vec::new());

/// Which file systems, by device and mount, earlier transactions found to be versioned.
pub fn file_systems() -> Vec<((u64, u64), bool)> {
    FILE_SYSTEMS.lock().map(|known| known.clone()).unwrap_or_default()
}

/// Remembers them for later transactions.
pub fn remember_file_systems(known: &[((u64, u64), bool)]) {
    if let Ok(mut all) = FILE_SYSTEMS.lock()
        && known.len() > all.len()
        && known.len() < 64
    {
        *all = known.to_vec();
    }
}

/// Whether this process runs in the view of a `txos run`, where everything is that transaction's.
pub fn in_a_view() -> bool {
    static VIEW: OnceLock<bool> = OnceLock::new();
    *VIEW.get_or_init(|| {
        let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        txos_engine::mounts::parse(&text).iter().any(|mount| {
            let source = mount.source.as_encoded_bytes();
            mount.kind == "overlay" && source.starts_with(b"txos-")
        })
    })
}
