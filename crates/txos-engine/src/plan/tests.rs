//! Plans in the course of which every path leads to the same entry, and others that look alike.

use super::*;
use crate::object::FileId;

const FILE: u32 = 0o100_644;
const DIR: u32 = 0o40_755;

fn version(ino: u64, mode: u32, nlink: u32) -> Version {
    let stamp = Stamp { sec: 1, nsec: 1 };
    let id = FileId { dev: 1, ino };
    let (uid, gid, size, rdev) = (0, 0, 0, 0);
    Version { id, mode, uid, gid, nlink, size, mtime: stamp, ctime: stamp, rdev }
}

/// An operation, by a letter, at a path.
pub(crate) fn op(number: u64, what: char, target: &str, mode: u32) -> Op {
    let slot = StorePath::from(format!("tx/abcd2345/l0/old/group-0/{number}").into_bytes());
    let (base, new) =
        (version(2 * number, mode, 1 + (number % 2) as u32), version(2 * number + 1, mode, 1));
    let staged = Staged { slot: slot.clone(), ..Staged::default() };
    let path = LayerPath::from(target.as_bytes().to_vec());
    let (base, new, does) = match what {
        'i' => (None, Some(new), Does::Install(staged)),
        'x' => (
            Some(base),
            Some(new),
            Does::Exchange { staged, outsiders: Exchanged::Fresh, other: None },
        ),
        'r' => (Some(base), None, Does::Remove { slot, other: None }),
        'o' => (Some(base), None, Does::MoveOut { slot }),
        'm' => (None, Some(new), Does::MoveIn { slot, from: None }),
        't' => (Some(base), Some(new), Does::DirTime { change: Box::default() }),
        _ => (
            Some(base),
            Some(new),
            Does::Attrs { change: Box::default(), held: None, retained: None },
        ),
    };
    let (before, after) = (path.clone(), path.clone());
    let (shown, below, own_version) = (true, 0, None);
    Op { layer: 0, target: path, before, after, base, new, shown, below, own_version, does }
}

pub(crate) fn plan(ops: Vec<Op>) -> Plan {
    let (target, store) = (PathBuf::from("/mnt"), PathBuf::from("/mnt/.txos"));
    let layers = vec![LayerMeta { target, root: None, store }];
    let Ok(id) = "abcd2345".parse() else { unreachable!("that is one") };
    Plan { id, boot: String::new(), made: Stamp { sec: 1, nsec: 1 }, durable: false, layers, ops }
}

/// What leaves paths is found by the walk to be where it says. Each of the others has something that the walk alone
/// can tell.
#[test]
fn a_plan_that_leaves_paths_has_its_places() {
    let one = |what, target, mode| op(7, what, target, mode);
    let files = || {
        vec![
            op(1, 'i', "d/a", FILE),
            op(2, 'x', "d/b", FILE),
            op(3, 'i', "c", 0o120_777),
            op(4, 'r', "d/e/f", FILE),
            op(5, 'a', "d/e/g", FILE),
            op(6, 't', "d", DIR),
        ]
    };
    let mut found = plan(files());
    assert!(found.leaves_paths());
    found.walk_to_places();
    assert_eq!(found, plan(files()));
    let elsewhere = Op { after: LayerPath::from(b"h".to_vec()), ..one('a', "g", FILE) };
    for other in [
        one('i', "h", DIR),
        one('x', "h", DIR),
        one('r', "h", DIR),
        one('o', "h", FILE),
        one('m', "h", FILE),
        one('a', "d/b", FILE),
        one('r', "d/a", FILE),
        one('i', "c/below", FILE),
        one('i', "c/far/below", FILE),
        elsewhere,
    ] {
        let what = format!("{other:?}");
        let mut ops = files();
        ops.push(other);
        assert!(!plan(ops).leaves_paths(), "{what}");
    }
}

#[test]
fn operations_are_put_in_the_order_of_their_targets() {
    let targets = ["d/b", "a", "d", "d/a", "a", "c", "d/a/x", "d-"];
    let mut ops: Vec<Op> =
        targets.iter().zip(1..).map(|(target, n)| op(n, 'i', target, FILE)).collect();
    let sorted = by_target(ops.clone());
    ops.sort_by(|a, b| (a.layer, &a.target).cmp(&(b.layer, &b.target)));
    assert_eq!(sorted, ops);
    assert_eq!(by_target(sorted), ops);
}
