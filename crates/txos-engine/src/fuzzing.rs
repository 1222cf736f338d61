//! Entry points for fuzzing: whatever bytes they are given, they return. What is read back is written
//! the same; what acts on what was read leaves everything else alone.
//!
//! `fuzz/` (libFuzzer) and the test kit's `parse` call them; nothing else does. Not part of the
//! interface: the feature `fuzzing` is for tests.

// A target says what it found by panicking.
#![allow(clippy::missing_panics_doc)]

use std::path::{Path, PathBuf};

use crate::changeset::patch::Patch;
use crate::id::TxId;
use crate::journal;
use crate::plan::{Does, Op, Plan, Staged, Write};
use crate::readset::ReadSet;
use crate::store::{LayerMeta, Meta};
use crate::version::Stamp;

/// Something to give bytes to.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// Returns, whatever it is given.
    pub run: fn(&[u8]),
    /// Where to begin: inputs that are valid.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target of the engine.
pub const TARGETS: &[Target] = &[
    Target { name: "journal", run: run_journal, seeds: journal_seeds },
    Target { name: "plan", run: run_plan, seeds: plan_seeds },
    Target {
        name: "publish",
        run: |b| crate::commit::fuzz::plan(&mut Input(b)),
        seeds: byte_seeds,
    },
    Target {
        name: "light",
        run: |b| crate::commit::light_fuzz::record(&mut Input(b)),
        seeds: || vec![with_mode(0, &crate::commit::light_fuzz::seed())],
    },
    Target {
        name: "redo",
        run: |b| crate::commit::light_fuzz::redo(&mut Input(b)),
        seeds: byte_seeds,
    },
    Target { name: "reads", run: run_reads, seeds: reads_seeds },
    Target { name: "meta", run: run_meta, seeds: meta_seeds },
    Target { name: "patch", run: run_patch, seeds: patch_seeds },
    Target {
        name: "realm",
        run: |b| crate::realm::fuzz::scribbled(&mut Input(b)),
        seeds: byte_seeds,
    },
    Target { name: "segment", run: crate::realm::fuzz::header, seeds: || vec![vec![0; 128]] },
    Target { name: "proc", run: run_proc, seeds: proc_seeds },
    Target { name: "text", run: run_text, seeds: text_seeds },
];

/// Bytes, taken from the front; zeros when there are no more.
#[derive(Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next one.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Eight at once.
    pub fn long(&mut self) -> u64 {
        (0..8).fold(0, |n, _| n << 8 | u64::from(self.byte()))
    }

    /// Whether there are no more.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// A directory for a target in this process, in memory if there is such a place.
///
/// # Errors
/// If it can't be made.
pub fn scratch(name: &str) -> std::io::Result<PathBuf> {
    let memory = Path::new("/dev/shm");
    let top = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let dir = top.join(format!("{}{name}", scratch_prefix()));
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .recursive(true)
        .create(&dir)?;
    dir.canonicalize()
}

fn scratch_prefix() -> String {
    let thread = format!("{:?}", std::thread::current().id());
    let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
    format!("txos-fuzz-{}-{thread}-", std::process::id())
}

