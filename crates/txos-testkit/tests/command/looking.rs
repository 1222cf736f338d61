//! Looking at a transaction while its command runs, and at one as a page in a browser.

use std::process::Command;

use txos_testkit::process::Invocation;
use txos_testkit::{Lab, require, require_some, skip, wait};

/// A pipe outside of the scope, at which a command waits.
fn gate(lab: &Lab) -> String {
    let path = lab.dir().join("gate").to_string_lossy().into_owned();
    let _ = Invocation::new("mkfifo").arg(&path).run().expect(0);
    path
}

#[test]
fn what_a_running_command_has_changed_so_far() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 1 > a; echo 1 > gone; mkdir d; echo 1 > d/x");
    let gate = gate(&lab);
    let script = format!(
        "echo 2 > a; rm gone; mv d e; mkdir new; echo 2 > new/x; echo ready; read line < {gate}; echo 3 > a"
    );
    let running = lab.script(&["--name", "long"], &script).start();
    wait::until("the command is half way", || running.stdout().contains("ready"));
    let list = lab.txos(["list", "--json"]).run().expect(0).json();
    let id = list["transactions"][0]["id"].as_str().unwrap().to_owned();
    let shown = lab.txos(["show", &id]).run().expect(0);
    for line in ["M\t", "D\t", "R\t", "A\t"] {
        assert!(shown.text().contains(line), "{line}: {shown:?}");
    }
    assert!(shown.text().contains("(active)") && shown.stderr.contains("so far"), "{shown:?}");
    let patch = lab.txos(["diff", "long"]).run().expect(0).text();
    assert!(patch.contains("-1\n+2\n") && patch.contains("new/x"), "{patch}");
    let json = lab.txos(["diff", &id, "--json"]).run().expect(0).json();
    assert_eq!(json["transaction"]["state"], "active");
    assert_eq!(json["counts"]["deleted"], 1, "{json}");
    // What can be done is done by others than a look; `@` is none that may still change.
    assert!(lab.txos(["diff"]).run().expect(125).stderr.contains("there is no"));
    let inside = lab.txos(["commit", &id]).run().expect(125);
    assert!(inside.stderr.contains("in use"), "{inside:?}");
    std::fs::write(&gate, "go\n").unwrap();
    let _ = running.wait().expect(0);
    assert_eq!(lab.read("a") + &lab.read("e/x"), "3\n1\n");
    lab.expect_clean();
}

/// It holds nothing up, and finds an answer or says why not, whatever the command is doing.
#[test]
fn looks_at_what_changes_all_the_time() {
    let lab = Lab::in_memory();
    let _ = lab.native("for n in 1 2 3 4; do mkdir d$n; echo $n > d$n/x; done");
    let gate = gate(&lab);
    let script = format!(
        "echo ready; n=0; while [ $n -lt 120 ]; do n=$((n+1)); mkdir -p t/$((n%7))/u; echo $n > t/$((n%7))/u/x; \
         mv t/$((n%7)) d1/m; rm -r d1/m; echo $n > d2/x; mv d3 d4/d3; mv d4/d3 d3; done; read line < {gate}"
    );
    let running = lab.script(&["--name", "busy"], &script).start();
    wait::until("the command runs", || running.stdout().contains("ready"));
    let mut seen = 0;
    for n in 0..30 {
        let done = lab.txos([["diff", "busy"], ["show", "busy"]][n % 2]).run();
        assert!(!done.stderr.contains("internal error"), "{done:?}");
        match done.code() {
            0 => seen += 1,
            125 => assert!(done.stderr.contains("changes while it is looked at"), "{done:?}"),
            _ => panic!("{done:?}"),
        }
    }
    assert!(seen > 0);
    std::fs::write(&gate, "go\n").unwrap();
    let _ = running.wait().expect(0);
    assert_eq!(lab.read("d2/x") + &lab.read("d3/x"), "120\n3\n");
    lab.expect_clean();
}

