//! The Go module: its own tests, and its first program in a module of its own.

use std::fs;
use std::path::{Path, PathBuf};

use txos_testkit::wait::BUILD_PATIENCE;
use txos_testkit::{Done, Invocation, Lab, binary, require, skip};

use crate::{first_program, in_lab, old_library, root, survives_kills};

/// `go`, which needs nothing from anywhere. What it has built once is kept.
fn go(lab: &Lab) -> Invocation {
    with_go(lab, "go")
}

/// A program that starts `go`.
fn with_go(lab: &Lab, program: &str) -> Invocation {
    in_lab(lab, program)
        .env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache"))
        .env("GOPATH", lab.dir().join("go"))
        .env("GOFLAGS", "-mod=mod -buildvcs=false")
        .env("GOPROXY", "off")
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "1")
        .env("TXOS_LIB", binary::library())
        .env("TXOS_TEST_DIR", lab.tree())
        // On a machine that has built nothing yet, the standard library is compiled first, once with the race detector.
        .within(BUILD_PATIENCE)
}

/// The same in the module.
fn in_module(lab: &Lab, args: &[&str]) -> Done {
    go(lab).args(args).dir(root().join("bindings/go")).run()
}

fn has_go() -> bool {
    skip::has("go") && skip::has("cc")
}

#[test]
fn format_lints_and_tests() {
    require!(has_go(), "there is no Go with a C compiler");
    let lab = Lab::new();
    let unformatted =
        in_lab(&lab, "gofmt").arg("-l").arg(root().join("bindings/go")).run().expect(0);
    assert_eq!(unformatted.text(), "");
    let _ = in_module(&lab, &["vet", "."]).expect(0);
    // A build without cgo says what it lacks.
    let _ = go(&lab)
        .args(["vet", "."])
        .dir(root().join("bindings/go"))
        .env("CGO_ENABLED", "0")
        .run()
        .expect(0);
    // 10,000 transactions under pressure, instead of some hundred.
    let limit = if skip::long("bindings") { "-timeout=1h" } else { "-timeout=300s" };
    let _ = in_module(&lab, &["test", "-count=1", limit, "."]).expect(0);
}

#[test]
fn tests_with_the_race_detector() {
    require!(has_go(), "there is no Go with a C compiler");
    let lab = Lab::new();
    let probe = in_module(&lab, &["list", "-race", "runtime/race"]);
    require!(probe.code() == 0 && has_detector(&lab), "there is no race detector");
    let _ = in_module(&lab, &["test", "-race", "-count=1", "-timeout=300s", "."]).expect(0);
}

/// Debian has it in a package of its own.
fn has_detector(lab: &Lab) -> bool {
    let top = in_module(lab, &["env", "GOROOT"]).expect(0).text();
    let dir = Path::new(top.trim()).join("src/runtime/race");
    ["race_linux_amd64.syso", "internal/amd64v1/race_linux.syso"]
        .iter()
        .any(|f| dir.join(f).exists())
}

/// A program in a module that has nothing but it; gives the binary.
fn build_program(lab: &Lab, source: &str) -> PathBuf {
    let module = lab.dir().join("module");
    fs::create_dir(&module).unwrap();
    fs::write(module.join("main.go"), source).unwrap();
    let run = |args: &[&str]| go(lab).args(args).dir(&module).run().expect(0);
    let _ = run(&["mod", "init", "example"]);
    // As README says.
    let from = format!("-replace=txos={}", root().join("bindings/go").display());
    let _ = run(&["mod", "edit", "-require=txos@v0.1.0", &from]);
    let _ = run(&["vet", "."]);
    let _ = run(&["build", "-o", "program", "."]);
    module.join("program")
}

#[test]
fn the_first_program_in_a_module_of_its_own() {
    require!(has_go(), "there is no Go with a C compiler");
    let lab = Lab::new();
    let program = build_program(&lab, &first_program("bindings/go/README.md", "go"));
    let run = |library: &Path| in_lab(&lab, &program).env("TXOS_LIB", library).run();
    let _ = run(binary::library()).expect(0);
    assert_eq!(lab.read("app.conf"), "port = 8080\n");
    assert_eq!(lab.read("proxy.conf"), "backend = localhost:8080\n");
    // The second file can't be written: the first has not changed.
    let _ = lab.native("echo old > app.conf; rm proxy.conf; mkdir proxy.conf");
    let _ = run(binary::library()).expect(1).says("proxy.conf");
    assert_eq!(lab.read("app.conf"), "old\n");
    // Without the library, and with one that is too old.
    let _ = run(Path::new("/nonexistent/libtxos.so"))
        .expect(1)
        .says("/nonexistent/libtxos.so")
        .says("TXOS_LIB");
    let _ = run(&old_library(&lab)).expect(1).says("older than this package").says("0.0.1");
    assert_eq!(lab.read("app.conf"), "old\n");
}

