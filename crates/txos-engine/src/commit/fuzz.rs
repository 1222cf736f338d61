//! For fuzzing: a plan that is sound, and hostile in everything else, published and undone in a
//! scratch place. Whatever it says, nothing beside its tree and its store changes.

use super::publish::{self, Extent};
use super::roots::Roots;
use crate::changeset::AttrChange;
use crate::fuzzing::{Input, in_scratch, some_id};
use crate::path::{LayerPath, StorePath};
use crate::plan::{Does, Exchanged, Op, Plan, Rebuilt, Staged, Write};
use crate::store::LayerMeta;
use crate::version::{Stamp, Version};

const NAMES: [&str; 16] = [
    "a",
    "b",
    "d",
    "d/a",
    "d/e",
    "d/e/f",
    "out",
    "out/secret",
    "up",
    "up/beside/secret",
    "new",
    "d/new",
    "loop",
    "loop/x",
    "",
    "fifo",
];
const SLOTS: [&str; 8] = [
    "upper/a",
    "upper/d",
    "upper/link",
    "old/1",
    "old/2",
    "upper/d/in",
    "upper/dirlink/x",
    "upper/gone",
];
fn pick<'n>(names: &[&'n str], n: u8) -> &'n str {
    names.get(usize::from(n) % names.len()).copied().unwrap_or_default()
}

fn version(path: &std::path::Path) -> Option<Version> {
    let bytes = path.as_os_str().as_encoded_bytes();
    crate::version::stat_at(rustix::fs::CWD, bytes, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).ok()
}

/// What must not change, as text.
fn beside(dir: &std::path::Path) -> Vec<String> {
    let mut all = Vec::new();
    for name in ["", "secret", "inner", "inner/secret"] {
        let path = dir.join("beside").join(name);
        let v = version(&path);
        all.push(format!("{:?}", v.map(|v| (v.id, v.mode, v.uid, v.nlink, v.mtime))));
        all.push(format!("{:?}", std::fs::read(&path).ok()));
    }
    all
}

fn prepare(dir: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::symlink;
    let store = dir.join("store/tx").join(some_id().as_str()).join("l0");
    for made in ["tree/d/e", "beside/inner"] {
        std::fs::create_dir_all(dir.join(made))?;
    }
    for made in ["upper/d", "old", "work"] {
        std::fs::create_dir_all(store.join(made))?;
    }
    for file in
        ["tree/a", "tree/b", "tree/d/a", "tree/d/e/f", "beside/secret", "beside/inner/secret"]
    {
        std::fs::write(dir.join(file), file)?;
    }
    for file in ["upper/a", "upper/d/in", "old/1"] {
        std::fs::write(store.join(file), file)?;
    }
    symlink("../beside", dir.join("tree/out"))?;
    symlink("..", dir.join("tree/up"))?;
    symlink("loop", dir.join("tree/loop"))?;
    symlink(dir.join("beside/secret"), store.join("upper/link"))?;
    symlink(dir.join("beside"), store.join("upper/dirlink"))?;
    rustix::fs::chmod(dir.join("store"), rustix::fs::Mode::RWXU)?;
    Ok(())
}

/// A version: of something that is there, for the most part.
fn some_version(
    input: &mut Input<'_>,
    tree: &std::path::Path,
    layer: &std::path::Path,
) -> Option<Version> {
    let mut found = match input.byte() % 4 {
        0 => return None,
        1 => version(&tree.join(pick(&NAMES, input.byte()))),
        2 => version(&layer.join(pick(&SLOTS, input.byte()))),
        _ => version(&tree.join("../beside/secret")),
    }?;
    match input.byte() {
        0..8 => found.mode ^= u32::from(input.byte()) << 8,
        8..16 => found.nlink = u32::from(input.byte()),
        16..24 => found.ctime = Stamp { sec: i64::from(input.byte()), nsec: 0 },
        24..32 => found.id.ino ^= 1,
        _ => {}
    }
    Some(found)
}

