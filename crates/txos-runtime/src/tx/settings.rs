//! Settings of the machine that decide how calls go.

use std::sync::OnceLock;

/// /proc/sys/fs/protected_hardlinks.
pub fn protected_hardlinks() -> bool {
    static VALUE: OnceLock<bool> = OnceLock::new();
    *VALUE.get_or_init(|| is_set("/proc/sys/fs/protected_hardlinks"))
}

/// /proc/sys/fs/protected_symlinks.
pub fn protected_symlinks() -> bool {
    static VALUE: OnceLock<bool> = OnceLock::new();
    *VALUE.get_or_init(|| is_set("/proc/sys/fs/protected_symlinks"))
}

/// /proc/sys/fs/protected_regular: 0, 1 or 2.
pub fn protected_regular() -> u32 {
    static VALUE: OnceLock<u32> = OnceLock::new();
    *VALUE.get_or_init(|| {
        let read = || std::fs::read_to_string("/proc/sys/fs/protected_regular");
        let text = super::kernel::as_owner(read).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    })
}

fn is_set(path: &str) -> bool {
    super::kernel::as_owner(|| std::fs::read(path)).is_ok_and(|text| text.trim_ascii() != b"0")
}
