//! Processes of other users, groups and capabilities in a command's transaction: what they may and may not do is what
//! they may and may not do natively, also with what only the transaction has.

use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;

use txos_testkit::{Invocation, Lab, Tree, require, require_some, skip, system};

use super::place::start;
use super::processes::contained;
use super::program::Linked;
use super::whole::{Pair, SOURCES};

/// An ordinary user.
const OTHER: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

const PLACES: &str = "mkdir -m 1777 pub; mkdir -m 711 through; mkdir -m 700 own; echo secret > secret; chmod 600 secret; \
    echo hidden > own/hidden; echo seen > through/seen; echo 1 > theirs; chown 65534:65534 theirs; chmod 600 theirs; \
    echo 2 > for-all; chmod 666 for-all; echo 3 > write-only; chmod 222 write-only; \
    mkdir given; echo 4 > given/f; chown -R 65534:65534 given; echo 5 > pub/roots; chmod 644 pub/roots";

/// The places, natively and in a transaction, and nobody who changes `/etc/passwd`, which programs read here.
struct Places {
    pair: Pair,
    _stable: system::Guard,
}

impl Deref for Places {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        &self.pair
    }
}

fn pair() -> Places {
    let stable = system::stable();
    let pair = Pair::new(&format!("{SOURCES}; chmod 755 .; {PLACES}"));
    for place in [&pair.lab, &pair.ours] {
        std::fs::set_permissions(place.dir(), PermissionsExt::from_mode(0o755)).unwrap();
    }
    Places { pair, _stable: stable }
}