/// Names and contents that would be tags, in a real browser: none of them does anything, and every path is
/// to be seen.
#[test]
fn a_page_in_a_browser_shows_hostile_names_and_contents() {
    let lab = Lab::new();
    let hostile = "<script>document.title='owned'<\\057script><img src=x onerror=document.title=1>";
    let script = format!(
        "printf '<script>document.title=1</script>\n</td></table><script>document.title=2</script>\n' > content; \
         name=$(printf \"{hostile}\"); mkdir -p \"$name\"; echo 1 > \"$name/<b>bold<b>\"; rm gone; chmod 4755 mode; \
         echo 2 > '\"quoted\".&amp;'"
    );
    let _ = lab.native("echo 1 > gone; echo 1 > mode");
    let _ = lab.script(&["--keep", "--name", hostile], &script).run().expect(0);
    let page = lab.dir().join("page.html");
    let done = lab.txos(["review", "--html"]).arg(&page).run().expect(0);
    assert!(done.stderr.contains("nothing is decided"), "{done:?}");
    let written = std::fs::read_to_string(&page).unwrap();
    assert!(!written.contains("<script") && !written.contains("<img"), "{written}");
    let to_pipe = lab.txos(["review", "@", "--html", "-"]).run().expect(0);
    assert_eq!(to_pipe.text(), written);
    let browser = ["chromium", "chromium-browser", "google-chrome"];
    let browser = browser.into_iter().find(|browser| skip::has(browser));
    let browser = require_some!(browser, "no chromium to look at the page with");
    let profile = lab.dir().join("profile");
    let output = Command::new("timeout")
        .args(["-k", "5", "60", browser])
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()))
        .env("HOME", lab.dir())
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let shown = |text: &str| dom.contains(text);
    assert!(dom.contains("<h2>Differences</h2>"), "{output:?}");
    assert!(!shown("<title>owned") && !shown("<title>1") && !shown("<title>2"), "{dom}");
    assert!(shown("<title>txos: &lt;script&gt;"), "{dom}");
    assert!(!shown("<script") && !shown("<img"), "{dom}");
    for path in ["/gone<", "/mode<", "/content<", "&lt;b&gt;bold&lt;b&gt;<", ".&amp;amp;"] {
        assert!(shown(path), "{path} in {dom}");
    }
    let first = dom.split("<h2>Tree</h2>").next().unwrap();
    assert!(first.contains("/gone<") && first.contains("runs as user 0"), "{first}");
}

/// The store is out of sight inside; the process that runs the transaction looks.
#[test]
fn a_transaction_can_be_looked_at_from_inside() {
    let lab = Lab::in_memory();
    let _ = lab.native("printf 'one\\n' > a; echo 1 > gone");
    let before = lab.script(&["--keep", "--name", "before"], "echo 9 > other").run().expect(0);
    assert!(before.stderr.contains("kept"), "{before:?}");
    let txos = txos_testkit::binary::txos();
    let script = format!(
        "echo two > a; rm gone; mkdir new; cd new; echo 1 > x; \
         {txos} diff --name-status > ../names; {txos} diff @ ../a; {txos} diff --relative | grep '^+'; \
         {txos} show | head -n 1; {txos} status | grep '^running'; {txos} diff before --name-status; \
         {txos} show --json | grep -c '\"state\": \"active\"'; {txos} diff nonsense; echo status $?; \
         {txos} commit @; echo status $?; {txos} diff --store /x; echo status $?",
        txos = txos.display()
    );
    for options in [&[][..], &["--no-network", "--strict", "--hold-output"]] {
        let done = lab.script(options, &script).run().expect(0);
        let text = done.text();
        let names = lab.read("names");
        let changed: Vec<&str> =
            names.lines().map(|line| line.rsplit('/').next().unwrap()).collect();
        assert_eq!(changed.len(), 5, "{names}: {done:?}");
        for change in ["M\t", "D\t", "A\t"] {
            assert!(names.lines().any(|line| line.starts_with(change)), "{names}");
        }
        for line in ["-one", "+two", "+1", "status 125"] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
        assert!(text.contains("(around this command): ") && text.contains("so far; sh"), "{text}");
        assert!(
            text.lines().any(|line| line.starts_with("A\t") && line.ends_with("/other")),
            "{text}"
        );
        assert!(!done.stderr.contains("talks to a service"), "{done:?}");
        assert!(
            done.stderr.contains("nonsense") && done.stderr.contains("out of reach"),
            "{done:?}"
        );
        let _ = lab.native("rm -r new names; printf 'one\\n' > a; echo 1 > gone");
    }
    // In a command of a pending transaction as well.
    let looked = format!("echo 3 > third; {} diff --name-status", txos.display());
    let done = lab.txos(["exec", "before", "--", "sh", "-c", &looked]).run().expect(0);
    assert!(done.text().contains("/third") && done.text().contains("/other"), "{done:?}");
    let _ = lab.txos(["abort", "before"]).run().expect(0);
    lab.expect_clean();
}

