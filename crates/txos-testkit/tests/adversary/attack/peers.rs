//! What a user tries with root's transaction from the other end of its sockets and pipes, by signals, by descriptors
//! that it is sent, by the name of a socket, and by the memory of a process that becomes this user. See
//! `programs/peers.c` for each.

use std::os::unix::fs::PermissionsExt;

use txos_testkit::{Done, Invocation, Lab, require, skip};

use crate::program::{Linked, compile};

fn attack(name: &str) -> Done {
    static BUILT: std::sync::OnceLock<std::path::PathBuf> = std::sync::OnceLock::new();
    let build = || compile("tests/adversary/attack/programs", "peers", Linked::WithLibrary);
    let program = BUILT.get_or_init(build);
    let seed = crate::seed(5);
    let rounds = if skip::long("attack") { 8 } else { 1 };
    for round in 0..rounds {
        let lab = Lab::in_memory();
        for place in [lab.dir(), lab.tree()] {
            std::fs::set_permissions(place, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let seed = seed.wrapping_add(round);
        println!("TXOS_TEST_SEED={seed}");
        let done = Invocation::new(program)
            .args([name, &seed.to_string()])
            .env("TXOS_STORE", lab.store())
            .env("TXOS_REALM", lab.realm())
            .env("TXOS_HOLD_OUTPUT", "1")
            .env("TXOS_HELD_WAIT", "1")
            .dir(lab.tree())
            .run()
            .expect(0);
        println!("{}", done.text());
        lab.expect_clean();
        if round + 1 == rounds {
            return done;
        }
    }
    unreachable!("there is a last round")
}

fn only_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_peer_that_goes_away_stops_no_commit() {
    require!(only_root(), "only root can become others");
    let done = attack("closes");
    assert!(done.stderr.contains("could not be sent"), "{done:?}");
}

/// Its victim goes on after the time that there is for it, and holds up no other transaction meanwhile.
#[test]
fn a_peer_that_never_reads_holds_up_nobody_else() {
    require!(only_root(), "only root can become others");
    attack("never-reads");
}

#[test]
fn a_peer_that_sends_all_the_time_makes_nothing_lost_or_doubled() {
    require!(only_root(), "only root can become others");
    attack("sends");
}

#[test]
fn urgent_data_makes_nothing_lost_or_doubled() {
    require!(only_root(), "only root can become others");
    attack("urgent");
}

/// A process that has become another user in its transaction may be signalled by that user, as natively.
#[test]
fn signals_without_a_rest_wait_for_the_end() {
    require!(only_root(), "only root can become others");
    attack("signals");
}

#[test]
fn odd_descriptors_are_closed_by_an_abort_and_come_again() {
    require!(only_root(), "only root can become others");
    attack("descriptors");
}

/// A socket's name comes with its owner and its mode, or the transaction has lost: nobody else connects at any instant, and
/// nothing is made where a link leads.
#[test]
fn a_name_that_another_wants_is_root_s_or_the_transaction_has_lost() {
    require!(only_root(), "only root can become others");
    attack("names");
}

/// Nor does what it makes then belong to anybody else.
#[test]
fn who_has_become_a_user_is_not_open_to_that_user() {
    require!(only_root(), "only root can become others");
    attack("memory");
}
