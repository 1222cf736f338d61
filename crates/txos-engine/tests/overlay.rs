//! The engine against real overlayfs uppers: a script runs natively in one copy of a tree and in
//! an overlay over another; after the commit both trees must be the same, after a failed publish
//! or a revert the tree must be the old one.
//!
//! Needs root (mounts overlays in a namespace of its own).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use txos_engine::changeset::ChangeSet;
use txos_engine::commit::{self, Options, Silent};
use txos_engine::object::Facets;
use txos_engine::readset::{Coverage, ReadSet};
use txos_engine::store::{Begin, Home, LayerRequest, Transaction};
use txos_engine::{Error, sys};
use txos_skip::{is_root, require};

struct Rig {
    dir: PathBuf,
    home: Home,
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::env::var_os("KEEP").is_none() {
            let _ = Command::new("rm").arg("-rf").arg(&self.dir).status();
        }
    }
}

fn sh(dir: &Path, script: &str) {
    let status =
        Command::new("sh").args(["-euc", script]).current_dir(dir).status().expect("sh starts");
    assert!(status.success(), "{script}");
}

/// A path's look: everything of it that a program could tell, but inode numbers and ctime.
fn look(path: &Path, ignore_dir_times: bool) -> String {
    let m = fs::symlink_metadata(path).unwrap();
    let content = if m.is_file() {
        format!("{:?}", fs::read(path).unwrap())
    } else if m.is_symlink() {
        format!("{:?}", fs::read_link(path).unwrap())
    } else {
        String::new()
    };
    let times = if m.is_dir() && ignore_dir_times { 0 } else { m.mtime() };
    let xattrs = sys::xattrs(path.as_os_str().as_bytes()).unwrap();
    let size = if m.is_dir() { 0 } else { m.size() };
    let nlink = if m.is_dir() { 0 } else { m.nlink() };
    format!(
        "{:o} {}:{} n{nlink} s{size} r{} t{times} {xattrs:?} {content}",
        m.mode(),
        m.uid(),
        m.gid(),
        m.rdev()
    )
}

fn tree(top: &Path, ignore_dir_times: bool) -> BTreeMap<PathBuf, String> {
    fn walk(top: &Path, dir: &Path, times: bool, out: &mut BTreeMap<PathBuf, String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            out.insert(path.strip_prefix(top).unwrap().to_owned(), look(&path, times));
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                walk(top, &path, times, out);
            }
        }
    }
    let mut out = BTreeMap::new();
    walk(top, top, ignore_dir_times, &mut out);
    out
}

const SETUP: &str = r"
mkdir -p d/sub/deep e keep 'odd
name'
echo one > d/a; echo two > d/b; echo deep > d/sub/deep/f; echo e > e/x
ln d/a d/a-link; ln -s a d/sym; mkfifo d/pipe
printf 'x\377y' > 'odd
name/f'
head -c 300000 /dev/zero > keep/zeros; truncate -s 1000000 keep/sparse; echo s >> keep/sparse
setfattr -n user.note -v hi d/b; chmod 4755 d/b; setfacl -m u:1234:r keep
find . -depth -exec touch -h -d @1600000000 {} +
";

impl Rig {
    fn new(tag: &str) -> Rig {
        let base = std::env::temp_dir().canonicalize().unwrap();
        let dir = base.join(format!("txos-engine-{tag}-{}", std::process::id()));
        let _ = Command::new("rm").arg("-rf").arg(&dir).status();
        for sub in ["tree", "native", "mnt"] {
            fs::create_dir_all(dir.join(sub)).unwrap();
        }
        let home = Home::open(&dir.join("store")).unwrap();
        sh(&dir.join("tree"), SETUP);
        sh(&dir.join("native"), SETUP);
        Rig { dir, home }
    }

    fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    fn begin(&self) -> Transaction {
        self.home
            .begin(Begin {
                layers: vec![LayerRequest {
                    target: self.tree(),
                    store: self.home.dir().to_owned(),
                }],
                durable: false,
                ..Begin::default()
            })
            .unwrap()
    }

