//! Calls whose paths the kernel looks up (sockets, mounts, programs), and working directories that no path
//! leads to: what they reach is what the path leads to in the transaction.

use std::os::unix::net::{UnixDatagram, UnixListener};

use txos_testkit::{Done, Invocation, Lab, Tree, binary, require, skip};

use crate::program::{Linked, program};

/// What the scenes are played in.
const PREPARE: &str = "umask 022; mkdir -p dir/inner; echo x >dir/file; mkfifo fifo
    printf '#!/bin/true\\n' >above; chmod 755 above; cp above dir/program";

/// A place in which somebody listens.
struct Place {
    lab: Lab,
    _listener: UnixListener,
    datagrams: UnixDatagram,
}

impl Place {
    fn new() -> Place {
        let lab = Lab::in_memory();
        let _ = lab.native(PREPARE);
        let listener = UnixListener::bind(lab.path("dir/stream")).unwrap();
        let datagrams = UnixDatagram::bind(lab.path("dir/datagrams")).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        Place { lab, _listener: listener, datagrams }
    }

    /// A scene in the program alone; mounts are those of its own namespace.
    fn natively(&self, words: &[&str]) -> Done {
        let program = program("by_kernel", Linked::Natively);
        let program = Invocation::new("unshare").args(["-m", "--"]).arg(program);
        program.args(words).dir(self.lab.tree()).run()
    }

    /// In a transaction.
    fn inside(&self, words: &[&str]) -> Done {
        let txos = self.lab.txos(["run", "--in-process", "--"]);
        txos.arg(program("by_kernel", Linked::Natively)).args(words).run()
    }

    fn names(&self) -> String {
        self.lab.native("find . -printf '%p %y %m\\n' | sort").text()
    }
}

/// A scene is played as natively, and is gone after a failure.
#[track_caller]
fn plays_as_natively(words: &[&str]) {
    let (native, ours) = (Place::new(), Place::new());
    let before = Tree::of(ours.lab.tree());
    let failed = ours.inside(&[words, &["7"]].concat()).expect(7);
    before.expect_same(&Tree::of(ours.lab.tree()));
    let natively = native.natively(&[words, &["0"]].concat()).expect(0);
    let done = ours.inside(&[words, &["0"]].concat()).expect(0);
    assert_eq!(natively.text(), done.text(), "natively, and in a transaction: {done:?}");
    assert_eq!(natively.text(), failed.text());
    assert_eq!(native.names(), ours.names());
    ours.lab.expect_clean();
}

#[test]
fn a_socket_is_bound_where_the_transaction_is() {
    plays_as_natively(&["bind"]);
}

#[test]
fn a_socket_is_bound_in_a_directory_that_was_made() {
    plays_as_natively(&["bind-new"]);
}

#[test]
fn a_socket_is_bound_at_a_path_longer_than_an_address() {
    plays_as_natively(&["long"]);
}

#[test]
fn a_socket_that_was_bound_is_listened_at_after_the_commit() {
    let place = Place::new();
    // The transaction is that of a thread; the program goes on after it.
    let program = program("by_kernel", Linked::WithLibrary);
    let done = Invocation::new(program)
        .args(["serve", "0"])
        .env("TXOS_STORE", place.lab.store())
        .env("TXOS_REALM", place.lab.realm())
        .dir(place.lab.tree())
        .run()
        .expect(0);
    let text = done.text();
    assert!(text.contains("connect from outside before: ENOENT"), "{text}");
    assert!(text.contains("connect from outside after: done"), "{text}");
    place.lab.expect_clean();
}

#[test]
fn sockets_are_found_where_the_transaction_moved_them() {
    let native = Place::new();
    let natively = native.natively(&["connect", "0"]).expect(0);
    let ours = Place::new();
    let done = ours.inside(&["connect", "0"]).expect(0);
    assert_eq!(natively.text(), done.text(), "{done:?}");
    let mut byte = [0; 4];
    for place in [&native, &ours] {
        let got =
            [place.datagrams.recv(&mut byte).unwrap(), place.datagrams.recv(&mut byte).unwrap()];
        assert_eq!(got, [1, 1]);
        assert!(place.datagrams.recv(&mut byte).is_err());
    }
}

