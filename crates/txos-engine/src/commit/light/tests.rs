use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::log::{MoveRecord, NameRecord, OldFile};
use super::*;
use crate::changeset::AttrChange;
use crate::commit::{self, Silent};
use crate::readset::{Coverage, page_digest};

struct Rig {
    dir: PathBuf,
    home: Home,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

const PAGES: usize = 16;

impl Rig {
    fn new(tag: &str) -> Rig {
        let base = std::env::temp_dir().canonicalize().unwrap();
        let dir = base.join(format!("txos-light-{tag}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("tree")).unwrap();
        for name in ["a", "b"] {
            fs::write(dir.join("tree").join(name), vec![b'.'; PAGES * PAGE as usize]).unwrap();
        }
        let home = Home::open(&dir.join("store")).unwrap();
        Rig { dir, home }
    }

    fn top(&self) -> PathBuf {
        self.dir.join("tree")
    }

    /// Another crash of the machine: nothing tells of this boot any more.
    fn reboot(&mut self) {
        fs::remove_file(self.dir.join("store/light.now")).unwrap();
        self.home = Home::open(&self.dir.join("store")).unwrap();
    }
}

/// The tree, and a directory in the store for private copies.
fn grounds(top: &Path) -> Vec<Ground> {
    let store = top.parent().unwrap().join("store");
    let copies = store.join("tx/aaaaaaaa/l0");
    Vec::from([Ground { root: top.to_owned(), copies: Some((store, copies)) }])
}

fn version(path: &Path) -> Version {
    stat_at(rustix::fs::CWD, path.as_os_str().as_bytes(), AtFlags::SYMLINK_NOFOLLOW).unwrap()
}

fn seen(top: &Path, name: &str, pages: &[u64]) -> ReadSet {
    let mut reads = ReadSet::new(Coverage::default());
    let dir = top.as_os_str().as_bytes();
    let outcome = Outcome::Present(version(&top.join(name)));
    reads.note_seen(dir, version(top).id, name.as_bytes(), outcome, Facets::WRITE);
    let all = fs::read(top.join(name)).unwrap();
    let digest = |n: u64| page_digest(&all[(n * PAGE) as usize..((n + 1) * PAGE) as usize]);
    let pages: Vec<(u64, u64)> = pages.iter().map(|&n| (n, digest(n))).collect();
    reads.note_pages(dir, name.as_bytes(), &pages);
    reads
}

fn patch(top: &Path, name: &str, offset: u64, bytes: &[u8]) -> Delta {
    Delta {
        layer: 0,
        path: name.into(),
        stable_path: name.into(),
        nameless: false,
        what: What::Patch {
            base: version(&top.join(name)),
            writes: vec![(offset, bytes.to_vec())],
            size: None,
            attrs: Default::default(),
        },
    }
}

fn options(durable: bool) -> Options {
    Options { durable, gate: false, ..Options::default() }
}

fn commit_to(
    home: &Home,
    top: &Path,
    name: &str,
    offset: u64,
    bytes: &[u8],
) -> Result<Option<Summary>> {
    let reads = seen(top, name, &[offset / PAGE]);
    let delta = patch(top, name, offset, bytes);
    light(home, &grounds(top), &[delta], &reads, None, &options(true))
}

fn read(top: &Path, name: &str, at: usize, len: usize) -> String {
    let all = fs::read(top.join(name)).unwrap();
    String::from_utf8_lossy(&all[at..at + len]).into_owned()
}

#[test]
fn a_commit_is_in_place_and_in_the_log() {
    let rig = Rig::new("place");
    let done = commit_to(&rig.home, &rig.top(), "a", 5000, b"hello").unwrap().unwrap();
    assert_eq!((done.changes, done.complete), (1, true));
    assert_eq!(read(&rig.top(), "a", 4999, 7), ".hello.");
    assert!(holds(&rig.home, done.id));
    assert!(rig.home.ids().unwrap().is_empty(), "light commits are in no history");
    checkpoint(&rig.home).unwrap();
    commit_to(&rig.home, &rig.top(), "a", 5000, b"again").unwrap().unwrap();
    assert_eq!(read(&rig.top(), "a", 4999, 7), ".again.");
}

#[test]
fn what_is_no_light_commit_is_left_to_the_full_one() {
    let rig = Rig::new("eligible");
    let top = rig.top();
    let reads = ReadSet::default();
    let with = |delta: Delta| {
        light(&rig.home, &grounds(&top), &[delta], &reads, None, &options(true)).unwrap()
    };
    let end = (PAGES as u64) * PAGE;
    assert!(with(patch(&top, "a", end - 1, b"xx")).is_none(), "it grows");
    assert!(with(patch(&top, "a", 0, &[0; BYTES_MAX + 1])).is_none(), "it is large");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(top.join("b"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(with(patch(&top, "b", 0, b"x")).is_none(), "writing takes capabilities away");
    assert_eq!(read(&top, "a", 0, 3), "...");
}

/// A private copy, and what puts it under a name.
fn put(top: &Path, number: u32, name: &str, content: &str) -> Delta {
    let ground = grounds(top).remove(0).copies.unwrap().1;
    fs::create_dir_all(ground.join("new")).unwrap();
    fs::create_dir_all(ground.join("old")).unwrap();
    let staged = format!("new/{number}");
    fs::write(ground.join(&staged), content).unwrap();
    let path = top.join(name);
    let base = path.exists().then(|| version(&path));
    let what = What::Put { staged: staged.into(), base };
    Delta { layer: 0, path: name.into(), stable_path: name.into(), nameless: false, what }
}

fn remove(top: &Path, name: &str) -> Delta {
    let what = What::Remove { base: version(&top.join(name)) };
    Delta { layer: 0, path: name.into(), stable_path: name.into(), nameless: false, what }
}

fn commit_names(home: &Home, top: &Path, deltas: &[Delta], durable: bool) -> Result<Summary> {
    let reads = ReadSet::new(Coverage::default());
    let done = light(home, &grounds(top), deltas, &reads, None, &options(durable))?;
    Ok(done.expect("a light commit"))
}

/// What is in the tree, but for `a` and `b`.
fn tree(top: &Path) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = fs::read_dir(top)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "a" && name != "b" && !top.join(name).is_dir())
        .map(|name| (name.clone(), fs::read_to_string(top.join(name)).unwrap()))
        .collect();
    all.sort();
    all
}

fn files(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, content)| ((*name).into(), (*content).into())).collect()
}

#[test]
fn names_are_put_replaced_and_removed() {
    let rig = Rig::new("names");
    let top = rig.top();
    fs::write(top.join("old"), "old").unwrap();
    fs::write(top.join("gone"), "gone").unwrap();
    let inode = version(&top.join("old")).id;
    let deltas =
        [put(&top, 1, "new", "first"), put(&top, 2, "old", "second"), remove(&top, "gone")];
    let done = commit_names(&rig.home, &top, &deltas, true).unwrap();
    assert_eq!(done.changes, 3);
    assert!(holds(&rig.home, done.id));
    assert_eq!(tree(&top), files(&[("new", "first"), ("old", "second")]));
    assert_ne!(version(&top.join("old")).id, inode, "another file has the name");
    let copies = grounds(&top).remove(0).copies.unwrap().1;
    for dir in ["new", "old"] {
        assert_eq!(fs::read_dir(copies.join(dir)).unwrap().count(), 0, "{dir}");
    }
    // And again, by the same slot.
    commit_names(&rig.home, &top, &[remove(&top, "new"), remove(&top, "old")], false).unwrap();
    assert_eq!(tree(&top), files(&[]));
}

#[test]
fn what_the_log_cannot_say_of_a_file_is_for_the_full_commit() {
    let rig = Rig::new("names-not");
    let top = rig.top();
    let reads = ReadSet::default();
    let with = |delta: &Delta, options: &Options| {
        let deltas = std::slice::from_ref(delta);
        light(&rig.home, &grounds(&top), deltas, &reads, None, options).unwrap().is_some()
    };
    let copies = grounds(&top).remove(0).copies.unwrap().1;
    let (plain, gated) = (options(true), Options { gate: true, ..options(true) });
    let delta = put(&top, 1, "x", "x");
    assert!(!with(&delta, &gated));
    fs::hard_link(copies.join("new/1"), copies.join("new/other")).unwrap();
    assert!(!with(&delta, &plain), "it has two names");
    let delta = put(&top, 2, "x", &"x".repeat(BYTES_MAX + 1));
    assert!(!with(&delta, &plain), "it is large");
    let delta = put(&top, 3, "x", "x");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(copies.join("new/3"), fs::Permissions::from_mode(0o4755)).unwrap();
    assert!(!with(&delta, &plain), "it has a set-ID bit");
    let delta = put(&top, 4, "x", "x");
    rustix::fs::setxattr(copies.join("new/4"), "user.x", b"1", rustix::fs::XattrFlags::empty())
        .unwrap();
    assert!(!with(&delta, &plain), "it has an attribute");
    fs::hard_link(top.join("a"), top.join("c")).unwrap();
    assert!(!with(&remove(&top, "a"), &plain), "it has two names");
    assert!(!with(&put(&top, 5, "c", "x"), &plain), "it replaces one of two names");
    std::os::unix::fs::symlink("a", top.join("s")).unwrap();
    assert!(!with(&remove(&top, "s"), &plain), "it is a link");
    let (names, bytes) = (put(&top, 6, "x", "x"), patch(&top, "b", 0, b"x"));
    let mixed = light(&rig.home, &grounds(&top), &[names, bytes], &reads, None, &plain);
    assert!(mixed.unwrap().is_none(), "names and bytes, durable");
    assert!(with(&put(&top, 7, "x", "x"), &plain));
}

/// Somebody else is faster: nothing of the commit is there, also what was published before it was seen.
#[test]
fn names_that_somebody_else_has_changed_are_a_conflict() {
    let rig = Rig::new("names-conflict");
    let top = rig.top();
    fs::write(top.join("old"), "old").unwrap();
    let before = files(&[("old", "old"), ("taken", "theirs")]);
    let deltas = [put(&top, 1, "first", "1"), remove(&top, "old"), put(&top, 2, "taken", "2")];
    fs::write(top.join("taken"), "theirs").unwrap();
    let lost = commit_names(&rig.home, &top, &deltas, true);
    assert!(matches!(lost, Err(Error::Conflict(_))), "{lost:?}");
    assert_eq!(tree(&top), before);
    // Changed since it was looked at.
    let deltas = [put(&top, 3, "first", "1"), put(&top, 4, "taken", "2")];
    fs::write(top.join("taken"), "theirs again").unwrap();
    let lost = commit_names(&rig.home, &top, &deltas, true);
    assert!(matches!(lost, Err(Error::Conflict(_))), "{lost:?}");
    assert_eq!(tree(&top), files(&[("old", "old"), ("taken", "theirs again")]));
    // The directory is another one.
    let deltas = [put(&top, 5, "first", "1")];
    fs::rename(&top, rig.dir.join("moved")).unwrap();
    let lost = commit_names(&rig.home, &top, &deltas, true);
    assert!(matches!(lost, Err(Error::Conflict(_))), "{lost:?}");
    // What was called off is not redone.
    fs::rename(rig.dir.join("moved"), &top).unwrap();
    let mut rig = rig;
    rig.reboot();
    commit::recover(&rig.home, &Silent).unwrap();
    assert_eq!(tree(&top), files(&[("old", "old"), ("taken", "theirs again")]));
}

/// Every subset of what a power cut may have left of three names and of their marks: recovery puts all of them
/// there, and takes what somebody else has changed since for his.
#[test]
fn names_are_redone_after_a_power_cut() {
    for lost in 0..32u32 {
        let mut rig = Rig::new(&format!("names-cut-{lost}"));
        let top = rig.top();
        fs::write(top.join("old"), "old").unwrap();
        fs::write(top.join("gone"), "gone").unwrap();
        fs::write(rig.dir.join("gone"), "gone").unwrap();
        let old = fs::File::open(top.join("old")).unwrap();
        let gone = fs::File::open(top.join("gone")).unwrap();
        let aside = rig.dir.join("aside");
        fs::hard_link(top.join("old"), &aside).unwrap();
        fs::remove_file(&aside).unwrap();
        let deltas =
            [put(&top, 1, "new", "first"), put(&top, 2, "old", "second"), remove(&top, "gone")];
        // The inodes are kept to be put back under their names.
        let link = |file: &fs::File, name: &str| {
            use std::os::fd::AsRawFd;
            let own = format!("/proc/self/fd/{}", file.as_raw_fd());
            let flags = AtFlags::SYMLINK_FOLLOW;
            let linked =
                rustix::fs::linkat(rustix::fs::CWD, own, rustix::fs::CWD, top.join(name), flags);
            linked.is_ok()
        };
        commit_names(&rig.home, &top, &deltas, true).unwrap();
        let is_lost = |bit: u32| lost & 1 << bit != 0;
        let mode = version(&top.join("new")).mode;
        if is_lost(0) {
            fs::remove_file(top.join("new")).unwrap();
        }
        if is_lost(1) {
            // It came to the disk without its bytes.
            let mtime = version(&top.join("old")).mtime;
            let file = fs::File::create(top.join("old")).unwrap();
            sys::set_own_mtime(file.as_fd(), mtime).unwrap();
        }
        // A file without a name can't be given one again; another one is somebody else's.
        let theirs = is_lost(2) && !link(&gone, "gone");
        if theirs {
            fs::write(top.join("gone"), "gone").unwrap();
        }
        if is_lost(3) {
            fs::remove_dir_all(rig.dir.join("store/light.marks")).unwrap();
        }
        if is_lost(4) {
            let mut reads = ReadSet::new(Coverage::default());
            let outcome = Outcome::Present(version(&top.join("old")));
            let (dir, id) = (top.as_os_str().as_bytes(), version(&top).id);
            reads.note_seen(dir, id, b"old", outcome, Facets::WRITE);
            let delta = patch(&top, "old", 0, b"SECOND");
            // Not of a file whose bytes are lost already.
            let done = light(&rig.home, &grounds(&top), &[delta], &reads, None, &options(true));
            assert_eq!(done.unwrap().is_some(), !is_lost(1));
        }
        drop(old);
        rig.reboot();
        let recovered = commit::recover(&rig.home, &Silent).unwrap();
        let now = tree(&top);
        let content = |name: &str| now.iter().find(|(n, _)| n == name).map(|(_, c)| c.as_str());
        // With the mark on the disk, it was there, and somebody has removed it since.
        let kept = !is_lost(0) || is_lost(3);
        assert_eq!(content("new"), kept.then_some("first"), "{lost}: {recovered:?}");
        if kept {
            assert_eq!(version(&top.join("new")).mode, mode, "{lost}");
        }
        let second = if is_lost(4) && !is_lost(1) { "SECOND" } else { "second" };
        assert_eq!(content("old"), Some(second), "{lost}: {recovered:?}");
        assert_eq!(content("gone").is_some(), theirs, "{lost}: {recovered:?}");
        // Once more, nothing changes.
        rig.reboot();
        commit::recover(&rig.home, &Silent).unwrap();
        assert_eq!(tree(&top), now, "{lost}");
    }
}

/// Of names whose commit was not durable recovery makes nothing again; nor where the store is gone.
#[test]
fn directories_are_flushed_once_and_after_changes_of_others() {
    let mut rig = Rig::new("names-settled");
    let top = rig.top();
    let flushes = |rig: &Rig| {
        let shared = rig.home.attached::<Shared>();
        shared.settled.flushes.load(std::sync::atomic::Ordering::Relaxed)
    };
    let mut number = 0;
    let mut commit = |rig: &Rig, durable: bool| {
        number += 1;
        let delta = put(&top, number, &format!("new-{number}"), "content");
        commit_names(&rig.home, &top, &[delta], durable).unwrap();
        flushes(rig)
    };
    assert_eq!(commit(&rig, true), 1, "nothing is known at first");
    if !version(&top).tells_names(|| crate::mounts::mount_id(&top)) {
        return assert_eq!(commit(&rig, true), 2, "nothing ever is");
    }
    assert_eq!([commit(&rig, true), commit(&rig, true)], [1, 1], "all that changed is in the log");
    fs::write(top.join("outside"), "").unwrap();
    assert_eq!([commit(&rig, true), commit(&rig, true)], [2, 2], "somebody made a file");
    fs::remove_file(top.join("outside")).unwrap();
    assert_eq!([commit(&rig, true), commit(&rig, true)], [3, 3], "and removed it");
    assert_eq!([commit(&rig, false), commit(&rig, true)], [3, 4], "so does one without a flush");
    // In another process nothing is known.
    rig.home = Home::open(rig.home.dir()).unwrap();
    assert_eq!([commit(&rig, true), commit(&rig, true)], [1, 1]);
}

#[test]
fn what_was_not_durable_is_not_redone() {
    for durable in [false, true] {
        let mut rig = Rig::new(&format!("names-light-{durable}"));
        let top = rig.top();
        commit_names(&rig.home, &top, &[put(&top, 1, "new", "first")], durable).unwrap();
        fs::remove_file(top.join("new")).unwrap();
        fs::remove_dir_all(rig.dir.join("store/light.marks")).unwrap();
        rig.reboot();
        commit::recover(&rig.home, &Silent).unwrap();
        let there = if durable { files(&[("new", "first")]) } else { files(&[]) };
        assert_eq!(tree(&top), there);
    }
}

/// What others write into a file in place, after it was put there, is theirs: also where they made it shorter, or
/// wrote zeros.
#[test]
fn what_others_wrote_into_a_new_file_stays() {
    for theirs in [&b"x"[..], b"", b"\0\0\0\0\0\0", b"fi\0st", b"longer than it was"] {
        let mut rig = Rig::new("names-theirs");
        let top = rig.top();
        commit_names(&rig.home, &top, &[put(&top, 1, "new", "first!")], true).unwrap();
        let inode = version(&top.join("new")).id;
        fs::write(top.join("new"), theirs).unwrap();
        assert_eq!(version(&top.join("new")).id, inode);
        for marks in [true, false] {
            if !marks {
                let _ = fs::remove_dir_all(rig.dir.join("store/light.marks"));
            }
            rig.reboot();
            commit::recover(&rig.home, &Silent).unwrap();
            assert_eq!(fs::read(top.join("new")).unwrap(), theirs);
        }
    }
}

/// A process that died while it published, and what its successor finds at the ends of each name.
#[test]
fn a_dead_process_leaves_all_or_nothing() {
    for reached in 0..8u32 {
        for stranger in [false, true] {
            let rig = Rig::new(&format!("names-dead-{reached}-{stranger}"));
            let top = rig.top();
            fs::write(top.join("old"), "old").unwrap();
            fs::write(top.join("gone"), "gone").unwrap();
            let before = tree(&top);
            let deltas =
                [put(&top, 1, "new", "first"), put(&top, 2, "old", "second"), remove(&top, "gone")];
            let deltas: Vec<&Delta> = deltas.iter().collect();
            let targets = names::changes(&grounds(&top), &deltas).unwrap().unwrap().names;
            let records: Vec<NameRecord> = targets.iter().map(|t| t.record.clone()).collect();
            for (bit, target) in targets.into_iter().enumerate() {
                if reached & 1 << bit != 0 {
                    let alone = Changes { names: vec![target], moves: Vec::new() };
                    alone.publish("aaaaaaaa".parse().unwrap()).unwrap();
                }
            }
            let in_the_way = stranger && reached & 1 == 0;
            if in_the_way {
                fs::write(top.join("new"), "theirs").unwrap();
            }
            let finished = names::finish(&records, &[]).unwrap();
            if in_the_way {
                let theirs = files(&[("new", "theirs")]);
                assert_eq!(finished, None);
                names::undo(&records, &[], "aaaaaaaa".parse().unwrap(), &mut Vec::new()).unwrap();
                let all: Vec<_> = before.into_iter().chain(theirs).collect();
                let (mut now, mut all) = (tree(&top), all);
                now.sort();
                all.sort();
                assert_eq!(now, all, "{reached}");
            } else {
                assert_eq!(finished, Some(reached != 7));
                assert_eq!(tree(&top), files(&[("new", "first"), ("old", "second")]), "{reached}");
                // A file that somebody has taken away since is not put there again.
                fs::rename(top.join("new"), top.join("taken")).unwrap();
                assert_eq!(names::finish(&records, &[]).unwrap(), Some(false));
                assert_eq!(tree(&top), files(&[("old", "second"), ("taken", "first")]));
            }
        }
    }
}

/// Somebody adds a line to the old file before whoever comes next finishes what a dead process has begun, or to the new one:
/// it is in the tree, or kept aside.
#[test]
fn what_others_append_after_a_death_is_kept() {
    use std::os::unix::fs::PermissionsExt;

    let id: TxId = "aaaaaaaa".parse().unwrap();
    for reached in 0..2 {
        let rig = Rig::new(&format!("names-appended-{reached}"));
        let top = rig.top();
        fs::write(top.join("one"), "old\n").unwrap();
        fs::write(top.join("two"), "old\n").unwrap();
        fs::write(top.join("gone"), "old\n").unwrap();
        let deltas =
            [put(&top, 1, "one", "first\n"), put(&top, 2, "two", "second\n"), remove(&top, "gone")];
        let new = grounds(&top).remove(0).copies.unwrap().1.join("new/1");
        fs::set_permissions(new, fs::Permissions::from_mode(0o604)).unwrap();
        let deltas: Vec<&Delta> = deltas.iter().collect();
        let mut targets = names::changes(&grounds(&top), &deltas).unwrap().unwrap().names;
        let records: Vec<NameRecord> = targets.iter().map(|t| t.record.clone()).collect();
        if reached == 1 {
            let one = Changes { names: vec![targets.remove(0)], moves: Vec::new() };
            one.publish(id).unwrap();
        }
        let appended = if reached == 0 { &["two"][..] } else { &["one", "two", "gone"] };
        for name in appended {
            let mut file = fs::OpenOptions::new().append(true).open(top.join(name)).unwrap();
            std::io::Write::write_all(&mut file, b"theirs\n").unwrap();
        }
        assert_eq!(names::finish(&records, &[]).unwrap(), None);
        let mut notes = Vec::new();
        names::undo(&records, &[], id, &mut notes).unwrap();
        let content = |name: &str| fs::read_to_string(top.join(name)).unwrap();
        assert_eq!((content("one"), content("two")), ("old\n".into(), "old\ntheirs\n".into()));
        assert_eq!(content("gone"), if reached == 0 { "old\n" } else { "old\ntheirs\n" });
        assert_eq!(notes.len(), reached);
        if reached == 1 {
            let path = rig.dir.join("store/rescued/aaaaaaaa-0-one");
            assert_eq!(fs::read_to_string(&path).unwrap(), "first\ntheirs\n");
            // As the file, and not as who recovers makes one.
            let kept = fs::metadata(path).unwrap();
            assert_eq!(kept.permissions().mode() & 0o7777, 0o604);
        }
    }
}

/// A process dies between a rename and its look at what came out of the tree, or recovery does. Whoever comes next looks: what
/// somebody has written to the old file since the record was made, or is about to write, does not go with it.
#[test]
fn what_others_wrote_to_the_old_file_before_a_death_is_kept() {
    let id: TxId = "aaaaaaaa".parse().unwrap();
    for (name, way) in
        [("old", "wrote"), ("old", "writes"), ("old", "in its place"), ("gone", "wrote")]
    {
        let rig = Rig::new(&format!("names-after-{name}-{way}"));
        let top = rig.top();
        fs::write(top.join("old"), "old\n").unwrap();
        fs::write(top.join("gone"), "old\n").unwrap();
        let deltas = [put(&top, 1, "old", "new\n"), remove(&top, "gone")];
        let deltas: Vec<&Delta> = deltas.iter().collect();
        let targets = names::changes(&grounds(&top), &deltas).unwrap().unwrap().names;
        let records: Vec<NameRecord> = targets.iter().map(|t| t.record.clone()).collect();
        let mut writer = fs::OpenOptions::new().append(true).open(top.join(name)).unwrap();
        // What the process came to.
        for record in &records {
            let (path, aside) = (path::from_bytes(&record.path), path::from_bytes(&record.aside));
            if record.after.is_some() {
                let both = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &aside, rustix::fs::CWD, &path, both)
                    .unwrap();
            } else {
                fs::rename(path, aside).unwrap();
            }
        }
        let write = |writer: &mut fs::File| std::io::Write::write_all(writer, b"theirs\n").unwrap();
        if way != "writes" {
            write(&mut writer);
        }
        if way == "in its place" {
            fs::write(top.join("other"), "other\n").unwrap();
            fs::rename(top.join("other"), top.join(name)).unwrap();
        }
        let writer = if way == "writes" { Some(writer) } else { None };
        assert_eq!(names::finish(&records, &[]).unwrap(), None, "{name} {way}");
        let mut notes = Vec::new();
        names::undo(&records, &[], id, &mut notes).unwrap();
        writer.into_iter().for_each(|mut writer| write(&mut writer));
        let content = |name: &str| fs::read_to_string(top.join(name)).unwrap();
        if way == "in its place" {
            assert_eq!(content(name), "other\n");
            let kept = fs::read_to_string(rig.dir.join("store/rescued/aaaaaaaa-0-old")).unwrap();
            assert_eq!((kept.as_str(), notes.len()), ("old\ntheirs\n", 1));
        } else {
            assert_eq!((content(name).as_str(), notes.len()), ("old\ntheirs\n", 0), "{way}");
        }
    }
}

