//! Programs that were built with a sanitizer, in commands: they leave what they leave natively, also when an error is found, or,
//! when they fail, nothing. None hangs.

use std::time::Duration;

use txos_testkit::{Invocation, Tree, require, skip};

use super::whole::Pair;

/// Compiles `c/sanitized.c` so in both places; whether there is such a sanitizer here.
fn built(pair: &Pair, options: &[&str]) -> bool {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/library/runtime/c/sanitized.c");
    let done = |place: &txos_testkit::Lab| {
        let cc = Invocation::new("cc").args(["-g", "-pthread"]).args(options).args([source, "-o"]);
        cc.arg(place.path("program")).run()
    };
    let (native, ours) = (done(&pair.native), done(&pair.ours));
    if native.code() == 0 && ours.code() == 0 {
        return true;
    }
    // The compiler is there, the sanitizer's library may not be.
    let is_missing = |text: &str| native.stderr.contains(text);
    assert!(is_missing("cannot find") || is_missing("unrecognized"), "{native:?}");
    false
}

/// Alone, below a shell, and when the transaction has other shared libraries. `error`: what it is asked for to be found fault
/// with, and how it ends then.
fn all_ways(pair: &Pair, (error, status): (&str, i32)) {
    let clean = || {
        for place in [&pair.native, &pair.ours] {
            let _ = place.native("rm -rf a b c child dir made.so status said");
        }
    };
    for (how, ends) in [("", 0), (error, status)] {
        let script = format!("./program {how} 2> said; echo $? > status; rm said");
        pair.does(&["sh", "-c", &script]);
        assert_eq!(pair.ours.read("status"), format!("{ends}\n"));
        clean();
        pair.does(&["sh", "-c", &format!("echo > made.so; {script}")]);
        assert_eq!(pair.ours.read("status"), format!("{ends}\n"));
        clean();
    }
    pair.does(&["./program"]);
    clean();
    pair.fails(&["./program", "fail"], 3);
    let before = Tree::of(pair.ours.tree());
    let _ = pair.transaction(&["./program", error]).run().expect(status);
    before.expect_same(&Tree::of(pair.ours.tree()));
    pair.clean();
}

#[test]
fn of_addresses() {
    let pair = Pair::new(":");
    require!(built(&pair, &["-fsanitize=address"]), "there is no ASan");
    all_ways(&pair, ("address", 1));
}

#[test]
fn of_threads() {
    let pair = Pair::new(":");
    require!(built(&pair, &["-fsanitize=thread"]), "there is no TSan");
    all_ways(&pair, ("thread", 66));
}

#[test]
fn of_undefined_behaviour() {
    let pair = Pair::new(":");
    let options = ["-fsanitize=undefined", "-fno-sanitize-recover=undefined"];
    require!(built(&pair, &options), "there is no UBSan");
    all_ways(&pair, ("undefined", 1));
}

/// A leak checker stops the threads of its program from a process that has the program's memory. It is told that there is none,
/// and why. So is that of an address sanitizer.
#[test]
fn of_leaks() {
    for sanitizer in ["leak", "address"] {
        let pair = Pair::new(":");
        let options = [&format!("-fsanitize={sanitizer}"), "-DCHECKS_LEAKS"];
        require!(built(&pair, &options), "there is no LSan");
        let ends = |command: &[&str]| {
            let before = Tree::of(pair.ours.tree());
            let done = pair.transaction(command).within(Duration::from_secs(60)).run();
            assert_ne!(done.code(), 0, "{done:?}");
            assert!(done.stderr.contains("`clone` fails (EPERM)"), "{done:?}");
            assert!(done.stderr.contains("LeakSanitizer has encountered"), "{done:?}");
            before.expect_same(&Tree::of(pair.ours.tree()));
        };
        ends(&["./program"]);
        ends(&["sh", "-c", "echo new > new; ./program"]);
        ends(&["sh", "-c", "echo new > new.so; ./program"]);
        let off = "LSAN_OPTIONS=detect_leaks=0 ASAN_OPTIONS=detect_leaks=0 ./program";
        pair.does(&["sh", "-c", &format!("{off}; echo $? > status")]);
        pair.clean();
    }
}

