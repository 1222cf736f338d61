//! Paths in answers and arguments, and commands for a person to type.
//!
//! JSON is text, and a path is bytes. A path that is no plain text is written as git quotes it (docs/json.md), in answers as in
//! arguments: what an answer names can be handed back in.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serializer};
use txos_engine::show::{quoted, unquoted};

/// The path that an argument names.
///
/// # Errors
/// If it is quoted wrongly, or no path.
pub fn path(text: &str) -> Result<PathBuf, String> {
    let bytes = unquoted(text).ok_or_else(|| {
        format!(
            "{text}: a path that begins with a quote is quoted as git does it (such as \"a\\nb\\377\"), and this one is not; \
             nothing was done"
        )
    })?;
    if bytes.contains(&0) {
        return Err(format!("{}: a path can't contain NUL; nothing was done", text.escape_debug()));
    }
    Ok(OsString::from_vec(bytes).into())
}

/// A path of a policy, which may be quoted, too.
///
/// # Errors
/// As [`path`].
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    path(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

/// The same of a path that may be missing.
///
/// # Errors
/// As [`path`].
pub fn deserialize_some<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    deserialize(from).map(Some)
}

/// Writes a path.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&quoted(path))
}

/// The same of a path that may be missing.
///
/// # Errors
/// Those of the serializer.
pub fn serialize_some<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => serialize(path, to),
        None => to.serialize_none(),
    }
}

/// How a person calls `txos` so that it finds this server's transactions.
#[derive(Clone, Debug)]
pub struct Typed(String);

impl Typed {
    /// With this store; without one, with the usual one.
    pub fn new(store: Option<&Path>) -> Typed {
        Typed(store.map_or_else(|| "txos".into(), |dir| format!("txos --store {}", word(dir))))
    }

    /// The command.
    pub fn command(&self, words: &str) -> String {
        format!("{} {words}", self.0)
    }
}

/// A path as a word for a shell.
fn word(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-+=./,:@%^".contains(byte);
    if bytes.iter().all(plain) {
        return quoted(path);
    }
    match path.to_str() {
        Some(text) if !text.chars().any(char::is_control) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => {
            let byte = |byte: &u8| match byte {
                byte if plain(byte) => char::from(*byte).to_string(),
                byte => format!("\\{byte:03o}"),
            };
            format!("$'{}'", bytes.iter().map(byte).collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_names_can_be_handed_back_in() {
        use std::ffi::OsStr;
        for bytes in [&b"/w/a"[..], b"a\xff", b"a\nb", b"\"", b"\"a\"", b"a\\b", "ü".as_bytes()] {
            let name = Path::new(OsStr::from_bytes(bytes));
            assert_eq!(path(&quoted(name)).unwrap(), name);
        }
        assert_eq!(path("plain\\name").unwrap(), Path::new("plain\\name"));
        assert!(path("\"a\\q\"").unwrap_err().contains("quoted as git does it"));
        for text in ["a\0b", "\"a\\000b\""] {
            assert!(path(text).unwrap_err().contains("NUL"), "{text}");
        }
    }

    #[test]
    fn a_command_names_a_store_so_that_a_shell_finds_it() {
        use std::ffi::OsStr;
        let typed =
            |dir: &[u8]| Typed::new(Some(Path::new(OsStr::from_bytes(dir)))).command("list");
        assert_eq!(Typed::new(None).command("list"), "txos list");
        assert_eq!(typed(b"/data/.txos-store"), "txos --store /data/.txos-store list");
        assert_eq!(typed(b"/my store"), "txos --store '/my store' list");
        assert_eq!(typed(b"/it's"), r"txos --store '/it'\''s' list");
        assert_eq!(typed(b"/a\xff'1"), r"txos --store $'/a\377\0471' list");
    }
}