/// Who has opened the old file to write to it, and has not written yet, is not left with a file that nobody finds.
#[test]
fn a_writer_of_the_old_file_is_a_conflict() {
    let rig = Rig::new("names-writer");
    let top = rig.top();
    fs::write(top.join("old"), "old\n").unwrap();
    let delta = put(&top, 1, "old", "new\n");
    let changes = names::changes(&grounds(&top), &[&delta]).unwrap().unwrap();
    let mut writer = fs::OpenOptions::new().append(true).open(top.join("old")).unwrap();
    let (error, back) = changes.publish("aaaaaaaa".parse().unwrap()).unwrap_err();
    assert!(matches!(error, Error::Conflict(_)) && back.is_ok(), "{error:?}, {back:?}");
    std::io::Write::write_all(&mut writer, b"theirs\n").unwrap();
    assert_eq!(fs::read_to_string(top.join("old")).unwrap(), "old\ntheirs\n");
    // The full commit knows what to do with one that stays.
    assert!(names::changes(&grounds(&top), &[&delta]).unwrap().is_none());
}

/// Moves a file in the tree.
fn moved(top: &Path, from: &str, to: &str) -> Delta {
    let what = What::Move { from: from.into(), source: version(&top.join(from)), base: None };
    Delta { layer: 0, path: to.into(), stable_path: to.into(), nameless: false, what }
}

