use std::fs;
use std::path::PathBuf;

use super::validate::{OwnWrites, ValidationRules, Walks};
use super::*;
use crate::object::Facets;

struct Dir(PathBuf);

impl Dir {
    fn new(tag: &str) -> Self {
        let path = std::env::temp_dir().join(format!("txos-reads-{tag}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Dir(path.canonicalize().unwrap())
    }
    fn at(&self, name: &str) -> Vec<u8> {
        self.0.join(name).into_os_string().into_encoded_bytes()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn conflicts(set: &ReadSet) -> Vec<String> {
    set.validate(ValidationRules::default(), &OwnWrites::default())
        .into_iter()
        .map(|c| c.what.to_string())
        .collect()
}

#[test]
fn unrelated_changes_are_no_conflict() {
    let d = Dir::new("unrelated");
    fs::write(d.0.join("a"), "a").unwrap();
    let mut set = ReadSet::new(Coverage::default());
    set.note(&d.at("a"), true, Facets::ATTRS | Facets::DATA);
    set.note(&d.at("missing"), true, Facets::ENTRY);
    set.note(&d.at("."), true, Facets::ATTRS);
    fs::write(d.0.join("b"), "b").unwrap();
    assert!(conflicts(&set).is_empty(), "{:?}", conflicts(&set));
}

#[test]
fn each_facet_is_noticed() {
    let d = Dir::new("facets");
    fs::write(d.0.join("a"), "a").unwrap();
    fs::create_dir(d.0.join("sub")).unwrap();
    std::os::unix::fs::symlink("a", d.0.join("link")).unwrap();
    let fresh = |path: &str, facets| {
        let mut set = ReadSet::new(Coverage::default());
        set.note(&d.at(path), true, facets);
        set
    };
    let data = fresh("link", Facets::DATA);
    let absent = fresh("new", Facets::ENTRY);
    let listing = fresh("sub", Facets::LISTING);
    let below = fresh("nodir/x", Facets::ENTRY);
    assert!([&data, &absent, &listing, &below].iter().all(|s| conflicts(s).is_empty()));
    fs::write(d.0.join("a"), "b").unwrap();
    fs::write(d.0.join("new"), "").unwrap();
    fs::write(d.0.join("sub/x"), "").unwrap();
    fs::create_dir(d.0.join("nodir")).unwrap();
    assert_eq!(conflicts(&data), ["its content was changed"]);
    assert_eq!(conflicts(&absent), ["it did not exist and was created (file)"]);
    assert_eq!(conflicts(&listing), ["names in it were added or removed"]);
    assert_eq!(conflicts(&below), ["it did not exist and was created"]);
}

#[test]
fn what_passes_through_a_fifo_is_no_change_of_it() {
    let d = Dir::new("fifo");
    let path = d.0.join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut set = ReadSet::new(Coverage::default());
    set.note(&d.at("fifo"), true, Facets::ATTRS | Facets::DATA);
    let mut both = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    std::io::Write::write_all(&mut both, b"x").unwrap();
    assert!(conflicts(&set).is_empty());
    fs::hard_link(&path, d.0.join("second")).unwrap();
    assert_eq!(conflicts(&set), ["its number of links was changed"]);
}

#[test]
fn a_name_that_came_and_went_is_no_conflict() {
    let d = Dir::new("came-and-went");
    let mut set = ReadSet::new(Coverage::default());
    set.note(&d.at(""), true, Facets::LISTING);
    fs::write(d.0.join("temp"), "").unwrap();
    fs::remove_file(d.0.join("temp")).unwrap();
    assert!(conflicts(&set).is_empty());
}

#[test]
fn what_is_not_covered_is_not_kept() {
    let d = Dir::new("coverage");
    fs::create_dir_all(d.0.join("in")).unwrap();
    fs::create_dir_all(d.0.join("out")).unwrap();
    fs::write(d.0.join("in/f"), "").unwrap();
    std::os::unix::fs::symlink("../in/f", d.0.join("out/link")).unwrap();
    let mut set = ReadSet::new(Coverage { only_under: vec![d.at("in")], ..Coverage::default() });
    set.note(&d.at("out/x"), true, Facets::ENTRY);
    assert!(set.is_empty());
    set.note(&d.at("out/link"), true, Facets::DATA);
    assert!(set.get(&d.at("in/f")).is_some());
    set.note(&d.at("in"), true, Facets::ATTRS);
    assert!(set.get(&d.at("in")).is_some());
}

#[test]
fn bytes_and_back() {
    let d = Dir::new("bytes");
    let mut set = ReadSet::new(Coverage::default());
    set.note(&d.at("x"), true, Facets::ENTRY);
    set.note(&d.at(""), true, Facets::LISTING);
    let bytes = set.to_bytes().unwrap();
    let back = ReadSet::from_bytes(&bytes, "t".as_ref()).unwrap();
    assert_eq!(back.len(), set.len());
    for cut in 0..bytes.len() {
        assert!(ReadSet::from_bytes(&bytes[..cut], "t".as_ref()).is_err());
    }
    let mut flipped = bytes.clone();
    for i in 0..bytes.len() {
        flipped[i] ^= 0x40;
        assert!(ReadSet::from_bytes(&flipped, "t".as_ref()).is_err(), "byte {i}");
        flipped[i] ^= 0x40;
    }
}

/// A stored set tells whether replacements were missed. One of the format before does not: they may have been.
#[test]
fn replacements_that_were_missed_are_stored() {
    let d = Dir::new("missed");
    fs::write(d.0.join("f"), "x").unwrap();
    let mut set = ReadSet::new(Coverage::default());
    set.note(&d.at("f"), true, Facets::DATA | Facets::WRITE);
    let stored = |set: &ReadSet| ReadSet::from_bytes(&set.to_bytes().unwrap(), "t".as_ref());
    assert!(set.kept(&d.at("f")) && stored(&set).unwrap().kept(&d.at("f")));
    assert!(!set.kept(&d.at("g")), "nothing was seen of it");

    let mut before = set.to_bytes().unwrap();
    before.pop();
    before[8..12].copy_from_slice(&4u32.to_le_bytes());
    let crc = crc32fast::hash(&before[16..]);
    before[12..16].copy_from_slice(&crc.to_le_bytes());
    let back = ReadSet::from_bytes(&before, "t".as_ref()).unwrap();
    assert_eq!(back.len(), set.len());
    assert!(!back.kept(&d.at("f")));

    set.misses_replacements();
    assert!(!set.kept(&d.at("f")) && !stored(&set).unwrap().kept(&d.at("f")));
}

/// What a transaction that renames from each first to each second path has published.
fn renamed(d: &Dir, renames: &[(&str, &str)]) -> OwnWrites {
    let mut places = crate::places::Places::default();
    let mut published = OwnWrites::default();
    for (from, to) in renames {
        fs::rename(d.0.join(from), d.0.join(to)).unwrap();
        published.verified.extend([places.entry(&d.at(from)), places.entry(&d.at(to))]);
        places.rename(&d.at(from), &d.at(to));
    }
    published.names_from(places);
    published
}

#[test]
fn what_moved_is_looked_at_where_it_is() {
    // Moved; taken into a store; moved, and something in it moved on; below something else that moved.
    let ways: &[&[(&str, &str)]] = &[
        &[("d", "x")],
        &[("d", "store/1")],
        &[("d/e", "x"), ("d", "store/1")],
        &[("d", "x"), ("x/e", "store/1"), ("h", "x/e"), ("store/1", "x/e/e")],
    ];
    for (n, renames) in ways.iter().enumerate() {
        type Outsider = fn(&std::path::Path, &Dir);
        let outsiders: &[(&str, Outsider)] = &[
            ("", |_, _| {}),
            ("names in it were added or removed", |e, _| fs::write(e.join("k"), "").unwrap()),
            ("its content was changed", |e, _| fs::write(e.join("f"), "other").unwrap()),
            ("it was removed", |e, _| fs::remove_file(e.join("g")).unwrap()),
            ("it did not exist and was created", |e, _| fs::create_dir(e.join("no")).unwrap()),
            ("it leads to another directory now", |_, d| {
                fs::remove_file(d.0.join("link")).unwrap();
                std::os::unix::fs::symlink("h", d.0.join("link")).unwrap();
            }),
        ];
        for (expected, outsider) in outsiders {
            let d = Dir::new("moved");
            for dir in ["d/e", "h", "store"] {
                fs::create_dir_all(d.0.join(dir)).unwrap();
            }
            fs::write(d.0.join("d/e/f"), "f").unwrap();
            fs::write(d.0.join("d/e/g"), "g").unwrap();
            std::os::unix::fs::symlink("d/e", d.0.join("link")).unwrap();
            let mut set = ReadSet::new(Coverage::default());
            set.note(&d.at("d/e"), true, Facets::LISTING);
            set.note(&d.at("link/f"), true, Facets::DATA);
            set.note(&d.at("d/e/g"), true, Facets::ENTRY);
            set.note(&d.at("link/no/thing"), true, Facets::ENTRY);
            let published = renamed(&d, renames);
            let e = published.places.now(&d.at("d/e"));
            outsider(&crate::path::from_bytes(&e), &d);
            let found: Vec<String> = set
                .validate(ValidationRules::default(), &published)
                .into_iter()
                .map(|conflict| conflict.what.to_string())
                .collect();
            let right = match *expected {
                "" => found.is_empty(),
                what => found.iter().any(|found| found.starts_with(what)),
            };
            assert!(right, "way {n}: {expected:?}, not {found:?}");
        }
    }
}

/// What was walked before changes nothing of where a path led, whatever the order.
#[test]
fn walks_that_are_remembered_lead_to_the_same() {
    let d = Dir::new("walks");
    for dir in ["d/e/g/h", "h/i", "store"] {
        fs::create_dir_all(d.0.join(dir)).unwrap();
    }
    fs::write(d.0.join("d/e/f"), "f").unwrap();
    std::os::unix::fs::symlink("d/e", d.0.join("link")).unwrap();
    std::os::unix::fs::symlink("../../h", d.0.join("d/e/up")).unwrap();
    let published = renamed(&d, &[("d/e/g", "store/1"), ("h", "d/e/g"), ("d", "store/2")]);
    let mut paths: Vec<Vec<u8>> = [
        "d",
        "d/e",
        "d/e/g",
        "d/e/g/h",
        "d/e/g/h/none",
        "d/e/g/i",
        "d/e/up",
        "d/e/up/i",
        "d/e/f",
        "d/e/f/x",
        "h",
        "h/i",
        "link",
        "link/g",
        "link/g/h",
        "link/up/i",
        "d/../d/e/g",
        "d/./e//g",
        "store",
        "store/1",
        "store/2",
        "none",
        "none/x",
        "d/e/g/h/..",
    ]
    .iter()
    .map(|path| d.at(path))
    .collect();
    paths.push(b"/".to_vec());
    let alone: Vec<_> = paths
        .iter()
        .map(|path| published.led_to(path, &mut Walks::default()))
        .map(|led| (led.to, led.passed))
        .collect();
    for step in [1, 7, 24] {
        let mut walks = Walks::default();
        for n in (0..2 * paths.len()).map(|n| n * step % paths.len()) {
            let led = published.led_to(&paths[n], &mut walks);
            assert_eq!((led.to, led.passed), alone[n], "{:?}", crate::path::from_bytes(&paths[n]));
        }
    }
    let led = |path: &str| published.led_to(&d.at(path), &mut Walks::default()).to;
    assert_eq!(led("d/e/g/h"), Ok(d.at("d/e/g/h")));
    assert_eq!(led("link/up/i"), Ok(d.at("h/i")));
}

/// A look for which this process had no descriptor, no memory or no time has told nothing: it is a conflict, and
/// not the answer that nothing is there.
#[test]
fn a_look_that_tells_nothing_is_a_conflict() {
    use rustix::io::Errno;
    let d = Dir::new("tells-nothing");
    for e in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::TIMEDOUT, Errno::AGAIN] {
        let mut set = ReadSet::new(Coverage::default());
        set.note(&d.at("nowhere/below"), true, Facets::DATA);
        assert!(conflicts(&set).is_empty());
        for alias in set.aliases.values_mut() {
            if matches!(alias, PathBinding::Nowhere(_)) {
                *alias = PathBinding::Nowhere(e.raw_os_error());
            }
        }
        let told = conflicts(&set);
        assert!(told.iter().any(|what| what.contains("could not be looked at")), "{e}: {told:?}");
    }
}
