//! The manual pages: they are rendered without a warning, and their examples do what they say.

use std::fs;
use std::path::{Path, PathBuf};

use txos_testkit::{Invocation, Lab, require, skip};

use crate::{c, in_lab, root};

/// All pages that are written by hand.
pub fn pages() -> Vec<PathBuf> {
    let dir = root().join("docs/man");
    let mut pages: Vec<PathBuf> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    pages
}

fn is_alias(text: &str) -> bool {
    text.starts_with(".so ")
}

/// The program in a page: what is between .EX and .EE after the heading EXAMPLES.
fn program(text: &str) -> Option<String> {
    let examples = &text[text.find("\n.SH EXAMPLES\n")?..];
    let (_, program) = examples.split_once("\n.EX\n")?;
    let (program, _) = program.split_once("\n.EE\n")?;
    let plain = program.replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\");
    Some(plain + "\n")
}

/// What each program finds, and what it has said and left when it succeeded.
const EXPECTED: &[(&str, &str, &str, &str)] = &[
    ("sys_xbegin", "", "", "app.conf:port = 8080 proxy.conf:backend = localhost:8080"),
    ("sys_xend", "echo wash > todo; echo eat > done", "", "done:eat done:wash"),
    ("sys_xabort", "echo kept > data", "inside 1, outside 0\n", "data:kept"),
    ("sys_xpause", "echo kept > data", "", "data:kept log:tried"),
    (
        "txos_strerror",
        "",
        "sys_xbegin: TX_CHECKPOINT: it can't be had together with TX_THREADS",
        "",
    ),
    ("txos_abort_reason", "echo old > data", "reason 2: ", "data:old data:changed"),
    ("txos_stats", "", "1 committed", ""),
    ("txos_exclude", "echo data > data", "read data", "data:data"),
    ("txos_abort_if", "", "reason 1: ", ""),
    ("txos_enlist", "", "30 left; the account refused to commit with the transaction: ", "paid:70"),
    ("txos_prepare", "", "", "offer:first"),
    ("txos_name", "", "found\n", ""),
    ("sys_xjoin", "", "both\n", "first:done second:done"),
    ("txos_signal_at_once", "", "1 inside, 1 outside\n", ""),
    ("txos", "echo old > data", "used\n", "data:old"),
];

#[test]
fn examples() {
    let mut seen = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        if is_alias(&text) {
            continue;
        }
        let name = page.file_stem().unwrap().to_string_lossy().into_owned();
        let (_, before, says, after) = EXPECTED
            .iter()
            .find(|(known, ..)| *known == name)
            .unwrap_or_else(|| panic!("nothing is known of the example in {name}"));
        let lab = Lab::new();
        let source = lab.dir().join("example.c");
        fs::write(&source, program(&text).unwrap_or_else(|| panic!("{name} has no example")))
            .unwrap();
        let program = lab.dir().join("example");
        c::compile(&source, &program);
        let _ = lab.native(before);
        let said = in_lab(&lab, &program).run().expect(0).text();
        assert!(said.contains(says), "{name}: {said}");
        let left = lab.native("grep '' /dev/null $(find . -type f | sort) || true").text();
        let left: Vec<&str> = left.lines().map(|line| line.trim_start_matches("./")).collect();
        assert_eq!(left.join(" "), *after, "{name}");
        seen.push(name);
    }
    assert_eq!(seen.len(), EXPECTED.len(), "{seen:?}");
}

/// Variables of the environment that pages speak of: the header does not.
const VARIABLES: &[&str] = &[
    "TXOS_GIVE_BACK",
    "TXOS_HELD_MAX",
    "TXOS_HELD_WAIT",
    "TXOS_HOLD_OUTPUT",
    "TXOS_REALM",
    "TXOS_STORE",
];

#[test]
fn every_function_of_the_header_has_a_page() {
    let header = fs::read_to_string(root().join("crates/txos-runtime/include/txos.h")).unwrap();
    let names = header.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let functions = ["sys_xbegin", "sys_xend", "sys_xabort", "sys_xpause", "sys_xresume"];
    let declared: Vec<&str> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '*', '/', '#', '}']))
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.split([' ', '*']).next_back())
        .filter(|name| name.starts_with("sys_x") || name.starts_with("txos_"))
        .collect();
    assert!(functions.iter().all(|name| declared.contains(name)), "{declared:?}");
    for name in &declared {
        let has = pages().iter().any(|page| page.file_stem().is_some_and(|stem| stem == *name));
        assert!(has, "{name} has no page");
    }
    // And what pages say of constants is there.
    let words: Vec<&str> = names.collect();
    for page in pages() {
        let text = fs::read_to_string(page).unwrap();
        let upper = |c: char| c.is_ascii_uppercase() || c == '_';
        for word in text.split(|c: char| !upper(c)) {
            let ours = word.starts_with("TX_") || word.starts_with("TXOS_");
            let variable = VARIABLES.contains(&word);
            assert!(!ours || variable || words.contains(&word), "{word}");
        }
    }
}

/// Renders a page of an installation, without a complaint; gives the text.
pub fn render(top: &Path, name: &str, section: &str) -> String {
    let done = Invocation::new("man")
        .args(["--warnings", "-P", "cat", "-M"])
        .arg(top)
        .args([section, name])
        .env("MANWIDTH", "80")
        .run()
        .expect(0);
    assert!(done.stderr.is_empty(), "{name}({section}): {}", done.stderr);
    // Where lines end depends on the width.
    done.text().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn pages_are_rendered_without_a_warning() {
    require!(skip::has("man") && skip::has("groff"), "there is no man or groff");
    let lab = Lab::new();
    for page in pages() {
        let file = page.file_name().unwrap().to_string_lossy().into_owned();
        let (name, section) = file.split_once('.').unwrap();
        let dir = lab.path(format!("man{}", &section[..1]));
        fs::create_dir_all(&dir).unwrap();
        fs::copy(&page, dir.join(&file)).unwrap();
        assert!(["2txos", "3txos", "7"].contains(&section), "{name}");
    }
    for page in pages() {
        let file = page.file_name().unwrap().to_string_lossy().into_owned();
        let (name, section) = file.split_once('.').unwrap();
        let text = render(lab.tree(), name, section);
        assert!(text.contains("NAME") && text.contains("SEE ALSO"), "{file}:\n{text}");
    }
}