#[test]
fn programs_are_found_where_the_transaction_is() {
    plays_as_natively(&["programs"]);
}

#[test]
fn mounts_are_made_on_what_the_path_leads_to() {
    let place = Place::new();
    let txos = binary::txos();
    let program = program("by_kernel", Linked::Natively);
    let done = Invocation::new("unshare")
        .args(["-m", "--"])
        .arg(txos)
        .args(["run", "--in-process", "--"])
        .arg(program)
        .args(["mounts", "0"])
        .env("TXOS_STORE", place.lab.store())
        .env("TXOS_REALM", place.lab.realm())
        .dir(place.lab.tree())
        .run()
        .expect(0);
    let expected = "chdir: done\nmount: done\numount: done\nmount on nothing: ENOENT\nmkdir: done\n\
                    mount on what was made: EOPNOTSUPP\nrename: done\nmount by the old name: ENOENT\n\
                    umount by the old name: ENOENT\nopen_tree: done\nopen_tree by the old name: ENOENT\n\
                    swapon: EINVAL\nwatch: done\nwatch by the old name: ENOENT\nstat: done\n";
    assert_eq!(done.text(), expected, "{done:?}");
    let _ = done.says("(mount) is not possible in a transaction");
    place.lab.expect_clean();
}

#[test]
fn a_pipe_is_written_to_and_its_mode_changed() {
    plays_as_natively(&["fifo"]);
    // An outsider passes something through it meanwhile: that is no change of it.
    let place = Place::new();
    let script = "chmod 600 fifo; echo passes >>fifo & cat fifo; wait";
    let done = place.lab.script(&[], script).run().expect(0);
    assert_eq!(done.text(), "passes\n");
    let mode = place.lab.native("stat -c %a fifo").text();
    assert_eq!(mode.trim(), "600", "{done:?}");
}

/// What a program finds in a working directory, natively and in a transaction.
#[track_caller]
fn expect_same_in(enter: &str, user: &str) {
    let (native, ours) = (Place::new(), Place::new());
    let program = program("by_kernel", Linked::Natively);
    let play = |place: &Place, txos: &str| {
        let bin = place.lab.dir().join("bin");
        std::fs::create_dir(&bin).unwrap();
        for from in [binary::txos(), binary::library(), &program] {
            let to = bin.join(from.file_name().unwrap());
            txos_testkit::process::copy_program(from, to);
        }
        let name = program.file_name().unwrap().to_str().unwrap();
        let bin = bin.display();
        let script = format!("{enter}; exec {user} {txos} {bin}/{name} relative 0");
        Invocation::shell(script.replace("BIN", &bin.to_string()))
            .env("TXOS_STORE", place.lab.store())
            .env("TXOS_REALM", place.lab.realm())
            .dir(place.lab.tree())
            .run()
            .expect(0)
    };
    let natively = play(&native, "");
    let done = play(&ours, "BIN/txos run --in-process --");
    assert_eq!(natively.text(), done.text(), "natively, and in a transaction: {done:?}");
    assert_eq!(native.names(), ours.names());
}

#[test]
fn a_working_directory_that_was_removed_answers_as_ever() {
    expect_same_in("mkdir gone; cd gone; rmdir ../gone", "");
}

#[test]
fn a_working_directory_behind_a_closed_one_answers_as_ever() {
    require!(skip::has("setpriv"), "no setpriv");
    let user = "setpriv --reuid 12345 --regid 12345 --clear-groups";
    expect_same_in(
        "mkdir -p closed/in/inner; echo x >closed/in/file; chmod 700 closed; cd closed/in",
        user,
    );
}

#[test]
fn a_working_directory_under_a_mount_answers_as_ever() {
    expect_same_in("cd dir; mount -t tmpfs none .", "");
}
