//! The Java package: its jar built, its README run in a clean directory, its checks and its storm run with
//! every virtual machine and every collector that there is.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use txos_testkit::{Done, Invocation, Lab, binary, history, random, require, require_some, skip};

use crate::{in_lab, root};

fn has_what_it_takes() -> bool {
    ["java", "javac", "jar", "cc"].into_iter().all(skip::has)
}

/// What was built for all of these tests.
struct Built {
    jar: PathBuf,
    /// The classes of the checks.
    checks: PathBuf,
    /// Four hundred small classes, for transactions to load.
    classes: PathBuf,
}

/// How many of them.
const CLASSES: usize = 400;

fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let top = Path::new(env!("CARGO_TARGET_TMPDIR")).join("java");
        let _ = std::fs::remove_dir_all(&top);
        let (checks, storm) = (top.join("checks"), top.join("storm"));
        std::fs::create_dir_all(storm.join("source")).unwrap();
        let told = Invocation::new(root().join("bindings/java/build"))
            .arg(&top)
            .env("TXOS_LIB", binary::library())
            .run()
            .expect(0)
            .text();
        let jar = PathBuf::from(told.trim_end());
        let _ = javac(&jar, &checks, &java_files(&root().join("bindings/java/src/test/java/txos")));
        for i in 0..CLASSES {
            let source = format!(
                "package storm; public class C{i} {{ \
                 public static final Object VALUE = new String(\"value {i}\"); }}"
            );
            std::fs::write(storm.join(format!("source/C{i}.java")), source).unwrap();
        }
        let _ = javac(&jar, &storm.join("classes"), &java_files(&storm.join("source")));
        let classes = top.join("storm.jar");
        let _ = Invocation::new("jar")
            .args(["--create", "--file"])
            .arg(&classes)
            .arg("-C")
            .arg(storm.join("classes"))
            .arg(".")
            .run()
            .expect(0);
        Built { jar, checks, classes }
    })
}

fn java_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn javac(jar: &Path, out: &Path, sources: &[PathBuf]) -> Done {
    Invocation::new("javac")
        .args(["-Xlint:all,-try", "-Werror", "--release", "17", "-cp"])
        .arg(jar)
        .arg("-d")
        .arg(out)
        .args(sources)
        .run()
        .expect(0)
}

fn class_path(parts: &[&Path]) -> String {
    let parts: Vec<_> = parts.iter().map(|part| part.display().to_string()).collect();
    parts.join(":")
}

/// Virtual machines of this machine, with their versions: the one in PATH first.
fn machines() -> Vec<(u32, PathBuf)> {
    let mut found = vec![PathBuf::from("java")];
    let installed = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    found.extend(installed.map(|entry| entry.path().join("bin/java")).filter(|path| path.exists()));
    let version = |java: PathBuf| {
        let told = Invocation::new(&java).arg("-XshowSettings:properties").arg("-version").run();
        let line = told.stderr.lines().find_map(|line| {
            line.trim().strip_prefix("java.specification.version = ").map(str::to_owned)
        });
        Some((line?.parse().ok()?, java))
    };
    let mut machines: Vec<_> = found.into_iter().filter_map(version).collect();
    machines.sort_by_key(|(version, java)| (java.is_absolute(), *version));
    machines.dedup_by_key(|(version, _)| *version);
    machines
}

