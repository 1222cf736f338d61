//! Whether this program has been given more rights than who started it has.
//!
//! # Safety
//!
//! The one unsafe call reads a word that the kernel gave the process at its start.
#![allow(unsafe_code)]

/// As the kernel said when the program was started (`AT_SECURE`, getauxval(3)): it is set-user-ID,
/// set-group-ID or has file capabilities. It does not let its environment choose where it writes.
#[must_use]
pub fn has_foreign_rights() -> bool {
    // SAFETY: it takes a number and gives one.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