/// A directory gets a time.
fn dated(top: &Path, name: &str, sec: i64) -> Delta {
    let base = version(&top.join(name));
    let mtime = Some((base.mtime, Stamp { sec, nsec: 5 }));
    let what = What::Attrs { base, change: AttrChange { mtime, ..AttrChange::default() } };
    Delta { layer: 0, path: name.into(), stable_path: name.into(), nameless: false, what }
}

fn set_time(path: &Path, sec: i64) {
    sys::set_own_mtime(fs::File::open(path).unwrap().as_fd(), Stamp { sec, nsec: 5 }).unwrap();
}

fn time(path: &Path) -> i64 {
    version(path).mtime.sec
}

/// Everything that a commit that is not durable may be: a new file, one that is replaced, one that goes, one that is
/// moved, an append, bytes in place, a directory that gets a time, and one that keeps it though a file is replaced.
fn prepare_mixed(top: &Path) {
    for name in ["dir", "keeps"] {
        fs::create_dir(top.join(name)).unwrap();
    }
    fs::write(top.join("keeps/file"), "old").unwrap();
    set_time(&top.join("dir"), 1000);
    set_time(&top.join("keeps"), 3000);
    for (name, content) in [("old", "old"), ("gone", "gone"), ("here", "moved"), ("log", "one\n")] {
        fs::write(top.join(name), content).unwrap();
    }
}