    fn run(&self, tx: &Transaction, script: &str) {
        let layer = &tx.layers()[0];
        // The root of the view is the root of the upper: it begins as a copy of the tree's.
        let root = fs::metadata(&layer.target).unwrap();
        fs::set_permissions(&layer.upper, root.permissions()).unwrap();
        sh(&layer.target, &format!("touch -r . {}", layer.upper.display()));
        let mnt = self.dir.join("mnt");
        let options = format!(
            "lowerdir={},upperdir={},workdir={},redirect_dir=on,index=on,volatile",
            layer.target.display(),
            layer.upper.display(),
            layer.work.display()
        );
        let status = Command::new("unshare")
            .args(["-m", "sh", "-euc"])
            .arg(r#"mount -t overlay txos-test -o "$1" "$2"; cd "$2"; eval "$3""#)
            .arg("sh")
            .arg(options)
            .arg(&mnt)
            .arg(script)
            .status()
            .unwrap();
        assert!(status.success(), "{script}");
        let _ = fs::remove_dir_all(layer.work.join("work/incompat"));
    }

    fn commit(&self, tx: &mut Transaction, reads: &ReadSet) -> Result<commit::Summary, Error> {
        let options = Options { durable: false, ..Options::default() };
        let changes = ChangeSet::read(tx, reads, &options.keep_inode)?;
        changes.entries().unwrap();
        let planned = commit::plan(tx, &changes, &options)?;
        commit::commit(&self.home, tx, planned, reads, &options, None, &Silent)
    }
}

/// Scripts whose effect must be the same in an overlay, after commit, as natively.
const SCRIPTS: &[(&str, &str)] = &[
    ("nothing", "true"),
    ("touch-nothing", "cat d/b >/dev/null; : >> d/b"),
    ("new-file", "echo new > n; mkdir -p new/dir/tree; echo x > new/dir/tree/f"),
    ("modify", "echo more >> d/b; echo over > e/x"),
    ("modify-hard-link", "echo more >> d/a"),
    ("replace-hard-link", "echo other > t; mv t d/a"),
    ("remove-hard-link", "rm d/a-link"),
    ("remove-both-links", "rm d/a-link d/a"),
    ("modify-one-remove-other-link", "echo more >> d/a; rm d/a-link"),
    ("add-link-to-linked", "ln d/a d/third; ln d/a e/fourth"),
    ("add-link-to-single", "ln d/b e/b2"),
    ("link-over", "ln -f d/a e/x"),
    ("remove", "rm d/b; rm -r d/sub"),
    ("chmod", "chmod 600 d/b; chown 12:34 d/a; setfattr -n user.new -v v e/x; chmod 700 keep"),
    ("acl", "setfacl -m u:77:rw e/x; setfacl -b keep; setfattr -x user.note d/b"),
    ("touch", "touch -d @1500000000 d/b; touch -h -d @1500000001 d/sym; touch -d @1500000002 e"),
    ("same-content", "cp d/b t; cat t > d/b; rm t"),
    ("symlink", "ln -sfn b d/sym; ln -s nowhere d/dangling"),
    (
        "type-change",
        "rm d/b; mkdir d/b; echo in > d/b/f; rm -r e; echo file > e; rm d/pipe; ln -s x d/pipe",
    ),
    ("dir-replaced", "rm -r d; mkdir d; echo fresh > d/fresh"),
    ("dir-renamed", "mv d moved"),
    (
        "dir-renamed-and-changed",
        "mv d moved; echo x > moved/new; rm moved/b; echo c >> moved/sub/deep/f",
    ),
    ("dirs-swapped", "mv d t; mv e d; mv t e"),
    ("dirs-rotated", "mv d t; mv e d; mv keep e; mv t keep; echo z > keep/z"),
    ("dir-into-new", "mkdir new; mv d new/d; echo x > new/d/sub/x; rm new/d/a"),
    ("dir-into-moved", "mv d e/d; mv e top; echo x > top/d/sub/y"),
    ("subdir-out-then-remove", "mv d/sub out; rm -r d"),
    ("subdir-out-then-move", "mv d/sub out; mv d d2; mv out d2/back"),
    ("move-over-empty", "mkdir empty; mv -T d empty"),
    ("move-then-new-at-old", "mv d moved; mkdir d; echo n > d/n"),
    ("move-then-file-at-old", "mv d moved; echo n > d"),
    ("rename-files", "mv d/b e/b; mv e/x d/x; mv d/sym s2"),
    ("swap-files", "mv d/b t; mv e/x d/b; mv t e/x"),
    (
        "sparse",
        "truncate -s 2000000 keep/sparse; truncate -s 5 keep/zeros; truncate -s 10000000 holes",
    ),
    ("odd-names", "echo x > \"$(printf 'b\\377d\\nname')\"; rm -r odd*"),
    ("nodes", "mknod dev c 1 3; mkfifo p; mknod d/blk b 7 99"),
    ("setuid", "cp /bin/true su; chmod 6755 su; chown 5:6 d/b"),
    (
        "sticky-default-acl",
        "mkdir s; chmod 1777 s; setfacl -d -m u:9:rx s; echo x > s/x; mkdir s/sub",
    ),
    ("capability", "cp /bin/true cap; setcap cap_net_raw+ep cap"),
    (
        "many-in-one-dir",
        "mkdir many; for i in $(seq 300); do echo $i > many/$i; done; for i in $(seq 300); do echo $i > e/$i; done",
    ),
    ("deep", "p=.; for i in $(seq 60); do p=$p/dir$i; done; mkdir -p $p; echo bottom > $p/f"),
    ("copied-into-new", "mkdir n; mv d/b n/b; ln e/x n/x; mv d/sub n/sub"),
    ("rename-hard-link", "mv d/a d/c"),
    ("rename-and-modify-hard-link", "mv d/a e/c; echo more >> e/c; chmod 600 e/c"),
    ("link-then-remove", "ln d/a e/y; rm d/a; echo m >> e/y"),
    ("rename-both-links", "mv d/a d/c; mv d/a-link e/l"),
    ("dir-attributes-and-entries", "echo > d/n; chown 2 d; rm e/x"),
    ("rm-all", "rm -rf ./*"),
];

#[test]
fn commit_gives_what_a_native_run_gives_and_revert_what_was_before() {
    require!(is_root(), "needs root to mount an overlay");
    let only = std::env::var("ONLY").ok();
    for (name, script) in SCRIPTS.iter().filter(|(n, _)| only.as_deref().is_none_or(|o| o == *n)) {
        eprintln!("script {name}");
        let rig = Rig::new(name);
        let before = tree(&rig.tree(), false);
        // Native first: what is written now has times that differ by less than a second.
        sh(&rig.dir.join("native"), script);
        let expected = tree(&rig.dir.join("native"), true);
        let mut tx = rig.begin();
        let id = tx.id();
        rig.run(&tx, script);
        assert_eq!(tree(&rig.tree(), false), before, "{name}: the tree changed before commit");
        let mut reads = ReadSet::new(Coverage::default());
        reads.note(rig.tree().join("d/b").as_os_str().as_bytes(), true, Facets::DATA);
        rig.commit(&mut tx, &reads).unwrap();
        let fuzzy = |mut t: BTreeMap<PathBuf, String>| {
            // Times of now differ between the two runs; old ones do not.
            for look in t.values_mut() {
                if let Some(at) = look.find(" t17") {
                    let end = look[at + 1..].find(' ').map_or(look.len(), |e| at + 1 + e);
                    look.replace_range(at..end, " tNOW");
                }
            }
            t
        };
        let got = fuzzy(tree(&rig.tree(), true));
        let expected = fuzzy(expected);
        for (path, want) in &expected {
            assert_eq!(got.get(path), Some(want), "{name}: {}", path.display());
        }
        for path in got.keys() {
            assert!(expected.contains_key(path), "{name}: {} should be gone", path.display());
        }
        drop(tx);
        txos_engine::commit::committed_entries(&rig.home, id).unwrap();
        let options = Options { durable: false, ..Options::default() };
        match commit::revert(&rig.home, id, &options, None, &Silent) {
            Ok(back) => {
                let now = tree(&rig.tree(), false);
                for (path, was) in &before {
                    assert_eq!(now.get(path), Some(was), "{name} reverted: {}", path.display());
                }
                assert_eq!(now.len(), before.len(), "{name} reverted");
                // And forth again.
                commit::revert(&rig.home, back.id, &options, None, &Silent).unwrap();
                // The retained version of a file with several links may itself be a link, until gc.
                let linkless = |look: &String| {
                    let (start, end) = (look.find(" n"), look.find(" s"));
                    format!("{} {}", &look[..start.unwrap()], &look[end.unwrap()..])
                };
                let again = fuzzy(tree(&rig.tree(), true));
                for (path, want) in &expected {
                    assert_eq!(
                        again.get(path).map(linkless),
                        Some(linkless(want)),
                        "{name} again: {}",
                        path.display()
                    );
                }
            }
            Err(Error::WrongState { .. }) if *name == "nothing" || *name == "touch-nothing" => {}
            Err(e) => panic!("{name}: revert: {e}"),
        }
    }
}

#[test]
fn an_outsiders_change_is_a_conflict_and_nothing_is_published() {
    require!(is_root(), "needs root to mount an overlay");
    let cases: &[(&str, &str, &str)] = &[
        ("content", "echo mine >> d/b; echo n > n", "echo theirs >> d/b"),
        ("removed", "echo mine >> d/b; echo n > n", "rm d/b"),
        ("replaced", "echo mine >> d/b; echo n > n", "echo t > t; mv t d/b"),
        ("mode", "echo mine >> d/b; echo n > n", "chmod 600 d/b"),
        ("xattr", "echo mine >> d/b; echo n > n", "setfattr -n user.note -v other d/b"),
        ("created", "echo mine > d/new; echo n > n", "echo theirs > d/new"),
        ("removed-but-changed", "rm d/b; echo n > n", "echo theirs >> d/b"),
        ("dir-removed", "echo mine > d/sub/new", "rm -r d/sub"),
    ];
    for (name, script, outsider) in cases {
        let rig = Rig::new(&format!("outsider-{name}"));
        let mut tx = rig.begin();
        let mut reads = ReadSet::new(Coverage::default());
        for path in ["d/b", "d/new"] {
            reads.note(
                rig.tree().join(path).as_os_str().as_bytes(),
                true,
                Facets::WRITE | Facets::DATA,
            );
        }
        rig.run(&tx, script);
        sh(&rig.tree(), outsider);
        let before = tree(&rig.tree(), false);
        match rig.commit(&mut tx, &reads) {
            Err(Error::Conflict(c)) => assert!(!c.is_empty()),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(tree(&rig.tree(), false), before, "{name}");
    }
}

#[test]
fn two_appenders_merge() {
    require!(is_root(), "needs root to mount an overlay");
    let rig = Rig::new("append");
    let mut tx = rig.begin();
    let mut reads = ReadSet::new(Coverage::default());
    let log = rig.tree().join("d/b");
    reads.note(log.as_os_str().as_bytes(), true, Facets::WRITE | Facets::APPEND);
    rig.run(&tx, "echo mine >> d/b");
    sh(&rig.tree(), "echo theirs >> d/b");
    let summary = rig.commit(&mut tx, &reads).unwrap();
    assert_eq!(summary.merged, 1);
    assert_eq!(fs::read_to_string(&log).unwrap(), "two\ntheirs\nmine\n");
    // Not if somebody changed what was there.
    let mut tx = rig.begin();
    let mut reads = ReadSet::new(Coverage::default());
    reads.note(log.as_os_str().as_bytes(), true, Facets::WRITE | Facets::APPEND);
    rig.run(&tx, "echo mine >> d/b");
    sh(&rig.tree(), "echo all-new-and-longer-than-before-by-far > d/b");
    assert!(matches!(rig.commit(&mut tx, &reads), Err(Error::Conflict(_))));
}

#[test]
fn a_file_that_is_open_for_writing_keeps_its_inode() {
    require!(is_root(), "needs root to mount an overlay");
    use std::io::Write;
    let rig = Rig::new("writer");
    let log = rig.tree().join("e/x");
    let mut open = fs::OpenOptions::new().append(true).open(&log).unwrap();
    let mut tx = rig.begin();
    rig.run(&tx, "echo mine >> e/x");
    rig.commit(&mut tx, &ReadSet::new(Coverage::default())).unwrap();
    writeln!(open, "later").unwrap();
    assert_eq!(fs::read_to_string(&log).unwrap(), "e\nmine\nlater\n");
}

#[test]
fn a_part_is_committed_and_the_rest_stays() {
    require!(is_root(), "needs root to mount an overlay");
    let rig = Rig::new("part");
    let before = tree(&rig.tree(), true);
    let mut tx = rig.begin();
    let mut reads = ReadSet::new(Coverage::default());
    for path in ["d/b", "e/x", "d/sub/deep/f", "keep"] {
        let path = rig.tree().join(path);
        reads.note(path.as_os_str().as_bytes(), true, Facets::DATA | Facets::LISTING);
    }
    rig.run(&tx, "echo m >> d/b; echo m >> e/x; rm d/sub/deep/f; chmod 600 d/sym; touch keep/k n");
    tx.meta.state = txos_engine::store::State::Pending;
    tx.save(false).unwrap();
    tx.save_reads(&reads, false).unwrap();
    let commit = |tx: &mut Transaction, path: &str| {
        let options = Options {
            durable: false,
            paths: if path.is_empty() { vec![] } else { vec![rig.tree().join(path)] },
            ..Options::default()
        };
        let reads = tx.load_reads().unwrap();
        let changes = ChangeSet::read(tx, &reads, &options.keep_inode).unwrap();
        let planned = commit::plan(tx, &changes, &options)?;
        commit::commit(&rig.home, tx, planned, &reads, &options, None, &Silent)
    };
    let part = commit(&mut tx, "d").unwrap();
    assert!(!part.complete);
    assert!(tx.meta.splitting.is_none());
    assert_eq!(fs::read_to_string(rig.tree().join("d/b")).unwrap(), "two\nm\n");
    assert!(!rig.tree().join("d/sub/deep/f").exists());
    assert_eq!(fs::read_to_string(rig.tree().join("e/x")).unwrap(), "e\n");
    match commit(&mut tx, "d") {
        Err(Error::Unsupported { .. }) => {}
        other => {
            let reads = tx.load_reads().unwrap();
            let left = ChangeSet::read(&tx, &reads, &[]).unwrap();
            panic!("d is committed: {other:?}, left {:?}", left.entries().unwrap())
        }
    }
    // Somebody changes what is committed; the rest does not depend on it.
    sh(&rig.tree(), "echo later >> d/b; echo back > d/sub/deep/f");
    let rest = commit(&mut tx, "").unwrap();
    assert!(rest.complete);
    assert_eq!(fs::read_to_string(rig.tree().join("d/b")).unwrap(), "two\nm\nlater\n");
    assert_eq!(fs::read_to_string(rig.tree().join("d/sub/deep/f")).unwrap(), "back\n");
    assert_eq!(fs::read_to_string(rig.tree().join("e/x")).unwrap(), "e\nm\n");
    // Both go back, in either order of committing.
    let options = Options { durable: false, ..Options::default() };
    sh(&rig.tree(), "true");
    drop(tx);
    commit::revert(&rig.home, rest.id, &options, None, &Silent).unwrap();
    match commit::revert(&rig.home, part.id, &options, None, &Silent) {
        Err(Error::Conflict(c)) => assert!(c.iter().any(|c| c.path.ends_with("d/b"))),
        other => panic!("{other:?}"),
    }
    let now = tree(&rig.tree(), true);
    assert_eq!(now.get(Path::new("e/x")), before.get(Path::new("e/x")));
    assert_eq!(now.get(Path::new("n")), None);
}

#[test]
fn a_chain_is_undone_newest_first() {
    require!(is_root(), "needs root to mount an overlay");
    let rig = Rig::new("chain");
    let file = rig.tree().join("d/b");
    let options = Options { durable: false, ..Options::default() };
    let mut ids = Vec::new();
    for script in ["echo 1 > d/b", "echo 2 > d/b; chmod 600 e/x", "chmod 640 d/b; chmod 644 e/x"] {
        let mut tx = rig.begin();
        ids.push(tx.id());
        let mut reads = ReadSet::new(Coverage::default());
        for path in ["d/b", "e/x"] {
            let path = rig.tree().join(path);
            reads.note(path.as_os_str().as_bytes(), true, Facets::WRITE);
        }
        rig.run(&tx, script);
        rig.commit(&mut tx, &reads).unwrap();
    }
    for (id, content) in ids.into_iter().rev().zip(["2\n", "1\n", "two\n"]) {
        commit::revert(&rig.home, id, &options, None, &Silent).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), content);
    }
}

