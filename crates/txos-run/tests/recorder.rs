//! The preloaded recorder: the same read sets as without it, and no look before its observation.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Sandbox, first_line};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

const CC: &str = "/usr/bin/cc";

/// Looks at things in every way, twice, and from different directories.
const LOOKS: &str = r#"
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
static void say(const char *what, const char *path, long answer) {
    printf("%s %s %ld %d\n", what, path, answer, answer < 0 ? errno : 0);
}
static void look(int dir, const char *path) {
    struct stat st; struct statx sx; char to[64]; int fd;
    memset(&st, 0, sizeof st);
    say("stat", path, stat(path, &st)); say("size", path, st.st_size);
    memset(&st, 0, sizeof st);
    say("lstat", path, lstat(path, &st)); say("size", path, st.st_size);
    say("fstatat", path, fstatat(dir, path, &st, 0));
    say("statx", path, statx(dir, path, AT_SYMLINK_NOFOLLOW, STATX_SIZE, &sx));
    say("access", path, access(path, R_OK));
    say("faccessat", path, faccessat(dir, path, W_OK, AT_EACCESS));
    say("readlink", path, readlink(path, to, sizeof to));
    say("readlinkat", path, readlinkat(dir, path, to, 1));
    say("getxattr", path, getxattr(path, "user.x", to, sizeof to));
    say("listxattr", path, llistxattr(path, to, sizeof to));
    char room[PATH_MAX], *real = realpath(path, room);
    /* Below /proc it has this process's number in it. */
    if (strncmp(path, "/proc", 5)) say("realpath", real ? real : path, real ? 0 : -1);
    real = canonicalize_file_name(path);
    if (strncmp(path, "/proc", 5)) say("allocated", real ? real : path, real ? 0 : -1);
    free(real);
    fd = open(path, O_RDONLY | O_NOFOLLOW); say("open", path, fd >= 0 ? 1 : fd);
    if (fd >= 0) { say("fstat", path, fstat(fd, &st)); close(fd); }
    fd = openat(dir, path, O_RDONLY | O_DIRECTORY); say("openat", path, fd >= 0 ? 1 : fd);
    if (fd >= 0) { say("empty", path, fstatat(fd, "", &st, AT_EMPTY_PATH)); close(fd); }
}
int main(void) {
    const char *paths[] = {"file", "./file", "link", "dangling", "none", "none/below", "dir", "dir/",
        "dir/../file", "dir/inner", "loop", ".", "..", "/etc/hostname", "/proc/self/cwd/file",
        "/proc/self/stat", "/dev/null", ""};
    struct stat st;
    for (int round = 0; round < 3; round++)
        for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++) look(AT_FDCWD, paths[i]);
    int dir = open("dir", O_PATH | O_DIRECTORY);
    for (int round = 0; round < 2; round++) look(dir, "inner");
    say("null", "", stat(NULL, &st));
    /* What was looked at is moved, made and removed inside, and looked at again. */
    say("rename", "dir", rename("dir", "moved"));
    for (int round = 0; round < 2; round++) { look(dir, "inner"); look(AT_FDCWD, "moved/inner"); }
    look(AT_FDCWD, "dir/inner");
    say("symlink", "none", symlink("moved", "none"));
    look(AT_FDCWD, "none/below"); look(AT_FDCWD, "none/inner");
    say("unlink", "file", unlink("file"));
    look(AT_FDCWD, "file");
    fd_reopen: ;
    int fd = open("file", O_WRONLY | O_CREAT | O_APPEND, 0644);
    say("write", "file", write(fd, "new content\n", 12)); close(fd);
    look(AT_FDCWD, "file");
    if (fork() == 0) { chdir("moved"); look(AT_FDCWD, "inner"); look(AT_FDCWD, "../file"); fflush(stdout); _exit(0); }
    wait(NULL);
    (void)&&fd_reopen;
    return 0;
}
"#;

