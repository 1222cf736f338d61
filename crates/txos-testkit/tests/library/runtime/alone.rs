//! Programs that no library can be preloaded into, in commands: statically linked ones, those of another C library, and
//! Go's. They leave what they leave natively, or, when they fail or die, nothing.

use rustix::process::Signal;
use txos_testkit::tree::Tolerance;
use txos_testkit::wait::until;
use txos_testkit::{Invocation, Tree, require, skip};

use super::program::{Linked, program};
use super::whole::Pair;

const KINDS: [&str; 6] = ["memory", "threads", "processes", "vforks", "signals", "arguments"];

/// Compiles the program in both places; whether that can be done.
fn compiled(pair: &Pair, compiler: &[&str]) -> bool {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/library/runtime/c/alone.c");
    let (compiler, options) = compiler.split_first().unwrap();
    let done = |place: &txos_testkit::Lab| {
        let cc = Invocation::new(compiler).args(options).args(["-O1", "-pthread", source, "-o"]);
        cc.arg(place.path("alone")).run()
    };
    let (native, ours) = (done(&pair.native), done(&pair.ours));
    if native.code() == 0 && ours.code() == 0 {
        return true;
    }
    // The compiler is there, its static library may not be.
    assert!(native.stderr.contains("cannot find"), "{native:?}");
    false
}

fn all_kinds(compiler: &[&str]) {
    let pair = Pair::new("echo kept > kept");
    require!(compiled(&pair, compiler), "there is no static C library");
    for kind in KINDS {
        pair.answers(&["./alone", kind]);
        pair.answers(&["sh", "-c", &format!("./alone {kind}; echo $? > status")]);
    }
    // What the transaction has made. A program into which the library is preloaded has the name of its private copy.
    let shown = if compiler == ["cc"] { "true" } else { "./bin arguments a '' 'b c'" };
    pair.does(&["sh", "-c", &format!("cp alone bin; {shown}; mv bin other; ./other memory")]);
    pair.fails(&["./alone", "fail"], 9);
    pair.fails(&["sh", "-c", "./alone fail"], 9);
    pair.clean();
}

/// The same program with the library preloaded.
#[test]
fn dynamically_linked() {
    all_kinds(&["cc"]);
}

#[test]
fn statically_linked() {
    all_kinds(&["cc", "-static"]);
}

#[test]
fn statically_linked_at_any_place() {
    all_kinds(&["cc", "-static-pie"]);
}

#[test]
fn of_another_c_library() {
    require!(skip::has("musl-gcc"), "there is no musl-gcc");
    all_kinds(&["musl-gcc"]);
}

#[test]
fn of_another_c_library_statically() {
    require!(skip::has("musl-gcc"), "there is no musl-gcc");
    all_kinds(&["musl-gcc", "-static"]);
}

/// Neither the loader nor what leads to the transaction is for the program to see, and the program's own variables for dynamic
/// linkers are not for the loader.
#[test]
fn its_environment_is_its_own() {
    let pair = Pair::new("");
    require!(compiled(&pair, &["cc", "-static"]), "there is no static C library");
    let command =
        ["sh", "-c", "LD_BIND_NOW=x LD_PRELOAD=/none.so GLIBC_TUNABLES=a exec ./alone arguments"];
    let done = pair.transaction(&command).run().expect(0);
    let text = done.text();
    assert!(text.contains("LD_BIND_NOW=x\nLD_PRELOAD=/none.so\n"), "{done:?}");
    assert!(!text.contains("TXOS") && !done.stderr.contains("none.so"), "{done:?}");
    // Bash has functions of its own for the environment.
    for shell in ["bash", "sh"] {
        require!(skip::has(shell), "there is no bash");
        let done = pair.transaction(&[shell, "-c", "env; env > e"]).run().expect(0);
        assert!(!done.text().contains("LD_PRELOAD"), "{done:?}");
    }
    pair.clean();
}

/// What a command has blocked is what it would have natively, by whichever call it becomes one of several processes; a handler
/// may jump into the one that it has interrupted.
#[test]
fn masks_are_the_programs() {
    let pair = Pair::new("");
    pair.answers(&["env", "grep", "SigBlk", "/proc/self/status"]);
    pair.answers(&["nice", "grep", "SigBlk", "/proc/self/status"]);
    let perl = "kill URG => getppid; $SIG{ALRM} = sub { print 'come'; exit 0 }; alarm 1; sleep 9";
    pair.answers(&["perl", "-e", perl]);
    let shell = "trap 'echo come' USR1; kill -USR1 $$; grep SigBlk /proc/self/status";
    pair.answers(&["/usr/bin/env", "bash", "-c", shell]);
    pair.clean();
}

#[test]
fn scripts_of_such_an_interpreter() {
    let pair = Pair::new("");
    require!(compiled(&pair, &["cc", "-static"]), "there is no static C library");
    let script = "printf '#!./alone arguments\\n' > s; chmod 755 s; ./s more";
    pair.does(&["sh", "-c", script]);
    pair.does(&["./s", "as the command"]);
    pair.clean();
}