fn commit_mixed(home: &Home, top: &Path) -> Result<Option<Summary>> {
    let reads = seen(top, "a", &[0]);
    let deltas = [
        put(top, 1, "new", "first"),
        patch(top, "log", 4, b"two\n"),
        put(top, 2, "old", "second"),
        moved(top, "here", "there"),
        patch(top, "a", 10, b"in place"),
        remove(top, "gone"),
        dated(top, "dir", 2000),
        put(top, 3, "keeps/file", "third"),
        dated(top, "keeps", 3000),
    ];
    light(home, &grounds(top), &deltas, &reads, None, &options(false))
}

fn mixed(done: bool) -> Vec<(String, String)> {
    match done {
        false => files(&[("gone", "gone"), ("here", "moved"), ("log", "one\n"), ("old", "old")]),
        true => {
            let all = [("log", "one\ntwo\n"), ("new", "first"), ("old", "second")];
            files(&[&all[..], &[("there", "moved")]].concat())
        }
    }
}

/// Whether all of it is there; half of it is a failure.
fn is_mixed(top: &Path, step: &str) -> bool {
    let (now, in_place) = (tree(top), read(top, "a", 10, 8));
    let done = now == mixed(true);
    assert!(done || now == mixed(false), "{step}: {now:?}");
    assert_eq!(in_place, if done { "in place" } else { "........" }, "{step}");
    assert_eq!(time(&top.join("dir")), if done { 2000 } else { 1000 }, "{step}");
    let kept = fs::read_to_string(top.join("keeps/file")).unwrap();
    assert_eq!(kept, if done { "third" } else { "old" }, "{step}");
    // Where it was killed or failed, the renames may be seen in the time.
    assert!(time(&top.join("keeps")) >= 3000, "{step}");
    done
}

#[test]
fn what_is_not_durable_may_be_mixed_append_and_move() {
    let rig = Rig::new("mixed");
    let top = rig.top();
    prepare_mixed(&top);
    let inode = version(&top.join("here")).id;
    let done = commit_mixed(&rig.home, &top).unwrap().unwrap();
    assert!(is_mixed(&top, "committed") && holds(&rig.home, done.id));
    assert_eq!(time(&top.join("keeps")), 3000);
    assert_eq!(version(&top.join("there")).id, inode);
    // A durable one is for the full commit.
    let reads = ReadSet::default();
    let with = |delta: Delta, durable: bool| {
        light(&rig.home, &grounds(&top), &[delta], &reads, None, &options(durable)).unwrap()
    };
    assert!(with(patch(&top, "log", 8, b"x"), true).is_none());
    assert!(with(moved(&top, "there", "here"), true).is_none());
    assert!(with(dated(&top, "dir", 3000), true).is_none());
    // And so is what leaves a hole, makes a file shorter, or moves a file over another one.
    assert!(with(patch(&top, "log", 9, b"x"), false).is_none());
    let mut shorter = patch(&top, "log", 0, b"x");
    if let What::Patch { size, .. } = &mut shorter.what {
        *size = Some(1);
    }
    assert!(with(shorter, false).is_none());
    let mut over = moved(&top, "there", "old");
    if let What::Move { base, .. } = &mut over.what {
        *base = Some(version(&top.join("old")));
    }
    assert!(with(over, false).is_none());
    let both = [moved(&top, "there", "here"), put(&top, 9, "there", "x")];
    let both = light(&rig.home, &grounds(&top), &both, &reads, None, &options(false));
    assert!(both.unwrap().is_none(), "a name that is left and taken");
    assert!(is_mixed(&top, "unchanged"));
    assert!(with(moved(&top, "there", "here"), false).is_some());
    assert!(with(patch(&top, "log", 8, b"x"), false).is_some());
}

/// A time is set as the transaction leaves it, also back; but what somebody else does meanwhile is seen in the directory's time.
#[test]
fn times_of_directories() {
    let rig = Rig::new("times");
    let top = rig.top();
    let dir = top.join("dir");
    fs::create_dir(&dir).unwrap();
    let commit = |deltas: &[Delta]| {
        let reads = ReadSet::new(Coverage::default());
        light(&rig.home, &grounds(&top), deltas, &reads, None, &options(false))
    };
    for sec in [1_000, 3_000, 2_000] {
        let done = commit(&[dated(&top, "dir", sec)]).unwrap().unwrap();
        assert_eq!((time(&dir), holds(&rig.home, done.id)), (sec, true));
    }
    // Another file takes the place of one, and the directory keeps its time.
    fs::write(dir.join("file"), "old").unwrap();
    set_time(&dir, 4_000);
    let kept = || [put(&top, 1, "dir/file", "new"), dated(&top, "dir", 4_000)];
    commit(&kept()).unwrap().unwrap();
    assert_eq!((time(&dir), fs::read_to_string(dir.join("file")).unwrap()), (4_000, "new".into()));
    // Somebody else changes it meanwhile: the later time stays.
    let deltas = kept();
    set_time(&dir, 5_000);
    commit(&deltas).unwrap().unwrap();
    assert_eq!(time(&dir), 5_000);
    for (asked, there) in [(6_000, 6_000), (7_000, 8_000)] {
        let deltas = [dated(&top, "dir", asked)];
        set_time(&dir, there - 500);
        commit(&deltas).unwrap().unwrap();
        assert_eq!(time(&dir), asked.max(there - 500));
    }
    // The directory is another one: nothing is done.
    let deltas = [put(&top, 2, "new", "x"), dated(&top, "dir", 9_000)];
    fs::rename(&dir, top.join("moved")).unwrap();
    assert!(matches!(commit(&deltas), Err(Error::Conflict(_))));
    fs::create_dir(&dir).unwrap();
    set_time(&dir, 100);
    assert!(matches!(commit(&deltas), Err(Error::Conflict(_))));
    assert_eq!(
        (time(&dir), time(&top.join("moved")), top.join("new").exists()),
        (100, 7_500, false)
    );
    // Not of what is no directory.
    fs::remove_dir_all(top.join("moved")).unwrap();
    assert!(commit(&[dated(&top, "a", 1_000)]).unwrap().is_none());
}

/// Commits of other names in a directory are in flight beside each other if all are durable. One that is not, one that gives the
/// directory a time, and one that has listed it wait for the others.
#[test]
fn who_waits_for_whom_in_a_directory() {
    let rig = Rig::new("beside");
    let top = rig.top();
    fs::create_dir(top.join("dir")).unwrap();
    let touched = |deltas: &[Delta], durable: bool, facets: Facets| {
        let mut reads = ReadSet::new(Coverage::default());
        let outcome = Outcome::Present(version(&top.join("dir")));
        reads.note_seen(top.as_os_str().as_bytes(), version(&top).id, b"dir", outcome, facets);
        let options = options(durable);
        let work = Work::of(&grounds(&top), deltas, &reads, &options).unwrap().unwrap();
        touches(&work, &reads, durable).unwrap()
    };
    let name = |n: u32, durable: bool, facets: Facets| {
        touched(&[put(&top, n, &format!("dir/{n}"), "x")], durable, facets)
    };
    let meet = |one: &[Touch], other: &[Touch]| {
        one.iter().any(|touch| other.iter().any(|other| touch.meets(other)))
    };
    // (Who makes a name has looked whether it may.)
    let may = Facets::ATTRS | Facets::ENTRY;
    let durable = name(1, true, may);
    let time = touched(&[dated(&top, "dir", 1_000)], false, may);
    for (other, waits) in [
        (name(2, true, may), false),
        (name(1, true, may), true),
        (name(3, false, may), true),
        (name(4, true, may | Facets::LISTING), true),
        (time.clone(), true),
    ] {
        assert_eq!((meet(&durable, &other), meet(&other, &durable)), (waits, waits), "{other:?}");
    }
    assert!(meet(&time, &name(5, false, may)));
}

