//! The npm package: made by `dist/node`, installed into an empty project, used by its own tests there.

use std::fs;
use std::path::{Path, PathBuf};

use txos_testkit::{Invocation, Lab, binary, require, skip};

use crate::{first_program, in_lab, old_library, root, survives_kills};

fn has_node() -> bool {
    let headers = "f=$(dirname \"$(dirname \"$(node -p process.execPath)\")\")/include/node/node_api.h; \
                   test -e \"$f\" || test -e /usr/include/node/node_api.h";
    ["node", "npm", "cc"].into_iter().all(skip::has)
        && Invocation::new("sh").args(["-c", headers]).run().code() == 0
        && Invocation::new("node").args(["--test", "/dev/null"]).run().code() != 9
}

/// npm, which asks nobody and writes nothing outside of the lab.
fn npm(lab: &Lab) -> Invocation {
    let home = lab.dir().join("npm");
    in_lab(lab, "npm").env("HOME", &home).env("npm_config_cache", home.join("cache"))
}

/// A project with nothing but the package; gives its directory.
fn project(lab: &Lab) -> PathBuf {
    let made = lab.dir().join("made");
    fs::create_dir_all(lab.dir().join("npm")).unwrap();
    let told = in_lab(lab, root().join("dist/node"))
        .arg(&made)
        .env("TXOS_LIB", binary::library())
        .env("HOME", lab.dir().join("npm"))
        .env("npm_config_cache", lab.dir().join("npm/cache"))
        .run()
        .expect(0)
        .text();
    let package = PathBuf::from(told.trim_end());
    assert_eq!(package, made.join(concat!("txos-", env!("CARGO_PKG_VERSION"), ".tgz")));
    let project = lab.dir().join("project");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("package.json"), "{ \"private\": true }\n").unwrap();
    let install = ["install", "--offline", "--no-audit", "--no-fund", "--ignore-scripts"];
    let _ = npm(lab).args(install).arg(&package).dir(&project).run().expect(0);
    project
}

#[test]
fn the_package_is_installed_and_used() {
    require!(has_node(), "there is no Node.js with npm, its headers and a C compiler");
    let lab = Lab::new();
    let project = project(&lab);
    let tests = project.join("test");
    fs::create_dir(&tests).unwrap();
    let file = "transactions.test.js";
    fs::copy(root().join("bindings/node/test").join(file), tests.join(file)).unwrap();
    let _ = in_lab(&lab, "node")
        .arg("--test")
        .arg(tests.join(file))
        .dir(&project)
        .env("TXOS_TEST_DIR", lab.tree())
        .run()
        .expect(0);
    let used = "require('txos').inTransaction(); \
                console.log(require('fs').readFileSync('/proc/self/maps', 'utf8'))";
    let maps = in_lab(&lab, "node").args(["-e", used]).dir(&project).run().expect(0).text();
    let mapped = maps.lines().find(|line| line.ends_with("libtxos.so")).expect("a library");
    assert!(mapped.contains(&*project.to_string_lossy()), "{mapped}");
    the_first_program(&lab, &project);
    declarations(&lab, &project);
}

/// The program of README.
fn the_first_program(lab: &Lab, project: &Path) {
    let program = project.join("first.js");
    fs::write(&program, first_program("bindings/node/README.md", "js")).unwrap();
    let _ = in_lab(lab, "node").arg(&program).run().expect(0);
    assert_eq!(lab.read("app.conf"), "port = 8080\n");
    assert_eq!(lab.read("proxy.conf"), "backend = localhost:8080\n");
    // The second file can't be written: the first has not changed.
    let _ = lab.native("echo old > app.conf; rm proxy.conf; mkdir proxy.conf");
    let failed = in_lab(lab, "node").arg(&program).run().expect(1);
    assert!(failed.stderr.contains("EISDIR"), "{}", failed.stderr);
    assert_eq!(lab.read("app.conf"), "old\n");
    // A library that is too old.
    let old = in_lab(lab, "node").arg(&program).env("TXOS_LIB", old_library(lab)).run().expect(1);
    let words = &old.stderr;
    assert!(words.contains("LibraryError") && words.contains("older than this package"), "{words}");
}

/// Packages of others change the same as natively, or nothing. Needs the npm registry, or what npm has kept of it.
#[test]
fn what_others_have_written() {
    require!(skip::long("bindings"), "it needs a network: ./test --long bindings");
    require!(has_node(), "there is no Node.js with npm, its headers and a C compiler");
    let lab = Lab::new();
    let project = project(&lab);
    let packages = ["fs-extra@11", "graceful-fs@4", "rimraf@6", "tar@7", "write-file-atomic@6"];
    let _ = Invocation::new("npm")
        .args(["install", "--no-audit", "--no-fund", "--ignore-scripts"])
        .args(packages)
        .dir(&project)
        .run()
        .expect(0);
    let program = project.join("foreign.js");
    fs::copy(root().join("bindings/node/test/foreign/packages.js"), &program).unwrap();
    let told = in_lab(&lab, "node").arg(&program).run().expect(0).text();
    assert_eq!(told, "20\n");
}