/// It is a member of a program's own transaction as well.
#[test]
fn in_a_programs_transaction() {
    let pair = Pair::new("");
    require!(compiled(&pair, &["cc", "-static"]), "there is no static C library");
    let runs = program("runs", Linked::WithLibrary);
    let does = |how: &str| {
        let done = Invocation::new(&runs)
            .args([how, "./alone", "memory"])
            .env("TXOS_STORE", pair.ours.store())
            .env("TXOS_REALM", pair.ours.realm())
            .dir(pair.ours.tree())
            .run();
        assert!(done.text().contains("ended 0, made 1"), "{done:?}");
        ["mapped", "by-parent"].map(|name| pair.ours.path(name).exists())
    };
    assert_eq!(does("abort"), [false, false]);
    assert_eq!(does("commit"), [true, true]);
    pair.clean();
}

/// Its runtime has threads without a C library, and signals for all of them.
#[test]
fn programs_of_go() {
    go("CGO_ENABLED=0", "");
}

/// The library is preloaded, and handlers look which stack they run on.
#[test]
fn programs_of_go_with_c() {
    go("CGO_ENABLED=1", "import \"C\"");
}

fn go(linking: &str, more: &str) {
    require!(skip::has("go"), "there is no go");
    let source = r#"import ("fmt"; "os"; "os/exec"; "os/signal"; "runtime"; "sync"; "syscall"; "time")
func check(err error) { if err != nil { panic(err) } }
func main() {
	come := make(chan os.Signal, 1)
	signal.Notify(come, syscall.SIGUSR1)
	var all sync.WaitGroup
	for i := 0; i < 12; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			for j := 0; j < 40; j++ {
				name, text := fmt.Sprintf("f%d", i), fmt.Sprint(j)
				check(os.WriteFile(name, []byte(text), 0644))
				read, err := os.ReadFile(name)
				check(err)
				if string(read) != text { panic(string(read)) }
				if j % 20 == 0 { runtime.GC() }
			}
		}(i)
	}
	all.Wait()
	for i := 0; i < 4; i++ {
		out, err := exec.Command("/bin/sh", "-c", "cat f3; echo x > sub; cat sub").CombinedOutput()
		check(err)
		fmt.Printf("%q\n", out)
	}
	check(syscall.Kill(os.Getpid(), syscall.SIGUSR1))
	fmt.Println(<-come)
	done := make(chan bool)
	go func() { for i := 0; i < 3; i++ { time.Sleep(5 * time.Millisecond) }; done <- true }()
	for n := 0; ; n++ {
		select {
		case <-done:
			if len(os.Args) > 1 { check(os.WriteFile("failed", nil, 0644)); os.Exit(4) }
			return
		default:
		}
	}
}
"#;
    let pair = Pair::new("");
    // Built twice it is not the same.
    let native = pair.native.tree().display().to_string();
    let source = format!("package main\n{more}\n{source}");
    std::fs::write(pair.native.path("main.go"), source).unwrap();
    let built = format!("{linking} GO111MODULE=off go build -o program main.go; rm main.go");
    let _ = pair.native.native(&built);
    let _ = pair.ours.native(&format!("cp {native}/program ."));
    pair.does(&["./program"]);
    pair.does(&["sh", "-c", "rm f1; ./program; echo $? > status"]);
    pair.fails(&["./program", "fail"], 4);
    pair.clean();
}

/// The transaction is whole, or nothing of it is there.
#[test]
fn one_is_killed() {
    let pair = Pair::new("echo old > kept");
    require!(compiled(&pair, &["cc", "-static"]), "there is no static C library");
    pair.does(&["sh", "-c", "sh -c './alone memory > out; kill -9 $$'; echo $? > status"]);
    let before = Tree::of(pair.ours.tree());
    let ready = pair.lab.dir().join("ready");
    let _ = pair.lab.native(&format!("mkfifo {}", ready.display()));
    let script =
        format!("./alone threads; rm kept; echo > {}; exec ./alone threads", ready.display());
    let running = pair.transaction(&["sh", "-c", &script]).start();
    let _ = std::fs::read(&ready).unwrap();
    running.signal(Signal::KILL);
    assert!(running.wait().killed());
    until("the transaction is over", || {
        let _ = pair.ours.txos(["recover"]).run();
        before.difference(&Tree::of(pair.ours.tree()), Tolerance::default()).is_empty()
    });
}

/// What is no program, or one that the library can't load, ends as natively or with the command.
#[test]
fn what_cant_be_run() {
    let pair = Pair::new("printf 'echo text\\n' > text; chmod 755 text; mkdir dir");
    require!(compiled(&pair, &["cc", "-static"]), "there is no static C library");
    for place in [&pair.native, &pair.ours] {
        let cut = "head -c 40 alone > cut; head -c 70 alone > headers; cp alone closed; chmod 755 cut headers; chmod 644 closed";
        let _ = place.native(cut);
    }
    for program in ["./cut", "./headers", "./closed", "./dir", "./text", "./none"] {
        pair.answers(&["sh", "-c", &format!("{program} 2> said; echo $?; rm said; echo on > on")]);
    }
    // Where the library is not.
    if skip::is_root() {
        pair.answers(&["sh", "-c", "/usr/sbin/chroot . /alone memory; echo $? > status"]);
    }
    pair.clean();
}