#[test]
fn reading_one_link_and_writing_another_is_no_conflict() {
    require!(is_root(), "needs root to mount an overlay");
    for script in ["echo m >> d/a", "rm d/a", "echo n > t; mv t d/a", "ln d/a d/third"] {
        let rig = Rig::new("links");
        let mut tx = rig.begin();
        let mut reads = ReadSet::new(Coverage::default());
        for path in ["d/a", "d/a-link"] {
            let path = rig.tree().join(path);
            reads.note(path.as_os_str().as_bytes(), true, Facets::DATA | Facets::ATTRS);
        }
        rig.run(&tx, script);
        rig.commit(&mut tx, &reads).unwrap_or_else(|e| panic!("{script}: {e}"));
    }
}

#[test]
fn a_chain_over_a_new_directory_is_undone_newest_first() {
    require!(is_root(), "needs root to mount an overlay");
    let rig = Rig::new("chain-dir");
    let before = tree(&rig.tree(), true);
    let options = Options { durable: false, ..Options::default() };
    let mut ids = Vec::new();
    let scripts = [
        "mkdir -p o/s; echo 1 > o/s/f; echo 1 > o/s/g; echo 1 > o/h",
        "echo 2 > o/s/f; rm o/s/g; echo 2 > o/s/i; chmod 600 o/h",
    ];
    for script in scripts {
        let mut tx = rig.begin();
        ids.push(tx.id());
        let mut reads = ReadSet::new(Coverage::default());
        for path in ["o", "o/s/f", "o/s/g", "o/s/i", "o/h"] {
            let path = rig.tree().join(path);
            reads.note(path.as_os_str().as_bytes(), true, Facets::WRITE);
        }
        rig.run(&tx, script);
        rig.commit(&mut tx, &reads).unwrap();
    }
    assert!(matches!(
        commit::revert(&rig.home, ids[0], &options, None, &Silent),
        Err(Error::Conflict(_))
    ));
    for id in ids.into_iter().rev() {
        commit::revert(&rig.home, id, &options, None, &Silent).unwrap();
    }
    assert_eq!(tree(&rig.tree(), true), before);
}