fn does(pair: &Pair, script: &str) {
    pair.does(&["sh", "-c", script]);
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Each line of a script is tried, and its status shown.
fn each(lines: &[&str]) -> String {
    let tried = lines
        .iter()
        .map(|line| format!("({line}) 2>&1; echo \"$? {}\"", line.replace(['$', '"'], "")));
    tried.collect::<Vec<_>>().join("\n")
}

#[test]
fn others_may_what_they_may_natively() {
    require!(is_root(), "only root can become others");
    let pair = pair();
    let lines = each(&[
        "cat secret",
        "cat own/hidden",
        "ls own",
        "cat through/seen",
        "ls through",
        "cat theirs",
        "cat for-all",
        "cat write-only",
        "echo x >> secret",
        "echo x >> theirs",
        "echo x >> for-all",
        "echo x >> write-only",
        "echo x > src/new",
        "rm secret",
        "rm pub/roots",
        "mv pub/roots pub/moved",
        "mv theirs pub",
        "ln secret pub/linked",
        "ln theirs pub/linked",
        "mkdir d",
        "mkdir pub/d",
        "echo mine > pub/mine",
        "chmod 640 pub/mine",
        "chmod 644 secret",
        "chown 0 pub/mine",
        "chgrp 0 pub/mine",
        "touch -d @9 pub/mine",
        "touch -d @9 for-all",
        "touch for-all",
        "ln -s ../secret pub/link",
        "cat pub/link",
        "mkfifo pub/fifo",
        "mknod pub/null c 1 3",
        "echo x > given/g",
        "rm given/f",
        "mkdir given/d",
        "mv given/g given/d",
        "rmdir own",
        "test -r secret",
        "test -w for-all",
        "test -x own",
        "truncate -s 0 for-all",
        "truncate -s 0 secret",
        "cd own",
        "cp /bin/true pub/true; pub/true",
        "chmod 700 pub/true; pub/true",
        "mv pub/mine given; ls -ln given | awk '{print $1, $3, $4, $9}'",
        "umask 077; echo x > pub/private; stat -c '%a %u %g' pub/private",
        "find . -user 65534 | sort",
        "getfattr -d for-all",
    ]);
    does(
        &pair,
        &format!("cat > script <<'EOF'\n{lines}\nEOF\nchmod 644 script; {OTHER} sh script"),
    );
    pair.clean();
}

/// What the one user has made, or has looked at, is judged anew for the other.
#[test]
fn what_is_new_is_judged_for_each() {
    require!(is_root(), "only root can become others");
    let pair = pair();
    let lines = each(&[
        "cat new/secret",
        "cat new/open",
        "ls new",
        "ls shut",
        "cat shut/f",
        "echo x >> new/open",
        "echo x > new/g",
        "rm new/open",
        "echo x > free/mine",
        "cat secret",
        "echo more >> moved",
        "cat changed",
        "echo x >> changed",
        "rm free/roots",
        "rm free/own",
        "ln new/secret free/l",
        "chmod 777 new/secret",
        "new/program",
        "new/roots-program",
        "cat grouped/f",
        "echo x > grouped/mine; stat -c '%u %g %a' grouped/mine",
        "mkdir grouped/d; stat -c '%u %g %a' grouped/d",
        "cat <&5",
        "cat was",
        "echo x > free/d/f",
    ]);
    let script = format!(
        "cat > script <<'EOF'\n{lines}\nEOF\n\
         cat secret own/hidden; ls own; mkdir new; echo s > new/secret; chmod 600 new/secret; echo o > new/open; mkdir -m 700 shut; echo f > shut/f; \
         mkdir -m 1777 free; echo r > free/roots; echo t > free/own; chown 65534 free/own; mkdir -m 777 free/d; mv theirs moved; echo c > changed; chmod 640 changed; \
         cp /bin/true new/program; cp /bin/true new/roots-program; chmod 700 new/roots-program; mkdir grouped; chgrp 50 grouped; chmod 2775 grouped; \
         echo g > grouped/f; chmod 640 grouped/f; echo w > was; chmod 600 was; exec 5< secret; \
         setpriv --reuid=65534 --regid=65534 --groups=50 sh script; chmod 644 was; chmod 711 shut; {OTHER} cat was shut/f; \
         {OTHER} sh -c 'cat grouped/f; ls grouped; echo x > grouped/other'; cat free/mine grouped/mine"
    );
    does(&pair, &script);
    pair.clean();
}

/// An access list counts also for what has another owner, group or mode in the transaction.
#[test]
fn access_lists_count_after_a_change_of_owner() {
    require!(is_root(), "only root can become others");
    require!(skip::has("setfacl"), "there is no setfacl");
    let pair = pair();
    let prepare = "for f in out in group owned wide; do echo $f > $f; done; chmod 664 out group; chmod 600 in; chmod 666 wide
         setfacl -m u:65534:--- out owned; setfacl -m u:65534:rw in; setfacl -m g:60:rw -m m::r group; setfacl -m u:65534:--- wide
         mkdir shut listed; echo f > listed/f; setfacl -m u:65534:--- listed
         cp /bin/true set-id; chmod 4775 set-id; setfacl -m u:65534:rwx -m u:1:--- set-id
         mkdir -p past/in; setfacl -d -m u:1:rwx past/in; chmod 777 past/in; echo s > past/in/seen; chmod 664 past/in/seen
         setfacl -m u:65534:--- past/in/seen; chmod 700 past";
    for place in [&pair.native, &pair.ours] {
        let _ = place.native(prepare);
    }
    let lines = each(&[
        "cat out",
        "echo x >> out",
        "cat in",
        "echo x >> in",
        "cat group",
        "echo x >> group",
        "cat owned",
        "cat wide",
        "ls listed",
        "cat listed/f",
        "test -r out",
        "test -w in",
        "echo x >> set-id",
        "cat set-id | wc -c",
    ]);
    let below = each(&["cat seen", "echo x >> seen", "echo x > new", "getfacl -n new", "cat new"]);
    let script = format!(
        "cat > script <<'EOF'\n{lines}\nEOF\ncat > below <<'EOF'\n{below}\nEOF\nchmod 644 script below; \
         chgrp 50 out in group listed; chown 1 owned; chmod 604 wide; \
         setpriv --reuid=65534 --regid=65534 --groups=60 sh script; {OTHER} sh script; \
         setpriv --reuid=1 --regid=1 --clear-groups sh -c 'cat set-id | wc -c; cat owned; cat out; echo x >> set-id' 2>&1; \
         exec 3< below; cd past/in; chgrp 50 seen; {OTHER} sh /dev/stdin <&3 2>&1; cd ../..; getfacl -n out in group wide set-id listed"
    );
    does(&pair, &script);
    pair.clean();
}

/// The user is changed and changed back in one process; the real one counts for access(2).
#[test]
fn ids_change_in_a_process() {
    require!(is_root(), "only root can become others");
    let pair = pair();
    let script = r#"
        use POSIX; $| = 1;
        sub try_all { my $as = shift;
            for my $f ("secret", "theirs", "for-all", "own/hidden") {
                print "$as $f ", (open(my $h, "<", $f) ? <$h> : "$!\n");
                print "$as may read $f: ", (POSIX::access($f, R_OK) ? "yes" : "no"), "\n";
            }
            print "$as made: ", (open(my $h, ">", "pub/by-$as") ? "yes" : "$!"), "\n";
            print "$as in src: ", (mkdir("src/by-$as") ? "yes" : "$!"), "\n";
        }
        try_all("root");
        $) = "65534 65534"; $> = 65534; try_all("effective");
        $> = 0; $) = "0 0"; try_all("again");
        POSIX::setgid(65534); POSIX::setuid(65534); try_all("for-good");
        unless (fork) { try_all("child"); exec "/bin/ls", "-ln", "--time-style=+", "pub" } wait;
        print "back: ", (POSIX::setuid(0) ? "yes" : "no"), "\n";
    "#;
    std::fs::write(pair.native.path("script.pl"), script).unwrap();
    std::fs::write(pair.ours.path("script.pl"), script).unwrap();
    pair.does(&["perl", "script.pl"]);
    // By the first process, before there is another.
    pair.does(&[
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "sh",
        "-c",
        "echo x > pub/first; cat theirs; cat secret; true",
    ]);
    pair.clean();
}

