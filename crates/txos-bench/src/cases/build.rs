//! Building a C project, and installing it.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use super::{at, remove};
use crate::bench::{Bench, run};
use crate::measure::{Limit, Row};

const TIMES_MAX: f64 = 1.15;
const FILES: usize = 50;

/// `make` of everything.
pub fn make(bench: &Bench) -> Result<Vec<Row>, String> {
    let dir = project(bench)?;
    let words = words(&dir, "all");
    let clean = || target(bench, &dir, "clean");
    let pairs = bench.alternate("make", true, clean, || bench.both(&words_of(&words)))?;
    remove(&dir)?;
    Ok(vec![Row::new(format!("`make` of {FILES} C files"), &pairs, Limit::Times(TIMES_MAX))])
}

/// `make install` of what is built.
pub fn install(bench: &Bench) -> Result<Vec<Row>, String> {
    let dir = project(bench)?;
    target(bench, &dir, "all")?;
    let words = words(&dir, "install");
    let uninstall = || remove(&dir.join("installed"));
    let pairs = bench.alternate("install", true, uninstall, || bench.both(&words_of(&words)))?;
    remove(&dir)?;
    let what = format!("`make install` of {} files", 2 * FILES + 2);
    Ok(vec![Row::new(what, &pairs, Limit::Times(TIMES_MAX))])
}

fn words(dir: &Path, target: &str) -> Vec<std::ffi::OsString> {
    ["make".into(), "-s".into(), "-C".into(), dir.into(), target.into()].into()
}

fn words_of(words: &[std::ffi::OsString]) -> Vec<&std::ffi::OsStr> {
    words.iter().map(std::ffi::OsString::as_os_str).collect()
}

fn target(bench: &Bench, dir: &Path, target: &str) -> Result<(), String> {
    let [mut plain, _] = bench.both(&words_of(&words(dir, target)));
    run(&mut plain).map(drop)
}

/// Debian's source of nano, configured: what its building needs has to be installed.
pub fn sources(bench: &Bench) -> Result<PathBuf, String> {
    let dir = bench.at("sources");
    at(&dir, fs::create_dir_all(dir.join("parts")))?;
    // With lists of its own, so that the machine's sources stay as they are.
    let script = "\
        cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | \
            sed -n 's/^deb /deb-src /p' > sources.list
        cat /etc/apt/sources.list.d/*.sources 2>/dev/null | \
            sed 's/^Types:.*/Types: deb-src/' > parts/src.sources
        o=\"-o Dir::Etc::SourceList=$PWD/sources.list -o Dir::Etc::SourceParts=$PWD/parts \
           -o Dir::State::Lists=$PWD/lists -o APT::Sandbox::User=root\"
        mkdir -p lists/partial
        apt-get $o update -qq && apt-get $o source -qq nano && mv nano-*/ src && \
        cd src && ./configure --quiet --disable-nls --prefix=/usr";
    let mut fetch = std::process::Command::new("sh");
    fetch.args(["-ec", script]).current_dir(&dir).stdin(std::process::Stdio::null());
    fetch.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    run(&mut fetch).map_err(|e| format!("fetching nano's source: {e}"))?;
    Ok(dir.join("src"))
}

/// A program of many small files with headers, a manual page for each, and a Makefile.
fn project(bench: &Bench) -> Result<PathBuf, String> {
    let dir = bench.at("project");
    remove(&dir)?;
    at(&dir, fs::create_dir_all(&dir))?;
    let write = |name: String, text: &str| at(&dir, fs::write(dir.join(name), text));
    let mut main = String::from("#include <stdio.h>\n");
    let mut calls = String::new();
    for i in 0..FILES {
        let mut code = format!(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include \"part{i}.h\"\n"
        );
        for f in 0..12 {
            let _ = write!(
                code,
                "static int step{f}(int n) {{\n\tchar text[64];\n\tint sum = 0;\n\
                 \tfor (int i = 0; i < n; i++) {{\n\t\tsnprintf(text, sizeof text, \"%d\", i * {f});\n\
                 \t\tsum += (int)strlen(text) + atoi(text) % 7;\n\t}}\n\treturn sum;\n}}\n"
            );
        }
        let steps: Vec<String> = (0..12).map(|f| format!("step{f}(n)")).collect();
        let _ = writeln!(code, "int part{i}(int n) {{ return {}; }}", steps.join(" + "));
        write(format!("part{i}.c"), &code)?;
        write(format!("part{i}.h"), &format!("int part{i}(int n);\n"))?;
        write(format!("part{i}.1"), &".TH PART 1\nA part of the program.\n".repeat(40))?;
        let _ = writeln!(main, "#include \"part{i}.h\"");
        let _ = writeln!(calls, "\tsum += part{i}(3);");
    }
    let _ =
        writeln!(main, "int main(void) {{\n\tint sum = 0;\n{calls}\tprintf(\"%d\\n\", sum);\n}}");
    write("main.c".into(), &main)?;
    write("Makefile".into(), MAKEFILE)?;
    Ok(dir)
}

const MAKEFILE: &str = "\
CFLAGS = -O1 -g
SOURCES := $(wildcard *.c)
OBJECTS := $(SOURCES:.c=.o)
PREFIX = installed
all: program libparts.a
program: $(OBJECTS)
\t$(CC) -o $@ $(OBJECTS)
libparts.a: $(OBJECTS)
\t$(AR) rcs $@ $(OBJECTS)
$(OBJECTS): $(wildcard *.h)
clean:
\trm -f program libparts.a $(OBJECTS)
install:
\tinstall -d $(PREFIX)/bin $(PREFIX)/lib $(PREFIX)/include $(PREFIX)/share/man/man1
\tinstall program $(PREFIX)/bin
\tinstall -m 644 libparts.a $(PREFIX)/lib
\tfor f in *.h; do install -m 644 $$f $(PREFIX)/include || exit; done
\tfor f in *.1; do install -m 644 $$f $(PREFIX)/share/man/man1 || exit; done
";
