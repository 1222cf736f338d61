//! What the documents name exists: tests, programs of tests, long modes, files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The top of the checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).expect(name)
}

/// The Rust files in a directory and below it.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files
}

/// Every test as its program, its modules and its function: `["command", "revert", "…"]`. A program is the
/// directory with a `main.rs` or the file alone; in `src` it is the crate.
fn tests() -> Vec<Vec<String>> {
    let mut tests = Vec::new();
    for package in std::fs::read_dir(root().join("crates")).unwrap() {
        let package = package.unwrap().path();
        for file in [sources(&package.join("src")), sources(&package.join("tests"))].concat() {
            let top = file.ancestors().skip(1).find(|dir| dir.join("main.rs").is_file());
            let in_src = file.strip_prefix(package.join("src"));
            let from = match (in_src, top) {
                (Ok(relative), _) => package.file_name().map(Path::new).unwrap().join(relative),
                (_, Some(top)) => file.strip_prefix(top.parent().unwrap()).unwrap().to_owned(),
                (_, None) => PathBuf::from(file.file_name().unwrap()),
            };
            let modules: Vec<String> = from
                .with_extension("")
                .iter()
                .map(|name| name.to_str().unwrap().to_owned())
                .filter(|name| !["main", "mod", "lib"].contains(&name.as_str()))
                .collect();
            let text = std::fs::read_to_string(&file).unwrap();
            for after in text.split("#[test]\n").skip(1) {
                let function = after.split_once("fn ").unwrap().1;
                let name = function.split('(').next().unwrap().to_owned();
                tests.push([modules.clone(), vec![name]].concat());
            }
        }
    }
    tests
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The cells of a document's tables, without their heads.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = text.lines().filter(|line| line.starts_with("| "));
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
}

/// Whether a name like `revert`, `revert::a_test` or `a_test` leads to a test.
fn is_test(tests: &[Vec<String>], name: &str) -> bool {
    let parts: Vec<&str> = name.split("::").collect();
    tests.iter().any(|test| test.windows(parts.len()).any(|window| window == parts))
}

/// Whether a program has a test whose name contains a filter.
fn runs(tests: &[Vec<String>], program: &str, filter: &str) -> bool {
    tests.iter().any(|test| test[0] == program && test[1..].join("::").contains(filter))
}

/// Whether there is such a file, from the top or from the testkit.
fn is_file(name: &str) -> bool {
    root().join(name).exists() || root().join("crates/txos-testkit").join(name).exists()
}

#[test]
fn each_program_of_tests_lies_where_its_name_says() {
    let manifest: toml::Table = toml::from_str(&read("crates/txos-testkit/Cargo.toml")).unwrap();
    let tests = tests();
    for program in manifest["test"].as_array().unwrap() {
        let name = program["name"].as_str().unwrap();
        assert!(runs(&tests, name, ""), "{name} has no tests");
    }
}

#[test]
fn each_promise_of_security_names_tests_that_exist() {
    let (tests, text) = (tests(), read("SECURITY.md"));
    let of_promises: Vec<&str> = rows(&text).skip(1).flat_map(|row| quoted(row[1])).collect();
    assert!(of_promises.len() > 40, "{of_promises:?}");
    for name in of_promises {
        let package = root().join("crates").join(name).exists();
        assert!(is_test(&tests, name) || package || is_file(name), "SECURITY.md: {name}");
    }
    for name in quoted(&text).filter(|name| name.contains("::")) {
        assert!(is_test(&tests, name), "SECURITY.md: {name}");
    }
}

#[test]
fn each_command_in_a_document_runs_a_test() {
    let tests = tests();
    let pages = std::fs::read_dir(root().join("docs")).unwrap().map(|page| page.unwrap().path());
    let pages = pages.filter(|page| page.extension().is_some_and(|e| e == "md"));
    let others = [
        "README.md",
        "TESTS.md",
        "SECURITY.md",
        "bindings/python/README.md",
        "apps/README.md",
        "apps/ldap/README.md",
    ];
    let more = ["bindings/rust/txos", "bindings/java", "bindings/go", "bindings/node", "apps/wiki"]
        .map(|dir| format!("{dir}/README.md"));
    let others = others.iter().map(|p| root().join(p)).chain(more.iter().map(|p| root().join(p)));
    for page in pages.chain(others) {
        let text = std::fs::read_to_string(&page).unwrap();
        for command in text.lines().flat_map(|line| line.split("--test ").skip(1)) {
            let end = |c: char| !c.is_ascii_lowercase() && !"_: ".contains(c);
            let mut words = command.split(end).next().unwrap().split_whitespace();
            let Some(program) = words.next() else { continue };
            let filter = words.next().unwrap_or("");
            assert!(runs(&tests, program, filter), "{}: {program} {filter}", page.display());
        }
    }
}

#[test]
fn each_file_and_test_in_reliability_exists() {
    let (tests, text) = (tests(), read("docs/reliability.md"));
    let places = ["crates/", "src/", "tests/", "fuzz/"];
    for name in quoted(&text) {
        if places.iter().any(|place| name.starts_with(place)) {
            let name = name.split(' ').next().unwrap();
            assert!(is_file(name), "reliability.md: {name}");
        }
        let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if plain && name.matches('_').count() > 2 {
            assert!(is_test(&tests, name), "reliability.md: {name}");
        }
    }
    for row in rows(&text).filter(|row| row.len() == 5).skip(1) {
        for name in quoted(row[3]).filter(|name| !name.contains(' ')) {
            assert!(runs(&tests, name, ""), "reliability.md: {name}");
        }
    }
}