#[test]
fn capabilities_count() {
    require!(is_root(), "only root has capabilities");
    let pair = pair();
    let lines = each(&[
        "cat theirs",
        "cat given/f",
        "echo x >> theirs",
        "chown 1 secret",
        "chmod 666 theirs",
        "mknod pub/null c 1 3",
        "cat secret",
        "rm pub/roots",
        "echo x > given/g",
        "touch -d @7 theirs",
        "chown 65534 pub/roots",
        "setfattr -n trusted.x -v 1 secret",
        "setcap cap_net_raw+ep src/numbers",
    ]);
    for less in [
        "-all",
        "-dac_override,-dac_read_search",
        "-fowner",
        "-chown",
        "-mknod,-setfcap,-sys_admin",
    ] {
        does(
            &pair,
            &format!(
                "cat > script <<'EOF'\n{lines}\nEOF\nsetpriv --bounding-set={less} --inh-caps=-all sh script; ls -lnR --time-style=+ . > /dev/null"
            ),
        );
    }
    pair.clean();
}

/// What is not versioned each process looks at by itself: its own directory in `/proc`, above all.
#[test]
fn a_process_is_its_own() {
    require!(is_root(), "only root can become others");
    let pair = pair();
    let lines = each(&[
        "head -1 pub/status",
        "readlink -f pub/exe",
        "readlink /proc/self/exe",
        "cat pub/maps | grep -c 'r-xp.*/cat$'",
        "cat pub/mem",
        "echo x > pub/mem",
        "cat pub/environ | tr '\\0' '\\n' | grep -c PATH",
        "echo x > pub/null",
        "cat pub/null",
        "cat pub/fds/0 < secret",
        "cat pub/fds/0 < theirs",
        "ls pub/root/etc | head -3",
        "stat -c %u pub/self/",
        "cat pub/tasks/../comm",
        "test -r pub/mem",
        "ls -d pub/fds/.",
    ]);
    let links = "cd pub; for f in status exe maps mem environ root cwd; do ln -s /proc/self/$f $f; done; ln -s /proc/self/fd fds; ln -s /proc/self/task tasks; \
        ln -s /proc/self self; ln -s /dev/null null; cd ..";
    for who in [OTHER, "env"] {
        let script = format!(
            "rm -rf pub/*; {links}; cat > script <<'EOF'\n{lines}\nEOF\nchmod 644 script; {who} sh script; echo {who} > done"
        );
        does(&pair, &script);
    }
    pair.clean();
}

