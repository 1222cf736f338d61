//! What is recorded, with real programs.

#![allow(clippy::unwrap_used)]

mod common;

use common::Sandbox;
use std::fs;
use std::path::Path;

const ENTRY: u8 = 1;
const ATTRS: u8 = 2;
const DATA: u8 = 4;
const LISTING: u8 = 8;
const XATTRS: u8 = 16;
const WRITE: u8 = 32;
const APPEND: u8 = 64;

#[test]
fn what_is_there_and_what_is_not() {
    needs_root!();
    let s = Sandbox::new();
    fs::write(s.path("file"), "one\n").unwrap();
    fs::write(s.path("log"), "old\n").unwrap();
    fs::create_dir(s.path("dir")).unwrap();
    std::os::unix::fs::symlink("file", s.path("link")).unwrap();
    let ran = s
        .run(
            &[],
            "cat link; [ -e missing ]; ls dir >/dev/null; echo new >> log; echo x > made; \
             rm -f gone; test -e no/such/dir/file; : > dir/../other",
        )
        .expect(0);
    assert_eq!(ran.stdout(), "one\n");
    assert_eq!(ran.facets(&s.path("file")) & (DATA | WRITE), DATA);
    assert_eq!(ran.facets(&s.path("link")) & DATA, DATA);
    assert_eq!(ran.facets(&s.path("dir")) & LISTING, LISTING);
    assert_eq!(ran.facets(&s.path("log")) & (WRITE | APPEND | DATA), WRITE | APPEND);
    for name in ["missing", "made", "gone", "other"] {
        ran.absent(&s.path(name));
    }
    // The tree itself is untouched.
    assert_eq!(fs::read_to_string(s.path("log")).unwrap(), "old\n");
    assert!(!s.path("made").exists());
}

#[test]
fn an_executed_script_reads_its_interpreters() {
    needs_root!();
    let s = Sandbox::new();
    fs::write(s.path("script"), "#!/bin/sh\nexit 7\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(s.path("script"), mode).unwrap();
    let ran = s.finish(s.exec(&[], &["./script"]).output().unwrap()).expect(7);
    assert_eq!(ran.facets(&s.path("script")) & DATA, DATA);
    let shell = fs::canonicalize("/bin/sh").unwrap();
    assert_eq!(ran.facets(&shell) & DATA, DATA);
    let loader = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"]
        .iter()
        .find_map(|l| fs::canonicalize(l).ok())
        .unwrap();
    assert_eq!(ran.facets(&loader) & DATA, DATA);
}

#[test]
fn what_was_moved_inside_is_looked_at_where_it_was() {
    needs_root!();
    let s = Sandbox::new();
    fs::create_dir_all(s.path("a/sub")).unwrap();
    fs::write(s.path("a/sub/file"), "x").unwrap();
    fs::create_dir(s.path("real")).unwrap();
    fs::write(s.path("real/file"), "y").unwrap();
    let ran = s
        .run(&[], "mv a b && cat b/sub/file && ln -s real link && cat link/file && cd b/sub && cat ./file")
        .expect(0);
    assert_eq!(ran.stdout(), "xyx");
    assert_eq!(ran.facets(&s.path("a/sub/file")) & DATA, DATA);
    assert_eq!(ran.facets(&s.path("real/file")) & DATA, DATA);
    assert_eq!(ran.facets(&s.path("a")) & WRITE, WRITE);
}

#[test]
fn attributes_and_extended_attributes() {
    needs_root!();
    let s = Sandbox::new();
    fs::write(s.path("f"), "x").unwrap();
    fs::create_dir(s.path("empty")).unwrap();
    let script = "import os\nos.stat('f'); os.chmod('f', 0o600); os.setxattr('f', 'user.a', b'1')\n\
                  os.rmdir('empty'); os.rename('f', 'g'); os.truncate('g', 0)\n";
    let ran = s.finish(s.exec(&[], &["python3", "-c", script]).output().unwrap());
    txos_skip::require!(ran.output.status.code() != Some(127), "needs python3");
    let ran = ran.expect(0);
    let facets = ran.facets(&s.path("f"));
    assert_eq!(facets & (ENTRY | ATTRS | WRITE | XATTRS), ENTRY | ATTRS | WRITE | XATTRS);
    assert_eq!(ran.facets(&s.path("empty")) & (WRITE | LISTING), WRITE | LISTING);
    ran.absent(&s.path("g"));
}

#[test]
fn long_and_strange_names() {
    needs_root!();
    let s = Sandbox::new();
    fs::write(s.path("a\nb"), "1").unwrap();
    fs::write(s.path("sp ace:,\\"), "2").unwrap();
    // 1,000 levels deep.
    let script = "cat a*; cat sp*; i=0; while [ $i -lt 1000 ]; do mkdir dd && cd dd || exit 9; i=$((i+1)); done; echo deep > file; cat file";
    let ran = s.run(&[], script).expect(0);
    assert_eq!(ran.stdout(), "12deep\n");
    assert_eq!(ran.facets(&s.path("a\nb")) & DATA, DATA);
    assert_eq!(ran.facets(&s.path("sp ace:,\\")) & DATA, DATA);
}

#[test]
fn only_the_scope_and_not_the_excluded() {
    needs_root!();
    let s = Sandbox::new();
    for dir in ["in", "in/live", "out"] {
        fs::create_dir_all(s.path(dir)).unwrap();
    }
    fs::write(s.path("in/f"), "x").unwrap();
    let scope = s.path("in").to_str().unwrap().to_owned();
    let script = "cat in/f; echo 1 > in/new; echo 2 > out/new; echo 3 > in/live/new; cat /etc/passwd > /dev/null";
    let ran = s.run(&["--scope", &scope, "--exclude", "in/l*"], script).expect(0);
    assert_eq!(ran.facets(&s.path("in/f")) & DATA, DATA);
    assert_eq!(ran.seen(Path::new("/etc/passwd")), None);
    assert!(!s.path("in/new").exists());
    assert_eq!(fs::read_to_string(s.path("out/new")).unwrap(), "2\n");
    assert_eq!(fs::read_to_string(s.path("in/live/new")).unwrap(), "3\n");
}