/// What others do between the look at a directory and the setting of its time.
#[test]
fn times_that_others_change_at_the_last_moment() {
    let rig = Rig::new("times-last");
    let top = rig.top();
    fs::create_dir(top.join("dir")).unwrap();
    let stamp = |sec| Stamp { sec, nsec: 5 };
    let target = |left: i64, own: bool| {
        let (time, file) = (dated(&top, "dir", left), put(&top, 1, "dir/new", "x"));
        let names = if own { vec![&file] } else { Vec::new() };
        let changes = match own {
            true => names::changes(&grounds(&top), &names).unwrap().unwrap(),
            false => Changes::default(),
        };
        times::targets(&grounds(&top), &[&time], &changes).unwrap().unwrap().remove(0)
    };
    // (Left with, found by the record, what its own renames made of it, at the end, and what then is there.)
    for (own, left, shown, last, then) in [
        (false, 2_000, 1_000, 1_000, 2_000),
        (false, 2_000, 1_000, 1_500, 2_000),
        (false, 2_000, 1_000, 3_000, 3_000),
        (false, 2_000, 1_000, 500, 500),
        // Its own renames, and theirs before and behind them.
        (true, 1_000, 5_000, 5_000, 1_000),
        (true, 1_000, 1_000, 5_000, 5_000),
        (true, 1_000, 5_000, 6_000, 6_000),
    ] {
        set_time(&top.join("dir"), 1_000);
        let target = target(left, own);
        assert_eq!(target.is_own, own);
        let record = target.record().unwrap();
        set_time(&top.join("dir"), last);
        let given = target.publish(&record, stamp(shown)).unwrap();
        assert_eq!((time(&top.join("dir")), given.is_some()), (then, then != last), "{last}");
        // And back, unless somebody has changed it again.
        let Some(given) = given else { continue };
        target.take_back(&record, given).unwrap();
        assert_eq!(time(&top.join("dir")), 1_000);
        set_time(&top.join("dir"), 7_000);
        target.take_back(&record, given).unwrap();
        assert_eq!(time(&top.join("dir")), 7_000);
    }
    // Somebody has given it an older time, and the commit only keeps what is there.
    set_time(&top.join("dir"), 1_000);
    let kept = target(1_000, true);
    set_time(&top.join("dir"), 500);
    let record = kept.record().unwrap();
    assert_eq!((record.before, record.after), (stamp(500), stamp(500)));
    // One directory by two ways.
    let twice = [&dated(&top, "dir", 1_000), &dated(&top, "dir", 2_000)];
    assert!(times::targets(&grounds(&top), &twice, &Changes::default()).unwrap().is_none());
}

/// What a dead process has left of a time, and what others have done meanwhile.
#[test]
fn a_dead_process_leaves_its_time_or_that_of_others() {
    use super::control::{BYTES, NAMES};
    let rig = Rig::new("times-dead");
    let dir = rig.top().join("dir");
    fs::create_dir(&dir).unwrap();
    let stamp = |sec| Stamp { sec, nsec: 5 };
    let record = |before, after| {
        let mut record = Record::new(1, TxId::from_bits(1), false);
        let (path, id) = (dir.as_os_str().as_bytes().to_vec(), version(&dir).id);
        record.times = vec![TimeRecord { path, id, before: stamp(before), after: stamp(after) }];
        record
    };
    let carry_on = |record: &Record, progress| {
        let mut recovered = Recovered::default();
        super::carry_on(0, progress, record, |_| Ok(()), &mut recovered).unwrap()
    };
    // (Before, after, there now, there then.)
    for (before, after, now, then) in [
        (1_000, 2_000, 1_000, 2_000),
        (2_000, 1_000, 2_000, 1_000),
        (1_000, 2_000, 2_000, 2_000),
        (1_000, 2_000, 3_000, 3_000),
        (2_000, 2_000, 3_000, 3_000),
        (2_000, 2_000, 1_000, 1_000),
        (1_000, 3_000, 2_000, 2_000),
    ] {
        for progress in [NAMES, BYTES] {
            set_time(&dir, now);
            assert!(carry_on(&record(before, after), progress));
            assert_eq!(time(&dir), then, "{before} {after} {now}");
        }
    }
    // Taken back, since an append can't be made any more.
    fs::write(rig.top().join("log"), "one\ntheirs").unwrap();
    for (now, then) in [(2_000, 1_000), (1_000, 1_000), (3_000, 3_000)] {
        let mut record = record(1_000, 2_000);
        let path = rig.top().join("log").as_os_str().as_bytes().to_vec();
        let id = version(&rig.top().join("log")).id;
        record.grown =
            vec![GrownRecord { path, id, mtime: None, length: 4, tail: b"two".to_vec() }];
        set_time(&dir, now);
        assert!(!carry_on(&record, BYTES));
        assert_eq!(time(&dir), then, "{now}");
    }
    // Moved away: it keeps its time.
    let record = record(1_000, 2_000);
    set_time(&dir, 1_000);
    fs::rename(&dir, rig.top().join("moved")).unwrap();
    assert!(carry_on(&record, BYTES));
    assert_eq!(time(&rig.top().join("moved")), 1_000);
}