/// Where nothing may be mounted, apt-get installs a package all the same: it downloads as a user of its own, and the trigger of the manual
/// pages runs as another one.
#[test]
fn apt_get_installs_in_a_container() {
    require!(
        is_root() && skip::has("apt-get"),
        "only root installs packages, where there is apt-get"
    );
    let lab = Lab::new();
    let _guard = system::changing();
    let installed =
        |package: &str| Invocation::new("dpkg-query").args(["-W", package]).run().code() == 0;
    let fetch = "apt-get --print-uris download hostname >/dev/null 2>&1 || apt-get update -qq";
    require!(Invocation::shell(fetch).run().code() == 0, "no package archive can be reached");
    let package = ["figlet", "sl", "hello", "cowsay"].into_iter().find(|p| !installed(p));
    let package = require_some!(package, "every candidate is installed here");
    let status = || std::fs::read("/var/lib/dpkg/status").unwrap();
    let before = status();
    let runs =
        |words: &[&str]| contained(&lab, words).env("DEBIAN_FRONTEND", "noninteractive").run();
    let install = |tail: &str| {
        let script = format!("apt-get install -y --no-install-recommends {package} && {tail}");
        runs(&["run", "--no-durable", "--view", "library", "--", "sh", "-c", &script])
    };
    let failed = install(&format!("dpkg -s {package} && false"));
    require!(
        !failed.text().contains("Unable to fetch") && failed.code() != 100,
        "the archive fails: {failed:?}"
    );
    let _ = failed.expect(1);
    assert!(!installed(package) && status() == before, "something is left of {package}");
    let done = install("true");
    require!(done.code() != 100, "the archive fails: {done:?}");
    let done = done.expect(0);
    let is_there = installed(package);
    let _ = runs(&["revert", "@"]).expect(0);
    assert!(is_there, "{done:?}");
    assert!(!installed(package) && status() == before, "something is left of {package}");
}

/// All of it is taken back, whoever has made it.
#[test]
fn what_others_did_is_rolled_back() {
    require!(is_root(), "only root can become others");
    let pair = pair();
    let script = format!(
        "{OTHER} sh -c 'echo x > pub/x; rm given/f; echo y >> theirs; mkdir -p pub/d/e'; cat pub/x; exit 3"
    );
    pair.fails(&["sh", "-c", &script], 3);
    let before = Tree::of(pair.ours.tree());
    let killed = format!("{OTHER} sh -c 'echo x > pub/x; rm given/f; mkdir pub/d'; kill -9 $PPID");
    let done = pair
        .ours
        .txos([
            "run",
            "--in-process",
            "--",
            "perl",
            "-e",
            "exit system('sh', '-c', $ARGV[0]) >> 8",
            &killed,
        ])
        .run();
    assert_ne!(done.code(), 0, "{done:?}");
    before.expect_same(&Tree::of(pair.ours.tree()));
    pair.clean();
}

/// In a program's transaction: random calls that change credentials, with a commit and with an abort, with and without
/// `TX_KEEP_CREDENTIALS` (see `c/credentials.c`).
#[test]
fn credentials_are_as_natively_after_a_commit() {
    require!(is_root(), "only root can change its credentials");
    let lab = Lab::in_memory();
    let done = start(&lab, "credentials", Linked::WithLibrary).args(["1", "150"]).run();
    assert!(done.code() == 0 && done.text().starts_with("0 unlike"), "{done:?}");
    // Some of them were given up for good.
    assert!(!done.text().contains(" 0 given up"), "{done:?}");
}
