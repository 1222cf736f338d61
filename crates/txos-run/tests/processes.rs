//! Nobody is left behind, and nobody outside is reached.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Pinned, Sandbox, mounted_anywhere};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions};

/// Prints the reaper's and a background process's number when that one waits for ever, in a call
/// that is not supervised.
const LINGER: &str = "mkfifo never; exec 3<>never; \
    setsid sh -c 'echo $0 $$; read x <&3' $PPID & read x <&3";

fn two(line: &str) -> (Pinned, Pinned) {
    let (a, b) = line.split_once(' ').unwrap();
    (Pinned::new(a), Pinned::new(b))
}

fn pid(child: &std::process::Child) -> Pid {
    Pid::from_child(child)
}

#[test]
fn a_killed_keeper_takes_everybody_along() {
    needs_root!();
    let s = Sandbox::new();
    let (child, line) = s.start(&["--keep"], LINGER);
    let (reaper, background) = two(&line);
    reaper.kill();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(!background.lives());
    assert!(!mounted_anywhere(&s));
}

#[test]
fn a_killed_front_takes_everybody_along() {
    needs_root!();
    let s = Sandbox::new();
    let (mut child, line) = s.start(&["--keep"], LINGER);
    let (reaper, background) = two(&line);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(background.ended() && reaper.ended());
    assert!(!mounted_anywhere(&s));
}

#[test]
fn both_killed_leave_processes_that_can_be_found() {
    needs_root!();
    let s = Sandbox::new();
    let (mut child, line) = s.start(&["--keep"], LINGER);
    let (reaper, background) = two(&line);
    // Stopped, neither can do anything about the other's end.
    rustix::process::kill_process(pid(&child), Signal::STOP).unwrap();
    reaper.kill();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(reaper.ended());
    let home = txos_engine::store::Home::open(&s.store()).unwrap();
    let meta = home.transactions().unwrap().remove(0).unwrap();
    assert!(background.lives());
    assert!(txos_run::end_orphans(&meta).unwrap() >= 1);
    assert!(background.ended());
    assert!(!mounted_anywhere(&s));
}

#[test]
fn background_processes_are_waited_for_or_killed() {
    needs_root!();
    let s = Sandbox::new();
    let ran = s.run(&[], "(sleep 0.2; echo later > f; cat f) & exit 0").expect(0);
    assert_eq!(ran.stdout(), "later\n");
    let (child, line) = s.start(&["--kill"], "setsid sleep 1000 & echo $!; read x; exit 0");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    assert!(!std::path::Path::new(&format!("/proc/{}", line.trim())).exists());
}

#[test]
fn strict_ends_the_whole_tree() {
    needs_root!();
    let s = Sandbox::new();
    let name = format!("/run/txos-run-test-{}", std::process::id());
    let script = format!("setsid sleep 1000 & echo $!; echo x > {name}; echo not reached");
    let ran = s.run(&["--strict"], &script).expect(125);
    let background = ran.stdout().trim().to_owned();
    assert!(!ran.stdout().contains("not reached"));
    assert!(!std::path::Path::new(&format!("/proc/{background}")).exists());
    assert!(!std::path::Path::new(&name).exists());
    assert!(ran.report["status"].as_str().unwrap().contains(&name), "{}", ran.report["status"]);
}

#[test]
fn warnings_come_once_a_kind() {
    needs_root!();
    let s = Sandbox::new();
    let name = format!("/run/txos-run-warn-{}", std::process::id());
    let script =
        format!("echo x > {name}; rm {name}; rm -f /run/none; echo > /dev/null; : > /dev/tty");
    let ran = s.run(&[], &script);
    assert!(ran.warned("Live") && !ran.warned("Device"));
    assert_eq!(ran.stderr().matches("warning:").count(), 1, "{}", ran.stderr());
}

#[test]
fn signals_to_outsiders_wait() {
    needs_root!();
    let s = Sandbox::new();
    let mut target = Command::new("sleep").arg("1000").spawn().unwrap();
    let pinned = Pinned::new(&target.id().to_string());
    let script = format!("kill {0} && kill -0 {0}", target.id());
    s.run(&[], &script).expect(0);
    assert!(pinned.lives());
    s.run(&["--release"], &script).expect(0);
    assert!(pinned.ended());
    assert_eq!(target.wait().unwrap().signal(), Some(15));
    // One's own processes are reached at once; nobody is nobody.
    s.run(&[], "sleep 1000 & kill $!; wait $!; test $? = 143").expect(0);
    s.run(&[], "kill -TERM 4194300").expect(1);
}

/// Sends signals with values to a process, to nobody and to groups; says what each is answered.
const QUEUES: &str = r#"
import ctypes, errno, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, number, *words):
    done = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(w) if isinstance(w, int) else w for w in words])
    print(name, done if done >= 0 else errno.errorcode[ctypes.get_errno()])