/// Others' changes at the last moment: theirs stay, and nothing of the commit is there.
#[test]
fn what_others_do_to_appended_and_moved_files() {
    let append = |path: &Path, text: &str| {
        use std::io::Write as _;
        let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    let rig = Rig::new("appended");
    let top = rig.top();
    fs::write(top.join("log"), "one\n").unwrap();
    let deltas = [put(&top, 1, "new", "x"), patch(&top, "log", 4, b"ours\n")];
    append(&top.join("log"), "theirs, not ours\n");
    let reads = ReadSet::new(Coverage::default());
    let lost = light(&rig.home, &grounds(&top), &deltas, &reads, None, &options(false));
    assert!(matches!(lost, Err(Error::Conflict(_))), "{lost:?}");
    assert_eq!(tree(&top), files(&[("log", "one\ntheirs, not ours\n")]));
    let rig = Rig::new("moved-over");
    let top = rig.top();
    fs::write(top.join("here"), "ours").unwrap();
    fs::write(top.join("log"), "one\n").unwrap();
    let deltas =
        [put(&top, 1, "new", "x"), moved(&top, "here", "there"), patch(&top, "log", 4, b"two\n")];
    let commit = |theirs: &str| {
        fs::write(top.join(theirs), "theirs").unwrap();
        let reads = ReadSet::new(Coverage::default());
        let lost = light(&rig.home, &grounds(&top), &deltas, &reads, None, &options(false));
        assert!(matches!(lost, Err(Error::Conflict(_))), "{lost:?}");
    };
    commit("there");
    let theirs = files(&[("here", "ours"), ("log", "one\n"), ("there", "theirs")]);
    assert_eq!(tree(&top), theirs);
    // Another file is at the name that is left: it goes back.
    fs::remove_file(top.join("there")).unwrap();
    fs::rename(top.join("here"), rig.dir.join("kept")).unwrap();
    commit("here");
    assert_eq!(tree(&top), files(&[("here", "theirs"), ("log", "one\n")]));
}

/// Killed at every step, or each step fails: all of it is there or nothing, as of the next commit or recovery.
#[test]
fn mixed_commits_killed_and_failed_at_every_step() {
    for how in ["kill", "killafter", "ENOSPC"] {
        let (mut done, mut steps) = (0, 0);
        for step in 1.. {
            let rig = Rig::new(&format!("mixed-{how}-{step}"));
            prepare_mixed(&rig.top());
            let status = child(&rig, "mixed", &format!("{how}@{step}")).status().unwrap();
            let what = format!("{how} {step}");
            if step % 2 == 0 {
                commit_to(&rig.home, &rig.top(), "b", 3 * PAGE, b"next").unwrap().unwrap();
            } else {
                let recovered = commit::recover(&rig.home, &Silent).unwrap();
                assert_eq!(recovered.notes, Vec::<String>::new(), "{what}");
            }
            let is_done = is_mixed(&rig.top(), &what);
            assert!(is_done || !status.success(), "{what}: it said it was done");
            let failed = fs::read_to_string(rig.dir.join("failed")).unwrap_or_default();
            assert!(
                !is_done || !failed.starts_with("false"),
                "{what}: it said it failed: {failed}"
            );
            done += usize::from(is_done);
            assert_eq!(commit::recover(&rig.home, &Silent).unwrap(), Recovered::default());
            assert_eq!(is_mixed(&rig.top(), &what), is_done);
            if status.success() && step > 30 {
                steps = step;
                break;
            }
        }
        assert!(done > 1, "{how}: {done}");
        eprintln!("{how}: {steps} steps, {done} done");
    }
}

/// After another boot what was not durable is not redone, and what others have done to the files since stays.
#[test]
fn appends_and_moves_count_in_this_boot_only() {
    let mut rig = Rig::new("mixed-boot");
    let top = rig.top();
    prepare_mixed(&top);
    commit_mixed(&rig.home, &top).unwrap().unwrap();
    // Somebody shortens the file, and moves the other one back.
    fs::write(top.join("log"), "one\n").unwrap();
    fs::rename(top.join("there"), top.join("here")).unwrap();
    set_time(&top.join("dir"), 1000);
    let (before, in_place) = (tree(&top), fs::read(top.join("a")).unwrap());
    rig.reboot();
    let recovered = commit::recover(&rig.home, &Silent).unwrap();
    assert_eq!(recovered, Recovered::default());
    assert_eq!((tree(&top), fs::read(top.join("a")).unwrap()), (before, in_place));
    assert_eq!(time(&top.join("dir")), 1000);
}

/// What a dead process has left of an append, of bytes and of a move, how far it had come, and what others have done
/// meanwhile: all of it is there, or nothing, and theirs stays.
#[test]
fn a_dead_process_leaves_all_or_nothing_of_appends_and_moves() {
    use super::control::{BYTES, NAMES, TAILS};
    let rig = Rig::new("mixed-dead");
    let top = rig.top();
    let path = |name: &str| top.join(name).as_os_str().as_bytes().to_vec();
    let carry_on = |progress: u64| {
        let mut record = Record::new(1, TxId::from_bits(1), false);
        let id = version(&top.join("log")).id;
        let growth = |length: u64, tail: &[u8]| {
            let (path, tail) = (path("log"), tail.to_vec());
            GrownRecord { path, id, mtime: None, length, tail }
        };
        record.grown = vec![growth(4, b"two\n")];
        let pieces = vec![(0, b"...".to_vec(), b"new".to_vec())];
        let id = version(&top.join("a")).id;
        record.files = vec![FileRecord { path: path("a"), id, mtime: None, pieces }];
        let id = version(&rig.dir.join("moved")).id;
        record.moves = vec![MoveRecord { from: path("here"), to: path("there"), id }];
        let mut recovered = Recovered::default();
        let last = std::cell::Cell::new(progress);
        let note = |progress| {
            last.set(progress);
            Ok(())
        };
        let done = super::carry_on(0, progress, &record, note, &mut recovered).unwrap();
        assert_eq!(recovered.notes.len(), usize::from(!done), "{recovered:?}");
        done
    };
    // (How far it had come, what is in the file that grows, in the one with bytes, and where the moved one is; whether it
    // is finished, and the same then.)
    let cases = [
        (NAMES, "one\n", "...", "here", true, "one\ntwo\n", "there"),
        (NAMES, "one\n", "...", "there", true, "one\ntwo\n", "there"),
        (BYTES, "one\n", "n..", "there", true, "one\ntwo\n", "there"),
        (TAILS, "one\n", "new", "there", true, "one\ntwo\n", "there"),
        (TAILS, "one\ntw", "new", "there", true, "one\ntwo\n", "there"),
        (TAILS, "one\ntwo\n", "new", "there", true, "one\ntwo\n", "there"),
        (TAILS, "one\ntwo\ntheirs", "new", "there", true, "one\ntwo\ntheirs", "there"),
        // Somebody has moved it on since.
        (NAMES, "one\n", "...", "other", true, "one\ntwo\n", "other"),
        // Somebody has appended before the process came to it: also what it was to append itself.
        (NAMES, "one\ntheirs", "...", "here", false, "one\ntheirs", "here"),
        (NAMES, "one\ntwo\n", "...", "there", false, "one\ntwo\n", "here"),
        (BYTES, "one\nit's two\n", "new", "there", false, "one\nit's two\n", "here"),
        (BYTES, "on", "n..", "there", false, "on", "here"),
        // In the same moment: theirs is first, then all of it.
        (TAILS, "one\ntheirs\ntwo\n", "new", "there", false, "one\ntheirs\n", "here"),
        // Something of others is where it was to be moved.
        (NAMES, "one\n", "...", "here taken", false, "one\n", "here"),
        // It was moved, and moved back by somebody who has put theirs there.
        (BYTES, "one\n", "...", "here taken", true, "one\ntwo\n", "here"),
    ];
    for (progress, log, bytes, at, is_done, log_then, at_then) in cases {
        for name in ["here", "there", "other"] {
            let _ = fs::remove_file(top.join(name));
        }
        fs::write(top.join("log"), log).unwrap();
        fs::write(top.join("a"), bytes).unwrap();
        let _ = fs::remove_file(rig.dir.join("moved"));
        fs::write(rig.dir.join("moved"), "moved").unwrap();
        let what = format!("{progress} {log:?} {bytes} {at}");
        let (at, taken) = at.split_once(' ').map_or((at, false), |(at, _)| (at, true));
        fs::hard_link(rig.dir.join("moved"), top.join(at)).unwrap();
        if taken {
            fs::write(top.join("there"), "theirs").unwrap();
        }
        assert_eq!(carry_on(progress), is_done, "{what}");
        assert_eq!(fs::read_to_string(top.join("log")).unwrap(), log_then, "{what}");
        let bytes_then = if is_done { "new" } else { "..." };
        assert_eq!(fs::read_to_string(top.join("a")).unwrap(), bytes_then, "{what}");
        assert_eq!(fs::read_to_string(top.join(at_then)).unwrap(), "moved", "{what}");
        if taken {
            assert_eq!(fs::read_to_string(top.join("there")).unwrap(), "theirs", "{what}");
        }
    }
}

/// What a durable commit has put into a file is on the disk before a commit that is not durable moves the file or appends
/// to it: else recovery would not find it, or take it for somebody else's. And each durable change of a file's bytes gives
/// the file a time that recovery knows.
#[test]
fn durable_content_is_flushed_before_it_is_moved_or_appended_to() {
    let mut rig = Rig::new("mixed-durable");
    let top = rig.top();
    let patch_new = |rig: &Rig, bytes: &[u8]| {
        let reads = ReadSet::new(Coverage::default());
        let delta = patch(&top, "new", 0, bytes);
        light(&rig.home, &grounds(&top), &[delta], &reads, None, &options(true)).unwrap().unwrap();
    };
    commit_names(&rig.home, &top, &[put(&top, 1, "new", "first")], true).unwrap();
    patch_new(&rig, b"FI");
    // The power fails, and the bytes were not written yet.
    let mtime = version(&top.join("new")).mtime;
    let file = fs::File::create(top.join("new")).unwrap();
    sys::set_own_mtime(file.as_fd(), mtime).unwrap();
    drop(file);
    rig.reboot();
    commit::recover(&rig.home, &Silent).unwrap();
    assert_eq!(tree(&top), files(&[("new", "FIrst")]));
    // Everything was flushed: nothing that is durable is in the log.
    let last_durable = |rig: &Rig| {
        let session = Shared::of(&rig.home).session(&rig.home).unwrap();
        session.control.state().unwrap().unwrap().last_durable
    };
    prepare_mixed(&top);
    let flushes = |rig: &Rig| {
        let steps = rig.dir.join("steps");
        let _ = fs::remove_file(&steps);
        let mut child = child(rig, "grow and move", "");
        assert!(child.env("TXOS_FAULT_COUNT", &steps).status().unwrap().success());
        let steps = fs::read_to_string(&steps).unwrap();
        steps.lines().filter(|step| step.ends_with("fdatasync")).count()
    };
    assert_eq!((last_durable(&rig), flushes(&rig)), (0, 0));
    patch_new(&rig, b"fi");
    assert_ne!(last_durable(&rig), 0);
    assert_eq!(flushes(&rig), 2, "the one that grows, and the one that is moved");
    checkpoint(&rig.home).unwrap();
    assert_eq!((last_durable(&rig), flushes(&rig)), (0, 0));
}

#[test]
fn a_change_meanwhile_is_a_conflict() {
    let rig = Rig::new("conflict");
    let top = rig.top();
    let (reads, delta) = (seen(&top, "a", &[1]), patch(&top, "a", PAGE, b"mine"));
    let file = fs::OpenOptions::new().write(true).open(top.join("a")).unwrap();
    file.write_all_at(b"theirs", PAGE + 100).unwrap();
    let roots = grounds(&top);
    let result = light(&rig.home, &roots, &[delta], &reads, None, &options(true));
    assert!(matches!(result, Err(Error::Conflict(_))), "{result:?}");
    assert_eq!(read(&top, "a", PAGE as usize, 4), "....");
    // In another page it is none; unless the whole file was read.
    let delta = patch(&top, "a", PAGE, b"mine");
    let (by_page, mut whole) = (seen(&top, "a", &[1]), seen(&top, "a", &[1]));
    let outcome = Outcome::Present(version(&top.join("a")));
    let (dir, id) = (top.as_os_str().as_bytes(), version(&top).id);
    whole.note_seen(dir, id, b"a", outcome, Facets::DATA);
    file.write_all_at(b"theirs", 5 * PAGE).unwrap();
    let deltas = [delta];
    assert!(light(&rig.home, &roots, &deltas, &whole, None, &options(true)).is_err());
    light(&rig.home, &roots, &deltas, &by_page, None, &options(true)).unwrap().unwrap();
    assert_eq!(read(&top, "a", PAGE as usize, 4), "mine");
}

/// Counters in pages of one file, incremented by threads and processes: none is lost, and flushes
/// are shared.
#[test]
fn threads_share_flushes_and_lose_nothing() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 60;
    let rig = Rig::new("threads");
    let top = rig.top();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (rig, top) = (&rig, &top);
            scope.spawn(move || {
                // Two threads for each page.
                increment(&rig.home, top, (thread / 2) * PAGE, ROUNDS);
            });
        }
    });
    for pair in 0..THREADS / 2 {
        assert_eq!(counter(&top, pair * PAGE), 2 * ROUNDS, "page {pair}");
    }
    let flushes = Shared::of(&rig.home).flushes();
    assert!(flushes < THREADS * ROUNDS * 9 / 10, "{flushes} flushes");
    eprintln!("{} commits, {flushes} flushes", THREADS * ROUNDS);
}

