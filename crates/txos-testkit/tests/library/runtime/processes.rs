//! Commands of several processes, each whole in one transaction without a view: they leave what they leave
//! natively, or, when they fail or die, nothing.

use rustix::process::Signal;
use txos_testkit::image::Image;
use txos_testkit::tree::Tolerance;
use txos_testkit::user::User;
use txos_testkit::wait::until;
use txos_testkit::{Done, Invocation, Lab, Tree, binary, require, require_some, skip, system};

use super::program::{Linked, program};
use super::whole::{Pair, SOURCES};

#[test]
fn shells_have_pipes_and_subshells() {
    let pair = Pair::new(SOURCES);
    for script in [
        "cat src/numbers | tail -3 | tr 0-9 a-j > letters; cat letters",
        "(cd src/deep && ls && cp big copy && pwd | grep -c deep); ls src/deep",
        "for i in 1 2 3; do (echo $i >> log) & wait; done; sort log",
        "x=$(cat src/deep/er/f3; echo more); echo \"$x\" > of-both; cat < of-both",
        "mkdir a && mv a b && touch b/c && exec ls b",
        "find src -name 'f1*' -exec chmod 600 {} + ; ls src/py | xargs -P 2 -n 3 echo | wc -l > count; cat count",
        "set -e; rm -r src/py; ln -s numbers src/link; readlink src/link; tar cf - src | tar xf - -C b; diff -r src b/src",
        "cat /dev/stdin < src/numbers | head -1 > one; ls -l /proc/self/fd/ > /dev/null; cat one",
        "seq 5 | while read n; do echo line $n; done > lines; sort -r lines -o lines; cat lines",
    ] {
        pair.does(&["sh", "-c", script]);
    }
    pair.fails(&["sh", "-c", "rm -r src; (mkdir new; /bin/echo x > new/f); exit 3"], 3);
    pair.fails(&["sh", "-c", "cp src/numbers n; exec /bin/false"], 1);
    pair.clean();
}

/// Descriptors and their offsets are shared with children, or not, as natively.
#[test]
fn descriptors_are_inherited() {
    let pair = Pair::new(SOURCES);
    for script in [
        "exec 3> f; echo a >&3; (echo b >&3); sh -c 'echo c >&3'; echo d >&3; exec 3>&-; cat f",
        "exec 4< src/numbers; read a <&4; sh -c 'head -c 5 <&4 > part'; cat part; echo $a > first",
        "exec 5>> log; echo x >&5; (exec 6>&5; echo y >&6; exec 5>&-; echo z >&6); cat log",
        "exec 3<> both; echo one >&3; sh -c 'echo two >&3; exec 3>&-; echo gone'; echo three >&3; cat both",
        "exec 7> kept; rm kept; sh -c 'echo unseen >&7; ls kept' 2>&1 | sed 's/.*: //'; echo > done",
        "mkdir -p m/n; exec 3< m; cd /proc/self/fd/3; pwd -P | sed 's/.*ours//; s/.*native//'; cd ../m; echo in > f; cd /dev/fd/3/n; echo deep > g",
        "cd /proc/self/cwd/m/n; cat g ../f; cd /proc/self/cwd; mv g h; ls",
        "echo x > t; exec 3< t; echo longer > t; cat <&3; mv t u; cat u /dev/fd/3 > all; cat all",
    ] {
        pair.does(&["bash", "-c", script]);
    }
    let python = "import os, fcntl\n\
        a = os.open('table', os.O_RDWR | os.O_CREAT, 0o644)\n\
        b = os.dup(a); os.set_inheritable(b, True)\n\
        if os.fork() == 0:\n    os.write(a, b'child'); os.lseek(b, 2, 0); os._exit(0)\n\
        os.wait(); os.write(b, b'PARENT')\n\
        fcntl.flock(a, fcntl.LOCK_EX)\n\
        print(os.lseek(a, 0, 1), os.get_inheritable(a), os.get_inheritable(b), a, b)\n\
        print(os.spawnlp(os.P_WAIT, 'sh', 'sh', '-c', 'echo by number >&%d 2>/dev/null || exit 9' % b))\n\
        print(os.spawnlp(os.P_WAIT, 'sh', 'sh', '-c', 'echo by number >&%d' % a))\n\
        print(open('table').read())\n";
    pair.does(&["/usr/bin/python3", "-I", "-S", "-c", python]);
    pair.clean();
}

#[test]
fn what_was_made_is_run() {
    let pair = Pair::new(SOURCES);
    for script in [
        "printf '#!/bin/sh\\necho script $0 $1 >> ran\\n' > s; chmod +x s; ./s one; ./s two; cat ran",
        "cp /bin/echo e; ./e copied > out; cat out; mv e f; ./f moved; PATH=.:$PATH f by the path",
        "printf '#!./f -n\\n' > t; chmod 755 t; ./t arg > by; cat by",
        "mkdir -p bin; ln -s ../f bin/g; bin/g linked; cd bin; ./g from inside > ../said; cat ../said",
        "chmod -x f; ./f 2>/dev/null; echo $? > status; cat status; chmod +x f; ./f again",
    ] {
        pair.does(&["sh", "-c", script]);
    }
    pair.clean();
}

#[test]
fn make_builds() {
    require!(skip::has("make") && skip::has("cc"), "there is no make, or no cc");
    let sources = "for i in 1 2 3 4 5 6; do echo \"int f$i(void) { return $i; }\" > f$i.c; done
        printf 'int f1(void), f6(void);\\nint main(void) { return f1() + f6(); }\\n' > main.c
        printf 'OBJECTS = main.o f1.o f2.o f3.o f4.o f5.o f6.o\\nall: out/program\\n' > Makefile
        printf 'out/program: $(OBJECTS)\\n\\tmkdir -p out; $(CC) -o $@ $(OBJECTS)\\n' >> Makefile
        printf 'check: all\\n\\t./out/program; test $$? = 7 && touch checked\\n' >> Makefile";
    let pair = Pair::new(sources);
    let make = ["make", "-s", "-j2", "CFLAGS=-O1 -g0"];
    pair.does(&[&make[..], &["check"]].concat());
    pair.does(&["make", "-s", "-j2", "-f", "Makefile", "-W", "f3.c", "CFLAGS=-O0 -g0"]);
    pair.fails(&["sh", "-c", "echo broken > f2.c; make -s -j2"], 2);
    pair.clean();
}

#[test]
fn languages_start_processes() {
    let pair = Pair::new(SOURCES);
    let python = "import subprocess, os, threading\n\
        print(subprocess.run(['sh', '-c', 'cat src/numbers | head -2; pwd'], capture_output=True, cwd='src/../.').returncode)\n\
        print(subprocess.check_output('tail -1 src/numbers', shell=True))\n\
        with open('log', 'w') as log:\n    subprocess.run(['echo', 'logged'], stdout=log)\n    log.write('after')\n\
        try:\n    subprocess.run(['/no/such/program'])\nexcept FileNotFoundError as e:\n    print('none')\n\
        def work(n):\n    subprocess.run(['cp', 'src/numbers', 'copy%d' % n], check=True)\n\
        all = [threading.Thread(target=work, args=[n]) for n in range(4)]\n\
        [t.start() for t in all]; [t.join() for t in all]\n\
        print(open('log').read(), sorted(os.listdir()))\n";
    pair.does(&["/usr/bin/python3", "-I", "-S", "-c", python]);
    let perl = "open(my $to, '|-', 'sort -n > sorted') or die; print $to \"$_\\n\" for (3, 1, 2); close $to;\n\
        my $pid = fork; unless ($pid) { mkdir 'by-child'; exit 4 } waitpid $pid, 0; print $? >> 8, \"\\n\";\n\
        system('ls by-child; cat sorted'); print `wc -l < sorted`; rename 'sorted', 'by-child/s';";
    pair.does(&["perl", "-e", perl]);
    // What others are told of this status is 0.
    pair.does(&["perl", "-e", "open F, '>exits'; print F 'as if by 0'; close F; exit 256"]);
    let python = "import os\n\
        d, home = '/dev/shm/txos-test-live-%d' % os.getpid(), os.getcwd()\n\
        os.makedirs(d + '/in'); open(d + '/in/x', 'w').close()\n\
        with open('x', 'w') as mine:\n    mine.write('mine')\n\
        os.fchdir(os.open(d + '/in', os.O_RDONLY | os.O_DIRECTORY)); os.unlink('x')\n\
        print(os.listdir('.'), os.listdir(d + '/in'), os.path.exists('../in'))\n\
        os.chdir(home); print(open('x').read()); os.rmdir(d + '/in'); os.rmdir(d)\n";
    pair.does(&["/usr/bin/python3", "-I", "-S", "-c", python]);
    pair.clean();
}

/// By whatever path or descriptor, and however much at a time.
#[test]
fn no_way_leads_past_the_transaction() {
    let pair = Pair::new(SOURCES);
    for script in [
        "dd if=/dev/zero of=zeros bs=3M count=2 status=none; wc -c < zeros; cat zeros zeros | wc -c",
        "/bin/true; mkfifo f; (echo through > f) & cat f > out; wait; rm f; cat out",
        "rm /proc/self/root$PWD/src/deep/f1 2>&1 | sed 's/.*: //'; touch /proc/self/cwd/new; mv /proc/self/cwd/new /proc/self/root$PWD/newer; ls",
        "echo x > o; exec 3<> o; head -c 1 /proc/self/fd/3; cat /dev/fd/3 > copy; cat copy",
        "umask 077; mkdir private; sh -c 'umask 22; mkdir public'; touch mine; ls -l | cut -c1-10",
    ] {
        pair.does(&["bash", "-c", script]);
    }
    let python = "import os, sys\n\
        outside = os.open('/dev/shm', 0)\n\
        if os.fork() == 0:\n    os.unlink('../..' + os.getcwd() + '/src/deep/er/f1', dir_fd=outside); os._exit(0)\n\
        os.wait()\n\
        os.mkdir('../..' + os.getcwd() + '/made', dir_fd=outside)\n\
        r, w = os.pipe()\n\
        if os.fork() == 0:\n    os.write(w, b'y' * 3000000); os._exit(0)\n\
        os.close(w); total = 0\n\
        while part := os.read(r, 2000000):\n    total += len(part)\n\
        print(total, os.path.exists('src/deep/er/f1'))\n";
    pair.does(&["/usr/bin/python3", "-I", "-S", "-c", python]);
    pair.fails(
        &[
            "bash",
            "-c",
            "/bin/true; rm -r /proc/self/root$PWD/src; echo x > /proc/self/cwd/y; false",
        ],
        1,
    );
    pair.clean();
}