/// Removes what this thread has made in [`scratch`].
pub fn clean_up() {
    let ours = scratch_prefix();
    for top in [PathBuf::from("/dev/shm"), std::env::temp_dir()] {
        for entry in std::fs::read_dir(top).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&ours) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Runs something in an empty directory.
pub(crate) fn in_scratch(name: &str, f: impl FnOnce(&Path)) {
    let Ok(dir) = scratch(name) else { return };
    f(&dir);
    let _ = std::fs::remove_dir_all(&dir);
}

pub(crate) fn some_id() -> TxId {
    TxId::from_bits(0x1234_5678_9abc)
}

fn with_mode(mode: u8, rest: &[u8]) -> Vec<u8> {
    [&[mode][..], rest].concat()
}

/// For targets that take decisions byte by byte, the lengths matter more than the values.
fn byte_seeds() -> Vec<Vec<u8>> {
    let row = |step: u16| (0..200u16).map(|n| (n.wrapping_mul(step) >> 3) as u8).collect();
    [1, 7, 61, 1009, 33331].into_iter().map(row).collect()
}

/// As the files of a store are sealed: magic, format, checksum.
fn sealed(magic: &[u8], format: u32, body: &[u8]) -> Vec<u8> {
    let crc = crc32fast::hash(body).to_le_bytes();
    [magic, &format.to_le_bytes(), &crc, body].concat()
}

/// Bytes behind a mode: sealed, or as they are.
fn sealed_or_not(bytes: &[u8], magic: &[u8], format: u32) -> Vec<u8> {
    let mut input = Input(bytes);
    match input.byte() & 1 {
        0 => sealed(magic, format, input.rest()),
        _ => input.rest().to_vec(),
    }
}

/// A plan that recovery acts on leads nowhere but to its layers and stores.
fn expect_inside(plan: &Plan) {
    assert!(plan.is_sound());
    for op in &plan.ops {
        let store = plan.layers.get(usize::from(op.layer)).map(|l| l.store.clone());
        let slot = crate::path::from_bytes(&plan.slot_path(op));
        assert!(store.is_some_and(|store| slot.starts_with(store)), "{op:?}");
        let undo_copy = op.write().map_or(&[][..], |write| &write.undo_copy);
        for path in [&op.target, &op.before, &op.after, op.slot(), undo_copy] {
            assert!(!path.split(|b| *b == b'/').any(|part| part == b".."), "{op:?}");
        }
        let _ = (plan.target_path(op), plan.before_path(op), plan.after_path(op));
        let _ = (plan.stable_of(op.layer, &op.target), plan.shown());
    }
}

fn run_journal(bytes: &[u8]) {
    let mut input = Input(bytes);
    let bytes = match input.byte() & 1 {
        0 => {
            let mut frames = Vec::new();
            while !input.is_empty() && frames.len() < 12 {
                let kind = u32::from(input.byte());
                let len = usize::from(input.byte()) << 8 | usize::from(input.byte());
                let (payload, rest) = input.0.split_at(len.min(input.0.len()));
                input.0 = rest;
                frames.push((kind, payload));
            }
            journal::sealed(&frames)
        }
        _ => input.rest().to_vec(),
    };
    if let Ok(Some(found)) = journal::found_in(&bytes)
        && found.progress != journal::Progress::Planning
    {
        expect_inside(&found.plan);
    }
}

fn journal_seeds() -> Vec<Vec<u8>> {
    let frames = journal::frames_of(&some_plan());
    let all = (1..=frames.len()).map(|n| {
        frames.iter().take(n).fold(vec![0], |mut out, (kind, payload)| {
            out.push(*kind as u8);
            out.extend_from_slice(&(payload.len() as u16).to_be_bytes());
            out.extend_from_slice(payload);
            out
        })
    });
    let plain: Vec<(u32, &[u8])> = frames.iter().map(|(k, p)| (*k, &p[..])).collect();
    all.chain([with_mode(1, &journal::sealed(&plain))]).collect()
}

fn some_plan() -> Plan {
    let version = crate::version::Version {
        id: crate::object::FileId { dev: 1, ino: 2 },
        mode: 0o100_644,
        uid: 0,
        gid: 0,
        nlink: 1,
        size: 3,
        mtime: Stamp { sec: 1, nsec: 2 },
        ctime: Stamp { sec: 1, nsec: 3 },
        rdev: 0,
    };
    let op = |does, target: &str| Op {
        layer: 0,
        target: target.as_bytes().into(),
        before: target.as_bytes().into(),
        after: target.as_bytes().into(),
        base: Some(version),
        new: Some(version),
        shown: true,
        below: 1,
        own_version: None,
        does,
    };
    let slot = || b"tx/0/l0/upper/x".to_vec().into();
    let strip =
        crate::changeset::Strip { below: b"a/b".to_vec(), name: b"n".to_vec(), value: Vec::new() };
    let change =
        Box::new(crate::changeset::AttrChange { mode: Some((0o644, 0o600)), ..Default::default() });
    let does = [
        Does::Exchange {
            staged: Staged { slot: slot(), strip: vec![strip], dirs: Vec::new() },
            outsiders: crate::plan::Exchanged::default(),
            other: None,
        },
        Does::Remove { slot: slot(), other: Some(b"from".to_vec().into()) },
        Does::Data(Write {
            slot: slot(),
            undo_copy: b"tx/0/l0/old/1".to_vec().into(),
            attrs: Some(change.clone()),
            held: None,
        }),
        Does::Attrs { change, held: None, retained: None },
    ];
    let targets = ["a", "d/b", "c", ""];
    Plan {
        id: some_id(),
        boot: "boot".into(),
        made: Stamp { sec: 1, nsec: 1 },
        durable: true,
        layers: vec![LayerMeta { target: "/t".into(), root: Some(version.id), store: "/s".into() }],
        ops: does.into_iter().zip(targets).map(|(does, target)| op(does, target)).collect(),
    }
}

fn run_plan(bytes: &[u8]) {
    let bytes = sealed_or_not(bytes, b"TXOSPLAN", crate::plan::FILE_VERSION);
    if let Ok(plan) = crate::plan::parse(&bytes, some_id(), Path::new("plan")) {
        expect_inside(&plan);
        let body = plan.to_bytes().unwrap_or_default();
        let version = crate::plan::FILE_VERSION;
        let again =
            crate::plan::parse(&sealed(b"TXOSPLAN", version, &body), some_id(), Path::new("plan"));
        assert_eq!(again.ok(), Some(plan));
    }
}

fn plan_seeds() -> Vec<Vec<u8>> {
    vec![with_mode(0, &some_plan().to_bytes().unwrap_or_default())]
}

fn run_reads(bytes: &[u8]) {
    let bytes = sealed_or_not(bytes, b"TXOSREAD", crate::readset::FILE_VERSION);
    if let Ok(reads) = ReadSet::from_bytes(&bytes, Path::new("reads")) {
        let mut n = 0;
        for (path, _) in reads.iter() {
            let _ = reads.get(&path);
            n += 1;
        }
        assert_eq!((n, n == 0), (reads.len(), reads.is_empty()));
        let again =
            reads.to_bytes().ok().and_then(|b| ReadSet::from_bytes(&b, Path::new("reads")).ok());
        assert_eq!(again.map(|r| r.len()), Some(n));
    }
}

fn reads_seeds() -> Vec<Vec<u8>> {
    let mut reads = ReadSet::new(crate::readset::Coverage::default());
    for path in ["/etc/passwd", "/etc/nothing", "/tmp"] {
        reads.note(
            path.as_bytes(),
            true,
            crate::object::Facets::ENTRY | crate::object::Facets::ATTRS,
        );
    }
    let bytes = reads.to_bytes().unwrap_or_default();
    vec![with_mode(0, bytes.get(16..).unwrap_or_default())]
}

fn run_meta(bytes: &[u8]) {
    if let Ok(meta) = serde_json::from_slice::<Meta>(bytes) {
        let _ = crate::store::layers(&meta);
        let again = serde_json::to_vec(&meta).unwrap_or_default();
        assert_eq!(serde_json::from_slice::<Meta>(&again).ok(), Some(meta));
    }
}

fn meta_seeds() -> Vec<Vec<u8>> {
    vec![
        br#"{"format":1,"id":"0123abcd","state":"pending","name":"n","command":["a","\"b\\n\""],
        "directory":"/","uid":0,"begun":{"sec":1,"nsec":2},"boot":"b","durable":true,"changes":3,
        "mount_namespace":4,"fence":{"sec":1,"nsec":2},"reverts":"0123abce",
        "layers":[{"target":"/","root":{"dev":1,"ino":2},"store":"\"/\\303\""}]}"#
            .to_vec(),
    ]
}

