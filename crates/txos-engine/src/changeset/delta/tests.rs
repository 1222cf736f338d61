use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::*;
use crate::commit::{self, Options, Silent, Summary};
use crate::object::Facets;
use crate::path;
use crate::readset::{Coverage, Outcome, PAGE, ReadSet, page_digest};
use crate::store::{Begin, Home, LayerRequest};

struct Rig {
    dir: PathBuf,
    home: Home,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// What can be told of an object but inode numbers and ctime, and of directories also times.
fn look(path: &Path) -> String {
    let m = fs::symlink_metadata(path).unwrap();
    let content = match () {
        () if m.is_file() => format!("{:?}", fs::read(path).unwrap()),
        () if m.is_symlink() => format!("{:?}", fs::read_link(path).unwrap()),
        () => String::new(),
    };
    let size = if m.is_dir() { 0 } else { m.size() };
    let nlink = if m.is_dir() { 0 } else { m.nlink() };
    let xattrs = sys::xattrs(path.as_os_str().as_bytes()).unwrap();
    format!(
        "{:o} n{nlink} s{size} t{}.{} {xattrs:?} {content}",
        m.mode(),
        m.mtime(),
        m.mtime_nsec()
    )
}

fn tree(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut out = BTreeMap::from([(PathBuf::new(), look(top))]);
    for below in walk(top, &[]).unwrap().into_keys() {
        let path = path::from_bytes(&below);
        out.insert(path.clone(), look(&top.join(path)));
    }
    out
}

impl Rig {
    fn new(tag: &str) -> Rig {
        let base = std::env::temp_dir().canonicalize().unwrap();
        let dir = base.join(format!("txos-delta-{tag}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let top = dir.join("tree");
        fs::create_dir_all(top.join("d/sub")).unwrap();
        fs::create_dir_all(top.join("e")).unwrap();
        for (name, text) in [("d/a", "one"), ("d/b", "two"), ("d/sub/f", "deep"), ("e/x", "ex")] {
            fs::write(top.join(name), text).unwrap();
        }
        fs::hard_link(top.join("d/a"), top.join("d/a-link")).unwrap();
        symlink("a", top.join("d/sym")).unwrap();
        let home = Home::open(&dir.join("store")).unwrap();
        Rig { dir, home }
    }

    fn top(&self) -> PathBuf {
        self.dir.join("tree")
    }

    fn version(&self, name: &str) -> Version {
        let path = self.top().join(name);
        stat_at(rustix::fs::CWD, path.as_os_str().as_bytes(), AtFlags::SYMLINK_NOFOLLOW).unwrap()
    }

    fn begin(&self) -> Transaction {
        self.home
            .begin(Begin {
                layers: vec![LayerRequest {
                    target: self.top(),
                    store: self.home.dir().to_owned(),
                }],
                durable: false,
                ..Begin::default()
            })
            .unwrap()
    }

    /// What was looked at, so that nothing of it counts as changed since the transaction began.
    fn seen(&self, names: &[&str]) -> ReadSet {
        let mut reads = ReadSet::new(Coverage::default());
        for name in names {
            let path = self.top().join(name);
            let (dir, name) = (path.parent().unwrap(), path.file_name().unwrap());
            let at = |p: &Path| {
                stat_at(rustix::fs::CWD, p.as_os_str().as_bytes(), AtFlags::SYMLINK_NOFOLLOW)
            };
            let outcome = match at(&path) {
                Ok(v) => Outcome::Present(v),
                Err(e) => Outcome::Absent(e.raw_os_error()),
            };
            let id = at(dir).unwrap().id;
            reads.note_seen(
                dir.as_os_str().as_bytes(),
                id,
                name.as_bytes(),
                outcome,
                Facets::WRITE,
            );
        }
        reads
    }

    fn commit(&self, tx: &mut Transaction, reads: &ReadSet, deltas: Vec<Delta>) -> Result<Summary> {
        let changes = ChangeSet::from_deltas(tx, deltas)?;
        changes.entries()?;
        let options = Options { durable: false, ..Options::default() };
        let planned = commit::plan(tx, &changes, &options)?;
        commit::commit(&self.home, tx, planned, reads, &options, None, &Silent)
    }

    /// Commits, checks, reverts, checks, reverts the revert, checks.
    fn there_and_back(&self, stage: impl FnOnce(&Path), deltas: Vec<Delta>, check: impl Fn(&Path)) {
        let before = tree(&self.top());
        let mut tx = self.begin();
        stage(tx.layers()[0].upper.parent().unwrap());
        let names: Vec<String> = deltas
            .iter()
            .flat_map(|d| {
                let from = match &d.what {
                    What::Move { from, .. } => Some(from.clone()),
                    _ => None,
                };
                [Some(d.stable_path.clone()), from]
            })
            .flatten()
            .map(|p| String::from_utf8(p).unwrap())
            .filter(|p| self.top().join(p).parent().is_some_and(Path::is_dir))
            .collect();
        let reads = self.seen(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let summary = self.commit(&mut tx, &reads, deltas).unwrap();
        drop(tx);
        check(&self.top());
        let after = tree(&self.top());
        commit::committed_entries(&self.home, summary.id).unwrap();
        let options = Options { durable: false, ..Options::default() };
        let back = commit::revert(&self.home, summary.id, &options, None, &Silent).unwrap();
        let now = tree(&self.top());
        for (path, was) in &before {
            assert_eq!(now.get(path), Some(was), "reverted: {}", path.display());
        }
        assert_eq!(now.len(), before.len(), "reverted");
        commit::revert(&self.home, back.id, &options, None, &Silent).unwrap();
        let linkless = |look: &String| {
            let (start, end) = (look.find(" n").unwrap(), look.find(" s").unwrap());
            format!("{} {}", &look[..start], &look[end..])
        };
        let again = tree(&self.top());
        for (path, was) in &after {
            let now = again.get(path).map(linkless);
            assert_eq!(now, Some(linkless(was)), "again: {}", path.display());
        }
    }
}

fn at(path: &str, what: What) -> Delta {
    at_stable(path, path, what)
}

fn at_stable(path: &str, stable: &str, what: What) -> Delta {
    Delta { layer: 0, path: path.into(), stable_path: stable.into(), nameless: false, what }
}

fn read(top: &Path, name: &str) -> String {
    fs::read_to_string(top.join(name)).unwrap()
}

#[test]
fn put_new_and_in_place_of_others() {
    let rig = Rig::new("put");
    let deltas = vec![
        at("n", What::Put { staged: b"new/n".to_vec(), base: None }),
        at("n2", What::Put { staged: b"new/n2".to_vec(), base: None }),
        at("tree", What::Put { staged: b"new/tree".to_vec(), base: None }),
        at("d/b", What::Put { staged: b"new/b".to_vec(), base: Some(rig.version("d/b")) }),
        at("d/sym", What::Put { staged: b"new/sym".to_vec(), base: Some(rig.version("d/sym")) }),
        at("e", What::Put { staged: b"new/e".to_vec(), base: Some(rig.version("e")) }),
    ];
    rig.there_and_back(
        |staging| {
            let new = staging.join("new");
            fs::create_dir_all(new.join("tree/deep")).unwrap();
            for name in ["n", "b", "tree/deep/f", "e"] {
                fs::write(new.join(name), name).unwrap();
            }
            fs::hard_link(new.join("n"), new.join("n2")).unwrap();
            symlink("b", new.join("sym")).unwrap();
        },
        deltas,
        |top| {
            assert_eq!(read(top, "n"), "n");
            assert_eq!(fs::metadata(top.join("n")).unwrap().nlink(), 2);
            assert_eq!(read(top, "d/b"), "b");
            assert_eq!(read(top, "tree/deep/f"), "tree/deep/f");
            assert_eq!(fs::read_link(top.join("d/sym")).unwrap(), Path::new("b"));
            assert_eq!(read(top, "e"), "e");
        },
    );
}

#[test]
fn remove_files_and_trees() {
    let rig = Rig::new("remove");
    let deltas = vec![
        at("d/b", What::Remove { base: rig.version("d/b") }),
        at("d/a-link", What::Remove { base: rig.version("d/a-link") }),
        at("d/sub", What::Remove { base: rig.version("d/sub") }),
    ];
    rig.there_and_back(
        |_| {},
        deltas,
        |top| {
            assert!(!top.join("d/b").exists() && !top.join("d/sub").exists());
            assert_eq!(fs::metadata(top.join("d/a")).unwrap().nlink(), 1);
        },
    );
}

/// Of a renamed file the inode stays, and it can be changed in place in the same transaction.
#[test]
fn move_of_files_keeps_their_inodes() {
    let rig = Rig::new("move-files");
    let (b, x, a, sym) =
        (rig.version("d/b"), rig.version("e/x"), rig.version("d/a"), rig.version("d/sym"));
    let mode = AttrChange { mode: Some((b.mode & 0o7777, 0o600)), ..AttrChange::default() };
    let deltas = vec![
        // Over another file.
        at("e/x", What::Move { from: b"d/b".to_vec(), source: b, base: Some(x) }),
        at_stable(
            "e/x",
            "d/b",
            What::Patch { base: b, writes: vec![(1, b"W".to_vec())], size: None, attrs: mode },
        ),
        // One of several names; a link.
        at("e/a", What::Move { from: b"d/a".to_vec(), source: a, base: None }),
        at("s", What::Move { from: b"d/sym".to_vec(), source: sym, base: None }),
    ];
    rig.there_and_back(
        |_| {},
        deltas,
        |top| {
            assert_eq!(fs::metadata(top.join("e/x")).unwrap().ino(), b.id.ino);
            assert_eq!(fs::metadata(top.join("e/x")).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(read(top, "e/x"), "tWo");
            assert!(!top.join("d/b").exists());
            assert_eq!(fs::metadata(top.join("d/a-link")).unwrap().ino(), a.id.ino);
            assert_eq!(fs::metadata(top.join("e/a")).unwrap().ino(), a.id.ino);
            assert_eq!(fs::symlink_metadata(top.join("s")).unwrap().ino(), sym.id.ino);
        },
    );
}

fn nameless(delta: Delta) -> Delta {
    Delta { nameless: true, ..delta }
}

/// A changed file loses every name that is known: its others show the change, whatever takes it away.
#[test]
fn what_has_lost_its_name_is_changed_all_the_same() {
    for taker in ["removed", "put", "moved", "directory"] {
        let rig = Rig::new(&format!("nameless-{taker}"));
        fs::hard_link(rig.top().join("d/a"), rig.top().join("far")).unwrap();
        let [a, x, d] = ["d/a", "e/x", "d"].map(|n| rig.version(n));
        let mode = AttrChange { mode: Some((a.mode & 0o7777, 0o600)), ..AttrChange::default() };
        let write =
            |attrs| What::Patch { base: a, writes: vec![(3, b"!".to_vec())], size: None, attrs };
        let takes = match taker {
            "removed" => at("d/a", What::Remove { base: a }),
            "put" => at("d/a", What::Put { staged: b"new/d".to_vec(), base: Some(a) }),
            "moved" => at("d/a", What::Move { from: b"e/x".to_vec(), source: x, base: Some(a) }),
            _ => at("d", What::Remove { base: d }),
        };
        // Where it is now is all that counts.
        let change = Delta { path: b"nowhere".to_vec(), ..nameless(at("d/a", write(mode))) };
        rig.there_and_back(
            |staging| fs::create_dir_all(staging.join("new/d")).unwrap(),
            vec![change, takes],
            |top| {
                assert_eq!(read(top, "far"), "one!", "{taker}");
                let far = fs::metadata(top.join("far")).unwrap();
                assert_eq!((far.ino(), far.mode() & 0o7777), (a.id.ino, 0o600), "{taker}");
                let there = fs::symlink_metadata(top.join("d/a"));
                assert!(there.map_or(true, |there| there.ino() != a.id.ino), "{taker}");
            },
        );
    }
}

/// Nobody takes its name away: it is where somebody else has put it.
#[test]
fn what_nobody_takes_away_is_not_nameless() {
    let rig = Rig::new("not-nameless");
    let (a, b) = (rig.version("d/a"), rig.version("d/b"));
    let tx = rig.begin();
    for other in ["d/b", "d/a-link"] {
        let base = rig.version(other);
        let deltas = vec![nameless(at("d/a", patch(a, 0, "x"))), at(other, What::Remove { base })];
        match ChangeSet::from_deltas(&tx, deltas) {
            Err(Error::Conflict(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    let removed = at("d/a", What::Remove { base: b });
    let result = ChangeSet::from_deltas(&tx, vec![nameless(at("d/a", patch(a, 0, "x"))), removed]);
    assert!(matches!(result, Err(Error::Conflict(_))), "{result:?}");
}

#[test]
fn two_names_change_places() {
    let rig = Rig::new("swap");
    let (b, x) = (rig.version("d/b"), rig.version("e/x"));
    let deltas = vec![
        at("d/b", What::Move { from: b"e/x".to_vec(), source: x, base: Some(b) }),
        at("e/x", What::Move { from: b"d/b".to_vec(), source: b, base: Some(x) }),
    ];
    rig.there_and_back(
        |_| {},
        deltas,
        |top| {
            assert_eq!(read(top, "d/b"), "ex");
            assert_eq!(fs::metadata(top.join("e/x")).unwrap().ino(), b.id.ino);
        },
    );
    let rig = Rig::new("swap-dirs");
    let (d, e) = (rig.version("d"), rig.version("e"));
    let deltas = vec![
        at("d", What::Move { from: b"e".to_vec(), source: e, base: Some(d) }),
        at("e", What::Move { from: b"d".to_vec(), source: d, base: Some(e) }),
    ];
    rig.there_and_back(|_| {}, deltas, |top| assert_eq!(read(top, "d/x"), "ex"));
}

/// A stable directory moved into a new one, with changes below it; and a new one in its place.
#[test]
fn directories_moved_and_changed_inside() {
    let rig = Rig::new("move-dirs");
    let [d, f, b, sub] = ["d", "d/sub/f", "d/b", "d/sub"].map(|n| rig.version(n));
    let deltas = vec![
        at("new", What::Put { staged: b"new".to_vec(), base: None }),
        at("new/d", What::Move { from: b"d".to_vec(), source: d, base: None }),
        at("d", What::Put { staged: b"d".to_vec(), base: Some(d) }),
        at_stable("new/d/b", "d/b", What::Remove { base: b }),
        at_stable("new/d/n", "d/n", What::Put { staged: b"n".to_vec(), base: None }),
        at("out", What::Move { from: b"d/sub".to_vec(), source: sub, base: None }),
        at_stable(
            "out/f",
            "d/sub/f",
            What::Patch {
                base: f,
                writes: vec![(0, b"DEEP and longer".to_vec())],
                size: None,
                attrs: AttrChange::default(),
            },
        ),
        at_stable("new/d/l", "d/l", What::Link { to: b"new/d/a".to_vec(), base: None }),
    ];
    rig.there_and_back(
        |staging| {
            fs::create_dir(staging.join("new")).unwrap();
            fs::create_dir(staging.join("d")).unwrap();
            fs::write(staging.join("d/fresh"), "fresh").unwrap();
            fs::write(staging.join("n"), "n").unwrap();
        },
        deltas,
        |top| {
            assert_eq!(fs::metadata(top.join("new/d")).unwrap().ino(), d.id.ino);
            assert_eq!(read(top, "out/f"), "DEEP and longer");
            assert_eq!(read(top, "new/d/n"), "n");
            assert_eq!(read(top, "new/d/l"), "one");
            assert!(!top.join("new/d/b").exists() && !top.join("new/d/sub").exists());
            assert_eq!(read(top, "d/fresh"), "fresh");
        },
    );
}

#[test]
fn links() {
    let rig = Rig::new("link");
    let deltas = vec![
        at("e/y", What::Link { to: b"d/b".to_vec(), base: None }),
        at("e/x", What::Link { to: b"d/a".to_vec(), base: Some(rig.version("e/x")) }),
    ];
    rig.there_and_back(
        |_| {},
        deltas,
        |top| {
            assert_eq!(fs::metadata(top.join("d/b")).unwrap().nlink(), 2);
            assert_eq!(fs::metadata(top.join("e/x")).unwrap().nlink(), 3);
        },
    );
}

#[test]
fn in_place() {
    let rig = Rig::new("in-place");
    let (a, b, x, d) =
        (rig.version("d/a"), rig.version("d/b"), rig.version("e/x"), rig.version("d"));
    let attrs = AttrChange {
        mode: Some((b.mode & 0o7777, 0o640)),
        xattrs: vec![super::super::XattrChange {
            name: b"user.note".to_vec(),
            old: None,
            new: Some(b"v".to_vec()),
        }],
        ..AttrChange::default()
    };
    let mode = AttrChange { mode: Some((d.mode & 0o7777, 0o700)), ..AttrChange::default() };
    let deltas = vec![
        at("d/a", What::Data { staged: b"a".to_vec(), base: a, attrs: AttrChange::default() }),
        at("d/b", What::Attrs { base: b, change: attrs }),
        at("d", What::Attrs { base: d, change: mode }),
        at(
            "e/x",
            What::Patch {
                base: x,
                writes: vec![(5000, b"far".to_vec()), (0, b"E".to_vec())],
                size: Some(5002),
                attrs: AttrChange::default(),
            },
        ),
    ];
    rig.there_and_back(
        |staging| fs::write(staging.join("a"), "other, and longer").unwrap(),
        deltas,
        |top| {
            assert_eq!(read(top, "d/a-link"), "other, and longer");
            assert_eq!(fs::metadata(top.join("d/b")).unwrap().mode() & 0o777, 0o640);
            let x = fs::read(top.join("e/x")).unwrap();
            assert_eq!((&x[..3], &x[5000..], x.len()), (&b"Ex\0"[..], &b"fa"[..], 5002));
        },
    );
}

#[test]
fn a_patch_that_cuts_off_comes_back_whole() {
    let rig = Rig::new("cut");
    let long: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
    fs::write(rig.top().join("long"), &long).unwrap();
    let base = rig.version("long");
    let deltas = vec![at(
        "long",
        What::Patch {
            base,
            writes: vec![(9_990, vec![0xff; 100]), (3, vec![0xff; 2])],
            size: Some(10_000),
            attrs: AttrChange::default(),
        },
    )];
    rig.there_and_back(
        |_| {},
        deltas,
        |top| assert_eq!(fs::metadata(top.join("long")).unwrap().len(), 10_000),
    );
    assert_eq!(fs::metadata(rig.top().join("long")).unwrap().ino(), base.id.ino);
}

/// Retained objects lie in groups: a patch can be the first of its group.
#[test]
fn a_patch_after_many_removals() {
    let rig = Rig::new("many");
    let many: Vec<String> = (0..250).map(|n| format!("e/{n}")).collect();
    for name in &many {
        fs::write(rig.top().join(name), name).unwrap();
    }
    let removal = |name: &String| at(name, What::Remove { base: rig.version(name) });
    let (first, last) = many.split_at(199);
    let mut deltas: Vec<Delta> = first.iter().map(removal).collect();
    deltas.push(at("d/b", patch(rig.version("d/b"), 0, "T")));
    deltas.extend(last.iter().map(removal));
    rig.there_and_back(
        |_| {},
        deltas,
        |top| {
            assert_eq!(read(top, "d/b"), "Two");
            assert_eq!(fs::read_dir(top.join("e")).unwrap().count(), 1);
        },
    );
}

#[test]
fn an_outsiders_change_is_a_conflict_and_nothing_is_published() {
    type Case = (&'static str, fn(&Rig) -> Delta, fn(&Path));
    let cases: [Case; 6] = [
        (
            "patch",
            |r| at("d/b", patch(r.version("d/b"), 0, "X")),
            |t| fs::write(t.join("d/b"), "2").unwrap(),
        ),
        (
            "remove",
            |r| at("d/b", What::Remove { base: r.version("d/b") }),
            |t| fs::write(t.join("d/b"), "2").unwrap(),
        ),
        (
            "move",
            |r| at("m", What::Move { from: b"d/b".to_vec(), source: r.version("d/b"), base: None }),
            |t| fs::write(t.join("d/b"), "2").unwrap(),
        ),
        (
            "move over",
            |r| {
                let (source, base) = (r.version("d/b"), Some(r.version("e/x")));
                at("e/x", What::Move { from: b"d/b".to_vec(), source, base })
            },
            |t| fs::write(t.join("e/x"), "2").unwrap(),
        ),
        (
            "attrs",
            |r| {
                let change = AttrChange { mode: Some((0o644, 0o600)), ..AttrChange::default() };
                at("d/b", What::Attrs { base: r.version("d/b"), change })
            },
            |t| fs::remove_file(t.join("d/b")).unwrap(),
        ),
        (
            "link",
            |_| at("l", What::Link { to: b"d/b".to_vec(), base: None }),
            |t| fs::write(t.join("l"), "mine").unwrap(),
        ),
    ];
    for (name, delta, outsider) in cases {
        let rig = Rig::new(&format!("outsider-{}", name.replace(' ', "-")));
        let other = at("e/x", patch(rig.version("e/x"), 0, "E"));
        let mut deltas = vec![delta(&rig)];
        if name != "move over" {
            deltas.push(other);
        }
        let mut tx = rig.begin();
        outsider(&rig.top());
        let before = tree(&rig.top());
        match rig.commit(&mut tx, &rig.seen(&["d/b", "e/x"]), deltas) {
            Err(Error::Conflict(c)) => assert!(!c.is_empty()),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(tree(&rig.top()), before, "{name}");
    }
}

fn patch(base: Version, offset: u64, text: &str) -> What {
    let writes = vec![(offset, text.as_bytes().to_vec())];
    What::Patch { base, writes, size: None, attrs: AttrChange::default() }
}

/// Two transactions that change different pages of one file both commit; of the same page, or if
/// one has read what the other changed, only the first.
#[test]
fn different_pages_commute() {
    let rig = Rig::new("pages");
    let path = rig.top().join("big");
    let reader = |read: &[u64]| {
        let (base, mut reads) = (rig.version("big"), rig.seen(&["big"]));
        let all = fs::read(&path).unwrap();
        let pages: Vec<(u64, u64)> = read
            .iter()
            .map(|&n| (n, page_digest(&all[(n * PAGE) as usize..((n + 1) * PAGE) as usize])))
            .collect();
        reads.note_pages(rig.top().as_os_str().as_bytes(), b"big", &pages);
        (base, reads)
    };
    for (first, second, read, commutes) in
        [(0, 2, &[2, 3][..], true), (0, 2, &[0, 2], false), (0, 2, &[], true)]
    {
        fs::write(&path, vec![b'.'; 4 * PAGE as usize]).unwrap();
        let (base, mine) = reader(read);
        let (mut one, mut two) = (rig.begin(), rig.begin());
        let what = patch(base, first * PAGE + 1, "first");
        let (_, theirs) = reader(&[first]);
        rig.commit(&mut one, &theirs, vec![at("big", what)]).unwrap();
        let result =
            rig.commit(&mut two, &mine, vec![at("big", patch(base, second * PAGE, "second"))]);
        assert_eq!(result.is_ok(), commutes, "{read:?}: {result:?}");
        let all = fs::read(&path).unwrap();
        assert_eq!(&all[1..6], b"first");
        let expected = if commutes { &b"second"[..] } else { b"......" };
        assert_eq!(&all[2 * PAGE as usize..][..6], expected);
    }
    // Another size is another thing.
    let (base, mine) = reader(&[1]);
    fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut f| {
            use std::io::Write;
            f.write_all(b"more")
        })
        .unwrap();
    let mut tx = rig.begin();
    assert!(rig.commit(&mut tx, &mine, vec![at("big", patch(base, PAGE, "x"))]).is_err());
}

#[test]
fn contradictions_are_refused() {
    let rig = Rig::new("refused");
    let (b, x) = (rig.version("d/b"), rig.version("e/x"));
    let tx = rig.begin();
    let mv = |to: &str| at(to, What::Move { from: b"d/b".to_vec(), source: b, base: None });
    let cases = [
        vec![mv("m"), mv("n")],
        vec![at("d/b", What::Remove { base: b }), at("d/b", patch(b, 0, "x"))],
        vec![at("d/b", patch(b, 0, "x")), at("d/b", patch(b, 0, "y"))],
        vec![at("../x", What::Remove { base: x })],
        vec![at("", What::Remove { base: x })],
        vec![Delta { layer: 3, ..mv("m") }],
        vec![nameless(at("d/b", What::Remove { base: b }))],
        vec![nameless(at("d/b", patch(b, 0, "x"))), nameless(at("d/b", patch(b, 0, "y")))],
        vec![nameless(at("../b", patch(b, 0, "x")))],
    ];
    for deltas in cases {
        match ChangeSet::from_deltas(&tx, deltas.clone()) {
            Err(Error::Unsupported { .. }) => {}
            other => panic!("{deltas:?}: {other:?}"),
        }
    }
}

/// One of everything, for a process that is killed.
fn everything(rig: &Rig) -> Result<Summary> {
    let [a, b, x, d, f, sub] =
        ["d/a", "d/b", "e/x", "d", "d/sub/f", "d/sub"].map(|n| rig.version(n));
    let mut tx = rig.begin();
    let staging = tx.layers()[0].upper.parent().unwrap().to_owned();
    fs::create_dir(staging.join("new")).unwrap();
    fs::write(staging.join("new/n"), "n").unwrap();
    fs::write(staging.join("a"), "other").unwrap();
    let mode = AttrChange { mode: Some((d.mode & 0o7777, 0o700)), ..AttrChange::default() };
    let deltas = vec![
        at("new", What::Put { staged: b"new".to_vec(), base: None }),
        at("e/x", What::Move { from: b"d/b".to_vec(), source: b, base: Some(x) }),
        at_stable("e/x", "d/b", patch(b, 1, "W")),
        at("new/sub", What::Move { from: b"d/sub".to_vec(), source: sub, base: None }),
        at_stable("new/sub/f", "d/sub/f", What::Remove { base: f }),
        at("d/a", What::Data { staged: b"a".to_vec(), base: a, attrs: AttrChange::default() }),
        at("e/l", What::Link { to: b"d/a".to_vec(), base: None }),
        at("d", What::Attrs { base: d, change: mode }),
        at("d/sym", What::Remove { base: rig.version("d/sym") }),
    ];
    let reads = rig.seen(&["d/a", "d/b", "e/x", "d/sub/f", "d/sub", "d/sym"]);
    rig.commit(&mut tx, &reads, deltas)
}

#[test]
#[ignore = "is started by another test, as a process of its own"]
fn as_a_child() {
    let Some(dir) = std::env::var_os("TXOS_TEST_DELTA") else { return };
    let dir = PathBuf::from(dir);
    let home = Home::open(&dir.join("store")).unwrap();
    let rig = std::mem::ManuallyDrop::new(Rig { dir, home });
    everything(&rig).unwrap();
}

/// Killed before and after every step: after recovery everything is old, or everything is new.
#[test]
fn killed_at_every_step() {
    let timeless = |tree: BTreeMap<PathBuf, String>| -> BTreeMap<PathBuf, String> {
        tree.into_iter()
            .map(|(path, look)| {
                let (start, end) = (look.find(" t").unwrap(), look.find(" [").unwrap());
                (path, format!("{}{}", &look[..start], &look[end..]))
            })
            .collect()
    };
    let reference = Rig::new("killed-reference");
    everything(&reference).unwrap();
    let new = timeless(tree(&reference.top()));
    for how in ["kill", "killafter"] {
        let mut seen = [0, 0];
        for step in 1.. {
            let rig = Rig::new(&format!("{how}-{step}"));
            let old = tree(&rig.top());
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "changeset::delta::tests::as_a_child", "--ignored", "-q"])
                .env("TXOS_TEST_DELTA", &rig.dir)
                .env("TXOS_FAULT", format!("{how}@{step}"))
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .status()
                .unwrap();
            commit::recover(&rig.home, &Silent).unwrap();
            let now = tree(&rig.top());
            let is_new = now != old;
            if is_new {
                let now = timeless(now);
                for (path, want) in &new {
                    assert_eq!(now.get(path), Some(want), "{how}@{step}: {}", path.display());
                }
                assert_eq!(now.len(), new.len(), "{how}@{step}");
            }
            assert!(is_new || !status.success(), "{how}@{step}: it said it was done");
            seen[usize::from(is_new)] += 1;
            if status.success() {
                break;
            }
        }
        assert!(seen[0] > 10 && seen[1] > 1, "{how}: {seen:?}");
    }
}