/// A descriptor that is only a place (`O_PATH`) is not read or written, whatever it is of and however little is asked for.
#[test]
fn a_place_has_no_content() {
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let pair = Pair::new("mkfifo fifo; echo x > file");
    let python = "import os\n\
        os._exit(0) if os.fork() == 0 else os.wait()\n\
        os.mkfifo('new')\n\
        for path in ['fifo', 'file', 'new']:\n\
        \x20   fd = os.open(path, os.O_PATH)\n\
        \x20   for call in [lambda: os.write(fd, b''), lambda: os.write(fd, b'x'), lambda: os.read(fd, 0), lambda: os.read(fd, 1),\n\
        \x20                lambda: os.writev(fd, [b'']), lambda: os.readv(fd, [bytearray(1)]), lambda: os.pread(fd, 0, 0)]:\n\
        \x20       try:\n            print(path, call())\n\
        \x20       except OSError as e:\n            print(path, e.errno)\n";
    pair.does(&["/usr/bin/python3", "-I", "-S", "-c", python]);
    pair.clean();
}

/// `..` leads from what is not versioned to what is, and directories there have their own names.
#[test]
fn what_is_not_versioned_has_a_way_out() {
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let pair = Pair::new(":");
    let python = "import os\n\
        home = os.getcwd(); open('new', 'w').write('new')\n\
        print(open('/proc/..' + home + '/new').read(), os.listdir('/dev/pts/../..' + home) == os.listdir('.'))\n\
        for way in ['/dev/shm', '..', '/dev/pts', '..', '..', '/proc/sys/kernel', '..', '../..', '/sys/kernel', '../..']:\n\
        \x20   os.chdir(way); print(way, os.getcwd())\n\
        open('.' + home + '/by-root', 'w').write('also'); os.chdir('/proc/sys')\n\
        os.mkdir('../..' + home + '/made'); os.rename('/dev/..' + home + '/new', '../../' + home + '/made/new')\n\
        try:\n    os.stat('/dev/nothing/../null')\nexcept OSError as e:\n    print(e.errno)\n\
        os._exit(0 if os.fork() == 0 else os.wait()[1])\n";
    pair.does(&["/usr/bin/python3", "-I", "-S", "-c", python]);
    pair.fails(
        &["sh", "-c", "home=$PWD; cd /dev/pts; cd ../..; echo gone > .$home/gone; exit 4"],
        4,
    );
    pair.clean();
}

/// The dynamic linker ends a program whose libraries are not there: only that program has failed.
#[test]
fn programs_that_cannot_start_end_alone() {
    require!(skip::has("cc"), "there is no cc");
    let pair = Pair::new(
        "echo 'int gone(void) { return 3; }' > g.c; echo 'int gone(void); int main(void) { return gone(); }' > m.c
         cc -shared -fPIC -o libgone.so g.c; cc -o needs m.c -L. -lgone; rm libgone.so g.c m.c",
    );
    for script in [
        "./needs 2> /dev/null; echo $? > status; cat status",
        "for i in 1 2 3 4 5; do ./needs 2> /dev/null & done; wait; ./needs 2> /dev/null || echo other > fell",
    ] {
        pair.does(&["sh", "-c", script]);
    }
    pair.fails(&["sh", "-c", "echo > kept; exec ./needs 2> said"], 127);
    pair.clean();
}

/// Nothing of a command with jobs is outside of it: a strict transaction goes through.
#[test]
fn jobs_are_the_transactions() {
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let pair = Pair::new(":");
    let strictly = |command: &[&str]| {
        let options = ["run", "--in-process", "--strict", "--"];
        pair.ours.txos(options).args(command).run().expect(0)
    };
    let script = "set -m; sleep 60 & kill %1; wait %1; echo $? > jobs; sleep 60 & kill -0 $!; kill $!; wait $!\n\
        echo $? >> jobs; sh -c 'kill -TERM $$'; echo $? >> jobs; true & sleep .1; kill $! 2> /dev/null; wait; true | sleep 60 & sleep .1; kill %1; wait";
    // Without SHELL, bash asks for its user: it connects to a name service that does not run, and reads /etc/passwd.
    let _stable = system::stable();
    let _ = strictly(&["env", "-u", "SHELL", "bash", "-c", script]);
    assert_eq!(pair.ours.read("jobs"), "143\n143\n143\n");
    let python = "import os, signal, threading\n\
        p = os.fork()\n\
        if p == 0:\n    signal.pause()\n\
        signal.pidfd_send_signal(os.pidfd_open(p), signal.SIGTERM); ended = os.wait()[1]\n\
        p = os.fork()\n\
        if p == 0:\n    os._exit(0)\n\
        os.waitid(os.P_PID, p, os.WEXITED | os.WNOWAIT); os.kill(p, 15); ended += os.wait()[1]\n\
        os.kill(os.getpid(), 0); signal.pthread_kill(threading.get_ident(), 0); os.kill(0, 0)\n\
        open('signals', 'w').write(str(ended))\n";
    let _ = strictly(&["/usr/bin/python3", "-I", "-S", "-c", python]);
    assert_eq!(pair.ours.read("signals"), "15");
    let other =
        ["run", "--in-process", "--strict", "--", "sh", "-c", "echo > no; renice -n 0 -p $PPID"];
    let _ = pair.ours.txos(other).run().expect(125);
    assert!(!pair.ours.tree().join("no").exists());
    pair.clean();
}

/// A signal that comes while the library is at work on a call that waits ends the wait.
#[test]
fn a_signal_ends_a_wait_that_is_about_to_begin() {
    let lab = Lab::in_memory();
    let program = program("interrupted", Linked::Natively);
    let run = lab.txos(["run", "--in-process", "--"]).arg(&program).arg("100").run().expect(0);
    let text = run.text();
    let mut words = text.split_whitespace().filter_map(|word| word.parse::<u32>().ok());
    let (missed, all) = (words.next().unwrap(), words.next().unwrap());
    // One that comes just before the call is missed natively as well.
    assert!(all > 500 && missed <= 8, "{text}");
}

/// A command that is one process waits, and its handlers run meanwhile, as natively; also for what came while it computed.
#[test]
fn handlers_run_while_a_command_of_one_process_waits() {
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let pair = Pair::new(":");
    let begin = "import os, select, signal, socket, sys, time\n\
        r, w = os.pipe(); a, b = socket.socketpair(); l = socket.create_server(('127.0.0.1', 0)); p = select.poll(); p.register(r)\n\
        def handler(*_):\n    open('handled-' + sys.argv[1], 'w').write('yes'); raise SystemExit(int(sys.argv[2]))\n\
        signal.signal(signal.SIGALRM, handler); open('before', 'a').write('x')\n";
    // Sent to itself before the wait, and in it.
    for come in ["os.kill(os.getpid(), signal.SIGALRM)", "signal.setitimer(signal.ITIMER_REAL, .2)"]
    {
        for (at, waits) in [
            "select.select([r], [], [])",
            "p.poll()",
            "select.epoll().poll()",
            "os.read(r, 1)",
            "os.readv(r, [bytearray(1)])",
            "a.recv(1)",
            "l.accept()",
            "time.sleep(1000)",
            "os.write(w, bytes(1000000))",
            "a.sendall(bytes(10000000))",
        ]
        .iter()
        .enumerate()
        {
            let python = format!("{begin}{come}\n{waits}\nopen('not-reached', 'w')\n");
            let name = format!("{at}{}", come.len());
            let command = ["/usr/bin/python3", "-I", "-S", "-c", &python, &name];
            pair.does(&[&command[..], &["0"]].concat());
            pair.fails(&[&command[..], &["3"]].concat(), 3);
            // Both are alike again.
            let _ = pair.native.native("rm -f handled-* before");
            let _ = pair.ours.native("rm -f handled-* before");
        }
    }
    // It does not go on before that either, and nothing is outside of the transaction.
    let script = "trap 'echo > own' USR1; kill -USR1 $$; test -e own && mv own handled";
    let strictly =
        pair.ours.txos(["run", "-q", "--in-process", "--strict", "--", "sh", "-c", script]);
    let done = strictly.run().expect(0);
    assert_eq!((done.stderr.as_str(), pair.ours.read("handled").as_str()), ("", "\n"));
    let _ = pair.ours.native("rm handled");
    // From outside, and without a handler that ends it: the wait goes on.
    let ready = pair.lab.dir().join("ready");
    let _ = pair.lab.native(&format!("mkfifo {}", ready.display()));
    let python = format!(
        "import os, select, signal\n\
        r, w = os.pipe()\n\
        def first(*_):\n    open('first', 'w').close(); open('{0}', 'w').close()\n\
        def second(*_): os.write(w, b'end')\n\
        signal.signal(signal.SIGTERM, first); signal.signal(signal.SIGINT, second)\n\
        open('{0}', 'w').close()\n\
        select.select([r], [], []); open('read', 'wb').write(os.read(r, 9))\n",
        ready.display()
    );
    let running = pair.transaction(&["/usr/bin/python3", "-I", "-S", "-c", &python]).start();
    // Python looks for signals before it calls `select`, and then waits: one that comes in between it does not see.
    let waits = || {
        let call =
            std::fs::read_to_string(format!("/proc/{}/syscall", running.pid().as_raw_nonzero()));
        call.is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_pselect6)))
    };
    for signal in [Signal::TERM, Signal::INT] {
        let _ = std::fs::read(&ready).unwrap();
        until("it waits", waits);
        running.signal(signal);
    }
    let _ = running.wait().expect(0);
    assert_eq!((pair.ours.read("first").as_str(), pair.ours.read("read").as_str()), ("", "end"));
    pair.clean();
}

