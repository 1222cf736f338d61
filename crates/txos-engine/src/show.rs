//! How paths and times are written for people.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::stamp::Stamp;

/// Whether a character does something to what is shown, instead of being shown: controls, and what turns the
/// direction of the text around it, so that `gpj.exe` may look like `exe.jpg`.
fn misleads(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A path as messages show it: as it is when it is plain text, else C-quoted as git does it
/// (`"a\nb\377"`), so that a hostile name can neither forge output nor get lost.
#[must_use]
pub fn quoted(path: &Path) -> String {
    quoted_bytes(path.as_os_str().as_bytes())
}

/// [`quoted`] for raw bytes.
#[must_use]
pub fn quoted_bytes(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).ok();
    if let Some(text) = text
        && !text.is_empty()
        && !text.chars().any(|c| misleads(c) || c == '"' || c == '\\')
    {
        return text.to_owned();
    }
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                c if misleads(c) => {
                    let mut buffer = [0u8; 4];
                    for b in c.encode_utf8(&mut buffer).bytes() {
                        out.push_str(&format!("\\{b:03o}"));
                    }
                }
                c => out.push(c),
            }
        }
        for b in chunk.invalid() {
            out.push_str(&format!("\\{b:03o}"));
        }
    }
    out.push('"');
    out
}

/// Text of others for a terminal: what would do something to it, and bytes that are no text, as
/// backslash and octal digits. Tabs and ends of lines stay.
#[must_use]
pub fn visible(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if misleads(c) && !matches!(c, '\n' | '\t') {
                let mut buffer = [0u8; 4];
                for b in c.encode_utf8(&mut buffer).bytes() {
                    out.push_str(&format!("\\{b:03o}"));
                }
            } else {
                out.push(c);
            }
        }
        for b in chunk.invalid() {
            out.push_str(&format!("\\{b:03o}"));
        }
    }
    out
}

/// The same for a message of ours, which may have colours of its own.
#[must_use]
pub fn visible_message(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        let (before, escape) = rest.split_at(at);
        out.push_str(&visible(before.as_bytes()));
        let colour = escape.strip_prefix("\x1b[").and_then(|codes| {
            let end = codes.find(|c: char| !c.is_ascii_digit() && c != ';')?;
            codes.get(end..)?.starts_with('m').then_some(end + 3)
        });
        let length = colour.unwrap_or(1);
        let (sequence, behind) = escape.split_at(length);
        match colour {
            Some(_) => out.push_str(sequence),
            None => out.push_str("\\033"),
        }
        rest = behind;
    }
    out.push_str(&visible(rest.as_bytes()));
    out
}

/// Reads what [`quoted_bytes`] wrote; `None` if it is not of that form.
#[must_use]
pub fn unquoted(text: &str) -> Option<Vec<u8>> {
    let Some(inner) = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) else {
        return Some(text.as_bytes().to_vec());
    };
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.bytes();
    while let Some(b) = bytes.next() {
        if b != b'\\' {
            out.push(b);
            continue;
        }
        out.push(match bytes.next()? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'"' => b'"',
            b'\\' => b'\\',
            first => {
                let mut value = u32::from(first.checked_sub(b'0')?);
                for _ in 0..2 {
                    value = value * 8 + u32::from(bytes.next()?.checked_sub(b'0')?);
                }
                u8::try_from(value).ok()?
            }
        });
    }
    Some(out)
}

/// Paths in JSON files of ours: [`quoted`] text, read back exactly. For `#[serde(with)]`.
pub mod path_text {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a path.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(path: &Path, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&super::quoted(path))
    }

    /// Reads a path.
    ///
    /// # Errors
    /// Those of the deserializer, and a text that is not a quoted path.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<PathBuf, D::Error> {
        let text = String::deserialize(d)?;
        super::unquoted(&text)
            .map(|b| PathBuf::from(OsString::from_vec(b)))
            .ok_or_else(|| serde::de::Error::custom("not a quoted path"))
    }
}