/// Go's race detector is a thread sanitizer's runtime in the program; this one starts another program.
#[test]
fn of_races_in_go() {
    require!(skip::has("go"), "there is no go");
    let source = r#"package main
import ("fmt"; "os"; "os/exec"; "sync")
func check(err error) { if err != nil { panic(err) } }
func main() {
	var all sync.WaitGroup
	var lock sync.Mutex
	racy, sum := 0, 0
	for i := 0; i < 8; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			check(os.WriteFile(fmt.Sprint("f", i), []byte(fmt.Sprint(i)), 0644))
			lock.Lock(); sum += i; lock.Unlock()
			if len(os.Args) > 1 && os.Args[1] == "race" { racy++ }
		}(i)
	}
	all.Wait()
	out, err := exec.Command("/bin/sh", "-c", "cat f3; echo x > sub; cat sub").CombinedOutput()
	check(err)
	fmt.Printf("%q %d\n", out, sum)
	if len(os.Args) > 1 && os.Args[1] == "fail" { os.Exit(4) }
}
"#;
    let pair = Pair::new(":");
    std::fs::write(pair.native.path("main.go"), source).unwrap();
    let build = "if CGO_ENABLED=1 GO111MODULE=off go build -race -o program main.go 2> said; then echo built; fi; rm main.go said";
    let built = pair.native.native(build);
    require!(built.text().contains("built"), "go builds no race detector here");
    let native = pair.native.tree().display().to_string();
    let _ = pair.ours.native(&format!("cp {native}/program ."));
    pair.does(&["./program"]);
    pair.does(&["sh", "-c", "rm f1; ./program; echo $? > status"]);
    pair.does(&["sh", "-c", "echo > made.so; rm f1; ./program; echo $? >> status"]);
    pair.does(&["sh", "-c", "rm f2; ./program race 2> said; echo $? > status; rm said"]);
    assert_eq!(pair.ours.read("status"), "66\n");
    let _ = [&pair.native, &pair.ours].map(|place| place.native("rm -f f* sub"));
    pair.fails(&["./program", "fail"], 4);
    pair.clean();
}

/// A collector of Java's that maps its heap several times.
#[test]
fn java_with_zgc() {
    require!(skip::has("java") && skip::has("javac"), "there is no java, or no javac");
    let source = r#"import java.nio.file.*;
class Main {
    public static void main(String[] words) throws Exception {
        Object[] kept = new Object[64];
        for (int i = 0; i < 40000; i++) kept[i % 64] = new byte[4096];
        System.gc();
        Files.writeString(Path.of("made"), "made\n");
        Process child = new ProcessBuilder("sh", "-c", "cat made > copied; cat copied").start();
        System.out.print(new String(child.getInputStream().readAllBytes()) + child.waitFor() + "\n");
        Files.move(Path.of("made"), Path.of("moved"));
        if (words.length > 0) System.exit(5);
    }
}
"#;
    let pair = Pair::new(":");
    std::fs::write(pair.native.path("Main.java"), source).unwrap();
    let _ = pair.native.native("javac Main.java; rm Main.java");
    let native = pair.native.tree().display().to_string();
    let _ = pair.ours.native(&format!("cp {native}/Main.class ."));
    let java = "java -XX:+UseZGC -Xmx128m -XX:-UsePerfData -Xshare:auto Main";
    let plain: Vec<&str> = java.split(' ').collect();
    pair.does(&plain);
    pair.does(&["sh", "-c", &format!("rm moved; {java}; echo $? > status")]);
    let _ = [&pair.native, &pair.ours].map(|place| place.native("rm moved copied"));
    pair.fails(&[&plain[..], &["fail"]].concat(), 5);
    pair.clean();
}