/// Goes through a directory, as far as it is told, and looks at one more name then.
const WALKS: &str = r#"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void) {
    char names[64][256]; int count = 0; struct dirent *e; struct stat st; char line[8];
    DIR *dir = opendir(".");
    while ((e = readdir(dir)) && count < 64) if (e->d_name[0] != '.') strcpy(names[count++], e->d_name);
    for (int i = 0; i < 4; i++) lstat(names[i], &st);
    printf("%s %s\n", names[9], names[12]); fflush(stdout);
    if (read(0, line, 1) != 1) return 1;
    for (int i = 0; i < 2; i++) { lstat(names[9], &st); printf("%ld\n", (long)st.st_size); }
    return 0;
}
"#;

fn compile(s: &Sandbox, name: &str, source: &str, options: &[&str]) -> bool {
    let (from, to) = (s.dir.join(format!("{name}.c")), s.dir.join(name));
    fs::write(&from, source).unwrap();
    let done = Command::new(CC).args(["-O1", "-w", "-o"]).arg(to).arg(from).args(options).status();
    done.is_ok_and(|status| status.success())
}

/// A tree for the commands; always the same.
fn plant(s: &Sandbox) {
    let _ = fs::remove_dir_all(s.path("."));
    fs::create_dir_all(s.path("dir/deep/er")).unwrap();
    fs::write(s.path("file"), "file\n").unwrap();
    fs::write(s.path("dir/inner"), "inner\n").unwrap();
    for i in 0..200 {
        fs::write(s.path(&format!("dir/deep/f{i}")), format!("{i}\n")).unwrap();
        fs::write(s.path(&format!("dir/deep/er/f{i}.c")), format!("int f{i};\n")).unwrap();
    }
    fs::write(s.path("mod.py"), "import os\nprint(len(os.listdir('dir/deep')))\n").unwrap();
    fs::write(
        s.path("Makefile"),
        "all: a b\na: file\n\tcp file a\nb: a dir/inner\n\tcat a dir/inner > b\n",
    )
    .unwrap();
    for (to, link) in [("file", "link"), ("nowhere", "dangling"), ("loop", "loop"), ("dir", "ldir")]
    {
        std::os::unix::fs::symlink(to, s.path(link)).unwrap();
    }
}

type Reads = BTreeSet<(String, String, u64)>;

/// What a command reads, prints, and ends with.
fn reads(s: &Sandbox, recorder: &str, words: &[&str]) -> (Reads, String, Option<i32>) {
    reads_with(s, recorder, words, &[])
}

/// The same, with more in the environment.
fn reads_with(
    s: &Sandbox,
    recorder: &str,
    words: &[&str],
    env: &[(&str, &str)],
) -> (Reads, String, Option<i32>) {
    let mut command = s.exec(&[], words);
    command.envs(env.iter().copied());
    command.env("TXOS_RECORDER", recorder).env("HOME", s.dir.join("home"));
    let ran = s.finish(command.output().unwrap());
    let all =
        ran.report["reads"].as_array().unwrap_or_else(|| panic!("{words:?}: {}", ran.stderr()));
    let tree = s.path("").into_os_string().into_string().unwrap();
    let reads = all.iter().map(|read| {
        let text = |name: &str| read[name].as_str().unwrap().to_owned();
        let (path, mut outcome) = (text("path"), text("outcome"));
        // Other tests, and this one, make and remove things in directories above.
        if !path.starts_with(&tree) && tree.starts_with(&path) {
            outcome.truncate(outcome.find("mode").unwrap_or(0));
        }
        (path, outcome, read["facets"].as_u64().unwrap())
    });
    (reads.collect(), ran.stdout(), ran.output.status.code())
}