/// Serialises a path as [`quoted`] text.
///
/// # Errors
/// Those of the serializer.
pub fn path_as_text<S: serde::Serializer>(
    path: impl AsRef<Path>,
    s: S,
) -> std::result::Result<S::Ok, S::Error> {
    s.serialize_str(&quoted(path.as_ref()))
}

/// A stamp in local time, to the millisecond: `2026-03-01 14:05:09.123`.
#[must_use]
pub fn local_time(stamp: Stamp) -> String {
    let Some(tm) = local_tm(stamp) else {
        return format!("@{}.{:03}", stamp.sec, stamp.nsec / 1_000_000);
    };
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:03}",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec,
        stamp.nsec / 1_000_000
    )
}

/// The stamp of a date and time in the local time zone: year, month, day, hour, minute, second. `None` if there
/// is no such time.
#[must_use]
#[allow(unsafe_code)]
pub fn stamp_of_local_time(parts: [i32; 6]) -> Option<Stamp> {
    let [year, month, day, hour, minute, second] = parts;
    // SAFETY: `tm` is plain data for which all-zero is a valid value; mktime reads and writes only it.
    let (sec, tm) = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        (tm.tm_year, tm.tm_mon, tm.tm_mday) = (year.checked_sub(1900)?, month - 1, day);
        (tm.tm_hour, tm.tm_min, tm.tm_sec, tm.tm_isdst) = (hour, minute, second, -1);
        (libc::mktime(&raw mut tm), tm)
    };
    // mktime takes the 31st of February for the 3rd of March.
    let same = (tm.tm_mon, tm.tm_mday) == (month - 1, day);
    (same && (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second))
        .then_some(Stamp { sec, nsec: 0 })
}

/// Breaks a stamp down in the local time zone.
#[allow(unsafe_code)]
fn local_tm(stamp: Stamp) -> Option<libc::tm> {
    // SAFETY: `tm` is plain data for which all-zero is a valid value; localtime_r writes only into
    // it and returns null on failure.
    unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        let sec: libc::time_t = stamp.sec;
        if libc::localtime_r(&raw const sec, &raw mut tm).is_null() { None } else { Some(tm) }
    }
}

/// The name of a signal, as `kill -l` prints it with `SIG` before.
#[must_use]
pub fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let index = usize::try_from(signal).ok().and_then(|n| n.checked_sub(1));
    match index.and_then(|i| NAMES.get(i)) {
        Some(name) => format!("SIG{name}"),
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_others_reaches_a_terminal_as_it_is() {
        assert_eq!(visible(b"a\x1b[2J\x07\r\tb\n"), "a\\033[2J\\007\\015\tb\n");
        assert_eq!(visible("\u{9b}31m".as_bytes()), "\\302\\23331m");
        assert_eq!(visible(b"\xff\x9b"), "\\377\\233");
        assert_eq!(visible("größe".as_bytes()), "größe");
        assert_eq!(
            visible_message("\x1b[1;31mred\x1b[0m \x1b]0;t\x07"),
            "\x1b[1;31mred\x1b[0m \\033]0;t\\007"
        );
        assert_eq!(visible_message("\x1b"), "\\033");
        assert_eq!(visible_message("\x1b[é"), "\\033[é");
    }

    #[test]
    fn quoting() {
        assert_eq!(quoted_bytes(b"/etc/passwd"), "/etc/passwd");
        assert_eq!(quoted_bytes("/tmp/å".as_bytes()), "/tmp/å");
        assert_eq!(quoted_bytes(b"a\nb\xff\""), "\"a\\nb\\377\\\"\"");
        assert_eq!(quoted_bytes(b""), "\"\"");
        for bytes in [&b"/etc/passwd"[..], b"a\nb\xff\"", b"\\", b"", b"\"x\"", b"\x01\x7f"] {
            assert_eq!(unquoted(&quoted_bytes(bytes)).as_deref(), Some(bytes));
        }
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(signal_name(libc::SIGINT), "SIGINT");
        assert_eq!(signal_name(libc::SIGSYS), "SIGSYS");
        assert_eq!(signal_name(40), "signal 40");
        assert_eq!(signal_name(-1), "signal -1");
    }
}