/// The text of every file of these kinds below a directory, but for what is built there.
fn texts(dir: &Path, kinds: &[&str]) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        let built = ["target", "node_modules", "prebuilt"].iter().any(|name| path.ends_with(name));
        if path.is_dir() && !path.is_symlink() && !built {
            all += &texts(&path, kinds);
        } else if path.extension().is_some_and(|e| kinds.iter().any(|kind| e == *kind)) {
            all += &std::fs::read_to_string(&path).unwrap();
        }
    }
    all
}

#[test]
fn each_cell_of_the_table_of_languages_names_tests_that_exist() {
    let (tests, text) = (tests(), read("docs/bindings.md"));
    let bindings = root().join("bindings");
    let of = |dir: &str, kind: &str| texts(&bindings.join(dir), &[kind]);
    let c = texts(&root().join("crates/txos-runtime/tests/c"), &["c"]);
    let header = read("crates/txos-runtime/include/txos.h");
    let (rust, python, java) = (of("rust", "rs"), of("python", "py"), of("java", "java"));
    let (go, node) = (of("go", "go"), of("node", "js"));
    let mut cells = 0;
    let head = ["", "C", "Rust", "Python", "Java", "Go", "Node.js"];
    for row in rows(&text).filter(|row| row.len() == head.len()).skip(1) {
        for (language, cell) in head.iter().zip(&row).skip(1) {
            assert!(*cell == "—" || cell.contains('`'), "{language}: {row:?}");
            for name in quoted(cell) {
                let there = match *language {
                    "C" => {
                        c.contains(&format!("SCENARIO({name})"))
                            || header.contains(&format!("#define {name} "))
                    }
                    "Rust" => {
                        rust.contains(&format!("#[test]\nfn {name}()"))
                            || rust.contains(&format!("#[test]\n    fn {name}()"))
                    }
                    "Python" => python.contains(&format!("    def {name}(self)")),
                    "Java" => java.contains(&format!("    public void {name}()")),
                    "Go" => go.contains(&format!("\nfunc {name}(t *testing.T)")),
                    _ => node.contains(&format!("\ntest('{name}', ")),
                };
                assert!(there || is_test(&tests, name), "docs/bindings.md: {language}: {name}");
                cells += 1;
            }
        }
    }
    assert!(cells > 90, "{cells}");
}

/// The rows of TESTS.md, its head, its script, and what each row runs: in the short mode, in the long one.
fn map() -> Vec<(String, String, String)> {
    let text = read("TESTS.md");
    let rows = rows(&text).filter(|row| row.len() == 4 && row[0] != "rig");
    rows.map(|row| (row[0].to_owned(), row[2].to_owned(), row[3].to_owned())).collect()
}

#[test]
fn each_row_of_the_map_of_tests_runs_a_test() {
    let tests = tests();
    let mut mapped = BTreeSet::new();
    for (rig, short, _) in map() {
        for command in quoted(&short).filter(|command| !command.starts_with("./test")) {
            let (program, filter) = command.split_once(' ').unwrap_or((command, ""));
            assert!(runs(&tests, program, filter), "{rig}: {command}");
            mapped.insert(program.to_owned());
            mapped.insert(format!("{program} {}", filter.trim_end_matches("::")));
        }
    }
    // No program, and no module of the command's, is left out.
    let kit = root().join("crates/txos-testkit/tests");
    for file in sources(&kit) {
        let dir = file.parent().unwrap();
        let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
        let program = match name(&file).as_str() {
            "main" => name(dir),
            // A module of a program that lies there itself.
            other if dir.parent() == Some(&kit) && dir.join("main.rs").exists() => {
                format!("{} {other}", name(dir))
            }
            other if dir.parent() == Some(&kit) => other.to_owned(),
            _ => continue,
        };
        assert!(mapped.contains(&program), "TESTS.md leaves out: {program}");
    }
}

#[test]
fn the_long_modes_are_the_same_everywhere() {
    let mut in_code = BTreeSet::new();
    for file in sources(&root().join("crates")) {
        let text = std::fs::read_to_string(&file).unwrap();
        in_code.extend(text.split("skip::long(\"").skip(1).filter_map(|after| {
            let (name, _) = after.split_once('"')?;
            name.chars().all(|c| c.is_ascii_lowercase()).then(|| name.to_owned())
        }));
    }
    let script = read("test");
    // The script itself has a mode where it has a pattern for it.
    in_code.extend(script.split("*,").skip(1).filter_map(|after| {
        let (name, _) = after.split_once(",*)")?;
        Some(name.to_owned())
    }));
    let in_map: BTreeSet<String> = map()
        .iter()
        .flat_map(|row| quoted(&row.2).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert_eq!(in_map, in_code, "TESTS.md (left) and the code (right)");
    let usage: String = script.lines().take_while(|line| line.starts_with('#')).collect();
    for mode in &in_code {
        assert!(usage.contains(mode.as_str()), "./test does not name {mode}");
    }
}