fn some_plan(input: &mut Input<'_>, dir: &std::path::Path) -> Plan {
    let (tree, store) = (dir.join("tree"), dir.join("store"));
    let layer = store.join("tx").join(some_id().as_str()).join("l0");
    let place = format!("tx/{}/l0/", some_id());
    let mut plan = Plan {
        id: some_id(),
        boot: String::new(),
        made: Stamp { sec: 0, nsec: 0 },
        durable: false,
        layers: vec![LayerMeta { target: tree.clone(), root: None, store: store.clone() }],
        ops: Vec::new(),
    };
    while !input.is_empty() && plan.ops.len() < 6 {
        let kind = input.byte();
        let name = |i: &mut Input<'_>| pick(&NAMES, i.byte()).as_bytes().to_vec();
        let target = name(input);
        let (before, after) = match input.byte() % 4 {
            0 => (name(input), name(input)),
            _ => (target.clone(), target.clone()),
        };
        let slot = |i: &mut Input<'_>| {
            StorePath::from(format!("{place}{}", pick(&SLOTS, i.byte())).into_bytes())
        };
        let attrs = (!input.byte().is_multiple_of(4)).then(|| {
            Box::new(AttrChange {
                mode: Some((u32::from(input.byte()), u32::from(input.byte()) << 4)),
                owner: None,
                mtime: Some((
                    Stamp { sec: 1, nsec: 0 },
                    Stamp { sec: i64::from(input.byte()), nsec: 5 },
                )),
                xattrs: Vec::new(),
            })
        });
        let strip = match input.byte() % 6 {
            0 => vec![crate::changeset::Strip {
                below: pick(&["", "in", "x", "a/b"], input.byte()).into(),
                name: b"user.fuzz".to_vec(),
                value: b"1".to_vec(),
            }],
            _ => Vec::new(),
        };
        let (slot_of, undo_copy) = (slot(input), slot(input));
        let other = (!input.byte().is_multiple_of(3)).then(|| LayerPath::from(name(input)));
        let staged = || Staged { slot: slot_of.clone(), strip: strip.clone(), dirs: Vec::new() };
        let write = || Write {
            slot: slot_of.clone(),
            undo_copy: undo_copy.clone(),
            attrs: attrs.clone(),
            held: None,
        };
        let change = || attrs.clone().unwrap_or_default();
        let slot = || slot_of.clone();
        let does = match kind % 11 {
            0 => Does::Install(staged()),
            1 => Does::Exchange { staged: staged(), outsiders: Exchanged::default(), other },
            2 => Does::Remove { slot: slot(), other },
            3 => Does::MoveOut { slot: slot() },
            4 => Does::MoveIn { slot: slot(), from: other },
            5 => Does::Link { slot: slot(), other: other.unwrap_or_default() },
            6 => Does::Data(write()),
            7 => Does::Patch { write: write(), pages: Vec::new() },
            8 => Does::Attrs { change: change(), held: None, retained: None },
            9 => Does::Rebuild(Rebuilt {
                slot: slot(),
                times: strip.iter().map(|s| (s.below.clone(), Stamp { sec: 7, nsec: 8 })).collect(),
                ..Rebuilt::default()
            }),
            _ => Does::DirTime { change: change() },
        };
        let op = Op {
            layer: u16::from(input.byte() == 255),
            target: target.into(),
            before: before.into(),
            after: after.into(),
            base: some_version(input, &tree, &layer),
            new: some_version(input, &tree, &layer),
            shown: input.byte() & 1 == 0,
            below: 0,
            own_version: None,
            does,
        };
        plan.ops.push(op);
    }
    plan
}

/// Publishes or undoes a hostile plan.
pub(crate) fn plan(input: &mut Input<'_>) {
    in_scratch("plan", |dir| {
        if prepare(dir).is_err() {
            return;
        }
        let context = input.byte();
        let plan = some_plan(input, dir);
        if !plan.is_sound() {
            return;
        }
        let before = beside(dir);
        if let Ok(roots) = Roots::open(&plan) {
            let _ = publish::anything_done(&plan, &roots);
            if context & 1 == 0 {
                let opened = publish::Opened::default();
                let reached = publish::Reached::default();
                let done = publish::publish(
                    &plan,
                    &roots,
                    &opened,
                    context & 2 == 0,
                    &reached,
                    &super::Silent,
                );
                if done.is_err() {
                    let _ = publish::undo(&plan, &roots, reached.extent());
                }
            }
            if context & 4 == 0 {
                let _ = publish::undo(&plan, &roots, Extent::Unknown);
            }
        }
        assert_eq!(beside(dir), before, "something beside the tree has changed: {plan:?}");
    });
}
