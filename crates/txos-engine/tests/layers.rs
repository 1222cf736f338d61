//! The engine's layers: a module imports only from modules above it in this list.
#![allow(clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Leaves first.
const ORDER: &[&str] = &[
    "hash",
    "id",
    "stamp",
    "object",
    "path",
    "program",
    "show",
    "conflict",
    "error",
    "codec",
    "sys_secure",
    "sys_owner",
    "rights",
    "patience",
    "sys_xattr",
    "sys",
    "sys_copy",
    "sys_tree",
    "sys_handle",
    "sys_lock",
    "sys_sched",
    "machine",
    "lease",
    "mounts",
    "grain",
    "version",
    "scope",
    "nesting",
    "contention",
    "realm",
    "runs",
    "places",
    "readset",
    "store",
    "order",
    "changeset",
    "plan",
    "journal",
    "commit",
    "txn",
    "fuzzing",
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("the sources are there") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The modules that a text names as `crate::MODULE`, comments and tests left out.
fn imports(text: &str) -> Vec<String> {
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let product = product.split("#[cfg(all(test").next().unwrap_or_default();
    let mut found = Vec::new();
    for line in product.lines() {
        let code = line.split("//").next().unwrap_or_default();
        for (_, rest) in code.match_indices("crate::").map(|(at, m)| (at, &code[at + m.len()..])) {
            let list =
                rest.strip_prefix('{').map(|list| list.split('}').next().unwrap_or_default());
            let names =
                list.unwrap_or(rest).split(',').take(if list.is_some() { usize::MAX } else { 1 });
            for name in names {
                let name: String = name
                    .trim()
                    .chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                    .collect();
                if name.starts_with(|c: char| c.is_ascii_lowercase()) {
                    found.push(name);
                }
            }
        }
    }
    found
}

#[test]
fn a_module_imports_only_from_those_above_it() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&top, &mut files);
    let rank: BTreeMap<&str, usize> = ORDER.iter().enumerate().map(|(n, m)| (*m, n)).collect();
    let mut wrong = Vec::new();
    for file in files {
        let inner = file.strip_prefix(&top).expect("below the sources");
        let name = inner.components().next().expect("a name").as_os_str().to_string_lossy();
        let module = name.trim_end_matches(".rs").to_owned();
        let is_test = inner.iter().any(|part| {
            let part = part.to_string_lossy();
            ["tests.rs", "fuzz.rs", "model"].iter().any(|t| part.starts_with(t))
        });
        if module == "lib" || is_test {
            continue;
        }
        let Some(own) = rank.get(&module[..]) else {
            wrong.push(format!("{module} is not in the list"));
            continue;
        };
        for other in imports(&fs::read_to_string(&file).expect("a source")) {
            match rank.get(&other[..]) {
                Some(theirs) if theirs <= own => {}
                Some(_) => wrong.push(format!("{} imports from {other}", inner.display())),
                // Functions and macros at the top of the crate.
                None if ["process_group"].contains(&&other[..]) => {}
                None => wrong.push(format!(
                    "{} imports from {other}, which is not in the list",
                    inner.display()
                )),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