/// The archive of `dist/go`, unpacked in a module with nothing else, as README says.
#[test]
fn the_archive_is_installed_and_used() {
    require!(has_go() && skip::has("tar"), "there is no Go with a C compiler, or no tar");
    let lab = Lab::new();
    let made = lab.dir().join("made");
    let dist = in_lab(&lab, root().join("dist/go")).arg(&made).env("TXOS_LIB", binary::library());
    let archive = dist.run().expect(0).text();
    let name = concat!("txos-go-", env!("CARGO_PKG_VERSION"), ".tar.gz");
    assert_eq!(Path::new(archive.trim_end()), made.join(name));
    let module = lab.dir().join("module");
    fs::create_dir(&module).unwrap();
    fs::write(module.join("main.go"), first_program("bindings/go/README.md", "go")).unwrap();
    let readme = fs::read_to_string(root().join("bindings/go/README.md")).unwrap();
    let (_, steps) = readme.split_once("In your module:\n\n").expect("the steps");
    let (steps, _) = steps.split_once("\n\n").expect("their end");
    assert_eq!(steps.lines().count(), 4, "{steps}");
    let steps = steps.replace("DIRECTORY", &made.display().to_string());
    let script = format!("set -e; go mod init example; {steps}");
    let _ = with_go(&lab, "sh")
        .args(["-c", &script])
        .dir(&module)
        .without_env("TXOS_LIB")
        .run()
        .expect(0);
    // (Cargo leads the linker to the library under test.)
    let program = || in_lab(&lab, module.join("program")).without_env("LD_LIBRARY_PATH");
    let _ = program().run().expect(0);
    assert_eq!(lab.read("app.conf"), "port = 8080\n");
    assert_eq!(lab.read("proxy.conf"), "backend = localhost:8080\n");
    // It was the library beside the program.
    fs::write(module.join("libtxos.so"), "none").unwrap();
    let failed = program().run();
    let installed = ["/usr/lib/txos", "/usr/local/lib/txos"].iter().any(|d| Path::new(d).exists());
    assert!(installed || failed.code() == 1, "{failed:?}");
}

/// The program's first open is within a transaction that aborts. What the runtime opened for its
/// poller at that moment must outlive it.
const FIRST_OPEN: &str = r#"
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"txos"
)

func main() {
	no := errors.New("no")
	err := txos.Do(context.Background(), func() error {
		if err := os.WriteFile("made", []byte("x"), 0o644); err != nil {
			return err
		}
		return no
	})
	if !errors.Is(err, no) {
		panic(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	defer writer.Close()
	if err := reader.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		panic(err)
	}
	_, err = reader.Read(make([]byte, 1))
	fmt.Println(errors.Is(err, os.ErrDeadlineExceeded))
}
"#;

#[test]
fn the_poller_outlives_an_aborted_transaction() {
    require!(has_go(), "there is no Go with a C compiler");
    let lab = Lab::new();
    let program = build_program(&lab, FIRST_OPEN);
    let done = in_lab(&lab, &program).env("TXOS_LIB", binary::library()).run().expect(0);
    assert_eq!(done.text(), "true\n");
    assert!(!lab.tree().join("made").exists());
}

/// A database of others and a file, changed together. Needs Go's module proxy, or what Go has kept of it.
#[test]
fn what_others_have_written() {
    require!(skip::long("bindings"), "it needs a network: ./test --long bindings");
    require!(has_go(), "there is no Go with a C compiler");
    let lab = Lab::new();
    let module = lab.dir().join("foreign");
    fs::create_dir(&module).unwrap();
    fs::copy(root().join("bindings/go/testdata/foreign.go"), module.join("main.go")).unwrap();
    let from = format!("-replace=txos={}", root().join("bindings/go").display());
    for args in [
        &["mod", "init", "example"][..],
        &["mod", "edit", "-require=txos@v0.1.0", &from],
        &["get", "go.etcd.io/bbolt@v1.3.11"],
        &["build", "-o", "program", "."],
    ] {
        let _ = go(&lab).without_env("GOPROXY").args(args).dir(&module).run().expect(0);
    }
    let program = in_lab(&lab, module.join("program")).env("TXOS_LIB", binary::library());
    let told = program.run().expect(0).text();
    let expected = "aborted: 0 \ncommitted: 50 Ada\naborted: 50 Ada\ncommitted: 100 Bob\n";
    assert_eq!(told, expected);
}

/// See [`survives_kills`].
const COUNTS: &str = r#"
package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"txos"
)