/// The README's program, in a directory with nothing but the jar.
#[test]
fn java_readme_runs_as_written() {
    require!(has_what_it_takes(), "there is no JDK, or no C compiler");
    let lab = Lab::new();
    let readme = std::fs::read_to_string(root().join("bindings/java/README.md")).unwrap();
    let program = readme.split("```java\n").nth(1).unwrap().split("```").next().unwrap();
    std::fs::write(lab.path("First.java"), program).unwrap();
    std::fs::copy(&built().jar, lab.path("txos-0.1.0.jar")).unwrap();
    for command in ["javac -cp txos-0.1.0.jar First.java", "java -cp txos-0.1.0.jar:. First"] {
        assert!(readme.contains(command), "{command}");
    }
    let _ = in_lab(&lab, "javac").args(["-cp", "txos-0.1.0.jar", "First.java"]).run().expect(0);
    // A place of its own: other tests' virtual machines leave something for a moment.
    let place = lab.dir().join("temporary");
    std::fs::create_dir(&place).unwrap();
    for visit in 1..=2 {
        let told = in_lab(&lab, "java")
            .args(["-cp", "txos-0.1.0.jar:.", "First"])
            .env("JAVA_TOOL_OPTIONS", format!("-Djava.io.tmpdir={}", place.display()))
            .run()
            .expect(0);
        assert_eq!(told.text(), format!("visit {visit}\n"));
    }
    assert_eq!(lab.read("app.conf"), "port = 8080\n");
    assert_eq!(lab.read("proxy.conf"), "backend = localhost:8080\n");
    // The library comes from the jar, and nothing of it is left.
    let left = std::fs::read_dir(&place).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn java_checks_pass() {
    require!(has_what_it_takes(), "there is no JDK, or no C compiler");
    let paths = class_path(&[&built().jar, &built().checks]);
    for (version, java) in machines().into_iter().filter(|(version, _)| *version >= 17) {
        let lab = Lab::new();
        let mut checks = in_lab(&lab, &java);
        if version >= 24 {
            checks = checks.arg("--enable-native-access=ALL-UNNAMED");
        }
        let done = checks.args(["-cp", &paths, "txos.Checks"]).arg(lab.tree()).run().expect(0);
        let told = done.text();
        assert!(told.contains(" 0 failed") && told.contains("line three after both"), "{done:?}");
        let virtual_ =
            if version >= 21 { "virtual threads are refused" } else { "no virtual threads" };
        assert!(told.contains(virtual_), "{done:?}");
    }
}

/// What the class library opens when it is first used, and keeps, can be used after a transaction that was
/// aborted, or had lost before the first use.
#[test]
fn java_first_uses_are_not_for_good() {
    require!(has_what_it_takes(), "there is no JDK, or no C compiler");
    let paths = class_path(&[&built().jar, &built().checks]);
    for (version, java) in machines().into_iter().filter(|(version, _)| *version >= 17) {
        let native: &[&str] =
            if version >= 24 { &["--enable-native-access=ALL-UNNAMED"] } else { &[] };
        for how in ["aborted", "lost"] {
            let lab = Lab::new();
            // A jar that the virtual machine knows nothing of.
            let jar = lab.path("plugin.jar");
            std::fs::copy(&built().classes, &jar).unwrap();
            let uses = in_lab(&lab, &java).args(native).args(["-cp", &paths, "txos.FirstUse"]);
            let told = uses.arg(lab.tree()).arg(how).arg(&jar).run().expect(0).text();
            assert_eq!(told, "used 14\n", "{how}");
        }
    }
}

#[test]
fn java_documentation_is_whole() {
    require!(has_what_it_takes() && skip::has("javadoc"), "there is no JDK, or no C compiler");
    let lab = Lab::new();
    let _ = Invocation::new(root().join("bindings/java/build"))
        .arg("--javadoc")
        .arg(lab.dir().join("doc"))
        .run()
        .expect(0);
    assert!(lab.dir().join("doc/txos/txos/SysTransaction.html").exists());
}

/// Runs a storm; gives what it said.
fn storm(lab: &Lab, java: &Path, options: &[&str], process: u32, transactions: u32) -> Invocation {
    let histories = lab.dir().join("histories");
    std::fs::create_dir_all(&histories).unwrap();
    in_lab(lab, java)
        .args(options)
        .args(["-Xmx96m", "-cp"])
        .arg(class_path(&[&built().jar, &built().checks, &built().classes]))
        .arg("txos.Storm")
        .arg(lab.tree())
        .arg(histories)
        .args([process.to_string(), transactions.to_string()])
        .args(["8", "16", &random::seed().to_string()])
}

fn check_history(lab: &Lab) -> usize {
    let history = history::log::read_all(&lab.dir().join("histories")).unwrap();
    history::check(&history).expect_clean();
    let committed = history::Outcome::Committed;
    history.transactions.iter().filter(|t| t.outcome == committed).count()
}

/// Money moves between files in eight threads, in a heap that is too small, with every collector: nothing is
/// lost, no transaction sees half of another, and every class that a transaction loads is there.
#[test]
fn java_storm_with_every_collector() {
    require!(has_what_it_takes(), "there is no JDK, or no C compiler");
    let long = skip::long("java");
    let (processes, transactions) = if long { (5, 2000) } else { (1, 300) };
    let mut used = Vec::new();
    for (version, java) in machines().into_iter().filter(|(version, _)| *version >= 17) {
        for collector in ["Serial", "Parallel", "G1", "Shenandoah", "Z"] {
            // In the short run the newer ones show what is theirs: ZGC with generations.
            if !long && version != 17 && collector != "Z" {
                continue;
            }
            let option = format!("-XX:+Use{collector}GC");
            if Invocation::new(&java).args([&option, "-version"]).run().code() != 0 {
                continue;
            }
            let lab = Lab::new();
            let native = "--enable-native-access=ALL-UNNAMED";
            let options: &[&str] = if version >= 24 { &[&option, native] } else { &[&option] };
            for process in 0..processes {
                let done = storm(&lab, &java, options, process, transactions).run().expect(0);
                assert!(done.text().starts_with("committed "), "{done:?}");
            }
            let committed = check_history(&lab);
            let all = (processes * transactions) as usize;
            assert!(committed > all / 2 && committed <= all, "{option}: {committed}");
            used.push((version, option));
        }
    }
    assert!(used.len() >= 3, "{used:?}");
}

/// Processes that are killed in the middle: what they had committed is there, and nothing else.
#[test]
fn java_storm_is_killed() {
    require!(has_what_it_takes(), "there is no JDK, or no C compiler");
    let rounds = if skip::long("java") { 30 } else { 2 };
    let lab = Lab::new();
    let _ = storm(&lab, Path::new("java"), &[], 0, 20).run().expect(0);
    let mut random = random::Random::new(random::seed());
    for process in 1..=rounds {
        let mut running = storm(&lab, Path::new("java"), &[], process, 1_000_000).start();
        // Once each of its threads has a history, after so many more bytes of it.
        let first = lab.dir().join(format!("histories/{}.history", process * 1000 + 1));
        let size = 2_000 + random.below(40_000) as u64;
        while std::fs::metadata(&first).map_or(0, |file| file.len()) < size && !running.ended() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        running.signal(rustix::process::Signal::KILL);
        assert!(running.wait().killed());
    }
    let _ = storm(&lab, Path::new("java"), &[], rounds + 1, 50).run().expect(0);
    let _ = check_history(&lab);
}

#[test]
fn java_says_what_is_wrong_with_the_library() {
    require!(has_what_it_takes(), "there is no JDK, or no C compiler");
    let lab = Lab::new();
    let program = "import txos.*;\n\
        public class Try { public static void main(String[] a) {\n\
          for (int i = 0; i < 2; i++) {\n\
            try { Transactions.run(() -> 1); System.out.println(\"begun\"); }\n\
            catch (TransactionsUnavailableException e) { System.out.println(e.getMessage()); }\n\
          }\n\
        } }\n";
    std::fs::write(lab.path("Try.java"), program).unwrap();
    let _ = in_lab(&lab, "javac").arg("-cp").arg(&built().jar).arg("Try.java").run().expect(0);
    let paths = class_path(&[&built().jar, Path::new(".")]);
    let with = |options: &[&str]| {
        in_lab(&lab, "java").args(options).args(["-cp", &paths, "Try"]).run().expect(0).text()
    };
    let told = with(&[]);
    assert_eq!(told, "begun\nbegun\n");
    let told = with(&["-Dtxos.library=/nonexistent/libtxos.so"]);
    assert!(told.matches("/nonexistent/libtxos.so").count() >= 2, "{told}");
    assert!(told.contains("txos.library may name one"), "{told}");
    // One of before.
    std::fs::write(
        lab.path("old.c"),
        "const char *txos_version(void) { return \"0.0.1\"; } int sys_xbegin(int f, ...) { return f; }",
    )
    .unwrap();
    let _ = in_lab(&lab, "cc").args(["-shared", "-fPIC", "-o", "old.so", "old.c"]).run().expect(0);
    let told = with(&[&format!("-Dtxos.library={}", lab.path("old.so").display())]);
    assert!(told.contains("0.0.1, which is too old"), "{told}");
    // A virtual machine that doesn't permit it.
    let told = with(&["-Djava.security.manager"]);
    assert!(told.contains("does not permit"), "{told}");
    let newer = machines().into_iter().find(|(version, _)| *version >= 24);
    let (_, java) = require_some!(newer, "there is no Java 24 or later");
    let denied = ["--illegal-native-access=deny", "-cp", &paths, "Try"];
    let told = in_lab(&lab, java).args(denied).run().expect(0).text();
    assert!(told.contains("--enable-native-access=ALL-UNNAMED"), "{told}");
}

/// JUnit runs the checks. Needs Maven Central, or what Maven has kept of it.
#[test]
fn java_by_maven() {
    require!(skip::long("java"), "it needs a network: ./test --long java");
    require!(has_what_it_takes() && skip::has("mvn"), "there is no JDK, C compiler or Maven");
    let lab = Lab::new();
    let _ = in_lab(&lab, "mvn")
        .args(["--batch-mode", "--no-transfer-progress", "-f"])
        .arg(root().join("bindings/java/pom.xml"))
        .arg(format!("-Dtxos.test.dir={}", lab.tree().display()))
        .arg("package")
        .env("TXOS_LIB", binary::library())
        .run()
        .expect(0);
}

/// SQLite and Lucene, changed together. Needs Maven Central as well.
#[test]
fn java_runs_what_others_have_written() {
    require!(skip::long("java"), "it needs a network: ./test --long java");
    require!(has_what_it_takes() && skip::has("mvn"), "there is no JDK, C compiler or Maven");
    let lab = Lab::new();
    let jars = lab.dir().join("jars");
    let foreign = root().join("bindings/java/src/foreign");
    let _ = in_lab(&lab, "mvn")
        .args(["--batch-mode", "--no-transfer-progress", "-f"])
        .arg(foreign.join("pom.xml"))
        .arg("dependency:copy-dependencies")
        .arg(format!("-DoutputDirectory={}", jars.display()))
        .run()
        .expect(0);
    let paths = format!("{}:{}/*", built().jar.display(), jars.display());
    let classes = lab.dir().join("classes");
    let _ = in_lab(&lab, "javac")
        .args(["-cp", &paths, "-d"])
        .arg(&classes)
        .arg(foreign.join("Foreign.java"))
        .run()
        .expect(0);
    let told = in_lab(&lab, "java")
        .args(["-cp", &format!("{paths}:{}", classes.display()), "Foreign"])
        .arg(lab.tree())
        .run()
        .expect(0)
        .text();
    let expected = "aborted: [], 0 documents\ncommitted: [Ada], 50 documents\n\
        aborted: [Ada], 50 documents\ncommitted: [Ada, Bob], 100 documents\n";
    assert_eq!(told, expected);
}

/// See [`crate::producers`].
const PRODUCERS: &str = r#"
import java.io.*;
import java.nio.file.*;
import txos.*;

public class Producers {
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));
    private static final Path PARTS = Path.of("parts");
    private static int attempts;

    private static void produce() throws IOException {
        attempts++;
        Files.readString(Path.of("base"));
        String line = "";
        if (attempts == 1) {
            System.out.println("begun");
            line = INPUT.readLine();
        }
        if (!line.equals("nothing")) {
            Files.writeString(PARTS, "new");
        }
        if (attempts == 1) {
            System.out.println("made");
            if (INPUT.readLine().equals("abort")) {
                throw new IllegalStateException("no good");
            }
        }
    }

    private static void consume() throws IOException {
        attempts++;
        System.out.println("begun");
        if (!Files.exists(PARTS)) {
            System.out.println("early");
            throw Transactions.again("there are no parts");
        }
        Files.writeString(Path.of("result"), Files.readString(PARTS));
        System.out.println("used");
    }

    public static void main(String[] args) throws IOException {
        try {
            if (args[0].equals("produce")) {
                Transactions.run(Options.DEFAULT.name("parts"), () -> produce());
            } else {
                Transactions.run(Options.DEFAULT.after("parts"), () -> consume());
            }
            System.out.println("attempts " + attempts);
        } catch (IllegalStateException e) {
            System.exit(3);
        } catch (NotProducedException e) {
            System.out.println(e.getMessage() + " " + e.errno());
            System.exit(4);
        }
    }
}
"#;

#[test]
fn java_comes_after() {
    require!(has_what_it_takes(), "there is no JDK, or no C compiler");
    let lab = Lab::new();
    let source = lab.dir().join("Producers.java");
    std::fs::write(&source, PRODUCERS).unwrap();
    let classes = lab.dir().join("classes");
    let _ = javac(&built().jar, &classes, &[source]);
    let paths = class_path(&[&built().jar, &classes]);
    crate::producers::comes_after(&|lab| in_lab(lab, "java").args(["-cp", &paths, "Producers"]));
}