fn counter(top: &Path, at: u64) -> u64 {
    let file = fs::File::open(top.join("a")).unwrap();
    let mut bytes = [0u8; 8];
    file.read_exact_at(&mut bytes, at).unwrap();
    std::str::from_utf8(&bytes).unwrap().trim_matches('.').parse().unwrap_or(0)
}

fn increment(home: &Home, top: &Path, at: u64, rounds: u64) {
    let mut left = rounds;
    while left > 0 {
        let reads = seen(top, "a", &[at / PAGE]);
        let next = counter(top, at) + 1;
        // What was counted must be what is validated.
        let delta = patch(top, "a", at, format!("{next:08}").as_bytes());
        match light(home, &grounds(top), &[delta], &reads, None, &options(true)) {
            Ok(Some(_)) => left -= 1,
            Err(Error::Conflict(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// This program again, as another process that does what `what` says.
fn child(rig: &Rig, what: &str, fault: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "commit::light::tests::as_a_child", "--ignored", "--nocapture", "-q"])
        .env("TXOS_TEST_LIGHT", format!("{what} {}", rig.dir.display()))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    if !fault.is_empty() {
        command.env("TXOS_FAULT", fault);
    }
    command
}

#[test]
#[ignore = "is started by other tests, as a process of its own"]
fn as_a_child() {
    let Ok(text) = std::env::var("TXOS_TEST_LIGHT") else { return };
    let (what, dir) = text.rsplit_once(' ').unwrap();
    let dir = Path::new(dir);
    let (home, top) = (Home::open(&dir.join("store")).unwrap(), dir.join("tree"));
    match what {
        "increment" => increment(&home, &top, 0, 100),
        "both" => {
            let mut reads = seen(&top, "a", &[0, 1]);
            let at = top.as_os_str().as_bytes();
            let outcome = Outcome::Present(version(&top.join("b")));
            reads.note_seen(at, version(&top).id, b"b", outcome, Facets::WRITE);
            let deltas = [patch(&top, "a", 10, b"one"), patch(&top, "b", 2 * PAGE - 2, b"three")];
            light(&home, &grounds(&top), &deltas, &reads, None, &options(true)).unwrap().unwrap();
        }
        "mixed" => {
            let done = commit_mixed(&home, &top);
            if let Err(error) = &done {
                let unfinished = matches!(error, Error::Unfinished { .. });
                fs::write(dir.join("failed"), format!("{unfinished} {error:?}")).unwrap();
            }
            std::process::exit(i32::from(done.is_err()));
        }
        "grow and move" => {
            let (from, to) = match top.join("here").exists() {
                true => ("here", "there"),
                false => ("there", "here"),
            };
            let length = version(&top.join("log")).size;
            let deltas = [patch(&top, "log", length, b"x"), moved(&top, from, to)];
            let reads = ReadSet::default();
            light(&home, &grounds(&top), &deltas, &reads, None, &options(false)).unwrap().unwrap();
        }
        "checkpoint" => checkpoint(&home).unwrap(),
        other => panic!("{other}"),
    }
}

#[test]
fn processes_lose_nothing() {
    let rig = Rig::new("processes");
    let children: Vec<_> = (0..3).map(|_| child(&rig, "increment", "").spawn().unwrap()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(counter(&rig.top(), 0), 300);
}

/// Processes are killed wherever they are, flushing for others or holding what others wait for: the
/// others go on, and lose nothing.
#[test]
fn killed_leaders_hang_nobody() {
    let rig = Rig::new("leaders");
    let mut steady: Vec<_> =
        (0..2).map(|_| child(&rig, "increment", "").spawn().unwrap()).collect();
    let mut killed = 0;
    while steady.iter_mut().any(|c| c.try_wait().unwrap().is_none()) {
        let mut victim = child(&rig, "increment", "").spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(15 + 7 * (killed % 5)));
        victim.kill().unwrap();
        victim.wait().unwrap();
        killed += 1;
    }
    for mut child in steady {
        assert!(child.wait().unwrap().success());
    }
    let count = counter(&rig.top(), 0);
    assert!((200..=200 + 100 * killed).contains(&count), "{count} after {killed} were killed");
    commit::recover(&rig.home, &Silent).unwrap();
}

/// A full commit meets light ones: none is lost, neither waits for ever.
#[test]
fn full_commits_come_in_between() {
    let rig = Rig::new("full");
    let mut children: Vec<_> =
        (0..2).map(|_| child(&rig, "increment", "").spawn().unwrap()).collect();
    let mut done = 0;
    while done < 20 {
        let mut tx = rig
            .home
            .begin(crate::store::Begin {
                layers: vec![crate::store::LayerRequest {
                    target: rig.top(),
                    store: rig.home.dir().to_owned(),
                }],
                ..Default::default()
            })
            .unwrap();
        let reads = seen(&rig.top(), "a", &[1]);
        let next = counter(&rig.top(), PAGE) + 1;
        let delta = patch(&rig.top(), "a", PAGE, format!("{next:08}").as_bytes());
        let changes = crate::changeset::ChangeSet::from_deltas(&tx, vec![delta]).unwrap();
        let planned = commit::plan(&tx, &changes, &options(false)).unwrap();
        match commit::commit(&rig.home, &mut tx, planned, &reads, &options(false), None, &Silent) {
            Ok(_) => done += 1,
            Err(Error::Conflict(_)) => {}
            Err(e) => panic!("{e}"),
        }
    }
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!((counter(&rig.top(), 0), counter(&rig.top(), PAGE)), (200, 20));
}

fn is_new(top: &Path) -> bool {
    let got = (read(top, "a", 10, 3), read(top, "b", 2 * PAGE as usize - 2, 5));
    match (&*got.0, &*got.1) {
        ("one", "three") => true,
        ("...", ".....") => false,
        _ => panic!("half: {got:?}"),
    }
}

/// Killed before and after every step: whoever comes next finds all or nothing, and the log and the
/// files go on.
#[test]
fn killed_at_every_step() {
    for (first, how) in [(true, "kill"), (false, "kill"), (false, "killafter")] {
        let mut was_new = 0;
        for step in 1.. {
            let rig = Rig::new(&format!("{how}-{first}-{step}"));
            if !first {
                commit_to(&rig.home, &rig.top(), "a", 0, b"x").unwrap().unwrap();
            }
            let status = child(&rig, "both", &format!("{how}@{step}")).status().unwrap();
            // Sometimes another light commit comes first, sometimes recovery.
            if step % 2 == 0 {
                commit_to(&rig.home, &rig.top(), "a", 3 * PAGE, b"next").unwrap().unwrap();
            } else {
                let recovered = commit::recover(&rig.home, &Silent).unwrap();
                assert_eq!(recovered.notes, Vec::<String>::new());
            }
            let new = is_new(&rig.top());
            assert!(new || !status.success(), "step {step}: it said it was done");
            assert!(new || was_new == 0, "step {step}: earlier it was done already");
            was_new += usize::from(new);
            let again = commit::recover(&rig.home, &Silent).unwrap();
            assert_eq!(again, Recovered::default(), "step {step}");
            assert_eq!(is_new(&rig.top()), new);
            commit_to(&rig.home, &rig.top(), "b", 0, b"on").unwrap().unwrap();
            if status.success() {
                assert!(step > 8, "{step} steps");
                break;
            }
        }
        assert!(was_new > 1, "{how}: {was_new}");
    }
}

/// The same where the record that comes next goes into the other half: what nobody counted does not stay in the first one.
#[test]
fn killed_before_the_log_goes_over() {
    let large = [b'l'; 30_000];
    // With what was there before.
    let record = 2 * large.len() as u64 + 1000;
    for step in 1.. {
        let mut rig = Rig::new(&format!("over-{step}"));
        let commit =
            |rig: &Rig| commit_to(&rig.home, &rig.top(), "a", 8 * PAGE, &large).unwrap().unwrap();
        let state = |rig: &Rig| Control::open(&rig.home).unwrap().state().unwrap().unwrap();
        commit(&rig);
        while state(&rig).end + record <= HALF {
            commit(&rig);
        }
        let epoch = state(&rig).epoch;
        let status = child(&rig, "both", &format!("kill@{step}")).status().unwrap();
        commit(&rig);
        assert_eq!(state(&rig).epoch, epoch + 1, "step {step}");
        let new = is_new(&rig.top());
        assert!(new || !status.success(), "step {step}: it said it was done");
        rig.reboot();
        assert_eq!(commit::recover(&rig.home, &Silent).unwrap().notes, Vec::<String>::new());
        assert_eq!(is_new(&rig.top()), new, "step {step}");
        commit_to(&rig.home, &rig.top(), "b", 0, b"on").unwrap().unwrap();
        if status.success() {
            assert!(step > 8, "{step} steps");
            break;
        }
    }
}

/// After power loss: the files are as before, as far as they were not flushed, the log is whole.
#[test]
fn redone_after_power_loss() {
    let mut rig = Rig::new("power");
    let top = rig.top();
    let before = fs::read(top.join("a")).unwrap();
    for (at, text) in [(0, "aaaa"), (2, "bbbb"), (PAGE - 1, "cc"), (0, "dd")] {
        commit_to(&rig.home, &top, "a", at, text.as_bytes()).unwrap().unwrap();
    }
    let after = fs::read(top.join("a")).unwrap();
    let file = fs::OpenOptions::new().write(true).open(top.join("a")).unwrap();
    // Every mixture of old and new blocks, and a state in between.
    let mut middle = before.clone();
    middle[..4].copy_from_slice(b"aaaa");
    for (n, lost) in [&before, &middle, &after].into_iter().enumerate() {
        for blocks in 0..4u64 {
            for block in (0..2).filter(|b| blocks & 1 << b != 0) {
                let at = (block * PAGE) as usize;
                file.write_all_at(&lost[at..at + PAGE as usize], block * PAGE).unwrap();
            }
            let log = fs::read(rig.dir.join("store/light")).unwrap();
            rig.reboot();
            let recovered = commit::recover(&rig.home, &Silent).unwrap();
            assert_eq!(recovered.notes, Vec::<String>::new());
            assert_eq!(fs::read(top.join("a")).unwrap(), after, "{n} {blocks}");
            assert_eq!(recovered.finished.is_empty(), lost == &after || blocks == 0);
            let again = commit::recover(&rig.home, &Silent).unwrap();
            assert_eq!(again, Recovered::default());
            // The same log again, as it was before that recovery.
            fs::write(rig.dir.join("store/light"), log).unwrap();
        }
    }
    // What somebody else has written since stays.
    file.write_all_at(b"ZZ", 4).unwrap();
    file.write_all_at(b"..", 0).unwrap();
    rig.reboot();
    let recovered = commit::recover(&rig.home, &Silent).unwrap();
    assert_eq!(recovered.notes.len(), 1, "{recovered:?}");
    assert_eq!(read(&top, "a", 0, 7), "ddbbZZ.");
}

/// The log is cut at every place: what is whole before the cut is redone, and no more.
#[test]
fn torn_tails() {
    let mut rig = Rig::new("torn");
    let top = rig.top();
    let before = fs::read(top.join("a")).unwrap();
    for n in 0..3u64 {
        commit_to(&rig.home, &top, "a", n * PAGE, &[b'1' + n as u8; 9]).unwrap().unwrap();
    }
    let log = fs::read(rig.dir.join("store/light")).unwrap();
    let end =
        Shared::of(&rig.home).session(&rig.home).unwrap().control.state().unwrap().unwrap().end;
    let mut most = 0;
    for cut in (RECORDS_AT as usize..=end as usize).step_by(8) {
        let mut torn = log.clone();
        torn[cut..end as usize].fill(0xa5);
        fs::write(rig.dir.join("store/light"), &torn).unwrap();
        fs::write(top.join("a"), &before).unwrap();
        rig.reboot();
        commit::recover(&rig.home, &Silent).unwrap();
        let there: Vec<bool> =
            (0..3).map(|n| read(&top, "a", n * PAGE as usize, 1) != ".").collect();
        let count = there.iter().filter(|t| **t).count();
        assert_eq!(there, [count > 0, count > 1, count > 2], "{cut}");
        assert!(count >= most, "{cut}");
        most = count;
        // And it goes on from there.
        commit_to(&rig.home, &top, "b", 0, b"on").unwrap().unwrap();
    }
    assert_eq!(most, 3);
}

/// The log goes over from one half to the other, again and again, and nothing is lost.
#[test]
fn both_halves_are_used_in_turn() {
    let mut rig = Rig::new("halves");
    let top = rig.top();
    let large = |n: u64| vec![b'a' + (n % 26) as u8; 30_000];
    for n in 0..150 {
        commit_to(&rig.home, &top, "a", 100, &large(n)).unwrap().unwrap();
    }
    let session = Shared::of(&rig.home).session(&rig.home).unwrap();
    assert!(session.control.state().unwrap().unwrap().epoch >= 3);
    drop(session);
    // Lost in the page cache: what the half that is not empty says is redone.
    let mut all = fs::read(top.join("a")).unwrap();
    assert_eq!(&all[100..30_100], large(149));
    all[100..30_100].copy_from_slice(&large(148));
    let inode = version(&top.join("a")).id;
    fs::write(top.join("a"), &all).unwrap();
    assert_eq!(version(&top.join("a")).id, inode);
    rig.reboot();
    commit::recover(&rig.home, &Silent).unwrap();
    assert_eq!(&fs::read(top.join("a")).unwrap()[100..30_100], large(149));
}

#[test]
fn records_read_back() {
    let file = FileRecord {
        path: b"/x/y".to_vec(),
        id: crate::object::FileId { dev: 1, ino: 2 },
        mtime: Some(Stamp { sec: 1, nsec: 2 }),
        pieces: vec![(7, b"old".to_vec(), b"new".to_vec())],
    };
    let names = vec![NameRecord {
        path: b"/n".to_vec(),
        before: Some(file.id),
        old: Some(OldFile { mode: 0o100_600, uid: 1, gid: 2, size: 3, mtime: Stamp::now() }),
        after: None,
        store: b"/s".to_vec(),
        aside: b"/s/o".to_vec(),
    }];
    let id = TxId::from_bits(5);
    let grown = vec![GrownRecord {
        path: b"/g".to_vec(),
        id: file.id,
        mtime: None,
        length: 9,
        tail: b"tail".to_vec(),
    }];
    let moves = vec![MoveRecord { from: b"/f".to_vec(), to: b"/t".to_vec(), id: file.id }];
    let record =
        Record { slot: 7, files: vec![file], names, grown, moves, ..Record::new(9, id, true) };
    let bytes = record.to_bytes(3);
    assert_eq!(bytes.len() % 8, 0);
    let read = log::read_record(&bytes, 3).unwrap();
    assert_eq!((read.record, read.void, read.length), (record, false, bytes.len() as u64));
    assert!(log::read_record(&bytes, 4).is_none());
    for at in (0..bytes.len()).filter(|at| !(8..12).contains(at)) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(log::read_record(&damaged, 3).is_none(), "{at}");
    }
}

/// In a realm: changes of one page meet, those of different pages don't, and who reads the whole file
/// meets both.
#[test]
fn in_a_realm_pages_are_acquired() {
    use crate::realm::{Access, Begin, DeadPublish, Facet, Realm, Unresolved};
    let rig = Rig::new("realm");
    let top = rig.top();
    let place = rig.dir.join("realm");
    fs::create_dir(&place).unwrap();
    let resolver = |_: &DeadPublish| Err(Unresolved("nobody dies here".into()));
    let realm = Realm::join(&place, "test", rig.home.dir(), Box::new(resolver)).unwrap();
    let begin = || realm.begin(&Begin { nonblock: true, ..Begin::default() }).unwrap();
    let roots = grounds(&top);
    let file = version(&top.join("a")).id;
    let (mut one, mut two) = (begin(), begin());
    let (first, second) = ([patch(&top, "a", 0, b"one")], [patch(&top, "a", PAGE, b"two")]);
    let (reads, other) = (seen(&top, "a", &[0]), seen(&top, "a", &[1]));
    acquire::acquire_for_log(&mut one, &roots, &first).unwrap();
    acquire::acquire_for_log(&mut two, &roots, &second).unwrap();
    let durable = options(true);
    light(&rig.home, &roots, &second, &other, Some(&mut two), &durable).unwrap().unwrap();
    two.finish().unwrap();
    // Somebody who reads all of it has to wait, or one of the two gives way.
    let mut reader = begin();
    let met = reader.acquire(&Facet::Attributes(file), Access::Read);
    let won = met.is_ok();
    reader.abort();
    let done = light(&rig.home, &roots, &first, &reads, Some(&mut one), &durable);
    assert_eq!(done.is_ok(), !won, "{done:?}");
    if done.is_ok() {
        one.finish().unwrap();
    }
    assert_eq!(read(&top, "a", PAGE as usize, 3), "two");
}