// add writes the number in place, or a file that takes the other's place.
func add(path string, replace bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	to := path
	if replace {
		to = path + ".new"
	}
	if err := os.WriteFile(to, []byte(strconv.Itoa(n+1)), 0o644); err != nil {
		return err
	}
	return os.Rename(to, path)
}

func work(name string) {
	dir, reports := os.Args[1], os.Args[2]
	report, err := os.OpenFile(filepath.Join(reports, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	for n := 0; ; n++ {
		err := txos.Do(context.Background(), func() error {
			if err := add(filepath.Join(dir, name), n%2 == 0); err != nil {
				return err
			}
			return add(filepath.Join(dir, "total"), n%3 == 0)
		}, txos.Durable(false), txos.Retries(-1))
		if err != nil {
			panic(err)
		}
		if _, err := report.Write([]byte{'.'}); err != nil {
			panic(err)
		}
	}
}

func main() {
	for _, name := range []string{"1", "2"} {
		go work(name)
	}
	work("0")
}
"#;

#[test]
fn killed_at_random() {
    require!(has_go(), "there is no Go with a C compiler");
    let lab = Lab::new();
    let program = build_program(&lab, COUNTS);
    let start = || in_lab(&lab, &program).env("TXOS_LIB", binary::library());
    survives_kills(&lab, skip::long("bindings"), &start);
}

/// See [`crate::producers`].
const PRODUCERS: &str = r#"
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"

	"txos"
)

var (
	attempts int
	input    = bufio.NewReader(os.Stdin)
	noGood   = errors.New("no good")
)

func produce() error {
	attempts++
	if _, err := os.ReadFile("base"); err != nil {
		return err
	}
	line := ""
	if attempts == 1 {
		fmt.Println("begun")
		line, _ = input.ReadString('\n')
	}
	if line != "nothing\n" {
		if err := os.WriteFile("parts", []byte("new"), 0o644); err != nil {
			return err
		}
	}
	if attempts == 1 {
		fmt.Println("made")
		if line, _ := input.ReadString('\n'); line == "abort\n" {
			return noGood
		}
	}
	return nil
}

func consume() error {
	attempts++
	fmt.Println("begun")
	if _, err := os.Stat("parts"); errors.Is(err, os.ErrNotExist) {
		fmt.Println("early")
		return fmt.Errorf("there are no parts: %w", txos.ErrAgain)
	}
	text, err := os.ReadFile("parts")
	if err != nil {
		return err
	}
	if err := os.WriteFile("result", text, 0o644); err != nil {
		return err
	}
	fmt.Println("used")
	return nil
}

func main() {
	var err error
	if os.Args[1] == "produce" {
		err = txos.Do(context.Background(), produce, txos.Name("parts"))
	} else {
		err = txos.Do(context.Background(), consume, txos.After("parts"))
	}
	var why *txos.Error
	switch {
	case err == nil:
		fmt.Println("attempts", attempts)
	case errors.Is(err, noGood):
		os.Exit(3)
	case errors.Is(err, txos.ErrNotProduced) && errors.As(err, &why):
		fmt.Println(err, int(why.Errno))
		os.Exit(4)
	default:
		panic(err)
	}
}
"#;

#[test]
fn go_comes_after() {
    require!(has_go(), "there is no Go with a C compiler");
    let lab = Lab::new();
    let program = build_program(&lab, PRODUCERS);
    let program = |lab: &Lab| in_lab(lab, &program).env("TXOS_LIB", binary::library());
    crate::producers::comes_after(&program);
}