/// TypeScript's compiler, in its strict mode: a program that uses all that is declared is sound, and each line of another
/// one is refused. Needs the npm registry, or what npm has kept of it.
#[test]
fn the_declarations_are_checked_by_typescript() {
    require!(skip::long("bindings"), "it needs a network: ./test --long bindings");
    require!(has_node(), "there is no Node.js with npm, its headers and a C compiler");
    let lab = Lab::new();
    let project = project(&lab);
    let install = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "typescript@5"];
    let installed = Invocation::new("npm").args(install).dir(&project).run();
    require!(installed.code() == 0, "npm has no typescript: {}", installed.stderr);
    let programs = root().join("bindings/node/test/types");
    for name in ["uses.ts", "refused.ts"] {
        fs::copy(programs.join(name), project.join(name)).unwrap();
    }
    let declarations = fs::read_to_string(root().join("bindings/node/index.d.ts")).unwrap();
    let uses = fs::read_to_string(programs.join("uses.ts")).unwrap();
    let used: Vec<&str> = uses.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    for line in declarations.lines().filter_map(|line| line.strip_prefix("export ")) {
        let name = line.split(|c: char| !c.is_ascii_alphanumeric()).nth(1).unwrap();
        assert!(used.contains(&name), "{name} is not used by uses.ts");
    }
    let check = |files: &[&str]| {
        Invocation::new(project.join("node_modules/.bin/tsc"))
            .args(["--strict", "--noEmit", "--target", "es2022", "--module", "nodenext"])
            .args(files)
            .dir(&project)
            .run()
    };
    let _ = check(&["uses.ts", "refused.ts"]).expect(0);
    // The other way round: without what expects an error there is one for each.
    let refused = fs::read_to_string(programs.join("refused.ts")).unwrap();
    let bare = refused.replace("// @ts-expect-error", "//");
    fs::write(project.join("refused.ts"), bare).unwrap();
    let told = check(&["refused.ts"]).expect(2).text();
    let (errors, expected) =
        (told.matches(": error TS").count(), refused.matches("@ts-expect-error").count());
    assert_eq!(errors, expected, "{told}");
}

/// See [`survives_kills`].
const COUNTS: &str = r"
const fs = require('node:fs');
const path = require('node:path');
const { Worker, workerData } = require('node:worker_threads');
const txos = require('txos');
const [dir, reports] = process.argv.slice(2);

// Writes the number in place, or a file that takes the other's place.
function add(name, replace) {
  const file = path.join(dir, name);
  const to = replace ? file + '.new' : file;
  fs.writeFileSync(to, String(Number(fs.readFileSync(file, 'utf8')) + 1));
  fs.renameSync(to, file);
}

const name = workerData ?? '0';
if (name === '0') for (const workerData of ['1', '2']) new Worker(__filename, { workerData, argv: [dir, reports] });
const report = fs.openSync(path.join(reports, name), 'a');
for (let n = 0; ; n++) {
  txos.transaction(() => { add(name, n % 2 === 0); add('total', n % 3 === 0); }, { durable: false, retries: Infinity });
  fs.writeSync(report, '.');
}
";

#[test]
fn killed_at_random() {
    require!(has_node(), "there is no Node.js with npm, its headers and a C compiler");
    let lab = Lab::new();
    let program = project(&lab).join("counts.js");
    fs::write(&program, COUNTS).unwrap();
    survives_kills(&lab, skip::long("bindings"), &|| in_lab(&lab, "node").arg(&program));
}

/// What is declared is there, and nothing else, and each says what it is.
fn declarations(lab: &Lab, project: &Path) {
    let text = fs::read_to_string(root().join("bindings/node/index.d.ts")).unwrap();
    for (before, line) in text.lines().zip(text.lines().skip(1)) {
        let member = line.starts_with("  ") && line.ends_with(';') && !line.contains('*');
        let documented = before.ends_with("*/");
        assert!(documented || !(member || line.starts_with("export ")), "{line}");
    }
    let declared = text.lines().filter_map(|line| {
        let rest = line.strip_prefix("export ")?;
        let rest = rest.strip_prefix("function ").or_else(|| rest.strip_prefix("class "))?;
        rest.split(|c: char| !c.is_ascii_alphanumeric()).next()
    });
    let mut declared: Vec<&str> = declared.collect();
    declared.sort_unstable();
    let list = "console.log(Object.keys(require('txos')).sort().join(' '))";
    let there = in_lab(lab, "node").args(["-e", list]).dir(project).run().expect(0).text();
    assert_eq!(there.trim_end(), declared.join(" "));
}

/// See [`crate::producers`].
const PRODUCERS: &str = r"
const fs = require('node:fs');
const txos = require('txos');

let attempts = 0;
const noGood = new Error('no good');
const say = (text) => fs.writeSync(1, text + '\n');

function line() {
  const byte = Buffer.alloc(1);
  let text = '';
  while (fs.readSync(0, byte) === 1 && byte[0] !== 10) text += byte;
  return text;
}

function produce() {
  attempts++;
  fs.readFileSync('base');
  let told = '';
  if (attempts === 1) {
    say('begun');
    told = line();
  }
  if (told !== 'nothing') fs.writeFileSync('parts', 'new');
  if (attempts === 1) {
    say('made');
    if (line() === 'abort') throw noGood;
  }
}

function consume() {
  attempts++;
  say('begun');
  if (!fs.existsSync('parts')) {
    say('early');
    txos.again('there are no parts');
  }
  fs.writeFileSync('result', fs.readFileSync('parts'));
  say('used');
}

try {
  if (process.argv[2] === 'produce') txos.transaction(produce, { name: 'parts' });
  else txos.transaction(consume, { after: ['parts'] });
  say(`attempts ${attempts}`);
} catch (error) {
  if (error === noGood) process.exit(3);
  if (!(error instanceof txos.NotProducedError)) throw error;
  say(`${error.message} ${error.errno}`);
  process.exit(4);
}
";

#[test]
fn node_comes_after() {
    require!(has_node(), "there is no Node.js with npm, its headers and a C compiler");
    let lab = Lab::new();
    let program = project(&lab).join("producers.js");
    fs::write(&program, PRODUCERS).unwrap();
    crate::producers::comes_after(&|lab| in_lab(lab, "node").arg(&program));
}