fn run_patch(bytes: &[u8]) {
    let mut input = Input(bytes);
    let len = u64::from(input.byte());
    let bytes = sealed_or_not(input.rest(), b"TXOSPTCH", 1);
    let magic: Vec<u8> = Patch::new(Vec::new(), None).to_bytes().into_iter().take(12).collect();
    let bytes = [&magic[..], bytes.get(12..).unwrap_or_default()].concat();
    if let Some(patch) = Patch::from_bytes(&bytes) {
        assert_eq!(Patch::from_bytes(&patch.to_bytes()), Some(patch.clone()));
        let _ = patch.len_after(len);
        assert!(patch.pages().windows(2).all(|w| matches!(w, [a, b] if a < b)));
    }
}

fn patch_seeds() -> Vec<Vec<u8>> {
    let patch = Patch::new(vec![(0, b"ab".to_vec()), (4095, b"cd".to_vec())], Some(5000));
    vec![with_mode(9, &with_mode(0, patch.to_bytes().get(16..).unwrap_or_default()))]
}

fn run_proc(bytes: &[u8]) {
    let mut input = Input(bytes);
    match input.byte() & 1 {
        0 => {
            for mount in crate::mounts::parse(input.rest()) {
                let _ = (mount.is_writable(), mount.attributes());
            }
        }
        _ => crate::realm::fuzz::stat(input.rest()),
    }
}

fn proc_seeds() -> Vec<Vec<u8>> {
    vec![
        with_mode(0, b"36 35 98:1 /mnt\\0401 /mnt\\134a rw,nosuid master:1 - ext3 /dev/ro\\040ot rw\n1 0 0:5 / / rw - tmpfs none ro"),
        with_mode(1, b"42 (a) R (b)) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2"),
    ]
}

/// Names that messages show, and lines of the list of stores.
fn run_text(bytes: &[u8]) {
    let text = crate::show::quoted_bytes(bytes);
    assert!(!text.chars().any(char::is_control), "{text:?}");
    assert_eq!(crate::show::unquoted(&text).as_deref(), Some(bytes));
    let lossy = String::from_utf8_lossy(bytes);
    let _ = crate::show::unquoted(&lossy);
    let _ = (lossy.parse::<TxId>(), lossy.parse::<crate::contention::Policy>());
}

fn text_seeds() -> Vec<Vec<u8>> {
    [&b"plain"[..], b"a\nb\xff\x1b[31m\"\\", b"\"\\303\\n\"", b"0123abcd", b"timestamp"]
        .map(<[u8]>::to_vec)
        .into()
}
