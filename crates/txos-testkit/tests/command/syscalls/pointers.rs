//! Bad pointers: a call that is handed one is answered as by the kernel alone, in both front doors, and nobody
//! dies of it.

use txos_testkit::{Done, Invocation, Lab};

use crate::built;
use crate::program::Linked;

/// What the calls work on.
const PREPARE: &str = "umask 022; printf hello >f; ln -s f l; mkdir d; touch d/one d/two
    head -c 20000 /dev/zero | tr '\\0' b >>f; setfattr -n user.note -v kept f";

fn place() -> Lab {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    lab
}

/// Answers of the kernel, and those in a transaction: the same lines.
#[track_caller]
fn expect_same(natively: &Done, ours: &Done, door: &str) {
    let (natively, ours) = (natively.text(), ours.text());
    let differ = natively.lines().zip(ours.lines()).filter(|(native, our)| native != our);
    let differ: Vec<String> = differ.map(|(native, our)| format!("{native} | {our}")).collect();
    assert!(differ.is_empty(), "natively | {door}:\n{}", differ.join("\n"));
    assert_eq!(
        natively.lines().count(),
        ours.lines().count(),
        "{door} ends with {:?}",
        ours.lines().last()
    );
}

#[test]
fn bad_pointers_are_answered_as_by_the_kernel() {
    let (native, run, inside) = (place(), place(), place());
    let program = built("pointers", Linked::Natively);
    let natively = Invocation::new(&program).dir(native.tree()).run().expect(0);
    assert!(natively.text().lines().count() > 1000, "{natively:?}");
    for recorder in ["on", "off"] {
        let lab = if recorder == "on" { &run } else { &place() };
        let done = lab.txos(["run", "--"]).arg(&program).env("TXOS_RECORDER", recorder).run();
        expect_same(&natively, &done.expect(0), &format!("txos run, recorder {recorder}"));
        lab.expect_clean();
    }
    let done = inside.txos(["run", "--in-process", "--"]).arg(&program).run().expect(0);
    expect_same(&natively, &done, "in-process");
    inside.expect_clean();
    for lab in [&run, &inside] {
        assert_eq!(lab.read("f"), native.read("f"));
    }
}