#[test]
fn what_an_ordinary_user_wrote_means_nothing_to_roots_transaction() {
    require!(is_root(), "needs root to mount an overlay");
    let rig = Rig::new("marks");
    let marks =
        "setfattr -n user.overlay.redirect -v /keep e; setfattr -n user.overlay.opaque -v y d";
    let script = "echo > e/hello; echo > d/hello; cp -a e copy";
    sh(&rig.tree(), marks);
    sh(&rig.dir.join("native"), &format!("{marks}\n{script}"));
    let mut tx = rig.begin();
    rig.run(&tx, script);
    rig.commit(&mut tx, &ReadSet::new(Coverage::default())).unwrap();
    let strip = |t: BTreeMap<PathBuf, String>| {
        let timeless = |look: String| {
            look.split(' ').filter(|w| !w.starts_with('t')).collect::<Vec<_>>().join(" ")
        };
        t.into_iter().map(|(p, l)| (p, timeless(l))).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(strip(tree(&rig.tree(), true)), strip(tree(&rig.dir.join("native"), true)));
}

#[test]
fn a_root_that_was_swapped_is_not_published_into() {
    require!(is_root(), "needs root to mount an overlay");
    let rig = Rig::new("swap");
    let mut tx = rig.begin();
    rig.run(&tx, "echo x > planted; echo y > e/planted");
    sh(&rig.dir, "mkdir victim victim/e; mv tree aside; ln -s victim tree");
    assert!(rig.commit(&mut tx, &ReadSet::new(Coverage::default())).is_err());
    sh(&rig.dir, "rm tree; mkdir -p tree/e");
    assert!(rig.commit(&mut tx, &ReadSet::new(Coverage::default())).is_err());
    sh(&rig.dir, "test -z \"$(find victim tree -name planted)\"");
}

#[test]
fn an_outsiders_trash_is_not_emptied() {
    require!(is_root(), "needs root to mount an overlay");
    let rig = Rig::new("trash");
    sh(&rig.dir, "mkdir victim; echo > victim/f; rmdir store/trash; ln -s ../victim store/trash");
    let _ = rig.home.empty_trash(None);
    assert!(rig.dir.join("victim/f").exists());
}