#[track_caller]
fn assert_same(s: &Sandbox, words: &[&str]) {
    let without = reads(s, "off", words);
    let with = reads(s, "on", words);
    let only = |a: &Reads, b: &Reads| a.difference(b).take(5).cloned().collect::<Vec<_>>();
    assert_eq!(only(&without.0, &with.0), [], "{words:?}: only without");
    assert_eq!(only(&with.0, &without.0), [], "{words:?}: only with");
    assert_eq!((&with.1, with.2), (&without.1, without.2), "{words:?}");
    assert!(with.0.len() > 5, "{words:?}: {:?}", with.0);
}

#[test]
fn the_read_sets_are_the_same() {
    needs_root!();
    let s = Sandbox::new();
    plant(&s);
    assert!(Command::new("git").args(["init", "-q"]).current_dir(s.path(".")).status().is_ok());
    let _ = Command::new("git").args(["add", "."]).current_dir(s.path(".")).status();
    for words in [
        &["true"][..],
        &["find", ".", "-newer", "/"],
        &["find", "-L", ".", "-size", "+1"],
        &["du", "-s", "."],
        &["ls", "-lR", "."],
        &["ls", "-l", "ldir/"],
        &["tar", "cf", "/dev/null", "."],
        &["cp", "-a", "dir", "copy"],
        &["make", "-s"],
        &["git", "status", "--short"],
        &["git", "diff"],
        &["python3", "mod.py"],
        &["python3", "-c", "import os, json; [os.stat(p) for p in os.listdir('.')[:3] * 2]"],
        &["sh", "-c", "for f in dir/deep/f*; do [ -e $f ] && [ -r $f ]; done; cat dir/deep/f1*"],
        &["sh", "-c", "mv dir d2; ls -l d2/deep; ln -s d2 dir; ls -lL dir/deep; rm -r d2; ls dir"],
        &["sh", "-c", "rm -r dir/deep; mkdir dir/deep; : > dir/deep/f1; ls dir/deep"],
        &["env", "-i", "/bin/ls", "-l", "dir"],
        &["/usr/sbin/chroot", "/", "ls", "-l", "/etc"],
        &["unshare", "-m", "ls", "-l", "/etc"],
        &["perl", "-e", "stat('file') for 1..3; print -e 'none' ? 1 : 0"],
    ] {
        assert_same(&s, words);
    }
}

#[test]
fn every_way_to_look() {
    needs_root!();
    let s = Sandbox::new();
    plant(&s);
    let path = s.dir.join("looks");
    let path = path.to_str().unwrap();
    txos_skip::require!(compile(&s, "looks", LOOKS, &[]), "needs a C compiler");
    assert_same(&s, &[path]);
    let dynamic = reads(&s, "on", &[path]);
    // Outside of any transaction, on a tree of the same shape.
    assert!(dynamic.1.lines().count() > 500, "{}", dynamic.1);
    if compile(&s, "looks", LOOKS, &["-static"]) {
        assert_same(&s, &[path]);
        assert_eq!(reads(&s, "on", &[path]).1, dynamic.1, "a static program is answered the same");
    }
}

#[test]
fn it_is_there_and_cannot_be_seen() {
    needs_root!();
    let s = Sandbox::new();
    let loaded = |recorder: &str, script: &str| {
        let mut command = s.command(&[], script);
        let ran = s.finish(command.env("TXOS_RECORDER", recorder).output().unwrap());
        (ran.stdout(), ran.stderr())
    };
    let count = "grep -c '/memfd:libtxosrecorder.so' /proc/self/maps";
    let cleared = format!("env -i {count}");
    for script in [count, &cleared] {
        let (stdout, stderr) = loaded("on", script);
        if cfg!(target_arch = "x86_64") {
            assert_ne!(stdout.trim(), "0", "{script}: {stderr}");
        }
        assert_eq!(loaded("off", script).0.trim(), "0");
    }
    for script in [
        "env | grep -Ev '^TXOS_(RECORDER|ID)='",
        "cat /etc/ld.so.preload; test -e /etc/ld.so.preload; echo $?",
        "ls /proc/txos",
    ] {
        assert_eq!(loaded("on", script), loaded("off", script), "{script}");
    }
}