def info(code):
    return ctypes.create_string_buffer(struct.pack('iiiiiiQ', 10, 0, code, 0, os.getpid(), os.getuid(), 7), 128)
there, gone = int(sys.argv[1]), 4194300
SI_QUEUE, SI_USER, SI_TKILL = -1, 0, -6
for name, target in ('there', there), ('gone', gone), ('group', -there), ('everybody', -1), ('nobody', 0):
    call(name, 129, target, 10, info(SI_QUEUE))
    call(name + ' forged', 129, target, 10, info(SI_USER))
    call(name + ' as a thread', 129, target, 10, info(SI_TKILL))
    call(name + ' bad', 129, target, 10, 0)
    call(name + ' strange', 129, target, 99, info(SI_QUEUE))
    call(name + ' thread', 297, target, target, 10, info(SI_QUEUE))
    call(name + ' thread forged', 297, target, target, 10, info(SI_USER))
    call(name + ' thread bad', 297, target, target, 10, 0)
    call(name + ' other thread', 297, target, os.getpid(), 10, info(SI_QUEUE))
    call(name + ' thread killed', 234, target, target, 10)
    call(name + ' other thread killed', 234, target, os.getpid(), 10)
    call(name + ' no thread killed', 234, target, 0, 10)
"#;

#[test]
fn signals_with_values_are_answered_as_by_the_kernel() {
    needs_root!();
    let s = Sandbox::new();
    let script = s.path("queues.py");
    std::fs::write(&script, QUEUES).unwrap();
    // SIGUSR1 is ignored: it lives on, whatever it is sent.
    let mut target =
        Command::new("sh").args(["-c", "trap '' USR1; exec sleep 1000"]).spawn().unwrap();
    let ignores = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", target.id())).unwrap();
        let sleeps = status.starts_with("Name:\tsleep");
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        sleeps && ignored.is_some_and(|mask| mask & 0x200 != 0)
    };
    let begun = std::time::Instant::now();
    while !ignores() {
        assert!(begun.elapsed().as_secs() < 60, "the target has not begun");
        std::thread::yield_now();
    }
    let words = ["python3", script.to_str().unwrap(), &target.id().to_string()];
    let native = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let ran = s.finish(s.exec(&[], &words).output().unwrap());
    target.kill().unwrap();
    target.wait().unwrap();
    let native = String::from_utf8(native.stdout).unwrap();
    assert_eq!(native.lines().count(), 60, "{native}");
    assert_eq!(ran.stdout(), native, "{}", ran.stderr());
    assert!(!ran.warned("Broadcast"), "{}", ran.stderr());
}

/// Marks a file and a program; a child writes to the one and executes the other. Says each event once: what, on
/// what, by whom.
const WATCHES: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    const struct { unsigned long bit; const char *name; } bits[] = {{FAN_OPEN, "open"}, {FAN_OPEN_EXEC, "exec"},
        {FAN_ACCESS, "access"}, {FAN_MODIFY, "modify"}, {FAN_CLOSE_WRITE, "written"}};
    unsigned long all = 0; char events[8192], link[64], path[512], name[64]; ssize_t n; int status;
    for (int i = 0; i < 5; i++) all |= bits[i].bit;
    int watch = fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK, O_RDONLY);
    if (watch < 0) { puts("no fanotify"); return 0; }
    if (fanotify_mark(watch, FAN_MARK_ADD, all, AT_FDCWD, "program") != 0
        || fanotify_mark(watch, FAN_MARK_ADD, all, AT_FDCWD, "file") != 0) return 2;
    pid_t child = fork();
    if (child == 0) {
        int fd = open("file", O_RDWR); write(fd, "x", 1); close(fd);
        execl("./program", "program", NULL); _exit(9);
    }
    waitpid(child, &status, 0);
    while ((n = read(watch, events, sizeof events)) > 0) {
        struct fanotify_event_metadata *m = (void *)events;
        for (; FAN_EVENT_OK(m, n); m = FAN_EVENT_NEXT(m, n)) {
            sprintf(link, "/proc/self/fd/%d", m->fd);
            ssize_t length = readlink(link, path, sizeof path - 1);
            path[length < 0 ? 0 : length] = 0;
            strcpy(name, "child");
            if (m->pid != child) {
                sprintf(link, "/proc/%d/comm", m->pid);
                FILE *comm = fopen(link, "r");
                if (!comm || !fgets(name, sizeof name, comm)) strcpy(name, "unknown");
                name[strcspn(name, "\n")] = 0;
            }
            for (int i = 0; i < 5; i++) if (m->mask & bits[i].bit)
                printf("%s %s %s\n", name, bits[i].name, strrchr(path, '/') + 1);
            close(m->fd);
        }
    }
    return 0;
}
"#;