/// Whoever asks by hand gets no more than looks: what answers is outside of the transaction.
#[test]
fn what_is_asked_by_hand_only_looks() {
    require!(skip::has("python3"), "there is no python3");
    let lab = Lab::in_memory();
    let outside = lab.dir().join("outside");
    let ask = r#"
import array, json, os, socket, sys
asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
asked.connect("\0txos-question")
words = [list(os.fsencode(word)) for word in sys.argv[1:]]
question = json.dumps({"words": words, "directory": list(os.getcwdb())}).encode()
fds = array.array("i", [1, 2])
asked.sendmsg([question], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
print("status", asked.recv(1)[0], flush=True)
"#;
    std::fs::write(lab.dir().join("ask.py"), ask).unwrap();
    let before = lab.script(&["--keep", "--name", "before"], "echo 9 > other").run().expect(0);
    assert!(before.stderr.contains("kept"), "{before:?}");
    let (place, out) = (lab.dir().display(), outside.display());
    let refused = [
        "commit before".to_owned(),
        "abort before".to_owned(),
        format!("run --scope {place} -- touch {out}"),
        format!("run --report {out} -- true"),
        format!("agent shell touch {out}"),
        format!("man {out}"),
        "completions bash".to_owned(),
        "config --cflags".to_owned(),
        "gc --force before".to_owned(),
        format!("list --store {out}"),
        format!("--store={out} list"),
    ];
    let script: String = ["list"]
        .into_iter()
        .chain(refused.iter().map(String::as_str))
        .fold(String::new(), |script, words| script + &format!("python3 {place}/ask.py {words}; "));
    let done = lab.script(&[], &(script + "echo 1 > changed")).run().expect(0);
    let found: Vec<String> =
        done.text().lines().filter(|l| l.starts_with("status ")).map(str::to_owned).collect();
    let mut expected = vec!["status 125"; refused.len()];
    expected.insert(0, "status 0");
    assert_eq!(found, expected, "{done:?}");
    assert!(!outside.exists() && !lab.tree().join("other").exists(), "{done:?}");
    let _ = lab.txos(["commit", "before"]).run().expect(0);
    lab.expect_clean();
}

/// A transaction whose process was killed is no matter for `recover`: it says so, and names what removes it.
#[test]
fn recover_tells_of_dead_ones() {
    let lab = Lab::in_memory();
    let _ = lab.txos(["recover"]).run().expect(0).says("nothing to recover").says_not("gc");
    let script = "echo new > f; (:); for p in $(cat /proc/$$/task/$$/children); do \
        [ \"$(cat /proc/$p/comm)\" = txos ] && kill -9 $p; done; sleep 10";
    let view = ["run", "--view", "library", "--", "sh", "-c", script];
    let mut ids = Vec::new();
    for dead in 1..=2 {
        let _ = lab.txos(view).run().expect(125).says("is gone");
        wait::until("the list has it as dead", || {
            let list = lab.txos(["list", "--json"]).run().expect(0).json();
            let all = list["transactions"].as_array().unwrap();
            ids = all.iter().map(|tx| tx["id"].as_str().unwrap().to_owned()).collect();
            ids.len() == dead && all.iter().all(|tx| tx["state"] == "dead")
        });
        let done = lab.txos(["recover"]).run().expect(0).says("nothing to recover");
        let done = done.says(if dead == 1 { " is dead: " } else { " are dead: " });
        let _ = ids.iter().fold(done.says("`txos gc` removes"), |done, id| done.says(id));
    }
    let _ = lab.txos(["gc"]).run().expect(0);
    let _ = lab.txos(["recover"]).run().expect(0).says_not("dead");
    assert!(!lab.tree().join("f").exists());
    lab.expect_clean();
}
