//! The other half of the `txos` script of a checkout, which starts the binary that it has built:
//!
//! ```text
//! txos --launched-from ROOT STAMP ARGUMENT...
//! ```
//!
//! Before anything else the binary looks whether a source is newer than the stamp, and if so becomes
//! the script again, which builds. Here that takes a millisecond; `find` takes several.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

/// What the script puts before the arguments.
const MARK: &str = "--launched-from";
/// Tells the script to build.
const STALE: &str = "TXOS_LAUNCHER_STALE";

/// The arguments of this process without the script's. Does not return if the script is to build.
pub fn arguments(all: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = all.into_iter().collect();
    if all.get(1).map(OsString::as_os_str) != Some(OsStr::new(MARK)) || all.len() < 4 {
        return all;
    }
    let script: Vec<OsString> = all.drain(1..4).skip(1).collect();
    if let [root, stamp] = script.as_slice()
        && is_stale(Path::new(root), Path::new(stamp))
    {
        let launcher = Path::new(root).join("txos");
        let rest = all.get(1..).unwrap_or_default();
        // Without the script there is nothing to build with: this is the newest program there is.
        let _ = std::process::Command::new(launcher).args(rest).env(STALE, "1").exec();
    }
    all
}

/// Whether something that the binary is built from is newer than the stamp. What can't be looked at is.
fn is_stale(root: &Path, stamp: &Path) -> bool {
    let Ok(stamp) = std::fs::symlink_metadata(stamp) else { return true };
    let built = time(&stamp);
    ["Cargo.toml", "Cargo.lock", "crates"].iter().any(|name| is_newer(&root.join(name), built))
}

fn time(meta: &std::fs::Metadata) -> (i64, i64) {
    (meta.mtime(), meta.mtime_nsec())
}

/// Whether it, or anything below it, is newer. Directories count: a name that went leaves nothing else.
fn is_newer(path: &Path, than: (i64, i64)) -> bool {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return true };
    time(&meta) > than || meta.is_dir() && is_newer_within(path, than)
}

fn is_newer_within(dir: &Path, than: (i64, i64)) -> bool {
    let Ok(mut entries) = std::fs::read_dir(dir) else { return true };
    entries.any(|entry| {
        if entry.as_ref().is_ok_and(|entry| is_of_tests(&entry.file_name())) {
            return false;
        }
        // Relative to the directory that is open: cheaper than by path.
        let Ok((entry, meta)) = entry.and_then(|e| e.metadata().map(|meta| (e, meta))) else {
            return true;
        };
        time(&meta) > than || meta.is_dir() && is_newer_within(&entry.path(), than)
    })
}

/// Whether the binary is built without what is in a directory of this name: half of the files.
fn is_of_tests(name: &OsStr) -> bool {
    ["tests", "txos-testkit", "txos-bench", "txos-skip"].iter().any(|tests| name == *tests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::time::{Duration, SystemTime};

    /// A tree like a checkout's, all of it an hour old, and a stamp that is half an hour old.
    fn checkout(name: &str) -> std::path::PathBuf {
        let root =
            std::env::temp_dir().join(format!("txos-launcher-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("crates/a/src/deep")).unwrap();
        for file in ["Cargo.toml", "Cargo.lock", "crates/a/src/deep/x.rs", "crates/a/build.rs"] {
            fs::write(root.join(file), "").unwrap();
        }
        fs::write(root.join("stamp"), "").unwrap();
        for name in [
            "Cargo.toml",
            "Cargo.lock",
            "crates/a/src/deep/x.rs",
            "crates/a/build.rs",
            "crates/a/src/deep",
            "crates/a/src",
            "crates/a",
            "crates",
        ] {
            set_age(&root.join(name), 3600);
        }
        set_age(&root.join("stamp"), 1800);
        root
    }

    fn set_age(path: &Path, seconds: u64) {
        let when = SystemTime::now() - Duration::from_secs(seconds);
        File::open(path).unwrap().set_modified(when).unwrap();
    }

    #[test]
    fn what_is_newer_is_found_wherever_it_is() {
        let root = checkout("newer");
        let stamp = root.join("stamp");
        assert!(!is_stale(&root, &stamp));
        for name in ["Cargo.toml", "Cargo.lock", "crates/a/src/deep/x.rs", "crates/a/build.rs"] {
            // In place: no directory changes.
            set_age(&root.join(name), 60);
            assert!(is_stale(&root, &stamp), "{name}");
            set_age(&root.join(name), 3600);
            assert!(!is_stale(&root, &stamp), "{name}");
        }
        // Nothing is built from tests.
        fs::create_dir_all(root.join("crates/txos-testkit/src")).unwrap();
        fs::create_dir_all(root.join("crates/a/tests")).unwrap();
        fs::write(root.join("crates/a/tests/x.rs"), "").unwrap();
        set_age(&root.join("crates/a"), 3600);
        set_age(&root.join("crates"), 3600);
        assert!(!is_stale(&root, &stamp));
        // A name that went, with what is left as old as before.
        fs::remove_file(root.join("crates/a/src/deep/x.rs")).unwrap();
        assert!(is_stale(&root, &stamp));
        set_age(&root.join("crates/a/src/deep"), 3600);
        assert!(!is_stale(&root, &stamp));
        fs::remove_file(root.join("Cargo.lock")).unwrap();
        assert!(is_stale(&root, &stamp));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_scripts_arguments_are_not_the_programs() {
        let root = checkout("arguments");
        let stamp = root.join("stamp");
        let words = |all: &[&OsStr]| all.iter().map(OsString::from).collect::<Vec<_>>();
        let [txos, mark, run] = ["txos", MARK, "run"].map(OsStr::new);
        let launched = words(&[txos, mark, root.as_os_str(), stamp.as_os_str(), run, mark]);
        assert_eq!(arguments(launched), words(&[txos, run, mark]));
        for plain in [&[txos][..], &[txos, run, mark], &[txos, mark, run]] {
            assert_eq!(arguments(words(plain)), words(plain));
        }
        // Stale, but without a script.
        fs::remove_file(&stamp).unwrap();
        let launched = words(&[txos, mark, root.as_os_str(), stamp.as_os_str(), run]);
        assert_eq!(arguments(launched), words(&[txos, run]));
        fs::remove_dir_all(root).unwrap();
    }
}