#[test]
fn fanotify_reports_the_commands_processes_and_the_supervisor() {
    needs_root!();
    let s = Sandbox::new();
    std::fs::write(s.path("watches.c"), WATCHES).unwrap();
    let built = Command::new("/usr/bin/cc")
        .args(["-w", "-o", "watches", "watches.c"])
        .current_dir(s.path("."))
        .status();
    txos_skip::require!(built.is_ok_and(|status| status.success()), "needs a C compiler");
    std::fs::copy("/bin/true", s.path("program")).unwrap();
    std::fs::write(s.path("file"), "old\n").unwrap();
    let events = |text: &str| -> std::collections::BTreeSet<String> {
        text.lines().map(str::to_owned).collect()
    };
    let native = Command::new("./watches").current_dir(s.path(".")).output().unwrap();
    let native = events(&String::from_utf8(native.stdout).unwrap());
    let inside = events(&s.run(&[], "./watches").expect(0).stdout());
    let has = |events: &std::collections::BTreeSet<String>| !events.contains("no fanotify");
    txos_skip::require!(has(&native) && has(&inside), "needs fanotify");
    let by_child = |events: &std::collections::BTreeSet<String>| {
        events.iter().filter(|event| event.starts_with("child ")).cloned().collect::<Vec<_>>()
    };
    assert!(native.contains("child exec program"), "{native:?}");
    assert_eq!(by_child(&inside), by_child(&native), "{inside:?}");
    let others = inside.iter().filter(|event| !event.starts_with("child "));
    let others: Vec<&str> = others.map(String::as_str).collect();
    assert!(others.iter().all(|event| event.starts_with("txos-run-sess")), "{others:?}");
}

#[test]
fn signals_to_the_front_go_to_the_command() {
    needs_root!();
    let s = Sandbox::new();
    let (child, _) =
        s.start(&[], "trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 0.01; done");
    rustix::process::kill_process(pid(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(5));
}

#[test]
fn a_stopped_command_stops_the_front() {
    needs_root!();
    let s = Sandbox::new();
    let (child, _) = s.start(&[], "echo ready; kill -STOP $$; exit 6");
    loop {
        match rustix::process::waitpid(Some(pid(&child)), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) if status.stopped() => break,
            Ok(Some((_, status))) => panic!("ended: {status:?}"),
            Ok(None) => {}
            Err(e) => panic!("{e}"),
        }
    }
    rustix::process::kill_process(pid(&child), Signal::CONT).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(6));
}

#[test]
fn sockets_of_the_stable_tree_can_be_reached() {
    needs_root!();
    let s = Sandbox::new();
    let listener = UnixListener::bind(s.path("socket")).unwrap();
    let script = "import os, socket\n\
        c = socket.socket(socket.AF_UNIX); c.connect('socket'); c.send(b'x')\n\
        l = socket.socket(socket.AF_UNIX); l.bind('own'); l.listen()\n\
        d = socket.socket(socket.AF_UNIX); d.connect('own')\n";
    let child = s.exec(&[], &["python3", "-c", script]).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    let ran = s.finish(output);
    txos_skip::require!(ran.output.status.code() != Some(127), "needs python3");
    let ran = ran.expect(0);
    let (mut peer, _) = listener.accept().unwrap();
    let mut byte = [0];
    std::io::Read::read_exact(&mut peer, &mut byte).unwrap();
    assert_eq!(&byte, b"x");
    assert!(ran.warned("Ipc"));
    assert!(!s.path("own").exists());
}

#[test]
fn waiting_for_the_background_can_be_interrupted() {
    needs_root!();
    let s = Sandbox::new();
    let script = "mkfifo never; exec 3<>never; (trap '' INT; read x <&3) & echo $!; exit 0";
    let mut child = ignoring_interrupts(&s.command(&["--keep"], script))
        .current_dir(s.path(""))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let background = Pinned::new(&common::first_line(child.stdout.as_mut().unwrap()));
    // Until the command itself has ended, an interrupt is the command's: it comes again.
    while background.lives() {
        rustix::process::kill_process(pid(&child), Signal::INT).unwrap();
        std::thread::yield_now();
    }
    let status = child.wait_with_output().unwrap().status;
    assert_eq!(status.code(), Some(130), "{status}");
    assert!(!mounted_anywhere(&s));
}

/// The same command with SIGINT ignored, so that one that comes when all is over does no harm.
fn ignoring_interrupts(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' INT; exec \"$0\" \"$@\""]).arg(command.get_program());
    shell.args(command.get_args());
    shell
}