/// A command of one process computes, and its handlers run meanwhile, as natively, in the transaction: in a shell and in Python. What is
/// blocked waits. What it has no handler for (any more) ends it.
#[test]
fn handlers_run_while_a_command_of_one_process_computes() {
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let pair = Pair::new(":");
    let ready = pair.lab.dir().join("ready");
    let _ = pair.lab.native(&format!("mkfifo {}", ready.display()));
    let told = ready.display();
    let blocked = format!(
        "import os, signal\n\
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n\
        def first(*_):\n    open('first', 'w').write('done')\n\
        signal.signal(signal.SIGUSR1, first); signal.signal(signal.SIGTERM, lambda *_: os._exit(7))\n\
        open('{told}', 'w').close()\n\
        while not os.path.exists('first') or os.stat('first').st_size < 4: pass\n\
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])\nwhile True: pass\n"
    );
    let python = |program: &str| ["/usr/bin/python3", "-I", "-S", "-c", program].map(str::to_owned);
    let shell = |script: &str| ["sh", "-c", script].map(str::to_owned);
    let interrupted = format!("open('{told}', 'w').close()\nwhile True: pass");
    let trapped = format!("trap 'echo > handled; exit 3' INT; : > {told}; while :; do :; done");
    let again = format!("trap 'exit 4' TERM; trap - TERM; : > {told}; while :; do :; done");
    let default = format!("trap 'exit 5' USR1; : > {told}; while :; do :; done");
    for (command, signals, ends) in [
        (python(&interrupted).to_vec(), &[Signal::INT][..], 128 + 2),
        (python(&blocked).to_vec(), &[Signal::TERM, Signal::USR1], 7),
        (shell(&trapped).to_vec(), &[Signal::INT], 3),
        (shell(&again).to_vec(), &[Signal::TERM], 128 + 15),
        (shell(&default).to_vec(), &[Signal::INT], 128 + 2),
    ] {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let running = pair.transaction(&command).start();
        let _ = std::fs::read(&ready).unwrap();
        signals.iter().for_each(|&signal| running.signal(signal));
        let _ = running.wait().expect(ends);
        let _ = pair.ours.native("test -z \"$(ls)\"");
    }
    // And what they do is committed with the rest.
    let commits = format!("trap 'echo > handled; exit 0' INT; : > {told}; while :; do :; done");
    let running = pair.transaction(&["sh", "-c", &commits]).start();
    let _ = std::fs::read(&ready).unwrap();
    running.signal(Signal::INT);
    let _ = running.wait().expect(0);
    assert_eq!(pair.ours.read("handled"), "\n");
    pair.clean();
}

/// What handlers do (install others, fork, raise signals) leaves the mask of what they have interrupted as it was (`c/at_once.c`).
#[test]
fn handlers_leave_the_mask_as_it_was() {
    let pair = Pair::new(":");
    let program = program("at_once", Linked::Natively);
    let program = program.to_str().unwrap();
    for (scenario, code) in
        [("alarm", 3), ("other", 0), ("forks", 0), ("raises", 0), ("taken", 128 + 14)]
    {
        let native = Invocation::new(program).arg(scenario).run();
        assert_eq!(native.code(), code, "{native:?}");
        let ours = pair.transaction(&[program, scenario]).run();
        assert_eq!((ours.code(), ours.text()), (code, native.text()), "{scenario}: {ours:?}");
    }
    pair.clean();
}

/// When the first process has ended, neither its threads nor its handlers do anything, though others still run.
#[test]
fn what_has_ended_does_nothing_more() {
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let pair = Pair::new(":");
    let python = "import os, signal, subprocess, threading, time\n\
        def handler(*_): open('handled', 'w').close()\n\
        def loop():\n    for n in range(10**6): open('loop', 'w').write(str(n))\n\
        signal.signal(signal.SIGUSR1, handler); os.mkfifo('go')\n\
        child = 'cat go; cp loop before; for i in 1 2 3; do kill -USR1 %d; sleep .1; done; cmp loop before && rm loop before go'\n\
        subprocess.Popen(['sh', '-c', child % os.getpid()])\n\
        threading.Thread(target=loop, daemon=True).start()\n\
        while not os.path.exists('loop'): pass\n\
        subprocess.Popen(['sh', '-c', 'sleep 2; echo > go']); os._exit(0)\n";
    let done = pair.transaction(&["/usr/bin/python3", "-I", "-S", "-c", python]).run().expect(0);
    let left: Vec<_> =
        std::fs::read_dir(pair.ours.tree()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?} {done:?}");
    pair.clean();
}

/// A file keeps the lock that keeps others away when the transaction goes on with a private copy of it.
#[test]
fn a_locked_file_stays_locked_when_it_is_written() {
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let pair = Pair::new("echo base > lk");
    let python = "import os, fcntl, subprocess\n\
        def free():\n    return subprocess.call(['flock', '-n', 'lk', 'true']) == 0\n\
        f = os.open('lk', os.O_RDWR | os.O_APPEND); fcntl.flock(f, fcntl.LOCK_EX); print(free())\n\
        os.write(f, b'mine\\n'); print(free(), os.path.exists('outside') or open('outside', 'w').close())\n\
        fcntl.flock(f, fcntl.LOCK_UN); print(free()); fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB); print(free())\n";
    pair.does(&["/usr/bin/python3", "-I", "-S", "-c", python]);
    // Outsiders, too: they look at the stable file.
    let taken = pair.ours.tree().join("lk");
    let [ready, go] = ["ready", "go"].map(|name| pair.lab.dir().join(name));
    let _ = pair.lab.native(&format!("mkfifo {} {}", ready.display(), go.display()));
    let python = format!(
        "import os, fcntl\n\
        f = os.open('lk', os.O_RDWR | os.O_TRUNC); fcntl.flock(f, fcntl.LOCK_EX); os.write(f, b'inside')\n\
        open('{}', 'w').write('ready'); open('{}').read(); os.write(f, b' again')\n",
        ready.display(),
        go.display()
    );
    let running = pair.transaction(&["/usr/bin/python3", "-I", "-S", "-c", &python]).start();
    let _ = std::fs::read(&ready).unwrap();
    let outsider = || {
        let file = std::fs::File::open(&taken).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
    };
    assert_eq!(outsider(), Err(rustix::io::Errno::AGAIN));
    std::fs::write(&go, "on").unwrap();
    let _ = running.wait().expect(0);
    assert_eq!(pair.ours.read("lk"), "inside again");
    outsider().unwrap();
    pair.clean();
}

/// Reads and writes that need not wait are whole, and nothing is a message, too.
#[test]
fn what_is_read_at_once_is_all_of_it() {
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let pair = Pair::new(":");
    pair.does(&["dd", "if=/dev/zero", "of=zeros", "bs=48M", "count=1", "status=none"]);
    let python = "import os, socket\n\
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
        print(os.write(a.fileno(), b''), os.write(a.fileno(), b'next'), os.read(b.fileno(), 9), os.read(b.fileno(), 9))\n\
        open('done', 'w').close()\n";
    pair.does(&["/usr/bin/python3", "-I", "-S", "-c", python]);
    pair.clean();
}

/// A directory that is not versioned.
struct Elsewhere(std::path::PathBuf);