#[test]
fn what_others_change_meanwhile_is_observed_before() {
    needs_root!();
    let s = Sandbox::new();
    for i in 0..40 {
        fs::write(s.path(&format!("f{i}")), "old").unwrap();
    }
    txos_skip::require!(compile(&s, "walks", WALKS, &[]), "needs a C compiler");
    for recorder in ["on", "off"] {
        let mut command = s.exec(&[], &[s.dir.join("walks").to_str().unwrap()]);
        command.env("TXOS_RECORDER", recorder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let line = first_line(child.stdout.as_mut().unwrap());
        let (looked_at, not) = line.split_once(' ').unwrap();
        let (looked_at, not) = (s.path(looked_at), s.path(not));
        for path in [&looked_at, &not] {
            fs::write(path, "changed by another").unwrap();
        }
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let ran = s.finish(child.wait_with_output().unwrap()).expect(0);
        let sizes: Vec<_> = ran.stdout().lines().map(str::to_owned).collect();
        assert_eq!(sizes, ["18", "18"], "{recorder}");
        let (outcome, _) = ran.seen(&looked_at).unwrap();
        // Observed ahead, it is the old version: the commit will not overlook the change.
        let old = outcome.contains("size: 3,");
        assert!(old || outcome.contains("size: 18,"), "{outcome}");
        assert_eq!(old, recorder == "on" && cfg!(target_arch = "x86_64"), "{recorder}: {outcome}");
        assert_eq!(ran.seen(&not), None, "{recorder}: nobody looked at it");
        for path in [&looked_at, &not] {
            fs::write(path, "old").unwrap();
        }
    }
}

/// Looks at one file many times, by functions that the recorder has; says how often it waited for somebody.
const OFTEN: &str = r#"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void) {
    struct rusage before, after; struct stat st; char room[PATH_MAX];
    for (int i = 0; i < 1001; i++) {
        if (i == 1) getrusage(RUSAGE_SELF, &before);
        stat("file", &st); lstat("./file", &st); realpath("link", room); free(realpath("dir/", 0));
        int fd = open("file", O_RDONLY); if (fd >= 0) close(fd);
    }
    getrusage(RUSAGE_SELF, &after);
    printf("%ld\n", after.ru_nvcsw - before.ru_nvcsw);
    return 0;
}
"#;

/// A library of the user's that has the recorder's functions itself, and goes on to the next.
const CHAIN: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
int stat(const char *path, struct stat *to) {
    int (*next)(const char *, struct stat *) = dlsym(RTLD_NEXT, "stat");
    return next(path, to);
}
int open(const char *path, int flags, unsigned mode) {
    int (*next)(const char *, int, unsigned) = dlsym(RTLD_NEXT, "open");
    return next(path, flags, mode);
}
"#;

