//! Paths on the command line, as paths of the stable tree.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use txos_engine::changeset::Entry;
use txos_run::question;

use crate::exit::Failure;

/// A path from the command line, absolute and not resolved.
pub fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let Some(directory) = std::env::var_os(question::ASKED_IN) else {
        return std::path::absolute(path)
            .map_err(|e| Failure::new(format!("finding the working directory: {e}")));
    };
    // Asked for from inside a transaction, with a view of its own.
    let mut absolute = PathBuf::new();
    for part in Path::new(&directory).join(path).components() {
        match part {
            Component::ParentDir => drop(absolute.pop()),
            Component::CurDir => {}
            part => absolute.push(part),
        }
    }
    Ok(absolute)
}

/// A path from the command line as the change set writes it: absolute, the directories above it
/// resolved as far as they exist. The last component is not followed (it may be a link that the
/// transaction changed, or not exist outside of it).
pub fn in_tree(path: &Path) -> Result<PathBuf, Failure> {
    let absolute = match std::env::var_os(question::ASKED_IN) {
        // Asked for from inside a transaction: that directory may be new there.
        Some(directory) => Ok(Path::new(&directory).join(path)),
        None => std::path::absolute(path),
    };
    let absolute =
        absolute.map_err(|e| Failure::new(format!("{}: {e}", txos_engine::show::quoted(path))))?;
    let mut rest: Vec<OsString> = Vec::new();
    let mut above = absolute.as_path();
    while let (Some(parent), Some(last)) = (above.parent(), above.components().next_back()) {
        rest.push(last.as_os_str().to_owned());
        above = parent;
        if let Ok(resolved) = above.canonicalize() {
            return Ok(lexical(resolved, rest.iter().rev()));
        }
    }
    Ok(lexical(PathBuf::from("/"), rest.iter().rev()))
}

/// Appends components that need not exist; `..` goes up.
fn lexical<'a>(base: PathBuf, rest: impl Iterator<Item = &'a OsString>) -> PathBuf {
    rest.fold(base, |mut path, name| {
        match Path::new(name).components().next() {
            Some(Component::ParentDir) => {
                path.pop();
            }
            Some(Component::Normal(name)) => path.push(name),
            _ => {}
        }
        path
    })
}

/// Resolves all of them.
pub fn all_in_tree(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    paths.iter().map(|p| in_tree(p)).collect()
}

/// A pattern of an option, for absolute paths: one that begins neither with `/` nor with `**`, nor with several to choose
/// from, is relative to the working directory.
pub fn pattern(option: &str, text: &str) -> Result<String, Failure> {
    if ["/", "**", "{"].iter().any(|start| text.starts_with(start)) {
        return Ok(text.to_owned());
    }
    let mut base = in_tree(Path::new("."))?;
    let mut rest = text;
    while let Some((first @ ("" | "." | ".."), behind)) = rest.split_once('/') {
        if first == ".." {
            base.pop();
        }
        rest = behind;
    }
    let Some(base) = base.to_str() else {
        return Err(Failure::new(format!(
            "{option} {text:?}: relative to {}, which is no valid UTF-8 as patterns are; write it as '**/{rest}'; nothing changed",
            txos_engine::show::quoted(&base)
        )));
    };
    let base = globset::escape(base.trim_end_matches('/'));
    Ok(format!("{base}/{rest}"))
}

/// Whether a change lies at or below one of the paths; no paths mean everything.
pub fn selects(paths: &[PathBuf], entry: &Entry) -> bool {
    let below = |path: &Path| paths.iter().any(|top| path.starts_with(top));
    paths.is_empty() || below(&entry.path) || entry.from.as_deref().is_some_and(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_relative_to_the_working_directory() {
        let here = in_tree(Path::new(".")).unwrap();
        let above = here.parent().unwrap();
        let (here, above) =
            [here.as_path(), above].map(|dir| globset::escape(dir.to_str().unwrap())).into();
        for (given, full) in [
            ("/var/log/**", "/var/log/**".to_owned()),
            ("**", "**".into()),
            ("**/*.log", "**/*.log".into()),
            ("{/a,/b}", "{/a,/b}".into()),
            ("log/*", format!("{here}/log/*")),
            ("*", format!("{here}/*")),
            ("././/a", format!("{here}/a")),
            ("../b*", format!("{above}/b*")),
        ] {
            assert_eq!(pattern("--x", given).unwrap(), full, "{given}");
        }
    }

    #[test]
    fn directories_are_resolved_and_the_last_name_is_not() {
        let dir = std::env::temp_dir().join(format!("txos-paths-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("real")).unwrap();
        let _ = std::os::unix::fs::symlink("real", dir.join("link"));
        let dir = dir.canonicalize().unwrap();
        let resolved = |p: &str| in_tree(&dir.join(p)).unwrap();
        assert_eq!(resolved("link/new"), dir.join("real/new"));
        assert_eq!(resolved("link"), dir.join("link"));
        assert_eq!(resolved("none/../none/x"), dir.join("none/x"));
        assert_eq!(resolved("none/deeper/x"), dir.join("none/deeper/x"));
        assert_eq!(in_tree(Path::new("/")).unwrap(), Path::new("/"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