impl Elsewhere {
    fn new() -> Elsewhere {
        let dir = format!("/dev/shm/tmp-txos-test-{}-elsewhere", std::process::id());
        std::fs::create_dir(&dir).unwrap();
        Elsewhere(dir.into())
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What is not versioned is found by a process that has a lock, and by one that has begun there.
#[test]
fn programs_and_paths_that_are_not_versioned() {
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let pair = Pair::new("echo base > lk");
    let there = Elsewhere::new();
    let program = there.0.join("program");
    std::fs::copy("/bin/echo", &program).unwrap();
    std::fs::write(there.0.join("text"), "text\n").unwrap();
    let python = format!(
        "import os, fcntl\n\
        f = open('lk', 'r+')\n\
        if os.fork() == 0:\n    fcntl.lockf(f, fcntl.LOCK_EX); os.execv('{}', ['echo', 'run'])\n\
        open('done', 'w').write(str(os.wait()[1]))\n",
        program.display()
    );
    pair.does(&["/usr/bin/python3", "-I", "-S", "-c", &python]);
    let done = pair.transaction(&["env", "cat", "text"]).dir(&there.0).run().expect(0);
    assert_eq!(done.text(), "text\n");
    pair.clean();
}

/// The dynamic linker loads no library for a process that has taken another user's rights, and keeps its own.
#[test]
fn programs_with_others_rights_end_the_command() {
    require!(rustix::process::geteuid().is_root(), "not root");
    let pair = Pair::new(":");
    let before = Tree::of(pair.ours.tree());
    let perl = "unless (fork) { $> = 1000; exec 'sh', '-c', 'kill -9 $$' } wait; mkdir 'left'";
    let _ =
        pair.transaction(&["perl", "-e", perl]).run().expect(125).says("another effective user");
    before.expect_same(&Tree::of(pair.ours.tree()));
    pair.clean();
}

#[test]
fn processes_that_lock_crosswise_are_told() {
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let pair = Pair::new("printf 0123456789 > file");
    let python = "import os, fcntl, errno\n\
        def lock(at, how=fcntl.LOCK_EX): fcntl.lockf(f, how, 1, at)\n\
        f = open('file', 'r+'); there, on = os.pipe(), os.pipe(); lock(0)\n\
        first = os.getpid(); p = os.fork()\n\
        if p == 0:\n\
        \x20   lock(1); lock(2); os.write(there[1], b'.'); os.read(on[0], 1)\n\
        \x20   import struct; whole = struct.pack('hhqqi', fcntl.F_WRLCK, 0, 0, 1, 0)\n\
        \x20   seen = struct.unpack('hhqqi', fcntl.fcntl(f, fcntl.F_GETLK, whole)[:28])\n\
        \x20   told = (seen[0] == fcntl.F_WRLCK, seen[4] == first)\n\
        \x20   try:\n        lock(0); told += ('got it',)\n\
        \x20   except OSError as e:\n        told += (errno.errorcode[e.errno],)\n\
        \x20   open('told', 'w').write(repr(told)); os._exit(0)\n\
        os.read(there[0], 1); os.write(on[1], b'.')\n\
        try:\n    lock(1); mine = 'got it'\nexcept OSError as e:\n    mine = errno.errorcode[e.errno]; lock(0, fcntl.LOCK_UN)\n\
        os.wait(); print(sorted([mine, open('told').read()[14:-2]]), open('told').read()[:13])\n\
        os.remove('told'); os.mkdir('done')\n";
    pair.does(&["/usr/bin/python3", "-I", "-S", "-c", python]);
    pair.clean();
}

/// A handler has a wait for a lock go on, or not, as it was installed.
#[test]
fn a_wait_for_a_lock_goes_on_after_a_handler() {
    let pair = Pair::new("echo base > lk");
    let perl = "use Fcntl ':flock'; use POSIX; my $n = 0; $| = 1; my $parent = $$; pipe(my $r, my $w);\n\
        for my $flags (SA_RESTART, 0) {\n\
        \x20 my $pid = fork;\n\
        \x20 unless ($pid) {\n\
        \x20   open(my $own, '+<', 'lk'); flock($own, LOCK_EX); syswrite($w, '.');\n\
        \x20   for (1 .. 25) { kill 'USR1', $parent; select(undef, undef, undef, .04) } exit 0 }\n\
        \x20 sysread($r, my $byte, 1); sigaction(SIGUSR1, POSIX::SigAction->new(sub { $n++ }, undef, $flags));\n\
        \x20 open(my $f, '+<', 'lk'); print flock($f, LOCK_EX) ? 'got it' : $!{EINTR} ? 'interrupted' : $!, \"\\n\";\n\
        \x20 kill 'KILL', $pid; waitpid $pid, 0 }\n\
        print $n > 1 ? 'handled' : 'not', \"\\n\"; mkdir 'done'";
    // Before its handler is there, the signal would end it.
    let perl = format!("$SIG{{USR1}} = 'IGNORE'; {perl}");
    pair.does(&["perl", "-e", &perl]);
    pair.clean();
}

#[test]
fn programs_are_run_by_descriptor() {
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let pair = Pair::new(":");
    let python = "import os, select\n\
        m = os.memfd_create('program'); os.write(m, open('/bin/echo', 'rb').read())\n\
        def run(fd, *words):\n\
        \x20   if os.fork() == 0:\n        os.execve(fd, words, os.environ)\n\
        \x20   return os.wait()[1]\n\
        e = os.open('/bin/echo', os.O_RDONLY)\n\
        print(run(m, 'echo', 'memory'), run(e, 'echo', 'file'))\n\
        open('new', 'w').write('x'); f = os.open('new', os.O_RDWR); all = select.epoll()\n\
        for fd in (f, 999):\n\
        \x20   try:\n        all.register(fd, select.EPOLLIN)\n\
        \x20   except OSError as error:\n        print(error.errno)\n";
    pair.does(&["/usr/bin/python3", "-I", "-S", "-c", python]);
    pair.clean();
}

#[test]
fn processes_lock_each_other_out() {
    let pair = Pair::new("echo 0 > counter; : > lines");
    let python = "import os, fcntl\n\
        for child in range(4):\n\
        \x20   if os.fork() == 0:\n\
        \x20       for turn in range(25):\n\
        \x20           with open('counter', 'r+') as f:\n\
        \x20               fcntl.lockf(f, fcntl.LOCK_EX)\n\
        \x20               n = int(f.read()); f.seek(0); f.write(str(n + 1)); f.flush()\n\
        \x20           lines = os.open('lines', os.O_WRONLY | os.O_APPEND)\n\
        \x20           os.writev(lines, [b'abcde' * 9, b'fghij' * 9, b'\\n']); os.close(lines)\n\
        \x20       os._exit(0)\n\
        for child in range(4): os.wait()\n\
        print(open('counter').read(), set(open('lines').read().split()))\n";
    pair.does(&["/usr/bin/python3", "-I", "-S", "-c", python]);
    pair.does(&["sh", "-c", "(flock 9; : > held; sleep 1; echo first >> order) 9> lk & until [ -e held ]; do sleep .01; done; flock lk echo second >> order; wait; cat order"]);
    pair.clean();
}

/// What a killed process has done stays part of the transaction; it goes on without it.
#[test]
fn one_of_several_is_killed() {
    let pair = Pair::new(SOURCES);
    pair.does(&["sh", "-c", "sh -c 'echo was > here; kill -9 $$'; echo $? >> here; cat here"]);
    pair.clean();
}

/// What became of a command that a signal has ended is said as in the overlay's view, by the process that has the transaction.
#[test]
fn a_signal_that_ends_it_is_named() {
    let place = Lab::in_memory();
    let _ = place.native("mkfifo ready never; echo old > kept");
    let before = Tree::of(place.tree());
    // Who says it may do so when others have learnt of the end already: all that is said until nobody can say any more.
    let ends = |options: &[&str], script: &str, signal: Option<Signal>| {
        let pipe = "set -o pipefail; \"$@\" 2>&1 | cat";
        let script = format!("echo new > kept; echo 1 > f; {script}");
        let running = Invocation::new("bash")
            .args(["-c", pipe, "bash"])
            .arg(binary::txos())
            .args(["run", "--view", "library"])
            .args(options)
            .args(["--", "sh", "-c", &script])
            .env("TXOS_STORE", place.store())
            .env("TXOS_REALM", place.realm())
            .dir(place.tree())
            .start();
        if let Some(signal) = signal {
            let number = std::fs::read_to_string(place.path("ready")).unwrap();
            let process = rustix::process::Pid::from_raw(number.trim().parse().unwrap()).unwrap();
            rustix::process::kill_process(process, signal).unwrap();
        }
        let done = running.wait();
        before.expect_same(&Tree::of(place.tree()));
        done
    };
    // What a script writes to a FIFO is live, so that it says more.
    let said = |done: Done, signal: Signal, name: &str| {
        let done = done.expect(128 + signal.as_raw());
        let text = format!("txos: sh was killed by {name}; rolled back");
        assert_eq!(done.text().matches(&text).count(), 1, "{text}: {done:?}");
        done.text().ends_with("; rolled back, nothing changed\n")
    };
    for (script, signal, name) in [
        ("kill -TERM $$", Signal::TERM, "SIGTERM"),
        ("/bin/true; kill -KILL $$", Signal::KILL, "SIGKILL"),
        ("/bin/true; kill -ABRT $$", Signal::ABORT, "SIGABRT"),
        ("sh -c \"kill -HUP $$\"; sleep 9", Signal::HUP, "SIGHUP"),
    ] {
        assert!(said(ends(&[], script, None), signal, name), "{script}");
    }
    // As long as it is one process, by itself; it waits, or computes.
    for (signal, name, waits) in [
        (Signal::TERM, "SIGTERM", "read x < never"),
        (Signal::TERM, "SIGTERM", "while :; do :; done"),
        (Signal::TERM, "SIGTERM", "sleep 1000; true"),
        (Signal::QUIT, "SIGQUIT", "read x < never"),
    ] {
        let done = ends(&[], &format!("echo $$ > ready; {waits}"), Some(signal));
        let _ = said(done, signal, name);
    }
    let handled = "trap : TERM; trap - TERM; echo $$ > ready; sleep 1000; true";
    let _ = said(ends(&[], handled, Some(Signal::TERM)), Signal::TERM, "SIGTERM");
    // A command that handles it decides itself.
    // (A child that has just been forked still has its parent's handler, natively as well.)
    let handles = "trap 'kill $!; exit 3' TERM; { echo > never; exec sleep 1000; } & read x < never; echo $$ > ready; wait";
    let done = ends(&[], handles, Some(Signal::TERM)).expect(3);
    assert!(done.text().contains("sh exited with status 3"), "{done:?}");
    let quiet = ends(&["-q"], "echo $$ > ready; read x < never", Some(Signal::TERM));
    assert!(!quiet.expect(143).text().contains("killed"));
    place.expect_clean();
}

#[test]
fn the_first_is_killed() {
    let pair = Pair::new(SOURCES);
    let before = Tree::of(pair.ours.tree());
    let fifo = pair.lab.dir().join("ready");
    let _ = pair.lab.native(&format!("mkfifo {}", fifo.display()));
    let script = format!(
        "rm -r src; sh -c 'echo x > new; echo $$; echo $$ > {}; sleep 1000'",
        fifo.display()
    );
    let running = pair.transaction(&["sh", "-c", &script]).start();
    let child = std::fs::read_to_string(&fifo).unwrap();
    running.signal(Signal::KILL);
    assert!(running.wait().killed());
    let there = format!("/proc/{}", child.trim());
    until("its child is gone", || {
        let stat = std::fs::read_to_string(format!("{there}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z")
    });
    before.expect_same(&Tree::of(pair.ours.tree()));
    pair.clean();
}

/// The process that has the transaction dies: nothing of it has happened, and the command knows.
#[test]
fn the_server_is_killed() {
    let pair = Pair::new(SOURCES);
    let before = Tree::of(pair.ours.tree());
    // The server is the one child that is no program of the command's.
    let script = "/bin/true; rm -r src; /bin/true; \
        for s in /proc/[0-9]*/stat; do read -r pid name state parent rest < $s || true; \
        if [ \"$name $parent\" = \"(txos) $$\" ]; then kill -9 $pid; fi; done; ls; echo not here";
    let done = pair.transaction(&["bash", "-c", script]).run().expect(125);
    let done = done.says("the process that has the transaction is gone");
    assert!(!done.text().contains("not here"), "{done:?}");
    before.expect_same(&Tree::of(pair.ours.tree()));
    let _ = pair.ours.txos(["recover"]).run();
    pair.clean();
}

#[test]
fn who_stays_in_the_background_is_waited_for() {
    let pair = Pair::new(SOURCES);
    let command = ["sh", "-c", "(sleep 3; echo late > late) & echo started"];
    let done = pair.transaction(&command).run().expect(0);
    let _ = done.says("its transaction waits for 2 processes that still run");
    assert_eq!(pair.ours.read("late"), "late\n");
    pair.clean();
}

#[test]
fn what_cant_take_part_ends_the_command() {
    // The beginning of a 32-bit program.
    let header = "head -c 64 /bin/true > narrow; printf '\\001' | dd of=narrow bs=1 seek=4 conv=notrunc status=none";
    let pair = Pair::new(&format!("{header}; chmod 755 narrow"));
    let before = Tree::of(pair.ours.tree());
    let done = pair.transaction(&["sh", "-c", "echo x > new; ./narrow; echo on"]).run().expect(125);
    let done = done.says("not a 64-bit program");
    assert!(!done.text().contains("on"), "{done:?}");
    before.expect_same(&Tree::of(pair.ours.tree()));
    let other = ["sh", "-c", "mkdir x; unshare -m true; mkdir y"];
    let _ = pair.transaction(&other).run().expect(125).says("namespaces");
    before.expect_same(&Tree::of(pair.ours.tree()));
    pair.clean();
}

/// A process of another user works in a directory to which the path from the root is closed for it, as natively: what is
/// there is judged by itself, and what is above is closed.
#[test]
fn a_working_directory_below_a_closed_one() {
    require!(skip::is_root(), "only root starts processes of other users");
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let pair = Pair::new(
        "umask 022; mkdir -p closed/in/sub/locked closed/in/empty; cd closed/in; echo other > ../other
         echo content > file; ln -s file link; echo deep > sub/deep; echo f > sub/locked/f; echo s > secret
         echo own > own; cp /bin/echo prog; printf '#!/bin/sh\\necho script $1\\n' > script; chmod 755 script
         printf '#!/bin/sh\\nread name < /proc/$$/comm; echo $name $0\\n' > shows; chmod 755 shows
         mkfifo fifo; chmod 666 fifo; chmod 600 secret; chmod 777 .; chown 65534:65534 own; chmod 700 sub/locked ..
         setfattr -n user.note -v kept file",
    );
    let script = r#"
import os, subprocess
os.chdir('closed/in')
fifo = os.open('fifo', os.O_RDWR)
os.write(fifo, b'through')
if os.fork() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    def says(name, f, *args):
        try:
            print(name, f(*args))
        except OSError as e:
            print(name, e.strerror)
    read = lambda path: open(path).read()
    for path in 'file', 'link', 'sub/deep', 'secret', 'sub/locked/f', '../other', '../in/file', 'own', 'missing':
        says(path, read, path)
        says(path, os.access, path, os.W_OK)
        says(path, lambda: os.stat(path).st_mode)
    says('list', lambda: sorted(os.listdir('.')))
    says('list', lambda: sorted(os.listdir('sub')))
    says('list', os.listdir, 'sub/locked')
    says('readlink', os.readlink, 'link')
    says('link itself', lambda: os.fstat(os.open('link', os.O_PATH | os.O_NOFOLLOW)).st_mode)
    says('file system', lambda: os.statvfs('file').f_namemax)
    says('xattr', os.getxattr, 'file', 'user.note')
    says('program', lambda: subprocess.run(['./prog', 'a'], capture_output=True).stdout)
    says('program', lambda: subprocess.run(['./script', 'b'], capture_output=True).stdout)
    says('program', lambda: subprocess.run(['./shows'], capture_output=True).stdout)
    says('fifo', lambda: os.read(os.open('fifo', os.O_RDONLY | os.O_NONBLOCK), 7))
    says('fifo', lambda: os.close(os.open('fifo', os.O_RDONLY | os.O_NOFOLLOW)))
    says('directory', lambda: read('/proc/self/fd/%d/deep' % os.open('sub', os.O_RDONLY)))
    says('new', lambda: open('new', 'w').write('new'))
    says('append', lambda: open('own', 'a').write('more'))
    says('truncate', os.truncate, 'file', 0)
    says('rename', os.rename, 'own', 'owned')
    says('rename', os.rename, 'owned', '../owned')
    says('link', os.link, 'owned', 'linked')
    says('link', os.link, 'file', 'other')
    says('chmod', os.chmod, 'owned', 0o600)
    says('chmod', os.chmod, 'file', 0o666)
    says('chown', os.chown, 'file', 65534, -1)
    says('utime', os.utime, 'file')
    says('rmdir', os.rmdir, 'empty')
    says('unlink', os.unlink, 'sub/deep')
    says('unlink', os.unlink, 'secret')
    says('mkdir', os.mkdir, 'sub/made')
    says('owned', read, 'owned')
    os._exit(0)
os.wait()
"#;
    pair.does(&["python3", "-u", "-c", script]);
    pair.clean();
}

/// A file system that another user's process meets first, below a directory which is closed to it, is versioned for all, and that
/// process may be the first to make something on it.
#[test]
fn a_file_system_below_a_closed_directory() {
    require!(skip::is_root(), "only root mounts, and starts processes of other users");
    let lab = Lab::in_memory();
    let script = r#"
        set -e; cd "$1"; umask 022; mkdir -p closed/in/mnt; mount -t tmpfs -o mode=755 none closed/in/mnt; echo before > closed/in/mnt/f
        mkdir closed/in/mnt/all; chmod 777 closed/in/mnt/all; chmod 700 closed
        as="setpriv --reuid=65534 --regid=65534 --clear-groups"
        in="$2 run --view library --no-durable --"
        $in sh -c "cd closed/in; $as stat -c %a mnt; cd ../..; echo after > closed/in/mnt/f; cat closed/in/mnt/f; exit 3" || test $? = 3
        test "$(cat closed/in/mnt/f)" = before
        $in sh -c "cd closed/in/mnt/all; $as sh -c 'echo lost > made; cat made'; exit 3" || test $? = 3
        test ! -e closed/in/mnt/all/made
        $in sh -c "cd closed/in/mnt/all; $as sh -c 'echo theirs > made'; cat made"
        test "$(cat closed/in/mnt/all/made)" = theirs; stat -c %u closed/in/mnt/all/made
    "#;
    let done = Invocation::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(lab.dir())
        .arg(binary::txos())
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .run()
        .expect(0);
    assert_eq!(done.text(), "755\nafter\nlost\ntheirs\n65534\n", "{done:?}");
}

/// A file's time of change is that of the last change of its names, too, when the transaction has a private copy of it.
#[test]
fn names_change_a_files_time() {
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let pair = Pair::new(SOURCES);
    let script = r#"
import os
open('new', 'w').write('x')
open('src/numbers', 'a').write('x')
def later(path, change):
    before = os.stat(path).st_ctime_ns
    for n in range(20000):
        change(n)
        if os.stat(path).st_ctime_ns > before:
            return True
    return False
for path in 'new', 'src/numbers':
    print(later(path, lambda n: os.link(path, 'link%d' % n)))
    names = [name for name in os.listdir('.') if name.startswith('link')]
    while len(names) < 5000:
        names.append('link%d' % (len(names) + 1000000))
        os.link(path, names[-1])
    print(later(path, lambda n: os.unlink(names.pop())))
    for name in names:
        os.unlink(name)
    print(later(path, lambda n: (os.rename(path, path + '~'), os.rename(path + '~', path))))
if os.fork() == 0:
    print(later('new', lambda n: (os.rename('new', 'newer'), os.rename('newer', 'new'))))
    os._exit(0)
os.wait()
"#;
    pair.does(&["python3", "-u", "-c", script]);
    pair.clean();
}

/// A socket's name is a name like others: the processes meet by it, outsiders find it after the commit.
#[test]
fn sockets_have_names() {
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let pair = Pair::new("mkdir -m 755 dir; chmod 755 .");
    let script = r#"
import os, socket, sys
def child(does):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            does()
        except OSError as e:
            print(e.strerror)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
server = socket.socket(socket.AF_UNIX)
server.bind('dir/stream')
print(server.getsockname(), oct(os.stat('dir/stream').st_mode))
try:
    socket.socket(socket.AF_UNIX).bind('dir/stream')
except OSError as e:
    print(e.strerror)
server.listen()
def connects():
    client = socket.socket(socket.AF_UNIX)
    client.connect(os.path.abspath('dir/stream'))
    print(os.path.basename(client.getpeername()))
    client.send(b'hello')
child(connects)
print(server.accept()[0].recv(10))
os.rename('dir/stream', 'dir/moved')
child(connects)
os.rename('dir/moved', 'dir/stream')
os.chmod('dir/stream', 0o700)
def other():
    if os.getuid() == 0:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        connects()
    else:
        raise PermissionError(13, 'Permission denied')
child(other)
datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
datagrams.bind('dir/' + 'd' * 100)
def sends():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind('dir/sender')
    s.sendto(b'one', 'dir/' + 'd' * 100)
    s.sendmsg([b'two'], [], 0, 'dir/' + 'd' * 100)
child(sends)
print(datagrams.recv(10), datagrams.recv(10))
os.unlink('dir/sender')
child(lambda: socket.socket(socket.AF_UNIX).connect('dir'))
child(lambda: socket.socket(socket.AF_UNIX).connect('nowhere'))
child(lambda: socket.socket(socket.AF_UNIX).bind('nowhere/socket'))
"#;
    let done =
        pair.transaction(&["python3", "-c", &format!("{script}sys.exit(3)")]).run().expect(3);
    assert!(!done.stderr.contains("(bind)") && !done.stderr.contains("(connect)"), "{done:?}");
    pair.does(&["python3", "-c", script]);
    assert!(!pair.ours.path("dir/sender").exists() && pair.ours.path("dir/stream").exists());
    pair.clean();
}

#[test]
fn a_conflict_ends_all_of_it() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 1 > f; mkfifo ready go");
    let script = "read x < f; echo > ready; read y < go; sh -c 'echo 2 > f'; /bin/true";
    let running = lab.txos(["run", "--in-process", "--", "sh", "-c", script]).start();
    let _ = std::fs::read_to_string(lab.path("ready")).unwrap();
    std::fs::write(lab.path("f"), "other\n").unwrap();
    std::fs::write(lab.path("go"), "go\n").unwrap();
    let done = running.wait().expect(75);
    let _ = done.says("conflict: ");
    assert_eq!(lab.read("f"), "other\n");
    lab.expect_clean();
}

/// What container engines leave root, as a rule.
pub const CAPABILITIES: &str = "--bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,\
                            +setpcap,+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap";

/// `txos` with these arguments, as root finds itself in a container: with these capabilities only, and no mounts.
pub fn contained(place: &Lab, words: &[&str]) -> Invocation {
    Invocation::new("setpriv")
        .args([CAPABILITIES, "--inh-caps=-all"])
        .arg(program("contained", Linked::Natively))
        .arg(binary::txos())
        .args(words)
        .dir(place.tree())
        .env("TXOS_STORE", place.store())
        .env("TXOS_REALM", place.realm())
}

/// Owner, mode, times and attributes of a FIFO and a device that a process has open itself: as natively after the commit, as
/// before otherwise.
#[test]
fn attributes_of_an_open_fifo_are_the_transactions() {
    const SCRIPT: &str = "
import os, stat
os.mkfifo('new'); os.link('old', 'linked')
for name in ['old', 'new', 'null', 'linked']:
    fd = os.open(name, os.O_RDWR)
    os.fchmod(fd, 0o640); os.fchown(fd, 5, 6); os.setxattr(fd, 'trusted.note', b'kept')
    os.utime(fd, (1, 1)); os.setxattr(fd, 'trusted.gone', b''); os.removexattr(fd, 'trusted.gone')
    seen = [os.fstat(fd), os.stat(fd), os.stat(name)]
    print(name, [(oct(s.st_mode), s.st_uid, s.st_gid, int(s.st_mtime)) for s in seen])
    print(os.listxattr(fd), os.getxattr(fd, 'trusted.note'), os.listxattr(name))
    if name != 'null': os.write(fd, b'x'); print(os.read(fd, 1))
    if os.fork() == 0: os.fchmod(fd, 0o604); os._exit(0)
    os.wait(); print(oct(os.stat(name).st_mode))
os.rename('old', 'other')
";
    let pair = super::whole::Pair::new("mkfifo old; mknod null c 1 3");
    for place in [&pair.native, &pair.ours] {
        std::fs::write(place.path("attributes.py"), SCRIPT).unwrap();
    }
    pair.fails(&["sh", "-c", "python3 attributes.py; cp attributes.py x; exit 3"], 3);
    let _ = pair.native.native("rm -f old new null linked other x; mkfifo old; mknod null c 1 3");
    pair.answers(&["sh", "-c", "python3 attributes.py; chmod 600 attributes.py"]);
    pair.clean();
}

/// Others of the command may wait for the end of what its first process has open, or for its locks.
#[test]
fn what_the_first_process_had_open_ends_with_it() {
    let pair = super::whole::Pair::new("echo 1 > locked; mkfifo fifo");
    let waiting = "
import fcntl, multiprocessing, os, socket, sys
def square(x): return x * x
def child(wait):
    if os.fork() == 0:
        wait(); open(sys.argv[1] + '-done', 'w').write('done'); os._exit(0)
if __name__ == '__main__':
    how = sys.argv[1]
    if how == 'pipe':
        r, w = os.pipe(); child(lambda: (os.close(w), os.read(r, 1)))
    elif how == 'socket':
        a, b = socket.socketpair(); child(lambda: (b.close(), a.recv(1)))
    elif how in ['flock', 'lockf']:
        lock = getattr(fcntl, how)
        file = open('locked', 'r+'); lock(file, fcntl.LOCK_EX)
        child(lambda: (file.close(), lock(open('locked', 'r+'), fcntl.LOCK_EX)))
    else:
        with multiprocessing.get_context(how).Pool(2) as pool: print(pool.map(square, range(4)))
        sys.exit()
    os._exit(0)
";
    std::fs::write(pair.ours.path("waiting.py"), waiting).unwrap();
    for how in ["pipe", "socket", "flock", "lockf", "spawn", "forkserver"] {
        let _ = pair.transaction(&["python3", "waiting.py", how]).run().expect(0);
        let is_done = pair.ours.path(format!("{how}-done")).exists();
        assert_eq!(is_done, !["spawn", "forkserver"].contains(&how), "{how}");
    }
    for script in [
        "exec > >(cat > log1); echo hi",
        "exec > >(cat > log2) 2>&1; echo hi; ls none; true",
        "exec 9> >(cat > log3); echo hi >&9",
        "cat < fifo > log4 & exec 9> fifo; echo hi >&9",
    ] {
        let _ = pair.transaction(&["bash", "-c", script]).run().expect(0);
    }
    let (first, second) = (pair.ours.read("log1"), pair.ours.read("log2"));
    assert!(first == "hi\n" && second.starts_with("hi\nls: "), "{first}{second}");
    assert_eq!((pair.ours.read("log3"), pair.ours.read("log4")), ("hi\n".into(), "hi\n".into()));
    pair.clean();
}

/// Who makes a process and waits for it learns why that could not run a program.
#[test]
fn why_no_program_could_be_run_is_told() {
    const SCRIPT: &str = "
import os, sys, threading
def spawn(path, *words, **more):
    try: pid = os.posix_spawn(path, [path, *words], os.environ, **more)
    except OSError as e: return e.errno, e.filename
    return os.waitpid(pid, 0)[1]
def all_of_them():
    print(spawn('./none'), spawn('./closed'), spawn('./text'), spawn('./made/none'), spawn('/bin/sh', '-c', 'exit 3'))
    print(spawn('/bin/true', file_actions=[(os.POSIX_SPAWN_OPEN, 5, './none', os.O_RDONLY, 0)]))
    print(spawn('/bin/sh', '-c', 'echo spawned >&5', file_actions=[(os.POSIX_SPAWN_OPEN, 5, './s', os.O_WRONLY | os.O_CREAT, 0o644)]))
    print(open('s').read())
open('text', 'w').write('text'); os.chmod('text', 0o755); open('closed', 'w'); os.mkdir('made')
all_of_them()
pause = threading.Event()
other = threading.Thread(target=pause.wait); other.start()
all_of_them()
pause.set(); other.join()
";
    let pair = super::whole::Pair::new("printf 'all:\n\t./none\n' > Makefile");
    for place in [&pair.native, &pair.ours] {
        std::fs::write(place.path("spawns.py"), SCRIPT).unwrap();
    }
    pair.answers(&["python3", "spawns.py"]);
    pair.answers(&[
        "sh",
        "-c",
        "rm -f s text closed; rmdir made; python3 spawns.py; make > said 2>&1; cat said",
    ]);
    pair.clean();
}

/// Directories that are removed, numbers that the library has for itself, files that are read past the page cache, scripts that
/// are run by a descriptor, a program that leaves no descriptor free.
#[test]
fn what_few_programs_do_is_as_natively() {
    const SCRIPT: &str = "
import fcntl, mmap, os, subprocess, sys
if len(sys.argv) > 1: subprocess.run(['true'])
os.makedirs('above/it'); here = os.open('above/it', os.O_RDONLY); os.chdir('above/it')
os.rmdir('../it'); os.mkdir('../new'); print(os.path.samefile('..', '../new/..'), os.listdir('..'))
os.close(os.open('../beside', os.O_CREAT | os.O_WRONLY, dir_fd=here)); os.chdir('..'); print(os.path.basename(os.getcwd()))
os.chdir('..')
if len(sys.argv) > 1:
    for number in range(600, 700):
        os.dup2(here, number)
        os.close(number)
    file = os.open('number', os.O_CREAT | os.O_RDWR)
    for number in range(680, 688):
        os.dup2(file, number); os.write(number, b'%d ' % number)
    print(os.pread(687, 99, 0))
    os.closerange(680, 688)
page = mmap.mmap(-1, 8192); page[:] = b'D' * 8192
direct = os.open('direct', os.O_CREAT | os.O_RDWR | os.O_DIRECT)
print(os.pwritev(direct, [page], 0), os.preadv(direct, [page], 4096), page[:2], os.stat('direct').st_size)
with open('script', 'w') as script: script.write('#!/bin/sh\\necho $0 $1 | tr -d 0-9\\n')
os.chmod('script', 0o755)
script = os.open('script', os.O_RDONLY); os.set_inheritable(script, True); sys.stdout.flush()
if len(sys.argv) > 1:
    if os.fork() == 0: os.execve(script, ['name', 'argument'], os.environ)
    os.wait()
    subprocess.run(['sh', '-c', 'echo more; ls']); sys.stdout.flush()
try:
    while True: os.dup(0)
except OSError as error: print(error.strerror)
";
    let lab = Lab::in_memory();
    let native = lab.nested("native");
    for arguments in [&[][..], &["several"]] {
        for place in [&lab, &native] {
            let _ = place.native("rm -rf *");
            std::fs::write(place.path("few.py"), SCRIPT).unwrap();
        }
        let limited = ["prlimit", "--nofile=1024:4096", "python3", "few.py"];
        let words = [&limited[..], arguments].concat();
        let natively = native.native(&words.join(" ")).expect(0).text();
        let run = [&["run", "--view", "library", "--"][..], &words].concat();
        assert_eq!(lab.txos(run).run().expect(0).text(), natively);
        let now = Tolerance { now_from: Some(1), times: false, links: true };
        Tree::of(native.tree()).expect(&Tree::of(lab.tree()), now, "not as natively");
    }
    lab.expect_clean();
}

/// Who waits for a process that it is to trace is told that it can't, and does not wait for ever.
#[test]
fn a_debugger_does_not_wait_for_ever() {
    let lab = Lab::in_memory();
    let traced = program("traced", Linked::Natively);
    let done = lab.txos(["run", "--view", "library", "--"]).arg(traced).run().expect(0);
    assert_eq!(done.says("can't be traced").text(), "refused\n");
    lab.expect_clean();
}

/// Without mounts, namespaces and the capabilities for them, as root and as an ordinary user.
#[test]
fn no_privilege_is_needed() {
    let lab = Lab::in_memory();
    let contained = program("contained", Linked::Natively);
    let script = "mkdir -p a/b; seq 1000 > a/n; sort -rn a/n | head -3 > a/b/top; ln a/n a/m; rm -r old; \
                  (cd a && tar cf ../all.tar .); cat a/b/top";
    for user in [None, Some(User::new())] {
        let place = lab.nested(if user.is_some() { "users" } else { "roots" });
        let _ = place.native("mkdir old; echo x > old/f; chmod 777 . old");
        let _ = place.native("chmod 666 old/f");
        if let Some(user) = &user {
            for dir in [lab.dir(), place.tree()] {
                std::os::unix::fs::chown(dir, Some(user.uid), Some(user.gid)).unwrap();
            }
        }
        let runs = |words: &[&str]| {
            let run = match user {
                None => Invocation::new("setpriv").args([CAPABILITIES, "--inh-caps=-all"]),
                Some(_) => Invocation::new("env"),
            };
            let run = run.arg(&contained).arg(binary::txos()).args(words).dir(place.tree());
            match &user {
                None => run.env("TXOS_STORE", place.store()).env("TXOS_REALM", place.realm()),
                Some(user) => user.runs(run),
            }
        };
        // The overlay is not to be had.
        let overlay = runs(&["run", "--view", "overlay", "--", "true"]);
        let _ = overlay.run().expect(125).says("--view library");
        let before = Tree::of(place.tree());
        let failing = format!("{script}; false");
        let _ = runs(&["run", "--in-process", "--", "sh", "-c", &failing]).run().expect(1);
        before.expect_same(&Tree::of(place.tree()));
        let done = runs(&["run", "--in-process", "--", "sh", "-c", script]).run().expect(0);
        assert_eq!(done.text(), "1000\n999\n998\n", "{done:?}");
        let listed =
            Invocation::new("tar").args(["tf", "all.tar"]).dir(place.tree()).run().expect(0);
        assert_eq!(listed.text().lines().count(), 5, "{listed:?}");
        assert!(!place.path("old").exists());
        let _ = runs(&["revert", "@"]).run().expect(0);
        before.expect_same(&Tree::of(place.tree()));
        // So the library's is taken, unless something is asked for that it can't hold.
        let _ = runs(&["run", "--", "sh", "-c", &failing]).run().expect(1);
        before.expect_same(&Tree::of(place.tree()));
        let named = ["-v", "run", "--name", "auto", "-m", "why", "--", "sh", "-c", script];
        let _ = runs(&named).run().expect(0).says("the view is the library's");
        let shown = runs(&["show", "auto"]).run().expect(0);
        assert!(shown.text().contains("why"), "{shown:?}");
        let _ = runs(&["revert", "auto"]).run().expect(0);
        before.expect_same(&Tree::of(place.tree()));
        let alone = ["run", "--no-network", "--", "true"];
        let _ = runs(&alone).run().expect(125).says("--no-network needs");
        let alone = ["run", "--view", "library", "--no-network", "--", "true"];
        let _ = runs(&alone).run().expect(125).says("--view library can't hold --no-network");
        let doctor = runs(&["doctor"]).run();
        assert!(doctor.text().contains("the library's"), "{doctor:?}");
    }
}

/// On a root directory that is an overlay the library's view is taken without being asked for.
#[test]
fn a_containers_root_is_versioned() {
    let lab = Lab::in_memory();
    require!(rustix::process::geteuid().is_root(), "only root can mount an overlay");
    let script = r#"
        set -e; cd "$1"; mkdir mnt top; mount -t tmpfs none top; mkdir top/up top/work
        mount -t overlay -o lowerdir=/,upperdir=top/up,workdir=top/work none mnt || exit 77
        for d in proc dev tmp; do mount --rbind /$d mnt/$d; done
        in="chroot mnt $2"
        $in -v run -- sh -c 'echo made > /etc/txos-made; rm /etc/hosts; mkdir /opt/txos-made' || exit 1
        test "$(cat mnt/etc/txos-made)" = made; test ! -e mnt/etc/hosts; test -d mnt/opt/txos-made
        $in revert @; test ! -e mnt/etc/txos-made; test -e mnt/etc/hosts; test ! -e mnt/opt/txos-made
        $in run -- sh -c 'rm /etc/hosts; exit 5' || test $? = 5; test -e mnt/etc/hosts
        $in run --view overlay -- sh -c 'echo made > /etc/txos-made' || test $? = 125; test ! -e mnt/etc/txos-made
        echo all of it
    "#;
    let done = Invocation::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(lab.dir())
        .arg(binary::txos())
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .run();
    require!(done.code() != 77, "no overlay can be mounted over the root directory here");
    let done = done.expect(0).says("the root directory is an overlay").says("--scope DIRECTORY");
    assert!(done.text().ends_with("all of it\n"), "{done:?}");
}

/// `txos run` in a transaction in the library's view is part of it; what it can't do there it refuses by name.
#[test]
fn an_inner_run_joins() {
    let lab = Lab::in_memory();
    let txos = binary::txos().display().to_string();
    let script = format!(
        "echo a > f; {txos} run -- sh -c 'cat f; echo b > g; exit 3'; echo $? > status; {txos} run --keep -- touch h; echo $? >> status; \
         {txos} list; echo $? >> status; {txos} run --strict -- true; echo $? >> status"
    );
    let done = lab.txos(["run", "--view", "library", "--", "sh", "-c", &script]).run().expect(0);
    assert_eq!(done.text(), "a\n", "{done:?}");
    let done = done.says("which `txos run` joins").says("--keep can't be had here");
    let _ = done.says("--strict can't be had here").says("the store is out of reach");
    assert_eq!((lab.read("status"), lab.read("g")), ("3\n125\n125\n125\n".into(), "b\n".into()));
    assert!(!lab.path("h").exists());
    lab.expect_clean();
}

/// Tools that start many processes, where nothing may be mounted: a failure leaves nothing, and a revert takes all of it back.
/// With `--long packages` also those that fetch what they install.
#[test]
fn tools_work_in_a_container() {
    const GIT: &str = "git init -q g; cd g; seq 1000 > a; mkdir d; seq 9 > d/b; git add .; git commit -qm one; git mv a c; git commit -qm two; \
        git gc -q; cd ..; git clone -q g h; test -z \"$(git -C h fsck 2>&1 | grep -v '^notice')\"; git -C h log --oneline | wc -l | grep -q 2";
    const RSYNC: &str = "rsync -aHAX src/ copy/; tar cf all.tar src; mkdir out; tar xf all.tar -C out; diff -r src out/src; rsync -a --delete src/deep/ copy/";
    const PIP: &str = "python3 -m venv v; v/bin/pip install -q --no-input six; v/bin/python -c 'import six; print(six.__version__)' > version";
    const NPM: &str = "mkdir n; cd n; npm init -y > init; npm install --no-audit --no-fund left-pad > log; node -e 'require(\"left-pad\")(1, 3)'";
    const CARGO: &str =
        "cargo init -q --name small c; cd c; cargo build -q --offline; target/debug/small > said";
    let lab = Lab::in_memory();
    let contained = program("contained", Linked::Natively);
    let is_root = rustix::process::geteuid().is_root();
    let mut tools = vec![("git", GIT), ("rsync", RSYNC)];
    if skip::long("packages") {
        tools.extend([("python3", PIP), ("npm", NPM), ("cargo", CARGO)]);
    }
    for (tool, script) in tools {
        if !skip::has(tool) {
            skip::say(&format!("no {tool}"));
            return;
        }
        let place = lab.nested(tool);
        let _ = place.native(SOURCES);
        let before = Tree::of(place.tree());
        let runs = |words: &[&str]| {
            let run = Invocation::new(if is_root { "setpriv" } else { "env" });
            let run = if is_root { run.args([CAPABILITIES, "--inh-caps=-all"]) } else { run };
            run.arg(&contained)
                .arg(binary::txos())
                .args(words)
                .dir(place.tree())
                .env("TXOS_STORE", place.store())
                .env("TXOS_REALM", place.realm())
                .env("GIT_AUTHOR_NAME", "Nobody")
                .env("GIT_AUTHOR_EMAIL", "nobody@example.invalid")
                .env("GIT_COMMITTER_NAME", "Nobody")
                .env("GIT_COMMITTER_EMAIL", "nobody@example.invalid")
        };
        let with = |end: &str| format!("set -e; ({script}); exit {end}");
        let run = ["run", "--no-durable", "--view", "library", "--", "sh", "-c"];
        let _ = runs(&[&run[..], &[&with("4")]].concat()).run().expect(4);
        before.expect_same(&Tree::of(place.tree()));
        let _ = runs(&[&run[..], &[&with("0")]].concat()).run().expect(0);
        assert!(before != Tree::of(place.tree()), "{tool} has left nothing");
        let _ = runs(&["revert", "@"]).run().expect(0);
        before.expect_same(&Tree::of(place.tree()));
    }
}

/// The root directory of a container is an overlay over the layers of its image.
/// Names of files of an image that has others become files of their own with their first change, natively and in a transaction; what can't be
/// committed is not half there.
#[test]
fn what_an_image_holds_by_several_names_is_changed() {
    let image = "mkdir tree; cd tree; mkdir -p dd/e; echo x > dd/e/x; echo p > p1; ln p1 p2; chmod 4755 p1; echo f > f; ln f hl; ln f third; chmod 640 f; \
                 setfattr -n user.old -v 1 f; touch -d @1000000000 p1 f; chown -R $OWNER .";
    let shown = "for n in p1 p2 f hl third other new; do test ! -f $n || { stat -c '%n %a %u %s' $n; cat $n; getfattr -d -- $n; }; done; ls -R dd other new 2>&1 || true";
    let changes = [
        ("chmod 711 p1; rm hl", 0),
        ("chmod 711 p1; rm p2", 0),
        ("setfattr -n user.new -v 2 p1; rm hl", 0),
        ("mv hl other; chmod 711 p2", 0),
        ("echo more >> hl; touch -d @1100000000 p1", 0),
        ("truncate -s 1 third", 0),
        ("rm f hl third; mv p1 other; mv p2 p1", 0),
        ("cp hl new; mv new hl", 0),
        ("ln p1 new", 0),
        ("mv p1 other; ln other new", 0),
        ("echo x > other; ln -f hl other; rm third", 0),
        ("ln p1 new; chmod 600 third; mv dd other; rm other/e/x", 0),
        ("chmod 400 hl; rm third", 0),
        ("chmod 711 p1; touch new; rm -r dd", 0),
        ("echo more >> hl; rm -r dd; mkdir dd; touch dd/other", 0),
        ("chmod 711 p1; rm hl; false", 1),
    ];
    let owners =
        if rustix::process::geteuid().is_root() { &["0", "65534"][..] } else { &["$(id -u)"] };
    for (owner, (change, status)) in owners.iter().flat_map(|o| changes.map(|change| (o, change))) {
        let done = [true, false].into_iter().map(|native| {
            let lab = Lab::in_memory();
            let image = image.replace("$OWNER", owner);
            let overlay = Image::overlay(&lab, "ext4", 64, &image)?;
            let place = lab.at(&overlay.top.point);
            for dir in [place.dir(), overlay.top.point.as_path()] {
                let _ = std::fs::set_permissions(
                    dir,
                    std::os::unix::fs::PermissionsExt::from_mode(0o755),
                );
            }
            let sees = || place.native(shown).text();
            let before = sees();
            let user = if *owner == "65534" {
                "setpriv --reuid=65534 --regid=65534 --clear-groups "
            } else {
                ""
            };
            let script = format!("exec {user}sh -c '{change}'");
            if native && status != 0 {
                return Some(String::new());
            }
            if native {
                let _ = place.native(&script);
                return Some(sees());
            }
            let _ = contained(&place, &["run", "--view", "library", "--", "sh", "-c", &script])
                .run()
                .expect(status);
            if status != 0 {
                assert_eq!(sees(), before, "{owner}: {change}");
                return Some(String::new());
            }
            let committed = sees();
            let _ = contained(&place, &["revert", "@"]).run().expect(0);
            assert_eq!(sees(), before, "{owner}: {change}, reverted");
            Some(committed)
        });
        let done: Vec<String> =
            require_some!(done.collect::<Option<_>>(), "no overlay can be mounted here");
        if status == 0 {
            assert_eq!(done[1], done[0], "{owner}: {change}");
        }
    }
}

/// Directories of an image, which the kernel refuses to rename, are removed, moved and replaced as natively, where `mv` copies and removes.
#[test]
fn directories_of_an_image_are_removed_moved_and_replaced() {
    let image = "mkdir tree; cd tree; mkdir -p d/e/deep other/in; echo x > d/e/x; echo y > d/y; ln -s y d/l; mkfifo d/e/fifo; echo z > other/in/z; \
                 chmod 2750 d/e; setfattr -n user.k -v v d/e; setfacl -d -m u:65533:rx d/e; chown -R $OWNER .; find . -exec touch -h -d @1000000000 {} +";
    let shown = "find . -mindepth 1 -printf '%p %y %m %U %G %l ' \\( -type f -printf '%s %n' -o -true \\) -printf '\\n' | sort; { getfattr -Rd -m - . 2>/dev/null || true; }; \
                 find . -mindepth 1 ! -newermt @1500000000 | sort";
    let changes = [
        "rm -r d",
        "mv d new",
        "mv d other/in",
        "mv d/e .; rm -r d",
        "rm -r d; mkdir d; echo 1 > d/1",
        "rm -r d; echo file > d",
        "mv d new; chmod 700 new/e; echo more >> new/e/x; rm new/y; mv new/e new/f",
        "mkdir q; echo 1 > q/1; mv -T q d/e/deep; mv d/e/deep other/in/z2",
        "mv other/in d/; rmdir other; mv d/in/z d/e/deep/; rm d/e/fifo",
        "mv d/e/x other; rm -r d/e",
    ];
    let root = rustix::process::geteuid().is_root();
    let owners = if root { &["0:0", "65534:65534"][..] } else { &["$(id -u):$(id -g)"] };
    let all = owners.iter().enumerate().flat_map(|(n, owner)| {
        changes.iter().skip(n).step_by(1 + 3 * n).map(move |change| (owner, change))
    });
    for (owner, change) in all {
        let done = [true, false].into_iter().map(|native| {
            let lab = Lab::in_memory();
            let overlay = Image::overlay(&lab, "ext4", 64, &image.replace("$OWNER", owner))?;
            let place = lab.at(&overlay.top.point);
            for dir in [place.dir(), overlay.top.point.as_path()] {
                let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
                let _ = std::fs::set_permissions(dir, open);
            }
            let sees = || place.native(shown).text();
            let before = sees();
            let user = match *owner {
                "65534:65534" => "setpriv --reuid=65534 --regid=65534 --clear-groups ",
                _ => "",
            };
            let script = format!("{user}sh -c '{change}'");
            if native {
                let _ = place.native(&script);
                return Some(sees());
            }
            let runs = |script: &str| {
                contained(&place, &["run", "--view", "library", "--", "sh", "-c", script]).run()
            };
            let _ = runs(&format!("{script}; exit 3")).expect(3);
            assert_eq!(sees(), before, "{owner}: {change}, rolled back");
            let _ = runs(&script).expect(0);
            let committed = sees();
            let _ = contained(&place, &["revert", "@"]).run().expect(0);
            assert_eq!(sees(), before, "{owner}: {change}, reverted");
            let _ = contained(&place, &["revert", "@"]).run().expect(0);
            assert_eq!(sees(), committed, "{owner}: {change}, reverted and reverted");
            Some(committed)
        });
        let done: Vec<String> =
            require_some!(done.collect::<Option<_>>(), "no overlay can be mounted here");
        assert_eq!(done[1], done[0], "{owner}: {change}");
    }
}

/// What others do in such a directory while the commit is under way: it has been made anew, and is not yet removed.
#[test]
fn what_others_do_in_a_directory_of_an_image_during_the_commit_stays() {
    let image = "mkdir tree; cd tree; mkdir -p d/e other; echo x > d/x; echo y > d/e/y";
    // The first file that the commit installs says that the directory is there anew.
    let outsider = "while ! test -e other/f1; do :; done; exec 2>/dev/null; ";
    for theirs in [
        "echo theirs > d/new",
        "echo more >> d/x",
        "mkdir d/e/new",
        "chmod 600 d/e/y",
        "setfattr -n user.theirs -v 1 d/x",
        "chmod 700 d/e",
    ] {
        let lab = Lab::in_memory();
        let overlay = require_some!(
            Image::overlay(&lab, "ext4", 64, image),
            "no overlay can be mounted here"
        );
        let place = lab.at(&overlay.top.point);
        let script = "rm -r d; for i in $(seq 150); do echo $i > other/f$i; done";
        // Capabilities that the gate needs are not to be had in a container: the outsider is not held.
        let words = ["run", "--view", "library", "--retry", "0", "--", "sh", "-c", script];
        let run = contained(&place, &words).env("TXOS_FAULT_DELAYS", "3").start();
        let other = Invocation::shell(format!("{outsider}{theirs}")).dir(place.tree()).run();
        let done = run.wait();
        let there = place.path("d").exists();
        // They came in time, or not at all.
        match other.code() {
            0 => assert!(done.code() == 75 && there, "{theirs}: {done:?}"),
            _ => assert!(done.code() == 0 && !there, "{theirs}: {done:?}"),
        }
        if done.code() == 75 {
            let seen = place
                .native("cat d/x d/e/y; ls d d/e; stat -c %a d/e d/e/y; getfattr -d d/x")
                .text();
            let sign = ["new", "more", "new", "600", "theirs", "700"];
            assert!(sign.iter().any(|sign| seen.contains(sign)), "{theirs}: {seen}");
            assert!(!place.path("other/f1").exists());
        }
    }
}

/// What others put into such a directory while a transaction removes or moves it stays, and the commit is a conflict.
#[test]
fn what_others_put_into_a_directory_of_an_image_stays() {
    let image = "mkdir tree; cd tree; mkdir -p d/e; echo x > d/e/x; echo y > d/y";
    for (change, theirs) in [
        ("rm -r d", "echo theirs > d/e/new"),
        ("rm -r d", "echo more >> d/e/x"),
        ("rm -r d", "chmod 600 d/y"),
        ("rm -r d; mkdir d", "mkdir d/e/new"),
        ("ls -R d; mv d new", "echo theirs > d/new"),
        ("ls -R d; mv d new", "rm d/e/x"),
    ] {
        let lab = Lab::in_memory();
        let overlay = require_some!(
            Image::overlay(&lab, "ext4", 64, image),
            "no overlay can be mounted here"
        );
        let outside = lab.nested("outside");
        let (waits, goes) = (outside.path("waits"), outside.path("goes"));
        let _ = outside.native("mkfifo waits goes");
        let place = lab.at(&overlay.top.point);
        let script = format!("{change}; echo > {}; read x < {}", waits.display(), goes.display());
        let scope = place.tree().display().to_string();
        let words = ["run", "--view", "library", "--scope", &scope, "--", "sh", "-c", &script];
        let run = contained(&place, &words).start();
        let _ = outside.native("read x < waits");
        let _ = place.native(theirs);
        let before = Tree::of(place.tree());
        let _ = outside.native("echo > goes");
        let _ = run.wait().expect(75);
        before.expect_same(&Tree::of(place.tree()));
    }
}

#[test]
fn what_an_image_holds_is_changed() {
    let lab = Lab::in_memory();
    let image = "mkdir tree; cd tree; mkdir -p etc usr/share/doc; seq 9 > etc/list; echo a > etc/conf; echo two > etc/two; ln etc/two usr/share/two; \
                 echo doc > usr/share/doc/readme";
    let overlay =
        require_some!(Image::overlay(&lab, "ext4", 64, image), "no overlay can be mounted here");
    let place = lab.at(&overlay.top.point);
    let runs = |words: &[&str]| contained(&place, words);
    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap_or_default();
    let script = "sed -i s/a/b/ etc/conf; echo 10 >> etc/list; rm usr/share/doc/readme; mv etc/conf etc/moved; \
                  mkdir -p opt/new; cp etc/list opt/new; chmod 600 etc/list; cat etc/moved";
    let failing = format!("{script}; false");
    let _ = runs(&["run", "--in-process", "--", "sh", "-c", &failing]).run().expect(1);
    assert_eq!((read("etc/conf"), read("usr/share/doc/readme")), ("a\n".into(), "doc\n".into()));
    let _ = runs(&["run", "--in-process", "--", "sh", "-c", script]).run().expect(0);
    assert_eq!((read("etc/moved"), read("etc/conf")), ("b\n".into(), String::new()));
    assert!(read("opt/new/list").ends_with("9\n10\n") && read("usr/share/doc/readme").is_empty());
    let _ = runs(&["revert", "@"]).run().expect(0);
    assert_eq!((read("etc/conf"), read("usr/share/doc/readme")), ("a\n".into(), "doc\n".into()));
    assert_eq!((read("etc/list").lines().count(), read("opt/new/list")), (9, String::new()));
    // A file with several names becomes another one when it is changed by one of them, as natively.
    let linked = ["run", "--in-process", "--", "sh", "-c", "echo more >> etc/two"];
    let _ = runs(&linked).run().expect(0);
    assert_eq!((read("etc/two"), read("usr/share/two")), ("two\nmore\n".into(), "two\n".into()));
    let _ = runs(&["revert", "@"]).run().expect(0);
    assert_eq!((read("etc/two"), read("usr/share/two")), ("two\n".into(), "two\n".into()));
    let _ = runs(&["run", "--in-process", "--", "rm", "-r", "usr/share/doc"]).run().expect(0);
    assert!(!place.path("usr/share/doc").exists());
    let _ = runs(&["revert", "@"]).run().expect(0);
    assert_eq!(read("usr/share/doc/readme"), "doc\n");
}