#[test]
fn it_works_beside_what_the_user_preloads() {
    needs_root!();
    let s = Sandbox::new();
    plant(&s);
    let library = ["-shared", "-fPIC", "-ldl"];
    let compiled = compile(&s, "often", OFTEN, &[])
        && compile(&s, "looks", LOOKS, &[])
        && compile(&s, "empty.so", "int nothing_of_anybody;", &library)
        && compile(&s, "chain.so", CHAIN, &library);
    txos_skip::require!(compiled, "needs a C compiler");
    let at = |name: &str| s.dir.join(name).to_str().unwrap().to_owned();
    let both = format!("{}:{}", at("chain.so"), at("empty.so"));
    let dir = s.dir.to_str().unwrap().to_owned();
    let whole: [&[(&str, &str)]; 5] = [
        &[("LD_PRELOAD", &at("empty.so"))],
        &[("LD_PRELOAD", &at("chain.so"))],
        &[("LD_PRELOAD", &both)],
        // By its name alone, which the dynamic linker searches for.
        &[("LD_PRELOAD", "chain.so"), ("LD_LIBRARY_PATH", &dir)],
        // One that is not there.
        &[("LD_PRELOAD", "/none/none.so")],
    ];
    for env in whole {
        let waited = |recorder: &str| -> u64 {
            let mut command = s.exec(&[], &[&at("often")]);
            command.envs(env.iter().copied()).env("TXOS_RECORDER", recorder);
            let ran = s.finish(command.output().unwrap()).expect(0);
            ran.stdout().trim().parse().unwrap()
        };
        assert!(waited("off") >= 2500, "this counts the calls that are told");
        if cfg!(target_arch = "x86_64") {
            let told = waited("on");
            assert!(told < 100, "{env:?}: {told} calls were told");
        }
        let looks = [at("looks")];
        let reads = |recorder: &str| {
            let words: Vec<&str> = looks.iter().map(String::as_str).collect();
            reads_with(&s, recorder, &words, env)
        };
        let (without, with) = (reads("off"), reads("on"));
        assert_eq!(with.1, without.1, "{env:?}");
        let only = |a: &Reads, b: &Reads| a.difference(b).take(5).cloned().collect::<Vec<_>>();
        assert_eq!(only(&without.0, &with.0), [], "{env:?}: only without");
        assert_eq!(only(&with.0, &without.0), [], "{env:?}: only with");
    }
    // The question is the dynamic linker's alone, also where the program has looked at much before.
    let script =
        "test -e /etc/hostname; cat /etc/ld.so.preload; test -e /etc/ld.so.preload; echo $?";
    let asked = |recorder: &str| {
        let mut command = s.command(&[], script);
        command.env("TXOS_RECORDER", recorder).env("LD_PRELOAD", at("empty.so"));
        let ran = s.finish(command.output().unwrap());
        (ran.stdout(), ran.stderr())
    };
    assert_eq!(asked("on"), asked("off"));
}

/// Opens files in the order of their numbers, and lists nothing; says how often it waited for somebody.
const NUMBERED: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>
int main(void) {
    struct rusage before, after; char name[32], byte;
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < 400; i++) {
        snprintf(name, sizeof name, "many/n%04d", i);
        int fd = open(name, O_RDONLY);
        if (fd < 0 || read(fd, &byte, 1) != 1) return 1;
        close(fd);
    }
    getrusage(RUSAGE_SELF, &after);
    printf("%ld\n", after.ru_nvcsw - before.ru_nvcsw);
    return 0;
}
"#;

/// Whoever has names from elsewhere is not stopped at each of them either, and what is recorded is the same.
#[test]
fn it_reads_ahead_in_a_directory_that_was_not_listed() {
    needs_root!();
    let s = Sandbox::new();
    fs::create_dir(s.path("many")).unwrap();
    for i in 0..450 {
        fs::write(s.path(&format!("many/n{i:04}")), "x").unwrap();
    }
    txos_skip::require!(compile(&s, "numbered", NUMBERED, &[]), "needs a C compiler");
    let program = s.dir.join("numbered");
    let run = |recorder: &str| {
        let mut command = s.exec(&[], &[program.to_str().unwrap()]);
        command.env("TXOS_RECORDER", recorder);
        let ran = s.finish(command.output().unwrap()).expect(0);
        let waited: u64 = ran.stdout().trim().parse().unwrap();
        let seen = |n: u32| ran.seen(&s.path(&format!("many/n{n:04}")));
        (waited, (0..450).map(seen).collect::<Vec<_>>())
    };
    let (off, on) = (run("off"), run("on"));
    assert!(off.0 >= 200, "{} calls were reported", off.0);
    assert_eq!(on.1, off.1);
    assert!(off.1[..400].iter().all(Option::is_some) && off.1[400..].iter().all(Option::is_none));
    if cfg!(target_arch = "x86_64") {
        assert!(on.0 < 100, "{} calls were reported", on.0);
    }
}
