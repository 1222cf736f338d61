//! A user has a lease on a file of the user's own, and root's transaction comes to it.

use txos_testkit::rendezvous::PAUSE;
use txos_testkit::user::User;
use txos_testkit::{Invocation, Lab, Rendezvous, skip};

/// Takes a lease on `F` and gives it up when somebody wants the file: that somebody has then been turned away once.
/// Its argument is what `open` is told, and the kind of lease (fcntl(2): 0 to read, 1 to write).
const GIVES_UP: &str = r#"
    my ($mode, $kind) = @ARGV;
    my $told = 0;
    alarm(100);
    $SIG{IO} = sub { $told = 1 };
    open(my $f, $mode, "F") or die "open: $!";
    fcntl($f, 1024, $kind + 0) or die "lease: $!";
    open(my $out, ">&=", 8) or die "8: $!";
    open(my $in, "<&=", 9) or die "9: $!";
    syswrite($out, "\n");
    select(undef, undef, undef, 0.005) until $told;
    fcntl($f, 1024, 2) or die "giving up: $!";
    close($f);
    print "told\n";
    sysread($in, my $byte, 1);
"#;

/// Who has a lease is told and waited for, as the kernel does; the commit then goes on.
#[test]
fn a_lease_is_waited_out() {
    let lab = Lab::in_memory();
    let user = User::new();
    let keep: &[&str] = &["--keep-inode", "**/F"];
    let scenes: [(&str, &[&str], &str, &str); 3] = [
        // A file of several names is written in place.
        ("ln F G", &[], "", "old\nx\n"),
        ("true", keep, "", "old\nx\n"),
        // Somebody else appends as well: the commit reads what is there.
        ("true", keep, "echo theirs >> F", "old\ntheirs\nx\n"),
    ];
    for (prepare, options, meanwhile, expected) in scenes {
        for (mode, kind) in [("<", "0"), ("+<", "1")] {
            println!("{prepare}, {options:?}, {meanwhile}: {mode}");
            let _ = lab.native("chmod 1777 .; rm -f F G; echo old > F");
            let _ = lab.native(prepare);
            std::os::unix::fs::chown(lab.path("F"), Some(user.uid), Some(user.gid)).unwrap();
            let mut paused = Rendezvous::new();
            let run = lab.script(options, &format!("echo x >> F; {PAUSE}"));
            let run = run.meeting(&mut paused).start();
            assert!(paused.arrived());
            let _ = lab.native(meanwhile);
            let mut meeting = Rendezvous::new();
            let holder = Invocation::new("perl").args(["-e", GIVES_UP, mode, kind]);
            let holder = user.runs(holder.dir(lab.tree())).meeting(&mut meeting).start();
            assert!(meeting.arrived());
            paused.go();
            let _ = run.wait().expect(0);
            assert_eq!(lab.read("F"), expected);
            meeting.go();
            assert_eq!(holder.wait().expect(0).text(), "told\n");
        }
    }
}

/// Takes a lease on `F`, and another as soon as it has given that one up.
const KEEPS: &str = r#"
    alarm(200);
    my $told = 0;
    $SIG{IO} = sub { $told = 1 };
    open(my $f, "+<", "F") or die "open: $!";
    open(my $out, ">&=", 8) or die "8: $!";
    fcntl($f, 1024, 1) or die "lease: $!";
    syswrite($out, "\n");
    while (1) {
        select(undef, undef, undef, 0.001) until $told;
        $told = 0;
        fcntl($f, 1024, 2);
        1 until fcntl($f, 1024, 1) || $told;
    }
"#;

/// Who takes one lease after the other is told of by number, once the kernel would have broken them; nothing is
/// changed.
#[test]
fn who_keeps_a_lease_is_named() {
    txos_testkit::require!(skip::long("attack"), "it takes as long as the kernel waits: 45 s");
    let lab = Lab::in_memory();
    let user = User::new();
    let _ = lab.native("chmod 1777 .; echo old > F; ln F G; echo old > other");
    std::os::unix::fs::chown(lab.path("F"), Some(user.uid), Some(user.gid)).unwrap();
    let mut paused = Rendezvous::new();
    let run = lab.script(&[], &format!("echo x >> F; echo x > other; {PAUSE}"));
    let run = run.meeting(&mut paused).start();
    assert!(paused.arrived());
    let mut meeting = Rendezvous::new();
    let holder = user.runs(Invocation::new("perl").args(["-e", KEEPS]).dir(lab.tree()));
    let holder = holder.meeting(&mut meeting).start();
    assert!(meeting.arrived());
    let pid = holder.pid().as_raw_nonzero().get();
    paused.go();
    let done = run.wait().expect(75);
    assert!(done.stderr.contains(&format!("process {pid} has a lease on it")), "{done:?}");
    assert_eq!((lab.read("F"), lab.read("other")), ("old\n".into(), "old\n".into()));
    holder.signal(rustix::process::Signal::KILL);
    let _ = holder.wait();
    // The store is as usable as before.
    let _ = lab.script(&[], "echo y > F; echo y > other").run().expect(0);
    assert_eq!((lab.read("G"), lab.read("other")), ("y\n".into(), "y\n".into()));
    lab.expect_clean();
}
